/* The threads that help: every share is run once, by whoever is free; a late thread's share by
 * another; callers at the same time, somebody's parallel region, a child of fork. What could hang
 * is ended by an alarm. */
#include "check.h"

#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

enum { GIVE_UP_S = 60 };

static void count_share(void *context, int share) {
  atomic_fetch_add((_Atomic int *)context + share, 1);
}

TEST(each_share_is_run_once) {
  static _Atomic int count[20];
  for (int round = 0; round < 2000; round++) {
    int n = round % 7 == 0 ? 20 : 1 + round % 5;
    for (int i = 0; i < n; i++) atomic_store(&count[i], 0);
    neap_team_run(n, count_share, count);
    for (int i = 0; i < n; i++) CHECK_EQ(atomic_load(&count[i]), 1);
  }
}

/* Share 0 ends when all others have: the helper that has come is late with share 1 until the rest
 * has been run by others, and with one helper that is the calling thread alone. */
typedef struct late {
  pthread_t caller;
  _Atomic int n_ended, held; /* held: the share that a helper keeps to itself */
  _Atomic int by_caller;
} late;

static void run_late(void *context, int share) {
  late *l = context;
  bool is_caller = pthread_equal(pthread_self(), l->caller) != 0;
  int none = -1;
  if (is_caller && share == 0)
    while (atomic_load(&l->held) < 0) usleep(100); /* until a helper has come */
  if (!is_caller && atomic_compare_exchange_strong(&l->held, &none, share))
    while (atomic_load(&l->n_ended) < 7) usleep(100);
  atomic_fetch_add(&l->n_ended, 1);
  if (is_caller) atomic_fetch_add(&l->by_caller, 1);
}

TEST(the_shares_of_a_late_thread_are_taken_by_others) {
  late l = {.caller = pthread_self(), .held = -1};
  /* a team of two; the next job has more shares than it has threads */
  neap_team_run(2, count_share, (_Atomic int[2]){0});
  CHECK_EQ(neap_team_prove(2), 2);
  neap_team_run(8, run_late, &l);
  CHECK_EQ(atomic_load(&l.n_ended), 8);
}

static void meet_often(void *context, int share) {
  _Atomic int *count = context;
  int n = atomic_load(&count[0]);
  for (int round = 1; round <= 50; round++) {
    atomic_fetch_add(&count[1], 1);
    neap_team_meet();
    if (atomic_load(&count[1]) != round * n) atomic_fetch_add(&count[2], 1);
    neap_team_meet();
  }
  (void)share;
}

TEST(shares_that_wait_for_each_other_meet) {
  for (int n = 2; n <= 5; n++) {
    _Atomic int count[3] = {n};
    CHECK(neap_team_run_together(n, meet_often, count));
    CHECK_EQ(atomic_load(&count[1]), 50 * n);
    CHECK_EQ(atomic_load(&count[2]), 0);
  }
}

static void *call_often(void *context) {
  _Atomic int *bad = context;
  for (int round = 0; round < 300; round++) {
    _Atomic int met[3] = {2}, once[4] = {0};
    if (round % 10 == 0 && (!neap_team_run_together(2, meet_often, met) || met[2] != 0))
      atomic_fetch_add(bad, 1);
    neap_team_run(4, count_share, once);
    for (int i = 0; i < 4; i++) atomic_fetch_add(bad, once[i] != 1);
  }
  return NULL;
}

TEST(callers_at_the_same_time_have_a_team_each) {
  enum { N = 5 };
  pthread_t thread[N];
  _Atomic int bad = 0;
  for (int i = 0; i < N; i++) CHECK_EQ(pthread_create(&thread[i], NULL, call_often, &bad), 0);
  for (int i = 0; i < N; i++) pthread_join(thread[i], NULL);
  CHECK_EQ(bad, 0);
}

/* More than there are teams, which then wait for each other. */
TEST(callers_without_a_team_wait_or_do_it_alone) {
  enum { N = 40 };
  pthread_t thread[N];
  _Atomic int bad = 0;
  for (int i = 0; i < N; i++) CHECK_EQ(pthread_create(&thread[i], NULL, call_often, &bad), 0);
  for (int i = 0; i < N; i++) pthread_join(thread[i], NULL);
  CHECK_EQ(bad, 0);
}

static void note_thread(void *context, int share) {
  ((pthread_t *)context)[share] = pthread_self();
}

TEST(inside_a_parallel_region_shares_run_on_the_calling_thread) {
  _Atomic int n_other = 0, n_inside = 0;
#pragma omp parallel num_threads(2)
  {
    pthread_t by[8];
    neap_team_run(8, note_thread, by);
    for (int i = 0; i < 8; i++) n_other += pthread_equal(by[i], pthread_self()) == 0;
    n_inside += omp_in_parallel() && neap_threads() != 1;
  }
  CHECK_EQ(n_other, 0);
  CHECK_EQ(n_inside, 0);
}

static void run_nested(void *context, int share) {
  _Atomic int *bad = context;
  pthread_t by[4];
  neap_team_run(4, note_thread, by);
  for (int i = 0; i < 4; i++) *bad += pthread_equal(by[i], pthread_self()) == 0;
  if (neap_team_run_together(2, count_share, (_Atomic int[2]){0})) *bad += share + 1;
}

TEST(inside_a_share_all_is_run_by_its_thread) {
  _Atomic int bad = 0;
  neap_team_run(4, run_nested, &bad);
  CHECK_EQ(bad, 0);
}

TEST(a_child_of_fork_has_teams_of_its_own) {
  _Atomic int count[3] = {3};
  CHECK(neap_team_run_together(3, meet_often, count));
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    alarm(GIVE_UP_S);
    _Atomic int again[3] = {3}, once[8] = {0};
    bool good = neap_team_run_together(3, meet_often, again) && again[2] == 0;
    neap_team_run(8, count_share, once);
    for (int i = 0; i < 8; i++) good = good && once[i] == 1;
    _exit(good ? 0 : 1);
  }
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int argc, char **argv) {
  alarm(GIVE_UP_S);
  return RUN(argc, argv, T(each_share_is_run_once),
             T(the_shares_of_a_late_thread_are_taken_by_others),
             T(shares_that_wait_for_each_other_meet), T(callers_at_the_same_time_have_a_team_each),
             T(callers_without_a_team_wait_or_do_it_alone),
             T(inside_a_parallel_region_shares_run_on_the_calling_thread),
             T(inside_a_share_all_is_run_by_its_thread), T(a_child_of_fork_has_teams_of_its_own));
}
