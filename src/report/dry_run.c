/* dry_run.c: what a plan does to every blob of its net: Caffe's dry-run log.
 *
 * Three lists are made of one walk over the plan's values, of rows as neap.h describes them: one a
 * value that is no parameter, state or parameter's gradient; layers, raw against what has bytes of
 * its own; slots, the addresses of the arena with what begins there.
 *
 * INVARIANT: raw bytes count a blob once, by the first value that has its name, with data and, if
 * it is of floats, a diff; so they depend on the net and the layouts, not on what is shared.
 * INVARIANT: all names are interned, so that they outlive graph and net, and equal names are equal
 * pointers.
 */
#include "report/report.h"

#include <stdio.h>
#include <stdlib.h>

/* The log, and what it is made with. `log` is first: the user's pointer is the pointer to all of
 * it. */
typedef struct work {
  neap_dry_run log;
  neap_arena arena; /* the three lists; lives with the log */
  neap_dry_row *row;
  neap_dry_layer *layer;
  neap_dry_slot *slot;
  /* until it is made: */
  const neap_plan *plan;
  const neap_graph *graph;
  const neap_net *net;
  const char **label; /* by value: its name, interned */
  /* by label: the node that makes the first value of that name, in the order of the schedule */
  neap_map op_of;
  neap_map net_op_of; /* by blob: the first op of the net that writes it */
  neap_map layer_of;  /* by op name: its place in `layer` */
  neap_map seen;      /* blobs that count in raw */
  size_t *offset;     /* by row: in the arena */
  int *value;         /* by row */
} work;

static neap_status refused(neap_error *error) {
  return neap_fail(error, NEAP_MEMORY, "memory for a dry run was refused");
}

void neap_dry_run_free(neap_dry_run *log) {
  if (log == NULL) return;
  work *w = (work *)log;
  neap_arena_fini(&w->arena);
  neap_free(w);
}

/* What is needed while the log is made, and not after. */
static void drop_scratch(work *w) {
  neap_free((void *)w->label);
  neap_free(w->offset);
  neap_free(w->value);
  neap_map_fini(&w->op_of);
  neap_map_fini(&w->net_op_of);
  neap_map_fini(&w->layer_of);
  neap_map_fini(&w->seen);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Keeps what is there: the first to write a name is its layer. */
static bool put_first(neap_map *map, const char *key, int value) {
  return neap_map_get(map, key, -1) >= 0 || neap_map_set(map, key, value);
}

static neap_status find_labels(work *w, neap_error *error) {
  for (int v = 0; v < w->plan->n_value; v++) {
    const char *name = w->graph->value[v].name;
    if ((w->label[v] = neap_intern(name != NULL ? name : "")) == NULL) return refused(error);
  }
  return NEAP_OK;
}

/* Who makes what: in the schedule, which has the library's own ops too, and in the net as it was
 * written. */
static neap_status find_makers(work *w, neap_error *error) {
  for (int s = 0; s < w->plan->n_node; s++) {
    const neap_node *node = &w->graph->node[w->plan->order[s]];
    for (int k = 0; k < node->n_out; k++)
      if (node->out[k] != NEAP_NO_VALUE &&
          !put_first(&w->op_of, w->label[node->out[k]], w->plan->order[s]))
        return refused(error);
  }

  /* Caffe's layers are the net's ops, whatever planning has made of them. */
  for (int i = 0; i < neap_net_n_ops(w->net); i++) {
    const neap_net_op *op = neap_net_op_at(w->net, i);
    for (int k = 0; k < op->n_out; k++)
      if (op->out[k] != NULL && !put_first(&w->net_op_of, op->out[k], i)) return refused(error);
  }
  return NEAP_OK;
}

/* Parameters, what is kept of them, and their gradients are no blobs to Caffe. */
static bool is_listed(const neap_value *value) {
  return value->role != NEAP_ROLE_PARAMETER && value->role != NEAP_ROLE_STATE &&
         value->role != NEAP_ROLE_GRADIENT;
}

/* ---- raw ------------------------------------------------------------------------------------- */

/* Adds to the layer that makes the blob, or to one of the blob's own name: an input's. */
static neap_status add_to_layer(work *w, const char *blob, int64_t bytes, neap_error *error) {
  NEAP_ASSERT(blob == neap_intern(blob), "the name \"%s\" is interned", blob);
  int op = neap_map_get(&w->net_op_of, blob, -1);
  const char *name = op >= 0 ? neap_intern(neap_net_op_at(w->net, op)->name) : blob;
  if (name == NULL) return refused(error);
  int at = neap_map_get(&w->layer_of, name, -1);

  /* Layers stand in the order in which their first blob is met. */
  if (at < 0) {
    at = w->log.n_layer;
    if (!neap_map_set(&w->layer_of, name, at)) return refused(error);
    w->layer[w->log.n_layer++].layer = name;
  }
  w->layer[at].raw_bytes += bytes;
  return NEAP_OK;
}

/* Whether value v is one that Caffe would make a blob of. */
static bool is_raw(const work *w, int v) {
  return is_listed(&w->graph->value[v]) && neap_net_find_blob(w->net, w->label[v]) != NULL;
}

/* A blob written more than once must hold its largest value; in bytes without the padding of
 * layouts, which only planning brings. */
static neap_status count_raw(work *w, neap_error *error) {
  /* `seen` keeps of each name the largest of its values. */
  for (int v = 0; v < w->plan->n_value; v++) {
    if (!is_raw(w, v)) continue;
    int largest = neap_map_get(&w->seen, w->label[v], v);
    if (neap_type_bytes(&w->graph->value[largest].type) < neap_type_bytes(&w->graph->value[v].type))
      largest = v;
    if (!neap_map_set(&w->seen, w->label[v], largest)) return refused(error);
  }
  for (int v = 0; v < w->plan->n_value; v++) {
    const neap_type *type = &w->graph->value[v].type;
    if (!is_raw(w, v) || neap_map_get(&w->seen, w->label[v], -1) != v) continue;
    /* Caffe gives every blob of floats a diff, whether or not a gradient reaches it. */
    const int64_t data = (int64_t)neap_type_bytes(type);
    const int64_t diff = neap_dtype_is_float(type->dtype) ? data : 0;
    w->log.raw_data_bytes += data;
    w->log.raw_diff_bytes += diff;
    NEAP_TRY(add_to_layer(w, w->label[v], data + diff, error));
  }
  w->log.raw_bytes = w->log.raw_data_bytes + w->log.raw_diff_bytes;
  return NEAP_OK;
}

/* ---- planned --------------------------------------------------------------------------------- */

/* "fc1.grad" is the diff of "fc1". A gradient belongs to the layer that makes the blob, not to the
 * backward op. */
static neap_status fill_row(work *w, int v, neap_dry_row *row, neap_error *error) {
  const neap_value *value = &w->graph->value[v];
  const neap_place *place = &w->plan->place[v];
  size_t stem = neap_gradient_stem(w->label[v]);
  const char *blob = stem > 0 ? neap_intern_n(w->label[v], stem) : w->label[v];
  if (blob == NULL) return refused(error);

  /* Who makes the blob; of what nobody makes (an input's gradient) who makes the value itself. */
  int op = neap_map_get(&w->op_of, blob, -1);
  if (op < 0) op = neap_map_get(&w->op_of, w->label[v], -1);
  const char *layer =
    op >= 0 && w->graph->node[op].name != NULL ? neap_intern(w->graph->node[op].name) : blob;
  if (layer == NULL) return refused(error);
  *row = (neap_dry_row){.layer = layer,
                        .blob = blob,
                        .key = stem > 0 ? "diff" : "data",
                        .region = neap_region_name(place->region),
                        .role = neap_role_name(value->role),
                        .dtype = neap_dtype_name(value->type.dtype),
                        .bytes = (int64_t)place->bytes,
                        .slot = neap_region_name(place->region), /* the arena's: list_slots */
                        .slot_no = NEAP_NO_INDEX,
                        .first_step = place->first,
                        .last_step = place->last,
                        .reason = neap_reason_code(place->reason),
                        .partner = place->partner >= 0 ? w->label[place->partner] : NULL};
  return NEAP_OK;
}

/* A version lies in its storage's bytes, which its first value counts; so does a view, though its
 * layer is charged with it. */
static void count_own(work *w, const neap_dry_row *row, neap_reason reason, int64_t *own) {
  if (reason == NEAP_REASON_VERSION) return;

  /* Layers are those of raw bytes: what the library made itself belongs to none. */
  int layer = neap_map_get(&w->layer_of, row->layer, -1);
  if (layer >= 0) w->layer[layer].planned_bytes += row->bytes;
  if (reason != NEAP_REASON_ALIAS) *own += row->bytes;
}

static neap_status list_rows(work *w, neap_error *error) {
  int64_t own = 0;
  for (int v = 0; v < w->plan->n_value; v++) {
    if (!is_listed(&w->graph->value[v])) continue;
    neap_dry_row *row = &w->row[w->log.n_row];
    NEAP_TRY(fill_row(w, v, row, error));
    w->offset[w->log.n_row] = w->plan->place[v].offset;
    w->value[w->log.n_row++] = v;

    /* Bytes of its own are the layer's; those of the arena are everybody's. */
    if (w->plan->place[v].region != NEAP_REGION_ARENA)
      count_own(w, row, w->plan->place[v].reason, &own);
  }

  /* The arena counts whole: no row alone can be charged with bytes that several share. */
  w->log.planned_bytes = (int64_t)w->plan->arena_bytes + own;
  if (w->log.raw_bytes > 0)
    w->log.saved = 1 - (double)w->log.planned_bytes / (double)w->log.raw_bytes;
  return NEAP_OK;
}

/* ---- slots ----------------------------------------------------------------------------------- */

typedef struct member {
  size_t offset;
  int row;
} member;

/* By address, then in the order of the rows. */
static int compare_members(const void *a, const void *b) {
  const member *x = a, *y = b;
  if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
  return x->row - y->row;
}

/* The slots of the sorted members: a new one begins at every new address. Rows and labels of all
 * slots lie one after another in two lists. */
static neap_status fill_slots(work *w, const member *list, int n, neap_error *error) {
  int *rows = neap_arena_alloc(&w->arena, ((size_t)n + 1) * sizeof *rows);
  const char **blobs = neap_arena_alloc(&w->arena, ((size_t)n + 1) * sizeof *blobs);
  if (rows == NULL || blobs == NULL) return refused(error);
  neap_dry_slot *slot = w->slot;
  const char *text = NULL;
  for (int i = 0; i < n; i++) {
    rows[i] = list[i].row;
    blobs[i] = w->label[w->value[rows[i]]];

    /* An address that has not been met opens a slot, and gives it its name. */
    if (i == 0 || list[i].offset != list[i - 1].offset) {
      char name[32];
      slot = &w->slot[w->log.n_slot];
      *slot = (neap_dry_slot){.slot = w->log.n_slot++,
                              .offset_bytes = (int64_t)list[i].offset,
                              .blobs = {0, &blobs[i]},
                              .rows = {0, &rows[i]}};
      snprintf(name, sizeof name, "slot %d", w->log.n_slot);
      if ((text = neap_intern(name)) == NULL) return refused(error);
    }

    /* Members follow one another in both lists, so that a slot's part grows at its end. */
    slot->n_blob = ++slot->rows.n;
    slot->blobs.n = slot->rows.n;
    slot->bytes = NEAP_MAX(slot->bytes, w->row[rows[i]].bytes);

    /* The row tells its slot, as the slot tells its rows. */
    w->row[rows[i]].slot = text;
    w->row[rows[i]].slot_no = slot->slot;
  }
  return NEAP_OK;
}

static neap_status list_slots(work *w, neap_error *error) {
  member *list = neap_alloc(((size_t)w->log.n_row + 1) * sizeof *list);
  int n = 0;
  if (list == NULL) return refused(error);

  /* What lies elsewhere has its region for a slot already. */
  for (int r = 0; r < w->log.n_row; r++)
    if (w->plan->place[w->value[r]].region == NEAP_REGION_ARENA)
      list[n++] = (member){w->offset[r], r};
  qsort(list, (size_t)n, sizeof *list, compare_members); /* rows of one slot now stand together */
  neap_status status = fill_slots(w, list, n, error);
  neap_free(list);
  return status;
}

/* ---- the log --------------------------------------------------------------------------------- */

/* Lists as long as they can get: there are no more rows, layers and slots than values. */
static neap_status make_room(work *w, neap_error *error) {
  size_t n = (size_t)w->plan->n_value + 1;
  w->log.row = w->row = neap_arena_alloc(&w->arena, n * sizeof *w->row);
  w->log.layer = w->layer = neap_arena_alloc(&w->arena, n * sizeof *w->layer);
  w->log.slot = w->slot = neap_arena_alloc(&w->arena, n * sizeof *w->slot);

  /* What is needed to make them goes with drop_scratch. */
  w->label = neap_alloc(n * sizeof *w->label);
  w->offset = neap_alloc(n * sizeof *w->offset);
  w->value = neap_alloc(n * sizeof *w->value);
  w->log.net = neap_intern(w->graph->name);
  bool all = w->row != NULL && w->layer != NULL && w->slot != NULL && w->label != NULL &&
             w->offset != NULL && w->value != NULL && w->log.net != NULL;
  return all ? NEAP_OK : refused(error);
}

neap_status neap_report_dry_run(const neap_plan *plan, const neap_graph *graph, const neap_net *net,
                                neap_dry_run **out, neap_error *error) {
  *out = NULL;
  work *w = neap_alloc_zeroed(sizeof *w);
  if (w == NULL) return refused(error);
  w->plan = plan;
  w->graph = graph;
  w->net = net;

  /* Each step reads what the one before it found: names, makers, raw bytes, rows, addresses. */
  neap_status status = make_room(w, error);
  if (status == NEAP_OK) status = find_labels(w, error);
  if (status == NEAP_OK) status = find_makers(w, error);
  if (status == NEAP_OK) status = count_raw(w, error);
  if (status == NEAP_OK) status = list_rows(w, error);
  if (status == NEAP_OK) status = list_slots(w, error);
  drop_scratch(w);
  if (status != NEAP_OK) {
    neap_dry_run_free(&w->log);
    return status;
  }

  /* Figures of the whole, which no list is needed for. */
  w->log.train = graph->train;
  w->log.policy = neap_policy_name(plan->policy);
  w->log.arena_bytes = (int64_t)plan->arena_bytes;
  for (int i = 0; i < plan->n_node; i++)
    w->log.scratch_bytes_max = NEAP_MAX(w->log.scratch_bytes_max, (int64_t)plan->scratch_bytes[i]);
  *out = &w->log;
  return NEAP_OK;
}

neap_status neap_dry_run_rows(const neap_dry_run *log, neap_row_kind kind, neap_rows **out,
                              neap_error *error) {
  *out = NULL;
  switch (kind) {
    case NEAP_ROW_DRY_RUN: return neap_report_list(kind, log, 1, sizeof *log, out, error);
    case NEAP_ROW_DRY_ROW:
      return neap_report_list(kind, log->row, log->n_row, sizeof *log->row, out, error);
    case NEAP_ROW_DRY_LAYER:
      return neap_report_list(kind, log->layer, log->n_layer, sizeof *log->layer, out, error);
    case NEAP_ROW_DRY_SLOT:
      return neap_report_list(kind, log->slot, log->n_slot, sizeof *log->slot, out, error);
    default:
      return neap_fail(error, NEAP_ARGUMENT, "dry runs have no rows of kind %u", (unsigned)kind);
  }
}
