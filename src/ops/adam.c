/* adam.c: Adam: one step of Adam or, with `decoupled`, of AdamW, as PyTorch has them.
 *
 * w, m, v and the step count t are resident: the outputs are their next versions, in the same
 * storage. t is an i64, counted by the op itself, so that a checkpoint holds all there is to know.
 */
#include "ops/elementwise.h"

enum { BETA1, BETA2, EPS, WEIGHT_DECAY, DECOUPLED };
enum { W, G, LR, M, V, STEPS };
enum { W_OUT, M_OUT, V_OUT, T_OUT };

/* What a step needs besides the tensors, computed once, in double: lr / (1 - beta1^t);
 * sqrt(1 - beta2^t); w's factor; the factor of w that is added to g. */
enum { SIZE, CORRECTION, KEEP, DECAY };

#define NEAP_BODY "ops/adam_body.h"
#include "math/each_float.h"
NEAP_ROW_TABLE(step, NEAP_ROWS_FLOATS(step))

/* t counts this step too, from 1. Both corrections are the same for all elements. */
static void run(const neap_call *call) {
  int64_t t = neap_count_add(*(const int64_t *)call->in[STEPS].data, 1);
  double lr = neap_element_get(call->in[LR].type.dtype, call->in[LR].data, 0),
         decay = call->attrs[WEIGHT_DECAY].f;
  /* AdamW takes the decay off the parameter, Adam adds it to the gradient. */
  bool decoupled = call->attrs[DECOUPLED].i != 0;
  const double param[NEAP_ROW_MAX_PARAM] = {
    [SIZE] = lr / (1 - pow(call->attrs[BETA1].f, (double)t)),
    [CORRECTION] = sqrt(1 - pow(call->attrs[BETA2].f, (double)t)),
    [KEEP] = decoupled ? 1 - lr * decay : 1,
    [DECAY] = decoupled ? 0 : decay};
  neap_elementwise_run_on(call, 4, (const int[]){W, G, M, V}, 3, rows_step, param);
  *(int64_t *)call->out[T_OUT].data = t;
}

/* g, m and v are like w in shape and dtype; lr and t are one element each. */
static neap_status infer(neap_infer *c, neap_error *error) {
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  for (int i = G; i < STEPS; i++)
    if (i != LR && !neap_type_equal(&c->in[i], &c->in[W]))
      return neap_infer_fail(c, NEAP_SHAPE, i, error, "%s expects %s %s, as w has, got %s %s",
                             c->op->inputs[i].name, neap_dtype_name(c->in[W].dtype),
                             neap_shape_text(&c->in[W].shape, a), neap_dtype_name(c->in[i].dtype),
                             neap_shape_text(&c->in[i].shape, b));
  /* Rate and count are scalars. */
  for (int i = LR; i <= STEPS; i += STEPS - LR)
    if (neap_shape_elems(&c->in[i].shape) != 1)
      return neap_infer_fail(c, NEAP_SHAPE, i, error, "%s expects one element, got %s",
                             c->op->inputs[i].name, neap_shape_text(&c->in[i].shape, a));
  static const int from[] = {[W_OUT] = W, [M_OUT] = M, [V_OUT] = V, [T_OUT] = STEPS};
  for (int k = 0; k < c->n_out; k++) c->out[k] = c->in[from[k]];
  return NEAP_OK;
}

static void cost(const neap_infer *c, neap_cost *cost) {
  cost->flops = 14.0 * (double)neap_shape_elems(&c->in[W].shape);
}

const neap_op neap_op_Adam = {
  .name = "Adam",
  .summary = "One step of Adam, or of AdamW with `decoupled`.",
  .math =
    "t = t + 1; m = b1 m + (1-b1) g; v = b2 v + (1-b2) g^2; w = w - lr (m / (1-b1^t)) / (sqrt(v / "
    "(1-b2^t)) + eps)",
  .example =
    "net:Adam({\"w\", \"w.grad\", \"lr\", \"m\", \"v\", \"t\"}, {\"w\", \"m\", \"v\", \"t\"})",
  .source = "Kingma and Ba, ICLR 2015; Loshchilov and Hutter, ICLR 2019",
  .inputs = {[W] = {"w", "parameter"},
             [G] = {"g", "its gradient"},
             [LR] = {"lr", "learning rate, one element"},
             [M] = {"m", "first moment, 0 at first"},
             [V] = {"v", "second moment, 0 at first"},
             [STEPS] = {"t", "steps done, i64, one element", NEAP_BIT(I64)}},
  .outputs = {[W_OUT] = {"w", "next version of w"},
              [M_OUT] = {"m", "next version of m"},
              [V_OUT] = {"v", "next version of v"},
              [T_OUT] = {"t", "next version of t", NEAP_BIT(I64)}},
  .attrs = {[BETA1] = {"beta1", "decay of m", NEAP_ATTR_FLOAT, .value = {.f = 0.9}, .least = 0,
                       .most = 0.999999},
            [BETA2] = {"beta2", "decay of v", NEAP_ATTR_FLOAT, .value = {.f = 0.999}, .least = 0,
                       .most = 0.999999},
            [EPS] = {"eps", "added to the root of v", NEAP_ATTR_FLOAT, .value = {.f = 1e-8},
                     .least = 0, .most = 1},
            [WEIGHT_DECAY] = {"weight_decay", "times w, added to the gradient", NEAP_ATTR_FLOAT,
                              .least = 0, .most = 1e30},
            [DECOUPLED] = {"decoupled", "decay w by lr weight_decay instead (AdamW)",
                           NEAP_ATTR_BOOL}},
  .enforced = {{W, W_OUT}, {M, M_OUT}, {V, V_OUT}, {STEPS, T_OUT}},
  .n_enforced = 4,
  .effects = NEAP_EFFECT_COMMIT,
  .infer = infer,
  .cost = cost,
  .nan = NEAP_NAN_REACHES,
  .infinity = NEAP_INFINITY_VANISHES,
  .kernels =
    (const neap_kernel[]){
      {.engine = NEAP_ENGINE_REF, .dtypes = NEAP_FLOATS, .any_team = true, .run = run}, {0}},
  .cases =
    "{ {w={3,5}, g={3,5}, lr={}, m={3,5}, v={{3,5}, low=0, high=1}, t={{}, dtype=\"i64\", low=0, "
    "high=9}, grad=false} }",
};
