/* conv_ref.c: convolution by plain loops, the oracle of the other engines.
 *
 * Sums run in double, a row of outputs at a time: the loop over the row is the innermost, so that
 * it becomes vector code, and the row's sums lie in a tile of doubles on the stack. What depends on
 * the dtype are four row functions; the loops around them are written once. x (N,C,D,H,W), w
 * (O,C/g,KD,KH,KW), y (N,O,OD,OH,OW), g groups.
 */
#include "math/row.h"
#include "math/vec.h"
#include "ops/rows.h"
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

void neap_conv_each_tap(const neap_conv_row *r, neap_conv_tap tap, void *context) {
  const neap_window *w = r->w;
  /* Output channel o reads the channels of its group alone. */
  int64_t c0 = r->o / r->group_o * r->group_c;
  for (int64_t c = 0; c < r->group_c; c++)
    for (int64_t kd = 0; kd < w->kernel[0]; kd++) {
      /* Row od of the output, tap kd: row d of x, or padding, which adds nothing. */
      int64_t d = r->od * w->stride[0] - w->begin[0] + kd * w->dilation[0];
      if (d < 0 || d >= w->in[0]) continue;
      for (int64_t kh = 0; kh < w->kernel[1]; kh++) {
        int64_t h = r->oh * w->stride[1] - w->begin[1] + kh * w->dilation[1];
        if (h < 0 || h >= w->in[1]) continue;
        int64_t x_row =
          (((r->image * w->channels + c0 + c) * w->in[0] + d) * w->in[1] + h) * w->in[2];
        int64_t w_row =
          (((r->o * r->group_c + c) * w->kernel[0] + kd) * w->kernel[1] + kh) * w->kernel[2];
        for (int64_t kw = 0; kw < w->kernel[2]; kw++) {
          /* Of the columns only those whose tap falls inside x, and of these the row's. */
          int64_t a, b;
          neap_window_range(w, 2, kw, 0, w->in[2], &a, &b);
          a = NEAP_MAX(a, r->from), b = NEAP_MIN(b, r->from + r->n);
          if (a >= b) continue;
          int64_t at = x_row + a * w->stride[2] - w->begin[2] + kw * w->dilation[2];
          tap(context, at, w_row + kw, a - r->from, b - a);
        }
      }
    }
}

typedef struct forward_sums {
  const job *j;
  double *sum;
} forward_sums;

static void forward_tap(void *context, int64_t x, int64_t weight, int64_t first, int64_t n) {
  const forward_sums *s = context;
  const job *j = s->j;
  j->row->gather(s->sum + first, j->x, x, j->w.stride[2], j->row->get(j->weight, weight), n);
}

/* Planes [begin, end) of y, numbered n * O + o. */
static void forward_planes(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  const neap_window *w = &j->w;
  double sum[TILE];
  for (int64_t p = begin; p < end; p++) {
    double bias = j->bias != NULL ? j->row->get(j->bias, p % j->n_o) : 0.0;
    /* Row r of the plane lies at depth r / out[1] and height r % out[1]. */
    for (int64_t r = 0; r < w->out[0] * w->out[1]; r++)
      for (int64_t from = 0; from < w->out[2]; from += TILE) {
        /* A tile is summed in double and rounded once. */
        int64_t n = NEAP_MIN(w->out[2] - from, TILE);
        int64_t at = p * w->n_out + r * w->out[2] + from;
        for (int64_t i = 0; i < n; i++)
          sum[i] = bias + (j->add ? j->row->get(j->out, at + i) : 0.0);
        const neap_conv_row row = {
          w, j->group_c, j->group_o, p / j->n_o, p % j->n_o, r / w->out[1], r % w->out[1], from, n};
        neap_conv_each_tap(&row, forward_tap, &(forward_sums){j, sum});
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
  /* at = o stride - begin + tap dilation, solved for o; what leaves a remainder was passed over. */
  int64_t o = at + w->begin[d] - tap * w->dilation[d];
  return o >= 0 && o % w->stride[d] == 0 && o / w->stride[d] < w->out[d] ? o / w->stride[d] : -1;
}

/* sum[0,n) of dx positions [from, from+n) of row (d, h) of plane (n_i, c): every output that has
 * read them. */
static void grad_input_row(const job *j, int64_t n_i, int64_t c, int64_t d, int64_t h, int64_t from,
                           int64_t n, double *sum) {
  const neap_window *w = &j->w;
  /* Channel c was read by the outputs of its own group alone. */
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
  /* Image after image, each row of outputs against the row of x that the tap reads. */
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
  const neap_operand *dy, *db;
  int64_t n, o, l, side;
} bias_sum;

/* elements of a row of sums: positions of a block are folded that many at a time */
enum { LANES = 256 };

#define NEAP_BODY "ops/conv_bias_body.h"
#include "math/each_float.h"

/* sum_bias for bf16 and f16: a block's positions are rows of its channels. */
static void sum_bias_half(void *context, int64_t begin, int64_t end) {
  const bias_sum *k = context;
  const int64_t blocks = (k->o + k->side - 1) / k->side, stretch = k->side * k->l;
  for (int64_t b = begin; b < end; b++)
    for (int64_t first = 0; first < k->side; first += NEAP_TILE) {
      double total[NEAP_TILE] = {0};
      const int64_t n_side = NEAP_MIN(k->side - first, NEAP_TILE), at = b * k->side + first;
      for (int64_t i = 0; i < k->n; i++)
        neap_rows_add_halves(k->dy, (i * blocks + b) * stretch + first, k->l, k->side, n_side,
                             total);
      /* Padding channels have no bias. */
      neap_rows_put_halves(k->db, at, NEAP_MAX(NEAP_MIN(n_side, k->o - at), 0), total);
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
  bias_sum k = {dy,
                &call->out[1],
                shape->dim[0],
                shape->dim[1],
                neap_shape_span(shape, 2, shape->n_dim),
                neap_window_side_by_side(&dy->layout, shape)};
  int64_t blocks = (k.o + k.side - 1) / k.side,
          grain = NEAP_GRAIN / NEAP_MAX(k.n * k.l * k.side, 1);
  void (*body)(void *, int64_t, int64_t) = sum_bias_f32;
  if (neap_is_half(dy->type.dtype)) body = sum_bias_half;
  if (dy->type.dtype == NEAP_DTYPE_F64) body = sum_bias_f64;
  neap_parallel_for(blocks, NEAP_MAX(grain, 1), call->n_thread, body, &k);
}

void neap_conv_ref_grad_weight(const neap_call *call) {
  job j = new_job(call, &call->in[0].type.shape, &call->out[0].type.shape, &call->in[1].type.shape);
  j.x = call->in[0].data, j.dy = call->in[1].data, j.out = call->out[0].data;
  neap_parallel_for(j.n_o * j.group_c, 1, call->n_thread, grad_weight_filters, &j);
  neap_conv_sum_bias(call);
}
