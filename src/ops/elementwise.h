/* ops/elementwise.h: what elementwise ops share. Their kernels are written as *row loops*: a
 * function over one stretch of elements, made by a macro from one expression. neap_elementwise_run
 * finds the stretches (broadcasting, threads, layouts) and calls it; so an op is its expression,
 * its record and nothing else.
 *
 * INVARIANT: a row loop reads element i of every input before it writes element i of the output and
 * nothing after, so that the output may be any of the inputs that step. `GCC ivdep` tells the
 * compiler that this is all the overlap there is, so that it needs no checks.
 */
/* clang-format off: tables of expressions, which it takes for statements */
#ifndef NEAP_OPS_ELEMENTWISE_H
#define NEAP_OPS_ELEMENTWISE_H

#include "math/vec.h"
#include "ops/op.h"

enum { NEAP_ROW_MAX_IN = 4 };

/* One stretch: n elements of the output, and of each input either n elements (step 1) or one for
 * all of them (step 0). */
typedef struct neap_row {
  const void *in[NEAP_ROW_MAX_IN];
  int64_t step[NEAP_ROW_MAX_IN];
  void *out;
  int64_t n;
  const neap_call *call; /* attributes, faults */
} neap_row;

typedef void (*neap_row_loop)(const neap_row *row);

/* Runs `loop` over output 0 of the call, with inputs [0, n_in) broadcast to it. Where all shapes
 * are equal it runs over the lanes of whatever layout the operands have, padding included. */
void neap_elementwise_run(const neap_call *call, int n_in, neap_row_loop loop);

/* Output 0 has the broadcast shape of all inputs (NumPy's rule); dtype and dtype checks are the
 * caller's. */
neap_status neap_elementwise_infer_shape(neap_infer *infer, neap_error *error);
/* The same with equal dtypes, which output 0 has too. */
neap_status neap_elementwise_infer(neap_infer *infer, neap_error *error);

/* x = in 0 of type T, to an output of type OUT. `setup` holds declarations made once a stretch,
 * e.g. from attributes. */
#define NEAP_ROW1(name, T, OUT, setup, ...)                      \
  NEAP_MULTIVERSION static void name(const neap_row *row) {      \
    const T *in = row->in[0];                                    \
    OUT *out = row->out;                                         \
    const int64_t n = row->n;                                    \
    setup _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) { \
      const T x = in[i];                                         \
      out[i] = (OUT)(__VA_ARGS__);                               \
    }                                                            \
  }

/* x = in 0, y = in 1, all of one shape: backward loops, where y is the gradient that arrives. */
#define NEAP_ROW2_SAME(name, T, OUT, setup, ...)                 \
  NEAP_MULTIVERSION static void name(const neap_row *row) {      \
    const T *in0 = row->in[0], *in1 = row->in[1];                \
    OUT *out = row->out;                                         \
    const int64_t n = row->n;                                    \
    setup _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) { \
      const T x = in0[i], y = in1[i];                            \
      out[i] = (OUT)(__VA_ARGS__);                               \
    }                                                            \
  }

/* x = in 0, y = in 1, either of which may be one element: three loops, each with constant steps, so
 * that each is vector code. (Both steps 0 occurs only for n = 1, where any of them will do.) */
#define NEAP_ROW2(name, T, OUT, setup, ...)                  \
  NEAP_MULTIVERSION static void name(const neap_row *row) {  \
    const T *in0 = row->in[0], *in1 = row->in[1];            \
    OUT *out = row->out;                                     \
    const int64_t n = row->n;                                \
    setup if (row->step[0] == 0) {                           \
      const T x = in0[0];                                    \
      _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) { \
        const T y = in1[i];                                  \
        out[i] = (OUT)(__VA_ARGS__);                         \
      }                                                      \
    }                                                        \
    else if (row->step[1] == 0) {                            \
      const T y = in1[0];                                    \
      _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) { \
        const T x = in0[i];                                  \
        out[i] = (OUT)(__VA_ARGS__);                         \
      }                                                      \
    }                                                        \
    else {                                                   \
      _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) { \
        const T x = in0[i], y = in1[i];                      \
        out[i] = (OUT)(__VA_ARGS__);                         \
      }                                                      \
    }                                                        \
  }

/* x = in 0 of type T0, y and z = in 1 and in 2; vector code when all step. */
#define NEAP_ROW3(name, T0, T, OUT, setup, ...)                                        \
  NEAP_MULTIVERSION static void name(const neap_row *row) {                            \
    const T0 *in0 = row->in[0];                                                        \
    const T *in1 = row->in[1], *in2 = row->in[2];                                      \
    OUT *out = row->out;                                                               \
    const int64_t n = row->n, s0 = row->step[0], s1 = row->step[1], s2 = row->step[2]; \
    setup if (s0 + s1 + s2 == 3) {                                                     \
      _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {                           \
        const T0 x = in0[i];                                                           \
        const T y = in1[i], z = in2[i];                                                \
        out[i] = (OUT)(__VA_ARGS__);                                                   \
      }                                                                                \
    }                                                                                  \
    else {                                                                             \
      _Pragma("GCC ivdep") for (int64_t i = 0; i < n; i++) {                           \
        const T0 x = in0[i * s0];                                                      \
        const T y = in1[i * s1], z = in2[i * s2];                                      \
        out[i] = (OUT)(__VA_ARGS__);                                                   \
      }                                                                                \
    }                                                                                  \
  }

/* The loops NAME_i8, NAME_u8, ... of one expression for all integers: to the same dtype, or to
 * OUT. */
#define NEAP_ROW1_OF(symbol, suffix, T, NAME, ...) NEAP_ROW1(NAME##_##suffix, T, T, , __VA_ARGS__)
#define NEAP_ROW2_OF(symbol, suffix, T, NAME, ...) NEAP_ROW2(NAME##_##suffix, T, T, , __VA_ARGS__)
#define NEAP_ROW2_TO(symbol, suffix, T, NAME, OUT, ...) \
  NEAP_ROW2(NAME##_##suffix, T, OUT, , __VA_ARGS__)
#define NEAP_ROW1_SIGNED(NAME, ...) NEAP_EACH_SIGNED(NEAP_ROW1_OF, NAME, __VA_ARGS__)
#define NEAP_ROW1_UNSIGNED(NAME, ...) NEAP_EACH_UNSIGNED(NEAP_ROW1_OF, NAME, __VA_ARGS__)
#define NEAP_ROW2_INTEGERS(NAME, ...) NEAP_EACH_INTEGER(NEAP_ROW2_OF, NAME, __VA_ARGS__)
#define NEAP_ROW2_INTEGERS_TO(NAME, OUT, ...) \
  NEAP_EACH_INTEGER(NEAP_ROW2_TO, NAME, OUT, __VA_ARGS__)

/* Tables of the loops NAME_f32, NAME_f64, ... by dtype, those of integers last in their table; and
 * the `run` that looks up the dtype of input 0. */
#define NEAP_ROW_ENTRY(symbol, suffix, T, NAME) [NEAP_DTYPE_##symbol] = NAME##_##suffix,
#define NEAP_ROWS_FLOATS(NAME) [NEAP_DTYPE_F32] = NAME##_f32, [NEAP_DTYPE_F64] = NAME##_f64
#define NEAP_ROWS_INTEGERS(NAME) NEAP_EACH_INTEGER(NEAP_ROW_ENTRY, NAME)
#define NEAP_ROW_RUN(NAME, n_in, ...)                                      \
  static const neap_row_loop rows_##NAME[NEAP_N_DTYPE] = {__VA_ARGS__};    \
  static void run_##NAME(const neap_call *call) {                          \
    neap_elementwise_run(call, n_in, rows_##NAME[call->in[0].type.dtype]); \
  }

/* The kernel list of an op that has only the plain C kernel. */
#define NEAP_REF(run_function)                                                \
  (const neap_kernel[]) {                                                     \
    {.engine = NEAP_ENGINE_REF, .any_team = true, .run = run_function}, { 0 } \
  }
/* For kernels that map zero to zero, whatever the layout. */
#define NEAP_REF_ANY_LAYOUT(run_function)                                                         \
  (const neap_kernel[]) {                                                                         \
    {.engine = NEAP_ENGINE_REF, .any_team = true, .any_layout = true, .run = run_function}, { 0 } \
  }

#endif
