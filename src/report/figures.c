/* figures.c: a plan in figures: one row, as neap.h describes it. */
#include "report/report.h"

/* Of the ops' own figures, each a whole number: so that they add up. */
static void add_ops(const neap_plan *plan, const neap_graph *graph, neap_figures *out) {
  for (int i = 0; i < graph->n_node; i++)
    out->flops = neap_count_add(out->flops, neap_node_flops(&graph->node[i]));

  /* One op runs at a time, so its scratch is what counts; their sum would say nothing. */
  for (int i = 0; i < plan->n_node; i++)
    out->scratch_bytes_max = NEAP_MAX(out->scratch_bytes_max, (int64_t)plan->scratch_bytes[i]);
}

neap_figures neap_report_figures(const neap_plan *plan, const neap_graph *graph) {
  const size_t *region = plan->region_bytes;
  double work;
  int n_recomputed = neap_plan_recomputed(graph, &work);

  /* Texts are interned, since the row may outlive plan and graph; a net without ops has no peak. */
  neap_figures out = {.net = neap_intern(graph->name),
                      .mode = graph->train ? "train" : "infer",
                      .train = graph->train,
                      .batch = neap_graph_batch(graph),
                      .policy = neap_policy_name(plan->policy),
                      .executor = neap_executor_name(plan->executor),
                      .packer = plan->packer != NULL ? neap_intern(plan->packer) : NULL,
                      .arena_bytes = (int64_t)plan->arena_bytes,
                      .lower_bound_bytes = (int64_t)plan->lower_bound_bytes,
                      .proved = plan->proved,
                      .baseline_bytes = (int64_t)plan->baseline_bytes,
                      .total_bytes = (int64_t)neap_plan_total_bytes(plan),
                      .parameter_bytes = (int64_t)region[NEAP_REGION_PARAMETER],
                      .gradient_bytes = (int64_t)region[NEAP_REGION_GRADIENT],
                      .state_bytes = (int64_t)region[NEAP_REGION_STATE],
                      .io_bytes = (int64_t)region[NEAP_REGION_IO],
                      .constant_bytes = (int64_t)region[NEAP_REGION_CONSTANT],
                      .frame_bytes = (int64_t)region[NEAP_REGION_FRAME],
                      .n_op = plan->n_node,
                      .n_value = plan->n_value,
                      .peak_step = plan->n_node > 0 ? plan->peak_step : -1,
                      .n_recomputed = n_recomputed,
                      .recomputed_work = work,
                      .n_changed = neap_plan_changed(graph),
                      .n_widened = neap_plan_widened(graph),
                      .plan_ns = plan->plan_ns,
                      .n_search = plan->n_search};
  add_ops(plan, graph, &out);
  return out;
}
