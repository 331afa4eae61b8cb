/* arithmetic.c: Add, Sub, Mul and Div of two tensors, with NumPy broadcasting.
 *
 * Integers wrap around, as in C's unsigned arithmetic and in NumPy; the quotient of integers is
 * f32, as in PyTorch. The gradients are made of the same four ops, then summed back over the
 * dimensions that were broadcast. Only the divisor has a backward of its own, which reads the
 * quotient, so that the dividend may die.
 */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

/* Through 64 unsigned bits: the low bits are right for every width and sign, and nothing is
 * undefined. */
#define ARITHMETIC(NAME, op)                           \
  NEAP_ROW2(NAME##_f32, float, float, , x op y)        \
  NEAP_ROW2(NAME##_f64, double, double, , x op y)      \
  NEAP_ROW2_INTEGERS(NAME, (uint64_t)x op(uint64_t) y) \
  NEAP_ROW_RUN(NAME, 2, NEAP_ROWS_FLOATS(NAME), NEAP_ROWS_INTEGERS(NAME))
ARITHMETIC(Add, +)
ARITHMETIC(Sub, -)
ARITHMETIC(Mul, *)

NEAP_ROW2(Div_f32, float, float, , x / y)
NEAP_ROW2(Div_f64, double, double, , x / y)
/* In f64 and rounded once: for 8 bits the same as in f32. */
NEAP_ROW2_INTEGERS_TO(Div, float, (double)x / (double)y)
NEAP_ROW_RUN(Div, 2, NEAP_ROWS_FLOATS(Div), NEAP_ROWS_INTEGERS(Div))

/* x = quotient, y = divisor, z = gradient of the quotient */
NEAP_ROW3(DivGrad_f32, float, float, float, , -z *x / y)
NEAP_ROW3(DivGrad_f64, double, double, double, , -z *x / y)
NEAP_ROW_RUN(DivGrad, 3, NEAP_ROWS_FLOATS(DivGrad))

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
  .kernels = NEAP_REF_ANY_LAYOUT(run_Add),
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
  .kernels = NEAP_REF_ANY_LAYOUT(run_Sub),
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
  .kernels = NEAP_REF_ANY_LAYOUT(run_Mul),
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
  .kernels = NEAP_REF(run_Div),
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
  .kernels = NEAP_REF(run_DivGrad),
  .cases = "{ {y={3,4}, b={{4}, low=0.5, high=2}, dy={3,4}} }",
};
