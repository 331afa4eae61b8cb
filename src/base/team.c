/* team.c: the threads that help. Work comes in shares, numbered from 0. The caller runs share 0 and
 * then, as every helper does, whatever share nobody has taken yet: who comes late finds his taken.
 * What a share computes is fixed by its number, so results do not depend on who ran it.
 *
 * A team is a caller and its helpers. There are as many as callers are at work at the same time: a
 * caller takes one that is free and gives it back; helpers stay to the end of the process. Who
 * waits looks at a counter for a moment and then sleeps. When somebody else has taken the core from
 * a thread that was only looking, all sleep at once for some time.
 *
 * Data structure: `claim` holds the job's shares and how many of them are taken in one word, so
 * that taking one is one compare-and-swap. INVARIANT: the other fields of a job change only while
 * all shares of the word are taken and have been run.
 */
#include "base/base.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#ifdef _OPENMP
#include <omp.h>
#endif

/* ---- waiting --------------------------------------------------------------------------------- */

/* A counter that threads wait upon until it has moved. */
typedef struct gate {
  _Atomic unsigned value;
  _Atomic int n_asleep; /* changed with the mutex held */
  pthread_mutex_t mutex;
  pthread_cond_t moved;
} gate;

static void gate_init(gate *g) {
  atomic_store(&g->value, 0);
  atomic_store(&g->n_asleep, 0);
  pthread_mutex_init(&g->mutex, NULL);
  pthread_cond_init(&g->moved, NULL);
}

/* Wakes at most `n` of those that sleep. The counter moves before the sleepers are counted, and a
 * sleeper counts itself before it looks at the counter: one of the two sees the other. */
static void gate_open(gate *g, int n) {
  atomic_fetch_add(&g->value, 1);
  if (atomic_load(&g->n_asleep) == 0) return;
  pthread_mutex_lock(&g->mutex);
  /* All of them, or n: more would wake up for nothing. */
  if (atomic_load(&g->n_asleep) <= n)
    pthread_cond_broadcast(&g->moved);
  else
    for (int i = 0; i < n; i++) pthread_cond_signal(&g->moved);
  pthread_mutex_unlock(&g->mutex);
}

/* Until when looking does not pay, by neap_clock_ns. */
static _Atomic int64_t crowded_until;

static inline void pause_core(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

/* Looks for a moment; true when the counter has moved. SPIN_NS: the most that a gap between two
 * kernels takes, mostly; to wake a sleeper takes about 50 us on an idle core. A look that took
 * LOST_NS was interrupted by another process. */
static bool gate_look(gate *g, unsigned seen) {
  enum { SPIN_NS = 200000, LOST_NS = 100000, CROWDED_NS = 20000000, LOOKS = 32 };
  int64_t begin = neap_clock_ns(), last = begin;

  /* For a while after that nobody looks: the cores are wanted by others. */
  if (begin < atomic_load_explicit(&crowded_until, memory_order_relaxed)) return false;

  /* The clock is read every few looks only, as it costs more than they do. */
  while (last - begin < SPIN_NS) {
    for (int i = 0; i < LOOKS; i++) {
      if (atomic_load(&g->value) != seen) return true;
      pause_core();
    }
    int64_t now = neap_clock_ns();
    if (now - last > LOST_NS) {
      atomic_store_explicit(&crowded_until, now + CROWDED_NS, memory_order_relaxed);
      return false;
    }
    last = now;
  }
  return false;
}

static void gate_wait(gate *g, unsigned seen) {
  if (atomic_load(&g->value) != seen || gate_look(g, seen)) return;
  /* Counted before the counter is read once more: see gate_open. */
  pthread_mutex_lock(&g->mutex);
  atomic_fetch_add(&g->n_asleep, 1);
  while (atomic_load(&g->value) == seen) pthread_cond_wait(&g->moved, &g->mutex);
  atomic_fetch_sub(&g->n_asleep, 1);
  pthread_mutex_unlock(&g->mutex);
}

/* ---- teams ----------------------------------------------------------------------------------- */

typedef struct team {
  _Alignas(NEAP_ALIGN) _Atomic uint64_t claim; /* shares << 32 | taken */
  _Alignas(NEAP_ALIGN) _Atomic int left;       /* shares that have not been run */
  void (*share)(void *context, int share);
  void *context;
  gate work, done;       /* a job has been given; all its shares have been run */
  gate met;              /* the shares of a job have met once more */
  _Atomic int n_met;     /* of them are waiting for the others */
  _Atomic bool is_taken; /* by a caller */
  _Atomic int n_helper;  /* changed by the caller that has the team */
  bool is_refused;       /* the system has not granted another helper */
} team;

/* More callers than this at the same time do without helpers, or wait. */
enum { MAX_TEAM = 32 };
static team teams[MAX_TEAM];
static gate given_back;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The team whose shares this thread runs: a helper's for good, a caller's during a job. */
static _Thread_local team *own;

static void init_teams(void) {
  gate_init(&given_back);
  for (int i = 0; i < MAX_TEAM; i++) {
    team *t = &teams[i];
    atomic_store(&t->claim, 0);
    atomic_store(&t->left, 0);
    gate_init(&t->work);
    gate_init(&t->done);
    gate_init(&t->met);
    atomic_store(&t->n_met, 0);
    atomic_store(&t->is_taken, false);
    atomic_store(&t->n_helper, 0);
    t->is_refused = false;
  }
}

/* A child has the thread that forked and no other: its teams begin anew, whatever its parent's were
 * at. */
static void after_fork(void) {
  own = NULL;
  init_teams();
}

static void start(void) {
  init_teams();
  pthread_atfork(NULL, NULL, after_fork);
}

/* Takes shares until there is none left. The last one to end tells the caller. */
static void take_shares(team *t) {
  for (uint64_t claim = atomic_load(&t->claim); (uint32_t)claim < claim >> 32;) {
    /* Who is first to count a share up runs it. */
    if (!atomic_compare_exchange_weak(&t->claim, &claim, claim + 1)) continue;
    t->share(t->context, (int)(uint32_t)claim);
    if (atomic_fetch_sub(&t->left, 1) == 1) gate_open(&t->done, 1);
    claim = atomic_load(&t->claim);
  }
}

/* The counter is read before the shares: a job given in between is not slept through. */
static void *help(void *context) {
  team *t = context;
  own = t;
#ifdef _OPENMP
  omp_set_num_threads(1); /* libraries on OpenMP make no threads of their own here */
#endif
  for (;;) {
    unsigned seen = atomic_load(&t->work.value);
    take_shares(t);
    gate_wait(&t->work, seen);
  }
  return NULL;
}

/* To n helpers, or as many as the system grants. Signals are for the threads of the process's
 * owner. */
static void add_helpers(team *t, int n) {
  if (atomic_load(&t->n_helper) >= n || t->is_refused) return;
  pthread_attr_t attr;
  if (pthread_attr_init(&attr) != 0) return;
  pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);

  /* Helpers inherit the mask: no signal of the owner's is handled by them. */
  sigset_t saved;
  neap_signals_hold_all(&saved);
  pthread_t thread;
  while (atomic_load(&t->n_helper) < n && pthread_create(&thread, &attr, help, t) == 0)
    atomic_fetch_add(&t->n_helper, 1);
  neap_signals_release(&saved);
  t->is_refused = atomic_load(&t->n_helper) < n;
  pthread_attr_destroy(&attr);
}

static void give_back(team *t) {
  atomic_store(&t->is_taken, false);
  gate_open(&given_back, 1);
}

/* A free team, with n helpers or as many as there can be; NULL when all are taken. */
static team *take_any(int n) {
  pthread_once(&once, start);
  for (int i = 0; i < MAX_TEAM; i++) {
    bool free = false;
    if (!atomic_compare_exchange_strong(&teams[i].is_taken, &free, true)) continue;
    add_helpers(&teams[i], n);
    return &teams[i];
  }
  return NULL;
}

/* A team that has n helpers; where the system grants no more, one that another caller gives back.
 * NULL when no team ever had so many. */
static team *take_whole(int n) {
  for (;;) {
    unsigned seen = atomic_load(&given_back.value);
    /* Whether it is worth waiting: some team that another caller has is large enough. */
    bool hope = false;
    for (int i = 0; i < MAX_TEAM; i++) {
      bool free = false;
      if (!atomic_compare_exchange_strong(&teams[i].is_taken, &free, true)) {
        hope = hope || atomic_load(&teams[i].n_helper) >= n;
        continue;
      }

      /* A free team: large enough, or made so; else it is put back, and the next one is tried. */
      add_helpers(&teams[i], n);
      if (atomic_load(&teams[i].n_helper) >= n) return &teams[i];
      atomic_store(&teams[i].is_taken, false);
    }
    if (!hope) return NULL;
    gate_wait(&given_back, seen);
  }
}

/* ---- running --------------------------------------------------------------------------------- */

bool neap_team_is_inside(void) {
#ifdef _OPENMP
  return own != NULL || omp_in_parallel();
#else
  return own != NULL;
#endif
}

/* Share 0 is the caller's, so that it is run by the thread that takes signals. */
static void run_job(team *t, int n, void (*share)(void *, int), void *context) {
  unsigned seen = atomic_load(&t->done.value);
  uint64_t claim = atomic_load(&t->claim);
  NEAP_ASSERT(
    (uint32_t)claim == claim >> 32 && atomic_load(&t->left) == 0,
    "a job begins when all shares of the one before are taken and run: %u of %u taken, %d left",
    (unsigned)claim, (unsigned)(claim >> 32), atomic_load(&t->left));

  /* The job is written while nobody reads it: see the assertion. */
  t->share = share;
  t->context = context;
  atomic_store(&t->left, n);
  atomic_store(&t->claim, (uint64_t)n << 32 | 1);

  /* All is said before the gate opens: a helper may run its share at once. */
  gate_open(&t->work, n - 1);
  own = t;
  share(context, 0);

  /* The caller takes what the helpers have not: it never waits while there is work. */
  if (atomic_fetch_sub(&t->left, 1) == 1) gate_open(&t->done, 0);
  take_shares(t);
  own = NULL;
  gate_wait(&t->done, seen);
  NEAP_ASSERT(atomic_load(&t->left) == 0 && atomic_load(&t->n_met) == 0,
              "all %d shares of a job have been run when it ends: %d left", n,
              atomic_load(&t->left));
  give_back(t);
}

void neap_team_run(int n, void (*share)(void *context, int share), void *context) {
  team *t = n > 1 && !neap_team_is_inside() ? take_any(n - 1) : NULL;
  if (t != NULL)
    run_job(t, n, share, context);
  else
    for (int i = 0; i < n; i++) share(context, i);
}

bool neap_team_run_together(int n, void (*share)(void *context, int share), void *context) {
  pthread_once(&once, start);
  team *t = own == NULL ? take_whole(n - 1) : NULL;
  if (t != NULL) run_job(t, n, share, context);
  return t != NULL;
}

/* The count begins anew before the gate opens, since those who come out may meet again. */
void neap_team_meet(void) {
  team *t = own;
  NEAP_ASSERT(t != NULL, "a thread that meets the others runs a share of a team");
  int n = (int)(atomic_load(&t->claim) >> 32);
  unsigned seen = atomic_load(&t->met.value);
  /* Not the last one: waits for those that are missing. */
  if (atomic_fetch_add(&t->n_met, 1) + 1 < n) {
    gate_wait(&t->met, seen);
    return;
  }
  atomic_store(&t->n_met, 0);
  gate_open(&t->met, n);
}

int neap_team_prove(int n) {
  team *t = n > 1 ? take_any(n - 1) : NULL;
  if (t == NULL) return 1;
  int most = atomic_load(&t->n_helper) + 1;
  give_back(t);
  return NEAP_MIN(n, most);
}
