/* running_average.c: RunningAverage, the exponential average of a statistic over steps: what
 * BatchNorm keeps for inference.
 *
 * An op of its own, after all that may fault, so that a step that fails leaves the statistics as
 * they were. */
#include "math/vec.h"
#include "ops/op.h"

enum { MOMENTUM, FACTOR };

/* Elements [begin, end). Each is read before it is written at the same place, so `out` may be
 * `running`. */
#define AVERAGE(suffix, T)                                                                    \
  NEAP_MULTIVERSION static void average_##suffix(void *context, int64_t begin, int64_t end) { \
    const neap_call *c = context;                                                             \
    const T keep = (T)(1 - c->attrs[MOMENTUM].f),                                             \
            take = (T)(c->attrs[MOMENTUM].f * c->attrs[FACTOR].f);                            \
    const T *running = c->in[0].data, *batch = c->in[1].data;                                 \
    T *out = c->out[0].data;                                                                  \
    _Pragma("GCC ivdep") for (int64_t i = begin; i < end; i++) out[i] =                       \
      keep * running[i] + take * batch[i];                                                    \
  }
AVERAGE(f32, float)
AVERAGE(f64, double)

static void run(const neap_call *call) {
  neap_call job = *call;
  neap_parallel_for(neap_shape_elems(&call->in[0].type.shape), NEAP_GRAIN, call->n_thread,
                    call->in[0].type.dtype == NEAP_DTYPE_F64 ? average_f64 : average_f32, &job);
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
  .kernels =
    (const neap_kernel[]){
      {.engine = NEAP_ENGINE_REF, .dtypes = NEAP_WIDE, .any_team = true, .run = run}, {0}},
  .cases =
    "{ {running={7}, batch={7}, grad=false}, {running={7}, batch={7}, momentum=0.3, factor=1.25, "
    "grad=false} }",
};
