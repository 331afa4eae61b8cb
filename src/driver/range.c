/* range.c: a range of batch sizes in the memory of its largest.
 *
 * The range keeps the largest batch's way: prepared graph, choices, laid-out graph, plan. A smaller
 * batch goes the same way with every decision given: prepare -> the same form? -> choose as there
 * -> lay out -> the same form? -> shrink -> verify. Where a step is refused (a rewrite that depends
 * on a size, a kernel that this size can't have), the batch is planned on its own with the largest
 * one's scratch and arena as limits: other choices, the same memory. Where not even that can be
 * (its graph does more than the largest one's), it gets what it needs, within the limits that the
 * caller gave: the arena grows.
 *
 * A program's constants (packed weights at inference) would be held once for every batch; so those
 * of a range pack in the arena.
 *
 * Parameters and state have no batch: what a net has of them lies there under its name, whatever
 * the size. A net made for another size may have some of its own (a mask), which are held for it.
 *
 * INVARIANT: what a range gives needs no more bytes than its largest batch in any region but the
 * arena, and there only where another graph can't do with them; and but parameters and state. It
 * keeps the budget and total of the range.
 */
#include "driver/driver_int.h"

#include <string.h>

struct neap_range {
  neap_way most; /* of the largest batch; `net` is not kept */
  /* what its graph was built of: the net's text, types of its inputs, names to keep */
  neap_buffer net_text;
  int n_input, n_keep;
  neap_input *input;
  const char **keep;
  neap_arena room; /* of these lists */
  size_t scratch_bytes;
  int64_t plan_id;   /* row in the store; 0: none */
  char warning[256]; /* what the store failed to do; "" when nothing */
};

/* ---- inputs at a batch ----------------------------------------------------------------------- */

/* Inputs that share the first one's first dimension are the batch; others, such as a learning rate
 * or a table, keep their shapes. Lists lie in `room`. */
neap_status neap_batch_inputs(const neap_net *net, int64_t batch, neap_graph_options *graph,
                              neap_arena *room, neap_error *error) {
  size_t n = (size_t)neap_net_n_blobs(net); /* room for all: inputs are some of them */
  graph->n_input = 0;
  neap_input *input = neap_arena_alloc(room, n * sizeof *input);
  if (input == NULL) return neap_fail_memory(error, n * sizeof *input, "a batch's inputs");
  if (batch < 1)
    return neap_fail(error, NEAP_ARGUMENT, "net \"%s\": a batch of %lld rows", neap_net_name(net),
                     (long long)batch);

  /* Only a guess can say which inputs are rows of a batch: those that have as many as the first one
   * declares. */
  int64_t declared = -1;
  for (int i = 0; i < (int)n; i++) {
    const neap_net_blob *blob = neap_net_blob_at(net, i);
    if (blob->role != NEAP_ROLE_INPUT || blob->type.shape.n_dim == 0) continue;
    if (declared < 0) declared = blob->type.shape.dim[0]; /* the first one's: the batch */
    if (blob->type.shape.dim[0] != declared) continue;
    input[graph->n_input] = (neap_input){blob->name, blob->type};
    input[graph->n_input++].type.shape.dim[0] = batch;
  }
  graph->input = input;
  if (declared >= 0) return NEAP_OK;
  return neap_fail(error, NEAP_ARGUMENT, "net \"%s\": has no input with a batch",
                   neap_net_name(net));
}

/* ---- the largest batch ----------------------------------------------------------------------- */

/* The type in which the net's input comes by these options. */
static const neap_type *input_type(const neap_graph_options *options, const neap_net_blob *blob) {
  for (int i = 0; i < options->n_input; i++)
    if (strcmp(options->input[i].name, blob->name) == 0) return &options->input[i].type;
  return &blob->type;
}

int64_t neap_batch_asked(const neap_net *net, const neap_graph_options *graph) {
  for (int i = 0; i < neap_net_n_blobs(net); i++) {
    const neap_net_blob *blob = neap_net_blob_at(net, i);
    if (blob->role != NEAP_ROLE_INPUT) continue;
    const neap_type *type = input_type(graph, blob);
    if (type->shape.n_dim > 0) return type->shape.dim[0];
  }
  return 1;
}

/* What the largest batch's graph is built of: by this a net is known that would give the same one
 * again. */
static neap_status note_source(neap_range *range, const neap_net *net,
                               const neap_graph_options *options, neap_error *error) {
  /* The net's text holds all but the types of inputs and the names that the options give. */
  size_t n = (size_t)neap_net_n_blobs(net);
  neap_net_print(net, true, &range->net_text);
  range->input = neap_arena_alloc(&range->room, (n + 1) * sizeof *range->input);
  range->keep = neap_arena_alloc(&range->room, ((size_t)options->n_keep + 1) * sizeof *range->keep);
  if (range->net_text.failed || range->input == NULL || range->keep == NULL)
    return neap_fail_memory(error, range->net_text.n + n * sizeof *range->input,
                            "a range of batches");

  /* Blob by blob, as the options have them in place of the net. */
  for (int i = 0; i < (int)n; i++) {
    const neap_net_blob *blob = neap_net_blob_at(net, i);
    if (blob->role != NEAP_ROLE_INPUT) continue;
    range->input[range->n_input++] = (neap_input){blob->name, *input_type(options, blob)};
  }
  for (; range->n_keep < options->n_keep; range->n_keep++)
    if ((range->keep[range->n_keep] = neap_intern(options->keep[range->n_keep])) == NULL)
      return neap_fail_memory(error, 64, "a name");
  return NEAP_OK;
}

/* Whether net and options give the graph that the largest batch has. All options but the inputs'
 * types and names to keep are the range's; a workspace may have more names to keep. Short of memory
 * it is taken for another one. */
static bool is_source(const neap_range *range, const neap_net *net,
                      const neap_graph_options *options) {
  /* The cheap questions first; the text of the net last, which is made for it. */
  if (options->n_keep != range->n_keep) return false;
  for (int i = 0; i < range->n_keep; i++)
    if (strcmp(options->keep[i], range->keep[i]) != 0) return false;
  for (int i = 0; i < range->n_input; i++) {
    const neap_net_blob *blob = neap_net_find_blob(net, range->input[i].name);
    if (blob == NULL || !neap_type_equal(input_type(options, blob), &range->input[i].type))
      return false;
  }
  neap_buffer text = {0};
  neap_net_print(net, true, &text);
  bool same = !text.failed && strcmp(text.text, range->net_text.text) == 0;
  neap_buffer_fini(&text);
  return same;
}

/* Plans once, with the store like any other compilation; what is kept afterwards is read by every
 * smaller batch and changed by none. */
neap_status neap_range_new(const neap_net *net, const neap_compile_options *options,
                           neap_range **out, neap_error *error) {
  *out = NULL;
  if (options->dynamic)
    return neap_fail(error, NEAP_ARGUMENT,
                     "net \"%s\": executor dynamic runs batches of any size: a range has no use",
                     neap_net_name(net));
  neap_range *range = neap_alloc_zeroed(sizeof *range);
  if (range == NULL) return neap_fail_memory(error, sizeof *range, "a range of batches");
  neap_forecast known = {0};
  neap_arena room = {0};
  neap_compile_options largest;

  range->most.net = net;
  neap_status status = neap_mem_param_resolve(net, options, &room, &largest, error);
  largest.no_constants = true; /* see the head of the file */
  if (status == NEAP_OK) status = neap_way_go(&range->most, &largest, &known, error);
  if (status == NEAP_OK) status = note_source(range, net, &largest.graph, error);
  neap_arena_fini(&room);
  range->plan_id = known.plan_id;
  memcpy(range->warning, known.warning, sizeof range->warning);
  range->most.net = NULL; /* the caller's, which may go */
  if (status != NEAP_OK) {
    neap_range_free(range);
    return status;
  }
  range->scratch_bytes = neap_most_scratch(&range->most.choices);
  *out = range;
  return NEAP_OK;
}

void neap_range_free(neap_range *range) {
  if (range == NULL) return;
  neap_way_fini(&range->most);
  neap_buffer_fini(&range->net_text);
  neap_arena_fini(&range->room);
  neap_free(range);
}

const char *neap_range_warning(const neap_range *range) { return range->warning; }

const neap_plan *neap_range_most(const neap_range *range, const neap_graph **graph) {
  if (graph != NULL) *graph = range->most.graph;
  return range->most.plan;
}

/* ---- a smaller batch ------------------------------------------------------------------------- */

/* The most bytes that the largest batch has under the name, in blobs with bytes of their own; 0:
 * none. */
static size_t room_for(const neap_range *range, const char *name) {
  const neap_graph *graph = range->most.graph;
  size_t bytes = 0;
  for (int v = 0; v < graph->n_value; v++) {
    const neap_value *value = &graph->value[v];
    if (value->region != NEAP_REGION_ARENA && value->name != NULL && strcmp(value->name, name) == 0)
      bytes = NEAP_MAX(bytes, neap_type_bytes(&value->type));
  }
  return bytes;
}

/* Whether blobs of the region are what they are in all batches. */
static bool is_fixed(neap_region region) {
  return region == NEAP_REGION_PARAMETER || region == NEAP_REGION_STATE;
}

void neap_range_reserve(const neap_range *range, neap_program *program) {
  for (int b = 0; b < neap_program_n_blobs(program); b++) {
    neap_program_blob *blob = neap_program_blob_at(program, b);
    blob->reserve_bytes = is_fixed(blob->region) ? 0 : room_for(range, blob->name);
  }
}

/* SHAPE error for the first blob with bytes of its own that is larger than the largest batch's. */
static neap_status check_room(const neap_range *range, const neap_graph *graph, neap_error *error) {
  /* Blobs are found by name in the workspace, where they have the room of the largest batch. */
  for (int v = 0; v < graph->n_value; v++) {
    const neap_value *value = &graph->value[v];
    if (value->region == NEAP_REGION_ARENA || value->root != v || value->name == NULL) continue;
    if (is_fixed(value->region)) continue;
    size_t room = room_for(range, value->name), bytes = neap_type_bytes(&value->type);
    if (bytes <= room) continue;
    char text[NEAP_SHAPE_TEXT];
    neap_hint(error, "make the range with a larger max_batch");
    return neap_fail(
      error, NEAP_SHAPE, "net \"%s\": \"%s\" %s has %zu bytes, the largest batch of the range %zu",
      graph->name, value->name, neap_shape_text(&value->type.shape, text), bytes, room);
  }
  return NEAP_OK;
}

/* All decisions from the largest batch. Any error but MEMORY means that it can't be had so. */
static neap_status follow(const neap_range *range, neap_way *w, neap_error *error) {
  /* Each step checks that nothing is left to decide: one form, the same kernels, one form after
   * laying out, places large enough. */
  neap_choose_options choose = w->resolved.choose;
  choose.like = &range->most.choices;
  NEAP_TRY(neap_graph_check_form(w->prepared, range->most.prepared, error));
  NEAP_TRY(neap_graph_choose(w->prepared, &choose, &w->choices, error));
  w->choices.no_constants = true;
  NEAP_TRY(neap_graph_lay_out(w->prepared, &w->choices, &w->graph, error));
  NEAP_TRY(neap_graph_check_form(w->graph, range->most.graph, error));
  NEAP_TRY(neap_plan_shrink(range->most.plan, w->graph, &w->plan, error));
  return neap_plan_verify(w->plan, w->graph, error);
}

/* Planned alone, within the bytes of the largest batch. */
static neap_status plan_within_most(const neap_range *range, neap_way *w, neap_error *error) {
  const neap_plan *most = range->most.plan;
  neap_choose_options choose = w->resolved.choose;
  neap_plan_options plan = w->resolved.plan;
  choose.scratch_limit = range->scratch_bytes;
  plan.budget_bytes = NEAP_MAX(most->arena_bytes, 1); /* 0 would mean no budget */
  NEAP_TRY(neap_graph_choose(w->prepared, &choose, &w->choices, error));
  w->choices.no_constants = true;
  NEAP_TRY(neap_graph_lay_out(w->prepared, &w->choices, &w->graph, error));
  NEAP_TRY(neap_plan_make(w->graph, &plan, &w->plan, error));
  return neap_plan_verify(w->plan, w->graph, error);
}

/* Planned alone, if need be in more arena, as far as the limits of the range allow. What it does
 * not need of the largest batch's bytes is held all the same. */
static neap_status plan_alone(const neap_range *range, neap_way *w, neap_error *error) {
  /* First within what the largest batch has; a pool has no plan to be within. */
  const neap_plan *most = range->most.plan;
  neap_error refused = {0};
  const bool pool = w->resolved.plan.policy == NEAP_POLICY_POOL;
  neap_status status = pool ? NEAP_BUDGET : plan_within_most(range, w, &refused);
  if (status != NEAP_OK && status != NEAP_BUDGET) {
    if (error != NULL && error->code == NEAP_OK) *error = refused;
    return status;
  }
  if (status != NEAP_OK) {
    neap_way_drop_result(w);
    NEAP_TRY(neap_ladder_climb(w, error));
  }

  /* The plan promises the bytes that will be held: those of the largest batch, whose blobs and
   * arena this program runs in. A baseline is never below its arena, and only an arena of the very
   * bound is proved. */
  size_t arena = NEAP_MAX(w->plan->arena_bytes, most->arena_bytes);
  for (int r = 0; r < NEAP_N_REGION; r++)
    if (!is_fixed((neap_region)r)) w->plan->region_bytes[r] = most->region_bytes[r];
  w->plan->arena_bytes = w->plan->region_bytes[NEAP_REGION_ARENA] = arena;
  w->plan->baseline_bytes = NEAP_MAX(w->plan->baseline_bytes, arena);
  w->plan->proved = arena == w->plan->lower_bound_bytes;
  return NEAP_OK;
}

/* What a smaller batch promises to hold is what the largest one does, but for its arena, which may
 * be larger where it was planned alone. */
static void check_held(const neap_range *range, const neap_plan *plan) {
  const neap_plan *most = range->most.plan;
  for (int r = 0; r < NEAP_N_REGION; r++)
    NEAP_ASSERT(r == NEAP_REGION_ARENA || is_fixed((neap_region)r) ||
                  plan->region_bytes[r] <= most->region_bytes[r],
                "at most %zu bytes of %s, as the largest batch has; got %zu", most->region_bytes[r],
                neap_region_name((neap_region)r), plan->region_bytes[r]);
}

/* The ways, the cheap one first; refused memory ends both, since the second would need more of
 * it. */
static neap_status plan_within(const neap_range *range, neap_way *w,
                               const neap_compile_options *options, neap_error *error) {
  /* The largest batch's own net is not built again: its graph is lent, and read. */
  if (is_source(range, w->net, &options->graph))
    w->prepared = range->most.prepared;
  else
    NEAP_TRY(neap_graph_prepare(w->net, &options->graph, &w->prepared, error));
  NEAP_TRY(check_room(range, w->prepared, error));
  w->resolved = range->most.resolved; /* limits and engines are the range's */
  neap_error refused = {0};

  /* A pool has no addresses to share: the blobs alone have the room of the largest batch. */
  const bool pool = w->resolved.plan.policy == NEAP_POLICY_POOL;

  /* Follow the largest batch where that can be. */
  neap_status status = pool ? NEAP_BUDGET : follow(range, w, &refused);
  if (status == NEAP_MEMORY) {
    if (error != NULL && error->code == NEAP_OK) *error = refused;
    return status;
  }
  if (status == NEAP_OK) return status;
  neap_way_drop_result(w);
  return plan_alone(range, w, error);
}

/* Whether it is the largest batch itself, whose plan has a row that runs are recorded under. */
static bool is_largest(const neap_range *range, const neap_way *w) {
  const neap_graph *graph = w->graph, *most = range->most.graph;
  if (graph->n_value != most->n_value) return false;
  for (int v = 0; v < graph->n_value; v++)
    if (!neap_type_equal(&graph->value[v].type, &most->value[v].type)) return false;
  return true;
}

neap_status neap_range_plan(const neap_range *range, const neap_net *net,
                            const neap_compile_options *options, neap_forecast *out,
                            neap_error *error) {
  /* The way of one batch; all that it decides comes from the range where that can be. */
  neap_way w = {.net = net};
  neap_arena room = {0};
  neap_compile_options full;
  *out = (neap_forecast){0};
  neap_status status = neap_mem_param_resolve(net, options, &room, &full, error);
  if (status == NEAP_OK) status = plan_within(range, &w, &full, error);
  if (NEAP_DEBUG && status == NEAP_OK) check_held(range, w.plan);
  if (status == NEAP_OK) {
    out->graph = w.graph;
    out->plan = w.plan;
    out->total_bytes = neap_plan_total_bytes(w.plan);
    out->plan_id = is_largest(range, &w) ? range->plan_id : 0;
    w.graph = NULL;
    w.plan = NULL;
  }

  /* A graph that was lent is not this way's to free. */
  if (w.prepared == range->most.prepared) w.prepared = NULL;
  neap_way_fini(&w);
  neap_arena_fini(&room);
  return status;
}

neap_status neap_range_compile(const neap_range *range, neap_workspace *ws, const neap_net *net,
                               const neap_compile_options *options, neap_session **out,
                               neap_error *error) {
  return neap_session_new(ws, net, options, range, out, error);
}
