/* add_n.c: AddN, the sum of any number of tensors of one shape; what the gradient sums fan-out
 * with.
 *
 * Any input may give its bytes to the output: a block is summed aside and stored when all inputs
 * have been read. `ref` comes first: it is as fast as oneDNN's kernel, which is for who forces that
 * engine and takes two to NEAP_ONEDNN_MAX_IN inputs. */
#include "ops/dnnl.h"
#include "ops/elementwise.h"

enum { BLOCK = 1024 };

/* Integers wrap around, computed on U. */
#define U T
#define NEAP_BODY "ops/add_n_body.h"
#include "math/each_float.h"
#undef U
#define U uint64_t
#define NEAP_BODY "ops/add_n_body.h"
#include "math/each_integer.h"
#undef U

/* bf16 and f16, tile by tile: summed in f32 and rounded once. */
static void add_half(void *context, int64_t begin, int64_t end) {
  const neap_call *call = context;
  const neap_operand *y = &call->out[0];
  float sum[NEAP_TILE], tile[NEAP_TILE];
  for (int64_t at = begin; at < end; at += NEAP_TILE) {
    int64_t n = NEAP_MIN(NEAP_TILE, end - at);
    memset(sum, 0, sizeof sum);
    /* y may be an input: its tile is read before anything is written there. */
    for (int k = 0; k < call->n_in; k++) {
      const float *x = neap_tile_load(&call->in[k], at, n, tile);
      for (int64_t i = 0; i < n; i++) sum[i] = k == 0 ? x[i] : sum[i] + x[i];
    }
    neap_cast(y->type.dtype, neap_element_at(y, at), NEAP_DTYPE_F32, sum, n);
  }
}

static void run(const neap_call *call) {
  static void (*const loops[NEAP_N_DTYPE])(void *, int64_t, int64_t) = {
    NEAP_ROWS_FLOATS(add), [NEAP_DTYPE_BF16] = add_half, [NEAP_DTYPE_F16] = add_half,
    NEAP_ROWS_INTEGERS(add)};
  neap_call job = *call;
  neap_parallel_for(neap_operand_lanes(&call->out[0]), NEAP_GRAIN, call->n_thread,
                    loops[call->in[0].type.dtype], &job);
}

static void cost(const neap_infer *c, neap_cost *cost) {
  cost->flops = (double)(c->n_in - 1) * (double)neap_shape_elems(&c->in[0].shape);
}

static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  for (int i = 0; i < g->n_in; i++)
    if (g->want[i]) g->din[i] = g->dout[0];
  return NEAP_OK;
}

NEAP_DNNL_ELEMENTWISE(sum, NEAP_ONEDNN_ADD)

const neap_op neap_op_AddN = {
  .name = "AddN",
  .summary = "Sum of any number of tensors of one shape.",
  .math = "y = x_1 + ... + x_n",
  .example = "net:AddN({\"a\", \"b\", \"c\"}, \"y\")",
  .source = "ONNX Sum-13, without broadcasting",
  .inputs = {{"x", "any shape, all the same", NEAP_NUMBERS, NEAP_ARG_VARIADIC}},
  .outputs = {{"y", "shape of x", NEAP_NUMBERS}},
  .inplace_any_input = true,
  .infer = neap_infer_like,
  .cost = cost,
  .grad = grad,
  .kernels = (const neap_kernel[]){{.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_NUMBERS,
                                    .any_team = true,
                                    .any_layout = true,
                                    .run = run},
                                   NEAP_DNNL_ELEMENTWISE_KERNEL(sum, ),
                                   {0}},
  .cases =
    "{ {x={2,3,7}}, {x={ {2,20,3}, {2,20,3}, {2,20,3} }}, {x={ {}, {} }}, {x={ {0,4}, {0,4} }} }",
};
