/* onednn_int.h: private to math: what the files of the oneDNN engine share.
 *
 * oneDNN 2 and 3 say the same things in two ways. What differs is listed below under "versions";
 * onednn_v2.c and onednn_v3.c each carry it out for one of them, and the build takes one
 * (onednn.mk). All other files compile with either.
 */
#ifndef NEAP_MATH_ONEDNN_INT_H
#define NEAP_MATH_ONEDNN_INT_H

#include "math/onednn.h"

#include <dnnl.h>

/* ---- layouts (onednn_md.c) ------------------------------------------------------------------- */

/* A value as oneDNN sees it: its dimensions padded to whole blocks, the strides of the blocks, and
 * the inner blocks from the slowest. Unused places are 0. */
typedef struct onednn_form {
  dnnl_data_type_t data_type;
  int n_dim, n_inner;
  dnnl_dims_t dim, padded, stride;
  int inner_dim[4], inner_block[4];
} onednn_form;

/* Blocks of dimension d: its padded elements over the product of its inner blocks. */
int64_t onednn_outer_elems(const onednn_form *form, int d);
/* oneDNN's description of a value, in place of what *md holds. groups > 1: a convolution's weight
 * (O,I/g,...), for oneDNN (g,O/g,I/g,...). layout NULL: oneDNN is free to choose. False when oneDNN
 * can't express it. */
bool onednn_md(const neap_type *type, const neap_layout *layout, int64_t groups,
               dnnl_memory_desc_t *md);
/* Back; false for anything that is not a dense order of dimensions with inner blocks. */
bool onednn_layout(const onednn_form *form, const neap_type *type, int64_t groups,
                   neap_layout *layout);

/* ---- problems (onednn_desc.c) ---------------------------------------------------------------- */

/* One execution argument: an operand of the case, or scratch (position -1). */
typedef struct onednn_arg {
  int arg; /* DNNL_ARG_... */
  /* keeps_plain: its layout is not oneDNN's to choose (vectors, stash, flattened operands) */
  bool is_out, keeps_plain;
  int position;
  bool keeps_given; /* nor ours: whatever it is, oneDNN sees a row of lanes */
} onednn_arg;

enum { ONEDNN_MAX_ARG = NEAP_ONEDNN_MAX_IN + NEAP_ONEDNN_MAX_OUT + 1 };
enum { ONEDNN_SCRATCH = -1 }; /* a position that is no operand's */

typedef struct onednn_problem {
  dnnl_primitive_desc_t pd; /* owned by the caller after onednn_describe */
  onednn_arg arg[ONEDNN_MAX_ARG];
  int n_arg;
} onednn_problem;

/* Makes the primitive descriptor of a case. `free`: layouts that are oneDNN's to choose are left to
 * it; else all come from the case. False when oneDNN has none. */
bool onednn_describe(const neap_onednn_case *c, bool free, dnnl_engine_t engine,
                     const_dnnl_primitive_attr_t attr, onednn_problem *out);
/* Whether a product is made by oneDNN's matmul, not by its inner product. */
bool onednn_is_matmul(const neap_onednn_case *c);
static inline bool onednn_is_present(const neap_type *types, int n, int position) {
  return position < n && types[position].dtype != NEAP_DTYPE_NONE;
}
/* Groups of an operand's layout: the case's for a convolution's weight, else 1. */
int64_t onednn_groups(const neap_onednn_case *c, bool is_out, int position);

/* ---- versions (onednn_v2.c or onednn_v3.c) --------------------------------------------------- */

/* Memory descriptors. dnnl_memory_desc_t is a struct in oneDNN 2 and a pointer to an object in 3,
 * so here they are passed by the address of a variable, zeroed before its first use. */
typedef const dnnl_memory_desc_t *onednn_md_in; /* NULL: an absent operand */

/* In place of what *md holds. `free`: the dimensions alone, the layout is oneDNN's to choose. False
 * when it can't be expressed. */
bool onednn_md_make(const onednn_form *form, bool free, dnnl_memory_desc_t *md);
void onednn_md_end(dnnl_memory_desc_t *md);

/* Of execution argument `arg` of a primitive. Bytes, padding included: 0 when it has no such
 * argument. Form: false when it has none, or in a layout that is no order of dimensions and
 * blocks. */
size_t onednn_arg_bytes(const_dnnl_primitive_desc_t pd, int arg);
bool onednn_arg_form(const_dnnl_primitive_desc_t pd, int arg, onednn_form *form);
/* A memory object without an address. */
bool onednn_arg_memory(const_dnnl_primitive_desc_t pd, int arg, dnnl_engine_t engine,
                       dnnl_memory_t *memory);
void onednn_memory_set(dnnl_memory_t memory, void *address, dnnl_stream_t stream);

/* Operations behind a primitive: y + what y holds, max(y, 0), y to the nearest whole number (even
 * in the middle), y with b. */
bool onednn_then_sum(dnnl_post_ops_t chain);
bool onednn_then_relu(dnnl_post_ops_t chain);
bool onednn_then_round(dnnl_post_ops_t chain);
bool onednn_then_binary(dnnl_post_ops_t chain, dnnl_alg_kind_t algorithm, onednn_md_in b);

/* What all primitive descriptors are made with. `kernel`: how the name of the preferred kernel
 * begins, where there is one; NULL: the first. `hint`: the forward's descriptor, for a backward;
 * may be NULL where oneDNN 2 asks for none. */
typedef struct onednn_with {
  dnnl_engine_t engine;
  const_dnnl_primitive_attr_t attr;
  const char *kernel;
  const_dnnl_primitive_desc_t hint;
} onednn_with;

/* A window by spatial dimension, as oneDNN counts: dilation from 0, padding in elements. */
typedef struct onednn_window {
  dnnl_dims_t kernel, stride, dilate, begin, end;
} onednn_window;

/* Whether the backward of a norm has an argument SHIFT, read or not. */
extern const bool onednn_norm_backward_has_shift;

/* Each makes a primitive descriptor into *pd; false, *pd untouched, when there is none. */
bool onednn_conv_forward(const onednn_with *with, dnnl_alg_kind_t algorithm,
                         const onednn_window *window, onednn_md_in x, onednn_md_in w,
                         onednn_md_in b, onednn_md_in y, dnnl_primitive_desc_t *pd);
bool onednn_conv_grad_input(const onednn_with *with, dnnl_alg_kind_t algorithm,
                            const onednn_window *window, onednn_md_in dx, onednn_md_in w,
                            onednn_md_in dy, dnnl_primitive_desc_t *pd);
bool onednn_conv_grad_weight(const onednn_with *with, dnnl_alg_kind_t algorithm,
                             const onednn_window *window, onednn_md_in x, onednn_md_in dw,
                             onednn_md_in dy, dnnl_primitive_desc_t *pd);
bool onednn_pool_forward(const onednn_with *with, dnnl_prop_kind_t kind, dnnl_alg_kind_t algorithm,
                         const onednn_window *window, onednn_md_in x, onednn_md_in y,
                         dnnl_primitive_desc_t *pd);
bool onednn_pool_backward(const onednn_with *with, dnnl_alg_kind_t algorithm,
                          const onednn_window *window, onednn_md_in dx, onednn_md_in dy,
                          dnnl_primitive_desc_t *pd);
bool onednn_norm_forward(const onednn_with *with, dnnl_prop_kind_t kind, onednn_md_in x, float eps,
                         unsigned flags, dnnl_primitive_desc_t *pd);
bool onednn_norm_backward(const onednn_with *with, onednn_md_in dy, onednn_md_in x, float eps,
                          unsigned flags, dnnl_primitive_desc_t *pd);
bool onednn_product_forward(const onednn_with *with, onednn_md_in x, onednn_md_in w, onednn_md_in b,
                            onednn_md_in y, dnnl_primitive_desc_t *pd);
bool onednn_product_grad_input(const onednn_with *with, onednn_md_in dx, onednn_md_in w,
                               onednn_md_in dy, dnnl_primitive_desc_t *pd);
bool onednn_product_grad_weight(const onednn_with *with, onednn_md_in x, onednn_md_in dw,
                                onednn_md_in dy, dnnl_primitive_desc_t *pd);
/* y (M,N) = x (M,K) w (K,N) + b (1,N), each in any order of its two dimensions. */
bool onednn_matmul(const onednn_with *with, onednn_md_in x, onednn_md_in w, onednn_md_in b,
                   onednn_md_in y, dnnl_primitive_desc_t *pd);
bool onednn_eltwise_forward(const onednn_with *with, dnnl_alg_kind_t algorithm, onednn_md_in x,
                            dnnl_primitive_desc_t *pd);
/* `data`: x, or y where the algorithm goes by it; dx is like dy. */
bool onednn_eltwise_backward(const onednn_with *with, dnnl_alg_kind_t algorithm, onednn_md_in dy,
                             onednn_md_in data, dnnl_primitive_desc_t *pd);
bool onednn_binary(const onednn_with *with, dnnl_alg_kind_t algorithm, onednn_md_in a,
                   onednn_md_in b, onednn_md_in y, dnnl_primitive_desc_t *pd);

/* ---- threads (onednn_threads.c) -------------------------------------------------------------- */

/* How many threads a kernel that wants n may be made for: 1 where oneDNN's regions can't be run on
 * Neap's teams. */
int onednn_threads(int n);
/* Around every call that makes or runs something: oneDNN takes the number of threads then. `meets`:
 * its shares wait for each other. Leaving gives false when a region could not be run. Between them
 * oneDNN alone is called. */
void onednn_enter(int n_thread, bool meets);
bool onednn_leave(void);

#endif
