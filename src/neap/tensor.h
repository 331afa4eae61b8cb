/* neap/tensor.h: tensors by themselves: numbers in memory, views of them, and copies between any
 * two dtypes. Part of neap.h, which includes it.
 *
 *   neap_tensor x = {0}, row = {0};
 *   if (neap_tensor_new(&x, NEAP_DTYPE_F32, &(neap_shape){2, {3, 4}}, &error)) goto end;
 *   float *data = (float *)neap_tensor_data(&x);
 *   for (int64_t i = 0; i < neap_tensor_elems(&x); i++) data[i] = (float)i;
 *   if (neap_tensor_select(&x, 0, 1, &row, &error)) goto end;       // row: (4), the bytes are x's
 *   if (neap_workspace_feed(ws, "x", &x, &error)) goto end;
 *   end:
 *   neap_tensor_fini(&row);
 *   neap_tensor_fini(&x);
 *
 * A neap_tensor is a plain value that holds one reference of a storage: bytes that live as long as
 * anybody refers to them. Whatever fills one gives a reference, which neap_tensor_fini drops; a
 * copy by `=` holds none. {0} is "no tensor".
 */
#include "neap.h"
#ifndef NEAP_TENSOR_PART_H
#define NEAP_TENSOR_PART_H

/* ---- dtypes and shapes ----------------------------------------------------------------------- */

NEAP_API size_t neap_dtype_bytes(neap_dtype dtype);     /* of one element */
NEAP_API const char *neap_dtype_name(neap_dtype dtype); /* "f32" */
/* NONE when it is no name of one */
NEAP_API neap_dtype neap_dtype_from_name(const char *name);
NEAP_API bool neap_dtype_is_float(neap_dtype dtype);   /* f32 f64 bf16 f16 */
NEAP_API bool neap_dtype_is_integer(neap_dtype dtype); /* i8 to i64; bool is none */

/* INVARIANT: 0 <= n_dim <= NEAP_MAX_DIM; dim[i] >= 0 for i < n_dim; the rest is 0, so that shapes
 * compare by memcmp. n_dim 0 is a scalar (one element); a dim of 0 makes the tensor empty. */
typedef struct neap_shape {
  int n_dim;
  int64_t dim[NEAP_MAX_DIM];
} neap_shape;

typedef struct neap_type {
  neap_dtype dtype;
  neap_shape shape;
} neap_type;

NEAP_API neap_shape neap_shape_of(int n_dim, const int64_t *dim);
/* NEAP_SHAPE(64, 784); in C alone */
#define NEAP_SHAPE(...)                                                    \
  neap_shape_of((int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
                (const int64_t[]){__VA_ARGS__})
NEAP_API bool neap_shape_equal(const neap_shape *a, const neap_shape *b);
/* 1 for a scalar; INT64_MAX when there are more */
NEAP_API int64_t neap_shape_elems(const neap_shape *shape);
/* "(64,20,24,24)"; "()" for a scalar. Returns text. */
#define NEAP_SHAPE_TEXT 160
NEAP_API const char *neap_shape_text(const neap_shape *shape, char text[NEAP_SHAPE_TEXT]);

/* ---- tensors --------------------------------------------------------------------------------- */

typedef struct neap_storage neap_storage; /* bytes with a reference count (atomic) */

/* A view of a storage. Element (i, j, ..) lies i * stride[0] + j * stride[1] + .. elements behind
 * element 0. */
typedef struct neap_tensor {
  neap_dtype dtype;
  neap_shape shape;
  int64_t stride[NEAP_MAX_DIM]; /* in elements; 0 where broadcast, negative where reversed */
  neap_storage *storage;
  int64_t offset_bytes; /* of element 0 */
} neap_tensor;

/* A dense tensor; contents undefined. DTYPE or SHAPE error for a type that can't be. */
NEAP_API neap_status neap_tensor_new(neap_tensor *tensor, neap_dtype dtype, const neap_shape *shape,
                                     neap_error *error);
/* A dense tensor on bytes of the caller's, aligned as the dtype needs; `release(owner)` (may be
 * NULL) runs when the last reference is dropped. When this fails it has not run. */
NEAP_API neap_status neap_tensor_borrow(neap_tensor *tensor, neap_dtype dtype,
                                        const neap_shape *shape, void *data,
                                        void (*release)(void *owner), void *owner,
                                        neap_error *error);
/* the same view, one more reference */
NEAP_API neap_tensor neap_tensor_retain(const neap_tensor *tensor);
/* drops the reference, leaves {0} */
NEAP_API void neap_tensor_fini(neap_tensor *tensor);
/* address of element 0 */
NEAP_API char *neap_tensor_data(const neap_tensor *tensor);
NEAP_API int64_t neap_tensor_elems(const neap_tensor *tensor);
NEAP_API size_t neap_tensor_bytes(const neap_tensor *tensor);  /* of its elements, dense */
NEAP_API bool neap_tensor_is_dense(const neap_tensor *tensor); /* row-major, no gaps */
/* Bytes that must not be written, of a file mapped "r": neap_tensor_copy refuses them, and so must
 * whoever writes through neap_tensor_data. */
NEAP_API bool neap_tensor_is_read_only(const neap_tensor *tensor);
/* To be called when bytes that others may have read were written through neap_tensor_data: what was
 * computed from them once is then computed again. */
NEAP_API void neap_tensor_touch(const neap_tensor *tensor);

/* Views: each fills *out with a new reference; dims count from 0. SHAPE errors. */
/* elements from, from + step, ..: n of them */
NEAP_API neap_status neap_tensor_narrow(const neap_tensor *t, int dim, int64_t from, int64_t n,
                                        int64_t step, neap_tensor *out, neap_error *error);
/* one index of a dimension, which goes */
NEAP_API neap_status neap_tensor_select(const neap_tensor *t, int dim, int64_t index,
                                        neap_tensor *out, neap_error *error);
/* dimension d of the result is dimension order[d] */
NEAP_API neap_status neap_tensor_permute(const neap_tensor *t, const int *order, neap_tensor *out,
                                         neap_error *error);
/* dimensions of 1, and missing ones in front, repeated without bytes */
NEAP_API neap_status neap_tensor_expand(const neap_tensor *t, const neap_shape *shape,
                                        neap_tensor *out, neap_error *error);
/* The same elements in another shape; one dim may be -1. SHAPE error when strides do not allow a
 * view. */
NEAP_API neap_status neap_tensor_reshape_view(const neap_tensor *t, int n_dim, const int64_t *dim,
                                              neap_tensor *out, neap_error *error);

/* Copy with cast between any two dtypes, strides and broadcasting of `from` to `to`'s shape. Float
 * to integer: to nearest even, saturating, NaN to 0. Integer to integer: saturating. To bool: != 0.
 * To bf16 and f16: to nearest even, overflow to infinity. Overlapping views of one storage are
 * safe. */
NEAP_API neap_status neap_tensor_copy(const neap_tensor *to, const neap_tensor *from,
                                      neap_error *error);
/* A dense tensor of its own storage with the same elements, in `dtype` (NONE: the same). */
NEAP_API neap_status neap_tensor_clone(const neap_tensor *t, neap_dtype dtype, neap_tensor *out,
                                       neap_error *error);

/* One element, counted from `base` in elements of the dtype. Integers beyond 2^53 keep their value
 * through _i64; setting rounds and saturates as neap_tensor_copy does. */
NEAP_API double neap_element_get(neap_dtype dtype, const void *base, int64_t index);
NEAP_API int64_t neap_element_get_i64(neap_dtype dtype, const void *base, int64_t index);
NEAP_API void neap_element_set(neap_dtype dtype, void *base, int64_t index, double value);
NEAP_API void neap_element_set_i64(neap_dtype dtype, void *base, int64_t index, int64_t value);

/* 32 hexadecimal digits of a dense tensor's bytes: equal for equal bits, NaN and -0 included, on
 * machines of one byte order. ARGUMENT error for one that is not dense. */
NEAP_API neap_status neap_tensor_hash(const neap_tensor *t, char text[33], neap_error *error);

/* `options` NULL gives the values written beside the fields. */
typedef struct neap_print_options {
  int precision; /* significant digits after the point: 4 */
  int threshold; /* elements above which the middle is left out: 1000 */
  int edge;      /* items shown at each end then: 3 */
  int width;     /* characters a line: 100 */
} neap_print_options;
/* As NumPy prints arrays, and on the last line "f32 (64,10) 2.5 KiB", after `name` unless that is
 * NULL. No line end follows. End it with neap_free. */
NEAP_API neap_status neap_tensor_text(const neap_tensor *t, const neap_print_options *options,
                                      const char *name, char **out, neap_error *error);

/* ---- blobs as tensors ------------------------------------------------------------------------ */

/* Copies the tensor into the blob, which is made where there is none: neap_workspace_write of a
 * tensor. With `share` the blob holds a reference of the storage instead. A parameter must match in
 * type; another blob becomes what is fed. */
NEAP_API neap_status neap_workspace_feed(neap_workspace *workspace, const char *name,
                                         const neap_tensor *tensor, bool share, neap_error *error);
/* A copy. NAME when unknown; RELEASED when freed or when its bytes have been taken, naming the new
 * owner and the fix. */
NEAP_API neap_status neap_workspace_fetch(neap_workspace *workspace, const char *name,
                                          neap_tensor *out, neap_error *error);
/* A view of the blob's own bytes. *generation (may be NULL): it is valid while
 * neap_workspace_generation gives the same; 0, of blobs with bytes of their own: always. */
NEAP_API neap_status neap_workspace_view(neap_workspace *workspace, const char *name,
                                         neap_tensor *out, uint64_t *generation, neap_error *error);
NEAP_API uint64_t neap_workspace_generation(const neap_workspace *workspace);
/* One more holder of the workspace; neap_workspace_release is one less. */
NEAP_API neap_workspace *neap_workspace_retain(neap_workspace *workspace);

#endif
