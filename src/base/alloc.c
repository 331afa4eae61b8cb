/* alloc.c: counted memory with fault injection.
 *
 * Each block carries a 64-byte header in front of the caller's bytes: its size and its account. The
 * counters are atomics, so that any thread may allocate; `held_bytes` counts what was asked for,
 * not what the header or the C library adds.
 */
#include "base/base.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h>
#include <unistd.h>
#endif
#ifdef __GLIBC__
#include <malloc.h>
#endif

/* Lies HEADER_BYTES before the caller's bytes, at the start of what the C library gave. */
typedef struct header {
  size_t bytes;
  neap_account account;
} header;

#define HEADER_BYTES NEAP_ALIGN /* keeps the caller's bytes on a cache line */
#define HUGE_PAGE_BYTES ((size_t)2 << 20)

_Static_assert(sizeof(header) <= HEADER_BYTES, "the header must fit before the aligned bytes");

/* fail_in counts down to the allocation that is refused; at 0 injection is off. */
static _Atomic int64_t held[NEAP_N_ACCOUNT], high[NEAP_N_ACCOUNT], n_live, n_alloc, fail_in;
static _Atomic bool fail_persist, fail_blocks, fail_happened;

static void (*on_data)(int64_t delta);
void neap_memory_watch(void (*watcher)(int64_t delta)) { on_data = watcher; }

static header *header_of(void *block) { return (header *)(void *)((char *)block - HEADER_BYTES); }

/* Adds delta bytes, of either sign, to an account, lifts its high-water mark, and tells who listens
 * about tensors' bytes. The mark is raised by compare and exchange, since another thread may raise
 * it in between; a lost exchange reloads `seen`. */
static void count(neap_account account, int64_t delta) {
  /* The account first: the mark may lag behind for a moment, never the bytes. */
  int64_t now = atomic_fetch_add(&held[account], delta) + delta;
  int64_t seen = atomic_load(&high[account]);
  while (now > seen && !atomic_compare_exchange_weak(&high[account], &seen, now)) {
  }
  if (account == NEAP_DATA_BYTES && on_data != NULL) on_data(delta);
}

/* Whether fault injection refuses this allocation. Which one of several threads meets the n-th is
 * left to chance. */
static bool refused(void) {
  if (atomic_load(&fail_in) == 0) return false;
  /* Several threads count down together: whoever takes the last one is refused, and perhaps who
   * comes at the same moment. */
  int64_t left = atomic_fetch_sub(&fail_in, 1);
  if (left > 1) return false;
  atomic_store(&fail_in, atomic_load(&fail_persist) ? 1 : 0);
  atomic_store(&fail_happened, true);
  return true;
}

/* A block of `bytes` with its header, which begins on a multiple of `align`, counted; NULL when
 * refused. Sizes beyond half the address space are refused before they are rounded up: rounding
 * must not wrap around. */
static void *take(size_t bytes, neap_account account, size_t align) {
  if (bytes > SIZE_MAX / 2 || refused()) return NULL;

  /* a block of size 0 lies inside its own memory too */
  size_t whole = neap_align(NEAP_MAX(bytes, 1) + HEADER_BYTES);
  whole = (whole + align - 1) / align * align;

  char *base = aligned_alloc(align, whole);
  if (base == NULL) return NULL;
#ifdef MADV_HUGEPAGE

  /* A big arena touched in 4 KiB pages costs a TLB miss per page and step. Only whole huge pages
   * inside are asked for. */
  if (account == NEAP_DATA_BYTES && (whole >= 2 * HUGE_PAGE_BYTES || align == HUGE_PAGE_BYTES)) {
    uintptr_t first = ((uintptr_t)base + HUGE_PAGE_BYTES - 1) & ~(uintptr_t)(HUGE_PAGE_BYTES - 1);
    uintptr_t last = ((uintptr_t)base + whole) & ~(uintptr_t)(HUGE_PAGE_BYTES - 1);
    if (last > first) (void)madvise((void *)first, last - first, MADV_HUGEPAGE);
  }
#endif

  /* What rounding has added is nobody's to touch. */
  NEAP_FORBID(base + HEADER_BYTES + bytes, whole - HEADER_BYTES - bytes);
  *(header *)(void *)base = (header){bytes, account};
  atomic_fetch_add(&n_live, 1);
  atomic_fetch_add(&n_alloc, 1);
  count(account, (int64_t)bytes);
  return base + HEADER_BYTES;
}

void *neap_alloc(size_t bytes) { return take(bytes, NEAP_META_BYTES, NEAP_ALIGN); }
void *neap_alloc_data(size_t bytes) { return take(bytes, NEAP_DATA_BYTES, NEAP_ALIGN); }
void *neap_alloc_huge(size_t bytes) { return take(bytes, NEAP_DATA_BYTES, HUGE_PAGE_BYTES); }

void *neap_alloc_zeroed(size_t bytes) {
  void *block = take(bytes, NEAP_META_BYTES, NEAP_ALIGN);
  if (block != NULL) memset(block, 0, bytes);
  return block;
}

/* Always moves: the C library's realloc would not keep the alignment. The old block stays whole
 * when memory is refused; the account is kept. */
void *neap_realloc(void *block, size_t bytes) {
  if (block == NULL) return neap_alloc(bytes);
  size_t old = header_of(block)->bytes;
  void *fresh = take(bytes, header_of(block)->account, NEAP_ALIGN);
  if (fresh == NULL) return NULL;
  memcpy(fresh, block, NEAP_MIN(old, bytes));
  neap_free(block);
  return fresh;
}

/* Uncounted while the header can still be read, then given back. */
void neap_free(void *block) {
  if (block == NULL) return;
  header *h = header_of(block);
  atomic_fetch_sub(&n_live, 1);
  count(h->account, -(int64_t)h->bytes);
  free(h);
}

/* glibc keeps what is freed below a block that is not; other libraries are left to themselves. */
void neap_memory_trim(void) {
#ifdef __GLIBC__
  malloc_trim(0);
#endif
}

void neap_memory_give_back(void *data, size_t bytes) {
#ifdef MADV_DONTNEED
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  uintptr_t first = ((uintptr_t)data + page - 1) / page * page,
            last = ((uintptr_t)data + bytes) / page * page;
  if (last > first) (void)madvise((void *)first, last - first, MADV_DONTNEED);
#else
  (void)data, (void)bytes;
#endif
}

char *neap_strdup(const char *text) {
  size_t bytes = strlen(text) + 1;
  char *copy = neap_alloc(bytes);
  if (copy != NULL) memcpy(copy, text, bytes);
  return copy;
}

/* Grows by half, from 8, so that n appends copy O(n) items. */
bool neap_list_grow(void *items_address, int *cap, int need, size_t item_bytes) {
  if (need <= *cap) return true;
  /* At least what is needed, for a caller that adds many at once. */
  int wide = NEAP_MAX(need, *cap < 8 ? 8 : *cap + *cap / 2);
  void *items;
  /* any object pointer type, without breaking aliasing rules */
  memcpy(&items, items_address, sizeof items);
  void *fresh = neap_realloc(items, (size_t)wide * item_bytes);
  if (fresh == NULL) return false;
  memcpy(items_address, &fresh, sizeof fresh);
  *cap = wide;
  return true;
}

/* Each counter by itself: while other threads allocate, the numbers need not belong to one
 * moment. */
neap_memory_stats neap_memory_read(void) {
  neap_memory_stats stats = {.n_live = atomic_load(&n_live), .n_alloc = atomic_load(&n_alloc)};
  for (int a = 0; a < NEAP_N_ACCOUNT; a++) {
    stats.held_bytes[a] = atomic_load(&held[a]);
    stats.high_bytes[a] = atomic_load(&high[a]);
  }
  return stats;
}

/* From here on the mark tells what was held at most since now. */
void neap_memory_reset_high(void) {
  for (int a = 0; a < NEAP_N_ACCOUNT; a++) atomic_store(&high[a], atomic_load(&held[a]));
}

/* fail_in is set last: who sees it sees the rest as well. */
static void fail_at(int64_t n, bool persist, bool blocks) {
  atomic_store(&fail_happened, false);
  atomic_store(&fail_persist, persist);
  atomic_store(&fail_blocks, blocks);
  atomic_store(&fail_in, n);
}

void neap_memory_fail_nth(int64_t n, bool persist) { fail_at(n, persist, false); }
void neap_memory_fail_nth_block(int64_t n) { fail_at(n, false, true); }
bool neap_memory_refuses_block(void) {
  return atomic_load(&fail_in) != 0 && atomic_load(&fail_blocks) && refused();
}

bool neap_memory_failed(void) { return atomic_load(&fail_happened); }

/* One "Name:   123 kB" line of /proc/self/status, in bytes. */
static size_t proc_status_bytes(const char *name) {
  FILE *file = fopen("/proc/self/status", "r");
  if (file == NULL) return 0;
  char line[256];
  size_t kib = 0, n = strlen(name);
  while (fgets(line, sizeof line, file) != NULL)
    if (strncmp(line, name, n) == 0) {
      kib = (size_t)strtoull(line + n, NULL, 10);
      break;
    }
  fclose(file);
  return kib * 1024;
}

size_t neap_process_resident_bytes(void) { return proc_status_bytes("VmRSS:"); }
size_t neap_process_resident_peak_bytes(void) { return proc_status_bytes("VmHWM:"); }
