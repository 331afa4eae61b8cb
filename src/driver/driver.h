/* driver: the way from net to run. The only room that knows both planning and storing.
 *
 * compile: prepare -> key -> (store: plan and choices) or choose, lay out, plan -> verify -> bind -> attach. Programs are
 * kept per workspace in a small table under (net version, options), so that a second run finds its program at once.
 */
#ifndef NEAP_DRIVER_H
#define NEAP_DRIVER_H

#include "store/store.h"
#include "workspace/workspace.h"

typedef struct neap_compile_options {
  neap_graph_options graph;
  neap_plan_options plan;
  size_t total_bytes;   /* all regions; 0: none */
  int n_thread;         /* 0: neap_threads() */
  const char *engine;   /* NULL: NEAP_ENGINE or free */
  bool profile;
  neap_store *store;    /* NULL: no cache, no rows */
} neap_compile_options;

/* What planning gives without running: all figures of a forecast. Owned. */
typedef struct neap_forecast {
  neap_graph *graph;
  neap_plan *plan;
  neap_hash key;
  int64_t plan_id; /* row in the store; 0: none */
  bool hit;        /* the plan came from the store */
  size_t total_bytes;
} neap_forecast;
neap_status neap_driver_plan(const neap_net *net, const neap_compile_options *options, neap_forecast *out, neap_error *error);
void neap_forecast_fini(neap_forecast *forecast);

typedef struct neap_session neap_session; /* a compiled net in a workspace: program and what is recorded of its runs */
neap_status neap_driver_compile(neap_workspace *ws, const neap_net *net, const neap_compile_options *options, neap_session **out,
                                neap_error *error);
neap_status neap_session_run(neap_session *session, neap_error *error);
neap_program *neap_session_program(neap_session *session);
neap_workspace *neap_session_workspace(neap_session *session);
int64_t neap_session_plan_id(const neap_session *session);
int64_t neap_session_run_id(const neap_session *session); /* after close, or when recorded; 0: none */
int neap_session_n_steps(const neap_session *session);
const neap_step_times *neap_session_times(const neap_session *session); /* per plan step; NULL without profile */
void neap_session_metric(neap_session *session, const char *name, int64_t at_step, double value);
/* Writes the run row (and op rows with profile). Idempotent. */
neap_status neap_session_record(neap_session *session, const char *status, neap_error *error);
void neap_session_free(neap_session *session); /* records first */

/* One op on tensors, for eager use: outputs are new tensors. A small cache of bound kernels keeps repeated calls cheap. */
neap_status neap_eager(const char *type, int n_in, const neap_tensor *in, const neap_set *attrs, int n_out, neap_tensor *out,
                       neap_error *error);

#endif
