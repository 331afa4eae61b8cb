/* db.c: the database handle. Queries give rows as tables; lua/neap/db.lua makes reports of them. */
#include "lua/binding.h"

#include <stdlib.h>
#include <string.h>

typedef struct handle {
  neap_db *db;
} handle;

static neap_db *db_at(lua_State *L, int index) {
  handle *h = neap_lua_at(L, index, NEAP_LUA_DB);
  if (h->db == NULL) neap_lua_fail(L, NEAP_RELEASED, "the database was closed");
  return h->db;
}

/* Runs that were closed while the file could not be written are tried once more, and what is lost
 * is said. */
static void free_db(lua_State *L, void *at) {
  handle *h = at;
  neap_error error = {0};
  if (h->db == NULL) return;
  if (neap_db_end_runs(h->db, NULL, NULL, &error) != NEAP_OK) neap_lua_warn(L, error.message);
  neap_db_close(h->db);
  h->db = NULL;
}

/* its address: in the registry, all handles by their addresses, weakly */
static const char handles_key;

/* The handle at the top is one of those whose runs end with the process. */
static void note_handle(lua_State *L) {
  /* From below: handle, table. */
  neap_lua_push_weak(L, &handles_key, "v");
  lua_pushvalue(L, -2);
  lua_rawsetp(L, -2, lua_touserdata(L, -3));
  lua_pop(L, 1);
}

void neap_lua_end_runs(lua_State *L, const neap_error *why) {
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &handles_key) == LUA_TTABLE) {
    int all = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, all) != 0; lua_pop(L, 1)) {
      const handle *h = neap_lua_test(L, -1, NEAP_LUA_DB);
      neap_error error = {0};
      if (h == NULL || neap_lua_is_closed(h) || h->db == NULL) continue;
      if (neap_db_end_runs(h->db, NULL, why, &error) != NEAP_OK) neap_lua_warn(L, error.message);
    }
  }
  lua_pop(L, 1);
}

static int to_text(lua_State *L) {
  const handle *h = neap_lua_any(L, 1, NEAP_LUA_DB);
  if (h->db == NULL || neap_lua_is_closed(h)) return lua_pushliteral(L, "database (closed)"), 1;
  lua_pushfstring(L, "database %s", neap_db_path(h->db));
  return 1;
}

/* open_db([path]) -> db, or nil, message, code. Without a path: the default one. */
static int open_db(lua_State *L) {
  const char *path = neap_lua_opt_string(L, 1, NULL);
  handle *h = neap_lua_new(L, sizeof *h, NEAP_LUA_DB, free_db);
  /* A database that can't be opened is nil and why: the handle stays empty, and Lua collects it. */
  neap_error error = {0};
  if (neap_db_open(path, &h->db, &error) != NEAP_OK) return neap_lua_failure(L, &error);
  note_handle(L);
  return 1;
}

static int db_path(lua_State *L) {
  lua_pushstring(L, neap_db_default_path());
  return 1;
}

/* ---- the store that programs record in ------------------------------------------------------- */

/* its address: in the registry, the handle, or false after a failure */
static const char store_key;

/* Opened once in a process: a database that can't be opened is warned of once, and runs go on
 * without. */
neap_db *neap_lua_store(lua_State *L) {
  /* Asked before: the handle that was opened, or false. A script may have closed it since. */
  if (lua_rawgetp(L, LUA_REGISTRYINDEX, &store_key) != LUA_TNIL) {
    handle *h = neap_lua_test(L, -1, NEAP_LUA_DB);
    lua_pop(L, 1);
    return h != NULL && !neap_lua_is_closed(h) ? h->db : NULL;
  }
  lua_pop(L, 1);

  /* First time: opened into a handle, which the registry keeps. */
  const char *path = neap_db_default_path();
  if (path == NULL) return NULL;
  handle *h = neap_lua_new(L, sizeof *h, NEAP_LUA_DB, free_db);
  neap_error error = {0};
  if (neap_db_open(path, &h->db, &error) != NEAP_OK) {
    /* Warned, and `false` takes the handle's place, so that nobody tries again. */
    lua_warning(L, "neap: ", 1);
    lua_warning(L, error.message, 0);
    lua_pop(L, 1);
    lua_pushboolean(L, 0);
    h = NULL;
  } else {
    note_handle(L);
  }
  lua_rawsetp(L, LUA_REGISTRYINDEX, &store_key);
  return h != NULL ? h->db : NULL;
}

/* Whatever fails leaves the runs without. */
void neap_lua_note_script(lua_State *L, neap_db *db) {
  if (db == NULL || neap_db_knows_script(db)) return;

  /* The script's arguments and its commit are found by Lua, which reads the repository's files.
   * Protected: whatever goes wrong there, the run goes on. */
  const int top = lua_gettop(L);
  lua_getglobal(L, "require");
  lua_pushliteral(L, "neap.inner.script");
  bool good = lua_pcall(L, 1, 1, 0) == LUA_OK;
  if (good) {
    lua_getfield(L, -1, "facts");
    good = lua_pcall(L, 0, 3, 0) == LUA_OK;
  }

  /* A third answer that is no boolean says that nobody knows. */
  const int dirty = good && lua_isboolean(L, -1) ? lua_toboolean(L, -1) : -1;
  neap_db_note_script(db, good ? lua_tostring(L, -3) : NULL, good ? lua_tostring(L, -2) : NULL,
                      dirty);
  lua_settop(L, top);
}

/* use_db(db|false): programs made from now on record there; false: nowhere. */
static int use_db(lua_State *L) {
  if (lua_toboolean(L, 1)) db_at(L, 1); /* raises for all but an open database */
  lua_settop(L, 1);
  /* nil in the registry would mean that nobody has asked yet. */
  if (lua_isnil(L, 1)) lua_pushboolean(L, 0);
  lua_rawsetp(L, LUA_REGISTRYINDEX, &store_key);
  return 0;
}

/* used_db() -> the database that programs record in, opened if need be; nil: none. Not to be
 * closed. */
static int used_db(lua_State *L) {
  if (neap_lua_store(L) == NULL) return 0;
  return lua_rawgetp(L, LUA_REGISTRYINDEX, &store_key) == LUA_TUSERDATA ? 1 : 0;
}

/* ---- queries --------------------------------------------------------------------------------- */

/* One parameter from the value at the top of the stack. */
static neap_sql_value param_at_top(lua_State *L, const char *name) {
  neap_sql_value value = {.name = name};
  switch (lua_type(L, -1)) {
    case LUA_TNUMBER:
      value.type = lua_isinteger(L, -1) ? NEAP_SQL_INTEGER : NEAP_SQL_REAL;
      value.integer = lua_isinteger(L, -1) ? lua_tointeger(L, -1) : 0;
      value.real = lua_tonumber(L, -1);
      break;
    case LUA_TSTRING:
      value.type = NEAP_SQL_TEXT;
      value.text = lua_tolstring(L, -1, &value.n_text);
      break;
    case LUA_TBOOLEAN:
      value.type = NEAP_SQL_INTEGER;
      value.integer = lua_toboolean(L, -1);
      break;
    default:
      neap_lua_fail(L, NEAP_ARGUMENT, "a parameter is a number, text or boolean, got a %s",
                    luaL_typename(L, -1));
  }
  return value;
}

/* {1, 2} for ?, {net = "mlp"} for :net; the rooms stay on the stack, with a copy that keeps the
 * texts. */
static neap_sql_value *take_params(lua_State *L, int index, int *n) {
  *n = 0;
  if (!lua_istable(L, index)) return NULL;

  /* The room is for as many as the table has keys. The walks below allocate, and a finaliser could
   * change the user's table, but not the copy. */
  int count = neap_lua_copy(L, index);
  index = lua_gettop(L);
  neap_sql_value *param = neap_lua_room(L, (size_t)count * sizeof *param);

  /* By position: 1 up to the first nil. */
  for (lua_Integer i = 1; lua_rawgeti(L, index, i) != LUA_TNIL; i++, lua_pop(L, 1))
    param[(*n)++] = param_at_top(L, NULL);
  lua_pop(L, 1);

  /* By name. SQLite wants the colon in front: the texts made here live as keys of a table. */
  lua_newtable(L);
  int names = lua_gettop(L);
  for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
    if (lua_type(L, -2) != LUA_TSTRING) continue;
    const char *key = lua_pushfstring(L, ":%s", neap_lua_text(L, -2, "a query"));
    lua_pushboolean(L, 1);
    lua_setfield(L, names, key);
    /* From below: key, value. The value is read where it lies. */
    lua_pop(L, 1); /* the table has it */
    param[(*n)++] = param_at_top(L, key);
  }
  return param;
}

/* Texts and blobs as Lua strings of any bytes; NULL as nil. */
static void push_cell(lua_State *L, const neap_sql_value *cell) {
  switch (cell->type) {
    case NEAP_SQL_INTEGER: lua_pushinteger(L, cell->integer); break;
    case NEAP_SQL_REAL: lua_pushnumber(L, cell->real); break;
    case NEAP_SQL_NULL: lua_pushnil(L); break;
    case NEAP_SQL_TEXT:
    case NEAP_SQL_BLOB: lua_pushlstring(L, cell->text, cell->n_text); break;
  }
}

/* db:_query(sql, params [, lenient]) -> rows, column names; or nil, message, code. Lenient:
 * parameters without a value are NULL. */
static int query(lua_State *L) {
  neap_db *db = db_at(L, 1);
  const char *sql = neap_lua_check_string(L, 2);
  int n_param;

  /* Rooms lie above the four arguments. */
  lua_settop(L, 4);
  bool lenient = lua_toboolean(L, 4);
  const neap_sql_value *param = take_params(L, 3, &n_param);

  /* All rows are read into one block, which a handle frees: no statement is open while Lua makes
   * tables, so that a finaliser may use the database. */
  neap_sql_rows **block = (neap_sql_rows **)neap_lua_new_block(L);
  neap_error error = {0};
  neap_status status = neap_db_rows(db, sql, n_param, param, !lenient, block, &error);
  if (status != NEAP_OK) return neap_lua_failure(L, &error);
  const neap_sql_rows *rows = *block;

  /* The list of rows, each a table by column. */
  lua_createtable(L, rows->n_row, 0);
  for (int i = 0; i < rows->n_row; i++) {
    lua_createtable(L, 0, rows->n_column);
    for (int k = 0; k < rows->n_column; k++) {
      push_cell(L, &rows->value[i * rows->n_column + k]);
      lua_setfield(L, -2, rows->column[k]);
    }
    lua_seti(L, -2, i + 1);
  }

  /* And the names of the columns, in their order. */
  lua_createtable(L, rows->n_column, 0);
  for (int k = 0; k < rows->n_column; k++) {
    lua_pushstring(L, rows->column[k]);
    lua_seti(L, -2, k + 1);
  }
  return 2;
}

/* ---- upkeep ---------------------------------------------------------------------------------- */

static int path(lua_State *L) {
  lua_pushstring(L, neap_db_path(db_at(L, 1)));
  lua_pushboolean(L, neap_db_is_readonly(db_at(L, 1)));
  return 2;
}

/* db:_check() -> true, report; or nil, message, code */
static int check(lua_State *L) {
  char **report = (char **)neap_lua_new_block(L);
  neap_error error = {0};
  if (neap_db_check(db_at(L, 1), report, &error) != NEAP_OK) return neap_lua_failure(L, &error);
  lua_pushboolean(L, 1);
  lua_pushstring(L, *report);
  return 2;
}

static int backup(lua_State *L) {
  neap_error error = {0};
  if (neap_db_backup(db_at(L, 1), neap_lua_check_string(L, 2), &error) != NEAP_OK)
    return neap_lua_failure(L, &error);
  lua_pushboolean(L, 1);
  return 1;
}

/* db:_prune(days, runs, bytes) -> plans and runs removed, bytes left; negative: no such limit */
static int prune(lua_State *L) {
  neap_error error = {0};
  neap_pruned done;
  const neap_prune_options options = {.unused_days = neap_lua_check_integer(L, 2),
                                      .n_run = neap_lua_check_integer(L, 3),
                                      .bytes = neap_lua_check_integer(L, 4)};
  if (neap_db_prune(db_at(L, 1), &options, &done, &error) != NEAP_OK)
    return neap_lua_failure(L, &error);
  lua_pushinteger(L, done.n_plan);
  lua_pushinteger(L, done.n_run);
  lua_pushinteger(L, done.bytes);
  return 3;
}

static int vacuum(lua_State *L) {
  neap_error error = {0};
  if (neap_db_vacuum(db_at(L, 1), &error) != NEAP_OK) return neap_lua_failure(L, &error);
  lua_pushboolean(L, 1);
  return 1;
}

/* db:merge(path) -> plans and runs added */
static int merge(lua_State *L) {
  neap_error error = {0};
  neap_merged done;
  if (neap_db_merge(db_at(L, 1), neap_lua_check_string(L, 2), &done, &error) != NEAP_OK)
    return neap_lua_failure(L, &error);
  lua_pushinteger(L, done.n_plan);
  lua_pushinteger(L, done.n_run);
  return 2;
}

/* db:_note_peak(what, n_thread, per_second) -> true, or nil, message, code */
static int note_peak(lua_State *L) {
  neap_error error = {0};
  const int64_t n_thread = neap_lua_check_integer(L, 3);
  const char *what = neap_lua_check_string(L, 2);
  const double per_second = neap_lua_check_number(L, 4);
  if (neap_db_note_peak(db_at(L, 1), what, (int)n_thread, per_second, &error) != NEAP_OK)
    return neap_lua_failure(L, &error);
  lua_pushboolean(L, 1);
  return 1;
}

/* embedded(path) -> the text of a file that is part of the program, or nil; embedded() -> all
 * paths */
static int embedded(lua_State *L) {
  if (!lua_isnoneornil(L, 1)) {
    size_t n;
    const char *text = neap_embedded_find(neap_lua_check_string(L, 1), &n);
    if (text == NULL) return 0;
    lua_pushlstring(L, text, n);
    return 1;
  }

  /* Without a path: a list of all. */
  const char *name;
  lua_newtable(L);
  for (int i = 0; neap_embedded_at(i, NULL, &name) != NULL; i++) {
    lua_pushstring(L, name);
    lua_seti(L, -2, i + 1);
  }
  return 1;
}

void neap_lua_open_db(lua_State *L) {
  static const neap_lua_reg meta[] = {{"__close", neap_lua_close, NEAP_LUA_ANY},
                                      {"__tostring", to_text, NEAP_LUA_ANY},
                                      {NULL, NULL, 0}};
  static const neap_lua_reg methods[] = {{"_query", query, 4},         {"_path", path, 1},
                                         {"_check", check, 1},         {"backup", backup, 2},
                                         {"_prune", prune, 4},         {"vacuum", vacuum, 1},
                                         {"merge", merge, 2},          {"_note_peak", note_peak, 4},
                                         {"close", neap_lua_close, 1}, {NULL, NULL, 0}};
  static const neap_lua_reg functions[] = {{"open_db", open_db, 1},   {"db_path", db_path, 0},
                                           {"use_db", use_db, 1},     {"used_db", used_db, 0},
                                           {"embedded", embedded, 1}, {NULL, NULL, 0}};
  neap_lua_class(L, NEAP_LUA_DB, "Db", meta, methods);
  neap_lua_functions(L, functions, false);
}
