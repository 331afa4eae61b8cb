/* error.c: errors and warnings from the engine to Lua. The only file that raises what the engine
 * reports.
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

#include <stdlib.h>
#include <string.h>

#define ERROR_CLASS "neap.error"

/* ---- where ----------------------------------------------------------------------------------- */

/* Whether a level of the stack is C, or one of the Lua files that come with Neap. */
bool neap_lua_is_own(const lua_Debug *ar) {
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
    if (neap_lua_is_own(&ar) || ar.currentline <= 0) continue;
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
    if (neap_lua_is_own(&ar) || ar.currentline <= 0) continue;
    lua_pushfstring(L, "%s:%d: ", ar.short_src, ar.currentline);
    return;
  }
  lua_pushliteral(L, "");
}

/* ---- errors ---------------------------------------------------------------------------------- */

/* "\n  alive where most is: blocks.1 3.0 MiB (net.lua:12), ..", the largest modules of a refusal,
 * on the stack; "" where there are none. */
static void push_modules(lua_State *L, int index) {
  enum { MOST = 4 };
  char bytes[24];

  /* From below: the list, the text so far, a module and its fields. A script can have changed the
   * error object, so what is no list ends it. */
  const int list = lua_gettop(L) + 1, text = list + 1, at = list + 2;
  bool is_list = neap_lua_field(L, index, "modules") == LUA_TTABLE;
  lua_pushliteral(L, "");
  for (int i = 0; i < MOST; i++) {
    if (!is_list || lua_rawgeti(L, list, i + 1) != LUA_TTABLE) break;
    bool has_name = neap_lua_field(L, at, "name") == LUA_TSTRING;
    bool has_line = neap_lua_field(L, at, "line") == LUA_TSTRING;
    neap_lua_field(L, at, "bytes");

    /* The text so far and one module more take the place of the text. */
    lua_pushvalue(L, text);
    lua_pushfstring(L, "%s%s %s%s%s%s", i == 0 ? "\n  alive where most is: " : ", ",
                    has_name ? lua_tostring(L, at + 1) : "?",
                    neap_bytes_text((double)lua_tonumber(L, at + 3), bytes), has_line ? " (" : "",
                    has_line ? lua_tostring(L, at + 2) : "", has_line ? ")" : "");
    lua_concat(L, 2);
    lua_replace(L, text);
    lua_settop(L, text);
  }

  /* The text alone is left. */
  lua_settop(L, text);
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
  neap_error error = {0};
  va_list args;
  va_start(args, format);
  neap_fail_list(&error, code, format, args);
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

/* ---- warnings -------------------------------------------------------------------------------- */

/* its address: in the registry, what was last said about the database */
static const char warned_key;

/* A trouble with the database is told once, not for every program that meets it. */
void neap_lua_warn(lua_State *L, const char *warning) {
  if (warning[0] == '\0') return;

  /* From "database" on the words are the same for each program; what the registry has is what was
   * said last. */
  const char *trouble = strstr(warning, "database \"");
  if (trouble != NULL) {
    lua_pushstring(L, trouble);
    /* From below: this trouble, the one before; then the new one takes its place. */
    bool again =
      lua_rawgetp(L, LUA_REGISTRYINDEX, &warned_key) == LUA_TSTRING && lua_rawequal(L, -1, -2);
    lua_pop(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &warned_key);
    if (again) return;
  }
  lua_warning(L, "neap: ", 1);
  lua_warning(L, warning, 0);
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

void neap_lua_open_error(lua_State *L) {
  static const neap_lua_reg functions[] = {
    {"fail", fail_text, 1}, {"error", make_error, 1}, {NULL, NULL, 0}};
  neap_lua_functions(L, functions, false);
}
