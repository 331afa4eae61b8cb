/* qlinear_pool.c: QLinearAveragePool and QLinearGlobalAveragePool: means of quantised numbers,
 * quantised again by a scale of their own, which fits means better than that of x does.
 *
 * A group is one image's channels that lie side by side. Of a window the differences of the
 * integers from the zero point are summed in 32 bits, so that an element of padding, which stands
 * for 0, adds nothing; the mean is rounded once.
 */
#include "ops/pool_int.h"
#include "ops/quantized.h"

#include <math.h>

enum { X, X_SCALE, X_ZERO, Y_SCALE, Y_ZERO };
enum { COUNT_PAD = NEAP_POOL_N_ATTR, TO, GLOBAL_TO = 0 };
enum { LANES = 64 };

extern const neap_op neap_op_QLinearGlobalAveragePool;

static bool is_global(const neap_op *op) { return op == &neap_op_QLinearGlobalAveragePool; }

static neap_status infer(neap_infer *c, neap_error *error) {
  const bool global = is_global(c->op);
  NEAP_TRY(global ? neap_pool_infer_global(c, error) : neap_pool_infer(c, error));
  for (int i = X_SCALE; i <= Y_ZERO; i++) NEAP_TRY(neap_quantized_expect(c, i, 0, error));
  NEAP_TRY(neap_quantized_infer_dtype(c, Y_ZERO, global ? GLOBAL_TO : TO, &c->out[0].dtype, error));
  return neap_quantized_expect_dtype(c, X_ZERO, X, error);
}

/* x as it lies, where channels lie side by side. */
static bool choose(neap_choose *c) {
  const neap_layout plain = {0}, *at_hand = &c->in_layout[X];
  const bool can = neap_window_side_by_side(at_hand, &c->in[X].shape) > 0;
  const neap_layout taken = can ? *at_hand : plain;
  c->choice->in[X] = taken;
  c->choice->out[0] = taken;
  return true;
}

typedef struct job {
  pool_job pool;
  int64_t side;
  int32_t x_zero[LANES];
  double x_scale;
  float y_scale, y_zero;
} job;

/* The sums of n lanes over the window at s; x: element of the group's first position. */
static void sum_window(const job *j, const pool_spot *s, int64_t x, int64_t n, int32_t *sum) {
  const neap_window *w = &j->pool.w;
  const neap_operand *in = j->pool.in;
  for (int64_t l = 0; l < n; l++) sum[l] = 0;
  for (int64_t kd = s->from[0]; kd < s->to[0]; kd++)
    for (int64_t kh = s->from[1]; kh < s->to[1]; kh++)
      for (int64_t kw = s->from[2]; kw < s->to[2]; kw++)
        neap_integer_axpy(sum, 1, in->type.dtype,
                          neap_element_at(in, x + pool_spot_at(w, s, kd, kh, kw) * j->side),
                          j->x_zero, n);
}

/* Groups [begin, end), numbered image by image. */
static void run_groups(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  const neap_window *w = &j->pool.w;
  const int64_t n_block = (w->channels + j->side - 1) / j->side;
  int32_t sum[LANES];
  float mean[LANES];
  for (int64_t g = begin; g < end; g++) {
    /* Lanes behind the last channel are left as they are. */
    const int64_t real = NEAP_MIN(j->side, w->channels - g % n_block * j->side);
    pool_spot s = pool_spot_first(w);
    for (int64_t i = 0; i < w->n_out; i++, pool_spot_next(w, &s)) {
      const double n = NEAP_MAX(pool_divisor(&j->pool, &s), 1);
      for (int64_t from = 0; from < real; from += LANES) {
        const int64_t lanes = NEAP_MIN(real - from, LANES);
        sum_window(j, &s, g * j->side * w->n_in + from, lanes, sum);
        for (int64_t l = 0; l < lanes; l++)
          mean[l] = rintf((float)(sum[l] * j->x_scale / n) / j->y_scale) + j->y_zero;
        neap_quantized_put(j->pool.out, (g * w->n_out + i) * j->side + from, mean, lanes);
      }
    }
  }
}

static void run(const neap_call *call) {
  const neap_operand *x = &call->in[X], *y = &call->out[0];
  job j = {.pool = neap_pool_job_of(call, false),
           .side = neap_window_side_by_side(&x->layout, &x->type.shape),
           .x_scale = neap_quantized_number(call, X_SCALE, 0, 0),
           .y_scale = (float)neap_quantized_number(call, Y_SCALE, 0, 0),
           .y_zero = (float)neap_quantized_number(call, Y_ZERO, 0, 0)};
  for (int l = 0; l < LANES; l++) j.x_zero[l] = (int32_t)neap_quantized_number(call, X_ZERO, 0, 0);
  const neap_window *w = &j.pool.w;
  if (w->channels % j.side != 0) neap_clear_bytes(y->data, (size_t)neap_operand_lanes(y));
  const int64_t n_group = w->batch * ((w->channels + j.side - 1) / j.side),
                work = NEAP_MAX(1, neap_count_mul(neap_count_mul(w->n_out, w->n_kernel), j.side));
  neap_parallel_for(n_group, NEAP_MAX(1, NEAP_GRAIN / work), call->n_thread, run_groups, &j);
}

#define INPUTS                                                                 \
  {                                                                            \
    [X] = {"x", "(N,C,H,W), or one or three spatial dimensions", NEAP_BYTES},  \
    [X_SCALE] = {"x_scale", "one", NEAP_BIT(F32)},                             \
    [X_ZERO] = {"x_zero", "one, of x's dtype", NEAP_BYTES, NEAP_ARG_OPTIONAL}, \
    [Y_SCALE] = NEAP_QUANTIZED_Y_SCALE, [Y_ZERO] = NEAP_QUANTIZED_Y_ZERO,      \
  }
#define MATH "y = saturate(round(mean(x - x_zero) x_scale / y_scale) + y_zero)"

const neap_op neap_op_QLinearAveragePool = {
  .name = "QLinearAveragePool",
  .summary = "Means of windows of quantised numbers, quantised again.",
  .math = MATH,
  .example = "net:QLinearAveragePool({\"x\", \"xs\", \"xz\", \"ys\", \"yz\"}, \"y\", {kernel = 2})",
  .source = "ONNX Runtime, com.microsoft.QLinearAveragePool-1",
  .inputs = INPUTS,
  .outputs = {{"y", "(N,C,OH,OW)", NEAP_BYTES}},
  .attrs = {NEAP_POOL_ATTRS,
            [COUNT_PAD] = {"count_include_pad", "padding counts in the divisor", NEAP_ATTR_BOOL,
                           .value = {.i = 1}},
            [TO] = NEAP_QUANTIZED_TO},
  .infer = infer,
  .cost = neap_pool_cost,
  .no_grad = true,
  .empty = NEAP_EMPTY_REFUSED,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_CHOOSE(choose, run, NEAP_BIT(F32)),
  .cases =
    "{ {x={{2,3,6,7}, dtype=\"u8\", low=0, high=255}, x_scale={{}, low=0.02, high=0.03}, "
    "x_zero={{}, dtype=\"u8\", low=90, high=140}, y_scale={{}, low=0.02, high=0.03}, y_zero={{}, "
    "dtype=\"i8\", low=-9, high=9}, kernel={3}, stride={2}, pad={1}},"
    " {x={{1,4,5}, dtype=\"i8\", low=-128, high=128}, x_scale={{1}, low=0.02, high=0.03}, "
    "y_scale={{}, low=0.01, high=0.02}, kernel={2}, pad={1}, count_include_pad=false, to=\"i8\"} }",
};

const neap_op neap_op_QLinearGlobalAveragePool = {
  .name = "QLinearGlobalAveragePool",
  .summary = "The mean of quantised numbers over all spatial dimensions, quantised again.",
  .math = MATH,
  .example = "net:QLinearGlobalAveragePool({\"x\", \"xs\", \"xz\", \"ys\", \"yz\"}, \"y\")",
  .source = "ONNX Runtime, com.microsoft.QLinearGlobalAveragePool-1",
  .inputs = INPUTS,
  .outputs = {{"y", "(N,C,1,1)", NEAP_BYTES}},
  .attrs = {[GLOBAL_TO] = NEAP_QUANTIZED_TO},
  .infer = infer,
  .cost = neap_pool_cost,
  .no_grad = true,
  .empty = NEAP_EMPTY_REFUSED,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_CHOOSE(choose, run, NEAP_BIT(F32)),
  .cases =
    "{ {x={{2,70,4,5}, dtype=\"u8\", low=0, high=255}, x_scale={{}, low=0.02, high=0.03}, "
    "x_zero={{}, dtype=\"u8\", low=90, high=140}, y_scale={{}, low=0.002, high=0.003}, y_zero={{}, "
    "dtype=\"u8\", low=90, high=140}} }",
};
