/* ops/elementwise.h: what elementwise ops share. An op is the function of one element, its record
 * and nothing else. neap_elementwise_run finds stretches of elements (broadcasting, threads,
 * layouts) and calls a *row loop* on each; row loops are made of the one function by the macros
 * below (row_loops.h has the loops themselves).
 *
 *     NEAP_MAP1(Silu, x * neap_sigmoid(x))
 *
 * gives run_Silu, for every float type. The expression is computed in T, which is float or double;
 * a fraction is written (T)0.5, so that it is of that type. bf16 and f16 are computed as float: a
 * tile of elements is widened, and rounded once when it is stored.
 *
 * INVARIANT: a row loop reads element i of every input before it writes element i of the outputs
 * and nothing after, so that an output may be any of the inputs that step. `GCC ivdep` tells the
 * compiler that this is all the overlap there is, so that it needs no checks.
 */
#ifndef NEAP_OPS_ELEMENTWISE_H
#define NEAP_OPS_ELEMENTWISE_H

#include "math/vec.h"
#include "ops/op.h"
#include "ops/tile.h"

#include <tgmath.h>

enum { NEAP_ROW_MAX_IN = 5, NEAP_ROW_MAX_OUT = 4, NEAP_ROW_MAX_PARAM = 8 };

/* One stretch: n elements of each output, and of each input either n elements (step 1) or one for
 * all of them (step 0). */
typedef struct neap_row {
  const void *in[NEAP_ROW_MAX_IN];
  int64_t step[NEAP_ROW_MAX_IN];
  void *out[NEAP_ROW_MAX_OUT];
  int64_t n;
  const double *param;   /* NEAP_ROW_MAX_PARAM numbers, what the op makes of its attributes */
  const neap_call *call; /* faults */
} neap_row;

typedef void (*neap_row_loop)(const neap_row *row);

/* Runs over output 0 of the call, with inputs [0, n_in) broadcast to it. Where all shapes are equal
 * it runs over the lanes of whatever layout the operands have, padding included. `loops`: by the
 * dtype of input 0; bf16 and f16 take that of f32. The parameters are the numbers among the op's
 * first attributes (FLOAT, else 0). */
void neap_elementwise_run(const neap_call *call, int n_in, const neap_row_loop loops[NEAP_N_DTYPE]);
/* The same with `param`, of which there are NEAP_ROW_MAX_PARAM. */
void neap_elementwise_run_param(const neap_call *call, int n_in,
                                const neap_row_loop loops[NEAP_N_DTYPE], const double *param);
/* The same for some of the operands: the inputs in[0..n_in-1] and outputs out[0..n_out-1] of the
 * call, of which any but the first may be absent: the row has NULL there. */
void neap_elementwise_run_on(const neap_call *call, int n_in, const int *in, int n_out,
                             const int *out, const neap_row_loop loops[NEAP_N_DTYPE],
                             const double *param);
/* For a loop that moves bytes, whatever they stand for. */
void neap_elementwise_move(const neap_call *call, int n_in, neap_row_loop loop);

/* Output 0 has the broadcast shape of all inputs (NumPy's rule); dtype and dtype checks are the
 * caller's. */
neap_status neap_elementwise_infer_shape(neap_infer *infer, neap_error *error);
/* The same with equal dtypes, which output 0 has too. */
neap_status neap_elementwise_infer(neap_infer *infer, neap_error *error);

/* ---- loops: map1_f32, map2_i64, ..; map2_to_bool_f32, ..; map2_to_f32_i64, .. --------------- */

#define NEAP_ROW_LOOP(name) name
#define OUT T
#define NEAP_BODY "ops/row_loops.h"
#include "math/each_float.h"
#define NEAP_BODY "ops/row_loops.h"
#include "math/each_integer.h"
#undef NEAP_ROW_LOOP
#undef OUT

#define NEAP_ROW_LOOP(name) NEAP_JOIN(name, _to_bool)
#define OUT uint8_t
#define NEAP_BODY "ops/row_loops.h"
#include "math/each_float.h"
#define NEAP_BODY "ops/row_loops.h"
#include "math/each_integer.h"
#undef NEAP_ROW_LOOP
#undef OUT

#define NEAP_ROW_LOOP(name) NEAP_JOIN(name, _to_f32)
#define OUT float
#define NEAP_BODY "ops/row_loops.h"
#include "math/each_integer.h"
#undef NEAP_ROW_LOOP
#undef OUT

/* ---- row loops of one expression: x, y and z are the elements, p the parameters -------------- */

/* clang-format off: pieces of functions */
#define NEAP_ROW_ARGS_1(type) type x
#define NEAP_ROW_ARGS_2(type) type x, type y
#define NEAP_ROW_ARGS_3(type) type x, type y, type z

/* The function of one element, and its row loop NAME_suffix by `map`; n elements go in. */
#define NEAP_ROW_TO(n, map, suffix, type, OUT, NAME, ...)                      \
  NEAP_INLINE OUT NAME##_of_##suffix(NEAP_ROW_ARGS_##n(type), const type *p) { \
    typedef type T;                                                            \
    (void)p, (void)sizeof(T);                                                  \
    return (OUT)(__VA_ARGS__);                                                 \
  }                                                                            \
  NEAP_MULTIVERSION static void NAME##_##suffix(const neap_row *row) {         \
    map##_##suffix(row, NAME##_of_##suffix);                                   \
  }
#define NEAP_ROW_FOR(n, map, suffix, type, NAME, ...) \
  NEAP_ROW_TO(n, map, suffix, type, type, NAME, __VA_ARGS__)
#define NEAP_ROW_OF(symbol, suffix, type, n, map, NAME, ...) \
  NEAP_ROW_FOR(n, map, suffix, type, NAME, __VA_ARGS__)
#define NEAP_ROW_FLOATS(n, map, NAME, ...)            \
  NEAP_ROW_FOR(n, map, f32, float, NAME, __VA_ARGS__) \
  NEAP_ROW_FOR(n, map, f64, double, NAME, __VA_ARGS__)
#define NEAP_ROW_SIGNED(n, map, NAME, ...) NEAP_EACH_SIGNED(NEAP_ROW_OF, n, map, NAME, __VA_ARGS__)
#define NEAP_ROW_UNSIGNED(n, map, NAME, ...) \
  NEAP_EACH_UNSIGNED(NEAP_ROW_OF, n, map, NAME, __VA_ARGS__)
#define NEAP_ROW_INTEGERS(n, map, NAME, ...) \
  NEAP_EACH_INTEGER(NEAP_ROW_OF, n, map, NAME, __VA_ARGS__)
/* clang-format on */

/* Tables of the loops NAME_f32, NAME_f64, ... by dtype, those of integers last in their table; and
 * the `run` that goes by the dtype of input 0. */
#define NEAP_ROW_ENTRY(symbol, suffix, T, NAME) [NEAP_DTYPE_##symbol] = NAME##_##suffix,
#define NEAP_ROWS_FLOATS(NAME) [NEAP_DTYPE_F32] = NAME##_f32, [NEAP_DTYPE_F64] = NAME##_f64
/* Those of math/each_element.h. */
#define NEAP_ELEMENTS(NAME) \
  NEAP_ROWS_FLOATS(NAME), [NEAP_DTYPE_BF16] = NAME##_bf16, [NEAP_DTYPE_F16] = NAME##_f16
#define NEAP_ROWS_INTEGERS(NAME) NEAP_EACH_INTEGER(NEAP_ROW_ENTRY, NAME)
#define NEAP_ROW_TABLE(NAME, ...) \
  static const neap_row_loop rows_##NAME[NEAP_N_DTYPE] = {__VA_ARGS__};
#define NEAP_ROW_RUN(NAME, n_in, ...) \
  NEAP_ROW_TABLE(NAME, __VA_ARGS__)   \
  static void run_##NAME(const neap_call *call) { neap_elementwise_run(call, n_in, rows_##NAME); }

/* run_NAME for floats: of one input; of two of one shape; of two, and three, that broadcast. */
#define NEAP_MAP1(NAME, ...)                  \
  NEAP_ROW_FLOATS(1, map1, NAME, __VA_ARGS__) \
  NEAP_ROW_RUN(NAME, 1, NEAP_ROWS_FLOATS(NAME))
#define NEAP_MAP2_SAME(NAME, ...)                  \
  NEAP_ROW_FLOATS(2, map2_same, NAME, __VA_ARGS__) \
  NEAP_ROW_RUN(NAME, 2, NEAP_ROWS_FLOATS(NAME))
#define NEAP_MAP2(NAME, ...)                  \
  NEAP_ROW_FLOATS(2, map2, NAME, __VA_ARGS__) \
  NEAP_ROW_RUN(NAME, 2, NEAP_ROWS_FLOATS(NAME))
#define NEAP_MAP3(NAME, ...)                  \
  NEAP_ROW_FLOATS(3, map3, NAME, __VA_ARGS__) \
  NEAP_ROW_RUN(NAME, 3, NEAP_ROWS_FLOATS(NAME))
/* run_NAME for all numbers, of one input and of two that broadcast. Integers are best computed on
 * 64 unsigned bits, where they wrap around and nothing is undefined. */
#define NEAP_MAP1_NUMBERS(NAME, float_expression, signed_expression, unsigned_expression) \
  NEAP_ROW_FLOATS(1, map1, NAME, float_expression)                                        \
  NEAP_ROW_SIGNED(1, map1, NAME, signed_expression)                                       \
  NEAP_ROW_UNSIGNED(1, map1, NAME, unsigned_expression)                                   \
  NEAP_ROW_RUN(NAME, 1, NEAP_ROWS_FLOATS(NAME), NEAP_ROWS_INTEGERS(NAME))
#define NEAP_MAP2_NUMBERS(NAME, float_expression, integer_expression) \
  NEAP_ROW_FLOATS(2, map2, NAME, float_expression)                    \
  NEAP_ROW_INTEGERS(2, map2, NAME, integer_expression)                \
  NEAP_ROW_RUN(NAME, 2, NEAP_ROWS_FLOATS(NAME), NEAP_ROWS_INTEGERS(NAME))

#endif
