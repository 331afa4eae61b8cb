/* build.c: net to graph. Walks the ops in definition order with an environment (name -> value), so that each write makes
 * a new version; infers types at once; expands Gradient ops where they stand.
 *
 * Subnets become subgraphs whose parameters and results are operands of the owning node: their values have region
 * ARGUMENT. INVARIANT: a result that is a parameter unchanged, or appears twice, gets a Copy of its own, unless it is the
 * next version of a resident parameter, which is the same storage.
 */
#include "graph/graph_int.h"

#include <stdio.h>
#include <string.h>

static void builder_fini(neap_builder *b) { neap_map_fini(&b->env); }

static void *arena_ids(neap_builder *b, int n) { return neap_arena_alloc(&b->graph->arena, (size_t)n * sizeof(neap_value_id)); }

/* ---- values -------------------------------------------------------------------------------------------------------- */

/* The type that the options give this blob in place of the declared one; NULL: none. */
static const neap_type *overridden(const neap_builder *b, const char *name) {
  for (int i = 0; b->options != NULL && i < b->options->n_input; i++)
    if (strcmp(b->options->input[i], name) == 0) return &b->options->input_type[i];
  return NULL;
}

static neap_region region_of_role(neap_role role) {
  switch (role) {
    case NEAP_ROLE_PARAMETER: return NEAP_REGION_PARAMETER;
    case NEAP_ROLE_GRADIENT: return NEAP_REGION_GRADIENT;
    case NEAP_ROLE_STATE: return NEAP_REGION_STATE;
    case NEAP_ROLE_INPUT:
    case NEAP_ROLE_OUTPUT: return NEAP_REGION_IO;
    default: return NEAP_REGION_ARENA;
  }
}

/* The value a name stands for now; a declared blob becomes a value at its first mention. */
static neap_status value_of_name(neap_builder *b, const char *name, neap_value_id *out, neap_error *error) {
  *out = neap_map_get(&b->env, name, NEAP_NO_VALUE);
  if (*out != NEAP_NO_VALUE) return NEAP_OK;
  const neap_net_blob *blob = neap_net_find_blob(b->net, name);
  if (blob == NULL || blob->type.dtype == NEAP_DTYPE_NONE)
    return neap_fail(error, NEAP_NAME, "blob \"%s\" is read before anything writes it", name);
  const neap_type *type = overridden(b, name);
  if (type == NULL) type = &blob->type;
  int v = graph_add_value(b->graph, blob->name, type);
  if (v < 0 || !neap_map_set(&b->env, name, v)) return graph_no_memory(error);
  neap_value *value = &b->graph->value[v];
  value->role = blob->role;
  value->region = region_of_role(blob->role);
  value->keep = blob->keep;
  value->is_blob = true;
  *out = v;
  return NEAP_OK;
}

/* ---- nodes --------------------------------------------------------------------------------------------------------- */

typedef struct infer_context {
  neap_builder *builder;
  int node;
  const char *const *in_blob, *const *out_blob;
} infer_context;

static const neap_net *subnet_at(const neap_node *node, int subnet) {
  for (int a = 0, k = 0; a < neap_op_n_attrs(node->op); a++)
    if (node->op->attrs[a].type == NEAP_ATTR_NET && k++ == subnet) return node->attrs[a].net;
  return NULL;
}

/* Whether an op may write the value's own storage: it is resident, or a parameter of a subnet whose owner writes it. */
static bool is_writable(const neap_value *value) {
  return value->region != NEAP_REGION_ARENA && (value->region != NEAP_REGION_ARGUMENT || value->role == NEAP_ROLE_STATE);
}

/* Operand position that output k of a control node is a version of: the input of the same name when it is resident. */
static int version_source(const neap_graph *graph, const neap_node *node, const char *const *in_blob, const char *name) {
  for (int i = 0; in_blob != NULL && name != NULL && i < node->n_in; i++)
    if (in_blob[i] == name && node->in[i] >= 0 && is_writable(&graph->value[node->in[i]])) return i;
  return -1;
}

/* Called by infer of control ops: builds the subgraph for these parameter types (once) and gives its result types.
 * Parameters are the node's inputs from position n_node_in - n_in on: a condition in front is not one. */
static neap_status infer_subnet(const neap_infer *infer, int subnet, int n_in, const neap_type *in, int n_out, neap_type *out,
                                neap_error *error) {
  infer_context *c = infer->graph;
  neap_graph *graph = c->builder->graph;
  neap_node *node = &graph->node[c->node];
  if (node->sub[subnet] == NULL) {
    int first = node->n_in - n_in;
    int *in_argument = arena_ids(c->builder, n_in), *out_argument = arena_ids(c->builder, n_out);
    if (in_argument == NULL || out_argument == NULL) return graph_no_memory(error);
    for (int i = 0; i < n_in; i++) in_argument[i] = first + i;
    bool is_condition = (node->op->effects & NEAP_EFFECT_LOOP) != 0 && subnet < node->n_sub - 1;
    for (int k = 0; k < n_out; k++) {
      const char *name = c->out_blob != NULL && !is_condition ? c->out_blob[k] : NULL;
      int source = version_source(graph, node, c->in_blob, name);
      out_argument[k] = source >= 0 ? source : node->n_in + k + (is_condition ? node->n_out : 0);
    }
    neap_sub_spec spec = {.net = subnet_at(node, subnet),
                          .n_in = n_in,
                          .in_type = in,
                          .in_name = c->in_blob != NULL ? c->in_blob + first : NULL,
                          .in_argument = in_argument,
                          .n_out = n_out,
                          .out_name = c->out_blob,
                          .out_argument = out_argument};
    neap_graph *sub;
    NEAP_TRY(build_sub(c->builder, &spec, &sub, error));
    graph->node[c->node].sub[subnet] = sub;
  }
  const neap_graph *sub = graph->node[c->node].sub[subnet];
  if (sub->n_output != n_out)
    return neap_fail(error, NEAP_GRAPH, "subnet \"%s\" gives %d results, expected %d", sub->name, sub->n_output, n_out);
  for (int k = 0; k < n_out; k++) out[k] = sub->value[sub->output[k]].type;
  return NEAP_OK;
}

static int count_subnets(const neap_op *op) {
  int n = 0;
  for (int a = 0; a < neap_op_n_attrs(op); a++) n += op->attrs[a].type == NEAP_ATTR_NET;
  return n;
}

/* Enforced pairs of a node: the record's, or for a control op one for each resident blob it writes; and the effects of
 * its subgraphs. */
static neap_status finish_node(neap_builder *b, int index, const neap_node_spec *spec, neap_error *error) {
  neap_graph *graph = b->graph;
  neap_node *node = &graph->node[index];
  bool control = (node->op->effects & NEAP_EFFECT_CONTROL) != 0;
  node->enforced = neap_arena_alloc(&graph->arena, (size_t)NEAP_MAX(node->n_out, NEAP_OP_MAX_PAIR) * sizeof *node->enforced);
  if (node->enforced == NULL) return graph_no_memory(error);
  for (int p = 0; p < node->op->n_enforced; p++) {
    neap_pair pair = node->op->enforced[p];
    if (pair.in < node->n_in && pair.out < node->n_out && node->in[pair.in] >= 0) node->enforced[node->n_enforced++] = pair;
  }
  for (int k = 0; control && k < node->n_out; k++) {
    int source = version_source(graph, node, spec->in_blob, spec->out_name != NULL ? spec->out_name[k] : NULL);
    if (source >= 0) node->enforced[node->n_enforced++] = (neap_pair){source, k};
  }
  for (int s = 0; s < node->n_sub; s++)
    for (int n = 0; node->sub[s] != NULL && n < node->sub[s]->n_node; n++)
      node->effects |= node->sub[s]->node[n].effects & (NEAP_EFFECT_COMMIT | NEAP_EFFECT_FAULT | NEAP_EFFECT_RANDOM);
  if ((node->effects & NEAP_EFFECT_COMMIT) != 0) node->phase = NEAP_PHASE_UPDATE;
  return (node->op->effects & NEAP_EFFECT_LOOP) != 0 ? graph_make_loop(graph, index, error) : NEAP_OK;
}

/* Numbers an op whose outputs' length depends on data, and looks that up among what earlier runs have found. */
static neap_status find_extent(neap_builder *b, int index, neap_infer *infer, neap_error *error) {
  neap_node *node = &b->graph->node[index];
  if (b->is_sub)
    return neap_hint(error, "compute it before the subnet and give it the result"),
           neap_fail(error, NEAP_GRAPH, "how long its output is depends on data, so it can't stand in a subnet");
  int number = b->n_extent++;
  node->extent = number + 1;
  node->n_found = number < b->options->n_extent ? b->options->extent[number] : -1;
  if (node->n_found >= 0) infer->extent = &b->options->extent[number];
  return NEAP_OK;
}

/* Attributes of one name have one value in both: numbers and lists of them, which is what windows and rates are. */
static bool agree(const neap_op *op, const neap_attr_value *attrs, const neap_node *forward) {
  for (int i = 0; i < neap_op_n_attrs(op); i++) {
    int k = neap_op_attr_index(forward->op, op->attrs[i].name);
    if (k < 0) continue;
    const neap_attr_value *x = &attrs[i], *y = &forward->attrs[k];
    if (x->i != y->i || x->n != y->n || (x->n > 0 && memcmp(x->ints, y->ints, (size_t)x->n * sizeof *x->ints) != 0)) return false;
  }
  return true;
}

/* The bytes of a stash mean something to one pair of kernels on one x only, and no shape says so. Input i, which the record
 * declares to be a stash, must be one that the node's forward wrote, with the attributes and the x that this op has too; or,
 * without a forward, a blob that is no stash: then kernels see no pair and check its bytes themselves. */
static neap_status check_stash(const neap_builder *b, const neap_node_spec *spec, int i, const neap_type *dx, neap_error *error) {
  const neap_graph *graph = b->graph;
  const neap_value *value = &graph->value[spec->in[i]];
  const char *name = neap_op_input(spec->op, i)->name;
  if (b->forward < 0 && !value->is_stash) return NEAP_OK;
  if (!value->is_stash || value->node != b->forward)
    return neap_fail(error, NEAP_GRAPH, "%s expects the stash of the op's forward, got %s", name, value->name);
  const neap_node *forward = &graph->node[b->forward];
  if (neap_type_equal(dx, &graph->value[forward->in[0]].type) && agree(spec->op, spec->attrs, forward)) return NEAP_OK;
  return neap_fail(error, NEAP_GRAPH, "%s was written by %s \"%s\", which has other attributes or another shape", name,
                   forward->op->name, forward->name);
}

static neap_status infer_node(neap_builder *b, int index, const neap_node_spec *spec, neap_type **out, neap_error *error) {
  neap_graph *graph = b->graph;
  neap_type *in = neap_arena_alloc(&graph->arena, (size_t)NEAP_MAX(spec->n_in, 1) * sizeof *in);
  *out = neap_arena_alloc(&graph->arena, (size_t)NEAP_MAX(spec->n_out, 1) * sizeof **out);
  if (in == NULL || *out == NULL) return graph_no_memory(error);
  for (int i = 0; i < spec->n_in; i++)
    if (spec->in[i] >= 0) in[i] = graph->value[spec->in[i]].type;
  infer_context context = {b, index, spec->in_blob, spec->out_name};
  neap_infer infer = {.op = spec->op,
                      .attrs = spec->attrs,
                      .n_in = spec->n_in,
                      .n_out = spec->n_out,
                      .in = in,
                      .out = *out,
                      .infer_subnet = infer_subnet,
                      .graph = &context};
  if ((spec->op->effects & NEAP_EFFECT_EXTENT) != 0) NEAP_TRY(find_extent(b, index, &infer, error));
  if (spec->op->infer == NULL) return neap_fail(error, NEAP_INTERNAL, "the op has no infer function");
  for (int i = 0; i < spec->n_in; i++) {
    const neap_arg *arg = neap_op_input(spec->op, i);
    unsigned dtypes = arg == NULL || arg->dtypes == 0 ? NEAP_FLOATS : arg->dtypes;
    if (arg != NULL && in[i].dtype != NEAP_DTYPE_NONE && !neap_dtype_in(in[i].dtype, dtypes))
      return neap_fail(error, NEAP_DTYPE, "%s does not take dtype %s", arg->name, neap_dtype_name(in[i].dtype));
  }
  NEAP_TRY(spec->op->infer(&infer, error));
  for (int i = 0; i < spec->n_in; i++)
    if (spec->in[i] >= 0 && neap_op_input(spec->op, i) != NULL && (neap_op_input(spec->op, i)->flags & NEAP_ARG_STASH) != 0)
      NEAP_TRY(check_stash(b, spec, i, &(*out)[0], error));
  for (int k = 0; k < spec->n_out; k++) {
    const neap_arg *arg = neap_op_output(spec->op, k);
    if (arg != NULL && (arg->flags & NEAP_ARG_STASH) != 0) (*out)[k] = (neap_type){NEAP_DTYPE_U8, NEAP_SHAPE(0)};
  }
  if (spec->op->cost != NULL) spec->op->cost(&infer, &graph->node[index].cost);
  return NEAP_OK;
}

neap_status build_node(neap_builder *b, const neap_node_spec *spec, int *node_index, neap_error *error) {
  neap_graph *graph = b->graph;
  int index = graph_add_node(graph, spec->op, spec->n_in, spec->n_out);
  if (index < 0) return graph_no_memory(error);
  neap_node *node = &graph->node[index];
  if (spec->n_in > 0) memcpy(node->in, spec->in, (size_t)spec->n_in * sizeof *node->in);
  node->attrs = spec->attrs;
  node->name = spec->name, node->scope = spec->scope, node->line = spec->line;
  if (spec->device != NULL) node->device = spec->device;
  node->phase = b->phase;
  if (b->forward >= 0) node->forward = b->forward;
  node->stream = (*b->stream)++;
  int n_sub = count_subnets(spec->op);
  if (n_sub > 0) {
    node->sub = neap_arena_alloc(&graph->arena, (size_t)n_sub * sizeof(neap_graph *));
    if (node->sub == NULL) return graph_no_memory(error);
    node->n_sub = n_sub;
  }
  neap_error inner = {0};
  neap_type *out;
  if (infer_node(b, index, spec, &out, &inner) != NEAP_OK)
    return graph_locate(error, &inner, spec->op->name, spec->name, spec->scope, spec->line);
  bool release = (spec->op->effects & NEAP_EFFECT_RELEASE) != 0;
  for (int k = 0; k < spec->n_out && !release; k++) {
    const char *label = spec->out_name != NULL ? spec->out_name[k] : NULL;
    int v = graph_add_value(graph, label, &out[k]);
    if (v < 0) return graph_no_memory(error);
    const neap_arg *arg = neap_op_output(spec->op, k);
    graph->value[v].node = index;
    graph->value[v].position = k;
    graph->value[v].is_stash = arg != NULL && (arg->flags & NEAP_ARG_STASH) != 0;
    if (label == NULL) {
      char text[256];
      snprintf(text, sizeof text, "%s.%s", spec->name, arg != NULL ? arg->name : "out");
      if ((graph->value[v].name = neap_intern(text)) == NULL) return graph_no_memory(error);
    }
    graph->node[index].out[k] = v;
  }
  if (release) graph->node[index].n_out = 0;
  NEAP_TRY(finish_node(b, index, spec, error));
  node = &graph->node[index];
  for (int p = 0; p < node->n_enforced; p++) {
    neap_value *to = &graph->value[node->out[node->enforced[p].out]];
    const neap_value *from = &graph->value[node->in[node->enforced[p].in]];
    to->root = from->root;
    to->region = from->region;
    to->role = from->role;
    to->keep = from->keep;
    to->argument = from->argument;
  }
  *node_index = index;
  return NEAP_OK;
}

/* ---- net ops ------------------------------------------------------------------------------------------------------- */

/* Writes the outputs' names into the environment; each is a blob. What a Free names is no longer there. */
static neap_status bind_names(neap_builder *b, const neap_net_op *op, int node, neap_error *error) {
  bool release = (op->op->effects & NEAP_EFFECT_RELEASE) != 0;
  for (int i = 0; release && i < op->n_in; i++)
    if (op->in[i] != NULL) neap_map_remove(&b->env, op->in[i]);
  for (int k = 0; !release && k < op->n_out; k++) {
    if (op->out[k] == NULL) continue;
    int v = b->graph->node[node].out[k];
    if (!neap_map_set(&b->env, op->out[k], v)) return graph_no_memory(error);
    b->graph->value[v].is_blob = true;
    const neap_net_blob *blob = neap_net_find_blob(b->net, op->out[k]);
    if (blob != NULL && blob->gradient_of != NULL) b->graph->value[v].gradient_of = neap_intern(blob->gradient_of);
  }
  return NEAP_OK;
}

/* A value that graph made itself becomes the blob `name`. */
static neap_status bind_value(neap_builder *b, const char *name, neap_value_id v, neap_error *error) {
  b->graph->value[v].name = name;
  b->graph->value[v].is_blob = true;
  return neap_map_set(&b->env, name, v) ? NEAP_OK : graph_no_memory(error);
}

/* The values that the op's inputs stand for now, in the graph's arena; NEAP_NO_VALUE where an optional input is absent. */
static neap_status read_names(neap_builder *b, const neap_net_op *op, neap_value_id **out, neap_error *error) {
  neap_value_id *in = *out = arena_ids(b, NEAP_MAX(op->n_in, 1));
  if (in == NULL) return graph_no_memory(error);
  for (int i = 0; i < op->n_in; i++) {
    neap_error inner = {0};
    in[i] = NEAP_NO_VALUE;
    if (op->in[i] != NULL && value_of_name(b, op->in[i], &in[i], &inner) != NEAP_OK)
      return graph_locate(error, &inner, op->op->name, op->name, op->scope, op->line);
  }
  return NEAP_OK;
}

/* A Constant of `type`; NEAP_NO_VALUE, with the builder's sticky status, when it fails. */
neap_value_id build_constant(neap_builder *b, neap_type type, double value) {
  neap_grad g = {.graph = b};
  return neap_grad_emit1(&g, "Constant", 0, NULL, NULL,
                         (neap_set[]){NEAP_SET_INTS("shape", type.shape.n_dim, type.shape.dim),
                                      NEAP_SET_FLOAT("value", value),
                                      NEAP_SET_INT("dtype", type.dtype),
                                      {0}});
}

static neap_value_id emit_copy(neap_builder *b, neap_value_id v) {
  neap_grad g = {.graph = b};
  return neap_grad_emit1(&g, "Copy", 1, &v, NULL, NULL);
}

/* A gradient of zeros is more often a slip than a wish. */
static neap_status fail_unused(const neap_net_op *op, int i, neap_error *error) {
  neap_error inner = {0};
  snprintf(inner.blob, sizeof inner.blob, "%s", op->in[i + 1]);
  neap_fail(&inner, NEAP_GRAPH, "\"%s\" does not depend on \"%s\", or only through ops without a gradient", op->in[0],
            op->in[i + 1]);
  neap_hint(&inner, "allow_unused = true gives zeros");
  return graph_locate(error, &inner, op->op->name, op->name, op->scope, op->line);
}

/* Gives each gradient the blob name the net gave it. One value under two names, or a value that already has a name, is
 * copied, since each blob has its own bytes. */
static neap_status name_gradients(neap_builder *b, const neap_net_op *op, const neap_value_id *wrt, neap_value_id *dwrt,
                                  neap_error *error) {
  b->emit_status = NEAP_OK;
  b->emit_error = error;
  for (int i = 0; i < op->n_out; i++) {
    if (dwrt[i] == NEAP_NO_VALUE && op->attrs[0].i == 0) return fail_unused(op, i, error);
    if (dwrt[i] == NEAP_NO_VALUE) dwrt[i] = build_constant(b, b->graph->value[wrt[i]].type, 0);
    NEAP_TRY(b->emit_status);
    if (b->graph->value[dwrt[i]].is_blob) dwrt[i] = emit_copy(b, dwrt[i]);
    NEAP_TRY(b->emit_status);
    b->graph->value[dwrt[i]].name = op->out[i];
    b->graph->value[dwrt[i]].is_blob = true;
    b->graph->value[dwrt[i]].gradient_of = b->graph->value[wrt[i]].name;
    if (!neap_map_set(&b->env, op->out[i], dwrt[i])) return graph_no_memory(error);
  }
  return NEAP_OK;
}

/* The backward pass of a Gradient op, in its place: in[0] is the loss, one floating-point element, whose seed is 1; the others
 * are what it is differentiated by. Rewrites come first, so that the backward is that of the rewritten
 * forward. SHAPE or DTYPE error when the operands are not so. */
static neap_status expand_gradient(neap_builder *b, const neap_net_op *op, int next_op, neap_error *error) {
  neap_value_id *in, *dwrt = arena_ids(b, NEAP_MAX(op->n_out, 1));
  if (dwrt == NULL) return graph_no_memory(error);
  if (b->rewrite) NEAP_TRY(graph_rewrite(b, next_op, error));
  NEAP_TRY(read_names(b, op, &in, error));
  const neap_type type = b->graph->value[in[0]].type;
  neap_error inner = {0};
  if (neap_shape_elems(&type.shape) != 1 || !neap_dtype_is_float(type.dtype)) {
    char text[NEAP_SHAPE_TEXT];
    neap_fail(&inner, NEAP_SHAPE, "the loss expects one floating-point element, got %s %s", neap_dtype_name(type.dtype),
              neap_shape_text(&type.shape, text));
    neap_hint(&inner, "reduce it with Mean or Sum first");
    return graph_locate(error, &inner, op->op->name, op->name, op->scope, op->line);
  }
  for (int i = 1; i < op->n_in; i++) {
    if (neap_dtype_is_float(b->graph->value[in[i]].type.dtype)) continue;
    neap_fail(&inner, NEAP_DTYPE, "\"%s\" is %s: only floating-point blobs have a gradient", op->in[i],
              neap_dtype_name(b->graph->value[in[i]].type.dtype));
    return graph_locate(error, &inner, op->op->name, op->name, op->scope, op->line);
  }
  b->phase = NEAP_PHASE_BACKWARD;
  b->graph->train = true;
  b->emit_status = NEAP_OK;
  b->emit_error = error;
  neap_value_id seed = build_constant(b, type, 1);
  NEAP_TRY(b->emit_status);
  if (b->graph->value[in[0]].node >= 0)
    b->graph->node[b->graph->value[seed].node].device = b->graph->node[b->graph->value[in[0]].node].device;
  if (graph_gradient(b, 1, in, &seed, op->n_out, in + 1, dwrt, &inner) != NEAP_OK)
    return graph_locate(error, &inner, op->op->name, op->name, op->scope, op->line);
  NEAP_TRY(name_gradients(b, op, in + 1, dwrt, error));
  b->phase = NEAP_PHASE_FORWARD;
  return NEAP_OK;
}

/* An enforced pair of an op in a subnet whose input is the owner's transient blob writes a copy of it. */
static neap_status copy_before_write(neap_builder *b, const neap_op *op, neap_value_id *in, int n_in, neap_error *error) {
  b->emit_status = NEAP_OK;
  b->emit_error = error;
  for (int p = 0; p < op->n_enforced; p++) {
    int i = op->enforced[p].in;
    if (i >= n_in || in[i] < 0 || b->graph->value[in[i]].region != NEAP_REGION_ARGUMENT || is_writable(&b->graph->value[in[i]]))
      continue;
    in[i] = emit_copy(b, in[i]);
    NEAP_TRY(b->emit_status);
  }
  return NEAP_OK;
}

/* HasScope: known while the graph is built. CreateScope leaves nothing. */
static neap_status expand_scope(neap_builder *b, const neap_net_op *op, neap_error *error) {
  if (op->n_in == 0) return NEAP_OK;
  b->emit_status = NEAP_OK;
  b->emit_error = error;
  neap_value_id v = build_constant(b, (neap_type){NEAP_DTYPE_BOOL, NEAP_SHAPE(1)}, op->frame > 0);
  NEAP_TRY(b->emit_status);
  return bind_value(b, op->out[0], v, error);
}

neap_status build_copy(neap_builder *b, const char *from, const char *to, neap_error *error) {
  neap_value_id v;
  NEAP_TRY(value_of_name(b, from, &v, error));
  b->emit_status = NEAP_OK;
  b->emit_error = error;
  v = emit_copy(b, v);
  NEAP_TRY(b->emit_status);
  return bind_value(b, to, v, error);
}

static neap_status expand_pseudo(neap_builder *b, const neap_net_op *op, int next_op, neap_error *error) {
  if (neap_net_do_body(op) != NULL) return graph_expand_do(b, op, error);
  if (strcmp(op->op->name, "Gradient") == 0) return expand_gradient(b, op, next_op, error);
  return expand_scope(b, op, error);
}

/* Node of this name, the newest first; -1: none. */
static int find_node(const neap_graph *graph, const char *name) {
  for (int n = graph->n_node - 1; n >= 0; n--)
    if (strcmp(graph->node[n].name, name) == 0) return n;
  return -1;
}

/* build_node, with what an expanded net remembers: the phase, the other half of the pair, the random stream. */
static neap_status build_from_origin(neap_builder *b, const neap_net_op *op, const neap_node_spec *spec, int *node,
                                     neap_error *error) {
  const neap_net_origin *origin = &op->origin;
  if (origin->backward) {
    b->graph->train = true;
    b->phase = NEAP_PHASE_BACKWARD;
    b->forward = origin->forward != NULL ? find_node(b->graph, origin->forward) : -1;
  }
  neap_status status = build_node(b, spec, node, error);
  if (origin->backward) b->phase = NEAP_PHASE_FORWARD, b->forward = -1;
  if (status == NEAP_OK && origin->stream != 0) b->graph->node[*node].stream = origin->stream;
  return status;
}

/* ---- probes: the part of a net that finds unknown lengths ------------------------------------------------------------- */

enum { UNKNOWN = -2 }; /* in the environment: the name stands for something whose size is not known yet */

int neap_graph_count_extents(const neap_net *net) {
  int n = 0;
  for (int i = 0; i < neap_net_n_ops(net); i++) {
    const neap_net_op *op = neap_net_op_at(net, i);
    const neap_net *body = neap_net_do_body(op);
    n += body != NULL ? neap_graph_count_extents(body) : (op->op->effects & NEAP_EFFECT_EXTENT) != 0;
  }
  return n;
}

/* Updates and the backward pass lead to no length. */
static bool is_left_out(const neap_builder *b, const neap_net_op *op) {
  if ((op->op->effects & NEAP_EFFECT_COMMIT) != 0 || strcmp(op->op->name, "Gradient") == 0 || op->origin.backward) return true;
  for (int i = 0; i < op->n_in; i++)
    if (op->in[i] != NULL && neap_map_get(&b->env, op->in[i], NEAP_NO_VALUE) == UNKNOWN) return true;
  return false;
}

/* What reads these names later is left out of the probe as well. */
static neap_status mark_unknown(neap_builder *b, const neap_net_op *op, neap_error *error) {
  for (int k = 0; k < op->n_out; k++)
    if (op->out[k] != NULL && !neap_map_set(&b->env, op->out[k], UNKNOWN)) return graph_no_memory(error);
  return NEAP_OK;
}

/* The ops after it keep their numbers and their random numbers. */
static neap_status leave_out(neap_builder *b, const neap_net_op *op, neap_error *error) {
  const neap_net *body = neap_net_do_body(op);
  ++*b->stream;
  b->n_extent += body != NULL ? neap_graph_count_extents(body) : (op->op->effects & NEAP_EFFECT_EXTENT) != 0;
  return mark_unknown(b, op, error);
}

neap_status build_op(neap_builder *b, const neap_net_op *op, int next_op, neap_error *error) {
  bool probe = b->options->probe && !b->is_sub;
  if (probe && is_left_out(b, op)) return leave_out(b, op, error);
  if ((op->op->effects & NEAP_EFFECT_PSEUDO) != 0) return expand_pseudo(b, op, next_op, error);
  if (b->no_commits && (op->op->effects & NEAP_EFFECT_COMMIT) != 0) {
    ++*b->stream; /* clones keep the streams of the ops after this one */
    return NEAP_OK;
  }
  int n_out = NEAP_MAX(op->n_out, b->all_outputs && op->op->grad != NULL ? neap_op_n_outputs(op->op) : 0);
  const char **out_name = neap_arena_alloc(&b->graph->arena, (size_t)(n_out + 1) * sizeof *out_name);
  if (out_name == NULL) return graph_no_memory(error);
  for (int k = 0; k < op->n_out; k++) out_name[k] = op->out[k];
  neap_node_spec spec = {.op = op->op,
                         .attrs = graph_copy_attrs(b->graph, op->op, op->attrs),
                         .n_in = op->n_in,
                         .n_out = n_out,
                         .out_name = out_name,
                         .name = neap_intern(op->name),
                         .scope = neap_intern(op->scope),
                         .line = neap_intern(op->line),
                         .device = neap_intern(op->device),
                         .in_blob = (const char *const *)op->in};
  neap_value_id *in;
  int node;
  if (spec.attrs == NULL || spec.name == NULL || spec.scope == NULL || spec.line == NULL || spec.device == NULL)
    return graph_no_memory(error);
  NEAP_TRY(read_names(b, op, &in, error)); /* the texts are interned: a graph outlives its net */
  NEAP_TRY(copy_before_write(b, op->op, in, op->n_in, error));
  spec.in = in;
  NEAP_TRY(build_from_origin(b, op, &spec, &node, error));
  NEAP_TRY(bind_names(b, op, node, error));
  bool unknown = b->graph->node[node].extent > 0 && b->graph->node[node].n_found < 0;
  return probe && unknown ? mark_unknown(b, op, error) : NEAP_OK;
}

/* Entries of `recompute` are op positions in the net; an op may give several nodes, and all of them are marked. */
static neap_status build_ops(neap_builder *b, neap_error *error) {
  int n = neap_net_n_ops(b->net);
  for (int i = 0; i < n; i++) {
    int first = b->graph->n_node;
    NEAP_TRY(build_op(b, neap_net_op_at(b->net, i), i + 1, error));
    for (int r = 0; r < b->n_recompute; r++)
      for (int m = first; b->recompute[r] == i && m < b->graph->n_node; m++) b->graph->node[m].recompute = true;
  }
  return b->rewrite ? graph_rewrite(b, n, error) : NEAP_OK;
}

/* ---- the two doors' common part: roles and outputs of a top-level graph ---------------------------------------------- */

bool build_is_kept(const neap_builder *b, const char *name) {
  for (int i = 0; i < b->options->n_keep; i++)
    if (strcmp(b->options->keep[i], name) == 0) return true;
  return b->options->keep_all;
}

/* "x.grad" is kept, but no gradient reaches x: it is zero, and has bytes like any other that is kept. */
static neap_status keep_zero_gradients(neap_builder *b, neap_error *error) {
  static const char suffix[] = ".grad";
  b->emit_status = NEAP_OK;
  b->emit_error = error;
  for (int i = 0; i < b->options->n_keep; i++) {
    const char *name = b->options->keep[i];
    size_t n = strlen(name), n_suffix = sizeof suffix - 1;
    char base[256];
    if (n <= n_suffix || n >= sizeof base || strcmp(name + n - n_suffix, suffix) != 0) continue;
    snprintf(base, sizeof base, "%.*s", (int)(n - n_suffix), name);
    const char *kept = neap_intern(name), *of = neap_intern(base);
    if (kept == NULL || of == NULL) return graph_no_memory(error);
    neap_value_id v = neap_map_get(&b->env, of, -1);
    if (neap_map_get(&b->env, kept, -1) >= 0 || v < 0 || !neap_dtype_is_float(b->graph->value[v].type.dtype)) continue;
    neap_value_id zero = build_constant(b, b->graph->value[v].type, 0);
    NEAP_TRY(b->emit_status);
    b->graph->value[zero].name = kept;
    b->graph->value[zero].is_blob = true;
    if (!neap_map_set(&b->env, kept, zero)) return graph_no_memory(error);
  }
  return NEAP_OK;
}

/* A name to keep that the net lacks is a slip of the pen, and would be missed when it is fetched. */
static neap_status check_keeps(const neap_builder *b, neap_error *error) {
  for (int i = 0; i < b->options->n_keep; i++) {
    const char *name = b->options->keep[i];
    int v = 0;
    while (v < b->graph->n_value && strcmp(b->graph->value[v].name, name) != 0) v++;
    if (v < b->graph->n_value) continue;
    const char *best = NULL;
    int least = 1 + (int)strlen(name) / 3;
    for (v = 0; v < b->graph->n_value; v++) {
      int d = neap_text_distance(name, b->graph->value[v].name);
      if (d <= least) least = d - 1, best = b->graph->value[v].name;
    }
    neap_fail(error, NEAP_NAME, "keep: net \"%s\" has no blob \"%s\"", neap_net_name(b->net), name);
    if (best != NULL) neap_hint(error, "did you mean \"%s\"?", best);
    return NEAP_NAME;
  }
  return NEAP_OK;
}

/* The last version of a name gets the name's role. A value that is two things at once (an output that is also another
 * blob's value) can't arise: each name was bound to a value of its own. */
static neap_status assign_roles(neap_builder *b, neap_error *error) {
  neap_graph *graph = b->graph;
  int n_output = neap_net_n_outputs(b->net);
  NEAP_TRY(check_keeps(b, error));
  graph->output = neap_arena_alloc(&graph->arena, (size_t)NEAP_MAX(n_output, 1) * sizeof *graph->output);
  if (graph->output == NULL) return graph_no_memory(error);
  for (int v = 0; v < graph->n_value; v++) {
    neap_value *value = &graph->value[v];
    value->is_last = value->is_blob && neap_map_get(&b->env, value->name, -1) == v;
    if (!value->is_last || value->region != NEAP_REGION_ARENA) continue;
    const neap_net_blob *blob = neap_net_find_blob(b->net, value->name);
    if (blob != NULL) value->role = blob->role;
    value->keep = (blob != NULL && blob->keep) || build_is_kept(b, value->name);
    value->region =
      value->keep && region_of_role(value->role) == NEAP_REGION_ARENA ? NEAP_REGION_IO : region_of_role(value->role);
  }
  for (int k = 0; k < n_output; k++) {
    const char *name = neap_net_output_at(b->net, k);
    neap_value_id v;
    NEAP_TRY(value_of_name(b, name, &v, error));
    neap_value *value = &graph->value[v];
    value->is_last = true;
    if (value->region == NEAP_REGION_ARENA) value->region = NEAP_REGION_IO, value->role = NEAP_ROLE_OUTPUT;
    graph->output[graph->n_output++] = v;
  }
  return NEAP_OK;
}

/* Rewrites of inference come behind roles, since those say what nobody can ask for. On failure nothing is left. */
static neap_status build_top(const neap_net *net, const neap_graph_options *options, bool rewrite, neap_graph **out,
                             neap_error *error) {
  static const neap_graph_options none = {0};
  uint32_t stream = 1;
  neap_builder b = {.graph = graph_new(neap_intern(neap_net_name(net))),
                    .net = net,
                    .options = options != NULL ? options : &none,
                    .rewrite = rewrite,
                    .is_top = true,
                    .all_outputs = neap_net_is_train(net) && (options == NULL || !options->by_op),
                    .forward = -1,
                    .stream = &stream};
  if (b.graph != NULL) b.graph->probe = b.options->probe;
  neap_status status = b.graph == NULL ? graph_no_memory(error) : build_ops(&b, error);
  if (status == NEAP_OK && !b.options->probe && neap_net_is_train(net)) status = keep_zero_gradients(&b, error);
  if (status == NEAP_OK && !b.options->probe) status = assign_roles(&b, error);
  bool fuse = rewrite && !b.options->no_fuse && !b.options->probe;
  if (status == NEAP_OK && fuse && !b.graph->train) status = graph_fuse(&b, error);
  if (status == NEAP_OK) status = graph_finish(b.graph, b.options->by_op, error);
  builder_fini(&b);
  if (status != NEAP_OK) {
    neap_graph_free(b.graph);
    return status;
  }
  *out = b.graph;
  return NEAP_OK;
}

/* Each value by itself, as if none shared bytes with another one; subgraphs included. */
static size_t transient_bytes(const neap_graph *graph) {
  size_t total = 0;
  for (int v = 0; v < graph->n_value; v++)
    if (graph->value[v].region == NEAP_REGION_ARENA) total += graph->value[v].bytes;
  for (int n = 0; n < graph->n_node; n++)
    for (int s = 0; s < graph->node[n].n_sub; s++)
      if (graph->node[n].sub[s] != NULL) total += transient_bytes(graph->node[n].sub[s]);
  return total;
}

/* Builds twice: the first graph, without rewrites, tells what the net costs as the user wrote it (baseline_bytes). */
neap_status neap_graph_prepare(const neap_net *net, const neap_graph_options *options, neap_graph **out, neap_error *error) {
  neap_graph *plain;
  NEAP_TRY(build_top(net, options, false, &plain, error));
  size_t baseline_bytes = transient_bytes(plain);
  if (options != NULL && (options->no_rewrite || options->keep_all || options->by_op)) {
    *out = plain;
  } else {
    neap_graph_free(plain);
    NEAP_TRY(build_top(net, options, true, out, error));
  }
  (*out)->baseline_bytes = baseline_bytes;
  return NEAP_OK;
}

/* ---- subgraphs ------------------------------------------------------------------------------------------------------- */

static neap_status add_params(neap_builder *b, const neap_sub_spec *spec, neap_error *error) {
  neap_graph *graph = b->graph;
  graph->param = arena_ids(b, NEAP_MAX(spec->n_in, 1));
  if (graph->param == NULL) return graph_no_memory(error);
  int n_named = spec->net != NULL ? neap_net_n_sub_inputs(spec->net) : spec->n_in;
  if (spec->net != NULL && (spec->n_seed == 0 ? n_named != spec->n_in : n_named > spec->n_in))
    return neap_fail(error, NEAP_GRAPH, "subnet \"%s\" takes %d blobs, got %d", neap_net_name(spec->net), n_named, spec->n_in);
  for (int i = 0; i < spec->n_in; i++) {
    const char *name = i >= n_named ? "seed" : spec->net != NULL ? neap_net_sub_input_at(spec->net, i) : spec->in_name[i];
    int v = graph_add_value(graph, name, &spec->in_type[i]);
    if (v < 0 || (i < n_named && !neap_map_set(&b->env, name, v))) return graph_no_memory(error);
    graph->value[v].region = NEAP_REGION_ARGUMENT;
    graph->value[v].role = NEAP_ROLE_INPUT;
    graph->value[v].argument = spec->in_argument[i];
    for (int k = 0; !b->no_commits && k < spec->n_out; k++)
      if (spec->out_argument[k] == spec->in_argument[i]) graph->value[v].role = NEAP_ROLE_STATE;
    graph->value[v].is_blob = i < n_named;
    graph->param[graph->n_param++] = v;
  }
  return NEAP_OK;
}

/* The newest value that lies in the owner's operand, which a result may have to replace; NEAP_NO_VALUE: nobody reads it. */
static neap_value_id last_version(const neap_graph *graph, int argument) {
  for (int v = graph->n_value - 1; v >= 0; v--)
    if (graph->value[v].region == NEAP_REGION_ARGUMENT && graph->value[v].argument == argument) return v;
  return NEAP_NO_VALUE;
}

/* A result that replaces what the body reads in the same bytes is assigned, so that edges hold the readers' order. */
neap_status build_result(neap_builder *b, int argument, neap_value_id v, neap_error *error) {
  neap_graph *graph = b->graph;
  bool is_version = graph->value[v].region == NEAP_REGION_ARGUMENT && graph->value[v].argument == argument;
  neap_value_id old = is_version ? NEAP_NO_VALUE : last_version(graph, argument);
  if (old != NEAP_NO_VALUE) {
    neap_grad g = {.graph = b};
    neap_value_id in[2] = {old, v};
    b->emit_status = NEAP_OK;
    b->emit_error = error;
    v = neap_grad_emit1(&g, "Assign", 2, in, NULL, NULL);
    NEAP_TRY(b->emit_status);
  } else if (!is_version && graph->value[v].region != NEAP_REGION_ARENA) {
    b->emit_status = NEAP_OK;
    b->emit_error = error;
    v = emit_copy(b, v);
    NEAP_TRY(b->emit_status);
  }
  graph->value[v].region = NEAP_REGION_ARGUMENT;
  graph->value[v].argument = argument;
  graph->value[v].is_last = true;
  graph->output[graph->n_output++] = v;
  return NEAP_OK;
}

/* The values that the subnet's outputs stand for. */
static neap_status result_values(neap_builder *b, const neap_sub_spec *spec, int n, neap_value_id *out, neap_error *error) {
  for (int k = 0; k < n; k++) {
    const char *name = spec->net != NULL ? neap_net_output_at(spec->net, k) : spec->out_name[k];
    out[k] = neap_map_get(&b->env, name, NEAP_NO_VALUE);
    if (out[k] == NEAP_NO_VALUE)
      return neap_fail(error, NEAP_GRAPH, "the branch that is not taken must yield \"%s\", which does not exist before", name);
  }
  return NEAP_OK;
}

/* The backward of a subnet from results to parameters: seed_result[i] is a result's position, seed_param[i] the parameter that
 * holds its gradient, wrt[i] a parameter. out[i] is NEAP_NO_VALUE where no gradient arrives. */
static neap_status sub_gradient(neap_builder *b, const neap_sub_spec *spec, const neap_value_id *result, neap_value_id *out,
                                neap_error *error) {
  neap_value_id *seed = arena_ids(b, NEAP_MAX(spec->n_seed, 1)), *dseed = arena_ids(b, NEAP_MAX(spec->n_seed, 1)),
                *wrt = arena_ids(b, NEAP_MAX(spec->n_wrt, 1));
  if (seed == NULL || dseed == NULL || wrt == NULL) return graph_no_memory(error);
  for (int i = 0; i < spec->n_seed; i++) {
    seed[i] = result[spec->seed_result[i]];
    dseed[i] = b->graph->param[spec->seed_param[i]];
  }
  for (int i = 0; i < spec->n_wrt; i++) wrt[i] = b->graph->param[spec->wrt[i]];
  b->phase = NEAP_PHASE_BACKWARD;
  return graph_gradient(b, spec->n_seed, seed, dseed, spec->n_wrt, wrt, out, error);
}

/* With seeds the subgraph's results are the gradients of spec->wrt, zeros where none arrives; without, the subnet's outputs. */
static neap_status build_sub_in(neap_builder *b, const neap_sub_spec *spec, neap_error *error) {
  int n_result = spec->n_seed > 0 ? (spec->net != NULL ? neap_net_n_outputs(spec->net) : spec->n_out) : spec->n_out;
  int n_out = spec->n_seed > 0 ? spec->n_wrt : n_result;
  neap_value_id *result = arena_ids(b, n_result + 1), *out = arena_ids(b, n_out + 1);
  b->graph->output = arena_ids(b, n_out + 1);
  if (result == NULL || out == NULL || b->graph->output == NULL) return graph_no_memory(error);
  NEAP_TRY(add_params(b, spec, error));
  if (spec->net != NULL) {
    if (spec->n_seed == 0 && neap_net_n_outputs(spec->net) != n_out)
      return neap_fail(error, NEAP_GRAPH, "subnet \"%s\" gives %d results, expected %d", neap_net_name(spec->net),
                       neap_net_n_outputs(spec->net), n_out);
    NEAP_TRY(build_ops(b, error));
  }
  NEAP_TRY(result_values(b, spec, n_result, result, error));
  b->emit_status = NEAP_OK;
  b->emit_error = error;
  if (spec->n_seed > 0) {
    NEAP_TRY(sub_gradient(b, spec, result, out, error));
    for (int i = 0; i < spec->n_wrt; i++)
      if (out[i] == NEAP_NO_VALUE) out[i] = build_constant(b, b->graph->value[b->graph->param[spec->wrt[i]]].type, 0);
    NEAP_TRY(b->emit_status);
  } else if (n_out > 0) {
    memcpy(out, result, (size_t)n_out * sizeof *out);
  }
  for (int k = 0; k < n_out; k++) NEAP_TRY(build_result(b, spec->out_argument[k], out[k], error));
  return graph_finish(b->graph, b->options->by_op, error);
}

void build_joint_fini(neap_joint *joint) {
  neap_graph_free(joint->builder.graph);
  builder_fini(&joint->builder);
}

/* Forward nodes first, n_forward of them, then the backward. Not finished: who cuts it finishes the halves. */
static neap_status build_joint_in(neap_joint *joint, const neap_sub_spec *spec, neap_error *error) {
  neap_builder *b = &joint->builder;
  joint->result = arena_ids(b, spec->n_out + 1);
  joint->grad = arena_ids(b, spec->n_wrt + 1);
  if (joint->result == NULL || joint->grad == NULL) return graph_no_memory(error);
  NEAP_TRY(add_params(b, spec, error));
  NEAP_TRY(build_ops(b, error));
  NEAP_TRY(result_values(b, spec, spec->n_out, joint->result, error));
  joint->n_forward = b->graph->n_node;
  return sub_gradient(b, spec, joint->result, joint->grad, error);
}

neap_status build_joint(neap_builder *outer, const neap_sub_spec *spec, neap_joint *out, neap_error *error) {
  *out = (neap_joint){.builder = {.graph = graph_new(neap_intern(neap_net_name(spec->net))),
                                  .net = spec->net,
                                  .options = outer->options,
                                  .rewrite = outer->rewrite,
                                  .no_commits = outer->no_commits,
                                  .all_outputs = outer->all_outputs,
                                  .forward = -1,
                                  .is_sub = true,
                                  .n_recompute = spec->n_recompute,
                                  .recompute = spec->recompute,
                                  .stream = outer->stream}};
  neap_status status = out->builder.graph == NULL ? graph_no_memory(error) : build_joint_in(out, spec, error);
  if (status != NEAP_OK) build_joint_fini(out);
  return status;
}

neap_status build_sub(neap_builder *outer, const neap_sub_spec *spec, neap_graph **out, neap_error *error) {
  neap_builder b = {.graph = graph_new(spec->net != NULL ? neap_intern(neap_net_name(spec->net)) : "identity"),
                    .net = spec->net,
                    .options = outer->options,
                    .rewrite = outer->rewrite,
                    .is_sub = true,
                    .no_commits = outer->no_commits || spec->n_seed > 0,
                    .all_outputs = outer->all_outputs,
                    .forward = -1,
                    .stream = outer->stream};
  neap_status status = b.graph == NULL ? graph_no_memory(error) : build_sub_in(&b, spec, error);
  builder_fini(&b);
  if (status != NEAP_OK) {
    neap_graph_free(b.graph);
    return status;
  }
  *out = b.graph;
  return NEAP_OK;
}
