/* program.c: compile options, and the program handle: a session of the driver.
 *
 * User value 1 of a program is a table that keeps its net, workspace and plan handles alive. INVARIANT: the session is freed
 * before the workspace it is attached to (it retains that itself), and a plan handle asks for it each time.
 */
#include "lua/binding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct handle {
  neap_session *session;
  neap_workspace *ws;   /* retained */
  bool profile, warned; /* warned: of what a run of a dynamic session has found */
} handle;

/* ---- options ------------------------------------------------------------------------------------------------------------ */

enum option {
  BUDGET,
  TOTAL,
  POLICY,
  EXECUTOR,
  IN_PLACE,
  KEEP,
  KEEP_ALL,
  REWRITE,
  FUSE,
  ENGINE,
  THREADS,
  PROFILE,
  STORE,
  SEARCH,
  TRAIN,
  TAG,
  LAYOUTS,
  SOFT,
  MEM_PARAM,
  RECOMPUTE,
  EXACT,
  BESIDE,
  BANKS,
  INPUTS,
  N_OPTION
};
static const char *const option_name[] = {
  "budget", "total",  "policy", "executor", "in_place", "keep", "keep_all",  "rewrite",   "fuse",  "engine", "threads", "profile",
  "store",  "search", "train",  "tag",      "layouts",  "soft", "mem_param", "recompute", "exact", "beside", "banks",   "inputs"};

static enum option option_of(const char *key) {
  int o = 0;
  while (o < N_OPTION && strcmp(option_name[o], key) != 0) o++;
  return (enum option)o;
}

/* The nearer of two candidates to `key`; best may be NULL. */
static const char *nearer(const char *key, const char *best, const char *candidate) {
  int d = neap_text_distance(key, candidate), least = best != NULL ? neap_text_distance(key, best) - 1 : 1 + (int)strlen(key) / 3;
  return d <= least ? candidate : best;
}

/* Names the nearest option or input of the net. */
_Noreturn static void fail_option(lua_State *L, const neap_net *net, const char *key) {
  neap_error error = {0};
  const char *best = NULL;
  for (int o = 0; o < N_OPTION; o++) best = nearer(key, best, option_name[o]);
  for (int b = 0; b < neap_net_n_blobs(net); b++)
    if (neap_net_blob_at(net, b)->role == NEAP_ROLE_INPUT) best = nearer(key, best, neap_net_blob_at(net, b)->name);
  neap_fail(&error, NEAP_ATTRIBUTE, "unknown memory option or input \"%s\"", key);
  if (best != NULL)
    neap_hint(&error, "did you mean \"%s\"?", best);
  else
    neap_hint(&error,
              "there are budget, total, soft, policy, executor, in_place, recompute, exact, keep, banks, engine, layouts, "
              "threads, profile, inputs, and the net's inputs by name");
  neap_lua_raise(L, &error);
}

static bool boolean_at_top(lua_State *L, const char *key) {
  if (!lua_isboolean(L, -1)) neap_lua_fail(L, NEAP_ARGUMENT, "%s expects true or false, got a %s", key, luaL_typename(L, -1));
  return lua_toboolean(L, -1);
}

/* A number becomes a text here, which no table keeps. */
static const char *interned_at_top(lua_State *L) {
  const char *text = neap_intern(neap_lua_check_string(L, -1));
  if (text == NULL) neap_lua_fail(L, NEAP_MEMORY, "memory for a name was refused");
  return text;
}

/* "60%": of the arena planned without a budget. */
static size_t percent_of_plan(lua_State *L, const char *text, const neap_net *net, const neap_compile_options *o) {
  double percent;
  char end;
  if (sscanf(text, "%lf%c", &percent, &end) != 2 || end != '%' || !(percent > 0 && percent <= 100))
    neap_lua_fail(L, NEAP_ARGUMENT, "budget expects bytes, \"8MiB\", \"8MB\" or \"60%%\", got \"%s\"", text);
  neap_forecast free_plan = {0};
  neap_compile_options without = *o;
  without.plan.budget_bytes = 0;
  NEAP_LUA_TRY(L, neap_driver_plan(net, &without, &free_plan, &error));
  double bytes = (double)free_plan.plan->arena_bytes * percent / 100;
  char warning[sizeof free_plan.warning];
  memcpy(warning, free_plan.warning, sizeof warning);
  neap_forecast_fini(&free_plan);
  neap_lua_warn(L, warning);
  return (size_t)bytes;
}

/* true, false, or "pool": pooling too. */
static void take_fuse(lua_State *L, neap_compile_options *o) {
  const char *text = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
  o->graph.fuse_pool = text != NULL && strcmp(text, "pool") == 0;
  o->graph.no_fuse = lua_isboolean(L, -1) && !lua_toboolean(L, -1);
  if (lua_isboolean(L, -1) || o->graph.fuse_pool) return;
  neap_error error = {0};
  neap_fail(&error, NEAP_ARGUMENT, "fuse expects true, false or \"pool\", got %s%s%s", text != NULL ? "\"" : "a ",
            text != NULL ? text : luaL_typename(L, -1), text != NULL ? "\"" : "");
  if (text != NULL && neap_text_distance(text, "pool") <= 2) neap_hint(&error, "did you mean \"pool\"?");
  neap_lua_raise(L, &error);
}

/* The value at the top of the stack. */
static void take_option(lua_State *L, enum option option, neap_compile_options *o) {
  const char *key = option_name[option];
  switch (option) {
    case BUDGET: /* percentages wait until everything else is known */
      if (lua_type(L, -1) != LUA_TSTRING || strchr(lua_tostring(L, -1), '%') == NULL)
        o->plan.budget_bytes = neap_lua_bytes(L, -1, key);
      break;
    case TOTAL: o->total_bytes = neap_lua_bytes(L, -1, key); break;
    case POLICY:
      if (lua_type(L, -1) != LUA_TSTRING || !neap_policy_from_name(lua_tostring(L, -1), &o->plan.policy))
        neap_lua_fail(L, NEAP_ARGUMENT, "policy is one of offset, name, none, pool");
      o->policy_given = true;
      break;
    case EXECUTOR: {
      const char *name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
      if (strcmp(name, "dynamic") == 0)
        o->plan.policy = NEAP_POLICY_POOL, o->dynamic = true;
      else if (strcmp(name, "dag") == 0)
        o->plan.executor = NEAP_EXECUTOR_DAG;
      else if (strcmp(name, "simple") != 0)
        neap_lua_fail(L, NEAP_ARGUMENT, "executor is one of simple, dag, dynamic");
      break;
    }
    case IN_PLACE: o->plan.no_in_place = !boolean_at_top(L, key); break;
    case KEEP_ALL: o->graph.keep_all = boolean_at_top(L, key); break;
    case REWRITE: o->graph.no_rewrite = !boolean_at_top(L, key); break;
    case FUSE: take_fuse(L, o); break;
    case ENGINE: o->engine = interned_at_top(L); break;
    case THREADS:
      if (!lua_isinteger(L, -1) || lua_tointeger(L, -1) < 1 || lua_tointeger(L, -1) > 4096)
        neap_lua_fail(L, NEAP_ARGUMENT, "threads expects a number from 1 to 4096, got %s", luaL_tolstring(L, -1, NULL));
      o->n_thread = (int)lua_tointeger(L, -1);
      break;
    case PROFILE: o->profile = boolean_at_top(L, key); break;
    case STORE:
      if (lua_toboolean(L, -1) == 0) o->store = NULL;
      break;
    case SEARCH:
      o->plan.most_steps = neap_lua_check_integer(L, -1);
      if (o->plan.most_steps < 1) neap_lua_fail(L, NEAP_ARGUMENT, "search expects a number of steps, at least 1");
      break;
    case LAYOUTS: {
      const char *name = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : "";
      o->plain = strcmp(name, "plain") == 0;
      if (!o->plain && strcmp(name, "free") != 0) neap_lua_fail(L, NEAP_ARGUMENT, "layouts is one of free, plain");
      break;
    }
    case RECOMPUTE: o->no_recompute = !boolean_at_top(L, key); break;
    case EXACT: o->inexact = !boolean_at_top(L, key); break;
    case BESIDE: /* { bytes, arena }, as core.micro_beside gives them */
      neap_lua_check_type(L, -1, LUA_TTABLE);
      lua_rawgeti(L, -1, 1);
      lua_rawgeti(L, -2, 2);
      o->beside = (neap_beside){.bytes = neap_lua_bytes(L, -2, key), .arena_bytes = neap_lua_bytes(L, -1, key)};
      break;
    case SOFT: o->soft_bytes = neap_lua_bytes(L, -1, key); break;
    case TAG: o->tag = interned_at_top(L); break;
    case KEEP:
    case MEM_PARAM:
    case BANKS: /* all three need room that outlives the walk over the options */
    case INPUTS:
    case TRAIN:
    case N_OPTION: break;
  }
}

/* x = {64, 784}, or a tensor of that shape: input `key` with another shape than declared. The value is at the top. */
static void take_input(lua_State *L, const char *key, const neap_net *net, neap_compile_options *o, const char **names,
                       neap_type *types) {
  const neap_net_blob *blob = neap_net_find_blob(net, key);
  if (blob == NULL || blob->role != NEAP_ROLE_INPUT) fail_option(L, net, key);
  for (int i = 0; i < o->graph.n_input; i++)
    if (names[i] == blob->name) return; /* said in `inputs`, which counts first */
  int i = o->graph.n_input++;
  names[i] = blob->name;
  types[i] = blob->type;
  if (neap_lua_is_tensor(L, -1))
    types[i].shape = neap_lua_tensor_at(L, -1)->shape;
  else if (lua_istable(L, -1))
    neap_lua_shape(L, lua_gettop(L), &types[i].shape, key);
  else
    neap_lua_fail(L, NEAP_ARGUMENT, "input \"%s\" expects a shape or a tensor, got a %s", key, luaL_typename(L, -1));
}

/* inputs = { total = {64, 784}, .. }: by names that options may have too. The table, or nil, is at the top. */
static void take_inputs(lua_State *L, const neap_net *net, neap_compile_options *o, const char **names, neap_type *types) {
  int at = lua_gettop(L);
  if (lua_isnil(L, at)) return;
  for (lua_pushnil(L); lua_next(L, at) != 0; lua_settop(L, at + 1)) {
    const neap_net_blob *blob = lua_type(L, at + 1) == LUA_TSTRING ? neap_net_find_blob(net, lua_tostring(L, at + 1)) : NULL;
    if (blob == NULL || blob->role != NEAP_ROLE_INPUT)
      neap_lua_fail(L, NEAP_NAME, "inputs: net \"%s\" has no input \"%s\"", neap_net_name(net), luaL_tolstring(L, at + 1, NULL));
    take_input(L, blob->name, net, o, names, types);
  }
}

/* A copy takes the place of the table at the top; returns how many names it has. nil has none. */
static int copy_names(lua_State *L) {
  if (lua_isnil(L, -1)) return 0;
  if (!lua_istable(L, -1))
    neap_lua_fail(L, NEAP_ARGUMENT, "inputs expects shapes by name, { x = {64, 784} }, got a %s", luaL_typename(L, -1));
  int n = neap_lua_copy(L, -1);
  lua_replace(L, -2);
  return n;
}

/* A shape where an option of that name takes none means the net's input of that name. */
static bool is_shape_of_input(lua_State *L, enum option option, const neap_net *net) {
  if (option == KEEP || option == MEM_PARAM || option == BANKS || option == INPUTS) return false;
  const neap_net_blob *blob = neap_net_find_blob(net, option_name[option]);
  return blob != NULL && blob->role == NEAP_ROLE_INPUT && (lua_istable(L, -1) || neap_lua_is_tensor(L, -1));
}

/* The mem_param at the top of the stack, as lua/neap/mem_param.lua has checked it; NULL for nil. Its rooms stay on the stack. */
static const neap_mem_param *take_mem_param(lua_State *L) {
  if (lua_isnil(L, -1)) return NULL;
  int at = lua_gettop(L);
  if (!lua_istable(L, at)) neap_lua_fail(L, NEAP_ARGUMENT, "mem_param expects a table, got a %s", luaL_typename(L, at));
  neap_mem_param *param = neap_lua_room(L, sizeof *param);
  param->no_optimize_train = neap_lua_field(L, at, "optimize_train") == LUA_TBOOLEAN && !lua_toboolean(L, -1);
  param->optimize_test = neap_lua_field(L, at, "optimize_test") == LUA_TBOOLEAN && lua_toboolean(L, -1);
  param->debug_info = neap_lua_field(L, at, "debug_info") == LUA_TBOOLEAN && lua_toboolean(L, -1);
  neap_lua_field(L, at, "exclude_blob");
  param->exclude_blob = neap_lua_names(L, -1, "exclude_blob", false, &param->n_exclude_blob);
  return param;
}

void neap_lua_take_bank(lua_State *L, neap_bank *bank) {
  int at = lua_gettop(L);
  if (!lua_istable(L, at))
    neap_lua_fail(L, NEAP_ARGUMENT, "banks expects a list of neap.bank { .. }, got a %s in it", luaL_typename(L, at));
  if (neap_lua_field(L, at, "name") != LUA_TSTRING)
    neap_lua_fail(L, NEAP_ARGUMENT,
                  "banks expects a list such as { neap.bank { \"fast\", bytes = \"2MiB\" } }, got one without a name");
  bank->name = neap_lua_name(L, -1, "the name of a bank"); /* interned: the table may change */
  for (lua_pushnil(L); lua_next(L, at) != 0; lua_pop(L, 1)) {
    const char *key = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
    if (strcmp(key, "name") != 0 && strcmp(key, "bytes") != 0 && strcmp(key, "kind") != 0)
      neap_lua_fail(L, NEAP_ARGUMENT, "bank \"%s\": nothing reads its field \"%s\"; it takes name, bytes, kind", bank->name,
                    luaL_tolstring(L, -2, NULL));
  }
  if (neap_lua_field(L, at, "bytes") != LUA_TNIL) bank->bytes = (int64_t)neap_lua_bytes(L, -1, "bytes of a bank");
  if (neap_lua_field(L, at, "kind") != LUA_TNIL && !neap_bank_kind_from_name(neap_lua_check_string(L, -1), &bank->kind))
    neap_lua_fail(L, NEAP_ARGUMENT, "bank \"%s\": kind is one of ordinary, huge, got \"%s\"", bank->name, lua_tostring(L, -1));
  lua_settop(L, at);
}

/* The length of the list of banks at `at`; one bank alone is a list of it. */
static lua_Integer count_banks(lua_State *L, int at, bool *alone) {
  if (!lua_istable(L, at))
    neap_lua_fail(L, NEAP_ARGUMENT, "banks expects a list of neap.bank { .. }, got a %s", luaL_typename(L, at));
  *alone = neap_lua_field(L, at, "name") == LUA_TSTRING;
  lua_pop(L, 1);
  lua_Integer n = neap_lua_length(L, at), n_key = 0;
  for (lua_pushnil(L); !*alone && lua_next(L, at) != 0; lua_pop(L, 1)) n_key++;
  if (n_key != n && !*alone)
    neap_lua_fail(L, NEAP_ARGUMENT,
                  "banks expects a list { neap.bank { \"fast\", .. }, .. }, got a table with other keys than 1 to %lld",
                  (long long)n_key);
  if (n > NEAP_MAX_BANKS)
    neap_lua_fail(L, NEAP_ARGUMENT, "banks: at most %d are allowed, got %lld", NEAP_MAX_BANKS, (long long)n);
  return *alone ? 1 : n;
}

/* The list at the top, or nil; its room stays on the stack. */
static void take_banks(lua_State *L, neap_graph_options *o) {
  int at = lua_gettop(L);
  bool alone;
  if (lua_isnil(L, at)) return;
  lua_Integer n = count_banks(L, at, &alone);
  neap_bank *bank = neap_lua_room(L, (size_t)n * sizeof *bank);
  for (lua_Integer i = 0; i < n; i++) {
    bank[i] = (neap_bank){0};
    if (alone)
      lua_pushvalue(L, at);
    else
      lua_rawgeti(L, at, i + 1);
    neap_lua_take_bank(L, &bank[i]);
    lua_pop(L, 1);
  }
  o->n_bank = (int)n;
  o->bank = bank;
}

neap_compile_options neap_lua_compile_options(lua_State *L, int index, int net_index) {
  index = lua_absindex(L, index);
  const neap_net *net = neap_lua_net_at(L, net_index)->net;
  neap_compile_options o = {.plan = {.policy = NEAP_POLICY_OFFSET}, .store = neap_lua_store(L)};
  const char *script = neap_lua_line(L);
  o.script = script[0] != '\0' ? script : NULL;
  const char *profile = getenv("NEAP_PROFILE");
  o.profile = profile != NULL && profile[0] != '\0' && strcmp(profile, "0") != 0;
  if (lua_isnoneornil(L, index)) return o;
  neap_lua_check_type(L, index, LUA_TTABLE);
  int n = neap_lua_copy(L, index); /* it keeps the texts that the options borrow */
  index = lua_gettop(L);
  neap_lua_field(L, index, "inputs");
  n += copy_names(L);
  int inputs_at = lua_gettop(L);
  const char **names = neap_lua_room(L, (size_t)n * sizeof *names);
  neap_type *types = neap_lua_room(L, (size_t)n * sizeof *types);
  o.graph.input = names;
  o.graph.input_type = types;
  lua_pushvalue(L, inputs_at);
  take_inputs(L, net, &o, names, types);
  for (lua_pushnil(L); lua_next(L, index) != 0;) {
    int key_at = lua_gettop(L) - 1;
    if (lua_type(L, key_at) != LUA_TSTRING)
      neap_lua_fail(L, NEAP_ARGUMENT, "memory options go by name, e.g. { budget = \"8MiB\" }");
    const char *key = lua_tostring(L, key_at);
    enum option option = option_of(key);
    if (option != N_OPTION && !is_shape_of_input(L, option, net))
      take_option(L, option, &o);
    else
      take_input(L, key, net, &o, names, types);
    lua_settop(L, key_at);
  }
  neap_lua_field(L, index, "keep");
  o.graph.keep = neap_lua_names(L, -1, "keep", false, &o.graph.n_keep); /* its room stays, so not in the loop */
  neap_lua_field(L, index, "mem_param");
  o.mem_param = take_mem_param(L);
  neap_lua_field(L, index, "banks");
  take_banks(L, &o.graph);
  if (neap_lua_field(L, index, "budget") == LUA_TSTRING && strchr(lua_tostring(L, -1), '%') != NULL)
    o.plan.budget_bytes = percent_of_plan(L, lua_tostring(L, -1), net, &o);
  return o;
}

/* ---- the handle ----------------------------------------------------------------------------------------------------------- */

/* Raises `argument` for another thing, `released` for a program that was closed. */
static handle *program_at(lua_State *L, int index) {
  handle *h = neap_lua_at(L, index, NEAP_LUA_PROGRAM);
  if (h->session == NULL) neap_lua_fail(L, NEAP_RELEASED, "the program was closed");
  return h;
}

neap_session *neap_lua_session_at(lua_State *L, int index) {
  const handle *h = neap_lua_test(L, index, NEAP_LUA_PROGRAM);
  return h != NULL && !neap_lua_is_closed(h) ? h->session : NULL;
}

void neap_lua_free_program(lua_State *L, void *at) {
  handle *h = at;
  (void)L;
  neap_session_free(h->session);
  h->session = NULL;
  if (h->ws != NULL) neap_workspace_release(h->ws);
  h->ws = NULL;
}

static const char warned_key; /* its address: in the registry, what was last said about the database */

/* A trouble with the database is told once, not for every program that meets it. */
void neap_lua_warn(lua_State *L, const char *warning) {
  if (warning[0] == '\0') return;
  const char *trouble = strstr(warning, "database \"");
  if (trouble != NULL) {
    lua_pushstring(L, trouble);
    bool again = lua_rawgetp(L, LUA_REGISTRYINDEX, &warned_key) == LUA_TSTRING && lua_rawequal(L, -1, -2);
    lua_pop(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &warned_key);
    if (again) return;
  }
  lua_warning(L, "neap: ", 1);
  lua_warning(L, warning, 0);
}

/* ws:_compile(net, options [, range]) -> program; with a range: of a smaller batch in its memory. */
static int compile(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  const neap_lua_net *net = neap_lua_net_at(L, 2);
  lua_settop(L, 4);
  neap_compile_options options = neap_lua_compile_options(L, 3, 2);
  const neap_range *range = neap_lua_opt_range(L, 4);
  handle *h = neap_lua_new(L, sizeof *h, NEAP_LUA_PROGRAM);
  lua_createtable(L, 0, 3);
  lua_pushvalue(L, 1);
  lua_setfield(L, -2, "workspace");
  lua_pushvalue(L, 2);
  lua_setfield(L, -2, "net");
  lua_setiuservalue(L, -2, 1);
  h->ws = neap_workspace_retain(ws);
  h->profile = options.profile;
  NEAP_LUA_TRY(L, range != NULL ? neap_range_compile(range, ws, net->net, &options, &h->session, &error)
                                : neap_driver_compile(ws, net->net, &options, &h->session, &error));
  neap_lua_warn(L, neap_session_warning(h->session));
  h->warned = neap_session_warning(h->session)[0] != '\0';
  neap_lua_collect(L);
  return 1;
}

void neap_lua_raise_run(lua_State *L, const neap_error *error) {
  if (error->code == NEAP_INTERRUPTED) {
    neap_interrupted = 0;
    lua_sethook(L, NULL, 0, 0);
  }
  neap_lua_raise(L, error);
}

/* program:run([n]): n steps, 1 by default. */
static int run(lua_State *L) {
  handle *h = program_at(L, 1);
  lua_Integer n = neap_lua_opt_integer(L, 2, 1);
  neap_error error = {0};
  for (lua_Integer i = 0; i < n; i++)
    if (neap_session_run(h->session, &error) != NEAP_OK) neap_lua_raise_run(L, &error);
  if (!h->warned) neap_lua_warn(L, neap_session_warning(h->session));
  h->warned = h->warned || neap_session_warning(h->session)[0] != '\0';
  lua_settop(L, 1);
  return 1;
}

/* run_micro(ws, {input = tensor, ..}, {{program =, n =, weight =}, ..}, last [, join, kept, added]): one step as micro-batches, ended
 * by `last`: the update, or hold; kept and added are the shares of what is held and of this batch. */
static int run_micro(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  neap_lua_check_type(L, 2, LUA_TTABLE);
  neap_lua_check_type(L, 3, LUA_TTABLE);
  lua_settop(L, 7);
  int n_input = neap_lua_copy(L, 2);
  lua_replace(L, 2); /* the copies keep tensors and programs */
  neap_lua_copy(L, 3);
  lua_replace(L, 3);
  neap_micro_step step = {.n_part = neap_lua_length(L, 3), .after[1] = program_at(L, 4)->session};
  if (!lua_isnil(L, 5)) step.after[0] = program_at(L, 5)->session;
  step.kept = lua_isnil(L, 6) ? 0 : neap_lua_check_number(L, 6);
  step.added = lua_isnil(L, 7) ? 0 : neap_lua_check_number(L, 7);
  neap_micro_input *input = neap_lua_room(L, (size_t)n_input * sizeof *input);
  neap_micro_part *part = neap_lua_room(L, (size_t)step.n_part * sizeof *part);
  step.input = input;
  step.part = part;
  for (lua_pushnil(L); lua_next(L, 2) != 0; lua_pop(L, 1), input++, step.n_input++) {
    lua_pushvalue(L, -2); /* lua_next must see the key as it was */
    input->name = neap_lua_name(L, -1, "an input");
    input->rows = *neap_lua_tensor_at(L, -2);
    lua_pop(L, 1);
  }
  for (int p = 0; p < step.n_part; p++) {
    luaL_checkstack(L, 8, "too many parts");
    lua_rawgeti(L, 3, p + 1);
    neap_lua_check_type(L, -1, LUA_TTABLE);
    int row = lua_gettop(L);
    neap_lua_field(L, row, "n");
    part[p].n = neap_lua_check_integer(L, -1);
    neap_lua_field(L, row, "weight");
    part[p].weight = neap_lua_check_number(L, -1);
    neap_lua_field(L, row, "program");
    part[p].session = program_at(L, -1)->session;
    lua_replace(L, row); /* kept by the stack */
    lua_settop(L, row);
  }
  neap_error error = {0};
  if (neap_driver_run_micro(ws, &step, &error) != NEAP_OK) neap_lua_raise_run(L, &error);
  return 0;
}

/* program.plan, net, workspace; methods. */
static int index_any(lua_State *L) {
  const handle *h = neap_lua_any(L, 1, NEAP_LUA_PROGRAM);
  const char *key = neap_lua_check_string(L, 2);
  if (strcmp(key, "plan") == 0 || strcmp(key, "net") == 0 || strcmp(key, "workspace") == 0) {
    if (lua_getiuservalue(L, 1, 1) != LUA_TTABLE) neap_lua_fail(L, NEAP_ARGUMENT, "the program has lost its %s", key);
    if (neap_lua_field(L, -1, key) != LUA_TNIL) return 1;
    program_at(L, 1);
    neap_lua_push_session_plan(L, 1);
    if (neap_session_dynamic_stats(h->session).n_made > 0) return 1; /* another plan next time */
    lua_pushvalue(L, -1);
    lua_setfield(L, -4, "plan");
    return 1;
  }
  return neap_lua_method(L);
}

/* program:stats() -> {n_step, last_ns, min_ns, median_ns, held_bytes (what the workspace owns now, as ws:held_bytes),
 * process_bytes (tensor bytes of the whole process after the last run), planned_bytes, n_alloc_last, plan_id, run_id};
 * of executor "dynamic" also n_program, n_made, n_dropped (programs, one for each combination of shapes), n_restart (runs begun
 * anew because a length that depends on data was another), cache_bytes (of the programs at hand). */
static int stats(lua_State *L) {
  const handle *h = program_at(L, 1);
  neap_session_stats s = neap_session_stats_read(h->session);
  neap_dynamic_stats d = neap_session_dynamic_stats(h->session);
  lua_createtable(L, 0, 15);
  neap_lua_set_integer(L, "n_program", d.n_program);
  neap_lua_set_integer(L, "n_made", d.n_made);
  neap_lua_set_integer(L, "n_dropped", d.n_dropped);
  neap_lua_set_integer(L, "n_restart", d.n_restart);
  neap_lua_set_integer(L, "cache_bytes", d.cache_bytes);
  neap_lua_set_integer(L, "n_step", s.n_step);
  neap_lua_set_integer(L, "last_ns", s.last_ns);
  neap_lua_set_integer(L, "min_ns", s.min_ns);
  neap_lua_set_integer(L, "median_ns", s.median_ns);
  neap_lua_set_integer(L, "held_bytes", s.held_bytes);
  neap_lua_set_integer(L, "process_bytes", s.process_bytes);
  neap_lua_set_integer(L, "planned_bytes", s.planned_bytes);
  neap_lua_set_integer(L, "n_alloc_last", s.n_alloc_last);
  neap_lua_set_integer(L, "plan_id", neap_session_plan_id(h->session));
  neap_lua_set_integer(L, "run_id", neap_session_run_id(h->session));
  return 1;
}

/* program:times() -> {step, n_call, min_ns, last_ns, total_ns, thread} per plan step; nil without profile. */
static int times(lua_State *L) {
  const handle *h = program_at(L, 1);
  const neap_step_times *t = neap_session_times(h->session);
  if (t == NULL) return 0;
  int n = neap_program_plan(neap_session_program(h->session))->n_node;
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_createtable(L, 0, 6);
    neap_lua_set_integer(L, "step", i + 1);
    neap_lua_set_integer(L, "n_call", t[i].n_call);
    neap_lua_set_integer(L, "min_ns", t[i].min_ns);
    neap_lua_set_integer(L, "last_ns", t[i].last_ns);
    neap_lua_set_integer(L, "total_ns", t[i].total_ns);
    neap_lua_set_integer(L, "thread", t[i].thread);
    lua_seti(L, -2, i + 1);
  }
  return 1;
}

/* program:pool() -> what the pool of the program's workspace holds and how far the last run used it; nil when addresses are
 * planned. Bytes: reserved (the region, kept between steps), used (now: 0 between steps), high (most taken at once so far, by
 * any program), reach (the part of the region that this took), forecast (what the plan foretold of reach), lower_bound, soft;
 * counts: n_take (since the pool was made), n_used, n_free_block; under a budget that leaves no room, of one run: n_evicted and
 * evicted_bytes (values given back before their last reader), n_recomputed (ops run again for it), recomputed_work (theirs, as a
 * share of that of one run); curve[step] = bytes taken while that step of the last run ran,
 * 0 for steps it did not reach. */
static int pool(lua_State *L) {
  const handle *h = program_at(L, 1);
  neap_program *program = neap_session_program(h->session);
  const neap_plan *plan = neap_program_plan(program);
  const size_t *curve = neap_program_pool_curve(program);
  if (curve == NULL) return 0;
  neap_pool_stats s = neap_workspace_pool(h->ws);
  lua_createtable(L, 0, 10);
  neap_lua_set_integer(L, "reserved", (int64_t)s.reserved_bytes);
  neap_lua_set_integer(L, "used", (int64_t)s.used_bytes);
  neap_lua_set_integer(L, "high", (int64_t)s.high_bytes);
  neap_lua_set_integer(L, "reach", (int64_t)s.reach_bytes);
  neap_lua_set_integer(L, "forecast", (int64_t)plan->arena_bytes);
  neap_lua_set_integer(L, "lower_bound", (int64_t)plan->lower_bound_bytes);
  neap_lua_set_integer(L, "soft", (int64_t)neap_workspace_pool_soft(h->ws));
  neap_lua_set_integer(L, "n_take", s.n_take);
  neap_lua_set_integer(L, "n_used", s.n_used);
  neap_lua_set_integer(L, "n_free_block", s.n_free_block);
  neap_lua_set_integer(L, "n_evicted", plan->script.n_evicted);
  neap_lua_set_integer(L, "evicted_bytes", plan->script.evicted_bytes);
  neap_lua_set_integer(L, "n_recomputed", plan->script.n_again);
  lua_pushnumber(L, plan->script.again_work);
  lua_setfield(L, -2, "recomputed_work");
  lua_createtable(L, plan->n_node, 0);
  for (int i = 0; i < plan->n_node; i++) {
    lua_pushinteger(L, (lua_Integer)curve[i]);
    lua_seti(L, -2, i + 1);
  }
  lua_setfield(L, -2, "curve");
  return 1;
}

/* program:metric(name, step, value): a row of the run, once it is recorded. */
static int metric(lua_State *L) {
  neap_session_metric(program_at(L, 1)->session, neap_lua_check_string(L, 2), neap_lua_check_integer(L, 3),
                      neap_lua_check_number(L, 4));
  return 0;
}

/* program:record([status]) -> run_id; writes the run's row. nil, message, code when the database fails. */
static int record(lua_State *L) {
  const handle *h = program_at(L, 1);
  neap_error error = {0};
  if (neap_session_record(h->session, neap_lua_opt_string(L, 2, "ok"), &error) != NEAP_OK) return neap_lua_failure(L, &error);
  lua_pushinteger(L, neap_session_run_id(h->session));
  return 1;
}

/* program:frames_bytes(): what loops without a maximum hold from run to run. */
static int frames_bytes(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)neap_program_frames_bytes(neap_session_program(program_at(L, 1)->session)));
  return 1;
}

/* program:trim() -> bytes: gives the frames of loops without a maximum back. */
static int trim(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)neap_program_trim(neap_session_program(program_at(L, 1)->session)));
  return 1;
}

/* program:_lacks_blob() -> whether a blob that it works on has been removed from the workspace, or renamed. */
static int lacks_blob(lua_State *L) {
  handle *h = program_at(L, 1);
  lua_pushboolean(L, neap_workspace_lacks_blob(h->ws, neap_session_program(h->session)));
  return 1;
}

static int to_text(lua_State *L) {
  const handle *h = neap_lua_any(L, 1, NEAP_LUA_PROGRAM);
  if (h->session == NULL || neap_lua_is_closed(h)) return lua_pushliteral(L, "program (closed)"), 1;
  const neap_plan *plan = neap_program_plan(neap_session_program(h->session));
  char text[24];
  lua_pushfstring(L, "program: %d steps, arena %s, run %I times", plan->n_node, neap_bytes_text((double)plan->arena_bytes, text),
                  (LUAI_UACINT)neap_session_stats_read(h->session).n_step);
  return 1;
}

/* core.memory_options() -> the names of all options that a plan takes, input shapes apart */
static int memory_options(lua_State *L) {
  lua_createtable(L, N_OPTION, 0);
  for (int o = 0; o < N_OPTION; o++) {
    lua_pushstring(L, option_name[o]);
    lua_seti(L, -2, o + 1);
  }
  return 1;
}

void neap_lua_open_program(lua_State *L) {
  static const neap_lua_reg meta[] = {{"__close", neap_lua_close, NEAP_LUA_ANY},
                                      {"__index", index_any, NEAP_LUA_ANY},
                                      {"__tostring", to_text, NEAP_LUA_ANY},
                                      {NULL, NULL, 0}};
  static const neap_lua_reg methods[] = {{"run", run, 2},
                                         {"stats", stats, NEAP_LUA_ALONE | 1},
                                         {"times", times, NEAP_LUA_ALONE | 1},
                                         {"pool", pool, NEAP_LUA_ALONE | 1},
                                         {"metric", metric, 4},
                                         {"record", record, 2},
                                         {"close", neap_lua_close, 1},
                                         {"frames_bytes", frames_bytes, 1},
                                         {"trim", trim, 1},
                                         {"_lacks_blob", lacks_blob, 1},
                                         {NULL, NULL, 0}};
  neap_lua_class(L, NEAP_LUA_PROGRAM, "Program", meta, methods);
  static const neap_lua_reg of_workspace[] = {{"_compile", compile, 4}, {NULL, NULL, 0}};
  static const neap_lua_reg functions[] = {{"memory_options", memory_options, 0}, {"run_micro", run_micro, 7}, {NULL, NULL, 0}};
  lua_getfield(L, -1, "Workspace");
  neap_lua_functions(L, of_workspace, true);
  lua_pop(L, 1);
  neap_lua_functions(L, functions, false);
}
