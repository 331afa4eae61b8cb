/* bitwise.c: BitwiseAnd, BitwiseOr, BitwiseXor and BitwiseNot of integers, with NumPy broadcasting,
 * and ShiftLeft and ShiftRight.
 *
 * A shift takes its distance as it is written in the operand; by the width or more, or by less than
 * 0, it leaves nothing: 0, or -1 of a negative number shifted right. C leaves that undefined.
 */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

#define BITS(n, map, NAME, ...)                \
  NEAP_ROW_INTEGERS(n, map, NAME, __VA_ARGS__) \
  NEAP_ROW_RUN(NAME, n, NEAP_ROWS_INTEGERS(NAME))
BITS(2, map2, BitwiseAnd, x &y)
BITS(2, map2, BitwiseOr, x | y)
BITS(2, map2, BitwiseXor, x ^ y)
BITS(1, map1, BitwiseNot, ~x)

/* Through 64 unsigned bits, of which the low ones are right for every width. */
#define FITS(y) ((uint64_t)(y) < 8 * sizeof(T))
BITS(2, map2, ShiftLeft, FITS(y) ? (uint64_t)x << y : 0)
NEAP_ROW_SIGNED(2, map2, ShiftRight, FITS(y) ? x >> y : x < 0 ? -1 : 0)
NEAP_ROW_UNSIGNED(2, map2, ShiftRight, FITS(y) ? x >> y : 0)
NEAP_ROW_RUN(ShiftRight, 2, NEAP_ROWS_INTEGERS(ShiftRight))

#define BINARY                                                                              \
  .inputs = {{"a", "any shape, integers", NEAP_INTEGERS},                                   \
             {"b", "broadcasts with a", NEAP_INTEGERS}},                                    \
  .outputs = {{"y", "broadcast shape", NEAP_INTEGERS}}, .inplace = {{0, 0}, {1, 0}},        \
  .n_inplace = 2, .infer = neap_elementwise_infer, .no_grad = true,                         \
  .cases =                                                                                  \
    "{ {a={{3,4}, dtype=\"i32\", low=0, high=90}, b={{4}, dtype=\"i32\", low=0, high=9}}, " \
    "{a={{3,4}, dtype=\"u8\", low=0, high=90}, b={{3,4}, dtype=\"u8\", low=0, high=9}}, "   \
    "{a={{0,4}, dtype=\"i64\"}, b={{4}, dtype=\"i64\"}} }"

const neap_op neap_op_BitwiseAnd = {
  .name = "BitwiseAnd",
  .summary = "The bits that both integers have, with broadcasting.",
  .math = "y = a & b",
  .example = "net:BitwiseAnd({\"a\", \"b\"}, \"y\")",
  .source = "ONNX BitwiseAnd-18",
  BINARY,
  .kernels = NEAP_REF(run_BitwiseAnd, NEAP_INTEGERS),
};

const neap_op neap_op_BitwiseOr = {
  .name = "BitwiseOr",
  .summary = "The bits that either integer has, with broadcasting.",
  .math = "y = a | b",
  .example = "net:BitwiseOr({\"a\", \"b\"}, \"y\")",
  .source = "ONNX BitwiseOr-18",
  BINARY,
  .kernels = NEAP_REF(run_BitwiseOr, NEAP_INTEGERS),
};

const neap_op neap_op_BitwiseXor = {
  .name = "BitwiseXor",
  .summary = "The bits in which two integers differ, with broadcasting.",
  .math = "y = a ^ b",
  .example = "net:BitwiseXor({\"a\", \"b\"}, \"y\")",
  .source = "ONNX BitwiseXor-18",
  BINARY,
  .kernels = NEAP_REF(run_BitwiseXor, NEAP_INTEGERS),
};

const neap_op neap_op_BitwiseNot = {
  .name = "BitwiseNot",
  .summary = "All bits of an integer the other way round.",
  .math = "y = ~x",
  .example = "net:BitwiseNot(\"x\", \"y\")",
  .source = "ONNX BitwiseNot-18",
  .inputs = {{"x", "any shape, integers", NEAP_INTEGERS}},
  .outputs = {{"y", "shape of x", NEAP_INTEGERS}},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .infer = neap_infer_like,
  .no_grad = true,
  .kernels = NEAP_REF(run_BitwiseNot, NEAP_INTEGERS),
  .cases = "{ {x={{3,4}, dtype=\"i32\", low=-9, high=9}}, {x={{0,4}, dtype=\"u8\"}} }",
};

const neap_op neap_op_ShiftLeft = {
  .name = "ShiftLeft",
  .summary = "Bits of an integer moved up by so many places, with broadcasting.",
  .math = "y = a 2^b",
  .example = "net:ShiftLeft({\"a\", \"b\"}, \"y\")",
  .source = "ONNX BitShift-11",
  BINARY,
  .special = "0 where b is no place of the width",
  .kernels = NEAP_REF(run_ShiftLeft, NEAP_INTEGERS),
};

const neap_op neap_op_ShiftRight = {
  .name = "ShiftRight",
  .summary = "Bits of an integer moved down by so many places, the sign with them.",
  .math = "y = floor(a / 2^b)",
  .example = "net:ShiftRight({\"a\", \"b\"}, \"y\")",
  .source = "ONNX BitShift-11",
  BINARY,
  .special = "0 where b is no place of the width, -1 of a negative a",
  .kernels = NEAP_REF(run_ShiftRight, NEAP_INTEGERS),
};
