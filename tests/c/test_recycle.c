/* test_recycle.c: recycling by name when memory is refused: whichever allocation fails, the call
 * says so, gives nothing, keeps nothing, and leaves the net as it was. */
#include "check.h"
#include "plan/plan.h"
#include "memonger/memonger.h"

#define NAMES(...) ((const char *const[]){__VA_ARGS__})

static const char text[] =
  "net deep\n"
  "input x f32 (4,8)\n"
  "input c f32 (1)\n"
  "input label i32 (4)\n"
  "param w f32 (8,8) = Xavier\n"
  "a = Tanh(x)\n"
  "b = FC(a, w)\n"
  "h = Relu(b)\n"
  "subnet yes\n  p = Tanh(h)\n  q = Sigmoid(p)\n  r = MatMul(q, w)\n  takes h, w\n  gives r\nend\n"
  "subnet no\n  p = Relu(h)\n  takes h, w\n  gives p\nend\n"
  "m = If(c, h, w) { then_net = yes, else_net = no }\n"
  "n = Tanh(m)\n"
  "o = Relu(n)\n"
  "loss = SoftmaxCrossEntropy(o, label)\n"
  "outputs loss\n";

static neap_net *deep(bool subnets, bool train) {
  neap_net *net = NULL;
  static const char plain[] =
    "net chain\ninput x f32 (4,8)\ninput label i32 (4)\nparam w f32 (8,8) = Xavier\na = Tanh(x)\nb "
    "= FC(a, w)\nh = Relu(b)\nn = "
    "Tanh(h)\n"
    "o = Relu(n)\nloss = SoftmaxCrossEntropy(o, label)\noutputs loss\n";
  CHECK_OK(neap_net_read(subnets ? text : plain, &net, &error));
  if (train) CHECK_OK(neap_net_add_gradient(net, "loss", 0, NULL, NULL, NULL, &error));
  return net;
}

/* What is tried: gives and frees its results, or fails with nothing. */
typedef neap_status trial(const neap_net *net, neap_error *error);

/* Fails the first allocation of the trial, then the second, until it passes. */
static void refuse_each(const neap_net *net, trial *run, int least) {
  neap_buffer before = {0}, after = {0};
  neap_net_print(net, false, &before);
  int n_failed = 0;
  int64_t live = 0;
  CHECK_OK(run(net, &error)); /* names are interned once and stay */
  for (int64_t nth = 1; nth < 100000; nth++) {
    /* Each time from the same state: what is alive before must be alive after, whether it failed or
     * not. */
    neap_error error = {0};
    live = neap_memory_read().n_live;
    neap_memory_fail_nth_block(nth);
    neap_status status = run(net, &error);
    bool failed = neap_memory_failed();
    neap_memory_fail_nth(0, false);

    CHECK_EQ(neap_memory_read().n_live, live);
    CHECK_EQ(status, failed ? NEAP_MEMORY : NEAP_OK);
    CHECK_EQ(error.code, status);
    if (check_failures > 0) printf("  allocation %lld: %s\n", (long long)nth, error.message);
    if (!failed || check_failures > 0) break;
    n_failed++;
  }
  CHECK(n_failed >= least);
  neap_net_print(net, false, &after);
  CHECK_EQ(strcmp(before.text, after.text), 0);
  neap_buffer_fini(&before), neap_buffer_fini(&after);
}

static neap_status recycle_with(const neap_net *net, const neap_recycle_options *options,
                                neap_error *error) {
  neap_net *made = NULL;
  neap_recycle_figures figures;
  neap_recycle_slots slots;
  neap_status status = neap_recycle_net(net, options, NULL, &made, &figures, &slots, error);
  CHECK_EQ(made != NULL, status == NEAP_OK);
  if (status == NEAP_OK) neap_recycle_slots_fini(&slots);
  neap_net_free(made);
  return status;
}

static neap_status try_linear(const neap_net *net, neap_error *error) {
  return recycle_with(net, NULL, error);
}

static neap_status try_dag(const neap_net *net, neap_error *error) {
  neap_recycle_options o = {.dag = true,
                            .prefix = "s/",
                            .exact = true,
                            .most_steps = 100,
                            .keep_last = 1,
                            .n_dont_share = 1,
                            .dont_share = NAMES("a"),
                            .n_head = 1,
                            .head = NAMES("loss")};
  return recycle_with(net, &o, error);
}

static neap_status try_subset(const neap_net *net, neap_error *error) {
  neap_recycle_options o = {.gradients_only = true,
                            .n_op = 4,
                            .op = (int[]){0, 1, 2, 3},
                            .n_shareable = 2,
                            .shareable = NAMES("a", "b")};
  return recycle_with(net, &o, error);
}

static neap_status try_longest(const neap_net *net, neap_error *error) {
  return recycle_with(net, &(neap_recycle_options){.order = "longest_path"}, error);
}

static neap_status try_least(const neap_net *net, neap_error *error) {
  return recycle_with(net, &(neap_recycle_options){.order = "least_memory"}, error);
}

static neap_status try_release(const neap_net *net, neap_error *error) {
  neap_net *made = NULL;
  const char **freed = NULL;
  int n = 0;
  neap_status status = neap_recycle_release(net, 1, NAMES("n"), &made, &freed, &n, error);
  CHECK_EQ(made != NULL && freed != NULL && n > 0, status == NEAP_OK);
  neap_free(freed);
  neap_net_free(made);
  return status;
}

static neap_status try_estimate(const neap_net *net, neap_error *error) {
  neap_memory_estimate e;
  neap_status status =
    neap_net_estimate_memory(2, (const neap_net *[]){net, net}, NULL, NULL, &e, error);
  CHECK_EQ(e.by_type != NULL && e.total_bytes > 0, status == NEAP_OK);
  neap_free(e.by_type);
  return status;
}

static neap_status try_ranges(const neap_net *net, neap_error *error) {
  neap_live_range *range = NULL;
  int n = 0;
  neap_status status = neap_net_live_ranges(net, &range, &n, error);
  CHECK_EQ(range != NULL && n > 0, status == NEAP_OK);
  neap_free(range);
  return status;
}

static neap_status try_same(const neap_net *net, neap_error *error) {
  bool same = false;
  char *where = NULL;
  neap_status status =
    neap_net_same(net, net, NEAP_SAME_GRAPH | NEAP_SAME_IN_PLACE, &same, &where, error);
  CHECK(status != NEAP_OK || (same && where == NULL));
  return status;
}

static neap_status try_rename(const neap_net *net, neap_error *error) {
  neap_net *made = NULL;
  neap_status status = neap_net_rename(net, 2, NAMES("a", "h"), NAMES("a2", "h2"), &made, error);
  CHECK_EQ(made != NULL, status == NEAP_OK);
  neap_net_free(made);
  return status;
}

static neap_status try_assign(const neap_net *net, neap_error *error) {
  (void)net;
  neap_assign_item item[40];
  for (int i = 0; i < 40; i++)
    item[i] = (neap_assign_item){.bytes = 1 + i * 37 % 11, .first = i, .last = i + i * 7 % 5};
  int slot[40];
  neap_assign_figures figures;
  neap_status status = neap_assign(
    40, item, &(neap_assign_options){.exact = true, .most_steps = 1000}, slot, &figures, error);
  return status == NEAP_OK ? neap_assign_verify(40, item, NULL, slot, error) : status;
}

TEST(refused_memory_leaves_a_net_with_subnets) {
  for (int train = 0; train < 2; train++) {
    neap_net *net = deep(true, train);
    refuse_each(net, try_linear, 20);
    refuse_each(net, try_dag, 20);
    refuse_each(net, try_rename, 10);
    refuse_each(net, try_same, 1);
    refuse_each(net, try_ranges, 10);
    neap_net_free(net);
  }
}

TEST(refused_memory_leaves_a_net_that_trains) {
  neap_net *net = deep(false, true);
  trial *const trials[] = {try_linear, try_dag,     try_subset,   try_longest,
                           try_least,  try_release, try_estimate, try_ranges};
  for (int k = 0; k < NEAP_COUNT(trials); k++) refuse_each(net, trials[k], 10);
  refuse_each(net, try_assign, 2);
  neap_net_free(net);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(refused_memory_leaves_a_net_with_subnets),
             T(refused_memory_leaves_a_net_that_trains));
}
