/* store_int.h: what the files of this room share and no other room sees: the handle, and a thin
 * layer over SQLite's statements that turns every result code into one DB error which says what was
 * lost. */
#ifndef NEAP_STORE_INT_H
#define NEAP_STORE_INT_H

#include "store/store.h"

#include <sqlite3.h>

/* Statements that each plan asks: compiled once, and kept until the store is closed. */
typedef enum neap_kept {
  NEAP_KEPT_FIND_CACHED,
  NEAP_KEPT_FIND_HISTORY,
  NEAP_KEPT_USE_CACHED,
  NEAP_KEPT_USE_HISTORY,
  NEAP_KEPT_COUNT
} neap_kept;

struct neap_db {
  sqlite3 *db;
  sqlite3_stmt *kept[NEAP_KEPT_COUNT]; /* NULL: not asked yet */
  char *path;
  bool readonly;
  int n_ref;
  int64_t machine_id;        /* 0: not looked up yet */
  char *choices, *plan_text; /* strings that the last find_plan gave */
  int timeout_ms;            /* how long others' lock is waited for */
  int64_t locked_ns;         /* when it was waited for in vain; 0: not since the last write */
  /* what is known of the script (neap_db_note_script) */
  bool knows_script;
  char *arguments, *commit_id;
  int64_t commit_dirty;
  neap_run *run; /* open ones, and those that are not written yet */
};

/* DB error for result code `rc`: "LOST: database "PATH" ...why". `lost` says what the caller goes
 * without. */
neap_status neap_store_fail(const neap_store *store, int rc, const char *lost, neap_error *error);
/* DB error when the store can't be written. */
neap_status neap_store_check_writable(const neap_store *store, const char *lost, neap_error *error);

/* A statement being filled: bind in order, then step. A failed prepare or bind is remembered and
 * told by the next step. */
typedef struct neap_sql {
  neap_store *store;
  sqlite3_stmt *stmt;
  const char *lost;
  int rc, n_bound;
  bool refused; /* the statement's text had no memory: a MEMORY error */
  bool kept;    /* the store has the statement, which outlives this */
} neap_sql;

neap_sql neap_sql_new(neap_store *store, const char *text, const char *lost);
/* The same of a statement that is kept, whose text is always the same; one user at a time. */
neap_sql neap_sql_kept(neap_store *store, neap_kept which, const char *text, const char *lost);
void neap_sql_int(neap_sql *sql, int64_t value);
void neap_sql_real(neap_sql *sql, double value);
void neap_sql_text(neap_sql *sql, const char *text); /* copied; NULL is null */
void neap_sql_zip(neap_sql *sql, const char *text);  /* its length, then the text compressed */
void neap_sql_null(neap_sql *sql);
/* One row: *row says whether there is one. After the last row the statement can be bound and
 * stepped again. */
neap_status neap_sql_step(neap_sql *sql, bool *row, neap_error *error);
/* a statement without rows; ready for the next binding */
neap_status neap_sql_run(neap_sql *sql, neap_error *error);
void neap_sql_fini(neap_sql *sql);

/* The one number that a query without parameters gives; 0 where it has no row. */
neap_status neap_store_number(neap_store *store, const char *query, const char *lost, int64_t *n,
                              neap_error *error);
/* Statements without parameters, one after another. */
neap_status neap_store_exec(neap_store *store, const char *text, const char *lost,
                            neap_error *error);
neap_status neap_store_begin(neap_store *store, const char *lost, neap_error *error);
/* Commits when `status` is OK, else rolls back; returns what came of it. */
neap_status neap_store_end(neap_store *store, neap_status status, const char *lost,
                           neap_error *error);

/* schema.c: brings the file to the newest schema; with a read-only file only checks. */
neap_status neap_store_migrate(neap_store *store, neap_error *error);
/* The text of migration `index`, from 0; NULL: there is none. */
const char *neap_store_migration(int index);
/* names.c: DB error when something of the user's own has a name that a migration to come, or a
 * view, takes. */
neap_status neap_store_check_names(neap_store *store, neap_error *error);

/* machine.c: the row of this machine, inserted when new; and the best of machine_peak into the rows
 * of all machines that have been measured. */
neap_status neap_store_machine(neap_store *store, int64_t *machine_id, neap_error *error);
neap_status neap_store_best_peaks(neap_store *store, const char *lost, neap_error *error);

/* process.c: a process as others can know it. */
typedef struct neap_process {
  char host[65], key[160];
  int64_t id;
} neap_process;
typedef enum neap_process_state {
  NEAP_PROCESS_LIVES,
  NEAP_PROCESS_GONE,
  NEAP_PROCESS_UNKNOWN /* of another machine, or container: it can't be looked at */
} neap_process_state;
/* This one. */
void neap_process_read(neap_process *process);
neap_process_state neap_process_look(const neap_process *other);

/* run.c: rows of runs, within the caller's transaction. */
neap_status neap_store_insert_run(neap_store *store, const neap_run_row *row, int64_t machine_id,
                                  const char *lost, int64_t *run_id, neap_error *error);
/* What changes while it goes on. *found: the row is there. */
neap_status neap_store_update_run(neap_store *store, int64_t run_id, const neap_run_row *row,
                                  const char *lost, bool *found, neap_error *error);
typedef struct neap_run_time {
  int64_t at_step, at_ms, n_step, held_bytes, resident_bytes;
  neap_durations_part took;
} neap_run_time;
/* Of a program that goes on, in place of what they were before; within a transaction. */
neap_status neap_store_put_run_ops(neap_store *store, int64_t run_id, int64_t program_no,
                                   const neap_op_times *ops, const char *lost, neap_error *error);
neap_status neap_store_insert_run_time(neap_store *store, int64_t run_id, const neap_run_time *row,
                                       const char *lost, neap_error *error);
/* A statement for any number of metrics; end it with neap_sql_fini. */
neap_sql neap_store_metric_sql(neap_store *store, const char *lost);
neap_status neap_store_insert_metric(neap_sql *sql, int64_t run_id, const char *name,
                                     int64_t at_step, double value, neap_error *error);
/* Runs that are said to be running and whose process is gone are lost. */
neap_status neap_store_mark_lost(neap_store *store, neap_error *error);

/* record.c: tries once more to write what could not be written, and frees it. */
void neap_store_drop_runs(neap_store *store);

/* sql_functions.c: what SQL can call on this connection; SQLite's result code. */
int neap_sql_add_functions(sqlite3 *db);
/* `n` bytes as zlib makes them shorter, or as they are where it does not; *n_zip: how many. NULL
 * when memory is refused. End it with neap_free. */
unsigned char *neap_zip(const void *bytes, size_t n, size_t *n_zip);
/* The `n` bytes that neap_zip was given, and a zero behind them. NULL for what it did not make, and
 * when memory is refused. */
char *neap_unzip(const void *zip, size_t n_zip, int64_t n);
/* A new UUIDv7 of this moment, in milliseconds since 1970. */
void neap_uuid_text(int64_t at_ms, char text[37]);

/* word.c: numbers of words, for as long as one plan is added. */
typedef struct neap_words {
  neap_sql find, add;
  struct neap_word_slot *slot;
  size_t n, n_slot;
  neap_buffer text;
} neap_words;
void neap_words_init(neap_words *words, neap_store *store, const char *lost);
void neap_words_fini(neap_words *words);
/* The number of `text`, which gets a row if it has none; in the caller's transaction. */
neap_status neap_words_find(neap_words *words, const char *text, int64_t *word_id,
                            neap_error *error);

/* plan_rows.c: "INSERT INTO table (KEY, .., NAME, ..) VALUES (?, ..) TAIL" with the columns of the
 * kinds that the file keeps, to be bound in that order; `key`: n_key names with commas. */
neap_sql neap_sql_insert(neap_store *store, const char *table, int n_key, const char *key,
                         int n_kind, const neap_row_kind *kind, const char *tail, const char *lost);
/* A row's kept fields, in the same order. */
void neap_sql_bind_row(neap_sql *sql, neap_row_kind kind, const void *row);
/* Whether packed rows have the number of a word there. */
bool neap_column_is_word(const neap_column *column);
/* All ops and values of a plan, within the caller's transaction. */
neap_status neap_store_insert_plan_rows(neap_store *store, int64_t plan_id, const neap_plan *plan,
                                        const neap_graph *graph, const char *lost,
                                        neap_error *error);

/* neap_db_query; `complete`: a parameter without a value is an error, not NULL (query.c). */
neap_status neap_store_ask(neap_store *store, const char *text, int n_param,
                           const neap_sql_value *param, bool complete, neap_sql_row *row,
                           void *context, neap_error *error);

#endif
