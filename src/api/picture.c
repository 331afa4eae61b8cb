/* picture.c: nets, plans and workspaces as Graphviz text, SVG and tables. The drawing is plan's and
 * workspace's own. */
#include "api/api.h"
#include "report/report.h"

#include <string.h>

neap_status neap_net_dot(const neap_net *net, char **out, neap_error *error) {
  return neap_net_dot_folded(net, 0, out, error);
}

neap_status neap_net_dot_folded(const neap_net *net, int depth, char **out, neap_error *error) {
  neap_graph *graph;
  neap_buffer buffer = {0};
  NEAP_TRY(neap_graph_prepare(net, &(neap_graph_options){.no_rewrite = true}, &graph, error));
  neap_report_dot(NULL, graph, depth, &buffer);
  neap_graph_free(graph);
  return neap_api_give_text(&buffer, out, error);
}

static void draw(const neap_plan *plan, const neap_graph *graph, bool svg, neap_buffer *buffer) {
  if (svg)
    neap_report_svg(plan, graph, 0, NULL, buffer);
  else
    neap_report_dot(plan, graph, 0, buffer);
}

static neap_status draw_forecast(const neap_net *net, const neap_options *options, bool svg,
                                 char **out, neap_error *error) {
  neap_compile_options compile;
  neap_forecast forecast;
  neap_buffer buffer = {0};
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_C, __func__, &compile, error));
  NEAP_TRY(neap_driver_plan(net, &compile, &forecast, error));
  draw(forecast.plan, forecast.graph, svg, &buffer);
  neap_forecast_fini(&forecast);
  return neap_api_give_text(&buffer, out, error);
}

neap_status neap_net_plan_dot(const neap_net *net, const neap_options *options, char **out,
                              neap_error *error) {
  return draw_forecast(net, options, false, out, error);
}

neap_status neap_net_plan_svg(const neap_net *net, const neap_options *options, char **out,
                              neap_error *error) {
  return draw_forecast(net, options, true, out, error);
}

static neap_status draw_session(neap_session *session, bool svg, char **out, neap_error *error) {
  const neap_program *program = neap_session_program(session);
  neap_buffer buffer = {0};
  draw(neap_program_plan(program), neap_program_graph(program), svg, &buffer);
  return neap_api_give_text(&buffer, out, error);
}

neap_status neap_session_dot(neap_session *session, char **out, neap_error *error) {
  return draw_session(session, false, out, error);
}

neap_status neap_session_svg(neap_session *session, char **out, neap_error *error) {
  return draw_session(session, true, out, error);
}

neap_status neap_workspace_table(const neap_workspace *workspace, char **out, neap_error *error) {
  neap_blob_row *row;
  int n;
  neap_buffer buffer = {0};
  NEAP_TRY(neap_workspace_blobs(workspace, &row, &n, error));
  neap_workspace_sort_blobs(row, n);
  neap_workspace_print(row, n, &buffer);
  neap_free(row);
  return neap_api_give_text(&buffer, out, error);
}

neap_status neap_workspace_svg(const neap_workspace *workspace, char **out, neap_error *error) {
  neap_buffer buffer = {0};
  neap_status status = neap_workspace_draw(workspace, &buffer, error);
  if (status == NEAP_OK) return neap_api_give_text(&buffer, out, error);
  neap_buffer_fini(&buffer);
  return status;
}

neap_status neap_text_save(const char *text, const char *path, neap_error *error) {
  return neap_io_write_text(path, text, strlen(text), error);
}
