/* plan.c: plans found by key and added with all their rows.
 *
 * INVARIANT: a plan stands in the file with all its rows or not at all: one transaction each.
 * A plan belongs to one net row, so that its rows carry that net's names; a hit found under another
 * net is told apart by same_net, and the driver adds it again under its own.
 */
#include "store/store_int.h"

#include "report/report.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* ---- find ------------------------------------------------------------------------------------ */

/* A column copied into the handle: what find_plan gives lives until the next call. */
static neap_status keep_text(const neap_sql *sql, int column, char **to, neap_error *error) {
  const char *text = (const char *)sqlite3_column_text(sql->stmt, column);
  /* SQLite's own text goes with the statement. */
  neap_free(*to);
  *to = neap_strdup(text != NULL ? text : "");
  return *to != NULL ? NEAP_OK
                     : neap_fail_memory(error, text != NULL ? strlen(text) : 1, "a stored plan");
}

neap_status neap_store_find_plan(neap_store *store, const char *key, const char *key_text,
                                 const char *net_name, const char *net_text, int64_t *plan_id,
                                 bool *same_net, const char **choices, const char **plan_text,
                                 neap_error *error) {
  neap_sql sql = neap_sql_new(
    store,
    "SELECT p.plan_id, n.name = ?3 AND n.text = ?4 AS same_net, p.choices, p.plan_text "
    "FROM plan p JOIN net n USING (net_id) WHERE p.key = ?1 AND p.key_text = ?2 "
    "ORDER BY same_net DESC, p.plan_id DESC LIMIT 1",
    "stored plans can't be read");
  /* A key is a hash: the text it is of is compared too. A row of the same net is preferred, then
   * the newest. */
  neap_sql_text(&sql, key);
  neap_sql_text(&sql, key_text);
  neap_sql_text(&sql, net_name);
  neap_sql_text(&sql, net_text);
  /* No row and no error: nothing is stored under this key, and the id stays 0. */
  bool row;
  neap_status status = neap_sql_step(&sql, &row, error);
  *plan_id = 0;
  *same_net = false;
  *choices = *plan_text = NULL;
  if (status == NEAP_OK && row) {
    status = keep_text(&sql, 2, &store->choices, error);
    /* The id is given only with both texts. */
    if (status == NEAP_OK) status = keep_text(&sql, 3, &store->plan_text, error);
    if (status == NEAP_OK) {
      *plan_id = sqlite3_column_int64(sql.stmt, 0);
      *same_net = sqlite3_column_int(sql.stmt, 1) != 0;
      *choices = store->choices;
      *plan_text = store->plan_text;
    }
  }
  neap_sql_fini(&sql);
  return status;
}

/* ---- add ------------------------------------------------------------------------------------- */

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

/* The row of the net with this name and text, made or found; the newest script that made it is
 * kept. */
static neap_status insert_net(neap_store *store, const neap_store_plan *row, const char *lost,
                              int64_t *net_id, neap_error *error) {
  neap_sql sql = neap_sql_new(
    store,
    "INSERT INTO net (hash, name, file, text, created_at) VALUES (?, ?, ?, ?, ?) "
    "ON CONFLICT (name, text) DO UPDATE SET file = coalesce(excluded.file, file) RETURNING net_id",
    lost);
  /* The columns in the order of the statement. */
  neap_sql_text(&sql, row->net_hash != NULL ? row->net_hash : "");
  neap_sql_text(&sql, row->net_name);
  neap_sql_text(&sql, row->net_file);
  neap_sql_text(&sql, row->net_text);
  neap_sql_int(&sql, (int64_t)time(NULL));
  return run_for_id(&sql, net_id, error);
}

/* The plan that another process, or an earlier run, has stored for this net and key in the
 * meantime. One whose key text differs (two texts with one hash) makes room. */
static neap_status find_stored(neap_store *store, int64_t net_id, const neap_store_plan *row,
                               const char *lost, int64_t *plan_id, neap_error *error) {
  neap_sql sql =
    neap_sql_new(store, "DELETE FROM plan WHERE net_id = ? AND key = ? AND key_text <> ?", lost);
  neap_sql_int(&sql, net_id);
  neap_sql_text(&sql, row->key);
  neap_sql_text(&sql, row->key_text);
  /* Two statements: what is in the way goes first, then the plan is looked for. */
  neap_status status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);
  NEAP_TRY(status);
  sql = neap_sql_new(store, "SELECT plan_id FROM plan WHERE net_id = ? AND key = ?", lost);
  neap_sql_int(&sql, net_id);
  neap_sql_text(&sql, row->key);
  return run_for_id(&sql, plan_id, error);
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
  int64_t now = (int64_t)time(NULL);
  neap_figures figures = neap_report_figures(plan, graph);
  neap_plan_row row = {.key = given->key,
                       .key_text = given->key_text,
                       .dtype = text_or(given->dtype, "f32"),
                       .n_thread = given->n_thread,
                       .budget_bytes = given->budget_bytes,
                       .options = text_or(given->options, "{}"),
                       .planner_version = NEAP_PLANNER_VERSION,
                       .kernel_set = text_or(given->kernel_set, ""),
                       .choices = text_or(given->choices, ""),
                       .plan_text = text_or(given->plan_text, ""),
                       .verified_at = now,
                       .created_at = now,
                       .used_at = now};
  /* The row's columns come from two descriptions: what the plan is, and its figures. */
  neap_sql sql = neap_sql_insert(store, "plan", 1, "net_id", NEAP_COUNT(kinds), kinds,
                                 "RETURNING plan_id", lost);
  neap_sql_int(&sql, net_id);
  neap_sql_bind_row(&sql, NEAP_ROW_PLAN, &row);
  neap_sql_bind_row(&sql, NEAP_ROW_FIGURES, &figures);
  return run_for_id(&sql, plan_id, error);
}

/* Within a transaction: net, plan, ops, values; or the id of the same plan, which is there
 * already. */
static neap_status add_plan(neap_store *store, const neap_store_plan *row, const neap_plan *plan,
                            const neap_graph *graph, const char *lost, int64_t *plan_id,
                            neap_error *error) {
  /* The net first: the plan refers to its row. */
  NEAP_ASSERT(sqlite3_get_autocommit(store->db) == 0, "a plan is added within a transaction");
  int64_t net_id;
  NEAP_TRY(insert_net(store, row, lost, &net_id, error));
  NEAP_TRY(find_stored(store, net_id, row, lost, plan_id, error));
  /* Another process was faster: its plan, of the same key, is as good. */
  if (*plan_id != 0) return NEAP_OK;
  NEAP_TRY(insert_plan(store, net_id, row, plan, graph, lost, plan_id, error));
  return neap_store_insert_plan_rows(store, *plan_id, plan, graph, lost, error);
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

/* ---- drop, touch ----------------------------------------------------------------------------- */

/* One statement whose only parameter is the plan's id. DB error, too, for a file that can only be
 * read. */
static neap_status run_on_plan(neap_store *store, const char *text, const char *lost,
                               int64_t plan_id, neap_error *error) {
  NEAP_TRY(neap_store_check_writable(store, lost, error));
  neap_sql sql = neap_sql_new(store, text, lost);
  neap_sql_int(&sql, plan_id);
  neap_status status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);
  return status;
}

/* Its rows, its runs and theirs go with it. */
neap_status neap_store_drop_plan(neap_store *store, int64_t plan_id, neap_error *error) {
  return run_on_plan(store, "DELETE FROM plan WHERE plan_id = ?",
                     "a plan that failed its check stays in the file", plan_id, error);
}

/* A hit has been read back and verified. */
neap_status neap_store_touch_plan(neap_store *store, int64_t plan_id, neap_error *error) {
  return run_on_plan(store,
                     "UPDATE plan SET n_hit = n_hit + 1, used_at = unixepoch(), verified_at = "
                     "unixepoch() WHERE plan_id = ?",
                     "the use of a stored plan is not noted", plan_id, error);
}
