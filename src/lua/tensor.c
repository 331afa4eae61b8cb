/* tensor.c: the tensor handle: its life, elements, casts and in-place methods. A handle holds one
 * view of a storage; a view borrowed from a workspace also knows when its bytes were good. */
#include "lua/binding.h"

#include <math.h>
#include <string.h>

/* ---- the handle ------------------------------------------------------------------------------ */

static void free_tensor(lua_State *L, void *at) {
  neap_lua_tensor *handle = at;
  (void)L;
  if (handle->t.storage != NULL) neap_tensor_fini(&handle->t);
  if (handle->ws != NULL) neap_workspace_release(handle->ws);
  handle->ws = NULL;
}

neap_lua_tensor *neap_lua_new_tensor(lua_State *L) {
  return neap_lua_new(L, sizeof(neap_lua_tensor), NEAP_LUA_TENSOR, free_tensor);
}

neap_lua_tensor *neap_lua_tensor_handle(lua_State *L, int index) {
  return neap_lua_any(L, index, NEAP_LUA_TENSOR);
}

/* The tensor is the caller's to fill in: what goes along is how long its bytes are good, and the
 * name. */
neap_lua_tensor *neap_lua_new_view(lua_State *L, int index) {
  const neap_lua_tensor *from = neap_lua_tensor_handle(L, index);
  /* The handle first, then what it owns: nothing below raises. */
  neap_lua_tensor *view = neap_lua_new_tensor(L);
  if (from->ws != NULL) view->ws = neap_workspace_retain(from->ws);
  view->generation = from->generation;
  view->name = from->name;
  return view;
}

bool neap_lua_is_tensor(lua_State *L, int index) {
  return neap_lua_test(L, index, NEAP_LUA_TENSOR) != NULL;
}

neap_tensor *neap_lua_tensor_at(lua_State *L, int index) {
  neap_lua_tensor *handle = neap_lua_at(L, index, NEAP_LUA_TENSOR);
  if (handle->t.storage == NULL) neap_lua_fail(L, NEAP_RELEASED, "the tensor was closed");

  /* A run has used the bytes since: what lies there may be anything, so it isn't shown. */
  if (handle->generation != 0 && handle->generation != neap_workspace_generation(handle->ws)) {
    neap_error error = {0};
    neap_fail(&error, NEAP_RELEASED,
              "the view of \"%s\" is older than the last run: its bytes may hold another blob now",
              handle->name != NULL ? handle->name : "?");
    neap_hint(&error, "fetch copies; ws:keep \"%s\" gives the blob bytes of its own",
              handle->name != NULL ? handle->name : "?");
    neap_lua_raise(L, &error);
  }
  return &handle->t;
}

neap_tensor *neap_lua_writable_at(lua_State *L, int index) {
  neap_tensor *t = neap_lua_tensor_at(L, index);
  if (neap_tensor_is_read_only(t))
    neap_lua_fail(L, NEAP_ARGUMENT,
                  "the tensor is a file mapped for reading and can't be written; clone it first");
  return t;
}

void neap_lua_check_whole(lua_State *L, const neap_tensor *t, const char *who) {
  if (neap_tensor_elems(t) == 0) return;
  /* A stride of 0 over more than one position: writing one would write all. */
  for (int d = 0; d < t->shape.n_dim; d++)
    if (t->stride[d] == 0 && t->shape.dim[d] > 1)
      neap_lua_fail(L, NEAP_SHAPE,
                    "%s can't write to an expanded view: dimension %d repeats one element %lld "
                    "times; clone it first",
                    who, d + 1, (long long)t->shape.dim[d]);
}

/* The tensor at 1, which `who` is to write all of. */
static neap_tensor *whole_at(lua_State *L, const char *who) {
  neap_tensor *t = neap_lua_writable_at(L, 1);
  neap_lua_check_whole(L, t, who);
  return t;
}

/* ---- elements -------------------------------------------------------------------------------- */

/* Integers as Lua integers, so that none above 2^53 is rounded. */
void neap_lua_push_element(lua_State *L, const neap_tensor *t, int64_t offset) {
  /* Integers exactly; all floats are doubles to Lua. */
  const char *data = neap_tensor_data(t);
  if (neap_dtype_is_integer(t->dtype))
    lua_pushinteger(L, neap_element_get_i64(t->dtype, data, offset));
  else if (t->dtype == NEAP_DTYPE_BOOL)
    lua_pushboolean(L, neap_element_get(t->dtype, data, offset) != 0);
  else
    lua_pushnumber(L, neap_element_get(t->dtype, data, offset));
}

/* Raises `argument` for a number that an integer dtype would make another of: NaN, a fraction, one
 * beyond its range. Floats round, as they always do, and of a bool any number but 0 makes true. */
static void check_holds(lua_State *L, neap_dtype dtype, int index) {
  if (!neap_dtype_is_integer(dtype)) return;

  /* The number is written as it would be, read again and compared: what comes back is what the
   * tensor would hold. */
  int64_t kept = 0, least = 0, most = 0; /* room for an element of any dtype */
  if (lua_isinteger(L, index))
    neap_element_set_i64(dtype, &kept, 0, lua_tointeger(L, index));
  else
    neap_element_set(dtype, &kept, 0, lua_tonumber(L, index));
  index = lua_absindex(L, index);
  lua_pushinteger(L, neap_element_get_i64(dtype, &kept, 0));
  bool same = lua_compare(L, -1, index, LUA_OPEQ);
  lua_pop(L, 1);
  if (same) return;

  /* Integers saturate: the ends of int64 become the ends of the dtype, for the message. */
  neap_element_set_i64(dtype, &least, 0, INT64_MIN);
  neap_element_set_i64(dtype, &most, 0, INT64_MAX);
  neap_lua_fail(L, NEAP_ARGUMENT,
                "%s is no %s, which holds whole numbers from %lld to %lld (hint: make it f32 and "
                "cast it, x:to \"%s\", which rounds and saturates)",
                luaL_tolstring(L, index, NULL), neap_dtype_name(dtype),
                (long long)neap_element_get_i64(dtype, &least, 0),
                (long long)neap_element_get_i64(dtype, &most, 0), neap_dtype_name(dtype));
}

/* What a script writes is there afterwards, or an error says that it can't be. */
void neap_lua_set_element(lua_State *L, const neap_tensor *t, int64_t offset, int index) {
  char *data = neap_tensor_data(t);
  switch (lua_type(L, index)) {
    case LUA_TBOOLEAN: neap_element_set(t->dtype, data, offset, lua_toboolean(L, index)); break;
    case LUA_TNUMBER:
      check_holds(L, t->dtype, index);
      /* Lua knows which of its numbers are integers: they are not rounded on the way. */
      if (lua_isinteger(L, index))
        neap_element_set_i64(t->dtype, data, offset, lua_tointeger(L, index));
      else
        neap_element_set(t->dtype, data, offset, lua_tonumber(L, index));
      break;
    default:
      neap_lua_fail(L, NEAP_ARGUMENT, "an element expects a number or boolean, got a %s",
                    luaL_typename(L, index));
  }

  /* Whoever keeps something made of these bytes, as packed weights, sees that they changed. */
  neap_tensor_touch(t);
}

void neap_lua_walk_start(neap_lua_walk *walk, const neap_tensor *t) {
  memset(walk, 0, sizeof *walk);
  walk->done = neap_tensor_elems(t) == 0;
}

/* The last dimension moves fastest; a dimension that is through takes its offset back. */
void neap_lua_walk_next(neap_lua_walk *walk, const neap_tensor *t) {
  for (int d = t->shape.n_dim - 1; d >= 0; d--) {
    walk->offset += t->stride[d];
    if (++walk->at[d] < t->shape.dim[d]) return;
    walk->offset -= t->stride[d] * t->shape.dim[d];
    walk->at[d] = 0;
  }
  walk->done = true;
}

/* x:item(): the only element. */
static int item(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  char text[NEAP_SHAPE_TEXT];
  if (neap_tensor_elems(t) != 1)
    neap_lua_fail(L, NEAP_SHAPE, "item expects a tensor of one element, got %s",
                  neap_shape_text(&t->shape, text));
  /* One element lies at the offset, whatever the strides. */
  neap_lua_push_element(L, t, 0);
  return 1;
}

/* Offset of the element whose n_dim positions are the arguments from `first` on. */
static int64_t offset_of(lua_State *L, const neap_tensor *t, int first) {
  int n = lua_gettop(L) - first + 1;
  char text[NEAP_SHAPE_TEXT];
  if (n != t->shape.n_dim)
    neap_lua_fail(L, NEAP_ARGUMENT, "%s takes %d positions, got %d",
                  neap_shape_text(&t->shape, text), t->shape.n_dim, n);
  /* The sum of strides, each position looked at: none leads out of the tensor. */
  int64_t offset = 0;
  for (int d = 0; d < n; d++)
    offset += t->stride[d] * neap_lua_position(L, neap_lua_check_integer(L, first + d),
                                               t->shape.dim[d], "position");
  return offset;
}

static int at(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  neap_lua_push_element(L, t, offset_of(L, t, 2));
  return 1;
}

static int set(lua_State *L) {
  const neap_tensor *t = neap_lua_writable_at(L, 1);
  /* x:set(value, positions..): the value is at 2. */
  neap_lua_set_element(L, t, offset_of(L, t, 3), 2);
  lua_settop(L, 1);
  return 1;
}

/* Pushes what lies from dimension d on at element `offset`: a number when no dimension is left,
 * else a table of the next ones. */
static void push_nested(lua_State *L, const neap_tensor *t, int d, int64_t offset) {
  if (d == t->shape.n_dim) {
    neap_lua_push_element(L, t, offset);
    return;
  }
  /* A table of each depth lies on the stack at once, with an item above it. */
  luaL_checkstack(L, 3, "nesting");
  lua_createtable(L, (int)NEAP_MIN(t->shape.dim[d], 1 << 26), 0);
  for (int64_t i = 0; i < t->shape.dim[d]; i++) {
    push_nested(L, t, d + 1, offset + i * t->stride[d]);
    lua_seti(L, -2, i + 1);
  }
}

/* x:totable(): nested tables of numbers; a number for a scalar. */
static int totable(lua_State *L) {
  push_nested(L, neap_lua_tensor_at(L, 1), 0, 0);
  return 1;
}

/* x:apply_(f): each element becomes f(element), in row-major order; what f gives nil for stays. */
static int apply(lua_State *L) {
  neap_tensor *t = whole_at(L, "apply_");
  neap_lua_check_type(L, 2, LUA_TFUNCTION);
  neap_lua_walk walk;
  for (neap_lua_walk_start(&walk, t); !walk.done; neap_lua_walk_next(&walk, t)) {
    /* f is called with the element; its answer is on top. */
    lua_pushvalue(L, 2);
    neap_lua_push_element(L, t, walk.offset);
    neap_lua_call_user(L, 1, 1);
    t = neap_lua_writable_at(L, 1); /* f may have closed it */
    if (!lua_isnil(L, -1)) neap_lua_set_element(L, t, walk.offset, -1);
    lua_pop(L, 1);
  }
  lua_settop(L, 1);
  return 1;
}

/* x:map_(y, f): each element becomes f(x's, y's); shapes are equal. */
static int map(lua_State *L) {
  neap_tensor *t = whole_at(L, "map_"), *other = neap_lua_tensor_at(L, 2);
  neap_lua_check_type(L, 3, LUA_TFUNCTION);
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  if (!neap_shape_equal(&t->shape, &other->shape))
    neap_lua_fail(L, NEAP_SHAPE, "map_ expects equal shapes, got %s and %s",
                  neap_shape_text(&t->shape, a), neap_shape_text(&other->shape, b));

  /* Both are walked in row-major order, each by its own strides. */
  neap_lua_walk walk, beside;
  neap_lua_walk_start(&beside, other);
  for (neap_lua_walk_start(&walk, t); !walk.done;
       neap_lua_walk_next(&walk, t), neap_lua_walk_next(&beside, other)) {
    lua_pushvalue(L, 3);
    neap_lua_push_element(L, t, walk.offset);
    neap_lua_push_element(L, other, beside.offset);
    neap_lua_call_user(L, 2, 1);
    /* f may have closed either. */
    t = neap_lua_writable_at(L, 1);
    other = neap_lua_tensor_at(L, 2);
    if (!lua_isnil(L, -1)) neap_lua_set_element(L, t, walk.offset, -1);
    lua_pop(L, 1);
  }
  lua_settop(L, 1);
  return 1;
}

/* ---- copies and casts ------------------------------------------------------------------------ */

static int clone_as(lua_State *L, neap_dtype dtype) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  /* The handle first, so that the copy has an owner. */
  neap_lua_tensor *out = neap_lua_new_tensor(L);
  NEAP_LUA_TRY(L, neap_tensor_clone(t, dtype, &out->t, &error));
  neap_lua_collect(L);
  return 1;
}

static int clone(lua_State *L) { return clone_as(L, NEAP_DTYPE_NONE); }

/* x:to(dtype): the same handle when it has that dtype already. */
static int to(lua_State *L) {
  neap_dtype dtype = neap_lua_dtype(L, 2, NEAP_DTYPE_NONE);
  if (dtype == NEAP_DTYPE_NONE)
    neap_lua_fail(L, NEAP_ARGUMENT, "x:to expects a dtype, e.g. \"f64\"");
  if (neap_lua_tensor_at(L, 1)->dtype != dtype) return clone_as(L, dtype);
  lua_settop(L, 1);
  return 1;
}

static int contiguous(lua_State *L) {
  if (!neap_tensor_is_dense(neap_lua_tensor_at(L, 1))) return clone_as(L, NEAP_DTYPE_NONE);
  lua_settop(L, 1);
  return 1;
}

/* x:copy_(y): y's elements, cast and broadcast. */
static int copy(lua_State *L) {
  const neap_tensor *t = whole_at(L, "copy_"), *from = neap_lua_tensor_at(L, 2);
  NEAP_LUA_TRY(L, neap_tensor_copy(t, from, &error));
  lua_settop(L, 1);
  return 1;
}

/* Every element of `t` becomes the number or boolean at `index`. */
static void fill_with(lua_State *L, const neap_tensor *t, int index) {
  /* A scalar of the same dtype, copied to all: the copy broadcasts. */
  neap_lua_tensor *one = neap_lua_new_tensor(L);
  NEAP_LUA_TRY(L, neap_tensor_new(&one->t, t->dtype, &(neap_shape){0}, &error));
  neap_lua_set_element(L, &one->t, 0, index);
  NEAP_LUA_TRY(L, neap_tensor_copy(t, &one->t, &error));
}

static int fill(lua_State *L) {
  fill_with(L, whole_at(L, "fill_"), 2);
  lua_settop(L, 1);
  return 1;
}

static int zero(lua_State *L) {
  lua_settop(L, 1);
  /* As fill_(0). */
  lua_pushinteger(L, 0);
  fill_with(L, whole_at(L, "zero_"), 2);
  lua_settop(L, 1);
  return 1;
}

/* The torch7 names without `_`: they would change a tensor in place without saying so. */
static int bare(lua_State *L) {
  const char *name = lua_tostring(L, lua_upvalueindex(1));
  neap_lua_fail(L, NEAP_ARGUMENT,
                "x:%s is not there: what changes a tensor in place ends in _, so write x:%s_", name,
                name);
}

/* ---- looking --------------------------------------------------------------------------------- */

/* x:equal(y): the same shape and the same numbers, whatever the dtypes and strides; NaN equals
 * nothing. */
static int equal(lua_State *L) {
  const neap_tensor *a = neap_lua_tensor_at(L, 1), *b = neap_lua_tensor_at(L, 2);
  bool same = neap_shape_equal(&a->shape, &b->shape);

  /* Two integers are compared as integers: above 2^53 two of them can be one double. */
  bool integers = neap_dtype_is_integer(a->dtype) && neap_dtype_is_integer(b->dtype);

  /* Both in row-major order: strides may differ. */
  neap_lua_walk i, j;
  neap_lua_walk_start(&i, a);
  neap_lua_walk_start(&j, b);
  while (same && !i.done) {
    if (integers)
      same = neap_element_get_i64(a->dtype, neap_tensor_data(a), i.offset) ==
             neap_element_get_i64(b->dtype, neap_tensor_data(b), j.offset);
    else
      same = neap_element_get(a->dtype, neap_tensor_data(a), i.offset) ==
             neap_element_get(b->dtype, neap_tensor_data(b), j.offset);
    neap_lua_walk_next(&i, a);
    neap_lua_walk_next(&j, b);
  }
  lua_pushboolean(L, same);
  return 1;
}

/* A number by name from the table at `index`. */
static double option(lua_State *L, int index, const char *key, double missing) {
  if (lua_isnoneornil(L, index) || neap_lua_field(L, index, key) == LUA_TNIL) return missing;
  if (lua_type(L, -1) != LUA_TNUMBER)
    neap_lua_fail(L, NEAP_ARGUMENT, "x:close: %s expects a number, got a %s", key,
                  luaL_typename(L, -1));
  return lua_tonumber(L, -1);
}

/* x:close(y, {rtol = 1e-5, atol = 1e-8}) -> boolean, largest difference. |x - y| <= atol + rtol
 * |y|; NaN is close to NaN. */
static int is_close(lua_State *L) {
  const neap_tensor *a = neap_lua_tensor_at(L, 1), *b = neap_lua_tensor_at(L, 2);
  neap_lua_only_fields(L, 3, "x:close", (const char *const[]){"rtol", "atol", NULL});
  double rtol = option(L, 3, "rtol", 1e-5), atol = option(L, 3, "atol", 1e-8), largest = 0;
  bool close = neap_shape_equal(&a->shape, &b->shape);
  if (close) {
    neap_lua_walk i, j;
    neap_lua_walk_start(&j, b);
    for (neap_lua_walk_start(&i, a); !i.done;
         neap_lua_walk_next(&i, a), neap_lua_walk_next(&j, b)) {
      double x = neap_element_get(a->dtype, neap_tensor_data(a), i.offset),
             y = neap_element_get(b->dtype, neap_tensor_data(b), j.offset);
      /* Equal, infinities too; or both NaN. */
      if (x == y || (x != x && y != y)) continue;
      /* Both comparisons are written so that a NaN, of one side alone, is a difference, and the
       * largest one. */
      double gap = fabs(x - y);
      if (!(gap <= atol + rtol * fabs(y)) || isinf(y)) close = false;
      if (!(gap <= largest)) largest = gap;
    }
  }
  lua_pushboolean(L, close);
  lua_pushnumber(L, largest);
  return 2;
}

/* x:same(y): the same elements of the same storage. */
static int same(lua_State *L) {
  const neap_tensor *a = neap_lua_tensor_at(L, 1), *b = neap_lua_tensor_at(L, 2);
  /* The first element, the dtype, the shape and the strides say which elements they are. */
  lua_pushboolean(L,
                  neap_tensor_data(a) == neap_tensor_data(b) && a->dtype == b->dtype &&
                    neap_shape_equal(&a->shape, &b->shape) &&
                    memcmp(a->stride, b->stride, (size_t)a->shape.n_dim * sizeof *a->stride) == 0);
  return 1;
}

/* x:_count_not(i) -> number of elements of an integer tensor that are not i. Allocates no tensor:
 * steps of training call it. */
static int count_not(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  int64_t value = neap_lua_check_integer(L, 2), n = 0;
  neap_lua_walk walk;
  for (neap_lua_walk_start(&walk, t); !walk.done; neap_lua_walk_next(&walk, t))
    n += neap_element_get_i64(t->dtype, neap_tensor_data(t), walk.offset) != value;
  lua_pushinteger(L, n);
  return 1;
}

/* stats_of(x) -> {min, max, mean, std, nan, inf, zero, n}; min to std are of the finite elements.
 * Welford's recurrence. */
static int stats_of(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  double mean = 0, m2 = 0, least = INFINITY, most = -INFINITY;
  int64_t n = 0, n_nan = 0, n_inf = 0, n_zero = 0;
  neap_lua_walk walk;
  for (neap_lua_walk_start(&walk, t); !walk.done; neap_lua_walk_next(&walk, t)) {
    double x = neap_element_get(t->dtype, neap_tensor_data(t), walk.offset);
    if (isnan(x)) {
      n_nan++;
      continue;
    }
    if (isinf(x)) {
      n_inf++;
      continue;
    }
    n++;
    n_zero += x == 0;
    /* m2 sums squared distances from the mean so far. The difference of two large sums, of squares
     * and of elements, would lose digits. */
    double delta = x - mean;
    mean += delta / (double)n;
    m2 += delta * (x - mean);
    least = fmin(least, x);
    most = fmax(most, x);
  }

  /* Without a finite element there is no least one, and no mean. */
  lua_createtable(L, 0, 8);
  const double value[] = {least, most, mean, n > 0 ? sqrt(m2 / (double)n) : 0};
  static const char *const name[] = {"min", "max", "mean", "std"};
  for (int i = 0; i < 4; i++) {
    lua_pushnumber(L, n > 0 ? value[i] : NAN);
    lua_setfield(L, -2, name[i]);
  }
  neap_lua_set_integer(L, "nan", n_nan);
  neap_lua_set_integer(L, "inf", n_inf);
  neap_lua_set_integer(L, "zero", n_zero);
  neap_lua_set_integer(L, "n", neap_tensor_elems(t));
  return 1;
}

static int to_text(lua_State *L) {
  const neap_lua_tensor *handle = neap_lua_tensor_handle(L, 1);
  char **text = (char **)neap_lua_new_block(L);
  NEAP_LUA_TRY(L, neap_tensor_text(neap_lua_tensor_at(L, 1), NULL, handle->name, text, &error));
  lua_pushstring(L, *text);
  return 1;
}

/* ---- sizes ----------------------------------------------------------------------------------- */

/* x:size() -> {..}; x:size(d) -> n */
static int size(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  if (lua_isnoneornil(L, 2))
    neap_lua_push_shape(L, &t->shape);
  else
    lua_pushinteger(L, t->shape.dim[neap_lua_axis(L, 2, t->shape.n_dim)]);
  return 1;
}

/* x:stride() -> {..}; x:stride(d) -> n; in elements */
static int stride(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  if (!lua_isnoneornil(L, 2)) {
    lua_pushinteger(L, t->stride[neap_lua_axis(L, 2, t->shape.n_dim)]);
    return 1;
  }
  lua_createtable(L, t->shape.n_dim, 0);
  for (int d = 0; d < t->shape.n_dim; d++) {
    lua_pushinteger(L, t->stride[d]);
    lua_seti(L, -2, d + 1);
  }
  return 1;
}

static int dim(lua_State *L) {
  lua_pushinteger(L, neap_lua_tensor_at(L, 1)->shape.n_dim);
  return 1;
}

/* x:hash() -> 32 hexadecimal digits of a dense tensor's bytes: equal for equal bits, NaN and -0
 * included. */
static int hash(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  if (!neap_tensor_is_dense(t))
    neap_lua_fail(L, NEAP_ARGUMENT, "hash expects a contiguous tensor; x:contiguous() makes one");
  char text[33];
  NEAP_LUA_TRY(L, neap_tensor_hash(t, text, &error));
  lua_pushstring(L, text);
  return 1;
}

static int n_element(lua_State *L) {
  lua_pushinteger(L, neap_tensor_elems(neap_lua_tensor_at(L, 1)));
  return 1;
}

static int n_bytes(lua_State *L) {
  lua_pushinteger(L, (lua_Integer)neap_tensor_bytes(neap_lua_tensor_at(L, 1)));
  return 1;
}

static int is_contiguous(lua_State *L) {
  lua_pushboolean(L, neap_tensor_is_dense(neap_lua_tensor_at(L, 1)));
  return 1;
}

static int length(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  if (t->shape.n_dim == 0) neap_lua_fail(L, NEAP_SHAPE, "a scalar has no length");
  lua_pushinteger(L, t->shape.dim[0]);
  return 1;
}

static int not_ordered(lua_State *L) {
  neap_lua_fail(L, NEAP_ARGUMENT,
                "Lua turns the result of <, <=, >, >= into one boolean; write x:lt(y), x:le(y), "
                "x:gt(y), x:ge(y)");
}

/* x.shape, x.dtype, x.name, methods; everything that is no string is a position. */
static int index_any(lua_State *L) {
  if (lua_type(L, 2) != LUA_TSTRING) return neap_lua_tensor_index(L);

  /* A field, else a method. A closed tensor has its name and its methods still. */
  const neap_lua_tensor *handle = neap_lua_tensor_handle(L, 1);
  const char *key = neap_lua_text(L, 2, "a field of a tensor");
  if (strcmp(key, "shape") == 0)
    neap_lua_push_shape(L, &neap_lua_tensor_at(L, 1)->shape);
  else if (strcmp(key, "dtype") == 0)
    lua_pushstring(L, neap_dtype_name(neap_lua_tensor_at(L, 1)->dtype));
  else if (strcmp(key, "name") == 0)
    lua_pushstring(L, handle->name); /* nil without a name */
  else
    return neap_lua_method(L);
  return 1;
}

/* x.name = "..", or x[position] = value. */
static int new_index_any(lua_State *L) {
  if (lua_type(L, 2) != LUA_TSTRING) return neap_lua_tensor_new_index(L);
  /* Any other field would be a slip: nothing would read it. */
  if (strcmp(neap_lua_text(L, 2, "a field of a tensor"), "name") != 0)
    neap_lua_fail(L, NEAP_ARGUMENT, "a tensor has no field \"%s\" to set; x.name is the only one",
                  lua_tostring(L, 2));
  neap_lua_tensor *handle = neap_lua_tensor_handle(L, 1);
  handle->name = neap_lua_opt_name(L, 3, "x.name");
  return 0;
}

void neap_lua_open_tensor(lua_State *L) {
  static const neap_lua_reg meta[] = {{"__close", neap_lua_close, NEAP_LUA_ANY},
                                      {"__index", index_any, NEAP_LUA_ANY},
                                      {"__newindex", new_index_any, NEAP_LUA_ANY},
                                      {"__tostring", to_text, NEAP_LUA_ANY},
                                      {"__len", length, NEAP_LUA_ANY},
                                      {"__lt", not_ordered, NEAP_LUA_ANY},
                                      {"__le", not_ordered, NEAP_LUA_ANY},
                                      {NULL, NULL, 0}};
  static const neap_lua_reg methods[] = {{"item", item, 1},
                                         {"_count_not", count_not, 2},
                                         {"at", at, NEAP_LUA_ANY},
                                         {"set", set, NEAP_LUA_ANY},
                                         {"totable", totable, 1},
                                         {"apply_", apply, 2},
                                         {"map_", map, 3},
                                         {"clone", clone, 1},
                                         {"to", to, 2},
                                         {"contiguous", contiguous, 1},
                                         {"copy_", copy, 2},
                                         {"fill_", fill, 2},
                                         {"zero_", zero, 1},
                                         {"equal", equal, 2},
                                         {"close", is_close, 3},
                                         {"same", same, 2},
                                         {"hash", hash, 1},
                                         {"size", size, 2},
                                         {"stride", stride, 2},
                                         {"dim", dim, 1},
                                         {"n_element", n_element, 1},
                                         {"n_bytes", n_bytes, 1},
                                         {"is_contiguous", is_contiguous, 1},
                                         {NULL, NULL, 0}};
  neap_lua_class(L, NEAP_LUA_TENSOR, "Tensor", meta, methods);

  /* The methods of other files go into the same table, which is on top until it is popped. */
  lua_getfield(L, -1, "Tensor");
  neap_lua_functions(L, neap_lua_tensor_views, true);
  static const char *const without[] = {"fill", "copy", "zero", "apply", "map"};
  for (int i = 0; i < NEAP_COUNT(without); i++) {
    lua_pushstring(L, without[i]);
    lua_pushcclosure(L, bare, 1);
    lua_setfield(L, -2, without[i]);
  }
  lua_pop(L, 1);
  neap_lua_functions(L, neap_lua_tensor_makers, false);
  static const neap_lua_reg functions[] = {{"stats_of", stats_of, 1}, {NULL, NULL, 0}};
  neap_lua_functions(L, functions, false);
}
