/* scope.c: the workspace stack: the value of a scope blob.
 *
 * A vector of frames, of which the first n_top are in use. A frame is a child workspace that sees
 * the bound names of its parent and nothing else; its own blobs are the locals. Leaving a frame
 * keeps it and its memory for the next push; trim gives that memory back.
 * INVARIANT: n_top <= n_frame. INVARIANT: the bindings of all pushes are those of the first one,
 * and so are those of all gradients; they are compared every time. Only trim of an empty stack
 * forgets them. A frame is entered as if it were new: bound names lead outside again, and what its
 * locals held counts as not written. The scope owns its frames, a frame does not own its parent:
 * when that ends, bound names lead nowhere.
 */
#include "workspace/workspace_int.h"

#include <stdio.h>
#include <string.h>

typedef struct bindings {
  bool set;
  int n;
  const char **inner, **outer; /* interned */
} bindings;

struct neap_scope {
  _Atomic int n_ref;
  neap_workspace **frame; /* retained */
  int n_frame, cap_frame, n_top;
  /* of all frames; compared, never read; NULL before the first push */
  const neap_workspace *parent;
  bindings forward, gradient;
};

/* ---- life ------------------------------------------------------------------------------------ */

static neap_status refused(neap_error *error) {
  return neap_fail_memory(error, sizeof(neap_scope), "a scope");
}

neap_status neap_scope_new(neap_scope **out, neap_error *error) {
  *out = neap_alloc_zeroed(sizeof **out);
  if (*out == NULL) return refused(error);
  atomic_store(&(*out)->n_ref, 1);
  return NEAP_OK;
}

neap_scope *neap_scope_retain(neap_scope *scope) {
  atomic_fetch_add(&scope->n_ref, 1);
  return scope;
}

static void forget(bindings *b) {
  neap_free((void *)b->inner);
  neap_free((void *)b->outer);
  *b = (bindings){0};
}

void neap_scope_release(neap_scope *scope) {
  if (scope == NULL || atomic_fetch_sub(&scope->n_ref, 1) > 1) return;
  scope->n_top = 0;
  neap_scope_trim(scope);
  neap_free(scope->frame);
  neap_free(scope);
}

/* ---- bindings -------------------------------------------------------------------------------- */

static int position(int n, const char *const *name, const char *key) {
  for (int i = 0; i < n; i++)
    if (strcmp(name[i], key) == 0) return i;
  return -1;
}

/* No name is bound twice: NAME error. Quadratic in the bindings, of which a block has a few. */
static neap_status check_list(int n, const char *const *inner, const char *const *outer,
                              neap_error *error) {
  for (int i = 0; i < n; i++)
    if (position(i, inner, inner[i]) >= 0)
      return neap_fail(error, NEAP_NAME, "scope: \"%s\" is bound to both \"%s\" and \"%s\"",
                       inner[i], outer[position(i, inner, inner[i])], outer[i]);
  return NEAP_OK;
}

/* NAME error unless the n bindings are those of `first`, if that is set. Sets, not lists, are
 * compared: the order of bindings means nothing. As inner names differ, equal counts and each one
 * found there make the sets equal. `what` is for the message. */
static neap_status compare(const bindings *first, int n, const char *const *inner,
                           const char *const *outer, const char *what, neap_error *error) {
  NEAP_TRY(check_list(n, inner, outer, error));
  static const char hint[] = "clear and trim the scope, or take another one for other bindings";
  if (!first->set) return NEAP_OK;

  /* Each of the new ones was there at first.. */
  for (int i = 0; i < n; i++) {
    int at = position(first->n, first->inner, inner[i]);
    if (at >= 0 && strcmp(first->outer[at], outer[i]) == 0) continue;
    neap_fail(error, NEAP_NAME,
              "scope: %s bindings differ from those of the first: \"%s\" is bound to \"%s\", "
              "before to %s%s%s",
              what, inner[i], outer[i], at >= 0 ? "\"" : "nothing", at >= 0 ? first->outer[at] : "",
              at >= 0 ? "\"" : "");
    neap_hint(error, "%s", hint);
    return NEAP_NAME;
  }

  /* .. so with fewer of them some of the first are missing. */
  if (first->n == n) return NEAP_OK;
  int missing = 0;
  while (position(n, inner, first->inner[missing]) >= 0) missing++;
  neap_fail(error, NEAP_NAME,
            "scope: %s bindings differ from those of the first: %d names, before %d with \"%s\"",
            what, n, first->n, first->inner[missing]);
  neap_hint(error, "%s", hint);
  return NEAP_NAME;
}

/* Remembers the first bindings; later ones are compared already. MEMORY error, and then nothing is
 * remembered. */
static neap_status record(bindings *b, int n, const char *const *inner, const char *const *outer,
                          neap_error *error) {
  if (b->set) return NEAP_OK;
  bindings made = {.set = true, .n = n};
  made.inner = neap_alloc_zeroed((size_t)(n + 1) * sizeof *made.inner);
  made.outer = neap_alloc_zeroed((size_t)(n + 1) * sizeof *made.outer);
  if (made.inner == NULL || made.outer == NULL) goto fail;

  /* Interned, since the caller's texts may go before the next push. */
  for (int i = 0; i < n; i++) {
    made.inner[i] = neap_intern(inner[i]);
    made.outer[i] = neap_intern(outer[i]);
    if (made.inner[i] == NULL || made.outer[i] == NULL) goto fail;
  }
  *b = made;
  return NEAP_OK;
fail:
  forget(&made);
  return refused(error);
}

neap_status neap_scope_check_bindings(const neap_scope *scope, bool gradient, int n,
                                      const char *const *inner, const char *const *outer,
                                      neap_error *error) {
  return compare(gradient ? &scope->gradient : &scope->forward, n, inner, outer,
                 gradient ? "gradient" : "forward", error);
}

neap_status neap_scope_check(const neap_scope *scope, neap_error *error) {
  if (scope->n_top >= 0 && scope->n_top <= scope->n_frame) return NEAP_OK;
  return neap_fail(error, NEAP_INTERNAL,
                   "scope: the stack is corrupted: %d frames in use, %d exist", scope->n_top,
                   scope->n_frame);
}

/* ARGUMENT error for another parent than that of the frames that are there: their bound names lead
 * to it. */
static neap_status check_parent(const neap_scope *scope, const neap_workspace *parent,
                                neap_error *error) {
  NEAP_TRY(neap_scope_check(scope, error));
  if (scope->parent == NULL || scope->parent == parent) return NEAP_OK;
  return neap_fail(error, NEAP_ARGUMENT,
                   "scope: its frames are children of another workspace; the parent can't change");
}

/* Every outer name must mean something before anything is changed. */
static neap_status check_targets(const neap_workspace *parent, int n, const char *const *outer,
                                 neap_error *error) {
  for (int i = 0; i < n; i++)
    if (!neap_workspace_has(parent, outer[i]))
      return neap_workspace_fail_unknown(parent, "bind", outer[i], error);
  return NEAP_OK;
}

/* ---- the stack ------------------------------------------------------------------------------- */

/* frame[n_top] is ready to be entered: one that is there is made as good as new; else one is made.
 * n_top stays. */
static neap_status next_frame(neap_scope *scope, neap_workspace *parent, int n,
                              const char *const *inner, const char *const *outer,
                              neap_error *error) {
  if (scope->n_top < scope->n_frame)
    return neap_workspace_rebind(scope->frame[scope->n_top], n, inner, outer, error);

  /* Its number makes its random numbers differ from those of the frames below. */
  if (!neap_list_grow(&scope->frame, &scope->cap_frame, scope->n_frame + 1, sizeof *scope->frame))
    return refused(error);
  NEAP_TRY(neap_workspace_new_frame(parent, scope->n_frame, n, inner, outer,
                                    &scope->frame[scope->n_frame], error));
  scope->n_frame++;
  return NEAP_OK;
}

neap_status neap_scope_push(neap_scope *scope, neap_workspace *parent, int n,
                            const char *const *inner, const char *const *outer,
                            neap_workspace **out, neap_error *error) {
  *out = NULL;
  NEAP_TRY(check_parent(scope, parent, error));
  NEAP_TRY(neap_scope_check_bindings(scope, false, n, inner, outer, error));
  /* What can be wrong with the bindings is found before the stack changes. */
  NEAP_TRY(check_targets(parent, n, outer, error));
  NEAP_TRY(record(&scope->forward, n, inner, outer, error));
  neap_status status = next_frame(scope, parent, n, inner, outer, error);

  /* A first push that is refused was none: the next one may bind otherwise. */
  if (status != NEAP_OK && scope->n_frame == 0) forget(&scope->forward);
  NEAP_TRY(status);

  scope->parent = parent;
  *out = scope->frame[scope->n_top++];
  NEAP_ASSERT(scope->n_top <= scope->n_frame, "frames in use exist: %d of %d", scope->n_top,
              scope->n_frame);
  return NEAP_OK;
}

/* All conflicts are found before the first name is added. */
neap_status neap_scope_reuse_last(neap_scope *scope, neap_workspace *parent, int n,
                                  const char *const *inner, const char *const *outer,
                                  neap_workspace **out, neap_error *error) {
  *out = NULL;
  NEAP_TRY(check_parent(scope, parent, error));
  if (scope->n_top == 0) return NEAP_OK;
  neap_workspace *top = scope->frame[scope->n_top - 1];
  NEAP_TRY(check_list(n, inner, outer, error));
  NEAP_TRY(check_targets(parent, n, outer, error));

  /* Two walks: the second one can only fail for want of memory. */
  for (int i = 0; i < n; i++)
    NEAP_TRY(neap_workspace_check_forward(top, inner[i], outer[i], error));
  for (int i = 0; i < n; i++)
    NEAP_TRY(neap_workspace_forward(top, inner[i], outer[i], false, error));
  *out = top;
  return NEAP_OK;
}

neap_status neap_scope_pop_gradient(neap_scope *scope, neap_workspace *parent, int n,
                                    const char *const *inner, const char *const *outer,
                                    neap_workspace **out, neap_error *error) {
  *out = NULL;
  NEAP_TRY(check_parent(scope, parent, error));
  if (scope->n_top == 0) return NEAP_OK;
  neap_workspace *top = scope->frame[scope->n_top - 1];
  NEAP_TRY(neap_scope_check_bindings(scope, true, n, inner, outer, error));
  NEAP_TRY(check_targets(parent, n, outer, error));
  NEAP_TRY(record(&scope->gradient, n, inner, outer, error));
  for (int i = 0; i < n; i++)
    /* A name that the frame has already, own or bound otherwise, keeps its meaning: the backward
     * reads what the forward left. */
    if (neap_workspace_check_forward(top, inner[i], outer[i], NULL) == NEAP_OK)
      NEAP_TRY(neap_workspace_forward(top, inner[i], outer[i], true, error));
  scope->n_top--;
  *out = top;
  return NEAP_OK;
}

void neap_scope_clear(neap_scope *scope) { scope->n_top = 0; }
bool neap_scope_empty(const neap_scope *scope) { return scope->n_top == 0; }
int neap_scope_n_frames(const neap_scope *scope) { return scope->n_top; }
int neap_scope_n_kept(const neap_scope *scope) { return scope->n_frame; }

neap_workspace *neap_scope_frame_at(const neap_scope *scope, int index) {
  return index >= 0 && index < scope->n_frame ? scope->frame[index] : NULL;
}

void neap_scope_trim(neap_scope *scope) {
  NEAP_ASSERT(scope->n_top >= 0 && scope->n_top <= scope->n_frame, "frames in use exist: %d of %d",
              scope->n_top, scope->n_frame);
  while (scope->n_frame > scope->n_top) neap_workspace_release(scope->frame[--scope->n_frame]);
  if (scope->n_frame > 0) return;

  /* An empty stack is as good as a new one, and may be bound otherwise. */
  forget(&scope->forward);
  forget(&scope->gradient);
  scope->parent = NULL;
}

size_t neap_scope_held_bytes(const neap_scope *scope) {
  size_t bytes = 0;
  for (int i = 0; i < scope->n_frame; i++) bytes += neap_workspace_held_bytes(scope->frame[i]);
  return bytes;
}
