/* fuse_int.h: what the rewrites of inference graphs share.
 *
 * A rewrite looks at one node, the last of its pattern, and puts another op in its place: one that
 * reads what the pattern reads and defines what the last node defined. The nodes before it then
 * have no readers and die (finish.c). So the order of definition stays a valid one, except for
 * nodes that work on parameters, which are added behind and moved to the front.
 *
 * INVARIANT: a value is absorbed only when nobody can ask for it (region ARENA: no output, not
 * kept), and only the pattern reads it; its name goes to the graph's list of the gone.
 * INVARIANT: what is read later than before has one version and is not freed (fuse_is_stable).
 */
#ifndef NEAP_FUSE_INT_H
#define NEAP_FUSE_INT_H

#include "ops/fused.h"
#include "rewrite/rewrite_int.h"

/* What rules ask of a value. Kept up with each rewrite: to count anew after each would take the
 * square of the net's ops. */
typedef struct fuse_value {
  int n_read;    /* operand positions that read it */
  int first_use; /* of its list of nodes that read it, or did; -1: none */
  bool unstable; /* of roots: another version is written, or it is freed */
  bool fixed;    /* follows from parameters and state alone */
} fuse_value;
typedef struct fuse_use {
  int node, next;
} fuse_use;

typedef struct fuser {
  neap_builder *b;
  neap_graph *graph;
  int n_value, cap_value, n_use, cap_use;
  fuse_value *value; /* by value */
  fuse_use *use;     /* items of their lists */
  int n_seen;        /* nodes before this one are in the table `seen` (fuse_simplify.c) */
  unsigned n_slot;   /* of the table: a power of two */
  int *seen;
  const char *rule;              /* that is at work */
  int at, into;                  /* on this node; the node that takes part in its place */
  const char *at_type, *at_name; /* the node as it was before */
  size_t saved_bytes;            /* of the values absorbed by the rewrite at hand */
  char absorbed[400];            /* the ops absorbed beside the node at hand */
} fuser;

/* A rule: tries node n; *did when it has rewritten. Fails only when memory is refused. */
typedef neap_status (*fuse_rule)(fuser *f, int n, bool *did, neap_error *error);
neap_status fuse_identity(fuser *f, int n, bool *did, neap_error *error);   /* fuse_simplify.c */
neap_status fuse_duplicate(fuser *f, int n, bool *did, neap_error *error);  /* fuse_simplify.c */
neap_status fuse_scale(fuser *f, int n, bool *did, neap_error *error);      /* fuse_scale.c */
neap_status fuse_norm_relu(fuser *f, int n, bool *did, neap_error *error);  /* fuse_scale.c */
neap_status fuse_norm(fuser *f, int n, bool *did, neap_error *error);       /* fuse_product.c */
neap_status fuse_bias(fuser *f, int n, bool *did, neap_error *error);       /* fuse_product.c */
neap_status fuse_residual(fuser *f, int n, bool *did, neap_error *error);   /* fuse_product.c */
neap_status fuse_activation(fuser *f, int n, bool *did, neap_error *error); /* fuse_product.c */
neap_status fuse_pool(fuser *f, int n, bool *did, neap_error *error);       /* fuse_product.c */
neap_status fuse_layer_norm(fuser *f, int n, bool *did, neap_error *error); /* fuse_pattern.c */
neap_status fuse_gelu(fuser *f, int n, bool *did, neap_error *error);       /* fuse_pattern.c */
neap_status fuse_attention(fuser *f, int n, bool *did, neap_error *error);  /* fuse_pattern.c */
neap_status fuse_bytes(fuser *f, int n, bool *did, neap_error *error);      /* fuse_quantized.c */
neap_status fuse_qlinear(fuser *f, int n, bool *did, neap_error *error);    /* fuse_quantized.c */
neap_status fuse_quantized(fuser *f, int n, bool *did, neap_error *error);  /* fuse_quantized.c */
neap_status fuse_quantized_real(fuser *f, int n, bool *did, neap_error *error);

/* Whether node m is a product whose operands stand for bytes, which the rules of fuse_quantized.c
 * compute with. */
bool fuse_is_of_bytes(const fuser *f, int m);
/* Whether products of bytes can have this activation in themselves. */
static inline bool fuse_bytes_have(neap_activation activation) {
  return activation == NEAP_ACTIVATION_NONE || activation == NEAP_ACTIVATION_RELU;
}

/* ---- who reads what (fuse_uses.c) ---- */

/* Lists all values and their readers. Fails only when memory is refused, as all of these do. */
neap_status fuse_uses_init(fuser *f, neap_error *error);
void fuse_uses_fini(fuser *f);
/* The graph has more values than before: they are listed, read by nobody. */
neap_status fuse_uses_grow(fuser *f, neap_error *error);
/* Node n, which is new or has new operands, reads them; and no longer does. */
neap_status fuse_uses_add(fuser *f, int n, neap_error *error);
void fuse_uses_remove(fuser *f, int n);
/* Whatever reads `from` reads `to`. */
neap_status fuse_uses_move(fuser *f, neap_value_id from, neap_value_id to, neap_error *error);
/* Whether a node of another bank than `device` reads v. */
bool fuse_uses_cross_banks(const fuser *f, neap_value_id v, const char *device);
/* Asserts that the counts are right. */
void fuse_uses_check(const fuser *f);
/* Finds which values are fixed, while all nodes stand in order of definition. */
void fuse_find_fixed(fuser *f);

/* ---- looking (fuse_node.c) ---- */

static inline bool fuse_is_op(const fuser *f, int n, const char *name) {
  const char *has = f->graph->node[n].op->name;
  while (*has != '\0' && *has == *name) has++, name++;
  return *has == *name;
}
/* The node of type `name` that defines v; -1 when another does, or none. */
int fuse_made_by(const fuser *f, neap_value_id v, const char *name);
/* Nobody can ask for v, and it is read at n_read places. */
bool fuse_may_go(const fuser *f, neap_value_id v, int n_read);
/* v has the same content wherever a node stands that reads it. */
bool fuse_is_stable(const fuser *f, neap_value_id v);
/* v follows from parameters and state alone. */
bool fuse_is_fixed(const fuser *f, neap_value_id v);
/* Every element of v is one number known now (a Constant op). */
bool fuse_is_number(const fuser *f, neap_value_id v, double *number);
static inline neap_value_id fuse_in(const fuser *f, int n, int i) {
  return i < f->graph->node[n].n_in ? f->graph->node[n].in[i] : NEAP_NO_VALUE;
}
/* Attribute `name` of node n. */
const neap_attr_value *fuse_attr(const fuser *f, int n, const char *name);

/* ---- changing (fuse_node.c) ---- */

/* Adds a node at the end, to work on parameters, for the sake of node `like`, after which it is
 * named; its outputs to `out`. */
neap_status fuse_add(fuser *f, const char *type, int n_in, const neap_value_id *in, int n_out,
                     neap_value_id *out, int like, const neap_set *set, neap_error *error);
/* Puts an op in the place of node n, for its output 0. Attributes are those of node `like` (-1:
 * none) where names agree, then `set`; name, scope and line are those of `like`. *did is false, and
 * nothing has changed, when the op does not take it. */
neap_status fuse_put(fuser *f, int n, const char *type, int n_in, const neap_value_id *in, int like,
                     const neap_set *set, bool *did, neap_error *error);
/* Node m, all of whose outputs may go, is part of what becomes node `into`. Call after fuse_put. */
neap_status fuse_absorb(fuser *f, int m, int into, neap_error *error);
/* Readers of value `from` read `to` instead; the node that defines `from` is part of the one that
 * defines `to`. */
neap_status fuse_forward(fuser *f, neap_value_id from, neap_value_id to, neap_error *error);

#endif
