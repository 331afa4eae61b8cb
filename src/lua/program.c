/* program.c: the program handle: a session of the driver.
 *
 * User value 1 of a program is a table that keeps its net, workspace and plan handles alive.
 * INVARIANT: the session is freed before the workspace it is attached to (it retains that itself),
 * and a plan handle asks for it each time.
 */
#include "lua/binding.h"

#include <string.h>

typedef struct handle {
  neap_session *session;
  neap_workspace *ws; /* retained */
  bool warned;        /* of what a run of a dynamic session has found */
} handle;

/* ---- the handle ------------------------------------------------------------------------------ */

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

static void free_program(lua_State *L, void *at) {
  handle *h = at;
  NEAP_LUA_ASSERT(h->session == NULL || h->ws != NULL);
  /* Its run is written now: what can't be is said, and kept. */
  neap_error error = {0};
  if (h->session != NULL && neap_session_record(h->session, NULL, &error) != NEAP_OK && !h->warned)
    neap_lua_warn(L, error.message);
  neap_session_free(h->session);
  h->session = NULL;
  if (h->ws != NULL) neap_workspace_release(h->ws);
  h->ws = NULL;
}

/* ws:_compile(net, options [, range]) -> program; with a range: of a smaller batch in its
 * memory. */
static int compile(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  const neap_lua_net *net = neap_lua_net_at(L, 2);

  /* From below: workspace, net, options, range; above them the rooms of the options. */
  lua_settop(L, 4);
  const neap_range *range = neap_lua_opt_range(L, 4);
  neap_options options = neap_lua_options_for(L, 3, 2, range != NULL);
  handle *h = neap_lua_new(L, sizeof *h, NEAP_LUA_PROGRAM, free_program);

  /* What the program works on stays alive with it: workspace and net in the user value of the
   * handle. */
  lua_createtable(L, 0, 3);
  lua_pushvalue(L, 1);
  lua_setfield(L, -2, "workspace");
  lua_pushvalue(L, 2);
  lua_setfield(L, -2, "net");
  lua_setiuservalue(L, -2, 1);
  neap_lua_note_script(L, options.db);

  /* From here on the handle lets go of the workspace, whatever raises. */
  h->ws = neap_workspace_retain(ws);
  NEAP_LUA_TRY(L, range != NULL
                    ? neap_range_session(range, ws, net->net, 0, &options, &h->session, &error)
                    : neap_session_open(ws, net->net, &options, &h->session, &error));

  /* Said once a program; a run may find more to say. */
  neap_lua_warn(L, neap_session_warning(h->session));
  h->warned = neap_session_warning(h->session)[0] != '\0';
  neap_lua_collect(L);
  return 1;
}

void neap_lua_raise_run(lua_State *L, const neap_error *error) {
  if (error->code == NEAP_INTERRUPTED) {
    /* The program's hook waits for the same Ctrl-C, and would stop Lua again. */
    neap_interrupt(false);
    lua_sethook(L, NULL, 0, 0);
  }
  neap_lua_raise(L, error);
}

/* program:run([n]): n steps, 1 by default. */
static int run(lua_State *L) {
  handle *h = program_at(L, 1);
  lua_Integer n = neap_lua_opt_integer(L, 2, 1);
  neap_error error = {0};
  /* Nothing is pushed between the steps: a run of many costs Lua nothing. */
  for (lua_Integer i = 0; i < n; i++)
    if (neap_session_run(h->session, &error) != NEAP_OK) neap_lua_raise_run(L, &error);
  /* Runs of new shapes make plans, and those may warn. */
  if (!h->warned) neap_lua_warn(L, neap_session_warning(h->session));
  h->warned = h->warned || neap_session_warning(h->session)[0] != '\0';
  lua_settop(L, 1);
  return 1;
}

/* run_micro(ws, {input = tensor, ..}, {{program =, n =, weight =}, ..}, last [, join, kept,
 * added]): one step as micro-batches, ended by `last`: the update, or hold; kept and added are the
 * shares of what is held and of this batch. */
static int run_micro(lua_State *L) {
  neap_workspace *ws = neap_lua_workspace_at(L, 1);
  neap_lua_check_type(L, 2, LUA_TTABLE);
  neap_lua_check_type(L, 3, LUA_TTABLE);
  lua_settop(L, 7);

  /* Finalisers may run whenever a room is made: the copies are what C reads. */
  int n_input = neap_lua_copy(L, 2);
  lua_replace(L, 2); /* the copies keep tensors and programs */
  neap_lua_copy(L, 3);
  lua_replace(L, 3);

  /* What ends the step, and how much what is held weighs. */
  neap_micro_step step = {.n_part = neap_lua_length(L, 3), .after[1] = program_at(L, 4)->session};
  if (!lua_isnil(L, 5)) step.after[0] = program_at(L, 5)->session;
  step.kept = lua_isnil(L, 6) ? 0 : neap_lua_check_number(L, 6);
  step.added = lua_isnil(L, 7) ? 0 : neap_lua_check_number(L, 7);

  /* Both lists in rooms: a raise below leaves nothing behind. */
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
    /* Each program stays on the stack, in the place of its row: nobody can collect it during the
     * run. */
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
  if (neap_workspace_run_micro(ws, &step, &error) != NEAP_OK) neap_lua_raise_run(L, &error);
  return 0;
}

/* program.plan, net, workspace; methods. */
static int index_any(lua_State *L) {
  const handle *h = neap_lua_any(L, 1, NEAP_LUA_PROGRAM);
  const char *key = neap_lua_check_string(L, 2);
  if (strcmp(key, "plan") == 0 || strcmp(key, "net") == 0 || strcmp(key, "workspace") == 0) {
    /* The user value is a table of them; the plan is put there when it is first asked for. */
    if (lua_getiuservalue(L, 1, 1) != LUA_TTABLE)
      neap_lua_fail(L, NEAP_ARGUMENT, "the program has lost its %s", key);
    if (neap_lua_field(L, -1, key) != LUA_TNIL) return 1;
    /* Raises when the program was closed: what it kept can be had still, a new plan not. */
    program_at(L, 1);
    neap_lua_push_session_plan(L, 1);
    if (neap_session_figures(h->session).n_made > 0) return 1; /* another plan next time */
    /* From below: user value, nil, plan, plan. One goes into the table. */
    lua_pushvalue(L, -1);
    lua_setfield(L, -4, "plan");
    return 1;
  }
  return neap_lua_method(L);
}

/* program:stats() -> the figures of its runs, and plan_id */
static int stats(lua_State *L) {
  const handle *h = program_at(L, 1);
  neap_figures row = neap_session_figures(h->session);
  neap_lua_push_shown(L, NEAP_ROW_FIGURES, &row, NEAP_SHOWN_RUN, NEAP_SHOWN_RUN);
  neap_lua_set_integer(L, "plan_id", row.plan_id);
  return 1;
}

/* program:times() -> a row for each step of the plan; nil where it is dynamic. */
static int times(lua_State *L) {
  const handle *h = program_at(L, 1);
  neap_run_op_row row;
  if (!neap_session_op_row(h->session, 0, &row)) return 0;
  lua_newtable(L);
  for (int i = 0; neap_session_op_row(h->session, i, &row); i++) {
    neap_lua_push_row(L, NEAP_ROW_RUN_OP, &row);
    lua_rawseti(L, -2, i + 1);
  }
  return 1;
}

/* program:pool() -> what the pool of the program's workspace holds, and how far the last run used
 * it: a row as neap.h describes it; nil where addresses are planned. */
static int pool(lua_State *L) {
  const handle *h = program_at(L, 1);
  /* A cursor in a handle, since the row is pushed as a table while it is open. */
  neap_rows **rows = neap_lua_new_cursor(L);
  const void *row;
  NEAP_LUA_TRY(L, neap_session_rows(h->session, NEAP_ROW_POOL, rows, &error));
  NEAP_LUA_TRY(L, neap_rows_next(*rows, &row, &error));
  if (row == NULL) return 0;
  neap_lua_push_row(L, NEAP_ROW_POOL, row);
  return 1;
}

/* program:metric(name, step, value): a row of the run, once it is recorded. One that finds no room
 * is lost: that is not worth a failed training. */
static int metric(lua_State *L) {
  (void)neap_session_metric(program_at(L, 1)->session, neap_lua_check_string(L, 2),
                            neap_lua_check_integer(L, 3), neap_lua_check_number(L, 4), NULL);
  return 0;
}

/* program:record([status]) -> run_id; writes the run's row. nil, message, code when the database
 * fails. */
static int record(lua_State *L) {
  const handle *h = program_at(L, 1);
  /* A database that fails is no reason to lose a trained model: nil, and why. */
  neap_error error = {0};
  if (neap_session_record(h->session, neap_lua_opt_string(L, 2, NULL), &error) != NEAP_OK)
    return neap_lua_failure(L, &error);
  lua_pushinteger(L, neap_session_run_id(h->session));
  return 1;
}

/* program:frames_bytes(): what loops without a maximum hold from run to run. */
static int frames_bytes(lua_State *L) {
  lua_pushinteger(L, neap_session_frames_bytes(program_at(L, 1)->session));
  return 1;
}

/* program:trim() -> bytes: gives the frames of loops without a maximum back. */
static int trim(lua_State *L) {
  lua_pushinteger(L, neap_session_trim(program_at(L, 1)->session));
  return 1;
}

/* program:_lacks_blob() -> whether a blob that it works on has been removed from the workspace, or
 * renamed. */
static int lacks_blob(lua_State *L) {
  lua_pushboolean(L, neap_session_lacks_blob(program_at(L, 1)->session));
  return 1;
}

static int to_text(lua_State *L) {
  const handle *h = neap_lua_any(L, 1, NEAP_LUA_PROGRAM);
  if (h->session == NULL || neap_lua_is_closed(h)) return lua_pushliteral(L, "program (closed)"), 1;
  neap_figures figures = neap_session_figures(h->session);
  char text[24];
  lua_pushfstring(L, "program: %I steps, arena %s, run %I times", (LUAI_UACINT)figures.n_op,
                  neap_bytes_text((double)figures.arena_bytes, text), (LUAI_UACINT)figures.n_step);
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
  static const neap_lua_reg functions[] = {{"run_micro", run_micro, 7}, {NULL, NULL, 0}};
  lua_getfield(L, -1, "Workspace");
  neap_lua_functions(L, of_workspace, true);
  lua_pop(L, 1);
  neap_lua_functions(L, functions, false);
}
