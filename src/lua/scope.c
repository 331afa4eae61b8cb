/* scope.c: the scope handle, a stack of child workspaces; and step trees. scope.lua and steps.lua
 * of lua/neap/workspace have the methods that people call: they know programs, which must end
 * before a frame's memory can return. */
#include "lua/binding.h"

#include <string.h>

typedef struct handle {
  neap_scope *scope; /* retained */
} handle;

static neap_scope *scope_at(lua_State *L, int index) {
  handle *h = neap_lua_at(L, index, NEAP_LUA_SCOPE);
  if (h->scope == NULL) neap_lua_fail(L, NEAP_RELEASED, "the scope was closed");
  return h->scope;
}

static void free_scope(lua_State *L, void *at) {
  handle *h = at;
  if (h->scope == NULL) return;
  neap_lua_forget_handle(L, h->scope);
  neap_scope_release(h->scope);
  h->scope = NULL;
}

static int to_text(lua_State *L) {
  const neap_scope *scope = scope_at(L, 1);
  char text[24];
  lua_pushfstring(L, "scope: %d frames in use, %d kept, %s", neap_scope_n_frames(scope),
                  neap_scope_n_kept(scope),
                  neap_bytes_text((double)neap_scope_held_bytes(scope), text));
  return 1;
}

static void make_handle(lua_State *L, void *scope) {
  handle *h = neap_lua_new(L, sizeof *h, NEAP_LUA_SCOPE, free_scope);
  h->scope = neap_scope_retain(scope);
}

/* One handle a scope, as for workspaces. */
void neap_lua_push_scope(lua_State *L, neap_scope *scope) {
  neap_lua_push_held(L, NEAP_LUA_SCOPE, scope, make_handle);
}

/* ---- the stack ------------------------------------------------------------------------------- */

typedef struct bindings {
  int n;
  const char **inner, **outer;
} bindings;

/* {inner = outer, ..}, or {"x"} for {x = "x"}; nil is none. Rooms stay on the stack. */
static bindings take_bindings(lua_State *L, int index) {
  bindings b = {0};
  if (lua_isnoneornil(L, index)) return b;
  neap_lua_check_type(L, index, LUA_TTABLE);

  /* The copy keeps the inner names, which are Lua's texts; outer ones are interned. */
  int n = neap_lua_copy(L, index);
  index = lua_gettop(L);
  b.inner = neap_lua_room(L, (size_t)n * sizeof *b.inner);
  b.outer = neap_lua_room(L, (size_t)n * sizeof *b.outer);
  for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
    const char *outer = neap_lua_name(L, -1, "bindings");
    b.outer[b.n] = outer;
    /* The outer name alone, where the key is a position: both are one name. */
    b.inner[b.n++] = lua_type(L, -2) == LUA_TSTRING ? neap_lua_text(L, -2, "bindings") : outer;
  }
  return b;
}

typedef neap_status enter(neap_scope *, neap_workspace *, int, const char *const *,
                          const char *const *, neap_workspace **, neap_error *);

/* scope, parent, bindings -> frame, or nil where the scope is empty */
static int enter_frame(lua_State *L, enter *f) {
  neap_scope *scope = scope_at(L, 1);
  neap_workspace *parent = neap_lua_workspace_at(L, 2), *frame = NULL;
  /* Rooms of the bindings lie above the three arguments. */
  lua_settop(L, 3);
  bindings b = take_bindings(L, 3);
  NEAP_LUA_TRY(L, f(scope, parent, b.n, b.inner, b.outer, &frame, &error));
  if (frame == NULL) return 0;
  neap_lua_push_workspace(L, frame);
  return 1;
}

static int push(lua_State *L) { return enter_frame(L, neap_scope_push); }
static int reuse_last(lua_State *L) { return enter_frame(L, neap_scope_reuse_last); }
static int pop_gradient(lua_State *L) { return enter_frame(L, neap_scope_pop_gradient); }

static int clear(lua_State *L) {
  neap_scope_clear(scope_at(L, 1));
  lua_settop(L, 1);
  return 1;
}

static int empty(lua_State *L) {
  lua_pushboolean(L, neap_scope_empty(scope_at(L, 1)));
  return 1;
}

/* #scope */
static int length(lua_State *L) {
  lua_pushinteger(L, neap_scope_n_frames(scope_at(L, 1)));
  return 1;
}

static int held_bytes(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)neap_scope_held_bytes(scope_at(L, 1)));
  return 1;
}

/* scope:check_stack() -> scope */
static int check_stack(lua_State *L) {
  const neap_scope *scope = scope_at(L, 1);
  NEAP_LUA_TRY(L, neap_scope_check(scope, &error));
  lua_settop(L, 1);
  return 1;
}

/* scope:check_bindings_match(bindings [, {gradient = true}]) -> scope */
static int check_bindings(lua_State *L) {
  const neap_scope *scope = scope_at(L, 1);
  lua_settop(L, 3);
  neap_lua_only_fields(L, 3, "check_bindings_match", (const char *const[]){"gradient", NULL});
  bool gradient = neap_lua_flag(L, 3, "check_bindings_match", "gradient", false);
  bindings b = take_bindings(L, 2);
  NEAP_LUA_TRY(L, neap_scope_check_bindings(scope, gradient, b.n, b.inner, b.outer, &error));
  lua_settop(L, 1);
  return 1;
}

/* scope:_idle() -> list of the frames that are kept and not in use */
static int idle(lua_State *L) {
  const neap_scope *scope = scope_at(L, 1);
  lua_newtable(L);
  /* Frames beyond those in use: they wait for the next push. */
  for (int i = neap_scope_n_frames(scope), n = 0; i < neap_scope_n_kept(scope); i++) {
    neap_lua_push_workspace(L, neap_scope_frame_at(scope, i));
    lua_seti(L, -2, ++n);
  }
  return 1;
}

static int trim(lua_State *L) {
  neap_scope_trim(scope_at(L, 1));
  return 0;
}

/* ---- step trees ------------------------------------------------------------------------------ */

static int64_t integer_field(lua_State *L, int index, const char *key) {
  /* nil is 0; anything else must be an integer, and is popped. */
  int is_integer = 1;
  lua_Integer i =
    neap_lua_field(L, index, key) == LUA_TNIL ? 0 : lua_tointegerx(L, -1, &is_integer);
  if (!is_integer)
    neap_lua_fail(L, NEAP_ARGUMENT, "run_steps: %s expects an integer, got a %s", key,
                  luaL_typename(L, -1));
  lua_pop(L, 1);
  return i;
}

static bool bool_field(lua_State *L, int index, const char *key) {
  neap_lua_field(L, index, key);
  bool is = lua_toboolean(L, -1);
  lua_pop(L, 1);
  return is;
}

/* Interned, so that it may leave the stack. */
static const char *text_field(lua_State *L, int index, const char *key) {
  const char *text =
    neap_lua_field(L, index, key) == LUA_TSTRING ? neap_intern(neap_lua_text(L, -1, key)) : NULL;
  lua_pop(L, 1);
  return text;
}

/* More than a run takes, and few enough for the stack of C: a table may hold itself. */
enum { MOST_DEEP = 100 };

/* The step in the table at `index`, checked by workspace/steps.lua, within `depth` others; rooms
 * stay on the stack. */
static neap_step take_step(lua_State *L, int index, int depth) {
  if (depth > MOST_DEEP) neap_lua_fail(L, NEAP_ARGUMENT, "run_steps: steps are nested too deeply");

  /* Every step leaves its rooms and copies on the stack, for the run. */
  luaL_checkstack(L, 16, "steps are nested too deeply");
  neap_step step = {
    .name = text_field(L, index, "name"),
    .iterations = integer_field(L, index, "iterations"),
    .stop_blob = text_field(L, index, "stop"),
    .concurrent = bool_field(L, index, "concurrent"),
    .n_instance = neap_lua_to_int(L, integer_field(L, index, "instances"), "run_steps: instances"),
    .create_workspace = bool_field(L, index, "create_workspace"),
    .report_net = text_field(L, index, "report"),
    .report_every_ms = integer_field(L, index, "report_every_ms"),
    .run_every_ms = integer_field(L, index, "run_every_ms")};

  /* The handle stays on the stack: it keeps its net. */
  if (neap_lua_field(L, index, "given_report") != LUA_TNIL)
    step.given_report = neap_lua_net_at(L, -1)->net;

  /* Nets by name, and beside each the net itself where one was given. The copy keeps their
   * handles. */
  neap_lua_field(L, index, "nets");
  const char **net = neap_lua_names(L, -1, "run_steps", false, &step.n_net);
  const neap_net **given = neap_lua_room(L, (size_t)NEAP_MAX(step.n_net, 1) * sizeof *given);
  neap_lua_field(L, index, "given");
  neap_lua_check_type(L, -1, LUA_TTABLE);
  neap_lua_copy(L, -1);
  for (int i = 0; i < step.n_net; i++) {
    if (lua_rawgeti(L, -1, i + 1) == LUA_TUSERDATA) given[i] = neap_lua_net_at(L, -1)->net;
    lua_pop(L, 1);
  }
  step.net = net;
  step.given = given;

  /* Steps within it, from a copy too: reading one allocates. */
  neap_lua_field(L, index, "steps");
  neap_lua_check_type(L, -1, LUA_TTABLE);
  neap_lua_copy(L, -1);
  int list = lua_gettop(L);
  step.n_step = neap_lua_length(L, list);
  neap_step *sub = neap_lua_room(L, (size_t)NEAP_MAX(step.n_step, 1) * sizeof *sub);
  for (int i = 0; i < step.n_step; i++) {
    lua_rawgeti(L, list, i + 1);
    neap_lua_check_type(L, -1, LUA_TTABLE);
    /* The row stays below what was made of it. */
    sub[i] = take_step(L, lua_gettop(L), depth + 1);
  }
  step.step = sub;
  return step;
}

/* run_steps(ws, step, net, memory) -> whether there was nothing to run. net: the first one, whose
 * inputs `memory` may name; nil when there is none. */
static int run_steps(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  lua_settop(L, 4);

  /* Without a net there are no inputs to name, and no options to read. */
  neap_options options = {0};
  if (!lua_isnil(L, 3)) options = neap_lua_options(L, 4, 3);
  neap_step root = take_step(L, 2, 0);

  /* What the run's plans have to say comes before its error. */
  char warning[NEAP_WARNING_TEXT];
  neap_error error = {0};
  neap_status status = neap_workspace_run_steps(ws, &root, &options, warning, &error);
  neap_lua_warn(L, warning);
  if (status != NEAP_OK) neap_lua_raise_run(L, &error);
  lua_pushboolean(L, root.n_net == 0 && root.n_step == 0);
  return 1;
}

/* run_op(ws, type, {inputs}, {outputs}, attrs): one op on blobs; false stands for none. */
static int run_op(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  const neap_op *op = neap_lua_op(L, 2);
  int n_in, n_out;
  const char *const *in = neap_lua_names(L, 3, "inputs", true, &n_in);
  const char *const *out = neap_lua_names(L, 4, "outputs", true, &n_out);
  neap_set *attrs = neap_lua_attrs(L, 5, op, NULL);
  /* A run, as of a program: Ctrl-C ends it in the same way. */
  neap_error error = {0};
  if (neap_workspace_call_op(ws, neap_op_name(op), n_in, in, attrs, n_out, out, &error) != NEAP_OK)
    neap_lua_raise_run(L, &error);
  return 0;
}

/* run_once(ws, net, memory) */
static int run_once(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  lua_settop(L, 3);
  neap_options options = neap_lua_options(L, 3, 2);
  char warning[NEAP_WARNING_TEXT];
  neap_error error = {0};
  neap_status status =
    neap_workspace_run_once(ws, neap_lua_net_at(L, 2)->net, &options, warning, &error);
  neap_lua_warn(L, warning);
  if (status != NEAP_OK) neap_lua_raise_run(L, &error);
  return 0;
}

void neap_lua_open_scope(lua_State *L) {
  static const neap_lua_reg meta[] = {
    {"__tostring", to_text, NEAP_LUA_ANY}, {"__len", length, NEAP_LUA_ANY}, {NULL, NULL, 0}};
  static const neap_lua_reg methods[] = {{"_push", push, 3},
                                         {"_reuse_last", reuse_last, 3},
                                         {"_pop_gradient", pop_gradient, 3},
                                         {"_idle", idle, NEAP_LUA_ALONE | 1},
                                         {"_trim", trim, 1},
                                         {"clear", clear, 1},
                                         {"empty", empty, 1},
                                         {"held_bytes", held_bytes, 1},
                                         {"check_stack", check_stack, 1},
                                         {"check_bindings_match", check_bindings, 3},
                                         {NULL, NULL, 0}};
  neap_lua_class(L, NEAP_LUA_SCOPE, "Scope", meta, methods);
  static const neap_lua_reg functions[] = {
    {"run_steps", run_steps, 4}, {"run_once", run_once, 3}, {"run_op", run_op, 5}, {NULL, NULL, 0}};
  neap_lua_functions(L, functions, false);
}
