/* chain_program.c: the programs of a chain's layers: a net cut in two, its halves planned as
 * ranges, sessions of each batch.
 *
 * A layer has three programs a batch: for evaluation, and the two halves of a training step. All
 * follow the plan of the largest batch, which is made when a program of its kind is first asked
 * for.
 *
 * INVARIANT: blobs that cross a layer's cut have the layer's name in front: no two layers share
 * one.
 */
#include "driver/driver_int.h"

#include <string.h>

static neap_status no_memory(neap_error *error) {
  return neap_fail_memory(error, 64, "the programs of a chain");
}

/* A gradient that layers above have begun: this one's is added to it, in its bytes. */
static neap_status add_sums(const neap_chain_layer *layer, neap_net *net, neap_error *error) {
  int n_output = 0;
  const char **output = neap_alloc_zeroed(((size_t)layer->n_wrt + 1) * sizeof *output);
  if (output == NULL) return no_memory(error);
  neap_status status = NEAP_OK;
  for (int w = 0; status == NEAP_OK && w < layer->n_wrt; w++) {
    output[n_output++] = layer->sum[w] != NULL ? layer->sum[w] : layer->grad[w];
    if (layer->sum[w] == NULL) continue;
    const neap_type *type = &neap_net_find_blob(layer->net, layer->wrt[w])->type;
    const char *in[] = {layer->sum[w], layer->grad[w]};
    neap_net_call call = {.type = "Accumulate", .n_in = 2, .in = in, .n_out = 1, .out = in};
    status =
      neap_net_declare(net, layer->sum[w], NEAP_ROLE_STATE, type, false, NULL, NULL, NULL, error);
    if (status == NEAP_OK) status = neap_net_add(net, &call, NULL, error);
  }
  if (status == NEAP_OK) status = neap_net_set_outputs(net, n_output, output, error);
  neap_free((void *)output);
  return status;
}

static bool reads(const neap_net *net, const char *name) {
  for (int o = 0; o < neap_net_n_ops(net); o++)
    for (int k = 0; k < neap_net_op_at(net, o)->n_in; k++)
      if (neap_net_op_at(net, o)->in[k] == name) return true;
  return false;
}

/* Whether the blob is one that the backward half takes from the forward. */
static bool is_saved(const neap_chain_layer *layer, const neap_net *backward,
                     const neap_net_blob *blob) {
  return blob->role == NEAP_ROLE_INPUT && blob->type.dtype != NEAP_DTYPE_NONE &&
         blob->name != layer->d_output && reads(backward, blob->name);
}

static neap_status rename_in_place(neap_net **net, int n, const char *const *from,
                                   const char *const *to, neap_error *error) {
  neap_net *renamed;
  NEAP_TRY(neap_net_rename(*net, n, from, to, &renamed, error));
  neap_net_free(*net);
  *net = renamed;
  return NEAP_OK;
}

/* Blobs that cross and that the layer's net has no name for, such as a mask, are called after their
 * op: here they get the layer's name too, as others layers may have ops of that name. */
static neap_status name_saved(const neap_chain_layer *layer, neap_halves *halves,
                              neap_error *error) {
  int n = neap_net_n_blobs(halves->backward), n_rename = 0;
  const char **from = neap_alloc_zeroed(2 * ((size_t)n + 1) * sizeof *from);
  if (from == NULL) return no_memory(error);
  const char **to = from + n + 1;
  neap_status status = NEAP_OK;
  for (int b = 0; b < n; b++) {
    const neap_net_blob *blob = neap_net_blob_at(halves->backward, b);
    if (!is_saved(layer, halves->backward, blob) ||
        neap_net_find_blob(layer->net, blob->name) != NULL)
      continue;
    from[n_rename] = blob->name;
    to[n_rename] = neap_chain_blob_name(layer->net, layer->name, blob->name);
    if (to[n_rename++] == NULL) status = no_memory(error);
  }
  if (status == NEAP_OK && n_rename > 0)
    status = rename_in_place(&halves->forward, n_rename, from, to, error);
  if (status == NEAP_OK && n_rename > 0)
    status = rename_in_place(&halves->backward, n_rename, from, to, error);
  neap_free((void *)from);
  return status;
}

static neap_status make_halves(const neap_chain *chain, int i, const neap_chain_step *step,
                               neap_halves *out, neap_error *error) {
  const neap_chain_layer *layer = &chain->layer[i];
  neap_halves_spec spec = {.output = layer->output,
                           .d_output = layer->d_output,
                           .n_wrt = layer->n_wrt,
                           .wrt = layer->wrt,
                           .grad = layer->grad,
                           .stream = (uint32_t)(i + 1) << 16};
  neap_graph_options options = neap_chain_input_type(&layer->input, &step->in);
  NEAP_TRY(
    neap_graph_halves(step->net != NULL ? step->net : layer->net, &spec, &options, out, error));
  neap_status status = name_saved(layer, out, error);
  if (status == NEAP_OK) status = add_sums(layer, out->backward, error);
  if (status == NEAP_OK) return NEAP_OK;
  neap_net_free(out->forward);
  neap_net_free(out->backward);
  return status;
}

/* The backward half's inputs but the gradient that arrives: what it reads of the forward. */
static neap_status list_saved(neap_chain *chain, int i, const neap_net *backward,
                              neap_chain_step *step, neap_error *error) {
  int n = neap_net_n_blobs(backward);
  const char **saved = neap_arena_alloc(&chain->room, ((size_t)n + 1) * sizeof *saved);
  if (saved == NULL) return no_memory(error);
  step->n_saved = 0;
  step->saved = saved;
  for (int b = 0; b < n; b++) {
    const neap_net_blob *blob = neap_net_blob_at(backward, b);
    if (is_saved(&chain->layer[i], backward, blob)) saved[step->n_saved++] = blob->name;
  }
  return NEAP_OK;
}

/* Options of one part's compilation. Types stand in `name` and `type`, of two entries. The halves
 * are run as they were cut: a rewrite would see one side only. */
static neap_compile_options part_options(const neap_chain *chain, int i,
                                         const neap_chain_step *step, neap_chain_part part,
                                         const char *name[2], neap_type type[2]) {
  neap_compile_options options = chain->options;
  name[0] = chain->layer[i].input, type[0] = step->in;
  name[1] = chain->layer[i].d_output, type[1] = step->out;
  options.graph.n_input = part == NEAP_CHAIN_BACKWARD ? 2 : 1;
  options.graph.input = name;
  options.graph.input_type = type;
  options.graph.no_rewrite = part != NEAP_CHAIN_EVALUATE;
  options.graph.no_fuse = options.graph.no_fuse || part != NEAP_CHAIN_EVALUATE;
  options.graph.fuse_pool = options.graph.fuse_pool && part == NEAP_CHAIN_EVALUATE;
  return options;
}

/* The nets of a layer's programs of one mode: net[EVALUATE], or both halves. Owned. Where nothing
 * is differentiated, as in a first layer of integers without parameters, there is no backward
 * half. */
static neap_status make_nets(neap_chain *chain, int i, neap_chain_step *step, bool train,
                             neap_net *net[NEAP_CHAIN_N_PART], neap_error *error) {
  const neap_net *whole = step->net != NULL ? step->net : chain->layer[i].net;
  if (!train) return neap_net_evaluation(whole, &net[NEAP_CHAIN_EVALUATE], error);
  if (chain->layer[i].n_wrt == 0) return neap_net_clone(whole, &net[NEAP_CHAIN_FORWARD], error);
  neap_halves halves;
  NEAP_TRY(make_halves(chain, i, step, &halves, error));
  net[NEAP_CHAIN_FORWARD] = halves.forward;
  net[NEAP_CHAIN_BACKWARD] = halves.backward;
  step->repeats = halves.repeats;
  return list_saved(chain, i, halves.backward, step, error);
}

/* Ranges of the largest batch, where this is asked for first. */
static neap_status make_ranges(neap_chain *chain, int i, neap_net *const net[NEAP_CHAIN_N_PART],
                               const neap_chain_step *most, neap_error *error) {
  for (int p = 0; p < NEAP_CHAIN_N_PART; p++) {
    const char *name[2];
    neap_type type[2];
    if (net[p] == NULL || chain->layer[i].range[p] != NULL) continue;
    neap_compile_options options = part_options(chain, i, most, (neap_chain_part)p, name, type);
    NEAP_TRY(neap_range_new(net[p], &options, &chain->layer[i].range[p], error));
  }
  return NEAP_OK;
}

static neap_status make_sessions(neap_chain *chain, int i, neap_net *const net[NEAP_CHAIN_N_PART],
                                 neap_chain_step *step, neap_error *error) {
  for (int p = 0; p < NEAP_CHAIN_N_PART; p++) {
    const char *name[2];
    neap_type type[2];
    if (net[p] == NULL || step->session[p] != NULL) continue;
    neap_compile_options options = part_options(chain, i, step, (neap_chain_part)p, name, type);
    NEAP_TRY(neap_range_compile(chain->layer[i].range[p], chain->ws, net[p], &options,
                                &step->session[p], error));
  }
  return NEAP_OK;
}

static void free_nets(neap_net *net[NEAP_CHAIN_N_PART]) {
  for (int p = 0; p < NEAP_CHAIN_N_PART; p++) neap_net_free(net[p]), net[p] = NULL;
}

/* Layers above the first must pass a gradient on. */
static neap_status check_backward(const neap_chain *chain, int i, neap_error *error) {
  neap_error inner = {0};
  if (i == 0 || chain->layer[i].d_input != NULL) return NEAP_OK;
  neap_hint(&inner, "only the first layer may read integers when the chain trains");
  neap_fail(&inner, NEAP_DTYPE,
            "input \"%s\" expects a floating-point dtype, so that a gradient passes, got %s",
            chain->layer[i].own_input, neap_dtype_name(chain->batch[0].step[i].in.dtype));
  return neap_chain_in_layer(chain, i, &inner, error);
}

/* The programs of one layer at one batch: the range of the largest batch first, in whose memory all
 * of them run. */
static neap_status prepare_layer(neap_chain *chain, int i, int at, neap_chain_part part,
                                 neap_net *net[NEAP_CHAIN_N_PART], neap_error *error) {
  bool train = part != NEAP_CHAIN_EVALUATE;
  neap_chain_step *step = &chain->batch[at].step[i], *most = &chain->batch[0].step[i];
  if (chain->layer[i].range[part] == NULL ||
      (part == NEAP_CHAIN_FORWARD && chain->layer[i].n_wrt > 0 &&
       chain->layer[i].range[NEAP_CHAIN_BACKWARD] == NULL)) {
    NEAP_TRY(make_nets(chain, i, most, train, net, error));
    NEAP_TRY(make_ranges(chain, i, net, most, error));
    if (step != most) free_nets(net);
  }
  if (net[part] == NULL) NEAP_TRY(make_nets(chain, i, step, train, net, error));
  return make_sessions(chain, i, net, step, error);
}

neap_status neap_chain_prepare(neap_chain *chain, int at, neap_chain_part part, neap_error *error) {
  for (int i = 0; i < chain->n_layer; i++) {
    const neap_chain_step *step = &chain->batch[at].step[i];
    bool has_backward = step->session[NEAP_CHAIN_BACKWARD] != NULL || chain->layer[i].n_wrt == 0;
    if (step->session[part] != NULL && (part == NEAP_CHAIN_EVALUATE || has_backward)) continue;
    if (part != NEAP_CHAIN_EVALUATE) NEAP_TRY(check_backward(chain, i, error));
    neap_net *net[NEAP_CHAIN_N_PART] = {NULL};
    neap_error inner = {0};
    neap_status status = prepare_layer(chain, i, at, part, net, &inner);
    free_nets(net);
    if (status != NEAP_OK) return neap_chain_in_layer(chain, i, &inner, error);
  }
  return NEAP_OK;
}
