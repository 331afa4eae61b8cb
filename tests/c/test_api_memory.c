/* test_api_memory.c: mem_param, keeps, dry runs, counts by class and gradients given back, as users
 * of neap.h meet them: linked with libneap.so alone. */
#include "check.h"

#include <stdlib.h>

enum { ROWS = 16, IN = 8, WIDTH = 24, CLASSES = 4 };

/* x -> fc1 -> relu1 -> fc2 -> relu2 -> fc3 -> loss */
static const char chain_text[] =
  "net chain\ninput x f32 (16,8)\ninput label i64 (16)\n"
  "param w1 f32 (24,8) = Xavier\nparam w2 f32 (24,24) = Xavier\nparam w3 f32 (4,24) = Xavier\n"
  "fc1 = FC(x, w1)\nrelu1 = Relu(fc1)\nfc2 = FC(relu1, w2)\nrelu2 = Relu(fc2)\nfc3 = FC(relu2, "
  "w3)\n"
  "loss = SoftmaxCrossEntropy(fc3, label)\noutputs loss\n";
static const char *const middle[] = {"fc1", "relu1", "fc2", "relu2", "fc3"};
enum { N_MIDDLE = 5, MOST = ROWS * WIDTH };

static neap_net *chain(bool train) {
  neap_net *net = NULL;
  CHECK_OK(neap_net_read(chain_text, &net, &error));
  if (train) CHECK_OK(neap_net_add_gradient(net, "loss", 0, NULL, NULL, NULL, &error));
  return net;
}

static neap_workspace *filled(void) {
  neap_workspace *ws = NULL;
  float x[ROWS * IN];
  int64_t label[ROWS];
  for (int i = 0; i < ROWS * IN; i++) x[i] = (float)(i * 37 % 19) / 9 - 1;
  for (int i = 0; i < ROWS; i++) label[i] = i * 7 % CLASSES;
  CHECK_OK(neap_workspace_open(4, &ws, &error));
  CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){ROWS, IN}, x, &error));
  CHECK_OK(neap_workspace_write(ws, "label", NEAP_DTYPE_I64, 1, (int64_t[]){ROWS}, label, &error));
  return ws;
}

/* The workspace of a net that has run once; the session, which its transient blobs need, in
 * *session. */
static neap_workspace *after_run(const neap_net *net, const neap_options *options,
                                 neap_session **session) {
  neap_workspace *ws = filled();
  *session = NULL;
  CHECK_OK(neap_session_open(ws, net, options, session, &error));
  if (*session != NULL) CHECK_OK(neap_session_run(*session, &error));
  return ws;
}

static void end(neap_workspace *ws, neap_session *session) {
  neap_session_free(session);
  neap_workspace_release(ws);
}

static int64_t elems(const char *name) {
  return strncmp(name, "fc3", 3) == 0 ? ROWS * CLASSES : MOST;
}

static const char *policy_of(bool train, neap_mem_param param) {
  neap_net *net = chain(train);
  neap_dry_run *log = NULL;
  CHECK_OK(neap_net_dry_run(net, &(neap_options){.mem_param = &param}, &log, &error));
  const char *policy = log != NULL ? log->policy : "";
  if (log != NULL) CHECK_EQ(log->train, train);
  neap_dry_run_free(log);
  neap_net_free(net);
  return policy;
}

TEST(mem_param_of_zeros_has_caffes_defaults) {
  CHECK(strcmp(policy_of(true, (neap_mem_param){0}), "offset") == 0);
  CHECK(strcmp(policy_of(false, (neap_mem_param){0}), "none") == 0);
  CHECK(strcmp(policy_of(false, (neap_mem_param){.optimize_test = true}), "offset") == 0);
  CHECK(strcmp(policy_of(true, (neap_mem_param){.no_optimize_train = true}), "none") == 0);
  CHECK(strcmp(policy_of(true, (neap_mem_param){.optimize_test = true, .debug_info = true}),
               "none") == 0);
  CHECK(strcmp(policy_of(false, (neap_mem_param){.optimize_test = true, .debug_info = true}),
               "none") == 0);
}

static char *plan_of(const neap_net *net, const neap_options *options, neap_figures *figures) {
  char *text = NULL;
  *figures = (neap_figures){0};
  CHECK_OK(neap_net_forecast(net, options, figures, &text, &error));
  return text;
}

/* Every value's place and life. */
static char *places_of(const neap_net *net, const neap_options *options) {
  neap_dry_run *log = NULL;
  char *text = NULL;
  CHECK_OK(neap_net_dry_run(net, options, &log, &error));
  if (log != NULL) CHECK_OK(neap_dry_run_text(log, &text, &error));
  neap_dry_run_free(log);
  return text;
}

TEST(mem_param_is_translated_into_policy_and_keep) {
  static const char *const excluded[] = {"fc1", "relu2.diff"};
  static const char *const kept[] = {"loss", "loss.grad", "fc1", "fc1.grad", "relu2.grad"};
  neap_mem_param param = {.n_exclude_blob = 2, .exclude_blob = excluded};
  neap_net *net = chain(true);
  for (int dag = 0; dag < 2; dag++) {
    neap_figures a, b, plain;
    neap_options words = {.mem_param = &param, .executor = dag ? "dag" : NULL},
                 own = {
                   .policy = "offset", .n_keep = 5, .keep = kept, .executor = dag ? "dag" : NULL};
    char *one = places_of(net, &words), *two = places_of(net, &own);
    neap_free(plan_of(net, &words, &a));
    neap_free(plan_of(net, &own, &b));
    neap_free(plan_of(net, &(neap_options){.executor = dag ? "dag" : NULL}, &plain));
    CHECK_EQ(a.arena_bytes, b.arena_bytes);
    CHECK_EQ(a.io_bytes, b.io_bytes);
    CHECK_EQ(a.total_bytes, b.total_bytes);
    CHECK(one != NULL && two != NULL && strcmp(one, two) == 0);
    CHECK(a.io_bytes >= plain.io_bytes + 3 * MOST * 4); /* fc1, its gradient, and that of relu2 */
    neap_free(one), neap_free(two);
  }
  neap_net_free(net);
}

TEST(data_and_diff_of_a_blob_are_separate_keys) {
  neap_net *net = chain(true);
  neap_figures f[4];
  static const char *const list[] = {"fc2", "fc2.data", "fc2.diff", "fc2.grad"};
  neap_figures none;
  neap_free(plan_of(net, &(neap_options){.mem_param = &(neap_mem_param){0}}, &none));
  for (int i = 0; i < 4; i++) {
    neap_mem_param param = {.n_exclude_blob = 1, .exclude_blob = &list[i]};
    neap_free(plan_of(net, &(neap_options){.mem_param = &param}, &f[i]));
  }
  CHECK_EQ(f[1].io_bytes - none.io_bytes, MOST * 4);
  CHECK_EQ(f[2].io_bytes - none.io_bytes, MOST * 4);
  CHECK_EQ(f[3].io_bytes, f[2].io_bytes);
  CHECK_EQ(f[0].io_bytes - none.io_bytes, 2 * MOST * 4);
  neap_net_free(net);
}

TEST(excluded_blobs_are_read_with_the_bytes_of_the_unplanned_run) {
  neap_net *net = chain(true);
  const char *key[2 * N_MIDDLE];
  char gradient[N_MIDDLE][16];
  for (int i = 0; i < N_MIDDLE; i++) {
    snprintf(gradient[i], sizeof gradient[i], "%s.grad", middle[i]);
    key[2 * i] = middle[i];
    key[2 * i + 1] = gradient[i];
  }
  for (int dag = 0; dag < 2; dag++) {
    static float want[2 * N_MIDDLE][MOST], got[MOST];
    neap_session *session;
    neap_options all = {.policy = "none",
                        .executor = dag ? "dag" : NULL,
                        .threads = 1,
                        .n_keep = 2 * N_MIDDLE,
                        .keep = key};
    neap_workspace *ws = after_run(net, &all, &session);
    for (int i = 0; i < 2 * N_MIDDLE; i++)
      CHECK_OK(neap_workspace_read(ws, key[i], NEAP_DTYPE_F32, elems(key[i]), want[i], &error));
    end(ws, session);
    for (int i = 0; i < N_MIDDLE; i++) {
      neap_mem_param param = {.n_exclude_blob = 1, .exclude_blob = &middle[i]};
      ws = after_run(
        net, &(neap_options){.mem_param = &param, .executor = dag ? "dag" : NULL, .threads = 1},
        &session);
      for (int k = 2 * i; k < 2 * i + 2; k++) {
        CHECK_OK(neap_workspace_read(ws, key[k], NEAP_DTYPE_F32, elems(key[k]), got, &error));
        CHECK(memcmp(got, want[k], (size_t)elems(key[k]) * sizeof *got) == 0);
      }
      end(ws, session);
    }
  }
  neap_net_free(net);
}

TEST(what_ops_without_inputs_make_and_every_loss_are_excluded_by_themselves) {
  neap_net *net = NULL;
  neap_session *session;
  float offset[MOST] = {0}, one = 0;
  CHECK_OK(neap_net_read(chain_text, &net, &error));
  CHECK_OK(neap_net_add_text(net, &error,
                             "offset = Constant() { shape = {16,24}, value = 2 }\nshifted = "
                             "Add(relu1, offset)\nside = Sum(shifted)\n"
                             "checked = CheckFinite(loss)\noutputs checked, side\n"));
  CHECK_OK(neap_net_add_gradient(net, "checked", 0, NULL, NULL, NULL, &error));
  neap_workspace *ws = after_run(net, &(neap_options){.mem_param = &(neap_mem_param){0}}, &session);
  CHECK_OK(neap_workspace_read(ws, "offset", NEAP_DTYPE_F32, MOST, offset, &error));
  CHECK_EQ(offset[MOST - 1], 2);
  static const char *const names[] = {"loss", "loss.grad", "checked", "side"};
  for (int i = 0; i < 4; i++)
    CHECK_OK(neap_workspace_read(ws, names[i], NEAP_DTYPE_F32, 1, &one, &error));
  end(ws, session);
  neap_net_free(net);
}

TEST(what_is_wrong_with_keeps_and_mem_param_is_said) {
  neap_net *train = chain(true), *test = chain(false);
  neap_figures figures;
  neap_dry_run *log = NULL;
  neap_error said = {0};
  const char *wrong = "relu11", *wrong_key = "relu1.dif";
  neap_mem_param unknown = {.optimize_test = true, .n_exclude_blob = 1, .exclude_blob = &wrong};
  CHECK_EQ(neap_net_forecast(train, &(neap_options){.mem_param = &unknown}, &figures, NULL, &said),
           NEAP_NAME);
  CHECK(strstr(said.message, "exclude_blob: net \"chain\" has no blob \"relu11\"") != NULL);
  CHECK(strcmp(said.blob, "relu11") == 0);
  CHECK(strcmp(said.hint, "did you mean \"relu1\"?") == 0);
  CHECK_FAILS(neap_net_dry_run(test, &(neap_options){.mem_param = &unknown}, &log, &error),
              NEAP_NAME, "relu11");
  CHECK(log == NULL);
  unknown.exclude_blob = &wrong_key;
  CHECK_FAILS(
    neap_net_forecast(train, &(neap_options){.mem_param = &unknown}, &figures, NULL, &error),
    NEAP_NAME, "relu1.dif");
  unknown.exclude_blob = NULL;
  CHECK_FAILS(
    neap_net_forecast(train, &(neap_options){.mem_param = &unknown}, &figures, NULL, &error),
    NEAP_ARGUMENT, "n_exclude_blob");
  neap_mem_param none = {0};
  CHECK_FAILS(neap_net_forecast(train, &(neap_options){.mem_param = &none, .policy = "none"},
                                &figures, NULL, &error),
              NEAP_ARGUMENT, "give one of them");
  CHECK_FAILS(neap_net_forecast(test, &(neap_options){.mem_param = &none, .executor = "dynamic"},
                                &figures, NULL, &error),
              NEAP_ARGUMENT, "switches planning off");
  CHECK_FAILS(
    neap_net_forecast(train, &(neap_options){.n_keep = 1, .keep = &wrong}, &figures, NULL, &error),
    NEAP_NAME, "relu11");
  CHECK_FAILS(neap_net_forecast(train, &(neap_options){.n_keep = 1}, &figures, NULL, &error),
              NEAP_ARGUMENT, "n_keep");
  CHECK_FAILS(
    neap_net_forecast(train, &(neap_options){.n_keep = -1, .keep = &wrong}, &figures, NULL, &error),
    NEAP_ARGUMENT, "n_keep");
  neap_net_free(train), neap_net_free(test);
}

TEST(a_blob_whose_bytes_were_taken_is_refused_with_the_new_owner_and_the_fix) {
  neap_net *net = chain(true);
  for (int dag = 0; dag < 2; dag++) {
    neap_session *session;
    neap_workspace *ws = after_run(
      net, &(neap_options){.mem_param = &(neap_mem_param){0}, .executor = dag ? "dag" : NULL},
      &session);
    int taken = 0;
    for (int i = 0; i < 2 * N_MIDDLE; i++) {
      char name[32];
      float data[MOST];
      neap_error said = {0};
      snprintf(name, sizeof name, "%s%s", middle[i / 2], i % 2 == 1 ? ".grad" : "");
      if (neap_workspace_read(ws, name, NEAP_DTYPE_F32, elems(name), data, &said) == NEAP_OK)
        continue;
      taken++;
      CHECK_EQ(said.code, NEAP_RELEASED);
      CHECK(strstr(said.message, "now belong to \"") != NULL ||
            strstr(said.message, "scratch") != NULL ||
            strstr(said.message, "value between two ops") != NULL);
      CHECK(strstr(said.hint, "exclude_blob") != NULL &&
            strstr(said.hint, "keep of neap_options") != NULL);
      /* what the hint says helps */
      const char *fix = name;
      neap_session *second;
      neap_workspace *again = after_run(
        net, &(neap_options){.n_keep = 1, .keep = &fix, .executor = dag ? "dag" : NULL}, &second);
      CHECK_OK(neap_workspace_read(again, name, NEAP_DTYPE_F32, elems(name), data, &error));
      end(again, second);
    }
    CHECK(taken >= 5);
    end(ws, session);
  }
  neap_net_free(net);
}

TEST(mem_param_reaches_ranges_step_trees_and_single_runs) {
  neap_mem_param param = {
    .optimize_test = true, .n_exclude_blob = 1, .exclude_blob = (const char *const[]){"relu1"}};
  neap_options options = {.mem_param = &param};
  float data[MOST];
  neap_net *net = chain(false);
  neap_workspace *ws = filled();
  CHECK_OK(neap_workspace_run_once(ws, net, &options, NULL, &error));
  CHECK_OK(neap_workspace_read(ws, "relu1", NEAP_DTYPE_F32, MOST, data, &error));
  neap_workspace_release(ws);

  neap_range *range = NULL;
  neap_session *session = NULL;
  CHECK_OK(neap_range_open(net, 2 * ROWS, &options, &range, &error));
  ws = filled();
  CHECK_OK(neap_range_session(range, ws, net, ROWS, &options, &session, &error));
  CHECK_OK(neap_session_run(session, &error));
  CHECK_OK(neap_workspace_read(ws, "relu1", NEAP_DTYPE_F32, MOST, data, &error));
  CHECK(neap_range_figures(range).arena_bytes < neap_range_figures(range).baseline_bytes);
  end(ws, session);
  neap_range_free(range);

  ws = filled();
  CHECK_OK(neap_workspace_add_net(ws, net, false, &error)); /* takes the net over */
  neap_step step = {.n_net = 1, .net = (const char *const[]){"chain"}, .iterations = 2};
  CHECK_OK(neap_workspace_run_steps(ws, &step, &options, NULL, &error));
  CHECK_OK(neap_workspace_read(ws, "relu1", NEAP_DTYPE_F32, MOST, data, &error));
  neap_workspace_release(ws);
}

/* ---- dry runs -------------------------------------------------------------------------------- */

static const neap_dry_row *row_of(const neap_dry_run *log, const char *blob, const char *key) {
  for (int r = 0; r < log->n_row; r++)
    if (strcmp(log->row[r].blob, blob) == 0 && strcmp(log->row[r].key, key) == 0)
      return &log->row[r];
  return NULL;
}

/* Every row of the arena is in one slot, at whose address it begins, and in no other. */
static void check_slots(const neap_dry_run *log) {
  int n = 0;
  for (int s = 0; s < log->n_slot; s++) {
    const neap_dry_slot *slot = &log->slot[s];
    int64_t most = 0;
    CHECK(s == 0 || log->slot[s - 1].offset_bytes < slot->offset_bytes);
    CHECK(slot->offset_bytes + slot->bytes <= log->arena_bytes);
    for (int i = 0; i < slot->rows.n; i++) {
      CHECK_EQ(log->row[slot->rows.index[i]].slot_no, s);
      if (log->row[slot->rows.index[i]].bytes > most) most = log->row[slot->rows.index[i]].bytes;
    }
    CHECK_EQ(most, slot->bytes);
    n += slot->rows.n;
  }
  for (int r = 0; r < log->n_row; r++) {
    CHECK((log->row[r].slot_no >= 0) == (strcmp(log->row[r].region, "arena") == 0));
    n -= log->row[r].slot_no >= 0;
  }
  CHECK_EQ(n, 0);
}

TEST(a_dry_run_tells_raw_from_planned_by_layer_blob_and_slot) {
  neap_net *net = chain(true);
  neap_mem_param param = {.n_exclude_blob = 1, .exclude_blob = (const char *const[]){"relu1"}};
  for (int dag = 0; dag < 2; dag++) {
    neap_options options = {.mem_param = &param, .executor = dag ? "dag" : NULL};
    neap_dry_run *log = NULL;
    neap_figures figures;
    neap_free(plan_of(net, &options, &figures));
    CHECK_OK(neap_net_dry_run(net, &options, &log, &error));
    if (log == NULL) return;
    /* x, fc1, relu1, fc2, relu2, fc3, loss: floats, data and diff; label: data alone; gradients of
     * parameters are no blobs */
    const int64_t floats = 4 * (ROWS * IN + 4 * ROWS * WIDTH + ROWS * CLASSES + 1);
    CHECK_EQ(log->raw_data_bytes, floats + ROWS * 8);
    CHECK_EQ(log->raw_diff_bytes, floats);
    CHECK_EQ(log->raw_bytes, 2 * floats + ROWS * 8);
    CHECK_EQ(log->arena_bytes, figures.arena_bytes);
    CHECK(log->planned_bytes < log->raw_bytes && log->planned_bytes > log->arena_bytes);
    CHECK_NEAR(log->saved, 1 - (double)log->planned_bytes / (double)log->raw_bytes, 1e-12);
    CHECK(strcmp(log->net, "chain") == 0 && log->train);
    const neap_dry_row *data = row_of(log, "relu1", "data"), *diff = row_of(log, "relu1", "diff");
    CHECK(data != NULL && data->slot_no == NEAP_NO_INDEX && strcmp(data->region, "io") == 0 &&
          data->bytes == MOST * 4);
    CHECK(diff != NULL && diff->slot_no == NEAP_NO_INDEX);
    diff = row_of(log, "fc2", "diff");
    CHECK(diff != NULL && diff->slot_no >= 0 && diff->first_step >= 0 &&
          diff->first_step <= diff->last_step);
    int64_t raw = 0;
    for (int l = 0; l < log->n_layer; l++) raw += log->layer[l].raw_bytes;
    CHECK_EQ(raw, log->raw_bytes);
    check_slots(log);
    char *text = NULL;
    CHECK_OK(neap_dry_run_text(log, &text, &error));
    CHECK(text != NULL && strstr(text, "dry run of \"chain\", train, policy offset: raw ") != NULL);
    CHECK(text != NULL && strstr(text, "layer ") != NULL && strstr(text, "slot 1 at 0, ") != NULL &&
          strstr(text, "relu1 ") != NULL);
    neap_free(text);
    neap_dry_run_free(log);
  }
  neap_net_free(net);
}

TEST(a_dry_run_without_options_is_caffes) {
  neap_net *net = chain(false);
  neap_dry_run *log = NULL;
  CHECK_OK(neap_net_dry_run(net, NULL, &log, &error));
  CHECK(log != NULL && strcmp(log->policy, "none") == 0);
  neap_dry_run_free(log);
  CHECK_OK(neap_net_dry_run(net, &(neap_options){.policy = "offset"}, &log, &error));
  CHECK(log != NULL && strcmp(log->policy, "offset") == 0);
  neap_dry_run_free(log);
  neap_dry_run_free(NULL);
  neap_net_free(net);
}

/* More values side by side than one would number by hand, at addresses below their count in cache
 * lines. */
TEST(a_dry_run_of_many_slots_has_each_value_in_its_own) {
  neap_net *net = NULL;
  neap_dry_run *log = NULL;
  CHECK_OK(neap_net_read("net wide\ninput x f32 (16)\nb0 = Tanh(x)\n", &net, &error));
  for (int i = 1; i < 200; i++)
    CHECK_OK(neap_net_add_text(net, &error, "b%d = Tanh(b%d)", i, i - 1));
  CHECK_OK(neap_net_dry_run(net, &(neap_options){.policy = "none"}, &log, &error));
  if (log != NULL) {
    CHECK_EQ(log->n_slot, 199); /* all but the output, 64 bytes each */
    for (int s = 0; s < log->n_slot; s++) CHECK_EQ(log->slot[s].n_blob, 1);
    check_slots(log);
  }
  neap_dry_run_free(log);
  neap_net_free(net);
}

/* ---- counts ---------------------------------------------------------------------------------- */

TEST(bytes_are_counted_by_class_each_storage_once) {
  neap_net *train = chain(true), *test = chain(false);
  neap_counts before = {0}, after = {0}, only = {0};
  const int64_t parameters = 4 * (WIDTH * IN + WIDTH * WIDTH + CLASSES * WIDTH),
                activations = 4 * (4 * MOST + ROWS * CLASSES);
  CHECK_OK(neap_net_count(test, &(neap_options){.engine = "ref"}, &before, &after, &error));
  CHECK_EQ(before.parameter_bytes, parameters);
  CHECK_EQ(after.parameter_bytes, parameters);
  CHECK_EQ(before.gradient_bytes, 0);
  CHECK_EQ(before.gradient_input_bytes, 0);
  CHECK_EQ(before.output_bytes, 4 * ROWS * IN + 8 * ROWS + activations + 4);
  CHECK(after.output_bytes < before.output_bytes); /* relu in place, or part of its product */
  for (int dag = 0; dag < 2; dag++) {
    neap_options options = {.engine = "ref", .executor = dag ? "dag" : NULL};
    CHECK_OK(neap_net_count(train, &options, &before, &after, &error));
    CHECK_EQ(before.gradient_bytes, parameters);
    CHECK_EQ(after.gradient_bytes, parameters);
    /* of each activation; that of the loss is one number */
    CHECK(before.gradient_input_bytes >= activations);
    CHECK(after.gradient_input_bytes < before.gradient_input_bytes);
    CHECK(after.total_bytes < before.total_bytes);
    CHECK_EQ(before.total_bytes, before.parameter_bytes + before.gradient_bytes +
                                   before.output_bytes + before.gradient_input_bytes +
                                   before.buffer_bytes);
    CHECK(after.total_bytes <= after.parameter_bytes + after.gradient_bytes + after.output_bytes +
                                 after.gradient_input_bytes + after.buffer_bytes);
    CHECK_OK(neap_net_count(train, &options, NULL, &only, &error));
    CHECK(memcmp(&only, &after, sizeof only) == 0);
    CHECK_OK(neap_net_count(train, &options, &only, NULL, &error));
    CHECK(memcmp(&only, &before, sizeof only) == 0);
  }

  /* a budget that can't be met is no matter for the net as it is written */
  CHECK_OK(neap_net_count(train, &(neap_options){.budget = 64}, &before, NULL, &error));
  neap_counts kept = after;
  CHECK_FAILS(neap_net_count(train, &(neap_options){.budget = 64}, &before, &after, &error),
              NEAP_BUDGET, "");
  CHECK(memcmp(&kept, &after, sizeof kept) == 0);
  neap_net_free(train), neap_net_free(test);
}

/* ---- gradients given back -------------------------------------------------------------------- */

/* Training by hand: w -= 0.1 w_grad, in a net of its own so that gradients are left in the
 * workspace. */
static neap_net *update(void) {
  neap_net *net = chain(true);
  CHECK_OK(neap_net_add_text(net, &error, "input lr f32 (1)"));
  for (int i = 1; i <= 3; i++)
    CHECK_OK(neap_net_add_text(net, &error, "w%d = Sgd(w%d, w%d_grad, lr)", i, i, i));
  CHECK_OK(neap_net_add_text(net, &error, "keep w1_grad, w2_grad, w3_grad"));
  return net;
}

TEST(gradients_are_given_back_and_made_again_by_the_next_training_run) {
  neap_net *train = update(), *test = chain(false);
  const float lr = 0.1f;
  for (int dag = 0; dag < 2; dag++) {
    neap_options options = {.executor = dag ? "dag" : NULL, .threads = 1};
    static float w[2][WIDTH * WIDTH], gradient[2][WIDTH * WIDTH], got[WIDTH * WIDTH];
    for (int dropped = 0; dropped < 2; dropped++) {
      neap_workspace *ws = filled();
      neap_session *session = NULL, *forward = NULL, *second = NULL;
      float before = 0, after = 0, loss = 0;
      CHECK_OK(neap_workspace_write(ws, "lr", NEAP_DTYPE_F32, 1, (int64_t[]){1}, &lr, &error));
      CHECK_OK(neap_session_open(ws, train, &options, &session, &error));
      CHECK_OK(neap_session_open(ws, test, &options, &forward, &error));
      CHECK_OK(neap_session_run(session, &error));
      CHECK_OK(neap_session_run(forward, &error));
      CHECK_OK(neap_workspace_read(ws, "loss", NEAP_DTYPE_F32, 1, &before, &error));
      if (dropped == 1) {
        int64_t held = neap_session_figures(forward).process_bytes,
                want = neap_session_figures(session).gradient_bytes;
        CHECK_EQ(neap_workspace_drop_gradients(ws), want);
        CHECK(want >= 4 * (WIDTH * IN + WIDTH * WIDTH + CLASSES * WIDTH));
        CHECK_EQ(neap_workspace_drop_gradients(ws), 0); /* there is nothing left */
        CHECK(neap_workspace_read(ws, "w2_grad", NEAP_DTYPE_F32, WIDTH * WIDTH, got, NULL) !=
              NEAP_OK);
        CHECK_OK(neap_session_run(forward, &error));
        CHECK_OK(neap_workspace_read(ws, "loss", NEAP_DTYPE_F32, 1, &after, &error));
        CHECK_EQ(before == after, true);
        CHECK_EQ(held - neap_session_figures(forward).process_bytes, want);
      }
      CHECK_OK(neap_session_run(session, &error)); /* it was open all the time */
      if (dropped == 1) CHECK(neap_workspace_drop_gradients(ws) > 0);
      CHECK_OK(neap_session_open(ws, train, &options, &second, &error));
      CHECK_OK(neap_session_run(second, &error));
      CHECK_OK(neap_workspace_read(ws, "w2_grad", NEAP_DTYPE_F32, WIDTH * WIDTH, gradient[dropped],
                                   &error));
      CHECK_OK(neap_workspace_read(ws, "w2", NEAP_DTYPE_F32, WIDTH * WIDTH, w[dropped], &error));
      CHECK_OK(neap_workspace_read(ws, "loss", NEAP_DTYPE_F32, 1, &loss, &error));
      CHECK(loss < before);
      neap_session_free(second), neap_session_free(forward);
      end(ws, session);
    }
    CHECK(memcmp(w[0], w[1], sizeof w[0]) == 0);
    CHECK(memcmp(gradient[0], gradient[1], sizeof gradient[0]) == 0);
  }
  neap_net_free(train), neap_net_free(test);
}

TEST(a_gradient_given_back_says_so_until_it_is_made_again) {
  neap_net *net = chain(true);
  neap_session *session;
  float gradient[WIDTH * IN];
  neap_workspace *ws = after_run(net, NULL, &session);
  CHECK_OK(neap_workspace_read(ws, "w1_grad", NEAP_DTYPE_F32, WIDTH * IN, gradient, &error));
  CHECK(neap_workspace_drop_gradients(ws) > 0);
  CHECK_FAILS(neap_workspace_read(ws, "w1_grad", NEAP_DTYPE_F32, WIDTH * IN, gradient, &error),
              NEAP_RELEASED, "given back");
  CHECK_OK(neap_session_run(session, &error));
  CHECK_OK(neap_workspace_read(ws, "w1_grad", NEAP_DTYPE_F32, WIDTH * IN, gradient, &error));
  end(ws, session);
  neap_net_free(net);
}

/* A child finds the parent's gradients until they are given back, and then makes its own. */
TEST(gradients_given_back_by_a_parent_are_made_again_where_they_are_needed) {
  neap_net *net = chain(true);
  neap_session *session, *inner = NULL;
  neap_workspace *parent = after_run(net, NULL, &session), *child = NULL;
  float first[WIDTH * IN], second[WIDTH * IN];
  CHECK_OK(neap_workspace_open_child(parent, 0, NULL, NULL, &child, &error));
  CHECK_OK(neap_session_open(child, net, NULL, &inner, &error));
  CHECK_OK(neap_session_run(inner, &error));
  CHECK_OK(neap_workspace_read(child, "w1_grad", NEAP_DTYPE_F32, WIDTH * IN, first, &error));
  CHECK_EQ(neap_workspace_drop_gradients(child), 0); /* they are the parent's */
  int64_t bytes = neap_session_figures(session).gradient_bytes;
  CHECK_EQ(neap_workspace_drop_gradients(parent), bytes);
  CHECK_OK(neap_session_run(inner, &error));
  CHECK_OK(neap_workspace_read(child, "w1_grad", NEAP_DTYPE_F32, WIDTH * IN, second, &error));
  CHECK(memcmp(first, second, sizeof first) == 0);
  CHECK(neap_workspace_read(parent, "w1_grad", NEAP_DTYPE_F32, WIDTH * IN, second, NULL) !=
        NEAP_OK);
  CHECK_EQ(neap_workspace_drop_gradients(child), bytes);
  CHECK_OK(neap_session_run(session, &error));
  CHECK_OK(neap_session_run(inner, &error));
  CHECK_OK(neap_workspace_read(child, "w1_grad", NEAP_DTYPE_F32, WIDTH * IN, second, &error));
  CHECK(memcmp(first, second, sizeof first) == 0);
  CHECK_EQ(neap_workspace_drop_gradients(child), 0); /* the parent's again */
  neap_session_free(inner);
  neap_workspace_release(child);
  end(parent, session);
  neap_net_free(net);
}

/* Under executor dynamic programs come and go with the shapes; each makes them again. */
TEST(gradients_given_back_are_made_again_for_any_shape) {
  neap_net *net = chain(true);
  neap_session *session;
  neap_workspace *ws = after_run(net, &(neap_options){.executor = "dynamic"}, &session);
  float first[WIDTH * IN], second[WIDTH * IN], x[2 * IN] = {0};
  int64_t label[2] = {0};
  CHECK_OK(neap_workspace_read(ws, "w1_grad", NEAP_DTYPE_F32, WIDTH * IN, first, &error));
  CHECK(neap_workspace_drop_gradients(ws) > 0);
  CHECK_OK(neap_session_run(session, &error));
  CHECK_OK(neap_workspace_read(ws, "w1_grad", NEAP_DTYPE_F32, WIDTH * IN, second, &error));
  CHECK(memcmp(first, second, sizeof first) == 0);
  CHECK(neap_workspace_drop_gradients(ws) > 0);
  CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){2, IN}, x, &error));
  CHECK_OK(neap_workspace_write(ws, "label", NEAP_DTYPE_I64, 1, (int64_t[]){2}, label, &error));
  CHECK_OK(neap_session_run(session, &error));
  CHECK_OK(neap_workspace_read(ws, "w1_grad", NEAP_DTYPE_F32, WIDTH * IN, second, &error));
  for (int i = 0; i < WIDTH * IN; i++) CHECK(second[i] == 0); /* of inputs that are zero */
  end(ws, session);
  neap_net_free(net);
}

int main(int argc, char **argv) {
  setenv("NEAP_POISON", "1", 1);
  return RUN(
    argc, argv, T(mem_param_of_zeros_has_caffes_defaults),
    T(mem_param_is_translated_into_policy_and_keep), T(data_and_diff_of_a_blob_are_separate_keys),
    T(excluded_blobs_are_read_with_the_bytes_of_the_unplanned_run),
    T(what_ops_without_inputs_make_and_every_loss_are_excluded_by_themselves),
    T(what_is_wrong_with_keeps_and_mem_param_is_said),
    T(a_blob_whose_bytes_were_taken_is_refused_with_the_new_owner_and_the_fix),
    T(mem_param_reaches_ranges_step_trees_and_single_runs),
    T(a_dry_run_tells_raw_from_planned_by_layer_blob_and_slot),
    T(a_dry_run_without_options_is_caffes), T(a_dry_run_of_many_slots_has_each_value_in_its_own),
    T(bytes_are_counted_by_class_each_storage_once),
    T(gradients_are_given_back_and_made_again_by_the_next_training_run),
    T(a_gradient_given_back_says_so_until_it_is_made_again),
    T(gradients_given_back_by_a_parent_are_made_again_where_they_are_needed),
    T(gradients_given_back_are_made_again_for_any_shape));
}
