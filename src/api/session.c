/* session.c: sessions and what they say of themselves, ranges of batches. */
#include "api/api.h"
#include "report/report.h"

#include <string.h>

neap_status neap_session_open(neap_workspace *workspace, const neap_net *net,
                              const neap_options *options, neap_session **out, neap_error *error) {
  neap_compile_options compile;
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_C, __func__, &compile, error));
  return neap_driver_compile(workspace, net, &compile, out, error);
}

neap_status neap_range_open(const neap_net *net, int64_t max_batch, const neap_options *options,
                            neap_range **out, neap_error *error) {
  neap_compile_options compile;
  neap_arena room = {0};
  *out = NULL;
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_C, __func__, &compile, error));
  /* With a batch: the net's inputs at so many rows, in a room that lives until the range is
   * made. */
  neap_status status =
    max_batch != 0 ? neap_batch_inputs(net, max_batch, &compile.graph, &room, error) : NEAP_OK;
  if (status == NEAP_OK) status = neap_range_new(net, &compile, out, error);
  neap_arena_fini(&room);
  return status;
}

neap_status neap_range_session(const neap_range *range, neap_workspace *workspace,
                               const neap_net *net, int64_t batch, const neap_options *options,
                               neap_session **out, neap_error *error) {
  neap_compile_options compile;
  neap_arena room = {0};
  *out = NULL;
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_C, __func__, &compile, error));
  /* The same for the smaller batch. */
  neap_status status =
    batch != 0 ? neap_batch_inputs(net, batch, &compile.graph, &room, error) : NEAP_OK;
  if (status == NEAP_OK) status = neap_range_compile(range, workspace, net, &compile, out, error);
  neap_arena_fini(&room);
  return status;
}

neap_figures neap_range_figures(const neap_range *range) {
  const neap_graph *graph;
  const neap_plan *plan = neap_range_most(range, &graph);
  return neap_report_figures(plan, graph);
}

neap_status neap_range_count(const neap_range *range, const neap_net *net,
                             const neap_options *options, neap_counts *before, neap_counts *after,
                             neap_error *error) {
  neap_compile_options compile;
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_C, __func__, &compile, error));
  return neap_driver_count(net, &compile, range, before, after, error);
}

neap_status neap_net_batch_inputs(const neap_net *net, int64_t batch, neap_input **out, int *n,
                                  neap_error *error) {
  neap_graph_options graph = {0};
  neap_arena room = {0};
  *out = NULL;
  *n = 0;
  neap_status status = neap_batch_inputs(net, batch, &graph, &room, error);

  /* The list is copied out of the room, as a block that the caller frees; names are interned. */
  size_t bytes = (size_t)graph.n_input * sizeof **out;
  if (status == NEAP_OK) {
    *out = neap_alloc(bytes);
    if (*out == NULL) status = neap_fail_memory(error, bytes, "a batch's inputs");
  }
  if (status == NEAP_OK) {
    memcpy(*out, graph.input, bytes);
    *n = graph.n_input;
  }
  neap_arena_fini(&room);
  return status;
}

int64_t neap_session_frames_bytes(neap_session *session) {
  return (int64_t)neap_program_frames_bytes(neap_session_program(session));
}

bool neap_session_lacks_blob(neap_session *session) {
  return neap_workspace_lacks_blob(neap_session_workspace(session), neap_session_program(session));
}

bool neap_session_is_timed(const neap_session *session) {
  const neap_step_times *times = neap_session_times(session);
  return times != NULL && times->calls != NULL;
}

int64_t neap_session_trim(neap_session *session) {
  return (int64_t)neap_program_trim(neap_session_program(session));
}

neap_figures neap_session_figures(neap_session *session) {
  neap_program *program = neap_session_program(session);

  /* What the plan says, then what the runs have shown. */
  neap_figures figures =
    neap_report_figures(neap_program_plan(program), neap_program_graph(program));
  neap_session_stats stats = neap_session_stats_read(session);
  neap_dynamic_stats dynamic = neap_session_dynamic_stats(session);
  figures.total_bytes = figures.planned_bytes = stats.planned_bytes;
  figures.plan_id = neap_session_plan_id(session);
  figures.run_id = neap_session_run_id(session);
  figures.n_step = stats.n_step;
  figures.last_ns = stats.last_ns;
  figures.min_ns = stats.min_ns;
  figures.median_ns = stats.median_ns;
  figures.held_bytes = stats.held_bytes;
  figures.process_bytes = stats.process_bytes;
  figures.n_alloc = stats.n_alloc_last;

  /* Of a session whose shapes change: the programs that it keeps. */
  figures.n_program = dynamic.n_program;
  figures.n_made = dynamic.n_made;
  figures.n_dropped = dynamic.n_dropped;
  figures.n_restart = dynamic.n_restart;
  figures.cache_bytes = dynamic.cache_bytes;
  return figures;
}

neap_pool_figures neap_session_pool(neap_session *session) {
  const neap_program *program = neap_session_program(session);
  const neap_workspace *ws = neap_session_workspace(session);
  const neap_plan *plan = neap_program_plan(program);
  const neap_script *script = &plan->script;
  if (plan->policy != NEAP_POLICY_POOL) return (neap_pool_figures){0};

  /* The pool is the workspace's, and may serve other programs; what is planned is this one's. */
  neap_pool_stats pool = neap_workspace_pool(ws);
  return (neap_pool_figures){.reserved_bytes = (int64_t)pool.reserved_bytes,
                             .used_bytes = (int64_t)pool.used_bytes,
                             .high_bytes = (int64_t)pool.high_bytes,
                             .reach_bytes = (int64_t)pool.reach_bytes,
                             .arena_bytes = (int64_t)plan->arena_bytes,
                             .lower_bound_bytes = (int64_t)plan->lower_bound_bytes,
                             .soft_bytes = (int64_t)neap_workspace_pool_soft(ws),
                             .n_take = pool.n_take,
                             .n_used = pool.n_used,
                             .n_free_block = pool.n_free_block,
                             .n_evicted = script->n_evicted,
                             .evicted_bytes = script->evicted_bytes,
                             .n_recomputed = script->n_recomputed,
                             .recomputed_work = script->recomputed_work,
                             .curve = {plan->n_node, neap_program_pool_curve(program)}};
}
