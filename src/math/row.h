/* math/row.h: reductions over one dense row, vectorised: what softmax, cross-entropy, attention and the norms share.
 *
 * Sums run in the lanes of one vector, so their bits depend on the instruction set, and on nothing else.
 */
#ifndef NEAP_MATH_ROW_H
#define NEAP_MATH_ROW_H

#include "base/base.h"

float neap_row_max_f32(const float *x, int64_t n); /* -infinity for n = 0 */
double neap_row_max_f64(const double *x, int64_t n);
/* y = exp(scale x - shift); returns the sum. y may be x. */
float neap_row_exp_f32(const float *x, float scale, float shift, float *y, int64_t n);
double neap_row_exp_f64(const double *x, double scale, double shift, double *y, int64_t n);
/* The sum of exp(x - most) less the 1 of the largest element, `most`: what is small beside that 1 keeps its bits, for log1p. */
float neap_row_exp_rest_f32(const float *x, float most, int64_t n);
double neap_row_exp_rest_f64(const double *x, double most, int64_t n);
float neap_row_dot_f32(const float *x, const float *y, int64_t n);
double neap_row_dot_f64(const double *x, const double *y, int64_t n);
void neap_row_scale_f32(float *x, float factor, int64_t n);
void neap_row_scale_f64(double *x, double factor, int64_t n);

#endif
