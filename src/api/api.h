/* api: the public C API, neap.h, on top of driver. Most of its functions are the rooms' own; here
 * are those that turn the public structs into the rooms' and back, one file a section of neap.h.
 *
 * INVARIANT: nothing of a room's private types crosses this room: a program that uses neap.h need
 * not be compiled again when a room changes.
 */
#ifndef NEAP_API_H
#define NEAP_API_H

#include "driver/driver.h"

/* The buffer's text, handed over to the caller; the buffer is ended either way. */
neap_status neap_api_give_text(neap_buffer *buffer, char **out, neap_error *error);

/* plan.c: neap_memory_plan_new for the functions that plan a net to say one thing of it; `who` is
 * named in errors of options. */
neap_status neap_api_plan(const neap_net *net, const neap_options *options, const char *who,
                          neap_memory_plan **out, neap_error *error);
/* The same by options that have been looked at; `range` may be NULL. */
neap_status neap_api_plan_by(const neap_net *net, const neap_compile_options *compile,
                             const neap_range *range, neap_memory_plan **out, neap_error *error);
/* neap_driver_fit, the plan of the batch as a handle (`out` may be NULL). */
neap_status neap_api_fit(const neap_fit_by *fit, int64_t *batch, neap_memory_plan **out,
                         neap_error *error);
/* neap_program_time_kernels of a plan; ARGUMENT for a step that it lacks. */
neap_status neap_api_time_kernels(const neap_memory_plan *plan, int step, neap_kernel_row **row,
                                  int *n, neap_error *error);

#endif
