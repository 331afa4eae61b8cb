/* rounding.c: Sign, Floor, Ceil, Trunc and Round: steps, whose gradient is nothing. Integers pass
 * as they are. Frac is what Trunc leaves. */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

/* Multiplying a zero or a NaN by 1 keeps it, so that NaN stays NaN. Round takes halves to even, the
 * default rounding mode of C and IEEE 754. */
NEAP_MAP1_NUMBERS(Sign, x > 0 ? 1 : x < 0 ? -1 : x * 1, (x > 0) - (x < 0), x > 0)
NEAP_MAP1_NUMBERS(Floor, floor(x), x, x)
NEAP_MAP1_NUMBERS(Ceil, ceil(x), x, x)
NEAP_MAP1_NUMBERS(Trunc, trunc(x), x, x)
NEAP_MAP1_NUMBERS(Round, rint(x), x, x)
/* An infinity has no fraction to leave. */
NEAP_MAP1(Frac, x - trunc(x))

#define STEPS                                                                                   \
  .inputs = {{"x", "any shape", NEAP_NUMBERS}}, .outputs = {{"y", "shape of x", NEAP_NUMBERS}}, \
  .inplace = {{0, 0}}, .n_inplace = 1, .infer = neap_infer_like, .no_grad = true,               \
  .cases = "{ {x={2,3,7}}, {x={{40}, low=-9, high=9}}, {x={0,4}}, {x={}} }"

const neap_op neap_op_Sign = {
  .name = "Sign",
  .summary = "Sign, element by element: -1, 0 or 1; NaN stays NaN.",
  .math = "y = x > 0 ? 1 : x < 0 ? -1 : x",
  .example = "net:Sign(\"x\", \"y\")",
  .source = "ONNX Sign-13",
  .kernels = NEAP_REF_ANY_LAYOUT(run_Sign, NEAP_NUMBERS),
  STEPS,
};

const neap_op neap_op_Floor = {
  .name = "Floor",
  .summary = "The largest integer not above, element by element.",
  .math = "y = floor(x)",
  .example = "net:Floor(\"x\", \"y\")",
  .source = "ONNX Floor-13",
  .kernels = NEAP_REF_ANY_LAYOUT(run_Floor, NEAP_NUMBERS),
  STEPS,
};

const neap_op neap_op_Ceil = {
  .name = "Ceil",
  .summary = "The smallest integer not below, element by element.",
  .math = "y = ceil(x)",
  .example = "net:Ceil(\"x\", \"y\")",
  .source = "ONNX Ceil-13",
  .kernels = NEAP_REF_ANY_LAYOUT(run_Ceil, NEAP_NUMBERS),
  STEPS,
};

const neap_op neap_op_Trunc = {
  .name = "Trunc",
  .summary = "The nearest integer towards 0, element by element.",
  .math = "y = sign(x) floor(|x|)",
  .example = "net:Trunc(\"x\", \"y\")",
  .source = "C11 trunc",
  .kernels = NEAP_REF_ANY_LAYOUT(run_Trunc, NEAP_NUMBERS),
  STEPS,
};

const neap_op neap_op_Frac = {
  .name = "Frac",
  .summary = "What is left of an element when its integer part is taken away, with its sign.",
  .math = "y = x - trunc(x)",
  .example = "net:Frac(\"x\", \"y\")",
  .source = "torch.frac",
  .inputs = {{"x", "any shape"}},
  .outputs = {{"y", "shape of x"}},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .infer = neap_infer_like,
  .grad_formula = "d.x = d.y",
  .special = "NaN where x is infinite",
  .kernels = NEAP_REF_ANY_LAYOUT(run_Frac, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}}, {x={{40}, low=-9, high=9}}, {x={0,4}}, {x={}} }",
};

const neap_op neap_op_Round = {
  .name = "Round",
  .summary = "The nearest integer, element by element; halves go to the even one.",
  .math = "y = round(x)",
  .example = "net:Round(\"x\", \"y\")",
  .source = "IEEE 754-2019, 5.9, roundToIntegralTiesToEven",
  .kernels = NEAP_REF_ANY_LAYOUT(run_Round, NEAP_NUMBERS),
  STEPS,
};
