/* storage.c: bytes with a reference count, the only refcounted thing in Neap.
 *
 * Bytes that are made of others which are held, too (packed weights), may be away: their memory is
 * the system's, and they are written again when somebody asks for them.
 *
 * INVARIANT: n_ref >= 1 while anyone can see the storage; the thread that takes it to 0 returns the
 * bytes. `release` is NULL and `owned` is set for bytes of neap_alloc_data; else the bytes are
 * someone else's.
 */
#include "tensor/tensor.h"

#include <pthread.h>
#include <stdatomic.h>

/* `version` changes with each touch and is never the same for two storages. `release` is called
 * with `owner`. */
struct neap_storage {
  _Atomic int n_ref;
  _Atomic uint64_t version;
  bool owned;
  bool read_only;
  char *data;
  size_t bytes;
  void (*release)(void *owner);
  void *owner;
  _Atomic bool away;
  neap_storage_source source; /* of bytes that are away */
};

/* One counter for all storages, so that a storage freed and another made at its address can't be
 * taken for each other. */
static _Atomic uint64_t last_version;

/* Gives the storage a version that none has had. Called after its bytes have been written. */
void neap_storage_touch(neap_storage *storage) {
  atomic_store(&storage->version, atomic_fetch_add(&last_version, 1) + 1);
}
uint64_t neap_storage_version(const neap_storage *storage) {
  return atomic_load(&storage->version);
}

/* Two allocations: the record, in META, and the bytes, in DATA, so that "held" counts what a plan
 * forecasts. */
neap_storage *neap_storage_new(size_t bytes) {
  return neap_storage_new_in(bytes, NEAP_BANK_ORDINARY);
}

neap_storage *neap_storage_new_in(size_t bytes, neap_bank_kind kind) {
  neap_storage *storage = neap_alloc_zeroed(sizeof *storage);
  if (storage == NULL) return NULL;
  storage->data = kind == NEAP_BANK_HUGE ? neap_alloc_huge(bytes) : neap_alloc_data(bytes);
  if (storage->data == NULL) {
    neap_free(storage);
    return NULL;
  }
  /* Nobody else sees it yet: the count is set without a fence. */
  atomic_init(&storage->n_ref, 1);
  storage->owned = true;
  storage->bytes = bytes;
  neap_storage_touch(storage);
  return storage;
}

/* Nothing is counted as DATA: the owner has counted it, or it is a file's. */
neap_storage *neap_storage_borrow(void *data, size_t bytes, void (*release)(void *owner),
                                  void *owner) {
  neap_storage *storage = neap_alloc_zeroed(sizeof *storage);
  if (storage == NULL) return NULL;
  atomic_init(&storage->n_ref, 1);
  storage->data = data;
  storage->bytes = bytes;
  storage->release = release;
  storage->owner = owner;
  neap_storage_touch(storage);
  return storage;
}

neap_storage *neap_storage_retain(neap_storage *storage) {
  /* Relaxed: whoever retains already holds a reference, which orders it before the last release. */
  if (storage == NULL) return NULL;
  int before = atomic_fetch_add_explicit(&storage->n_ref, 1, memory_order_relaxed);
  NEAP_ASSERT(before >= 1, "who retains a storage holds it already; it had %d references", before);
  return storage;
}

/* Any thread may drop the last reference; `release` then runs on it. NULL is allowed. */
void neap_storage_release(neap_storage *storage) {
  if (storage == NULL) return;
  /* Released: what this thread wrote is there before the bytes go. Acquired: so is what others
   * wrote. */
  int before = atomic_fetch_sub_explicit(&storage->n_ref, 1, memory_order_acq_rel);
  NEAP_ASSERT(before >= 1, "who releases a storage holds it; it had %d references", before);
  if (before > 1) return;
  NEAP_ASSERT(!storage->owned || storage->release == NULL, "bytes have one owner");
  if (atomic_load(&storage->away)) storage->source.drop(storage->source.self);
  if (storage->owned) neap_free(storage->data);
  if (storage->release != NULL) storage->release(storage->owner);
  neap_free(storage);
}

/* Two threads may ask for the same bytes at once; that anybody has to wait is rare. */
static pthread_mutex_t bringing = PTHREAD_MUTEX_INITIALIZER;

static void bring_back(neap_storage *storage) {
  pthread_mutex_lock(&bringing);
  if (atomic_load(&storage->away)) {
    storage->source.restore(storage->source.self, storage->data);
    storage->source.drop(storage->source.self);
    atomic_store(&storage->away, false); /* last: who sees this sees the bytes */
  }
  pthread_mutex_unlock(&bringing);
}

void neap_storage_put_away(neap_storage *storage, const neap_storage_source *source) {
  NEAP_ASSERT(!atomic_load(&storage->away) && !storage->read_only,
              "bytes that are put away are here, and may be written");
  storage->source = *source;
  neap_memory_give_back(storage->data, storage->bytes);
  atomic_store(&storage->away, true);
}

char *neap_storage_data(const neap_storage *storage) {
  /* To its readers a storage is the same before and after. */
  if (atomic_load_explicit(&storage->away, memory_order_acquire))
    bring_back((neap_storage *)(uintptr_t)storage);
  return storage->data;
}

char *neap_storage_address(const neap_storage *storage) { return storage->data; }
size_t neap_storage_bytes(const neap_storage *storage) { return storage->bytes; }
int neap_storage_n_ref(const neap_storage *storage) { return atomic_load(&storage->n_ref); }
void neap_storage_set_read_only(neap_storage *storage) { storage->read_only = true; }
bool neap_storage_is_read_only(const neap_storage *storage) { return storage->read_only; }
