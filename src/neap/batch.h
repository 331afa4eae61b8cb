/* neap/batch.h: nets at several batches in one memory, the largest batch that fits, and large
 * batches in parts. Part of neap.h, which includes it.
 */
#include "neap.h"
#ifndef NEAP_BATCH_PART_H
#define NEAP_BATCH_PART_H

/* ---- batches up to a largest, in one memory -------------------------------------------------- */

/* The plan of a net at its largest batch. Sessions of smaller batches take its choices and
 * addresses where they can, and never more bytes in any region: in one workspace they all hold what
 * the largest holds, in whatever order they run. A kernel that a size can't have is replaced by one
 * that needs no more; only a batch whose graph does more than the largest one's may take more
 * arena, within the options' limits. The batch is the first dimension of the net's first input;
 * inputs that declare the same number there change with it. An op whose attributes spell the batch
 * out (a Reshape) stands in the way: then the error names it. */
typedef struct neap_range neap_range;
/* `max_batch` 0: the largest batch is the net's own, or what options->inputs make of it. Under
 * policy "pool" what batches share is the pool and the room of the largest one's blobs; executor
 * "dynamic" has no use for a range: ARGUMENT error. End it with neap_range_free. */
NEAP_API neap_status neap_range_open(const neap_net *net, int64_t max_batch,
                                     const neap_options *options, neap_range **out,
                                     neap_error *error);
/* A session of `batch` rows of the range's net; 0: as many as the net, or options->inputs, say.
 * Options are those of the range. SHAPE error for more rows than it has. Sessions may outlive the
 * range. */
NEAP_API neap_status neap_range_session(const neap_range *range, neap_workspace *workspace,
                                        const neap_net *net, int64_t batch,
                                        const neap_options *options, neap_session **out,
                                        neap_error *error);
NEAP_API neap_figures neap_range_figures(const neap_range *range); /* of the largest batch */
/* What the database failed to do for the largest batch's plan; "" when nothing. Borrowed. */
NEAP_API const char *neap_range_warning(const neap_range *range);
/* neap_net_count of a smaller batch, whose `after` is that of its plan in the range. */
NEAP_API neap_status neap_range_count(const neap_range *range, const neap_net *net,
                                      const neap_options *options, neap_counts *before,
                                      neap_counts *after, neap_error *error);
NEAP_API void neap_range_free(neap_range *range);
/* The inputs of the net whose shapes change with the batch, at a batch of `batch` rows: a list of
 * *n for options.inputs, ended by neap_free. ARGUMENT error when no input has a batch. */
NEAP_API neap_status neap_net_batch_inputs(const neap_net *net, int64_t batch, neap_input **out,
                                           int *n, neap_error *error);

/* ---- the batch that fits, and batches in parts ----------------------------------------------- */

/* The largest batch whose plan keeps to options.budget and total, of which one at least is given:
 * one row more does not, or is more than `max` (0: 65536); both have been planned. A net that
 * trains may recompute to fit more rows, unless options.recompute forbids it. The batch is what it
 * is in a range. `figures` (may be NULL): of that plan. BUDGET with least_bytes when not even one
 * row fits. Nothing of tensors is allocated. */
NEAP_API neap_status neap_net_fit_batch(const neap_net *net, const neap_options *options,
                                        int64_t max, int64_t *batch, neap_figures *figures,
                                        neap_error *error);

/* The same for nets that are made for each batch. */
typedef struct neap_fit_search {
  /* The net of a batch of n rows, and how to plan it, limits included: both are the callee's and
   * stay until the next call. */
  neap_status (*net)(void *context, int64_t n, const neap_net **net, neap_options *options,
                     neap_error *error);
  void *context;
  int64_t max; /* no larger batch is tried */
  /* the nets are those of micro-batches, whose update must find room beside them; NULL: they are
   * not */
  const neap_net *update;
  const neap_net *hold; /* batches are held before an update; NULL: they are not */
} neap_fit_search;
/* *plan (may be NULL): of that batch. An error of `net` ends the search. */
NEAP_API neap_status neap_fit_batch(const neap_fit_search *search, int64_t *batch,
                                    neap_memory_plan **plan, neap_error *error);

/* Gradient accumulation: one step of a large batch as micro-batches, in the memory of one of them.
 * `net` is the whole training net: forward, gradients, and what follows from them (clipping, update
 * ops). A run adds the gradients of the micro-batches up, each with its share of the rows, and then
 * updates once. Where the loss is a mean over rows, without batch statistics and random ops, that
 * is the step of the large batch, within rounding. A net that declares 1024 rows, trained in half a
 * MiB and the rows themselves:
 *
 *   neap_micro *micro = NULL;
 *   if (neap_micro_open(ws, net, 0, &(neap_options){.total = 1 << 19}, &micro, &error)) goto end;
 *   for (int step = 0; step < n_step; step++) {
 *     if (neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){1024, 2}, x[step], &error))
 *       goto end;
 *     if (neap_workspace_write(ws, "label", NEAP_DTYPE_I32, 1, (int64_t[]){1024}, label[step],
 *                              &error))
 *       goto end;
 *     if (neap_micro_run(micro, 0, NULL, &error)) goto end;
 *   }
 *   if (neap_workspace_read(ws, "loss", NEAP_DTYPE_F32, 1, &loss, &error)) goto end;
 *   printf("loss %.4f, %lld rows at a time\n", (double)loss, (long long)neap_micro_rows(micro));
 *
 * Floating-point outputs that have one element in a micro-batch (a mean loss, an accuracy) are the
 * weighted means over all of them, other outputs are of the last one. The gradient of a parameter
 * can be read under its name: it is that of the large batch.
 */
typedef struct neap_micro neap_micro;
/* `rows` of a micro-batch, at most the batch that the net declares; 0: as many as options.budget
 * and total allow with every op run once, since smaller micro-batches cost less than recomputing.
 * The total holds the micro-batch and the update, not the large batch's inputs, which are the
 * caller's. GRAPH error that names the op where one reads both gradients and what depends on the
 * batch. The net may be freed; the workspace is retained. */
NEAP_API neap_status neap_micro_open(neap_workspace *workspace, const neap_net *net, int64_t rows,
                                     const neap_options *options, neap_micro **out,
                                     neap_error *error);
/* One step of all rows that the workspace's inputs have now, any number of them; the last
 * micro-batch may be smaller. `weight` (NULL: by rows) has one entry a micro-batch: for a loss
 * whose mean does not count every row. A failed step, an interrupted one too, leaves parameters,
 * optimizer state, running statistics and the step counter as before. */
NEAP_API neap_status neap_micro_run(neap_micro *micro, int n_weight, const double *weight,
                                    neap_error *error);
/* Accumulation over several batches, with options.accumulate: as neap_micro_run, but without an
 * update. The gradients are added to those of the batches added since the last update, and the next
 * neap_micro_run, or neap_micro_update, updates by them all: of a mean each batch by what it
 * counts, so that batches of 3, 3 and 2 rows are the step of their 8 rows, within rounding; a sum
 * as it is. `count`: what the batch's mean counts, where that is not its rows (0: its rows; then
 * neap_micro_run's last batch counts by its rows too: add it, and update). What is added is held in
 * state of its own ("@held/" and the gradient's name): as many bytes as the gradients, which a
 * total counts. A batch that fails changes nothing of it. How much is held only the handle knows:
 * save a workspace between updates. ARGUMENT error without options.accumulate. */
NEAP_API neap_status neap_micro_add(neap_micro *micro, int n_weight, const double *weight,
                                    double count, neap_error *error);
/* An update by what is held; none, and OK, when no batch is. */
NEAP_API neap_status neap_micro_update(neap_micro *micro, neap_error *error);
/* batches added since the last update */
NEAP_API int64_t neap_micro_n_held(const neap_micro *micro);
NEAP_API int64_t neap_micro_rows(const neap_micro *micro);
/* Of micro-batch and update together: what both need is counted once, the arena is the larger one.
 * n_step counts updates. */
NEAP_API neap_figures neap_micro_figures(const neap_micro *micro);
NEAP_API void neap_micro_free(neap_micro *micro);
/* The two nets themselves, for steps of one's own. `micro` reads inputs "micro.weight", the share
 * of its rows, and "micro.keep", 0 in the first micro-batch of a step and else 1 (both f32, shape
 * ()); its accumulators are called as the gradients. `update` reads those and counts its runs in
 * state "micro.steps". Run both in one workspace, or micro-batches in frames that bind parameters
 * and gradients. */
NEAP_API neap_status neap_net_split_micro(const neap_net *net, neap_net **micro, neap_net **update,
                                          neap_error *error);
/* What an update holds beside the program of a micro-batch: state and inputs of its own, whatever
 * the total; and what batches held before it take (`hold`, of neap_net_split_hold; NULL: none are).
 * For options.beside of the micro-batch. BUDGET error when an arena can't keep the budget. */
NEAP_API neap_status neap_micro_beside(const neap_net *update, const neap_net *hold,
                                       const neap_options *options, neap_beside *beside,
                                       neap_error *error);

/* One step of a large batch by sessions of one's own, of the nets that neap_net_split_micro gives,
 * in one workspace. */
typedef struct neap_micro_part {
  neap_session *session; /* for n rows */
  int64_t n;             /* the next n rows */
  double weight;         /* of its gradients, and of its outputs in their mean */
} neap_micro_part;
typedef struct neap_micro_input {
  const char *name;
  neap_tensor rows; /* all rows of the step along the first dimension; borrowed */
} neap_micro_input;
typedef struct neap_micro_step {
  int n_input, n_part;
  const neap_micro_input *input;
  const neap_micro_part *part;
  /* What runs after the parts, in this order: the update; with batches held before it, join and
   * update; or hold alone. The last one makes the step happen. */
  neap_session *after[2];
  double kept, added; /* shares of what is held and of this batch, for hold and join */
  /* while a part runs, its inputs are the rows where they lie: dense, of blobs that hold their own
   * again after the step; else the rows are copied into the blobs */
  bool lend;
} neap_micro_step;
/* Runs the parts (none: an update by what is held alone), then what follows. Floating-point outputs
 * of a part's net that have one element become their weighted sums; others are of the last part. A
 * failure before the update has committed leaves parameters, state, what the parts wrote included,
 * and the step counter as before. */
NEAP_API neap_status neap_workspace_run_micro(neap_workspace *workspace,
                                              const neap_micro_step *step, neap_error *error);

#endif
