/* pool.c: best fit with coalescing; see pool.h.
 *
 * The free blocks form one list. A hole belongs to the side of its neighbours; the free block that
 * is nobody's is the middle. Cost: take walks the free blocks, give is constant.
 */
#include "base/pool.h"

/* One piece of memory, whole from `first` on along `after`. Owned by the pool. */
typedef struct chunk {
  struct chunk *next;
  void *data; /* NULL in a dry pool */
  size_t bytes;
  neap_pool_block *first;
} chunk;

/* What a pool knows of one stretch of a chunk: free, taken, or (chunk meaningless) a spare
 * descriptor. */
struct neap_pool_block {
  chunk *chunk;
  size_t offset, bytes;
  neap_pool_block *before, *after;  /* neighbours in memory; NULL at the chunk's ends */
  neap_pool_block *previous, *next; /* free blocks; `next` also chains the spare ones */
  bool used, high;
};

struct neap_pool {
  size_t chunk_bytes; /* what a new chunk has at least */
  size_t hard_bytes;  /* most in all chunks; SIZE_MAX: no limit */
  bool dry;
  chunk *chunks;
  neap_pool_block *free_list, *spare;
  int n_spare;
  neap_pool_stats stats;
};

enum { LEAST_CHUNK_BYTES = 1 << 20 };

/* Of all pools that are not dry; relaxed, since nothing is ordered by them. */
static struct { int64_t reserved_bytes, used_bytes; /* atomic */ } totals;

/* Both counts of what is reserved, the pool's and the process's; a dry pool has no bytes to count
 * there. */
static void count_reserved(neap_pool *pool, int64_t delta) {
  pool->stats.reserved_bytes += (size_t)delta;
  if (!pool->dry) __atomic_add_fetch(&totals.reserved_bytes, delta, __ATOMIC_RELAXED);
}

static void count_used(neap_pool *pool, int64_t delta) {
  pool->stats.used_bytes += (size_t)delta;
  if (!pool->dry) __atomic_add_fetch(&totals.used_bytes, delta, __ATOMIC_RELAXED);
}

void neap_pool_totals(int64_t *reserved_bytes, int64_t *used_bytes) {
  *reserved_bytes = __atomic_load_n(&totals.reserved_bytes, __ATOMIC_RELAXED);
  *used_bytes = __atomic_load_n(&totals.used_bytes, __ATOMIC_RELAXED);
}

/* ---- blocks ---------------------------------------------------------------------------------- */

/* To the front: what was given last is warm in the cache and fits first among equals. */
static void list_add(neap_pool *pool, neap_pool_block *b) {
  b->used = false;
  b->previous = NULL;
  b->next = pool->free_list;
  if (b->next != NULL) b->next->previous = b;
  pool->free_list = b;
  pool->stats.n_free_block++;
}

/* Takes b out of the list of free blocks, wherever it stands in it. */
static void list_remove(neap_pool *pool, neap_pool_block *b) {
  if (b->previous != NULL)
    b->previous->next = b->next;
  else
    pool->free_list = b->next;
  if (b->next != NULL) b->next->previous = b->previous;
  pool->stats.n_free_block--;
}

/* Kept for the next split: descriptors go back to the C library only with the pool. */
static void spare_add(neap_pool *pool, neap_pool_block *b) {
  b->next = pool->spare;
  pool->spare = b;
  pool->n_spare++;
}

/* Blocks of a chunk lie one after another without gaps, on multiples of NEAP_ALIGN, and no two free
 * ones are neighbours. Returns how many of them are free, and adds what is taken. */
static int64_t check_chunk(const neap_pool *pool, const chunk *c, size_t *used_bytes,
                           int64_t *n_used) {
  int64_t n_free = 0;
  size_t end = 0;
  for (const neap_pool_block *b = c->first, *before = NULL; b != NULL; before = b, b = b->after) {
    NEAP_ASSERT(b->chunk == c && b->before == before,
                "block at %zu knows its chunk and the block before it", b->offset);
    NEAP_ASSERT(b->offset == end && b->bytes > 0,
                "blocks lie without gaps: one begins at %zu, the one before it ends at %zu",
                b->offset, end);
    NEAP_ASSERT(b->offset % NEAP_ALIGN == 0, "bytes lie on multiples of %u: a block begins at %zu",
                NEAP_ALIGN, b->offset);
    NEAP_ASSERT(b->used || before == NULL || before->used,
                "two free blocks are never neighbours: at %zu and %zu",
                before != NULL ? before->offset : 0, b->offset);

    /* The next block must begin here; what is taken is counted to be compared with what the pool
     * says. */
    end = b->offset + b->bytes;
    if (b->used) {
      *used_bytes += b->bytes;
      ++*n_used;
    } else {
      n_free++;
    }
  }
  NEAP_ASSERT(end == c->bytes, "the blocks of a chunk fill its %zu bytes, and these end at %zu%s",
              c->bytes, end, pool->dry ? " (dry)" : "");
  return n_free;
}

/* After each take and give: its chunks, the list of free blocks, and what it counts. Of a pool of
 * many blocks every 64th time, since it looks at them all. */
static void check_pool(const neap_pool *pool) {
  enum { FEW = 64 };
  if (pool->stats.n_used + pool->stats.n_free_block > FEW && pool->stats.n_take % FEW != 0) return;
  size_t used_bytes = 0, reserved_bytes = 0;
  int64_t n_used = 0, n_free = 0, n_listed = 0;
  for (const chunk *c = pool->chunks; c != NULL; c = c->next) {
    n_free += check_chunk(pool, c, &used_bytes, &n_used);
    reserved_bytes += c->bytes;
  }

  /* The list has the same free blocks, each once. */
  for (const neap_pool_block *b = pool->free_list; b != NULL; b = b->next) {
    NEAP_ASSERT(!b->used && (b->next == NULL || b->next->previous == b),
                "block at %zu in the list of free ones is free", b->offset);
    n_listed++;
  }

  /* The figures are those of what was found. */
  const neap_pool_stats *s = &pool->stats;
  NEAP_ASSERT(n_free == n_listed && n_free == s->n_free_block,
              "%lld free blocks are all in the list, with %lld, and counted: %lld",
              (long long)n_free, (long long)n_listed, (long long)s->n_free_block);
  NEAP_ASSERT(
    n_used == s->n_used && used_bytes == s->used_bytes && reserved_bytes == s->reserved_bytes,
    "what is taken and held is counted: %zu of %zu bytes in %lld blocks; it says %zu of %zu in "
    "%lld",
    used_bytes, reserved_bytes, (long long)n_used, s->used_bytes, s->reserved_bytes,
    (long long)s->n_used);
  NEAP_ASSERT(reserved_bytes <= pool->hard_bytes, "a pool of at most %zu bytes holds %zu",
              pool->hard_bytes, reserved_bytes);
}

/* At least n spare descriptors; false when memory is refused. */
static bool stock(neap_pool *pool, int n) {
  while (pool->n_spare < n) {
    neap_pool_block *b = neap_alloc(sizeof *b);
    if (b == NULL) return false;
    spare_add(pool, b);
  }
  return true;
}

/* A descriptor that `stock` has seen to. */
static neap_pool_block *spare_take(neap_pool *pool) {
  neap_pool_block *b = pool->spare;
  pool->spare = b->next;
  pool->n_spare--;
  return b;
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* A chunk of exactly `bytes`, as one free block; NULL when memory is refused. */
static chunk *chunk_new(neap_pool *pool, size_t bytes) {
  chunk *c = stock(pool, 1) ? neap_alloc(sizeof *c) : NULL;
  if (c == NULL) return NULL;
  *c = (chunk){.next = pool->chunks,
               .data = pool->dry ? NULL : neap_alloc_data(bytes),
               .bytes = bytes,
               .first = spare_take(pool)};
  *c->first = (neap_pool_block){.chunk = c, .bytes = bytes};
  /* The bytes were refused: descriptor and chunk go back, and nothing has changed. */
  if (c->data == NULL && !pool->dry) {
    spare_add(pool, c->first);
    neap_free(c);
    return NULL;
  }
  pool->chunks = c;
  list_add(pool, c->first);
  count_reserved(pool, (int64_t)bytes);
  return c;
}

/* The chunk at *at, in which nothing is taken, so that it is one free block. */
static void chunk_drop(neap_pool *pool, chunk **at) {
  chunk *c = *at;
  list_remove(pool, c->first);
  spare_add(pool, c->first);
  count_reserved(pool, -(int64_t)c->bytes);
  *at = c->next;
  neap_free(c->data);
  neap_free(c);
}

/* Adds a chunk with room for `bytes`: a generous one if it can be had, else the least. */
static bool grow(neap_pool *pool, size_t bytes) {
  size_t left = pool->hard_bytes - pool->stats.reserved_bytes;
  if (bytes > left) return false;
  /* offsets mean one chunk */
  if (pool->dry) return pool->chunks == NULL && chunk_new(pool, pool->chunk_bytes) != NULL;
  /* With the limit in mind: more than is asked for only as far as it is left. */
  size_t want = NEAP_MIN(NEAP_MAX(bytes, pool->chunk_bytes), left);
  /* The generous one first, the least if that is refused. */
  return chunk_new(pool, want) != NULL || (want > bytes && chunk_new(pool, bytes) != NULL);
}

size_t neap_pool_trim(neap_pool *pool) {
  size_t before = pool->stats.reserved_bytes;
  /* A chunk in which nothing is taken is one free block: its first, with none after it. */
  for (chunk **at = &pool->chunks; *at != NULL;)
    if ((*at)->first->used || (*at)->first->after != NULL)
      at = &(*at)->next;
    else
      chunk_drop(pool, at);
  return before - pool->stats.reserved_bytes;
}

/* The old region goes first: both at once would be the peak that a limit is there to prevent. A
 * block that is taken can leave a free one on each side, hence twice as many descriptors. */
bool neap_pool_reserve(neap_pool *pool, size_t bytes, int n_block) {
  if (pool->stats.n_used > 0 || bytes > pool->hard_bytes ||
      !stock(pool, 2 * n_block + 2 - (int)pool->stats.n_free_block))
    return false;
  /* It is there already, or made anew at the very size. */
  size_t want = neap_align(bytes);
  if (pool->chunks != NULL && pool->chunks->next == NULL && pool->chunks->bytes == want)
    return true;
  (void)neap_pool_trim(pool);
  NEAP_ASSERT(pool->chunks == NULL, "an empty pool gives all its chunks back; %zu bytes are left",
              pool->stats.reserved_bytes);
  return want == 0 || chunk_new(pool, want) != NULL;
}

/* ---- life ------------------------------------------------------------------------------------ */

/* A pool whose chunks are at least LEAST_CHUNK_BYTES; the limit is rounded down to whole multiples
 * of NEAP_ALIGN. */
neap_status neap_pool_new(size_t chunk_bytes, size_t hard_bytes, neap_pool **out,
                          neap_error *error) {
  *out = neap_alloc_zeroed(sizeof **out);
  if (*out == NULL) return neap_fail_memory(error, sizeof **out, "a pool");
  (*out)->hard_bytes = hard_bytes == 0 ? SIZE_MAX : hard_bytes & ~(size_t)(NEAP_ALIGN - 1);
  (*out)->chunk_bytes = NEAP_MAX(neap_align(chunk_bytes), (size_t)LEAST_CHUNK_BYTES);
  return NEAP_OK;
}

neap_status neap_pool_new_dry(neap_pool **out, neap_error *error) {
  NEAP_TRY(neap_pool_new(NEAP_POOL_DRY_BYTES, 0, out, error));
  (*out)->dry = true;
  return NEAP_OK;
}

/* Blocks still taken end with their chunk, and are taken off the totals. */
void neap_pool_free(neap_pool *pool) {
  if (pool == NULL) return;

  /* A chunk's blocks, free and taken, then its bytes. */
  for (chunk *c = pool->chunks, *next; c != NULL; c = next) {
    next = c->next;
    for (neap_pool_block *b = c->first, *after; b != NULL; b = after) {
      after = b->after;
      neap_free(b);
    }
    neap_free(c->data);
    neap_free(c);
  }

  /* Then the descriptors that describe nothing. */
  for (neap_pool_block *b = pool->spare, *next; b != NULL; b = next) {
    next = b->next;
    neap_free(b);
  }
  count_used(pool, -(int64_t)pool->stats.used_bytes);
  count_reserved(pool, -(int64_t)pool->stats.reserved_bytes);
  neap_free(pool);
}

/* ---- take and give --------------------------------------------------------------------------- */

/* Neighbours of a free block are taken: a low one after it makes it a low hole, a high one before
 * it a high one. */
static bool is_low_hole(const neap_pool_block *b) { return b->after != NULL && !b->after->high; }
static bool is_high_hole(const neap_pool_block *b) { return b->before != NULL && b->before->high; }

/* The smallest free block that holds `bytes`: a hole of that side, else a middle, else (in a full
 * chunk) any; NULL when none does. */
static neap_pool_block *best_fit(const neap_pool *pool, size_t bytes, bool high) {
  neap_pool_block *best = NULL;
  int best_rank = 3;
  for (neap_pool_block *b = pool->free_list; b != NULL; b = b->next) {
    if (b->bytes < bytes) continue;
    /* What is before the chunk's first block and behind its last is nobody's: only a neighbour
     * makes a hole. Rank 0 is a hole on the asked side, 1 a middle, 2 a hole of the other side. */
    bool low_hole = is_low_hole(b), high_hole = is_high_hole(b);
    int rank = 1;
    if (low_hole || high_hole) rank = (high ? high_hole : low_hole) ? 0 : 2;
    /* Rank first, then size: of two alike the smaller one. */
    if (rank > best_rank || (rank == best_rank && b->bytes >= best->bytes)) continue;
    best = b;
    best_rank = rank;
  }
  return best;
}

/* Cuts what `bytes` leaves over off b: off its end, or off its begin when it is taken from the high
 * side. Gives the part that is taken. */
static neap_pool_block *split(neap_pool *pool, neap_pool_block *b, size_t bytes, bool high) {
  if (b->bytes == bytes) return b;

  /* b keeps the begin and goes back to the free ones; the new descriptor is what is taken */
  if (high) {
    neap_pool_block *taken = spare_take(pool);
    *taken = (neap_pool_block){.chunk = b->chunk,
                               .offset = b->offset + b->bytes - bytes,
                               .bytes = bytes,
                               .before = b,
                               .after = b->after};
    if (b->after != NULL) b->after->before = taken;
    b->after = taken;
    b->bytes -= bytes;
    list_add(pool, b);
    return taken;
  }

  /* The begin is taken; what is left over behind it is free. */
  neap_pool_block *rest = spare_take(pool);
  *rest = (neap_pool_block){.chunk = b->chunk,
                            .offset = b->offset + bytes,
                            .bytes = b->bytes - bytes,
                            .before = b,
                            .after = b->after};
  if (b->after != NULL) b->after->before = rest;
  b->after = rest;
  b->bytes = bytes;
  list_add(pool, rest);
  return b;
}

/* The bytes of a chunk outside its middle. */
static size_t reach(const neap_pool *pool, const chunk *c) {
  for (const neap_pool_block *b = pool->free_list; b != NULL; b = b->next)
    if (b->chunk == c && !is_low_hole(b) && !is_high_hole(b)) return c->bytes - b->bytes;
  return c->bytes;
}

/* b is cut out of its free block: it is taken now, and counted. */
static neap_pool_block *count_taken(neap_pool *pool, neap_pool_block *b, bool high) {
  neap_pool_stats *s = &pool->stats;
  b->used = true;
  b->high = high;
  s->n_take++;
  s->n_used++;
  count_used(pool, (int64_t)b->bytes);
  s->high_bytes = NEAP_MAX(s->high_bytes, s->used_bytes);
  return b;
}

/* The low side; see neap_pool_take_at. */
neap_pool_block *neap_pool_take(neap_pool *pool, size_t bytes) {
  return neap_pool_take_at(pool, bytes, false);
}

/* A descriptor is stocked before a block is cut, so that no cut fails halfway. */
neap_pool_block *neap_pool_take_at(neap_pool *pool, size_t bytes, bool high) {
  if (bytes > NEAP_POOL_DRY_BYTES / 4 || !stock(pool, 1)) return NULL;
  size_t want = NEAP_MAX(neap_align(bytes), (size_t)NEAP_ALIGN);
  neap_pool_block *b = best_fit(pool, want, high);
  /* Growing takes a descriptor too, so one is stocked again. */
  if (b == NULL && grow(pool, want) && stock(pool, 1)) b = best_fit(pool, want, high);
  if (b == NULL) return NULL;
  list_remove(pool, b);
  /* The most of a chunk that was ever outside its middle is what a region must have. */
  b = count_taken(pool, split(pool, b, want, high), high);
  pool->stats.reach_bytes = NEAP_MAX(pool->stats.reach_bytes, reach(pool, b->chunk));
  if (NEAP_DEBUG) check_pool(pool);
  return b;
}

/* Two cuts: what lies behind the block comes off first, then the block itself off the high end of
 * what is left. */
neap_pool_block *neap_pool_take_exact(neap_pool *pool, size_t offset, size_t bytes) {
  if (bytes > NEAP_POOL_DRY_BYTES / 4 || pool->chunks == NULL || !stock(pool, 2)) return NULL;
  size_t want = NEAP_MAX(neap_align(bytes), (size_t)NEAP_ALIGN), end = offset + want;

  /* The one free block that the whole place lies in. */
  neap_pool_block *b = pool->free_list;
  while (b != NULL &&
         (b->chunk != pool->chunks || b->offset > offset || b->offset + b->bytes < end))
    b = b->next;
  if (b == NULL) return NULL;
  list_remove(pool, b);

  /* What lies behind goes back to the free ones, then what lies before. */
  b = split(pool, b, end - b->offset, false);
  b = count_taken(pool, split(pool, b, want, true), false);
  pool->stats.reach_bytes = NEAP_MAX(pool->stats.reach_bytes, end);
  NEAP_ASSERT(b->offset == offset && b->bytes == want,
              "the block at %zu, of %zu bytes, not at %zu of %zu", offset, want, b->offset,
              b->bytes);
  if (NEAP_DEBUG) check_pool(pool);
  return b;
}

/* Takes b's successor into b; neither is in the free list. */
static void swallow(neap_pool *pool, neap_pool_block *b) {
  neap_pool_block *eaten = b->after;
  b->bytes += eaten->bytes;
  b->after = eaten->after;
  if (b->after != NULL) b->after->before = b;
  spare_add(pool, eaten);
}

/* Merges with free neighbours on both sides, so that the invariant holds again. */
void neap_pool_give(neap_pool *pool, neap_pool_block *b) {
  if (b == NULL) return;
  NEAP_ASSERT(b->used, "a block is given back once; the one at %zu is free", b->offset);

  /* Neighbours are looked at before the block is listed, so that no two free ones ever touch. */
  pool->stats.n_used--;
  count_used(pool, -(int64_t)b->bytes);
  if (b->after != NULL && !b->after->used) {
    list_remove(pool, b->after);
    swallow(pool, b);
  }
  if (b->before != NULL && !b->before->used) {
    b = b->before;
    list_remove(pool, b);
    swallow(pool, b);
  }
  list_add(pool, b);
  if (NEAP_DEBUG) check_pool(pool);
}

void *neap_pool_data(const neap_pool_block *block) {
  return block->chunk->data == NULL ? NULL : (char *)block->chunk->data + block->offset;
}

size_t neap_pool_offset(const neap_pool_block *block) { return block->offset; }

neap_pool_stats neap_pool_read(const neap_pool *pool) { return pool->stats; }
