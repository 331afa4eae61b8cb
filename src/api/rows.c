/* rows.c: rows of nets as they would be planned, and of sessions as they run. The cursors are
 * report's own. */
#include "api/api.h"
#include "report/report.h"

/* The cursor's, until it ends. */
static void end_plan(void *plan) { neap_memory_plan_free(plan); }

static void end_dry_run(void *log) { neap_dry_run_free(log); }

static bool is_of_dry_run(neap_row_kind kind) {
  return kind == NEAP_ROW_DRY_RUN || kind == NEAP_ROW_DRY_ROW || kind == NEAP_ROW_DRY_LAYER ||
         kind == NEAP_ROW_DRY_SLOT;
}

/* The log goes with its cursor. */
static neap_status open_dry_run(const neap_net *net, const neap_options *options,
                                neap_row_kind kind, neap_rows **out, neap_error *error) {
  neap_dry_run *log;
  NEAP_TRY(neap_net_dry_run(net, options, &log, error));
  neap_status status = neap_dry_run_rows(log, kind, out, error);
  /* The cursor reads from the log, and frees it at its end. */
  if (status == NEAP_OK)
    neap_rows_own(*out, end_dry_run, log);
  else
    neap_dry_run_free(log);
  return status;
}

neap_status neap_net_rows(const neap_net *net, const neap_options *options, neap_row_kind kind,
                          neap_rows **out, neap_error *error) {
  neap_memory_plan *plan;
  *out = NULL;
  if (is_of_dry_run(kind)) return open_dry_run(net, options, kind, out, error);
  NEAP_TRY(neap_api_plan(net, options, __func__, &plan, error));
  neap_status status = neap_memory_plan_rows(plan, kind, out, error);
  /* As above: the plan is made for its rows alone. */
  if (status == NEAP_OK)
    neap_rows_own(*out, end_plan, plan);
  else
    neap_memory_plan_free(plan);
  return status;
}

static void end_block(void *block) { neap_free(block); }

neap_status neap_memory_plan_kernels(const neap_memory_plan *plan, int step, neap_rows **out,
                                     neap_error *error) {
  neap_kernel_row *row;
  int n;
  *out = NULL;
  NEAP_TRY(neap_api_time_kernels(plan, step, &row, &n, error));
  neap_status status = neap_report_list(NEAP_ROW_KERNEL, row, n, sizeof *row, out, error);
  if (status == NEAP_OK)
    neap_rows_own(*out, end_block, row);
  else
    neap_free(row);
  return status;
}

static neap_status open_pool(neap_session *session, neap_rows **out, neap_error *error) {
  bool has_pool = neap_program_plan(neap_session_program(session))->policy == NEAP_POLICY_POOL;

  /* One row, or none where addresses are planned. */
  neap_pool_figures *row = neap_alloc(sizeof *row);
  *out = NULL;
  if (row == NULL) return neap_fail_memory(error, sizeof *row, "the rows of a pool");
  *row = neap_session_pool(session);
  neap_status status =
    neap_report_list(NEAP_ROW_POOL, row, has_pool ? 1 : 0, sizeof *row, out, error);
  if (status == NEAP_OK)
    neap_rows_own(*out, end_block, row);
  else
    neap_free(row);
  return status;
}

neap_status neap_workspace_rows(const neap_workspace *workspace, neap_rows **out,
                                neap_error *error) {
  neap_blob_row *row;
  int n;
  *out = NULL;
  NEAP_TRY(neap_workspace_blobs(workspace, &row, &n, error));
  neap_status status = neap_report_list(NEAP_ROW_BLOB, row, n, sizeof *row, out, error);
  if (status == NEAP_OK)
    neap_rows_own(*out, end_block, row);
  else
    neap_free(row);
  return status;
}

neap_status neap_session_rows(neap_session *session, neap_row_kind kind, neap_rows **out,
                              neap_error *error) {
  const neap_program *program = neap_session_program(session);
  if (kind == NEAP_ROW_POOL) return open_pool(session, out, error);
  return neap_report_rows(neap_program_plan(program), neap_program_graph(program), kind, out,
                          error);
}
