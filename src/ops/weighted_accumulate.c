/* weighted_accumulate.c: WeightedAccumulate, a weighted sum over runs of a program: the gradient of
 * a large batch from its micro-batches.
 *
 * The total is resident: the output is its next version, in the same storage. It is written after
 * all that may fault, so a micro-batch that fails adds nothing.
 * INVARIANT: with keep = 0 the old total is not read: what an aborted step has left there, NaN or
 * not, ends with the first micro-batch of the next.
 *
 * A total of bf16 or f16 gradients may be f32, as those of micro-batches are (net/split.c).
 */
#include "ops/elementwise.h"

enum { TOTAL, G, WEIGHT, KEEP };

/* x = total, y = g; the new total may be x. A keep of 0 has a loop of its own, of g alone: 0 times
 * NaN would be NaN. */
enum { BY, SHARE };
NEAP_ROW_FLOATS(2, map2_same, add, p[SHARE] * x + p[BY] * y)
NEAP_ROW_TABLE(add, NEAP_ROWS_FLOATS(add))
NEAP_ROW_FLOATS(1, map1, begin, p[BY] * x)
NEAP_ROW_TABLE(begin, NEAP_ROWS_FLOATS(begin))

static double number(const neap_operand *x) { return neap_element_get(x->type.dtype, x->data, 0); }

static void run(const neap_call *call) {
  const double param[NEAP_ROW_MAX_PARAM] = {
    [BY] = number(&call->in[WEIGHT]), [SHARE] = number(&call->in[KEEP])};
  if (param[SHARE] == 0)
    neap_elementwise_run_on(call, 1, (const int[]){G}, 1, (const int[]){0}, rows_begin, param);
  else
    neap_elementwise_run_param(call, 2, rows_add, param);
}

/* g must be as total is, but that a half may go into f32; weight and keep have one element each. */
static neap_status infer(neap_infer *c, neap_error *error) {
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  neap_dtype total = c->in[TOTAL].dtype, g = c->in[G].dtype;
  if ((total != g && total != neap_compute_dtype(g)) ||
      !neap_shape_equal(&c->in[G].shape, &c->in[TOTAL].shape))
    return neap_infer_fail(c, NEAP_SHAPE, G, error, "g expects %s %s, as total has, got %s %s",
                           neap_dtype_name(c->in[TOTAL].dtype),
                           neap_shape_text(&c->in[TOTAL].shape, a), neap_dtype_name(c->in[G].dtype),
                           neap_shape_text(&c->in[G].shape, b));
  for (int i = WEIGHT; i <= KEEP; i++)
    if (neap_shape_elems(&c->in[i].shape) != 1)
      return neap_infer_fail(c, NEAP_SHAPE, i, error, "%s expects one element, got %s",
                             c->op->inputs[i].name, neap_shape_text(&c->in[i].shape, a));
  c->out[0] = c->in[TOTAL];
  return NEAP_OK;
}

/* Two products and a sum for each element. */
static void cost(const neap_infer *c, neap_cost *cost) {
  cost->flops = 3.0 * (double)neap_shape_elems(&c->in[TOTAL].shape);
}

const neap_op neap_op_WeightedAccumulate = {
  .name = "WeightedAccumulate",
  .summary = "Weighted sum over runs: adds to what an earlier run left.",
  .math = "total = keep total + weight g",
  .example = "net:WeightedAccumulate({\"w_total\", \"w_grad\", \"weight\", \"keep\"}, \"w_total\")",
  .source = "gradient accumulation: Ott et al., WMT 2018, arXiv 1806.00187, section 3.2",
  .inputs = {[TOTAL] = {"total", "the sum so far"},
             [G] = {"g", "what is added; bf16 and f16 to a total of f32, too"},
             [WEIGHT] = {"weight", "of g, one element"},
             [KEEP] = {"keep", "of the sum so far, one element; 0 begins a new sum"}},
  .outputs = {{"total", "its next version"}},
  .enforced = {{TOTAL, 0}},
  .n_enforced = 1,
  .effects = NEAP_EFFECT_COMMIT,
  .infer = infer,
  .cost = cost,
  .kernels = NEAP_REF(run, NEAP_FLOATS),
  .cases =
    "{ {total={3,5}, g={3,5}, weight={}, keep={}, grad=false}, {total={7}, g={7}, weight={1}, "
    "keep={1}, grad=false}, {total={{300}, dtype=\"f32\"}, g={{300}, dtype=\"f16\"}, weight={}, "
    "keep={}, grad=false} }",
};
