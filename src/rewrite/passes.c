/* passes.c: the list of rewrites (rewrite_int.h), and who builds with it. */
#include "rewrite/rewrite_int.h"

static const neap_pass passes[] = {
#define X(name, when) {#name, NEAP_PASS_##when, rewrite_##name},
  REWRITE_PASS_MAP(X)
#undef X
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
