/* fuse_scale.c: factors and summands of channels that stand as ops of their own, as Caffe's Scale
 * and Bias do when they are written to ONNX, go into the BatchNorm, Conv or FC before them; and a
 * Relu into the BatchNorm that it then follows.
 *
 *   norm(x; gamma, beta) c + d = norm(x; gamma c, beta c + d)
 *   (product(x, w) + b) c + d  = product(x, w c) + (b c + d)
 *
 * INVARIANT: all that is computed here follows from parameters and state, so it is computed once
 * for all runs.
 */
#include "rewrite/fuse_int.h"

/* Whether c has one value for each channel of x, which is dimension 1, and is spread over the
 * others. */
static bool is_by_channel(const fuser *f, neap_value_id x, neap_value_id c) {
  const neap_type *tx = &f->graph->value[x].type, *tc = &f->graph->value[c].type;
  int skipped = tx->shape.n_dim - tc->shape.n_dim;
  if (tx->dtype != tc->dtype || tx->shape.n_dim < 2 || skipped < 0 || skipped > 1) return false;
  for (int d = 0; d < tc->shape.n_dim; d++)
    if (tc->shape.dim[d] != (d + skipped == 1 ? tx->shape.dim[1] : 1)) return false;
  return true;
}

/* c as (O, 1, .. 1) of n_dim dimensions; itself where it is that. */
static neap_status as_columns(fuser *f, neap_value_id c, int n_dim, int like, neap_value_id *out,
                              neap_error *error) {
  const neap_shape *shape = &f->graph->value[c].type.shape;
  int64_t dim[NEAP_MAX_DIM] = {neap_shape_elems(shape)};
  for (int d = 1; d < n_dim; d++) dim[d] = 1;
  *out = c;
  if (shape->n_dim == n_dim && shape->dim[0] == dim[0]) return NEAP_OK;
  return fuse_add(f, "Reshape", 1, &c, 1, out, like,
                  (neap_set[]){NEAP_SET_INTS("shape", n_dim, dim), {0}}, error);
}

/* *v becomes v op c, where c is brought to v's dimensions. */
static neap_status combine(fuser *f, const char *op, neap_value_id *v, neap_value_id c, int like,
                           neap_error *error) {
  neap_value_id both[2] = {*v};
  NEAP_TRY(as_columns(f, c, f->graph->value[*v].type.shape.n_dim, like, &both[1], error));
  return fuse_add(f, op, 2, both, 1, v, like, NULL, error);
}

/* Whether these operands of node m are given, fixed and of dtype `dtype`. */
static bool all_fixed(const fuser *f, int m, int first, int last, neap_dtype dtype) {
  for (int i = first; i <= last; i++) {
    neap_value_id v = fuse_in(f, m, i);
    if (v == NEAP_NO_VALUE || !fuse_is_fixed(f, v) || f->graph->value[v].type.dtype != dtype)
      return false;
  }
  return true;
}

/* Whether node m may move to the place of the one that reads v alone, and gives nothing else. */
static bool can_move(const fuser *f, int m, neap_value_id v) {
  const neap_node *node = &f->graph->node[m];
  if (node->n_enforced > 0 || !fuse_may_go(f, v, 1)) return false;
  for (int k = 1; k < node->n_out; k++)
    if (node->out[k] != NEAP_NO_VALUE && !fuse_may_go(f, node->out[k], 0)) return false;
  for (int i = 0; i < node->n_in; i++)
    if (!fuse_is_stable(f, node->in[i])) return false;
  return true;
}

/* The BatchNorm by running statistics that defines v and has no relu; -1: none. */
static int norm_of(const fuser *f, neap_value_id v) {
  int m = fuse_made_by(f, v, "BatchNorm");
  if (m < 0 || fuse_attr(f, m, "training")->i != 0 || fuse_attr(f, m, "relu")->i != 0) return -1;
  return can_move(f, m, v) ? m : -1;
}

/* The Conv or FC, nothing fused into it but a norm, that defines v; -1: none. */
static int plain_product_of(const fuser *f, neap_value_id v) {
  static const char *const types[] = {"Conv", "FC"};
  for (int t = 0; t < NEAP_COUNT(types); t++) {
    int m = fuse_made_by(f, v, types[t]);
    if (m >= 0) return can_move(f, m, v) ? m : -1;
  }
  return -1;
}

static neap_status scale_norm(fuser *f, int n, int m, neap_value_id c, bool *did,
                              neap_error *error) {
  enum { GAMMA = 1, BETA, N_IN = 5 };
  if (!all_fixed(f, m, GAMMA, BETA, f->graph->value[c].type.dtype)) return NEAP_OK;
  neap_value_id in[N_IN];
  for (int i = 0; i < N_IN; i++) in[i] = fuse_in(f, m, i);

  /* A factor multiplies gamma and beta, a summand is added to beta alone. */
  bool multiplies = fuse_is_op(f, n, "Mul");
  if (multiplies) NEAP_TRY(combine(f, "Mul", &in[GAMMA], c, m, error));
  NEAP_TRY(combine(f, multiplies ? "Mul" : "Add", &in[BETA], c, m, error));
  NEAP_TRY(fuse_put(f, n, "BatchNorm", N_IN, in, m, NULL, did, error));
  return *did ? fuse_absorb(f, m, n, error) : NEAP_OK;
}

static neap_status scale_product(fuser *f, int n, int m, neap_value_id c, bool *did,
                                 neap_error *error) {
  neap_value_id in[3] = {fuse_in(f, m, 0), fuse_in(f, m, 1), fuse_in(f, m, 2)};
  bool multiplies = fuse_is_op(f, n, "Mul"), has_b = in[2] != NEAP_NO_VALUE;
  neap_dtype dtype = f->graph->value[c].type.dtype;

  /* A summand needs nothing of the weight. */
  if ((multiplies && !all_fixed(f, m, 1, 1, dtype)) || (has_b && !all_fixed(f, m, 2, 2, dtype)))
    return NEAP_OK;

  /* A factor multiplies weight and bias; a summand is added to the bias, or is the bias where there
   * was none. */
  if (multiplies) NEAP_TRY(combine(f, "Mul", &in[1], c, m, error));
  if (has_b)
    NEAP_TRY(combine(f, multiplies ? "Mul" : "Add", &in[2], c, m, error));
  else if (!multiplies)
    NEAP_TRY(as_columns(f, c, 1, m, &in[2], error));
  NEAP_TRY(fuse_put(f, n, f->graph->node[m].op->name, in[2] != NEAP_NO_VALUE ? 3 : 2, in, m, NULL,
                    did, error));
  return *did ? fuse_absorb(f, m, n, error) : NEAP_OK;
}

/* x c or x + c, where c has a value for each channel and the op before is one that can take it. */
neap_status fuse_scale(fuser *f, int n, bool *did, neap_error *error) {
  const neap_node *node = &f->graph->node[n];
  if (!fuse_is_op(f, n, "Mul") && !fuse_is_op(f, n, "Add")) return NEAP_OK;
  for (int i = 0; i < 2; i++) {
    neap_value_id x = node->in[i], c = node->in[1 - i];
    if (!is_by_channel(f, x, c) || !fuse_is_fixed(f, c)) continue;

    int norm = norm_of(f, x);
    if (norm >= 0) return scale_norm(f, n, norm, c, did, error);
    int m = plain_product_of(f, x);
    /* With more dimensions the features of FC are the last. */
    bool fits = m >= 0 && (fuse_is_op(f, m, "Conv") || f->graph->value[x].type.shape.n_dim == 2);
    if (fits) return scale_product(f, n, m, c, did, error);
  }
  return NEAP_OK;
}

/* A Relu of what a BatchNorm gives, which the pass before this one did not see: there was something
 * between them. */
neap_status fuse_norm_relu(fuser *f, int n, bool *did, neap_error *error) {
  if (!fuse_is_op(f, n, "Relu")) return NEAP_OK;
  int m = norm_of(f, f->graph->node[n].in[0]);
  if (m < 0) return NEAP_OK;
  NEAP_TRY(fuse_put(f, n, "BatchNorm", f->graph->node[m].n_in, f->graph->node[m].in, m,
                    (neap_set[]){NEAP_SET_INT("relu", 1), {0}}, did, error));
  return *did ? fuse_absorb(f, m, n, error) : NEAP_OK;
}
