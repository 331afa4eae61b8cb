/* dot.c: a graph as Graphviz text. Ops are boxes, values are rounded boxes, subnets are clusters.
 *
 * Drawn is the graph and not the net it came from: so the backward, inserted Reorders and later
 * versions of a name are there, and a value that several ops read (a weight that two towers share)
 * is one node. With a plan, transient values are filled with a colour for the place in the arena
 * where they begin: what is reused by whom shows at a glance. Values with bytes of their own are
 * grey, with a border by region.
 *
 * Value v of the outermost graph is node v<v+1>, the op of step s is o<s+1>; those of a subnet
 * carry the names of the ops around them and the subnet's number in front, o4s1_v2: a text of
 * letters, digits and _ that is the same for the same plan.
 *
 * Folded, the ops of a scope are one box g<k>, one for each of forward, backward and update; what
 * only they read or write is not drawn, and neither are their subnets.
 *
 * INVARIANT: with a plan, a fill colour is that of one address, whichever subnets the values that
 * begin there are in; only a plan of thousands of places uses colours again.
 *
 * INVARIANT: an edge joins nodes that are there.
 */
#include "report/report.h"

#include <stdio.h>
#include <string.h>

/* ---- colours --------------------------------------------------------------------------------- */

typedef struct palette {
  neap_map index, taken; /* of an address; of a colour: both plus 1, as pointers */
  int n_tried;
} palette;

/* Light enough for black text on it. Hues go round by the golden ratio, so that neighbours in order
 * of use are well apart. */
static unsigned colour_number(int i) {
  static const unsigned char low[] = {168, 136, 186, 152, 176}, high[] = {250, 236, 224};
  /* 1536 * 0.618: in 1/256 of a sixth of the circle */
  const int hue = (int)((int64_t)i * 949 % 1536);

  /* Lightness changes with the number too: fifteen shades of each hue. */
  const int l = low[i % 5], h = high[i % 3], part = l + (h - l) * (hue % 256) / 256,
            back = h + l - part;
  const int rgb[6][3] = {{h, part, l}, {back, h, l}, {l, h, part},
                         {l, back, h}, {part, l, h}, {h, l, back}};
  const int *c = rgb[hue / 256];

  /* Red, green and blue, each in a byte. */
  return (unsigned)(c[0] << 16 | c[1] << 8 | c[2]);
}

static const void *as_key(size_t number) { return (const void *)(uintptr_t)(number + 1); }

/* The address's colour, numbered by first use. There are some thousand colours; a plan of more
 * places uses them again. */
static unsigned colour_of(palette *p, size_t address, neap_buffer *out) {
  enum { TRIES = 256 };
  int known = neap_map_get(&p->index, as_key(address), -1);
  if (known >= 0) return colour_number(known);

  /* The next number whose colour no other address has: numbers far apart may come to one colour. */
  for (int i = 0; i < TRIES; i++) {
    if (neap_map_get(&p->taken, as_key(colour_number(p->n_tried)), -1) < 0) break;
    p->n_tried++;
  }

  /* When no try is free the last colour is taken: two places look alike then, which is no error. */
  unsigned colour = colour_number(p->n_tried);
  if (!neap_map_set(&p->index, as_key(address), p->n_tried++) ||
      !neap_map_set(&p->taken, as_key(colour), 1))
    out->failed = true;
  return colour;
}

static const char *border_colour(neap_region region) {
  switch (region) {
    case NEAP_REGION_PARAMETER: return "#2f6fb3";
    case NEAP_REGION_GRADIENT: return "#b3492f";
    case NEAP_REGION_STATE: return "#7a4fb0";
    case NEAP_REGION_IO: return "#3f3f3f";
    case NEAP_REGION_CONSTANT: return "#8a7a1f";
    case NEAP_REGION_FRAME: return "#2f8f7a";
    default: return "#a0a0a0";
  }
}

static bool has_recomputed(const neap_graph *graph) {
  for (int n = 0; n < graph->n_node; n++)
    if (graph->node[n].recomputes > 0) return true;
  return false;
}

static const char *op_fill(const neap_node *node) {
  if (node->recomputes > 0) return "#f6e3b4";
  if (node->phase == NEAP_PHASE_BACKWARD) return "#f3e3e3";
  if (node->phase == NEAP_PHASE_UPDATE) return "#e3f0e3";
  return "#ffffff";
}

/* ---- one graph ------------------------------------------------------------------------------- */

/* A graph being drawn, and the one whose op owns it. */
typedef struct drawing {
  neap_buffer *out;
  palette *colours;
  const neap_graph *graph;
  const neap_plan *plan; /* NULL: the graph as it is written */
  size_t base;           /* address of its frame */
  const char *prefix;    /* of its nodes' names */
  int depth;
  bool *drawn;     /* by value */
  const int *fold; /* by node: the box it is folded into, or -1; NULL: none is */
  neap_map *edges; /* those of boxes that have been drawn; of a graph that is folded */
} drawing;

/* Inside double quotes of DOT. */
static void add_quoted(neap_buffer *out, const char *text) {
  for (const char *c = text != NULL ? text : "?"; *c != '\0'; c++) {
    if (*c == '\n') {
      neap_buffer_add_n(out, "\\n", 2);
      continue;
    }
    if (*c == '"' || *c == '\\') neap_buffer_add_n(out, "\\", 1);
    neap_buffer_add_n(out, c, 1);
  }
}

/* The box of a node, -1 for none. */
static int box_of(const drawing *d, int node) { return d->fold != NULL ? d->fold[node] : -1; }

/* Two columns for the digraph, two for each cluster around. */
static void indent(const drawing *d) { neap_buffer_add(d->out, "%*s", 2 + 2 * d->depth, ""); }

/* Without a plan ops are drawn in the order of definition. */
static int node_at(const drawing *d, int step) {
  return d->plan != NULL ? d->plan->order[step] : step;
}

/* Values that an op reads or writes. Stashes are the engines' affair: without a plan nobody knows
 * their size. */
static void mark_drawn(const drawing *d) {
  for (int n = 0; n < d->graph->n_node; n++) {
    const neap_node *node = &d->graph->node[n];
    for (int k = 0; k < node->n_in + node->n_out; k++) {
      neap_value_id v = k < node->n_in ? node->in[k] : node->out[k - node->n_in];
      if (v != NEAP_NO_VALUE) d->drawn[v] = d->plan != NULL || !d->graph->value[v].is_stash;
    }
  }
}

/* Name, type and bytes; where it lies is in the colour and, for the pointer in a browser, in the
 * tooltip. */
static void add_value(const drawing *d, int v) {
  const neap_value *value = &d->graph->value[v];
  neap_region region = d->plan != NULL ? d->plan->place[v].region : value->region;
  size_t bytes = d->plan != NULL ? d->plan->place[v].bytes : value->bytes;
  char text[NEAP_SHAPE_TEXT];

  /* Without a plan a value says where it is meant to lie, with one where it lies. */
  indent(d);
  neap_buffer_add(d->out, "%sv%d [style=\"filled,rounded\" shape=box label=\"", d->prefix, v + 1);
  add_quoted(d->out, value->name);
  neap_buffer_add(d->out, "\\n%s %s", neap_dtype_name(value->type.dtype),
                  neap_shape_text(&value->type.shape, text));
  if (bytes > 0) neap_buffer_add(d->out, "\\n%s", neap_bytes_text((double)bytes, text));

  /* Colours are for places that may be used again: one with bytes of its own is grey, one that has
   * no place yet white. */
  if (region != NEAP_REGION_ARENA) {
    neap_buffer_add(d->out, "\" fillcolor=\"#e4e4e4\" color=\"%s\" tooltip=\"%s\"];\n",
                    border_colour(region), neap_region_name(region));
  } else if (d->plan == NULL || bytes == 0) {
    neap_buffer_add(d->out, "\" fillcolor=\"#ffffff\"];\n");
  } else {
    const neap_place *place = &d->plan->place[v];
    neap_buffer_add(d->out, "\" fillcolor=\"#%06x\" tooltip=\"offset %zu, %s\"];\n",
                    colour_of(d->colours, d->base + place->offset, d->out), d->base + place->offset,
                    neap_reason_words(place->reason));
  }
}

/* An edge of a box, once: its ops may read one value several times. */
static void add_box_edge(const drawing *d, int box, int v, bool into_box) {
  /* box, value and direction in one number */
  const void *key = as_key(((size_t)box * (size_t)d->graph->n_value + (size_t)v) * 2 + into_box);

  /* What is not drawn has no node to tie an edge to. */
  if (v == NEAP_NO_VALUE || !d->drawn[v] || neap_map_get(d->edges, key, 0) != 0) return;
  if (!neap_map_set(d->edges, key, 1)) d->out->failed = true;
  indent(d);
  if (into_box)
    neap_buffer_add(d->out, "v%d -> g%d;\n", v + 1, box + 1);
  else
    neap_buffer_add(d->out, "g%d -> v%d;\n", box + 1, v + 1);
}

/* What the backward or an update reads of an earlier phase hangs on long edges: they are pale, so
 * that the chains show. */
static void add_edge(const drawing *d, int step, int v, bool into_op) {
  if (v == NEAP_NO_VALUE || !d->drawn[v]) return;

  /* What nobody makes was there first, as if the forward had made it. */
  int maker = d->graph->value[v].node;
  neap_phase made = maker >= 0 ? d->graph->node[maker].phase : NEAP_PHASE_FORWARD;
  indent(d);
  if (into_op)
    neap_buffer_add(d->out, "%sv%d -> %so%d%s;\n", d->prefix, v + 1, d->prefix, step + 1,
                    made < d->graph->node[node_at(d, step)].phase ? " [color=\"#b4b4b4\"]" : "");
  else
    neap_buffer_add(d->out, "%so%d -> %sv%d;\n", d->prefix, step + 1, d->prefix, v + 1);
}

/* An op with its edges. The engine is a plan's choice; ops with subnets have none. The tooltip says
 * who wrote it, and where. */
static void add_op(const drawing *d, int step) {
  const neap_node *node = &d->graph->node[node_at(d, step)];
  indent(d);
  neap_buffer_add(d->out, "%so%d [shape=box style=filled fillcolor=\"%s\" label=\"%s", d->prefix,
                  step + 1, op_fill(node), node->op->name);
  if (d->plan != NULL && node->n_sub == 0)
    neap_buffer_add(d->out, "\\n%s", neap_engine_name(node->choice.engine));

  neap_buffer_add(d->out, "\" tooltip=\"");
  add_quoted(d->out, node->name);
  if (node->line != NULL && node->line[0] != '\0') {
    neap_buffer_add(d->out, " ");
    add_quoted(d->out, node->line);
  }
  neap_buffer_add(d->out, "\"];\n");

  /* Edges behind the op: DOT would else make a node of a name that it has not met. */
  for (int k = 0; k < node->n_in; k++) add_edge(d, step, node->in[k], true);
  for (int k = 0; k < node->n_out; k++) add_edge(d, step, node->out[k], false);
}

/* ---- subnets --------------------------------------------------------------------------------- */

static void draw_graph(const drawing *d);

/* As the attribute that holds it is called; a backward loop has none, the gradient made its
 * body. */
static const char *subnet_role(const neap_op *op, int k) {
  int a = neap_op_subnet_attr(op, k);
  return a >= 0 ? op->attrs[a].name : "body";
}

/* The operand of `node` in whose bytes value `v` of its subnet lies, or from which it is filled, or
 * NEAP_NO_VALUE. A loop's ports say it, else the number itself: input k, or n_in + output k. */
static neap_value_id operand_of(const neap_node *node, const neap_value *v) {
  int k = v->argument;
  if (v->region != NEAP_REGION_ARGUMENT || k < 0) return NEAP_NO_VALUE;

  /* A loop hands each iteration its own: an operand whole, a slice of one, or a state, which begins
   * in one operand and ends in another. */
  if (node->loop != NULL) {
    const neap_loop *loop = node->loop;
    if (k >= loop->n_port) return NEAP_NO_VALUE;
    const neap_port *port = &loop->port[k];
    switch (port->kind) {
      case NEAP_PORT_OPERAND:
      case NEAP_PORT_SLICE: k = port->index; break;
      case NEAP_PORT_STATE: k = loop->state[port->index].init; break;
      case NEAP_PORT_NEXT: k = loop->state[port->index].final; break;
      case NEAP_PORT_KEPT:
      case NEAP_PORT_KEPT_NEXT: k = loop->frames; break;
      default: k = -1;
    }
  }

  /* States that begin with zeros, or that nobody asks for, lie in the loop's own bytes. */
  if (k < 0 || k >= node->n_in + node->n_out) return NEAP_NO_VALUE;
  return k < node->n_in ? node->in[k] : node->out[k - node->n_in];
}

/* Dashed: what the subnet takes from outside, and what it leaves there. */
static void join(const drawing *d, const neap_node *node, const drawing *inner) {
  for (int v = 0; v < inner->graph->n_value; v++) {
    const neap_value *value = &inner->graph->value[v];
    neap_value_id outer = inner->drawn[v] ? operand_of(node, value) : NEAP_NO_VALUE;

    /* What lies in no operand begins and ends inside. */
    if (outer == NEAP_NO_VALUE || !d->drawn[outer]) continue;
    indent(d);
    if (value->node < 0)
      neap_buffer_add(d->out, "%sv%d -> %sv%d", d->prefix, outer + 1, inner->prefix, v + 1);
    else
      neap_buffer_add(d->out, "%sv%d -> %sv%d", inner->prefix, v + 1, d->prefix, outer + 1);
    neap_buffer_add(d->out, " [style=dashed color=\"#707070\"];\n");
  }
}

/* Subnet k as a cluster, tied to its op by a dotted line. A subnet without ops, which hands on what
 * it takes, gets a word to tie the line to, since DOT has no edges to clusters. */
static void draw_subnet(const drawing *d, int step, int k) {
  int n = node_at(d, step);
  const neap_node *node = &d->graph->node[n];
  neap_buffer prefix = {0};
  neap_buffer_add(&prefix, "%so%ds%d_", d->prefix, step + 1, k + 1);
  drawing inner = {.out = d->out,
                   .colours = d->colours,
                   .graph = node->sub[k],
                   .plan = d->plan != NULL ? d->plan->sub[n][k] : NULL,
                   /* frames come first in the scratch */
                   .base = d->plan != NULL ? d->base + d->plan->scratch_offset[n] : 0,
                   .prefix = prefix.text,
                   .depth = d->depth + 1,
                   .drawn = neap_alloc_zeroed((size_t)node->sub[k]->n_value * sizeof *inner.drawn)};

  if (prefix.failed || inner.drawn == NULL) {
    d->out->failed = true;
  } else {
    /* Steps and values of it begin at 1 again, so that its names carry the op's in front. */
    indent(d);
    neap_buffer_add(d->out, "subgraph cluster_%s {\n", inner.prefix);
    indent(&inner);
    neap_buffer_add(d->out, "label=\"%s of ", subnet_role(node->op, k));
    add_quoted(d->out, node->name);
    neap_buffer_add(d->out, "%s\" style=rounded color=\"#707070\" fontsize=11;\n",
                    node->phase == NEAP_PHASE_BACKWARD ? ", backward" : "");

    /* The same function that drew the graph around it, with longer names. */
    draw_graph(&inner);
    if (inner.graph->n_node == 0) {
      indent(&inner);
      neap_buffer_add(d->out, "%sempty [shape=plaintext label=\"(empty)\"];\n", inner.prefix);
    }
    indent(d);
    neap_buffer_add(d->out, "}\n");

    /* Outside of the cluster, since both ends are known only now. */
    join(d, node, &inner);
    indent(d);
    neap_buffer_add(d->out, "%so%d -> %s%s [style=dotted arrowhead=none lhead=cluster_%s];\n",
                    d->prefix, step + 1, inner.prefix, inner.graph->n_node > 0 ? "o1" : "empty",
                    inner.prefix);
  }
  neap_free(inner.drawn);
  neap_buffer_fini(&prefix);
}

/* Whether the nodes that make and read value v are not all in one box. */
static bool crosses_boxes(const neap_graph *graph, const int *fold, int v) {
  enum { NOBODY = -2, OUTSIDE = -1 };
  int box = graph->value[v].node >= 0 ? fold[graph->value[v].node] : NOBODY;
  if (box == OUTSIDE) return true;

  /* A reader outside of all boxes has to find it, as has one in another box. */
  for (int n = 0; n < graph->n_node; n++)
    for (int k = 0; k < graph->node[n].n_in; k++) {
      if (graph->node[n].in[k] != v) continue;
      if (fold[n] == OUTSIDE) return true;
      if (box != NOBODY && fold[n] != box) return true;
      box = fold[n];
    }
  return false;
}

/* A value of one box alone is not drawn, unless it is one that the user asks for by name. */
static void hide_inner(const neap_graph *graph, const int *fold, bool *drawn) {
  for (int v = 0; v < graph->n_value; v++) {
    if (!drawn[v] || graph->value[v].region == NEAP_REGION_IO || graph->value[v].keep) continue;
    drawn[v] = crosses_boxes(graph, fold, v);
  }
}

/* Fills `drawn`, which comes zeroed. */
static void draw_graph(const drawing *d) {
  mark_drawn(d);
  if (d->fold != NULL) hide_inner(d->graph, d->fold, d->drawn);

  /* Values before ops, whose edges name them. */
  for (int v = 0; v < d->graph->n_value; v++)
    if (d->drawn[v]) add_value(d, v);
  for (int step = 0; step < d->graph->n_node; step++) {
    /* A folded op is only its edges, tied to its box. */
    int n = node_at(d, step), box = box_of(d, n);
    if (box >= 0) {
      const neap_node *node = &d->graph->node[n];
      for (int k = 0; k < node->n_in; k++) add_box_edge(d, box, node->in[k], true);
      for (int k = 0; k < node->n_out; k++) add_box_edge(d, box, node->out[k], false);
      continue;
    }

    add_op(d, step);
    for (int k = 0; k < d->graph->node[node_at(d, step)].n_sub; k++) draw_subnet(d, step, k);
  }
}

/* ---- folding --------------------------------------------------------------------------------- */

typedef struct box {
  const char *name; /* interned: "block1" */
  neap_phase phase;
  int n_op;
} box;

/* The first `depth` parts of a scope path, interned. NULL when memory is refused. */
static const char *head_of(const char *scope, int depth) {
  const char *end = scope;

  /* A path of fewer parts is its own head. */
  for (int i = 0; i < depth && end != NULL; i++) end = strchr(i == 0 ? scope : end + 1, '/');
  return neap_intern_n(scope, end != NULL ? (size_t)(end - scope) : strlen(scope));
}

/* Fills fold[node] and lists the boxes, in order of their first nodes; returns how many there are,
 * -1: memory is refused. */
static int list_boxes(const neap_graph *graph, int depth, int *fold, box *list) {
  int n = 0;
  for (int i = 0; i < graph->n_node; i++) {
    const neap_node *node = &graph->node[i];
    fold[i] = -1;

    /* Ops outside of all scopes are drawn one by one. */
    if (node->scope == NULL || node->scope[0] == '\0') continue;
    const char *name = head_of(node->scope, depth);
    if (name == NULL) return -1;

    /* One box for each scope and phase: forward and backward of a layer lie far apart. */
    int k = 0;
    while (k < n && (list[k].name != name || list[k].phase != node->phase)) k++;
    if (k == n) list[n++] = (box){name, node->phase, 0};
    list[k].n_op++;
    fold[i] = k;
  }
  return n;
}

static void add_boxes(const drawing *d, int n, const box *list) {
  for (int k = 0; k < n; k++) {
    const neap_node kind = {.phase = list[k].phase};
    indent(d);
    neap_buffer_add(d->out, "g%d [shape=box3d style=filled fillcolor=\"%s\" label=\"", k + 1,
                    op_fill(&kind));
    add_quoted(d->out, list[k].name);
    neap_buffer_add(d->out, "\\n%d op%s\"];\n", list[k].n_op, list[k].n_op == 1 ? "" : "s");
  }
}

/* The outermost graph with its scopes folded to their first `depth` parts. */
static void draw_folded(drawing *d, int depth) {
  size_t n_node = (size_t)d->graph->n_node + 1;
  neap_map edges = {0};
  int *fold = neap_alloc(n_node * sizeof *fold);
  box *list = neap_alloc(n_node * sizeof *list);

  /* A graph without scopes has no boxes, and is drawn as it is. */
  int n = fold != NULL && list != NULL ? list_boxes(d->graph, depth, fold, list) : -1;
  if (n < 0) {
    d->out->failed = true;
  } else {
    d->fold = fold;
    d->edges = &edges;
    add_boxes(d, n, list);
    draw_graph(d);
    d->fold = NULL;
    d->edges = NULL; /* both end here */
  }
  neap_map_fini(&edges);
  neap_free(list);
  neap_free(fold);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* nslimit bounds graphviz's network simplex, which else takes minutes for a training step of some
 * hundred ops. */
void neap_report_dot(const neap_plan *plan, const neap_graph *graph, int fold, neap_buffer *out) {
  palette colours = {0};
  drawing d = {.out = out,
               .colours = &colours,
               .graph = graph,
               .plan = plan,
               .prefix = "",
               .drawn = neap_alloc_zeroed((size_t)graph->n_value * sizeof *d.drawn)};
  char text[24];
  if (d.drawn == NULL) {
    out->failed = true;
    return;
  }

  /* The graph, how it is laid out, and a label that says what the colours mean. */
  neap_buffer_add(out, "digraph \"");
  add_quoted(out, graph->name);
  neap_buffer_add(out,
                  "\" {\n  rankdir=TB; compound=true; newrank=true; nslimit=2; nslimit1=2;\n"
                  "  node [fontname=\"sans-serif\" fontsize=10 margin=\"0.14,0.05\" height=0.3]; "
                  "edge [arrowsize=0.6];\n"
                  "  label=\"");
  add_quoted(out, graph->name);
  if (plan != NULL)
    neap_buffer_add(out,
                    "\\narena %s, one colour for each place in it; grey: bytes of their own, with "
                    "a border by region",
                    neap_bytes_text((double)plan->arena_bytes, text));
  if (graph->train)
    neap_buffer_add(out, "\\nops: forward white, backward pink, update green%s",
                    has_recomputed(graph) ? ", run again for the backward pass yellow" : "");
  neap_buffer_add(out, "\" labelloc=t fontname=\"sans-serif\" fontsize=13;\n");

  /* The whole label is written: from here on nodes and edges. */
  if (fold > 0)
    draw_folded(&d, fold);
  else
    draw_graph(&d);
  neap_buffer_add(out, "}\n");

  neap_free(d.drawn);
  neap_map_fini(&colours.index);
  neap_map_fini(&colours.taken);
}
