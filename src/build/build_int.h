/* build_int.h: what the files of src/build share. Nobody else includes it. */
#ifndef NEAP_BUILD_INT_H
#define NEAP_BUILD_INT_H

#include "build/build.h"
#include "graph/change.h"

/* What a graph and its subgraphs have so far, those of gradients too. */
typedef struct neap_build_count {
  int n_node, n_sub;
  size_t bytes; /* of values, each aligned; saturates */
} neap_build_count;

/* What an unknown length is taken for: see branch.c. */
typedef enum build_trial { BUILD_NO_TRIAL, BUILD_BOUND, BUILD_ONE } build_trial;

/* A graph under construction. `env` maps an interned blob name to the value it stands for at this
 * point. */
struct neap_builder {
  neap_graph *graph;
  const neap_net *net;
  const neap_graph_options *options;
  const neap_pass *passes; /* NULL: none */
  bool is_top;             /* no subnet: blobs of these names can be kept */
  bool no_commits; /* a subnet's forward recomputed for its gradient: what it writes are copies */
  bool is_sub;     /* of a subnet */
  bool in_loop;    /* of a loop's body or condition, or of a subnet in one */
  /* of the body of a loop in no other one, or of a branch in it: EXTENT ops may stand there */
  bool in_body;
  const neap_lengths *met; /* then: the lengths that the body is for; NULL: their bounds */
  /* a body or branch for unknown lengths: no more than what finds some of them */
  bool finds;
  /* of unknown lengths, in a graph that is looked at and not run; subgraphs' is their owner's */
  build_trial trial;
  int open;     /* 1 + the If built last that gives nobody knows what; 0: none */
  bool assigns; /* what writes a declared name becomes the blob: assign.c */
  /* a backward may read any output of the record, named by the user or not */
  bool all_outputs;
  neap_phase phase; /* of the nodes being added */
  int forward;      /* while a gradient is emitted: the node being differentiated; else -1 */
  int after; /* then, while there is no forward: the node that emitted ones are called after */
  int n_recompute; /* a loop's body: net ops that its backward recomputes */
  const int64_t *recompute;
  uint32_t stream;         /* of random numbers, of the net's next op */
  uint32_t first_stream;   /* of the net's first one */
  uint32_t n_drawn;        /* emitted nodes that draw, so far */
  int *n_extent;           /* EXTENT ops so far; shared with subgraphs */
  neap_build_count *count; /* likewise */
  neap_map *kept;          /* likewise: names to keep; keep.c */
  neap_map env;
  neap_map stored;           /* assign.c */
  struct build_mixed *mixed; /* by value: mixed.c */
  int cap_mixed;
  neap_error *emit_error; /* sticky while grad functions emit */
  neap_status emit_status;
};

/* pass.c: the builder's passes of that time. */
neap_status build_run_passes(neap_builder *b, neap_pass_when when, int next_op, neap_error *error);

/* check.c: in builds with NEAP_DEBUG, what must hold. Behind the last assignment; once roles are
 * given; of a finished subgraph; of a cut; of a backward half, whose first nodes are the
 * forward's. */
struct neap_sub_spec;
struct build_cut;
void build_check_names(const neap_builder *b);
void build_check_roles(const neap_graph *graph);
void build_check_sub(const neap_graph *sub, const struct neap_sub_spec *spec);
void build_check_cut(const neap_graph *joint, const struct build_cut *cut);
void build_check_backward(const neap_graph *half, int n_forward);

/* value.c */
void build_fini(neap_builder *b); /* the maps; the graph is the caller's */
/* Room for n values in the graph's arena; NULL when refused. */
neap_value_id *build_ids(neap_builder *b, int n);
neap_region build_region_of(neap_role role);
/* The type that the options give the blob in place of another one; NULL: none. */
const neap_type *build_given_type(const neap_builder *b, const char *name);
/* The value a name stands for now; a declared blob becomes a value at its first mention. NAME error
 * when nothing gave it one. */
neap_status build_value_of(neap_builder *b, const char *name, neap_value_id *out,
                           neap_error *error);
/* Whether an op may write the value's own storage: it is resident, or a parameter of a subnet whose
 * owner writes it. */
bool build_is_writable(const neap_value *value);
/* Counts values' bytes, a node or a subgraph; GRAPH error above the ceilings of base/size.h. */
neap_status build_count(neap_builder *b, int n_node, int n_sub, size_t bytes, neap_error *error);
/* Before something is emitted: its status is fine so far, and this gets its error.
 * NEAP_TRY(b->emit_status) comes after. */
void build_begin_emit(neap_builder *b, neap_error *error);
/* the context through which an op's grad, or graph itself, adds nodes to b */
neap_grad build_emitter(neap_builder *b);
/* A Constant of `type`, and a Copy; NEAP_NO_VALUE, with the builder's sticky status, when they
 * fail. */
neap_value_id build_constant(neap_builder *b, neap_type type, double value);
neap_value_id build_emit_copy(neap_builder *b, neap_value_id v);

/* node.c */
typedef struct neap_node_spec {
  const neap_op *op;
  neap_attr_value *attrs; /* in the graph's arena */
  int n_in, n_out;
  const neap_value_id *in;
  const char *const *out_name;              /* labels; NULL list or entry: made up */
  const char *name, *scope, *line, *device; /* device NULL: none */
  const char *layer, *made_for;             /* NULL: nothing said */
  uint32_t stream;                          /* those of its subnets' ops follow */
  /* control ops: names of the operands, to match those written; else NULL */
  const char *const *in_blob;
} neap_node_spec;
enum { BUILD_FIRST_CAPTURE = 1 }; /* of an If: its condition comes first, which no branch takes */
/* The operand that output k of a control op is the next version of, -1: none. It has the output's
 * name and is resident, and what an iteration or branch gives as k replaces it there: the initial
 * value of a loop's state k, or a capture of an If. */
int build_version_source(const neap_graph *graph, const neap_node_spec *spec, int k);
/* Adds a node with its output values, inferred. *node gets its index. */
neap_status build_node(neap_builder *b, const neap_node_spec *spec, int *node, neap_error *error);

/* What an enforced pair of the node writes is the next version of what it reads. */
void build_take_versions(neap_graph *graph, int node);

/* assign.c. From here on the name means value v, which the blob is to become where it is
 * declared. */
neap_status build_bind(neap_builder *b, const char *name, neap_value_id v, neap_error *error);
/* Makes the newest values of all declared names lie in the blobs' bytes. */
neap_status build_assign_all(neap_builder *b, neap_error *error);

/* op.c. One op of a net with what it writes bound in the environment; Gradient, Do and scopes are
 * expanded. Its names mean what the environment says; net ops from `next_op` on are still to
 * come. */
neap_status build_op(neap_builder *b, const neap_net_op *op, int next_op, neap_error *error);
/* Node of this name, the newest first; -1: none. */
int build_find_node(const neap_graph *graph, const char *name);
/* All ops of the builder's net, then rewrites. */
neap_status build_ops(neap_builder *b, neap_error *error);
/* The values that the op's inputs stand for now, in the graph's arena; NEAP_NO_VALUE where an
 * optional input is absent. */
neap_status build_read_names(neap_builder *b, const neap_net_op *op, neap_value_id **out,
                             neap_error *error);
/* A blob `to` that is a Copy of what `from` stands for now. */
neap_status build_copy(neap_builder *b, const char *from, const char *to, neap_error *error);

/* gradient_op.c: a Gradient op. Net ops from `next_op` on are still to come. */
neap_status build_gradient(neap_builder *b, const neap_net_op *op, int next_op, neap_error *error);

/* mixed.c: halves where the options ask for them. Before a node is built: what it reads in the
 * dtype that it works in. */
bool build_is_mixing(const neap_builder *b);
neap_status build_mix_inputs(neap_builder *b, const neap_node_spec *spec, neap_value_id *in,
                             neap_error *error);
/* Behind it: out[n_out] are the values that its outputs' names stand for. */
neap_status build_mix_outputs(neap_builder *b, const neap_node_spec *spec, int node,
                              neap_value_id *out, neap_error *error);
/* Results of a subnet, and the net's outputs, in f32. */
neap_status build_mix_results(neap_builder *b, int n, neap_value_id *result, neap_error *error);
neap_status build_mix_net_outputs(neap_builder *b, neap_error *error);
/* For the backward of a node: *in with casts of parameters made anew. */
neap_status build_mix_again(neap_builder *b, int node, const neap_value_id **in, neap_error *error);

/* probe.c: whether an op is no part of a probe; leaving it out; and names whose size is not known,
 * so that what reads them is left out too. */
/* in the environment: the name stands for something whose size is not known yet */
enum { BUILD_UNKNOWN = -2 };
bool build_probe_skips(const neap_builder *b, const neap_net_op *op);
neap_status build_probe_skip(neap_builder *b, const neap_net_op *op, neap_error *error);
neap_status build_probe_unknown(neap_builder *b, const neap_net_op *op, neap_error *error);

/* sub.c. A subgraph of owner's operands. net NULL: identity, results are the parameters named like
 * the outputs. */
typedef struct neap_sub_spec {
  const neap_net *net;
  int n_in; /* parameters: types, and names for the identity */
  const neap_type *in_type;
  const char *const *in_name;
  const int *in_argument; /* owner's operand position of each */
  int n_out;
  const char *const *out_name; /* owner's outputs, for the identity */
  /* owner's operand position (n_in + k); or that of the input it is a version of */
  const int *out_argument;
  /* Gradient of the subnet: n_seed pairs (result index, parameter that holds its gradient); results
   * are the gradients of the parameters `wrt`. n_seed 0: a plain subgraph. Parameters behind the
   * net's own have no name. */
  int n_seed, n_wrt;
  const int *seed_result, *seed_param, *wrt;
  bool in_loop;            /* run once an iteration */
  bool is_body;            /* in_loop: the body, not the condition */
  const neap_lengths *met; /* is_body: see neap_builder */
  /* a body or branch of which lengths are unknown: types that results of unknown size stand in
   * with */
  const neap_type *result;
  bool is_open;      /* then: all of them do, whatever is known */
  build_trial trial; /* see neap_builder */
  bool is_blank;     /* with n_seed: no more than zeros, which arrive everywhere */
  /* by wrt, may be NULL: set where a gradient arrives; where none does the result is zeros */
  bool *flows;
  int n_recompute; /* net ops, 0-based */
  const int64_t *recompute;
  uint32_t stream; /* of the net's first op: see build_sub_stream */
} neap_sub_spec;
/* The first stream of random numbers of the node's subnet number `subnet`, however often and for
 * whatever it is built. */
uint32_t build_sub_stream(const neap_node *node, int subnet);
neap_status build_sub(neap_builder *outer, const neap_sub_spec *spec, neap_graph **out,
                      neap_error *error);

/* A body with its backward behind it in one graph, not finished: what a loop's gradient cuts in two
 * (loop_gradient.c). */
typedef struct neap_joint {
  neap_builder builder;  /* with graph; fini with build_joint_fini */
  int n_forward;         /* nodes of the forward */
  neap_value_id *result; /* the body's results, not placed */
  neap_value_id *grad;   /* by wrt; NEAP_NO_VALUE where nothing flows */
} neap_joint;
neap_status build_joint(neap_builder *outer, const neap_sub_spec *spec, neap_joint *out,
                        neap_error *error);
void build_joint_fini(neap_joint *joint);
/* Makes value v result k of the builder's graph, lying at argument number `argument` of the
 * owner. */
neap_status build_result(neap_builder *b, int argument, neap_value_id v, neap_error *error);

/* cut.c: what the backward needs of the forward. */
typedef enum build_label { BUILD_DEAD, BUILD_KEEP, BUILD_RECOMPUTE } build_label;
typedef struct build_cut {
  int n_forward, n_value; /* of the joint graph: nodes before the backward's, values */
  build_label *label;     /* by value; DEAD also for what no forward node makes */
  /* by value: the backward reads it for what is wanted, or what it recomputes does; also what is
   * there before the graph runs */
  bool *read;
  bool *recompute; /* by forward node */
  /* a value that the backward reads in bytes that the forward writes again; NEAP_NO_VALUE: none */
  neap_value_id overwritten;
} build_cut;
/* `wanted`: the gradients that somebody reads; NEAP_NO_VALUE entries are passed over. Lists in the
 * graph's arena. `is_apart`: the halves are programs of their own, and choose their kernels
 * apart. */
neap_status build_cut_make(neap_graph *joint, int n_forward, int n_wanted,
                           const neap_value_id *wanted, bool is_apart, build_cut *out,
                           neap_error *error);
/* Whether the node is a loop whose frames lie on a stack, or has one in it. */
bool build_grows(const neap_node *node);
/* For the backward's half. Value v is there before it runs: its maker gets another output, which
 * nobody reads; and the forward nodes left in it change nothing that lasts, and free nothing. */
neap_status build_define_elsewhere(neap_graph *half, neap_value_id v, neap_error *error);
void build_end_forward(neap_graph *half, int n_forward);

/* half.c: leaves of the builder's graph, in which all ops of a layer are built, the half that the
 * options ask for: the forward's with what crosses, or the backward's. */
neap_status build_half(neap_builder *b, neap_error *error);

/* keep.c. Whether the caller wants a blob of this name, which is interned, to have bytes of its
 * own; and any gradient. */
bool build_is_kept(const neap_builder *b, const char *name);
bool build_keeps_gradients(const neap_builder *b);
/* Before the first op: what the options name. Before passes run, and before a gradient is taken:
 * what the losses are made of, as far as it is built. Behind the last op: gradients that are zero.
 * NAME error for a name that the net lacks. */
neap_status build_keep_listed(neap_builder *b, neap_error *error);
neap_status build_keep_terms(neap_builder *b, neap_error *error);
neap_status build_keep_zeros(neap_builder *b, neap_error *error);
neap_status build_check_keeps(const neap_builder *b, neap_error *error);
/* gradient.c: emits the backward of `n_seed` values, whose gradients are given, with respect to
 * n_wrt values. dwrt[i] is NEAP_NO_VALUE where nothing flows. */
neap_status graph_gradient(neap_builder *b, int n_seed, const neap_value_id *seed,
                           const neap_value_id *dseed, int n_wrt, const neap_value_id *wrt,
                           neap_value_id *dwrt, neap_error *error);
/* control_gradient.c */
neap_status graph_gradient_if(neap_builder *b, int node, const neap_value_id *dout,
                              const bool *want, neap_value_id *din, neap_error *error);

/* do.c: a Do's body in the graph's own ops; and whether a Do from `next_op` on works in the frame
 * that `name` is a local of. */
neap_status graph_expand_do(neap_builder *b, const neap_net_op *op, neap_error *error);
bool graph_do_may_read(const neap_builder *b, const char *name, int next_op);
/* loop_body.c. The subgraphs of a loop's body, `spec` without lengths: one, or where lengths depend
 * on data one for each that was met. Sets the node's list of subgraphs from `subnet` on, and the
 * lengths of each. */
neap_status graph_build_bodies(neap_builder *b, int node, int subnet, neap_sub_spec *spec,
                               neap_error *error);
/* branch.c. Whether a length is unknown of an op that runs whenever the subnet does, or of both
 * branches of an If in it; one in a loop or in one branch is looked for when that is run. Of `n`
 * lengths the subnet's begin at *at, which is moved behind them. */
bool graph_is_partial(const neap_net *net, const int64_t *length, int n, int *at);
/* The same of a branch that the builder is about to build: true where that can't be more than what
 * finds its lengths. NULL: false. */
bool build_is_partial(const neap_builder *b, const neap_net *net);
/* build_sub for lengths that are unknown: bounds, or ones where those don't go together. A backward
 * that neither suits is zeros. */
neap_status build_try(neap_builder *b, neap_sub_spec *spec, neap_graph **out, neap_error *error);
/* loop_gradient.c */
neap_status graph_gradient_loop(neap_builder *b, int node, const neap_value_id *dout,
                                const bool *want, neap_value_id *din, neap_error *error);
/* loop_gradient_op.c. A loop's backward as an op of a net says it: the inputs are a gradient for
 * each result of the loop, then what else the backward reads; the node is the last one then. */
neap_status graph_build_loop_gradient(neap_builder *b, const neap_net_op *op, neap_error *error);

/* bank.c: which bank the nodes and values of a finished top-level graph belong to. ARGUMENT for
 * banks that contradict themselves; GRAPH for an op or blob of a bank that is not there, and for an
 * op in a subnet that is of another bank than the op around it. */
neap_status graph_assign_banks(neap_graph *graph, const neap_net *net,
                               const neap_graph_options *options, neap_error *error);

#endif
