/* tensor_view.c: methods that give another look at the same bytes, and reshape, which copies when no view will do. Each
 * new handle shares the life of the one it was made from. */
#include "lua/binding.h"

/* x:narrow(d, from, n): n positions of dimension d. */
static int narrow(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  int d = neap_lua_axis(L, 2, t->shape.n_dim);
  int64_t n = luaL_checkinteger(L, 4), size = t->shape.dim[d];
  int64_t from = n == 0 ? 0 : neap_lua_position(L, luaL_checkinteger(L, 3), size, "position");
  if (n < 0 || n > size - from)
    neap_lua_fail(L, NEAP_ARGUMENT, "narrow: %lld positions from %lld leave a dimension of %lld", (long long)n,
                  (long long)from + 1, (long long)size);
  neap_lua_tensor *out = neap_lua_new_view(L, 1);
  NEAP_LUA_TRY(L, neap_tensor_narrow(t, d, from, n, 1, &out->t, &error));
  return 1;
}

/* x:select(d, i): dimension d at position i, which drops it. */
static int select_one(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  int d = neap_lua_axis(L, 2, t->shape.n_dim);
  int64_t i = neap_lua_position(L, luaL_checkinteger(L, 3), t->shape.dim[d], "position");
  neap_lua_tensor *out = neap_lua_new_view(L, 1);
  NEAP_LUA_TRY(L, neap_tensor_select(t, d, i, &out->t, &error));
  return 1;
}

/* Sizes from a table or from the arguments; one may be -1. */
static int wanted_sizes(lua_State *L, int64_t dim[NEAP_MAX_DIM]) {
  bool table = lua_istable(L, 2);
  lua_Integer n = table ? luaL_len(L, 2) : lua_gettop(L) - 1;
  if (n > NEAP_MAX_DIM)
    neap_lua_fail(L, NEAP_ARGUMENT, "a tensor has at most %d dimensions, got %lld", NEAP_MAX_DIM, (long long)n);
  for (int i = 0; i < (int)n; i++) {
    if (table) lua_geti(L, 2, i + 1);
    dim[i] = luaL_checkinteger(L, table ? -1 : 2 + i);
    if (table) lua_pop(L, 1);
  }
  return (int)n;
}

/* x:view(..): another shape of the same bytes. */
static int view(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  int64_t dim[NEAP_MAX_DIM];
  int n = wanted_sizes(L, dim);
  neap_lua_tensor *out = neap_lua_new_view(L, 1);
  NEAP_LUA_TRY(L, neap_tensor_reshape_view(t, n, dim, &out->t, &error));
  return 1;
}

/* x:reshape(..): a view when strides allow one, else a copy. */
static int reshape(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  int64_t dim[NEAP_MAX_DIM];
  int n = wanted_sizes(L, dim);
  neap_lua_tensor *out = neap_lua_new_view(L, 1);
  if (neap_tensor_reshape_view(t, n, dim, &out->t, NULL) == NEAP_OK) return 1;
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
    lua_settop(L, 1);
    lua_pushinteger(L, -2);
    lua_pushinteger(L, -1);
  }
  int a = neap_lua_axis(L, 2, n), b = neap_lua_axis(L, 3, n);
  for (int i = 0; i < n; i++) order[i] = i == a ? b : i == b ? a : i;
  return push_permuted(L, t, order);
}

/* x:permute{3, 1, 2}, or with three arguments: dimension 1 of the result is dimension 3 of x, and so on. */
static int permute(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  int order[NEAP_MAX_DIM], n = t->shape.n_dim;
  int64_t wanted[NEAP_MAX_DIM];
  if (wanted_sizes(L, wanted) != n) neap_lua_fail(L, NEAP_ARGUMENT, "permute takes all %d dimensions", n);
  unsigned seen = 0;
  for (int i = 0; i < n; i++) {
    order[i] = (int)neap_lua_position(L, wanted[i], n, "dimension");
    if ((seen >> order[i] & 1u) != 0)
      neap_lua_fail(L, NEAP_ARGUMENT, "permute: dimension %lld is named twice", (long long)wanted[i]);
    seen |= 1u << order[i];
  }
  return push_permuted(L, t, order);
}

/* x:expand(..): dimensions of 1 repeat without a copy; -1 keeps a size. */
static int expand(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  int64_t dim[NEAP_MAX_DIM];
  int n = wanted_sizes(L, dim);
  for (int i = 0; i < n; i++) {
    int from = i - (n - t->shape.n_dim);
    if (dim[i] == -1 && from >= 0) dim[i] = t->shape.dim[from];
    if (dim[i] < 0) neap_lua_fail(L, NEAP_ARGUMENT, "expand: size %lld is negative", (long long)dim[i]);
  }
  neap_shape shape = neap_shape_of(n, dim);
  neap_lua_tensor *out = neap_lua_new_view(L, 1);
  NEAP_LUA_TRY(L, neap_tensor_expand(t, &shape, &out->t, &error));
  return 1;
}

/* x:squeeze([d]): without the dimensions of one element, or without dimension d if it is one. */
static int squeeze(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  int only = lua_isnoneornil(L, 2) ? -1 : neap_lua_axis(L, 2, t->shape.n_dim);
  neap_lua_tensor *out = neap_lua_new_view(L, 1);
  out->t = neap_tensor_retain(t);
  int n = 0;
  neap_shape shape = {0};
  for (int d = 0; d < t->shape.n_dim; d++) {
    if (t->shape.dim[d] == 1 && (only < 0 || d == only)) continue;
    shape.dim[n] = t->shape.dim[d];
    out->t.stride[n++] = t->stride[d];
  }
  shape.n_dim = n;
  out->t.shape = shape;
  return 1;
}

/* x:unsqueeze(d): a new dimension of one element at place d of the result. */
static int unsqueeze(lua_State *L) {
  const neap_tensor *t = neap_lua_tensor_at(L, 1);
  int n = t->shape.n_dim;
  if (n == NEAP_MAX_DIM) neap_lua_fail(L, NEAP_SHAPE, "a tensor has at most %d dimensions", NEAP_MAX_DIM);
  int at = neap_lua_axis(L, 2, n + 1);
  neap_lua_tensor *out = neap_lua_new_view(L, 1);
  out->t = neap_tensor_retain(t);
  for (int d = n; d > at; d--) {
    out->t.shape.dim[d] = t->shape.dim[d - 1];
    out->t.stride[d] = t->stride[d - 1];
  }
  out->t.shape.dim[at] = 1;
  out->t.stride[at] = at < n ? t->stride[at] * t->shape.dim[at] : 1;
  out->t.shape.n_dim = n + 1;
  return 1;
}

const luaL_Reg neap_lua_tensor_views[] = {
  {"narrow", narrow},   {"select", select_one}, {"view", view},       {"reshape", reshape},     {"transpose", transpose},
  {"permute", permute}, {"expand", expand},     {"squeeze", squeeze}, {"unsqueeze", unsqueeze}, {NULL, NULL}};
