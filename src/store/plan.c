/* plan.c: plans in the history, with all their rows, and in the cache, by key.
 *
 * INVARIANT: a plan stands in the history with all its rows or not at all: one transaction each.
 * A plan of the history belongs to one net row, so that its rows carry that net's names. The cache
 * knows no names: what it has may be a plan that was made for another net, and the driver then adds
 * it to the history under its own.
 */
#include "store/store_int.h"

#include "report/report.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const char lost_find[] = "stored plans can't be read";

/* Runs a statement that gives one id, as by RETURNING, and ends it; 0 when it gives no row. */
static neap_status run_for_id(neap_sql *sql, int64_t *id, neap_error *error) {
  bool row;
  neap_status status = neap_sql_step(sql, &row, error);
  *id = row ? sqlite3_column_int64(sql->stmt, 0) : 0;
  /* A statement is over, and what it writes sure, only when it has been stepped to its end. */
  if (row) status = neap_sql_run(sql, error);
  neap_sql_fini(sql);
  return status;
}

/* ---- find ------------------------------------------------------------------------------------ */

/* A compressed text of the row that a statement is at, into the handle; its length is in the column
 * before. What is no such text becomes "", which no reader takes for a plan. */
static neap_status keep_text(const neap_sql *sql, int column, char **to, neap_error *error) {
  const void *zip = sqlite3_column_blob(sql->stmt, column);
  size_t n_zip = (size_t)sqlite3_column_bytes(sql->stmt, column);
  /* SQLite's own bytes go with the statement. */
  neap_free(*to);
  *to = neap_unzip(zip, n_zip, sqlite3_column_int64(sql->stmt, column - 1));
  if (*to == NULL) *to = neap_strdup("");
  return *to != NULL ? NEAP_OK : neap_fail_memory(error, n_zip, "a stored plan");
}

/* What the cache has for the key, with its texts in the handle. */
static neap_status find_cached(neap_store *store, const neap_store_plan *row, neap_store_hit *hit,
                               neap_error *error) {
  neap_sql sql = neap_sql_kept(
    store, NEAP_KEPT_FIND_CACHED,
    "SELECT key_bytes, key_text, choice_bytes, choices, plan_bytes, plan_text, plan_ns, n_search "
    "FROM plan_cache WHERE key = ?",
    lost_find);
  neap_sql_text(&sql, row->key);

  /* The texts are compressed: the key's is for the comparison below, the two others are given
   * on. */
  char *key_text = NULL;
  bool found;
  neap_status status = neap_sql_step(&sql, &found, error);
  if (status == NEAP_OK && found) {
    status = keep_text(&sql, 1, &key_text, error);
    if (status == NEAP_OK) status = keep_text(&sql, 3, &store->choices, error);
    if (status == NEAP_OK) status = keep_text(&sql, 5, &store->plan_text, error);
  }

  /* Two texts may have one hash. */
  hit->found = status == NEAP_OK && found && strcmp(key_text, row->key_text) == 0;
  if (hit->found) {
    hit->plan_ns = sqlite3_column_int64(sql.stmt, 6);
    hit->n_search = sqlite3_column_int64(sql.stmt, 7);
    hit->choices = store->choices;
    hit->plan_text = store->plan_text;
  }
  neap_free(key_text);
  neap_sql_fini(&sql);
  return status;
}

/* The history's row of the plan that the key and digest stand for, of the net with this name and
 * text; 0: none. *is_last: it is the one that was used last, within the last minute. */
static neap_status find_history(neap_store *store, const neap_store_plan *row, const char *lost,
                                int64_t *plan_id, bool *is_last, neap_error *error) {
  neap_sql sql = neap_sql_kept(
    store, NEAP_KEPT_FIND_HISTORY,
    "SELECT p.plan_id, p.used_no = (SELECT max(used_no) FROM plan) AND p.used_at > unixepoch() - "
    "60 FROM net_text t JOIN net n USING (text_id) JOIN plan p USING (net_id) WHERE t.hash = ? AND "
    "n.name = ? AND p.key = ? AND p.digest = ?",
    lost);
  neap_sql_text(&sql, row->net_hash);
  neap_sql_text(&sql, row->net_name);
  neap_sql_text(&sql, row->key);
  neap_sql_text(&sql, row->digest);
  bool found;
  neap_status status = neap_sql_step(&sql, &found, error);
  *plan_id = status == NEAP_OK && found ? sqlite3_column_int64(sql.stmt, 0) : 0;
  *is_last = *plan_id != 0 && sqlite3_column_int64(sql.stmt, 1) == 1;
  neap_sql_fini(&sql);
  return status;
}

neap_status neap_store_find_plan(neap_store *store, const neap_store_plan *row, neap_store_hit *hit,
                                 neap_error *error) {
  *hit = (neap_store_hit){0};
  return find_cached(store, row, hit, error);
}

/* ---- add ------------------------------------------------------------------------------------- */

/* The row of a long text, made or found. */
static neap_status insert_text(neap_store *store, const char *text, const char *hash,
                               const char *lost, int64_t *text_id, neap_error *error) {
  neap_sql sql = neap_sql_new(store, "SELECT text_id FROM net_text WHERE hash = ?", lost);
  neap_sql_text(&sql, hash);
  NEAP_TRY(run_for_id(&sql, text_id, error));
  if (*text_id != 0) return NEAP_OK;
  sql = neap_sql_new(
    store, "INSERT INTO net_text (hash, bytes, zip) VALUES (?, ?, ?) RETURNING text_id", lost);
  neap_sql_text(&sql, hash);
  neap_sql_zip(&sql, text);
  return run_for_id(&sql, text_id, error);
}

/* The row of the net with this name and text, made or found; the newest script that made it is
 * kept. */
static neap_status insert_net(neap_store *store, const neap_store_plan *row, const char *lost,
                              int64_t *net_id, neap_error *error) {
  int64_t text_id;
  NEAP_TRY(insert_text(store, row->net_text, row->net_hash, lost, &text_id, error));
  neap_sql sql = neap_sql_new(
    store,
    "INSERT INTO net (name, file, text_id, created_at) VALUES (?, ?, ?, ?) ON CONFLICT (name, "
    "text_id) DO UPDATE SET file = coalesce(excluded.file, file) RETURNING net_id",
    lost);
  neap_sql_text(&sql, row->net_name);
  neap_sql_text(&sql, row->net_file);
  neap_sql_int(&sql, text_id);
  neap_sql_int(&sql, (int64_t)time(NULL));
  return run_for_id(&sql, net_id, error);
}

static const char *text_or(const char *text, const char *missing) {
  return text != NULL ? text : missing;
}

/* The plan's own row. What NULL leaves unsaid gets the value that means so: no options, the usual
 * dtype. */
static neap_status insert_plan(neap_store *store, int64_t net_id, const neap_store_plan *given,
                               const neap_plan *plan, const neap_graph *graph, const char *lost,
                               int64_t *plan_id, neap_error *error) {
  static const neap_row_kind kinds[] = {NEAP_ROW_PLAN, NEAP_ROW_FIGURES};
  char uuid[37];
  int64_t now_ms = neap_wall_ms();
  neap_uuid_text(now_ms, uuid);
  neap_figures figures = neap_report_figures(plan, graph);
  neap_plan_row row = {.key = given->key,
                       .digest = given->digest,
                       .dtype = text_or(given->dtype, "f32"),
                       .n_thread = given->n_thread,
                       .budget_bytes = given->budget_bytes,
                       .options = text_or(given->options, "{}"),
                       .planner_version = NEAP_PLANNER_VERSION,
                       .kernel_set = text_or(given->kernel_set, ""),
                       .created_at = now_ms / 1000,
                       .used_at = now_ms / 1000};

  /* The row's columns come from two descriptions: what the plan is, and its figures. */
  neap_sql sql = neap_sql_insert(store, "plan", 4, "net_id, uuid, net, used_no", NEAP_COUNT(kinds),
                                 kinds, "RETURNING plan_id", lost);
  neap_sql_int(&sql, net_id);
  neap_sql_text(&sql, uuid);
  neap_sql_text(&sql, given->net_name);
  neap_sql_int(&sql, 0); /* set by its first use, which is now */
  neap_sql_bind_row(&sql, NEAP_ROW_PLAN, &row);
  neap_sql_bind_row(&sql, NEAP_ROW_FIGURES, &figures);
  return run_for_id(&sql, plan_id, error);
}

/* The plan is the one that was used last. `hit`: out of the cache. */
static neap_status note_use(neap_store *store, int64_t plan_id, bool hit, const char *lost,
                            neap_error *error) {
  neap_sql sql = neap_sql_kept(store, NEAP_KEPT_USE_HISTORY,
                               "UPDATE plan SET used_at = unixepoch(), n_hit = n_hit + ?, "
                               "used_no = (SELECT max(used_no) + 1 FROM plan) WHERE plan_id = ?",
                               lost);
  neap_sql_int(&sql, hit);
  neap_sql_int(&sql, plan_id);
  neap_status status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);
  return status;
}

/* In place of what the cache had for this key. */
static neap_status fill_cache(neap_store *store, const neap_store_plan *row, const neap_plan *plan,
                              const char *lost, neap_error *error) {
  neap_sql sql = neap_sql_new(
    store,
    "INSERT OR REPLACE INTO plan_cache (key, digest, key_bytes, key_text, choice_bytes, choices, "
    "plan_bytes, plan_text, plan_ns, n_search, used_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
    "unixepoch())",
    lost);

  /* In the order of the statement; a compressed text takes two places, its length and its bytes. */
  neap_sql_text(&sql, row->key);
  neap_sql_text(&sql, row->digest);
  neap_sql_zip(&sql, row->key_text);
  neap_sql_zip(&sql, row->choices);
  neap_sql_zip(&sql, row->plan_text);
  neap_sql_int(&sql, plan->plan_ns);
  neap_sql_int(&sql, plan->n_search);

  neap_status status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);
  return status;
}

/* Within a transaction: net, plan, ops, values; or the id of the same plan, which is there already.
 * Then the cache. */
static neap_status add_plan(neap_store *store, const neap_store_plan *row, const neap_plan *plan,
                            const neap_graph *graph, const char *lost, int64_t *plan_id,
                            neap_error *error) {
  NEAP_ASSERT(sqlite3_get_autocommit(store->db) == 0, "a plan is added within a transaction");
  int64_t net_id;

  /* The net first: the plan refers to its row. */
  NEAP_TRY(insert_net(store, row, lost, &net_id, error));
  bool is_last;
  NEAP_TRY(find_history(store, row, lost, plan_id, &is_last, error));

  /* Another process, or an earlier run, may have stored the same plan. */
  if (*plan_id == 0) {
    NEAP_TRY(insert_plan(store, net_id, row, plan, graph, lost, plan_id, error));
    NEAP_TRY(neap_store_insert_plan_rows(store, *plan_id, plan, graph, lost, error));
  }

  NEAP_TRY(note_use(store, *plan_id, false, lost, error));
  return row->plan_text != NULL ? fill_cache(store, row, plan, lost, error) : NEAP_OK;
}

neap_status neap_store_add_plan(neap_store *store, const neap_store_plan *row,
                                const neap_plan *plan, const neap_graph *graph, int64_t *plan_id,
                                neap_error *error) {
  char lost[128];
  int64_t id = 0;
  snprintf(lost, sizeof lost, "the plan of net \"%.64s\" is not stored", row->net_name);
  /* All rows are written in one transaction: a process that dies leaves none of them. */
  NEAP_TRY(neap_store_begin(store, lost, error));
  neap_status status = add_plan(store, row, plan, graph, lost, &id, error);
  NEAP_TRY(neap_store_end(store, status, lost, error));
  /* Given only when the commit has worked. */
  *plan_id = id;
  return NEAP_OK;
}

/* ---- drop, use ------------------------------------------------------------------------------- */

neap_status neap_store_drop_plan(neap_store *store, const char *key, neap_error *error) {
  static const char lost[] = "a plan that failed its check stays in the cache";
  NEAP_TRY(neap_store_check_writable(store, lost, error));
  neap_sql sql = neap_sql_new(store, "DELETE FROM plan_cache WHERE key = ?", lost);
  neap_sql_text(&sql, key);
  neap_status status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);
  return status;
}

/* In the history and, for a key, in the cache, within the caller's transaction. */
static neap_status touch(neap_store *store, const char *key, int64_t plan_id, const char *lost,
                         neap_error *error) {
  if (key == NULL) return note_use(store, plan_id, false, lost, error);
  neap_sql sql = neap_sql_kept(store, NEAP_KEPT_USE_CACHED,
                               "UPDATE plan_cache SET used_at = unixepoch() WHERE key = ?", lost);
  neap_sql_text(&sql, key);
  neap_status status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);
  NEAP_TRY(status);
  return note_use(store, plan_id, true, lost, error);
}

neap_status neap_store_use_plan(neap_store *store, const neap_store_plan *row, bool hit,
                                int64_t *plan_id, neap_error *error) {
  static const char lost[] = "the use of a plan is not noted";
  bool is_last;
  NEAP_TRY(find_history(store, row, lost_find, plan_id, &is_last, error));
  /* Nothing to say of a plan that was the last one anyway: looking costs less than writing. */
  if (*plan_id == 0 || (is_last && !hit)) return NEAP_OK;
  NEAP_TRY(neap_store_begin(store, lost, error));
  neap_status status = touch(store, hit ? row->key : NULL, *plan_id, lost, error);
  return neap_store_end(store, status, lost, error);
}
