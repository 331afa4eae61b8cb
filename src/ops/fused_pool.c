/* fused_pool.c: FusedConvPool: a FusedConv and the pooling behind it as one op, for memory: what
 * the convolution gives for the whole batch never exists. A chunk of a few images is convolved into
 * scratch and pooled from there into y, then the next one.
 *
 * There is no second convolution here and no second pool: a *stage* is one of those two ops with
 * the kernel it has anyway, chosen and bound for a chunk. The scratch is what lies between the
 * stages, then what the one at work needs for itself.
 *
 * Results: engine `ref` gives the bits of the two ops apart. The others may take another algorithm
 * for another batch: 1e-5 of the largest.
 *
 * INVARIANT: all chunks are of one size, so one kernel serves all: the last one begins early enough
 * to be whole, and computes some images twice, to the same result. Hence y is never the bytes of an
 * input.
 * INVARIANT: what lies between has the layout of y, and images are whole in it: so a choice, which
 * lists inputs and outputs only, tells everything that bind needs. `algorithm` is the
 * convolution's, and above it the images of a chunk.
 */
#include "ops/tile.h"
#include "ops/window.h"

#include <string.h>

enum {
  POOL_ATTRS = NEAP_CONV_N_ATTR + 1,
  POOL_CEIL = POOL_ATTRS + NEAP_WINDOW_N_ATTR,
  POOL_COUNT_PAD,
  POOL_KIND
};
enum { N_IN = NEAP_FUSED_Z + 1 };

extern const neap_op neap_op_FusedConv, neap_op_MaxPool, neap_op_AveragePool,
  neap_op_GlobalAveragePool;

/* ORDER POOL: as the choices of the attribute `pool`. */
static const neap_op *const pools[] = {&neap_op_MaxPool, &neap_op_AveragePool,
                                       &neap_op_GlobalAveragePool};

/* The record's attributes are those of FusedConv, then those of the pools, each list in its own
 * order. */
static const neap_op *pool_op(const neap_attr_value *attrs) { return pools[attrs[POOL_KIND].i]; }

/* ---- inference ------------------------------------------------------------------------------- */

/* The two ops as if each stood alone; *between gets the type of what the first gives. */
static neap_infer infer_conv_of(const neap_infer *c, neap_type *between) {
  neap_infer conv = *c;
  conv.op = &neap_op_FusedConv, conv.n_out = 1, conv.out = between;
  return conv;
}

static neap_infer infer_pool_of(const neap_infer *c, const neap_type *between) {
  neap_infer pool = *c;
  pool.op = pool_op(c->attrs), pool.attrs = c->attrs + POOL_ATTRS, pool.n_in = 1, pool.in = between;
  return pool;
}

static neap_status infer(neap_infer *c, neap_error *error) {
  neap_type between = {0};
  neap_infer conv = infer_conv_of(c, &between);
  NEAP_TRY(conv.op->infer(&conv, error));
  neap_infer pool = infer_pool_of(c, &between);
  return pool.op->infer(&pool, error);
}

/* The sum of both. */
static void cost(const neap_infer *c, neap_cost *out) {
  neap_type between = {0};
  neap_cost part = {0};
  neap_error error = {0};
  /* What the convolution gives is what the pool takes: its type comes first. */
  neap_infer conv = infer_conv_of(c, &between);
  if (conv.op->infer(&conv, &error) != NEAP_OK) return; /* not of checked types */
  conv.op->cost(&conv, &part);
  neap_infer pool = infer_pool_of(c, &between);
  pool.op->cost(&pool, out);
  out->flops += part.flops;
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* One of the two ops with its kernel, for a chunk. `choice` points into the struct, which therefore
 * must not move. */
typedef struct stage {
  const neap_op *op;
  const neap_kernel *kernel;
  int n_in;
  neap_type in[N_IN], out;
  neap_layout in_layout[N_IN], out_layout; /* of the choice */
  neap_choice choice;
  void *bound;
} stage;

typedef struct stages {
  stage conv, pool;
  int64_t n_chunk;                     /* images */
  size_t between_bytes, scratch_bytes; /* the latter in all */
} stages;

/* What choose and bind know alike. */
typedef struct problem {
  const neap_attr_value *attrs;
  int n_in;
  const neap_type *in;
  const neap_layout *in_layout; /* at hand */
  neap_engine engine;
  int n_thread;
  size_t scratch_limit;
  const neap_choice *like; /* to be followed; NULL: free */
} problem;

/* How choice->algorithm is split: the low bits are the convolution's, those above the nominal
 * images of a chunk. */
enum { ALGORITHM_BITS = 8, MOST_CHUNK = 1 << 20 };

/* Whether images lie one after another, each whole. */
static bool has_whole_images(const neap_layout *layout) {
  if (layout->kind == NEAP_LAYOUT_PLAIN) return true;
  if (layout->kind == NEAP_LAYOUT_OPAQUE || layout->order[0] != 0) return false;
  for (int i = 0; i < layout->n_inner; i++)
    if (layout->inner_dim[i] == 0) return false;
  return true;
}

/* The type with n_chunk images; an absent operand stays absent. */
static neap_type of_chunk(const neap_type *type, int64_t n_chunk) {
  neap_type chunk = *type;
  if (chunk.dtype != NEAP_DTYPE_NONE) chunk.shape.dim[0] = n_chunk;
  return chunk;
}

/* Asks `kernel`, which computes the types, about a stage whose op and types are set. False:
 * refused. */
static bool ask(stage *s, const problem *p, const neap_kernel *kernel, const neap_attr_value *attrs,
                const neap_layout *in_layout, size_t scratch_limit, const neap_choice *like) {
  /* Zeros are the plain layout: a kernel with no wish leaves them as they are. */
  memset(s->in_layout, 0, sizeof s->in_layout);
  s->out_layout = (neap_layout){0};
  s->kernel = kernel;
  s->choice = (neap_choice){
    .engine = kernel->engine, .n_thread = p->n_thread, .in = s->in_layout, .out = &s->out_layout};
  neap_choose choose = {.op = s->op,
                        .attrs = attrs,
                        .n_in = s->n_in,
                        .n_out = 1,
                        .in = s->in,
                        .out = &s->out,
                        .in_layout = in_layout,
                        .scratch_limit = scratch_limit,
                        .like = like,
                        .choice = &s->choice};
  return neap_kernel_choose(kernel, &choose);
}

/* The kernel of `engine` for the stage's types, or NULL. */
static const neap_kernel *kernel_of(const stage *s, neap_engine engine) {
  return neap_kernel_find(s->op, engine, s->n_in, s->in, 1, &s->out);
}

/* The pool's kernel of the same engine, else the plain loops; it gives the layout that it takes. */
static bool settle_pool(stages *s, const problem *p) {
  const neap_layout *between = &s->conv.out_layout;
  neap_engine engines[] = {p->engine, NEAP_ENGINE_REF};
  for (int e = 0; e < NEAP_COUNT(engines); e++) {
    const neap_kernel *kernel = kernel_of(&s->pool, engines[e]);
    /* Between the stages nothing is converted: both take one layout, whole images of it. */
    if (kernel != NULL &&
        ask(&s->pool, p, kernel, p->attrs + POOL_ATTRS, between, p->scratch_limit, NULL) &&
        neap_layout_equal(&s->pool.in_layout[0], between) &&
        neap_layout_equal(&s->pool.out_layout, between))
      return true;
  }
  return false;
}

/* Both stages for chunks of n_chunk images. False: not to be had. */
static bool settle(stages *s, const problem *p, int64_t n_chunk) {
  memset(s, 0, sizeof *s);
  s->n_chunk = n_chunk;
  s->conv.op = &neap_op_FusedConv, s->conv.n_in = p->n_in;
  /* x and z come image by image; weight and bias are all of them. */
  for (int i = 0; i < p->n_in; i++)
    s->conv.in[i] =
      i == NEAP_FUSED_X || i == NEAP_FUSED_Z ? of_chunk(&p->in[i], n_chunk) : p->in[i];
  s->pool.op = pool_op(p->attrs), s->pool.n_in = 1;

  /* What the convolution makes is what the pool takes: its type comes first. */
  neap_error error = {0};
  neap_infer conv = {.op = s->conv.op,
                     .attrs = p->attrs,
                     .n_in = p->n_in,
                     .n_out = 1,
                     .in = s->conv.in,
                     .out = &s->conv.out};
  if (conv.op->infer(&conv, &error) != NEAP_OK) return false;
  s->pool.in[0] = s->conv.out;
  neap_infer pool = {.op = s->pool.op,
                     .attrs = p->attrs + POOL_ATTRS,
                     .n_in = 1,
                     .n_out = 1,
                     .in = s->pool.in,
                     .out = &s->pool.out};
  if (pool.op->infer(&pool, &error) != NEAP_OK) return false;

  /* padding may make it more */
  size_t between = neap_align(neap_layout_bytes(&s->conv.out, &(neap_layout){0}));
  /* The convolution's own part of the algorithm to follow. */
  neap_choice like;
  if (p->like != NULL) {
    like = *p->like;
    like.algorithm &= (1 << ALGORITHM_BITS) - 1;
    like.is_widened = like.twin_bytes > 0;
  }
  /* What lies between is taken from the limit before the convolution is asked, as if its layout
   * were plain. */
  const neap_kernel *kernel = kernel_of(&s->conv, p->engine);
  if (kernel == NULL ||
      !ask(&s->conv, p, kernel, p->attrs, p->in_layout,
           p->scratch_limit - NEAP_MIN(between, p->scratch_limit), p->like != NULL ? &like : NULL))
    return false;
  /* A chunk must be a stretch of the bytes. */
  if (!has_whole_images(&s->conv.in_layout[NEAP_FUSED_X]) ||
      !has_whole_images(&s->conv.out_layout) || !settle_pool(s, p))
    return false;
  s->between_bytes = neap_align(neap_layout_bytes(&s->conv.out, &s->conv.out_layout));
  /* The stages run one after the other: the larger scratch serves both. */
  s->scratch_bytes =
    s->between_bytes + NEAP_MAX(s->conv.choice.scratch_bytes, s->pool.choice.scratch_bytes);
  return true;
}

/* Images of each chunk where at most `nominal` are to be at work: as many chunks, of one size. */
static int64_t even_chunk(int64_t batch, int64_t nominal) {
  int64_t n = (batch + nominal - 1) / nominal;
  return n > 0 ? (batch + n - 1) / n : 1;
}

/* ---- choose and bind ------------------------------------------------------------------------- */

/* Fewer images cost time, more cost memory. A kernel that gives each thread an image wants one for
 * each. */
static int64_t best_chunk(const neap_choose *choose, int64_t batch) {
  neap_type between = {0}, one[N_IN];
  neap_error error = {0};
  for (int i = 0; i < choose->n_in; i++)
    one[i] = i == NEAP_FUSED_X || i == NEAP_FUSED_Z ? of_chunk(&choose->in[i], 1) : choose->in[i];
  neap_infer conv = {.op = &neap_op_FusedConv,
                     .attrs = choose->attrs,
                     .n_in = choose->n_in,
                     .n_out = 1,
                     .in = one,
                     .out = &between};
  if (conv.op->infer(&conv, &error) != NEAP_OK) return 1;
  /* A half may be widened, and its twin is what a chunk is measured by. */
  neap_type w = choose->in[NEAP_FUSED_W];
  between.dtype = neap_compute_dtype(between.dtype);
  w.dtype = neap_compute_dtype(w.dtype);
  int64_t n = neap_fused_chunk(batch, neap_layout_bytes(&between, &(neap_layout){0}),
                               neap_layout_bytes(&w, &(neap_layout){0}));
  /* Its product goes image by image, each on a thread of its own. */
  if (choose->choice->engine == NEAP_ENGINE_BLAS) n = NEAP_MAX(n, choose->choice->n_thread);
  return NEAP_MAX(1, NEAP_MIN(NEAP_MIN(n, batch), MOST_CHUNK));
}

/* A chunk as long as the scratch allows. The plain loops with one image are what there always
 * is. */
static bool choose(neap_choose *c) {
  problem p = {.attrs = c->attrs,
               .n_in = c->n_in,
               .in = c->in,
               .in_layout = c->in_layout,
               .engine = c->choice->engine,
               .n_thread = c->choice->n_thread,
               .scratch_limit = c->scratch_limit,
               .like = c->like};
  int64_t batch = c->in[NEAP_FUSED_X].shape.dim[0];
  int64_t nominal =
    c->like != NULL ? NEAP_MAX(1, c->like->algorithm >> ALGORITHM_BITS) : best_chunk(c, batch);
  /* Half as many images until the scratch is small enough. A choice to follow says how many. */
  stages s;
  bool settled, fits;
  for (;;) {
    settled = settle(&s, &p, even_chunk(batch, nominal));
    fits = settled && s.scratch_bytes <= c->scratch_limit;
    if (fits || nominal == 1 || c->like != NULL) break;
    nominal /= 2;
  }
  if (!settled || (!fits && p.engine != NEAP_ENGINE_REF)) return false;
  /* Outside it looks like one kernel: x as the convolution takes it, y as the pool gives it. */
  memcpy(c->choice->in, s.conv.in_layout, (size_t)c->n_in * sizeof s.conv.in_layout[0]);
  c->choice->out[0] = s.pool.out_layout;
  c->choice->algorithm = s.conv.choice.algorithm | (int)nominal << ALGORITHM_BITS;
  c->choice->scratch_bytes = s.scratch_bytes;
  /* The convolution's twins are in that, and no affair of who runs the whole. */
  c->choice->twin_bytes = s.conv.choice.twin_bytes;
  c->choice->split = s.conv.choice.split;
  c->choice->part = s.conv.choice.part;
  c->choice->how = s.conv.choice.how;
  c->choice->why = s.conv.choice.why;
  return true;
}

/* s->bound is owned by the stage; NULL for kernels without bind. */
static neap_status bind_stage(stage *s, const neap_attr_value *attrs, neap_error *error) {
  neap_bind bind = {.op = s->op,
                    .attrs = attrs,
                    .n_in = s->n_in,
                    .n_out = 1,
                    .in = s->in,
                    .out = &s->out,
                    .choice = &s->choice};
  return neap_kernel_bind(s->kernel, &bind, &s->bound, error);
}

/* What is NULL was never bound, or needs no bind. */
static void unbind_stage(stage *s) {
  if (s->bound != NULL) s->kernel->unbind(s->bound);
}

/* Frees the stages, also those that bind left half made. */
static void unbind(void *kernel) {
  stages *s = kernel;
  if (s == NULL) return;
  unbind_stage(&s->pool);
  unbind_stage(&s->conv);
  neap_free(s);
}

/* The stages as choose settled them, by following its choice. */
static neap_status bind(const neap_bind *b, void **kernel, neap_error *error) {
  const neap_choice *choice = b->choice;
  problem p = {.attrs = b->attrs,
               .n_in = b->n_in,
               .in = b->in,
               .in_layout = choice->in,
               .engine = choice->engine,
               .n_thread = choice->n_thread,
               .scratch_limit = SIZE_MAX,
               .like = choice};
  int64_t batch = b->in[NEAP_FUSED_X].shape.dim[0],
          nominal = NEAP_MAX(1, choice->algorithm >> ALGORITHM_BITS);
  neap_status status;
  stages *s = neap_alloc(sizeof *s);
  if (s == NULL) return neap_fail(error, NEAP_MEMORY, "no memory for a kernel of %s", b->op->name);
  /* Settled again, not stored: what it comes to must be no more than was promised. */
  if (!settle(s, &p, even_chunk(batch, nominal)) || s->scratch_bytes > choice->scratch_bytes) {
    status = neap_fail(error, NEAP_PLAN,
                       "%s can't have the kernels and the %zu bytes of scratch that were chosen",
                       b->op->name, choice->scratch_bytes);
    goto fail;
  }
  if ((status = bind_stage(&s->conv, b->attrs, error)) != NEAP_OK) goto fail;
  if ((status = bind_stage(&s->pool, b->attrs + POOL_ATTRS, error)) != NEAP_OK) goto fail;
  *kernel = s;
  return NEAP_OK;
fail:
  unbind(s);
  return status;
}

/* ---- run ------------------------------------------------------------------------------------- */

/* Images from number `first` on of an operand, as many as `type` has. */
static neap_operand images(const neap_operand *operand, const neap_type *type, int64_t first) {
  neap_operand part = *operand;
  part.type = *type;
  if (operand->data == NULL) return part;
  neap_type one = of_chunk(type, 1);
  part.data = (char *)operand->data + (size_t)first * neap_layout_bytes(&one, &operand->layout);
  return part;
}

/* `attrs`: those of the stage's op within the record's list. `scratch`: behind what lies between
 * the stages. */
static void run_stage(const neap_call *call, const stage *s, const neap_attr_value *attrs,
                      void *scratch, neap_operand *in, neap_operand *out) {
  neap_call inner = *call;
  inner.op = s->op, inner.attrs = attrs, inner.n_in = s->n_in, inner.n_out = 1, inner.in = in,
  inner.out = out;
  inner.kernel = s->bound, inner.scratch = scratch, inner.choice = &s->choice;
  neap_kernel_run(s->kernel, &inner);
}

/* The last chunk begins where it ends with the batch: see the head of the file. */
static void run(const neap_call *call) {
  const stages *s = call->kernel;
  int64_t batch = call->in[NEAP_FUSED_X].type.shape.dim[0];
  neap_operand between = {.data = call->scratch, .type = s->conv.out, .layout = s->conv.out_layout};
  /* none: the batch is empty */
  void *scratch = neap_call_scratch(call, s->between_bytes);
  for (int64_t n = 0; n < batch; n += s->n_chunk) {
    /* All chunks are of one size, for which the kernels were made; images may be computed twice. */
    int64_t first = NEAP_MIN(n, batch - s->n_chunk);
    NEAP_ASSERT(first >= 0, "a chunk of %lld images is one of a batch of %lld",
                (long long)s->n_chunk, (long long)batch);
    neap_operand in[N_IN], y = images(&call->out[0], &s->pool.out, first);
    for (int i = 0; i < call->n_in; i++)
      in[i] = i == NEAP_FUSED_X || i == NEAP_FUSED_Z ? images(&call->in[i], &s->conv.in[i], first)
                                                     : call->in[i];
    run_stage(call, &s->conv, call->attrs, scratch, in, &between);
    run_stage(call, &s->pool, call->attrs + POOL_ATTRS, scratch, &between, &y);
  }
}

/* ---- record ---------------------------------------------------------------------------------- */

#define KERNEL(of, types)                                                                          \
  {                                                                                                \
    .engine = NEAP_ENGINE_##of, .dtypes = types, .choose = choose, .bind = bind, .unbind = unbind, \
    .run = run                                                                                     \
  }

const neap_op neap_op_FusedConvPool = {
  .name = "FusedConvPool",
  .summary =
    "FusedConv and a pooling in one, a few images at a time; made from them where fuse = \"pool\" "
    "is asked for.",
  .math = "y = pool(activation(Conv(x, w, b) + z))",
  .source =
    "Alwani et al., Fused-layer CNN accelerators, MICRO 2016, section 3, with images as tiles",
  .internal = true,
  .inputs = {[NEAP_FUSED_X] = {"x", "(N,C,H,W), or one or three spatial dimensions"},
             [NEAP_FUSED_W] = {"w", "(O,C/groups,KH,KW)"},
             [NEAP_FUSED_B] = {"b", "(O)", .flags = NEAP_ARG_OPTIONAL},
             [NEAP_FUSED_Z] = {"z", "shape of the convolution", .flags = NEAP_ARG_OPTIONAL}},
  .outputs = {{"y", "(N,O,PH,PW)"}},
  .attrs = {NEAP_CONV_ATTRS,
            [NEAP_CONV_N_ATTR] = NEAP_ACTIVATION_ATTR,
            [POOL_ATTRS] = {"pool_kernel", "the pool's kernel", NEAP_ATTR_INTS, .least = 1,
                            .most = 1 << 20},
            {"pool_stride", "its stride", NEAP_ATTR_INTS, .least = 1, .most = 1 << 20},
            {"pool_pad", "its pad", NEAP_ATTR_INTS, .most = 1 << 20},
            {"pool_dilation", "its dilation", NEAP_ATTR_INTS, .least = 1, .most = 1 << 20},
            [POOL_CEIL] = {"ceil_mode", "a last window that overhangs counts too", NEAP_ATTR_BOOL},
            [POOL_COUNT_PAD] = {"count_include_pad", "padding counts in the divisor",
                                NEAP_ATTR_BOOL, .value = {.i = 1}},
            [POOL_KIND] = {"pool", "which one", NEAP_ATTR_ENUM,
                           .choices = "max|average|global_average"}},
  .infer = infer,
  .cost = cost,
  .nan = NEAP_NAN_REACHES,
  .sum = NEAP_SUM_LIBRARY,
  .no_grad = true,
  .kernels =
    (const neap_kernel[]){
      KERNEL(DNNL, NEAP_BIT(F32)), KERNEL(BLAS, NEAP_WIDE), KERNEL(REF, NEAP_FLOATS), {0}},
  .cases =
    "{ {x={3,3,8,8}, w={4,3,3,3}, b={4}, pad={1}, activation=\"relu\", pool_kernel={2}},"
    " {x={2,20,9,9}, w={50,20,3,3}, b={50}, z={2,50,7,7}, activation=\"relu\", pool_kernel={3}, "
    "pool_stride={2}, pool_pad={1}},"
    " {x={5,16,8,8}, w={32,16,3,3}, b={32}, pad={1}, activation=\"relu\", pool_kernel={2}, "
    "pool=\"average\"},"
    " {x={7,32,64,64}, w={32,32,3,3}, z={7,32,64,64}, pad={1}, pool_kernel={3}, pool_stride={2}, "
    "ceil_mode=true},"
    " {x={2,16,7,7}, w={32,16,1,1}, activation=\"sigmoid\", pool_kernel={3}, pool_stride={2}, "
    "pool_pad={1}, pool=\"average\", "
    "count_include_pad=false},"
    " {x={3,4,5,6}, w={6,2,3,2}, groups=2, activation=\"tanh\", pool=\"global_average\"},"
    " {x={2,4,12}, w={8,4,3}, activation=\"silu\", pool_kernel={2}}, {x={1,2,5,5,5}, "
    "w={3,2,2,2,2}, pool_kernel={2}},"
    " {x={0,3,6,6}, w={4,3,3,3}, pool_kernel={2}} }",
  .long_cases = "{ {x={1,262144,2,2}, w={2,262144,1,1}, pool_kernel={2}} }",
};
