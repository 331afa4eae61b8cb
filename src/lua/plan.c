/* plan.c: the plan handle: figures as fields, rows of ops and values for lua/neap/plan.lua,
 * explanations as text.
 *
 * A handle either owns a forecast, or looks into a program's plan; user value 1 then keeps that
 * program alive. A program may change its plan from run to run (executor "dynamic"), so that it is
 * asked each time.
 */
#include "lua/binding.h"
#include "report/report.h"

#include <string.h>

typedef struct handle {
  neap_forecast own; /* graph NULL: not owned */
  const neap_graph *graph;
  const neap_plan *plan;
  int64_t plan_id;
  size_t total_bytes;
} handle;

static void look_into(handle *h, neap_session *session) {
  const neap_program *program = neap_session_program(session);
  h->graph = neap_program_graph(program);
  h->plan = neap_program_plan(program);
  h->plan_id = neap_session_plan_id(session);
  h->total_bytes = neap_plan_total_bytes(h->plan);
}

/* The plan at `index`, its fields up to date: raises `argument` for another thing, `released` when
 * its program was closed. */
static handle *plan_at(lua_State *L, int index) {
  handle *h = neap_lua_at(L, index, NEAP_LUA_PLAN);
  if (h->own.plan != NULL)
    h->plan = h->own.plan, h->graph = h->own.graph, h->total_bytes = h->own.total_bytes,
    h->plan_id = h->own.plan_id;
  if (h->own.plan == NULL) {
    lua_getiuservalue(L, index, 1);
    neap_session *session = neap_lua_session_at(L, -1);
    lua_pop(L, 1);
    if (session == NULL) neap_lua_fail(L, NEAP_RELEASED, "the program of this plan was closed");
    look_into(h, session);
  }
  return h;
}

const neap_plan *neap_lua_plan_at(lua_State *L, int index, const neap_graph **graph) {
  const handle *h = plan_at(L, index);
  *graph = h->graph;
  return h->plan;
}

neap_forecast *neap_lua_new_plan(lua_State *L) {
  handle *h = neap_lua_new(L, sizeof *h, NEAP_LUA_PLAN);
  return &h->own;
}

void neap_lua_push_session_plan(lua_State *L, int program_index) {
  program_index = lua_absindex(L, program_index);
  (void)neap_lua_new(L, sizeof(handle), NEAP_LUA_PLAN);
  lua_pushvalue(L, program_index);
  lua_setiuservalue(L, -2, 1);
}

void neap_lua_free_plan(lua_State *L, void *at) {
  handle *h = at;
  (void)L;
  if (h->own.graph != NULL || h->own.plan != NULL) neap_forecast_fini(&h->own);
  h->own = (neap_forecast){0};
  h->plan = NULL;
}

/* net:_plan(options [, range]) -> plan: nothing of it is allocated. With a range: of a smaller
 * batch in its memory. */
static int make(lua_State *L) {
  const neap_lua_net *net = neap_lua_net_at(L, 1);
  lua_settop(L, 3);
  neap_compile_options options = neap_lua_compile_options(L, 2, 1);
  const neap_range *range = neap_lua_opt_range(L, 3);
  neap_forecast *forecast = neap_lua_new_plan(L);
  NEAP_LUA_TRY(L, range != NULL ? neap_range_plan(range, net->net, &options, forecast, &error)
                                : neap_driver_plan(net->net, &options, forecast, &error));
  neap_lua_warn(L, forecast->warning);
  return 1;
}

/* ---- figures --------------------------------------------------------------------------------- */

static size_t scratch_most(const neap_plan *plan) {
  size_t most = 0;
  for (int i = 0; i < plan->n_node; i++) most = NEAP_MAX(most, plan->scratch_bytes[i]);
  return most;
}

static double total_flop(const neap_graph *graph) {
  double flop = 0;
  for (int i = 0; i < graph->n_node; i++) flop += graph->node[i].cost.flop;
  return flop;
}

/* plan:_figures() -> all of them as one table */
static int figures(lua_State *L) {
  const handle *h = plan_at(L, 1);
  const neap_plan *p = h->plan;
  char key[33];
  lua_createtable(L, 0, 20);
  neap_lua_set_text(L, "net", h->graph->name);
  neap_lua_set_integer(L, "arena_bytes", (int64_t)p->arena_bytes);
  neap_lua_set_integer(L, "lower_bound_bytes", (int64_t)p->lower_bound_bytes);
  neap_lua_set_integer(L, "baseline_bytes", (int64_t)p->baseline_bytes);
  neap_lua_set_integer(L, "total_bytes", (int64_t)h->total_bytes);
  neap_lua_set_integer(L, "scratch_bytes_max", (int64_t)scratch_most(p));
  neap_lua_set_integer(L, "plan_ns", p->plan_ns);
  neap_lua_set_integer(L, "peak_step", p->n_node > 0 ? p->peak_step + 1 : 0);
  neap_lua_set_integer(L, "n_op", p->n_node);
  neap_lua_set_integer(L, "n_value", p->n_value);
  double share;
  neap_lua_set_integer(L, "n_recomputed", neap_plan_repeated(h->graph, &share));
  lua_pushnumber(L, share);
  lua_setfield(L, -2, "recomputed_work");
  neap_lua_set_integer(L, "n_changed", neap_plan_changed(h->graph));
  neap_lua_set_integer(L, "batch", neap_graph_batch(h->graph));
  neap_lua_set_integer(L, "plan_id", h->plan_id);
  neap_lua_set_bool(L, "proved", p->proved);
  neap_lua_set_bool(L, "train", h->graph->train);
  neap_lua_set_bool(L, "hit", h->own.hit);
  neap_lua_set_text(L, "policy", neap_policy_name(p->policy));
  neap_lua_set_text(L, "executor", neap_executor_name(p->executor));
  neap_lua_set_text(L, "packer", p->packer);
  if (h->own.plan != NULL) {
    neap_hash_text(h->own.key, key);
    neap_lua_set_text(L, "key", key);
  }
  lua_pushnumber(L, total_flop(h->graph));
  lua_setfield(L, -2, "flops");
  lua_createtable(L, 0, NEAP_N_REGION);
  for (int r = 0; r < NEAP_N_REGION; r++)
    if (r != NEAP_REGION_ARGUMENT)
      neap_lua_set_integer(L, neap_region_name((neap_region)r), (int64_t)p->region_bytes[r]);
  lua_setfield(L, -2, "regions");
  return 1;
}

static bool lies_in(const neap_graph *graph, neap_value_id v, int bank) {
  return v == NEAP_NO_VALUE || graph->value[v].region != NEAP_REGION_ARENA ||
         graph->value[v].bank == bank;
}

/* Whether a node works on the bank alone: no copy between banks, which stands with the one that it
 * writes. */
static bool works_in(const neap_graph *graph, const neap_node *node, int bank) {
  bool all = node->bank == bank;
  for (int i = 0; i < node->n_in; i++) all = all && lies_in(graph, node->in[i], bank);
  for (int k = 0; k < node->n_out; k++) all = all && lies_in(graph, node->out[k], bank);
  return all;
}

/* plan:_banks() -> {bank, kind, capacity_bytes, arena_bytes, lower_bound_bytes, n_op, n_value} of
 * each, main first; {} without banks */
static int banks(lua_State *L) {
  const handle *h = plan_at(L, 1);
  lua_createtable(L, h->plan->n_bank, 0);
  for (int b = 0; b < h->plan->n_bank; b++) {
    const neap_plan_bank *bank = &h->plan->bank[b];
    int n_op = 0, n_value = 0;
    for (int n = 0; n < h->graph->n_node; n++) n_op += works_in(h->graph, &h->graph->node[n], b);
    for (int v = 0; v < h->graph->n_value; v++)
      n_value += h->graph->value[v].region == NEAP_REGION_ARENA && h->graph->value[v].bank == b;
    lua_createtable(L, 0, 8);
    neap_lua_set_text(L, "bank", h->graph->bank[b].name);
    neap_lua_set_text(L, "kind", neap_bank_kind_name(h->graph->bank[b].kind));
    if (h->graph->bank[b].bytes > 0)
      neap_lua_set_integer(L, "capacity_bytes", h->graph->bank[b].bytes);
    neap_lua_set_integer(L, "begin_offset", (int64_t)bank->begin_bytes);
    neap_lua_set_integer(L, "arena_bytes", (int64_t)bank->bytes);
    neap_lua_set_integer(L, "lower_bound_bytes", (int64_t)bank->lower_bound_bytes);
    neap_lua_set_bool(L, "proved", bank->bytes == bank->lower_bound_bytes);
    neap_lua_set_integer(L, "n_op", n_op);
    neap_lua_set_integer(L, "n_value", n_value);
    lua_rawseti(L, -2, b + 1);
  }
  return 1;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* Names of those that are there, in order. */
static void push_value_names(lua_State *L, const neap_graph *graph, int n,
                             const neap_value_id *id) {
  lua_createtable(L, n, 0);
  for (int k = 0, at = 0; k < n; k++) {
    if (id[k] == NEAP_NO_VALUE) continue;
    lua_pushstring(L, graph->value[id[k]].name);
    lua_seti(L, -2, ++at);
  }
}

static void add_layouts(const neap_graph *graph, int n, const neap_value_id *id,
                        const neap_layout *layout, neap_buffer *out) {
  char text[NEAP_LAYOUT_TEXT];
  for (int i = 0; i < n; i++)
    neap_buffer_add(
      out, " %s",
      neap_layout_text(&layout[i], id[i] >= 0 ? graph->value[id[i]].type.shape.n_dim : 0, text));
}

/* Field "kernel": all of a choice that bits may depend on. */
static void push_kernel(lua_State *L, const neap_graph *graph, const neap_node *node) {
  const neap_choice *c = &node->choice;
  neap_buffer out = {0};
  neap_buffer_add(&out, "%s %d, %d threads, scratch %zu, stash %zu:", neap_engine_name(c->engine),
                  c->algorithm, c->n_thread, c->scratch_bytes, c->stash_bytes);
  add_layouts(graph, node->n_in, node->in, c->in, &out);
  neap_buffer_add(&out, " >");
  add_layouts(graph, node->n_out, node->out, c->out, &out);
  neap_lua_set_text(L, "kernel", out.text != NULL ? out.text : "");
  neap_buffer_fini(&out);
}

/* Rows in the order of the schedule; steps count from 1. */
static void push_ops(lua_State *L, const neap_graph *graph, const neap_plan *plan) {
  lua_createtable(L, plan->n_node, 0);
  for (int s = 0; s < plan->n_node; s++) {
    int i = plan->order[s];
    const neap_node *node = &graph->node[i];
    lua_createtable(L, 0, 16);
    neap_lua_set_integer(L, "step", s + 1);
    if (node->repeats > 0)
      neap_lua_set_integer(L, "recomputes", neap_plan_step_of(plan, graph, node->repeats - 1) + 1);
    neap_lua_set_text(L, "type", node->op->name);
    neap_lua_set_text(L, "name", node->name);
    neap_lua_set_text(L, "scope", node->scope);
    neap_lua_set_text(L, "line", node->line);
    neap_lua_set_text(L, "phase", neap_phase_name(node->phase));
    if (plan->n_bank > 0) neap_lua_set_text(L, "bank", graph->bank[node->bank].name);
    neap_lua_set_text(L, "engine", neap_engine_name(node->choice.engine));
    push_kernel(L, graph, node);
    neap_lua_set_bool(L, "changed", node->choice.changed);
    neap_lua_set_integer(L, "scratch_bytes", (int64_t)plan->scratch_bytes[i]);
    neap_lua_set_integer(L, "scratch_offset", (int64_t)plan->scratch_offset[i]);
    neap_lua_set_integer(L, "live_bytes", (int64_t)plan->live_bytes[s]);
    lua_pushnumber(L, node->cost.flop);
    lua_setfield(L, -2, "flop");
    lua_pushnumber(L, node->cost.read_bytes + node->cost.write_bytes);
    lua_setfield(L, -2, "moved_bytes");
    push_value_names(L, graph, node->n_in, node->in);
    lua_setfield(L, -2, "inputs");
    push_value_names(L, graph, node->n_out, node->out);
    lua_setfield(L, -2, "outputs");
    lua_seti(L, -2, s + 1);
  }
}

static int ops(lua_State *L) {
  const handle *h = plan_at(L, 1);
  push_ops(L, h->graph, h->plan);
  return 1;
}

/* One value as a row: what it is, where it lies, from when to when, and why there. */
static void push_value(lua_State *L, const neap_graph *graph, const neap_plan *plan, int v) {
  const neap_value *value = &graph->value[v];
  const neap_place *place = &plan->place[v];
  char text[NEAP_SHAPE_TEXT], layout[NEAP_LAYOUT_TEXT];
  lua_createtable(L, 0, 18);
  neap_lua_set_integer(L, "value_no", v + 1);
  neap_lua_set_text(L, "blob", value->name);
  neap_lua_set_text(L, "role", neap_role_name(value->role));
  neap_lua_set_text(L, "region", neap_region_name(place->region));
  neap_lua_set_text(L, "dtype", neap_dtype_name(value->type.dtype));
  neap_lua_set_text(L, "shape", neap_shape_text(&value->type.shape, text));
  neap_lua_set_text(L, "layout", neap_layout_text(&value->layout, value->type.shape.n_dim, layout));
  neap_lua_set_integer(L, "bytes", (int64_t)place->bytes);
  if (place->region == NEAP_REGION_ARENA) neap_lua_set_integer(L, "offset", (int64_t)place->offset);
  if (plan->n_bank > 0)
    neap_lua_set_text(L, "bank", graph->bank[neap_graph_bank_of(graph, v)].name);
  neap_lua_set_integer(L, "first_step", place->first + 1);
  neap_lua_set_integer(L, "last_step", place->last + 1);
  neap_lua_set_integer(L, "storage", place->storage + 1);
  neap_lua_set_text(L, "reason", neap_reason_code(place->reason));
  neap_lua_set_text(L, "words", neap_reason_words(place->reason));
  neap_lua_set_text(L, "refusal", neap_refusal_words(place->refusal));
  if (place->partner >= 0) neap_lua_set_text(L, "partner", graph->value[place->partner].name);
  if (value->node >= 0) neap_lua_set_text(L, "line", graph->node[value->node].line);
  neap_lua_set_bool(L, "kept", value->keep);
}

/* plan:_rewrites() -> {rule, absorbed, into, saved_bytes} of each rewrite, in the order in which
 * they were made */
static int rewrites(lua_State *L) {
  const handle *h = plan_at(L, 1);
  lua_createtable(L, h->graph->n_rewrite, 0);
  for (int i = 0; i < h->graph->n_rewrite; i++) {
    const neap_rewrite *row = &h->graph->rewrite[i];
    lua_createtable(L, 0, 4);
    neap_lua_set_text(L, "rule", row->rule);
    neap_lua_set_text(L, "absorbed", row->absorbed);
    neap_lua_set_text(L, "into", row->into);
    neap_lua_set_integer(L, "saved_bytes", (int64_t)row->saved_bytes);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* plan:_gone(name) -> why the blob has no value, and the op that has absorbed it, if one has; nil
 * when it is none of the net's */
static int gone(lua_State *L) {
  const handle *h = plan_at(L, 1);
  const char *name = neap_lua_check_string(L, 2);
  const struct neap_gone *gone = neap_graph_find_gone(h->graph, name);
  if (gone == NULL) return 0;
  if (gone->into == NULL)
    return lua_pushstring(L, "nothing reads it, so that it is not computed"), 1;
  lua_pushfstring(L, "\"%s\" has absorbed it", gone->into);
  lua_pushstring(L, gone->into);
  return 2;
}

static void push_values(lua_State *L, const neap_graph *graph, const neap_plan *plan) {
  lua_createtable(L, plan->n_value, 0);
  for (int v = 0; v < plan->n_value; v++) {
    push_value(L, graph, plan, v);
    lua_seti(L, -2, v + 1);
  }
}

/* plan:_values() -> one row per value */
static int values(lua_State *L) {
  const handle *h = plan_at(L, 1);
  push_values(L, h->graph, h->plan);
  return 1;
}

/* Numbers of values, as value_no counts them. */
static void push_value_numbers(lua_State *L, const char *key, int n, const neap_value_id *id) {
  lua_createtable(L, n, 0);
  for (int k = 0, at = 0; k < n; k++) {
    if (id[k] == NEAP_NO_VALUE) continue;
    lua_pushinteger(L, id[k] + 1);
    lua_seti(L, -2, ++at);
  }
  lua_setfield(L, -2, key);
}

/* {ops =, values =}; each op with `ins` and `outs`, numbers of values, and `subs`: a list of the
 * same. */
static void push_tree(lua_State *L, const neap_graph *graph, const neap_plan *plan) {
  luaL_checkstack(L, 10, "nesting of subnets");
  lua_createtable(L, 0, 3);
  push_values(L, graph, plan);
  lua_setfield(L, -2, "values");
  push_ops(L, graph, plan);
  for (int s = 0; s < plan->n_node; s++) {
    int i = plan->order[s];
    const neap_node *node = &graph->node[i];
    lua_rawgeti(L, -1, s + 1);
    push_value_numbers(L, "ins", node->n_in, node->in);
    push_value_numbers(L, "outs", node->n_out, node->out);
    lua_createtable(L, node->n_sub, 0);
    for (int k = 0; k < node->n_sub; k++) {
      push_tree(L, node->sub[k], plan->sub[i][k]);
      lua_seti(L, -2, k + 1);
    }
    lua_setfield(L, -2, "subs");
    lua_pop(L, 1);
  }
  lua_setfield(L, -2, "ops");
}

/* plan:_tree() -> ops and values down to the innermost subnet */
static int tree(lua_State *L) {
  const handle *h = plan_at(L, 1);
  push_tree(L, h->graph, h->plan);
  return 1;
}

/* The value that a name stands for after the run; else one that the library made: x.reorder, a
 * stash. */
static neap_value_id find(const handle *h, const char *name) {
  neap_value_id v = neap_graph_find(h->graph, name);
  for (int i = 0; v == NEAP_NO_VALUE && i < h->graph->n_value; i++)
    if (strcmp(h->graph->value[i].name, name) == 0) v = i;
  return v;
}

/* plan:_value(blob) -> the row of the value that a name stands for after the run, or nil */
static int value_of(lua_State *L) {
  const handle *h = plan_at(L, 1);
  neap_value_id v = find(h, neap_lua_name(L, 2, "a blob"));
  if (v == NEAP_NO_VALUE) return 0;
  push_value(L, h->graph, h->plan, v);
  return 1;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* plan:_explain([blob]) -> text */
static int explain(lua_State *L) {
  const handle *h = plan_at(L, 1);
  neap_value_id v = NEAP_NO_VALUE;
  if (!lua_isnoneornil(L, 2)) {
    const char *name = neap_lua_name(L, 2, "explain");
    v = find(h, name);
    const struct neap_gone *gone = v == NEAP_NO_VALUE ? neap_graph_find_gone(h->graph, name) : NULL;
    if (gone != NULL && gone->into != NULL)
      return lua_pushfstring(L, "%s needs no bytes: %s absorbs it", name, gone->into), 1;
    if (gone != NULL)
      return lua_pushfstring(L, "%s needs no bytes: nothing reads it, so that it is not computed",
                             name),
             1;
    if (v == NEAP_NO_VALUE)
      neap_lua_fail(L, NEAP_NAME, "the plan of \"%s\" has no blob \"%s\"; plan:values() lists them",
                    h->graph->name, name);
  }
  neap_buffer *out = neap_lua_new_buffer(L);
  neap_report_explain(h->plan, h->graph, v, out);
  return neap_lua_push_buffer(L, out);
}

/* plan:_why(a, b) -> text; names as of plan:_value */
static int why(lua_State *L) {
  const handle *h = plan_at(L, 1);
  neap_value_id a = find(h, neap_lua_name(L, 2, "why")), b = find(h, neap_lua_name(L, 3, "why"));
  if (a == NEAP_NO_VALUE || b == NEAP_NO_VALUE)
    neap_lua_fail(L, NEAP_NAME, "why expects two blobs of the plan");
  neap_buffer *out = neap_lua_new_buffer(L);
  neap_error error = {0};
  if (neap_report_why(h->plan, h->graph, a, b, out, &error) != NEAP_OK) neap_lua_raise(L, &error);
  return neap_lua_push_buffer(L, out);
}

static int peak(lua_State *L) {
  const handle *h = plan_at(L, 1);
  neap_buffer *out = neap_lua_new_buffer(L);
  neap_report_peak(h->plan, h->graph, out);
  return neap_lua_push_buffer(L, out);
}

/* plan:text() -> rows that read back, as the store keeps them; plan:graph_text(): the laid-out
 * graph for people. */
static int text(lua_State *L) {
  const handle *h = plan_at(L, 1);
  neap_buffer *out = neap_lua_new_buffer(L);
  neap_plan_print(h->plan, out);
  return neap_lua_push_buffer(L, out);
}

static int graph_text(lua_State *L) {
  const handle *h = plan_at(L, 1);
  neap_buffer *out = neap_lua_new_buffer(L);
  neap_graph_print(h->graph, out);
  return neap_lua_push_buffer(L, out);
}

/* plan:_dot(fold), plan:_svg() -> text */
static int dot(lua_State *L) {
  const handle *h = plan_at(L, 1);
  neap_buffer *out = neap_lua_new_buffer(L);
  neap_report_dot(h->plan, h->graph, (int)neap_lua_opt_integer(L, 2, 0), out);
  return neap_lua_push_buffer(L, out);
}

static int svg(lua_State *L) {
  const handle *h = plan_at(L, 1);
  neap_buffer *out = neap_lua_new_buffer(L);
  neap_report_svg(h->plan, h->graph, 0, NULL, out);
  return neap_lua_push_buffer(L, out);
}

/* plan:verify() -> true; raises `plan` with the two values at fault. */
static int verify(lua_State *L) {
  const handle *h = plan_at(L, 1);
  NEAP_LUA_TRY(L, neap_plan_verify(h->plan, h->graph, &error));
  lua_pushboolean(L, 1);
  return 1;
}

void neap_lua_open_plan(lua_State *L) {
  static const neap_lua_reg meta[] = {{"__close", neap_lua_close, NEAP_LUA_ANY}, {NULL, NULL, 0}};
  static const neap_lua_reg methods[] = {{"_figures", figures, NEAP_LUA_ALONE | 1},
                                         {"_ops", ops, NEAP_LUA_ALONE | 1},
                                         {"_banks", banks, NEAP_LUA_ALONE | 1},
                                         {"_values", values, NEAP_LUA_ALONE | 1},
                                         {"_rewrites", rewrites, NEAP_LUA_ALONE | 1},
                                         {"_gone", gone, NEAP_LUA_ALONE | 2},
                                         {"_value", value_of, NEAP_LUA_ALONE | 2},
                                         {"_explain", explain, NEAP_LUA_ALONE | 2},
                                         {"_peak", peak, NEAP_LUA_ALONE | 1},
                                         {"text", text, NEAP_LUA_ALONE | 1},
                                         {"graph_text", graph_text, NEAP_LUA_ALONE | 1},
                                         {"verify", verify, 1},
                                         {"_why", why, NEAP_LUA_ALONE | 3},
                                         {"_tree", tree, NEAP_LUA_ALONE | 1},
                                         {"_dot", dot, NEAP_LUA_ALONE | 2},
                                         {"_svg", svg, NEAP_LUA_ALONE | 1},
                                         {NULL, NULL, 0}};
  neap_lua_class(L, NEAP_LUA_PLAN, "Plan", meta, methods);
  static const neap_lua_reg of_net[] = {{"_plan", make, 3}, {NULL, NULL, 0}};
  lua_getfield(L, -1, "Net");
  neap_lua_functions(L, of_net, true);
  lua_pop(L, 1);
}
