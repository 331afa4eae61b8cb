/* conv_ref.c: convolution by plain loops, the oracle of the other engines.
 *
 * Sums run in double, a row of outputs at a time: the loop over the row is the innermost, so that
 * it becomes vector code, and the row's sums lie in a tile of doubles on the stack. What depends on
 * the dtype are four row functions; the loops around them are written once. x (N,C,D,H,W), w
 * (O,C/g,KD,KH,KW), y (N,O,OD,OH,OW), g groups.
 */
#include "math/row.h"
#include "math/vec.h"
#include "ops/tile.h"
#include "ops/window.h"

enum { GROUPS = NEAP_WINDOW_N_ATTR, TILE = 256 };

/* Offsets are in elements of the dtype. */
typedef struct row_functions {
  /* sum[i] += scale * x[at + i * step] */
  void (*gather)(double *sum, const void *x, int64_t at, int64_t step, double scale, int64_t n);
  /* sum[i * step] += scale * x[at + i] */
  void (*scatter)(double *sum, int64_t step, const void *x, int64_t at, double scale, int64_t n);
  /* sum of a[at_a + i] * b[at_b + i * step] */
  double (*dot)(const void *a, int64_t at_a, const void *b, int64_t at_b, int64_t step, int64_t n);
  void (*store)(void *y, int64_t at, const double *sum, int64_t n);
  double (*get)(const void *x, int64_t at);
} row_functions;

#define NEAP_BODY "ops/conv_ref_body.h"
#include "math/each_float.h"

typedef struct job {
  neap_window w;
  int64_t n_o, group_o, group_c; /* O, O/g, C/g */
  const void *x, *weight, *bias, *dy;
  void *out;
  bool add; /* to what the output holds */
  const row_functions *row;
} job;

static job new_job(const neap_call *call, const neap_shape *x, const neap_shape *weight,
                   const neap_shape *y) {
  int64_t groups = call->attrs[GROUPS].i;
  job j = {.w = neap_conv_window(call->op, call->attrs, x, y, weight), .n_o = weight->dim[0]};
  j.group_o = weight->dim[0] / groups;
  j.group_c = weight->dim[1];
  j.row = call->out[0].type.dtype == NEAP_DTYPE_F64 ? &rows_f64 : &rows_f32;
  return j;
}

/* sum[0,n) of outputs [from, from+n) of row (od, oh) of plane (n_i, o): all taps that fall inside
 * x. */
static void forward_row(const job *j, int64_t n_i, int64_t o, int64_t od, int64_t oh, int64_t from,
                        int64_t n, double *sum) {
  const neap_window *w = &j->w;
  int64_t c0 = o / j->group_o * j->group_c;
  for (int64_t c = 0; c < j->group_c; c++)
    for (int64_t kd = 0; kd < w->kernel[0]; kd++) {
      /* Taps that fall into the padding add nothing. */
      int64_t d = od * w->stride[0] - w->begin[0] + kd * w->dilation[0];
      if (d < 0 || d >= w->in[0]) continue;
      for (int64_t kh = 0; kh < w->kernel[1]; kh++) {
        int64_t h = oh * w->stride[1] - w->begin[1] + kh * w->dilation[1];
        if (h < 0 || h >= w->in[1]) continue;
        int64_t x_row = (((n_i * w->channels + c0 + c) * w->in[0] + d) * w->in[1] + h) * w->in[2];
        int64_t w_row =
          (((o * j->group_c + c) * w->kernel[0] + kd) * w->kernel[1] + kh) * w->kernel[2];
        for (int64_t kw = 0; kw < w->kernel[2]; kw++) {
          /* Of the columns only those whose tap falls inside x, and of these the tile's. */
          int64_t a, b;
          neap_window_range(w, 2, kw, 0, w->in[2], &a, &b);
          a = NEAP_MAX(a, from), b = NEAP_MIN(b, from + n);
          if (a >= b) continue;
          int64_t at = x_row + a * w->stride[2] - w->begin[2] + kw * w->dilation[2];
          j->row->gather(sum + (a - from), j->x, at, w->stride[2],
                         j->row->get(j->weight, w_row + kw), b - a);
        }
      }
    }
}

/* Planes [begin, end) of y, numbered n * O + o. */
static void forward_planes(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  const neap_window *w = &j->w;
  double sum[TILE];
  for (int64_t p = begin; p < end; p++) {
    double bias = j->bias != NULL ? j->row->get(j->bias, p % j->n_o) : 0.0;
    for (int64_t r = 0; r < w->out[0] * w->out[1]; r++)
      for (int64_t from = 0; from < w->out[2]; from += TILE) {
        /* A tile is summed in double and rounded once. */
        int64_t n = NEAP_MIN(w->out[2] - from, TILE);
        int64_t at = p * w->n_out + r * w->out[2] + from;
        for (int64_t i = 0; i < n; i++)
          sum[i] = bias + (j->add ? j->row->get(j->out, at + i) : 0.0);
        forward_row(j, p / j->n_o, p % j->n_o, r / w->out[1], r % w->out[1], from, n, sum);
        j->row->store(j->out, at, sum, n);
      }
  }
}

void neap_conv_ref_forward(const neap_call *call) {
  job j = new_job(call, &call->in[0].type.shape, &call->in[1].type.shape, &call->out[0].type.shape);
  j.x = call->in[0].data, j.weight = call->in[1].data, j.out = call->out[0].data;
  j.bias = call->n_in > 2 ? call->in[2].data : NULL;
  j.add = neap_fused_adds(call);
  neap_parallel_for(j.w.batch * j.n_o, 1, call->n_thread, forward_planes, &j);
}

/* Output that reads x position `at` with `tap`: -1 when there is none. */
static int64_t reader(const neap_window *w, int d, int64_t at, int64_t tap) {
  int64_t o = at + w->begin[d] - tap * w->dilation[d];
  return o >= 0 && o % w->stride[d] == 0 && o / w->stride[d] < w->out[d] ? o / w->stride[d] : -1;
}

/* sum[0,n) of dx positions [from, from+n) of row (d, h) of plane (n_i, c): every output that has
 * read them. */
static void grad_input_row(const job *j, int64_t n_i, int64_t c, int64_t d, int64_t h, int64_t from,
                           int64_t n, double *sum) {
  const neap_window *w = &j->w;
  int64_t o0 = c / j->group_c * j->group_o;
  for (int64_t o = o0; o < o0 + j->group_o; o++)
    for (int64_t kd = 0; kd < w->kernel[0]; kd++) {
      /* The forward turned round: which output read this element with this tap, if one did. */
      int64_t od = reader(w, 0, d, kd);
      if (od < 0) continue;
      for (int64_t kh = 0; kh < w->kernel[1]; kh++) {
        int64_t oh = reader(w, 1, h, kh);
        if (oh < 0) continue;
        int64_t dy_row = (((n_i * j->n_o + o) * w->out[0] + od) * w->out[1] + oh) * w->out[2];
        int64_t w_row =
          (((o * j->group_c + c % j->group_c) * w->kernel[0] + kd) * w->kernel[1] + kh) *
          w->kernel[2];
        for (int64_t kw = 0; kw < w->kernel[2]; kw++) {
          int64_t a, b;
          neap_window_range(w, 2, kw, from, from + n, &a, &b);
          if (a >= b) continue;
          /* Outputs side by side read elements a stride apart. */
          int64_t to = a * w->stride[2] - w->begin[2] + kw * w->dilation[2] - from;
          j->row->scatter(sum + to, w->stride[2], j->dy, dy_row + a,
                          j->row->get(j->weight, w_row + kw), b - a);
        }
      }
    }
}

/* Planes [begin, end) of dx, numbered n * C + c. */
static void grad_input_planes(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  const neap_window *w = &j->w;
  double sum[TILE];
  for (int64_t p = begin; p < end; p++)
    for (int64_t r = 0; r < w->in[0] * w->in[1]; r++)
      for (int64_t from = 0; from < w->in[2]; from += TILE) {
        /* Every element of dx is made here whole, so that nobody clears it and threads do not
         * meet. */
        int64_t n = NEAP_MIN(w->in[2] - from, TILE);
        memset(sum, 0, sizeof sum);
        grad_input_row(j, p / w->channels, p % w->channels, r / w->in[1], r % w->in[1], from, n,
                       sum);
        j->row->store(j->out, p * w->n_in + r * w->in[2] + from, sum, n);
      }
}

void neap_conv_ref_grad_input(const neap_call *call) {
  job j = new_job(call, &call->out[0].type.shape, &call->in[1].type.shape, &call->in[0].type.shape);
  j.dy = call->in[0].data, j.weight = call->in[1].data, j.out = call->out[0].data;
  neap_parallel_for(j.w.batch * j.w.channels, 1, call->n_thread, grad_input_planes, &j);
}

/* One element of dw: the products of all outputs of plane o with what tap (kd,kh,kw) read of
 * channel c. */
static double grad_weight_tap(const job *j, int64_t o, int64_t c, int64_t kd, int64_t kh,
                              int64_t kw) {
  const neap_window *w = &j->w;
  double sum = 0;
  int64_t d0, d1, h0, h1, a, b;
  neap_window_range(w, 0, kd, 0, w->in[0], &d0, &d1);
  neap_window_range(w, 1, kh, 0, w->in[1], &h0, &h1);
  neap_window_range(w, 2, kw, 0, w->in[2], &a, &b);
  /* A tap that never falls inside x has nothing to multiply. */
  if (a >= b) return 0;
  for (int64_t n_i = 0; n_i < w->batch; n_i++)
    for (int64_t od = d0; od < d1; od++)
      for (int64_t oh = h0; oh < h1; oh++) {
        int64_t d = od * w->stride[0] - w->begin[0] + kd * w->dilation[0];
        int64_t h = oh * w->stride[1] - w->begin[1] + kh * w->dilation[1];
        int64_t x_row = (((n_i * w->channels + c) * w->in[0] + d) * w->in[1] + h) * w->in[2];
        int64_t dy_row = (((n_i * j->n_o + o) * w->out[0] + od) * w->out[1] + oh) * w->out[2];
        int64_t at = x_row + a * w->stride[2] - w->begin[2] + kw * w->dilation[2];
        sum += j->row->dot(j->dy, dy_row + a, j->x, at, w->stride[2], b - a);
      }
  return sum;
}

/* Filters [begin, end) of dw, numbered o * C/g + c. */
static void grad_weight_filters(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  const neap_window *w = &j->w;
  for (int64_t f = begin; f < end; f++) {
    /* The filter's channel within x: those of its group begin at a multiple of C/g. */
    int64_t o = f / j->group_c, c = o / j->group_o * j->group_c + f % j->group_c,
            at = f * w->n_kernel;
    for (int64_t kd = 0; kd < w->kernel[0]; kd++)
      for (int64_t kh = 0; kh < w->kernel[1]; kh++)
        for (int64_t kw = 0; kw < w->kernel[2]; kw++) {
          double sum = grad_weight_tap(j, o, c, kd, kh, kw);
          j->row->store(j->out, at++, &sum, 1);
        }
  }
}

/* What a sum over dy (N,O,L) knows: `side` channels lie side by side, in blocks of that many, the
 * last one padded. */
typedef struct bias_sum {
  const void *dy;
  void *db;
  int64_t n, o, l, side;
  neap_dtype dtype;
} bias_sum;

/* elements of a row of sums: positions of a block are folded that many at a time */
enum { LANES = 256 };

#define NEAP_BODY "ops/conv_bias_body.h"
#include "math/each_float.h"

/* As sum_bias of one image and at most LANES channels, `step` elements a position, of which the
 * first n_side are theirs: halves are widened in tiles, of as many positions as fit where these lie
 * close together. */
static void add_half_image(const bias_sum *k, const uint16_t *dy, int64_t step, int64_t n_side,
                           double *total) {
  float tile[LANES];
  const int64_t at_once = step == n_side ? LANES / step : 1;
  for (int64_t p = 0; p < k->l; p += at_once) {
    const int64_t n = NEAP_MIN(at_once, k->l - p) * n_side;
    neap_cast(NEAP_DTYPE_F32, tile, k->dtype, dy + p * step, n);
    if (n_side == 1) {
      total[0] += neap_row_sum_f32(tile, n);
      continue;
    }
    for (int64_t r = 0; r < n; r += n_side)
      for (int64_t j = 0; j < n_side; j++) total[j] += (double)tile[r + j];
  }
}

/* sum_bias for bf16 and f16; a sum is rounded once. */
static void sum_bias_half(void *context, int64_t begin, int64_t end) {
  const bias_sum *k = context;
  const int64_t blocks = (k->o + k->side - 1) / k->side, stretch = k->side * k->l;
  for (int64_t b = begin; b < end; b++)
    for (int64_t first = 0; first < k->side; first += LANES) {
      double total[LANES] = {0};
      float rounded[LANES];
      const int64_t n_side = NEAP_MIN(k->side - first, LANES);
      for (int64_t i = 0; i < k->n; i++)
        add_half_image(k, (const uint16_t *)k->dy + (i * blocks + b) * stretch + first, k->side,
                       n_side, total);
      /* Padding channels have no bias. */
      const int64_t at = b * k->side + first, n = NEAP_MIN(n_side, k->o - at);
      for (int64_t j = 0; j < n; j++) rounded[j] = (float)total[j];
      if (n > 0) neap_cast(k->dtype, (uint16_t *)k->db + at, NEAP_DTYPE_F32, rounded, n);
    }
}

/* Planes of y, one after the other; those of `side` channels lie side by side. */
typedef struct bias_add {
  const void *b;
  void *y;
  int64_t n_channel, n_space, side;
} bias_add;

#define NEAP_BODY "ops/conv_add_bias_body.h"
#include "math/each_float.h"

void neap_conv_add_bias(const neap_call *call) {
  if (call->n_in < 3 || call->in[2].data == NULL) return;
  const neap_operand *y = &call->out[0];
  const neap_shape *shape = &y->type.shape;
  bias_add k = {call->in[2].data, y->data, shape->dim[1], neap_shape_span(shape, 2, shape->n_dim),
                neap_window_side_by_side(&y->layout, shape)};
  int64_t blocks = (k.n_channel + k.side - 1) / NEAP_MAX(k.side, 1);
  neap_parallel_for(shape->dim[0] * blocks,
                    NEAP_MAX(NEAP_GRAIN / NEAP_MAX(k.n_space * k.side, 1), 1), call->n_thread,
                    y->type.dtype == NEAP_DTYPE_F64 ? add_bias_f64 : add_bias_f32, &k);
}

void neap_conv_sum_bias(const neap_call *call) {
  /* Nobody asks for it. */
  if (call->n_out < 2 || call->out[1].data == NULL) return;
  const neap_operand *dy = &call->in[1];
  const neap_shape *shape = &dy->type.shape;
  bias_sum k = {dy->data,
                call->out[1].data,
                shape->dim[0],
                shape->dim[1],
                neap_shape_span(shape, 2, shape->n_dim),
                neap_window_side_by_side(&dy->layout, shape),
                dy->type.dtype};
  int64_t blocks = (k.o + k.side - 1) / k.side,
          grain = NEAP_GRAIN / NEAP_MAX(k.n * k.l * k.side, 1);
  void (*body)(void *, int64_t, int64_t) = sum_bias_f32;
  if (neap_is_half(k.dtype)) body = sum_bias_half;
  if (k.dtype == NEAP_DTYPE_F64) body = sum_bias_f64;
  neap_parallel_for(blocks, NEAP_MAX(grain, 1), call->n_thread, body, &k);
}

void neap_conv_ref_grad_weight(const neap_call *call) {
  job j = new_job(call, &call->in[0].type.shape, &call->out[0].type.shape, &call->in[1].type.shape);
  j.x = call->in[0].data, j.dy = call->in[1].data, j.out = call->out[0].data;
  neap_parallel_for(j.n_o * j.group_c, 1, call->n_thread, grad_weight_filters, &j);
  neap_conv_sum_bias(call);
}
