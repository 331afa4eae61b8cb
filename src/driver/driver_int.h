/* driver_int.h: what the files of src/driver share. Private. */
#ifndef NEAP_DRIVER_INT_H
#define NEAP_DRIVER_INT_H

#include "driver/driver.h"

/* What the options come to once environment and defaults have spoken. */
typedef struct neap_resolved {
  neap_plan_options plan; /* budget: the tighter of the arena's budget and what `total` leaves it */
  size_t total_left; /* what `total` leaves for arena and constants; SIZE_MAX without one */
  neap_choose_options choose;
  int n_thread;
} neap_resolved;

/* key.c: everything a plan depends on as text. */
void neap_key_print(const neap_graph *graph, const neap_resolved *resolved, neap_buffer *out);
/* The options as JSON, for people who query the store. */
void neap_options_print_json(const neap_resolved *resolved, neap_buffer *out);
/* Keeps the first warning. */
void neap_warn(char warning[256], const char *what, const neap_error *error);

/* ---- programs for any shapes (dynamic.c) ---- */

typedef struct neap_dynamic neap_dynamic;
/* `ws` must outlive it; net and options are copied. */
neap_status neap_dynamic_new(neap_workspace *ws, const neap_net *net, const neap_compile_options *options, neap_dynamic **out,
                             neap_error *error);
void neap_dynamic_free(neap_dynamic *dynamic);
/* One step with the shapes that the workspace's inputs have. A failed one leaves resident blobs as they were. */
neap_status neap_dynamic_run(neap_dynamic *dynamic, neap_error *error);
neap_program *neap_dynamic_program(const neap_dynamic *dynamic); /* that ran last, or will run first; until the next run */
size_t neap_dynamic_planned_bytes(const neap_dynamic *dynamic);
neap_dynamic_stats neap_dynamic_stats_read(const neap_dynamic *dynamic);

/* Plans and binds; a stored plan that can't be bound is dropped and made again (session.c). */
neap_status neap_session_bind(const neap_net *net, const neap_compile_options *options, neap_forecast *forecast,
                              neap_program **program, neap_error *error);

/* ---- eager results (eager_pool.c) ---- */

/* A dense tensor of `type`, contents undefined, whose bytes come from the pool and return to it with the last reference. */
neap_status neap_eager_tensor(neap_tensor *tensor, const neap_type *type, neap_error *error);

#endif
