/* prod.c: Prod over dimensions, and its backward.
 *
 * The gradient of x_i is dy times the product of all others, which is y / x_i only where no element
 * is 0. So the backward counts zeros: with none it divides, with one only that element has a
 * gradient, with more there is none.
 */
#include "ops/elementwise.h"
#include "ops/reduce.h"

/* `row` multiplies n neighbours into one accumulator, `columns` n neighbours into one each (see
 * reduce.h). Floats are multiplied in double. Integers wrap around, so they are multiplied
 * unsigned, where C defines that. */
#define A double
#define U double
#define MEMBER f
#define NEAP_BODY "ops/prod_body.h"
#include "math/each_float.h"
#undef A
#undef U
#undef MEMBER
#define A int64_t
#define U uint64_t
#define MEMBER i
#define NEAP_BODY "ops/prod_body.h"
#include "math/each_integer.h"
#undef A
#undef U
#undef MEMBER

#define PRODUCT_OF(symbol, suffix, T, member) \
  [NEAP_DTYPE_##symbol] = {{.member = 1}, row_##suffix, columns_##suffix},
/* Bool is stored as bytes 0 and 1: it is multiplied as u8. */
static const neap_reduction products[NEAP_N_DTYPE] = {PRODUCT_OF(F32, f32, float, f) PRODUCT_OF(
  F64, f64, double, f) PRODUCT_OF(BOOL, u8, uint8_t, i) NEAP_EACH_INTEGER(PRODUCT_OF, i)};

static void run(const neap_call *call) { neap_reduce_run(call, products, 1); }

typedef struct job {
  const neap_call *call;
  neap_reduce_walk walk;
} job;

#define NEAP_BODY "ops/prod_grad_body.h"
#include "math/each_element.h"

static void run_grad(const neap_call *call) {
  const neap_shape *shape = &call->in[0].type.shape;
  job j = {call, neap_reduce_walk_of(
                   shape, neap_reduce_axes_checked(&call->attrs[NEAP_REDUCE_AXES], shape->n_dim))};
  int64_t grain = NEAP_MAX(NEAP_GRAIN / NEAP_MAX(j.walk.count, 1), 1);
  static void (*const loops[NEAP_N_DTYPE])(void *, int64_t, int64_t) = {NEAP_ELEMENTS(spread)};
  neap_parallel_for(j.walk.n_out, grain, call->n_thread, loops[call->in[0].type.dtype], &j);
}

/* Integers of any width, and bool, give i64. */
static neap_status infer(neap_infer *c, neap_error *error) {
  NEAP_TRY(neap_reduce_infer(c, error));
  if (!neap_dtype_is_float(c->in[0].dtype)) c->out[0].dtype = NEAP_DTYPE_I64;
  return NEAP_OK;
}

static void cost(const neap_infer *c, neap_cost *cost) {
  cost->flops = (double)neap_shape_elems(&c->in[0].shape);
}

static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  g->din[0] = neap_grad_emit1(g, "ProdGrad", 2, (neap_value_id[]){g->in[0], g->dout[0]}, g, NULL);
  return NEAP_OK;
}

const neap_op neap_op_Prod = {
  .name = "Prod",
  .summary = "Product over dimensions; i64 for integers and bool.",
  .math = "y = product of x over axes",
  .example = "net:Prod(\"x\", \"y\", {axes = {1}})",
  .source = "ONNX ReduceProd-18",
  .inputs = {{"x", "any shape", NEAP_NUMBERS | NEAP_BIT(BOOL)}},
  .outputs = {{"y", "shape of x without axes", NEAP_FLOATS | NEAP_BIT(I64)}},
  .attrs = {NEAP_REDUCE_ATTRS},
  .infer = infer,
  .cost = cost,
  .grad = grad,
  .empty = NEAP_EMPTY_ONE,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run, NEAP_NUMBERS | NEAP_BIT(BOOL)),
  .cases =
    "{ {x={4,5,6}, axes={1}}, {x={4,5,6}, axes={2}, keepdim=true}, {x={4,5}, axes={-1}}, "
    "{x={2,3,2}}, "
    "{x={3,0}, axes={1}}, {x={}} }",
};

/* Twice: of the products that leave out two elements those count that leave out every zero, so how
 * many zeros there are, n, decides which; u is x with ones in their place. */
const neap_op neap_op_ProdGrad = {
  .name = "ProdGrad",
  .summary = "Backward of Prod.",
  .math = "dx_i = dy product of x_j, j != i",
  .internal = true,
  .inputs = {{"x", "input of the forward"}, {"dy", "gradient of its output"}},
  .outputs = {{"dx", "shape of x"}},
  .attrs = {NEAP_REDUCE_ATTRS},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .infer = neap_reduce_infer_grad,
  .nan = NEAP_NAN_REACHES,
  .grad_formula =
    "zero = x == 0; z = zero ? 1 : 0; u = zero ? 1 : x; w = d.dx / u;"
    "p = Prod(u, axes = axes, keepdim = 1); n = Sum(z, axes = axes, keepdim = 1);"
    "a = Sum(w * (1 - z), axes = axes, keepdim = 1);"
    "b = Sum(w * z, axes = axes, keepdim = 1);"
    "s = zero ? (n == 1 ? a : n == 2 ? b - w : 0)"
    " : (n == 0 ? a - w : n == 1 ? b : 0);"
    "d.x = view(dy, p) * p / u * s; d.dy = Sum(d.dx * ProdGrad(x, ones(dy), ..), ..)",
  .kernels = NEAP_REF(run_grad, NEAP_FLOATS),
  .cases = "{ {x={4,5,6}, dy={4,6}, axes={2}} }",
};
