/* record.c: a run while it goes on: what is measured of it, in memory until it is written.
 *
 * Figures wait in a list of fixed size. It is written by the step that finds a second gone, in one
 * transaction with the run's own row, and is empty then. Where figures come faster, or the file
 * can't be written for a while, the list is thinned out when it is full: every second one of a
 * name goes, and of those to come every second one is taken, until the next write. So a run has
 * figures of its whole way, with the newest of each name, in a memory that does not grow.
 *
 * Runs that are open, and those that were closed without being written, hang on the handle: the
 * former hold it, the latter are its own and go with the next write, or with the handle.
 *
 * INVARIANT: a step takes no memory here once its figures have been there before.
 * INVARIANT: `dirty` is true as long as the file does not say what the run, once begun, does.
 */
#include "store/store_int.h"

#include <stdio.h>
#include <string.h>

enum {
  N_SAMPLE = 2048,
  MOST_SERIES = 256,
  WAIT_MS = 10,            /* for others' lock on the way of a step */
  SOON_NS = 1000000000,    /* between two writes */
  OPS_SHARE = 200,         /* of a program's time, one part may go into writing its ops */
  GIVE_UP_NS = 1000000000, /* after a lock that was waited for in vain, none is waited for */
};

static const char lost[] = "this run is not stored";

/* A name of figures. Of `stride` figures one is kept; `last` is the newest one's place, and
 * `is_extra` tells that it is there only until the next one comes. */
typedef struct series {
  const char *name; /* interned */
  int64_t n, stride;
  int last, n_kept, n_met;
  bool is_extra, is_halved;
} series;

typedef struct sample {
  int series;
  int64_t at_step;
  double value;
} sample;

/* A program of the run. `took` and `ops` are its session's as long as that is there; then the rows
 * say all. */
typedef struct program {
  neap_program_row row; /* texts interned */
  char uuid[37];
  const neap_durations *took;
  neap_op_times ops;        /* of the session; n 0: none */
  int64_t ops_ns, ops_cost; /* when they were written last, and how long that took */
  bool dirty;
} program;

struct neap_run {
  neap_store *store; /* retained while somebody holds the run */
  neap_run *next;    /* on the handle */
  int n_ref;
  int64_t run_id; /* 0: has no row yet */
  neap_run_row row;
  int64_t plan_batch; /* rows of the program whose plan is the row's */
  neap_arena room;    /* of the row's texts */
  /* going: since its first step, or the first after an end. gone: somebody deleted its row. */
  bool begun, going, dirty, gone;
  const char *ended; /* how; NULL: not yet */
  neap_error failed; /* of the last step */
  neap_buffer error; /* JSON of what ended it */
  neap_durations took;
  int64_t at_step, n_written; /* steps that run_time has */
  int64_t written_ns;
  sample *sample; /* N_SAMPLE, from the first figure on */
  int n_sample;
  series *series;
  int n_series, cap_series;
  program *program; /* by number less 1 */
  int n_program, cap_program;
  char warning[256];
};

/* ---- life ------------------------------------------------------------------------------------ */

static void unlink_run(neap_store *store, const neap_run *run) {
  for (neap_run **at = &store->run; *at != NULL; at = &(*at)->next)
    if (*at == run) {
      *at = run->next;
      return;
    }
}

static void free_run(neap_run *run) {
  neap_arena_fini(&run->room);
  neap_buffer_fini(&run->error);
  neap_free(run->sample);
  neap_free(run->series);
  neap_free(run->program);
  neap_free(run);
}

/* NULL stays NULL. False: memory is refused. */
static bool copy_text(neap_run *run, const char *text, const char **out) {
  *out = text != NULL ? neap_arena_strdup(&run->room, text) : NULL;
  return *out != NULL || text == NULL;
}

static bool fill(neap_run *run, const neap_store *store, const neap_run_about *about) {
  /* What the caller doesn't say of the command line is what the handle was told of its script. */
  const char *arguments = about->arguments != NULL ? about->arguments : store->arguments;
  neap_process self;
  neap_process_read(&self);
  neap_run_row *row = &run->row;

  /* Times by the clock of the wall, which others compare; steps are measured by another one. */
  row->started_ms = neap_wall_ms();
  row->started_at = row->started_ms / 1000;
  row->batch = about->batch;
  row->process_id = self.id;
  row->commit_dirty = store->commit_dirty;

  /* Texts are copied, since the run outlives what its callers have. */
  return copy_text(run, about->net, &row->net) && copy_text(run, about->mode, &row->mode) &&
         copy_text(run, about->script, &row->script) &&
         copy_text(run, arguments, &row->arguments) &&
         copy_text(run, store->commit_id, &row->commit_id) &&
         copy_text(run, about->tag, &row->tag) && copy_text(run, self.host, &row->host) &&
         copy_text(run, self.key, &row->process_key);
}

neap_status neap_run_open(neap_db *db, const neap_run_about *about, neap_run **out,
                          neap_error *error) {
  *out = NULL;
  if (db == NULL || db->readonly) return NEAP_OK;
  neap_run *run = neap_alloc_zeroed(sizeof *run);
  if (run == NULL || !fill(run, db, about)) {
    if (run != NULL) free_run(run);
    return neap_fail_memory(error, sizeof *run, "a run");
  }

  /* The caller's hold. The run holds the handle in turn, and hangs on its list, which is no holder:
   * it is gone over when the script ends. */
  run->n_ref = 1;
  run->store = neap_db_retain(db);
  run->next = db->run;
  db->run = run;
  *out = run;
  return NEAP_OK;
}

neap_run *neap_store_run_retain(neap_run *run) {
  if (run != NULL) run->n_ref++;
  return run;
}

/* ---- figures --------------------------------------------------------------------------------- */

/* Every second sample of the names that have more than their share goes, but for the newest one.
 * What is full has a name of that kind, so that at least a quarter becomes free. */
static void thin(neap_run *run) {
  /* Who has more than half of an even share is halved. A name that comes rarely keeps all it
   * has. */
  const int share = N_SAMPLE / (2 * run->n_series);
  for (int k = 0; k < run->n_series; k++) {
    series *s = &run->series[k];
    s->is_halved = s->n_kept > share;
    if (s->is_halved) s->stride *= 2;
    s->n_met = s->n_kept = 0;
  }

  /* The list is packed in place, in its order: `n` never overtakes `i`. */
  int n = 0;
  for (int i = 0; i < run->n_sample; i++) {
    series *s = &run->series[run->sample[i].series];

    /* Of a halved name the even ones stay. The newest one stays in any case, and is marked as extra
     * where its turn was not to: the next figure takes its place. */
    bool is_last = i == s->last, stays = !s->is_halved || s->n_met % 2 == 0;
    s->n_met++;
    if (!stays && !is_last) continue;
    if (is_last) s->is_extra = s->is_extra || !stays;
    if (is_last) s->last = n;
    s->n_kept++;
    run->sample[n++] = run->sample[i];
  }

  NEAP_ASSERT(n < run->n_sample, "a list that is full is thinned out; got %d of %d", n,
              run->n_sample);
  run->n_sample = n;
}

/* All are written; names stay. */
static void forget_samples(neap_run *run) {
  run->n_sample = 0;
  for (int k = 0; k < run->n_series; k++)
    run->series[k] = (series){.name = run->series[k].name, .stride = 1};
}

/* The series of a name, made if there is none. */
static neap_status find_series(neap_run *run, const char *name, int *out, neap_error *error) {
  const char *key = neap_intern(name);
  for (*out = 0; *out < run->n_series; ++*out)
    if (run->series[*out].name == key) return NEAP_OK;
  if (run->n_series == MOST_SERIES)
    return neap_fail(error, NEAP_ARGUMENT, "a run has figures of at most %d names, got \"%s\" too",
                     MOST_SERIES, name);
  if (key == NULL ||
      !neap_list_grow(&run->series, &run->cap_series, run->n_series + 1, sizeof *run->series))
    return neap_fail_memory(error, sizeof *run->series, "a figure of a run");
  run->series[run->n_series++] = (series){.name = key, .stride = 1};
  return NEAP_OK;
}

neap_status neap_run_metric(neap_run *run, const char *name, int64_t at_step, double value,
                            neap_error *error) {
  int at;
  if (run == NULL || value != value) return NEAP_OK;
  if (run->sample == NULL) run->sample = neap_alloc(N_SAMPLE * sizeof *run->sample);
  if (run->sample == NULL)
    return neap_fail_memory(error, N_SAMPLE * sizeof *run->sample, "the figures of a run");

  NEAP_TRY(find_series(run, name, &at, error));
  series *s = &run->series[at];
  const sample now = {.series = at, .at_step = at_step, .value = value};
  run->dirty = true;

  /* The newest one is kept in any case: over the one before, where that was there for no other
   * reason. */
  bool is_over = s->n_kept > 0 && s->is_extra;

  /* Thinning may have made the newest one an extra: looked at again. */
  if (!is_over && run->n_sample == N_SAMPLE) {
    thin(run);
    is_over = s->n_kept > 0 && s->is_extra;
  }
  if (!is_over) {
    s->last = run->n_sample++;
    s->n_kept++;
  }

  s->is_extra = s->n++ % s->stride != 0;
  run->sample[s->last] = now;
  return NEAP_OK;
}

/* ---- what ended it --------------------------------------------------------------------------- */

static void add_text(neap_buffer *out, const char *name, const char *text) {
  neap_buffer_add(out, ",\"%s\":", name);
  neap_json_text(out, text);
}

/* ,"blobs":[{..}, ..] */
static void add_alive(neap_buffer *out, const char *what, int n, const neap_live_bytes *alive) {
  neap_buffer_add(out, ",\"%s\":[", what);
  for (int i = 0; i < n; i++) {
    neap_buffer_add(out, "%s{\"bytes\":%lld", i > 0 ? "," : "", (long long)alive[i].bytes);
    add_text(out, "name", alive[i].name);
    if (alive[i].module != NULL) add_text(out, "module", alive[i].module);
    if (alive[i].line != NULL) add_text(out, "line", alive[i].line);
    neap_buffer_add(out, "}");
  }
  neap_buffer_add(out, "]");
}

/* Of a refused limit which one, and what would do; of the system what it was asked for, and had;
 * and what is alive where most is. */
static void add_refusal(neap_buffer *out, const neap_error *error) {
  if (error->limit != NULL) {
    add_text(out, "limit", error->limit);
    neap_buffer_add(out, ",\"limit_bytes\":%lld,\"least_bytes\":%lld",
                    (long long)error->limit_bytes, (long long)error->least_bytes);
  }
  if (error->request_bytes > 0)
    neap_buffer_add(out, ",\"request_bytes\":%lld", (long long)error->request_bytes);
  if (error->available_bytes > 0)
    neap_buffer_add(out, ",\"available_bytes\":%lld", (long long)error->available_bytes);
  add_alive(out, "blobs", error->n_blob, error->blobs);
  add_alive(out, "modules", error->n_module, error->modules);
}

/* As JSON. Where memory is refused there is none. */
static void print_error(const neap_error *error, neap_buffer *out) {
  neap_buffer_fini(out);
  if (error == NULL || error->code == NEAP_OK) return;
  neap_buffer_add(out, "{\"code\":\"%s\"", neap_status_text(error->code));

  /* Parts that an error has not are left out; op and blob are there always, empty or not. */
  add_text(out, "message", error->message);
  add_text(out, "op", error->op);
  add_text(out, "blob", error->blob);
  if (error->line[0] != '\0') add_text(out, "line", error->line);
  if (error->limit != NULL || error->code == NEAP_MEMORY) add_refusal(out, error);
  if (error->hint[0] != '\0') add_text(out, "hint", error->hint);
  neap_buffer_add(out, "}");
  if (out->failed) neap_buffer_fini(out);
}

static const char *status_of(const neap_error *error) {
  switch (error->code) {
    case NEAP_OK: return "finished";
    case NEAP_INTERRUPTED: return "interrupted";
    case NEAP_BUDGET:
    case NEAP_MEMORY: return "refused";
    default: return "failed";
  }
}

/* ---- writing --------------------------------------------------------------------------------- */

/* The row as it is now. */
static void fill_row(neap_run *run) {
  neap_run_row *row = &run->row;
  row->n_step = run->took.n;

  const neap_durations_part took = neap_durations_all(&run->took);
  row->step_min_ns = run->took.min_ns;
  row->step_median_ns = took.median_ns;
  row->step_p95_ns = took.p95_ns;

  row->resident_bytes = (int64_t)neap_process_resident_peak_bytes();
  row->seen_at = neap_wall_ms() / 1000;

  /* A run that goes on has no end and no error yet, even if it had both before. */
  row->ended_at = run->going ? 0 : row->seen_at;
  row->status = run->going ? "running" : run->ended;
  row->error = run->going ? NULL : run->error.text;

  /* A run without a program has no names; the columns want texts. */
  if (row->net == NULL) row->net = "";
  if (row->mode == NULL) row->mode = "";
}

static neap_status put_time(neap_run *run, int64_t run_id, neap_error *error) {
  const int64_t n = run->took.n - run->n_written;
  if (n == 0) return NEAP_OK;
  neap_run_time row = {.at_step = run->at_step,
                       .at_ms = neap_wall_ms() - run->row.started_ms,
                       .n_step = n,
                       .took = neap_durations_recent(&run->took, n),
                       .held_bytes = run->row.held_bytes,
                       .resident_bytes = (int64_t)neap_process_resident_bytes()};
  return neap_store_insert_run_time(run->store, run_id, &row, lost, error);
}

/* The program's row as its steps are now. */
static void fill_program(program *p) {
  if (p->took == NULL) return;
  const neap_durations_part took = neap_durations_all(p->took);
  p->row.n_step = p->took->n;
  p->row.step_min_ns = p->took->min_ns;
  p->row.step_median_ns = took.median_ns;
  p->row.step_p95_ns = took.p95_ns;
}

/* The times of its ops, as long as it goes on: at its end the session writes them all. What writing
 * takes decides how often: a plan of many ops has them less often than a small one. */
static neap_status put_ops(neap_run *run, int64_t run_id, program *p, neap_error *error) {
  const int64_t now = neap_clock_ns();
  if (!run->going || p->ops.n == 0 || p->row.n_step == 0) return NEAP_OK;
  if (now - p->ops_ns < OPS_SHARE * p->ops_cost) return NEAP_OK;
  NEAP_TRY(neap_store_put_run_ops(run->store, run_id, p->row.program_no, &p->ops, lost, error));
  p->ops_ns = neap_clock_ns();
  p->ops_cost = p->ops_ns - now;
  return NEAP_OK;
}

static neap_status put_programs(neap_run *run, int64_t run_id, neap_error *error) {
  for (int i = 0; i < run->n_program; i++) {
    program *p = &run->program[i];
    if (!p->dirty) continue;
    fill_program(p);
    NEAP_TRY(neap_store_put_program(run->store, run_id, p->uuid, &p->row, error));
    NEAP_TRY(put_ops(run, run_id, p, error));
  }
  return NEAP_OK;
}

/* Within a transaction. *run_id: of its row. */
static neap_status put_rows(neap_run *run, int64_t machine_id, int64_t *run_id, bool *found,
                            neap_error *error) {
  *run_id = run->run_id;
  *found = true;
  if (*run_id == 0)
    NEAP_TRY(neap_store_insert_run(run->store, &run->row, machine_id, lost, run_id, error));
  else
    NEAP_TRY(neap_store_update_run(run->store, *run_id, &run->row, lost, found, error));
  if (!*found) return NEAP_OK;
  NEAP_TRY(put_time(run, *run_id, error));
  NEAP_TRY(put_programs(run, *run_id, error));
  neap_sql sql = neap_store_metric_sql(run->store, lost);
  neap_status status = NEAP_OK;
  for (int i = 0; i < run->n_sample && status == NEAP_OK; i++) {
    const sample *at = &run->sample[i];
    status = neap_store_insert_metric(&sql, *run_id, run->series[at->series].name, at->at_step,
                                      at->value, error);
  }
  neap_sql_fini(&sql);
  return status;
}

/* All that is not written yet, in one transaction. */
static neap_status put(neap_run *run, neap_error *error) {
  neap_store *store = run->store;
  int64_t machine_id = store->machine_id, run_id = 0;
  bool found = true;

  /* Nothing counts as written before the commit: what is refused comes with the next try. */
  fill_row(run);
  NEAP_TRY(neap_store_begin(store, lost, error));
  neap_status status = neap_store_machine(store, &machine_id, error);
  if (status == NEAP_OK) status = put_rows(run, machine_id, &run_id, &found, error);
  NEAP_TRY(neap_store_end(store, status, lost, error));

  /* Only now it is in the file. A row that somebody has deleted is not made again. */
  store->machine_id = machine_id;
  run->run_id = run_id;
  run->gone = !found;
  run->dirty = false;
  run->n_written = run->took.n;
  for (int i = 0; i < run->n_program; i++) run->program[i].dirty = false;
  forget_samples(run);
  return NEAP_OK;
}

/* Whether the file lacks something. One that never began has nothing to tell. */
static bool has_news(const neap_run *run) { return run->begun && run->dirty && !run->gone; }

/* What a write said, for whoever asks the run. On the way, `soon`, a lock is nothing to speak of:
 * it is tried again. What else is in the way is said once, until a write goes well. */
static void note_warning(neap_run *run, neap_status status, const neap_error *why, bool soon) {
  const bool is_locked = (sqlite3_errcode(run->store->db) & 0xff) == SQLITE_BUSY;
  if (status == NEAP_OK)
    run->warning[0] = '\0';
  else if (run->warning[0] == '\0' && !(soon && is_locked))
    snprintf(run->warning, sizeof run->warning, "%.160s%s%.90s", why->message,
             why->hint[0] != '\0' ? "; " : "", why->hint);
}

/* Waits for another process's lock as long as the handle may, or `soon`: just for a moment. Of many
 * runs that end while the file is locked the first one waits for all. */
static neap_status write_run(neap_run *run, bool soon, neap_error *error) {
  neap_store *store = run->store;
  neap_error own = {0};
  if (!has_news(run)) return NEAP_OK;

  const int64_t now = neap_clock_ns();
  const bool in_vain = store->locked_ns != 0 && now - store->locked_ns < GIVE_UP_NS;
  const bool briefly = soon || in_vain;
  if (briefly) sqlite3_busy_timeout(store->db, WAIT_MS);

  neap_status status = put(run, &own);
  if (briefly) sqlite3_busy_timeout(store->db, store->timeout_ms);
  run->written_ns = neap_clock_ns();
  if (status == NEAP_OK) store->locked_ns = 0;
  if (status != NEAP_OK && !soon) store->locked_ns = run->written_ns;

  note_warning(run, status, &own, soon);
  if (error != NULL && error->code == NEAP_OK) *error = own;
  return status;
}

/* Those that were closed without being written; the first that can't be ends it. */
static neap_status write_kept(neap_store *store, neap_error *error) {
  for (neap_run *run = store->run, *next; run != NULL; run = next) {
    next = run->next;
    if (run->n_ref > 0) continue;
    NEAP_TRY(write_run(run, false, error));
    unlink_run(store, run);
    free_run(run);
  }
  return NEAP_OK;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Whether the program does what the run is about. A run that nobody has named a mode for is about
 * its first one. */
static bool is_main(const neap_run *run, const neap_run_row *part) {
  return run->row.mode == NULL || part->mode == NULL || strcmp(run->row.mode, part->mode) == 0;
}

/* The largest of its programs; of those that have a plan with a row, too. */
static neap_status merge(neap_run *run, const neap_run_row *part, neap_error *error) {
  neap_run_row *row = &run->row;

  /* What the caller has not named is named by the first program. */
  if ((row->net == NULL && !copy_text(run, part->net, &row->net)) ||
      (row->mode == NULL && !copy_text(run, part->mode, &row->mode)) ||
      (row->script == NULL && !copy_text(run, part->script, &row->script)) ||
      (row->tag == NULL && !copy_text(run, part->tag, &row->tag)))
    return neap_fail_memory(error, 256, "what a run is called");

  /* Of a look at data, the evaluation of a training, only the bytes count. */
  if (!is_main(run, part)) {
    row->planned_bytes = NEAP_MAX(row->planned_bytes, part->planned_bytes);
    return NEAP_OK;
  }

  /* Of several sizes of one net, or several nets, the run's row tells the largest. */
  if (part->plan_id != 0 && (row->plan_id == 0 || part->batch > run->plan_batch)) {
    row->plan_id = part->plan_id;
    run->plan_batch = part->batch;
  }
  row->batch = NEAP_MAX(row->batch, part->batch);
  row->planned_bytes = NEAP_MAX(row->planned_bytes, part->planned_bytes);
  row->n_thread = NEAP_MAX(row->n_thread, part->n_thread);
  row->seed = part->seed;
  return NEAP_OK;
}

/* From its first step on, or the first after an end, a run is running. */
static void start(neap_run *run) {
  if (!run->begun) run->row.started_ms = neap_wall_ms();
  if (!run->begun) run->row.started_at = run->row.started_ms / 1000;
  run->begun = run->going = run->dirty = true;
  neap_error_clear(&run->failed);
  (void)write_run(run, true, NULL);
}

bool neap_run_is_going(const neap_run *run) { return run != NULL && run->going; }

/* One more program. */
static neap_status join(neap_run *run, const neap_run_row *part, int64_t *program_no,
                        neap_error *error) {
  if (!neap_list_grow(&run->program, &run->cap_program, run->n_program + 1, sizeof *run->program))
    return neap_fail_memory(error, sizeof *run->program, "a program of a run");

  /* Names are interned: they stay when the session and its net are gone. */
  program *p = &run->program[run->n_program];
  *p = (program){.row = {.program_no = run->n_program + 1,
                         .plan_id = part->plan_id,
                         .net = neap_intern(part->net != NULL ? part->net : ""),
                         .mode = neap_intern(part->mode != NULL ? part->mode : ""),
                         .batch = part->batch,
                         .planned_bytes = part->planned_bytes},
                 .dirty = true};
  if (p->row.net == NULL || p->row.mode == NULL)
    return neap_fail_memory(error, 64, "what a program of a run is called");

  /* Counted only now, so that a refused program leaves no half of one. */
  neap_uuid_text(neap_wall_ms(), p->uuid);
  *program_no = ++run->n_program;
  run->dirty = true;
  return NEAP_OK;
}

neap_status neap_store_run_begin(neap_run *run, const neap_run_row *part, int64_t *program_no,
                                 neap_error *error) {
  NEAP_TRY(merge(run, part, error));
  if (*program_no == 0) NEAP_TRY(join(run, part, program_no, error));
  /* An evaluation after a training does not make that go on; it is written with what comes next. */
  if (!run->going && is_main(run, part)) start(run);
  return NEAP_OK;
}

void neap_store_run_hold(neap_run *run, int64_t program_no, int64_t held_bytes,
                         const neap_durations *took, const neap_op_times *ops) {
  NEAP_ASSERT(program_no > 0 && program_no <= run->n_program, "a program of the run: %lld",
              (long long)program_no);
  program *p = &run->program[program_no - 1];
  run->row.held_bytes = p->row.held_bytes = held_bytes;
  p->took = took;
  p->ops = *ops;
  p->dirty = run->dirty = true;
}

void neap_store_run_leave(neap_run *run, int64_t program_no) {
  if (program_no == 0) return;
  program *p = &run->program[program_no - 1];
  fill_program(p);
  p->took = NULL;
  p->ops = (neap_op_times){0};
}

void neap_store_run_fail(neap_run *run, const neap_error *error) {
  run->failed = *error;
  run->dirty = true;
}

void neap_run_step(neap_run *run, int64_t at_step, int64_t ns) {
  if (run == NULL) return;

  if (!run->going) start(run);
  neap_durations_add(&run->took, ns);
  run->at_step = at_step;
  run->dirty = true;

  /* A step that went well: what failed before was got over. */
  if (run->failed.code != NEAP_OK) neap_error_clear(&run->failed);
  if (neap_clock_ns() - run->written_ns >= SOON_NS) (void)write_run(run, true, NULL);
}

/* ---- the end --------------------------------------------------------------------------------- */

neap_status neap_run_end(neap_run *run, const char *status, const neap_error *why,
                         neap_error *error) {
  static const char *const known[] = {"finished", "interrupted", "failed", "refused"};
  const char *word = NULL;
  if (run == NULL) return NEAP_OK;

  /* What is not said follows: the reason is the last step's, and the status that of the reason. */
  if (why == NULL) why = &run->failed;
  if (status == NULL) status = status_of(why);
  for (int i = 0; i < NEAP_COUNT(known); i++)
    if (strcmp(status, known[i]) == 0) word = known[i];

  if (word == NULL)
    return neap_fail(error, NEAP_ARGUMENT,
                     "the status of a run is \"finished\", \"interrupted\", \"failed\" or "
                     "\"refused\", got \"%s\"",
                     status);

  /* One that never began has nothing to tell, but why it could not. */
  const bool is_told = run->begun || word == known[2] || word == known[3];
  if (!is_told) return NEAP_OK;

  /* A run may end more than once: steps that follow make it go on. */
  run->begun = run->dirty = true;
  run->going = false;
  run->ended = word;
  print_error(word != known[0] ? why : NULL, &run->error);
  return write_run(run, false, error);
}

void neap_run_close(neap_run *run) {
  if (run == NULL || --run->n_ref > 0) return;
  neap_store *store = run->store;

  /* What can't be written stays on the handle, and is tried again with the next write there. */
  if (run->going) (void)neap_run_end(run, NULL, NULL, NULL);
  (void)write_run(run, false, NULL);

  if (!has_news(run)) {
    unlink_run(store, run);
    free_run(run);
    (void)write_kept(store, NULL);
  }
  neap_db_close(store);
}

void neap_store_drop_runs(neap_store *store) {
  (void)write_kept(store, NULL);
  while (store->run != NULL) {
    neap_run *run = store->run;
    NEAP_ASSERT(run->n_ref == 0, "a run that somebody holds keeps the handle; got %d holders",
                run->n_ref);
    store->run = run->next;
    free_run(run);
  }
}

neap_status neap_db_end_runs(neap_db *db, const char *status, const neap_error *why,
                             neap_error *error) {
  neap_status result = NEAP_OK;
  for (neap_run *run = db->run; run != NULL; run = run->next) {
    /* Closed already: it is one of those below. */
    if (run->n_ref == 0) continue;
    neap_error *first = result == NEAP_OK ? error : NULL;
    neap_status one =
      run->going ? neap_run_end(run, status, why, first) : write_run(run, false, first);
    if (result == NEAP_OK) result = one;
  }
  neap_status kept = write_kept(db, result == NEAP_OK ? error : NULL);
  return result == NEAP_OK ? kept : result;
}

int64_t neap_run_id(const neap_run *run) { return run != NULL ? run->run_id : 0; }
const char *neap_run_warning(const neap_run *run) { return run != NULL ? run->warning : ""; }
