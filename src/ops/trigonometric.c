/* trigonometric.c: Tan, Asin, the hyperbolic functions and their inverses, Atan2 and Hypot. Sin,
 * Cos, Acos and Atan, whose backward is an op, are in unary.c.
 */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

NEAP_MAP1(Tan, tan(x))
NEAP_MAP1(Asin, asin(x))
NEAP_MAP1(Sinh, sinh(x))
NEAP_MAP1(Cosh, cosh(x))
NEAP_MAP1(Asinh, asinh(x))
NEAP_MAP1(Acosh, acosh(x))
NEAP_MAP1(Atanh, atanh(x))
NEAP_MAP2(Atan2, atan2(x, y))
NEAP_MAP2(Hypot, hypot(x, y))

/* A kernel under NEAP_REF_ANY_LAYOUT maps 0 to 0. */
#define OF_FLOATS                                                                        \
  .inputs = {{"x", "any shape"}}, .outputs = {{"y", "shape of x"}}, .inplace = {{0, 0}}, \
  .n_inplace = 1, .infer = neap_infer_like
#define CASES "{ {x={2,3,7}}, {x={0,4}}, {x={}} }"
#define OF_TWO                                                                        \
  .inputs = {{"a", "any shape"}, {"b", "broadcasts with a"}},                         \
  .outputs = {{"y", "broadcast shape"}}, .inplace = {{0, 0}, {1, 0}}, .n_inplace = 2, \
  .infer = neap_elementwise_infer
/* Away from the origin, where neither is smooth. */
#define CASES_OF_TWO                                                                          \
  "{ {a={{3,4}, low=0.3, high=2}, b={3,4}}, {a={{3,4}, low=0.3, high=2}, b={4}}, {a={{3,1}, " \
  "low=0.3, high=2}, b={1,5}}, {a={{4}, low=0.3, high=2}, b={2,3,4}}, {a={0,4}, b={4}} }"

const neap_op neap_op_Tan = {
  .name = "Tan",
  .summary = "Tangent, element by element.",
  .math = "y = tan x",
  .example = "net:Tan(\"x\", \"y\")",
  .source = "ONNX Tan-7",
  OF_FLOATS,
  .grad_formula = "d.x = d.y * (1 + y * y)",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_ANY_LAYOUT(run_Tan, NEAP_FLOATS),
  .cases = "{ {x={{2,3,7}, low=-1.2, high=1.2}}, {x={0,4}}, {x={{}, low=-1.2, high=1.2}} }",
};

const neap_op neap_op_Asin = {
  .name = "Asin",
  .summary = "Arc sine in radians, element by element; NaN beyond -1 and 1.",
  .math = "y = asin x",
  .example = "net:Asin(\"x\", \"y\")",
  .source = "ONNX Asin-7",
  OF_FLOATS,
  .grad_formula = "d.x = d.y * Rsqrt(1 - x * x)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_Asin, NEAP_FLOATS),
  .cases = "{ {x={{2,3,7}, low=-0.9, high=0.9}}, {x={0,4}}, {x={{}, low=-0.9, high=0.9}} }",
};

const neap_op neap_op_Sinh = {
  .name = "Sinh",
  .summary = "Hyperbolic sine, element by element.",
  .math = "y = (e^x - e^-x) / 2",
  .example = "net:Sinh(\"x\", \"y\")",
  .source = "ONNX Sinh-9",
  OF_FLOATS,
  .grad_formula = "d.x = d.y * Cosh(x)",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_ANY_LAYOUT(run_Sinh, NEAP_FLOATS),
  .cases = CASES,
};

const neap_op neap_op_Cosh = {
  .name = "Cosh",
  .summary = "Hyperbolic cosine, element by element.",
  .math = "y = (e^x + e^-x) / 2",
  .example = "net:Cosh(\"x\", \"y\")",
  .source = "ONNX Cosh-9",
  OF_FLOATS,
  .grad_formula = "d.x = d.y * Sinh(x)",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_Cosh, NEAP_FLOATS),
  .cases = CASES,
};

const neap_op neap_op_Asinh = {
  .name = "Asinh",
  .summary = "Inverse of the hyperbolic sine, element by element.",
  .math = "y = ln(x + sqrt(x^2 + 1))",
  .example = "net:Asinh(\"x\", \"y\")",
  .source = "ONNX Asinh-9",
  OF_FLOATS,
  .grad_formula = "d.x = d.y * Rsqrt(x * x + 1)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_Asinh, NEAP_FLOATS),
  .cases = CASES,
};

const neap_op neap_op_Acosh = {
  .name = "Acosh",
  .summary = "Inverse of the hyperbolic cosine, element by element; NaN below 1.",
  .math = "y = ln(x + sqrt(x^2 - 1))",
  .example = "net:Acosh(\"x\", \"y\")",
  .source = "ONNX Acosh-9",
  OF_FLOATS,
  .grad_formula = "d.x = d.y * Rsqrt(x * x - 1)",
  .kernels = NEAP_REF(run_Acosh, NEAP_FLOATS),
  .cases = "{ {x={{2,3,7}, low=1.2, high=4}}, {x={0,4}}, {x={{}, low=1.2, high=4}} }",
};

const neap_op neap_op_Atanh = {
  .name = "Atanh",
  .summary = "Inverse of the hyperbolic tangent, element by element; NaN beyond -1 and 1.",
  .math = "y = ln((1 + x) / (1 - x)) / 2",
  .example = "net:Atanh(\"x\", \"y\")",
  .source = "ONNX Atanh-9",
  OF_FLOATS,
  .grad_formula = "d.x = d.y / (1 - x * x)",
  .kernels = NEAP_REF_ANY_LAYOUT(run_Atanh, NEAP_FLOATS),
  .cases = "{ {x={{2,3,7}, low=-0.8, high=0.8}}, {x={0,4}}, {x={{}, low=-0.8, high=0.8}} }",
};

const neap_op neap_op_Atan2 = {
  .name = "Atan2",
  .summary =
    "The angle of the point (b, a) in radians, from -pi to pi, element by element, with "
    "broadcasting.",
  .math = "y = atan(a / b), in the quadrant of the point",
  .example = "net:Atan2({\"a\", \"b\"}, \"y\")",
  .source = "C11 atan2",
  OF_TWO,
  .grad_formula = "r = a * a + b * b; d.a = d.y * b / r; d.b = -d.y * a / r",
  .kernels = NEAP_REF_ANY_LAYOUT(run_Atan2, NEAP_FLOATS),
  .cases = CASES_OF_TWO,
};

const neap_op neap_op_Hypot = {
  .name = "Hypot",
  .summary = "Length of the hypotenuse over two legs, element by element, with broadcasting.",
  .math = "y = sqrt(a^2 + b^2)",
  .example = "net:Hypot({\"a\", \"b\"}, \"y\")",
  .source = "C11 hypot",
  OF_TWO,
  .grad_formula = "d.a = d.y * a / y; d.b = d.y * b / y",
  .kernels = NEAP_REF_ANY_LAYOUT(run_Hypot, NEAP_FLOATS),
  .cases = CASES_OF_TWO,
};
