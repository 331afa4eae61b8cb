/* onednn_md.c: layouts as plain data, to and from oneDNN's forms.
 *
 * oneDNN tells a layout by the strides of the outer blocks; ours is an order of dimensions. A
 * dimension of one (outer) element has no part in addresses, but oneDNN's kernels look at its
 * stride, so that must survive the way there and back.
 * INVARIANT: a layout that onednn_layout gives describes, through onednn_md, the same addresses; it
 * is checked by going back.
 */
#include "math/onednn_int.h"

#include <string.h>

/* Undefined, so refused, for what Neap has and oneDNN or its kernels here have not. */
static dnnl_data_type_t data_type(neap_dtype dtype) {
  switch (dtype) {
    case NEAP_DTYPE_F32: return dnnl_f32;
    case NEAP_DTYPE_BF16: return dnnl_bf16;
    case NEAP_DTYPE_U8: return dnnl_u8;
    case NEAP_DTYPE_I8: return dnnl_s8;
    case NEAP_DTYPE_I32: return dnnl_s32;
    case NEAP_DTYPE_F16: return dnnl_f16;
    default: return dnnl_data_type_undef;
  }
}

/* Our dimension d is oneDNN's d, or d + 1 behind a group dimension, where our 0 is its 0 and 1
 * together. */
static int to_theirs(int d, bool grouped) { return grouped ? d + 1 : d; }
static int to_ours(int d, bool grouped) { return grouped && d > 0 ? d - 1 : d; }

/* oneDNN's dimension that carries the blocks of our dimension 0: the groups, when each has one
 * channel (depthwise). */
static int block_dim(const onednn_form *form, int d, bool grouped) {
  return grouped && d == 0 && form->dim[1] == 1 ? 0 : to_theirs(d, grouped);
}

/* Writes the inner blocks, the padded dimensions and the strides of `layout` into a form whose
 * dimensions are set: strides grow from the product of the inner blocks outward, against the order.
 * False when the layout cannot be told so. */
static bool set_blocks(const neap_layout *layout, bool grouped, onednn_form *form) {
  int64_t block[DNNL_MAX_NDIMS];
  for (int d = 0; d < form->n_dim; d++) block[d] = 1;

  /* The inner blocks, from the slowest. Two of them may split one dimension (16 as 4 and 4,
   * say). */
  form->n_inner = layout->n_inner;
  for (int i = 0; i < layout->n_inner; i++) {
    int d = block_dim(form, layout->inner_dim[i], grouped);
    form->inner_dim[i] = d;
    form->inner_block[i] = layout->inner_block[i];
    block[d] *= layout->inner_block[i];
  }

  for (int d = 0; d < form->n_dim; d++)
    form->padded[d] = (form->dim[d] + block[d] - 1) / block[d] * block[d];
  /* Groups and their channels are one dimension of ours: no padding between groups. */
  if (grouped && form->dim[1] > 1 && form->padded[1] != form->dim[1]) return false;

  /* One step of the fastest outer dimension passes over a whole inner block. */
  int64_t stride = 1;
  for (int i = 0; i < layout->n_inner; i++) stride *= layout->inner_block[i];
  /* From the fastest dimension out. Of our dimension 0 under groups first the channels within a
   * group, then the groups, whatever stands around it: that is what makes them one dimension. */
  for (int k = (grouped ? form->n_dim - 1 : form->n_dim) - 1; k >= 0; k--) {
    int d = to_theirs(layout->order[k], grouped);
    form->stride[d] = stride;
    stride *= form->padded[d] / block[d];
    if (!grouped || layout->order[k] != 0) continue;
    form->stride[0] = stride;
    stride *= form->padded[0] / block[0];
  }

  /* Depthwise, with the groups fastest: the one channel of each is told outside of them, since only
   * then do oneDNN's kernels of bytes know the layout. */
  const int n_order = form->n_dim - 1;
  if (grouped && form->dim[1] == 1 && layout->order[n_order - 1] == 0)
    form->stride[1] = form->stride[0] * (form->padded[0] / block[0]);
  return true;
}

/* layout NULL: the dimensions alone. False when oneDNN can't express it. */
static bool form_of(const neap_type *type, const neap_layout *layout, int64_t groups,
                    onednn_form *form) {
  static const neap_layout identity = {.kind = NEAP_LAYOUT_PLAIN,
                                       .order = {0, 1, 2, 3, 4, 5, 6, 7}};
  bool grouped = groups > 1;
  memset(form, 0, sizeof *form);
  form->data_type = data_type(type->dtype);
  if (form->data_type == dnnl_data_type_undef || type->shape.n_dim < 1) return false;
  form->n_dim = type->shape.n_dim + (grouped ? 1 : 0);
  for (int d = 0; d < type->shape.n_dim; d++) {
    /* Of nothing there is no kernel. */
    if (type->shape.dim[d] < 1) return false;
    form->dim[to_theirs(d, grouped)] = type->shape.dim[d];
  }
  if (grouped) form->dim[0] = groups, form->dim[1] = type->shape.dim[0] / groups;
  if (layout == NULL) return true;
  /* Opaque layouts are nobody's to describe. */
  if (layout->kind == NEAP_LAYOUT_OPAQUE) return false;
  return set_blocks(layout->kind == NEAP_LAYOUT_PLAIN ? &identity : layout, grouped, form);
}

bool onednn_md(const neap_type *type, const neap_layout *layout, int64_t groups,
               dnnl_memory_desc_t *md) {
  onednn_form form;
  return form_of(type, layout, groups, &form) && onednn_md_make(&form, layout == NULL, md);
}

int64_t onednn_outer_elems(const onednn_form *form, int d) {
  int64_t n = form->padded[d];
  for (int i = 0; i < form->n_inner; i++)
    if (form->inner_dim[i] == d) n /= form->inner_block[i];
  return n;
}

/* Our dimensions from slowest to fastest. Of equal strides the dimension of one outer element is
 * the faster: only so does going back give every dimension the stride it came with. */
static int sorted_order(const onednn_form *form, bool grouped, uint8_t order[NEAP_MAX_DIM]) {
  int n = form->n_dim - (grouped ? 1 : 0);
  int64_t stride[NEAP_MAX_DIM], wide[NEAP_MAX_DIM];
  for (int d = 0; d < n; d++) {
    int theirs = to_theirs(d, grouped);
    /* Depthwise: the channels within a group are one element, so the stride of dimension 0 is that
     * of the groups. */
    if (grouped && d == 0 && onednn_outer_elems(form, theirs) == 1) theirs = 0;
    int64_t s = form->stride[theirs], w = onednn_outer_elems(form, theirs) > 1;
    /* Insertion sort, slowest first: a handful of dimensions. */
    int k = d;
    for (; k > 0 && (stride[k - 1] < s || (stride[k - 1] == s && wide[k - 1] < w)); k--)
      order[k] = order[k - 1], stride[k] = stride[k - 1], wide[k] = wide[k - 1];
    order[k] = (uint8_t)d, stride[k] = s, wide[k] = w;
  }
  return n;
}

/* Same addresses for the same elements: strides of dimensions with one outer element do not
 * matter. */
static bool same_addresses(const onednn_form *a, const onednn_form *b) {
  if (a->n_inner != b->n_inner) return false;
  for (int i = 0; i < a->n_inner; i++)
    if (a->inner_block[i] != b->inner_block[i] || a->inner_dim[i] != b->inner_dim[i]) return false;
  for (int d = 0; d < a->n_dim; d++)
    if (a->padded[d] != b->padded[d] ||
        (onednn_outer_elems(a, d) > 1 && a->stride[d] != b->stride[d]))
      return false;
  return true;
}

/* Whether the way back ends where it began, and oneDNN takes what stands there. */
static bool is_way_back(const onednn_form *form, const neap_type *type, const neap_layout *layout,
                        int64_t groups) {
  onednn_form back;
  dnnl_memory_desc_t md;
  memset(&md, 0, sizeof md);
  bool good = form_of(type, layout, groups, &back) && same_addresses(form, &back) &&
              onednn_md_make(&back, false, &md);
  onednn_md_end(&md);
  return good;
}

bool onednn_layout(const onednn_form *form, const neap_type *type, int64_t groups,
                   neap_layout *layout) {
  bool grouped = groups > 1, identity = true;
  memset(layout, 0, sizeof *layout);
  if (form->n_dim != type->shape.n_dim + (grouped ? 1 : 0)) return false;
  layout->n_inner = (uint8_t)form->n_inner;
  for (int i = 0; i < form->n_inner; i++) {
    /* A layout of ours has a byte for it. */
    if (form->inner_block[i] > UINT8_MAX) return false;
    layout->inner_dim[i] = (uint8_t)to_ours(form->inner_dim[i], grouped);
    layout->inner_block[i] = (uint8_t)form->inner_block[i];
  }

  int n = sorted_order(form, grouped, layout->order);
  for (int k = 0; k < n; k++) identity = identity && layout->order[k] == k;
  /* Plain has one spelling only, so that equal layouts compare equal: no order, no blocks. */
  layout->kind = identity && layout->n_inner == 0 ? NEAP_LAYOUT_PLAIN : NEAP_LAYOUT_BLOCKED;
  if (layout->kind == NEAP_LAYOUT_PLAIN) memset(layout->order, 0, sizeof layout->order);
  return is_way_back(form, type, layout, groups);
}
