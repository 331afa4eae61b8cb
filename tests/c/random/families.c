/* families.c: ops on tensors of any rank, on matrices, on integers; views, random ops, Free. */
#include "random/writer.h"

#include <stdio.h>
#include <string.h>

/* ---- any shape ------------------------------------------------------------------------------- */

static bool add_unary(writer *w) {
  static const char *const type[] = {
    "Relu",         "Copy", "Tanh",       "Sigmoid",  "Gelu",  "Softmax", "LayerNorm", "Neg",
    "StopGradient", "Silu", "Elu",        "Softplus", "Sin",   "Abs",     "LeakyRelu", "Relu6",
    "Erf",          "Atan", "LogSoftmax", "Sign",     "Clamp", "Square"};
  int x = pick(w, (want){0});
  const char *op = DRAW_OF(w, type);
  int y = target(w, w->blob[x].type, w->blob[x].batched, x);
  say(w, "%s = %s(%s)%s", NAME(w, y), op, NAME(w, x),
      strcmp(op, "Clamp") == 0 ? " { min = -1, max = 1 }" : "");
  return true;
}

static bool add_binary(writer *w) {
  static const char *const type[] = {"Add", "Sub", "Mul", "Maximum", "Minimum", "Add", "Mul"};
  int x = pick(w, (want){0}), z = pick_like(w, x);
  const char *op = DRAW_OF(w, type);
  int y = target(w, w->blob[x].type, w->blob[x].batched, x);
  say(w, "%s = %s(%s, %s)", NAME(w, y), op, NAME(w, x), NAME(w, z));
  return true;
}

/* With a parameter that is a row, or one number for each channel of an image. */
static bool add_broadcast(writer *w) {
  int x = pick(w, (want){.least_rank = 1});
  if (x < 0) return false;
  int rank = RANK(w, x);
  neap_dtype dtype = w->blob[x].type.dtype;
  if (rank == 1 && w->blob[x].batched) return false;
  bool mul = draw_chance(w, 30);
  neap_type row = rank == 4 ? TYPE(dtype, DIM(w, x, 1), 1, 1) : TYPE(dtype, DIM(w, x, rank - 1));
  const char *p = add_param(w, row, UNIFORM);
  int y = target(w, w->blob[x].type, w->blob[x].batched, x);
  say(w, "%s = %s(%s, %s)", NAME(w, y), mul ? "Mul" : "Add", NAME(w, x), p);
  return true;
}

static bool add_add_n(writer *w) {
  int x = pick(w, (want){0}), n = 2 + draw_below(w, 4), in[6];
  for (int i = 0; i < n; i++) in[i] = i == 0 ? x : pick_like(w, x);
  int y = target(w, w->blob[x].type, w->blob[x].batched, x);
  neap_buffer_add(&w->body, "%s = AddN(%s", NAME(w, y), NAME(w, x));
  for (int i = 1; i < n; i++) neap_buffer_add(&w->body, ", %s", NAME(w, in[i]));
  say(w, ")");
  return true;
}

/* Two blobs are compared, and each element comes from the one or the other. */
static bool add_where(writer *w) {
  static const char *const type[] = {"Gt", "Le", "Eq", "Ne"};
  int x = pick(w, (want){0}), z = pick_like(w, x);
  neap_type holds = w->blob[x].type;
  holds.dtype = NEAP_DTYPE_BOOL;
  const char *op = DRAW_OF(w, type);
  int b = fresh(w, holds, w->blob[x].batched);

  /* another dtype: nothing real takes its name */
  w->read[NEAP_MIN(w->n_read++, MOST_READ - 1)] = b;
  int y = target(w, w->blob[x].type, w->blob[x].batched, x);
  say(w, "%s = %s(%s, %s)", NAME(w, b), op, NAME(w, x), NAME(w, z));
  bool negate = draw_chance(w, 20);
  if (negate) say(w, "%s = LogicalNot(%s)", NAME(w, b), NAME(w, b));
  say(w, "%s = Where(%s, %s, %s)", NAME(w, y), NAME(w, b), NAME(w, x), NAME(w, z));
  return true;
}

static bool add_reduce(writer *w) {
  static const char *const type[] = {"Sum", "Mean", "Max", "Min", "Sum", "Mean", "Prod"};
  int x = pick(w, (want){.least_rank = 2});
  if (x < 0) return false;
  int axis = draw_below(w, RANK(w, x));
  if (draw_chance(w, 60)) axis = RANK(w, x) - 1;
  neap_type type_y = w->blob[x].type;
  type_y.shape.dim[axis] = 1;
  const char *op = DRAW_OF(w, type);
  int y = target(w, type_y, w->blob[x].batched && axis > 0, -1);
  say(w, "%s = %s(%s) { axes = {%d}, keepdim = true }", NAME(w, y), op, NAME(w, x), axis);
  return true;
}

static bool add_concat(writer *w) {
  int x = pick(w, (want){.least_rank = 2, .most = 2000});
  if (x < 0) return false;
  int z = pick_like(w, x), axis = 1 + draw_below(w, RANK(w, x) - 1);
  if (!w->by_rows && draw_chance(w, 20)) axis = 0;
  neap_type type = w->blob[x].type;
  type.shape.dim[axis] *= 2;
  int y = target(w, type, w->blob[x].batched, -1);
  say(w, "%s = Concat(%s, %s) { axis = %d }", NAME(w, y), NAME(w, x), NAME(w, z), axis);
  return true;
}

static bool add_split(writer *w) {
  int x = pick(w, (want){.least_rank = 2});
  if (x < 0) return false;
  int axis = 1 + draw_below(w, RANK(w, x) - 1);
  neap_type first = w->blob[x].type, second = first;
  int64_t n = first.shape.dim[axis];
  if (n < 2) return false;
  first.shape.dim[axis] = n % 2 == 0 ? n / 2 : 1 + draw_below(w, (int)n - 1);
  second.shape.dim[axis] = n - first.shape.dim[axis];
  int a = fresh(w, first, w->blob[x].batched), b = fresh(w, second, w->blob[x].batched);
  say(w, "%s, %s = Split(%s) { axis = %d, sizes = {%d,%d} }", NAME(w, a), NAME(w, b), NAME(w, x),
      axis, (int)first.shape.dim[axis], (int)second.shape.dim[axis]);
  return true;
}

static bool add_slice(writer *w) {
  int x = pick(w, (want){.least_rank = 2});
  if (x < 0) return false;
  int axis = 1 + draw_below(w, RANK(w, x) - 1), n = (int)DIM(w, x, axis), from = draw_below(w, n),
      to = from + 1 + draw_below(w, n - from);
  bool pads = draw_chance(w, 40);
  neap_type type = w->blob[x].type;
  type.shape.dim[axis] = pads ? n + from + to : to - from;
  int y = target(w, type, w->blob[x].batched, -1);
  if (!pads) {
    say(w, "%s = Slice(%s) { starts = {%d}, ends = {%d}, axes = {%d} }", NAME(w, y), NAME(w, x),
        from, to, axis);
    return true;
  }

  /* Padding in front and behind, of that axis alone. */
  char before[64] = "", after[64] = "";
  for (int k = 0; k < RANK(w, x); k++) {
    snprintf(before + strlen(before), sizeof before - strlen(before), "%d,", k == axis ? from : 0);
    snprintf(after + strlen(after), sizeof after - strlen(after), "%s%d", k > 0 ? "," : "",
             k == axis ? to : 0);
  }
  say(w, "%s = Pad(%s) { pads = {%s%s} }", NAME(w, y), NAME(w, x), before, after);
  return true;
}

/* ---- views ----------------------------------------------------------------------------------- */

static bool add_alias(writer *w) {
  int x = pick(w, (want){0}), y = fresh(w, w->blob[x].type, w->blob[x].batched);
  say(w, "%s = Alias(%s)", NAME(w, y), NAME(w, x));
  return true;
}

/* All behind the first dimension in one; a matrix as an image or a sequence; without a batch all in
 * a row. */
static bool add_reshape(writer *w) {
  int x = pick(w, (want){.least_rank = 2});
  if (x < 0) return false;
  const neap_shape *s = &w->blob[x].type.shape;
  neap_dtype dtype = w->blob[x].type.dtype;
  int64_t n = s->dim[0], row = neap_shape_elems(s) / n, half = row % 2 == 0 ? row / 2 : row;
  bool batched = w->blob[x].batched;
  int y;

  /* The first dimension stays the batch, but in the last case, where a net has none. */
  switch (draw_below(w, 4)) {
    case 0:
      y = fresh(w, TYPE(dtype, n, row), batched);
      say(w, "%s = Reshape(%s) { shape = {-1,%d} }", NAME(w, y), NAME(w, x), (int)row);
      return true;
    case 1:
      y = fresh(w, TYPE(dtype, n, row / half, half), batched);
      say(w, "%s = Reshape(%s) { shape = {0,%d,%d} }", NAME(w, y), NAME(w, x), (int)(row / half),
          (int)half);
      return true;
    case 2:
      y = fresh(w, TYPE(dtype, n, half, row / half, 1), batched);
      say(w, "%s = Reshape(%s) { shape = {-1,%d,%d,1} }", NAME(w, y), NAME(w, x), (int)half,
          (int)(row / half));
      return true;
    default:
      if (w->by_rows) return false;
      y = fresh(w, TYPE(dtype, 1, n * row), false);
      say(w, "%s = Reshape(%s) { shape = {1,-1} }", NAME(w, y), NAME(w, x));
      return true;
  }
}

static bool add_permute(writer *w) {
  int x = pick(w, (want){.least_rank = 2});
  if (x < 0) return false;
  int rank = RANK(w, x), first = w->by_rows ? 1 : 0, a = first + draw_below(w, rank - first),
      b = first + draw_below(w, rank - first);
  char axes[64] = "";
  neap_type type = w->blob[x].type;
  type.shape.dim[a] = DIM(w, x, b), type.shape.dim[b] = DIM(w, x, a);
  int order[NEAP_MAX_DIM];
  for (int k = 0; k < rank; k++) order[k] = k;
  order[a] = b;
  order[b] = a;
  for (int k = 0; k < rank; k++)
    snprintf(axes + strlen(axes), sizeof axes - strlen(axes), "%s%d", k > 0 ? "," : "", order[k]);
  int y = fresh(w, type, w->blob[x].batched);
  say(w, "%s = Permute(%s) { axes = {%s} }", NAME(w, y), NAME(w, x), axes);
  return true;
}

/* ---- chance, life ---------------------------------------------------------------------------- */

static bool add_dropout(writer *w) {
  int x = pick(w, (want){0}), y = target(w, w->blob[x].type, w->blob[x].batched, x);
  say(w, "%s = Dropout(%s) { rate = 0.3 }", NAME(w, y), NAME(w, x));
  w->has_random = true;
  return true;
}

/* A blob's life ends here in the net; what a backward op still wants of it is graph's business. */
static bool add_free(writer *w) {
  int x = pick(w, (want){0}), n_left = 0;
  for (int b = 0; b < w->n_blob; b++) n_left += w->blob[b].may_rewrite && !w->blob[b].is_gone;
  if (!w->blob[x].may_rewrite || n_left < 3) return false;
  say(w, "Free(%s)", NAME(w, x));
  w->blob[x].is_gone = true;
  return true;
}

/* A state that moves by name. */
static bool add_assignment(writer *w) {
  static const char *const type[] = {"Add", "Mul", "Maximum", "Sub"};
  int x = pick(w, (want){.unbatched = true, .most = 2000});
  if (x < 0) return false;
  const char *op = DRAW_OF(w, type), *m = add_state(w, w->blob[x].type, UNIFORM);
  bool read = draw_chance(w, 40);
  if (read) {
    int y = fresh(w, w->blob[x].type, false);
    say(w, "%s = Tanh(%s)", NAME(w, y), m);
  }
  say(w, "%s = %s(%s, %s)", m, op, m, NAME(w, x));
  return true;
}

/* ---- matrices -------------------------------------------------------------------------------- */

static bool add_fc(writer *w) {
  int x = pick(w, (want){.least_rank = 2, .most = 6000});
  if (x < 0) return false;
  neap_type type = w->blob[x].type;
  int rank = type.shape.n_dim;
  int64_t columns = type.shape.dim[rank - 1], out = 2 * (1 + draw_below(w, w->recipe->size));
  if (columns > 400) return false;
  type.shape.dim[rank - 1] = out;
  char p[24], b[32] = "";
  snprintf(p, sizeof p, "%s", add_param(w, TYPE(type.dtype, out, columns), UNIFORM));
  if (!draw_chance(w, 20))
    snprintf(b, sizeof b, ", %s", add_param(w, TYPE(type.dtype, out), UNIFORM));
  int y = target(w, type, w->blob[x].batched, -1);
  say(w, "%s = FC(%s, %s%s)", NAME(w, y), NAME(w, x), p, b);
  return true;
}

/* Rows by rows, of each matrix. */
static bool add_matmul(writer *w) {
  int x = pick(w, (want){.least_rank = 2, .most = 2000});
  if (x < 0 || (RANK(w, x) == 2 && w->blob[x].batched)) return false;
  int z = pick_like(w, x), rank = RANK(w, x);
  neap_type type = w->blob[x].type;
  type.shape.dim[rank - 1] = type.shape.dim[rank - 2];
  if (neap_shape_elems(&type.shape) > 4000) return false;
  int y = target(w, type, w->blob[x].batched, -1);
  say(w, "%s = MatMul(%s, %s) { trans_b = true }", NAME(w, y), NAME(w, x), NAME(w, z));
  return true;
}

static bool add_norm(writer *w) {
  int x = pick(w, (want){.least_rank = 2});
  if (x < 0) return false;
  neap_type row = TYPE(w->blob[x].type.dtype, DIM(w, x, RANK(w, x) - 1));
  bool rms = draw_chance(w, 40);
  char gamma[24], beta[32] = "";
  snprintf(gamma, sizeof gamma, "%s", add_param(w, row, NEAR_ONE));
  if (!rms) snprintf(beta, sizeof beta, ", %s", add_param(w, row, UNIFORM));
  int y = target(w, w->blob[x].type, w->blob[x].batched, x);
  say(w, "%s = %s(%s, %s%s)", NAME(w, y), rms ? "RmsNorm" : "LayerNorm", NAME(w, x), gamma, beta);
  return true;
}

/* ---- integers and other dtypes --------------------------------------------------------------- */

static bool add_cast(writer *w) {
  int x = pick(w, (want){0});
  neap_type type = w->blob[x].type;
  type.dtype = type.dtype == NEAP_DTYPE_F64 ? NEAP_DTYPE_F32 : NEAP_DTYPE_F64;
  int y = target(w, type, w->blob[x].batched, -1);
  say(w, "%s = Cast(%s) { to = %s }", NAME(w, y), NAME(w, x), neap_dtype_name(type.dtype));
  return true;
}

static bool add_arg_max(writer *w) {
  int x = pick(w, (want){.least_rank = 2});
  if (x < 0) return false;
  neap_type type = w->blob[x].type;
  int axis = type.shape.n_dim - 1, bound = (int)type.shape.dim[axis];
  type.shape.n_dim--, type.dtype = NEAP_DTYPE_I64;
  int y = fresh(w, type, w->blob[x].batched);
  w->blob[y].bound = bound;
  say(w, "%s = ArgMax(%s) { axis = %d }", NAME(w, y), NAME(w, x), axis);
  return true;
}

/* Arithmetic of integers, and back among the reals. */
static bool add_integers(writer *w) {
  static const char *const type[] = {"Add", "Sub", "Mul", "Maximum", "Minimum"};
  int x = pick(w, (want){.dtype = draw_chance(w, 40) ? NEAP_DTYPE_I32 : NEAP_DTYPE_I64});
  if (x < 0) return false;
  int z = pick_like(w, x);
  const char *op = DRAW_OF(w, type);
  bool back = draw_chance(w, 60), narrow = draw_chance(w, 30);
  int y = target(w, w->blob[x].type, w->blob[x].batched, x);
  say(w, "%s = %s(%s, %s)", NAME(w, y), op, NAME(w, x), NAME(w, z));
  if (narrow) {
    neap_type small = w->blob[y].type;
    small.dtype = NEAP_DTYPE_I8;
    int n = fresh(w, small, w->blob[y].batched);
    say(w, "%s = Cast(%s) { to = i8 }", NAME(w, n), NAME(w, y));
  }
  if (back) {
    neap_type real = w->blob[y].type;
    real.dtype = w->real;
    int r = fresh(w, real, w->blob[y].batched);
    say(w, "%s = Cast(%s) { to = %s }", NAME(w, r), NAME(w, y), neap_dtype_name(w->real));
  }
  return true;
}

static bool add_embedding(writer *w) {
  int ids = pick(w, (want){.dtype = NEAP_DTYPE_I64, .bounded = true});
  if (ids < 0) ids = pick(w, (want){.dtype = NEAP_DTYPE_I32, .bounded = true});
  if (ids < 0 || RANK(w, ids) > 2) return false;
  int64_t columns = 2 * (1 + draw_below(w, w->recipe->size));
  neap_type type = w->blob[ids].type;
  type.dtype = w->real, type.shape.dim[type.shape.n_dim++] = columns;
  char p[24];
  snprintf(p, sizeof p, "%s",
           add_param(w, TYPE(w->real, BOUND + draw_below(w, 3), columns), UNIFORM));
  int y = fresh(w, type, w->blob[ids].batched);
  say(w, "%s = Embedding(%s, %s)", NAME(w, y), NAME(w, ids), p);
  return true;
}

/* A loss by labels, which comes back as a number that is added to a blob. */
static bool add_cross_entropy(writer *w) {
  int x = pick(w, (want){.rank = 2});
  if (x < 0 || DIM(w, x, 1) < BOUND) return false;
  neap_type label = TYPE(NEAP_DTYPE_I64, DIM(w, x, 0));
  int l = pick(w, (want){.like = &label});
  if (l < 0) label.dtype = NEAP_DTYPE_I32, l = pick(w, (want){.like = &label});
  if (l < 0 || w->blob[l].bound == 0 || w->blob[l].bound > BOUND ||
      w->blob[l].batched != w->blob[x].batched)
    return false;

  /* Labels must be classes: integers below BOUND, of the same batch. */
  int y = target(w, w->blob[x].type, w->blob[x].batched, x), k = w->n_named++;
  say(w, "e%d%c = SoftmaxCrossEntropy(%s, %s)", w->step, 'a' + k, NAME(w, x), NAME(w, l));
  say(w, "%s = Add(%s, e%d%c)", NAME(w, y), NAME(w, x), w->step, 'a' + k);
  return true;
}

const family general_families[] = {{"unary", 4, add_unary},
                                   {"binary", 4, add_binary},
                                   {"broadcast", 3, add_broadcast},
                                   {"AddN", 2, add_add_n},
                                   {"Where", 2, add_where},
                                   {"reduction", 2, add_reduce},
                                   {"Concat", 2, add_concat},
                                   {"Split", 2, add_split},
                                   {"Slice, Pad", 2, add_slice},
                                   {"Alias", 1, add_alias},
                                   {"Reshape", 3, add_reshape},
                                   {"Permute", 2, add_permute},
                                   {"Dropout", 2, add_dropout},
                                   {"Free", 2, add_free},
                                   {"assignment", 2, add_assignment},
                                   {"FC", 4, add_fc},
                                   {"MatMul", 2, add_matmul},
                                   {"LayerNorm, RmsNorm", 2, add_norm},
                                   {"Cast", 1, add_cast},
                                   {"ArgMax", 2, add_arg_max},
                                   {"integers", 2, add_integers},
                                   {"Embedding", 2, add_embedding},
                                   {"cross entropy", 2, add_cross_entropy},
                                   {NULL, 0, NULL}};
