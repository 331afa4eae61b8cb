/* net_int.h: what the files of this room share and no other room sees.
 *
 * A net is a list of ops, a list of cells (blobs with what building must remember) and indices by
 * name. Copying, renaming and reading are all replays of the public calls, so that every net in the
 * world has passed the same checks.
 *
 * INVARIANT: cell_of and op_of hold exactly the names of `cell` and `op`.
 * INVARIANT: n_ref >= 1 while anyone can see the net; those who hold a subnet count at the net
 * around all.
 * INVARIANT: a subnet's `outside` lists each name that it reads and does not define, once.
 */
#ifndef NEAP_NET_INT_H
#define NEAP_NET_INT_H

#include "net/net.h"

typedef struct neap_net_change neap_net_change; /* mark.c */

typedef struct neap_net_cell {
  neap_net_blob blob;
  int freed_by;       /* op that ended its life (Free), or -1 */
  int n_write;        /* ops that wrote it */
  bool is_scope;      /* made by CreateScope: a stack of frames, no tensor */
  int n_frame, frame; /* of a scope: frames made so far, and the top one; 0: empty */
  /* its last version is the output of an op, and no op has read it: an output by default */
  bool unread;
} neap_net_cell;

/* Types of blobs, in definition order; found by name (type.c). */
typedef struct neap_net_types {
  struct neap_net_typed {
    const char *name; /* interned */
    neap_type type;
  } * item;
  int n, cap;
  neap_map of;
  int n_done;        /* ops whose outputs are in it */
  uint64_t n_rewind; /* of the net when they were walked: ops may have gone since */
} neap_net_types;

struct neap_net {
  const char *name;
  _Atomic int n_ref;
  neap_net *outer; /* of a subnet; borrowed */
  bool closed;     /* a subnet that sees no name of `outer` */
  uint64_t version;
  int n_op, cap_op;
  neap_net_op *op;
  int n_init, cap_init;
  neap_net_op *init;
  int n_cell, cap_cell;
  neap_net_cell *cell;
  neap_map cell_of, op_of; /* name -> index */
  neap_map counter;        /* "scope/conv" -> the last number given to a name "scope/conv_N" */
  bool outputs_set;
  int n_output;
  const char **output;
  bool interface_set; /* subnets */
  int n_sub_input;
  const char **sub_input;
  int n_sub, cap_sub;
  neap_net **sub; /* owned */
  int n_outside, cap_outside;
  const char **outside;
  int n_gradient, n_backward; /* Gradient ops; ops of a backward pass written out */
  /* Of the outermost net, for all within it (mark.c): */
  int n_mark, n_change, cap_change;
  neap_net_change *change;
  uint64_t n_rewind;
  bool given_up;       /* a subnet that a rewind has taken out of its net */
  neap_net *given_ups; /* those of this net, which ends them; linked by next_given_up */
  neap_net *next_given_up;
  neap_net_types types; /* as far as somebody has asked; who asks has the net to himself */
  neap_net_types taken; /* of a closed subnet: those of blobs that it gets from outside */
  neap_arena arena;
};

/* Ends the subnet that was made last, which nobody has seen yet; under a mark it stays, for the
 * mark to take back. */
void neap_net_drop_last_sub(neap_net *outer);

void neap_net_types_fini(neap_net_types *types);
/* SHAPE, DTYPE .. when the types of an op that is not in the net yet are known and don't fit. */
neap_status neap_net_check_op_types(neap_net *net, const neap_net_op *op, neap_error *error);

/* A cell that `name` (interned) means in `net` or, for subnets, outside of it; NULL when
 * undefined. */
typedef struct neap_net_found {
  neap_net *net;
  neap_net_cell *cell;
} neap_net_found;
neap_net_found neap_net_look_up(const neap_net *net, const char *name);

/* "scope/conv_3", interned; number 0: without. NULL when memory is refused. */
const char *neap_net_join(const char *scope, const char *base, int number);
/* "MaxPool" -> "max_pool", interned; NULL when memory is refused. */
const char *neap_net_snake(const char *type);
/* Where a name lies relative to its scope: "a/b/conv" in "a/b" is "conv". */
const char *neap_net_strip_scope(const char *name, const char *scope);

/* Attributes of one op (attr.c): fills n values in the net's arena from the record's defaults and
 * `set`, all checked. `who` is the prefix of messages. */
neap_status neap_net_check_attrs(neap_net *net, const neap_op *op, const neap_set *set,
                                 const char *who, neap_attr_value **out, neap_error *error);
/* How much an op is when the subnets that it names are written out (written_out.c): GRAPH error,
 * `who` in front, for too much. */
neap_status neap_net_check_written_out(const neap_net_op *op, const char *who, neap_error *error);
/* Scopes (scope.c). Whether argument i of n is a scope by the record; every rule about Do; the
 * scope's frames after the op. */
bool neap_net_is_scope_arg(const neap_arg *arg, int i, int n);
/* declare.c. Whether the op writes a blob that is there before the net runs, which then is what the
 * op made of it. */
bool neap_net_op_writes_declared(const neap_net *net, const neap_net_op *op);
neap_status neap_net_check_do(const neap_net *net, const neap_net_op *op, const char *who,
                              neap_error *error);
void neap_net_enter_frame(neap_net *net, neap_net_op *op);

/* ---- what a mark can undo (mark.c). Every function that changes a net asks for room, then notes
 * what it is about to change: first the net itself, with those around it, then each cell that was
 * there before. Without a mark both do nothing. */

/* Room for notes of the nets from `net` outwards and of n more things. GRAPH error for a subnet
 * that was given up. */
neap_status neap_net_begin_change(neap_net *net, int n, neap_error *error);
void neap_net_note(neap_net *net);
void neap_net_note_cell(neap_net *net, int cell);
/* its number in net->counter, before it is another */
void neap_net_note_counter(neap_net *net, const char *key);

/* Notes that `net` reads `name`, here and in the nets around it. Room in `outside` must be
 * there. */
void neap_net_mark_read(neap_net *net, const char *name);
bool neap_net_reserve_outside(neap_net *net, int more);
/* A new version number for the net and those around it. */
void neap_net_touch(neap_net *net);

/* Copying by replay (rename.c): what blobs are called in the copy, and what else differs there. */
typedef struct neap_net_copier {
  /* of the net around this one, whose local names reach in; NULL: outermost, or closed */
  const struct neap_net_copier *around;
  const neap_net *net;
  const neap_map *at; /* old name -> index in `to` */
  const char *const *to;
  /* order and Frees, which are of the outermost net only; NULL: neither */
  const neap_net_edit *edit;
  neap_error *error;
} neap_net_copier;
/* One that changes nothing: for copies of a part of `net`. */
neap_net_copier neap_net_plain_copier(const neap_net *net, neap_error *error);
/* Declares `blob`, which `net` declares, in `to`. */
neap_status neap_net_copy_declaration(const neap_net_copier *c, const neap_net *net,
                                      const neap_net_blob *blob, neap_net *to);
/* Adds the op with copies of its subnets, which `subs` knows: empty at first, kept between the ops
 * of one copy. */
neap_status neap_net_copy_op(const neap_net_copier *c, const neap_net_op *op, neap_net *to,
                             neap_map *subs);
/* Assigns the blobs that `to` has to the banks that `net` has them in. */
neap_status neap_net_copy_banks(const neap_net_copier *c, const neap_net *net, neap_net *to);

bool neap_net_is_derived(const char *attr); /* "shape" and "dtype" of an init op */
/* Whether two init ops give the same values: their types and attributes. */
bool neap_net_same_init(const neap_net_op *x, const neap_net_op *y);
/* What a declaration says behind role and name: "f32 (8,4) frozen = Xavier". `init` may be NULL. */
void neap_net_print_declared(const neap_net_blob *blob, const neap_net_op *init, neap_buffer *out);

#endif
