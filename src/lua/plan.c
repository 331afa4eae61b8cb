/* plan.c: the plan handle: figures as fields, rows of ops and values for lua/neap/plan.lua,
 * explanations as text.
 *
 * A handle has a plan of its own, or looks into a program's; user value 1 then keeps that program
 * alive.
 */
#include "lua/binding.h"

/* A slot: filled at once, but for a session's plan, which is made when it is first asked for, and
 * let go when the program was closed. */
static neap_memory_plan **slot_at(lua_State *L, int index) {
  return neap_lua_at(L, index, NEAP_LUA_PLAN);
}

/* The plan at `index`: raises `argument` for another thing, `released` when its program was
 * closed. */
const neap_memory_plan *neap_lua_plan_at(lua_State *L, int index) {
  neap_memory_plan **slot = slot_at(L, index);
  /* The user value is the program whose plan this is, or nil. It is pushed, asked and popped; the
   * handle keeps it. */
  bool is_own = lua_getiuservalue(L, index, 1) != LUA_TUSERDATA;
  neap_session *session = neap_lua_session_at(L, -1);
  lua_pop(L, 1);
  if (!is_own && session == NULL)
    neap_lua_fail(L, NEAP_RELEASED, "the program of this plan was closed");
  /* A session's plan is made when it is first asked for. */
  if (*slot == NULL && session != NULL) NEAP_LUA_TRY(L, neap_session_plan(session, slot, &error));
  if (*slot == NULL) neap_lua_fail(L, NEAP_RELEASED, "the plan was closed");
  return *slot;
}

static void free_plan(lua_State *L, void *at) {
  neap_memory_plan **slot = at;
  (void)L;
  neap_memory_plan_free(*slot);
  *slot = NULL;
}

neap_memory_plan **neap_lua_new_plan(lua_State *L) {
  return neap_lua_new(L, sizeof(neap_memory_plan *), NEAP_LUA_PLAN, free_plan);
}

void neap_lua_push_session_plan(lua_State *L, int program_index) {
  /* An empty handle is pushed above the program, which becomes its user value. */
  program_index = lua_absindex(L, program_index);
  (void)neap_lua_new_plan(L);
  lua_pushvalue(L, program_index);
  lua_setiuservalue(L, -2, 1);
}

/* net:_plan(options [, range]) -> plan: nothing of it is allocated. With a range: of a smaller
 * batch in its memory. */
static int make(lua_State *L) {
  const neap_lua_net *net = neap_lua_net_at(L, 1);
  /* Rooms of the options lie above the three arguments. */
  lua_settop(L, 3);
  const neap_range *range = neap_lua_opt_range(L, 3);
  neap_options options = neap_lua_options_for(L, 2, 1, range != NULL);
  neap_memory_plan **plan = neap_lua_new_plan(L);
  NEAP_LUA_TRY(L, neap_memory_plan_new(net->net, &options, range, plan, &error));
  neap_lua_warn(L, neap_memory_plan_warning(*plan));
  return 1;
}

/* plan:_figures() -> those of the plan, as one table */
static int figures(lua_State *L) {
  neap_figures row = neap_memory_plan_figures(neap_lua_plan_at(L, 1));
  neap_lua_push_shown(L, NEAP_ROW_FIGURES, &row, NEAP_SHOWN_RUN, 0);
  return 1;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The rows of one kind as a list. */
static int push_kind(lua_State *L, neap_row_kind kind) {
  const neap_memory_plan *plan = neap_lua_plan_at(L, 1);
  /* The cursor is a handle below the list: stepping it may fail, and tables may. */
  neap_rows **rows = neap_lua_new_cursor(L);
  NEAP_LUA_TRY(L, neap_memory_plan_rows(plan, kind, rows, &error));
  neap_lua_push_rows(L, *rows, kind);
  return 1;
}

/* plan:_ops(), _values(), _banks(), _rewrites(), _regions() -> lists of rows as neap.h describes
 * them */
static int ops(lua_State *L) { return push_kind(L, NEAP_ROW_OP); }
static int values(lua_State *L) { return push_kind(L, NEAP_ROW_VALUE); }
static int banks(lua_State *L) { return push_kind(L, NEAP_ROW_BANK); }
static int rewrites(lua_State *L) { return push_kind(L, NEAP_ROW_REWRITE); }
static int regions(lua_State *L) { return push_kind(L, NEAP_ROW_REGION); }

/* plan:_kernels(step) -> rows of the kernels that could run the op of the step, timed now; the
 * database keeps them, if it has the plan. What it fails to do is said. */
static int kernels(lua_State *L) {
  const neap_memory_plan *plan = neap_lua_plan_at(L, 1);
  const int step = (int)neap_lua_check_integer(L, 2) - 1;
  neap_db *db = neap_lua_store(L);
  const int64_t plan_id = neap_memory_plan_figures(plan).plan_id;
  neap_rows **rows = neap_lua_new_cursor(L);
  const void *row;
  NEAP_LUA_TRY(L, neap_memory_plan_kernels(plan, step, rows, &error));
  lua_newtable(L);
  for (lua_Integer i = 1;; i++) {
    NEAP_LUA_TRY(L, neap_rows_next(*rows, &row, &error));
    if (row == NULL) return 1;
    neap_lua_push_row(L, NEAP_ROW_KERNEL, row);
    lua_rawseti(L, -2, i);
    neap_error lost = {0};
    if (db != NULL && plan_id != 0 && neap_db_note_kernel(db, plan_id, row, &lost) != NEAP_OK)
      neap_lua_warn(L, lost.message);
  }
}

/* plan:_gone(name) -> why the blob has no value, and the op that has absorbed it, if one has; nil
 * when it is none of the net's */
static int gone(lua_State *L) {
  const char *into;
  if (!neap_memory_plan_gone(neap_lua_plan_at(L, 1), neap_lua_check_string(L, 2), &into)) return 0;
  if (into == NULL) {
    lua_pushstring(L, "nothing reads it, so that it is not computed");
    return 1;
  }
  lua_pushfstring(L, "\"%s\" has absorbed it", into);
  lua_pushstring(L, into);
  return 2;
}

/* The rows of the cursors at the top, ops above values, as {ops =, values =}; each op with `subs`:
 * a list of the same for its subnets. The table takes the cursors' place. */
static void push_tree(lua_State *L) {
  /* Each level of subnets has a part of the stack of its own. */
  luaL_checkstack(L, 12, "nesting of subnets");
  int at = lua_gettop(L);
  neap_rows *values_of = *(neap_rows **)neap_lua_any(L, at - 1, NEAP_LUA_CURSOR),
            *ops_of = *(neap_rows **)neap_lua_any(L, at, NEAP_LUA_CURSOR);
  /* Values have no subnets: they are a plain list. */
  const void *row;
  lua_createtable(L, 0, 2);
  neap_lua_push_rows(L, values_of, NEAP_ROW_VALUE);
  lua_setfield(L, -2, "values");
  lua_newtable(L);
  for (int s = 0;; s++) {
    NEAP_LUA_TRY(L, neap_rows_next(ops_of, &row, &error));
    if (row == NULL) break;
    int n_sub = (int)((const neap_op_row *)row)->n_sub;
    /* From below: the tree, its list of ops, the row, the list of its subnets. */
    neap_lua_push_row(L, NEAP_ROW_OP, row);
    lua_createtable(L, n_sub, 0);
    for (int k = 0; k < n_sub; k++) {
      /* Cursors of the subnet go on top, values below ops; its tree takes their place. They must be
       * read before ops_of steps on. */
      neap_rows **sub_values = neap_lua_new_cursor(L);
      NEAP_LUA_TRY(L, neap_rows_sub(ops_of, k, NEAP_ROW_VALUE, sub_values, &error));
      neap_rows **sub_ops = neap_lua_new_cursor(L);
      NEAP_LUA_TRY(L, neap_rows_sub(ops_of, k, NEAP_ROW_OP, sub_ops, &error));
      push_tree(L);
      lua_rawseti(L, -2, k + 1);
    }
    lua_setfield(L, -2, "subs");
    lua_rawseti(L, -2, s + 1);
  }
  lua_setfield(L, -2, "ops");

  /* The tree goes where the cursor of values was, and what lies above it goes. */
  lua_replace(L, at - 1);
  lua_settop(L, at - 1);
}

/* plan:_tree() -> ops and values down to the innermost subnet */
static int tree(lua_State *L) {
  const neap_memory_plan *plan = neap_lua_plan_at(L, 1);
  neap_rows **values_of = neap_lua_new_cursor(L);
  NEAP_LUA_TRY(L, neap_memory_plan_rows(plan, NEAP_ROW_VALUE, values_of, &error));
  neap_rows **ops_of = neap_lua_new_cursor(L);
  NEAP_LUA_TRY(L, neap_memory_plan_rows(plan, NEAP_ROW_OP, ops_of, &error));
  push_tree(L);
  return 1;
}

/* plan:_value(blob) -> the row of the value that a name stands for after the run, or nil */
static int value_of(lua_State *L) {
  const neap_memory_plan *plan = neap_lua_plan_at(L, 1);
  int value = neap_memory_plan_value(plan, neap_lua_name(L, 2, "a blob"));
  if (value < 0) return 0;
  /* The row of that number, through a cursor that its handle ends. */
  neap_rows **rows = neap_lua_new_cursor(L);
  const void *row;
  NEAP_LUA_TRY(L, neap_memory_plan_rows(plan, NEAP_ROW_VALUE, rows, &error));
  NEAP_LUA_TRY(L, neap_rows_at(*rows, value, &row, &error));
  neap_lua_push_row(L, NEAP_ROW_VALUE, row);
  return 1;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* plan:_explain([blob]) -> text */
static int explain(lua_State *L) {
  const neap_memory_plan *plan = neap_lua_plan_at(L, 1);
  const char *name = lua_isnoneornil(L, 2) ? NULL : neap_lua_name(L, 2, "explain"), *into;
  /* A blob that was absorbed or is not computed can be explained too: only one that is none of the
   * net's can't. */
  if (name != NULL && neap_memory_plan_value(plan, name) < 0 &&
      !neap_memory_plan_gone(plan, name, &into))
    neap_lua_fail(L, NEAP_NAME, "the plan of \"%s\" has no blob \"%s\"; plan:values() lists them",
                  neap_memory_plan_figures(plan).net, name);
  char **out = (char **)neap_lua_new_block(L);
  NEAP_LUA_TRY(L, neap_memory_plan_explain(plan, name, out, &error));
  return neap_lua_push_text(L, out);
}

/* plan:_why(a, b) -> text; names as of plan:_value */
static int why(lua_State *L) {
  const neap_memory_plan *plan = neap_lua_plan_at(L, 1);
  const char *a = neap_lua_name(L, 2, "why"), *b = neap_lua_name(L, 3, "why");
  if (neap_memory_plan_value(plan, a) < 0 || neap_memory_plan_value(plan, b) < 0)
    neap_lua_fail(L, NEAP_NAME, "why expects two blobs of the plan");
  char **out = (char **)neap_lua_new_block(L);
  NEAP_LUA_TRY(L, neap_memory_plan_why(plan, a, b, out, &error));
  return neap_lua_push_text(L, out);
}

typedef neap_status text_of(const neap_memory_plan *plan, char **out, neap_error *error);

static int push_words(lua_State *L, text_of *f) {
  const neap_memory_plan *plan = neap_lua_plan_at(L, 1);
  /* In a slot, which frees the text when pushing it raises. */
  char **out = (char **)neap_lua_new_block(L);
  NEAP_LUA_TRY(L, f(plan, out, &error));
  return neap_lua_push_text(L, out);
}

static int peak(lua_State *L) { return push_words(L, neap_memory_plan_peak); }
/* plan:text() -> rows that read back, as the store keeps them; plan:graph_text(): the laid-out
 * graph for people. */
static int text(lua_State *L) { return push_words(L, neap_memory_plan_text); }
static int graph_text(lua_State *L) { return push_words(L, neap_memory_plan_graph_text); }

/* plan:_svg(by_layer [, ns by step, whose time]) -> text */
static int svg(lua_State *L) {
  const neap_memory_plan *plan = neap_lua_plan_at(L, 1);
  lua_settop(L, 4);
  neap_drawing drawing = {.by_layer = lua_toboolean(L, 2)};
  if (!lua_isnil(L, 4)) drawing.times_of = neap_lua_check_string(L, 4);
  if (!lua_isnil(L, 3)) {
    neap_lua_check_type(L, 3, LUA_TTABLE);
    drawing.n_step = neap_lua_length(L, 3);
    int64_t *ns = neap_lua_room(L, ((size_t)drawing.n_step + 1) * sizeof *ns);
    drawing.step_ns = ns;
    for (int s = 0; s < drawing.n_step; s++) {
      lua_rawgeti(L, 3, s + 1);
      ns[s] = neap_lua_check_integer(L, -1);
      lua_pop(L, 1);
    }
  }

  /* Times by step are copied into a room, since the list may change while the text is made. */
  char **out = (char **)neap_lua_new_block(L);
  NEAP_LUA_TRY(L, neap_memory_plan_svg(plan, &drawing, out, &error));
  return neap_lua_push_text(L, out);
}

/* plan:_dot(fold) -> text */
static int dot(lua_State *L) {
  const neap_memory_plan *plan = neap_lua_plan_at(L, 1);
  int fold = neap_lua_to_int(L, neap_lua_opt_integer(L, 2, 0), "fold");
  char **out = (char **)neap_lua_new_block(L);
  NEAP_LUA_TRY(L, neap_memory_plan_dot(plan, fold, out, &error));
  return neap_lua_push_text(L, out);
}

/* plan:verify() -> true; raises `plan` with the two values at fault. */
static int verify(lua_State *L) {
  const neap_memory_plan *plan = neap_lua_plan_at(L, 1);
  NEAP_LUA_TRY(L, neap_memory_plan_verify(plan, &error));
  lua_pushboolean(L, 1);
  return 1;
}

void neap_lua_open_plan(lua_State *L) {
  static const neap_lua_reg meta[] = {{"__close", neap_lua_close, NEAP_LUA_ANY}, {NULL, NULL, 0}};
  static const neap_lua_reg methods[] = {{"_figures", figures, NEAP_LUA_ALONE | 1},
                                         {"_ops", ops, NEAP_LUA_ALONE | 1},
                                         {"_banks", banks, NEAP_LUA_ALONE | 1},
                                         {"_values", values, NEAP_LUA_ALONE | 1},
                                         {"_rewrites", rewrites, NEAP_LUA_ALONE | 1},
                                         {"_regions", regions, NEAP_LUA_ALONE | 1},
                                         {"_kernels", kernels, NEAP_LUA_ALONE | 2},
                                         {"_gone", gone, NEAP_LUA_ALONE | 2},
                                         {"_value", value_of, NEAP_LUA_ALONE | 2},
                                         {"_explain", explain, NEAP_LUA_ALONE | 2},
                                         {"_peak", peak, NEAP_LUA_ALONE | 1},
                                         {"text", text, NEAP_LUA_ALONE | 1},
                                         {"graph_text", graph_text, NEAP_LUA_ALONE | 1},
                                         {"verify", verify, 1},
                                         {"_why", why, NEAP_LUA_ALONE | 3},
                                         {"_tree", tree, NEAP_LUA_ALONE | 1},
                                         {"_dot", dot, NEAP_LUA_ALONE | 2},
                                         {"_svg", svg, NEAP_LUA_ALONE | 4},
                                         {NULL, NULL, 0}};
  neap_lua_class(L, NEAP_LUA_PLAN, "Plan", meta, methods);
  static const neap_lua_reg of_net[] = {{"_plan", make, 3}, {NULL, NULL, 0}};
  lua_getfield(L, -1, "Net");
  neap_lua_functions(L, of_net, true);
  lua_pop(L, 1);
}
