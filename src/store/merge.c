/* merge.c: the rows of another file into this one.
 *
 * What is there by its nature, machines, texts, words, nets, is found or added; plans and runs are
 * known by their UUID, a plan also by net, key and digest. Temporary tables say which number a row
 * of the other file has here. Then follow the rows of the plans and runs that are new, table by
 * table: those of Neap's tables that refer to `plan` or `run`, whichever they are.
 *
 * INVARIANT: all of it comes in one transaction. A table that no migration has made is neither read
 * nor written.
 */
#include "store/store_int.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

static const char lost[] = "nothing was merged";

/* ---- statements made of a table's columns ---------------------------------------------------- */

/* A list of names, each followed by a zero. */
static neap_status read_names(neap_store *store, const char *query, const char *table,
                              neap_buffer *out, neap_error *error) {
  bool row;
  neap_status status;
  neap_sql sql = neap_sql_new(store, query, lost);
  if (table != NULL) neap_sql_text(&sql, table);
  /* A buffer that could not grow says so once, behind the last name. */
  while ((status = neap_sql_step(&sql, &row, error)) == NEAP_OK && row) {
    const char *name = (const char *)sqlite3_column_text(sql.stmt, 0);
    neap_buffer_add_n(out, name, strlen(name) + 1);
  }
  neap_sql_fini(&sql);
  return status == NEAP_OK && out->failed ? neap_fail_memory(error, 256, "a statement") : status;
}

/* Whether texts of this column are words. */
static bool is_word(const char *table, const char *name) {
  neap_row_kind kind = NEAP_N_ROW;
  if (strcmp(table, "packed_op") == 0) kind = NEAP_ROW_OP;
  if (strcmp(table, "packed_value") == 0) kind = NEAP_ROW_VALUE;
  const neap_column *column;
  for (int i = 0; (column = neap_column_at(kind, i)) != NULL; i++)
    if (strcmp(column->name, name) == 0) return neap_column_is_word(column);
  return false;
}

/* What stands for a column of the other file's row `o`. A number below 0 is that of a word, too. */
static void add_value(neap_buffer *out, const char *table, const char *name) {
  static const char *const mapped[] = {"plan", "run", "net", "machine"};

  /* A number of another table is looked up by what it was in the other file. */
  for (int i = 0; i < NEAP_COUNT(mapped); i++) {
    size_t n = strlen(mapped[i]);
    if (strncmp(name, mapped[i], n) != 0 || strcmp(name + n, "_id") != 0) continue;
    neap_buffer_add(out, "(SELECT new FROM to_%s WHERE old = o.%s)", mapped[i], name);
    return;
  }

  /* So is a word's, whose sign says something else and is kept. */
  if (is_word(table, name))
    neap_buffer_add(out, "iif(o.%s < 0, -1, 1) * (SELECT new FROM to_word WHERE old = abs(o.%s))",
                    name, name);
  else
    neap_buffer_add(out, "o.%s", name);
}

/* INSERT of the other file's rows for which `where` holds. The table's own number, where it has
 * one, is given anew. */
static neap_status copy_rows(neap_store *store, const char *table, const char *where,
                             neap_error *error) {
  neap_buffer names = {0}, text = {0}, values = {0};
  neap_status status =
    read_names(store, "SELECT name FROM pragma_table_info(?1) WHERE name <> ?1 || '_id'", table,
               &names, error);

  /* The columns twice: as the table here has them, and what stands for each in the other's row. */
  for (size_t at = 0; status == NEAP_OK && at < names.n; at += strlen(names.text + at) + 1) {
    const char *name = names.text + at;
    neap_buffer_add(&text, "%s%s", at > 0 ? ", " : "", name);
    if (at > 0) neap_buffer_add(&values, ", ");
    add_value(&values, table, name);
  }

  /* One statement copies all rows; a buffer that failed would make half of one. */
  neap_buffer all = {0};
  if (status == NEAP_OK && !text.failed && !values.failed)
    neap_buffer_add(&all, "INSERT INTO main.%s (%s) SELECT %s FROM other.%s o WHERE %s", table,
                    text.text, values.text, table, where);
  if (status == NEAP_OK && (all.failed || all.n == 0))
    status = neap_fail_memory(error, 1024, "a statement");
  if (status == NEAP_OK) status = neap_store_exec(store, all.text, lost, error);
  neap_buffer_fini(&names);
  neap_buffer_fini(&text);
  neap_buffer_fini(&values);
  neap_buffer_fini(&all);
  return status;
}

/* Whether a migration makes a table of this name. */
static bool is_ours(const char *table) {
  static const char migrations[] = "db/migrations/";
  const char *text, *path;
  char make[96];
  snprintf(make, sizeof make, "CREATE TABLE %.64s (", table);
  /* The texts are those that the program was built with, whatever the file holds. */
  for (int i = 0; (text = neap_embedded_at(i, NULL, &path)) != NULL; i++)
    if (strncmp(path, migrations, sizeof migrations - 1) == 0 && strstr(text, make) != NULL)
      return true;
  return false;
}

/* The rows of new plans, or of new runs; what belongs to both comes with the runs. */
static neap_status copy_parts(neap_store *store, const char *whole, neap_error *error) {
  neap_buffer tables = {0};
  char where[96];
  snprintf(where, sizeof where, "o.%s_id IN (SELECT old FROM to_%s WHERE is_new)", whole, whole);

  /* Found by what they refer to, so that a table of a later migration comes along untold. */
  neap_status status =
    read_names(store,
               "SELECT name FROM other.sqlite_schema t WHERE type = 'table' AND name <> 'run' AND "
               "EXISTS (SELECT 1 FROM pragma_foreign_key_list(t.name) WHERE \"table\" = ?1) AND "
               "(?1 = 'run' OR NOT EXISTS (SELECT 1 FROM pragma_foreign_key_list(t.name) WHERE "
               "\"table\" = 'run'))",
               whole, &tables, error);

  /* Tables that a user put beside ours may refer to them too: their rows stay there. */
  for (size_t at = 0; status == NEAP_OK && at < tables.n; at += strlen(tables.text + at) + 1)
    if (is_ours(tables.text + at)) status = copy_rows(store, tables.text + at, where, error);
  neap_buffer_fini(&tables);
  return status;
}

/* ---- the way --------------------------------------------------------------------------------- */

/* Numbers of the other file, and what they are here. */
static const char find_or_add[] =
  "CREATE TEMP TABLE to_machine (old INTEGER PRIMARY KEY, new INTEGER);"
  "CREATE TEMP TABLE to_word (old INTEGER PRIMARY KEY, new INTEGER);"
  "CREATE TEMP TABLE to_net (old INTEGER PRIMARY KEY, new INTEGER);"
  "CREATE TEMP TABLE to_plan (old INTEGER PRIMARY KEY, new INTEGER, is_new INTEGER);"
  "CREATE TEMP TABLE to_run (old INTEGER PRIMARY KEY, new INTEGER, is_new INTEGER);"
  "INSERT OR IGNORE INTO main.machine (cpu, isa, n_core, ram_bytes, peak_flop_per_s, "
  "peak_byte_per_s) SELECT cpu, isa, n_core, ram_bytes, peak_flop_per_s, peak_byte_per_s FROM "
  "other.machine;"
  "INSERT INTO to_machine SELECT o.machine_id, m.machine_id FROM other.machine o JOIN main.machine "
  "m USING (cpu, isa, n_core, ram_bytes);"
  "INSERT OR IGNORE INTO main.plan_word (text) SELECT text FROM other.plan_word;"
  "INSERT INTO to_word SELECT o.word_id, m.word_id FROM other.plan_word o JOIN main.plan_word m "
  "USING (text);"
  "INSERT OR IGNORE INTO main.net_text (hash, bytes, zip) SELECT hash, bytes, zip FROM "
  "other.net_text;"
  "INSERT OR IGNORE INTO main.net (name, file, text_id, created_at) SELECT o.name, o.file, "
  "m.text_id, o.created_at FROM other.net o JOIN other.net_text t USING (text_id) JOIN "
  "main.net_text m USING (hash);"
  "INSERT INTO to_net SELECT o.net_id, m.net_id FROM other.net o JOIN other.net_text t ON "
  "t.text_id = o.text_id JOIN main.net_text mt ON mt.hash = t.hash JOIN main.net m ON m.text_id = "
  "mt.text_id AND m.name = o.name;"
  "INSERT INTO to_plan SELECT o.plan_id, m.plan_id, 0 FROM other.plan o JOIN to_net n ON n.old = "
  "o.net_id JOIN main.plan m ON m.net_id = n.new AND m.key = o.key AND m.digest = o.digest;"
  "INSERT INTO to_run SELECT o.run_id, m.run_id, 0 FROM other.run o JOIN main.run m USING (uuid);"
  "INSERT OR IGNORE INTO main.plan_cache SELECT * FROM other.plan_cache;"
  /* As when a peak is noted: the largest that was ever measured stays. */
  "INSERT INTO main.machine_peak SELECT t.new, o.what, o.n_thread, o.per_second, o.measured_at "
  "FROM "
  "other.machine_peak o JOIN to_machine t ON t.old = o.machine_id WHERE true ON CONFLICT DO UPDATE "
  "SET per_second = excluded.per_second, measured_at = excluded.measured_at WHERE "
  "excluded.per_second > machine_peak.per_second;";

/* The numbers of what was added; the order of uses is that of both files together. */
static const char number_plans[] =
  "INSERT INTO to_plan SELECT o.plan_id, m.plan_id, 1 FROM other.plan o JOIN main.plan m USING "
  "(uuid) WHERE o.plan_id NOT IN (SELECT old FROM to_plan);"
  "UPDATE main.plan SET used_no = r.n FROM (SELECT plan_id, row_number() OVER (ORDER BY used_at, "
  "used_no, plan_id) AS n FROM main.plan) r WHERE r.plan_id = plan.plan_id;";
/* Of plans that both files have the newer measurement of each kernel stays. */
static const char newer_kernels[] =
  "INSERT INTO main.kernel_time (plan_id, machine_id, step, kernel_no, engine, algorithm, taken, "
  "min_ns, scratch_bytes, measured_at) SELECT p.new, m.new, o.step, o.kernel_no, o.engine, "
  "o.algorithm, "
  "o.taken, o.min_ns, o.scratch_bytes, o.measured_at FROM other.kernel_time o JOIN to_plan p ON "
  "p.old = o.plan_id AND NOT p.is_new JOIN to_machine m ON m.old = o.machine_id WHERE true ON "
  "CONFLICT DO UPDATE SET engine = excluded.engine, algorithm = excluded.algorithm, taken = "
  "excluded.taken, min_ns = excluded.min_ns, scratch_bytes = excluded.scratch_bytes, measured_at = "
  "excluded.measured_at WHERE excluded.measured_at > kernel_time.measured_at";
static const char number_runs[] =
  "INSERT INTO to_run SELECT o.run_id, m.run_id, 1 FROM other.run o JOIN main.run m USING (uuid) "
  "WHERE o.run_id NOT IN (SELECT old FROM to_run);";
static const char forget[] =
  "DROP TABLE to_machine; DROP TABLE to_word; DROP TABLE to_net; DROP TABLE to_plan; DROP TABLE "
  "to_run;";

/* Within a transaction. */
static neap_status merge(neap_store *store, neap_merged *out, neap_error *error) {
  /* What is shared comes first, then plans, then runs, which name plans; the parts of each follow
   * once its new numbers are known. */
  NEAP_TRY(neap_store_exec(store, find_or_add, lost, error));
  NEAP_TRY(neap_store_best_peaks(store, lost, error));
  NEAP_TRY(copy_rows(store, "plan", "o.plan_id NOT IN (SELECT old FROM to_plan)", error));
  NEAP_TRY(neap_store_exec(store, number_plans, lost, error));
  NEAP_TRY(copy_parts(store, "plan", error));
  NEAP_TRY(neap_store_exec(store, newer_kernels, lost, error));
  NEAP_TRY(copy_rows(store, "run", "o.run_id NOT IN (SELECT old FROM to_run)", error));
  NEAP_TRY(neap_store_exec(store, number_runs, lost, error));
  NEAP_TRY(copy_parts(store, "run", error));

  /* What was new; behind that the tables of numbers are of no more use. */
  NEAP_TRY(neap_store_number(store, "SELECT count(*) FROM to_plan WHERE is_new", lost, &out->n_plan,
                             error));
  NEAP_TRY(
    neap_store_number(store, "SELECT count(*) FROM to_run WHERE is_new", lost, &out->n_run, error));
  return neap_store_exec(store, forget, lost, error);
}

/* The other file exists, is another one, is Neap's, and of this version's schema from here on. */
static neap_status check_other(const neap_store *store, const char *path, neap_error *error) {
  struct stat here, there;
  if (stat(path, &there) != 0)
    return neap_fail(error, NEAP_DB, "%s: there is no file \"%s\"", lost, path);
  /* By device and number: a link or another spelling of the path is the same file. */
  if (stat(store->path, &here) == 0 && here.st_dev == there.st_dev && here.st_ino == there.st_ino)
    return neap_fail(error, NEAP_DB, "%s: \"%s\" is the database itself", lost, path);
  /* Opening it brings it to this version, or says what it is. */
  neap_db *other;
  NEAP_TRY(neap_db_open(path, &other, error));
  neap_db_close(other);
  return NEAP_OK;
}

neap_status neap_db_merge(neap_db *db, const char *path, neap_merged *out, neap_error *error) {
  neap_merged done = {0};
  NEAP_TRY(neap_store_check_writable(db, lost, error));
  NEAP_TRY(check_other(db, path, error));

  /* ATTACH stands outside the transaction, and what it opened goes in any case. */
  neap_sql sql = neap_sql_new(db, "ATTACH ? AS other", lost);
  neap_sql_text(&sql, path);
  neap_status status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);
  NEAP_TRY(status);

  /* All of the other file, or nothing. */
  status = neap_store_begin(db, lost, error);
  if (status == NEAP_OK) status = neap_store_end(db, merge(db, &done, error), lost, error);
  sqlite3_exec(db->db, "DETACH other", NULL, NULL, NULL);

  if (status == NEAP_OK && out != NULL) *out = done;
  return status;
}
