/* pack.c: offsets for blocks, so that blocks that conflict share no byte and the total is small.
 *
 * Blocks conflict when their lives overlap on a line of steps, or as a matrix says. Greedy orders
 * come first. What they leave to be gained is looked for by an exact search on a line, and by a
 * local search over orders where the exact one can't be had. Each stops as soon as the lower bound
 * is reached, which proves the result.
 * INVARIANT: lower bound <= total; the lower bound is the most bytes in blocks that conflict
 * pairwise, as far as known: on a line the exact maximum over steps; for a matrix the best clique
 * found greedily, or what the caller knows.
 */
#include "pack/pack_int.h"

#include <stdlib.h>
#include <string.h>

#define DEFAULT_STEPS INT64_C(4000000000)

/* The most bytes live at one step. */
static neap_status line_bound(const neap_pack_work *w, size_t *bound, neap_error *error) {
  /* All blocks alive at one step conflict pairwise, so no packing is smaller than their sum. */
  neap_peak peak;
  neap_interval *life = neap_alloc(((size_t)w->n + 1) * sizeof *life);
  if (life == NULL)
    return neap_fail_memory(error, (size_t)w->n * sizeof *life, "the lower bound of a packing");
  for (int b = 0; b < w->n; b++) life[b] = neap_block_life(&w->block[b]);
  neap_status status = neap_interval_peak(w->n, life, &peak, error);
  neap_free(life);
  if (status == NEAP_OK) *bound = peak.bytes;
  return status;
}

/* Cliques tried for the bound of a matrix. A heaviest clique is NP-hard to find, and any clique is
 * a valid bound. */
enum { N_SEED = 64 };

typedef struct sized {
  size_t bytes;
  int index; /* of the block */
} sized;

/* Largest first, then by index. */
static int compare_sizes(const void *a, const void *b) {
  const sized *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return x->index < y->index ? -1 : 1;
}

/* Bytes of the clique that holds `seed` and then every block, largest first, that conflicts with
 * all taken so far. `left`: room for a row, the blocks that conflict with all of the clique. O(n +
 * clique * n_word). */
static size_t clique_bytes(const neap_pack_work *w, const sized *by_size, int seed,
                           uint64_t *left) {
  size_t words = (size_t)w->n_word, bytes = w->block[seed].bytes;

  /* At first the candidates are the seed's neighbours; each block taken leaves only its own. */
  memcpy(left, w->conflict + (size_t)seed * words, words * sizeof *left);
  for (int i = 0; i < w->n; i++) {
    int b = by_size[i].index;
    if (b == seed || !neap_bit(left, b)) continue;
    bytes += w->block[b].bytes;
    for (size_t k = 0; k < words; k++) left[k] &= w->conflict[(size_t)b * words + k];
  }
  return bytes;
}

/* The heaviest of the cliques grown from the largest blocks. */
static neap_status clique_bound(const neap_pack_work *w, size_t *bound, neap_error *error) {
  /* By size, since each clique is grown with the largest block that still fits into it. */
  size_t n = (size_t)w->n, words = (size_t)w->n_word;
  sized *by_size = neap_alloc(n * sizeof *by_size);
  uint64_t *left = neap_alloc(words * sizeof *left);
  neap_status status = NEAP_OK;
  if (by_size == NULL || left == NULL) {
    status = neap_fail_memory(error, n * sizeof *by_size, "the lower bound of a packing");
    goto done;
  }
  for (int b = 0; b < w->n; b++) by_size[b] = (sized){w->block[b].bytes, b};
  qsort(by_size, n, sizeof *by_size, compare_sizes);

  /* The largest blocks make the heaviest cliques. N_SEED of them cost less than one packing. */
  for (int i = 0; i < w->n && i < N_SEED; i++)
    *bound = NEAP_MAX(*bound, clique_bytes(w, by_size, by_size[i].index, left));
done:
  neap_free(by_size);
  neap_free(left);
  return status;
}

/* ARGUMENT error for a life that ends before it begins, and for sizes that are too large to add up.
 * Rounding an offset up costs less than the alignment, so a block takes that much more at most. */
static neap_status check_blocks(int n, const neap_block *block, const neap_pack_options *options,
                                neap_error *error) {
  /* What the blocks still to come may have. A quarter of size_t, so that every total fits an
   * int64_t too, in which the exact search counts. */
  size_t left = SIZE_MAX / 4;
  for (int b = 0; b < n; b++) {
    if (options->conflict == NULL && block[b].first > block[b].last)
      return neap_fail(error, NEAP_ARGUMENT, "block %d lives from step %d to step %d", b,
                       block[b].first, block[b].last);
    if (block[b].align > left || block[b].bytes > left - block[b].align)
      return neap_fail(error, NEAP_ARGUMENT, "blocks are too large to add up (at block %d)", b);
    left -= block[b].bytes + block[b].align;
  }
  return NEAP_OK;
}

/* Packs blocks that have bytes. On a line the bound is computed; with a matrix it is the caller's,
 * or a clique's if that is larger. `stop_at_bytes` of the work is the bound, or the larger total
 * that is good enough for the caller; `proved` speaks of the bound alone. */
static neap_status pack_solid(neap_pack_work *w, const neap_pack_options *options,
                              neap_pack_result *result, neap_error *error) {
  /* What no packing can beat. A caller who gives `stop_at_bytes` with a matrix knows a bound that a
   * clique may miss. */
  size_t bound = 0;
  bool is_line = w->conflict == NULL;
  if (is_line) {
    NEAP_TRY(line_bound(w, &bound, error));
  } else {
    NEAP_TRY(clique_bound(w, &bound, error));
    bound = NEAP_MAX(bound, options->stop_at_bytes);
  }
  w->stop_at_bytes = NEAP_MAX(bound, options->stop_at_bytes);
  w->best_bytes = SIZE_MAX;
  NEAP_TRY(neap_pack_try_orders(w, error));

  /* From here on there is a valid packing, which the searches can only make smaller. For very many
   * blocks the exact search would need n^2 room and would not come to an end. */
  if (!neap_pack_is_done(w)) {
    if (is_line && w->n <= NEAP_PACK_EXACT_MAX)
      NEAP_TRY(neap_pack_exact(w, w->stop_at_bytes, error));
    else
      NEAP_TRY(neap_pack_search(w, error));
  }
  *result = (neap_pack_result){w->best_bytes, bound, w->best_bytes == bound, w->packer, w->n_step};
  return NEAP_OK;
}

/* lower bound <= total, and no two blocks that conflict share a byte; quadratic, so very many are
 * looked at by their sizes alone. */
static void check_packing(const neap_pack_work *w, const neap_pack_result *result) {
  enum { MOST_PAIRS = 3000 };
  size_t end = 0;

  /* Each block by itself, then against all before it. */
  for (int a = 0; a < w->n; a++) {
    const neap_block *x = &w->block[a];
    NEAP_ASSERT(x->align <= 1 || w->offset[a] % x->align == 0,
                "block %d lies on a multiple of %zu: at %zu", a, x->align, w->offset[a]);
    end = NEAP_MAX(end, w->offset[a] + x->bytes);
    if (w->n > MOST_PAIRS) continue;
    for (int b = 0; b < a; b++)
      NEAP_ASSERT(!neap_pack_conflicts(w, a, b) || x->bytes == 0 || w->block[b].bytes == 0 ||
                    w->offset[a] + x->bytes <= w->offset[b] ||
                    w->offset[b] + w->block[b].bytes <= w->offset[a],
                  "blocks %d and %d conflict, so they share no byte: %zu bytes at %zu, %zu at %zu",
                  a, b, x->bytes, w->offset[a], w->block[b].bytes, w->offset[b]);
  }

  /* The figures agree with the offsets and with each other. */
  NEAP_ASSERT(end <= result->total_bytes, "all blocks end within the total of %zu bytes: at %zu",
              result->total_bytes, end);
  NEAP_ASSERT(result->lower_bound_bytes <= result->total_bytes,
              "the bound is no larger than the total: %zu, %zu", result->lower_bound_bytes,
              result->total_bytes);
  NEAP_ASSERT(result->proved == (result->lower_bound_bytes == result->total_bytes),
              "a packing is proved when it is its bound: %zu, %zu", result->total_bytes,
              result->lower_bound_bytes);
}

/* Fills the blocks' offsets and the result; the blocks are borrowed, and unchanged on failure.
 * ARGUMENT for blocks that can't be packed, MEMORY; running out of steps is no failure, since the
 * greedy orders give a valid packing first. */
neap_status neap_pack(int n, neap_block *block, const neap_pack_options *options,
                      neap_pack_result *result, neap_error *error) {
  NEAP_TRY(check_blocks(n, block, options, error));
  size_t *offset = neap_alloc_zeroed(((size_t)n + 1) * sizeof *offset);
  neap_block *solid = neap_alloc(((size_t)n + 1) * sizeof *solid);
  neap_status status = NEAP_OK;
  if (offset == NULL || solid == NULL) {
    status = neap_fail_memory(error, (size_t)n * sizeof *solid, "packing");
    goto done;
  }

  /* Blocks without bytes lie at 0 and meet nobody: left out, unless a matrix numbers them. */
  int m = 0;
  for (int b = 0; b < n; b++)
    if (options->conflict != NULL || block[b].bytes > 0) solid[m++] = block[b];
  neap_pack_work w = {.n = m,
                      .block = solid,
                      /* The packers see `solid` alone; their offsets are numbered alike. */
                      .conflict = options->conflict,
                      .n_word = options->n_word,
                      .offset = offset,
                      .most_steps = options->most_steps > 0 ? options->most_steps : DEFAULT_STEPS};

  /* Without blocks there is nothing to pack, and 0 bytes are proved to be the least. */
  *result = (neap_pack_result){.proved = true, .packer = "empty"};
  if (m > 0) status = pack_solid(&w, options, result, error);
  if (status != NEAP_OK) goto done;
  if (NEAP_DEBUG) check_packing(&w, result);

  /* The offsets go back to the blocks they were made for, in the same order. */
  m = 0;
  for (int b = 0; b < n; b++)
    block[b].offset = options->conflict != NULL || block[b].bytes > 0 ? offset[m++] : 0;
done:
  neap_free(solid);
  neap_free(offset);
  return status;
}
