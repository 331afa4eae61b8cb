/* options.c: tables of memory options, read by the table of neap.h.
 *
 * What the tables hold is copied first, so that texts and lists live as long as the copy on the
 * stack, whatever a script does meanwhile.
 */
#include "lua/binding.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reading {
  neap_options options;
  const neap_net *net;
  const char *percent; /* of budget; NULL: none */
  neap_input *input;   /* room for options.inputs */
} reading;

/* ---- one value, at the top of the stack ------------------------------------------------------ */

#define FIELD(type, r, option) (*(type *)((char *)&(r)->options + (option)->offset))

static const char *text_at_top(lua_State *L, const char *who) {
  return lua_type(L, -1) == LUA_TSTRING ? neap_lua_text(L, -1, who) : NULL;
}

static int64_t take_count(lua_State *L, const neap_option *option) {
  /* The range is in words, "1 64"; without one any count from 1 on will do. */
  long long least = 1, most = INT64_MAX;
  bool range = sscanf(option->range, "%lld %lld", &least, &most) == 2;
  if (lua_isinteger(L, -1) && lua_tointeger(L, -1) >= least && lua_tointeger(L, -1) <= most)
    return lua_tointeger(L, -1);
  const char *got = luaL_tolstring(L, -1, NULL);
  if (range)
    neap_lua_fail(L, NEAP_ARGUMENT, "%s expects a number from %lld to %lld, got %s", option->name,
                  least, most, got);
  neap_lua_fail(L, NEAP_ARGUMENT, "%s expects an integer of at least %lld, got %s", option->name,
                least, got);
}

/* A percentage waits until everything else is known. */
static int64_t take_bytes(lua_State *L, const neap_option *option, reading *r) {
  /* The text is kept by the copy of the table. */
  const char *text = text_at_top(L, option->name);
  if (text == NULL || strchr(text, '%') == NULL || strcmp(option->range, "%") != 0)
    return (int64_t)neap_lua_limit(L, -1, option->name);
  r->percent = text;
  return 0;
}

static neap_switch take_switch(lua_State *L, const neap_option *option) {
  if (!lua_isboolean(L, -1))
    neap_lua_fail(L, NEAP_ARGUMENT, "%s expects true or false, got a %s", option->name,
                  luaL_typename(L, -1));
  return lua_toboolean(L, -1) ? NEAP_ON : NEAP_OFF;
}

/* A word of the option's, or a boolean where "true" and "false" are among them: the library says
 * which there are. */
static void take_choice(lua_State *L, const neap_option *option, reading *r) {
  /* A boolean is a word only where "true" is the option's first. */
  bool takes_boolean = strncmp(option->range, "true", 4) == 0;
  const char *text = text_at_top(L, option->name);
  if (lua_isboolean(L, -1) && takes_boolean) text = lua_toboolean(L, -1) ? "true" : "false";
  neap_error error = {0};
  if (text == NULL)
    neap_lua_fail(L, NEAP_ARGUMENT, "%s is one of %s, got a %s", option->name, option->range,
                  luaL_typename(L, -1));
  if (neap_options_set(&r->options, option->name, text, &error) != NEAP_OK)
    neap_lua_raise(L, &error);
}

/* A number becomes a text here, which no table keeps. */
static const char *take_text(lua_State *L) {
  const char *text = neap_intern(neap_lua_check_string(L, -1));
  if (text == NULL) neap_lua_fail(L, NEAP_MEMORY, "memory for a name was refused");
  return text;
}

/* ---- lists ---- */

/* The mem_param at the top of the stack, as lua/neap/memory/mem_param.lua has checked it; NULL for
 * nil. Its rooms stay on the stack. */
static const neap_mem_param *take_mem_param(lua_State *L) {
  if (lua_isnil(L, -1)) return NULL;
  int at = lua_gettop(L);
  if (!lua_istable(L, at))
    neap_lua_fail(L, NEAP_ARGUMENT, "mem_param expects a table, got a %s", luaL_typename(L, at));

  /* Raw fields: what is pushed for them stays, below the names. */
  neap_mem_param *param = neap_lua_room(L, sizeof *param);
  param->no_optimize_train =
    neap_lua_field(L, at, "optimize_train") == LUA_TBOOLEAN && !lua_toboolean(L, -1);
  param->optimize_test =
    neap_lua_field(L, at, "optimize_test") == LUA_TBOOLEAN && lua_toboolean(L, -1);
  param->debug_info = neap_lua_field(L, at, "debug_info") == LUA_TBOOLEAN && lua_toboolean(L, -1);
  neap_lua_field(L, at, "exclude_blob");
  param->exclude_blob = neap_lua_names(L, -1, "exclude_blob", false, &param->n_exclude_blob);
  return param;
}

void neap_lua_take_bank(lua_State *L, neap_bank *bank) {
  int at = lua_gettop(L);
  if (!lua_istable(L, at))
    neap_lua_fail(L, NEAP_ARGUMENT, "banks expects a list of neap.bank { .. }, got a %s in it",
                  luaL_typename(L, at));
  if (neap_lua_field(L, at, "name") != LUA_TSTRING)
    neap_lua_fail(L, NEAP_ARGUMENT,
                  "banks expects a list such as { neap.bank { \"fast\", bytes = \"2MiB\" } }, got "
                  "one without a name");
  bank->name = neap_lua_name(L, -1, "the name of a bank"); /* interned: the table may change */

  /* A field that nothing reads may be one that was mistyped. */
  for (lua_pushnil(L); lua_next(L, at) != 0; lua_pop(L, 1)) {
    const char *key = lua_type(L, -2) == LUA_TSTRING ? neap_lua_text(L, -2, "a bank") : "";
    if (strcmp(key, "name") != 0 && strcmp(key, "bytes") != 0 && strcmp(key, "kind") != 0)
      neap_lua_fail(L, NEAP_ARGUMENT,
                    "bank \"%s\": nothing reads its field \"%s\"; it takes name, bytes, kind",
                    bank->name, luaL_tolstring(L, -2, NULL));
  }

  /* A bank without bytes has no limit; one without a kind is ordinary. */
  if (neap_lua_field(L, at, "bytes") != LUA_TNIL)
    bank->bytes = (int64_t)neap_lua_bytes(L, -1, "bytes of a bank");
  if (neap_lua_field(L, at, "kind") != LUA_TNIL &&
      !neap_bank_kind_from_name(neap_lua_check_string(L, -1), &bank->kind))
    neap_lua_fail(L, NEAP_ARGUMENT, "bank \"%s\": kind is one of ordinary, huge, got \"%s\"",
                  bank->name, lua_tostring(L, -1));

  /* Fields go, the bank stays. */
  lua_settop(L, at);
}

/* The length of the list of banks at `at`; one bank alone is a list of it. */
static lua_Integer count_banks(lua_State *L, int at, bool *alone) {
  if (!lua_istable(L, at))
    neap_lua_fail(L, NEAP_ARGUMENT, "banks expects a list of neap.bank { .. }, got a %s",
                  luaL_typename(L, at));
  *alone = neap_lua_field(L, at, "name") == LUA_TSTRING;
  lua_pop(L, 1);
  if (*alone) return 1;

  /* As many keys as items: none is a name, and none lies beyond a gap. */
  lua_Integer n = neap_lua_length(L, at), n_key = 0;
  for (lua_pushnil(L); lua_next(L, at) != 0; lua_pop(L, 1)) n_key++;
  if (n_key != n)
    neap_lua_fail(L, NEAP_ARGUMENT,
                  "banks expects a list { neap.bank { \"fast\", .. }, .. }, got a table with other "
                  "keys than 1 to %lld",
                  (long long)n_key);
  if (n > NEAP_MAX_BANKS)
    neap_lua_fail(L, NEAP_ARGUMENT, "banks: at most %d are allowed, got %lld", NEAP_MAX_BANKS,
                  (long long)n);
  return n;
}

/* The list at the top, or nil; its room stays on the stack. */
static const neap_bank *take_banks(lua_State *L, int *n_bank) {
  int at = lua_gettop(L);
  bool alone;
  if (lua_isnil(L, at)) return NULL;
  lua_Integer n = count_banks(L, at, &alone);

  /* Each bank is pushed above the room, read and popped; its name is interned. */
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
  *n_bank = (int)n;
  return bank;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* Names the nearest option or input of the net. */
_Noreturn static void fail_unknown(lua_State *L, const neap_net *net, const char *key) {
  neap_error error = {0};
  const char *best = NULL;
  int least = neap_text_reach(key);
  const neap_option *option;

  /* The options that Lua takes, then the net's inputs: the nearest of all. A later one must be
   * nearer than the best so far. */
  for (int i = 0; (option = neap_option_at(i)) != NULL; i++) {
    if (!(option->faces & NEAP_FACE_LUA) || neap_text_distance(key, option->name) > least) continue;
    best = option->name;
    least = neap_text_distance(key, best) - 1;
  }
  for (int b = 0; b < neap_net_n_blobs(net); b++) {
    const neap_net_blob *blob = neap_net_blob_at(net, b);
    if (blob->role != NEAP_ROLE_INPUT || neap_text_distance(key, blob->name) > least) continue;
    best = blob->name;
    least = neap_text_distance(key, best) - 1;
  }
  neap_fail(&error, NEAP_ATTRIBUTE, "unknown memory option or input \"%s\"", key);
  if (best != NULL)
    neap_hint(&error, "did you mean \"%s\"?", best);
  else
    neap_hint(&error,
              "neap.help \"options\" lists the options; the net's inputs go by their names");
  neap_lua_raise(L, &error);
}

/* x = {64, 784}, or a tensor of that shape: input `key` with another shape than declared. The value
 * is at the top. */
static void take_input(lua_State *L, const char *key, reading *r) {
  const neap_net_blob *blob = neap_net_find_blob(r->net, key);
  if (blob == NULL || blob->role != NEAP_ROLE_INPUT) fail_unknown(L, r->net, key);
  for (int i = 0; i < r->options.n_inputs; i++)
    if (r->input[i].name == blob->name) return; /* said in `inputs`, which counts first */

  /* There is room for one of each key in both tables. */
  neap_input *input = &r->input[r->options.n_inputs++];
  *input = (neap_input){blob->name, blob->type};
  if (neap_lua_is_tensor(L, -1))
    input->type.shape = neap_lua_tensor_at(L, -1)->shape;
  else if (lua_istable(L, -1))
    neap_lua_shape(L, lua_gettop(L), &input->type.shape, key);
  else
    neap_lua_fail(L, NEAP_ARGUMENT, "input \"%s\" expects a shape or a tensor, got a %s", key,
                  luaL_typename(L, -1));
}

/* inputs = { total = {64, 784}, .. }: by names that options may have too. The table, or nil, is at
 * the top. */
static void take_inputs(lua_State *L, reading *r) {
  int at = lua_gettop(L);
  if (lua_isnil(L, at)) return;
  /* From below: the copy, key, value; take_input looks at the value, on top. */
  for (lua_pushnil(L); lua_next(L, at) != 0; lua_settop(L, at + 1)) {
    const neap_net_blob *blob = lua_type(L, at + 1) == LUA_TSTRING
                                  ? neap_net_find_blob(r->net, neap_lua_text(L, at + 1, "inputs"))
                                  : NULL;
    if (blob == NULL || blob->role != NEAP_ROLE_INPUT)
      neap_lua_fail(L, NEAP_NAME, "inputs: net \"%s\" has no input \"%s\"", neap_net_name(r->net),
                    luaL_tolstring(L, at + 1, NULL));
    take_input(L, blob->name, r);
  }
}

/* A copy takes the place of the table at the top; returns how many names it has. nil has none. */
static int copy_names(lua_State *L) {
  if (lua_isnil(L, -1)) return 0;
  if (!lua_istable(L, -1))
    neap_lua_fail(L, NEAP_ARGUMENT, "inputs expects shapes by name, { x = {64, 784} }, got a %s",
                  luaL_typename(L, -1));
  int n = neap_lua_copy(L, -1);
  lua_replace(L, -2);
  return n;
}

/* A shape where an option of that name takes none means the net's input of that name. */
static bool is_shape_of_input(lua_State *L, const neap_option *option, const neap_net *net) {
  if (option->type >= NEAP_OPTION_NAMES) return false;
  const neap_net_blob *blob = neap_net_find_blob(net, option->name);
  return blob != NULL && blob->role == NEAP_ROLE_INPUT &&
         (lua_istable(L, -1) || neap_lua_is_tensor(L, -1));
}

/* ---- the table ------------------------------------------------------------------------------- */

/* The value at the top of the stack. Lists wait: they need room that outlives the walk over the
 * table. */
static void take_option(lua_State *L, const neap_option *option, reading *r) {
  switch (option->type) {
    case NEAP_OPTION_BYTES: FIELD(int64_t, r, option) = take_bytes(L, option, r); break;
    case NEAP_OPTION_COUNT: FIELD(int64_t, r, option) = take_count(L, option); break;
    case NEAP_OPTION_SWITCH: FIELD(neap_switch, r, option) = take_switch(L, option); break;
    case NEAP_OPTION_CHOICE: take_choice(L, option, r); break;
    case NEAP_OPTION_TEXT: FIELD(const char *, r, option) = take_text(L); break;
    case NEAP_OPTION_NAMES:
    case NEAP_OPTION_BANKS:
    case NEAP_OPTION_MEM_PARAM:
    case NEAP_OPTION_INPUTS: break;
  }
}

/* Lists, whose rooms stay on the stack. The table is at `index`. */
static void take_lists(lua_State *L, int index, reading *r) {
  const neap_option *option;
  for (int i = 0; (option = neap_option_at(i)) != NULL; i++) {
    if (option->type < NEAP_OPTION_NAMES || option->type == NEAP_OPTION_INPUTS) continue;
    /* The field stays on the stack, and so do the rooms that are made of it. */
    neap_lua_field(L, index, option->name);
    if (option->type == NEAP_OPTION_NAMES)
      r->options.keep = neap_lua_names(L, -1, option->name, false, &r->options.n_keep);
    if (option->type == NEAP_OPTION_BANKS) r->options.banks = take_banks(L, &r->options.n_banks);
    if (option->type == NEAP_OPTION_MEM_PARAM) r->options.mem_param = take_mem_param(L);
  }
}

/* _beside = { bytes, arena }: of the binding's own Lua, as core.micro_beside gives them. The value
 * is at the top. */
static void take_beside(lua_State *L, reading *r) {
  neap_lua_check_type(L, -1, LUA_TTABLE);
  /* From below: the table, bytes, arena. */
  lua_rawgeti(L, -1, 1);
  lua_rawgeti(L, -2, 2);
  r->options.beside = (neap_beside){.bytes = neap_lua_bytes(L, -2, "_beside"),
                                    .arena_bytes = neap_lua_bytes(L, -1, "_beside")};
}

static void take_table(lua_State *L, int index, reading *r) {
  for (lua_pushnil(L); lua_next(L, index) != 0;) {
    /* From below: key, value. What reading the value pushes goes before the next step, so that
     * lua_next finds the key on top. */
    int key_at = lua_gettop(L) - 1;
    if (lua_type(L, key_at) != LUA_TSTRING)
      neap_lua_fail(L, NEAP_ARGUMENT, "memory options go by name, e.g. { budget = \"8MiB\" }");
    const char *key = neap_lua_text(L, key_at, "a memory option");
    /* An option by its name, else an input of the net. */
    const neap_option *option = neap_option_find(key);
    if (option != NULL && !is_shape_of_input(L, option, r->net)) {
      /* An option of other tables is refused in words that say where it belongs. */
      neap_error error = {0};
      if (!(option->faces & NEAP_FACE_LUA) &&
          neap_option_refuse(option, "a table of memory options", &error) != NEAP_OK)
        neap_lua_raise(L, &error);
      take_option(L, option, r);
    } else if (strcmp(key, "_beside") == 0) {
      take_beside(L, r);
    } else if (strcmp(key, "_run") == 0) {
      r->options.run = neap_lua_run_at(L, -1); /* of the binding's own Lua */
    } else {
      take_input(L, key, r);
    }
    lua_settop(L, key_at);
  }
}

/* Bytes of the arena that the net's own plan takes; in a range packed weights lie there, too. */
static int64_t own_arena(lua_State *L, const neap_net *net, const neap_options *o, bool in_range) {
  if (in_range) {
    neap_range *range = NULL;
    NEAP_LUA_TRY(L, neap_range_open(net, 0, o, &range, &error));
    int64_t bytes = neap_range_figures(range).arena_bytes;
    neap_range_free(range);
    return bytes;
  }

  /* The handle owns the plan until its figure is read, and it goes at once, since it may be
   * large. */
  neap_memory_plan **plan = neap_lua_new_plan(L);
  NEAP_LUA_TRY(L, neap_memory_plan_new(net, o, NULL, plan, &error));
  neap_lua_warn(L, neap_memory_plan_warning(*plan));
  int64_t bytes = neap_memory_plan_figures(*plan).arena_bytes;
  neap_memory_plan_free(*plan);
  *plan = NULL;
  return bytes;
}

/* "60%": of the arena planned without a budget. */
static int64_t percent_of_plan(lua_State *L, const char *text, const neap_net *net,
                               const neap_options *o, bool in_range) {
  /* Lua reads the number, with a decimal point in every locale. */
  char number[32];
  double percent = 0;
  size_t n = strlen(text);
  if (n > 1 && n <= sizeof number && text[n - 1] == '%') {
    memcpy(number, text, n - 1);
    number[n - 1] = '\0';
    if (lua_stringtonumber(L, number) != 0) {
      percent = (double)lua_tonumber(L, -1);
      lua_pop(L, 1);
    }
  }
  if (!(percent > 0 && percent <= 100))
    neap_lua_fail(L, NEAP_ARGUMENT,
                  "budget expects bytes, \"8MiB\", \"8MB\" or \"60%%\", got \"%s\"", text);
  /* Planned without a budget first. */
  neap_options without = *o;
  without.budget = 0;
  return (int64_t)((double)own_arena(L, net, &without, in_range) * percent / 100);
}

neap_options neap_lua_options(lua_State *L, int index, int net_index) {
  return neap_lua_options_for(L, index, net_index, false);
}

neap_options neap_lua_options_for(lua_State *L, int index, int net_index, bool in_range) {
  static const char who[] = "a table of memory options";
  index = lua_absindex(L, index);
  reading r = {.net = neap_lua_net_at(L, net_index)->net};

  /* The environment speaks first, so that the table can say otherwise. */
  const char *profile = getenv("NEAP_PROFILE");
  if (profile != NULL && profile[0] != '\0' && strcmp(profile, "0") != 0)
    r.options.profile = NEAP_ON;
  if (!lua_isnoneornil(L, index)) {
    neap_lua_check_type(L, index, LUA_TTABLE);
    int n = neap_lua_copy(L, index); /* it keeps the texts that the options borrow */
    index = lua_gettop(L);
    /* Inputs come in a table of their own, and beside the options: room for all keys of both. */
    neap_lua_field(L, index, "inputs");
    n += copy_names(L);
    int inputs_at = lua_gettop(L);
    r.input = neap_lua_room(L, (size_t)n * sizeof *r.input);
    r.options.inputs = r.input;
    /* Then what the tables hold: inputs, single values, lists. */
    lua_pushvalue(L, inputs_at);
    take_inputs(L, &r);
    take_table(L, index, &r);
    take_lists(L, index, &r);
  }

  /* Where there is a range of batches, lua/neap/memory/range.lua has taken the largest one out. */
  if (r.options.max_batch != 0)
    neap_lua_fail(L, NEAP_ARGUMENT, "%s",
                  "max_batch has no meaning here: nothing shares its bytes");
  if (r.options.store != NEAP_OFF) r.options.db = neap_lua_store(L);
  NEAP_LUA_TRY(L, neap_options_check(&r.options, NEAP_FACE_LUA, who, &error));

  /* The line of the script that asks, for the database. Its text stays on the stack. */
  const char *script = neap_lua_line(L);
  r.options.script = script[0] != '\0' ? script : NULL;

  /* Last, since it plans with all the other options. */
  if (r.percent != NULL)
    r.options.budget = percent_of_plan(L, r.percent, r.net, &r.options, in_range);
  return r.options;
}

/* ---- the records ----------------------------------------------------------------------------- */

static const char *const face_name[] = {"c",       "micro",  "lua", "workspace",
                                        "trainer", "layers", "fit", "command"};

/* memory_options() -> {name =, type =, default =, range =, doc =, key =, faces = {c = true, ..}} of
 * each option, in the table's order; the same records by name. For lua/neap/memory/options.lua,
 * which reads tables, makes flags and shows help by them. */
static int memory_options(lua_State *L) {
  static const char *const type[] = {"bytes", "count", "switch",    "choice", "text",
                                     "names", "banks", "mem_param", "inputs"};
  static const char *const key[] = {"none", "derived", "own"};
  const neap_option *option;

  /* From below: all options, one option, its faces. */
  lua_newtable(L);
  for (int i = 0; (option = neap_option_at(i)) != NULL; i++) {
    lua_createtable(L, 0, 7);
    neap_lua_set_text(L, "name", option->name);
    neap_lua_set_text(L, "type", type[option->type]);
    neap_lua_set_text(L, "default", option->fallback);
    neap_lua_set_text(L, "range", option->range);
    neap_lua_set_text(L, "doc", option->doc);
    neap_lua_set_text(L, "key", key[option->key]);
    lua_createtable(L, 0, NEAP_COUNT(face_name));
    for (int f = 0; f < NEAP_COUNT(face_name); f++)
      if (option->faces & (1u << f)) neap_lua_set_bool(L, face_name[f], true);
    lua_setfield(L, -2, "faces");
    /* The record twice: by its name, and at its place. */
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, option->name);
    lua_seti(L, -2, i + 1);
  }
  return 1;
}

/* Index of a face in that list, by its name. */
static unsigned face_at(lua_State *L, int index) {
  const char *name = neap_lua_check_string(L, index);
  for (int f = 0; f < NEAP_COUNT(face_name); f++)
    if (strcmp(face_name[f], name) == 0) return 1u << f;
  neap_lua_fail(L, NEAP_ARGUMENT, "there is no face \"%s\"", name);
}

/* check_memory_options(who, options, face): raises for what no net would take; shapes of inputs are
 * left to the net. */
static int check_memory_options(lua_State *L) {
  const char *who = neap_lua_check_string(L, 1);
  neap_lua_check_type(L, 2, LUA_TTABLE);
  unsigned face = face_at(L, 3);

  /* From below: who, options, face; 4: the copy, 5: the key, 6: the value. */
  lua_settop(L, 3);
  neap_lua_copy(L, 2);
  reading r = {0};
  for (lua_pushnil(L); lua_next(L, 4) != 0; lua_settop(L, 5)) {
    /* Other names may be inputs of a net, which none is at hand to ask. */
    const neap_option *option =
      lua_type(L, 5) == LUA_TSTRING ? neap_option_find(neap_lua_text(L, 5, who)) : NULL;
    if (option != NULL) take_option(L, option, &r);
  }
  take_lists(L, 4, &r);
  NEAP_LUA_TRY(L, neap_options_check(&r.options, face, who, &error));
  return 0;
}

void neap_lua_open_options(lua_State *L) {
  static const neap_lua_reg functions[] = {{"memory_options", memory_options, NEAP_LUA_ALONE | 0},
                                           {"check_memory_options", check_memory_options, 3},
                                           {NULL, NULL, 0}};
  neap_lua_functions(L, functions, false);
}
