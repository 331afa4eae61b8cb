/* store: plans, runs, profiles and tuning in one SQLite file. Never plans, never runs; takes and
 * gives plain structs.
 *
 * Nothing here may stop a run: every function fails with DB and a message that says what was lost,
 * and the caller goes on without. INVARIANT: a plan is read back only through plan's reader and
 * verifier. A handle belongs to one thread.
 */
#ifndef NEAP_STORE_H
#define NEAP_STORE_H

#include "plan/plan.h"

typedef struct neap_store neap_store;

/* $NEAP_DB, else $XDG_DATA_HOME/neap/neap.db, else ~/.local/share/neap/neap.db; NULL when $NEAP_DB
 * is "off". Static room. */
const char *neap_store_default_path(void);
/* Opens or makes the file, in WAL mode, migrated to the newest schema. A damaged or newer file is a
 * DB error; one that can only be read opens read-only. */
neap_status neap_store_open(const char *path, neap_store **out, neap_error *error);
/* Gives a reference back; the last one closes the file. */
void neap_store_close(neap_store *store);
neap_store *neap_store_retain(neap_store *store); /* NULL stays NULL */
const char *neap_store_path(const neap_store *store);
bool neap_store_is_readonly(const neap_store *store);
/* How long to wait for another process's lock before giving up; 5,000 at first. */
void neap_store_set_timeout(neap_store *store, int milliseconds);

typedef struct neap_store_plan {
  const char *key, *key_text;
  const char *options;   /* JSON */
  const char *choices;   /* neap_choices_print */
  const char *plan_text; /* neap_plan_print */
  const char *net_name, *net_text, *net_file, *net_hash;
  const char *dtype, *kernel_set;
  int64_t batch, n_thread, budget_bytes;
  bool train;
} neap_store_plan;

/* Looks a plan up by key (the text is compared too). *plan_id 0: none. The strings live until the
 * next call. */
neap_status neap_store_find_plan(neap_store *store, const char *key, const char *key_text,
                                 const char *net_name, const char *net_text, int64_t *plan_id,
                                 bool *same_net, const char **choices, const char **plan_text,
                                 neap_error *error);
neap_status neap_store_add_plan(neap_store *store, const neap_store_plan *row,
                                const neap_plan *plan, const neap_graph *graph, int64_t *plan_id,
                                neap_error *error);
/* it failed its check */
neap_status neap_store_drop_plan(neap_store *store, int64_t plan_id, neap_error *error);
/* a hit */
neap_status neap_store_touch_plan(neap_store *store, int64_t plan_id, neap_error *error);

typedef struct neap_store_run {
  int64_t plan_id;
  const char *script, *tag, *commit_id, *status, *error_json;
  uint64_t seed;
  int n_thread;
  int64_t n_step, started_at, step_min_ns, step_median_ns, planned_bytes, held_bytes,
    resident_bytes;
} neap_store_run;
neap_status neap_store_add_run(neap_store *store, const neap_store_run *row, int64_t *run_id,
                               neap_error *error);

/* `step` is a position in the plan's order, from 0 as everywhere in C; the row counts from 1. */
typedef struct neap_store_run_op {
  int64_t step, n_call, min_ns, median_ns, start_ns, resident_bytes;
  int thread;
} neap_store_run_op;
neap_status neap_store_add_run_ops(neap_store *store, int64_t run_id, int n,
                                   const neap_store_run_op *row, neap_error *error);
neap_status neap_store_add_metric(neap_store *store, int64_t run_id, const char *name,
                                  int64_t at_step, double value, neap_error *error);

/* Queries: rows through a callback; values are NULL-terminated texts with their SQLite type. One
 * statement, which only reads. Parameters that are not given are null; one that the statement does
 * not have is an error. */
typedef enum neap_sql_type {
  NEAP_SQL_NULL,
  NEAP_SQL_INTEGER,
  NEAP_SQL_REAL,
  NEAP_SQL_TEXT,
  NEAP_SQL_BLOB
} neap_sql_type;
typedef struct neap_sql_value {
  const char *name; /* column, or parameter with its ':' or NULL for the next '?' */
  neap_sql_type type;
  int64_t integer;
  double real;
  const char *text;
  size_t n_text;
} neap_sql_value;
typedef bool neap_sql_row(void *context, int n, const neap_sql_value *value); /* false stops */
neap_status neap_store_query(neap_store *store, const char *sql, int n_param,
                             const neap_sql_value *param, neap_sql_row *row, void *context,
                             neap_error *error);
/* The same, but a parameter without a value is a DB error rather than NULL. */
neap_status neap_store_query_complete(neap_store *store, const char *sql, int n_param,
                                      const neap_sql_value *param, neap_sql_row *row, void *context,
                                      neap_error *error);
/* integrity, foreign keys */
neap_status neap_store_check(neap_store *store, neap_buffer *report, neap_error *error);
neap_status neap_store_backup(neap_store *store, const char *path, neap_error *error);
neap_status neap_store_prune(neap_store *store, int64_t unused_days, int64_t *n_plan,
                             neap_error *error);

#endif
