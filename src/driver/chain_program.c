/* chain_program.c: the programs of a chain's layers: the halves of each, planned as ranges, and
 * sessions of each batch.
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

/* What compiling one part of a layer is given. Lists lie in `room`. */
typedef struct part_spec {
  neap_compile_options options;
  neap_half half;
  neap_arena room;
} part_spec;

/* The types that a part's inputs have: of the layer's input and of the gradient that arrives; and
 * of the stashes that the forward half leaves, whose bytes its kernels chose. */
static neap_status list_inputs(part_spec *part, const neap_chain_layer *layer,
                               const neap_chain_step *step, const neap_graph *forward,
                               neap_error *error) {
  /* The layer's input, and for a backward half what arrives and what the forward left. */
  neap_graph_options *o = &part->options.graph;
  int n = 0, room = 2 + (forward != NULL ? forward->n_output : 0);
  neap_input *input = neap_arena_alloc(&part->room, (size_t)room * sizeof *input);
  if (input == NULL) return no_memory(error);
  input[n++] = (neap_input){layer->input, step->in};
  if (forward != NULL) {
    /* a gradient has the type of what it is the gradient of */
    input[n++] = (neap_input){layer->d_output, step->out};
    for (int k = 0; k < forward->n_output; k++) {
      const neap_value *value = &forward->value[forward->output[k]];
      if (value->is_stash) input[n++] = (neap_input){value->name, value->type};
    }
  }
  o->n_input = n;
  o->input = input;
  return NEAP_OK;
}

/* The halves are run as they were cut: a rewrite would see one side only. Where nothing is
 * differentiated, as in a first layer of integers without parameters, the forward is the whole.
 * `forward`: for a backward half, the forward's graph. */
static neap_status specify(const neap_chain *chain, int i, const neap_chain_step *step,
                           neap_chain_part which, const neap_graph *forward, part_spec *part,
                           neap_error *error) {
  /* The options of the chain, and of those what a half can't have. */
  const neap_chain_layer *layer = &chain->layer[i];
  *part = (part_spec){.options = chain->options};
  neap_graph_options *o = &part->options.graph;
  bool is_half = which != NEAP_CHAIN_EVALUATE;
  o->no_rewrite = is_half; /* the options' own word is for the evaluation's fusing alone */
  o->no_fuse = o->no_fuse || is_half;
  o->fuse_pool = o->fuse_pool && !is_half;

  /* Streams lie far apart, so that layers of one step draw different numbers. */
  part->half = (neap_half){.backward = which == NEAP_CHAIN_BACKWARD,
                           .output = layer->output,
                           .d_output = layer->d_output,
                           .n_wrt = layer->n_wrt,
                           .wrt = layer->wrt,
                           .grad = layer->grad,
                           .sum = layer->sum,
                           .rounded = layer->rounded,
                           .begins = layer->begins,
                           .prefix = neap_intern_format("%s/", layer->name),
                           .stream = (uint32_t)(i + 1) << 16};
  if (part->half.prefix == NULL) return no_memory(error);
  if (is_half && layer->n_wrt > 0) o->half = &part->half;
  return list_inputs(part, layer, step, forward, error);
}

static neap_status make_range(neap_chain *chain, int i, const neap_net *net, neap_chain_part which,
                              neap_error *error) {
  neap_chain_layer *layer = &chain->layer[i];
  part_spec part;
  const neap_graph *forward = NULL;
  if (layer->range[which] != NULL) return NEAP_OK;
  if (which == NEAP_CHAIN_BACKWARD) neap_range_most(layer->range[NEAP_CHAIN_FORWARD], &forward);

  neap_status status = specify(chain, i, &chain->batch[0].step[i], which, forward, &part, error);
  if (status == NEAP_OK) status = neap_range_new(net, &part.options, &layer->range[which], error);
  neap_arena_fini(&part.room);
  return status;
}

static neap_status make_session(neap_chain *chain, int i, const neap_net *net,
                                neap_chain_step *step, neap_chain_part which, neap_error *error) {
  part_spec part;
  const neap_graph *forward = NULL;
  if (step->session[which] != NULL) return NEAP_OK;
  if (which == NEAP_CHAIN_BACKWARD)
    forward = neap_program_graph(neap_session_program(step->session[NEAP_CHAIN_FORWARD]));
  neap_status status = specify(chain, i, step, which, forward, &part, error);
  if (status == NEAP_OK)
    status = neap_range_compile(chain->layer[i].range[which], chain->ws, net, &part.options,
                                &step->session[which], error);
  neap_arena_fini(&part.room);
  return status;
}

/* ---- what crosses ---------------------------------------------------------------------------- */

/* Whether the backward half reads the blob as the forward left it. */
static bool is_taken(const neap_graph *backward, const char *name) {
  for (int v = 0; v < backward->n_value; v++) {
    const neap_value *value = &backward->value[v];
    if (value->node < 0 && value->region == NEAP_REGION_IO && value->name == name) return true;
  }
  return false;
}

/* No two layers share a blob that crosses a cut. */
static void check_name(const neap_chain_layer *layer, const char *name) {
  size_t n = strlen(layer->name);
  NEAP_ASSERT(strncmp(name, layer->name, n) == 0 && name[n] == '/',
              "a name that begins with \"%s/\"; got \"%s\"", layer->name, name);
}

/* What the cache gets: the layer's input where its backward reads that, then what crosses, the last
 * that was made first. */
static neap_status list_saved(neap_chain *chain, int i, neap_chain_step *step, neap_error *error) {
  /* What the backward half finds as an input, and the forward half has as an output or as its own
   * input. */
  const neap_graph *forward =
                     neap_program_graph(neap_session_program(step->session[NEAP_CHAIN_FORWARD])),
                   *backward =
                     neap_program_graph(neap_session_program(step->session[NEAP_CHAIN_BACKWARD]));
  const char **saved =
    neap_arena_alloc(&chain->room, ((size_t)forward->n_output + 1) * sizeof *saved);
  if (saved == NULL) return no_memory(error);

  /* From the last that was made to the first: caches are popped in that order. */
  step->n_saved = 0;
  step->saved = saved;
  if (is_taken(backward, chain->layer[i].input)) saved[step->n_saved++] = chain->layer[i].input;
  for (int k = forward->n_output - 1; k >= 0; k--) {
    const char *name = forward->value[forward->output[k]].name;
    if (is_taken(backward, name)) saved[step->n_saved++] = name;
    if (NEAP_DEBUG) check_name(&chain->layer[i], name);
  }
  return NEAP_OK;
}

/* ---- programs -------------------------------------------------------------------------------- */

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

/* The net that layer i evaluates by at a batch; owned. */
static neap_status evaluation(const neap_chain *chain, int i, const neap_chain_step *step,
                              neap_net **out, neap_error *error) {
  return neap_net_evaluation(step->net != NULL ? step->net : chain->layer[i].net, out, error);
}

/* The evaluation's programs of one layer at one batch: the range of the largest batch first, in
 * whose memory all of them run. */
static neap_status prepare_evaluation(neap_chain *chain, int i, int at, neap_error *error) {
  neap_net *most = NULL, *net = NULL;
  neap_chain_step *step = &chain->batch[at].step[i];
  NEAP_TRY(evaluation(chain, i, &chain->batch[0].step[i], &most, error));
  neap_status status = make_range(chain, i, most, NEAP_CHAIN_EVALUATE, error);
  if (status == NEAP_OK) status = evaluation(chain, i, step, &net, error);
  if (status == NEAP_OK) status = make_session(chain, i, net, step, NEAP_CHAIN_EVALUATE, error);
  neap_net_free(most);
  neap_net_free(net);
  return status;
}

/* Both halves likewise, the forward's first: the backward's takes what it leaves. */
static neap_status prepare_halves(neap_chain *chain, int i, int at, neap_error *error) {
  const neap_chain_layer *layer = &chain->layer[i];
  neap_chain_step *step = &chain->batch[at].step[i];
  const neap_net *most = chain->batch[0].step[i].net, *net = step->net;
  if (most == NULL) most = layer->net;
  if (net == NULL) net = layer->net;

  /* The backward's plan is made from the forward's graph, which says how many bytes its stashes
   * have. */
  NEAP_TRY(make_range(chain, i, most, NEAP_CHAIN_FORWARD, error));
  if (layer->n_wrt > 0) NEAP_TRY(make_range(chain, i, most, NEAP_CHAIN_BACKWARD, error));
  NEAP_TRY(make_session(chain, i, net, step, NEAP_CHAIN_FORWARD, error));
  if (layer->n_wrt == 0) return NEAP_OK;
  NEAP_TRY(make_session(chain, i, net, step, NEAP_CHAIN_BACKWARD, error));
  return list_saved(chain, i, step, error);
}

neap_status neap_chain_prepare(neap_chain *chain, int at, neap_chain_part part, neap_error *error) {
  for (int i = 0; i < chain->n_layer; i++) {
    const neap_chain_step *step = &chain->batch[at].step[i];
    /* There already: of a training step both halves, as far as the layer has a backward. */
    bool has_backward = step->session[NEAP_CHAIN_BACKWARD] != NULL || chain->layer[i].n_wrt == 0;
    if (step->session[part] != NULL && (part == NEAP_CHAIN_EVALUATE || has_backward)) continue;
    if (part != NEAP_CHAIN_EVALUATE) NEAP_TRY(check_backward(chain, i, error));
    neap_error inner = {0};
    neap_status status = part == NEAP_CHAIN_EVALUATE ? prepare_evaluation(chain, i, at, &inner)
                                                     : prepare_halves(chain, i, at, &inner);
    if (status != NEAP_OK) return neap_chain_in_layer(chain, i, &inner, error);
  }
  return NEAP_OK;
}
