/* cut.c: a layer's net in two halves, forward and backward, each a net that runs by itself.
 *
 * Net and gradient are built as one graph and written out as one net (to_net.c), whose ops know
 * which side they are on. The cut follows the rules of loops (loop_gradient.c): blobs that cross it
 * are outputs of the forward half and inputs of the backward; not taken across but made again
 * behind it are views, what has no inputs, and stashes that a pair of kernels of one engine must
 * agree on (a mask of bits that every kernel reads alike does cross). So nothing else is computed
 * twice, and state is written by the forward half alone.
 *
 * INVARIANT: both halves call a blob by the same name, and that is its name in the net it came
 * from.
 */
#include "rewrite/rewrite_int.h"

#include <string.h>

typedef struct cut {
  const neap_net *net; /* with the backward written out */
  int n_op;
  neap_map needed; /* names that the backward half reads */
  bool *is_forward, *is_backward;
  int n_saved;
  const char **saved; /* what crosses */
  neap_arena room;
} cut;

/* ---- the whole ------------------------------------------------------------------------------- */

/* The seed, sum(output * d_output), has d_output as its gradient; a copy of the net with it and the
 * Gradient op. */
static neap_status add_gradient(const neap_net *net, const neap_halves_spec *spec,
                                const neap_type *type, neap_net **out, neap_error *error) {
  const char *product[] = {"cut:product"}, *loss[] = {"cut:loss"};
  const char *pair[] = {spec->output, spec->d_output};
  NEAP_TRY(neap_net_clone(net, out, error));
  NEAP_TRY(
    neap_net_declare(*out, spec->d_output, NEAP_ROLE_INPUT, type, false, NULL, NULL, NULL, error));
  neap_net_call mul = {.type = "Mul", .n_in = 2, .in = pair, .n_out = 1, .out = product};
  neap_net_call sum = {.type = "Sum", .n_in = 1, .in = product, .n_out = 1, .out = loss};
  NEAP_TRY(neap_net_add(*out, &mul, NULL, error));
  NEAP_TRY(neap_net_add(*out, &sum, NULL, error));
  NEAP_TRY(neap_net_add_gradient(*out, loss[0], spec->n_wrt, spec->wrt, spec->grad, NULL, error));
  const char **output = neap_alloc_zeroed((size_t)(spec->n_wrt + 1) * sizeof *output);
  if (output == NULL) return graph_no_memory(error);
  output[0] = spec->output;
  for (int i = 0; i < spec->n_wrt; i++) output[i + 1] = spec->grad[i];
  neap_status status = neap_net_set_outputs(*out, spec->n_wrt + 1, output, error);
  neap_free((void *)output);
  return status;
}

/* Net and gradient as one net of ops. No rewrite may change what the forward half's blobs are:
 * layers are looked at. */
static neap_status write_out(const neap_net *net, const neap_halves_spec *spec,
                             const neap_graph_options *options, neap_net **out, neap_error *error) {
  neap_type type;
  neap_net *joint = NULL;
  neap_graph *graph = NULL;
  neap_graph_options plain = *options;
  plain.no_rewrite = true;
  NEAP_TRY(neap_graph_type(net, &plain, spec->output, &type, error));
  neap_status status = add_gradient(net, spec, &type, &joint, error);
  if (status == NEAP_OK) status = neap_graph_prepare(joint, &plain, &graph, error);
  if (status == NEAP_OK) status = neap_graph_to_net(graph, joint, out, error);
  neap_graph_free(graph);
  neap_net_free(joint);
  return status;
}

/* ---- what crosses ---------------------------------------------------------------------------- */

static bool is_needed(const cut *c, const char *name) {
  return name != NULL && neap_map_get(&c->needed, name, 0) != 0;
}

static bool need_inputs(cut *c, const neap_net_op *op) {
  for (int i = 0; i < op->n_in; i++)
    if (op->in[i] != NULL && !neap_map_set(&c->needed, op->in[i], 1)) return false;
  return true;
}

static bool is_stash(const neap_net_op *op, int k) {
  return (neap_op_output(op->op, k)->flags & NEAP_ARG_STASH) != 0;
}

/* Whether all kernels of the op are of one engine. */
static bool has_one_engine(const neap_op *op) {
  for (const neap_kernel *k = op->kernels; k != NULL && k->run != NULL; k++)
    if (k->engine != op->kernels[0].engine) return false;
  return true;
}

/* Whether the stash means the same to whichever kernels the halves get: there is no choice, here or
 * where it is read. */
static bool is_plain_stash(const cut *c, const neap_net_op *op, const char *stash) {
  if (!has_one_engine(op->op)) return false;
  for (int i = 0; i < c->n_op; i++) {
    const neap_net_op *reader = neap_net_op_at(c->net, i);
    for (int k = 0; k < reader->n_in; k++)
      if (reader->in[k] == stash && !has_one_engine(reader->op)) return false;
  }
  return true;
}

/* Whether the backward half makes the op's outputs again: as in loop_gradient.c, but for stashes
 * that can be understood alone. */
static bool is_repeated(const cut *c, const neap_net_op *op) {
  if (op->op->n_alias > 0 || op->n_in == 0) return true;
  for (int k = 0; k < op->n_out; k++)
    if (is_needed(c, op->out[k]) && is_stash(op, k) && !is_plain_stash(c, op, op->out[k]))
      return true;
  return false;
}

static neap_status overwritten(const cut *c, const neap_net_op *op, neap_error *error) {
  neap_hint(error, "let the layer write its state in place of nothing that its own gradient needs");
  return neap_fail(error, NEAP_GRAPH,
                   "net \"%s\": the backward needs \"%s\" as it was before %s \"%s\" wrote it",
                   neap_net_name(c->net), op->out[0], op->op->name, op->name);
}

/* Forward ops from the last to the first. */
static neap_status decide(cut *c, neap_error *error) {
  for (int i = 0; i < c->n_op; i++) {
    const neap_net_op *op = neap_net_op_at(c->net, i);
    c->is_backward[i] = op->origin.backward;
    c->is_forward[i] = !op->origin.backward;
    if (op->origin.backward && !need_inputs(c, op)) return graph_no_memory(error);
  }
  for (int i = c->n_op - 1; i >= 0; i--) {
    const neap_net_op *op = neap_net_op_at(c->net, i);
    bool any = false;
    for (int k = 0; k < op->n_out; k++) any = any || is_needed(c, op->out[k]);
    if (!c->is_forward[i] || !any) continue;
    if ((op->op->effects & NEAP_EFFECT_COMMIT) != 0) return overwritten(c, op, error);
    c->is_backward[i] = is_repeated(c, op);
    if (c->is_backward[i] && !need_inputs(c, op)) return graph_no_memory(error);
    for (int k = 0; !c->is_backward[i] && k < op->n_out; k++)
      if (is_needed(c, op->out[k])) c->saved[c->n_saved++] = op->out[k];
  }
  return NEAP_OK;
}

/* A blob that crosses is not freed on the way: its name ends with the layer. */
static void keep_crossing(cut *c) {
  for (int i = 0; i < c->n_op; i++) {
    const neap_net_op *op = neap_net_op_at(c->net, i);
    if ((op->op->effects & NEAP_EFFECT_RELEASE) == 0) continue;
    for (int k = 0; k < op->n_in; k++)
      if (is_needed(c, op->in[k])) c->is_forward[i] = false;
  }
}

static neap_status prepare_cut(cut *c, neap_error *error) {
  int n_out = 0;
  c->n_op = neap_net_n_ops(c->net);
  for (int i = 0; i < c->n_op; i++) n_out += neap_net_op_at(c->net, i)->n_out;
  c->is_forward = neap_arena_alloc(&c->room, ((size_t)c->n_op + 1) * sizeof(bool));
  c->is_backward = neap_arena_alloc(&c->room, ((size_t)c->n_op + 1) * sizeof(bool));
  c->saved = neap_arena_alloc(&c->room, ((size_t)n_out + 1) * sizeof *c->saved);
  if (c->is_forward == NULL || c->is_backward == NULL || c->saved == NULL)
    return graph_no_memory(error);
  NEAP_TRY(decide(c, error));
  keep_crossing(c);
  return NEAP_OK;
}

/* ---- the halves ------------------------------------------------------------------------------ */

static neap_status make_forward(cut *c, const neap_halves_spec *spec, neap_net **out,
                                neap_error *error) {
  const char **output = neap_arena_alloc(&c->room, ((size_t)c->n_saved + 1) * sizeof *output);
  if (output == NULL) return graph_no_memory(error);
  int n = 0;
  output[n++] = neap_intern(spec->output);
  for (int i = c->n_saved - 1; i >= 0; i--) /* in order of definition */
    if (c->saved[i] != output[0]) output[n++] = c->saved[i];
  neap_net_cut part = {.name = neap_net_name(c->net),
                       .take = c->is_forward,
                       .n_output = n,
                       .output = output,
                       .keep = true,
                       .stream = spec->stream};
  return neap_net_part(c->net, &part, out, error);
}

/* The types of what crosses are those that the forward half gives; of a stash a kernel knows how
 * many bytes it has. */
static neap_status saved_types(const cut *c, const neap_net *forward, neap_type *type,
                               neap_error *error) {
  neap_graph *graph = NULL, *laid_out = NULL;
  neap_choices choices = {0};
  neap_choose_options plain = {.n_thread = 1, .scratch_limit = SIZE_MAX, .plain = true};
  NEAP_TRY(neap_graph_prepare(forward, &(neap_graph_options){.no_rewrite = true}, &graph, error));
  neap_status status = neap_graph_choose(graph, &plain, &choices, error);
  if (status == NEAP_OK) status = neap_graph_lay_out(graph, &choices, &laid_out, error);
  for (int i = 0; status == NEAP_OK && i < c->n_saved; i++)
    type[i] = laid_out->value[neap_graph_find(laid_out, c->saved[i])].type;
  neap_graph_free(laid_out);
  neap_choices_fini(&choices);
  neap_graph_free(graph);
  return status;
}

static neap_status make_backward(cut *c, const neap_halves_spec *spec, const neap_net *forward,
                                 neap_net **out, neap_error *error) {
  neap_type *type = neap_arena_alloc(&c->room, ((size_t)c->n_saved + 1) * sizeof *type);
  if (type == NULL) return graph_no_memory(error);
  NEAP_TRY(saved_types(c, forward, type, error));
  neap_buffer name = {0};
  neap_buffer_add(&name, "%s_backward", neap_net_name(c->net));
  neap_net_cut part = {.name = name.text,
                       .take = c->is_backward,
                       .n_input = c->n_saved,
                       .input = c->saved,
                       .input_type = type,
                       .n_output = spec->n_wrt,
                       .output = spec->grad,
                       .stream = spec->stream};
  neap_status status =
    name.failed ? graph_no_memory(error) : neap_net_part(c->net, &part, out, error);
  neap_buffer_fini(&name);
  return status;
}

static void halves_fini(neap_halves *halves) {
  neap_net_free(halves->forward);
  neap_net_free(halves->backward);
  *halves = (neap_halves){0};
}

static bool has_subnet(const neap_net *net) {
  for (int o = 0; o < neap_net_n_ops(net); o++) {
    const neap_net_op *op = neap_net_op_at(net, o);
    for (int a = 0; a < neap_op_n_attrs(op->op); a++)
      if (op->op->attrs[a].type == NEAP_ATTR_NET && op->attrs[a].net != NULL) return true;
  }
  return false;
}

/* The forward as it is; the backward with the forward in front of it, which nobody's outputs but
 * the gradients' need. */
static neap_status repeat_all(const neap_net *net, const neap_halves_spec *spec,
                              const neap_graph_options *options, neap_halves *out,
                              neap_error *error) {
  neap_type type;
  NEAP_TRY(neap_graph_type(net, options, spec->output, &type, error));
  NEAP_TRY(neap_net_clone(net, &out->forward, error));
  NEAP_TRY(add_gradient(net, spec, &type, &out->backward, error));
  out->repeats = true;
  return neap_net_set_outputs(out->backward, spec->n_wrt, spec->grad, error);
}

neap_status neap_graph_halves(const neap_net *net, const neap_halves_spec *spec,
                              const neap_graph_options *options, neap_halves *out,
                              neap_error *error) {
  static const neap_graph_options none = {0};
  neap_net *whole = NULL;
  *out = (neap_halves){0};
  if (options == NULL) options = &none;
  if (has_subnet(net)) {
    neap_status repeated = repeat_all(net, spec, options, out, error);
    if (repeated != NEAP_OK) halves_fini(out);
    return repeated;
  }
  NEAP_TRY(write_out(net, spec, options, &whole, error));
  cut c = {.net = whole};
  neap_status status = prepare_cut(&c, error);
  if (status == NEAP_OK) status = make_forward(&c, spec, &out->forward, error);
  if (status == NEAP_OK) status = make_backward(&c, spec, out->forward, &out->backward, error);
  neap_map_fini(&c.needed);
  neap_arena_fini(&c.room);
  neap_net_free(whole);
  if (status != NEAP_OK) halves_fini(out);
  return status;
}

neap_status neap_graph_type(const neap_net *net, const neap_graph_options *options,
                            const char *name, neap_type *out, neap_error *error) {
  neap_graph *graph;
  NEAP_TRY(neap_graph_prepare(net, options, &graph, error));
  neap_value_id v = neap_graph_find(graph, name);
  neap_status status = NEAP_OK;
  if (v >= 0)
    *out = graph->value[v].type;
  else
    status = neap_fail(error, NEAP_NAME, "net \"%s\" has no blob \"%s\"", neap_net_name(net), name);
  neap_graph_free(graph);
  return status;
}
