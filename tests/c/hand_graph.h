/* hand_graph.h: graphs written node by node, and random ones: what tests of the planner begin
 * with. */
#ifndef NEAP_TESTS_HAND_GRAPH_H
#define NEAP_TESTS_HAND_GRAPH_H

#include "check.h"

#include "plan/plan.h"

#include <stdlib.h>

static const neap_op op_plain = {.name = "Plain"};
static const neap_op op_relu = {.name = "Relu", .inplace = {{0, 0}}, .n_inplace = 1};
static const neap_op op_mul = {.name = "Mul", .inplace = {{0, 0}, {1, 0}}, .n_inplace = 2};
static const neap_op op_view = {.name = "View", .alias = {{0, 0}}, .n_alias = 1};
static const neap_op op_addn = {.name = "AddN", .inplace_any_input = true};
static const neap_op op_two = {.name = "Two", .inplace = {{0, 0}, {0, 1}}, .n_inplace = 2};
static const neap_op op_control = {
  .name = "If", .effects = NEAP_EFFECT_CONTROL, .inplace = {{0, 0}}, .n_inplace = 1};

enum { MAX_NODE = 4000, MAX_VALUE = 8000, MAX_EDGE = 40000 };

static inline neap_graph *graph_new(void) {
  neap_graph *g = neap_alloc_zeroed(sizeof *g);
  g->name = "test";
  g->node = neap_alloc_zeroed(MAX_NODE * sizeof *g->node);
  g->value = neap_alloc_zeroed(MAX_VALUE * sizeof *g->value);
  g->edge = neap_alloc_zeroed(MAX_EDGE * sizeof *g->edge);
  return g;
}

static inline void graph_free(neap_graph *g) {
  for (int n = 0; n < g->n_node; n++)
    for (int k = 0; k < g->node[n].n_sub; k++) graph_free(g->node[n].sub[k]);
  neap_arena_fini(&g->arena);
  neap_free(g->node);
  neap_free(g->value);
  neap_free(g->edge);
  neap_free(g);
}

static inline int value_new(neap_graph *g, const char *name, size_t bytes, neap_region region) {
  int v = g->n_value++;
  g->value[v] = (neap_value){.name = neap_intern(name),
                             .bytes = bytes,
                             .region = region,
                             .node = -1,
                             .root = v,
                             .is_blob = true,
                             .is_last = true,
                             .type = {NEAP_DTYPE_U8, {1, {(int64_t)bytes}}}};
  return v;
}

static inline int input(neap_graph *g, const char *name, size_t bytes) {
  return value_new(g, name, bytes, NEAP_REGION_IO);
}
static inline int transient(neap_graph *g, const char *name, size_t bytes) {
  return value_new(g, name, bytes, NEAP_REGION_ARENA);
}

/* Edges stay sorted and without repeats. */
static inline void edge(neap_graph *g, int from, int to, neap_edge_kind kind) {
  int at = g->n_edge;
  for (int e = 0; e < g->n_edge; e++)
    if (g->edge[e].from == from && g->edge[e].to == to) return;
  while (at > 0 && (g->edge[at - 1].from > from ||
                    (g->edge[at - 1].from == from && g->edge[at - 1].to > to))) {
    g->edge[at] = g->edge[at - 1];
    at--;
  }
  g->edge[at] = (neap_edge){from, to, kind};
  g->n_edge++;
}

/* Data edges come with the inputs. */
static inline int node_new(neap_graph *g, const neap_op *op, size_t scratch, int n_in,
                           const int *in, int n_out, const int *out) {
  int n = g->n_node++;
  char name[32];
  snprintf(name, sizeof name, "%s_%d", op->name, n);
  g->node[n] = (neap_node){.op = op,
                           .name = neap_intern(name),
                           .scope = "",
                           .line = "test.lua:1",
                           .layer = "",
                           .made_for = "",
                           .n_in = n_in,
                           .n_out = n_out,
                           .in = neap_arena_copy(&g->arena, in, (size_t)n_in * sizeof *in),
                           .out = neap_arena_copy(&g->arena, out, (size_t)n_out * sizeof *out),
                           .choice.scratch_bytes = scratch};
  for (int o = 0; o < n_out; o++)
    if (out[o] >= 0) g->value[out[o]].node = n, g->value[out[o]].position = o;
  for (int i = 0; i < n_in; i++)
    if (in[i] >= 0 && g->value[in[i]].node >= 0) edge(g, g->value[in[i]].node, n, NEAP_EDGE_DATA);
  return n;
}
#define NODE(g, op, scratch, ins, outs)                                         \
  node_new(g, op, scratch, (int)(sizeof((int[])ins) / sizeof(int)), (int[])ins, \
           (int)(sizeof((int[])outs) / sizeof(int)), (int[])outs)
#define L(...) \
  { __VA_ARGS__ }

static inline neap_plan *plan_with(const neap_graph *g, neap_plan_options options) {
  neap_plan *plan = NULL;
  CHECK_OK(neap_plan_make(g, &options, &plan, &error));
  if (plan != NULL) CHECK_OK(neap_plan_verify(plan, g, &error));
  return plan;
}

static inline neap_plan *plan_simple(const neap_graph *g) {
  return plan_with(g, (neap_plan_options){.policy = NEAP_POLICY_OFFSET});
}

/* ---- random graphs --------------------------------------------------------------------------- */

static uint64_t seed = 1;
static inline int below(int n) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (int)((seed >> 33) % (uint64_t)n);
}

static inline neap_graph *random_graph(int n_node, bool with_subs) {
  static const neap_op *const ops[] = {&op_plain, &op_relu, &op_mul,  &op_view,
                                       &op_addn,  &op_two,  &op_relu, &op_mul};
  static const size_t sizes[] = {0, 64, 100, 256, 256, 256, 1000, 4096};
  neap_graph *g = graph_new();
  for (int i = 0; i < 3; i++) input(g, "in", 256);
  int window = 1 + below(12); /* narrow graphs are chains, wide ones have many branches */

  /* Each node reads what was made before it, mostly within the window. */
  for (int n = 0; n < n_node; n++) {
    const neap_op *op = ops[below(NEAP_COUNT(ops))];
    int n_in = op == &op_mul                       ? 2
               : op == &op_addn || op == &op_plain ? below(4)
                                                   : 1,
        n_out = op == &op_two ? 2 : 1, in[4], out[2];
    for (int i = 0; i < n_in; i++) {
      int from = g->n_value - 1 - below(below(8) == 0 ? g->n_value : NEAP_MIN(window, g->n_value));
      in[i] = from;
    }

    /* Most have the size of what they read, since only then it may be written over; a few have not,
     * so that the planner must look. */
    bool same_size = op != &op_plain && n_in > 0;
    size_t bytes = same_size ? g->value[in[0]].bytes : sizes[below(NEAP_COUNT(sizes))];
    if (op != &op_view && below(16) == 0) bytes = 512;

    /* Few names, so that many values are versions of one blob; some outlive the run, some are no
     * blob. */
    for (int o = 0; o < n_out; o++) {
      char name[16];
      snprintf(name, sizeof name, "b%d", below(20));
      out[o] =
        below(16) == 0 ? value_new(g, name, bytes, NEAP_REGION_IO) : transient(g, name, bytes);
      if (below(8) == 0) g->value[out[o]].is_blob = false;
    }

    /* Orders that no data asks for, and branches with values of their own. */
    int node = node_new(g, op, below(6) == 0 ? (size_t)below(3000) : 0, n_in, in, n_out, out);
    if (node > 0 && below(10) == 0) edge(g, below(node), node, NEAP_EDGE_ORDER);
    if (with_subs && below(20) == 0) {
      neap_graph *sub[2] = {random_graph(1 + below(8), false), random_graph(1 + below(8), false)};
      g->node[node].n_sub = 2;
      g->node[node].sub = neap_arena_copy(&g->arena, sub, sizeof sub);
    }
  }
  return g;
}

#endif
