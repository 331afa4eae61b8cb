/* attention_twice.c: the gradient of AttentionGrad and PackedAttentionGrad, made of other ops,
 * which have gradients themselves. The scores are held whole, as the backward does not: this is for
 * small things.
 *
 * With p = exp(scale q k' + mask - lse), dp = dy v', ds = p (dp - rows(dp p)), the backward gives
 * dq = scale ds k, dk = scale ds' q, dv = p' dy. Let a, b, c and w arrive for dq, dk, dv and ds:
 *
 *   g = scale (a k' + q b') + w;  h = p (g - rows(g p))            of ds, and of dp
 *   e = g (dp - rows(dp p)) - dp rows(g p) + dy c'                 of p
 *   f = p (e - rows(e p))                                          of the scores
 *   q: scale (f k + ds b);  k: scale (f' q + ds' a);  v: h' dy;  dy: h v + p c
 *
 * INVARIANT: y and lse, which the backward reads, are functions of q, k, v and mask: they get no
 * gradient of their own, it is in those.
 */
#include "ops/attention_twice.h"

#include <math.h>

static neap_value_id two(neap_grad *g, const char *type, neap_value_id a, neap_value_id b) {
  return neap_grad_emit1(g, type, 2, (neap_value_id[]){a, b}, NULL, NULL);
}

/* a + b, of which one may be absent. */
static neap_value_id plus(neap_grad *g, neap_value_id a, neap_value_id b) {
  if (a == NEAP_NO_VALUE || b == NEAP_NO_VALUE) return a == NEAP_NO_VALUE ? b : a;
  return two(g, "Add", a, b);
}

static neap_value_id product(neap_grad *g, neap_value_id a, bool trans_a, neap_value_id b,
                             bool trans_b) {
  return neap_grad_emit1(
    g, "MatMul", 2, (neap_value_id[]){a, b}, NULL,
    (neap_set[]){NEAP_SET_INT("trans_a", trans_a), NEAP_SET_INT("trans_b", trans_b), {0}});
}

static neap_value_id number(neap_grad *g, neap_value_id like, double value) {
  return neap_grad_emit1(
    g, "Constant", 0, NULL, NULL,
    (neap_set[]){
      NEAP_SET_FLOAT("value", value), NEAP_SET_INT("dtype", neap_grad_type(g, like).dtype), {0}});
}

static neap_value_id times(neap_grad *g, neap_value_id a, double factor) {
  return a == NEAP_NO_VALUE ? a : two(g, "Mul", a, number(g, a, factor));
}

static neap_value_id shaped(neap_grad *g, neap_value_id x, neap_shape s) {
  return neap_grad_emit1(
    g, "Reshape", 1, &x, NULL,
    (neap_set[]){NEAP_SET_INTS("shape", s.n_dim, s.dim), NEAP_SET_INT("allow_zero", 1), {0}});
}

static neap_value_id turned(neap_grad *g, neap_value_id x) {
  const int64_t axes[] = {0, 2, 1, 3};
  return neap_grad_emit1(g, "Permute", 1, &x, NULL,
                         (neap_set[]){NEAP_SET_INTS("axes", 4, axes), {0}});
}

/* (B,T,N D) as (B,N,T,D); what has that form stays. Heads of queries that share one of keys lie one
 * behind the other: (B,G,H/G T,D). */
static neap_value_id in_heads(neap_grad *g, const neap_attention_twice *t, neap_value_id x,
                              int64_t n_head) {
  if (x == NEAP_NO_VALUE) return x;
  if (t->heads > 0) {
    neap_shape s = neap_grad_type(g, x).shape;
    x = turned(g, shaped(g, x, NEAP_SHAPE(s.dim[0], s.dim[1], n_head, s.dim[2] / n_head)));
  }
  neap_shape s = neap_grad_type(g, x).shape;
  int64_t n = t->n_key_head;
  return shaped(g, x, NEAP_SHAPE(s.dim[0], n, s.dim[1] / n * s.dim[2], s.dim[3]));
}

/* And back, as `like` is. */
static neap_value_id as(neap_grad *g, const neap_attention_twice *t, neap_value_id x,
                        int64_t n_head, neap_value_id like) {
  neap_shape s = neap_grad_type(g, like).shape;
  if (x == NEAP_NO_VALUE || t->heads == 0) return x == NEAP_NO_VALUE ? x : shaped(g, x, s);
  x = turned(g, shaped(g, x, NEAP_SHAPE(s.dim[0], n_head, s.dim[1], s.dim[2] / n_head)));
  return shaped(g, x, s);
}

/* The sums of a b over keys, (..,T,1). */
static neap_value_id rows(neap_grad *g, neap_value_id a, neap_value_id b) {
  neap_value_id ab = two(g, "Mul", a, b);
  const int64_t last = -1;
  return neap_grad_emit1(
    g, "Sum", 1, &ab, NULL,
    (neap_set[]){NEAP_SET_INTS("axes", 1, &last), NEAP_SET_INT("keepdim", 1), {0}});
}

/* x where it is seen, else 0. */
static neap_value_id only(neap_grad *g, neap_value_id seen, neap_value_id x) {
  return neap_grad_emit1(g, "Where", 3, (neap_value_id[]){seen, x, number(g, x, 0)}, NULL, NULL);
}

/* Query i sees keys up to i. */
static neap_value_id causal(neap_grad *g, int64_t n_query, int64_t n_key) {
  const int64_t sizes[] = {n_query, n_key};
  neap_value_id ones = neap_grad_emit1(g, "Constant", 0, NULL, NULL,
                                       (neap_set[]){NEAP_SET_FLOAT("value", 1),
                                                    NEAP_SET_INT("dtype", NEAP_DTYPE_BOOL),
                                                    NEAP_SET_INTS("shape", 2, sizes),
                                                    {0}});
  return neap_grad_emit1(g, "Tril", 1, &ones, NULL, NULL);
}

/* The probabilities (B,H,T,S); a row that sees no key has zeros. */
static neap_value_id probabilities(neap_grad *g, const neap_attention_twice *t, neap_value_id q,
                                   neap_value_id k) {
  neap_shape lse = neap_grad_type(g, t->lse).shape;
  /* The scores again, a head of keys with all rows of queries that read it, and seen as lse is. */
  neap_value_id s = times(g, product(g, q, false, k, true), t->scale), from = t->lse;
  int64_t n_key = neap_grad_type(g, k).shape.dim[2];
  s = shaped(g, s, NEAP_SHAPE(lse.dim[0], lse.dim[1], lse.dim[2], n_key));
  neap_dtype dtype = neap_grad_type(g, s).dtype;
  if (neap_grad_type(g, from).dtype != dtype)
    from = neap_grad_emit1(g, "Cast", 1, &from, NULL, (neap_set[]){NEAP_SET_INT("to", dtype), {0}});
  bool has_mask = t->mask != NEAP_NO_VALUE,
       is_bool = has_mask && neap_grad_type(g, t->mask).dtype == NEAP_DTYPE_BOOL;
  if (has_mask && !is_bool) s = two(g, "Add", s, t->mask);
  /* Minus infinity less itself would be NaN. */
  neap_value_id finite = two(g, "Gt", from, number(g, from, -INFINITY));
  from = only(g, finite, from);
  from = shaped(g, from, NEAP_SHAPE(lse.dim[0], lse.dim[1], lse.dim[2], 1));
  neap_value_id off = two(g, "Sub", s, from), p = neap_grad_emit1(g, "Exp", 1, &off, NULL, NULL);
  if (is_bool) p = only(g, t->mask, p);
  return t->causal ? only(g, causal(g, lse.dim[2], n_key), p) : p;
}

void neap_attention_grad_twice(neap_grad *g, neap_attention_twice *t) {
  t->dq = t->dk = t->dv = t->ddy = t->dmask = NEAP_NO_VALUE;
  neap_value_id q = in_heads(g, t, t->q, t->n_head), k = in_heads(g, t, t->k, t->n_key_head),
                v = in_heads(g, t, t->v, t->n_key_head), dy = in_heads(g, t, t->dy, t->n_head),
                a = in_heads(g, t, t->of_dq, t->n_head),
                b = in_heads(g, t, t->of_dk, t->n_key_head),
                c = in_heads(g, t, t->of_dv, t->n_key_head), w = t->of_dscores;

  /* p and ds are made again from q, k, v and lse, as by the backward, which has kept neither.
   * `whole` (B,H,T,S) is the mask's form; in `rank` the queries of all heads that share a head of
   * keys are rows of one matrix, as the products take them. */
  neap_value_id scores = probabilities(g, t, q, k), none = NEAP_NO_VALUE;
  neap_shape whole = neap_grad_type(g, scores).shape, rank = neap_grad_type(g, q).shape;
  rank.dim[3] = whole.dim[3];
  neap_value_id p = shaped(g, scores, rank), dp = product(g, dy, false, v, true);
  if (w != none) w = shaped(g, w, rank);
  neap_value_id less = two(g, "Sub", dp, rows(g, dp, p)), ds = two(g, "Mul", p, less);

  /* The formulas of the file's head, in their order. What does not arrive has no term: a, b, c or
   * w. */
  neap_value_id of_ds =
    plus(g, a == none ? none : times(g, product(g, a, false, k, true), t->scale),
         b == none ? none : times(g, product(g, q, false, b, true), t->scale));
  of_ds = plus(g, of_ds, w);
  neap_value_id e = c == none ? none : product(g, dy, false, c, true), h = none;
  if (of_ds != none) {
    neap_value_id sums = rows(g, of_ds, p);
    h = two(g, "Mul", p, two(g, "Sub", of_ds, sums));
    e = plus(g, e, two(g, "Sub", two(g, "Mul", of_ds, less), two(g, "Mul", dp, sums)));
  }
  if (e == none) return;
  neap_value_id f = two(g, "Mul", p, two(g, "Sub", e, rows(g, e, p)));

  /* A product that is turned sums over the queries; one that is not sums over the keys. */
  neap_value_id dq = plus(g, product(g, f, false, k, false),
                          b == none ? none : product(g, ds, false, b, false)),
                dk = plus(g, product(g, f, true, q, false),
                          a == none ? none : product(g, ds, true, a, false)),
                dv = h == none ? none : product(g, h, true, dy, false),
                ddy = plus(g, h == none ? none : product(g, h, false, v, false),
                           c == none ? none : product(g, p, false, c, false));
  t->dq = as(g, t, times(g, dq, t->scale), t->n_head, t->q);
  t->dk = as(g, t, times(g, dk, t->scale), t->n_key_head, t->k);
  t->dv = as(g, t, dv, t->n_key_head, t->v);
  t->ddy = as(g, t, ddy, t->n_head, t->dy);
  t->dmask = shaped(g, f, whole);
}
