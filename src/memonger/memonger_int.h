/* memonger_int.h: what the files of this room share and nobody else sees. */
#ifndef NEAP_MEMONGER_INT_H
#define NEAP_MEMONGER_INT_H

#include "memonger/memonger.h"
#include "plan/schedule.h"

/* lives.c: as neap_recycle_open for the names that are local to a subnet; `graph` is what its
 * owner's node holds for it, and must outlive it. */
neap_status neap_recycle_open_sub(neap_recycle *recycle, const neap_net *sub, neap_graph *graph,
                                  neap_error *error);
/* ARGUMENT error unless nodes are ops; `what` is what counts them. */
neap_status neap_recycle_by_op(const neap_recycle *recycle, const char *what, neap_error *error);
/* recycle.c: slot_of[b] in [0, n_slot) for every blob that shares, -1 for all others. Of the
 * options, how to search. */
neap_status neap_recycle_assign(const neap_recycle *recycle, const neap_recycle_options *options,
                                int *slot_of, neap_assign_figures *figures, neap_error *error);
/* apply.c: the net with the blobs of each slot under one name: slot[b] as above. Slots of several
 * blobs are called "<prefix>shared_<k>", in order of first definition; name[k] gets it, NULL where
 * a slot has one blob. With `inside`, names that are local to a subnet share within it too.
 * INTERNAL error when the slots would change what the net computes. */
neap_status neap_recycle_apply(const neap_recycle *recycle, const int *slot, int n_slot,
                               const char *prefix, bool inside, const char **name, neap_net **out,
                               neap_error *error);
/* order.c */
typedef enum neap_recycle_order {
  NEAP_ORDER_PLAIN,
  NEAP_ORDER_LONGEST_PATH,
  NEAP_ORDER_LEAST_MEMORY
} neap_recycle_order;
/* stream[i]: of the random numbers that op i, or an op in its subnets, draws in a run of the net as
 * it stands; 0 where it draws none or remembers one. For copies in which ops change places. */
void neap_recycle_streams(const neap_net *net, uint32_t *stream);

#endif
