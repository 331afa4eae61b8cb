/* batch_norm.c: BatchNorm over the channels of x (N,C,...), and its backward.
 *
 * In training y comes from the statistics of the batch, which are outputs: the backward reads them,
 * and a RunningAverage commits them to the running ones. They are f32 where x is bf16 or f16: a
 * rounded mean would shift all of y. Else y comes from running_mean and
 * running_var, and mean and var, when asked for, are copies of these. With `relu` (set by a rewrite
 * of the graph) y is max(y, 0) and the stash keeps which elements passed: one bit each in rows of
 * whole bytes, a row per plane (n,c); under oneDNN its workspace.
 */
#include "math/vec.h"
#include "ops/fused.h"
#include "ops/rows.h"

#include <string.h>

enum { EPS, TRAINING, RELU };
enum { X, GAMMA, BETA, RUNNING_MEAN, RUNNING_VAR };

/* ---- inference ------------------------------------------------------------------------------- */

/* x (N,C,...); gamma, beta and running statistics (C), the latter needed without training. y like
 * x, then mean and variance (C) and the stash of a relu. */
static neap_status infer(neap_infer *c, neap_error *error) {
  char text[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_same_dtype(c, 0, error));
  NEAP_TRY(neap_infer_rank(c, X, 2, NEAP_MAX_DIM, error));
  neap_type vector = {neap_compute_dtype(c->in[X].dtype), NEAP_SHAPE(c->in[X].shape.dim[1])};
  for (int i = GAMMA; i < c->n_in; i++)
    if (c->in[i].dtype != NEAP_DTYPE_NONE && !neap_shape_equal(&c->in[i].shape, &vector.shape))
      return neap_infer_fail(c, NEAP_SHAPE, i, error,
                             "%s expects one value a channel, (%lld), got %s",
                             c->op->inputs[i].name, (long long)vector.shape.dim[0],
                             neap_shape_text(&c->in[i].shape, text));
  if (c->attrs[TRAINING].i == 0)
    for (int i = RUNNING_MEAN; i <= RUNNING_VAR; i++)
      if (i >= c->n_in || c->in[i].dtype == NEAP_DTYPE_NONE)
        return neap_infer_fail(c, NEAP_ARGUMENT, i, error, "%s is needed unless training = true",
                               c->op->inputs[i].name);
  c->out[0] = c->in[X];
  for (int k = 1; k < NEAP_MIN(c->n_out, 3); k++) c->out[k] = vector;
  /* the choice knows its bytes */
  if (c->n_out > 3) c->out[3] = (neap_type){NEAP_DTYPE_U8, NEAP_SHAPE(0)};
  return NEAP_OK;
}

/* Of the stash only graph knows whose it is, and the choice how many bytes it has. */
static neap_status infer_grad(neap_infer *c, neap_error *error) {
  neap_infer floats = *c;
  floats.n_in = NEAP_MIN(c->n_in, 5);
  NEAP_TRY(neap_infer_same_dtype(&floats, 0, error));
  NEAP_TRY(neap_infer_rank(c, 0, 2, NEAP_MAX_DIM, error));
  /* Gradients are of the parameters' dtype, statistics at least f32. */
  neap_type vector = {c->in[0].dtype, NEAP_SHAPE(c->in[0].shape.dim[1])}, statistic = vector;
  statistic.dtype = neap_compute_dtype(vector.dtype);
  const neap_type *want[] = {&c->in[0], &c->in[0], &statistic, &statistic, &vector};
  for (int i = 1; i < floats.n_in; i++) NEAP_TRY(neap_infer_expect(c, i, want[i], error));
  c->out[0] = c->in[0];
  for (int k = 1; k < c->n_out; k++) c->out[k] = vector;
  return NEAP_OK;
}

/* Two passes for the statistics, one for y. */
static void cost(const neap_infer *c, neap_cost *cost) {
  cost->flops = (c->attrs[TRAINING].i != 0 ? 5.0 : 2.0) * (double)neap_shape_elems(&c->in[X].shape);
}

static void cost_grad(const neap_infer *c, neap_cost *cost) {
  cost->flops = 9.0 * (double)neap_shape_elems(&c->in[X].shape);
}

static neap_status grad(neap_grad *g, neap_error *error) {
  if (g->n_out < 4)
    return neap_fail(error, NEAP_INTERNAL, "BatchNorm has no statistics to differentiate with");
  neap_value_id out[3];
  int n_in = g->attrs[RELU].i != 0 ? 6 : 5; /* without a relu there is nothing in the stash */
  neap_grad_emit(
    g, "BatchNormGrad", n_in,
    (neap_value_id[]){g->in[X], g->dout[0], g->out[1], g->out[2], g->in[GAMMA], g->out[3]}, 3, out,
    g, NULL);
  for (int i = 0; i < 3; i++)
    if (g->want[i]) g->din[i] = out[i];
  return NEAP_OK;
}

/* ---- plain loops: a channel at a time, sums in double, halves in tiles ----------------------- */

typedef struct job {
  int64_t n, channels, l; /* x (n, channels, l) */
  double eps;
  bool training, relu;
  const neap_operand *x, *dy, *gamma, *beta, *mean_in, *var_in;
  const neap_operand *y, *mean, *var, *dx, *dgamma, *dbeta; /* mean, var: NULL: nobody asks */
  /* (n, channels, mask_row bytes); NULL when nobody asks */
  uint8_t *mask;
  int64_t mask_row;
} job;

#define NEAP_BODY "ops/batch_norm_body.h"
#include "math/each_float.h"

/* x as (N,C,L). What differs between forward and backward is set by them. */
static job new_job(const neap_call *call) {
  const neap_shape *x = &call->in[X].type.shape;
  job j = {
    .n = x->dim[0], .channels = x->dim[1], .l = neap_shape_span(x, 2, x->n_dim), .x = &call->in[X]};
  j.eps = call->attrs[EPS].f;
  j.training = call->attrs[TRAINING].i != 0, j.relu = call->attrs[RELU].i != 0;
  j.mask_row = (j.l + 7) / 8;
  return j;
}

/* A channel belongs to one thread, so its sums have the same order on any number of threads. */
static void run_channels(const neap_call *call, job *j, void (*f32)(void *, int64_t, int64_t),
                         void (*f64)(void *, int64_t, int64_t)) {
  neap_parallel_for(j->channels, NEAP_MAX(1, NEAP_GRAIN / NEAP_MAX(1, j->n * j->l)), call->n_thread,
                    call->in[X].type.dtype == NEAP_DTYPE_F64 ? f64 : f32, j);
}

/* Statistics that nobody asks for are computed in training all the same, and written nowhere. */
static void run(const neap_call *call) {
  job j = new_job(call);
  j.gamma = &call->in[GAMMA], j.beta = &call->in[BETA], j.y = &call->out[0];
  if (!j.training) j.mean_in = &call->in[RUNNING_MEAN], j.var_in = &call->in[RUNNING_VAR];
  if (call->n_out > 1 && call->out[1].data != NULL) j.mean = &call->out[1];
  if (call->n_out > 2 && call->out[2].data != NULL) j.var = &call->out[2];
  j.mask = call->n_out > 3 ? call->out[3].data : NULL;
  run_channels(call, &j, forward_f32, forward_f64);
}

/* Inputs: x, dy, mean, variance, gamma and, with a relu, its mask. */
static void run_grad(const neap_call *call) {
  job j = new_job(call);
  j.dy = &call->in[1], j.mean_in = &call->in[2], j.var_in = &call->in[3], j.gamma = &call->in[4];
  j.mask = call->n_in > 5 ? call->in[5].data : NULL;
  j.relu = j.relu && j.mask != NULL;
  j.dx = &call->out[0], j.dgamma = &call->out[1], j.dbeta = &call->out[2];
  run_channels(call, &j, backward_f32, backward_f64);
}

/* One bit for each element; every plane (n, c) begins on a byte, so that channels can be written in
 * parallel. */
static int64_t mask_bytes(const neap_shape *x) {
  return x->dim[0] * x->dim[1] * ((neap_shape_span(x, 2, x->n_dim) + 7) / 8);
}

static bool choose(neap_choose *c) {
  if (c->n_out > 3 && c->attrs[RELU].i != 0)
    c->choice->stash_bytes = (size_t)mask_bytes(&c->in[X].shape);
  return true;
}

/* A mask means what the forward's engine means by it; one that comes without its forward must have
 * the bytes of one that this engine writes. */
static bool choose_grad(neap_choose *c) {
  if (c->attrs[RELU].i == 0 || c->n_in < 6 || c->in[5].dtype == NEAP_DTYPE_NONE) return true;
  if (c->pair != NULL) return c->pair->engine == NEAP_ENGINE_REF;
  return neap_shape_elems(&c->in[5].shape) == mask_bytes(&c->in[0].shape);
}

/* ---- oneDNN ---------------------------------------------------------------------------------- */

static void describe(neap_onednn_case *c, const neap_attr_value *attrs) {
  c->eps = attrs[EPS].f;
  c->global_stats = attrs[TRAINING].i == 0;
  /* With given statistics NaN is in single elements, of which oneDNN's relu makes 0: where no
   * backward asks for a mask it is a pass of its own. */
  c->relu = attrs[RELU].i != 0 && !(c->global_stats && c->n_out < 4);
}

/* oneDNN normalises bf16 by vectors of f32: gamma and beta are widened, and the gradients of both
 * rounded, at the head of the scratch, where each has its row. Of f32 there are none. */
static size_t row_bytes(const neap_shape *x) {
  return neap_align(neap_size_mul((size_t)x->dim[1], sizeof(float)));
}

static size_t rows_bytes(const neap_type *x, int n_row) {
  return neap_is_half(x->dtype) ? neap_size_mul((size_t)n_row, row_bytes(&x->shape)) : 0;
}

/* The operands of a case as oneDNN takes them: of halves the vectors as f32. */
typedef struct wide_types {
  neap_type in[NEAP_ONEDNN_MAX_IN], out[NEAP_ONEDNN_MAX_OUT];
} wide_types;

static void widen_vectors(neap_onednn_case *c, wide_types *types) {
  /* Vectors are told by their rank. A stash has it too, but bytes are computed as bytes. */
  for (int i = 0; i < c->n_in; i++) {
    types->in[i] = c->in[i];
    if (c->in[i].shape.n_dim == 1) types->in[i].dtype = neap_compute_dtype(c->in[i].dtype);
  }
  for (int k = 0; k < c->n_out; k++) {
    types->out[k] = c->out[k];
    if (c->out[k].shape.n_dim == 1) types->out[k].dtype = neap_compute_dtype(c->out[k].dtype);
  }
  c->in = types->in;
  c->out = types->out;
}

/* The choice of the case, with room for `n_row` vectors. */
static bool choose_with_rows(neap_choose *choose, neap_onednn_case *c, int n_row) {
  wide_types types;
  const size_t bytes = rows_bytes(&choose->in[X], n_row);
  if (c->n_in > NEAP_ONEDNN_MAX_IN || c->n_out > NEAP_ONEDNN_MAX_OUT) return false;
  widen_vectors(c, &types);
  if (!neap_dnnl_choose(choose, c)) return false;
  choose->choice->scratch_bytes = neap_size_add(choose->choice->scratch_bytes, bytes);
  return true;
}

/* The kernel's own scratch is what stands behind the vectors. */
static neap_status bind_with_rows(const neap_bind *bind, neap_onednn_case *c, int n_row,
                                  void **kernel, neap_error *error) {
  wide_types types;
  neap_choice choice = *bind->choice;
  neap_bind inner = *bind;
  inner.choice = &choice;
  choice.scratch_bytes -= rows_bytes(&bind->in[X], n_row);
  widen_vectors(c, &types);
  return neap_dnnl_bind(&inner, c, kernel, error);
}

/* Row k of the scratch in place of an operand's elements. */
static void *take_row(const neap_call *call, int k, neap_operand *operand) {
  operand->type.dtype = NEAP_DTYPE_F32;
  operand->data = (char *)call->scratch + (size_t)k * row_bytes(&call->in[X].type.shape);
  return operand->data;
}

/* oneDNN 2.6's kernels for layouts that are not blocked wait for all threads of the region around
 * them, whatever their own number: on one lane of a dag that is for ever. */
static bool waits_for_the_others(const neap_choice *choice) {
  return choice->n_thread <= 1 && choice->in[0].kind != NEAP_LAYOUT_BLOCKED;
}

/* oneDNN adds up a plane in f32, one element after the other, and of x (N,C) the rows; some do so
 * with the planes of all images: so many at most. In blocks of channels it goes on from image to
 * image: a variance of a million elements is 1.6e-4 off, one of four million 6e-4 (measured). */
enum { MOST_ADDED = 1 << 14, MOST_IN_BLOCKS = 1 << 20 };
static bool has_short_sums(const neap_shape *x, const neap_layout *layout) {
  int64_t plane = x->n_dim > 2 ? neap_shape_span(x, 2, x->n_dim) : 1;
  int64_t all = neap_count_mul(plane, x->dim[0]);
  if (layout->kind == NEAP_LAYOUT_BLOCKED) return plane <= MOST_ADDED && all <= MOST_IN_BLOCKS;
  return (x->n_dim <= 2 || neap_onednn_norm_adds_images ? all : plane) <= MOST_ADDED;
}

static bool choose_dnnl(neap_choose *choose) {
  /* Layouts to follow are another size's; the sums are of this one. */
  neap_onednn_case c = neap_dnnl_case_choose(choose, NEAP_ONEDNN_NORM);
  const neap_layout *layout = choose->like != NULL ? &choose->like->in[X] : &choose->in_layout[X];
  describe(&c, choose->attrs);
  /* Given statistics are no sums. */
  if (!c.global_stats && !has_short_sums(&choose->in[X].shape, layout)) return false;
  if (c.global_stats && c.relu) return false;
  /* it writes them, asked or not */
  if (!c.global_stats && (c.n_out < 3 || (c.relu && c.n_out < 4))) return false;
  /* Of halves there is only what trains: else it is a factor and a shift, which rows.h has. */
  if (neap_is_half(choose->in[X].dtype) && c.global_stats) return false;
  return choose_with_rows(choose, &c, 2) && !waits_for_the_others(choose->choice);
}

static neap_status bind_dnnl(const neap_bind *bind, void **kernel, neap_error *error) {
  neap_onednn_case c = neap_dnnl_case_bind(bind, NEAP_ONEDNN_NORM);
  /* The case that choose has asked about. */
  describe(&c, bind->attrs);
  return bind_with_rows(bind, &c, 2, kernel, error);
}

/* Fills channel c of y with NaN. A layout of it is plain, in blocks of channels, or channels last;
 * in all of them the elements of one image's channel lie `step` apart. */
static void fill_channel(const neap_operand *y, int64_t c) {
  const neap_shape *shape = &y->type.shape;
  const neap_layout *layout = &y->layout;
  int64_t plane = neap_shape_span(shape, 2, shape->n_dim), channels = shape->dim[1];
  int64_t first = c * plane, step = 1, image = channels * plane;
  /* In blocks a channel's elements lie a block apart, channels last all of them. */
  if (layout->kind == NEAP_LAYOUT_BLOCKED && layout->n_inner > 0) {
    int64_t block = layout->inner_block[0];
    first = c / block * block * plane + c % block;
    step = block;
    image = (channels + block - 1) / block * block * plane;
  } else if (layout->kind == NEAP_LAYOUT_BLOCKED) {
    first = c;
    step = channels;
  }
  for (int64_t n = 0; n < shape->dim[0]; n++)
    for (int64_t s = 0; s < plane; s++)
      neap_cast(y->type.dtype, neap_element_at(y, n * image + first + s * step), NEAP_DTYPE_F32,
                &(float){NAN}, 1);
}

/* oneDNN's relu behind its norm makes 0 of NaN. A batch with NaN or infinities in a channel has no
 * mean or variance there, and all of that channel is NaN, as it is by `ref`. */
static void keep_nan(const neap_call *call) {
  const float *mean = call->out[1].data, *var = call->out[2].data;
  const float *gamma = call->in[GAMMA].data, *beta = call->in[BETA].data;
  for (int64_t c = 0; c < call->out[0].type.shape.dim[1]; c++) {
    bool is_number = isfinite(mean[c]) && !isnan(var[c]);
    if (gamma != NULL) is_number = is_number && !isnan(gamma[c]);
    if (beta != NULL) is_number = is_number && !isnan(beta[c]);
    if (!is_number) fill_channel(&call->out[0], c);
  }
}

/* Given statistics are not written by oneDNN: the outputs mean and var are then copies of the
 * running ones. */
static void run_dnnl_wide(const neap_call *call) {
  neap_dnnl_run(call);
  /* The record promises that NaN stays, whichever engine computes. */
  if (call->attrs[TRAINING].i != 0 && call->attrs[RELU].i != 0) keep_nan(call);
  if (call->attrs[TRAINING].i != 0) return;
  if (call->attrs[RELU].i != 0) neap_fused_end(call, NEAP_ACTIVATION_RELU);
  for (int k = 1; k < NEAP_MIN(call->n_out, 3); k++)
    if (call->out[k].data != NULL)
      memcpy(call->out[k].data, call->in[RUNNING_MEAN + k - 1].data,
             neap_type_bytes(&call->out[k].type));
}

static void run_dnnl(const neap_call *call) {
  const neap_dtype dtype = call->in[X].type.dtype;
  if (!neap_is_half(dtype)) {
    run_dnnl_wide(call);
    return;
  }

  /* Halves: gamma and beta in f32 at the head of the scratch, the kernel's own scratch behind
   * them. */
  neap_operand in[NEAP_ONEDNN_MAX_IN];
  memcpy(in, call->in, (size_t)call->n_in * sizeof *in);
  for (int i = GAMMA; i <= BETA; i++)
    neap_cast(NEAP_DTYPE_F32, take_row(call, i - GAMMA, &in[i]), dtype, call->in[i].data,
              in[i].type.shape.dim[0]);
  neap_call inner = *call;
  inner.in = in;
  inner.scratch = (char *)call->scratch + rows_bytes(&call->in[X].type, 2);
  run_dnnl_wide(&inner);
}

/* With a relu only behind oneDNN's own forward: the mask is in its format. */
static bool choose_dnnl_grad(neap_choose *choose) {
  neap_onednn_case c = neap_dnnl_case_choose(choose, NEAP_ONEDNN_NORM_GRAD);
  describe(&c, choose->attrs);
  if (c.relu && (c.n_in < 6 || choose->pair == NULL || choose->pair->engine != NEAP_ENGINE_DNNL))
    return false;
  /* x and the mask are laid out as the forward's x */
  if (choose->pair != NULL) c.in_layout[0] = choose->pair->in[0];
  c.in_layout[1] = c.in_layout[0];
  if (!has_short_sums(&choose->in[0].shape, &c.in_layout[0])) return false;
  return choose_with_rows(choose, &c, 3) && !waits_for_the_others(choose->choice);
}

static neap_status bind_dnnl_grad(const neap_bind *bind, void **kernel, neap_error *error) {
  neap_onednn_case c = neap_dnnl_case_bind(bind, NEAP_ONEDNN_NORM_GRAD);
  describe(&c, bind->attrs);
  return bind_with_rows(bind, &c, 3, kernel, error);
}

static void run_dnnl_grad(const neap_call *call) {
  enum { GRAD_GAMMA = 4, DGAMMA = 1, DBETA = 2 };
  const neap_dtype dtype = call->in[X].type.dtype;
  if (!neap_is_half(dtype)) {
    neap_dnnl_run(call);
    return;
  }

  /* Halves: gamma in f32, and room for the gradients of gamma and beta, which are rounded at the
   * end. */
  const int64_t channels = call->in[X].type.shape.dim[1];
  neap_operand in[NEAP_ONEDNN_MAX_IN], out[NEAP_ONEDNN_MAX_OUT];
  memcpy(in, call->in, (size_t)call->n_in * sizeof *in);
  memcpy(out, call->out, (size_t)call->n_out * sizeof *out);
  neap_cast(NEAP_DTYPE_F32, take_row(call, 0, &in[GRAD_GAMMA]), dtype, call->in[GRAD_GAMMA].data,
            channels);
  for (int k = DGAMMA; k <= DBETA; k++) take_row(call, k, &out[k]);
  neap_call inner = *call;
  inner.in = in;
  inner.out = out;
  inner.scratch = (char *)call->scratch + rows_bytes(&call->in[X].type, 3);
  neap_dnnl_run(&inner);
  for (int k = DGAMMA; k <= DBETA; k++)
    neap_cast(dtype, call->out[k].data, NEAP_DTYPE_F32, out[k].data, channels);
}

/* ---- records --------------------------------------------------------------------------------- */

#define ATTRS                                                                                    \
  [EPS] = {"eps",    "added to the variance", NEAP_ATTR_FLOAT, .value = {.f = 1e-5}, .least = 0, \
           .most = 1},                                                                           \
  [TRAINING] = {"training", "use the statistics of this batch, not the running ones",            \
                NEAP_ATTR_BOOL},                                                                 \
  [RELU] = {"relu", "y = max(y, 0) at the end", NEAP_ATTR_BOOL}

const neap_op neap_op_BatchNorm = {
  .name = "BatchNorm",
  .summary = "Normalises each channel to mean 0 and variance 1, then scales and shifts it.",
  .math = "y = gamma (x - mean) / sqrt(var + eps) + beta",
  .example =
    "net:BatchNorm({\"x\", \"gamma\", \"beta\"}, {\"y\", \"mean\", \"var\"}, {training = true})",
  .source = "Ioffe and Szegedy, arXiv 1502.03167; ONNX BatchNormalization-15",
  .inputs = {{"x", "(N,C,...)"},
             {"gamma", "(C)"},
             {"beta", "(C)"},
             {"running_mean", "(C)", .flags = NEAP_ARG_OPTIONAL | NEAP_ARG_WIDE},
             {"running_var", "(C)", .flags = NEAP_ARG_OPTIONAL | NEAP_ARG_WIDE}},
  .outputs = {{"y", "shape of x"},
              {"mean", "(C), of the batch", .flags = NEAP_ARG_OPTIONAL | NEAP_ARG_WIDE},
              {"var", "(C), of the batch, biased", .flags = NEAP_ARG_OPTIONAL | NEAP_ARG_WIDE},
              {"stash", "which elements passed the relu", NEAP_BIT(U8),
               NEAP_ARG_OPTIONAL | NEAP_ARG_STASH}},
  .attrs = {ATTRS},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .infer = infer,
  .cost = cost,
  .grad = grad,
  .sum = NEAP_SUM_LIBRARY,
  .kernels = (const neap_kernel[]){{.engine = NEAP_ENGINE_DNNL,
                                    .dtypes = NEAP_BIT(F32) | NEAP_HALVES,
                                    .widens = true,
                                    .choose = choose_dnnl,
                                    .bind = bind_dnnl,
                                    .infinity = NEAP_INFINITY_VANISHES,
                                    .unbind = neap_dnnl_unbind,
                                    .run = run_dnnl},
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_FLOATS,
                                    .any_team = true,
                                    .choose = choose,
                                    .run = run},
                                   {0}},
  .cases =
    "{ {x={4,3,5,5}, gamma={3}, beta={3}, training=true, tol=1e-4}, {x={2,20,4,4}, gamma={20}, "
    "beta={20}, training=true, "
    "tol=1e-4},"
    " {x={6,16}, gamma={16}, beta={16}, training=true, tol=1e-4},"
    " {x={2,3,4,5}, gamma={3}, beta={3}, running_mean={3}, running_var={{3}, low=0.5, high=2}, "
    "wrt={\"x\", \"gamma\", \"beta\"}, "
    "tol=1e-4},"
    " {x={2,20,3,3}, gamma={20}, beta={20}, training=true, relu=true, tol=1e-4},"
    " {x={2,32,3,3}, gamma={32}, beta={32}, running_mean={32}, running_var={{32}, low=0.5, "
    "high=2}, "
    "relu=true, wrt={}, tol=1e-4},"
    " {x={2,5,3,3}, gamma={5}, beta={5}, training=true, outputs=3, tol=1e-4} }",
  .long_cases =
    "{ {x={{262144,4}, low=0, high=1}, gamma={4}, beta={4}, training=true, outputs=3} }",
};

const neap_op neap_op_BatchNormGrad = {
  .name = "BatchNormGrad",
  .summary = "Backward of BatchNorm.",
  .math =
    "dbeta = sum dy;  dgamma = sum dy xhat;  dx = gamma / sqrt(var + eps) (dy - mean(dy) - xhat "
    "mean(dy xhat))",
  .internal = true,
  .inputs = {{"x", "(N,C,...)"},
             {"dy", "shape of x"},
             {"mean", "(C)", .flags = NEAP_ARG_WIDE},
             {"var", "(C)", .flags = NEAP_ARG_WIDE},
             {"gamma", "(C)"},
             {"stash", "of the forward", NEAP_BIT(U8), NEAP_ARG_OPTIONAL | NEAP_ARG_STASH}},
  .outputs = {{"dx", "shape of x"}, {"dgamma", "(C)"}, {"dbeta", "(C)"}},
  .attrs = {ATTRS},
  .inplace = {{1, 0}},
  .n_inplace = 1,
  .infer = infer_grad,
  .cost = cost_grad,
  .nan = NEAP_NAN_REACHES,
  .sum = NEAP_SUM_LIBRARY,
  .formula =
    "h = relu ? undefined(relu) : dy; m = Mean(x, axes = others(1), keepdim = 1);"
    "c = x - (training ? m : view(StopGradient(mean), m));"
    "v = training ? Mean(c * c, axes = others(1), keepdim = 1) : view(StopGradient(var), m);"
    "s = Rsqrt(v + eps); z = c * s; hg = h * view(gamma, m);"
    "mean_hg = Mean(hg, axes = others(1), keepdim = 1);"
    "mean_z = Mean(hg * z, axes = others(1), keepdim = 1);"
    "dx = training ? s * (hg - mean_hg - z * mean_z) : s * hg;"
    "dgamma = Sum(h * z, axes = others(1)); dbeta = Sum(h, axes = others(1))",
  .kernels = (const neap_kernel[]){{.engine = NEAP_ENGINE_DNNL,
                                    .dtypes = NEAP_BIT(F32) | NEAP_HALVES,
                                    .widens = true,
                                    .choose = choose_dnnl_grad,
                                    .bind = bind_dnnl_grad,
                                    .unbind = neap_dnnl_unbind,
                                    .run = run_dnnl_grad},
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_FLOATS,
                                    .any_team = true,
                                    .choose = choose_grad,
                                    .run = run_grad},
                                   {0}},
  .cases =
    "{ {x={4,3,5,5}, dy={4,3,5,5}, mean={3}, var={{3}, low=0.5, high=2}, gamma={3}, training=true, "
    "tol=1e-4}, "
    "{x={2,20,3,3}, dy={2,20,3,3}, mean={20}, var={{20}, low=0.5, high=2}, gamma={20}, tol=1e-4} }",
  .long_cases =
    "{ {x={{16,16,128,128}, low=0, high=1}, dy={16,16,128,128}, mean={16}, var={16}, gamma={16}, "
    "training=true}, {x={{262144,4}, low=0, high=1}, dy={262144,4}, mean={4}, var={4}, gamma={4}, "
    "training=true, tol=1e-5} }",
};
