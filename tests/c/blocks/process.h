/* process.h: what a process has of its own: errors, texts, threads, counters of memory, faults,
 * engines, the database. */
#ifndef NEAP_TESTS_BLOCKS_PROCESS_H
#define NEAP_TESTS_BLOCKS_PROCESS_H

#include "blocks/call.h"

QUIET(version, s->number[0] = neap_version()[0])
QUIET(status_text, s->number[0] = neap_status_text(NEAP_MEMORY)[0])
QUIET(error_clear, neap_error_clear(&(neap_error){.code = NEAP_MEMORY}))

QUIET(memory_available, neap_memory_available())
QUIET(db_default_path, s->number[0] = neap_db_default_path() != NULL)
CALL(db_open) {
  neap_db *db = NULL;
  (void)s;
  neap_status status = neap_db_open(db_path, &db, error);
  neap_db_close(db);
  return status;
}
QUIET(db_retain, neap_db_close(neap_db_retain(s->db)))
QUIET(db_close, neap_db_close(s->db); s->db = NULL)
QUIET(db_path, s->number[0] = neap_db_path(s->db)[0])
QUIET(db_is_readonly, s->number[0] = neap_db_is_readonly(s->db))
QUIET(db_set_timeout, neap_db_set_timeout(s->db, 100))
static const char question[] =
  "SELECT 'net' AS name, :x AS number, x'00ff', NULL UNION SELECT 1, 2, 3, 4";
static const neap_sql_value param[] = {{.name = ":x", .type = NEAP_SQL_REAL, .real = 2.5}};
static bool count_columns(void *context, int n, const neap_sql_value *value) {
  (void)value;
  *(double *)context += n;
  return true;
}
CALL(db_query) {
  double n = 0;
  neap_status status = neap_db_query(s->db, question, 1, param, count_columns, &n, error);
  if (status == NEAP_OK) s->number[0] = n;
  return status;
}
CALL(db_rows) {
  neap_status status =
    neap_db_rows(s->db, question, 1, param, true, (neap_sql_rows **)&s->block, error);
  if (status == NEAP_OK) s->number[0] = ((neap_sql_rows *)s->block)->value[5].real;
  return status;
}
/* What can't be written is kept for later: a step, or an end without a status, never fails. */
CALL(run_open) {
  neap_run *run = NULL;
  neap_status status =
    neap_run_open(s->db, &(neap_run_about){.net = "a net", .tag = "a tag"}, &run, error);
  s->number[0] = run != NULL;
  neap_run_close(run);
  return status;
}
CALL(run_step) { return neap_run_step(s->run, 1, 1000), error->code; }
CALL(run_metric) { return neap_run_metric(s->run, "a figure", 1, 0.5, error); }
CALL(run_end) { return neap_run_end(s->run, "failed", NULL, error); }
CALL(run_close) { return neap_run_close(s->run), s->run = NULL, error->code; }
CALL(db_end_runs) { return neap_db_end_runs(s->db, NULL, NULL, error); }
QUIET(run_is_going, s->number[0] = neap_run_is_going(s->run))
QUIET(run_id, s->number[0] = (double)neap_run_id(s->run))
QUIET(run_warning, s->number[0] = neap_run_warning(s->run)[0])
CALL(db_check) { return neap_db_check(s->db, &s->text, error); }
CALL(db_backup) { return neap_db_backup(s->db, copy_path, error); }
CALL(db_prune) {
  const neap_prune_options month = {.unused_days = 30, .n_run = -1, .bytes = -1};
  neap_pruned done;
  neap_status status = neap_db_prune(s->db, &month, &done, error);
  s->number[0] = status == NEAP_OK ? (double)done.n_plan : 0;
  return status;
}
CALL(db_note_peak) { return neap_db_note_peak(s->db, "f32", 2, 1e9, error); }
CALL(db_note_kernel) {
  const neap_kernel_row row = {.step = 1, .kernel_no = 0, .engine = "ref", .min_ns = 5};
  return neap_db_note_kernel(s->db, neap_session_figures(s->session).plan_id, &row, error);
}
CALL(db_vacuum) { return neap_db_vacuum(s->db, error); }
CALL(db_merge) {
  neap_merged done;
  neap_status status = neap_db_backup(s->db, copy_path, error);
  if (status == NEAP_OK) status = neap_db_merge(s->db, copy_path, &done, error);
  s->number[0] = status == NEAP_OK ? (double)done.n_plan : 0;
  return status;
}
CALL(db_note_script) {
  neap_db_note_script(s->db, "[]", "0123", 1);
  s->number[0] = neap_db_knows_script(s->db);
  return error->code;
}
QUIET(db_knows_script, s->number[0] = neap_db_knows_script(s->db))
QUIET(draw_seed, neap_draw_seed(3))
QUIET(draw_look, s->number[0] = neap_draw_look().seed == 3)
QUIET(draw_resume, neap_draw_resume(&(neap_draw){.seed = 3, .step = 1}))
QUIET(memory_read, neap_memory_read())
QUIET(memory_reset_high, neap_memory_reset_high())
QUIET(pool_totals, neap_pool_totals(&(int64_t){0}, &(int64_t){0}))
QUIET(process_resident_bytes, neap_process_resident_bytes())
QUIET(process_resident_peak_bytes, neap_process_resident_peak_bytes())
QUIET(memory_watch, neap_memory_watch(NULL))
QUIET(memory_failed, neap_memory_failed())
/* Which would end what the sweep itself asks for. */
QUIET(memory_fail_nth, (void)neap_memory_fail_nth)
QUIET(threads, s->number[0] = neap_threads())
QUIET(threads_set, neap_threads_set(1))
QUIET(threads_complaint, neap_threads_complaint((char[160]){0}))
QUIET(clock_ns, neap_clock_ns())
QUIET(n_planned, neap_n_planned())
QUIET(n_built, neap_n_built())
QUIET(kernel_set_text, neap_kernel_set_text((char[160]){0}))
QUIET(instruction_set, s->number[0] = neap_instruction_set()[0])
QUIET(fail, neap_fail(&(neap_error){0}, NEAP_NAME, "%d", 3))
static neap_status fail_with(neap_error *error, const char *format, ...) {
  va_list args;
  va_start(args, format);
  neap_status status = neap_fail_list(error, NEAP_NAME, format, args);
  va_end(args);
  return status;
}
QUIET(fail_list, s->number[0] = fail_with(&(neap_error){0}, "%.1f", 0.5))
QUIET(fail_memory, neap_fail_memory(&(neap_error){0}, 10, "a thing"))
QUIET(hint, neap_hint(&(neap_error){0}, "try %s", "again"))
QUIET(bytes_parse, neap_bytes_parse("8 MiB", &s->number[0]))
QUIET(bytes_text, s->number[0] = neap_bytes_text(5000, (char[24]){0})[0])
QUIET(bytes_text_beside, s->number[0] = neap_bytes_text_beside(5000, 5001, (char[24]){0})[0])
QUIET(count_from, neap_count_from(0))
QUIET(first_number, s->number[0] = neap_first_number())
QUIET(text_reach, s->number[0] = neap_text_reach("abc"))
QUIET(text_distance, s->number[0] = neap_text_distance("abc", "bcd"))
CALL(intern) {
  const char *name = neap_intern("a name that nothing else has");
  s->number[0] = name != NULL;
  return name != NULL ? NEAP_OK : neap_fail_memory(error, 30, "a name");
}
CALL(intern_n) {
  const char *name = neap_intern_n("another name, cut", 12);
  s->number[0] = name != NULL;
  return name != NULL ? NEAP_OK : neap_fail_memory(error, 30, "a name");
}
QUIET(role_name, s->number[0] = neap_role_name(NEAP_ROLE_STATE)[0])
QUIET(engine_list, s->number[0] = neap_engine_list(0, &(neap_engine_row){0}))
QUIET(embedded_find, s->number[0] = neap_embedded_find("db/views.sql", NULL) != NULL)
QUIET(embedded_at, s->number[0] = neap_embedded_at(0, NULL, NULL) != NULL)

QUIET(interrupt, neap_interrupt(false))
QUIET(free, neap_free(s->block); s->block = NULL)

static const entry process_entries[] = {
  {"neap_version", 0, call_version, NULL, true},
  {"neap_status_text", 0, call_status_text, NULL, true},
  {"neap_error_clear", 0, call_error_clear, NULL, true},
  {"neap_memory_available", 0, call_memory_available, NULL, true},
  {"neap_db_default_path", 0, call_db_default_path, NULL, true},
  {"neap_db_open", DB, call_db_open, NULL, false},
  {"neap_db_retain", DB, call_db_retain, NULL, true},
  {"neap_db_close", DB, call_db_close, NULL, true},
  {"neap_db_path", DB, call_db_path, NULL, true},
  {"neap_db_is_readonly", DB, call_db_is_readonly, NULL, true},
  {"neap_db_set_timeout", DB, call_db_set_timeout, NULL, true},
  {"neap_db_query", DB, call_db_query, NULL, false},
  {"neap_db_rows", DB, call_db_rows, NULL, false},
  {"neap_run_open", DB, call_run_open, NULL, false},
  {"neap_run_step", DB, call_run_step, NULL, false},
  {"neap_run_metric", DB, call_run_metric, NULL, false},
  {"neap_run_end", DB, call_run_end, NULL, false},
  {"neap_run_close", DB, call_run_close, NULL, false},
  {"neap_run_is_going", DB, call_run_is_going, NULL, true},
  {"neap_run_id", DB, call_run_id, NULL, true},
  {"neap_run_warning", DB, call_run_warning, NULL, true},
  {"neap_db_end_runs", DB, call_db_end_runs, NULL, false},
  {"neap_db_check", DB, call_db_check, NULL, false},
  {"neap_db_backup", DB, call_db_backup, NULL, false},
  {"neap_db_prune", DB, call_db_prune, NULL, false},
  {"neap_db_note_peak", DB, call_db_note_peak, NULL, false},
  {"neap_db_note_kernel", DB | WS | NET | SESSION, call_db_note_kernel, NULL, false},
  {"neap_db_vacuum", DB, call_db_vacuum, NULL, false},
  {"neap_db_merge", DB, call_db_merge, NULL, false},
  {"neap_db_note_script", DB, call_db_note_script, NULL, false},
  {"neap_db_knows_script", DB, call_db_knows_script, NULL, true},
  {"neap_draw_seed", 0, call_draw_seed, NULL, true},
  {"neap_draw_look", 0, call_draw_look, NULL, true},
  {"neap_draw_resume", 0, call_draw_resume, NULL, true},
  {"neap_memory_read", 0, call_memory_read, NULL, true},
  {"neap_memory_reset_high", 0, call_memory_reset_high, NULL, true},
  {"neap_pool_totals", 0, call_pool_totals, NULL, true},
  {"neap_process_resident_bytes", 0, call_process_resident_bytes, NULL, true},
  {"neap_process_resident_peak_bytes", 0, call_process_resident_peak_bytes, NULL, true},
  {"neap_memory_watch", 0, call_memory_watch, NULL, true},
  {"neap_memory_failed", 0, call_memory_failed, NULL, true},
  {"neap_memory_fail_nth", 0, call_memory_fail_nth, NULL, true},
  {"neap_threads", 0, call_threads, NULL, true},
  {"neap_threads_set", 0, call_threads_set, NULL, true},
  {"neap_threads_complaint", 0, call_threads_complaint, NULL, true},
  {"neap_clock_ns", 0, call_clock_ns, NULL, true},
  {"neap_n_planned", 0, call_n_planned, NULL, true},
  {"neap_n_built", 0, call_n_built, NULL, true},
  {"neap_kernel_set_text", 0, call_kernel_set_text, NULL, true},
  {"neap_instruction_set", 0, call_instruction_set, NULL, true},
  {"neap_fail", 0, call_fail, NULL, true},
  {"neap_fail_list", 0, call_fail_list, NULL, true},
  {"neap_fail_memory", 0, call_fail_memory, NULL, true},
  {"neap_hint", 0, call_hint, NULL, true},
  {"neap_bytes_parse", 0, call_bytes_parse, NULL, true},
  {"neap_bytes_text", 0, call_bytes_text, NULL, true},
  {"neap_bytes_text_beside", 0, call_bytes_text_beside, NULL, true},
  {"neap_count_from", 0, call_count_from, NULL, true},
  {"neap_first_number", 0, call_first_number, NULL, true},
  {"neap_text_reach", 0, call_text_reach, NULL, true},
  {"neap_text_distance", 0, call_text_distance, NULL, true},
  {"neap_intern", 0, call_intern, NULL, false},
  {"neap_intern_n", 0, call_intern_n, NULL, false},
  {"neap_role_name", 0, call_role_name, NULL, true},
  {"neap_engine_list", 0, call_engine_list, NULL, true},
  {"neap_embedded_find", 0, call_embedded_find, NULL, true},
  {"neap_embedded_at", 0, call_embedded_at, NULL, true},
  {"neap_interrupt", 0, call_interrupt, NULL, true},
  {"neap_free", 0, call_free, NULL, true},
};

#endif
