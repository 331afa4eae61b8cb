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

/* ---- eager results (eager_pool.c) ---- */

/* A dense tensor of `type`, contents undefined, whose bytes come from the pool and return to it with the last reference. */
neap_status neap_eager_tensor(neap_tensor *tensor, const neap_type *type, neap_error *error);

#endif
