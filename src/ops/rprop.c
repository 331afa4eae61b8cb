/* rprop.c: Rprop: each element has a rate of its own, which grows while its gradient keeps its sign
 * and shrinks when it turns; how large the gradient is doesn't matter. As PyTorch has it. */
#include "ops/optimizer.h"

enum { W = NEAP_OPTIMIZER_W, G = NEAP_OPTIMIZER_G, LR = NEAP_OPTIMIZER_LR };
enum { SIZE = NEAP_OPTIMIZER_STATE, BEFORE, STEPS };
enum { W_OUT, SIZE_OUT, BEFORE_OUT, T_OUT };
enum { SHRINK, GROW, LEAST, MOST }; /* attributes, and parameters of the rows */
enum { FIRST = MOST + 1, IS_FIRST };

#define NEAP_BODY "ops/rprop_body.h"
#include "math/each_float.h"
NEAP_ROW_TABLE(rprop, NEAP_ROWS_FLOATS(rprop))

/* At the first step the rate is lr. */
static void run(const neap_call *call) {
  int64_t t = neap_optimizer_step(call, STEPS);
  const neap_attr_value *a = call->attrs;
  const double param[NEAP_ROW_MAX_PARAM] = {[SHRINK] = a[SHRINK].f,
                                            [GROW] = a[GROW].f,
                                            [LEAST] = a[LEAST].f,
                                            [MOST] = a[MOST].f,
                                            [FIRST] = neap_optimizer_scalar(call, LR),
                                            [IS_FIRST] = t == 1};
  neap_elementwise_run_on(call, 4, (const int[]){W, G, SIZE, BEFORE}, 3,
                          (const int[]){W_OUT, SIZE_OUT, BEFORE_OUT}, rows_rprop, param);
  *(int64_t *)call->out[T_OUT].data = t;
}

static void cost(const neap_infer *c, neap_cost *cost) {
  cost->flops = 6.0 * (double)neap_shape_elems(&c->in[W].shape);
}

const neap_op neap_op_Rprop = {
  .name = "Rprop",
  .summary = "One step of Rprop, resilient backpropagation, for whole batches.",
  .math =
    "s *= g before > 0 ? grow : g before < 0 ? shrink : 1; w -= s sign(g), not where it turned",
  .example =
    "net:Rprop({\"w\", \"w.grad\", \"lr\", \"s\", \"before\", \"t\"}, {\"w\", \"s\", \"before\", "
    "\"t\"})",
  .source = "Riedmiller and Braun, ICNN 1993; torch.optim.Rprop",
  .inputs = {NEAP_OPTIMIZER_INPUTS, [SIZE] = {"s", "rates of the elements, 0 at first"},
             [BEFORE] = {"before", "the last gradient, 0 at first"},
             [STEPS] = {"t", "steps done, i64, one element", NEAP_BIT(I64)}},
  .outputs = {{"w", "next version of w"},
              {"s", "next version of s"},
              {"before", "next version of before"},
              {"t", "next version of t", NEAP_BIT(I64)}},
  .attrs = {[SHRINK] = {"shrink", "factor of a rate whose gradient has turned", NEAP_ATTR_FLOAT,
                        .value = {.f = 0.5}, .least = 0, .most = 1},
            [GROW] = {"grow", "factor of a rate whose gradient has not", NEAP_ATTR_FLOAT,
                      .value = {.f = 1.2}, .least = 1, .most = 1e30},
            [LEAST] = {"least", "smallest rate", NEAP_ATTR_FLOAT, .value = {.f = 1e-6}, .least = 0,
                       .most = 1e30},
            [MOST] = {"most", "largest rate", NEAP_ATTR_FLOAT, .value = {.f = 50}, .least = 0,
                      .most = 1e30}},
  .enforced = {{W, W_OUT}, {SIZE, SIZE_OUT}, {BEFORE, BEFORE_OUT}, {STEPS, T_OUT}},
  .n_enforced = 4,
  .effects = NEAP_EFFECT_COMMIT,
  .infer = neap_optimizer_infer,
  .cost = cost,
  .nan = NEAP_NAN_REACHES,
  .kernels = NEAP_REF(run, NEAP_FLOATS),
  .cases =
    "{ {w={3,5}, g={3,5}, lr={}, s={{3,5}, low=0.1, high=1}, before={3,5}, t={{}, dtype=\"i64\", "
    "low=1, high=9}, grad=false}, {w={4}, g={4}, lr={}, s={4}, before={{4}, low=0, high=0}, "
    "t={{}, dtype=\"i64\", low=0, high=0}, grad=false} }",
};
