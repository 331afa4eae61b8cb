/* dropout.c: Dropout and its backward.
 *
 * Element i is kept when word i % 4 of Philox block i / 4 is at least rate 2^32, and then scaled by
 * 1 / (1 - rate), so that inference needs no scaling. The forward leaves one bit per element, 1 for
 * kept, in the stash; the backward reads that and nothing else, so x and y may die or be
 * overwritten.
 * INVARIANT: threads own whole chunks of elements, and so whole bytes of the mask. A mask's bits
 * past the last element are drawn like the others.
 */
#include "math/philox.h"
#include "math/vec.h"
#include "ops/rows.h"

enum { RATE, TRAINING };

typedef struct job {
  const neap_call *call;
  uint8_t *mask; /* read in the backward, written in the forward; NULL where nobody reads it */
  int64_t n;
  uint32_t least; /* word that keeps an element */
  double scale;
} job;

enum { CHUNK = NEAP_PHILOX_WORDS, CHUNK_BYTES = CHUNK / 8 };

/* keep[i] = 1 for the elements of chunk `chunk` that stay, and their bits. */
NEAP_MULTIVERSION static void draw(const job *j, int64_t chunk, uint8_t *restrict keep,
                                   uint8_t *restrict bits) {
  uint32_t word[CHUNK];
  const neap_call *c = j->call;
  neap_philox_words(c->seed, c->stream, c->step, (uint64_t)(chunk * NEAP_PHILOX_BLOCKS), word);
  for (int i = 0; i < CHUNK; i++) keep[i] = word[i] >= j->least;
  /* Eight answers are a byte, the first in its lowest bit. */
  for (int b = 0; b < CHUNK_BYTES; b++) {
    unsigned all = 0;
    for (int k = 0; k < 8; k++) all |= (unsigned)keep[8 * b + k] << k;
    bits[b] = (uint8_t)all;
  }
}

#define NEAP_BODY "ops/dropout_body.h"
#include "math/each_float.h"

/* To a chunk of x, widened on the way where it is bf16 or f16. */
static void apply(const job *j, int64_t chunk, const uint8_t keep[CHUNK]) {
  const neap_operand *in = &j->call->in[0], *out = &j->call->out[0];
  int64_t at = chunk * CHUNK, n = NEAP_MIN(CHUNK, j->n - at);
  float tile[CHUNK];
  const void *x = neap_tile_load(in, at, n, tile);
  void *y = neap_row_target(out, at, tile);
  if (in->type.dtype == NEAP_DTYPE_F64)
    apply_f64(x, y, j->scale, n, keep);
  else
    apply_f32(x, y, (float)j->scale, n, keep);
  neap_row_store(out, at, 1, n, n, tile);
}

/* Bytes of the mask that belong to a chunk: the last may have fewer. */
static size_t chunk_bytes(const job *j, int64_t chunk) {
  return (size_t)NEAP_MIN(CHUNK_BYTES, (j->n + 7) / 8 - chunk * CHUNK_BYTES);
}

/* Chunks [begin, end): drawn, stored for the backward where it asks, applied. */
static void forward_range(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  uint8_t keep[CHUNK], bits[CHUNK_BYTES];
  for (int64_t chunk = begin; chunk < end; chunk++) {
    draw(j, chunk, keep, bits);
    if (j->mask != NULL) memcpy(j->mask + chunk * CHUNK_BYTES, bits, chunk_bytes(j, chunk));
    apply(j, chunk, keep);
  }
}

/* The stored bits stand for the words, so nothing is drawn twice. */
static void backward_range(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  uint8_t keep[CHUNK];
  for (int64_t chunk = begin; chunk < end; chunk++) {
    const uint8_t *bits = j->mask + chunk * CHUNK_BYTES;
    size_t n = chunk_bytes(j, chunk);
    for (size_t b = 0; b < n; b++)
      for (unsigned k = 0; k < 8; k++) keep[8 * b + k] = bits[b] >> k & 1;
    apply(j, chunk, keep);
  }
}

static int64_t mask_bytes(const neap_shape *shape) { return (neap_shape_elems(shape) + 7) / 8; }

/* The rate as a threshold for 32 random bits, and what kept elements are multiplied by. */
static job job_of(const neap_call *call, void *mask) {
  double rate = call->attrs[RATE].f;
  return (job){call, mask, neap_shape_elems(&call->in[0].type.shape), (uint32_t)ceil(rate * 0x1p32),
               1 / (1 - rate)};
}

/* Without training a copy, or nothing at all in place. A chunk costs more than in the backward,
 * since its words are drawn, so a share has fewer of them. */
static void run_forward(const neap_call *call) {
  if (call->attrs[TRAINING].i == 0) {
    if (call->out[0].data != call->in[0].data)
      neap_copy_bytes(call->out[0].data, call->in[0].data, neap_type_bytes(&call->in[0].type));
    return;
  }
  job j = job_of(call, call->n_out > 1 ? call->out[1].data : NULL);
  neap_parallel_for((j.n + CHUNK - 1) / CHUNK, NEAP_GRAIN / CHUNK / 4, call->n_thread,
                    forward_range, &j);
}

static void run_backward(const neap_call *call) {
  job j = job_of(call, call->in[1].data);
  neap_parallel_for((j.n + CHUNK - 1) / CHUNK, NEAP_GRAIN / CHUNK, call->n_thread, backward_range,
                    &j);
}

static neap_status infer(neap_infer *c, neap_error *error) {
  (void)error;
  c->out[0] = c->in[0];
  if (c->n_out > 1) c->out[1] = (neap_type){NEAP_DTYPE_U8, NEAP_SHAPE(mask_bytes(&c->in[0].shape))};
  return NEAP_OK;
}

/* The mask is the forward's stash, of which graph knows whose it is, or bytes that somebody
 * gives. */
static neap_status infer_backward(neap_infer *c, neap_error *error) {
  neap_type mask = {NEAP_DTYPE_U8, NEAP_SHAPE(mask_bytes(&c->in[0].shape))};
  if (neap_shape_elems(&c->in[1].shape) != 0) NEAP_TRY(neap_infer_expect(c, 1, &mask, error));
  c->out[0] = c->in[0];
  return NEAP_OK;
}

static bool choose_backward(neap_choose *c) {
  size_t bytes = c->pair != NULL ? c->pair->stash_bytes : (size_t)neap_shape_elems(&c->in[1].shape);
  return bytes == (size_t)mask_bytes(&c->in[0].shape);
}

static bool choose(neap_choose *c) {
  if (c->n_out > 1 && c->attrs[TRAINING].i != 0)
    c->choice->stash_bytes = (size_t)mask_bytes(&c->in[0].shape);
  return true;
}

static neap_status grad(neap_grad *g, neap_error *error) {
  if (g->attrs[TRAINING].i == 0) {
    g->din[0] = g->dout[0];
    return NEAP_OK;
  }
  if (g->n_out < 2 || g->out[1] == NEAP_NO_VALUE)
    return neap_fail(error, NEAP_INTERNAL, "Dropout has no mask to differentiate with");
  g->din[0] =
    neap_grad_emit1(g, "DropoutGrad", 2, (neap_value_id[]){g->dout[0], g->out[1]}, g, NULL);
  return NEAP_OK;
}

#define RATE_ATTR                                              \
  [RATE] = {"rate",          "probability to drop an element", \
            NEAP_ATTR_FLOAT, .value = {.f = 0.5},              \
            .least = 0,      .most = 0.999999}

const neap_op neap_op_Dropout = {
  .name = "Dropout",
  .summary =
    "Sets elements to 0 at random and scales the others up; does nothing when not training.",
  .math = "y = kept ? x / (1 - rate) : 0",
  .example = "net:Dropout(\"x\", \"y\", {rate = 0.1})",
  .source = "Srivastava et al., JMLR 15, 2014 (inverted)",
  .inputs = {{"x", "any shape"}},
  .outputs = {{"y", "shape of x"},
              {"mask", "one bit per element: kept", NEAP_BIT(U8),
               NEAP_ARG_OPTIONAL | NEAP_ARG_STASH}},
  .attrs = {RATE_ATTR, [TRAINING] = {"training", "drop at all", NEAP_ATTR_BOOL, .value = {.i = 1}}},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .effects = NEAP_EFFECT_RANDOM,
  .infer = infer,
  .grad = grad,
  .kernels = NEAP_REF_CHOOSE(choose, run_forward, NEAP_FLOATS),
  .cases =
    "{ {x={2,3,7}, rate=0.3}, {x={2,3,7}, training=false}, {x={5}, rate=0}, {x={3,21}, outputs=2}, "
    "{x={0,4}} }",
};

const neap_op neap_op_DropoutGrad = {
  .name = "DropoutGrad",
  .summary = "Backward of Dropout.",
  .math = "dx = kept ? dy / (1 - rate) : 0",
  .internal = true,
  .inputs = {{"dy", "gradient of the output"},
             {"mask", "of the forward", NEAP_BIT(U8), NEAP_ARG_STASH}},
  .outputs = {{"dx", "shape of dy"}},
  .attrs = {RATE_ATTR},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .infer = infer_backward,
  .grad_formula = "d.dy = DropoutGrad(d.dx, mask, ..)",
  .kernels = NEAP_REF_CHOOSE(choose_backward, run_backward, NEAP_FLOATS),
  .cases = "{ {dy={2,3,8}, mask={{6}, dtype=\"u8\"}, rate=0.25} }",
};
