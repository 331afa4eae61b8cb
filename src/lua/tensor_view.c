/* tensor_view.c: methods that give another look at the same bytes, and reshape, which copies when
 * no view will do. Each new handle shares the life of the one it was made from. */
#include "lua/binding.h"

/* x:narrow(d, from, n): n positions of dimension d. */
static int narrow(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  int d = neap_lua_axis(L, 2, t->shape.n_dim);
  int64_t n = neap_lua_check_integer(L, 4), size = t->shape.dim[d];
  /* No positions at all may be asked for, of an empty dimension too. */
  int64_t from = n == 0 ? 0 : neap_lua_position(L, neap_lua_check_integer(L, 3), size, "position");
  if (n < 0 || n > size - from)
    neap_lua_fail(L, NEAP_ARGUMENT, "narrow: %lld positions from %lld leave a dimension of %lld",
                  (long long)n, (long long)from + 1, (long long)size);
  neap_lua_tensor *out = neap_lua_new_view(L, 1);
  NEAP_LUA_TRY(L, neap_tensor_narrow(t, d, from, n, 1, &out->t, &error));
  return 1;
}

/* x:select(d, i): dimension d at position i, which drops it. */
static int select_one(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  int d = neap_lua_axis(L, 2, t->shape.n_dim);
  int64_t i = neap_lua_position(L, neap_lua_check_integer(L, 3), t->shape.dim[d], "position");
  neap_lua_tensor *out = neap_lua_new_view(L, 1);
  NEAP_LUA_TRY(L, neap_tensor_select(t, d, i, &out->t, &error));
  return 1;
}

/* The integers that a method was given, as its only argument a list or one by one. */
static int wanted(lua_State *L, const char *field, const char *what, int64_t dim[NEAP_MAX_DIM]) {
  if (lua_istable(L, 2) && lua_gettop(L) > 2)
    neap_lua_fail(L, NEAP_ARGUMENT, "%s takes a list and nothing behind it, got %d arguments", what,
                  lua_gettop(L) - 1);
  return neap_lua_integers(L, 2, field, what, dim);
}

/* x:view(..): another shape of the same bytes. */
static int view(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  /* -1 is one size that follows from the others: the library finds it. */
  int64_t dim[NEAP_MAX_DIM];
  int n = wanted(L, "shape", "view", dim);
  neap_lua_tensor *out = neap_lua_new_view(L, 1);
  NEAP_LUA_TRY(L, neap_tensor_reshape_view(t, n, dim, &out->t, &error));
  return 1;
}

/* x:reshape(..): a view when strides allow one, else a copy. */
static int reshape(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  int64_t dim[NEAP_MAX_DIM];
  int n = wanted(L, "shape", "reshape", dim);
  neap_lua_tensor *out = neap_lua_new_view(L, 1);
  if (neap_tensor_reshape_view(t, n, dim, &out->t, NULL) == NEAP_OK) return 1;

  /* Strides don't allow it, or the sizes don't fit, which the second call raises: a dense copy has
   * any shape. From below: the empty view, the copy, a view of it, which is the result. */
  neap_lua_tensor *dense = neap_lua_new_tensor(L);
  NEAP_LUA_TRY(L, neap_tensor_clone(t, NEAP_DTYPE_NONE, &dense->t, &error));
  neap_lua_tensor *copy = neap_lua_new_tensor(L);
  NEAP_LUA_TRY(L, neap_tensor_reshape_view(&dense->t, n, dim, &copy->t, &error));
  neap_lua_collect(L);
  return 1;
}

static int push_permuted(lua_State *L, const neap_tensor *t, const int *order) {
  neap_lua_tensor *out = neap_lua_new_view(L, 1);
  NEAP_LUA_TRY(L, neap_tensor_permute(t, order, &out->t, &error));
  return 1;
}

/* x:transpose(a, b): dimensions a and b change places; without arguments the last two. */
static int transpose(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  int n = t->shape.n_dim, order[NEAP_MAX_DIM];
  if (lua_isnoneornil(L, 2)) {
    /* As if -2 and -1 had been given. */
    lua_settop(L, 1);
    lua_pushinteger(L, -2);
    lua_pushinteger(L, -1);
  }
  int a = neap_lua_axis(L, 2, n), b = neap_lua_axis(L, 3, n);
  for (int i = 0; i < n; i++) order[i] = i;
  order[a] = b;
  order[b] = a;
  return push_permuted(L, t, order);
}

/* x:permute{3, 1, 2}, or with three arguments: dimension 1 of the result is dimension 3 of x, and
 * so on. */
static int permute(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  int order[NEAP_MAX_DIM], n = t->shape.n_dim;
  int64_t position[NEAP_MAX_DIM];
  if (wanted(L, "axes", "permute", position) != n)
    neap_lua_fail(L, NEAP_ARGUMENT, "permute takes all %d dimensions", n);

  /* A bit for each dimension that was named: n of them, none twice, are all. */
  unsigned seen = 0;
  for (int i = 0; i < n; i++) {
    order[i] = (int)neap_lua_position(L, position[i], n, "dimension");
    if ((seen >> order[i] & 1u) != 0)
      neap_lua_fail(L, NEAP_ARGUMENT, "permute: dimension %lld is named twice",
                    (long long)position[i]);
    seen |= 1u << order[i];
  }
  return push_permuted(L, t, order);
}

/* x:expand(..): dimensions of 1 repeat without a copy; -1 keeps a size. */
static int expand(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  int64_t dim[NEAP_MAX_DIM];
  int n = wanted(L, "shape", "expand", dim);
  for (int i = 0; i < n; i++) {
    /* Shapes are aligned at the end; dimensions in front of x's are new. */
    int from = i - (n - t->shape.n_dim);
    if (dim[i] == -1 && from >= 0) dim[i] = t->shape.dim[from];
    if (dim[i] < 0)
      neap_lua_fail(L, NEAP_ARGUMENT, "expand: size %lld is negative", (long long)dim[i]);
  }
  neap_shape shape = neap_shape_of(n, dim);
  neap_lua_tensor *out = neap_lua_new_view(L, 1);
  NEAP_LUA_TRY(L, neap_tensor_expand(t, &shape, &out->t, &error));
  return 1;
}

/* Marks dimension `position` of n_dim; one that is marked already was named twice. */
static int mark(lua_State *L, int64_t position, int n_dim, const char *what,
                bool marked[NEAP_MAX_DIM]) {
  int d = (int)neap_lua_position(L, position, n_dim, "dimension");
  if (marked[d])
    neap_lua_fail(L, NEAP_ARGUMENT, "%s: dimension %lld is named twice", what, (long long)position);
  marked[d] = true;
  return d;
}

/* x:squeeze(d, ..): without dimensions d, each of size 1; without arguments all of size 1 go. */
static int squeeze(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  int64_t position[NEAP_MAX_DIM];
  bool gone[NEAP_MAX_DIM] = {false};
  int n_axis = lua_isnoneornil(L, 2) ? 0 : wanted(L, "axes", "squeeze", position), n = 0;

  /* As the op does with blobs: what is named must be able to go. */
  for (int i = 0; i < n_axis; i++) {
    int d = mark(L, position[i], t->shape.n_dim, "squeeze", gone);
    char text[NEAP_SHAPE_TEXT];
    if (t->shape.dim[d] != 1)
      neap_lua_fail(L, NEAP_SHAPE, "squeeze: only a dimension of 1 can go, got %s",
                    neap_shape_text(&t->shape, text));
  }

  /* The same storage with fewer sizes and strides: a stride of a size of 1 is never used. */
  neap_lua_tensor *out = neap_lua_new_view(L, 1);
  out->t = neap_tensor_retain(t);
  neap_shape shape = {0};
  for (int d = 0; d < t->shape.n_dim; d++) {
    if (gone[d] || (n_axis == 0 && t->shape.dim[d] == 1)) continue;
    shape.dim[n] = t->shape.dim[d];
    out->t.stride[n++] = t->stride[d];
  }
  shape.n_dim = n;
  out->t.shape = shape;
  return 1;
}

/* x:unsqueeze(d, ..): with dimensions of size 1 at positions d of the result. */
static int unsqueeze(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  int64_t position[NEAP_MAX_DIM];
  int n_axis = wanted(L, "axes", "unsqueeze", position), n_dim = t->shape.n_dim + n_axis;
  if (n_dim > NEAP_MAX_DIM)
    neap_lua_fail(L, NEAP_SHAPE, "unsqueeze: a tensor has at most %d dimensions", NEAP_MAX_DIM);

  /* Positions are of the result, so that they are looked at with its dimensions. */
  bool made[NEAP_MAX_DIM] = {false};
  if (n_axis == 0)
    neap_lua_fail(L, NEAP_ARGUMENT, "unsqueeze expects the positions of the new dimensions");
  for (int i = 0; i < n_axis; i++) mark(L, position[i], n_dim, "unsqueeze", made);
  neap_lua_tensor *out = neap_lua_new_view(L, 1);
  out->t = neap_tensor_retain(t);
  neap_shape shape = {.n_dim = n_dim};
  for (int d = n_dim - 1, from = t->shape.n_dim - 1; d >= 0; d--) {
    if (!made[d]) {
      shape.dim[d] = t->shape.dim[from];
      out->t.stride[d] = t->stride[from];
      from--;
      continue;
    }
    /* The stride of a size of 1 is never used: it is what a dense tensor has there. */
    shape.dim[d] = 1;
    out->t.stride[d] = d + 1 < n_dim ? shape.dim[d + 1] * out->t.stride[d + 1] : 1;
  }
  out->t.shape = shape;
  return 1;
}

const neap_lua_reg neap_lua_tensor_views[] = {{"narrow", narrow, 4},
                                              {"select", select_one, 3},
                                              {"view", view, NEAP_LUA_ANY},
                                              {"reshape", reshape, NEAP_LUA_ANY},
                                              {"transpose", transpose, 3},
                                              {"permute", permute, NEAP_LUA_ANY},
                                              {"expand", expand, NEAP_LUA_ANY},
                                              {"squeeze", squeeze, NEAP_LUA_ANY},
                                              {"unsqueeze", unsqueeze, NEAP_LUA_ANY},
                                              {NULL, NULL, 0}};
