/* memonger.c: the functions behind lua/neap/memonger/init.lua: recycling, live ranges and
 * conflicts, assignments, orders, Frees, comparing. Ops, blobs and slots count from 1 on the
 * Lua side.
 */
#include "lua/binding.h"

#include <string.h>

typedef struct handle {
  neap_lives *lives;
} handle;

static const neap_lives *lives_at(lua_State *L, int index) {
  const handle *h = neap_lua_at(L, index, NEAP_LUA_RECYCLE);
  if (h->lives == NULL) neap_lua_fail(L, NEAP_RELEASED, "the live ranges were closed");
  return h->lives;
}

static void free_recycle(lua_State *L, void *at) {
  handle *h = at;
  (void)L;
  neap_lives_free(h->lives);
  h->lives = NULL;
}

/* ---- options --------------------------------------------------------------------------------- */

/* A list of positions counted from 1 as an array counted from 0, on the stack from here on. NULL
 * for nil and the empty list. */
static int *positions(lua_State *L, int index, int *n) {
  *n = 0;
  if (lua_isnoneornil(L, index)) return NULL;
  index = lua_absindex(L, index);
  neap_lua_check_type(L, index, LUA_TTABLE);
  *n = neap_lua_length(L, index);
  /* The room is above the list, and stays. */
  int *list = neap_lua_room(L, ((size_t)*n + 1) * sizeof *list);
  for (int i = 0; i < *n; i++) {
    lua_rawgeti(L, index, i + 1);
    if (!lua_isinteger(L, -1))
      neap_lua_fail(L, NEAP_ARGUMENT, "a position expects an integer, got a %s",
                    luaL_typename(L, -1));
    /* All below 1 becomes -1, which is no position. */
    list[i] = neap_lua_to_int(L, NEAP_MAX(lua_tointeger(L, -1), 0), "a position") - 1;
    lua_pop(L, 1);
  }
  return *n > 0 ? list : NULL;
}

static bool flag(lua_State *L, int index, const char *key) {
  neap_lua_field(L, index, key);
  bool set = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return set;
}

/* The names of field `key`; what it was made of stays on the stack. */
static const char *const *names(lua_State *L, int index, const char *key, int *n) {
  neap_lua_field(L, index, key);
  return neap_lua_names(L, lua_gettop(L), key, false, n);
}

/* Text of a field, interned: its table may change; NULL for nil. */
static const char *word(lua_State *L, int index, const char *key) {
  neap_lua_field(L, index, key);
  /* An error leaves the field on the stack, as any error may. */
  const char *text = neap_lua_opt_string(L, -1, NULL);
  if (text != NULL && (text = neap_intern(text)) == NULL)
    neap_lua_fail(L, NEAP_MEMORY, "memory for a name was refused");
  lua_pop(L, 1);
  return text;
}

/* Of an exact search; 0: the default. */
static int64_t most_steps(lua_State *L, int index) {
  neap_lua_field(L, index, "most_steps");
  int64_t steps = neap_lua_opt_integer(L, -1, 0);
  if (steps < 0 || (steps == 0 && !lua_isnil(L, -1)))
    neap_lua_fail(L, NEAP_ARGUMENT, "most_steps expects a number of steps, at least 1");
  lua_pop(L, 1);
  return steps;
}

/* Options from the table at `index`, fields named as in neap.h, `ops` from 1. Lists stay on the
 * stack. */
static neap_recycle_options recycle_options(lua_State *L, int index) {
  neap_recycle_options o = {0};
  if (lua_isnoneornil(L, index)) return o;
  neap_lua_check_type(L, index, LUA_TTABLE);

  /* Switches, words and numbers: each field is read and popped. */
  o.dag = flag(L, index, "dag");
  o.gradients_only = flag(L, index, "gradients_only");
  o.mix_dtypes = flag(L, index, "mix_dtypes");
  o.unsized = flag(L, index, "unsized");
  o.exact = flag(L, index, "exact");
  o.prefix = word(L, index, "prefix");
  o.order = word(L, index, "order");
  o.most_steps = most_steps(L, index);
  neap_lua_field(L, index, "keep_last");
  o.keep_last = neap_lua_to_int(L, neap_lua_opt_integer(L, -1, 0), "keep_last");
  lua_pop(L, 1);

  /* Lists: what they are made of stays on the stack until the call is over. */
  o.head = names(L, index, "heads", &o.n_head);
  o.shareable = names(L, index, "shareable", &o.n_shareable);
  o.dont_share = names(L, index, "dont_share", &o.n_dont_share);
  neap_lua_field(L, index, "ops");
  o.op = positions(L, lua_gettop(L), &o.n_op);
  return o;
}

/* ---- live ranges ----------------------------------------------------------------------------- */

/* recycle(net, inference options, options) -> handle */
static int open(lua_State *L) {
  const neap_lua_net *net = neap_lua_net_at(L, 1);
  /* Rooms of both tables of options lie above the arguments. */
  lua_settop(L, 3);
  neap_options plan = neap_lua_options(L, 2, 1);
  neap_recycle_options options = recycle_options(L, 3);
  options.plan = &plan;
  handle *h = neap_lua_new(L, sizeof *h, NEAP_LUA_RECYCLE, free_recycle);
  NEAP_LUA_TRY(L, neap_lives_open(net->net, &options, &h->lives, &error));
  return 1;
}

/* handle:blobs() -> rows {name, role, gradient_of, device, dtype, bytes, first, last, fixed,
 * shares, class}; ops from 1, first 0: before the net. */
static int blobs(lua_State *L) {
  const neap_lives *lives = lives_at(L, 1);
  lua_createtable(L, neap_lives_n(lives), 0);
  for (int i = 0; i < neap_lives_n(lives); i++) {
    neap_live_range range = neap_lives_at(lives, i);
    /* Who it is, and where it would lie. */
    lua_createtable(L, 0, 12);
    neap_lua_set_text(L, "name", range.name);
    neap_lua_set_text(L, "role", neap_role_name(range.role));
    neap_lua_set_text(L, "gradient_of", range.gradient_of);
    neap_lua_set_text(L, "fixed", range.fixed);
    neap_lua_set_text(L, "dtype", neap_dtype_name(range.dtype));
    lua_pushstring(L, range.device);
    lua_setfield(L, -2, "device");
    neap_lua_push_shape(L, &range.shape);
    lua_setfield(L, -2, "shape");
    /* How large it is, and from which op to which it lives. */
    neap_lua_set_integer(L, "bytes", range.bytes);
    neap_lua_set_integer(L, "first", range.first + 1);
    neap_lua_set_integer(L, "last", range.last + 1);
    neap_lua_set_integer(L, "class", range.class_id);
    neap_lua_set_integer(L, "index", i + 1);
    neap_lua_set_bool(L, "shares", range.shares);
    lua_seti(L, -2, i + 1);
  }
  return 1;
}

/* handle:conflict(i, j) -> whether the two blobs may not share */
static int conflict(lua_State *L) {
  const neap_lives *lives = lives_at(L, 1);
  int n = neap_lives_n(lives);
  /* Blobs count from 1 here; a place beyond the list raises. */
  int64_t i = neap_lua_position(L, neap_lua_check_integer(L, 2), n, "blob");
  int64_t j = neap_lua_position(L, neap_lua_check_integer(L, 3), n, "blob");
  lua_pushboolean(L, neap_lives_conflict(lives, (int)i, (int)j));
  return 1;
}

/* ---- nets ------------------------------------------------------------------------------------ */

/* written_out(net, inference options) -> a net with the backward pass and Do bodies as ops; nil:
 * the net stands as it is */
static int written_out(lua_State *L) {
  const neap_lua_net *from = neap_lua_net_at(L, 1);
  lua_settop(L, 2);
  neap_options plan = neap_lua_options(L, 2, 1);
  neap_lua_net *net = neap_lua_new_net(L);
  NEAP_LUA_TRY(L, neap_net_write_out(from->net, &plan, &net->net, &error));
  /* NULL says that nothing had to be written out: then no net is given. */
  return net->net != NULL ? 1 : 0;
}

static void push_figures(lua_State *L, const neap_recycle_figures *f) {
  lua_createtable(L, 0, 7);
  neap_lua_set_integer(L, "baseline_bytes", f->baseline_bytes);
  neap_lua_set_integer(L, "planned_bytes", f->planned_bytes);
  neap_lua_set_integer(L, "lower_bound_bytes", f->lower_bound_bytes);
  neap_lua_set_integer(L, "n_shared", f->n_shared);
  neap_lua_set_integer(L, "n_slot", f->n_slot);
  lua_pushnumber(L, f->saved);
  lua_setfield(L, -2, "saved");
  neap_lua_set_bool(L, "proved", f->proved);
}

static void push_slots(lua_State *L, int n, const neap_recycle_slot *slot) {
  lua_createtable(L, n, 0);
  for (int k = 0; k < n; k++, slot++) {
    lua_createtable(L, 0, 4);
    neap_lua_set_text(L, "name", slot->name);
    neap_lua_set_integer(L, "bytes", slot->bytes);
    neap_lua_set_integer(L, "n_blob", slot->n_blob);
    /* The names of a slot's blobs as one text. The buffer may keep a piece on the stack, above the
     * table of the slot. */
    luaL_Buffer text;
    luaL_buffinit(L, &text);
    for (int b = 0; b < slot->n_blob; b++) {
      if (b > 0) luaL_addchar(&text, ' ');
      luaL_addstring(&text, slot->blob[b]);
    }
    luaL_pushresult(&text);
    lua_setfield(L, -2, "blobs");
    lua_seti(L, -2, k + 1);
  }
}

/* share(net, inference options, options) -> net, rows {name, bytes, n_blob, blobs}, figures */
static int share(lua_State *L) {
  const neap_lua_net *from = neap_lua_net_at(L, 1);
  lua_settop(L, 3);
  neap_options plan = neap_lua_options(L, 2, 1);
  neap_recycle_options options = recycle_options(L, 3);
  options.plan = &plan;
  neap_recycle_figures figures;
  int n = 0;

  /* From below: the arguments, the rooms, the slots in a handle that frees them, the net that is
   * the first result. */
  neap_recycle_slot **slot = (neap_recycle_slot **)neap_lua_new_block(L);
  neap_lua_net *net = neap_lua_new_net(L);
  NEAP_LUA_TRY(L,
               neap_net_recycle_slots(from->net, &options, &net->net, &figures, slot, &n, &error));
  push_slots(L, n, *slot);
  push_figures(L, &figures);
  return 3;
}

/* release(net, {names to keep}) -> net, names freed */
static int release(lua_State *L) {
  const neap_lua_net *from = neap_lua_net_at(L, 1);
  int n_keep, n = 0;
  const char *const *keep = neap_lua_names(L, 2, "keep", false, &n_keep);

  /* The list of names is a block that its handle frees; the names are interned. */
  const char ***freed = (const char ***)neap_lua_new_block(L);
  neap_lua_net *net = neap_lua_new_net(L);
  NEAP_LUA_TRY(L,
               neap_net_release_when_used(from->net, n_keep, keep, &net->net, freed, &n, &error));
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushstring(L, (*freed)[i]);
    lua_seti(L, -2, i + 1);
  }
  return 2;
}

/* estimate({nets}, inference options, device or nil) -> rows {type, bytes}, total bytes, high-water
 * bytes */
static int estimate(lua_State *L) {
  neap_lua_check_type(L, 1, LUA_TTABLE);
  lua_settop(L, 3);
  neap_lua_copy(L, 1);
  lua_replace(L, 1); /* it keeps the nets */

  /* Nets are borrowed: the copy at 1 keeps them, whatever becomes of the user's list. */
  int n = neap_lua_length(L, 1);
  const neap_net **net = neap_lua_room(L, ((size_t)n + 1) * sizeof *net);
  neap_options plan = {0};
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, 1, i + 1);
    net[i] = neap_lua_net_at(L, -1)->net;
    /* Options are read against the first net's inputs; that net and the rooms stay on the stack. */
    if (i == 0)
      plan = neap_lua_options(L, 2, lua_gettop(L)); /* its rooms stay */
    else
      lua_pop(L, 1);
  }
  neap_memory_estimate e;

  /* The rows by type are a block, held while tables are made of them. */
  void **held = neap_lua_new_block(L);
  NEAP_LUA_TRY(
    L, neap_net_estimate_memory(n, net, neap_lua_opt_string(L, 3, NULL), &plan, &e, &error));
  *held = e.by_type;
  lua_createtable(L, e.n_type, 0);
  for (int i = 0; i < e.n_type; i++) {
    lua_createtable(L, 0, 2);
    neap_lua_set_text(L, "type", e.by_type[i].type);
    neap_lua_set_integer(L, "bytes", e.by_type[i].bytes);
    lua_seti(L, -2, i + 1);
  }
  lua_pushinteger(L, e.total_bytes);
  lua_pushinteger(L, e.high_bytes);
  return 3;
}

/* sort(net, kind) -> positions of the ops in the new order */
static int sort(lua_State *L) {
  const neap_net *net = neap_lua_net_at(L, 1)->net;
  /* The library writes the order into a room of Lua's, from 0; the list counts from 1. */
  int n = neap_net_n_ops(net), *order = neap_lua_room(L, ((size_t)n + 1) * sizeof *order);
  NEAP_LUA_TRY(L, neap_net_sort(net, neap_lua_check_string(L, 2), order, &error));
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushinteger(L, order[i] + 1);
    lua_seti(L, -2, i + 1);
  }
  return 1;
}

/* reorder(net, {positions}) -> net */
static int reorder(lua_State *L) {
  const neap_lua_net *from = neap_lua_net_at(L, 1);
  int n = 0;
  neap_lua_check_type(L, 2, LUA_TTABLE);
  /* The library reads one position for each op, and can't count the list. */
  const int *order = positions(L, 2, &n);
  if (n != neap_net_n_ops(from->net))
    neap_lua_fail(L, NEAP_ARGUMENT, "order: net \"%s\" has %d ops, got %d positions",
                  neap_net_name(from->net), neap_net_n_ops(from->net), n);
  neap_lua_net *net = neap_lua_new_net(L);
  NEAP_LUA_TRY(L, neap_net_reorder(from->net, order, &net->net, &error));
  return 1;
}

static int push_sameness(lua_State *L, unsigned asked) {
  const neap_net *a = neap_lua_net_at(L, 1)->net, *b = neap_lua_net_at(L, 2)->net;
  /* The slot owns the text that says where they differ; it is pushed first, freed then. */
  char **where = (char **)neap_lua_new_block(L);
  bool same = false;
  NEAP_LUA_TRY(L, neap_net_same(a, b, asked, &same, where, &error));
  lua_pushboolean(L, same);
  lua_pushstring(L, *where != NULL ? *where : "");
  neap_free(*where); /* nothing waits for the collector */
  *where = NULL;
  return 2;
}

/* same_graph(a, b) -> bool, where */
static int same_graph(lua_State *L) { return push_sameness(L, NEAP_SAME_GRAPH); }

/* same_in_place(a, b) -> bool, where */
static int same_in_place(lua_State *L) { return push_sameness(L, NEAP_SAME_IN_PLACE); }

/* interference(net) -> {{i, j}, ..} */
static int interference(lua_State *L) {
  const neap_net *net = neap_lua_net_at(L, 1)->net;
  int n = 0, (*pair)[2] = NULL;

  /* Pairs of ops as one block; the slot has it before the first table is made. */
  void **held = neap_lua_new_block(L);
  NEAP_LUA_TRY(L, neap_net_interference(net, &n, &pair, &error));
  *held = pair;
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_createtable(L, 2, 0);
    for (int k = 0; k < 2; k++) {
      lua_pushinteger(L, pair[i][k] + 1);
      lua_seti(L, -2, k + 1);
    }
    lua_seti(L, -2, i + 1);
  }

  /* It may be large: nothing waits for the collector. */
  neap_free(pair);
  *held = NULL;
  return 1;
}

/* ---- assignments ----------------------------------------------------------------------------- */

static int64_t field(lua_State *L, int index, const char *key, int64_t missing) {
  neap_lua_field(L, index, key);
  /* A negative `missing` says that the field must be there. */
  if (lua_isnil(L, -1) && missing >= 0) lua_pushinteger(L, missing);
  if (!lua_isinteger(L, -1))
    neap_lua_fail(L, NEAP_ARGUMENT, "a range expects an integer %s, got a %s", key,
                  luaL_typename(L, -1));
  int64_t value = lua_tointeger(L, -1);
  /* Field and what stands for it both go. */
  lua_settop(L, index);
  return value;
}

/* Items from the ranges {name, defined, used, size = 1, class = 1} of the list at `index`. */
static neap_assign_item *read_items(lua_State *L, int index, int *n) {
  neap_lua_check_type(L, index, LUA_TTABLE);
  *n = neap_lua_length(L, index);
  neap_assign_item *item = neap_lua_room(L, ((size_t)*n + 1) * sizeof *item);
  for (int i = 0; i < *n; i++) {
    lua_rawgeti(L, index, i + 1);
    neap_lua_check_type(L, -1, LUA_TTABLE);
    /* The row is on top while its fields are read, and goes with what they pushed. */
    int row = lua_gettop(L);
    item[i] = (neap_assign_item){
      .bytes = field(L, row, "size", 1),
      .class_id = neap_lua_to_int(L, field(L, row, "class", 1), "class of a range"),
      .first = field(L, row, "defined", -1),
      .last = field(L, row, "used", -1),
      .name = word(L, row, "name")};
    lua_settop(L, row - 1);
  }
  return item;
}

static void push_assign_figures(lua_State *L, const neap_assign_figures *f) {
  lua_createtable(L, 0, 5);
  neap_lua_set_integer(L, "baseline_bytes", f->baseline_bytes);
  neap_lua_set_integer(L, "optimized_bytes", f->bytes);
  neap_lua_set_integer(L, "lower_bound_bytes", f->lower_bound_bytes);
  /* The share that is saved; 0 where there is nothing to save of. */
  lua_pushnumber(L, f->baseline_bytes > 0 ? 1 - (double)f->bytes / (double)f->baseline_bytes : 0);
  lua_setfield(L, -2, "saved");
}

/* assign(ranges, {exact, most_steps}) -> slot of each, number of slots, whether proved the least */
static int assign(lua_State *L) {
  /* How to search, then the ranges, then a room for the slots that are found. */
  neap_lua_check_type(L, 2, LUA_TTABLE);
  neap_assign_options options = {.exact = flag(L, 2, "exact"), .most_steps = most_steps(L, 2)};
  int n;
  neap_assign_item *item = read_items(L, 1, &n);

  /* Slots are found by the library, from 0; the list that goes back counts from 1. */
  int *slot = neap_lua_room(L, ((size_t)n + 1) * sizeof *slot);
  neap_assign_figures figures;
  NEAP_LUA_TRY(L, neap_assign(n, item, &options, slot, &figures, &error));
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_pushinteger(L, slot[i] + 1);
    lua_seti(L, -2, i + 1);
  }
  lua_pushinteger(L, figures.n_slot);
  lua_pushboolean(L, figures.proved);
  return 3;
}

/* The ranges of a list with the slots of another one, both counted from 1. */
static int *read_slots(lua_State *L, int index, int n) {
  int n_slot, *slot = positions(L, index, &n_slot);
  if (n_slot != n) neap_lua_fail(L, NEAP_ARGUMENT, "%d ranges, but %d slots", n, n_slot);
  return slot;
}

/* measure(ranges, slots) -> {baseline_bytes, optimized_bytes, lower_bound_bytes, saved} */
static int measure(lua_State *L) {
  int n;
  neap_assign_item *item = read_items(L, 1, &n);
  int *slot = read_slots(L, 2, n);
  neap_assign_figures figures;
  NEAP_LUA_TRY(L, neap_assign_measure(n, item, slot, &figures, &error));
  push_assign_figures(L, &figures);
  return 1;
}

/* verify(ranges, slots): raises when two ranges of one slot can't share. */
static int verify(lua_State *L) {
  int n;
  neap_assign_item *item = read_items(L, 1, &n);
  int *slot = read_slots(L, 2, n);
  NEAP_LUA_TRY(L, neap_assign_verify(n, item, NULL, slot, &error));
  return 0;
}

/* best_slot({bytes or false, ..}, want) -> index of the best fitting usable slot, or nil */
static int best_slot(lua_State *L) {
  neap_lua_check_type(L, 1, LUA_TTABLE);
  lua_Integer want = neap_lua_check_integer(L, 2);
  int n = neap_lua_length(L, 1);
  int64_t *bytes = neap_lua_room(L, ((size_t)n + 1) * sizeof *bytes);
  bool *usable = neap_lua_room(L, (size_t)n + 1);

  /* false stands for a slot that is taken. */
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, 1, i + 1);
    usable[i] = lua_isinteger(L, -1);
    bytes[i] = usable[i] ? lua_tointeger(L, -1) : 0;
    lua_pop(L, 1);
  }
  int best = neap_assign_best_slot(n, bytes, usable, want);
  if (best < 0) return 0;
  lua_pushinteger(L, best + 1);
  return 1;
}

void neap_lua_open_memonger(lua_State *L) {
  static const neap_lua_reg meta[] = {{"__close", neap_lua_close, NEAP_LUA_ANY}, {NULL, NULL, 0}};
  static const neap_lua_reg methods[] = {{"blobs", blobs, NEAP_LUA_ALONE | 1},
                                         {"conflict", conflict, NEAP_LUA_ALONE | 3},
                                         {NULL, NULL, 0}};
  static const neap_lua_reg functions[] = {{"recycle", open, NEAP_LUA_ALONE | 3},
                                           {"written_out", written_out, NEAP_LUA_ALONE | 2},
                                           {"share", share, NEAP_LUA_ALONE | 3},
                                           {"release", release, NEAP_LUA_ALONE | 2},
                                           {"estimate", estimate, NEAP_LUA_ALONE | 3},
                                           {"sort", sort, NEAP_LUA_ALONE | 2},
                                           {"reorder", reorder, NEAP_LUA_ALONE | 2},
                                           {"same_graph", same_graph, NEAP_LUA_ALONE | 2},
                                           {"same_in_place", same_in_place, NEAP_LUA_ALONE | 2},
                                           {"interference", interference, NEAP_LUA_ALONE | 2},
                                           {"assign", assign, NEAP_LUA_ALONE | 2},
                                           {"measure", measure, NEAP_LUA_ALONE | 2},
                                           {"verify", verify, NEAP_LUA_ALONE | 2},
                                           {"best_slot", best_slot, NEAP_LUA_ALONE | 2},
                                           {NULL, NULL, 0}};
  neap_lua_class(L, NEAP_LUA_RECYCLE, "Recycle", meta, methods);
  lua_newtable(L);
  neap_lua_functions(L, functions, false);
  lua_setfield(L, -2, "memonger");
}
