/* node.c: one node with its output values: inferred at once, checked, paired with what it writes in
 * place.
 *
 * INVARIANT: a node is in the graph with all its outputs, or the building has failed: nobody sees a
 * node without types.
 * INVARIANT: an output that an enforced pair writes is a version of the pair's input: same root,
 * region, role and argument.
 */
#include "build/build_int.h"

#include <stdio.h>
#include <string.h>

/* What infer of a control op gets back when it asks for a subnet's types: whose node it is, and
 * what that is built from. */
typedef struct infer_context {
  neap_builder *builder;
  int node;
  const neap_node_spec *spec;
  /* branches that are built when it is known what they give, and where their lengths begin */
  bool is_late[2];
  int n_extent[2];
} infer_context;

/* By the order of the record's net attributes; NULL: it was left out. */
static const neap_net *subnet_at(const neap_node *node, int subnet) {
  int a = neap_op_subnet_attr(node->op, subnet);
  return a >= 0 ? node->attrs[a].net : NULL;
}

int build_version_source(const neap_graph *graph, const neap_node_spec *spec, int k) {
  const char *name = spec->out_name != NULL ? spec->out_name[k] : NULL;
  if ((spec->op->effects & NEAP_EFFECT_CONTROL) == 0 || spec->in_blob == NULL || name == NULL)
    return -1;

  /* An If may write any capture; a loop's result k only the state k, which it begins with. */
  int first = BUILD_FIRST_CAPTURE, end = spec->n_in;
  if ((spec->op->effects & NEAP_EFFECT_LOOP) != 0) {
    int64_t n_state = spec->attrs[neap_op_attr_index(spec->op, "n_state")].i;
    first = k, end = k < n_state && k < spec->n_in ? k + 1 : k;
  }

  /* The same name on both sides says that the blob is written, and its bytes let it be. */
  for (int i = first; i < end; i++)
    if (spec->in_blob[i] == name && spec->in[i] >= 0 &&
        build_is_writable(&graph->value[spec->in[i]]))
      return i;
  return -1;
}

/* The subgraph `subnet` as the node's operands have it; the lists lie in the graph's arena.
 * Parameters are the node's inputs from position n_node_in - n_in on: a condition in front is not
 * one. */
static neap_status describe(const infer_context *c, int subnet, int n_in, const neap_type *in,
                            int n_out, neap_sub_spec *spec, neap_error *error) {
  /* Places of parameters and results among the operands of the node. */
  const neap_graph *graph = c->builder->graph;
  const neap_node *node = &graph->node[c->node];
  int first = node->n_in - n_in;
  int *in_argument = build_ids(c->builder, n_in), *out_argument = build_ids(c->builder, n_out);
  if (in_argument == NULL || out_argument == NULL) return graph_no_memory(error);
  for (int i = 0; i < n_in; i++) in_argument[i] = first + i;

  /* A loop's body comes last; a subnet before it is the condition, whose one result belongs to
   * nobody's output and has a place behind them all. */
  bool is_loop = (node->op->effects & NEAP_EFFECT_LOOP) != 0,
       is_condition = is_loop && subnet < node->n_sub - 1;
  for (int k = 0; k < n_out; k++) {
    int source = is_condition ? -1 : build_version_source(graph, c->spec, k);
    out_argument[k] = source >= 0 ? source : node->n_in + k + (is_condition ? node->n_out : 0);
  }
  *spec = (neap_sub_spec){.net = subnet_at(node, subnet),
                          .n_in = n_in,
                          .in_type = in,
                          .in_name = c->spec->in_blob != NULL ? c->spec->in_blob + first : NULL,
                          .in_argument = in_argument,
                          .n_out = n_out,
                          .out_name = c->spec->out_name,
                          .out_argument = out_argument,
                          .in_loop = is_loop,
                          .is_body = is_loop && !is_condition,
                          .stream = build_sub_stream(node, subnet)};
  return NEAP_OK;
}

/* A branch of which lengths are unknown is left for later: what it gives the other one may know. */
static bool postpone(infer_context *c, int subnet, const neap_sub_spec *spec, neap_type *out) {
  neap_builder *b = c->builder;
  if (spec->in_loop || !build_is_partial(b, spec->net)) return false;
  c->is_late[subnet] = true;
  c->n_extent[subnet] = *b->n_extent;
  *b->n_extent += neap_graph_count_extents(spec->net);
  for (int k = 0; k < spec->n_out; k++) out[k] = (neap_type){0};
  return true;
}

/* Called by infer of control ops: builds the subgraph for these parameter types (once) and gives
 * its result types. */
static neap_status infer_subnet(const neap_infer *infer, int subnet, int n_in, const neap_type *in,
                                int n_out, neap_type *out, neap_error *error) {
  infer_context *c = infer->graph;
  neap_graph *graph = c->builder->graph;

  /* infer may ask more than once; the types of the operands are the same each time. */
  if (graph->node[c->node].sub[subnet] == NULL) {
    neap_sub_spec spec;
    NEAP_TRY(describe(c, subnet, n_in, in, n_out, &spec, error));
    if (postpone(c, subnet, &spec, out)) return NEAP_OK;
    if (spec.is_body) {
      NEAP_TRY(graph_build_bodies(c->builder, c->node, subnet, &spec, error));
    } else {
      neap_graph *sub;
      NEAP_TRY(build_sub(c->builder, &spec, &sub, error));
      graph->node[c->node].sub[subnet] = sub;
    }
  }

  /* Built by now. The record has said how many results it expects. */
  const neap_graph *sub = graph->node[c->node].sub[subnet];
  if (sub->n_output != n_out)
    return neap_fail(error, NEAP_GRAPH, "subnet \"%s\" gives %d results, expected %d", sub->name,
                     sub->n_output, n_out);
  for (int k = 0; k < n_out; k++) out[k] = sub->value[sub->output[k]].type;
  return NEAP_OK;
}

/* What an If gives of which neither branch can say it. In a probe that is unknown, and anything
 * stands in for it. */
static neap_status find_types(infer_context *c, neap_sub_spec *spec, neap_type *out,
                              neap_error *error) {
  neap_builder *b = c->builder;
  if (b->finds || (b->options->probe && !b->is_sub)) {
    b->open = c->node + 1;
    for (int k = 0; k < spec->n_out; k++) out[k] = (neap_type){NEAP_DTYPE_F32, NEAP_SHAPE(1)};
    return NEAP_OK;
  }

  /* Any other graph asks what the branch gives for lengths tried out, and drops what was built for
   * that. */
  neap_graph *sub;
  NEAP_TRY(build_try(b, spec, &sub, error));
  for (int k = 0; k < NEAP_MIN(spec->n_out, sub->n_output); k++)
    out[k] = sub->value[sub->output[k]].type;
  neap_graph_free(sub);
  return NEAP_OK;
}

/* A result that does not hang on what is unknown has a type of its own. */
static neap_status check_late(const neap_graph *sub, int subnet, int n_out, const neap_type *out,
                              neap_error *error) {
  for (int k = 0; k < n_out; k++) {
    const neap_type *type = &sub->value[sub->output[k]].type;
    if (neap_type_equal(type, &out[k])) continue;
    char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
    return neap_fail(error, NEAP_SHAPE, "output %d is %s %s in %s, %s %s in the other branch",
                     k + 1, neap_dtype_name(type->dtype), neap_shape_text(&type->shape, a),
                     subnet == 0 ? "then_net" : "else_net", neap_dtype_name(out[k].dtype),
                     neap_shape_text(&out[k].shape, b));
  }
  return NEAP_OK;
}

/* The branches that were left for later. Numbers behind them are where they are already. */
static neap_status build_late(infer_context *c, const neap_type *in, neap_type *out,
                              neap_error *error) {
  neap_builder *b = c->builder;
  const neap_node_spec *node = c->spec;
  int n_extent = *b->n_extent;

  /* A branch that is built already has said what the If gives. */
  bool is_typed = !c->is_late[0] || !c->is_late[1];

  for (int s = 0; s < 2; s++) {
    if (!c->is_late[s]) continue;
    neap_sub_spec spec;
    neap_graph *sub;
    NEAP_TRY(describe(c, s, node->n_in - 1, in + 1, node->n_out, &spec, error));
    /* Its lengths keep the numbers that they had in definition order. */
    *b->n_extent = c->n_extent[s];
    if (!is_typed) NEAP_TRY(find_types(c, &spec, out, error));
    is_typed = true;
    *b->n_extent = c->n_extent[s];
    /* What it can't say itself stands in with the types that are known now. */
    spec.result = out;
    spec.is_open = b->open == c->node + 1;
    NEAP_TRY(build_sub(b, &spec, &sub, error));
    b->graph->node[c->node].sub[s] = sub;
    NEAP_TRY(check_late(sub, s, node->n_out, out, error));
  }
  *b->n_extent = n_extent;
  return NEAP_OK;
}

static int count_subnets(const neap_op *op) {
  int n = 0;
  for (int a = 0; a < neap_op_n_attrs(op); a++) n += op->attrs[a].type == NEAP_ATTR_NET;
  return n;
}

/* Enforced pairs of a node: the record's, or for a control op one for each resident blob it writes;
 * and the effects of its subgraphs. */
static neap_status finish_node(neap_builder *b, int index, const neap_node_spec *spec,
                               neap_error *error) {
  neap_graph *graph = b->graph;
  neap_node *node = &graph->node[index];
  bool control = (node->op->effects & NEAP_EFFECT_CONTROL) != 0;
  node->enforced = neap_arena_alloc(
    &graph->arena, (size_t)NEAP_MAX(node->n_out, NEAP_OP_MAX_PAIR) * sizeof *node->enforced);
  if (node->enforced == NULL) return graph_no_memory(error);

  /* Optional operands may be absent, and then their pair is. */
  for (int p = 0; p < node->op->n_enforced; p++) {
    neap_pair pair = node->op->enforced[p];
    if (pair.in < node->n_in && pair.out < node->n_out && node->in[pair.in] >= 0)
      node->enforced[node->n_enforced++] = pair;
  }

  /* A control op has no pairs in its record: they are the blobs that its subnets write. */
  if (control) {
    for (int k = 0; k < node->n_out; k++) {
      int source = build_version_source(graph, spec, k);
      if (source >= 0) node->enforced[node->n_enforced++] = (neap_pair){source, k};
    }
  }

  /* A write to bytes that outlive the run is a commit, whatever the record says; one to transient
   * bytes commits nothing: what becomes of them is assigned later, or not. What a control op writes
   * its subgraphs say. */
  bool lasts = false;
  for (int p = 0; p < node->n_enforced; p++)
    lasts = lasts || build_is_writable(&graph->value[node->in[node->enforced[p].in]]);
  if (node->n_enforced > 0 && !control) {
    node->effects &= ~(unsigned)NEAP_EFFECT_COMMIT;
    node->effects |= lasts ? NEAP_EFFECT_COMMIT : 0;
  }

  /* What happens inside happens to whoever runs it: an If around an update is an update. */
  for (int s = 0; s < node->n_sub; s++) {
    if (node->sub[s] == NULL) continue;
    for (int n = 0; n < node->sub[s]->n_node; n++)
      node->effects |= node->sub[s]->node[n].effects &
                       (NEAP_EFFECT_COMMIT | NEAP_EFFECT_FAULT | NEAP_EFFECT_RANDOM);
  }

  /* What lasts is written behind all that can fault (graph/finish.c): in an update. */
  if ((node->effects & NEAP_EFFECT_COMMIT) != 0) node->phase = NEAP_PHASE_UPDATE;
  return (node->op->effects & NEAP_EFFECT_LOOP) != 0 ? graph_make_loop(graph, index, error)
                                                     : NEAP_OK;
}

/* Numbers an op whose outputs' length depends on data, and looks that up among what earlier runs
 * have found. */
static neap_status find_extent(neap_builder *b, int index, neap_infer *infer, neap_error *error) {
  neap_node *node = &b->graph->node[index];
  if (b->in_loop && !b->in_body) {
    neap_hint(error,
              "compute it before the loop, or in the body of the outer one, and give the loop the "
              "result");
    return neap_fail(error, NEAP_GRAPH,
                     "how long its output is depends on data, so it can't stand in a loop's "
                     "condition, nor in a loop within a loop");
  }

  /* Counted whether it is known or not: the same op has the same number in every build. */
  int number = (*b->n_extent)++;
  const int64_t *found = number < b->options->n_extent ? &b->options->extent[number] : NULL;

  /* In a body iterations find lengths of their own, and each body is for one list of them. */
  if (b->in_body) found = b->met != NULL ? &b->met->length[number - b->met->first] : NULL;
  static const int64_t one = 1;
  node->extent = number + 1;
  node->n_found = found != NULL ? *found : -1;

  /* Without a length infer gives the bound; a trial may ask for one instead. */
  if (node->n_found >= 0) infer->extent = found;
  if (node->n_found < 0 && b->trial == BUILD_ONE) infer->extent = &one;
  return NEAP_OK;
}

/* Attributes of one name have one value in both: numbers and lists of them, which is what windows
 * and rates are. */
static bool agree(const neap_op *op, const neap_attr_value *attrs, const neap_node *forward) {
  for (int i = 0; i < neap_op_n_attrs(op); i++) {
    int k = neap_op_attr_index(forward->op, op->attrs[i].name);
    if (k < 0) continue;
    /* Texts and nets say nothing of a stash's bytes. */
    const neap_attr_value *x = &attrs[i], *y = &forward->attrs[k];
    if (x->i != y->i || x->n != y->n ||
        (x->n > 0 && memcmp(x->ints, y->ints, (size_t)x->n * sizeof *x->ints) != 0))
      return false;
  }
  return true;
}

/* The bytes of a stash mean something to one pair of kernels on one x only, and no shape says so.
 * Input i, which the record declares to be a stash, must be one that the node's forward wrote, with
 * the attributes and the x that this op has too, as what comes out of a backward, or as what goes
 * in where the forward's way is gone again; or, without a forward, a blob that is no stash:
 * then kernels see no pair and check its bytes themselves. */
static neap_status check_stash(const neap_builder *b, const neap_node_spec *spec, int i,
                               const neap_type *out, neap_error *error) {
  const neap_graph *graph = b->graph;
  const neap_value *value = &graph->value[spec->in[i]];
  const char *name = neap_op_input(spec->op, i)->name;

  /* Without a forward it is a blob that the user has, and kernels look at its bytes. */
  if (b->forward < 0 && !value->is_stash) return NEAP_OK;
  if (!value->is_stash || value->node != b->forward)
    return neap_fail(error, NEAP_GRAPH, "%s expects the stash of the op's forward, got %s", name,
                     value->name);

  /* The backward must be of the same x and y, or it would read bits of another shape. */
  const neap_node *forward = &graph->node[b->forward];
  const neap_type *x = &graph->value[forward->in[0]].type;
  const neap_type *y = &graph->value[forward->out[0]].type;
  bool again = neap_type_equal(&graph->value[spec->in[0]].type, x) && neap_type_equal(out, y);
  if ((again || neap_type_equal(out, x)) && agree(spec->op, spec->attrs, forward)) return NEAP_OK;
  return neap_fail(error, NEAP_GRAPH,
                   "%s was written by %s \"%s\", which has other attributes or another shape", name,
                   forward->op->name, forward->name);
}

/* How many bytes a stash has is known once kernels are chosen, and what they mean only to one of
 * them: an op that would make a value of them, or read them as numbers, is refused. Subnets may
 * take a stash in, for a backward inside, and Free may end it. */
static neap_status check_no_stash(const neap_builder *b, const neap_node_spec *spec, int i,
                                  neap_error *error) {
  const neap_value *value = &b->graph->value[spec->in[i]];
  if (!value->is_stash || (spec->op->effects & NEAP_EFFECT_RELEASE) != 0 ||
      neap_op_subnet_attr(spec->op, 0) >= 0)
    return NEAP_OK;
  const neap_node *by = &b->graph->node[value->node];
  return neap_fail(error, NEAP_GRAPH,
                   "%s is what %s \"%s\" keeps for its backward, which alone can read it",
                   value->name, by->op->name, by->name);
}

/* Types of the outputs, in the arena, and the cost. Dtypes are checked here for all records, so
 * that infer need not. */
static neap_status infer_node(neap_builder *b, int index, const neap_node_spec *spec,
                              neap_type **out, neap_error *error) {
  /* What the record's infer is shown: types of inputs, attributes, and a way to ask for subnets. */
  neap_graph *graph = b->graph;
  neap_type *in = neap_arena_alloc(&graph->arena, (size_t)NEAP_MAX(spec->n_in, 1) * sizeof *in);
  *out = neap_arena_alloc(&graph->arena, (size_t)NEAP_MAX(spec->n_out, 1) * sizeof **out);
  if (in == NULL || *out == NULL) return graph_no_memory(error);
  for (int i = 0; i < spec->n_in; i++)
    if (spec->in[i] >= 0) in[i] = graph->value[spec->in[i]].type;
  infer_context context = {.builder = b, .node = index, .spec = spec};
  neap_infer infer = {.op = spec->op,
                      .attrs = spec->attrs,
                      .n_in = spec->n_in,
                      .n_out = spec->n_out,
                      .in = in,
                      .out = *out,
                      .infer_subnet = infer_subnet,
                      .graph = &context};

  /* Before infer, which reads the length that was found. */
  if ((spec->op->effects & NEAP_EFFECT_EXTENT) != 0) NEAP_TRY(find_extent(b, index, &infer, error));
  NEAP_TRY(neap_infer_admits(&infer, error));
  NEAP_TRY(neap_infer_types(&infer, error));

  /* Behind infer, which has said how many results there are. */
  NEAP_TRY(build_late(&context, in, *out, error));

  /* Stashes are checked by the type of what comes out, which only infer knows. */
  for (int i = 0; i < spec->n_in; i++) {
    if (spec->in[i] < 0) continue;
    const neap_arg *arg = neap_op_input(spec->op, i);
    bool takes_stash = arg != NULL && (arg->flags & NEAP_ARG_STASH) != 0;
    NEAP_TRY(takes_stash ? check_stash(b, spec, i, &(*out)[0], error)
                         : check_no_stash(b, spec, i, error));
  }
  for (int k = 0; k < spec->n_out; k++) {
    const neap_arg *arg = neap_op_output(spec->op, k);
    /* How many bytes it has only the choice of a kernel says: none until then. */
    if (arg != NULL && (arg->flags & NEAP_ARG_STASH) != 0)
      (*out)[k] = (neap_type){NEAP_DTYPE_U8, NEAP_SHAPE(0)};
  }

  /* Of what infer gave: a record that forgot an output is stopped here. */
  size_t bytes = 0;
  for (int k = 0; k < spec->n_out; k++) {
    if ((*out)[k].dtype == NEAP_DTYPE_NONE)
      return neap_fail(error, NEAP_INTERNAL, "output %d has no type", k + 1);
    bytes = neap_size_add(bytes, neap_align(neap_type_bytes(&(*out)[k])));
  }
  NEAP_TRY(build_count(b, 1, 0, bytes, error));

  /* The cost reads types of both sides, which now are all there. */
  if (spec->op->cost != NULL) spec->op->cost(&infer, &graph->node[index].cost);
  return NEAP_OK;
}

/* Values for the outputs, of these types; what a Free puts out is nothing. A label that is missing
 * is made of op and argument. */
static neap_status add_outputs(neap_builder *b, int index, const neap_node_spec *spec,
                               const neap_type *out, neap_error *error) {
  /* A Free names what it ends, and gives nothing. */
  neap_graph *graph = b->graph;
  if ((spec->op->effects & NEAP_EFFECT_RELEASE) != 0) {
    graph->node[index].n_out = 0;
    return NEAP_OK;
  }
  for (int k = 0; k < spec->n_out; k++) {
    const char *label = spec->out_name != NULL ? spec->out_name[k] : NULL;

    /* A value knows its maker, and the node its values. */
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
  return NEAP_OK;
}

void build_take_versions(neap_graph *graph, int index) {
  const neap_node *node = &graph->node[index];
  for (int p = 0; p < node->n_enforced; p++) {
    neap_value *to = &graph->value[node->out[node->enforced[p].out]];
    const neap_value *from = &graph->value[node->in[node->enforced[p].in]];
    /* It lies where the old one did, which says all about its bytes. */
    to->root = from->root;
    to->region = from->region;
    to->role = from->role;
    to->keep = from->keep;
    to->argument = from->argument;
  }
}

neap_status build_node(neap_builder *b, const neap_node_spec *spec, int *node_index,
                       neap_error *error) {
  neap_graph *graph = b->graph;
  int index = graph_add_node(graph, spec->op, spec->n_in, spec->n_out);
  if (index < 0) return graph_no_memory(error);
  neap_node *node = &graph->node[index];
  if (spec->n_in > 0) memcpy(node->in, spec->in, (size_t)spec->n_in * sizeof *node->in);

  /* What infer and the subnets' streams read stands in the node before they are asked. */
  node->attrs = spec->attrs;
  node->name = spec->name, node->scope = spec->scope, node->line = spec->line;
  if (spec->device != NULL) node->device = spec->device;
  if (spec->layer != NULL) node->layer = spec->layer;
  if (spec->made_for != NULL) node->made_for = spec->made_for;
  node->phase = b->phase;
  node->first_extent = *b->n_extent;
  if (b->forward >= 0) node->forward = b->forward;
  node->stream = spec->stream;

  /* Left NULL until infer asks for them; who frees the graph finds what there is. */
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

  /* Values come once types are known, pairs once values are, versions once pairs are. */
  NEAP_TRY(add_outputs(b, index, spec, out, error));
  NEAP_TRY(finish_node(b, index, spec, error));
  build_take_versions(graph, index);
  *node_index = index;
  return NEAP_OK;
}
