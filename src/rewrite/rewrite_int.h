/* rewrite_int.h: what the files of src/rewrite share. Nobody else includes it. */
#ifndef NEAP_REWRITE_INT_H
#define NEAP_REWRITE_INT_H

#include "graph/change.h"
#include "rewrite/rewrite.h"

/* The passes that run while a graph is built, in the order in which they run. X(name, when): NAME.c
 * has rewrite_NAME. When: FORWARD, before the gradient is taken; INFERENCE, of a graph that does
 * not train (build/build.h says more). A pass moves no node: one that nobody needs any more is left
 * without readers, and graph/finish.c takes it out. Names that go are told by graph_add_gone. */
#define REWRITE_PASS_MAP(X) \
  X(norm_relu, FORWARD)     \
  X(fuse, INFERENCE)
#define X(name, when) neap_status rewrite_##name(neap_builder *b, int next_op, neap_error *error);
REWRITE_PASS_MAP(X)
#undef X

/* constant.c: gives the values of a laid-out top-level graph that depend on nothing but parameters
 * and state the graph does not write region CONSTANT; those on the way to others only if `all`. */
neap_status graph_mark_constants(neap_graph *graph, bool all, neap_error *error);

/* recompute_body.c: entries of neap_graph_body_nodes run again, ascending. PLAN error for one that
 * is not there. */
neap_status rewrite_recompute_bodies(neap_graph *graph, int n, const int *recomputed,
                                     neap_error *error);
/* recompute.c: whether v is neither freed nor overwritten before the backward pass is over. */
bool rewrite_is_stable(const neap_graph *graph, neap_value_id v);

#endif
