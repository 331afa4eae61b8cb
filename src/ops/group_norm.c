/* group_norm.c: GroupNorm, and InstanceNorm, where every channel is a group.
 *
 * x (N,C,...) is seen as (N G, C/G, L): each of the N G rows is normalised by itself, and each
 * channel is scaled and shifted. Mean and rstd of the rows are saved for the backward, in f32 where
 * x is bf16 or f16. The backward has no kernel here: seen as rows, it is LayerNorm's, with dy
 * scaled before.
 */
#include "math/row.h"
#include "math/vec.h"
#include "ops/rows.h"

enum { EPS, GROUPS };
enum { X, GAMMA, BETA };

typedef struct job {
  int64_t n_row, n_group, n_channel, n_space; /* N G, G, C/G, L */
  double eps;
  const neap_operand *x, *gamma, *beta; /* the last two NULL where absent */
  const neap_operand *y, *mean, *rstd;  /* likewise */
} job;

#define NEAP_BODY "ops/group_norm_body.h"
#include "math/each_float.h"

extern const neap_op neap_op_InstanceNorm;

static int64_t groups_of(const neap_op *op, const neap_attr_value *attrs, const neap_shape *x) {
  return op == &neap_op_InstanceNorm ? x->dim[1] : attrs[GROUPS].i;
}

static bool choose(neap_choose *c) {
  const neap_shape *x = &c->in[X].shape;
  /* A row is a group of one image: C/G channels of L elements. */
  int64_t n_group = NEAP_MAX(groups_of(c->op, c->attrs, x), 1);
  int64_t n_row = neap_count_mul(x->dim[0], n_group),
          n = neap_count_mul(x->dim[1] / n_group, neap_shape_span(x, 2, x->n_dim));
  c->choice->scratch_bytes =
    neap_rows_bytes(c->in[X].dtype, NEAP_MIN(c->choice->n_thread, n_row), 1, n);
  return true;
}

static const neap_operand *present(const neap_operand *list, int n, int i) {
  return i < n && list[i].data != NULL ? &list[i] : NULL;
}

static void run(const neap_call *call) {
  const neap_operand *x = &call->in[X];
  const neap_shape *shape = &x->type.shape;
  const neap_dtype dtype = x->type.dtype;
  job k = {.n_group = groups_of(call->op, call->attrs, shape), .eps = call->attrs[EPS].f, .x = x};
  if (k.n_group == 0) return; /* no channels */
  k.n_row = shape->dim[0] * k.n_group;
  k.n_channel = shape->dim[1] / k.n_group;
  k.n_space = neap_shape_span(shape, 2, shape->n_dim);
  k.gamma = present(call->in, call->n_in, GAMMA), k.beta = present(call->in, call->n_in, BETA);
  k.y = &call->out[0];
  k.mean = present(call->out, call->n_out, 1), k.rstd = present(call->out, call->n_out, 2);
  int64_t n = k.n_channel * k.n_space;
  neap_rows_run(call, dtype, call->scratch, 1, n, k.n_row,
                NEAP_MAX(NEAP_GRAIN / 4 / NEAP_MAX(n, 1), 1),
                dtype == NEAP_DTYPE_F64 ? forward_f64 : forward_f32, &k);
}

/* gamma and beta have an element for each channel, the statistics one for each row. */
static neap_status infer(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[X].shape;
  char text[NEAP_SHAPE_TEXT], text_x[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_same_dtype(c, X, error));
  NEAP_TRY(neap_infer_rank(c, X, 2, NEAP_MAX_DIM, error));

  /* InstanceNorm has a group for each channel: of no channels none. */
  int64_t n_group = groups_of(c->op, c->attrs, x);
  if (n_group > 0 && x->dim[1] % n_group != 0)
    return neap_infer_fail(c, NEAP_SHAPE, X, error,
                           "groups = %lld expects a multiple of as many channels, got x %s",
                           (long long)n_group, neap_shape_text(x, text_x));
  neap_shape channels = NEAP_SHAPE(x->dim[1]);
  for (int i = GAMMA; i < c->n_in; i++)
    if (c->in[i].dtype != NEAP_DTYPE_NONE && !neap_shape_equal(&c->in[i].shape, &channels))
      return neap_infer_fail(c, NEAP_SHAPE, i, error,
                             "%s expects an element for each of %lld channels, got %s",
                             neap_op_input(c->op, i)->name, (long long)x->dim[1],
                             neap_shape_text(&c->in[i].shape, text));
  c->out[0] = c->in[X];

  /* Statistics (N,G) are as wide as what is computed in: halves would lose them. */
  for (int k = 1; k < c->n_out; k++)
    c->out[k] = (neap_type){neap_compute_dtype(c->in[X].dtype), NEAP_SHAPE(x->dim[0], n_group)};
  return NEAP_OK;
}

/* About eight operations an element: two passes of statistics and one that normalises. */
static void cost(const neap_infer *c, neap_cost *cost) {
  cost->flops = 8.0 * (double)neap_shape_elems(&c->in[X].shape);
}

/* ---- gradient -------------------------------------------------------------------------------- */

/* The sum over all dimensions but that of channels. */
static neap_value_id sum_of_channels(neap_grad *g, neap_value_id value, int n_dim) {
  int64_t axes[NEAP_MAX_DIM];
  int n = 0;
  for (int d = 0; d < n_dim; d++)
    if (d != 1) axes[n++] = d;
  return neap_grad_emit1(g, "Sum", 1, &value, NULL,
                         (neap_set[]){NEAP_SET_INTS("axes", n, axes), {0}});
}

/* x and h = dy gamma as rows (N,G,C/G L) are LayerNorm's backward; dgamma sums dy times what the
 * rows are normalised to, which is made again. */
static neap_status grad(neap_grad *g, neap_error *error) {
  for (int k = 1; k < g->n_out; k++)
    if (g->dout[k] != NEAP_NO_VALUE)
      return neap_fail(error, NEAP_GRAPH, "no gradient is defined through the saved %s",
                       neap_op_output(g->op, k)->name);
  if (g->n_out < 3)
    return neap_fail(error, NEAP_GRAPH, "the backward needs the saved rstd as an output");

  /* Rows of all numbers that are normalised together. */
  const neap_shape x = neap_grad_type(g, g->in[X]).shape;
  const neap_shape stats = neap_grad_type(g, g->out[1]).shape;
  neap_shape rows = {.n_dim = 3, .dim = {stats.dim[0], stats.dim[1], 0}};
  if (stats.dim[1] > 0) rows.dim[2] = x.dim[1] / stats.dim[1] * neap_shape_span(&x, 2, x.n_dim);
  const neap_set axis[] = {NEAP_SET_INT("axis", 2), {0}};
  neap_value_id dy = g->dout[0], x_rows = NEAP_NO_VALUE;
  bool want_gamma = g->n_in > GAMMA && g->want[GAMMA], want_beta = g->n_in > BETA && g->want[BETA];
  if (g->want[X] || want_gamma) x_rows = neap_grad_view(g, g->in[X], rows);

  /* LayerNorm's backward takes h = dy gamma, with gamma (C,1,..) along the channels, and no gamma
   * of its own: there it would be one for each element of a row. */
  if (g->want[X]) {
    neap_value_id h = dy;
    if (g->n_in > GAMMA && g->in[GAMMA] != NEAP_NO_VALUE) {
      neap_shape wide = {.n_dim = x.n_dim - 1};
      for (int d = 0; d < wide.n_dim; d++) wide.dim[d] = d == 0 ? x.dim[1] : 1;
      neap_value_id gamma = neap_grad_view(g, g->in[GAMMA], wide);
      h = neap_grad_emit1(g, "Mul", 2, (neap_value_id[]){dy, gamma}, NULL, NULL);
    }
    neap_value_id in[5] = {x_rows, NEAP_NO_VALUE, neap_grad_view(g, h, rows), g->out[2], g->out[1]};
    g->din[X] = neap_grad_view(g, neap_grad_emit1(g, "LayerNormGrad", 5, in, NULL, axis), x);
  }
  if (want_gamma) {
    /* with its statistics, which its own gradient reads */
    neap_value_id made[3];
    neap_grad_emit(g, "LayerNorm", 1, &x_rows, 3, made, g, axis);
    neap_value_id z = neap_grad_view(g, made[0], x);
    z = neap_grad_emit1(g, "Mul", 2, (neap_value_id[]){dy, z}, NULL, NULL);
    g->din[GAMMA] = sum_of_channels(g, z, x.n_dim);
  }
  if (want_beta) g->din[BETA] = sum_of_channels(g, dy, x.n_dim);
  return NEAP_OK;
}

#define NORM(row)                                                                              \
  .inputs = {{"x", "(N,C,...)"},                                                               \
             {"gamma", "(C)", .flags = NEAP_ARG_OPTIONAL},                                     \
             {"beta", "(C)", .flags = NEAP_ARG_OPTIONAL}},                                     \
  .outputs = {{"y", "(N,C,...)"},                                                              \
              {"mean", row ", for the backward", .flags = NEAP_ARG_OPTIONAL | NEAP_ARG_WIDE},  \
              {"rstd", row ", for the backward", .flags = NEAP_ARG_OPTIONAL | NEAP_ARG_WIDE}}, \
  .inplace = {{X, 0}}, .n_inplace = 1, .infer = infer, .cost = cost, .grad = grad,             \
  .sum = NEAP_SUM_RUNS, .kernels = NEAP_REF_CHOOSE(choose, run, NEAP_FLOATS)
#define EPS_ATTR                                                                              \
  [EPS] =                                                                                     \
    {"eps",       "added to the variance", NEAP_ATTR_FLOAT, .value = {.f = 1e-5}, .least = 0, \
     .most = 1e30}

const neap_op neap_op_GroupNorm = {
  .name = "GroupNorm",
  .summary =
    "Normalises groups of channels of each image to mean 0 and variance 1, then scales and shifts "
    "each channel.",
  .math = "y = (x - mean) / sqrt(var + eps) gamma + beta",
  .example = "net:GroupNorm({\"x\", \"gamma\", \"beta\"}, \"y\", {groups = 8})",
  .source = "Wu and He, arXiv 1803.08494; ONNX GroupNormalization-21",
  NORM("(N,groups)"),
  .attrs = {EPS_ATTR, [GROUPS] = {"groups", "into how many groups the channels fall", NEAP_ATTR_INT,
                                  .required = true, .least = 1, .most = 1 << 30}},
  .cases =
    "{ {x={2,6,5}, gamma={6}, beta={6}, groups=3}, {x={3,4,3,5}, gamma={4}, groups=1}, "
    "{x={2,4,2,3,2}, groups=2}, {x={3,8}, gamma={8}, beta={8}, groups=2, outputs=3}, {x={0,4,3}, "
    "groups=2} }",
  .long_cases = "{ {x={{1,4,65536}, low=0, high=1}, gamma={4}, beta={4}, groups=1, outputs=3} }",
};

const neap_op neap_op_InstanceNorm = {
  .name = "InstanceNorm",
  .summary =
    "Normalises each channel of each image to mean 0 and variance 1, then scales and shifts it.",
  .math = "y = (x - mean) / sqrt(var + eps) gamma + beta",
  .example = "net:InstanceNorm({\"x\", \"gamma\", \"beta\"}, \"y\")",
  .source = "Ulyanov et al., arXiv 1607.08022; ONNX InstanceNormalization-6",
  NORM("(N,C)"),
  .attrs = {EPS_ATTR},
  .cases =
    "{ {x={2,3,5}, gamma={3}, beta={3}}, {x={2,4,3,5}, gamma={4}}, {x={2,2,2,3,2}}, {x={2,3,7}, "
    "beta={3}, outputs=3}, {x={0,4,3}} }",
  .long_cases = "{ {x={{1,2,262144}, low=0, high=1}, gamma={2}, beta={2}, outputs=3} }",
};
