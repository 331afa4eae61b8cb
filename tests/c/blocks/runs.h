/* runs.h: sessions, ranges of batches, micro-batches, chains with their caches, step trees. */
#ifndef NEAP_TESTS_BLOCKS_RUNS_H
#define NEAP_TESTS_BLOCKS_RUNS_H

#include "blocks/call.h"

CALL(session_open) { return neap_session_open(s->ws, s->net, s->options, &s->out_session, error); }
CALL(session_run) { return neap_session_run(s->session, error); }
QUIET(session_figures, neap_session_figures(s->session))
QUIET(session_trim, neap_session_trim(s->session))
CALL(session_explain) { return neap_session_explain(s->session, NULL, &s->text, error); }
CALL(session_explain_blob) { return neap_session_explain(s->session, "h", &s->text, error); }
QUIET(session_free, neap_session_free(s->session); s->session = NULL)

CALL(range_open) { return neap_range_open(s->net, 8, s->options, &s->out_range, error); }
CALL(range_session) {
  return neap_range_session(s->range, s->ws, s->net, 3, s->options, &s->out_session, error);
}
CALL(range_session_largest) {
  return neap_range_session(s->range, s->ws, s->net, 6, s->options, &s->out_session, error);
}
QUIET(range_figures, neap_range_figures(s->range))
QUIET(range_free, neap_range_free(s->range); s->range = NULL)
QUIET(range_warning, s->number[0] = neap_range_warning(s->range)[0])
CALL(range_count) {
  neap_counts before, after;
  neap_status status = neap_range_count(s->range, s->net, s->options, &before, &after, error);
  s->number[0] = status == NEAP_OK ? (double)after.total_bytes : 0;
  return status;
}
CALL(net_batch_inputs) {
  int n = 0;
  neap_status status = neap_net_batch_inputs(s->net, 2, (neap_input **)&s->block, &n, error);
  s->number[0] = n;
  return status;
}
static neap_status at_batch(void *context, int64_t n, const neap_net **net, neap_options *options,
                            neap_error *error) {
  scene *s = context;
  int n_input;
  neap_free(s->block);
  s->block = NULL;
  NEAP_TRY(neap_net_batch_inputs(s->net, n, (neap_input **)&s->block, &n_input, error));
  *net = s->net;
  *options = (neap_options){.total = 4000, .n_inputs = n_input, .inputs = s->block};
  return NEAP_OK;
}
CALL(fit_batch) {
  const neap_fit_search search = {.net = at_batch, .context = s, .max = 8};
  int64_t batch = 0;
  neap_status status = neap_fit_batch(&search, &batch, &s->out_plan, error);
  neap_free(s->block);
  s->block = NULL;
  s->number[0] = status == NEAP_OK ? (double)batch : 0;
  return status;
}
CALL(micro_beside) {
  neap_net *part = NULL, *update = NULL;
  neap_beside beside = {0};
  neap_status status = neap_net_split_micro(s->net, &part, &update, error);
  if (status == NEAP_OK) status = neap_micro_beside(update, NULL, s->options, &beside, error);
  s->number[0] = status == NEAP_OK ? (double)beside.bytes : 0;
  neap_net_free(part);
  neap_net_free(update);
  return status;
}
CALL(workspace_run_micro) {
  neap_tensor x = {0}, y = {0};
  neap_status status = neap_workspace_fetch(s->ws, "x", &x, error);
  if (status == NEAP_OK) status = neap_workspace_fetch(s->ws, "y", &y, error);
  const neap_micro_part part[] = {{s->part, 2, 0.5}, {s->part, 2, 0.5}};
  const neap_micro_input input[] = {{"x", x}, {"y", y}};
  const neap_micro_step step = {.n_input = 2,
                                .input = input,
                                .n_part = 2,
                                .part = part,
                                .after = {NULL, s->update},
                                .lend = true};
  if (status == NEAP_OK) status = neap_workspace_run_micro(s->ws, &step, error);
  neap_tensor_fini(&x);
  neap_tensor_fini(&y);
  return status;
}

CALL(net_fit_batch) {
  int64_t batch = 0;
  neap_figures f = {0};
  neap_status status = neap_net_fit_batch(s->net, s->options, 3, &batch, &f, error);
  figures_out(s, &f);
  s->number[5] = (double)batch;
  return status;
}
CALL(micro_open) { return neap_micro_open(s->ws, s->net, 3, s->options, &s->out_micro, error); }
CALL(micro_open_fitting) {
  return neap_micro_open(s->ws, s->net, 0, s->options, &s->out_micro, error);
}
CALL(micro_run) { return neap_micro_run(s->micro, 2, (double[]){1, 0.5}, error); }
CALL(micro_add) { return neap_micro_add(s->micro, 0, NULL, 3, error); }
CALL(micro_update) { return neap_micro_update(s->micro, error); }
QUIET(micro_n_held, neap_micro_n_held(s->micro))
QUIET(micro_rows, neap_micro_rows(s->micro))
QUIET(micro_figures, neap_micro_figures(s->micro))
QUIET(micro_free, neap_micro_free(s->micro); s->micro = NULL)
CALL(net_split_micro) { return neap_net_split_micro(s->net, &s->out_net, &s->out_net2, error); }

CALL(chain_open) {
  return neap_chain_open(s->ws, 2, (const neap_net *const *)s->layer, 5, s->options, &s->out_chain,
                         error);
}
CALL(chain_add_batch) {
  return neap_chain_add_batch(s->chain, 2, (const neap_net *const *)s->fewer, error);
}
CALL(chain_forward) { return neap_chain_forward(s->chain, true, error); }
CALL(chain_evaluate) { return neap_chain_forward(s->chain, false, error); }
CALL(chain_backward) { return neap_chain_backward(s->chain, error); }
QUIET(chain_n, neap_chain_n(s->chain, NEAP_LIST_CACHES))
CALL(chain_entry) {
  neap_entry e = {0};
  neap_status status = neap_chain_entry(s->chain, NEAP_LIST_OUTPUTS, 1, &e, error);
  s->number[0] = (double)e.data.bytes;
  return status;
}
CALL(chain_param) {
  neap_entry e = {0};
  neap_status status = neap_chain_param(s->chain, "u", &e, error);
  s->number[0] = (double)e.data.bytes;
  return status;
}
CALL(chain_attach_param) {
  static float mine[2] = {3, 4};
  return neap_chain_attach_param(s->chain, "mine", NEAP_DTYPE_F32, 1, DIM(2), mine, error);
}
CALL(chain_drop) { return neap_chain_drop(s->chain, NEAP_LIST_OUTPUTS, 0, error); }
CALL(chain_pop) {
  neap_entry e = {0};
  neap_status status = neap_chain_pop(s->chain, 0, NULL, &e, error);
  s->number[0] = (double)e.data.bytes;
  return status;
}
QUIET(chain_n_layers, s->number[0] = neap_chain_n_layers(s->chain))
QUIET(chain_warning, s->number[0] = neap_chain_warning(s->chain)[0])
QUIET(chain_has_batch, s->number[0] = neap_chain_has_batch(s->chain, 4))
CALL(chain_item_at) {
  neap_chain_item item = {0};
  neap_status status = neap_chain_item_at(s->chain, NEAP_LIST_PARAMS, 0, &item, error);
  s->number[0] = status == NEAP_OK ? (double)neap_tensor_bytes(&item.data) : 0;
  neap_chain_item_fini(&item);
  return status;
}
QUIET(chain_cache, s->number[0] = neap_cache_n(neap_chain_cache(s->chain, 0)))
CALL(cache_new) {
  neap_cache *cache = NULL;
  neap_status status = neap_cache_new("another layer", &cache, error);
  s->number[0] = cache != NULL;
  neap_cache_free(cache);
  return status;
}
QUIET(cache_free, neap_cache_free(s->cache); s->cache = NULL)
QUIET(cache_name, s->number[0] = neap_cache_name(s->cache)[0])
QUIET(cache_n, s->number[0] = neap_cache_n(s->cache))
QUIET(cache_label, s->number[0] = neap_cache_label(s->cache, 0)[0])
CALL(cache_push) {
  NEAP_TRY(neap_cache_push(s->cache, &s->t, "one", error));
  return neap_cache_push(s->cache, &s->t, NULL, error);
}
CALL(cache_pop) {
  return neap_cache_pop(s->cache, &(neap_cache_want){.label = "pushed"}, &s->out_t, error);
}
QUIET(cache_clear, neap_cache_clear(s->cache))
QUIET(chain_clear, neap_chain_clear(s->chain))
QUIET(chain_free, neap_chain_free(s->chain); s->chain = NULL)

QUIET(session_plan_id, s->number[0] = neap_session_plan_id(s->session) > 0)
QUIET(session_run_id, s->number[0] = (double)neap_session_run_id(s->session))
QUIET(session_warning, s->number[0] = neap_session_warning(s->session)[0])
CALL(session_metric) { return neap_session_metric(s->session, "a figure", 3, 0.5, error); }
CALL(session_record) {
  neap_status status = neap_session_record(s->session, "finished", error);
  s->number[0] = neap_session_run_id(s->session) > 0;
  return status;
}
CALL(net_split_hold) {
  neap_net *micro = NULL, *update = NULL;
  neap_status status = neap_net_split_micro(s->net, &micro, &update, error);
  if (status == NEAP_OK) status = neap_net_split_hold(update, &s->out_net, &s->out_net2, error);
  neap_net_free(micro), neap_net_free(update);
  return status;
}
QUIET(session_frames_bytes, s->number[0] = (double)neap_session_frames_bytes(s->session))
QUIET(session_lacks_blob, s->number[0] = neap_session_lacks_blob(s->session))
QUIET(session_is_timed, s->number[0] = neap_session_is_timed(s->session))
CALL(workspace_run_once) { return neap_workspace_run_once(s->ws, s->net, s->options, NULL, error); }
CALL(workspace_run_steps) {
  const neap_step leaf = {.n_net = 1, .net = NAMES("train"), .iterations = 2};
  const neap_step root = {
    .n_step = 1, .step = &leaf, .iterations = 2, .report_net = "train", .report_every_ms = 60000};
  return neap_workspace_run_steps(s->ws, &root, s->options, NULL, error);
}
CALL(workspace_run_steps_beside) {
  const neap_step leaf[2] = {
    {.n_net = 1, .net = NAMES("forward"), .create_workspace = true, .n_instance = 2},
    {.n_net = 1, .net = NAMES("forward"), .create_workspace = true}};
  return neap_workspace_run_steps(
    s->ws, &(neap_step){.n_step = 2, .step = leaf, .concurrent = true}, s->options, NULL, error);
}

QUIET(session_op_row, neap_session_op_row(s->session, 0, &(neap_run_op_row){0}))
CALL(session_dot) { return neap_session_dot(s->session, &s->text, error); }
CALL(session_svg) { return neap_session_svg(s->session, &s->text, error); }
QUIET(session_pool, neap_session_pool(s->session))

static const entry runs_entries[] = {
  {"neap_range_warning", NET | RANGE, call_range_warning, NULL, true},
  {"neap_range_count", NET | RANGE, call_range_count, NULL, false},
  {"neap_net_batch_inputs", NET, call_net_batch_inputs, NULL, false},
  {"neap_fit_batch", NET, call_fit_batch, NULL, false},
  {"neap_micro_beside", NET, call_micro_beside, NULL, false},
  {"neap_workspace_run_micro", WS | NET | PARTS | RUN, call_workspace_run_micro, NULL, false},
  {"neap_chain_n_layers", WS | CHAIN, call_chain_n_layers, NULL, true},
  {"neap_chain_warning", WS | CHAIN, call_chain_warning, NULL, true},
  {"neap_chain_has_batch", WS | CHAIN, call_chain_has_batch, NULL, true},
  {"neap_chain_item_at", WS | CHAIN, call_chain_item_at, NULL, false},
  {"neap_chain_item_fini", WS | CHAIN, call_chain_item_at, NULL, false},
  {"neap_chain_cache", WS | CHAIN, call_chain_cache, NULL, true},
  {"neap_cache_new", 0, call_cache_new, NULL, false},
  {"neap_cache_free", NET | TENSOR | HANDLES, call_cache_free, NULL, true},
  {"neap_cache_name", NET | TENSOR | HANDLES, call_cache_name, NULL, true},
  {"neap_cache_n", NET | TENSOR | HANDLES, call_cache_n, NULL, true},
  {"neap_cache_label", NET | TENSOR | HANDLES, call_cache_label, NULL, true},
  {"neap_cache_push", NET | TENSOR | HANDLES, call_cache_push, NULL, false},
  {"neap_cache_pop", NET | TENSOR | HANDLES, call_cache_pop, NULL, false},
  {"neap_cache_clear", NET | TENSOR | HANDLES, call_cache_clear, NULL, true},
  {"neap_session_frames_bytes", WS | NET | SESSION, call_session_frames_bytes, NULL, true},
  {"neap_session_lacks_blob", WS | NET | SESSION, call_session_lacks_blob, NULL, true},
  {"neap_session_is_timed", WS | NET | SESSION, call_session_is_timed, NULL, true},
  {"neap_session_open", WS | NET, call_session_open, &plain, false},
  {"neap_session_open", WS | NET, call_session_open, &in_dag, false},
  {"neap_session_open", WS | NET, call_session_open, &by_name, false},
  {"neap_session_open", WS | NET, call_session_open, &without_plan, false},
  {"neap_session_open", WS | NET, call_session_open, &in_pool, false},
  {"neap_session_open", WS | NET, call_session_open, &dynamic, false},
  {"neap_session_open", WS | NET, call_session_open, &in_budget, false},
  {"neap_session_open", WS | NET, call_session_open, &with_keeps, false},
  {"neap_session_open", WS | NET, call_session_open, &in_banks, false},
  {"neap_session_open", WS | FORWARD, call_session_open, NULL, false},
  {"neap_session_open", WS | IMAGE, call_session_open, NULL, false},
  {"neap_session_open", WS | LOOPS, call_session_open, NULL, false},
  {"neap_session_open", WS | ENDLESS, call_session_open, NULL, false},
  {"neap_session_open", WS | SCOPES, call_session_open, NULL, false},
  {"neap_session_open", WS | FOUND, call_session_open, &dynamic, false},
  {"neap_session_run", WS | NET | OPENED | RUN, call_session_run, &plain, false},
  {"neap_session_run", WS | NET | OPENED | RUN, call_session_run, &in_dag, false},
  {"neap_session_run", WS | NET | OPENED | RUN, call_session_run, &by_name, false},
  {"neap_session_run", WS | NET | OPENED | RUN, call_session_run, &without_plan, false},
  {"neap_session_run", WS | NET | OPENED | RUN, call_session_run, &in_pool, false},
  {"neap_session_run", WS | NET | OPENED | RUN, call_session_run, &dynamic, false},
  {"neap_session_run", WS | NET | OPENED | RUN, call_session_run, &in_budget, false},
  {"neap_session_run", WS | FORWARD | OPENED | RUN, call_session_run, NULL, false},
  {"neap_session_run", WS | IMAGE | OPENED | RUN, call_session_run, NULL, false},
  {"neap_session_run", WS | LOOPS | OPENED | RUN, call_session_run, NULL, false},
  {"neap_session_run", WS | ENDLESS | OPENED | RUN, call_session_run, NULL, false},
  {"neap_session_run", WS | SCOPES | OPENED | RUN, call_session_run, NULL, false},
  {"neap_session_run", WS | FOUND | OPENED | RUN, call_session_run, &dynamic, false},
  {"neap_session_run", WS | NET | SESSION | RUN, call_session_run, NULL, false},
  {"neap_session_run", WS | NET | SESSION | FEWER | RUN, call_session_run, &dynamic, false},
  {"neap_session_figures", WS | NET | SESSION, call_session_figures, NULL, true},
  {"neap_session_trim", WS | ENDLESS | SESSION, call_session_trim, NULL, true},
  {"neap_session_explain", WS | NET | SESSION, call_session_explain, NULL, false},
  {"neap_session_explain", WS | NET | SESSION, call_session_explain_blob, NULL, false},
  {"neap_session_free", WS | NET | SESSION, call_session_free, NULL, true},
  {"neap_range_open", NET, call_range_open, NULL, false},
  {"neap_range_session", WS | NET | RANGE, call_range_session, NULL, false},
  {"neap_range_session", WS | NET | RANGE, call_range_session_largest, NULL, false},
  {"neap_range_figures", NET | RANGE, call_range_figures, NULL, true},
  {"neap_range_free", NET | RANGE, call_range_free, NULL, true},
  {"neap_net_fit_batch", NET, call_net_fit_batch, &in_total, false},
  {"neap_micro_open", WS | NET, call_micro_open, NULL, false},
  {"neap_micro_open", WS | NET, call_micro_open, &accumulated, false},
  {"neap_micro_open", WS | NET, call_micro_open_fitting, &in_total, false},
  {"neap_micro_run", WS | NET | MICRO | RUN, call_micro_run, NULL, false},
  {"neap_micro_add", WS | NET | MICRO | RUN, call_micro_add, NULL, false},
  {"neap_micro_update", WS | NET | MICRO | RUN, call_micro_update, NULL, false},
  {"neap_micro_n_held", WS | NET | MICRO, call_micro_n_held, NULL, true},
  {"neap_micro_rows", WS | NET | MICRO, call_micro_rows, NULL, true},
  {"neap_micro_figures", WS | NET | MICRO, call_micro_figures, NULL, true},
  {"neap_micro_free", WS | NET | MICRO, call_micro_free, NULL, true},
  {"neap_net_split_micro", NET, call_net_split_micro, NULL, false},
  {"neap_chain_open", WS | LAYERS, call_chain_open, NULL, false},
  {"neap_chain_open", WS | LAYERS, call_chain_open, &in_dag, false},
  {"neap_chain_add_batch", WS | CHAIN, call_chain_add_batch, NULL, false},
  {"neap_chain_forward", WS | CHAIN | RUN, call_chain_forward, NULL, false},
  {"neap_chain_forward", WS | CHAIN | FEWER | RUN, call_chain_forward, NULL, false},
  {"neap_chain_forward", WS | CHAIN | RUN, call_chain_evaluate, NULL, false},
  {"neap_chain_backward", WS | CHAIN, call_chain_backward, NULL, false},
  {"neap_chain_n", WS | CHAIN, call_chain_n, NULL, true},
  {"neap_chain_entry", WS | CHAIN, call_chain_entry, NULL, false},
  {"neap_chain_param", WS | CHAIN, call_chain_param, NULL, false},
  {"neap_chain_attach_param", WS | CHAIN, call_chain_attach_param, NULL, false},
  {"neap_chain_drop", WS | CHAIN, call_chain_drop, NULL, false},
  {"neap_chain_pop", WS | CHAIN, call_chain_pop, NULL, false},
  {"neap_chain_clear", WS | CHAIN, call_chain_clear, NULL, true},
  {"neap_chain_free", WS | CHAIN, call_chain_free, NULL, true},
  {"neap_workspace_run_once", WS | NET | RUN, call_workspace_run_once, NULL, false},
  {"neap_workspace_run_once", WS | NET | RUN, call_workspace_run_once, &in_pool, false},
  {"neap_workspace_run_once", WS | SCOPES | RUN, call_workspace_run_once, NULL, false},
  {"neap_workspace_run_steps", WS | NET | STORED | RUN, call_workspace_run_steps, NULL, false},
  {"neap_workspace_run_steps", WS | FORWARD | STORED | RUN, call_workspace_run_steps_beside, NULL,
   false},
  {"neap_session_op_row", WS | NET | SESSION, call_session_op_row, NULL, true},
  {"neap_session_dot", WS | NET | SESSION, call_session_dot, NULL, false},
  {"neap_session_svg", WS | NET | SESSION, call_session_svg, NULL, false},
  {"neap_session_svg", WS | NET | SESSION, call_session_svg, &dynamic, false},
  {"neap_session_plan_id", WS | NET | DB | SESSION, call_session_plan_id, NULL, true},
  {"neap_session_run_id", WS | NET | DB | SESSION, call_session_run_id, NULL, true},
  {"neap_session_warning", WS | NET | DB | SESSION, call_session_warning, NULL, true},
  {"neap_session_metric", WS | NET | DB | SESSION, call_session_metric, NULL, false},
  {"neap_session_record", WS | NET | DB | SESSION, call_session_record, NULL, false},
  {"neap_net_split_hold", NET, call_net_split_hold, NULL, false},
  {"neap_session_pool", WS | NET | SESSION, call_session_pool, NULL, true},
};

#endif
