/* check.c: errors from the engine to Lua, and arguments from Lua to the engine. The only file that
 * raises what the engine reports.
 *
 * An error object is a table with the fields of the record (code, message, op, blob, scope, line,
 * expected, got, hint; for code "budget" also limit, bank, limit_bytes, least_bytes, left_bytes,
 * held_bytes, fixed and blobs) and prints as people read it; a wrong argument is a plain string
 * with the line in front, as Lua's own functions raise them.
 *
 * INVARIANT: the line is that of the user's code: the innermost level of the stack that is neither
 * C nor one of Neap's own Lua files.
 * INVARIANT: whoever calls a function that may raise holds nothing that only C would free, but for
 * a text that is being pushed, which Lua may run out of memory for.
 */
#include "lua/binding.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ERROR_CLASS "neap.error"

enum { MOST_ITEMS = 1 << 30 }; /* of a table that is an argument */

/* ---- where ----------------------------------------------------------------------------------- */

/* Whether a level of the stack is C, or one of the Lua files that come with Neap. */
static bool is_own(const lua_Debug *ar) {
  return strncmp(ar->source, NEAP_LUA_CHUNK, sizeof NEAP_LUA_CHUNK - 1) == 0 ||
         strcmp(ar->what, "C") == 0;
}

const char *neap_lua_line(lua_State *L) {
  lua_Debug ar;
  /* Level 0 is the C function that runs. Neither the walk nor these letters of lua_getinfo push
   * anything, so that nothing is to be popped. */
  for (int level = 1; lua_getstack(L, level, &ar) != 0; level++) {
    lua_getinfo(L, "Sl", &ar);
    /* A chunk that was stripped of its lines can't be named. */
    if (is_own(&ar) || ar.currentline <= 0) continue;
    /* The file's name alone: paths make messages long. */
    const char *slash = strrchr(ar.short_src, '/');
    return lua_pushfstring(L, "%s:%d", slash != NULL ? slash + 1 : ar.short_src, ar.currentline);
  }
  return lua_pushliteral(L, "");
}

/* Pushes "script.lua:3: " with the path as Lua's own messages have it, or "". */
static void push_where(lua_State *L) {
  lua_Debug ar;
  for (int level = 1; lua_getstack(L, level, &ar) != 0; level++) {
    lua_getinfo(L, "Sl", &ar);
    if (is_own(&ar) || ar.currentline <= 0) continue;
    lua_pushfstring(L, "%s:%d: ", ar.short_src, ar.currentline);
    return;
  }
  lua_pushliteral(L, "");
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* "\n  alive where most is: blocks.1 3.0 MiB (net.lua:12), ..", the largest modules of a refusal,
 * on
 * the stack; "" where there are none. */
static void push_modules(lua_State *L, int index) {
  enum { MOST = 4 };
  char bytes[24];
  const int list = lua_gettop(L) + 1;
  bool goes_on = neap_lua_field(L, index, "modules") == LUA_TTABLE;
  lua_pushliteral(L, "");
  for (int i = 0; goes_on && i < MOST; i++) {
    goes_on = lua_rawgeti(L, list, i + 1) == LUA_TTABLE;
    if (goes_on) {
      const int at = lua_gettop(L);
      bool has_name = neap_lua_field(L, at, "name") == LUA_TSTRING;
      bool has_line = neap_lua_field(L, at, "line") == LUA_TSTRING;
      neap_lua_field(L, at, "bytes");
      lua_pushvalue(L, list + 1);
      lua_pushfstring(L, "%s%s %s%s%s%s", i == 0 ? "\n  alive where most is: " : ", ",
                      has_name ? lua_tostring(L, at + 1) : "?",
                      neap_bytes_text((double)lua_tonumber(L, at + 3), bytes), has_line ? " (" : "",
                      has_line ? lua_tostring(L, at + 2) : "", has_line ? ")" : "");
      lua_concat(L, 2);
      lua_replace(L, list + 1);
    }
    lua_settop(L, list + 1);
  }
  lua_remove(L, list);
}

/* tostring(e): the line, the message, on a second line the hint, and of a refusal who is alive. */
static int error_tostring(lua_State *L) {
  luaL_Buffer out;
  luaL_buffinit(L, &out);
  /* The buffer may keep a piece on the stack; luaL_addvalue takes the value above it, and what is
   * not added must be popped. Fields may hold anything: a script can change an error object. */
  if (lua_getfield(L, 1, "line") == LUA_TSTRING) {
    luaL_addvalue(&out);
    luaL_addstring(&out, ": ");
  } else {
    lua_pop(L, 1);
  }
  /* A message that a script has taken out prints as "?". */
  lua_getfield(L, 1, "message");
  if (!lua_isstring(L, -1)) {
    lua_pop(L, 1);
    lua_pushliteral(L, "?");
  }
  luaL_addvalue(&out);
  /* The hint has a line of its own. */
  if (lua_getfield(L, 1, "hint") == LUA_TSTRING) {
    luaL_addstring(&out, "\n  ");
    luaL_addvalue(&out);
  } else {
    lua_pop(L, 1);
  }
  push_modules(L, 1);
  luaL_addvalue(&out);
  luaL_pushresult(&out);
  return 1;
}

/* For the table at the top; the class is made with the first error. */
static void set_error_class(lua_State *L) {
  /* The class lies in the registry under its name; where it is there already, it is pushed as it
   * is. */
  if (luaL_newmetatable(L, ERROR_CLASS)) {
    lua_pushcfunction(L, error_tostring);
    lua_setfield(L, -2, "__tostring");
  }
  lua_setmetatable(L, -2);
}

/* Into the error object on top: the limit, what would do, and what is in the way. */
static void push_refusal(lua_State *L, const neap_error *error) {
  /* The limit and what is left of it. A least of 0 says that no number of bytes would do. */
  neap_lua_set_text(L, "limit", error->limit);
  neap_lua_set_text(L, "bank", error->bank);
  neap_lua_set_integer(L, "limit_bytes", error->limit_bytes);
  neap_lua_set_integer(L, "left_bytes", error->left_bytes);
  if (error->least_bytes > 0) neap_lua_set_integer(L, "least_bytes", error->least_bytes);
  if (error->held_bytes > 0) neap_lua_set_integer(L, "held_bytes", error->held_bytes);
  /* What of the limit is fixed: bytes by what they are for. The new table is on top of the error
   * object until lua_setfield takes it. */
  lua_createtable(L, 0, error->n_fixed);
  for (int i = 0; i < error->n_fixed; i++)
    neap_lua_set_integer(L, error->fixed[i].name, error->fixed[i].bytes);
  lua_setfield(L, -2, "fixed");
}

/* What is alive where most is, as a list, in the record's order. */
static void push_alive(lua_State *L, const char *what, int n, const neap_live_bytes *alive) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_createtable(L, 0, 4);
    neap_lua_set_text(L, "name", alive[i].name);
    neap_lua_set_text(L, "module", alive[i].module);
    neap_lua_set_text(L, "line", alive[i].line);
    neap_lua_set_integer(L, "bytes", alive[i].bytes);
    lua_seti(L, -2, i + 1);
  }
  lua_setfield(L, -2, what);
}

/* Fields that have nothing to say are absent. The line is that of the record, which knows what made
 * an op, else where Lua stands. */
void neap_lua_push_error(lua_State *L, const neap_error *error) {
  /* The text stays below the object until the object has it: it belongs to Lua. */
  const char *line = neap_lua_line(L);
  /* What failed, and what it was about. */
  lua_createtable(L, 0, 8);
  neap_lua_set_text(L, "code", neap_status_text(error->code));
  neap_lua_set_text(L, "message",
                    error->message[0] != '\0' ? error->message : neap_status_text(error->code));
  neap_lua_set_text(L, "op", error->op);
  neap_lua_set_text(L, "blob", error->blob);
  neap_lua_set_text(L, "scope", error->scope);
  /* Where, and what would have been right. */
  neap_lua_set_text(L, "line", error->line[0] != '\0' ? error->line : line);
  neap_lua_set_text(L, "expected", error->expected);
  neap_lua_set_text(L, "got", error->got);
  neap_lua_set_text(L, "hint", error->hint);
  if (error->code == NEAP_BUDGET) push_refusal(L, error);
  if (error->code == NEAP_BUDGET || error->code == NEAP_MEMORY) {
    if (error->request_bytes > 0) neap_lua_set_integer(L, "request_bytes", error->request_bytes);
    if (error->available_bytes > 0)
      neap_lua_set_integer(L, "available_bytes", error->available_bytes);
    push_alive(L, "blobs", error->n_blob, error->blobs);
    push_alive(L, "modules", error->n_module, error->modules);
  }
  set_error_class(L);
  lua_remove(L, -2); /* line */
}

_Noreturn void neap_lua_raise(lua_State *L, const neap_error *error) {
  neap_lua_leave(L);
  /* The function may have filled its part of the stack. */
  luaL_checkstack(L, 8, "error");
  if (error->code == NEAP_ARGUMENT) {
    /* As Lua words its own: place, message and hint are pushed, and joined to one text. */
    push_where(L);
    lua_pushstring(L, error->message);
    if (error->hint[0] != '\0') lua_pushfstring(L, "; %s", error->hint);
    lua_concat(L, error->hint[0] != '\0' ? 3 : 2);
  } else {
    neap_lua_push_error(L, error);
  }
  lua_error(L);
  abort(); /* lua_error does not return */
}

/* A message longer than the record is cut. */
_Noreturn void neap_lua_fail(lua_State *L, neap_status code, const char *format, ...) {
  neap_error error = {.code = code};
  va_list args;
  va_start(args, format);
  vsnprintf(error.message, sizeof error.message, format, args);
  va_end(args);
  neap_lua_raise(L, &error);
}

/* What a file or a database does wrong is no slip of the program: it is returned, as io.open
 * does. */
int neap_lua_failure(lua_State *L, const neap_error *error) {
  if (error->code != NEAP_IO && error->code != NEAP_DB && error->code != NEAP_DATA)
    neap_lua_raise(L, error);
  /* The three results that io.open would give. */
  lua_pushnil(L);
  lua_pushstring(L, error->message);
  lua_pushstring(L, neap_status_text(error->code));
  return 3;
}

/* ---- single arguments ------------------------------------------------------------------------ */

static const char names_key; /* its address: in the registry, the names of functions */

/* The table of the surface's names by function, pushed. Weak in its keys: it keeps no function
 * alive. */
static void push_names(lua_State *L) {
  /* Made once: afterwards it is found, and on top. */
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &names_key) != LUA_TNIL) return;
  lua_pop(L, 1);
  /* The table, and above it the metatable that makes its keys weak. */
  lua_newtable(L);
  lua_newtable(L);
  lua_pushliteral(L, "k");
  lua_setfield(L, -2, "__mode");
  lua_setmetatable(L, -2);
  /* The registry takes a copy, the caller gets the other one. */
  lua_pushvalue(L, -1);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &names_key);
}

/* core.name_function(f, name): "neap.seed", "net:input": what messages call it. */
static int name_function(lua_State *L) {
  lua_settop(L, 2);
  /* From below: names, function, name. The raw set takes the upper two. */
  push_names(L);
  lua_insert(L, 1);
  lua_rawset(L, 1);
  return 0;
}

/* core.function_name(f) -> what name_function has said, or nil */
static int function_name(lua_State *L) {
  lua_settop(L, 1);
  push_names(L);
  lua_insert(L, 1);
  lua_rawget(L, 1);
  return 1;
}

/* Pushes and returns the name of the function that the user has called: the outermost one with a
 * name below the user's line. Sets *level to its level; NULL, with nothing pushed, when none has a
 * name. */
static const char *push_called(lua_State *L, int *level) {
  lua_Debug ar;
  /* The table, and above it the best name so far: nil at first. */
  push_names(L);
  const int names = lua_gettop(L);
  const char *name = NULL;
  lua_pushnil(L);
  for (int at = 0; lua_getstack(L, at, &ar) != 0; at++) {
    /* "f" pushes the function of the level, which the look-up replaces by its name. */
    lua_getinfo(L, "Slf", &ar);
    const bool own = is_own(&ar);
    if (own && lua_rawget(L, names) == LUA_TSTRING) {
      /* A level further out is nearer to the user: its name takes the place of the one before. */
      name = lua_tostring(L, -1);
      lua_replace(L, names + 1);
      *level = at;
    } else {
      lua_pop(L, 1);
    }
    /* The user's own line: what lies beyond it has called the user. */
    if (!own && ar.currentline > 0) break;
  }
  /* The name alone is left, or nothing. */
  lua_remove(L, names);
  if (name == NULL) lua_pop(L, 1);
  return name;
}

/* Whether C reads the whole text at `index`: its texts end at the first zero byte. */
static bool is_whole(lua_State *L, int index) {
  size_t n;
  const char *text = lua_tolstring(L, index, &n);
  return strlen(text) == n;
}

const char *neap_lua_text(lua_State *L, int index, const char *who) {
  const char *text = lua_tostring(L, index);
  if (!is_whole(L, index))
    neap_lua_fail(L, NEAP_ARGUMENT,
                  "%s expects a text without zero bytes, got \"%s\" and more "
                  "behind it",
                  who, text);
  return text;
}

/* What stands at `arg`, pushed as text: a number as it is, else its type or class. */
static const char *push_got(lua_State *L, int arg) {
  if (lua_type(L, arg) == LUA_TNUMBER) return luaL_tolstring(L, arg, NULL);
  if (lua_type(L, arg) == LUA_TSTRING)
    return lua_pushfstring(L, is_whole(L, arg) ? "the text \"%s\"" : "\"%s\" and more behind it",
                           lua_tostring(L, arg));
  /* A class of Neap's, or of another library, says its name in the metatable. */
  if (luaL_getmetafield(L, arg, "__name") == LUA_TSTRING)
    return lua_pushfstring(L, "a %s", lua_tostring(L, -1));
  return lua_isnoneornil(L, arg) ? lua_pushliteral(L, "nothing")
                                 : lua_pushfstring(L, "a %s", luaL_typename(L, arg));
}

/* The number of the argument is said where it is the user's own: where C has been called
 * directly. */
static _Noreturn void fail_argument(lua_State *L, int arg, const char *expected) {
  luaL_checkstack(L, 8, "error");
  /* The words are pushed above the argument, which a negative index would lose. */
  arg = lua_absindex(L, arg);
  const char *got = push_got(L, arg);
  int level = -1;
  const char *name = push_called(L, &level);
  /* Level 0 is the C function that raises: if it has the name, the user has called it, and its
   * arguments are the user's. The object before a ":" isn't counted. */
  if (name == NULL) neap_lua_fail(L, NEAP_ARGUMENT, "%s is expected, got %s", expected, got);
  if (level != 0) neap_lua_fail(L, NEAP_ARGUMENT, "%s expects %s, got %s", name, expected, got);
  neap_lua_fail(L, NEAP_ARGUMENT, "%s: argument %d expects %s, got %s", name,
                arg - (strchr(name, ':') != NULL), expected, got);
}

lua_Integer neap_lua_check_integer(lua_State *L, int arg) {
  int is_integer;
  lua_Integer x = lua_tointegerx(L, arg, &is_integer);
  if (!is_integer) fail_argument(L, arg, "an integer");
  return x;
}

int neap_lua_to_int(lua_State *L, lua_Integer i, const char *what) {
  if (i < INT_MIN || i > INT_MAX)
    neap_lua_fail(L, NEAP_ARGUMENT, "%s expects an integer from %d to %d, got %lld", what, INT_MIN,
                  INT_MAX, (long long)i);
  return (int)i;
}

lua_Integer neap_lua_opt_integer(lua_State *L, int arg, lua_Integer missing) {
  return lua_isnoneornil(L, arg) ? missing : neap_lua_check_integer(L, arg);
}

lua_Number neap_lua_check_number(lua_State *L, int arg) {
  int is_number;
  lua_Number x = lua_tonumberx(L, arg, &is_number);
  if (!is_number) fail_argument(L, arg, "a number");
  return x;
}

lua_Number neap_lua_opt_number(lua_State *L, int arg, lua_Number missing) {
  return lua_isnoneornil(L, arg) ? missing : neap_lua_check_number(L, arg);
}

const char *neap_lua_check_lstring(lua_State *L, int arg, size_t *n) {
  const char *text = lua_tolstring(L, arg, n);
  if (text == NULL) fail_argument(L, arg, "a text");
  return text;
}

const char *neap_lua_check_string(lua_State *L, int arg) {
  const char *text = neap_lua_check_lstring(L, arg, NULL);
  if (!is_whole(L, arg)) fail_argument(L, arg, "a text without zero bytes");
  return text;
}

const char *neap_lua_opt_string(lua_State *L, int arg, const char *missing) {
  return lua_isnoneornil(L, arg) ? missing : neap_lua_check_string(L, arg);
}

int neap_lua_check_option(lua_State *L, int arg, const char *missing, const char *const *list) {
  /* Pieces of the buffer below may lie above the argument. */
  arg = lua_absindex(L, arg);
  const char *text =
    missing != NULL && lua_isnoneornil(L, arg) ? missing : neap_lua_check_string(L, arg);
  for (int i = 0; list[i] != NULL; i++)
    if (strcmp(list[i], text) == 0) return i;
  /* None of them: the message says which there are. */
  luaL_Buffer all;
  luaL_buffinit(L, &all);
  for (int i = 0; list[i] != NULL; i++) {
    luaL_addstring(&all, i == 0 ? "one of " : ", ");
    luaL_addstring(&all, list[i]);
  }
  luaL_pushresult(&all);
  fail_argument(L, arg, lua_tostring(L, -1));
}

void neap_lua_check_type(lua_State *L, int arg, int type) {
  if (lua_type(L, arg) == type) return;
  const char *expected = lua_typename(L, type);
  if (type == LUA_TTABLE) expected = "a table";
  if (type == LUA_TFUNCTION) expected = "a function";
  fail_argument(L, arg, expected);
}

/* ---- tables and rooms ------------------------------------------------------------------------ */

/* Lua's own memory, so that a raise between here and its use loses nothing. */
void *neap_lua_room(lua_State *L, size_t bytes) {
  luaL_checkstack(L, 4, "too many arguments");
  /* A room of no bytes has an address too. */
  void *room = lua_newuserdatauv(L, bytes > 0 ? bytes : 1, 0);
  memset(room, 0, bytes);
  return room;
}

/* Raw both ways. What a finaliser adds or takes away meanwhile is in the copy or not; no matter
 * which. */
int neap_lua_copy(lua_State *L, int index) {
  int n = 0;
  /* What is pushed here would shift a negative index. */
  index = lua_absindex(L, index);
  luaL_checkstack(L, 6, "too many arguments");
  lua_newtable(L);
  for (lua_pushnil(L); lua_next(L, index) != 0; n++) {
    /* Keys are counted by int. */
    if (n == MOST_ITEMS)
      neap_lua_fail(L, NEAP_ARGUMENT, "a table of more than %d items", MOST_ITEMS);
    /* From below: copy, key, value. The key is doubled: the set takes one, lua_next the other. */
    lua_pushvalue(L, -2);
    lua_insert(L, -2);
    lua_rawset(L, -4);
  }
  return n;
}

int neap_lua_field(lua_State *L, int index, const char *key) {
  /* The key is pushed above the table. That may raise for want of memory, and nothing else here
   * can. */
  index = lua_absindex(L, index);
  luaL_checkstack(L, 2, "too many fields");
  lua_pushstring(L, key);
  return lua_rawget(L, index);
}

int neap_lua_length(lua_State *L, int index) {
  lua_Unsigned n = lua_rawlen(L, index);
  if (n > MOST_ITEMS) neap_lua_fail(L, NEAP_ARGUMENT, "a list of more than %d items", MOST_ITEMS);
  return (int)n;
}

/* ---- errors of Neap's own Lua files ---------------------------------------------------------- */

/* core.fail(message): raises it at the user's line, however many of Neap's own functions lie
 * between. */
static int fail_text(lua_State *L) {
  neap_lua_check_lstring(L, 1, NULL);
  /* The user's place and the message become one text. The message is pushed a second time, since
   * what lies below must not be joined. */
  neap_lua_leave(L);
  push_where(L);
  lua_pushvalue(L, 1);
  lua_concat(L, 2);
  return lua_error(L);
}

/* core.error{code =, message =, ..} -> error object; the line is the user's when it names none. */
static int make_error(lua_State *L) {
  neap_lua_check_type(L, 1, LUA_TTABLE);
  /* What was looked at goes, the table stays. */
  lua_settop(L, 1);
  /* Raw: the table's metatable is about to be another. From below: table, key, nil, the line; the
   * set takes key and line, once nil is gone. */
  lua_pushliteral(L, "line");
  if (neap_lua_field(L, 1, "line") == LUA_TNIL && neap_lua_line(L)[0] != '\0') {
    lua_remove(L, -2);
    lua_rawset(L, 1);
  }
  lua_settop(L, 1);
  set_error_class(L);
  return 1;
}

/* Whether two words have the same letters, each as often. */
static bool is_shuffled(const char *a, const char *b) {
  int count[256] = {0};
  for (; *a != '\0'; a++) count[(unsigned char)*a]++;
  for (; *b != '\0'; b++) count[(unsigned char)*b]--;
  for (int i = 0; i < 256; i++)
    if (count[i] != 0) return false;
  return true;
}

/* core.nearest(word, list) -> the text of the list nearest to word, or nil when none is near. */
static int nearest(lua_State *L) {
  const char *word = neap_lua_check_lstring(L, 1, NULL);
  neap_lua_check_type(L, 2, LUA_TTABLE);
  /* The more letters a word has, the more of them may be slips. */
  int least = neap_text_reach(word) + 1;
  int best = 0, n = neap_lua_length(L, 2);
  size_t most_alike = 0;
  for (int i = 1; i <= n; i++) {
    lua_rawgeti(L, 2, i);
    /* An item that is no text is never near. */
    const char *item = lua_type(L, -1) == LUA_TSTRING ? lua_tostring(L, -1) : NULL;
    int distance = item != NULL ? neap_text_distance(word, item) : least + 1;
    /* Of those that are equally near it is the one that begins as the word does; before all one of
     * the same letters, in another order. */
    size_t alike = 0;
    while (item != NULL && item[alike] != '\0' && item[alike] == word[alike]) alike++;
    if (item != NULL && distance > 0 && is_shuffled(word, item)) alike += strlen(word);
    lua_pop(L, 1);
    if (distance > least || (distance == least && (best == 0 || alike <= most_alike))) continue;
    least = distance;
    most_alike = alike;
    best = i;
  }
  if (best == 0) return 0;
  lua_rawgeti(L, 2, best);
  return 1;
}

void neap_lua_open_check(lua_State *L) {
  static const neap_lua_reg functions[] = {{"fail", fail_text, 1},
                                           {"error", make_error, 1},
                                           {"nearest", nearest, 2},
                                           {"name_function", name_function, 2},
                                           {"function_name", function_name, 1},
                                           {NULL, NULL, 0}};
  neap_lua_functions(L, functions, false);
}

/* ---- arguments ------------------------------------------------------------------------------- */

void neap_lua_only_fields(lua_State *L, int index, const char *who, const char *const *known) {
  if (lua_isnoneornil(L, index)) return;
  neap_lua_check_type(L, index, LUA_TTABLE);
  for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
    /* From below: key, value, the key as text. A key that is no text may run its __tostring here;
     * no such key is known, so that the walk ends with it. */
    const char *key = luaL_tolstring(L, -2, NULL), *near = NULL;
    bool is_text = lua_type(L, -3) == LUA_TSTRING;
    if (is_text) neap_lua_text(L, -3, who);
    /* The field itself, or the name nearest to it: as near as in `nearest`. */
    int least = neap_text_reach(key) + 1;
    const char *const *name = known;
    while (*name != NULL && !(is_text && strcmp(*name, key) == 0)) {
      int distance = neap_text_distance(key, *name);
      if (distance < least) {
        least = distance;
        near = *name;
      }
      name++;
    }
    if (*name == NULL && near != NULL)
      neap_lua_fail(L, NEAP_ARGUMENT, "%s: unknown field \"%s\"; did you mean \"%s\"?", who, key,
                    near);
    if (*name == NULL)
      neap_lua_fail(L, NEAP_ARGUMENT, "%s: unknown field \"%s\"; it takes \"%s\"", who, key,
                    known[0]);
    lua_pop(L, 1); /* the key as text */
  }
}

bool neap_lua_flag(lua_State *L, int index, const char *who, const char *field, bool missing) {
  if (!lua_istable(L, index)) return missing;
  /* The field is pushed; a boolean is copied out of it before it is popped. */
  int type = neap_lua_field(L, index, field);
  if (type != LUA_TNIL && type != LUA_TBOOLEAN)
    neap_lua_fail(L, NEAP_ARGUMENT, "%s: %s expects true or false, got a %s", who, field,
                  luaL_typename(L, -1));
  bool flag = type == LUA_TNIL ? missing : lua_toboolean(L, -1);
  lua_pop(L, 1);
  return flag;
}

int64_t neap_lua_position(lua_State *L, lua_Integer i, int64_t n, const char *what) {
  if (i == 0)
    neap_lua_fail(L, NEAP_ARGUMENT, "%s 0: positions count from 1, or from -1 at the end", what);
  /* -1 is the last one. */
  int64_t at = i > 0 ? i - 1 : n + i;
  if (at < 0 || at >= n)
    neap_lua_fail(L, NEAP_ARGUMENT, "%s %lld is out of range, there are %lld", what, (long long)i,
                  (long long)n);
  return at;
}

/* An integer, or a float with an integer's value; a text that looks like one is refused. */
static lua_Integer integer_at(lua_State *L, int index, const char *what) {
  /* lua_tointegerx alone would take the text "3" too. */
  int is_integer = 0;
  lua_Integer i = lua_type(L, index) == LUA_TNUMBER ? lua_tointegerx(L, index, &is_integer) : 0;
  if (!is_integer) {
    const char *got = luaL_tolstring(L, index, NULL);
    neap_lua_fail(L, NEAP_ARGUMENT, "%s expects an integer, got %s", what,
                  lua_isnoneornil(L, index) ? "nothing" : got);
  }
  return i;
}

int neap_lua_axis(lua_State *L, int arg, int n_dim) {
  return (int)neap_lua_position(L, integer_at(L, arg, "a dimension"), n_dim, "dimension");
}

/* The list at the top of the stack, raw: nothing but integers, at most NEAP_MAX_DIM. */
static int take_integers(lua_State *L, const char *what, int64_t out[NEAP_MAX_DIM]) {
  int list = lua_gettop(L), n = (int)lua_rawlen(L, list), n_key = 0;
  if (lua_rawlen(L, list) > NEAP_MAX_DIM)
    neap_lua_fail(L, NEAP_ARGUMENT, "%s takes at most %d dimensions, got %lld", what, NEAP_MAX_DIM,
                  (long long)lua_rawlen(L, list));
  /* A list of n items has n keys. More keys: one is no position, or lies beyond a gap, and nothing
   * would read it. */
  for (lua_pushnil(L); lua_next(L, list) != 0; lua_pop(L, 1)) {
    n_key++;
    if (lua_type(L, -2) == LUA_TSTRING)
      neap_lua_fail(L, NEAP_ARGUMENT, "%s: unknown field \"%s\"", what, lua_tostring(L, -2));
  }
  if (n_key != n)
    neap_lua_fail(L, NEAP_ARGUMENT, "%s: a list from 1 without gaps is expected", what);
  /* Each item is pushed, read and popped. */
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, list, i + 1);
    out[i] = integer_at(L, -1, what);
    lua_pop(L, 1);
  }
  return n;
}

int neap_lua_integers(lua_State *L, int index, const char *field, const char *what,
                      int64_t out[NEAP_MAX_DIM]) {
  int top = lua_gettop(L);
  if (lua_istable(L, index)) {
    /* The list goes on top: the table, or the one in its field, beside which there is no other. */
    lua_pushvalue(L, index);
    if (field != NULL) {
      int type = neap_lua_field(L, -1, field);
      if (type == LUA_TNIL)
        lua_pop(L, 1);
      else
        neap_lua_only_fields(L, index, what, (const char *const[]){field, NULL});
      /* A lone number stands for a list of one. */
      if (type == LUA_TNUMBER) {
        out[0] = integer_at(L, -1, what);
        lua_settop(L, top);
        return 1;
      }
      if (type != LUA_TNIL && type != LUA_TTABLE)
        neap_lua_fail(L, NEAP_ARGUMENT,
                      "%s: \"%s\" expects an integer or a list of integers, got a %s", what, field,
                      lua_typename(L, type));
    }
    int n_item = take_integers(L, what, out);
    lua_settop(L, top);
    return n_item;
  }
  /* No list: the arguments from `index` up to the top are the integers. */
  int n = NEAP_MAX(top - index + 1, 0);
  if (n > NEAP_MAX_DIM)
    neap_lua_fail(L, NEAP_ARGUMENT, "%s takes at most %d dimensions, got %d", what, NEAP_MAX_DIM,
                  n);
  for (int i = 0; i < n; i++) out[i] = integer_at(L, index + i, what);
  return n;
}

void neap_lua_shape(lua_State *L, int index, neap_shape *shape, const char *what) {
  int64_t dim[NEAP_MAX_DIM];
  int n = neap_lua_integers(L, index, NULL, what, dim);
  for (int i = 0; i < n; i++)
    if (dim[i] < 0)
      neap_lua_fail(L, NEAP_ARGUMENT, "%s: size %lld is negative", what, (long long)dim[i]);
  *shape = neap_shape_of(n, dim);
}

neap_dtype neap_lua_dtype(lua_State *L, int index, neap_dtype missing) {
  if (lua_isnoneornil(L, index)) return missing;
  const char *name = lua_type(L, index) == LUA_TSTRING ? neap_lua_text(L, index, "dtype") : NULL;
  neap_dtype dtype = name != NULL ? neap_dtype_from_name(name) : NEAP_DTYPE_NONE;
  if (dtype == NEAP_DTYPE_NONE)
    neap_lua_fail(L, NEAP_ARGUMENT,
                  "unknown dtype %s; there are f32 f64 bf16 f16 i8 u8 i16 u16 i32 i64 bool",
                  name != NULL ? name : luaL_typename(L, index));
  return dtype;
}

void neap_lua_push_shape(lua_State *L, const neap_shape *shape) {
  lua_createtable(L, shape->n_dim, 0);
  for (int i = 0; i < shape->n_dim; i++) {
    lua_pushinteger(L, shape->dim[i]);
    lua_seti(L, -2, i + 1);
  }
}

const char *neap_lua_opt_name(lua_State *L, int index, const char *what) {
  return lua_toboolean(L, index) ? neap_lua_name(L, index, what) : NULL;
}

const char *neap_lua_name(lua_State *L, int index, const char *what) {
  int type = lua_type(L, index);
  /* A blob is a table with its name in a field, which is then on top of the stack: it keeps the
   * text until that is interned. */
  bool handle = type == LUA_TTABLE && neap_lua_field(L, index, "name") == LUA_TSTRING;
  if (type == LUA_TTABLE && !handle) lua_pop(L, 1);
  if (type != LUA_TSTRING && !handle)
    neap_lua_fail(L, NEAP_ARGUMENT, "%s expects a name or a blob, got a %s", what,
                  luaL_typename(L, index));
  /* Interned, it lives as long as the program, whatever becomes of Lua's text. Out of memory is
   * said after the pop, as any other error. */
  const char *name = neap_intern(neap_lua_text(L, handle ? -1 : index, what));
  if (handle) lua_pop(L, 1);
  if (name == NULL) neap_lua_fail(L, NEAP_MEMORY, "memory for a name was refused");
  return name;
}

const char **neap_lua_names(lua_State *L, int index, const char *what, bool absent, int *n) {
  index = lua_absindex(L, index); /* rooms are pushed above the list */
  *n = 0;
  /* A blob is a table too, but no list. */
  bool list = false;
  if (lua_istable(L, index)) {
    list = neap_lua_field(L, index, "name") != LUA_TSTRING;
    lua_pop(L, 1);
  }
  /* One name, or none, is a list of so many. */
  if (!list) {
    const char **one = neap_lua_room(L, sizeof *one);
    one[0] = neap_lua_opt_name(L, index, what);
    *n = one[0] != NULL;
    return one;
  }
  /* The length is the largest integer key: lists may hold nil where an optional input is absent,
   * and lua_rawlen may stop at any nil. */
  lua_Integer length = 0;
  for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
    if (!lua_isinteger(L, -2) || lua_tointeger(L, -2) < 1)
      neap_lua_fail(
        L, NEAP_ARGUMENT, "%s expects a list of names, and nothing reads its field \"%s\"", what,
        lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : luaL_tolstring(L, -2, NULL));
    if (lua_tointeger(L, -2) > length) length = lua_tointeger(L, -2);
  }
  /* One far key, {[1e9] = "x"}, must not take gigabytes. */
  if (length > 100000)
    neap_lua_fail(L, NEAP_ARGUMENT, "%s: a list of %lld names", what, (long long)length);
  /* The room stays on the stack for the caller. The list may change while names are interned: what
   * is gone by then is nil, and an error unless that may be. */
  const char **names = neap_lua_room(L, (size_t)length * sizeof *names);
  for (int i = 0; i < (int)length; i++) {
    lua_rawgeti(L, index, i + 1);
    names[i] = absent ? neap_lua_opt_name(L, -1, what) : neap_lua_name(L, -1, what);
    lua_pop(L, 1);
  }
  *n = (int)length;
  return names;
}

size_t neap_lua_bytes(lua_State *L, int index, const char *what) {
  /* -1 stands for what is neither a number nor a text of bytes. */
  double bytes = -1;
  if (lua_type(L, index) == LUA_TNUMBER) {
    bytes = lua_tonumber(L, index);
  } else if (lua_type(L, index) == LUA_TSTRING) {
    if (!neap_bytes_parse(neap_lua_text(L, index, what), &bytes)) bytes = -1;
  }
  /* Written so that NaN fails; and a double below 2^62 fits a size_t. Of numbers 1.5 bytes are
   * none, while text may have fractions of a unit. */
  bool is_known = bytes >= 0 && bytes < 0x1p62;
  if (is_known && lua_type(L, index) == LUA_TNUMBER) is_known = bytes == (double)(int64_t)bytes;
  if (!is_known)
    neap_lua_fail(L, NEAP_ARGUMENT,
                  "%s expects bytes, an integer or text like \"8MiB\" or \"8MB\", got %s", what,
                  luaL_tolstring(L, index, NULL));
  return (size_t)bytes;
}

size_t neap_lua_limit(lua_State *L, int index, const char *what) {
  size_t bytes = neap_lua_bytes(L, index, what);
  if (bytes == 0)
    neap_lua_fail(L, NEAP_ARGUMENT,
                  "%s expects at least 1 byte, got %s; without the option there is no limit", what,
                  luaL_tolstring(L, index, NULL));
  return bytes;
}

/* ---- fields ---------------------------------------------------------------------------------- */

void neap_lua_set_integer(lua_State *L, const char *key, int64_t value) {
  lua_pushinteger(L, value);
  lua_setfield(L, -2, key);
}

void neap_lua_set_text(lua_State *L, const char *key, const char *value) {
  if (value == NULL || value[0] == '\0') return;
  lua_pushstring(L, value);
  lua_setfield(L, -2, key);
}

void neap_lua_set_bool(lua_State *L, const char *key, bool value) {
  lua_pushboolean(L, value);
  lua_setfield(L, -2, key);
}
