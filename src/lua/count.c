/* count.c: dry runs and counts by class as tables, for lua/neap/memory/mem_param.lua
 * and count.lua, and gradients given back. */
#include "lua/binding.h"

/* ---- dry run --------------------------------------------------------------------------------- */

/* The log, in a handle that frees it: building tables may raise. */
typedef struct held {
  neap_dry_run *log;
} held;

static void free_dry_run(lua_State *L, void *at) {
  held *h = at;
  (void)L;
  neap_dry_run_free(h->log);
  h->log = NULL;
}

/* A list of rows of a kind as field `name` of the table on top. */
static void set_rows(lua_State *L, const neap_dry_run *log, neap_row_kind kind, const char *name) {
  /* From below: the table, the cursor, the list. Stepping the cursor may fail, so that it is a
   * handle. */
  neap_rows **rows = neap_lua_new_cursor(L);
  NEAP_LUA_TRY(L, neap_dry_run_rows(log, kind, rows, &error));
  neap_lua_push_rows(L, *rows, kind);
  lua_setfield(L, -3, name);
  lua_pop(L, 1);
}

/* plan:_dry_run(net) -> its totals, and lists of its `rows`, `layers` and `slots`, all as neap.h
 * describes them */
static int dry_run(lua_State *L) {
  const neap_memory_plan *plan = neap_lua_plan_at(L, 1);
  const neap_lua_net *net = neap_lua_net_at(L, 2);
  /* Handle first: it frees the log whatever the tables below raise. */
  held *h = neap_lua_new(L, sizeof *h, NEAP_LUA_DRY_RUN, free_dry_run);
  NEAP_LUA_TRY(L, neap_memory_plan_dry_run(plan, net->net, &h->log, &error));
  /* The row of totals is the table that the lists go into. */
  neap_lua_push_row(L, NEAP_ROW_DRY_RUN, h->log);
  set_rows(L, h->log, NEAP_ROW_DRY_ROW, "rows");
  set_rows(L, h->log, NEAP_ROW_DRY_LAYER, "layers");
  set_rows(L, h->log, NEAP_ROW_DRY_SLOT, "slots");
  return 1;
}

/* ---- count by class -------------------------------------------------------------------------- */

/* net:_count(options [, range]) -> before, after: bytes by class */
static int count(lua_State *L) {
  const neap_lua_net *net = neap_lua_net_at(L, 1);

  /* All arguments are there, given or nil: what is pushed from here on has fixed places. */
  lua_settop(L, 3);
  const neap_range *range = neap_lua_opt_range(L, 3);
  neap_options options = neap_lua_options_for(L, 2, 1, range != NULL);
  neap_counts before, after;

  /* Plain figures: nothing is to be freed when pushing them raises. */
  NEAP_LUA_TRY(L, range != NULL
                    ? neap_range_count(range, net->net, &options, &before, &after, &error)
                    : neap_net_count(net->net, &options, &before, &after, &error));
  neap_lua_push_row(L, NEAP_ROW_COUNTS, &before);
  neap_lua_push_row(L, NEAP_ROW_COUNTS, &after);
  return 2;
}

/* ws:drop_gradients() -> bytes: gives the gradients of parameters back; the next run that computes
 * them makes them again. */
static int drop_gradients(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)neap_workspace_drop_gradients(neap_lua_workspace_at(L, 1)));
  return 1;
}

static void add_methods(lua_State *L, const char *class, const neap_lua_reg *methods) {
  lua_getfield(L, -1, class);
  neap_lua_functions(L, methods, true);
  lua_pop(L, 1);
}

void neap_lua_open_count(lua_State *L) {
  static const neap_lua_reg of_plan[] = {{"_dry_run", dry_run, NEAP_LUA_ALONE | 2},
                                         {NULL, NULL, 0}};
  static const neap_lua_reg of_net[] = {{"_count", count, 3}, {NULL, NULL, 0}};
  static const neap_lua_reg of_workspace[] = {{"drop_gradients", drop_gradients, 1},
                                              {NULL, NULL, 0}};
  add_methods(L, "Plan", of_plan);
  add_methods(L, "Net", of_net);
  add_methods(L, "Workspace", of_workspace);
}
