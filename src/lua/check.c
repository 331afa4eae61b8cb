/* check.c: single arguments from Lua to the engine: numbers, texts, one word of several. What is
 * wrong with one is said in the name of the function that the user has called, which may be a Lua
 * file's of Neap's that calls C further in.
 *
 * Data structure: a weak table in the registry, from functions of the surface to their names.
 * INVARIANT: a number or text is read as it stands there; no text is taken for its begin because a
 * zero byte is in it.
 */
#include "lua/binding.h"

#include <limits.h>
#include <string.h>

/* ---- names of functions ---------------------------------------------------------------------- */

static const char names_key; /* its address: in the registry, the names of functions */

/* The table of the surface's names by function, pushed. Weak in its keys: it keeps no function
 * alive. */
static void push_names(lua_State *L) { neap_lua_push_weak(L, &names_key, "k"); }

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
    const bool own = neap_lua_is_own(&ar);
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

/* ---- single arguments ------------------------------------------------------------------------ */

/* Whether C reads the whole text at `index`: its texts end at the first zero byte. */
static bool is_whole(lua_State *L, int index) {
  size_t n;
  const char *text = lua_tolstring(L, index, &n);
  return strlen(text) == n;
}

const char *neap_lua_text(lua_State *L, int index, const char *who) {
  const char *text = lua_tostring(L, index);
  if (text == NULL)
    neap_lua_fail(L, NEAP_ARGUMENT, "%s expects a text, got a %s", who, luaL_typename(L, index));
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

/* ---- words ----------------------------------------------------------------------------------- */

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
  static const neap_lua_reg functions[] = {{"nearest", nearest, 2},
                                           {"name_function", name_function, 2},
                                           {"function_name", function_name, 1},
                                           {NULL, NULL, 0}};
  neap_lua_functions(L, functions, false);
}
