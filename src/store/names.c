/* names.c: names that Neap's tables, indexes and views are about to take, and that a user's own
 * have already.
 *
 * Which names are Neap's in a file of some version follows from the texts of the migrations: each
 * of their statements that makes, renames or drops something stands at the beginning of a line.
 * What else the file has of a name that a later migration or a view makes is its user's. It is left
 * as it is, and the file is refused before anything in it is changed, with the words that make
 * room.
 */
#include "store/store_int.h"

#include <stdio.h>
#include <string.h>

static const char lost[] = "plans and runs are neither found nor stored";

enum { MOST_NAMES = 128 };
typedef struct sql_name {
  const char *text; /* in the text that says it; without a zero behind it */
  int n, version;   /* letters; of the migration */
  bool is_view;
} sql_name;
typedef struct names {
  int n;
  sql_name name[MOST_NAMES];
} names;

/* ---- what texts of SQL make ------------------------------------------------------------------ */

/* Whether the line goes on with these words; *at is then behind them. */
static bool take(const char **at, const char *words) {
  const size_t n = strlen(words);
  if (strncmp(*at, words, n) != 0) return false;
  *at += n;
  return true;
}

static sql_name take_name(const char **at, int version, bool is_view) {
  const size_t n = strcspn(*at, " ;(\n");
  const sql_name name = {.text = *at, .n = (int)n, .version = version, .is_view = is_view};
  *at += n;
  return name;
}

/* The place of a name, in whatever case: SQL has it so. -1: it is not there. */
static int find(const names *list, const char *text, int n) {
  for (int i = 0; i < list->n; i++)
    if (list->name[i].n == n && sqlite3_strnicmp(list->name[i].text, text, n) == 0) return i;
  return -1;
}

/* Once; of the first that makes it. */
static void add(names *list, sql_name name) {
  NEAP_ASSERT(list->n < MOST_NAMES, "there is room for %d names", MOST_NAMES);
  if (find(list, name.text, name.n) < 0 && list->n < MOST_NAMES) list->name[list->n++] = name;
}

static void drop(names *list, sql_name name) {
  const int i = find(list, name.text, name.n);
  if (i >= 0) list->name[i] = list->name[--list->n];
}

/* Into `list` what one line makes; what it drops or renames goes from there, where `drops`. */
static void read_line(const char *at, int version, bool drops, names *list) {
  if (take(&at, "CREATE TABLE ") || take(&at, "CREATE INDEX ")) {
    add(list, take_name(&at, version, false));
  } else if (take(&at, "CREATE VIEW ")) {
    add(list, take_name(&at, version, true));
  } else if (take(&at, "DROP TABLE ") || take(&at, "DROP INDEX ")) {
    const sql_name gone = take_name(&at, version, false);
    if (drops) drop(list, gone);
  } else if (take(&at, "ALTER TABLE ")) {
    const sql_name old = take_name(&at, version, false);
    const bool renames = take(&at, " RENAME TO ");
    if (renames && drops) drop(list, old);
    if (renames) add(list, take_name(&at, version, false));
  }
}

static void read_names(const char *text, int version, bool drops, names *list) {
  while (text != NULL) {
    read_line(text, version, drops, list);
    text = strchr(text, '\n');
    if (text != NULL) text++;
  }
}

/* ---- the check ------------------------------------------------------------------------------- */

/* What to do about one of the user's: tables can be renamed, all else is made again. */
static neap_status refuse(const neap_store *store, const char *type, const char *name,
                          const sql_name *taken, neap_error *error) {
  char by[32];
  snprintf(by, sizeof by, "schema %d", taken->version);
  neap_fail(error, NEAP_DB,
            "%s: database \"%s\" has %s %s \"%s\" of your own, a name that %s takes", lost,
            store->path, strcmp(type, "index") == 0 ? "an" : "a", type, name,
            taken->is_view ? "one of Neap's views" : by);
  if (strcmp(type, "table") == 0)
    neap_hint(error,
              "nothing was changed; rename it: sqlite3 %s 'ALTER TABLE \"%s\" RENAME TO \"my_%s\"'",
              store->path, name, name);
  else
    neap_hint(error,
              "nothing was changed; make it again under another name, after: sqlite3 %s "
              "'DROP %s \"%s\"'",
              store->path, type, name);
  return NEAP_DB;
}

neap_status neap_store_check_names(neap_store *store, neap_error *error) {
  /* One statement sees one moment of the file: its version and all that it has then. */
  names ours = {0}, taken = {0};
  bool row = false;
  neap_sql sql = neap_sql_new(store,
                              "SELECT type, name, user_version FROM sqlite_master, "
                              "pragma_user_version ORDER BY sqlite_master.rowid",
                              lost);
  neap_status status = neap_sql_step(&sql, &row, error);
  if (row) {
    const int version = sqlite3_column_int(sql.stmt, 2);
    const char *text;
    for (int i = 0; (text = neap_store_migration(i)) != NULL; i++)
      read_names(text, i + 1, i < version, i < version ? &ours : &taken);
    text = neap_embedded_find("db/views.sql", NULL);
    if (text != NULL) read_names(text, 0, false, &taken);
  }

  /* A view of a view's name is Neap's, of whatever version; these are made anew. */
  for (; status == NEAP_OK && row; status = neap_sql_step(&sql, &row, error)) {
    const char *type = (const char *)sqlite3_column_text(sql.stmt, 0);
    const char *name = (const char *)sqlite3_column_text(sql.stmt, 1);
    const int n = (int)strlen(name), i = find(&taken, name, n);
    if (i < 0 || find(&ours, name, n) >= 0) continue;
    if (taken.name[i].is_view && strcmp(type, "view") == 0) continue;
    status = refuse(store, type, name, &taken.name[i], error);
    break;
  }
  neap_sql_fini(&sql);
  return status;
}
