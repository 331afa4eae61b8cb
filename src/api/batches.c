/* batches.c: the largest batch that fits, and large batches as micro-batches. */
#include "api/api.h"

enum { DEFAULT_MOST = 65536 };

neap_status neap_net_fit_batch(const neap_net *net, const neap_options *options, int64_t max,
                               int64_t *batch, neap_figures *figures, neap_error *error) {
  neap_compile_options compile;
  neap_forecast forecast;
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_C, __func__, &compile, error));
  /* Without a limit the largest batch would be the largest number. */
  if (compile.plan.budget_bytes == 0 && compile.total_bytes == 0)
    return neap_fail(error, NEAP_ARGUMENT, "fit_batch: expects a budget or a total to fit into");
  NEAP_TRY(
    neap_driver_fit_net(net, &compile, max == 0 ? DEFAULT_MOST : max, batch, &forecast, error));
  if (figures != NULL) *figures = neap_forecast_figures(&forecast);
  neap_forecast_fini(&forecast);
  return NEAP_OK;
}

/* The caller's net of a batch, its options in driver's words. */
static neap_status net_of_batch(void *context, int64_t n, const neap_net **net,
                                neap_compile_options *options, neap_error *error) {
  const neap_fit_search *search = context;
  /* Options are compiled for each batch: they may name shapes, which change with it. */
  neap_options asked = {0};
  NEAP_TRY(search->net(search->context, n, net, &asked, error));
  return neap_options_compile(&asked, NEAP_FACE_C, "neap_fit_batch", options, error);
}

neap_status neap_fit_batch(const neap_fit_search *search, int64_t *batch, neap_memory_plan **plan,
                           neap_error *error) {
  neap_fit_search own = *search;
  const neap_fit_by fit = {.net = net_of_batch,
                           .context = &own,
                           .max = search->max,
                           .update = search->update,
                           .hold = search->hold};
  return neap_api_fit(&fit, batch, plan, error);
}

neap_status neap_micro_beside(const neap_net *update, const neap_net *hold,
                              const neap_options *options, neap_beside *beside, neap_error *error) {
  neap_compile_options compile;
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_C, __func__, &compile, error));
  return neap_driver_beside(update, hold, &compile, beside, error);
}

neap_status neap_micro_open(neap_workspace *workspace, const neap_net *net, int64_t rows,
                            const neap_options *options, neap_micro **out, neap_error *error) {
  neap_compile_options compile;
  *out = NULL;
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_MICRO, __func__, &compile, error));
  return neap_micro_new(workspace, net, rows, &compile, out, error);
}

neap_status neap_micro_add(neap_micro *micro, int n_weight, const double *weight, double count,
                           neap_error *error) {
  /* Written so that NaN fails. */
  if (!(count >= 0))
    return neap_fail(error, NEAP_ARGUMENT,
                     "neap_micro_add: count expects what the mean counts, got %g", count);
  /* 0 of the caller means: count rows. Driver says that by -1. */
  const neap_micro_batch batch = {
    .n_weight = n_weight, .weight = weight, .count = count > 0 ? count : -1, .hold = true};
  return neap_micro_take(micro, &batch, error);
}

/* Parameters and gradients are the same blobs in both programs and so counted once, as
 * neap_micro_beside counts. The times of a step are those of many runs: none are said. */
neap_figures neap_micro_figures(const neap_micro *micro) {
  neap_figures part = neap_session_figures(neap_micro_part_session(micro));
  neap_figures update = neap_session_figures(neap_micro_update_session(micro));

  /* One arena serves them all, so that the larger one counts. */
  neap_figures both = part.arena_bytes >= update.arena_bytes ? part : update;
  neap_figures hold = {0};
  if (neap_micro_hold_session(micro) != NULL)
    hold = neap_session_figures(neap_micro_hold_session(micro));
  both.n_op = part.n_op + update.n_op + hold.n_op;

  /* Bytes that each program has for itself are added up. */
  both.baseline_bytes = part.baseline_bytes + update.baseline_bytes;
  both.parameter_bytes = part.parameter_bytes;
  both.gradient_bytes = part.gradient_bytes;
  both.state_bytes = part.state_bytes + update.state_bytes + hold.state_bytes;
  both.io_bytes = part.io_bytes + update.io_bytes + hold.io_bytes;
  both.constant_bytes = part.constant_bytes + update.constant_bytes;
  both.frame_bytes = part.frame_bytes + update.frame_bytes;
  both.total_bytes = both.arena_bytes + both.parameter_bytes + both.gradient_bytes +
                     both.state_bytes + both.io_bytes + both.constant_bytes + both.frame_bytes;

  /* A step is one update. */
  both.n_step = update.n_step;
  both.last_ns = both.median_ns = 0;
  both.held_bytes = NEAP_MAX(update.held_bytes, hold.held_bytes); /* of one workspace */
  both.process_bytes = NEAP_MAX(update.process_bytes, hold.process_bytes);
  both.n_alloc = 0;
  return both;
}
