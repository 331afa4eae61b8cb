/* plan_int.h: what the files of this room share and nobody else sees.
 *
 * A `work` is what holds for every order of one graph (readers, reachability, scratch). A `schedule` is what one order
 * leads to: who shares bytes with whom, when each storage lives, how much is live at each step. neap_plan_make compares
 * schedules, packs the best one, and writes the result into a neap_plan.
 *
 * A *storage* is a set of ARENA values that lie in the same bytes: chains of in place, alias and enforced versions. It is
 * named by its root, the value defined first.
 */
#ifndef NEAP_PLAN_INT_H
#define NEAP_PLAN_INT_H

#include "plan/plan.h"

typedef struct neap_work {
  const neap_graph *graph;
  neap_plan_options options;
  const size_t *scratch_bytes; /* by node; borrowed from the plan */
  neap_uses uses;
  uint64_t *reach; /* dag only, else NULL */
  int n_word;
} neap_work;

typedef struct neap_schedule {
  int *order, *step; /* order[step] = node, step[node] */
  int *root, *next;  /* by value: root of its storage; next member, a ring */
  neap_reason *reason;
  neap_refusal *refusal;
  int *partner;
  int *first, *last;  /* by value; -1 for a value that exists before the graph runs */
  int *from, *to;     /* by root: life of the storage */
  size_t *bytes;      /* by root: aligned */
  size_t *live_bytes; /* by step */
  size_t peak_bytes;
  int peak_step;
  neap_arena arena; /* owns all of the above */
} neap_schedule;

/* schedule.c. `order` NULL: definition order. Copies it. */
neap_status neap_schedule_init(neap_schedule *s, const neap_work *work, const int *order, neap_error *error);
/* Order and storages as `plan` has them; lives and bytes of the work's own graph, which is of the same form. */
neap_status neap_schedule_init_like(neap_schedule *s, const neap_work *work, const neap_plan *plan, neap_error *error);
void neap_schedule_fini(neap_schedule *s);

/* alias.c: fills root, next, reason, refusal and partner. Needs order and step. */
void neap_schedule_share(neap_schedule *s, const neap_work *work);
/* live_range.c: fills first, last, from, to, bytes, live_bytes and the peak. Needs the storages. */
neap_status neap_schedule_live(neap_schedule *s, const neap_work *work, neap_error *error);

/* live_range.c: the most bytes that are live at once in a bank. */
neap_status neap_schedule_bank_peak(const neap_schedule *s, const neap_work *work, int bank, size_t *peak, neap_error *error);

/* order.c: an order of low peak, greedily; *out from neap_alloc. */
neap_status neap_order_least_peak(const neap_work *work, int **out, neap_error *error);

/* policy.c: addresses. Fills offset (by root), scratch_offset (by node), and the figures of the arena. */
typedef struct neap_layout_out {
  size_t *offset, *scratch_offset;
  size_t arena_bytes, lower_bound_bytes; /* 0 and 0 under policy `pool`, which lays nothing out */
  neap_plan_bank *bank;                  /* one for each of the graph's, to be filled; NULL where it has none */
  const char *packer;
} neap_layout_out;
neap_status neap_policy_lay_out(const neap_work *work, const neap_schedule *s, neap_layout_out *out, neap_error *error);
/* rehearse.c, policy `pool`: fills offsets, arena_bytes and packer of a plan that is complete but for them. */
neap_status neap_plan_foretell(neap_plan *plan, const neap_graph *graph, neap_error *error);

/* evict.c, policy `pool`: the script of a run that stays within `limit_bytes`; fills script, offsets and figures of a plan whose
 * places are complete but for them. MEMORY error with the least that would do; `most_bytes` is what a run takes that evicts
 * nothing. */
neap_status neap_plan_evict(neap_plan *plan, const neap_graph *graph, size_t limit_bytes, size_t most_bytes, neap_error *error);
/* Whether the plan's packer is that of evict.c. */
bool neap_plan_evicts(const neap_plan *plan);
/* verify_script.c: PLAN error unless the script computes what the order does, in bytes that nothing else holds. */
neap_status neap_plan_verify_script(const neap_plan *plan, const neap_graph *graph, neap_error *error);

/* make.c: from values, scratch and arena of the plan: plan.h says what it counts. */
void neap_plan_set_baseline(neap_plan *plan, const neap_graph *graph);
/* make.c: the schedule in the words of the plan: places (of one storage: its one offset), order, live bytes, peak, bound. */
void neap_plan_fill_places(neap_plan *plan, const neap_graph *graph, const neap_schedule *s, const size_t *offset);
/* make.c. The plan of subnet k of a node, whose graph is `sub`. */
typedef neap_status neap_plan_sub(const void *context, int node, int k, const neap_graph *sub, neap_plan **out,
                                  neap_error *error);
/* Plans of all subnets, by `make`, and from them each node's scratch: the largest frame (branches overlay each other, only one
 * runs), then the op's own. A body's values that lie in its iteration's frame are placed at their items. */
neap_status neap_plan_take_subs(neap_plan *plan, const neap_graph *graph, neap_plan_sub *make, const void *context,
                                neap_error *error);
/* make.c: the same, planned like the net around them. */
neap_status neap_plan_subs(neap_plan *plan, const neap_graph *graph, const neap_plan_options *options, neap_error *error);
/* plan.c: a plan of zeros with its arrays, for the graph's counts; NULL when memory is refused. */
neap_plan *neap_plan_new(const neap_graph *graph);
/* partner.c: reason REUSE or SLOT and the partner, from the places. */
neap_status neap_plan_find_partners(neap_plan *plan, const neap_graph *graph, neap_error *error);
/* peak.c: storages of a bank (-1: of all) that are live at `step`, largest first, one value each (the newest member that lives
 * there); returns how many of `room` were filled. */
int neap_plan_live_at(const neap_plan *plan, const neap_graph *graph, int bank, int step, int room, int *value);

/* recycle.c: as neap_recycle_open for the names that are local to a subnet; `graph` is what its owner's node holds for it, and
 * must outlive it. */
neap_status neap_recycle_open_sub(neap_recycle *recycle, const neap_net *sub, neap_graph *graph, neap_error *error);
/* ARGUMENT error unless nodes are ops; `what` is what counts them. */
neap_status neap_recycle_by_op(const neap_recycle *recycle, const char *what, neap_error *error);
/* recycle_net.c: slot_of[b] in [0, n_slot) for every blob that shares, -1 for all others. Of the options, how to search. */
neap_status neap_recycle_assign(const neap_recycle *recycle, const neap_recycle_options *options, int *slot_of,
                                neap_assign_figures *figures, neap_error *error);
/* recycle_apply.c: the net with the blobs of each slot under one name: slot[b] as above. Slots of several blobs are called
 * "<prefix>shared_<k>", in order of first definition; name[k] gets it, NULL where a slot has one blob. With `inside`, names that
 * are local to a subnet share within it too. INTERNAL error when the slots would change what the net computes. */
neap_status neap_recycle_apply(const neap_recycle *recycle, const int *slot, int n_slot, const char *prefix, bool inside,
                               const char **name, neap_net **out, neap_error *error);
/* recycle_order.c */
typedef enum neap_recycle_order { NEAP_ORDER_PLAIN, NEAP_ORDER_LONGEST_PATH, NEAP_ORDER_LEAST_MEMORY } neap_recycle_order;
/* stream[i]: of the random numbers that op i, or an op in its subnets, draws in a run of the net as it stands; 0 where it draws
 * none or remembers one. For copies in which ops change places. */
neap_status neap_recycle_streams(const neap_net *net, const neap_graph_options *graph, uint32_t *stream, neap_error *error);

/* Whether [a, a + n_a) and [b, b + n_b) have a byte in common; the verifier has its own. */
static inline bool neap_bytes_meet(size_t a, size_t n_a, size_t b, size_t n_b) {
  return n_a > 0 && n_b > 0 && a < b + n_b && b < a + n_a;
}
static inline bool neap_places_meet(const neap_place *a, const neap_place *b) {
  return neap_bytes_meet(a->offset, a->bytes, b->offset, b->bytes);
}
/* What people call a value. */
static inline const char *neap_plan_name(const neap_graph *graph, int v) {
  return graph->value[v].name != NULL ? graph->value[v].name : "?";
}

static inline bool neap_bit(const uint64_t *row, int j) { return (row[j >> 6] >> (j & 63) & 1u) != 0; }
static inline void neap_bit_set(uint64_t *row, int j) { row[j >> 6] |= (uint64_t)1 << (j & 63); }
/* A path leads from node i to node j. */
static inline bool neap_reaches(const neap_work *w, int i, int j) {
  return neap_bit(w->reach + (size_t)i * (size_t)w->n_word, j);
}

#endif
