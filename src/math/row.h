/* math/row.h: reductions over one dense row, vectorised: what softmax, cross-entropy, attention and
 * the norms share.
 *
 * Sums run in the lanes of one vector, so their bits depend on the instruction set, and on nothing
 * else.
 *
 * INVARIANT: no sum in f32 is longer than a piece or a run; those are added up in double. So a sum
 * of n numbers of one sign is right to 1e-5 of itself, whatever n.
 */
#ifndef NEAP_MATH_ROW_H
#define NEAP_MATH_ROW_H

#include "base/base.h"

enum {
  /* elements of a row that are added up in its own type, over the lanes of a vector */
  NEAP_PIECE = 1024,
  NEAP_RUN = 128 /* rows that are added up in their own type, one after the other */
};
/* Loops over [from, to), the pieces or runs of n. */
#define NEAP_EACH_PART(n, size, from, to) \
  for (int64_t from = 0, to; from < (n) && (to = NEAP_MIN(from + (size), (n)), true); from = to)

/* -infinity for n = 0; passes over NaN */
float neap_row_max_f32(const float *x, int64_t n);
double neap_row_max_f64(const double *x, int64_t n);
/* y = exp(scale x - shift); returns the sum. y may be x. */
float neap_row_exp_f32(const float *x, float scale, float shift, float *y, int64_t n);
double neap_row_exp_f64(const double *x, double scale, double shift, double *y, int64_t n);
/* The sum of exp(x - most) less the 1 of the largest element, `most`: what is small beside that 1
 * keeps its bits, for log1p. */
float neap_row_exp_rest_f32(const float *x, float most, int64_t n);
double neap_row_exp_rest_f64(const double *x, double most, int64_t n);
float neap_row_dot_f32(const float *x, const float *y, int64_t n);
double neap_row_dot_f64(const double *x, const double *y, int64_t n);
/* Of the row, and of its squared distances from `centre`. */
double neap_row_sum_f32(const float *x, int64_t n);
double neap_row_sum_f64(const double *x, int64_t n);
double neap_row_spread_f32(const float *x, float centre, int64_t n);
double neap_row_spread_f64(const double *x, double centre, int64_t n);
/* out (N) = sum of the M rows of x, `step` elements apart: so many numbers of each column that M
 * may be a million. */
void neap_rows_sum_f32(const float *x, int64_t m, int64_t step, int64_t n, float *out);
void neap_rows_sum_f64(const double *x, int64_t m, int64_t step, int64_t n, double *out);
void neap_row_scale_f32(float *x, float factor, int64_t n);
void neap_row_scale_f64(double *x, double factor, int64_t n);

#endif
