/* chain.c: a chain of layers made: what a layer must be, its blobs' names in the workspace, and its programs.
 *
 * A layer's net is copied with names that no other layer has: its output is "LAYER/output", the gradient of that
 * "LAYER/output_grad", all else that it makes "LAYER/NAME"; its input is the output of the layer below. Parameters and state
 * keep their names: so layers may share them.
 *
 * Layer i is given for one batch; other batches are the same net with another first dimension, or nets of their own. Types are
 * inferred from layer to layer.
 */
#include "driver/driver_int.h"

#include <stdio.h>
#include <string.h>

static neap_status no_memory(neap_error *error) { return neap_fail_memory(error, 64, "a chain of layers"); }

neap_status neap_chain_in_layer(const neap_chain *chain, int i, const neap_error *inner, neap_error *error) {
  if (error == NULL || error->code != NEAP_OK) return inner->code;
  *error = *inner;
  snprintf(error->message, sizeof error->message, "layer \"%.100s\": %.600s", chain->layer[i].name, inner->message);
  return inner->code;
}

/* ---- what a layer must be ------------------------------------------------------------------------------------------------- */

static neap_status find_input(const neap_net *net, const char **input, neap_error *error) {
  int n = 0;
  char list[120] = "";
  for (int b = 0; b < neap_net_n_blobs(net); b++) {
    const neap_net_blob *blob = neap_net_blob_at(net, b);
    if (blob->role != NEAP_ROLE_INPUT || blob->type.dtype == NEAP_DTYPE_NONE) continue;
    *input = blob->name;
    size_t used = strlen(list);
    snprintf(list + used, sizeof list - used, "%s%.40s", n++ > 0 ? ", " : "", blob->name);
  }
  if (n != 1) {
    neap_hint(error, "what else it reads is a parameter or state");
    return neap_fail(error, NEAP_GRAPH, "a layer has one input, got %d%s%s%s", n, n > 0 ? " (" : "", list, n > 0 ? ")" : "");
  }
  if (neap_net_find_blob(net, *input)->type.shape.n_dim > 0) return NEAP_OK;
  return neap_fail(error, NEAP_SHAPE, "input \"%s\" expects a batch as its first dimension, got ()", *input);
}

static neap_status check_layer(neap_chain *chain, int i, const neap_net *net, neap_error *error) {
  neap_chain_layer *layer = &chain->layer[i];
  if (neap_net_is_train(net)) {
    neap_hint(error, "the chain makes the backward pass itself");
    return neap_fail(error, NEAP_GRAPH, "a layer is a forward pass, got a net with a gradient");
  }
  NEAP_TRY(find_input(net, &layer->own_input, error));
  if (neap_net_n_outputs(net) != 1) {
    neap_hint(error, "\"outputs NAME\" says which");
    return neap_fail(error, NEAP_GRAPH, "a layer has one output, got %d", neap_net_n_outputs(net));
  }
  layer->own_output = neap_net_output_at(net, 0);
  const neap_net_blob *output = neap_net_find_blob(net, layer->own_output);
  if (output == NULL || output->type.dtype != NEAP_DTYPE_NONE)
    return neap_fail(error, NEAP_GRAPH, "output \"%s\" expects an op that makes it", layer->own_output);
  for (int k = 0; k < i; k++)
    if (strcmp(chain->layer[k].name, layer->name) == 0) {
      neap_hint(error, "\"net NAME\" is the layer's name");
      return neap_fail(error, NEAP_NAME, "another layer has this name");
    }
  return NEAP_OK;
}

/* ---- names ------------------------------------------------------------------------------------------------------------------ */

/* "LAYER/what", or with "~" behind it while a parameter or state of the chain is called so. NULL when memory is refused. */
static const char *blob_name(const neap_net *net, const char *layer, const char *what) {
  char text[256];
  snprintf(text, sizeof text, "%.120s/%.120s", layer, what);
  for (;;) {
    const neap_net_blob *blob = neap_net_find_blob(net, text);
    if (blob == NULL || blob->type.dtype == NEAP_DTYPE_NONE || strlen(text) + 2 > sizeof text) return neap_intern(text);
    strcat(text, "~");
  }
}

static const char *grad_name(const char *prefix, const char *name) {
  char text[256];
  snprintf(text, sizeof text, "%.100s%s%.140s_grad", prefix, prefix[0] != '\0' ? "/" : "", name);
  return neap_intern(text);
}

/* The net under the workspace's names. */
static neap_status rename_layer(const neap_chain_layer *layer, const neap_net *net, neap_net **out, neap_error *error) {
  int n = neap_net_n_blobs(net), n_rename = 0;
  const char **from = neap_alloc_zeroed(2 * ((size_t)n + 1) * sizeof *from);
  if (from == NULL) return no_memory(error);
  const char **to = from + n + 1;
  neap_status status = NEAP_OK;
  for (int b = 0; b < n; b++) {
    const neap_net_blob *blob = neap_net_blob_at(net, b);
    if (blob->role == NEAP_ROLE_PARAMETER || blob->role == NEAP_ROLE_STATE) continue;
    from[n_rename] = blob->name;
    to[n_rename] = strcmp(blob->name, layer->own_input) == 0    ? layer->input
                   : strcmp(blob->name, layer->own_output) == 0 ? layer->output
                                                                : blob_name(net, layer->name, blob->name);
    if (strcmp(blob->name, "output") == 0 && to[n_rename] == layer->output && strcmp(layer->own_output, "output") != 0)
      to[n_rename] = blob_name(net, layer->name, "output~");
    if (to[n_rename++] == NULL) status = no_memory(error);
  }
  if (status == NEAP_OK) status = neap_net_rename(net, n_rename, from, to, out, error);
  neap_free((void *)from);
  return status;
}

static neap_status name_layer(neap_chain *chain, int i, const neap_net *net, neap_error *error) {
  neap_chain_layer *layer = &chain->layer[i];
  layer->input = i > 0 ? chain->layer[i - 1].output : neap_intern(layer->own_input);
  layer->output = blob_name(net, layer->name, "output");
  if (layer->input == NULL || layer->output == NULL) return no_memory(error);
  bool is_float = neap_dtype_is_float(neap_net_find_blob(net, layer->own_input)->type.dtype);
  layer->d_output = grad_name("", layer->output);
  layer->d_input = is_float ? grad_name("", layer->input) : NULL;
  if (layer->d_output == NULL || (is_float && layer->d_input == NULL)) return no_memory(error);
  return rename_layer(layer, net, &layer->net, error);
}

/* ---- parameters --------------------------------------------------------------------------------------------------------------- */

static neap_status add_param(neap_chain *chain, const char *name, const char *layer, bool trains, neap_error *error) {
  for (int p = 0; p < chain->n_param; p++)
    if (chain->param[p].name == name) return NEAP_OK;
  const char *grad = trains ? grad_name("", name) : NULL;
  if ((trains && grad == NULL) || !neap_list_grow(&chain->param, &chain->cap_param, chain->n_param + 1, sizeof *chain->param))
    return no_memory(error);
  chain->param[chain->n_param++] = (neap_chain_parameter){.name = name, .layer = layer, .grad = grad};
  return NEAP_OK;
}

/* Whether a layer above i trains the parameter too: its gradient is then there first, and this layer's is added to it. */
static bool trained_above(const neap_chain *chain, int i, const char *name) {
  for (int k = i + 1; k < chain->n_layer; k++) {
    const neap_net_blob *blob = neap_net_find_blob(chain->layer[k].net, name);
    if (blob != NULL && blob->role == NEAP_ROLE_PARAMETER && blob->trainable) return true;
  }
  return false;
}

/* What the layer's backward differentiates by, and where the gradients go. */
static neap_status list_wrt(neap_chain *chain, int i, neap_error *error) {
  neap_chain_layer *layer = &chain->layer[i];
  int n = neap_net_n_blobs(layer->net);
  layer->wrt = neap_arena_alloc(&chain->room, ((size_t)n + 1) * sizeof *layer->wrt);
  layer->grad = neap_arena_alloc(&chain->room, ((size_t)n + 1) * sizeof *layer->grad);
  layer->sum = neap_arena_alloc(&chain->room, ((size_t)n + 1) * sizeof *layer->sum);
  if (layer->wrt == NULL || layer->grad == NULL || layer->sum == NULL) return no_memory(error);
  for (int b = 0; b < n; b++) {
    const neap_net_blob *blob = neap_net_blob_at(layer->net, b);
    if (blob->role != NEAP_ROLE_PARAMETER) continue;
    bool trains = blob->trainable && neap_dtype_is_float(blob->type.dtype);
    NEAP_TRY(add_param(chain, blob->name, layer->name, trains, error));
    if (!trains) continue;
    bool above = trained_above(chain, i, blob->name);
    layer->wrt[layer->n_wrt] = blob->name;
    layer->grad[layer->n_wrt] = grad_name(above ? layer->name : "", blob->name);
    layer->sum[layer->n_wrt] = above ? grad_name("", blob->name) : NULL;
    if (layer->grad[layer->n_wrt] == NULL || (above && layer->sum[layer->n_wrt] == NULL)) return no_memory(error);
    layer->n_wrt++;
  }
  if (layer->d_input == NULL) return NEAP_OK;
  layer->wrt[layer->n_wrt] = layer->input;
  layer->grad[layer->n_wrt++] = layer->d_input;
  return NEAP_OK;
}

/* ---- batches -------------------------------------------------------------------------------------------------------------------- */

static neap_graph_options input_type(const char *const *name, const neap_type *type) {
  return (neap_graph_options){.n_input = 1, .input = name, .input_type = type};
}

/* Types from layer to layer, beginning with the first one's input at this batch. */
static neap_status infer_types(neap_chain *chain, neap_chain_batch *batch, neap_error *error) {
  for (int i = 0; i < chain->n_layer; i++) {
    const neap_chain_layer *layer = &chain->layer[i];
    neap_chain_step *step = &batch->step[i];
    const neap_net *net = step->net != NULL ? step->net : layer->net;
    step->in = i > 0 ? batch->step[i - 1].out : neap_net_find_blob(net, layer->input)->type;
    if (i == 0) step->in.shape.dim[0] = batch->n;
    neap_graph_options options = input_type(&layer->input, &step->in);
    neap_error inner = {0};
    if (neap_graph_type(net, &options, layer->output, &step->out, &inner) != NEAP_OK)
      return neap_chain_in_layer(chain, i, &inner, error);
  }
  return NEAP_OK;
}

/* Layer i's input as its net declares it against what the layer below gives: dtype and all dimensions. */
static neap_status check_link(const neap_chain *chain, int i, const neap_type *got, neap_error *error) {
  const neap_type *want = &neap_net_find_blob(chain->layer[i].net, chain->layer[i].input)->type;
  if (neap_type_equal(want, got)) return NEAP_OK;
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  neap_error inner = {0};
  snprintf(inner.blob, sizeof inner.blob, "%s", chain->layer[i].own_input);
  snprintf(inner.expected, sizeof inner.expected, "%s %.110s", neap_dtype_name(want->dtype), neap_shape_text(&want->shape, a));
  snprintf(inner.got, sizeof inner.got, "%s %.110s", neap_dtype_name(got->dtype), neap_shape_text(&got->shape, b));
  neap_hint(&inner, "all layers are declared at the batch of the first one's input");
  neap_fail(&inner, want->dtype != got->dtype ? NEAP_DTYPE : NEAP_SHAPE,
            "input \"%s\" expects %s %s, and layer \"%s\" below gives %s %s", chain->layer[i].own_input,
            neap_dtype_name(want->dtype), a, chain->layer[i - 1].name, neap_dtype_name(got->dtype), b);
  return neap_chain_in_layer(chain, i, &inner, error);
}

/* At the declared batch, where shapes can be compared as the user wrote them. */
static neap_status check_links(neap_chain *chain, neap_error *error) {
  for (int i = 0; i + 1 < chain->n_layer; i++) {
    const neap_type *in = &neap_net_find_blob(chain->layer[i].net, chain->layer[i].input)->type;
    neap_graph_options options = input_type(&chain->layer[i].input, in);
    neap_type out;
    neap_error inner = {0};
    if (neap_graph_type(chain->layer[i].net, &options, chain->layer[i].output, &out, &inner) != NEAP_OK)
      return neap_chain_in_layer(chain, i, &inner, error);
    NEAP_TRY(check_link(chain, i + 1, &out, error));
  }
  return NEAP_OK;
}

static void batch_fini(const neap_chain *chain, neap_chain_batch *batch) {
  for (int i = 0; batch->step != NULL && i < chain->n_layer; i++) {
    for (int p = 0; p < NEAP_CHAIN_N_PART; p++) neap_session_free(batch->step[i].session[p]);
    neap_net_free(batch->step[i].net);
  }
  neap_free(batch->step);
}

/* A new last batch; `net` NULL: the chain's own nets. */
static neap_status add_batch(neap_chain *chain, int64_t n, const neap_net *const *net, neap_error *error) {
  if (n < 1 || n > chain->max_batch) {
    neap_hint(error, "open the chain with a larger max_batch");
    return neap_fail(error, NEAP_SHAPE, "chain: a batch expects 1 to %lld rows, got %lld", (long long)chain->max_batch,
                     (long long)n);
  }
  neap_chain_batch batch = {.n = n, .step = neap_alloc_zeroed((size_t)chain->n_layer * sizeof *batch.step)};
  neap_status status = batch.step != NULL ? NEAP_OK : no_memory(error);
  for (int i = 0; net != NULL && status == NEAP_OK && i < chain->n_layer; i++)
    status = rename_layer(&chain->layer[i], net[i], &batch.step[i].net, error);
  if (status == NEAP_OK) status = infer_types(chain, &batch, error);
  if (status == NEAP_OK && !neap_list_grow(&chain->batch, &chain->cap_batch, chain->n_batch + 1, sizeof batch))
    status = no_memory(error);
  if (status == NEAP_OK)
    chain->batch[chain->n_batch++] = batch;
  else
    batch_fini(chain, &batch);
  return status;
}

static int batch_at(const neap_chain *chain, int64_t n) {
  for (int b = 0; b < chain->n_batch; b++)
    if (chain->batch[b].n == n) return b;
  return -1;
}

bool neap_chain_has_batch(const neap_chain *chain, int64_t batch) { return batch_at(chain, batch) >= 0; }

neap_status neap_chain_find_batch(neap_chain *chain, int64_t batch, int *at, neap_error *error) {
  if ((*at = batch_at(chain, batch)) >= 0) return NEAP_OK;
  *at = chain->n_batch;
  return add_batch(chain, batch, NULL, error);
}

neap_status neap_chain_add_batch(neap_chain *chain, int64_t batch, const neap_net *const *layer, neap_error *error) {
  if (neap_chain_has_batch(chain, batch))
    return neap_fail(error, NEAP_ARGUMENT, "chain: batch %lld is there already", (long long)batch);
  for (int i = 0; i < chain->n_layer; i++) {
    const neap_net_blob *in = neap_net_find_blob(layer[i], chain->layer[i].own_input),
                        *out = neap_net_find_blob(layer[i], chain->layer[i].own_output);
    if (in == NULL || out == NULL || in->type.dtype == NEAP_DTYPE_NONE)
      return neap_fail(error, NEAP_NAME, "chain: layer \"%s\" at batch %lld expects input \"%s\" and output \"%s\"",
                       chain->layer[i].name, (long long)batch, chain->layer[i].own_input, chain->layer[i].own_output);
  }
  return add_batch(chain, batch, layer, error);
}

/* ---- programs ---------------------------------------------------------------------------------------------------------------------- */

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
    status = neap_net_declare(net, layer->sum[w], NEAP_ROLE_STATE, type, false, NULL, NULL, NULL, error);
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
static bool is_saved(const neap_chain_layer *layer, const neap_net *backward, const neap_net_blob *blob) {
  return blob->role == NEAP_ROLE_INPUT && blob->type.dtype != NEAP_DTYPE_NONE && blob->name != layer->d_output &&
         reads(backward, blob->name);
}

static neap_status rename_in_place(neap_net **net, int n, const char *const *from, const char *const *to, neap_error *error) {
  neap_net *renamed;
  NEAP_TRY(neap_net_rename(*net, n, from, to, &renamed, error));
  neap_net_free(*net);
  *net = renamed;
  return NEAP_OK;
}

/* Blobs that cross and that the layer's net has no name for, such as a mask, are called after their op: here they get the layer's
 * name too, as others layers may have ops of that name. */
static neap_status name_saved(const neap_chain_layer *layer, neap_halves *halves, neap_error *error) {
  int n = neap_net_n_blobs(halves->backward), n_rename = 0;
  const char **from = neap_alloc_zeroed(2 * ((size_t)n + 1) * sizeof *from), **to = from + n + 1;
  if (from == NULL) return no_memory(error);
  neap_status status = NEAP_OK;
  for (int b = 0; b < n; b++) {
    const neap_net_blob *blob = neap_net_blob_at(halves->backward, b);
    if (!is_saved(layer, halves->backward, blob) || neap_net_find_blob(layer->net, blob->name) != NULL) continue;
    from[n_rename] = blob->name;
    to[n_rename] = blob_name(layer->net, layer->name, blob->name);
    if (to[n_rename++] == NULL) status = no_memory(error);
  }
  if (status == NEAP_OK && n_rename > 0) status = rename_in_place(&halves->forward, n_rename, from, to, error);
  if (status == NEAP_OK && n_rename > 0) status = rename_in_place(&halves->backward, n_rename, from, to, error);
  neap_free((void *)from);
  return status;
}

static neap_status make_halves(const neap_chain *chain, int i, const neap_chain_step *step, neap_halves *out, neap_error *error) {
  const neap_chain_layer *layer = &chain->layer[i];
  neap_halves_spec spec = {.output = layer->output,
                           .d_output = layer->d_output,
                           .n_wrt = layer->n_wrt,
                           .wrt = layer->wrt,
                           .grad = layer->grad,
                           .stream = (uint32_t)(i + 1) << 16};
  neap_graph_options options = input_type(&layer->input, &step->in);
  NEAP_TRY(neap_graph_halves(step->net != NULL ? step->net : layer->net, &spec, &options, out, error));
  neap_status status = name_saved(layer, out, error);
  if (status == NEAP_OK) status = add_sums(layer, out->backward, error);
  if (status == NEAP_OK) return NEAP_OK;
  neap_net_free(out->forward);
  neap_net_free(out->backward);
  return status;
}

/* The backward half's inputs but the gradient that arrives: what it reads of the forward. */
static neap_status list_saved(neap_chain *chain, int i, const neap_net *backward, neap_chain_step *step, neap_error *error) {
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

/* Options of one part's compilation. Types stand in `name` and `type`, of two entries. The halves of a training step keep their
 * ops apart, as the whole step would. */
static neap_compile_options part_options(const neap_chain *chain, int i, const neap_chain_step *step, neap_chain_part part,
                                         const char *name[2], neap_type type[2]) {
  neap_compile_options options = chain->options;
  name[0] = chain->layer[i].input, type[0] = step->in;
  name[1] = chain->layer[i].d_output, type[1] = step->out;
  options.graph.n_input = part == NEAP_CHAIN_BACKWARD ? 2 : 1;
  options.graph.input = name;
  options.graph.input_type = type;
  options.graph.no_fuse = options.graph.no_fuse || part != NEAP_CHAIN_EVALUATE;
  options.graph.fuse_pool = options.graph.fuse_pool && part == NEAP_CHAIN_EVALUATE;
  return options;
}

/* The nets of a layer's programs of one mode: net[EVALUATE], or both halves. Owned. Where nothing is differentiated, as in a first
 * layer of integers without parameters, there is no backward half. */
static neap_status make_nets(neap_chain *chain, int i, neap_chain_step *step, bool train, neap_net *net[NEAP_CHAIN_N_PART],
                             neap_error *error) {
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
static neap_status make_ranges(neap_chain *chain, int i, neap_net *const net[NEAP_CHAIN_N_PART], const neap_chain_step *most,
                               neap_error *error) {
  for (int p = 0; p < NEAP_CHAIN_N_PART; p++) {
    const char *name[2];
    neap_type type[2];
    if (net[p] == NULL || chain->layer[i].range[p] != NULL) continue;
    neap_compile_options options = part_options(chain, i, most, (neap_chain_part)p, name, type);
    NEAP_TRY(neap_range_new(net[p], &options, &chain->layer[i].range[p], error));
  }
  return NEAP_OK;
}

static neap_status make_sessions(neap_chain *chain, int i, neap_net *const net[NEAP_CHAIN_N_PART], neap_chain_step *step,
                                 neap_error *error) {
  for (int p = 0; p < NEAP_CHAIN_N_PART; p++) {
    const char *name[2];
    neap_type type[2];
    if (net[p] == NULL || step->session[p] != NULL) continue;
    neap_compile_options options = part_options(chain, i, step, (neap_chain_part)p, name, type);
    NEAP_TRY(neap_range_compile(chain->layer[i].range[p], chain->ws, net[p], &options, &step->session[p], error));
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
  neap_fail(&inner, NEAP_DTYPE, "input \"%s\" expects a floating-point dtype, so that a gradient passes, got %s",
            chain->layer[i].own_input, neap_dtype_name(chain->batch[0].step[i].in.dtype));
  return neap_chain_in_layer(chain, i, &inner, error);
}

/* The programs of one layer at one batch: the range of the largest batch first, in whose memory all of them run. */
static neap_status prepare_layer(neap_chain *chain, int i, int at, neap_chain_part part, neap_net *net[NEAP_CHAIN_N_PART],
                                 neap_error *error) {
  bool train = part != NEAP_CHAIN_EVALUATE;
  neap_chain_step *step = &chain->batch[at].step[i], *most = &chain->batch[0].step[i];
  if (chain->layer[i].range[part] == NULL ||
      (part == NEAP_CHAIN_FORWARD && chain->layer[i].n_wrt > 0 && chain->layer[i].range[NEAP_CHAIN_BACKWARD] == NULL)) {
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

/* ---- making and freeing --------------------------------------------------------------------------------------------------------- */

static neap_status copy_options(neap_chain *chain, const neap_compile_options *options, neap_error *error) {
  chain->options = *options;
  chain->options.script = chain->options.tag = NULL;
  if (options->engine == NULL) return NEAP_OK;
  chain->options.engine = neap_intern(options->engine);
  return chain->options.engine != NULL ? NEAP_OK : no_memory(error);
}

static neap_status make(neap_chain *chain, int n, const neap_net *const *net, const neap_compile_options *options,
                        neap_error *error) {
  chain->layer = neap_arena_alloc(&chain->room, (size_t)n * sizeof *chain->layer);
  chain->output = neap_arena_alloc(&chain->room, (size_t)n * sizeof *chain->output);
  chain->input = neap_arena_alloc(&chain->room, (size_t)n * sizeof *chain->input);
  if (chain->layer == NULL || chain->output == NULL || chain->input == NULL) return no_memory(error);
  NEAP_TRY(copy_options(chain, options, error));
  for (chain->n_layer = 0; chain->n_layer < n; chain->n_layer++) {
    int i = chain->n_layer;
    neap_error inner = {0};
    chain->layer[i].name = chain->layer[i].cache.name = neap_intern(neap_net_name(net[i]));
    if (chain->layer[i].name == NULL) return no_memory(error);
    neap_status status = check_layer(chain, i, net[i], &inner);
    if (status == NEAP_OK) status = name_layer(chain, i, net[i], &inner);
    if (status != NEAP_OK) return neap_chain_in_layer(chain, i, &inner, error);
  }
  NEAP_TRY(check_links(chain, error));
  for (int i = 0; i < n; i++) NEAP_TRY(list_wrt(chain, i, error));
  NEAP_TRY(add_batch(chain, chain->max_batch, NULL, error));
  for (int i = 0; i < n; i++) NEAP_TRY(neap_workspace_init(chain->ws, chain->layer[i].net, error));
  return NEAP_OK;
}

neap_status neap_chain_new(neap_workspace *ws, int n, const neap_net *const *layer, int64_t max_batch,
                           const neap_compile_options *options, neap_chain **out, neap_error *error) {
  *out = NULL;
  if (n < 1) return neap_fail(error, NEAP_ARGUMENT, "chain: expects at least one layer, got %d", n);
  if (max_batch < 1)
    return neap_fail(error, NEAP_ARGUMENT, "chain: max_batch expects at least 1 row, got %lld", (long long)max_batch);
  neap_chain *chain = neap_alloc_zeroed(sizeof *chain);
  if (chain == NULL) return no_memory(error);
  chain->ws = neap_workspace_retain(ws);
  chain->max_batch = max_batch;
  neap_status status = make(chain, n, layer, options, error);
  if (status != NEAP_OK) {
    neap_chain_free(chain);
    return status;
  }
  *out = chain;
  return NEAP_OK;
}

void neap_chain_free(neap_chain *chain) {
  if (chain == NULL) return;
  if (chain->output != NULL) neap_chain_let_go(chain, false);
  for (int b = 0; b < chain->n_batch; b++) batch_fini(chain, &chain->batch[b]);
  for (int i = 0; chain->layer != NULL && i < chain->n_layer; i++) {
    for (int p = 0; p < NEAP_CHAIN_N_PART; p++) neap_range_free(chain->layer[i].range[p]);
    neap_cache_fini(&chain->layer[i].cache);
    neap_net_free(chain->layer[i].net);
  }
  for (int p = 0; p < chain->n_param; p++) neap_tensor_fini(&chain->param[p].attached);
  neap_free(chain->batch);
  neap_free(chain->param);
  neap_workspace_release(chain->ws);
  neap_arena_fini(&chain->room);
  neap_free(chain);
}
