/* test_control.c: loops, where Lua can't reach: plans whose frames were tampered with, the
 * interrupt inside a loop, refused memory. */
#include "mlp.h"

#include <pthread.h>
#include <time.h>

/* ---- nets as text ---------------------------------------------------------------------------- */

/* x is squashed n times; loops without max keep their frames on a stack. */
static const char loop_text[] =
  "net loop\ninput x f32 (64)\ninput n f32 ()\nparam w f32 (64) = Constant { value = 0.9 }\nstate "
  "zero f32 () = Constant { value "
  "= 0 }\n"
  "state one f32 () = Constant { value = 1 }\n"
  "subnet cond\n  input i\n  input p\n  more = Lt(i, n)\n  takes i, p, n, one, w\n  gives "
  "more\nend\n"
  "subnet body\n  input i\n  input p\n  j = Add(i, one)\n  a = Mul(p, w)\n  b = Sigmoid(a)\n  c = "
  "Mul(b, p)\n"
  "  takes i, p, n, one, w\n  gives j, c\nend\n"
  "k, y = While(zero, x, n, one, w) { cond_net = cond, body_net = body, n_state = 2%s }\nloss = "
  "Sum(y)\n"
  "w_grad, x_grad = Gradient(loss, w, x)\noutputs loss, k\n";

static const char endless_text[] =
  "net endless\nstate zero f32 () = Constant { value = 0 }\nstate one f32 () = Constant { value = "
  "1 }\n"
  "subnet cond\n  input i\n  more = Copy(one)\n  takes i, one\n  gives more\nend\n"
  "subnet body\n  input i\n  j = Add(i, one)\n  takes i, one\n  gives j\nend\n"
  "y = While(zero, one) { cond_net = cond, body_net = body, n_state = 1 }\noutputs y\n";

/* The same, counting in a resident blob. */
static const char committing_text[] =
  "net committing\nstate m f32 () = Constant { value = 0 }\nstate one f32 () = Constant { value = "
  "1 }\n"
  "subnet cond\n  more = Copy(one)\n  takes m, one\n  gives more\nend\n"
  "subnet body\n  m = Add(m, one)\n  takes m, one\n  gives m\nend\n"
  "m = While(m, one) { cond_net = cond, body_net = body, n_state = 1 }\nsum = Mul(m, one)\noutputs "
  "sum\n";

/* A branch counts in m; then what may fail. */
#define ONE "state one f32 () = Constant { value = 1 }\n"
#define COUNTS                                                                                    \
  "state m f32 () = Constant { value = 0 }\ninput c bool ()\n"                                    \
  "subnet up\n  r = Add(m, one)\n  takes m, one\n  gives r\nend\nm = If(c, m, one) { then_net = " \
  "up }\n"
static const char faulting_text[] =
  "net faulting\n" ONE COUNTS
  "input ids i64 (2)\nparam w f32 (7,2) = Constant { value = 2 }\n"
  "z = Mul(w, m)\ny = Embedding(ids, z)\noutputs y\n";
/* What can fail reads none of it, and so comes before the branch. */
static const char early_text[] = "net early\n" ONE COUNTS
                                 "input ids i64 (2)\nparam w f32 (7,2) = Constant { value = 2 }\n"
                                 "y = Embedding(ids, w)\noutputs y\n";
/* What can fail reads what one update has written; the other one comes behind it. */
static const char late_text[] =
  "net late\ninput ids i64 (2)\nstate lr f32 () = Constant { value = 1 }\nparam w f32 (7,2) = "
  "Constant { value = 2 }\n"
  "param v f32 (7,2) = Constant { value = 2 }\nparam g f32 (7,2) = Constant { value = 1 }\n"
  "w = Sgd(w, g, lr) { momentum = 0 }\nv = Sgd(v, g, lr) { momentum = 0 } as other\ny = "
  "Embedding(ids, w)\noutputs y\n";

static neap_status read_loop(const char *max, neap_net **out, neap_error *error) {
  char text[2048];
  snprintf(text, sizeof text, loop_text, max);
  return neap_net_read(text, out, error);
}

typedef struct opened {
  neap_net *net;
  neap_workspace *ws;
  neap_session *session;
} opened;

static void opened_close(opened *o) {
  neap_session_free(o->session);
  neap_workspace_release(o->ws);
  neap_net_free(o->net);
  *o = (opened){0};
}

static neap_status feed_number(neap_workspace *ws, const char *name, neap_shape shape, double value,
                               neap_error *error) {
  neap_tensor t;
  NEAP_TRY(neap_tensor_new(&t, NEAP_DTYPE_F32, &shape, error));
  for (int64_t i = 0; i < neap_tensor_elems(&t); i++)
    neap_element_set(NEAP_DTYPE_F32, neap_tensor_data(&t), i, value);
  neap_status status = neap_workspace_feed(ws, name, &t, false, error);
  neap_tensor_fini(&t);
  return status;
}

/* The net is o's from here on, also when it fails. */
static neap_status open_net(opened *o, neap_executor executor, neap_error *error) {
  NEAP_TRY(neap_workspace_new(&(neap_workspace_options){.seed = 5}, &o->ws, error));
  NEAP_TRY(neap_workspace_init(o->ws, o->net, error));
  neap_compile_options options = {
    .plan = {.policy = NEAP_POLICY_OFFSET, .executor = executor}, .n_thread = 1, .engine = "ref"};
  return neap_driver_compile(o->ws, o->net, &options, &o->session, error);
}

static neap_status step(opened *o, double n, neap_error *error) {
  NEAP_TRY(feed_number(o->ws, "x", NEAP_SHAPE(64), 0.5, error));
  NEAP_TRY(feed_number(o->ws, "n", neap_shape_of(0, NULL), n, error));
  return neap_session_run(o->session, error);
}

static double number(opened *o, const char *name) {
  neap_tensor t = {0};
  double value = NAN;
  if (neap_workspace_fetch(o->ws, name, &t, NULL) == NEAP_OK)
    value = neap_element_get(t.dtype, neap_tensor_data(&t), 0);
  neap_tensor_fini(&t);
  return value;
}

/* ---- the verifier ---------------------------------------------------------------------------- */

static neap_status lay_out_text(const char *max, neap_graph **out, neap_error *error) {
  neap_net *net = NULL;
  neap_graph *graph = NULL;
  neap_choices choices = {0};
  NEAP_TRY(read_loop(max, &net, error));
  neap_status s = neap_graph_prepare(net, NULL, &graph, error);
  neap_choose_options choose = {
    .force = true, .engine = NEAP_ENGINE_REF, .n_thread = 1, .scratch_limit = SIZE_MAX};
  if (s == NEAP_OK) s = neap_graph_choose(graph, &choose, &choices, error);
  if (s == NEAP_OK) s = neap_graph_lay_out(graph, &choices, out, error);
  neap_choices_fini(&choices);
  neap_graph_free(graph);
  neap_net_free(net);
  return s;
}

/* Both halves of the loop, in the order of their nodes. */
static int loops_of(const neap_graph *graph, int node[2]) {
  int n = 0;
  for (int k = 0; k < graph->n_node && n < 2; k++)
    if (graph->node[k].loop != NULL) node[n++] = k;
  return n;
}

TEST(a_frame_that_was_tampered_with_is_refused) {
  neap_graph *graph = NULL;
  neap_plan *plan = NULL;
  CHECK_OK(lay_out_text(", max = 5", &graph, &error));
  if (graph == NULL) return;
  CHECK_OK(
    neap_plan_make(graph, &(neap_plan_options){.policy = NEAP_POLICY_OFFSET}, &plan, &error));
  CHECK_OK(neap_plan_verify(plan, graph, &error));

  /* The loop and the one of its gradient: what the first keeps the second reads. */
  int node[2], n_kept = 0;
  CHECK_EQ(loops_of(graph, node), 2);
  for (int half = 0; half < 2; half++) {
    const neap_node *owner = &graph->node[node[half]];
    int body = owner->n_sub - 1;
    const neap_graph *sub = owner->sub[body];
    for (int v = 0; v < sub->n_value; v++) {
      neap_place *place = &plan->sub[node[half]][body]->place[v];
      if (sub->value[v].region != NEAP_REGION_FRAME) continue;
      n_kept++;
      place->offset += NEAP_ALIGN; /* as a stored plan might say */
      CHECK_FAILS(neap_plan_verify(plan, graph, &error), NEAP_PLAN, "item");
      place->offset -= NEAP_ALIGN;
    }

    /* Items of the record that lie over each other, or beyond its end. */
    neap_loop *loop = owner->loop;
    CHECK(loop->n_item >= 2);
    for (int i = 0; i < loop->n_item; i++) {
      size_t was = loop->item[i].offset;
      loop->item[i].offset = loop->item[(i + 1) % loop->n_item].offset;
      CHECK_FAILS(neap_plan_verify(plan, graph, &error), NEAP_PLAN, "share bytes");
      loop->item[i].offset = loop->record_bytes;
      CHECK_FAILS(neap_plan_verify(plan, graph, &error), NEAP_PLAN, "outside the record");
      loop->item[i].offset = was;
    }

    neap_plan **subs = plan->sub[node[half]], *kept = subs[body];
    subs[body] = NULL;
    CHECK_FAILS(neap_plan_verify(plan, graph, &error), NEAP_PLAN, "the plan fewer");
    subs[body] = kept;
    if (half == 1) {
      /* each figure of the halves for itself */
      loop->record_bytes += NEAP_ALIGN;
      CHECK_FAILS(neap_plan_verify(plan, graph, &error), NEAP_PLAN, "");
      loop->record_bytes -= NEAP_ALIGN;
      loop->grows = !loop->grows;
      CHECK_FAILS(neap_plan_verify(plan, graph, &error), NEAP_PLAN, "");
      loop->grows = !loop->grows;
      loop->n_item--;
      CHECK_FAILS(neap_plan_verify(plan, graph, &error), NEAP_PLAN, "");
      loop->n_item++;
    }
    loop->max++; /* more iterations than the frames hold */
    CHECK_FAILS(neap_plan_verify(plan, graph, &error), NEAP_PLAN, "do not hold 6 iterations");
    loop->max--;
    owner->loop->state[0].bytes += 1 << 20;
    CHECK_FAILS(neap_plan_verify(plan, graph, &error), NEAP_PLAN, "state");
    owner->loop->state[0].bytes -= 1 << 20;
  }
  CHECK(n_kept >= 2);
  CHECK_OK(neap_plan_verify(plan, graph, &error));
  neap_plan_free(plan);
  neap_graph_free(graph);
}

/* ---- the interrupt --------------------------------------------------------------------------- */

static void *interrupt_soon(void *nothing) {
  nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
  neap_interrupted = 1;
  return nothing;
}

/* Runs an endless net until another thread asks for a stop. */
static neap_status run_endless(opened *o, neap_error *error) {
  pthread_t thread;
  pthread_create(&thread, NULL, interrupt_soon, NULL);
  neap_status status = neap_session_run(o->session, error);
  pthread_join(thread, NULL);
  return status;
}

TEST(an_endless_loop_is_stopped_by_the_interrupt) {
  for (int executor = 0; executor < 2; executor++) {
    opened o = {0};
    CHECK_OK(neap_net_read(endless_text, &o.net, &error));
    CHECK_OK(open_net(&o, (neap_executor)executor, &error));
    CHECK_FAILS(run_endless(&o, &error), NEAP_INTERRUPTED, "interrupted");
    neap_interrupted = 0;
    opened_close(&o);
  }
}

TEST(an_endless_loop_that_commits_ends_where_an_iteration_ends_and_its_step_is_finished) {
  for (int executor = 0; executor < 2; executor++) {
    opened o = {0};
    CHECK_OK(neap_net_read(committing_text, &o.net, &error));
    CHECK_OK(open_net(&o, (neap_executor)executor, &error));
    CHECK_OK(run_endless(&o, &error));
    CHECK(neap_interrupted != 0); /* for the caller to see */
    neap_interrupted = 0;
    CHECK(number(&o, "m") > 0);
    CHECK_NEAR(number(&o, "sum"), number(&o, "m"), 0);
    opened_close(&o);
  }
}

/* ---- what a run that fails has written ------------------------------------------------------- */

static neap_status feed_ids(opened *o, int last, neap_error *error) {
  neap_tensor t;
  neap_shape shape = NEAP_SHAPE(2);
  NEAP_TRY(neap_tensor_new(&t, NEAP_DTYPE_I64, &shape, error));
  neap_element_set(NEAP_DTYPE_I64, neap_tensor_data(&t), 0, 0);
  neap_element_set(NEAP_DTYPE_I64, neap_tensor_data(&t), 1, last);
  neap_status status = neap_workspace_feed(o->ws, "ids", &t, false, error);
  neap_tensor_fini(&t);
  return status;
}

static neap_status feed_true(neap_workspace *ws, neap_error *error) {
  neap_tensor t;
  NEAP_TRY(neap_tensor_new(&t, NEAP_DTYPE_BOOL, &(neap_shape){0}, error));
  neap_element_set(NEAP_DTYPE_BOOL, neap_tensor_data(&t), 0, 1);
  neap_status status = neap_workspace_feed(ws, "c", &t, false, error);
  neap_tensor_fini(&t);
  return status;
}

TEST(a_run_that_fails_has_not_been) {
  static const struct {
    const char *text, *blob[2];
    double first, second;
  } net[] = {{faulting_text, {"m", "m"}, 1, 2},
             {early_text, {"m", "m"}, 1, 2},
             {late_text, {"w", "v"}, 1, 0}};
  for (int k = 0; k < NEAP_COUNT(net); k++)
    for (int executor = 0; executor < 2; executor++) {
      opened o = {0};
      CHECK_OK(neap_net_read(net[k].text, &o.net, &error));
      CHECK_OK(open_net(&o, (neap_executor)executor, &error));
      if (k < 2) CHECK_OK(feed_true(o.ws, &error));
      CHECK_OK(feed_ids(&o, 6, &error));
      CHECK_OK(neap_session_run(o.session, &error));
      CHECK_OK(feed_ids(&o, 7, &error));
      for (int again = 0; again < 2; again++) {
        CHECK_FAILS(neap_session_run(o.session, &error), NEAP_DATA, "out of range");
        CHECK_NEAR(number(&o, net[k].blob[0]), net[k].first, 0);
        CHECK_NEAR(number(&o, net[k].blob[1]), net[k].first, 0);
      }
      CHECK_OK(feed_ids(&o, 6, &error));
      CHECK_OK(neap_session_run(o.session, &error));
      CHECK_NEAR(number(&o, net[k].blob[0]), net[k].second, 0);
      CHECK_NEAR(number(&o, net[k].blob[1]), net[k].second, 0);
      CHECK_EQ(neap_session_stats_read(o.session).n_alloc_last, 0);
      opened_close(&o);
    }
}

/* Planned and held bytes have the copies; what nothing can be half written of has none. */
TEST(copies_of_what_may_be_half_written_are_counted) {
  const struct {
    const char *text;
    size_t state_bytes;                       /* each blob rounded to NEAP_ALIGN */
  } net[] = {{faulting_text, 3 * NEAP_ALIGN}, /* m, one, and m once more */
             {late_text, 3 * NEAP_ALIGN},     /* lr; w and v once more */
             {early_text, 2 * NEAP_ALIGN},    /* m, one */
             {endless_text, 2 * NEAP_ALIGN}}; /* zero, one */
  for (int k = 0; k < NEAP_COUNT(net); k++) {
    opened o = {0};
    CHECK_OK(neap_net_read(net[k].text, &o.net, &error));
    CHECK_OK(open_net(&o, NEAP_EXECUTOR_SIMPLE, &error));
    if (o.session == NULL) break;
    const neap_plan *plan = neap_program_plan(neap_session_program(o.session));
    CHECK_EQ(plan->region_bytes[NEAP_REGION_STATE], net[k].state_bytes);
    neap_session_stats stats = neap_session_stats_read(o.session);
    CHECK_EQ(stats.held_bytes, stats.planned_bytes);
    size_t total = (size_t)stats.planned_bytes;
    neap_forecast forecast;
    neap_compile_options options = {
      .plan = {.policy = NEAP_POLICY_OFFSET}, .n_thread = 1, .engine = "ref", .total_bytes = total};
    CHECK_OK(neap_driver_plan(o.net, &options, &forecast, &error));
    neap_forecast_fini(&forecast);
    options.total_bytes = total - 1;
    CHECK_FAILS(neap_driver_plan(o.net, &options, &forecast, &error), NEAP_BUDGET, "");
    opened_close(&o);
  }
}

/* ---- memory ---------------------------------------------------------------------------------- */

TEST(a_frame_that_memory_is_refused_for_fails_the_step_only) {
  opened o = {0};
  CHECK_OK(read_loop("", &o.net, &error));
  CHECK_OK(open_net(&o, NEAP_EXECUTOR_SIMPLE, &error));
  CHECK_OK(step(&o, 3, &error));
  CHECK_OK(feed_number(o.ws, "n", neap_shape_of(0, NULL), 10000, &error));
  neap_memory_fail_nth(1, true);
  neap_error refused = {0};
  neap_status status = neap_session_run(o.session, &refused);
  neap_memory_fail_nth(0, false);
  CHECK_EQ(status, NEAP_MEMORY);
  CHECK(strstr(refused.message, "memory for the frame of iteration") != NULL);
  CHECK(strcmp(refused.op, "While") == 0);
  CHECK_OK(step(&o, 100, &error));
  CHECK_NEAR(number(&o, "k"), 100, 0);
  neap_program *program = neap_session_program(o.session);
  CHECK(neap_program_frames_bytes(program) > 0);
  CHECK_EQ(neap_program_frames_bytes(program), neap_program_trim(program));
  CHECK_EQ(neap_program_frames_bytes(program), 0);
  CHECK_OK(step(&o, 100, &error));
  opened_close(&o);
}

/* Frames that grow are taken behind the branch, while the net runs. */
TEST(a_frame_that_memory_is_refused_for_leaves_what_a_branch_has_written) {
  opened o = {0};
  char text[2048], counting[4096];
  snprintf(text, sizeof text, loop_text, "");
  char *rest = strstr(text, "subnet cond");
  CHECK(rest != NULL);
  if (rest == NULL) return;
  snprintf(counting, sizeof counting, "%.*s" COUNTS "from = Mul(x, m)\n%s", (int)(rest - text),
           text, rest);
  char *start = strstr(counting, "While(zero, x,");
  CHECK(start != NULL);
  if (start == NULL) return;
  memmove(start + strlen("While(zero, from,"), start + strlen("While(zero, x,"),
          strlen(start + strlen("While(zero, x,")) + 1);
  memcpy(start, "While(zero, from,", strlen("While(zero, from,"));
  CHECK_OK(neap_net_read(counting, &o.net, &error));
  CHECK_OK(open_net(&o, NEAP_EXECUTOR_SIMPLE, &error));
  CHECK_OK(feed_true(o.ws, &error));
  CHECK_OK(step(&o, 3, &error));
  CHECK_NEAR(number(&o, "m"), 1, 0);
  CHECK_OK(feed_number(o.ws, "n", neap_shape_of(0, NULL), 10000, &error));
  for (int again = 0; again < 2; again++) {
    neap_memory_fail_nth(1, true);
    neap_status status = neap_session_run(o.session, NULL);
    neap_memory_fail_nth(0, false);
    CHECK_EQ(status, NEAP_MEMORY);
    CHECK_NEAR(number(&o, "m"), 1, 0);
  }
  CHECK_OK(step(&o, 100, &error));
  CHECK_NEAR(number(&o, "m"), 2, 0);
  opened_close(&o);
}

static neap_status whole_way(const char *max) {
  opened o = {0};
  neap_error error = {0};
  neap_status status = read_loop(max, &o.net, &error);
  if (status == NEAP_OK) status = open_net(&o, NEAP_EXECUTOR_DAG, &error);
  if (status == NEAP_OK) status = step(&o, 3, &error);
  opened_close(&o);
  return status;
}

/* A loop whose result nobody reads: building takes it out again, body and all. */
static const char dead_text[] =
  "net dead\ninput x f32 (4)\ny = Relu(x)\n"
  "subnet more\n  input s f32 (4)\n  sum = Sum(s)\n  r = Lt(sum, sum)\n  takes s\n  gives r\nend\n"
  "subnet twice\n  input s f32 (4)\n  r = Add(s, s)\n  takes s\n  gives r\nend\n"
  "z = While(y) { cond_net = more, body_net = twice, n_state = 1, max = 5 }\noutputs y\n";
static neap_status plan_dead(const char *text) {
  neap_net *net = NULL;
  neap_graph *graph = NULL;
  neap_error error = {0};
  neap_status status = neap_net_read(text, &net, &error);
  if (status == NEAP_OK) status = neap_graph_prepare(net, NULL, &graph, &error);
  if (status == NEAP_OK) CHECK_EQ(graph->n_node, 1);
  neap_graph_free(graph);
  neap_net_free(net);
  return status;
}

/* way(text) with the n-th block refused, n from 1 on to the end: it gives all back. */
static void sweep(neap_status (*way)(const char *text), const char *text, int least) {
  CHECK_EQ(way(text), NEAP_OK); /* names are known from here on */
  int64_t live = neap_memory_read().n_live, nth = 1;
  neap_status status;

  do {
    neap_memory_fail_nth_block(nth);
    status = way(text);
    bool failed = neap_memory_failed();
    neap_memory_fail_nth(0, false);
    CHECK_EQ(neap_memory_read().n_live, live);
    CHECK(!failed || status == NEAP_MEMORY || status == NEAP_OK);
    if (!failed) break;
    nth++;
  } while (check_failures == 0 && nth < 20000);
  CHECK_EQ(status, NEAP_OK);
  CHECK(nth > least);
}

TEST(any_allocation_may_fail_on_the_way_of_a_loop_and_nothing_stays) {
  sweep(whole_way, ", max = 4", 100);
  sweep(whole_way, "", 100);
  sweep(plan_dead, dead_text, 10);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(a_frame_that_was_tampered_with_is_refused),
             T(an_endless_loop_is_stopped_by_the_interrupt),
             T(an_endless_loop_that_commits_ends_where_an_iteration_ends_and_its_step_is_finished),
             T(a_run_that_fails_has_not_been), T(copies_of_what_may_be_half_written_are_counted),
             T(a_frame_that_memory_is_refused_for_fails_the_step_only),
             T(a_frame_that_memory_is_refused_for_leaves_what_a_branch_has_written),
             T(any_allocation_may_fail_on_the_way_of_a_loop_and_nothing_stays));
}
