/* arena.c: memory for things that die together: a list of chunks, each twice as large as the one
 * before, up to 1 MiB, or as large as the block that asked for it.
 *
 * A block that does not fit the newest chunk begins another; what is left of the old one stays
 * unused. Chunks are zeroed when they are made, so blocks need not be. Under AddressSanitizer
 * nobody may touch what lies between blocks, nor what lies before the first.
 */
#include "base/base.h"

#include <string.h>

/* `bytes` follow at a multiple of 16; `used` and `room` count them. */
struct neap_arena_chunk {
  struct neap_arena_chunk *older;
  size_t used, room;
  _Alignas(16) char bytes[];
};

void *neap_arena_alloc(neap_arena *arena, size_t bytes) {
  /* so that no sum below wraps */
  if (bytes > SIZE_MAX / 4 || neap_memory_refuses_block()) return NULL;
  size_t need = (bytes + NEAP_GAP_BYTES + 15) & ~(size_t)15;
  struct neap_arena_chunk *chunk = arena->chunk;

  /* It doesn't fit: another chunk, twice as large, or as large as the block. */
  if (chunk == NULL || chunk->room - chunk->used < need) {
    size_t room = chunk == NULL ? 1024 : NEAP_MIN(2 * chunk->room, (size_t)1 << 20);
    if (room < need + NEAP_GAP_BYTES) room = need + NEAP_GAP_BYTES;
    struct neap_arena_chunk *fresh = neap_alloc_zeroed(sizeof *fresh + room);
    if (fresh == NULL) return NULL;
    fresh->older = chunk;
    fresh->room = room;
    fresh->used = NEAP_GAP_BYTES;
    NEAP_FORBID(fresh->bytes, room);
    arena->chunk = chunk = fresh;
  }

  /* Cut off the front of what is left. */
  void *block = chunk->bytes + chunk->used;
  chunk->used += need;
  NEAP_ALLOW(block, bytes);
  return block;
}

/* A copy of `bytes` bytes, the arena's; `from` may be NULL for 0 bytes. NULL when refused. */
void *neap_arena_copy(neap_arena *arena, const void *from, size_t bytes) {
  void *block = neap_arena_alloc(arena, bytes);
  if (block != NULL && bytes > 0) memcpy(block, from, bytes);
  return block;
}

char *neap_arena_strdup(neap_arena *arena, const char *text) {
  return neap_arena_copy(arena, text, strlen(text) + 1);
}

/* All blocks die at once; the arena is empty and usable again. */
void neap_arena_fini(neap_arena *arena) {
  while (arena->chunk != NULL) {
    struct neap_arena_chunk *older = arena->chunk->older;
    neap_free(arena->chunk);
    arena->chunk = older;
  }
}
