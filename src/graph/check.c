/* check.c: what the heads of graph, build and rewrite claim of a graph, looked at in full after
 * each step that makes or changes one. For builds with NEAP_DEBUG alone: a graph that is wrong is
 * the fault of the code that made it, and stops the program (base/assert.h).
 *
 * Plans of files are not checked here but by plan/verify.c, which gives a status: a file may say
 * anything. O(edges log edges) but for what commits and what one name has, which is quadratic in
 * few things. Memory is the C library's own, so that a test which counts or refuses allocations
 * meets the same ones with and without checks.
 */
#include "graph/graph_int.h"

#include <stdlib.h>
#include <string.h>

static const char *name_of(const neap_graph *graph, neap_value_id v) {
  return graph->value[v].name != NULL ? graph->value[v].name : "?";
}

/* ---- values ---------------------------------------------------------------------------------- */

static void check_definition(const neap_graph *graph, neap_value_id v) {
  const neap_value *value = &graph->value[v];
  NEAP_ASSERT(value->node >= -1 && value->node < graph->n_node,
              "value %d \"%s\" is defined by one of %d nodes or by none: %d", v, name_of(graph, v),
              graph->n_node, value->node);

  /* Both sides say it: the value which node makes it, the node which values it makes. */
  if (value->node < 0) return;
  const neap_node *node = &graph->node[value->node];
  NEAP_ASSERT(
    value->position >= 0 && value->position < node->n_out && node->out[value->position] == v,
    "value %d \"%s\" is output %d of the node that defines it, %s \"%s\" with %d outputs", v,
    name_of(graph, v), value->position, node->op->name, node->name, node->n_out);
}

/* All versions of a storage lie in the same bytes, so what says where they lie is one. */
static void check_root(const neap_graph *graph, neap_value_id v) {
  const neap_value *value = &graph->value[v];
  NEAP_ASSERT(value->root >= 0 && value->root <= v,
              "the root of value %d \"%s\" never stands behind it: %d", v, name_of(graph, v),
              value->root);

  /* One step leads to the first version, so that roots can be compared without a walk. */
  const neap_value *root = &graph->value[value->root];
  NEAP_ASSERT(root->root == value->root,
              "value %d \"%s\", the root of %d, is the first version of its storage, not one of %d",
              value->root, name_of(graph, value->root), v, root->root);
  NEAP_ASSERT(root->node <= value->node,
              "the root of value %d \"%s\" is defined before it: by node %d, it by %d", v,
              name_of(graph, v), root->node, value->node);
  NEAP_ASSERT(
    root->region == value->region && root->argument == value->argument,
    "value %d \"%s\" lies where its root does: region %s, argument %d; the root's are %s, %d", v,
    name_of(graph, v), neap_region_name(value->region), value->argument,
    neap_region_name(root->region), root->argument);
}

/* A value is either transient or has bytes of its own elsewhere: only the latter have a place
 * there. */
static void check_region(const neap_graph *graph, neap_value_id v) {
  const neap_value *value = &graph->value[v];
  NEAP_ASSERT((unsigned)value->region < NEAP_N_REGION, "value %d \"%s\" has a region: %d", v,
              name_of(graph, v), (int)value->region);

  /* Only bytes of the owner have a number there. */
  bool is_placed = value->region == NEAP_REGION_ARGUMENT || value->region == NEAP_REGION_FRAME;
  NEAP_ASSERT(!is_placed || value->argument >= 0,
              "value %d \"%s\" of region %s has a place in its owner: %d", v, name_of(graph, v),
              neap_region_name(value->region), value->argument);
  int n_bank = NEAP_MAX(graph->n_bank, 1);
  NEAP_ASSERT(value->bank >= 0 && value->bank < n_bank && value->home >= 0 && value->home < n_bank,
              "value %d \"%s\" lies in one of %d banks: bank %d, home %d", v, name_of(graph, v),
              n_bank, value->bank, value->home);
  NEAP_ASSERT(!value->is_blob || value->name != NULL, "value %d is a blob, so it has a name", v);
}

/* For qsort: by the address of the name, which is interned. */
static int compare_names(const void *a, const void *b) {
  const neap_value *const *x = a, *const *y = b;
  return ((*x)->name > (*y)->name) - ((*x)->name < (*y)->name);
}

/* A name stands for one value after a run. Frames hold several versions of one, each for the
 * backward of its iteration, and nobody asks for those by name. */
static void check_last(const neap_graph *graph) {
  /* Names are interned, so that equal ones are one address, and sorting by address brings them
   * together. */
  const neap_value **last = malloc(((size_t)graph->n_value + 1) * sizeof *last);
  if (last == NULL) return;
  int n = 0;
  for (int v = 0; v < graph->n_value; v++)
    if (graph->value[v].is_blob && graph->value[v].is_last &&
        graph->value[v].region != NEAP_REGION_FRAME)
      last[n++] = &graph->value[v];

  /* Equal names stand side by side then. */
  if (n > 0) qsort(last, (size_t)n, sizeof *last, compare_names);
  for (int i = 1; i < n; i++)
    NEAP_ASSERT(last[i - 1]->name != last[i]->name,
                "one value is the last version of \"%s\", not both %d and %d", last[i]->name,
                (int)(last[i - 1] - graph->value), (int)(last[i] - graph->value));
  free(last);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void check_operands(const neap_graph *graph, int n) {
  /* Inputs are absent or made before; outputs are there, and say so themselves. */
  const neap_node *node = &graph->node[n];
  for (int i = 0; i < node->n_in; i++) {
    /* Absent, or made before: the order of nodes is one in which they can run. */
    neap_value_id v = node->in[i];
    NEAP_ASSERT(v == NEAP_NO_VALUE || (v >= 0 && v < graph->n_value),
                "input %d of %s \"%s\" is one of %d values: %d", i, node->op->name, node->name,
                graph->n_value, v);
    NEAP_ASSERT(
      v == NEAP_NO_VALUE || graph->value[v].node < n,
      "nodes are in definition order: input %d of node %d, %s \"%s\", is defined by node %d", i, n,
      node->op->name, node->name, graph->value[v].node);
  }
  for (int k = 0; k < node->n_out; k++) {
    neap_value_id v = node->out[k];
    NEAP_ASSERT(v >= 0 && v < graph->n_value,
                "a node is in the graph with all its outputs; output %d of %s \"%s\" is %d of %d",
                k, node->op->name, node->name, v, graph->n_value);
    NEAP_ASSERT(
      graph->value[v].node == n && graph->value[v].position == k,
      "value %d \"%s\" has one definition, output %d of node %d; it says output %d of node %d", v,
      name_of(graph, v), k, n, graph->value[v].position, graph->value[v].node);
  }
}

static void check_texts(const neap_node *node) {
  NEAP_ASSERT(
    node->name != NULL && node->scope != NULL && node->line != NULL && node->device != NULL,
    "a node of %s has name, scope, line and device", node->op->name);
}

/* An output that an enforced pair writes is a version of the pair's input. */
static void check_versions(const neap_graph *graph, const neap_node *node) {
  for (int p = 0; p < node->n_enforced; p++) {
    neap_pair pair = node->enforced[p];
    NEAP_ASSERT(
      pair.in >= 0 && pair.in < node->n_in && pair.out >= 0 && pair.out < node->n_out &&
        node->in[pair.in] >= 0,
      "both sides of enforced pair %d of %s \"%s\" are there: input %d of %d, output %d of %d", p,
      node->op->name, node->name, pair.in, node->n_in, pair.out, node->n_out);
    /* The planner gives bytes to roots: a pair with two roots would be two storages. */
    const neap_value *old = &graph->value[node->in[pair.in]],
                     *new = &graph->value[node->out[pair.out]];
    NEAP_ASSERT(old->root == new->root,
                "output %d of %s \"%s\" is a version of input %d: their roots are %d and %d",
                pair.out, node->op->name, node->name, pair.in, new->root, old->root);
  }
}

/* What happens inside happens to whoever runs it. */
static void check_effects(const neap_node *node) {
  const unsigned passed_on = NEAP_EFFECT_COMMIT | NEAP_EFFECT_FAULT | NEAP_EFFECT_RANDOM;
  for (int s = 0; s < node->n_sub; s++)
    for (int n = 0; n < node->sub[s]->n_node; n++) {
      unsigned inside = node->sub[s]->node[n].effects & passed_on;
      NEAP_ASSERT((inside & ~node->effects) == 0,
                  "%s \"%s\" has the effects of what it runs: %s \"%s\" has %x, it has %x",
                  node->op->name, node->name, node->sub[s]->node[n].op->name,
                  node->sub[s]->node[n].name, inside, node->effects);
    }
}

/* A node is recomputed at most once, and only if it is forward, without effects but random numbers,
 * and all it makes is transient. */
static void check_recomputed(const neap_graph *graph, int n) {
  const neap_node *node = &graph->node[n];
  if (node->recomputes == 0) return;
  int first = node->recomputes - 1;
  NEAP_ASSERT(first >= 0 && first < n, "node %d recomputes one before it: %d", n, first);
  const neap_node *once = &graph->node[first];
  NEAP_ASSERT(once->op == node->op && once->stream == node->stream && once->attrs == node->attrs,
              "\"%s\" recomputes what \"%s\" does: %s, %s", node->name, once->name, node->op->name,
              once->op->name);

  /* The second run serves the backward; it must give the same bits and change nothing else. */
  NEAP_ASSERT(once->phase == NEAP_PHASE_FORWARD && node->phase == NEAP_PHASE_BACKWARD,
              "\"%s\" runs in the forward, its recomputation in the backward: %s, %s", once->name,
              neap_phase_name(once->phase), neap_phase_name(node->phase));
  NEAP_ASSERT(
    (node->effects & ~(unsigned)NEAP_EFFECT_RANDOM) == 0 && node->n_sub == 0 &&
      once->recomputes == 0,
    "\"%s\", which is recomputed, has no effects but random numbers, no subnets, and recomputes "
    "nothing: effects %x",
    once->name, node->effects);
  for (int k = 0; k < node->n_out; k++)
    NEAP_ASSERT(graph->value[node->out[k]].region == NEAP_REGION_ARENA,
                "all that \"%s\" makes again is transient; \"%s\" is in %s", node->name,
                name_of(graph, node->out[k]), neap_region_name(graph->value[node->out[k]].region));

  /* All of the backward reads the one copy. */
  for (int m = first + 1; m < n; m++)
    NEAP_ASSERT(graph->node[m].recomputes != node->recomputes,
                "\"%s\" is recomputed once, not by nodes %d and %d", once->name, m, n);
}

static void check_pairing(const neap_graph *graph, int n) {
  const neap_node *node = &graph->node[n];
  NEAP_ASSERT(node->forward >= 0 && node->forward <= n,
              "the forward of node %d, %s \"%s\", is a node not behind it: %d", n, node->op->name,
              node->name, node->forward);

  /* Lengths are looked up by number, so that an op has one exactly when it needs one. */
  bool has_extent = (node->op->effects & NEAP_EFFECT_EXTENT) != 0;
  NEAP_ASSERT((node->extent > 0) == has_extent, "%s \"%s\" %s: %d", node->op->name, node->name,
              has_extent ? "has a number among those whose length depends on data"
                         : "has no length that depends on data",
              node->extent);
  NEAP_ASSERT(node->bank >= 0 && node->bank < NEAP_MAX(graph->n_bank, 1),
              "%s \"%s\" works in one of %d banks: %d", node->op->name, node->name, graph->n_bank,
              node->bank);
}

/* ---- loops ----------------------------------------------------------------------------------- */

static void check_operand(const neap_node *node, int operand, const char *what, int at) {
  NEAP_ASSERT(operand >= 0 && operand < node->n_in + node->n_out,
              "%s %d of loop \"%s\" is one of %d operands: %d", what, at, node->name,
              node->n_in + node->n_out, operand);
}

/* -1: nothing of the body asks for it. */
static void check_port(const neap_node *node, int at) {
  /* What `index` counts depends on the kind of port: operands, states, or items of the frames. */
  const neap_loop *loop = node->loop;
  const neap_port *port = &loop->port[at];
  if (port->index == -1) return;
  switch (port->kind) {
    case NEAP_PORT_OPERAND:
    case NEAP_PORT_SLICE: check_operand(node, port->index, "port", at); break;
    case NEAP_PORT_STATE:
    case NEAP_PORT_NEXT:
      NEAP_ASSERT(port->index >= 0 && port->index < loop->n_state,
                  "port %d of loop \"%s\" is one of %d states: %d", at, node->name, loop->n_state,
                  port->index);
      break;
    case NEAP_PORT_KEPT:
    case NEAP_PORT_KEPT_NEXT:
      NEAP_ASSERT(loop->is_backward && port->index >= 0 && port->index < loop->n_item,
                  "port %d of loop \"%s\" is one of %d items, which only a backward reads: %d", at,
                  node->name, loop->n_item, port->index);
      break;
    case NEAP_PORT_FLAG:
      NEAP_ASSERT(!loop->is_backward,
                  "port %d of loop \"%s\" is a condition's, which no backward has", at, node->name);
      break;
  }
}

/* A frame's record: its items, one behind the other, those of states first. */
static void check_record(const neap_node *node) {
  const neap_loop *loop = node->loop;
  size_t end = 0;
  for (int i = 0; i < loop->n_item; i++) {
    const neap_frame_item *item = &loop->item[i];
    NEAP_ASSERT(item->offset == end && item->offset % NEAP_ALIGN == 0,
                "item %d of the frames of \"%s\" begins where the one before it ends, at %zu: it "
                "begins at %zu",
                i, node->name, end, item->offset);
    /* Bytes are aligned, so that the next item is, too. */
    end = item->offset + item->bytes;
  }
  NEAP_ASSERT(end == loop->record_bytes,
              "a record of \"%s\" has the bytes of its items, %zu: it has %zu", node->name, end,
              loop->record_bytes);
}

static void check_loop(const neap_node *node) {
  const neap_loop *loop = node->loop;
  NEAP_ASSERT(loop != NULL || (node->op->effects & NEAP_EFFECT_LOOP) == 0,
              "%s \"%s\" says how its iterations find their operands", node->op->name, node->name);
  if (loop == NULL) return;
  for (int p = 0; p < loop->n_port; p++) check_port(node, p);

  /* A state that begins with zeros has no initial operand, one that nobody asks for no final
   * one. */
  for (int s = 0; s < loop->n_state; s++) {
    const neap_loop_state *state = &loop->state[s];
    if (state->init >= 0) check_operand(node, state->init, "initial state", s);
    if (state->final >= 0) check_operand(node, state->final, "final state", s);
    NEAP_ASSERT(state->item < loop->n_item, "state %d of loop \"%s\" is one of %d items: %d", s,
                node->name, loop->n_item, state->item);
  }
  for (int z = 0; z < loop->n_zero; z++) check_operand(node, loop->zero[z], "zeroed operand", z);
  if (loop->frames >= 0) check_operand(node, loop->frames, "operand of frames", 0);
  check_record(node);
}

/* A loop and its backward have equal items: what the one writes there the other one reads. In the
 * body of an outer loop the frames may have been kept, and their maker is elsewhere. */
static void check_halves(const neap_graph *graph, const neap_node *back) {
  /* Only a backward that reads its frames in this graph has a forward here to be compared with. */
  const neap_loop *b = back->loop;
  if (b == NULL || !b->is_backward || b->frames < 0 || b->frames >= back->n_in ||
      back->in[b->frames] < 0)
    return;
  int maker = graph->value[back->in[b->frames]].node;
  const neap_loop *f = maker >= 0 ? graph->node[maker].loop : NULL;
  if (f == NULL) return;

  /* The two are laid out apart, and the runner gives both the same bytes. */
  NEAP_ASSERT(f->n_item == b->n_item && f->record_bytes == b->record_bytes && f->grows == b->grows,
              "\"%s\" and its backward have equal items: %d in %zu bytes, %d in %zu",
              graph->node[maker].name, f->n_item, f->record_bytes, b->n_item, b->record_bytes);
  for (int i = 0; i < f->n_item; i++)
    NEAP_ASSERT(f->item[i].offset == b->item[i].offset && f->item[i].bytes == b->item[i].bytes,
                "item %d of \"%s\" is that of its backward: %zu bytes at %zu, %zu at %zu", i,
                graph->node[maker].name, f->item[i].bytes, f->item[i].offset, b->item[i].bytes,
                b->item[i].offset);
}

/* ---- subgraphs ------------------------------------------------------------------------------- */

/* Parameters and results of a subgraph have region ARGUMENT and the owner's operand as their place,
 * or a port of its loop. */
static void check_place(const neap_node *owner, const neap_graph *sub, neap_value_id v,
                        const char *what) {
  const neap_value *value = &sub->value[v];
  int n_place = owner->loop != NULL ? owner->loop->n_port : owner->n_in + owner->n_out;
  bool is_kept = owner->loop != NULL && value->region == NEAP_REGION_FRAME;
  NEAP_ASSERT(value->region == NEAP_REGION_ARGUMENT || is_kept,
              "%s \"%s\" of a subnet of \"%s\" lies in an operand of it, not in %s", what,
              name_of(sub, v), owner->name, neap_region_name(value->region));
  if (is_kept) n_place = owner->loop->n_item;
  NEAP_ASSERT(value->argument < n_place,
              "%s \"%s\" of a subnet of \"%s\" lies in one of its %d operands, ports or items: %d",
              what, name_of(sub, v), owner->name, n_place, value->argument);
}

static void check_sub(const neap_node *owner, const neap_graph *sub) {
  for (int i = 0; i < sub->n_param; i++) {
    check_place(owner, sub, sub->param[i], "parameter");
    NEAP_ASSERT(sub->value[sub->param[i]].node < 0,
                "parameter \"%s\" of a subnet of \"%s\" is there before the subnet runs",
                name_of(sub, sub->param[i]), owner->name);
  }
  for (int k = 0; k < sub->n_output; k++) check_place(owner, sub, sub->output[k], "result");

  /* Parameters of the net and its constants are captured, so that the owner's operands say all that
   * it reads. */
  for (int v = 0; v < sub->n_value; v++)
    NEAP_ASSERT(
      sub->value[v].region == NEAP_REGION_ARENA || sub->value[v].region == NEAP_REGION_ARGUMENT ||
        sub->value[v].region == NEAP_REGION_FRAME,
      "\"%s\" in a subnet of \"%s\" lies in its owner's scratch, operands or frames, not in %s",
      name_of(sub, v), owner->name, neap_region_name(sub->value[v].region));
}

/* All bodies of a loop have the same parameters and results, of the same types. */
static void check_bodies(const neap_node *node) {
  const neap_graph *first = node->sub[node->n_sub - node->n_body];

  /* The runner takes one or another by the lengths of an iteration, over the same ports. */
  for (int s = node->n_sub - node->n_body + 1; s < node->n_sub; s++) {
    const neap_graph *body = node->sub[s];
    NEAP_ASSERT(body->n_param == first->n_param && body->n_output == first->n_output,
                "all bodies of \"%s\" have %d parameters and %d results; one has %d and %d",
                node->name, first->n_param, first->n_output, body->n_param, body->n_output);
    for (int k = 0; k < body->n_output; k++)
      NEAP_ASSERT(
        neap_type_equal(&body->value[body->output[k]].type, &first->value[first->output[k]].type),
        "result %d of all bodies of \"%s\" has one type", k, node->name);
  }
}

static void check_ids(const neap_graph *graph, int n, const neap_value_id *id, const char *what) {
  for (int i = 0; i < n; i++)
    NEAP_ASSERT(id[i] >= 0 && id[i] < graph->n_value, "%s %d of \"%s\" is one of %d values: %d",
                what, i, graph->name, graph->n_value, id[i]);
}

void graph_check_nodes(const neap_graph *graph) {
  if (!NEAP_DEBUG) return;

  /* Values first: what follows reads them by number. */
  for (int v = 0; v < graph->n_value; v++) {
    check_definition(graph, v);
    check_root(graph, v);
    check_region(graph, v);
  }
  check_last(graph);
  check_ids(graph, graph->n_param, graph->param, "parameter");
  check_ids(graph, graph->n_output, graph->output, "output");
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    check_operands(graph, n);
    check_versions(graph, node);
    check_pairing(graph, n);
    check_recomputed(graph, n);
    check_loop(node);
    check_halves(graph, node);
    check_effects(node);
    /* The place of a subgraph's values is the owner's business, the rest its own. */
    for (int s = 0; s < node->n_sub; s++) {
      check_sub(node, node->sub[s]);
      graph_check_nodes(node->sub[s]);
    }
    if (node->n_body > 0) check_bodies(node);
  }
}

/* ---- edges ----------------------------------------------------------------------------------- */

static const neap_edge *find_edge(const neap_graph *graph, int from, int to) {
  int low = 0, high = graph->n_edge;
  while (low < high) {
    int middle = low + (high - low) / 2;
    const neap_edge *edge = &graph->edge[middle];
    if (edge->from < from || (edge->from == from && edge->to < to))
      low = middle + 1;
    else
      high = middle;
  }
  bool found = low < graph->n_edge && graph->edge[low].from == from && graph->edge[low].to == to;
  return found ? &graph->edge[low] : NULL;
}

static void check_has_edge(const neap_graph *graph, int from, int to, const char *why) {
  if (from < 0 || from == to) return;
  NEAP_ASSERT(find_edge(graph, from, to) != NULL,
              "an edge from node %d, \"%s\", to node %d, \"%s\": %s", from, graph->node[from].name,
              to, graph->node[to].name, why);
}

static void check_edge_list(const neap_graph *graph) {
  for (int e = 0; e < graph->n_edge; e++) {
    const neap_edge *edge = &graph->edge[e], *before = e > 0 ? edge - 1 : NULL;
    /* So there is no circle, and the nodes' order is valid. */
    NEAP_ASSERT(edge->from >= 0 && edge->from < edge->to && edge->to < graph->n_node,
                "every edge goes from a lower to a higher node of %d: edge %d goes from %d to %d",
                graph->n_node, e, edge->from, edge->to);
    NEAP_ASSERT(
      before == NULL || before->from < edge->from ||
        (before->from == edge->from && before->to < edge->to),
      "edges are sorted, and a pair of nodes has one: edge %d, %d to %d, follows %d to %d", e,
      edge->from, edge->to, before->from, before->to);
  }
}

/* The edges say everything about order: data, readers before what overwrites or frees, checks
 * before commits. */
static void check_data_edges(const neap_graph *graph, int n) {
  const neap_node *node = &graph->node[n];
  for (int i = 0; i < node->n_in; i++) {
    int maker = node->in[i] >= 0 ? graph->value[node->in[i]].node : -1;
    const neap_edge *edge = maker >= 0 ? find_edge(graph, maker, n) : NULL;
    NEAP_ASSERT(maker < 0 || (edge != NULL && edge->kind == NEAP_EDGE_DATA),
                "a data edge from node %d to node %d, \"%s\", which reads \"%s\"", maker, n,
                node->name, name_of(graph, node->in[i]));
  }
}

/* ends[v]: the node that writes the next version of v or frees it; -1: none. */
static void check_order_edges(const neap_graph *graph) {
  int *ends = malloc(((size_t)graph->n_value + 1) * sizeof *ends);
  if (ends == NULL) return;
  for (int v = 0; v < graph->n_value; v++) ends[v] = -1;

  /* No data goes from a reader to the writer behind it: the order edge alone keeps them apart. */
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    for (int p = 0; p < node->n_enforced; p++) ends[node->in[node->enforced[p].in]] = n;
    for (int i = 0; i < node->n_in; i++)
      if ((node->effects & NEAP_EFFECT_RELEASE) != 0 && node->in[i] >= 0) ends[node->in[i]] = n;
  }
  for (int n = 0; n < graph->n_node; n++)

    /* Every reader of a value that ends somewhere has an edge to where it ends. */
    for (int i = 0; i < graph->node[n].n_in; i++) {
      neap_value_id v = graph->node[n].in[i];
      if (v >= 0 && ends[v] >= 0)
        check_has_edge(graph, n, ends[v],
                       "whoever reads a value runs before what overwrites or frees it");
    }
  free(ends);
}

static void check_commit_edges(const neap_graph *graph) {
  for (int c = 0; c < graph->n_node; c++) {
    if ((graph->node[c].effects & NEAP_EFFECT_COMMIT) == 0) continue;
    /* Only those before it: what stops behind a commit is what reads it, and the run is put
     * back. */
    for (int n = 0; n < c; n++)
      if (neap_node_may_stop(&graph->node[n]))
        check_has_edge(graph, n, c, "what may stop a run comes before what commits");
  }
}

void graph_check(const neap_graph *graph) {
  if (!NEAP_DEBUG) return;
  graph_check_nodes(graph);

  /* Sorted and single, which the look-ups below count on. */
  check_edge_list(graph);
  for (int n = 0; n < graph->n_node; n++) {
    check_texts(&graph->node[n]);
    check_data_edges(graph, n);
  }
  check_order_edges(graph);
  check_commit_edges(graph);
}

/* ---- laid out -------------------------------------------------------------------------------- */

static void check_layout(const neap_graph *graph, neap_value_id v, const neap_layout *chosen,
                         const neap_node *node, int at) {
  if (v < 0) return;
  const neap_value *value = &graph->value[v];
  NEAP_ASSERT(neap_layout_equal(&value->layout, chosen),
              "operand %d of %s \"%s\", \"%s\", has the layout that its kernel was chosen for", at,
              node->op->name, node->name, name_of(graph, v));
}

static void check_bytes(const neap_graph *graph, neap_value_id v) {
  const neap_value *value = &graph->value[v];
  size_t bytes = neap_layout_bytes(&value->type, &value->layout);
  NEAP_ASSERT(value->bytes == bytes,
              "value %d \"%s\" has the bytes of its type and layout, %zu: it has %zu", v,
              name_of(graph, v), bytes, value->bytes);
  bool is_plain = value->layout.kind == NEAP_LAYOUT_PLAIN;
  bool is_free = value->region == NEAP_REGION_ARENA || value->region == NEAP_REGION_CONSTANT ||
                 value->region == NEAP_REGION_FRAME;
  NEAP_ASSERT(is_plain || is_free || value->is_stash,
              "\"%s\" of region %s is plain: others find it by name or position", name_of(graph, v),
              neap_region_name(value->region));
}

/* A constant is made by a node without effects and subnets from constants, from what such nodes
 * made on the way, or from parameters and state that the graph does not write. */
static void check_constant(const neap_graph *graph, const bool *rewritten, const neap_node *node) {
  /* In training parameters change with each step, so that nothing is the same in every run. */
  NEAP_ASSERT(!graph->train, "a graph that trains has no constants; %s \"%s\" makes one",
              node->op->name, node->name);
  NEAP_ASSERT(node->effects == NEAP_EFFECT_NONE && node->n_sub == 0,
              "%s \"%s\", which makes a constant, has no effects and no subnets", node->op->name,
              node->name);

  /* Whatever it reads must be the same in every run, too. */
  for (int i = 0; i < node->n_in; i++) {
    if (node->in[i] < 0) continue;
    const neap_value *value = &graph->value[node->in[i]];
    bool is_kept = value->region == NEAP_REGION_PARAMETER || value->region == NEAP_REGION_STATE;
    bool is_made = value->node >= 0 && graph->node[value->node].once;
    NEAP_ASSERT(
      is_made || (is_kept && value->node < 0 && !rewritten[value->root]),
      "what %s \"%s\" makes is the same in every run, as is what it reads; \"%s\" of %s is not",
      node->op->name, node->name, name_of(graph, node->in[i]), neap_region_name(value->region));
  }
}

/* A node is `once` when all that it makes is constant, or read by such nodes alone and by nobody's
 * name. */
static void check_constants(const neap_graph *graph) {
  /* Storages of which the graph writes a new version: what they hold differs from run to run. */
  bool *rewritten = calloc((size_t)graph->n_value + 1, sizeof *rewritten);
  if (rewritten == NULL) return;
  for (int v = 0; v < graph->n_value; v++)
    if (graph->value[v].root != v) rewritten[graph->value[v].root] = true;

  /* What keeps its bytes from run to run has been made by a node that need not run again. */
  for (int v = 0; v < graph->n_value; v++) {
    const neap_value *value = &graph->value[v];
    NEAP_ASSERT(
      value->region != NEAP_REGION_CONSTANT || (value->node >= 0 && graph->node[value->node].once),
      "constant \"%s\" is made once", name_of(graph, v));
  }

  /* Nodes that are run once, and whoever reads on the way to what they make. */
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    if (node->once) check_constant(graph, rewritten, node);
    for (int i = 0; i < node->n_in; i++) {
      const neap_value *value = node->in[i] >= 0 ? &graph->value[node->in[i]] : NULL;
      if (value == NULL || value->node < 0 || !graph->node[value->node].once ||
          value->region == NEAP_REGION_CONSTANT)
        continue;
      NEAP_ASSERT(
        node->once && !value->is_blob,
        "\"%s\", made on the way to a constant, is read on that way alone, not by %s \"%s\"",
        name_of(graph, node->in[i]), node->op->name, node->name);
    }
  }
  free(rewritten);
}

void graph_check_laid_out(const neap_graph *graph) {
  if (!NEAP_DEBUG) return;

  /* Bytes by layout, then layouts by what was chosen, then what is left out of later runs. */
  for (int v = 0; v < graph->n_value; v++) check_bytes(graph, v);
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    NEAP_ASSERT(node->choice.in != NULL && node->choice.out != NULL,
                "%s \"%s\" has its kernel chosen", node->op->name, node->name);
    for (int i = 0; i < node->n_in; i++)
      check_layout(graph, node->in[i], &node->choice.in[i], node, i);
    for (int k = 0; k < node->n_out; k++)
      check_layout(graph, node->out[k], &node->choice.out[k], node, node->n_in + k);
    for (int s = 0; s < node->n_sub; s++) graph_check_laid_out(node->sub[s]);
  }
  check_constants(graph);
}
