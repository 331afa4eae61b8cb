/* durations.c: how long steps took: the newest ones in a ring, so that a long training keeps a
 * median without growing.
 *
 * INVARIANT: adding one takes no memory.
 */
#include "base/base.h"

#include <stdlib.h>
#include <string.h>

void neap_durations_add(neap_durations *d, int64_t ns) {
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
