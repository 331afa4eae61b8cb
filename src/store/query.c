/* query.c: questions in SQL, and the care of the file: check, backup, prune. */
#include "store/store_int.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

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
    return neap_hint(error, "to change rows: sqlite3 %s", store->path);
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

/* ---- care ------------------------------------------------------------------------------------ */

/* The words that packed rows refer to, as `word_id`. */
#define WORDS_IN_USE                                                                             \
  "SELECT type AS word_id FROM packed_op UNION SELECT abs(name) FROM packed_op"                  \
  " UNION SELECT layer FROM packed_op"                                                           \
  " UNION SELECT line FROM packed_op WHERE line NOT NULL"                                        \
  " UNION SELECT module FROM packed_op WHERE module NOT NULL UNION SELECT phase FROM packed_op"  \
  " UNION SELECT algorithm FROM packed_op WHERE algorithm NOT NULL"                              \
  " UNION SELECT choice_reason FROM packed_op WHERE choice_reason NOT NULL"                      \
  " UNION SELECT kernel FROM packed_op UNION SELECT reason FROM packed_op WHERE reason NOT NULL" \
  " UNION SELECT abs(blob) FROM packed_value UNION SELECT layer FROM packed_value"               \
  " UNION SELECT line FROM packed_value WHERE line NOT NULL UNION SELECT role FROM packed_value" \
  " UNION SELECT module FROM packed_value WHERE module NOT NULL"                                 \
  " UNION SELECT category FROM packed_value WHERE category NOT NULL"                             \
  " UNION SELECT region FROM packed_value UNION SELECT dtype FROM packed_value"                  \
  " UNION SELECT layout FROM packed_value UNION SELECT shape FROM packed_value"                  \
  " UNION SELECT reason FROM packed_value UNION SELECT words FROM packed_value"                  \
  " UNION SELECT refusal FROM packed_value WHERE refusal NOT NULL"

/* Adds each row as a line; *n counts them. */
static neap_status report_rows(neap_store *store, const char *query, neap_buffer *report, int *n,
                               neap_error *error) {
  neap_sql sql = neap_sql_new(store, query, "the database can't be checked");
  bool row;
  neap_status status;
  while ((status = neap_sql_step(&sql, &row, error)) == NEAP_OK && row) {
    neap_buffer_add(report, "%s\n", (const char *)sqlite3_column_text(sql.stmt, 0));
    ++*n;
  }
  neap_sql_fini(&sql);
  return status;
}

/* Adds "ok", or one line a fault; then a DB error. */
static neap_status report_all(neap_store *store, neap_buffer *report, neap_error *error) {
  /* SQLite checks the pages and indices, then that what rows refer to is there. */
  int n = 0;
  NEAP_TRY(report_rows(store, "SELECT * FROM pragma_integrity_check WHERE integrity_check <> 'ok'",
                       report, &n, error));
  NEAP_TRY(report_rows(
    store,
    "SELECT 'a row of ' || \"table\" || ' refers to a row of ' || parent || ' that is not there' "
    "FROM pragma_foreign_key_check",
    report, &n, error));
  /* No foreign key says so of words (0005_history.sql). */
  NEAP_TRY(report_rows(store,
                       "SELECT 'rows of packed_op or packed_value refer to word ' || word_id || "
                       "', which is not there' FROM (" WORDS_IN_USE
                       ") WHERE word_id NOT IN (SELECT word_id FROM plan_word)",
                       report, &n, error));
  if (n == 0) {
    neap_buffer_add(report, "ok\n");
    return NEAP_OK;
  }
  neap_fail(error, NEAP_DB, "database \"%s\" is damaged: %d faults", store->path, n);
  return neap_hint(error, "move the file away; a new one is made on the next run");
}

/* The faults are given with the error that counts them: who mends the file wants both. */
neap_status neap_db_check(neap_store *store, char **report, neap_error *error) {
  neap_buffer text = {0};
  *report = NULL;
  neap_status status = report_all(store, &text, error);
  if (!text.failed) {
    *report = text.text;
    return status;
  }
  neap_buffer_fini(&text);
  return status != NEAP_OK ? status : neap_fail_memory(error, 256, "what a check found");
}

/* A consistent copy while others write, by SQLite's own means; an existing file is overwritten. */
neap_status neap_db_backup(neap_store *store, const char *path, neap_error *error) {
  static const char lost[] = "no backup was made";
  neap_store to = {.path = (char *)path}; /* for its messages */
  /* A handle of its own for the copy, which says what is wrong with that file. */
  int rc = sqlite3_open_v2(path, &to.db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);
  neap_status status = rc == SQLITE_OK ? NEAP_OK : neap_store_fail(&to, rc, lost, error);
  if (status == NEAP_OK) {
    sqlite3_backup *backup = sqlite3_backup_init(to.db, "main", store->db, "main");
    /* All pages in one step; finish says how it went, and frees it. What can't even begin has said
     * why to the target. */
    if (backup != NULL) sqlite3_backup_step(backup, -1);
    rc = backup != NULL ? sqlite3_backup_finish(backup) : sqlite3_errcode(to.db);
    if (rc != SQLITE_OK) status = neap_store_fail(&to, rc, lost, error);
  }
  sqlite3_close(to.db);
  return status;
}

/* One statement whose only parameter is a time, within the caller's transaction; *n rows went. */
static neap_status delete_since(neap_store *store, const char *text, int64_t since, int64_t *n,
                                const char *lost, neap_error *error) {
  neap_sql sql = neap_sql_new(store, text, lost);
  neap_sql_int(&sql, since);
  neap_status status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);
  /* Before another statement runs, which would count its own. */
  *n = sqlite3_changes64(store->db);
  return status;
}

/* What no row refers to any more. */
static const char sweep[] =
  "DELETE FROM net WHERE net_id NOT IN (SELECT net_id FROM plan);"
  "DELETE FROM net_text WHERE text_id NOT IN (SELECT text_id FROM net);"
  "DELETE FROM plan_word WHERE word_id NOT IN (" WORDS_IN_USE ")";

/* In the order of what is missed least: the cache, times by op of plans that go (their ops would
 * have no names), plans. Runs and their metrics stay. */
static neap_status prune(neap_store *store, int64_t since, int64_t *n_plan, const char *lost,
                         neap_error *error) {
  int64_t n;
  NEAP_TRY(delete_since(store, "DELETE FROM plan_cache WHERE used_at < ?", since, &n, lost, error));
  NEAP_TRY(neap_store_exec(store, "CREATE TEMP TABLE old_plan (plan_id INTEGER PRIMARY KEY) STRICT",
                           lost, error));
  NEAP_TRY(delete_since(
    store,
    "INSERT INTO temp.old_plan SELECT plan_id FROM plan WHERE used_at < ?1 AND NOT EXISTS (SELECT "
    "1 FROM run WHERE run.plan_id = plan.plan_id AND (started_at >= ?1 OR starred))",
    since, n_plan, lost, error));
  return neap_store_exec(store,
                         "DELETE FROM run_op WHERE run_id IN (SELECT run_id FROM run JOIN "
                         "temp.old_plan USING (plan_id));"
                         "DELETE FROM plan WHERE plan_id IN (SELECT plan_id FROM temp.old_plan);"
                         "DROP TABLE temp.old_plan",
                         lost, error);
}

neap_status neap_db_prune(neap_store *store, int64_t unused_days, int64_t *n_plan,
                          neap_error *error) {
  static const char lost[] = "nothing was pruned";
  /* Further back than any plan, and no product that wraps. */
  int64_t days = NEAP_MIN(NEAP_MAX(unused_days, 0), 1000000);
  int64_t since = (int64_t)time(NULL) - days * 86400, n = 0;
  NEAP_TRY(neap_store_begin(store, lost, error));
  neap_status status = prune(store, since, &n, lost, error);
  if (status == NEAP_OK && n > 0) status = neap_store_exec(store, sweep, lost, error);
  NEAP_TRY(neap_store_end(store, status, lost, error));
  if (n_plan != NULL) *n_plan = n;
  return NEAP_OK;
}
