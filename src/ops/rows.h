/* ops/rows.h: rows of floats of any dtype, for kernels that take a row at a time and read it more
 * than once: softmax, norms, losses. A row of the type computed in is used where it lies. One of
 * bf16 or f16 is widened into a tile of f32 in the scratch and rounded once when it is stored; so a
 * kernel has one body, and its scratch is a few rows for each thread.
 *
 * A row may be cut in pieces: `n_piece` pieces of `n` elements, `step` elements apart, which lie
 * side by side in a tile.
 */
#ifndef NEAP_OPS_ROWS_H
#define NEAP_OPS_ROWS_H

#include "ops/tile.h"

/* Scratch for tiles: `n_row` rows of `n` elements for each thread; 0 where nothing is widened.
 * There are as many threads as the choice has, or as there are items where these are fewer. */
size_t neap_rows_bytes(neap_dtype dtype, int64_t n_thread, int64_t n_row, int64_t n);

/* Of one thread, items [begin, end) with its own tile, which is NULL where nothing is widened. */
typedef void (*neap_rows_body)(void *context, int64_t begin, int64_t end, float *tile);

/* Shares items [0, n) out among the threads of a call; `scratch` is what neap_rows_bytes asked
 * for with the same numbers. */
void neap_rows_run(const neap_call *call, neap_dtype dtype, void *scratch, int64_t n_row,
                   int64_t row_elems, int64_t n, int64_t grain, neap_rows_body body, void *context);

/* Where the row from element `at` of x is read: in x, or widened into `tile`. */
const void *neap_row_load(const neap_operand *x, int64_t at, int64_t n_piece, int64_t step,
                          int64_t n, float *tile);
/* Where it is written before it is stored: in y, or in `tile`. */
static inline void *neap_row_target(const neap_operand *y, int64_t at, float *tile) {
  return neap_is_half(y->type.dtype) ? tile : neap_element_at(y, at);
}
/* Rounds the row in `tile` into y; what was written in y is there. */
void neap_row_store(const neap_operand *y, int64_t at, int64_t n_piece, int64_t step, int64_t n,
                    const float *tile);
/* How far apart the pieces of a row lie that was loaded. */
static inline int64_t neap_row_step(const neap_operand *x, int64_t step, int64_t n) {
  return neap_is_half(x->type.dtype) ? n : step;
}

/* total[0,n) += `m` rows of n halves, at most NEAP_TILE, `step` elements apart from element `at` of
 * x on. */
void neap_rows_add_halves(const neap_operand *x, int64_t at, int64_t m, int64_t step, int64_t n,
                          double *total);
/* Elements [at, at + n) of y, halves, from sums: each is rounded to f32, then to y's dtype. */
void neap_rows_put_halves(const neap_operand *y, int64_t at, int64_t n, const double *total);

/* Element i, whatever its dtype: for what there is one of in a row. */
static inline double neap_number_at(const neap_operand *x, int64_t i) {
  return neap_element_get(x->type.dtype, x->data, i);
}
static inline void neap_number_put(const neap_operand *y, int64_t i, double value) {
  neap_element_set(y->type.dtype, y->data, i, value);
}

#endif
