/* adaptive.c: RmsProp, Adagrad and Adadelta: descent whose rate, per element, falls with the
 * gradients that the element has had. As PyTorch has them. */
#include "ops/optimizer.h"

enum { W = NEAP_OPTIMIZER_W, G = NEAP_OPTIMIZER_G, LR = NEAP_OPTIMIZER_LR };
enum { RATE, DECAY, SHARE, FRESH, EPS, MOMENTUM }; /* the parameters of the rows */

#define NEAP_BODY "ops/adaptive_body.h"
#include "math/each_float.h"
NEAP_ROW_TABLE(rms_prop, NEAP_ROWS_FLOATS(rms_prop))
NEAP_ROW_TABLE(adagrad, NEAP_ROWS_FLOATS(adagrad))
NEAP_ROW_TABLE(adadelta, NEAP_ROWS_FLOATS(adadelta))

/* ---- RmsProp --------------------------------------------------------------------------------- */

enum { RMS_ALPHA, RMS_EPS, RMS_MOMENTUM, RMS_DECAY };
enum { RMS_V = NEAP_OPTIMIZER_STATE, RMS_M, RMS_MEAN };
enum { RMS_W_OUT, RMS_V_OUT, RMS_M_OUT, RMS_MEAN_OUT };

static void run_rms_prop(const neap_call *call) {
  const neap_attr_value *a = call->attrs;
  const double param[NEAP_ROW_MAX_PARAM] = {[RATE] = neap_optimizer_scalar(call, LR),
                                            [DECAY] = a[RMS_DECAY].f,
                                            [SHARE] = a[RMS_ALPHA].f,
                                            [FRESH] = 1 - a[RMS_ALPHA].f,
                                            [EPS] = a[RMS_EPS].f,
                                            [MOMENTUM] = a[RMS_MOMENTUM].f};
  neap_elementwise_run_on(call, 5, (const int[]){W, G, RMS_V, RMS_M, RMS_MEAN}, 4,
                          (const int[]){RMS_W_OUT, RMS_V_OUT, RMS_M_OUT, RMS_MEAN_OUT},
                          rows_rms_prop, param);
}

static neap_status infer_rms_prop(neap_infer *c, neap_error *error) {
  bool has_m = c->n_in > RMS_M && c->in[RMS_M].dtype != NEAP_DTYPE_NONE;
  /* A momentum without a place to keep it would be none. */
  if (!has_m && c->attrs[RMS_MOMENTUM].f != 0)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, RMS_M, error,
                           "momentum = %g expects an input m to keep it in",
                           c->attrs[RMS_MOMENTUM].f);
  if (!has_m && c->n_in > RMS_MEAN)
    return neap_infer_fail(c, NEAP_ARGUMENT, RMS_MEAN, error, "mean expects m beside it");
  return neap_optimizer_infer(c, error);
}

static void cost_rms_prop(const neap_infer *c, neap_cost *cost) {
  cost->flops = 10.0 * (double)neap_shape_elems(&c->in[W].shape);
}

const neap_op neap_op_RmsProp = {
  .name = "RmsProp",
  .summary = "One step of RMSProp; centered where the mean of gradients is kept too.",
  .math = "v = alpha v + (1 - alpha) g^2; m = momentum m + g / (sqrt(v - mean^2) + eps); w -= lr m",
  .example = "net:RmsProp({\"w\", \"w.grad\", \"lr\", \"v\"}, {\"w\", \"v\"})",
  .source = "Hinton, lecture 6e, 2012; torch.optim.RMSprop",
  .inputs = {NEAP_OPTIMIZER_INPUTS, [RMS_V] = {"v", "mean square, 0 at first"},
             [RMS_M] = {"m", "momentum, 0 at first", .flags = NEAP_ARG_OPTIONAL},
             [RMS_MEAN] = {"mean", "mean, 0 at first, beside m: centered",
                           .flags = NEAP_ARG_OPTIONAL}},
  .outputs = {{"w", "next version of w"},
              {"v", "next version of v"},
              {"m", "next version of m", .flags = NEAP_ARG_OPTIONAL},
              {"mean", "next version of mean", .flags = NEAP_ARG_OPTIONAL}},
  .attrs = {[RMS_ALPHA] = {"alpha", "decay of v and mean", NEAP_ATTR_FLOAT, .value = {.f = 0.99},
                           .least = 0, .most = 1},
            [RMS_EPS] = NEAP_OPTIMIZER_EPS("added to the root", 1e-8),
            [RMS_MOMENTUM] = {"momentum", "share of the old momentum", NEAP_ATTR_FLOAT, .least = 0,
                              .most = 1},
            [RMS_DECAY] = NEAP_OPTIMIZER_DECAY},
  .enforced = {{W, RMS_W_OUT}, {RMS_V, RMS_V_OUT}, {RMS_M, RMS_M_OUT}, {RMS_MEAN, RMS_MEAN_OUT}},
  .n_enforced = 4,
  .effects = NEAP_EFFECT_COMMIT,
  .infer = infer_rms_prop,
  .cost = cost_rms_prop,
  .nan = NEAP_NAN_REACHES,
  .infinity = NEAP_INFINITY_VANISHES,
  .kernels = NEAP_REF(run_rms_prop, NEAP_FLOATS),
  .cases =
    "{ {w={3,5}, g={3,5}, lr={}, v={{3,5}, low=0, high=1}, grad=false}, {w={3,5}, g={3,5}, lr={}, "
    "v={{3,5}, low=1, high=2}, m={3,5}, mean={{3,5}, low=0, high=0.5}, momentum=0.9, "
    "weight_decay=0.1, grad=false} }",
};

/* ---- Adagrad --------------------------------------------------------------------------------- */

enum { GRAD_EPS, GRAD_LR_DECAY, GRAD_DECAY };
enum { GRAD_V = NEAP_OPTIMIZER_STATE, GRAD_STEPS };
enum { GRAD_W_OUT, GRAD_V_OUT, GRAD_T_OUT };

static void run_adagrad(const neap_call *call) {
  int64_t t = neap_optimizer_step(call, GRAD_STEPS);
  const double param[NEAP_ROW_MAX_PARAM] = {
    [RATE] = neap_optimizer_scalar(call, LR) / (1 + (double)(t - 1) * call->attrs[GRAD_LR_DECAY].f),
    [DECAY] = call->attrs[GRAD_DECAY].f,
    [EPS] = call->attrs[GRAD_EPS].f};
  neap_elementwise_run_on(call, 3, (const int[]){W, G, GRAD_V}, 2,
                          (const int[]){GRAD_W_OUT, GRAD_V_OUT}, rows_adagrad, param);
  *(int64_t *)call->out[GRAD_T_OUT].data = t;
}

static void cost_adagrad(const neap_infer *c, neap_cost *cost) {
  cost->flops = 8.0 * (double)neap_shape_elems(&c->in[W].shape);
}

const neap_op neap_op_Adagrad = {
  .name = "Adagrad",
  .summary = "One step of Adagrad.",
  .math = "v = v + g^2; w -= lr / (1 + t lr_decay) g / (sqrt(v) + eps)",
  .example = "net:Adagrad({\"w\", \"w.grad\", \"lr\", \"v\", \"t\"}, {\"w\", \"v\", \"t\"})",
  .source = "Duchi, Hazan and Singer, JMLR 2011; torch.optim.Adagrad",
  .inputs = {NEAP_OPTIMIZER_INPUTS, [GRAD_V] = {"v", "sum of squares"},
             [GRAD_STEPS] = {"t", "steps done, i64, one element", NEAP_BIT(I64)}},
  .outputs = {{"w", "next version of w"},
              {"v", "next version of v"},
              {"t", "next version of t", NEAP_BIT(I64)}},
  .attrs = {[GRAD_EPS] = NEAP_OPTIMIZER_EPS("added to the root", 1e-10),
            [GRAD_LR_DECAY] = {"lr_decay", "how fast the rate falls with the steps",
                               NEAP_ATTR_FLOAT, .least = 0, .most = 1e30},
            [GRAD_DECAY] = NEAP_OPTIMIZER_DECAY},
  .enforced = {{W, GRAD_W_OUT}, {GRAD_V, GRAD_V_OUT}, {GRAD_STEPS, GRAD_T_OUT}},
  .n_enforced = 3,
  .effects = NEAP_EFFECT_COMMIT,
  .infer = neap_optimizer_infer,
  .cost = cost_adagrad,
  .nan = NEAP_NAN_REACHES,
  .infinity = NEAP_INFINITY_VANISHES,
  .kernels = NEAP_REF(run_adagrad, NEAP_FLOATS),
  .cases =
    "{ {w={3,5}, g={3,5}, lr={}, v={{3,5}, low=0, high=1}, t={{}, dtype=\"i64\", low=0, high=9}, "
    "lr_decay=0.1, grad=false} }",
};

/* ---- Adadelta -------------------------------------------------------------------------------- */

enum { DELTA_RHO, DELTA_EPS, DELTA_DECAY };
enum { DELTA_V = NEAP_OPTIMIZER_STATE, DELTA_D };
enum { DELTA_W_OUT, DELTA_V_OUT, DELTA_D_OUT };

static void run_adadelta(const neap_call *call) {
  const double rho = call->attrs[DELTA_RHO].f;
  const double param[NEAP_ROW_MAX_PARAM] = {[RATE] = neap_optimizer_scalar(call, LR),
                                            [DECAY] = call->attrs[DELTA_DECAY].f,
                                            [SHARE] = rho,
                                            [FRESH] = 1 - rho,
                                            [EPS] = call->attrs[DELTA_EPS].f};
  neap_elementwise_run_on(call, 4, (const int[]){W, G, DELTA_V, DELTA_D}, 3,
                          (const int[]){DELTA_W_OUT, DELTA_V_OUT, DELTA_D_OUT}, rows_adadelta,
                          param);
}

static void cost_adadelta(const neap_infer *c, neap_cost *cost) {
  cost->flops = 14.0 * (double)neap_shape_elems(&c->in[W].shape);
}

const neap_op neap_op_Adadelta = {
  .name = "Adadelta",
  .summary = "One step of Adadelta.",
  .math =
    "v = rho v + (1-rho) g^2; s = sqrt(d + eps) / sqrt(v + eps) g; d = rho d + (1-rho) s^2; w -= "
    "lr s",
  .example = "net:Adadelta({\"w\", \"w.grad\", \"lr\", \"v\", \"d\"}, {\"w\", \"v\", \"d\"})",
  .source = "Zeiler 2012; torch.optim.Adadelta",
  .inputs = {NEAP_OPTIMIZER_INPUTS, [DELTA_V] = {"v", "mean square of gradients, 0 at first"},
             [DELTA_D] = {"d", "mean square of steps, 0 at first"}},
  .outputs = {{"w", "next version of w"}, {"v", "next version of v"}, {"d", "next version of d"}},
  .attrs = {[DELTA_RHO] = {"rho", "decay of v and d", NEAP_ATTR_FLOAT, .value = {.f = 0.9},
                           .least = 0, .most = 1},
            [DELTA_EPS] = NEAP_OPTIMIZER_EPS("added under the roots", 1e-6),
            [DELTA_DECAY] = NEAP_OPTIMIZER_DECAY},
  .enforced = {{W, DELTA_W_OUT}, {DELTA_V, DELTA_V_OUT}, {DELTA_D, DELTA_D_OUT}},
  .n_enforced = 3,
  .effects = NEAP_EFFECT_COMMIT,
  .infer = neap_optimizer_infer,
  .cost = cost_adadelta,
  .nan = NEAP_NAN_REACHES,
  .infinity = NEAP_INFINITY_VANISHES,
  .kernels = NEAP_REF(run_adadelta, NEAP_FLOATS),
  .cases =
    "{ {w={3,5}, g={3,5}, lr={}, v={{3,5}, low=0, high=1}, d={{3,5}, low=0, high=1}, "
    "weight_decay=0.1, grad=false} }",
};
