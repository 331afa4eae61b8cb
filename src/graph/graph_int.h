/* graph_int.h: what the files of src/graph share. Nobody else includes it. */
#ifndef NEAP_GRAPH_INT_H
#define NEAP_GRAPH_INT_H

#include "graph/graph.h"

/* What a graph and its subgraphs have so far, those of gradients too. */
typedef struct neap_build_count {
  int n_node, n_sub;
  size_t bytes; /* of values, each aligned; saturates */
} neap_build_count;

/* What an unknown length is taken for: see branch.c. */
typedef enum build_trial { BUILD_NO_TRIAL, BUILD_BOUND, BUILD_ONE } build_trial;

/* A graph under construction. `env` maps an interned blob name to the value it stands for at this point. */
typedef struct neap_builder {
  neap_graph *graph;
  const neap_net *net;
  const neap_graph_options *options;
  bool rewrite;
  bool is_top;             /* no subnet: blobs of these names can be kept */
  bool no_commits;         /* a subnet's forward repeated for its gradient: commits are left out */
  bool is_sub;             /* of a subnet */
  bool in_loop;            /* of a loop's body or condition, or of a subnet in one */
  bool in_body;            /* of the body of a loop in no other one, or of a branch in it: EXTENT ops may stand there */
  const neap_lengths *met; /* then: the lengths that the body is for; NULL: their bounds */
  bool finds;              /* a body or branch for unknown lengths: no more than what finds some of them */
  build_trial trial;       /* of unknown lengths, in a graph that is looked at and not run; subgraphs' is their owner's */
  int open;                /* 1 + the If built last that gives nobody knows what; 0: none */
  bool assigns;            /* what writes a declared name becomes the blob: build_assign.c */
  bool all_outputs;        /* a backward may read any output of the record, named by the user or not */
  neap_phase phase;        /* of the nodes being added */
  int forward;             /* while a gradient is emitted: the node being differentiated; else -1 */
  int n_recompute;         /* a loop's body: net ops that its backward repeats */
  const int64_t *recompute;
  uint32_t *stream;        /* next stream of random numbers; shared with subgraphs */
  int *n_extent;           /* EXTENT ops so far; likewise */
  neap_build_count *count; /* likewise */
  neap_map env;
  neap_map stored;        /* build_assign.c */
  neap_error *emit_error; /* sticky while grad functions emit */
  neap_status emit_status;
} neap_builder;

/* graph.c */
neap_graph *graph_new(const char *name);
int graph_add_value(neap_graph *graph, const char *name, const neap_type *type); /* -1: memory refused */
int graph_add_node(neap_graph *graph, const neap_op *op, int n_in, int n_out);   /* ids are the caller's to set; -1: refused */
bool graph_add_gone(neap_graph *graph, const char *name, const char *into);
bool graph_add_rewrite(neap_graph *graph, const neap_rewrite *rewrite); /* texts in the graph's arena, or constant */
/* Copies one record's worth of attribute values, lists included. NULL when refused. */
neap_attr_value *graph_copy_attrs(neap_graph *graph, const neap_op *op, const neap_attr_value *attrs);
/* "Conv "net/conv1": " in front of inner's message, op, scope and line filled; into error. Returns inner's code. */
neap_status graph_locate(neap_error *error, const neap_error *inner, const char *type, const char *name, const char *scope,
                         const char *line);
neap_status graph_no_memory(neap_error *error);

/* build_value.c */
void build_fini(neap_builder *b); /* the maps; the graph is the caller's */
/* Room for n values in the graph's arena; NULL when refused. */
neap_value_id *build_ids(neap_builder *b, int n);
neap_region build_region_of(neap_role role);
/* The value a name stands for now; a declared blob becomes a value at its first mention. NAME error when nothing gave it one. */
neap_status build_value_of(neap_builder *b, const char *name, neap_value_id *out, neap_error *error);
/* Whether an op may write the value's own storage: it is resident, or a parameter of a subnet whose owner writes it. */
bool build_is_writable(const neap_value *value);
/* Counts values' bytes, a node or a subgraph; GRAPH error above the ceilings of base/size.h. */
neap_status build_count(neap_builder *b, int n_node, int n_sub, size_t bytes, neap_error *error);
/* Before something is emitted: its status is fine so far, and this gets its error. NEAP_TRY(b->emit_status) comes after. */
void build_begin_emit(neap_builder *b, neap_error *error);
neap_grad build_emitter(neap_builder *b); /* the context through which an op's grad, or graph itself, adds nodes to b */
/* A Constant of `type`, and a Copy; NEAP_NO_VALUE, with the builder's sticky status, when they fail. */
neap_value_id build_constant(neap_builder *b, neap_type type, double value);
neap_value_id build_emit_copy(neap_builder *b, neap_value_id v);

/* build_node.c */
typedef struct neap_node_spec {
  const neap_op *op;
  neap_attr_value *attrs; /* in the graph's arena */
  int n_in, n_out;
  const neap_value_id *in;
  const char *const *out_name;              /* labels; NULL list or entry: made up */
  const char *name, *scope, *line, *device; /* device NULL: none */
  const char *const *in_blob;               /* control ops: names of the operands, to match those written; else NULL */
} neap_node_spec;
enum { BUILD_FIRST_CAPTURE = 1 }; /* of an If: its condition comes first, which no branch takes */
/* The operand that output k of a control op is the next version of, -1: none. It has the output's name and is resident, and what an
 * iteration or branch gives as k replaces it there: the initial value of a loop's state k, or a capture of an If. */
int build_version_source(const neap_graph *graph, const neap_node_spec *spec, int k);
/* Adds a node with its output values, inferred. *node gets its index. */
neap_status build_node(neap_builder *b, const neap_node_spec *spec, int *node, neap_error *error);

/* What an enforced pair of the node writes is the next version of what it reads. */
void build_take_versions(neap_graph *graph, int node);

/* build_assign.c. From here on the name means value v, which the blob is to become where it is declared. */
neap_status build_bind(neap_builder *b, const char *name, neap_value_id v, neap_error *error);
/* Makes the newest values of all declared names lie in the blobs' bytes. */
neap_status build_assign_all(neap_builder *b, neap_error *error);

/* build_op.c. One op of a net with what it writes bound in the environment; Gradient, Do and scopes are expanded. Its names mean what the
 * environment says; net ops from `next_op` on are still to come. */
neap_status build_op(neap_builder *b, const neap_net_op *op, int next_op, neap_error *error);
/* Node of this name, the newest first; -1: none. */
int build_find_node(const neap_graph *graph, const char *name);
/* All ops of the builder's net, then rewrites. */
neap_status build_ops(neap_builder *b, neap_error *error);
/* The values that the op's inputs stand for now, in the graph's arena; NEAP_NO_VALUE where an optional input is absent. */
neap_status build_read_names(neap_builder *b, const neap_net_op *op, neap_value_id **out, neap_error *error);
/* A blob `to` that is a Copy of what `from` stands for now. */
neap_status build_copy(neap_builder *b, const char *from, const char *to, neap_error *error);

/* build_gradient.c: a Gradient op. Net ops from `next_op` on are still to come. */
neap_status build_gradient(neap_builder *b, const neap_net_op *op, int next_op, neap_error *error);

/* build_probe.c: whether an op is no part of a probe; leaving it out; and names whose size is not known, so that what reads them
 * is left out too. */
enum { BUILD_UNKNOWN = -2 }; /* in the environment: the name stands for something whose size is not known yet */
bool build_probe_skips(const neap_builder *b, const neap_net_op *op);
neap_status build_probe_skip(neap_builder *b, const neap_net_op *op, neap_error *error);
neap_status build_probe_unknown(neap_builder *b, const neap_net_op *op, neap_error *error);

/* build_sub.c. A subgraph of owner's operands. net NULL: identity, results are the parameters named like the outputs. */
typedef struct neap_sub_spec {
  const neap_net *net;
  int n_in; /* parameters: types, and names for the identity */
  const neap_type *in_type;
  const char *const *in_name;
  const int *in_argument; /* owner's operand position of each */
  int n_out;
  const char *const *out_name; /* owner's outputs, for the identity */
  const int *out_argument;     /* owner's operand position (n_in + k); or that of the input it is a version of */
  /* Gradient of the subnet: n_seed pairs (result index, parameter that holds its gradient); results are the gradients
   * of the parameters `wrt`. n_seed 0: a plain subgraph. Parameters behind the net's own have no name. */
  int n_seed, n_wrt;
  const int *seed_result, *seed_param, *wrt;
  bool in_loop;            /* run once an iteration */
  bool is_body;            /* in_loop: the body, not the condition */
  const neap_lengths *met; /* is_body: see neap_builder */
  const neap_type *result; /* a body or branch of which lengths are unknown: types that results of unknown size stand in with */
  bool is_open;            /* then: all of them do, whatever is known */
  build_trial trial;       /* see neap_builder */
  bool is_blank;           /* with n_seed: no more than zeros, which arrive everywhere */
  bool *flows;             /* by wrt, may be NULL: set where a gradient arrives; where none does the result is zeros */
  int n_recompute;         /* net ops, 0-based */
  const int64_t *recompute;
} neap_sub_spec;
neap_status build_sub(neap_builder *outer, const neap_sub_spec *spec, neap_graph **out, neap_error *error);

/* A body with its backward behind it in one graph, not finished: what a loop's gradient cuts in two (loop_gradient.c). */
typedef struct neap_joint {
  neap_builder builder;  /* with graph; fini with build_joint_fini */
  int n_forward;         /* nodes of the forward */
  neap_value_id *result; /* the body's results, not placed */
  neap_value_id *grad;   /* by wrt; NEAP_NO_VALUE where nothing flows */
} neap_joint;
/* The builder's stream is spec's caller's affair; it may be changed between build and fini. */
neap_status build_joint(neap_builder *outer, const neap_sub_spec *spec, neap_joint *out, neap_error *error);
void build_joint_fini(neap_joint *joint);
/* Makes value v result k of the builder's graph, lying at argument number `argument` of the owner. */
neap_status build_result(neap_builder *b, int argument, neap_value_id v, neap_error *error);

/* build.c. Whether the caller wants a blob of this name to have bytes of its own. */
bool build_is_kept(const neap_builder *b, const char *name);
/* gradient.c: emits the backward of `n_seed` values, whose gradients are given, with respect to n_wrt values. dwrt[i] is
 * NEAP_NO_VALUE where nothing flows. */
neap_status graph_gradient(neap_builder *b, int n_seed, const neap_value_id *seed, const neap_value_id *dseed, int n_wrt,
                           const neap_value_id *wrt, neap_value_id *dwrt, neap_error *error);
/* control_gradient.c */
neap_status graph_gradient_if(neap_builder *b, int node, const neap_value_id *dout, const bool *want, neap_value_id *din,
                              neap_error *error);

/* do.c: a Do's body in the graph's own ops; and whether a Do from `next_op` on works in the frame that `name` is a local of. */
neap_status graph_expand_do(neap_builder *b, const neap_net_op *op, neap_error *error);
bool graph_do_may_read(const neap_builder *b, const char *name, int next_op);
/* loop.c: what the runner must know of a loop, from the record's attributes and the subgraphs. No frames yet. */
neap_status graph_make_loop(neap_graph *graph, int node, neap_error *error);
/* loop_body.c. The subgraphs of a loop's body, `spec` without lengths: one, or where lengths depend on data one for each that was
 * met. Sets the node's list of subgraphs from `subnet` on, and the lengths of each. */
neap_status graph_build_bodies(neap_builder *b, int node, int subnet, neap_sub_spec *spec, neap_error *error);
/* branch.c. Whether a length is unknown of an op that runs whenever the subnet does, or of both branches of an If in it; one in a loop
 * or in one branch is looked for when that is run. Of `n` lengths the subnet's begin at *at, which is moved behind them. */
bool graph_is_partial(const neap_net *net, const int64_t *length, int n, int *at);
/* The same of a branch that the builder is about to build: true where that can't be more than what finds its lengths. NULL: false. */
bool build_is_partial(const neap_builder *b, const neap_net *net);
/* Streams of random numbers that a branch takes, whatever it finds; 0: as many as it has nodes. */
uint32_t build_branch_streams(const neap_builder *b, const neap_net *net);
/* build_sub for lengths that are unknown: bounds, or ones where those don't go together. A backward that neither suits is zeros. */
neap_status build_try(neap_builder *b, neap_sub_spec *spec, neap_graph **out, neap_error *error);
/* An integer attribute by name; 0 where the record has none of it. */
int64_t graph_attr_int(const neap_node *node, const char *name);
neap_loop *graph_copy_loop(neap_arena *arena, const neap_loop *loop); /* NULL when refused */
bool graph_own_met(neap_graph *graph,
                   neap_node *node); /* its bodies' lengths copied into the graph's arena; false when refused */
/* The first `n_node` nodes of an unfinished graph once more, subgraphs included, all values with their ids. NULL when refused. */
neap_graph *graph_clone(const neap_graph *graph, int n_node);
/* loop_gradient.c */
neap_status graph_gradient_loop(neap_builder *b, int node, const neap_value_id *dout, const bool *want, neap_value_id *din,
                                neap_error *error);
/* The backward of a loop of this graph as an op of a net says it: the inputs are a gradient for each result of the loop, then what
 * else the backward reads; the node is the last one then. */
neap_status graph_build_loop_gradient(neap_builder *b, const neap_net_op *op, neap_error *error);

/* rewrite.c: engine-free rewrites over the nodes so far; net ops from `next_op` on are still to come. */
neap_status graph_rewrite(neap_builder *b, int next_op, neap_error *error);

/* fuse.c: rewrites a built top-level graph that does not train, roles assigned, before it is finished. */
neap_status graph_fuse(neap_builder *b, neap_error *error);

/* constant.c: gives the values of a laid-out top-level graph that depend on nothing but parameters and state the graph does
 * not write region CONSTANT; those on the way to others only if `all`. */
neap_status graph_mark_constants(neap_graph *graph, bool all, neap_error *error);

/* bank.c. Whether ops of these labels work in one bank; without a label in main. */
bool graph_same_bank(const char *label, const char *other);
/* bank.c: which bank the nodes and values of a finished top-level graph belong to. ARGUMENT for banks that contradict themselves; GRAPH
 * for an op or blob of a bank that is not there, and for an op in a subnet that is of another bank than the op around it. */
neap_status graph_assign_banks(neap_graph *graph, const neap_net *net, const neap_graph_options *options, neap_error *error);

/* finish.c: commits last, dead nodes and values out, values in order of definition, edges. `by_op`: nodes stay. */
neap_status graph_finish(neap_graph *graph, bool by_op, neap_error *error);
neap_status graph_make_edges(neap_graph *graph, neap_error *error);

/* check.c, where NEAP_DEBUG is on: nodes and values of a graph whose edges may not be there yet; with its edges; and what laying out
 * adds to that. */
void graph_check_nodes(const neap_graph *graph);
void graph_check(const neap_graph *graph);
void graph_check_laid_out(const neap_graph *graph);

/* ---- asked.c: what kernels have answered in one choosing ------------------------------------------------------------------ */

typedef struct graph_asked {
  struct graph_answer **bucket;
  neap_buffer question; /* that is being asked */
  neap_arena arena;
} graph_asked;
/* As neap_kernel_choose, but for questions asked before. `forward`: the node that ask->pair is of. False: memory was refused. */
bool graph_ask(graph_asked *asked, const neap_kernel *kernel, neap_choose *ask, const neap_node *forward, bool *taken);
void graph_asked_fini(graph_asked *asked);

#endif
