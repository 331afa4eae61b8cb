/* onednn_md.c: layouts as plain data, to and from oneDNN's memory descriptors.
 *
 * oneDNN tells a layout by the strides of the outer blocks; ours is an order of dimensions. A
 * dimension of one (outer) element has no part in addresses, but oneDNN's kernels look at its
 * stride, so that must survive the way there and back.
 * INVARIANT: a layout that onednn_layout gives describes, through onednn_md, the same addresses; it
 * is checked by going back.
 */
#include "base/base.h"

#if NEAP_WITH_DNNL

#include "math/onednn_int.h"

#include <string.h>

/* Undefined, so refused, for what Neap has and oneDNN 2 or its kernels here have not. */
static dnnl_data_type_t data_type(neap_dtype dtype) {
  switch (dtype) {
    case NEAP_DTYPE_F32: return dnnl_f32;
    case NEAP_DTYPE_BF16: return dnnl_bf16;
    case NEAP_DTYPE_U8: return dnnl_u8;
    case NEAP_DTYPE_I8: return dnnl_s8;
    case NEAP_DTYPE_I32: return dnnl_s32;
    default: return dnnl_data_type_undef;
  }
}

/* Our dimension d is oneDNN's d, or d + 1 behind a group dimension, where our 0 is its 0 and 1
 * together. */
static int to_theirs(int d, bool grouped) { return grouped ? d + 1 : d; }
static int to_ours(int d, bool grouped) { return grouped && d > 0 ? d - 1 : d; }

/* oneDNN's dimension that carries the blocks of our dimension 0: the groups, when each has one
 * channel (depthwise). */
static int block_dim(const dnnl_memory_desc_t *md, int d, bool grouped) {
  return grouped && d == 0 && md->dims[1] == 1 ? 0 : to_theirs(d, grouped);
}

/* Writes the inner blocks, the padded dimensions and the strides of `layout` into md, whose dims
 * are set: strides grow from the product of the inner blocks outward, against the order. False when
 * the layout cannot be told so. */
static bool set_blocks(const neap_layout *layout, bool grouped, dnnl_memory_desc_t *md) {
  dnnl_blocking_desc_t *b = &md->format_desc.blocking;
  int64_t block[DNNL_MAX_NDIMS];
  for (int d = 0; d < md->ndims; d++) block[d] = 1;
  b->inner_nblks = layout->n_inner;
  for (int i = 0; i < layout->n_inner; i++) {
    int d = block_dim(md, layout->inner_dim[i], grouped);
    b->inner_idxs[i] = d;
    b->inner_blks[i] = layout->inner_block[i];
    block[d] *= layout->inner_block[i];
  }
  for (int d = 0; d < md->ndims; d++)
    md->padded_dims[d] = (md->dims[d] + block[d] - 1) / block[d] * block[d];
  /* Groups and their channels are one dimension of ours: no padding between groups. */
  if (grouped && md->dims[1] > 1 && md->padded_dims[1] != md->dims[1]) return false;
  int64_t stride = 1;
  for (int i = 0; i < layout->n_inner; i++) stride *= layout->inner_block[i];
  /* From the fastest dimension out. Of our dimension 0 under groups first the channels within a
   * group, then the groups, whatever stands around it: that is what makes them one dimension. */
  for (int k = (grouped ? md->ndims - 1 : md->ndims) - 1; k >= 0; k--) {
    int d = to_theirs(layout->order[k], grouped);
    b->strides[d] = stride;
    stride *= md->padded_dims[d] / block[d];
    if (!grouped || layout->order[k] != 0) continue;
    b->strides[0] = stride;
    stride *= md->padded_dims[0] / block[0];
  }
  return true;
}

bool onednn_md(const neap_type *type, const neap_layout *layout, int64_t groups,
               dnnl_memory_desc_t *md) {
  static const neap_layout identity = {.kind = NEAP_LAYOUT_PLAIN,
                                       .order = {0, 1, 2, 3, 4, 5, 6, 7}};
  bool grouped = groups > 1;
  memset(md, 0, sizeof *md);
  md->data_type = data_type(type->dtype);
  if (md->data_type == dnnl_data_type_undef || type->shape.n_dim < 1) return false;
  md->ndims = type->shape.n_dim + (grouped ? 1 : 0);
  for (int d = 0; d < type->shape.n_dim; d++) {
    if (type->shape.dim[d] < 1) return false;
    md->dims[to_theirs(d, grouped)] = type->shape.dim[d];
  }
  if (grouped) md->dims[0] = groups, md->dims[1] = type->shape.dim[0] / groups;
  memcpy(md->padded_dims, md->dims, sizeof md->dims);
  /* Layout NULL: oneDNN may choose, and nothing more is said. Opaque layouts are nobody's to
   * describe. */
  md->format_kind = layout == NULL ? dnnl_format_kind_any : dnnl_blocked;
  if (layout == NULL) return true;
  if (layout->kind == NEAP_LAYOUT_OPAQUE) return false;
  return set_blocks(layout->kind == NEAP_LAYOUT_PLAIN ? &identity : layout, grouped, md);
}

/* Blocks of dimension d, in oneDNN's count: its padded elements over the product of its inner
 * blocks. */
static int64_t outer_elems(const dnnl_memory_desc_t *md, int d) {
  int64_t n = md->padded_dims[d];
  for (int i = 0; i < md->format_desc.blocking.inner_nblks; i++)
    if (md->format_desc.blocking.inner_idxs[i] == d) n /= md->format_desc.blocking.inner_blks[i];
  return n;
}

/* Our dimensions from slowest to fastest. Of equal strides the dimension of one outer element is
 * the faster: only so does going back give every dimension the stride it came with. */
static int sorted_order(const dnnl_memory_desc_t *md, bool grouped, uint8_t order[NEAP_MAX_DIM]) {
  int n = md->ndims - (grouped ? 1 : 0);
  int64_t stride[NEAP_MAX_DIM], wide[NEAP_MAX_DIM];
  for (int d = 0; d < n; d++) {
    int theirs = to_theirs(d, grouped);
    /* Depthwise: the channels within a group are one element, so the stride of dimension 0 is that
     * of the groups. */
    if (grouped && d == 0 && outer_elems(md, theirs) == 1) theirs = 0;
    int64_t s = md->format_desc.blocking.strides[theirs], w = outer_elems(md, theirs) > 1;
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
static bool same_addresses(const dnnl_memory_desc_t *a, const dnnl_memory_desc_t *b) {
  const dnnl_blocking_desc_t *p = &a->format_desc.blocking, *q = &b->format_desc.blocking;
  if (p->inner_nblks != q->inner_nblks) return false;
  for (int i = 0; i < p->inner_nblks; i++)
    if (p->inner_blks[i] != q->inner_blks[i] || p->inner_idxs[i] != q->inner_idxs[i]) return false;
  for (int d = 0; d < a->ndims; d++)
    if (a->padded_dims[d] != b->padded_dims[d] ||
        (outer_elems(a, d) > 1 && p->strides[d] != q->strides[d]))
      return false;
  return true;
}

bool onednn_layout(const dnnl_memory_desc_t *md, const neap_type *type, int64_t groups,
                   neap_layout *layout) {
  bool grouped = groups > 1, identity = true;
  const dnnl_blocking_desc_t *b = &md->format_desc.blocking;
  dnnl_memory_desc_t back;
  memset(layout, 0, sizeof *layout);
  /* Flags stand for what is stored beside the elements (sums for int8 kernels); a first offset is
   * nothing a layout can tell. */
  if (md->format_kind != dnnl_blocked || md->extra.flags != 0 || md->offset0 != 0 ||
      b->inner_nblks > 4 || md->ndims != type->shape.n_dim + (grouped ? 1 : 0))
    return false;
  layout->n_inner = (uint8_t)b->inner_nblks;
  for (int i = 0; i < b->inner_nblks; i++) {
    if (b->inner_blks[i] > UINT8_MAX) return false;
    layout->inner_dim[i] = (uint8_t)to_ours((int)b->inner_idxs[i], grouped);
    layout->inner_block[i] = (uint8_t)b->inner_blks[i];
  }
  int n = sorted_order(md, grouped, layout->order);
  for (int k = 0; k < n; k++) identity = identity && layout->order[k] == k;
  /* Plain has one spelling only, so that equal layouts compare equal: no order, no blocks. */
  layout->kind = identity && layout->n_inner == 0 ? NEAP_LAYOUT_PLAIN : NEAP_LAYOUT_BLOCKED;
  if (layout->kind == NEAP_LAYOUT_PLAIN) memset(layout->order, 0, sizeof layout->order);
  return onednn_md(type, layout, groups, &back) && same_addresses(md, &back);
}

#endif
