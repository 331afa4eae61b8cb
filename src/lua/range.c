/* range.c: the handle of a range of batch sizes: the plan of the largest, which net:_plan and ws:_compile take to make those
 * of smaller ones. lua/neap/range.lua is its user's side. */
#include "lua/binding.h"

typedef struct handle {
  neap_range *range;
} handle;

const neap_range *neap_lua_opt_range(lua_State *L, int index) {
  if (lua_isnoneornil(L, index)) return NULL;
  const handle *h = luaL_testudata(L, index, NEAP_LUA_RANGE);
  if (h == NULL) neap_lua_fail(L, NEAP_ARGUMENT, "a range of batches is expected, got a %s", luaL_typename(L, index));
  if (h->range == NULL) neap_lua_fail(L, NEAP_RELEASED, "the range of batches was closed");
  return h->range;
}

static int release(lua_State *L) {
  handle *h = luaL_checkudata(L, 1, NEAP_LUA_RANGE);
  neap_range_free(h->range);
  h->range = NULL;
  return 0;
}

/* new_range(net, options) -> range: `net`, with the inputs' shapes of `options`, is the largest batch. */
static int new_range(lua_State *L) {
  const neap_lua_net *net = neap_lua_net_at(L, 1);
  lua_settop(L, 2);
  neap_compile_options options = neap_lua_compile_options(L, 2, 1);
  handle *h = neap_lua_new(L, sizeof *h, NEAP_LUA_RANGE);
  NEAP_LUA_TRY(L, neap_range_new(net->net, &options, &h->range, &error));
  return 1;
}

static int to_text(lua_State *L) {
  const handle *h = luaL_checkudata(L, 1, NEAP_LUA_RANGE);
  if (h->range == NULL) return lua_pushliteral(L, "range of batches (closed)"), 1;
  const neap_graph *graph;
  const neap_plan *plan = neap_range_most(h->range, &graph);
  char text[24];
  lua_pushfstring(L, "range of batches of net \"%s\": arena %s", graph->name, neap_bytes_text((double)plan->arena_bytes, text));
  return 1;
}

void neap_lua_open_range(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", release}, {"__close", release}, {"__tostring", to_text}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"close", release}, {NULL, NULL}};
  neap_lua_class(L, NEAP_LUA_RANGE, "Range", meta, methods);
  lua_pushcfunction(L, new_range);
  lua_setfield(L, -2, "new_range");
}
