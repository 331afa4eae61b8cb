/* run.c: runs, their times by op and their metrics. A run is written once, when its program
 * closes. */
#include "store/store_int.h"

#include <stdio.h>

/* Whether the history still has a plan: another process may prune it while it runs. */
static neap_status find_plan_row(neap_store *store, int64_t plan_id, const char *lost, bool *found,
                                 neap_error *error) {
  neap_sql sql = neap_sql_new(store, "SELECT 1 FROM plan WHERE plan_id = ?", lost);
  neap_sql_int(&sql, plan_id);
  neap_status status = neap_sql_step(&sql, found, error);
  neap_sql_fini(&sql);
  return status;
}

/* The run's own row, within the caller's transaction. */
static neap_status insert_run(neap_store *store, const neap_run_row *row, int64_t machine_id,
                              const char *lost, neap_error *error) {
  /* A run that says nothing else has gone well. */
  neap_row_kind kind = NEAP_ROW_RUN;
  neap_run_row kept = *row;
  if (kept.status == NULL) kept.status = "ok";
  bool has_plan;
  NEAP_TRY(find_plan_row(store, row->plan_id, lost, &has_plan, error));
  char uuid[37];
  neap_uuid_text(row->started_ms != 0 ? row->started_ms : row->started_at * 1000, uuid);
  neap_sql sql = neap_sql_insert(store, "run", 3, "plan_id, machine_id, uuid", 1, &kind, "", lost);
  /* The run outlives its plan. */
  if (has_plan)
    neap_sql_int(&sql, row->plan_id);
  else
    neap_sql_null(&sql);
  neap_sql_int(&sql, machine_id);
  neap_sql_text(&sql, uuid);
  neap_sql_bind_row(&sql, kind, &kept);
  neap_status status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);
  return status;
}

/* The machine's row is made with the first run that needs it; its id is kept once it is sure to be
 * in the file. */
neap_status neap_store_add_run(neap_store *store, const neap_run_row *row, int64_t *run_id,
                               neap_error *error) {
  static const char lost[] = "this run is not stored";
  int64_t machine_id = 0, id = 0;
  NEAP_TRY(neap_store_begin(store, lost, error));
  neap_status status = neap_store_machine(store, &machine_id, error);
  if (status == NEAP_OK) status = insert_run(store, row, machine_id, lost, error);
  /* Read before the transaction ends, kept when it has worked. */
  id = sqlite3_last_insert_rowid(store->db);
  NEAP_TRY(neap_store_end(store, status, lost, error));
  store->machine_id = machine_id;
  *run_id = id;
  return NEAP_OK;
}

/* All rows or none. */
neap_status neap_store_add_run_ops(neap_store *store, int64_t run_id, int n,
                                   const neap_run_op_row *row, neap_error *error) {
  static const char lost[] = "the times of this run's ops are not stored";
  NEAP_TRY(neap_store_begin(store, lost, error));
  neap_row_kind kind = NEAP_ROW_RUN_OP;
  neap_sql sql = neap_sql_insert(store, "run_op", 1, "run_id", 1, &kind, "", lost);
  neap_status status = NEAP_OK;
  for (int i = 0; i < n; i++) {
    neap_sql_int(&sql, run_id);
    neap_sql_bind_row(&sql, kind, &row[i]);
    status = neap_sql_run(&sql, error);
    if (status != NEAP_OK) break;
  }
  neap_sql_fini(&sql);
  return neap_store_end(store, status, lost, error);
}

/* A second value for one step replaces the first: a resumed training repeats steps. */
neap_status neap_store_add_metric(neap_store *store, int64_t run_id, const char *name,
                                  int64_t at_step, double value, neap_error *error) {
  static const char lost[] = "a metric of this run is not stored";
  NEAP_TRY(neap_store_check_writable(store, lost, error));
  /* SQLite has no NaN: it would become null, which the column refuses. */
  if (value != value)
    return neap_fail(error, NEAP_DB, "%s: \"%s\" is not a number at step %lld", lost, name,
                     (long long)at_step);
  neap_sql sql = neap_sql_new(
    store,
    "INSERT INTO run_metric VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
    lost);
  /* Run, name and step are the key. */
  neap_sql_int(&sql, run_id);
  neap_sql_text(&sql, name);
  neap_sql_int(&sql, at_step);
  neap_sql_real(&sql, value);
  neap_status status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);
  return status;
}
