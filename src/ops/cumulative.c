/* cumulative.c: ops whose element i is made of elements 1 to i along a dimension, or of those from
 * i to the end: CumSum, CumProd, CumMax, CumMin, LogCumSumExp, and LinearRecurrence, which the
 * gradients of others are made of.
 *
 * A walk takes up to COLUMNS neighbours in step, so that rows of memory are read as they lie and
 * one chain of sums hides behind another. Floats are computed in double.
 * INVARIANT: each column is one thread's, from its first element to its last: bits do not depend on
 * threads. Element i of the inputs is read before element i of the outputs is written, and not
 * after.
 */
#include "math/vec.h"
#include "ops/elementwise.h"
#include "ops/places.h"

enum { COLUMNS = 64 };
enum { AXIS, EXCLUSIVE, REVERSE }; /* of CumSum and CumProd */
enum { BY = EXCLUSIVE };           /* of LinearRecurrence */
/* ORDER BY: as the choices of `by`. */
enum { BY_ENTERING, BY_LEAVING, BY_BEFORE };

typedef struct scan scan;
/* The columns that begin at elements [at, at + n_column), from there on. */
typedef void (*scan_loop)(const scan *s, int64_t at, int64_t n_column);

struct scan {
  const neap_call *call;
  scan_loop loop;
  int64_t n, inner; /* the operands are (outer, n, inner) */
  int64_t step;     /* elements from one position to the next */
  bool reverse, exclusive;
  int by;
};

#define CUMULATIVE cum_sum
#define OPERATION +
#define NEUTRAL 0
#include "ops/cumulative_loops.h"
#define CUMULATIVE cum_prod
#define OPERATION *
#define NEUTRAL 1
#include "ops/cumulative_loops.h"
#define EXTREME cum_max
#define BEATS >=
#include "ops/cumulative_extreme_loops.h"
#define EXTREME cum_min
#define BEATS <=
#include "ops/cumulative_extreme_loops.h"
#define NEAP_BODY "ops/cumulative_float_body.h"
#include "math/each_element.h"

/* Columns [begin, end), counted through all (outer, inner): as many at once as lie side by side. */
static void walk(void *context, int64_t begin, int64_t end) {
  const scan *s = context;
  for (int64_t column = begin, n; column < end; column += n) {
    int64_t outer = column / s->inner, within = column % s->inner;
    n = NEAP_MIN(NEAP_MIN(s->inner - within, end - column), COLUMNS);
    int64_t at = outer * s->n * s->inner + within;
    s->loop(s, s->reverse ? at + (s->n - 1) * s->inner : at, n);
  }
}

static void run(const neap_call *call, const scan_loop loops[NEAP_N_DTYPE], scan s) {
  const neap_shape *x = &call->in[0].type.shape;
  /* A scalar is a row of one. */
  int axis = neap_axis(call->attrs[AXIS].i, NEAP_MAX(x->n_dim, 1));
  s.call = call;
  s.loop = loops[call->in[0].type.dtype];
  s.n = x->n_dim == 0 ? 1 : x->dim[axis];
  s.inner = x->n_dim == 0 ? 1 : neap_shape_span(x, axis + 1, x->n_dim);
  s.step = s.reverse ? -s.inner : s.inner;
  int64_t elems = neap_shape_elems(x);
  if (elems == 0) return;
  neap_parallel_for(elems / s.n, NEAP_MAX(NEAP_GRAIN / s.n, 1), call->n_thread, walk, &s);
}

/* ---- ops ------------------------------------------------------------------------------------- */

#define SCAN_LOOPS(NAME)                                                    \
  static const scan_loop NAME##_loops[NEAP_N_DTYPE] = {NEAP_ELEMENTS(NAME), \
                                                       NEAP_ROWS_INTEGERS(NAME)};
#define SCAN_FLOAT_LOOPS(NAME) \
  static const scan_loop NAME##_loops[NEAP_N_DTYPE] = {NEAP_ELEMENTS(NAME)};
SCAN_LOOPS(cum_sum)
SCAN_LOOPS(cum_prod)
SCAN_LOOPS(cum_max)
SCAN_LOOPS(cum_min)
SCAN_FLOAT_LOOPS(log_sum)
SCAN_FLOAT_LOOPS(recur)

static scan scan_as_said(const neap_call *call) {
  return (scan){.exclusive = call->attrs[EXCLUSIVE].i != 0, .reverse = call->attrs[REVERSE].i != 0};
}
static void run_sum(const neap_call *call) { run(call, cum_sum_loops, scan_as_said(call)); }
static void run_prod(const neap_call *call) { run(call, cum_prod_loops, scan_as_said(call)); }
static void run_max(const neap_call *call) { run(call, cum_max_loops, (scan){0}); }
static void run_min(const neap_call *call) { run(call, cum_min_loops, (scan){0}); }
static void run_log(const neap_call *call) { run(call, log_sum_loops, (scan){0}); }
static void run_recur(const neap_call *call) {
  run(call, recur_loops,
      (scan){.by = (int)call->attrs[BY].i, .reverse = call->attrs[REVERSE].i != 0});
}

/* Every operand is like input 0; a second output holds positions. */
static neap_status infer(neap_infer *c, neap_error *error) {
  int axis;
  const neap_shape *x = &c->in[0].shape;
  NEAP_TRY(neap_infer_axis(c, AXIS, NEAP_MAX(x->n_dim, 1), &axis, error));
  if (c->n_in > 1) NEAP_TRY(neap_infer_expect(c, 1, &c->in[0], error));
  c->out[0] = c->in[0];
  if (c->n_out > 1) c->out[1] = (neap_type){NEAP_DTYPE_I64, *x};
  return NEAP_OK;
}

static void cost(const neap_infer *c, neap_cost *cost) {
  cost->flops = (double)neap_shape_elems(&c->in[0].shape) * (c->n_in > 1 ? 2 : 1);
}

/* Of an exponential and a logarithm. */
static void cost_log(const neap_infer *c, neap_cost *cost) {
  cost->flops = 20 * (double)neap_shape_elems(&c->in[0].shape);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* An op along the same axis, that way. `attr` EXCLUSIVE or BY, by its number. */
static neap_value_id emit_scan(neap_grad *g, const char *type, neap_value_id a, neap_value_id b,
                               const char *attr, int64_t value, bool reverse) {
  neap_set set[] = {NEAP_SET_INT("axis", g->attrs[AXIS].i),
                    NEAP_SET_INT(attr, value),
                    NEAP_SET_INT("reverse", reverse),
                    {0}};
  return neap_grad_emit1(g, type, b == NEAP_NO_VALUE ? 1 : 2, (neap_value_id[]){a, b}, NULL, set);
}

static neap_value_id recurrence(neap_grad *g, neap_value_id a, neap_value_id b, int by,
                                bool reverse) {
  return emit_scan(g, "LinearRecurrence", a, b, "by", by, reverse);
}

static neap_value_id product(neap_grad *g, neap_value_id a, neap_value_id b) {
  return neap_grad_emit1(g, "Mul", 2, (neap_value_id[]){a, b}, NULL, NULL);
}

/* An element is in all the sums that are made after it. */
static neap_status grad_sum(neap_grad *g, neap_error *error) {
  (void)error;
  g->din[0] = emit_scan(g, "CumSum", g->dout[0], NEAP_NO_VALUE, "exclusive", g->attrs[EXCLUSIVE].i,
                        g->attrs[REVERSE].i == 0);
  return NEAP_OK;
}

/* The gradient of x_i is the product before it times s_i, the gradients behind it each times the
 * product between: s_i = dy_i + x_(i+1) s_(i+1). Nothing is divided by, so that zeros need no care.
 * Of exclusive products, s_(i+1) by the factor x_i. */
static neap_status grad_prod(neap_grad *g, neap_error *error) {
  (void)error;
  bool exclusive = g->attrs[EXCLUSIVE].i != 0, reverse = g->attrs[REVERSE].i != 0;
  neap_value_id before = emit_scan(g, "CumProd", g->in[0], NEAP_NO_VALUE, "exclusive", 1, reverse);
  neap_value_id behind =
    recurrence(g, g->in[0], g->dout[0], exclusive ? BY_BEFORE : BY_LEAVING, !reverse);
  g->din[0] = product(g, before, behind);
  return NEAP_OK;
}

/* The gradient of state i, which is that of b_i, is a recurrence in the other direction, and what
 * enters a position there leaves it here. A factor has the gradient of the state that it makes
 * times the state that it multiplies: one of the two is a step away. */
static neap_status grad_recur(neap_grad *g, neap_error *error) {
  (void)error;
  static const int backward[] = {
    [BY_ENTERING] = BY_LEAVING, [BY_LEAVING] = BY_ENTERING, [BY_BEFORE] = BY_BEFORE};
  int by = (int)g->attrs[BY].i;
  bool reverse = g->attrs[REVERSE].i != 0;
  neap_value_id a = g->in[0], dy = g->dout[0];
  neap_value_id state = recurrence(g, a, dy, backward[by], !reverse);
  if (g->want[1]) g->din[1] = state;
  if (!g->want[0]) return NEAP_OK;
  /* y_i = a_(i-1) y_(i-1) + b_i: a_i multiplies y_i itself, and makes the state after it. */
  if (by == BY_LEAVING)
    g->din[0] = product(g, recurrence(g, a, dy, BY_BEFORE, !reverse), g->out[0]);
  else
    /* Else a_i multiplies the state before it, which is the output where that gives it, and is made
     * again where not. */
    g->din[0] = product(
      g, state, by == BY_BEFORE ? g->out[0] : recurrence(g, a, g->in[1], BY_BEFORE, reverse));
  return NEAP_OK;
}

/* An element has what arrives wherever it is the extreme. */
static neap_status grad_extreme(neap_grad *g, neap_error *error) {
  (void)error;
  int n_dim = neap_grad_type(g, g->in[0]).shape.n_dim;
  int axis = neap_axis(g->attrs[AXIS].i, NEAP_MAX(n_dim, 1));
  g->din[0] = neap_places_gradient(g, g->out[1], g->dout[0], axis);
  return NEAP_OK;
}

/* ---- records --------------------------------------------------------------------------------- */

#define AXIS_ATTR [AXIS] = {"axis", "along which", NEAP_ATTR_AXIS, .value = {.i = -1}}
#define REVERSE_ATTR [REVERSE] = {"reverse", "from the last to the first", NEAP_ATTR_BOOL}
#define CUMULATIVE_OP                                                                           \
  .inputs = {{"x", "any shape", NEAP_NUMBERS}}, .outputs = {{"y", "shape of x", NEAP_NUMBERS}}, \
  .attrs = {AXIS_ATTR,                                                                          \
            [EXCLUSIVE] = {"exclusive", "of those before, without the element itself",          \
                           NEAP_ATTR_BOOL},                                                     \
            REVERSE_ATTR},                                                                      \
  .inplace = {{0, 0}}, .n_inplace = 1, .infer = infer, .cost = cost,                            \
  .cases =                                                                                      \
    "{ {x={4,5,6}, axis=1}, {x={3,4,5}, axis=2, exclusive=true}, {x={4,7}, reverse=true}, "     \
    "{x={2,5,3}, axis=-2, exclusive=true, reverse=true}, {x={2,70}, axis=1}, {x={0,3}}, {x={}} }"
#define EXTREME_OP                                                                         \
  .inputs = {{"x", "any shape", NEAP_NUMBERS}},                                            \
  .outputs = {{"y", "shape of x", NEAP_NUMBERS},                                           \
              {"indices", "where it stands, from 0", NEAP_BIT(I64)}},                      \
  .attrs = {AXIS_ATTR}, .inplace = {{0, 0}}, .n_inplace = 1, .infer = infer, .cost = cost, \
  .grad = grad_extreme, .nan = NEAP_NAN_DECIDES, .special = "a NaN wins, and stays",       \
  .cases = "{ {x={4,5,6}, axis=1}, {x={3,4,5}, axis=2}, {x={4,7}}, {x={0,3}}, {x={}} }"

const neap_op neap_op_CumSum = {
  .name = "CumSum",
  .summary = "Running sum along a dimension; integers wrap around.",
  .math = "y_i = x_1 + .. + x_i",
  .example = "net:CumSum(\"x\", \"y\", {axis = 1})",
  .source = "ONNX CumSum-14, torch.cumsum",
  CUMULATIVE_OP,
  .grad = grad_sum,
  .sum = NEAP_SUM_DOUBLE,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_sum, NEAP_NUMBERS),
  .long_cases = "{ {x={262144}}, {x={262144,2}, axis=1, reverse=true} }",
};

const neap_op neap_op_CumProd = {
  .name = "CumProd",
  .summary = "Running product along a dimension; integers wrap around.",
  .math = "y_i = x_1 .. x_i",
  .example = "net:CumProd(\"x\", \"y\", {axis = 1})",
  .source = "ONNX CumProd-26, torch.cumprod",
  CUMULATIVE_OP,
  .grad = grad_prod,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_prod, NEAP_NUMBERS),
};

const neap_op neap_op_CumMax = {
  .name = "CumMax",
  .summary = "Largest element so far along a dimension, and where it stands: the last of equals.",
  .math = "y_i = max(x_1, .., x_i)",
  .example = "net:CumMax(\"x\", {\"y\", \"indices\"}, {axis = 1})",
  .source = "torch.cummax",
  EXTREME_OP,
  .kernels = NEAP_REF(run_max, NEAP_NUMBERS),
};

const neap_op neap_op_CumMin = {
  .name = "CumMin",
  .summary = "Smallest element so far along a dimension, and where it stands: the last of equals.",
  .math = "y_i = min(x_1, .., x_i)",
  .example = "net:CumMin(\"x\", {\"y\", \"indices\"}, {axis = 1})",
  .source = "torch.cummin",
  EXTREME_OP,
  .kernels = NEAP_REF(run_min, NEAP_NUMBERS),
};

/* With p_i = e^(x_i - y_i), the share of x_i in the sum so far, what arrives at later positions
 * comes back weaker by 1 - p of each: no exponent is above 0. Where all so far are -infinity the
 * share is 0. */
const neap_op neap_op_LogCumSumExp = {
  .name = "LogCumSumExp",
  .summary = "Logarithm of the running sum of exponentials along a dimension, without overflow.",
  .math = "y_i = ln(e^x_1 + .. + e^x_i)",
  .example = "net:LogCumSumExp(\"x\", \"y\", {axis = 1})",
  .source = "torch.logcumsumexp",
  .inputs = {{"x", "any shape"}},
  .outputs = {{"y", "shape of x"}},
  .attrs = {AXIS_ATTR},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .infer = infer,
  .cost = cost_log,
  .grad_formula =
    "p = Exp(x - (IsInf(y, positive = 0) ? 0 : y));"
    "d.x = p * LinearRecurrence(1 - p, d.y, axis = axis, by = 1, reverse = 1)",
  .sum = NEAP_SUM_DOUBLE,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_log, NEAP_FLOATS),
  .cases = "{ {x={4,5,6}, axis=1}, {x={3,4,5}, axis=2}, {x={4,7}}, {x={0,3}}, {x={}} }",
  .long_cases = "{ {x={262144}} }",
};

const neap_op neap_op_LinearRecurrence = {
  .name = "LinearRecurrence",
  .summary =
    "A linear recurrence along a dimension: each state is the one before, times a factor, "
    "plus an input.",
  .math = "y_i = a_i y_(i-1) + b_i, y_0 = 0; by leaving a_(i-1), by before y_(i-1) is given",
  .example = "net:LinearRecurrence({\"a\", \"b\"}, \"y\", {axis = 1})",
  .source = "definition; scans of state space models: Blelloch, 1990",
  .inputs = {{"a", "factors"}, {"b", "inputs, shape of a"}},
  .outputs = {{"y", "shape of a"}},
  .attrs = {AXIS_ATTR,
            [BY] = {"by",
                    "the factor of the position entered, or of the one left; or the state "
                    "before the position, 0 for the first",
                    NEAP_ATTR_ENUM, .choices = "entering|leaving|before"},
            REVERSE_ATTR},
  .inplace = {{0, 0}, {1, 0}},
  .n_inplace = 2,
  .infer = infer,
  .cost = cost,
  .grad = grad_recur,
  .infinity = NEAP_INFINITY_REACHES,
  .nan = NEAP_NAN_REACHES,
  .sum = NEAP_SUM_DOUBLE,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_recur, NEAP_FLOATS),
  .cases =
    "{ {a={4,5,6}, b={4,5,6}, axis=1}, {a={3,5}, b={3,5}, by=\"leaving\"}, {a={3,5}, b={3,5}, "
    "by=\"before\"}, {a={3,5}, b={3,5}, by=\"before\", reverse=true}, {a={2,5,3}, b={2,5,3}, "
    "axis=2, by=\"leaving\", reverse=true}, {a={0,3}, b={0,3}}, {a={}, b={}} }",
  .long_cases = "{ {a={{262144}, low=1, high=1}, b={262144}} }",
};
