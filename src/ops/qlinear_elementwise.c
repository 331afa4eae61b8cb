/* qlinear_elementwise.c: QLinearAdd and QLinearRescale: quantised numbers, element by element, in
 * the integers of another scale. See quantized.h.
 *
 * QLinearAdd rounds as ONNX Runtime's kernel does, to the same integers: the zero points are one
 * number of f32, to which b times its ratio and then a times its own are added, each rounded once.
 * QLinearRescale is QuantizeLinear of DequantizeLinear, by a table of the 256 integers.
 */
#include "ops/quantized.h"

#include <math.h>

enum { A, A_SCALE, A_ZERO, B, B_SCALE, B_ZERO, SUM_SCALE, SUM_ZERO };
enum { X, X_SCALE, X_ZERO, Y_SCALE, Y_ZERO };
enum { TO };
enum { N_BYTE = 256, TILE = 256 };

static float number(const neap_call *call, int operand, float absent) {
  return (float)neap_quantized_number(call, operand, 0, absent);
}

/* The integer that byte i of a dtype is. */
static int integer_of(neap_dtype dtype, int i) {
  return dtype == NEAP_DTYPE_I8 ? (int)(int8_t)(uint8_t)i : i;
}

/* As `x` lies, plain or with its channels last: bytes side by side have no padding between them,
 * which would not stay 0. */
static void choose_like(neap_choose *c, int n_like, const int *like) {
  const neap_layout *at_hand = &c->in_layout[0];
  if (c->plain || c->in[0].shape.n_dim < 3) return;
  if (!neap_window_channels_last(at_hand, &c->in[0].shape)) return;
  for (int i = 0; i < n_like; i++) c->choice->in[like[i]] = *at_hand;
  c->choice->out[0] = *at_hand;
}

/* y of the first operand's shape, in bytes. */
static neap_status infer_y(neap_infer *c, int zero, neap_error *error) {
  c->out[0].shape = c->in[0].shape;
  return neap_quantized_infer_dtype(c, zero, TO, &c->out[0].dtype, error);
}

#define NUMBERS(at, of, name)                         \
  [(at) + 1] = {name "_scale", "one", NEAP_BIT(F32)}, \
          [(at) + 2] = {name "_zero", "one, of the dtype of " of, NEAP_BYTES, NEAP_ARG_OPTIONAL}

/* ---- QLinearAdd ------------------------------------------------------------------------------ */

static neap_status infer_add(neap_infer *c, neap_error *error) {
  static const int one[] = {A_SCALE, A_ZERO, B_SCALE, B_ZERO, SUM_SCALE, SUM_ZERO};
  const neap_type like = {c->in[B].dtype, c->in[A].shape};
  NEAP_TRY(neap_infer_expect(c, B, &like, error));
  for (int i = 0; i < NEAP_COUNT(one); i++) NEAP_TRY(neap_quantized_expect(c, one[i], 0, error));
  NEAP_TRY(neap_quantized_expect_dtype(c, A_ZERO, A, error));
  NEAP_TRY(neap_quantized_expect_dtype(c, B_ZERO, B, error));
  return infer_y(c, SUM_ZERO, error);
}

typedef struct adder {
  const neap_operand *a, *b, *y;
  float ratio;          /* of a's scale to y's */
  float of_a[N_BYTE];   /* the integers of a */
  float so_far[N_BYTE]; /* by the byte of b: all but a's part */
} adder;

/* The real number of y's integers, rounded to whole ones. */
NEAP_MULTIVERSION static void add_tile(const adder *j, const uint8_t *a, const uint8_t *b, float *v,
                                       int64_t n) {
  for (int64_t i = 0; i < n; i++) v[i] = rintf(fmaf(j->of_a[a[i]], j->ratio, j->so_far[b[i]]));
}

/* Elements [begin, end). */
static void add_range(void *context, int64_t begin, int64_t end) {
  const adder *j = context;
  const uint8_t *a = j->a->data, *b = j->b->data;
  float v[TILE];
  for (int64_t at = begin; at < end; at += TILE) {
    const int64_t n = NEAP_MIN(end - at, TILE);
    add_tile(j, a + at, b + at, v, n);
    neap_quantized_put(j->y, at, v, n);
  }
}

static void run_add(const neap_call *call) {
  adder j = {.a = &call->in[A], .b = &call->in[B], .y = &call->out[0]};
  const float scale = number(call, SUM_SCALE, 1);
  const float ratio = number(call, B_SCALE, 1) / scale;
  j.ratio = number(call, A_SCALE, 1) / scale;

  /* The products are rounded before they are added, as the sum then is. */
  const float minus_a = j.ratio * number(call, A_ZERO, 0),
              minus_b = ratio * number(call, B_ZERO, 0);
  const float minus = minus_a + minus_b, fixed = number(call, SUM_ZERO, 0) - minus;
  for (int i = 0; i < N_BYTE; i++) {
    j.of_a[i] = (float)integer_of(j.a->type.dtype, i);
    j.so_far[i] = fmaf((float)integer_of(j.b->type.dtype, i), ratio, fixed);
  }
  neap_parallel_for(neap_shape_elems(&j.y->type.shape), NEAP_GRAIN, call->n_thread, add_range, &j);
}

static bool choose_add(neap_choose *c) {
  choose_like(c, 2, (const int[]){A, B});
  return true;
}

const neap_op neap_op_QLinearAdd = {
  .name = "QLinearAdd",
  .summary = "Sums of quantised numbers, quantised again.",
  .math =
    "y = saturate(round((a - a_zero) a_scale / y_scale + (b - b_zero) b_scale / y_scale) + "
    "y_zero)",
  .example =
    "net:QLinearAdd({\"a\", \"as\", \"az\", \"b\", \"bs\", \"bz\", \"ys\", \"yz\"}, \"y\")",
  .source = "ONNX Runtime, com.microsoft.QLinearAdd-1",
  .inputs = {[A] = {"a", "any shape", NEAP_BYTES},
             NUMBERS(A, "a", "a"),
             [B] = {"b", "shape of a", NEAP_BYTES},
             NUMBERS(B, "b", "b"),
             [SUM_SCALE] = NEAP_QUANTIZED_Y_SCALE,
             [SUM_ZERO] = NEAP_QUANTIZED_Y_ZERO},
  .outputs = {{"y", "shape of a", NEAP_BYTES}},
  .attrs = {[TO] = NEAP_QUANTIZED_TO},
  .inplace = {{A, 0}, {B, 0}},
  .n_inplace = 2,
  .infer = infer_add,
  .no_grad = true,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_CHOOSE(choose_add, run_add, NEAP_BIT(F32)),
  .cases =
    "{ {a={{2,3,70}, dtype=\"u8\", low=0, high=255}, a_scale={{}, low=0.02, high=0.03}, "
    "a_zero={{}, dtype=\"u8\", low=90, high=140}, b={{2,3,70}, dtype=\"i8\", low=-128, high=128}, "
    "b_scale={{1}, low=0.01, high=0.03}, b_zero={{}, dtype=\"i8\", low=-9, high=9}, y_scale={{}, "
    "low=0.03, high=0.05}, y_zero={{}, dtype=\"i8\", low=-9, high=9}},"
    " {a={{5}, dtype=\"u8\", low=0, high=255}, a_scale={{}, low=0.02, high=0.03}, b={{5}, "
    "dtype=\"u8\", low=0, high=255}, b_scale={{}, low=0.01, high=0.03}, y_scale={{}, low=0.03, "
    "high=0.05}, to=\"u8\"}, {a={{0,3}, dtype=\"u8\"}, a_scale={{}, low=1, high=2}, b={{0,3}, "
    "dtype=\"u8\"}, b_scale={{}, low=1, high=2}, y_scale={{}, low=1, high=2}} }",
};

/* ---- QLinearRescale -------------------------------------------------------------------------- */

static neap_status infer_rescale(neap_infer *c, neap_error *error) {
  for (int i = X_SCALE; i <= Y_ZERO; i++) NEAP_TRY(neap_quantized_expect(c, i, 0, error));
  NEAP_TRY(neap_quantized_expect_dtype(c, X_ZERO, X, error));
  return infer_y(c, Y_ZERO, error);
}

typedef struct rescaler {
  const uint8_t *x;
  uint8_t *y;
  uint8_t of[N_BYTE]; /* y's byte by x's */
} rescaler;

static void rescale_range(void *context, int64_t begin, int64_t end) {
  const rescaler *j = context;
  for (int64_t i = begin; i < end; i++) j->y[i] = j->of[j->x[i]];
}

static void run_rescale(const neap_call *call) {
  const neap_operand *x = &call->in[X], *y = &call->out[0];
  rescaler j = {.x = x->data, .y = y->data};
  const float x_scale = number(call, X_SCALE, 1), y_scale = number(call, Y_SCALE, 1);
  const float x_zero = number(call, X_ZERO, 0), y_zero = number(call, Y_ZERO, 0);

  /* The table is made as the two ops make their numbers. */
  float v[N_BYTE];
  for (int i = 0; i < N_BYTE; i++)
    v[i] = rintf(((float)integer_of(x->type.dtype, i) - x_zero) * x_scale / y_scale) + y_zero;
  const neap_operand table = {.type = y->type, .data = j.of};
  neap_quantized_put(&table, 0, v, N_BYTE);
  neap_parallel_for(neap_shape_elems(&y->type.shape), NEAP_GRAIN, call->n_thread, rescale_range,
                    &j);
}

static bool choose_rescale(neap_choose *c) {
  choose_like(c, 1, (const int[]){X});
  return true;
}

const neap_op neap_op_QLinearRescale = {
  .name = "QLinearRescale",
  .summary = "Quantised numbers in the integers of another scale: what parts of a Concat need.",
  .math = "y = saturate(round((x - x_zero) x_scale / y_scale) + y_zero)",
  .example = "net:QLinearRescale({\"x\", \"xs\", \"xz\", \"ys\", \"yz\"}, \"y\")",
  .source = "ONNX Runtime, com.microsoft.QLinearConcat-1, of each input",
  .inputs = {[X] = {"x", "any shape", NEAP_BYTES},
             NUMBERS(X, "x", "x"),
             [Y_SCALE] = NEAP_QUANTIZED_Y_SCALE,
             [Y_ZERO] = NEAP_QUANTIZED_Y_ZERO},
  .outputs = {{"y", "shape of x", NEAP_BYTES}},
  .attrs = {[TO] = NEAP_QUANTIZED_TO},
  .inplace = {{X, 0}},
  .n_inplace = 1,
  .infer = infer_rescale,
  .no_grad = true,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_CHOOSE(choose_rescale, run_rescale, NEAP_BIT(F32)),
  .cases =
    "{ {x={{2,3,70}, dtype=\"u8\", low=0, high=255}, x_scale={{}, low=0.02, high=0.03}, "
    "x_zero={{}, dtype=\"u8\", low=90, high=140}, y_scale={{1}, low=0.01, high=0.03}, y_zero={{}, "
    "dtype=\"i8\", low=-9, high=9}},"
    " {x={{4,5}, dtype=\"i8\", low=-128, high=128}, x_scale={{}, low=0.02, high=0.03}, "
    "y_scale={{}, "
    "low=0.01, high=0.03}, to=\"i8\"}, {x={{0}, dtype=\"u8\"}, x_scale={{}, low=1, high=2}, "
    "y_scale={{}, low=1, high=2}} }",
};
