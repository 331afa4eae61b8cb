/* sgd.c: Sgd: one step of stochastic gradient descent, with momentum, Nesterov's variant and weight
 * decay, as PyTorch has it.
 *
 * The parameter and its momentum are resident: the outputs are their next versions, in the same
 * storage. The learning rate is a tensor, so that a schedule changes it without a new plan.
 *
 * The momentum starts at 0. PyTorch's starts at the first gradient, whole, whatever the dampening;
 * without dampening that is the same. With it, a count of steps as input t (an i64, counted by the
 * op, so that a checkpoint knows) makes step 0 the one without dampening; an Sgd without t dampens
 * every step.
 *
 * With `rate_inside` the momentum holds steps, rates included, as Caffe has it: a change of the
 * rate changes what is added to it, not what is in it.
 */
#include "ops/optimizer.h"

enum { MOMENTUM, NESTEROV, WEIGHT_DECAY, DAMPENING, RATE_INSIDE };
/* Inputs. Without M it is plain descent; without STEPS no steps are counted. */
enum { W, G, LR, M = NEAP_OPTIMIZER_STATE, STEPS };
enum { W_OUT, M_OUT, STEPS_OUT };

/* The first step is not dampened where steps are counted. */
static double dampening_of(const neap_call *call) {
  bool is_first = neap_optimizer_has(call, STEPS) && *(const int64_t *)call->in[STEPS].data == 0;
  return is_first ? 0 : call->attrs[DAMPENING].f;
}

enum { RATE, DECAY, SHARE, FRESH, OWN, OF_M }; /* the parameters of the rows */

#define NEAP_BODY "ops/sgd_body.h"
#include "math/each_float.h"
NEAP_ROW_TABLE(step, NEAP_ROWS_FLOATS(step))
NEAP_ROW_TABLE(plain_step, NEAP_ROWS_FLOATS(plain_step))

/* The count is written when every thread has read it. */
static void run(const neap_call *call) {
  bool has_m = neap_optimizer_has(call, M);
  bool looks_ahead = call->attrs[NESTEROV].i != 0;
  double momentum = call->attrs[MOMENTUM].f, lr = neap_optimizer_scalar(call, LR);
  bool inside = call->attrs[RATE_INSIDE].i != 0;
  double rate = inside ? 1 : lr, share = inside ? lr : 1;
  /* Of Nesterov's step the gradient is one part and the new momentum the other. */
  const double param[NEAP_ROW_MAX_PARAM] = {[RATE] = rate,
                                            [DECAY] = call->attrs[WEIGHT_DECAY].f,
                                            [SHARE] = momentum,
                                            [FRESH] = share * (1 - dampening_of(call)),
                                            [OWN] = looks_ahead ? share : 0,
                                            [OF_M] = looks_ahead ? momentum : 1};
  neap_elementwise_run_on(call, has_m ? 3 : 2, (const int[]){W, G, M}, has_m ? 2 : 1,
                          (const int[]){W_OUT, M_OUT}, has_m ? rows_step : rows_plain_step, param);
  if (neap_optimizer_has(call, STEPS))
    *(int64_t *)call->out[STEPS_OUT].data = neap_optimizer_step(call, STEPS);
}

/* Momentum and count come in and go out together; Nesterov's variant is defined without dampening
 * alone, as in PyTorch. */
static neap_status infer(neap_infer *c, neap_error *error) {
  bool has_m = c->n_in > M && c->in[M].dtype != NEAP_DTYPE_NONE,
       has_t = c->n_in > STEPS && c->in[STEPS].dtype != NEAP_DTYPE_NONE;
  /* A momentum without a place to keep it would be none. */
  if (!has_m && c->attrs[MOMENTUM].f != 0)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, M, error,
                           "momentum = %g expects an input m to keep it in", c->attrs[MOMENTUM].f);
  /* The op writes them in place, so that each goes in and comes out. */
  if (has_m != (c->n_out > M_OUT) || has_t != (c->n_out > STEPS_OUT))
    return neap_infer_fail(c, NEAP_ARGUMENT, M, error,
                           "m and t are outputs when they are inputs, and only then");
  if (has_t && !has_m)
    return neap_infer_fail(c, NEAP_ARGUMENT, STEPS, error, "t expects m beside it");
  if (c->attrs[NESTEROV].i != 0 && (c->attrs[MOMENTUM].f == 0 || c->attrs[DAMPENING].f != 0))
    return neap_infer_fail(c, NEAP_ATTRIBUTE, M, error,
                           "nesterov expects a momentum and no dampening");
  if (c->attrs[RATE_INSIDE].i != 0 && !has_m)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, M, error, "rate_inside expects an input m");
  return neap_optimizer_infer(c, error);
}

/* Per element: the decay and the step, and the momentum where there is one. */
static void cost(const neap_infer *c, neap_cost *cost) {
  cost->flops = (c->n_out > 1 ? 6.0 : 4.0) * (double)neap_shape_elems(&c->in[W].shape);
}

const neap_op neap_op_Sgd = {
  .name = "Sgd",
  .summary = "One step of stochastic gradient descent.",
  .math =
    "d = g + weight_decay w; m = momentum m + (1 - dampening) d; w = w - lr (nesterov ? d + "
    "momentum m : m); with rate_inside m = momentum m + lr (1 - dampening) d; w = w - (nesterov ? "
    "lr d + momentum m : m)",
  .example = "net:Sgd({\"w\", \"w.grad\", \"lr\", \"m\"}, {\"w\", \"m\"}, {momentum = 0.9})",
  .source = "Sutskever et al., ICML 2013; torch.optim.SGD; Caffe SGDSolver, NesterovSolver",
  .inputs = {NEAP_OPTIMIZER_INPUTS, [M] = {"m", "momentum, 0 at first", .flags = NEAP_ARG_OPTIONAL},
             [STEPS] = {"t", "steps so far, 0 at first: step 0 is not dampened, as in PyTorch",
                        NEAP_BIT(I64), NEAP_ARG_OPTIONAL}},
  .outputs = {{"w", "next version of w"},
              {"m", "next version of m", .flags = NEAP_ARG_OPTIONAL},
              {"t", "next version of t", NEAP_BIT(I64), NEAP_ARG_OPTIONAL}},
  .attrs = {[MOMENTUM] = {"momentum", "share of the old momentum", NEAP_ATTR_FLOAT, .least = 0,
                          .most = 1},
            [NESTEROV] = {"nesterov", "look ahead", NEAP_ATTR_BOOL},
            [WEIGHT_DECAY] = NEAP_OPTIMIZER_DECAY,
            [DAMPENING] = {"dampening", "share of the gradient that m leaves out", NEAP_ATTR_FLOAT,
                           .least = 0, .most = 1},
            [RATE_INSIDE] = {"rate_inside", "the rate is in the momentum, as in Caffe",
                             NEAP_ATTR_BOOL}},
  .enforced = {{W, W_OUT}, {M, M_OUT}, {STEPS, STEPS_OUT}},
  .n_enforced = 3,
  .effects = NEAP_EFFECT_COMMIT,
  .infer = infer,
  .cost = cost,
  .nan = NEAP_NAN_REACHES,
  .kernels = NEAP_REF(run, NEAP_FLOATS),
  .cases =
    "{ {w={3,5}, g={3,5}, lr={}, grad=false}, "
    "{w={3,5}, g={3,5}, lr={}, m={3,5}, momentum=0.9, weight_decay=0.01, grad=false}, "
    "{w={3,5}, g={3,5}, lr={}, m={3,5}, t={{}, low=0, high=3}, momentum=0.9, dampening=0.3, "
    "grad=false}, "
    "{w={3,5}, g={3,5}, lr={}, m={3,5}, momentum=0.9, nesterov=true, rate_inside=true, "
    "grad=false} }",
};
