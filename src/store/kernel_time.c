/* kernel_time.c: how long kernels took that could run a plan's op, on this machine. A row for each,
 * in place of what was known of it; they go with their plan. */
#include "store/store_int.h"

neap_status neap_db_note_kernel(neap_db *db, int64_t plan_id, const neap_kernel_row *row,
                                neap_error *error) {
  static const char lost[] = "the time of a kernel is not stored";
  const neap_row_kind kind = NEAP_ROW_KERNEL;
  int64_t machine_id = 0;
  NEAP_TRY(neap_store_begin(db, lost, error));
  neap_status status = neap_store_machine(db, &machine_id, error);

  /* Known by plan, step, machine and kernel: what is measured anew takes the place of the old. */
  neap_sql sql =
    neap_sql_insert(db, "kernel_time", 3, "plan_id, machine_id, measured_at", 1, &kind,
                    "ON CONFLICT DO UPDATE SET min_ns = excluded.min_ns, scratch_bytes "
                    "= excluded.scratch_bytes, taken = excluded.taken, measured_at = "
                    "excluded.measured_at",
                    lost);
  neap_sql_int(&sql, plan_id);
  neap_sql_int(&sql, machine_id);
  neap_sql_int(&sql, neap_wall_ms() / 1000);
  neap_sql_bind_row(&sql, kind, row);

  if (status == NEAP_OK) status = neap_sql_run(&sql, error);
  neap_sql_fini(&sql);
  NEAP_TRY(neap_store_end(db, status, lost, error));

  /* Only what is committed is kept in the handle. */
  db->machine_id = machine_id;
  return NEAP_OK;
}
