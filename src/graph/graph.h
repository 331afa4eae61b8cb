/* graph: what a net means, as a data structure: values with one definition each, nodes that define
 * and read them, and one explicit list of edges; how it is printed, compared and finished, and the
 * kernels chosen for its nodes. `build` makes it of a net, `rewrite` changes it.
 *
 * INVARIANT: nodes are in definition order, which is a valid order: every edge goes from a lower to
 * a higher index.
 * INVARIANT: the edge list is all that order, plan, executor `dag` and verifier read: data edges,
 * and order edges for versions of resident storage, Free, and checks before commits.
 * INVARIANT: a value is either transient (region ARENA) or has bytes of its own elsewhere.
 */
#ifndef NEAP_GRAPH_H
#define NEAP_GRAPH_H

#include "net/net.h"

/* Where a value's bytes lie. X(symbol, name). */
#define NEAP_REGION_MAP(X)   \
  X(ARENA, "arena")          \
  X(PARAMETER, "parameters") \
  X(GRADIENT, "gradients")   \
  X(STATE, "state")          \
  X(IO, "io")                \
  X(CONSTANT, "constants")   \
  X(FRAME, "frames")         \
  X(ARGUMENT, "argument") /* subgraphs: bytes of the owning instruction's operand */
typedef enum neap_region {
#define X(symbol, name) NEAP_REGION_##symbol,
  NEAP_REGION_MAP(X)
#undef X
    NEAP_N_REGION
} neap_region;
const char *neap_region_name(neap_region region);

typedef enum neap_phase { NEAP_PHASE_FORWARD, NEAP_PHASE_BACKWARD, NEAP_PHASE_UPDATE } neap_phase;
const char *neap_phase_name(neap_phase phase);

typedef struct neap_graph neap_graph;

typedef struct neap_value {
  const char *name; /* label: the blob's name, "x.grad", "conv1.stash", "x.reorder" */
  neap_type type;
  neap_layout layout;
  size_t bytes; /* with padding; known after lay_out (before: plain) */
  neap_role role;
  neap_region region;
  bool is_last; /* the last of its blob's name: what fetch sees; in frames each that is kept */
  bool is_blob; /* has a name the user can fetch */
  bool is_stash, keep;
  bool is_held;      /* a declared blob, which a workspace holds though no node reads it */
  bool is_reordered; /* another value in the layout or the bank that a kernel wants (lay_out.c) */
  /* definition: node and output position; -1: exists before the graph runs */
  int node, position;
  /* of the graph's: where its bytes lie, or, of resident ones, where a run uses them (bank.c) */
  int bank;
  int home; /* of resident ones: the bank that their bytes lie in */
  /* oldest version of the same resident storage (enforced pairs); itself otherwise */
  int root;
  /* label of the value whose gradient, or a part of it, this is; NULL: none */
  const char *gradient_of;
  /* region ARGUMENT: operand of the owner (input k, or n_in + output k), or port of its loop;
   * region FRAME: item of the loop's frames */
  int argument;
} neap_value;

/* ---- loops --------------------------------------------------------------------------------------
 * A loop runs its body once an iteration. `t` counts iterations from 0; a backward loop takes them
 * from the last to the first.
 *
 * What one iteration leaves to the next is a *state*: it lies in two buffers that change places
 * (one of them is the output that gets the last of them), so nothing is copied between iterations.
 * What an iteration of a training loop leaves to its own backward are *items* of its *frame*. The
 * operand `frames` has a record for each iteration: frame t is record t, dense, states first. State
 * items are held n + 1 times: frame t+1 begins with what iteration t leaves, so a state in frames
 * needs no other buffer.
 *
 * INVARIANT: a loop and its backward have equal items: what the one writes there the other one
 * reads.
 */

/* Where an iteration finds a parameter or result of its body. */
typedef enum neap_port_kind {
  NEAP_PORT_OPERAND,   /* operand `index`, the same in all iterations */
  NEAP_PORT_SLICE,     /* row t of operand `index` */
  NEAP_PORT_STATE,     /* state `index`, as the iteration before left it */
  NEAP_PORT_NEXT,      /* state `index`, as this iteration leaves it */
  NEAP_PORT_KEPT,      /* backward: item `index` of frame t: a state as iteration t read it */
  NEAP_PORT_KEPT_NEXT, /* backward: item `index` of frame t + 1: as iteration t left it */
  NEAP_PORT_FLAG       /* the condition's result */
} neap_port_kind;
typedef struct neap_port {
  neap_port_kind kind;
  int index;
  size_t bytes; /* SLICE: of a row */
} neap_port;

typedef struct neap_loop_state {
  int init, final; /* operands; init -1: zeros, final -1: nobody asks */
  int item;        /* of the frames; -1: two buffers */
  size_t bytes;
} neap_loop_state;

typedef struct neap_frame_item {
  size_t offset, bytes; /* in the record; aligned */
} neap_frame_item;

/* Lengths of EXTENT ops number first .. first + n - 1 (from 0); -1: unknown. */
typedef struct neap_lengths {
  int first, n;
  int64_t *length;
} neap_lengths;

typedef struct neap_loop {
  bool is_backward;
  bool has_condition; /* subnet 0 is the condition, the last one the body */
  int64_t n_step;     /* iterations without condition */
  int64_t max;        /* at most so many; 0: no limit */
  int n_port, n_state, n_zero, n_item;
  neap_port *port; /* by argument number of the subnets' values */
  neap_loop_state *state;
  /* operands that are zeros before the first iteration: sums, and rows that no iteration may
   * reach */
  int *zero;
  /* operand; -1: none. A head of NEAP_ALIGN bytes (neap_frames_head), then the records */
  int frames;
  /* no limit: the records lie on a stack of the program, the operand is the head alone */
  bool grows;
  neap_frame_item *item;
  size_t state_bytes, record_bytes;
  /* backward: the operand that holds the gradient of the forward's result k, or -1 */
  int n_result, *arrives;
} neap_loop;

/* Bytes of the operand `frames`. */
size_t neap_loop_frames_bytes(const neap_loop *loop);
/* What a loop needs beside its body's arena: the states' buffers, then the condition's flag. */
size_t neap_loop_own_bytes(const neap_loop *loop);

typedef struct neap_node {
  const neap_op *op;
  const char *name, *scope, *line, *device;
  const char *layer;    /* path of the layer that the user's op is of; "": none was said */
  const char *made_for; /* name of the op that a cast or a folded weight was made for; "": none */
  neap_attr_value *attrs;
  int n_in, n_out;
  neap_value_id *in, *out; /* NEAP_NO_VALUE where absent */
  /* the record's, or for control ops one per resident blob that is written */
  int n_enforced;
  neap_pair *enforced;
  unsigned effects; /* the record's, and those of the subgraphs' nodes (COMMIT, FAULT, RANDOM) */
  neap_phase phase;
  /* makes a constant, or what only such nodes read: not run again while the constants are valid
   * (constant.c) */
  bool once;
  /* EXTENT ops: their number among those of the net, from 1 in definition order; else 0 */
  int extent;
  /* how many of them stand before this node: its subnets' are numbered from there */
  int first_extent;
  /* EXTENT ops: the length that the outputs' types have, or -1 when they have their bound */
  int64_t n_found;
  /* backward nodes: the forward node of their pair (same graph, before them); else own index */
  int forward;
  uint32_t stream; /* of random numbers: index in the definition, kept by clones */
  /* of the graph's: where its scratch lies, and what it makes unless that is assigned elsewhere */
  int bank;
  bool confined; /* works on bytes of its bank alone */
  /* in a loop's body: the backward is to recompute it, rather than keep its outputs in the frame */
  bool recompute;
  /* 1 + the node that this one runs again for the backward (recompute.c); 0: none. Runs after all
   * nodes before it */
  int recomputes;
  /* 1 + the node that this Reorder was put before, or behind (lay_out.c); 0: none */
  int serves;
  /* in the body of a backward loop: runs once more what the forward's body has run */
  bool runs_again;
  int n_sub;
  neap_graph **sub;
  /* forward loops: the last subgraphs are its body, one for each of the lengths met; else 0 */
  int n_body;
  /* by body: the lengths that it is for; n 0: it has no EXTENT ops, or is for their bounds */
  neap_lengths *met;
  neap_loop *loop; /* NULL: no loop */
  neap_cost cost;
  neap_choice choice; /* after lay_out */
} neap_node;
/* Operations of the op, as its record counts them; of a loop those of all its iterations, where
 * their number is known before it runs. */
int64_t neap_node_flops(const neap_node *node);

typedef enum neap_edge_kind { NEAP_EDGE_DATA, NEAP_EDGE_ORDER } neap_edge_kind;
typedef struct neap_edge {
  int from, to; /* nodes */
  neap_edge_kind kind;
} neap_edge;

/* One rewrite of a graph that does not train (fuse.c): which ops became part of which. */
typedef struct neap_rewrite {
  const char *rule, *absorbed, *into; /* "norm", "Conv "c1", BatchNorm "n1"", "FusedConv "c1"" */
  size_t saved_bytes;                 /* of values that are no more */
} neap_rewrite;

#define NEAP_MAIN_BANK "main" /* bank 0 of every graph that has banks */

struct neap_graph {
  const char *name;
  int n_bank; /* 0: all bytes are of one kind; else bank[0] is "main" */
  const neap_bank *bank;
  int n_node, n_value, n_edge, n_output;
  neap_node *node;
  neap_value *value;
  neap_edge *edge;       /* sorted by (from, to), no duplicates */
  neap_value_id *output; /* declared outputs, or a subgraph's results in order */
  int n_param;           /* subgraphs: parameters in order */
  neap_value_id *param;
  bool train; /* holds a backward pass */
  bool step;  /* a run of it is a training step */
  bool probe; /* made to find lengths: see neap_graph_options */
  /* names of blobs that are not computed as such: each with the op that absorbed it, NULL where
   * nothing reads it */
  int n_gone;
  struct neap_gone {
    const char *name, *into;
  } * gone;
  int n_rewrite;
  neap_rewrite *rewrite;
  int cap_node, cap_value, cap_edge, cap_gone, cap_rewrite; /* growth; private to graph */
  neap_arena arena; /* owns everything above but the lists of node, value, edge, gone and rewrite */
};

void neap_graph_free(neap_graph *graph);

/* What runs again for the backward pass: nodes of the laid-out graph itself, and nodes of its
 * bodies as places in the list of neap_graph_body_nodes; both ascending. */
typedef struct neap_recomputed {
  int n_node, n_body;
  const int *node, *body;
} neap_recomputed;

/* Choices for all nodes, depth first (a node, then the nodes of its subgraphs). Plain data. */
typedef struct neap_choices {
  int n;
  neap_choice *choice;
  bool no_constants; /* what depends on parameters alone is computed in every run, in the arena */
  /* all of it is held, also what is only on the way to a constant; else that lies in the arena */
  bool hold_constants;
  neap_recomputed recomputed;
  neap_arena arena;
} neap_choices;

typedef struct neap_choose_options {
  bool force; /* only `engine`, else `ref` */
  neap_engine engine;
  int n_thread;         /* what kernels may use */
  size_t scratch_limit; /* SIZE_MAX: none */
  bool plain;           /* plain layouts only: kernels that want others are passed over */
  /* Choices for a graph of the same form with larger values (neap_graph_check_form): each node gets
   * the same engine and layouts, no more scratch, and the same algorithm where that allows it, or
   * the whole is refused with a PLAN error. NULL: free. */
  const neap_choices *like;
} neap_choose_options;

neap_status neap_graph_choose(const neap_graph *graph, const neap_choose_options *options,
                              neap_choices *out, neap_error *error);
/* What one kernel would choose for node n of a laid-out graph, without a limit of scratch: with the
 * layouts that the values have. `pair` and `like` as in neap_choose, both may be NULL. The lists of
 * the choice are in the room's arena, which must begin empty. */
neap_status neap_graph_ask(const neap_graph *graph, int n, const neap_kernel *kernel,
                           const neap_choice *pair, const neap_choice *like, neap_choices *room,
                           neap_choice *choice, bool *taken, neap_error *error);
/* The first kernel of that engine for the node's dtypes; NULL: none. */
const neap_kernel *neap_graph_kernel(const neap_graph *graph, const neap_node *node,
                                     neap_engine engine);
/* Says which nodes of the laid-out graph are to run again; copied. */
neap_status neap_choices_recompute(neap_choices *choices, const neap_recomputed *recomputed,
                                   neap_error *error);
/* Marks as changed what differs from `free`, made for the same graph: in the kernel, its threads
 * where they matter, layouts or scratch. */
void neap_choices_compare(neap_choices *choices, const neap_choices *free, const neap_graph *graph);
void neap_choices_fini(neap_choices *choices);
void neap_choices_print(const neap_choices *choices, const neap_graph *graph, neap_buffer *out);
/* What kernels don't say of a printed text: constants and recomputations, into `choices`, which the
 * kernels have made anew. PLAN error that names the first node for which the text says other than
 * they. On failure `choices` stay to be ended. */
neap_status neap_choices_recall(const char *text, const neap_graph *graph, neap_choices *choices,
                                neap_error *error);

/* Whether two graphs differ in nothing but sizes: the same ops with the same operands in the same
 * regions. GRAPH error that names the first difference. */
neap_status neap_graph_check_form(const neap_graph *graph, const neap_graph *like,
                                  neap_error *error);

/* A list of banks with their names, in the arena; NULL when memory is refused. */
neap_bank *neap_banks_copy(neap_arena *arena, int n, const neap_bank *bank);
const char *neap_bank_kind_name(neap_bank_kind kind); /* "ordinary", "huge" */
bool neap_bank_kind_from_name(const char *name, neap_bank_kind *kind);
/* Where a node wants operand v while it runs: a bank, or -1 for wherever it lies. `paired`: the
 * operand is one of an enforced pair, which is written in place. And the bank that the bytes of
 * value v lie in. */
int neap_graph_bank_wanted(const neap_graph *graph, const neap_node *node, neap_value_id v,
                           bool paired);
int neap_graph_bank_of(const neap_graph *graph, neap_value_id v);

/* The canonical text: ops in order, values numbered by first definition, no names, scopes or
 * lines. */
void neap_graph_print_canonical(const neap_graph *graph, neap_buffer *out);
/* For people: names, shapes, engines, layouts, bytes. */
void neap_graph_print(const neap_graph *graph, neap_buffer *out);
/* Readers of each value: list[first[v] .. first[v+1]) are node indices, ascending, each once.
 * Arrays from neap_alloc. */
typedef struct neap_uses {
  int *first, *list;
} neap_uses;
neap_status neap_graph_uses(const neap_graph *graph, neap_uses *out, neap_error *error);
void neap_uses_fini(neap_uses *uses);
/* The value that a blob's name stands for after a run; NEAP_NO_VALUE when unknown. */
neap_value_id neap_graph_find(const neap_graph *graph, const char *name);
/* The entry of `gone` for a name; NULL when it has none. */
const struct neap_gone *neap_graph_find_gone(const neap_graph *graph, const char *name);
/* The batch: rows of its first input that has dimensions; 1 when there is none. */
int64_t neap_graph_batch(const neap_graph *graph);
/* Length of "x" in the label "x.grad"; 0: it is no gradient's label. */
size_t neap_gradient_stem(const char *label);

/* Whether a run of the node may find that it can't go on: by its data, or as memory for its frames
 * is refused. */
bool neap_node_may_stop(const neap_node *node);
/* Whether such a node, or a part of it, stands behind one that commits: a run that fails may then
 * have committed, some or all of it. */
bool neap_graph_stops_late(const neap_graph *graph);

/* Library values (x.reorder, stash) included, total bytes of the given region, each root once,
 * aligned. STATE: with copies of what a graph that stops late writes, from which a failed run is
 * put back. FRAME: bytes an iteration of the loops whose frames grow at run time. */
size_t neap_graph_region_bytes(const neap_graph *graph, neap_region region);

#endif
