/* classify.c: IsNaN and IsInf: what kind of number an element is. */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

#define CLASSIFY(NAME, ...)                                             \
  NEAP_ROW_TO(1, map1_to_bool, f32, float, uint8_t, NAME, __VA_ARGS__)  \
  NEAP_ROW_TO(1, map1_to_bool, f64, double, uint8_t, NAME, __VA_ARGS__) \
  NEAP_ROW_RUN(NAME, 1, NEAP_ROWS_FLOATS(NAME))
CLASSIFY(IsNaN, x != x)
CLASSIFY(IsInf, (x > 0) & (x - x != x - x) ? p[0] != 0 : (x < 0) & (x - x != x - x) ? p[1] != 0 : 0)

static neap_status infer(neap_infer *c, neap_error *error) {
  NEAP_TRY(neap_infer_like(c, error));
  c->out[0].dtype = NEAP_DTYPE_BOOL;
  return NEAP_OK;
}

#define KIND                                                                              \
  .inputs = {{"x", "any shape"}}, .outputs = {{"y", "shape of x, bool", NEAP_BIT(BOOL)}}, \
  .infer = infer, .no_grad = true, .nan = NEAP_NAN_DECIDES,                               \
  .cases = "{ {x={2,3,7}}, {x={0,4}}, {x={}} }"

const neap_op neap_op_IsNaN = {
  .name = "IsNaN",
  .summary = "Whether an element is NaN.",
  .math = "y = x != x",
  .example = "net:IsNaN(\"x\", \"y\")",
  .source = "ONNX IsNaN-13",
  KIND,
  .special = "true where x is NaN",
  .kernels = NEAP_REF(run_IsNaN, NEAP_FLOATS),
};

const neap_op neap_op_IsInf = {
  .name = "IsInf",
  .summary = "Whether an element is an infinity.",
  .math = "y = |x| = infinity",
  .example = "net:IsInf(\"x\", \"y\", {negative = false})",
  .source = "ONNX IsInf-10",
  KIND,
  .attrs = {{"positive", "whether infinity counts", NEAP_ATTR_BOOL, .value = {.i = 1}},
            {"negative", "whether minus infinity counts", NEAP_ATTR_BOOL, .value = {.i = 1}}},
  .special = "false where x is NaN",
  .kernels = NEAP_REF(run_IsInf, NEAP_FLOATS),
};
