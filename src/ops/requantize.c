/* requantize.c: Requantize, the sums of a product of integers in the integers of another scale, as
 * TensorFlow Lite lays it down for integer nets: in fixed point, to the same bits everywhere.
 *
 * A scale is m 2^e with m a whole number of 31 bits. The sum times m loses 31 bits and, of a scale
 * below a half, -e more: it is rounded twice, first to the nearest with halves upwards, then to the
 * nearest with halves away from 0. Sums of 16-bit integers have up to 48 bits and 15 bits of the
 * scale; they are rounded once, halves upwards.
 *
 * Fully connected layers are another matter: TensorFlow Lite's reference multiplies in doubles and
 * rounds once, halves away from 0. That differs in a few of a thousand results.
 */
#include "ops/quantized.h"

#include <float.h>
#include <math.h>
#include <string.h>

enum { X, SCALE, BIAS };
enum { TO, ZERO, LEAST, MOST, AXIS, ONCE, WIDE };

/* A scale in fixed point: m / 2^31 * 2^left / 2^right. */
typedef struct fixed {
  int64_t m;
  int left, right;
} fixed;

static fixed fixed_of(double scale) {
  /* What is too small for the format is 0; what is too large is not infer's to refuse, since it is
   * data: it saturates, infinity too. NaN and negative numbers are no scales: 0. */
  static const fixed nothing = {0, 0, 0}, largest = {INT32_MAX, 30, 0};
  if (!(scale > 0)) return nothing;
  if (isinf(scale)) return largest;

  /* Of the 53 bits of a double, from a half up to 1, the first 31, rounded. One that has fewer is
   * far below what the format has. */
  uint64_t bits;
  memcpy(&bits, &scale, sizeof bits);
  int e = (int)(bits >> 52) - 1022;
  const uint64_t whole = (bits & ((UINT64_C(1) << 52) - 1)) | UINT64_C(1) << 52;
  int64_t m = (int64_t)((whole + (UINT64_C(1) << 21)) >> 22);
  if (m == INT64_C(1) << 31) m /= 2, e++;
  if (e < -31) return nothing;
  if (e > 30) return largest;
  return (fixed){m, NEAP_MAX(e, 0), NEAP_MAX(-e, 0)};
}

static int64_t within(int64_t x, int64_t least, int64_t most) {
  return NEAP_MIN(NEAP_MAX(x, least), most);
}

/* The product as the format makes it, of a whole number within 32 bits. */
static int64_t times_twice(int64_t x, fixed f) {
  /* 2^left first, where 32 bits saturate; then m; then 2^right, which rounds once more. */
  int64_t wide = within(x * (INT64_C(1) << f.left), INT32_MIN, INT32_MAX);
  /* Half a unit more, and the lower bits go: a shift rounds down. */
  int64_t y = (wide * f.m + (INT64_C(1) << 30)) >> 31;
  /* One more where the rest is more than a half, or is a half of a number that is not negative:
   * halves go away from 0. */
  int64_t mask = (INT64_C(1) << f.right) - 1, rest = y & mask;
  return (y >> f.right) + (rest > (mask >> 1) + (y < 0) ? 1 : 0);
}

/* Wide sums lie within this, and results within 33 bits, which are further than any bound goes. */
#define WIDE_SUM 140737488355328.0
#define WIDE_RESULT 4294967296.0

/* x m / 2^shift, where it is within 33 bits: so |x| < 2^33 / scale, and no product below leaves 64
 * bits. */
static int64_t wide_product(int64_t x, int64_t m, int shift) {
  if (shift < 1) return x * m * (INT64_C(1) << -shift);
  if (shift < 17) return (x * m + (INT64_C(1) << (shift - 1))) >> shift;
  /* In two parts, the lower one without its last 16 bits: half of 2^shift has none of these. */
  int64_t low = (x * (m & 0xffff)) >> 16, half = INT64_C(1) << (shift - 17);
  return (x * (m >> 16) + low + half) >> (shift - 16);
}

static double times_wide(double x, fixed f) {
  if (x != x) return 0;
  x = fmin(fmax(x, -WIDE_SUM), WIDE_SUM);
  /* What saturates anyway is decided in a double, so that whole numbers meet only products that
   * fit. */
  int shift = 31 - f.left + f.right;
  double real = ldexp(x * (double)f.m, -shift);
  if (fabs(real) >= WIDE_RESULT) return copysign(WIDE_RESULT, real);
  int64_t m = NEAP_MIN((f.m + 0x8000) >> 16, 0x7fff);
  return (double)wide_product(llrint(x), m, shift - 16);
}

/* ---- tiles ----------------------------------------------------------------------------------- */

enum { TILE = 256 };
/* Sums below this times 31 bits, and a half more, are numbers that a double has. */
#define SMALL 2097152.0

/* What a tile is multiplied by: f[0] all of it, or each element with a scale of its own, `many`.
 * `factor` and `rest` are the two steps of rounding twice; rounding once, `factor` is the scale.
 * `m` and `right` are f's, in lists of their own. */
typedef struct factors {
  bool many;
  int most_left;
  fixed f[TILE];
  double factor[TILE], rest[TILE], bias[TILE];
  int64_t m[TILE], right[TILE];
} factors;

/* x[i] times its scale, as times_twice has it, of small numbers: products and halves added to them
 * are exact, so that floor and trunc cut what the shifts cut. */
NEAP_INLINE void twice_body(double *x, const factors *s, bool many, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    double y = floor(x[i] * s->factor[many ? i : 0] + 0.5) * s->rest[many ? i : 0];
    x[i] = trunc(y + copysign(0.5, y));
  }
}
NEAP_MULTIVERSION static void scale_small(double *x, const factors *s, int64_t n) {
  if (s->many)
    twice_body(x, s, true, n);
  else
    twice_body(x, s, false, n);
}

/* The same of any sums by scales below 1: all of it lies within 32 bits, so that it goes many at a
 * time. Whole numbers are told by their type alone: they come as such. */
NEAP_INLINE void shifts_body(const int64_t *sum, double *y, const factors *s, bool many,
                             int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    const int64_t m = s->m[many ? i : 0], right = s->right[many ? i : 0];
    const int64_t mask = (INT64_C(1) << right) - 1;
    const int64_t near = (sum[i] * m + (INT64_C(1) << 30)) >> 31;
    const int64_t above = (near & mask) > (mask >> 1) + (near < 0);
    y[i] = (double)((near >> right) + above);
  }
}
NEAP_MULTIVERSION static void scale_by_shifts(const int64_t *sum, double *y, const factors *s,
                                              int64_t n) {
  if (s->many)
    shifts_body(sum, y, s, true, n);
  else
    shifts_body(sum, y, s, false, n);
}

/* The double below a half. Added to a number before its fraction is cut it rounds halves away from
 * 0, as C's round does; a half itself would take what lies just below one along. */
#define NEARLY_HALF 0x1.fffffffffffffp-2

/* The products of doubles, rounded once. NaN is 0; nothing below makes one, since no sum and no
 * scale is infinite. */
NEAP_MULTIVERSION static void scale_once(double *x, const factors *s, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    double bound = x[i] == x[i] ? x[i] : 0;
    bound = bound > -WIDE_SUM ? bound : -WIDE_SUM;
    bound = bound < WIDE_SUM ? bound : WIDE_SUM;
    double y = bound * s->factor[s->many ? i : 0];
    x[i] = trunc(y + copysign(NEARLY_HALF, y));
  }
}

/* Within 32 bits; NaN is 0. */
NEAP_MULTIVERSION static void to_whole(const double *x, int64_t *sum, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    double bound = x[i] == x[i] ? x[i] : 0;
    bound = bound > (double)INT32_MIN ? bound : (double)INT32_MIN;
    bound = bound < (double)INT32_MAX ? bound : (double)INT32_MAX;
    sum[i] = (int64_t)bound;
  }
}

static void scale_large(double *x, const factors *s, int64_t n) {
  for (int64_t i = 0; i < n; i++) {
    double bound = fmin(fmax(x[i], (double)INT32_MIN), (double)INT32_MAX);
    int64_t sum = x[i] != x[i] ? 0 : llrint(bound);
    x[i] = (double)times_twice(sum, s->f[s->many ? i : 0]);
  }
}

static void scale(double *x, const factors *s, bool once, bool wide, bool is_small, int64_t n) {
  if (once)
    scale_once(x, s, n);
  else if (wide)
    for (int64_t i = 0; i < n; i++) x[i] = times_wide(x[i], s->f[s->many ? i : 0]);
  else if (s->most_left <= 8 && is_small)
    scale_small(x, s, n);
  else if (s->most_left == 0) {
    int64_t sum[TILE];
    to_whole(x, sum, n);
    scale_by_shifts(sum, x, s, n);
  } else {
    scale_large(x, s, n);
  }
}

typedef struct job {
  const neap_call *call;
  int64_t n_channel, inner; /* so many elements lie together that share a scale */
  double zero, least, most;
  bool once, wide;
  const double *bias; /* NULL: none */
  bool many_bias;     /* one for each channel */
} job;

static double power_of_two(int e) {
  const uint64_t bits = (uint64_t)(1023 + e) << 52;
  double x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* A scale as a double that can be multiplied with: what is none is 0. */
static double real_of(double scale) { return scale > 0 ? fmin(scale, DBL_MAX) : 0; }

/* Of channels [from, from + n), `times` times one after another. */
static void fill_factors(const job *k, factors *s, int64_t from, int64_t n, int64_t times) {
  const double *scales = (const double *)k->call->in[SCALE].data + from;
  s->many = n * times > 1;
  s->most_left = 0;
  for (int64_t i = 0; i < n; i++) {
    fixed f = fixed_of(scales[i]);
    s->f[i] = f;
    /* Powers of two, so that nothing is rounded. */
    s->rest[i] = power_of_two(-f.right);
    s->factor[i] = k->once ? real_of(scales[i]) : (double)f.m * power_of_two(f.left - 31);
    s->m[i] = f.m, s->right[i] = f.right;
    s->bias[i] = k->bias == NULL ? 0 : k->bias[k->many_bias ? from + i : 0];
    s->most_left = NEAP_MAX(s->most_left, f.left);
  }
  for (int64_t i = n; i < n * times; i++)
    s->f[i] = s->f[i - n], s->factor[i] = s->factor[i - n], s->rest[i] = s->rest[i - n],
    s->bias[i] = s->bias[i - n], s->m[i] = s->m[i - n], s->right[i] = s->right[i - n];
}

/* No NaN comes here: comparisons do, which fmin and fmax are more than. */
#define PUT(name, I)                                                                     \
  NEAP_MULTIVERSION static void name(const job *k, const double *x, void *y, int64_t at, \
                                     int64_t n) {                                        \
    I *to = (I *)y + at;                                                                 \
    double zero = k->zero, least = k->least, most = k->most;                             \
    for (int64_t i = 0; i < n; i++) {                                                    \
      double value = x[i] + zero;                                                        \
      value = value < least ? least : value;                                             \
      value = value > most ? most : value;                                               \
      to[i] = (I)(int32_t)value;                                                         \
    }                                                                                    \
  }
PUT(put_i8, int8_t)
PUT(put_u8, uint8_t)
PUT(put_i16, int16_t)
PUT(put_i32, int32_t)

static void put(const job *k, const double *x, int64_t at, int64_t n) {
  const neap_operand *y = &k->call->out[0];
  switch (y->type.dtype) {
    case NEAP_DTYPE_I8: put_i8(k, x, y->data, at, n); break;
    case NEAP_DTYPE_U8: put_u8(k, x, y->data, at, n); break;
    case NEAP_DTYPE_I16: put_i16(k, x, y->data, at, n); break;
    case NEAP_DTYPE_I32: put_i32(k, x, y->data, at, n); break;
    default:
      for (int64_t i = 0; i < n; i++) {
        double value = fmin(fmax(x[i] + k->zero, k->least), k->most);
        neap_element_set_i64(y->type.dtype, y->data, at + i, (int64_t)value);
      }
  }
}

/* ---- bytes of small sums --------------------------------------------------------------------- */

/* What most tiles are, in one go: small sums, results that are bytes. Rounding twice, adding
 * 1.5 2^52 rounds to a whole number; one above what was rounded is one too many for a floor, which
 * loops that make i32 would call one by one. The cast to i32 cuts the fraction. */
NEAP_INLINE void byte_body(const job *k, const factors *s, bool many, bool once, const double *x,
                           int32_t *y, int64_t n) {
  const double whole = 0x1.8p52;
  const int32_t zero = (int32_t)k->zero, least = (int32_t)k->least, most = (int32_t)k->most;
  for (int64_t i = 0; i < n; i++) {
    double near = x[i] * s->factor[many ? i : 0];
    if (!once) {
      double v = near + 0.5, nearest = (v + whole) - whole;
      near = (nearest > v ? nearest - 1 : nearest) * s->rest[many ? i : 0];
    }
    near += copysign(once ? NEARLY_HALF : 0.5, near);
    int32_t q = (int32_t)near + zero;
    q = NEAP_MAX(q, least);
    y[i] = NEAP_MIN(q, most);
  }
}
NEAP_MULTIVERSION static void scale_bytes(const job *k, const factors *s, const double *x,
                                          int32_t *y, int64_t n) {
  if (k->once && s->many) byte_body(k, s, true, true, x, y, n);
  if (k->once && !s->many) byte_body(k, s, false, true, x, y, n);
  if (!k->once && s->many) byte_body(k, s, true, false, x, y, n);
  if (!k->once && !s->many) byte_body(k, s, false, false, x, y, n);
}

/* The lower byte of each. */
NEAP_MULTIVERSION static void put_bytes(const int32_t *x, uint8_t *y, int64_t n) {
  for (int64_t i = 0; i < n; i++) y[i] = (uint8_t)x[i];
}

/* y[i] = x[i] + the bias, and whether all of them are small, which a NaN is not: in one go. */
#define LOAD(name, I)                                                                              \
  NEAP_INLINE int OF_BIAS(name)(const I *x, const double *bias, bool many, double *y, int64_t n) { \
    int n_small = 0;                                                                               \
    for (int64_t i = 0; i < n; i++) {                                                              \
      y[i] = (double)x[i] + bias[many ? i : 0];                                                    \
      n_small += fabs(y[i]) < SMALL;                                                               \
    }                                                                                              \
    return n_small;                                                                                \
  }                                                                                                \
  NEAP_MULTIVERSION static bool name(const void *x, int64_t at, const factors *s, double *y,       \
                                     int64_t n) {                                                  \
    const I *from = (const I *)x + at;                                                             \
    return (s->many ? OF_BIAS(name)(from, s->bias, true, y, n)                                     \
                    : OF_BIAS(name)(from, s->bias, false, y, n)) == n;                             \
  }
#define OF_BIAS(name) NEAP_JOIN(name, _by)
LOAD(load_i32, int32_t)
LOAD(load_f32, float)
LOAD(load_f64, double)

/* Elements [at, at + n) of x, as far as a tile goes. */
static bool load(const neap_operand *x, int64_t at, const factors *s, double *y, int64_t n) {
  switch (x->type.dtype) {
    case NEAP_DTYPE_I32: return load_i32(x->data, at, s, y, n);
    case NEAP_DTYPE_F32: return load_f32(x->data, at, s, y, n);
    default: return load_f64(x->data, at, s, y, n);
  }
}

static void run_tile(const job *k, const factors *s, int64_t at, int64_t n) {
  const neap_operand *y = &k->call->out[0];
  double tile[TILE];
  const bool is_small = load(&k->call->in[X], at, s, tile, n);
  /* A scale below 2^8 makes less than 2^29 of a small sum: with a small zero, too, it is an i32. */
  const bool is_bytes =
    !k->wide && neap_dtype_in(y->type.dtype, NEAP_BYTES) && fabs(k->zero) < SMALL;
  if (is_bytes && s->most_left <= 8 && is_small) {
    int32_t bytes[TILE];
    scale_bytes(k, s, tile, bytes, n);
    put_bytes(bytes, (uint8_t *)y->data + at, n);
    return;
  }
  scale(tile, s, k->once, k->wide, is_small, n);
  put(k, tile, at, n);
}

/* Elements [begin, end). */
static void run_range(void *context, int64_t begin, int64_t end) {
  const job *k = context;
  factors s;
  /* A row shares a scale; a range may begin and end within one. */
  for (int64_t at = begin, row = -1; at < end;) {
    if (at / k->inner != row) {
      row = at / k->inner;
      fill_factors(k, &s, row % k->n_channel, 1, 1);
    }
    int64_t n = NEAP_MIN(NEAP_MIN(end, (row + 1) * k->inner) - at, TILE);
    run_tile(k, &s, at, n);
    at += n;
  }
}

/* Pixels [begin, end), whose channels lie side by side: as many pixels at a time as a tile has room
 * for, or of many channels a part of each. */
static void run_pixels(void *context, int64_t begin, int64_t end) {
  const job *k = context;
  const int64_t n_c = k->n_channel;
  factors s;
  for (int64_t c = 0; c < n_c; c += TILE) {
    const int64_t n = NEAP_MIN(n_c - c, TILE), times = n_c > TILE ? 1 : TILE / n_c;
    fill_factors(k, &s, c, n, times);
    for (int64_t p = begin; p < end; p += times)
      run_tile(k, &s, p * n_c + c, n * NEAP_MIN(times, end - p));
  }
}

static void run(const neap_call *call) {
  const neap_shape *x = &call->in[X].type.shape, *scales = &call->in[SCALE].type.shape;
  const neap_attr_value *attrs = call->attrs;
  int64_t n = neap_shape_elems(x), inner = n;
  double least, most;
  if (n == 0) return;
  if (scales->n_dim == 1)
    inner = neap_shape_span(x, neap_axis(attrs[AXIS].i, x->n_dim) + 1, x->n_dim);

  /* The bounds of the attributes, within those of y's dtype. */
  neap_quantized_range(call->out[0].type.dtype, &least, &most);
  if (call->out[0].type.dtype == NEAP_DTYPE_I64) least = -most;
  job k = {call,
           neap_shape_elems(scales),
           inner,
           (double)attrs[ZERO].i,
           fmin(fmax(least, (double)attrs[LEAST].i), most),
           fmax(fmin(most, (double)attrs[MOST].i), least),
           attrs[ONCE].i != 0,
           attrs[WIDE].i != 0,
           call->n_in > BIAS ? call->in[BIAS].data : NULL,
           call->n_in > BIAS && neap_shape_elems(&call->in[BIAS].type.shape) > 1};
  /* Channels last, in the layout or in the shape. */
  const bool is_last = call->in[X].layout.kind == NEAP_LAYOUT_BLOCKED || inner == 1;
  const bool side_by_side = is_last && k.n_channel > 1;
  if (side_by_side)
    neap_parallel_for(n / k.n_channel, NEAP_GRAIN / k.n_channel + 1, call->n_thread, run_pixels,
                      &k);
  else
    neap_parallel_for(n, NEAP_GRAIN, call->n_thread, run_range, &k);
}

/* As x lies, plain or with the channels last, so that products of bytes need no Reorder between
 * them; of one scale any order without padding would do, and this one is what comes. */
static bool choose(neap_choose *c) {
  const neap_layout *x = &c->in_layout[0];
  const int rank = c->in[0].shape.n_dim;
  const bool many = c->in[1].shape.n_dim == 1 && c->in[1].shape.dim[0] > 1;
  const bool is_second = !many || neap_axis(c->attrs[AXIS].i, rank) == 1;
  if (!c->plain && is_second && rank > 2 && neap_window_channels_last(x, &c->in[0].shape))
    c->choice->in[0] = c->choice->out[0] = *x;
  return true;
}

static neap_status infer(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape, *scale = &c->in[1].shape;
  const neap_attr_value *attrs = c->attrs;
  neap_dtype to = (neap_dtype)attrs[TO].i;
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  int axis;
  if (!neap_dtype_in(to, NEAP_INTEGERS))
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "to = %s is not an integer",
                           neap_dtype_name(to));
  if (attrs[LEAST].i > attrs[MOST].i)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "least = %lld is above most = %lld",
                           (long long)attrs[LEAST].i, (long long)attrs[MOST].i);

  /* One scale for all, or one for each channel. */
  NEAP_TRY(neap_infer_rank(c, 1, 0, 1, error));
  if (scale->n_dim == 1) {
    NEAP_TRY(neap_infer_axis(c, AXIS, x->n_dim, &axis, error));
    if (x->dim[axis] != scale->dim[0])
      return neap_infer_fail(
        c, NEAP_SHAPE, 1, error, "scale %s expects a number for each of %lld channels of x %s",
        neap_shape_text(scale, a), (long long)x->dim[axis], neap_shape_text(x, b));
  }
  /* Of one scale all elements have one bias. */
  if (neap_quantized_has(c->n_in, c->in, BIAS))
    NEAP_TRY(neap_quantized_expect(c, BIAS, scale->n_dim == 1 ? scale->dim[0] : 0, error));
  c->out[0] = (neap_type){to, *x};
  return NEAP_OK;
}

const neap_op neap_op_Requantize = {
  .name = "Requantize",
  .summary =
    "Sums of products of integers in integers of another scale, in fixed point as "
    "TensorFlow Lite's nets have it.",
  .math =
    "y = min(max(zero + round((x + b) scale), least), most), scale to 31 bits, rounded twice, or "
    "scale as it is, rounded once",
  .example = "net:Requantize({\"sum\", \"scale\"}, \"y\", {to = \"i8\", zero = -3})",
  .source = "TensorFlow Lite 8-bit quantization specification; gemmlowp, fixedpoint.h",
  .inputs = {{"x", "any shape; whole numbers within 32 bits, or 48", NEAP_BIT(I32) | NEAP_WIDE},
             {"scale", "of x over that of y: one, or one for each position along axis",
              NEAP_BIT(F64)},
             {"b", "whole numbers that x is short of: one, or like scale", NEAP_BIT(F64),
              NEAP_ARG_OPTIONAL}},
  .outputs = {{"y", "shape of x", NEAP_INTEGERS}},
  .attrs = {[TO] = {"to", "dtype of y, an integer", NEAP_ATTR_DTYPE, .required = true},
            [ZERO] = {"zero", "the number of y that stands for 0", NEAP_ATTR_INT},
            [LEAST] = {"least", "the least that y has", NEAP_ATTR_INT, .value = {.i = INT32_MIN}},
            [MOST] = {"most", "the most that y has", NEAP_ATTR_INT, .value = {.i = INT32_MAX}},
            [AXIS] = {"axis", "the dimension of the channels", NEAP_ATTR_AXIS, .value = {.i = 1}},
            [ONCE] = {"once", "scale in doubles and round once, with halves away from 0",
                      NEAP_ATTR_BOOL},
            [WIDE] = {"wide", "sums within 48 bits, by 15 bits of the scale, unless once",
                      NEAP_ATTR_BOOL}},
  .infer = infer,
  .no_grad = true,
  .nan = NEAP_NAN_DECIDES,
  .special =
    "NaN counts as 0, infinities as the bounds of 32 bits, or of 48 where wide or once; a scale "
    "that is none counts as 0",
  .kernels = NEAP_REF_CHOOSE(choose, run, NEAP_WIDE | NEAP_BIT(I32)),
  .cases =
    "{ {x={{2,3,7}, dtype=\"i32\", low=-9000, high=9000}, scale={{3}, dtype=\"f64\", low=0.001, "
    "high=0.01}, to=\"u8\", zero=128, least=120, axis=2}, {x={{2,3,7}, low=-9000, high=9000}, "
    "scale={{}, dtype=\"f64\", low=0.001, high=0.01}, to=\"i8\", zero=3, once=true}, "
    "{x={{2,3}, low=-9e9, high=9e9}, scale={{}, dtype=\"f64\", low=1e-6, high=3e-6}, to=\"i16\", "
    "wide=true}, "
    "{x={0,4}, scale={{4}, dtype=\"f64\"}, to=\"i32\", axis=-1}, "
    "{x={{2,3,4,5}, low=-9000, high=9000}, scale={{3}, dtype=\"f64\", low=0.001, high=0.01}, "
    "b={{3}, dtype=\"f64\", low=-9000, high=9000}, to=\"i8\"} }",
};
