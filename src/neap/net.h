/* neap/net.h: nets made and read by calls, where neap_net_read and neap_net_add_text make them of
 * text. Part of neap.h, which includes it.
 *
 *   neap_net *net = NULL;
 *   const neap_type x = {NEAP_DTYPE_F32, {2, {4, 2}}};
 *   neap_net_call relu = {.type = "Relu", .n_in = 1, .in = (const char *const[]){"x"},
 *                         .n_out = 1, .out = (const char *const[]){"y"}, .typed = true};
 *   if (neap_net_new("little", &net, &error)) goto end;
 *   if (neap_net_declare(net, "x", NEAP_ROLE_INPUT, &x, false, NULL, NULL, NULL, &error)) goto end;
 *   if (neap_net_add(net, &relu, NULL, &error)) goto end;
 *
 * Names, texts and lists that go in are copied. What is read lives as long as the net is
 * unchanged.
 */
#include "neap.h"
#ifndef NEAP_NET_PART_H
#define NEAP_NET_PART_H

/* ---- what a net has -------------------------------------------------------------------------- */

/* What a blob is for: data, never a name suffix. X(symbol, name) */
#define NEAP_ROLE_MAP(X)      \
  X(ACTIVATION, "activation") \
  X(INPUT, "input")           \
  X(PARAMETER, "parameter")   \
  X(GRADIENT, "gradient")     \
  X(STATE, "state")           \
  X(OUTPUT, "output")
typedef enum neap_role {
#define X(symbol, name) NEAP_ROLE_##symbol,
  NEAP_ROLE_MAP(X)
#undef X
} neap_role;
NEAP_API const char *neap_role_name(neap_role role);

typedef struct neap_net_blob {
  const char *name;
  neap_role role;
  bool keep;      /* resident although its role is not */
  bool trainable; /* PARAMETER: gradient() differentiates with respect to it by default */
  neap_type type; /* as declared; dtype NONE of what ops make */
  int init;       /* index in init ops of the op that fills it, or -1 */
  const char *line;
  /* the blob whose gradient, or a part of it, this one holds; NULL: it is no gradient */
  const char *gradient_of;
  /* the memory bank it is assigned to, where a plan has banks; NULL: none */
  const char *bank;
} neap_net_blob;

/* What an op of an expanded net (neap_net_expand) remembers of the graph it was in. Zero: an op as
 * the user wrote it. */
typedef struct neap_net_origin {
  bool backward; /* belongs to the backward pass */
  /* op whose backward it is part of, so that both get kernels of one engine; NULL: of none */
  const char *forward;
  /* of its random numbers, which so survive another order; 0: by its position */
  uint32_t stream;
} neap_net_origin;

typedef struct neap_net_op {
  const neap_op *op;
  /* unique in the net: explicit, else type_n, e.g. "conv_1"; with its scope path in front */
  const char *name;
  const char *scope; /* scope path, "" at the top */
  const char *layer; /* path of the layer that it is of, "layer1/0/conv1"; "" when none was said */
  const char *line;  /* "lenet.lua:12", "" when unknown */
  /* a label, "cpu:1"; "" by default: outputs of different labels share no bytes by name (memonger).
   * Where a plan has a bank of that name: the bank whose bytes the op works on */
  const char *device;
  neap_net_origin origin;
  neap_attr_value *attrs; /* one per record attribute */
  int n_in, n_out;
  const char **in, **out; /* NULL where an optional one is absent */
  /* Do: its frame of the scope, from 1; HasScope: the scope's top frame; 0: none */
  int frame;
} neap_net_op;

/* ---- making ---------------------------------------------------------------------------------- */

/* One op to add. */
typedef struct neap_net_call {
  const char *type;
  int n_in, n_out;
  /* NULL entry: absent optional input; an output NULL is named type_n in its scope */
  const char *const *in, *const *out;
  const neap_set *attrs;                   /* ends with name NULL; may be NULL */
  const char *name, *scope, *layer, *line; /* each may be NULL */
  const char *device;                      /* may be NULL */
  neap_net_origin origin;
  /* The last thing asked before the op is added: whether its operands' types fit, as far as
   * neap_net_type_of knows them. */
  bool typed;
} neap_net_call;

/* Declares a blob that exists before the net runs. Again is fine when it says the same, but for an
 * init left out; else NAME error. `type` NULL: of an input of a subnet. `init` (may be NULL) is an
 * op without inputs and with a "shape" attribute (Constant, Xavier ...), whose attributes are
 * `init_attrs`; it fills the blob when a workspace initialises the net. `line` may be NULL. */
NEAP_API neap_status neap_net_declare(neap_net *net, const char *name, neap_role role,
                                      const neap_type *type, bool trainable, const char *init,
                                      const neap_set *init_attrs, const char *line,
                                      neap_error *error);
/* Adds an op after its schema check; *op_index (may be NULL) gets its position. */
NEAP_API neap_status neap_net_add(neap_net *net, const neap_net_call *call, int *op_index,
                                  neap_error *error);
/* Names the outputs: resident, fetched after a run. Without a call: every blob nobody reads. */
NEAP_API neap_status neap_net_set_outputs(neap_net *net, int n, const char *const *names,
                                          neap_error *error);
NEAP_API neap_status neap_net_keep(neap_net *net, const char *name, neap_error *error);
/* Assigns the blob, all versions of the name, to a memory bank: where a plan has banks its bytes
 * lie there, or, where it has bytes of its own from run to run, are copied there for as long as a
 * run uses them. */
NEAP_API neap_status neap_net_assign(neap_net *net, const char *name, const char *bank,
                                     neap_error *error);
/* As neap_net_add_gradient_of, with names NAME_grad; what the whole net has against this gradient
 * is said at once, and the net is as before then: that the loss does not depend on a blob (without
 * allow_unused), that there is no way back from it. */
NEAP_API neap_status neap_net_gradient(neap_net *net, const char *loss, int n_wrt,
                                       const char *const *wrt, bool allow_unused, const char *line,
                                       neap_error *error);
/* A copy with holders of its own. */
NEAP_API neap_status neap_net_clone(const neap_net *net, neap_net **out, neap_error *error);

/* A subnet of `outer`, for the attributes of If, While, Recurrent and Do: names not defined inside
 * are the outer net's. It is the outer net's own: end it only if you retained it. */
NEAP_API neap_status neap_net_new_sub(neap_net *outer, const char *name, neap_net **out,
                                      neap_error *error);
/* The body of a Do: a subnet that sees what it declares itself and nothing else. */
NEAP_API neap_status neap_net_new_closed_sub(neap_net *outer, const char *name, neap_net **out,
                                             neap_error *error);
/* A closed subnet of `outer` with the declarations and ops of `net`. */
NEAP_API neap_status neap_net_copy_sub(neap_net *outer, const neap_net *net, neap_net **out,
                                       neap_error *error);
/* Subnet only: the names it takes from outside, in order, and those it gives back. */
NEAP_API neap_status neap_net_set_sub_interface(neap_net *sub, int n_in, const char *const *in,
                                                int n_out, const char *const *out,
                                                neap_error *error);
/* The names it takes, from 0; those it gives back are its outputs. */
NEAP_API int neap_net_n_sub_inputs(const neap_net *net);
NEAP_API const char *neap_net_sub_input_at(const neap_net *net, int index);
/* Says what type a blob has that a closed subnet gets from outside: for neap_net_type_of, while the
 * body is written. NAME when the subnet does not declare it. */
NEAP_API neap_status neap_net_take_type(neap_net *sub, const char *name, const neap_type *type,
                                        neap_error *error);

/* Marks, so that what a longer call has added goes when the call fails. A mark is of the outermost
 * net and all within it; marks nest, and the last one made ends first. */
NEAP_API int neap_net_mark(neap_net *net);
/* Ends the mark. Without `keep` every net is as it was when it was made: ops, blobs, declarations,
 * outputs, names and numbers drawn. Subnets made since are given up: whoever still holds one can
 * read it and not add to it. */
NEAP_API void neap_net_end_mark(neap_net *net, int mark, bool keep);

/* ---- types ----------------------------------------------------------------------------------- */

/* The type of a blob as far as the net has been built and what it declares says: dtype NONE where
 * the name has none yet, or where an op's outputs can't be known before it is planned. Fails as the
 * inference of an op before does: SHAPE, DTYPE, ATTRIBUTE, naming the op. What is found out is kept
 * in the net. */
NEAP_API neap_status neap_net_type_of(neap_net *net, const char *blob, neap_type *out,
                                      neap_error *error);
/* Infers all that can be, subnets of If, While, Recurrent and Do included, and fails likewise. */
NEAP_API neap_status neap_net_check_types(neap_net *net, neap_error *error);

/* ---- reading --------------------------------------------------------------------------------- */

/* unique in the process; changes with every change */
NEAP_API uint64_t neap_net_version(const neap_net *net);
/* has a Gradient op, or a backward pass written out */
NEAP_API bool neap_net_is_train(const neap_net *net);
NEAP_API int neap_net_n_ops(const neap_net *net);
NEAP_API const neap_net_op *neap_net_op_at(const neap_net *net, int index); /* NULL out of range */
/* Ops that fill what is declared, by neap_net_blob.init. */
NEAP_API int neap_net_n_inits(const neap_net *net);
NEAP_API const neap_net_op *neap_net_init_at(const neap_net *net, int index);
NEAP_API int neap_net_n_blobs(const neap_net *net);
NEAP_API const neap_net_blob *neap_net_blob_at(const neap_net *net, int index);
/* NULL when unknown; any string */
NEAP_API const neap_net_blob *neap_net_find_blob(const neap_net *net, const char *name);
NEAP_API int neap_net_n_outputs(const neap_net *net);
NEAP_API const char *neap_net_output_at(const neap_net *net, int index);
/* The net as text, with scope and line of each op where `lines`; ended by neap_free. neap_net_text
 * is without. */
NEAP_API neap_status neap_net_text_with(const neap_net *net, bool lines, char **out,
                                        neap_error *error);
/* Whether the name means a scope (CreateScope), as far as `net` can see. */
NEAP_API bool neap_net_is_scope(const neap_net *net, const char *name);
/* What `name`, a local of the top frame of `scope`, is called around it; NULL when there is
 * none. */
NEAP_API const char *neap_net_local(const neap_net *net, const char *scope, const char *name);
/* Whether `name` is a local of some frame, as it is called around it. */
NEAP_API bool neap_net_has_local(const neap_net *net, const char *name);
/* Of an `update` that neap_net_split_micro gave, for batches that are accumulated before an update:
 * the net that adds a batch's gradients to those held, and the net that adds those held to a
 * batch's, before the update. What is held is state "@held/.."; inputs "micro.kept" and
 * "micro.added", f32 scalars, are the shares of both. */
NEAP_API neap_status neap_net_split_hold(const neap_net *update, neap_net **hold, neap_net **join,
                                         neap_error *error);

#endif
