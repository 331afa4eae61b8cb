/* fuse_pattern.c: LayerNorm, Gelu and Attention, written out in primitive ops, become the ops of
 * these names: nets that come from elsewhere are written so.
 *
 * A pattern is matched from its last node back. What is matched on the way is noted in `parts`, and
 * absorbed when the rewrite has been made: until then nothing changes.
 */
#include "rewrite/fuse_int.h"

#include <math.h>

enum { MOST_PARTS = 16 };
/* Nodes matched so far, which become part of the new op if the match succeeds. */
typedef struct parts {
  int n, node[MOST_PARTS];
} parts;

static bool add_part(parts *p, int node) {
  if (p->n == MOST_PARTS) return false;
  p->node[p->n++] = node;
  return true;
}

static neap_status absorb_all(fuser *f, const parts *p, int into, neap_error *error) {
  /* in order of definition, mostly */
  for (int i = p->n - 1; i >= 0; i--) NEAP_TRY(fuse_absorb(f, p->node[i], into, error));
  return NEAP_OK;
}

/* The node of type `name` that defines v, when v is read n_read times and may go; it is noted. -1:
 * not so. */
static int part(fuser *f, parts *p, neap_value_id v, const char *name, int n_read) {
  int m = fuse_made_by(f, v, name);
  if (m < 0 || f->graph->node[m].n_out != 1 || !fuse_may_go(f, v, n_read)) return -1;
  return add_part(p, m) ? m : -1;
}

/* Constants in nets from elsewhere are rounded to f32, or typed by hand. */
static bool is_near(double a, double b) { return fabs(a - b) <= 1e-5 * fabs(b); }

static const neap_shape *shape_of(const fuser *f, neap_value_id v) {
  return &f->graph->value[v].type.shape;
}

/* Node m is `v` and a number, in either order; *v gets the other operand. */
static bool with_number(const fuser *f, int m, neap_value_id *v, double *number) {
  neap_value_id a = fuse_in(f, m, 0), b = fuse_in(f, m, 1);
  if (f->graph->node[m].n_in != 2) return false;
  if (fuse_is_number(f, b, number)) {
    *v = a;
    return true;
  }
  *v = b;
  return fuse_is_number(f, a, number);
}

/* ---- LayerNorm ------------------------------------------------------------------------------- */

/* Mean over the last dimension, which stays as 1. */
static bool is_row_mean(const fuser *f, int m) {
  const neap_attr_value *axes = fuse_attr(f, m, "axes");
  int last = shape_of(f, fuse_in(f, m, 0))->n_dim - 1;
  return axes->n == 1 && (axes->ints[0] == -1 || axes->ints[0] == last) &&
         fuse_attr(f, m, "keepdim")->i != 0;
}

/* v = mean(d^2) + eps over rows; *n_read: how often that reads d. */
static bool match_variance(fuser *f, parts *p, neap_value_id v, neap_value_id d, double *eps,
                           int *n_read) {
  /* The sum, and in it a mean of rows. */
  neap_value_id mean_value;
  int add = part(f, p, v, "Add", 1);
  if (add < 0 || !with_number(f, add, &mean_value, eps)) return false;
  int mean = part(f, p, mean_value, "Mean", 1);
  if (mean < 0 || !is_row_mean(f, mean)) return false;

  /* Of what is a square in one of three ways. */
  neap_value_id squared = fuse_in(f, mean, 0);
  *n_read = 1;
  int square = part(f, p, squared, "Square", 1);
  if (square >= 0) return fuse_in(f, square, 0) == d;
  int mul = part(f, p, squared, "Mul", 1);
  if (mul >= 0) {
    *n_read = 2;
    return fuse_in(f, mul, 0) == d && fuse_in(f, mul, 1) == d;
  }
  int power = part(f, p, squared, "Pow", 1);
  double two;
  return power >= 0 && fuse_in(f, power, 0) == d && fuse_is_number(f, fuse_in(f, power, 1), &two) &&
         two == 2;
}

/* (x - mean x) / sqrt(var + eps), or times its reciprocal. */
static neap_status match_core(fuser *f, int n, bool *did, neap_error *error) {
  bool divides = fuse_is_op(f, n, "Div");
  int n_order = divides ? 1 : 2; /* factors come in either order */
  for (int i = 0; i < n_order; i++) {
    parts p = {0};
    neap_value_id d = fuse_in(f, n, i), root = fuse_in(f, n, 1 - i);
    if (d == NEAP_NO_VALUE || root == NEAP_NO_VALUE) continue;

    /* The root of the variance of d. */
    double eps;
    int n_read, m = part(f, &p, root, divides ? "Sqrt" : "Rsqrt", 1);
    if (m < 0 || !match_variance(f, &p, fuse_in(f, m, 0), d, &eps, &n_read)) continue;
    /* And d is x less its own mean. */
    int sub = part(f, &p, d, "Sub", 1 + n_read);
    if (sub < 0) continue;
    neap_value_id x = fuse_in(f, sub, 0);
    int mean = part(f, &p, fuse_in(f, sub, 1), "Mean", 1);
    if (mean < 0 || !is_row_mean(f, mean) || fuse_in(f, mean, 0) != x || !fuse_is_stable(f, x))
      continue;
    NEAP_TRY(fuse_put(f, n, "LayerNorm", 1, &x, -1,
                      (neap_set[]){NEAP_SET_INT("axis", -1), NEAP_SET_FLOAT("eps", eps), {0}}, did,
                      error));
    return *did ? absorb_all(f, &p, n, error) : NEAP_OK;
  }
  return NEAP_OK;
}

/* Times gamma (N), plus beta (N): into the LayerNorm before it, which has none yet. */
static neap_status match_affine(fuser *f, int n, bool is_scale, bool *did, neap_error *error) {
  for (int i = 0; i < 2; i++) {
    neap_value_id y = fuse_in(f, n, i), vector = fuse_in(f, n, 1 - i);
    if (y == NEAP_NO_VALUE || vector == NEAP_NO_VALUE) continue;
    /* gamma comes before beta, and each once. */
    int m = fuse_made_by(f, y, "LayerNorm");
    if (m < 0 || f->graph->node[m].n_out != 1 || !fuse_may_go(f, y, 1) ||
        fuse_in(f, m, 2) != NEAP_NO_VALUE)
      continue;

    /* What the norm reads has to be the same at the later place. */
    neap_value_id in[3] = {fuse_in(f, m, 0), fuse_in(f, m, 1), NEAP_NO_VALUE};
    if (is_scale && in[1] != NEAP_NO_VALUE) continue;
    if (!fuse_is_stable(f, in[0]) || !fuse_is_stable(f, in[1]) || !fuse_is_stable(f, vector))
      continue;

    /* One value for each place of a row: anything else would be broadcast in another way. */
    const neap_shape *s = shape_of(f, vector), *sx = shape_of(f, in[0]);
    if (s->n_dim != 1 || s->dim[0] != sx->dim[sx->n_dim - 1]) continue;
    in[is_scale ? 1 : 2] = vector;
    NEAP_TRY(fuse_put(f, n, "LayerNorm", 3, in, m, NULL, did, error));
    return *did ? fuse_absorb(f, m, n, error) : NEAP_OK;
  }
  return NEAP_OK;
}

neap_status fuse_layer_norm(fuser *f, int n, bool *did, neap_error *error) {
  if (fuse_is_op(f, n, "Div")) return match_core(f, n, did, error);
  if (fuse_is_op(f, n, "Add")) return match_affine(f, n, false, did, error);
  if (!fuse_is_op(f, n, "Mul")) return NEAP_OK;
  NEAP_TRY(match_affine(f, n, true, did, error));
  return *did ? NEAP_OK : match_core(f, n, did, error);
}

/* ---- Gelu ------------------------------------------------------------------------------------ */

enum { MOST_FACTORS = 4 };
/* scale times all factors: how Gelu's constants are found in whatever order they were
 * multiplied. */
typedef struct product {
  double scale;
  int n;
  neap_value_id factor[MOST_FACTORS];
} product;

/* Node m, a Mul, or a Div by a number, as numbers times factors; products that nobody else reads
 * are taken apart. */
static bool take_apart(fuser *f, parts *p, int m, product *out) {
  bool divides = fuse_is_op(f, m, "Div");
  for (int i = 0; i < 2; i++) {
    neap_value_id v = fuse_in(f, m, i);
    double number;
    /* A number goes to the scale; only a number may be divided by. */
    if (fuse_is_number(f, v, &number)) {
      if (divides && i == 0) return false;
      out->scale = divides ? out->scale / number : out->scale * number;
      continue;
    }
    if (divides && i == 1) return false;

    /* A product is taken apart in its turn. */
    int before = p->n, inner = part(f, p, v, "Mul", 1);
    if (inner < 0) {
      int div = fuse_made_by(f, v, "Div");
      if (div >= 0 && fuse_is_number(f, fuse_in(f, div, 1), &number))
        inner = part(f, p, v, "Div", 1);
    }
    if (inner >= 0) {
      if (!take_apart(f, p, inner, out)) return false;
      continue;
    }
    /* It can't be taken apart, so what was noted on the way is no part of the match. */
    p->n = before;
    if (out->n == MOST_FACTORS) return false;
    out->factor[out->n++] = v;
  }
  return true;
}

/* v as a product; a value that is none is one factor. */
static bool product_at(fuser *f, parts *p, neap_value_id v, product *out) {
  *out = (product){.scale = 1};
  int m = part(f, p, v, "Mul", 1);
  if (m < 0) m = part(f, p, v, "Div", 1);
  if (m >= 0) return take_apart(f, p, m, out);
  out->factor[out->n++] = v;
  return true;
}

/* v = sqrt(2/pi) (x + 0.044715 x^3) */
static bool is_tanh_argument(fuser *f, parts *p, neap_value_id v, neap_value_id x) {
  /* sqrt(2/pi) times a sum of which one term is x. */
  product outer, cubic;
  if (!product_at(f, p, v, &outer) || outer.n != 1 || !is_near(outer.scale, 0.79788456080286535588))
    return false;
  int add = part(f, p, outer.factor[0], "Add", 1);
  if (add < 0) return false;
  int at_x = fuse_in(f, add, 0) == x ? 0 : 1;
  if (fuse_in(f, add, at_x) != x) return false;

  /* The other one is 0.044715 times x * x * x, or a power. */
  if (!product_at(f, p, fuse_in(f, add, 1 - at_x), &cubic) || !is_near(cubic.scale, 0.044715))
    return false;
  if (cubic.n == 3) return cubic.factor[0] == x && cubic.factor[1] == x && cubic.factor[2] == x;
  if (cubic.n != 1) return false;
  int power = part(f, p, cubic.factor[0], "Pow", 1);
  double three;
  return power >= 0 && fuse_in(f, power, 0) == x &&
         fuse_is_number(f, fuse_in(f, power, 1), &three) && three == 3;
}

/* v = x / sqrt 2 */
static bool is_erf_argument(fuser *f, parts *p, neap_value_id v, neap_value_id x) {
  product inner;
  return product_at(f, p, v, &inner) && inner.n == 1 && inner.factor[0] == x &&
         is_near(inner.scale, 0.70710678118654752440);
}

/* v = 1 + erf(..) or 1 + tanh(..) of x; *by_tanh says which. */
static bool is_gate(fuser *f, parts *p, neap_value_id v, neap_value_id x, bool *by_tanh) {
  neap_value_id of;
  double one;
  int add = part(f, p, v, "Add", 1);
  if (add < 0 || !with_number(f, add, &of, &one) || one != 1) return false;
  int erf_node = part(f, p, of, "Erf", 1);
  *by_tanh = erf_node < 0;
  if (erf_node >= 0) return is_erf_argument(f, p, fuse_in(f, erf_node, 0), x);
  int tanh_node = part(f, p, of, "Tanh", 1);
  return tanh_node >= 0 && is_tanh_argument(f, p, fuse_in(f, tanh_node, 0), x);
}

/* x (1 + erf(x / sqrt 2)) / 2, or its tanh form, multiplied in any order. */
neap_status fuse_gelu(fuser *f, int n, bool *did, neap_error *error) {
  if (!fuse_is_op(f, n, "Mul") && !fuse_is_op(f, n, "Div")) return NEAP_OK;

  /* One of the two factors is x, the other the gate. */
  for (int i = 0; i < 2; i++) {
    parts p = {0};
    product all = {.scale = 1};
    bool by_tanh;
    if (!take_apart(f, &p, n, &all) || all.n != 2 || !is_near(all.scale, 0.5)) return NEAP_OK;
    neap_value_id x = all.factor[i];
    if (!fuse_is_stable(f, x) || !is_gate(f, &p, all.factor[1 - i], x, &by_tanh)) continue;
    NEAP_TRY(fuse_put(f, n, "Gelu", 1, &x, -1,
                      (neap_set[]){NEAP_SET_INT("approximate", by_tanh), {0}}, did, error));
    return *did ? absorb_all(f, &p, n, error) : NEAP_OK;
  }
  return NEAP_OK;
}

/* ---- Attention ------------------------------------------------------------------------------- */

/* Scores q k' times a number, as v: *q, *k and *scale; k as (...,S,D). */
static bool match_scores(fuser *f, parts *p, neap_value_id v, neap_value_id *q, neap_value_id *k,
                         double *scale) {
  /* A matrix product of q, not turned, times one number. */
  product scores;
  if (!product_at(f, p, v, &scores) || scores.n != 1) return false;
  int m = part(f, p, scores.factor[0], "MatMul", 1);
  if (m < 0 || fuse_attr(f, m, "trans_a")->i != 0) return false;
  *scale = scores.scale;
  *q = fuse_in(f, m, 0);
  *k = fuse_in(f, m, 1);
  if (fuse_attr(f, m, "trans_b")->i != 0) return true;

  /* Else k has been turned before: its last two dimensions, and no others. */
  int turn = part(f, p, *k, "Permute", 1);
  if (turn < 0) return false;

  /* The order of dimensions but for the last two, which change places. */
  const neap_attr_value *axes = fuse_attr(f, turn, "axes");
  int n_dim = shape_of(f, *k)->n_dim;
  if (axes->n != n_dim) return false;
  for (int d = 0; d < n_dim; d++) {
    int64_t from = axes->ints[d] < 0 ? axes->ints[d] + n_dim : axes->ints[d];
    int wanted = d < n_dim - 2 ? d : 2 * n_dim - 3 - d;
    if (from != wanted) return false;
  }
  *k = fuse_in(f, turn, 0);
  return true;
}

/* q, k and v of rank 4 with equal leading dimensions, or of rank 3: one head. */
static bool are_heads(const fuser *f, neap_value_id q, neap_value_id k, neap_value_id v) {
  const neap_shape *sq = shape_of(f, q), *sk = shape_of(f, k), *sv = shape_of(f, v);
  if (sq->n_dim < 3 || sq->n_dim > 4 || sk->n_dim != sq->n_dim || sv->n_dim != sq->n_dim)
    return false;
  for (int d = 0; d < sq->n_dim - 2; d++)
    if (sk->dim[d] != sq->dim[d] || sv->dim[d] != sq->dim[d]) return false;
  /* With rank 3 the depth of v is its own only when it is that of q. */
  return sq->n_dim == 4 || sv->dim[2] == sq->dim[2];
}

static bool is_last_axis(const fuser *f, int m) {
  int64_t axis = fuse_attr(f, m, "axis")->i;
  return axis == -1 || axis == shape_of(f, fuse_in(f, m, 0))->n_dim - 1;
}

/* softmax(scale q k' [+ mask]) v */
neap_status fuse_attention(fuser *f, int n, bool *did, neap_error *error) {
  if (!fuse_is_op(f, n, "MatMul") || fuse_attr(f, n, "trans_a")->i != 0 ||
      fuse_attr(f, n, "trans_b")->i != 0)
    return NEAP_OK;

  /* without a mask; as the second operand; as the first */
  for (int masked = 0; masked < 3; masked++) {
    parts p = {0};
    neap_value_id in[4] = {NEAP_NO_VALUE, NEAP_NO_VALUE, fuse_in(f, n, 1), NEAP_NO_VALUE}, scores;
    double scale;
    int softmax = part(f, &p, fuse_in(f, n, 0), "Softmax", 1);
    if (softmax < 0 || !is_last_axis(f, softmax)) return NEAP_OK;
    scores = fuse_in(f, softmax, 0);

    /* The mask is the other operand of the sum. */
    if (masked > 0) {
      int add = part(f, &p, scores, "Add", 1);
      if (add < 0) return NEAP_OK;
      scores = fuse_in(f, add, masked - 1);
      in[3] = fuse_in(f, add, 2 - masked);
    }
    if (!match_scores(f, &p, scores, &in[0], &in[1], &scale) || !are_heads(f, in[0], in[1], in[2]))
      continue;
    /* They are read here now, later than before: their content must still be the same. */
    bool stable = true;
    for (int i = 0; i < 4; i++)
      if (!fuse_is_stable(f, in[i])) stable = false;
    if (!stable) continue;
    /* Rank 3 has no dimension of heads: the op is told that there is one. */
    bool one_head = shape_of(f, in[0])->n_dim == 3;
    /* A mask of batches would be broadcast over heads. */
    if (one_head && in[3] != NEAP_NO_VALUE && shape_of(f, in[3])->n_dim > 2) continue;
    NEAP_TRY(
      fuse_put(f, n, "Attention", in[3] == NEAP_NO_VALUE ? 3 : 4, in, -1,
               (neap_set[]){NEAP_SET_FLOAT("scale", scale), NEAP_SET_INT("heads", one_head), {0}},
               did, error));
    return *did ? absorb_all(f, &p, n, error) : NEAP_OK;
  }
  return NEAP_OK;
}
