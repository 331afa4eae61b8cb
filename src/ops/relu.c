/* relu.c: Relu and its backward.
 *
 * The backward reads the output, not the input: so the forward may run in place, and the planner
 * needs to keep only one of the two. Both map zero to zero and work element by element, so they
 * take any layout, padding lanes included.
 *
 * `ref` comes first: it is as fast as oneDNN's kernels, which are for who forces that engine. All
 * keep a NaN of x. They differ in the backward where y = 0 and dy is no number: ref gives 0, dnnl,
 * which multiplies dy by 0, gives NaN.
 */
#include "math/vec.h"
#include "ops/dnnl.h"

/* Forward: a is x, out y. Backward: a is y, b dy, out dx. out may be the bytes of a or b. */
typedef struct job {
  const void *a, *b;
  void *out;
} job;

/* Lanes [begin, end) of the operands as they lie in memory. The backward takes 0 as the slope at 0,
 * and 1 at NaN. */
#define RELU(type, suffix)                                                                     \
  NEAP_MULTIVERSION static void forward_##suffix(void *context, int64_t begin, int64_t end) {  \
    const job *j = context;                                                                    \
    const type *x = j->a;                                                                      \
    type *y = j->out;                                                                          \
    for (int64_t i = begin; i < end; i++)                                                      \
      y[i] = x[i] <= 0 ? 0 : x[i]; /* keeps NaN; one comparison, no branch */                  \
  }                                                                                            \
  NEAP_MULTIVERSION static void backward_##suffix(void *context, int64_t begin, int64_t end) { \
    const job *j = context;                                                                    \
    const type *y = j->a, *dy = j->b;                                                          \
    type *dx = j->out;                                                                         \
    for (int64_t i = begin; i < end; i++) dx[i] = y[i] <= 0 ? 0 : dy[i];                       \
  }
RELU(float, f32)
RELU(double, f64)

static void run_forward(const neap_call *call) {
  job j = {call->in[0].data, NULL, call->out[0].data};
  neap_parallel_for(neap_operand_lanes(&call->in[0]), NEAP_GRAIN, call->n_thread,
                    call->in[0].type.dtype == NEAP_DTYPE_F64 ? forward_f64 : forward_f32, &j);
}

static void run_backward(const neap_call *call) {
  job j = {call->in[0].data, call->in[1].data, call->out[0].data};
  neap_parallel_for(neap_operand_lanes(&call->in[0]), NEAP_GRAIN, call->n_thread,
                    call->in[0].type.dtype == NEAP_DTYPE_F64 ? backward_f64 : backward_f32, &j);
}

/* One op, of y and dy; x is not among its operands, so nothing keeps x alive for it. */
static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  g->din[0] =
    neap_grad_emit1(g, "ReluGrad", 2, (neap_value_id[]){g->out[0], g->dout[0]}, NULL, NULL);
  return NEAP_OK;
}

NEAP_DNNL_ELEMENTWISE(forward, NEAP_ONEDNN_RELU)
NEAP_DNNL_ELEMENTWISE(backward, NEAP_ONEDNN_RELU_GRAD)

const neap_op neap_op_Relu = {
  .name = "Relu",
  .summary = "Rectified linear unit, element by element.",
  .math = "y = max(x, 0)",
  .example = "net:Relu(\"x\", \"y\")",
  .source = "Nair and Hinton, ICML 2010",
  .inputs = {{"x", "any shape"}},
  .outputs = {{"y", "shape of x"}},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .infer = neap_infer_like,
  .grad = grad,
  .kernels =
    (const neap_kernel[]){
      {.engine = NEAP_ENGINE_REF, .any_team = true, .any_layout = true, .run = run_forward},
      NEAP_DNNL_ELEMENTWISE_KERNEL(forward),
      {0}},
  .cases = "{ {x={2,3,7}}, {x={64,20,5,5}}, {x={0,4}}, {x={}} }",
};

const neap_op neap_op_ReluGrad = {
  .name = "ReluGrad",
  .summary = "Backward of Relu.",
  .math = "dx = y > 0 ? dy : 0",
  .internal = true,
  .inputs = {{"y", "output of the forward"}, {"dy", "its gradient"}},
  .outputs = {{"dx", "shape of y"}},
  .inplace = {{1, 0}, {0, 0}},
  .n_inplace = 2,
  .infer = neap_infer_like,
  .nan = NEAP_NAN_DECIDES,
  .special = "where y is NaN dy passes; dnnl multiplies an infinite dy by 0",
  .kernels =
    (const neap_kernel[]){
      {.engine = NEAP_ENGINE_REF, .any_team = true, .any_layout = true, .run = run_backward},
      NEAP_DNNL_ELEMENTWISE_KERNEL(backward),
      {0}},
  .cases = "{ {y={2,3,7}, dy={2,3,7}} }",
};
