/* schema.c: from whatever file there is to the newest schema. The migrations are
 * db/migrations/NNNN_name.sql, embedded.
 *
 * INVARIANT: user_version is the number of migrations applied; each is applied in one transaction
 * with its number. Views hold no data: they are dropped and made anew when the text of db/views.sql
 * differs from what the file was made with.
 */
#include "store/store_int.h"

#include <stdio.h>
#include <string.h>

enum { APPLICATION_ID = 0x4e454150 }; /* "NEAP", in the file's header */

static const char migrations[] = "db/migrations/";
static const char lost[] = "plans and runs are neither found nor stored";

/* Migration `index` from 0, or NULL: embedded files come in the order of their paths. */
static const char *migration(int index) {
  const char *text, *path;
  /* Counted down among the migrations: other files are embedded too. */
  for (int i = 0; (text = neap_embedded_at(i, NULL, &path)) != NULL; i++)
    if (strncmp(path, migrations, sizeof migrations - 1) == 0 && index-- == 0) return text;
  return NULL;
}

/* The number of migrations this program carries. */
static int newest_version(void) {
  int n = 0;
  while (migration(n) != NULL) n++;
  return n;
}

/* The first column of the first row; 0 without rows. */
static neap_status read_number(neap_store *store, const char *query, int64_t *out,
                               neap_error *error) {
  neap_sql sql = neap_sql_new(store, query, lost);
  bool row;
  neap_status status = neap_sql_step(&sql, &row, error);
  if (status == NEAP_OK) *out = row ? sqlite3_column_int64(sql.stmt, 0) : 0;
  neap_sql_fini(&sql);
  return status;
}

/* Applies the next migration, unless another process has done so in the meantime. */
static neap_status apply_next(neap_store *store, int64_t *version, neap_error *error) {
  /* The version is read within the transaction: nobody changes it from here on. */
  NEAP_TRY(neap_store_begin(store, lost, error));
  char set[96];
  const char *text = NULL;
  neap_status status = read_number(store, "PRAGMA user_version", version, error);
  if (status == NEAP_OK) text = migration((int)*version);
  if (text != NULL) {
    NEAP_ASSERT(sqlite3_get_autocommit(store->db) == 0, "a migration is one transaction");
    /* Tables and number change at once: a process that dies in between leaves the old version. */
    status = neap_store_exec(store, text, lost, error);
    snprintf(set, sizeof set, "PRAGMA user_version = %d; PRAGMA application_id = %d",
             (int)*version + 1, APPLICATION_ID);
    if (status == NEAP_OK) status = neap_store_exec(store, set, lost, error);
  }
  status = neap_store_end(store, status, lost, error);
  if (status == NEAP_OK && text != NULL) ++*version;
  return status;
}

/* ---- views and facts ------------------------------------------------------------------------- */

/* "" when there is no such fact. */
static neap_status read_meta(neap_store *store, const char *name, char value[64],
                             neap_error *error) {
  /* Longer facts are cut: what is compared are hashes and versions. */
  neap_sql sql = neap_sql_new(store, "SELECT value FROM meta WHERE name = ?", lost);
  neap_sql_text(&sql, name);
  bool row;
  neap_status status = neap_sql_step(&sql, &row, error);
  snprintf(value, 64, "%s", row ? (const char *)sqlite3_column_text(sql.stmt, 0) : "");
  neap_sql_fini(&sql);
  return status;
}

/* A fact about the database, new or in place of the old one. */
static neap_status write_meta(neap_store *store, const char *name, const char *value,
                              neap_error *error) {
  neap_sql sql = neap_sql_new(
    store, "INSERT INTO meta VALUES (?, ?) ON CONFLICT DO UPDATE SET value = excluded.value", lost);
  neap_sql_text(&sql, name);
  neap_sql_text(&sql, value);
  neap_status status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);
  return status;
}

/* Those of this version and of older ones, which are all named v_.., but for the two that show
 * packed rows. Others are the user's. One at a time: a statement that walks sqlite_master must not
 * run while it changes. */
static neap_status drop_views(neap_store *store, neap_error *error) {
  for (;;) {
    neap_sql sql =
      neap_sql_new(store,
                   "SELECT 'DROP VIEW \"' || name || '\"' FROM sqlite_master WHERE type = 'view' "
                   "AND (name GLOB 'v_*' OR name IN ('plan_op', 'plan_value')) LIMIT 1",
                   lost);
    bool row;
    char drop[160] = "";
    neap_status status = neap_sql_step(&sql, &row, error);
    if (row) snprintf(drop, sizeof drop, "%s", (const char *)sqlite3_column_text(sql.stmt, 0));
    neap_sql_fini(&sql);
    if (status != NEAP_OK || !row) return status;
    NEAP_TRY(neap_store_exec(store, drop, lost, error));
  }
}

/* Also when only the planner has changed, so that meta tells who wrote last. With a read-only file
 * the views stay as they are: older ones still answer. */
static neap_status renew_views(neap_store *store, neap_error *error) {
  size_t n = 0;
  const char *views = neap_embedded_find("db/views.sql", &n);
  char hash[64], held[64], planner[64];
  if (views == NULL)
    return neap_fail(error, NEAP_INTERNAL, "db/views.sql is not part of this program");
  /* The hash says whether the text is another one; the views themselves are not compared. */
  neap_hash_text(neap_hash_bytes(views, n), hash);
  NEAP_TRY(read_meta(store, "views_hash", held, error));
  NEAP_TRY(read_meta(store, "planner_version", planner, error));
  if (store->readonly || (strcmp(hash, held) == 0 && strcmp(planner, NEAP_PLANNER_VERSION) == 0))
    return NEAP_OK;
  /* Views and facts in one transaction: another process sees the old ones or the new ones. */
  NEAP_TRY(neap_store_begin(store, lost, error));
  neap_status status = drop_views(store, error);
  if (status == NEAP_OK) status = neap_store_exec(store, views, lost, error);
  if (status == NEAP_OK) status = write_meta(store, "views_hash", hash, error);
  if (status == NEAP_OK) status = write_meta(store, "planner_version", NEAP_PLANNER_VERSION, error);
  if (status == NEAP_OK) status = write_meta(store, "neap_version", NEAP_VERSION, error);
  return neap_store_end(store, status, lost, error);
}

/* A file with tables that Neap did not make is left alone. */
static neap_status check_owner(neap_store *store, neap_error *error) {
  int64_t id = 0, n_table = 0;
  /* Ours by its mark, or new: without a mark and without tables. */
  NEAP_TRY(read_number(store, "PRAGMA application_id", &id, error));
  NEAP_TRY(read_number(store, "SELECT count(*) FROM sqlite_master", &n_table, error));
  if (id == APPLICATION_ID || (id == 0 && n_table == 0)) return NEAP_OK;
  neap_fail(error, NEAP_DB, "%s: \"%s\" is a database of another program", lost, store->path);
  return neap_hint(error, "set NEAP_DB to another file");
}

neap_status neap_store_migrate(neap_store *store, neap_error *error) {
  int64_t version = 0;
  int newest = newest_version();
  /* What can't be brought up is refused before anything is written. */
  NEAP_TRY(check_owner(store, error));
  NEAP_TRY(read_number(store, "PRAGMA user_version", &version, error));
  if (version > newest) {
    neap_fail(error, NEAP_DB,
              "%s: database \"%s\" has schema %lld, made by a newer Neap; this one knows schema %d",
              lost, store->path, (long long)version, newest);
    return neap_hint(error, "use the newer Neap, or set NEAP_DB to another file");
  }
  if (version < newest && store->readonly)
    return neap_fail(
      error, NEAP_DB,
      "%s: database \"%s\" has schema %lld, must be brought to %d, and can only be read", lost,
      store->path, (long long)version, newest);
  /* One step after another, each by itself: a file is at every moment of some version. */
  while (version < newest) NEAP_TRY(apply_next(store, &version, error));
  return renew_views(store, error);
}
