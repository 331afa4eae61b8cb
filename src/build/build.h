/* build: net to graph, gradient included. One door, neap_build; behind it files may call each other
 * in a circle, because an If has branches that are nets, whose gradient is another If.
 *
 * What changes a graph while it is built is given to the door as a list of passes (src/rewrite has
 * them): building itself only says when each runs. A pass sees the builder through the functions
 * below.
 *
 * INVARIANT: engines are not looked at.
 */
#ifndef NEAP_BUILD_H
#define NEAP_BUILD_H

#include "graph/graph.h"

/* A resident blob whose bytes lie in a bank. */
typedef struct neap_home {
  const char *name, *bank;
} neap_home;

/* One half of a layer, which is a net without a gradient: its forward, whose outputs are the net's
 * and then what crosses, or its backward, whose inputs are the gradient that arrives and what
 * crosses, and whose outputs are the gradients (half.c). */
typedef struct neap_half {
  bool backward;
  const char *output, *d_output; /* the blob whose gradient arrives, and the gradient's name */
  int n_wrt;
  /* blobs, and the names of their gradients; zeros where none arrives */
  const char *const *wrt, *const *grad;
  /* gradients that others have begun, to which these are added; NULL list or entry: none. Of a half
   * the sum is f32: `begins` makes it of this gradient alone, and `rounded` is the name of what it
   * is rounded to behind the last term. */
  const char *const *sum, *const *rounded;
  const bool *begins;
  const char *prefix; /* of the names of what crosses and is no blob of the net; NULL: none */
  /* added to random streams: layers of one step draw different numbers */
  uint32_t stream;
} neap_half;

typedef struct neap_graph_options {
  int n_input; /* input types that replace the declared ones (another batch) */
  const neap_input *input;
  int n_keep; /* blobs to make resident */
  const char *const *keep;
  /* in a net that trains: kept as well, with the scalars that they are made of, and the gradients
   * that flow to both */
  int n_loss;
  const char *const *loss;
  /* blobs whose gradients are kept, zero where none flows; not of what has no floats */
  int n_diff;
  const char *const *diff;
  /* mixed precision: BF16 or F16; NONE: dtypes are as the net has them (mixed.c) */
  neap_dtype dtype;
  bool keep_all; /* every named blob is resident: policy for debugging */
  int n_extent;  /* lengths of EXTENT ops by their number; -1, and all beyond: unknown */
  const int64_t *extent;
  /* only what finds unknown lengths: EXTENT ops and what leads to them, as far as it depends on no
   * unknown one */
  bool probe;
  /* lengths met in the bodies of loops, which get a body for each; where n_extent is 0 there is
   * one, for their bounds */
  int n_met;
  const neap_lengths *met;
  int n_bank; /* memory banks that ops and blobs may be assigned to */
  const neap_bank *bank;
  int n_home; /* resident blobs that lie in one; all others lie in main */
  const neap_home *home;
  bool no_rewrite;
  bool no_fuse; /* without the rewrites that only graphs which do not train get */
  /* and with the one that trades time for memory: pooling as part of the convolution before it */
  bool fuse_pool;
  /* Node n is op n of the net: nothing is rewritten, dead ops stay, commits stay where they are.
   * The net has no Gradient op. */
  bool by_op;
  /* NULL: the whole net. A backward half takes stashes, whose bytes the forward's kernels chose, in
   * the types that `input` gives them. GRAPH error for a backward that reads state as it was
   * before the forward wrote it. */
  const neap_half *half;
} neap_graph_options;

/* ---- passes ---------------------------------------------------------------------------------- */

typedef struct neap_builder neap_builder; /* a graph under construction */

typedef enum neap_pass_when {
  /* on the nodes so far of a net or subnet, before their gradient is taken, and when all ops are
   * built */
  NEAP_PASS_FORWARD,
  /* on a top-level graph that does not train, roles assigned, before it is finished */
  NEAP_PASS_INFERENCE
} neap_pass_when;

typedef struct neap_pass {
  const char *name; /* NULL ends a list */
  neap_pass_when when;
  /* Net ops from `next_op` on are still to come, and may read what is there. */
  neap_status (*run)(neap_builder *b, int next_op, neap_error *error);
} neap_pass;

neap_graph *neap_builder_graph(neap_builder *b);
const neap_net *neap_builder_net(const neap_builder *b);
const neap_graph_options *neap_builder_options(const neap_builder *b);
/* Whether a value may vanish: nobody keeps it, names it as an output, or reads it in an op from
 * `next_op` on. */
bool neap_builder_may_go(const neap_builder *b, neap_value_id v, int next_op);
/* Adds an op behind all others, as neap_grad_emit does. On failure nothing sticks. */
neap_status neap_builder_emit(neap_builder *b, const char *type, int n_in, const neap_value_id *in,
                              int n_out, neap_value_id *out, const neap_grad *inherit,
                              const neap_set *set, neap_error *error);

/* ---- the door -------------------------------------------------------------------------------- */

/* Net to graph: SSA, inference, gradient, dead ops, edges. `passes` may be NULL: as it is
 * written. */
neap_status neap_build(const neap_net *net, const neap_graph_options *options,
                       const neap_pass *passes, neap_graph **out, neap_error *error);

/* EXTENT ops of a net, those of its Do bodies included. */
int neap_graph_count_extents(const neap_net *net);
/* in_loop[n], as many as there are: whether EXTENT op n stands in the body of a loop, so that each
 * iteration finds a length. */
void neap_graph_mark_loop_extents(const neap_net *net, bool *in_loop);
/* The graph, backward and all, as a net again: every value a blob (net:expand). `from` is the net
 * it was made of: what its declarations say of initial values. Roles, devices, what is whose
 * gradient and random streams come along. Subgraphs become subnets; only the backward of a loop has
 * none: it is made again of the loop that it names. */
neap_status neap_graph_to_net(const neap_graph *graph, const neap_net *from, neap_net **out,
                              neap_error *error);

#endif
