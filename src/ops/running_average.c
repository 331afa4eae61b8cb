/* running_average.c: RunningAverage, the exponential average of a statistic over steps: what
 * BatchNorm keeps for inference.
 *
 * An op of its own, after all that may fault, so that a step that fails leaves the statistics as
 * they were. */
#include "ops/elementwise.h"

enum { MOMENTUM, FACTOR };

enum { KEEP, TAKE };
NEAP_ROW_FLOATS(2, map2_same, average, p[KEEP] * x + p[TAKE] * y)
NEAP_ROW_TABLE(average, NEAP_ROWS_FLOATS(average))

static void run(const neap_call *call) {
  double momentum = call->attrs[MOMENTUM].f;
  const double param[NEAP_ROW_MAX_PARAM] = {
    [KEEP] = 1 - momentum, [TAKE] = momentum * call->attrs[FACTOR].f};
  neap_elementwise_run_param(call, 2, rows_average, param);
}

const neap_op neap_op_RunningAverage = {
  .name = "RunningAverage",
  .summary =
    "Exponential average of a statistic over steps. No gradient goes through it: it is a constant "
    "of the step.",
  .math = "running = (1 - momentum) running + momentum factor batch",
  .example =
    "net:RunningAverage({\"running_var\", \"batch_var\"}, \"running_var\", {factor = n / (n - 1)})",
  .source = "Ioffe and Szegedy, ICML 2015, section 3.1",
  .inputs = {{"running", "the average so far"}, {"batch", "this step's statistic"}},
  .outputs = {{"running", "its next version"}},
  .attrs = {[MOMENTUM] = {"momentum", "share of this step", NEAP_ATTR_FLOAT, .value = {.f = 0.1},
                          .least = 0, .most = 1},
            [FACTOR] = {"factor", "of this step; n / (n - 1) makes a variance unbiased",
                        NEAP_ATTR_FLOAT, .value = {.f = 1}}},
  .enforced = {{0, 0}},
  .n_enforced = 1,
  .effects = NEAP_EFFECT_COMMIT,
  .infer = neap_infer_like,
  .no_grad = true,
  .kernels = NEAP_REF(run, NEAP_FLOATS),
  .cases =
    "{ {running={7}, batch={7}, grad=false}, {running={7}, batch={7}, momentum=0.3, factor=1.25, "
    "grad=false} }",
};
