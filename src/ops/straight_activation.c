/* straight_activation.c: HardSigmoid, HardSwish, HardTanh, Threshold, HardShrink, SoftShrink and
 * PRelu: activations of straight pieces; where two meet the slope is that of one of them.
 *
 * Comparisons are written so that NaN fails them and passes through.
 */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

enum { SLOPE, OFFSET };
NEAP_INLINE double unit(double x) { return x < 0 ? 0 : x > 1 ? 1 : x; }
NEAP_MAP1(HardSigmoid, unit((double)p[SLOPE] * x + p[OFFSET]))
NEAP_MAP1(HardSwish, x <= -3 ? 0 : x >= 3 ? x : x * (x + 3) / 6)

enum { LEAST, MOST };
NEAP_MAP1(HardTanh, x<p[LEAST] ? p[LEAST] : x> p[MOST] ? p[MOST] : x)

enum { THRESHOLD, VALUE };
NEAP_MAP1(Threshold, x <= p[THRESHOLD] ? p[VALUE] : x)

enum { LAMBDA };
NEAP_MAP1(HardShrink, (x >= -p[LAMBDA]) & (x <= p[LAMBDA]) ? 0 : x)
NEAP_MAP1(SoftShrink, x > p[LAMBDA]    ? x - p[LAMBDA]
                      : x < -p[LAMBDA] ? x + p[LAMBDA]
                      : x == x         ? 0
                                       : x)

NEAP_MAP2(PRelu, x > 0 ? x : y * x)

/* The slope broadcasts to x, never x to the slope. */
static neap_status infer_prelu(neap_infer *c, neap_error *error) {
  NEAP_TRY(neap_elementwise_infer(c, error));
  if (neap_shape_equal(&c->out[0].shape, &c->in[0].shape)) return NEAP_OK;
  return neap_infer_fail(c, NEAP_SHAPE, 1, error, "slope expects a shape that broadcasts to x's");
}

/* Bounds in the wrong order would make it a constant: ATTRIBUTE error. */
static neap_status infer_hard_tanh(neap_infer *c, neap_error *error) {
  if (c->attrs[LEAST].f > c->attrs[MOST].f)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "min = %g expects to be at most max = %g",
                           c->attrs[LEAST].f, c->attrs[MOST].f);
  return neap_infer_like(c, error);
}

#define OF_FLOATS                                                                        \
  .inputs = {{"x", "any shape"}}, .outputs = {{"y", "shape of x"}}, .inplace = {{0, 0}}, \
  .n_inplace = 1
#define LIKE OF_FLOATS, .infer = neap_infer_like
#define WIDE_CASES "{ {x={2,3,7}}, {x={{2,3,40}, low=-9, high=9}}, {x={0,4}}, {x={}} }"
#define LAMBDA_ATTR                       \
  {                                       \
    [LAMBDA] = {                          \
      "lambda",                           \
      "half the width of what becomes 0", \
      NEAP_ATTR_FLOAT,                    \
      .value = {.f = 0.5},                \
      .least = 0,                         \
      .most = 1e30                        \
    }                                     \
  }

const neap_op neap_op_HardSigmoid = {
  .name = "HardSigmoid",
  .summary = "The logistic function made of straight pieces, element by element.",
  .math = "y = max(0, min(1, slope x + offset))",
  .example = "net:HardSigmoid(\"x\", \"y\")",
  .source = "ONNX HardSigmoid-6 (alpha, beta)",
  LIKE,
  .attrs = {[SLOPE] = {"slope", "of the middle piece", NEAP_ATTR_FLOAT, .value = {.f = 0.2},
                       .least = 0, .most = 1e30},
            [OFFSET] = {"offset", "at 0", NEAP_ATTR_FLOAT, .value = {.f = 0.5}}},
  .grad_formula = "d.x = y > 0 ? (y < 1 ? slope * d.y : 0) : 0",
  .kernels = NEAP_REF(run_HardSigmoid, NEAP_FLOATS),
  .cases =
    "{ {x={2,3,7}}, {x={{2,3,40}, low=-9, high=9}, slope=0.16666666666666666}, {x={0,4}}, {x={}} }",
};

const neap_op neap_op_HardSwish = {
  .name = "HardSwish",
  .summary = "Silu made of pieces, element by element.",
  .math = "y = x max(0, min(1, x / 6 + 1 / 2))",
  .example = "net:HardSwish(\"x\", \"y\")",
  .source = "Howard et al., arXiv 1905.02244; ONNX HardSwish-14",
  LIKE,
  .grad_formula = "d.x = x > -3 ? (x < 3 ? d.y * (x / 3 + 0.5) : d.y) : 0",
  .kernels = NEAP_REF_ANY_LAYOUT(run_HardSwish, NEAP_FLOATS),
  .cases = WIDE_CASES,
};

const neap_op neap_op_HardTanh = {
  .name = "HardTanh",
  .summary =
    "Moves elements into an interval, -1 to 1 unless it is given; no gradient from its bounds on.",
  .math = "y = min(max(x, min), max)",
  .example = "net:HardTanh(\"x\", \"y\")",
  .source = "torch.nn.Hardtanh",
  OF_FLOATS,
  .infer = infer_hard_tanh,
  .attrs = {[LEAST] = {"min", "lower bound", NEAP_ATTR_FLOAT, .value = {.f = -1}},
            [MOST] = {"max", "upper bound", NEAP_ATTR_FLOAT, .value = {.f = 1}}},
  .grad_formula = "d.x = x > min ? (x < max ? d.y : 0) : 0",
  .kernels = NEAP_REF(run_HardTanh, NEAP_FLOATS),
  .cases = WIDE_CASES,
};

const neap_op neap_op_Threshold = {
  .name = "Threshold",
  .summary = "Elements above a threshold, and a value in the place of the others.",
  .math = "y = x > threshold ? x : value",
  .example = "net:Threshold(\"x\", \"y\")",
  .source = "torch.nn.Threshold",
  LIKE,
  .attrs = {[THRESHOLD] = {"threshold", "above which elements pass", NEAP_ATTR_FLOAT,
                           .value = {.f = 0}},
            [VALUE] = {"value", "of the others", NEAP_ATTR_FLOAT, .value = {.f = 0}}},
  .grad_formula = "d.x = x > threshold ? d.y : 0",
  .kernels = NEAP_REF(run_Threshold, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}, threshold=0.1, value=-2}, {x={0,4}}, {x={}} }",
};

const neap_op neap_op_HardShrink = {
  .name = "HardShrink",
  .summary = "Makes 0 of what is near 0, element by element.",
  .math = "y = |x| > lambda ? x : 0",
  .example = "net:HardShrink(\"x\", \"y\")",
  .source = "ONNX Shrink-9 with bias 0",
  LIKE,
  .attrs = LAMBDA_ATTR,
  .grad_formula = "d.x = y == 0 ? 0 : d.y",
  .kernels = NEAP_REF_ANY_LAYOUT(run_HardShrink, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}}, {x={2,3,7}, lambda=0.1}, {x={0,4}}, {x={}} }",
};

const neap_op neap_op_SoftShrink = {
  .name = "SoftShrink",
  .summary = "Moves elements towards 0, as far as that, element by element.",
  .math = "y = sign(x) max(|x| - lambda, 0)",
  .example = "net:SoftShrink(\"x\", \"y\")",
  .source = "ONNX Shrink-9 with bias = lambda",
  LIKE,
  .attrs = LAMBDA_ATTR,
  .grad_formula = "d.x = y == 0 ? 0 : d.y",
  .kernels = NEAP_REF_ANY_LAYOUT(run_SoftShrink, NEAP_FLOATS),
  .cases = "{ {x={2,3,7}}, {x={2,3,7}, lambda=0.1}, {x={0,4}}, {x={}} }",
};

const neap_op neap_op_PRelu = {
  .name = "PRelu",
  .summary = "Rectified linear unit with a slope below 0 that is learnt.",
  .math = "y = x > 0 ? x : slope x",
  .example = "net:PRelu({\"x\", \"slope\"}, \"y\")",
  .source = "He et al., arXiv 1502.01852; ONNX PRelu-16",
  .inputs = {{"x", "any shape"}, {"slope", "broadcasts to x: a scalar, or (C,1,1) for channels"}},
  .outputs = {{"y", "shape of x"}},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .infer = infer_prelu,
  .grad_formula = "d.x = x > 0 ? d.y : slope * d.y; d.slope = x > 0 ? 0 : x * d.y",
  .kernels = NEAP_REF_ANY_LAYOUT(run_PRelu, NEAP_FLOATS),
  .cases =
    "{ {x={2,3,7}, slope={}}, {x={2,3,4,5}, slope={3,1,1}}, {x={3,4}, slope={3,4}}, {x={0,4}, "
    "slope={4}} }",
};
