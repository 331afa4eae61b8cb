/* test_api_plan.c: plans to ask, ranges, searches and steps in parts, with neap.h alone: what a
 * script does with net:plan, ranges of batches, fit_batch and micro-batches. */
#include "check.h"
#include "neap.h"

#include <stdlib.h>

enum { ROWS = 8, IN = 6 };

static const char net_text[] =
  "net little\n"
  "input x f32 (8,6)\n"
  "input label i32 (8)\n"
  "param w1 f32 (16,6) = Xavier\n"
  "param w2 f32 (4,16) = Xavier\n"
  "h = FC(x, w1)\n"
  "t = Tanh(h)\n"
  "s = FC(t, w2)\n"
  "unread = Exp(s)\n"
  "loss = SoftmaxCrossEntropy(s, label)\n"
  "w1g, w2g = Gradient(loss, w1, w2)\n"
  "lr = Constant() { shape = {1}, value = 0.5 }\n"
  "w1 = Sgd(w1, w1g, lr)\n"
  "w2 = Sgd(w2, w2g, lr)\n"
  "outputs loss\n";

static neap_net *little(void) {
  neap_net *net = NULL;
  CHECK_OK(neap_net_read(net_text, &net, &error));
  return net;
}

static void write_rows(neap_workspace *ws, int rows) {
  float x[ROWS * IN];
  int32_t label[ROWS];
  for (int i = 0; i < rows * IN; i++) x[i] = (float)((i * 7 + 3) % 11) / 8 - 0.5f;
  for (int i = 0; i < rows; i++) label[i] = i % 4;
  CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){rows, IN}, x, &error));
  CHECK_OK(neap_workspace_write(ws, "label", NEAP_DTYPE_I32, 1, (int64_t[]){rows}, label, &error));
}

/* ---- plans ----------------------------------------------------------------------------------- */

static bool contains(char *text, const char *words) {
  bool is = text != NULL && strstr(text, words) != NULL;
  neap_free(text);
  return is;
}

TEST(a_plan_is_asked_for_figures_rows_and_words) {
  neap_net *net = little();
  neap_memory_plan *plan = NULL;
  neap_rows *rows = NULL;
  const void *row = NULL;
  char *text = NULL;
  const char *into = "";
  CHECK_OK(neap_memory_plan_new(net, NULL, NULL, &plan, &error));
  neap_net_free(net); /* the plan stays */
  neap_figures figures = neap_memory_plan_figures(plan);
  CHECK(figures.train && figures.arena_bytes > 0 && figures.n_step == 0);
  CHECK_EQ(figures.batch, ROWS);
  CHECK(strcmp(neap_memory_plan_warning(plan), "") == 0);

  /* one row alone, by its number, and all of them in turn */
  int value = neap_memory_plan_value(plan, "t");
  CHECK(value >= 0);
  CHECK_OK(neap_memory_plan_rows(plan, NEAP_ROW_VALUE, &rows, &error));
  CHECK_OK(neap_rows_at(rows, value, &row, &error));
  CHECK(row != NULL && strcmp(((const neap_value_row *)row)->blob, "t") == 0);
  CHECK_EQ(((const neap_value_row *)row)->value_no, value);
  CHECK_OK(neap_rows_at(rows, 100000, &row, &error));
  CHECK(row == NULL);
  int n = 0;
  do CHECK_OK(neap_rows_next(rows, &row, &error));
  while (row != NULL && ++n);
  CHECK_EQ(n, figures.n_value);
  neap_rows_free(rows);

  /* a blob that is not computed, and one that the net lacks */
  CHECK_EQ(neap_memory_plan_value(plan, "unread"), -1);
  CHECK(neap_memory_plan_gone(plan, "unread", &into) && into == NULL);
  CHECK(!neap_memory_plan_gone(plan, "nobody", &into));
  CHECK_OK(neap_memory_plan_explain(plan, "unread", &text, &error));
  CHECK(contains(text, "nothing reads it"));
  CHECK_FAILS(neap_memory_plan_explain(plan, "nobody", &text, &error), NEAP_NAME, "nobody");

  /* Each kind of text, by a word that must stand in it. */
  CHECK_OK(neap_memory_plan_explain(plan, "t", &text, &error));
  CHECK(contains(text, "t"));
  CHECK_OK(neap_memory_plan_why(plan, "h", "s", &text, &error));
  CHECK(contains(text, "h"));
  CHECK_FAILS(neap_memory_plan_why(plan, "h", "nobody", &text, &error), NEAP_NAME, "nobody");
  CHECK_OK(neap_memory_plan_peak(plan, &text, &error));
  CHECK(contains(text, "t"));
  CHECK_OK(neap_memory_plan_text(plan, &text, &error));
  CHECK(contains(text, "offset simple"));
  CHECK_OK(neap_memory_plan_graph_text(plan, &text, &error));
  CHECK(contains(text, "Tanh"));
  CHECK_OK(neap_memory_plan_dot(plan, 0, &text, &error));
  CHECK(contains(text, "digraph"));
  CHECK_OK(neap_memory_plan_svg(plan, NULL, &text, &error));
  CHECK(contains(text, "<svg"));
  CHECK_OK(neap_memory_plan_svg(plan, &(neap_drawing){.by_layer = true}, &text, &error));
  CHECK(contains(text, "class=\"key\""));
  CHECK_FAILS(neap_memory_plan_svg(plan, &(neap_drawing){.step_ns = (int64_t[]){1}, .n_step = 1},
                                   &text, &error),
              NEAP_ARGUMENT, "step_ns has 1");
  CHECK_OK(neap_memory_plan_verify(plan, &error));
  neap_memory_plan_free(plan);
}

TEST(a_plan_of_a_session_is_that_of_what_it_ran_last) {
  neap_net *net = NULL;
  neap_workspace *ws = NULL;
  neap_session *session = NULL;
  neap_memory_plan *plan = NULL;
  float x[4 * 3] = {0};
  CHECK_OK(neap_net_read("net any\ninput x f32 (4,3)\ny = Tanh(x)\nz = Exp(y)\n", &net, &error));
  CHECK_OK(neap_workspace_open(1, &ws, &error));
  CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){4, 3}, x, &error));
  CHECK_OK(neap_session_open(ws, net, &(neap_options){.executor = "dynamic"}, &session, &error));
  CHECK_OK(neap_session_plan(session, &plan, &error));
  CHECK_OK(neap_session_run(session, &error));
  CHECK_EQ(neap_memory_plan_figures(plan).batch, 4);
  CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){2, 3}, x, &error));
  CHECK_OK(neap_session_run(session, &error));
  CHECK_EQ(neap_memory_plan_figures(plan).batch, 2);
  CHECK(!neap_session_is_timed(session) && !neap_session_lacks_blob(session));
  CHECK_EQ(neap_session_frames_bytes(session), 0);
  neap_memory_plan_free(plan);
  neap_session_free(session);
  neap_workspace_release(ws);
  neap_net_free(net);
}

TEST(a_dry_run_is_one_of_the_plan_that_is_asked) {
  neap_net *net = little();
  neap_memory_plan *plan = NULL;
  neap_dry_run *log = NULL;
  CHECK_OK(neap_memory_plan_new(net, &(neap_options){.policy = "none"}, NULL, &plan, &error));
  CHECK_OK(neap_memory_plan_dry_run(plan, net, &log, &error));
  CHECK(log != NULL && strcmp(log->policy, "none") == 0 && log->train);
  CHECK_EQ(log->arena_bytes, neap_memory_plan_figures(plan).arena_bytes);
  neap_dry_run_free(log);
  neap_memory_plan_free(plan);
  neap_net_free(net);
}

TEST(graphs_are_compared_by_their_hash) {
  neap_net *a = little(), *b = little();
  char first[33], second[33], *text = NULL;
  CHECK_OK(neap_net_graph_hash(a, NULL, first, &error));
  CHECK_OK(neap_net_graph_hash(b, NULL, second, &error));
  CHECK(strcmp(first, second) == 0);
  CHECK_OK(neap_net_graph_hash(b, &(neap_options){.keep_all = NEAP_ON}, second, &error));
  CHECK(strcmp(first, second) != 0);
  CHECK_OK(neap_net_graph_text(a, NULL, false, &text, &error));
  CHECK(contains(text, "Tanh"));
  CHECK_OK(neap_net_graph_text(a, NULL, true, &text, &error));
  CHECK(contains(text, "Tanh"));
  neap_net_free(a);
  neap_net_free(b);
}

/* ---- shapes of inputs among the options ------------------------------------------------------ */

TEST(inputs_have_other_shapes_by_an_option) {
  neap_net *net = little();
  neap_input *input = NULL;
  neap_figures figures;
  char *json = NULL;
  int n = 0;
  CHECK_OK(neap_net_batch_inputs(net, 3, &input, &n, &error));
  CHECK_EQ(n, 2); /* x and label, which have the batch */
  neap_options three = {.n_inputs = n, .inputs = input};
  CHECK_OK(neap_net_forecast(net, &three, &figures, NULL, &error));
  CHECK_EQ(figures.batch, 3);
  CHECK_OK(neap_options_json(&three, &json, &error));
  CHECK(contains(json, "\"inputs\":{\"x\":[3,6],\"label\":[3]}"));
  neap_input *none = NULL; /* a failure gives nothing, and would overwrite what is to be freed */
  CHECK_FAILS(neap_net_batch_inputs(net, 0, &none, &n, &error), NEAP_ARGUMENT, "0 rows");
  three.n_inputs = 1, three.inputs = NULL;
  CHECK_FAILS(neap_net_forecast(net, &three, &figures, NULL, &error), NEAP_ARGUMENT, "inputs");
  const neap_input nameless = {.type = {NEAP_DTYPE_F32, NEAP_SHAPE(2, 2)}};
  three.inputs = &nameless;
  CHECK_FAILS(neap_net_forecast(net, &three, &figures, NULL, &error), NEAP_ARGUMENT, "no name");
  neap_free(input);
  neap_net_free(net);
}

TEST(options_are_refused_where_nobody_reads_them) {
  const neap_option *option = neap_option_find("max_batch");
  CHECK(option != NULL && neap_option_find("max_batc") == NULL);
  CHECK_FAILS(neap_options_check(&(neap_options){.max_batch = 4}, NEAP_FACE_C, "a test", &error),
              NEAP_ARGUMENT, "a test does not take the option \"max_batch\"");
  CHECK_OK(neap_options_check(&(neap_options){.max_batch = 4}, NEAP_FACE_LUA, "a test", &error));
  CHECK_FAILS(neap_option_refuse(option, "nobody", &error), NEAP_ARGUMENT, "nobody does not take");
}

/* ---- ranges ---------------------------------------------------------------------------------- */

TEST(a_smaller_batch_is_planned_and_counted_in_the_range_of_the_largest) {
  neap_net *net = little();
  neap_input *input = NULL;
  neap_range *range = NULL;
  neap_memory_plan *plan = NULL;
  neap_counts before, after;
  neap_workspace *ws = NULL;
  neap_session *session = NULL;
  neap_options two = {0};
  CHECK_OK(neap_range_open(net, 0, NULL, &range, &error)); /* the net's own batch */
  CHECK(strcmp(neap_range_warning(range), "") == 0);
  CHECK_OK(neap_net_batch_inputs(net, 2, &input, &two.n_inputs, &error));
  two.inputs = input;
  CHECK_OK(neap_memory_plan_new(net, &two, range, &plan, &error));
  neap_figures most = neap_range_figures(range), less = neap_memory_plan_figures(plan);
  CHECK_EQ(most.batch, ROWS);
  CHECK_EQ(less.batch, 2);
  CHECK(less.arena_bytes <= most.arena_bytes);
  CHECK_OK(neap_range_count(range, net, &two, &before, &after, &error));
  CHECK(after.total_bytes > 0 && after.parameter_bytes == most.parameter_bytes);

  /* batch 0: as the options say */
  CHECK_OK(neap_workspace_open(1, &ws, &error));
  write_rows(ws, 2);
  CHECK_OK(neap_range_session(range, ws, net, 0, &two, &session, &error));
  CHECK_OK(neap_session_run(session, &error));
  CHECK_EQ(neap_session_figures(session).batch, 2);
  neap_session_free(session);
  neap_workspace_release(ws);
  neap_memory_plan_free(plan);
  neap_range_free(range);
  neap_free(input);
  neap_net_free(net);
}

/* ---- the largest batch of nets that are made for it ------------------------------------------ */

typedef struct maker {
  neap_net *net; /* of the last batch */
  int64_t total, refuse_at;
  int n_made;
} maker;

static neap_status make_net(void *context, int64_t n, const neap_net **net, neap_options *options,
                            neap_error *error) {
  maker *m = context;
  char text[200];
  if (n == m->refuse_at) return neap_fail(error, NEAP_NAME, "no net of %d rows", (int)n);
  neap_net_free(m->net);
  m->net = NULL;
  m->n_made++;
  snprintf(text, sizeof text,
           "net of%d\ninput x f32 (%d,64)\nparam w f32 (32,64) = Xavier\nh = FC(x, w)\n"
           "t = Tanh(h)\ny = Exp(t)\n",
           (int)n, (int)n);
  neap_status status = neap_net_read(text, &m->net, error);
  *net = m->net;
  *options = (neap_options){.total = m->total};
  return status;
}

TEST(the_largest_batch_is_found_among_nets_made_for_each) {
  maker m = {.total = 40000};
  const neap_fit_search search = {.net = make_net, .context = &m, .max = 1000};
  neap_memory_plan *plan = NULL;
  neap_figures more;
  const neap_net *net = NULL;
  neap_options options = {0};
  int64_t batch = 0;
  CHECK_OK(neap_fit_batch(&search, &batch, &plan, &error));
  CHECK(batch > 1 && batch < 1000);
  CHECK_EQ(neap_memory_plan_figures(plan).batch, batch);
  CHECK(neap_memory_plan_figures(plan).total_bytes <= m.total);
  neap_memory_plan_free(plan);

  /* one row more does not fit */
  CHECK_OK(make_net(&m, batch + 1, &net, &options, &error));
  CHECK_FAILS(neap_net_forecast(net, &options, &more, NULL, &error), NEAP_BUDGET, "");

  /* without the plan; an error of the callee ends the search */
  CHECK_OK(neap_fit_batch(&search, &batch, NULL, &error));
  m.refuse_at = 1;
  CHECK_FAILS(neap_fit_batch(&search, &batch, &plan, &error), NEAP_NAME, "no net of 1 rows");
  CHECK(plan == NULL);
  neap_net_free(m.net);
}

/* ---- steps in parts -------------------------------------------------------------------------- */

/* The update of 8 rows, as a whole and as parts of 4 by sessions of the caller's own. */
TEST(parts_of_ones_own_make_the_step_of_the_whole) {
  neap_net *net = little(), *part = NULL, *update = NULL;
  neap_workspace *whole = NULL, *ws = NULL;
  neap_session *session = NULL, *parts = NULL, *end = NULL;
  neap_input *input = NULL;
  neap_options four = {0};
  neap_beside beside = {0};
  float want[16 * IN], got[16 * IN], loss[2];
  CHECK_OK(neap_workspace_open(5, &whole, &error));
  write_rows(whole, ROWS);
  CHECK_OK(neap_session_open(whole, net, NULL, &session, &error));
  CHECK_OK(neap_session_run(session, &error));
  CHECK_OK(neap_workspace_read(whole, "w1", NEAP_DTYPE_F32, 16 * IN, want, &error));
  CHECK_OK(neap_workspace_read(whole, "loss", NEAP_DTYPE_F32, 1, &loss[0], &error));

  CHECK_OK(neap_net_split_micro(net, &part, &update, &error));
  CHECK_OK(neap_micro_beside(update, NULL, NULL, &beside, &error));
  CHECK_OK(neap_net_batch_inputs(part, 4, &input, &four.n_inputs, &error));
  four.inputs = input;
  four.beside = beside;
  CHECK_OK(neap_workspace_open(5, &ws, &error));
  write_rows(ws, ROWS);
  CHECK_OK(neap_session_open(ws, part, &four, &parts, &error));
  CHECK_OK(neap_session_open(ws, update, NULL, &end, &error));

  /* Rows lie where they are, and each half counts for a half. */
  neap_tensor x = {0}, label = {0};
  CHECK_OK(neap_workspace_fetch(whole, "x", &x, &error));
  CHECK_OK(neap_workspace_fetch(whole, "label", &label, &error));
  const neap_micro_input rows[] = {{"x", x}, {"label", label}};
  const neap_micro_part each[] = {{parts, 4, 0.5}, {parts, 4, 0.5}};
  const neap_micro_step step = {
    .n_input = 2, .input = rows, .n_part = 2, .part = each, .after = {NULL, end}};
  CHECK_OK(neap_workspace_run_micro(ws, &step, &error));
  CHECK_OK(neap_workspace_read(ws, "w1", NEAP_DTYPE_F32, 16 * IN, got, &error));
  CHECK_OK(neap_workspace_read(ws, "loss", NEAP_DTYPE_F32, 1, &loss[1], &error));
  for (int i = 0; i < 16 * IN; i++) CHECK_NEAR(got[i], want[i], 1e-5);
  CHECK_NEAR(loss[1], loss[0], 1e-5);

  /* what is held beside counts in a total */
  neap_figures figures;
  four.beside = (neap_beside){0};
  CHECK_OK(neap_net_forecast(part, &four, &figures, NULL, &error));
  four.total = figures.total_bytes;
  CHECK_OK(neap_net_forecast(part, &four, &figures, NULL, &error));
  four.beside = (neap_beside){.bytes = 1 << 20};
  CHECK_FAILS(neap_net_forecast(part, &four, &figures, NULL, &error), NEAP_BUDGET, "total");
  neap_tensor_fini(&x);
  neap_tensor_fini(&label);
  neap_session_free(session);
  neap_session_free(parts);
  neap_session_free(end);
  neap_free(input);
  neap_workspace_release(ws);
  neap_workspace_release(whole);
  neap_net_free(net);
  neap_net_free(part);
  neap_net_free(update);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(a_plan_is_asked_for_figures_rows_and_words),
             T(a_plan_of_a_session_is_that_of_what_it_ran_last),
             T(a_dry_run_is_one_of_the_plan_that_is_asked), T(graphs_are_compared_by_their_hash),
             T(inputs_have_other_shapes_by_an_option),
             T(options_are_refused_where_nobody_reads_them),
             T(a_smaller_batch_is_planned_and_counted_in_the_range_of_the_largest),
             T(the_largest_batch_is_found_among_nets_made_for_each),
             T(parts_of_ones_own_make_the_step_of_the_whole));
}
