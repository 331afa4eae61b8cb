/* newest.c: a name has one value: the one that was fed or computed last.
 *
 * A program writes some blobs into cells, and others into bytes that are nobody's for long: the
 * arena, the pool, a hidden cell. Where a cell of such a name is there as well, it is marked
 * `outdated` when the run has finished, with a sentence that says by what. The newest value is in
 * the arena then; the next net that reads the name gets it from there, while it is intact, and an
 * error after that. So does fetch. Writing the cell again, by a feed or a run, ends the mark.
 *
 * The mark is one word that only changes when it has to, since several threads may run nets on one
 * parent workspace.
 */
#include "workspace/workspace_int.h"

#include <stdio.h>
#include <string.h>

static const char *mark_of(const neap_cell *cell) {
  return __atomic_load_n(&cell->outdated, __ATOMIC_RELAXED);
}

static void set_mark(neap_cell *cell, const char *text) {
  if (mark_of(cell) != text) __atomic_store_n(&cell->outdated, text, __ATOMIC_RELAXED);
}

neap_status neap_newest_fail(const char *verb, const char *name, const char *outdated,
                             neap_error *error) {
  if (error != NULL && error->code == NEAP_OK)
    snprintf(error->blob, sizeof error->blob, "%s", name);
  if (strstr(outdated, "\" has freed it") != NULL)
    neap_hint(error, "feed it again, or give the blob that the net frees another name");
  else
    neap_hint(error, "ws:keep \"%s\" gives it bytes of its own in every net that writes it", name);
  return neap_fail(error, NEAP_RELEASED, "%s \"%s\": %s", verb, name, outdated);
}

/* ---- what a program outdates ----------------------------------------------------------------- */

/* Notes that node `by` (NULL: not known) writes or frees `name`, if the workspace has a cell of
 * that name. */
static neap_status note(neap_workspace *ws, neap_attachment *a, const char *name,
                        const neap_node *by, bool freed, neap_error *error) {
  neap_found found = neap_workspace_find_key(ws, name);
  if (found.ws == NULL || neap_cell_kind(&found.ws->cell[found.cell]) != NEAP_BLOB_TENSOR)
    return NEAP_OK;

  /* The sentence is made now, while graph and op are at hand: when it is said, the program may be
   * gone. It is interned, so that marking a cell is a word's assignment. */
  char text[640], op[300] = "", line[160] = "";
  if (by != NULL) snprintf(op, sizeof op, ", in %.60s \"%.200s\"", by->op->name, by->name);
  if (by != NULL && by->line[0] != '\0') snprintf(line, sizeof line, " at %.150s", by->line);
  snprintf(text, sizeof text, "net \"%.100s\" has %s it since%s%s%s",
           neap_program_graph(a->program)->name, freed ? "freed" : "written", op, line,
           freed ? "" : ", and kept no bytes for it");
  const char *interned = neap_intern(text);
  if (interned == NULL ||
      !neap_list_grow(&a->outdates, &a->cap_outdates, a->n_outdates + 1, sizeof *a->outdates))
    return neap_fail_memory(error, sizeof *a->outdates, "names that a net writes");
  a->outdates[a->n_outdates++] = (neap_outdates){found, interned};
  return NEAP_OK;
}

/* Whether the program keeps the newest value of the name in a cell of that name. */
static bool is_kept(const neap_attachment *a, neap_value_id v, const char *name) {
  int blob;
  size_t offset;
  return neap_program_where(a->program, v, &blob, &offset) && blob >= 0 && a->name[blob] == name;
}

neap_status neap_newest_find(neap_workspace *ws, neap_attachment *a, neap_error *error) {
  const neap_graph *graph = neap_program_graph(a->program);
  a->n_outdates = 0;

  /* What the program writes, and keeps no cell for. */
  for (int v = 0; v < graph->n_value; v++) {
    const neap_value *value = &graph->value[v];
    if (!value->is_blob || !value->is_last || value->node < 0 || value->name == NULL) continue;
    if (is_kept(a, v, value->name)) continue;
    NEAP_TRY(note(ws, a, value->name, &graph->node[value->node], false, error));
  }

  /* What would have been written, had a rewrite not done without it. */
  for (int i = 0; i < graph->n_gone; i++)
    NEAP_TRY(note(ws, a, graph->gone[i].name, NULL, false, error));

  /* What a Free ends, where the blob is not the program's. */
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    if ((node->effects & NEAP_EFFECT_RELEASE) == 0) continue;
    for (int i = 0; i < node->n_in; i++) {
      const char *name = node->in[i] >= 0 ? graph->value[node->in[i]].name : NULL;
      if (name != NULL && neap_graph_find(graph, name) < 0)
        NEAP_TRY(note(ws, a, name, node, true, error));
    }
  }
  return NEAP_OK;
}

void neap_newest_mark(neap_attachment *a) {
  for (int b = 0; b < neap_program_n_blobs(a->program); b++)
    if (neap_program_blob_at(a->program, b)->written)
      set_mark(&a->cell[b].ws->cell[a->cell[b].cell], NULL);
  for (int i = 0; i < a->n_outdates; i++) {
    neap_found found = a->outdates[i].cell;
    set_mark(&found.ws->cell[found.cell], a->outdates[i].text);
  }
}

/* ---- what a program reads -------------------------------------------------------------------- */

neap_status neap_newest_bring(neap_workspace *ws, neap_attachment *a, neap_error *error) {
  bool current = a->version == neap_workspace_chain_version(ws);
  for (int b = 0; b < neap_program_n_blobs(a->program); b++) {
    const neap_program_blob *blob = neap_program_blob_at(a->program, b);
    if (!blob->defined_before) continue;
    neap_found found = current ? a->cell[b] : neap_workspace_find_key(ws, a->name[b]);
    const char *text = found.ws != NULL ? mark_of(&found.ws->cell[found.cell]) : NULL;
    if (text == NULL) continue;
    char who[300];
    snprintf(who, sizeof who, "net \"%.200s\" reads", neap_program_graph(a->program)->name);
    neap_tensor newest = {0};
    neap_error lost = {0};

    /* The value is elsewhere: it is fetched from there and fed to the cell that the program
     * reads. */
    if (neap_workspace_fetch(ws, blob->name, &newest, &lost) != NEAP_OK)
      return neap_newest_fail(who, blob->name, text, error);
    neap_status status = neap_workspace_feed(ws, blob->name, &newest, false, error);
    neap_tensor_fini(&newest);
    NEAP_TRY(status);
    current = false; /* the cell may have other bytes now */
  }
  return NEAP_OK;
}
