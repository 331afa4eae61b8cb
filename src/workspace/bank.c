/* bank.c: the memory banks of a workspace: an arena of each, which its programs share as they share
 * the arena.
 *
 * A bank is known by its name from the first program that has it on: all programs must mean the
 * same capacity and kind by it. Main is listed too, for its capacity; its bytes are the workspace's
 * arena.
 * INVARIANT: a bank's arena is as large as the largest part that an attached program has of it;
 * arena and the blobs that lie in the bank never exceed its capacity.
 */
#include "workspace/workspace_int.h"

#include <stdio.h>
#include <string.h>

/* Names of graphs are interned, as these are. */
static neap_workspace_bank *find(const neap_workspace *ws, const char *name) {
  for (int b = 0; b < ws->n_bank; b++)
    if (ws->bank[b].name == name) return &ws->bank[b];
  return NULL;
}

/* The bytes that a bank's arena has, main's among them. */
static size_t arena_of(const neap_workspace *ws, const neap_workspace_bank *bank, int b) {
  if (b == 0) return ws->arena_bytes;
  return bank != NULL && bank->arena != NULL ? neap_storage_bytes(bank->arena) : 0;
}

/* Main of which nothing has been said but its name: whoever says more of it speaks for all. */
static bool is_unsaid(const char *name, size_t capacity, neap_bank_kind kind) {
  return capacity == 0 && kind == NEAP_BANK_ORDINARY && strcmp(name, NEAP_MAIN_BANK) == 0;
}

static neap_status check_same(const neap_workspace_bank *known, const neap_bank *given,
                              const char *who, neap_error *error) {
  char a[24], b[24];
  if (known == NULL || is_unsaid(given->name, (size_t)given->bytes, given->kind) ||
      is_unsaid(known->name, known->capacity, known->kind))
    return NEAP_OK;

  /* Two nets that mean different things by one name would each find its plan broken by the
   * other. */
  if (known->capacity == (size_t)given->bytes && known->kind == given->kind) return NEAP_OK;
  return neap_fail(error, NEAP_ARGUMENT,
                   "%s: bank \"%s\" is %s of %s in this workspace already, and %s of %s here; a "
                   "bank is the same for all nets",
                   who, given->name, neap_bank_kind_name(known->kind),
                   neap_bytes_text((double)known->capacity, a), neap_bank_kind_name(given->kind),
                   neap_bytes_text((double)given->bytes, b));
}

size_t neap_workspace_bank_blobs(const neap_workspace *ws, const char *bank) {
  size_t bytes = 0;
  for (int c = 0; c < ws->n_cell; c++) {
    const neap_cell *cell = &ws->cell[c];
    if (cell->bank == bank && bank != NULL && cell->tensor.storage != NULL)
      bytes += neap_storage_bytes(cell->tensor.storage);
  }
  return bytes;
}

neap_status neap_workspace_know_bank(neap_workspace *ws, const neap_bank *given, const char *who,
                                     neap_workspace_bank **out, neap_error *error) {
  neap_bank bank = *given;
  if ((bank.name = neap_intern(given->name)) == NULL)
    return neap_fail_memory(error, strlen(given->name), "a bank's name");
  neap_workspace_bank *known = find(ws, bank.name);

  /* A bank that somebody has named already must be the same; else it is known from here on. */
  NEAP_TRY(check_same(known, &bank, who, error));
  if (known == NULL) {
    if (!neap_list_grow(&ws->bank, &ws->cap_bank, ws->n_bank + 1, sizeof *ws->bank))
      return neap_fail_memory(error, sizeof *ws->bank, "a memory bank");
    known = &ws->bank[ws->n_bank++];
    *known =
      (neap_workspace_bank){.name = bank.name, .capacity = (size_t)bank.bytes, .kind = bank.kind};
  }
  *out = known;
  return NEAP_OK;
}

neap_status neap_workspace_check_bank(const neap_workspace *ws, const char *who, const char *bank,
                                      size_t capacity, size_t more, neap_error *error) {
  const size_t blobs = neap_workspace_bank_blobs(ws, bank), all = more + blobs;
  if (capacity == 0 || all <= capacity) return NEAP_OK;

  /* The refusal says what the blobs take, since those can be moved out, and the least that would
   * do. */
  char a[24], b[24];
  neap_error refused = {.limit = "bank",
                        .bank = bank,
                        .limit_bytes = (int64_t)capacity,
                        .least_bytes = (int64_t)all,
                        .held_bytes = (int64_t)neap_workspace_held_bytes(ws)};
  neap_refused_fixed(&refused, "blobs in the bank", blobs);
  return neap_fail_budget(error, &refused,
                          "%s: bank \"%s\" has %s, programs and blobs need %s of it", who, bank,
                          neap_bytes_text_beside((double)capacity, (double)all, a),
                          neap_bytes_text_beside((double)all, (double)capacity, b));
}

neap_status neap_workspace_make_in_bank(const neap_workspace *ws, const char *who, const char *bank,
                                        const neap_type *type, size_t room, neap_tensor *out,
                                        neap_error *error) {
  const neap_workspace_bank *known = find(ws, bank);
  size_t bytes = neap_align(NEAP_MAX(neap_type_bytes(type), room));
  size_t arena = known->arena != NULL ? neap_storage_bytes(known->arena) : 0;
  NEAP_TRY(neap_workspace_check_bank(ws, who, bank, known->capacity, arena + bytes, error));

  /* The blob's view is the only reference: it goes with the blob. */
  neap_storage *storage = neap_storage_new_in(bytes, known->kind);
  if (storage == NULL) return neap_fail_memory(error, bytes, "a blob in a memory bank");
  *out = neap_tensor_view(storage, 0, type->dtype, &type->shape);
  neap_storage_release(storage); /* the view keeps it */
  return NEAP_OK;
}

enum { WHO_ROOM = 200 };

/* Which net it is about. */
static const char *who_is(const neap_program *program, char text[WHO_ROOM]) {
  snprintf(text, WHO_ROOM, "net \"%s\"", neap_program_graph(program)->name);
  return text;
}

neap_status neap_workspace_check_main(const neap_workspace *ws, const neap_program *program,
                                      size_t arena, neap_error *error) {
  const neap_graph *graph = neap_program_graph(program);
  const neap_workspace_bank *known = find(ws, neap_intern(NEAP_MAIN_BANK));
  size_t capacity = known != NULL ? known->capacity : 0;
  if (capacity == 0 && graph->n_bank > 0) capacity = (size_t)graph->bank[0].bytes;
  char who[WHO_ROOM];
  return neap_workspace_check_bank(ws, who_is(program, who), NEAP_MAIN_BANK, capacity, arena,
                                   error);
}

static neap_status make_bank(neap_workspace *ws, const neap_program *program, int b,
                             neap_storage **fresh, neap_error *error) {
  const neap_graph *graph = neap_program_graph(program);
  const neap_bank *given = &graph->bank[b];
  neap_workspace_bank *known = find(ws, given->name);
  char who[WHO_ROOM];
  NEAP_TRY(check_same(known, given, who_is(program, who), error));
  size_t need = neap_program_plan(program)->bank[b].bytes, has = arena_of(ws, known, b);

  /* Main is checked with the arena, and its bytes are the arena's. */
  if (b > 0)
    NEAP_TRY(neap_workspace_check_bank(ws, who, given->name, (size_t)given->bytes,
                                       NEAP_MAX(need, has), error));
  if (b == 0 || need <= has) return NEAP_OK;
  *fresh = neap_storage_new_in(need, given->kind);
  return *fresh != NULL ? NEAP_OK : neap_fail_memory(error, need, given->name);
}

neap_status neap_workspace_make_banks(neap_workspace *ws, const neap_program *program,
                                      neap_storage *fresh[NEAP_MAX_BANKS], neap_error *error) {
  const neap_graph *graph = neap_program_graph(program);
  if (!neap_list_grow(&ws->bank, &ws->cap_bank, ws->n_bank + graph->n_bank, sizeof *ws->bank))
    return neap_fail_memory(error, (size_t)graph->n_bank * sizeof *ws->bank, "memory banks");
  for (int b = 0; b < graph->n_bank; b++) {
    neap_status status = make_bank(ws, program, b, &fresh[b], error);
    if (status == NEAP_OK) continue;
    /* Those made before it go again. */
    for (int made = 0; made < b; made++) {
      neap_storage_release(fresh[made]);
      fresh[made] = NULL;
    }
    return status;
  }
  return NEAP_OK;
}

/* A program's part of a bank fits the bank's arena, and arena and blobs fit the bank. */
static void check_banks(const neap_workspace *ws, const neap_program *program) {
  const neap_graph *graph = neap_program_graph(program);
  for (int b = 1; b < graph->n_bank; b++) {
    const neap_workspace_bank *bank = find(ws, graph->bank[b].name);
    size_t need = neap_program_plan(program)->bank[b].bytes, has = arena_of(ws, bank, b);
    size_t all = has + neap_workspace_bank_blobs(ws, graph->bank[b].name);
    NEAP_ASSERT(need <= has,
                "the arena of bank \"%s\" is as large as a program's part of it, %zu bytes: %zu",
                graph->bank[b].name, need, has);
    NEAP_ASSERT(bank->capacity == 0 || all <= bank->capacity,
                "arena and blobs keep to the %zu bytes of bank \"%s\": %zu", bank->capacity,
                graph->bank[b].name, all);
  }
}

void neap_workspace_take_banks(neap_workspace *ws, const neap_program *program,
                               neap_storage *fresh[NEAP_MAX_BANKS]) {
  const neap_graph *graph = neap_program_graph(program);
  for (int b = 0; b < graph->n_bank; b++) {
    const neap_bank *given = &graph->bank[b];
    neap_workspace_bank *bank = find(ws, given->name);
    if (bank == NULL) {
      bank = &ws->bank[ws->n_bank++];
      *bank = (neap_workspace_bank){.name = given->name};
    }

    /* The first program that says more than the name speaks for all; make_bank has compared the
     * others. */
    if (!is_unsaid(given->name, (size_t)given->bytes, given->kind)) {
      bank->capacity = (size_t)given->bytes;
      bank->kind = given->kind;
    }
    if (fresh[b] == NULL) continue;
    neap_storage_release(bank->arena);
    bank->arena = fresh[b];
    ws->n_run++; /* as with the arena: views of the old bytes are views of nothing that runs */
    ws->last = NULL;
  }
  if (NEAP_DEBUG) check_banks(ws, program);
}

size_t neap_workspace_bank_bytes(const neap_workspace *ws, const neap_program *program) {
  size_t bytes = 0;
  for (int b = 0; b < ws->n_bank; b++)
    if (ws->bank[b].arena != NULL) bytes += neap_storage_bytes(ws->bank[b].arena);
  if (program == NULL) return bytes;
  /* And what the program would make them grow by. */
  const neap_graph *graph = neap_program_graph(program);
  for (int b = 1; b < graph->n_bank; b++) {
    size_t need = neap_program_plan(program)->bank[b].bytes;
    size_t has = arena_of(ws, find(ws, graph->bank[b].name), b);
    if (need > has) bytes += need - has;
  }
  return bytes;
}

neap_storage *neap_workspace_bank_arena(const neap_workspace *ws, const neap_program *program,
                                        int b) {
  if (b == 0) return ws->arena;
  const neap_workspace_bank *bank = find(ws, neap_program_graph(program)->bank[b].name);
  return bank != NULL ? bank->arena : NULL;
}
