/* random.c: Uniform, Gaussian, Xavier and Kaiming: tensors of random numbers.
 *
 * INVARIANT: element i is made from word i % 4 (a Gaussian from words i % 4 and its neighbour) of
 * Philox block i / 4 under (seed, stream, step), and from nothing else: not from the number of
 * threads, nor from the order of ops.
 */
#include "math/vec.h"
#include "ops/fill.h"
#include "ops/rows.h"

/* What is drawn: from [a, b), or with mean a and deviation b. */
typedef struct job {
  const neap_call *call;
  double a, b;
  bool normal;
} job;

/* From one word of 32 bits, for f64 too. */
static double uniform_between(const job *j, uint32_t word, bool f64) {
  double u = f64 ? (double)word * 0x1p-32 : (double)neap_uniform_f32(word);
  return j->a + (j->b - j->a) * u;
}

/* The number of a half's dtype beside this one. Both dtypes have the sign in the highest bit and
 * order magnitudes as integers do. */
static uint16_t half_beside(uint16_t bits, bool above) {
  bool is_negative = (bits & 0x8000) != 0;
  /* Both zeros have the same neighbours: the least numbers of either sign. */
  if ((bits & 0x7fff) == 0) return above ? 0x0001 : 0x8001;
  return (uint16_t)(above != is_negative ? bits + 1 : bits - 1);
}

/* Rounding to a half carries many a uniform number to b, or below a: such a one is the number of
 * the interval beside it. Where the dtype has none in the interval, it is one beside that. */
static void keep_half_within(const job *j, int64_t i) {
  const neap_operand *out = &j->call->out[0];
  uint16_t *bits = (uint16_t *)out->data + i;
  if (neap_number_at(out, i) >= j->b)
    *bits = half_beside(*bits, false);
  else if (neap_number_at(out, i) < j->a)
    *bits = half_beside(*bits, true);
}

/* Element i, rounded to the dtype. In f32 and f64 rounding hardly ever carries a uniform number up
 * to b, which is not in the interval: then it is a. */
static void put(const job *j, int64_t i, double x) {
  const neap_operand *out = &j->call->out[0];
  const neap_dtype dtype = out->type.dtype;
  bool open = !j->normal && j->b > j->a;
  /* Compared as rounded: that is what the user sees. */
  if (dtype == NEAP_DTYPE_F64) {
    ((double *)out->data)[i] = open && x >= j->b ? j->a : x;
  } else if (dtype == NEAP_DTYPE_F32) {
    ((float *)out->data)[i] = (float)(open && (float)x >= (float)j->b ? j->a : x);
  } else {
    neap_number_put(out, i, x);
    if (open) keep_half_within(j, i);
  }
}

/* Blocks [begin, end) of four elements. */
static void fill_blocks(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  const neap_call *call = j->call;
  const neap_operand *out = &call->out[0];
  bool f64 = out->type.dtype == NEAP_DTYPE_F64;
  int64_t n = neap_shape_elems(&out->type.shape);

  /* One call of the generator makes the four words of a block: what an element gets depends on its
   * place alone, and not on the thread. */
  for (int64_t block = begin; block < end; block++) {
    uint32_t word[4];
    float pair[4] = {0};
    neap_philox(call->seed, call->stream, call->step, (uint64_t)block, word);
    /* Two words make two normal numbers (Box and Muller): four of a block. */
    if (j->normal) {
      neap_normal_f32(word[0], word[1], pair);
      neap_normal_f32(word[2], word[3], pair + 2);
    }
    for (int64_t i = 4 * block; i < NEAP_MIN(4 * block + 4, n); i++) {
      put(j, i,
          j->normal ? j->a + j->b * (double)pair[i % 4] : uniform_between(j, word[i % 4], f64));
    }
  }
}

/* Each block of four is made anew from its number, so threads may take them in any way. */
static void fill(const neap_call *call, bool normal, double a, double b) {
  job j = {call, a, b, normal};
  neap_parallel_for((neap_shape_elems(&call->out[0].type.shape) + 3) / 4, NEAP_GRAIN / 16,
                    call->n_thread, fill_blocks, &j);
}

enum { LOW = NEAP_FILL_NEXT, HIGH };
enum { MEAN = NEAP_FILL_NEXT, STD };

static void run_uniform(const neap_call *call) {
  fill(call, false, call->attrs[LOW].f, call->attrs[HIGH].f);
}
static void run_gaussian(const neap_call *call) {
  fill(call, true, call->attrs[MEAN].f, call->attrs[STD].f);
}

/* Whether x, rounded to the dtype, is a number and no infinity. */
static bool is_number_of(neap_dtype dtype, double x) {
  double rounded = 0; /* room for an element of any dtype */
  neap_element_set(dtype, &rounded, 0, x);
  return isfinite(neap_element_get(dtype, &rounded, 0));
}

static neap_status infer_uniform(neap_infer *c, neap_error *error) {
  const double low = c->attrs[LOW].f, high = c->attrs[HIGH].f;
  if (!(low <= high))
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "low = %g expects to be at most high = %g",
                           low, high);
  NEAP_TRY(neap_fill_infer(c, error));

  /* Nothing is evenly distributed up to infinity: neither may an end be one, nor their distance,
   * which is computed in double. */
  const neap_dtype dtype = c->out[0].dtype;
  if (!is_number_of(dtype, low) || !is_number_of(dtype, high) || !isfinite(high - low))
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                           "low = %g and high = %g expect to be numbers of %s, and their distance "
                           "one of f64",
                           low, high, neap_dtype_name(dtype));
  return NEAP_OK;
}

/* ---- weights: the deviation is gain / sqrt(fan) ---------------------------------------------- */

enum { GAIN = NEAP_FILL_NEXT, MODE, DISTRIBUTION };
enum { XAVIER_AVG, XAVIER_IN, XAVIER_OUT };
enum { KAIMING_IN, KAIMING_OUT };

/* Of a weight (out, in, kernel...): how many inputs an output sees, how many outputs an input
 * feeds. */
static double fan_in(const neap_shape *w) { return (double)neap_shape_span(w, 1, w->n_dim); }
static double fan_out(const neap_shape *w) {
  return (double)(w->dim[0] * neap_shape_span(w, 2, w->n_dim));
}

/* Deviation gain / sqrt(fan), with a fan of at least 1 for weights without elements. The uniform
 * distribution of deviation s is that on [-s sqrt 3, s sqrt 3). */
static void fill_weight(const neap_call *call, double fan) {
  double std = call->attrs[GAIN].f / sqrt(NEAP_MAX(fan, 1)), bound = sqrt(3.0) * std;
  if (call->attrs[DISTRIBUTION].i != 0)
    fill(call, true, 0, std);
  else
    fill(call, false, -bound, bound);
}

/* The fan is that of the inputs, that of the outputs, or the mean of both. */
static void run_xavier(const neap_call *call) {
  const neap_shape *w = &call->out[0].type.shape;
  double fan = (fan_in(w) + fan_out(w)) / 2;
  if (call->attrs[MODE].i == XAVIER_IN) fan = fan_in(w);
  if (call->attrs[MODE].i == XAVIER_OUT) fan = fan_out(w);
  fill_weight(call, fan);
}

static void run_kaiming(const neap_call *call) {
  const neap_shape *w = &call->out[0].type.shape;
  fill_weight(call, call->attrs[MODE].i == KAIMING_OUT ? fan_out(w) : fan_in(w));
}

static neap_status infer_weight(neap_infer *c, neap_error *error) {
  NEAP_TRY(neap_fill_infer(c, error));
  char text[NEAP_SHAPE_TEXT];
  /* A vector has no inputs and outputs to count. */
  if (c->out[0].shape.n_dim < 2)
    return neap_infer_fail(
      c, NEAP_ATTRIBUTE, 0, error,
      "shape %s expects at least 2 dimensions (out, in, ...), which say the fans",
      neap_shape_text(&c->out[0].shape, text));
  return NEAP_OK;
}

#define RANDOM .outputs = {{"y", "`shape`"}}, .effects = NEAP_EFFECT_RANDOM, .no_grad = true
#define DISTRIBUTION_ATTR \
  [DISTRIBUTION] = {"distribution", "of the numbers", NEAP_ATTR_ENUM, .choices = "uniform|normal"}

const neap_op neap_op_Uniform = {
  .name = "Uniform",
  .summary = "Random numbers, evenly distributed over an interval.",
  .math = "y ~ U[low, high)",
  .example = "net:Uniform({}, \"y\", {shape = {2, 3}, low = -1, high = 1})",
  .source = "Salmon et al., SC 2011 (Philox)",
  RANDOM,
  .attrs = {NEAP_FILL_ATTRS, [LOW] = {"low", "least value", NEAP_ATTR_FLOAT},
            [HIGH] = {"high", "upper end, not included", NEAP_ATTR_FLOAT, .value = {.f = 1}}},
  .infer = infer_uniform,
  .kernels = NEAP_REF(run_uniform, NEAP_FLOATS),
  .cases = "{ {shape={2,3}}, {shape={7}, low=-2, high=5}, {shape={0}}, {shape={}} }",
};

const neap_op neap_op_Gaussian = {
  .name = "Gaussian",
  .summary = "Random numbers of a normal distribution.",
  .math = "y ~ N(mean, std^2)",
  .example = "net:Gaussian({}, \"y\", {shape = {2, 3}, std = 0.02})",
  .source = "Box and Muller, 1958; Salmon et al., SC 2011 (Philox)",
  RANDOM,
  .attrs = {NEAP_FILL_ATTRS, [MEAN] = {"mean", "centre", NEAP_ATTR_FLOAT},
            [STD] = {"std", "standard deviation", NEAP_ATTR_FLOAT, .value = {.f = 1}, .least = 0,
                     .most = 1e30}},
  .infer = neap_fill_infer,
  .kernels = NEAP_REF(run_gaussian, NEAP_FLOATS),
  .cases = "{ {shape={2,3}}, {shape={7}, mean=3, std=0.5}, {shape={0}}, {shape={}} }",
};

const neap_op neap_op_Xavier = {
  .name = "Xavier",
  .summary = "Random weights that keep the variance of activations and of gradients.",
  .math = "std = gain / sqrt(fan); fan = (in + out) k / 2 for mode avg",
  .example = "net:Xavier({}, \"w\", {shape = {64, 32, 3, 3}})",
  .source = "Glorot and Bengio, AISTATS 2010",
  RANDOM,
  .attrs = {NEAP_FILL_ATTRS,
            [GAIN] = {"gain", "factor of the deviation", NEAP_ATTR_FLOAT, .value = {.f = 1}},
            [MODE] = {"mode", "which fan", NEAP_ATTR_ENUM, .value = {.i = XAVIER_AVG},
                      .choices = "avg|in|out"},
            DISTRIBUTION_ATTR},
  .infer = infer_weight,
  .kernels = NEAP_REF(run_xavier, NEAP_FLOATS),
  .cases =
    "{ {shape={5,3}}, {shape={8,4,3,3}, mode=\"in\"}, {shape={8,4,3,3}, mode=\"out\", "
    "distribution=\"normal\"} }",
};

const neap_op neap_op_Kaiming = {
  .name = "Kaiming",
  .summary = "Random weights that keep the variance of activations through ReLU (gain sqrt 2).",
  .math = "std = gain / sqrt(fan); fan = in k for mode in",
  .example = "net:Kaiming({}, \"w\", {shape = {64, 32, 3, 3}})",
  .source = "He et al., ICCV 2015, arXiv 1502.01852",
  RANDOM,
  .attrs = {NEAP_FILL_ATTRS,
            [GAIN] = {"gain", "factor of the deviation", NEAP_ATTR_FLOAT,
                      .value = {.f = 1.4142135623730951}},
            [MODE] = {"mode", "which fan", NEAP_ATTR_ENUM, .value = {.i = KAIMING_IN},
                      .choices = "in|out"},
            DISTRIBUTION_ATTR},
  .infer = infer_weight,
  .kernels = NEAP_REF(run_kaiming, NEAP_FLOATS),
  .cases =
    "{ {shape={5,3}}, {shape={8,4,3,3}}, {shape={8,4,3,3}, mode=\"out\", distribution=\"normal\"} "
    "}",
};
