/* frame.c: forwarded names, and the child workspaces that see nothing else: the frames of a scope.
 *
 * A forwarded name is a pair of names, looked up whenever it is used: nothing is copied, and a blob
 * of the parent that is removed is gone from here too. An own blob of the same name hides it.
 * INVARIANT: forward_name has no name twice.
 */
#include "workspace/workspace_int.h"

#include <stdio.h>
#include <string.h>

static neap_status refused(neap_error *error) {
  return neap_fail_memory(error, sizeof(char *), "a forwarded name");
}

/* Index of a forwarded name, interned; -1: not forwarded. A walk: a frame has a few. */
static int forward_of(const neap_workspace *ws, const char *key) {
  for (int i = 0; i < ws->n_forward; i++)
    if (ws->forward_name[i] == key) return i;
  return -1;
}

neap_status neap_workspace_check_forward(const neap_workspace *ws, const char *name,
                                         const char *target, neap_error *error) {
  const char *key = neap_intern(name);
  if (key == NULL) return refused(error);
  if (ws->parent == NULL)
    return neap_fail(error, NEAP_ARGUMENT,
                     "workspace: names can be forwarded to a parent only, and there is none");
  NEAP_TRY(neap_net_check_name("blob", name, error));

  /* The same forward twice is no error: a block that is entered again binds what it bound
   * before. */
  int i = forward_of(ws, key);
  if (i >= 0 && strcmp(ws->forward_target[i], target) == 0) return NEAP_OK;
  if (i >= 0)
    return neap_fail(error, NEAP_NAME, "workspace: \"%s\" is forwarded to both \"%s\" and \"%s\"",
                     name, ws->forward_target[i], target);

  /* An own blob would hide the parent's, so nobody would ever reach it. */
  if (neap_map_get(&ws->index, key, -1) >= 0)
    return neap_fail(error, NEAP_NAME,
                     "workspace: \"%s\" can't be forwarded to \"%s\": it is a blob here", name,
                     target);
  if (!neap_workspace_has(ws->parent, target))
    return neap_workspace_fail_unknown(ws->parent, "forward", target, error);
  return NEAP_OK;
}

/* Both lists have room before either gets its entry: a refusal leaves the names as they were. */
neap_status neap_workspace_forward(neap_workspace *ws, const char *name, const char *target,
                                   bool skip, neap_error *error) {
  const char *key = neap_intern(name), *there = neap_intern(target);
  if (key == NULL || there == NULL) return refused(error);
  if (skip && neap_map_get(&ws->index, key, -1) >= 0) return NEAP_OK;
  NEAP_TRY(neap_workspace_check_forward(ws, name, target, error));
  if (forward_of(ws, key) >= 0) return NEAP_OK;

  int cap = ws->cap_forward; /* both lists grow together */
  if (!neap_list_grow(&ws->forward_name, &cap, ws->n_forward + 1, sizeof *ws->forward_name))
    return refused(error);
  cap = ws->cap_forward;
  if (!neap_list_grow(&ws->forward_target, &cap, ws->n_forward + 1, sizeof *ws->forward_target))
    return refused(error);
  ws->cap_forward = cap;
  ws->forward_name[ws->n_forward] = key;
  ws->forward_target[ws->n_forward++] = there;
  ws->version++;
  return NEAP_OK;
}

neap_status neap_workspace_add_forwards(neap_workspace *ws, int n, const char *const *name,
                                        const char *const *target, neap_error *error) {
  for (int i = 0; i < n; i++)
    NEAP_TRY(neap_workspace_forward(ws, name[i], target[i], false, error));
  return NEAP_OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* The copy of one forwarded name, unless an own blob hides it: then *out stays empty. */
static neap_status copy_one(neap_workspace *ws, int i, neap_tensor *out, neap_error *error) {
  if (neap_map_get(&ws->index, ws->forward_name[i], -1) >= 0) return NEAP_OK;
  neap_found found = neap_workspace_find(ws, ws->forward_name[i]);
  if (found.ws == NULL)
    return neap_workspace_fail_unknown(ws, "copy_forwarded", ws->forward_name[i], error);
  const neap_cell *cell = &found.ws->cell[found.cell];
  neap_blob_kind kind = neap_cell_kind(cell);
  if (kind == NEAP_BLOB_STRING || kind == NEAP_BLOB_SCOPE)
    return neap_workspace_fail_kind("copy_forwarded", ws->forward_name[i], kind, error);
  return kind == NEAP_BLOB_EMPTY ? NEAP_OK : neap_workspace_copy_in(&cell->tensor, out, error);
}

/* Copies, then names, then both together, so that a refusal leaves the workspace as it was. */
neap_status neap_workspace_copy_forwarded(neap_workspace *ws, neap_error *error) {
  int n = ws->n_forward, n_before = ws->n_cell;
  if (n == 0) return NEAP_OK;
  neap_tensor *copy = neap_alloc_zeroed((size_t)n * sizeof *copy);
  if (copy == NULL) return refused(error);

  /* All that may be refused: the copies, then a cell for each. */
  neap_status status = NEAP_OK;
  for (int i = 0; i < n; i++) {
    status = copy_one(ws, i, &copy[i], error);
    if (status != NEAP_OK) goto fail;
  }
  for (int i = 0; i < n; i++) {
    if (copy[i].storage == NULL || neap_workspace_add_cell(ws, ws->forward_name[i]) >= 0) continue;
    status = refused(error);
    goto fail;
  }

  /* Nothing is refused from here on. */
  for (int i = 0; i < n; i++) {
    if (copy[i].storage == NULL) continue;
    neap_cell *cell = &ws->cell[neap_map_get(&ws->index, ws->forward_name[i], -1)];
    cell->tensor = copy[i];
    cell->filled = true;
    cell->fed_run = ws->n_run;
  }
  neap_free(copy);
  return NEAP_OK;
fail:
  while (ws->n_cell > n_before) neap_workspace_drop_cell(ws, ws->n_cell - 1);
  for (int i = 0; i < n; i++) neap_tensor_fini(&copy[i]);
  neap_free(copy);
  return status;
}

/* ---- frames ---------------------------------------------------------------------------------- */

neap_status neap_workspace_new_frame(neap_workspace *parent, int index, int n,
                                     const char *const *name, const char *const *target,
                                     neap_workspace **out, neap_error *error) {
  neap_workspace_options options = {.seed = parent->seed + (uint64_t)index,
                                    .parent = parent,
                                    .forwards_only = true,
                                    .n_forward = n,
                                    .forward_name = name,
                                    .forward_target = target};
  NEAP_TRY(neap_workspace_new(&options, out, error));

  /* Its step and its way of drawing are the parent's; the seed differs by its place in the
   * stack. */
  neap_workspace *frame = *out;
  frame->step = parent->step;
  frame->draws_by_thread = parent->draws_by_thread;
  frame->poison = parent->poison;
  frame->next_frame = parent->first_frame;
  parent->first_frame = frame;
  frame->is_frame = true;

  neap_workspace_release(parent); /* a frame does not keep its parent, which may own it */
  return NEAP_OK;
}

/* Targets are looked at first: a NAME error leaves the frame as it was. Parameters and state stay
 * filled: they outlast a visit. */
neap_status neap_workspace_rebind(neap_workspace *frame, int n, const char *const *name,
                                  const char *const *target, neap_error *error) {
  for (int i = 0; i < n; i++)
    if (frame->parent == NULL || !neap_workspace_has(frame->parent, target[i]))
      return neap_fail(error, NEAP_NAME,
                       "scope: \"%s\" can't be bound: the workspace has no blob \"%s\"", name[i],
                       target[i]);

  frame->n_forward = 0; /* the lists keep their room; names of the first push fit */
  for (int i = 0; i < n; i++) {
    (void)neap_workspace_remove(frame, name[i]);
    NEAP_TRY(neap_workspace_forward(frame, name[i], target[i], false, error));
  }

  /* Locals keep their bytes, and with them what programs of the frame point to, but no value. */
  for (int c = 0; c < frame->n_cell; c++) {
    neap_cell *cell = &frame->cell[c];
    if (cell->role != NEAP_ROLE_PARAMETER && cell->role != NEAP_ROLE_STATE) cell->filled = false;
  }
  frame->last = NULL; /* what its programs left in the arena was of another visit */
  frame->step = frame->parent != NULL ? frame->parent->step : frame->step;
  frame->version++;
  return NEAP_OK;
}

void neap_workspace_orphan_frames(neap_workspace *ws) {
  for (neap_workspace *frame = ws->first_frame; frame != NULL; frame = frame->next_frame)
    frame->parent = NULL;
  ws->first_frame = NULL;

  /* And where this is a frame itself, it leaves the list of its parent, if that is still there. */
  if (!ws->is_frame || ws->parent == NULL) return;
  neap_workspace **at = &ws->parent->first_frame;
  while (*at != ws) at = &(*at)->next_frame;
  *at = ws->next_frame;
}
