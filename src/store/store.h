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

/* What a user opens and asks as a neap_db (neap/db.h), where opening, queries and care are
 * declared. */
typedef neap_db neap_store;

typedef struct neap_store_plan {
  const char *key, *key_text;
  const char *options;   /* JSON */
  const char *choices;   /* neap_choices_print */
  const char *plan_text; /* neap_plan_print */
  const char *net_name, *net_text, *net_file, *net_hash;
  const char *dtype, *kernel_set;
  int64_t n_thread, budget_bytes;
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

neap_status neap_store_add_run(neap_store *store, const neap_run_row *row, int64_t *run_id,
                               neap_error *error);

neap_status neap_store_add_run_ops(neap_store *store, int64_t run_id, int n,
                                   const neap_run_op_row *row, neap_error *error);
neap_status neap_store_add_metric(neap_store *store, int64_t run_id, const char *name,
                                  int64_t at_step, double value, neap_error *error);

#endif
