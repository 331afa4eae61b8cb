/* control_gradient.c: the gradient of If is another If over the same condition.
 *
 * Each branch of it recomputes the forward of its branch (updates on copies, with the same random
 * numbers) and runs the backward from there; so nothing but the If's own inputs is kept from
 * forward to backward. The price is one more forward of the branch taken; the gain is that both
 * branches' activations overlay in one frame and no forward value outlives it.
 */
#include "build/build_int.h"

#include <string.h>

/* The If of the backward: its inputs are the condition, the captures and the output gradients that
 * arrive; its outputs are the gradients of the captures `wrt`. Lists lie in the graph's arena. */
typedef struct if_gradient {
  int n_cap, n_seed, n_wrt; /* captures, output gradients that arrive, captures wanted */
  int *seed_result, *seed_param, *wrt, *in_argument, *out_argument;
  neap_value_id *in;
  neap_type *in_type; /* of the inputs behind the condition */
  const char **in_name, **out_name;
  bool *flows; /* by wrt: a gradient arrives there in some branch */
} if_gradient;

/* The backward of branch `subnet`, owned by the caller. A missing else_net is the identity of the
 * captures that have the outputs' names. */
static neap_status if_sub(neap_builder *b, const neap_node *node, int subnet, const if_gradient *g,
                          neap_graph **out, neap_error *error) {
  /* The branch as the forward had it, with a parameter for each gradient that arrives; its results
   * are the gradients that are wanted. */
  int a = neap_op_subnet_attr(node->op, subnet);
  const neap_net *net = a >= 0 ? node->attrs[a].net : NULL;
  neap_sub_spec spec = {.net = net,
                        .n_in = g->n_cap + g->n_seed,
                        .in_type = g->in_type,
                        .in_name = g->in_name,
                        .in_argument = g->in_argument,
                        .n_out = net != NULL ? g->n_wrt : node->n_out,
                        .out_name = g->out_name,
                        .out_argument = g->out_argument,
                        .n_seed = g->n_seed,
                        .n_wrt = g->n_wrt,
                        .seed_result = g->seed_result,
                        .seed_param = g->seed_param,
                        .wrt = g->wrt,
                        .flows = g->flows,
                        .stream = build_sub_stream(node, subnet)};

  /* Of one that ends where its lengths begin the backward is never run: the If of the forward ends
   * the run. */
  return build_is_partial(b, net) ? build_try(b, &spec, out, error)
                                  : build_sub(b, &spec, out, error);
}

/* Whether a finished subgraph reads its parameter `k`. A missing one (no else_net) reads what it
 * hands on only. */
static bool reads_param(const neap_graph *sub, int k) {
  int param = sub->param[k];
  for (int n = 0; n < sub->n_node; n++)
    for (int i = 0; i < sub->node[n].n_in; i++)
      if (sub->node[n].in[i] == param) return true;
  for (int o = 0; o < sub->n_output; o++)
    if (sub->output[o] == param) return true;
  return false;
}

/* Captures that no branch of the backward reads are absent there: they neither live until then nor,
 * when an update in a branch has overwritten them, stand in its way. */
static void drop_unread(const if_gradient *g, int n_sub, neap_graph *const *sub,
                        neap_value_id *in) {
  for (int i = 0; i < g->n_cap; i++) {
    bool is_read = false;
    for (int s = 0; s < n_sub; s++)
      if (reads_param(sub[s], i)) is_read = true;
    /* The first input is the condition, which the backward always reads. */
    if (!is_read) in[1 + i] = NEAP_NO_VALUE;
  }
}

/* What a branch writes over is gone when the backward runs, which reads a copy of it. That is made
 * before the If, since that is an update and stands behind all that is none (graph/finish.c). */
static neap_status keep_overwritten(neap_builder *b, const neap_node *node, neap_value_id *in) {
  for (int p = 0; p < node->n_enforced; p++) {
    int i = node->enforced[p].in;
    if (in[i] != NEAP_NO_VALUE) in[i] = build_emit_copy(b, in[i]);
  }
  return b->emit_status;
}

/* The lists for the If `node`, all captures wanted that `want` says. */
static neap_status list_operands(neap_builder *b, const neap_node *node, const neap_value_id *dout,
                                 const bool *want, if_gradient *g, neap_error *error) {
  neap_graph *graph = b->graph;
  size_t most = (size_t)(node->n_in + node->n_out + 1);
  int *ints = neap_arena_alloc(&graph->arena, 5 * most * sizeof *ints);
  *g = (if_gradient){.n_cap = node->n_in - 1,
                     .in = build_ids(b, (int)most),
                     .in_type = neap_arena_alloc(&graph->arena, most * sizeof *g->in_type),
                     .in_name = neap_arena_alloc(&graph->arena, 2 * most * sizeof *g->in_name),
                     .flows = neap_arena_alloc(&graph->arena, most * sizeof *g->flows)};
  if (ints == NULL || g->in == NULL || g->in_type == NULL || g->in_name == NULL || g->flows == NULL)
    return graph_no_memory(error);

  /* Five lists in one piece, each with room for all operands. */
  g->seed_result = ints, g->seed_param = ints + most, g->wrt = ints + 2 * most,
  g->in_argument = ints + 3 * most;
  g->out_argument = ints + 4 * most, g->out_name = g->in_name + most;

  /* The condition, then the captures: the branch's forward is run again from them. */
  g->in[0] = node->in[0];
  for (int i = 0; i < g->n_cap; i++) {
    g->in[1 + i] = node->in[1 + i];
    g->in_type[i] = graph->value[node->in[1 + i]].type;
    g->in_name[i] = graph->value[node->in[1 + i]].name;
    if (want[1 + i]) g->wrt[g->n_wrt++] = i;
  }

  /* Behind them a parameter for each gradient that arrives. */
  for (int k = 0; k < node->n_out; k++) {
    g->out_name[k] = graph->value[node->out[k]].name;
    if (dout[k] < 0) continue;
    g->seed_result[g->n_seed] = k;
    g->seed_param[g->n_seed] = g->n_cap + g->n_seed;
    g->in_type[g->n_cap + g->n_seed] = graph->value[dout[k]].type;
    g->in[1 + g->n_cap + g->n_seed++] = dout[k];
  }

  /* Branches see operands from the second on, and results behind all operands. */
  for (int i = 0; i < g->n_cap + g->n_seed; i++) g->in_argument[i] = 1 + i;
  for (int k = 0; k < g->n_wrt; k++) g->out_argument[k] = 1 + g->n_cap + g->n_seed + k;
  return NEAP_OK;
}

static void free_branches(neap_graph **sub) {
  neap_graph_free(sub[0]);
  neap_graph_free(sub[1]);
  sub[0] = sub[1] = NULL;
}

/* Both subgraphs. They are made before the node, and a recomputed op has the length that was found
 * for it. */
static neap_status build_branches(neap_builder *b, const neap_node *node, const if_gradient *g,
                                  neap_graph **sub, neap_error *error) {
  int *shared_extent = b->n_extent, n_extent = node->first_extent;
  neap_status status = NEAP_OK;

  /* Numbers begin again where the If's own do, and afterwards are what they were. */
  b->n_extent = &n_extent;
  memset(g->flows, 0, (size_t)g->n_wrt * sizeof *g->flows);
  for (int s = 0; s < node->n_sub; s++)
    if (status == NEAP_OK) status = if_sub(b, node, s, g, &sub[s], error);
  b->n_extent = shared_extent;
  if (status != NEAP_OK) free_branches(sub);
  return status;
}

/* Captures that no gradient reaches in either branch are wanted no more: they have none, which is
 * not the same as zeros. True when there were any. */
static bool drop_still(if_gradient *g) {
  int n = 0;
  for (int k = 0; k < g->n_wrt; k++)
    if (g->flows[k]) g->wrt[n++] = g->wrt[k];
  bool dropped = n < g->n_wrt;
  g->n_wrt = n;
  return dropped;
}

/* The node of the backward, which takes the subgraphs over in any case, and its outputs: gradients
 * of the captures in din. */
static neap_status add_backward(neap_builder *b, const neap_node *node, const if_gradient *g,
                                neap_graph **sub, neap_value_id *din, neap_error *error) {
  neap_graph *graph = b->graph, **list = neap_arena_copy(&graph->arena, sub, 2 * sizeof *sub);
  int n_in = 1 + g->n_cap + g->n_seed,
      made = list != NULL ? graph_add_node(graph, node->op, n_in, g->n_wrt) : -1;
  if (made < 0) {
    free_branches(sub);
    return graph_no_memory(error);
  }
  neap_node *back = &graph->node[made];
  memcpy(back->in, g->in, (size_t)n_in * sizeof *back->in);
  back->attrs = node->attrs, back->name = node->name, back->scope = node->scope,
  back->line = node->line;

  /* Not the forward's pair: it reads inputs alone, and its kernels are chosen inside. */
  back->phase = NEAP_PHASE_BACKWARD;

  /* The same numbers are drawn again: the forward inside is the one that was run. */
  back->stream = node->stream;
  back->first_extent = node->first_extent;
  back->sub = list;
  back->n_sub = node->n_sub;

  /* The recomputed forward commits nothing, so there is no such effect to take over. */
  for (int s = 0; s < node->n_sub; s++)
    for (int n = 0; n < sub[s]->n_node; n++)
      back->effects |= sub[s]->node[n].effects & (NEAP_EFFECT_FAULT | NEAP_EFFECT_RANDOM);

  /* Values only now: a node is in the graph with all its outputs. */
  for (int k = 0; k < g->n_wrt; k++) {
    int v = graph_add_value(graph, g->in_name[g->wrt[k]], &g->in_type[g->wrt[k]]);
    if (v < 0) return graph_no_memory(error);
    graph->value[v].node = made;
    graph->value[v].position = k;
    graph->node[made].out[k] = v;
    din[1 + g->wrt[k]] = v;
  }
  return NEAP_OK;
}

neap_status graph_gradient_if(neap_builder *b, int index, const neap_value_id *dout,
                              const bool *want, neap_value_id *din, neap_error *error) {
  const neap_node node = b->graph->node[index]; /* by value: adding nodes moves the list */
  if (strcmp(node.op->name, "If") != 0 && strcmp(node.op->name, "AsyncIf") != 0)
    return neap_fail(error, NEAP_GRAPH, "no gradient is defined through %s \"%s\"", node.op->name,
                     node.name);

  /* First as if a gradient reached every capture that wants one: only the built branches show where
   * one does. */
  if_gradient g;
  neap_graph *sub[2] = {NULL, NULL};
  NEAP_TRY(list_operands(b, &node, dout, want, &g, error));
  NEAP_TRY(build_branches(b, &node, &g, sub, error));

  /* Once more without them: results are counted by what is wanted, and now it is known what that
   * is. */
  if (drop_still(&g)) {
    free_branches(sub);
    if (g.n_wrt == 0) return NEAP_OK;
    NEAP_TRY(build_branches(b, &node, &g, sub, error));
  }
  drop_unread(&g, node.n_sub, sub, g.in);
  neap_status status = keep_overwritten(b, &node, g.in);
  if (status != NEAP_OK) {
    free_branches(sub);
    return status;
  }
  return add_backward(b, &node, &g, sub, din, error);
}
