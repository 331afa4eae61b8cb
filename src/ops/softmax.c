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
#include "ops/rows.h"

enum { AXIS };
/* columns carried along at once; their running values fit registers and first-level cache */
enum { BLOCK = 64 };
#define LOG_HALF (-0.6931471805599453)

/* One call's work, cut into (outer index, block of columns) pairs: pair i is block i % n_block of
 * outer index i / n_block. */
typedef struct job {
  const neap_operand *a, *b, *out;
  int64_t n_class, inner, n_block;
  bool log;
} job;

/* Elements of a pair's block. */
static int64_t block_elems(const job *k) {
  return neap_count_mul(k->n_class, NEAP_MIN(k->inner, BLOCK));
}

#define NEAP_BODY "ops/softmax_body.h"
#include "math/each_float.h"

/* The sizes of a job from the shape of its operands. A scalar is one row of one class. */
static job job_of(const neap_shape *y, const neap_attr_value *attrs) {
  int axis = y->n_dim == 0 ? 0 : neap_axis(attrs[AXIS].i, y->n_dim);
  job k = {.n_class = 1, .inner = 1};
  if (y->n_dim > 0) k.n_class = y->dim[axis], k.inner = neap_shape_span(y, axis + 1, y->n_dim);
  k.n_block = (k.inner + BLOCK - 1) / BLOCK;
  return k;
}

/* Pairs of a job. */
static int64_t n_pair(const neap_shape *y, const job *k) {
  int64_t of_one = NEAP_MAX(k->n_class * k->inner, 1);
  return neap_shape_elems(y) / of_one * k->n_block;
}

/* Of bf16 and f16 a block of each input, which dx takes the place of. */
static bool choose(neap_choose *c) {
  const neap_shape *y = &c->out[0].shape;
  job k = job_of(y, c->attrs);
  c->choice->scratch_bytes = neap_rows_bytes(
    c->out[0].dtype, NEAP_MIN(c->choice->n_thread, n_pair(y, &k)), c->n_in, block_elems(&k));
  return true;
}

/* Forward and backward of all four ops. Inputs: x, or y and dy; all of the output's shape. The
 * grain is an eighth of the usual one, since exp makes an element dear. */
static void run(const neap_call *call, bool log_) {
  const neap_type *type = &call->out[0].type;
  if (neap_shape_elems(&type->shape) == 0) return;
  job k = job_of(&type->shape, call->attrs);
  k.a = &call->in[0], k.b = call->n_in > 1 ? &call->in[1] : NULL, k.out = &call->out[0];
  k.log = log_;
  int64_t grain = NEAP_MAX(NEAP_GRAIN / 8 / block_elems(&k), 1);
  /* Two inputs are y and dy: then it is the backward. */
  bool wide = type->dtype == NEAP_DTYPE_F64;
  neap_rows_body body = wide ? forward_f64 : forward_f32;
  if (k.b != NULL) body = wide ? backward_f64 : backward_f32;
  neap_rows_run(call, type->dtype, call->scratch, call->n_in, block_elems(&k),
                n_pair(&type->shape, &k), grain, body, &k);
}

static void run_softmax(const neap_call *call) { run(call, false); }
static void run_log_softmax(const neap_call *call) { run(call, true); }

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
  .kernels = NEAP_REF_CHOOSE(choose, run_softmax, NEAP_FLOATS),
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
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_CHOOSE(choose, run_log_softmax, NEAP_FLOATS),
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
  .formula = "dx = y * (dy - Sum(y * dy, axes = axis, keepdim = 1))",
  .kernels = NEAP_REF_CHOOSE(choose, run_softmax, NEAP_FLOATS),
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
  .formula = "dx = dy - Exp(y) * Sum(dy, axes = axis, keepdim = 1)",
  .kernels = NEAP_REF_CHOOSE(choose, run_log_softmax, NEAP_FLOATS),
  .cases = "{ {y={3,4,5}, dy={3,4,5}}, {y={3,4,5}, dy={3,4,5}, axis=1} }",
  .long_cases =
    "{ {y={{1,262144}, low=-13, high=-12}, dy={1,262144}}, {y={{262144,4}, low=-13, high=-12}, "
    "dy={262144,4}, axis=1} }",
};
