/* test_store.c: what must hold of the database: a file opens whatever state it is in, or says what
 * is lost; plans and runs come back as they went in; two users of one file do not harm each other;
 * questions get answers in names. */
#include "check.h"

#include "store/store_int.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

/* A fresh path in a directory of this process. */
static const char *temp_path(const char *name) {
  static char path[256];
  static int n;
  snprintf(path, sizeof path, "/tmp/neap_test_store.%d", (int)getpid());
  mkdir(path, 0777);
  snprintf(path, sizeof path, "/tmp/neap_test_store.%d/%d_%s", (int)getpid(), ++n, name);
  return path;
}

static neap_store *opened(const char *path) {
  neap_store *store = NULL;
  neap_error error = {0};
  if (neap_db_open(path, &store, &error) != NEAP_OK)
    printf("  open: %s\n", error.message), check_failures++;
  return store;
}

/* The first column of the first row as a number; -999 when there is none. */
static bool take_first(void *context, int n, const neap_sql_value *value) {
  if (n > 0) *(int64_t *)context = value[0].integer;
  return false;
}
static int64_t ask(neap_store *store, const char *sql) {
  int64_t answer = -999;
  CHECK_OK(neap_db_query(store, sql, 0, NULL, take_first, &answer, &error));
  return answer;
}

static bool take_text(void *context, int n, const neap_sql_value *value) {
  snprintf(context, 512, "%s", n > 0 && value[0].text != NULL ? value[0].text : "(null)");
  return false;
}
static const char *ask_text(neap_store *store, const char *sql) {
  static char text[512];
  snprintf(text, sizeof text, "(no row)");
  CHECK_OK(neap_db_query(store, sql, 0, NULL, take_text, text, &error));
  return text;
}

static bool count_row(void *context, int n, const neap_sql_value *value) {
  (void)n, (void)value;
  ++*(int *)context;
  return true;
}

/* ---- a plan by hand: x -> Relu -> a -> Relu (in place) -> b -> Relu -> c, c on x's copy ------ */

typedef struct fixture {
  neap_graph graph;
  neap_plan plan;
  neap_node node[3];
  neap_value value[4];
  neap_place place[4];
  neap_value_id in[3], out[3];
  neap_layout plain; /* of every operand */
  int order[3];
  size_t scratch_offset[3], scratch_bytes[3], live_bytes[3];
} fixture;

static void make_fixture(fixture *f) {
  static const char *const op_name[] = {"block1/relu_1", "block1/act", "relu_1"}, *const scope[] = {
                                                                                    "block1",
                                                                                    "block1", ""};
  static const char *const value_name[] = {"x", "a", "b", "c"};
  memset(f, 0, sizeof *f);
  for (int i = 0; i < 3; i++) {
    f->in[i] = i;
    f->out[i] = i + 1;
    f->order[i] = i;
    f->scratch_bytes[i] = 64;
    f->live_bytes[i] = i == 1 ? 192 : 128;
    f->node[i] = (neap_node){.op = neap_op_find("Relu"),
                             .name = op_name[i],
                             .scope = scope[i],
                             .line = i == 1 ? "" : "net.lua:3",
                             .n_in = 1,
                             .n_out = 1,
                             .in = &f->in[i],
                             .out = &f->out[i],
                             .forward = i,
                             .choice = {.n_thread = 1, .in = &f->plain, .out = &f->plain},
                             .cost = {.flops = 16, .read_bytes = 64, .write_bytes = 64}};
  }
  for (int v = 0; v < 4; v++) {
    f->value[v] = (neap_value){.name = value_name[v],
                               .type = {NEAP_DTYPE_F32, {1, {16}}},
                               .bytes = 64,
                               .node = v - 1,
                               .root = v,
                               .role = v == 0 ? NEAP_ROLE_INPUT : NEAP_ROLE_ACTIVATION};
    f->place[v] = (neap_place){.region = v == 0 ? NEAP_REGION_IO : NEAP_REGION_ARENA,
                               .storage = v,
                               .bytes = 64,
                               .first = NEAP_MAX(v - 1, 0),
                               .last = NEAP_MIN(v, 2),
                               .partner = -1,
                               .reason = NEAP_REASON_OWN};
    f->value[v].region = f->place[v].region;
  }
  f->place[2].storage = f->place[2].partner = 1; /* b over a */
  f->place[2].reason = NEAP_REASON_IN_PLACE;
  f->place[3].offset = 64;
  f->graph =
    (neap_graph){.name = "tiny", .n_node = 3, .n_value = 4, .node = f->node, .value = f->value};
  f->plan = (neap_plan){.policy = NEAP_POLICY_OFFSET,
                        .n_node = 3,
                        .n_value = 4,
                        .order = f->order,
                        .place = f->place,
                        .scratch_offset = f->scratch_offset,
                        .scratch_bytes = f->scratch_bytes,
                        .live_bytes = f->live_bytes,
                        .arena_bytes = 192,
                        .lower_bound_bytes = 192,
                        .baseline_bytes = 256,
                        .proved = true,
                        .peak_step = 1};
  f->plan.region_bytes[NEAP_REGION_IO] = 64;
}

static neap_store_plan row_for(const char *net_name, const char *key) {
  return (neap_store_plan){.key = key,
                           .key_text = "canonical",
                           .options = "{\"budget\":null}",
                           .choices = "ref ref ref",
                           .plan_text = "the plan",
                           .net_name = net_name,
                           .net_text = "net tiny",
                           .dtype = "f32",
                           .kernel_set = "ref",
                           .n_thread = 2};
}

static int64_t add_plan(neap_store *store, const char *net_name, const char *key) {
  fixture f;
  make_fixture(&f);
  neap_store_plan row = row_for(net_name, key);
  int64_t id = 0;
  CHECK_OK(neap_store_add_plan(store, &row, &f.plan, &f.graph, &id, &error));
  return id;
}

/* ---- files ----------------------------------------------------------------------------------- */

TEST(a_new_file_gets_the_newest_schema_and_keeps_it) {
  const char *path = temp_path("deep/er/new.db");
  neap_store *store = opened(path);
  if (store == NULL) return;
  CHECK(strcmp(neap_db_path(store), path) == 0);
  CHECK(!neap_db_is_readonly(store));
  CHECK_EQ(ask(store, "PRAGMA user_version"), 5);
  CHECK(access(path, F_OK) == 0);
  CHECK_EQ(ask(store, "SELECT journal_mode = 'wal' FROM pragma_journal_mode"), 1);
  CHECK_EQ(
    ask(store,
        "SELECT count(*) FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"),
    13);
  CHECK_EQ(ask(store, "SELECT count(*) FROM sqlite_master WHERE type = 'view'"), 10);
  int64_t id = add_plan(store, "tiny", "k1");
  neap_db_close(store);
  store = opened(path);
  if (store == NULL) return;
  CHECK_EQ(ask(store, "SELECT plan_id FROM plan"), id);
  CHECK_EQ(ask(store, "PRAGMA user_version"), 5);
  neap_db_close(store);
}

TEST(an_old_file_is_migrated_and_its_views_are_renewed) {
  const char *path = temp_path("old.db");
  sqlite3 *db;
  sqlite3_open(path, &db);
  const char *first = neap_embedded_find("db/migrations/0001_plan.sql", NULL);
  CHECK(first != NULL);
  CHECK_EQ(sqlite3_exec(db, first, NULL, NULL, NULL), SQLITE_OK);
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
  CHECK_EQ(ask(store, "PRAGMA user_version"), 5);
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

/* Runs of a file of the schema before history and cache were apart. */
TEST(runs_of_an_old_file_survive) {
  const char *path = temp_path("runs.db");
  sqlite3 *db;
  sqlite3_open(path, &db);
  for (int i = 1; i <= 4; i++) {
    static const char *const name[] = {"1_plan", "2_run", "3_tuning", "4_flops"};
    char file[64];
    snprintf(file, sizeof file, "db/migrations/000%s.sql", name[i - 1]);
    CHECK_EQ(sqlite3_exec(db, neap_embedded_find(file, NULL), NULL, NULL, NULL), SQLITE_OK);
  }
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
  path = temp_path("foreign.db");
  sqlite3 *db;
  sqlite3_open(path, &db);
  sqlite3_exec(db, "CREATE TABLE t (x)", NULL, NULL, NULL);
  sqlite3_close(db);
  CHECK_FAILS(neap_db_open(path, &store, &error), NEAP_DB, "is a database of another program");
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
    CHECK_FAILS(neap_store_touch_plan(store, "k1", id, &error), NEAP_DB, "can only be read");
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

/* ---- plans and runs -------------------------------------------------------------------------- */

static neap_store_hit find_plan(neap_store *store, const char *key, const char *key_text,
                                const char *net_name, const char *net_text) {
  neap_store_plan row = row_for(net_name, key);
  row.key_text = key_text;
  row.net_text = net_text;
  neap_store_hit hit = {.found = true, .plan_id = -1};
  CHECK_OK(neap_store_find_plan(store, &row, &hit, &error));
  return hit;
}

TEST(a_plan_is_found_by_key_and_text) {
  neap_store *store = opened(temp_path("find.db"));
  int64_t id = add_plan(store, "tiny", "k1");
  neap_store_hit hit = find_plan(store, "k1", "canonical", "tiny", "net tiny");
  CHECK(hit.found && hit.plan_id == id);
  CHECK(strcmp(hit.choices, "ref ref ref") == 0 && strcmp(hit.plan_text, "the plan") == 0);
  /* Found for any net; in the history under each name that it was stored for. */
  hit = find_plan(store, "k1", "canonical", "other", "net other");
  CHECK(hit.found && hit.plan_id == 0);
  hit = find_plan(store, "k1", "canonical", "tiny", "net tiny, with other names");
  CHECK(hit.found && hit.plan_id == 0);
  hit = find_plan(store, "k1", "another text", "tiny", "net tiny");
  CHECK(!hit.found && hit.choices == NULL && hit.plan_text == NULL);
  hit = find_plan(store, "k2", "canonical", "tiny", "net tiny");
  CHECK(!hit.found);
  CHECK_EQ(add_plan(store, "tiny", "k1"), id); /* stored once */
  int64_t second = add_plan(store, "other", "k1");
  CHECK(second != id);
  hit = find_plan(store, "k1", "canonical", "tiny", "net tiny");
  CHECK(hit.found && hit.plan_id == id);
  CHECK_OK(neap_store_touch_plan(store, "k1", id, &error));
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
  CHECK_OK(neap_store_add_run_ops(store, run_id, 1, &op, &error));
  CHECK_OK(neap_store_add_metric(store, run_id, "loss", 1, 0.5, &error));
  return run_id;
}

/* The cache may go at any time: what was planned and measured is another thing. */
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
  CHECK(find_plan(store, "k1", "canonical", "tiny", "net tiny").plan_id == id);
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
  CHECK_OK(neap_store_touch_plan(store, "k1", first, &error));
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
  neap_sql_value blob = {.name = ":blob", .type = NEAP_SQL_TEXT, .text = "b", .n_text = 1};
  char answer[512] = "";
  CHECK_OK(neap_db_query(store, neap_embedded_find("db/queries/who_shares.sql", NULL), 1, &blob,
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
  CHECK_OK(neap_store_add_run_ops(store, second, 3, op, &error));
  CHECK(strcmp(ask_text(store,
                        "SELECT name || ' ' || percent || ' ' || gflop_per_s FROM v_op_time WHERE "
                        "newest ORDER BY step"),
               "block1/relu_1 37.5 8.0") == 0);
  CHECK_FAILS(neap_store_add_run_ops(store, second, 3, op, &error), NEAP_DB,
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
  int64_t old = add_plan(store, "old", "k1"), run = add_plan(store, "run", "k2"), n = -1;
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
  const char *copy = temp_path("copy.db");
  CHECK_OK(neap_db_backup(store, copy, &error));
  CHECK_OK(neap_db_prune(store, 30, &n, &error));
  CHECK_EQ(n, 1);
  CHECK_EQ(ask(store, "SELECT count(*) FROM net WHERE name = 'old'"), 0);
  CHECK_EQ(ask(store, "SELECT count(*) FROM plan"), 2);
  CHECK_EQ(ask(store, "SELECT count(*) FROM plan_value"), 8);
  /* The run whose plan went is there, without what it had by op. */
  CHECK_EQ(ask(store, "SELECT run_id FROM v_run WHERE plan_id IS NULL AND batch = 16"), old_run);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run_metric"), 2);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run_op"), 1);
  CHECK_FAILS(neap_db_backup(store, "/proc/nowhere.db", &error), NEAP_DB, "no backup was made");
  neap_store *second = opened(copy);
  CHECK_EQ(ask(second, "SELECT min(plan_id) FROM plan"), old);
  CHECK_EQ(ask(second, "SELECT count(*) FROM plan"), 3);
  neap_db_close(second);
  /* A row without its parent is damage that only the check sees. */
  CHECK_EQ(sqlite3_exec(store->db, "PRAGMA foreign_keys = OFF; DELETE FROM net", NULL, NULL, NULL),
           SQLITE_OK);
  CHECK_FAILS(neap_db_check(store, &report, &error), NEAP_DB, "2 faults");
  CHECK(strstr(report, "a row of plan refers to a row of net that is not there") != NULL);
  neap_free(report);
  neap_db_close(store);
}

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
    argc, argv, T(a_new_file_gets_the_newest_schema_and_keeps_it),
    T(an_old_file_is_migrated_and_its_views_are_renewed), T(runs_of_an_old_file_survive),
    T(newer_foreign_and_damaged_files_are_refused_in_words), T(cut_and_flipped_files_never_crash),
    T(a_lock_of_another_process_is_waited_for_then_told), T(a_full_disk_loses_the_plan_whole),
    T(a_file_that_can_only_be_read_is_read), T(the_path_follows_the_environment),
    T(a_plan_is_found_by_key_and_text), T(history_outlives_the_cache),
    T(texts_that_were_not_compressed_are_no_plans), T(newest_is_what_was_used_last),
    T(ids_are_uuids_that_sort_by_time), T(rows_carry_names_layers_lines_and_count_from_one),
    T(views_answer_their_questions), T(canned_queries_run), T(runs_ops_and_metrics_are_stored),
    T(queries_give_typed_values_and_take_parameters), T(check_backup_and_prune_care_for_the_file),
    T(two_handles_share_a_file), T(processes_may_meet_in_a_new_file),
    T(refused_memory_is_an_error_and_leaks_nothing));
  char remove_all[128];
  snprintf(remove_all, sizeof remove_all, "rm -rf /tmp/neap_test_store.%d", (int)getpid());
  return system(remove_all) != 0 || failed;
}
