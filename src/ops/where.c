/* where.c: Where, the choice between two tensors by a third, with broadcasting. Movement only: it
 * goes by the size of the elements, so that it takes every dtype. */
#include "ops/elementwise.h"

#define NEAP_BODY "ops/where_body.h"
#include "math/each_integer.h"

/* f32 and f64 are moved as integers of their width, bf16 and f16 as well, and bool as a byte. */
static void run(const neap_call *call) {
  static const neap_row_loop rows[NEAP_N_DTYPE] = {
    [NEAP_DTYPE_F32] = choose_i32, [NEAP_DTYPE_F64] = choose_i64, [NEAP_DTYPE_BF16] = choose_u16,
    [NEAP_DTYPE_F16] = choose_u16, [NEAP_DTYPE_BOOL] = choose_u8, NEAP_ROWS_INTEGERS(choose)};
  neap_elementwise_move(call, 3, rows[call->in[1].type.dtype]);
}

/* y has the broadcast shape of all three and the dtype that a and b share. */
static neap_status infer(neap_infer *c, neap_error *error) {
  if (c->in[1].dtype != c->in[2].dtype)
    return neap_infer_fail(c, NEAP_DTYPE, 2, error, "b expects dtype %s, as a has, got %s",
                           neap_dtype_name(c->in[1].dtype), neap_dtype_name(c->in[2].dtype));
  NEAP_TRY(neap_elementwise_infer_shape(c, error));
  c->out[0].dtype = c->in[1].dtype;
  return NEAP_OK;
}

/* The branch not taken gets a zero, broadcast from a scalar. */
static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  if (!g->want[1] && !g->want[2]) return NEAP_OK;
  neap_value_id zero =
    neap_grad_emit1(g, "Constant", 0, NULL, NULL,
                    (neap_set[]){NEAP_SET_INT("dtype", neap_grad_type(g, g->dout[0]).dtype), {0}});
  for (int i = 1; i <= 2; i++)
    if (g->want[i]) {
      neap_value_id a = i == 1 ? g->dout[0] : zero, b = i == 1 ? zero : g->dout[0];
      neap_value_id din =
        neap_grad_emit1(g, "Where", 3, (neap_value_id[]){g->in[0], a, b}, NULL, NULL);
      g->din[i] = neap_grad_reduce_to(g, din, g->in[i]);
    }
  return NEAP_OK;
}

const neap_op neap_op_Where = {
  .name = "Where",
  .summary =
    "Elements of one tensor where a condition holds, of another where it does not, with "
    "broadcasting.",
  .math = "y = c ? a : b",
  .example = "net:Where({\"c\", \"a\", \"b\"}, \"y\")",
  .source = "ONNX Where-16",
  .inputs = {{"c", "condition, bool", NEAP_BIT(BOOL)},
             {"a", "taken where c", NEAP_ANY},
             {"b", "taken elsewhere", NEAP_ANY}},
  .outputs = {{"y", "broadcast shape", NEAP_ANY}},
  .inplace = {{1, 0}, {2, 0}},
  .n_inplace = 2,
  .infer = infer,
  .grad = grad,
  .kernels = NEAP_REF(run, NEAP_ANY),
  .cases =
    "{ {c={{3,4}, dtype=\"bool\"}, a={3,4}, b={3,4}}, {c={{3,1,4}, dtype=\"bool\"}, a={2,4}, "
    "b={3,2,1}}, "
    "{c={{4}, dtype=\"bool\"}, a={}, b={3,4}}, {c={{0,4}, dtype=\"bool\"}, a={4}, b={4}} }",
};
