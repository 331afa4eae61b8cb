/* distance_loss.c: MseLoss and L1Loss: the distance of a prediction from a target, element by
 * element, as a mean, a sum, or not reduced at all.
 *
 * The reduction runs on one thread, so that its bits do not depend on their number; partial sums in
 * double.
 */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

enum { REDUCTION };
enum { BY_MEAN, BY_SUM, NOT };
enum { LANES = 8 };

#define SQUARE(T, d) ((d) * (d))
#define ABSOLUTE(T, d) ((d) < 0 ? -(d) : (d))

#define LOSS(NAME, suffix, T, DISTANCE)                                                    \
  NEAP_ROW2_SAME(NAME##_each_##suffix, T, T, , DISTANCE(T, x - y))                         \
  NEAP_MULTIVERSION static double NAME##_sum_##suffix(const T *x, const T *t, int64_t n) { \
    double part[LANES] = {0}, sum = 0;                                                     \
    int64_t i = 0;                                                                         \
    for (; i + LANES <= n; i += LANES)                                                     \
      for (int k = 0; k < LANES; k++) {                                                    \
        const double d = (double)x[i + k] - (double)t[i + k];                              \
        part[k] += DISTANCE(double, d);                                                    \
      }                                                                                    \
    for (; i < n; i++) {                                                                   \
      const double d = (double)x[i] - (double)t[i];                                        \
      sum += DISTANCE(double, d);                                                          \
    }                                                                                      \
    for (int k = 0; k < LANES; k++) sum += part[k];                                        \
    return sum;                                                                            \
  }
#define LOSS_RUN(NAME)                                                             \
  static void run_##NAME(const neap_call *call) {                                  \
    bool f64 = call->in[0].type.dtype == NEAP_DTYPE_F64;                           \
    int64_t n = neap_shape_elems(&call->in[0].type.shape);                         \
    if (call->attrs[REDUCTION].i == NOT) {                                         \
      neap_elementwise_run(call, 2, f64 ? NAME##_each_f64 : NAME##_each_f32);      \
      return;                                                                      \
    }                                                                              \
    double sum = f64 ? NAME##_sum_f64(call->in[0].data, call->in[1].data, n)       \
                     : NAME##_sum_f32(call->in[0].data, call->in[1].data, n);      \
    neap_element_set(call->out[0].type.dtype, call->out[0].data, 0,                \
                     call->attrs[REDUCTION].i == BY_MEAN ? sum / (double)n : sum); \
  }
LOSS(mse, f32, float, SQUARE)
LOSS(mse, f64, double, SQUARE)
LOSS_RUN(mse)
LOSS(l1, f32, float, ABSOLUTE)
LOSS(l1, f64, double, ABSOLUTE)
LOSS_RUN(l1)

/* ---- backward: x = the side differentiated, y = the other, z = the gradient, of one or of each */

#define SHARE(T)                                                                        \
  const T share = (T)(row->call->attrs[REDUCTION].i == BY_MEAN                          \
                        ? 1.0 / (double)neap_shape_elems(&row->call->out[0].type.shape) \
                        : 1.0);

NEAP_ROW3(mse_grad_f32, float, float, float, SHARE(float), 2.0f * (x - y) * (z * share))
NEAP_ROW3(mse_grad_f64, double, double, double, SHARE(double), 2.0 * (x - y) * (z * share))
NEAP_ROW_RUN(mse_grad, 3, NEAP_ROWS_FLOATS(mse_grad))
NEAP_ROW3(l1_grad_f32, float, float, float, SHARE(float),
          x > y   ? z * share
          : x < y ? -z * share
                  : (x - y) * 0)
NEAP_ROW3(l1_grad_f64, double, double, double, SHARE(double),
          x > y   ? z * share
          : x < y ? -z * share
                  : (x - y) * 0)
NEAP_ROW_RUN(l1_grad, 3, NEAP_ROWS_FLOATS(l1_grad))

static neap_status infer(neap_infer *c, neap_error *error) {
  NEAP_TRY(neap_infer_like(c, error));
  if (c->attrs[REDUCTION].i != NOT) c->out[0].shape = (neap_shape){0};
  return NEAP_OK;
}

extern const neap_op neap_op_MseLoss;

/* Both losses have the same shapes. */
static neap_status infer_grad(neap_infer *c, neap_error *error) {
  neap_type loss;
  NEAP_TRY(neap_infer_same_dtype(c, 0, error));
  NEAP_TRY(neap_infer_forward(c, &neap_op_MseLoss, 2, c->in, 1, &loss, error));
  NEAP_TRY(neap_infer_expect(c, 2, &loss, error));
  c->out[0] = c->in[0];
  return NEAP_OK;
}

/* The distance is symmetric: one op serves both sides. */
static neap_status grad_both(neap_grad *g, const char *type) {
  for (int i = 0; i < 2; i++)
    if (g->want[i])
      g->din[i] =
        neap_grad_emit1(g, type, 3, (neap_value_id[]){g->in[i], g->in[1 - i], g->dout[0]}, g, NULL);
  return NEAP_OK;
}

static neap_status grad_mse(neap_grad *g, neap_error *error) {
  (void)error;
  return grad_both(g, "MseLossGrad");
}

static neap_status grad_l1(neap_grad *g, neap_error *error) {
  (void)error;
  return grad_both(g, "L1LossGrad");
}

static void cost(const neap_infer *c, neap_cost *cost) {
  cost->flop = 3.0 * (double)neap_shape_elems(&c->in[0].shape);
}

#define REDUCTION_ATTR                                                                             \
  {                                                                                                \
    [REDUCTION] = { "reduction", "over all elements", NEAP_ATTR_ENUM, .choices = "mean|sum|none" } \
  }
#define LOSS_OP                                                                                  \
  .loss = true, .inputs = {{"x", "prediction"}, {"target", "shape of x"}},                       \
  .outputs = {{"loss", "scalar; shape of x for none"}}, .attrs = REDUCTION_ATTR, .infer = infer, \
  .cost = cost,                                                                                  \
  .cases =                                                                                       \
    "{ {x={4,5}, target={4,5}}, {x={4,5}, target={4,5}, reduction=\"sum\"}, {x={3,7}, "          \
    "target={3,7}, reduction=\"none\"} }"
#define BACKWARD                                                                           \
  .internal = true,                                                                        \
  .inputs = {{"x", "the side differentiated"},                                             \
             {"target", "the other"},                                                      \
             {"dy", "gradient of the loss"}},                                              \
  .outputs = {{"dx", "shape of x"}}, .attrs = REDUCTION_ATTR, .inplace = {{0, 0}, {1, 0}}, \
  .n_inplace = 2, .infer = infer_grad, .cases = "{ {x={4,5}, target={4,5}, dy={}} }"

const neap_op neap_op_MseLoss = {
  .name = "MseLoss",
  .summary = "Mean squared difference of prediction and target.",
  .math = "loss = mean (x - target)^2",
  .example = "net:MseLoss({\"y\", \"target\"}, \"loss\")",
  .source = "torch.nn.MSELoss",
  LOSS_OP,
  .grad = grad_mse,
  .sum = NEAP_SUM_DOUBLE,
  .kernels = NEAP_REF(run_mse),
};

const neap_op neap_op_MseLossGrad = {
  .name = "MseLossGrad",
  .summary = "Backward of MseLoss, for either side.",
  .math = "dx = 2 (x - target) dy / n",
  BACKWARD,
  .kernels = NEAP_REF(run_mse_grad),
};

const neap_op neap_op_L1Loss = {
  .name = "L1Loss",
  .summary = "Mean absolute difference of prediction and target; its derivative at 0 is 0.",
  .math = "loss = mean |x - target|",
  .example = "net:L1Loss({\"y\", \"target\"}, \"loss\")",
  .source = "torch.nn.L1Loss",
  LOSS_OP,
  .grad = grad_l1,
  .sum = NEAP_SUM_DOUBLE,
  .kernels = NEAP_REF(run_l1),
};

const neap_op neap_op_L1LossGrad = {
  .name = "L1LossGrad",
  .summary = "Backward of L1Loss, for either side.",
  .math = "dx = sign(x - target) dy / n",
  BACKWARD,
  .kernels = NEAP_REF(run_l1_grad),
};
