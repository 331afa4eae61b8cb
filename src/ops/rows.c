/* rows.c: see rows.h. */
#include "ops/rows.h"

/* Bytes of one thread's tile. */
static size_t tile_bytes(neap_dtype dtype, int64_t n_row, int64_t n) {
  if (!neap_is_half(dtype)) return 0;
  return neap_align(neap_size_of(neap_count_mul(n_row, n), sizeof(float)));
}

size_t neap_rows_bytes(neap_dtype dtype, int64_t n_thread, int64_t n_row, int64_t n) {
  return neap_size_of(n_thread, tile_bytes(dtype, n_row, n));
}

/* One call: items [0, n) in as many parts as there are tiles. */
typedef struct rows_job {
  neap_rows_body body;
  void *context;
  char *tiles;
  size_t tile_bytes;
  int64_t n;
  int n_part;
} rows_job;

static void run_in_place(void *context, int64_t begin, int64_t end) {
  const rows_job *j = context;
  j->body(j->context, begin, end, NULL);
}

/* Parts [begin, end): part p has the items [n p / parts, n (p + 1) / parts). */
static void run_parts(void *context, int64_t begin, int64_t end) {
  const rows_job *j = context;
  for (int64_t p = begin; p < end; p++)
    j->body(j->context, j->n * p / j->n_part, j->n * (p + 1) / j->n_part,
            (float *)(void *)(j->tiles + (size_t)p * j->tile_bytes));
}

/* As many parts as the choice has threads, even when fewer run, and no more than the work is worth:
 * each has a tile of its own. */
void neap_rows_run(const neap_call *call, neap_dtype dtype, void *scratch, int64_t n_row,
                   int64_t row_elems, int64_t n, int64_t grain, neap_rows_body body,
                   void *context) {
  rows_job j = {body, context, scratch, tile_bytes(dtype, n_row, row_elems), n, 1};
  NEAP_ASSERT(call->n_thread >= 1 && call->choice->n_thread >= 1, "%s runs on %d threads of %d",
              call->op->name, call->n_thread, call->choice->n_thread);
  /* Rows without elements have no tile either. */
  if (!neap_is_half(dtype) || j.tile_bytes == 0) {
    neap_parallel_for(n, grain, call->n_thread, run_in_place, &j);
    return;
  }
  /* Parts by the choice and not by the threads at hand: the scratch was measured so. */
  j.n_part = (int)NEAP_MIN((n + grain - 1) / grain, call->choice->n_thread);
  NEAP_ASSERT(j.n_part == 0 || (char *)scratch + (size_t)j.n_part * j.tile_bytes <=
                                 (char *)call->scratch + call->choice->scratch_bytes,
              "%s has %zu bytes of scratch, too few for its tiles", call->op->name,
              call->choice->scratch_bytes);
  neap_parallel_for(j.n_part, 1, call->n_thread, run_parts, &j);
}

const void *neap_row_load(const neap_operand *x, int64_t at, int64_t n_piece, int64_t step,
                          int64_t n, float *tile) {
  if (!neap_is_half(x->type.dtype)) return neap_element_at(x, at);
  if (n == 0) return tile; /* which may be NULL then */
  /* Pieces lie dense in the tile, whatever their distance. */
  for (int64_t i = 0; i < n_piece; i++)
    neap_cast(NEAP_DTYPE_F32, tile + i * n, x->type.dtype, neap_element_at(x, at + i * step), n);
  return tile;
}

void neap_row_store(const neap_operand *y, int64_t at, int64_t n_piece, int64_t step, int64_t n,
                    const float *tile) {
  if (!neap_is_half(y->type.dtype) || n == 0) return;
  for (int64_t i = 0; i < n_piece; i++)
    neap_cast(y->type.dtype, neap_element_at(y, at + i * step), NEAP_DTYPE_F32, tile + i * n, n);
}

/* Rows are widened in tiles, several at once where they follow one another. */
void neap_rows_add_halves(const neap_operand *x, int64_t at, int64_t m, int64_t step, int64_t n,
                          double *total) {
  float tile[NEAP_TILE];
  /* Rows without a gap are one run of elements: as many as a tile has room for. */
  const int64_t at_once = step == n ? NEAP_TILE / n : 1;
  for (int64_t i = 0; i < m; i += at_once) {
    const int64_t elems = NEAP_MIN(at_once, m - i) * n;
    const float *row = neap_tile_load(x, at + i * step, elems, tile);
    for (int64_t r = 0; r < elems; r += n)
      for (int64_t j = 0; j < n; j++) total[j] += (double)row[r + j];
  }
}

void neap_rows_put_halves(const neap_operand *y, int64_t at, int64_t n, const double *total) {
  float tile[NEAP_TILE];
  for (int64_t j = 0; j < n; j++) tile[j] = (float)total[j];
  neap_cast(y->type.dtype, neap_element_at(y, at), NEAP_DTYPE_F32, tile, n);
}
