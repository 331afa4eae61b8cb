/* durations.c: how long steps took: the newest ones in a ring, so that a long training keeps a
 * median without growing.
 *
 * INVARIANT: adding one takes no memory.
 */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

/* ---- sketches -------------------------------------------------------------------------------- */

enum { LEAST_OCTAVE = 8 }; /* 256 ns */

/* The class of a duration: its octave, then the part of it by the bits that follow. */
static int class_of(int64_t ns) {
  if (ns < (int64_t)1 << LEAST_OCTAVE) return 0;
  const int octave = 63 - __builtin_clzll((unsigned long long)ns);
  const int part = (int)(ns >> (octave - 3)) & (NEAP_SKETCH_PARTS - 1);
  const int at = (octave - LEAST_OCTAVE) * NEAP_SKETCH_PARTS + part;
  return NEAP_MIN(at, NEAP_N_SKETCH - 1);
}

/* The middle of a class. */
static int64_t middle_of(int at) {
  const int octave = LEAST_OCTAVE + at / NEAP_SKETCH_PARTS;
  const int64_t part = (int64_t)1 << (octave - 3);
  return ((int64_t)1 << octave) + part * (at % NEAP_SKETCH_PARTS) + part / 2;
}

void neap_sketch_add(neap_sketch *sketch, int64_t ns) {
  /* Halving all keeps the shares, which are all that is asked for. */
  uint16_t *count = &sketch->count[class_of(ns)];
  if (*count == UINT16_MAX)
    for (int i = 0; i < NEAP_N_SKETCH; i++) sketch->count[i] = (uint16_t)(sketch->count[i] / 2);
  ++*count;
}

int64_t neap_sketch_at(const neap_sketch *sketch, double share) {
  int64_t n = 0, below = 0;
  for (int i = 0; i < NEAP_N_SKETCH; i++) n += sketch->count[i];
  /* As in a sorted list of n, whose last one all do not exceed. */
  const int64_t want = NEAP_MIN((int64_t)(share * (double)n), n - 1);
  for (int i = 0; i < NEAP_N_SKETCH; i++) {
    below += sketch->count[i];
    if (below > want && n > 0) return middle_of(i);
  }
  return 0;
}

/* ---- durations ------------------------------------------------------------------------------- */

void neap_durations_add(neap_durations *d, int64_t ns) {
  neap_sketch_add(&d->sketch, ns);
  d->min_ns = d->n == 0 ? ns : NEAP_MIN(d->min_ns, ns);
  d->last_ns = ns;
  d->ring[d->n++ % NEAP_N_DURATION] = ns; /* over the oldest, once the ring is full */
}

/* For qsort. */
static int compare_ns(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

neap_durations_part neap_durations_recent(const neap_durations *d, int64_t n) {
  int64_t sorted[NEAP_N_DURATION];
  n = NEAP_MIN(NEAP_MIN(n, d->n), (int64_t)NEAP_N_DURATION);
  if (n <= 0) return (neap_durations_part){0};
  for (int64_t i = 0; i < n; i++) sorted[i] = d->ring[(d->n - 1 - i) % NEAP_N_DURATION];
  qsort(sorted, (size_t)n, sizeof *sorted, compare_ns);
  return (neap_durations_part){
    .min_ns = sorted[0], .median_ns = sorted[n / 2], .p95_ns = sorted[(n * 95) / 100]};
}

neap_durations_part neap_durations_all(const neap_durations *d) {
  if (d->n <= NEAP_N_DURATION) return neap_durations_recent(d, d->n);
  return (neap_durations_part){.min_ns = d->min_ns,
                               .median_ns = NEAP_MAX(neap_sketch_at(&d->sketch, 0.5), d->min_ns),
                               .p95_ns = NEAP_MAX(neap_sketch_at(&d->sketch, 0.95), d->min_ns)};
}
