/* apart.c: whether what a run writes lies apart from all else that it reads or writes. Names say
 * nothing about that: a tensor that was fed with share = true under two names, views of one tensor,
 * or two forwarded names of one blob are the same bytes.
 *
 * INVARIANT: a program runs only when no blob that it writes has a byte in common with another of
 * its blobs. The blobs of an attachment are kept sorted by address, which changes little from one
 * look-up to the next: a walk finds what meets.
 */
#include "workspace/workspace_int.h"

static const char *begin_of(const neap_tensor *t) {
  return t->storage != NULL ? neap_storage_address(t->storage) + t->offset_bytes : NULL;
}

static const char *end_of(const neap_tensor *t) {
  neap_type type = neap_tensor_type(t);
  return begin_of(t) + neap_type_bytes(&type);
}

static bool meet(const neap_tensor *a, const neap_tensor *b) {
  bool empty = begin_of(a) == end_of(a) || begin_of(b) == end_of(b);
  return !empty && begin_of(a) < end_of(b) && begin_of(b) < end_of(a);
}

bool neap_workspace_meet(const neap_workspace *ws, const char *a, const char *b) {
  neap_found x = neap_workspace_find(ws, a), y = neap_workspace_find(ws, b);
  if (x.ws == NULL || y.ws == NULL) return false;
  const neap_cell *first = &x.ws->cell[x.cell], *second = &y.ws->cell[y.cell];
  bool tensors =
    neap_cell_kind(first) == NEAP_BLOB_TENSOR && neap_cell_kind(second) == NEAP_BLOB_TENSOR;
  return tensors && meet(&first->tensor, &second->tensor);
}

/* By insertion: they are nearly in order. */
static void sort_by_address(neap_attachment *a, int n) {
  for (int i = 1; i < n; i++) {
    int blob = a->by_address[i], k = i;
    for (; k > 0 && begin_of(&a->tensor[a->by_address[k - 1]]) > begin_of(&a->tensor[blob]); k--)
      a->by_address[k] = a->by_address[k - 1];
    a->by_address[k] = blob;
  }
}

/* Of blobs i and j, which meet, the one that the run writes is told first. */
static neap_status fail_meeting(const neap_attachment *a, int i, int j, neap_error *error) {
  const neap_program_blob *first = neap_program_blob_at(a->program, i),
                          *second = neap_program_blob_at(a->program, j);
  const char *written = first->written ? first->name : second->name,
             *other = first->written ? second->name : first->name;
  neap_hint(
    error,
    "feed one of them a copy: share = true and forwarded names give two names the same bytes");
  return neap_fail(error, NEAP_GRAPH,
                   "net \"%s\": writes \"%s\", which has bytes in common with \"%s\"",
                   neap_program_graph(a->program)->name, written, other);
}

/* No blob that the program writes has a byte in common with another of its blobs: each two of
 * them. */
static void check_pairs(const neap_attachment *a, int n) {
  for (int i = 0; i < n; i++)
    for (int j = 0; j < i; j++) {
      bool written = neap_program_blob_at(a->program, i)->written ||
                     neap_program_blob_at(a->program, j)->written;
      NEAP_ASSERT(!written || !meet(&a->tensor[i], &a->tensor[j]),
                  "\"%s\" and \"%s\", of which one is written, share no byte", a->name[i],
                  a->name[j]);
    }
}

neap_status neap_attachment_check_apart(neap_attachment *a, neap_error *error) {
  int n = neap_program_n_blobs(a->program);

  /* of those before, the blob that ends last, and the one that ends last of those written */
  int reaches = -1, writes = -1;
  sort_by_address(a, n);

  /* From low addresses to high: a blob can only meet one that begins before it and reaches as far.
   * Of those the one that ends last is enough, and of the written ones likewise. */
  for (int i = 0; i < n; i++) {
    int blob = a->by_address[i];
    const neap_tensor *t = &a->tensor[blob];
    if (begin_of(t) == end_of(t)) continue;
    bool written = neap_program_blob_at(a->program, blob)->written;
    if (written && reaches >= 0 && meet(t, &a->tensor[reaches]))
      return fail_meeting(a, blob, reaches, error);
    if (writes >= 0 && meet(t, &a->tensor[writes])) return fail_meeting(a, writes, blob, error);
    if (reaches < 0 || end_of(t) > end_of(&a->tensor[reaches])) reaches = blob;
    if (written && (writes < 0 || end_of(t) > end_of(&a->tensor[writes]))) writes = blob;
  }
  if (NEAP_DEBUG) check_pairs(a, n);
  return NEAP_OK;
}
