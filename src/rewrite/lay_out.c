/* lay_out.c: graph and choices to a graph whose values have their final layouts and bytes, in the
 * banks where they are wanted. Pure and deterministic. What the choices say is to be recomputed for
 * the backward is added last (recompute.c).
 *
 * Where a kernel wants an input in another layout than it has, a Reorder goes in front of it; the
 * result is shared by all readers of the same phase that want the same. Where a kernel writes a
 * blocked layout but the value must be plain (resident, or an operand of an owner), the kernel
 * writes a transient value and a Reorder follows. A value that a node wants in another memory bank
 * than it lies in (bank.c) goes the same ways: a Reorder may change layout, bank or both.
 */
#include "rewrite/rewrite_int.h"

#include <stdio.h>
#include <string.h>

/* A value of the old graph in one layout, in the new graph. The first of a list is the value as it
 * was defined. */
typedef struct version {
  neap_value_id id;
  neap_phase phase;
  struct version *next;
} version;

typedef struct layouter {
  const neap_graph *from;
  neap_graph *to;
  const neap_choices *choices;
  int *next;          /* next choice, depth first */
  version **versions; /* by old value */
  int *node;          /* old node -> new node */
} layouter;

static neap_layout *copy_layouts(neap_graph *to, const neap_layout *from, int n) {
  return neap_arena_copy(&to->arena, from, (size_t)NEAP_MAX(n, 1) * sizeof *from);
}

/* Appends, so that the value as it was defined stays first. */
static neap_status add_version(layouter *l, neap_value_id old, neap_value_id id, neap_phase phase,
                               neap_error *error) {
  version *v = neap_arena_alloc(&l->to->arena, sizeof *v), **end = &l->versions[old];
  if (v == NULL) return graph_no_memory(error);
  *v = (version){id, phase, NULL};
  while (*end != NULL) end = &(*end)->next;
  *end = v;
  return NEAP_OK;
}

/* The new graph's copy of an old value, without definition. */
static neap_value_id copy_value(layouter *l, neap_value_id old) {
  neap_value value = l->from->value[old];
  int id = graph_add_value(l->to, value.name, &value.type);
  if (id < 0) return id;
  value.node = -1;
  value.root = value.root == old ? id : l->versions[value.root]->id;
  value.layout = (neap_layout){0};
  value.bytes = neap_type_bytes(&value.type);
  l->to->value[id] = value;
  return id;
}

/* Value v becomes output `position` of the node, in both lists. */
static void define(neap_graph *graph, neap_value_id v, int node, int position) {
  graph->value[v].node = node;
  graph->value[v].position = position;
  graph->node[node].out[position] = v;
}

/* A stash is bytes (S) in the engine's own format: only the choice knows how many. */
static void set_layout(neap_value *value, const neap_layout *layout, size_t stash_bytes) {
  value->layout = *layout;
  if (value->is_stash) value->type.shape = NEAP_SHAPE((int64_t)stash_bytes);
  value->bytes = neap_layout_bytes(&value->type, layout);
}

/* Adds a Reorder of new value `in` into new value `out` (NO_VALUE: a new transient one in `layout`
 * and `bank`). */
static neap_status add_reorder(layouter *l, const neap_node *for_node, neap_value_id in,
                               const neap_layout *layout, int bank, neap_value_id *out,
                               neap_error *error) {
  /* The node comes first, so that a value that is made for it can name it as its maker. */
  const neap_op *op = neap_op_find("Reorder");
  if (op == NULL || op->kernels == NULL)
    return neap_fail(error, NEAP_INTERNAL, "op Reorder is missing");
  int n = graph_add_node(l->to, op, 1, 1);
  if (n < 0) return graph_no_memory(error);
  const neap_value from = l->to->value[in];
  bool fresh = *out == NEAP_NO_VALUE;

  /* It is called after what it does: change the layout, bring into a bank, or bring back. */
  int to_bank = fresh ? bank : neap_graph_bank_of(l->to, *out);
  const char *does = "reorder";
  if (to_bank != neap_graph_bank_of(l->to, in)) does = fresh ? l->from->bank[bank].name : "out";
  char text[256];
  snprintf(text, sizeof text, "%s.%s", from.name, does);

  /* A new value is transient, whatever the old one is, and called after what was done to it. */
  if (fresh) {
    *out = graph_add_value(l->to, neap_intern(text), &from.type);
    if (*out < 0) return graph_no_memory(error);
    l->to->value[*out].is_stash = from.is_stash;
    l->to->value[*out].is_reordered = true;
    l->to->value[*out].bank = bank;
    set_layout(&l->to->value[*out], layout, from.bytes);
  }

  /* The node stands for the one that it serves: same line, same phase. */
  neap_node *node = &l->to->node[n];
  node->name = neap_intern(text);
  node->scope = for_node->scope;
  node->line = for_node->line;
  node->phase = for_node->phase;
  node->bank = l->to->value[*out].bank;

  /* It writes nothing that lasts, so it is no update. */
  if (node->phase == NEAP_PHASE_UPDATE) node->phase = NEAP_PHASE_BACKWARD;

  /* Operands, and attributes as the record has them. */
  node->in[0] = in;
  define(l->to, *out, n, 0);
  neap_attr_value defaults[NEAP_OP_MAX_ATTR];
  for (int a = 0; a < neap_op_n_attrs(op); a++) defaults[a] = op->attrs[a].value;
  node->attrs = graph_copy_attrs(l->to, op, defaults);

  /* It moves bytes and computes nothing, so it has no choice to make: the plain kernel, with the
   * threads of the node it is for. */
  neap_choice choice = {.engine = NEAP_ENGINE_REF,
                        .n_thread = for_node->choice.n_thread,
                        .in = copy_layouts(l->to, &from.layout, 1),
                        .out = copy_layouts(l->to, &l->to->value[*out].layout, 1)};
  if (node->name == NULL || node->attrs == NULL || choice.in == NULL || choice.out == NULL)
    return graph_no_memory(error);
  node->choice = choice;

  /* What it costs is to move each byte once. */
  node->cost.read_bytes = (double)from.bytes;
  node->cost.write_bytes = (double)l->to->value[*out].bytes;
  return NEAP_OK;
}

/* Whether position i of the inputs, or of the outputs, is part of an enforced pair. */
static bool is_paired(const neap_node *node, int i, bool out) {
  for (int p = 0; p < node->n_enforced; p++)
    if ((out ? node->enforced[p].out : node->enforced[p].in) == i) return true;
  return false;
}

/* The new value that holds old value `v` in layout `want` and in `bank` (-1: in any). Parameters
 * are converted afresh in each phase: keeping a packed weight from forward to backward would cost
 * its bytes all the way. */
static neap_status version_in(layouter *l, const neap_node *reader, neap_value_id v,
                              const neap_layout *want, int bank, neap_value_id *out,
                              neap_error *error) {
  /* One that is there already, as it was defined or made for another reader of this phase. */
  for (const version *s = l->versions[v]; s != NULL; s = s->next) {
    bool there = bank < 0 || neap_graph_bank_of(l->to, s->id) == bank;
    bool in_phase = s == l->versions[v] || s->phase == reader->phase;
    if (!there || !in_phase || !neap_layout_equal(&l->to->value[s->id].layout, want)) continue;
    *out = s->id;
    return NEAP_OK;
  }

  /* There is none: one is made of the value as it was defined, for the next reader too. */
  *out = NEAP_NO_VALUE;
  int to = bank >= 0 ? bank : neap_graph_bank_of(l->to, l->versions[v]->id);
  NEAP_TRY(add_reorder(l, reader, l->versions[v]->id, want, to, out, error));
  return add_version(l, v, *out, reader->phase, error);
}

static neap_status lay_out_graph(const neap_graph *graph, const neap_choices *choices, int *next,
                                 neap_graph **out, neap_error *error);

/* The node with its choice and with lists of its own; operands are not the new graph's yet. */
static neap_status own_lists(layouter *l, const neap_choice *chosen, neap_node *node,
                             neap_error *error) {
  neap_arena *arena = &l->to->arena;
  node->choice = *chosen;
  node->choice.in = copy_layouts(l->to, chosen->in, node->n_in);
  node->choice.out = copy_layouts(l->to, chosen->out, node->n_out);
  node->attrs = graph_copy_attrs(l->to, node->op, node->attrs);
  node->enforced =
    neap_arena_copy(arena, node->enforced, (size_t)node->n_enforced * sizeof *node->enforced);
  if (node->choice.in == NULL || node->choice.out == NULL || node->attrs == NULL ||
      node->enforced == NULL)
    return graph_no_memory(error);
  if (node->loop != NULL) {
    node->loop = graph_copy_loop(arena, node->loop);
    if (node->loop == NULL) return graph_no_memory(error);
  }
  return graph_own_met(l->to, node) ? NEAP_OK : graph_no_memory(error);
}

/* The node's inputs, in the layouts that its kernel reads and the bank where it works, into ids. */
static neap_status copy_inputs(layouter *l, const neap_node *node, neap_value_id *ids,
                               neap_error *error) {
  for (int i = 0; i < node->n_in; i++) {
    ids[i] = NEAP_NO_VALUE;
    if (node->in[i] < 0) continue;
    if (l->versions[node->in[i]] == NULL) { /* exists before the graph runs */
      neap_value_id v = copy_value(l, node->in[i]);
      if (v < 0) return graph_no_memory(error);
      NEAP_TRY(add_version(l, node->in[i], v, node->phase, error));
    }
    int bank = neap_graph_bank_wanted(l->from, node, node->in[i], is_paired(node, i, false));
    NEAP_TRY(version_in(l, node, node->in[i], &node->choice.in[i], bank, &ids[i], error));
  }
  return NEAP_OK;
}

/* Subgraphs of new node n, whose list is that of the old one until now. */
static neap_status copy_subs(layouter *l, int n, neap_error *error) {
  neap_node node = l->to->node[n];
  if (node.n_sub == 0) return NEAP_OK;
  const neap_graph *const *subs = (const neap_graph *const *)node.sub;
  node.sub = neap_arena_alloc(&l->to->arena, (size_t)node.n_sub * sizeof *node.sub);
  l->to->node[n].sub = node.sub;
  if (node.sub == NULL) {
    l->to->node[n].n_sub = 0;
    return graph_no_memory(error);
  }
  for (int s = 0; s < node.n_sub; s++)
    NEAP_TRY(lay_out_graph(subs[s], l->choices, l->next, &node.sub[s], error));
  return NEAP_OK;
}

/* Output k of new node n, old value `old`, with a Reorder behind it where others want it
 * differently. */
static neap_status copy_output(layouter *l, int n, int k, neap_value_id old, neap_error *error) {
  const neap_node node = l->to->node[n]; /* by value: a Reorder moves the list */
  const neap_choice *chosen = &node.choice;
  neap_value_id v = copy_value(l, old);
  if (v < 0) return graph_no_memory(error);

  /* The final value is the first version, also where a blocked one comes before it in time:
   * readers that want plain bytes take it, and roots refer to it. */
  NEAP_TRY(add_version(l, old, v, node.phase, error));

  /* Resident bytes and operands of an owner are plain whatever the kernel writes: others find them
   * by name or position and expect numbers in order. */
  bool blocked =
    l->to->value[v].region != NEAP_REGION_ARENA && chosen->out[k].kind != NEAP_LAYOUT_PLAIN;
  int bank = neap_graph_bank_wanted(l->from, &node, old, is_paired(&node, k, true));
  bool elsewhere = bank >= 0 && bank != neap_graph_bank_of(l->to, v);
  if (!blocked) set_layout(&l->to->value[v], &chosen->out[k], chosen->stash_bytes);
  if (!blocked && !elsewhere) {
    define(l->to, v, n, k);
    return NEAP_OK;
  }

  /* Blocked bytes, or those of another bank, first; the value as others want it behind. */
  char text[256];
  snprintf(text, sizeof text, "%s.%s", l->to->value[v].name,
           elsewhere ? l->from->bank[bank].name : "blocked");
  neap_value_id first = graph_add_value(l->to, neap_intern(text), &l->to->value[v].type);
  if (first < 0) return graph_no_memory(error);
  set_layout(&l->to->value[first], &chosen->out[k], 0);
  l->to->value[first].is_reordered = true;
  l->to->value[first].bank = elsewhere ? bank : neap_graph_bank_of(l->to, v);
  define(l->to, first, n, k);
  NEAP_TRY(add_reorder(l, &node, first, &(neap_layout){0}, 0, &v, error));
  l->to->node[l->to->n_node - 1].serves = n + 1;
  return NEAP_OK;
}

/* One node with its choice, Reorders in front of it and behind it where they are needed, then its
 * subgraphs: in the order in which choices are held, depth first. */
static neap_status copy_node(layouter *l, int old, neap_error *error) {
  const int first_reorder = l->to->n_node;
  neap_node node = l->from->node[old];
  NEAP_TRY(own_lists(l, &l->choices->choice[(*l->next)++], &node, error));
  neap_value_id *ids =
    neap_arena_alloc(&l->to->arena, (size_t)(node.n_in + node.n_out + 1) * sizeof *ids);
  if (ids == NULL) return graph_no_memory(error);
  NEAP_TRY(copy_inputs(l, &node, ids, error));

  /* The node stands behind the Reorders that its inputs have led to. */
  int n = graph_add_node(l->to, node.op, node.n_in, node.n_out);
  if (n < 0) return graph_no_memory(error);
  for (int r = first_reorder; r < n; r++) l->to->node[r].serves = n + 1;
  const neap_value_id *old_out = node.out;
  node.in = ids;
  node.out = ids + node.n_in;
  node.forward = node.forward == old ? n : l->node[node.forward];
  l->to->node[n] = node;
  l->node[old] = n;

  /* In its place before its subgraphs are made: a failure then frees those that are. */
  NEAP_TRY(copy_subs(l, n, error));
  for (int k = 0; k < node.n_out; k++) NEAP_TRY(copy_output(l, n, k, old_out[k], error));
  return NEAP_OK;
}

/* A value that no node has mentioned. */
static neap_status copy_unmentioned(layouter *l, neap_value_id old, neap_error *error) {
  if (l->versions[old] != NULL) return NEAP_OK;
  neap_value_id v = copy_value(l, old);
  if (v < 0) return graph_no_memory(error);
  return add_version(l, old, v, NEAP_PHASE_FORWARD, error);
}

/* Parameters and results of the graph: each value as it was defined. */
static neap_status copy_ids(layouter *l, int n, const neap_value_id *from, neap_value_id **to,
                            neap_error *error) {
  *to = neap_arena_alloc(&l->to->arena, (size_t)NEAP_MAX(n, 1) * sizeof **to);
  if (*to == NULL) return graph_no_memory(error);
  for (int i = 0; i < n; i++) {
    NEAP_TRY(copy_unmentioned(l, from[i], error));
    (*to)[i] = l->versions[from[i]]->id;
  }
  return NEAP_OK;
}

/* Figures, parameters, nodes, results and what was fused; then the edges anew, since Reorders have
 * come between. */
static neap_status lay_out_nodes(layouter *l, neap_error *error) {
  /* What the graph says of itself. */
  l->to->train = l->from->train;
  l->to->step = l->from->step;
  l->to->n_bank = l->from->n_bank;
  l->to->bank =
    neap_arena_copy(&l->to->arena, l->from->bank, (size_t)l->from->n_bank * sizeof *l->from->bank);
  if (l->to->bank == NULL) return graph_no_memory(error);
  l->to->probe = l->from->probe;
  l->to->n_param = l->from->n_param;
  l->to->n_output = l->from->n_output;

  /* Parameters before nodes, whose numbers the owner counts; results behind them, since they are
   * made by then. */
  NEAP_TRY(copy_ids(l, l->from->n_param, l->from->param, &l->to->param, error));
  for (int n = 0; n < l->from->n_node; n++) NEAP_TRY(copy_node(l, n, error));
  NEAP_TRY(copy_ids(l, l->from->n_output, l->from->output, &l->to->output, error));
  for (int v = 0; v < l->from->n_value; v++)
    if (l->from->value[v].is_held) NEAP_TRY(copy_unmentioned(l, v, error));

  /* What was fused stays known, so that a name that is gone can be explained in the plan. */
  for (int i = 0; i < l->from->n_gone; i++)
    if (!graph_add_gone(l->to, l->from->gone[i].name, l->from->gone[i].into))
      return graph_no_memory(error);
  for (int i = 0; i < l->from->n_rewrite; i++) {
    neap_rewrite row = l->from->rewrite[i];
    row.absorbed = neap_arena_strdup(&l->to->arena, row.absorbed);
    row.into = neap_arena_strdup(&l->to->arena, row.into);
    if (row.absorbed == NULL || row.into == NULL || !graph_add_rewrite(l->to, &row))
      return graph_no_memory(error);
  }
  return graph_make_edges(l->to, error);
}

/* One graph, from choice *next on, which is moved behind its last. *out is owned; nothing is left
 * of a failure. */
static neap_status lay_out_graph(const neap_graph *graph, const neap_choices *choices, int *next,
                                 neap_graph **out, neap_error *error) {
  /* Tables of where each old value and node has gone; they end with the copying. */
  layouter l = {.from = graph, .to = graph_new(graph->name), .choices = choices, .next = next};
  l.versions = neap_alloc_zeroed((size_t)(graph->n_value + 1) * sizeof *l.versions);
  l.node = neap_alloc_zeroed((size_t)(graph->n_node + 1) * sizeof *l.node);
  neap_status status;
  if (l.to == NULL || l.versions == NULL || l.node == NULL)
    status = graph_no_memory(error);
  else
    status = lay_out_nodes(&l, error);
  neap_free((void *)l.versions);
  neap_free(l.node);
  if (status != NEAP_OK) {
    neap_graph_free(l.to);
    return status;
  }
  *out = l.to;
  return NEAP_OK;
}

/* Subgraphs' nodes included: there is one choice for each. */
static int count_nodes(const neap_graph *graph) {
  int n = graph->n_node;
  for (int i = 0; i < graph->n_node; i++)
    for (int s = 0; s < graph->node[i].n_sub; s++) n += count_nodes(graph->node[i].sub[s]);
  return n;
}

/* Padding, Reorders, scratch and stash have come to what building counted; a subgraph's values are
 * part of its owner's scratch. What a kernel asks for is located at its node. */
static neap_status check_bytes(const neap_graph *graph, size_t *total, neap_error *error) {
  /* No value may be larger than a tensor may be, in whatever layout. */
  char most[24];
  for (int v = 0; v < graph->n_value; v++) {
    const neap_value *value = &graph->value[v];
    *total = neap_size_add(*total, neap_align(value->bytes));
    if (value->bytes > NEAP_MOST_BYTES)
      return neap_fail(
        error, NEAP_PLAN,
        "value \"%s\" would have more than the %s that a tensor may have in this layout",
        value->name, neap_bytes_text((double)NEAP_MOST_BYTES, most));
  }

  /* Scratch likewise; and the sum of all, to which subgraphs add theirs. */
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    *total = neap_size_add(*total, neap_align(node->choice.scratch_bytes));
    neap_error inner = {0};
    if (node->choice.scratch_bytes > NEAP_MOST_BYTES)
      neap_fail(&inner, NEAP_PLAN, "its kernel asks for more scratch than %s",
                neap_bytes_text((double)NEAP_MOST_BYTES, most));
    else if (*total > NEAP_MOST_GRAPH_BYTES)
      neap_fail(&inner, NEAP_PLAN, "values and scratch have more than %s in all",
                neap_bytes_text((double)NEAP_MOST_GRAPH_BYTES, most));
    if (inner.code != NEAP_OK)
      return graph_locate(error, &inner, node->op->name, node->name, node->scope, node->line);
    for (int s = 0; s < node->n_sub; s++) NEAP_TRY(check_bytes(node->sub[s], total, error));
  }
  return NEAP_OK;
}

neap_status neap_graph_lay_out(const neap_graph *graph, const neap_choices *choices,
                               neap_graph **out, neap_error *error) {
  /* Choices of another graph would be read beyond their end. */
  int next = 0, n = count_nodes(graph);
  if (choices->n != n)
    return neap_fail(error, NEAP_PLAN, "%d choices for a graph of %d nodes", choices->n, n);
  neap_graph *made;
  NEAP_TRY(lay_out_graph(graph, choices, &next, &made, error));

  /* What the choices say beside kernels: what runs again, in bodies and in the graph itself, and
   * whether constants are held. */
  const neap_recomputed *r = &choices->recomputed;
  neap_status status = rewrite_recompute_bodies(made, r->n_body, r->body, error);
  if (status == NEAP_OK) status = neap_graph_recompute(made, r->n_node, r->node, error);
  if (status == NEAP_OK && !choices->no_constants)
    status = graph_mark_constants(made, choices->hold_constants, error);
  size_t total = 0;
  if (status == NEAP_OK) status = check_bytes(made, &total, error);
  if (status == NEAP_OK && NEAP_DEBUG) {
    graph_check(made);
    graph_check_laid_out(made);
  }
  if (status != NEAP_OK) {
    neap_graph_free(made);
    return status;
  }
  *out = made;
  return NEAP_OK;
}
