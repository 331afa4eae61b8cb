/* fuse_product.c: what follows a convolution or a fully connected layer and can be part of it: a
 * normalisation, a residual sum, an activation, a pool, a bias.
 *
 * Each rule looks at one node and the product before it. The product moves to the node's place:
 * then its other operands must still have the same content there, and nobody else may read what it
 * gave before. Operands of a fused product are x, w, b and z (the residual), any of the last two
 * absent.
 *
 * INVARIANT: a rule changes results by rounding only: statistics are folded into weights, sums and
 * activations run on the same numbers in another order.
 */
#include "rewrite/fuse_int.h"

/* The Conv or FC, fused already or not, that defines v and ends in its plain sum: no activation
 * yet. -1: none. */
static int product_of(const fuser *f, neap_value_id v) {
  static const char *const types[] = {"Conv", "FC", "FusedConv", "FusedFC"};
  for (int t = 0; t < NEAP_COUNT(types); t++) {
    int m = fuse_made_by(f, v, types[t]);
    if (m < 0) continue;
    bool has_activation = t >= 2 && fuse_attr(f, m, "activation")->i != NEAP_ACTIVATION_NONE;
    return has_activation ? -1 : m;
  }
  return -1;
}

static bool is_conv(const fuser *f, int m) {
  return fuse_is_op(f, m, "Conv") || fuse_is_op(f, m, "FusedConv");
}

/* Product m may move to the place of the node that reads v alone. */
static bool can_absorb(const fuser *f, int m, neap_value_id v) {
  if (m < 0 || f->graph->node[m].n_enforced > 0 || !fuse_may_go(f, v, 1)) return false;
  for (int i = 0; i < f->graph->node[m].n_in; i++)
    if (!fuse_is_stable(f, f->graph->node[m].in[i])) return false;
  return true;
}

/* Node n becomes product m with these operands and this activation. */
static neap_status become(fuser *f, int n, int m, const neap_value_id in[4], int64_t activation,
                          bool *did, neap_error *error) {
  NEAP_TRY(fuse_put(f, n, is_conv(f, m) ? "FusedConv" : "FusedFC", 4, in, m,
                    (neap_set[]){NEAP_SET_INT("activation", activation), {0}}, did, error));
  return *did ? fuse_absorb(f, m, n, error) : NEAP_OK;
}

/* The product's operands, NEAP_NO_VALUE where it has none: a plain Conv has no z. */
static void operands(const fuser *f, int m, neap_value_id in[4]) {
  for (int i = 0; i < 4; i++) in[i] = fuse_in(f, m, i);
}

/* ---- normalisation --------------------------------------------------------------------------- */

/* BatchNorm by running statistics. A relu that is part of it (norm_relu.c) becomes the product's.
 * FC only where its features are the channels. */
neap_status fuse_norm(fuser *f, int n, bool *did, neap_error *error) {
  if (!fuse_is_op(f, n, "BatchNorm") || fuse_attr(f, n, "training")->i != 0) return NEAP_OK;
  neap_node *norm = &f->graph->node[n];
  neap_value_id x = norm->in[0], in[4], folded[2];
  int m = product_of(f, x);
  if (!can_absorb(f, m, x) || fuse_in(f, m, NEAP_FUSED_Z) != NEAP_NO_VALUE) return NEAP_OK;

  /* With more dimensions the features of FC are the last, the channels of BatchNorm the second. */
  if (!is_conv(f, m) && f->graph->value[x].type.shape.n_dim != 2) return NEAP_OK;

  /* Weights and statistics are the same in every run, so they are folded once. Nobody reads what
   * else the norm gives. */
  operands(f, m, in);
  if (!fuse_is_fixed(f, in[1]) || !fuse_is_fixed(f, in[2])) return NEAP_OK;
  for (int i = 1; i < norm->n_in; i++)
    if (!fuse_is_fixed(f, norm->in[i]) || norm->in[i] == NEAP_NO_VALUE) return NEAP_OK;
  for (int k = 1; k < norm->n_out; k++)
    if (!fuse_may_go(f, norm->out[k], 0)) return NEAP_OK;

  /* Folded weight and bias: w gamma / sqrt(var + eps), and (b - mean) gamma / sqrt(var + eps) +
   * beta. The product then gives what the norm gave. */
  int64_t activation = NEAP_ACTIVATION_NONE;
  if (fuse_attr(f, n, "relu")->i != 0) activation = NEAP_ACTIVATION_RELU;
  double eps = fuse_attr(f, n, "eps")->f;
  NEAP_TRY(
    fuse_add(f, "FoldNorm", in[2] != NEAP_NO_VALUE ? 6 : 5,
             (neap_value_id[]){in[1], norm->in[1], norm->in[2], norm->in[3], norm->in[4], in[2]}, 2,
             folded, m, (neap_set[]){NEAP_SET_FLOAT("eps", eps), {0}}, error));
  in[1] = folded[0];
  in[2] = folded[1];
  return become(f, n, m, in, activation, did, error);
}

/* ---- residual and activation ----------------------------------------------------------------- */

/* x w + z for a sum of two whose one term is a product. No broadcasting: z is added element by
 * element, in the kernel. */
neap_status fuse_residual(fuser *f, int n, bool *did, neap_error *error) {
  /* A sum of two different values, both of the sum's own type. */
  const neap_node *add = &f->graph->node[n];
  if (!fuse_is_op(f, n, "Add") && !fuse_is_op(f, n, "AddN")) return NEAP_OK;
  if (add->n_in != 2 || add->in[0] == add->in[1]) return NEAP_OK;
  const neap_type *y = &f->graph->value[add->out[0]].type;
  int best = -1, best_m = -1;
  size_t best_bytes = 0;
  for (int i = 0; i < 2; i++) {
    int m = product_of(f, add->in[i]);
    if (!neap_type_equal(&f->graph->value[add->in[i]].type, y) || !can_absorb(f, m, add->in[i]))
      continue;
    if (fuse_in(f, m, NEAP_FUSED_Z) != NEAP_NO_VALUE) continue;
    /* What a product reads lives until the sum now: of two products the one that reads less, of
     * equal ones the later. */
    size_t bytes = f->graph->value[fuse_in(f, m, NEAP_FUSED_X)].bytes;
    if (best >= 0 && (bytes > best_bytes || (bytes == best_bytes && m < best_m))) continue;
    best = i;
    best_m = m;
    best_bytes = bytes;
  }
  if (best < 0 || !neap_type_equal(&f->graph->value[add->in[1 - best]].type, y)) return NEAP_OK;

  /* The other term becomes the operand z. */
  neap_value_id in[4];
  operands(f, best_m, in);
  in[NEAP_FUSED_Z] = add->in[1 - best];
  return become(f, n, best_m, in, NEAP_ACTIVATION_NONE, did, error);
}

/* The activation of what a product gives, in the product. Kernels pad channels with zeros, which
 * must stay zeros. */
neap_status fuse_activation(fuser *f, int n, bool *did, neap_error *error) {
  const neap_node *node = &f->graph->node[n];
  neap_activation activation = neap_activation_of(node->op, node->attrs);
  if (activation == NEAP_ACTIVATION_NONE) return NEAP_OK;
  int m = product_of(f, node->in[0]);
  if (!can_absorb(f, m, node->in[0])) return NEAP_OK;

  /* With another activation than they have, products of bytes would be computed in real numbers,
   * of weights four times as large. It stays on its own then, behind the product. */
  if (!fuse_bytes_have(activation) && fuse_is_of_bytes(f, m)) return NEAP_OK;

  /* A kernel of blocks of 16 channels pads the last block: see fused.c. */
  const neap_shape *y = &f->graph->value[node->out[0]].type.shape;
  if (is_conv(f, m) && !neap_activation_keeps_zero(activation) && y->dim[1] % 16 != 0)
    return NEAP_OK;
  neap_value_id in[4];
  operands(f, m, in);
  return become(f, n, m, in, activation, did, error);
}

/* ---- pooling --------------------------------------------------------------------------------- */

/* Which pool node n is, as FusedConvPool's attribute `pool` counts (ORDER POOL); -1: none. */
static int pool_kind(const fuser *f, int n) {
  static const char *const types[] = {"MaxPool", "AveragePool", "GlobalAveragePool"};
  for (int t = 0; t < NEAP_COUNT(types); t++)
    if (fuse_is_op(f, n, types[t])) return t;
  return -1;
}

/* Whether it needs less memory to pool v, which product m makes of x, into y chunk by chunk. x and
 * y are both alive then, with a chunk of v between; apart, v is alive with either of them. */
static bool is_worth_chunks(const fuser *f, int m, neap_value_id v, neap_value_id y) {
  const neap_value *value = f->graph->value, *w = &value[fuse_in(f, m, NEAP_FUSED_W)];
  int64_t batch = NEAP_MAX(value[v].type.shape.dim[0], 1);
  size_t image_bytes = value[v].bytes / (size_t)batch;
  size_t chunk_bytes = (size_t)neap_fused_chunk(batch, image_bytes, w->bytes) * image_bytes;
  return chunk_bytes + NEAP_MIN(value[fuse_in(f, m, NEAP_FUSED_X)].bytes, value[y].bytes) <
         value[v].bytes;
}

/* Saves memory and costs time, so only where it is asked for. The pool's other outputs are for a
 * backward, which does not exist here. */
neap_status fuse_pool(fuser *f, int n, bool *did, neap_error *error) {
  /* A convolution and the pool that alone reads it, where the value between them is what takes
   * most. */
  const neap_node *pool = &f->graph->node[n];
  int kind = pool_kind(f, n);
  if (kind < 0) return NEAP_OK;
  int m = fuse_made_by(f, pool->in[0], "Conv");
  if (m < 0) m = fuse_made_by(f, pool->in[0], "FusedConv");
  if (!can_absorb(f, m, pool->in[0]) || !is_worth_chunks(f, m, pool->in[0], pool->out[0]))
    return NEAP_OK;
  for (int k = 1; k < pool->n_out; k++)
    if (pool->out[k] != NEAP_NO_VALUE && !fuse_may_go(f, pool->out[k], 0)) return NEAP_OK;

  /* The pool's attributes under the names that the fused op has for them. */
  static const char *const names[][2] = {
    {"pool_kernel", "kernel"},  {"pool_stride", "stride"},
    {"pool_pad", "pad"},        {"pool_dilation", "dilation"},
    {"ceil_mode", "ceil_mode"}, {"count_include_pad", "count_include_pad"}};
  neap_set set[NEAP_COUNT(names) + 2] = {NEAP_SET_INT("pool", kind)};
  int used = 1;
  for (int i = 0; i < NEAP_COUNT(names); i++)
    if (neap_op_attr_index(pool->op, names[i][1]) >= 0)
      set[used++] = (neap_set){names[i][0], *fuse_attr(f, n, names[i][1])};
  neap_value_id in[4];
  operands(f, m, in);
  NEAP_TRY(fuse_put(f, n, "FusedConvPool", 4, in, m, set, did, error));
  return *did ? fuse_absorb(f, m, n, error) : NEAP_OK;
}

/* ---- bias ------------------------------------------------------------------------------------ */

/* x (...,K) by a weight (K,N), or (N,K) transposed, that follows from parameters, and a vector (N):
 * FC. The weight is turned once. */
neap_status fuse_bias(fuser *f, int n, bool *did, neap_error *error) {
  const neap_node *add = &f->graph->node[n];
  if (!fuse_is_op(f, n, "Add")) return NEAP_OK;
  for (int i = 0; i < 2; i++) {
    int m = fuse_made_by(f, add->in[i], "MatMul");
    neap_value_id bias = add->in[1 - i];
    if (!can_absorb(f, m, add->in[i]) || fuse_attr(f, m, "trans_a")->i != 0) continue;
    neap_value_id x = fuse_in(f, m, 0), w = fuse_in(f, m, 1);
    /* A matrix that follows from parameters, and a vector as long as its rows are many. */
    const neap_shape *sw = &f->graph->value[w].type.shape, *sb = &f->graph->value[bias].type.shape;
    if (f->graph->value[x].type.shape.n_dim < 2 || sw->n_dim != 2 || sb->n_dim != 1 ||
        !fuse_is_fixed(f, w))
      continue;
    bool turned = fuse_attr(f, m, "trans_b")->i != 0;
    if (sb->dim[0] != sw->dim[turned ? 0 : 1]) continue;
    /* FC takes its weight as (N,K). */
    neap_value_id weight = w;
    if (!turned)
      NEAP_TRY(fuse_add(f, "Permute", 1, &w, 1, &weight, m,
                        (neap_set[]){NEAP_SET_INTS("axes", 2, ((int64_t[]){1, 0})), {0}}, error));
    NEAP_TRY(fuse_put(f, n, "FC", 3, (neap_value_id[]){x, weight, bias}, m, NULL, did, error));
    return *did ? fuse_absorb(f, m, n, error) : NEAP_OK;
  }
  return NEAP_OK;
}
