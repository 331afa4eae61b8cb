/* quantize.c: QuantizeLinear and DequantizeLinear: real numbers as integers and back, by a scale
 * and a zero point of the tensor, or one of each position along an axis. See quantized.h.
 */
#include "ops/quantized.h"
#include "ops/rows.h"

#include <math.h>
#include <string.h>

enum { X, SCALE, ZERO };
enum { AXIS, TO };

#define INTEGERS (NEAP_BYTES | NEAP_BIT(I16) | NEAP_BIT(U16))

void neap_quantized_range(neap_dtype dtype, double *least, double *most) {
  const bool is_signed =
    dtype == NEAP_DTYPE_I8 || dtype == NEAP_DTYPE_I16 || dtype == NEAP_DTYPE_I32;
  const int bits = 8 * (int)neap_dtype_bytes(dtype);
  *least = is_signed ? -ldexp(1, bits - 1) : 0;
  *most = ldexp(1, is_signed ? bits - 1 : bits) - 1;
}

neap_status neap_quantized_expect(const neap_infer *c, int i, int64_t many, neap_error *error) {
  char text[NEAP_SHAPE_TEXT];
  if (!neap_quantized_has(c->n_in, c->in, i)) return NEAP_OK;
  const neap_shape *shape = &c->in[i].shape;
  if (neap_shape_elems(shape) == 1 && shape->n_dim < 2) return NEAP_OK;
  if (many > 0 && shape->n_dim == 1 && shape->dim[0] == many) return NEAP_OK;
  if (many > 0)
    return neap_infer_fail(c, NEAP_SHAPE, i, error, "%s expects one number or (%lld), got %s",
                           c->op->inputs[i].name, (long long)many, neap_shape_text(shape, text));
  return neap_infer_fail(c, NEAP_SHAPE, i, error, "%s expects one number, got %s",
                         c->op->inputs[i].name, neap_shape_text(shape, text));
}

neap_status neap_quantized_expect_dtype(const neap_infer *c, int i, int of, neap_error *error) {
  if (!neap_quantized_has(c->n_in, c->in, i) || c->in[i].dtype == c->in[of].dtype) return NEAP_OK;
  return neap_infer_fail(c, NEAP_DTYPE, i, error, "%s expects the dtype of %s, %s, got %s",
                         c->op->inputs[i].name, c->op->inputs[of].name,
                         neap_dtype_name(c->in[of].dtype), neap_dtype_name(c->in[i].dtype));
}

neap_status neap_quantized_infer_dtype(const neap_infer *c, int zero, int to, neap_dtype *dtype,
                                       neap_error *error) {
  *dtype =
    neap_quantized_has(c->n_in, c->in, zero) ? c->in[zero].dtype : (neap_dtype)c->attrs[to].i;
  if (neap_dtype_in(*dtype, NEAP_BYTES)) return NEAP_OK;
  return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "to expects u8 or i8, got %s",
                         neap_dtype_name(*dtype));
}

double neap_quantized_number(const neap_call *call, int operand, int64_t at, double absent) {
  if (operand >= call->n_in || call->in[operand].data == NULL) return absent;
  const neap_operand *x = &call->in[operand];
  return neap_number_at(x, neap_shape_elems(&x->type.shape) > 1 ? at : 0);
}

/* Scales or zero points of `many` positions; of none, a list of none is right, too. */
static neap_status expect_each(const neap_infer *c, int i, bool has_many, int64_t many,
                               neap_error *error) {
  if (has_many && many == 0 && neap_quantized_has(c->n_in, c->in, i) && c->in[i].shape.n_dim == 1 &&
      c->in[i].shape.dim[0] == 0)
    return NEAP_OK;
  return neap_quantized_expect(c, i, many, error);
}

/* The axis counts only where there is more than one scale; one that is given must be there. */
static neap_status check(const neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[X].shape, *scale = &c->in[SCALE].shape;
  int axis;
  int64_t many = 0;
  const bool has_many = scale->n_dim == 1 && scale->dim[0] != 1;
  if (has_many || c->attrs[AXIS].given) {
    NEAP_TRY(neap_infer_axis(c, AXIS, x->n_dim, &axis, error));
    if (has_many) many = x->dim[axis];
  }
  NEAP_TRY(expect_each(c, SCALE, has_many, many, error));
  return expect_each(c, ZERO, has_many, many, error);
}

static neap_status infer_quantize(neap_infer *c, neap_error *error) {
  neap_dtype to = (neap_dtype)c->attrs[TO].i;
  NEAP_TRY(check(c, error));
  NEAP_TRY(neap_quantized_expect_dtype(c, SCALE, X, error));

  /* A zero point says y's dtype; where `to` says it too, both must agree. */
  if (neap_quantized_has(c->n_in, c->in, ZERO)) {
    if (c->attrs[TO].given && to != c->in[ZERO].dtype)
      return neap_infer_fail(c, NEAP_DTYPE, ZERO, error, "zero expects the dtype to = %s, got %s",
                             neap_dtype_name(to), neap_dtype_name(c->in[ZERO].dtype));
    to = c->in[ZERO].dtype;
  }
  if (!neap_dtype_in(to, INTEGERS))
    return neap_infer_fail(c, NEAP_ATTRIBUTE, X, error, "to expects u8, i8, u16 or i16, got %s",
                           neap_dtype_name(to));
  c->out[0] = (neap_type){to, c->in[X].shape};
  return NEAP_OK;
}

static neap_status infer_dequantize(neap_infer *c, neap_error *error) {
  NEAP_TRY(check(c, error));
  NEAP_TRY(neap_quantized_expect_dtype(c, ZERO, X, error));
  c->out[0] = (neap_type){c->in[SCALE].dtype, c->in[X].shape};
  return NEAP_OK;
}

/* ---- loops ----------------------------------------------------------------------------------- */

/* What a row is computed with; `least` and `most` bound the integers of y. */
typedef struct numbers {
  double scale, zero, least, most;
} numbers;

/* n elements of one row. */
typedef void (*loop)(const void *x, void *y, const numbers *p, int64_t n);

/* y = saturate(round(x / scale) + zero). In floats, which hold every number of 16 bits; a NaN is
 * not above the least. */
#define QUANTIZE(name, R, I, rint_of)                                                           \
  NEAP_MULTIVERSION static void name(const void *from, void *to, const numbers *p, int64_t n) { \
    const R *x = from, scale = (R)p->scale, zero = (R)p->zero, least = (R)p->least,             \
            most = (R)p->most;                                                                  \
    I *y = to;                                                                                  \
    for (int64_t i = 0; i < n; i++) {                                                           \
      R v = rint_of(x[i] / scale) + zero;                                                       \
      v = v > least ? v : least;                                                                \
      v = v < most ? v : most;                                                                  \
      y[i] = (I)(int32_t)v;                                                                     \
    }                                                                                           \
  }
QUANTIZE(f32_to_u8, float, uint8_t, rintf)
QUANTIZE(f32_to_i8, float, int8_t, rintf)
QUANTIZE(f32_to_u16, float, uint16_t, rintf)
QUANTIZE(f32_to_i16, float, int16_t, rintf)
QUANTIZE(f64_to_u8, double, uint8_t, rint)
QUANTIZE(f64_to_i8, double, int8_t, rint)
QUANTIZE(f64_to_u16, double, uint16_t, rint)
QUANTIZE(f64_to_i16, double, int16_t, rint)

/* y = (x - zero) scale; the difference of 32 bits is exact in f64. */
#define DEQUANTIZE(name, I, R, D)                                                               \
  NEAP_MULTIVERSION static void name(const void *from, void *to, const numbers *p, int64_t n) { \
    const I *x = from;                                                                          \
    const R scale = (R)p->scale;                                                                \
    const D zero = (D)p->zero;                                                                  \
    R *y = to;                                                                                  \
    for (int64_t i = 0; i < n; i++) y[i] = (R)((D)x[i] - zero) * scale;                         \
  }
DEQUANTIZE(u8_to_f32, uint8_t, float, float)
DEQUANTIZE(i8_to_f32, int8_t, float, float)
DEQUANTIZE(u16_to_f32, uint16_t, float, float)
DEQUANTIZE(i16_to_f32, int16_t, float, float)
DEQUANTIZE(i32_to_f32, int32_t, float, double)
DEQUANTIZE(u8_to_f64, uint8_t, double, double)
DEQUANTIZE(i8_to_f64, int8_t, double, double)
DEQUANTIZE(u16_to_f64, uint16_t, double, double)
DEQUANTIZE(i16_to_f64, int16_t, double, double)
DEQUANTIZE(i32_to_f64, int32_t, double, double)

/* By the integers' dtype, then whether the floats are f64. */
static const loop quantize_loops[NEAP_N_DTYPE][2] = {
  [NEAP_DTYPE_U8] = {f32_to_u8, f64_to_u8},
  [NEAP_DTYPE_I8] = {f32_to_i8, f64_to_i8},
  [NEAP_DTYPE_U16] = {f32_to_u16, f64_to_u16},
  [NEAP_DTYPE_I16] = {f32_to_i16, f64_to_i16},
};
static const loop dequantize_loops[NEAP_N_DTYPE][2] = {
  [NEAP_DTYPE_U8] = {u8_to_f32, u8_to_f64},    [NEAP_DTYPE_I8] = {i8_to_f32, i8_to_f64},
  [NEAP_DTYPE_U16] = {u16_to_f32, u16_to_f64}, [NEAP_DTYPE_I16] = {i16_to_f32, i16_to_f64},
  [NEAP_DTYPE_I32] = {i32_to_f32, i32_to_f64},
};

/* A row has one scale: all of x, or the `inner` elements behind one position of the axis. */
typedef struct job {
  const neap_call *call;
  int64_t inner, channels; /* channels 1: one scale */
  double least, most;
  loop loop;
} job;

/* Elements [begin, end), row by row. */
static void run_range(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  for (int64_t at = begin; at < end;) {
    const int64_t r = at / j->inner, n = NEAP_MIN(end, (r + 1) * j->inner) - at;
    const int64_t c = r % j->channels;
    /* Beside several scales there may be one zero point for all. */
    const numbers p = {neap_quantized_number(j->call, SCALE, c, 0),
                       neap_quantized_number(j->call, ZERO, c, 0), j->least, j->most};
    j->loop(neap_element_at(&j->call->in[X], at), neap_element_at(&j->call->out[0], at), &p, n);
    at += n;
  }
}

/* `integers` and `floats`: the types of x and y, whichever way. */
static void run(const neap_call *call, const loop loops[NEAP_N_DTYPE][2], neap_dtype integers,
                neap_dtype floats) {
  const neap_shape *shape = &call->in[X].type.shape;
  int64_t n = neap_shape_elems(shape);
  if (n == 0) return;
  job j = {.call = call, .inner = n, .channels = 1};
  /* With one scale all of x is one row; with several a row lies behind each position of the
   * axis. */
  if (neap_shape_elems(&call->in[SCALE].type.shape) > 1) {
    int axis = neap_axis(call->attrs[AXIS].i, shape->n_dim);
    j.channels = shape->dim[axis];
    j.inner = neap_shape_span(shape, axis + 1, shape->n_dim);
  }
  neap_quantized_range(integers, &j.least, &j.most);
  j.loop = loops[integers][floats == NEAP_DTYPE_F64];
  neap_parallel_for(n, NEAP_GRAIN, call->n_thread, run_range, &j);
}

static void run_quantize(const neap_call *call) {
  run(call, quantize_loops, call->out[0].type.dtype, call->in[X].type.dtype);
}

static void run_dequantize(const neap_call *call) {
  run(call, dequantize_loops, call->in[X].type.dtype, call->out[0].type.dtype);
}

/* Without vectors: a few results of one channel. */
void neap_quantized_put(const neap_operand *y, int64_t at, const float *v, int64_t n) {
  void *to = neap_element_at(y, at);
  if (y->type.dtype == NEAP_DTYPE_F32)
    memcpy(to, v, (size_t)n * sizeof *v);
  else if (y->type.dtype == NEAP_DTYPE_U8)
    f32_to_u8(v, to, &(numbers){1, 0, 0, 255}, n);
  else
    f32_to_i8(v, to, &(numbers){1, 0, -128, 127}, n);
}

#define AXIS_ATTR                                                                       \
  [AXIS] = {"axis", "dimension of the scales, where there are several", NEAP_ATTR_AXIS, \
            .value = {.i = 1}}

const neap_op neap_op_QuantizeLinear = {
  .name = "QuantizeLinear",
  .summary = "Real numbers as integers, by a scale and a zero point: to nearest even, saturating.",
  .math = "y = saturate(round(x / scale) + zero)",
  .example = "net:QuantizeLinear({\"x\", \"scale\", \"zero\"}, \"y\")",
  .source = "ONNX QuantizeLinear-21; Jacob et al., arXiv 1712.05877",
  .inputs = {[X] = {"x", "any shape", NEAP_WIDE},
             [SCALE] = {"scale", "above 0: one, or one of each position along `axis`", NEAP_WIDE},
             [ZERO] = {"zero", "one, or like scale: the integer that 0 is", INTEGERS,
                       NEAP_ARG_OPTIONAL}},
  .outputs = {{"y", "shape of x", INTEGERS}},
  .attrs = {AXIS_ATTR, [TO] = {"to",
                               "dtype of y: u8, i8, u16 or i16; that of zero where there is one",
                               NEAP_ATTR_DTYPE, .value = {.i = NEAP_DTYPE_U8}}},
  .infer = infer_quantize,
  .no_grad = true,
  .mixed = NEAP_MIXED_FULL,
  .nan = NEAP_NAN_DECIDES,
  .special = "NaN gives the least integer, infinities the bounds",
  .kernels = NEAP_REF(run_quantize, NEAP_WIDE),
  .cases =
    "{ {x={{2,3,7}, low=-9, high=9}, scale={{}, low=0.05, high=0.1}},"
    " {x={{2,3,7}, low=-9, high=9}, scale={{3}, low=0.05, high=0.1}, zero={{3}, dtype=\"i8\", "
    "low=-9, high=9}, axis=2},"
    " {x={{4,5}, low=-9, high=9}, scale={{1}, low=1e-4, high=1e-3}, to=\"i16\"},"
    " {x={0,4}, scale={{}, low=1, high=2}} }",
};

const neap_op neap_op_DequantizeLinear = {
  .name = "DequantizeLinear",
  .summary = "The real numbers that quantised integers stand for.",
  .math = "y = (x - zero) scale",
  .example = "net:DequantizeLinear({\"x\", \"scale\", \"zero\"}, \"y\")",
  .source = "ONNX DequantizeLinear-21",
  .inputs = {[X] = {"x", "any shape", INTEGERS | NEAP_BIT(I32)},
             [SCALE] = {"scale", "one, or one of each position along `axis`", NEAP_WIDE},
             [ZERO] = {"zero", "one, or like scale: the integer that 0 is",
                       INTEGERS | NEAP_BIT(I32), NEAP_ARG_OPTIONAL}},
  .outputs = {{"y", "shape of x, dtype of scale", NEAP_WIDE}},
  .attrs = {AXIS_ATTR},
  .infer = infer_dequantize,
  .no_grad = true,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_dequantize, NEAP_WIDE),
  .cases =
    "{ {x={{2,3,7}, dtype=\"u8\", low=0, high=255}, scale={{}, low=0.05, high=0.1}, zero={{}, "
    "dtype=\"u8\", low=0, high=255}},"
    " {x={{2,3,7}, dtype=\"i8\", low=-128, high=127}, scale={{3}, low=0.05, high=0.1}, axis=2},"
    " {x={{5}, dtype=\"i32\", low=-9000, high=9000}, scale={{5}, low=0.05, high=0.1}, axis=1} }",
};
