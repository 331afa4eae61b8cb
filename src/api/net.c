/* net.c: nets as text, their backward written out. */
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
