/* attention.c: attention in tiles. Heads and blocks of queries are dealt to threads in equal
 * ranges; every product inside runs on its own thread. See attention.h.
 *
 * INVARIANT: sums into dk and dv belong to one thread and run in query order: bits do not depend on
 * timing.
 */
#include "math/attention.h"

#include "math/row.h"

#include <string.h>

/* Edges of a tile of scores: so many queries by so many keys. One tile of f32 is 64 KiB. */
enum { QUERIES = 64, KEYS = 256 };

/* The tile loops twice: the header is written for a type REAL and these functions of it. */
#define REAL float
#define NAME(x) x##_f32
#define GEMM(...) neap_gemm_f32(a->engine, __VA_ARGS__)
#define ROW_MAX neap_row_max_f32
#define ROW_EXP neap_row_exp_f32
#define ROW_SCALE neap_row_scale_f32
#define ROW_DOT neap_row_dot_f32
#include "math/attention_tile.h"
#undef REAL
#undef NAME
#undef GEMM
#undef ROW_MAX
#undef ROW_EXP
#undef ROW_SCALE
#undef ROW_DOT
#define REAL double
#define NAME(x) x##_f64
#define GEMM neap_gemm_f64
#define ROW_MAX neap_row_max_f64
#define ROW_EXP neap_row_exp_f64
#define ROW_SCALE neap_row_scale_f64
#define ROW_DOT neap_row_dot_f64
#include "math/attention_tile.h"

/* Scratch of one thread: one tile of scores, two numbers a query and a row of values; backward two
 * tiles and one number a query. Naive: rows, and backward the sums of a key head in double. */
static size_t part_bytes(const neap_attention *a, bool backward) {
  size_t tile = (size_t)QUERIES * KEYS, n_key = (size_t)a->n_key,
         depths = (size_t)(a->depth + a->value_depth);
  if (a->engine == NEAP_ENGINE_REF) {
    size_t sums = backward ? n_key * depths + (size_t)a->depth : 0,
           rows = backward ? 2 * n_key : n_key;
    return neap_align(sums * sizeof(double) + rows * neap_dtype_bytes(a->dtype));
  }
  size_t elems = backward ? 2 * tile + QUERIES : tile + 2 * QUERIES + (size_t)a->value_depth;
  return neap_align(elems * neap_dtype_bytes(a->dtype));
}

/* The parts' scratch one after another, each aligned, so that no two threads share a cache line. */
size_t neap_attention_scratch_bytes(const neap_attention *a, bool backward) {
  return (size_t)a->n_part * part_bytes(a, backward);
}

/* One call and the number of its tasks, which are numbered from 0. */
typedef struct job {
  const neap_attention *a;
  bool backward;
  int64_t n_task;
} job;

/* Part p has the tasks [n p / parts, n (p + 1) / parts). */
static void run_parts(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  const neap_attention *a = j->a;
  bool wide = a->dtype == NEAP_DTYPE_F64;
  for (int64_t p = begin; p < end; p++) {
    void *scratch = (char *)a->scratch + (size_t)p * part_bytes(a, j->backward);
    for (int64_t task = j->n_task * p / a->n_part; task < j->n_task * (p + 1) / a->n_part; task++)
      if (j->backward)
        (wide ? backward_task_f64 : backward_task_f32)(a, task, scratch);
      else
        (wide ? forward_task_f64 : forward_task_f32)(a, task, scratch);
  }
}

/* A task is one block of queries of one head of one sequence: it writes rows of y that are nobody
 * else's. */
void neap_attention_forward(const neap_attention *a) {
  job j = {a, false, a->n_batch * a->n_head * ((a->n_query + QUERIES - 1) / QUERIES)};
  if (a->n_head > 0) neap_parallel_for(a->n_part, 1, a->n_part, run_parts, &j);
}

/* A task is one head of keys of one sequence, with all the queries that look at it: dk and dv have
 * one writer. */
void neap_attention_backward(const neap_attention *a) {
  job j = {a, true, a->n_batch * a->n_key_head};
  if (a->n_head > 0) neap_parallel_for(a->n_part, 1, a->n_part, run_parts, &j);
}
