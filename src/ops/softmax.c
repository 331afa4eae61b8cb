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
#include "ops/by_cast.h"
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

#define NEAP_BODY "ops/softmax_body.h"
#include "math/each_float.h"

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
  cost->flops = 5.0 * (double)neap_shape_elems(&c->out[0].shape);
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
      {.engine = NEAP_ENGINE_REF, .dtypes = NEAP_WIDE, .any_team = true, .run = run_softmax},
      NEAP_BY_CAST(0, true),
      {0}},
  .cases =
    "{ {x={3,4,5}}, {x={3,4,5}, axis=1}, {x={2,3,67}, axis=2}, {x={0,4}}, {x={}}, {x={2,1000}} }",
  .long_cases = "{ {x={{1,262144}, low=0, high=1}}, {x={{262144,4}, low=0, high=1}, axis=1} }",
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
      NEAP_BY_CAST(0, true),
      {0}},
  .cases = "{ {x={3,4,5}}, {x={3,4,5}, axis=1}, {x={2,3,67}, axis=2}, {x={0,4}}, {x={}} }",
  .long_cases = "{ {x={{1,262144}, low=0, high=1}}, {x={{262144,4}, low=0, high=1}, axis=1} }",
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
  .infinity = NEAP_INFINITY_OVERFLOWS,
  .sum = NEAP_SUM_RUNS,
  .kernels =
    (const neap_kernel[]){
      {.engine = NEAP_ENGINE_REF, .dtypes = NEAP_WIDE, .any_team = true, .run = run_softmax_grad},
      NEAP_BY_CAST(0, true),
      {0}},
  .cases = "{ {y={3,4,5}, dy={3,4,5}}, {y={3,4,5}, dy={3,4,5}, axis=1} }",
  .long_cases =
    "{ {y={{1,262144}, low=0, high=1e-5}, dy={1,262144}}, {y={{262144,4}, low=0, high=1e-5}, "
    "dy={262144,4}, axis=1} }",
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
                                   NEAP_BY_CAST(0, true),
                                   {0}},
  .cases = "{ {y={3,4,5}, dy={3,4,5}}, {y={3,4,5}, dy={3,4,5}, axis=1} }",
  .long_cases =
    "{ {y={{1,262144}, low=-13, high=-12}, dy={1,262144}}, {y={{262144,4}, low=-13, high=-12}, "
    "dy={262144,4}, axis=1} }",
};
