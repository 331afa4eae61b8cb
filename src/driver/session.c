/* session.c: a compiled net in a workspace, its runs and what is recorded of them.
 *
 * A session belongs to a run (store/record.c): that of its options, whose steps are its owner's
 * affair, or one of its own, whose steps are the session's.
 *
 * INVARIANT: the workspace and the store live at least as long as the session, which holds
 * references of them.
 * INVARIANT: a run allocates nothing for being recorded: step times, and with a profile the last
 * calls, have their room from the start.
 */
#include "driver/driver_int.h"
#include "report/report.h"

#include <stdio.h>
#include <string.h>

struct neap_session {
  neap_workspace *ws;    /* retained */
  neap_program *program; /* a dynamic session's: of the last run, borrowed */
  neap_dynamic *dynamic; /* NULL: one program for all runs */
  neap_store *store;
  const char *const *keep; /* the options', and the forwarded names that the net computes */
  neap_run *run;           /* NULL: nothing is recorded */
  bool owns_run;
  int64_t program_no; /* of the run; 0: it does not know of it yet */
  int64_t plan_id;
  int64_t planned_bytes, process_bytes, n_alloc_last;
  /* DATA bytes of the workspace at the start, and what compiling and running added */
  int64_t own_bytes;
  int n_thread;
  neap_durations took;
  neap_step_times *times; /* by plan step; NULL: dynamic, or not compiled yet */
  neap_step_calls *calls; /* the same, with a profile alone */
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

/* Room for the times of the program's steps. By node, not by run: a run of any length has it. */
static neap_status take_times(neap_session *session, bool with_calls, neap_error *error) {
  const size_t n = (size_t)neap_program_graph(session->program)->n_node;

  neap_free(session->times);
  neap_free(session->calls);
  session->calls = NULL;
  session->times = neap_alloc_zeroed((n + 1) * sizeof *session->times);
  if (session->times == NULL)
    return neap_fail_memory(error, n * sizeof *session->times, "step times");
  if (!with_calls) return NEAP_OK;
  session->calls = neap_alloc_zeroed((n + 1) * sizeof *session->calls);
  if (session->calls == NULL)
    return neap_fail_memory(error, n * sizeof *session->calls, "a profile's calls");
  for (size_t s = 0; s < n; s++) session->times[s].calls = &session->calls[s];
  return NEAP_OK;
}

/* The session's program by these options, in the place of one that it has, with what is known of
 * it. */
static neap_status take_program(neap_session *session, const neap_net *net,
                                const neap_compile_options *options, const neap_range *range,
                                neap_error *error) {
  /* A plan of its own, or one in the memory of the range's largest batch. */
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
  NEAP_TRY(take_times(session, options->profile, error));
  warn_soft(session);
  return NEAP_OK;
}

/* What planning within the rest of a limit had to say, said of the whole limit. The planner knows
 * what of a total is held beside the net; of a budget it saw the arena's part alone. */
static void refuse_again(neap_error *refused, const neap_error *again, size_t budget_left) {
  /* A budget was handed down as what others leave of it; what they take is added again. */
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

/* What the workspace, or the system, refused the program bytes for: what is alive where it needs
 * most. */
static void say_alive(const neap_session *session, neap_error *refused) {
  const neap_plan *plan = neap_program_plan(session->program);
  const neap_graph *graph = neap_program_graph(session->program);
  if (refused->code == NEAP_MEMORY) {
    neap_plan_name_peak(plan, graph, refused);
    refused->available_bytes = (int64_t)neap_memory_available();
  }
  if (refused->code == NEAP_MEMORY || refused->code == NEAP_BUDGET)
    neap_report_refused(plan, graph, refused);
}

/* The workspace's own budget or total may refuse a plan that was made freely: then it is made again
 * within what is left. Where that can't be either, the error says the less of both. */
static neap_status attach_within(neap_session *session, const neap_net *net,
                                 const neap_compile_options *options, const neap_range *range,
                                 neap_error *error) {
  /* The free plan first: only the workspace's refusal tells how much is left. */
  neap_error refused = {0}, again = {0};
  neap_compile_options left = *options;
  neap_status status = neap_workspace_attach(session->ws, session->program, &refused);
  if (status == NEAP_OK) return status;
  say_alive(session, &refused);
  if (neap_within_limits(session->ws, session->program, &refused, &left)) {
    /* Not the plan of a range then, which is that of its largest batch; its blobs keep the room. */
    left.no_constants = left.no_constants || range != NULL;
    status = take_program(session, net, &left, NULL, &again);
    if (status == NEAP_OK && range != NULL) neap_range_reserve(range, session->program);
    if (status == NEAP_OK) {
      status = neap_workspace_attach(session->ws, session->program, &again);
      if (status == NEAP_OK) return status;
      say_alive(session, &again);
    }
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
  /* A session is of one program, or of as many as shapes come. */
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

  /* Planned and bound first: what is refused until then has left nothing in the workspace. */
  NEAP_TRY(take_program(session, net, options, range, error));
  NEAP_TRY(neap_workspace_make_declared(session->ws, net, error));
  return attach_within(session, net, options, range, error);
}

/* The run that the session is a part of, or one of its own. */
static neap_status take_run(neap_session *session, const neap_net *net,
                            const neap_compile_options *options, neap_error *error) {
  const neap_run_about about = {
    .net = neap_net_name(net), .script = options->script, .tag = options->tag};
  session->owns_run = options->run == NULL;
  session->run = neap_store_run_retain(options->run);
  return session->owns_run ? neap_run_open(options->store, &about, &session->run, error) : NEAP_OK;
}

/* No program has said what its mode and batch are: they are those of the net and the options. */
void neap_driver_note_refusal(const neap_net *net, const neap_compile_options *options,
                              const neap_error *error) {
  if (error->code != NEAP_BUDGET && error->code != NEAP_MEMORY) return;
  const neap_run_about about = {.net = neap_net_name(net),
                                .mode = neap_net_is_train(net) ? "train" : "infer",
                                .script = options->script,
                                .tag = options->tag,
                                .batch = neap_batch_asked(net, &options->graph)};
  neap_run *run;
  if (neap_run_open(options->store, &about, &run, NULL) != NEAP_OK) return;
  (void)neap_run_end(run, "refused", error, NULL);
  neap_run_close(run);
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
  session->n_thread = neap_threads_for(options->n_thread);

  /* own_bytes: what the workspace holds, plus what the process holds more at the end than now. */
  session->own_bytes =
    (int64_t)neap_workspace_held_bytes(ws) - neap_memory_read().held_bytes[NEAP_DATA_BYTES];

  /* A session is made whole or not at all. */
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
    if (status == NEAP_OK) status = take_run(session, net, &full, error);
    if (status == NEAP_OK) status = fill(session, net, &full, range, error);
  }

  /* Lists of the options are no longer of use; what compiling has added counts as this
   * session's. */
  neap_arena_fini(&room);
  session->own_bytes += neap_memory_read().held_bytes[NEAP_DATA_BYTES];
  if (status != NEAP_OK) {
    if (error != NULL && options->run == NULL) neap_driver_note_refusal(net, options, error);
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

/* What the run is to know of the program, before its first step. */
static neap_status join_run(neap_session *session, neap_error *error) {
  const neap_figures planned =
    neap_report_figures(neap_program_plan(session->program), neap_program_graph(session->program));
  const neap_run_row part = {.plan_id = session->plan_id,
                             .net = planned.net,
                             .mode = planned.mode,
                             .batch = planned.batch,
                             .seed = (int64_t)neap_workspace_seed(session->ws),
                             .n_thread = session->n_thread,
                             .planned_bytes = session->planned_bytes};
  return neap_store_run_begin(session->run, &part, &session->program_no, error);
}

static void fill_op_row(const void *session, int step, neap_run_op_row *row) {
  (void)neap_session_op_row(session, step, row);
}

/* What a run may write of the session's ops while it goes on: nothing, where they belong to no row
 * of a plan (record_ops). */
static neap_op_times op_times(const neap_session *session) {
  const bool timed = session->times != NULL && session->plan_id != 0;
  return (neap_op_times){.n = timed ? neap_program_plan(session->program)->n_node : 0,
                         .row = fill_op_row,
                         .of = session};
}

/* A failed step is not counted and leaves no time, and nothing that lasts (neap_workspace_run); its
 * error goes to the run. */
neap_status neap_session_run(neap_session *session, neap_error *error) {
  /* A run learns of the program with its first step, so that one which never ran leaves no row. */
  neap_run *run = session->run;
  if (run != NULL && !(session->program_no != 0 && neap_run_is_going(run)))
    NEAP_TRY(join_run(session, error));

  /* Bytes and time around the run alone. */
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
  if (run != NULL) {
    const neap_op_times ops = op_times(session);
    neap_store_run_hold(run, session->program_no, session->own_bytes, &session->took, &ops);
  }
  if (status != NEAP_OK) {
    if (run != NULL) neap_store_run_fail(run, &own);
    if (error != NULL && error->code == NEAP_OK) *error = own;
    return status;
  }

  /* Only finished steps: one that an error cut short would look fast. */
  neap_durations_add(&session->took, took);
  if (session->owns_run) neap_run_step(run, session->took.n, took);
  return NEAP_OK;
}

neap_dynamic_stats neap_session_dynamic_stats(const neap_session *session) {
  return session->dynamic != NULL ? neap_dynamic_stats_read(session->dynamic)
                                  : (neap_dynamic_stats){0};
}

neap_program *neap_session_program(neap_session *session) { return session->program; }
neap_workspace *neap_session_workspace(neap_session *session) { return session->ws; }
int64_t neap_session_plan_id(const neap_session *session) { return session->plan_id; }
int64_t neap_session_run_id(const neap_session *session) { return neap_run_id(session->run); }
int neap_session_n_steps(const neap_session *session) { return (int)session->took.n; }
const neap_step_times *neap_session_times(const neap_session *session) { return session->times; }
const char *neap_session_warning(const neap_session *session) {
  return session->warning[0] != '\0' ? session->warning : neap_run_warning(session->run);
}

/* The median is of the newest steps: they say what a step costs now, not what it cost an hour
 * ago. */
neap_session_stats neap_session_stats_read(const neap_session *session) {
  const neap_durations *took = &session->took;
  return (neap_session_stats){.n_step = took->n,
                              .last_ns = took->last_ns,
                              .min_ns = took->min_ns,
                              .median_ns = neap_durations_all(took).median_ns,
                              .held_bytes = (int64_t)neap_workspace_held_bytes(session->ws),
                              .process_bytes = session->process_bytes,
                              .planned_bytes = session->planned_bytes,
                              .n_alloc_last = session->n_alloc_last};
}

/* ---- recording ------------------------------------------------------------------------------- */

neap_status neap_session_metric(neap_session *session, const char *name, int64_t at_step,
                                double value, neap_error *error) {
  return neap_run_metric(session->run, name, at_step, value, error);
}

bool neap_session_op_row(const neap_session *session, int step, neap_run_op_row *row) {
  /* Figures of all calls; a dynamic session has no steps of one plan. */
  const neap_plan *plan = neap_program_plan(session->program);
  if (session->times == NULL || step < 0 || step >= plan->n_node) return false;
  const neap_step_times *t = &session->times[step];
  *row = (neap_run_op_row){.step = step,
                           .n_call = t->n_call,
                           .min_ns = t->min_ns,
                           .median_ns = neap_step_times_at(t, 0.5),
                           .p95_ns = neap_step_times_at(t, 0.95),
                           .last_ns = t->last_ns,
                           .total_ns = t->total_ns,
                           .gap_ns = t->gap_ns,
                           .start_ns = t->start_ns,
                           .thread = t->thread};

  /* Calls one by one, with a profile. */
  const neap_step_calls *calls = t->calls;
  if (calls == NULL) return true;
  const int n = (int)NEAP_MIN(t->n_call, (int64_t)NEAP_N_RECENT);
  row->recent_ns = (neap_numbers){n, calls->took_ns};
  row->begun_ns = (neap_numbers){n, calls->begun_ns};
  row->run_no = (neap_numbers){n, calls->run_no};
  row->on_thread = (neap_numbers){n, calls->on_thread};
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

/* Times by op belong to a plan: without its row they would be numbers of steps alone. */
static neap_status record_ops(neap_session *session, neap_error *error) {
  const int64_t run_id = neap_session_run_id(session);
  neap_run_op_row *op = NULL;
  if (session->times == NULL || session->program_no == 0 || run_id == 0 || session->plan_id == 0 ||
      session->took.n == 0)
    return NEAP_OK;
  NEAP_TRY(make_op_rows(session, &op, error));
  neap_status status =
    neap_store_add_run_ops(session->store, run_id, session->program_no,
                           neap_program_plan(session->program)->n_node, op, error);
  neap_free(op);
  return status;
}

/* A run that several sessions share is its owner's to end. */
neap_status neap_session_record(neap_session *session, const char *status, neap_error *error) {
  if (session->run == NULL || !session->owns_run) return NEAP_OK;
  /* Ended before: nothing has run since. */
  if (!neap_run_is_going(session->run)) return NEAP_OK;
  neap_status result = neap_run_end(session->run, status, NULL, error);
  return result == NEAP_OK ? record_ops(session, error) : result;
}

/* Records first, while program and times are there. Detaches before freeing: the workspace may
 * outlive the program. A session that was never filled, or in part, is fine. */
void neap_session_free(neap_session *session) {
  if (session == NULL) return;

  /* Closing can't fail: what is not written now stays with the database's handle. */
  if (session->program != NULL && session->run != NULL) {
    (void)neap_session_record(session, NULL, NULL);
    if (!session->owns_run) (void)record_ops(session, NULL);
    neap_store_run_leave(session->run, session->program_no);
  }
  neap_run_close(session->run);
  if (session->program != NULL && session->dynamic == NULL) {
    neap_workspace_detach(session->ws, session->program);
    neap_program_free(session->program);
  }
  neap_dynamic_free(session->dynamic); /* with its programs, session->program among them */
  neap_workspace_release(session->ws);
  neap_db_close(session->store);
  neap_free((void *)session->keep);
  neap_free(session->times);
  neap_free(session->calls);
  neap_free(session);
}
