/* where.c: Where, the choice between two tensors by a third, with broadcasting. Movement only: it
 * goes by the size of the elements, so that it takes every dtype. */
#include "ops/elementwise.h"

/* One loop for each width: elements are moved as bits, whatever they stand for. */
NEAP_ROW3(where_1, uint8_t, uint8_t, uint8_t, , x != 0 ? y : z)
NEAP_ROW3(where_2, uint8_t, uint16_t, uint16_t, , x != 0 ? y : z)
NEAP_ROW3(where_4, uint8_t, uint32_t, uint32_t, , x != 0 ? y : z)
NEAP_ROW3(where_8, uint8_t, uint64_t, uint64_t, , x != 0 ? y : z)

/* The element widths that dtypes have: 1, 2, 4 and 8 bytes. */
static void run(const neap_call *call) {
  static const neap_row_loop by_bytes[] = {
    [1] = where_1, [2] = where_2, [4] = where_4, [8] = where_8};
  neap_elementwise_run(call, 3, by_bytes[neap_dtype_bytes(call->in[1].type.dtype)]);
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
  .kernels = NEAP_REF(run),
  .cases =
    "{ {c={{3,4}, dtype=\"bool\"}, a={3,4}, b={3,4}}, {c={{3,1,4}, dtype=\"bool\"}, a={2,4}, "
    "b={3,2,1}}, "
    "{c={{4}, dtype=\"bool\"}, a={}, b={3,4}}, {c={{0,4}, dtype=\"bool\"}, a={4}, b={4}} }",
};
