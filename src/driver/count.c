/* count.c: a net's bytes by class, as it is written and as it is planned.
 *
 * INVARIANT: both counts are of one net at one batch; only what planning and rewriting do differs.
 */
#include "driver/driver_int.h"
#include "report/report.h"

/* The net as it is written: no op is absorbed, nothing shares bytes, and no limit stands in the
 * way. */
static neap_compile_options as_written(const neap_compile_options *options) {
  neap_compile_options plain = *options;
  plain.plan.policy = NEAP_POLICY_NONE;
  plain.plan.budget_bytes = plain.total_bytes = plain.soft_bytes = 0;
  plain.graph.no_rewrite = true;
  plain.dynamic = plain.policy_given = false;
  plain.mem_param = NULL;
  return plain;
}

static neap_status count(const neap_net *net, const neap_compile_options *options,
                         const neap_range *range, neap_counts *out, neap_error *error) {
  neap_forecast forecast;
  neap_compile_options alone = *options;
  alone.store = NULL; /* these are figures, and nobody would hear what a store has to say */
  NEAP_TRY(range != NULL ? neap_range_plan(range, net, &alone, &forecast, error)
                         : neap_driver_plan(net, &alone, &forecast, error));
  neap_status status = neap_report_count(forecast.plan, forecast.graph, net, out, error);
  neap_forecast_fini(&forecast);
  return status;
}

neap_status neap_driver_count(const neap_net *net, const neap_compile_options *options,
                              const neap_range *range, neap_counts *before, neap_counts *after,
                              neap_error *error) {
  neap_compile_options plain = as_written(options);
  neap_counts first = {0}, second = {0};
  if (before != NULL) NEAP_TRY(count(net, &plain, NULL, &first, error));
  if (after != NULL) NEAP_TRY(count(net, options, range, &second, error));
  if (before != NULL) *before = first;
  if (after != NULL) *after = second;
  return NEAP_OK;
}
