/* common.c: what the public functions share: options read, figures and texts given. */
#include "api/api.h"

#include <stdio.h>

const char *neap_version(void) { return NEAP_VERSION; }

void neap_interrupt(bool stop) { neap_interrupted = stop; }

neap_status neap_api_give_text(neap_buffer *buffer, char **out, neap_error *error) {
  if (buffer->text == NULL && !buffer->failed) neap_buffer_add(buffer, "%s", "");
  if (buffer->failed) {
    neap_buffer_fini(buffer);
    return neap_fail_memory(error, 256, "a text");
  }
  *out = buffer->text;
  return NEAP_OK;
}

neap_status neap_api_options(const neap_options *options, neap_compile_options *out, neap_error *error) {
  static const neap_options defaults;
  if (options == NULL) options = &defaults;
  *out = (neap_compile_options){.plan.policy = NEAP_POLICY_OFFSET, .engine = options->engine, .n_thread = options->n_thread};
  neap_engine engine;
  if (options->budget_bytes < 0 || options->total_bytes < 0 || options->soft_bytes < 0 || options->n_thread < 0)
    return neap_fail(error, NEAP_ARGUMENT, "options: budget_bytes, total_bytes, soft_bytes and n_thread can't be negative");
  if (options->n_thread > 4096)
    return neap_fail(error, NEAP_ARGUMENT, "options: n_thread expects 1 to 4096, got %d", options->n_thread);
  if (options->accumulate != NULL && strcmp(options->accumulate, "mean") != 0 && strcmp(options->accumulate, "sum") != 0)
    return neap_fail(error, NEAP_ARGUMENT, "options: accumulate expects mean or sum, got \"%s\"", options->accumulate);
  if (options->accumulate != NULL)
    out->accumulate = strcmp(options->accumulate, "sum") == 0 ? NEAP_ACCUMULATE_SUM : NEAP_ACCUMULATE_MEAN;
  if (options->no_fuse && options->fuse_pool)
    return neap_fail(error, NEAP_ARGUMENT, "options: fuse_pool asks for more fusion, no_fuse for none; set one of them");
  if (options->policy != NULL && !neap_policy_from_name(options->policy, &out->plan.policy))
    return neap_fail(error, NEAP_ARGUMENT, "options: policy expects offset, name, none or pool, got \"%s\"", options->policy);
  if (options->dynamic && options->policy != NULL && out->plan.policy != NEAP_POLICY_POOL)
    return neap_fail(error, NEAP_ARGUMENT, "options: dynamic takes bytes from a pool, policy \"%s\" plans them", options->policy);
  if (options->dynamic) out->plan.policy = NEAP_POLICY_POOL;
  out->dynamic = options->dynamic;
  out->soft_bytes = (size_t)options->soft_bytes;
  if (options->engine != NULL && !neap_engine_from_name(options->engine, &engine))
    return neap_fail(error, NEAP_ARGUMENT, "options: engine expects ref, blas or dnnl, got \"%s\"", options->engine);
  if (options->n_keep < 0 || (options->n_keep > 0 && options->keep == NULL))
    return neap_fail(error, NEAP_ARGUMENT, "options: keep is a list of n_keep names");
  if (options->n_bank < 0 || (options->n_bank > 0 && options->bank == NULL))
    return neap_fail(error, NEAP_ARGUMENT, "options: bank is a list of n_bank banks");
  out->graph.n_bank = options->n_bank;
  out->graph.bank = options->bank;
  out->policy_given = options->policy != NULL;
  out->mem_param = options->mem_param;
  out->graph.n_keep = options->n_keep;
  out->graph.keep = options->keep;
  out->plan.budget_bytes = (size_t)options->budget_bytes;
  out->total_bytes = (size_t)options->total_bytes;
  out->graph.no_fuse = options->no_fuse;
  out->no_recompute = options->no_recompute;
  out->inexact = options->inexact;
  out->graph.fuse_pool = options->fuse_pool;
  out->plan.executor = options->dag ? NEAP_EXECUTOR_DAG : NEAP_EXECUTOR_SIMPLE;
  return NEAP_OK;
}

neap_figures neap_api_figures(const neap_graph *graph, const neap_plan *plan) {
  double work;
  int n_again = neap_plan_repeated(graph, &work);
  return (neap_figures){.n_op = graph->n_node,
                        .arena_bytes = (int64_t)plan->arena_bytes,
                        .lower_bound_bytes = (int64_t)plan->lower_bound_bytes,
                        .baseline_bytes = (int64_t)plan->baseline_bytes,
                        .parameter_bytes = (int64_t)plan->region_bytes[NEAP_REGION_PARAMETER],
                        .gradient_bytes = (int64_t)plan->region_bytes[NEAP_REGION_GRADIENT],
                        .state_bytes = (int64_t)plan->region_bytes[NEAP_REGION_STATE],
                        .io_bytes = (int64_t)plan->region_bytes[NEAP_REGION_IO],
                        .constant_bytes = (int64_t)plan->region_bytes[NEAP_REGION_CONSTANT],
                        .frame_bytes = (int64_t)plan->region_bytes[NEAP_REGION_FRAME],
                        .total_bytes = (int64_t)neap_plan_total_bytes(plan),
                        .proved = plan->proved,
                        .n_recomputed = n_again,
                        .recomputed_work = work,
                        .n_changed = neap_plan_changed(graph)};
}
