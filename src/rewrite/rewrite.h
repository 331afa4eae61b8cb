/* rewrite: another form of the same meaning, graph to graph. The passes that run while a graph is
 * built are a list in rewrite_int.h; when kernels are chosen, lay_out fixes layouts and bytes. A
 * new rewrite is one file and one line of that list.
 */
#ifndef NEAP_REWRITE_H
#define NEAP_REWRITE_H

#include "build/build.h"

/* Net to graph with the rewrites that look at no engine. */
neap_status neap_graph_prepare(const neap_net *net, const neap_graph_options *options,
                               neap_graph **out, neap_error *error);
/* The type that blob `name` has when `net` has run. NAME error when it has no such blob. */
neap_status neap_graph_type(const neap_net *net, const neap_graph_options *options,
                            const char *name, neap_type *out, neap_error *error);

/* A new graph with Reorders inserted, layouts and bytes fixed, choices in its nodes. In a graph
 * that does not train, what depends on parameters and state alone, packed weights among it, is of
 * region CONSTANT (constant.c). */
neap_status neap_graph_lay_out(const neap_graph *graph, const neap_choices *choices,
                               neap_graph **out, neap_error *error);

/* Whether some constants of a laid-out graph are only passed on: read by makers of other constants
 * and by nobody else, so that they need not be held. */
neap_status neap_graph_has_passing(const neap_graph *graph, bool *found, neap_error *error);

/* Recomputation (recompute.c), in a laid-out graph. Whether node n may run again in the backward
 * pass. */
bool neap_graph_can_recompute(const neap_graph *graph, int n);
/* A node of a loop's body, or of a branch, that may run again in its backward
 * (recompute_body.c). */
typedef struct neap_body_node {
  neap_graph *graph; /* the body or branch: a subgraph of the laid-out graph, which outlives it */
  int node;          /* of that */
  /* nodes of the laid-out graph itself, control ops: the one within which it would run again, and
   * the one within which it runs first; the same where one body or branch has both */
  int scratch, forward;
  /* value of the laid-out graph: the frames that get smaller when it runs again. NEAP_NO_VALUE:
   * what it makes is kept in the control op's scratch */
  neap_value_id frames;
  size_t bytes; /* of what it makes, where that is kept */
  bool is_kept; /* some of what it makes is kept as long as nothing runs again */
  double times; /* how often it is kept: iterations, those of loops around it too */
} neap_body_node;
/* All of them, in an order that follows from the graph alone; *list is ended by neap_free. Marks of
 * nodes (`recompute`) are ended. */
neap_status neap_graph_body_nodes(neap_graph *graph, int *n, neap_body_node **list,
                                  neap_error *error);
/* The nodes `recomputed`, ascending, run once more for those of the backward pass that read what
 * they make. In place; indices of nodes change. PLAN error for a node that may not. */
neap_status neap_graph_recompute(neap_graph *graph, int n_recomputed, const int *recomputed,
                                 neap_error *error);
/* The same as a sketch to be scheduled in definition order, not to be run: nodes share their lists
 * and subgraphs with `graph`, which must outlive it, and there are no edges. Ended by
 * neap_graph_free_sketch. */
neap_status neap_graph_sketch(const neap_graph *graph, int n_recomputed, const int *recomputed,
                              neap_graph **out, neap_error *error);
void neap_graph_free_sketch(neap_graph *sketch);

#endif
