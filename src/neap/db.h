/* neap/db.h: the database, in which every plan that is made and every run that is measured is a
 * row. Part of neap.h, which includes it; db/README.md says what the tables hold.
 *
 *   neap_db *db = NULL;
 *   if (neap_db_open(NULL, &db, &error)) goto end;
 *   neap_options options = {.db = db, .profile = NEAP_ON};
 *   if (neap_session_open(ws, net, &options, &session, &error)) goto end;
 *   .. neap_session_run, as often as you like ..
 *   if (neap_session_record(session, "finished", &error)) goto end;
 *   neap_sql_value run = {.name = ":run", .type = NEAP_SQL_INTEGER,
 *                         .integer = neap_session_run_id(session)};
 *   if (neap_db_query(db, "SELECT step_median_ns FROM run WHERE run_id = :run", 1, &run, print_row,
 *                     NULL, &error))
 *     goto end;
 *
 * With `db` among the options a plan that the database knows is read instead of made. Nothing of it
 * stops a run: what the database could not do is said by neap_session_warning, and the run goes on
 * without. A handle belongs to one thread; several handles, of several processes too, may share a
 * file.
 */
#include "neap.h"
#ifndef NEAP_DB_H
#define NEAP_DB_H

typedef struct neap_db neap_db;
struct neap_kernel_row; /* neap/rows.h */

/* $NEAP_DB, else $XDG_DATA_HOME/neap/neap.db, else ~/.local/share/neap/neap.db; NULL when $NEAP_DB
 * is "off". Valid until this thread calls it again. */
NEAP_API const char *neap_db_default_path(void);
/* Opens or makes the file (`path` NULL: the default one), with the tables of this version. A
 * damaged file, one of another program, and one of a newer Neap are DB errors, and so is "off"; a
 * file that can only be read opens for reading. End it with neap_db_close. */
NEAP_API neap_status neap_db_open(const char *path, neap_db **out, neap_error *error);
/* One more holder of the handle; NULL stays NULL. Sessions hold theirs. */
NEAP_API neap_db *neap_db_retain(neap_db *db);
/* The last holder's call closes the file. */
NEAP_API void neap_db_close(neap_db *db);
NEAP_API const char *neap_db_path(const neap_db *db); /* borrowed from the handle */
NEAP_API bool neap_db_is_readonly(const neap_db *db);
/* How long to wait for another process's lock before giving up; 5,000 at first. */
NEAP_API void neap_db_set_timeout(neap_db *db, int milliseconds);

typedef enum neap_sql_type {
  NEAP_SQL_NULL,
  NEAP_SQL_INTEGER,
  NEAP_SQL_REAL,
  NEAP_SQL_TEXT,
  NEAP_SQL_BLOB
} neap_sql_type;
/* A parameter of a query, or a column of a row. */
typedef struct neap_sql_value {
  const char *name; /* of the column; of the parameter, with its ':', or NULL for the next '?' */
  neap_sql_type type;
  int64_t integer;
  double real;
  const char *text; /* of any bytes; a row's ends with a zero that n_text does not count */
  size_t n_text;
} neap_sql_value;
/* Called once a row with its n columns, whose texts last until it returns; false ends the query. It
 * must return: longjmp would leave the statement open. */
typedef bool neap_sql_row(void *context, int n, const neap_sql_value *value);
/* One statement, which only reads; a parameter that is not given is null. DB error in SQLite's
 * words for what is no such statement, and for a parameter that it does not have. */
NEAP_API neap_status neap_db_query(neap_db *db, const char *sql, int n_param,
                                   const neap_sql_value *param, neap_sql_row *row, void *context,
                                   neap_error *error);
/* All rows of a query. */
typedef struct neap_sql_rows {
  int n_row, n_column;
  const char *const *column;   /* names; none when there is no row */
  const neap_sql_value *value; /* of row r, column c: value[r * n_column + c] */
} neap_sql_rows;
/* As neap_db_query, the rows in one block, which is ended by neap_free. `complete`: a parameter of
 * the statement that is not given is a DB error, not null. MEMORY when the rows find no room. */
NEAP_API neap_status neap_db_rows(neap_db *db, const char *sql, int n_param,
                                  const neap_sql_value *param, bool complete, neap_sql_rows **out,
                                  neap_error *error);
/* Integrity and foreign keys of the whole file. *report: "ok", or a line a fault, and then the call
 * is a DB error; end it with neap_free in either case. */
NEAP_API neap_status neap_db_check(neap_db *db, char **report, neap_error *error);
/* A copy of one moment, while others may write; a file that is there is overwritten. */
NEAP_API neap_status neap_db_backup(neap_db *db, const char *path, neap_error *error);
/* What prune leaves; negative: no such limit. */
typedef struct neap_prune_options {
  /* plans that were neither used nor run in so many days go with their rows, and what the cache has
   * not used since; runs stay, without their times by op */
  int64_t unused_days;
  int64_t n_run; /* so many of the newest runs */
  int64_t bytes; /* of the file: times by op go first, then the cache, plans, and runs at last */
} neap_prune_options;
typedef struct neap_pruned {
  int64_t n_plan, n_run; /* that are gone */
  int64_t bytes;         /* of what is left */
} neap_pruned;
/* The oldest go first. Starred runs, and those that are going on, keep all they have, plans too.
 * `out` may be NULL. */
NEAP_API neap_status neap_db_prune(neap_db *db, const neap_prune_options *options, neap_pruned *out,
                                   neap_error *error);
/* Gives the room of what was removed back to the disk. */
NEAP_API neap_status neap_db_vacuum(neap_db *db, neap_error *error);
/* Adds the plans and runs of another file that are not here yet. Ids of rows change, their uuid
 * tells them; what both files have stays as it is here; tables of users are left alone. The other
 * file is brought to the schema of this version, and else only read. `out` may be NULL. */
typedef struct neap_merged {
  int64_t n_plan, n_run; /* that were added */
} neap_merged;
NEAP_API neap_status neap_db_merge(neap_db *db, const char *path, neap_merged *out,
                                   neap_error *error);

/* What this machine reached with so many threads; the largest that was ever noted stays. `what`:
 * "f32", "f64", "bf16" or "i8", operations a second, or "memory", bytes a second. ARGUMENT, DB
 * errors. */
NEAP_API neap_status neap_db_note_peak(neap_db *db, const char *what, int n_thread,
                                       double per_second, neap_error *error);
/* How long a kernel took here that could run a step of a stored plan, as neap_memory_plan_kernels
 * tells it, in place of what was known of it. DB when there is no such plan. */
NEAP_API neap_status neap_db_note_kernel(neap_db *db, int64_t plan_id,
                                         const struct neap_kernel_row *row, neap_error *error);

/* ---- runs ------------------------------------------------------------------------------------ */

/* A run: a training, or whatever else several programs do together. Its row is there from the first
 * step on, with the status "running"; what is measured is collected in memory that does not grow,
 * and written about once a second by the step that finds a second gone. Sessions that are opened
 * with the run among their options (`run`) belong to it; a session without one has a run of its
 * own, whose steps are the session's.
 *
 * A process that is killed loses two seconds at most, and the next one that opens the file for
 * writing gives its runs the status "lost". What the file does not take, because it is locked or
 * full, stays in memory for the next write, and is tried again when the handle is closed. */
typedef struct neap_run neap_run;
/* What a run is called before its first step says more. Texts are copied; NULL: not known. */
typedef struct neap_run_about {
  const char *net, *mode, *script, *arguments, *tag;
  int64_t batch;
} neap_run_about;
/* `db` NULL, or one that can only be read: *out is NULL, and all functions take that. End it with
 * neap_run_close. */
NEAP_API neap_status neap_run_open(neap_db *db, const neap_run_about *about, neap_run **out,
                                   neap_error *error);
/* What script it is whose runs this handle gets from now on: its arguments as a list in JSON, the
 * commit of its repository, and whether files there differ from that (0 or 1; negative: not known).
 * Texts are copied; NULL: not known. Runs opened with arguments of their own keep these. */
NEAP_API void neap_db_note_script(neap_db *db, const char *arguments, const char *commit_id,
                                  int commit_dirty);
NEAP_API bool neap_db_knows_script(const neap_db *db); /* it was called */
/* A step of a run that several sessions share is done, and took so long. Its number is the
 * caller's, since a training that is resumed goes on counting. */
NEAP_API void neap_run_step(neap_run *run, int64_t at_step, int64_t ns);
/* A figure of the caller's own, such as a loss. Of those that come faster than they can be kept
 * every second one is left out, then of those that are left again; the last one never. What is no
 * number is left out. */
NEAP_API neap_status neap_run_metric(neap_run *run, const char *name, int64_t at_step, double value,
                                     neap_error *error);
/* Writes all there is. `status`: "finished", "interrupted", "failed" or "refused"; NULL: what the
 * last step came to. `why` (may be NULL): the error that ended it. Another step makes it running
 * again. A run that has had no step leaves a row only with "refused" and "failed". DB errors: it is
 * kept for later. */
NEAP_API neap_status neap_run_end(neap_run *run, const char *status, const neap_error *why,
                                  neap_error *error);
NEAP_API bool neap_run_is_going(const neap_run *run);       /* since a step, and until its end */
NEAP_API int64_t neap_run_id(const neap_run *run);          /* of its row; 0: there is none */
NEAP_API const char *neap_run_warning(const neap_run *run); /* what is not written; "": nothing */
/* Ends it, unless that was done, and lets go. */
NEAP_API void neap_run_close(neap_run *run);
/* neap_run_end of all that are running on this handle, and of those kept for later: for a program
 * that is about to exit. The first error. */
NEAP_API neap_status neap_db_end_runs(neap_db *db, const char *status, const neap_error *why,
                                      neap_error *error);

#endif
