/* plan.c: the way from a net to a verified plan, by the store when it knows the key, else by
 * choosing and planning.
 *
 * What a budget takes instead of the free plan is ladder.c's affair.
 *
 * A hit in the store costs asking, reading, laying out and verifying (stored.c); only a miss
 * searches.
 *
 * INVARIANT: no plan leaves this file, stored or fresh, that has not passed neap_plan_verify for
 * the graph it comes with.
 */
#include "driver/driver_int.h"
#include "report/report.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- options --------------------------------------------------------------------------------- */

neap_status neap_engine_asked(const char *name, bool *force, neap_engine *engine,
                              neap_error *error) {
  if (name == NULL) name = getenv("NEAP_ENGINE");
  *force = name != NULL && name[0] != '\0' && strcmp(name, "free") != 0;
  return *force ? neap_engine_take(name, engine, error) : NEAP_OK;
}

/* `total` leaves arena and constants what the other regions do not take. Arguments have no bytes of
 * their own. */
static void resolve_budget(const neap_graph *graph, const neap_compile_options *options,
                           neap_resolved *r) {
  r->plan.budget_bytes = r->arena_limit = options->plan.budget_bytes;

  r->total_bytes = options->total_bytes;
  r->total_left = SIZE_MAX;
  if (options->total_bytes == 0) return;

  /* Sizes of these regions are known before planning: they are sums of types. */
  size_t resident = options->beside.bytes;
  for (int region = 0; region < NEAP_N_REGION; region++)
    if (region != NEAP_REGION_ARENA && region != NEAP_REGION_ARGUMENT)
      resident += neap_graph_region_bytes(graph, (neap_region)region);
  r->resident_bytes = resident;
  r->least_arena = options->beside.arena_bytes;
  r->total_left = options->total_bytes > resident ? options->total_bytes - resident : 0;
  size_t left = NEAP_MAX(r->total_left, 1); /* 0 would be no budget */
  if (r->plan.budget_bytes == 0 || left < r->plan.budget_bytes) r->plan.budget_bytes = left;
}

/* A plan needs to know how long everything is. A pool does not: the run finds out (see dynamic.c).
 * GRAPH error for the first op whose output's length depends on data. */
static neap_status check_extents(const neap_graph *graph, const neap_plan_options *options,
                                 neap_error *error) {
  /* In definition order, subnets before their owner: the first op in the net is named. */
  if (options->policy == NEAP_POLICY_POOL) return NEAP_OK;
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    for (int s = 0; s < node->n_sub; s++) NEAP_TRY(check_extents(node->sub[s], options, error));
    if (node->extent == 0) continue;
    neap_program_locate(graph, n, error);
    neap_hint(error, "executor = \"dynamic\" finds lengths while running");
    return neap_fail(
      error, NEAP_GRAPH,
      "%s \"%s\": how long its output is depends on data, so it can't be planned; it needs "
      "executor = \"dynamic\"",
      node->op->name, node->name);
  }
  return NEAP_OK;
}

/* The options, and what environment and defaults make of those that are not given. */
static neap_status resolve(const neap_graph *graph, const neap_compile_options *options,
                           neap_resolved *r, neap_error *error) {
  const char *planning = getenv("NEAP_PLAN");
  *r = (neap_resolved){.plan = options->plan};

  /* NEAP_PLAN=off switches the planner off, and nothing else: every value gets its own bytes. A
   * pool plans nothing anyway. */
  if (planning != NULL && strcmp(planning, "off") == 0 && r->plan.policy != NEAP_POLICY_POOL)
    r->plan.policy = NEAP_POLICY_NONE;
  r->no_constants = options->no_constants;
  r->no_recompute = options->no_recompute;
  r->inexact = options->inexact;
  r->plan.evict = r->plan.policy == NEAP_POLICY_POOL && !options->no_recompute;
  r->n_thread = neap_threads_for(options->n_thread);

  /* In a dag too: an op that needs all threads runs alone. With `inexact` each gets one, so that
   * all may run side by side. */
  r->choose = (neap_choose_options){
    .n_thread = r->plan.executor == NEAP_EXECUTOR_DAG && r->inexact ? 1 : r->n_thread,
    .scratch_limit = SIZE_MAX,
    .plain = options->plain};
  NEAP_TRY(neap_engine_asked(options->engine, &r->choose.force, &r->choose.engine, error));
  resolve_budget(graph, options, r);
  r->options = neap_options_resolved(options, r);
  return NEAP_OK;
}

/* ---- the store ------------------------------------------------------------------------------- */

/* The Lua file of the first op that knows its line: "lenet.lua" of "lenet.lua:12". */
static void file_of(const neap_net *net, char file[160]) {
  file[0] = '\0';
  for (int i = 0; i < neap_net_n_ops(net); i++) {
    const char *line = neap_net_op_at(net, i)->line;
    /* The last colon: a path may hold one too. */
    const char *colon = line != NULL ? strrchr(line, ':') : NULL;
    if (colon == NULL) continue;
    snprintf(file, 160, "%.*s", (int)NEAP_MIN(colon - line, (ptrdiff_t)159), line);
    return;
  }
}

/* The dtype of the first input: what people call the precision of a net. */
static const char *input_dtype(const neap_graph *graph) {
  for (int v = 0; v < graph->n_value; v++) {
    const neap_value *value = &graph->value[v];
    if (value->role == NEAP_ROLE_INPUT && value->node < 0)
      return neap_dtype_name(value->type.dtype);
  }
  return "f32";
}

/* What the store is asked by: the net under its names, and the key. net_hash: filled here. */
static neap_store_plan row_of(const neap_way *w, const neap_buffer *net_text, char net_hash[33]) {
  neap_hash_text(neap_hash_bytes(net_text->text, net_text->n), net_hash);
  return (neap_store_plan){.key = w->key_text,
                           .key_text = w->key.text,
                           .net_name = neap_net_name(w->net),
                           .net_text = net_text->text,
                           .net_hash = net_hash,
                           .n_thread = w->resolved.n_thread,
                           .budget_bytes = (int64_t)w->resolved.plan.budget_bytes};
}

/* A hit looks the key up, asks every kernel again, lays out, reads the plan and verifies it: about
 * what a plan costs that needs no search. So it is worth it only where the search was long beside
 * the net, in steps of the searches and never by the clock: what is kept is the same on an idle and
 * a busy machine. $NEAP_CACHE: `all` keeps every plan, `off` none. */
static bool is_kept(const neap_way *w) {
  enum { STEPS_A_VALUE = 1000, STEPS_A_NET = 100000 };
  const char *asked = getenv("NEAP_CACHE");
  if (asked != NULL && strcmp(asked, "off") == 0) return false;
  if (asked != NULL && strcmp(asked, "all") == 0) return true;
  const int64_t n = (int64_t)w->graph->n_node + w->graph->n_value;
  return w->n_search > STEPS_A_NET + STEPS_A_VALUE * n;
}

/* `asked`, which is of this net's names, as a row of the history, and, if it is `kept`, in the
 * cache; *plan_id: of the row. DB error when it is lost, MEMORY when a text could not be made; the
 * plan in w is as good as before. */
static neap_status add_to_store(neap_way *w, neap_store *store, const neap_store_plan *asked,
                                bool kept, int64_t *plan_id, neap_error *error) {
  /* Texts. Choices and plan only where they are kept: they are long. */
  neap_buffer options = {0}, choices = {0}, plan_text = {0};
  char kernels[160], file[160];
  neap_kernel_set_text(kernels);
  file_of(w->net, file);
  neap_options_print_json(&w->resolved.options, &options);
  if (kept) neap_stored_print(w, &choices, &plan_text);

  /* A row has all that people ask for without the plan itself. */
  neap_status status;
  if (options.failed || choices.failed || plan_text.failed) {
    status = neap_fail_memory(error, plan_text.n, "a plan's text");
  } else {
    neap_store_plan row = *asked;
    row.options = options.text;
    row.choices = choices.text;
    row.plan_text = plan_text.text;
    row.net_file = file[0] != '\0' ? file : NULL;
    row.kernel_set = kernels;
    row.dtype = input_dtype(w->graph);
    status = neap_store_add_plan(store, &row, w->plan, w->graph, plan_id, error);
  }
  neap_buffer_fini(&options);
  neap_buffer_fini(&choices);
  neap_buffer_fini(&plan_text);
  return status;
}

/* Looks the key up in the cache; out->hit says whether w has graph and plan now. A stored plan that
 * fails its check is dropped, and the caller plans again. What the store fails to do becomes a
 * warning. */
static void find_in_store(neap_way *w, neap_store *store, const neap_store_plan *row,
                          neap_forecast *out) {
  neap_error error = {0};
  neap_store_hit hit;
  if (neap_store_find_plan(store, row, &hit, &error) != NEAP_OK) {
    neap_warn(out->warning, NULL, &error);
    return;
  }
  if (!hit.found) return;
  if (neap_stored_read(w, hit.choices, hit.plan_text, &error) != NEAP_OK) {
    bool is_wrong = error.code != NEAP_MEMORY; /* refused memory says nothing about the plan */
    neap_warn(
      out->warning,
      is_wrong ? "a stored plan failed its check and was made again" : "a stored plan was not read",
      &error);
    if (!is_wrong) return;
    neap_error_clear(&error);
    if (neap_store_drop_plan(store, row->key, &error) != NEAP_OK)
      neap_warn(out->warning, "it could not be dropped", &error);
    return;
  }

  /* The times are of when it was found, not of now. */
  out->hit = true;
  w->plan->plan_ns = hit.plan_ns;
  w->plan->n_search = hit.n_search;
}

/* The plan's row in the history, which is made where there is none: the cache leaves names out and
 * may outlive the history, and people find the plan by this net's names. A plan that can't be
 * stored is as good as one that can: the loss is a warning. */
static void note_in_store(neap_way *w, neap_store *store, neap_store_plan *row,
                          neap_forecast *out) {
  /* By key and digest: the same plan again gets the row that it has. */
  neap_error lost = {0};
  char digest[33];
  out->kept = out->hit || is_kept(w);
  neap_status status = neap_stored_digest(w, digest, &lost);
  row->digest = digest;
  if (status == NEAP_OK) status = neap_store_use_plan(store, row, out->hit, &out->plan_id, &lost);

  /* One that is dear and was not in the cache is added there, whether it has a row or not. */
  const bool is_there = out->plan_id != 0 && (out->hit || !out->kept);
  if (status == NEAP_OK && !is_there)
    status = add_to_store(w, store, row, out->kept, &out->plan_id, &lost);
  if (status != NEAP_OK) {
    out->kept = out->hit;
    neap_warn(out->warning, NULL, &lost);
  }
  row->digest = NULL;
}

/* ---- the door -------------------------------------------------------------------------------- */

/* The way has two ends: read from the store, or climbed. Whichever it took, the plan was verified
 * on it; a debug build does that once more. MEMORY is the only failure. */
static neap_status check_verified(const neap_way *w, neap_error *error) {
  neap_error wrong = {0};
  neap_status status = neap_plan_verify(w->plan, w->graph, &wrong);
  NEAP_ASSERT(status == NEAP_OK || status == NEAP_MEMORY, "a plan that passes its check; %s",
              wrong.message);
  if (status != NEAP_OK && error != NULL && error->code == NEAP_OK) *error = wrong;
  return status;
}

neap_status neap_way_go(neap_way *w, const neap_compile_options *options, neap_forecast *out,
                        neap_error *error) {
  /* The prepared graph and the resolved options are all that planning may depend on: the key is
   * made of them. */
  NEAP_TRY(neap_graph_prepare(w->net, &options->graph, &w->prepared, error));
  NEAP_TRY(resolve(w->prepared, options, &w->resolved, error));
  NEAP_TRY(check_extents(w->prepared, &w->resolved.plan, error));
  neap_key_print(w->prepared, &w->resolved, &w->key);
  if (w->key.failed) return neap_fail_memory(error, w->key.n, "a plan's key");
  out->key = w->hash = neap_hash_bytes(w->key.text, w->key.n);
  neap_hash_text(w->hash, w->key_text);

  /* The store is asked by the key, and told by the net's own text. */
  neap_buffer net_text = {0};
  neap_store *store = options->store;
  if (store != NULL) {
    neap_net_print(w->net, true, &net_text);
    if (net_text.failed) store = NULL; /* short of memory: go on without */
  }
  neap_store_plan row = {0};
  char net_hash[33];
  if (store != NULL) {
    row = row_of(w, &net_text, net_hash);
    find_in_store(w, store, &row, out);
  }

  /* Read, or searched for; then the store learns of it. */
  neap_status status = out->hit ? NEAP_OK : neap_ladder_climb(w, error);
  if (NEAP_DEBUG && status == NEAP_OK) status = check_verified(w, error);
  if (status == NEAP_OK && store != NULL) note_in_store(w, store, &row, out);
  neap_buffer_fini(&net_text);
  return status;
}

/* After a failure *out owns nothing; its warning may still say what the store lost. */
neap_status neap_driver_plan(const neap_net *net, const neap_compile_options *options,
                             neap_forecast *out, neap_error *error) {
  /* Caffe's words first: keys and plans know of policy and keep alone. */
  neap_way w = {.net = net};
  neap_arena room = {0};
  neap_compile_options full;
  *out = (neap_forecast){0};
  neap_status status = neap_mem_param_resolve(net, options, &room, &full, error);
  if (status == NEAP_OK) status = neap_way_go(&w, &full, out, error);
  if (status == NEAP_OK) {
    out->graph = w.graph;
    out->plan = w.plan;
    out->total_bytes = neap_plan_total_bytes(w.plan);
    w.graph = NULL; /* handed over: the way must not free them */
    w.plan = NULL;
  }
  neap_way_fini(&w);
  neap_arena_fini(&room);
  return status;
}

neap_figures neap_forecast_figures(const neap_forecast *forecast) {
  neap_figures figures = neap_report_figures(forecast->plan, forecast->graph);
  figures.total_bytes = (int64_t)forecast->total_bytes;
  figures.plan_id = forecast->plan_id;
  figures.hit = forecast->hit;
  figures.source = forecast->hit ? "read" : forecast->kept ? "kept" : "planned";
  neap_hash_text(forecast->key, figures.key);
  return figures;
}

void neap_forecast_fini(neap_forecast *forecast) {
  neap_plan_free(forecast->plan);
  neap_graph_free(forecast->graph);
  memset(forecast, 0, sizeof *forecast);
}
