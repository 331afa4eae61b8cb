/* care.c: the care of the file: check, backup, prune, vacuum. */
#include "store/store_int.h"

#include <time.h>

/* Adds a query that gives, as `word_id`, the words that packed rows refer to: by the descriptions
 * of their columns, of which the texts are words. */
static void add_words_in_use(neap_buffer *out) {
  static const struct {
    neap_row_kind kind;
    const char *table;
  } packed[] = {{NEAP_ROW_OP, "packed_op"}, {NEAP_ROW_VALUE, "packed_value"}};
  neap_buffer_add(out, "SELECT NULL AS word_id WHERE false");
  for (int t = 0; t < NEAP_COUNT(packed); t++) {
    const neap_column *column;
    for (int i = 0; (column = neap_column_at(packed[t].kind, i)) != NULL; i++)
      if (neap_column_is_word(column))
        neap_buffer_add(out, " UNION SELECT abs(%s) FROM %s WHERE %s NOT NULL", column->name,
                        packed[t].table, column->name);
  }
}

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
  neap_buffer query = {0};
  neap_buffer_add(&query,
                  "SELECT 'rows of packed_op or packed_value refer to word ' || word_id || "
                  "', which is not there' FROM (");
  add_words_in_use(&query);
  neap_buffer_add(&query, ") WHERE word_id NOT IN (SELECT word_id FROM plan_word)");
  neap_status status = query.failed ? neap_fail_memory(error, 1024, "a check")
                                    : report_rows(store, query.text, report, &n, error);
  neap_buffer_fini(&query);
  NEAP_TRY(status);
  if (n == 0) {
    neap_buffer_add(report, "ok\n");
    return NEAP_OK;
  }
  neap_fail(error, NEAP_DB, "database \"%s\" is damaged: %d faults", store->path, n);
  neap_hint(error, "move the file away; a new one is made on the next run");
  return NEAP_DB;
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

neap_status neap_db_vacuum(neap_store *store, neap_error *error) {
  static const char lost[] = "the file is as large as before";
  NEAP_TRY(neap_store_check_writable(store, lost, error));
  /* The log may be as large as the file was: it goes too, unless another process reads it. */
  return neap_store_exec(store, "VACUUM; PRAGMA wal_checkpoint(TRUNCATE)", lost, error);
}

/* ---- prune ----------------------------------------------------------------------------------- */

static const char lost_prune[] = "nothing was pruned";

/* One statement whose only parameter is a number, within the caller's transaction; *n rows went. */
static neap_status delete_by(neap_store *store, const char *text, int64_t number, int64_t *n,
                             neap_error *error) {
  neap_sql sql = neap_sql_new(store, text, lost_prune);
  neap_sql_int(&sql, number);
  neap_status status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);
  /* Before another statement runs, which would count its own. */
  *n = sqlite3_changes64(store->db);
  return status;
}

/* What no row refers to any more. */
static neap_status sweep(neap_store *store, neap_error *error) {
  neap_buffer text = {0};
  neap_buffer_add(&text,
                  "DELETE FROM net WHERE net_id NOT IN (SELECT net_id FROM plan);"
                  "DELETE FROM net_text WHERE text_id NOT IN (SELECT text_id FROM net);"
                  "DELETE FROM plan_word WHERE word_id NOT IN (");
  add_words_in_use(&text);
  neap_buffer_add(&text, ")");
  neap_status status = text.failed ? neap_fail_memory(error, 1024, "a statement")
                                   : neap_store_exec(store, text.text, lost_prune, error);
  neap_buffer_fini(&text);
  return status;
}

/* Of a run: what it has may go. */
#define FREE "NOT starred AND status <> 'running'"

/* By age: the cache, times by op of plans that go (their ops would have no names), plans. Runs and
 * their figures stay. */
static neap_status prune_days(neap_store *store, int64_t days, int64_t *n_plan, neap_error *error) {
  int64_t n;

  /* Further back than any plan, and no product that wraps. */
  int64_t since = (int64_t)time(NULL) - NEAP_MIN(days, 1000000) * 86400;
  NEAP_TRY(delete_by(store, "DELETE FROM plan_cache WHERE used_at < ?", since, &n, error));

  /* Which plans go is asked once, for both statements below: the times by op must be those of the
   * same plans. */
  NEAP_TRY(neap_store_exec(store, "CREATE TEMP TABLE old_plan (plan_id INTEGER PRIMARY KEY) STRICT",
                           lost_prune, error));
  NEAP_TRY(delete_by(
    store,
    "INSERT INTO temp.old_plan SELECT plan_id FROM plan WHERE used_at < ?1 AND NOT EXISTS (SELECT "
    "1 FROM program g JOIN run USING (run_id) WHERE g.plan_id = plan.plan_id AND (started_at >= ?1 "
    "OR NOT (" FREE ")))",
    since, n_plan, error));

  /* Their times by op first, by way of the programs that name the plans: those rows stay, and lose
   * the name as the plan goes. */
  return neap_store_exec(store,
                         "DELETE FROM program_op WHERE (run_id, program_no) IN (SELECT run_id, "
                         "program_no FROM program JOIN temp.old_plan USING (plan_id));"
                         "DELETE FROM plan WHERE plan_id IN (SELECT plan_id FROM temp.old_plan);"
                         "DROP TABLE temp.old_plan",
                         lost_prune, error);
}

/* What may go, in the order of what is missed least: times by op, the cache, plans, runs. The
 * oldest first; nothing that is starred, or that is going on. */
typedef enum stage { TIMES, CACHE, PLANS, RUNS, N_STAGE } stage;
static const struct {
  const char *count, *remove;
} stages[N_STAGE] = {
  [TIMES] = {"SELECT count(DISTINCT run_id) FROM program_op JOIN run USING (run_id) WHERE " FREE,
             "DELETE FROM program_op WHERE run_id IN (SELECT run_id FROM run WHERE " FREE
             " AND run_id IN (SELECT run_id FROM program_op) ORDER BY uuid LIMIT ?)"},
  [CACHE] = {"SELECT count(*) FROM plan_cache",
             "DELETE FROM plan_cache WHERE key IN (SELECT key FROM plan_cache ORDER BY used_at "
             "LIMIT ?)"},
#define UNUSED                                                                                   \
  "plan_id NOT IN (SELECT g.plan_id FROM program g JOIN run USING (run_id) WHERE g.plan_id NOT " \
  "NULL AND NOT (" FREE "))"
  [PLANS] = {"SELECT count(*) FROM plan WHERE " UNUSED,
             "DELETE FROM plan WHERE plan_id IN (SELECT plan_id FROM plan WHERE " UNUSED
             " ORDER BY used_no LIMIT ?)"},
  [RUNS] = {"SELECT count(*) FROM run WHERE " FREE,
            "DELETE FROM run WHERE run_id IN (SELECT run_id FROM run WHERE " FREE
            " ORDER BY uuid LIMIT ?)"},
};

/* Bytes that the file would have without its free pages. */
static neap_status used_bytes(neap_store *store, int64_t *bytes, neap_error *error) {
  return neap_store_number(
    store,
    "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, "
    "pragma_freelist_count, pragma_page_size",
    lost_prune, bytes, error);
}

/* An eighth of what is there at a time, until the file is small enough. */
static neap_status prune_stage(neap_store *store, stage at, int64_t most_bytes, int64_t *n_gone,
                               neap_error *error) {
  int64_t bytes, n_left, n;
  for (;;) {
    NEAP_TRY(used_bytes(store, &bytes, error));
    NEAP_TRY(neap_store_number(store, stages[at].count, lost_prune, &n_left, error));
    if (bytes <= most_bytes || n_left == 0) return NEAP_OK;
    NEAP_TRY(delete_by(store, stages[at].remove, (n_left + 7) / 8, &n, error));
    *n_gone += n;
    /* What the plans alone referred to counts as theirs: without it the size would hardly fall. */
    if (at == PLANS) NEAP_TRY(sweep(store, error));
  }
}

static neap_status prune(neap_store *store, const neap_prune_options *options, neap_pruned *out,
                         neap_error *error) {
  int64_t n_gone[N_STAGE] = {0};

  /* The three limits one after another, each on what the ones before have left. */
  if (options->unused_days >= 0)
    NEAP_TRY(prune_days(store, options->unused_days, &n_gone[PLANS], error));

  /* UUIDs sort by time: the newest n are passed over. */
  if (options->n_run >= 0)
    NEAP_TRY(delete_by(store,
                       "DELETE FROM run WHERE run_id IN (SELECT run_id FROM run WHERE " FREE
                       " ORDER BY uuid DESC LIMIT -1 OFFSET ?)",
                       options->n_run, &n_gone[RUNS], error));

  /* The size last, as it may have nothing left to ask for. */
  if (options->bytes >= 0)
    for (int at = 0; at < N_STAGE; at++)
      NEAP_TRY(prune_stage(store, (stage)at, options->bytes, &n_gone[at], error));

  /* Nets, their texts and words go with the last plan that names them. */
  out->n_plan = n_gone[PLANS];
  out->n_run = n_gone[RUNS];
  return out->n_plan > 0 ? sweep(store, error) : NEAP_OK;
}

neap_status neap_db_prune(neap_store *store, const neap_prune_options *options, neap_pruned *out,
                          neap_error *error) {
  neap_pruned done = {0};
  NEAP_TRY(neap_store_begin(store, lost_prune, error));
  neap_status status = prune(store, options, &done, error);
  NEAP_TRY(neap_store_end(store, status, lost_prune, error));
  /* What the file has of free pages counts too where its size is limited. */
  if (options->bytes >= 0) NEAP_TRY(neap_db_vacuum(store, error));
  NEAP_TRY(used_bytes(store, &done.bytes, error));
  if (out != NULL) *out = done;
  return NEAP_OK;
}
