/* math/panels.h: products of a few rows with a matrix that is used many times over, such as a
 * recurrent layer's weight.
 *
 * The matrix w (N,K) lies in panels: 16 of its rows at a time, turned round so that one column of
 * the 16 is a vector: (N/16, K, 16). That is the layout {BLOCKED, order 0 1, inner {dim 0, 16}} of
 * (N,K), so a Reorder makes it, once for all the products. Libraries pack the matrix in each
 * product, which for a few rows costs as much as a quarter of it (measured).
 */
#ifndef NEAP_MATH_PANELS_H
#define NEAP_MATH_PANELS_H

#include "tensor/tensor.h"

enum { NEAP_PANEL = 16 };

/* (N,K) in panels. */
static inline neap_layout neap_panels_layout(void) {
  return (neap_layout){.kind = NEAP_LAYOUT_BLOCKED,
                       .n_inner = 1,
                       .inner_dim = {0},
                       .inner_block = {NEAP_PANEL},
                       .order = {0, 1}};
}

/* x (M,K) times four panels, into four column groups of y, each NEAP_PANEL wide; `add`: to what y
 * holds. Panel p is at panels + p * panel_step and its columns at y + p * column_step; rows of x
 * are ldx, of y ldy elements apart. On the calling thread. Each element of y is summed in order of
 * K; y may not overlap x. */
void neap_panels_f32(int64_t m, int64_t k, const float *x, int64_t ldx, const float *panels,
                     int64_t panel_step, bool add, float *y, int64_t ldy, int64_t column_step);

#endif
