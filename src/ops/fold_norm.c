/* fold_norm.c: the weight and bias of a convolution or fully connected layer with the BatchNorm
 * behind it folded in. It works on parameters alone, so in a net that does not train it runs once
 * per content of the parameters.
 *
 * BatchNorm(product(x, w) + b) = product(x, s w) + (beta + (b - mean) s), s = gamma / sqrt(var +
 * eps), channel by channel. In double, rounded once: the result is as exact as weights in the dtype
 * can be.
 */
#include "ops/by_cast.h"
#include "ops/op.h"

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
  const neap_type *w = &call->in[W].type;
  neap_dtype dtype = w->dtype;
  int64_t n_o = w->shape.dim[0], l = neap_shape_span(&w->shape, 1, w->shape.n_dim);
  for (int64_t o = 0; o < n_o; o++) {
    double gamma = neap_element_get(dtype, call->in[GAMMA].data, o),
           beta = neap_element_get(dtype, call->in[BETA].data, o);
    double mean = neap_element_get(dtype, call->in[MEAN].data, o),
           var = neap_element_get(dtype, call->in[VAR].data, o);
    double b = call->n_in > B && call->in[B].data != NULL
                 ? neap_element_get(dtype, call->in[B].data, o)
                 : 0.0;
    double scale = gamma / sqrt(var + call->attrs[EPS].f);
    for (int64_t i = o * l; i < (o + 1) * l; i++)
      neap_element_set(dtype, call->out[0].data, i,
                       neap_element_get(dtype, call->in[W].data, i) * scale);
    neap_element_set(dtype, call->out[1].data, o, beta + (b - mean) * scale);
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
             [MEAN] = {"mean", "(O), running"},
             [VAR] = {"var", "(O), running"},
             [B] = {"b", "(O)", .flags = NEAP_ARG_OPTIONAL}},
  .outputs = {{"w_folded", "shape of w"}, {"b_folded", "(O)"}},
  .attrs = {[EPS] = {"eps", "added to the variance", NEAP_ATTR_FLOAT, .value = {.f = 1e-5}}},
  .infer = infer,
  .no_grad = true,
  .kernels =
    (const neap_kernel[]){
      {.engine = NEAP_ENGINE_REF, .dtypes = NEAP_WIDE, .any_team = true, .run = run},
      NEAP_BY_CAST(0, true),
      {0}},
  .cases =
    "{ {w={4,3,3,3}, gamma={4}, beta={4}, mean={4}, var={{4}, low=0.1, high=2}, b={4}},"
    " {w={5,6}, gamma={5}, beta={5}, mean={5}, var={{5}, low=0, high=1}, eps=0.001} }",
};
