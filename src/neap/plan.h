/* neap/plan.h: plans to ask: of a net that nobody has opened, or of a session. Figures, rows of ops
 * and values, explanations, drawings, dry runs. Part of neap.h, which includes it.
 *
 *   neap_memory_plan *plan = NULL;
 *   neap_rows *rows = NULL;
 *   const void *at = NULL;
 *   if (neap_memory_plan_new(net, &(neap_options){.budget = 64 << 20}, NULL, &plan, &error))
 *     goto end;
 *   if (neap_memory_plan_rows(plan, NEAP_ROW_VALUE, &rows, &error)) goto end;
 *   if (neap_rows_at(rows, neap_memory_plan_value(plan, "hidden"), &at, &error)) goto end;
 *   if (at != NULL) printf("%lld\n", (long long)((const neap_value_row *)at)->offset_bytes);
 *   end:
 *   neap_rows_free(rows);
 *   neap_memory_plan_free(plan);
 *
 * Texts are given in `*out` and ended by neap_free; the same net, options and machine give the same
 * text. Bytes are of the arena where nothing else is said, steps and values count from 0.
 */
#include "neap.h"
#ifndef NEAP_PLAN_PART_H
#define NEAP_PLAN_PART_H

typedef struct neap_memory_plan neap_memory_plan;
typedef struct neap_range neap_range;
typedef struct neap_session neap_session;

/* Plans without allocating or running anything. `options` NULL: the defaults. With a `range` (may
 * be NULL) it is the plan of a smaller batch in that range's memory: the net is built for it, or
 * options->inputs give its shapes; the other options are the range's. The net and the range may be
 * ended before the plan. BUDGET when no plan keeps the limits; errors name the op at fault. */
NEAP_API neap_status neap_memory_plan_new(const neap_net *net, const neap_options *options,
                                          const neap_range *range, neap_memory_plan **out,
                                          neap_error *error);
/* Of what the session runs; a dynamic session has another one after a run with other shapes, and
 * the plan is asked for anew each time. It must be ended before its session. */
NEAP_API neap_status neap_session_plan(neap_session *session, neap_memory_plan **out,
                                       neap_error *error);
NEAP_API void neap_memory_plan_free(neap_memory_plan *plan);
/* What the database failed to do, as a sentence; "" when nothing. Borrowed from the plan. */
NEAP_API const char *neap_memory_plan_warning(const neap_memory_plan *plan);

/* Of the plan alone: figures of runs are 0 (neap_session_figures has them). */
NEAP_API neap_figures neap_memory_plan_figures(const neap_memory_plan *plan);
/* A cursor (neap_rows_next), to be ended by neap_rows_free before the plan. */
NEAP_API neap_status neap_memory_plan_rows(const neap_memory_plan *plan, neap_row_kind kind,
                                           neap_rows **out, neap_error *error);
/* The number (neap_value_row.value_no) of the value that a name stands for when the net has run;
 * else of one that the library made, "x.reorder". -1: the plan has none of that name. */
NEAP_API int neap_memory_plan_value(const neap_memory_plan *plan, const char *blob);
/* Whether the net has a blob of that name which the plan does not compute. *into: the op that has
 * absorbed it, as long as the plan lives; NULL: nothing reads it. */
NEAP_API bool neap_memory_plan_gone(const neap_memory_plan *plan, const char *blob,
                                    const char **into);

/* Why a blob has the bytes it has (NULL: the whole plan), in words. NAME for a blob that the net
 * lacks. */
NEAP_API neap_status neap_memory_plan_explain(const neap_memory_plan *plan, const char *blob,
                                              char **out, neap_error *error);
/* Why two blobs share bytes, or can't. NAME for one that the plan has no value of. */
NEAP_API neap_status neap_memory_plan_why(const neap_memory_plan *plan, const char *a,
                                          const char *b, char **out, neap_error *error);
/* Who is alive where most bytes are. */
NEAP_API neap_status neap_memory_plan_peak(const neap_memory_plan *plan, char **out,
                                           neap_error *error);
/* Order and places, as a database keeps them. */
NEAP_API neap_status neap_memory_plan_text(const neap_memory_plan *plan, char **out,
                                           neap_error *error);
/* The graph that is planned: ops with kernels, values with types and layouts. */
NEAP_API neap_status neap_memory_plan_graph_text(const neap_memory_plan *plan, char **out,
                                                 neap_error *error);
/* As neap_net_plan_dot; `depth` folds scopes as in neap_net_dot_folded. */
NEAP_API neap_status neap_memory_plan_dot(const neap_memory_plan *plan, int depth, char **out,
                                          neap_error *error);
/* As neap_net_plan_svg, drawn as `drawing` says; NULL: by category, over steps. Steps side by side
 * at which nothing is held, as updates, share one narrow column, unless the axis is time. */
typedef struct neap_drawing {
  bool by_layer;          /* boxes have the colours of layers; else of categories */
  const int64_t *step_ns; /* how long each step takes: the axis is time. NULL: steps */
  int n_step;             /* how many step_ns has: as many as the plan, else ARGUMENT */
  const char *times_of;   /* where step_ns are from, for the head; NULL: it says nothing of it */
} neap_drawing;
NEAP_API neap_status neap_memory_plan_svg(const neap_memory_plan *plan, const neap_drawing *drawing,
                                          char **out, neap_error *error);
/* Times each kernel that could run the op of a step (NEAP_ROW_KERNEL): other engines, and the other
 * algorithm of an engine that has two, on operands of the op's sizes that are made for it. No rows
 * where there is no other kernel. It takes the bytes of the operands once more, and some tenths of
 * a second. ARGUMENT for a step that the plan lacks. To be ended before the plan. */
NEAP_API neap_status neap_memory_plan_kernels(const neap_memory_plan *plan, int step,
                                              neap_rows **out, neap_error *error);
/* Checks the plan by code of its own, which shares none with the planner: PLAN error that names the
 * two values at fault. */
NEAP_API neap_status neap_memory_plan_verify(const neap_memory_plan *plan, neap_error *error);
/* neap_net_dry_run of this plan; `net` is the one that it was made of. */
NEAP_API neap_status neap_memory_plan_dry_run(const neap_memory_plan *plan, const neap_net *net,
                                              neap_dry_run **out, neap_error *error);

/* What is planned of a net before kernels are chosen: its graph, rewritten. `canonical`: without
 * names, as the key of a plan has it; else for people. */
NEAP_API neap_status neap_net_graph_text(const neap_net *net, const neap_options *options,
                                         bool canonical, char **out, neap_error *error);
/* 32 hexadecimal digits of the canonical text: equal for nets that are planned alike. */
NEAP_API neap_status neap_net_graph_hash(const neap_net *net, const neap_options *options,
                                         char text[33], neap_error *error);

#endif
