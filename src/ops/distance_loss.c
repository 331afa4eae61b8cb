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

/* ---- the loss: x = prediction, y = target ---------------------------------------------------- */

NEAP_INLINE double square(double d) { return d * d; }
NEAP_INLINE double absolute(double d) { return d < 0 ? -d : d; }

#define NEAP_BODY "ops/distance_body.h"
#include "math/each_float.h"

NEAP_MAP2_SAME(mse_each, (x - y) * (x - y))
NEAP_MAP2_SAME(l1_each, x < y ? y - x : x - y)

/* Sum of the distances of [at, at + n), a stretch of the operands or a tile of them. */
static double sum_part(const neap_call *call, int64_t at, int64_t n, bool squared) {
  float tile[2][NEAP_TILE];
  const void *x = neap_tile_load(&call->in[0], at, n, tile[0]),
             *y = neap_tile_load(&call->in[1], at, n, tile[1]);
  bool f64 = call->in[0].type.dtype == NEAP_DTYPE_F64;
  /* Halves are f32 by now, in the tiles. */
  if (squared) return f64 ? sum_squares_f64(x, y, n) : sum_squares_f32(x, y, n);
  return f64 ? sum_absolute_f64(x, y, n) : sum_absolute_f32(x, y, n);
}

static void run_reduced(const neap_call *call, bool squared) {
  int64_t n = neap_shape_elems(&call->in[0].type.shape), step = neap_tile_elems(&call->in[0], n);
  double sum = 0;
  /* Of wide types one stretch; of halves tile after tile, summed in double. */
  for (int64_t at = 0; at < n; at += step)
    sum += sum_part(call, at, NEAP_MIN(step, n - at), squared);
  neap_element_set(call->out[0].type.dtype, call->out[0].data, 0,
                   call->attrs[REDUCTION].i == BY_MEAN ? sum / (double)n : sum);
}

static void run_mse(const neap_call *call) {
  if (call->attrs[REDUCTION].i == NOT)
    run_mse_each(call);
  else
    run_reduced(call, true);
}

static void run_l1(const neap_call *call) {
  if (call->attrs[REDUCTION].i == NOT)
    run_l1_each(call);
  else
    run_reduced(call, false);
}

/* ---- backward: x = the side differentiated, y = the other, z = the gradient, of one or of each */

enum { SHARE };
NEAP_ROW_FLOATS(3, map3, mse_grad, (x - y) * (2 * (z * p[SHARE])))
NEAP_ROW_TABLE(mse_grad, NEAP_ROWS_FLOATS(mse_grad))
NEAP_ROW_FLOATS(3, map3, l1_grad, x > y ? z * p[SHARE] : x < y ? -z * p[SHARE] : (x - y) * 0)
NEAP_ROW_TABLE(l1_grad, NEAP_ROWS_FLOATS(l1_grad))

/* Each element's share of the gradient: of a mean 1 / n. */
static void run_grad(const neap_call *call, const neap_row_loop *loops) {
  bool is_mean = call->attrs[REDUCTION].i == BY_MEAN;
  const double param[NEAP_ROW_MAX_PARAM] = {
    [SHARE] = is_mean ? 1.0 / (double)neap_shape_elems(&call->out[0].type.shape) : 1.0};
  neap_elementwise_run_param(call, 3, loops, param);
}

static void run_mse_grad(const neap_call *call) { run_grad(call, rows_mse_grad); }
static void run_l1_grad(const neap_call *call) { run_grad(call, rows_l1_grad); }

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
  cost->flops = 3.0 * (double)neap_shape_elems(&c->in[0].shape);
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
  .empty = NEAP_EMPTY_MEAN,
  .sum = NEAP_SUM_DOUBLE,
  .kernels = NEAP_REF(run_mse, NEAP_FLOATS),
  .long_cases = "{ {x={262144}, target={{262144}, low=0, high=1}} }",
};

const neap_op neap_op_MseLossGrad = {
  .name = "MseLossGrad",
  .summary = "Backward of MseLoss, for either side.",
  .math = "dx = 2 (x - target) dy / n",
  BACKWARD,
  .formula = "n = reduction ? 1 : count(x); dx = 2 * (x - target) * dy / n",
  .kernels = NEAP_REF(run_mse_grad, NEAP_FLOATS),
};

const neap_op neap_op_L1Loss = {
  .name = "L1Loss",
  .summary = "Mean absolute difference of prediction and target; its derivative at 0 is 0.",
  .math = "loss = mean |x - target|",
  .example = "net:L1Loss({\"y\", \"target\"}, \"loss\")",
  .source = "torch.nn.L1Loss",
  LOSS_OP,
  .grad = grad_l1,
  .empty = NEAP_EMPTY_MEAN,
  .sum = NEAP_SUM_DOUBLE,
  .kernels = NEAP_REF(run_l1, NEAP_FLOATS),
  .long_cases = "{ {x={262144}, target={{262144}, low=0, high=1}} }",
};

const neap_op neap_op_L1LossGrad = {
  .name = "L1LossGrad",
  .summary = "Backward of L1Loss, for either side.",
  .math = "dx = sign(x - target) dy / n",
  BACKWARD,
  .formula = "n = reduction ? 1 : count(x); dx = Sign(x - target) * dy / n",
  .kernels = NEAP_REF(run_l1_grad, NEAP_FLOATS),
};
