/* clip_norm.c: GradNorm, the norm of many tensors seen as one vector, and ClipByNorm, which scales
 * a tensor down by it: together they clip gradients by their global norm. Two ops, so that one norm
 * serves every gradient.
 *
 * The norm runs on one thread, tensor by tensor, in double: its bits do not depend on the number of
 * threads.
 */
/* clang-format off: tables of expressions, which it takes for statements */
#include "ops/elementwise.h"

enum { P };
enum { LANES = 8 };

#define NEAP_BODY "ops/squares_body.h"
#include "math/each_float.h"

/* The norm that all but few want: the sum of the squares of x. */
static double sum_squares(const neap_operand *x) {
  int64_t n = neap_shape_elems(&x->type.shape), step = neap_tile_elems(x, n);
  float tile[NEAP_TILE];
  double sum = 0;
  for (int64_t at = 0; at < n; at += step) {
    int64_t part = NEAP_MIN(step, n - at);
    const void *from = neap_tile_load(x, at, part, tile);
    sum += x->type.dtype == NEAP_DTYPE_F64 ? squares_f64(from, part) : squares_f32(from, part);
  }
  return sum;
}

/* What one more tensor does to `sum`: the sum of |x|^p, or the largest |x| for p = infinity. A NaN
 * stays. */
static double accumulate(const neap_operand *x, double p, double sum) {
  int64_t n = neap_shape_elems(&x->type.shape);
  if (p == 2) return sum + sum_squares(x);
  for (int64_t i = 0; i < n; i++) {
    /* Other norms are rare: element by element, whatever the dtype. */
    double value = fabs(neap_element_get(x->type.dtype, x->data, i));
    if (isinf(p))
      sum = value > sum || value != value ? value : sum;
    else
      sum += pow(value, p);
  }
  return sum;
}

static void run_norm(const neap_call *call) {
  double p = call->attrs[P].f, sum = 0;
  for (int k = 0; k < call->n_in; k++) sum = accumulate(&call->in[k], p, sum);
  /* The root, but of a largest element, which is the norm itself. */
  double norm = sum;
  if (p == 2) norm = sqrt(sum);
  if (p != 2 && !isinf(p)) norm = pow(sum, 1 / p);
  neap_element_set(call->out[0].type.dtype, call->out[0].data, 0, norm);
}

/* Any shapes, one dtype; the norm is a scalar. The negation refuses a NaN as well. */
static neap_status infer_norm(neap_infer *c, neap_error *error) {
  NEAP_TRY(neap_infer_same_dtype(c, 0, error));
  if (!(c->attrs[P].f > 0))
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "p = %g expects a number above 0",
                           c->attrs[P].f);
  c->out[0].dtype = c->in[0].dtype;
  return NEAP_OK;
}

/* x = tensor, y = norm. 1e-6 as in PyTorch, so that a norm of 0 divides. A norm that is NaN makes
 * all NaN: no comparison takes it for small. */
enum { MOST };
NEAP_MAP2(clip, x *(p[MOST] / (y + (T)1e-6) >= 1 ? 1 : p[MOST] / (y + (T)1e-6)))

static neap_status infer_clip(neap_infer *c, neap_error *error) {
  char text[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_same_dtype(c, 0, error));
  if (c->in[1].shape.n_dim != 0)
    return neap_infer_fail(c, NEAP_SHAPE, 1, error, "norm expects a scalar, got %s",
                           neap_shape_text(&c->in[1].shape, text));
  c->out[0] = c->in[0];
  return NEAP_OK;
}

const neap_op neap_op_GradNorm = {
  .name = "GradNorm",
  .summary =
    "Norm of any number of tensors, seen as one vector. For gradients: none is defined through it.",
  .math = "y = (sum over all |x|^p)^(1/p)",
  .example = "net:GradNorm({\"w.grad\", \"b.grad\"}, \"norm\")",
  .source = "Pascanu, Mikolov and Bengio, ICML 2013",
  .inputs = {{"x", "any shapes", .flags = NEAP_ARG_VARIADIC}},
  .outputs = {{"y", "scalar"}},
  .attrs = {[P] = {"p", "order of the norm; infinity: the largest", NEAP_ATTR_FLOAT,
                   .value = {.f = 2}}},
  .infer = infer_norm,
  .sum = NEAP_SUM_DOUBLE,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_norm, NEAP_FLOATS),
  .cases = "{ {x={3,5}}, {x={3,5}, p=1}, {x={0}} }",
  .long_cases = "{ {x={262144,4}} }",
};

const neap_op neap_op_ClipByNorm = {
  .name = "ClipByNorm",
  .summary =
    "Scales a tensor down so that a norm, given apart, is at most a bound. For gradients: none is "
    "defined through it.",
  .math = "y = x min(1, max / (norm + 1e-6))",
  .example = "net:ClipByNorm({\"w.grad\", \"norm\"}, \"w.grad\", {max = 1})",
  .source = "Pascanu, Mikolov and Bengio, ICML 2013; torch.nn.utils.clip_grad_norm_",
  .inputs = {{"x", "any shape"}, {"norm", "scalar"}},
  .outputs = {{"y", "shape of x"}},
  .attrs = {[MOST] = {"max", "bound of the norm", NEAP_ATTR_FLOAT, .required = true, .least = 0,
                      .most = 1e30}},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .infer = infer_clip,
  .special = "a norm that is NaN makes all NaN",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF(run_clip, NEAP_FLOATS),
  .cases =
    "{ {x={3,5}, norm={{}, low=1, high=9}, max=0.5}, {x={3,5}, norm={{}, low=1, high=9}, max=10} }",
};
