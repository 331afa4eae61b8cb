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
#include "ops/dnnl.h"
#include "ops/elementwise.h"

/* Keeps NaN; one comparison, no branch. The backward takes 0 as the slope at 0, and 1 at NaN. */
NEAP_MAP1(Relu, x <= 0 ? 0 : x)
NEAP_MAP2_SAME(ReluGrad, x <= 0 ? 0 : y)

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
  .kernels = (const neap_kernel[]){{.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_FLOATS,
                                    .any_team = true,
                                    .any_layout = true,
                                    .run = run_Relu},
                                   NEAP_DNNL_ELEMENTWISE_KERNEL(forward, ),
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
  .special = "where y is NaN dy passes",
  .grad_formula = "d.dy = ReluGrad(y, d.dx)",
  .kernels =
    (const neap_kernel[]){{.engine = NEAP_ENGINE_REF,
                           .dtypes = NEAP_FLOATS,
                           .any_team = true,
                           .any_layout = true,
                           .run = run_ReluGrad},
                          NEAP_DNNL_ELEMENTWISE_KERNEL(backward, .infinity = NEAP_INFINITY_REACHES),
                          {0}},
  .cases = "{ {y={2,3,7}, dy={2,3,7}} }",
};
