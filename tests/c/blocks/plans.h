/* plans.h: options, plans that nobody runs, dry runs, counts, rows and pictures. */
#ifndef NEAP_TESTS_BLOCKS_PLANS_H
#define NEAP_TESTS_BLOCKS_PLANS_H

#include "blocks/call.h"

QUIET(option_at, neap_option_at(0))
CALL(options_set) {
  neap_options o = {0};
  neap_status status = neap_options_set(&o, "budget", "64MiB", error);
  s->number[0] = (double)o.budget;
  return status;
}
CALL(options_json) { return neap_options_json(s->options, &s->text, error); }

CALL(net_forecast) {
  neap_figures f = {0};
  neap_status status = neap_net_forecast(s->net, s->options, &f, &s->text, error);
  figures_out(s, &f);
  return status;
}
CALL(net_dry_run) {
  neap_status status = neap_net_dry_run(s->net, s->options, &s->out_log, error);
  if (status == NEAP_OK)
    s->number[0] = (double)s->out_log->planned_bytes, s->number[1] = s->out_log->n_row;
  return status;
}
CALL(dry_run_rows) { return neap_dry_run_rows(s->log, NEAP_ROW_DRY_SLOT, &s->out_rows, error); }
CALL(dry_run_text) { return neap_dry_run_text(s->log, &s->text, error); }
QUIET(dry_run_free, neap_dry_run_free(s->log); s->log = NULL)
CALL(net_count) {
  neap_counts before = {0}, after = {0};
  neap_status status = neap_net_count(s->net, s->options, &before, &after, error);
  s->number[0] = (double)before.total_bytes, s->number[1] = (double)after.total_bytes;
  return status;
}
QUIET(workspace_drop_gradients, neap_workspace_drop_gradients(s->ws))
CALL(net_rewrites) { return neap_net_rewrites(s->net, NULL, &s->text, error); }

/* ---- plans to ask ---- */

CALL(memory_plan_new) {
  return neap_memory_plan_new(s->net, s->options, NULL, &s->out_plan, error);
}
CALL(memory_plan_new_in_range) {
  return neap_memory_plan_new(s->net, s->options, s->range, &s->out_plan, error);
}
CALL(session_plan) { return neap_session_plan(s->session, &s->out_plan, error); }
QUIET(memory_plan_free, neap_memory_plan_free(s->plan); s->plan = NULL)
QUIET(memory_plan_warning, s->number[0] = neap_memory_plan_warning(s->plan)[0])
QUIET(memory_plan_figures, s->number[0] = (double)neap_memory_plan_figures(s->plan).total_bytes)
CALL(memory_plan_rows) {
  return neap_memory_plan_rows(s->plan, NEAP_ROW_VALUE, &s->out_rows, error);
}
QUIET(memory_plan_value, s->number[0] = neap_memory_plan_value(s->plan, "h"))
QUIET(memory_plan_gone, s->number[0] = neap_memory_plan_gone(s->plan, "h", (const char *[]){NULL}))
CALL(memory_plan_explain) { return neap_memory_plan_explain(s->plan, "h", &s->text, error); }
CALL(memory_plan_why) { return neap_memory_plan_why(s->plan, "h", "r", &s->text, error); }
CALL(memory_plan_peak) { return neap_memory_plan_peak(s->plan, &s->text, error); }
/* It ends with the time that planning took. */
CALL(memory_plan_text) {
  char *text = NULL;
  neap_status status = neap_memory_plan_text(s->plan, &text, error);
  for (const char *at = text; at != NULL && *at != '\0'; at++) s->number[0] += *at == '\n';
  neap_free(text);
  return status;
}
CALL(memory_plan_graph_text) { return neap_memory_plan_graph_text(s->plan, &s->text, error); }
CALL(memory_plan_dot) { return neap_memory_plan_dot(s->plan, 1, &s->text, error); }
CALL(memory_plan_svg) { return neap_memory_plan_svg(s->plan, NULL, &s->text, error); }
CALL(memory_plan_verify) { return neap_memory_plan_verify(s->plan, error); }
/* Times differ from call to call, the number of kernels does not. */
CALL(memory_plan_kernels) {
  const void *row = NULL;
  neap_rows *rows = NULL;
  neap_status status = NEAP_OK;
  int n_row = 0;
  const int n_step = (int)neap_memory_plan_figures(s->plan).n_op;
  for (int step = 0; step < n_step && status == NEAP_OK; step++) {
    status = neap_memory_plan_kernels(s->plan, step, &rows, error);
    while (status == NEAP_OK && (status = neap_rows_next(rows, &row, error)) == NEAP_OK &&
           row != NULL)
      n_row++;
    neap_rows_free(rows);
  }
  s->number[0] = status == NEAP_OK ? n_row : 0;
  return status;
}
CALL(memory_plan_dry_run) { return neap_memory_plan_dry_run(s->plan, s->net, &s->out_log, error); }
CALL(net_graph_text) { return neap_net_graph_text(s->net, s->options, true, &s->text, error); }
CALL(net_graph_hash) {
  char text[33] = "";
  neap_status status = neap_net_graph_hash(s->net, s->options, text, error);
  s->number[0] = text[0];
  return status;
}
CALL(rows_at) {
  const void *row = NULL;
  neap_status status = neap_rows_at(s->rows, 0, &row, error);
  s->number[0] = row != NULL;
  return status;
}

QUIET(option_find, s->number[0] = neap_option_find("budget") != NULL)
CALL(option_refuse) {
  neap_error own = {0};
  (void)error;
  s->number[0] = neap_option_refuse(neap_option_at(0), "a test", &own);
  return NEAP_OK;
}
CALL(options_check) {
  (void)s;
  return neap_options_check(&(neap_options){.budget = 64}, NEAP_FACE_C, "a test", error);
}
QUIET(bank_kind_from_name, s->number[0] = neap_bank_kind_from_name("huge", &(neap_bank_kind){0}))
CALL(net_dot) { return neap_net_dot(s->net, &s->text, error); }
CALL(net_dot_folded) { return neap_net_dot_folded(s->net, 1, &s->text, error); }
CALL(net_plan_dot) { return neap_net_plan_dot(s->net, s->options, &s->text, error); }
CALL(net_plan_svg) { return neap_net_plan_svg(s->net, s->options, &s->text, error); }
CALL(net_rows) { return neap_net_rows(s->net, s->options, NEAP_ROW_VALUE, &s->out_rows, error); }
CALL(session_rows) { return neap_session_rows(s->session, NEAP_ROW_VALUE, &s->out_rows, error); }
CALL(rows_next) {
  const void *row = NULL;
  neap_status status = neap_rows_next(s->rows, &row, error);
  s->number[0] = row != NULL;
  return status;
}
CALL(net_rows_of_dry_run) {
  return neap_net_rows(s->net, s->options, NEAP_ROW_DRY_ROW, &s->out_rows, error);
}
CALL(session_rows_of_pool) {
  return neap_session_rows(s->session, NEAP_ROW_POOL, &s->out_rows, error);
}
CALL(workspace_rows) { return neap_workspace_rows(s->ws, &s->out_rows, error); }
CALL(rows_sub) { return neap_rows_sub(s->rows, 0, NEAP_ROW_VALUE, &s->out_rows, error); }
CALL(rows_json) { return neap_rows_json(s->rows, &s->text, error); }
QUIET(rows_free, neap_rows_free(s->rows); s->rows = NULL)
QUIET(column_at, neap_column_at(NEAP_ROW_OP, 0))
QUIET(row_kind_name, neap_row_kind_name(NEAP_ROW_OP, NULL))
QUIET(datum_of, neap_datum_of(neap_column_at(NEAP_ROW_REGION, 0), &(neap_region_row){0}))

static const entry plans_entries[] = {
  {"neap_option_find", 0, call_option_find, NULL, true},
  {"neap_option_refuse", 0, call_option_refuse, NULL, true},
  {"neap_options_check", 0, call_options_check, NULL, true},
  {"neap_bank_kind_from_name", 0, call_bank_kind_from_name, NULL, true},
  {"neap_memory_plan_new", NET, call_memory_plan_new, NULL, false},
  {"neap_memory_plan_new", LOOPS, call_memory_plan_new, &in_pool, false},
  {"neap_memory_plan_new", NET | RANGE, call_memory_plan_new_in_range, NULL, false},
  {"neap_session_plan", WS | NET | SESSION, call_session_plan, NULL, false},
  {"neap_memory_plan_free", NET | HANDLES, call_memory_plan_free, NULL, true},
  {"neap_memory_plan_warning", NET | HANDLES, call_memory_plan_warning, NULL, true},
  {"neap_memory_plan_figures", NET | HANDLES, call_memory_plan_figures, NULL, true},
  {"neap_memory_plan_rows", NET | HANDLES, call_memory_plan_rows, NULL, false},
  {"neap_memory_plan_value", NET | HANDLES, call_memory_plan_value, NULL, true},
  {"neap_memory_plan_gone", NET | HANDLES, call_memory_plan_gone, NULL, true},
  {"neap_memory_plan_explain", NET | HANDLES, call_memory_plan_explain, NULL, false},
  {"neap_memory_plan_why", NET | HANDLES, call_memory_plan_why, NULL, false},
  {"neap_memory_plan_peak", NET | HANDLES, call_memory_plan_peak, NULL, false},
  {"neap_memory_plan_text", NET | HANDLES, call_memory_plan_text, NULL, false},
  {"neap_memory_plan_graph_text", NET | HANDLES, call_memory_plan_graph_text, NULL, false},
  {"neap_memory_plan_dot", NET | HANDLES, call_memory_plan_dot, NULL, false},
  {"neap_memory_plan_svg", NET | HANDLES, call_memory_plan_svg, NULL, false},
  {"neap_memory_plan_verify", NET | HANDLES, call_memory_plan_verify, NULL, false},
  {"neap_memory_plan_kernels", NET | HANDLES, call_memory_plan_kernels, NULL, false},
  {"neap_memory_plan_dry_run", NET | HANDLES, call_memory_plan_dry_run, NULL, false},
  {"neap_net_graph_text", NET, call_net_graph_text, NULL, false},
  {"neap_net_graph_hash", NET, call_net_graph_hash, NULL, false},
  {"neap_rows_at", LOOPS | ROWS, call_rows_at, NULL, false},
  {"neap_option_at", 0, call_option_at, NULL, true},
  {"neap_options_set", 0, call_options_set, NULL, false},
  {"neap_options_json", 0, call_options_json, &with_keeps, false},
  {"neap_net_forecast", NET, call_net_forecast, &plain, false},
  /* what a record's `grad` may call, which runs while a net with a gradient is planned */
  {"neap_grad_emit", NET, call_net_forecast, &plain, false},
  {"neap_grad_emit1", NET, call_net_forecast, &plain, false},
  {"neap_grad_type", NET, call_net_forecast, &plain, false},
  {"neap_grad_reduce_to", NET, call_net_forecast, &plain, false},
  {"neap_grad_view", NET, call_net_forecast, &plain, false},
  {"neap_grad_cast", NET, call_net_forecast, &plain, false},
  {"neap_net_forecast", NET, call_net_forecast, &in_dag, false},
  {"neap_net_forecast", NET, call_net_forecast, &by_name, false},
  {"neap_net_forecast", NET, call_net_forecast, &without_plan, false},
  {"neap_net_forecast", NET, call_net_forecast, &in_pool, false},
  {"neap_net_forecast", NET, call_net_forecast, &dynamic, false},
  {"neap_net_forecast", NET, call_net_forecast, &in_budget, false},
  {"neap_net_forecast", FORWARD, call_net_forecast, NULL, false},
  {"neap_net_forecast", IMAGE, call_net_forecast, NULL, false},
  {"neap_net_forecast", LOOPS, call_net_forecast, NULL, false},
  {"neap_net_forecast", ENDLESS, call_net_forecast, NULL, false},
  {"neap_net_forecast", SCOPES, call_net_forecast, NULL, false},
  {"neap_net_dry_run", NET, call_net_dry_run, &with_keeps, false},
  {"neap_net_dry_run", FORWARD, call_net_dry_run, NULL, false},
  {"neap_dry_run_rows", NET | LOG, call_dry_run_rows, NULL, false},
  {"neap_dry_run_text", NET | LOG, call_dry_run_text, NULL, false},
  {"neap_dry_run_free", NET | LOG, call_dry_run_free, NULL, true},
  {"neap_net_count", NET, call_net_count, NULL, false},
  {"neap_workspace_drop_gradients", WS | NET | SESSION, call_workspace_drop_gradients, NULL, true},
  {"neap_net_rewrites", FORWARD, call_net_rewrites, NULL, false},
  {"neap_net_dot", NET, call_net_dot, NULL, false},
  {"neap_net_dot", LOOPS, call_net_dot, NULL, false},
  {"neap_net_dot_folded", NET, call_net_dot_folded, NULL, false},
  {"neap_net_plan_dot", NET, call_net_plan_dot, NULL, false},
  {"neap_net_plan_svg", NET, call_net_plan_svg, NULL, false},
  {"neap_net_plan_dot", LOOPS, call_net_plan_dot, NULL, false},
  {"neap_net_plan_svg", LOOPS, call_net_plan_svg, NULL, false},
  {"neap_net_rows", NET, call_net_rows, NULL, false},
  {"neap_net_rows", LOOPS, call_net_rows, NULL, false},
  {"neap_session_rows", WS | NET | SESSION, call_session_rows, NULL, false},
  {"neap_net_rows", NET, call_net_rows_of_dry_run, NULL, false},
  {"neap_session_rows", WS | NET | SESSION, call_session_rows_of_pool, &in_pool, false},
  {"neap_rows_next", LOOPS | ROWS, call_rows_next, NULL, false},
  {"neap_rows_sub", LOOPS | ROWS, call_rows_sub, NULL, false},
  {"neap_rows_json", LOOPS | ROWS, call_rows_json, NULL, false},
  {"neap_rows_free", NET | ROWS, call_rows_free, NULL, true},
  {"neap_column_at", 0, call_column_at, NULL, true},
  {"neap_row_kind_name", 0, call_row_kind_name, NULL, true},
  {"neap_datum_of", 0, call_datum_of, NULL, true},
  {"neap_workspace_rows", WS | NET | SESSION | SCOPE, call_workspace_rows, NULL, false},
};

#endif
