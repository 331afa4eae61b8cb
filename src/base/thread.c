/* thread.c: how many threads, and the one parallel-for.
 *
 * INVARIANT: which ranges are computed in one piece depends on n, the grain and the number of
 * threads asked for, never on timing nor on who runs them.
 */
#include "base/base.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* 0 until somebody asks or sets. */
static _Atomic int n_thread_set;

/* What OpenMP would use, where nobody says otherwise: OMP_NUM_THREADS or the cores, but no more
 * than OMP_THREAD_LIMIT. */
static int default_threads(void) {
#ifdef _OPENMP
  return NEAP_MIN(omp_get_max_threads(), omp_get_thread_limit());
#else
  return 1;
#endif
}

/* More threads than processors only wait for each other; as many as this are let through all the
 * same, for tests. */
enum { LET_THROUGH = 64 };
static int most_threads(void) {
#ifdef _OPENMP
  return NEAP_MAX(omp_get_num_procs(), LET_THROUGH);
#else
  return LET_THROUGH;
#endif
}

/* What the environment asks for; 0: nothing, -1: something that is no number of threads. */
static long asked_threads(void) {
  const char *asked = getenv("NEAP_NUM_THREADS");
  if (asked == NULL || asked[0] == '\0') return 0;
  char *end;
  long n = strtol(asked, &end, 10);
  return *end == '\0' && n > 0 ? n : -1;
}

bool neap_threads_complaint(char text[160]) {
  long n = asked_threads();
  if (n >= 0 && n <= most_threads()) return false;
  /* Not a number, or more of them than are let through. */
  if (n < 0)
    snprintf(text, 160, "NEAP_NUM_THREADS = %.60s is no number of threads: it is ignored",
             getenv("NEAP_NUM_THREADS"));
  else
    snprintf(text, 160, "NEAP_NUM_THREADS = %ld is more threads than Neap takes here: %d are taken",
             n, most_threads());
  return true;
}

/* Asks the environment once, and keeps the answer. What is made inside somebody's parallel region
 * is made for one thread. */
int neap_threads(void) {
  if (neap_team_is_inside()) return 1;
  int n = atomic_load(&n_thread_set);
  if (n > 0) return n;
  /* The first to ask decides; who sets a number later replaces it. */
  long asked = asked_threads();
  neap_threads_set(asked > 0 ? (int)NEAP_MIN(asked, most_threads()) : default_threads());
  return atomic_load(&n_thread_set);
}

/* As many as there can be: what the system refuses here, no kernel is made for. */
void neap_threads_set(int n) {
  atomic_store(&n_thread_set, neap_team_prove(NEAP_MAX(NEAP_MIN(n, most_threads()), 1)));
}

int neap_threads_for(int asked) {
  return asked <= 0 || neap_team_is_inside() ? neap_threads()
                                             : neap_team_prove(NEAP_MIN(asked, most_threads()));
}

/* Equal ranges, as many as threads are asked for. */
typedef struct ranges {
  int64_t n, n_part;
  void (*body)(void *, int64_t, int64_t);
  void *context;
} ranges;

static void run_range(void *context, int part) {
  const ranges *r = context;
  /* Bounds by the number of the part alone. */
  int64_t begin = r->n * part / r->n_part, end = r->n * (part + 1) / r->n_part;
  if (begin < end) r->body(r->context, begin, end);
}

void neap_parallel_for(int64_t n, int64_t grain, int n_thread,
                       void (*body)(void *, int64_t, int64_t), void *context) {
  if (n <= 0) return;
  /* As many parts as the grain allows, and no more than there are threads. */
  int64_t most = (n + NEAP_MAX(grain, 1) - 1) / NEAP_MAX(grain, 1);
  ranges r = {
    .n = n, .n_part = NEAP_MAX(NEAP_MIN(most, n_thread), 1), .body = body, .context = context};
  neap_team_run((int)r.n_part, run_range, &r);
}
