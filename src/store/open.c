/* open.c: the life of a handle: where the file is, opening it as far as it allows, closing. */
#include "store/store_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char lost[] = "plans and runs are neither found nor stored";

const char *neap_db_default_path(void) {
  static _Thread_local char path[1024];
  const char *set = getenv("NEAP_DB"), *data = getenv("XDG_DATA_HOME"), *home = getenv("HOME");

  /* NEAP_DB comes first, then the places where the XDG standard has data lie. */
  if (set != NULL && strcmp(set, "off") == 0) return NULL;
  if (set != NULL && set[0] != '\0')
    snprintf(path, sizeof path, "%s", set);
  else if (data != NULL && data[0] == '/') /* the standard has relative ones ignored */
    snprintf(path, sizeof path, "%s/neap/neap.db", data);
  else if (home != NULL && home[0] != '\0')
    snprintf(path, sizeof path, "%s/.local/share/neap/neap.db", home);
  else
    return NULL;
  return path;
}

/* Makes the directories above `path`; what fails shows when the file is opened. */
static void make_directories(char *path) {
  for (char *c = path + 1; *c != '\0'; c++)
    if (*c == '/') {
      /* The path is cut at each "/" in turn, and made whole again. */
      *c = '\0';
      mkdir(path, 0777);
      *c = '/';
    }
}

/* Whether the file's first page can be read: opening alone touches nothing. */
static int try_read(sqlite3 *db) {
  return sqlite3_exec(db, "SELECT count(*) FROM sqlite_master", NULL, NULL, NULL);
}

/* Opens under `name` (a path or URI) in place of what was open. The result code of the first read,
 * which is what tells. */
static int open_as(neap_store *store, const char *name, int flags) {
  /* SQLite gives a handle even when it fails to open: it is closed with the next try, or at the
   * end. One thread has it, so that it needs no locks. */
  sqlite3_close(store->db);
  store->db = NULL;
  int rc = sqlite3_open_v2(name, &store->db, flags | SQLITE_OPEN_NOMUTEX, NULL);
  /* Others hold the write lock for a moment only: wait rather than lose a plan. */
  if (rc == SQLITE_OK) neap_db_set_timeout(store, 5000);
  if (rc == SQLITE_OK) rc = neap_sql_add_functions(store->db);
  return rc == SQLITE_OK ? try_read(store->db) : rc;
}

/* In WAL mode even readers make files beside the database. Where the directory forbids it, and no
 * log is left behind by a writer, the file is read as one that nobody changes. */
static int open_immutable(neap_store *store) {
  neap_buffer name = {0};
  neap_buffer_add(&name, "%s-wal", store->path);
  struct stat info;

  /* What is in a log would not be seen: then the file isn't opened at all. */
  bool has_log = name.failed || stat(name.text, &info) == 0;

  /* The path as a URI: three characters mean something there. */
  name.n = 0;
  neap_buffer_add(&name, "file:");
  for (const char *c = store->path; *c != '\0'; c++)
    neap_buffer_add(&name, strchr("?#%", *c) != NULL ? "%%%02x" : "%c", (unsigned char)*c);
  neap_buffer_add(&name, "?immutable=1");
  int rc = SQLITE_CANTOPEN;
  if (!has_log && !name.failed)
    rc = open_as(store, name.text, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);
  neap_buffer_fini(&name);
  return rc;
}

/* For writing, else for reading, else as a file that nobody changes. */
static neap_status open_file(neap_store *store, neap_error *error) {
  /* Codes have their kind in the lowest byte. Other kinds, such as a damaged file, would be no
   * better for reading. */
  int rc = open_as(store, store->path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  if ((rc & 0xff) == SQLITE_CANTOPEN || (rc & 0xff) == SQLITE_READONLY ||
      (rc & 0xff) == SQLITE_IOERR)
    rc = open_as(store, store->path, SQLITE_OPEN_READONLY);
  if ((rc & 0xff) == SQLITE_CANTOPEN || (rc & 0xff) == SQLITE_READONLY) rc = open_immutable(store);
  if (rc != SQLITE_OK) return neap_store_fail(store, rc, lost, error);
  /* SQLite itself opens for reading what it can't open for writing: it is asked what came of it. */
  store->readonly = sqlite3_db_readonly(store->db, "main") == 1;
  return NEAP_OK;
}

/* What every connection sets for itself, and the tables, of this version. */
static neap_status set_up(neap_store *store, neap_error *error) {
  NEAP_TRY(
    neap_store_exec(store, "PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL", lost, error));
  /* May be refused while another process opens the same new file; that one sets it, and it stays
   * with the file. */
  if (!store->readonly) sqlite3_exec(store->db, "PRAGMA journal_mode = WAL", NULL, NULL, NULL);
  NEAP_TRY(neap_store_migrate(store, error));
  /* Somebody else's lock is no reason to wait here: the next one that opens the file does it. */
  if (store->readonly) return NEAP_OK;
  sqlite3_busy_timeout(store->db, 100);
  (void)neap_store_mark_lost(store, NULL);
  sqlite3_busy_timeout(store->db, store->timeout_ms);
  return NEAP_OK;
}

neap_status neap_db_open(const char *path, neap_store **out, neap_error *error) {
  *out = NULL;
  if (path == NULL) path = neap_db_default_path();
  if (path == NULL) return neap_fail(error, NEAP_DB, "there is no database: NEAP_DB is \"off\"");
  neap_store *store = neap_alloc_zeroed(sizeof *store);
  if (store == NULL) return neap_fail_memory(error, sizeof *store, "a database handle");
  neap_status status;

  /* From here on close frees whatever is there already. */
  store->n_ref = 1;
  store->commit_dirty = NEAP_NO_NUMBER;
  store->path = neap_strdup(path);
  if (store->path == NULL) {
    status = neap_fail_memory(error, strlen(path), "a path");
    goto fail_store;
  }

  /* SQLite would take the empty path for a file of its own that goes when it is closed. */
  if (path[0] == '\0') {
    status = neap_fail(error, NEAP_DB, "%s: the path of the database is empty", lost);
    goto fail_store;
  }
  make_directories(store->path);
  status = open_file(store, error);
  if (status == NEAP_OK) status = set_up(store, error);
  if (status != NEAP_OK) goto fail_store;
  *out = store;
  return NEAP_OK;
fail_store:
  neap_db_close(store);
  return status;
}

void neap_db_close(neap_store *store) {
  if (store == NULL || --store->n_ref > 0) return;
  neap_store_drop_runs(store);
  for (int i = 0; i < NEAP_KEPT_COUNT; i++) sqlite3_finalize(store->kept[i]);
  sqlite3_close(store->db);
  neap_free(store->path);
  neap_free(store->choices);
  neap_free(store->plan_text);
  neap_free(store->arguments);
  neap_free(store->commit_id);
  neap_free(store);
}

void neap_db_note_script(neap_db *db, const char *arguments, const char *commit_id,
                         int commit_dirty) {
  neap_free(db->arguments);
  neap_free(db->commit_id);
  /* A text that finds no room is one that nobody knows. */
  db->arguments = arguments != NULL ? neap_strdup(arguments) : NULL;
  db->commit_id = commit_id != NULL ? neap_strdup(commit_id) : NULL;
  db->commit_dirty = commit_id != NULL && commit_dirty >= 0 ? commit_dirty != 0 : NEAP_NO_NUMBER;
  db->knows_script = true;
}

bool neap_db_knows_script(const neap_db *db) { return db->knows_script; }

neap_store *neap_db_retain(neap_store *store) {
  if (store != NULL) store->n_ref++;
  return store;
}

const char *neap_db_path(const neap_store *store) { return store->path; }
bool neap_db_is_readonly(const neap_store *store) { return store->readonly; }
void neap_db_set_timeout(neap_store *store, int milliseconds) {
  store->timeout_ms = milliseconds;
  sqlite3_busy_timeout(store->db, milliseconds);
}
