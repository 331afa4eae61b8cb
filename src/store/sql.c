/* sql.c: statements, transactions, and the words for what SQLite refuses. */
#include "store/store_int.h"

#include <stdio.h>
#include <string.h>

neap_status neap_store_fail(const neap_store *store, int rc, const char *lost, neap_error *error) {
  /* The deepest failure has spoken first, and is kept. */
  if (error == NULL || error->code != NEAP_OK) return error == NULL ? NEAP_DB : error->code;

  /* SQLite's words are those of the handle; without one, of the code. */
  const char *detail = store->db != NULL ? sqlite3_errmsg(store->db) : sqlite3_errstr(rc);

  /* Codes have their kind in the lowest byte. Each kind says what to do about it. */
  switch (rc & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      neap_fail(error, NEAP_DB, "%s: database \"%s\" is locked by another process", lost,
                store->path);
      return neap_hint(error,
                       "run again when the other process is done, or set NEAP_DB to another file");
    case SQLITE_FULL:
      neap_fail(error, NEAP_DB,
                "%s: no room for database \"%s\": the disk, or the size the file may have, is full",
                lost, store->path);
      return neap_hint(error,
                       "free some disk, prune the database, or set NEAP_DB to a file elsewhere");
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      neap_fail(error, NEAP_DB, "%s: database \"%s\" is damaged, or is no database (%s)", lost,
                store->path, detail);
      return neap_hint(error, "move the file away; a new one is made on the next run");
    case SQLITE_READONLY:
      neap_fail(error, NEAP_DB, "%s: database \"%s\" can only be read", lost, store->path);
      return neap_hint(error, "set NEAP_DB to a file that can be written");
    case SQLITE_CANTOPEN:
      neap_fail(error, NEAP_DB, "%s: database \"%s\" can't be opened (%s)", lost, store->path,
                detail);
      return neap_hint(error, "check the directory and its rights, or set NEAP_DB");
    case SQLITE_NOMEM:
      return neap_fail(error, NEAP_DB, "%s: memory for database \"%s\" was refused", lost,
                       store->path);
    case SQLITE_IOERR:
      return neap_fail(error, NEAP_DB, "%s: database \"%s\" can't be read or written: %s", lost,
                       store->path, detail);
    default: return neap_fail(error, NEAP_DB, "%s: database \"%s\": %s", lost, store->path, detail);
  }
}

neap_status neap_store_check_writable(const neap_store *store, const char *lost,
                                      neap_error *error) {
  return store->readonly ? neap_store_fail(store, SQLITE_READONLY, lost, error) : NEAP_OK;
}

/* Compiles `text`. A failure waits in rc, so that callers bind without looking and check once, at
 * the first step. */
neap_sql neap_sql_new(neap_store *store, const char *text, const char *lost) {
  neap_sql sql = {.store = store, .lost = lost};
  sql.rc = sqlite3_prepare_v2(store->db, text, -1, &sql.stmt, NULL);
  return sql;
}

neap_sql neap_sql_kept(neap_store *store, neap_kept which, const char *text, const char *lost) {
  neap_sql sql = {.store = store, .lost = lost, .kept = true};
  if (store->kept[which] == NULL)
    sql.rc =
      sqlite3_prepare_v3(store->db, text, -1, SQLITE_PREPARE_PERSISTENT, &store->kept[which], NULL);
  sql.stmt = store->kept[which];
  NEAP_ASSERT(sql.stmt == NULL || !sqlite3_stmt_busy(sql.stmt), "one user at a time");
  return sql;
}

/* Keeps the first failure. */
static void bound(neap_sql *sql, int rc) {
  if (sql->rc == SQLITE_OK) sql->rc = rc;
}

void neap_sql_int(neap_sql *sql, int64_t value) {
  bound(sql, sqlite3_bind_int64(sql->stmt, ++sql->n_bound, value));
}
void neap_sql_real(neap_sql *sql, double value) {
  bound(sql, sqlite3_bind_double(sql->stmt, ++sql->n_bound, value));
}
/* A copy, so that callers may bind a text of their stack. NULL becomes null. */
void neap_sql_text(neap_sql *sql, const char *text) {
  bound(sql, sqlite3_bind_text(sql->stmt, ++sql->n_bound, text, -1, SQLITE_TRANSIENT));
}
/* Two parameters: how long the text is, and its bytes as sqlar_compress makes them. */
void neap_sql_zip(neap_sql *sql, const char *text) {
  size_t n = strlen(text), n_zip = 0;
  unsigned char *zip = neap_zip(text, n, &n_zip);
  neap_sql_int(sql, (int64_t)n);
  if (zip == NULL)
    bound(sql, SQLITE_NOMEM);
  else
    bound(sql, sqlite3_bind_blob64(sql->stmt, ++sql->n_bound, zip, n_zip, SQLITE_TRANSIENT));
  neap_free(zip);
}
void neap_sql_null(neap_sql *sql) { bound(sql, sqlite3_bind_null(sql->stmt, ++sql->n_bound)); }

/* Resets a statement that has ended, well or badly, so that it is ready for the next row of
 * bindings. After a failure rc stays set: a statement that failed once is not to be used on. */
neap_status neap_sql_step(neap_sql *sql, bool *row, neap_error *error) {
  /* A failure of the preparing or binding has waited in rc until now. */
  *row = false;
  if (sql->refused) return neap_fail_memory(error, 1024, "a statement");
  if (sql->rc == SQLITE_OK) sql->rc = sqlite3_step(sql->stmt);
  *row = sql->rc == SQLITE_ROW;
  bool done = sql->rc == SQLITE_ROW || sql->rc == SQLITE_DONE;
  neap_status status = done ? NEAP_OK : neap_store_fail(sql->store, sql->rc, sql->lost, error);

  /* No further row: ready for new values, from the first parameter on. */
  if (!*row && sql->stmt != NULL) {
    sqlite3_reset(sql->stmt);
    sql->n_bound = 0;
  }

  /* The next step starts anew; a failure stays. */
  if (done) sql->rc = SQLITE_OK;
  return status;
}

/* To its end, whatever rows it gives. */
neap_status neap_sql_run(neap_sql *sql, neap_error *error) {
  bool row;
  do NEAP_TRY(neap_sql_step(sql, &row, error));
  while (row);
  return NEAP_OK;
}

void neap_sql_fini(neap_sql *sql) {
  if (sql->stmt == NULL) return;
  /* A kept one holds neither a lock nor a text while nobody uses it. */
  if (sql->kept) {
    sqlite3_reset(sql->stmt);
    sqlite3_clear_bindings(sql->stmt);
  } else {
    sqlite3_finalize(sql->stmt);
  }
  sql->stmt = NULL;
}

neap_status neap_store_number(neap_store *store, const char *query, const char *lost, int64_t *n,
                              neap_error *error) {
  neap_sql sql = neap_sql_new(store, query, lost);
  bool row;
  neap_status status = neap_sql_step(&sql, &row, error);
  if (status == NEAP_OK) *n = row ? sqlite3_column_int64(sql.stmt, 0) : 0;
  neap_sql_fini(&sql);
  return status;
}

neap_status neap_store_exec(neap_store *store, const char *text, const char *lost,
                            neap_error *error) {
  int rc = sqlite3_exec(store->db, text, NULL, NULL, NULL);
  return rc == SQLITE_OK ? NEAP_OK : neap_store_fail(store, rc, lost, error);
}

/* IMMEDIATE takes the write lock at once. A deferred transaction that reads first and writes later
 * could be refused at the write without any waiting, when another process wrote in between. */
neap_status neap_store_begin(neap_store *store, const char *lost, neap_error *error) {
  NEAP_TRY(neap_store_check_writable(store, lost, error));
  return neap_store_exec(store, "BEGIN IMMEDIATE", lost, error);
}

/* Commits when `status` is OK, else rolls back; gives back `status`, or what the commit said. */
neap_status neap_store_end(neap_store *store, neap_status status, const char *lost,
                           neap_error *error) {
  if (status == NEAP_OK) status = neap_store_exec(store, "COMMIT", lost, error);
  /* SQLite rolls back by itself after some failures, such as a full disk. */
  if (status != NEAP_OK && sqlite3_get_autocommit(store->db) == 0)
    sqlite3_exec(store->db, "ROLLBACK", NULL, NULL, NULL);
  return status;
}
