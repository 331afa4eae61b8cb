/* exponential.c: Exp2, Expm1, Log1p, Log2 and Log10. Expm1 and Log1p keep the digits that e^x - 1
 * and ln(1 + x) lose where x is near 0.
 */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

NEAP_MAP1(Exp2, exp2(x))
NEAP_MAP1(Expm1, expm1(x))
NEAP_MAP1(Log1p, log1p(x))
NEAP_MAP1(Log2, log2(x))
NEAP_MAP1(Log10, log10(x))

/* A kernel under NEAP_REF_ANY_LAYOUT maps 0 to 0. */
#define OF_FLOATS                                                                        \
  .inputs = {{"x", "any shape"}}, .outputs = {{"y", "shape of x"}}, .inplace = {{0, 0}}, \
  .n_inplace = 1, .infer = neap_infer_like
#define CASES "{ {x={2,3,7}}, {x={0,4}}, {x={}} }"

const neap_op neap_op_Exp2 = {
  .name = "Exp2",
  .summary = "Two to the power of each element.",
  .math = "y = 2^x",
  .example = "net:Exp2(\"x\", \"y\")",
  .source = "C11 exp2",
  OF_FLOATS,
  .grad_formula = "d.x = d.y * y * 0.69314718055994530942",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_Exp2, NEAP_FLOATS),
  .cases = CASES,
};

const neap_op neap_op_Expm1 = {
  .name = "Expm1",
  .summary = "The exponential function less 1, element by element, exact near 0.",
  .math = "y = e^x - 1",
  .example = "net:Expm1(\"x\", \"y\")",
  .source = "C11 expm1",
  OF_FLOATS,
  .grad_formula = "d.x = d.y * (y + 1)",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_ANY_LAYOUT(run_Expm1, NEAP_FLOATS),
  .cases = CASES,
};

const neap_op neap_op_Log1p = {
  .name = "Log1p",
  .summary = "Natural logarithm of 1 + x, element by element, exact near 0.",
  .math = "y = ln(1 + x)",
  .example = "net:Log1p(\"x\", \"y\")",
  .source = "C11 log1p",
  OF_FLOATS,
  .grad_formula = "d.x = d.y / (1 + x)",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_ANY_LAYOUT(run_Log1p, NEAP_FLOATS),
  .cases = "{ {x={{2,3,7}, low=-0.9, high=4}}, {x={0,4}}, {x={{}, low=-0.9, high=4}} }",
};

const neap_op neap_op_Log2 = {
  .name = "Log2",
  .summary = "Logarithm to base 2, element by element.",
  .math = "y = ln x / ln 2",
  .example = "net:Log2(\"x\", \"y\")",
  .source = "C11 log2",
  OF_FLOATS,
  .grad_formula = "d.x = d.y / (x * 0.69314718055994530942)",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_Log2, NEAP_FLOATS),
  .cases = "{ {x={{2,3,7}, low=0.2, high=4}}, {x={0,4}}, {x={{}, low=0.2, high=4}} }",
};

const neap_op neap_op_Log10 = {
  .name = "Log10",
  .summary = "Logarithm to base 10, element by element.",
  .math = "y = ln x / ln 10",
  .example = "net:Log10(\"x\", \"y\")",
  .source = "C11 log10",
  OF_FLOATS,
  .grad_formula = "d.x = d.y / (x * 2.30258509299404568402)",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_Log10, NEAP_FLOATS),
  .cases = "{ {x={{2,3,7}, low=0.2, high=4}}, {x={0,4}}, {x={{}, low=0.2, high=4}} }",
};
