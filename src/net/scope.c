/* scope.c: scopes in a net: what CreateScope, HasScope and Do may say, and which frame of its scope
 * each Do works in.
 *
 * A scope is a stack of frames, and a frame is a table of names. Ops stand in the order they run,
 * so the frames are known while the net is written: CreateScope empties the stack, each Do pushes a
 * frame, and a Do with reuse works in the top one. The body of a Do is a closed subnet. It sees the
 * outer blobs that its bindings name and, with reuse, the locals that earlier bodies left in the
 * frame; both are declared in it as inputs without type.
 * INVARIANT: a Do that is part of a net keeps every rule of check_do, so that graph can write its
 * ops out by renaming alone. Frames are numbered on when a scope is created again: a name
 * "SCOPE.FRAME/local" means one table for ever.
 */
#include "net/net_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Attributes of Do, in its record's order (ops/control/do.c). */
enum { NET, INNER_BLOBS, OUTER_BLOBS_IDX, REUSE_WORKSPACE, COPY_EXTERNAL_BLOBS };

static bool is_op(const neap_net_op *op, const char *type) {
  return strcmp(op->op->name, type) == 0;
}

bool neap_net_is_scope_arg(const neap_arg *arg, int i, int n) {
  return arg != NULL && (arg->flags & NEAP_ARG_SCOPE) != 0 &&
         ((arg->flags & NEAP_ARG_VARIADIC) == 0 || i == n - 1);
}

const neap_net *neap_net_do_body(const neap_net_op *op) {
  return is_op(op, "Do") ? op->attrs[NET].net : NULL;
}
bool neap_net_do_copies(const neap_net_op *op) { return op->attrs[COPY_EXTERNAL_BLOBS].i != 0; }

/* ---- bindings -------------------------------------------------------------------------------- */

/* Outer blobs of a Do: its inputs, then its outputs, the scope left out of both. */
static int n_outer(const neap_net_op *op) { return op->n_in - 1 + op->n_out - 1; }
static const char *outer_at(const neap_net_op *op, int64_t index) {
  return index < op->n_in - 1 ? op->in[index] : op->out[index - (op->n_in - 1)];
}

/* The index counts from the end when it is negative, as all positions do. */
static int64_t index_of(const neap_net_op *op, int binding) {
  int64_t index = op->attrs[OUTER_BLOBS_IDX].ints[binding];
  return index < 0 ? index + n_outer(op) : index;
}

/* By address: both are interned. */
static bool is_among(const char *name, int n, const char *const *list) {
  for (int i = 0; i < n; i++)
    if (list[i] == name) return true;
  return false;
}

/* *output: whether the body may write it, which is so when the blob is among the Do's outputs,
 * wherever its index points. */
const char *neap_net_do_outer(const neap_net_op *op, const char *inner, bool *output) {
  for (int b = 0; b < op->attrs[INNER_BLOBS].n; b++) {
    if (op->attrs[INNER_BLOBS].names[b] != inner) continue;
    /* One blob may be input and output: that it is among the outputs decides. */
    const char *outer = outer_at(op, index_of(op, b));
    *output = is_among(outer, op->n_out - 1, op->out);
    return outer;
  }
  *output = false;
  return NULL;
}

/* "SCOPE.FRAME/inner", interned; NULL when memory is refused. */
static const char *local_name(const char *scope, int frame, const char *inner) {
  return neap_intern_format("%s.%d/%s", scope, frame, inner);
}

const char *neap_net_do_local(const neap_net_op *op, const char *inner) {
  return local_name(op->out[op->n_out - 1], op->frame, inner);
}

/* With copies the frame has its own version of what is only read, so that a later write outside
 * does not reach it. */
const char *neap_net_do_name(const neap_net_op *op, const char *inner) {
  bool output;
  const char *outer = neap_net_do_outer(op, inner, &output);
  if (outer != NULL && (output || !neap_net_do_copies(op))) return outer;
  return neap_net_do_local(op, inner);
}

/* ---- frames ---------------------------------------------------------------------------------- */

/* The cell of a name in this very net; scopes are never looked up outwards, since a frame belongs
 * to the net that runs. */
static neap_net_cell *scope_cell(const neap_net *net, const char *name) {
  int at = neap_map_get(&net->cell_of, name, -1);
  return at >= 0 && at < net->n_cell ? &net->cell[at] : NULL;
}

/* The frame that the Do is going to work in. */
static int frame_of(const neap_net_op *op, const neap_net_cell *scope) {
  return op->attrs[REUSE_WORKSPACE].i != 0 && scope->frame > 0 ? scope->frame : scope->n_frame + 1;
}

/* Called once the op is certain to be added: the scope's counters are the net's state, and a
 * refused op must not move them. */
void neap_net_enter_frame(neap_net *net, neap_net_op *op) {
  if (is_op(op, "HasScope")) op->frame = scope_cell(net, op->in[0])->frame;
  /* An emptied stack: the next Do makes a frame of a new number. */
  if (is_op(op, "CreateScope")) scope_cell(net, op->out[0])->frame = 0;
  if (!is_op(op, "Do")) return;
  neap_net_cell *scope = scope_cell(net, op->out[op->n_out - 1]);
  op->frame = scope->frame = frame_of(op, scope);
  scope->n_frame = NEAP_MAX(scope->n_frame, op->frame);
  NEAP_ASSERT(op->frame >= 1 && op->frame <= scope->n_frame, "frame %d is one of the %d made",
              op->frame, scope->n_frame);
}

bool neap_net_is_scope(const neap_net *net, const char *name) {
  const char *key = neap_intern(name);
  const neap_net_cell *cell = key != NULL ? neap_net_look_up(net, key).cell : NULL;
  return cell != NULL && cell->is_scope;
}

/* Whether an earlier Do has left `name` in the frame: its body wrote it, or it kept a copy of what
 * is bound to it. */
static bool is_local(const neap_net *net, const char *scope, int frame, const char *name) {
  /* All Dos of one frame share its table, in whatever order their bodies came. O(ops), asked once a
   * name. */
  for (int i = 0; i < net->n_op; i++) {
    const neap_net_op *op = &net->op[i];
    if (!is_op(op, "Do") || op->out[op->n_out - 1] != scope || op->frame != frame) continue;
    bool output;
    const char *outer = neap_net_do_outer(op, name, &output);
    if (outer != NULL && neap_net_do_copies(op)) return true;
    const neap_net_cell *cell = scope_cell(op->attrs[NET].net, name);
    /* What the body wrote under a name of its own, and did not free. */
    if (outer == NULL && cell != NULL && cell->n_write > 0 && cell->freed_by < 0) return true;
  }
  return false;
}

const char *neap_net_local(const neap_net *net, const char *scope, const char *name) {
  const char *key = neap_intern(scope), *inner = neap_intern(name);
  const neap_net_cell *cell = key != NULL ? scope_cell(net, key) : NULL;
  if (inner == NULL || cell == NULL || cell->frame == 0 || !is_local(net, key, cell->frame, inner))
    return NULL;
  return local_name(key, cell->frame, inner);
}

/* Whether a name has the form "SCOPE.FRAME/local" of some Do here, nested ones included: kept blobs
 * may lie in frames. */
bool neap_net_has_local(const neap_net *net, const char *name) {
  for (int i = 0; i < net->n_op; i++) {
    const neap_net_op *op = &net->op[i];
    const neap_net *body = neap_net_do_body(op);
    const char *prefix = body != NULL ? local_name(op->out[op->n_out - 1], op->frame, "") : NULL;
    size_t n = prefix != NULL ? strlen(prefix) : 0;
    if (n == 0 || strncmp(name, prefix, n) != 0) continue;
    /* What is left of the name is the body's, or again a local of a Do in it. */
    if (neap_net_find_blob(body, name + n) != NULL || neap_net_has_local(body, name + n))
      return true;
  }
  return false;
}

/* ---- the rules of Do ------------------------------------------------------------------------- */

/* GRAPH error, `who` in front, that names the blob at fault. */
NEAP_PRINTF(4, 5)
static neap_status fail(const char *who, const char *blob, neap_error *error, const char *format,
                        ...) {
  char text[400];
  va_list args;
  va_start(args, format);
  neap_format_list(text, sizeof text, format, args);
  va_end(args);
  if (error != NULL && error->code == NEAP_OK)
    snprintf(error->blob, sizeof error->blob, "%s", blob);
  return neap_fail(error, NEAP_GRAPH, "%s%s", who, text);
}

/* What concerns the Do's own lists: no input twice, one scope in and out, as many indices as names,
 * and no contradictory flags. */
static neap_status check_lists(const neap_net_op *op, const char *who, neap_error *error) {
  /* An input that stands there twice would have two places in the list that indices count. */
  for (int i = 0; i < op->n_in; i++)
    for (int k = 0; k < i; k++)
      if (op->in[i] == op->in[k])
        return fail(who, op->in[i], error, "inputs %d and %d are both \"%s\"", k + 1, i + 1,
                    op->in[i]);
  if (op->in[op->n_in - 1] != op->out[op->n_out - 1])
    return fail(who, op->out[op->n_out - 1], error,
                "its last input and its last output must be the same scope, got \"%s\" and \"%s\"",
                op->in[op->n_in - 1], op->out[op->n_out - 1]);
  if (op->attrs[INNER_BLOBS].n != op->attrs[OUTER_BLOBS_IDX].n)
    return fail(who, "inner_blobs", error,
                "inner_blobs has %d names, outer_blobs_idx %d indices; each name needs one",
                op->attrs[INNER_BLOBS].n, op->attrs[OUTER_BLOBS_IDX].n);

  /* Copies and a reused frame would be two values of one name. */
  if (op->attrs[REUSE_WORKSPACE].i != 0 && op->attrs[COPY_EXTERNAL_BLOBS].i != 0)
    return fail(who, "copy_external_blobs", error,
                "copy_external_blobs and reuse_workspace exclude each other: a reused frame "
                "would get copies over its own blobs");
  return NEAP_OK;
}

/* Binding b leads to an outer blob, and neither side of it stands for two blobs. Asked in their
 * order, so that those before it have been checked. */
static neap_status check_binding(const neap_net_op *op, int b, const char *who, neap_error *error) {
  const char *const *inner = op->attrs[INNER_BLOBS].names;
  int64_t index = index_of(op, b);
  if (index < 0 || index >= n_outer(op))
    return fail(who, inner[b], error, "\"%s\" is bound to outer blob %lld, there are %d", inner[b],
                (long long)op->attrs[OUTER_BLOBS_IDX].ints[b], n_outer(op));
  const char *outer = outer_at(op, index);
  for (int k = 0; k < b; k++) {
    if (inner[k] == inner[b])
      return fail(who, inner[b], error, "inner blob \"%s\" is bound twice", inner[b]);
    if (outer_at(op, index_of(op, k)) == outer)
      return fail(who, outer, error, "outer blob \"%s\" is bound twice, to \"%s\" and to \"%s\"",
                  outer, inner[k], inner[b]);
  }
  return NEAP_OK;
}

/* Every outer blob is bound once, and every inner name stands for one of them. Quadratic in a few
 * names. */
static neap_status check_bindings(const neap_net_op *op, const char *who, neap_error *error) {
  int n = op->attrs[INNER_BLOBS].n;
  for (int b = 0; b < n; b++) NEAP_TRY(check_binding(op, b, who, error));
  /* An outer blob that nothing is bound to could not be reached. */
  for (int64_t i = 0; i < n_outer(op); i++) {
    int b = 0;
    while (b < n && outer_at(op, index_of(op, b)) != outer_at(op, i)) b++;
    if (b == n)
      return fail(who, outer_at(op, i), error, "outer blob \"%s\" is not bound to any inner blob",
                  outer_at(op, i));
  }
  return NEAP_OK;
}

/* One blob of the body: what it declares must come from somewhere, what it writes outside must be
 * an output. */
static neap_status check_inner(const neap_net *net, const neap_net_op *op,
                               const neap_net_cell *cell, int frame, const char *who,
                               neap_error *error) {
  const char *name = cell->blob.name, *scope = op->out[op->n_out - 1];
  bool output,
    declared = cell->blob.type.dtype != NEAP_DTYPE_NONE || cell->blob.role == NEAP_ROLE_INPUT;
  const char *outer = neap_net_do_outer(op, name, &output);

  /* What the body declares is an argument, which comes from outside or from an earlier Do. */
  if (declared && cell->blob.role != NEAP_ROLE_INPUT) {
    neap_hint(error, "declare it outside and bind it");
    return fail(who, name, error,
                "the body declares %s \"%s\"; a frame keeps nothing from run to run",
                neap_role_name(cell->blob.role), name);
  }
  if (declared && outer == NULL && !is_local(net, scope, frame, name))
    return fail(who, name, error,
                "the body reads \"%s\", which is neither bound nor a local of scope \"%s\"", name,
                scope);

  /* What is bound to an input may only be read: nobody outside would see what is written. */
  if (outer != NULL && !output && cell->n_write > 0) {
    neap_hint(error, "make \"%s\" an output of the Do as well", outer);
    return fail(who, outer, error,
                "the body writes \"%s\", which is bound to \"%s\", an input only", name, outer);
  }
  return NEAP_OK;
}

/* A bound name that the body does not know has nothing to do: allowed for an input, a mistake for
 * an output. */
static neap_status check_outputs(const neap_net_op *op, const char *who, neap_error *error) {
  for (int b = 0; b < op->attrs[INNER_BLOBS].n; b++) {
    const char *inner = op->attrs[INNER_BLOBS].names[b], *outer = outer_at(op, index_of(op, b));
    bool output = is_among(outer, op->n_out - 1, op->out),
         input = is_among(outer, op->n_in - 1, op->in);
    const neap_net_cell *cell = scope_cell(op->attrs[NET].net, inner);
    if (!output || input || (cell != NULL && cell->n_write > 0)) continue;
    return fail(who, outer, error, "the body never writes \"%s\", which is bound to output \"%s\"",
                inner, outer);
  }
  return NEAP_OK;
}

/* In this order a message never speaks of what an earlier check would have refused: lists, then
 * bindings, then the body's blobs. */
neap_status neap_net_check_do(const neap_net *net, const neap_net_op *op, const char *who,
                              neap_error *error) {
  const neap_net *body = neap_net_do_body(op);
  if (body == NULL) return NEAP_OK;
  if (!body->closed)
    return fail(who, "net", error, "its net must be a closed subnet: it sees bound names only");
  NEAP_TRY(check_lists(op, who, error));
  NEAP_TRY(check_bindings(op, who, error));
  const neap_net_cell *scope = scope_cell(net, op->out[op->n_out - 1]);
  /* Scopes within the body are no blobs that come from outside. */
  for (int i = 0; i < body->n_cell; i++)
    if (!body->cell[i].is_scope)
      NEAP_TRY(check_inner(net, op, &body->cell[i], frame_of(op, scope), who, error));
  return check_outputs(op, who, error);
}
