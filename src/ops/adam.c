/* adam.c: Adam: one step of Adam or, with `decoupled`, of AdamW, as PyTorch has them. With an input
 * v_max it divides by the largest second moment so far (AMSGrad). */
#include "ops/optimizer.h"

enum { BETA1, BETA2, EPS, WEIGHT_DECAY, DECOUPLED, EPS_HAT };
enum { W, G, LR, M, V, STEPS, V_MAX };
enum { W_OUT, M_OUT, V_OUT, T_OUT, V_MAX_OUT };

/* What a step needs besides the tensors, computed once, in double: lr / (1 - beta1^t);
 * sqrt(1 - beta2^t); w's factor; the factor of w that is added to g; what is added to the corrected
 * root. */
enum { SIZE, CORRECTION, KEEP, DECAY, ADDED };

#define NEAP_BODY "ops/adam_body.h"
#include "math/each_float.h"
NEAP_ROW_TABLE(step, NEAP_ROWS_FLOATS(step))

/* t counts this step too, from 1. Both corrections are the same for all elements. */
static void run(const neap_call *call) {
  int64_t t = neap_optimizer_step(call, STEPS);
  double lr = neap_optimizer_scalar(call, LR), decay = call->attrs[WEIGHT_DECAY].f;
  /* AdamW takes the decay off the parameter, Adam adds it to the gradient. */
  bool decoupled = call->attrs[DECOUPLED].i != 0, has_max = neap_optimizer_has(call, V_MAX);
  double correction = sqrt(1 - pow(call->attrs[BETA2].f, (double)t));
  const double param[NEAP_ROW_MAX_PARAM] = {
    [SIZE] = lr / (1 - pow(call->attrs[BETA1].f, (double)t)),
    [CORRECTION] = correction,
    [KEEP] = decoupled ? 1 - lr * decay : 1,
    [DECAY] = decoupled ? 0 : decay,
    /* eps, or what it comes to where it is added to the root before that is corrected. */
    [ADDED] = call->attrs[EPS].f / (call->attrs[EPS_HAT].i != 0 ? correction : 1)};
  /* The rows see neither lr nor t. */
  neap_elementwise_run_on(call, has_max ? 5 : 4, (const int[]){W, G, M, V, V_MAX}, has_max ? 4 : 3,
                          (const int[]){W_OUT, M_OUT, V_OUT, V_MAX_OUT}, rows_step, param);
  *(int64_t *)call->out[T_OUT].data = t;
}

static void cost(const neap_infer *c, neap_cost *cost) {
  cost->flops = 14.0 * (double)neap_shape_elems(&c->in[W].shape);
}

const neap_op neap_op_Adam = {
  .name = "Adam",
  .summary = "One step of Adam, or of AdamW with `decoupled`.",
  .math =
    "t = t + 1; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; w = w - lr (m / (1-b1^t)) / (sqrt(v / "
    "(1-b2^t)) + eps)",
  .example =
    "net:Adam({\"w\", \"w.grad\", \"lr\", \"m\", \"v\", \"t\"}, {\"w\", \"m\", \"v\", \"t\"})",
  .source = "Kingma and Ba, ICLR 2015; Loshchilov and Hutter, ICLR 2019; Reddi et al., ICLR 2018",
  .inputs = {[W] = {"w", "parameter"},
             [G] = {"g", "its gradient"},
             [LR] = {"lr", "learning rate, one element"},
             [M] = {"m", "first moment, 0 at first"},
             [V] = {"v", "second moment, 0 at first"},
             [STEPS] = {"t", "steps done, i64, one element", NEAP_BIT(I64)},
             [V_MAX] = {"v_max", "largest second moment, 0 at first: AMSGrad",
                        .flags = NEAP_ARG_OPTIONAL}},
  .outputs = {[W_OUT] = {"w", "next version of w"},
              [M_OUT] = {"m", "next version of m"},
              [V_OUT] = {"v", "next version of v"},
              [T_OUT] = {"t", "next version of t", NEAP_BIT(I64)},
              [V_MAX_OUT] = {"v_max", "next version of v_max", .flags = NEAP_ARG_OPTIONAL}},
  .attrs = {[BETA1] = {"beta1", "decay of m", NEAP_ATTR_FLOAT, .value = {.f = 0.9}, .least = 0,
                       .most = 0.999999},
            [BETA2] = {"beta2", "decay of v", NEAP_ATTR_FLOAT, .value = {.f = 0.999}, .least = 0,
                       .most = 0.999999},
            [EPS] = {"eps", "added to the root of v", NEAP_ATTR_FLOAT, .value = {.f = 1e-8},
                     .least = 0, .most = 1},
            [WEIGHT_DECAY] = {"weight_decay", "times w, added to the gradient", NEAP_ATTR_FLOAT,
                              .least = 0, .most = 1e30},
            [DECOUPLED] = {"decoupled", "decay w by lr weight_decay instead (AdamW)",
                           NEAP_ATTR_BOOL},
            [EPS_HAT] = {"eps_hat",
                         "add eps to sqrt(v), before it is corrected: the paper's second form, "
                         "and Caffe's",
                         NEAP_ATTR_BOOL}},
  .enforced = {{W, W_OUT}, {M, M_OUT}, {V, V_OUT}, {STEPS, T_OUT}, {V_MAX, V_MAX_OUT}},
  .n_enforced = 5,
  .effects = NEAP_EFFECT_COMMIT,
  .infer = neap_optimizer_infer,
  .cost = cost,
  .nan = NEAP_NAN_REACHES,
  .infinity = NEAP_INFINITY_VANISHES,
  .kernels = NEAP_REF(run, NEAP_FLOATS),
  .cases =
    "{ {w={3,5}, g={3,5}, lr={}, m={3,5}, v={{3,5}, low=0, high=1}, t={{}, dtype=\"i64\", low=0, "
    "high=9}, grad=false}, {w={3,5}, g={3,5}, lr={}, m={3,5}, v={{3,5}, low=0, high=1}, t={{}, "
    "dtype=\"i64\", low=0, high=9}, v_max={{3,5}, low=0, high=1}, grad=false} }",
};
