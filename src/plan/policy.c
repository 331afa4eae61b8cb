/* policy.c: addresses for storages and scratch, by policy.
 *
 * What needs bytes is an *item*: a storage, or the scratch of one node. Items conflict when their
 * lives overlap; in `dag`, unless a path leads from all that touches the one to what first writes
 * the other. `offset` packs the items. `none` and `name` give *slots*: items of one key that don't
 * conflict share one, and slots are laid out one after another. The key of a value is its blob name
 * (`name`) or nothing (`none`); all scratch has one key. `pool` has no layout: rehearse.c foretells
 * it. Each memory bank of the graph is laid out for itself, and the banks lie one after another.
 */
#include "plan/plan_int.h"

typedef struct item {
  int value, node;    /* root of the storage and -1, or -1 and the node of the scratch */
  neap_interval life; /* steps */
  int definer;        /* node that writes it first */
} item;

/* All items of one bank of a graph, with who conflicts with whom: on a line from their lives, in
 * `dag` by the matrix. */
typedef struct items {
  int bank, n;
  size_t peak_bytes; /* the most that the schedule has live at once: a bound of every layout */
  item *item;
  uint64_t *conflict; /* dag only, else NULL */
  int n_word;
  neap_arena arena;
} items;

static const char scratch_key[] = "scratch";

/* All that needs bytes, values by number and then scratch by node; empty storages need none and lie
 * at 0. */
static neap_status collect(items *all, const neap_work *work, const neap_schedule *s,
                           neap_error *error) {
  const neap_graph *g = work->graph;
  size_t room = (size_t)g->n_value + (size_t)g->n_node + 1;
  all->item = neap_arena_alloc(&all->arena, room * sizeof *all->item);
  if (all->item == NULL)
    return neap_fail_memory(error, room * sizeof *all->item, "a plan's storages");

  /* A storage is one item, at its root. */
  for (int v = 0; v < g->n_value; v++) {
    if (s->root[v] != v || g->value[v].region != NEAP_REGION_ARENA) continue;
    if (neap_graph_bank_of(g, v) != all->bank) continue;
    if (s->life[v].first < 0 || s->life[v].bytes == 0) continue;
    all->item[all->n++] = (item){v, -1, s->life[v], g->value[v].node};
  }

  /* Scratch lives while its node runs. */
  for (int n = 0; n < g->n_node; n++) {
    if (work->scratch_bytes[n] == 0 || g->node[n].bank != all->bank) continue;
    neap_interval life = {s->step[n], s->step[n], neap_align(work->scratch_bytes[n])};
    all->item[all->n++] = (item){-1, n, life, n};
  }
  return NEAP_OK;
}

/* Adds to `touch` the nodes that write or read the item, and returns how many there are then. NULL:
 * counts them. */
static int add_touches(const neap_work *work, const neap_schedule *s, const item *it, int n,
                       int *touch) {
  if (touch != NULL) touch[n] = it->definer;
  n++;
  if (it->value < 0) return n; /* scratch is touched by its node alone */
  /* Once around the ring of the storage's members. */
  int v = it->value;
  do {
    for (int k = work->uses.first[v]; k < work->uses.first[v + 1]; k++) {
      if (touch != NULL) touch[n] = work->uses.list[k];
      n++;
    }
    /* Who writes a later member, in place or as a view, touches the storage too. */
    int node = work->graph->value[v].node;
    if (node >= 0 && node != it->definer) {
      if (touch != NULL) touch[n] = node;
      n++;
    }
    v = s->next[v];
  } while (v != it->value);
  return n;
}

/* dag: the matrix. Whoever writes an item first begins it: all others that touch it come after. */
static neap_status find_conflicts(items *all, const neap_work *work, const neap_schedule *s,
                                  neap_error *error) {
  if (work->reach == NULL) return NEAP_OK;
  size_t n = (size_t)all->n;

  /* How long the list of all touches is, then room for it and for the matrix. */
  int n_touch = 0;
  for (int i = 0; i < all->n; i++) n_touch = add_touches(work, s, &all->item[i], n_touch, NULL);
  int *touch = neap_arena_alloc(&all->arena, ((size_t)n_touch + 1) * sizeof *touch);
  int *touch_at = neap_arena_alloc(&all->arena, (n + 1) * sizeof *touch_at);
  int *begin = neap_arena_alloc(&all->arena, (n + 1) * sizeof *begin);
  int *begin_at = neap_arena_alloc(&all->arena, (n + 1) * sizeof *begin_at);
  all->n_word = (int)((n + 63) / 64);
  all->conflict = neap_arena_alloc(&all->arena, n * (size_t)all->n_word * sizeof *all->conflict);
  if (touch == NULL || touch_at == NULL || begin == NULL || begin_at == NULL ||
      all->conflict == NULL)
    return neap_fail_memory(error, n * (size_t)all->n_word * sizeof *all->conflict,
                            "the conflicts of a dag");

  /* Item by item: the part of the list that is its own, and the one node that begins it. */
  for (int i = 0; i < all->n; i++) {
    touch_at[i + 1] = add_touches(work, s, &all->item[i], touch_at[i], touch);
    begin[i] = all->item[i].definer;
    begin_at[i + 1] = i + 1;
  }
  const neap_touches touches = {touch_at, touch, begin_at, begin, work->reach, work->n_word};
  return neap_interfere_in_order(all->n, &touches, all->conflict, all->n_word, error);
}

/* Whether two items may not share a byte. */
static bool conflicts(const items *all, int a, int b) {
  if (all->conflict != NULL) return neap_interferes(all->conflict, all->n_word, a, b);
  return neap_intervals_meet(&all->item[a].life, &all->item[b].life);
}

/* ---- packed ---------------------------------------------------------------------------------- */

/* Policy `offset`: offsets[i] of item i from the packers. The schedule's peak is told as the bound:
 * on a line it is the one that the packer finds itself, and in `dag` whatever is live at once in
 * one order conflicts in all. */
static neap_status pack(items *all, const neap_work *work, size_t *offset, neap_layout_out *out,
                        neap_error *error) {
  /* A block for each item, in the items' order, so that offsets come back by the same numbers. */
  neap_block *block = neap_arena_alloc(&all->arena, ((size_t)all->n + 1) * sizeof *block);
  if (block == NULL) return neap_fail_memory(error, (size_t)all->n * sizeof *block, "packing");
  for (int i = 0; i < all->n; i++)
    block[i] = (neap_block){.bytes = all->item[i].life.bytes,
                            .align = NEAP_ALIGN,
                            .first = (int)all->item[i].life.first,
                            .last = (int)all->item[i].life.last};
  neap_pack_options options = {.most_steps = work->options.most_steps,
                               .stop_at_bytes = all->peak_bytes,
                               .conflict = all->conflict,
                               .n_word = all->n_word};
  neap_pack_result result;
  NEAP_TRY(neap_pack(all->n, block, &options, &result, error));
  for (int i = 0; i < all->n; i++) offset[i] = block[i].offset;
  out->arena_bytes = result.total_bytes;

  /* In a dag a clique of conflicts may be heavier than the peak of any one order. */
  out->lower_bound_bytes = NEAP_MAX(all->peak_bytes, result.lower_bound_bytes);
  out->packer = result.packer;
  out->n_search += result.n_step;
  return NEAP_OK;
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* What items must agree in to share a slot; NULL: the item has a slot of its own. */
static const char *key_of(const neap_work *work, const item *it) {
  if (it->value < 0) return scratch_key;
  const neap_value *value = &work->graph->value[it->value];
  return work->options.policy == NEAP_POLICY_NAME && value->is_blob ? value->name : NULL;
}

/* Slots in order of their first item. `next_item` chains the items of a slot, `next_slot` the slots
 * of one key. */
typedef struct slots {
  int n;
  int *first_item, *next_slot, *next_item, *of;
  size_t *bytes;
  neap_map by_key;
} slots;

/* Whether item i meets none of the slot's. */
static bool fits(const items *all, const slots *t, int slot, int i) {
  for (int j = t->first_item[slot]; j >= 0; j = t->next_item[j])
    if (conflicts(all, i, j)) return false;
  return true;
}

/* The slot of item i: one of its key in which it meets nobody, the newest first, else a new one. A
 * slot grows to its largest item. False when memory is refused. */
static bool put_in_slot(const items *all, slots *t, int i, const char *key) {
  int head = -1; /* the newest slot of the key */
  if (key != NULL) head = neap_map_get(&t->by_key, key, -1);
  int slot = head;
  while (slot >= 0 && !fits(all, t, slot, i)) slot = t->next_slot[slot];
  if (slot < 0) {
    /* None has room: a new one before the others of its key. */
    if (key != NULL && !neap_map_set(&t->by_key, key, t->n)) return false;
    slot = t->n++;
    t->first_item[slot] = -1;
    t->next_slot[slot] = head;
  }

  /* Which item of a slot comes first means nothing. */
  t->next_item[i] = t->first_item[slot];
  t->first_item[slot] = i;
  t->of[i] = slot;
  t->bytes[slot] = NEAP_MAX(t->bytes[slot], all->item[i].life.bytes);
  return true;
}

/* Items go to slots in the order of definition, scratch last; then slots are laid out one after
 * another. */
static neap_status lay_out_slots(items *all, const neap_work *work, size_t *offset,
                                 neap_layout_out *out, neap_error *error) {
  size_t n = (size_t)all->n + 1;
  slots t = {0};
  int **lists[] = {&t.first_item, &t.next_slot, &t.next_item, &t.of};
  for (int k = 0; k < NEAP_COUNT(lists); k++) {
    *lists[k] = neap_arena_alloc(&all->arena, n * sizeof(int));
    if (*lists[k] == NULL) return neap_fail_memory(error, n * sizeof(int), "slots");
  }
  t.bytes = neap_arena_alloc(&all->arena, n * sizeof *t.bytes);
  if (t.bytes == NULL) return neap_fail_memory(error, n * sizeof *t.bytes, "slots");

  /* Each item to its slot. The map of keys is of use until then. */
  bool ok = true;
  for (int i = 0; i < all->n; i++) {
    ok = put_in_slot(all, &t, i, key_of(work, &all->item[i]));
    if (!ok) break;
  }
  neap_map_fini(&t.by_key);
  if (!ok) return neap_fail_memory(error, n * sizeof(int), "slots");

  /* Now that each slot is as large as its largest item, they are laid out. */
  size_t at = 0;
  for (int slot = 0; slot < t.n; slot++) {
    size_t bytes = t.bytes[slot];
    t.bytes[slot] = at; /* from here on: the slot's offset */
    at += bytes;
  }
  for (int i = 0; i < all->n; i++) offset[i] = t.bytes[t.of[i]];
  out->arena_bytes = at;
  out->lower_bound_bytes = all->peak_bytes;
  out->packer = neap_policy_name(work->options.policy);
  return NEAP_OK;
}

/* One bank, from offset 0 on. All room is given back; fails with MEMORY, or as a packer does. */
static neap_status lay_out_bank(const neap_work *work, const neap_schedule *s, int bank,
                                size_t begin, neap_layout_out *out, neap_error *error) {
  items all = {.bank = bank};

  /* The items, what is known of them, and room for where each will lie. */
  neap_status status = collect(&all, work, s, error);
  if (status == NEAP_OK) status = neap_schedule_bank_peak(s, work, bank, &all.peak_bytes, error);
  if (status == NEAP_OK) status = find_conflicts(&all, work, s, error);
  if (status != NEAP_OK) goto done;
  size_t *offset = neap_arena_alloc(&all.arena, ((size_t)all.n + 1) * sizeof *offset);
  if (offset == NULL) {
    status = neap_fail_memory(error, (size_t)all.n * sizeof *offset, "offsets");
    goto done;
  }

  /* Where each lies, by the policy. */
  if (work->options.policy == NEAP_POLICY_OFFSET)
    status = pack(&all, work, offset, out, error);
  else
    status = lay_out_slots(&all, work, offset, out, error);
  if (status != NEAP_OK) goto done;

  /* In the words of the plan: by root value, and by node. */
  for (int i = 0; i < all.n; i++) {
    const item *it = &all.item[i];
    if (it->value >= 0)
      out->offset[it->value] = begin + offset[i];
    else
      out->scratch_offset[it->node] = begin + offset[i];
  }
done:
  neap_arena_fini(&all.arena);
  return status;
}

/* Bank after bank; figures are their sums, the packer that of the largest. */
static neap_status lay_out_banks(const neap_work *work, const neap_schedule *s,
                                 neap_layout_out *out, neap_error *error) {
  /* `sum.arena_bytes` is where the next bank begins. */
  neap_layout_out sum = *out;
  size_t most = 0;
  for (int b = 0; b < work->graph->n_bank; b++) {
    /* Offsets go to the lists of all banks, figures to the bank's own. */
    neap_layout_out one = *out;
    NEAP_TRY(lay_out_bank(work, s, b, sum.arena_bytes, &one, error));
    out->bank[b] = (neap_plan_bank){sum.arena_bytes, one.arena_bytes, one.lower_bound_bytes};
    sum.arena_bytes += one.arena_bytes;
    sum.lower_bound_bytes += one.lower_bound_bytes;
    if (b == 0 || one.arena_bytes > most) sum.packer = one.packer;
    most = NEAP_MAX(most, one.arena_bytes);
  }
  *out = sum;
  return NEAP_OK;
}

/* Entries of `out` that belong to no item stay as the caller made them. */
neap_status neap_policy_lay_out(const neap_work *work, const neap_schedule *s, neap_layout_out *out,
                                neap_error *error) {
  if (work->options.policy == NEAP_POLICY_POOL) return NEAP_OK;
  if (work->graph->n_bank > 0) return lay_out_banks(work, s, out, error);
  /* Without banks all items are of bank 0, which is the arena. */
  return lay_out_bank(work, s, 0, 0, out, error);
}
