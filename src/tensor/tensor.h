/* tensor: dtype, shape, type (dtype and shape), storage (the only refcounted thing) and tensor, a
 * strided view of a storage. Everything here works on any dtype; nothing here knows of nets.
 */
#ifndef NEAP_TENSOR_H
#define NEAP_TENSOR_H

#include "base/base.h"
#include "neap/record.h"

/* ---- dtype (dtype.c) ------------------------------------------------------------------------- */

/* The list itself, NEAP_DTYPE_MAP, is part of the public contract, neap.h; so is all of
 * neap/tensor.h, which is not declared again here. */

/* X(symbol, suffix, C type, ...) for each integer dtype, with what the caller adds (one thing at
 * least): loops over integers, and the tables of such loops, are written from this list. */
#define NEAP_EACH_SIGNED(X, ...)    \
  X(I8, i8, int8_t, __VA_ARGS__)    \
  X(I16, i16, int16_t, __VA_ARGS__) \
  X(I32, i32, int32_t, __VA_ARGS__) \
  X(I64, i64, int64_t, __VA_ARGS__)
#define NEAP_EACH_UNSIGNED(X, ...) \
  X(U8, u8, uint8_t, __VA_ARGS__)  \
  X(U16, u16, uint16_t, __VA_ARGS__)
#define NEAP_EACH_INTEGER(X, ...)  \
  NEAP_EACH_SIGNED(X, __VA_ARGS__) \
  NEAP_EACH_UNSIGNED(X, __VA_ARGS__)

static inline bool neap_dtype_in(neap_dtype dtype, unsigned set) {
  return (set >> dtype & 1u) != 0;
}
/* "f32, f64" of a set. Returns text. */
#define NEAP_DTYPES_TEXT 80
const char *neap_dtypes_text(unsigned set, char text[NEAP_DTYPES_TEXT]);

/* ---- shape and type (shape.c) ---------------------------------------------------------------- */

/* Elements of the dimensions [from, to). */
int64_t neap_shape_span(const neap_shape *shape, int from, int to);
/* NumPy broadcasting. False when the shapes do not fit. `out` may be a or b. */
bool neap_shape_broadcast(const neap_shape *a, const neap_shape *b, neap_shape *out);
/* Row-major strides in elements. */
void neap_shape_strides(const neap_shape *shape, int64_t stride[NEAP_MAX_DIM]);
size_t neap_type_bytes(const neap_type *type); /* dense, plain; SIZE_MAX when there are more */
bool neap_type_equal(const neap_type *a, const neap_type *b);
/* The one check of a type, wherever it comes from: a known dtype, 0 to NEAP_MAX_DIM dimensions,
 * none of them negative, and no more than NEAP_MOST_BYTES, a dimension of 0 counted as 1. DTYPE or
 * SHAPE error otherwise, which calls the tensor `what`. */
neap_status neap_type_check(const neap_type *type, const char *what, neap_error *error);

/* ---- layout (layout.c) ----------------------------------------------------------------------- */

/* neap_layout itself is part of neap/record.h. */
bool neap_layout_equal(const neap_layout *a, const neap_layout *b);
size_t neap_layout_bytes(const neap_type *type, const neap_layout *layout); /* padding included */
bool neap_layout_is_padded(const neap_type *type, const neap_layout *layout);
/* "plain", "abcd:16b", "acdb", "opaque:1a2b". Returns text. And back; false when it is no
 * layout. */
#define NEAP_LAYOUT_TEXT 48
const char *neap_layout_text(const neap_layout *layout, int n_dim, char text[NEAP_LAYOUT_TEXT]);
bool neap_layout_from_text(const char *text, size_t opaque_bytes, neap_layout *layout);

/* ---- storage and tensor (storage.c, tensor.c) ------------------------------------------------ */

/* New DATA bytes, undefined; count 1. NULL when refused. */
neap_storage *neap_storage_new(size_t bytes);
/* bytes of a memory bank's kind */
neap_storage *neap_storage_new_in(size_t bytes, neap_bank_kind kind);
/* Bytes owned by someone else; `release(owner)` runs when the count reaches 0 (may be NULL). NULL
 * when refused: then `release` has not run. */
neap_storage *neap_storage_borrow(void *data, size_t bytes, void (*release)(void *owner),
                                  void *owner);
neap_storage *neap_storage_retain(neap_storage *storage);
void neap_storage_release(neap_storage *storage);
char *neap_storage_data(const neap_storage *storage);
/* Bytes that can be had again: `restore` writes all of them, and can't fail; `drop` follows, or
 * comes alone where nobody asked for them. */
typedef struct neap_storage_source {
  void (*restore)(void *self, char *data);
  void (*drop)(void *self);
  void *self;
} neap_storage_source;
/* Gives the memory of the bytes back to the system, though they stay counted. Whoever asks for
 * neap_storage_data has them again, the same ones; a pointer that was got before leads nowhere. */
void neap_storage_put_away(neap_storage *storage, const neap_storage_source *source);
/* Where the bytes are or will be: for who looks at the address alone. */
char *neap_storage_address(const neap_storage *storage);
size_t neap_storage_bytes(const neap_storage *storage);
int neap_storage_n_ref(const neap_storage *storage);
/* Bytes that must not be written (a file mapped "r"): neap_tensor_copy refuses them as a target,
 * and so must whoever else writes through neap_tensor_data. */
void neap_storage_set_read_only(neap_storage *storage);
bool neap_storage_is_read_only(const neap_storage *storage);
/* The content version: a number that no other storage of this process has had, and a new one after
 * each touch. Whoever writes bytes of a storage that others may have read touches it when the bytes
 * are there: what was computed from them (packed weights) is then known to be stale.
 * neap_tensor_copy does it itself. */
void neap_storage_touch(neap_storage *storage);
uint64_t neap_storage_version(const neap_storage *storage);

/* A dense view of `storage` from `offset_bytes`; retains it. */
neap_tensor neap_tensor_view(neap_storage *storage, int64_t offset_bytes, neap_dtype dtype,
                             const neap_shape *shape);
static inline neap_type neap_tensor_type(const neap_tensor *t) {
  return (neap_type){t->dtype, t->shape};
}
/* n dense elements, no overlap. */
void neap_cast(neap_dtype to, void *out, neap_dtype from, const void *in, int64_t n);
float neap_bf16_to_f32(uint16_t x);
uint16_t neap_f32_to_bf16(float x);
float neap_f16_to_f32(uint16_t x);
uint16_t neap_f32_to_f16(float x);
/* neap_cache of neap/chain.h (cache.c), which grows as needed. One that lies in another struct
 * begins with {.name = ..}, borrowed, and ends with neap_cache_fini. */
typedef struct neap_cache_item {
  neap_tensor tensor; /* {0}: dropped */
  const char *label;  /* interned; NULL: none */
} neap_cache_item;
struct neap_cache {
  const char *name;
  int n, cap;
  neap_cache_item *item; /* item[n - 1] is the top */
};
/* The checks of neap_cache_pop for the item `depth` below the top, which stays. */
neap_status neap_cache_check(const neap_cache *cache, int depth, const neap_cache_want *want,
                             neap_error *error);
/* Lets go of item i, counted from the bottom; its place stays, so that the others keep theirs.
 * RELEASED the second time. */
neap_status neap_cache_drop(neap_cache *cache, int i, neap_error *error);
void neap_cache_fini(neap_cache *cache);

/* neap_tensor_text into a buffer (print.c). */
void neap_tensor_print(const neap_tensor *t, const neap_print_options *options, const char *name,
                       neap_buffer *out);

#endif
