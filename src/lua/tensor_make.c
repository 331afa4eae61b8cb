/* tensor_make.c: new tensors: from Lua tables, filled with one value, ranges, the identity. */
#include "lua/binding.h"

#include <math.h>
#include <string.h>

/* ---- from Lua values ------------------------------------------------------------------------- */

/* The shape of nested tables, from their first items; ragged ones are found while filling. Leaves
 * the first leaf pushed. */
static void nested_shape(lua_State *L, int index, neap_shape *shape) {
  *shape = (neap_shape){0};
  /* On top is the first item of each depth, in the place of the table that held it. */
  lua_pushvalue(L, index);
  while (lua_istable(L, -1)) {
    if (shape->n_dim == NEAP_MAX_DIM)
      neap_lua_fail(L, NEAP_ARGUMENT, "tables are nested deeper than %d", NEAP_MAX_DIM);
    lua_Integer n = luaL_len(L, -1);
    shape->dim[shape->n_dim++] = n;
    lua_geti(L, -1, 1);
    lua_replace(L, -2);
    if (n == 0) break;
  }
}

/* Fills t from dimension d on, at element `offset`, from the value on top of the stack. Raises
 * `argument` for a table whose length differs from t's, which has that of the first table at each
 * depth. */
static void fill_nested(lua_State *L, const neap_tensor *t, int d, int64_t offset) {
  if (d == t->shape.n_dim) {
    neap_lua_set_element(L, t, offset, -1);
    return;
  }

  /* An item of each depth lies on the stack at once. */
  luaL_checkstack(L, 2, "nesting");
  if (!lua_istable(L, -1) || luaL_len(L, -1) != t->shape.dim[d]) {
    neap_lua_fail(L, NEAP_ARGUMENT,
                  "the table is ragged: an item at depth %d has %lld items, the first one %lld", d,
                  lua_istable(L, -1) ? (long long)luaL_len(L, -1) : 0, (long long)t->shape.dim[d]);
  }

  /* As many items as the shape has there, whatever the table says by now. */
  for (int64_t i = 0; i < t->shape.dim[d]; i++) {
    lua_geti(L, -1, i + 1);
    fill_nested(L, t, d + 1, offset + i * t->stride[d]);
    lua_pop(L, 1);
  }
}

void neap_lua_tensor_from(lua_State *L, int index, neap_dtype dtype, neap_tensor *out) {
  index = lua_absindex(L, index);
  int type = lua_type(L, index);
  if (type != LUA_TTABLE && type != LUA_TNUMBER && type != LUA_TBOOLEAN)
    neap_lua_fail(L, NEAP_ARGUMENT,
                  "a tensor is made from a number, a boolean or a nested table, got a %s",
                  luaL_typename(L, index));

  /* The first leaf is on top: without a dtype it says which. */
  neap_shape shape;
  nested_shape(L, index, &shape);
  if (dtype == NEAP_DTYPE_NONE) dtype = lua_isboolean(L, -1) ? NEAP_DTYPE_BOOL : NEAP_DTYPE_F32;
  lua_pop(L, 1);
  NEAP_LUA_TRY(L, neap_tensor_new(out, dtype, &shape, &error));

  /* The value on top is filled in. A table may say another length now, as its metamethods please:
   * what is written stays within the shape. */
  lua_pushvalue(L, index);
  fill_nested(L, out, 0, 0);
  lua_pop(L, 1);
}

/* tensor(value [, dtype]) */
static int tensor(lua_State *L) {
  neap_dtype dtype = neap_lua_dtype(L, 2, NEAP_DTYPE_NONE);
  if (neap_lua_is_tensor(L, 1)) {
    /* A tensor is copied, whatever dtype. */
    const neap_tensor *from = neap_lua_tensor_at(L, 1);
    neap_lua_tensor *out = neap_lua_new_tensor(L);
    NEAP_LUA_TRY(L, neap_tensor_clone(from, dtype, &out->t, &error));
  } else {
    neap_lua_tensor *out = neap_lua_new_tensor(L);
    neap_lua_tensor_from(L, 1, dtype, &out->t);
  }
  neap_lua_collect(L);
  return 1;
}

/* ---- filled ---------------------------------------------------------------------------------- */

/* What an unknown field may have been meant for. */
static const char *guess(const char *key, bool has_value) {
  if (neap_text_distance(key, "dtype") <= 2) return ", did you mean \"dtype\"?";
  if (has_value && neap_text_distance(key, "value") <= 2) return ", did you mean \"value\"?";
  return "; sizes come first, then dtype = \"f32\"";
}

/* Options of zeros(3, 4) and zeros{3, 4, dtype = "i64"}; *value is the stack index of `value`,
 * which is 0 without, and where the function has none. */
static neap_dtype shape_and_dtype(lua_State *L, const char *who, bool has_value, neap_shape *shape,
                                  int *value) {
  *value = 0;
  if (!lua_istable(L, 1)) {
    neap_lua_shape(L, 1, shape, who);
    return NEAP_DTYPE_F32;
  }
  if (lua_gettop(L) > 1)
    neap_lua_fail(L, NEAP_ARGUMENT, "%s takes one table, got %d arguments", who, lua_gettop(L));

  /* From below: 1, a copy of the table; 2, its sizes, without the fields. */
  lua_newtable(L); /* the sizes */
  neap_lua_copy(L, 1);
  lua_replace(L, 1);
  for (lua_pushnil(L); lua_next(L, 1) != 0; lua_pop(L, 1)) {
    const char *key = lua_type(L, -2) == LUA_TSTRING ? neap_lua_text(L, -2, who) : NULL;
    if (key == NULL) {
      /* From below: key, value, key, value; the upper two go among the sizes. */
      lua_pushvalue(L, -2);
      lua_pushvalue(L, -2);
      lua_rawset(L, 2);
    } else if (strcmp(key, "dtype") != 0 && !(has_value && strcmp(key, "value") == 0)) {
      neap_lua_fail(L, NEAP_ARGUMENT, "%s: unknown field \"%s\"%s", who, key,
                    guess(key, has_value));
    }
  }
  neap_lua_shape(L, 2, shape, who);
  neap_lua_field(L, 1, "dtype");
  neap_dtype dtype = neap_lua_dtype(L, -1, NEAP_DTYPE_F32);
  if (neap_lua_field(L, 1, "value") != LUA_TNIL) *value = lua_gettop(L);
  return dtype;
}

/* Pushes a new tensor, contents undefined; Lua's collector gets its turn for the bytes. */
static neap_lua_tensor *push_new(lua_State *L, neap_dtype dtype, neap_shape shape) {
  neap_lua_tensor *out = neap_lua_new_tensor(L);
  NEAP_LUA_TRY(L, neap_tensor_new(&out->t, dtype, &shape, &error));
  neap_lua_collect(L);
  return out;
}

/* A new tensor with every element `value`, or with the value at stack index `at` when it is not
 * 0. */
static int filled(lua_State *L, neap_dtype dtype, const neap_shape *shape, double value, int at) {
  /* A scalar of the value, copied to all: the copy broadcasts. */
  neap_lua_tensor *one = push_new(L, dtype, (neap_shape){0});
  if (at != 0)
    neap_lua_set_element(L, &one->t, 0, at);
  else
    neap_element_set(dtype, neap_tensor_data(&one->t), 0, value);
  neap_lua_tensor *out = push_new(L, dtype, *shape);
  NEAP_LUA_TRY(L, neap_tensor_copy(&out->t, &one->t, &error));
  return 1;
}

static int zeros(lua_State *L) {
  neap_shape shape;
  int at;
  neap_dtype dtype = shape_and_dtype(L, "neap.zeros", false, &shape, &at);
  return filled(L, dtype, &shape, 0, 0);
}

static int ones(lua_State *L) {
  neap_shape shape;
  int at;
  neap_dtype dtype = shape_and_dtype(L, "neap.ones", false, &shape, &at);
  return filled(L, dtype, &shape, 1, 0);
}

/* full{3, 4, value = 7} */
static int full(lua_State *L) {
  neap_shape shape;
  int at;
  neap_dtype dtype = shape_and_dtype(L, "neap.full", true, &shape, &at);
  if (at == 0)
    neap_lua_fail(L, NEAP_ARGUMENT,
                  "neap.full expects value = number beside the sizes, e.g. neap.full { 3, 4, "
                  "value = 7 }; numbers by position are sizes");
  return filled(L, dtype, &shape, 0, at);
}

/* Contents undefined. */
static int empty(lua_State *L) {
  neap_shape shape;
  int at;
  neap_dtype dtype = shape_and_dtype(L, "neap.empty", false, &shape, &at);
  push_new(L, dtype, shape);
  return 1;
}

/* like(x [, value]): zeros, or `value`, of x's shape and dtype. */
static int like(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  return filled(L, t->dtype, &t->shape, 0, lua_isnoneornil(L, 2) ? 0 : 2);
}

/* ---- ranges ---------------------------------------------------------------------------------- */

/* Element i of a range. Fractions are rounded to an integer dtype; what lies beyond its range is an
 * error, as of any number that a script writes. */
static void set_in_range(lua_State *L, const neap_tensor *t, int64_t i, double x) {
  lua_pushnumber(L, neap_dtype_is_integer(t->dtype) ? rint(x) : x);
  neap_lua_set_element(L, t, i, -1);
  lua_pop(L, 1);
}

/* arange(a, b [, step [, dtype]]): a, a + step, .. before b; arange(n) is 0 .. n - 1. */
static int arange(lua_State *L) {
  double a = neap_lua_check_number(L, 1), b = 0, step = neap_lua_opt_number(L, 3, 1);
  if (lua_isnoneornil(L, 2)) {
    b = a;
    a = 0;
  } else {
    b = neap_lua_check_number(L, 2);
  }
  neap_dtype dtype = neap_lua_dtype(L, 4, NEAP_DTYPE_F32);

  /* Steps from a to b. NaN fails the second test, and so does infinity. */
  double n = step != 0 ? (b - a) / step : -1;
  if (!(step != 0) || !(n < 0x1p40))
    neap_lua_fail(L, NEAP_ARGUMENT, "arange from %g to %g in steps of %g has no end", a, b, step);

  /* Rounded up: b itself is left out, what lies before it is not. */
  int64_t count = n > 0 ? (int64_t)n + ((double)(int64_t)n < n) : 0;
  neap_lua_tensor *out = push_new(L, dtype, neap_shape_of(1, &count));
  for (int64_t i = 0; i < count; i++) set_in_range(L, &out->t, i, a + (double)i * step);
  return 1;
}

/* linspace(a, b, n [, dtype]): n numbers from a to b, both included; one number is a, as in NumPy
 * and PyTorch. */
static int linspace(lua_State *L) {
  double a = neap_lua_check_number(L, 1), b = neap_lua_check_number(L, 2);
  lua_Integer n = neap_lua_check_integer(L, 3);
  neap_dtype dtype = neap_lua_dtype(L, 4, NEAP_DTYPE_F32);
  if (n < 0) neap_lua_fail(L, NEAP_ARGUMENT, "linspace expects a count, got %lld", (long long)n);
  neap_lua_tensor *out = push_new(L, dtype, neap_shape_of(1, (const int64_t[]){n}));
  for (int64_t i = 0; i < n; i++) {
    /* b as it was given is the last one, not what rounding leaves of it. */
    double x = i == 0 ? a : a + (b - a) * (double)i / (double)(n - 1);
    set_in_range(L, &out->t, i, i > 0 && i == n - 1 ? b : x);
  }
  return 1;
}

/* eye(n [, m [, dtype]]) */
static int eye(lua_State *L) {
  lua_Integer n = neap_lua_check_integer(L, 1), m = neap_lua_opt_integer(L, 2, n);
  neap_dtype dtype = neap_lua_dtype(L, 3, NEAP_DTYPE_F32);
  if (n < 0 || m < 0)
    neap_lua_fail(L, NEAP_ARGUMENT, "eye expects sizes, got %lld and %lld", (long long)n,
                  (long long)m);
  neap_shape shape = NEAP_SHAPE(n, m);
  filled(L, dtype, &shape, 0, 0);
  const neap_lua_tensor *out = neap_lua_tensor_handle(L, -1);
  /* The tensor is dense: a row and one element further is the next of the diagonal. */
  for (int64_t i = 0; i < NEAP_MIN(n, m); i++)
    neap_element_set(dtype, neap_tensor_data(&out->t), i * (m + 1), 1);
  return 1;
}

const neap_lua_reg neap_lua_tensor_makers[] = {{"tensor", tensor, 2},
                                               {"zeros", zeros, NEAP_LUA_ANY},
                                               {"ones", ones, NEAP_LUA_ANY},
                                               {"full", full, NEAP_LUA_ANY},
                                               {"empty", empty, NEAP_LUA_ANY},
                                               {"like", like, 2},
                                               {"arange", arange, 4},
                                               {"linspace", linspace, 4},
                                               {"eye", eye, 3},
                                               {NULL, NULL, 0}};
