/* segment.c: segments of resident tensors, and init: the blobs a net declares, made and filled.
 *
 * INVARIANT: a segment is one allocation; its tensors lie one after another, each rounded up to
 * NEAP_ALIGN, as forecasts count them (neap_graph_region_bytes). It lives as long as any view of
 * it.
 */
#include "workspace/workspace_int.h"

#include <string.h>

/* Owned by its views: each holds a reference. MEMORY error when refused, and no view is made. */
neap_status neap_workspace_make_segment(int n, const neap_type *type, neap_tensor *view,
                                        neap_error *error) {
  return neap_workspace_make_room(n, type, NULL, view, error);
}

/* Bytes for tensor i: its own, or what is asked for where that is more. `room` may be NULL. */
static size_t room_of(int i, const neap_type *type, const size_t *room) {
  size_t bytes = neap_type_bytes(&type[i]);
  return room != NULL ? NEAP_MAX(bytes, room[i]) : bytes;
}

neap_status neap_workspace_make_room(int n, const neap_type *type, const size_t *room,
                                     neap_tensor *view, neap_error *error) {
  size_t bytes = 0;
  for (int i = 0; i < n; i++) {
    size_t one = room_of(i, type, room);
    /* So far from the largest size that neither sum nor alignment can wrap around. */
    if (one > SIZE_MAX / 4 || bytes > SIZE_MAX / 4)
      return neap_fail_memory(error, SIZE_MAX, "a segment");
    bytes += neap_align(one);
  }

  neap_storage *storage = neap_storage_new(bytes);
  if (storage == NULL) return neap_fail_memory(error, bytes, "a segment");

  /* One after another, as the sum above has counted them. */
  int64_t at = 0;
  for (int i = 0; i < n; i++) {
    view[i] = neap_tensor_view(storage, at, type[i].dtype, &type[i].shape);
    at += (int64_t)neap_align(room_of(i, type, room));
  }
  NEAP_ASSERT((size_t)at == bytes, "the tensors of a segment fill its %zu bytes: %lld", bytes,
              (long long)at);
  neap_storage_release(storage); /* the views keep it */
  return NEAP_OK;
}

bool neap_workspace_has_room(const neap_cell *cell, const neap_type *type) {
  const neap_tensor *t = &cell->tensor;
  if (t->storage == NULL || cell->is_shared || neap_type_bytes(type) > cell->reserve_bytes)
    return false;
  /* other bytes may have come since */
  return (size_t)t->offset_bytes + neap_type_bytes(type) <= neap_storage_bytes(t->storage);
}

void neap_workspace_retype(neap_workspace *owner, neap_cell *cell, const neap_type *type) {
  neap_tensor view =
    neap_tensor_view(cell->tensor.storage, cell->tensor.offset_bytes, type->dtype, &type->shape);
  neap_tensor_fini(&cell->tensor);
  cell->tensor = view;
  cell->filled = false;
  owner->version++;
}

/* Of any strides; the copy is dense. */
neap_status neap_workspace_copy_in(const neap_tensor *tensor, neap_tensor *out, neap_error *error) {
  neap_type type = neap_tensor_type(tensor);
  NEAP_TRY(neap_workspace_make_segment(1, &type, out, error));
  neap_status status = neap_tensor_copy(out, tensor, error);
  if (status != NEAP_OK) neap_tensor_fini(out);
  return status;
}

/* Declared blobs of one role that the workspace lacks, and the segment made for them. */
typedef struct batch {
  neap_role role;
  neap_region region;
  int n;
  int *blob; /* index in the net */
  neap_type *type;
  neap_tensor *view;
} batch;

enum { N_BATCH = 3 };

static void drop_views(batch *b) {
  for (int i = 0; i < b->n; i++) neap_tensor_fini(&b->view[i]);
}

/* The blob's type as the net declares it against the one that exists: equal, or an error. */
static neap_status check_existing(neap_found found, const neap_net_blob *blob, neap_error *error) {
  const neap_tensor *t = &found.ws->cell[found.cell].tensor;
  neap_blob_kind kind = neap_cell_kind(&found.ws->cell[found.cell]);
  if (kind == NEAP_BLOB_STRING || kind == NEAP_BLOB_SCOPE)
    return neap_workspace_fail_kind("init", blob->name, kind, error);
  if (t->storage == NULL) return NEAP_OK;
  neap_type has = neap_tensor_type(t);
  if (neap_type_equal(&has, &blob->type)) return NEAP_OK;
  return neap_workspace_fail_type("init", blob->name, &blob->type, &has, error);
}

/* A blob that was created without bytes is as good as missing when it is our own. */
static bool is_missing(const neap_workspace *ws, neap_found found) {
  return found.ws == NULL ||
         (found.ws == ws && neap_cell_kind(&found.ws->cell[found.cell]) == NEAP_BLOB_EMPTY);
}

/* The segment for what is missing; existing blobs must have the declared type. Lists in `room`. */
static neap_status collect(neap_workspace *ws, const neap_net *net, batch *b, neap_arena *room,
                           neap_error *error) {
  size_t n = (size_t)neap_net_n_blobs(net);
  b->blob = neap_arena_alloc(room, n * sizeof *b->blob);
  b->type = neap_arena_alloc(room, n * sizeof *b->type);
  b->view = neap_arena_alloc(room, n * sizeof *b->view);
  if (b->blob == NULL || b->type == NULL || b->view == NULL)
    return neap_fail_memory(error, n * sizeof *b->view, "init");

  /* A blob without a type yet is made by the program that computes it. */
  int missing = 0;
  for (int i = 0; i < (int)n; i++) {
    const neap_net_blob *blob = neap_net_blob_at(net, i);
    if (blob->role != b->role || blob->type.dtype == NEAP_DTYPE_NONE) continue;
    neap_found found = neap_workspace_find(ws, blob->name);
    /* What is there must be of the declared type; what isn't gets a place in the segment. */
    if (!is_missing(ws, found)) {
      NEAP_TRY(check_existing(found, blob, error));
      continue;
    }
    b->blob[missing] = i;
    b->type[missing++] = blob->type;
  }
  if (missing == 0) return NEAP_OK;

  /* One allocation for all, whose sizes are known by now. */
  NEAP_TRY(neap_workspace_make_segment(missing, b->type, b->view, error));
  b->n = missing;
  return NEAP_OK;
}

/* Streams are stable by name, so that adding a layer does not change what the others start with. */
static uint32_t stream_of(const char *name) {
  return (uint32_t)neap_hash_bytes(name, strlen(name)).low;
}

/* The op's output must be of the declared type: an init op with a shape of its own is a SHAPE error
 * here, not a write out of bounds. */
static neap_status fill(const neap_workspace *ws, const neap_net_op *op, const neap_net_blob *blob,
                        const neap_tensor *view, neap_error *error) {
  neap_single *single;
  neap_single_options options = {
    .op = op->op, .attrs = op->attrs, .n_out = 1, .n_thread = neap_threads()};
  NEAP_TRY(neap_single_new(&options, &single, error));
  neap_status status = NEAP_OK;
  void *scratch = NULL;

  /* What the op makes must be what the net declares, or it would write out of bounds. */
  if (!neap_type_equal(neap_single_out_type(single, 0), &blob->type))
    status = neap_workspace_fail_type("init", blob->name, &blob->type,
                                      neap_single_out_type(single, 0), error);

  /* The stream goes by the blob's name, and the workspace's seed makes its numbers this workspace's
   * own. */
  size_t scratch_bytes = neap_single_scratch_bytes(single);
  if (status == NEAP_OK && scratch_bytes > 0) {
    scratch = neap_alloc_data(scratch_bytes);
    if (scratch == NULL)
      status = neap_fail_memory(error, scratch_bytes, "an initialiser's scratch");
  }
  if (status == NEAP_OK)
    status = neap_single_run(single, NULL, (void *[]){neap_tensor_data(view)}, scratch, ws->seed,
                             stream_of(blob->name), 0, error);
  neap_free(scratch);
  neap_single_free(single);
  return status;
}

/* A blob without an init op stays unfilled until it is fed or loaded. */
static neap_status fill_all(const neap_workspace *ws, const neap_net *net, const batch *b,
                            neap_error *error) {
  for (int i = 0; i < b->n; i++) {
    const neap_net_blob *blob = neap_net_blob_at(net, b->blob[i]);
    if (blob->init < 0) continue;
    NEAP_TRY(fill(ws, neap_net_init_at(net, blob->init), blob, &b->view[i], error));
  }
  return NEAP_OK;
}

/* Blobs that are there, but that nobody has written, such as a gradient that a program made room
 * for and has not computed yet: the init op fills their bytes, and with `mark`, which can't fail,
 * they count as filled. */
static neap_status fill_found(const neap_workspace *ws, const neap_net *net, neap_role role,
                              bool mark, neap_error *error) {
  for (int i = 0; i < neap_net_n_blobs(net); i++) {
    const neap_net_blob *blob = neap_net_blob_at(net, i);
    if (blob->role != role || blob->init < 0) continue;
    neap_found found = neap_workspace_find(ws, blob->name);
    neap_cell *cell = found.ws != NULL ? &found.ws->cell[found.cell] : NULL;
    if (cell == NULL || cell->tensor.storage == NULL || cell->filled) continue;
    if (mark)
      cell->filled = true;
    else
      NEAP_TRY(fill(ws, neap_net_init_at(net, blob->init), blob, &cell->tensor, error));
  }
  return NEAP_OK;
}

/* Cells for all names of a batch; what has been added is undone by the caller. */
static neap_status add_names(neap_workspace *ws, const neap_net *net, const batch *b,
                             neap_error *error) {
  for (int i = 0; i < b->n; i++) {
    const char *name = neap_net_blob_at(net, b->blob[i])->name;
    if (neap_map_get(&ws->index, name, -1) < 0 && neap_workspace_add_cell(ws, name) < 0)
      return neap_fail_memory(error, sizeof(neap_cell), "blobs");
  }
  return NEAP_OK;
}

/* Can't fail: names and bytes are there. */
static void move_views(neap_workspace *ws, const neap_net *net, batch *b) {
  for (int i = 0; i < b->n; i++) {
    const neap_net_blob *blob = neap_net_blob_at(net, b->blob[i]);
    neap_cell *cell = &ws->cell[neap_map_get(&ws->index, blob->name, -1)];
    *cell = (neap_cell){.name = cell->name,
                        .role = b->role,
                        .region = b->region,
                        .tensor = b->view[i],
                        .in_segment = true,
                        .filled = blob->init >= 0,
                        .fed_run = ws->n_run};
    b->view[i] = (neap_tensor){0};
  }
  ws->version++;
}

/* A blob that was fed or mapped before the net declared it: from now on it is what the net says,
 * and part of checkpoints. */
static void adopt(neap_workspace *ws, const neap_net *net, const batch *b) {
  for (int i = 0; i < neap_net_n_blobs(net); i++) {
    const neap_net_blob *blob = neap_net_blob_at(net, i);
    int c = blob->role == b->role ? neap_map_get(&ws->index, blob->name, -1) : -1;
    if (c < 0 || ws->cell[c].in_segment || ws->cell[c].tensor.storage == NULL) continue;
    ws->cell[c].role = b->role;
    ws->cell[c].region = b->region;
  }
}

/* All of init that may be refused: segments, what is in them, and names. What it has made is
 * dropped by the caller. */
static neap_status prepare(neap_workspace *ws, const neap_net *net, batch *batches,
                           neap_arena *room, neap_error *error) {
  for (int i = 0; i < N_BATCH; i++) NEAP_TRY(collect(ws, net, &batches[i], room, error));
  for (int i = 0; i < N_BATCH; i++) NEAP_TRY(fill_all(ws, net, &batches[i], error));
  for (int i = 0; i < N_BATCH; i++) NEAP_TRY(fill_found(ws, net, batches[i].role, false, error));
  for (int i = 0; i < N_BATCH; i++) NEAP_TRY(add_names(ws, net, &batches[i], error));
  return NEAP_OK;
}

/* Bytes of what the net declares and the workspace lacks. */
static size_t missing_bytes(const neap_workspace *ws, const neap_net *net) {
  size_t bytes = 0;
  for (int i = 0; i < neap_net_n_blobs(net); i++) {
    const neap_net_blob *blob = neap_net_blob_at(net, i);
    const bool is_declared = blob->role == NEAP_ROLE_PARAMETER || blob->role == NEAP_ROLE_STATE ||
                             blob->role == NEAP_ROLE_GRADIENT;
    if (!is_declared || blob->type.dtype == NEAP_DTYPE_NONE) continue;
    if (is_missing(ws, neap_workspace_find(ws, blob->name)))
      bytes += neap_align(neap_type_bytes(&blob->type));
  }
  return bytes;
}

neap_status neap_workspace_init(neap_workspace *ws, const neap_net *net, neap_error *error) {
  const char *name = neap_net_name(net);
  size_t more = missing_bytes(ws, net);
  if (more > 0)
    NEAP_TRY(neap_workspace_check_total(ws, "init", name != NULL ? name : "net", more, error));
  return neap_workspace_make_declared(ws, net, error);
}

/* Bytes, numbers and names are all there before the first cell changes; until then a failure only
 * drops them. */
neap_status neap_workspace_make_declared(neap_workspace *ws, const neap_net *net,
                                         neap_error *error) {
  batch batches[N_BATCH] = {{.role = NEAP_ROLE_PARAMETER, .region = NEAP_REGION_PARAMETER},
                            {.role = NEAP_ROLE_STATE, .region = NEAP_REGION_STATE},
                            {.role = NEAP_ROLE_GRADIENT, .region = NEAP_REGION_GRADIENT}};
  neap_arena room = {0};
  int n_before = ws->n_cell;
  neap_status status = prepare(ws, net, batches, &room, error);

  /* From here on nothing fails: cells get their bytes, and blobs that were fed before become what
   * the net declares. Cells that were added before a failure go again. */
  if (status == NEAP_OK) {
    for (int i = 0; i < N_BATCH; i++) {
      move_views(ws, net, &batches[i]);
      adopt(ws, net, &batches[i]);
      (void)fill_found(ws, net, batches[i].role, true, NULL);
    }
  } else {
    while (ws->n_cell > n_before) neap_workspace_drop_cell(ws, ws->n_cell - 1);
  }
  for (int i = 0; i < N_BATCH; i++) drop_views(&batches[i]);
  neap_arena_fini(&room);
  return status;
}

/* ---- gradients given back -------------------------------------------------------------------- */

/* Programs of this workspace let go of a storage; they look their blobs up again before they
 * run. */
void neap_workspace_release_from_programs(neap_workspace *ws, const neap_storage *storage) {
  for (int a = 0; a < ws->n_attachment; a++)
    for (int b = 0; b < neap_program_n_blobs(ws->attachment[a].program); b++)
      if (ws->attachment[a].tensor[b].storage == storage)
        neap_tensor_fini(&ws->attachment[a].tensor[b]);
}

/* Two names of one storage, or the others of a segment, still have it. */
void neap_workspace_leave_bytes(neap_workspace *ws, const neap_cell *cell) {
  const neap_storage *storage = cell->tensor.storage;
  if (storage == NULL) return;
  for (int c = 0; c < ws->n_cell; c++)
    if (&ws->cell[c] != cell && ws->cell[c].tensor.storage == storage) return;
  neap_workspace_release_from_programs(ws, storage);
}

bool neap_workspace_holds(const neap_workspace *ws, const neap_storage *storage) {
  for (int c = 0; c < ws->n_cell; c++)
    if (ws->cell[c].tensor.storage == storage) return true;
  return false;
}

/* A storage counts when its last name goes. Views that the user took keep it alive, as with every
 * blob that is removed. */
int64_t neap_workspace_drop_gradients(neap_workspace *ws) {
  size_t bytes = 0;

  /* from the end: a drop moves the last cell here, which has been looked at */
  for (int c = ws->n_cell - 1; c >= 0; c--) {
    neap_storage *storage = ws->cell[c].tensor.storage;
    if (ws->cell[c].region != NEAP_REGION_GRADIENT || storage == NULL) continue;
    /* Its last name may be this one: the reference keeps it until that is known. */
    neap_storage_retain(storage);
    neap_workspace_drop_cell(ws, c);
    if (!neap_workspace_holds(ws, storage)) {
      bytes += neap_storage_bytes(storage);
      neap_workspace_release_from_programs(ws, storage);
    }
    neap_storage_release(storage);
  }
  return (int64_t)bytes;
}
