/* logic.c: LogicalAnd, LogicalOr, LogicalXor and LogicalNot of bool tensors.
 *
 * INVARIANT: a bool is a byte of 0 or 1, so bits may be combined where truth values are meant;
 * whatever makes a bool tensor keeps it so.
 */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

/* Bool is computed as the bytes that it is made of. */
#define LOGIC_ROW(n, map, NAME, ...)                   \
  NEAP_ROW_FOR(n, map, u8, uint8_t, NAME, __VA_ARGS__) \
  NEAP_ROW_RUN(NAME, n, [NEAP_DTYPE_BOOL] = NAME##_u8)
LOGIC_ROW(2, map2, and, x &y)
LOGIC_ROW(2, map2, or, x | y)
LOGIC_ROW(2, map2, xor, x ^ y)
LOGIC_ROW(1, map1, not, x ^ 1)

/* Records of two operands. In place over either, where shapes are equal: the planner asks for
 * that. */
#define LOGIC                                                                              \
  .source = "NumPy logical functions",                                                     \
  .inputs = {{"a", "any shape, bool", NEAP_BIT(BOOL)},                                     \
             {"b", "broadcasts with a", NEAP_BIT(BOOL)}},                                  \
  .outputs = {{"y", "broadcast shape", NEAP_BIT(BOOL)}}, .inplace = {{0, 0}, {1, 0}},      \
  .n_inplace = 2, .infer = neap_elementwise_infer, .no_grad = true,                        \
  .cases =                                                                                 \
    "{ {a={{3,4}, dtype=\"bool\"}, b={{4}, dtype=\"bool\"}}, {a={{3,4}, dtype=\"bool\"}, " \
    "b={{3,4}, dtype=\"bool\"}} }"

const neap_op neap_op_LogicalAnd = {
  .name = "LogicalAnd",
  .summary = "Whether both are true, element by element, with broadcasting.",
  .math = "y = a and b",
  .example = "net:LogicalAnd({\"a\", \"b\"}, \"y\")",
  LOGIC,
  .kernels = NEAP_REF(run_and, NEAP_BIT(BOOL)),
};

const neap_op neap_op_LogicalOr = {
  .name = "LogicalOr",
  .summary = "Whether either is true, element by element, with broadcasting.",
  .math = "y = a or b",
  .example = "net:LogicalOr({\"a\", \"b\"}, \"y\")",
  LOGIC,
  .kernels = NEAP_REF(run_or, NEAP_BIT(BOOL)),
};

const neap_op neap_op_LogicalXor = {
  .name = "LogicalXor",
  .summary = "Whether exactly one is true, element by element, with broadcasting.",
  .math = "y = a != b",
  .example = "net:LogicalXor({\"a\", \"b\"}, \"y\")",
  LOGIC,
  .kernels = NEAP_REF(run_xor, NEAP_BIT(BOOL)),
};

const neap_op neap_op_LogicalNot = {
  .name = "LogicalNot",
  .summary = "Negation of a bool tensor, element by element.",
  .math = "y = not x",
  .example = "net:LogicalNot(\"x\", \"y\")",
  .source = "NumPy logical_not",
  .inputs = {{"x", "any shape, bool", NEAP_BIT(BOOL)}},
  .outputs = {{"y", "shape of x", NEAP_BIT(BOOL)}},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .infer = neap_infer_like,
  .no_grad = true,
  .kernels = NEAP_REF(run_not, NEAP_BIT(BOOL)),
  .cases = "{ {x={{3,4}, dtype=\"bool\"}}, {x={{0,4}, dtype=\"bool\"}} }",
};
