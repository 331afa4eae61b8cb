/* test_random_nets.c: the whole way from a net to its plan, and for some to its run, on nets that
 * nobody has thought of: branches, blobs written twice and in place by name, views, several
 * consumers, convolutions of 1 to 50 channels with pools and norms, LSTM and attention, f64 and
 * integers, Free, states that move by name, If, While and Recurrent around all of it, in one
 * another, and gradients. Every plan goes through the independent verifier; every run must give the
 * bits of the unplanned run.
 *
 *   test_random_nets                  a fixed number of nets
 *   test_random_nets FROM COUNT       the runs of these nets
 *   test_random_nets plan FROM COUNT  their plans
 *   test_random_nets NAME             the text of one net and its runs; a failure prints the NAME
 *                                     of the net it was shrunk to
 *
 * random/recipe.h: nets as data; random/writer.h: their text; random/ways.h: what must agree.
 */
#include "check.h"
#include "random/ways.h"

#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { N_PLANNED = 2400, N_RUN = 150, FIRST_RUN = 20000 };

static double seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void report(recipe *r, bool runs, fault *f) {
  neap_buffer name = {0};
  uint64_t seed = r->seed;
  if (getenv("NEAP_NO_SHRINK") == NULL) shrink(r, runs, f);
  made m = write_net(r);
  recipe_print(r, &name);
  printf("  net %llu, shrunk to %s\n%s  %s: %s\n", (unsigned long long)seed, name.text, m.text,
         f->way, f->message);
  fflush(stdout);
  made_fini(&m);
  neap_buffer_fini(&name);
  check_failures++;
}

/* A net that ends the program can't be shrunk, but it can be named. */
static void on_signal(int number) {
  static const char words[] = "\n  a signal ended net ";
  (void)!write(1, words, sizeof words - 1);
  (void)!write(1, ways_at, strlen(ways_at));
  (void)!write(1, "\n", 1);
  signal(number, SIG_DFL);
  raise(number);
}

static void try_nets(bool runs, uint64_t from, int n, totals *t) {
  for (uint64_t seed = from; seed < from + (uint64_t)n && check_failures < 5; seed++) {
    recipe r;
    fault f = {0};
    char name[32];
    snprintf(name, sizeof name, "%llu", (unsigned long long)seed);
    recipe_read(&r, name);
    if (!runs) r.size *= 2, snprintf(ways_at, sizeof ways_at, "%s: plans", name);
    if (!(runs ? runs_agree(&r, NULL, t, &f) : plans_hold(&r, t, &f))) report(&r, runs, &f);
  }
}

static int given(int n, int share) {
  const char *text = getenv("NEAP_RANDOM_NETS");
  return text != NULL ? NEAP_MAX(1, atoi(text) / share) : n;
}

static void print_families(const totals *t) {
  printf("  nets with");
  for (int k = 0; k < n_families(); k++)
    printf("%s %s %d", k > 0 ? "," : "", family_name(k), t->by_family[k]);
  printf("\n");
}

static void print_plans(const totals *t, double took) {
  printf(
    "  %d nets (%d train, %d refused), %.0f a second, %d ops (most %d), %d loops, %d in place, %d "
    "views; %d plans verified, %d "
    "proved, arena at most %.3f of the bound; %d ops repeated for a backward pass\n",
    t->n_net, t->n_train, t->n_refused, (t->n_net + t->n_refused) / took, t->n_node, t->most_nodes,
    t->n_loop, t->n_in_place, t->n_alias, t->n_plan, t->n_proved, t->worst, t->n_again);
  print_families(t);
}

static void print_runs(const totals *t, double took) {
  printf(
    "  %d nets (%d refused), %.1f a second; %d written out, %d within budgets, %d that recompute, "
    "%d that evict, %d whose turns run side by side, %d copies between banks; %d run eagerly, %d "
    "beside a test, %d in ranges, %d in micro-batches, %d in chains: %d "
    "blobs equal bit for bit\n",
    t->n_run, t->n_refused, (t->n_run + t->n_refused) / took, t->n_written, t->n_budget,
    t->n_recomputed, t->n_evicted, t->n_turns, t->n_moved, t->n_eager, t->n_beside, t->n_ranged,
    t->n_micro, t->n_chain, t->n_same);
  print_families(t);
}

static bool all_families(const totals *t) {
  bool all = true;
  for (int k = 0; k < n_families(); k++) all = all && t->by_family[k] > 0;
  return all;
}

TEST(plans_of_random_nets_pass_the_verifier) {
  totals t = {0}, again = {0};
  int n = given(N_PLANNED, 1);
  double began = seconds();
  try_nets(false, 0, n, &t);
  print_plans(&t, seconds() - began);
  int64_t live = neap_memory_read().n_live;

  /* once more, with all names known: nothing may stay behind */
  try_nets(false, 0, NEAP_MIN(n, 99), &again);
  CHECK_EQ(neap_memory_read().n_live, live);
  CHECK(t.n_net + t.n_refused == n && t.n_refused * 50 < n && t.n_loop * 5 > n &&
        t.n_in_place > n && t.n_alias > n / 8 &&
        t.n_again > n / 8); /* the nets are what the head says */
  CHECK(n < 500 || all_families(&t));
}

TEST(random_nets_run_alike_in_every_way) {
  totals t = {0}, again = {0};
  int n = given(N_RUN, 20);
  double began = seconds();
  try_nets(true, FIRST_RUN, n, &t);
  print_runs(&t, seconds() - began);
  int64_t live = neap_memory_read().n_live;
  try_nets(true, FIRST_RUN, 1, &again); /* its names are known by now: nothing may stay behind */
  CHECK_EQ(neap_memory_read().n_live, live);
  CHECK(t.n_same > 20 * n && t.n_moved > n && t.n_written * 12 > n && t.n_eager * 12 > n &&
        t.n_beside > n && t.n_ranged * 3 > n && t.n_micro * 5 > n && t.n_chain > n);
  CHECK(n < 100 ||
        (t.n_recomputed * 50 > n && t.n_evicted * 50 > n && t.n_turns > n && all_families(&t)));
}

static int usage(const char *program) {
  fprintf(stderr,
          "usage: %s [plan] FROM COUNT   numbers: the first net, and how many\n"
          "       %s [plan] NAME         as a failure prints it\n",
          program, program);
  return 2;
}

static bool read_number(const char *text, uint64_t *out) {
  char *end;
  *out = strtoull(text, &end, 10);
  return text[0] >= '0' && text[0] <= '9' && *end == '\0';
}

/* One net by its name, or many by number. */
static int run_given(int argc, char **argv) {
  bool plans = strcmp(argv[1], "plan") == 0;
  int first = plans ? 2 : 1;
  totals t = {0};
  if (argc == first + 2) {
    /* Two numbers: from which net on, and how many. */
    double began = seconds();
    uint64_t from, count;
    if (!read_number(argv[first], &from) || !read_number(argv[first + 1], &count) ||
        count > INT_MAX)
      return usage(argv[0]);
    try_nets(!plans, from, (int)count, &t);
    if (plans)
      print_plans(&t, seconds() - began);
    else
      print_runs(&t, seconds() - began);
    return check_failures > 0;
  }

  /* One name: the net's text first, in case it crashes. */
  if (argc != first + 1) return usage(argv[0]);
  recipe r;
  fault f = {0};
  if (!recipe_read(&r, argv[first]))
    return fprintf(stderr, "%s: no net is called so\n", argv[first]), 2;
  made m = write_net(&r);
  printf("%s", m.text);
  fflush(stdout);
  made_fini(&m);
  bool holds = plans ? plans_hold(&r, &t, &f) : runs_agree(&r, NULL, &t, &f);
  printf(holds ? "  holds\n" : "  %s: %s\n", f.way, f.message);
  return !holds;
}

TEST(arguments_that_are_none_are_told) {
  CHECK_EQ(run_given(2, (char *[]){"t", "plan", NULL}), 2);
  CHECK_EQ(run_given(4, (char *[]){"t", "plan", "1", "x", NULL}), 2);
  CHECK_EQ(run_given(3, (char *[]){"t", "1", "99999999999", NULL}), 2);
  CHECK_EQ(run_given(5, (char *[]){"t", "plan", "1", "2", "3", NULL}), 2);
}

int main(int argc, char **argv) {
  static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT, SIGILL};
  for (int k = 0; k < NEAP_COUNT(fatal); k++) signal(fatal[k], on_signal);
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (argc > 1 && (strcmp(argv[1], "plan") == 0 || (argv[1][0] >= '0' && argv[1][0] <= '9')))
    return run_given(argc, argv);
  return RUN(argc, argv, T(arguments_that_are_none_are_told),
             T(plans_of_random_nets_pass_the_verifier), T(random_nets_run_alike_in_every_way));
}
