/* mem_param.c: Caffe's words for memory options put into the engine's: a policy, and a list of
 * blobs to keep.
 *
 * Every door of the driver does this first, so that what is planned, keyed, stored and run only
 * ever sees policy and keep.
 *
 * A *loss* is what a loss op gives, whether or not a gradient is taken of it, what a gradient is
 * taken of, and the scalars that one is made of: the terms of a sum, the value behind a check or a
 * weight.
 *
 * INVARIANT: with planning on, these are kept, data and gradient: what ops without inputs make,
 * every loss, and what exclude_blob lists. Inputs and outputs of a net have bytes of their own
 * anyway.
 */
#include "driver/driver_int.h"

#include <stdio.h>
#include <string.h>

/* Names to keep, each once. Interned, so that they outlive the call. */
typedef struct keeps {
  const neap_net *net;
  const char **name;
  int n, cap;
} keeps;

static neap_status refused(neap_error *error) {
  return neap_fail(error, NEAP_MEMORY, "memory for names to keep was refused");
}

static neap_status add(keeps *k, const char *name, neap_error *error) {
  const char *own = neap_intern(name);
  if (own == NULL) return refused(error);
  for (int i = 0; i < k->n; i++)
    if (k->name[i] == own) return NEAP_OK;
  if (!neap_list_grow(&k->name, &k->cap, k->n + 1, sizeof *k->name)) return refused(error);
  k->name[k->n++] = own;
  return NEAP_OK;
}

static neap_status add_gradient(keeps *k, const char *blob, neap_error *error) {
  neap_buffer text = {0};
  neap_buffer_add(&text, "%s.grad", blob);
  neap_status status = text.failed ? refused(error) : add(k, text.text, error);
  neap_buffer_fini(&text);
  return status;
}

/* ---- what is excluded ------------------------------------------------------------------------ */

/* What an op without inputs makes: Caffe's data layers are such ops. */
static neap_status add_source(keeps *k, const neap_net_op *op, neap_error *error) {
  for (int o = 0; o < op->n_out; o++) {
    if (op->out[o] == NULL) continue;
    NEAP_TRY(add(k, op->out[o], error));
    /* Where the backward pass is written out as ops, one without inputs begins it: with the
     * gradient of the loss. Then the loss is kept too, if it is still made. */
    const neap_net_blob *blob = neap_net_find_blob(k->net, op->out[o]);
    bool begins = blob != NULL && blob->gradient_of != NULL &&
                  neap_net_find_blob(k->net, blob->gradient_of) != NULL;
    if (begins) NEAP_TRY(add(k, blob->gradient_of, error));
  }
  return NEAP_OK;
}

/* Blobs that Caffe never recycles, beside a net's inputs and outputs, as far as the net alone
 * tells. */
static neap_status add_automatic(keeps *k, neap_error *error) {
  for (int i = 0; i < neap_net_n_ops(k->net); i++) {
    const neap_net_op *op = neap_net_op_at(k->net, i);
    int n_in = 0;
    for (int a = 0; a < op->n_in; a++) n_in += op->in[a] != NULL;
    if (n_in == 0) NEAP_TRY(add_source(k, op, error));
    if (op->op->loss && op->out[0] != NULL) NEAP_TRY(add(k, op->out[0], error));
    if (strcmp(op->op->name, "Gradient") == 0 && op->in[0] != NULL)
      NEAP_TRY(add(k, op->in[0], error));
  }
  return NEAP_OK;
}

/* The scalars that the first n names are made of, one by one back to where they are no scalars any
 * more. Inputs of a node stand before its outputs, so one walk over the values finds them all. */
static neap_status add_terms(keeps *k, int n, const neap_graph *graph, neap_error *error) {
  bool *term = neap_alloc_zeroed((size_t)graph->n_value + 1);
  if (term == NULL) return refused(error);
  for (int i = 0; i < n; i++) {
    neap_value_id v = neap_graph_find(graph, k->name[i]);
    if (v != NEAP_NO_VALUE && neap_shape_elems(&graph->value[v].type.shape) == 1) term[v] = true;
  }
  /* From the last value to the first: a term is marked before its own inputs are looked at. */
  neap_status status = NEAP_OK;
  for (int v = graph->n_value - 1; v >= 0 && status == NEAP_OK; v--) {
    const neap_value *value = &graph->value[v];
    if (!term[v] || value->node < 0) continue;
    const neap_node *node = &graph->node[value->node];
    for (int i = 0; i < node->n_in; i++) {
      const neap_value *in = node->in[i] != NEAP_NO_VALUE ? &graph->value[node->in[i]] : NULL;
      if (in != NULL && in->node >= 0 && neap_dtype_is_float(in->type.dtype) &&
          neap_shape_elems(&in->type.shape) == 1)
        term[node->in[i]] = true;
    }
    if (value->is_blob) status = add(k, value->name, error);
  }
  neap_free(term);
  return status;
}

/* ---- exclude_blob ---------------------------------------------------------------------------- */

typedef struct key {
  const char *blob; /* interned */
  bool data, diff;
} key;

static neap_status fail_unknown(const neap_net *net, const char *name, neap_error *error) {
  const char *best = neap_net_nearest(net, name);
  if (error != NULL && error->code == NEAP_OK)
    snprintf(error->blob, sizeof error->blob, "%s", name);
  neap_fail(error, NEAP_NAME, "mem_param: exclude_blob: net \"%s\" has no blob \"%s\"",
            neap_net_name(net), name);
  if (best != NULL) neap_hint(error, "did you mean \"%s\"?", best);
  return NEAP_NAME;
}

/* "conv1.diff" and "conv1.grad": the gradient of conv1; "conv1.data": its values; "conv1": both. A
 * blob that is called so comes first. */
static neap_status read_key(const neap_net *net, const char *name, key *out, neap_error *error) {
  const neap_net_blob *blob = neap_net_find_blob(net, name);
  *out = (key){.data = true, .diff = true};
  const char *dot = strrchr(name, '.');
  /* A last part that is none of the three leaves blob NULL: an unknown name. */
  if (blob == NULL && dot != NULL) {
    out->data = strcmp(dot, ".data") == 0;
    out->diff = strcmp(dot, ".diff") == 0 || strcmp(dot, ".grad") == 0;
    const char *stem = neap_intern_n(name, (size_t)(dot - name));
    if (stem == NULL) return refused(error);
    if (out->data || out->diff) blob = neap_net_find_blob(net, stem);
  }
  if (blob == NULL) return fail_unknown(net, name, error);
  out->blob = blob->name;
  return NEAP_OK;
}

/* ---- gradients ------------------------------------------------------------------------------- */

static bool has_gradient(const neap_graph *graph, const char *blob) {
  for (int v = 0; v < graph->n_value; v++) {
    const char *label = graph->value[v].name;
    size_t stem = neap_gradient_stem(label);
    if (stem > 0 && strlen(blob) == stem && strncmp(label, blob, stem) == 0) return true;
  }
  return false;
}

/* Of a blob that carries no floats nothing is a gradient. What the graph has dropped is taken for
 * floats: keeping it makes it stay, and then its type is known. */
static bool carries_floats(const neap_graph *graph, const char *blob) {
  neap_value_id v = neap_graph_find(graph, blob);
  return v == NEAP_NO_VALUE || neap_dtype_is_float(graph->value[v].type.dtype);
}

/* The terms of losses, and gradients of what is in the list: of the first n_automatic names and of
 * terms where one flows, of those excluded by name in any case: one that nothing flows into is kept
 * too, and zero. Which ones flow only the graph knows; it is made for that and dropped. */
static neap_status add_in_training(keeps *k, int n_automatic, const neap_mem_param *param,
                                   const neap_graph_options *options, neap_error *error) {
  neap_graph_options probe = *options;
  neap_graph *graph;
  probe.n_keep = k->n;
  probe.keep = k->name;
  NEAP_TRY(neap_graph_prepare(k->net, &probe, &graph, error));
  /* The list is now: automatic names, those excluded by name, terms. The middle part is skipped in
   * the first loop, since the second one asks of each whether data, gradient or both are meant. */
  int n_before = k->n;
  neap_status status = add_terms(k, n_automatic, graph, error);
  for (int i = 0, n = k->n; status == NEAP_OK && i < n; i++)
    if ((i < n_automatic || i >= n_before) && has_gradient(graph, k->name[i]))
      status = add_gradient(k, k->name[i], error);
  for (int i = 0; status == NEAP_OK && i < param->n_exclude_blob; i++) {
    key excluded;
    status = read_key(k->net, param->exclude_blob[i], &excluded, error);
    if (status == NEAP_OK && excluded.diff && carries_floats(graph, excluded.blob))
      status = add_gradient(k, excluded.blob, error);
  }
  neap_graph_free(graph);
  return status;
}

/* ---- the translation ------------------------------------------------------------------------- */

static neap_status list_keeps(keeps *k, const neap_compile_options *options, neap_error *error) {
  const neap_mem_param *param = options->mem_param;
  NEAP_TRY(add_automatic(k, error));
  int n_automatic = k->n;
  for (int i = 0; i < param->n_exclude_blob; i++) {
    key excluded;
    NEAP_TRY(read_key(k->net, param->exclude_blob[i], &excluded, error));
    if (excluded.data) NEAP_TRY(add(k, excluded.blob, error));
  }
  if (neap_net_is_train(k->net))
    NEAP_TRY(add_in_training(k, n_automatic, param, &options->graph, error));
  for (int i = 0; i < options->graph.n_keep; i++) NEAP_TRY(add(k, options->graph.keep[i], error));
  return NEAP_OK;
}

neap_status neap_mem_param_resolve(const neap_net *net, const neap_compile_options *options,
                                   neap_arena *room, neap_compile_options *out, neap_error *error) {
  const neap_mem_param *param = options->mem_param;
  *out = *options;
  out->mem_param = NULL;
  if (param == NULL) return NEAP_OK;
  if (param->n_exclude_blob < 0 || (param->n_exclude_blob > 0 && param->exclude_blob == NULL))
    return neap_fail(error, NEAP_ARGUMENT,
                     "mem_param: exclude_blob is a list of n_exclude_blob names");
  if (options->policy_given)
    return neap_fail(error, NEAP_ARGUMENT,
                     "mem_param and policy say the same thing in two ways; give one of them");
  /* Caffe's defaults: training is optimized, testing is not, and debug_info wants all values. */
  bool is_off = neap_net_is_train(net) ? param->no_optimize_train : !param->optimize_test;
  if (param->debug_info || is_off) {
    if (options->dynamic)
      return neap_fail(
        error, NEAP_ARGUMENT,
        "net \"%s\": mem_param switches planning off here, and executor dynamic gives bytes back "
        "as soon as "
        "they have been read; set optimize_test or optimize_train, or take another executor",
        neap_net_name(net));
    out->plan.policy = NEAP_POLICY_NONE;
    return NEAP_OK;
  }
  keeps k = {.net = net};
  neap_status status = list_keeps(&k, options, error);
  out->graph.n_keep = k.n; /* read by nobody after a failure */
  out->graph.keep = neap_arena_copy(room, k.name, (size_t)k.n * sizeof *k.name);
  if (out->graph.keep == NULL && k.n > 0 && status == NEAP_OK) status = refused(error);
  neap_free((void *)k.name);
  return status;
}
