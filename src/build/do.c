/* do.c: the ops of scopes, written out while a graph is built.
 *
 * A Do leaves no trace: each op of its body is built in the graph around it, its names replaced by
 * what they stand for there: a bound name by the outer blob's, a local by "SCOPE.FRAME/name"
 * (neap_net_do_name). So a local is a value like any other, which a later Do with reuse finds under
 * that name, and order, plan, dag schedule and gradient know nothing of scopes. The gradient of two
 * Dos runs backwards through both: last in, first out.
 * INVARIANT: a frame keeps no state of its own; the environment of the builder is its only table.
 */
#include "build/build_int.h"

#include <string.h>

/* What the body's names stand for outside, in the graph's arena; NULL entries stay. NULL when
 * refused. */
static const char **renamed(neap_builder *b, const neap_net_op *op, int n,
                            const char *const *name) {
  const char **list = neap_arena_alloc(&b->graph->arena, (size_t)NEAP_MAX(n, 1) * sizeof *list);
  if (list == NULL) return NULL;
  for (int i = 0; i < n; i++) {
    if (name[i] == NULL) continue;
    list[i] = neap_net_do_name(op, name[i]);
    if (list[i] == NULL) return NULL;
  }
  return list;
}

/* The body's scope path below the frame's: "s.1", "s.1/block". */
static const char *scope_path(const neap_net_op *op, const char *scope) {
  const char *path = neap_net_do_local(op, scope);
  return path == NULL || scope[0] != '\0' ? path : neap_intern_n(path, strlen(path) - 1);
}

/* Copies of what the body only reads, made before it, or of what it wrote, made after it: both are
 * locals of the frame. */
static neap_status copy_bound(neap_builder *b, const neap_net_op *op, bool outputs,
                              neap_error *error) {
  if (!neap_net_do_copies(op)) return NEAP_OK;
  const neap_net *body = neap_net_do_body(op);
  for (int i = 0; i < neap_net_n_blobs(body); i++) {
    const char *inner = neap_net_blob_at(body, i)->name;
    bool output;
    const char *outer = neap_net_do_outer(op, inner, &output);
    const char *local = neap_net_do_local(op, inner);
    /* Bound names alone; a local begins and ends in the frame. */
    if (outer == NULL || output != outputs) continue;
    if (local == NULL) return graph_no_memory(error);
    NEAP_TRY(build_copy(b, outer, local, error));
  }
  return NEAP_OK;
}

/* Names of the user's that look like a local would be taken for it. */
static neap_status check_free(const neap_builder *b, const neap_net_op *op, neap_error *error) {
  const neap_net *body = neap_net_do_body(op);
  for (int i = 0; i < neap_net_n_blobs(body); i++) {
    bool output;
    const char *inner = neap_net_blob_at(body, i)->name, *name = neap_net_do_name(op, inner);
    if (name == NULL) return graph_no_memory(error);
    if (neap_net_do_outer(op, inner, &output) == NULL && neap_net_find_blob(b->net, name) != NULL)
      return neap_fail(
        error, NEAP_NAME,
        "its local \"%s\" is called \"%s\" outside, which is another blob of net \"%s\"", inner,
        name, neap_net_name(b->net));
  }
  return NEAP_OK;
}

/* The body's ops under outer names, between copies of what is bound. */
static neap_status build_body(neap_builder *b, const neap_net_op *op, neap_error *error) {
  const neap_net *body = neap_net_do_body(op);
  NEAP_TRY(copy_bound(b, op, false, error));
  b->stream++; /* the Do's own */
  for (int i = 0; i < neap_net_n_ops(body); i++) {
    /* A copy that lends the op's lists: the body itself is not changed. */
    neap_net_op inner = *neap_net_op_at(body, i);
    inner.in = renamed(b, op, inner.n_in, inner.in);
    inner.out = renamed(b, op, inner.n_out, inner.out);
    inner.name = neap_net_do_local(op, inner.name);
    inner.scope = scope_path(op, inner.scope);
    /* A label of the Do is one of all that it runs. */
    if (inner.device[0] == '\0') inner.device = op->device;
    if (inner.in == NULL || inner.out == NULL || inner.name == NULL || inner.scope == NULL)
      return graph_no_memory(error);
    /* Behind the net's last op, for passes: what follows in this net is not known here. */
    NEAP_TRY(build_op(b, &inner, neap_net_n_ops(b->net), error));
  }
  return copy_bound(b, op, true, error);
}

/* No rewrite in between: it judges who may still read a value by the net's own ops, and those of
 * the body are not there. */
neap_status graph_expand_do(neap_builder *b, const neap_net_op *op, neap_error *error) {
  neap_error inner = {0};
  const neap_pass *passes = b->passes;
  b->passes = NULL;
  neap_status status = check_free(b, op, &inner);
  if (status == NEAP_OK) status = build_body(b, op, &inner);
  b->passes = passes;
  return status == NEAP_OK
           ? NEAP_OK
           : graph_locate(error, &inner, op->op->name, op->name, op->scope, op->line);
}

bool graph_do_may_read(const neap_builder *b, const char *name, int next_op) {
  for (int i = next_op; i < neap_net_n_ops(b->net); i++) {
    const neap_net_op *op = neap_net_op_at(b->net, i);
    if (neap_net_do_body(op) == NULL) continue;
    const char *frame = neap_net_do_local(op, "");
    /* in doubt: it may */
    if (frame == NULL || strncmp(name, frame, strlen(frame)) == 0) return true;
  }
  return false;
}
