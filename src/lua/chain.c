/* chain.c: chains of layers and their caches as Lua sees them; lua/neap/nn/chain.lua makes a
 * model's memory of them.
 *
 * A cache is one of its own (new_cache), or that of a chain's layer, whose handle then keeps the
 * chain alive.
 */
#include "lua/binding.h"

#include <string.h>

/* ---- caches ---------------------------------------------------------------------------------- */

typedef struct cache_handle {
  neap_cache *own;
  int layer; /* from 1: the cache is that of a layer of the chain in the user value; 0: `own` */
} cache_handle;

typedef struct handle {
  neap_chain *chain;
  bool warned;
} handle;

static neap_chain *chain_at(lua_State *L, int index) {
  const handle *h = neap_lua_at(L, index, NEAP_LUA_CHAIN);
  if (h->chain == NULL) neap_lua_fail(L, NEAP_RELEASED, "the chain was closed");
  return h->chain;
}

/* The chain is asked each time: it may be gone before its caches. */
static neap_cache *cache_at(lua_State *L, int index) {
  cache_handle *h = neap_lua_at(L, index, NEAP_LUA_CACHE);
  if (h->layer == 0) return h->own;
  /* The chain is pushed, asked, and popped: the handle's user value keeps it. */
  lua_getiuservalue(L, index, 1);
  neap_chain *chain = chain_at(L, -1);
  lua_pop(L, 1);
  /* Only `debug` could have put another chain there. */
  if (h->layer > neap_chain_n_layers(chain))
    neap_lua_fail(L, NEAP_RELEASED, "the cache has lost its chain");
  return neap_chain_cache(chain, h->layer - 1);
}

static void free_cache(lua_State *L, void *at) {
  cache_handle *h = at;
  (void)L;
  neap_cache_free(h->own);
  h->own = NULL;
}

static int cache_length(lua_State *L) {
  lua_pushinteger(L, neap_cache_n(cache_at(L, 1)));
  return 1;
}

static int cache_to_text(lua_State *L) {
  const neap_cache *cache = cache_at(L, 1);
  lua_pushfstring(L, "cache of %s: %d tensors", neap_cache_name(cache), neap_cache_n(cache));
  return 1;
}

/* new_cache(name) -> cache */
static int new_cache(lua_State *L) {
  const char *name = neap_lua_opt_string(L, 1, "?");
  /* The name stays on the stack, at 1, until the cache has its own copy of it. */
  cache_handle *h = neap_lua_new(L, sizeof *h, NEAP_LUA_CACHE, free_cache);
  NEAP_LUA_TRY(L, neap_cache_new(name, &h->own, &error));
  return 1;
}

/* cache:push(tensor [, label]) -> cache */
static int cache_push(lua_State *L) {
  neap_cache *cache = cache_at(L, 1);
  if (!neap_lua_is_tensor(L, 2))
    neap_lua_fail(L, NEAP_NAME, "cache of %s: push expects a tensor, got a %s",
                  neap_cache_name(cache), luaL_typename(L, 2));
  /* Tensor and label are arguments: the stack keeps both during the call. */
  const char *label = neap_lua_opt_string(L, 3, NULL);
  NEAP_LUA_TRY(L, neap_cache_push(cache, neap_lua_tensor_at(L, 2), label, &error));
  lua_settop(L, 1);
  return 1;
}

/* What the pop expects, from nil, a label or {label =, shape =, dtype =} at index 2. The label
 * stays on the stack. */
static neap_cache_want read_want(lua_State *L, neap_shape *shape) {
  neap_cache_want want = {0};
  if (lua_istable(L, 2)) {
    /* Each field stays on the stack, so that what `want` borrows lives until the pop is over. */
    neap_lua_only_fields(L, 2, "cache:pop", (const char *const[]){"label", "dtype", "shape", NULL});
    if (neap_lua_field(L, 2, "label") != LUA_TNIL) want.label = neap_lua_check_string(L, -1);
    if (neap_lua_field(L, 2, "dtype") != LUA_TNIL)
      want.dtype = neap_lua_dtype(L, lua_gettop(L), NEAP_DTYPE_NONE);
    if (neap_lua_field(L, 2, "shape") != LUA_TNIL) {
      neap_lua_shape(L, lua_gettop(L), shape, "pop");
      want.shape = shape;
    }
  } else {
    want.label = neap_lua_opt_string(L, 2, NULL);
  }
  return want;
}

/* cache:pop([label | {label =, shape =, dtype =}]) -> tensor */
static int cache_pop(lua_State *L) {
  neap_cache *cache = cache_at(L, 1);
  neap_shape shape = {0};
  lua_settop(L, 2);
  neap_cache_want want = read_want(L, &shape);
  /* The handle first: a tensor that has been taken out must have an owner. */
  neap_lua_tensor *out = neap_lua_new_tensor(L);
  NEAP_LUA_TRY(L, neap_cache_pop(cache, &want, &out->t, &error));
  return 1;
}

static int cache_clear(lua_State *L) {
  neap_cache_clear(cache_at(L, 1));
  return 0;
}

/* cache:labels() -> list, the oldest first; false where there is none */
static int cache_labels(lua_State *L) {
  const neap_cache *cache = cache_at(L, 1);
  int n = neap_cache_n(cache);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    const char *label = neap_cache_label(cache, i);
    if (label != NULL)
      lua_pushstring(L, label);
    else
      lua_pushboolean(L, 0);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* ---- chains ---------------------------------------------------------------------------------- */

static void free_chain(lua_State *L, void *at) {
  handle *h = at;
  (void)L;
  neap_chain_free(h->chain);
  h->chain = NULL;
}

/* Nets of the list at `index`, in order; the room stays on the stack, with a copy that keeps
 * them. */
static const neap_net **nets_at(lua_State *L, int index, int *n) {
  neap_lua_check_type(L, index, LUA_TTABLE);
  /* A finaliser may change the user's list while the room is made; the copy keeps the nets. */
  neap_lua_copy(L, index);
  index = lua_gettop(L);
  *n = neap_lua_length(L, index);
  const neap_net **net = neap_lua_room(L, (size_t)(*n + 1) * sizeof *net);
  for (int i = 0; i < *n; i++) {
    lua_rawgeti(L, index, i + 1);
    net[i] = neap_lua_net_at(L, -1)->net;
    lua_pop(L, 1);
  }
  return net;
}

/* new_chain(ws, {net, ..}, max_batch, options) -> chain */
static int new_chain(lua_State *L) {
  int n;
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  int64_t most = neap_lua_check_integer(L, 3);

  /* Nets and their room lie above the four arguments; the first net is pushed once more, since
   * options are read against its inputs. */
  lua_settop(L, 4);
  const neap_net **net = nets_at(L, 2, &n);
  lua_rawgeti(L, 2, 1);
  neap_options options = neap_lua_options(L, 4, lua_gettop(L));
  neap_lua_note_script(L, options.db);
  handle *h = neap_lua_new(L, sizeof *h, NEAP_LUA_CHAIN, free_chain);
  NEAP_LUA_TRY(L, neap_chain_open(ws, n, net, most, &options, &h->chain, &error));
  return 1;
}

static int has_batch(lua_State *L) {
  lua_pushboolean(L, neap_chain_has_batch(chain_at(L, 1), neap_lua_check_integer(L, 2)));
  return 1;
}

/* chain:add_batch(n, {net, ..}) */
static int add_batch(lua_State *L) {
  neap_chain *chain = chain_at(L, 1);
  int64_t batch = neap_lua_check_integer(L, 2);
  int n;
  const neap_net **net = nets_at(L, 3, &n);
  /* The library takes as many nets as there are layers, and can't count the list. */
  if (n != neap_chain_n_layers(chain))
    neap_lua_fail(L, NEAP_ARGUMENT, "add_batch expects %d nets, got %d", neap_chain_n_layers(chain),
                  n);
  NEAP_LUA_TRY(L, neap_chain_add_batch(chain, batch, net, &error));
  return 0;
}

/* chain:forward(train) */
static int forward(lua_State *L) {
  neap_chain *chain = chain_at(L, 1);
  neap_error error = {0};
  /* A run may be stopped by Ctrl-C: it raises in a way of its own. */
  if (neap_chain_forward(chain, lua_toboolean(L, 2), &error) != NEAP_OK)
    neap_lua_raise_run(L, &error);
  /* A first pass makes programs, of a backward too, and these may warn. */
  handle *h = neap_lua_at(L, 1, NEAP_LUA_CHAIN);
  if (!h->warned) neap_lua_warn(L, neap_chain_warning(chain));
  h->warned = h->warned || neap_chain_warning(chain)[0] != '\0';
  neap_lua_collect(L);
  return 0;
}

static int backward(lua_State *L) {
  neap_chain *chain = chain_at(L, 1);
  neap_error error = {0};
  if (neap_chain_backward(chain, &error) != NEAP_OK) neap_lua_raise_run(L, &error);
  neap_lua_collect(L);
  return 0;
}

static neap_list list_at(lua_State *L, int index) {
  static const char *const name[] = {"params", "outputs", "inputs", "caches", NULL};
  return (neap_list)neap_lua_check_option(L, index, NULL, name);
}

/* chain:item(list, i) -> {name, layer, blob, diff_blob, data, diff} */
static int item(lua_State *L) {
  const neap_chain *chain = chain_at(L, 1);
  neap_list list = list_at(L, 2);
  int64_t i =
    neap_lua_position(L, neap_lua_check_integer(L, 3), neap_chain_n(chain, list), "the entry");

  /* From below: the table, a handle for the data, one for the diff. They are there before the entry
   * is read, whose tensors they then own. */
  neap_chain_item entry = {0};
  lua_createtable(L, 0, 6);
  neap_lua_tensor *data = neap_lua_new_tensor(L), *diff = neap_lua_new_tensor(L);
  NEAP_LUA_TRY(L, neap_chain_item_at(chain, list, (int)i, &entry, &error));
  data->t = entry.data;
  diff->t = entry.diff;
  bool has_diff = diff->t.storage != NULL;

  /* The table once more, on top: from below it is table, data, diff, table. */
  lua_pushvalue(L, -3);
  neap_lua_set_text(L, "name", entry.name);
  neap_lua_set_text(L, "layer", entry.layer);
  neap_lua_set_text(L, "blob", entry.blob);
  neap_lua_set_text(L, "diff_blob", entry.diff_blob);
  lua_pushvalue(L, -3);
  lua_setfield(L, -2, "data");
  if (has_diff) {
    lua_pushvalue(L, -2);
    lua_setfield(L, -2, "diff");
  }
  return 1;
}

static int length(lua_State *L) {
  lua_pushinteger(L, neap_chain_n(chain_at(L, 1), list_at(L, 2)));
  return 1;
}

/* chain:drop(list, i) */
static int drop(lua_State *L) {
  neap_chain *chain = chain_at(L, 1);
  neap_list list = list_at(L, 2);
  int64_t i =
    neap_lua_position(L, neap_lua_check_integer(L, 3), neap_chain_n(chain, list), "the entry");
  NEAP_LUA_TRY(L, neap_chain_drop(chain, list, (int)i, &error));
  return 0;
}

static int clear(lua_State *L) {
  neap_chain_clear(chain_at(L, 1));
  return 0;
}

/* chain:cache(layer) -> cache */
static int cache(lua_State *L) {
  neap_chain *chain = chain_at(L, 1);
  int64_t i =
    neap_lua_position(L, neap_lua_check_integer(L, 2), neap_chain_n_layers(chain), "the layer");
  cache_handle *h = neap_lua_new(L, sizeof *h, NEAP_LUA_CACHE, free_cache);
  /* The cache is named by its layer, and keeps the chain alive. */
  h->layer = (int)i + 1;
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, -2, 1);
  return 1;
}

static int to_text(lua_State *L) {
  lua_pushfstring(L, "chain of %d layers", neap_chain_n_layers(chain_at(L, 1)));
  return 1;
}

void neap_lua_open_chain(lua_State *L) {
  static const neap_lua_reg cache_meta[] = {{"__len", cache_length, NEAP_LUA_ANY},
                                            {"__tostring", cache_to_text, NEAP_LUA_ANY},
                                            {NULL, NULL, 0}};
  static const neap_lua_reg cache_methods[] = {{"push", cache_push, 3},
                                               {"pop", cache_pop, 2},
                                               {"clear", cache_clear, 1},
                                               {"labels", cache_labels, NEAP_LUA_ALONE | 1},
                                               {NULL, NULL, 0}};
  static const neap_lua_reg meta[] = {{"__tostring", to_text, NEAP_LUA_ANY}, {NULL, NULL, 0}};
  static const neap_lua_reg methods[] = {{"has_batch", has_batch, 2},
                                         {"add_batch", add_batch, 3},
                                         {"forward", forward, 2},
                                         {"backward", backward, 1},
                                         {"item", item, NEAP_LUA_ALONE | 3},
                                         {"n", length, 2},
                                         {"drop", drop, 3},
                                         {"clear", clear, 1},
                                         {"cache", cache, 2},
                                         {NULL, NULL, 0}};
  neap_lua_class(L, NEAP_LUA_CACHE, "Cache", cache_meta, cache_methods);
  neap_lua_class(L, NEAP_LUA_CHAIN, "Chain", meta, methods);
  static const neap_lua_reg functions[] = {
    {"new_cache", new_cache, 1}, {"new_chain", new_chain, 4}, {NULL, NULL, 0}};
  neap_lua_functions(L, functions, false);
}
