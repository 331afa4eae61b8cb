/* layer_norm.c: LayerNorm and RmsNorm and their backward ops.
 *
 * x is seen as (M,N): the dimensions from `axis` on, N elements, are normalised together. The
 * forward saves mean and rstd (1 / standard deviation) of each row for the backward, in f32 where x
 * is bf16 or f16. RmsNorm is the same without mean and beta: z = x rstd.
 *
 * dgamma and dbeta are sums over rows: each thread adds its rows to a pair of its own in the
 * scratch, runs of them in their type and the runs in double, and the pairs are added in thread
 * order.
 * INVARIANT: bits depend on the number of threads, not on timing.
 */
#include "math/row.h"
#include "math/vec.h"
#include "ops/rows.h"

enum { AXIS, EPS };

typedef struct job {
  int64_t n_row, n; /* (M,N) */
  int n_part;       /* backward: parts that rows are dealt to, one a thread */
  double eps;
  bool centre; /* LayerNorm */
  const neap_operand *x, *dy;
  const void *gamma, *beta;                    /* (N) in the type computed in, or NULL */
  const neap_operand *mean, *rstd;             /* backward: (M) each; mean NULL without centre */
  const neap_operand *y, *mean_out, *rstd_out; /* forward; the last two may be NULL */
  /* backward; scratch: per part dgamma (N), dbeta (N) in double, then those of a run */
  const neap_operand *dx;
  void *scratch;
  float *tiles; /* backward: two rows a part, where they are widened */
  bool want_gamma, want_beta;
} job;

/* Bytes of one part of the scratch, and where part p has its totals. */
static size_t part_bytes(int64_t n, size_t item_bytes) {
  return 2 * (size_t)n * (sizeof(double) + item_bytes);
}
static double *total_of(const job *k, int64_t p, size_t item_bytes) {
  return (double *)(void *)((char *)k->scratch + (size_t)p * part_bytes(k->n, item_bytes));
}

/* Part p's tile of x, behind which is that of dy; NULL where nothing is widened. */
static float *tile_of(const job *k, int64_t p) {
  size_t bytes = neap_align(neap_size_of(2 * k->n, sizeof(float)));
  return k->tiles == NULL ? NULL : (float *)(void *)((char *)k->tiles + (size_t)p * bytes);
}

#define NEAP_BODY "ops/layer_norm_body.h"
#include "math/each_float.h"

/* Sets n_row (M) and n (N) from x and the attribute `axis`. */
static void rows_of(const neap_shape *x, const neap_attr_value *axis, job *k) {
  int first = x->n_dim == 0 ? 0 : neap_axis(axis->i, x->n_dim);
  k->n_row = neap_shape_span(x, 0, first);
  k->n = neap_shape_span(x, first, x->n_dim);
}

/* Of bf16 and f16 gamma and beta are widened at the head of the scratch, once a call. */
static size_t vectors_bytes(neap_dtype dtype, int64_t n) {
  return neap_is_half(dtype) ? neap_size_of(2, neap_align(neap_size_of(n, sizeof(float)))) : 0;
}
static const void *widened(const neap_operand *vector, int64_t n, void *scratch, int place) {
  if (vector->data == NULL) return NULL;
  size_t bytes = neap_align(neap_size_of(n, sizeof(float)));
  char *tile = scratch == NULL ? NULL : (char *)scratch + (size_t)place * bytes;
  return neap_row_load(vector, 0, 1, n, n, (float *)(void *)tile);
}

/* ---- forward --------------------------------------------------------------------------------- */

enum { X, GAMMA, BETA };

/* Of bf16 and f16 gamma, beta and a row for each thread. */
static bool choose(neap_choose *c) {
  const neap_type *x = &c->in[X];
  job k;
  rows_of(&x->shape, &c->attrs[AXIS], &k);
  int64_t n_part = NEAP_MIN(c->choice->n_thread, k.n_row);
  c->choice->scratch_bytes =
    neap_size_add(vectors_bytes(x->dtype, k.n), neap_rows_bytes(x->dtype, n_part, 1, k.n));
  return true;
}

/* x, gamma, beta -> y and the statistics that are asked for: mean (LayerNorm only) and rstd. Gamma
 * and beta may be absent. */
static void run(const neap_call *call, bool centre) {
  const neap_operand *x = &call->in[X];
  job k = {.eps = call->attrs[EPS].f, .centre = centre, .x = x, .y = &call->out[0]};
  rows_of(&x->type.shape, &call->attrs[AXIS], &k);
  if (k.n_row == 0) return;
  if (call->n_in > GAMMA) k.gamma = widened(&call->in[GAMMA], k.n, call->scratch, 0);
  if (call->n_in > BETA) k.beta = widened(&call->in[BETA], k.n, call->scratch, 1);
  /* RmsNorm has no mean to give. */
  int rstd = centre ? 2 : 1;
  if (centre && call->n_out > 1 && call->out[1].data != NULL) k.mean_out = &call->out[1];
  if (call->n_out > rstd && call->out[rstd].data != NULL) k.rstd_out = &call->out[rstd];
  /* Vectors lie first in the scratch, then a row for each thread. */
  neap_rows_run(call, x->type.dtype, neap_call_scratch(call, vectors_bytes(x->type.dtype, k.n)), 1,
                k.n, k.n_row, NEAP_MAX(NEAP_GRAIN / 4 / NEAP_MAX(k.n, 1), 1),
                x->type.dtype == NEAP_DTYPE_F64 ? forward_f64 : forward_f32, &k);
}

static void run_layer_norm(const neap_call *call) { run(call, true); }
static void run_rms_norm(const neap_call *call) { run(call, false); }

/* gamma and beta, where given, have the shape of the normalised dimensions; the statistics that of
 * those before `axis`. */
static neap_status infer_norm(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[X].shape;
  int axis = 0;
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_same_dtype(c, X, error));
  NEAP_TRY(neap_infer_rank(c, X, 1, NEAP_MAX_DIM, error));
  NEAP_TRY(neap_infer_axis(c, AXIS, x->n_dim, &axis, error));
  /* From `axis` on a row, before it one statistic for each. */
  neap_shape features = neap_shape_of(x->n_dim - axis, x->dim + axis),
             rows = neap_shape_of(axis, x->dim);
  for (int i = GAMMA; i < c->n_in; i++)
    if (c->in[i].dtype != NEAP_DTYPE_NONE && !neap_shape_equal(&c->in[i].shape, &features))
      return neap_infer_fail(c, NEAP_SHAPE, i, error,
                             "%s expects shape %s, the normalised dimensions of x, got %s",
                             neap_op_input(c->op, i)->name, neap_shape_text(&features, a),
                             neap_shape_text(&c->in[i].shape, b));
  c->out[0] = c->in[X];
  for (int k = 1; k < c->n_out; k++)
    c->out[k] = (neap_type){neap_compute_dtype(c->in[X].dtype), rows};
  return NEAP_OK;
}

/* About eight operations an element: two passes of statistics and one that normalises. */
static void cost(const neap_infer *c, neap_cost *cost) {
  cost->flops = 8.0 * (double)neap_shape_elems(&c->in[0].shape);
}

/* ---- backward -------------------------------------------------------------------------------- */

enum { B_X, B_GAMMA, B_DY, B_RSTD, B_MEAN };

/* 2 N elements and as many doubles for each thread, whether dgamma and dbeta are wanted or not. Of
 * bf16 and f16 gamma besides, and rows of x and dy for each. */
static bool choose_grad(neap_choose *c) {
  job k;
  const neap_type *x = &c->in[B_X];
  rows_of(&x->shape, &c->attrs[AXIS], &k);
  size_t item = neap_dtype_bytes(neap_compute_dtype(x->dtype));
  size_t bytes = neap_align(neap_size_of(c->choice->n_thread, part_bytes(k.n, item)));
  bytes = neap_size_add(bytes, vectors_bytes(x->dtype, k.n));
  c->choice->scratch_bytes =
    neap_size_add(bytes, neap_rows_bytes(x->dtype, c->choice->n_thread, 2, k.n));
  return true;
}

/* Rows first, in as many parts as the choice has threads, even when fewer run: so the sums keep
 * their order. Then the parts are added on one thread. With no rows dgamma and dbeta are 0. */
static void run_grad(const neap_call *call, bool centre) {
  const neap_operand *x = &call->in[B_X];
  const neap_dtype dtype = x->type.dtype;
  job k = {.n_part = call->choice->n_thread,
           .centre = centre,
           .x = x,
           .dy = &call->in[B_DY],
           .rstd = &call->in[B_RSTD],
           .dx = &call->out[0],
           .scratch = call->scratch};
  if (call->n_in > B_MEAN) k.mean = &call->in[B_MEAN];
  k.want_gamma = call->n_out > 1 && call->out[1].data != NULL;
  k.want_beta = call->n_out > 2 && call->out[2].data != NULL;
  rows_of(&x->type.shape, &call->attrs[AXIS], &k);
  /* A row of no elements gives no gradient, and has no byte to write. */
  if (k.n == 0) return;
  size_t item = neap_dtype_bytes(neap_compute_dtype(dtype));
  char *vectors = neap_call_scratch(call, neap_align((size_t)k.n_part * part_bytes(k.n, item)));
  k.gamma = widened(&call->in[B_GAMMA], k.n, vectors, 0);
  if (neap_is_half(dtype)) k.tiles = (float *)(void *)(vectors + vectors_bytes(dtype, k.n));
  bool wide = dtype == NEAP_DTYPE_F64;
  /* Each part's rows into its own sums, then the sums of all parts, in their order, by one
   * thread. */
  neap_parallel_for(k.n_part, 1, call->n_thread, wide ? backward_f64 : backward_f32, &k);
  for (int i = 0; i < 2; i++) {
    if (!(i == 0 ? k.want_gamma : k.want_beta)) continue;
    (wide ? add_parts_f64 : add_parts_f32)(&k, i * k.n, &call->out[1 + i]);
  }
}

static void run_layer_norm_grad(const neap_call *call) { run_grad(call, true); }
static void run_rms_norm_grad(const neap_call *call) { run_grad(call, false); }

extern const neap_op neap_op_RmsNorm;

/* x and gamma are the first inputs of both forwards, whose statistics have one shape. */
static neap_status infer_grad(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[B_X].shape;
  neap_type y[2];
  NEAP_TRY(neap_infer_same_dtype(c, B_X, error));
  NEAP_TRY(neap_infer_forward(c, &neap_op_RmsNorm, 2, c->in, 2, y, error));
  for (int i = B_DY; i < c->n_in; i++) NEAP_TRY(neap_infer_expect(c, i, &y[i != B_DY], error));
  int axis = y[1].shape.n_dim;
  c->out[0] = c->in[B_X];
  for (int k = 1; k < c->n_out; k++)
    c->out[k] = (neap_type){c->in[B_X].dtype, neap_shape_of(x->n_dim - axis, x->dim + axis)};
  return NEAP_OK;
}

/* n_stat: statistics that the forward saves, and the number of the output that is rstd. GRAPH error
 * when they are not among the outputs, or when a gradient arrives at one of them. dbeta comes with
 * dgamma: its column of the scratch is there anyway, and dy is at hand. */
static neap_status emit_grad(neap_grad *g, const char *op, int n_stat, neap_error *error) {
  for (int k = 1; k < g->n_out; k++)
    if (g->dout[k] != NEAP_NO_VALUE)
      return neap_fail(error, NEAP_GRAPH, "no gradient is defined through the saved %s",
                       neap_op_output(g->op, k)->name);
  if (g->n_out <= n_stat)
    return neap_fail(error, NEAP_GRAPH, "the backward needs the saved %s as an output",
                     neap_op_output(g->op, n_stat)->name);
  /* dbeta alone still takes dgamma's place among the outputs. */
  bool want_gamma = g->n_in > GAMMA && g->want[GAMMA], want_beta = g->n_in > BETA && g->want[BETA];
  /* Operands that both ops have come first; the mean is LayerNorm's alone, and last. */
  neap_value_id in[5] = {g->in[X], g->n_in > GAMMA ? g->in[GAMMA] : NEAP_NO_VALUE, g->dout[0],
                         g->out[n_stat]};
  if (n_stat == 2) in[4] = g->out[1];
  int n_vector = want_gamma ? 1 : 0;
  if (want_beta) n_vector = 2;
  neap_value_id out[3];
  neap_grad_emit(g, op, 3 + n_stat, in, 1 + n_vector, out, g, NULL);
  g->din[X] = out[0];
  if (want_gamma) g->din[GAMMA] = out[1];
  if (want_beta) g->din[BETA] = out[2];
  return NEAP_OK;
}

/* The number is that of rstd among the outputs: y, mean, rstd and y, rstd. */
static neap_status grad_layer_norm(neap_grad *g, neap_error *error) {
  return emit_grad(g, "LayerNormGrad", 2, error);
}
static neap_status grad_rms_norm(neap_grad *g, neap_error *error) {
  return emit_grad(g, "RmsNormGrad", 1, error);
}

#define AXIS_ATTR                                                                              \
  {                                                                                            \
    "axis", "first of the dimensions that are normalised together", NEAP_ATTR_AXIS, .value = { \
      .i = -1                                                                                  \
    }                                                                                          \
  }
#define EPS_ATTR(x) \
  { "eps", "added to the variance", NEAP_ATTR_FLOAT, .value = {.f = (x)}, .least = 0, .most = 1e30 }

const neap_op neap_op_LayerNorm = {
  .name = "LayerNorm",
  .summary = "Normalises each row to mean 0 and variance 1, then scales and shifts.",
  .math = "y = (x - mean) / sqrt(var + eps) gamma + beta",
  .example = "net:LayerNorm({\"x\", \"gamma\", \"beta\"}, \"y\")",
  .source = "Ba, Kiros and Hinton, arXiv 1607.06450; ONNX LayerNormalization-17",
  .inputs = {{"x", "(M,N)"},
             {"gamma", "(N)", .flags = NEAP_ARG_OPTIONAL},
             {"beta", "(N)", .flags = NEAP_ARG_OPTIONAL}},
  .outputs = {{"y", "(M,N)"},
              {"mean", "(M), for the backward", .flags = NEAP_ARG_OPTIONAL | NEAP_ARG_WIDE},
              {"rstd", "(M), for the backward", .flags = NEAP_ARG_OPTIONAL | NEAP_ARG_WIDE}},
  .attrs = {[AXIS] = AXIS_ATTR, [EPS] = EPS_ATTR(1e-5)},
  .inplace = {{X, 0}},
  .n_inplace = 1,
  .infer = infer_norm,
  .cost = cost,
  .grad = grad_layer_norm,
  .sum = NEAP_SUM_RUNS,
  .kernels = NEAP_REF_CHOOSE(choose, run_layer_norm, NEAP_FLOATS),
  .cases =
    "{ {x={3,4,8}, gamma={8}, beta={8}}, {x={2,3,4,5}, gamma={4,5}, beta={4,5}, axis=3}, "
    "{x={3,6}}, {x={2,33}, gamma={33}, "
    "outputs=3}, "
    "{x={0,4}, gamma={4}, beta={4}} }",
  .long_cases = "{ {x={{1,262144}, low=0, high=1}, gamma={262144}, beta={262144}, outputs=3} }",
};

const neap_op neap_op_RmsNorm = {
  .name = "RmsNorm",
  .summary = "Divides each row by its root mean square, then scales.",
  .math = "y = x / sqrt(mean(x^2) + eps) gamma",
  .example = "net:RmsNorm({\"x\", \"gamma\"}, \"y\")",
  .source = "Zhang and Sennrich, NeurIPS 2019, equation 4",
  .inputs = {{"x", "(M,N)"}, {"gamma", "(N)", .flags = NEAP_ARG_OPTIONAL}},
  .outputs = {{"y", "(M,N)"},
              {"rstd", "(M), for the backward", .flags = NEAP_ARG_OPTIONAL | NEAP_ARG_WIDE}},
  .attrs = {[AXIS] = AXIS_ATTR, [EPS] = EPS_ATTR(1e-6)},
  .inplace = {{X, 0}},
  .n_inplace = 1,
  .infer = infer_norm,
  .cost = cost,
  .grad = grad_rms_norm,
  .sum = NEAP_SUM_RUNS,
  .kernels = NEAP_REF_CHOOSE(choose, run_rms_norm, NEAP_FLOATS),
  .cases =
    "{ {x={3,4,8}, gamma={8}}, {x={2,3,4,5}, gamma={4,5}, axis=3}, {x={3,6}}, {x={0,4}, gamma={4}} "
    "}",
  .long_cases = "{ {x={{1,262144}, low=0, high=1}, outputs=2} }",
};

const neap_op neap_op_LayerNormGrad = {
  .name = "LayerNormGrad",
  .summary = "Backward of LayerNorm.",
  .math =
    "dx = rstd (h - mean(h) - z mean(h z)), h = dy gamma;  dgamma = sum_M dy z;  dbeta = sum_M dy",
  .internal = true,
  .inputs = {{"x", "(M,N)"},
             {"gamma", "(N)", .flags = NEAP_ARG_OPTIONAL},
             {"dy", "(M,N)"},
             {"rstd", "(M)", .flags = NEAP_ARG_WIDE},
             {"mean", "(M)", .flags = NEAP_ARG_WIDE}},
  .outputs = {{"dx", "(M,N)"},
              {"dgamma", "(N)", .flags = NEAP_ARG_OPTIONAL},
              {"dbeta", "(N)", .flags = NEAP_ARG_OPTIONAL}},
  .attrs = {[AXIS] = AXIS_ATTR},
  .inplace = {{B_DY, 0}, {B_X, 0}},
  .n_inplace = 2,
  .infer = infer_grad,
  .cost = cost,
  .infinity = NEAP_INFINITY_OVERFLOWS,
  .sum = NEAP_SUM_RUNS,
  .formula =
    "m = Mean(x, axes = rest(axis), keepdim = 1); c = x - m;"
    "var = Mean(c * c, axes = rest(axis), keepdim = 1); r = view(rstd, var);"
    "s = Rsqrt(var + StopGradient(1 / (r * r) - var)); z = c * s;"
    "h = dy * given(gamma, 1); mean_h = Mean(h, axes = rest(axis), keepdim = 1);"
    "dx = s * (h - mean_h - z * Mean(h * z, axes = rest(axis), keepdim = 1));"
    "dgamma = dy * z; dbeta = dy",
  .kernels = NEAP_REF_CHOOSE(choose_grad, run_layer_norm_grad, NEAP_FLOATS),
  .cases = "{ {x={3,8}, gamma={8}, dy={3,8}, rstd={3}, mean={3}} }",
  .long_cases =
    "{ {x={{262144,4}, low=0, high=1}, gamma={4}, dy={262144,4}, rstd={262144}, mean={262144}, "
    "outputs=3}, {x={{1,262144}, low=0, high=1}, gamma={262144}, dy={{1,262144}, low=0, high=1}, "
    "rstd={1}, "
    "mean={1}, outputs=3} }",
};

const neap_op neap_op_RmsNormGrad = {
  .name = "RmsNormGrad",
  .summary = "Backward of RmsNorm.",
  .math = "dx = rstd (h - z mean(h z)), h = dy gamma;  dgamma = sum_M dy z",
  .internal = true,
  .inputs = {{"x", "(M,N)"},
             {"gamma", "(N)", .flags = NEAP_ARG_OPTIONAL},
             {"dy", "(M,N)"},
             {"rstd", "(M)", .flags = NEAP_ARG_WIDE}},
  .outputs = {{"dx", "(M,N)"}, {"dgamma", "(N)", .flags = NEAP_ARG_OPTIONAL}},
  .attrs = {[AXIS] = AXIS_ATTR},
  .inplace = {{B_DY, 0}, {B_X, 0}},
  .n_inplace = 2,
  .infer = infer_grad,
  .cost = cost,
  .infinity = NEAP_INFINITY_OVERFLOWS,
  .sum = NEAP_SUM_RUNS,
  .formula =
    "ms = Mean(x * x, axes = rest(axis), keepdim = 1); r = view(rstd, ms);"
    "s = Rsqrt(ms + StopGradient(1 / (r * r) - ms)); z = x * s;"
    "h = dy * given(gamma, 1);"
    "dx = s * (h - z * Mean(h * z, axes = rest(axis), keepdim = 1)); dgamma = dy * z",
  .kernels = NEAP_REF_CHOOSE(choose_grad, run_rms_norm_grad, NEAP_FLOATS),
  .cases = "{ {x={3,8}, gamma={8}, dy={3,8}, rstd={3}} }",
  .long_cases =
    "{ {x={{262144,4}, low=0, high=1}, gamma={4}, dy={262144,4}, rstd={262144}, outputs=2}, "
    "{x={{1,262144}, low=0, high=1}, gamma={262144}, dy={1,262144}, rstd={1}, outputs=2} }",
};
