/* session.c: a compiled net in a workspace, its runs and what is recorded of them.
 *
 * Step times go to a ring, so that a long training keeps a median without growing. Metrics wait in
 * a list until the run row is written, when the session closes.
 *
 * INVARIANT: the workspace and the store live at least as long as the session, which holds
 * references of them.
 * INVARIANT: a run allocates nothing for being recorded: ring and step times have their room from
 * the start.
 */
#include "driver/driver_int.h"
#include "report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_RING = 1024 }; /* step times kept for the median */

/* A figure that the caller noted: a loss, an accuracy. */
typedef struct metric {
  const char *name; /* interned */
  int64_t at_step;
  double value;
} metric;

struct neap_session {
  neap_workspace *ws;    /* retained */
  neap_program *program; /* a dynamic session's: of the last run, borrowed */
  neap_dynamic *dynamic; /* NULL: one program for all runs */
  neap_store *store;
  const char *const *keep; /* the options', and the forwarded names that the net computes */
  int64_t plan_id, run_id;
  int64_t planned_bytes, process_bytes, n_alloc_last, started_ms, last_ns, min_ns;
  /* DATA bytes of the workspace at the start, and what compiling and running added */
  int64_t own_bytes;
  int64_t n_step;
  int n_thread;
  int64_t ring[N_RING];
  neap_step_times *times; /* by plan step; NULL without profile */
  metric *metric;
  int n_metric, cap_metric;
  char *script, *tag;
  neap_error failed; /* the last run's error, for the row */
  char warning[256];
};

/* ---- compiling ------------------------------------------------------------------------------- */

/* *program: owned by the caller, and owns graph and plan, which *forecast loses. A stored plan that
 * got here can be bound as one made afresh (stored.c). */
neap_status neap_session_bind(const neap_net *net, const neap_compile_options *options,
                              neap_forecast *forecast, neap_program **program, neap_error *error) {
  NEAP_TRY(neap_driver_plan(net, options, forecast, error));
  /* takes both over, on failure too */
  neap_status status = neap_program_new(forecast->graph, forecast->plan, program, error);
  forecast->graph = NULL;
  forecast->plan = NULL;
  return status;
}

/* A soft limit stops nothing: it is said once that the pool will be larger while this net runs. */
static void warn_soft(neap_session *session) {
  const neap_plan *plan = neap_program_plan(session->program);
  size_t soft = neap_workspace_pool_soft(session->ws);
  if (plan->policy != NEAP_POLICY_POOL || soft == 0 || plan->arena_bytes <= soft ||
      session->warning[0] != '\0')
    return;
  char a[24], b[24];
  snprintf(session->warning, sizeof session->warning,
           "net \"%.100s\" needs a pool of %s, above the soft limit of %s",
           neap_program_graph(session->program)->name,
           neap_bytes_text_beside((double)plan->arena_bytes, (double)soft, a),
           neap_bytes_text_beside((double)soft, (double)plan->arena_bytes, b));
}

/* After a run of a dynamic session: its program is another. */
static void use_dynamic(neap_session *session) {
  session->program = neap_dynamic_program(session->dynamic);
  session->planned_bytes = (int64_t)neap_dynamic_planned_bytes(session->dynamic);
  warn_soft(session);
}

/* A forwarded name that the net computes is a blob of the parent: its bytes lie there, so it is
 * kept like an output. Returns the list of keeps, from neap_alloc; NULL when memory is refused. */
static const char *const *with_forwarded(const neap_workspace *ws, const neap_net *net,
                                         const neap_graph_options *given, int *n) {
  int n_forward = 0;
  while (neap_workspace_forwarded_at(ws, n_forward) != NULL) n_forward++;
  const char **keep = neap_alloc_zeroed((size_t)(given->n_keep + n_forward + 1) * sizeof *keep);
  if (keep == NULL) return NULL;
  for (*n = 0; *n < given->n_keep; ++*n) keep[*n] = given->keep[*n];
  for (int i = 0; i < n_forward; i++) {
    const char *name = neap_workspace_forwarded_at(ws, i);
    const neap_net_blob *blob = neap_net_find_blob(net, name);
    /* A declared blob has bytes of its own in any case. */
    if (blob != NULL && blob->type.dtype == NEAP_DTYPE_NONE) keep[(*n)++] = name;
  }
  return keep;
}

/* Where the workspace's blobs lie, for a plan that knows of banks; not for a range's, which is made
 * for any workspace. In `room`. */
static neap_status take_homes(const neap_workspace *ws, bool ranged, neap_graph_options *o,
                              neap_arena *room, neap_error *error) {
  if (o->n_bank == 0 || ranged) return NEAP_OK;
  int n = neap_workspace_homes(ws, 0, NULL);
  neap_home *home = neap_arena_alloc(room, (size_t)n * sizeof *home);
  if (home == NULL) return neap_fail_memory(error, (size_t)n * sizeof *home, "where blobs lie");
  o->n_home = neap_workspace_homes(ws, n, home);
  o->home = home;
  return NEAP_OK;
}

/* The session's program by these options, in the place of one that it has, with what is known of
 * it. */
static neap_status take_program(neap_session *session, const neap_net *net,
                                const neap_compile_options *options, const neap_range *range,
                                neap_error *error) {
  neap_forecast forecast;
  neap_program *program = NULL;
  if (range == NULL) {
    NEAP_TRY(neap_session_bind(net, options, &forecast, &program, error));
  } else {
    NEAP_TRY(neap_range_plan(range, net, options, &forecast, error));
    /* takes both over */
    NEAP_TRY(neap_program_new(forecast.graph, forecast.plan, &program, error));
    neap_range_reserve(range, program);
  }
  /* From here on nothing but memory can fail. The old program was refused by the workspace, so that
   * it is not attached. */
  neap_program_free(session->program);
  session->program = program;
  session->plan_id = forecast.plan_id;
  session->planned_bytes = (int64_t)forecast.total_bytes;
  memcpy(session->warning, forecast.warning, sizeof session->warning);
  /* By node, not by run: a profile of any length has this room. */
  if (options->profile) {
    size_t n = (size_t)neap_program_graph(program)->n_node;
    neap_free(session->times);
    session->times = neap_alloc_zeroed(n * sizeof *session->times);
    if (session->times == NULL)
      return neap_fail_memory(error, n * sizeof *session->times, "step times");
  }
  warn_soft(session);
  return NEAP_OK;
}

/* What planning within the rest of a limit had to say, said of the whole limit. The planner knows
 * what of a total is held beside the net; of a budget it saw the arena's part alone. */
static void refuse_again(neap_error *refused, const neap_error *again, size_t budget_left) {
  const bool is_total = strcmp(refused->limit, "total") == 0;
  const int64_t other = is_total ? 0 : refused->limit_bytes - (int64_t)budget_left;
  const int64_t least = again->least_bytes + other;
  /* Two leasts can be compared only where they are leasts of one limit. */
  if (again->limit == NULL || strcmp(again->limit, refused->limit) != 0) return;
  if (least >= refused->least_bytes) return;
  if (is_total) {
    *refused = *again;
    return;
  }
  refused->least_bytes = least;
  neap_hint(refused, "%s = %lld would do", refused->limit, (long long)least);
}

/* The workspace's own budget or total may refuse a plan that was made freely: then it is made again
 * within what is left. Where that can't be either, the error says the less of both. */
static neap_status attach_within(neap_session *session, const neap_net *net,
                                 const neap_compile_options *options, const neap_range *range,
                                 neap_error *error) {
  neap_error refused = {0}, again = {0};
  neap_compile_options left = *options;
  neap_status status = neap_workspace_attach(session->ws, session->program, &refused);
  if (status == NEAP_OK) return status;
  if (neap_within_limits(session->ws, session->program, &refused, &left)) {
    /* Not the plan of a range then, which is that of its largest batch; its blobs keep the room. */
    left.no_constants = left.no_constants || range != NULL;
    status = take_program(session, net, &left, NULL, &again);
    if (status == NEAP_OK && range != NULL) neap_range_reserve(range, session->program);
    if (status == NEAP_OK) status = neap_workspace_attach(session->ws, session->program, &again);
    if (status == NEAP_OK) return status;
    if (status == NEAP_BUDGET)
      refuse_again(&refused, &again, left.plan.budget_bytes);
    else
      refused = again;
  }
  if (error != NULL && error->code == NEAP_OK) *error = refused;
  return refused.code;
}

/* Program first, parameters last: a net that can't be bound leaves no blobs behind. */
static neap_status fill(neap_session *session, const neap_net *net,
                        const neap_compile_options *options, const neap_range *range,
                        neap_error *error) {
  bool pool = options->plan.policy == NEAP_POLICY_POOL;
  if (options->dynamic && !pool)
    return neap_fail(error, NEAP_ARGUMENT,
                     "executor dynamic takes bytes from a pool; policy %s plans them",
                     neap_policy_name(options->plan.policy));
  if (options->soft_bytes > 0) neap_workspace_set_pool_soft(session->ws, options->soft_bytes);
  if (options->dynamic) {
    NEAP_TRY(neap_dynamic_new(session->ws, net, options, &session->dynamic, error));
    use_dynamic(session);
    return NEAP_OK;
  }
  NEAP_TRY(take_program(session, net, options, range, error));
  /* a missing label stops nothing */
  if (options->script != NULL) session->script = neap_strdup(options->script);
  if (options->tag != NULL) session->tag = neap_strdup(options->tag);
  NEAP_TRY(neap_workspace_make_declared(session->ws, net, error));
  return attach_within(session, net, options, range, error);
}

/* The session holds a reference of the workspace, so that closing in any order is safe. One that
 * can't be made leaves no blobs: what the net declares is made before the last that may be
 * refused. */
neap_status neap_session_new(neap_workspace *ws, const neap_net *net,
                             const neap_compile_options *options, const neap_range *range,
                             neap_session **out, neap_error *error) {
  *out = NULL;
  neap_arena room = {0};
  neap_compile_options full;
  neap_session *session = neap_alloc_zeroed(sizeof *session);
  if (session == NULL) return neap_fail_memory(error, sizeof *session, "a session");
  session->ws = neap_workspace_retain(ws);
  session->store = neap_db_retain(options->store);
  session->started_ms = neap_wall_ms();
  session->n_thread = neap_threads_for(options->n_thread);
  /* own_bytes: what the workspace holds, plus what the process holds more at the end than now. */
  session->own_bytes =
    (int64_t)neap_workspace_held_bytes(ws) - neap_memory_read().held_bytes[NEAP_DATA_BYTES];
  neap_workspace_mark *before = NULL;
  /* What a session that can't be made is undone to: the workspace's blobs, and its soft limit. */
  const size_t soft = neap_workspace_pool_soft(ws);
  neap_status status = neap_workspace_mark_new(ws, true, 0, NULL, &before, error);
  if (status == NEAP_OK) status = neap_mem_param_resolve(net, options, &room, &full, error);
  if (status == NEAP_OK) {
    neap_graph_options asked = full.graph;
    session->keep = full.graph.keep = with_forwarded(ws, net, &asked, &full.graph.n_keep);
    status = session->keep == NULL
               ? neap_fail_memory(error, sizeof *full.graph.keep, "names to keep")
               : take_homes(ws, range != NULL, &full.graph, &room, error);
    if (status == NEAP_OK) status = fill(session, net, &full, range, error);
  }
  neap_arena_fini(&room);
  session->own_bytes += neap_memory_read().held_bytes[NEAP_DATA_BYTES];
  if (status != NEAP_OK) {
    neap_session_free(session);
    neap_workspace_set_pool_soft(ws, soft);
    if (before != NULL) neap_workspace_mark_undo(before, 0, NULL);
  } else {
    *out = session;
  }
  neap_workspace_mark_free(before);
  return status;
}

neap_status neap_driver_compile(neap_workspace *ws, const neap_net *net,
                                const neap_compile_options *options, neap_session **out,
                                neap_error *error) {
  return neap_session_new(ws, net, options, NULL, out, error);
}

/* ---- running --------------------------------------------------------------------------------- */

/* A failed step is not counted and leaves no time, and nothing that lasts (neap_workspace_run); its
 * error goes to the run row. */
neap_status neap_session_run(neap_session *session, neap_error *error) {
  neap_error own = {0};
  neap_memory_stats before = neap_memory_read();
  int64_t start_ns = neap_clock_ns();
  neap_status status = session->dynamic != NULL
                         ? neap_dynamic_run(session->dynamic, &own)
                         : neap_workspace_run(session->ws, session->program, session->times, &own);
  if (session->dynamic != NULL) use_dynamic(session);
  int64_t took = neap_clock_ns() - start_ns;
  /* Bytes are counted after a failed run too: what it made is there. */
  neap_memory_stats memory = neap_memory_read();
  session->process_bytes = memory.held_bytes[NEAP_DATA_BYTES];
  session->own_bytes += memory.held_bytes[NEAP_DATA_BYTES] - before.held_bytes[NEAP_DATA_BYTES];
  session->n_alloc_last = memory.n_alloc - before.n_alloc;
  session->failed = own;
  if (status != NEAP_OK) {
    if (error != NULL && error->code == NEAP_OK) *error = own;
    return status;
  }
  /* Only finished steps: one that an error cut short would look fast. */
  session->min_ns = session->n_step == 0 ? took : NEAP_MIN(session->min_ns, took);
  session->last_ns = took;
  session->ring[session->n_step++ % N_RING] = took; /* over the oldest, once the ring is full */
  return NEAP_OK;
}

neap_dynamic_stats neap_session_dynamic_stats(const neap_session *session) {
  return session->dynamic != NULL ? neap_dynamic_stats_read(session->dynamic)
                                  : (neap_dynamic_stats){0};
}

neap_program *neap_session_program(neap_session *session) { return session->program; }
neap_workspace *neap_session_workspace(neap_session *session) { return session->ws; }
int64_t neap_session_plan_id(const neap_session *session) { return session->plan_id; }
int64_t neap_session_run_id(const neap_session *session) { return session->run_id; }
int neap_session_n_steps(const neap_session *session) { return (int)session->n_step; }
const neap_step_times *neap_session_times(const neap_session *session) { return session->times; }
const char *neap_session_warning(const neap_session *session) { return session->warning; }

/* For qsort. */
static int compare_ns(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* The median is of the ring: 1024 steps say what a step costs now, not what it cost an hour ago. */
neap_session_stats neap_session_stats_read(const neap_session *session) {
  int n = (int)NEAP_MIN(session->n_step, (int64_t)N_RING);
  int64_t sorted[N_RING];
  memcpy(sorted, session->ring, (size_t)n * sizeof *sorted);
  qsort(sorted, (size_t)n, sizeof *sorted, compare_ns);
  return (neap_session_stats){.n_step = session->n_step,
                              .last_ns = session->last_ns,
                              .min_ns = session->min_ns,
                              .median_ns = n > 0 ? sorted[n / 2] : 0,
                              .held_bytes = (int64_t)neap_workspace_held_bytes(session->ws),
                              .process_bytes = session->process_bytes,
                              .planned_bytes = session->planned_bytes,
                              .n_alloc_last = session->n_alloc_last};
}

/* ---- recording ------------------------------------------------------------------------------- */

neap_status neap_session_metric(neap_session *session, const char *name, int64_t at_step,
                                double value, neap_error *error) {
  if (session->store == NULL) return NEAP_OK; /* nobody will ask */
  const char *key = neap_intern(name);
  if (key == NULL || !neap_list_grow(&session->metric, &session->cap_metric, session->n_metric + 1,
                                     sizeof *session->metric))
    return neap_fail_memory(error, sizeof *session->metric, "a metric of a run");
  session->metric[session->n_metric++] = (metric){key, at_step, value};
  return NEAP_OK;
}

/* The error that ended the run, for the run row; nothing when it ended well. */
static void print_error_json(const neap_error *error, neap_buffer *out) {
  if (error->code == NEAP_OK) return;
  neap_buffer_add(out, "{\"code\":\"%s\",\"message\":", neap_status_text(error->code));
  neap_json_text(out, error->message);
  neap_buffer_add(out, ",\"op\":");
  neap_json_text(out, error->op);
  neap_buffer_add(out, ",\"blob\":");
  neap_json_text(out, error->blob);
  neap_buffer_add(out, "}");
}

/* Sets run_id. Bytes are those after the last step: closing frees them soon. Tensors that the
 * caller made meanwhile are not the run's: only what compiling and running took counts. */
static neap_status add_run(neap_session *session, const char *status, neap_error *error) {
  neap_session_stats stats = neap_session_stats_read(session);
  neap_buffer error_json = {0};
  print_error_json(&session->failed, &error_json);
  const neap_graph *graph = neap_program_graph(session->program);
  neap_figures planned = neap_report_figures(neap_program_plan(session->program), graph);
  neap_run_row row = {.plan_id = session->plan_id,
                      .net = planned.net,
                      .mode = planned.mode,
                      .batch = planned.batch,
                      .script = session->script,
                      .tag = session->tag,
                      .status = status,
                      .error = error_json.failed ? NULL : error_json.text,
                      .seed = (int64_t)neap_workspace_seed(session->ws),
                      .n_thread = session->n_thread,
                      .n_step = stats.n_step,
                      .started_at = session->started_ms / 1000,
                      .started_ms = session->started_ms,
                      .step_min_ns = stats.min_ns,
                      .step_median_ns = stats.median_ns,
                      .planned_bytes = stats.planned_bytes,
                      .held_bytes = session->own_bytes,
                      .resident_bytes = (int64_t)neap_process_resident_peak_bytes()};
  neap_status result = neap_store_add_run(session->store, &row, &session->run_id, error);
  neap_buffer_fini(&error_json);
  return result;
}

bool neap_session_op_row(const neap_session *session, int step, neap_run_op_row *row) {
  const neap_plan *plan = neap_program_plan(session->program);
  if (session->times == NULL || step < 0 || step >= plan->n_node) return false;
  const neap_step_times *t = &session->times[step];
  *row = (neap_run_op_row){.step = step,
                           .n_call = t->n_call,
                           .min_ns = t->min_ns,
                           .median_ns = neap_step_times_median(t),
                           .last_ns = t->last_ns,
                           .total_ns = t->total_ns,
                           .start_ns = t->start_ns,
                           .thread = t->thread,
                           .resident_bytes = (int64_t)plan->live_bytes[step]};
  return true;
}

/* A row for each step of the plan, in its order. The caller frees them. */
static neap_status make_op_rows(const neap_session *session, neap_run_op_row **out,
                                neap_error *error) {
  int n = neap_program_plan(session->program)->n_node;
  neap_run_op_row *row = neap_alloc_zeroed((size_t)n * sizeof *row);
  if (row == NULL) return neap_fail_memory(error, (size_t)n * sizeof *row, "profile rows");
  for (int s = 0; s < n; s++) neap_session_op_row(session, s, &row[s]);
  *out = row;
  return NEAP_OK;
}

static neap_status add_rows(neap_session *session, const char *status, const neap_run_op_row *op,
                            neap_error *error) {
  NEAP_TRY(add_run(session, status, error));
  if (op != NULL)
    NEAP_TRY(neap_store_add_run_ops(session->store, session->run_id,
                                    neap_program_plan(session->program)->n_node, op, error));

  /* One that is refused, as NaN is, is told; those behind it are stored all the same. */
  neap_status result = NEAP_OK;
  for (int m = 0; m < session->n_metric; m++) {
    const metric *at = &session->metric[m];
    neap_status one = neap_store_add_metric(session->store, session->run_id, at->name, at->at_step,
                                            at->value, result == NEAP_OK ? error : NULL);
    if (result == NEAP_OK) result = one;
  }
  return result;
}

/* A session that ran nothing, or whose plan has no row to refer to, records nothing. All memory is
 * taken before the first row: a run without its ops would look like one that was not profiled. */
neap_status neap_session_record(neap_session *session, const char *status, neap_error *error) {
  static const char *const known[] = {"ok", "failed", "interrupted"};
  bool is_known = false;
  for (int i = 0; i < NEAP_COUNT(known); i++)
    is_known = is_known || (status != NULL && strcmp(status, known[i]) == 0);
  if (!is_known)
    return neap_fail(error, NEAP_ARGUMENT,
                     "record: status expects \"ok\", \"failed\" or \"interrupted\", got \"%s\"",
                     status != NULL ? status : "");
  bool nothing = session->n_step == 0 && session->failed.code == NEAP_OK;
  if (session->store == NULL || session->run_id != 0 || session->plan_id == 0 || nothing)
    return NEAP_OK;
  neap_run_op_row *op = NULL;
  if (session->times != NULL) NEAP_TRY(make_op_rows(session, &op, error));
  neap_status result = add_rows(session, status, op, error);
  neap_free(op);
  return result;
}

/* Records first, while program and times are there. Detaches before freeing: the workspace may
 * outlive the program. A session that was never filled, or in part, is fine. */
void neap_session_free(neap_session *session) {
  if (session == NULL) return;
  neap_error lost = {0};
  const char *status = "failed";
  if (session->failed.code == NEAP_OK) status = "ok";
  if (session->failed.code == NEAP_INTERRUPTED) status = "interrupted";
  /* closing can't fail; the row is lost */
  if (session->program != NULL) (void)neap_session_record(session, status, &lost);
  if (session->program != NULL && session->dynamic == NULL) {
    neap_workspace_detach(session->ws, session->program);
    neap_program_free(session->program);
  }
  neap_dynamic_free(session->dynamic); /* with its programs, session->program among them */
  neap_workspace_release(session->ws);
  neap_db_close(session->store);
  neap_free((void *)session->keep);
  neap_free(session->times);
  neap_free(session->metric);
  neap_free(session->script);
  neap_free(session->tag);
  neap_free(session);
}
