/* attach.c: programs in a workspace: their resident blobs asked for (resident.c), the arena grown,
 * base pointers set, runs counted.
 *
 * INVARIANT: a run finds every base pointer current and every blob that it reads filled, or it does
 * not start.
 * INVARIANT: a run that fails has not been: what lasts from run to run is as before, and nothing is
 * counted. A run whose names and bytes have not moved walks the program's blobs a few times, and
 * looks up and allocates nothing.
 */
#include "workspace/workspace_int.h"

#include <stdio.h>
#include <string.h>

static neap_status refused(neap_error *error, size_t bytes) {
  return neap_fail_memory(error, bytes, "attaching a program");
}

/* A handful of programs at most: a walk beats a map. */
neap_attachment *neap_workspace_attachment(neap_workspace *ws, const neap_program *program) {
  for (int a = 0; a < ws->n_attachment; a++)
    if (ws->attachment[a].program == program) return &ws->attachment[a];
  return NULL;
}

/* ---- the arena ------------------------------------------------------------------------------- */

/* Whether the program takes its bytes from the pool while it runs, rather than having them planned
 * in the arena. */
static bool takes(const neap_program *program) {
  return neap_program_plan(program)->policy == NEAP_POLICY_POOL;
}

/* "; its largest blob is "b" with 6.0 KiB": what one would look at first. */
static const char *name_largest(const neap_error *refused, char text[160]) {
  char bytes[24];
  text[0] = '\0';
  if (refused->n_blob > 0)
    snprintf(text, 160, "; its largest blob is \"%.80s\" with %s", refused->blobs[0].name,
             neap_bytes_text((double)refused->blobs[0].bytes, bytes));
  return text;
}

/* What the blobs `fresh` will count for once they are the workspace's: see
 * neap_workspace_held_bytes. */
static size_t fresh_bytes(const neap_program *program, const neap_tensor *fresh) {
  if (fresh == NULL) return 0;
  size_t bytes = 0;
  for (int b = 0; b < neap_program_n_blobs(program); b++) {
    const neap_program_blob *blob = neap_program_blob_at((neap_program *)program, b);
    if (fresh[b].storage == NULL) continue;
    bytes += neap_align(NEAP_MAX(neap_type_bytes(&blob->type), blob->reserve_bytes));
  }
  return bytes;
}

/* What the program needs of the arena, which is main where it has banks, or of the pool. */
static size_t arena_need(const neap_program *program) {
  const neap_plan *plan = neap_program_plan(program);
  return plan->n_bank > 0 ? plan->bank[0].bytes : plan->arena_bytes;
}

/* Bytes that the workspace's copies, which programs share, have too few for the program. */
static size_t missing_undo(const neap_workspace *ws, const neap_program *program) {
  size_t need = neap_undo_bytes(program), has = ws->undo != NULL ? neap_storage_bytes(ws->undo) : 0;
  return need > has ? need - has : 0;
}

/* What a program that is attached, or that runs, makes of arena, pool and banks. Arena and pool are
 * two regions, which the programs of a workspace share; each is as large as the largest of its
 * programs needs. */
typedef struct region_need {
  size_t has, want; /* of the region that the program uses, pool or arena: now, and then */
  size_t other;     /* of the other one, which stays as it is */
  size_t banks;     /* of all banks but main, then */
} region_need;

static region_need need_of(const neap_workspace *ws, const neap_program *program) {
  size_t pool = neap_workspace_pool(ws).reserved_bytes;
  region_need need = {.has = takes(program) ? pool : ws->arena_bytes,
                      .other = takes(program) ? ws->arena_bytes : pool,
                      .banks = neap_workspace_bank_bytes(ws, program)};
  need.want = NEAP_MAX(arena_need(program), need.has);
  return need;
}

/* The budget is one on arena, pool and banks together. BUDGET error with the least that would
 * do. */
static neap_status check_budget(const neap_workspace *ws, const neap_program *program,
                                const region_need *need, neap_error *error) {
  size_t beside = need->other + need->banks;
  if (ws->budget_bytes == 0 || need->want + beside <= ws->budget_bytes) return NEAP_OK;

  /* The refusal says what takes room besides, and which of the program's blobs are large. */
  char a[24], b[24], c[24], largest[160], besides[96] = "";
  const char *what = takes(program) ? "an arena" : "a pool";
  if (need->banks > 0) what = "banks";
  if (beside > 0)
    snprintf(besides, sizeof besides, ", beside %s of %s%s,", what,
             neap_bytes_text((double)beside, c), need->banks > 0 ? "" : " for other programs");
  neap_error refused = {.limit = "budget",
                        .limit_bytes = (int64_t)ws->budget_bytes,
                        .least_bytes = (int64_t)(need->want + beside),
                        .held_bytes = (int64_t)neap_workspace_held_bytes(ws)};
  neap_refused_fixed(&refused, what, beside);
  neap_plan_name_peak(neap_program_plan(program), neap_program_graph(program), &refused);
  return neap_fail_budget(
    error, &refused, "net \"%s\": %s of %s%s exceeds the workspace's budget of %s%s",
    neap_program_graph(program)->name, takes(program) ? "pool" : "arena",
    neap_bytes_text_beside((double)need->want, (double)ws->budget_bytes, a), besides,
    neap_bytes_text_beside((double)ws->budget_bytes, (double)need->want, b),
    name_largest(&refused, largest));
}

/* The total is one on all that the workspace holds: what it has now, less what is replaced, and
 * what the program brings. `fresh` (may be NULL): the program's blobs that are not the workspace's
 * yet. BUDGET error with the least that would do. */
static neap_status check_total(const neap_workspace *ws, const neap_program *program,
                               const neap_tensor *fresh, const region_need *need,
                               neap_error *error) {
  if (ws->total_bytes == 0) return NEAP_OK;

  /* Constants that have been made are among what is held now. */
  const neap_attachment *own = neap_workspace_attachment((neap_workspace *)ws, program);
  size_t constants = own != NULL && own->constants != NULL
                       ? 0
                       : neap_program_plan(program)->region_bytes[NEAP_REGION_CONSTANT];
  size_t blobs = constants + fresh_bytes(program, fresh) + missing_undo(ws, program);
  size_t now = neap_workspace_held_bytes(ws), kept = now - need->has;
  size_t grown = need->banks - neap_workspace_bank_bytes(ws, NULL);
  size_t held = kept + need->want + blobs + grown;
  if (held <= ws->total_bytes) return NEAP_OK;

  char a[24], b[24];
  neap_error refused = {.limit = "total",
                        .limit_bytes = (int64_t)ws->total_bytes,
                        .least_bytes = (int64_t)held,
                        .held_bytes = (int64_t)now};
  neap_refused_fixed(&refused, "held already", kept);
  neap_refused_fixed(&refused, "the net's own blobs", blobs);
  neap_plan_name_peak(neap_program_plan(program), neap_program_graph(program), &refused);
  return neap_fail_budget(error, &refused,
                          "net \"%s\": the workspace would hold %s, its total is %s",
                          neap_program_graph(program)->name,
                          neap_bytes_text_beside((double)held, (double)ws->total_bytes, a),
                          neap_bytes_text_beside((double)ws->total_bytes, (double)held, b));
}

/* Both limits of the workspace, before anything is taken. `fresh`: see check_total. */
static neap_status check_limits(const neap_workspace *ws, const neap_program *program,
                                const neap_tensor *fresh, neap_error *error) {
  const region_need need = need_of(ws, program);
  NEAP_TRY(check_budget(ws, program, &need, error));
  return check_total(ws, program, fresh, &need, error);
}

/* Puts a larger arena in the old one's place. Its values do not move over. */
static void replace_arena(neap_workspace *ws, neap_storage *arena) {
  neap_storage_release(ws->arena);
  ws->arena = arena;
  ws->arena_bytes = neap_storage_bytes(arena);
  ws->n_run++; /* views of the old arena are views of nothing that runs */
  ws->last = NULL;
}

/* ---- the pool -------------------------------------------------------------------------------- */

/* MEMORY error that names the net, its largest blob and the bytes. */
static neap_status fail_pool(const neap_program *program, neap_error *error) {
  char a[24], text[160];
  neap_error blobs = {0};
  neap_plan_name_peak(neap_program_plan(program), neap_program_graph(program), &blobs);
  if (error != NULL && error->code == NEAP_OK && blobs.n_blob > 0)
    snprintf(error->blob, sizeof error->blob, "%s", blobs.blobs[0].name);
  return neap_fail(error, NEAP_MEMORY, "net \"%s\": the system refused a pool of %s%s",
                   neap_program_graph(program)->name,
                   neap_bytes_text((double)neap_program_plan(program)->arena_bytes, a),
                   name_largest(&blobs, text));
}

/* One region that holds what the program needs, at least as large as before: shapes come back.
 * Above the soft limit it is cut down to what is needed. Nothing is allocated while region and
 * program stay as they are. */
static neap_status reserve_pool(neap_workspace *ws, const neap_program *program,
                                neap_error *error) {
  size_t need = neap_program_plan(program)->arena_bytes,
         has = neap_pool_read(ws->pool).reserved_bytes;
  size_t want = NEAP_MAX(need, has);
  /* Beyond the soft limit bytes are not held on to: only as many as this program needs. */
  if (ws->pool_soft_bytes > 0 && want > ws->pool_soft_bytes)
    want = NEAP_MAX(need, NEAP_MIN(has, ws->pool_soft_bytes));
  /* other programs may have taken of the total since */
  if (want > has) NEAP_TRY(check_limits(ws, program, NULL, error));
  return neap_pool_reserve(ws->pool, want, neap_program_pool_blocks(program))
           ? NEAP_OK
           : fail_pool(program, error);
}

/* ---- attach and detach ----------------------------------------------------------------------- */

/* Drops the references; blobs live on under their names. */
static void attachment_fini(neap_attachment *a) {
  int n = a->program != NULL ? neap_program_n_blobs(a->program) : 0;
  if (a->tensor != NULL)
    for (int b = 0; b < n; b++) neap_tensor_fini(&a->tensor[b]);
  neap_free((void *)a->name);
  neap_free(a->tensor);
  neap_free(a->cell);
  neap_free(a->by_address);
  neap_free(a->content);
  neap_free(a->outdates);
  neap_storage_release(a->constants);
}

/* Another program of the workspace has left its own bytes, of another shape, under the name of blob
 * b, which this one only writes: new ones take their place, and none of the two keeps the old. The
 * total is one on what is held then. */
static neap_status reclaim(neap_workspace *ws, neap_attachment *a, int b, neap_error *error) {
  const neap_program_blob *blob = neap_program_blob_at(a->program, b);

  /* The bytes that are there will do, if the cell has room for them. */
  neap_cell *cell = &ws->cell[neap_map_get(&ws->index, a->name[b], -1)];
  if (neap_workspace_has_room(cell, &blob->type)) {
    neap_workspace_retype(ws, cell, &blob->type);
    return NEAP_OK;
  }

  neap_tensor made = {0};
  NEAP_TRY(neap_workspace_check_total(ws, "run: blob", a->name[b],
                                      neap_align(neap_type_bytes(&blob->type)), error));
  NEAP_TRY(neap_resident_make_one(ws, a->program, b, cell->bank, &made, error));

  /* The new bytes are there, so nothing can fail any more. Programs leave the old ones, which would
   * else be held beside the new. */
  neap_workspace_leave_bytes(ws, cell);
  neap_tensor_fini(&cell->tensor);
  cell->tensor = made;
  cell->reserve_bytes = blob->reserve_bytes;
  cell->filled = cell->is_shared = false;
  ws->version++;
  return NEAP_OK;
}

/* The op whose output lies in blob b; NULL: none. */
static const neap_node *writer_of(const neap_program *program, int b) {
  const neap_graph *graph = neap_program_graph(program);
  for (int n = 0; n < graph->n_node; n++)
    for (int k = 0; k < graph->node[n].n_out; k++) {
      int blob;
      size_t offset;
      if (neap_program_where(program, graph->node[n].out[k], &blob, &offset) && blob == b)
        return &graph->node[n];
    }
  return NULL;
}

/* A program would write into the read-only bytes of its blob b: says which op, and where it was
 * made. */
static neap_status fail_read_only(neap_program *program, int b, neap_error *error) {
  const char *name = neap_program_blob_at(program, b)->name;
  const neap_node *writer = writer_of(program, b);
  neap_error inner = {0};
  snprintf(inner.blob, sizeof inner.blob, "%s", name);
  neap_fail(&inner, NEAP_GRAPH,
            "writes \"%s\", whose bytes are read-only: those of a file mapped with map = \"r\"",
            name);
  neap_hint(&inner, "map = \"c\" copies what is written and leaves the file as it is");

  /* An op's name and line say more than the net's, where the writer is known. */
  if (writer != NULL) {
    char what[sizeof inner.message];
    snprintf(what, sizeof what, "%s", inner.message);
    snprintf(inner.message, sizeof inner.message, "%s \"%s\": %.600s", writer->op->name,
             writer->name, what);
    snprintf(inner.op, sizeof inner.op, "%s", writer->op->name);
    snprintf(inner.scope, sizeof inner.scope, "%s", writer->scope);
    snprintf(inner.line, sizeof inner.line, "%s", writer->line);
  }
  if (error != NULL && error->code == NEAP_OK) *error = inner;
  return NEAP_GRAPH;
}

/* The gradients of a program whose workspace has given them back, in one segment again. Nothing
 * happens when none is missing. */
static neap_status remake_gradients(neap_workspace *ws, neap_attachment *a, neap_error *error) {
  int n = neap_program_n_blobs(a->program), first = 0;
  while (first < n && !neap_resident_is_given_back(ws, a, first)) first++;
  if (first == n) return NEAP_OK;

  /* Made, checked against the limits, published: what is refused on the way is dropped, and the
   * blobs stay missing. */
  neap_tensor *fresh = neap_alloc_zeroed((size_t)n * sizeof *fresh);
  if (fresh == NULL) return refused(error, (size_t)n * sizeof *fresh);
  neap_status status = neap_resident_make(ws, a->program, a, true, fresh, error);
  if (status == NEAP_OK) status = check_limits(ws, a->program, fresh, error);
  if (status == NEAP_OK) status = neap_resident_publish(ws, a->program, a, fresh, error);
  for (int b = 0; b < n; b++) neap_tensor_fini(&fresh[b]);
  neap_free(fresh);
  return status;
}

bool neap_workspace_lacks_blob(neap_workspace *ws, const neap_program *program) {
  neap_attachment *a = neap_workspace_attachment(ws, program);
  if (a == NULL || a->version == neap_workspace_chain_version(ws)) return false;
  /* A gradient that was given back is made again by the run; another missing blob is lost. */
  for (int b = 0; b < neap_program_n_blobs(program); b++) {
    neap_found found = neap_workspace_find(ws, a->name[b]);
    bool is_there =
      found.ws != NULL && neap_cell_kind(&found.ws->cell[found.cell]) != NEAP_BLOB_EMPTY;
    if (!is_there && !neap_resident_is_given_back(ws, a, b)) return true;
  }
  return false;
}

/* Blob b is looked up again: the name must lead to a tensor of its type, which the program may
 * write if it does. */
static neap_status refresh_blob(neap_workspace *ws, neap_attachment *a, int b, neap_error *error) {
  const char *net = neap_program_graph(a->program)->name;
  neap_program_blob *blob = neap_program_blob_at(a->program, b);
  neap_found found = neap_workspace_find(ws, a->name[b]);
  neap_blob_kind kind =
    found.ws != NULL ? neap_cell_kind(&found.ws->cell[found.cell]) : NEAP_BLOB_EMPTY;
  if (kind != NEAP_BLOB_EMPTY && kind != NEAP_BLOB_TENSOR)
    return neap_workspace_fail_kind(net, blob->name, kind, error);
  if (kind == NEAP_BLOB_EMPTY)
    return neap_fail(error, NEAP_NAME,
                     "net \"%s\": blob \"%s\" has been removed from the workspace", net,
                     blob->name);

  /* Another program has left bytes of another shape here: this one only writes, so it takes its
   * own again. */
  const neap_tensor *t = &found.ws->cell[found.cell].tensor;
  neap_type has = neap_tensor_type(t);
  bool may_replace =
    neap_resident_is_missing(ws, blob, found) || neap_resident_may_retype(ws, blob, found);
  if (!neap_type_equal(&has, &blob->type) && may_replace) {
    NEAP_TRY(reclaim(ws, a, b, error));
    has = neap_tensor_type(t);
  }

  /* Any other type is an error of the user's: the program was compiled for another one. */
  if (!neap_type_equal(&has, &blob->type)) {
    char what[160];
    snprintf(what, sizeof what, "net \"%.100s\": %s", net, neap_role_name(blob->role));
    return neap_workspace_fail_type(what, blob->name, &blob->type, &has, error);
  }
  if (blob->written && neap_storage_is_read_only(t->storage))
    return fail_read_only(a->program, b, error);

  /* The attachment holds a reference, so that the bytes stay as long as it points to them. */
  neap_tensor fresh = neap_tensor_retain(t);
  neap_tensor_fini(&a->tensor[b]);
  a->tensor[b] = fresh;
  a->cell[b] = found;
  return NEAP_OK;
}

/* Looks every blob up again. No allocation but for gradients that were given back and by reclaim:
 * runs call it when names have moved. */
static neap_status refresh(neap_workspace *ws, neap_attachment *a, neap_error *error) {
  NEAP_TRY(remake_gradients(ws, a, error));
  for (int b = 0; b < neap_program_n_blobs(a->program); b++)
    NEAP_TRY(refresh_blob(ws, a, b, error));
  /* Where all blobs are now, they must lie apart; and which names go out of date may be others. */
  NEAP_TRY(neap_attachment_check_apart(a, error));
  NEAP_TRY(neap_newest_find(ws, a, error));
  a->version = neap_workspace_chain_version(ws);
  return NEAP_OK;
}

enum { TRIM_BYTES = 1 << 20 };

/* The bytes of the constants, when the program has any and they are not there. */
static neap_status make_constants(neap_attachment *a, neap_error *error) {
  size_t bytes = neap_program_plan(a->program)->region_bytes[NEAP_REGION_CONSTANT];
  if (bytes == 0 || a->constants != NULL) return NEAP_OK;
  /* Importing and planning have left a heap of many small holes, too small for these. */
  if (bytes >= TRIM_BYTES) neap_memory_trim();
  a->constants = neap_storage_new(bytes);
  a->constants_made = false;
  return a->constants != NULL ? NEAP_OK : neap_fail_memory(error, bytes, "the constants");
}

static neap_bank_kind main_kind(const neap_program *program) {
  const neap_graph *graph = neap_program_graph(program);
  return graph->n_bank > 0 ? graph->bank[0].kind : NEAP_BANK_ORDINARY;
}

/* Everything that may be refused comes before the first change: names, bytes, limits, room in
 * lists. */
static neap_status attach(neap_workspace *ws, neap_attachment *a, neap_tensor *fresh,
                          neap_error *error) {
  size_t need = takes(a->program) ? 0 : arena_need(a->program); /* a pool is reserved by the run */
  neap_storage *banks[NEAP_MAX_BANKS] = {0};
  NEAP_TRY(neap_resident_name(a->program, a, error));
  NEAP_TRY(neap_resident_make(ws, a->program, a, false, fresh, error));
  NEAP_TRY(neap_resident_make_room(ws, a->program, a, error));
  NEAP_TRY(check_limits(ws, a->program, fresh, error));
  NEAP_TRY(neap_workspace_check_main(ws, a->program, NEAP_MAX(need, ws->arena_bytes), error));
  if (takes(a->program) && ws->pool == NULL) NEAP_TRY(neap_pool_new(0, 0, &ws->pool, error));
  NEAP_TRY(make_constants(a, error));

  /* The entry in the list is the caller's to make: it only needs the room. */
  if (!neap_list_grow(&ws->attachment, &ws->cap_attachment, ws->n_attachment + 1, sizeof *a))
    return refused(error, sizeof *a);

  /* Arena and copies are shared by programs: made anew when this one needs more than there is. */
  neap_storage *arena =
    need > ws->arena_bytes ? neap_storage_new_in(need, main_kind(a->program)) : NULL;
  if (arena == NULL && need > ws->arena_bytes) return neap_fail_memory(error, need, "the arena");

  /* So are the copies that a failing run is put back from. */
  size_t undo_bytes = missing_undo(ws, a->program) > 0 ? neap_undo_bytes(a->program) : 0;
  neap_storage *undo = undo_bytes > 0 ? neap_storage_new(undo_bytes) : NULL;
  neap_status status =
    undo == NULL && undo_bytes > 0
      ? neap_fail_memory(error, undo_bytes, "copies of what a run may leave half written")
      : NEAP_OK;
  if (status == NEAP_OK) status = neap_workspace_make_banks(ws, a->program, banks, error);
  if (status == NEAP_OK) status = neap_resident_publish(ws, a->program, a, fresh, error);
  if (status != NEAP_OK) {
    neap_storage_release(arena);
    neap_storage_release(undo);
    for (int b = 0; b < NEAP_MAX_BANKS; b++) neap_storage_release(banks[b]);
    return status;
  }

  /* From here on nothing can fail. */
  neap_workspace_take_banks(ws, a->program, banks);
  if (arena != NULL) replace_arena(ws, arena);
  if (undo != NULL) {
    neap_storage_release(ws->undo);
    ws->undo = undo;
  }
  return NEAP_OK;
}

/* A second attach of the same program does nothing. */
neap_status neap_workspace_attach(neap_workspace *ws, neap_program *program, neap_error *error) {
  if (neap_workspace_attachment(ws, program) != NULL) return NEAP_OK;
  size_t n = (size_t)neap_program_n_blobs(program);
  neap_attachment a = {.program = program,
                       .name = neap_alloc_zeroed(n * sizeof *a.name),
                       .tensor = neap_alloc_zeroed(n * sizeof *a.tensor),
                       .cell = neap_alloc_zeroed(n * sizeof *a.cell),
                       .by_address = neap_alloc(n * sizeof *a.by_address),
                       .content = neap_alloc_zeroed(n * sizeof *a.content)};
  neap_tensor *fresh = neap_alloc_zeroed(n * sizeof *fresh);
  if (a.by_address != NULL)
    for (int b = 0; b < (int)n; b++) a.by_address[b] = b;
  neap_status status;
  if (a.name == NULL || a.tensor == NULL || a.cell == NULL || a.by_address == NULL ||
      a.content == NULL || fresh == NULL)
    status = refused(error, n * sizeof *fresh);
  else
    status = attach(ws, &a, fresh, error);

  /* On success the list owns what the attachment holds; views that were published have left `fresh`
   * empty. */
  a.version = neap_workspace_chain_version(ws) - 1; /* stale: the first run looks the blobs up */
  if (status == NEAP_OK) {
    a.last_use = ++ws->n_use;
    ws->attachment[ws->n_attachment++] = a;
  } else {
    attachment_fini(&a);
  }
  if (fresh != NULL)
    for (size_t b = 0; b < n; b++) neap_tensor_fini(&fresh[b]);
  neap_free(fresh);
  return status;
}

/* What the program left in the arena can't be fetched any more: its plan is about to go. */
void neap_workspace_detach(neap_workspace *ws, neap_program *program) {
  neap_attachment *a = neap_workspace_attachment(ws, program);
  if (a == NULL) return;
  attachment_fini(a);
  *a = ws->attachment[--ws->n_attachment];
  if (ws->last == program) ws->last = NULL;
}

void neap_workspace_rest(neap_workspace *ws, neap_program *program) {
  if (ws->last == program) ws->last = NULL;
  neap_attachment *a = neap_workspace_attachment(ws, program);
  if (a == NULL) return;
  /* Inputs, outputs and constants go; parameters and state are the workspace's. */
  for (int b = 0; b < neap_program_n_blobs(program); b++)
    if (neap_program_blob_at(program, b)->region == NEAP_REGION_IO) neap_tensor_fini(&a->tensor[b]);
  neap_storage_release(a->constants);
  a->constants = NULL;
  a->version = neap_workspace_chain_version(ws) - 1; /* stale */
}

/* ---- running --------------------------------------------------------------------------------- */

/* NAME error for the first blob that the program reads before anyone has written it. */
static neap_status check_filled(const neap_attachment *a, neap_error *error) {
  for (int b = 0; b < neap_program_n_blobs(a->program); b++) {
    const neap_program_blob *blob = neap_program_blob_at(a->program, b);
    if (!blob->defined_before || a->cell[b].ws->cell[a->cell[b].cell].filled) continue;

    /* A parameter that is declared without an init is the usual mistake; the hint says so. */
    if (error != NULL && error->code == NEAP_OK)
      snprintf(error->blob, sizeof error->blob, "%s", blob->name);
    neap_fail(error, NEAP_NAME, "net \"%s\": %s \"%s\" has not been fed",
              neap_program_graph(a->program)->name, neap_role_name(blob->role), blob->name);
    const char *why = "";
    if (blob->role == NEAP_ROLE_PARAMETER)
      why = "it is declared without an init, such as Xavier, that would fill it: ";
    neap_hint(error, "%sws:feed(\"%s\", tensor), or give it to run", why, blob->name);
    return NEAP_NAME;
  }
  return NEAP_OK;
}

/* Where bytes are that may be put away (packed.c). */
static void *address_of(const neap_tensor *t) {
  return neap_storage_address(t->storage) + t->offset_bytes;
}

/* Whether the constants still follow from the bytes they were computed from. Bytes at another
 * address are other bytes, though their storage be the same: it then has another place in the
 * parameters' segment. Notes what it sees for the next run. */
static bool constants_valid(neap_attachment *a) {
  if (a->constants == NULL) return false;
  bool valid = a->constants_made && a->own_content == neap_storage_version(a->constants);
  a->own_content = neap_storage_version(a->constants);

  /* All of them are looked at, also after the first that has changed: what is noted must be
   * complete. */
  for (int b = 0; b < neap_program_n_blobs(a->program); b++) {
    neap_program_blob *blob = neap_program_blob_at(a->program, b);
    if (!blob->feeds_constant) continue;
    uint64_t content = neap_storage_version(a->tensor[b].storage);
    valid = valid && content == a->content[b] && blob->base == address_of(&a->tensor[b]);
    a->content[b] = content;
  }
  return valid;
}

/* What a run has written, or begun to, has another content now. */
static void touch_written(const neap_attachment *a) {
  for (int b = 0; b < neap_program_n_blobs(a->program); b++)
    if (neap_program_blob_at(a->program, b)->written) neap_storage_touch(a->tensor[b].storage);
}

/* After a finished run every blob that it read or wrote holds something: it was full before, or the
 * run wrote it. */
static void mark_written(const neap_attachment *a) {
  for (int b = 0; b < neap_program_n_blobs(a->program); b++) {
    neap_cell *cell = &a->cell[b].ws->cell[a->cell[b].cell];
    const neap_program_blob *blob = neap_program_blob_at(a->program, b);
    if (!blob->defined_before && !blob->written) continue;
    /* Not written when it is true already: several threads may read one parent's blob. */
    if (!cell->filled) cell->filled = true;
  }
}

/* Sampling between two training steps does not change what those draw. */
neap_draw neap_workspace_look_draw(const neap_workspace *ws, bool train) {
  /* any odd word: the numbers of step 3 and of draw 3 differ */
  const uint64_t sampling = 0x9e3779b97f4a7c15;
  if (ws->given != NULL) return *ws->given;
  if (train) return (neap_draw){ws->seed, ws->step};
  return ws->draws_by_thread ? neap_draw_look() : (neap_draw){ws->seed ^ sampling, ws->draw};
}

void neap_workspace_count_draw(neap_workspace *ws) {
  if (ws->given != NULL) return;
  if (ws->draws_by_thread)
    neap_draw_count();
  else
    ws->draw++;
}

static void count_draw(neap_workspace *ws, const neap_program *program) {
  if (neap_program_graph(program)->step)
    ws->step += ws->given == NULL;
  else if (neap_program_draws(program))
    neap_workspace_count_draw(ws);
}

/* Every base pointer is that of the blob which the name leads to now, and what the run reads is
 * filled; arenas are as large as the program needs, and the pool is empty. */
static void check_run(const neap_workspace *ws, const neap_attachment *a) {
  neap_workspace_check(ws);
  for (int b = 0; b < neap_program_n_blobs(a->program); b++) {
    const neap_program_blob *blob = neap_program_blob_at(a->program, b);
    neap_found found = neap_workspace_find_key(ws, a->name[b]);
    NEAP_ASSERT(found.ws == a->cell[b].ws && found.cell == a->cell[b].cell,
                "the cell of \"%s\" is current: a changed version has it looked up, and this is "
                "cell %d, not %d",
                a->name[b], found.cell, a->cell[b].cell);
    const neap_cell *cell = &found.ws->cell[found.cell];
    NEAP_ASSERT(blob->base == address_of(&cell->tensor),
                "the base of \"%s\" is where its cell's bytes are", a->name[b]);
    NEAP_ASSERT(cell->filled || !blob->defined_before,
                "\"%s\", which \"%s\" reads, has been written", a->name[b],
                neap_program_graph(a->program)->name);
  }

  /* Bytes that runs share are there in full, and nobody has left any taken. */
  size_t need = arena_need(a->program);
  NEAP_ASSERT(takes(a->program) || ws->arena_bytes >= need,
              "the arena is as large as an attached program needs, %zu bytes: %zu", need,
              ws->arena_bytes);
  NEAP_ASSERT(ws->pool == NULL || neap_pool_read(ws->pool).n_used == 0,
              "the pool is empty between runs: %lld blocks are taken",
              (long long)neap_pool_read(ws->pool).n_used);
  NEAP_ASSERT(missing_undo(ws, a->program) == 0,
              "the copies of what a run may leave half written have their bytes: %zu are missing",
              missing_undo(ws, a->program));
}

/* No allocation and no look-up by name unless names or bytes have moved since the last run. */
neap_status neap_workspace_run(neap_workspace *ws, neap_program *program, neap_step_times *times,
                               neap_error *error) {
  neap_attachment *a = neap_workspace_attachment(ws, program);
  if (a == NULL)
    return neap_fail(error, NEAP_ARGUMENT, "net \"%s\": is not attached to this workspace",
                     neap_program_graph(program)->name);

  /* What is being moved must have arrived, and what the last net has left elsewhere must be
   * here. */
  if (neap_workspace_moves(ws, neap_program_n_blobs(program), a->name))
    for (neap_workspace *at = ws; at != NULL; at = at->parent) neap_workspace_finish_moves(at);
  NEAP_TRY(neap_newest_bring(ws, a, error));

  /* Names or bytes have moved: every blob is looked up again. */
  if (a->version != neap_workspace_chain_version(ws)) NEAP_TRY(refresh(ws, a, error));
  NEAP_TRY(check_filled(a, error));
  NEAP_TRY(make_constants(a, error));
  bool valid = constants_valid(a);

  /* Where everything is: blobs, pool, banks. What may be refused ends here. */
  for (int b = 0; b < neap_program_n_blobs(program); b++) {
    /* Of what is only packed, the address alone is wanted while the constants are valid. */
    neap_program_blob *blob = neap_program_blob_at(program, b);
    bool is_read = !valid || blob->packed == NEAP_NO_VALUE;
    blob->base = is_read ? neap_tensor_data(&a->tensor[b]) : address_of(&a->tensor[b]);
  }
  if (takes(program)) NEAP_TRY(reserve_pool(ws, program, error));

  /* The arena's old contents are lost from here on. */
  a->last_run = ++ws->n_run;
  a->last_use = ++ws->n_use;
  ws->last = NULL; /* until it has finished, the arena is nobody's */

  /* What random ops draw is looked at here and counted at the end, so that a run that fails may be
   * run again with the same numbers. */
  neap_draw draw = neap_workspace_look_draw(ws, neap_program_graph(program)->step);
  void *bank[NEAP_MAX_BANKS] = {0};
  for (int b = 1; b < neap_program_plan(program)->n_bank; b++) {
    const neap_storage *arena = neap_workspace_bank_arena(ws, program, b);
    if (arena != NULL) bank[b] = neap_storage_data(arena);
  }
  neap_run run = {.arena = ws->arena != NULL ? neap_storage_data(ws->arena) : NULL,
                  .bank = bank,
                  .pool = takes(program) ? ws->pool : NULL,
                  .constants = a->constants != NULL ? neap_storage_data(a->constants) : NULL,
                  .constants_valid = valid,
                  .spare = valid ? NULL : neap_workspace_spare,
                  .owner = &(neap_packing){ws, a},
                  .seed = draw.seed,
                  .step = draw.step,
                  .interrupted = &neap_interrupted,
                  .poison = ws->poison,
                  .times = times};
  if (NEAP_DEBUG) check_run(ws, a);

  /* What a failing run would leave half written is copied first. */
  neap_undo_save(ws, a);
  neap_status status = neap_program_run(program, &run, error);

  /* Constants are computed on the way: a run that stopped may have left some as they were. */
  a->constants_made = valid || run.finished;
  touch_written(a);

  /* A run that failed has not been. */
  if (status != NEAP_OK) {
    neap_undo_put_back(ws, a);
    return status;
  }
  mark_written(a);
  neap_newest_mark(a);
  ws->last = program;
  ws->last_name = neap_program_graph(program)->name;
  count_draw(ws, program);
  return status;
}
