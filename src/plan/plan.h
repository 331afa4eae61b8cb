/* plan: where every byte goes and when. From a laid-out graph and options to an order, a place for
 * every value and for every instruction's scratch, a lower bound, and a reason for each decision.
 * Pure: no allocation of tensor bytes, no clock but the planning time, never changes the graph.
 *
 * INVARIANT: two storages whose lives overlap (in `dag`: that no path orders) share no byte.
 * INVARIANT: lower_bound_bytes <= arena_bytes; proved exactly when equal.
 * verify.c re-proves the first from the graph's edges alone and shares no code with the rest.
 */
#ifndef NEAP_PLAN_H
#define NEAP_PLAN_H

#include "rewrite/rewrite.h"
#include "pack/pack.h"

#define NEAP_PLANNER_VERSION "11"

#define X(symbol, word) NEAP_POLICY_##symbol
#define COMMA ,
typedef enum neap_policy { NEAP_POLICY_MAP(X, COMMA) } neap_policy;
#undef COMMA
#undef X
const char *neap_policy_name(neap_policy policy);
bool neap_policy_from_name(const char *name, neap_policy *policy);
typedef enum neap_executor { NEAP_EXECUTOR_SIMPLE, NEAP_EXECUTOR_DAG } neap_executor;
const char *neap_executor_name(neap_executor executor);

/* How a value got its bytes. X(symbol, code, words) */
#define NEAP_REASON_MAP(X)                                                           \
  X(RESIDENT, "resident", "has bytes of its own from run to run")                    \
  X(OWN, "own", "takes bytes that nobody has used before it")                        \
  X(REUSE, "reuse", "takes bytes whose last reader has run")                         \
  X(IN_PLACE, "in_place", "overwrites an input that is read for the last time here") \
  X(ALIAS, "alias", "is a view of its input")                                        \
  X(VERSION, "version", "is the next version of a resident storage")                 \
  X(SLOT, "slot", "shares the slot of its blob name")                                \
  X(UNPLANNED, "unplanned", "policy none gives every value its own bytes")           \
  X(FRAME, "frame", "is kept in the frame of its iteration, for the backward")       \
  X(ARGUMENT, "argument", "lies in an operand of the instruction that owns the subnet")
typedef enum neap_reason {
#define X(symbol, code, words) NEAP_REASON_##symbol,
  NEAP_REASON_MAP(X)
#undef X
} neap_reason;
const char *neap_reason_code(neap_reason reason);
const char *neap_reason_words(neap_reason reason);

/* Why a value that could have been computed in place was not. */
#define NEAP_REFUSAL_MAP(X)                                                            \
  X(NONE, "none", "")                                                                  \
  X(NO_PAIR, "no_pair", "its op allows no in-place")                                   \
  X(READ_LATER, "read_later", "its input is read again later")                         \
  X(RESIDENT_INPUT, "resident_input", "its input has bytes of its own that must stay") \
  X(BYTES, "bytes", "its input has another size or layout")                            \
  X(KEPT, "kept", "its input is kept")                                                 \
  X(BANK, "bank", "its input lies in another memory bank")                             \
  X(ORDER, "order", "in a dag another reader of its input may still run")              \
  X(READ_TWICE, "read_twice", "its op reads that input at another position too")       \
  X(TAKEN, "taken", "another output of its op took the input's bytes")                 \
  X(OFF, "off", "in place is switched off")
typedef enum neap_refusal {
#define X(symbol, code, words) NEAP_REFUSAL_##symbol,
  NEAP_REFUSAL_MAP(X)
#undef X
} neap_refusal;
const char *neap_refusal_code(neap_refusal refusal);
const char *neap_refusal_words(neap_refusal refusal);

/* A limit on what a plan takes, as its giver knows it. */
typedef struct neap_limit {
  size_t bytes;
  bool is_total; /* of the arena and of all beside it; else of the arena, or the pool */
  /* total: what counts for the arena at least, since another program needs it */
  size_t least_arena;
  int n_fixed; /* total: what lies beside the arena */
  neap_named_bytes fixed[NEAP_MOST_NAMED];
} neap_limit;

typedef struct neap_plan_options {
  neap_policy policy;
  neap_executor executor;
  size_t budget_bytes; /* the arena may not exceed it; 0: no budget */
  bool no_in_place;
  bool keep_order; /* the order of definition, though another may have a lower peak */
  /* of each search, for addresses and for what to recompute; 0: the defaults. Steps, never time: a
   * plan is the same on a machine at rest and on a busy one */
  int64_t most_steps;
  /* policy `pool`: a budget that leaves no room is met by evicting values and making them again */
  bool evict;
  /* which the budget comes from: a refusal speaks of it. NULL: of the budget itself */
  const neap_limit *limit;
} neap_plan_options;

/* One per graph value. Steps are positions in `order`, 0-based; a value lives in [first, last]. */
typedef struct neap_place {
  neap_region region;
  /* root value of its in-place, alias or version chain; places of one storage are equal */
  int storage;
  /* ARENA, CONSTANT: in bytes from the base of the arena, of the constants; FRAME: from the
   * record's; else 0 */
  size_t offset;
  size_t bytes;    /* of this value */
  int first, last; /* of this value; first -1: exists before the graph runs */
  neap_reason reason;
  neap_refusal refusal;
  int partner; /* the value it overlays, aliases or took bytes from; or -1 */
} neap_place;

/* Under policy `pool` addresses are found while running, from a pool that starts empty. The run is
 * rehearsed beforehand (rehearse.c): offsets and arena_bytes say where blocks will lie and how far
 * the pool will reach, which the runner meets exactly; budget_bytes is the pool's hard limit. Where
 * that leaves no room, values are evicted and made again (evict.c). */
typedef struct neap_take {
  int slot; /* a storage's root value, or n_value: the instruction's scratch */
  size_t offset;
} neap_take;
/* One instruction of the run. Its takes come before it, its gives after; those of all turns lie one
 * after another. */
typedef struct neap_turn {
  int step;        /* of the plan's order */
  bool recomputed; /* it has run before: what it made was given back too early */
  int take_end, give_end;
} neap_turn;
typedef struct neap_script {
  int n_turn;
  neap_turn *turn;
  neap_take *take;
  int *give;   /* slots */
  int n_block; /* most blocks taken at once */
  int n_evicted, n_recomputed;
  int64_t evicted_bytes;
  double recomputed_work; /* of the turns that recompute, as a share of one run's without */
} neap_script;
/* The part of the arena that a memory bank of the graph has: offsets from `begin_bytes` on. While
 * running each has an address of its own. */
typedef struct neap_plan_bank {
  size_t begin_bytes, bytes, lower_bound_bytes;
} neap_plan_bank;
typedef struct neap_plan {
  neap_policy policy;
  neap_executor executor;
  int n_node, n_value;
  int *order;        /* order[step] = node */
  neap_place *place; /* by value */
  /* by node, of so many bytes as scratch_bytes says */
  size_t *scratch_offset;
  /* by node: the choice's scratch; of an op with subnets also the largest of their arenas */
  size_t *scratch_bytes;
  /* by step: bytes live while it runs, scratch and alignment included */
  size_t *live_bytes;
  size_t arena_bytes, lower_bound_bytes; /* with banks: the sums of theirs */
  int n_bank;                            /* the graph's; 0: the arena is one */
  neap_plan_bank *bank;
  /* the same kernels and values without reuse: each value, views too, with bytes of its own, beside
   * the most scratch of one op; what runs again for a budget does not count. Never below the
   * arena */
  size_t baseline_bytes;
  /* resident regions of this graph; ARENA = arena_bytes; FRAME: bytes an iteration of those loops
   * whose frames grow at run time (no budget can be promised); all others' lie in the arena */
  size_t region_bytes[NEAP_N_REGION];
  bool proved;
  int peak_step;
  int64_t plan_ns;
  /* what the searches for order and addresses looked at, in subnets too: what it was to find the
   * plan, the same on every machine. A plan that was read has none */
  int64_t n_search;
  /* which strategy won: "size", "life", "area", "exact"; of policy pool: see rehearse.c */
  const char *packer;
  /* of a plan that evicts, whose offsets are those of first stays; else empty */
  neap_script script;
  struct neap_plan ***sub; /* by node, by subnet, ending with NULL; NULL where none */
  neap_arena arena;
} neap_plan;

neap_status neap_plan_make(const neap_graph *graph, const neap_plan_options *options,
                           neap_plan **out, neap_error *error);
void neap_plan_free(neap_plan *plan);
/* Of all regions but ARGUMENT, whose bytes are the owner's: what the plan holds. */
size_t neap_plan_total_bytes(const neap_plan *plan);
/* The plan `like`, made for a graph of the same form with values at least as large
 * (neap_graph_check_form), for this one: same order, storages, addresses and arena. PLAN error when
 * something does not fit its place. Verify it as any other. */
neap_status neap_plan_shrink(const neap_plan *like, const neap_graph *graph, neap_plan **out,
                             neap_error *error);

/* What may run again in the backward pass, of a training graph and of its bodies, so that its peak
 * falls: a list of sets, of ever more work and ever lower peaks, as a greedy search finds them.
 * They do not depend on any budget. For executor `simple`. */
typedef struct neap_recomputes neap_recomputes;
/* The prepared graph and its choices must outlive it; what they say of recomputations is nothing to
 * it. */
neap_status neap_recomputes_new(const neap_graph *prepared, const neap_choices *choices,
                                const neap_plan_options *options, neap_recomputes **out,
                                neap_error *error);
void neap_recomputes_free(neap_recomputes *recomputes);
int neap_recomputes_n(const neap_recomputes *recomputes);
/* What the search has looked at so far, as a plan's n_search. */
int64_t neap_recomputes_n_search(const neap_recomputes *recomputes);
size_t neap_recomputes_peak(const neap_recomputes *recomputes, int i); /* no arena lies below it */
/* Set i without what its peak can do without; borrowed until the next call. Its peak is that of
 * definition order, unless *free_order. */
neap_status neap_recomputes_take(neap_recomputes *recomputes, int i, neap_recomputed *recomputed,
                                 bool *free_order, neap_error *error);
/* The most bytes that one node takes by itself, of a graph laid out with nothing recomputed: no set
 * leads below. */
neap_status neap_recomputes_least(neap_graph *graph, const neap_plan_options *options,
                                  size_t *least_bytes, neap_error *error);

/* Whether a plan keeps to a limit: BUDGET error with the least that would do, which names what is
 * in the way. 0 bytes: no limit. */
neap_status neap_plan_check_budget(const neap_plan *plan, const neap_graph *graph,
                                   const neap_limit *limit, neap_error *error);
size_t neap_limit_fixed(const neap_limit *limit); /* bytes of all that is fixed */
/* The blobs that are live at the plan's peak, largest first, into refused->blobs. */
void neap_plan_name_peak(const neap_plan *plan, const neap_graph *graph, neap_error *refused);

/* Whether every bank keeps to its capacity: BUDGET error that names the one that doesn't, with the
 * least that would do. */
neap_status neap_plan_check_banks(const neap_plan *plan, const neap_graph *graph,
                                  neap_error *error);

/* The step that runs a node that makes something; 0-based. */
int neap_plan_step_of(const neap_plan *plan, const neap_graph *graph, int node);
/* What a plan recomputes, over the work of one run: nodes, and work as the search for what to
 * recompute weighs it; 0 and 0 where it keeps all. */
int neap_plan_recomputed(const neap_graph *graph, double *share_of_work);
/* How many nodes, those of subnets included, have another kernel than executor `simple` has
 * without a budget. */
int neap_plan_changed(const neap_graph *graph);
/* Likewise those whose halves are computed in f32. */
int neap_plan_widened(const neap_graph *graph);

/* Independent check of a plan against its graph: PLAN error naming the two values at fault. */
neap_status neap_plan_verify(const neap_plan *plan, const neap_graph *graph, neap_error *error);

/* What a plan counts and no address depends on: bytes by region and the baseline, of subnets too.
 * PLAN error where it says other than there is. Not for plans of smaller batches of a range, which
 * hold what the largest does. */
neap_status neap_plan_check_counts(const neap_plan *plan, const neap_graph *graph,
                                   neap_error *error);

/* Storages of a bank (-1: of all) that are live at `step`, largest first, one value each (the
 * newest member that lives there); returns how many of `room` were filled, -1 when memory is
 * refused (live_at.c). */
int neap_plan_live_at(const neap_plan *plan, const neap_graph *graph, int bank, int step, int room,
                      int *value);
/* The value (views of its own bytes apart) that has overwritten bytes of `value` once the program
 * has run to the end, the last one to do so: the present owner. -1: intact. -2: only scratch
 * has. */
int neap_plan_overwriter(const neap_plan *plan, const neap_graph *graph, int value);

/* The script of a run, in `arena`, or the plan's own. PLAN error when the pool would reach further
 * than the plan says. */
neap_status neap_plan_rehearse(const neap_plan *plan, const neap_graph *graph, neap_arena *arena,
                               neap_script *out, neap_error *error);

/* Plan rows as text and back: what the store keeps and a deployed model carries. */
void neap_plan_print(const neap_plan *plan, neap_buffer *out);
neap_status neap_plan_read(const char *text, const neap_graph *graph, neap_plan **out,
                           neap_error *error);

/* Reachability by edges (reach.c): bit matrix over nodes; reach[i*n_word + j/64] bit j%64: a path
 * leads from i to j. */
neap_status neap_reach_new(const neap_graph *graph, uint64_t **out, int *n_word, neap_error *error);

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

#endif
