/* plan_rows.c: rows of plans in their tables. The columns are those that neap.h describes, as far
 * as the file keeps them: a statement is made of their names, and filled from a row by them.
 */
#include "store/store_int.h"

#include "report/report.h"

#include <string.h>

static bool is_kept(const neap_column *column) { return (column->shown & NEAP_SHOWN_STORE) != 0; }

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

/* One statement, bound again for each row; the caller's transaction is around it. */
static neap_status insert_rows(neap_store *store, const char *table, int64_t plan_id,
                               neap_words *words, neap_rows *rows, neap_row_kind kind,
                               const char *lost, neap_error *error) {
  /* The INVARIANT of plan.c: nobody sees a plan with some of its rows. */
  NEAP_ASSERT(sqlite3_get_autocommit(store->db) == 0, "rows of a plan come in its transaction");
  neap_sql sql = neap_sql_insert(store, table, 1, "plan_id", 1, &kind, "", lost);
  const void *row;
  neap_status status;
  while ((status = neap_rows_next(rows, &row, error)) == NEAP_OK && row != NULL) {
    /* The statement is ready for new values each time it has been run. */
    neap_sql_int(&sql, plan_id);
    status = bind_packed_row(&sql, words, kind, row, error);
    if (status == NEAP_OK) status = neap_sql_run(&sql, error);
    if (status != NEAP_OK) break;
  }
  neap_sql_fini(&sql);
  return status;
}

neap_status neap_store_insert_plan_rows(neap_store *store, int64_t plan_id, const neap_plan *plan,
                                        const neap_graph *graph, const char *lost,
                                        neap_error *error) {
  static const struct {
    neap_row_kind kind;
    const char *table;
  } kept[] = {{NEAP_ROW_OP, "packed_op"}, {NEAP_ROW_VALUE, "packed_value"}};
  neap_words words;
  neap_words_init(&words, store, lost);
  neap_status status = NEAP_OK;
  for (int i = 0; i < NEAP_COUNT(kept) && status == NEAP_OK; i++) {
    /* The same rows as scripts and reports get, each kind into its table. */
    neap_rows *rows;
    status = neap_report_rows(plan, graph, kept[i].kind, &rows, error);
    if (status != NEAP_OK) break;
    status = insert_rows(store, kept[i].table, plan_id, &words, rows, kept[i].kind, lost, error);
    neap_rows_free(rows);
  }
  neap_words_fini(&words);
  return status;
}
