/* bank.c: the memory banks of a workspace: an arena of each, which its programs share as they share the arena.
 *
 * A bank is known by its name from the first program that has it on: all programs must mean the same capacity and kind by it. Main is
 * listed too, for its capacity; its bytes are the workspace's arena.
 * INVARIANT: a bank's arena is as large as the largest part that an attached program has of it, and never above its capacity.
 */
#include "workspace/workspace_int.h"

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

static neap_status check_same(const neap_workspace_bank *known, const neap_bank *given, const char *net, neap_error *error) {
  char a[24], b[24];
  if (known == NULL || (known->capacity == (size_t)given->bytes && known->kind == given->kind)) return NEAP_OK;
  return neap_fail(
    error, NEAP_ARGUMENT,
    "net \"%s\": bank \"%s\" is %s of %s in this workspace already, and %s of %s here; a bank is the same for all nets", net,
    given->name, neap_bank_kind_name(known->kind), neap_bytes_text((double)known->capacity, a), neap_bank_kind_name(given->kind),
    neap_bytes_text((double)given->bytes, b));
}

static neap_status make_bank(neap_workspace *ws, const neap_program *program, int b, neap_storage **fresh, neap_error *error) {
  const neap_graph *graph = neap_program_graph(program);
  const neap_bank *given = &graph->bank[b];
  neap_workspace_bank *known = find(ws, given->name);
  NEAP_TRY(check_same(known, given, graph->name, error));
  size_t need = neap_program_plan(program)->bank[b].bytes, has = arena_of(ws, known, b);
  if (given->bytes > 0 && NEAP_MAX(need, has) > (size_t)given->bytes) {
    char x[24], y[24];
    if (error != NULL && error->code == NEAP_OK) error->least_bytes = (int64_t)NEAP_MAX(need, has);
    return neap_fail(error, NEAP_MEMORY, "net \"%s\": bank \"%s\" has %s, its programs need %s of it", graph->name, given->name,
                     neap_bytes_text((double)given->bytes, x), neap_bytes_text((double)NEAP_MAX(need, has), y));
  }
  if (b == 0 || need <= has) return NEAP_OK;
  *fresh = neap_storage_new_in(need, given->kind);
  return *fresh != NULL ? NEAP_OK : neap_fail_memory(error, need, given->name);
}

neap_status neap_workspace_make_banks(neap_workspace *ws, const neap_program *program, neap_storage *fresh[NEAP_MAX_BANKS],
                                      neap_error *error) {
  const neap_graph *graph = neap_program_graph(program);
  neap_status status = NEAP_OK;
  if (!neap_list_grow(&ws->bank, &ws->cap_bank, ws->n_bank + graph->n_bank, sizeof *ws->bank))
    return neap_fail_memory(error, (size_t)graph->n_bank * sizeof *ws->bank, "memory banks");
  for (int b = 0; b < graph->n_bank && status == NEAP_OK; b++) status = make_bank(ws, program, b, &fresh[b], error);
  for (int b = 0; b < graph->n_bank && status != NEAP_OK; b++) {
    neap_storage_release(fresh[b]);
    fresh[b] = NULL;
  }
  return status;
}

void neap_workspace_take_banks(neap_workspace *ws, const neap_program *program, neap_storage *fresh[NEAP_MAX_BANKS]) {
  const neap_graph *graph = neap_program_graph(program);
  for (int b = 0; b < graph->n_bank; b++) {
    const neap_bank *given = &graph->bank[b];
    neap_workspace_bank *bank = find(ws, given->name);
    if (bank == NULL) {
      bank = &ws->bank[ws->n_bank++];
      *bank = (neap_workspace_bank){.name = given->name, .capacity = (size_t)given->bytes, .kind = given->kind};
    }
    if (fresh[b] == NULL) continue;
    neap_storage_release(bank->arena);
    bank->arena = fresh[b];
    ws->n_run++; /* as with the arena: views of the old bytes are views of nothing that runs */
    ws->last = NULL;
  }
}

size_t neap_workspace_bank_bytes(const neap_workspace *ws, const neap_program *program) {
  const neap_graph *graph = program != NULL ? neap_program_graph(program) : NULL;
  size_t bytes = 0;
  for (int b = 0; b < ws->n_bank; b++)
    if (ws->bank[b].arena != NULL) bytes += neap_storage_bytes(ws->bank[b].arena);
  for (int b = 1; graph != NULL && b < graph->n_bank; b++) {
    size_t need = neap_program_plan(program)->bank[b].bytes, has = arena_of(ws, find(ws, graph->bank[b].name), b);
    if (need > has) bytes += need - has;
  }
  return bytes;
}

neap_storage *neap_workspace_bank_arena(const neap_workspace *ws, const neap_program *program, int b) {
  const neap_workspace_bank *bank = b > 0 ? find(ws, neap_program_graph(program)->bank[b].name) : NULL;
  return b == 0 ? ws->arena : bank != NULL ? bank->arena : NULL;
}
