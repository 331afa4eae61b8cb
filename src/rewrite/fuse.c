/* fuse.c: rewrites of graphs that do not train, engine-free: fewer ops, fewer values, the same
 * results within what is written here. See fuse_int.h for how a rewrite works and what holds.
 *
 *   rule         rewrites                                            results, against the largest
 *                                                                    of the same value
 *   identity     Reshape to its own shape, Dropout, x * 1, x + 0     equal bits; -0 + 0 stays -0
 *   duplicate    the same op on the same values twice                equal bits
 *   layer_norm   Mean, Sub, Square, Sqrt, Div, Mul, Add              1e-5
 *   gelu         its erf and tanh forms, written out                 1e-5
 *   attention    MatMul, scale, mask, Softmax, MatMul                1e-5
 *   bias         MatMul by a parameter, Add of a vector              1e-5 (another order of sums)
 *   scale        Mul, Add by channel into the BatchNorm, Conv or FC  1e-5 of the largest of |y| and
 *                before it                                           what is added
 *   norm         BatchNorm into the Conv or FC before it             1e-5 of the largest of |y| and
 *                                                                    |mean gamma / sqrt(var + eps)|
 *   norm_relu    BatchNorm, Relu                                     equal bits
 *   residual     Conv or FC, Add of a value of the same shape        1e-5
 *   bytes        DequantizeLinear, MaxPool or movement, Quantize..   equal bits
 *   activation   Conv or FC, Relu or another activation              equal bits
 *   qlinear      QLinearConv, QLinearMatMul of fixed weights         a step of y in 2^24 sums
 *   quantized    DequantizeLinear, Conv or FC, QuantizeLinear        a step of y where halves round
 *   pool         Conv, a pool; when asked for                        ref: equal bits; else 1e-5
 *
 * Where parameters are all that an op reads, lay_out gives its results region CONSTANT: that is
 * constant folding, and ops that nobody reads are taken out of every graph (finish.c).
 */
#include "rewrite/fuse_int.h"

#include <stdio.h>
#include <string.h>

/* ORDER FUSE: what simplifies comes first, so that patterns are met in one form; what makes
 * products before what joins them. Bytes come before activations, which ask what is of bytes. */
static const struct {
  const char *name;
  fuse_rule rule;
  bool on_request; /* option fuse_pool */
} rules[] = {
  {"identity", fuse_identity, false},
  {"duplicate", fuse_duplicate, false},
  {"layer_norm", fuse_layer_norm, false},
  {"gelu", fuse_gelu, false},
  {"attention", fuse_attention, false},
  {"bias", fuse_bias, false},
  {"scale", fuse_scale, false},
  {"norm", fuse_norm, false},
  {"norm_relu", fuse_norm_relu, false},
  {"residual", fuse_residual, false},
  {"bytes", fuse_bytes, false},
  {"activation", fuse_activation, false},
  {"qlinear", fuse_qlinear, false},
  {"quantized", fuse_quantized, false},
  {"quantized_real", fuse_quantized_real, false},
  {"pool", fuse_pool, .on_request = true},
};

/* ---- the list, for people -------------------------------------------------------------------- */

/* One row for the rewrite at hand. Its texts are copied: f->absorbed is written anew by the next
 * one. */
static neap_status note(fuser *f, neap_error *error) {
  neap_graph *graph = f->graph;
  const neap_node *node = &graph->node[f->into];
  char absorbed[600], into[200];
  snprintf(absorbed, sizeof absorbed, "%s \"%s\"%s", f->at_type, f->at_name, f->absorbed);
  snprintf(into, sizeof into, "%s \"%s\"", node->op->name, node->name);
  neap_rewrite row = {.rule = f->rule,
                      .absorbed = neap_arena_strdup(&graph->arena, absorbed),
                      .into = neap_arena_strdup(&graph->arena, into),
                      .saved_bytes = f->saved_bytes};
  if (row.absorbed == NULL || row.into == NULL) return graph_no_memory(error);
  return graph_add_rewrite(graph, &row) ? NEAP_OK : graph_no_memory(error);
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* before[n] of a node from `first` on: the node that was there and comes next after it, being the
 * first to depend on it; n_node where there is none. Nodes before `first` are each their own. */
static void find_first_readers(const neap_graph *graph, int first, int *before) {
  for (int n = 0; n < graph->n_node; n++) before[n] = n < first ? n : graph->n_node;

  /* Old nodes first, then the new ones from the last back: a new node reads older new ones alone,
   * so all its readers have been looked at when its own operands are. */
  for (int k = 0; k < graph->n_node; k++) {
    const int n = k < first ? k : graph->n_node - 1 - (k - first);
    for (int i = 0; i < graph->node[n].n_in; i++) {
      const neap_value_id v = graph->node[n].in[i];
      const int maker = v >= 0 ? graph->value[v].node : -1;
      if (maker < first) continue;
      NEAP_ASSERT(n < first || maker < n, "node %d, which was added, reads what is older", n);
      before[maker] = NEAP_MIN(before[maker], before[n]);
    }
  }
}

/* place[n]: old node after old node, and before each the new ones that it needs, in their order.
 * `start`: room, by node and one more. */
static void find_places(int first, int n, const int *before, int *start, int *place) {
  /* How many new ones come before each; then where those of each begin. */
  for (int at = 0; at <= n; at++) start[at] = 0;
  for (int m = first; m < n; m++) start[before[m]]++;
  int n_placed = 0;
  for (int at = 0; at <= n; at++) {
    const int count = start[at];
    start[at] = n_placed;
    n_placed += count;
    if (at < first) place[at] = n_placed++;
  }
  for (int m = first; m < n; m++) place[m] = start[before[m]]++;
  NEAP_ASSERT(n_placed == n, "each of %d nodes has a place; %d have", n, n_placed);
}

/* Nodes from `first` on work on parameters alone. Each comes right before what needs it first, so
 * that what it makes on the way to a constant lives for a step or two. */
static neap_status move_to_readers(neap_graph *graph, int first, neap_error *error) {
  int n = graph->n_node;
  if (n == first) return NEAP_OK;
  neap_status status = NEAP_OK;
  neap_node *sorted = neap_alloc((size_t)n * sizeof *sorted);
  int *before = neap_alloc((size_t)n * sizeof *before);
  int *place = neap_alloc((size_t)n * sizeof *place);
  int *start = neap_alloc(((size_t)n + 1) * sizeof *start);
  if (sorted == NULL || before == NULL || place == NULL || start == NULL) {
    status = graph_no_memory(error);
    goto done;
  }

  find_first_readers(graph, first, before);
  find_places(first, n, before, start, place);

  /* Then nodes, and what refers to them. */
  for (int m = 0; m < n; m++) {
    sorted[place[m]] = graph->node[m];
    sorted[place[m]].forward = place[m]; /* there is no backward */
  }
  memcpy(graph->node, sorted, (size_t)n * sizeof *sorted);
  for (int v = 0; v < graph->n_value; v++)
    if (graph->value[v].node >= 0) graph->value[v].node = place[graph->value[v].node];
done:
  neap_free(sorted);
  neap_free(before);
  neap_free(place);
  neap_free(start);
  return status;
}

/* No effect, and no output that anyone reads or can ask for: an earlier rewrite took the node
 * in. */
static bool is_dead(const fuser *f, int n) {
  const neap_node *node = &f->graph->node[n];
  for (int k = 0; k < node->n_out; k++)
    if (!fuse_may_go(f, node->out[k], 0)) return false;
  return node->n_out > 0 && node->effects == NEAP_EFFECT_NONE;
}

/* Rule after rule over all nodes, each again and again at one node until it no longer applies
 * there. A node that writes what lasts stays as it is: the pair, the commit and the edges that go
 * with it are its own. */
static neap_status apply_rules(fuser *f, int n_node, neap_error *error) {
  /* Rule by rule, and not node by node: a later rule counts on what the earlier ones have made of
   * the whole graph. */
  int n_rewrite = -1;
  for (int r = 0; r < NEAP_COUNT(rules); r++) {
    if (rules[r].on_request && !neap_builder_options(f->b)->fuse_pool) continue;

    /* What is fixed stays so, but for what the first rules pass on. Nodes that are added say it of
     * themselves, and stand out of order. */
    const bool in_order = f->graph->n_node == n_node;
    if (in_order && f->graph->n_rewrite != n_rewrite) fuse_find_fixed(f);
    n_rewrite = f->graph->n_rewrite;
    for (int n = 0; n < n_node; n++) {
      if (f->graph->node[n].n_enforced > 0) continue;
      while (!is_dead(f, n)) {
        /* What a rewrite would say of itself. */
        f->rule = rules[r].name;
        f->at = n;
        f->into = n;
        f->at_type = f->graph->node[n].op->name;
        f->at_name = f->graph->node[n].name;
        f->absorbed[0] = '\0';
        f->saved_bytes = 0;
        bool did = false;
        NEAP_TRY(rules[r].rule(f, n, &did, error));
        if (!did) break;
        NEAP_TRY(note(f, error));
      }
    }
    if (NEAP_DEBUG) fuse_uses_check(f);
  }
  return NEAP_OK;
}

/* A rule is called once a node and once more after each of its rewrites, and a rewrite costs what
 * it changes: the whole is linear in nodes, operands and rewrites. */
neap_status rewrite_fuse(neap_builder *b, int next_op, neap_error *error) {
  (void)next_op;
  neap_graph *graph = neap_builder_graph(b);
  fuser f = {.b = b, .graph = graph};

  /* Rules look at the nodes that were there; those that they add work on parameters alone. */
  int n_node = graph->n_node;
  neap_status status = fuse_uses_init(&f, error);
  if (status == NEAP_OK) status = apply_rules(&f, n_node, error);
  if (status == NEAP_OK) status = move_to_readers(graph, n_node, error);
  fuse_uses_fini(&f);
  return status;
}
