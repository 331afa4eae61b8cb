/* undo.c: copies of what a run may leave half written, so that one that fails leaves it as it was.
 *
 * What can fail comes before what commits, unless it reads what was committed: an update in place,
 * or in a branch or loop, and behind it an index or a check of what it made
 * (neap_graph_stops_late). Programs of such graphs have copies of all that they commit to. The
 * copies lie in one storage, which the programs of a workspace share as they share the arena: it is
 * as large as the largest of them needs, and there is none for most. The state's bytes in a plan
 * count them.
 * INVARIANT: saving and putting back take no memory and can't fail: the storage is there when a
 * program is attached.
 */
#include "workspace/workspace_int.h"

#include <string.h>

/* Whether a failed run of the program puts its blob b back. */
static bool is_saved(const neap_attachment *a, int b) {
  return neap_program_blob_at(a->program, b)->half_written;
}

static size_t blob_bytes(const neap_attachment *a, int b) {
  return neap_type_bytes(&neap_program_blob_at(a->program, b)->type);
}

size_t neap_undo_bytes(const neap_program *program) {
  size_t bytes = 0;
  for (int b = 0; b < neap_program_n_blobs(program); b++) {
    const neap_program_blob *blob = neap_program_blob_at((neap_program *)program, b);
    if (blob->half_written)
      bytes += neap_align(NEAP_MAX(neap_type_bytes(&blob->type), blob->reserve_bytes));
  }
  return bytes;
}

/* Blobs are dense, whatever they are views of. */
void neap_undo_save(const neap_workspace *ws, const neap_attachment *a) {
  NEAP_ASSERT(neap_undo_bytes(a->program) <= (ws->undo != NULL ? neap_storage_bytes(ws->undo) : 0),
              "saving takes no memory: %zu bytes are there from the attaching on",
              neap_undo_bytes(a->program));
  char *to = ws->undo != NULL ? neap_storage_data(ws->undo) : NULL;
  for (int b = 0; b < neap_program_n_blobs(a->program); b++) {
    if (!is_saved(a, b)) continue;
    neap_copy_bytes(to, neap_tensor_data(&a->tensor[b]), blob_bytes(a, b));
    to += neap_align(blob_bytes(a, b));
  }
}

void neap_undo_put_back(const neap_workspace *ws, const neap_attachment *a) {
  const char *from = ws->undo != NULL ? neap_storage_data(ws->undo) : NULL;
  for (int b = 0; b < neap_program_n_blobs(a->program); b++) {
    if (!is_saved(a, b)) continue;
    neap_copy_bytes(neap_tensor_data(&a->tensor[b]), from, blob_bytes(a, b));
    from += neap_align(blob_bytes(a, b));
  }
}
