/* intern.c: the name table (open addressing over texts) and the pointer map (open addressing over
 * pointers).
 *
 * INVARIANT: both tables are at most half full and hold no tombstones: removal moves the cluster's
 * tail up.
 */
#include "base/base.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* The texts live in an arena, which is never emptied, so that a name's address is good to the end
 * of the process. */
static struct {
  pthread_mutex_t lock;
  neap_arena texts;
  const char **slot;
  size_t n, cap;
} names = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Where `text`, of n characters and perhaps without a zero behind them, stands or would stand. cap
 * is a power of 2. */
static size_t text_slot(const char **slot, size_t cap, const char *text, size_t n) {
  size_t i = (size_t)neap_hash_bytes(text, n).low & (cap - 1);
  /* Another text, or one that only begins so: on to the next slot. */
  while (slot[i] != NULL && (strncmp(slot[i], text, n) != 0 || slot[i][n] != '\0'))
    i = (i + 1) & (cap - 1);
  return i;
}

/* Twice the slots, everything put in again; false, with the old table whole, when memory is
 * refused. */
static bool names_grow(void) {
  size_t cap = names.cap == 0 ? 1024 : 2 * names.cap;
  const char **slot = neap_alloc_zeroed(cap * sizeof *slot);
  if (slot == NULL) return false;
  for (size_t i = 0; i < names.cap; i++)
    if (names.slot[i] != NULL)
      slot[text_slot(slot, cap, names.slot[i], strlen(names.slot[i]))] = names.slot[i];

  /* The old table goes when the new one is whole. */
  neap_free(names.slot);
  names.slot = slot;
  names.cap = cap;
  NEAP_ASSERT(2 * (names.n + 1) <= names.cap, "the table of names is at most half full: %zu of %zu",
              names.n + 1, names.cap);
  return true;
}

/* Any thread may call: the lock is held for the whole look-up. */
const char *neap_intern_n(const char *text, size_t n) {
  const char *found = NULL;
  pthread_mutex_lock(&names.lock);

  /* At most half full after this one: searches stay short and always meet an empty slot. */
  if (2 * (names.n + 1) > names.cap && !names_grow()) goto done;
  size_t i = text_slot(names.slot, names.cap, text, n);

  /* Met for the first time: the copy is the name from now on. */
  if (names.slot[i] == NULL) {
    char *copy = neap_arena_alloc(&names.texts, n + 1);
    if (copy == NULL) goto done;
    memcpy(copy, text, n);
    names.slot[i] = copy;
    names.n++;
  }
  found = names.slot[i];
done:
  pthread_mutex_unlock(&names.lock);
  return found;
}

const char *neap_intern(const char *text) { return neap_intern_n(text, strlen(text)); }

/* Most names fit on the stack; a longer one is made again where it does. */
const char *neap_intern_format(const char *format, ...) {
  /* The arguments may be read a second time: they are copied first. */
  char small[256];
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int n = neap_format_list(small, sizeof small, format, args);
  va_end(args);

  /* As long as it turned out to be: on the stack, or in a block of that length. */
  const char *name = NULL;
  if (n >= 0 && (size_t)n < sizeof small) {
    name = neap_intern_n(small, (size_t)n);
  } else if (n >= 0) {
    char *text = neap_alloc((size_t)n + 1);
    if (text != NULL) {
      neap_format_list(text, (size_t)n + 1, format, again);
      name = neap_intern_n(text, (size_t)n);
    }
    neap_free(text);
  }
  va_end(again);
  return name;
}

/* Where `key` stands or would stand. The product with 2^64 / golden ratio (Knuth's multiplicative
 * hashing) spreads pointers, whose low bits are all 0; its upper bits are the good ones. */
static int map_slot(const neap_map *map, const void *key) {
  uint64_t mixed = (uint64_t)(uintptr_t)key * 0x9E3779B97F4A7C15u;
  int i = (int)((mixed >> 32) & (uint64_t)(map->cap - 1));
  while (map->key[i] != NULL && map->key[i] != key) i = (i + 1) & (map->cap - 1);
  return i;
}

/* At most half full, so that every search ends; and no tombstones: each key is found from where its
 * search begins. Linear, so it is asked for when the table is made anew and when something has been
 * removed. */
static void check_map(const neap_map *map) {
  int n = 0;
  for (int i = 0; i < map->cap; i++) {
    if (map->key[i] == NULL) continue;
    n++;
    NEAP_ASSERT(map_slot(map, map->key[i]) == i, "key %d of %d is found where it stands, not at %d",
                i, map->cap, map_slot(map, map->key[i]));
  }
  NEAP_ASSERT(n == map->n && 2 * n <= map->cap,
              "a map of %d slots has %d keys, as it counts, and is at most half full: %d", map->cap,
              map->n, n);
}

/* The wide table is made whole before the old one goes, so that a refusal changes nothing. */
bool neap_map_set(neap_map *map, const void *key, int value) {
  NEAP_ASSERT(key != NULL, "a key of a map is a pointer to something; value %d has none", value);
  if (2 * (map->n + 1) > map->cap) {
    neap_map wide = {.cap = map->cap == 0 ? 16 : 2 * map->cap};
    wide.key = neap_alloc_zeroed((size_t)wide.cap * sizeof *wide.key);
    wide.value = neap_alloc_zeroed((size_t)wide.cap * sizeof *wide.value);
    if (wide.key == NULL || wide.value == NULL) {
      neap_map_fini(&wide);
      return false;
    }
    /* Each key goes where a search of the wide table begins. */
    for (int i = 0; i < map->cap; i++)
      if (map->key[i] != NULL) {
        int j = map_slot(&wide, map->key[i]);
        wide.key[j] = map->key[i];
        wide.value[j] = map->value[i];
        wide.n++;
      }
    neap_map_fini(map);
    *map = wide;
    if (NEAP_DEBUG) check_map(map);
  }

  /* Where the key stands, or the empty slot where it will stand. */
  int i = map_slot(map, key);
  if (map->key[i] == NULL) map->n++;
  map->key[i] = key;
  map->value[i] = value;
  return true;
}

int neap_map_get(const neap_map *map, const void *key, int missing) {
  if (map->cap == 0) return missing;
  int i = map_slot(map, key);
  return map->key[i] == NULL ? missing : map->value[i];
}

/* Empties the key's slot, then puts the rest of its cluster in again, each to where a search will
 * now look for it. */
void neap_map_remove(neap_map *map, const void *key) {
  if (map->cap == 0) return;
  int hole = map_slot(map, key);
  if (map->key[hole] == NULL) return;
  map->n--;
  map->key[hole] = NULL;

  /* Keys behind the hole may have been moved past it when they came: each goes to where it is found
   * now. */
  for (int i = (hole + 1) & (map->cap - 1); map->key[i] != NULL; i = (i + 1) & (map->cap - 1)) {
    /* Out of its slot first: the search must be able to end there. */
    const void *moved = map->key[i];
    map->key[i] = NULL;
    int j = map_slot(map, moved);
    map->key[j] = moved;
    map->value[j] = map->value[i];
  }
  if (NEAP_DEBUG) check_map(map);
}

void neap_map_fini(neap_map *map) {
  neap_free(map->key);
  neap_free(map->value);
  memset(map, 0, sizeof *map);
}
