/* recycle.c: recycling from end to end: a net written out, ordered, its names assigned to slots and
 * renamed, with figures.
 *
 * INVARIANT: the net that is given has been proved to compute what the net that came in computes
 * (apply.c).
 */
#include "memonger/memonger_int.h"

static neap_status no_memory(neap_error *error) {
  return neap_fail_memory(error, 4096, "recycling a net");
}

static const neap_recycle_options defaults;

/* ---- what is worked on ----------------------------------------------------------------------- */

static bool has_pseudo(const neap_net *net) {
  for (int i = 0; i < neap_net_n_ops(net); i++)
    if ((neap_net_op_at(net, i)->op->effects & NEAP_EFFECT_PSEUDO) != 0) return true;
  return false;
}

neap_status neap_recycle_write_out(const neap_net *net, const neap_graph_options *options,
                                   neap_net **out, neap_error *error) {
  *out = NULL;

  /* Nothing to write out: the net stands as it is. */
  if (!has_pseudo(net)) return NEAP_OK;

  /* The graph has the ops that the pseudo-ops stand for: as a net it is the net written out. */
  neap_graph *graph;
  NEAP_TRY(neap_graph_prepare(net, options, &graph, error));
  neap_status status = neap_graph_to_net(graph, net, out, error);
  neap_graph_free(graph);
  return status;
}

static neap_status compare(const neap_net *a, const neap_net *b, neap_recycle_sameness asked,
                           bool *same, neap_buffer *where, neap_error *error) {
  *same = true;
  if (asked.graph) NEAP_TRY(neap_net_same_graph(a, b, same, where, error));
  if (*same && asked.in_place) *same = neap_net_same_in_place(a, b, where);
  return NEAP_OK;
}

/* Two nets with pseudo-ops are compared as they are: they were written alike, or not, and need no
 * types for it. */
neap_status neap_recycle_same(const neap_net *a, const neap_net *b, neap_recycle_sameness asked,
                              bool *same, neap_buffer *where, neap_error *error) {
  if (has_pseudo(a) == has_pseudo(b)) return compare(a, b, asked, same, where, error);

  /* One is written out, the other is not: both are compared as ops. */
  neap_net *written = NULL;
  NEAP_TRY(neap_recycle_write_out(has_pseudo(a) ? a : b, NULL, &written, error));
  neap_status status =
    compare(has_pseudo(a) ? written : a, has_pseudo(b) ? written : b, asked, same, where, error);
  neap_net_free(written);
  return status;
}

/* The net written out and in the order that the options ask for; *owned is NULL where that is `net`
 * itself. */
static neap_status make_ready(const neap_net *net, const neap_recycle_options *options,
                              const neap_graph_options *graph, neap_net **owned,
                              neap_error *error) {
  NEAP_TRY(neap_recycle_write_out(net, graph, owned, error));

  /* The order is found on the net written out, since ops are what is ordered. */
  if (options->order == NULL) return NEAP_OK;
  const neap_net *written = *owned != NULL ? *owned : net;
  neap_net *ordered = NULL;
  int *position = neap_alloc(((size_t)neap_net_n_ops(written) + 1) * sizeof *position);
  neap_status status =
    position == NULL ? no_memory(error) : neap_net_sort(written, options->order, position, error);

  if (status == NEAP_OK) status = neap_recycle_reorder(written, position, &ordered, error);

  /* The net in order takes the place of the one written out. */
  neap_free(position);
  neap_net_free(*owned);
  *owned = ordered;
  return status;
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* Blobs of one slot are of one class, and none of them conflicts with another. */
static void check_slots(const neap_recycle *recycle, const int *slot_of) {
  for (int a = 0; a < recycle->n_blob; a++)
    for (int b = 0; b < a; b++) {
      if (slot_of[a] < 0 || slot_of[a] != slot_of[b]) continue;
      const neap_recycle_blob *x = &recycle->blob[a], *y = &recycle->blob[b];
      NEAP_ASSERT(x->class_id == y->class_id, "\"%s\" and \"%s\" share and are of one class",
                  x->name, y->name);
      NEAP_ASSERT(!neap_interferes(recycle->conflict, recycle->n_word, a, b),
                  "\"%s\" and \"%s\" share and do not conflict", x->name, y->name);
    }
}

/* Conflicts go over to the smaller matrix of the blobs that share: O(blobs^2). */
neap_status neap_recycle_assign(const neap_recycle *recycle, const neap_recycle_options *options,
                                int *slot_of, neap_assign_figures *figures, neap_error *error) {
  neap_arena arena = {0};
  size_t n_blob = (size_t)recycle->n_blob;
  neap_assign_item *item = neap_arena_alloc(&arena, n_blob * sizeof *item);
  int *blob = neap_arena_alloc(&arena, n_blob * sizeof(int)),
      *slot = neap_arena_alloc(&arena, n_blob * sizeof(int));
  uint64_t *bits = neap_arena_alloc(&arena, n_blob * (n_blob / 64 + 1) * sizeof *bits);
  neap_status status = NEAP_OK;
  if (item == NULL || blob == NULL || slot == NULL || bits == NULL) {
    status = no_memory(error);
    goto done;
  }

  /* Those that share, under numbers of their own. */
  int n = 0;
  for (int b = 0; b < recycle->n_blob; b++) {
    const neap_recycle_blob *one = &recycle->blob[b];
    slot_of[b] = -1;
    if (!one->shares) continue;
    item[n] = (neap_assign_item){options->unsized ? 1 : (int64_t)one->bytes, one->class_id,
                                 one->first, one->last, one->name};
    blob[n++] = b;
  }

  neap_assign_options how = {.exact = options->exact,
                             .most_steps = options->most_steps,
                             .conflict = bits,
                             .n_word = (n + 63) / 64};

  /* The matrix under those numbers. */
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++)
      if (neap_interferes(recycle->conflict, recycle->n_word, blob[i], blob[j]))
        neap_bit_set(bits + (size_t)i * (size_t)how.n_word, j);

  /* Slots come back by those numbers, and go out by the net's. */
  status = neap_assign(n, item, &how, slot, figures, error);
  if (status != NEAP_OK) goto done;
  for (int i = 0; i < n; i++) slot_of[blob[i]] = slot[i];
  if (NEAP_DEBUG) check_slots(recycle, slot_of);
done:
  neap_arena_fini(&arena);
  return status;
}

/* The slots that have a name, in order of number, with their blobs. */
static neap_status list_slots(const neap_recycle *recycle, int n_slot, const int *slot_of,
                              const char *const *name, neap_recycle_slots *slots,
                              neap_error *error) {
  slots->slot = neap_arena_alloc(&slots->arena, ((size_t)n_slot + 1) * sizeof *slots->slot);
  if (slots->slot == NULL) return no_memory(error);
  for (int k = 0; k < n_slot; k++) {
    if (name[k] == NULL) continue;
    neap_recycle_slot *slot = &slots->slot[slots->n++];

    slot->name = name[k];

    /* How many blobs, and how large the largest is; then their names. */
    int n_blob = 0;
    for (int b = 0; b < recycle->n_blob; b++) {
      if (slot_of[b] != k) continue;
      n_blob++;
      slot->bytes = NEAP_MAX(slot->bytes, (int64_t)recycle->blob[b].bytes);
    }

    slot->blob = neap_arena_alloc(&slots->arena, (size_t)n_blob * sizeof *slot->blob);
    if (slot->blob == NULL) return no_memory(error);
    for (int b = 0; b < recycle->n_blob; b++)
      if (slot_of[b] == k) slot->blob[slot->n_blob++] = recycle->blob[b].name;
  }
  return NEAP_OK;
}

/* Bytes at real sizes, whatever was assigned by. Blobs that could share but do not, for the options
 * or their devices, count at full size. */
static neap_status measure(const neap_recycle *recycle, const neap_recycle_options *options,
                           const neap_assign_figures *assigned, const int *slot_of,
                           const char *const *name, neap_recycle_figures *figures,
                           neap_error *error) {
  /* Bytes by slot. */
  size_t *bytes = neap_alloc_zeroed(((size_t)assigned->n_slot + 1) * sizeof *bytes), planned = 0;
  if (bytes == NULL) return no_memory(error);
  *figures = (neap_recycle_figures){.baseline_bytes = (int64_t)recycle->baseline_bytes,
                                    .lower_bound_bytes = (int64_t)recycle->lower_bound_bytes,
                                    .n_slot = assigned->n_slot};

  for (int b = 0; b < recycle->n_blob; b++) {
    const neap_recycle_blob *blob = &recycle->blob[b];
    /* Who shares counts in his slot; who could and does not, at full size. */
    if (slot_of[b] >= 0) bytes[slot_of[b]] = NEAP_MAX(bytes[slot_of[b]], blob->bytes);
    if (slot_of[b] < 0 && blob->fixed == NULL) planned += blob->bytes;
  }

  /* A slot is as large as its largest blob. */
  for (int k = 0; k < assigned->n_slot; k++) {
    planned += bytes[k];
    figures->n_shared += name[k] != NULL;
  }
  neap_free(bytes);

  NEAP_ASSERT(planned >= recycle->lower_bound_bytes, "names hold %zu bytes, the bound is %zu",
              planned, recycle->lower_bound_bytes);
  figures->planned_bytes = (int64_t)planned;
  figures->saved =
    recycle->baseline_bytes > 0 ? 1 - (double)planned / (double)recycle->baseline_bytes : 0;

  /* Proved the least by the search, by real sizes; or by the bound itself. */
  figures->proved =
    (assigned->proved && !options->unsized) || planned == recycle->lower_bound_bytes;
  return NEAP_OK;
}

/* ---- all of it ------------------------------------------------------------------------------- */

/* A recycle that is open: assigns, applies, measures. *out is set on success alone. Where the
 * options name blobs or ops, nobody else's names are touched, those in subnets among them. */
static neap_status share(const neap_recycle *recycle, const neap_recycle_options *options,
                         neap_net **out, neap_recycle_figures *figures, neap_recycle_slots *slots,
                         neap_error *error) {
  bool inside = options->n_op == 0 && options->n_shareable == 0 && !options->gradients_only;
  neap_arena arena = {0};
  neap_assign_figures assigned = {0};
  int *slot_of = neap_arena_alloc(&arena, ((size_t)recycle->n_blob + 1) * sizeof *slot_of);
  const char **name = neap_arena_alloc(&arena, ((size_t)recycle->n_blob + 1) * sizeof *name);

  /* Slots, then the net, then what is told of it. */
  neap_net *made = NULL;
  neap_status status = slot_of == NULL || name == NULL
                         ? no_memory(error)
                         : neap_recycle_assign(recycle, options, slot_of, &assigned, error);

  /* The net first; figures and lists tell of what was made. */
  if (status == NEAP_OK)
    status = neap_recycle_apply(recycle, slot_of, assigned.n_slot,
                                options->prefix != NULL ? options->prefix : "", inside, name, &made,
                                error);
  if (status == NEAP_OK && figures != NULL)
    status = measure(recycle, options, &assigned, slot_of, name, figures, error);
  if (status == NEAP_OK && slots != NULL)
    status = list_slots(recycle, assigned.n_slot, slot_of, name, slots, error);
  neap_arena_fini(&arena);
  if (status != NEAP_OK) {
    neap_net_free(made);
    return status;
  }
  *out = made;
  return NEAP_OK;
}

neap_status neap_recycle_net(const neap_net *net, const neap_recycle_options *options,
                             const neap_graph_options *graph, neap_net **out,
                             neap_recycle_figures *figures, neap_recycle_slots *slots,
                             neap_error *error) {
  neap_net *owned = NULL;
  neap_recycle recycle;
  if (options == NULL) options = &defaults;

  /* Lists are empty when nothing comes of it. */
  if (slots != NULL) *slots = (neap_recycle_slots){0};
  neap_status status = make_ready(net, options, graph, &owned, error);

  /* What is shared is the net made ready, which goes when the new one is made. */
  if (status == NEAP_OK)
    status = neap_recycle_open(&recycle, owned != NULL ? owned : net, graph, options, error);
  if (status == NEAP_OK) {
    status = share(&recycle, options, out, figures, slots, error);
    neap_recycle_close(&recycle);
  }

  /* The new net is a copy: it borrows nothing from the one made ready. */
  neap_net_free(owned);
  if (status != NEAP_OK && slots != NULL) neap_recycle_slots_fini(slots);
  return status;
}

void neap_recycle_slots_fini(neap_recycle_slots *slots) {
  neap_arena_fini(&slots->arena);
  *slots = (neap_recycle_slots){0};
}
