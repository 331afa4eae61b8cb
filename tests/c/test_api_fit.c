/* test_api_fit.c: the largest batch that fits, forecasts, and gradients accumulated by scopes, as
 * users of neap.h meet them. */
#include "batch_net.h"

/* ---- what fits ------------------------------------------------------------------------------- */

TEST(fit_batch_is_exact) {
  for (method u = NONE; u < N_METHOD; u++)
    for (int dag = 0; dag < 2; dag++)
      for (int limit = 0; limit < 12; limit++) { /* by budget, total, both; under each policy */
        static const char *const policy[] = {NULL, "name", "none", "pool"};
        if (dag && limit >= 9) continue; /* a pool has no dag */
        neap_options options = {.executor = dag ? "dag" : NULL,
                                .policy = policy[limit / 3],
                                .budget = limit % 3 != 1 ? 20001 : 0,
                                .total = limit % 3 != 0 ? 30011 : 0};
        neap_net *net = NULL, *large = NULL;
        neap_figures found = {0}, figures = {0};
        int64_t n = 0, most = 0;
        CHECK_OK(make_net(3, u, &net, &error));
        CHECK_OK(neap_net_fit_batch(net, &options, 0, &n, &found, &error));
        CHECK(n > 3);
        for (int64_t rows = n; rows <= n + 1; rows++) { /* the same net, written for these rows */
          neap_error own = {0};
          CHECK_OK(make_net(rows, u, &large, &error));
          CHECK_EQ(neap_net_forecast(large, &options, &figures, NULL, &own),
                   rows == n ? NEAP_OK : NEAP_BUDGET);
          CHECK(rows == n || own.least_bytes > 0);
          neap_net_free(large);
        }
        CHECK_EQ(found.total_bytes, figures.total_bytes);
        CHECK(limit % 3 == 1 || found.arena_bytes <= 20001);
        CHECK(limit % 3 == 0 || found.total_bytes <= 30011);
        CHECK_OK(neap_net_fit_batch(net, &options, 7, &most, NULL, &error));
        CHECK_EQ(most, 7);
        neap_net_free(net);
      }
}

TEST(fit_batch_refuses_what_one_row_does_not_fit_and_says_what_would_do) {
  neap_net *net = NULL, *inputless = NULL;
  neap_figures figures;
  int64_t n = 77;
  CHECK_OK(make_net(3, SGD, &net, &error));
  neap_error own = {0};
  CHECK_EQ(neap_net_fit_batch(net, &(neap_options){.budget = 1}, 0, &n, &figures, &own),
           NEAP_BUDGET);
  CHECK(own.least_bytes > 1);
  CHECK_EQ(n, 77);
  CHECK_OK(
    neap_net_fit_batch(net, &(neap_options){.budget = own.least_bytes}, 0, &n, &figures, &error));
  CHECK(n >= 1);
  CHECK_FAILS(neap_net_fit_batch(net, NULL, 0, &n, NULL, &error), NEAP_ARGUMENT,
              "a budget or a total");
  CHECK_FAILS(neap_net_fit_batch(net, &(neap_options){.budget = 1 << 20}, -1, &n, NULL, &error),
              NEAP_ARGUMENT, "got -1");
  CHECK_OK(neap_net_read("net n\nparam w f32 (3)\ny = Relu(w)\n", &inputless, &error));
  CHECK_FAILS(
    neap_net_fit_batch(inputless, &(neap_options){.budget = 1 << 20}, 0, &n, NULL, &error),
    NEAP_ARGUMENT, "no input with a batch");
  neap_net_free(inputless);
  neap_net_free(net);

  /* An op that spells the batch out stands in the way of every other batch, and is named. */
  CHECK_OK(neap_net_read("net n\ninput x f32 (4,6)\ny = Reshape(x) { shape = {2,12} }\noutputs y\n",
                         &net, &error));
  CHECK_FAILS(neap_net_fit_batch(net, &(neap_options){.budget = 1 << 20}, 0, &n, NULL, &error),
              NEAP_SHAPE, "Reshape");
  neap_net_free(net);
}

/* Tensor bytes that the process holds, by the only public window: what a session saw at the end of
 * its last run. */
static int64_t held(neap_session *session) {
  CHECK_OK(neap_session_run(session, &error));
  return neap_session_figures(session).process_bytes;
}

TEST(forecasts_and_searches_allocate_no_tensor) {
  neap_net *small = NULL, *net = NULL;
  neap_workspace *ws = NULL;
  neap_session *session = NULL;
  neap_figures figures;
  int64_t n = 0;
  CHECK_OK(neap_net_read("net small\ninput a f32 (1)\nb = Relu(a)\noutputs b\n", &small, &error));
  CHECK_OK(neap_workspace_open(1, &ws, &error));
  CHECK_OK(neap_workspace_write(ws, "a", NEAP_DTYPE_F32, 1, (int64_t[]){1}, (float[]){1}, &error));
  CHECK_OK(neap_session_open(ws, small, NULL, &session, &error));
  int64_t before = held(session);
  CHECK_OK(make_net(MOST, ADAM, &net, &error));
  for (int dag = 0; dag < 2; dag++) {
    CHECK_OK(neap_net_forecast(net, &(neap_options){.executor = dag ? "dag" : NULL}, &figures, NULL,
                               &error));
    CHECK(figures.total_bytes > 0);
    CHECK_OK(neap_net_fit_batch(net,
                                &(neap_options){.executor = dag ? "dag" : NULL, .total = 1 << 22},
                                0, &n, &figures, &error));
    CHECK(n > MOST && figures.total_bytes > 1 << 21);
    CHECK_EQ(held(session), before);
  }
  neap_session_free(session);
  neap_workspace_release(ws);
  neap_net_free(small);
  neap_net_free(net);
}

TEST(micro_batches_are_as_large_as_fits) {
  for (int dag = 0; dag < 2; dag++)
    for (int by_total = 0; by_total < 2; by_total++) {
      neap_net *net = NULL;
      neap_workspace *ws = NULL;
      neap_micro *micro = NULL, *none = NULL;
      outcome whole;
      float parameters[PARAMS];
      neap_options options = {
        .executor = dag ? "dag" : NULL, .budget = by_total ? 0 : 900, .total = by_total ? 3010 : 0};
      CHECK_OK(train(SGD, 0, &(neap_options){.executor = dag ? "dag" : NULL}, &whole, &error));
      CHECK_OK(make_net(12, SGD, &net, &error));
      CHECK_OK(neap_workspace_open(5, &ws, &error));
      CHECK_FAILS(neap_session_open(ws, net, &options, &(neap_session *){NULL}, &error),
                  NEAP_BUDGET, ""); /* the whole does not */
      CHECK_OK(neap_micro_open(ws, net, 0, &options, &micro, &error));
      int64_t rows = neap_micro_rows(micro);
      CHECK(rows > 1 && rows < 12);
      CHECK_FAILS(neap_micro_open(ws, net, rows + 1, &options, &none, &error), NEAP_BUDGET, "");
      for (int k = 0; k < 3; k++) {
        CHECK_OK(write_batch(ws, 12, k, -1, &error));
        CHECK_OK(neap_micro_run(micro, 0, NULL, &error));
      }
      CHECK_OK(read_all(ws, "", parameters, &error));
      CHECK(distance(whole.parameter, parameters) < 1e-5);
      neap_figures figures = neap_micro_figures(micro);
      CHECK(by_total ? figures.total_bytes <= 3010 : figures.arena_bytes <= 900);
      neap_micro_free(micro);
      neap_net_free(net);
      neap_workspace_release(ws);
    }
}

/* ---- by scopes ------------------------------------------------------------------------------- */

/* The two nets of a split, run by hand: a micro-batch in a frame that sees parameters and gradients
 * of the workspace, and that the next micro-batch finds empty again; then the update around the
 * frames. */
TEST(gradients_are_accumulated_by_scopes) {
  static const char *const seen[] = {"w1",      "b1",      "w2",      "b2",
                                     "w1_grad", "b1_grad", "w2_grad", "b2_grad"};
  for (int dag = 0; dag < 2; dag++) {
    neap_options options = {.executor = dag ? "dag" : NULL};
    neap_net *net = NULL, *micro = NULL, *update = NULL;
    neap_workspace *ws = NULL, *frame = NULL;
    neap_session *end = NULL, *part = NULL;
    neap_scope *scope = NULL;
    outcome whole;
    float x[12 * IN], got[PARAMS];
    int32_t y[12];
    CHECK_OK(train(SGD, 0, &options, &whole, &error));
    CHECK_OK(make_net(4, SGD, &net, &error));
    CHECK_OK(neap_net_split_micro(net, &micro, &update, &error));
    CHECK_OK(neap_workspace_open(5, &ws, &error));
    CHECK_OK(neap_session_open(ws, update, &options, &end, &error));
    CHECK_OK(neap_workspace_create_scope(ws, "parts", &scope, &error));

    /* The rows of the large batch by fours, each part in the frame that the one before has left. */
    for (int k = 0; k < 3; k++) {
      CHECK_OK(write_batch(ws, 12, k, -1, &error));
      CHECK_OK(neap_workspace_read(ws, "x", NEAP_DTYPE_F32, 12 * IN, x, &error));
      CHECK_OK(neap_workspace_read(ws, "y", NEAP_DTYPE_I32, 12, y, &error));
      for (int p = 0; p < 3; p++) {
        float weight = 1.0f / 3, keep = p > 0;
        CHECK_OK(neap_scope_push(scope, ws, 8, seen, seen, &frame, &error));
        CHECK_OK(neap_workspace_write(frame, "x", NEAP_DTYPE_F32, 2, (int64_t[]){4, IN},
                                      x + p * 4 * IN, &error));
        CHECK_OK(
          neap_workspace_write(frame, "y", NEAP_DTYPE_I32, 1, (int64_t[]){4}, y + p * 4, &error));
        CHECK_OK(
          neap_workspace_write(frame, "micro.weight", NEAP_DTYPE_F32, 0, NULL, &weight, &error));
        CHECK_OK(neap_workspace_write(frame, "micro.keep", NEAP_DTYPE_F32, 0, NULL, &keep, &error));
        if (part == NULL) CHECK_OK(neap_session_open(frame, micro, &options, &part, &error));
        CHECK_OK(neap_session_run(part, &error));
        neap_scope_clear(scope);
      }
      CHECK_OK(neap_session_run(end, &error));
    }

    /* Parameters as one step of all rows leaves them, within rounding. */
    CHECK_OK(read_all(ws, "", got, &error));
    CHECK(distance(whole.parameter, got) < 1e-5);
    neap_session_free(part);
    neap_session_free(end);
    neap_net_free(net);
    neap_net_free(micro);
    neap_net_free(update);
    neap_workspace_release(ws);
  }
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(fit_batch_is_exact),
             T(fit_batch_refuses_what_one_row_does_not_fit_and_says_what_would_do),
             T(forecasts_and_searches_allocate_no_tensor), T(micro_batches_are_as_large_as_fits),
             T(gradients_are_accumulated_by_scopes));
}
