/* run.c: the rows of runs, of their times by op and of their metrics; and the runs whose process is
 * gone. What is not written yet is record.c's. */
#include "store/store_int.h"

#include <stdio.h>
#include <string.h>

/* Whether the history still has a plan: another process may prune it while it runs. */
static neap_status find_plan_row(neap_store *store, int64_t plan_id, const char *lost, bool *found,
                                 neap_error *error) {
  neap_sql sql = neap_sql_new(store, "SELECT 1 FROM plan WHERE plan_id = ?", lost);
  neap_sql_int(&sql, plan_id);
  neap_status status = neap_sql_step(&sql, found, error);
  neap_sql_fini(&sql);
  return status;
}

/* A number of steps, nanoseconds, bytes or seconds, where 0 is none. */
static void bind_unless_0(neap_sql *sql, int64_t value) {
  if (value != 0)
    neap_sql_int(sql, value);
  else
    neap_sql_null(sql);
}

neap_status neap_store_insert_run(neap_store *store, const neap_run_row *row, int64_t machine_id,
                                  const char *lost, int64_t *run_id, neap_error *error) {
  neap_row_kind kind = NEAP_ROW_RUN;
  bool has_plan;
  NEAP_TRY(find_plan_row(store, row->plan_id, lost, &has_plan, error));
  char uuid[37];
  neap_uuid_text(row->started_ms != 0 ? row->started_ms : row->started_at * 1000, uuid);

  /* Ids sort by the time that is in them: that of the start, as a run may be stored at its end. */
  neap_sql sql = neap_sql_insert(store, "run", 3, "plan_id, machine_id, uuid", 1, &kind, "", lost);

  /* The run outlives its plan. */
  if (has_plan)
    neap_sql_int(&sql, row->plan_id);
  else
    neap_sql_null(&sql);
  neap_sql_int(&sql, machine_id);
  neap_sql_text(&sql, uuid);
  neap_sql_bind_row(&sql, kind, row);
  neap_status status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);
  if (status == NEAP_OK) *run_id = sqlite3_last_insert_rowid(store->db);
  return status;
}

/* What changes while a run goes on. What users write themselves, tag and star, stays theirs. */
neap_status neap_store_update_run(neap_store *store, int64_t run_id, const neap_run_row *row,
                                  const char *lost, bool *found, neap_error *error) {
  neap_sql sql = neap_sql_new(
    store,
    "UPDATE run SET n_step = ?, seen_at = ?, ended_at = ?, step_min_ns = ?, step_median_ns = ?, "
    "step_p95_ns = ?, batch = ?, planned_bytes = ?, held_bytes = ?, resident_bytes = ?, status = "
    "?, error = ?, "
    "plan_id = coalesce((SELECT plan_id FROM plan WHERE plan_id = ?), plan_id) WHERE run_id = ?",
    lost);

  /* In the order of the statement. 0 stands for what is not known yet, which the file has as
   * null. */
  neap_sql_int(&sql, row->n_step);
  neap_sql_int(&sql, row->seen_at);
  bind_unless_0(&sql, row->ended_at);
  bind_unless_0(&sql, row->step_min_ns);
  bind_unless_0(&sql, row->step_median_ns);
  bind_unless_0(&sql, row->step_p95_ns);
  neap_sql_int(&sql, row->batch);
  neap_sql_int(&sql, row->planned_bytes);
  bind_unless_0(&sql, row->held_bytes);
  bind_unless_0(&sql, row->resident_bytes);
  neap_sql_text(&sql, row->status);
  neap_sql_text(&sql, row->error);

  /* A larger program may have come with a plan, which is taken if it is still there. */
  neap_sql_int(&sql, row->plan_id);
  neap_sql_int(&sql, run_id);

  /* No row: somebody has deleted the run. */
  neap_status status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);
  *found = sqlite3_changes64(store->db) > 0;
  return status;
}

neap_status neap_store_insert_run_time(neap_store *store, int64_t run_id, const neap_run_time *row,
                                       const char *lost, neap_error *error) {
  /* A run that was put back to an earlier step comes by a step twice. */
  neap_sql sql =
    neap_sql_new(store, "INSERT OR REPLACE INTO run_time VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", lost);

  neap_sql_int(&sql, run_id);
  neap_sql_int(&sql, row->at_step);
  neap_sql_int(&sql, row->at_ms);
  neap_sql_int(&sql, row->n_step);
  neap_sql_int(&sql, row->took.min_ns);
  neap_sql_int(&sql, row->took.median_ns);
  neap_sql_int(&sql, row->took.p95_ns);
  bind_unless_0(&sql, row->held_bytes);
  bind_unless_0(&sql, row->resident_bytes);

  neap_status status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);
  return status;
}

/* A second value for one step replaces the first: a resumed training repeats steps. */
neap_sql neap_store_metric_sql(neap_store *store, const char *lost) {
  return neap_sql_new(
    store,
    "INSERT INTO run_metric VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET value = excluded.value",
    lost);
}

neap_status neap_store_insert_metric(neap_sql *sql, int64_t run_id, const char *name,
                                     int64_t at_step, double value, neap_error *error) {
  /* Run, name and step are the key. */
  neap_sql_int(sql, run_id);
  neap_sql_text(sql, name);
  neap_sql_int(sql, at_step);
  neap_sql_real(sql, value);
  return neap_sql_run(sql, error);
}

/* ---- each by itself -------------------------------------------------------------------------- */

/* Runs have programs always: one that is stored by itself has one, which says the same. */
static neap_status put_only_program(neap_store *store, int64_t run_id, const neap_run_row *row,
                                    neap_error *error) {
  const neap_program_row program = {.program_no = 1,
                                    .plan_id = row->plan_id,
                                    .net = row->net,
                                    .mode = row->mode,
                                    .batch = row->batch,
                                    .n_step = row->n_step,
                                    .step_min_ns = row->step_min_ns,
                                    .step_median_ns = row->step_median_ns,
                                    .step_p95_ns = row->step_p95_ns,
                                    .planned_bytes = row->planned_bytes,
                                    .held_bytes = row->held_bytes};
  char uuid[37];
  neap_uuid_text(neap_wall_ms(), uuid);
  return neap_store_put_program(store, run_id, uuid, &program, error);
}

/* The machine's row is made with the first run that needs it; its id is kept once it is sure to be
 * in the file. */
neap_status neap_store_add_run(neap_store *store, const neap_run_row *row, int64_t *run_id,
                               neap_error *error) {
  static const char lost[] = "this run is not stored";
  int64_t machine_id = 0, id = 0;

  /* A run that says nothing else has gone well. */
  neap_run_row kept = *row;
  if (kept.status == NULL) kept.status = "finished";

  NEAP_TRY(neap_store_begin(store, lost, error));
  neap_status status = neap_store_machine(store, &machine_id, error);
  if (status == NEAP_OK) status = neap_store_insert_run(store, &kept, machine_id, lost, &id, error);

  if (status == NEAP_OK) status = put_only_program(store, id, row, error);
  NEAP_TRY(neap_store_end(store, status, lost, error));

  /* Only what is committed is kept in the handle. */
  store->machine_id = machine_id;
  *run_id = id;
  return NEAP_OK;
}

neap_status neap_store_put_program(neap_store *store, int64_t run_id, const char *uuid,
                                   const neap_program_row *row, neap_error *error) {
  static const char lost[] = "a program of this run is not stored";

  /* Its columns are named here, not by their description: a step that finds a second gone comes by,
   * and takes no memory. */
  static const char text[] =
    "INSERT INTO program (run_id, program_no, uuid, plan_id, net, mode, batch, n_step, "
    "step_min_ns, "
    "step_median_ns, step_p95_ns, planned_bytes, held_bytes) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
    "?, ?, ?) ON CONFLICT (run_id, program_no) DO UPDATE SET n_step = excluded.n_step, step_min_ns "
    "= "
    "excluded.step_min_ns, step_median_ns = excluded.step_median_ns, step_p95_ns = "
    "excluded.step_p95_ns, held_bytes = excluded.held_bytes";

  /* As with runs: a plan that was pruned is none. */
  bool has_plan;
  NEAP_TRY(find_plan_row(store, row->plan_id, lost, &has_plan, error));
  neap_sql sql = neap_sql_new(store, text, lost);

  /* In the order of the statement. Of a program that is there, only steps, times and held bytes are
   * taken over. */
  neap_sql_int(&sql, run_id);
  neap_sql_int(&sql, row->program_no);
  neap_sql_text(&sql, uuid);
  bind_unless_0(&sql, has_plan ? row->plan_id : 0);
  neap_sql_text(&sql, row->net);
  neap_sql_text(&sql, row->mode);
  neap_sql_int(&sql, row->batch);
  neap_sql_int(&sql, row->n_step);
  bind_unless_0(&sql, row->step_min_ns);
  bind_unless_0(&sql, row->step_median_ns);
  bind_unless_0(&sql, row->step_p95_ns);
  neap_sql_int(&sql, row->planned_bytes);
  bind_unless_0(&sql, row->held_bytes);

  neap_status status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);
  return status;
}

/* One row at a time, by a text of its own: as put_program's, it takes no memory. */
neap_status neap_store_put_run_ops(neap_store *store, int64_t run_id, int64_t program_no,
                                   const neap_op_times *ops, const char *lost, neap_error *error) {
  static const char text[] =
    "INSERT INTO program_op (run_id, program_no, step, n_call, min_ns, median_ns, p95_ns, "
    "total_ns, "
    "gap_ns, start_ns, thread) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run_id, "
    "program_no, step) DO UPDATE SET n_call = excluded.n_call, min_ns = excluded.min_ns, median_ns "
    "= "
    "excluded.median_ns, p95_ns = excluded.p95_ns, total_ns = excluded.total_ns, gap_ns = "
    "excluded.gap_ns, start_ns = excluded.start_ns, thread = excluded.thread";
  neap_sql sql = neap_sql_new(store, text, lost);
  neap_status status = NEAP_OK;

  /* Steps count from 1 in the file. */
  for (int s = 0; s < ops->n && status == NEAP_OK; s++) {
    neap_run_op_row row = {0};
    ops->row(ops->of, s, &row);
    const int64_t numbers[] = {run_id,     program_no,    s + 1,      row.n_call,
                               row.min_ns, row.median_ns, row.p95_ns, row.total_ns,
                               row.gap_ns, row.start_ns,  row.thread};
    for (int k = 0; k < NEAP_COUNT(numbers); k++) neap_sql_int(&sql, numbers[k]);
    status = neap_sql_run(&sql, error);
  }
  neap_sql_fini(&sql);
  return status;
}

/* All rows or none, in place of those that there are. */
neap_status neap_store_add_run_ops(neap_store *store, int64_t run_id, int64_t program_no, int n,
                                   const neap_run_op_row *row, neap_error *error) {
  static const char lost[] = "the times of this run's ops are not stored";
  NEAP_TRY(neap_store_begin(store, lost, error));
  neap_row_kind kind = NEAP_ROW_RUN_OP;
  neap_sql sql =
    neap_sql_new(store, "DELETE FROM program_op WHERE run_id = ? AND program_no = ?", lost);

  /* The old ones go in the same transaction: whoever reads meanwhile sees either. */
  neap_sql_int(&sql, run_id);
  neap_sql_int(&sql, program_no);
  neap_status status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);

  /* One statement for all rows, whose columns are those that neap.h describes. */
  sql = neap_sql_insert(store, "program_op", 2, "run_id, program_no", 1, &kind, "", lost);
  for (int i = 0; i < n && status == NEAP_OK; i++) {
    neap_sql_int(&sql, run_id);
    neap_sql_int(&sql, program_no);
    neap_sql_bind_row(&sql, kind, &row[i]);
    status = neap_sql_run(&sql, error);
  }
  neap_sql_fini(&sql);
  return neap_store_end(store, status, lost, error);
}

neap_status neap_store_add_metric(neap_store *store, int64_t run_id, const char *name,
                                  int64_t at_step, double value, neap_error *error) {
  static const char lost[] = "a metric of this run is not stored";
  NEAP_TRY(neap_store_check_writable(store, lost, error));
  /* SQLite has no NaN: it would become null, which the column refuses. */
  if (value != value)
    return neap_fail(error, NEAP_DB, "%s: \"%s\" is not a number at step %lld", lost, name,
                     (long long)at_step);
  neap_sql sql = neap_store_metric_sql(store, lost);
  neap_status status = neap_store_insert_metric(&sql, run_id, name, at_step, value, error);
  neap_sql_fini(&sql);
  return status;
}

/* ---- runs whose process is gone -------------------------------------------------------------- */

enum { MOST_LOST = 64, A_DAY = 86400 };

/* Whether nobody goes on with the run of the row that a statement is at. Of a process that can't be
 * looked at, one that has been silent for a day is taken for gone. */
static bool is_lost(const neap_sql *sql, int64_t now) {
  neap_process process = {.id = sqlite3_column_int64(sql->stmt, 2)};
  const char *host = (const char *)sqlite3_column_text(sql->stmt, 1),
             *key = (const char *)sqlite3_column_text(sql->stmt, 3);

  /* Runs from before there were keys: whoever wrote them is long gone. */
  if (key == NULL) return true;
  snprintf(process.host, sizeof process.host, "%s", host != NULL ? host : "");
  snprintf(process.key, sizeof process.key, "%s", key);

  neap_process_state state = neap_process_look(&process);
  if (state == NEAP_PROCESS_UNKNOWN) return now - sqlite3_column_int64(sql->stmt, 4) > A_DAY;
  return state == NEAP_PROCESS_GONE;
}

/* Up to MOST_LOST of them, behind run `after`. */
static neap_status find_lost(neap_store *store, int64_t after, int64_t *run_id, int *n,
                             const char *lost, neap_error *error) {
  neap_sql sql = neap_sql_new(store,
                              "SELECT run_id, host, process_id, process_key, seen_at FROM run "
                              "WHERE status = 'running' AND run_id > ? ORDER BY run_id",
                              lost);
  neap_sql_int(&sql, after);
  const int64_t now = neap_wall_ms() / 1000;
  neap_status status;
  bool row = true;
  *n = 0;

  /* Only noted here: they are written when this statement has ended. */
  while (*n < MOST_LOST && (status = neap_sql_step(&sql, &row, error)) == NEAP_OK && row)
    if (is_lost(&sql, now)) run_id[(*n)++] = sqlite3_column_int64(sql.stmt, 0);
  if (*n == MOST_LOST) status = NEAP_OK;
  neap_sql_fini(&sql);
  return status;
}

static neap_status mark(neap_store *store, const int64_t *run_id, int n, const char *lost,
                        neap_error *error) {
  NEAP_TRY(neap_store_begin(store, lost, error));
  neap_status status = NEAP_OK;

  /* Its end is when it was seen last. */
  neap_sql sql = neap_sql_new(store,
                              "UPDATE run SET status = 'lost', ended_at = seen_at WHERE run_id = ? "
                              "AND status = 'running'",
                              lost);
  for (int i = 0; i < n && status == NEAP_OK; i++) {
    neap_sql_int(&sql, run_id[i]);
    status = neap_sql_run(&sql, error);
  }
  neap_sql_fini(&sql);
  return neap_store_end(store, status, lost, error);
}

neap_status neap_store_mark_lost(neap_store *store, neap_error *error) {
  static const char lost[] = "runs whose process is gone are not marked";
  int64_t run_id[MOST_LOST];
  int n;
  int64_t after = 0;

  /* So many at a time, by number, since those that live stay `running` and would be found again. */
  do {
    NEAP_TRY(find_lost(store, after, run_id, &n, lost, error));
    if (n > 0) NEAP_TRY(mark(store, run_id, n, lost, error));
    if (n > 0) after = run_id[n - 1];
  } while (n == MOST_LOST);
  return NEAP_OK;
}
