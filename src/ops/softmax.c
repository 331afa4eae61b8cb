/* softmax.c: Softmax and LogSoftmax and their backward ops.
 *
 * x is seen as (outer, C, inner) around the axis. Both backward ops read the output, so x may die
 * or be overwritten. The usual case, inner = 1, works on dense rows; else a block of columns is
 * carried along C, so that loads stay dense.
 *
 * INVARIANT: where one class has nearly all the probability, its logarithm and the gradients keep
 * their relative accuracy. They are what the other classes leave of 1 and of that class's dy; so
 * they are summed from the others, never had by subtraction from a rounded 1. At most one class is
 * above one half: it is told by that.
 */
#include "math/row.h"
#include "math/vec.h"
#include "ops/op.h"

enum { AXIS };
/* columns carried along at once; their running values fit registers and first-level cache */
enum { BLOCK = 64 };
#define LOG_HALF (-0.6931471805599453)

/* One call's work, cut into (outer index, block of columns) pairs: pair i is block i % n_block of
 * outer index i / n_block. */
typedef struct job {
  const void *a, *b;
  void *out;
  int64_t n_class, inner, n_block;
  bool log;
} job;

/* Forward over a block of `columns` (at most BLOCK) columns: x, y (C, inner), from the block's
 * first column.
 *
 * The largest element is taken off before exp, so that no term exceeds 1 and the sum is at least 1:
 * nothing overflows, and the logarithm is of no tiny number. Over the block, three passes along C:
 * maxima, sums, results; exp is computed twice, once for the sum and once for the result. A dense
 * row keeps the exponentials in y at once and scales them afterwards. Either loop reads an element
 * of x before it writes that of y, so y may be x.
 *
 * `forward` and `backward` take pairs [begin, end) of a job. */
#define SOFTMAX(type, suffix, EXP)                                                                 \
  NEAP_MULTIVERSION static void columns_##suffix(const type *x, type *y, int64_t n_class,          \
                                                 int64_t inner, int64_t columns, bool log_) {      \
    type most[BLOCK], sum[BLOCK];                                                                  \
    double total[BLOCK] = {0};                                                                     \
    for (int64_t j = 0; j < columns; j++) most[j] = (type)-INFINITY;                               \
    for (int64_t c = 0; c < n_class; c++)                                                          \
      for (int64_t j = 0; j < columns; j++)                                                        \
        most[j] = x[c * inner + j] > most[j] ? x[c * inner + j] : most[j];                         \
    if (log_) {                                                                                    \
      type ties[BLOCK] = {0};                                                                      \
      NEAP_EACH_PART(n_class, NEAP_RUN, from, to) {                                                \
        for (int64_t j = 0; j < columns; j++) sum[j] = 0;                                          \
        for (int64_t c = from; c < to; c++)                                                        \
          for (int64_t j = 0; j < columns; j++) {                                                  \
            type tie = x[c * inner + j] == most[j] ? 1 : 0;                                        \
            sum[j] += EXP(x[c * inner + j] - most[j]) - tie;                                       \
            ties[j] += tie;                                                                        \
          }                                                                                        \
        for (int64_t j = 0; j < columns; j++) total[j] += (double)sum[j];                          \
      }                                                                                            \
      for (int64_t j = 0; j < columns; j++)                                                        \
        sum[j] = (type)log1p(total[j] + (double)(ties[j] - 1));                                    \
      for (int64_t c = 0; c < n_class; c++)                                                        \
        for (int64_t j = 0; j < columns; j++)                                                      \
          y[c * inner + j] = x[c * inner + j] - most[j] - sum[j];                                  \
    } else {                                                                                       \
      NEAP_EACH_PART(n_class, NEAP_RUN, from, to) {                                                \
        for (int64_t j = 0; j < columns; j++) sum[j] = 0;                                          \
        for (int64_t c = from; c < to; c++)                                                        \
          for (int64_t j = 0; j < columns; j++) sum[j] += EXP(x[c * inner + j] - most[j]);         \
        for (int64_t j = 0; j < columns; j++) total[j] += (double)sum[j];                          \
      }                                                                                            \
      for (int64_t j = 0; j < columns; j++) sum[j] = (type)(1 / total[j]);                         \
      for (int64_t c = 0; c < n_class; c++)                                                        \
        for (int64_t j = 0; j < columns; j++)                                                      \
          y[c * inner + j] = EXP(x[c * inner + j] - most[j]) * sum[j];                             \
    }                                                                                              \
  }                                                                                                \
  static void row_##suffix(const type *x, type *y, int64_t n, bool log_) {                         \
    type most = neap_row_max_##suffix(x, n);                                                       \
    if (log_) {                                                                                    \
      type shift = (type)log1p((double)neap_row_exp_rest_##suffix(x, most, n));                    \
      for (int64_t i = 0; i < n; i++) y[i] = x[i] - most - shift;                                  \
    } else {                                                                                       \
      neap_row_scale_##suffix(y, 1 / neap_row_exp_##suffix(x, 1, most, y, n), n);                  \
    }                                                                                              \
  }                                                                                                \
  static void forward_##suffix(void *context, int64_t begin, int64_t end) {                        \
    const job *k = context;                                                                        \
    for (int64_t i = begin; i < end; i++) {                                                        \
      int64_t first = i % k->n_block * BLOCK, at = i / k->n_block * k->n_class * k->inner + first; \
      const type *x = (const type *)k->a + at;                                                     \
      type *y = (type *)k->out + at;                                                               \
      if (k->inner == 1)                                                                           \
        row_##suffix(x, y, k->n_class, k->log);                                                    \
      else                                                                                         \
        columns_##suffix(x, y, k->n_class, k->inner, NEAP_MIN(k->inner - first, BLOCK), k->log);   \
    }                                                                                              \
  }                                                                                                \
  /* Softmax: dx = y (dy - sum y dy), the same with any number taken off all dy: with dy \
   * of the class above one half, or 0. */         \
  NEAP_MULTIVERSION static void back_columns_##suffix(                                             \
    const type *y, const type *dy, type *dx, int64_t n_class, int64_t inner, int64_t columns) {    \
    type sum[BLOCK], off[BLOCK] = {0};                                                             \
    double total[BLOCK] = {0};                                                                     \
    for (int64_t c = 0; c < n_class; c++)                                                          \
      for (int64_t j = 0; j < columns; j++)                                                        \
        off[j] += y[c * inner + j] > (type)0.5 ? dy[c * inner + j] : 0;                            \
    NEAP_EACH_PART(n_class, NEAP_RUN, from, to) {                                                  \
      for (int64_t j = 0; j < columns; j++) sum[j] = 0;                                            \
      for (int64_t c = from; c < to; c++)                                                          \
        for (int64_t j = 0; j < columns; j++)                                                      \
          sum[j] += y[c * inner + j] * (dy[c * inner + j] - off[j]);                               \
      for (int64_t j = 0; j < columns; j++) total[j] += (double)sum[j];                            \
    }                                                                                              \
    for (int64_t j = 0; j < columns; j++) sum[j] = (type)total[j];                                 \
    for (int64_t c = 0; c < n_class; c++)                                                          \
      for (int64_t j = 0; j < columns; j++)                                                        \
        dx[c * inner + j] = y[c * inner + j] * (dy[c * inner + j] - off[j] - sum[j]);              \
  }                                                                                                \
  NEAP_MULTIVERSION static void back_row_##suffix(const type *y, const type *dy, type *dx,         \
                                                  int64_t n) {                                     \
    type sum, off = 0;                                                                             \
    double total = 0;                                                                              \
    _Pragma("omp simd reduction(+ : off)") for (int64_t i = 0; i < n; i++) off +=                  \
      y[i] > (type)0.5 ? dy[i] : 0;                                                                \
    NEAP_EACH_PART(n, NEAP_PIECE, from, to) {                                                      \
      sum = 0;                                                                                     \
      _Pragma("omp simd reduction(+ : sum)") for (int64_t i = from; i < to; i++) sum +=            \
        y[i] * (dy[i] - off);                                                                      \
      total += (double)sum;                                                                        \
    }                                                                                              \
    sum = (type)total;                                                                             \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) dx[i] = y[i] * (dy[i] - off - sum);        \
  }                                                                                                \
  /* Log: dx = dy - exp(y) sum dy; of the class above one half, which holds `own` of that \
   * sum: -dy (exp(y) - 1) - exp(y) rest. */        \
  NEAP_MULTIVERSION static void log_back_columns_##suffix(                                         \
    const type *y, const type *dy, type *dx, int64_t n_class, int64_t inner, int64_t columns) {    \
    type rest[BLOCK], own[BLOCK] = {0}, log_top[BLOCK] = {0}, less[BLOCK];                         \
    double total[BLOCK] = {0};                                                                     \
    NEAP_EACH_PART(n_class, NEAP_RUN, from, to) {                                                  \
      for (int64_t j = 0; j < columns; j++) rest[j] = 0;                                           \
      for (int64_t c = from; c < to; c++)                                                          \
        for (int64_t j = 0; j < columns; j++) {                                                    \
          type p = y[c * inner + j], g = dy[c * inner + j];                                        \
          bool is_top = p > LOG_HALF;                                                              \
          rest[j] += is_top ? 0 : g;                                                               \
          own[j] += is_top ? g : 0;                                                                \
          log_top[j] += is_top ? p : 0;                                                            \
        }                                                                                          \
      for (int64_t j = 0; j < columns; j++) total[j] += (double)rest[j];                           \
    }                                                                                              \
    for (int64_t j = 0; j < columns; j++) rest[j] = (type)total[j];                                \
    for (int64_t j = 0; j < columns; j++) less[j] = (type)expm1((double)log_top[j]);               \
    for (int64_t c = 0; c < n_class; c++)                                                          \
      for (int64_t j = 0; j < columns; j++) {                                                      \
        type p = y[c * inner + j], g = dy[c * inner + j], e = EXP(p);                              \
        type top = -g * less[j] - e * rest[j], other = g - e * (rest[j] + own[j]);                 \
        dx[c * inner + j] = p > LOG_HALF ? top : other;                                            \
      }                                                                                            \
  }                                                                                                \
  NEAP_MULTIVERSION static void log_back_row_##suffix(const type *y, const type *dy, type *dx,     \
                                                      int64_t n) {                                 \
    type rest, own = 0, log_top = 0;                                                               \
    double total = 0;                                                                              \
    NEAP_EACH_PART(n, NEAP_PIECE, from, to) {                                                      \
      rest = 0;                                                                                    \
      _Pragma("omp simd reduction(+ : rest, own, log_top)") for (int64_t i = from; i < to; i++) {  \
        bool is_top = y[i] > LOG_HALF;                                                             \
        rest += is_top ? 0 : dy[i];                                                                \
        own += is_top ? dy[i] : 0;                                                                 \
        log_top += is_top ? y[i] : 0;                                                              \
      }                                                                                            \
      total += (double)rest;                                                                       \
    }                                                                                              \
    rest = (type)total;                                                                            \
    type less = (type)expm1((double)log_top), sum = rest + own;                                    \
    _Pragma("omp simd") for (int64_t i = 0; i < n; i++) {                                          \
      type e = EXP(y[i]), top = -dy[i] * less - e * rest, other = dy[i] - e * sum;                 \
      dx[i] = y[i] > LOG_HALF ? top : other;                                                       \
    }                                                                                              \
  }                                                                                                \
  static void backward_##suffix(void *context, int64_t begin, int64_t end) {                       \
    const job *k = context;                                                                        \
    for (int64_t i = begin; i < end; i++) {                                                        \
      int64_t first = i % k->n_block * BLOCK, at = i / k->n_block * k->n_class * k->inner + first; \
      const type *y = (const type *)k->a + at, *dy = (const type *)k->b + at;                      \
      type *dx = (type *)k->out + at;                                                              \
      int64_t columns = NEAP_MIN(k->inner - first, BLOCK);                                         \
      if (k->inner == 1)                                                                           \
        (k->log ? log_back_row_##suffix : back_row_##suffix)(y, dy, dx, k->n_class);               \
      else                                                                                         \
        (k->log ? log_back_columns_##suffix : back_columns_##suffix)(y, dy, dx, k->n_class,        \
                                                                     k->inner, columns);           \
    }                                                                                              \
  }
SOFTMAX(float, f32, neap_exp_f32)
SOFTMAX(double, f64, exp)

/* Forward and backward of all four ops. a: x or y; b: dy or NULL; both of the output's shape. A
 * scalar is one row of one class. The grain is an eighth of the usual one, since exp makes an
 * element dear. */
static void run(const neap_call *call, const void *a, const void *b, bool backward, bool log_) {
  const neap_shape *y = &call->out[0].type.shape;
  if (neap_shape_elems(y) == 0) return;
  int axis = y->n_dim == 0 ? 0 : neap_axis(call->attrs[AXIS].i, y->n_dim);
  int64_t n_class = y->n_dim == 0 ? 1 : y->dim[axis],
          inner = y->n_dim == 0 ? 1 : neap_shape_span(y, axis + 1, y->n_dim);
  int64_t outer = neap_shape_elems(y) / (n_class * inner), n_block = (inner + BLOCK - 1) / BLOCK;
  job k = {a, b, call->out[0].data, n_class, inner, n_block, log_};
  bool wide = call->out[0].type.dtype == NEAP_DTYPE_F64;
  int64_t grain = NEAP_MAX(NEAP_GRAIN / 8 / (n_class * NEAP_MIN(inner, BLOCK)), 1);
  neap_parallel_for(
    outer * n_block, grain, call->n_thread,
    backward ? (wide ? backward_f64 : backward_f32) : (wide ? forward_f64 : forward_f32), &k);
}

static void run_softmax(const neap_call *call) { run(call, call->in[0].data, NULL, false, false); }
static void run_log_softmax(const neap_call *call) {
  run(call, call->in[0].data, NULL, false, true);
}
static void run_softmax_grad(const neap_call *call) {
  run(call, call->in[0].data, call->in[1].data, true, false);
}
static void run_log_softmax_grad(const neap_call *call) {
  run(call, call->in[0].data, call->in[1].data, true, true);
}

/* The shape of the first input; a scalar has no axis to check. */
static neap_status infer(neap_infer *c, neap_error *error) {
  int axis;
  NEAP_TRY(neap_infer_like(c, error));
  return c->in[0].shape.n_dim == 0 ? NEAP_OK
                                   : neap_infer_axis(c, AXIS, c->in[0].shape.n_dim, &axis, error);
}

/* Per element: the maximum, a subtraction, exp, the sum, the scaling. */
static void cost(const neap_infer *c, neap_cost *cost) {
  cost->flop = 5.0 * (double)neap_shape_elems(&c->out[0].shape);
}

/* The output is passed on, not x: exp need not be computed again, and x is free after the
 * forward. */
static neap_status grad_softmax(neap_grad *g, neap_error *error) {
  (void)error;
  g->din[0] =
    neap_grad_emit1(g, "SoftmaxGrad", 2, (neap_value_id[]){g->out[0], g->dout[0]}, g, NULL);
  return NEAP_OK;
}

static neap_status grad_log_softmax(neap_grad *g, neap_error *error) {
  (void)error;
  g->din[0] =
    neap_grad_emit1(g, "LogSoftmaxGrad", 2, (neap_value_id[]){g->out[0], g->dout[0]}, g, NULL);
  return NEAP_OK;
}

#define AXIS_ATTR                                                                                 \
  {                                                                                               \
    "axis", "dimension over which probabilities add up to 1", NEAP_ATTR_AXIS, .value = {.i = -1 } \
  }

const neap_op neap_op_Softmax = {
  .name = "Softmax",
  .summary = "Positive numbers that add up to 1 along one dimension.",
  .math = "y_c = exp(x_c) / sum_k exp(x_k)",
  .example = "net:Softmax(\"x\", \"y\")",
  .source = "ONNX Softmax-13",
  .inputs = {{"x", "any shape"}},
  .outputs = {{"y", "shape of x"}},
  .attrs = {[AXIS] = AXIS_ATTR},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .infer = infer,
  .cost = cost,
  .grad = grad_softmax,
  .sum = NEAP_SUM_RUNS,
  .special = "a largest element of +infinity, or of -infinity, makes all NaN",
  .kernels =
    (const neap_kernel[]){
      {.engine = NEAP_ENGINE_REF, .dtypes = NEAP_WIDE, .any_team = true, .run = run_softmax}, {0}},
  .cases =
    "{ {x={3,4,5}}, {x={3,4,5}, axis=1}, {x={2,3,67}, axis=2}, {x={0,4}}, {x={}}, {x={2,1000}} }",
};

const neap_op neap_op_LogSoftmax = {
  .name = "LogSoftmax",
  .summary = "Logarithm of Softmax, computed without overflow.",
  .math = "y_c = x_c - log sum_k exp(x_k)",
  .example = "net:LogSoftmax(\"x\", \"y\")",
  .source = "ONNX LogSoftmax-13",
  .inputs = {{"x", "any shape"}},
  .outputs = {{"y", "shape of x"}},
  .attrs = {[AXIS] = AXIS_ATTR},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .infer = infer,
  .cost = cost,
  .grad = grad_log_softmax,
  .sum = NEAP_SUM_RUNS,
  .special = "a largest element of +infinity, or of -infinity, makes all NaN",
  .kernels =
    (const neap_kernel[]){
      {.engine = NEAP_ENGINE_REF, .dtypes = NEAP_WIDE, .any_team = true, .run = run_log_softmax},
      {0}},
  .cases = "{ {x={3,4,5}}, {x={3,4,5}, axis=1}, {x={2,3,67}, axis=2}, {x={0,4}}, {x={}} }",
};

const neap_op neap_op_SoftmaxGrad = {
  .name = "SoftmaxGrad",
  .summary = "Backward of Softmax.",
  .math = "dx = y (dy - sum y dy)",
  .internal = true,
  .inputs = {{"y", "output of the forward"}, {"dy", "its gradient"}},
  .outputs = {{"dx", "shape of y"}},
  .attrs = {[AXIS] = AXIS_ATTR},
  .inplace = {{1, 0}, {0, 0}},
  .n_inplace = 2,
  .infer = infer,
  .cost = cost,
  .sum = NEAP_SUM_RUNS,
  .kernels =
    (const neap_kernel[]){
      {.engine = NEAP_ENGINE_REF, .dtypes = NEAP_WIDE, .any_team = true, .run = run_softmax_grad},
      {0}},
  .cases = "{ {y={3,4,5}, dy={3,4,5}}, {y={3,4,5}, dy={3,4,5}, axis=1} }",
};

const neap_op neap_op_LogSoftmaxGrad = {
  .name = "LogSoftmaxGrad",
  .summary = "Backward of LogSoftmax.",
  .math = "dx = dy - exp(y) sum dy",
  .internal = true,
  .inputs = {{"y", "output of the forward"}, {"dy", "its gradient"}},
  .outputs = {{"dx", "shape of y"}},
  .attrs = {[AXIS] = AXIS_ATTR},
  .inplace = {{1, 0}, {0, 0}},
  .n_inplace = 2,
  .infer = infer,
  .cost = cost,
  .nan = NEAP_NAN_DECIDES,
  .sum = NEAP_SUM_RUNS,
  .special = "a NaN in y counts as no largest class",
  .kernels = (const neap_kernel[]){{.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_WIDE,
                                    .any_team = true,
                                    .run = run_log_softmax_grad},
                                   {0}},
  .cases = "{ {y={3,4,5}, dy={3,4,5}}, {y={3,4,5}, dy={3,4,5}, axis=1} }",
};
