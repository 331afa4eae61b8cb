/* memonger.c: the handle behind lua/neap/memonger.lua: live ranges and conflicts of a net's names, orders, assignments; and
 * comparing and editing nets. Ops, blobs and slots count from 1 on the Lua side.
 */
#include "lua/binding.h"

#include <string.h>

#define NEAP_LUA_RECYCLE "neap.recycle"

/* User value 1 keeps the net alive. */
typedef struct handle {
  neap_recycle r;
  bool open;
} handle;

static neap_recycle *recycle_at(lua_State *L, int index) {
  handle *h = luaL_checkudata(L, index, NEAP_LUA_RECYCLE);
  if (!h->open) neap_lua_fail(L, NEAP_RELEASED, "the live ranges were closed");
  return &h->r;
}

static int release(lua_State *L) {
  handle *h = luaL_checkudata(L, 1, NEAP_LUA_RECYCLE);
  if (h->open) neap_recycle_close(&h->r);
  h->open = false;
  return 0;
}

/* recycle(net, options, dag) -> handle */
static int open(lua_State *L) {
  const neap_lua_net *net = neap_lua_net_at(L, 1);
  bool dag = lua_toboolean(L, 3);
  lua_settop(L, 2);
  neap_compile_options options = neap_lua_compile_options(L, 2, 1);
  handle *h = neap_lua_new(L, sizeof *h, NEAP_LUA_RECYCLE);
  lua_pushvalue(L, 1);
  lua_setiuservalue(L, -2, 1);
  NEAP_LUA_TRY(L, neap_recycle_open(&h->r, net->net, &options.graph, dag, &error));
  h->open = true;
  return 1;
}

/* handle:blobs() -> rows {name, role, gradient_of, device, dtype, bytes, first, last, view, one_device, fixed}; ops from 1, first 0:
 * before the net. */
static int blobs(lua_State *L) {
  const neap_recycle *r = recycle_at(L, 1);
  lua_createtable(L, r->n_blob, 0);
  for (int i = 0; i < r->n_blob; i++) {
    const neap_recycle_blob *b = &r->blob[i];
    lua_createtable(L, 0, 12);
    neap_lua_set_text(L, "name", b->name);
    neap_lua_set_text(L, "role", neap_role_name(b->role));
    neap_lua_set_text(L, "gradient_of", b->gradient_of);
    neap_lua_set_text(L, "fixed", b->fixed);
    neap_lua_set_text(L, "dtype", neap_dtype_name(b->type.dtype));
    lua_pushstring(L, b->device != NULL ? b->device : "");
    lua_setfield(L, -2, "device");
    neap_lua_push_shape(L, &b->type.shape);
    lua_setfield(L, -2, "shape");
    neap_lua_set_integer(L, "bytes", (int64_t)b->bytes);
    neap_lua_set_integer(L, "first", b->first + 1);
    neap_lua_set_integer(L, "last", b->last + 1);
    neap_lua_set_bool(L, "view", b->is_view);
    neap_lua_set_bool(L, "one_device", b->is_one_device);
    lua_seti(L, -2, i + 1);
  }
  return 1;
}

/* handle:figures() -> {baseline_bytes, lower_bound_bytes, live_bytes = {by op}} */
static int figures(lua_State *L) {
  const neap_recycle *r = recycle_at(L, 1);
  lua_createtable(L, 0, 3);
  neap_lua_set_integer(L, "baseline_bytes", (int64_t)r->baseline_bytes);
  neap_lua_set_integer(L, "lower_bound_bytes", (int64_t)r->lower_bound_bytes);
  lua_createtable(L, r->n_op, 0);
  for (int i = 0; i < r->n_op; i++) {
    lua_pushinteger(L, (lua_Integer)r->live_bytes[i]);
    lua_seti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "live_bytes");
  return 1;
}

/* handle:conflict(i, j) -> whether the lives of two blobs may overlap */
static int conflict(lua_State *L) {
  const neap_recycle *r = recycle_at(L, 1);
  int64_t i = neap_lua_position(L, luaL_checkinteger(L, 2), r->n_blob, "blob");
  int64_t j = neap_lua_position(L, luaL_checkinteger(L, 3), r->n_blob, "blob");
  lua_pushboolean(L, (r->conflict[(size_t)i * (size_t)r->n_word + (size_t)(j >> 6)] >> (j & 63) & 1u) != 0);
  return 1;
}

/* handle:sort(kind) -> positions of the ops in the new order */
static int sort(lua_State *L) {
  static const char *const kinds[] = {"plain", "longest_path", "least_memory", NULL};
  const neap_recycle *r = recycle_at(L, 1);
  neap_recycle_order kind = (neap_recycle_order)luaL_checkoption(L, 2, "plain", kinds);
  int *order = neap_lua_room(L, ((size_t)r->n_op + 1) * sizeof *order);
  NEAP_LUA_TRY(L, neap_recycle_sort(r, kind, order, &error));
  lua_createtable(L, r->n_op, 0);
  for (int i = 0; i < r->n_op; i++) {
    lua_pushinteger(L, order[i] + 1);
    lua_seti(L, -2, i + 1);
  }
  return 1;
}

/* handle:estimate() -> total bytes, high-water bytes, {bytes by op} */
static int estimate(lua_State *L) {
  neap_recycle *r = recycle_at(L, 1);
  neap_recycle_estimate e;
  NEAP_LUA_TRY(L, neap_recycle_estimate_memory(r, &e, &error));
  lua_pushinteger(L, (lua_Integer)e.total_bytes);
  lua_pushinteger(L, (lua_Integer)e.high_bytes);
  lua_createtable(L, r->n_op, 0);
  for (int i = 0; i < r->n_op; i++) {
    lua_pushinteger(L, (lua_Integer)e.made_bytes[i]);
    lua_seti(L, -2, i + 1);
  }
  return 3;
}

/* handle:apply({slot by blob, 0 for none}, number of slots, prefix, inside subnets too) -> net, names of the slots, false where of one blob */
static int apply(lua_State *L) {
  const neap_recycle *r = recycle_at(L, 1);
  luaL_checktype(L, 2, LUA_TTABLE);
  int n_slot = (int)luaL_checkinteger(L, 3);
  const char *prefix = luaL_checkstring(L, 4);
  int *slot = neap_lua_room(L, ((size_t)r->n_blob + 1) * sizeof *slot);
  for (int b = 0; b < r->n_blob; b++) {
    lua_geti(L, 2, b + 1);
    slot[b] = (int)lua_tointeger(L, -1) - 1;
    lua_pop(L, 1);
    if (slot[b] < -1 || slot[b] >= n_slot) neap_lua_fail(L, NEAP_ARGUMENT, "apply: blob %d has no slot %d", b + 1, slot[b] + 1);
  }
  const char **name = neap_lua_room(L, ((size_t)n_slot + 1) * sizeof *name);
  neap_lua_net *net = neap_lua_new(L, sizeof *net, NEAP_LUA_NET);
  NEAP_LUA_TRY(L, neap_recycle_apply(r, slot, n_slot, prefix, lua_toboolean(L, 5), name, &net->net, &error));
  lua_createtable(L, n_slot, 0);
  for (int k = 0; k < n_slot; k++) {
    if (name[k] != NULL)
      lua_pushstring(L, name[k]);
    else
      lua_pushboolean(L, false);
    lua_seti(L, -2, k + 1);
  }
  return 2;
}

/* ---- assignments ----------------------------------------------------------------------------------------------------------- */

static int64_t field(lua_State *L, int index, const char *key) {
  lua_getfield(L, index, key);
  if (!lua_isinteger(L, -1))
    neap_lua_fail(L, NEAP_ARGUMENT, "a range expects an integer %s, got a %s", key, luaL_typename(L, -1));
  int64_t value = lua_tointeger(L, -1);
  lua_pop(L, 1);
  return value;
}

/* Items from the list at `index`: {bytes, class, first, last} each; `blob` (with a handle): the row of its conflicts. */
static int read_items(lua_State *L, int index, neap_assign_item **item, int **blob, const neap_recycle *r) {
  luaL_checktype(L, index, LUA_TTABLE);
  int n = (int)luaL_len(L, index);
  *item = neap_lua_room(L, ((size_t)n + 1) * sizeof **item);
  *blob = neap_lua_room(L, ((size_t)n + 1) * sizeof **blob);
  for (int i = 0; i < n; i++) {
    lua_geti(L, index, i + 1);
    luaL_checktype(L, -1, LUA_TTABLE);
    int row = lua_gettop(L);
    int64_t bytes = field(L, row, "bytes");
    if (bytes < 0) neap_lua_fail(L, NEAP_ARGUMENT, "range %d has %lld bytes", i + 1, (long long)bytes);
    (*item)[i] = (neap_assign_item){.bytes = (size_t)bytes,
                                    .class_id = (int)field(L, row, "class"),
                                    .first = (int)field(L, row, "first"),
                                    .last = (int)field(L, row, "last")};
    if (r != NULL) (*blob)[i] = (int)neap_lua_position(L, (lua_Integer)field(L, row, "blob"), r->n_blob, "blob");
    lua_settop(L, row - 1);
  }
  return n;
}

/* The conflicts of the items, as neap_assign reads them. */
static uint64_t *pick_conflicts(lua_State *L, const neap_recycle *r, int n, const int *blob, int *n_word) {
  size_t words = ((size_t)n + 63) / 64;
  uint64_t *bits = neap_lua_room(L, ((size_t)n * words + 1) * sizeof *bits);
  for (int i = 0; i < n; i++)
    for (int j = 0; j < n; j++)
      if ((r->conflict[(size_t)blob[i] * (size_t)r->n_word + (size_t)(blob[j] >> 6)] >> (blob[j] & 63) & 1u) != 0)
        bits[(size_t)i * words + (size_t)(j >> 6)] |= (uint64_t)1 << (j & 63);
  *n_word = (int)words;
  return bits;
}

/* assign(items, exact, seconds [, handle]) -> slot of each item, bytes, number of slots, whether proved the least */
static int assign(lua_State *L) {
  const neap_recycle *r = lua_isnoneornil(L, 4) ? NULL : recycle_at(L, 4);
  neap_assign_options options = {.exact = lua_toboolean(L, 2), .time_limit_ns = (int64_t)(luaL_optnumber(L, 3, 0) * 1e9)};
  neap_assign_item *item;
  int *blob;
  int n = read_items(L, 1, &item, &blob, r);
  if (r != NULL) options.conflict = pick_conflicts(L, r, n, blob, &options.n_word);
  int *slot = neap_lua_room(L, ((size_t)n + 1) * sizeof *slot);
  neap_assign_result result;
  NEAP_LUA_TRY(L, neap_assign(n, item, &options, slot, &result, &error));
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushinteger(L, slot[i] + 1);
    lua_seti(L, -2, i + 1);
  }
  lua_pushinteger(L, (lua_Integer)result.bytes);
  lua_pushinteger(L, result.n_slot);
  lua_pushboolean(L, result.exact);
  return 4;
}

/* best_slot({bytes or false, ..}, want) -> index of the best fitting usable slot, or nil */
static int best_slot(lua_State *L) {
  luaL_checktype(L, 1, LUA_TTABLE);
  lua_Integer want = luaL_checkinteger(L, 2);
  int n = (int)luaL_len(L, 1);
  size_t *bytes = neap_lua_room(L, ((size_t)n + 1) * sizeof *bytes);
  bool *usable = neap_lua_room(L, (size_t)n + 1);
  for (int i = 0; i < n; i++) {
    lua_geti(L, 1, i + 1);
    usable[i] = lua_isinteger(L, -1);
    bytes[i] = usable[i] ? (size_t)lua_tointeger(L, -1) : 0;
    lua_pop(L, 1);
  }
  int best = neap_assign_best_slot(n, bytes, usable, (size_t)want);
  if (best < 0) return 0;
  lua_pushinteger(L, best + 1);
  return 1;
}

/* ---- nets ---------------------------------------------------------------------------------------------------------------------- */

/* A list of positions counted from 1 as an array counted from 0, on the stack from here on. */
static int *positions(lua_State *L, int index, int *n) {
  luaL_checktype(L, index, LUA_TTABLE);
  *n = (int)luaL_len(L, index);
  int *list = neap_lua_room(L, ((size_t)*n + 1) * sizeof *list);
  for (int i = 0; i < *n; i++) {
    lua_geti(L, index, i + 1);
    if (!lua_isinteger(L, -1)) neap_lua_fail(L, NEAP_ARGUMENT, "a position expects an integer, got a %s", luaL_typename(L, -1));
    list[i] = (int)lua_tointeger(L, -1) - 1;
    lua_pop(L, 1);
  }
  return list;
}

/* edit(net, {from}, {to}, {order} or nil, {freed}, {free_after}) -> net */
static int edit(lua_State *L) {
  const neap_lua_net *from = neap_lua_net_at(L, 1);
  neap_net_edit e = {0};
  int n_to, n_order = 0, n_after;
  e.from = neap_lua_names(L, 2, "rename", false, &e.n_rename);
  e.to = neap_lua_names(L, 3, "rename", false, &n_to);
  if (!lua_isnil(L, 4)) e.order = positions(L, 4, &n_order);
  e.freed = neap_lua_names(L, 5, "free", false, &e.n_free);
  e.free_after = positions(L, 6, &n_after);
  if (n_to != e.n_rename || n_after != e.n_free)
    neap_lua_fail(L, NEAP_ARGUMENT, "edit: two lists that belong together differ in length");
  if (e.order != NULL && n_order != neap_net_n_ops(from->net))
    neap_lua_fail(L, NEAP_ARGUMENT, "order: net \"%s\" has %d ops, got %d positions", neap_net_name(from->net),
                  neap_net_n_ops(from->net), n_order);
  neap_lua_net *net = neap_lua_new(L, sizeof *net, NEAP_LUA_NET);
  NEAP_LUA_TRY(L, neap_net_copy_edited(from->net, &e, &net->net, &error));
  return 1;
}

static int push_verdict(lua_State *L, bool same, neap_buffer *where) {
  lua_pushboolean(L, same);
  lua_pushstring(L, same || where->text == NULL ? "" : where->text);
  neap_buffer_fini(where);
  return 2;
}

/* same_graph(a, b) -> bool, where */
static int same_graph(lua_State *L) {
  const neap_net *a = neap_lua_net_at(L, 1)->net, *b = neap_lua_net_at(L, 2)->net;
  neap_buffer where = {0};
  bool same = false;
  NEAP_LUA_TRY(L, neap_net_same_graph(a, b, &same, &where, &error));
  return push_verdict(L, same, &where);
}

/* same_in_place(a, b) -> bool, where */
static int same_in_place(lua_State *L) {
  const neap_net *a = neap_lua_net_at(L, 1)->net, *b = neap_lua_net_at(L, 2)->net;
  neap_buffer where = {0};
  bool same = neap_net_same_in_place(a, b, &where);
  return push_verdict(L, same, &where);
}

/* interference(net) -> {{i, j}, ..} */
static int interference(lua_State *L) {
  const neap_net *net = neap_lua_net_at(L, 1)->net;
  int n = 0, (*pair)[2] = NULL;
  NEAP_LUA_TRY(L, neap_net_interference(net, &n, &pair, &error));
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_createtable(L, 2, 0);
    for (int k = 0; k < 2; k++) {
      lua_pushinteger(L, pair[i][k] + 1);
      lua_seti(L, -2, k + 1);
    }
    lua_seti(L, -2, i + 1);
  }
  neap_free(pair);
  return 1;
}

void neap_lua_open_memonger(lua_State *L) {
  static const luaL_Reg meta[] = {{"__gc", release}, {"__close", release}, {NULL, NULL}};
  static const luaL_Reg methods[] = {{"blobs", blobs}, {"figures", figures},   {"conflict", conflict},
                                     {"sort", sort},   {"estimate", estimate}, {"apply", apply},
                                     {NULL, NULL}};
  static const luaL_Reg functions[] = {{"recycle", open},
                                       {"assign", assign},
                                       {"best_slot", best_slot},
                                       {"edit", edit},
                                       {"same_graph", same_graph},
                                       {"same_in_place", same_in_place},
                                       {"interference", interference},
                                       {NULL, NULL}};
  neap_lua_class(L, NEAP_LUA_RECYCLE, "Recycle", meta, methods);
  lua_newtable(L);
  luaL_setfuncs(L, functions, 0);
  lua_setfield(L, -2, "memonger");
}
