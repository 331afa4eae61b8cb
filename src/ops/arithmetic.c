/* arithmetic.c: Add, Sub, Mul and Div of two tensors, with NumPy broadcasting.
 *
 * Integers wrap around, as in C's unsigned arithmetic and in NumPy; the quotient of integers is
 * f32, as in PyTorch. The gradients are made of the same four ops, then summed back over the
 * dimensions that were broadcast. Only the divisor has a backward of its own, which reads the
 * quotient, so that the dividend may die.
 */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

/* Integers through 64 unsigned bits: the low bits are right for every width and sign, and nothing
 * is undefined. */
NEAP_MAP2_NUMBERS(Add, x + y, (uint64_t)x + (uint64_t)y)
NEAP_MAP2_NUMBERS(Sub, x - y, (uint64_t)x - (uint64_t)y)
NEAP_MAP2_NUMBERS(Mul, x *y, (uint64_t)x *(uint64_t)y)

/* Of integers in f64 and rounded once: for 8 bits the same as in f32. */
#define DIVIDE_INTEGERS(symbol, suffix, type, NAME) \
  NEAP_ROW_TO(2, map2_to_f32, suffix, type, float, NAME, (double)x / (double)y)
NEAP_ROW_FLOATS(2, map2, Div, x / y)
NEAP_EACH_INTEGER(DIVIDE_INTEGERS, Div)
NEAP_ROW_RUN(Div, 2, NEAP_ROWS_FLOATS(Div), NEAP_ROWS_INTEGERS(Div))

/* x = quotient, y = divisor, z = gradient of the quotient */
NEAP_MAP3(DivGrad, -z *x / y)

static neap_status infer_div(neap_infer *c, neap_error *error) {
  NEAP_TRY(neap_elementwise_infer(c, error));
  if (!neap_dtype_is_float(c->out[0].dtype)) c->out[0].dtype = NEAP_DTYPE_F32;
  return NEAP_OK;
}

/* The gradient of input i is `value`, summed back to its shape. */
static void set_din(neap_grad *g, int i, neap_value_id value) {
  g->din[i] = neap_grad_reduce_to(g, value, g->in[i]);
}

static neap_status grad_add(neap_grad *g, neap_error *error) {
  (void)error;
  for (int i = 0; i < 2; i++)
    if (g->want[i]) set_din(g, i, g->dout[0]);
  return NEAP_OK;
}

static neap_status grad_sub(neap_grad *g, neap_error *error) {
  (void)error;
  if (g->want[0]) set_din(g, 0, g->dout[0]);
  /* Summed before it is negated: the smaller of the two is the one negated. */
  if (g->want[1]) {
    neap_value_id sum = neap_grad_reduce_to(g, g->dout[0], g->in[1]);
    g->din[1] = neap_grad_emit1(g, "Neg", 1, &sum, NULL, NULL);
  }
  return NEAP_OK;
}

static neap_status grad_mul(neap_grad *g, neap_error *error) {
  (void)error;
  for (int i = 0; i < 2; i++)
    if (g->want[i])
      set_din(
        g, i,
        neap_grad_emit1(g, "Mul", 2, (neap_value_id[]){g->dout[0], g->in[1 - i]}, NULL, NULL));
  return NEAP_OK;
}

static neap_status grad_div(neap_grad *g, neap_error *error) {
  (void)error;
  if (g->want[0])
    set_din(g, 0,
            neap_grad_emit1(g, "Div", 2, (neap_value_id[]){g->dout[0], g->in[1]}, NULL, NULL));
  if (g->want[1])
    set_din(g, 1,
            neap_grad_emit1(g, "DivGrad", 3, (neap_value_id[]){g->out[0], g->in[1], g->dout[0]},
                            NULL, NULL));
  return NEAP_OK;
}

#define BINARY                                                                       \
  .source = "NumPy broadcasting rules", .inplace = {{0, 0}, {1, 0}}, .n_inplace = 2, \
  .inputs = {{"a", "any shape", NEAP_NUMBERS}, {"b", "broadcasts with a", NEAP_NUMBERS}}
#define BINARY_CASES                                                                          \
  "{ {a={3,4}, b={3,4}}, {a={3,4}, b={4}}, {a={3,4}, b={3,1}}, {a={2,3,4}, b={}}, {a={3,1}, " \
  "b={1,5}}, "                                                                                \
  "{a={4}, b={2,3,4}}, {a={2,1,4,1}, b={3,1,5}}, {a={0,4}, b={4}}, {a={}, b={}} }"

const neap_op neap_op_Add = {
  .name = "Add",
  .summary = "Sum of two tensors, element by element, with broadcasting.",
  .math = "y = a + b",
  .example = "net:Add({\"a\", \"b\"}, \"y\")",
  BINARY,
  .outputs = {{"y", "broadcast shape", NEAP_NUMBERS}},
  .infer = neap_elementwise_infer,
  .grad = grad_add,
  .kernels = NEAP_REF_ANY_LAYOUT(run_Add, NEAP_NUMBERS),
  .cases = BINARY_CASES,
};

const neap_op neap_op_Sub = {
  .name = "Sub",
  .summary = "Difference of two tensors, element by element, with broadcasting.",
  .math = "y = a - b",
  .example = "net:Sub({\"a\", \"b\"}, \"y\")",
  BINARY,
  .outputs = {{"y", "broadcast shape", NEAP_NUMBERS}},
  .infer = neap_elementwise_infer,
  .grad = grad_sub,
  .kernels = NEAP_REF_ANY_LAYOUT(run_Sub, NEAP_NUMBERS),
  .cases = BINARY_CASES,
};

const neap_op neap_op_Mul = {
  .name = "Mul",
  .summary = "Product of two tensors, element by element, with broadcasting.",
  .math = "y = a b",
  .example = "net:Mul({\"a\", \"b\"}, \"y\")",
  BINARY,
  .outputs = {{"y", "broadcast shape", NEAP_NUMBERS}},
  .infer = neap_elementwise_infer,
  .grad = grad_mul,
  .kernels = NEAP_REF_ANY_LAYOUT(run_Mul, NEAP_NUMBERS),
  .cases = BINARY_CASES,
};

/* Plain only: the padding lanes would be 0 / 0. */
const neap_op neap_op_Div = {
  .name = "Div",
  .summary = "Quotient of two tensors, element by element, with broadcasting; f32 for integers.",
  .math = "y = a / b",
  .example = "net:Div({\"a\", \"b\"}, \"y\")",
  BINARY,
  .outputs = {{"y", "broadcast shape"}},
  .infer = infer_div,
  .grad = grad_div,
  .kernels = NEAP_REF(run_Div, NEAP_NUMBERS),
  .cases =
    "{ {a={3,4}, b={{3,4}, low=0.5, high=2}}, {a={3,4}, b={{4}, low=0.5, high=2}}, "
    "{a={3,4}, b={{3,1}, low=-2, high=-0.5}}, {a={2,3,4}, b={{}, low=0.5, high=2}}, "
    "{a={4}, b={{2,3,4}, low=0.5, high=2}}, {a={0,4}, b={4}} }",
};

const neap_op neap_op_DivGrad = {
  .name = "DivGrad",
  .summary =
    "Gradient of Div with respect to its divisor, before it is summed back to the divisor's shape.",
  .math = "db = -dy y / b",
  .internal = true,
  .inputs = {{"y", "quotient"}, {"b", "divisor; broadcasts with y"}, {"dy", "shape of y"}},
  .outputs = {{"db", "shape of y"}},
  .inplace = {{2, 0}, {0, 0}},
  .n_inplace = 2,
  .infer = neap_elementwise_infer,
  .formula = "db = -dy * y / b",
  .kernels = NEAP_REF(run_DivGrad, NEAP_FLOATS),
  .cases = "{ {y={3,4}, b={{4}, low=0.5, high=2}, dy={3,4}} }",
};
