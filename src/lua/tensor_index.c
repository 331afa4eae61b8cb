/* tensor_index.c: x[key] and x[key] = value.
 *
 *   x[3]  x[-1]                        a position of the first dimension
 *   x[{ 2, {}, {1, 5}, {1, -1, 2} }]   per dimension: a position, all, a range (both ends
 *                                      included), a range with a step
 *   x[mask]                            the elements where a bool tensor of the same shape is true
 *
 * A key that names one position of every dimension gives a Lua number; other keys give a view, a
 * mask gives a copy.
 */
#include "lua/binding.h"

/* Whether the key is a tensor, which is then a mask for t: raises `dtype` unless it is bool,
 * `shape` unless it has t's. */
static bool is_mask(lua_State *L, int index, const neap_tensor *t) {
  if (!neap_lua_is_tensor(L, index)) return false;
  const neap_tensor *mask = neap_lua_tensor_at(L, index);
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  if (mask->dtype != NEAP_DTYPE_BOOL)
    neap_lua_fail(L, NEAP_DTYPE, "a mask expects a bool tensor, got %s; x:gt(0) makes one",
                  neap_dtype_name(mask->dtype));
  if (!neap_shape_equal(&mask->shape, &t->shape))
    neap_lua_fail(L, NEAP_SHAPE, "a mask of shape %s expects a tensor of the same, got %s",
                  neap_shape_text(&mask->shape, a), neap_shape_text(&t->shape, b));
  return true;
}

static int64_t count_true(const neap_tensor *mask) {
  int64_t n = 0;
  neap_lua_walk walk;
  for (neap_lua_walk_start(&walk, mask); !walk.done; neap_lua_walk_next(&walk, mask))
    n += neap_element_get(NEAP_DTYPE_BOOL, neap_tensor_data(mask), walk.offset) != 0;
  return n;
}

/* Copies between the elements of `t` that the mask picks and those of `line` (n), of one number for
 * all where it is a scalar. A mask that has been changed since it was counted picks no more
 * than n. */
static void move_masked(const neap_tensor *t, const neap_tensor *mask, const neap_tensor *line,
                        bool to_line) {
  neap_lua_walk i, j;
  int64_t k = 0, n = line->shape.n_dim > 0 ? line->shape.dim[0] : INT64_MAX;
  neap_lua_walk_start(&j, mask);
  for (neap_lua_walk_start(&i, t); !i.done && k < n;
       neap_lua_walk_next(&i, t), neap_lua_walk_next(&j, mask)) {
    if (neap_element_get(NEAP_DTYPE_BOOL, neap_tensor_data(mask), j.offset) == 0) continue;
    /* The k-th element picked and the k-th of the line; a scalar has one for all. */
    const neap_tensor *from = to_line ? t : line, *to = to_line ? line : t;
    int64_t at_line = line->shape.n_dim > 0 ? k * line->stride[0] : 0;
    int64_t at_from = to_line ? i.offset : at_line;
    int64_t at_to = to_line ? at_line : i.offset;
    /* By integers where it is one: doubles would round those above 2^53. */
    if (neap_dtype_is_integer(from->dtype))
      neap_element_set_i64(to->dtype, neap_tensor_data(to), at_to,
                           neap_element_get_i64(from->dtype, neap_tensor_data(from), at_from));
    else
      neap_element_set(to->dtype, neap_tensor_data(to), at_to,
                       neap_element_get(from->dtype, neap_tensor_data(from), at_from));
    k++;
  }
  neap_tensor_touch(to_line ? line : t);
}

/* Pushes a new tensor (n) of the n elements that the mask picks. */
static int read_masked(lua_State *L, const neap_tensor *t) {
  const neap_tensor *mask = neap_lua_tensor_at(L, 2);
  neap_shape shape = NEAP_SHAPE(count_true(mask));
  /* Making the handle may run finalisers, and these may change the mask: move_masked keeps within
   * the shape. */
  neap_lua_tensor *out = neap_lua_new_tensor(L);
  NEAP_LUA_TRY(L, neap_tensor_new(&out->t, t->dtype, &shape, &error));
  move_masked(t, mask, &out->t, true);
  neap_lua_collect(L);
  return 1;
}

/* Raises unless the table at `index` is a list from 1 without gaps and nothing else; returns its
 * length. */
static lua_Integer list_length(lua_State *L, int index, const char *what) {
  lua_Integer n = (lua_Integer)lua_rawlen(L, index), n_key = 0;
  index = lua_absindex(L, index);
  for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1)) {
    n_key++;
    if (lua_type(L, -2) == LUA_TSTRING)
      neap_lua_fail(L, NEAP_ARGUMENT, "%s: unknown field \"%s\"", what, lua_tostring(L, -2));
  }
  if (n_key != n)
    neap_lua_fail(L, NEAP_ARGUMENT, "%s: a list from 1 without gaps is expected", what);
  return n;
}

/* One entry of a key table, at the top of the stack, for dimension `d` of *view, which is
 * replaced. */
static void take_entry(lua_State *L, neap_lua_tensor *view, int *d) {
  neap_tensor next = {0};
  int64_t size = view->t.shape.dim[*d];
  if (lua_isinteger(L, -1)) {
    /* A position drops the dimension: *d is the next one as it is. */
    int64_t i = neap_lua_position(L, lua_tointeger(L, -1), size, "position");
    NEAP_LUA_TRY(L, neap_tensor_select(&view->t, *d, i, &next, &error));
  } else if (lua_istable(L, -1)) {
    /* A range: {} is all. Its items are pushed, read and popped. */
    lua_Integer n = list_length(L, -1, "a range"), at[3] = {1, -1, 1};
    if (n == 1 || n > 3)
      neap_lua_fail(L, NEAP_ARGUMENT,
                    "a range is {}, {from, to} or {from, to, step}, got %lld items", (long long)n);
    for (int k = 0; k < (int)n; k++) {
      lua_rawgeti(L, -1, k + 1);
      if (!lua_isinteger(L, -1))
        neap_lua_fail(L, NEAP_ARGUMENT, "a range expects integers, got a %s", luaL_typename(L, -1));
      at[k] = lua_tointeger(L, -1);
      lua_pop(L, 1);
    }
    if (at[2] == 0) neap_lua_fail(L, NEAP_ARGUMENT, "a range with step 0");
    /* Both ends count from 0 from here on. {} is all, also of an empty dimension, where no position
     * could be named. */
    int64_t from = 0, to = size - 1;
    if (n > 0) {
      from = neap_lua_position(L, at[0], size, "position");
      to = neap_lua_position(L, at[1], size, "position");
    }
    /* An end that lies behind the start, as the step goes, leaves nothing. */
    int64_t count = (to - from) / at[2] + 1;
    if ((to - from) * (at[2] > 0 ? 1 : -1) < 0) count = 0;
    NEAP_LUA_TRY(
      L, neap_tensor_narrow(&view->t, *d, count > 0 ? from : 0, count, at[2], &next, &error));
    (*d)++;
  } else {
    neap_lua_fail(L, NEAP_ARGUMENT, "a position is an integer or a range {from, to}, got a %s",
                  luaL_typename(L, -1));
  }

  /* The view so far goes once the next one is made: a raise before leaves the handle whole. */
  neap_tensor_fini(&view->t);
  view->t = next;
}

/* Pushes the view that the key at index 2 names. Returns whether the key named one position of
 * every dimension. */
static bool push_picked(lua_State *L, const neap_tensor *t) {
  char text[NEAP_SHAPE_TEXT];

  /* The handle stays on top of the arguments; each entry of the key narrows its tensor. */
  neap_lua_tensor *view = neap_lua_new_view(L, 1);
  view->t = neap_tensor_retain(t);
  int d = 0;

  /* A number is a key of one entry. */
  if (lua_type(L, 2) == LUA_TNUMBER) {
    if (t->shape.n_dim == 0)
      neap_lua_fail(L, NEAP_SHAPE, "a scalar has no positions; x:item() is its number");
    lua_pushvalue(L, 2);
    take_entry(L, view, &d);
    lua_pop(L, 1);
    return t->shape.n_dim == 1;
  }
  if (!lua_istable(L, 2))
    neap_lua_fail(L, NEAP_ARGUMENT,
                  "a tensor is indexed by a position, a table or a mask, got a %s",
                  luaL_typename(L, 2));
  lua_Integer n = list_length(L, 2, "a key");
  if (n > t->shape.n_dim)
    neap_lua_fail(L, NEAP_SHAPE, "%lld positions for a tensor of shape %s", (long long)n,
                  neap_shape_text(&t->shape, text));
  for (lua_Integer k = 1; k <= n; k++) {
    lua_rawgeti(L, 2, k);
    take_entry(L, view, &d);
    lua_pop(L, 1);
  }

  /* Dimensions that are ranges were counted by d. */
  return d == 0 && n == t->shape.n_dim && n > 0;
}

int neap_lua_tensor_index(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  if (is_mask(L, 2, t)) return read_masked(L, t);
  /* One past the end reads nil, so that ipairs stops. */
  if (lua_isinteger(L, 2) && t->shape.n_dim > 0 && lua_tointeger(L, 2) == t->shape.dim[0] + 1)
    return lua_pushnil(L), 1;
  if (push_picked(L, t)) {
    /* The view is below its only element, which is the result. */
    const neap_lua_tensor *view = neap_lua_tensor_handle(L, -1);
    neap_lua_push_element(L, &view->t, 0);
  }
  return 1;
}

/* Pushes the value at index 3 as a tensor: itself, or a number, boolean or table as a new one of
 * `dtype`. */
static const neap_tensor *push_value(lua_State *L, neap_dtype dtype) {
  if (neap_lua_is_tensor(L, 3)) {
    lua_pushvalue(L, 3);
    return neap_lua_tensor_at(L, -1);
  }
  neap_lua_tensor *made = neap_lua_new_tensor(L);
  neap_lua_tensor_from(L, 3, dtype, &made->t);
  return &made->t;
}

int neap_lua_tensor_new_index(lua_State *L) {
  const neap_tensor *t = neap_lua_writable_at(L, 1);
  if (is_mask(L, 2, t)) {
    /* Picked by a mask: one value for all, or one for each. */
    const neap_tensor *mask = neap_lua_tensor_at(L, 2), *value = push_value(L, t->dtype);
    int64_t n = count_true(mask);
    char text[NEAP_SHAPE_TEXT];
    if (value->shape.n_dim > 1 || (value->shape.n_dim == 1 && value->shape.dim[0] != n))
      neap_lua_fail(L, NEAP_SHAPE, "the mask picks %lld elements, got %s for them", (long long)n,
                    neap_shape_text(&value->shape, text));
    move_masked(t, mask, value, false);
    return 0;
  }

  /* Picked by a key: the view is on top. */
  push_picked(L, t);
  const neap_lua_tensor *view = neap_lua_tensor_handle(L, -1);
  if (view->t.shape.n_dim == 0 &&
      (lua_type(L, 3) == LUA_TNUMBER || lua_type(L, 3) == LUA_TBOOLEAN)) {
    neap_lua_set_element(L, &view->t, 0, 3);
    return 0;
  }

  /* All of a view is written, broadcast from a tensor or from what Lua gives. */
  neap_lua_check_whole(L, &view->t, "an assignment");
  const neap_tensor *value = push_value(L, t->dtype);
  NEAP_LUA_TRY(L, neap_tensor_copy(&view->t, value, &error));
  return 0;
}
