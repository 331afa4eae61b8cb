/* rows.c: rows of nets as they would be planned, and of sessions as they run. The cursors are
 * report's own. */
#include "api/api.h"
#include "report/report.h"

/* The cursor's, until it ends. */
static void end_forecast(void *owned) {
  neap_forecast_fini(owned);
  neap_free(owned);
}

neap_status neap_net_rows(const neap_net *net, const neap_options *options, neap_row_kind kind,
                          neap_rows **out, neap_error *error) {
  neap_compile_options compile;
  *out = NULL;
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_C, __func__, &compile, error));
  neap_forecast *forecast = neap_alloc_zeroed(sizeof *forecast);
  if (forecast == NULL) return neap_fail_memory(error, sizeof *forecast, "the rows of a plan");
  neap_status status = neap_driver_plan(net, &compile, forecast, error);
  if (status != NEAP_OK) {
    neap_free(forecast);
    return status;
  }
  status = neap_report_rows(forecast->plan, forecast->graph, kind, out, error);
  if (status == NEAP_OK)
    neap_rows_own(*out, end_forecast, forecast);
  else
    end_forecast(forecast);
  return status;
}

neap_status neap_session_rows(neap_session *session, neap_row_kind kind, neap_rows **out,
                              neap_error *error) {
  const neap_program *program = neap_session_program(session);
  return neap_report_rows(neap_program_plan(program), neap_program_graph(program), kind, out,
                          error);
}
