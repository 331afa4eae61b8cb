/* sum.c: Sum and Mean over dimensions, and their backward, which spreads the gradient over the
 * dimensions summed.
 *
 * Sums run in double (int64 for integers and bool, which give i64, as in PyTorch). Eight partial
 * sums make the loop over contiguous elements vector code; they are added in a fixed order.
 */
#include "ops/elementwise.h"
#include "ops/reduce.h"

enum { LANES = 8 };

/* The two loops of neap_reduction by type. Sums run in U and are kept in A: integers wrap around,
 * so they are added unsigned, where C defines that. */
#define A double
#define U double
#define MEMBER f
#define NEAP_BODY "ops/sum_body.h"
#include "math/each_float.h"
#undef A
#undef U
#undef MEMBER
#define A int64_t
#define U uint64_t
#define MEMBER i
#define NEAP_BODY "ops/sum_body.h"
#include "math/each_integer.h"
#undef A
#undef U
#undef MEMBER

#define SUM_OF(symbol, suffix, ...) \
  [NEAP_DTYPE_##symbol] = {.row = row_##suffix, .columns = columns_##suffix},
/* Bool is stored as bytes 0 and 1: it is counted as u8. */
static const neap_reduction sums[NEAP_N_DTYPE] = {SUM_OF(F32, f32) SUM_OF(F64, f64) SUM_OF(BOOL, u8)
                                                    NEAP_EACH_INTEGER(SUM_OF, )};

/* The general walk is that of reduce.h; here are only its two loops. Integers are summed as they
 * are, the divisor is for floats. */
static void run_sum(const neap_call *call) { neap_reduce_run(call, sums, 1); }

/* Elements that one result sums up. */
static int64_t count_of(const neap_call *call, const neap_shape *shape) {
  return neap_reduce_count(shape,
                           neap_reduce_axes_checked(&call->attrs[NEAP_REDUCE_AXES], shape->n_dim));
}

/* The mean of nothing is 0 / 0 = NaN. */
static void run_mean(const neap_call *call) {
  neap_reduce_run(call, sums, (double)count_of(call, &call->in[0].type.shape));
}

/* As other reductions, but integers and bool give i64, whose range a sum does not leave so soon. */
static neap_status infer_sum(neap_infer *c, neap_error *error) {
  NEAP_TRY(neap_reduce_infer(c, error));
  if (!neap_dtype_is_float(c->in[0].dtype)) c->out[0].dtype = NEAP_DTYPE_I64;
  return NEAP_OK;
}

/* One addition an element. */
static void cost(const neap_infer *c, neap_cost *cost) {
  cost->flops = (double)neap_shape_elems(&c->in[0].shape);
}

/* ---- backward: dx = dy, broadcast to x, for the mean divided by the count -------------------- */

/* Position of attribute `shape` in the backward ops, behind those that all reductions have. */
enum { SHAPE = NEAP_REDUCE_KEEPDIM + 1 };

/* A stretch along a dimension that was summed is one element repeated. */
NEAP_ROW_FLOATS(1, map1_spread, spread, x *p[0])
NEAP_ROW_TABLE(spread, NEAP_ROWS_FLOATS(spread))

/* dx = by dy. The one input is seen with its reduced dimensions as 1, so that it broadcasts. */
static void run_spread(const neap_call *call, double by) {
  const neap_shape *shape = &call->out[0].type.shape;
  const double param[NEAP_ROW_MAX_PARAM] = {by};
  neap_operand in = call->in[0];
  in.type.shape = neap_reduce_shape(
    shape, neap_reduce_axes_checked(&call->attrs[NEAP_REDUCE_AXES], shape->n_dim), true);
  neap_call seen = *call;
  seen.in = &in;
  neap_elementwise_run_param(&seen, 1, rows_spread, param);
}

static void run_sum_grad(const neap_call *call) { run_spread(call, 1); }

static void run_mean_grad(const neap_call *call) {
  run_spread(call, 1.0 / (double)count_of(call, &call->out[0].type.shape));
}

/* dx's shape is the attribute; dy must have the shape that the forward gives for it. */
static neap_status infer_grad(neap_infer *c, neap_error *error) {
  unsigned axes;
  NEAP_TRY(neap_infer_attr_type(c, SHAPE, &c->out[0], error));
  NEAP_TRY(neap_reduce_axes(c, c->out[0].shape.n_dim, &axes, error));
  neap_type y = {c->in[0].dtype,
                 neap_reduce_shape(&c->out[0].shape, axes, c->attrs[NEAP_REDUCE_KEEPDIM].i != 0)};
  return neap_infer_expect(c, 0, &y, error);
}

/* Emits `type` with the forward's attributes and x's shape: x itself is not read, so it need not
 * live until the backward. */
static neap_status grad_as(neap_grad *g, const char *type) {
  neap_type x = neap_grad_type(g, g->in[0]);
  g->din[0] = neap_grad_emit1(
    g, type, 1, g->dout, g, (neap_set[]){NEAP_SET_INTS("shape", x.shape.n_dim, x.shape.dim), {0}});
  return NEAP_OK;
}

static neap_status grad_sum(neap_grad *g, neap_error *error) {
  (void)error;
  return grad_as(g, "SumGrad");
}

static neap_status grad_mean(neap_grad *g, neap_error *error) {
  (void)error;
  return grad_as(g, "MeanGrad");
}

#define CASES                                                                              \
  "{ {x={4,5,6}, axes={1}}, {x={4,5,6}, axes={2}, keepdim=true}, {x={4,5,6}, axes={-1}}, " \
  "{x={4,5,6}, axes={1,3}, "                                                               \
  "keepdim=true}, {x={4,5,6}}, {x={2,3,4,5}, axes={2,4}}, {x={3,0}, axes={1}}, {x={}} }"
#define BACKWARD                                                                                  \
  .internal = true, .inputs = {{"dy", "gradient of the output"}}, .outputs = {{"dx", "`shape`"}}, \
  .attrs = {NEAP_REDUCE_ATTRS, [SHAPE] = {"shape", "of x", NEAP_ATTR_INTS, .required = true}},    \
  .infer = infer_grad,                                                                            \
  .cases =                                                                                        \
    "{ {dy={4,6}, axes={2}, shape={4,5,6}}, {dy={4,5}, axes={3}, shape={4,5,6}}, {dy={}, "        \
    "shape={4,5,6}} }"

const neap_op neap_op_Sum = {
  .name = "Sum",
  .summary = "Sum over dimensions; i64 for integers and bool.",
  .math = "y = sum of x over axes",
  .example = "net:Sum(\"x\", \"y\", {axes = {1, -1}, keepdim = true})",
  .source = "ONNX ReduceSum-13",
  .inputs = {{"x", "any shape", NEAP_NUMBERS | NEAP_BIT(BOOL)}},
  .outputs = {{"y", "shape of x without axes", NEAP_FLOATS | NEAP_BIT(I64)}},
  .attrs = {NEAP_REDUCE_ATTRS},
  .infer = infer_sum,
  .cost = cost,
  .grad = grad_sum,
  .sum = NEAP_SUM_DOUBLE,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_sum, NEAP_NUMBERS | NEAP_BIT(BOOL)),
  .cases = CASES,
  .long_cases = "{ {x={262144,4}, axes={1}} }",
};

const neap_op neap_op_SumGrad = {
  .name = "SumGrad",
  .summary = "Backward of Sum.",
  .math = "dx = dy, spread over axes",
  BACKWARD,
  .grad_formula = "d.dy = Sum(d.dx, ..)",
  .kernels = NEAP_REF(run_sum_grad, NEAP_FLOATS),
};

const neap_op neap_op_Mean = {
  .name = "Mean",
  .summary = "Arithmetic mean over dimensions; NaN where there is nothing to average.",
  .math = "y = sum of x over axes / count",
  .example = "net:Mean(\"x\", \"y\", {axes = {1}})",
  .source = "ONNX ReduceMean-13",
  .inputs = {{"x", "any shape"}},
  .outputs = {{"y", "shape of x without axes"}},
  .attrs = {NEAP_REDUCE_ATTRS},
  .infer = neap_reduce_infer,
  .cost = cost,
  .grad = grad_mean,
  .empty = NEAP_EMPTY_MEAN,
  .sum = NEAP_SUM_DOUBLE,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_mean, NEAP_FLOATS),
  .cases = CASES,
  .long_cases = "{ {x={4,262144}, axes={2}} }",
};

const neap_op neap_op_MeanGrad = {
  .name = "MeanGrad",
  .summary = "Backward of Mean.",
  .math = "dx = dy / count, spread over axes",
  BACKWARD,
  .grad_formula = "d.dy = Mean(d.dx, ..)",
  .kernels = NEAP_REF(run_mean_grad, NEAP_FLOATS),
};
