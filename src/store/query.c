/* query.c: questions in SQL. */
#include "store/store_int.h"

#include <string.h>

/* The user's own statement is at fault here, not the file: SQLite's words, with what was asked. */
static neap_status fail_query(const neap_store *store, int rc, neap_error *error) {
  bool users =
    (rc & 0xff) == SQLITE_ERROR || (rc & 0xff) == SQLITE_RANGE || (rc & 0xff) == SQLITE_MISMATCH;
  return users ? neap_fail(error, NEAP_DB, "query: %s", sqlite3_errmsg(store->db))
               : neap_store_fail(store, rc, "query", error);
}

/* Exactly one statement, and one that only reads: a question can't lose what was measured. */
static neap_status prepare(neap_store *store, const char *text, sqlite3_stmt **stmt,
                           neap_error *error) {
  /* What stands behind the first statement is compiled too, since it may be blank or a comment,
   * which compiles to nothing. */
  const char *rest;
  int rc = sqlite3_prepare_v2(store->db, text, -1, stmt, &rest);
  if (rc != SQLITE_OK) return fail_query(store, rc, error);
  if (*stmt == NULL) return neap_fail(error, NEAP_DB, "query: there is no statement in it");
  sqlite3_stmt *second = NULL;
  rc = sqlite3_prepare_v2(store->db, rest, -1, &second, NULL);
  bool more = rc != SQLITE_OK || second != NULL;
  sqlite3_finalize(second);
  if (more)
    return neap_fail(error, NEAP_DB, "query: one statement at a time, got more: \"%.60s\"", rest);

  /* SQLite knows by the compiled statement, whatever its words are. */
  if (!sqlite3_stmt_readonly(*stmt)) {
    neap_fail(error, NEAP_DB, "query: only statements that read are allowed here");
    neap_hint(error, "to change rows: sqlite3 %s", store->path);
    return NEAP_DB;
  }
  return NEAP_OK;
}

/* SQLite copies texts and blobs, so that the caller's may go. */
static int bind_at(sqlite3_stmt *stmt, int at, const neap_sql_value *value) {
  switch (value->type) {
    case NEAP_SQL_NULL: break;
    case NEAP_SQL_INTEGER: return sqlite3_bind_int64(stmt, at, value->integer);
    case NEAP_SQL_REAL: return sqlite3_bind_double(stmt, at, value->real);
    case NEAP_SQL_TEXT:
      return sqlite3_bind_text64(stmt, at, value->text, value->n_text, SQLITE_TRANSIENT,
                                 SQLITE_UTF8);
    case NEAP_SQL_BLOB:
      return sqlite3_bind_blob64(stmt, at, value->text, value->n_text, SQLITE_TRANSIENT);
  }
  return sqlite3_bind_null(stmt, at);
}

/* The first position behind `at` whose parameter has no name, such as ? and ?3. */
static int next_position(sqlite3_stmt *stmt, int at) {
  const char *name;
  do name = sqlite3_bind_parameter_name(stmt, ++at);
  while (name != NULL && name[0] != '?');
  return at;
}

/* By name where a parameter has one, else the next position. */
static neap_status bind_all(neap_store *store, sqlite3_stmt *stmt, int n,
                            const neap_sql_value *param, neap_error *error) {
  int next = 0;
  for (int i = 0; i < n; i++) {
    int at = 0;
    if (param[i].name != NULL) {
      at = sqlite3_bind_parameter_index(stmt, param[i].name);
    } else {
      next = next_position(stmt, next);
      at = next;
    }
    /* 0: no such name. A position beyond the last: too many values. */
    if (at == 0)
      return neap_fail(error, NEAP_DB, "query: it has no parameter \"%s\"", param[i].name);
    if (at > sqlite3_bind_parameter_count(stmt))
      return neap_fail(error, NEAP_DB, "query: it has %d parameters, got %d",
                       sqlite3_bind_parameter_count(stmt), n);

    int rc = bind_at(stmt, at, &param[i]);
    if (rc != SQLITE_OK) return fail_query(store, rc, error);
  }
  return NEAP_OK;
}

/* DB error for a parameter of the statement that none of `param` is for. */
static neap_status check_bound(sqlite3_stmt *stmt, int n, const neap_sql_value *param,
                               neap_error *error) {
  /* Values without a name are counted, since only their number matters; those with one are looked
   * for. */
  int n_positional = 0;
  for (int i = 0; i < n; i++) n_positional += param[i].name == NULL;
  for (int at = 1; at <= sqlite3_bind_parameter_count(stmt); at++) {
    const char *name = sqlite3_bind_parameter_name(stmt, at);
    bool is_named = name != NULL && name[0] != '?', bound = false;
    if (is_named) {
      for (int i = 0; i < n; i++)
        bound = bound || (param[i].name != NULL && strcmp(param[i].name, name) == 0);
    } else {
      /* Positions are filled from the first on, as bind_all does. */
      bound = n_positional > 0;
      n_positional--;
    }

    if (bound) continue;
    if (!is_named) return neap_fail(error, NEAP_DB, "query: parameter %d has no value", at);
    return neap_fail(error, NEAP_DB, "query: the parameter \"%s\" has no value", name);
  }
  return NEAP_OK;
}

/* Borrowed until the next step of the statement. */
static void read_row(sqlite3_stmt *stmt, int n, neap_sql_value *value) {
  static const neap_sql_type type[] = {[SQLITE_INTEGER] = NEAP_SQL_INTEGER,
                                       [SQLITE_FLOAT] = NEAP_SQL_REAL,
                                       [SQLITE_TEXT] = NEAP_SQL_TEXT,
                                       [SQLITE_BLOB] = NEAP_SQL_BLOB,
                                       [SQLITE_NULL] = NEAP_SQL_NULL};
  for (int i = 0; i < n; i++) {
    value[i] = (neap_sql_value){.name = sqlite3_column_name(stmt, i),
                                .type = type[sqlite3_column_type(stmt, i)]};
    /* All three forms: who asks takes the one of its type. */
    value[i].integer = sqlite3_column_int64(stmt, i);
    value[i].real = sqlite3_column_double(stmt, i);
    /* Last, since it may convert the value in place. */
    value[i].text = value[i].type == NEAP_SQL_BLOB ? sqlite3_column_blob(stmt, i)
                                                   : (const char *)sqlite3_column_text(stmt, i);
    value[i].n_text = (size_t)sqlite3_column_bytes(stmt, i);
  }
}

neap_status neap_store_ask(neap_store *store, const char *text, int n_param,
                           const neap_sql_value *param, bool complete, neap_sql_row *row,
                           void *context, neap_error *error) {
  sqlite3_stmt *stmt = NULL;
  neap_sql_value *value = NULL;

  /* Compiled, filled, and looked at before the first step, so that a question at fault gives no
   * rows. */
  neap_status status = prepare(store, text, &stmt, error);
  if (status == NEAP_OK) status = bind_all(store, stmt, n_param, param, error);
  if (status == NEAP_OK && complete) status = check_bound(stmt, n_param, param, error);
  if (status != NEAP_OK) goto done;

  /* One row at a time is in memory. */
  int n = sqlite3_column_count(stmt), rc;
  value = neap_alloc_zeroed((size_t)n * sizeof *value);
  if (value == NULL) {
    status = neap_fail_memory(error, (size_t)n * sizeof *value, "the row of a query");
    goto done;
  }
  while ((rc = sqlite3_step(stmt)) == SQLITE_ROW) {
    read_row(stmt, n, value);
    if (!row(context, n, value)) break;
  }

  /* SQLITE_ROW: whoever takes the rows has had enough. */
  if (rc != SQLITE_ROW && rc != SQLITE_DONE) status = fail_query(store, rc, error);
done:
  neap_free(value);
  sqlite3_finalize(stmt);
  return status;
}

neap_status neap_db_query(neap_store *store, const char *text, int n_param,
                          const neap_sql_value *param, neap_sql_row *row, void *context,
                          neap_error *error) {
  return neap_store_ask(store, text, n_param, param, false, row, context, error);
}
