/* compare.c: Eq Ne Lt Le Gt Ge of two tensors, with broadcasting, to bool. NaN equals nothing,
 * itself included.
 *
 * Rows are compared in the operands' own type, so that integers beyond 2^53 and small floats
 * compare as what they are. The result is a byte of 0 or 1 for each element. Nothing is
 * differentiable here: a comparison is flat wherever it has a slope.
 */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

/* One comparison for all dtypes; bool is compared as the bytes 0 and 1 that it is made of. */
#define COMPARE_ROW(symbol, suffix, type, NAME, ...) \
  NEAP_ROW_TO(2, map2_to_bool, suffix, type, uint8_t, NAME, __VA_ARGS__)
#define COMPARE(NAME, ...)                                                     \
  COMPARE_ROW(F32, f32, float, NAME, __VA_ARGS__)                              \
  COMPARE_ROW(F64, f64, double, NAME, __VA_ARGS__)                             \
  NEAP_EACH_INTEGER(COMPARE_ROW, NAME, __VA_ARGS__)                            \
  NEAP_ROW_RUN(NAME, 2, NEAP_ROWS_FLOATS(NAME), [NEAP_DTYPE_BOOL] = NAME##_u8, \
               NEAP_ROWS_INTEGERS(NAME))
COMPARE(Eq, x == y)
COMPARE(Ne, x != y)
COMPARE(Lt, x < y)
COMPARE(Le, x <= y)
COMPARE(Gt, x > y)
COMPARE(Ge, x >= y)

/* Shapes broadcast as those of arithmetic do; only the dtype is another. */
static neap_status infer(neap_infer *c, neap_error *error) {
  NEAP_TRY(neap_elementwise_infer(c, error));
  c->out[0].dtype = NEAP_DTYPE_BOOL;
  return NEAP_OK;
}

#define COMPARABLE (NEAP_NUMBERS | NEAP_BIT(BOOL))
/* What the records have in common. No in place: a byte an element does not lie where four or eight
 * did. */
#define COMPARISON                                                                              \
  .source = "NumPy comparison functions",                                                       \
  .inputs = {{"a", "any shape", COMPARABLE}, {"b", "broadcasts with a", COMPARABLE}},           \
  .outputs = {{"y", "broadcast shape, bool", NEAP_BIT(BOOL)}}, .infer = infer, .no_grad = true, \
  .cases =                                                                                      \
    "{ {a={3,4}, b={3,4}}, {a={3,4}, b={4}}, {a={3,4}, b={3,1}}, {a={2,3,4}, b={}}, {a={0,4}, " \
    "b={4}}, "                                                                                  \
    "{a={{3,4}, dtype=\"i64\"}, b={{4}, dtype=\"i64\"}} }"

const neap_op neap_op_Eq = {
  .name = "Eq",
  .summary = "Whether two tensors are equal, element by element, with broadcasting.",
  .math = "y = a = b",
  .example = "net:Eq({\"a\", \"b\"}, \"y\")",
  COMPARISON,
  .nan = NEAP_NAN_DECIDES,
  .special = "NaN equals nothing",
  .kernels = NEAP_REF(run_Eq, COMPARABLE),
};

const neap_op neap_op_Ne = {
  .name = "Ne",
  .summary = "Whether two tensors differ, element by element, with broadcasting.",
  .math = "y = a != b",
  .example = "net:Ne({\"a\", \"b\"}, \"y\")",
  COMPARISON,
  .nan = NEAP_NAN_DECIDES,
  .special = "NaN differs from all, itself included",
  .kernels = NEAP_REF(run_Ne, COMPARABLE),
};

const neap_op neap_op_Lt = {
  .name = "Lt",
  .summary = "Whether the first tensor is less, element by element, with broadcasting.",
  .math = "y = a < b",
  .example = "net:Lt({\"a\", \"b\"}, \"y\")",
  COMPARISON,
  .nan = NEAP_NAN_DECIDES,
  .special = "with NaN false",
  .kernels = NEAP_REF(run_Lt, COMPARABLE),
};

const neap_op neap_op_Le = {
  .name = "Le",
  .summary = "Whether the first tensor is less or equal, element by element, with broadcasting.",
  .math = "y = a <= b",
  .example = "net:Le({\"a\", \"b\"}, \"y\")",
  COMPARISON,
  .nan = NEAP_NAN_DECIDES,
  .special = "with NaN false",
  .kernels = NEAP_REF(run_Le, COMPARABLE),
};

const neap_op neap_op_Gt = {
  .name = "Gt",
  .summary = "Whether the first tensor is greater, element by element, with broadcasting.",
  .math = "y = a > b",
  .example = "net:Gt({\"a\", \"b\"}, \"y\")",
  COMPARISON,
  .nan = NEAP_NAN_DECIDES,
  .special = "with NaN false",
  .kernels = NEAP_REF(run_Gt, COMPARABLE),
};

const neap_op neap_op_Ge = {
  .name = "Ge",
  .summary = "Whether the first tensor is greater or equal, element by element, with broadcasting.",
  .math = "y = a >= b",
  .example = "net:Ge({\"a\", \"b\"}, \"y\")",
  COMPARISON,
  .nan = NEAP_NAN_DECIDES,
  .special = "with NaN false",
  .kernels = NEAP_REF(run_Ge, COMPARABLE),
};
