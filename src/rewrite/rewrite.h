/* rewrite: another form of the same meaning, graph to graph. The passes that run while a graph is
 * built are a list in passes.c; when kernels are chosen, lay_out fixes layouts and bytes. A new
 * rewrite is one file and one line of that list.
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

/* Whether some constants of a laid-out graph are read by makers of constants alone, so that they
 * need not be held. */
neap_status neap_graph_has_ways(const neap_graph *graph, bool *found, neap_error *error);

/* Recomputation (repeat.c), in a laid-out graph. Whether node n may run again in the backward
 * pass. */
bool neap_graph_can_repeat(const neap_graph *graph, int n);
/* The nodes `again`, ascending, run once more for those of the backward pass that read what they
 * make. In place; indices of nodes change. PLAN error for a node that may not. */
neap_status neap_graph_repeat(neap_graph *graph, int n_again, const int *again, neap_error *error);
/* The same as a sketch to be scheduled in definition order, not to be run: nodes share their lists
 * and subgraphs with `graph`, which must outlive it, and there are no edges. Ended by
 * neap_graph_free_sketch. */
neap_status neap_graph_sketch(const neap_graph *graph, int n_again, const int *again,
                              neap_graph **out, neap_error *error);
void neap_graph_free_sketch(neap_graph *sketch);

/* One layer's net in two: a forward half that leaves the values which the backward reads, and a
 * backward half that takes them (cut.c). Owned nets. */
typedef struct neap_halves {
  neap_net *forward; /* outputs: those of the net, then what the backward half reads of it */
  /* inputs: the gradient of the output, and blobs of the forward half; outputs: the gradients */
  neap_net *backward;
  /* the backward half runs the whole forward again, and writes the net's state as that did */
  bool repeats;
} neap_halves;
typedef struct neap_halves_spec {
  const char *output, *d_output; /* the blob whose gradient arrives, and the gradient's name */
  int n_wrt;
  /* blobs, and the names of their gradients; zeros where none arrives */
  const char *const *wrt, *const *grad;
  /* added to random streams: layers of one step draw different numbers */
  uint32_t stream;
} neap_halves_spec;
/* `options` gives the inputs' types, NULL: as declared. What the backward half needs of the forward
 * and does not take, it makes again from what it takes: stashes whose format is one engine's
 * (MaxPool's), views, and what has no inputs; random numbers are those of the forward while the
 * step counter stands. A net with subnets can't be cut: its backward half takes the input and
 * repeats the forward. GRAPH error for a backward that reads state as it was before the forward
 * wrote it. */
neap_status neap_graph_halves(const neap_net *net, const neap_halves_spec *spec,
                              const neap_graph_options *options, neap_halves *out,
                              neap_error *error);

#endif
