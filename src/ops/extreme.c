/* extreme.c: Max, Min, ArgMax and ArgMin over dimensions. NaN wins everywhere, as in PyTorch. Ties:
 * Max and Min share the gradient evenly among them; ArgMax and ArgMin give the first.
 *
 * The extreme of nothing is an error of inference, as it has no value. */
#include "ops/elementwise.h"
#include "ops/reduce.h"

/* Accumulators compare in double or int64; both hold every value of the input exactly. A NaN is
 * taken, and nothing takes its place, since comparisons with it fail. Rows are compared in
 * their own type, in several lanes. */
enum { LANES = 16 };
#define EXTREME(loop) max_##loop
#define BEATS >
#define A double
#define MEMBER f
#define IS_NAN(x) ((x) != (x))
#define NEAP_BODY "ops/extreme_body.h"
#include "math/each_float.h"
#undef A
#undef MEMBER
#undef IS_NAN
#define A int64_t
#define MEMBER i
#define IS_NAN(x) false
#define NEAP_BODY "ops/extreme_body.h"
#include "math/each_integer.h"
#undef A
#undef MEMBER
#undef IS_NAN
#undef EXTREME
#undef BEATS
#define EXTREME(loop) min_##loop
#define BEATS <
#define A double
#define MEMBER f
#define IS_NAN(x) ((x) != (x))
#define NEAP_BODY "ops/extreme_body.h"
#include "math/each_float.h"
#undef A
#undef MEMBER
#undef IS_NAN
#define A int64_t
#define MEMBER i
#define IS_NAN(x) false
#define NEAP_BODY "ops/extreme_body.h"
#include "math/each_integer.h"
#undef A
#undef MEMBER
#undef IS_NAN
#undef EXTREME
#undef BEATS

#define REDUCTION(symbol, suffix, T, NAME, member, start) \
  [NEAP_DTYPE_##symbol] = {{.member = start}, NAME##_row_##suffix, NAME##_columns_##suffix},
#define EXTREMES(NAME, f_start, i_start)                                     \
  static const neap_reduction NAME##_reductions[NEAP_N_DTYPE] = {            \
    [NEAP_DTYPE_F32] = {{.f = f_start}, NAME##_row_f32, NAME##_columns_f32}, \
    [NEAP_DTYPE_F64] = {{.f = f_start}, NAME##_row_f64, NAME##_columns_f64}, \
    NEAP_EACH_INTEGER(REDUCTION, NAME, i, i_start)};                         \
  static void run_##NAME(const neap_call *call) { neap_reduce_run(call, NAME##_reductions, 1); }
EXTREMES(max, -INFINITY, INT64_MIN)
EXTREMES(min, INFINITY, INT64_MAX)

/* Nothing to reduce is an error only where there is an output that needs its value. */
static neap_status check_not_empty(const neap_infer *c, unsigned axes, neap_error *error) {
  neap_shape kept = neap_reduce_shape(&c->in[0].shape, axes, false);
  char text[NEAP_SHAPE_TEXT];
  if (neap_reduce_count(&c->in[0].shape, axes) == 0 && neap_shape_elems(&kept) > 0)
    return neap_infer_fail(
      c, NEAP_SHAPE, 0, error,
      "x %s has no elements along the dimensions reduced, and %s of nothing is undefined",
      neap_shape_text(&c->in[0].shape, text), c->op->name);
  return NEAP_OK;
}

static neap_status infer_extreme(neap_infer *c, neap_error *error) {
  unsigned axes;
  NEAP_TRY(neap_reduce_axes(c, c->in[0].shape.n_dim, &axes, error));
  /* Max of nothing has no value that a dtype holds. */
  NEAP_TRY(check_not_empty(c, axes, error));
  return neap_reduce_infer(c, error);
}

/* ---- backward of Max and Min ----------------------------------------------------------------- */

typedef struct spread_job {
  const neap_call *call;
  neap_reduce_walk walk;
} spread_job;

#define NEAP_BODY "ops/extreme_grad_body.h"
#include "math/each_element.h"

static void run_spread(const neap_call *call) {
  const neap_shape *shape = &call->in[0].type.shape;
  spread_job j = {call,
                  neap_reduce_walk_of(
                    shape, neap_reduce_axes_checked(&call->attrs[NEAP_REDUCE_AXES], shape->n_dim))};
  int64_t grain = NEAP_MAX(NEAP_GRAIN / NEAP_MAX(j.walk.count, 1), 1);
  static void (*const loops[NEAP_N_DTYPE])(void *, int64_t, int64_t) = {NEAP_ELEMENTS(spread)};
  neap_parallel_for(j.walk.n_out, grain, call->n_thread, loops[call->in[0].type.dtype], &j);
}

static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  g->din[0] = neap_grad_emit1(g, "ExtremeGrad", 3,
                              (neap_value_id[]){g->in[0], g->out[0], g->dout[0]}, g, NULL);
  return NEAP_OK;
}

/* ---- ArgMax, ArgMin -------------------------------------------------------------------------- */

enum { AXIS, KEEPDIM };

typedef struct arg_job {
  const neap_call *call;
  int64_t n, inner; /* x is (outer, n, inner) */
} arg_job;

#define ARG argmax
#define BEATS >
#include "ops/arg_loops.h"
#define ARG argmin
#define BEATS <
#include "ops/arg_loops.h"

typedef void (*arg_loop)(void *context, int64_t begin, int64_t end);
static const arg_loop argmax_loops[NEAP_N_DTYPE] = {NEAP_ELEMENTS(argmax),
                                                    NEAP_ROWS_INTEGERS(argmax)};
static const arg_loop argmin_loops[NEAP_N_DTYPE] = {NEAP_ELEMENTS(argmin),
                                                    NEAP_ROWS_INTEGERS(argmin)};

/* The dimension, or -1 for all of them flattened. */
static int axis_of(const neap_attr_value *attrs, int n_dim) {
  return attrs[AXIS].given ? neap_axis(attrs[AXIS].i, n_dim) : -1;
}

static void run_arg(const neap_call *call, const arg_loop loops[NEAP_N_DTYPE]) {
  const neap_shape *x = &call->in[0].type.shape;
  int axis = axis_of(call->attrs, x->n_dim);
  arg_job j = {call, axis < 0 ? neap_shape_elems(x) : x->dim[axis],
               axis < 0 ? 1 : neap_shape_span(x, axis + 1, x->n_dim)};
  neap_parallel_for(neap_shape_elems(&call->out[0].type.shape),
                    NEAP_MAX(NEAP_GRAIN / NEAP_MAX(j.n, 1), 1), call->n_thread,
                    loops[call->in[0].type.dtype], &j);
}

static void run_argmax(const neap_call *call) { run_arg(call, argmax_loops); }
static void run_argmin(const neap_call *call) { run_arg(call, argmin_loops); }

static neap_status infer_arg(neap_infer *c, neap_error *error) {
  int n_dim = c->in[0].shape.n_dim, axis = 0;
  if (c->attrs[AXIS].given) NEAP_TRY(neap_infer_axis(c, AXIS, n_dim, &axis, error));
  unsigned axes = c->attrs[AXIS].given ? 1u << axis : (1u << n_dim) - 1;
  NEAP_TRY(check_not_empty(c, axes, error));
  c->out[0] =
    (neap_type){NEAP_DTYPE_I64, neap_reduce_shape(&c->in[0].shape, axes, c->attrs[KEEPDIM].i != 0)};
  return NEAP_OK;
}

static void cost(const neap_infer *c, neap_cost *cost) {
  cost->flops = (double)neap_shape_elems(&c->in[0].shape);
}

#define EXTREME_OP                                                                             \
  .inputs = {{"x", "any shape", NEAP_NUMBERS}},                                                \
  .outputs = {{"y", "shape of x without axes", NEAP_NUMBERS}}, .attrs = {NEAP_REDUCE_ATTRS},   \
  .infer = infer_extreme, .cost = cost, .grad = grad,                                          \
  .cases =                                                                                     \
    "{ {x={4,5,6}, axes={1}}, {x={4,5,6}, axes={2}, keepdim=true}, {x={4,5,6}, axes={-1}}, "   \
    "{x={4,5,6}, "                                                                             \
    "axes={1,3}, keepdim=true}, {x={4,5,6}}, {x={2,3,4,5}, axes={2,4}}, {x={0,3}, axes={2}}, " \
    "{x={}} }"
#define ARG_OP                                                                                  \
  .inputs = {{"x", "any shape", NEAP_NUMBERS}},                                                 \
  .outputs = {{"y", "shape of x without axis, i64, from 0", NEAP_BIT(I64)}},                    \
  .attrs = {[AXIS] = {"axis", "dimension searched; not given: all, flattened", NEAP_ATTR_AXIS,  \
                      .unlike_default = true},                                                  \
            [KEEPDIM] = {"keepdim", "leave the dimension in the shape, as 1", NEAP_ATTR_BOOL}}, \
  .infer = infer_arg, .cost = cost, .no_grad = true,                                            \
  .cases =                                                                                      \
    "{ {x={3,4,5}, axis=1}, {x={3,4,5}, axis=2, keepdim=true}, {x={3,4,5}, axis=-1}, "          \
    "{x={3,4,5}}, {x={0,3}, axis=2} }"

const neap_op neap_op_Max = {
  .name = "Max",
  .summary = "Largest element over dimensions; ties share the gradient evenly.",
  .math = "y = max of x over axes",
  .example = "net:Max(\"x\", \"y\", {axes = {-1}})",
  .source = "ONNX ReduceMax-18",
  EXTREME_OP,
  .empty = NEAP_EMPTY_REFUSED,
  .special = "a NaN wins",
  .kernels = NEAP_REF(run_max, NEAP_NUMBERS),
};

const neap_op neap_op_Min = {
  .name = "Min",
  .summary = "Smallest element over dimensions; ties share the gradient evenly.",
  .math = "y = min of x over axes",
  .example = "net:Min(\"x\", \"y\", {axes = {-1}})",
  .source = "ONNX ReduceMin-18",
  EXTREME_OP,
  .empty = NEAP_EMPTY_REFUSED,
  .special = "a NaN wins",
  .kernels = NEAP_REF(run_min, NEAP_NUMBERS),
};

const neap_op neap_op_ExtremeGrad = {
  .name = "ExtremeGrad",
  .summary = "Backward of Max and Min.",
  .math = "dx = x = y ? dy / number of ties : 0",
  .internal = true,
  .inputs = {{"x", "input of the forward"}, {"y", "its output"}, {"dy", "gradient of y"}},
  .outputs = {{"dx", "shape of x"}},
  .attrs = {NEAP_REDUCE_ATTRS},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .infer = neap_reduce_infer_grad,
  .grad_formula = "d.dy = Sum(d.dx * ExtremeGrad(x, y, ones(dy), ..), ..)",
  .kernels = NEAP_REF(run_spread, NEAP_FLOATS),
  .cases = "{ {x={4,5,6}, y={4,6}, dy={4,6}, axes={2}} }",
};

const neap_op neap_op_ArgMax = {
  .name = "ArgMax",
  .summary =
    "Position of the largest element along a dimension, the first of equals, counted from 0.",
  .math = "y = argmax of x over axis",
  .example = "net:ArgMax(\"x\", \"y\", {axis = -1})",
  .source = "ONNX ArgMax-13",
  ARG_OP,
  .nan = NEAP_NAN_DECIDES,
  .empty = NEAP_EMPTY_REFUSED,
  .special = "a NaN is the largest, the first one counts",
  .kernels = NEAP_REF(run_argmax, NEAP_NUMBERS),
};

const neap_op neap_op_ArgMin = {
  .name = "ArgMin",
  .summary =
    "Position of the smallest element along a dimension, the first of equals, counted from 0.",
  .math = "y = argmin of x over axis",
  .example = "net:ArgMin(\"x\", \"y\", {axis = -1})",
  .source = "ONNX ArgMin-13",
  ARG_OP,
  .nan = NEAP_NAN_DECIDES,
  .empty = NEAP_EMPTY_REFUSED,
  .special = "a NaN is the smallest, the first one counts",
  .kernels = NEAP_REF(run_argmin, NEAP_NUMBERS),
};
