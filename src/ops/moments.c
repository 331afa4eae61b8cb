/* moments.c: Adamax, Nadam, Radam and Lion: relatives of Adam, which is in adam.c. As PyTorch has
 * them; Lion as its authors have it. */
#include "ops/optimizer.h"

enum { W = NEAP_OPTIMIZER_W, G = NEAP_OPTIMIZER_G, LR = NEAP_OPTIMIZER_LR };
/* All but Lion: two moments and a count. */
enum { M = NEAP_OPTIMIZER_STATE, V, STEPS, PRODUCT };
enum { W_OUT, M_OUT, V_OUT, T_OUT, PRODUCT_OUT };
enum { BETA1, BETA2, EPS, WEIGHT_DECAY, MOMENTUM_DECAY };
/* The parameters of the rows: the shares of the old moments; eps; what is added of w to g; the
 * factors of m and of g in the step; sqrt(1 - beta2^t). */
enum { SHARE1, SHARE2, TINY, DECAY, OF_M, OF_G, CORRECTION, KEEP };

#define NEAP_BODY "ops/moments_body.h"
#include "math/each_float.h"
NEAP_ROW_TABLE(adamax, NEAP_ROWS_FLOATS(adamax))
NEAP_ROW_TABLE(nadam, NEAP_ROWS_FLOATS(nadam))
NEAP_ROW_TABLE(plain_radam, NEAP_ROWS_FLOATS(plain_radam))
NEAP_ROW_TABLE(lion, NEAP_ROWS_FLOATS(lion))

/* What all four are told alike; `of_m` and `of_g` by the op. */
static void run(const neap_call *call, const neap_row_loop *rows, double of_m, double of_g,
                double correction) {
  const double param[NEAP_ROW_MAX_PARAM] = {[SHARE1] = call->attrs[BETA1].f,
                                            [SHARE2] = call->attrs[BETA2].f,
                                            [TINY] = call->attrs[EPS].f,
                                            [DECAY] = call->attrs[WEIGHT_DECAY].f,
                                            [OF_M] = of_m,
                                            [OF_G] = of_g,
                                            [CORRECTION] = correction};
  neap_elementwise_run_on(call, 4, (const int[]){W, G, M, V}, 3, (const int[]){W_OUT, M_OUT, V_OUT},
                          rows, param);
}

/* The count is written when every thread has read it. */
static void count(const neap_call *call, int64_t t) { *(int64_t *)call->out[T_OUT].data = t; }

static void run_adamax(const neap_call *call) {
  int64_t t = neap_optimizer_step(call, STEPS);
  double lr = neap_optimizer_scalar(call, LR);
  run(call, rows_adamax, lr / (1 - pow(call->attrs[BETA1].f, (double)t)), 0, 1);
  count(call, t);
}

/* The momentum of a step grows with the steps, and m is corrected by the product of all so far
 * (Dozat 2016, as in PyTorch). */
static void run_nadam(const neap_call *call) {
  int64_t t = neap_optimizer_step(call, STEPS);
  const neap_attr_value *a = call->attrs;
  double lr = neap_optimizer_scalar(call, LR), decay = a[MOMENTUM_DECAY].f;
  double now = a[BETA1].f * (1 - 0.5 * pow(0.96, (double)t * decay));
  double next = a[BETA1].f * (1 - 0.5 * pow(0.96, (double)(t + 1) * decay));
  double product = neap_optimizer_scalar(call, PRODUCT) * now;
  run(call, rows_nadam, lr * next / (1 - product * next), lr * (1 - now) / (1 - product),
      sqrt(1 - pow(a[BETA2].f, (double)t)));
  neap_element_set(call->out[PRODUCT_OUT].type.dtype, call->out[PRODUCT_OUT].data, 0, product);
  count(call, t);
}

/* While too few gradients have been seen for their variance to mean anything, the step is m alone
 * (Liu et al., section 4). */
static void run_radam(const neap_call *call) {
  int64_t t = neap_optimizer_step(call, STEPS);
  double beta2 = call->attrs[BETA2].f, power = pow(beta2, (double)t);
  double lr = neap_optimizer_scalar(call, LR) / (1 - pow(call->attrs[BETA1].f, (double)t));
  /* `length`: of about how many gradients v is the average by now; `most`: after ever so many
   * steps. */
  double most = 2 / (1 - beta2) - 1, length = most - 2 * (double)t * power / (1 - power);
  if (length > 5) {
    double rectified =
      sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length));
    /* The correction of v's root stands above the line, so that eps is added to the plain root, as
     * PyTorch does. */
    run(call, rows_nadam, lr * rectified * sqrt(1 - power), 0, 1);
  } else {
    run(call, rows_plain_radam, lr, 0, 1);
  }
  count(call, t);
}

static void cost(const neap_infer *c, neap_cost *cost) {
  cost->flops = 14.0 * (double)neap_shape_elems(&c->in[W].shape);
}

#define MOMENT_INPUTS                                              \
  NEAP_OPTIMIZER_INPUTS, [M] = {"m", "first moment, 0 at first"},  \
                         [V] = {"v", "second moment, 0 at first"}, \
                         [STEPS] = {"t", "steps done, i64, one element", NEAP_BIT(I64)}
#define MOMENT_OUTPUTS                                                        \
  [W_OUT] = {"w", "next version of w"}, [M_OUT] = {"m", "next version of m"}, \
  [V_OUT] = {"v", "next version of v"}, [T_OUT] = {"t", "next version of t", NEAP_BIT(I64)}
#define BETA(name, text, otherwise) \
  { name, text, NEAP_ATTR_FLOAT, .value = {.f = otherwise}, .least = 0, .most = 0.999999 }
#define MOMENT_ATTRS                                                                        \
  [BETA1] = BETA("beta1", "decay of m", 0.9), [BETA2] = BETA("beta2", "decay of v", 0.999), \
  [EPS] = NEAP_OPTIMIZER_EPS("keeps the quotient finite", 1e-8),                            \
  [WEIGHT_DECAY] = NEAP_OPTIMIZER_DECAY
#define MOMENT_CASES                                                                        \
  "{ {w={3,5}, g={3,5}, lr={}, m={3,5}, v={{3,5}, low=0.1, high=1}, t={{}, dtype=\"i64\", " \
  "low=0, high=9}, grad=false}, {w={4}, g={4}, lr={}, m={4}, v={{4}, low=0.1, high=1}, "    \
  "t={{}, dtype=\"i64\", low=1, high=2}, weight_decay=0.1, grad=false} }"

const neap_op neap_op_Adamax = {
  .name = "Adamax",
  .summary = "One step of Adamax: Adam by the largest gradient, in place of the mean square.",
  .math = "m = b1 m + (1-b1) g; v = max(b2 v, |g| + eps); w -= lr / (1-b1^t) m / v",
  .example =
    "net:Adamax({\"w\", \"w.grad\", \"lr\", \"m\", \"v\", \"t\"}, {\"w\", \"m\", \"v\", \"t\"})",
  .source = "Kingma and Ba, ICLR 2015; torch.optim.Adamax",
  .inputs = {MOMENT_INPUTS},
  .outputs = {MOMENT_OUTPUTS},
  .attrs = {MOMENT_ATTRS},
  .enforced = {{W, W_OUT}, {M, M_OUT}, {V, V_OUT}, {STEPS, T_OUT}},
  .n_enforced = 4,
  .effects = NEAP_EFFECT_COMMIT,
  .infer = neap_optimizer_infer,
  .cost = cost,
  .nan = NEAP_NAN_REACHES,
  .infinity = NEAP_INFINITY_VANISHES,
  .kernels = NEAP_REF(run_adamax, NEAP_FLOATS),
  .cases = MOMENT_CASES,
};

const neap_op neap_op_Nadam = {
  .name = "Nadam",
  .summary = "One step of NAdam: Adam with Nesterov's momentum.",
  .math =
    "u = b1 (1 - 0.96^(t decay) / 2); w -= lr ((1-u) g / (1-p u) + u' m / (1-p u u')) / (sqrt(v / "
    "(1-b2^t)) + eps)",
  .example =
    "net:Nadam({\"w\", \"w.grad\", \"lr\", \"m\", \"v\", \"t\", \"p\"}, {\"w\", \"m\", \"v\", "
    "\"t\", \"p\"})",
  .source = "Dozat 2016; torch.optim.NAdam",
  .inputs = {MOMENT_INPUTS, [PRODUCT] = {"p",
                                         "product of the momenta, f64, one element, 1 at first",
                                         NEAP_BIT(F64)}},
  .outputs = {MOMENT_OUTPUTS, [PRODUCT_OUT] = {"p", "next version of p", NEAP_BIT(F64)}},
  .attrs = {MOMENT_ATTRS, [MOMENTUM_DECAY] = {"momentum_decay",
                                              "how fast the momentum grows with the steps",
                                              NEAP_ATTR_FLOAT, .value = {.f = 0.004}, .least = 0,
                                              .most = 1e30}},
  .enforced = {{W, W_OUT}, {M, M_OUT}, {V, V_OUT}, {STEPS, T_OUT}, {PRODUCT, PRODUCT_OUT}},
  .n_enforced = 5,
  .effects = NEAP_EFFECT_COMMIT,
  .infer = neap_optimizer_infer,
  .cost = cost,
  .nan = NEAP_NAN_REACHES,
  .infinity = NEAP_INFINITY_VANISHES,
  .kernels = NEAP_REF(run_nadam, NEAP_FLOATS),
  .cases =
    "{ {w={3,5}, g={3,5}, lr={}, m={3,5}, v={{3,5}, low=0.1, high=1}, t={{}, dtype=\"i64\", "
    "low=0, high=9}, p={{}, low=0.5, high=0.6}, grad=false} }",
};

const neap_op neap_op_Radam = {
  .name = "Radam",
  .summary = "One step of RAdam: Adam that waits until the variance of gradients is known.",
  .math = "w -= lr r m / (1-b1^t) sqrt(1-b2^t) / (sqrt(v) + eps), r by the steps; at first no v",
  .example =
    "net:Radam({\"w\", \"w.grad\", \"lr\", \"m\", \"v\", \"t\"}, {\"w\", \"m\", \"v\", \"t\"})",
  .source = "Liu et al., ICLR 2020; torch.optim.RAdam",
  .inputs = {MOMENT_INPUTS},
  .outputs = {MOMENT_OUTPUTS},
  .attrs = {MOMENT_ATTRS},
  .enforced = {{W, W_OUT}, {M, M_OUT}, {V, V_OUT}, {STEPS, T_OUT}},
  .n_enforced = 4,
  .effects = NEAP_EFFECT_COMMIT,
  .infer = neap_optimizer_infer,
  .cost = cost,
  .nan = NEAP_NAN_REACHES,
  .infinity = NEAP_INFINITY_VANISHES,
  .kernels = NEAP_REF(run_radam, NEAP_FLOATS),
  .cases = MOMENT_CASES,
};

/* ---- Lion ------------------------------------------------------------------------------------ */

enum { LION_DECAY = 2 };

static void run_lion(const neap_call *call) {
  double lr = neap_optimizer_scalar(call, LR);
  const double param[NEAP_ROW_MAX_PARAM] = {[SHARE1] = call->attrs[BETA1].f,
                                            [SHARE2] = call->attrs[BETA2].f,
                                            [OF_M] = lr,
                                            [KEEP] = 1 - lr * call->attrs[LION_DECAY].f};
  neap_elementwise_run_on(call, 3, (const int[]){W, G, M}, 2, (const int[]){W_OUT, M_OUT},
                          rows_lion, param);
}

const neap_op neap_op_Lion = {
  .name = "Lion",
  .summary = "One step of Lion: the sign of a mean of gradients, times the rate.",
  .math = "w = (1 - lr decay) w - lr sign(b1 m + (1-b1) g); m = b2 m + (1-b2) g",
  .example = "net:Lion({\"w\", \"w.grad\", \"lr\", \"m\"}, {\"w\", \"m\"})",
  .source = "Chen et al., NeurIPS 2023",
  .inputs = {NEAP_OPTIMIZER_INPUTS, [M] = {"m", "momentum, 0 at first"}},
  .outputs = {{"w", "next version of w"}, {"m", "next version of m"}},
  .attrs = {[BETA1] = BETA("beta1", "share of m in the step", 0.9),
            [BETA2] = BETA("beta2", "decay of m", 0.99),
            [LION_DECAY] = {"weight_decay", "times lr w, taken from w", NEAP_ATTR_FLOAT, .least = 0,
                            .most = 1e30}},
  .enforced = {{W, W_OUT}, {M, M_OUT}},
  .n_enforced = 2,
  .effects = NEAP_EFFECT_COMMIT,
  .infer = neap_optimizer_infer,
  .cost = cost,
  .nan = NEAP_NAN_REACHES,
  .kernels = NEAP_REF(run_lion, NEAP_FLOATS),
  .cases = "{ {w={3,5}, g={3,5}, lr={}, m={3,5}, weight_decay=0.1, grad=false} }",
};
