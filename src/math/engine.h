/* math/engine.h: the engines: who computes. One list; everything that has to know which engines
 * there are (choices, options, the environment, keys of plans, help, Lua, tests) reads it.
 *
 * An engine is a line of NEAP_ENGINES and a record, neap_engine_NAME, in a file of its own; what
 * its library needs to be compiled and linked stands in math/NAME.mk. Kernels of an op name the
 * engine that they are of; those of an engine that can't be had are never asked.
 *
 * INVARIANT: names are stored with plans and written by users: they stay.
 */
#ifndef NEAP_MATH_ENGINE_H
#define NEAP_MATH_ENGINE_H

#include "tensor/tensor.h"

/* " ref blas dnnl", as string literals one after the other. */
#define NEAP_ENGINE_WORD(VALUE, name) " " #name
#define NEAP_ENGINE_WORDS NEAP_ENGINES(NEAP_ENGINE_WORD)

typedef struct neap_engine_record {
  const char *name;
  const char *doc; /* whose code it is, in a few words */
  unsigned dtypes; /* no kernel of it computes other floats */
  /* why it can't be had, in this build or on this machine; NULL: it can. As long as the process
   * runs the answer is the same. */
  const char *(*missing)(void);
  /* of its library: a part of the key of every plan, because another one may want other bytes.
   * Returns text. NULL: it is Neap's own code */
  const char *(*version)(char text[24]);
  /* C (M,N) = alpha A' B' + beta C, as neap_gemm_f32. False, C untouched: it refuses, and OpenBLAS
   * computes it. NULL: it has none */
  bool (*gemm_f32)(bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k, float alpha,
                   const float *a, int64_t lda, const float *b, int64_t ldb, float beta, float *c,
                   int64_t ldc, int n_thread);
  /* from which depth on products of few rows are better off with Neap's own loop (math/blas.h) */
  int64_t few_rows_depth;
} neap_engine_record;

const neap_engine_record *neap_engine_at(neap_engine engine);
/* "?" for a number that is no engine's. */
const char *neap_engine_name(neap_engine engine);
bool neap_engine_from_name(const char *name, neap_engine *engine);
/* The engine of a name that a user wrote. ARGUMENT error for one that there is not, with the
 * nearest, and for one that can't be had, with the reason. */
neap_status neap_engine_take(const char *name, neap_engine *engine, neap_error *error);

#endif
