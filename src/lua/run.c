/* run.c: the handle of a run that several programs share (neap/db.h): a trainer's. */
#include "lua/binding.h"

#include <stdio.h>
#include <string.h>

typedef struct handle {
  neap_run *run;
  bool warned; /* of what could not be written; once */
} handle;

neap_run *neap_lua_run_at(lua_State *L, int index) {
  const handle *h = neap_lua_at(L, index, NEAP_LUA_RUN);
  return h->run;
}

/* A run that can't be written now is kept, and that is said. */
static void free_run(lua_State *L, void *at) {
  handle *h = at;
  neap_error error = {0};
  /* An end of its own is left as it is: NULL is what the last step came to. */
  if (h->run != NULL && neap_run_is_going(h->run) &&
      neap_run_end(h->run, NULL, NULL, &error) != NEAP_OK && !h->warned)
    neap_lua_warn(L, error.message);
  neap_run_close(h->run);
  h->run = NULL;
}

/* new_run{net =, mode =, tag =, batch =} -> run; nil without a database that can
 * be written. */
static int new_run(lua_State *L) {
  neap_lua_check_type(L, 1, LUA_TTABLE);
  neap_db *db = neap_lua_store(L);
  if (db == NULL || neap_db_is_readonly(db)) return 0;
  neap_run_about about = {0};

  /* The texts stay on the stack until the run has copied them. */
  if (neap_lua_field(L, 1, "net") != LUA_TNIL) about.net = neap_lua_check_string(L, -1);
  if (neap_lua_field(L, 1, "mode") != LUA_TNIL) about.mode = neap_lua_check_string(L, -1);
  if (neap_lua_field(L, 1, "tag") != LUA_TNIL) about.tag = neap_lua_check_string(L, -1);
  if (neap_lua_field(L, 1, "batch") != LUA_TNIL) about.batch = neap_lua_check_integer(L, -1);

  /* The line of the script that makes the run, on the stack like the rest. */
  about.script = neap_lua_line(L);
  if (about.script[0] == '\0') about.script = NULL;
  neap_lua_note_script(L, db);
  handle *h = neap_lua_new(L, sizeof *h, NEAP_LUA_RUN, free_run);
  NEAP_LUA_TRY(L, neap_run_open(db, &about, &h->run, &error));
  return 1;
}

static void warn(lua_State *L, handle *h) {
  const char *warning = neap_run_warning(h->run);
  if (warning[0] == '\0' || h->warned) return;
  h->warned = true;
  neap_lua_warn(L, warning);
}

/* run:step(number, ms) */
static int step(lua_State *L) {
  handle *h = neap_lua_at(L, 1, NEAP_LUA_RUN);
  neap_run_step(h->run, neap_lua_check_integer(L, 2), (int64_t)(neap_lua_check_number(L, 3) * 1e6));
  warn(L, h);
  return 0;
}

/* run:metric(name, step, value): one that finds no room is lost: that is not worth a failed
 * training. */
static int metric(lua_State *L) {
  (void)neap_run_metric(neap_lua_run_at(L, 1), neap_lua_check_string(L, 2),
                        neap_lua_check_integer(L, 3), neap_lua_check_number(L, 4), NULL);
  return 0;
}

/* A text of the error object at `index`, in the record's own room. */
static void take_text(lua_State *L, int index, const char *key, char *to, size_t size) {
  if (neap_lua_field(L, index, key) == LUA_TSTRING) snprintf(to, size, "%s", lua_tostring(L, -1));
  lua_pop(L, 1);
}

static int64_t take_bytes(lua_State *L, int index, const char *key) {
  neap_lua_field(L, index, key);
  int64_t bytes = lua_isinteger(L, -1) ? lua_tointeger(L, -1) : 0;
  lua_pop(L, 1);
  return bytes;
}

/* What is alive where most is, as push_alive of error.c makes it: `what`, "blobs" or "modules". The
 * list stays on the stack, and keeps the texts, for as long as the record is read. */
static void take_alive(lua_State *L, int index, const char *what, int *n, neap_live_bytes *alive) {
  if (neap_lua_field(L, index, what) != LUA_TTABLE) return;
  const int list = lua_gettop(L);

  /* What is no table ends the list, and a row without a name says nothing: a script may have
   * changed the object. */
  for (int i = 0; i < NEAP_MOST_NAMED && lua_rawgeti(L, list, i + 1) == LUA_TTABLE; i++) {
    static const char *const key[] = {"name", "module", "line"};
    const int at = lua_gettop(L);
    const char *text[NEAP_COUNT(key)] = {0};
    for (int k = 0; k < NEAP_COUNT(key); k++)
      if (neap_lua_field(L, at, key[k]) == LUA_TSTRING) text[k] = lua_tostring(L, -1);
    if (text[0] != NULL)
      alive[(*n)++] = (neap_live_bytes){text[0], text[1], text[2], take_bytes(L, at, "bytes")};
    lua_settop(L, list);
  }
  lua_settop(L, list);
}

static int text_of(lua_State *L) {
  luaL_tolstring(L, 1, NULL);
  return 1;
}

/* The words of a script's own error, whatever it raised: those of its __tostring, which may raise
 * in turn, else those that Lua has for what can't be told. */
static void tell(lua_State *L, int index, char *to, size_t size) {
  const char *type = luaL_typename(L, index);
  const bool is_told = lua_type(L, index) == LUA_TSTRING || lua_type(L, index) == LUA_TNUMBER ||
                       luaL_getmetafield(L, index, "__tostring") != LUA_TNIL;
  lua_settop(L, index);
  lua_pushcfunction(L, text_of);
  lua_pushvalue(L, index);
  if (is_told && lua_pcall(L, 1, 1, 0) == LUA_OK)
    snprintf(to, size, "%s", lua_tostring(L, -1));
  else
    snprintf(to, size, "(error object is a %s value)", type);
  lua_settop(L, index);
}

/* The error at `index`, the top, a text or an object, as a record; texts of lists are borrowed from
 * it. */
static void take_error(lua_State *L, int index, neap_error *error) {
  char code[32] = "";
  error->code = NEAP_SCRIPT; /* what is no object of Neap's */
  if (lua_type(L, index) != LUA_TTABLE) {
    tell(L, index, error->message, sizeof error->message);
    return;
  }
  take_text(L, index, "code", code, sizeof code);
#define X(symbol, name) \
  if (strcmp(code, name) == 0) error->code = NEAP_##symbol;
  NEAP_STATUS_MAP(X)
#undef X

  /* Texts of the record are copied into its own room, and cut there. */
  take_text(L, index, "message", error->message, sizeof error->message);
  take_text(L, index, "op", error->op, sizeof error->op);
  take_text(L, index, "blob", error->blob, sizeof error->blob);
  take_text(L, index, "line", error->line, sizeof error->line);
  take_text(L, index, "hint", error->hint, sizeof error->hint);
  if (error->message[0] == '\0') tell(L, index, error->message, sizeof error->message);

  /* Of a refusal the figures, and who is alive: the run's row keeps them. */
  if (error->code != NEAP_BUDGET && error->code != NEAP_MEMORY) return;
  luaL_checkstack(L, 16, "an error's lists");
  error->request_bytes = take_bytes(L, index, "request_bytes");
  error->available_bytes = take_bytes(L, index, "available_bytes");
  take_alive(L, index, "blobs", &error->n_blob, error->blobs);
  take_alive(L, index, "modules", &error->n_module, error->modules);
  error->limit_bytes = take_bytes(L, index, "limit_bytes");
  error->least_bytes = take_bytes(L, index, "least_bytes");

  /* Stays on the stack, too. */
  if (neap_lua_field(L, index, "limit") == LUA_TSTRING) error->limit = lua_tostring(L, -1);
}

/* run:stop([error]): it has ended, well or, where an error is given, be it nil, by that, and is
 * written. Another step goes on with it. What can't be written now is said, and kept. */
static int stop(lua_State *L) {
  handle *h = neap_lua_at(L, 1, NEAP_LUA_RUN);
  neap_error why = {0};
  if (lua_gettop(L) > 1) {
    lua_settop(L, 2);
    take_error(L, 2, &why);
  }
  if (why.code == NEAP_OK)
    (void)neap_run_end(h->run, "finished", NULL, NULL);
  else
    (void)neap_run_end(h->run, NULL, &why, NULL);
  warn(L, h);
  return 0;
}

/* run:id() -> number of its row; nil while there is none */
static int id(lua_State *L) {
  const int64_t run_id = neap_run_id(neap_lua_run_at(L, 1));
  if (run_id == 0) return 0;
  lua_pushinteger(L, run_id);
  return 1;
}

/* end_runs([error]): all runs that are going on end, as the process is about to. */
static int end_runs(lua_State *L) {
  neap_error why = {0};
  if (lua_gettop(L) > 0) {
    lua_settop(L, 1);
    take_error(L, 1, &why);
  }
  neap_lua_end_runs(L, why.code != NEAP_OK ? &why : NULL);
  return 0;
}

void neap_lua_open_run(lua_State *L) {
  static const neap_lua_reg meta[] = {{"__close", neap_lua_close, NEAP_LUA_ANY}, {NULL, NULL, 0}};
  static const neap_lua_reg methods[] = {
    {"step", step, 3}, {"metric", metric, 4},        {"stop", stop, 2},
    {"id", id, 1},     {"close", neap_lua_close, 1}, {NULL, NULL, 0}};
  static const neap_lua_reg functions[] = {
    {"new_run", new_run, 1}, {"end_runs", end_runs, 1}, {NULL, NULL, 0}};
  neap_lua_class(L, NEAP_LUA_RUN, "Run", meta, methods);
  neap_lua_functions(L, functions, false);
}
