/* gather.c: the rows of a query, all at once, in one block: first the head, then names, then
 * values, then the bytes of all texts.
 *
 * While rows come in, cells lie in a list and texts in a buffer, which both move as they grow: a
 * cell holds where its text begins. Only when the last row is there do the parts get their
 * addresses.
 */
#include "store/store_int.h"

typedef struct cell {
  neap_sql_value value; /* without its texts */
  size_t at;            /* of its text in `text` */
} cell;

typedef struct gathering {
  cell *item; /* row by row; the first row's cells have the columns' names too */
  int n, cap, n_column;
  size_t *name_at;
  neap_buffer text; /* each text with a zero behind it */
  bool failed;      /* memory was refused */
} gathering;

static size_t add_text(gathering *g, const char *text, size_t n) {
  /* The buffer moves as it grows, so that the place is kept, not the address. The zero is part of
   * it. */
  size_t at = g->text.n;
  neap_buffer_add_n(&g->text, text, n);
  neap_buffer_add_n(&g->text, "", 1);
  return at;
}

static void take_names(gathering *g, int n, const neap_sql_value *value) {
  g->n_column = n;
  g->name_at = neap_alloc((size_t)n * sizeof *g->name_at);
  g->failed = g->name_at == NULL;
  if (g->failed) return;
  for (int i = 0; i < n; i++) g->name_at[i] = add_text(g, value[i].name, strlen(value[i].name));
}

/* Copies of texts: the values last until the next row only. False ends the query. */
static bool take_row(void *context, int n, const neap_sql_value *value) {
  gathering *g = context;

  /* The names come with the first row; a query without rows has none. */
  if (g->name_at == NULL) take_names(g, n, value);
  if (g->failed || !neap_list_grow(&g->item, &g->cap, g->n + n, sizeof *g->item)) {
    g->failed = true;
    return false;
  }
  for (int i = 0; i < n; i++) {
    cell *c = &g->item[g->n++];
    *c = (cell){.value = value[i]};
    if (value[i].type == NEAP_SQL_TEXT || value[i].type == NEAP_SQL_BLOB) {
      /* An empty blob has no address. */
      c->at = add_text(g, value[i].text != NULL ? value[i].text : "", value[i].n_text);
    } else {
      /* SQLite gives numbers as texts too, which go with the row. */
      c->value.text = NULL;
      c->value.n_text = 0;
    }
  }

  /* A text that was refused has failed the buffer. */
  g->failed = g->text.failed;
  return !g->failed;
}

/* The block; NULL when it is refused. */
static neap_sql_rows *lay_out(const gathering *g) {
  /* Where each part begins. Pointers and values come first, so that they are aligned; texts may lie
   * anywhere. */
  size_t names = sizeof(neap_sql_rows), values = names + (size_t)g->n_column * sizeof(char *);
  size_t texts = values + (size_t)g->n * sizeof(neap_sql_value);
  neap_sql_rows *rows = neap_alloc(texts + g->text.n);
  if (rows == NULL) return NULL;
  const char **column = (const char **)((char *)rows + names);
  neap_sql_value *value = (neap_sql_value *)((char *)rows + values);
  char *text = (char *)rows + texts;

  /* Texts are copied as they lie: what was a place in the buffer is now an address. */
  neap_copy_bytes(text, g->text.text, g->text.n);
  for (int i = 0; i < g->n_column; i++) column[i] = text + g->name_at[i];
  for (int i = 0; i < g->n; i++) {
    bool is_text = g->item[i].value.type == NEAP_SQL_TEXT || g->item[i].value.type == NEAP_SQL_BLOB;
    value[i] = g->item[i].value;
    value[i].name = column[i % g->n_column];
    if (is_text) value[i].text = text + g->item[i].at;
  }
  *rows = (neap_sql_rows){.n_row = g->n_column > 0 ? g->n / g->n_column : 0,
                          .n_column = g->n_column,
                          .column = column,
                          .value = value};
  return rows;
}

neap_status neap_db_rows(neap_store *store, const char *sql, int n_param,
                         const neap_sql_value *param, bool complete, neap_sql_rows **out,
                         neap_error *error) {
  gathering g = {0};
  *out = NULL;
  neap_status status = neap_store_ask(store, sql, n_param, param, complete, take_row, &g, error);
  /* The query ends well when a row is refused, since taking it was ours: no block tells. */
  if (status == NEAP_OK && !g.failed) *out = lay_out(&g);
  if (status == NEAP_OK && *out == NULL)
    status = neap_fail_memory(error, (size_t)g.n * sizeof *g.item, "the rows of a query");
  neap_free(g.item);
  neap_free(g.name_at);
  neap_buffer_fini(&g.text);
  return status;
}
