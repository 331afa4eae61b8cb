/* reach.c: which node comes before which in every order that the edges allow: a bit matrix over
 * nodes.
 *
 * Nodes are in a valid order, so one pass from the last to the first is enough: what a node reaches
 * is its followers and all that they reach. n_edge * n_node / 64 word operations, n_node^2 / 8
 * bytes.
 */
#include "plan/plan_int.h"

neap_status neap_reach_new(const neap_graph *graph, uint64_t **out, int *n_word,
                           neap_error *error) {
  /* One row of bits for each node, in one block. */
  size_t words = ((size_t)graph->n_node + 63) / 64;
  size_t bytes = words * (size_t)graph->n_node * sizeof(uint64_t);
  uint64_t *reach = neap_alloc_zeroed(bytes);
  if (reach == NULL) return neap_fail_memory(error, bytes, "reachability of a dag");

  /* Edges are sorted by `from`, and lead to later nodes: met from the last one on, each leads to a
   * row that is finished. */
  for (int e = graph->n_edge - 1; e >= 0; e--) {
    const neap_edge *edge = &graph->edge[e];
    uint64_t *row = reach + (size_t)edge->from * words;
    const uint64_t *below = reach + (size_t)edge->to * words;
    neap_bit_set(row, edge->to);
    for (size_t k = 0; k < words; k++) row[k] |= below[k];
  }
  *out = reach;
  *n_word = (int)words;
  return NEAP_OK;
}
