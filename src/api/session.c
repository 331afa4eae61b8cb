/* session.c: forecasts, sessions, ranges of batches, and what a session says of itself. */
#include "api/api.h"
#include "report/report.h"

#include <string.h>

neap_status neap_net_forecast(const neap_net *net, const neap_options *options,
                              neap_figures *figures, char **explanation, neap_error *error) {
  neap_compile_options compile;
  neap_forecast forecast;
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_C, __func__, &compile, error));
  NEAP_TRY(neap_driver_plan(net, &compile, &forecast, error));
  neap_status status = NEAP_OK;
  if (explanation != NULL) {
    neap_buffer buffer = {0};
    neap_report_explain(forecast.plan, forecast.graph, NEAP_NO_VALUE, &buffer);
    status = neap_api_give_text(&buffer, explanation, error);
  }
  if (status == NEAP_OK) *figures = neap_forecast_figures(&forecast);
  neap_forecast_fini(&forecast);
  return status;
}

neap_status neap_net_rewrites(const neap_net *net, const neap_options *options, char **out,
                              neap_error *error) {
  neap_compile_options compile;
  neap_forecast forecast;
  char bytes[24];
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_C, __func__, &compile, error));
  NEAP_TRY(neap_driver_plan(net, &compile, &forecast, error));
  neap_buffer text = {0};
  for (int i = 0; i < forecast.graph->n_rewrite; i++) {
    const neap_rewrite *row = &forecast.graph->rewrite[i];
    neap_buffer_add(&text, "%s: %s%s%s, %s gone\n", row->rule, row->absorbed,
                    row->into[0] != '\0' ? " into " : "", row->into,
                    neap_bytes_text((double)row->saved_bytes, bytes));
  }
  neap_forecast_fini(&forecast);
  return neap_api_give_text(&text, out, error);
}

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
  neap_status status = neap_batch_inputs(net, max_batch, &compile.graph, &room, error);
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
  neap_status status = neap_batch_inputs(net, batch, &compile.graph, &room, error);
  if (status == NEAP_OK) status = neap_range_compile(range, workspace, net, &compile, out, error);
  neap_arena_fini(&room);
  return status;
}

neap_figures neap_range_figures(const neap_range *range) {
  const neap_graph *graph;
  const neap_plan *plan = neap_range_most(range, &graph);
  return neap_report_figures(plan, graph);
}

int64_t neap_session_trim(neap_session *session) {
  return (int64_t)neap_program_trim(neap_session_program(session));
}

neap_figures neap_session_figures(neap_session *session) {
  neap_program *program = neap_session_program(session);
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
                             .n_recomputed = script->n_again,
                             .recomputed_work = script->again_work,
                             .curve = {plan->n_node, neap_program_pool_curve(program)}};
}

/* The value a name stands for, or the op that took it in: "" where nothing reads it. */
static neap_status find_value(const neap_graph *graph, const char *name, neap_value_id *value,
                              const char **into, neap_error *error) {
  *into = NULL;
  *value = neap_graph_find(graph, name);
  for (int v = 0; *value == NEAP_NO_VALUE && v < graph->n_value; v++)
    /* the library's own: a stash, a reordered value */
    if (strcmp(graph->value[v].name, name) == 0) *value = v;
  const struct neap_gone *gone = *value == NEAP_NO_VALUE ? neap_graph_find_gone(graph, name) : NULL;
  if (gone != NULL) *into = gone->into != NULL ? gone->into : "";
  if (*value != NEAP_NO_VALUE || gone != NULL) return NEAP_OK;
  return neap_fail(error, NEAP_NAME, "explain: the plan of \"%s\" has no blob \"%s\"", graph->name,
                   name);
}

neap_status neap_session_explain(neap_session *session, const char *blob, char **out,
                                 neap_error *error) {
  const neap_program *program = neap_session_program(session);
  const neap_graph *graph = neap_program_graph(program);
  neap_value_id value = NEAP_NO_VALUE;
  const char *into = NULL;
  if (blob != NULL) NEAP_TRY(find_value(graph, blob, &value, &into, error));
  neap_buffer buffer = {0};
  if (into != NULL && into[0] == '\0')
    neap_buffer_add(&buffer, "%s needs no bytes: nothing reads it, so that it is not computed",
                    blob);
  else if (into != NULL)
    neap_buffer_add(&buffer, "%s needs no bytes: %s absorbs it", blob, into);
  else
    neap_report_explain(neap_program_plan(program), graph, value, &buffer);
  return neap_api_give_text(&buffer, out, error);
}
