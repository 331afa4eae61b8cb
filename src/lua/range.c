/* range.c: batches: the handle of a range of batch sizes, which is the plan of the largest, and
 * which net:_plan and ws:_compile take to make those of smaller ones; and the search for the
 * largest batch that fits. lua/neap/memory/range.lua and fit_batch.lua are their user's side. */
#include "lua/binding.h"

typedef struct handle {
  neap_range *range;
} handle;

const neap_range *neap_lua_opt_range(lua_State *L, int index) {
  if (lua_isnoneornil(L, index)) return NULL;
  const handle *h = neap_lua_at(L, index, NEAP_LUA_RANGE);
  if (h->range == NULL) neap_lua_fail(L, NEAP_RELEASED, "the range of batches was closed");
  return h->range;
}

static void free_range(lua_State *L, void *at) {
  handle *h = at;
  (void)L;
  neap_range_free(h->range);
  h->range = NULL;
}

/* new_range(net, options) -> range: `net`, with the inputs' shapes of `options`, is the largest
 * batch. */
static int new_range(lua_State *L) {
  const neap_lua_net *net = neap_lua_net_at(L, 1);
  /* The rooms of the options lie above the two arguments, until the call is over. */
  lua_settop(L, 2);
  neap_options options = neap_lua_options_for(L, 2, 1, true);
  handle *h = neap_lua_new(L, sizeof *h, NEAP_LUA_RANGE, free_range);
  NEAP_LUA_TRY(L, neap_range_open(net->net, 0, &options, &h->range, &error));
  neap_lua_warn(L, neap_range_warning(h->range));
  return 1;
}

static int to_text(lua_State *L) {
  const handle *h = neap_lua_any(L, 1, NEAP_LUA_RANGE);
  if (h->range == NULL || neap_lua_is_closed(h))
    return lua_pushliteral(L, "range of batches (closed)"), 1;
  neap_figures most = neap_range_figures(h->range);
  char text[24];
  lua_pushfstring(L, "range of batches of net \"%s\": arena %s", most.net,
                  neap_bytes_text((double)most.arena_bytes, text));
  return 1;
}

/* batch_inputs(net, n) -> {input = shape}: of those inputs whose shapes change with the batch, at n
 * rows */
static int batch_inputs(lua_State *L) {
  const neap_net *net = neap_lua_net_at(L, 1)->net;
  int64_t n = neap_lua_check_integer(L, 2);
  int n_input = 0;
  /* One block, freed with its handle: pushing shapes may raise. */
  neap_input **input = (neap_input **)neap_lua_new_block(L);
  NEAP_LUA_TRY(L, neap_net_batch_inputs(net, n, input, &n_input, &error));
  lua_createtable(L, 0, n_input);
  for (int i = 0; i < n_input; i++) {
    neap_lua_push_shape(L, &(*input)[i].type.shape);
    lua_setfield(L, -2, (*input)[i].name);
  }
  return 1;
}

/* ---- the largest batch that fits ------------------------------------------------------------- */

typedef struct source {
  lua_State *L;
  /* of the stack, with the function that asks Lua on it; what an answer needs lies above */
  int top;
  bool raised; /* the error object is on top */
  const neap_net *net;
  neap_options options;
} source;

/* (source, n): calls upvalue 1 with n for a net and its memory options. Everything stays on the
 * stack, so that it lives. */
static int ask(lua_State *L) {
  source *s = lua_touserdata(L, 1);
  /* The user's function, called with n; its two results are then 3 and 4. */
  lua_pushvalue(L, lua_upvalueindex(1));
  lua_pushvalue(L, 2);
  neap_lua_call_user(L, 1, 2);
  /* Both are read at once. All that they borrow from is returned, and so lies on the caller's
   * stack. */
  s->net = neap_lua_net_at(L, 3)->net;
  s->options = neap_lua_options(L, 4, 3);
  return lua_gettop(L);
}

/* For neap_fit_batch: Lua's errors wait until the search has let go of what it holds. */
static neap_status net_of_batch(void *context, int64_t n, const neap_net **net,
                                neap_options *options, neap_error *error) {
  source *s = context;

  /* What the answer before needed goes; the function stays. */
  lua_settop(s->L, s->top);
  lua_pushvalue(s->L, s->top);
  lua_pushlightuserdata(s->L, s);
  lua_pushinteger(s->L, n);

  /* Here no error may pass: neap_fit_batch holds what only it can free. */
  if (neap_lua_call_protected(s->L, 2, LUA_MULTRET) != LUA_OK) {
    s->raised = true;
    return neap_fail(error, NEAP_INTERNAL, "fit_batch: Lua raised an error");
  }
  *net = s->net;
  *options = s->options;
  return NEAP_OK;
}

/* fit_batch(f, max [, update [, hold]]) -> n, plan: the largest n up to max whose plan fits; f(n)
 * -> net, memory options. With `update`, the net of an update, the nets are those of micro-batches;
 * with `hold`, as net:_split_hold gives it, batches are held before an update.
 */
static int fit_batch(lua_State *L) {
  neap_lua_check_type(L, 1, LUA_TFUNCTION);

  /* From below: f, max, update, hold; 5: the plan's handle; 6: `ask` around f, which calls start
   * from. */
  lua_settop(L, 4);
  source s = {.L = L};
  neap_fit_search fit = {.net = net_of_batch, .context = &s, .max = neap_lua_check_integer(L, 2)};
  neap_net *update = lua_isnil(L, 3) ? NULL : neap_lua_net_at(L, 3)->net,
           *hold = lua_isnil(L, 4) ? NULL : neap_lua_net_at(L, 4)->net;
  fit.update = update;
  fit.hold = hold;
  neap_memory_plan **plan = neap_lua_new_plan(L);
  lua_pushvalue(L, 1);
  lua_pushcclosure(L, ask, 1);
  s.top = lua_gettop(L);

  /* Taken now: within the search nothing may raise. */
  luaL_checkstack(L, 8, "fit_batch");
  int64_t n;
  neap_error error = {0};

  /* f may close their handles; nothing is raised meanwhile */
  if (update != NULL) neap_net_retain(update);
  if (hold != NULL) neap_net_retain(hold);
  neap_status status = neap_fit_batch(&fit, &n, plan, &error);
  neap_net_free(update);
  neap_net_free(hold);

  /* Lua's own error is on top, as it was raised. */
  if (s.raised) return neap_lua_leave(L), lua_error(L);
  if (status != NEAP_OK) neap_lua_raise(L, &error);
  neap_lua_warn(L, neap_memory_plan_warning(*plan));

  /* The batch, and its plan. */
  lua_pushinteger(L, n);
  lua_pushvalue(L, 5);
  return 2;
}

/* micro_beside(update's net, options [, hold]) -> {bytes, arena}: for the option `beside` of the
 * micro-batches. */
static int micro_beside(lua_State *L) {
  lua_settop(L, 3);
  const neap_net *update = neap_lua_net_at(L, 1)->net,
                 *hold = lua_isnil(L, 3) ? NULL : neap_lua_net_at(L, 3)->net;
  neap_options options = neap_lua_options(L, 2, 1);
  neap_beside beside = {0};
  NEAP_LUA_TRY(L, neap_micro_beside(update, hold, &options, &beside, &error));

  /* Two numbers, as the option _beside takes them. */
  lua_createtable(L, 2, 0);
  lua_pushinteger(L, (lua_Integer)beside.bytes);
  lua_seti(L, -2, 1);
  lua_pushinteger(L, (lua_Integer)beside.arena_bytes);
  lua_seti(L, -2, 2);
  return 1;
}

void neap_lua_open_range(lua_State *L) {
  static const neap_lua_reg meta[] = {{"__close", neap_lua_close, NEAP_LUA_ANY},
                                      {"__tostring", to_text, NEAP_LUA_ANY},
                                      {NULL, NULL, 0}};
  static const neap_lua_reg methods[] = {{"close", neap_lua_close, 1}, {NULL, NULL, 0}};
  neap_lua_class(L, NEAP_LUA_RANGE, "Range", meta, methods);
  static const neap_lua_reg functions[] = {{"new_range", new_range, 2},
                                           {"batch_inputs", batch_inputs, NEAP_LUA_ALONE | 2},
                                           {"fit_batch", fit_batch, 8},
                                           {"micro_beside", micro_beside, 3},
                                           {NULL, NULL, 0}};
  neap_lua_functions(L, functions, false);
}
