/* thread.c: how many threads, and the one parallel-for. OpenMP is shared with OpenBLAS and oneDNN: one pool in all.
 *
 * INVARIANT: which range a thread gets depends on n and on the number of threads alone, never on timing.
 */
#include "base/base.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* 0 until somebody asks or sets. */
static _Atomic int n_thread_set;

/* Asks the environment once, and keeps the answer. */
int neap_threads(void) {
  int n = atomic_load(&n_thread_set);
  if (n > 0) return n;
  const char *asked = getenv("NEAP_NUM_THREADS");
  n = asked != NULL ? atoi(asked) : 0;
#ifdef _OPENMP
  if (n <= 0) n = omp_get_max_threads();
#endif
  neap_threads_set(NEAP_MAX(n, 1));
  return NEAP_MAX(n, 1);
}

/* All but the signals that a thread's own fault raises: what happens when those come while blocked is undefined (POSIX). */
void neap_signals_hold(sigset_t *saved) {
  sigset_t held;
  sigfillset(&held);
  static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP};
  for (int i = 0; i < NEAP_COUNT(own); i++) sigdelset(&held, own[i]);
  pthread_sigmask(SIG_BLOCK, &held, saved);
}

void neap_signals_release(const sigset_t *saved) { pthread_sigmask(SIG_SETMASK, saved, NULL); }

/* The pool's threads are made here, with signals held: they keep the mask they were made with. */
void neap_threads_set(int n) {
  n = NEAP_MAX(n, 1);
  atomic_store(&n_thread_set, n);
#ifdef _OPENMP
  omp_set_num_threads(n);
  sigset_t saved;
  neap_signals_hold(&saved);
  atomic_int here = 0; /* an empty region would be left out by the compiler */
#pragma omp parallel num_threads(n)
  atomic_fetch_add(&here, 1);
  neap_signals_release(&saved);
#endif
}

/* Equal ranges, one a thread: the loops here have even work, and with a queue of chunks who computes what
 * would depend on timing. OpenMP may give fewer threads than asked for; the ranges then are as many. */
void neap_parallel_for(int64_t n, int64_t grain, int n_thread, void (*body)(void *, int64_t, int64_t), void *context) {
  if (n <= 0) return;
#ifdef _OPENMP
  int64_t most = (n + NEAP_MAX(grain, 1) - 1) / NEAP_MAX(grain, 1);
  int n_part = (int)NEAP_MIN(most, (int64_t)n_thread);
  if (n_part > 1 && !omp_in_parallel()) {
#pragma omp parallel num_threads(n_part)
    {
      int64_t part = omp_get_thread_num(), parts = omp_get_num_threads();
      int64_t begin = n * part / parts, end = n * (part + 1) / parts;
      if (begin < end) body(context, begin, end);
    }
    return;
  }
#endif
  (void)grain, (void)n_thread;
  body(context, 0, n);
}

int64_t neap_clock_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}
