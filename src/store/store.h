/* store: plans, runs, profiles and tuning in one SQLite file. Never plans, never runs; takes and
 * gives plain structs.
 *
 * History is one thing, the cache of plans another: history says what was planned and measured, and
 * stays; the cache saves planning the next time, and may be emptied at any moment.
 *
 * Nothing here may stop a run: every function fails with DB and a message that says what was lost,
 * and the caller goes on without. INVARIANT: a plan is read back only through plan's reader and
 * verifier. A handle belongs to one thread.
 */
#ifndef NEAP_STORE_H
#define NEAP_STORE_H

#include "plan/plan.h"

/* What a user opens and asks as a neap_db (neap/db.h), where opening, queries and care are
 * declared. */
typedef neap_db neap_store;

typedef struct neap_store_plan {
  const char *key, *key_text;
  const char *options;   /* JSON */
  const char *choices;   /* neap_choices_print */
  const char *plan_text; /* neap_plan_print; it and choices NULL: not for the cache */
  const char *digest;    /* of key, choices and plan: two plans of one key may differ */
  const char *net_name, *net_text, *net_file;
  const char *net_hash; /* of net_text */
  const char *dtype, *kernel_set;
  int64_t n_thread, budget_bytes;
} neap_store_plan;

/* What the cache has for a key. */
typedef struct neap_store_hit {
  bool found;
  int64_t plan_ns, n_search;       /* that planning took when it was made */
  const char *choices, *plan_text; /* live until the next call */
} neap_store_hit;
/* Looks a plan up in the cache by key (the text is compared too). */
neap_status neap_store_find_plan(neap_store *store, const neap_store_plan *row, neap_store_hit *hit,
                                 neap_error *error);
/* The row that the history has of the plan under this net's name and text, by key and digest; 0:
 * none. It is the plan that was used last from then on. `hit`: it came out of the cache. */
neap_status neap_store_use_plan(neap_store *store, const neap_store_plan *row, bool hit,
                                int64_t *plan_id, neap_error *error);
/* Into the history, with all its rows, and into the cache. *plan_id: its row in the history. */
neap_status neap_store_add_plan(neap_store *store, const neap_store_plan *row,
                                const neap_plan *plan, const neap_graph *graph, int64_t *plan_id,
                                neap_error *error);
/* What the cache has failed its check: it forgets it. History stays. */
neap_status neap_store_drop_plan(neap_store *store, const char *key, neap_error *error);

neap_status neap_store_add_run(neap_store *store, const neap_run_row *row, int64_t *run_id,
                               neap_error *error);

/* Of one program of the run, in place of those that there are. */
neap_status neap_store_add_run_ops(neap_store *store, int64_t run_id, int64_t program_no, int n,
                                   const neap_run_op_row *row, neap_error *error);
/* The row of a run's program, or, where it is there, what changes of it. */
neap_status neap_store_put_program(neap_store *store, int64_t run_id, const char *uuid,
                                   const neap_program_row *row, neap_error *error);
neap_status neap_store_add_metric(neap_store *store, int64_t run_id, const char *name,
                                  int64_t at_step, double value, neap_error *error);

/* ---- runs while they go on (record.c); none of these takes NULL ---- */

/* One more holder; NULL stays NULL. */
neap_run *neap_store_run_retain(neap_run *run);
/* Before a step of a session that the run does not know yet, or that is not going: plan, batch and
 * the like of the session's program. *program_no: its number, to be 0 before the first time. The
 * first one has the row written; one of another mode than the run's is a program of it, and no
 * more. MEMORY error. */
neap_status neap_store_run_begin(neap_run *run, const neap_run_row *part, int64_t *program_no,
                                 neap_error *error);
/* How long the ops of a program took so far: `row` fills that of a step; n 0: nobody times them. */
typedef struct neap_op_times {
  int n;
  void (*row)(const void *of, int step, neap_run_op_row *row);
  const void *of;
} neap_op_times;
/* What the session's workspace holds, after a step of a program of the run, and how long its steps
 * and ops took, borrowed until neap_store_run_leave. Ops are written along, now and then. */
void neap_store_run_hold(neap_run *run, int64_t program_no, int64_t held_bytes,
                         const neap_durations *took, const neap_op_times *ops);
/* The program is at its end. A run that it is the last of is not ended by that. */
void neap_store_run_leave(neap_run *run, int64_t program_no);
/* A step has failed: the run's end, unless another one follows. */
void neap_store_run_fail(neap_run *run, const neap_error *error);

#endif
