/* plan.c: plans as handles: a forecast of their own, or the plan of a session, which is asked for
 * each time, since a dynamic session changes it from run to run. Forecasts and drawings of nets
 * are made of the same handle, and so are rows (rows.c).
 */
#include "api/api.h"
#include "report/report.h"

#include <string.h>

/* INVARIANT: one of the two is there: `session`, or the plan of `own`. */
struct neap_memory_plan {
  neap_forecast own;
  neap_session *session; /* NULL: the plan is its own */
};

static const neap_graph *graph_of(const neap_memory_plan *plan) {
  return plan->session != NULL ? neap_program_graph(neap_session_program(plan->session))
                               : plan->own.graph;
}

static const neap_plan *plan_of(const neap_memory_plan *plan) {
  NEAP_ASSERT(plan->session != NULL || plan->own.plan != NULL,
              "a plan has a session or is its own");
  return plan->session != NULL ? neap_program_plan(neap_session_program(plan->session))
                               : plan->own.plan;
}

/* ---- making ---------------------------------------------------------------------------------- */

static neap_status new_handle(neap_memory_plan **out, neap_error *error) {
  *out = neap_alloc_zeroed(sizeof **out);
  return *out != NULL ? NEAP_OK : neap_fail_memory(error, sizeof **out, "a plan");
}

neap_status neap_api_plan(const neap_net *net, const neap_options *options, const char *who,
                          neap_memory_plan **out, neap_error *error) {
  neap_compile_options compile;
  *out = NULL;
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_C, who, &compile, error));
  return neap_api_plan_by(net, &compile, NULL, out, error);
}

neap_status neap_api_plan_by(const neap_net *net, const neap_compile_options *compile,
                             const neap_range *range, neap_memory_plan **out, neap_error *error) {
  neap_memory_plan *plan;
  *out = NULL;
  NEAP_TRY(new_handle(&plan, error));
  neap_status status = range != NULL ? neap_range_plan(range, net, compile, &plan->own, error)
                                     : neap_driver_plan(net, compile, &plan->own, error);
  if (status == NEAP_OK)
    *out = plan;
  else
    neap_free(plan);
  return status;
}

neap_status neap_memory_plan_new(const neap_net *net, const neap_options *options,
                                 const neap_range *range, neap_memory_plan **out,
                                 neap_error *error) {
  neap_compile_options compile;
  *out = NULL;
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_C, __func__, &compile, error));
  return neap_api_plan_by(net, &compile, range, out, error);
}

neap_status neap_session_plan(neap_session *session, neap_memory_plan **out, neap_error *error) {
  NEAP_TRY(new_handle(out, error));
  (*out)->session = session;
  return NEAP_OK;
}

neap_status neap_api_fit(const neap_fit_by *fit, int64_t *batch, neap_memory_plan **out,
                         neap_error *error) {
  neap_memory_plan *plan;
  if (out != NULL) *out = NULL;
  NEAP_TRY(new_handle(&plan, error));
  neap_status status = neap_driver_fit(fit, batch, &plan->own, error);
  /* Nobody wants the plan, or there is none: the handle goes. */
  if (status == NEAP_OK && out != NULL) {
    *out = plan;
    return status;
  }
  neap_memory_plan_free(plan);
  return status;
}

void neap_memory_plan_free(neap_memory_plan *plan) {
  if (plan == NULL) return;
  /* A session's plan is the session's. */
  if (plan->own.plan != NULL) neap_forecast_fini(&plan->own);
  neap_free(plan);
}

/* ---- what it says ---------------------------------------------------------------------------- */

const char *neap_memory_plan_warning(const neap_memory_plan *plan) {
  return plan->session != NULL ? neap_session_warning(plan->session) : plan->own.warning;
}

neap_figures neap_memory_plan_figures(const neap_memory_plan *plan) {
  if (plan->session == NULL) return neap_forecast_figures(&plan->own);
  neap_figures figures = neap_report_figures(plan_of(plan), graph_of(plan));
  /* The session knows under which number its plan is stored. */
  figures.plan_id = neap_session_plan_id(plan->session);
  return figures;
}

neap_status neap_memory_plan_rows(const neap_memory_plan *plan, neap_row_kind kind, neap_rows **out,
                                  neap_error *error) {
  return neap_report_rows(plan_of(plan), graph_of(plan), kind, out, error);
}

neap_status neap_api_time_kernels(const neap_memory_plan *plan, int step, neap_kernel_row **row,
                                  int *n, neap_error *error) {
  const int n_step = plan_of(plan)->n_node;
  if (step < 0 || step >= n_step)
    return neap_fail(error, NEAP_ARGUMENT,
                     "neap_memory_plan_kernels: the plan has %d steps, got %d", n_step, step);
  return neap_program_time_kernels(plan_of(plan), graph_of(plan), step, row, n, error);
}

/* The value a name stands for after the run; else one that the library made: a stash, a reordered
 * value. */
int neap_memory_plan_value(const neap_memory_plan *plan, const char *blob) {
  const neap_graph *graph = graph_of(plan);
  neap_value_id value = neap_graph_find(graph, blob);
  if (value != NEAP_NO_VALUE) return value;
  /* Names of the library's own are no names of the net: compared as texts. */
  for (int v = 0; v < graph->n_value; v++)
    if (strcmp(graph->value[v].name, blob) == 0) return v;
  return -1;
}

bool neap_memory_plan_gone(const neap_memory_plan *plan, const char *blob, const char **into) {
  const struct neap_gone *gone = neap_graph_find_gone(graph_of(plan), blob);
  *into = gone != NULL ? gone->into : NULL;
  return gone != NULL;
}

static neap_status fail_unknown(const neap_memory_plan *plan, const char *who, const char *blob,
                                neap_error *error) {
  return neap_fail(error, NEAP_NAME, "%s: the plan of \"%s\" has no blob \"%s\"", who,
                   graph_of(plan)->name, blob);
}

neap_status neap_memory_plan_explain(const neap_memory_plan *plan, const char *blob, char **out,
                                     neap_error *error) {
  neap_buffer buffer = {0};
  const char *into;
  *out = NULL;
  /* The whole plan, one value of it, or why a blob of the net has none. */
  int value = blob != NULL ? neap_memory_plan_value(plan, blob) : NEAP_NO_VALUE;
  if (blob == NULL || value >= 0)
    neap_report_explain(plan_of(plan), graph_of(plan), value, &buffer);
  else if (!neap_memory_plan_gone(plan, blob, &into))
    return fail_unknown(plan, "explain", blob, error);
  else if (into != NULL)
    neap_buffer_add(&buffer, "%s needs no bytes: %s absorbs it", blob, into);
  else
    neap_buffer_add(&buffer, "%s needs no bytes: nothing reads it, so that it is not computed",
                    blob);
  return neap_api_give_text(&buffer, out, error);
}

/* Gives the text, unless the report has failed. */
static neap_status give(neap_status status, neap_buffer *buffer, char **out, neap_error *error) {
  if (status == NEAP_OK) return neap_api_give_text(buffer, out, error);
  neap_buffer_fini(buffer);
  return status;
}

neap_status neap_memory_plan_why(const neap_memory_plan *plan, const char *a, const char *b,
                                 char **out, neap_error *error) {
  neap_buffer buffer = {0};
  int first = neap_memory_plan_value(plan, a), second = neap_memory_plan_value(plan, b);
  *out = NULL;
  /* The first of the two that is unknown is named. */
  if (first < 0 || second < 0) return fail_unknown(plan, "why", first < 0 ? a : b, error);
  neap_status status =
    neap_report_why(plan_of(plan), graph_of(plan), first, second, &buffer, error);
  return give(status, &buffer, out, error);
}

neap_status neap_memory_plan_peak(const neap_memory_plan *plan, char **out, neap_error *error) {
  neap_buffer buffer = {0};
  *out = NULL;
  neap_report_peak(plan_of(plan), graph_of(plan), &buffer);
  return neap_api_give_text(&buffer, out, error);
}

neap_status neap_memory_plan_text(const neap_memory_plan *plan, char **out, neap_error *error) {
  neap_buffer buffer = {0};
  *out = NULL;
  neap_plan_print(plan_of(plan), &buffer);
  return neap_api_give_text(&buffer, out, error);
}

neap_status neap_memory_plan_graph_text(const neap_memory_plan *plan, char **out,
                                        neap_error *error) {
  neap_buffer buffer = {0};
  *out = NULL;
  neap_graph_print(graph_of(plan), &buffer);
  return neap_api_give_text(&buffer, out, error);
}

neap_status neap_memory_plan_dot(const neap_memory_plan *plan, int depth, char **out,
                                 neap_error *error) {
  neap_buffer buffer = {0};
  *out = NULL;
  neap_report_dot(plan_of(plan), graph_of(plan), depth, &buffer);
  return neap_api_give_text(&buffer, out, error);
}

neap_status neap_memory_plan_svg(const neap_memory_plan *plan, const neap_drawing *drawing,
                                 char **out, neap_error *error) {
  neap_buffer buffer = {0};
  *out = NULL;
  if (drawing != NULL && drawing->step_ns != NULL && drawing->n_step != plan_of(plan)->n_node)
    return neap_fail(error, NEAP_ARGUMENT, "%s: the plan has %d steps, and step_ns has %d",
                     __func__, plan_of(plan)->n_node, drawing->n_step);
  neap_report_svg(plan_of(plan), graph_of(plan), drawing, 0, NULL, &buffer);
  return neap_api_give_text(&buffer, out, error);
}

neap_status neap_memory_plan_verify(const neap_memory_plan *plan, neap_error *error) {
  return neap_plan_verify(plan_of(plan), graph_of(plan), error);
}

neap_status neap_memory_plan_dry_run(const neap_memory_plan *plan, const neap_net *net,
                                     neap_dry_run **out, neap_error *error) {
  *out = NULL;
  return neap_report_dry_run(plan_of(plan), graph_of(plan), net, out, error);
}

/* ---- of a net, at once ----------------------------------------------------------------------- */

neap_status neap_net_forecast(const neap_net *net, const neap_options *options,
                              neap_figures *figures, char **explanation, neap_error *error) {
  neap_memory_plan *plan;
  NEAP_TRY(neap_api_plan(net, options, __func__, &plan, error));
  /* Explanation and figures of one plan, which then goes. */
  neap_status status =
    explanation != NULL ? neap_memory_plan_explain(plan, NULL, explanation, error) : NEAP_OK;
  if (status == NEAP_OK) *figures = neap_memory_plan_figures(plan);
  neap_memory_plan_free(plan);
  return status;
}

neap_status neap_net_rewrites(const neap_net *net, const neap_options *options, char **out,
                              neap_error *error) {
  neap_memory_plan *plan;
  char bytes[24];
  NEAP_TRY(neap_api_plan(net, options, __func__, &plan, error));
  const neap_graph *graph = graph_of(plan);
  neap_buffer text = {0};

  /* A line each, in the order in which the passes made them. */
  for (int i = 0; i < graph->n_rewrite; i++) {
    const neap_rewrite *row = &graph->rewrite[i];
    neap_buffer_add(&text, "%s: %s%s%s, %s gone\n", row->rule, row->absorbed,
                    row->into[0] != '\0' ? " into " : "", row->into,
                    neap_bytes_text((double)row->saved_bytes, bytes));
  }
  neap_memory_plan_free(plan);
  return neap_api_give_text(&text, out, error);
}

neap_status neap_net_plan_dot(const neap_net *net, const neap_options *options, char **out,
                              neap_error *error) {
  neap_memory_plan *plan;
  NEAP_TRY(neap_api_plan(net, options, __func__, &plan, error));
  neap_status status = neap_memory_plan_dot(plan, 0, out, error);
  neap_memory_plan_free(plan);
  return status;
}

neap_status neap_net_plan_svg(const neap_net *net, const neap_options *options, char **out,
                              neap_error *error) {
  neap_memory_plan *plan;
  NEAP_TRY(neap_api_plan(net, options, __func__, &plan, error));
  neap_status status = neap_memory_plan_svg(plan, NULL, out, error);
  neap_memory_plan_free(plan);
  return status;
}

/* ---- of a session, at once ------------------------------------------------------------------- */

neap_status neap_session_explain(neap_session *session, const char *blob, char **out,
                                 neap_error *error) {
  return neap_memory_plan_explain(&(neap_memory_plan){.session = session}, blob, out, error);
}

neap_status neap_session_dot(neap_session *session, char **out, neap_error *error) {
  return neap_memory_plan_dot(&(neap_memory_plan){.session = session}, 0, out, error);
}

neap_status neap_session_svg(neap_session *session, char **out, neap_error *error) {
  return neap_memory_plan_svg(&(neap_memory_plan){.session = session}, NULL, out, error);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static neap_status print_graph(const neap_net *net, const neap_options *options, const char *who,
                               bool canonical, neap_buffer *out, neap_error *error) {
  neap_compile_options compile;
  neap_graph *graph;
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_C, who, &compile, error));
  /* As it is prepared for planning: rewritten, before kernels are chosen. */
  NEAP_TRY(neap_graph_prepare(net, &compile.graph, &graph, error));
  if (canonical)
    neap_graph_print_canonical(graph, out);
  else
    neap_graph_print(graph, out);
  neap_graph_free(graph);
  return NEAP_OK;
}

neap_status neap_net_graph_text(const neap_net *net, const neap_options *options, bool canonical,
                                char **out, neap_error *error) {
  neap_buffer text = {0};
  *out = NULL;
  NEAP_TRY(print_graph(net, options, __func__, canonical, &text, error));
  return neap_api_give_text(&text, out, error);
}

neap_status neap_net_graph_hash(const neap_net *net, const neap_options *options, char text[33],
                                neap_error *error) {
  neap_buffer canonical = {0};
  NEAP_TRY(print_graph(net, options, __func__, true, &canonical, error));
  /* A text that was cut would have another hash: none is given. */
  bool failed = canonical.failed;
  if (!failed) neap_hash_text(neap_hash_bytes(canonical.text, canonical.n), text);
  neap_buffer_fini(&canonical);
  return failed ? neap_fail_memory(error, 256, "the text of a graph") : NEAP_OK;
}
