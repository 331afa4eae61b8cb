/* plan_rows.c: rows of plans in their tables. The columns are those that neap.h describes, as far
 * as the file keeps them: a statement is made of their names, and filled from a row by them.
 */
#include "store/store_int.h"

#include "report/report.h"

#include <string.h>

static bool is_kept(const neap_column *column) { return (column->shown & NEAP_SHOWN_STORE) != 0; }

bool neap_column_is_word(const neap_column *column) {
  return is_kept(column) && column->type == NEAP_COLUMN_TEXT;
}

/* ", NAME" for each kept column, or ", " and `each`, if that is not NULL. */
static void add_columns(neap_buffer *out, neap_row_kind kind, const char *each) {
  const neap_column *column;
  for (int i = 0; (column = neap_column_at(kind, i)) != NULL; i++)
    if (is_kept(column)) neap_buffer_add(out, ", %s", each != NULL ? each : column->name);
}

neap_sql neap_sql_insert(neap_store *store, const char *table, int n_key, const char *key,
                         int n_kind, const neap_row_kind *kind, const char *tail,
                         const char *lost) {
  neap_buffer text = {0};

  /* The names of the columns, then as many question marks, in the same order. */
  neap_buffer_add(&text, "INSERT INTO %s (%s", table, key);
  for (int i = 0; i < n_kind; i++) add_columns(&text, kind[i], NULL);
  neap_buffer_add(&text, ") VALUES (?");
  for (int i = 1; i < n_key; i++) neap_buffer_add(&text, ", ?");
  for (int i = 0; i < n_kind; i++) add_columns(&text, kind[i], "?");
  neap_buffer_add(&text, ") %s", tail);

  /* A refused text is told by the first step, as all else. */
  neap_sql sql = {.store = store, .lost = lost, .rc = SQLITE_NOMEM, .refused = true};
  if (!text.failed) sql = neap_sql_new(store, text.text, lost);
  neap_buffer_fini(&text);
  return sql;
}

/* One field; what a row has not is null, or zero where the table says so. */
static void bind_cell(neap_sql *sql, const neap_column *column, const neap_datum *cell) {
  bool zero = (column->shown & NEAP_SHOWN_ZERO) != 0;
  switch (cell->type) {
    case NEAP_DATUM_INTEGER:
    case NEAP_DATUM_BOOL: neap_sql_int(sql, cell->integer); break;
    case NEAP_DATUM_REAL: neap_sql_real(sql, cell->real); break;
    case NEAP_DATUM_TEXT: neap_sql_text(sql, cell->text); break;
    default: /* lists are not kept */
      if (zero)
        neap_sql_int(sql, 0);
      else
        neap_sql_null(sql);
  }
}

void neap_sql_bind_row(neap_sql *sql, neap_row_kind kind, const void *row) {
  const neap_column *column;
  for (int i = 0; (column = neap_column_at(kind, i)) != NULL; i++) {
    if (!is_kept(column)) continue;
    neap_datum cell = neap_datum_of(column, row);
    bind_cell(sql, column, &cell);
  }
}

/* ---- packed rows: texts are words ------------------------------------------------------------ */

/* The layer that a row is of; NULL for a kind without. */
static const char *layer_of(neap_row_kind kind, const void *row) {
  const neap_column *column;
  for (int i = 0; (column = neap_column_at(kind, i)) != NULL; i++)
    if (strcmp(column->name, "layer") == 0) return neap_datum_of(column, row).text;
  return NULL;
}

/* A text as a number: its word's; or, where a name of this column begins with the layer's, minus
 * that of what follows: a net has thousands of names, but few such ends. */
static neap_status bind_word(neap_sql *sql, neap_words *words, const neap_column *column,
                             const char *text, const char *layer, neap_error *error) {
  int64_t word_id;
  size_t n = layer != NULL ? strlen(layer) : 0;
  bool follows =
    (column->shown & NEAP_SHOWN_IN_LAYER) != 0 && n > 0 && strncmp(text, layer, n) == 0;
  NEAP_TRY(neap_words_find(words, follows ? text + n : text, &word_id, error));
  neap_sql_int(sql, follows ? -word_id : word_id);
  return NEAP_OK;
}

/* As neap_sql_bind_row, with texts as words. */
static neap_status bind_packed_row(neap_sql *sql, neap_words *words, neap_row_kind kind,
                                   const void *row, neap_error *error) {
  const char *layer = layer_of(kind, row);
  const neap_column *column;
  for (int i = 0; (column = neap_column_at(kind, i)) != NULL; i++) {
    if (!is_kept(column)) continue;
    neap_datum cell = neap_datum_of(column, row);
    if (cell.type == NEAP_DATUM_TEXT)
      NEAP_TRY(bind_word(sql, words, column, cell.text, layer, error));
    else
      bind_cell(sql, column, &cell);
  }
  return NEAP_OK;
}

/* ---- a plan and its subnets ------------------------------------------------------------------ */

/* What adding a plan takes along: one statement for each table, bound again for each row. */
typedef struct adder {
  int64_t plan_id;
  int n_subnet; /* so far */
  neap_words words;
  neap_sql op, value, read, subnet;
} adder;

/* Which net the rows are of: the plan's own, 0, or one within. */
static void bind_net(const adder *a, neap_sql *sql, int subnet_no) {
  neap_sql_int(sql, a->plan_id);
  neap_sql_int(sql, subnet_no);
}

/* The values that an op reads, each with the op's step. */
static neap_status add_reads(adder *a, int subnet_no, const neap_op_row *op, neap_error *error) {
  for (int i = 0; i < op->ins.n; i++) {
    bind_net(a, &a->read, subnet_no);
    neap_sql_int(&a->read, op->ins.index[i] + 1);
    neap_sql_int(&a->read, op->step + 1);
    neap_sql_int(&a->read, i + 1);
    NEAP_TRY(neap_sql_run(&a->read, error));
  }
  return NEAP_OK;
}

static neap_status add_net(adder *a, int subnet_no, const neap_plan *plan, const neap_graph *graph,
                           neap_error *error);

/* The subnets of the op at `step`, each with all its rows. */
static neap_status add_subnets(adder *a, int outer_no, const neap_plan *plan,
                               const neap_graph *graph, int step, neap_error *error) {
  /* Rows count steps in the order of running; the graph counts nodes as they were written. */
  const int n = plan->order[step];
  for (int k = 0; k < graph->node[n].n_sub; k++) {
    const neap_plan *sub = plan->sub[n][k];
    const int subnet_no = ++a->n_subnet;

    /* Its own row, with where it stands: in which net, at which step, as which of the op's subnets.
     * Those of an enclosing net have smaller numbers. */
    bind_net(a, &a->subnet, subnet_no);
    neap_sql_int(&a->subnet, outer_no);
    neap_sql_int(&a->subnet, step + 1);
    neap_sql_int(&a->subnet, k + 1);
    neap_sql_text(&a->subnet, graph->node[n].sub[k]->name);
    neap_sql_int(&a->subnet, (int64_t)sub->arena_bytes);
    neap_sql_int(&a->subnet, (int64_t)sub->lower_bound_bytes);
    NEAP_TRY(neap_sql_run(&a->subnet, error));

    /* Then what is in it, which may have subnets in turn. */
    NEAP_TRY(add_net(a, subnet_no, sub, graph->node[n].sub[k], error));
  }
  return NEAP_OK;
}

/* The rows of one kind of one net: the same as scripts and reports get. */
static neap_status add_rows(adder *a, int subnet_no, const neap_plan *plan, const neap_graph *graph,
                            neap_row_kind kind, neap_sql *sql, neap_error *error) {
  neap_rows *rows;
  const void *row;

  NEAP_TRY(neap_report_rows(plan, graph, kind, &rows, error));
  neap_status status;

  /* One row at a time: a net of thousands of ops is never in memory as rows. */
  while ((status = neap_rows_next(rows, &row, error)) == NEAP_OK && row != NULL) {
    bind_net(a, sql, subnet_no);
    status = bind_packed_row(sql, &a->words, kind, row, error);
    if (status == NEAP_OK) status = neap_sql_run(sql, error);
    if (status == NEAP_OK && kind == NEAP_ROW_OP) status = add_reads(a, subnet_no, row, error);
    if (status != NEAP_OK) break;
  }
  neap_rows_free(rows);
  return status;
}

static neap_status add_net(adder *a, int subnet_no, const neap_plan *plan, const neap_graph *graph,
                           neap_error *error) {
  NEAP_TRY(add_rows(a, subnet_no, plan, graph, NEAP_ROW_OP, &a->op, error));
  NEAP_TRY(add_rows(a, subnet_no, plan, graph, NEAP_ROW_VALUE, &a->value, error));
  for (int step = 0; step < plan->n_node; step++)
    NEAP_TRY(add_subnets(a, subnet_no, plan, graph, step, error));
  return NEAP_OK;
}

neap_status neap_store_insert_plan_rows(neap_store *store, int64_t plan_id, const neap_plan *plan,
                                        const neap_graph *graph, const char *lost,
                                        neap_error *error) {
  static const char key[] = "plan_id, subnet_no";
  const neap_row_kind op = NEAP_ROW_OP, value = NEAP_ROW_VALUE;

  /* The INVARIANT of plan.c: nobody sees a plan with some of its rows. */
  NEAP_ASSERT(sqlite3_get_autocommit(store->db) == 0, "rows of a plan come in its transaction");

  /* Compiled once, and bound again for each of thousands of rows. */
  adder a = {
    .plan_id = plan_id,
    .op = neap_sql_insert(store, "packed_op", 2, key, 1, &op, "", lost),
    .value = neap_sql_insert(store, "packed_value", 2, key, 1, &value, "", lost),
    .read = neap_sql_new(store, "INSERT INTO plan_read VALUES (?, ?, ?, ?, ?)", lost),
    .subnet = neap_sql_new(store, "INSERT INTO plan_subnet VALUES (?, ?, ?, ?, ?, ?, ?, ?)", lost)};
  neap_words_init(&a.words, store, lost);

  /* A statement that could not be compiled is told by its first step, and all of them are freed
   * either way. */
  neap_status status = add_net(&a, 0, plan, graph, error);
  neap_words_fini(&a.words);
  neap_sql_fini(&a.op);
  neap_sql_fini(&a.value);
  neap_sql_fini(&a.read);
  neap_sql_fini(&a.subnet);
  return status;
}
