/* mem_param.c: Caffe's words for memory options put into the engine's: a policy, and a list of
 * blobs to keep.
 *
 * Every door of the driver does this first, so that what is planned, keyed, stored and run only
 * ever sees policy and keep.
 *
 * Which values a loss is made of, and whether a gradient flows, only the graph knows: the lists say
 * what is asked for, and building finds it (build/keep.c).
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

/* ---- the translation ------------------------------------------------------------------------- */

/* A list of the way's own. */
static neap_status give(const keeps *k, neap_arena *room, int *n, const char *const **list,
                        neap_error *error) {
  *n = k->n;
  *list = neap_arena_copy(room, k->name, (size_t)k->n * sizeof *k->name);
  return *list != NULL || k->n == 0 ? NEAP_OK : refused(error);
}

/* Into the options: names to keep; and, in training, those that are losses, and blobs whose
 * gradients are excluded by name. */
static neap_status list_keeps(const neap_net *net, const neap_compile_options *options, keeps *keep,
                              keeps *diff, neap_arena *room, neap_graph_options *out,
                              neap_error *error) {
  /* In this order: what is kept automatically, what is excluded by name, what the options keep
   * besides. */
  const neap_mem_param *param = options->mem_param;
  NEAP_TRY(add_automatic(keep, error));
  if (neap_net_is_train(net)) NEAP_TRY(give(keep, room, &out->n_loss, &out->loss, error));
  for (int i = 0; i < param->n_exclude_blob; i++) {
    key excluded;
    NEAP_TRY(read_key(net, param->exclude_blob[i], &excluded, error));
    if (excluded.data) NEAP_TRY(add(keep, excluded.blob, error));
    if (excluded.diff && neap_net_is_train(net)) NEAP_TRY(add(diff, excluded.blob, error));
  }
  for (int i = 0; i < options->graph.n_keep; i++)
    NEAP_TRY(add(keep, options->graph.keep[i], error));
  NEAP_TRY(give(diff, room, &out->n_diff, &out->diff, error));
  return give(keep, room, &out->n_keep, &out->keep, error);
}

neap_status neap_mem_param_resolve(const neap_net *net, const neap_compile_options *options,
                                   neap_arena *room, neap_compile_options *out, neap_error *error) {
  /* Two ways to say one thing are refused, rather than one of them chosen. */
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

  /* Planning is on: what must not be recycled is kept. */
  keeps keep = {.net = net}, diff = {.net = net};
  neap_status status = list_keeps(net, options, &keep, &diff, room, &out->graph, error);
  neap_free((void *)keep.name);
  neap_free((void *)diff.name);
  return status;
}
