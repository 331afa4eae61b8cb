/* micro.c: gradient accumulation: one step of a large batch, run as micro-batches.
 *
 * A part is one run of one program: forward, loss, backward, and each parameter's gradient added to
 * its accumulator with the part's share of the rows as weight. After the last one the update reads
 * the accumulators (net/split.c). Parts of one size share a program; the last part may be smaller,
 * and its program runs in the memory of the whole ones.
 *
 * A part of weight 0, whose labels are all to be ignored, is left out: its loss is a mean of
 * nothing, and 0 times that is no number. Only where no part has a weight they run, so that the
 * loss says so.
 *
 * INVARIANT: a step happens as a whole: parameters and optimizer state are written by the update
 * alone; what the parts write (running statistics) and the workspace's step counter, which every
 * part raises, go back when the update did not come to its end.
 *
 * What differs from the large batch: batch norm sees micro-batches, and its running statistics
 * count each of them; random ops draw by the step counter, so masks are those of as many steps.
 */
#include "driver/driver_int.h"

#include <stdio.h>
#include <string.h>

/* ---- one step -------------------------------------------------------------------------------- */

/* A step under way. Lists in `room`. */
typedef struct runner {
  neap_workspace *ws;
  const neap_micro_step *step;
  neap_tensor scalar; /* f32: weight and keep are fed from it */
  neap_tensor *own;   /* by input: what a blob holds when it is not lent; {0}: it holds that */
  int n_mean;
  const char **mean; /* outputs that are averaged */
  double *sum;
  neap_workspace_mark *before; /* what the parts write and keep, as it was */
  neap_arena room;
} runner;

/* SHAPE error unless all inputs have the rows of all parts. */
static neap_status check_rows(const neap_micro_step *step, neap_error *error) {
  /* Parts are rows of the batch, one behind the other, in all inputs alike. */
  int64_t rows = 0;
  for (int p = 0; p < step->n_part; p++) rows += step->part[p].n;
  for (int i = 0; i < step->n_input; i++) {
    const neap_shape *shape = &step->input[i].rows.shape;
    if (shape->n_dim > 0 && shape->dim[0] == rows) continue;
    if (error != NULL && error->code == NEAP_OK)
      snprintf(error->blob, sizeof error->blob, "%s", step->input[i].name);
    return neap_fail(
      error, NEAP_SHAPE, "input \"%s\": expected %lld rows, as the batch has, got %lld",
      step->input[i].name, (long long)rows, (long long)(shape->n_dim > 0 ? shape->dim[0] : 0));
  }
  return NEAP_OK;
}

/* The floating-point outputs of one element, by the first part's program. */
static neap_status begin(runner *r, neap_error *error) {
  /* One scalar serves all that is fed: weight, keep, shares. */
  NEAP_TRY(neap_tensor_new(&r->scalar, NEAP_DTYPE_F32, &(neap_shape){0}, error));
  if (r->step->n_part == 0) return NEAP_OK;

  /* All parts have the same outputs. Those of one number, such as the loss, are averaged over the
   * parts. */
  const neap_graph *graph = neap_program_graph(neap_session_program(r->step->part[0].session));
  size_t n = (size_t)graph->n_output;
  r->own = neap_arena_alloc(&r->room, (size_t)r->step->n_input * sizeof *r->own);
  r->mean = neap_arena_alloc(&r->room, n * sizeof *r->mean);
  r->sum = neap_arena_alloc(&r->room, n * sizeof *r->sum);
  if (r->own == NULL || r->mean == NULL || r->sum == NULL)
    return neap_fail_memory(error, n * sizeof *r->sum, "a step's sums");
  for (int k = 0; k < graph->n_output; k++) {
    const neap_value *value = &graph->value[graph->output[k]];
    if (value->role == NEAP_ROLE_OUTPUT && neap_shape_elems(&value->type.shape) == 1 &&
        neap_dtype_is_float(value->type.dtype))
      r->mean[r->n_mean++] = value->name;
  }
  return NEAP_OK;
}

/* Parts of one step write the same blobs. What runs last puts itself back. */
static neap_status mark_step(runner *r, neap_error *error) {
  neap_program *program[2];
  int n = 0;
  if (r->step->n_part > 0) program[n++] = neap_session_program(r->step->part[0].session);
  /* The first of two programs after the parts: the second may fail when the first has written. */
  if (r->step->after[0] != NULL && r->step->after[1] != NULL)
    program[n++] = neap_session_program(r->step->after[0]);
  return neap_workspace_mark_runs(r->ws, n, program, &r->before, error);
}

static neap_status feed_scalar(runner *r, const char *name, double value, neap_error *error) {
  *(float *)(void *)neap_tensor_data(&r->scalar) = (float)value;
  return neap_workspace_feed(r->ws, name, &r->scalar, false, error);
}

/* Rows from, from + 1, .. of every input into the blobs that the part reads. */
static neap_status place(runner *r, int64_t from, int64_t n, neap_error *error) {
  for (int i = 0; i < r->step->n_input; i++) {
    /* A view of the batch's rows: with `lend` the blob takes it as it is, and nothing is copied. */
    const neap_micro_input *input = &r->step->input[i];
    neap_tensor rows;
    NEAP_TRY(neap_tensor_narrow(&input->rows, 0, from, n, 1, &rows, error));
    /* exchange leaves in `rows` what the blob had: its own before the first part, then the rows of
     * the part before, which are views of the batch and may go. */
    neap_status status = r->step->lend
                           ? neap_workspace_exchange(r->ws, input->name, &rows, error)
                           : neap_workspace_feed(r->ws, input->name, &rows, false, error);
    bool is_own = status == NEAP_OK && r->step->lend && r->own[i].storage == NULL;
    if (is_own)
      r->own[i] = rows;
    else
      neap_tensor_fini(&rows);
    NEAP_TRY(status);
  }
  return NEAP_OK;
}

/* Gives lent blobs what they held. Can't fail: the blobs are there. */
static void take_back(runner *r) {
  if (r->own == NULL) return; /* it ended before anything was lent */
  for (int i = 0; i < r->step->n_input; i++) {
    if (r->own[i].storage == NULL) continue;
    (void)neap_workspace_exchange(r->ws, r->step->input[i].name, &r->own[i], NULL);
    neap_tensor_fini(&r->own[i]);
  }
}

/* Reads the outputs to be averaged, or with `write` gives them their means. */
static neap_status visit_means(runner *r, double weight, bool write, neap_error *error) {
  /* Sums are kept in f64, and become the blob's own dtype once. */
  for (int k = 0; k < r->n_mean; k++) {
    neap_tensor value;
    NEAP_TRY(neap_workspace_view(r->ws, r->mean[k], &value, NULL, error));
    if (write)
      neap_element_set(value.dtype, neap_tensor_data(&value), 0, r->sum[k]);
    else
      r->sum[k] += weight * neap_element_get(value.dtype, neap_tensor_data(&value), 0);
    neap_tensor_fini(&value);
  }
  return NEAP_OK;
}

static neap_status run_parts(runner *r, neap_error *error) {
  int64_t next = 0; /* row that the next part begins at */
  /* The first part that runs writes the accumulators, all others add to them; so nothing has to be
   * cleared between steps. */
  bool keep =
    false; /* whether accumulators hold something already: the first part writes over it */
  bool weighted = false;
  for (int p = 0; p < r->step->n_part; p++) weighted = weighted || r->step->part[p].weight != 0;
  for (int p = 0; p < r->step->n_part; p++) {
    const neap_micro_part *part = &r->step->part[p];
    const int64_t from = next;
    next += part->n;
    if (weighted && part->weight == 0) continue;
    NEAP_TRY(place(r, from, part->n, error));
    NEAP_TRY(feed_scalar(r, NEAP_MICRO_WEIGHT, part->weight, error));
    NEAP_TRY(feed_scalar(r, NEAP_MICRO_KEEP, keep, error));
    NEAP_TRY(neap_session_run(part->session, error));
    NEAP_TRY(visit_means(r, part->weight, false, error));
    keep = true;
  }
  return visit_means(r, 0, true, error);
}

/* The update, or what takes its place. Without batches held nothing reads the shares. */
static neap_status run_after(runner *r, neap_error *error) {
  const neap_micro_step *step = r->step;
  bool shares = step->kept != 0 || step->added != 0;
  if (shares) NEAP_TRY(feed_scalar(r, NEAP_MICRO_KEPT, step->kept, error));
  if (shares) NEAP_TRY(feed_scalar(r, NEAP_MICRO_ADDED, step->added, error));
  for (int i = 0; i < NEAP_COUNT(step->after); i++)
    if (step->after[i] != NULL) NEAP_TRY(neap_session_run(step->after[i], error));
  return NEAP_OK;
}

neap_status neap_workspace_run_micro(neap_workspace *ws, const neap_micro_step *step,
                                     neap_error *error) {
  /* What must be undone if the update does not come to its end: the counter, and what the parts
   * write. */
  runner r = {.ws = ws, .step = step};
  uint32_t before = neap_workspace_step(ws);
  if (step->n_part < 1 && step->kept == 0)
    return neap_fail(error, NEAP_ARGUMENT, "a step has at least one micro-batch");
  NEAP_TRY(check_rows(step, error)); /* without parts there are no inputs */
  /* Everything is prepared and marked before the first part runs. */
  neap_status status = begin(&r, error);
  if (status == NEAP_OK) status = mark_step(&r, error);
  if (status == NEAP_OK && step->n_part > 0) status = run_parts(&r, error);
  take_back(&r); /* before the update, and whether or not the parts ran */
  if (status == NEAP_OK) status = run_after(&r, error);
  if (status != NEAP_OK) {
    neap_workspace_mark_undo(r.before, 0, NULL);
    neap_workspace_rewind_step(ws, before);
  }
  neap_workspace_mark_free(r.before);
  neap_tensor_fini(&r.scalar);
  neap_arena_fini(&r.room);
  return status;
}

/* ---- with sessions of its own ---------------------------------------------------------------- */

struct neap_micro {
  neap_workspace *ws; /* retained */
  /* the last two NULL unless batches are held (net/hold.c) */
  neap_net *net, *update_net, *hold_net, *join_net;
  /* of the parts, whose total counts what the update holds beside them */
  neap_compile_options options;
  neap_compile_options update_options; /* lists of both in `room` */
  neap_range *range; /* of the parts; NULL before the first, and with executor `dynamic` */
  neap_session *whole, *tail, *update, *hold, *join;
  neap_run *run; /* that all of them are a part of; NULL: the caller's, or none */
  int64_t n_update;
  bool sums;               /* the loss is a sum, not a mean: batches held count whole */
  int64_t n_held;          /* batches since the last update, */
  double held;             /* and what their means count */
  int64_t rows, tail_rows; /* of a whole part; of the last tail, 0: there was none */
  int n_input;
  const neap_input *input; /* those with the batch */
  char warning[256];       /* of the search for the most rows */
  neap_arena room;
};

void neap_micro_free(neap_micro *micro) {
  /* Sessions before the nets and ranges that they were made of, and the workspace last. */
  if (micro == NULL) return;
  neap_session_free(micro->whole);
  neap_session_free(micro->tail);
  neap_session_free(micro->update);
  neap_session_free(micro->hold);
  neap_session_free(micro->join);
  neap_run_close(micro->run);
  neap_range_free(micro->range);
  neap_net_free(micro->net);
  neap_net_free(micro->update_net);
  neap_net_free(micro->hold_net);
  neap_net_free(micro->join_net);
  neap_arena_fini(&micro->room);
  if (micro->ws != NULL) neap_workspace_release(micro->ws);
  neap_free(micro);
}

neap_session *neap_micro_part_session(const neap_micro *micro) { return micro->whole; }
neap_session *neap_micro_update_session(const neap_micro *micro) { return micro->update; }
neap_session *neap_micro_hold_session(const neap_micro *micro) { return micro->hold; }
int64_t neap_micro_n_held(const neap_micro *micro) { return micro->n_held; }

const char *neap_micro_warning(const neap_micro *micro) {
  const neap_session *session[] = {micro->whole, micro->tail, micro->update, micro->hold,
                                   micro->join};

  /* The first one, in the order in which they were made. */
  const char *warning = micro->warning;
  if (warning[0] == '\0' && micro->range != NULL) warning = neap_range_warning(micro->range);
  for (int i = 0; i < NEAP_COUNT(session); i++)
    if (warning[0] == '\0' && session[i] != NULL) warning = neap_session_warning(session[i]);
  return warning;
}

int64_t neap_micro_rows(const neap_micro *micro) { return micro->rows; }

/* The names of the inputs with the batch, and the rows that the net declares. */
static neap_status find_inputs(neap_micro *micro, int64_t *declared, neap_error *error) {
  neap_graph_options graph = {0};
  NEAP_TRY(neap_batch_inputs(micro->net, 1, &graph, &micro->room, error));
  micro->input = graph.input;
  micro->n_input = graph.n_input;
  *declared = neap_net_find_blob(micro->net, graph.input[0].name)->type.shape.dim[0];
  return NEAP_OK;
}

/* A session of n rows, in the memory of a whole part. The first one makes the range. */
static neap_status open_part(neap_micro *micro, int64_t n, neap_session **out, neap_error *error) {
  /* A part is the net at another batch. With executor `dynamic` one program serves all sizes. */
  neap_compile_options options = micro->options;
  neap_arena room = {0};
  neap_status status = neap_batch_inputs(micro->net, n, &options.graph, &room, error);
  bool planned = !options.dynamic;
  if (status == NEAP_OK && planned && micro->range == NULL)
    status = neap_range_new(micro->net, &options, &micro->range, error);
  if (status == NEAP_OK)
    status = planned ? neap_range_compile(micro->range, micro->ws, micro->net, &options, out, error)
                     : neap_driver_compile(micro->ws, micro->net, &options, out, error);
  neap_arena_fini(&room);
  return status;
}

/* One run for all programs, unless the caller has one and counts its steps. */
static neap_status take_run(neap_micro *micro, int64_t declared, const neap_compile_options *given,
                            neap_error *error) {
  const neap_run_about about = {.net = neap_net_name(micro->net),
                                .script = given->script,
                                .tag = given->tag,
                                .batch = declared};
  if (given->run == NULL) NEAP_TRY(neap_run_open(given->store, &about, &micro->run, error));
  if (given->run == NULL) micro->options.run = micro->update_options.run = micro->run;
  return NEAP_OK;
}

/* What the options say for the nets of parts and update: mem_param translated, and names to keep
 * where the net has them. */
static neap_status settle_options(neap_micro *micro, const neap_compile_options *given,
                                  neap_error *error) {
  /* What both have in common; texts and lists are copied, since programs are made later too. */
  neap_compile_options *parts = &micro->options, *update = &micro->update_options;
  NEAP_TRY(neap_mem_param_resolve(micro->net, given, &micro->room, parts, error));
  if (given->engine != NULL && (parts->engine = neap_intern(given->engine)) == NULL)
    return neap_fail_memory(error, strlen(given->engine), "a name");
  parts->graph.bank = neap_banks_copy(&micro->room, given->graph.n_bank, given->graph.bank);
  if (parts->graph.bank == NULL)
    return neap_fail_memory(error, sizeof *parts->graph.bank, "memory banks");
  *update = *parts;
  size_t bytes = (size_t)parts->graph.n_keep * sizeof(char *);
  const char **of_parts = neap_arena_alloc(&micro->room, bytes),
             **of_update = neap_arena_alloc(&micro->room, bytes);
  if (of_parts == NULL || of_update == NULL) return neap_fail_memory(error, bytes, "names to keep");

  /* A name goes to the nets that have it; one that neither has goes to the parts, which refuse
   * it. */
  int n = parts->graph.n_keep;
  parts->graph.n_keep = update->graph.n_keep = 0;
  for (int i = 0; i < n; i++) {
    const char *name = neap_intern(parts->graph.keep[i]);
    if (name == NULL) return neap_fail_memory(error, 64, "a name");
    bool in_update = neap_net_find_blob(micro->update_net, name) != NULL;
    if (in_update) of_update[update->graph.n_keep++] = name;
    if (!in_update || neap_net_find_blob(micro->net, name) != NULL)
      of_parts[parts->graph.n_keep++] = name;
  }
  update->graph.n_loss = update->graph.n_diff = 0; /* they are of the parts */
  parts->graph.keep = of_parts;
  update->graph.keep = of_update;
  return NEAP_OK;
}

/* Rows of a part: those asked for, or the most that fit. ARGUMENT error for rows that can't be. */
static neap_status settle_rows(neap_micro *micro, int64_t rows, int64_t declared,
                               neap_error *error) {
  const char *name = neap_net_name(micro->net);
  const neap_compile_options *options = &micro->options;
  if (rows < 0 || rows > declared)
    return neap_fail(error, NEAP_ARGUMENT,
                     "net \"%s\": rows of a micro-batch expects 0 (as many as fit) to %lld, the "
                     "net's batch, got %lld",
                     name, (long long)declared, (long long)rows);
  if (rows == 0 && options->plan.budget_bytes == 0 && options->total_bytes == 0)
    return neap_fail(error, NEAP_ARGUMENT,
                     "net \"%s\": rows 0 asks for as many as fit: give a budget or a total", name);
  if (rows == 0) micro->options.no_recompute = true; /* smaller micro-batches cost less */
  /* Parts and update are held at the same time: what the update takes is not there for the
   * parts. */
  NEAP_TRY(neap_driver_beside(micro->update_net, micro->hold_net, &micro->update_options,
                              &micro->options.beside, error));
  micro->rows = rows;

  /* Most rows that fit, by plans alone. */
  if (rows > 0) return NEAP_OK;
  neap_forecast most;
  NEAP_TRY(neap_driver_fit_net(micro->net, options, declared, &micro->rows, &most, error));
  memcpy(micro->warning, most.warning, sizeof micro->warning);
  neap_forecast_fini(&most);
  return NEAP_OK;
}

/* Names to keep are of the parts and of the update. */
static neap_status open_hold(neap_micro *micro, neap_error *error) {
  neap_compile_options options = micro->update_options;
  options.graph.n_keep = 0;
  if (micro->hold_net == NULL) return NEAP_OK;
  NEAP_TRY(neap_driver_compile(micro->ws, micro->hold_net, &options, &micro->hold, error));
  return neap_driver_compile(micro->ws, micro->join_net, &options, &micro->join, error);
}

static neap_status fill(neap_micro *micro, const neap_net *net, int64_t rows,
                        const neap_compile_options *given, neap_error *error) {
  /* Three kinds of nets: forward and backward of a part; the update; and, where batches are held,
   * what adds a batch to those before it. */
  int64_t declared = 0;
  NEAP_TRY(neap_net_split_micro(net, &micro->net, &micro->update_net, error));
  if (given->accumulate != NEAP_ACCUMULATE_NO)
    NEAP_TRY(neap_net_split_hold(micro->update_net, &micro->hold_net, &micro->join_net, error));
  micro->sums = given->accumulate == NEAP_ACCUMULATE_SUM;
  NEAP_TRY(find_inputs(micro, &declared, error));
  NEAP_TRY(settle_options(micro, given, error));
  NEAP_TRY(take_run(micro, declared, given, error));
  NEAP_TRY(settle_rows(micro, rows, declared, error));

  /* Programs in the order in which a step runs them. */
  NEAP_TRY(open_part(micro, micro->rows, &micro->whole, error));
  NEAP_TRY(neap_driver_compile(micro->ws, micro->update_net, &micro->update_options, &micro->update,
                               error));
  return open_hold(micro, error);
}

/* Several sessions are opened; what the first have made goes with the one that can't be. */
neap_status neap_micro_new(neap_workspace *ws, const neap_net *net, int64_t rows,
                           const neap_compile_options *options, neap_micro **out,
                           neap_error *error) {
  *out = NULL;
  neap_micro *micro = neap_alloc_zeroed(sizeof *micro);
  if (micro == NULL) return neap_fail_memory(error, sizeof *micro, "micro-batches");
  micro->ws = neap_workspace_retain(ws);

  /* Sessions make parameters; a mark takes them back where a later one fails. */
  neap_workspace_mark *before = NULL;
  neap_status status = neap_workspace_mark_new(ws, true, 0, NULL, &before, error);
  if (status == NEAP_OK) status = fill(micro, net, rows, options, error);
  if (status != NEAP_OK) {
    if (error != NULL && options->run == NULL) neap_driver_note_refusal(net, options, error);
    neap_micro_free(micro);
    neap_workspace_mark_undo(before, 0, NULL);
  } else {
    *out = micro;
  }
  neap_workspace_mark_free(before);
  return status;
}

/* ---- the step of the large batch ------------------------------------------------------------- */

/* Views of the large batch's inputs, where they lie; views[i] is the caller's to drop, whatever is
 * given back. *rows: theirs. */
static neap_status view_inputs(const neap_micro *micro, neap_micro_input *view, int64_t *rows,
                               neap_error *error) {
  for (int i = 0; i < micro->n_input; i++) {
    view[i].name = micro->input[i].name;
    NEAP_TRY(neap_workspace_view(micro->ws, micro->input[i].name, &view[i].rows, NULL, error));
  }
  const neap_shape *shape = &view[0].rows.shape;
  *rows = shape->n_dim > 0 ? shape->dim[0] : 0;
  if (*rows > 0) return NEAP_OK;
  return neap_fail(error, NEAP_SHAPE, "net \"%s\": input \"%s\" has no rows",
                   neap_net_name(micro->net), micro->input[0].name);
}

/* The session for a part of n rows: the tail's stays until another size comes. */
static neap_status session_for(neap_micro *micro, int64_t n, neap_session **out,
                               neap_error *error) {
  if (n != micro->rows && n != micro->tail_rows) {
    neap_session *fresh;
    NEAP_TRY(open_part(micro, n, &fresh, error));
    neap_session_free(micro->tail);
    micro->tail = fresh;
    micro->tail_rows = n;
  }
  *out = n == micro->rows ? micro->whole : micro->tail;
  return NEAP_OK;
}

static neap_status make_parts(neap_micro *micro, int64_t rows, const double *weight,
                              neap_micro_part *part, neap_error *error) {
  for (int64_t from = 0, p = 0; from < rows; from += micro->rows, p++) {
    int64_t n = NEAP_MIN(micro->rows, rows - from); /* the last one may be smaller */
    /* The mean of the batch is the sum of the parts' means by their rows; a sum counts each row
     * once already. */
    double share = micro->sums ? 1 : (double)n / (double)rows;
    part[p] = (neap_micro_part){.n = n, .weight = weight != NULL ? weight[p] : share};
    NEAP_TRY(session_for(micro, n, &part[p].session, error));
  }
  return NEAP_OK;
}

/* What runs after the parts of a batch whose mean counts `count`: the update, or with `hold` only a
 * sum. Shares of means add up to 1; of nothing that counts, nothing is kept. */
static void settle_after(const neap_micro *micro, double count, bool hold, neap_micro_step *step) {
  /* The mean over several batches is the sum of their means, each by its share of what counts. */
  double all = micro->held + count;
  bool has_held = micro->n_held > 0;
  if (hold || has_held) {
    /* Shares of a sum are 1 each, shares of a mean what each batch counts of all. */
    const bool is_mean = !micro->sums;
    step->kept = step->added = 1;
    if (is_mean) step->kept = all > 0 ? micro->held / all : 0;
    if (is_mean && all > 0) step->added = count / all;
    if (!has_held) step->kept = 0;
    step->after[0] = hold ? micro->hold : micro->join;
  }
  if (!hold) step->after[1] = micro->update;
}

static neap_status run_step(neap_micro *micro, const neap_micro_step *step, double count, bool hold,
                            neap_error *error) {
  const int64_t start_ns = neap_clock_ns();
  NEAP_TRY(neap_workspace_run_micro(micro->ws, step, error));
  /* A step of the training is an update, whatever its programs. */
  if (!hold) neap_run_step(micro->run, ++micro->n_update, neap_clock_ns() - start_ns);
  micro->n_held = hold ? micro->n_held + 1 : 0;
  micro->held = hold ? micro->held + count : 0;
  return NEAP_OK;
}

/* Lists in `room`. */
static neap_status run_in(neap_micro *micro, const neap_micro_batch *batch, neap_micro_input *input,
                          neap_arena *room, neap_error *error) {
  /* As many parts as the rows ask for. The caller's weights are one for each. */
  int64_t rows;
  NEAP_TRY(view_inputs(micro, input, &rows, error));
  int64_t n_part = (rows + micro->rows - 1) / micro->rows;
  if (n_part > INT32_MAX || (batch->weight != NULL && batch->n_weight != (int)n_part))
    return neap_fail(error, NEAP_ARGUMENT,
                     "net \"%s\": %lld rows are %lld micro-batches of %lld, got %d weights",
                     neap_net_name(micro->net), (long long)rows, (long long)n_part,
                     (long long)micro->rows, batch->n_weight);
  neap_micro_part *part = neap_arena_alloc(room, (size_t)n_part * sizeof *part);
  if (part == NULL)
    return neap_fail_memory(error, (size_t)n_part * sizeof *part, "a step's micro-batches");

  /* Programs before the step: one that can't be made leaves the step undone. */
  NEAP_TRY(make_parts(micro, rows, batch->weight, part, error));
  neap_micro_step step = {
    .n_input = micro->n_input, .input = input, .n_part = (int)n_part, .part = part, .lend = true};
  double count = batch->count < 0 ? (double)rows : batch->count;
  settle_after(micro, count, batch->hold, &step);
  return run_step(micro, &step, count, batch->hold, error);
}

neap_status neap_micro_take(neap_micro *micro, const neap_micro_batch *batch, neap_error *error) {
  /* Only programs that were made for it can hold a batch. */
  neap_arena room = {0};
  size_t bytes = (size_t)micro->n_input * sizeof(neap_micro_input);
  if (batch->hold && micro->hold == NULL)
    return neap_fail(error, NEAP_ARGUMENT,
                     "net \"%s\": batches can be added up when accumulate says whether the loss is "
                     "a mean or a sum",
                     neap_net_name(micro->net));
  neap_micro_input *input = neap_arena_alloc(&room, bytes);
  neap_status status = input != NULL ? run_in(micro, batch, input, &room, error)
                                     : neap_fail_memory(error, bytes, "a step's inputs");
  if (input != NULL)
    for (int i = 0; i < micro->n_input; i++) neap_tensor_fini(&input[i].rows);
  neap_arena_fini(&room);
  return status;
}

neap_status neap_micro_run(neap_micro *micro, int n_weight, const double *weight,
                           neap_error *error) {
  return neap_micro_take(
    micro, &(neap_micro_batch){.n_weight = n_weight, .weight = weight, .count = -1}, error);
}

neap_status neap_micro_update(neap_micro *micro, neap_error *error) {
  if (micro->n_held == 0) return NEAP_OK;
  neap_micro_step step = {.kept = 1, .after = {micro->join, micro->update}};
  return run_step(micro, &step, 0, false, error);
}
