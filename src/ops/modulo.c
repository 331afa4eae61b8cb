/* modulo.c: FloorDiv and Mod, what `//` and `%` mean in Lua and Python: the quotient is rounded
 * down, and the remainder has the sign of the divisor. A zero divisor of integers is a fault; the
 * element is 0.
 */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

/* C's remainder has the sign of x; where that is not the sign of y, one y more has it. A remainder
 * of 0 stays as it is. */
static inline float mod_f32(float x, float y) {
  float r = fmodf(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}
static inline double mod_f64(double x, double y) {
  double r = fmod(x, y);
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

NEAP_ROW_FLOATS(2, map2, FloorDiv, floor(x / y))
NEAP_ROW_FLOATS(2, map2, Mod, _Generic(x, float : mod_f32, double : mod_f64)(x, y))

/* The least integer over -1 would overflow: it wraps around to itself. */
static inline int64_t floor_div(int64_t x, int64_t y) {
  if (y == -1) return (int64_t)(0 - (uint64_t)x);
  return x / y - (x % y != 0 && (x < 0) != (y < 0));
}
/* -1 on its own: the least i64 % -1 overflows in C, although the remainder is 0. */
static inline int64_t floor_mod(int64_t x, int64_t y) {
  if (y == -1) return 0;
  int64_t r = x % y;
  return r != 0 && (r < 0) != (y < 0) ? r + y : r;
}

#define NEAP_BODY "ops/modulo_body.h"
#include "math/each_integer.h"
NEAP_ROW_RUN(FloorDiv, 2, NEAP_ROWS_FLOATS(FloorDiv), NEAP_ROWS_INTEGERS(FloorDiv))
NEAP_ROW_RUN(Mod, 2, NEAP_ROWS_FLOATS(Mod), NEAP_ROWS_INTEGERS(Mod))

/* a mod b = a - b floor(a / b) */
static neap_status grad_mod(neap_grad *g, neap_error *error) {
  (void)error;
  if (g->want[0]) g->din[0] = neap_grad_reduce_to(g, g->dout[0], g->in[0]);
  if (g->want[1]) {
    neap_value_id quotient = neap_grad_emit1(g, "FloorDiv", 2, g->in, NULL, NULL);
    neap_value_id product =
      neap_grad_emit1(g, "Mul", 2, (neap_value_id[]){g->dout[0], quotient}, NULL, NULL);
    neap_value_id sum = neap_grad_reduce_to(g, product, g->in[1]);
    g->din[1] = neap_grad_emit1(g, "Neg", 1, &sum, NULL, NULL);
  }
  return NEAP_OK;
}

#define BINARY                                                                            \
  .inputs = {{"a", "any shape", NEAP_NUMBERS}, {"b", "broadcasts with a", NEAP_NUMBERS}}, \
  .outputs = {{"y", "broadcast shape", NEAP_NUMBERS}}, .inplace = {{0, 0}, {1, 0}},       \
  .n_inplace = 2, .infer = neap_elementwise_infer, .effects = NEAP_EFFECT_FAULT

const neap_op neap_op_FloorDiv = {
  .name = "FloorDiv",
  .summary = "Quotient rounded down, element by element, with broadcasting: `//`.",
  .math = "y = floor(a / b)",
  .example = "net:FloorDiv({\"a\", \"b\"}, \"y\")",
  .source = "Lua 5.4 manual, 3.4.1",
  BINARY,
  .no_grad = true,
  .kernels = NEAP_REF(run_FloorDiv, NEAP_NUMBERS),
  .cases = "{ {a={{3,4}, low=-9, high=9}, b={{4}, low=1, high=3}}, {a={0,4}, b={4}} }",
};

const neap_op neap_op_Mod = {
  .name = "Mod",
  .summary = "Remainder with the sign of the divisor, element by element, with broadcasting: `%`.",
  .math = "y = a - b floor(a / b)",
  .example = "net:Mod({\"a\", \"b\"}, \"y\")",
  .source = "Lua 5.4 manual, 3.4.1",
  BINARY,
  .grad = grad_mod,
  .infinity = NEAP_INFINITY_BLURS,
  .kernels = NEAP_REF(run_Mod, NEAP_NUMBERS),
  .cases =
    "{ {a={{3,4}, low=0.2, high=0.9}, b={{4}, low=1, high=3}}, {a={0,4}, b={4}}, "
    "{a={{3,4}, low=-9, high=9}, b={{4}, low=1, high=3}, grad=false} }",
};
