/* lane.h: where an element lies in a layout, by the definition in tensor.h. */
#ifndef NEAP_TESTS_LANE_H
#define NEAP_TESTS_LANE_H

#include "tensor/tensor.h"

/* Lane of element `index` (row-major number) of a type in a layout, in elements. Written anew here,
 * so that a layout's own arithmetic is not checked by itself. */
static inline int64_t lane(const neap_type *type, const neap_layout *layout, int64_t index) {
  int64_t at[NEAP_MAX_DIM], pos = 0;
  const neap_shape *s = &type->shape;
  if (layout->kind == NEAP_LAYOUT_PLAIN) return index;
  for (int d = s->n_dim - 1; d >= 0; d--) at[d] = index % s->dim[d], index /= s->dim[d];

  /* The outer part: which block, dimension by dimension in the layout's order. A dimension's block
   * is the product of all its inner ones; the last one may not be full. */
  for (int k = 0; k < s->n_dim; k++) {
    int d = layout->order[k];
    int64_t block = 1;
    for (int i = 0; i < layout->n_inner; i++)
      if (layout->inner_dim[i] == d) block *= layout->inner_block[i];
    pos = pos * ((s->dim[d] + block - 1) / block) + at[d] / block;
  }

  /* The inner part: where within the block. One dimension may be there more than once. */
  for (int i = 0; i < layout->n_inner; i++) {
    int64_t below = 1; /* of the same dimension, in faster inner blocks */
    for (int j = i + 1; j < layout->n_inner; j++)
      if (layout->inner_dim[j] == layout->inner_dim[i]) below *= layout->inner_block[j];
    pos = pos * layout->inner_block[i] + at[layout->inner_dim[i]] / below % layout->inner_block[i];
  }
  return pos;
}

#endif
