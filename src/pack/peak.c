/* peak.c: the most bytes alive at once, the step where that is, and who is alive at a step.
 *
 * All that is asked of lives on a line comes down to this one sum: the bound of a packing, the live
 * bytes of a schedule, the peak of a memory bank, the least that any sharing of names needs. Only
 * the verifier counts for itself (plan/verify.c).
 */
#include "pack/pack.h"

#include <stdlib.h>
#include <string.h>

/* What begins at a step is added there, and taken off behind its last step: the sums of both, from
 * the first step on, are what is alive. A difference may wrap around below 0; its sum does not. */
neap_peak neap_interval_live(int n, const neap_interval *interval, int n_step, size_t *live) {
  /* Differences first: two writes for an interval, however long it lives. */
  neap_peak peak = {0};
  if (n_step > 0) memset(live, 0, (size_t)n_step * sizeof *live);
  for (int i = 0; i < n; i++) {
    const neap_interval *x = &interval[i];
    if (x->bytes == 0) continue;
    NEAP_ASSERT(0 <= x->first && x->first <= x->last && x->first < n_step,
                "interval %d lies in the %d steps: %lld to %lld", i, n_step, (long long)x->first,
                (long long)x->last);
    live[x->first] += x->bytes;
    if (x->last < n_step - 1) live[x->last + 1] -= x->bytes;
  }

  /* Then their running sum. The first of equal peaks stays, so that the step named does not depend
   * on what comes later. */
  for (int step = 0; step < n_step; step++) {
    if (step > 0) live[step] += live[step - 1];
    if (live[step] > peak.bytes) peak = (neap_peak){live[step], step};
  }
  return peak;
}

static int compare_steps(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* How many of the steps, which ascend, are no later than `step`. */
static int n_until(int n, const int64_t *step_of, int64_t step) {
  int low = 0, high = n;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (step_of[middle] <= step)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

/* Steps may be any numbers, and far apart. Between two beginnings bytes are only given back, so the
 * peak lies at a beginning: it is enough to look at those, numbered from 0. O(n log n). */
neap_status neap_interval_peak(int n, const neap_interval *interval, neap_peak *peak,
                               neap_error *error) {
  size_t room = (size_t)n + 1;
  int64_t *step_of = neap_alloc(room * sizeof *step_of);
  neap_interval *numbered = neap_alloc(room * sizeof *numbered);
  size_t *live = neap_alloc(room * sizeof *live);
  neap_status status = NEAP_OK;
  if (step_of == NULL || numbered == NULL || live == NULL) {
    status = neap_fail_memory(error, room * sizeof *numbered, "the most bytes alive at once");
    goto done;
  }

  /* Each step where something begins, once. */
  int n_begin = 0, n_step = 0;
  for (int i = 0; i < n; i++)
    if (interval[i].bytes > 0) step_of[n_begin++] = interval[i].first;
  if (n_begin > 0) qsort(step_of, (size_t)n_begin, sizeof *step_of, compare_steps);
  for (int i = 0; i < n_begin; i++)
    if (n_step == 0 || step_of[n_step - 1] != step_of[i]) step_of[n_step++] = step_of[i];

  /* The same intervals over those steps: to the last beginning that they are alive at. */
  for (int i = 0; i < n; i++)
    numbered[i] =
      (neap_interval){n_until(n_step, step_of, interval[i].first) - 1,
                      n_until(n_step, step_of, interval[i].last) - 1, interval[i].bytes};

  /* The peak's number becomes the step that it stands for. */
  *peak = neap_interval_live(n, numbered, n_step, live);
  if (n_step > 0) peak->step = step_of[peak->step];
done:
  neap_free(step_of);
  neap_free(numbered);
  neap_free(live);
  return status;
}

/* Insertion into a list kept by size: `room` is small. Of equal ones the first comes first. */
int neap_interval_alive(int n, const neap_interval *interval, int64_t step, int room, int *who) {
  int n_who = 0;
  for (int i = 0; i < n; i++) {
    const size_t bytes = interval[i].bytes;
    if (bytes == 0 || step < interval[i].first || interval[i].last < step) continue;
    /* A full list takes only what is larger than its last, which falls out. */
    if (n_who == room && (room == 0 || bytes <= interval[who[room - 1]].bytes)) continue;
    int at = n_who < room ? n_who++ : room - 1;
    for (; at > 0 && interval[who[at - 1]].bytes < bytes; at--) who[at] = who[at - 1];
    who[at] = i;
  }
  return n_who;
}
