/* plan_int.h: what the files of this room share and nobody else sees. */
#ifndef NEAP_PLAN_INT_H
#define NEAP_PLAN_INT_H

#include "plan/schedule.h"

/* share.c: fills root, next, reason, refusal and partner. Needs order and step. */
void neap_schedule_share(neap_schedule *s, const neap_work *work);
/* live_range.c: fills first, last, life, live_bytes and the peak. Needs the storages. */
neap_status neap_schedule_live(neap_schedule *s, const neap_work *work, neap_error *error);

/* live_range.c: the most bytes that are live at once in a bank. */
neap_status neap_schedule_bank_peak(const neap_schedule *s, const neap_work *work, int bank,
                                    size_t *peak_bytes, neap_error *error);

/* policy.c: addresses. Fills offset (by root), scratch_offset (by node), and the figures of the
 * arena. */
typedef struct neap_layout_out {
  size_t *offset, *scratch_offset;
  size_t arena_bytes, lower_bound_bytes; /* 0 and 0 under policy `pool`, which lays nothing out */
  /* one for each of the graph's, to be filled; NULL where it has none */
  neap_plan_bank *bank;
  const char *packer;
  int64_t n_search; /* blocks that the packers looked at */
} neap_layout_out;
neap_status neap_policy_lay_out(const neap_work *work, const neap_schedule *s, neap_layout_out *out,
                                neap_error *error);
/* ground.c: the laid-out graph with some nodes of its bodies recomputed, `body` by their places in
 * the list of them. Counted references; `first` recomputes none. */
typedef struct neap_ground {
  int n_ref;
  neap_graph *graph;
  bool borrows;          /* the graph is somebody else's */
  size_t *scratch_bytes; /* by node */
  bool *body;            /* by body node: runs again */
  double work;           /* of those that do */
} neap_ground;
typedef struct neap_grounds {
  const neap_graph *prepared;
  const neap_choices *choices;
  neap_plan_options options;
  neap_ground *first;
  int n_body;
  neap_body_node *body; /* of the first ground's graph */
} neap_grounds;
/* prepared, choices and options are given, and outlive it. The first ground is of `graph`, laid out
 * and borrowed, or of one that is laid out here where it is NULL. On failure it is to be ended
 * too. */
neap_status neap_grounds_init(neap_grounds *all, neap_graph *graph, neap_error *error);
void neap_grounds_fini(neap_grounds *all);
/* `like`: a ground whose scratch is taken over where bodies are the same; may be NULL. */
neap_status neap_ground_new(const neap_grounds *all, const neap_ground *like, const bool *body,
                            neap_ground **out, neap_error *error);
neap_ground *neap_ground_retain(neap_ground *ground);
void neap_ground_release(neap_ground *ground); /* NULL is allowed */

/* work.c: the work of all nodes that run again, those of subnets too. */
double neap_plan_recomputed_work(const neap_graph *graph);
/* work.c: the work of a node, in operations: its own, and some for each byte of its
 * operands. */
double neap_plan_work(const neap_graph *graph, const neap_node *node);

/* rehearse.c, policy `pool`: fills offsets, arena_bytes and packer of a plan that is complete but
 * for them. */
neap_status neap_plan_foretell(neap_plan *plan, const neap_graph *graph, neap_error *error);

/* evict.c, policy `pool`: the script of a run that stays within the budget; fills script, offsets
 * and figures of a plan whose places are complete but for them. BUDGET error, of options->limit,
 * with the least that would do; `most_bytes` is what a run takes that evicts nothing. */
neap_status neap_plan_evict(neap_plan *plan, const neap_graph *graph,
                            const neap_plan_options *options, size_t most_bytes, neap_error *error);
/* budget.c: BUDGET error of a plan whose arena (or pool: `what`) needs `need` bytes, in words of
 * the limit. `refused` names the blobs in the way; `why` ends the message. */
neap_status neap_plan_refuse(const neap_graph *graph, const neap_limit *limit, const char *what,
                             size_t need, const char *why, neap_error *refused, neap_error *error);
/* Whether the plan's packer is that of evict.c. */
bool neap_plan_evicts(const neap_plan *plan);
/* verify_loop.c: PLAN error unless a loop's own bytes and its frames hold what they must, and both
 * halves of it agree about the frames. Nothing for a node that is no loop. */
neap_status neap_plan_verify_loop(const neap_graph *graph, const neap_node *node,
                                  neap_error *error);
/* And unless each kept value of a body, which `plan` is for, lies at its item of the frames. */
neap_status neap_plan_verify_kept(const neap_node *node, const neap_plan *plan,
                                  const neap_graph *body, neap_error *error);
/* verify_script.c: PLAN error unless the script computes what the order does, in bytes that nothing
 * else holds. */
neap_status neap_plan_verify_script(const neap_plan *plan, const neap_graph *graph,
                                    neap_error *error);

/* make.c: from values, scratch and arena of the plan: plan.h says what it counts. */
void neap_plan_set_baseline(neap_plan *plan, const neap_graph *graph);
/* make.c: the schedule in the words of the plan: places (of one storage: its one offset), order,
 * live bytes, peak, bound. */
void neap_plan_fill_places(neap_plan *plan, const neap_graph *graph, const neap_schedule *s,
                           const size_t *offset);
/* make.c. The plan of subnet k of a node, whose graph is `sub`. */
typedef neap_status neap_plan_sub(const void *context, int node, int k, const neap_graph *sub,
                                  neap_plan **out, neap_error *error);
/* Plans of all subnets, by `make`, and from them each node's scratch: the largest of their arenas
 * (only one subnet runs at a time), then the op's own. A body's values that lie in its
 * iteration's frame are placed at their items. */
neap_status neap_plan_take_subs(neap_plan *plan, const neap_graph *graph, neap_plan_sub *make,
                                const void *context, neap_error *error);
/* make.c: the same, planned like the net around them. */
neap_status neap_plan_subs(neap_plan *plan, const neap_graph *graph,
                           const neap_plan_options *options, neap_error *error);
/* make.c: the scratch that node n would have by them. */
neap_status neap_plan_scratch(const neap_graph *graph, int n, const neap_plan_options *options,
                              size_t *bytes, neap_error *error);
/* make.c: the better of two orders, that of definition and one of low peak, as options allow. */
neap_status neap_schedule_best(neap_schedule *best, const neap_work *work, neap_error *error);
/* plan.c: a plan of zeros with its arrays, for the graph's counts; NULL when memory is refused. */
neap_plan *neap_plan_new(const neap_graph *graph);
/* partner.c: reason REUSE or SLOT and the partner, from the places. */
neap_status neap_plan_find_partners(neap_plan *plan, const neap_graph *graph, neap_error *error);
/* A path leads from node i to node j. */
static inline bool neap_reaches(const neap_work *w, int i, int j) {
  return neap_bit(w->reach + (size_t)i * (size_t)w->n_word, j);
}

#endif
