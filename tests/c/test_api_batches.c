/* test_api_batches.c: large batches as micro-batches, as users of neap.h meet them. */
#include "batch_net.h"

#include <pthread.h>

/* ---- micro-batches --------------------------------------------------------------------------- */

TEST(micro_batches_are_the_step_of_the_large_batch) {
  /* the last one: dynamic */
  static const char *const policy[] = {NULL, "name", "none", "pool", NULL};
  for (method u = SGD; u < N_METHOD && check_failures == 0; u++)
    for (int dag = 0; dag < 2; dag++) {
      outcome whole, parts;
      CHECK_OK(train(u, 0, &(neap_options){.executor = dag ? "dag" : NULL}, &whole, &error));
      CHECK(distance(whole.gradient, (float[PARAMS]){0}) > 1e-3); /* there is something to learn */
      for (int p = 0; p < 5; p++) /* 1, 4; 5 with an uneven last part; 12 */
        for (int64_t rows = 1; rows <= 12; rows += rows == 1 ? 3 : rows == 4 ? 1 : 7) {
          /* a pool has no dag */
          if (dag && p >= 3) continue;
          CHECK_OK(train(u, rows,
                         &(neap_options){.executor = dag      ? "dag"
                                                     : p == 4 ? "dynamic"
                                                              : NULL,
                                         .policy = policy[p]},
                         &parts, &error));
          CHECK(distance(whole.parameter, parts.parameter) < 1e-5);
          CHECK(distance(whole.gradient, parts.gradient) < 1e-5);
          CHECK_NEAR(whole.norm, parts.norm, 1e-5);
          for (int k = 0; k < 3; k++) {
            CHECK_NEAR(whole.loss[k], parts.loss[k], 1e-5);
            CHECK_NEAR(whole.accuracy[k], parts.accuracy[k], 1e-5);
          }
        }
    }
}

/* Ops that write declared names and are no updates: n counts steps, w is clipped by the update,
 * seen counts rows. */
TEST(declared_names_that_ops_write_move_as_in_the_large_batch) {
  static const char text[] =
    "net counted\n"
    "input x f32 (6,2)\n"
    "param w f32 (3,2) = Constant { value = 1 }\n"
    "state n f32 () = Constant { value = 0 }\n"
    "state one f32 () = Constant { value = 1 }\n"
    "state seen f32 (2) = Constant { value = 0 }\n"
    "y = FC(x, w)\n"
    "l = Mean(y)\n"
    "rows = Sum(x) { axes = {0} }\n"
    "seen = Add(seen, rows) as see\n"
    "gw = Gradient(l, w)\n"
    "w = Sgd(w, gw, one) { momentum = 0 }\n"
    "w = Clamp(w) { min = 0.75, max = 2.0 } as clip\n"
    "n = Add(n, one) as count\n"
    "outputs l\n";
  float x[12];
  for (int i = 0; i < 12; i++) x[i] = 1;
  for (int64_t rows = 1; rows <= 6; rows++) {
    neap_net *net = NULL;
    neap_workspace *ws = NULL;
    neap_micro *micro = NULL;
    CHECK_OK(neap_net_read(text, &net, &error));
    CHECK_OK(neap_workspace_open(1, &ws, &error));
    CHECK_OK(neap_micro_open(ws, net, rows, NULL, &micro, &error));
    for (int step = 1; step <= 2 && check_failures == 0; step++) {
      float n = 0, w[6] = {0}, seen[2] = {0};
      CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){6, 2}, x, &error));
      CHECK_OK(neap_micro_run(micro, 0, NULL, &error));
      CHECK_OK(neap_workspace_read(ws, "n", NEAP_DTYPE_F32, 1, &n, &error));
      CHECK_OK(neap_workspace_read(ws, "w", NEAP_DTYPE_F32, 6, w, &error));
      CHECK_OK(neap_workspace_read(ws, "seen", NEAP_DTYPE_F32, 2, seen, &error));
      CHECK_EQ(n, step);
      CHECK_NEAR(w[0], 0.75, 1e-6); /* 1 - 1/3 is clipped */
      CHECK_EQ(seen[0], 6 * step);
    }
    neap_micro_free(micro);
    neap_workspace_release(ws);
    neap_net_free(net);
  }
}

TEST(a_declared_name_written_before_the_gradient_is_refused) {
  static const char text[] =
    "net again\n"
    "input x f32 (6,2)\n"
    "param w f32 (3,2) = Constant { value = 1 }\n"
    "param v f32 (3,2) = Constant { value = 0 }\n"
    "u = Copy(w)\n"
    "w = Clamp(w) { min = 0.5, max = 0.75 } as clip\n"
    "y = FC(x, w)\n"
    "l = Mean(y)\n"
    "gw = Gradient(l, w)\n"
    "d = Mul(gw, u)\n"
    "v = Add(v, d) as move\n"
    "outputs l\n";
  neap_net *net = NULL;
  neap_workspace *ws = NULL;
  neap_micro *micro = NULL;
  CHECK_OK(neap_net_read(text, &net, &error));
  CHECK_OK(neap_workspace_open(1, &ws, &error));
  CHECK_FAILS(neap_micro_open(ws, net, 2, NULL, &micro, &error), NEAP_GRAPH,
              "Clamp \"clip\": writes a declared blob that the gradient depends on");
  neap_workspace_release(ws);
  neap_net_free(net);
}

/* Rows [from, from + n) of batch k of 12. */
static neap_status write_rows(neap_workspace *ws, int64_t from, int64_t n, int k, int64_t bad_row,
                              neap_error *error) {
  float x[MOST * IN];
  int32_t y[MOST];
  NEAP_TRY(write_batch(ws, 12, k, bad_row, error));
  NEAP_TRY(neap_workspace_read(ws, "x", NEAP_DTYPE_F32, 12 * IN, x, error));
  NEAP_TRY(neap_workspace_read(ws, "y", NEAP_DTYPE_I32, 12, y, error));
  NEAP_TRY(
    neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){n, IN}, x + from * IN, error));
  return neap_workspace_write(ws, "y", NEAP_DTYPE_I32, 1, &n, y + from, error);
}

/* Three steps of 12 rows, given as batches of 5, 4 and 3; with `spoil` each is tried with a bad row
 * first. */
static neap_status train_held(method update, int64_t rows, bool by_hand, bool spoil, outcome *out,
                              neap_error *error) {
  static const int64_t size[] = {5, 4, 3}, from[] = {0, 5, 9};
  neap_net *net = NULL;
  neap_workspace *ws = NULL;
  neap_micro *micro = NULL;
  memset(out, 0, sizeof *out);

  neap_status status = make_net(12, update, &net, error);
  if (status == NEAP_OK) status = neap_workspace_open(5, &ws, error);
  if (status == NEAP_OK)
    status = neap_micro_open(ws, net, rows, &(neap_options){.accumulate = "mean"}, &micro, error);
  neap_net_free(net);
  for (int k = 0; k < 3 && status == NEAP_OK; k++) {
    for (int b = 0; b < 3 && status == NEAP_OK; b++) {
      /* The last batch of a step may be run, which ends the step, or held like the others. */
      neap_error refused = {0};
      bool hold = b < 2 || by_hand;

      /* The bad row is the last one, so that parts before it have been computed when it is met. */
      if (spoil) status = write_rows(ws, from[b], size[b], k, from[b] + size[b] - 1, error);
      if (spoil && status == NEAP_OK) {
        neap_status bad = hold ? neap_micro_add(micro, 0, NULL, 0, &refused)
                               : neap_micro_run(micro, 0, NULL, &refused);
        CHECK(bad == NEAP_DATA);
      }

      /* What was refused is not held. */
      CHECK_EQ(neap_micro_n_held(micro), b);
      if (status == NEAP_OK) status = write_rows(ws, from[b], size[b], k, -1, error);
      if (status == NEAP_OK)
        status =
          hold ? neap_micro_add(micro, 0, NULL, 0, error) : neap_micro_run(micro, 0, NULL, error);
    }
    /* nothing is held when a run came last */
    if (status == NEAP_OK) status = neap_micro_update(micro, error);
    CHECK_EQ(neap_micro_n_held(micro), 0);
    CHECK_EQ(neap_micro_figures(micro).n_step, k + 1);
  }
  if (status == NEAP_OK) status = read_all(ws, "", out->parameter, error);
  if (status == NEAP_OK) status = read_all(ws, "_grad", out->gradient, error);
  neap_micro_free(micro);
  neap_workspace_release(ws);
  return status;
}

TEST(batches_added_up_are_the_step_of_all_their_rows) {
  for (method u = SGD; u < N_METHOD && check_failures == 0; u++) {
    outcome whole, held, spoiled;
    CHECK_OK(train(u, 0, NULL, &whole, &error));
    for (int64_t rows = 2; rows <= 12; rows += 10)
      for (int by_hand = 0; by_hand < 2; by_hand++) {
        CHECK_OK(train_held(u, rows, by_hand, false, &held, &error));
        CHECK(distance(whole.parameter, held.parameter) < 1e-5);
        CHECK(distance(whole.gradient, held.gradient) < 1e-5);
        /* what fails leaves what is held, to the bit */
        CHECK_OK(train_held(u, rows, by_hand, true, &spoiled, &error));
        CHECK(memcmp(held.parameter, spoiled.parameter, sizeof held.parameter) == 0);
      }
  }
}

TEST(what_is_held_is_counted_and_asked_for) {
  neap_net *net = NULL;
  neap_workspace *ws = NULL;
  neap_micro *micro = NULL;
  CHECK_OK(make_net(12, ADAM, &net, &error));
  CHECK_OK(neap_workspace_open(5, &ws, &error));
  CHECK_OK(write_batch(ws, 12, 1, -1, &error));
  CHECK_OK(neap_micro_open(ws, net, 4, NULL, &micro, &error));
  int64_t without = neap_micro_figures(micro).total_bytes;
  CHECK_FAILS(neap_micro_add(micro, 0, NULL, 0, &error), NEAP_ARGUMENT, "accumulate");
  CHECK_OK(neap_micro_update(micro, &error));
  neap_micro_free(micro);
  CHECK_FAILS(neap_micro_open(ws, net, 4, &(neap_options){.accumulate = "max"}, &micro, &error),
              NEAP_ARGUMENT, "mean or sum");
  CHECK_OK(neap_micro_open(ws, net, 4, &(neap_options){.accumulate = "sum"}, &micro, &error));
  CHECK_OK(write_batch(ws, 0, 1, -1, &error));
  CHECK_FAILS(neap_micro_run(micro, 0, NULL, &error), NEAP_SHAPE, "input \"x\" has no rows");
  CHECK_OK(write_batch(ws, 12, 1, -1, &error));
  int64_t with = neap_micro_figures(micro).total_bytes;
  CHECK(with - without >= PARAMS * 4 && with - without <= PARAMS * 4 + 6 * 64);
  CHECK_FAILS(neap_micro_add(micro, 0, NULL, -1, &error), NEAP_ARGUMENT, "count expects");
  neap_micro_free(micro);
  CHECK_OK(neap_micro_open(ws, net, 4, &(neap_options){.accumulate = "mean", .total = with}, &micro,
                           &error));
  neap_micro_free(micro);
  CHECK_FAILS(neap_micro_open(ws, net, 4, &(neap_options){.accumulate = "mean", .total = with - 64},
                              &micro, &error),
              NEAP_BUDGET, "total");
  neap_net_free(net);
  neap_workspace_release(ws);
}

TEST(options_are_read_when_micro_batches_are_opened_and_not_again) {
  for (int dynamic = 0; dynamic < 2; dynamic++) {
    neap_net *net = NULL;
    neap_workspace *ws = NULL;
    neap_micro *micro = NULL;
    char engine[] = "ref", kept[] = "hidden";
    const char *keep[] = {kept};
    CHECK_OK(make_net(12, SGD, &net, &error));
    CHECK_OK(neap_workspace_open(5, &ws, &error));
    CHECK_OK(write_batch(ws, 12, 1, -1, &error));
    neap_options options = {
      .engine = engine, .keep = keep, .n_keep = 1, .policy = dynamic ? "pool" : NULL};
    CHECK_OK(neap_micro_open(ws, net, 5, &options, &micro, &error));
    memset(engine, 'x', 3);
    memset(kept, 'x', 6);
    memset(&options, 0, sizeof options);
    /* the last two rows are a part of their own, compiled now */
    CHECK_OK(neap_micro_run(micro, 0, NULL, &error));
    int64_t dim[NEAP_MAX_DIM] = {0};
    int n_dim = 0;
    CHECK_OK(neap_workspace_shape(ws, "hidden", NULL, &n_dim, dim, &error));
    CHECK_EQ(dim[0], 2);
    neap_micro_free(micro);
    neap_net_free(net);
    neap_workspace_release(ws);
  }
}

TEST(any_number_of_rows_is_a_step_in_the_same_memory) {
  neap_net *net = NULL;
  neap_workspace *ws = NULL;
  neap_micro *micro = NULL;
  CHECK_OK(make_net(12, ADAM, &net, &error));
  CHECK_OK(neap_workspace_open(5, &ws, &error));
  CHECK_OK(write_batch(ws, MOST, 1, -1, &error)); /* before and after the programs are made */
  CHECK_OK(neap_micro_open(ws, net, 5, NULL, &micro, &error));
  CHECK_EQ(neap_micro_rows(micro), 5);
  int64_t arena = neap_micro_figures(micro).arena_bytes, n_step = 0;
  for (int64_t rows = 1; rows <= MOST; rows += 1 + rows / 3) {
    float score[5 * CLASSES];
    int n_dim = 0;
    int64_t dim[NEAP_MAX_DIM] = {0};
    CHECK_OK(write_batch(ws, rows, (int)rows, -1, &error));
    CHECK_OK(neap_micro_run(micro, 0, NULL, &error));
    /* the large batch is the caller's, and is as it was */
    CHECK_OK(neap_workspace_shape(ws, "x", NULL, &n_dim, dim, &error));
    CHECK(n_dim == 2 && dim[0] == rows && dim[1] == IN);
    CHECK_OK(neap_workspace_shape(ws, "score", NULL, &n_dim, dim, &error)); /* of the last part */
    CHECK_EQ(dim[0], rows % 5 == 0 ? 5 : rows % 5);
    CHECK_OK(neap_workspace_read(ws, "score", NEAP_DTYPE_F32, dim[0] * CLASSES, score, &error));
    CHECK_EQ(neap_micro_figures(micro).n_step, ++n_step);
    CHECK_EQ(neap_micro_figures(micro).arena_bytes, arena);
  }
  neap_micro_free(micro);
  neap_net_free(net);
  neap_workspace_release(ws);
}

TEST(micro_batches_hold_what_their_figures_say) {
  outcome ignored;
  for (int dag = 0; dag < 2; dag++) {
    neap_net *net = NULL;
    neap_workspace *ws = NULL;
    neap_micro *micro = NULL;
    neap_figures whole = {0};
    neap_options options = {.executor = dag ? "dag" : NULL};
    CHECK_OK(make_net(MOST, ADAM, &net, &error));
    CHECK_OK(neap_net_forecast(net, &options, &whole, NULL, &error));
    CHECK_OK(neap_workspace_open(5, &ws, &error));
    CHECK_OK(neap_micro_open(ws, net, 4, &options, &micro, &error));
    CHECK_OK(write_batch(ws, MOST, 1, -1, &error));
    CHECK_OK(neap_micro_run(micro, 0, NULL, &error));
    neap_figures figures = neap_micro_figures(micro);
    CHECK(figures.arena_bytes < whole.arena_bytes && figures.total_bytes < whole.total_bytes);
    CHECK_EQ(figures.parameter_bytes, whole.parameter_bytes);
    /* accumulators in the place of gradients, not beside them */
    CHECK_EQ(figures.gradient_bytes, whole.gradient_bytes);
    /* and the large batch */
    CHECK(figures.held_bytes <= figures.total_bytes + MOST * IN * 4 + MOST * 4);
    neap_micro_free(micro);
    neap_net_free(net);
    neap_workspace_release(ws);
  }
  CHECK_OK(train(SGD, 4, NULL, &ignored, &error));
}

TEST(weights_are_the_callers_where_rows_do_not_count_alike) {
  neap_net *net = NULL;
  neap_workspace *ws = NULL;
  neap_micro *micro = NULL;
  float first[PARAMS], second[PARAMS], loss = 0, mean = 0;
  CHECK_OK(make_net(4, SGD, &net, &error));
  CHECK_OK(neap_workspace_open(5, &ws, &error));
  CHECK_OK(neap_micro_open(ws, net, 4, NULL, &micro, &error));
  CHECK_OK(write_batch(ws, 8, 1, -1, &error));

  /* the first four rows alone */
  CHECK_OK(neap_micro_run(micro, 2, (const double[]){1, 0}, &error));
  CHECK_OK(read_all(ws, "_grad", first, &error));
  CHECK_OK(neap_workspace_read(ws, "loss", NEAP_DTYPE_F32, 1, &mean, &error));
  neap_workspace_release(ws);
  neap_micro_free(micro);
  CHECK_OK(neap_workspace_open(5, &ws, &error));
  CHECK_OK(neap_micro_open(ws, net, 4, NULL, &micro, &error));
  CHECK_OK(write_batch(ws, 4, 1, -1, &error));
  float x[4 * IN];
  CHECK_OK(neap_workspace_read(ws, "x", NEAP_DTYPE_F32, 4 * IN, x, &error));
  CHECK_OK(write_batch(ws, 8, 1, -1, &error));
  int32_t y[8];
  CHECK_OK(neap_workspace_read(ws, "y", NEAP_DTYPE_I32, 8, y, &error));
  CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){4, IN}, x, &error));
  CHECK_OK(neap_workspace_write(ws, "y", NEAP_DTYPE_I32, 1, (int64_t[]){4}, y, &error));
  CHECK_OK(neap_micro_run(micro, 0, NULL, &error));
  CHECK_OK(read_all(ws, "_grad", second, &error));
  CHECK_OK(neap_workspace_read(ws, "loss", NEAP_DTYPE_F32, 1, &loss, &error));
  CHECK(distance(first, second) < 1e-6);
  CHECK_NEAR(mean, loss, 1e-6);
  CHECK_FAILS(neap_micro_run(micro, 2, (const double[]){1, 0}, &error), NEAP_ARGUMENT,
              "1 micro-batches of 4, got 2 weights");
  neap_micro_free(micro);
  neap_net_free(net);
  neap_workspace_release(ws);
}

TEST(blobs_of_both_nets_can_be_kept) {
  const neap_mem_param param = {.n_exclude_blob = 1,
                                .exclude_blob = (const char *const[]){"hidden"}};
  static const char *const names[] = {"hidden", "rate"};
  const neap_options options[] = {{.n_keep = 2, .keep = names},
                                  {.mem_param = &param},
                                  {.n_keep = 2, .keep = names, .accumulate = "mean"}};
  for (int o = 0; o < 3; o++)
    for (int dag = 0; dag < 2; dag++) {
      neap_options own = options[o];
      neap_net *net = NULL;
      neap_workspace *ws = NULL;
      neap_micro *micro = NULL;
      float hidden[2 * HIDDEN], rate = 0;
      own.executor = dag ? "dag" : NULL;
      CHECK_OK(make_net(12, CLIPPED, &net, &error));
      CHECK_OK(neap_workspace_open(5, &ws, &error));
      CHECK_OK(neap_micro_open(ws, net, 5, &own, &micro, &error));
      CHECK_OK(write_batch(ws, 12, 1, -1, &error));
      CHECK_OK(neap_micro_run(micro, 0, NULL, &error));
      /* of the last part's two rows */
      CHECK_OK(neap_workspace_read(ws, "hidden", NEAP_DTYPE_F32, 2 * HIDDEN, hidden, &error));
      /* of the update */
      if (o != 1) CHECK_OK(neap_workspace_read(ws, "rate", NEAP_DTYPE_F32, 1, &rate, &error));
      CHECK(o == 1 || rate == 0.05f);
      neap_micro_free(micro);
      own.n_keep = 1;
      own.keep = (const char *const[]){"hiden"};
      own.mem_param = NULL;
      CHECK_FAILS(neap_micro_open(ws, net, 5, &own, &micro, &error), NEAP_NAME, "hiden");
      neap_net_free(net);
      neap_workspace_release(ws);
    }
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

TEST(a_step_that_breaks_off_leaves_nothing_behind) {
  neap_net *net = NULL;
  neap_workspace *broken = NULL, *clean = NULL;
  neap_micro *a = NULL, *b = NULL;
  float before[PARAMS], after[PARAMS], expected[PARAMS], sums[PARAMS], later[PARAMS];
  for (int dag = 0; dag < 2; dag++) {
    neap_options options = {.executor = dag ? "dag" : NULL};
    CHECK_OK(make_net(12, ADAM, &net, &error));
    CHECK_OK(neap_workspace_open(5, &broken, &error));
    CHECK_OK(neap_workspace_open(5, &clean, &error));
    CHECK_OK(neap_micro_open(broken, net, 4, &options, &a, &error));
    CHECK_OK(neap_micro_open(clean, net, 4, &options, &b, &error));
    for (int k = 0; k < 2; k++) {
      CHECK_OK(write_batch(broken, 12, k, -1, &error));
      CHECK_OK(write_batch(clean, 12, k, -1, &error));
      CHECK_OK(neap_micro_run(a, 0, NULL, &error));
      CHECK_OK(neap_micro_run(b, 0, NULL, &error));
      CHECK_OK(read_all(broken, "", before, &error));
      CHECK_OK(read_all(broken, "_grad", sums, &error));
      /* A label in the last micro-batch that no class has: the first two have added their gradients
       * by then. */
      CHECK_OK(write_batch(broken, 12, 7, 9, &error));
      CHECK_FAILS(neap_micro_run(a, 0, NULL, &error), NEAP_DATA, "99");
      CHECK_OK(read_all(broken, "", after, &error));
      CHECK_OK(read_all(broken, "_grad", later, &error));
      CHECK(memcmp(before, after, sizeof before) == 0);
      CHECK(memcmp(sums, later, sizeof sums) != 0); /* it was in the middle */
      neap_interrupt(true);
      CHECK_OK(write_batch(broken, 12, 8, -1, &error));
      CHECK_FAILS(neap_micro_run(a, 0, NULL, &error), NEAP_INTERRUPTED, "interrupted");
      neap_interrupt(false);
      int64_t dim[NEAP_MAX_DIM];
      CHECK_OK(neap_workspace_shape(broken, "x", NULL, NULL, dim, &error));
      CHECK_EQ(dim[0], 12); /* lent inputs are back */
      CHECK_OK(read_all(broken, "", after, &error));
      CHECK(memcmp(before, after, sizeof before) == 0);
    }
    CHECK_OK(read_all(broken, "", after, &error));
    CHECK_OK(read_all(clean, "", expected, &error));
    CHECK(memcmp(after, expected, sizeof after) == 0);
    CHECK_EQ(neap_micro_figures(a).n_step, 2);
    neap_micro_free(a);
    neap_micro_free(b);
    neap_net_free(net);
    neap_workspace_release(broken);
    neap_workspace_release(clean);
  }
}

static void *interrupt_later(void *spins) {
  for (volatile int i = 0; i < *(const int *)spins; i++) continue;
  neap_interrupt(true);
  return NULL;
}

/* Wherever the interrupt meets the step: it has happened as a whole, or not at all. */
TEST(an_interrupted_step_has_happened_or_not) {
  neap_net *net = NULL;
  neap_workspace *ws = NULL;
  neap_micro *micro = NULL;
  CHECK_OK(make_net(12, SGD, &net, &error));
  CHECK_OK(neap_workspace_open(5, &ws, &error));
  CHECK_OK(neap_micro_open(ws, net, 1, NULL, &micro, &error));
  CHECK_OK(write_batch(ws, 12, 1, -1, &error));
  CHECK_OK(neap_micro_run(micro, 0, NULL, &error));
  int64_t done = 1;
  for (int i = 0; i < 60; i++) {
    float before[PARAMS], after[PARAMS];
    neap_error own = {0};
    pthread_t thread;
    int spins = i * 2000;
    CHECK_OK(read_all(ws, "", before, &error));
    CHECK_EQ(pthread_create(&thread, NULL, interrupt_later, &spins), 0);
    neap_status status = neap_micro_run(micro, 0, NULL, &own);
    pthread_join(thread, NULL);
    neap_interrupt(false);
    CHECK(status == NEAP_OK || status == NEAP_INTERRUPTED);
    done += status == NEAP_OK;
    CHECK_OK(read_all(ws, "", after, &error));
    CHECK((memcmp(before, after, sizeof before) == 0) == (status != NEAP_OK));
    CHECK_EQ(neap_micro_figures(micro).n_step, done);
  }
  neap_micro_free(micro);
  neap_net_free(net);
  neap_workspace_release(ws);
}

TEST(what_can_not_be_split_is_refused_with_its_reason) {
  neap_net *net = NULL;
  neap_workspace *ws = NULL;
  neap_micro *micro = NULL;
  neap_net *part = NULL, *whole = NULL;
  CHECK_OK(neap_workspace_open(5, &ws, &error));
  CHECK_OK(make_net(12, NONE, &net, &error));
  CHECK_FAILS(neap_micro_open(ws, net, 4, NULL, &micro, &error), NEAP_GRAPH, "has no Gradient op");
  neap_net_free(net);
  CHECK_OK(make_net(12, SGD, &net, &error));
  CHECK_FAILS(neap_micro_open(ws, net, -1, NULL, &micro, &error), NEAP_ARGUMENT, "got -1");
  CHECK_FAILS(neap_micro_open(ws, net, 13, NULL, &micro, &error), NEAP_ARGUMENT,
              "to 12, the net's batch, got 13");
  CHECK_FAILS(neap_micro_open(ws, net, 0, NULL, &micro, &error), NEAP_ARGUMENT,
              "give a budget or a total");
  CHECK_FAILS(neap_micro_open(ws, net, 4, &(neap_options){.total = -1}, &micro, &error),
              NEAP_ARGUMENT, "can't be negative");
  CHECK_FAILS(neap_micro_open(ws, net, 4, &(neap_options){.threads = 4097}, &micro, &error),
              NEAP_ARGUMENT, "1 to 4096");
  CHECK_FAILS(neap_micro_open(ws, net, 4, &(neap_options){.total = 100}, &micro, &error),
              NEAP_BUDGET, "the total is");
  neap_net *expanded = NULL;
  CHECK_OK(neap_net_expand(net, NULL, &expanded, &error));
  CHECK_FAILS(neap_net_split_micro(expanded, &part, &whole, &error), NEAP_GRAPH,
              "has no Gradient op");
  neap_net_free(expanded);

  /* An op that would have to know the gradient of the whole batch and the loss of each
   * micro-batch. */
  CHECK_OK(neap_net_add_text(net, &error, "both = Mul(b2_grad, loss)"));
  neap_error own = {0};
  CHECK_EQ(neap_net_split_micro(net, &part, &whole, &own), NEAP_GRAPH);
  CHECK(strcmp(own.op, "Mul") == 0 && strcmp(own.blob, "loss") == 0 && own.hint[0] != '\0');
  CHECK(strstr(own.message, "\"both\"") != NULL && strstr(own.message, "\"b2_grad\"") != NULL);
  CHECK(part == NULL && whole == NULL);
  neap_net_free(net);

  /* The derivative of what follows from that gradient alone. */
  CHECK_OK(make_net(12, SGD, &net, &error));
  CHECK_OK(neap_net_add_text(net, &error, "norm = Sum(b2_grad)\nsecond = Gradient(norm, b1)"));
  CHECK_FAILS(neap_net_split_micro(net, &part, &whole, &error), NEAP_GRAPH,
              "can't be differentiated a second time");
  CHECK(part == NULL && whole == NULL);
  neap_net_free(net);

  CHECK_OK(
    neap_net_read("net n\nparam w f32 (3)\nl = Mean(w)\nw_grad = Gradient(l, w)\n", &net, &error));
  CHECK_FAILS(neap_net_split_micro(net, &part, &whole, &error), NEAP_ARGUMENT,
              "no input with a batch");
  neap_net_free(net);

  CHECK_OK(make_net(12, SGD, &net, &error));
  CHECK_OK(neap_micro_open(ws, net, 4, NULL, &micro, &error));

  /* nothing was written */
  CHECK_FAILS(neap_micro_run(micro, 0, NULL, &error), NEAP_RELEASED, "\"x\"");
  CHECK_OK(write_batch(ws, 12, 1, -1, &error));
  CHECK_OK(
    neap_workspace_write(ws, "y", NEAP_DTYPE_I32, 1, (int64_t[]){2}, (int32_t[]){0, 1}, &error));
  CHECK_FAILS(neap_micro_run(micro, 0, NULL, &error), NEAP_SHAPE, "expected 12 rows");
  CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){2, 2},
                                (float[]){0, 1, 2, 3}, &error));
  CHECK_FAILS(neap_micro_run(micro, 0, NULL, &error), NEAP_SHAPE, "\"x\"");
  CHECK_OK(write_batch(ws, 12, 1, -1, &error));
  CHECK_OK(neap_micro_run(micro, 0, NULL, &error)); /* and all is well again */
  neap_micro_free(micro);
  neap_micro_free(NULL);
  neap_net_free(net);
  neap_workspace_release(ws);
}

int main(int argc, char **argv) {
  return RUN(
    argc, argv, T(micro_batches_are_the_step_of_the_large_batch),
    T(declared_names_that_ops_write_move_as_in_the_large_batch),
    T(a_declared_name_written_before_the_gradient_is_refused),
    T(batches_added_up_are_the_step_of_all_their_rows), T(what_is_held_is_counted_and_asked_for),
    T(options_are_read_when_micro_batches_are_opened_and_not_again),
    T(any_number_of_rows_is_a_step_in_the_same_memory),
    T(micro_batches_hold_what_their_figures_say),
    T(weights_are_the_callers_where_rows_do_not_count_alike), T(blobs_of_both_nets_can_be_kept),
    T(a_step_that_breaks_off_leaves_nothing_behind), T(an_interrupted_step_has_happened_or_not),
    T(what_can_not_be_split_is_refused_with_its_reason));
}
