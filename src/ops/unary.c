/* unary.c: the elementary functions of one tensor, element by element, and their backward ops.
 *
 * Each backward reads whichever of input and output is enough, the output where there is a choice:
 * so that the forward may run in place. The gradient of Exp is a Mul and that of Log a Div; they
 * need no op of their own.
 */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

NEAP_MAP1_NUMBERS(Neg, -x, 0 - (uint64_t)x, 0 - (uint64_t)x)
NEAP_MAP1_NUMBERS(Abs, fabs(x), x < 0 ? 0 - (uint64_t)x : (uint64_t)x, x)
NEAP_MAP1_NUMBERS(Square, x *x, (uint64_t)x *(uint64_t)x, (uint64_t)x *(uint64_t)x)
NEAP_MAP1(Exp, neap_exp(x))
NEAP_MAP1(Log, log(x))
NEAP_MAP1(Sqrt, sqrt(x))
NEAP_MAP1(Rsqrt, 1 / sqrt(x))
NEAP_MAP1(Sin, sin(x))
NEAP_MAP1(Cos, cos(x))
NEAP_MAP1(Acos, acos(x))
NEAP_MAP1(Atan, atan(x))
NEAP_MAP1(Reciprocal, 1 / x)
NEAP_MAP1(Erf, neap_erf(x))

/* x = what the backward reads, y = the gradient that arrives. */
#define TWO_BY_ROOT_PI 1.1283791670955126
NEAP_MAP2_SAME(AbsGrad, x > 0 ? y : x < 0 ? -y : x * 0)
NEAP_MAP2_SAME(SquareGrad, 2 * (x * y))
NEAP_MAP2_SAME(SqrtGrad, y / (2 * x))
NEAP_MAP2_SAME(RsqrtGrad, (T)-0.5 * y * x * x * x)
NEAP_MAP2_SAME(SinGrad, y *cos(x))
NEAP_MAP2_SAME(CosGrad, -y *sin(x))
NEAP_MAP2_SAME(AcosGrad, -y / sqrt(1 - x * x))
NEAP_MAP2_SAME(AtanGrad, y / (1 + x * x))
NEAP_MAP2_SAME(ReciprocalGrad, -y *x *x)
NEAP_MAP2_SAME(ErfGrad, y *(T)TWO_BY_ROOT_PI *neap_exp(-x *x))

/* din = TYPE(saved, dout), saved an input or an output of the forward. */
static neap_status grad_of(neap_grad *g, const char *type, neap_value_id saved) {
  g->din[0] = neap_grad_emit1(g, type, 2, (neap_value_id[]){saved, g->dout[0]}, NULL, NULL);
  return NEAP_OK;
}

/* The gradient as an op `type` of one value of the forward, `in` or `out`, and dout. */
#define GRAD(NAME, type, saved)                                     \
  static neap_status grad_##NAME(neap_grad *g, neap_error *error) { \
    (void)error;                                                    \
    return grad_of(g, type, g->saved[0]);                           \
  }
GRAD(Abs, "AbsGrad", in)
GRAD(Square, "SquareGrad", in)
GRAD(Exp, "Mul", out)
GRAD(Sqrt, "SqrtGrad", out)
GRAD(Rsqrt, "RsqrtGrad", out)
GRAD(Sin, "SinGrad", in)
GRAD(Cos, "CosGrad", in)
GRAD(Acos, "AcosGrad", in)
GRAD(Atan, "AtanGrad", in)
GRAD(Reciprocal, "ReciprocalGrad", out)
GRAD(Erf, "ErfGrad", in)

/* Of -x: nothing of the forward is read. */
static neap_status grad_Neg(neap_grad *g, neap_error *error) {
  (void)error;
  g->din[0] = neap_grad_emit1(g, "Neg", 1, g->dout, NULL, NULL);
  return NEAP_OK;
}

/* dx = dy / x. */
static neap_status grad_Log(neap_grad *g, neap_error *error) {
  (void)error;
  g->din[0] = neap_grad_emit1(g, "Div", 2, (neap_value_id[]){g->dout[0], g->in[0]}, NULL, NULL);
  return NEAP_OK;
}

/* What the records share. A kernel under NEAP_REF_ANY_LAYOUT maps 0 to 0, so that the padding lanes
 * of a blocked layout stay 0; under NEAP_REF stand those that do not, and some that are taken plain
 * only. */
#define OF_FLOATS .inputs = {{"x", "any shape"}}, .outputs = {{"y", "shape of x"}}, ELEMENTWISE
#define OF_NUMBERS                                                                              \
  .inputs = {{"x", "any shape", NEAP_NUMBERS}}, .outputs = {{"y", "shape of x", NEAP_NUMBERS}}, \
  ELEMENTWISE
#define ELEMENTWISE .inplace = {{0, 0}}, .n_inplace = 1, .infer = neap_infer_like
#define BACKWARD_OF(forward, saved, saved_doc)                                        \
  .internal = true, .summary = "Backward of " forward ".",                            \
  .inputs = {{saved, saved_doc " of the forward"}, {"dy", "gradient of its output"}}, \
  .outputs = {{"dx", "shape of dy"}}, .inplace = {{1, 0}, {0, 0}}, .n_inplace = 2,    \
  .infer = neap_infer_like

const neap_op neap_op_Neg = {
  .name = "Neg",
  .summary = "Negation, element by element.",
  .math = "y = -x",
  .example = "net:Neg(\"x\", \"y\")",
  .source = "ONNX Neg-13",
  OF_NUMBERS,
  .grad = grad_Neg,
  .kernels = NEAP_REF_ANY_LAYOUT(run_Neg, NEAP_NUMBERS),
  .cases = "{ {x={2,3,7}}, {x={0,4}}, {x={}} }",
};

const neap_op neap_op_Abs = {
  .name = "Abs",
  .summary = "Absolute value, element by element; its derivative at 0 is 0.",
  .math = "y = |x|",
  .example = "net:Abs(\"x\", \"y\")",
  .source = "ONNX Abs-13",
  OF_NUMBERS,
  .grad = grad_Abs,
  .kernels = NEAP_REF_ANY_LAYOUT(run_Abs, NEAP_NUMBERS),
  .cases = "{ {x={2,3,7}}, {x={0,4}}, {x={}} }",
};

const neap_op neap_op_AbsGrad = {
  .name = "AbsGrad",
  BACKWARD_OF("Abs", "x", "input"),
  .math = "dx = dy sign(x)",
  .grad_formula = "d.dy = AbsGrad(x, d.dx)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_AbsGrad, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}, dy={2,3,7}} }",
};

const neap_op neap_op_Square = {
  .name = "Square",
  .summary = "Square, element by element.",
  .math = "y = x^2",
  .example = "net:Square(\"x\", \"y\")",
  .source = "Caffe2 Sqr",
  OF_NUMBERS,
  .grad = grad_Square,
  .kernels = NEAP_REF_ANY_LAYOUT(run_Square, NEAP_NUMBERS),
  .cases = "{ {x={2,3,7}}, {x={0,4}}, {x={}} }",
};

const neap_op neap_op_SquareGrad = {
  .name = "SquareGrad",
  BACKWARD_OF("Square", "x", "input"),
  .math = "dx = 2 x dy",
  .formula = "dx = 2 * x * dy",
  .kernels = NEAP_REF_ANY_LAYOUT(run_SquareGrad, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}, dy={2,3,7}} }",
};

const neap_op neap_op_Exp = {
  .name = "Exp",
  .summary = "Exponential function, element by element.",
  .math = "y = e^x",
  .example = "net:Exp(\"x\", \"y\")",
  .source = "ONNX Exp-13",
  OF_FLOATS,
  .grad = grad_Exp,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_Exp, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}}, {x={0,4}}, {x={}} }",
};

const neap_op neap_op_Log = {
  .name = "Log",
  .summary = "Natural logarithm, element by element.",
  .math = "y = ln x",
  .example = "net:Log(\"x\", \"y\")",
  .source = "ONNX Log-13",
  OF_FLOATS,
  .grad = grad_Log,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_Log, NEAP_FLOATS),
  .cases = "{ {x={{2,3,7}, low=0.2, high=4}}, {x={0,4}}, {x={{}, low=1, high=2}} }",
};

const neap_op neap_op_Sqrt = {
  .name = "Sqrt",
  .summary = "Square root, element by element.",
  .math = "y = sqrt x",
  .example = "net:Sqrt(\"x\", \"y\")",
  .source = "ONNX Sqrt-13",
  OF_FLOATS,
  .grad = grad_Sqrt,
  .kernels = NEAP_REF_ANY_LAYOUT(run_Sqrt, NEAP_FLOATS),
  .cases = "{ {x={{2,3,7}, low=0.2, high=4}}, {x={0,4}}, {x={{}, low=1, high=2}} }",
};

/* Plain only: the padding lanes would be 0 / 0. */
const neap_op neap_op_SqrtGrad = {
  .name = "SqrtGrad",
  BACKWARD_OF("Sqrt", "y", "output"),
  .math = "dx = dy / (2 y)",
  .formula = "dx = dy / (2 * y)",
  .kernels = NEAP_REF(run_SqrtGrad, NEAP_FLOATS),
  .cases = "{ {y={{2,3,7}, low=0.5, high=2}, dy={2,3,7}} }",
};

const neap_op neap_op_Rsqrt = {
  .name = "Rsqrt",
  .summary = "Reciprocal of the square root, element by element.",
  .math = "y = 1 / sqrt x",
  .example = "net:Rsqrt(\"x\", \"y\")",
  .source = "definition",
  OF_FLOATS,
  .grad = grad_Rsqrt,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_Rsqrt, NEAP_FLOATS),
  .cases = "{ {x={{2,3,7}, low=0.2, high=4}}, {x={0,4}}, {x={{}, low=1, high=2}} }",
};

const neap_op neap_op_RsqrtGrad = {
  .name = "RsqrtGrad",
  BACKWARD_OF("Rsqrt", "y", "output"),
  .math = "dx = -dy y^3 / 2",
  .formula = "dx = -0.5 * dy * y * y * y",
  .kernels = NEAP_REF_ANY_LAYOUT(run_RsqrtGrad, NEAP_FLOATS),
  .cases = "{ {y={2,3,7}, dy={2,3,7}} }",
};

const neap_op neap_op_Sin = {
  .name = "Sin",
  .summary = "Sine, element by element.",
  .math = "y = sin x",
  .example = "net:Sin(\"x\", \"y\")",
  .source = "ONNX Sin-7",
  OF_FLOATS,
  .grad = grad_Sin,
  .kernels = NEAP_REF_ANY_LAYOUT(run_Sin, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}}, {x={0,4}}, {x={}} }",
};

const neap_op neap_op_SinGrad = {
  .name = "SinGrad",
  BACKWARD_OF("Sin", "x", "input"),
  .math = "dx = dy cos x",
  .formula = "dx = dy * Cos(x)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_SinGrad, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}, dy={2,3,7}} }",
};

const neap_op neap_op_Cos = {
  .name = "Cos",
  .summary = "Cosine, element by element.",
  .math = "y = cos x",
  .example = "net:Cos(\"x\", \"y\")",
  .source = "ONNX Cos-7",
  OF_FLOATS,
  .grad = grad_Cos,
  .kernels = NEAP_REF(run_Cos, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}}, {x={0,4}}, {x={}} }",
};

const neap_op neap_op_CosGrad = {
  .name = "CosGrad",
  BACKWARD_OF("Cos", "x", "input"),
  .math = "dx = -dy sin x",
  .formula = "dx = -dy * Sin(x)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_CosGrad, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}, dy={2,3,7}} }",
};

const neap_op neap_op_Acos = {
  .name = "Acos",
  .summary = "Arc cosine in radians, element by element; NaN beyond -1 and 1.",
  .math = "y = acos(x)",
  .example = "net:Acos(\"x\", \"y\")",
  .source = "ONNX Acos-7",
  OF_FLOATS,
  .grad = grad_Acos,
  .kernels = NEAP_REF(run_Acos, NEAP_FLOATS),
  .cases = "{ {x={{2,3,7}, low=-0.9, high=0.9}}, {x={0,4}}, {x={{}, low=0, high=0.5}} }",
};

const neap_op neap_op_AcosGrad = {
  .name = "AcosGrad",
  BACKWARD_OF("Acos", "x", "input"),
  .math = "dx = -dy / sqrt(1 - x^2)",
  .formula = "dx = -dy * Rsqrt(1 - x * x)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_AcosGrad, NEAP_FLOATS),
  .cases = "{ {x={{2,3,7}, low=-0.9, high=0.9}, dy={2,3,7}} }",
};

const neap_op neap_op_Atan = {
  .name = "Atan",
  .summary = "Arc tangent in radians, element by element.",
  .math = "y = atan(x)",
  .example = "net:Atan(\"x\", \"y\")",
  .source = "ONNX Atan-7",
  OF_FLOATS,
  .grad = grad_Atan,
  .kernels = NEAP_REF_ANY_LAYOUT(run_Atan, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}}, {x={0,4}}, {x={}} }",
};

const neap_op neap_op_AtanGrad = {
  .name = "AtanGrad",
  BACKWARD_OF("Atan", "x", "input"),
  .math = "dx = dy / (1 + x^2)",
  .formula = "dx = dy / (1 + x * x)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_AtanGrad, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}, dy={2,3,7}} }",
};

const neap_op neap_op_Reciprocal = {
  .name = "Reciprocal",
  .summary = "Reciprocal, element by element.",
  .math = "y = 1 / x",
  .example = "net:Reciprocal(\"x\", \"y\")",
  .source = "ONNX Reciprocal-13",
  OF_FLOATS,
  .grad = grad_Reciprocal,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_Reciprocal, NEAP_FLOATS),
  .cases = "{ {x={{2,3,7}, low=0.5, high=3}}, {x={0,4}}, {x={{}, low=-2, high=-1}} }",
};

const neap_op neap_op_ReciprocalGrad = {
  .name = "ReciprocalGrad",
  BACKWARD_OF("Reciprocal", "y", "output"),
  .math = "dx = -dy y^2",
  .formula = "dx = -dy * y * y",
  .kernels = NEAP_REF_ANY_LAYOUT(run_ReciprocalGrad, NEAP_FLOATS),
  .cases = "{ {y={2,3,7}, dy={2,3,7}} }",
};

const neap_op neap_op_Erf = {
  .name = "Erf",
  .summary = "Error function, element by element.",
  .math = "y = 2 / sqrt(pi) int_0^x exp(-t^2) dt",
  .example = "net:Erf(\"x\", \"y\")",
  .source = "ONNX Erf-13",
  OF_FLOATS,
  .grad = grad_Erf,
  .kernels = NEAP_REF_ANY_LAYOUT(run_Erf, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}}, {x={{99}, low=-5, high=5}}, {x={0,4}}, {x={}} }",
};

const neap_op neap_op_ErfGrad = {
  .name = "ErfGrad",
  BACKWARD_OF("Erf", "x", "input"),
  .math = "dx = dy 2 / sqrt(pi) exp(-x^2)",
  .formula = "dx = dy * 1.12837916709551257390 * Exp(-x * x)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_ErfGrad, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}, dy={2,3,7}} }",
};
