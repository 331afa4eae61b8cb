/* type.c: the types of a net's blobs while it is being built, so that a blob has a shape and a
 * layer can ask for it.
 *
 * The ops are walked once, in order, each time from where the last walk stopped, or from the first
 * when a mark has taken ops back. An op that is about to be added is looked at first: what does not
 * fit its inputs never gets into a net. A net knows no more than it declares: what a plan is given
 * for its inputs may differ, and is for `build` to infer.
 * INVARIANT: `of` maps each name to its newest version's type as of the first n_done ops.
 */
#include "net/net_int.h"
#include "ops/tile.h"

#include <stdio.h>
#include <string.h>

typedef struct env { /* what a walk can see: a net's own types, then the nets around it */
  const neap_net *net;
  neap_net_types *types;
  const neap_net_types *taken; /* NULL: none */
  const struct env *outer;
  /* types of an op that is not in `net` yet; the net itself is `outer` */
  bool is_draft;
} env;

void neap_net_types_fini(neap_net_types *types) {
  neap_free(types->item);
  neap_map_fini(&types->of);
  *types = (neap_net_types){0};
}

/* The name, interned, means `type` from now on; a newer version of a blob takes the place of the
 * older. A name that is NULL is one whose memory was refused. */
static neap_status put(neap_net_types *types, const char *name, const neap_type *type,
                       neap_error *error) {
  if (name == NULL) return neap_fail_memory(error, 64, "a name");
  int at = neap_map_get(&types->of, name, -1);
  /* A name that is met for the first time gets a place. */
  if (at < 0) {
    if (!neap_list_grow(&types->item, &types->cap, types->n + 1, sizeof *types->item) ||
        !neap_map_set(&types->of, name, types->n))
      return neap_fail_memory(error, sizeof *types->item, "the type of a blob");
    at = types->n++;
  }
  types->item[at] = (struct neap_net_typed){name, *type};
  NEAP_ASSERT(neap_map_get(&types->of, name, -1) == at, "\"%s\" is found where it lies", name);
  return NEAP_OK;
}

/* The innermost type that the name has: what ops gave it, else what its net declares. dtype NONE:
 * not known. */
static neap_type look_up(const env *e, const char *name) {
  if (name == NULL) return (neap_type){0};
  for (; e != NULL; e = e->outer) {
    int at = neap_map_get(&e->types->of, name, -1);
    if (at >= 0) return e->types->item[at].type;
    /* An op that isn't in the net yet has no declarations of its own. */
    if (e->is_draft) continue;
    at = e->taken != NULL ? neap_map_get(&e->taken->of, name, -1) : -1;
    if (at >= 0) return e->taken->item[at].type;
    const neap_net_blob *blob = neap_net_find_blob(e->net, name);
    if (blob != NULL && blob->type.dtype != NEAP_DTYPE_NONE) return blob->type;
  }
  return (neap_type){0};
}

static neap_status walk(const env *e, neap_error *error);

/* Types of a subnet's results: its parameters are set, then its ops walked. Without a subnet the
 * results are the parameters of the same names, which only the If that owns it knows; type NONE
 * then, and the other branch decides. */
static neap_status infer_subnet(const neap_infer *infer, int subnet, int n_in, const neap_type *in,
                                int n_out, neap_type *out, neap_error *error) {
  const env *outer = infer->graph;
  int a = neap_op_subnet_attr(infer->op, subnet);
  const neap_net *sub = a >= 0 ? infer->attrs[a].net : NULL;
  if (sub == NULL) {
    for (int k = 0; k < n_out; k++) out[k] = infer->out[k];
    return NEAP_OK;
  }

  /* A table of its own: another owner may give the subnet other types. */
  neap_net_types types = {0};
  env e = {.net = sub, .types = &types, .outer = outer};
  neap_status status = NEAP_OK;

  /* Its parameters have the types of what it is given. */
  n_in = NEAP_MIN(n_in, neap_net_n_sub_inputs(sub));
  for (int k = 0; k < n_in; k++) {
    status = put(&types, neap_net_sub_input_at(sub, k), &in[k], error);
    if (status != NEAP_OK) goto done;
  }
  status = walk(&e, error);
  if (status != NEAP_OK) goto done;

  /* Its results have what its ops have made of them. */
  n_out = NEAP_MIN(n_out, neap_net_n_outputs(sub));
  for (int k = 0; k < n_out; k++) out[k] = look_up(&e, neap_net_output_at(sub, k));
done:
  neap_net_types_fini(&types);
  return status;
}

/* Says which op it was, where the message does not. */
static neap_status locate(const neap_net_op *op, neap_status status, neap_error *error) {
  if (error->op[0] != '\0') return status;

  /* The op's name goes in front, and is cut rather than the message. */
  char message[sizeof error->message];
  snprintf(message, sizeof message, "%s \"%.120s\": %.600s", op->op->name, op->name,
           error->message);
  memcpy(error->message, message, sizeof message);
  snprintf(error->op, sizeof error->op, "%s", op->op->name);
  snprintf(error->scope, sizeof error->scope, "%s", op->scope);
  snprintf(error->line, sizeof error->line, "%s", op->line);
  return status;
}

/* A Do: its body is walked on the types of what is bound and of what earlier bodies left in the
 * frame; then everything it has is known here under the name it has here. */
static neap_status infer_do(const env *e, const neap_net_op *op, neap_error *error) {
  const neap_net *body = neap_net_do_body(op);
  neap_net_types types = {0};
  env inside = {.net = body, .types = &types};
  neap_status status = NEAP_OK;
  for (int i = 0; i < neap_net_n_blobs(body); i++) {
    const neap_net_blob *blob = neap_net_blob_at(body, i);
    if (blob->role != NEAP_ROLE_INPUT) continue;
    /* The outer blob that is bound to it, or a local that an earlier body left in the frame. */
    bool output;
    const char *outer = neap_net_do_outer(op, blob->name, &output);
    if (outer == NULL) outer = neap_net_do_name(op, blob->name);
    if (outer == NULL) {
      status = neap_fail_memory(error, 64, "a name");
      goto done;
    }
    neap_type type = look_up(e, outer);
    if (type.dtype == NEAP_DTYPE_NONE) continue;
    status = put(&types, blob->name, &type, error);
    if (status != NEAP_OK) goto done;
  }

  /* Then its ops; and what they have found is known here, under the names that it has here. */
  status = walk(&inside, error);
  if (status != NEAP_OK) goto done;
  for (int i = 0; i < types.n; i++) {
    status = put(e->types, neap_net_do_name(op, types.item[i].name), &types.item[i].type, error);
    if (status != NEAP_OK) goto done;
  }

  /* With copies the frame has its own version of what is bound, under the local's name. */
  if (!neap_net_do_copies(op)) goto done;
  for (int i = 0; i < types.n; i++) {
    status = put(e->types, neap_net_do_local(op, types.item[i].name), &types.item[i].type, error);
    if (status != NEAP_OK) goto done;
  }
done:
  neap_net_types_fini(&types);
  return status;
}

/* Whether input `i` of a loop is neither a state nor a sequence: its gradient is a sum over the
 * iterations. */
static bool is_capture(const neap_net_op *loop, int i) {
  /* States and sequences come first; what is left of the position counts captures. */
  static const char *const before[] = {"n_state", "n_seq"};
  for (int k = 0; k < NEAP_COUNT(before); k++) {
    int a = neap_op_attr_index(loop->op, before[k]);
    if (a >= 0) i -= (int)loop->attrs[a].i;
  }
  return i >= 0;
}

/* What the innermost net that declares the name declares; NONE: none does. */
static neap_type declared_type(const env *e, const char *name) {
  for (; e != NULL; e = e->outer) {
    const neap_net_blob *blob = neap_net_find_blob(e->net, name);
    if (blob != NULL && blob->type.dtype != NEAP_DTYPE_NONE) return blob->type;
  }
  return (neap_type){0};
}

/* The backward of a loop gives gradients of what the loop took: as large as that where it is
 * declared, and so still means what it meant there; else unknown. Sums over iterations are in the
 * dtype that sums are computed in. */
static neap_status infer_loop_gradient(const env *e, const neap_net_op *op, neap_error *error) {
  const neap_attr_value *wrt = &op->attrs[neap_op_attr_index(op->op, "wrt")];
  const neap_net_op *loop = NULL;

  /* The loop that it is the backward of, by name. */
  if (op->origin.forward != NULL)
    for (int i = 0; i < e->types->n_done; i++)
      if (strcmp(neap_net_op_at(e->net, i)->name, op->origin.forward) == 0)
        loop = neap_net_op_at(e->net, i);
  for (int k = 0; k < op->n_out; k++) {
    bool has_input =
      loop != NULL && k < wrt->n && wrt->ints[k] < loop->n_in && loop->in[wrt->ints[k]] != NULL;
    neap_type type = {0};
    if (has_input) {
      type = declared_type(e, loop->in[wrt->ints[k]]);
      if (is_capture(loop, (int)wrt->ints[k])) type.dtype = neap_compute_dtype(type.dtype);
    }
    /* Unknown is told too: it takes the place of what the name meant before. */
    if (op->out[k] != NULL) NEAP_TRY(put(e->types, op->out[k], &type, error));
  }
  return NEAP_OK;
}

/* The types of one op's outputs. Outputs of unknown type make what depends on them unknown. */
static neap_status infer_op(const env *e, const neap_net_op *op, neap_error *error) {
  if (neap_net_do_body(op) != NULL) return infer_do(e, op, error);
  if (strcmp(op->op->name, "LoopGradient") == 0) return infer_loop_gradient(e, op, error);
  size_t n = (size_t)(op->n_in + op->n_out);
  neap_type *type = neap_alloc_zeroed(n * sizeof *type);
  if (type == NULL) return neap_fail_memory(error, n * sizeof *type, "the types of an op");
  neap_type *out = type + op->n_in;

  /* All inputs must be known, but for scopes, which have no type, and inputs that are absent. */
  bool known = op->op->infer != NULL;
  for (int k = 0; k < op->n_in; k++) {
    type[k] = look_up(e, op->in[k]);
    bool is_scope = (neap_op_input(op->op, k)->flags & NEAP_ARG_SCOPE) != 0;
    if (op->in[k] != NULL && type[k].dtype == NEAP_DTYPE_NONE && !is_scope) known = false;
  }

  /* Dtypes that a kernel takes, then shapes: what is unknown is left for later. */
  neap_infer infer = {.op = op->op,
                      .attrs = op->attrs,
                      .n_in = op->n_in,
                      .n_out = op->n_out,
                      .in = type,
                      .out = out,
                      .infer_subnet = infer_subnet,
                      .graph = (void *)(uintptr_t)e};

  /* Pseudo-ops and Frees are done away with by the graph: nobody need compute their dtypes. */
  bool is_computed = (op->op->effects & (NEAP_EFFECT_PSEUDO | NEAP_EFFECT_RELEASE)) == 0;
  neap_status status = known && is_computed ? neap_infer_admits(&infer, error) : NEAP_OK;
  if (status == NEAP_OK && known) status = neap_infer_types(&infer, error);
  if (status != NEAP_OK) {
    status = locate(op, status, error);
    goto done;
  }
  for (int k = 0; k < op->n_out; k++) {
    if (op->out[k] == NULL) continue;
    status = put(e->types, op->out[k], &out[k], error);
    if (status != NEAP_OK) break;
  }
done:
  neap_free(type);
  return status;
}

/* The ops that no walk has seen yet. An op that fails is not counted, so that asking again fails
 * again. */
static neap_status walk(const env *e, neap_error *error) {
  for (; e->types->n_done < neap_net_n_ops(e->net); e->types->n_done++)
    NEAP_TRY(infer_op(e, neap_net_op_at(e->net, e->types->n_done), error));
  return NEAP_OK;
}

/* ---- what a net knows ------------------------------------------------------------------------ */

neap_status neap_net_take_type(neap_net *sub, const char *name, const neap_type *type,
                               neap_error *error) {
  const neap_net_blob *blob = neap_net_find_blob(sub, name);
  if (blob == NULL) return neap_net_fail_undefined(sub, "type", name, error);
  return put(&sub->taken, blob->name, type, error);
}

enum { MOST_NESTED = 32 };

/* What is seen from a net, and from those around it that it sees, all walked; e[0] is the net's
 * own. */
static neap_status walk_all(neap_net *net, env e[MOST_NESTED], neap_error *error) {
  int n = 0;
  for (neap_net *at = net; at != NULL; at = at->closed ? NULL : at->outer) {
    if (n == MOST_NESTED)
      return neap_fail(error, NEAP_GRAPH, "nets are nested deeper than %d", MOST_NESTED);
    /* A mark that was taken back has removed ops: what was known of them goes. */
    uint64_t n_rewind = neap_net_n_rewinds(at);
    if (at->types.n_rewind != n_rewind) neap_net_types_fini(&at->types);
    at->types.n_rewind = n_rewind;
    /* Each sees the one around it. */
    e[n] = (env){.net = at, .types = &at->types, .taken = &at->taken};
    if (n > 0) e[n - 1].outer = &e[n];
    n++;
  }
  for (int i = n - 1; i >= 0; i--) NEAP_TRY(walk(&e[i], error)); /* from the outermost inwards */
  return NEAP_OK;
}

neap_status neap_net_type_of(neap_net *net, const char *name, neap_type *out, neap_error *error) {
  env e[MOST_NESTED];
  /* Not known, until the walk says otherwise. */
  *out = (neap_type){0};
  const char *key = neap_intern(name); /* types are found by address */
  if (key == NULL) return neap_fail_memory(error, strlen(name), "a name");
  NEAP_TRY(walk_all(net, e, error));
  *out = look_up(&e[0], key);
  return NEAP_OK;
}

neap_status neap_net_check_types(neap_net *net, neap_error *error) {
  env e[MOST_NESTED];
  return walk_all(net, e, error);
}

neap_status neap_net_check_op_types(neap_net *net, const neap_net_op *op, neap_error *error) {
  env e[MOST_NESTED];
  NEAP_TRY(walk_all(net, e, error));

  /* What the op would give lies in a table of its own, which goes with the answer: the net is as it
   * was. */
  neap_net_types types = {.n_done = e[0].types->n_done};
  env draft = {.net = e[0].net, .types = &types, .outer = &e[0], .is_draft = true};
  neap_status status = infer_op(&draft, op, error);
  neap_net_types_fini(&types);
  return status;
}
