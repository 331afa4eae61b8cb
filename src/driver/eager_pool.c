/* eager_pool.c: where the results of eager ops lie: one pool for the process, since a tensor may be
 * dropped by any thread.
 *
 * A chain like (x * 2 + 1):relu() takes and gives the same few blocks again and again instead of
 * asking the system each time.
 * INVARIANT: without a live eager tensor the pool does not exist and holds nothing; with some, it
 * holds at most twice their bytes and a chunk or two beyond, as far as the live ones do not pin
 * their chunks.
 */
#include "driver/driver_int.h"

#include <pthread.h>

static struct {
  pthread_mutex_t lock;
  neap_pool *pool; /* NULL while nothing lives in it */
} shared = {.lock = PTHREAD_MUTEX_INITIALIZER};

enum { SLACK_BYTES = 8 << 20 }; /* free bytes that are worth keeping for the next op */

/* When the last reference to a result goes, on whatever thread. The pool ends with its last block;
 * before that it is trimmed when more of it is free than used, so that one large result is not held
 * for ever. */
static void give_back(void *block) {
  pthread_mutex_lock(&shared.lock);
  NEAP_ASSERT(shared.pool != NULL && neap_pool_read(shared.pool).n_used > 0,
              "a pool while a result of an eager op lives");
  neap_pool_give(shared.pool, block);
  neap_pool_stats stats = neap_pool_read(shared.pool);
  if (stats.n_used == 0) {
    neap_pool_free(shared.pool);
    shared.pool = NULL;
  } else if (stats.reserved_bytes > 2 * stats.used_bytes + SLACK_BYTES) {
    (void)neap_pool_trim(shared.pool);
  }
  pthread_mutex_unlock(&shared.lock);
}

/* A block of the shared pool, made with its first block. NULL when refused, and then no empty pool
 * is left. */
static neap_pool_block *take(size_t bytes, neap_error *error) {
  neap_pool_block *block = NULL;
  pthread_mutex_lock(&shared.lock);
  if (shared.pool != NULL || neap_pool_new(0, 0, &shared.pool, error) == NEAP_OK)
    block = neap_pool_take(shared.pool, bytes);

  /* the first take was refused */
  if (shared.pool != NULL && neap_pool_read(shared.pool).n_used == 0) {
    neap_pool_free(shared.pool);
    shared.pool = NULL;
  }
  pthread_mutex_unlock(&shared.lock);
  return block;
}

neap_status neap_eager_tensor(neap_tensor *tensor, const neap_type *type, neap_error *error) {
  size_t bytes = neap_type_bytes(type);
  neap_pool_block *block = take(bytes, error);
  if (block == NULL) return neap_fail_memory(error, bytes, "the result of an eager op");
  neap_storage *storage = neap_storage_borrow(neap_pool_data(block), bytes, give_back, block);
  if (storage == NULL) {
    give_back(block);
    return neap_fail_memory(error, bytes, "the result of an eager op");
  }
  *tensor = neap_tensor_view(storage, 0, type->dtype, &type->shape);
  neap_storage_release(storage); /* the view has its own reference */
  return NEAP_OK;
}
