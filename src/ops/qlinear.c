/* qlinear.c: QLinearConv and QLinearMatMul, as ONNX has them: products of quantised numbers, whose
 * result is quantised again. See quantized.h.
 *
 * These are the standard's ops in full: any zero point, one scale or several. In nets that do not
 * train those with fixed symmetric weights become FusedQLinearConv and FusedQLinearFC
 * (fused_qlinear.c), which have fast kernels.
 */
#include "ops/batches.h"
#include "ops/quantized.h"
#include "ops/rows.h"

#include <math.h>

enum { X, X_SCALE, X_ZERO, W, W_SCALE, W_ZERO, Y_SCALE, Y_ZERO, B };
enum { TILE = 256 };

/* Zero points have the dtype of what they are of; y that of its zero point, or of x. */
static neap_status infer_dtypes(neap_infer *c, neap_error *error) {
  static const int of[][2] = {{X_ZERO, X}, {W_ZERO, W}};
  for (int i = 0; i < NEAP_COUNT(of); i++)
    NEAP_TRY(neap_quantized_expect_dtype(c, of[i][0], of[i][1], error));
  bool has_zero = neap_quantized_has(c->n_in, c->in, Y_ZERO);
  c->out[0].dtype = has_zero ? c->in[Y_ZERO].dtype : c->in[X].dtype;
  return NEAP_OK;
}

/* ---- QLinearConv ----------------------------------------------------------------------------- */

/* As Conv of real numbers: x and w alone, then what each channel has. */
static neap_status infer_conv(neap_infer *c, neap_error *error) {
  const neap_type real[2] = {{NEAP_DTYPE_F32, c->in[X].shape}, {NEAP_DTYPE_F32, c->in[W].shape}};
  extern const neap_op neap_op_Conv;
  NEAP_TRY(neap_infer_forward(c, &neap_op_Conv, 2, real, 1, &c->out[0], error));
  const int64_t n_o = c->in[W].shape.dim[0];
  static const int one[] = {X_SCALE, X_ZERO, Y_SCALE, Y_ZERO};
  for (int i = 0; i < NEAP_COUNT(one); i++) NEAP_TRY(neap_quantized_expect(c, one[i], 0, error));
  NEAP_TRY(neap_quantized_expect(c, W_SCALE, n_o, error));
  NEAP_TRY(neap_quantized_expect(c, W_ZERO, n_o, error));
  const neap_type bias = {NEAP_DTYPE_I32, NEAP_SHAPE(n_o)};
  if (neap_quantized_has(c->n_in, c->in, B)) NEAP_TRY(neap_infer_expect(c, B, &bias, error));
  return infer_dtypes(c, error);
}

static void cost_conv(const neap_infer *c, neap_cost *cost) {
  const neap_shape *w = &c->in[W].shape;
  cost->flops =
    2.0 * (double)neap_shape_elems(&c->out[0].shape) * (double)neap_shape_span(w, 1, w->n_dim);
}

/* The standard adds the bias to the sum, and rounds before it adds the zero point. */
static void finish_conv(const void *context, int64_t o, int64_t at, const int32_t *sum, int64_t n) {
  const neap_call *call = context;
  /* The bias is added in unsigned numbers, which may wrap. */
  const uint32_t bias = (uint32_t)(int32_t)neap_quantized_number(call, B, o, 0);
  const float scale = (float)neap_quantized_number(call, X_SCALE, 0, 0) *
                      (float)neap_quantized_number(call, W_SCALE, o, 0) /
                      (float)neap_quantized_number(call, Y_SCALE, 0, 0);
  const float zero = (float)neap_quantized_number(call, Y_ZERO, 0, 0);
  float v[TILE];
  for (int64_t i = 0; i < n; i++)
    v[i] = rintf((float)(int32_t)((uint32_t)sum[i] + bias) * scale) + zero;
  neap_quantized_put(&call->out[0], at, v, n);
}

static void run_conv(const neap_call *call) {
  const neap_operand *x = &call->in[X], *w = &call->in[W];
  neap_integer_conv j = {.x = x->data,
                         .weight = w->data,
                         .x_dtype = x->type.dtype,
                         .w_dtype = w->type.dtype,
                         .minus = (int32_t)neap_quantized_number(call, X_ZERO, 0, 0),
                         .w_zero = call->n_in > W_ZERO ? &call->in[W_ZERO] : NULL,
                         .finish = finish_conv,
                         .context = call};
  neap_integer_conv_run(&j, call, &x->type.shape, &w->type.shape, &call->out[0].type.shape);
}

/* ---- QLinearMatMul --------------------------------------------------------------------------- */

static neap_status infer_matmul(neap_infer *c, neap_error *error) {
  const neap_shape *a = &c->in[X].shape, *b = &c->in[W].shape;
  char text_a[NEAP_SHAPE_TEXT], text_b[NEAP_SHAPE_TEXT];
  neap_batches batches;
  NEAP_TRY(neap_infer_rank(c, X, 2, NEAP_MAX_DIM, error));
  NEAP_TRY(neap_infer_rank(c, W, 2, NEAP_MAX_DIM, error));
  const int64_t m = a->dim[a->n_dim - 2], n = b->dim[b->n_dim - 1];
  if (a->dim[a->n_dim - 1] != b->dim[b->n_dim - 2] || !neap_batches_of(a, b, 2, &batches))
    return neap_infer_fail(
      c, NEAP_SHAPE, W, error,
      "a %s and b %s do not multiply: inner sizes must agree and batches broadcast",
      neap_shape_text(a, text_a), neap_shape_text(b, text_b));

  /* Numbers of a are one, or one of each row of y; numbers of b one, or one of each column. */
  static const int of_row[] = {X_SCALE, X_ZERO, Y_SCALE, Y_ZERO};
  for (int i = 0; i < NEAP_COUNT(of_row); i++)
    NEAP_TRY(neap_quantized_expect(c, of_row[i], m, error));
  NEAP_TRY(neap_quantized_expect(c, W_SCALE, n, error));
  NEAP_TRY(neap_quantized_expect(c, W_ZERO, n, error));
  c->out[0].shape = batches.all;
  c->out[0].shape.dim[c->out[0].shape.n_dim++] = m;
  c->out[0].shape.dim[c->out[0].shape.n_dim++] = n;
  return infer_dtypes(c, error);
}

static void cost_matmul(const neap_infer *c, neap_cost *cost) {
  const neap_shape *a = &c->in[X].shape;
  cost->flops = 2.0 * (double)neap_shape_elems(&c->out[0].shape) * (double)a->dim[a->n_dim - 1];
}

typedef struct product {
  const neap_call *call;
  neap_batches batches;
  int64_t m, n, k;
} product;

/* Columns [from, from + n) of row i of matrix `at` of y. */
static void multiply_tile(const product *p, int64_t at, int64_t i, int64_t from, int64_t n) {
  const neap_call *call = p->call;
  const neap_operand *a = &call->in[X], *b = &call->in[W];
  int64_t at_a, at_b;
  int32_t sum[TILE] = {0}, b_zero[TILE];
  float v[TILE];
  /* a (M,K) times b (K,N), row l of b at a time, so that the loop over columns is dense. */
  neap_batches_at(&p->batches, at, &at_a, &at_b);
  for (int64_t j = 0; j < n; j++)
    b_zero[j] = (int32_t)neap_quantized_number(call, W_ZERO, from + j, 0);
  const int32_t a_zero = (int32_t)neap_quantized_number(call, X_ZERO, i, 0);
  for (int64_t l = 0; l < p->k; l++) {
    int32_t x = (int32_t)neap_number_at(a, (at_a * p->m + i) * p->k + l) - a_zero;
    neap_integer_axpy(sum, x, b->type.dtype, neap_element_at(b, (at_b * p->k + l) * p->n + from),
                      b_zero, n);
  }
  const float x_scale = (float)neap_quantized_number(call, X_SCALE, i, 0),
              y_scale = (float)neap_quantized_number(call, Y_SCALE, i, 0);
  const float zero = (float)neap_quantized_number(call, Y_ZERO, i, 0);
  for (int64_t j = 0; j < n; j++)
    v[j] = rintf((float)sum[j] *
                 (x_scale * (float)neap_quantized_number(call, W_SCALE, from + j, 0) / y_scale)) +
           zero;
  neap_quantized_put(&call->out[0], (at * p->m + i) * p->n + from, v, n);
}

/* Rows [begin, end) of all matrices. */
static void multiply(void *context, int64_t begin, int64_t end) {
  const product *p = context;
  for (int64_t r = begin; r < end; r++)
    for (int64_t from = 0; from < p->n; from += TILE)
      multiply_tile(p, r / p->m, r % p->m, from, NEAP_MIN(p->n - from, TILE));
}

static void run_matmul(const neap_call *call) {
  const neap_shape *a = &call->in[X].type.shape, *b = &call->in[W].type.shape;
  product p = {
    .call = call, .m = a->dim[a->n_dim - 2], .n = b->dim[b->n_dim - 1], .k = a->dim[a->n_dim - 1]};
  if (!neap_batches_of(a, b, 2, &p.batches)) return;
  int64_t grain = NEAP_GRAIN / NEAP_MAX(p.n * p.k, 1) + 1;
  neap_parallel_for(neap_shape_elems(&p.batches.all) * p.m, grain, call->n_thread, multiply, &p);
}

/* ---- records --------------------------------------------------------------------------------- */

#define SCALES(a, b, of_a, of_b)                                                      \
  [X_SCALE] = {a "_scale", "one" of_a, NEAP_BIT(F32)},                                \
  [X_ZERO] = {a "_zero", "like " a "_scale: the integer that 0 is", NEAP_BYTES,       \
              NEAP_ARG_OPTIONAL},                                                     \
  [W_SCALE] = {b "_scale", "one, or one of each " of_b, NEAP_BIT(F32)},               \
  [W_ZERO] = {b "_zero", "one, or one of each " of_b, NEAP_BYTES, NEAP_ARG_OPTIONAL}, \
  [Y_SCALE] = {"y_scale", "one" of_a, NEAP_BIT(F32)},                                 \
  [Y_ZERO] = {"y_zero", "like y_scale; its dtype is that of y", NEAP_BYTES, NEAP_ARG_OPTIONAL}

const neap_op neap_op_QLinearConv = {
  .name = "QLinearConv",
  .summary = "Convolution of quantised numbers, quantised again.",
  .math =
    "y = saturate(round((Conv(x - x_zero, w - w_zero) + b) x_scale w_scale / y_scale) + y_zero)",
  .example =
    "net:QLinearConv({\"x\", \"xs\", \"xz\", \"w\", \"ws\", \"wz\", \"ys\", \"yz\"}, \"y\", {pad = "
    "1})",
  .source = "ONNX QLinearConv-10",
  .inputs = {[X] = {"x", "(N,C,H,W), or one or three spatial dimensions", NEAP_BYTES},
             [W] = {"w", "(O,C/groups,KH,KW)", NEAP_BYTES},
             SCALES("x", "w", "", "output channel"),
             [B] = {"b", "(O), in steps of x_scale w_scale", NEAP_BIT(I32), NEAP_ARG_OPTIONAL}},
  .outputs = {{"y", "(N,O,OH,OW)", NEAP_BYTES}},
  .attrs = {NEAP_CONV_ATTRS},
  .infer = infer_conv,
  .cost = cost_conv,
  .no_grad = true,
  .mixed = NEAP_MIXED_FULL,
  .special = "sums wrap at 32 bits",
  .kernels = NEAP_REF(run_conv, NEAP_BIT(F32)),
  .cases =
    "{ {x={{2,3,6,7}, dtype=\"u8\", low=0, high=255}, x_scale={{}, low=0.02, high=0.03}, "
    "x_zero={{}, dtype=\"u8\", low=90, high=140}, w={{4,3,3,3}, dtype=\"i8\", low=-128, high=128},"
    " w_scale={{4}, low=0.01, high=0.02}, y_scale={{}, low=0.1, high=0.2}, y_zero={{}, "
    "dtype=\"u8\", low=90, high=140}, b={{4}, dtype=\"i32\", low=-900, high=900}, pad={1}},"
    " {x={{1,4,5,5}, dtype=\"i8\", low=-128, high=128}, x_scale={{1}, low=0.02, high=0.03}, "
    "w={{6,2,2,2}, dtype=\"u8\", low=0, high=255}, w_scale={{}, low=0.01, high=0.02}, w_zero={{6}, "
    "dtype=\"u8\", low=90, high=140}, y_scale={{}, low=0.1, high=0.2}, groups=2, stride={2}} }",
};

const neap_op neap_op_QLinearMatMul = {
  .name = "QLinearMatMul",
  .summary = "Products of stacks of matrices of quantised numbers, quantised again.",
  .math = "y = saturate(round((a - a_zero)(b - b_zero) a_scale b_scale / y_scale) + y_zero)",
  .example =
    "net:QLinearMatMul({\"a\", \"as\", \"az\", \"b\", \"bs\", \"bz\", \"ys\", \"yz\"}, \"y\")",
  .source = "ONNX QLinearMatMul-21",
  .inputs = {[X] = {"a", "(...,M,K)", NEAP_BYTES},
             [W] = {"b", "(...,K,N)", NEAP_BYTES},
             SCALES("a", "b", ", or one of each row", "column")},
  .outputs = {{"y", "(...,M,N), the batch broadcast", NEAP_BYTES}},
  .infer = infer_matmul,
  .cost = cost_matmul,
  .no_grad = true,
  .mixed = NEAP_MIXED_FULL,
  .special = "sums wrap at 32 bits",
  .kernels = NEAP_REF(run_matmul, NEAP_BIT(F32)),
  .cases =
    "{ {a={{4,6}, dtype=\"u8\", low=0, high=255}, a_scale={{}, low=0.02, high=0.03}, a_zero={{}, "
    "dtype=\"u8\", low=90, high=140}, b={{6,5}, dtype=\"i8\", low=-128, high=128}, b_scale={{5}, "
    "low=0.01, high=0.02}, y_scale={{}, low=0.1, high=0.2}, y_zero={{}, dtype=\"u8\", low=90, "
    "high=140}},"
    " {a={{2,3,4}, dtype=\"i8\", low=-128, high=128}, a_scale={{3}, low=0.02, high=0.03}, "
    "b={{4,300}, dtype=\"u8\", low=0, high=255}, b_scale={{}, low=0.01, high=0.02}, b_zero={{}, "
    "dtype=\"u8\", low=90, high=140}, y_scale={{3}, low=0.1, high=0.2}} }",
};
