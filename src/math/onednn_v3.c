/* onednn_v3.c: what oneDNN 3 is told in another way than oneDNN 2; see onednn_int.h.
 *
 * Here a memory descriptor is an object of the library's, made by strides where there are no blocks
 * and by a tag where there are; a primitive descriptor is made in one step. There is no way from
 * blocks to a descriptor but the list of tags. So the list is asked once what each of them means.
 */
#include "math/onednn_int.h"

#include <pthread.h>
#include <string.h>

/* ---- tags ------------------------------------------------------------------------------------ */

/* What a tag means: order of the dimensions from the slowest, and the inner blocks. */
typedef struct tag_form {
  dnnl_format_tag_t tag;
  int n_dim, n_inner;
  int order[NEAP_MAX_DIM + 1];
  int inner_dim[4], inner_block[4];
} tag_form;

/* Tags with blocks have two to six dimensions. */
enum { LEAST_DIM = 2, MOST_DIM = 6 };
static tag_form tags[dnnl_format_tag_last];
static int n_tag;
static pthread_once_t tags_once = PTHREAD_ONCE_INIT;

static int query_int(const_dnnl_memory_desc_t md, dnnl_query_t what) {
  int value = 0;
  return dnnl_memory_desc_query(md, what, &value) == dnnl_success ? value : -1;
}

/* NULL when there is nothing of that kind. */
static const dnnl_dim_t *query_dims(const_dnnl_memory_desc_t md, dnnl_query_t what) {
  const dnnl_dims_t *dims = NULL;
  return dnnl_memory_desc_query(md, what, (void *)&dims) == dnnl_success && dims != NULL ? *dims
                                                                                         : NULL;
}

/* False for what is no dense order of dimensions with at most four inner blocks. What is stored
 * beside the elements can't be asked for; it shows in the bytes (see onednn_layout). */
static bool read_form(const_dnnl_memory_desc_t md, onednn_form *form) {
  dnnl_format_kind_t kind = dnnl_format_kind_undef;
  int64_t offset = 0;
  memset(form, 0, sizeof *form);
  if (dnnl_memory_desc_query(md, dnnl_query_format_kind, &kind) != dnnl_success ||
      kind != dnnl_blocked ||
      dnnl_memory_desc_query(md, dnnl_query_submemory_offset_s64, &offset) != dnnl_success ||
      offset != 0 ||
      dnnl_memory_desc_query(md, dnnl_query_data_type, &form->data_type) != dnnl_success)
    return false;
  /* It is blocked, from the first byte on. How its blocks lie: */
  form->n_dim = query_int(md, dnnl_query_ndims_s32);
  form->n_inner = query_int(md, dnnl_query_inner_nblks_s32);
  const dnnl_dim_t *dim = query_dims(md, dnnl_query_dims),
                   *padded = query_dims(md, dnnl_query_padded_dims),
                   *stride = query_dims(md, dnnl_query_strides),
                   *inner_dim = query_dims(md, dnnl_query_inner_idxs),
                   *inner_block = query_dims(md, dnnl_query_inner_blks);
  /* What a form has no room for is nobody's layout here. */
  if (form->n_dim < 1 || form->n_dim > NEAP_COUNT(form->dim) || form->n_inner < 0 ||
      form->n_inner > NEAP_COUNT(form->inner_dim) || dim == NULL || padded == NULL ||
      stride == NULL || inner_dim == NULL || inner_block == NULL)
    return false;
  for (int d = 0; d < form->n_dim; d++) {
    form->dim[d] = dim[d];
    form->padded[d] = padded[d];
    form->stride[d] = stride[d];
  }
  for (int i = 0; i < form->n_inner; i++) {
    form->inner_dim[i] = (int)inner_dim[i];
    form->inner_block[i] = (int)inner_block[i];
  }
  return true;
}

/* Adds what a tag means for a value whose every dimension has two blocks of any kind, so that all
 * strides differ. */
static void read_tag(dnnl_format_tag_t tag, int n_dim) {
  static const dnnl_dims_t dims = {128, 128, 128, 128, 128, 128};
  dnnl_memory_desc_t md = NULL;
  onednn_form form;
  if (dnnl_memory_desc_create_with_tag(&md, n_dim, dims, dnnl_f32, tag) != dnnl_success) return;
  /* Tags without blocks need no look-up: strides alone say what they do. */
  bool good = read_form(md, &form) && form.n_inner > 0;
  dnnl_memory_desc_destroy(md);
  if (!good) return;
  tag_form *t = &tags[n_tag++];
  *t = (tag_form){.tag = tag, .n_dim = n_dim, .n_inner = form.n_inner};
  memcpy(t->inner_dim, form.inner_dim, sizeof t->inner_dim);
  memcpy(t->inner_block, form.inner_block, sizeof t->inner_block);
  /* Insertion sort by stride, slowest first. */
  for (int d = 0; d < n_dim; d++) {
    int k = d;
    for (; k > 0 && form.stride[t->order[k - 1]] < form.stride[d]; k--)
      t->order[k] = t->order[k - 1];
    t->order[k] = d;
  }
}

static void read_tags(void) {
  for (int tag = dnnl_format_tag_any + 1; tag < dnnl_format_tag_last; tag++) {
    int before = n_tag;
    /* A tag is for one number of dimensions: others are refused. */
    for (int n = LEAST_DIM; n <= MOST_DIM; n++)
      if (n_tag == before) read_tag((dnnl_format_tag_t)tag, n);
  }
}

/* Whether the tag puts the elements of `form` where its strides do. Strides of dimensions of one
 * block do not matter for that, but kernels look at them: `all` compares them too. */
static bool tag_fits(const tag_form *t, const onednn_form *form, bool all) {
  if (t->n_dim != form->n_dim || t->n_inner != form->n_inner) return false;
  int64_t stride = 1;
  for (int i = 0; i < t->n_inner; i++) {
    if (t->inner_dim[i] != form->inner_dim[i] || t->inner_block[i] != form->inner_block[i])
      return false;
    stride *= t->inner_block[i];
  }
  /* From the fastest dimension out, as strides grow. */
  for (int k = t->n_dim - 1; k >= 0; k--) {
    int d = t->order[k];
    int64_t n = onednn_outer_elems(form, d);
    if ((all || n > 1) && form->stride[d] != stride) return false;
    stride *= n;
  }
  return true;
}

/* dnnl_format_tag_undef when there is none. */
static dnnl_format_tag_t tag_of(const onednn_form *form) {
  if (pthread_once(&tags_once, read_tags) != 0) return dnnl_format_tag_undef;
  /* A tag that fits in all strides first: kernels are chosen by them. */
  for (int all = 1; all >= 0; all--)
    for (int i = 0; i < n_tag; i++)
      if (tag_fits(&tags[i], form, all == 1)) return tags[i].tag;
  return dnnl_format_tag_undef;
}

/* ---- memory descriptors ---------------------------------------------------------------------- */

/* The descriptor of an operand; NULL for an absent one. */
static const_dnnl_memory_desc_t at(onednn_md_in md) { return md == NULL ? NULL : *md; }

bool onednn_md_make(const onednn_form *form, bool free, dnnl_memory_desc_t *md) {
  onednn_md_end(md);
  /* oneDNN 3 takes strides only without blocks; with them there must be a tag. */
  if (!free && form->n_inner == 0)
    return dnnl_memory_desc_create_with_strides(md, form->n_dim, form->dim, form->data_type,
                                                form->stride) == dnnl_success;
  dnnl_format_tag_t tag = free ? dnnl_format_tag_any : tag_of(form);
  return tag != dnnl_format_tag_undef &&
         dnnl_memory_desc_create_with_tag(md, form->n_dim, form->dim, form->data_type, tag) ==
           dnnl_success;
}

void onednn_md_end(dnnl_memory_desc_t *md) {
  if (*md != NULL) dnnl_memory_desc_destroy(*md);
  *md = NULL;
}

size_t onednn_arg_bytes(const_dnnl_primitive_desc_t pd, int arg) {
  const_dnnl_memory_desc_t md = dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
  return md == NULL ? 0 : dnnl_memory_desc_get_size(md);
}

bool onednn_arg_form(const_dnnl_primitive_desc_t pd, int arg, onednn_form *form) {
  const_dnnl_memory_desc_t md = dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
  return md != NULL && read_form(md, form);
}

bool onednn_arg_memory(const_dnnl_primitive_desc_t pd, int arg, dnnl_engine_t engine,
                       dnnl_memory_t *memory) {
  const_dnnl_memory_desc_t md = dnnl_primitive_desc_query_md(pd, dnnl_query_exec_arg_md, arg);
  return md != NULL && dnnl_memory_create(memory, md, engine, DNNL_MEMORY_NONE) == dnnl_success;
}

void onednn_memory_set(dnnl_memory_t memory, void *address, dnnl_stream_t stream) {
  (void)stream;
  dnnl_memory_set_data_handle(memory, address);
}

/* ---- post-operations ------------------------------------------------------------------------- */

bool onednn_then_sum(dnnl_post_ops_t chain) {
  return dnnl_post_ops_append_sum(chain, 1.0f, 0, dnnl_data_type_undef) == dnnl_success;
}

bool onednn_then_relu(dnnl_post_ops_t chain) {
  return dnnl_post_ops_append_eltwise(chain, dnnl_eltwise_relu, 0, 0) == dnnl_success;
}

bool onednn_then_round(dnnl_post_ops_t chain) {
  return dnnl_post_ops_append_eltwise(chain, dnnl_eltwise_round, 0, 0) == dnnl_success;
}

bool onednn_then_binary(dnnl_post_ops_t chain, dnnl_alg_kind_t algorithm, onednn_md_in b) {
  return dnnl_post_ops_append_binary(chain, algorithm, at(b)) == dnnl_success;
}

/* ---- primitive descriptors ------------------------------------------------------------------- */

/* Of a descriptor that has been made, or not: the kernel whose name begins as is wished, or the
 * first. */
static bool settle(const onednn_with *with, dnnl_status_t status, dnnl_primitive_desc_t made,
                   dnnl_primitive_desc_t *pd) {
  dnnl_primitive_desc_t first = NULL;
  if (status != dnnl_success) return false;
  *pd = made;
  if (with->kernel == NULL || dnnl_primitive_desc_clone(&first, made) != dnnl_success) return true;
  /* The descriptor steps from kernel to kernel; the copy stays with the first. */
  bool found = false;
  do {
    const char *name = "";
    dnnl_primitive_desc_query(made, dnnl_query_impl_info_str, 0, (void *)&name);
    found = strncmp(name, with->kernel, strlen(with->kernel)) == 0;
  } while (!found && dnnl_primitive_desc_next_impl(made) == dnnl_success);
  dnnl_primitive_desc_destroy(found ? first : made);
  if (!found) *pd = first;
  return true;
}

bool onednn_conv_forward(const onednn_with *with, dnnl_alg_kind_t algorithm, const onednn_window *g,
                         onednn_md_in x, onednn_md_in w, onednn_md_in b, onednn_md_in y,
                         dnnl_primitive_desc_t *pd) {
  dnnl_primitive_desc_t made = NULL;
  dnnl_status_t status = dnnl_convolution_forward_primitive_desc_create(
    &made, with->engine, dnnl_forward_training, algorithm, at(x), at(w), at(b), at(y), g->stride,
    g->dilate, g->begin, g->end, with->attr);
  return settle(with, status, made, pd);
}

bool onednn_conv_grad_input(const onednn_with *with, dnnl_alg_kind_t algorithm,
                            const onednn_window *g, onednn_md_in dx, onednn_md_in w,
                            onednn_md_in dy, dnnl_primitive_desc_t *pd) {
  dnnl_primitive_desc_t made = NULL;
  dnnl_status_t status = dnnl_convolution_backward_data_primitive_desc_create(
    &made, with->engine, algorithm, at(dx), at(w), at(dy), g->stride, g->dilate, g->begin, g->end,
    with->hint, with->attr);
  return settle(with, status, made, pd);
}

bool onednn_conv_grad_weight(const onednn_with *with, dnnl_alg_kind_t algorithm,
                             const onednn_window *g, onednn_md_in x, onednn_md_in dw,
                             onednn_md_in dy, dnnl_primitive_desc_t *pd) {
  dnnl_primitive_desc_t made = NULL;
  dnnl_status_t status = dnnl_convolution_backward_weights_primitive_desc_create(
    &made, with->engine, algorithm, at(x), at(dw), NULL, at(dy), g->stride, g->dilate, g->begin,
    g->end, with->hint, with->attr);
  return settle(with, status, made, pd);
}

bool onednn_pool_forward(const onednn_with *with, dnnl_prop_kind_t kind, dnnl_alg_kind_t algorithm,
                         const onednn_window *g, onednn_md_in x, onednn_md_in y,
                         dnnl_primitive_desc_t *pd) {
  dnnl_primitive_desc_t made = NULL;
  dnnl_status_t status = dnnl_pooling_forward_primitive_desc_create(
    &made, with->engine, kind, algorithm, at(x), at(y), g->stride, g->kernel, g->dilate, g->begin,
    g->end, with->attr);
  return settle(with, status, made, pd);
}

bool onednn_pool_backward(const onednn_with *with, dnnl_alg_kind_t algorithm,
                          const onednn_window *g, onednn_md_in dx, onednn_md_in dy,
                          dnnl_primitive_desc_t *pd) {
  dnnl_primitive_desc_t made = NULL;
  dnnl_status_t status = dnnl_pooling_backward_primitive_desc_create(
    &made, with->engine, algorithm, at(dx), at(dy), g->stride, g->kernel, g->dilate, g->begin,
    g->end, with->hint, with->attr);
  return settle(with, status, made, pd);
}

bool onednn_norm_forward(const onednn_with *with, dnnl_prop_kind_t kind, onednn_md_in x, float eps,
                         unsigned flags, dnnl_primitive_desc_t *pd) {
  dnnl_primitive_desc_t made = NULL;
  dnnl_status_t status = dnnl_batch_normalization_forward_primitive_desc_create(
    &made, with->engine, kind, at(x), at(x), eps, flags, with->attr);
  return settle(with, status, made, pd);
}

const bool onednn_norm_backward_has_shift = false;

/* Of 3.2 measured: with 16 planes of 128 x 128 the sum of dy is 2.5e-3 off. */
const bool neap_onednn_norm_adds_images = true;

bool onednn_norm_backward(const onednn_with *with, onednn_md_in dy, onednn_md_in x, float eps,
                          unsigned flags, dnnl_primitive_desc_t *pd) {
  dnnl_primitive_desc_t made = NULL;
  dnnl_status_t status = dnnl_batch_normalization_backward_primitive_desc_create(
    &made, with->engine, dnnl_backward, at(dy), at(dy), at(x), eps, flags, with->hint, with->attr);
  return settle(with, status, made, pd);
}

bool onednn_product_forward(const onednn_with *with, onednn_md_in x, onednn_md_in w, onednn_md_in b,
                            onednn_md_in y, dnnl_primitive_desc_t *pd) {
  dnnl_primitive_desc_t made = NULL;
  dnnl_status_t status = dnnl_inner_product_forward_primitive_desc_create(
    &made, with->engine, dnnl_forward_training, at(x), at(w), at(b), at(y), with->attr);
  return settle(with, status, made, pd);
}

bool onednn_product_grad_input(const onednn_with *with, onednn_md_in dx, onednn_md_in w,
                               onednn_md_in dy, dnnl_primitive_desc_t *pd) {
  dnnl_primitive_desc_t made = NULL;
  dnnl_status_t status = dnnl_inner_product_backward_data_primitive_desc_create(
    &made, with->engine, at(dx), at(w), at(dy), with->hint, with->attr);
  return settle(with, status, made, pd);
}

bool onednn_product_grad_weight(const onednn_with *with, onednn_md_in x, onednn_md_in dw,
                                onednn_md_in dy, dnnl_primitive_desc_t *pd) {
  dnnl_primitive_desc_t made = NULL;
  dnnl_status_t status = dnnl_inner_product_backward_weights_primitive_desc_create(
    &made, with->engine, at(x), at(dw), NULL, at(dy), with->hint, with->attr);
  return settle(with, status, made, pd);
}

bool onednn_matmul(const onednn_with *with, onednn_md_in x, onednn_md_in w, onednn_md_in b,
                   onednn_md_in y, dnnl_primitive_desc_t *pd) {
  dnnl_primitive_desc_t made = NULL;
  dnnl_status_t status =
    dnnl_matmul_primitive_desc_create(&made, with->engine, at(x), at(w), at(b), at(y), with->attr);
  return settle(with, status, made, pd);
}

bool onednn_eltwise_forward(const onednn_with *with, dnnl_alg_kind_t algorithm, onednn_md_in x,
                            dnnl_primitive_desc_t *pd) {
  dnnl_primitive_desc_t made = NULL;
  dnnl_status_t status = dnnl_eltwise_forward_primitive_desc_create(
    &made, with->engine, dnnl_forward_training, algorithm, at(x), at(x), 0, 0, with->attr);
  return settle(with, status, made, pd);
}

bool onednn_eltwise_backward(const onednn_with *with, dnnl_alg_kind_t algorithm, onednn_md_in dy,
                             onednn_md_in data, dnnl_primitive_desc_t *pd) {
  dnnl_primitive_desc_t made = NULL;
  dnnl_status_t status = dnnl_eltwise_backward_primitive_desc_create(
    &made, with->engine, algorithm, at(dy), at(dy), at(data), 0, 0, with->hint, with->attr);
  return settle(with, status, made, pd);
}

bool onednn_binary(const onednn_with *with, dnnl_alg_kind_t algorithm, onednn_md_in a,
                   onednn_md_in b, onednn_md_in y, dnnl_primitive_desc_t *pd) {
  dnnl_primitive_desc_t made = NULL;
  dnnl_status_t status = dnnl_binary_primitive_desc_create(&made, with->engine, algorithm, at(a),
                                                           at(b), at(y), with->attr);
  return settle(with, status, made, pd);
}
