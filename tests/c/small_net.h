/* small_net.h: a classifier of one layer, its text, and a round trip through that text: what tests
 * of nets begin with. */
#ifndef NEAP_TESTS_SMALL_NET_H
#define NEAP_TESTS_SMALL_NET_H

#include "check.h"

#include "net/net.h"

#include <stdlib.h>

#define LIST(...) \
  (const char *const[]) { __VA_ARGS__ }

static const neap_type x_type = {NEAP_DTYPE_F32, {2, {64, 784}}};
static const neap_type w_type = {NEAP_DTYPE_F32, {2, {10, 784}}};
static const neap_type b_type = {NEAP_DTYPE_F32, {1, {10}}};

/* An op with one output. */
static inline neap_status add(neap_net *net, const char *type, int n_in, const char *const *in,
                              const char *out, neap_error *error) {
  neap_net_call call = {.type = type,
                        .n_in = n_in,
                        .in = in,
                        .n_out = 1,
                        .out = &out,
                        .scope = "block1",
                        .line = "mlp.lua:7"};
  return neap_net_add(net, &call, NULL, error);
}

/* x, w, b -> FC -> h -> Relu, in place by name */
static inline neap_status build(neap_net **out, neap_error *error) {
  neap_net *net = NULL;
  neap_status status = neap_net_new("mlp", &net, error);
  if (status == NEAP_OK)
    status =
      neap_net_declare(net, "x", NEAP_ROLE_INPUT, &x_type, false, NULL, NULL, "mlp.lua:1", error);
  if (status == NEAP_OK)
    status =
      neap_net_declare(net, "w", NEAP_ROLE_PARAMETER, &w_type, true, NULL, NULL, NULL, error);
  if (status == NEAP_OK)
    status =
      neap_net_declare(net, "b", NEAP_ROLE_PARAMETER, &b_type, false, NULL, NULL, NULL, error);
  if (status == NEAP_OK) status = add(net, "FC", 3, LIST("x", "w", "b"), "h", error);
  if (status == NEAP_OK) status = add(net, "Relu", 1, LIST("h"), "h", error);
  if (status == NEAP_OK) status = add(net, "Relu", 1, LIST("h"), NULL, error);
  if (status == NEAP_OK) status = neap_net_keep(net, "h", error);
  if (status == NEAP_OK) {
    *out = net;
    return NEAP_OK;
  }
  neap_net_free(net);
  return status;
}

static inline neap_net *built(void) {
  neap_net *net = NULL;
  neap_error error = {0};
  if (build(&net, &error) != NEAP_OK) printf("  build: %s\n", error.message), check_failures++;
  return net;
}

/* Texts with lines and without; from malloc. */
static inline char *text_of(const neap_net *net, bool lines) {
  neap_buffer out = {0};
  neap_net_print(net, lines, &out);
  char *text = strdup(out.text != NULL ? out.text : "");
  neap_buffer_fini(&out);
  return text;
}

/* Reads `text` and checks that it prints the same again. */
static inline void check_round_trip(const char *text, bool lines) {
  neap_net *net = NULL;
  CHECK_OK(neap_net_read(text, &net, &error));
  if (net == NULL) return;
  char *again = text_of(net, lines);
  CHECK(strcmp(text, again) == 0);
  if (strcmp(text, again) != 0) printf("--- text\n%s--- again\n%s---\n", text, again);
  free(again);
  neap_net_free(net);
}

#endif
