/* pool.c: best fit with coalescing, for bytes whose life is known only while running: eager results, policy `pool`.
 *
 * A pool is a list of chunks of DATA bytes, the first as large as the caller reserves. A chunk is cut into blocks that lie
 * one after another without gaps; each block is a header of one cache line and then its bytes, so that giving back needs no
 * search and taking from a pool that is large enough allocates nothing.
 *
 * INVARIANT: two free blocks of one chunk are never neighbours. INVARIANT: headers and bytes lie on multiples of NEAP_ALIGN.
 * Cost: take walks the free blocks, give is constant.
 */
#include "program/program.h"

typedef struct block {
  size_t bytes;                  /* after the header */
  struct block *before, *after;  /* neighbours in memory; NULL at the chunk's ends */
  struct block *previous, *next; /* free blocks */
  bool used;
} block;

typedef struct chunk {
  struct chunk *next;
  void *data;
} chunk;

struct neap_pool {
  size_t chunk_bytes; /* what a new chunk has at least */
  size_t hard_bytes;  /* most in all chunks; SIZE_MAX: no limit */
  chunk *chunks;
  block *free_list;
  neap_pool_stats stats;
};

#define HEADER_BYTES NEAP_ALIGN
_Static_assert(sizeof(block) <= HEADER_BYTES, "a block's header must leave its bytes aligned");

enum { LEAST_CHUNK_BYTES = 1 << 20 };

static char *bytes_of(block *b) { return (char *)b + HEADER_BYTES; }
static block *block_of(void *bytes) { return (block *)(void *)((char *)bytes - HEADER_BYTES); }

/* To the front: what was given last is warm in the cache and fits first among equals. */
static void list_add(neap_pool *pool, block *b) {
  b->used = false;
  b->previous = NULL;
  b->next = pool->free_list;
  if (b->next != NULL) b->next->previous = b;
  pool->free_list = b;
  pool->stats.n_free_block++;
}

static void list_remove(neap_pool *pool, block *b) {
  if (b->previous != NULL)
    b->previous->next = b->next;
  else
    pool->free_list = b->next;
  if (b->next != NULL) b->next->previous = b->previous;
  pool->stats.n_free_block--;
}

/* Adds a chunk with room for a block of `bytes`: a generous one if it can be had, else the least. */
static bool grow(neap_pool *pool, size_t bytes) {
  size_t left = pool->hard_bytes - pool->stats.reserved_bytes, need = bytes + HEADER_BYTES;
  if (need < bytes || need > left) return false;
  size_t want = NEAP_MIN(NEAP_MAX(need, pool->chunk_bytes), left);
  chunk *c = neap_alloc(sizeof *c);
  void *data = c != NULL ? neap_alloc_data(want) : NULL;
  if (data == NULL && c != NULL && want > need) data = neap_alloc_data(want = need);
  if (data == NULL) {
    neap_free(c);
    return false;
  }
  *c = (chunk){pool->chunks, data};
  pool->chunks = c;
  block *b = data;
  *b = (block){.bytes = want - HEADER_BYTES};
  list_add(pool, b);
  pool->stats.reserved_bytes += want;
  return true;
}

/* `soft_bytes` are reserved at once; the pool grows beyond by chunks as large, until `hard_bytes`. */
neap_status neap_pool_new(size_t soft_bytes, size_t hard_bytes, neap_pool **out, neap_error *error) {
  *out = NULL;
  neap_pool *pool = neap_alloc_zeroed(sizeof *pool);
  if (pool == NULL) return neap_fail_memory(error, sizeof *pool, "a pool");
  pool->hard_bytes = hard_bytes == 0 ? SIZE_MAX : hard_bytes & ~(size_t)(NEAP_ALIGN - 1);
  pool->chunk_bytes = NEAP_MAX(neap_align(soft_bytes), (size_t)LEAST_CHUNK_BYTES);
  if (soft_bytes > 0 && !grow(pool, neap_align(soft_bytes) - HEADER_BYTES)) {
    neap_pool_free(pool);
    return neap_fail_memory(error, soft_bytes, "a pool");
  }
  *out = pool;
  return NEAP_OK;
}

/* All blocks with it, given back or not: they lie in the chunks. */
void neap_pool_free(neap_pool *pool) {
  if (pool == NULL) return;
  for (chunk *c = pool->chunks, *next; c != NULL; c = next) {
    next = c->next;
    neap_free(c->data);
    neap_free(c);
  }
  neap_free(pool);
}

/* The smallest free block that holds `bytes`; NULL when none does. */
static block *best_fit(const neap_pool *pool, size_t bytes) {
  block *best = NULL;
  for (block *b = pool->free_list; b != NULL; b = b->next)
    if (b->bytes >= bytes && (best == NULL || b->bytes < best->bytes)) best = b;
  return best;
}

/* Cuts what `bytes` leaves over off the end of b, when it is worth a block. */
static void split(neap_pool *pool, block *b, size_t bytes) {
  if (b->bytes - bytes < HEADER_BYTES + NEAP_ALIGN) return;
  block *rest = (block *)(void *)(bytes_of(b) + bytes);
  *rest = (block){.bytes = b->bytes - bytes - HEADER_BYTES, .before = b, .after = b->after};
  if (b->after != NULL) b->after->before = rest;
  b->after = rest;
  b->bytes = bytes;
  list_add(pool, rest);
}

/* Zero bytes give a block too, so that every take can be given back. */
void *neap_pool_take(neap_pool *pool, size_t bytes) {
  if (bytes > SIZE_MAX / 2) return NULL;
  size_t want = NEAP_MAX(neap_align(bytes), (size_t)NEAP_ALIGN);
  block *b = best_fit(pool, want);
  if (b == NULL && grow(pool, want)) b = best_fit(pool, want);
  if (b == NULL) return NULL;
  list_remove(pool, b);
  split(pool, b, want);
  b->used = true;
  pool->stats.n_take++;
  pool->stats.n_used++;
  pool->stats.used_bytes += b->bytes;
  pool->stats.high_bytes = NEAP_MAX(pool->stats.high_bytes, pool->stats.used_bytes);
  return bytes_of(b);
}

/* Takes b's successor into b; neither is in the free list. */
static void swallow(block *b) {
  block *eaten = b->after;
  b->bytes += HEADER_BYTES + eaten->bytes;
  b->after = eaten->after;
  if (b->after != NULL) b->after->before = b;
}

/* Merges with free neighbours on both sides, so that the invariant holds again. */
void neap_pool_give(neap_pool *pool, void *bytes) {
  if (bytes == NULL) return;
  block *b = block_of(bytes);
  pool->stats.n_used--;
  pool->stats.used_bytes -= b->bytes;
  if (b->after != NULL && !b->after->used) {
    list_remove(pool, b->after);
    swallow(b);
  }
  if (b->before != NULL && !b->before->used) {
    b = b->before;
    list_remove(pool, b);
    swallow(b);
  }
  list_add(pool, b);
}

/* A chunk in which nothing is taken is one free block without neighbours. */
size_t neap_pool_trim(neap_pool *pool) {
  size_t before = pool->stats.reserved_bytes;
  for (chunk **at = &pool->chunks; *at != NULL;) {
    chunk *c = *at;
    block *first = c->data;
    if (first->used || first->after != NULL) {
      at = &c->next;
      continue;
    }
    list_remove(pool, first);
    pool->stats.reserved_bytes -= first->bytes + HEADER_BYTES;
    *at = c->next;
    neap_free(c->data);
    neap_free(c);
  }
  return before - pool->stats.reserved_bytes;
}

neap_pool_stats neap_pool_read(const neap_pool *pool) { return pool->stats; }
