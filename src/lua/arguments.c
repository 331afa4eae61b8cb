/* arguments.c: arguments that are more than one value: tables of options and their fields, lists,
 * positions and shapes, names of blobs, amounts of bytes; the rooms that hold what was read; and
 * fields of tables that go back to Lua.
 *
 * INVARIANT: tables are read raw, and every field that somebody gives is read or refused.
 * INVARIANT: what is returned lies in a room on the stack or among the interned names: nothing is
 * lost when a later argument raises.
 */
#include "lua/binding.h"

#include <string.h>

enum { MOST_ITEMS = 1 << 30 }; /* of a table that is an argument */

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

/* ---- options, positions, names --------------------------------------------------------------- */

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

    /* As the walk goes on over the names, the nearest so far is kept; it is told only where none is
     * the field itself. */
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
  if (lua_type(L, index) == LUA_TTABLE)
    neap_lua_fail(L, NEAP_ARGUMENT,
                  "expects the name of a dtype, got a table; it stands by itself, as in "
                  "neap.tensor({ 1, 2 }, \"f64\")");
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
