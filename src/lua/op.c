/* op.c: op records as Lua sees them: attributes from tables, one op on tensors at once, and the
 * records as plain tables, from which lua/neap/op.lua makes every function and method, and help. */
#include "lua/binding.h"

#include <stdio.h>
#include <string.h>

const neap_op *neap_lua_op(lua_State *L, int index) {
  const char *name = neap_lua_check_string(L, index);
  const neap_op *op = neap_op_find(name);
  if (op != NULL) return op;
  /* Unknown: the nearest name helps more than a list of all. */
  neap_error error = {0};
  neap_fail(&error, NEAP_NAME, "unknown op type \"%s\"", name);
  const char *near = neap_op_suggest(name);
  if (near != NULL) neap_hint(&error, "did you mean \"%s\"?", near);
  neap_lua_raise(L, &error);
}

/* ---- attributes ------------------------------------------------------------------------------ */

/* About the value at the top of the stack; op and attribute go into the error's fields too. */
_Noreturn static void fail_type(lua_State *L, const neap_op *op, const neap_attr *attr,
                                const char *expected) {
  neap_error error = {0};
  /* luaL_tolstring pushes the text, which the message copies; nothing is popped, since it
   * raises. */
  neap_fail(&error, NEAP_ATTRIBUTE, "%s: %s expects %s, got %s", neap_op_name(op), attr->name,
            expected, luaL_tolstring(L, -1, NULL));
  snprintf(error.op, sizeof error.op, "%s", neap_op_name(op));
  snprintf(error.blob, sizeof error.blob, "%s", attr->name);
  neap_lua_raise(L, &error);
}

static int64_t integer_at_top(lua_State *L, const neap_op *op, const neap_attr *attr,
                              const char *expected) {
  /* A text that looks like a number is none: lua_tointegerx alone would take it. */
  int is_integer = 0;
  lua_Integer i = lua_type(L, -1) == LUA_TNUMBER ? lua_tointegerx(L, -1, &is_integer) : 0;
  if (!is_integer) fail_type(L, op, attr, expected);
  return i;
}

/* Attributes that are numbers have 53 bits: an integer that needs more would become another. */
static double number_at_top(lua_State *L, const neap_op *op, const neap_attr *attr,
                            const char *expected) {
  if (lua_type(L, -1) != LUA_TNUMBER) fail_type(L, op, attr, expected);
  lua_Number x = lua_tonumber(L, -1);
  lua_pushnumber(L, x);
  bool same = x != x || lua_compare(L, -1, -2, LUA_OPEQ);
  lua_pop(L, 1);
  if (!same)
    fail_type(L, op, attr,
              "a number of 53 bits (hint: a tensor keeps larger integers: declare an input and "
              "feed it)");
  return x;
}

/* From 1 to 0-based; negative ones count from the end on both sides. */
static int64_t axis_at_top(lua_State *L, const neap_op *op, const neap_attr *attr) {
  int64_t axis = integer_at_top(L, op, attr, "a dimension (an integer)");
  if (axis == 0) fail_type(L, op, attr, "a dimension from 1, or from -1 at the end");
  return axis > 0 ? axis - 1 : axis;
}

/* Position of `word` in "none|mean|sum", or -1. */
static int choice_of(const char *choices, const char *word) {
  size_t n = strlen(word);
  for (int i = 0;; i++) {
    size_t here = strcspn(choices, "|");
    if (here == n && strncmp(choices, word, n) == 0) return i;
    if (choices[here] == '\0') return -1;
    choices += here + 1;
  }
}

/* Whether the value at the top is a table of its own accord: asking a blob for its elements would
 * add ops. */
static bool is_list_at_top(lua_State *L) {
  if (!lua_istable(L, -1)) return false;
  /* A metatable makes it an object, which is popped again here. */
  if (!lua_getmetatable(L, -1)) return true;
  lua_pop(L, 1);
  return false;
}

/* The list at the top of the stack, or a single number as a list of one. Its room takes the place
 * of the list. */
static void take_list(lua_State *L, const neap_op *op, const neap_attr *attr,
                      neap_attr_value *value) {
  bool single = lua_type(L, -1) == LUA_TNUMBER;
  if (!single && !is_list_at_top(L)) fail_type(L, op, attr, "a list of numbers");

  /* The list may be long: the limit keeps a table with a far length from taking gigabytes. */
  int n = single ? 1 : neap_lua_length(L, -1);
  if (n > 1 << 26) fail_type(L, op, attr, "a list of at most 67,108,864 numbers");

  /* From below: the list, its room, one item. At the end the room takes the list's place. */
  int list = lua_gettop(L);
  int64_t *ints = neap_lua_room(L, (size_t)n * sizeof *ints); /* doubles are as wide */
  double *floats = (double *)(void *)ints;
  for (int i = 0; i < n; i++) {
    if (single)
      lua_pushvalue(L, list);
    else
      lua_rawgeti(L, list, i + 1);
    if (attr->type == NEAP_ATTR_FLOATS)
      floats[i] = number_at_top(L, op, attr, "a list of numbers");
    else
      ints[i] = attr->type == NEAP_ATTR_AXES ? axis_at_top(L, op, attr)
                                             : integer_at_top(L, op, attr, "a list of integers");
    lua_pop(L, 1);
  }
  lua_replace(L, list);
  value->n = n;
  value->ints = ints;
}

/* A list of names; it stays on the stack and keeps them. */
static void take_names(lua_State *L, const neap_op *op, const neap_attr *attr,
                       neap_attr_value *value) {
  if (!is_list_at_top(L)) fail_type(L, op, attr, "a list of names");
  int list = lua_gettop(L), n = neap_lua_length(L, -1);
  const char **names = neap_lua_room(L, (size_t)NEAP_MAX(n, 1) * sizeof *names);
  for (int i = 0; i < n; i++) {
    lua_rawgeti(L, list, i + 1);
    names[i] =
      lua_type(L, -1) == LUA_TSTRING ? neap_intern(neap_lua_text(L, -1, attr->name)) : NULL;
    /* Interned, so that the names outlive the list. Refused memory ends here too. */
    if (names[i] == NULL) fail_type(L, op, attr, "a list of names");
    lua_pop(L, 1);
  }
  lua_replace(L, list);
  value->n = n;
  value->names = names;
}

/* The value at the top of the stack, which stays or becomes the room of a list. */
static void take_value(lua_State *L, const neap_op *op, const neap_attr *attr,
                       neap_attr_value *value) {
  switch (attr->type) {
    case NEAP_ATTR_INT: value->i = integer_at_top(L, op, attr, "an integer"); break;
    case NEAP_ATTR_AXIS: value->i = axis_at_top(L, op, attr); break;
    case NEAP_ATTR_FLOAT: value->f = number_at_top(L, op, attr, "a number"); break;
    case NEAP_ATTR_BOOL:
      if (!lua_isboolean(L, -1)) fail_type(L, op, attr, "true or false");
      value->i = lua_toboolean(L, -1);
      break;
    case NEAP_ATTR_ENUM:
      value->i = lua_type(L, -1) == LUA_TSTRING
                   ? choice_of(attr->choices, neap_lua_text(L, -1, attr->name))
                   : -1;
      if (value->i < 0) fail_type(L, op, attr, attr->choices);
      break;
    case NEAP_ATTR_DTYPE:
      value->i = lua_type(L, -1) == LUA_TSTRING
                   ? (int64_t)neap_dtype_from_name(neap_lua_text(L, -1, attr->name))
                   : 0;
      if (value->i == NEAP_DTYPE_NONE)
        fail_type(L, op, attr, "a dtype (f32 f64 bf16 f16 i8 u8 i16 u16 i32 i64 bool)");
      break;
    case NEAP_ATTR_NET:
      if (neap_lua_test(L, -1, NEAP_LUA_NET) == NULL) fail_type(L, op, attr, "a net");
      value->net = neap_lua_net_at(L, -1)->net;
      break;
    /* These leave a room where the value was. */
    case NEAP_ATTR_INTS:
    case NEAP_ATTR_FLOATS:
    case NEAP_ATTR_AXES: take_list(L, op, attr, value); break;
    case NEAP_ATTR_NAMES: take_names(L, op, attr, value); break;
    case NEAP_ATTR_NONE: break;
  }
}

static bool is_skipped(const char *const *skip, const char *key) {
  for (; skip != NULL && *skip != NULL; skip++)
    if (strcmp(*skip, key) == 0) return true;
  return false;
}

/* Puts attribute `at` of the op into *set from the value at the top of the stack, which stays or
 * becomes the room of a list. */
static void take_attr(lua_State *L, const neap_op *op, int at, neap_set *set) {
  set->name = neap_op_attr_at(op, at)->name;
  set->value.given = true;
  take_value(L, op, neap_op_attr_at(op, at), &set->value);
}

static bool is_list(neap_attr_type type) {
  return type == NEAP_ATTR_INTS || type == NEAP_ATTR_FLOATS || type == NEAP_ATTR_AXES;
}

/* The array part of the table at `index`: attributes in the record's order. Where the first one is
 * a list, the numbers that begin the array are its items: {2, 3, true} of Sum is {axes = {2, 3},
 * keepdim = true}. Returns how many went to `set`. */
static int take_positional(lua_State *L, int index, const neap_op *op, neap_set *set) {
  int n_item = (int)lua_rawlen(L, index), n_attr = neap_op_n_attrs(op), item = 1, n = 0;
  if (n_item == 0) return 0;
  bool joined =
    n_attr > 0 && is_list(neap_op_attr_at(op, 0)->type) && lua_rawgeti(L, index, 1) == LUA_TNUMBER;
  if (joined) {
    /* The numbers that begin the array become a list, on top, which is then read as any list. */
    lua_createtable(L, n_item, 0);
    while (item <= n_item) {
      if (lua_rawgeti(L, index, item) != LUA_TNUMBER) {
        lua_pop(L, 1); /* the first item that is no number belongs to the next attribute */
        break;
      }
      lua_rawseti(L, -2, item);
      item++;
    }
    take_attr(L, op, n, &set[n]);
    n++;
  }

  /* Each value stays on the stack: a list's room, or what the attribute borrows. */
  luaL_checkstack(L, n_item + 8, "too many attributes");
  for (; item <= n_item; item++, n++) {
    if (n >= n_attr)
      neap_lua_fail(L, NEAP_ATTRIBUTE, "%s takes %d attribute%s, got another one by position",
                    neap_op_name(op), n_attr, n_attr == 1 ? "" : "s");
    lua_rawgeti(L, index, item);
    take_attr(L, op, n, &set[n]);
  }
  return n;
}

/* Whether `set` has the attribute in its first n entries. */
static bool is_set(const neap_set *set, int n, const char *name) {
  for (int i = 0; i < n; i++)
    if (strcmp(set[i].name, name) == 0) return true;
  return false;
}

/* Values are checked for type only; ranges, missing and unknown names are the schema check's, whose
 * words C programs get too. */
neap_set *neap_lua_attrs(lua_State *L, int index, const neap_op *op, const char *const *skip) {
  index = lua_absindex(L, index);

  /* The keys are counted in the copy, which nothing changes: how many there are, and how many of
   * them are no texts. */
  int n_key = 0, n_item = 0;
  if (!lua_isnoneornil(L, index)) {
    neap_lua_check_type(L, index, LUA_TTABLE);
    neap_lua_copy(L, index); /* also keeps names and nets that the attributes borrow */
    index = lua_gettop(L);
    for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
      n_key++;
      if (lua_type(L, -2) != LUA_TSTRING) n_item++;
    }
  }
  neap_set *set = neap_lua_room(L, (size_t)(n_key + 1) * sizeof *set);
  if (n_key == 0) return set;

  /* Positions are 1 to n: else one would be passed over unsaid. */
  if (n_item != (int)lua_rawlen(L, index))
    neap_lua_fail(L, NEAP_ATTRIBUTE, "%s: attributes by position are a list from 1 without gaps",
                  neap_op_name(op));

  /* By position first. An initialiser has its op's name there, and nothing else. */
  int n_before = skip == NULL ? take_positional(L, index, op, set) : 0;
  if (skip != NULL && n_item > 1)
    neap_lua_fail(
      L, NEAP_ATTRIBUTE,
      "%s: an initialiser takes its attributes by name, e.g. { \"Constant\", value = 1 }",
      neap_op_name(op));
  luaL_checkstack(L, n_key + 8, "too many attributes");

  /* Then by name, each into the next entry of `set`. */
  neap_set *last = set + n_before;
  lua_pushnil(L);
  while (lua_next(L, index) != 0) {
    const char *key =
      lua_type(L, -2) == LUA_TSTRING ? neap_lua_text(L, -2, neap_op_name(op)) : NULL;
    if (key == NULL || is_skipped(skip, key)) {
      lua_pop(L, 1);
      continue;
    }
    int at = neap_op_attr_index(op, key);
    /* Two values of one attribute: neither is the right one. */
    if (is_set(set, n_before, key))
      neap_lua_fail(L, NEAP_ATTRIBUTE, "%s: %s is given twice, by position and by name",
                    neap_op_name(op), key);
    if (at >= 0) {
      take_attr(L, op, at, last);
    } else { /* alive in the table; for the schema check to report */
      last->name = key;
      last->value.given = true;
    }
    last++;
    lua_insert(L, -2); /* the room of a list stays below the key */
  }
  return set;
}

/* ---- one op at once -------------------------------------------------------------------------- */

/* eager(type, {tensor|false, ..}, attrs, n_out) -> tensors. n_out nil: those that must be there. */
static int eager(lua_State *L) {
  const neap_op *op = neap_lua_op(L, 1);
  neap_lua_check_type(L, 2, LUA_TTABLE);

  /* As many results as the caller wants, else those that must be there. */
  lua_Integer asked = neap_lua_opt_integer(L, 4, neap_op_n_results(op));
  if (asked < 0 || asked > 4096)
    neap_lua_fail(L, NEAP_ARGUMENT, "%s: %lld outputs are asked for", neap_op_name(op),
                  (long long)asked);
  int n_in = NEAP_MIN(neap_lua_length(L, 2), 4096), n_out = (int)asked;

  /* Rooms for both lists, the arguments below them. */
  neap_tensor *in = neap_lua_room(L, (size_t)n_in * sizeof *in),
              *out = neap_lua_room(L, (size_t)n_out * sizeof *out);
  luaL_checkstack(L, n_in + 8, "too many inputs");
  for (int k = 0; k < n_in; k++) {
    /* and stays there: what C borrows is the stack's, not a table's that may change */
    lua_rawgeti(L, 2, k + 1);
    if (lua_toboolean(L, -1)) in[k] = *neap_lua_tensor_at(L, -1);
  }
  neap_set *attrs = neap_lua_attrs(L, 3, op, NULL);
  luaL_checkstack(L, n_out + 4, "too many outputs");

  /* Handles for the outputs, before the op runs: a result must have an owner when the next handle
   * can't be made. */
  int first = lua_gettop(L) + 1;
  for (int k = 0; k < n_out; k++) neap_lua_new_tensor(L);
  NEAP_LUA_TRY(L, neap_run_op(neap_op_name(op), n_in, in, attrs, n_out, out, &error));

  /* They are on top, in order: the results as they are. */
  for (int k = 0; k < n_out; k++) neap_lua_tensor_handle(L, first + k)->t = out[k];
  neap_lua_collect(L);
  return n_out;
}

/* seed(n): of eager random ops. */
static int seed(lua_State *L) {
  neap_draw_seed((uint64_t)neap_lua_check_integer(L, 1));
  return 0;
}

/* draw() -> seed, step: what eager random ops draw by next; draw(seed, step): they go on there. */
static int draw(lua_State *L) {
  if (lua_gettop(L) > 0) {
    neap_draw_resume(&(neap_draw){.seed = (uint64_t)neap_lua_check_integer(L, 1),
                                  .step = (uint32_t)neap_lua_check_integer(L, 2)});
    return 0;
  }
  neap_draw next = neap_draw_look();
  lua_pushinteger(L, (lua_Integer)next.seed);
  lua_pushinteger(L, next.step);
  return 2;
}

/* ---- records as tables ----------------------------------------------------------------------- */

/* A list of names; the empty set is that of the floats. */
static void push_dtypes(lua_State *L, unsigned set) {
  lua_newtable(L);
  int n = 0;
  /* 0 is no dtype. */
  for (int d = 1; d < NEAP_N_DTYPE; d++)
    if (set == 0 ? neap_dtype_is_float((neap_dtype)d) : (set >> d & 1u) != 0) {
      lua_pushstring(L, neap_dtype_name((neap_dtype)d));
      lua_seti(L, -2, ++n);
    }
}

/* {name, doc, optional, variadic, stash, wide, dtypes} each. */
static void push_args(lua_State *L, const neap_arg *args, int n) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_createtable(L, 0, 7);
    neap_lua_set_text(L, "name", args[i].name);
    neap_lua_set_text(L, "doc", args[i].doc);
    neap_lua_set_bool(L, "optional", (args[i].flags & NEAP_ARG_OPTIONAL) != 0);
    neap_lua_set_bool(L, "variadic", (args[i].flags & NEAP_ARG_VARIADIC) != 0);
    neap_lua_set_bool(L, "stash", (args[i].flags & NEAP_ARG_STASH) != 0);
    neap_lua_set_bool(L, "wide", (args[i].flags & NEAP_ARG_WIDE) != 0);
    push_dtypes(L, args[i].dtypes);
    lua_setfield(L, -2, "dtypes");
    lua_seti(L, -2, i + 1);
  }
}

/* As people count: from 1, or from -1 at the end. */
static lua_Integer axis_said(int64_t axis) { return axis >= 0 ? axis + 1 : axis; }

/* As a user would write it: axes from 1, choices by name; nil for subnets and names, which have
 * none. */
void neap_lua_push_attr(lua_State *L, const neap_attr *attr, const neap_attr_value *value) {
  switch (attr->type) {
    case NEAP_ATTR_FLOAT: lua_pushnumber(L, value->f); return;
    case NEAP_ATTR_BOOL: lua_pushboolean(L, value->i != 0); return;
    case NEAP_ATTR_INT: lua_pushinteger(L, value->i); return;
    case NEAP_ATTR_AXIS: lua_pushinteger(L, axis_said(value->i)); return;
    case NEAP_ATTR_DTYPE: lua_pushstring(L, neap_dtype_name((neap_dtype)value->i)); return;
    case NEAP_ATTR_ENUM: {
      /* The word at that place among "none|mean|sum". */
      const char *text = attr->choices;
      for (int64_t i = 0; i < value->i; i++) text += strcspn(text, "|") + 1;
      lua_pushlstring(L, text, strcspn(text, "|"));
      return;
    }
    case NEAP_ATTR_INTS:
    case NEAP_ATTR_FLOATS:
    case NEAP_ATTR_AXES:
      lua_createtable(L, value->n, 0);
      for (int i = 0; i < value->n; i++) {
        if (attr->type == NEAP_ATTR_FLOATS)
          lua_pushnumber(L, value->floats[i]);
        else
          lua_pushinteger(
            L, attr->type == NEAP_ATTR_AXES ? axis_said(value->ints[i]) : value->ints[i]);
        lua_seti(L, -2, i + 1);
      }
      return;
    default: lua_pushnil(L);
  }
}

/* {name, doc, type, choices, required, least, most, default} each. */
static void push_attrs(lua_State *L, const neap_op *op) {
  static const char *const type[] = {
    [NEAP_ATTR_NONE] = "",     [NEAP_ATTR_INT] = "int",       [NEAP_ATTR_FLOAT] = "float",
    [NEAP_ATTR_BOOL] = "bool", [NEAP_ATTR_ENUM] = "enum",     [NEAP_ATTR_DTYPE] = "dtype",
    [NEAP_ATTR_INTS] = "ints", [NEAP_ATTR_FLOATS] = "floats", [NEAP_ATTR_AXIS] = "axis",
    [NEAP_ATTR_AXES] = "axes", [NEAP_ATTR_NAMES] = "names",   [NEAP_ATTR_NET] = "net"};
  int n = neap_op_n_attrs(op);
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    const neap_attr *attr = neap_op_attr_at(op, i);
    lua_createtable(L, 0, 6);
    /* What help shows, and what a value must keep. */
    neap_lua_set_text(L, "name", attr->name);
    neap_lua_set_text(L, "doc", attr->doc);
    neap_lua_set_text(L, "type", type[attr->type]);
    neap_lua_set_text(L, "choices", attr->choices);
    neap_lua_set_bool(L, "required", attr->required);
    if (attr->least != 0 || attr->most != 0) { /* inclusive range */
      lua_pushnumber(L, attr->least);
      lua_setfield(L, -2, "least");
      lua_pushnumber(L, attr->most);
      lua_setfield(L, -2, "most");
    }
    /* Subnets and names have none: nil sets no field. */
    neap_lua_push_attr(L, attr, &attr->value);
    lua_setfield(L, -2, "default");
    lua_seti(L, -2, i + 1);
  }
}

/* Pairs (input, output), counted from 1. */
static void push_pairs(lua_State *L, const neap_pair *pairs, int n) {
  lua_createtable(L, n, 0);
  for (int i = 0; i < n; i++) {
    lua_createtable(L, 2, 0);
    lua_pushinteger(L, pairs[i].in + 1);
    lua_seti(L, -2, 1);
    lua_pushinteger(L, pairs[i].out + 1);
    lua_seti(L, -2, 2);
    lua_seti(L, -2, i + 1);
  }
}

/* Names of the engines, the preferred first, each once. */
static void push_engines(lua_State *L, const neap_op_record *r) {
  int n = 0;
  lua_newtable(L);
  for (int k = 0; k < r->n_kernel; k++) {
    bool seen = false; /* by address: there is one text of a name */
    for (int before = 0; before < k; before++)
      seen = seen || r->kernel[before].engine == r->kernel[k].engine;
    if (seen) continue;
    lua_pushstring(L, r->kernel[k].engine);
    lua_seti(L, -2, ++n);
  }
}

/* {engine, infinity, dtypes} each, in the order in which they are tried. */
static void push_kernels(lua_State *L, const neap_op_record *r) {
  lua_createtable(L, r->n_kernel, 0);
  for (int k = 0; k < r->n_kernel; k++) {
    lua_createtable(L, 0, 3);
    neap_lua_set_text(L, "engine", r->kernel[k].engine);
    neap_lua_set_text(L, "infinity", r->kernel[k].infinity);
    push_dtypes(L, r->kernel[k].dtypes);
    lua_setfield(L, -2, "dtypes");
    lua_seti(L, -2, k + 1);
  }
}

/* record(name) -> {name, summary, math, example, source, cases, long_cases, internal, control,
 * inputs, outputs, attrs, engines, kernels, gradient, inplace, enforced, nan, infinity, empty, sum,
 * sum_error, special} */
static int record(lua_State *L) {
  const neap_op *op = neap_lua_op(L, 1);
  neap_op_record r = neap_op_read(op);
  lua_createtable(L, 0, 23);

  /* What it does, in words. */
  neap_lua_set_text(L, "name", r.name);
  neap_lua_set_text(L, "summary", r.summary);
  neap_lua_set_text(L, "math", r.math);
  neap_lua_set_text(L, "example", r.example);
  neap_lua_set_text(L, "source", r.source);
  neap_lua_set_text(L, "cases", r.cases);
  neap_lua_set_text(L, "long_cases", r.long_cases);

  /* What it is to the library. */
  neap_lua_set_bool(L, "internal", r.internal);
  neap_lua_set_bool(L, "control", r.control);
  neap_lua_set_bool(L, "extent", r.extent);
  neap_lua_set_bool(L, "random", r.random);
  neap_lua_set_bool(L, "gradient", r.gradient);
  neap_lua_set_bool(L, "no_grad", r.no_grad);

  /* What it makes of numbers that are out of the ordinary. */
  neap_lua_set_text(L, "nan", r.nan);
  neap_lua_set_text(L, "infinity", r.infinity);
  neap_lua_set_text(L, "empty", r.empty);
  neap_lua_set_text(L, "sum", r.sum);
  lua_pushnumber(L, r.sum_error);
  lua_setfield(L, -2, "sum_error");
  neap_lua_set_text(L, "special", r.special);

  /* Lists: each is pushed above the table, which takes it. */
  push_args(L, r.input, r.n_input);
  lua_setfield(L, -2, "inputs");
  push_args(L, r.output, r.n_output);
  lua_setfield(L, -2, "outputs");
  push_attrs(L, op);
  lua_setfield(L, -2, "attrs");
  push_pairs(L, r.inplace, r.n_inplace);
  lua_setfield(L, -2, "inplace");
  push_pairs(L, r.enforced, r.n_enforced);
  lua_setfield(L, -2, "enforced");
  push_engines(L, &r);
  lua_setfield(L, -2, "engines");
  push_kernels(L, &r);
  lua_setfield(L, -2, "kernels");
  return 1;
}

/* op_names() -> list of all names, internal ones included. */
static int op_names(lua_State *L) {
  lua_createtable(L, neap_op_count(), 0);
  for (int i = 0; i < neap_op_count(); i++) {
    lua_pushstring(L, neap_op_name(neap_op_at(i)));
    lua_seti(L, -2, i + 1);
  }
  return 1;
}

static int op_help(lua_State *L) {
  const neap_op *op = neap_lua_op(L, 1);
  char **text = (char **)neap_lua_new_block(L);
  NEAP_LUA_TRY(L, neap_op_help(op, text, &error));
  lua_pushstring(L, *text);
  return 1;
}

static int suggest(lua_State *L) {
  lua_pushstring(L, neap_op_suggest(neap_lua_check_lstring(L, 1, NULL)));
  return 1;
}

void neap_lua_open_op(lua_State *L) {
  static const neap_lua_reg functions[] = {{"eager", eager, 4},       {"seed", seed, 1},
                                           {"draw", draw, 2},         {"record", record, 1},
                                           {"op_names", op_names, 0}, {"op_help", op_help, 1},
                                           {"suggest", suggest, 1},   {NULL, NULL, 0}};
  neap_lua_functions(L, functions, false);
}
