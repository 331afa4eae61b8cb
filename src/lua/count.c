/* count.c: dry runs and counts by class as tables, for lua/neap/memory/mem_param.lua
 * and count.lua, and gradients given back. */
#include "lua/binding.h"
#include "report/report.h"

/* ---- dry run --------------------------------------------------------------------------------- */

static void push_row(lua_State *L, const neap_dry_row *row) {
  lua_createtable(L, 0, 11);
  neap_lua_set_text(L, "layer", row->layer);
  neap_lua_set_text(L, "blob", row->blob);
  neap_lua_set_text(L, "key", row->key);
  neap_lua_set_text(L, "region", row->region);
  neap_lua_set_text(L, "role", row->role);
  neap_lua_set_text(L, "dtype", row->dtype);
  neap_lua_set_text(L, "reason", row->reason);
  neap_lua_set_text(L, "partner", row->partner);
  neap_lua_set_integer(L, "bytes", row->bytes);
  neap_lua_set_integer(L, "first_step", row->first_step + 1);
  neap_lua_set_integer(L, "last_step", row->last_step + 1);
  if (row->slot >= 0)
    lua_pushfstring(L, "slot %d", row->slot + 1);
  else
    lua_pushstring(L, row->region);
  lua_setfield(L, -2, "slot");
}

/* With the labels of what begins there, as plan:values() has them. */
static void push_slot(lua_State *L, const neap_dry_run *log, int s) {
  const neap_dry_slot *slot = &log->slot[s];
  luaL_Buffer names;
  lua_createtable(L, 0, 5);
  neap_lua_set_integer(L, "slot", s + 1);
  neap_lua_set_integer(L, "offset", slot->offset);
  neap_lua_set_integer(L, "bytes", slot->bytes);
  neap_lua_set_integer(L, "n_blob", slot->n_row);
  luaL_buffinit(L, &names);
  for (int i = 0; i < slot->n_row; i++) {
    const neap_dry_row *row = &log->row[slot->row[i]];
    if (i > 0) luaL_addchar(&names, ' ');
    luaL_addstring(&names, row->blob);
    if (strcmp(row->key, "diff") == 0) luaL_addstring(&names, ".grad");
  }
  luaL_pushresult(&names);
  lua_setfield(L, -2, "blobs");
}

static void push_layer(lua_State *L, const neap_dry_layer *layer) {
  lua_createtable(L, 0, 3);
  neap_lua_set_text(L, "layer", layer->name);
  neap_lua_set_integer(L, "raw_bytes", layer->raw_bytes);
  neap_lua_set_integer(L, "planned_bytes", layer->planned_bytes);
}

/* The log, in a handle that frees it: building tables may raise. */
typedef struct held {
  neap_dry_run *log;
} held;

void neap_lua_free_dry_run(lua_State *L, void *at) {
  held *h = at;
  (void)L;
  neap_dry_run_free(h->log);
  h->log = NULL;
}

/* plan:_dry_run(net) -> {rows =, layers =, slots =, raw_bytes =, raw_data_bytes =, raw_diff_bytes
 * =, planned_bytes =, arena_bytes =, scratch_bytes_max =, saved =, net =, policy =, train =} */
static int dry_run(lua_State *L) {
  const neap_graph *graph;
  const neap_plan *plan = neap_lua_plan_at(L, 1, &graph);
  const neap_lua_net *net = neap_lua_net_at(L, 2);
  held *h = neap_lua_new(L, sizeof *h, NEAP_LUA_DRY_RUN);
  NEAP_LUA_TRY(L, neap_report_dry_run(plan, graph, net->net, &h->log, &error));
  const neap_dry_run *log = h->log;
  lua_createtable(L, 0, 13);
  neap_lua_set_text(L, "net", log->net);
  neap_lua_set_text(L, "policy", log->policy);
  neap_lua_set_bool(L, "train", log->train);
  neap_lua_set_integer(L, "raw_bytes", log->raw_bytes);
  neap_lua_set_integer(L, "raw_data_bytes", log->raw_data_bytes);
  neap_lua_set_integer(L, "raw_diff_bytes", log->raw_diff_bytes);
  neap_lua_set_integer(L, "planned_bytes", log->planned_bytes);
  neap_lua_set_integer(L, "arena_bytes", log->arena_bytes);
  neap_lua_set_integer(L, "scratch_bytes_max", log->scratch_bytes);
  lua_pushnumber(L, log->saved);
  lua_setfield(L, -2, "saved");
  lua_createtable(L, log->n_row, 0);
  for (int r = 0; r < log->n_row; r++) push_row(L, &log->row[r]), lua_seti(L, -2, r + 1);
  lua_setfield(L, -2, "rows");
  lua_createtable(L, log->n_layer, 0);
  for (int l = 0; l < log->n_layer; l++) push_layer(L, &log->layer[l]), lua_seti(L, -2, l + 1);
  lua_setfield(L, -2, "layers");
  lua_createtable(L, log->n_slot, 0);
  for (int s = 0; s < log->n_slot; s++) push_slot(L, log, s), lua_seti(L, -2, s + 1);
  lua_setfield(L, -2, "slots");
  return 1;
}

/* ---- count by class -------------------------------------------------------------------------- */

static void push_counts(lua_State *L, const neap_counts *counts) {
  lua_createtable(L, 0, 6);
  neap_lua_set_integer(L, "parameters", counts->parameter_bytes);
  neap_lua_set_integer(L, "gradients", counts->gradient_bytes);
  neap_lua_set_integer(L, "outputs", counts->output_bytes);
  neap_lua_set_integer(L, "gradient inputs", counts->gradient_input_bytes);
  neap_lua_set_integer(L, "buffers", counts->buffer_bytes);
  neap_lua_set_integer(L, "total", counts->total_bytes);
}

/* net:_count(options [, range]) -> before, after: bytes by class */
static int count(lua_State *L) {
  const neap_lua_net *net = neap_lua_net_at(L, 1);
  lua_settop(L, 3);
  neap_compile_options options = neap_lua_compile_options(L, 2, 1);
  const neap_range *range = neap_lua_opt_range(L, 3);
  neap_counts before, after;
  NEAP_LUA_TRY(L, neap_driver_count(net->net, &options, range, &before, &after, &error));
  push_counts(L, &before);
  push_counts(L, &after);
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
