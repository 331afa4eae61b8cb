/* resident.c: the blobs that a program has with bytes of their own: found by name in the workspace
 * and above it, or made.
 *
 * Making has three steps, of which only the last changes the workspace: every blob is checked and
 * bytes for the missing ones are taken; blobs that are there get room for the largest batch of a
 * range; the new bytes go to cells, old or new.
 *
 * INVARIANT: the gradients that one program makes lie in one segment; every other blob has storage
 * of its own.
 * INVARIANT: a blob of another type than the program's is replaced only where it is the workspace's
 * own, in no segment, and the program writes it before it reads it; one that the program neither
 * reads nor writes, only where nobody has filled it.
 */
#include "workspace/workspace_int.h"

#include <stdio.h>
#include <string.h>

static neap_status refused(neap_error *error, size_t bytes) {
  return neap_fail_memory(error, bytes, "attaching a program");
}

/* Whether an earlier blob of the program has the name of blob b. */
static bool is_taken(neap_program *program, int b) {
  for (int c = 0; c < b; c++)
    if (neap_program_blob_at(program, c)->name == neap_program_blob_at(program, b)->name)
      return true;
  return false;
}

neap_status neap_resident_name(neap_program *program, neap_attachment *a, neap_error *error) {
  for (int b = 0; b < neap_program_n_blobs(program); b++) {
    const char *name = neap_program_blob_at(program, b)->name;
    a->name[b] = is_taken(program, b) ? neap_intern_format("%s'%d", name, b) : neap_intern(name);
    if (a->name[b] == NULL) return refused(error, strlen(name));
  }
  return NEAP_OK;
}

/* Whether the program may have bytes of its own type under the name of a blob that is there: it
 * only writes it, or nobody has and it reads nothing of it. */
static bool may_replace(const neap_program_blob *blob, const neap_cell *cell) {
  return !blob->defined_before && (blob->written || !cell->filled);
}

bool neap_resident_is_missing(const neap_workspace *ws, const neap_program_blob *blob,
                              neap_found found) {
  if (found.ws == NULL) return true;
  const neap_cell *cell = &found.ws->cell[found.cell];
  if (cell->tensor.storage == NULL) return true;
  /* Bytes of another type are as good as none where the program may have its own instead. */
  neap_type has = neap_tensor_type(&cell->tensor);
  if (neap_type_equal(&has, &blob->type)) return false;
  bool is_own = found.ws == ws && !cell->in_segment;
  return is_own && may_replace(blob, cell) && !neap_workspace_has_room(cell, &blob->type);
}

bool neap_resident_may_retype(const neap_workspace *ws, const neap_program_blob *blob,
                              neap_found found) {
  const neap_cell *cell = &found.ws->cell[found.cell];
  return found.ws == ws && may_replace(blob, cell) && neap_workspace_has_room(cell, &blob->type);
}

/* Types of blobs that exist must fit; parameters and state that are read must exist already. */
static neap_status check_blob(const neap_workspace *ws, const neap_program *program,
                              const neap_program_blob *blob, neap_found found, neap_error *error) {
  neap_blob_kind kind =
    found.ws != NULL ? neap_cell_kind(&found.ws->cell[found.cell]) : NEAP_BLOB_EMPTY;
  if (kind != NEAP_BLOB_EMPTY && kind != NEAP_BLOB_TENSOR && blob->defined_before)
    return neap_workspace_fail_kind(neap_program_graph(program)->name, blob->name, kind, error);

  /* A missing blob is made, but for parameters and state that are read first: nobody knows them. */
  if (neap_resident_is_missing(ws, blob, found)) {
    if (blob->role != NEAP_ROLE_PARAMETER && blob->role != NEAP_ROLE_STATE) return NEAP_OK;
    if (found.ws != NULL || !blob->defined_before) return NEAP_OK;
    if (error != NULL && error->code == NEAP_OK)
      snprintf(error->blob, sizeof error->blob, "%s", blob->name);
    neap_fail(error, NEAP_NAME, "net \"%s\": %s \"%s\" is not in the workspace",
              neap_program_graph(program)->name, neap_role_name(blob->role), blob->name);
    neap_hint(error, "ws:init(net) makes and fills what a net declares");
    return NEAP_NAME;
  }

  /* It is there. An input may be fed anew for each run, and what may be retyped gets the program's
   * type, so neither is compared now. */
  const neap_tensor *t = &found.ws->cell[found.cell].tensor;
  bool is_given = blob->defined_before || !blob->written;
  if ((blob->role == NEAP_ROLE_INPUT && is_given) || neap_resident_may_retype(ws, blob, found))
    return NEAP_OK; /* looked at before the run */
  neap_type has = neap_tensor_type(t);
  if (neap_type_equal(&has, &blob->type)) return NEAP_OK;
  return neap_workspace_fail_type("attach", blob->name, &blob->type, &has, error);
}

bool neap_resident_is_given_back(const neap_workspace *ws, const neap_attachment *a, int b) {
  const neap_program_blob *blob = neap_program_blob_at(a->program, b);
  if (blob->region != NEAP_REGION_GRADIENT || blob->defined_before) return false;
  neap_found found = neap_workspace_find(ws, a->name[b]);
  return found.ws == NULL || neap_cell_kind(&found.ws->cell[found.cell]) == NEAP_BLOB_EMPTY;
}

neap_status neap_resident_make_one(const neap_workspace *ws, neap_program *program, int b,
                                   const char *bank, neap_tensor *out, neap_error *error) {
  const neap_program_blob *blob = neap_program_blob_at(program, b);
  if (bank == NULL) {
    NEAP_TRY(neap_workspace_make_room(1, &blob->type, &blob->reserve_bytes, out, error));
    /* frames have records that no iteration may reach, and gaps */
    if (blob->type.dtype == NEAP_DTYPE_U8)
      neap_clear_bytes(neap_storage_data(out->storage), neap_storage_bytes(out->storage));
    return NEAP_OK;
  }
  char who[300];
  snprintf(who, sizeof who, "net \"%.140s\": \"%.140s\"", neap_program_graph(program)->name,
           blob->name);
  return neap_workspace_make_in_bank(ws, who, bank, &blob->type, blob->reserve_bytes, out, error);
}

/* The bank that a blob of the workspace is assigned to; NULL: main, or it is not the workspace's.
 * Gradients keep to their segment. */
static const char *bank_of(const neap_workspace *ws, const neap_program_blob *blob,
                           neap_found found) {
  return found.ws == ws && blob->region != NEAP_REGION_GRADIENT ? ws->cell[found.cell].bank : NULL;
}

neap_status neap_resident_make(neap_workspace *ws, neap_program *program, const neap_attachment *a,
                               bool given_back, neap_tensor *fresh, neap_error *error) {
  int n = neap_program_n_blobs(program), n_gradient = 0;
  neap_type *type = neap_alloc((size_t)n * sizeof *type);
  size_t *room = neap_alloc_zeroed((size_t)n * sizeof *room); /* of the gradients */
  int *blob_of = neap_alloc((size_t)n * sizeof *blob_of);     /* likewise */
  neap_tensor *view = neap_alloc_zeroed((size_t)n * sizeof *view);
  neap_status status = NEAP_OK;
  if (type == NULL || view == NULL || room == NULL || blob_of == NULL) {
    status = refused(error, (size_t)n * sizeof *view);
    goto done;
  }

  /* Each missing blob gets bytes of its own; gradients are only noted. */
  for (int b = 0; b < n; b++) {
    const neap_program_blob *blob = neap_program_blob_at(program, b);
    neap_found found = neap_workspace_find(ws, a->name[b]);
    if (given_back && !neap_resident_is_given_back(ws, a, b)) continue;
    status = check_blob(ws, program, blob, found, error);
    if (status != NEAP_OK) goto done;
    if (!neap_resident_is_missing(ws, blob, found)) continue;
    if (blob->region == NEAP_REGION_GRADIENT) {
      type[n_gradient] = blob->type;
      room[n_gradient] = blob->reserve_bytes;
      blob_of[n_gradient++] = b;
      continue;
    }
    status = neap_resident_make_one(ws, program, b, bank_of(ws, blob, found), &fresh[b], error);
    if (status != NEAP_OK) goto done;
  }

  /* They lie in one segment, so it is made when all are known. */
  if (n_gradient == 0) goto done;
  status = neap_workspace_make_room(n_gradient, type, room, view, error);
  if (status != NEAP_OK) goto done;
  for (int g = 0; g < n_gradient; g++) fresh[blob_of[g]] = view[g];
done:
  neap_free(blob_of);
  neap_free(type);
  neap_free(room);
  neap_free(view);
  return status;
}

/* Programs that hold the old bytes of a cell see the new ones: else they would keep the old ones
 * alive until their next run. */
static void follow_move(neap_workspace *ws, const neap_storage *from, const neap_tensor *to) {
  for (int a = 0; a < ws->n_attachment; a++)
    for (int b = 0; b < neap_program_n_blobs(ws->attachment[a].program); b++) {
      neap_tensor *t = &ws->attachment[a].tensor[b];
      if (t->storage != from) continue;
      neap_tensor moved = neap_tensor_view(to->storage, to->offset_bytes, t->dtype, &t->shape);
      neap_tensor_fini(t);
      *t = moved;
    }
}

/* A larger place for an own cell, with the same contents, and of the same type as before. */
static neap_status enlarge(neap_workspace *ws, neap_program *program, int b, neap_cell *cell,
                           neap_error *error) {
  /* Of the bytes that are made for the program's type, those that are there now are seen in
   * theirs. */
  neap_tensor made = {0};
  NEAP_TRY(neap_resident_make_one(ws, program, b, cell->bank, &made, error));
  neap_type type = neap_tensor_type(&cell->tensor);
  neap_tensor roomy = neap_tensor_view(made.storage, 0, type.dtype, &type.shape);
  neap_tensor_fini(&made);
  size_t old_bytes = neap_storage_bytes(cell->tensor.storage),
         new_bytes = neap_storage_bytes(roomy.storage);
  neap_copy_bytes(neap_storage_data(roomy.storage), neap_storage_data(cell->tensor.storage),
                  NEAP_MIN(old_bytes, new_bytes));

  /* Whoever points to the old bytes points to the new ones, before the old ones go. */
  follow_move(ws, cell->tensor.storage, &roomy);
  neap_tensor_fini(&cell->tensor);
  cell->tensor = roomy;
  cell->reserve_bytes = neap_program_blob_at(program, b)->reserve_bytes;
  ws->version++;
  return NEAP_OK;
}

neap_status neap_resident_make_room(neap_workspace *ws, neap_program *program,
                                    const neap_attachment *a, neap_error *error) {
  for (int b = 0; b < neap_program_n_blobs(program); b++) {
    const neap_program_blob *blob = neap_program_blob_at(program, b);
    neap_found found = neap_workspace_find(ws, a->name[b]);
    if (blob->reserve_bytes == 0 || found.ws != ws) continue;

    /* What lies in a segment, is somebody else's, or is a part of other bytes, stays where it
     * is. */
    neap_cell *cell = &ws->cell[found.cell];
    if (cell->tensor.storage == NULL || cell->in_segment || cell->is_shared ||
        cell->reserve_bytes >= blob->reserve_bytes)
      continue;
    if (cell->tensor.offset_bytes != 0 || neap_storage_is_read_only(cell->tensor.storage)) continue;

    /* Bytes that were fed for a larger batch still have the room already. */
    if (neap_storage_bytes(cell->tensor.storage) >= blob->reserve_bytes)
      cell->reserve_bytes = blob->reserve_bytes;
    else
      NEAP_TRY(enlarge(ws, program, b, cell, error));
  }
  return NEAP_OK;
}

neap_status neap_resident_publish(neap_workspace *ws, neap_program *program,
                                  const neap_attachment *a, neap_tensor *fresh, neap_error *error) {
  int n_before = ws->n_cell, n = neap_program_n_blobs(program);

  /* Names first: they can be refused, and taken back. */
  for (int b = 0; b < n; b++) {
    if (fresh[b].storage == NULL || neap_workspace_find(ws, a->name[b]).ws != NULL) continue;
    if (neap_workspace_add_cell(ws, a->name[b]) >= 0) continue;
    while (ws->n_cell > n_before) neap_workspace_drop_cell(ws, ws->n_cell - 1);
    return refused(error, sizeof(neap_cell));
  }

  /* Then the bytes, which can't be refused. */
  for (int b = 0; b < n; b++) {
    const neap_program_blob *blob = neap_program_blob_at(program, b);
    if (fresh[b].storage == NULL) continue;
    neap_found found = neap_workspace_find(ws, a->name[b]);
    neap_cell *cell = &found.ws->cell[found.cell];
    const char *bank = bank_of(found.ws, blob, found);

    /* Another program may have left bytes under this name: it goes to the new ones, too. */
    neap_workspace_leave_bytes(found.ws, cell);
    neap_cell_clear(cell);
    *cell = (neap_cell){.name = cell->name,
                        .bank = bank,
                        .role = blob->role,
                        .region = blob->region,
                        .tensor = fresh[b],
                        .in_segment = blob->region == NEAP_REGION_GRADIENT,
                        .reserve_bytes = blob->reserve_bytes};
    fresh[b] = (neap_tensor){0};
    found.ws->version++;
  }
  return NEAP_OK;
}
