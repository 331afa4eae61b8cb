/* memonger: net to net, with fewer names for the same computation (Caffe2's memonger). Lives of
 * names come from the planner's own schedule, slots from pack, and a net that is given has been
 * proved to compute what the net that came in computes. */
#ifndef NEAP_MEMONGER_H
#define NEAP_MEMONGER_H

#include "plan/plan.h"

/* What the planner knows of one blob name of a net. */
typedef struct neap_recycle_blob {
  const char *name, *gradient_of, *device;
  neap_role role;
  neap_type type;  /* of the largest version */
  size_t bytes;    /* aligned */
  int first, last; /* ops: first write (-1: before the net), last read; unread: the last write */
  bool is_view;    /* a view op reads or makes it: Alias, Reshape */
  bool is_one_device;
  /* why it keeps its name and bytes ("is an output"); NULL: a transient of this net */
  const char *fixed;
  bool shares;  /* a transient that the options do not leave out */
  int class_id; /* blobs of different classes never share */
} neap_recycle_blob;

/* The ranges and conflicts of all blobs of a net, from the planner's own live ranges: one schedule
 * of the graph in which node n is op n. In `dag`, conflicts are those of whatever may overlap. With
 * a Gradient or Do op that is not written out, nodes are more than ops: `first` and `last` count
 * nodes, and what counts ops (orders, estimates) is refused. */
typedef struct neap_recycle {
  const neap_net *net; /* borrowed: must stay unchanged */
  int n_blob, n_op;
  bool by_op;  /* node n is op n */
  bool is_sub; /* of a subnet: the graph is borrowed */
  neap_recycle_blob *blob;
  neap_map index; /* interned name -> blob */
  /* n_blob x n_blob bits, of lives alone: classes and fixed blobs not counted */
  uint64_t *conflict;
  int n_word;
  /* sum of the transient blobs; the most of them live at once */
  size_t baseline_bytes, lower_bound_bytes;
  neap_graph *graph;
  neap_arena arena;
} neap_recycle;

/* `graph` and `options` may be NULL. Of the options, those that say who shares. */
neap_status neap_recycle_open(neap_recycle *recycle, const neap_net *net,
                              const neap_graph_options *graph, const neap_recycle_options *options,
                              neap_error *error);
void neap_recycle_close(neap_recycle *recycle);

/* The net that recycling works on: `net` with its backward pass and the bodies of its Do ops as
 * ops. *out is NULL where there is nothing to write out. */
neap_status neap_recycle_write_out(const neap_net *net, const neap_graph_options *graph,
                                   neap_net **out, neap_error *error);

/* Whether two nets compute the same (neap_net_same_graph), work in place at the same places
 * (neap_net_same_in_place), or both, as asked. Where one of the two has a backward pass or Do ops
 * that the other has written out, it is written out first. */
typedef struct neap_recycle_sameness {
  bool graph, in_place;
} neap_recycle_sameness;
neap_status neap_recycle_same(const neap_net *a, const neap_net *b, neap_recycle_sameness asked,
                              bool *same, neap_buffer *where, neap_error *error);

/* neap_net_recycle_slots with input types of another batch. All but `net` and `out` may be NULL;
 * the list is ended by neap_recycle_slots_fini. */
typedef struct neap_recycle_slots {
  int n;
  neap_recycle_slot *slot;
  neap_arena arena;
} neap_recycle_slots;
neap_status neap_recycle_net(const neap_net *net, const neap_recycle_options *options,
                             const neap_graph_options *graph, neap_net **out,
                             neap_recycle_figures *figures, neap_recycle_slots *slots,
                             neap_error *error);
void neap_recycle_slots_fini(neap_recycle_slots *slots);

/* The net with its ops in another order, order[i] being the op that comes as number i; what draws
 * random numbers draws those it drew. PLAN error for an order in which it would compute something
 * else. */
neap_status neap_recycle_reorder(const neap_net *net, const int *order, neap_net **out,
                                 neap_error *error);

/* neap_net_release_when_used that also says whom it frees: (*freed)[k] is interned, the list from
 * neap_alloc. */
neap_status neap_recycle_release(const neap_net *net, int n_keep, const char *const *keep,
                                 neap_net **out, const char ***freed, int *n_freed,
                                 neap_error *error);
/* neap_net_estimate_memory with other input types. */
neap_status neap_recycle_estimate(int n_net, const neap_net *const *net,
                                  const neap_graph_options *graph, const char *device,
                                  neap_memory_estimate *out, neap_error *error);

#endif
