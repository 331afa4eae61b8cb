/* test_store.c: what must hold of plans and runs in the database: they come back as they went in,
 * and questions get answers in names. */
#include "store_kit.h"

/* ---- plans and runs -------------------------------------------------------------------------- */

static neap_store_hit find_plan(neap_store *store, const char *key, const char *key_text,
                                const char *net_name, const char *net_text) {
  neap_store_plan row = row_for(net_name, key);
  row.key_text = key_text;
  row.net_text = net_text;
  row.net_hash = net_text;
  neap_store_hit hit = {.found = true};
  CHECK_OK(neap_store_find_plan(store, &row, &hit, &error));
  return hit;
}

/* The history's row of it under this net's name and text, used once more; 0: none. */
static int64_t use_plan(neap_store *store, const char *key, const char *net_name,
                        const char *net_text, bool hit) {
  neap_store_plan row = row_for(net_name, key);
  int64_t id = -1;
  row.net_text = row.net_hash = net_text;
  CHECK_OK(neap_store_use_plan(store, &row, hit, &id, &error));
  return id;
}

TEST(a_plan_is_found_by_key_and_text) {
  neap_store *store = opened(temp_path("find.db"));
  int64_t id = add_plan(store, "tiny", "k1");
  neap_store_hit hit = find_plan(store, "k1", "canonical", "tiny", "net tiny");
  CHECK(hit.found && use_plan(store, "k1", "tiny", "net tiny", false) == id);
  CHECK(strcmp(hit.choices, "ref ref ref") == 0 && strcmp(hit.plan_text, "the plan") == 0);

  /* Found for any net; in the history under each name that it was stored for. */
  hit = find_plan(store, "k1", "canonical", "other", "net other");
  CHECK(hit.found && use_plan(store, "k1", "other", "net other", false) == 0);
  CHECK_EQ(use_plan(store, "k1", "tiny", "net tiny, with other names", true), 0);
  hit = find_plan(store, "k1", "another text", "tiny", "net tiny");
  CHECK(!hit.found && hit.choices == NULL && hit.plan_text == NULL);
  hit = find_plan(store, "k2", "canonical", "tiny", "net tiny");
  CHECK(!hit.found);
  CHECK_EQ(add_plan(store, "tiny", "k1"), id); /* stored once */
  int64_t second = add_plan(store, "other", "k1");
  CHECK(second != id);
  hit = find_plan(store, "k1", "canonical", "tiny", "net tiny");
  CHECK(hit.found);
  CHECK_EQ(use_plan(store, "k1", "tiny", "net tiny", true), id);
  CHECK_EQ(ask(store, "SELECT n_hit FROM plan ORDER BY plan_id"), 1);

  /* What was planned again is used, and no hit. */
  CHECK_EQ(use_plan(store, "k1", "tiny", "net tiny", false), id);
  CHECK_EQ(ask(store, "SELECT n_hit FROM plan ORDER BY plan_id"), 1);
  neap_db_close(store);
}

static int64_t add_run(neap_store *store, int64_t plan_id, int64_t started_at) {
  neap_run_row row = {.plan_id = plan_id,
                      .net = "tiny",
                      .mode = "infer",
                      .batch = 16,
                      .started_at = started_at,
                      .n_thread = 1};
  neap_run_op_row op = {.step = 0, .n_call = 1, .min_ns = 5, .median_ns = 5};
  int64_t run_id = 0;
  CHECK_OK(neap_store_add_run(store, &row, &run_id, &error));
  CHECK_OK(neap_store_add_run_ops(store, run_id, 1, 1, &op, &error));
  CHECK_OK(neap_store_add_metric(store, run_id, "loss", 1, 0.5, &error));
  return run_id;
}

/* The cache may go at any time: what was planned and measured is another thing. */
TEST(statements_of_each_plan_are_compiled_once) {
  neap_store *store = opened(temp_path("kept.db"));
  int64_t id = add_plan(store, "tiny", "k1");
  for (int i = 0; i < 3; i++) {
    CHECK(find_plan(store, "k1", "canonical", "tiny", "net tiny").found);
    CHECK(use_plan(store, "k1", "tiny", "net tiny", true) == id);
    /* what the last one was asked of says nothing to the next */
    CHECK(use_plan(store, "k2", "tiny", "net tiny", false) == 0);
  }
  CHECK(!find_plan(store, "k2", "canonical", "tiny", "net tiny").found);

  /* idle, and used by all three rounds; and no other statement is left */
  int n = 0;
  for (sqlite3_stmt *s = sqlite3_next_stmt(store->db, NULL); s; s = sqlite3_next_stmt(store->db, s))
    n++;
  CHECK_EQ(n, NEAP_KEPT_COUNT);
  for (int i = 0; i < NEAP_KEPT_COUNT; i++) {
    CHECK(!sqlite3_stmt_busy(store->kept[i]));
    CHECK(sqlite3_stmt_status(store->kept[i], SQLITE_STMTSTATUS_RUN, 0) >= 3);
  }
  neap_db_close(store);
}

TEST(history_outlives_the_cache) {
  neap_store *store = opened(temp_path("history.db"));
  int64_t id = add_plan(store, "tiny", "k1"), run = add_run(store, id, 1000);
  CHECK_OK(neap_store_drop_plan(store, "k1", &error));
  CHECK(!find_plan(store, "k1", "canonical", "tiny", "net tiny").found);
  CHECK_EQ(ask(store, "SELECT count(*) FROM plan_cache"), 0);
  CHECK_EQ(ask(store, "SELECT count(*) FROM plan_value"), 4);
  CHECK_EQ(ask(store, "SELECT run_id FROM v_op_time WHERE name = 'block1/relu_1'"), run);

  /* Made again, the plan is the one that is known. */
  CHECK_EQ(add_plan(store, "tiny", "k1"), id);
  CHECK(find_plan(store, "k1", "canonical", "tiny", "net tiny").found);
  CHECK_EQ(use_plan(store, "k1", "tiny", "net tiny", true), id);
  CHECK_EQ(ask(store, "SELECT count(*) FROM plan_value"), 4);
  neap_db_close(store);
}

/* What the cache has need not be what was put there. */
TEST(texts_that_were_not_compressed_are_no_plans) {
  static const char *const damage[] = {"UPDATE plan_cache SET choices = x'00'",
                                       "UPDATE plan_cache SET plan_text = x''",
                                       "UPDATE plan_cache SET plan_bytes = -1",
                                       "UPDATE plan_cache SET plan_bytes = 9223372036854775807",
                                       "UPDATE plan_cache SET choice_bytes = 1000000"};
  for (int k = 0; k < NEAP_COUNT(damage); k++) {
    neap_store *store = opened(temp_path("zip.db"));
    add_plan(store, "tiny", "k1");
    CHECK_EQ(sqlite3_exec(store->db, damage[k], NULL, NULL, NULL), SQLITE_OK);
    neap_store_hit hit = find_plan(store, "k1", "canonical", "tiny", "net tiny");
    CHECK(hit.found && (hit.choices[0] == '\0' || hit.plan_text[0] == '\0'));
    CHECK_EQ(sqlite3_exec(store->db, "UPDATE plan_cache SET key_bytes = 3", NULL, NULL, NULL),
             SQLITE_OK);
    CHECK(!find_plan(store, "k1", "canonical", "tiny", "net tiny").found);
    neap_db_close(store);
  }
}

/* The newest plan is the one that was used last, though all happens within one second. */
TEST(newest_is_what_was_used_last) {
  neap_store *store = opened(temp_path("newest.db"));
  int64_t first = add_plan(store, "tiny", "k1"), second = add_plan(store, "tiny", "k2");
  CHECK_EQ(ask(store, "SELECT plan_id FROM v_plan WHERE newest"), second);
  CHECK_EQ(use_plan(store, "k1", "tiny", "net tiny", false), first);
  CHECK_EQ(ask(store, "SELECT plan_id FROM v_plan WHERE newest"), first);
  add_plan(store, "tiny", "k2"); /* made again */
  CHECK_EQ(ask(store, "SELECT plan_id FROM v_plan WHERE newest"), second);
  CHECK_EQ(ask(store, "SELECT count(*) FROM v_plan WHERE newest"), 1);
  neap_db_close(store);
}

/* Version 7, of its time, and no two alike. */
TEST(ids_are_uuids_that_sort_by_time) {
  char a[37], b[37];
  neap_uuid_text(0x0123456789ab, a);
  neap_uuid_text(0x0123456789ab, b);
  CHECK(strncmp(a, "01234567-89ab-7", 15) == 0 && strlen(a) == 36);
  CHECK(strchr("89ab", a[19]) != NULL && a[18] == '-' && a[23] == '-');
  CHECK(strcmp(a, b) != 0);
  neap_uuid_text(0x0123456789ac, b);
  CHECK(strcmp(a, b) < 0);
  neap_store *store = opened(temp_path("ids.db"));
  int64_t id = add_plan(store, "tiny", "k1");
  add_run(store, id, 1000), add_run(store, id, 1000);
  CHECK_EQ(ask(store,
               "SELECT count(DISTINCT uuid) FROM (SELECT uuid FROM run UNION ALL SELECT uuid "
               "FROM plan) WHERE length(uuid) = 36"),
           3);
  neap_db_close(store);
}

TEST(rows_carry_names_layers_lines_and_count_from_one) {
  neap_store *store = opened(temp_path("rows.db"));
  add_plan(store, "tiny", "k1");
  CHECK_EQ(ask(store, "SELECT group_concat(step) = '1,2,3' FROM plan_op"), 1);

  /* relu_1 says nothing that its scope does not; act was named by the user; at the top a name is
   * all there is. */
  CHECK(strcmp(ask_text(store, "SELECT group_concat(layer, ' ') FROM plan_op"),
               "block1 block1/act relu_1") == 0);
  CHECK(strcmp(ask_text(store, "SELECT line FROM plan_op WHERE step = 1"), "net.lua:3") == 0);
  CHECK(strcmp(ask_text(store, "SELECT line FROM plan_op WHERE step = 2"), "(null)") == 0);
  CHECK(strcmp(ask_text(store, "SELECT kernel || ' ' || phase FROM plan_op WHERE step = 2"),
               "ref forward") == 0);
  CHECK_EQ(ask(store, "SELECT live_bytes FROM plan_op WHERE step = 2"), 192);
  CHECK_EQ(ask(store, "SELECT total_bytes FROM plan"), 256);
  CHECK_EQ(ask(store, "SELECT peak_step FROM plan"), 2);
  CHECK(strcmp(ask_text(store, "SELECT blob FROM plan_value WHERE value_no = 3"), "b") == 0);
  CHECK_EQ(ask(store, "SELECT storage_no FROM plan_value WHERE blob = 'b'"), 2);
  CHECK(strcmp(ask_text(store, "SELECT reason FROM plan_value WHERE blob = 'b'"), "in_place") == 0);
  CHECK(strstr(ask_text(store, "SELECT detail FROM plan_value WHERE blob = 'b'"), ": a") != NULL);
  CHECK(strcmp(ask_text(store,
                        "SELECT layer || ' ' || region || ' ' || role || ' ' || shape FROM "
                        "plan_value WHERE blob = 'x'"),
               "block1 io input (16)") == 0);
  CHECK_EQ(ask(store, "SELECT first_step * 10 + last_step FROM plan_value WHERE blob = 'b'"), 23);
  neap_db_close(store);
}

TEST(views_answer_their_questions) {
  neap_store *store = opened(temp_path("views.db"));
  add_plan(store, "tiny", "k0");
  add_plan(store, "tiny", "k1");
  CHECK_EQ(ask(store, "SELECT count(*) FROM v_plan WHERE newest"), 1);
  CHECK_EQ(ask(store, "SELECT gap_bytes = 0 AND saved = 0.25 FROM v_plan WHERE newest"), 1);
  CHECK_EQ(ask(store, "SELECT count(*) FROM v_peak WHERE net = 'tiny' AND newest"), 1);
  CHECK(strcmp(ask_text(store, "SELECT op || ' ' || bytes FROM v_peak WHERE newest"),
               "block1/act 64") == 0);
  CHECK(strcmp(ask_text(store, "SELECT same_storage FROM v_blob_life WHERE newest AND blob = 'a'"),
               "b") == 0);
  CHECK(strcmp(ask_text(store, "SELECT why FROM v_reuse WHERE newest AND a = 'a'"),
               "in_place: overwrites an input that is read for the "
               "last time here: a") == 0);
  CHECK_EQ(ask(store, "SELECT sum(bytes) FROM v_layer WHERE newest"), 192);
  CHECK_EQ(ask(store, "SELECT count(*) FROM v_reuse WHERE why = 'OVERLAP'"), 0);
  neap_db_close(store);
}

TEST(canned_queries_run) {
  neap_store *store = opened(temp_path("queries.db"));
  add_plan(store, "tiny", "k1");
  int n_query = 0;
  const char *text, *path;
  for (int i = 0; (text = neap_embedded_at(i, NULL, &path)) != NULL; i++) {
    if (strncmp(path, "db/queries/", 11) != 0) continue;
    int n_row = 0;
    CHECK_OK(neap_db_query(store, text, 0, NULL, count_row, &n_row, &error));
    CHECK(strncmp(text, "-- ", 3) == 0); /* says what it answers */
    n_query++;
  }
  CHECK(n_query >= 6);
  const neap_sql_value asked[] = {
    {.name = ":blob", .type = NEAP_SQL_TEXT, .text = "b", .n_text = 1},
    {.name = ":plan", .type = NEAP_SQL_INTEGER, .integer = 1}};
  char answer[512] = "";
  CHECK_OK(neap_db_query(store, neap_embedded_find("db/queries/who_shares.sql", NULL), 2, asked,
                         take_text, answer, &error));
  CHECK(strcmp(answer, "tiny") == 0);
  neap_db_close(store);
}

TEST(runs_ops_and_metrics_are_stored) {
  neap_store *store = opened(temp_path("runs.db"));
  int64_t plan_id = add_plan(store, "tiny", "k1"), run_id = 0, second = 0;
  neap_run_row run = {.plan_id = plan_id,
                      .net = "tiny",
                      .mode = "infer",
                      .batch = 16,
                      .script = "lenet.lua",
                      .tag = "t",
                      .status = "ok",
                      .seed = -1,
                      .n_thread = 2,
                      .n_step = 10,
                      .started_at = 1000,
                      .step_min_ns = 5,
                      .step_median_ns = 6,
                      .planned_bytes = 256,
                      .held_bytes = 256};
  CHECK_OK(neap_store_add_run(store, &run, &run_id, &error));
  run.started_at++; /* the newest is the one that was begun last */
  run.status = "failed";
  run.error = "{\"code\":\"numeric\"}";
  CHECK_OK(neap_store_add_run(store, &run, &second, &error));
  CHECK(run_id != second);
  CHECK_EQ(ask(store, "SELECT count(*) FROM machine"), 1);
  CHECK_EQ(ask(store, "SELECT n_core > 0 AND ram_bytes > 1000000 AND cpu <> '' FROM machine"), 1);
  CHECK_EQ(ask(store, "SELECT seed FROM run"), -1);
  CHECK_EQ(ask(store, "SELECT resident_bytes IS NULL AND held_bytes = 256 FROM run"), 1);
  neap_run_op_row op[3] = {{.step = 0, .n_call = 10, .min_ns = 2, .median_ns = 3},
                           {.step = 1, .n_call = 10, .min_ns = 1, .median_ns = 1},
                           {.step = 2, .n_call = 10, .min_ns = 4, .median_ns = 4}};
  CHECK_OK(neap_store_add_run_ops(store, second, 1, 3, op, &error));
  CHECK(strcmp(ask_text(store,
                        "SELECT name || ' ' || percent || ' ' || gflop_per_s FROM v_op_time WHERE "
                        "newest ORDER BY step"),
               "block1/relu_1 37.5 5.3") == 0);
  CHECK_OK(neap_store_add_run_ops(store, second, 1, 3, op, &error)); /* in place of the first */
  CHECK_EQ(ask(store, "SELECT count(*) FROM run_op"), 3);

  /* Of another program beside it; the view has the first one's alone. */
  CHECK_OK(neap_store_add_run_ops(store, second, 2, 2, op, &error));
  CHECK_EQ(ask(store, "SELECT count(*) FROM program_op"), 5);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run_op"), 3);
  CHECK_FAILS(neap_store_add_run_ops(store, 999, 1, 3, op, &error), NEAP_DB,
              "the times of this run's ops are not stored");
  CHECK_OK(neap_store_add_metric(store, run_id, "loss", 1, 0.5, &error));
  CHECK_OK(neap_store_add_metric(store, run_id, "loss", 1, 0.25, &error));
  CHECK_EQ(ask(store, "SELECT value = 0.25 AND count(*) = 1 FROM run_metric"), 1);
  CHECK_FAILS(neap_store_add_metric(store, run_id, "loss", 2, (double)NAN, &error), NEAP_DB,
              "not a number at step 2");
  run.plan_id = 777; /* pruned meanwhile */
  CHECK_OK(neap_store_add_run(store, &run, &second, &error));
  CHECK_EQ(ask(store, "SELECT run_id FROM run WHERE plan_id IS NULL"), second);
  run.plan_id = plan_id;
  run.error = "no json";
  CHECK_FAILS(neap_store_add_run(store, &run, &second, &error), NEAP_DB, "this run is not stored");
  CHECK_EQ(ask(store, "SELECT count(*) FROM run"), 3);
  neap_db_close(store);
}

/* ---- questions and care ---------------------------------------------------------------------- */

static bool check_types(void *context, int n, const neap_sql_value *v) {
  CHECK_EQ(n, 5);
  CHECK(v[0].type == NEAP_SQL_INTEGER && v[0].integer == 7 && strcmp(v[0].text, "7") == 0 &&
        strcmp(v[0].name, "a") == 0);
  CHECK(v[1].type == NEAP_SQL_REAL && v[1].real == 1.5);
  CHECK(v[2].type == NEAP_SQL_TEXT && v[2].n_text == 3 && strcmp(v[2].text, "abc") == 0);
  CHECK(v[3].type == NEAP_SQL_NULL && v[3].text == NULL);
  CHECK(v[4].type == NEAP_SQL_BLOB && v[4].n_text == 2 && memcmp(v[4].text, "\x00\x01", 2) == 0);
  ++*(int *)context;
  return true;
}

TEST(queries_give_typed_values_and_take_parameters) {
  neap_store *store = opened(temp_path("typed.db"));
  int n = 0;
  CHECK_OK(neap_db_query(store, "SELECT 7 AS a, 1.5, 'abc', NULL, x'0001'; -- nothing more", 0,
                         NULL, check_types, &n, &error));
  CHECK_EQ(n, 1);
  neap_sql_value param[] = {
    {.type = NEAP_SQL_INTEGER, .integer = 20}, {.type = NEAP_SQL_REAL, .real = 22}, {.name = ":z"}};
  int64_t answer = 0;
  CHECK_OK(
    neap_db_query(store, "SELECT CAST(? + ? AS INTEGER)", 2, param, take_first, &answer, &error));
  CHECK_EQ(answer, 42);
  CHECK_FAILS(neap_db_query(store, "SELECT :y", 1, &param[2], take_first, &answer, &error), NEAP_DB,
              "no parameter \":z\"");
  CHECK_FAILS(neap_db_query(store, "SELECT ?", 2, param, take_first, &answer, &error), NEAP_DB,
              "it has 1 parameters, got 2");
  CHECK_FAILS(neap_db_query(store, "SELECT * FROM nowhere", 0, NULL, take_first, &answer, &error),
              NEAP_DB, "no such table: nowhere");
  CHECK_FAILS(neap_db_query(store, "SELECT 1; SELECT 2", 0, NULL, take_first, &answer, &error),
              NEAP_DB, "one statement at a time");
  CHECK_FAILS(neap_db_query(store, "DELETE FROM plan", 0, NULL, take_first, &answer, &error),
              NEAP_DB, "only statements that read");
  CHECK_FAILS(neap_db_query(store, "  -- nothing", 0, NULL, take_first, &answer, &error), NEAP_DB,
              "no statement");
  neap_db_close(store);
}

TEST(check_backup_and_prune_care_for_the_file) {
  neap_store *store = opened(temp_path("care.db"));
  int64_t old = add_plan(store, "old", "k1"), run = add_plan(store, "run", "k2"),
          live = add_plan(store, "live", "k4");
  const neap_prune_options month = {.unused_days = 30, .n_run = -1, .bytes = -1};
  neap_pruned pruned;
  add_plan(store, "new", "k3");
  char *report;
  CHECK_OK(neap_db_check(store, &report, &error));
  CHECK(strcmp(report, "ok\n") == 0);
  neap_free(report);
  CHECK_EQ(
    sqlite3_exec(store->db, "UPDATE plan SET used_at = 1000 WHERE key <> 'k3'", NULL, NULL, NULL),
    SQLITE_OK);
  int64_t old_run = add_run(store, old, 1000);
  add_run(store, run, 4000000000);

  /* Begun long ago, and going on: it keeps its plan. */
  int64_t live_run = add_run(store, live, 1000);
  neap_sql sql = neap_sql_new(store, "UPDATE run SET status = 'running' WHERE run_id = ?", "test");
  neap_sql_int(&sql, live_run);
  CHECK_OK(neap_sql_run(&sql, &error));
  neap_sql_fini(&sql);
  const char *copy = temp_path("copy.db");
  CHECK_OK(neap_db_backup(store, copy, &error));
  CHECK_OK(neap_db_prune(store, &month, &pruned, &error));
  CHECK_EQ(pruned.n_plan, 1);
  CHECK_EQ(ask(store, "SELECT count(*) FROM net WHERE name = 'old'"), 0);
  CHECK_EQ(ask(store, "SELECT count(*) FROM plan"), 3);
  CHECK_EQ(ask(store, "SELECT count(*) FROM plan_value"), 12);

  /* The run whose plan went is there, without what it had by op. */
  CHECK_EQ(ask(store, "SELECT run_id FROM v_run WHERE plan_id IS NULL AND batch = 16"), old_run);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run_metric"), 3);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run_op"), 2);
  CHECK_FAILS(neap_db_backup(store, "/proc/nowhere.db", &error), NEAP_DB, "no backup was made");
  neap_store *second = opened(copy);
  CHECK_EQ(ask(second, "SELECT min(plan_id) FROM plan"), old);
  CHECK_EQ(ask(second, "SELECT count(*) FROM plan"), 4);
  neap_db_close(second);

  /* A row without its parent is damage that only the check sees. */
  CHECK_EQ(sqlite3_exec(store->db, "PRAGMA foreign_keys = OFF; DELETE FROM net", NULL, NULL, NULL),
           SQLITE_OK);
  CHECK_FAILS(neap_db_check(store, &report, &error), NEAP_DB, "3 faults");
  CHECK(strstr(report, "a row of plan refers to a row of net that is not there") != NULL);
  neap_free(report);

  /* So is a word that packed rows have the number of: an op's type, a blob's name behind its
   * layer's. */
  CHECK_EQ(sqlite3_exec(store->db,
                        "DELETE FROM plan_word WHERE word_id IN (SELECT type FROM packed_op) OR "
                        "word_id = (SELECT abs(max(blob)) FROM packed_value)",
                        NULL, NULL, NULL),
           SQLITE_OK);
  CHECK_FAILS(neap_db_check(store, &report, &error), NEAP_DB, "5 faults");
  CHECK(strstr(report, "rows of packed_op or packed_value refer to word ") != NULL);
  neap_free(report);
  neap_db_close(store);
}

/* A machine that both files know; the other one has measured more of it, and more. */
TEST(peaks_of_a_merged_file_are_in_the_row_of_their_machine) {
  char path[256];
  snprintf(path, sizeof path, "%s", temp_path("measured.db"));
  neap_store *store = opened(path);
  CHECK_OK(neap_db_note_peak(store, "f32", 1, 5e9, &error));
  CHECK_OK(neap_db_note_peak(store, "f32", 2, 9e9, &error));
  CHECK_OK(neap_db_note_peak(store, "memory", 1, 1e9, &error));
  neap_db_close(store);

  neap_store *into = opened(temp_path("not measured.db"));
  add_run(into, add_plan(into, "tiny", "k1"), 1000);
  CHECK_EQ(ask(into, "SELECT peak_flop_per_s IS NULL FROM machine"), 1);
  CHECK_OK(neap_db_note_peak(into, "f32", 1, 6e9, &error));
  CHECK_OK(neap_db_note_peak(into, "f32", 2, 2e9, &error));
  CHECK_OK(neap_db_merge(into, path, NULL, &error));
  CHECK_EQ(ask(into, "SELECT peak_flop_per_s FROM machine"), 9000000000);
  CHECK_EQ(ask(into, "SELECT sum(per_second) FROM machine_peak WHERE what = 'f32'"), 15000000000);
  CHECK_EQ(ask(into, "SELECT peak_byte_per_s FROM machine"), 1000000000);
  neap_db_close(into);
}

/* A plan that both files have, with times of its kernels that each has measured: the newer of each
 * stay, and those that are only there come along. */
TEST(times_of_kernels_of_a_plan_that_both_files_have_are_merged) {
  char path[256];
  snprintf(path, sizeof path, "%s", temp_path("timed.db"));
  neap_store *store = opened(path);
  neap_kernel_row row = {
    .step = 0, .kernel_no = 0, .engine = "ref", .min_ns = 70, .scratch_bytes = 0};
  int64_t id = add_plan(store, "tiny", "k1");
  CHECK_OK(neap_db_note_kernel(store, id, &row, &error));
  row.kernel_no = 1, row.min_ns = 80;
  CHECK_OK(neap_db_note_kernel(store, id, &row, &error));
  row.step = 1, row.min_ns = 90;
  CHECK_OK(neap_db_note_kernel(store, id, &row, &error));
  CHECK_EQ(sqlite3_exec(store->db,
                        "UPDATE kernel_time SET measured_at = iif(step = 1 AND kernel_no = 1, 10, "
                        "30)",
                        NULL, NULL, NULL),
           SQLITE_OK);
  neap_db_close(store);

  neap_store *into = opened(temp_path("also timed.db"));
  add_plan(into, "other", "k0");
  id = add_plan(into, "tiny", "k1");
  row.step = 0, row.kernel_no = 0, row.min_ns = 7;
  CHECK_OK(neap_db_note_kernel(into, id, &row, &error));
  row.kernel_no = 1, row.min_ns = 8;
  CHECK_OK(neap_db_note_kernel(into, id, &row, &error));
  CHECK_EQ(sqlite3_exec(into->db, "UPDATE kernel_time SET measured_at = 20", NULL, NULL, NULL),
           SQLITE_OK);
  neap_merged merged = {0};
  CHECK_OK(neap_db_merge(into, path, &merged, &error));
  CHECK_EQ(merged.n_plan, 0);
  CHECK(strcmp(ask_text(into,
                        "SELECT group_concat(step || ' ' || kernel_no || ' ' || min_ns, ', ') FROM "
                        "(SELECT * FROM kernel_time k JOIN plan p USING (plan_id) WHERE p.net = "
                        "'tiny' ORDER BY step, kernel_no)"),
               "1 1 7, 1 2 80, 2 2 90") == 0);
  CHECK_EQ(ask(into, "SELECT count(*) FROM kernel_time"), 3);
  neap_db_close(into);
}

TEST(refused_memory_is_an_error_and_leaks_nothing) {
  const char *path = temp_path("memory.db");
  neap_db_close(opened(path));
  int64_t live = neap_memory_read().n_live;
  for (int64_t n = 1; n < 100; n++) {
    neap_store *store = NULL;
    neap_error error = {0};
    neap_memory_fail_nth_block(n);
    neap_status status = neap_db_open(path, &store, &error);
    int64_t id;
    fixture f;
    make_fixture(&f);
    neap_store_plan row = row_for("tiny", "k1");
    if (status == NEAP_OK)
      status = neap_store_add_plan(store, &row, &f.plan, &f.graph, &id, &error);
    bool failed = neap_memory_failed();
    neap_memory_fail_nth(0, false);
    neap_db_close(store);
    CHECK(!failed || (status != NEAP_OK && error.message[0] != '\0'));
    CHECK_EQ(neap_memory_read().n_live, live);
    if (!failed) break;
  }
}

int main(int argc, char **argv) {
  int failed = RUN(
    argc, argv, T(a_plan_is_found_by_key_and_text), T(statements_of_each_plan_are_compiled_once),
    T(history_outlives_the_cache), T(texts_that_were_not_compressed_are_no_plans),
    T(newest_is_what_was_used_last), T(ids_are_uuids_that_sort_by_time),
    T(rows_carry_names_layers_lines_and_count_from_one), T(views_answer_their_questions),
    T(canned_queries_run), T(runs_ops_and_metrics_are_stored),
    T(queries_give_typed_values_and_take_parameters), T(check_backup_and_prune_care_for_the_file),
    T(peaks_of_a_merged_file_are_in_the_row_of_their_machine),
    T(times_of_kernels_of_a_plan_that_both_files_have_are_merged),
    T(refused_memory_is_an_error_and_leaks_nothing));
  return remove_temp_folder() || failed;
}
