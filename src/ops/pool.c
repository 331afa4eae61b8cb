/* pool.c: MaxPool, AveragePool, GlobalAveragePool and their backward ops.
 *
 * MaxPool's stash holds, per output, the number of the window's element that won (u8 when the
 * window has at most 256, else i32), so the backward reads neither x nor y. Under oneDNN the stash
 * is its workspace: forward and backward are of one engine, and the backward takes the layouts of
 * the forward. Average pooling needs shapes only.
 *
 * INVARIANT: a NaN wins its window, whatever the engine. oneDNN's maximum passes over NaN and
 * begins at -FLT_MAX, so where x holds a NaN, or what is not above that, its windows are gone
 * through again (see "what oneDNN passes over").
 *
 * The plain loops work on one plane at a time. A plane of bf16 or f16 is widened, and what is made
 * of it is rounded once when it is stored (ops/rows.h). Where convolutions laid channels side by
 * side, halves stay so (pool_lanes.c); oneDNN has f32 and bytes.
 */
#include "math/vec.h"
#include "ops/pool_int.h"

#include <float.h>
#include <string.h>

enum { CEIL = NEAP_POOL_CEIL, COUNT_PAD = NEAP_POOL_N_ATTR, SHAPE };

extern const neap_op neap_op_MaxPool, neap_op_MaxPoolGrad;
extern const neap_op neap_op_AveragePool, neap_op_AveragePoolGrad, neap_op_GlobalAveragePool,
  neap_op_GlobalAveragePoolGrad;

/* ---- inference ------------------------------------------------------------------------------- */

/* x (N,C,spatial) and the window give y; a stash, where asked for, is only named here. */
neap_status neap_pool_infer(neap_infer *c, neap_error *error) {
  neap_window w;
  NEAP_TRY(neap_window_infer(c, NULL, c->attrs[CEIL].i != 0, &w, error));
  c->out[0] = (neap_type){c->in[0].dtype, neap_window_shape(&w, w.channels)};
  /* the choice knows its bytes */
  if (c->n_out > 1) c->out[1] = (neap_type){NEAP_DTYPE_U8, NEAP_SHAPE(0)};
  return NEAP_OK;
}

/* Spatial dimensions become 1. An empty one is an error: there is no mean of nothing. */
neap_status neap_pool_infer_global(neap_infer *c, neap_error *error) {
  NEAP_TRY(neap_infer_rank(c, 0, 3, 5, error));
  char text[NEAP_SHAPE_TEXT];
  c->out[0] = c->in[0];
  for (int i = 2; i < c->in[0].shape.n_dim; i++) {
    if (c->in[0].shape.dim[i] < 1)
      return neap_infer_fail(c, NEAP_SHAPE, 0, error,
                             "x expects at least one element to pool, got %s",
                             neap_shape_text(&c->in[0].shape, text));
    c->out[0].shape.dim[i] = 1;
  }
  if (c->n_out > 1) c->out[1] = (neap_type){NEAP_DTYPE_U8, NEAP_SHAPE(0)};
  return NEAP_OK;
}

/* The forward, asked again about x, says what dy must be. The bytes of a stash are known to the
 * choice alone. */
neap_status neap_pool_infer_grad(neap_infer *c, const neap_op *forward, neap_error *error) {
  neap_type x, y = {0};
  NEAP_TRY(neap_infer_attr_type(c, neap_op_attr_index(c->op, "shape"), &x, error));
  NEAP_TRY(neap_infer_forward(c, forward, 1, &x, 1, &y, error));
  NEAP_TRY(neap_infer_expect(c, 0, &y, error));
  c->out[0] = x;
  return NEAP_OK;
}

static neap_status infer_max_grad(neap_infer *c, neap_error *error) {
  return neap_pool_infer_grad(c, &neap_op_MaxPool, error);
}
static neap_status infer_average_grad(neap_infer *c, neap_error *error) {
  return neap_pool_infer_grad(c, &neap_op_AveragePool, error);
}
static neap_status infer_global_grad(neap_infer *c, neap_error *error) {
  return neap_pool_infer_grad(c, &neap_op_GlobalAveragePool, error);
}

/* Here x is at hand, and is the shape that the attribute says. */
neap_status neap_pool_infer_take(neap_infer *c, const neap_op *forward, neap_error *error) {
  neap_type x;
  NEAP_TRY(neap_infer_attr_type(c, neap_op_attr_index(c->op, "shape"), &x, error));
  NEAP_TRY(neap_infer_expect(c, 0, &x, error));
  return neap_infer_forward(c, forward, 1, &x, 1, c->out, error);
}

static neap_status infer_max_take(neap_infer *c, neap_error *error) {
  return neap_pool_infer_take(c, &neap_op_MaxPool, error);
}

/* Windows that follow from the sizes of x and y, which lie side by side, or meet in one element:
 * the largest has at most ceil(in / out) + 1 of them. Where y has one element it is x. */
static neap_window adaptive_window(const neap_shape *x, const neap_shape *y) {
  static const neap_attr_value none[NEAP_WINDOW_N_ATTR];
  neap_window w = neap_window_of(none, x, y, x->dim + 2);
  w.adaptive = true;
  w.n_kernel = 1;
  for (int d = 0; d < 3; d++) {
    /* out 0 is that of an empty y, which asks for no windows. */
    w.kernel[d] = NEAP_MIN((w.in[d] + w.out[d] - 1) / NEAP_MAX(w.out[d], 1) + 1, w.in[d]);
    w.n_kernel *= w.kernel[d];
  }
  return w;
}

neap_window neap_pool_window(const neap_op *op, const neap_attr_value *attrs, const neap_shape *x,
                             const neap_shape *y) {
  if (op->attrs[NEAP_WINDOW_KERNEL].name != NULL &&
      strcmp(op->attrs[NEAP_WINDOW_KERNEL].name, "kernel") == 0)
    return neap_window_of(attrs, x, y, NULL);
  return adaptive_window(x, y);
}

/* One comparison or addition per element of each window. */
void neap_pool_cost(const neap_infer *c, neap_cost *cost) {
  neap_window w = neap_pool_window(c->op, c->attrs, &c->in[0].shape, &c->out[0].shape);
  cost->flops = (double)neap_shape_elems(&c->out[0].shape) * (double)w.n_kernel;
}

/* ---- plain loops ----------------------------------------------------------------------------- */

/* x^p and its inverse, of numbers that are not negative. Powers 1 and 2, which nets have, need no
 * logarithm. */
static inline double power_of(double x, double p) {
  if (p == 1) return x;
  return p == 2 ? x * x : pow(x, p);
}
static inline double root_of(double x, double p) {
  if (p == 1) return x;
  return p == 2 ? sqrt(x) : pow(x, 1 / p);
}

#define NEAP_BODY "ops/pool_body.h"
#include "math/each_float.h"

/* Planes to threads, so many at a time that they have about NEAP_GRAIN taps. */
static void run_planes(const neap_call *call, pool_job *j, neap_rows_body f32, neap_rows_body f64) {
  const neap_dtype dtype = j->in->type.dtype;
  int64_t work = NEAP_MAX(1, neap_count_mul(j->w.n_out, j->w.n_kernel));
  neap_rows_run(call, dtype, call->scratch, 1, j->w.n_in + j->w.n_out, j->w.batch * j->w.channels,
                NEAP_MAX(1, NEAP_GRAIN / work), dtype == NEAP_DTYPE_F64 ? f64 : f32, j);
}

pool_job neap_pool_job_of(const neap_call *call, bool backward) {
  const neap_operand *x = backward ? &call->out[0] : &call->in[0],
                     *y = backward ? &call->in[0] : &call->out[0];
  pool_job j = {.w = neap_pool_window(call->op, call->attrs, &x->type.shape, &y->type.shape),
                .in = &call->in[0],
                .out = &call->out[0]};
  int count_pad = neap_op_attr_index(call->op, "count_include_pad"),
      p = neap_op_attr_index(call->op, "p");
  j.count_pad = count_pad >= 0 && call->attrs[count_pad].i != 0;
  j.p = p >= 0 ? (double)call->attrs[p].i : 1;
  return j;
}

/* Planes [begin, end) of bytes. A window without an element inside x gives the least. */
#define MAX_BYTES(name, I, least)                                          \
  static void name(void *context, int64_t begin, int64_t end) {            \
    const pool_job *j = context;                                           \
    const neap_window *w = &j->w;                                          \
    for (int64_t p = begin; p < end; p++) {                                \
      const I *in = (const I *)j->in->data + p * w->n_in;                  \
      I *out = (I *)j->out->data + p * w->n_out;                           \
      pool_spot s = pool_spot_first(w);                                    \
      for (int64_t i = 0; i < w->n_out; i++, pool_spot_next(w, &s)) {      \
        I best = least;                                                    \
        int64_t won = 0;                                                   \
        for (int64_t tap = 0, at; tap < w->n_kernel; tap++) {              \
          if (!pool_spot_has(w, &s, tap, &at) || in[at] <= best) continue; \
          best = in[at];                                                   \
          won = tap;                                                       \
        }                                                                  \
        out[i] = best;                                                     \
        pool_set_index(j, p * w->n_out + i, won);                          \
      }                                                                    \
    }                                                                      \
  }
MAX_BYTES(max_u8, uint8_t, 0)
MAX_BYTES(max_i8, int8_t, INT8_MIN)

static bool is_byte(neap_dtype dtype) { return neap_dtype_in(dtype, NEAP_BIT(U8) | NEAP_BIT(I8)); }

void neap_pool_run_max(const neap_call *call) {
  pool_job j = neap_pool_job_of(call, false);
  const neap_dtype dtype = call->in[0].type.dtype;
  j.index = call->n_out > 1 ? call->out[1].data : NULL;
  if (is_byte(dtype))
    neap_parallel_for(j.w.batch * j.w.channels, 1, call->n_thread,
                      dtype == NEAP_DTYPE_U8 ? max_u8 : max_i8, &j);
  else if (neap_pool_is_in_lanes(call))
    neap_pool_lanes_max(call, &j);
  else
    run_planes(call, &j, max_f32, max_f64);
}

void neap_pool_run_max_indices(const neap_call *call) {
  pool_job j = neap_pool_job_of(call, false);
  j.position = call->out[1].data;
  run_planes(call, &j, max_f32, max_f64);
}

void neap_pool_run_max_grad(const neap_call *call) {
  pool_job j = neap_pool_job_of(call, true);
  j.index = call->in[1].data;
  if (neap_pool_is_in_lanes(call))
    neap_pool_lanes_max_grad(call, &j);
  else
    run_planes(call, &j, max_grad_f32, max_grad_f64);
}

void neap_pool_run_average(const neap_call *call) {
  pool_job j = neap_pool_job_of(call, false);
  if (neap_pool_is_in_lanes(call))
    neap_pool_lanes_average(call, &j);
  else
    run_planes(call, &j, average_f32, average_f64);
}

void neap_pool_run_average_grad(const neap_call *call) {
  pool_job j = neap_pool_job_of(call, true);
  if (neap_pool_is_in_lanes(call))
    neap_pool_lanes_average_grad(call, &j);
  else
    run_planes(call, &j, average_grad_f32, average_grad_f64);
}

void neap_pool_run_sum(const neap_call *call) {
  pool_job j = neap_pool_job_of(call, false);
  j.sum = true;
  run_planes(call, &j, average_f32, average_f64);
}

void neap_pool_run_sum_grad(const neap_call *call) {
  pool_job j = neap_pool_job_of(call, true);
  j.sum = true;
  run_planes(call, &j, average_grad_f32, average_grad_f64);
}

void neap_pool_run_lp(const neap_call *call) {
  pool_job j = neap_pool_job_of(call, false);
  run_planes(call, &j, lp_f32, lp_f64);
}

/* For halves, a plane of x and one of y for each thread. Of x and y only sizes matter here, and
 * there are as many elements in a plane of dy as in one of y. */
bool neap_pool_choose(neap_choose *c) {
  const neap_shape *x = &c->in[0].shape, *y = &c->out[0].shape;
  int64_t n_plane = neap_count_mul(x->dim[0], x->dim[1]),
          elems = neap_count_add(neap_shape_span(x, 2, x->n_dim), neap_shape_span(y, 2, y->n_dim));
  c->choice->scratch_bytes =
    neap_rows_bytes(c->in[0].dtype, NEAP_MIN(c->choice->n_thread, n_plane), 1, elems);
  return true;
}

/* Halves in the layout that they have. */
static bool choose_at_hand(neap_choose *c) {
  return neap_pool_lanes_choose(c, c->like != NULL ? &c->like->in[0] : &c->in_layout[0]);
}

bool neap_pool_choose_average(neap_choose *c) { return choose_at_hand(c) || neap_pool_choose(c); }

/* The stash: one index for each output, only where the backward or a reader asks for it. */
bool neap_pool_choose_max(neap_choose *c) {
  if (choose_at_hand(c)) return true;
  neap_window w = neap_pool_window(c->op, c->attrs, &c->in[0].shape, &c->out[0].shape);
  if (c->n_out > 1)
    c->choice->stash_bytes = (size_t)neap_shape_elems(&c->out[0].shape) * pool_index_bytes(&w);
  return neap_pool_choose(c);
}

/* Indices mean what the forward's engine means by them, and lie as its y does. What the stash holds
 * is an address in x, so one of unknown origin is not taken. */
bool neap_pool_choose_max_grad(neap_choose *c) {
  if (c->pair == NULL || c->pair->engine != NEAP_ENGINE_REF) return false;
  return neap_pool_lanes_choose(c, &c->pair->in[0]) || neap_pool_choose(c);
}

bool neap_pool_choose_max_take(neap_choose *c) {
  if (c->pair == NULL || c->pair->engine != NEAP_ENGINE_REF) return false;
  if (neap_window_side_by_side(&c->pair->in[0], &c->in[0].shape) <= 1) return neap_pool_choose(c);
  c->choice->in[0] = c->pair->in[0];
  c->choice->out[0] = c->pair->out[0];
  return true;
}

/* ---- oneDNN ---------------------------------------------------------------------------------- */

/* Completes a problem whose operands are set. False: oneDNN would divide an average by something
 * else. */
static bool describe(neap_onednn_case *c, const neap_op *op, const neap_attr_value *attrs) {
  c->quantised = is_byte(c->in[0].dtype);
  bool backward = c->kind == NEAP_ONEDNN_POOL_GRAD;
  const neap_shape *x = backward ? &c->out[0].shape : &c->in[0].shape,
                   *y = backward ? &c->in[0].shape : &c->out[0].shape;
  bool global = op == &neap_op_GlobalAveragePool || op == &neap_op_GlobalAveragePoolGrad;
  neap_window w = neap_pool_window(op, attrs, x, y);
  neap_window_to_case(c, &w);
  c->average = global || op == &neap_op_AveragePool || op == &neap_op_AveragePoolGrad;
  c->count_pad = c->average && !global && attrs[COUNT_PAD].i != 0;
  /* rounding up may reach beyond the padding, which does not count */
  if (c->count_pad)
    for (int d = 0; d < 3; d++)
      if ((w.out[d] - 1) * w.stride[d] + (w.kernel[d] - 1) * w.dilation[d] >=
          w.begin[d] + w.in[d] + w.end[d])
        return false;
  return true;
}

/* oneDNN adds up a window in f32, one element after the other: so many of them at most. */
enum { MOST_AVERAGED = 1024 };

static bool choose_dnnl(neap_choose *choose) {
  neap_onednn_case c = neap_dnnl_case_choose(choose, NEAP_ONEDNN_POOL);
  bool average = choose->op == &neap_op_GlobalAveragePool || choose->op == &neap_op_AveragePool;
  const neap_shape *x = &choose->in[0].shape, *y = &choose->out[0].shape;
  neap_window w = neap_pool_window(choose->op, choose->attrs, x, y);
  if (average && w.n_kernel > MOST_AVERAGED) return false;
  return describe(&c, choose->op, choose->attrs) && neap_dnnl_choose(choose, &c);
}

static neap_status bind_dnnl(const neap_bind *bind, void **kernel, neap_error *error) {
  neap_onednn_case c = neap_dnnl_case_bind(bind, NEAP_ONEDNN_POOL);
  describe(&c, bind->op, bind->attrs);
  return neap_dnnl_bind(bind, &c, kernel, error);
}

/* ---- what oneDNN passes over: NaN, and windows with nothing above -FLT_MAX ------------------- */

/* Where plane p = n C + c of `elems` elements begins. */
static int64_t plane_at(const neap_window *w, int64_t p, int64_t elems, int64_t side) {
  int64_t n = p / w->channels, c = p % w->channels, blocks = (w->channels + side - 1) / side;
  return (n * blocks + c / side) * side * elems + c % side;
}

typedef struct look {
  const float *x;
  bool found; /* a NaN, or what is not above -FLT_MAX */
} look;

NEAP_MULTIVERSION static bool is_passed_over(const float *x, int64_t n) {
  int32_t found = 0;
  for (int64_t i = 0; i < n; i++) found |= !(x[i] > -FLT_MAX);
  return found != 0;
}

static void look_over(void *context, int64_t begin, int64_t end) {
  look *l = context;
  if (is_passed_over(l->x + begin, end - begin))
    __atomic_store_n(&l->found, true, __ATOMIC_RELAXED);
}

/* Again by the rule of the plain loops, in the layout and with the stash of oneDNN. */
typedef struct again {
  neap_window w;
  const float *x;
  float *y;
  void *index; /* as y, of index_bytes each; NULL when nobody reads it */
  size_t index_bytes;
  int64_t side_x, side_y;
} again;

static void pool_again(void *context, int64_t begin, int64_t end) {
  const again *j = context;
  const neap_window *w = &j->w;
  /* Elements of a plane lie as many apart as channels lie side by side; numbers of taps as y
   * does. */
  for (int64_t p = begin; p < end; p++) {
    const float *x = j->x + plane_at(w, p, w->n_in, j->side_x);
    int64_t y = plane_at(w, p, w->n_out, j->side_y);
    pool_spot s = pool_spot_first(w);
    for (int64_t i = 0; i < w->n_out; i++, y += j->side_y, pool_spot_next(w, &s)) {
      int64_t won;
      j->y[y] = window_max_f32(w, x, j->side_x, &s, &won);
      if (j->index == NULL) continue;
      if (j->index_bytes == 1)
        ((uint8_t *)j->index)[y] = (uint8_t)won;
      else
        ((int32_t *)j->index)[y] = (int32_t)won;
    }
  }
}

/* x and y of a call; the index is left to the caller. */
static again again_of(const neap_call *call) {
  const neap_operand *x = &call->in[0], *y = &call->out[0];
  again j = {.w = neap_window_of(call->attrs, &x->type.shape, &y->type.shape, NULL),
             .x = x->data,
             .y = y->data};
  j.side_x = neap_window_side_by_side(&x->layout, &x->type.shape);
  j.side_y = neap_window_side_by_side(&y->layout, &y->type.shape);
  return j;
}

/* The price of ordinary numbers is one more read of x; bytes have none that is passed over. */
static void run_dnnl_max(const neap_call *call) {
  neap_dnnl_run(call);
  if (is_byte(call->in[0].type.dtype)) return;
  const neap_operand *x = &call->in[0], *y = &call->out[0];
  look l = {.x = x->data};
  /* Lanes of padding are zeros, which are above -FLT_MAX: they hide nothing and ask for nothing. */
  neap_parallel_for(neap_operand_lanes(x), NEAP_GRAIN, call->n_thread, look_over, &l);
  if (!l.found) return;
  again j = again_of(call);
  j.index = call->n_out > 1 ? call->out[1].data : NULL;
  j.index_bytes = call->choice->stash_bytes / (size_t)neap_operand_lanes(y);
  neap_parallel_for(j.w.batch * j.w.channels, 1, call->n_thread, pool_again, &j);
}

/* In layouts that we can go through again. */
static bool choose_dnnl_max(neap_choose *choose) {
  const neap_choice *choice = choose->choice;
  return choose_dnnl(choose) &&
         neap_window_side_by_side(&choice->in[0], &choose->in[0].shape) > 0 &&
         neap_window_side_by_side(&choice->out[0], &choose->out[0].shape) > 0;
}

/* ---- oneDNN backward ------------------------------------------------------------------------- */

/* With a pair the forward's engine and layouts are followed. MaxPool needs one, for its workspace;
 * averages do not. */
static bool choose_dnnl_grad(neap_choose *choose) {
  if (choose->pair != NULL && choose->pair->engine != NEAP_ENGINE_DNNL) return false;
  if (choose->pair == NULL && choose->op == &neap_op_MaxPoolGrad) return false;
  neap_onednn_case c = neap_dnnl_case_choose(choose, NEAP_ONEDNN_POOL_GRAD);
  if (!describe(&c, choose->op, choose->attrs)) return false;
  if (choose->pair != NULL) { /* the workspace is laid out as the forward's operands are */
    c.in_layout[0] = choose->pair->out[0];
    c.out_layout[0] = choose->pair->in[0];
  }
  return neap_dnnl_choose(choose, &c);
}

static neap_status bind_dnnl_grad(const neap_bind *bind, void **kernel, neap_error *error) {
  neap_onednn_case c = neap_dnnl_case_bind(bind, NEAP_ONEDNN_POOL_GRAD);
  describe(&c, bind->op, bind->attrs);
  return neap_dnnl_bind(bind, &c, kernel, error);
}

/* ---- what a stash says of another x, in any layout ------------------------------------------- */

/* Numbers of taps lie there as y does: run_dnnl_max writes them too. `algorithm`: bytes of each. */
static bool choose_dnnl_take(neap_choose *choose) {
  const neap_choice *pair = choose->pair;
  if (pair == NULL || pair->engine != NEAP_ENGINE_DNNL) return false;

  /* The stash has a number for each lane of y: their bytes follow from its own, since oneDNN does
   * not say them. */
  size_t lanes = neap_layout_bytes(&choose->out[0], &pair->out[0]) / sizeof(float);
  if (lanes == 0) return false;
  choose->choice->in[0] = pair->in[0];
  choose->choice->out[0] = pair->out[0];
  choose->choice->algorithm = (int)(pair->stash_bytes / lanes);
  return choose->choice->algorithm == 1 || choose->choice->algorithm == 4;
}

/* Planes [begin, end) of elements of `bytes` bytes, 2 or 4, as they stand. */
typedef struct take {
  neap_window w;
  size_t bytes, index_bytes;
  const void *x, *index;
  void *y;
  int64_t side_x, side_y;
} take;

static void take_planes(void *context, int64_t begin, int64_t end) {
  const take *t = context;
  const neap_window *w = &t->w;
  for (int64_t p = begin; p < end; p++) {
    const int64_t x = plane_at(w, p, w->n_in, t->side_x);
    int64_t y = plane_at(w, p, w->n_out, t->side_y), at;
    pool_spot s = pool_spot_first(w);
    for (int64_t i = 0; i < w->n_out; i++, y += t->side_y, pool_spot_next(w, &s)) {
      const int64_t tap =
        t->index_bytes == 1 ? ((const uint8_t *)t->index)[y] : ((const int32_t *)t->index)[y];
      /* A window with no element inside x has no winner, and MaxPoolGrad gives nothing back from
       * it. */
      const bool has = pool_spot_has(w, &s, tap, &at);
      if (t->bytes == sizeof(uint16_t))
        ((uint16_t *)t->y)[y] = has ? ((const uint16_t *)t->x)[x + at * t->side_x] : 0;
      else
        ((uint32_t *)t->y)[y] = has ? ((const uint32_t *)t->x)[x + at * t->side_x] : 0;
    }
  }
}

static void run_take(const neap_call *call, size_t index_bytes) {
  const neap_operand *x = &call->in[0], *y = &call->out[0];
  take t = {.w = neap_pool_window(call->op, call->attrs, &x->type.shape, &y->type.shape),
            .bytes = neap_dtype_bytes(x->type.dtype),
            .index_bytes = index_bytes,
            .x = x->data,
            .index = call->in[1].data,
            .y = y->data,
            .side_x = neap_window_side_by_side(&x->layout, &x->type.shape),
            .side_y = neap_window_side_by_side(&y->layout, &y->type.shape)};
  /* The lanes behind the last channel are zeros, and no plane of them is walked. */
  if (x->type.shape.dim[1] % t.side_y != 0)
    neap_clear_bytes(y->data, (size_t)neap_operand_lanes(y) * t.bytes);
  neap_parallel_for(t.w.batch * t.w.channels, 1, call->n_thread, take_planes, &t);
}

static void run_dnnl_take(const neap_call *call) {
  run_take(call, (size_t)call->choice->algorithm);
}

void neap_pool_run_max_take(const neap_call *call) {
  pool_job j = neap_pool_job_of(call, false);
  j.index = call->in[1].data;
  if (neap_pool_is_in_lanes(call))
    run_take(call, pool_index_bytes(&j.w));
  else
    run_planes(call, &j, max_take_f32, max_take_f64);
}

#define DNNL_KERNEL_OF(set, suffix_choose, suffix_bind, run_function)                  \
  {                                                                                    \
    .engine = NEAP_ENGINE_DNNL, .dtypes = (set), .choose = choose_dnnl##suffix_choose, \
    .bind = bind_dnnl##suffix_bind, .unbind = neap_dnnl_unbind, .run = (run_function)  \
  }
#define DNNL_KERNEL(suffix) DNNL_KERNEL_OF(NEAP_BIT(F32), suffix, suffix, neap_dnnl_run)

/* ---- gradients ------------------------------------------------------------------------------- */

/* Emits `type` with x's shape; `stash` NEAP_NO_VALUE: none. */
static neap_status emit_grad(neap_grad *g, const char *type, neap_value_id stash) {
  neap_type x = neap_grad_type(g, g->in[0]);
  g->din[0] =
    neap_grad_emit1(g, type, stash != NEAP_NO_VALUE ? 2 : 1, (neap_value_id[]){g->dout[0], stash},
                    g, (neap_set[]){NEAP_SET_INTS("shape", x.shape.n_dim, x.shape.dim), {0}});
  return NEAP_OK;
}

/* The stash is the only thing kept: INTERNAL error where the forward was built without it. */
static neap_status grad_max(neap_grad *g, neap_error *error) {
  if (g->n_out < 2 || g->out[1] == NEAP_NO_VALUE)
    return neap_fail(error, NEAP_INTERNAL, "MaxPool has no stash to differentiate with");
  return emit_grad(g, "MaxPoolGrad", g->out[1]);
}

static neap_status grad_average(neap_grad *g, neap_error *error) {
  (void)error;
  return emit_grad(g, "AveragePoolGrad", NEAP_NO_VALUE);
}

static neap_status grad_global(neap_grad *g, neap_error *error) {
  (void)error;
  return emit_grad(g, "GlobalAveragePoolGrad", NEAP_NO_VALUE);
}

/* ---- records --------------------------------------------------------------------------------- */

#define COUNT_PAD_ATTR                                                                 \
  [COUNT_PAD] = {"count_include_pad", "padding counts in the divisor", NEAP_ATTR_BOOL, \
                 .value = {.i = 1}}

#define FLOATS_AND_BYTES (NEAP_FLOATS | NEAP_BIT(U8) | NEAP_BIT(I8))

const neap_op neap_op_MaxPool = {
  .name = "MaxPool",
  .summary = "The largest element of each window.",
  .math = "y[n,c,p] = max_k x[n,c, p stride - pad + k dilation]",
  .example = "net:MaxPool(\"x\", \"y\", {kernel = 2})",
  .source = "ONNX MaxPool-12",
  .inputs = {{"x", "(N,C,H,W), or one or three spatial dimensions", FLOATS_AND_BYTES}},
  .outputs = {{"y", "(N,C,OH,OW)", FLOATS_AND_BYTES},
              {"stash", "which element won", NEAP_BIT(U8), NEAP_ARG_OPTIONAL | NEAP_ARG_STASH}},
  .attrs = {NEAP_POOL_ATTRS},
  .infer = neap_pool_infer,
  .cost = neap_pool_cost,
  .grad = grad_max,
  .empty = NEAP_EMPTY_REFUSED,
  .special = "a NaN wins its window; the first of equal elements gets the gradient",
  .kernels = (const neap_kernel[]){DNNL_KERNEL_OF(NEAP_BIT(F32) | NEAP_BIT(U8) | NEAP_BIT(I8), _max,
                                                  , run_dnnl_max),
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = FLOATS_AND_BYTES,
                                    .any_team = true,
                                    .choose = neap_pool_choose_max,
                                    .run = neap_pool_run_max},
                                   {0}},
  .cases =
    "{ {x={2,3,6,7}, kernel={2}}, {x={2,20,7,8}, kernel={3,2}, stride={2,1}, pad={1,0}}, "
    "{x={1,2,9}, kernel={3}, ceil_mode=true, "
    "stride={2}},"
    " {x={1,2,4,4,4}, kernel={2}}, {x={2,16,8,8}, kernel={3}, stride={2}, pad={1}}, {x={1,2,9,9}, "
    "kernel={2}, dilation={3}, "
    "stride={1}}, {x={{2,3,6,7}, dtype=\"u8\", low=0, high=255}, kernel={2}, grad=false}, "
    "{x={{2,32,9,9}, dtype=\"i8\", low=-128, high=128}, kernel={3}, stride={2}, pad={1}, "
    "grad=false} }",
};

const neap_op neap_op_MaxPoolGrad = {
  .name = "MaxPoolGrad",
  .summary = "Backward of MaxPool.",
  .math = "dx[i] = sum of dy over the windows that i won",
  .internal = true,
  .inputs = {{"dy", "(N,C,OH,OW)"}, {"stash", "of the forward", NEAP_BIT(U8), NEAP_ARG_STASH}},
  .outputs = {{"dx", "shape of x"}},
  .attrs = {NEAP_POOL_ATTRS, [CEIL + 1] = NEAP_POOL_SHAPE_ATTR},
  .infer = infer_max_grad,
  .grad_formula = "d.dy = MaxPoolTake(d.dx, stash, ..)",
  .kernels = (const neap_kernel[]){DNNL_KERNEL(_grad),
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_FLOATS,
                                    .any_team = true,
                                    .choose = neap_pool_choose_max_grad,
                                    .run = neap_pool_run_max_grad},
                                   {0}},
};

const neap_op neap_op_MaxPoolTake = {
  .name = "MaxPoolTake",
  .summary = "The elements of x at the places where a MaxPool found its largest.",
  .math = "y[p] = x[i], i the element that won window p of the forward",
  .internal = true,
  .inputs = {{"x", "shape of the forward's x"},
             {"stash", "of the forward", NEAP_BIT(U8), NEAP_ARG_STASH}},
  .outputs = {{"y", "(N,C,OH,OW)"}},
  .attrs = {NEAP_POOL_ATTRS, [CEIL + 1] = NEAP_POOL_SHAPE_ATTR},
  .infer = infer_max_take,
  .grad_formula = "d.x = MaxPoolGrad(d.y, stash, ..)",
  .kernels = (const neap_kernel[]){{.engine = NEAP_ENGINE_DNNL,
                                    .dtypes = NEAP_BIT(F32),
                                    .any_team = true,
                                    .choose = choose_dnnl_take,
                                    .run = run_dnnl_take},
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_FLOATS,
                                    .any_team = true,
                                    .choose = neap_pool_choose_max_take,
                                    .run = neap_pool_run_max_take},
                                   {0}},
};

const neap_op neap_op_AveragePool = {
  .name = "AveragePool",
  .summary = "The mean of each window.",
  .math = "y[n,c,p] = mean_k x[n,c, p stride - pad + k dilation]",
  .example = "net:AveragePool(\"x\", \"y\", {kernel = 3, stride = 2, pad = 1})",
  .source = "ONNX AveragePool-19",
  .inputs = {{"x", "(N,C,H,W), or one or three spatial dimensions"}},
  .outputs = {{"y", "(N,C,OH,OW)"}},
  .attrs = {NEAP_POOL_ATTRS, COUNT_PAD_ATTR},
  .infer = neap_pool_infer,
  .cost = neap_pool_cost,
  .grad = grad_average,
  .empty = NEAP_EMPTY_REFUSED,
  .sum = NEAP_SUM_RUNS,
  .kernels = (const neap_kernel[]){DNNL_KERNEL(),
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_FLOATS,
                                    .any_team = true,
                                    .choose = neap_pool_choose_average,
                                    .run = neap_pool_run_average},
                                   {0}},
  .cases =
    "{ {x={2,3,6,7}, kernel={2}}, {x={2,20,7,8}, kernel={3}, stride={2}, pad={1}}, {x={2,4,7,7}, "
    "kernel={3}, stride={2}, "
    "pad={1}, count_include_pad=false},"
    " {x={1,2,8}, kernel={3}, stride={2}, pad={1}, ceil_mode=true}, {x={1,2,4,5,6}, kernel={2}} }",
  .long_cases = "{ {x={1,16,512,512}, kernel={512}} }",
};

const neap_op neap_op_AveragePoolGrad = {
  .name = "AveragePoolGrad",
  .summary = "Backward of AveragePool.",
  .math = "dx[i] = sum of dy[p] / n[p] over the windows p that hold i",
  .internal = true,
  .inputs = {{"dy", "(N,C,OH,OW)"}},
  .outputs = {{"dx", "shape of x"}},
  .attrs = {NEAP_POOL_ATTRS, COUNT_PAD_ATTR, [SHAPE] = NEAP_POOL_SHAPE_ATTR},
  .infer = infer_average_grad,
  .grad_formula = "d.dy = AveragePool(d.dx, ..)",
  .kernels = (const neap_kernel[]){DNNL_KERNEL(_grad),
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_FLOATS,
                                    .any_team = true,
                                    .choose = neap_pool_choose_average,
                                    .run = neap_pool_run_average_grad},
                                   {0}},
  .cases = "{ {dy={2,3,3,3}, kernel={2}, shape={2,3,6,7}} }",
};

const neap_op neap_op_GlobalAveragePool = {
  .name = "GlobalAveragePool",
  .summary = "The mean over all spatial dimensions, which are kept with size 1.",
  .math = "y[n,c] = mean_p x[n,c,p]",
  .example = "net:GlobalAveragePool(\"x\", \"y\")",
  .source = "ONNX GlobalAveragePool-1; Lin, Chen and Yan, arXiv 1312.4400",
  .inputs = {{"x", "(N,C,H,W), or one or three spatial dimensions"}},
  .outputs = {{"y", "(N,C,1,1)"}},
  .infer = neap_pool_infer_global,
  .cost = neap_pool_cost,
  .grad = grad_global,
  .empty = NEAP_EMPTY_REFUSED,
  .sum = NEAP_SUM_RUNS,
  .kernels = (const neap_kernel[]){DNNL_KERNEL(),
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_FLOATS,
                                    .any_team = true,
                                    .choose = neap_pool_choose_average,
                                    .run = neap_pool_run_average},
                                   {0}},
  .cases = "{ {x={2,3,4,5}}, {x={2,20,7,7}}, {x={1,2,9}}, {x={1,16,2,3,4}} }",
  .long_cases = "{ {x={1,16,512,512}} }",
};

const neap_op neap_op_GlobalAveragePoolGrad = {
  .name = "GlobalAveragePoolGrad",
  .summary = "Backward of GlobalAveragePool.",
  .math = "dx[n,c,p] = dy[n,c] / P",
  .internal = true,
  .inputs = {{"dy", "(N,C,1,1)"}},
  .outputs = {{"dx", "shape of x"}},
  .attrs = {NEAP_POOL_SHAPE_ATTR},
  .infer = infer_global_grad,
  .grad_formula = "d.dy = GlobalAveragePool(d.dx)",
  .kernels = (const neap_kernel[]){DNNL_KERNEL(_grad),
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_FLOATS,
                                    .any_team = true,
                                    .choose = neap_pool_choose_average,
                                    .run = neap_pool_run_average_grad},
                                   {0}},
  .cases = "{ {dy={2,3,1,1}, shape={2,3,4,5}} }",
};
