/* fuse_quantized.c: products of quantised numbers: of a net that says what is quantised
 * (QLinearConv, or DequantizeLinear before a Conv and QuantizeLinear behind it) the ops whose
 * kernels compute with bytes.
 *
 * A net says it by real numbers: y = Q(Relu(Conv(D(x), D(w), b) + D(z))). The same number follows
 * from the integers x, w and z alone, rounded once instead of at each op; what the rewrite changes
 * is the rounding of the sum before it is rounded to an integer. Weights must be i8, symmetric and
 * fixed; x and z u8 or i8 with one fixed scale. So it is with means of x, y = Q(AveragePool(D(x))),
 * with sums without a product, y = Q(D(x) + D(z)), and with y = Q(Concat(D(x), D(z))).
 */
#include "rewrite/fuse_int.h"

enum { X, SCALE, ZERO }; /* of QuantizeLinear and DequantizeLinear */

/* An integer value and how it is to be read. */
typedef struct quantised {
  neap_value_id q, scale, zero;
} quantised;

static neap_dtype dtype_of(const fuser *f, neap_value_id v) {
  return f->graph->value[v].type.dtype;
}

static bool is_byte(neap_dtype dtype) { return dtype == NEAP_DTYPE_U8 || dtype == NEAP_DTYPE_I8; }

/* How node n, which quantises or makes real again, does it: by one fixed scale, or, with `many`,
 * one for each position of dimension 0. */
static bool is_fixed_scale(const fuser *f, int n, bool many) {
  const neap_shape *scale = &f->graph->value[fuse_in(f, n, SCALE)].type.shape;
  if (!fuse_is_fixed(f, fuse_in(f, n, SCALE)) || !fuse_is_fixed(f, fuse_in(f, n, ZERO)))
    return false;
  if (dtype_of(f, fuse_in(f, n, SCALE)) != NEAP_DTYPE_F32) return false;
  return neap_shape_elems(scale) == 1 || (many && fuse_attr(f, n, "axis")->i == 0);
}

/* The bytes that real value v stands for. False: v is none of a DequantizeLinear. */
static bool bytes_of(const fuser *f, neap_value_id v, bool many, quantised *out) {
  int d = fuse_made_by(f, v, "DequantizeLinear");
  if (d < 0 || !is_fixed_scale(f, d, many)) return false;
  *out = (quantised){fuse_in(f, d, X), fuse_in(f, d, SCALE), fuse_in(f, d, ZERO)};
  return is_byte(dtype_of(f, out->q)) && fuse_is_stable(f, out->q);
}

/* ---- products -------------------------------------------------------------------------------- */

/* All that goes into a product of bytes. */
typedef struct product {
  bool is_conv, relu;
  quantised x, w, y, z; /* y: scale and zero alone, absent where it is real */
  neap_value_id b;
  neap_dtype to;
} product;

static bool is_conv(const fuser *f, int m) {
  return fuse_is_op(f, m, "Conv") || fuse_is_op(f, m, "FusedConv");
}

/* Node m as a product of bytes, but for what y is. */
static bool product_at(const fuser *f, int m, product *p) {
  static const quantised none = {NEAP_NO_VALUE, NEAP_NO_VALUE, NEAP_NO_VALUE};
  bool is_fused = fuse_is_op(f, m, "FusedConv") || fuse_is_op(f, m, "FusedFC");
  if (!is_fused && !fuse_is_op(f, m, "Conv") && !fuse_is_op(f, m, "FC")) return false;
  int64_t activation = NEAP_ACTIVATION_NONE;
  if (is_fused) activation = fuse_attr(f, m, "activation")->i;
  if (!fuse_bytes_have((neap_activation)activation)) return false;

  /* Both operands stand for bytes: x by one scale, w by one for each row or one for all. */
  *p = (product){.is_conv = is_conv(f, m),
                 .relu = activation == NEAP_ACTIVATION_RELU,
                 .y = none,
                 .z = none,
                 .b = fuse_in(f, m, NEAP_FUSED_B),
                 .to = NEAP_DTYPE_F32};
  if (!bytes_of(f, fuse_in(f, m, NEAP_FUSED_X), false, &p->x)) return false;
  if (!bytes_of(f, fuse_in(f, m, NEAP_FUSED_W), true, &p->w)) return false;

  /* Symmetric weights, and what FoldScales makes of them and the bias, are made once. */
  return dtype_of(f, p->w.q) == NEAP_DTYPE_I8 && p->w.zero == NEAP_NO_VALUE &&
         fuse_is_fixed(f, p->w.q) && fuse_is_fixed(f, p->b);
}

bool fuse_is_of_bytes(const fuser *f, int m) {
  product p;
  return product_at(f, m, &p);
}

/* Whether windows of node m reach into padding. */
static bool has_padding(const fuser *f, int m) {
  const neap_attr_value *pad = fuse_attr(f, m, "pad");
  for (int i = 0; i < pad->n; i++)
    if (pad->ints[i] != 0) return true;
  return false;
}

/* Node n becomes the product, whose attributes are those of node m. */
static neap_status become(fuser *f, int n, int m, const product *p, bool *did, neap_error *error) {
  /* Scales, zero points and bias follow from parameters, so they are folded into a few vectors once
   * for all runs. */
  enum { BIAS, FACTOR, RATIO, Y_ZERO, PAD, N_FOLDED };
  const bool is_signed = dtype_of(f, p->x.q) == NEAP_DTYPE_I8;
  neap_value_id folded[N_FOLDED];
  const neap_value_id from[] = {p->w.q,     p->x.scale, p->w.scale, p->x.zero, p->b,
                                p->y.scale, p->y.zero,  p->z.scale, p->z.zero};
  NEAP_TRY(fuse_add(f, "FoldScales", NEAP_COUNT(from), from, N_FOLDED, folded, m,
                    (neap_set[]){NEAP_SET_INT("signed", is_signed), {0}}, error));

  /* What is nothing is left out: no kernel need do it. */
  if (p->z.scale == NEAP_NO_VALUE) folded[RATIO] = NEAP_NO_VALUE;
  if (p->y.zero == NEAP_NO_VALUE) folded[Y_ZERO] = NEAP_NO_VALUE;
  if (!has_padding(f, m) || (!is_signed && p->x.zero == NEAP_NO_VALUE)) folded[PAD] = NEAP_NO_VALUE;
  const neap_value_id in[] = {p->x.q,        p->w.q,         folded[BIAS], folded[FACTOR],
                              folded[RATIO], folded[Y_ZERO], folded[PAD],  p->z.q};
  NEAP_TRY(fuse_put(f, n, p->is_conv ? "FusedQLinearConv" : "FusedQLinearFC", NEAP_COUNT(in), in, m,
                    (neap_set[]){NEAP_SET_INT("relu", p->relu), NEAP_SET_INT("to", p->to), {0}},
                    did, error));
  return *did && m != n ? fuse_absorb(f, m, n, error) : NEAP_OK;
}

/* QuantizeLinear at n behind the mean of node m, of bytes that have a scale. */
static neap_status become_mean(fuser *f, int n, int m, bool *did, neap_error *error) {
  const bool is_global = fuse_is_op(f, m, "GlobalAveragePool");
  const neap_dtype to = dtype_of(f, f->graph->node[n].out[0]);
  quantised x;
  if (!is_global && !fuse_is_op(f, m, "AveragePool")) return NEAP_OK;
  if (!is_byte(to) || !bytes_of(f, fuse_in(f, m, 0), false, &x)) return NEAP_OK;
  const neap_value_id in[] = {x.q, x.scale, x.zero, fuse_in(f, n, SCALE), fuse_in(f, n, ZERO)};
  NEAP_TRY(fuse_put(f, n, is_global ? "QLinearGlobalAveragePool" : "QLinearAveragePool",
                    NEAP_COUNT(in), in, m, (neap_set[]){NEAP_SET_INT("to", to), {0}}, did, error));
  return *did ? fuse_absorb(f, m, n, error) : NEAP_OK;
}

/* ---- sums, and what is joined ---------------------------------------------------------------- */

/* Bytes x as those of QuantizeLinear at n: themselves where scale, zero point and dtype are the
 * same. */
static neap_status rescaled(fuser *f, int n, const quantised *x, neap_value_id *out,
                            neap_error *error) {
  const neap_dtype to = dtype_of(f, f->graph->node[n].out[0]);
  const neap_value_id scale = fuse_in(f, n, SCALE), zero = fuse_in(f, n, ZERO);
  *out = x->q;
  if (x->scale == scale && x->zero == zero && dtype_of(f, x->q) == to) return NEAP_OK;
  const neap_value_id in[] = {x->q, x->scale, x->zero, scale, zero};
  return fuse_add(f, "QLinearRescale", NEAP_COUNT(in), in, 1, out, n,
                  (neap_set[]){NEAP_SET_INT("to", to), {0}}, error);
}

/* QuantizeLinear at n of what DequantizeLinear made by another scale: no real number is made. */
static neap_status become_rescaled(fuser *f, int n, bool *did, neap_error *error) {
  const neap_dtype to = dtype_of(f, f->graph->node[n].out[0]);
  quantised x;
  if (!is_byte(to) || !bytes_of(f, fuse_in(f, n, X), false, &x)) return NEAP_OK;
  const neap_value_id in[] = {x.q, x.scale, x.zero, fuse_in(f, n, SCALE), fuse_in(f, n, ZERO)};
  return fuse_put(f, n, "QLinearRescale", NEAP_COUNT(in), in, n,
                  (neap_set[]){NEAP_SET_INT("to", to), {0}}, did, error);
}

/* The node whose sum QuantizeLinear at n rounds: what stands before it, m, or before m where that
 * is a Relu whose numbers below 0 saturate anyway, 0 being the least that y has. */
static int sum_behind(const fuser *f, int n, int m) {
  if (!fuse_is_op(f, m, "Relu")) return m;
  const neap_value_id v = fuse_in(f, m, 0);
  const bool is_least =
    dtype_of(f, f->graph->node[n].out[0]) == NEAP_DTYPE_U8 && fuse_in(f, n, ZERO) == NEAP_NO_VALUE;
  return is_least && fuse_may_go(f, v, 1) ? f->graph->value[v].node : -1;
}

/* QuantizeLinear at n behind a sum of two that stand for bytes, and perhaps a Relu, node m. */
static neap_status become_sum(fuser *f, int n, int m, bool *did, neap_error *error) {
  const neap_dtype to = dtype_of(f, f->graph->node[n].out[0]);
  const int sum = sum_behind(f, n, m);
  quantised a, b;
  if (sum < 0 || f->graph->node[sum].n_in != 2 || f->graph->node[sum].n_enforced > 0)
    return NEAP_OK;
  if (!fuse_is_op(f, sum, "Add") && !fuse_is_op(f, sum, "AddN")) return NEAP_OK;
  if (!is_byte(to) || !bytes_of(f, fuse_in(f, sum, 0), false, &a) ||
      !bytes_of(f, fuse_in(f, sum, 1), false, &b))
    return NEAP_OK;

  /* Of other shapes the op takes none, and all stays as it is. */
  const neap_value_id in[] = {
    a.q, a.scale, a.zero, b.q, b.scale, b.zero, fuse_in(f, n, SCALE), fuse_in(f, n, ZERO)};
  NEAP_TRY(fuse_put(f, n, "QLinearAdd", NEAP_COUNT(in), in, sum,
                    (neap_set[]){NEAP_SET_INT("to", to), {0}}, did, error));
  if (*did && m != sum) NEAP_TRY(fuse_absorb(f, m, n, error));
  return *did ? fuse_absorb(f, sum, n, error) : NEAP_OK;
}

/* QuantizeLinear at n behind Concat, node m, of what stands for bytes: bytes are joined. */
static neap_status become_joined(fuser *f, int n, int m, bool *did, neap_error *error) {
  const int n_in = f->graph->node[m].n_in;
  quantised x;
  if (!fuse_is_op(f, m, "Concat") || !is_byte(dtype_of(f, f->graph->node[n].out[0])))
    return NEAP_OK;
  for (int i = 0; i < n_in; i++)
    if (!bytes_of(f, fuse_in(f, m, i), false, &x)) return NEAP_OK;

  neap_value_id *part = neap_arena_alloc(&f->graph->arena, (size_t)n_in * sizeof *part);
  if (part == NULL) return graph_no_memory(error);
  for (int i = 0; i < n_in; i++) {
    bytes_of(f, fuse_in(f, m, i), false, &x);
    NEAP_TRY(rescaled(f, n, &x, &part[i], error));
  }
  NEAP_TRY(fuse_put(f, n, "Concat", n_in, part, m, NULL, did, error));
  return *did ? fuse_absorb(f, m, n, error) : NEAP_OK;
}

/* QuantizeLinear behind a product of bytes, a mean or sum of such, or what joins them. */
neap_status fuse_quantized(fuser *f, int n, bool *did, neap_error *error) {
  if (!fuse_is_op(f, n, "QuantizeLinear") || !is_fixed_scale(f, n, false)) return NEAP_OK;
  neap_value_id v = fuse_in(f, n, X);
  int m = f->graph->value[v].node;

  product p;
  if (m < 0) return NEAP_OK;
  NEAP_TRY(become_rescaled(f, n, did, error));
  if (*did || !fuse_may_go(f, v, 1) || f->graph->node[m].n_enforced > 0) return NEAP_OK;
  NEAP_TRY(become_mean(f, n, m, did, error));
  if (!*did) NEAP_TRY(become_sum(f, n, m, did, error));
  if (!*did) NEAP_TRY(become_joined(f, n, m, did, error));
  if (*did || !product_at(f, m, &p)) return NEAP_OK;

  /* How the result is to be rounded. */
  p.to = dtype_of(f, f->graph->node[n].out[0]);
  p.y = (quantised){v, fuse_in(f, n, SCALE), fuse_in(f, n, ZERO)};
  if (!is_byte(p.to)) return NEAP_OK;

  /* What is added lies in the bytes of y. */
  neap_value_id z = fuse_in(f, m, NEAP_FUSED_Z);
  if (z != NEAP_NO_VALUE && (!bytes_of(f, z, false, &p.z) || dtype_of(f, p.z.q) != p.to))
    return NEAP_OK;
  return become(f, n, m, &p, did, error);
}

/* A product of bytes whose result is wanted as real numbers. */
neap_status fuse_quantized_real(fuser *f, int n, bool *did, neap_error *error) {
  product p;
  if (f->graph->node[n].n_out != 1 || !product_at(f, n, &p)) return NEAP_OK;
  p.z.q = fuse_in(f, n, NEAP_FUSED_Z);
  return become(f, n, n, &p, did, error);
}

/* ---- ONNX's ops ------------------------------------------------------------------------------ */

/* QLinearConv, and QLinearMatMul by a matrix, whose scales and weights are fixed. */
neap_status fuse_qlinear(fuser *f, int n, bool *did, neap_error *error) {
  enum { OF_X, X_SCALE, X_ZERO, OF_W, W_SCALE, W_ZERO, Y_SCALE, Y_ZERO, OF_B };
  const bool conv = fuse_is_op(f, n, "QLinearConv");
  if (!conv && !fuse_is_op(f, n, "QLinearMatMul")) return NEAP_OK;
  const neap_node *node = &f->graph->node[n];
  product p = {.is_conv = conv,
               .x = {fuse_in(f, n, OF_X), fuse_in(f, n, X_SCALE), fuse_in(f, n, X_ZERO)},
               .w = {fuse_in(f, n, OF_W), fuse_in(f, n, W_SCALE), NEAP_NO_VALUE},
               .y = {NEAP_NO_VALUE, fuse_in(f, n, Y_SCALE), fuse_in(f, n, Y_ZERO)},
               .z = {NEAP_NO_VALUE, NEAP_NO_VALUE, NEAP_NO_VALUE},
               .b = fuse_in(f, n, OF_B),
               .to = dtype_of(f, node->out[0])};

  /* All but x is fixed, and the weights are symmetric bytes. */
  for (int i = X_SCALE; i < node->n_in; i++)
    if (!fuse_is_fixed(f, node->in[i])) return NEAP_OK;
  const neap_shape *w = &f->graph->value[p.w.q].type.shape;
  if (dtype_of(f, p.w.q) != NEAP_DTYPE_I8 || fuse_in(f, n, W_ZERO) != NEAP_NO_VALUE) return NEAP_OK;

  /* One scale for all rows of x and y. */
  if (neap_shape_elems(&f->graph->value[p.x.scale].type.shape) != 1 ||
      neap_shape_elems(&f->graph->value[p.y.scale].type.shape) != 1)
    return NEAP_OK;

  /* A matrix (K,N) is turned once: the product takes its weight by rows of outputs. */
  if (!conv) {
    if (w->n_dim != 2) return NEAP_OK;
    const neap_set turned[] = {NEAP_SET_INTS("axes", 2, ((int64_t[]){1, 0})), {0}};
    neap_value_id by_rows; /* what goes in is still read while what comes out is written */
    NEAP_TRY(fuse_add(f, "Permute", 1, &p.w.q, 1, &by_rows, n, turned, error));
    p.w.q = by_rows;
  }
  return become(f, n, n, &p, did, error);
}

/* ---- what only moves bytes ------------------------------------------------------------------- */

/* Ops that give each real number what they give the integer that stands for it. */
static bool moves_bytes(const fuser *f, int n) {
  static const char *const types[] = {"MaxPool", "Flatten",   "Reshape", "Permute",
                                      "Squeeze", "Unsqueeze", "Slice"};
  for (int t = 0; t < NEAP_COUNT(types); t++)
    if (fuse_is_op(f, n, types[t])) return f->graph->node[n].n_out == 1;
  return false;
}

/* The op on bytes first, then real numbers: fewer bytes are moved, and a QuantizeLinear behind may
 * find its product. */
static neap_status move_bytes(fuser *f, int n, bool *did, neap_error *error) {
  quantised x;
  int d = fuse_made_by(f, fuse_in(f, n, 0), "DequantizeLinear");
  if (d < 0 || !moves_bytes(f, n) || !bytes_of(f, fuse_in(f, n, 0), false, &x)) return NEAP_OK;

  /* The same op with the same attributes, now on the integers. */
  neap_value_id moved;
  neap_set set[NEAP_OP_MAX_ATTR + 1] = {{0}};
  const neap_node *node = &f->graph->node[n];
  int used = 0;
  for (int a = 0; a < neap_op_n_attrs(node->op); a++)
    if (node->attrs[a].given) set[used++] = (neap_set){node->op->attrs[a].name, node->attrs[a]};
  NEAP_TRY(fuse_add(f, node->op->name, 1, &x.q, 1, &moved, n, set, error));
  return fuse_put(f, n, "DequantizeLinear", 3, (neap_value_id[]){moved, x.scale, x.zero}, d, NULL,
                  did, error);
}

/* QuantizeLinear of what DequantizeLinear made by the same scale: the integers themselves. */
static neap_status same_again(fuser *f, int n, bool *did, neap_error *error) {
  quantised x;
  if (!fuse_is_op(f, n, "QuantizeLinear") || !bytes_of(f, fuse_in(f, n, X), false, &x))
    return NEAP_OK;
  neap_value_id out = f->graph->node[n].out[0];
  if (x.scale != fuse_in(f, n, SCALE) || x.zero != fuse_in(f, n, ZERO) ||
      !neap_type_equal(&f->graph->value[out].type, &f->graph->value[x.q].type) ||
      !fuse_is_stable(f, out) || !fuse_may_go(f, out, f->value[out].n_read))
    return NEAP_OK;
  *did = true;
  return fuse_forward(f, out, x.q, error);
}

neap_status fuse_bytes(fuser *f, int n, bool *did, neap_error *error) {
  NEAP_TRY(move_bytes(f, n, did, error));
  return *did ? NEAP_OK : same_again(f, n, did, error);
}
