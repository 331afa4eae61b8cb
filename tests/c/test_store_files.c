/* test_store_files.c: what must hold of the database's file: it opens whatever state it is in, or
 * says what is lost; older files keep what they had; users of one file do not harm each other. */
#include "store_kit.h"

#include <sys/wait.h>

/* A file of an earlier schema, its first `version` migrations, still open. */
static sqlite3 *old_file(const char *path, int version) {
  sqlite3 *db;
  sqlite3_open(path, &db);
  CHECK_EQ(neap_sql_add_functions(db), SQLITE_OK);
  for (int i = 0; i < version; i++)
    CHECK_EQ(sqlite3_exec(db, neap_store_migration(i), NULL, NULL, NULL), SQLITE_OK);
  return db;
}

TEST(a_new_file_gets_the_newest_schema_and_keeps_it) {
  const char *path = temp_path("deep/er/new.db");
  neap_store *store = opened(path);
  if (store == NULL) return;
  CHECK(strcmp(neap_db_path(store), path) == 0);
  CHECK(!neap_db_is_readonly(store));
  CHECK_EQ(ask(store, "PRAGMA user_version"), 11);
  CHECK(access(path, F_OK) == 0);
  CHECK_EQ(ask(store, "SELECT journal_mode = 'wal' FROM pragma_journal_mode"), 1);
  CHECK_EQ(
    ask(store,
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"),
    18);
  CHECK_EQ(ask(store, "SELECT count(*) FROM sqlite_master WHERE type = 'view'"), 23);
  int64_t id = add_plan(store, "tiny", "k1");
  neap_db_close(store);
  store = opened(path);
  if (store == NULL) return;
  CHECK_EQ(ask(store, "SELECT plan_id FROM plan"), id);
  CHECK_EQ(ask(store, "PRAGMA user_version"), 11);
  neap_db_close(store);
}

TEST(an_old_file_is_migrated_and_its_views_are_renewed) {
  const char *path = temp_path("old.db");
  sqlite3 *db = old_file(path, 1);
  CHECK_EQ(
    sqlite3_exec(
      db,
      "INSERT INTO net VALUES (7, 'h', 'kept', NULL, 'net kept', 0);"
      "INSERT INTO plan VALUES (3, 7, 'k', 'kt', 'offset', 'infer', 16, 'f32', 'simple', 1, NULL, "
      "'{}', '1', 'ref', 'c', 'p', 192, 192, 1, 256, 2, 0, 0, 0, 64, 0, 0, 1, 5, 5, 5, 2);"
      "INSERT INTO plan_op VALUES (3, 1, 'Relu', 'a1', 'a', NULL, NULL, 'forward', NULL, 'ref', "
      "16, "
      "64, 64, 0, 192, NULL);"
      "INSERT INTO plan_value VALUES (3, 1, 0, 1, 'x', 'a', 'n.lua:1', 'input', 'io', 'f32', "
      "'plain', '(16)', 64, 0, 0, 1, 0, 'resident', 'has bytes of its own');"
      "CREATE VIEW v_gone AS SELECT 1; CREATE VIEW mine AS SELECT key FROM plan;"
      "CREATE VIEW \"v_my \"\"best\"\" plans\" AS SELECT 1;"
      "CREATE TABLE notes (text); INSERT INTO notes VALUES ('n');"
      "PRAGMA user_version = 1; PRAGMA application_id = 0x4e454150",
      NULL, NULL, NULL),
    SQLITE_OK);
  sqlite3_close(db);
  neap_store *store = opened(path);
  if (store == NULL) return;
  CHECK_EQ(ask(store, "PRAGMA user_version"), 11);
  CHECK_EQ(ask(store, "SELECT net_id FROM v_net WHERE name = 'kept' AND text = 'net kept'"), 7);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run"), 0);
  CHECK_EQ(ask(store, "SELECT count(*) FROM sqlite_master WHERE name = 'v_gone'"), 0);
  CHECK_EQ(ask(store, "SELECT n_hit FROM v_plan WHERE plan_id = 3 AND net = 'kept' AND newest"), 2);
  CHECK_EQ(ask(store, "SELECT flops FROM plan_op WHERE name = 'a1' AND layer = 'a'"), 16);
  CHECK_EQ(ask(store,
               "SELECT bytes FROM plan_value WHERE blob = 'x' AND line = 'n.lua:1' AND "
               "detail = 'has bytes of its own'"),
           64);

  /* Tables and views of the user are left as they are. */
  CHECK(strcmp(ask_text(store, "SELECT key || text FROM mine, notes"), "kn") == 0);
  neap_db_close(store);
}

/* Before runs had programs each run had one, whose times are still found by its run. */
TEST(runs_of_the_schema_before_programs_have_one) {
  const char *path = temp_path("seven.db");
  sqlite3 *db = old_file(path, 7);
  CHECK_EQ(
    sqlite3_exec(
      db,
      "INSERT INTO machine (machine_id, cpu, isa, n_core, ram_bytes) VALUES (1, 'c', 'avx', 2, 9);"
      "INSERT INTO run (run_id, uuid, net, mode, batch, machine_id, n_thread, n_step, started_at, "
      "step_min_ns, planned_bytes, status) VALUES (4, 'u4', 'kept', 'train', 8, 1, 2, 3, 1000, 5, "
      "64, 'finished'), (5, 'u5', 'kept', 'infer', 8, 1, 2, 1, 1001, 7, 32, 'finished');"
      "INSERT INTO run_op VALUES (4, 1, 3, 5, 6, 0, 0, 99), (4, 2, 3, 2, 2, 5, 0, NULL);"
      "INSERT INTO plan_cache VALUES ('k', 'd', 1, x'00', 1, x'00', 1, x'00', 5, 5);"
      "CREATE VIEW mine AS SELECT run_id, sum(median_ns) AS ns FROM run_op GROUP BY run_id;"
      "PRAGMA user_version = 7; PRAGMA application_id = 0x4e454150",
      NULL, NULL, NULL),
    SQLITE_OK);
  sqlite3_close(db);
  neap_store *store = opened(path);
  if (store == NULL) return;
  CHECK_EQ(ask(store, "SELECT count(*) FROM run"), 2);
  CHECK_EQ(ask(store, "SELECT count(*) FROM program WHERE program_no = 1 AND net = 'kept'"), 2);
  CHECK_EQ(ask(store, "SELECT n_step FROM program WHERE run_id = 4 AND step_min_ns = 5"), 3);
  CHECK_EQ(ask(store,
               "SELECT median_ns FROM run_op WHERE run_id = 4 AND step = 1 AND p95_ns IS "
               "NULL AND gap_ns IS NULL"),
           6);
  CHECK_EQ(ask(store, "SELECT ns FROM mine WHERE run_id = 4"), 8); /* the user's own view */
  CHECK_EQ(ask(store, "SELECT count(*) FROM plan_cache"), 0);
  CHECK_EQ(ask(store, "SELECT count(*) FROM sqlite_master WHERE name = 'tuning'"), 0);
  CHECK_EQ(ask(store, "SELECT count(*) FROM v_kernel"), 0);
  char *report = NULL;
  CHECK_OK(neap_db_check(store, &report, &error));
  neap_free(report);
  neap_db_close(store);
}

/* Ops of a file that does not say what they compute in, and peaks of one that knew fewer. */
TEST(ops_of_an_old_file_get_their_dtype) {
  const char *path = temp_path("dtypes.db");
  sqlite3 *db = old_file(path, 9);

  /* Two ops: the first reads nothing and makes value 1, of word 3; the second makes value 2, of
   * word 4, of value 1, and reads itself at the second place. */
  CHECK_EQ(
    sqlite3_exec(
      db,
      "INSERT INTO plan_word VALUES (1, 'Fill'), (2, 'x'), (3, 'bf16'), (4, 'f32'), (5, "
      "'constants');"
      "INSERT INTO packed_op (plan_id, subnet_no, step, type, name, layer, phase, kernel, flops, "
      "read_bytes, write_bytes, scratch_bytes, live_bytes) VALUES (1, 0, 1, 1, 2, 2, 2, 2, 0, 0, "
      "0, 0, 0), (1, 0, 2, 1, 2, 2, 2, 2, 0, 0, 0, 0, 0);"
      "INSERT INTO packed_value (plan_id, subnet_no, value_no, clone, storage_no, blob, layer, "
      "role, category, region, dtype, layout, shape, bytes, offset_bytes, first_step, last_step, "
      "kept, reason, words) VALUES (1, 0, 1, 0, 1, 2, 2, 2, 2, 5, 3, 2, 2, 0, 0, 1, 2, 0, 2, 2), "
      "(1, 0, 2, 0, 2, 2, 2, 2, 2, 2, 4, 2, 2, 0, 0, 2, 2, 0, 2, 2);"
      "INSERT INTO plan_read VALUES (1, 0, 1, 2, 1), (1, 0, 2, 2, 2);"
      "INSERT INTO machine (machine_id, cpu, isa, n_core, ram_bytes) VALUES (1, 'c', 'avx', 2, 9);"
      "INSERT INTO machine_peak VALUES (1, 'bf16', 2, 5e9, 7);"
      "CREATE VIEW mine AS SELECT max(per_second) AS most FROM machine_peak;"
      "PRAGMA user_version = 9; PRAGMA application_id = 0x4e454150",
      NULL, NULL, NULL),
    SQLITE_OK);
  sqlite3_close(db);
  neap_store *store = opened(path);
  if (store == NULL) return;
  CHECK_EQ(ask(store, "SELECT count(*) FROM plan_op WHERE step IN (1, 2) AND dtype = 'bf16'"), 2);
  CHECK_EQ(ask(store, "SELECT sum(once * step) FROM plan_op"), 1); /* the first makes a constant */
  CHECK_EQ(ask(store, "SELECT most FROM mine"), 5000000000);       /* the user's own view */
  CHECK_OK(neap_db_note_peak(store, "i8", 1, 6e9, &error));
  CHECK_EQ(ask(store, "SELECT count(*) FROM v_machine_peak WHERE dtype IN ('u8', 'i8', 'bf16')"),
           3);
  neap_db_close(store);
}

/* Runs of a file of the schema before history and cache were apart. */
TEST(runs_of_an_old_file_survive) {
  const char *path = temp_path("runs.db");
  sqlite3 *db = old_file(path, 4);
  CHECK_EQ(
    sqlite3_exec(
      db,
      "INSERT INTO net VALUES (7, 'h', 'kept', NULL, 'net kept', 0);"
      "INSERT INTO machine VALUES (1, 'cpu', 'avx2', 2, 1, NULL, NULL);"
      "INSERT INTO plan VALUES (3, 7, 'k', 'kt', 'offset', 'infer', 16, 'f32', 'simple', 1, NULL, "
      "'{}', '1', 'ref', 'c', 'p', 192, 192, 1, 256, 2, 0, 0, 0, 64, 0, 0, 1, 5, 5, 5, 2);"
      "INSERT INTO run VALUES (9, 3, 1, 's.lua', 'tag', NULL, 1, 2, 100, 6, 10, 11, 256, 250, 999, "
      "'ok', NULL);"
      "INSERT INTO run_op VALUES (9, 1, 100, 5, 6, 0, 0, NULL);"
      "INSERT INTO run_metric VALUES (9, 'loss', 1, 0.5), (9, 'loss', 2, 0.25);"
      /* what a user has put beside and on it, and what somebody has deleted half */
      "CREATE TABLE note (run_id INTEGER REFERENCES run ON DELETE CASCADE, words TEXT);"
      "INSERT INTO note VALUES (9, 'my best run'); CREATE TABLE text (mine);"
      "CREATE INDEX my_index ON run (tag); CREATE INDEX my_key ON plan (key_text);"
      "CREATE TRIGGER t AFTER INSERT ON run BEGIN INSERT INTO note VALUES (new.run_id, 't'); END;"
      "INSERT INTO run VALUES (8, 77, 1, NULL, NULL, NULL, 1, 2, 7, 6, 10, 11, 256, 250, 999, "
      "'ok', NULL);"
      "PRAGMA user_version = 4; PRAGMA application_id = 0x4e454150",
      NULL, NULL, NULL),
    SQLITE_OK);
  sqlite3_close(db);
  neap_store *store = opened(path);
  if (store == NULL) return;
  CHECK_EQ(ask(store, "SELECT run_id FROM v_run WHERE net = 'kept' AND n_step = 100 AND newest"),
           9);
  CHECK_EQ(ask(store, "SELECT sum(value) = 0.75 FROM run_metric WHERE run_id = 9"), 1);
  CHECK_EQ(ask(store, "SELECT n_call FROM run_op WHERE run_id = 9"), 100);
  CHECK_EQ(ask(store, "SELECT length(uuid) FROM run"), 36);
  CHECK_EQ(ask(store, "SELECT count(*) FROM plan_cache"), 0);
  CHECK_EQ(ask(store, "SELECT count(*) FROM sqlite_master WHERE name GLOB 'old_*'"), 0);
  char *report;
  CHECK_OK(neap_db_check(store, &report, &error));
  neap_free(report);
  neap_db_close(store);
}

/* A file of the schema of that version, with tables of a user's own under all names that later ones
 * take: `wanted` is a file of the newest. How many there are. */
static int write_file_of_version(const char *path, int version, const char *wanted) {
  sqlite3 *db = old_file(path, version);

  /* What the newest file has and this one has not, and names that are only used on the way. */
  char text[1024];
  snprintf(text, sizeof text,
           "PRAGMA user_version = %d; PRAGMA application_id = 0x4e454150; ATTACH '%s' AS wanted; "
           "CREATE TEMP TABLE name AS SELECT name FROM wanted.sqlite_master WHERE name NOT GLOB "
           "'sqlite_*' UNION SELECT 'Old_Op' WHERE %d < 7 UNION SELECT 'old_net' WHERE %d < 5; "
           "DELETE FROM name WHERE name IN (SELECT name FROM main.sqlite_master); DETACH wanted",
           version, wanted, version, version);
  CHECK_EQ(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);

  /* A table under each, with a row. */
  sqlite3_stmt *names;
  sqlite3_prepare_v2(db, "SELECT name FROM name", -1, &names, NULL);
  int n = 0;
  for (; sqlite3_step(names) == SQLITE_ROW; n++) {
    snprintf(text, sizeof text, "CREATE TABLE \"%1$s\" (mine); INSERT INTO \"%1$s\" VALUES (%2$d)",
             (const char *)sqlite3_column_text(names, 0), n);
    CHECK_EQ(sqlite3_exec(db, text, NULL, NULL, NULL), SQLITE_OK);
  }
  sqlite3_finalize(names);
  sqlite3_close(db);
  return n;
}

/* The statement that a refusal gives, in quotes of the shell, is run on the file. */
static bool run_hint(const char *path, const char *hint) {
  const char *from = strchr(hint, '\''), *to = from != NULL ? strrchr(hint, '\'') : NULL;
  if (to == NULL || to == from) return false;
  char text[256];
  snprintf(text, sizeof text, "%.*s", (int)(to - from - 1), from + 1);
  sqlite3 *db;
  sqlite3_open(path, &db);
  const bool good = sqlite3_exec(db, text, NULL, NULL, NULL) == SQLITE_OK;
  sqlite3_close(db);
  return good;
}

/* A user's table under a name that a later schema takes: refused before anything is changed, with
 * the words that make room. */
TEST(names_of_a_user_that_neap_takes_are_refused_with_the_way_out) {
  char newest[256], path[256];
  snprintf(newest, sizeof newest, "%s", temp_path("newest.db"));
  neap_db_close(opened(newest));
  for (int version = 1; neap_store_migration(version - 1) != NULL; version++) {
    snprintf(path, sizeof path, "%s", temp_path("taken.db"));
    const int n = write_file_of_version(path, version, newest);

    neap_store *store = NULL;
    int n_refused = 0;
    for (; n_refused < n; n_refused++) {
      neap_error wrong = {0};
      if (neap_db_open(path, &store, &wrong) == NEAP_OK) break;
      CHECK_EQ(wrong.code, NEAP_DB);
      CHECK(strstr(wrong.message, "of your own, a name that ") != NULL);
      if (!run_hint(path, wrong.hint)) {
        printf("  %s (%s)\n", wrong.message, wrong.hint), check_failures++;
        break;
      }
    }
    CHECK_EQ(n_refused, n);

    /* Then it is brought up, and each of the user's tables has its row. */
    if (store == NULL) store = opened(path);
    if (store == NULL) continue;
    CHECK_EQ(ask(store, "PRAGMA user_version"), 11);
    CHECK_EQ(ask(store, "SELECT count(*) FROM sqlite_master WHERE name GLOB 'my_*'"), n);
    CHECK_EQ(ask(store, "SELECT count(*) FROM v_plan"), 0);
    if (version < 9) CHECK_EQ(ask(store, "SELECT mine >= 0 FROM my_kernel_time"), 1);
    neap_db_close(store);
  }
}

/* An index cannot be renamed: it is to be made again. */
TEST(an_index_of_a_name_that_neap_takes_is_refused) {
  const char *path = temp_path("index.db");
  write_file_of_version(path, 8, ":memory:");
  sqlite3 *db;
  sqlite3_open(path, &db);
  CHECK_EQ(sqlite3_exec(db, "CREATE INDEX kernel_time ON run (n_step)", NULL, NULL, NULL),
           SQLITE_OK);
  sqlite3_close(db);
  neap_store *store = NULL;
  neap_error wrong = {0};
  CHECK_EQ(neap_db_open(path, &store, &wrong), NEAP_DB);
  CHECK(strstr(wrong.message,
               "has an index \"kernel_time\" of your own, a name that schema 9 takes") != NULL);
  CHECK(run_hint(path, wrong.hint));
  store = opened(path);
  CHECK_EQ(ask(store, "PRAGMA user_version"), 11);
  neap_db_close(store);
}

static void write_file(const char *path, const char *bytes, size_t n) {
  FILE *file = fopen(path, "wb");
  fwrite(bytes, 1, n, file);
  fclose(file);
}

TEST(newer_foreign_and_damaged_files_are_refused_in_words) {
  const char *path = temp_path("newer.db");
  neap_store *store = opened(path);
  CHECK_EQ(sqlite3_exec(store->db, "PRAGMA user_version = 99", NULL, NULL, NULL), SQLITE_OK);
  neap_db_close(store);
  store = NULL;
  CHECK_FAILS(neap_db_open(path, &store, &error), NEAP_DB, "has schema 99, made by a newer Neap");
  CHECK_EQ(neap_db_open(path, &store, NULL), NEAP_DB);
  path = temp_path("foreign.db");
  sqlite3 *db;
  sqlite3_open(path, &db);
  sqlite3_exec(db, "CREATE TABLE t (x)", NULL, NULL, NULL);
  sqlite3_close(db);
  CHECK_FAILS(neap_db_open(path, &store, &error), NEAP_DB, "is a database of another program");
  CHECK_EQ(neap_db_open(path, &store, NULL), NEAP_DB);
  path = temp_path("text.db");
  char junk[5000];
  memset(junk, 'j', sizeof junk);
  write_file(path, junk, sizeof junk);
  CHECK_FAILS(neap_db_open(path, &store, &error), NEAP_DB,
              "plans and runs are neither found nor stored");
  CHECK_FAILS(neap_db_open(path, &store, &error), NEAP_DB, "is damaged, or is no database");
  CHECK_FAILS(neap_db_open("/proc/nowhere/neap.db", &store, &error), NEAP_DB, "can't be opened");
  CHECK_FAILS(neap_db_open("/tmp", &store, &error), NEAP_DB, "can't be");
  CHECK_FAILS(neap_db_open("", &store, &error), NEAP_DB, "is empty");
  CHECK(store == NULL);
}

/* Every cut and many flips of a good file: an error in words, or a store that answers or says why
 * not. */
TEST(cut_and_flipped_files_never_crash) {
  const char *path = temp_path("whole.db");
  neap_store *store = opened(path);
  add_plan(store, "tiny", "k1");
  CHECK_EQ(sqlite3_exec(store->db, "PRAGMA wal_checkpoint(TRUNCATE)", NULL, NULL, NULL), SQLITE_OK);
  neap_db_close(store);
  FILE *file = fopen(path, "rb");
  static char whole[1 << 20];
  size_t n = fread(whole, 1, sizeof whole, file);
  fclose(file);
  CHECK(n > 4096 && n < sizeof whole);
  int n_refused = 0;
  for (int k = 0; k < 60; k++) {
    const char *hurt = temp_path("hurt.db");
    size_t at = (size_t)k * 7919u % n;
    if (k % 2 == 0) {
      write_file(hurt, whole, at);
    } else {
      for (size_t i = at; i < NEAP_MIN(at + 200, n); i++) whole[i] = (char)~whole[i];
      write_file(hurt, whole, n);
      for (size_t i = at; i < NEAP_MIN(at + 200, n); i++) whole[i] = (char)~whole[i];
    }
    neap_error error = {0};
    store = NULL;
    if (neap_db_open(hurt, &store, &error) != NEAP_OK) {
      CHECK(error.code == NEAP_DB && error.message[0] != '\0' && store == NULL);
      n_refused++;
    } else {
      fixture f;
      make_fixture(&f);
      neap_store_plan row = row_for("other", "k2");
      char *report;
      int64_t id;
      neap_status status = neap_store_add_plan(store, &row, &f.plan, &f.graph, &id, &error);
      CHECK(status == NEAP_OK || (status == NEAP_DB && error.message[0] != '\0'));
      neap_error_clear(&error);
      status = neap_db_check(store, &report, &error);
      CHECK(status == NEAP_OK || status == NEAP_DB);
      n_refused += status != NEAP_OK;
      neap_free(report);
      neap_db_close(store);
    }
    unlink(hurt);
  }
  CHECK(n_refused > 20);
}

TEST(a_lock_of_another_process_is_waited_for_then_told) {
  const char *path = temp_path("locked.db");
  neap_store *store = opened(path);
  sqlite3 *other;
  CHECK_EQ(sqlite3_open(path, &other), SQLITE_OK);
  CHECK_EQ(sqlite3_exec(other, "BEGIN EXCLUSIVE", NULL, NULL, NULL), SQLITE_OK);
  neap_db_set_timeout(store, 20);
  fixture f;
  make_fixture(&f);
  neap_store_plan row = row_for("tiny", "k1");
  int64_t id = 5;
  CHECK_FAILS(neap_store_add_plan(store, &row, &f.plan, &f.graph, &id, &error), NEAP_DB,
              "the plan of net \"tiny\" is not stored: database");
  CHECK_FAILS(neap_store_add_plan(store, &row, &f.plan, &f.graph, &id, &error), NEAP_DB,
              "is locked by another process");
  CHECK_EQ(id, 5);
  CHECK_EQ(ask(store, "SELECT count(*) FROM plan"), 0); /* readers go on */
  CHECK_EQ(sqlite3_exec(other, "COMMIT", NULL, NULL, NULL), SQLITE_OK);
  sqlite3_close(other);
  CHECK_OK(neap_store_add_plan(store, &row, &f.plan, &f.graph, &id, &error));
  CHECK_EQ(ask(store, "SELECT count(*) FROM plan"), 1);
  neap_db_close(store);
}

TEST(a_full_disk_loses_the_plan_whole) {
  const char *path = temp_path("full.db");
  neap_store *store = opened(path);
  char limit[64];
  snprintf(limit, sizeof limit, "PRAGMA max_page_count = %d",
           (int)ask(store, "PRAGMA page_count") + 2);
  CHECK_EQ(sqlite3_exec(store->db, limit, NULL, NULL, NULL), SQLITE_OK);
  fixture f;
  make_fixture(&f);
  char *large = malloc(100000);
  for (int i = 0; i < 99999; i++) { /* which zlib can't make much shorter */
    uint32_t word[4];
    neap_philox(1, 0, 0, (uint64_t)i, word);
    large[i] = (char)('!' + word[0] % 90);
  }
  large[99999] = '\0';
  neap_store_plan row = row_for("tiny", "k1");
  row.plan_text = large;
  int64_t id = 5;
  CHECK_FAILS(neap_store_add_plan(store, &row, &f.plan, &f.graph, &id, &error), NEAP_DB,
              "is not stored: no room for database");
  CHECK_EQ(id, 5);
  CHECK_EQ(ask(store, "SELECT count(*) FROM net"), 0);
  CHECK_EQ(ask(store, "SELECT count(*) FROM plan_op"), 0);
  CHECK_EQ(sqlite3_exec(store->db, "PRAGMA max_page_count = 1000000", NULL, NULL, NULL), SQLITE_OK);
  CHECK_OK(neap_store_add_plan(store, &row, &f.plan, &f.graph, &id, &error));
  free(large);
  neap_db_close(store);
}

TEST(a_file_that_can_only_be_read_is_read) {
  if (geteuid() != 0) SKIP("needs to change the user");
  const char *path = temp_path("ro/ro.db");
  neap_store *store = opened(path);
  int64_t id = add_plan(store, "tiny", "k1");
  neap_db_close(store);
  char dir[256];
  snprintf(dir, sizeof dir, "%s", path);
  *strrchr(dir, '/') = '\0';
  chmod(path, 0444);
  chmod(dir, 0555);
  if (seteuid(65534) != 0) SKIP("can't change the user");
  store = opened(path);
  if (store != NULL) {
    CHECK(neap_db_is_readonly(store));
    CHECK_EQ(ask(store, "SELECT plan_id FROM v_plan"), id);
    neap_store_plan row = row_for("tiny", "k1");
    int64_t used = 0;
    CHECK_FAILS(neap_store_use_plan(store, &row, true, &used, &error), NEAP_DB, "can only be read");
    neap_run_row run = {.plan_id = id, .net = "tiny", .mode = "infer", .batch = 16};
    int64_t run_id;
    CHECK_FAILS(neap_store_add_run(store, &run, &run_id, &error), NEAP_DB,
                "this run is not stored: database");
    neap_db_close(store);
  }
  if (seteuid(0) != 0) check_failures++;
}

TEST(the_path_follows_the_environment) {
  setenv("NEAP_DB", "off", 1);
  CHECK(neap_db_default_path() == NULL);
  setenv("NEAP_DB", "/a/b.db", 1);
  CHECK(strcmp(neap_db_default_path(), "/a/b.db") == 0);
  unsetenv("NEAP_DB");
  setenv("XDG_DATA_HOME", "/data", 1);
  CHECK(strcmp(neap_db_default_path(), "/data/neap/neap.db") == 0);
  unsetenv("XDG_DATA_HOME");
  setenv("HOME", "/home/a", 1);
  CHECK(strcmp(neap_db_default_path(), "/home/a/.local/share/neap/neap.db") == 0);
}

/* ---- several users of a file ----------------------------------------------------------------- */

TEST(two_handles_share_a_file) {
  const char *path = temp_path("shared.db");
  neap_store *a = opened(path), *b = opened(path);
  int64_t first = add_plan(a, "tiny", "k1");
  CHECK_EQ(add_plan(b, "tiny", "k1"), first);
  CHECK_EQ(add_plan(b, "tiny", "k2"), ask(a, "SELECT max(plan_id) FROM plan"));
  neap_db_close(a);
  CHECK_EQ(ask(b, "SELECT count(*) FROM plan"), 2);
  neap_db_close(b);
}

/* A fresh file that several processes open, migrate and write at once: each plan is there once,
 * nobody fails. */
TEST(processes_may_meet_in_a_new_file) {
  enum { N_PROCESS = 4, N_PLAN = 8 };
  char path[256];
  snprintf(path, sizeof path, "%s", temp_path("race.db"));
  fflush(stdout);
  for (int p = 0; p < N_PROCESS; p++) {
    if (fork() != 0) continue;
    check_failures = 0;
    neap_store *store = opened(path);
    for (int k = 0; store != NULL && k < N_PLAN; k++) {
      char key[16];
      snprintf(key, sizeof key, "k%d", k);
      add_plan(store, "tiny", key);
    }
    neap_db_close(store);
    fflush(stdout);
    _exit(check_failures > 0);
  }
  for (int p = 0; p < N_PROCESS; p++) {
    int status = -1;
    wait(&status);
    CHECK_EQ(status, 0);
  }
  neap_store *store = opened(path);
  CHECK_EQ(ask(store, "SELECT count(*) FROM plan"), N_PLAN);
  CHECK_EQ(ask(store, "SELECT count(*) FROM plan_op"), 3 * N_PLAN);
  CHECK_EQ(ask(store, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"),
           1);
  neap_db_close(store);
}

int main(int argc, char **argv) {
  int failed = RUN(
    argc, argv, T(a_new_file_gets_the_newest_schema_and_keeps_it),
    T(an_old_file_is_migrated_and_its_views_are_renewed), T(runs_of_an_old_file_survive),
    T(runs_of_the_schema_before_programs_have_one), T(ops_of_an_old_file_get_their_dtype),
    T(names_of_a_user_that_neap_takes_are_refused_with_the_way_out),
    T(an_index_of_a_name_that_neap_takes_is_refused),
    T(newer_foreign_and_damaged_files_are_refused_in_words), T(cut_and_flipped_files_never_crash),
    T(a_lock_of_another_process_is_waited_for_then_told), T(a_full_disk_loses_the_plan_whole),
    T(a_file_that_can_only_be_read_is_read), T(the_path_follows_the_environment),
    T(two_handles_share_a_file), T(processes_may_meet_in_a_new_file));
  return remove_temp_folder() || failed;
}
