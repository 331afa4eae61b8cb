/* assign.c: resident blobs put into memory banks, at once or on a thread of their own.
 *
 * A blob that is assigned gets a storage of its own in the bank, and its contents go with it. Of a
 * blob in a segment the place that it leaves is kept (`left`) for as long as others use the
 * segment: it can go back there, and its bytes are still held. A move under way is a list of pairs
 * of tensors and the thread that copies them; the thread only reads the old bytes and writes the
 * new ones. INVARIANT: whoever looks a name up finds no move of its workspace under way
 * (neap_workspace_find_key ends it), so nobody writes bytes that a thread reads. INVARIANT: ending
 * a move can't fail: all memory was taken when it began.
 */
#include "workspace/workspace_int.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

typedef struct one {
  const char *name;
  neap_tensor from, to; /* references of the move's */
} one;

typedef struct neap_move {
  const char *bank; /* NULL: to main */
  int n;
  one *item;
  bool threaded;
  pthread_t thread;
} neap_move;

static void *copy_all(void *context) {
  neap_move *move = context;
  for (int i = 0; i < move->n; i++) {
    neap_type type = neap_tensor_type(&move->item[i].from);
    neap_copy_bytes(neap_tensor_data(&move->item[i].to), neap_tensor_data(&move->item[i].from),
                    neap_type_bytes(&type));
  }
  return NULL;
}

static void free_move(neap_move *move) {
  for (int i = 0; i < move->n; i++) {
    neap_tensor_fini(&move->item[i].from);
    neap_tensor_fini(&move->item[i].to);
  }
  neap_free(move->item);
  neap_free(move);
}

static bool is_listed(const neap_move *move, const char *name) {
  for (int i = 0; i < move->n; i++)
    if (move->item[i].name == name) return true;
  return false;
}

/* Segments that no blob lies in any more go, with the places that were kept in them. */
static void drop_empty_segments(neap_workspace *ws) {
  for (int c = 0; c < ws->n_cell; c++) {
    neap_storage *storage = ws->cell[c].left.storage;
    if (storage == NULL || neap_workspace_holds(ws, storage)) continue;
    /* The places keep the storage alive; it must live until the last of them has been seen. */
    neap_storage_retain(storage);
    for (int k = c; k < ws->n_cell; k++)
      if (ws->cell[k].left.storage == storage) neap_tensor_fini(&ws->cell[k].left);
    neap_workspace_release_from_programs(ws, storage);
    neap_storage_release(storage);
  }
}

/* The cell gets its new bytes. A blob that has been removed or has got others since stays as it
 * is. */
static void switch_one(neap_workspace *ws, one *item, const char *bank) {
  int at = neap_map_get(&ws->index, item->name, -1);
  neap_cell *cell = at >= 0 ? &ws->cell[at] : NULL;

  /* Only the bytes that were copied are replaced. */
  if (cell == NULL || cell->tensor.storage != item->from.storage ||
      cell->tensor.offset_bytes != item->from.offset_bytes)
    return;

  /* The first time that it leaves its segment, its place there is kept; back in main, it is used
   * up. */
  if (cell->in_segment && bank != NULL && cell->left.storage == NULL)
    cell->left = neap_tensor_retain(&item->from);
  if (bank == NULL) neap_tensor_fini(&cell->left);

  /* The cell takes over the reference of the move; the old bytes live on while the move holds
   * them. */
  neap_tensor_fini(&cell->tensor);
  cell->tensor = item->to;
  item->to = (neap_tensor){0};
  cell->bank = bank;
  ws->version++;
}

void neap_workspace_finish_moves(neap_workspace *ws) {
  neap_move *move = ws->move;
  if (move == NULL) return;
  ws->move = NULL; /* looking names up from here on finds none under way */

  if (move->threaded)
    pthread_join(move->thread, NULL);
  else
    copy_all(move);

  /* All bytes are there. What was computed from the blobs is stale, since it was computed from
   * other bytes; programs let go of old bytes that no name has any more. */
  for (int i = 0; i < move->n; i++) {
    neap_storage *old = move->item[i].from.storage;
    neap_storage_touch(move->item[i].to.storage);
    switch_one(ws, &move->item[i], move->bank);
    if (!neap_workspace_holds(ws, old)) neap_workspace_release_from_programs(ws, old);
  }

  /* The move's own references go last: only now a segment may be without users. */
  free_move(move);
  drop_empty_segments(ws);
}

bool neap_workspace_moves(const neap_workspace *ws, int n, const char *const *name) {
  for (; ws != NULL; ws = ws->parent) {
    if (ws->move == NULL) continue;
    for (int i = 0; i < n; i++)
      if (is_listed(ws->move, name[i])) return true;
  }
  return false;
}

size_t neap_workspace_left_bytes(const neap_workspace *ws) {
  size_t bytes = 0;
  for (int c = 0; c < ws->n_cell; c++) {
    if (ws->cell[c].left.storage == NULL) continue;
    neap_type type = neap_tensor_type(&ws->cell[c].left);
    bytes += neap_align(neap_type_bytes(&type));
  }
  /* A move under way holds both: the old bytes are counted where they are, the new ones here. */
  if (ws->move == NULL || ws->move->bank == NULL) return bytes;
  for (int i = 0; i < ws->move->n; i++) bytes += neap_storage_bytes(ws->move->item[i].to.storage);
  return bytes;
}

/* The own cell of a name, with bytes that may move. */
static neap_status movable(neap_workspace *ws, const char *name, neap_cell **cell,
                           neap_error *error) {
  neap_found found = neap_workspace_find(ws, name);
  if (found.ws == NULL) return neap_workspace_fail_unknown(ws, "assign", name, error);
  *cell = &found.ws->cell[found.cell];
  neap_blob_kind kind = neap_cell_kind(*cell);

  /* Only the owner's programs and banks are looked at, so that only the owner may move it. */
  if (found.ws != ws)
    return neap_fail(error, NEAP_ARGUMENT, "assign \"%s\": it is the parent's; assign it there",
                     name);
  if (kind == NEAP_BLOB_STRING || kind == NEAP_BLOB_SCOPE)
    return neap_workspace_fail_kind("assign", name, kind, error);
  if (kind != NEAP_BLOB_TENSOR)
    return neap_fail(error, NEAP_NAME, "assign \"%s\": it has no bytes yet", name);

  /* The user goes on writing to shared bytes, and would write to the old place. */
  if ((*cell)->is_shared)
    return neap_fail(error, NEAP_ARGUMENT,
                     "assign \"%s\": its bytes are shared with a tensor of the user's; feed a copy",
                     name);
  return NEAP_OK;
}

/* Bytes for the blob in the bank: its old place in the segment, where it goes back to main and that
 * is kept. */
static neap_status take_place(const neap_cell *cell, const char *bank, neap_bank_kind kind,
                              neap_tensor *out, neap_error *error) {
  if (bank == NULL && cell->left.storage != NULL) {
    *out = neap_tensor_retain(&cell->left);
    return NEAP_OK;
  }

  /* In a bank a blob has room for the largest batch, as it had before. */
  neap_type type = neap_tensor_type(&cell->tensor);
  size_t bytes = neap_align(NEAP_MAX(neap_type_bytes(&type), cell->reserve_bytes));
  neap_storage *storage = neap_storage_new_in(bytes, kind);
  if (storage == NULL) return neap_fail_memory(error, bytes, "a blob in a memory bank");
  *out = neap_tensor_view(storage, 0, type.dtype, &type.shape);
  neap_storage_release(storage); /* the view keeps it */
  return NEAP_OK;
}

/* Every blob that is not in the bank yet, with its bytes there. */
static neap_status collect(neap_workspace *ws, neap_move *move, int n, const char *const *name,
                           neap_bank_kind kind, neap_error *error) {
  for (int i = 0; i < n; i++) {
    neap_cell *cell = NULL;
    NEAP_TRY(movable(ws, name[i], &cell, error));
    if (cell->bank == move->bank || is_listed(move, cell->name)) continue;
    one *item = &move->item[move->n];
    NEAP_TRY(take_place(cell, move->bank, kind, &item->to, error));
    item->name = cell->name;
    item->from = neap_tensor_retain(&cell->tensor);
    move->n++;
  }
  return NEAP_OK;
}

static neap_move *new_move(int n) {
  neap_move *move = neap_alloc_zeroed(sizeof *move);
  if (move == NULL) return NULL;
  move->item = neap_alloc_zeroed((size_t)(n + 1) * sizeof *move->item);
  if (move->item != NULL) return move;
  neap_free(move);
  return NULL;
}

/* All memory that the move needs; its bank is known from here on, main (NULL) always. */
static neap_status begin(neap_workspace *ws, neap_move *move, int n, const char *const *name,
                         const neap_bank *bank, neap_error *error) {
  neap_workspace_bank *known = NULL;
  if (bank != NULL) NEAP_TRY(neap_workspace_know_bank(ws, bank, "assign", &known, error));
  move->bank = known != NULL ? known->name : NULL;
  NEAP_TRY(collect(ws, move, n, name, known != NULL ? known->kind : NEAP_BANK_ORDINARY, error));
  if (known == NULL) return NEAP_OK;
  /* What the bank will hold: its arena, the blobs that are there, and those that come. */
  size_t more = known->arena != NULL ? neap_storage_bytes(known->arena) : 0;
  for (int i = 0; i < move->n; i++) more += neap_storage_bytes(move->item[i].to.storage);
  return neap_workspace_check_bank(ws, "assign", known->name, known->capacity, more, error);
}

neap_status neap_workspace_assign(neap_workspace *ws, int n, const char *const *name,
                                  const neap_bank *bank, bool later, neap_error *error) {
  neap_workspace_finish_moves(ws);
  NEAP_TRY(neap_net_check_name("bank", bank->name != NULL ? bank->name : "", error));
  neap_move *move = new_move(n);
  if (move == NULL)
    return neap_fail_memory(error, (size_t)n * sizeof *move->item, "a list of blobs");

  /* Main is no bank that has to be known: its bytes are those that blobs have without one. */
  int n_known = ws->n_bank;
  neap_status status =
    begin(ws, move, n, name, strcmp(bank->name, NEAP_MAIN_BANK) == 0 ? NULL : bank, error);
  if (status != NEAP_OK) {
    ws->n_bank = n_known; /* a bank that nothing went to is not known */
    free_move(move);
    return status;
  }

  /* Where no thread is to be had, the bytes follow when they are asked for. */
  move->threaded = later && pthread_create(&move->thread, NULL, copy_all, move) == 0;
  ws->move = move;
  if (!later) neap_workspace_finish_moves(ws);
  return NEAP_OK;
}

int neap_workspace_homes(const neap_workspace *ws, int room, neap_home *home) {
  int n = 0;
  for (const neap_workspace *at = ws; at != NULL; at = at->parent)
    for (int c = 0; c < at->n_cell; c++) {
      if (at->cell[c].bank == NULL) continue;
      if (n < room) home[n] = (neap_home){at->cell[c].name, at->cell[c].bank};
      n++;
    }
  return n;
}
