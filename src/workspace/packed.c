/* packed.c: parameters that are held once: as a program's constants have them. A net that infers
 * packs its weights into the layouts of its kernels, and reads them there from then on. Where that
 * keeps every element, the weights as they were are put away: they are unpacked again for whoever
 * asks for them, a fetch, another program, a change.
 *
 * They go one by one, as soon as each is packed, so that the first run has no moment with two of
 * all. The plan counts both.
 *
 * INVARIANT: what is put away is seen by one attachment alone, whose base it is; the constants stay
 * as long as it is away.
 */
#include "workspace/workspace_int.h"

enum { LEAST_BYTES = 1 << 14 }; /* a few pages: less is not worth a record */

/* Where the elements are. */
typedef struct packed {
  neap_storage *constants; /* retained */
  size_t offset;
  neap_type type;
  neap_layout layout;
} packed;

static void unpack(void *self, char *data) {
  const packed *p = self;
  neap_error none = {0};
  neap_status status =
    neap_reorder(&p->type, &p->layout, neap_storage_data(p->constants) + p->offset,
                 &(neap_layout){0}, data, &none);
  NEAP_ASSERT(status == NEAP_OK, "what was packed by Reorder is unpacked by it: %s", none.message);
  (void)status;
}

static void drop(void *self) {
  packed *p = self;
  neap_storage_release(p->constants);
  neap_free(p);
}

/* Whether nobody but the cell, its attachment and marks of whole calls can have the bytes' address.
 * The reader may be on another thread in a child. */
static bool is_alone(const neap_workspace *ws, const neap_cell *cell) {
  const neap_tensor *t = &cell->tensor;
  neap_type type = neap_tensor_type(t);
  bool is_whole = t->offset_bytes == 0 && neap_type_bytes(&type) == neap_storage_bytes(t->storage);
  return is_whole && !cell->in_segment && !neap_storage_is_read_only(t->storage) &&
         neap_storage_n_ref(t->storage) <= 2 + ws->n_mark && ws->first_frame == NULL &&
         !neap_workspace_has_child(ws);
}

/* Short of memory for the record, the weights stay. */
void neap_workspace_spare(void *owner, int b) {
  const neap_packing *packing = owner;
  neap_workspace *ws = packing->ws;
  const neap_attachment *a = packing->attachment;
  const neap_program_blob *blob = neap_program_blob_at(a->program, b);
  if (a->cell[b].ws != ws || neap_type_bytes(&blob->type) < LEAST_BYTES) return;
  neap_cell *cell = &ws->cell[a->cell[b].cell];
  if (!is_alone(ws, cell)) return;
  const neap_value *value = &neap_program_graph(a->program)->value[blob->packed];
  packed *p = neap_alloc(sizeof *p);
  if (p == NULL) return;
  *p = (packed){.type = value->type, .layout = value->layout};
  int where;
  bool found = neap_program_where(a->program, blob->packed, &where, &p->offset);
  NEAP_ASSERT(found && where == NEAP_IN_CONSTANTS, "what \"%s\" is packed in is a constant",
              blob->name);
  (void)found;
  p->constants = neap_storage_retain(a->constants);
  neap_storage_put_away(cell->tensor.storage, &(neap_storage_source){unpack, drop, p});
}
