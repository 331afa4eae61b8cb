/* fold_norm.c: the weight and bias of a convolution or fully connected layer with the BatchNorm
 * behind it folded in. It works on parameters alone, so in a net that does not train it runs once
 * per content of the parameters.
 *
 * BatchNorm(product(x, w) + b) = product(x, s w) + (beta + (b - mean) s), s = gamma / sqrt(var +
 * eps), channel by channel. In double, rounded once: the result is as exact as weights in the dtype
 * can be.
 */
#include "ops/rows.h"

#include <math.h>

enum { W, GAMMA, BETA, MEAN, VAR, B };
enum { EPS };

/* w (O,...) and vectors (O) give a weight like w and a bias (O); the bias is there even when b is
 * not. */
static neap_status infer(neap_infer *c, neap_error *error) {
  char text[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_same_dtype(c, W, error));
  NEAP_TRY(neap_infer_rank(c, W, 2, NEAP_MAX_DIM, error));
  neap_type vector = {c->in[W].dtype, NEAP_SHAPE(c->in[W].shape.dim[0])};
  for (int i = GAMMA; i < c->n_in; i++)
    if (c->in[i].dtype != NEAP_DTYPE_NONE && !neap_shape_equal(&c->in[i].shape, &vector.shape))
      return neap_infer_fail(c, NEAP_SHAPE, i, error,
                             "%s expects one value an output channel, (%lld), got %s",
                             c->op->inputs[i].name, (long long)vector.shape.dim[0],
                             neap_shape_text(&c->in[i].shape, text));
  c->out[0] = c->in[W];
  c->out[1] = vector;
  return NEAP_OK;
}

/* w (O,L): L elements an output channel. */
static void run(const neap_call *call) {
  const neap_operand *w = &call->in[W], *folded = &call->out[0];
  const neap_shape *shape = &w->type.shape;
  const bool has_b = call->n_in > B && call->in[B].data != NULL;
  int64_t n_o = shape->dim[0], l = neap_shape_span(shape, 1, shape->n_dim);
  for (int64_t o = 0; o < n_o; o++) {
    double gamma = neap_number_at(&call->in[GAMMA], o), beta = neap_number_at(&call->in[BETA], o);
    double mean = neap_number_at(&call->in[MEAN], o), var = neap_number_at(&call->in[VAR], o);
    double b = has_b ? neap_number_at(&call->in[B], o) : 0.0;
    /* In double, rounded once: the fold is made once for all runs. */
    double scale = gamma / sqrt(var + call->attrs[EPS].f);
    for (int64_t i = o * l; i < (o + 1) * l; i++)
      neap_number_put(folded, i, neap_number_at(w, i) * scale);
    neap_number_put(&call->out[1], o, beta + (b - mean) * scale);
  }
}

const neap_op neap_op_FoldNorm = {
  .name = "FoldNorm",
  .summary =
    "Weight and bias with the BatchNorm behind them folded in; made from it in nets that do not "
    "train.",
  .math = "s = gamma / sqrt(var + eps);  w' = s w;  b' = beta + (b - mean) s",
  .source = "Jacob et al., arXiv 1712.05877, section 3.2",
  .internal = true,
  .inputs = {[W] = {"w", "(O,...)"},
             [GAMMA] = {"gamma", "(O)"},
             [BETA] = {"beta", "(O)"},
             [MEAN] = {"mean", "(O), running", .flags = NEAP_ARG_WIDE},
             [VAR] = {"var", "(O), running", .flags = NEAP_ARG_WIDE},
             [B] = {"b", "(O)", .flags = NEAP_ARG_OPTIONAL}},
  .outputs = {{"w_folded", "shape of w"}, {"b_folded", "(O)"}},
  .attrs = {[EPS] = {"eps", "added to the variance", NEAP_ATTR_FLOAT, .value = {.f = 1e-5}}},
  .infer = infer,
  .no_grad = true,
  .kernels = NEAP_REF(run, NEAP_FLOATS),
  .cases =
    "{ {w={4,3,3,3}, gamma={4}, beta={4}, mean={4}, var={{4}, low=0.1, high=2}, b={4}},"
    " {w={5,6}, gamma={5}, beta={5}, mean={5}, var={{5}, low=0, high=1}, eps=0.001} }",
};
