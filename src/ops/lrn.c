/* lrn.c: LRN, local response normalisation across neighbouring channels, and its backward op.
 *
 * A tile is all channels of some positions, loaded into scratch as a dense matrix (C,P). There the
 * neighbours of element i lie at i + k P, so that one loop of vector code sums the windows for
 * every layout: plain takes a run of P positions, a layout whose channels are dense (blocked, or
 * last) takes one position. A tile is loaded whole before it is stored, so y may be x, and dx may
 * be x or dy.
 *
 * With s the sums, bias + alpha / size times the squares in the window, y = x s^-beta and
 * dx_c = dy_c s_c^-beta - 2 alpha beta / size x_c sum of dy x s^(-beta - 1) over the channels whose
 * windows hold c.
 *
 * bf16 and f16 are widened into the scratch, a tile at a time, and rounded once when a tile is
 * stored (ops/rows.h): the rows of a tile are its pieces.
 *
 * The backward computes the sums again from x: that costs less than keeping them, and x is kept by
 * others anyway. (oneDNN's kernel would keep a workspace of twice x.)
 *
 * INVARIANT: each part of the work has scratch of its own, by its number and not by the thread that
 * does it.
 */
#include "math/vec.h"
#include "ops/rows.h"

#include <string.h>
#include <tgmath.h>

enum { SIZE, ALPHA, BETA, BIAS };
/* of a tile's buffers: what first and second level caches hold with room to spare */
enum { TILE_ELEMS = 4096 };

typedef struct job {
  int64_t n_image, n_channel, n_space;
  int64_t block;               /* channels that lie side by side; 1 in a plain layout */
  int64_t tile;                /* P, positions at a time */
  int64_t size, before, after; /* the window of channel c: c - before .. c + after */
  double alpha, beta, bias;    /* alpha is divided by size already */
  int64_t n_part;
  char *scratch;
  const neap_operand *x, *dy, *out; /* dy: NULL in the forward */
} job;

/* ---- sizes ----------------------------------------------------------------------------------- */

/* Channels that lie side by side: all with channels last, a block of them, or one. 0: a layout that
 * tiles can't load. */
static int64_t dense_channels(const neap_layout *layout, const neap_shape *x) {
  if (layout->kind == NEAP_LAYOUT_PLAIN) return 1;
  if (layout->kind != NEAP_LAYOUT_BLOCKED || layout->n_inner > 1 || x->n_dim < 3) return 0;
  /* Dimensions in the order 0 2 3 1, channels last, or 0 1 2 3 with a block of channels. */
  bool last = layout->n_inner == 0;
  for (int d = 0; d < x->n_dim; d++) {
    int expected = d;
    if (last && d > 0) expected = d + 1 < x->n_dim ? d + 1 : 1;
    if (layout->order[d] != expected) return 0;
  }
  if (last) return x->dim[1];
  return layout->inner_dim[0] == 1 ? layout->inner_block[0] : 0;
}

/* Geometry and constants for x in `layout`; pointers are left to run. An even size has its extra
 * channel after c. */
static job job_of(const neap_type *x, const neap_layout *layout, const neap_attr_value *attrs,
                  int n_part) {
  job k = {.n_image = x->shape.dim[0],
           .n_channel = x->shape.dim[1],
           .size = attrs[SIZE].i,
           .n_part = NEAP_MAX(n_part, 1)};
  k.n_space = neap_shape_span(&x->shape, 2, x->shape.n_dim);
  k.block = NEAP_MAX(dense_channels(layout, &x->shape), 1);
  k.before = (k.size - 1) / 2;
  k.after = k.size - 1 - k.before;
  k.alpha = attrs[ALPHA].f / (double)k.size, k.beta = attrs[BETA].f, k.bias = attrs[BIAS].f;
  /* Where channels are dense a tile is one position; in a plain layout it is as many as the buffers
   * have room for. */
  k.tile =
    k.block > 1 ? 1 : NEAP_MAX(NEAP_MIN(TILE_ELEMS / NEAP_MAX(k.n_channel, 1), k.n_space), 1);
  return k;
}

/* Pieces of a tile: rows of channels that lie side by side, the last of them with padding lanes. */
static int64_t n_piece(const job *k) { return (k->n_channel + k->block - 1) / k->block; }

/* Elements of three buffers of a tile with its margins. */
static int64_t buffer_elems(const job *k) { return 3 * (k->n_channel + k->size) * k->tile; }

/* Elements of a tile of x, or of dy, that is widened. */
static int64_t wide_elems(const job *k) { return n_piece(k) * k->block * k->tile; }

/* Buffers, and for halves a tile of each input. */
static size_t part_bytes(const job *k, neap_dtype dtype, int n_in) {
  int64_t n = buffer_elems(k) + (neap_is_half(dtype) ? n_in * wide_elems(k) : 0);
  return neap_align((size_t)n * neap_dtype_bytes(neap_compute_dtype(dtype)));
}

/* ---- plain loops ----------------------------------------------------------------------------- */

#define NEAP_BODY "ops/lrn_body.h"
#include "math/each_float.h"

/* Forward and backward, which has dy as its second input. */
static void run(const neap_call *call) {
  job k = job_of(&call->in[0].type, &call->in[0].layout, call->attrs, call->choice->n_thread);
  if (neap_shape_elems(&call->in[0].type.shape) == 0) return;
  k.x = &call->in[0];
  k.dy = call->n_in > 1 ? &call->in[1] : NULL;
  k.out = &call->out[0];
  k.scratch = call->scratch;
  NEAP_ASSERT(
    (size_t)k.n_part * part_bytes(&k, k.x->type.dtype, call->n_in) <= call->choice->scratch_bytes,
    "each of %lld parts has scratch of its own: %zu bytes are too few", (long long)k.n_part,
    call->choice->scratch_bytes);
  neap_parallel_for(k.n_part, 1, call->n_thread,
                    call->in[0].type.dtype == NEAP_DTYPE_F64 ? parts_f64 : parts_f32, &k);
}

/* Takes x as it lies, and dy like it. */
static bool choose(neap_choose *c) {
  neap_layout plain = {0}, layout = dense_channels(&c->in_layout[0], &c->in[0].shape) > 0
                                      ? c->in_layout[0]
                                      : plain;
  job k = job_of(&c->in[0], &layout, c->attrs, c->choice->n_thread);
  for (int i = 0; i < c->n_in; i++) c->choice->in[i] = layout;
  c->choice->out[0] = layout;
  c->choice->scratch_bytes = (size_t)k.n_part * part_bytes(&k, c->in[0].dtype, c->n_in);
  return true;
}

static neap_status infer(neap_infer *c, neap_error *error) {
  NEAP_TRY(neap_infer_rank(c, 0, 2, NEAP_MAX_DIM, error));
  return neap_infer_like(c, error);
}

/* Of each element: square, size additions, two roots and a division; twice that in the backward. */
static void cost(const neap_infer *c, neap_cost *cost) {
  cost->flops =
    (double)c->n_in * (double)(c->attrs[SIZE].i + 6) * (double)neap_shape_elems(&c->out[0].shape);
}

static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  g->din[0] = neap_grad_emit1(g, "LRNGrad", 2, (neap_value_id[]){g->in[0], g->dout[0]}, g, NULL);
  return NEAP_OK;
}

#define ATTRS                                                                                  \
  [SIZE] = {"size",      "channels in a window", NEAP_ATTR_INT, .value = {.i = 5}, .least = 1, \
            .most = 1024},                                                                     \
  [ALPHA] = {"alpha", "weight of the mean of squares", NEAP_ATTR_FLOAT, .value = {.f = 1e-4}}, \
  [BETA] = {"beta", "exponent", NEAP_ATTR_FLOAT, .value = {.f = 0.75}},                        \
  [BIAS] = {"bias", "k of the paper", NEAP_ATTR_FLOAT, .value = {.f = 1}}

const neap_op neap_op_LRN = {
  .name = "LRN",
  .summary =
    "Local response normalisation: division by a power of the mean square of neighbouring "
    "channels.",
  .math =
    "y_c = x_c / (bias + alpha / size * sum of x_k^2, k = c - (size-1)/2 .. c + size/2) ^ beta",
  .example = "net:LRN(\"x\", \"y\", {size = 5})",
  .source =
    "Krizhevsky et al., NIPS 2012, section 3.3, with alpha divided by size as in ONNX LRN-13, "
    "Caffe and PyTorch",
  .inputs = {{"x", "(N,C,...)"}},
  .outputs = {{"y", "shape of x"}},
  .attrs = {ATTRS},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .infer = infer,
  .cost = cost,
  .grad = grad,
  .infinity = NEAP_INFINITY_VANISHES,
  .kernels = NEAP_REF_CHOOSE(choose, run, NEAP_FLOATS),
  .cases =
    "{ {x={2,7,3,4}, alpha=0.3}, {x={2,3,5}, size=4, alpha=0.5, beta=0.6, bias=1.5}, "
    "{x={3,20,5,5}, size=3, alpha=1}, "
    "{x={1,2,70,70}, alpha=0.1}, {x={4,6}, size=9, alpha=1, beta=0.5}, {x={0,3,2,2}}, {x={1,5,3}, "
    "size=1, alpha=0.2} }",
};

const neap_op neap_op_LRNGrad = {
  .name = "LRNGrad",
  .summary = "Backward of LRN; the sums are computed again from x.",
  .math =
    "dx_c = dy_c s_c^-beta - 2 alpha beta / size x_c * sum over windows k that hold c of dy_k y_k "
    "/ s_k",
  .internal = true,
  .inputs = {{"x", "(N,C,...)"}, {"dy", "shape of x"}},
  .outputs = {{"dx", "shape of x"}},
  .attrs = {ATTRS},
  .inplace = {{1, 0}, {0, 0}},
  .n_inplace = 2,
  .infer = infer,
  .cost = cost,
  .formula =
    "s = bias + alpha * ChannelMean(x * x, size = size); r = Pow(s, -beta);"
    "t = ChannelMean(dy * x * r / s, size = size, turned = 1);"
    "dx = dy * r - 2 * alpha * beta * x * t",
  .kernels = NEAP_REF_CHOOSE(choose, run, NEAP_FLOATS),
  .cases =
    "{ {x={2,7,3,4}, dy={2,7,3,4}, alpha=0.3}, {x={2,3,5}, dy={2,3,5}, size=4, alpha=0.5, "
    "beta=0.6} }",
};

/* ---- the window alone, for the gradient of the gradient -------------------------------------- */

enum { TURNED = SIZE + 1 };

typedef struct mean_job {
  int64_t n_channel, n_space, before, after;
  double share;
  const neap_operand *x, *y;
} mean_job;

#define NEAP_BODY "ops/channel_mean_body.h"
#include "math/each_float.h"

/* An even size has its extra channel after c; turned, before it. */
static void run_mean(const neap_call *call) {
  const neap_type *x = &call->in[0].type;
  int64_t size = call->attrs[SIZE].i;
  mean_job k = {.n_channel = x->shape.dim[1],
                .n_space = neap_shape_span(&x->shape, 2, x->shape.n_dim),
                .before = (size - 1) / 2,
                .after = size / 2,
                .share = 1 / (double)size,
                .x = &call->in[0],
                .y = &call->out[0]};
  if (call->attrs[TURNED].i != 0) {
    k.before = size / 2;
    k.after = (size - 1) / 2;
  }
  int64_t work = NEAP_MAX(k.n_space * NEAP_MIN(size, k.n_channel), 1);
  neap_parallel_for(x->shape.dim[0] * k.n_channel, NEAP_MAX(NEAP_GRAIN / work, 1), call->n_thread,
                    x->dtype == NEAP_DTYPE_F64 ? channel_mean_f64 : channel_mean_f32, &k);
}

const neap_op neap_op_ChannelMean = {
  .name = "ChannelMean",
  .summary = "The mean over a window of neighbouring channels; those that there are not are 0.",
  .math = "y_c = 1 / size * sum of x_k, k = c - (size-1)/2 .. c + size/2",
  .internal = true,
  .inputs = {{"x", "(N,C,...)"}},
  .outputs = {{"y", "shape of x"}},
  .attrs = {[SIZE] = {"size", "channels in a window", NEAP_ATTR_INT, .value = {.i = 5}, .least = 1,
                      .most = 1024},
            [TURNED] = {"turned", "the sums over the windows that hold c", NEAP_ATTR_BOOL}},
  .infer = infer,
  .cost = cost,
  .grad_formula =
    "d.x = turned ? ChannelMean(d.y, size = size) : ChannelMean(d.y, size = size, turned = 1)",
  .kernels =
    (const neap_kernel[]){
      {.engine = NEAP_ENGINE_REF, .dtypes = NEAP_FLOATS, .any_team = true, .run = run_mean}, {0}},
  .cases =
    "{ {x={2,7,3}, size=4}, {x={2,3,2,2}, size=9, turned=true}, {x={2,5}, size=1}, "
    "{x={0,3,2}} }",
};
