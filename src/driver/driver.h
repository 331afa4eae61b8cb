/* driver: the way from net to run. The only room that knows both planning and storing.
 *
 * compile: prepare -> key -> (store: plan and choices) or choose, lay out, plan -> verify -> bind
 * -> init -> attach. A session is what a caller keeps, so that a second run finds its program at
 * once.
 *
 * INVARIANT: a store that fails stops nothing: what was lost is said in `warning`, and the way goes
 * on without it.
 */
#ifndef NEAP_DRIVER_H
#define NEAP_DRIVER_H

#include "store/store.h"
#include "workspace/workspace.h"

/* What the loss of batches that are held before an update makes of its rows; NO: none are held. */
typedef enum neap_accumulate {
  NEAP_ACCUMULATE_NO,
  NEAP_ACCUMULATE_MEAN,
  NEAP_ACCUMULATE_SUM
} neap_accumulate;

/* What neap_options (neap/options.h) come to in the words of the rooms below, by
 * neap_options_compile: no caller of Neap's fills one. */
typedef struct neap_compile_options {
  neap_graph_options graph;
  neap_plan_options plan;
  size_t total_bytes; /* all regions; 0: none */
  neap_beside beside; /* what the total counts besides */
  size_t soft_bytes;  /* policy `pool`: neap_workspace_set_pool_soft; 0: as the workspace has it */
  int n_thread;       /* 0: neap_threads() */
  const char *engine; /* NULL: NEAP_ENGINE or free */
  bool plain;         /* plain layouts only */
  bool profile;       /* the last calls of each step are kept; not by a dynamic session */
  /* with policy `pool`: any input shapes, and lengths that depend on data (executor "dynamic") */
  bool dynamic;
  bool no_constants; /* what depends on parameters alone is computed in every run, in the arena */
  bool no_recompute; /* a budget is met, or refused, without running forward ops again */
  /* a budget, or a dag, may have other kernels chosen: the bits are then other ones */
  bool inexact;
  /* neap_micro_new alone: whether batches may be held before an update, and what their loss makes
   * of its rows */
  neap_accumulate accumulate;
  neap_store *store;        /* NULL: no cache, no rows */
  neap_run *run;            /* that the session belongs to; NULL: one of its own, in the store */
  const char *script, *tag; /* for the run row; may be NULL */
  /* Caffe's words for policy and keep, translated at the doors (mem_param.c); may be NULL */
  const neap_mem_param *mem_param;
  /* plan.policy is the caller's own word, which mem_param may not contradict */
  bool policy_given;
} neap_compile_options;

/* ---- options (options.c) ---- */

bool neap_option_given(const neap_options *options, const neap_option *option);
/* Those that are given as a JSON object, in the order of the table. */
void neap_options_print_json(const neap_options *options, neap_buffer *out);
/* What the options (NULL: the defaults), checked, come to. Lists, texts and the database stay
 * theirs; inputs as declared. */
neap_status neap_options_compile(const neap_options *options, unsigned face, const char *who,
                                 neap_compile_options *out, neap_error *error);

/* What planning gives without running: all figures of a forecast. Owned. */
typedef struct neap_forecast {
  neap_graph *graph;
  neap_plan *plan;
  neap_hash key;
  int64_t plan_id; /* row in the store; 0: none */
  bool hit;        /* the plan came from the store */
  bool kept;       /* it was dear to find, and the store has it for the next time */
  size_t total_bytes;
  char warning[256]; /* what the store failed to do; "" when nothing */
} neap_forecast;
neap_status neap_driver_plan(const neap_net *net, const neap_compile_options *options,
                             neap_forecast *out, neap_error *error);
void neap_forecast_fini(neap_forecast *forecast);
neap_figures neap_forecast_figures(const neap_forecast *forecast);
/* Bytes by class (neap_report_count) of the net as it is written, and by the options, in `range`
 * unless that is NULL. Either count may be NULL. */
neap_status neap_driver_count(const neap_net *net, const neap_compile_options *options,
                              const neap_range *range, neap_counts *before, neap_counts *after,
                              neap_error *error);

/* a compiled net in a workspace: program and what is recorded of its runs */
typedef struct neap_session neap_session;
neap_status neap_driver_compile(neap_workspace *ws, const neap_net *net,
                                const neap_compile_options *options, neap_session **out,
                                neap_error *error);
/* One step. DATA, INTERRUPTED or NAME errors as neap_workspace_run gives them. */
neap_status neap_session_run(neap_session *session, neap_error *error);
neap_program *neap_session_program(neap_session *session);
neap_workspace *neap_session_workspace(neap_session *session);
/* Figures of the steps run so far. Times are of the most recent 1024 at most. */
typedef struct neap_session_stats {
  int64_t n_step, last_ns, min_ns, median_ns;
  int64_t held_bytes; /* what the session's workspace owns now: neap_workspace_held_bytes */
  /* DATA bytes live in the counted allocator, whoever's, after the last step */
  int64_t process_bytes;
  int64_t planned_bytes; /* what the plan promised for all regions */
  int64_t n_alloc_last;  /* Neap allocations during the last step */
} neap_session_stats;
neap_session_stats neap_session_stats_read(const neap_session *session);
/* What a dynamic session has made of the shapes it met; zeros for all others. Its program is that
 * of the last run. */
typedef struct neap_dynamic_stats {
  /* programs made and dropped; runs begun anew because a length was another */
  int64_t n_made, n_dropped, n_restart;
  int64_t cache_bytes; /* of the programs at hand, in Neap's allocator */
  int n_program;       /* at hand */
} neap_dynamic_stats;
neap_dynamic_stats neap_session_dynamic_stats(const neap_session *session);
int neap_session_n_steps(const neap_session *session);
/* per plan step; NULL of a dynamic session */
const neap_step_times *neap_session_times(const neap_session *session);

/* Compiles, runs once and lets go: what it made in the workspace stays, the program does not.
 * `warning` of both: room for the first one of a session, "" before the call; may be NULL. */
neap_status neap_driver_run_once(neap_workspace *ws, const neap_net *net,
                                 const neap_compile_options *options, char *warning,
                                 neap_error *error);
/* Runs a tree of steps (neap.h says what a step may say). Errors of the tree come before anything
 * runs; later the first failure stops all. */
neap_status neap_driver_run_steps(neap_workspace *ws, const neap_step *root,
                                  const neap_compile_options *options, char *warning,
                                  neap_error *error);

/* A range of batch sizes: one plan, made for the largest, in whose memory every smaller one runs.
 * Choices, order and addresses are those of the largest wherever the smaller graph differs in sizes
 * alone and its kernels can be had; else it is planned on its own, with no more scratch and no more
 * arena if that can be, else within the range's budget and total.
 *
 * INVARIANT: programs of one range whose graphs differ in sizes alone hold the same bytes in one
 * workspace, whichever run and in whatever order.
 *
 * `net` and options->graph are those of the largest batch. Under policy `pool`, which has no
 * addresses to share, each batch is planned on its own, and its blobs have the room of the
 * largest's. Executor `dynamic` has no use for a range: ARGUMENT error. */
neap_status neap_range_new(const neap_net *net, const neap_compile_options *options,
                           neap_range **out, neap_error *error);
/* the largest batch's; graph may be NULL */
const neap_plan *neap_range_most(const neap_range *range, const neap_graph **graph);
/* Plan of a smaller batch: `net` is built for it, or is the same net, with options->graph giving
 * its inputs' types. The other options must be the range's. *out: owned; `hit` is false, and
 * plan_id 0 but for the largest: plans of smaller ones are not stored. */
neap_status neap_range_plan(const neap_range *range, const neap_net *net,
                            const neap_compile_options *options, neap_forecast *out,
                            neap_error *error);
/* As neap_driver_compile. The range may be freed before the session. */
neap_status neap_range_compile(const neap_range *range, neap_workspace *ws, const neap_net *net,
                               const neap_compile_options *options, neap_session **out,
                               neap_error *error);

/* Sets the inputs of `graph`: the types of the net's at a batch of `batch` rows; lists in `room`.
 * The batch is the first dimension of the first input that has one; inputs that declare the same
 * number there change with it. ARGUMENT error when none has one. */
neap_status neap_batch_inputs(const neap_net *net, int64_t batch, neap_graph_options *graph,
                              neap_arena *room, neap_error *error);

/* The batch of the graph that would be built: neap_graph_batch, without building it. */
int64_t neap_batch_asked(const neap_net *net, const neap_graph_options *graph);

/* A limit, or the system, has refused the net before any step: a run with what was asked for, which
 * has `error`. Any other error leaves no run. */
void neap_driver_note_refusal(const neap_net *net, const neap_compile_options *options,
                              const neap_error *error);

/* The largest batch whose plan fits (fit_batch.c). */
typedef struct neap_fit_by {
  /* As in neap_fit_search (neap/batch.h), which api puts into these words. */
  neap_status (*net)(void *context, int64_t n, const neap_net **net, neap_compile_options *options,
                     neap_error *error);
  void *context;
  int64_t max; /* no larger batch is tried */
  const neap_net *update, *hold;
} neap_fit_by;
/* *out (may be NULL): its plan, owned by the caller. BUDGET error with the least that would do when
 * not even 1 fits. Nothing is allocated but the plans. */
neap_status neap_driver_fit(const neap_fit_by *fit, int64_t *batch, neap_forecast *out,
                            neap_error *error);
/* The same for a net that is one at all batches, by neap_batch_inputs. */
neap_status neap_driver_fit_net(const neap_net *net, const neap_compile_options *options,
                                int64_t max, int64_t *batch, neap_forecast *out, neap_error *error);

/* neap_micro_beside (neap/batch.h). */
neap_status neap_driver_beside(const neap_net *update, const neap_net *hold,
                               const neap_compile_options *options, neap_beside *beside,
                               neap_error *error);

/* The same with sessions of its own: neap.h says what holds. */
typedef struct neap_micro neap_micro;
/* `net` is the whole training net; options->graph gives no inputs. rows 0: as many as the limits
 * allow without recomputation, up to the net's batch. */
neap_status neap_micro_new(neap_workspace *ws, const neap_net *net, int64_t rows,
                           const neap_compile_options *options, neap_micro **out,
                           neap_error *error);
void neap_micro_free(neap_micro *micro);
/* the first of its programs'; "" when nothing was lost */
const char *neap_micro_warning(const neap_micro *micro);
neap_session *neap_micro_part_session(const neap_micro *micro); /* of `rows` rows */
neap_session *neap_micro_update_session(const neap_micro *micro);
neap_session *neap_micro_hold_session(const neap_micro *micro); /* NULL: batches are not held */
/* A batch: all rows that the inputs have now. */
typedef struct neap_micro_batch {
  int n_weight;
  const double *weight; /* by micro-batch; NULL: shares of the rows, or 1 where the loss is a sum */
  double count;         /* what its mean counts; negative: its rows */
  bool hold;            /* no update yet */
} neap_micro_batch;
neap_status neap_micro_take(neap_micro *micro, const neap_micro_batch *batch, neap_error *error);

/* A chain of layers that is run layer by layer, and whose memory lies open: params, outputs, inputs
 * and caches, each entry with data and diff. neap.h says what a layer is, and what its blobs are
 * called in the workspace. A layer has a program of its own for evaluation, for the forward half of
 * training, and for the backward half (build/half.c); each is planned as a range for the
 * largest batch, and made when it is first asked for.
 *
 * INVARIANT: a value is one blob of the workspace: an input is the output of the layer below, a
 * cached value what the forward half wrote. The chain's entries hold references, so that their
 * bytes live until the last one is dropped. */
typedef struct neap_chain neap_chain;
/* The nets are copied; `ws` is retained, and must be used as one thread's. Makes and fills
 * parameters and state that the workspace lacks. Errors name layer and net. */
neap_status neap_chain_new(neap_workspace *ws, int n, const neap_net *const *layer,
                           int64_t max_batch, const neap_compile_options *options, neap_chain **out,
                           neap_error *error);
void neap_chain_free(neap_chain *chain);
/* The nets of a batch whose ops depend on it (a factor, a shape); otherwise those given first serve
 * every batch. Once a batch. */
neap_status neap_chain_add_batch(neap_chain *chain, int64_t batch, const neap_net *const *layer,
                                 neap_error *error);
neap_status neap_chain_forward(neap_chain *chain, bool train, neap_error *error);
neap_status neap_chain_backward(neap_chain *chain, neap_error *error);
void neap_chain_clear(neap_chain *chain);
int neap_chain_n(const neap_chain *chain, neap_list list);
neap_status neap_chain_find_param(const neap_chain *chain, const char *name, neap_chain_item *out,
                                  neap_error *error);
neap_status neap_chain_drop(neap_chain *chain, neap_list list, int i, neap_error *error);
/* Retains the tensor. */
neap_status neap_chain_attach(neap_chain *chain, const char *name, const neap_tensor *tensor,
                              neap_error *error);

/* Drops the kernels and scratch that neap_run_op keeps for this thread. */
void neap_eager_clear(void);

#endif
