/* net.c: nets as text, their backward written out. */
#include "api/api.h"

#include <stdio.h>
#include <string.h>

neap_status neap_net_add_text(neap_net *net, neap_error *error, const char *format, ...) {
  char small[512];
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);

  /* Short lines need no memory. What was cut is printed once more, into a block of its length: the
   * arguments are read a second time, so that they were copied first. */
  int n = neap_format_list(small, sizeof small, format, args);
  va_end(args);
  char *text = n < (int)sizeof small ? small : neap_alloc((size_t)n + 1);
  if (text != NULL && text != small) neap_format_list(text, (size_t)n + 1, format, again);
  va_end(again);

  /* Only now, since both lists of arguments must be ended. */
  if (n < 0) return neap_fail(error, NEAP_ARGUMENT, "add_text: the format can't be printed");
  if (text == NULL) return neap_fail_memory(error, (size_t)n + 1, "lines of a net");
  neap_status status = neap_net_read_lines(net, text, error);
  if (text != small) neap_free(text);
  return status;
}

neap_status neap_net_text_with(const neap_net *net, bool lines, char **out, neap_error *error) {
  neap_buffer buffer = {0};
  *out = NULL;
  neap_net_print(net, lines, &buffer);
  return neap_api_give_text(&buffer, out, error);
}

neap_status neap_net_text(const neap_net *net, char **out, neap_error *error) {
  return neap_net_text_with(net, false, out, error);
}

/* What the Gradient op just added has against its loss or what it differentiates by: only the whole
 * graph tells, whether the loss depends on it. Other errors are not this op's: a net that is not
 * complete yet has its own. */
static neap_status check_gradient(const neap_net *net, const char *name, neap_error *error) {
  neap_error own = {0};
  neap_graph *graph = NULL;
  static const neap_graph_options as_declared = {0};

  /* A subnet alone is no graph: the net around it checks it. */
  if (neap_net_outer(net) != NULL ||
      neap_graph_prepare(net, &as_declared, &graph, &own) == NEAP_OK) {
    neap_graph_free(graph);
    return NEAP_OK;
  }

  /* The error names the op: another Gradient of this net may be at fault. */
  bool is_its = strcmp(own.op, "Gradient") == 0 && strstr(own.message, name) != NULL;
  if (is_its && error != NULL) *error = own;
  return is_its ? own.code : NEAP_OK;
}

neap_status neap_net_gradient(neap_net *net, const char *loss, int n_wrt, const char *const *wrt,
                              bool allow_unused, const char *line, neap_error *error) {
  /* Added, then looked at; what fails leaves the net as it was. */
  int at = neap_net_mark(net);
  neap_status status =
    neap_net_add_gradient_of(net, loss, n_wrt, wrt, NULL, allow_unused, line, error);
  if (status == NEAP_OK)
    status = check_gradient(net, neap_net_op_at(net, neap_net_n_ops(net) - 1)->name, error);
  neap_net_end_mark(net, at, status == NEAP_OK);
  return status;
}

neap_status neap_net_expand(const neap_net *net, const neap_options *options, neap_net **out,
                            neap_error *error) {
  neap_compile_options compile;
  neap_graph *graph;
  *out = NULL;
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_C, __func__, &compile, error));
  NEAP_TRY(neap_graph_prepare(net, &compile.graph, &graph, error));
  neap_status status = neap_graph_to_net(graph, net, out, error);
  neap_graph_free(graph);
  return status;
}
