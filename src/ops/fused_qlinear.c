/* fused_qlinear.c: FusedQLinearConv and FusedQLinearFC, products of bytes with fixed symmetric
 * weights, a residual and a Relu in one; and FoldScales, which makes of scales, zero points and
 * bias what they compute with. Made by a rewrite of nets that do not train
 * (rewrite/fuse_quantized.c).
 *
 *   y = round(max((product(x, w) + bias[o]) scale[o] + z) ratio, 0) + y_zero, saturated
 *
 * x is unsigned: one of i8 counts as x + 128. Its zero point is part of the bias, so that the
 * product is one of the bytes as they lie; where a window reaches into padding, that counts as
 * x_zero. z is added in its own steps, and `ratio` turns these into y's. y of f32 is the real
 * number.
 *
 * INVARIANT: all engines compute the same sum of integers and then the same operations of f32 in
 * the same order, so they give the same bits. oneDNN's do so by VNNI or AMX; older instructions
 * saturate in the midst of a sum, so there it is not asked.
 */
#include "ops/quantized.h"
#include "ops/rows.h"

#include <math.h>
#include <string.h>

/* The first six as oneDNN gets them. */
enum { X, W, BIAS, SCALE, RATIO, Y_ZERO, X_ZERO, Z };
enum { N_ONEDNN = X_ZERO };
enum { TILE = 256, SHIFT = 128 };

static bool has(const neap_call *call, int i) { return i < call->n_in && call->in[i].data != NULL; }

/* ---- FoldScales ------------------------------------------------------------------------------ */

enum { F_W, F_X_SCALE, F_W_SCALE, F_X_ZERO, F_B, F_Y_SCALE, F_Y_ZERO, F_Z_SCALE, F_Z_ZERO };
enum { F_SIGNED };
enum { F_BIAS, F_SCALE, F_RATIO, F_ZERO, F_PAD };

static neap_status infer_fold(neap_infer *c, neap_error *error) {
  const neap_type vector = {NEAP_DTYPE_F32, NEAP_SHAPE(c->in[F_W].shape.dim[0])},
                  number = {NEAP_DTYPE_F32, NEAP_SHAPE(1)};
  NEAP_TRY(neap_infer_rank(c, F_W, 2, NEAP_MAX_DIM, error));
  for (int i = F_X_SCALE; i < c->n_in; i++)
    NEAP_TRY(
      neap_quantized_expect(c, i, i == F_W_SCALE || i == F_B ? vector.shape.dim[0] : 0, error));
  for (int k = 0; k < c->n_out; k++) c->out[k] = k <= F_SCALE ? vector : number;
  return NEAP_OK;
}

static float number(const neap_call *call, int position, int64_t i, float absent) {
  return (float)neap_quantized_number(call, position, i, absent);
}

static void put(const neap_call *call, int k, int64_t i, double value) {
  if (k < call->n_out && call->out[k].data != NULL) neap_number_put(&call->out[k], i, value);
}

/* Scales are multiplied as QLinearConv multiplies them. */
static void run_fold(const neap_call *call) {
  const neap_operand *w = &call->in[F_W];
  const neap_shape *shape = &w->type.shape;
  const int64_t n_o = shape->dim[0], l = neap_shape_span(shape, 1, shape->n_dim);
  const float x_scale = number(call, F_X_SCALE, 0, 1), y_scale = number(call, F_Y_SCALE, 0, 1);
  const bool adds = has(call, F_Z_SCALE);
  const float z_scale = number(call, F_Z_SCALE, 0, 1), z_zero = number(call, F_Z_ZERO, 0, 0);
  const int64_t x_zero =
    (int64_t)number(call, F_X_ZERO, 0, 0) + (call->attrs[F_SIGNED].i != 0 ? SHIFT : 0);
  /* sum (x - x_zero) w = sum x w - x_zero sum w: the second part is known now, and joins the
   * bias. */
  for (int64_t o = 0; o < n_o; o++) {
    const int8_t *row = (const int8_t *)w->data + o * l;
    int64_t sum = 0;
    for (int64_t i = 0; i < l; i++) sum += row[i];
    /* Sums count steps of x and w; scale makes of them steps of z where one is added, else of y. */
    const float step = x_scale * number(call, F_W_SCALE, o, 1);
    const float scale = step / (adds ? z_scale : y_scale);
    /* An integer counts steps of x and w already. */
    double bias = neap_quantized_number(call, F_B, o, 0);
    if (has(call, F_B) && call->in[F_B].type.dtype != NEAP_DTYPE_I32) bias /= (double)step;
    bias -= (double)(x_zero * sum);
    if (adds) bias -= (double)z_zero / (double)scale;
    put(call, F_BIAS, o, bias);
    put(call, F_SCALE, o, scale);
  }
  put(call, F_RATIO, 0, z_scale / y_scale);
  put(call, F_ZERO, 0, number(call, F_Y_ZERO, 0, 0));
  put(call, F_PAD, 0, (double)x_zero);
}

#define F32_ONE(name, doc) \
  { name, doc, NEAP_BIT(F32) }
#define F32_MAYBE(name, doc) \
  { name, doc, NEAP_BIT(F32), NEAP_ARG_OPTIONAL }

const neap_op neap_op_FoldScales = {
  .name = "FoldScales",
  .summary =
    "What a product of bytes is multiplied by and what is added, from scales and zero points.",
  .math = "scale = x_scale w_scale / y_scale;  bias = b / (x_scale w_scale) - x_zero sum(w)",
  .source = "Jacob et al., arXiv 1712.05877, section 2.3",
  .internal = true,
  .inputs = {[F_W] = {"w", "(O,...)", NEAP_BIT(I8)},
             [F_X_SCALE] = F32_ONE("x_scale", "one"),
             [F_W_SCALE] = F32_ONE("w_scale", "one, or (O)"),
             [F_X_ZERO] = {"x_zero", "one", NEAP_BYTES, NEAP_ARG_OPTIONAL},
             [F_B] = {"b", "(O): f32, or i32 in steps of x_scale w_scale",
                      NEAP_BIT(F32) | NEAP_BIT(I32), NEAP_ARG_OPTIONAL},
             [F_Y_SCALE] = F32_MAYBE("y_scale", "one; none: y is real"),
             [F_Y_ZERO] = {"y_zero", "one", NEAP_BYTES, NEAP_ARG_OPTIONAL},
             [F_Z_SCALE] = F32_MAYBE("z_scale", "one"),
             [F_Z_ZERO] = {"z_zero", "one", NEAP_BYTES, NEAP_ARG_OPTIONAL}},
  .outputs = {[F_BIAS] = F32_ONE("bias", "(O)"),
              [F_SCALE] = F32_ONE("scale", "(O)"),
              [F_RATIO] = F32_ONE("ratio", "z_scale / y_scale"),
              [F_ZERO] = F32_ONE("zero", "y_zero"),
              [F_PAD] = F32_ONE("pad", "x_zero, of x as unsigned")},
  .attrs = {[F_SIGNED] = {"signed", "x is i8", NEAP_ATTR_BOOL}},
  .infer = infer_fold,
  .no_grad = true,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_fold, NEAP_BIT(F32) | NEAP_BIT(I32)),
  .cases =
    "{ {w={{4,3,3,3}, dtype=\"i8\", low=-128, high=128}, x_scale={{}, low=0.02, high=0.03}, "
    "w_scale={{4}, low=0.01, high=0.02}, x_zero={{}, dtype=\"u8\", low=1, high=9}, b={{4}, "
    "dtype=\"i32\", low=-90, high=90}, y_scale={{}, low=0.1, high=0.2}} }",
};

/* ---- what both products share ---------------------------------------------------------------- */

/* Attributes of both, behind those of Conv and of FC. */
enum { RELU, TO, N_TAIL };
enum { CONV_TAIL = NEAP_CONV_N_ATTR, FC_AXIS = 0, FC_TAIL = 1 };

static int tail_of(const neap_op *op) {
  extern const neap_op neap_op_FusedQLinearConv;
  return op == &neap_op_FusedQLinearConv ? CONV_TAIL : FC_TAIL;
}

/* What stands beside x and w, and y's dtype; y's shape is known. */
static neap_status infer_tail(neap_infer *c, neap_error *error) {
  const neap_dtype to = (neap_dtype)c->attrs[tail_of(c->op) + TO].i;
  const neap_type vector = {NEAP_DTYPE_F32, NEAP_SHAPE(c->in[W].shape.dim[0])};
  if (!neap_dtype_in(to, NEAP_BYTES | NEAP_BIT(F32)))
    return neap_infer_fail(c, NEAP_ATTRIBUTE, X, error, "to expects u8, i8 or f32, got %s",
                           neap_dtype_name(to));
  c->out[0].dtype = to;
  NEAP_TRY(neap_infer_expect(c, BIAS, &vector, error));
  NEAP_TRY(neap_infer_expect(c, SCALE, &vector, error));
  for (int i = RATIO; i <= X_ZERO; i++) NEAP_TRY(neap_quantized_expect(c, i, 0, error));
  if (neap_quantized_has(c->n_in, c->in, Z)) NEAP_TRY(neap_infer_expect(c, Z, &c->out[0], error));
  return NEAP_OK;
}

/* The sums of channel o, or of channels o, o + 1, .. where `step` is 1. */
static void finish_sums(const neap_call *call, int64_t o, int64_t step, int64_t at,
                        const int32_t *sum, int64_t n) {
  const neap_operand *y = &call->out[0];
  const float *bias = (const float *)call->in[BIAS].data + o;
  const float *scale = (const float *)call->in[SCALE].data + o;
  const bool adds = has(call, Z), is_real = y->type.dtype == NEAP_DTYPE_F32;
  const bool relu = call->attrs[tail_of(call->op) + RELU].i != 0;
  const float zero = number(call, Y_ZERO, 0, 0), ratio = number(call, RATIO, 0, 1);
  /* The operations of oneDNN's chain in its order: bias, scale, then z and the ratio, the Relu and
   * the zero point. Another order would round another way. */
  float v[TILE];
  /* Apart, so that either goes many at a time. */
  if (step == 1)
    for (int64_t i = 0; i < n; i++) v[i] = ((float)sum[i] + bias[i]) * scale[i];
  else
    for (int64_t i = 0; i < n; i++) v[i] = ((float)sum[i] + bias[0]) * scale[0];
  if (adds)
    for (int64_t i = 0; i < n; i++)
      v[i] = (v[i] + (float)neap_number_at(&call->in[Z], at + i)) * ratio;
  if (relu)
    for (int64_t i = 0; i < n; i++) v[i] = v[i] > 0 ? v[i] : 0;
  if (!is_real)
    for (int64_t i = 0; i < n; i++) v[i] = rintf(v[i]) + zero;
  neap_quantized_put(y, at, v, n);
}

/* ---- x as oneDNN reads it -------------------------------------------------------------------- */

static bool is_conv(const neap_op *op) { return tail_of(op) == CONV_TAIL; }

/* Unsigned, and its padding written out where that is no zero: a copy in front of oneDNN's own
 * scratch, unless x can be read where it lies. */
typedef struct turned {
  bool pads, shifts;
  neap_type x; /* as oneDNN is told */
  size_t bytes;
  int64_t begin[3], in[3], padded[3];
} turned;

static turned turned_of(const neap_op *op, const neap_attr_value *attrs, int n_in,
                        const neap_type *in, const neap_type *out) {
  turned t = {.shifts = in[X].dtype == NEAP_DTYPE_I8, .x = {NEAP_DTYPE_U8, in[X].shape}};
  if (is_conv(op)) {
    neap_window w = neap_conv_window(op, attrs, &in[X].shape, &out->shape, &in[W].shape);
    for (int d = 0; d < 3; d++) {
      t.begin[d] = w.begin[d], t.in[d] = w.in[d];
      t.padded[d] = w.begin[d] + w.in[d] + w.end[d];
      t.pads |= t.padded[d] > w.in[d];
    }
    /* Zeros are oneDNN's affair. */
    t.pads &= neap_quantized_has(n_in, in, X_ZERO);
    if (t.pads)
      for (int d = 0; d < w.n; d++) t.x.shape.dim[2 + d] = t.padded[3 - w.n + d];
    else
      for (int d = 0; d < 3; d++) t.begin[d] = 0, t.padded[d] = t.in[d];
  }
  if (t.pads || t.shifts) t.bytes = neap_align(neap_type_bytes(&t.x));
  return t;
}

typedef struct copier {
  const turned *t;
  const uint8_t *from;
  uint8_t *to;
  int64_t side; /* channels side by side */
  uint8_t pad, flip;
} copier;

/* Rows [begin, end) of what is written: (planes or images, D, H) of W times `side` bytes. */
static void copy_rows(void *context, int64_t begin, int64_t end) {
  const copier *c = context;
  const turned *t = c->t;
  const int64_t row = t->padded[2] * c->side, left = t->begin[2] * c->side,
                inner = t->in[2] * c->side;
  for (int64_t r = begin; r < end; r++) {
    /* Where the row comes from; outside of x it is padding alone. A row that is wider than x has
     * padding at its ends. */
    int64_t h = r % t->padded[1] - t->begin[1], d = r / t->padded[1] % t->padded[0] - t->begin[0],
            n = r / t->padded[1] / t->padded[0];
    uint8_t *to = c->to + r * row;
    bool inside = d >= 0 && d < t->in[0] && h >= 0 && h < t->in[1];
    if (!inside || row > inner) memset(to, c->pad, (size_t)row);
    if (!inside) continue;
    const uint8_t *from = c->from + ((n * t->in[0] + d) * t->in[1] + h) * inner;
    for (int64_t i = 0; i < inner; i++) to[left + i] = from[i] ^ c->flip;
  }
}

/* x, or the copy, which is made now. i8 as u8 plus 128 is the same byte with its first bit
 * turned. */
static void *read_x(const neap_call *call, const turned *t) {
  const neap_operand *x = &call->in[X];
  if (t->bytes == 0) return x->data;
  copier c = {.t = t, .from = x->data, .to = call->scratch, .side = 1};
  c.pad = (uint8_t)number(call, X_ZERO, 0, 0);
  c.flip = t->shifts ? 0x80 : 0;
  turned rows = *t;
  int64_t n = neap_shape_elems(&x->type.shape);
  if (is_conv(call->op)) {
    c.side = neap_window_side_by_side(&x->layout, &x->type.shape);
    n /= t->in[0] * t->in[1] * t->in[2] * c.side;
  } else {
    /* One long row, in pieces for the threads. */
    for (int d = 0; d < 3; d++) rows.in[d] = rows.padded[d] = 1;
  }
  c.t = &rows;
  const int64_t n_row = n * rows.padded[0] * rows.padded[1];
  const int64_t grain = NEAP_GRAIN / NEAP_MAX(rows.padded[2] * c.side, 1) + 1;
  neap_parallel_for(n_row, grain, call->n_thread, copy_rows, &c);
  return call->scratch;
}

/* ---- oneDNN ---------------------------------------------------------------------------------- */

/* Completes a case whose operands are those of the context; types[] is for x as it is told. */
static void describe(neap_onednn_case *c, const neap_op *op, const neap_attr_value *attrs,
                     const turned *t, neap_type types[N_ONEDNN]) {
  const neap_attr_value *tail = attrs + tail_of(op);
  if (is_conv(op)) neap_conv_describe(c, op, attrs);
  /* The copy has the padding: oneDNN adds none. */
  if (t->pads)
    for (int d = 0; d < c->n_space; d++) c->begin[d] = c->end[d] = 0;
  c->quantised = true;
  c->relu = tail[RELU].i != 0;
  c->add = neap_quantized_has(c->n_in, c->in, Z);
  memset(types, 0, N_ONEDNN * sizeof *types);
  memcpy(types, c->in, (size_t)NEAP_MIN(c->n_in, N_ONEDNN) * sizeof *types);
  types[X] = t->x;
  c->in = types;
  c->n_in = NEAP_MIN(c->n_in, N_ONEDNN);
}

static neap_onednn_kind kind_of(const neap_op *op) {
  return is_conv(op) ? NEAP_ONEDNN_CONV : NEAP_ONEDNN_FC;
}

/* Several channels of output in each of several groups. oneDNN 2.6 gives such a convolution of
 * bytes the scales of other channels where it makes a matrix product of it, and agrees to blocked
 * layouts that it then has no kernel for. */
static bool is_grouped(const neap_op *op, const neap_attr_value *attrs, const neap_type *in) {
  if (!is_conv(op)) return false;
  const int64_t groups = attrs[NEAP_CONV_GROUPS].i;
  return groups > 1 && groups < in[W].shape.dim[0];
}

static bool choose_dnnl(neap_choose *choose) {
  if (!neap_onednn_sums_bytes() || is_grouped(choose->op, choose->attrs, choose->in)) return false;
  const turned t = turned_of(choose->op, choose->attrs, choose->n_in, choose->in, choose->out);
  neap_onednn_case c = neap_dnnl_case_choose(choose, kind_of(choose->op));
  neap_type types[N_ONEDNN];
  describe(&c, choose->op, choose->attrs, &t, types);
  /* Rows of FC are plain. */
  if (!is_conv(choose->op)) memset(c.in_layout, 0, sizeof c.in_layout);
  neap_choice *choice = choose->choice;

  /* oneDNN's scratch lies behind the copy of x. It adds z to what y holds, so z has y's layout. */
  if (!neap_dnnl_choose(choose, &c)) return false;
  choice->scratch_bytes += t.bytes;
  if (neap_quantized_has(choose->n_in, choose->in, Z)) choice->in[Z] = choice->out[0];
  if (!is_conv(choose->op) || t.bytes == 0) return true;
  /* The copy goes row by row: of one channel, or of all. */
  int64_t side = neap_window_side_by_side(&choice->in[X], &choose->in[X].shape);
  return side == 1 || side == choose->in[X].shape.dim[1];
}

static neap_status bind_dnnl(const neap_bind *bind, void **kernel, neap_error *error) {
  const turned t = turned_of(bind->op, bind->attrs, bind->n_in, bind->in, bind->out);
  neap_onednn_case c = neap_dnnl_case_bind(bind, kind_of(bind->op));
  neap_type types[N_ONEDNN];
  describe(&c, bind->op, bind->attrs, &t, types);
  neap_onednn *made = NULL;
  c.scratch_bytes = bind->choice->scratch_bytes - t.bytes;
  NEAP_TRY(neap_onednn_make(&c, &made, error));
  *kernel = made;
  return NEAP_OK;
}

static void run_dnnl(const neap_call *call) {
  neap_type in[NEAP_OP_MAX_IN] = {{0}};
  for (int i = 0; i < call->n_in; i++) in[i] = call->in[i].type;
  /* Of an absent operand the type says that it is. */
  for (int i = 0; i < call->n_in; i++)
    if (call->in[i].data == NULL) in[i].dtype = NEAP_DTYPE_NONE;
  const turned t = turned_of(call->op, call->attrs, call->n_in, in, &call->out[0].type);
  void *operands[N_ONEDNN] = {NULL};
  for (int i = W; i < NEAP_MIN(call->n_in, N_ONEDNN); i++) operands[i] = call->in[i].data;
  operands[X] = read_x(call, &t);
  /* oneDNN adds to what y holds. */
  if (has(call, Z) && call->in[Z].data != call->out[0].data)
    neap_copy_bytes(call->out[0].data, call->in[Z].data,
                    neap_layout_bytes(&call->out[0].type, &call->out[0].layout));
  void *out[] = {call->out[0].data};
  if (!neap_onednn_run(call->kernel, operands, out, neap_call_scratch(call, t.bytes)))
    neap_call_fault(call, "oneDNN refused to run a kernel it had made");
}

#define DNNL_KERNEL                                                                          \
  {                                                                                          \
    .engine = NEAP_ENGINE_DNNL, .dtypes = NEAP_BIT(F32) | NEAP_BYTES, .choose = choose_dnnl, \
    .bind = bind_dnnl, .unbind = neap_dnnl_unbind, .run = run_dnnl                           \
  }
#define OPERANDS                                                                            \
  [BIAS] = F32_ONE("bias", "one for each output channel, in steps of x and w"),             \
  [SCALE] =                                                                                 \
    F32_ONE("scale", "one for each output channel: a step of x and w in those of z, or y"), \
  [RATIO] = F32_MAYBE("ratio", "a step of z in those of y; with z"),                        \
  [Y_ZERO] = F32_MAYBE("y_zero", "added to y"),                                             \
  [X_ZERO] = F32_MAYBE("x_zero", "what padding counts as; else 0"),                         \
  [Z] = {"z", "type of y", NEAP_BYTES | NEAP_BIT(F32), NEAP_ARG_OPTIONAL}
#define TAIL(at)                                                                               \
  [(at) + RELU] = {"relu", "what is below 0 becomes 0", NEAP_ATTR_BOOL},                       \
          [(at) + TO] = {"to", "dtype of y: u8, i8, or f32 for real numbers", NEAP_ATTR_DTYPE, \
                         .value = {.i = NEAP_DTYPE_U8}}

/* ---- rows by plain loops --------------------------------------------------------------------- */

/* Rows [begin, end) of y (M,N); w (N,...), of as many elements a row as x has. */
static void fc_rows(void *context, int64_t begin, int64_t end) {
  const neap_call *call = context;
  const neap_operand *x = &call->in[X], *w = &call->in[W];
  const int64_t n = w->type.shape.dim[0],
                k = neap_shape_span(&w->type.shape, 1, w->type.shape.n_dim);
  const int32_t plus = x->type.dtype == NEAP_DTYPE_I8 ? SHIFT : 0;
  int32_t sum[TILE];
  for (int64_t r = begin; r < end; r++)
    for (int64_t from = 0; from < n; from += TILE) {
      const int64_t many = NEAP_MIN(n - from, TILE);
      for (int64_t o = 0; o < many; o++)
        sum[o] = neap_integer_dot(x->type.dtype, neap_element_at(x, r * k), plus,
                                  (const int8_t *)w->data + (from + o) * k, k);
      finish_sums(call, from, 1, r * n + from, sum, many);
    }
}

static void run_fc_ref(const neap_call *call) {
  const neap_shape *w = &call->in[W].type.shape;
  const int64_t n = w->dim[0], m = n == 0 ? 0 : neap_shape_elems(&call->out[0].type.shape) / n;
  const int64_t grain = NEAP_GRAIN / NEAP_MAX(neap_shape_elems(w), 1) + 1;
  neap_parallel_for(m, grain, call->n_thread, fc_rows, (void *)(uintptr_t)call);
}

/* ---- FusedQLinearConv ------------------------------------------------------------------------ */

extern const neap_op neap_op_FusedQLinearConv;

static neap_status infer_conv(neap_infer *c, neap_error *error) {
  extern const neap_op neap_op_Conv;
  const neap_type real[2] = {{NEAP_DTYPE_F32, c->in[X].shape}, {NEAP_DTYPE_F32, c->in[W].shape}};
  NEAP_TRY(neap_infer_forward(c, &neap_op_Conv, 2, real, 1, &c->out[0], error));
  return infer_tail(c, error);
}

static void finish_conv(const void *context, int64_t o, int64_t at, const int32_t *sum, int64_t n) {
  finish_sums(context, o, 0, at, sum, n);
}

/* A window a channel, where oneDNN does not sum bytes: planes of a few pixels are slow one by
 * one. */
static bool is_depthwise(const neap_attr_value *attrs, const neap_type *in) {
  const neap_shape *x = &in[X].shape, *w = &in[W].shape;
  return x->n_dim == 4 && w->dim[1] == 1 && w->dim[0] == x->dim[1] && x->dim[1] > 1 &&
         attrs[NEAP_CONV_GROUPS].i == x->dim[1];
}

static bool choose_conv_ref(neap_choose *choose) {
  static const neap_layout channels_last = {.kind = NEAP_LAYOUT_BLOCKED, .order = {0, 2, 3, 1}};
  neap_choice *choice = choose->choice;
  if (choose->plain || !is_depthwise(choose->attrs, choose->in)) return true;
  choice->in[X] = choice->out[0] = channels_last;
  if (neap_quantized_has(choose->n_in, choose->in, Z)) choice->in[Z] = channels_last;
  choice->scratch_bytes = (size_t)neap_shape_elems(&choose->in[W].shape);
  return true;
}

static void finish_pixel(const void *context, int64_t o, int64_t at, const int32_t *sum,
                         int64_t n) {
  finish_sums(context, o, 1, at, sum, n);
}

/* One window, which is all of an image: the images are rows of a matrix. */
static bool is_rows(const neap_call *call) {
  const neap_shape *x = &call->in[X].type.shape, *w = &call->in[W].type.shape,
                   *y = &call->out[0].type.shape;
  const neap_window window = neap_conv_window(call->op, call->attrs, x, y, w);
  bool is_whole = window.n_out == 1 && call->attrs[NEAP_CONV_GROUPS].i == 1;
  for (int d = 0; d < 3; d++)
    is_whole &= window.kernel[d] == window.in[d] && window.begin[d] == 0 && window.end[d] == 0;
  return is_whole;
}

static void run_conv_ref(const neap_call *call) {
  if (is_rows(call)) {
    run_fc_ref(call);
    return;
  }
  const neap_operand *x = &call->in[X], *w = &call->in[W];
  /* In that layout a window a channel was chosen, and nothing else. */
  const bool by_pixel = call->out[0].layout.kind == NEAP_LAYOUT_BLOCKED;
  neap_integer_conv j = {.x = x->data,
                         .weight = w->data,
                         .x_dtype = x->type.dtype,
                         .w_dtype = w->type.dtype,
                         .minus = x->type.dtype == NEAP_DTYPE_I8 ? -SHIFT : 0,
                         .pad = (int32_t)number(call, X_ZERO, 0, 0),
                         .finish = by_pixel ? finish_pixel : finish_conv,
                         .context = call};
  (by_pixel ? neap_integer_depthwise_run : neap_integer_conv_run)(
    &j, call, &x->type.shape, &w->type.shape, &call->out[0].type.shape);
}

const neap_op neap_op_FusedQLinearConv = {
  .name = "FusedQLinearConv",
  .summary =
    "Conv of bytes, a residual and a Relu in one; made from them in nets that do not train.",
  .math = "y = round(max((Conv(x, w) + bias) scale + z) ratio, 0) + y_zero, saturated",
  .source = "Jacob et al., arXiv 1712.05877",
  .internal = true,
  .inputs = {[X] = {"x", "(N,C,H,W), or one or three spatial dimensions", NEAP_BYTES},
             [W] = {"w", "(O,C/groups,KH,KW)", NEAP_BIT(I8)},
             OPERANDS},
  .outputs = {{"y", "(N,O,OH,OW)", NEAP_BYTES | NEAP_BIT(F32)}},
  .attrs = {NEAP_CONV_ATTRS, TAIL(CONV_TAIL)},
  .inplace = {{Z, 0}},
  .n_inplace = 1,
  .infer = infer_conv,
  .cost = neap_conv_cost,
  .no_grad = true,
  .mixed = NEAP_MIXED_FULL,
  .special = "sums wrap at 32 bits",
  .kernels = (const neap_kernel[]){DNNL_KERNEL,
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_BIT(F32) | NEAP_BYTES,
                                    .any_team = true,
                                    .choose = choose_conv_ref,
                                    .run = run_conv_ref},
                                   {0}},
  .cases =
    "{ {x={{2,3,6,7}, dtype=\"u8\", low=0, high=255}, w={{20,3,3,3}, dtype=\"i8\", low=-128, "
    "high=128}, bias={{20}, low=-900, high=900}, scale={{20}, low=0.001, high=0.01}, pad={1}, "
    "relu=true, tol=0},"
    " {x={{2,16,9,9}, dtype=\"i8\", low=-128, high=128}, w={{32,16,3,3}, dtype=\"i8\", low=-128, "
    "high=128}, bias={{32}, low=-900, high=900}, scale={{32}, low=0.001, high=0.004}, "
    "ratio={{1}, low=0.5, high=2}, y_zero={{1}, low=3, high=3}, x_zero={{1}, low=130, high=130}, "
    "z={{2,32,5,5}, dtype=\"i8\", low=-128, high=128}, stride={2}, pad={1}, to=\"i8\", tol=0},"
    " {x={{1,8,5,5}, dtype=\"u8\", low=0, high=255}, w={{8,1,3,3}, dtype=\"i8\", low=-128, "
    "high=128}, bias={{8}, low=-9, high=9}, scale={{8}, low=0.001, high=0.01}, groups=8, "
    "to=\"f32\", tol=0} }",
};

/* ---- FusedQLinearFC -------------------------------------------------------------------------- */

static neap_status infer_fc(neap_infer *c, neap_error *error) {
  extern const neap_op neap_op_FC;
  const neap_type real[2] = {{NEAP_DTYPE_F32, c->in[X].shape}, {NEAP_DTYPE_F32, c->in[W].shape}};
  NEAP_TRY(neap_infer_forward(c, &neap_op_FC, 2, real, 1, &c->out[0], error));
  return infer_tail(c, error);
}

const neap_op neap_op_FusedQLinearFC = {
  .name = "FusedQLinearFC",
  .summary = "FC of bytes, a residual and a Relu in one; made from them in nets that do not train.",
  .math = "y = round(max((FC(x, w) + bias) scale + z) ratio, 0) + y_zero, saturated",
  .source = "Jacob et al., arXiv 1712.05877",
  .internal = true,
  .inputs = {[X] = {"x", "(M,K); leading dimensions are rows", NEAP_BYTES},
             [W] = {"w", "(N,K)", NEAP_BIT(I8)},
             OPERANDS},
  .outputs = {{"y", "(M,N)", NEAP_BYTES | NEAP_BIT(F32)}},
  .attrs = {[FC_AXIS] = {"axis", "first of the dimensions that are features", NEAP_ATTR_AXIS,
                         .value = {.i = -1}},
            TAIL(FC_TAIL)},
  .inplace = {{Z, 0}},
  .n_inplace = 1,
  .infer = infer_fc,
  .cost = neap_fc_cost,
  .no_grad = true,
  .mixed = NEAP_MIXED_FULL,
  .special = "sums wrap at 32 bits",
  .kernels = (const neap_kernel[]){DNNL_KERNEL,
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_BIT(F32) | NEAP_BYTES,
                                    .any_team = true,
                                    .run = run_fc_ref},
                                   {0}},
  .cases =
    "{ {x={{4,70}, dtype=\"u8\", low=0, high=255}, w={{300,70}, dtype=\"i8\", low=-128, high=128}, "
    "bias={{300}, low=-900, high=900}, scale={{300}, low=0.001, high=0.004}, relu=true, tol=0},"
    " {x={{2,3,8}, dtype=\"i8\", low=-128, high=128}, w={{16,8}, dtype=\"i8\", low=-128, "
    "high=128}, "
    "bias={{16}, low=-900, high=900}, scale={{16}, low=0.001, high=0.01}, y_zero={{1}, low=-5, "
    "high=-5}, to=\"i8\", tol=0},"
    " {x={{64,96}, dtype=\"u8\", low=0, high=255}, w={{10,96}, dtype=\"i8\", low=-128, high=128}, "
    "bias={{10}, low=-9, high=9}, scale={{10}, low=0.001, high=0.01}, to=\"f32\", tol=0} }",
};
