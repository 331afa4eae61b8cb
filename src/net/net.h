/* net: what the user wrote: ops over named blobs, in definition order. Names only; no shapes are
 * inferred here.
 *
 * A name may be written more than once (SSA is graph's business). An op may own subnets, nets whose
 * free names refer to the outer net. INVARIANT: a net that can be reached from outside is always
 * well formed: every op has passed its schema (arity, attributes, in-place pairs, inputs defined
 * before); a failed call leaves the net as it was. All names are interned. Lists and attributes
 * live in the net's arena and die with it.
 */
#ifndef NEAP_NET_H
#define NEAP_NET_H

#include "ops/op.h"

/* What users call, the structs included, is declared in neap.h and neap/net.h. */

neap_status neap_net_new(const char *name, neap_net **out, neap_error *error);
/* Says that blob `name`, made by an op, holds the gradient of blob `of`: what an expanded net knows
 * of its backward pass. With `resident` its role becomes GRADIENT: it has bytes of its own, as the
 * gradient of a parameter has. */
neap_status neap_net_set_gradient(neap_net *net, const char *name, const char *of, bool resident,
                                  neap_error *error);
/* Whether a run of the net is a training step, which random ops draw by: it holds a gradient of
 * what it is given. One of values that its own ops have made, as neap.grad in a forward has, is a
 * part of what is computed, and nothing is trained by it. */
bool neap_net_is_step(const neap_net *net);
/* How often a mark of the net, or of one around it, has taken something back. */
uint64_t neap_net_n_rewinds(const neap_net *net);

/* Appends a Gradient op: inputs loss and n_wrt blobs, outputs `grads` (NULL entries: named
 * "<blob>_grad"). The gradient blob of a PARAMETER has role GRADIENT. */
neap_status neap_net_add_gradient(neap_net *net, const char *loss, int n_wrt,
                                  const char *const *wrt, const char *const *grads,
                                  const char *line, neap_error *error);
/* The same; with allow_unused false, a blob that the loss does not depend on is an error of the
 * graph, not zeros. */
neap_status neap_net_add_gradient_of(neap_net *net, const char *loss, int n_wrt,
                                     const char *const *wrt, const char *const *grads,
                                     bool allow_unused, const char *line, neap_error *error);

/* NAME error unless `text` can be a name: see name.c. `what` is "blob", "op", "scope", "net",
 * "bank". */
neap_status neap_net_check_name(const char *what, const char *text, neap_error *error);

/* Reading. Pointers live as long as the net is unchanged. */
const char *neap_net_name(const neap_net *net);
/* Effects of the ops in the op's subnets, at any depth. */
unsigned neap_net_sub_effects(const neap_net_op *op);
/* NAME error: `who` (a prefix, may be "") needs blob `name`, which is undefined or freed; with the
 * nearest name that exists. */
neap_status neap_net_fail_undefined(const neap_net *net, const char *who, const char *name,
                                    neap_error *error);
/* The readable name nearest to `name`, of those that can be seen from `net`; NULL when none is
 * near. */
const char *neap_net_nearest(const neap_net *net, const char *name);
const neap_net *neap_net_outer(const neap_net *net);
/* The op at which a net, subnets written out wherever ops name them, gets larger than
 * NEAP_MOST_NODES and NEAP_MOST_SUBNETS allow; NULL: it does not. And the GRAPH error that says so,
 * with `who` in front. */
const neap_net_op *neap_net_too_large_at(const neap_net *net);
neap_status neap_net_fail_too_many(const char *who, neap_error *error);
/* Streams of random numbers that the op takes: its own, then one for each op of its subnets. A net
 * that runs begins with the first. */
enum { NEAP_NET_FIRST_STREAM = 1 };
uint32_t neap_net_n_streams(const neap_net_op *op);
/* What blob `inner` of a Do's body is called around it (scope.c), interned: the outer blob it is
 * bound to, else "SCOPE.FRAME/inner". NULL when memory is refused. */
const char *neap_net_do_name(const neap_net_op *op, const char *inner);
/* Position of the body among a Do's attributes, and whether it keeps copies of what it reads from
 * outside. */
const neap_net *neap_net_do_body(const neap_net_op *op);
bool neap_net_do_copies(const neap_net_op *op);
/* "SCOPE.FRAME/inner", whether or not it is bound as well. */
const char *neap_net_do_local(const neap_net_op *op, const char *inner);
/* The outer blob that `inner` is bound to, or NULL; *output says whether the Do writes it. */
const char *neap_net_do_outer(const neap_net_op *op, const char *inner, bool *output);

/* Attributes of one op outside a net: one value per record attribute, defaults filled in, lists
 * copied, all in `arena`; the same checks and messages as in a net. `who` is their prefix. */
neap_status neap_attrs_fill(neap_arena *arena, const neap_op *op, const neap_set *set,
                            const char *who, neap_attr_value **out, neap_error *error);

/* The given attributes of an op as a list for replaying; from neap_alloc, ended by name NULL. NULL
 * when refused. `skip` leaves out what declare derives from the type. */
neap_set *neap_net_given(const neap_net_op *op, bool skip_derived);

/* Text form (text.c): reads back to an equal net. With `lines`, scope and line of each op are in
 * it. */
void neap_net_print(const neap_net *net, bool lines, neap_buffer *out);
neap_status neap_net_read(const char *text, neap_net **out, neap_error *error);
/* Appends lines of that form (all but "net NAME"), each by itself: after an error the lines before
 * it are part of the net. */
neap_status neap_net_read_lines(neap_net *net, const char *text, neap_error *error);

/* neap_net_rename, of neap.h, and more (rename.c). */
/* A name that is local to one subnet, and what it is called there: reaches the subnets inside, and
 * no other. */
typedef struct neap_local_rename {
  const neap_net *sub;
  const char *from, *to; /* interned */
} neap_local_rename;
/* What else may differ in a copy of a net. Zero: nothing. The copy's outputs are said, not left to
 * what nobody reads. */
typedef struct neap_net_edit {
  int n_rename;
  const char *const *from, *const *to; /* blobs, as in neap_net_rename */
  int n_local;
  const neap_local_rename *local;
  const int *order; /* n_ops positions: copy[i] = net[order[i]]; NULL: as they are */
  /* by op of `net`: the random stream it remembers from here on; 0: as it is. NULL: all as they
   * are */
  const uint32_t *stream;
  int n_free;
  const char *const *freed; /* blobs, by their old names: one Free of freed[i] .. */
  const int *free_after;    /* .. directly after the op at this position of `net` */
} neap_net_edit;
neap_status neap_net_copy_edited(const neap_net *net, const neap_net_edit *edit, neap_net **out,
                                 neap_error *error);

/* Splits a net with a Gradient op in two (split.c), both owned by the caller. `micro` computes one
 * micro-batch and adds each parameter's gradient, times input NEAP_MICRO_WEIGHT, to an accumulator
 * that is called as the gradient is in `net`; where input NEAP_MICRO_KEEP is 0 the sum begins anew.
 * `update` reads the accumulators as gradients: whatever follows from gradients is there, clipping,
 * update ops, schedules. It counts its runs in state NEAP_MICRO_STEPS. Outputs stay with the
 * micro-batch, unless they follow from gradients. GRAPH error that names the op for one that reads
 * both gradients and what depends on the batch. */
#define NEAP_MICRO_WEIGHT "micro.weight" /* f32 scalar: the share of this micro-batch */
#define NEAP_MICRO_KEEP "micro.keep" /* f32 scalar: 0 in the first micro-batch of a step, else 1 */
#define NEAP_MICRO_STEPS "micro.steps" /* f64 scalar */
neap_status neap_net_split_micro(const neap_net *net, neap_net **micro, neap_net **update,
                                 neap_error *error);
/* What neap_net_split_hold's nets read and hold. */
#define NEAP_MICRO_KEPT "micro.kept"   /* f32 scalar: the share of what is held */
#define NEAP_MICRO_ADDED "micro.added" /* f32 scalar: that of the batch */
#define NEAP_HELD_PREFIX "@held/"

/* A new net that computes what a training net's layers compute when they do not train (part.c):
 * attributes `training` are false, a norm reads the statistics that its RunningAverage ops keep,
 * and ops that write state are gone. NAME error for a norm that keeps none. A net with a backward
 * pass is a GRAPH error, and so is one that trains and has subnets. */
neap_status neap_net_evaluation(const neap_net *net, neap_net **out, neap_error *error);

/* Comparing two nets by what flows where (compare.c). `where` (may be NULL) gets a sentence about
 * the first difference. Names of what ops make do not count, so that a renaming which keeps the
 * meaning is equal; declared blobs are themselves. */
neap_status neap_net_same_graph(const neap_net *a, const neap_net *b, bool *same,
                                neap_buffer *where, neap_error *error);
/* Whether the net computes the same when its ops run in another order: every op reads what it read,
 * subnets included, and what stays in the end is written by the same ops. order[i] is the op that
 * runs as number i; each is there once. */
neap_status neap_net_same_in_order(const neap_net *net, const int *order, bool *same,
                                   neap_buffer *where, neap_error *error);
/* Op by op, the same inputs and outputs are one blob. */
bool neap_net_same_in_place(const neap_net *a, const neap_net *b, neap_buffer *where);

#endif
