/* mark.c: what a call is about to change in a workspace, so that it can be put back when the call
 * fails.
 *
 * A mark is a list of cells as they were. It holds references of their bytes, so that a cell that
 * gets others gets its own back; a blob that is about to be fed, or written by a run, has a copy of
 * its contents besides, since that is done where the bytes are. (One run that fails puts back by
 * itself what it has written: undo.c.)
 * INVARIANT: putting back needs no memory but for blobs that were removed in between.
 */
#include "workspace/workspace_int.h"

#include <string.h>

typedef struct marked {
  neap_workspace *ws; /* retained; that of the mark, or one above it */
  /* its tensor is a reference of the mark's; strings and scopes stay with the cell */
  neap_cell was;
  neap_tensor contents; /* a copy; {0}: none was made */
} marked;

struct neap_workspace_mark {
  neap_workspace *ws; /* retained */
  bool all;           /* every own blob is marked: what is there besides has been made since */
  int n, cap;
  marked *item;
};

static neap_status refused(neap_error *error) {
  return neap_fail_memory(error, sizeof(marked), "notes about a workspace");
}

/* What is going to be done with the blob. */
typedef enum change { REPLACED, FED, WRITTEN } change;

static neap_status add(neap_workspace_mark *mark, neap_found found, change how, neap_error *error) {
  if (!neap_list_grow(&mark->item, &mark->cap, mark->n + 1, sizeof *mark->item))
    return refused(error);
  marked item = {.ws = found.ws, .was = found.ws->cell[found.cell]};
  item.was.text = NULL;
  item.was.scope = NULL;

  /* The reference keeps the bytes from going; a copy keeps their contents where they are about to
   * be written. */
  if (item.was.tensor.storage != NULL) {
    /* Bytes that nobody has written need no copy; those of the user's own are never written by
     * feeding. */
    bool copies = how == WRITTEN || (how == FED && !item.was.is_shared);
    if (copies && item.was.filled)
      NEAP_TRY(neap_workspace_copy_in(&item.was.tensor, &item.contents, error));
    item.was.tensor = neap_tensor_retain(&item.was.tensor);
  }
  item.ws = neap_workspace_retain(found.ws);
  mark->item[mark->n++] = item;
  return NEAP_OK;
}

neap_status neap_workspace_mark_new(neap_workspace *ws, bool all, int n, const char *const *fed,
                                    neap_workspace_mark **out, neap_error *error) {
  neap_workspace_mark *mark = neap_alloc_zeroed(sizeof *mark);
  if (mark == NULL) return refused(error);
  mark->ws = neap_workspace_retain(ws);
  mark->all = all;
  ws->n_mark += all;
  neap_status status = NEAP_OK;
  if (all) {
    for (int c = 0; c < ws->n_cell; c++) {
      status = add(mark, (neap_found){ws, c}, REPLACED, error);
      if (status != NEAP_OK) goto fail;
    }
  }

  /* Blobs that are fed may lie above the workspace; a name that means nothing yet is dropped by the
   * undo. */
  for (int i = 0; i < n; i++) {
    neap_found found = neap_workspace_find(ws, fed[i]);
    if (found.ws == NULL) continue;
    status = add(mark, found, FED, error);
    if (status != NEAP_OK) goto fail;
  }
  *out = mark;
  return NEAP_OK;
fail:
  neap_workspace_mark_free(mark);
  return status;
}

/* Whether a run of the program writes the blob, which lasts. */
static bool is_written(const neap_program_blob *blob) {
  return blob->written && blob->defined_before &&
         (blob->role == NEAP_ROLE_PARAMETER || blob->role == NEAP_ROLE_STATE);
}

neap_status neap_workspace_mark_runs(neap_workspace *ws, int n, neap_program *const *program,
                                     neap_workspace_mark **out, neap_error *error) {
  neap_workspace_mark *mark = NULL;
  neap_status status = NEAP_OK;
  *out = NULL;
  for (int p = 0; p < n; p++)
    for (int b = 0; b < neap_program_n_blobs(program[p]); b++) {
      const neap_program_blob *blob = neap_program_blob_at(program[p], b);
      neap_found found = is_written(blob) ? neap_workspace_find(ws, blob->name) : (neap_found){0};
      if (found.ws == NULL) continue;
      /* Made with the first blob: most nets write none that lasts. */
      if (mark == NULL) status = neap_workspace_mark_new(ws, false, 0, NULL, &mark, error);
      if (status == NEAP_OK) status = add(mark, found, WRITTEN, error);
      if (status != NEAP_OK) {
        neap_workspace_mark_free(mark);
        return status;
      }
    }
  *out = mark;
  return NEAP_OK;
}

/* Programs that point to the bytes need not look them up again. */
static bool has_same_bytes(const neap_cell *a, const neap_cell *b) {
  neap_type x = neap_tensor_type(&a->tensor), y = neap_tensor_type(&b->tensor);
  return a->tensor.storage == b->tensor.storage &&
         a->tensor.offset_bytes == b->tensor.offset_bytes && neap_type_equal(&x, &y);
}

/* A cell of the same name gets what it was; with contents after bytes, since both may be marked. */
static void put_back(marked *item) {
  neap_workspace *ws = item->ws;
  int at = neap_map_get(&ws->index, item->was.name, -1);

  /* A blob that was removed comes back; if memory is refused for its name it is lost. */
  if (at < 0) at = neap_workspace_add_cell(ws, item->was.name);
  if (at < 0) return;

  neap_cell *cell = &ws->cell[at];
  if (cell->text != NULL || cell->scope != NULL) return;
  if (!has_same_bytes(cell, &item->was)) ws->version++;

  neap_tensor left = cell->left; /* a place in a segment is the cell's own, whatever happens */
  neap_tensor_fini(&cell->tensor);
  *cell = item->was;
  cell->left = left;
  item->was.tensor = (neap_tensor){0};
  neap_error none = {0};

  /* of one type */
  if (item->contents.storage != NULL) (void)neap_tensor_copy(&cell->tensor, &item->contents, &none);
}

static bool is_marked(const neap_workspace_mark *mark, const char *name) {
  for (int i = 0; i < mark->n; i++)
    if (mark->item[i].ws == mark->ws && mark->item[i].was.name == name) return true;
  return false;
}

static bool is_among(int n, const char *const *list, const char *name) {
  for (int i = 0; i < n; i++)
    if (strcmp(list[i], name) == 0) return true;
  return false;
}

void neap_workspace_mark_undo(neap_workspace_mark *mark, int n, const char *const *fed) {
  if (mark == NULL) return;
  neap_workspace *ws = mark->ws;
  /* Cells that have come since go: from the end, since a drop moves the last cell here. */
  for (int c = ws->n_cell - 1; c >= 0; c--) {
    const char *name = ws->cell[c].name;
    bool may_be_new = mark->all || is_among(n, fed, name);
    if (may_be_new && !is_marked(mark, name)) neap_workspace_drop_cell(ws, c);
  }
  for (int i = 0; i < mark->n; i++) put_back(&mark->item[i]);
}

void neap_workspace_mark_free(neap_workspace_mark *mark) {
  if (mark == NULL) return;
  for (int i = 0; i < mark->n; i++) {
    neap_tensor_fini(&mark->item[i].was.tensor);
    neap_tensor_fini(&mark->item[i].contents);
    neap_workspace_release(mark->item[i].ws);
  }
  neap_free(mark->item);
  mark->ws->n_mark -= mark->all;
  neap_workspace_release(mark->ws);
  neap_free(mark);
}
