/* test_api_db.c: the database as users of neap.h meet it, linked with libneap.so alone: sessions
 * that record, plans that are found again, and questions in SQL. */
#include "check.h"

#include <stdlib.h>
#include <unistd.h>

static const char net_text[] =
  "net little\ninput x f32 (4,3)\nparam w f32 (2,3) = Xavier\nh = FC(x, w)\ny = Relu(h)\n"
  "outputs y\n";

static char path[] = "/tmp/neap-api-db-XXXXXX", copy_path[] = "/tmp/neap-api-db-copy-XXXXXX";

static neap_db *opened(void) {
  neap_db *db = NULL;
  CHECK_OK(neap_db_open(path, &db, &error));
  if (db == NULL) abort();
  return db;
}

/* A session of the net after three runs, with these options. */
static neap_session *after_runs(const neap_options *options, neap_workspace **ws) {
  const float x[12] = {1, 2, 3, -4, -5, -6, 7, 8, 9, 1, 1, 1};
  neap_net *net = NULL;
  neap_session *session = NULL;
  CHECK_OK(neap_net_read(net_text, &net, &error));
  CHECK_OK(neap_workspace_open(1, ws, &error));
  CHECK_OK(neap_workspace_write(*ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){4, 3}, x, &error));
  CHECK_OK(neap_session_open(*ws, net, options, &session, &error));
  for (int i = 0; i < 3 && session != NULL; i++) CHECK_OK(neap_session_run(session, &error));
  neap_net_free(net);
  if (session == NULL) abort();
  return session;
}

/* The one number that a question has for an answer. */
static int64_t ask(neap_db *db, const char *sql) {
  neap_sql_rows *rows = NULL;
  int64_t answer = -1;
  CHECK_OK(neap_db_rows(db, sql, 0, NULL, true, &rows, &error));
  if (rows != NULL && rows->n_row == 1 && rows->n_column == 1) answer = rows->value[0].integer;
  neap_free(rows);
  return answer;
}

TEST(a_session_records_its_plan_its_run_and_its_ops) {
  neap_db *db = opened();
  neap_workspace *ws = NULL;
  neap_session *session =
    after_runs(&(neap_options){.db = db, .profile = NEAP_ON, .tag = "first"}, &ws);
  CHECK(neap_session_plan_id(session) > 0);
  CHECK(neap_session_run_id(session) > 0); /* from the first step on */
  /* Its row is there; how many steps that knows of hangs on the time they took. */
  CHECK_EQ(ask(db, "SELECT count(*) FROM run WHERE tag = 'first' AND status = 'running'"), 1);
  CHECK(strcmp(neap_session_warning(session), "") == 0);
  CHECK_OK(neap_session_metric(session, "loss", 3, 0.25, &error));
  CHECK_FAILS(neap_session_record(session, "okay", &error), NEAP_ARGUMENT, "got \"okay\"");
  CHECK_EQ(ask(db, "SELECT count(*) FROM run WHERE status = 'running'"), 1);
  CHECK_OK(neap_session_record(session, "finished", &error));
  int64_t run = neap_session_run_id(session);
  CHECK(run > 0);
  CHECK_OK(neap_session_record(session, "failed", &error)); /* once is enough */
  CHECK_EQ(neap_session_run_id(session), run);
  CHECK_EQ(ask(db, "SELECT count(*) FROM run"), 1);
  CHECK_EQ(ask(db, "SELECT n_step FROM run WHERE tag = 'first' AND status = 'finished'"), 3);
  CHECK_EQ(ask(db, "SELECT count(*) FROM run_op WHERE n_call = 3"),
           neap_session_figures(session).n_op);
  CHECK_EQ(ask(db, "SELECT count(*) FROM run_metric WHERE name = 'loss' AND value = 0.25"), 1);
  neap_session_free(session);
  neap_workspace_release(ws);
  neap_db_close(db);
}

TEST(a_plan_that_the_database_knows_is_found_and_a_closed_session_has_its_run) {
  neap_db *db = opened();
  neap_workspace *ws[2] = {NULL, NULL};
  neap_session *first = after_runs(&(neap_options){.db = db}, &ws[0]);
  neap_session *second = after_runs(&(neap_options){.db = db}, &ws[1]);
  CHECK_EQ(neap_session_plan_id(first), neap_session_plan_id(second));
  int64_t finished = ask(db, "SELECT count(*) FROM run WHERE status = 'finished'");
  CHECK_EQ(ask(db, "SELECT count(*) FROM run WHERE status = 'running'"), 2);
  neap_db *mine = db;
  neap_db_close(mine); /* the sessions hold it */
  neap_session_free(first);
  neap_session_free(second);
  db = opened();
  CHECK_EQ(ask(db, "SELECT count(*) FROM run WHERE status = 'finished'"), finished + 2);
  for (int i = 0; i < 2; i++) neap_workspace_release(ws[i]);
  neap_db_close(db);
}

TEST(without_a_database_or_with_store_off_nothing_is_recorded) {
  neap_db *db = opened();
  int64_t before = ask(db, "SELECT (SELECT count(*) FROM run) + (SELECT count(*) FROM plan)");
  const neap_options options[] = {{.db = db, .store = NEAP_OFF, .threads = 1},
                                  {.profile = NEAP_ON, .threads = 1}};
  for (int i = 0; i < NEAP_COUNT(options); i++) {
    neap_workspace *ws = NULL;
    neap_session *session = after_runs(&options[i], &ws);
    CHECK_EQ(neap_session_plan_id(session), 0);
    CHECK_OK(neap_session_metric(session, "loss", 0, 1, &error));
    CHECK_OK(neap_session_record(session, "finished", &error));
    CHECK_EQ(neap_session_run_id(session), 0);
    neap_session_free(session);
    neap_workspace_release(ws);
  }
  CHECK_EQ(ask(db, "SELECT (SELECT count(*) FROM run) + (SELECT count(*) FROM plan)"), before);
  neap_db_close(db);
}

static bool sum_first(void *context, int n, const neap_sql_value *value) {
  double *sum = context;
  sum[0] += value[0].type == NEAP_SQL_REAL ? value[0].real : (double)value[0].integer;
  sum[1] += n;
  return sum[1] < 4; /* two rows of two */
}

TEST(questions_have_parameters_and_rows_of_every_type) {
  neap_db *db = opened();
  const neap_sql_value param[] = {
    {.type = NEAP_SQL_INTEGER, .integer = 7},
    {.name = ":t", .type = NEAP_SQL_TEXT, .text = "a\0b", .n_text = 3},
    {.type = NEAP_SQL_REAL, .real = 0.5}};
  neap_sql_rows *rows = NULL;
  CHECK_OK(neap_db_rows(db, "SELECT ? AS i, :t AS t, ? AS r, NULL AS empty, x'00ff' AS b", 3, param,
                        true, &rows, &error));
  CHECK(rows != NULL && rows->n_row == 1 && rows->n_column == 5);
  if (rows == NULL) return;
  const neap_sql_value *v = rows->value;
  const char *const names[] = {"i", "t", "r", "empty", "b"};
  for (int c = 0; c < 5; c++)
    CHECK(strcmp(rows->column[c], names[c]) == 0 && strcmp(v[c].name, names[c]) == 0);
  CHECK(v[0].type == NEAP_SQL_INTEGER && v[0].integer == 7);
  CHECK(v[1].type == NEAP_SQL_TEXT && v[1].n_text == 3 && memcmp(v[1].text, "a\0b", 4) == 0);
  CHECK(v[2].type == NEAP_SQL_REAL && v[2].real == 0.5);
  CHECK(v[3].type == NEAP_SQL_NULL);
  CHECK(v[4].type == NEAP_SQL_BLOB && v[4].n_text == 2 && memcmp(v[4].text, "\0\377", 2) == 0);
  neap_free(rows);
  CHECK_OK(neap_db_rows(db, "SELECT 1 WHERE 0", 0, NULL, true, &rows, &error));
  CHECK_EQ(rows->n_row, 0);
  neap_free(rows);
  double sum[2] = {0, 0};
  CHECK_OK(neap_db_query(db, "SELECT 1, 2 UNION SELECT 2.5, 1 UNION SELECT 3, 1 ORDER BY 1", 0,
                         NULL, sum_first, sum, &error));
  CHECK_NEAR(sum[0], 3.5, 0); /* the third row was not asked for */

  /* A parameter that is not given: null, or an error. */
  CHECK_OK(neap_db_rows(db, "SELECT coalesce(:x, 5)", 0, NULL, false, &rows, &error));
  CHECK_EQ(rows->value[0].integer, 5);
  neap_free(rows);
  CHECK_FAILS(neap_db_rows(db, "SELECT :x", 0, NULL, true, &rows, &error), NEAP_DB,
              "\":x\" has no value");
  CHECK(rows == NULL);
  CHECK_FAILS(neap_db_rows(db, "DELETE FROM run", 0, NULL, true, &rows, &error), NEAP_DB,
              "only statements that read");
  CHECK_FAILS(neap_db_query(db, "SELECT FROM", 0, NULL, sum_first, sum, &error), NEAP_DB, "query:");

  /* A question that is part of the library. */
  CHECK_OK(neap_db_rows(db, neap_embedded_find("db/queries/plans.sql", NULL), 0, NULL, false, &rows,
                        &error));
  CHECK(rows != NULL && rows->n_row > 0);
  neap_free(rows);
  neap_db_close(db);
}

TEST(the_file_is_cared_for) {
  neap_db *db = opened(), *copy = NULL;
  char *report = NULL;
  const neap_prune_options month = {.unused_days = 30, .n_run = -1, .bytes = -1};
  neap_pruned pruned = {.n_plan = -1};
  neap_merged merged = {.n_plan = -1};
  CHECK(strcmp(neap_db_path(db), path) == 0);
  CHECK(!neap_db_is_readonly(db));
  neap_db_set_timeout(db, 100);
  CHECK_OK(neap_db_check(db, &report, &error));
  CHECK(report != NULL && strcmp(report, "ok\n") == 0);
  neap_free(report);
  CHECK_OK(neap_db_backup(db, copy_path, &error));
  CHECK_OK(neap_db_open(copy_path, &copy, &error));
  CHECK_EQ(ask(copy, "SELECT count(*) FROM plan"), ask(db, "SELECT count(*) FROM plan"));
  CHECK(neap_db_retain(copy) == copy && neap_db_retain(NULL) == NULL);
  neap_db_close(copy);
  CHECK_OK(neap_db_prune(copy, &month, &pruned, &error)); /* all are of today */
  CHECK_EQ(pruned.n_plan, 0);
  CHECK_EQ(pruned.n_run, 0);
  CHECK_OK(neap_db_prune(copy, &month, NULL, &error));
  CHECK_OK(neap_db_vacuum(copy, &error));
  CHECK_OK(neap_db_merge(copy, path, &merged, &error)); /* all are there */
  CHECK_EQ(merged.n_plan + merged.n_run, 0);
  CHECK_FAILS(neap_db_merge(copy, copy_path, &merged, &error), NEAP_DB, "is the database itself");
  CHECK_FAILS(neap_db_merge(copy, "/proc/nowhere.db", NULL, &error), NEAP_DB, "there is no file");
  neap_db_close(copy);
  neap_db_close(NULL);
  CHECK_FAILS(neap_db_backup(db, "/proc/nowhere.db", &error), NEAP_DB, "no backup was made");
  neap_db_close(db);
  CHECK_FAILS(neap_db_open("/tmp", &db, &error), NEAP_DB, "can't be");
  CHECK(db == NULL);
}

TEST(the_default_place_is_the_environments) {
  neap_db *db = NULL;
  setenv("NEAP_DB", "off", 1);
  CHECK(neap_db_default_path() == NULL);
  CHECK_FAILS(neap_db_open(NULL, &db, &error), NEAP_DB, "NEAP_DB is \"off\"");
  setenv("NEAP_DB", path, 1);
  CHECK(strcmp(neap_db_default_path(), path) == 0);
  CHECK_OK(neap_db_open(NULL, &db, &error));
  CHECK(strcmp(neap_db_path(db), path) == 0);
  neap_db_close(db);
}

int main(int argc, char **argv) {
  close(mkstemp(path));
  close(mkstemp(copy_path));
  int result = RUN(argc, argv, T(a_session_records_its_plan_its_run_and_its_ops),
                   T(a_plan_that_the_database_knows_is_found_and_a_closed_session_has_its_run),
                   T(without_a_database_or_with_store_off_nothing_is_recorded),
                   T(questions_have_parameters_and_rows_of_every_type), T(the_file_is_cared_for),
                   T(the_default_place_is_the_environments));
  unlink(path), unlink(copy_path);
  return result;
}
