/* requantize.c: Requantize, the sums of a product of integers in the integers of another scale, as
 * TensorFlow Lite lays it down for integer nets: in fixed point, to the same bits everywhere.
 *
 * A scale is m 2^e with m a whole number of 31 bits. The sum times m loses 31 bits and, of a scale
 * below a half, -e more: it is rounded twice, first to the nearest with halves upwards, then to the
 * nearest with halves away from 0. Rounding once, with halves upwards, differs in a few of a
 * thousand results; some of TensorFlow Lite's kernels do one, some the other.
 */
#include "ops/op.h"

#include <math.h>

enum { TO, ZERO, LEAST, MOST, AXIS, ONCE };

/* A scale in fixed point: m / 2^31 * 2^left / 2^right. */
typedef struct fixed {
  int64_t m;
  int left, right;
} fixed;

static fixed fixed_of(double scale) {
  int e = 0;
  double q = frexp(scale, &e);
  int64_t m = llround(q * 2147483648.0);
  if (m == INT64_C(1) << 31) m /= 2, e++;
  /* What is too small for the format is 0; what is too large is not infer's to refuse, since it is
   * data: it saturates. NaN and negative numbers are no scales: 0. */
  if (!(scale > 0) || e < -31) return (fixed){0, 0, 0};
  if (e > 30) return (fixed){INT32_MAX, 30, 0};
  return (fixed){m, NEAP_MAX(e, 0), NEAP_MAX(-e, 0)};
}

static int64_t within(int64_t x, int64_t least, int64_t most) {
  return NEAP_MIN(NEAP_MAX(x, least), most);
}

/* The product as the format makes it, of a whole number within 32 bits. */
static int64_t times_once(int64_t x, fixed f) {
  int shift = 31 - f.left + f.right;
  return (x * f.m + (INT64_C(1) << (shift - 1))) >> shift;
}

static int64_t times_twice(int64_t x, fixed f) {
  int64_t wide = within(x * (INT64_C(1) << f.left), INT32_MIN, INT32_MAX);
  /* Half a unit more, and the lower bits go: a shift rounds down. */
  int64_t y = (wide * f.m + (INT64_C(1) << 30)) >> 31;
  int64_t mask = (INT64_C(1) << f.right) - 1, rest = y & mask;
  return (y >> f.right) + (rest > (mask >> 1) + (y < 0) ? 1 : 0);
}

static int64_t element_at(const neap_operand *x, int64_t i) {
  if (x->type.dtype == NEAP_DTYPE_I32) return ((const int32_t *)x->data)[i];
  double value = x->type.dtype == NEAP_DTYPE_F32 ? (double)((const float *)x->data)[i]
                                                 : ((const double *)x->data)[i];
  /* The negation takes NaN for 0, as Cast does. */
  if (!(value > (double)INT32_MIN)) return value != value ? 0 : INT32_MIN;
  return value < (double)INT32_MAX ? llrint(value) : INT32_MAX;
}

typedef struct job {
  const neap_call *call;
  int64_t n_channel, inner, zero, least, most;
  bool once;
} job;

/* Rows [begin, end): what shares a scale and lies together. */
static void run_rows(void *context, int64_t begin, int64_t end) {
  const job *k = context;
  const neap_operand *x = &k->call->in[0], *y = &k->call->out[0];
  const double *scale = k->call->in[1].data;
  for (int64_t row = begin; row < end; row++) {
    fixed f = fixed_of(scale[row % k->n_channel]);
    for (int64_t i = row * k->inner; i < (row + 1) * k->inner; i++) {
      int64_t sum = element_at(x, i), product = k->once ? times_once(sum, f) : times_twice(sum, f);
      int64_t value = within(k->zero + product, k->least, k->most);
      neap_element_set_i64(y->type.dtype, y->data, i, value);
    }
  }
}

static void run(const neap_call *call) {
  const neap_shape *x = &call->in[0].type.shape;
  const neap_attr_value *attrs = call->attrs;
  int64_t n = neap_shape_elems(x), n_channel = neap_shape_elems(&call->in[1].type.shape);
  if (n == 0) return;
  int axis = call->in[1].type.shape.n_dim == 0 ? -1 : neap_axis(attrs[AXIS].i, x->n_dim);
  /* One scale for all: rows are of any length. */
  int64_t inner = axis >= 0 ? neap_shape_span(x, axis + 1, x->n_dim) : 1;
  job k = {call,          n_channel,         inner, attrs[ZERO].i, attrs[LEAST].i,
           attrs[MOST].i, attrs[ONCE].i != 0};
  neap_parallel_for(n / inner, NEAP_MAX(NEAP_GRAIN / inner, 1), call->n_thread, run_rows, &k);
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
  NEAP_TRY(neap_infer_rank(c, 1, 0, 1, error));
  if (scale->n_dim == 1) {
    NEAP_TRY(neap_infer_axis(c, AXIS, x->n_dim, &axis, error));
    if (x->dim[axis] != scale->dim[0])
      return neap_infer_fail(
        c, NEAP_SHAPE, 1, error, "scale %s expects a number for each of %lld channels of x %s",
        neap_shape_text(scale, a), (long long)x->dim[axis], neap_shape_text(x, b));
  }
  c->out[0] = (neap_type){to, *x};
  return NEAP_OK;
}

const neap_op neap_op_Requantize = {
  .name = "Requantize",
  .summary =
    "Sums of products of integers in integers of another scale, in fixed point as "
    "TensorFlow Lite's nets have it.",
  .math =
    "y = min(max(zero + round(x scale), least), most), scale to 31 bits, rounded twice or once",
  .example = "net:Requantize({\"sum\", \"scale\"}, \"y\", {to = \"i8\", zero = -3})",
  .source = "TensorFlow Lite 8-bit quantization specification; gemmlowp, fixedpoint.h",
  .inputs = {{"x", "any shape; whole numbers within 32 bits", NEAP_BIT(I32) | NEAP_WIDE},
             {"scale", "of x over that of y: one, or one for each position along axis",
              NEAP_BIT(F64)}},
  .outputs = {{"y", "shape of x", NEAP_INTEGERS}},
  .attrs = {[TO] = {"to", "dtype of y, an integer", NEAP_ATTR_DTYPE, .required = true},
            [ZERO] = {"zero", "the number of y that stands for 0", NEAP_ATTR_INT},
            [LEAST] = {"least", "the least that y has", NEAP_ATTR_INT, .value = {.i = INT32_MIN}},
            [MOST] = {"most", "the most that y has", NEAP_ATTR_INT, .value = {.i = INT32_MAX}},
            [AXIS] = {"axis", "the dimension of the channels", NEAP_ATTR_AXIS, .value = {.i = 1}},
            [ONCE] = {"once", "round once, with halves upwards", NEAP_ATTR_BOOL}},
  .infer = infer,
  .no_grad = true,
  .nan = NEAP_NAN_DECIDES,
  .special =
    "NaN counts as 0, infinities as the bounds of 32 bits; a scale that is none counts as "
    "0",
  .kernels = NEAP_REF(run, NEAP_WIDE | NEAP_BIT(I32)),
  .cases =
    "{ {x={{2,3,7}, dtype=\"i32\", low=-9000, high=9000}, scale={{3}, dtype=\"f64\", low=0.001, "
    "high=0.01}, to=\"u8\", zero=128, least=120, axis=2}, {x={{2,3,7}, low=-9000, high=9000}, "
    "scale={{}, dtype=\"f64\", low=0.001, high=0.01}, to=\"i8\", zero=3, once=true}, "
    "{x={0,4}, scale={{4}, dtype=\"f64\"}, to=\"i32\", axis=-1} }",
};
