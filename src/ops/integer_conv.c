/* integer_conv.c: sums of products of bytes: a convolution by plain loops, a dot product, a row of
 * a matrix product. See quantized.h.
 *
 * As in conv_ref.c a row of outputs is summed at a time in a tile on the stack, tap by tap. An
 * element of the padding counts as a number of its own, so each sum begins as if all of x were
 * padding, and taps inside x add what they have more than that.
 */
#include "ops/quantized.h"
#include "ops/rows.h"

enum { TILE = 256 };

/* ---- rows ------------------------------------------------------------------------------------ */

/* sum[i] += scale (x[i step] - minus), in unsigned numbers, which wrap. */
#define GATHER(name, I)                                                                        \
  NEAP_MULTIVERSION static void name(int32_t *sum, const void *from, int64_t at, int64_t step, \
                                     int32_t minus, int32_t scale, int64_t n) {                \
    const I *x = (const I *)from + at;                                                         \
    if (step == 1)                                                                             \
      for (int64_t i = 0; i < n; i++) sum[i] += (x[i] - minus) * scale;                        \
    else                                                                                       \
      for (int64_t i = 0; i < n; i++) sum[i] += (x[i * step] - minus) * scale;                 \
  }
GATHER(gather_u8, uint8_t)
GATHER(gather_i8, int8_t)

#define DOT(name, I)                                                                            \
  NEAP_MULTIVERSION static int32_t name(const I *x, int32_t plus, const int8_t *w, int64_t n) { \
    int32_t sum = 0;                                                                            \
    for (int64_t i = 0; i < n; i++) sum += (x[i] + plus) * w[i];                                \
    return sum;                                                                                 \
  }
DOT(dot_u8, uint8_t)
DOT(dot_i8, int8_t)

int32_t neap_integer_dot(neap_dtype x_dtype, const void *x, int32_t plus, const int8_t *w,
                         int64_t n) {
  return x_dtype == NEAP_DTYPE_U8 ? dot_u8(x, plus, w, n) : dot_i8(x, plus, w, n);
}

#define AXPY(name, I)                                                                          \
  NEAP_MULTIVERSION static void name(int32_t *sum, int32_t a, const I *b, const int32_t *zero, \
                                     int64_t n) {                                              \
    for (int64_t i = 0; i < n; i++) sum[i] += a * (b[i] - zero[i]);                            \
  }
AXPY(axpy_u8, uint8_t)
AXPY(axpy_i8, int8_t)

void neap_integer_axpy(int32_t *sum, int32_t a, neap_dtype b_dtype, const void *b,
                       const int32_t *b_zero, int64_t n) {
  if (b_dtype == NEAP_DTYPE_U8)
    axpy_u8(sum, a, b, b_zero, n);
  else
    axpy_i8(sum, a, b, b_zero, n);
}

/* ---- convolution ----------------------------------------------------------------------------- */

static int32_t byte_at(neap_dtype dtype, const void *data, int64_t at) {
  return dtype == NEAP_DTYPE_U8 ? ((const uint8_t *)data)[at] : ((const int8_t *)data)[at];
}

static int32_t zero_of(const neap_integer_conv *j, int64_t o) {
  if (j->w_zero == NULL || j->w_zero->data == NULL) return 0;
  bool each = neap_shape_elems(&j->w_zero->type.shape) > 1;
  return (int32_t)neap_number_at(j->w_zero, each ? o : 0);
}

typedef struct integer_sums {
  const neap_integer_conv *j;
  int32_t w_zero, *sum;
} integer_sums;

/* What a tap inside x has more than the padding. */
static void integer_tap(void *context, int64_t x, int64_t weight, int64_t first, int64_t n) {
  const integer_sums *s = context;
  const neap_integer_conv *j = s->j;
  int32_t scale = byte_at(j->w_dtype, j->weight, weight) - s->w_zero;
  (j->x_dtype == NEAP_DTYPE_U8 ? gather_u8 : gather_i8)(s->sum + first, j->x, x, j->w.stride[2],
                                                        j->minus + j->pad, scale, n);
}

/* The sum of channel o where all of x is padding. */
static int32_t padding_alone(const neap_integer_conv *j, int64_t o, int32_t w_zero) {
  const int64_t n_weight = j->group_c * j->w.n_kernel;
  int32_t sum = 0;
  for (int64_t i = 0; i < n_weight; i++)
    sum += j->pad * (byte_at(j->w_dtype, j->weight, o * n_weight + i) - w_zero);
  return sum;
}

/* Planes [begin, end) of y, numbered n * O + o. */
static void run_planes(void *context, int64_t begin, int64_t end) {
  const neap_integer_conv *j = context;
  const neap_window *w = &j->w;
  int32_t sum[TILE];
  for (int64_t p = begin; p < end; p++) {
    const int64_t o = p % j->n_o;
    const int32_t w_zero = zero_of(j, o);
    const int32_t first = j->pad != 0 ? padding_alone(j, o, w_zero) : 0;
    for (int64_t r = 0; r < w->out[0] * w->out[1]; r++)
      for (int64_t from = 0; from < w->out[2]; from += TILE) {
        /* A part of a row, small enough for the first cache: all its taps are added before it is
         * finished. */
        int64_t n = NEAP_MIN(w->out[2] - from, TILE);
        for (int64_t i = 0; i < n; i++) sum[i] = first;
        const neap_conv_row row = {
          w, j->group_c, j->group_o, p / j->n_o, o, r / w->out[1], r % w->out[1], from, n};
        neap_conv_each_tap(&row, integer_tap, &(integer_sums){j, w_zero, sum});
        j->finish(j->context, o, p * w->n_out + r * w->out[2] + from, sum, n);
      }
  }
}

void neap_integer_conv_run(neap_integer_conv *j, const neap_call *call, const neap_shape *x,
                           const neap_shape *weight, const neap_shape *y) {
  j->w = neap_conv_window(call->op, call->attrs, x, y, weight);
  j->n_o = weight->dim[0];
  j->group_o = weight->dim[0] / call->attrs[NEAP_CONV_GROUPS].i;
  j->group_c = weight->dim[1];
  if (neap_shape_elems(y) > 0)
    neap_parallel_for(j->w.batch * j->n_o, 1, call->n_thread, run_planes, j);
}

/* ---- a window a channel, channels last ------------------------------------------------------- */

/* sum[c] += (x[c] - minus) w[c], of channels side by side. */
NEAP_INLINE void add_tap(int32_t *sum, const void *x, bool is_u8, int32_t minus, const int8_t *w,
                         int64_t n) {
  if (is_u8)
    for (int64_t c = 0; c < n; c++) sum[c] += (((const uint8_t *)x)[c] - minus) * w[c];
  else
    for (int64_t c = 0; c < n; c++) sum[c] += (((const int8_t *)x)[c] - minus) * w[c];
}

/* The taps of one pixel of y, channels [c, c + n). A tap in the padding has no x. */
NEAP_INLINE void sum_pixel(const neap_integer_conv *j, bool is_u8, int64_t pixel, int64_t c,
                           int64_t n, int32_t *sum) {
  const neap_window *w = &j->w;
  const int64_t left = pixel % w->out[2] * w->stride[2] - w->begin[2],
                top = pixel / w->out[2] % w->out[1] * w->stride[1] - w->begin[1],
                image = pixel / w->out[2] / w->out[1];

  /* Tap after tap, each of all channels at once: what is read of x and of the weights is dense. */
  const int8_t *tap = j->turned + c;
  for (int64_t i = 0; i < n; i++) sum[i] = 0;
  for (int64_t kh = 0; kh < w->kernel[1]; kh++)
    for (int64_t kw = 0; kw < w->kernel[2]; kw++, tap += j->n_o) {
      const int64_t h = top + kh * w->dilation[1], at = left + kw * w->dilation[2];
      const bool inside = h >= 0 && h < w->in[1] && at >= 0 && at < w->in[2];
      const int64_t x = ((image * w->in[1] + h) * w->in[2] + at) * j->n_o + c;
      if (inside)
        add_tap(sum, (const uint8_t *)j->x + x, is_u8, j->minus, tap, n);
      else if (j->pad != 0)
        for (int64_t i = 0; i < n; i++) sum[i] += j->pad * tap[i];
    }
}

NEAP_MULTIVERSION static void sum_u8(const neap_integer_conv *j, int64_t pixel, int64_t c,
                                     int64_t n, int32_t *sum) {
  sum_pixel(j, true, pixel, c, n, sum);
}
NEAP_MULTIVERSION static void sum_i8(const neap_integer_conv *j, int64_t pixel, int64_t c,
                                     int64_t n, int32_t *sum) {
  sum_pixel(j, false, pixel, c, n, sum);
}

static void run_pixels(void *context, int64_t begin, int64_t end) {
  const neap_integer_conv *j = context;
  int32_t sum[TILE];
  for (int64_t p = begin; p < end; p++)
    for (int64_t c = 0; c < j->n_o; c += TILE) {
      const int64_t n = NEAP_MIN(j->n_o - c, TILE);
      (j->x_dtype == NEAP_DTYPE_U8 ? sum_u8 : sum_i8)(j, p, c, n, sum);
      j->finish(j->context, c, p * j->n_o + c, sum, n);
    }
}

void neap_integer_depthwise_run(neap_integer_conv *j, const neap_call *call, const neap_shape *x,
                                const neap_shape *weight, const neap_shape *y) {
  j->w = neap_conv_window(call->op, call->attrs, x, y, weight);
  j->n_o = weight->dim[0];
  /* Weights of one tap side by side, as the channels of x are. */
  int8_t *turned = call->scratch;
  for (int64_t c = 0; c < j->n_o; c++)
    for (int64_t t = 0; t < j->w.n_kernel; t++)
      turned[t * j->n_o + c] = ((const int8_t *)j->weight)[c * j->w.n_kernel + t];
  j->turned = turned;
  const int64_t grain = NEAP_GRAIN / NEAP_MAX(j->n_o * j->w.n_kernel, 1) + 1;
  if (neap_shape_elems(y) > 0)
    neap_parallel_for(j->w.batch * j->w.n_out, grain, call->n_thread, run_pixels, j);
}
