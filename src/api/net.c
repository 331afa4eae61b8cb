/* net.c: nets as text, their backward written out, names recycled. */
#include "api/api.h"

#include <stdio.h>

neap_status neap_net_add_text(neap_net *net, neap_error *error, const char *format, ...) {
  char small[512];
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int n = vsnprintf(small, sizeof small, format, args);
  va_end(args);
  char *text = n < (int)sizeof small ? small : neap_alloc((size_t)n + 1);
  if (text != NULL && text != small) vsnprintf(text, (size_t)n + 1, format, again);
  va_end(again);
  if (n < 0) return neap_fail(error, NEAP_ARGUMENT, "add_text: the format can't be printed");
  if (text == NULL) return neap_fail_memory(error, (size_t)n + 1, "lines of a net");
  neap_status status = neap_net_read_lines(net, text, error);
  if (text != small) neap_free(text);
  return status;
}

neap_status neap_net_text(const neap_net *net, char **out, neap_error *error) {
  neap_buffer buffer = {0};
  neap_net_print(net, false, &buffer);
  return neap_api_give_text(&buffer, out, error);
}

neap_status neap_net_expand(const neap_net *net, neap_net **out, neap_error *error) {
  neap_graph *graph;
  NEAP_TRY(neap_graph_prepare(net, NULL, &graph, error));
  neap_status status = neap_graph_to_net(graph, net, out, error);
  neap_graph_free(graph);
  return status;
}

neap_status neap_net_recycle(const neap_net *net, bool dag, const char *prefix, neap_net **out, neap_recycle_figures *figures,
                             neap_error *error) {
  neap_net *expanded = NULL;
  neap_recycle recycle;
  neap_recycle_result result;
  for (int i = 0; i < neap_net_n_ops(net) && expanded == NULL; i++)
    if ((neap_net_op_at(net, i)->op->effects & NEAP_EFFECT_PSEUDO) != 0) NEAP_TRY(neap_net_expand(net, &expanded, error));
  neap_status status = neap_recycle_open(&recycle, expanded != NULL ? expanded : net, NULL, dag, error);
  if (status == NEAP_OK) {
    status = neap_recycle_all(&recycle, prefix != NULL ? prefix : "", out, &result, error);
    neap_recycle_close(&recycle);
  }
  neap_net_free(expanded);
  if (status == NEAP_OK && figures != NULL)
    *figures = (neap_recycle_figures){(int64_t)result.baseline_bytes, (int64_t)result.planned_bytes,
                                      (int64_t)result.lower_bound_bytes, result.n_shared};
  return status;
}
