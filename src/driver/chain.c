/* chain.c: a chain of layers made: what a layer must be, its blobs' names in the workspace, and its
 * batches.
 *
 * A layer's net is copied with names that no other layer has: its output is "LAYER/output", the
 * gradient of that "LAYER/output_grad", all else that it makes "LAYER/NAME"; its input is the
 * output of the layer below. Parameters and state keep their names: so layers may share them.
 *
 * Layer i is given for one batch; other batches are the same net with another first dimension, or
 * nets of their own. Types are inferred from layer to layer.
 */
#include "driver/driver_int.h"
#include "ops/tile.h"

#include <stdio.h>
#include <string.h>

static neap_status no_memory(neap_error *error) {
  return neap_fail_memory(error, 64, "a chain of layers");
}

neap_status neap_chain_in_layer(const neap_chain *chain, int i, const neap_error *inner,
                                neap_error *error) {
  if (error == NULL || error->code != NEAP_OK) return inner->code;
  *error = *inner;
  snprintf(error->message, sizeof error->message, "layer \"%.100s\": %.600s", chain->layer[i].name,
           inner->message);
  return inner->code;
}

/* ---- what a layer must be -------------------------------------------------------------------- */

static neap_status find_input(const neap_net *net, const char **input, neap_error *error) {
  /* All inputs are counted, and listed for the message: a layer has exactly one. */
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
    return neap_fail(error, NEAP_GRAPH, "a layer has one input, got %d%s%s%s", n, n > 0 ? " (" : "",
                     list, n > 0 ? ")" : "");
  }

  /* Its first dimension is the batch. */
  if (neap_net_find_blob(net, *input)->type.shape.n_dim > 0) return NEAP_OK;
  return neap_fail(error, NEAP_SHAPE, "input \"%s\" expects a batch as its first dimension, got ()",
                   *input);
}

static neap_status check_layer(neap_chain *chain, int i, const neap_net *net, neap_error *error) {
  /* What is differentiated is the chain as a whole, by its own halves. */
  neap_chain_layer *layer = &chain->layer[i];
  if (neap_net_is_train(net)) {
    neap_hint(error, "the chain makes the backward pass itself");
    return neap_fail(error, NEAP_GRAPH, "a layer is a forward pass, got a net with a gradient");
  }
  NEAP_TRY(find_input(net, &layer->own_input, error));

  /* One output, which an op makes: it is the input of the layer above. */
  if (neap_net_n_outputs(net) != 1) {
    neap_hint(error, "\"outputs NAME\" says which");
    return neap_fail(error, NEAP_GRAPH, "a layer has one output, got %d", neap_net_n_outputs(net));
  }
  layer->own_output = neap_net_output_at(net, 0);
  const neap_net_blob *output = neap_net_find_blob(net, layer->own_output);
  if (output == NULL || output->type.dtype != NEAP_DTYPE_NONE)
    return neap_fail(error, NEAP_GRAPH, "output \"%s\" expects an op that makes it",
                     layer->own_output);

  /* The input is the output of the layer below, which that layer's backward reads. */
  for (int n = 0; n < neap_net_n_ops(net); n++) {
    const neap_net_op *op = neap_net_op_at(net, n);
    for (int k = 0; k < op->n_out; k++) {
      if (op->out[k] != layer->own_input) continue;
      neap_hint(error, "give the output another name");
      return neap_fail(error, NEAP_GRAPH, "%s \"%s\" writes the layer's input \"%s\"", op->op->name,
                       op->name, layer->own_input);
    }
  }

  /* Blobs are called after their layer, so no two layers may have one name. */
  for (int k = 0; k < i; k++)
    if (strcmp(chain->layer[k].name, layer->name) == 0) {
      neap_hint(error, "\"net NAME\" is the layer's name");
      return neap_fail(error, NEAP_NAME, "another layer has this name");
    }
  return NEAP_OK;
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Whether a parameter or state of the net is called so. */
static bool is_declared(const neap_net *net, const char *name) {
  const neap_net_blob *blob = neap_net_find_blob(net, name);
  return blob != NULL && blob->type.dtype != NEAP_DTYPE_NONE;
}

/* "LAYER/what" with as many "~" behind it as it takes to be no declared name and none of the n
 * others. NULL when memory is refused. */
static const char *free_name(const neap_net *net, const char *layer, const char *what, int n,
                             const char *const *other) {
  const char *name = neap_intern_format("%s/%s", layer, what);
  while (name != NULL) {
    bool is_taken = is_declared(net, name);
    for (int i = 0; i < n; i++)
      if (other[i] == name) is_taken = true;
    if (!is_taken) break;
    name = neap_intern_format("%s~", name);
  }
  return name;
}

static const char *grad_name(const char *prefix, const char *name) {
  return neap_intern_format("%s%s%s_grad", prefix, prefix[0] != '\0' ? "/" : "", name);
}

/* The net under the workspace's names. */
static neap_status rename_layer(const neap_chain_layer *layer, const neap_net *net, neap_net **out,
                                neap_error *error) {
  /* Old names and new ones side by side, in one list. */
  int n = neap_net_n_blobs(net), n_rename = 0;
  const char **from = neap_alloc_zeroed(2 * ((size_t)n + 1) * sizeof *from);
  if (from == NULL) return no_memory(error);
  const char **to = from + n + 1;

  /* Input and output first: another blob within may be called "output" too, and gives way. */
  from[n_rename] = layer->own_input;
  to[n_rename++] = layer->input;
  from[n_rename] = layer->own_output;
  to[n_rename++] = layer->output;
  neap_status status = NEAP_OK;
  for (int b = 0; b < n; b++) {
    const neap_net_blob *blob = neap_net_blob_at(net, b);
    if (blob->role == NEAP_ROLE_PARAMETER || blob->role == NEAP_ROLE_STATE) continue;
    if (strcmp(blob->name, layer->own_input) == 0 || strcmp(blob->name, layer->own_output) == 0)
      continue;
    from[n_rename] = blob->name;
    to[n_rename] = free_name(net, layer->name, blob->name, n_rename, to);
    if (to[n_rename++] == NULL) status = no_memory(error);
  }

  /* The net itself stays the caller's: what is renamed is a copy. */
  if (status == NEAP_OK) status = neap_net_rename(net, n_rename, from, to, out, error);
  neap_free((void *)from);
  return status;
}

static neap_status name_layer(neap_chain *chain, int i, const neap_net *net, neap_error *error) {
  neap_chain_layer *layer = &chain->layer[i];

  /* The very name of the output below: one blob, which neither layer copies. */
  layer->input = i > 0 ? chain->layer[i - 1].output : neap_intern(layer->own_input);
  layer->output = free_name(net, layer->name, "output", 0, NULL);
  if (layer->input == NULL || layer->output == NULL) return no_memory(error);

  /* Integers have no gradient, so the blob for it has no name. */
  bool is_float = neap_dtype_is_float(neap_net_find_blob(net, layer->own_input)->type.dtype);
  layer->d_output = grad_name("", layer->output);
  layer->d_input = is_float ? grad_name("", layer->input) : NULL;
  if (layer->d_output == NULL || (is_float && layer->d_input == NULL)) return no_memory(error);
  return rename_layer(layer, net, &layer->net, error);
}

/* ---- parameters ------------------------------------------------------------------------------ */

static neap_status add_param(neap_chain *chain, const char *name, const char *layer, bool trains,
                             neap_error *error) {
  for (int p = 0; p < chain->n_param; p++)
    if (chain->param[p].name == name) return NEAP_OK;
  const char *grad = trains ? grad_name("", name) : NULL;
  if ((trains && grad == NULL) ||
      !neap_list_grow(&chain->param, &chain->cap_param, chain->n_param + 1, sizeof *chain->param))
    return no_memory(error);
  chain->param[chain->n_param++] =
    (neap_chain_parameter){.name = name, .layer = layer, .grad = grad};
  return NEAP_OK;
}

/* Whether one of the layers from `first` to before `end` trains the parameter too. */
static bool is_trained_in(const neap_chain *chain, int first, int end, const char *name) {
  for (int k = first; k < end; k++) {
    const neap_net_blob *blob = neap_net_find_blob(chain->layer[k].net, name);
    if (blob != NULL && blob->role == NEAP_ROLE_PARAMETER && blob->trainable) return true;
  }
  return false;
}

/* What the layer's backward differentiates by, and where the gradients go. */
static neap_status list_wrt(neap_chain *chain, int i, neap_error *error) {
  /* Lists by parameter, with room for the input behind them. */
  neap_chain_layer *layer = &chain->layer[i];
  int n = neap_net_n_blobs(layer->net);
  layer->wrt = neap_arena_alloc(&chain->room, (size_t)n * sizeof *layer->wrt);
  layer->grad = neap_arena_alloc(&chain->room, (size_t)n * sizeof *layer->grad);
  layer->sum = neap_arena_alloc(&chain->room, (size_t)n * sizeof *layer->sum);
  layer->rounded = neap_arena_alloc(&chain->room, (size_t)n * sizeof *layer->rounded);
  layer->begins = neap_arena_alloc(&chain->room, (size_t)n * sizeof *layer->begins);
  if (layer->wrt == NULL || layer->grad == NULL || layer->sum == NULL || layer->rounded == NULL ||
      layer->begins == NULL)
    return no_memory(error);
  for (int b = 0; b < n; b++) {
    const neap_net_blob *blob = neap_net_blob_at(layer->net, b);
    if (blob->role != NEAP_ROLE_PARAMETER) continue;
    bool trains = blob->trainable && neap_dtype_is_float(blob->type.dtype);
    NEAP_TRY(add_param(chain, blob->name, layer->name, trains, error));
    if (!trains) continue;
    /* The backward runs from the last layer down: the highest one that trains the parameter makes
     * the gradient, the others make terms of their own and add them to it. In the few digits of
     * bf16 and f16 a sum of many stops growing, so theirs is f32, and the lowest one rounds it. */
    bool above = is_trained_in(chain, i + 1, chain->n_layer, blob->name);
    bool below = is_trained_in(chain, 0, i, blob->name);
    bool is_wider = neap_is_half(blob->type.dtype) && (above || below);
    const char *name = grad_name("", blob->name);
    const char *sum = name != NULL && is_wider ? neap_intern_format("%s.sum", name) : name;
    const char *own = above || is_wider ? grad_name(layer->name, blob->name) : name;
    if (name == NULL || sum == NULL || own == NULL) return no_memory(error);
    layer->wrt[layer->n_wrt] = blob->name;
    layer->grad[layer->n_wrt] = own;
    layer->sum[layer->n_wrt] = above || is_wider ? sum : NULL;
    layer->begins[layer->n_wrt] = !above;
    layer->rounded[layer->n_wrt] = is_wider && !below ? name : NULL;
    layer->n_wrt++;
  }

  /* The input comes last; integers have no gradient. */
  if (layer->d_input == NULL) return NEAP_OK;
  layer->wrt[layer->n_wrt] = layer->input;
  layer->grad[layer->n_wrt++] = layer->d_input;
  return NEAP_OK;
}

/* ---- batches --------------------------------------------------------------------------------- */

/* Types from layer to layer, beginning with the first one's input at this batch. */
static neap_status infer_types(neap_chain *chain, neap_chain_batch *batch, neap_error *error) {
  for (int i = 0; i < chain->n_layer; i++) {
    const neap_chain_layer *layer = &chain->layer[i];
    neap_chain_step *step = &batch->step[i];
    const neap_net *net = step->net != NULL ? step->net : layer->net;

    step->in = i > 0 ? batch->step[i - 1].out : neap_net_find_blob(net, layer->input)->type;
    if (i == 0) step->in.shape.dim[0] = batch->n; /* what the other layers' batches follow from */
    const neap_input in = {layer->input, step->in};
    const neap_graph_options options = {.n_input = 1, .input = &in};
    neap_error inner = {0};
    if (neap_graph_type(net, &options, layer->output, &step->out, &inner) != NEAP_OK)
      return neap_chain_in_layer(chain, i, &inner, error);
  }
  return NEAP_OK;
}

/* Layer i's input as its net declares it against what the layer below gives: dtype and all
 * dimensions. */
static neap_status check_link(const neap_chain *chain, int i, const neap_type *got,
                              neap_error *error) {
  const neap_type *want = &neap_net_find_blob(chain->layer[i].net, chain->layer[i].input)->type;
  if (neap_type_equal(want, got)) return NEAP_OK;

  /* Both types in full: which dimension is wrong only the user can say. */
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  neap_error inner = {0};
  snprintf(inner.blob, sizeof inner.blob, "%s", chain->layer[i].own_input);
  snprintf(inner.expected, sizeof inner.expected, "%s %.110s", neap_dtype_name(want->dtype),
           neap_shape_text(&want->shape, a));
  snprintf(inner.got, sizeof inner.got, "%s %.110s", neap_dtype_name(got->dtype),
           neap_shape_text(&got->shape, b));
  neap_hint(&inner, "all layers are declared at the batch of the first one's input");
  neap_fail(&inner, want->dtype != got->dtype ? NEAP_DTYPE : NEAP_SHAPE,
            "input \"%s\" expects %s %s, and layer \"%s\" below gives %s %s",
            chain->layer[i].own_input, neap_dtype_name(want->dtype), a, chain->layer[i - 1].name,
            neap_dtype_name(got->dtype), b);
  return neap_chain_in_layer(chain, i, &inner, error);
}

/* At the declared batch, where shapes can be compared as the user wrote them. */
static neap_status check_links(neap_chain *chain, neap_error *error) {
  for (int i = 0; i + 1 < chain->n_layer; i++) {
    const char *name = chain->layer[i].input;
    const neap_input in = {name, neap_net_find_blob(chain->layer[i].net, name)->type};
    const neap_graph_options options = {.n_input = 1, .input = &in};
    neap_type out;
    neap_error inner = {0};
    if (neap_graph_type(chain->layer[i].net, &options, chain->layer[i].output, &out, &inner) !=
        NEAP_OK)
      return neap_chain_in_layer(chain, i, &inner, error);
    NEAP_TRY(check_link(chain, i + 1, &out, error));
  }
  return NEAP_OK;
}

static void batch_fini(const neap_chain *chain, neap_chain_batch *batch) {
  if (batch->step != NULL)
    for (int i = 0; i < chain->n_layer; i++) {
      for (int p = 0; p < NEAP_CHAIN_N_PART; p++) neap_session_free(batch->step[i].session[p]);
      neap_net_free(batch->step[i].net);
    }
  neap_free(batch->step);
}

/* A new last batch; `net` NULL: the chain's own nets. */
static neap_status add_batch(neap_chain *chain, int64_t n, const neap_net *const *net,
                             neap_error *error) {
  /* Programs of all batches run in the memory of the largest. */
  if (n < 1 || n > chain->max_batch) {
    neap_hint(error, "open the chain with a larger max_batch");
    return neap_fail(error, NEAP_SHAPE, "chain: a batch expects 1 to %lld rows, got %lld",
                     (long long)chain->max_batch, (long long)n);
  }
  neap_chain_batch batch = {.n = n,
                            .step = neap_alloc_zeroed((size_t)chain->n_layer * sizeof *batch.step)};
  neap_status status = batch.step != NULL ? NEAP_OK : no_memory(error);
  for (int i = 0; i < chain->n_layer; i++) {
    if (net == NULL || status != NEAP_OK) break;
    status = rename_layer(&chain->layer[i], net[i], &batch.step[i].net, error);
  }

  /* Types come before the list grows, so that a batch that does not fit leaves nothing. */
  if (status == NEAP_OK) status = infer_types(chain, &batch, error);
  if (status == NEAP_OK &&
      !neap_list_grow(&chain->batch, &chain->cap_batch, chain->n_batch + 1, sizeof batch))
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

bool neap_chain_has_batch(const neap_chain *chain, int64_t batch) {
  return batch_at(chain, batch) >= 0;
}

neap_status neap_chain_find_batch(neap_chain *chain, int64_t batch, int *at, neap_error *error) {
  if ((*at = batch_at(chain, batch)) >= 0) return NEAP_OK;
  *at = chain->n_batch;
  return add_batch(chain, batch, NULL, error);
}

neap_status neap_chain_add_batch(neap_chain *chain, int64_t batch, const neap_net *const *layer,
                                 neap_error *error) {
  if (neap_chain_has_batch(chain, batch))
    return neap_fail(error, NEAP_ARGUMENT, "chain: batch %lld is there already", (long long)batch);
  for (int i = 0; i < chain->n_layer; i++) {
    const neap_net_blob *in = neap_net_find_blob(layer[i], chain->layer[i].own_input),
                        *out = neap_net_find_blob(layer[i], chain->layer[i].own_output);
    if (in == NULL || out == NULL || in->type.dtype == NEAP_DTYPE_NONE)
      return neap_fail(error, NEAP_NAME,
                       "chain: layer \"%s\" at batch %lld expects input \"%s\" and output \"%s\"",
                       chain->layer[i].name, (long long)batch, chain->layer[i].own_input,
                       chain->layer[i].own_output);
  }
  return add_batch(chain, batch, layer, error);
}

/* ---- making and freeing ---------------------------------------------------------------------- */

static neap_status copy_names(neap_chain *chain, int n, const char *const *from,
                              const char *const **out, neap_error *error) {
  const char **name = neap_arena_alloc(&chain->room, (size_t)NEAP_MAX(n, 1) * sizeof *name);
  if (name == NULL) return no_memory(error);
  for (int i = 0; i < n; i++)
    if ((name[i] = neap_intern(from[i])) == NULL) return no_memory(error);
  *out = name;
  return NEAP_OK;
}

/* The caller may drop its options. */
static neap_status copy_options(neap_chain *chain, const neap_compile_options *options,
                                neap_error *error) {
  /* Programs are made when they are first asked for, long after the caller's lists may be gone. */
  chain->options = *options;
  chain->options.store = neap_db_retain(options->store);
  chain->options.script = chain->options.tag = NULL;
  const neap_run_about about = {.net = "chain", .script = options->script, .tag = options->tag};
  if (options->run == NULL) NEAP_TRY(neap_run_open(options->store, &about, &chain->run, error));
  if (options->run == NULL) chain->options.run = chain->run;

  /* Lists and texts: banks, names to keep, Caffe's words, the engine's name. */
  chain->options.graph.bank =
    neap_banks_copy(&chain->room, options->graph.n_bank, options->graph.bank);
  if (chain->options.graph.bank == NULL) return no_memory(error);
  NEAP_TRY(copy_names(chain, options->graph.n_keep, options->graph.keep, &chain->options.graph.keep,
                      error));
  if (options->mem_param != NULL) {
    neap_mem_param *param = neap_arena_alloc(&chain->room, sizeof *param);
    if (param == NULL) return no_memory(error);
    *param = *options->mem_param;
    NEAP_TRY(copy_names(chain, param->n_exclude_blob, options->mem_param->exclude_blob,
                        &param->exclude_blob, error));
    chain->options.mem_param = param;
  }
  if (options->engine == NULL) return NEAP_OK;
  chain->options.engine = neap_intern(options->engine);
  return chain->options.engine != NULL ? NEAP_OK : no_memory(error);
}

static neap_status make(neap_chain *chain, int n, const neap_net *const *net,
                        const neap_compile_options *options, neap_error *error) {
  /* Lists by layer, zeroed, so that a chain that is given up halfway can be freed. */
  chain->layer = neap_arena_alloc(&chain->room, (size_t)n * sizeof *chain->layer);
  chain->output = neap_arena_alloc(&chain->room, (size_t)n * sizeof *chain->output);
  chain->input = neap_arena_alloc(&chain->room, (size_t)n * sizeof *chain->input);
  if (chain->layer == NULL || chain->output == NULL || chain->input == NULL)
    return no_memory(error);
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

  /* All layers have names and nets now; what follows looks from one layer to others. The largest
   * batch is the first of the list: its plans are what all others follow (chain_program.c). */
  NEAP_TRY(check_links(chain, error));
  for (int i = 0; i < n; i++) NEAP_TRY(list_wrt(chain, i, error));
  NEAP_TRY(add_batch(chain, chain->max_batch, NULL, error));
  for (int i = 0; i < n; i++) NEAP_TRY(neap_workspace_init(chain->ws, chain->layer[i].net, error));
  return NEAP_OK;
}

/* Parameters of the first layers go with a chain that can't be made. */
neap_status neap_chain_new(neap_workspace *ws, int n, const neap_net *const *layer,
                           int64_t max_batch, const neap_compile_options *options, neap_chain **out,
                           neap_error *error) {
  /* What no chain can do is refused before anything is made. */
  *out = NULL;
  if (n < 1) return neap_fail(error, NEAP_ARGUMENT, "chain: expects at least one layer, got %d", n);
  if (max_batch < 1)
    return neap_fail(error, NEAP_ARGUMENT, "chain: max_batch expects at least 1 row, got %lld",
                     (long long)max_batch);
  if (options->plan.policy == NEAP_POLICY_POOL)
    return neap_fail(error, NEAP_ARGUMENT,
                     "chain: its batches share planned addresses, and policy pool plans none");
  neap_chain *chain = neap_alloc_zeroed(sizeof *chain);
  if (chain == NULL) return no_memory(error);
  chain->ws = neap_workspace_retain(ws);
  chain->max_batch = max_batch;

  /* Parameters are made in the workspace on the way; a mark takes them back. */
  neap_workspace_mark *before = NULL;
  neap_status status = neap_workspace_mark_new(ws, true, 0, NULL, &before, error);
  if (status == NEAP_OK) status = make(chain, n, layer, options, error);
  if (status != NEAP_OK) {
    neap_chain_free(chain);
    neap_workspace_mark_undo(before, 0, NULL);
  } else {
    *out = chain;
  }
  neap_workspace_mark_free(before);
  return status;
}

/* All programs of a chain are of ranges. */
const char *neap_chain_warning(const neap_chain *chain) {
  for (int i = 0; i < chain->n_layer; i++)
    for (int part = 0; part < NEAP_CHAIN_N_PART; part++) {
      const neap_range *range = chain->layer[i].range[part];
      if (range != NULL && neap_range_warning(range)[0] != '\0') return neap_range_warning(range);
    }
  return "";
}

void neap_chain_free(neap_chain *chain) {
  /* Entries hold references of tensors, sessions hold programs that are attached: both go before
   * the workspace does. */
  if (chain == NULL) return;
  if (chain->output != NULL) neap_chain_let_go(chain, false);
  for (int b = 0; b < chain->n_batch; b++) batch_fini(chain, &chain->batch[b]);
  if (chain->layer != NULL)
    for (int i = 0; i < chain->n_layer; i++) {
      for (int p = 0; p < NEAP_CHAIN_N_PART; p++) neap_range_free(chain->layer[i].range[p]);
      neap_cache_fini(&chain->layer[i].cache);
      neap_net_free(chain->layer[i].net);
    }
  for (int p = 0; p < chain->n_param; p++) neap_tensor_fini(&chain->param[p].attached);
  neap_free(chain->batch);
  neap_free(chain->param);
  neap_workspace_release(chain->ws);
  neap_run_close(chain->run);
  neap_db_close(chain->options.store);
  neap_arena_fini(&chain->room);
  neap_free(chain);
}
