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
#define COMPARE(NAME, op)                                                      \
  NEAP_ROW2(NAME##_f32, float, uint8_t, , x op y)                              \
  NEAP_ROW2(NAME##_f64, double, uint8_t, , x op y)                             \
  NEAP_ROW2_INTEGERS_TO(NAME, uint8_t, x op y)                                 \
  NEAP_ROW_RUN(NAME, 2, NEAP_ROWS_FLOATS(NAME), [NEAP_DTYPE_BOOL] = NAME##_u8, \
               NEAP_ROWS_INTEGERS(NAME))
COMPARE(Eq, ==)
COMPARE(Ne, !=)
COMPARE(Lt, <)
COMPARE(Le, <=)
COMPARE(Gt, >)
COMPARE(Ge, >=)

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
  .kernels = NEAP_REF(run_Eq),
};

const neap_op neap_op_Ne = {
  .name = "Ne",
  .summary = "Whether two tensors differ, element by element, with broadcasting.",
  .math = "y = a != b",
  .example = "net:Ne({\"a\", \"b\"}, \"y\")",
  COMPARISON,
  .nan = NEAP_NAN_DECIDES,
  .special = "NaN differs from all, itself included",
  .kernels = NEAP_REF(run_Ne),
};

const neap_op neap_op_Lt = {
  .name = "Lt",
  .summary = "Whether the first tensor is less, element by element, with broadcasting.",
  .math = "y = a < b",
  .example = "net:Lt({\"a\", \"b\"}, \"y\")",
  COMPARISON,
  .nan = NEAP_NAN_DECIDES,
  .special = "with NaN false",
  .kernels = NEAP_REF(run_Lt),
};

const neap_op neap_op_Le = {
  .name = "Le",
  .summary = "Whether the first tensor is less or equal, element by element, with broadcasting.",
  .math = "y = a <= b",
  .example = "net:Le({\"a\", \"b\"}, \"y\")",
  COMPARISON,
  .nan = NEAP_NAN_DECIDES,
  .special = "with NaN false",
  .kernels = NEAP_REF(run_Le),
};

const neap_op neap_op_Gt = {
  .name = "Gt",
  .summary = "Whether the first tensor is greater, element by element, with broadcasting.",
  .math = "y = a > b",
  .example = "net:Gt({\"a\", \"b\"}, \"y\")",
  COMPARISON,
  .nan = NEAP_NAN_DECIDES,
  .special = "with NaN false",
  .kernels = NEAP_REF(run_Gt),
};

const neap_op neap_op_Ge = {
  .name = "Ge",
  .summary = "Whether the first tensor is greater or equal, element by element, with broadcasting.",
  .math = "y = a >= b",
  .example = "net:Ge({\"a\", \"b\"}, \"y\")",
  COMPARISON,
  .nan = NEAP_NAN_DECIDES,
  .special = "with NaN false",
  .kernels = NEAP_REF(run_Ge),
};
