/* pool: bytes taken and given back in any order, best fit with coalescing. Results of eager ops lie
 * in one; so do the transient values of programs under policy `pool`; and the planner walks through
 * a dry one to know beforehand how far such a program will reach.
 *
 * A pool is a list of chunks, each cut into blocks that lie one after another without gaps. What a
 * pool knows of a block stands beside the bytes, not in front of them, so that a dry pool needs no
 * bytes and a stray write breaks no list.
 *
 * A chunk has two ends, and a free block between what was taken from the one and from the other:
 * its middle, which is used only when no hole on the asked side fits. Long lives at one end and
 * short ones at the other keep each other's holes closed.
 *
 * INVARIANT: two free blocks of one chunk are never neighbours. INVARIANT: bytes lie on multiples
 * of NEAP_ALIGN.
 * INVARIANT: in a pool of one chunk that is empty at the start, the same takes and gives lead to
 * the same offsets, counted from the end that was asked for, however large the chunk is.
 */
#ifndef NEAP_POOL_H
#define NEAP_POOL_H

#include "base/base.h"

typedef struct neap_pool neap_pool;
typedef struct neap_pool_block neap_pool_block;

typedef struct neap_pool_stats {
  size_t reserved_bytes; /* in all chunks */
  size_t used_bytes;     /* taken now, each block rounded up to NEAP_ALIGN */
  size_t high_bytes;     /* most that was taken at once */
  /* most of one chunk that lay outside its middle, or before the end of an exact block */
  size_t reach_bytes;
  int64_t n_take; /* since the pool was made */
  int64_t n_used, n_free_block;
} neap_pool_stats;

/* Chunks of at least `chunk_bytes` (0: a default) are added as they are needed, `hard_bytes` in all
 * at most (0: no limit). */
neap_status neap_pool_new(size_t chunk_bytes, size_t hard_bytes, neap_pool **out,
                          neap_error *error);
/* A pool without bytes, of one chunk that is as good as endless, for finding offsets. */
#define NEAP_POOL_DRY_BYTES ((size_t)1 << 62)
neap_status neap_pool_new_dry(neap_pool **out, neap_error *error);
void neap_pool_free(neap_pool *pool); /* blocks that are still taken go with it */

/* A block of `bytes` (0 gives one too), the pool's until it is given back; NULL at the hard limit
 * or when memory is refused. */
neap_pool_block *neap_pool_take(neap_pool *pool, size_t bytes);
/* high: from the chunk's other end */
neap_pool_block *neap_pool_take_at(neap_pool *pool, size_t bytes, bool high);
/* The block at `offset` of the newest chunk; NULL when some of it is taken or lies outside. Makes
 * no chunk. */
neap_pool_block *neap_pool_take_exact(neap_pool *pool, size_t offset, size_t bytes);
void neap_pool_give(neap_pool *pool, neap_pool_block *block); /* NULL: nothing */
/* contents undefined; NULL in a dry pool */
void *neap_pool_data(const neap_pool_block *block);
size_t neap_pool_offset(const neap_pool_block *block); /* within its chunk */

/* Makes an empty pool one region of `bytes`, and room for `n_block` blocks taken at once: as long
 * as takes stay within both, none allocates and none fails. A larger region is cut down, so that 0
 * gives all back. False when memory is refused (then the pool is as before, or holds nothing) or
 * something is taken. */
bool neap_pool_reserve(neap_pool *pool, size_t bytes, int n_block);
/* Gives chunks back in which nothing is taken; returns their bytes. */
size_t neap_pool_trim(neap_pool *pool);

neap_pool_stats neap_pool_read(const neap_pool *pool);

#endif
