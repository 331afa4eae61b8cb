/* test_runs.c: what must hold of runs while they go on: a row from the first step on, figures that
 * are written on the way, nothing that is lost because a file is locked or full, and the word
 * "lost" for what a killed process leaves. */
#include "mlp.h"
#include "store_kit.h"

#include <signal.h>
#include <string.h>
#include <sys/wait.h>

static neap_run *run_of(neap_store *store, const char *tag) {
  neap_run *run = NULL;
  const neap_run_about about = {.net = "tiny", .mode = "train", .batch = 4, .tag = tag};
  CHECK_OK(neap_run_open(store, &about, &run, &error));
  return run;
}

/* Steps from, from + 1, .. with a loss each. */
static void take_steps(neap_run *run, int64_t from, int n) {
  for (int64_t i = from; i < from + n; i++) {
    neap_run_step(run, i, 1000 + i);
    CHECK_OK(neap_run_metric(run, "loss", i, 1.0 / (double)i, &error));
  }
}

TEST(a_run_is_there_from_its_first_step_and_has_its_figures_in_the_end) {
  const char *path = temp_path("first.db");
  neap_store *store = opened(path), *other = opened(path);
  neap_run *run = run_of(store, "a tag");
  CHECK_EQ(neap_run_id(run), 0);
  CHECK_EQ(ask(other, "SELECT count(*) FROM run"), 0);
  take_steps(run, 1, 1);
  CHECK_EQ(ask(other, "SELECT run_id FROM run WHERE status = 'running' AND ended_at IS NULL"),
           neap_run_id(run));
  CHECK_EQ(ask(other, "SELECT process_id FROM run WHERE host IS NOT NULL"), getpid());
  take_steps(run, 2, 9);
  CHECK_OK(neap_run_end(run, NULL, NULL, &error));
  CHECK_EQ(
    ask(other, "SELECT n_step FROM run WHERE status = 'finished' AND ended_at >= started_at"), 10);
  CHECK_EQ(ask(other, "SELECT step_min_ns = 1001 AND step_median_ns = 1006 FROM run"), 1);
  CHECK_EQ(ask(other, "SELECT count(*) FROM run_metric WHERE value = 1.0 / at_step"), 10);
  CHECK_EQ(ask(other, "SELECT sum(n_step) FROM run_time WHERE at_step <= 10"), 10);
  CHECK_EQ(ask(other, "SELECT median_ns BETWEEN min_ns AND p95_ns FROM run_time"), 1);

  /* Another step goes on with the same run; what the user has written in it stays. */
  CHECK_EQ(sqlite3_exec(other->db, "UPDATE run SET tag = 'mine', starred = 1", NULL, NULL, NULL),
           0);
  take_steps(run, 11, 2);
  CHECK_EQ(ask(other, "SELECT ended_at IS NULL FROM run WHERE status = 'running'"), 1);
  neap_run_close(run);
  CHECK_EQ(
    ask(other, "SELECT n_step FROM run WHERE status = 'finished' AND tag = 'mine' AND starred"),
    12);
  CHECK_EQ(ask(other, "SELECT sum(n_step) FROM run_time"), 12); /* each once */
  neap_db_close(store);
  neap_db_close(other);
}

TEST(what_ended_a_run_is_told) {
  neap_store *store = opened(temp_path("ends.db"));
  neap_run *run = run_of(store, "refused");
  neap_error why = {.code = NEAP_BUDGET,
                    .message = "too small",
                    .limit = "budget",
                    .limit_bytes = 100,
                    .least_bytes = 200,
                    .n_blob = 1,
                    .blobs = {{.name = "conv1", .module = "net", .line = "a.lua:3", .bytes = 192}},
                    .n_module = 1,
                    .modules = {{.name = "net", .bytes = 200}}};
  CHECK_OK(neap_run_end(run, NULL, &why, &error));
  CHECK(strcmp(ask_text(store,
                        "SELECT status || ' ' || (error ->> 'limit') || ' ' || (error ->> "
                        "'least_bytes') || ' ' || (error ->> '$.blobs[0].name') FROM run"),
               "refused budget 200 conv1") == 0);
  CHECK(strcmp(ask_text(store,
                        "SELECT (error ->> '$.blobs[0].module') || ' ' || (error ->> "
                        "'$.blobs[0].line') || ' ' || (error ->> '$.modules[0].bytes') FROM run"),
               "net a.lua:3 200") == 0);
  CHECK_FAILS(neap_run_end(run, "okay", NULL, &error), NEAP_ARGUMENT, "got \"okay\"");
  neap_run_close(run);

  /* The last step counts, whatever was before it. */
  run = run_of(store, "failed");
  take_steps(run, 1, 2);
  neap_store_run_fail(run, &(neap_error){.code = NEAP_DATA, .message = "a label", .op = "Gather"});
  neap_run_close(run);
  CHECK_EQ(
    ask(store, "SELECT n_step FROM run WHERE status = 'failed' AND error ->> 'op' = 'Gather'"), 2);
  run = run_of(store, "went on");
  neap_store_run_fail(run, &(neap_error){.code = NEAP_INTERRUPTED, .message = "interrupted"});
  take_steps(run, 1, 1);
  neap_run_close(run);
  CHECK_EQ(ask(store, "SELECT error IS NULL FROM run WHERE status = 'finished'"), 1);

  /* Also of a run that was going on then; and what is finished has no error. */
  run = run_of(store, "went on within");
  take_steps(run, 1, 1);
  neap_store_run_fail(run, &(neap_error){.code = NEAP_DATA, .message = "a label"});
  take_steps(run, 2, 1);
  neap_run_close(run);
  run = run_of(store, "finished");
  take_steps(run, 1, 1);
  CHECK_OK(neap_run_end(run, "finished", &why, &error));
  neap_run_close(run);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run WHERE status = 'finished' AND error IS NULL"), 3);

  /* What never had a step and was not refused leaves nothing. */
  neap_run_close(run_of(store, "nothing"));
  CHECK_EQ(ask(store, "SELECT count(*) FROM run"), 5);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run WHERE status = 'running'"), 0);
  neap_db_close(store);
}

static void op_row(const void *of, int step, neap_run_op_row *row) {
  const int64_t *n_call = of;
  *row = (neap_run_op_row){.step = step, .n_call = *n_call, .min_ns = step + 1, .median_ns = 7};
}

/* A process that is killed leaves what its ops took: they come with the rows that are written as it
 * goes on, and a program that has left has none to write. */
TEST(times_by_op_are_written_while_a_run_goes_on) {
  neap_store *store = opened(temp_path("going.db"));
  neap_run *run = run_of(store, "going");
  const neap_run_row part = {.net = "tiny", .mode = "train", .batch = 4};
  neap_durations took = {0};
  int64_t program_no = 0, n_call = 0;
  const neap_op_times ops = {.n = 3, .row = op_row, .of = &n_call};
  CHECK_OK(neap_store_run_begin(run, &part, &program_no, &error));

  /* Until they were written more than once, for which a slow machine takes long: only a small part
   * of a program's time may go into it. */
  for (int round = 0; round < 60; round++) {
    for (int64_t from = neap_clock_ns(); neap_clock_ns() - from < 2500000000;) {
      n_call++;
      neap_durations_add(&took, 1000);
      neap_store_run_hold(run, program_no, 1, &took, &ops);
      neap_run_step(run, n_call, 1000);
    }
    if (ask(store, "SELECT max(n_call) FROM program_op") > 1) break;
  }
  CHECK_EQ(ask(store, "SELECT status = 'running' FROM run"), 1);
  CHECK_EQ(ask(store, "SELECT count(*) FROM program_op WHERE min_ns = step AND median_ns = 7"), 3);
  CHECK_EQ(ask(store, "SELECT count(DISTINCT n_call) FROM program_op"), 1);
  CHECK_EQ(ask(store,
               "SELECT min(o.n_call <= g.n_step) FROM program_op o JOIN program g USING "
               "(run_id, program_no)"),
           1);
  CHECK(ask(store, "SELECT max(n_call) FROM program_op") > 1);

  /* Borrowed until here. */
  neap_store_run_leave(run, program_no);
  n_call = -1;
  neap_run_close(run);
  CHECK_EQ(ask(store, "SELECT min(n_call) > 0 FROM program_op"), 1);
  neap_db_close(store);
}

TEST(figures_that_come_too_fast_are_thinned_out_evenly_and_steps_take_no_memory) {
  neap_store *store = opened(temp_path("fast.db"));
  neap_run *run = run_of(store, "fast");
  take_steps(run, 1, 1);
  CHECK_OK(neap_run_metric(run, "rare", 7, 0.5, &error));
  const neap_run_row part = {.net = "tiny", .mode = "train", .batch = 4};
  neap_durations took = {0};
  int64_t program_no = 0;
  CHECK_OK(neap_store_run_begin(run, &part, &program_no, &error));
  CHECK_EQ(program_no, 1);
  int64_t blocks = neap_memory_read().n_alloc;
  for (int64_t i = 2; i <= 100000; i++) {
    neap_durations_add(&took, i);
    neap_store_run_hold(run, program_no, i, &took, &(neap_op_times){0});
    CHECK_OK(neap_run_metric(run, "loss", i, (double)i, &error));
    CHECK_OK(neap_run_metric(run, "accuracy", i, 0.5, &error));
  }
  CHECK_EQ(neap_memory_read().n_alloc, blocks);
  CHECK_OK(neap_run_metric(run, "loss", 100001, (double)NAN, &error)); /* left out */
  neap_store_run_leave(run, program_no);
  neap_run_close(run);
  CHECK_EQ(ask(store, "SELECT n_step FROM program WHERE program_no = 1 AND held_bytes = 100000"),
           99999);
  CHECK_EQ(ask(store, "SELECT count(*) BETWEEN 600 AND 2048 FROM run_metric"), 1);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run_metric WHERE name = 'rare'"), 1);
  CHECK_EQ(ask(store, "SELECT max(at_step) FROM run_metric WHERE name = 'loss'"), 100000);
  CHECK_EQ(ask(store, "SELECT max(at_step) FROM run_metric WHERE name = 'accuracy'"), 100000);
  CHECK_EQ(ask(store,
               "SELECT count(DISTINCT gap) FROM (SELECT at_step - lag(at_step) OVER (ORDER BY "
               "at_step) AS gap FROM run_metric WHERE name = 'loss' AND at_step < 100000) "
               "WHERE gap IS NOT NULL"),
           1);
  neap_db_close(store);
}

/* ---- several programs ------------------------------------------------------------------------ */

/* Its plan is that of its largest batch; of an evaluation beside it only the bytes count. */
TEST(a_run_is_of_its_largest_program) {
  neap_store *store = opened(temp_path("largest.db"));
  neap_run *run = run_of(store, "largest");
  neap_run_row part[] = {{.net = "tiny", .mode = "train", .batch = 8, .planned_bytes = 100},
                         {.net = "tiny", .mode = "train", .batch = 64, .planned_bytes = 500},
                         {.net = "tiny", .mode = "train", .batch = 16, .planned_bytes = 200},
                         {.net = "tiny", .mode = "eval", .batch = 128, .planned_bytes = 700}};
  static const char *const key[] = {"small", "large", "middle", "look"};
  for (int k = 0; k < NEAP_COUNT(part); k++) part[k].plan_id = add_plan(store, "tiny", key[k]);
  for (int k = 0; k < NEAP_COUNT(part); k++) {
    int64_t program_no = 0;
    CHECK_OK(neap_store_run_begin(run, &part[k], &program_no, &error));
  }
  take_steps(run, 1, 1);
  neap_run_close(run);
  CHECK_EQ(ask(store, "SELECT plan_id FROM run"), part[1].plan_id);
  CHECK_EQ(ask(store, "SELECT batch FROM run"), 64);
  CHECK_EQ(ask(store, "SELECT planned_bytes FROM run"), 700);
  neap_db_close(store);
}

TEST(micro_batches_are_one_run_whose_steps_are_updates) {
  neap_store *store = opened(temp_path("micro.db"));
  neap_net *net = NULL;
  neap_workspace *ws = NULL;
  neap_micro *micro = NULL;
  neap_compile_options options = {
    .plan.policy = NEAP_POLICY_OFFSET, .store = store, .tag = "in parts", .n_thread = 1};
  CHECK_OK(mlp_build(true, &net, &error));
  CHECK_OK(neap_workspace_new(&(neap_workspace_options){.seed = 3}, &ws, &error));
  CHECK_OK(neap_workspace_init(ws, net, &error));
  CHECK_OK(mlp_feed_all(ws, true, &error));
  CHECK_OK(neap_micro_new(ws, net, 3, &options, &micro, &error));
  for (int k = 0; k < 4 && micro != NULL; k++) CHECK_OK(neap_micro_run(micro, 0, NULL, &error));
  CHECK_EQ(ask(store, "SELECT count(*) FROM run WHERE status = 'running'"), 1);
  neap_micro_free(micro);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run"), 1);
  CHECK_EQ(
    ask(store,
        "SELECT n_step FROM run WHERE status = 'finished' AND tag = 'in parts' AND batch = 8 "
        "AND plan_id NOT NULL"),
    4);

  /* A limit that refuses them is the end of a run without steps. */
  micro = NULL;
  options.total_bytes = 64;
  CHECK_FAILS(neap_micro_new(ws, net, 3, &options, &micro, &error), NEAP_BUDGET, "64");
  CHECK_EQ(ask(store,
               "SELECT n_step FROM run WHERE status = 'refused' AND error ->> 'limit_bytes' = 64 "
               "AND net <> '' AND mode = 'train' AND batch = 8"),
           0);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run"), 2);
  neap_workspace_release(ws);
  neap_net_free(net);
  neap_db_close(store);
}

TEST(a_session_that_is_refused_leaves_its_reason_and_one_that_fails_its_error) {
  neap_store *store = opened(temp_path("sessions.db"));
  mlp m;
  neap_compile_options options = {
    .plan = {.policy = NEAP_POLICY_OFFSET, .budget_bytes = 64}, .store = store, .n_thread = 1};
  CHECK_FAILS(mlp_open(&m, true, &options, &error), NEAP_BUDGET, "64");
  mlp_close(&m);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run WHERE status = 'refused' AND net = 'mlp'"), 1);
  options.plan.budget_bytes = 0;
  CHECK_OK(mlp_open(&m, true, &options, &error));
  CHECK_OK(neap_session_run(m.session, &error));
  neap_interrupt(true);
  CHECK_FAILS(neap_session_run(m.session, &error), NEAP_INTERRUPTED, "interrupted");
  neap_interrupt(false);
  mlp_close(&m);
  CHECK_EQ(ask(store, "SELECT n_step FROM run WHERE status = 'interrupted'"), 1);
  neap_db_close(store);
}

/* ---- files that can't be written ------------------------------------------------------------- */

TEST(a_locked_file_gets_its_runs_later) {
  const char *path = temp_path("locked.db");
  neap_store *store = opened(path), *other = opened(path);
  neap_db_set_timeout(store, 20);
  CHECK_EQ(sqlite3_exec(other->db, "BEGIN IMMEDIATE", NULL, NULL, NULL), 0);
  neap_run *run = run_of(store, "first");
  take_steps(run, 1, 3);
  CHECK_EQ(neap_run_id(run), 0);
  CHECK_FAILS(neap_run_end(run, NULL, NULL, &error), NEAP_DB, "locked by another process");
  CHECK(strstr(neap_run_warning(run), "locked by another process") != NULL);
  neap_run_close(run);
  CHECK_EQ(sqlite3_exec(other->db, "COMMIT", NULL, NULL, NULL), 0);
  CHECK_EQ(ask(other, "SELECT count(*) FROM run"), 0);

  /* The next write takes it along, whoever makes it. */
  run = run_of(store, "second");
  take_steps(run, 1, 1);
  neap_run_close(run);
  CHECK_EQ(ask(other, "SELECT sum(n_step) FROM run WHERE status = 'finished'"), 4);
  CHECK_EQ(ask(other, "SELECT count(*) FROM run_metric"), 4);

  /* So does the end of the handle. */
  CHECK_EQ(sqlite3_exec(other->db, "BEGIN IMMEDIATE", NULL, NULL, NULL), 0);
  run = run_of(store, "third");
  take_steps(run, 1, 2);
  neap_run_close(run);
  CHECK_FAILS(neap_db_end_runs(store, NULL, NULL, &error), NEAP_DB, "locked by another process");
  CHECK_EQ(sqlite3_exec(other->db, "COMMIT", NULL, NULL, NULL), 0);
  neap_db_close(store);
  CHECK_EQ(ask(other, "SELECT n_step FROM run WHERE tag = 'third' AND status = 'finished'"), 2);
  neap_db_close(other);
}

TEST(a_full_file_gets_its_runs_when_there_is_room) {
  const char *path = temp_path("full.db");
  neap_store *store = opened(path);
  neap_run *run = run_of(store, "full");
  take_steps(run, 1, 1);
  CHECK_EQ(sqlite3_exec(store->db, "PRAGMA max_page_count = 1", NULL, NULL, NULL), 0);
  take_steps(run, 2, 2000);
  CHECK_FAILS(neap_run_end(run, NULL, NULL, &error), NEAP_DB, "no room for database");
  CHECK(strstr(neap_run_warning(run), "no room for database") != NULL);
  CHECK_EQ(ask(store, "SELECT n_step FROM run WHERE status = 'running'"), 0);
  CHECK_EQ(sqlite3_exec(store->db, "PRAGMA max_page_count = 100000", NULL, NULL, NULL), 0);
  CHECK_OK(neap_run_end(run, NULL, NULL, &error));
  CHECK_EQ(ask(store, "SELECT n_step FROM run WHERE status = 'finished'"), 2001);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run_metric"), 2001);
  neap_run_close(run);
  neap_db_close(store);
}

TEST(a_row_that_was_deleted_is_not_made_again) {
  neap_store *store = opened(temp_path("deleted.db"));
  neap_run *run = run_of(store, "unwanted");
  take_steps(run, 1, 3);
  CHECK_EQ(sqlite3_exec(store->db, "DELETE FROM run", NULL, NULL, NULL), 0);
  CHECK_OK(neap_run_end(run, NULL, NULL, &error));
  take_steps(run, 4, 3);
  neap_run_close(run);
  CHECK_EQ(ask(store, "SELECT count(*) FROM run"), 0);
  neap_db_close(store);
}

/* ---- processes ------------------------------------------------------------------------------- */

/* A child that trains until it is killed; it has begun when this returns. */
static pid_t train_in_child(const char *path) {
  int ready[2];
  char byte;
  CHECK(pipe(ready) == 0);
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    neap_store *store = opened(path);
    neap_run *run = run_of(store, "child");
    take_steps(run, 1, 1);
    CHECK(write(ready[1], "x", 1) == 1);
    for (int64_t i = 2;; i++) {
      take_steps(run, i, 1);
      (void)neap_run_end(run, NULL, NULL, NULL); /* writes now, and goes on */
    }
  }
  close(ready[1]);
  CHECK(read(ready[0], &byte, 1) == 1);
  close(ready[0]);
  return child;
}

TEST(runs_of_a_killed_process_are_lost_and_those_of_a_living_one_go_on) {
  enum { N_KILL = 8 };
  char path[256];
  snprintf(path, sizeof path, "%s", temp_path("killed.db"));
  for (int k = 0; k < N_KILL; k++) {
    pid_t child = train_in_child(path);
    usleep((useconds_t)(k * 3000));
    neap_store *store = opened(path);
    CHECK_EQ(ask(store, "SELECT count(*) FROM run WHERE status = 'lost'"), k);
    neap_db_close(store);
    CHECK(kill(child, SIGSTOP) == 0); /* it lives all the same */
    store = opened(path);
    CHECK_EQ(ask(store, "SELECT count(*) FROM run WHERE status = 'lost'"), k);
    neap_db_close(store);
    /* Killed, but not waited for yet: a name without a process. */
    CHECK(kill(child, SIGKILL) == 0);
    siginfo_t info;
    CHECK(waitid(P_PID, (id_t)child, &info, WEXITED | WNOWAIT) == 0);
    sqlite3 *db;
    sqlite3_open(path, &db);
    /* Between an end and the next step it is finished: that is what the test makes of it, too. */
    sqlite3_exec(db, "UPDATE run SET status = 'running' WHERE status = 'finished'", NULL, NULL,
                 NULL);
    sqlite3_close(db);
    store = opened(path);
    CHECK_EQ(ask(store, "SELECT count(*) FROM run WHERE status = 'lost' AND ended_at = seen_at"),
             k + 1);
    CHECK_EQ(ask(store, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'"),
             1);
    CHECK_EQ(
      ask(store, "SELECT count(*) FROM run_time LEFT JOIN run USING (run_id) WHERE net IS NULL"),
      0);
    neap_db_close(store);
    CHECK(waitpid(child, NULL, 0) == child);
  }
}

TEST(a_process_of_another_place_is_lost_after_a_day_of_silence) {
  const char *path = temp_path("elsewhere.db");
  neap_store *store = opened(path);
  neap_run *run[3];
  for (int i = 0; i < 3; i++) run[i] = run_of(store, "elsewhere"), take_steps(run[i], 1, 1);

  /* Another machine, silent for an hour and for two days; and this one, before its last boot. */
  CHECK_EQ(sqlite3_exec(store->db,
                        "UPDATE run SET host = 'another', process_key = 'boot space 5', seen_at = "
                        "unixepoch() - iif(run_id = 1, 3600, 2 * 86400) WHERE run_id < 3;"
                        "UPDATE run SET process_key = 'boot space 5' WHERE run_id = 3",
                        NULL, NULL, NULL),
           0);
  neap_store *other = opened(path);
  CHECK_EQ(ask(other, "SELECT run_id FROM run WHERE status = 'running'"), 1);
  CHECK_EQ(ask(other, "SELECT count(*) FROM run WHERE status = 'lost'"), 2);
  for (int i = 0; i < 3; i++) neap_run_close(run[i]); /* who was taken for gone says otherwise */
  CHECK_EQ(ask(other, "SELECT count(*) FROM run WHERE status = 'finished'"), 3);
  neap_db_close(other);
  neap_db_close(store);
}

int main(int argc, char **argv) {
  int failed =
    RUN(argc, argv, T(a_run_is_there_from_its_first_step_and_has_its_figures_in_the_end),
        T(what_ended_a_run_is_told), T(times_by_op_are_written_while_a_run_goes_on),
        T(figures_that_come_too_fast_are_thinned_out_evenly_and_steps_take_no_memory),
        T(a_run_is_of_its_largest_program), T(micro_batches_are_one_run_whose_steps_are_updates),
        T(a_session_that_is_refused_leaves_its_reason_and_one_that_fails_its_error),
        T(a_locked_file_gets_its_runs_later), T(a_full_file_gets_its_runs_when_there_is_room),
        T(a_row_that_was_deleted_is_not_made_again),
        T(runs_of_a_killed_process_are_lost_and_those_of_a_living_one_go_on),
        T(a_process_of_another_place_is_lost_after_a_day_of_silence));
  return remove_temp_folder() || failed;
}
