/* onednn_v2.c: what oneDNN 2 (2.6 and its successors) is told in another way than oneDNN 3; see
 * onednn_int.h.
 *
 * Here a memory descriptor is a struct whose fields are written and read, and a primitive
 * descriptor is made in two steps: first that of the operation, then, from it, that of its kernel.
 */
#include "math/onednn_int.h"

#include <string.h>

/* ---- memory descriptors ---------------------------------------------------------------------- */

bool onednn_md_make(const onednn_form *form, bool free, dnnl_memory_desc_t *md) {
  dnnl_blocking_desc_t *b = &md->format_desc.blocking;
  memset(md, 0, sizeof *md);
  md->data_type = form->data_type;
  md->ndims = form->n_dim;
  md->format_kind = free ? dnnl_format_kind_any : dnnl_blocked;
  for (int d = 0; d < form->n_dim; d++) {
    md->dims[d] = form->dim[d];
    md->padded_dims[d] = free ? form->dim[d] : form->padded[d];
    if (!free) b->strides[d] = form->stride[d];
  }
  /* `any` says only dimensions and type. */
  if (free) return true;
  b->inner_nblks = form->n_inner;
  for (int i = 0; i < form->n_inner; i++) {
    b->inner_idxs[i] = form->inner_dim[i];
    b->inner_blks[i] = form->inner_block[i];
  }
  return true;
}

void onednn_md_end(dnnl_memory_desc_t *md) { (void)md; }

size_t onednn_arg_bytes(const_dnnl_primitive_desc_t pd, int arg) {
  const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
  return md == NULL ? 0 : dnnl_memory_desc_get_size(md);
}

/* Flags stand for what is stored beside the elements (sums for int8 kernels); a first offset is
 * nothing a layout can tell. */
bool onednn_arg_form(const_dnnl_primitive_desc_t pd, int arg, onednn_form *form) {
  const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
  if (md == NULL || md->format_kind != dnnl_blocked || md->extra.flags != 0 || md->offset0 != 0)
    return false;
  const dnnl_blocking_desc_t *b = &md->format_desc.blocking;
  memset(form, 0, sizeof *form);
  /* Larger ones than a form has room for are nobody's layout here. */
  if (b->inner_nblks > NEAP_COUNT(form->inner_dim) || md->ndims > NEAP_COUNT(form->dim))
    return false;
  form->data_type = md->data_type;
  form->n_dim = md->ndims;
  form->n_inner = b->inner_nblks;
  for (int d = 0; d < md->ndims; d++) {
    form->dim[d] = md->dims[d];
    form->padded[d] = md->padded_dims[d];
    form->stride[d] = b->strides[d];
  }
  for (int i = 0; i < b->inner_nblks; i++) {
    form->inner_dim[i] = (int)b->inner_idxs[i];
    form->inner_block[i] = (int)b->inner_blks[i];
  }
  return true;
}

bool onednn_arg_memory(const_dnnl_primitive_desc_t pd, int arg, dnnl_engine_t engine,
                       dnnl_memory_t *memory) {
  const dnnl_memory_desc_t *md = dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
  return md != NULL && dnnl_memory_create(memory, md, engine, DNNL_MEMORY_NONE) == dnnl_success;
}

void onednn_memory_set(dnnl_memory_t memory, void *address, dnnl_stream_t stream) {
  dnnl_memory_set_data_handle_v2(memory, address, stream);
}

/* ---- post-operations ------------------------------------------------------------------------- */

bool onednn_then_sum(dnnl_post_ops_t chain) {
  return dnnl_post_ops_append_sum(chain, 1.0f) == dnnl_success;
}

bool onednn_then_relu(dnnl_post_ops_t chain) {
  return dnnl_post_ops_append_eltwise(chain, 1, dnnl_eltwise_relu, 0, 0) == dnnl_success;
}

bool onednn_then_round(dnnl_post_ops_t chain) {
  return dnnl_post_ops_append_eltwise(chain, 1, dnnl_eltwise_round, 0, 0) == dnnl_success;
}

bool onednn_then_binary(dnnl_post_ops_t chain, dnnl_alg_kind_t algorithm, onednn_md_in b) {
  return dnnl_post_ops_append_binary(chain, algorithm, b) == dnnl_success;
}

/* ---- primitive descriptors ------------------------------------------------------------------- */

/* The kernel whose name begins as is wished, or the first. */
static bool make_by_name(const onednn_with *with, const_dnnl_op_desc_t desc,
                         dnnl_primitive_desc_t *pd) {
  dnnl_primitive_desc_iterator_t all = NULL;
  dnnl_primitive_desc_t best = NULL;
  bool found = false;
  if (dnnl_primitive_desc_iterator_create(&all, desc, with->attr, with->engine, with->hint) !=
      dnnl_success)
    return false;
  do {
    const char *name = "";
    dnnl_primitive_desc_t other = dnnl_primitive_desc_iterator_fetch(all);
    if (other == NULL) break;
    dnnl_primitive_desc_query(other, dnnl_query_impl_info_str, 0, (void *)&name);
    found = strncmp(name, with->kernel, strlen(with->kernel)) == 0;
    /* the first one, where none is the wished one */
    if (best != NULL) dnnl_primitive_desc_destroy(found ? best : other);
    if (found || best == NULL) best = other;
  } while (!found && dnnl_primitive_desc_iterator_next(all) == dnnl_success);
  dnnl_primitive_desc_iterator_destroy(all);
  if (best != NULL) *pd = best;
  return best != NULL;
}

/* The second step. `status`: of the first. */
static bool make(const onednn_with *with, const_dnnl_op_desc_t desc, dnnl_status_t status,
                 dnnl_primitive_desc_t *pd) {
  if (status != dnnl_success) return false;
  if (with->kernel != NULL) return make_by_name(with, desc, pd);
  return dnnl_primitive_desc_create(pd, desc, with->attr, with->engine, with->hint) == dnnl_success;
}

bool onednn_conv_forward(const onednn_with *with, dnnl_alg_kind_t algorithm, const onednn_window *g,
                         onednn_md_in x, onednn_md_in w, onednn_md_in b, onednn_md_in y,
                         dnnl_primitive_desc_t *pd) {
  dnnl_convolution_desc_t desc;
  dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
    &desc, dnnl_forward_training, algorithm, x, w, b, y, g->stride, g->dilate, g->begin, g->end);
  return make(with, &desc, status, pd);
}

bool onednn_conv_grad_input(const onednn_with *with, dnnl_alg_kind_t algorithm,
                            const onednn_window *g, onednn_md_in dx, onednn_md_in w,
                            onednn_md_in dy, dnnl_primitive_desc_t *pd) {
  dnnl_convolution_desc_t desc;
  dnnl_status_t status = dnnl_dilated_convolution_backward_data_desc_init(
    &desc, algorithm, dx, w, dy, g->stride, g->dilate, g->begin, g->end);
  return make(with, &desc, status, pd);
}

bool onednn_conv_grad_weight(const onednn_with *with, dnnl_alg_kind_t algorithm,
                             const onednn_window *g, onednn_md_in x, onednn_md_in dw,
                             onednn_md_in dy, dnnl_primitive_desc_t *pd) {
  dnnl_convolution_desc_t desc;
  dnnl_status_t status = dnnl_dilated_convolution_backward_weights_desc_init(
    &desc, algorithm, x, dw, NULL, dy, g->stride, g->dilate, g->begin, g->end);
  return make(with, &desc, status, pd);
}

bool onednn_pool_forward(const onednn_with *with, dnnl_prop_kind_t kind, dnnl_alg_kind_t algorithm,
                         const onednn_window *g, onednn_md_in x, onednn_md_in y,
                         dnnl_primitive_desc_t *pd) {
  dnnl_pooling_v2_desc_t desc;
  dnnl_status_t status = dnnl_pooling_v2_forward_desc_init(&desc, kind, algorithm, x, y, g->stride,
                                                           g->kernel, g->dilate, g->begin, g->end);
  return make(with, &desc, status, pd);
}

bool onednn_pool_backward(const onednn_with *with, dnnl_alg_kind_t algorithm,
                          const onednn_window *g, onednn_md_in dx, onednn_md_in dy,
                          dnnl_primitive_desc_t *pd) {
  dnnl_pooling_v2_desc_t desc;
  dnnl_status_t status = dnnl_pooling_v2_backward_desc_init(&desc, algorithm, dx, dy, g->stride,
                                                            g->kernel, g->dilate, g->begin, g->end);
  return make(with, &desc, status, pd);
}

bool onednn_norm_forward(const onednn_with *with, dnnl_prop_kind_t kind, onednn_md_in x, float eps,
                         unsigned flags, dnnl_primitive_desc_t *pd) {
  dnnl_batch_normalization_desc_t desc;
  dnnl_status_t status = dnnl_batch_normalization_forward_desc_init(&desc, kind, x, eps, flags);
  return make(with, &desc, status, pd);
}

const bool onednn_norm_backward_has_shift = true;
const bool neap_onednn_norm_adds_images = false;

bool onednn_norm_backward(const onednn_with *with, onednn_md_in dy, onednn_md_in x, float eps,
                          unsigned flags, dnnl_primitive_desc_t *pd) {
  dnnl_batch_normalization_desc_t desc;
  dnnl_status_t status =
    dnnl_batch_normalization_backward_desc_init(&desc, dnnl_backward, dy, x, eps, flags);
  return make(with, &desc, status, pd);
}

bool onednn_product_forward(const onednn_with *with, onednn_md_in x, onednn_md_in w, onednn_md_in b,
                            onednn_md_in y, dnnl_primitive_desc_t *pd) {
  dnnl_inner_product_desc_t desc;
  dnnl_status_t status =
    dnnl_inner_product_forward_desc_init(&desc, dnnl_forward_training, x, w, b, y);
  return make(with, &desc, status, pd);
}

bool onednn_product_grad_input(const onednn_with *with, onednn_md_in dx, onednn_md_in w,
                               onednn_md_in dy, dnnl_primitive_desc_t *pd) {
  dnnl_inner_product_desc_t desc;
  dnnl_status_t status = dnnl_inner_product_backward_data_desc_init(&desc, dx, w, dy);
  return make(with, &desc, status, pd);
}

bool onednn_product_grad_weight(const onednn_with *with, onednn_md_in x, onednn_md_in dw,
                                onednn_md_in dy, dnnl_primitive_desc_t *pd) {
  dnnl_inner_product_desc_t desc;
  dnnl_status_t status = dnnl_inner_product_backward_weights_desc_init(&desc, x, dw, NULL, dy);
  return make(with, &desc, status, pd);
}

bool onednn_matmul(const onednn_with *with, onednn_md_in x, onednn_md_in w, onednn_md_in b,
                   onednn_md_in y, dnnl_primitive_desc_t *pd) {
  dnnl_matmul_desc_t desc;
  dnnl_status_t status = dnnl_matmul_desc_init(&desc, x, w, b, y);
  return make(with, &desc, status, pd);
}

bool onednn_eltwise_forward(const onednn_with *with, dnnl_alg_kind_t algorithm, onednn_md_in x,
                            dnnl_primitive_desc_t *pd) {
  dnnl_eltwise_desc_t desc;
  dnnl_status_t status =
    dnnl_eltwise_forward_desc_init(&desc, dnnl_forward_training, algorithm, x, 0, 0);
  return make(with, &desc, status, pd);
}

bool onednn_eltwise_backward(const onednn_with *with, dnnl_alg_kind_t algorithm, onednn_md_in dy,
                             onednn_md_in data, dnnl_primitive_desc_t *pd) {
  dnnl_eltwise_desc_t desc;
  dnnl_status_t status = dnnl_eltwise_backward_desc_init(&desc, algorithm, dy, data, 0, 0);
  return make(with, &desc, status, pd);
}

bool onednn_binary(const onednn_with *with, dnnl_alg_kind_t algorithm, onednn_md_in a,
                   onednn_md_in b, onednn_md_in y, dnnl_primitive_desc_t *pd) {
  dnnl_binary_desc_t desc;
  dnnl_status_t status = dnnl_binary_desc_init(&desc, algorithm, a, b, y);
  return make(with, &desc, status, pd);
}
