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

/* plan:_figures() -> those of the plan, as one table */
static int figures(lua_State *L) {
  const handle *h = plan_at(L, 1);
  neap_figures row;
  if (h->own.plan != NULL) {
    row = neap_forecast_figures(&h->own);
  } else {
    row = neap_report_figures(h->plan, h->graph);
    row.total_bytes = (int64_t)h->total_bytes;
    row.plan_id = h->plan_id;
  }
  neap_lua_push_shown(L, NEAP_ROW_FIGURES, &row, NEAP_SHOWN_RUN, 0);
  return 1;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The rows of one kind as a list. */
static int push_kind(lua_State *L, neap_row_kind kind) {
  const handle *h = plan_at(L, 1);
  neap_rows **rows = neap_lua_new_cursor(L);
  NEAP_LUA_TRY(L, neap_report_rows(h->plan, h->graph, kind, rows, &error));
  neap_lua_push_rows(L, *rows, kind);
  return 1;
}

/* plan:_ops(), _values(), _banks(), _rewrites(), _regions() -> lists of rows as neap.h describes
 * them */
static int ops(lua_State *L) { return push_kind(L, NEAP_ROW_OP); }
static int values(lua_State *L) { return push_kind(L, NEAP_ROW_VALUE); }
static int banks(lua_State *L) { return push_kind(L, NEAP_ROW_BANK); }
static int rewrites(lua_State *L) { return push_kind(L, NEAP_ROW_REWRITE); }
static int regions(lua_State *L) { return push_kind(L, NEAP_ROW_REGION); }

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

/* {ops =, values =}; each op with `subs`: a list of the same for its subnets. */
static void push_tree(lua_State *L, const neap_graph *graph, const neap_plan *plan) {
  const void *row;
  luaL_checkstack(L, 12, "nesting of subnets");
  lua_createtable(L, 0, 2);
  neap_rows **values_of = neap_lua_new_cursor(L);
  NEAP_LUA_TRY(L, neap_report_rows(plan, graph, NEAP_ROW_VALUE, values_of, &error));
  neap_lua_push_rows(L, *values_of, NEAP_ROW_VALUE);
  lua_setfield(L, -3, "values");
  lua_pop(L, 1);
  neap_rows **ops_of = neap_lua_new_cursor(L);
  NEAP_LUA_TRY(L, neap_report_rows(plan, graph, NEAP_ROW_OP, ops_of, &error));
  lua_newtable(L);
  for (int s = 0; s < plan->n_node; s++) {
    int i = plan->order[s];
    NEAP_LUA_TRY(L, neap_rows_next(*ops_of, &row, &error));
    neap_lua_push_row(L, NEAP_ROW_OP, row);
    lua_createtable(L, graph->node[i].n_sub, 0);
    for (int k = 0; k < graph->node[i].n_sub; k++) {
      push_tree(L, graph->node[i].sub[k], plan->sub[i][k]);
      lua_rawseti(L, -2, k + 1);
    }
    lua_setfield(L, -2, "subs");
    lua_rawseti(L, -2, s + 1);
  }
  lua_setfield(L, -3, "ops");
  lua_pop(L, 1);
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
  neap_rows **rows = neap_lua_new_cursor(L);
  const void *row;
  NEAP_LUA_TRY(L, neap_report_rows(h->plan, h->graph, NEAP_ROW_VALUE, rows, &error));
  NEAP_LUA_TRY(L, neap_rows_at(*rows, v, &row, &error));
  neap_lua_push_row(L, NEAP_ROW_VALUE, row);
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
                                         {"_regions", regions, NEAP_LUA_ALONE | 1},
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
