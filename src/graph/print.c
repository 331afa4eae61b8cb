/* print.c: a graph as text. The canonical form is what a plan's key is made of: no names, scopes or
 * lines; values by number. The other is for people.
 *
 * INVARIANT: two graphs with one canonical text may share a plan. So it has all that a choice or an
 * address depends on: types, regions, roles, keeps, which value is a version of which, attributes
 * with all their digits, pairs, loops' frames, and subgraphs in their place. What a node is called,
 * and which random stream it draws from, is left out: it moves no byte.
 */
#include "graph/graph_int.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Two numbers that differ never print alike. A subnet is printed as the graph it became, behind its
 * node. */
static void print_attr(const neap_attr *attr, const neap_attr_value *value, neap_buffer *out) {
  /* Numbers with all their digits; lists in braces; every other type is an integer, or the number
   * of a word. */
  switch (attr->type) {
    case NEAP_ATTR_FLOAT: neap_buffer_add_number(out, value->f); return;
    /* The net's name moves no byte; what is in it stands behind the node. */
    case NEAP_ATTR_NET: neap_buffer_add(out, value->net != NULL ? "net" : "none"); return;
    case NEAP_ATTR_INTS:
    case NEAP_ATTR_AXES:
      neap_buffer_add(out, "{");
      for (int i = 0; i < value->n; i++)
        neap_buffer_add(out, "%s%" PRId64, i > 0 ? "," : "", value->ints[i]);
      neap_buffer_add(out, "}");
      return;
    case NEAP_ATTR_FLOATS:
      neap_buffer_add(out, "{");
      for (int i = 0; i < value->n; i++) {
        if (i > 0) neap_buffer_add_n(out, ",", 1);
        neap_buffer_add_number(out, value->floats[i]);
      }
      neap_buffer_add(out, "}");
      return;
    default: neap_buffer_add(out, "%" PRId64, value->i);
  }
}

/* All of them, by name, given or not: a default is as good as a word. */
static void print_attrs(const neap_node *node, neap_buffer *out) {
  int n = neap_op_n_attrs(node->op);
  for (int a = 0; a < n; a++) {
    neap_buffer_add(out, "%s%s=", a == 0 ? " {" : " ", node->op->attrs[a].name);
    print_attr(&node->op->attrs[a], &node->attrs[a], out);
  }
  if (n > 0) neap_buffer_add(out, "}");
}

static void indent(int depth, neap_buffer *out) {
  for (int d = 0; d < depth; d++) neap_buffer_add_n(out, "  ", 2);
}

/* "%3:f32(2,4)@parameters/parameter/keep#1=%2": number, type, then what is not that of a transient
 * value, an operand's place, and the first version where it is a later one. */
static void print_value_canonical(const neap_graph *graph, int v, neap_buffer *out) {
  const neap_value *value = &graph->value[v];
  char shape[NEAP_SHAPE_TEXT];
  neap_buffer_add(out, "%%%d:%s%s", v, neap_dtype_name(value->type.dtype),
                  neap_shape_text(&value->type.shape, shape));

  /* Most values are transient, and say nothing here. */
  if (value->region != NEAP_REGION_ARENA)
    neap_buffer_add(out, "@%s/%s%s", neap_region_name(value->region), neap_role_name(value->role),
                    value->keep ? "/keep" : "");
  if (value->region == NEAP_REGION_ARGUMENT || value->region == NEAP_REGION_FRAME)
    neap_buffer_add(out, "#%d", value->argument);

  /* A version needs no address of its own, so which one it is of counts. */
  if (value->root != v) neap_buffer_add(out, "=%%%d", value->root);
}

/* What the attributes do not say: the items of the frames, and where each argument of the body is
 * found. */
static void print_loop(const neap_loop *loop, int depth, neap_buffer *out) {
  if (loop == NULL) return;
  indent(depth, out);
  neap_buffer_add(out, "loop %d %d %lld frames %d %d (", loop->is_backward, loop->has_condition,
                  (long long)loop->max, loop->frames, loop->grows);

  /* Bytes of items tell their offsets, one behind the other. */
  for (int i = 0; i < loop->n_item; i++) neap_buffer_add(out, " %zu", loop->item[i].bytes);
  neap_buffer_add(out, " ) ports");
  for (int p = 0; p < loop->n_port; p++)
    neap_buffer_add(out, " %d:%d:%zu", (int)loop->port[p].kind, loop->port[p].index,
                    loop->port[p].bytes);
  neap_buffer_add(out, "\n");
}

/* What planning reads of the record of an op that is not Neap's own: another process may have
 * another one under this name. The version in the key vouches for Neap's. */
static void print_record(const neap_op *op, neap_buffer *out) {
  if (neap_op_origin(op) == NULL) return;

  /* What a planner reads of a record: pairs, effects, and of its kernels all that choosing looks
   * at. */
  const neap_pair *const pairs[] = {op->inplace, op->enforced, op->alias};
  const int n[] = {op->n_inplace, op->n_enforced, op->n_alias};
  neap_buffer_add(out, " [effects %u", op->effects);
  for (int kind = 0; kind < NEAP_COUNT(n); kind++)
    for (int p = 0; p < n[kind]; p++)
      neap_buffer_add(out, " %d:%d>%d", kind, pairs[kind][p].in, pairs[kind][p].out);
  if (op->inplace_any_input) neap_buffer_add(out, " any");
  for (const neap_kernel *k = op->kernels; k != NULL && k->run != NULL; k++)
    neap_buffer_add(out, " %s %x%s%s%s%s", neap_engine_name(k->engine), k->dtypes,
                    k->choose != NULL ? " chooses" : "", k->any_layout ? " layout" : "",
                    k->any_team ? " team" : "", k->one_thread ? " one" : "");
  neap_buffer_add(out, "]");
}

/* Values without a definition first, since nodes only mention them by number; then node after
 * node. */
static void print_canonical(const neap_graph *graph, int depth, neap_buffer *out) {
  /* How many there are, and what exists before the graph runs. */
  indent(depth, out);
  neap_buffer_add(out, "graph %d %d%s (", graph->n_node, graph->n_value,
                  graph->train ? " train" : "");
  for (int v = 0; v < graph->n_value; v++)
    if (graph->value[v].node < 0) {
      neap_buffer_add(out, " ");
      print_value_canonical(graph, v, out);
    }
  neap_buffer_add(out, " )\n");

  /* Each node as an equation: what it makes, the op, what it reads. */
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    indent(depth, out);
    for (int k = 0; k < node->n_out; k++) {
      print_value_canonical(graph, node->out[k], out);
      neap_buffer_add(out, " ");
    }
    /* Inputs have been described where they are made. */
    neap_buffer_add(out, "= %s", node->op->name);
    print_record(node->op, out);
    for (int i = 0; i < node->n_in; i++)
      neap_buffer_add(out, node->in[i] < 0 ? " -" : " %%%d", node->in[i]);
    print_attrs(node, out);
    /* Pairs count: kernels of both are chosen as one. */
    neap_buffer_add(out, " /%d\n", node->forward);
    print_loop(node->loop, depth + 1, out);
    for (int s = 0; s < node->n_sub; s++) print_canonical(node->sub[s], depth + 1, out);
  }
  indent(depth, out);
  neap_buffer_add(out, "outputs");
  for (int k = 0; k < graph->n_output; k++) neap_buffer_add(out, " %%%d", graph->output[k]);
  neap_buffer_add(out, "\n");
}

void neap_graph_print_canonical(const neap_graph *graph, neap_buffer *out) {
  print_canonical(graph, 0, out);
}

/* The layout once it has been chosen: a prepared graph has plain ones, of which nothing is said. */
static void print_value(const neap_graph *graph, int v, neap_buffer *out) {
  const neap_value *value = &graph->value[v];
  char shape[NEAP_SHAPE_TEXT], layout[NEAP_LAYOUT_TEXT];
  neap_buffer_add(out, "%s %s%s", value->name, neap_dtype_name(value->type.dtype),
                  neap_shape_text(&value->type.shape, shape));
  if (value->layout.kind != NEAP_LAYOUT_PLAIN)
    neap_buffer_add(out, " %s", neap_layout_text(&value->layout, value->type.shape.n_dim, layout));
  if (value->region != NEAP_REGION_ARENA)
    neap_buffer_add(out, " [%s]", neap_region_name(value->region));
}

/* Engine and scratch stand where choices have been made; before that a node has no list of
 * layouts. */
static void print_people(const neap_graph *graph, int depth, neap_buffer *out) {
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    indent(depth, out);

    neap_buffer_add(out, "%4d ", n + 1);
    for (int k = 0; k < node->n_out; k++) {
      neap_buffer_add(out, k > 0 ? ", " : "");
      print_value(graph, node->out[k], out);
    }
    neap_buffer_add(out, " = %s(", node->op->name);
    for (int i = 0; i < node->n_in; i++)
      neap_buffer_add(out, "%s%s", i > 0 ? ", " : "",
                      node->in[i] < 0 ? "-" : graph->value[node->in[i]].name);
    neap_buffer_add(out, ")  %s %s", neap_phase_name(node->phase),
                    node->choice.in != NULL ? neap_engine_name(node->choice.engine) : "");
    if (node->choice.scratch_bytes > 0)
      neap_buffer_add(out, " scratch %zu", node->choice.scratch_bytes);
    /* Where the user wrote it, if it was the user. */
    if (node->line[0] != '\0') neap_buffer_add(out, "  %s", node->line);
    neap_buffer_add(out, "\n");
    /* Subgraphs stand further to the right, behind their node. */
    for (int s = 0; s < node->n_sub; s++) print_people(node->sub[s], depth + 2, out);
  }
}

void neap_graph_print(const neap_graph *graph, neap_buffer *out) { print_people(graph, 0, out); }
