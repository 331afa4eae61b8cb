/* picture.c: nets and workspaces as Graphviz text, SVG and tables (plans: plan.c). The drawing is
 * report's and workspace's own. */
#include "api/api.h"
#include "report/report.h"

#include <string.h>

neap_status neap_net_dot(const neap_net *net, char **out, neap_error *error) {
  return neap_net_dot_folded(net, 0, out, error);
}

neap_status neap_net_dot_folded(const neap_net *net, int depth, char **out, neap_error *error) {
  neap_graph *graph;
  neap_buffer buffer = {0};
  /* As it was written: what rewrites would change is not what the user wants to see. */
  NEAP_TRY(neap_graph_prepare(net, &(neap_graph_options){.no_rewrite = true}, &graph, error));
  neap_report_dot(NULL, graph, depth, &buffer);
  neap_graph_free(graph);
  return neap_api_give_text(&buffer, out, error);
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
