/* verify_live.c: the spans of bytes that are in use at one moment, for the check of plans in one
 * order: a span comes, goes, and is asked for by the bytes that it meets.
 *
 * All spans that may ever come are known before, sorted by where they begin. Over them stands a
 * binary tree in an array, `most_end[1]` its root: of each part of the list, the furthest byte
 * that a span of it which is in use reaches to; 0 where none is.
 *
 * Coming and going are O(log n), asking is O(log n) for each span that is found.
 */
#include "plan/verify_int.h"

neap_status verify_live_init(live_spans *live, int n, const span *spans, neap_arena *arena,
                             neap_error *error) {
  int n_leaf = 1;
  while (n_leaf < n) n_leaf *= 2;
  *live = (live_spans){.n = n, .n_leaf = n_leaf, .span = spans};
  live->most_end = neap_arena_alloc(arena, 2 * (size_t)n_leaf * sizeof *live->most_end);
  if (live->most_end == NULL)
    return neap_fail_memory(error, 2 * (size_t)n_leaf * sizeof *live->most_end, "checking a plan");
  for (int i = 0; i < 2 * n_leaf; i++) live->most_end[i] = 0;
  return NEAP_OK;
}

/* The leaf's value, and those above it that it is part of. */
static void set_end(live_spans *live, int at, size_t end) {
  int i = live->n_leaf + at;
  live->most_end[i] = end;
  for (i /= 2; i >= 1; i /= 2)
    live->most_end[i] = NEAP_MAX(live->most_end[2 * i], live->most_end[2 * i + 1]);
}

void verify_live_begin(live_spans *live, int at) {
  set_end(live, at, live->span[at].offset + live->span[at].bytes);
}

void verify_live_end(live_spans *live, int at) { set_end(live, at, 0); }

/* The first leaf from `from` on whose span reaches beyond `begin`; n_leaf: none. */
static int next_beyond(const live_spans *live, int from, size_t begin) {
  /* Up until a part to the right has one, then down to the first of its leaves that has. */
  int i = live->n_leaf + from;
  while (live->most_end[i] <= begin) {
    while (i % 2 == 1) i /= 2; /* a right part: what is above it has nothing more to the right */
    if (i == 0) return live->n_leaf;
    i++;
  }
  while (i < live->n_leaf) {
    i *= 2;
    if (live->most_end[i] <= begin) i++;
  }
  return i - live->n_leaf;
}

int verify_live_next(const live_spans *live, int from, size_t offset, size_t bytes) {
  if (from >= live->n) return live->n;
  const int at = next_beyond(live, from, offset);
  if (at >= live->n || live->span[at].offset >= offset + bytes) return live->n;
  return at;
}
