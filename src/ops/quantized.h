/* quantized.h: what the ops on quantised numbers share: integers q that stand for
 * scale (q - zero), ONNX's linear quantisation.
 *
 * A product of such numbers is a sum of products of integers, in 32 bits that wrap, as the standard
 * has it and as processors make it; the real number follows by one multiplication in f32.
 */
#ifndef NEAP_OPS_QUANTIZED_H
#define NEAP_OPS_QUANTIZED_H

#include "ops/window.h"

/* What activations and weights are quantised to, and what else ONNX's ops take. */
#define NEAP_BYTES (NEAP_BIT(U8) | NEAP_BIT(I8))

/* What the records of ops whose y is bytes say of it: two inputs and an attribute. */
#define NEAP_QUANTIZED_Y_SCALE \
  { "y_scale", "one", NEAP_BIT(F32) }
#define NEAP_QUANTIZED_Y_ZERO \
  { "y_zero", "one; its dtype is that of y", NEAP_BYTES, NEAP_ARG_OPTIONAL }
#define NEAP_QUANTIZED_TO                                                                        \
  {                                                                                              \
    "to", "dtype of y: u8 or i8; that of y_zero where there is one", NEAP_ATTR_DTYPE, .value = { \
      .i = NEAP_DTYPE_U8                                                                         \
    }                                                                                            \
  }

static inline bool neap_quantized_has(int n, const neap_type *types, int i) {
  return i < n && types[i].dtype != NEAP_DTYPE_NONE;
}
/* The least and the largest number of an integer dtype. */
void neap_quantized_range(neap_dtype dtype, double *least, double *most);
/* SHAPE error unless input `i`, where given, has one element, or `many` of one dimension. */
neap_status neap_quantized_expect(const neap_infer *infer, int i, int64_t many, neap_error *error);
/* DTYPE error unless input `i`, where given, has the dtype of input `of`. */
neap_status neap_quantized_expect_dtype(const neap_infer *infer, int i, int of, neap_error *error);
/* y's dtype: that of its zero point, input `zero`, else what attribute `to` says; ATTRIBUTE error
 * unless it is u8 or i8. */
neap_status neap_quantized_infer_dtype(const neap_infer *infer, int zero, int to, neap_dtype *dtype,
                                       neap_error *error);
/* Element `at` of an operand that has one, or one for each; `absent` where there is no operand. */
double neap_quantized_number(const neap_call *call, int operand, int64_t at, double absent);
/* y[i] = saturate(v[i]), v whole numbers already; y f32: v as it is. */
void neap_quantized_put(const neap_operand *y, int64_t at, const float *v, int64_t n);

/* A convolution of bytes. Of x is read x - minus; an element of the padding counts as `pad`; of
 * weight row o, w less its zero point, which is one for all rows or one each. Operands plain. */
typedef struct neap_integer_conv {
  neap_window w;
  int64_t n_o, group_o, group_c; /* O, O/g, C/g */
  const void *x, *weight;
  neap_dtype x_dtype, w_dtype;
  int32_t minus, pad;
  const neap_operand *w_zero; /* may be absent */
  /* sums of outputs [at, at + n) of y, all of channel o; of neap_integer_depthwise_run of channels
   * o, o + 1, .. */
  void (*finish)(const void *context, int64_t o, int64_t at, const int32_t *sum, int64_t n);
  const void *context;
  const int8_t *turned; /* the weights, taps first; set by neap_integer_depthwise_run */
} neap_integer_conv;
void neap_integer_conv_run(neap_integer_conv *job, const neap_call *call, const neap_shape *x,
                           const neap_shape *weight, const neap_shape *y);

/* The same of images whose channels lie last, in x and y, and have a window each: weights of i8
 * without zero points, and as many bytes of scratch. */
void neap_integer_depthwise_run(neap_integer_conv *job, const neap_call *call, const neap_shape *x,
                                const neap_shape *weight, const neap_shape *y);

/* The sum of (x[i] + plus) w[i]; x u8 or i8, w i8. */
int32_t neap_integer_dot(neap_dtype x_dtype, const void *x, int32_t plus, const int8_t *w,
                         int64_t n);
/* sum[j] += a (b[j] - b_zero[j]), or less one number; b u8 or i8. */
void neap_integer_axpy(int32_t *sum, int32_t a, neap_dtype b_dtype, const void *b,
                       const int32_t *b_zero, int64_t n);

#endif
