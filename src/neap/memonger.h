/* neap/memonger.h: net to net, with fewer names for the same computation. Part of neap.h, which
 * includes it.
 */
#include "neap.h"
#ifndef NEAP_MEMONGER_PART_H
#define NEAP_MEMONGER_PART_H

/* Net to net: blobs that are never alive together get one name, so that a run under policy "name"
 * holds fewer bytes. What is given computes the same, op by op, and is checked to before it is
 * given; the net that went in stays as it was. A backward pass and the bodies of Do ops are written
 * out first (neap_net_expand), so that their blobs have names. Ops are counted from 0 in the net so
 * written out.
 *
 * What Caffe2's memonger does under other names: compute_blob_recycling_for_dag and the optimize
 * functions are neap_net_recycle with options; share_grad_blobs is gradients_only, or not, with
 * keep_last = 2; apply_assignments neap_net_rename and neap_net_same; compute_ranges
 * neap_net_live_ranges; compute_assignments neap_assign; compute_statistics neap_assign_measure;
 * verify_assignments neap_assign_verify; verify_graph_equality and verify_inplace_blobs
 * neap_net_same; topological_sort_traversal neap_net_sort; compute_interference_graph
 * neap_net_interference; release_blobs_when_used neap_net_release_when_used; estimate_memory_usage
 * neap_net_estimate_memory. */

/* Who shares, and how. Zero and NULL everywhere: every blob that may, in definition order. What is
 * declared, kept or an output, and what stays from run to run, never shares; neither do blobs of
 * different dtypes or device labels. */
typedef struct neap_recycle_options {
  /* safe where independent ops run side by side: names are shared along paths only */
  bool dag;
  const char *prefix; /* stands before new names, such as "scope/" */
  /* the ops are put in this order first: "plain" (default), "longest_path", "least_memory" */
  const char *order;
  int n_op; /* only blobs that no op but these writes; 0: all */
  const int *op;
  /* blobs that must be there; who comes before whom is read from the net, so they change nothing */
  int n_head;
  const char *const *head;
  int n_shareable; /* only these blobs; 0: all */
  const char *const *shareable;
  int n_dont_share; /* not these */
  const char *const *dont_share;
  bool gradients_only; /* only what the backward pass makes */
  int keep_last;       /* not what the last so many ops with parameters give */
  bool mix_dtypes;     /* blobs of different dtypes may share */
  bool unsized;        /* blobs count as equally large when slots are chosen */
  /* searched, from the greedy result on, until the least is proved or a limit is reached */
  bool exact;
  int64_t most_steps; /* of that search; 0: a million. The same limit gives the same net */
  /* of the plan that lives are read from: inputs of another batch; NULL: the defaults */
  const neap_options *plan;
} neap_recycle_options;

typedef struct neap_recycle_figures {
  int64_t baseline_bytes;    /* of all blobs that could share, each by itself */
  int64_t planned_bytes;     /* of the same under their new names */
  int64_t lower_bound_bytes; /* the most of them live at once: never above planned_bytes */
  int n_shared;              /* names that several blobs go by */
  int n_slot;                /* names of all blobs that could share */
  double saved;              /* 1 - planned / baseline; 0 where there is nothing to share */
  bool proved;               /* the search was exact and came to its end */
} neap_recycle_figures;

/* `options` NULL: the defaults. `figures` may be NULL. NAME for a blob that the net lacks, ARGUMENT
 * for an op that it lacks.
 *
 *   neap_recycle_options o = {.dag = true, .prefix = "shared/", .keep_last = 2};
 *   neap_net_recycle(net, &o, &fewer, &figures, &error);
 *   neap_options by_name = {.policy = "name", .executor = "dag"};
 *   neap_session_open(ws, fewer, &by_name, &session, &error); */
NEAP_API neap_status neap_net_recycle(const neap_net *net, const neap_recycle_options *options,
                                      neap_net **out, neap_recycle_figures *figures,
                                      neap_error *error);

/* The same, and the names that several blobs share now: *n of them in one block, ended by
 * neap_free. Names live as long as the process. */
typedef struct neap_recycle_slot {
  const char *name;
  int64_t bytes; /* of its largest blob */
  int n_blob;
  const char **blob;
} neap_recycle_slot;
NEAP_API neap_status neap_net_recycle_slots(const neap_net *net,
                                            const neap_recycle_options *options, neap_net **out,
                                            neap_recycle_figures *figures, neap_recycle_slot **slot,
                                            int *n, neap_error *error);
/* The net that recycling works on: with its backward pass and the bodies of its Do ops as ops. *out
 * is NULL where there is nothing to write out. */
NEAP_API neap_status neap_net_write_out(const neap_net *net, const neap_options *options,
                                        neap_net **out, neap_error *error);

/* A net with one Free behind the last reader of each blob that is made and read in it and that
 * nobody may ask for; n_keep blobs are left alone, and so are views and what they look at. *n_freed
 * (may be NULL) gets how many, *freed (may be NULL) their names, a list ended by neap_free. Under
 * policy "pool" the bytes return at once. */
NEAP_API neap_status neap_net_release_when_used(const neap_net *net, int n_keep,
                                                const char *const *keep, neap_net **out,
                                                const char ***freed, int *n_freed,
                                                neap_error *error);

/* What nets take, run one after the other in one workspace, if nothing but Free gives bytes back;
 * of ops labelled `device` alone (NULL: of all). `options` (may be NULL): shapes of inputs.
 * A blob that several of them write counts once, at its largest. */
typedef struct neap_memory_estimate {
  int64_t total_bytes; /* made in all */
  int64_t high_bytes;  /* the most held at once */
  int n_type;
  struct neap_type_bytes { /* by op type, the largest first; ended by neap_free */
    const char *type;
    int64_t bytes;
  } * by_type;
} neap_memory_estimate;
NEAP_API neap_status neap_net_estimate_memory(int n_net, const neap_net *const *net,
                                              const char *device, const neap_options *options,
                                              neap_memory_estimate *out, neap_error *error);

/* Whether two nets compute the same: op by op the same type, device label, attributes (given or by
 * default) and producers of what it reads, in order, subnets included; and what they give, keep and
 * leave in declared blobs. Names of what ops make do not count; those of declared blobs do, with
 * their declarations. A backward pass, or Do ops, that one of the two has written out is written
 * out in the other too: NEAP_SAME_GRAPH. NEAP_SAME_IN_PLACE: whether they work in place at the same
 * places. *where (may be NULL) gets a sentence on the first difference, or NULL; end it with
 * neap_free. */
enum { NEAP_SAME_GRAPH = 1, NEAP_SAME_IN_PLACE = 2 };
NEAP_API neap_status neap_net_same(const neap_net *a, const neap_net *b, unsigned asked, bool *same,
                                   char **where, neap_error *error);
/* A net in which blob from[i] is called to[i], in subnets and what they take and give too. A
 * renaming that breaks a rule of the net, such as an in-place that its op does not allow, is
 * refused. */
NEAP_API neap_status neap_net_rename(const neap_net *net, int n, const char *const *from,
                                     const char *const *to, neap_net **out, neap_error *error);
/* position[i] is the op that runs as number i, in an order that keeps the meaning, names that are
 * written again included: "plain", "longest_path" (sources of longer chains first, each op right
 * before it is needed) or "least_memory" (fewest bytes alive at the peak, or as defined where that
 * is no worse). Room for all ops of the net, which must have no Gradient or Do op. */
NEAP_API neap_status neap_net_sort(const neap_net *net, const char *order, int *position,
                                   neap_error *error);
/* The net with its ops in another order, position[i] being the op that comes as number i; what
 * draws random numbers draws those it drew. NAME where an op would read what is not made yet, PLAN
 * for an order in which it would compute something else. */
NEAP_API neap_status neap_net_reorder(const neap_net *net, const int *position, neap_net **out,
                                      neap_error *error);
/* Pairs (i, j) of ops, i < j: op i writes a blob of a name that op j reads. Ascending, each once,
 * *n of them; end the list with neap_free. */
NEAP_API neap_status neap_net_interference(const neap_net *net, int *n, int (**out)[2],
                                           neap_error *error);

/* When each blob of the net, written out, is alive: ops are steps. */
typedef struct neap_live_range {
  const char *name;        /* these texts last as long as the process */
  const char *fixed;       /* why it keeps its name and bytes, in words; NULL: it may share */
  const char *device;      /* its label; "" by default */
  const char *gradient_of; /* as in neap_net_blob */
  neap_role role;
  neap_dtype dtype;
  neap_shape shape; /* of its largest version */
  bool shares;      /* it may, and the options do not leave it out */
  int64_t bytes;    /* aligned, of its largest version */
  int first;        /* step that writes it first; -1: it is there before the net runs */
  int last;         /* step that reads it last; the last that writes it where nothing reads it */
  int class_id;     /* blobs of different classes never share: of device label and dtype */
} neap_live_range;
/* A list of *n, in order of the net's blobs; end it with neap_free. */
NEAP_API neap_status neap_net_live_ranges(const neap_net *net, neap_live_range **out, int *n,
                                          neap_error *error);

/* The same to be asked who may not share with whom, of the net as it stands: write it out first
 * where its ops are to be counted. Of the options those that say who shares; NULL: the defaults.
 * The net must stay unchanged as long as this is there; it is retained. End it with
 * neap_lives_free. */
typedef struct neap_lives neap_lives;
NEAP_API neap_status neap_lives_open(neap_net *net, const neap_recycle_options *options,
                                     neap_lives **out, neap_error *error);
NEAP_API void neap_lives_free(neap_lives *lives);
NEAP_API int neap_lives_n(const neap_lives *lives);
/* Range i, from 0 to n - 1. */
NEAP_API neap_live_range neap_lives_at(const neap_lives *lives, int i);
/* Whether blobs i and j may not share: both are alive at once, or of different classes. */
NEAP_API bool neap_lives_conflict(const neap_lives *lives, int i, int j);

/* Which items share a slot, so that the sum over slots of the largest member is small. An item may
 * join a slot only when it is of the same class and begins strictly after the end of what is in it,
 * or ends strictly before. */
typedef struct neap_assign_item {
  int64_t bytes;
  int class_id;
  int64_t first, last; /* inclusive steps; a last before first counts as first */
  const char *name;    /* for messages; may be NULL */
} neap_assign_item;
typedef struct neap_assign_options {
  bool exact; /* as in neap_recycle_options, and so its limit */
  int64_t most_steps;
  /* instead of lives: bit j%64 of conflict[i * n_word + j/64] says that i and j can't share */
  const uint64_t *conflict;
  int n_word;
} neap_assign_options;
typedef struct neap_assign_figures {
  int64_t baseline_bytes;    /* without sharing */
  int64_t bytes;             /* sum over slots of the largest member */
  int64_t lower_bound_bytes; /* the most alive at once, which no assignment undercuts */
  int n_slot;
  bool proved; /* no assignment has fewer bytes */
} neap_assign_figures;
/* slot[i] in [0, n_slot), numbered in order of their first members. `options` and `figures` may be
 * NULL. */
NEAP_API neap_status neap_assign(int n, const neap_assign_item *item,
                                 const neap_assign_options *options, int *slot,
                                 neap_assign_figures *figures, neap_error *error);
/* The best fit for `want_bytes` among usable slots: the smallest that is large enough, else the
 * largest; ties to the first. -1: none. */
NEAP_API int neap_assign_best_slot(int n_slot, const int64_t *slot_bytes, const bool *usable,
                                   int64_t want_bytes);
/* The figures of a given assignment; negative slots are items by themselves. */
NEAP_API neap_status neap_assign_measure(int n, const neap_assign_item *item, const int *slot,
                                         neap_assign_figures *figures, neap_error *error);
/* PLAN error that names both, when two items of one slot can't share, or one name is there twice;
 * ARGUMENT error for negative bytes and for a slot that n items can't have. */
NEAP_API neap_status neap_assign_verify(int n, const neap_assign_item *item,
                                        const neap_assign_options *options, const int *slot,
                                        neap_error *error);

#endif
