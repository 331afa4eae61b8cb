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

/* Embedded files come in the order of their paths. */
const char *neap_store_migration(int index) {
  const char *text, *path;
  /* Counted down among the migrations: other files are embedded too. */
  for (int i = 0; (text = neap_embedded_at(i, NULL, &path)) != NULL; i++)
    if (strncmp(path, migrations, sizeof migrations - 1) == 0 && index-- == 0) return text;
  return NULL;
}

/* The number of migrations this program carries. */
static int newest_version(void) {
  int n = 0;
  while (neap_store_migration(n) != NULL) n++;
  return n;
}

/* ---- triggers and indexes of the user -------------------------------------------------------- */

/* A migration may make a table of Neap's anew, and what a user has put on it would go with the old
 * one. So the statements are kept before, and run again after, each that is not there any more. */
static const char keep_schema[] =
  "CREATE TEMP TABLE IF NOT EXISTS kept_schema (name TEXT, text TEXT) STRICT;"
  "DELETE FROM temp.kept_schema;"
  "INSERT INTO temp.kept_schema SELECT name, sql FROM sqlite_master WHERE type IN ('index', "
  "'trigger') AND sql IS NOT NULL";

/* Those that the migrations themselves have dropped, by name. */
static const char find_lost[] =
  "SELECT text FROM temp.kept_schema WHERE name NOT IN (SELECT name FROM sqlite_master) AND name "
  "NOT IN ('net_name', 'plan_net', 'plan_key', 'value_blob', 'value_storage', 'run_plan') "
  "ORDER BY rowid LIMIT 1 OFFSET ?";

/* One that fits the new table no more, as it names a column that is gone, is left out: it can't be
 * kept, and must not keep the file from being used. */
static neap_status restore_schema(neap_store *store, neap_error *error) {
  for (int64_t n_failed = 0;;) {
    /* One at a time, since each that is made is no longer lost; those that failed stay, and are
     * passed over. */
    neap_sql sql = neap_sql_new(store, find_lost, lost);
    neap_sql_int(&sql, n_failed);
    bool row;
    neap_status status = neap_sql_step(&sql, &row, error);
    char *text = row ? neap_strdup((const char *)sqlite3_column_text(sql.stmt, 0)) : NULL;
    neap_sql_fini(&sql);
    if (status != NEAP_OK || !row) return status;
    if (text == NULL) return neap_fail_memory(error, 256, "a user's trigger or index");

    if (sqlite3_exec(store->db, text, NULL, NULL, NULL) != SQLITE_OK) n_failed++;
    neap_free(text);
  }
}

/* ---- migrations ------------------------------------------------------------------------------ */

/* The next migration's text, and its number. */
static neap_status run_migration(neap_store *store, const char *text, int64_t version,
                                 neap_error *error) {
  char set[96];
  NEAP_TRY(neap_store_exec(store, keep_schema, lost, error));
  NEAP_TRY(neap_store_exec(store, text, lost, error));
  NEAP_TRY(restore_schema(store, error));

  /* The number goes with the tables: both or neither. */
  snprintf(set, sizeof set, "PRAGMA user_version = %d; PRAGMA application_id = %d",
           (int)version + 1, APPLICATION_ID);
  return neap_store_exec(store, set, lost, error);
}

/* Applies the next migration, unless another process has done so in the meantime. Foreign keys are
 * off meanwhile (a pragma that does nothing within a transaction): else a renamed table would be
 * followed by the references of the user's tables, and a dropped one would delete their rows. */
static neap_status apply_next(neap_store *store, int64_t *version, neap_error *error) {
  NEAP_TRY(neap_store_exec(store, "PRAGMA foreign_keys = OFF", lost, error));

  neap_status status = neap_store_begin(store, lost, error);
  const char *text = NULL;
  if (status == NEAP_OK) {
    /* Read again under the lock: another process may have been here first. */
    status = neap_store_number(store, "PRAGMA user_version", lost, version, error);
    if (status == NEAP_OK) text = neap_store_migration((int)*version);
    if (text != NULL) status = run_migration(store, text, *version, error);
    status = neap_store_end(store, status, lost, error);
  }

  if (status == NEAP_OK && text != NULL) ++*version;

  /* On again in any case, and its failure told only if there is no other. */
  neap_status on =
    neap_store_exec(store, "PRAGMA foreign_keys = ON", lost, status == NEAP_OK ? error : NULL);
  return status != NEAP_OK ? status : on;
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

/* Those of this version and of older ones, which are all named v_.., but for those that show packed
 * rows. Others are the user's. One at a time: a statement that walks sqlite_master must not
 * run while it changes. */
static neap_status drop_views(neap_store *store, neap_error *error) {
  for (;;) {
    neap_sql sql = neap_sql_new(
      store,
      "SELECT 'DROP VIEW \"' || replace(name, '\"', '\"\"') || '\"' FROM sqlite_master WHERE type "
      "= 'view' AND (name GLOB 'v_*' OR name IN ('plan_op', 'plan_value', 'subnet_op', "
      "'subnet_value', 'run_op')) LIMIT 1",
      lost);
    /* The name is copied, and the statement over, before the view goes. */
    bool row;
    neap_status status = neap_sql_step(&sql, &row, error);
    char *drop = row ? neap_strdup((const char *)sqlite3_column_text(sql.stmt, 0)) : NULL;
    neap_sql_fini(&sql);

    if (status != NEAP_OK || !row) return status;
    if (drop == NULL) return neap_fail_memory(error, 256, "the name of a view");
    status = neap_store_exec(store, drop, lost, error);
    neap_free(drop);
    NEAP_TRY(status);
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
  NEAP_TRY(neap_store_check_names(store, error));
  NEAP_TRY(neap_store_begin(store, lost, error));
  neap_status status = drop_views(store, error);
  if (status == NEAP_OK) status = neap_store_exec(store, views, lost, error);
  if (status == NEAP_OK) status = write_meta(store, "views_hash", hash, error);
  if (status == NEAP_OK) status = write_meta(store, "planner_version", NEAP_PLANNER_VERSION, error);
  if (status == NEAP_OK) status = write_meta(store, "neap_version", NEAP_VERSION, error);
  return neap_store_end(store, status, lost, error);
}

/* A file with tables that Neap did not make is left alone: one is ours by its mark, or new, without
 * a mark and without tables. One statement sees one moment of the file: between two, another
 * process may bring a new file to its first version. */
static neap_status check_owner(neap_store *store, neap_error *error) {
  neap_sql sql =
    neap_sql_new(store,
                 "SELECT application_id = ? OR (application_id = 0 AND NOT EXISTS (SELECT 1 FROM "
                 "sqlite_master)) FROM pragma_application_id",
                 lost);
  neap_sql_int(&sql, APPLICATION_ID);
  bool row;
  neap_status status = neap_sql_step(&sql, &row, error);
  bool is_ours = row && sqlite3_column_int(sql.stmt, 0) != 0;
  neap_sql_fini(&sql);
  if (status != NEAP_OK || is_ours) return status;

  neap_fail(error, NEAP_DB, "%s: \"%s\" is a database of another program", lost, store->path);
  neap_hint(error, "set NEAP_DB to another file");
  return NEAP_DB;
}

neap_status neap_store_migrate(neap_store *store, neap_error *error) {
  int64_t version = 0;
  int newest = newest_version();

  /* What can't be brought up is refused before anything is written. */
  NEAP_TRY(check_owner(store, error));
  NEAP_TRY(neap_store_number(store, "PRAGMA user_version", lost, &version, error));

  /* A newer file is not written by what does not know its tables. */
  if (version > newest) {
    neap_fail(error, NEAP_DB,
              "%s: database \"%s\" has schema %lld, made by a newer Neap; this one knows schema %d",
              lost, store->path, (long long)version, newest);
    neap_hint(error, "use the newer Neap, or set NEAP_DB to another file");
    return NEAP_DB;
  }

  /* Nor is an older one read by views that it does not have. */
  if (version < newest && store->readonly)
    return neap_fail(
      error, NEAP_DB,
      "%s: database \"%s\" has schema %lld, must be brought to %d, and can only be read", lost,
      store->path, (long long)version, newest);

  /* One step after another, each by itself: a file is at every moment of some version. */
  if (version < newest) NEAP_TRY(neap_store_check_names(store, error));
  while (version < newest) NEAP_TRY(apply_next(store, &version, error));
  return renew_views(store, error);
}
