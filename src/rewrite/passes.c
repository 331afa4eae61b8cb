/* passes.c: the rewrites that run while a graph is built, in the order in which they run. */
#include "rewrite/rewrite_int.h"

static const neap_pass passes[] = {
  {"norm_relu", NEAP_PASS_FORWARD, rewrite_norm_relu},
  {"fuse", NEAP_PASS_INFERENCE, rewrite_fuse},
  {NULL, NEAP_PASS_FORWARD, NULL},
};

neap_status neap_graph_prepare(const neap_net *net, const neap_graph_options *options,
                               neap_graph **out, neap_error *error) {
  bool as_written = options != NULL && (options->no_rewrite || options->keep_all ||
                                        options->by_op || options->half != NULL);
  return neap_build(net, options, as_written ? NULL : passes, out, error);
}

neap_status neap_graph_type(const neap_net *net, const neap_graph_options *options,
                            const char *name, neap_type *out, neap_error *error) {
  neap_graph *graph;
  NEAP_TRY(neap_graph_prepare(net, options, &graph, error));
  neap_value_id v = neap_graph_find(graph, name);
  neap_status status = NEAP_OK;
  if (v >= 0)
    *out = graph->value[v].type;
  else
    status = neap_fail(error, NEAP_NAME, "net \"%s\" has no blob \"%s\"", neap_net_name(net), name);
  neap_graph_free(graph);
  return status;
}
