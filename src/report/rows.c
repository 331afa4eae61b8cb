/* rows.c: a plan and its graph as rows, one after another: cursors that fill the structs which
 * neap.h describes. The store keeps them, Lua and JSON show them.
 *
 * One row of each kind has room in the cursor, and so have the texts that are made for it: a row
 * lasts until the next one. A cursor over rows that are there already, a dry run's or a
 * workspace's, gives these themselves.
 *
 * INVARIANT: a filler sets every column of its kind; a row is zeroed first, and what it has not is
 * said: NULL, NEAP_NO_NUMBER, NEAP_NO_INDEX.
 */
#include "report/report_int.h"

#include <stdio.h>
#include <string.h>

struct neap_rows {
  neap_row_kind kind;
  const neap_plan *plan;
  const neap_graph *graph;
  int n, next;
  const char *list; /* rows that are there already, of row_bytes each; NULL: they are filled */
  size_t row_bytes;
  int *owner;  /* OP, VALUE: by node, the node whose layer it belongs to */
  int *reader; /* VALUE: by value, the first node that reads it, or -1 */
  union {
    neap_op_row op;
    neap_value_row value;
    neap_region_row region;
    neap_bank_row bank;
    neap_rewrite_row rewrite;
    neap_figures figures;
  } row;
  /* texts and lists of the present row */
  char layer[REPORT_LAYER_TEXT], kernel[96], label[32], partner[32], layout[NEAP_LAYOUT_TEXT],
    shape[NEAP_SHAPE_TEXT];
  neap_buffer choice, reason;
  const char **name;
  int *index;
  int cap_name, cap_index;
  void (*fini)(void *owned);
  void *owned;
};

/* NULL where there is nothing to say. */
static const char *text_or_null(const char *text) {
  return text != NULL && text[0] != '\0' ? text : NULL;
}

/* ---- what ops and values have in common ------------------------------------------------------ */

/* The name of a value, or a made-up label for one without. */
static const char *label_of(const neap_graph *graph, int value, char text[32]) {
  const char *name = graph->value[value].name;
  if (name != NULL && name[0] != '\0') return name;
  snprintf(text, 32, "value %d", value + 1);
  return text;
}

/* ---- ops ------------------------------------------------------------------------------------- */

/* "dnnl abcd:16b": the engine, and the layout of the first output (else input) that is not
 * plain. */
static const char *kernel_of(const neap_graph *graph, const neap_node *node, char text[96]) {
  if ((node->op->effects & NEAP_EFFECT_CONTROL) != 0) return "control";
  const char *engine = neap_engine_name(node->choice.engine);

  /* A plain layout says nothing: most operands are so. */
  for (int i = 0; i < node->n_out + node->n_in; i++) {
    int v = i < node->n_out ? node->out[i] : node->in[i - node->n_out];
    if (v == NEAP_NO_VALUE || graph->value[v].layout.kind == NEAP_LAYOUT_PLAIN) continue;
    char layout[NEAP_LAYOUT_TEXT];
    snprintf(text, 96, "%s %s", engine,
             neap_layout_text(&graph->value[v].layout, graph->value[v].type.shape.n_dim, layout));
    return text;
  }
  return engine;
}

static void add_layouts(const neap_graph *graph, int n, const neap_value_id *id,
                        const neap_layout *layout, neap_buffer *out) {
  char text[NEAP_LAYOUT_TEXT];
  for (int i = 0; i < n; i++)
    neap_buffer_add(
      out, " %s",
      neap_layout_text(&layout[i], id[i] >= 0 ? graph->value[id[i]].type.shape.n_dim : 0, text));
}

/* All of a choice that bits may depend on. */
static void print_choice(const neap_graph *graph, const neap_node *node, neap_buffer *out) {
  const neap_choice *c = &node->choice;
  out->n = 0;
  neap_buffer_add(out, "%s %d, %d threads, scratch %zu, stash %zu:", neap_engine_name(c->engine),
                  c->algorithm, c->n_thread, c->scratch_bytes, c->stash_bytes);
  add_layouts(graph, node->n_in, node->in, c->in, out);
  neap_buffer_add(out, " >");
  add_layouts(graph, node->n_out, node->out, c->out, out);
}

/* What a recomputation saves: the bytes of what the node makes, between its steps. */
static void say_recomputed(neap_rows *r, const neap_node *node, neap_op_row *row) {
  size_t bytes = 0;
  char bytes_text[24];
  row->recomputes = neap_plan_step_of(r->plan, r->graph, node->recomputes - 1);

  /* Bytes of what it makes are what the budget had no room for. */
  for (int k = 0; k < node->n_out; k++) bytes += r->graph->value[node->out[k]].bytes;
  r->reason.n = 0;
  neap_buffer_add(&r->reason, "the budget has no room to keep %s from step %d",
                  neap_bytes_text((double)bytes, bytes_text), row->recomputes + 1);
  row->reason = r->reason.text;
}

/* A layout, and the bank where it is not the main one: "abcd:16b in fast". */
static void add_place(const neap_graph *graph, neap_value_id v, neap_buffer *out) {
  char text[NEAP_LAYOUT_TEXT];
  const neap_value *value = &graph->value[v];
  neap_buffer_add(out, "%s", neap_layout_text(&value->layout, value->type.shape.n_dim, text));
  int bank = neap_graph_bank_of(graph, v);
  if (bank > 0) neap_buffer_add(out, " in %s", graph->bank[bank].name);
}

/* Which kind of op reads what a Reorder makes, or writes what it reads, and where. */
static void say_turned(neap_rows *r, const neap_node *node, neap_op_row *row) {
  const neap_graph *graph = r->graph;
  const neap_node *served = &graph->node[node->serves - 1];
  const bool is_behind = graph->value[node->in[0]].node == node->serves - 1;
  r->reason.n = 0;
  neap_buffer_add(&r->reason, "%s %s ", served->op->name, is_behind ? "writes" : "reads");
  add_place(graph, is_behind ? node->in[0] : node->out[0], &r->reason);
  neap_buffer_add(&r->reason, is_behind ? ", wanted is " : ", there is ");
  add_place(graph, is_behind ? node->out[0] : node->in[0], &r->reason);
  row->reason = r->reason.text;
}

/* Names and numbers of the operands that are there: inputs first, then outputs, in one list. */
static bool list_operands(neap_rows *r, const neap_node *node, neap_op_row *row) {
  int most = node->n_in + node->n_out, n = 0;
  if (!neap_list_grow(&r->name, &r->cap_name, most, sizeof *r->name) ||
      !neap_list_grow(&r->index, &r->cap_index, most, sizeof *r->index))
    return false;

  /* Absent operands are left out, so that lists are shorter than the op's. */
  for (int i = 0; i < most; i++) {
    int v = i < node->n_in ? node->in[i] : node->out[i - node->n_in];
    if (i == node->n_in) row->ins.n = n; /* the first output: all inputs are listed */
    if (v == NEAP_NO_VALUE) continue;
    r->name[n] = r->graph->value[v].name != NULL ? r->graph->value[v].name : "";
    r->index[n++] = v;
  }
  if (node->n_out == 0) row->ins.n = n;
  row->outs.n = n - row->ins.n;

  /* Lists point into the cursor's room, once that will not move any more. */
  row->ins.index = r->index;
  row->outs.index = &r->index[row->ins.n];
  row->inputs = (neap_names){row->ins.n, r->name};
  row->outputs = (neap_names){row->outs.n, &r->name[row->ins.n]};
  return true;
}

/* Whether operand k of the op, of its inputs or of its outputs, stands in a pair of the record
 * whose two values lie in the same bytes: a view, which reads and writes nothing of it. */
static bool is_viewed(const neap_rows *r, const neap_node *node, int k, bool is_out) {
  for (int p = 0; p < node->op->n_alias; p++) {
    neap_pair pair = node->op->alias[p];
    if ((is_out ? pair.out : pair.in) != k || pair.in >= node->n_in || pair.out >= node->n_out)
      continue;
    int in = node->in[pair.in], out = node->out[pair.out];
    if (in != NEAP_NO_VALUE && out != NEAP_NO_VALUE &&
        r->plan->place[in].storage == r->plan->place[out].storage)
      return true;
  }
  return false;
}

/* What the op moves: as its record counts it, else every byte of its operands once. */
static int64_t moved_bytes(const neap_rows *r, const neap_node *node, bool is_out) {
  double counted = is_out ? node->cost.write_bytes : node->cost.read_bytes;
  if (counted > 0) return neap_whole(counted);

  /* Views move nothing: their bytes stay where they are. */
  const int *value = is_out ? node->out : node->in;
  size_t bytes = 0;
  for (int k = 0; k < (is_out ? node->n_out : node->n_in); k++)
    if (value[k] != NEAP_NO_VALUE && !is_viewed(r, node, k, is_out))
      bytes = neap_size_add(bytes, r->graph->value[value[k]].bytes);
  return neap_whole((double)bytes);
}

/* The dtype of the first operand that is there, inputs before outputs; NULL for an op without. */
static const char *dtype_of(const neap_graph *graph, const neap_node *node) {
  for (int k = 0; k < node->n_in + node->n_out; k++) {
    int v = k < node->n_in ? node->in[k] : node->out[k - node->n_in];
    if (v != NEAP_NO_VALUE) return neap_dtype_name(graph->value[v].type.dtype);
  }
  return NULL;
}

static bool fill_op(neap_rows *r, int step) {
  const neap_graph *graph = r->graph;
  const neap_plan *plan = r->plan;
  int at = plan->order[step];
  const neap_node *node = &graph->node[at];

  /* Its text is made first: the row points to it. */
  print_choice(graph, node, &r->choice);
  neap_op_row *row = &r->row.op;
  *row = (neap_op_row){.step = step,
                       .name = node->name,
                       .type = node->op->name,
                       .phase = neap_phase_name(node->phase),
                       .bank = plan->n_bank > 0 ? graph->bank[node->bank].name : NULL,
                       .recomputes = NEAP_NO_INDEX,
                       .engine = neap_engine_name(node->choice.engine),
                       .changed = node->choice.changed,
                       .live_bytes = (int64_t)plan->live_bytes[step],
                       .scratch_bytes = (int64_t)plan->scratch_bytes[at],
                       .flops = neap_node_flops(node),
                       .dtype = dtype_of(graph, node),
                       .once = node->once,
                       .line = text_or_null(node->line),
                       .layer = report_layer(graph, r->owner[at], r->layer),
                       .module = text_or_null(graph->node[r->owner[at]].scope),
                       .algorithm = node->choice.how,
                       .choice_reason = node->choice.why,
                       .other = node->choice.other,
                       .other_scratch_bytes = node->choice.other != NULL
                                                ? (int64_t)node->choice.other_scratch_bytes
                                                : NEAP_NO_NUMBER,
                       .other_work = node->choice.other_work,
                       .scope = text_or_null(node->scope),
                       .kernel = kernel_of(graph, node, r->kernel),
                       .choice = r->choice.text,
                       .read_bytes = moved_bytes(r, node, false),
                       .write_bytes = moved_bytes(r, node, true),
                       .scratch_offset = (int64_t)plan->scratch_offset[at],
                       .n_sub = node->n_sub};

  /* Few rows have a reason to tell, so that it is made only for them. */
  if (node->recomputes > 0)
    say_recomputed(r, node, row);
  else if (node->serves > 0)
    say_turned(r, node, row);
  return list_operands(r, node, row) && !r->choice.failed && !r->reason.failed;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* reader[v] = first node that reads v, or -1: the nodes are walked from the last to the first, so
 * that the first stays. */
static bool find_readers(neap_rows *r) {
  const neap_graph *graph = r->graph;
  r->reader = neap_alloc((size_t)graph->n_value * sizeof *r->reader);
  if (r->reader == NULL) return false;

  /* Outputs of the net may have no reader. */
  for (int v = 0; v < graph->n_value; v++) r->reader[v] = -1;
  for (int i = graph->n_node - 1; i >= 0; i--)
    for (int k = 0; k < graph->node[i].n_in; k++)
      if (graph->node[i].in[k] != NEAP_NO_VALUE) r->reader[graph->node[i].in[k]] = i;
  return true;
}

/* How the value got its bytes, with whom, and why not in place. */
static void print_detail(neap_rows *r, const neap_value_row *row) {
  r->reason.n = 0;
  neap_buffer_add(&r->reason, "%s", row->words);
  if (row->partner != NULL) neap_buffer_add(&r->reason, ": %s", row->partner);
  if (row->refusal != NULL) neap_buffer_add(&r->reason, "; not in place: %s", row->refusal);
}

/* The line of an op; of one that has none, as a sum of gradients, that of the op it belongs to. */
static const char *line_of(const neap_graph *graph, int node, int owner) {
  const char *line = text_or_null(graph->node[node].line);
  return line != NULL ? line : text_or_null(graph->node[owner].line);
}

/* A value without a definition (an input, a parameter) stands under the first op that reads it. */
static bool fill_value(neap_rows *r, int v) {
  const neap_graph *graph = r->graph;
  const neap_value *value = &graph->value[v];
  const neap_place *place = &r->plan->place[v];
  int owner = value->node >= 0 ? value->node : r->reader[v];
  bool in_arena = place->region == NEAP_REGION_ARENA;
  bool has_partner = place->partner >= 0 && place->partner < graph->n_value;

  /* An address says something in the arena alone: elsewhere bytes are found when a net runs. */
  neap_value_row *row = &r->row.value;
  *row = (neap_value_row){
    .blob = label_of(graph, v, r->label),
    .role = neap_role_name(value->role),
    .region = neap_region_name(place->region),
    .bank = r->plan->n_bank > 0 ? graph->bank[neap_graph_bank_of(graph, v)].name : NULL,
    .shape = neap_shape_text(&value->type.shape, r->shape),
    .dtype = neap_dtype_name(value->type.dtype),
    .layout = neap_layout_text(&value->layout, value->type.shape.n_dim, r->layout),
    .bytes = (int64_t)place->bytes,
    .offset_bytes = in_arena ? (int64_t)place->offset : NEAP_NO_NUMBER,
    .first_step = place->first,
    .last_step = place->last,
    .reason = neap_reason_code(place->reason),
    .partner = has_partner ? label_of(graph, place->partner, r->partner) : NULL,
    .partner_no = has_partner ? place->partner : NEAP_NO_INDEX,
    .words = neap_reason_words(place->reason),
    .refusal = text_or_null(neap_refusal_words(place->refusal)),
    .value_no = v,
    .storage_no = place->storage,
    .layer = owner >= 0 ? report_layer(graph, r->owner[owner], r->layer) : "",
    .module = owner >= 0 ? text_or_null(graph->node[r->owner[owner]].scope) : NULL,
    .category = report_category(graph, v),
    .line = owner >= 0 ? line_of(graph, owner, r->owner[owner]) : NULL,
    .kept = value->keep};

  /* All of it in one text, for whoever shows only that. */
  print_detail(r, row);
  row->detail = r->reason.text;
  return !r->reason.failed;
}

/* ---- regions, banks, rewrites ---------------------------------------------------------------- */

/* In the order that people are shown: the arena among the last. ARGUMENT's bytes are others'. */
static const neap_region regions[] = {
  NEAP_REGION_PARAMETER, NEAP_REGION_GRADIENT, NEAP_REGION_STATE, NEAP_REGION_IO,
  NEAP_REGION_CONSTANT,  NEAP_REGION_ARENA,    NEAP_REGION_FRAME};

static bool fill_region(neap_rows *r, int i) {
  r->row.region = (neap_region_row){.region = neap_region_name(regions[i]),
                                    .bytes = (int64_t)r->plan->region_bytes[regions[i]]};
  return true;
}

static bool lies_in(const neap_graph *graph, neap_value_id v, int bank) {
  return v == NEAP_NO_VALUE || graph->value[v].region != NEAP_REGION_ARENA ||
         graph->value[v].bank == bank;
}

/* Whether a node works on the bank alone: no copy between banks, which stands with the one that it
 * writes. */
static bool works_in(const neap_graph *graph, const neap_node *node, int bank) {
  if (node->bank != bank) return false;
  for (int i = 0; i < node->n_in; i++)
    if (!lies_in(graph, node->in[i], bank)) return false;
  for (int k = 0; k < node->n_out; k++)
    if (!lies_in(graph, node->out[k], bank)) return false;
  return true;
}

static bool fill_bank(neap_rows *r, int b) {
  const neap_plan_bank *bank = &r->plan->bank[b];
  const neap_bank *given = &r->graph->bank[b];
  neap_bank_row *row = &r->row.bank;

  /* Without a limit there is no capacity to tell. */
  *row = (neap_bank_row){.bank = given->name,
                         .kind = neap_bank_kind_name(given->kind),
                         .capacity_bytes = given->bytes > 0 ? given->bytes : NEAP_NO_NUMBER,
                         .arena_bytes = (int64_t)bank->bytes,
                         .lower_bound_bytes = (int64_t)bank->lower_bound_bytes,
                         .proved = bank->bytes == bank->lower_bound_bytes,
                         .begin_offset = (int64_t)bank->begin_bytes};

  /* Only what lies in the arena is the bank's to hold; resident bytes have a home of their own. */
  for (int n = 0; n < r->graph->n_node; n++)
    if (works_in(r->graph, &r->graph->node[n], b)) row->n_op++;
  for (int v = 0; v < r->graph->n_value; v++) {
    const neap_value *value = &r->graph->value[v];
    if (value->region == NEAP_REGION_ARENA && value->bank == b) row->n_value++;
  }
  return true;
}

static bool fill_rewrite(neap_rows *r, int i) {
  const neap_rewrite *rewrite = &r->graph->rewrite[i];
  r->row.rewrite = (neap_rewrite_row){.rule = rewrite->rule,
                                      .absorbed = rewrite->absorbed,
                                      .into = text_or_null(rewrite->into),
                                      .saved_bytes = (int64_t)rewrite->saved_bytes};
  return true;
}

/* ---- the cursor ------------------------------------------------------------------------------ */

static bool fill(neap_rows *r, int i) {
  switch (r->kind) {
    case NEAP_ROW_OP: return fill_op(r, i);
    case NEAP_ROW_VALUE: return fill_value(r, i);
    case NEAP_ROW_REGION: return fill_region(r, i);
    case NEAP_ROW_BANK: return fill_bank(r, i);
    case NEAP_ROW_REWRITE: return fill_rewrite(r, i);
    case NEAP_ROW_FIGURES: r->row.figures = neap_report_figures(r->plan, r->graph); return true;
    default: return false; /* the store's own, and those of lists */
  }
}

static int count(const neap_rows *r) {
  switch (r->kind) {
    case NEAP_ROW_OP: return r->plan->n_node;
    case NEAP_ROW_VALUE: return r->plan->n_value;
    case NEAP_ROW_REGION: return NEAP_COUNT(regions);
    case NEAP_ROW_BANK: return r->plan->n_bank;
    case NEAP_ROW_REWRITE: return r->graph->n_rewrite;
    case NEAP_ROW_FIGURES: return 1;
    default: return 0;
  }
}

neap_status neap_report_rows(const neap_plan *plan, const neap_graph *graph, neap_row_kind kind,
                             neap_rows **out, neap_error *error) {
  *out = NULL;
  if ((unsigned)kind > NEAP_ROW_FIGURES)
    return neap_fail(error, NEAP_ARGUMENT, "plans have no rows of kind %u", (unsigned)kind);
  neap_rows *r = neap_alloc_zeroed(sizeof *r);
  if (r == NULL) return neap_fail_memory(error, sizeof *r, "the rows of a plan");
  r->kind = kind;
  r->plan = plan;
  r->graph = graph;

  /* Rows are made one by one as they are asked for; only owners and readers are found for all
   * at once. */
  r->n = count(r);
  const bool has_layers = kind == NEAP_ROW_OP || kind == NEAP_ROW_VALUE;
  if (has_layers) r->owner = report_owners(graph);
  if ((has_layers && r->owner == NULL) || (kind == NEAP_ROW_VALUE && !find_readers(r))) {
    neap_rows_free(r);
    return neap_fail_memory(error, (size_t)graph->n_value * sizeof(int), "the rows of a plan");
  }
  *out = r;
  return NEAP_OK;
}

neap_status neap_report_list(neap_row_kind kind, const void *list, int n, size_t row_bytes,
                             neap_rows **out, neap_error *error) {
  neap_rows *r = *out = neap_alloc_zeroed(sizeof *r);
  if (r == NULL) return neap_fail_memory(error, sizeof *r, "a list of rows");
  r->kind = kind;
  r->n = n;
  r->list = list;
  r->row_bytes = row_bytes;
  return NEAP_OK;
}

void neap_rows_own(neap_rows *rows, void (*fini)(void *owned), void *owned) {
  rows->fini = fini;
  rows->owned = owned;
}

neap_status neap_rows_at(neap_rows *rows, int index, const void **row, neap_error *error) {
  *row = NULL;
  if (index < 0 || index >= rows->n) return NEAP_OK;

  /* Rows that are there already are given as they are; the others are made in the cursor. */
  if (rows->list != NULL) {
    *row = rows->list + (size_t)index * rows->row_bytes;
    return NEAP_OK;
  }
  if (!fill(rows, index)) return neap_fail_memory(error, 256, "a row of a plan");
  *row = &rows->row;
  return NEAP_OK;
}

neap_status neap_rows_next(neap_rows *rows, const void **row, neap_error *error) {
  NEAP_TRY(neap_rows_at(rows, rows->next, row, error));
  if (*row != NULL) rows->next++;
  return NEAP_OK;
}

neap_status neap_rows_sub(const neap_rows *ops, int k, neap_row_kind kind, neap_rows **out,
                          neap_error *error) {
  *out = NULL;
  /* The cursor stands behind the row that was given last. */
  int at = ops->kind == NEAP_ROW_OP && ops->next > 0 ? ops->plan->order[ops->next - 1] : -1;
  if (at < 0 || k < 0 || k >= ops->graph->node[at].n_sub)
    return neap_fail(error, NEAP_ARGUMENT, "the last row has no subnet %d", k);
  return neap_report_rows(ops->plan->sub[at][k], ops->graph->node[at].sub[k], kind, out, error);
}

neap_status neap_rows_json(neap_rows *rows, char **out, neap_error *error) {
  neap_buffer text = {0};
  const void *row;
  int begin = rows->next;
  *out = NULL;

  /* All that are left, in a list that is one also when there are none. */
  neap_status status = neap_rows_next(rows, &row, error);
  while (status == NEAP_OK && row != NULL) {
    neap_buffer_add(&text, text.n > 0 ? ",\n " : "[");
    neap_row_print_json(rows->kind, row, &text);
    status = neap_rows_next(rows, &row, error);
  }
  neap_buffer_add(&text, text.n > 0 ? "]" : "[]");
  if (status == NEAP_OK && text.failed) status = neap_fail_memory(error, text.n, "rows as JSON");

  /* The text is the caller's now: it is not copied once more. */
  if (status == NEAP_OK) {
    *out = text.text;
    return NEAP_OK;
  }
  rows->next = begin; /* a failed call takes no row */
  neap_buffer_fini(&text);
  return status;
}

void neap_rows_free(neap_rows *rows) {
  if (rows == NULL) return;
  neap_free(rows->owner);
  neap_free(rows->reader);
  neap_free((void *)rows->name);
  neap_free(rows->index);
  neap_buffer_fini(&rows->choice);
  neap_buffer_fini(&rows->reason);
  if (rows->fini != NULL) rows->fini(rows->owned);
  neap_free(rows);
}
