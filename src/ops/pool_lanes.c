/* pool_lanes.c: pools of bf16 and f16 in the layouts of convolutions, where channels lie side by
 * side: MaxPool, AveragePool, GlobalAveragePool and their backward ops.
 *
 * A unit is up to 16 channels of one image that lie side by side. Of a unit one row of x, or of dy,
 * is widened at a time; the largest elements, or the sums, of a row of outputs lie beside it in the
 * scratch of the thread, and are rounded once when the row is done. A row of dx gathers from the
 * windows that reach it, so that it is rounded once, too.
 *
 * (oneDNN has kernels for bf16. Its backward adds to dx in bf16, a rounding for each window that
 * reaches an element, and its maximum passes over NaN.)
 *
 * INVARIANT: padding lanes, behind the last channel of a block, are zero in y and dx.
 */
#include "ops/pool_int.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };

/* Where a unit lies: `n` elements of each position, of which `real` are channels. */
typedef struct unit {
  int64_t n, real;
  int64_t step; /* from one position to the next */
  int64_t in;   /* the first element in x or dx, and below in y or dy */
  int64_t out;
} unit;

/* Units of a block of channels that lie side by side. */
static int64_t units_of_block(int64_t side) { return (side + LANES - 1) / LANES; }

static unit unit_at(const neap_window *w, int64_t side, int64_t index) {
  /* The parts of a block, then the blocks of an image, then the images. */
  const int64_t n_part = units_of_block(side), first = index % n_part * LANES,
                block = index / n_part, n_block = (w->channels + side - 1) / side;
  unit u = {.n = NEAP_MIN(side - first, LANES), .step = side};
  u.real = NEAP_MIN(u.n, w->channels - block % n_block * side - first);
  u.in = block * side * w->n_in + first;
  u.out = block * side * w->n_out + first;
  return u;
}

/* n positions of an operand from position `at` of the unit that begins at `begin`. Lanes that the
 * unit does not have are left as they are. */
static void load_row(const neap_operand *x, const unit *u, int64_t begin, int64_t at, int64_t n,
                     float *row) {
  const int64_t from = begin + at * u->step;
  /* A unit that is a whole block has its positions one behind the other: one run for the cast. */
  if (u->step == LANES) {
    neap_cast(NEAP_DTYPE_F32, row, x->type.dtype, neap_element_at(x, from), n * LANES);
    return;
  }
  for (int64_t i = 0; i < n; i++)
    neap_cast(NEAP_DTYPE_F32, row + i * LANES, x->type.dtype,
              neap_element_at(x, from + i * u->step), u->n);
}

/* The same back; padding lanes become zero. */
static void store_row(const neap_operand *y, const unit *u, int64_t begin, int64_t at, int64_t n,
                      float *row) {
  const int64_t to = begin + at * u->step;
  for (int64_t i = 0; i < n; i++)
    for (int64_t l = u->real; l < u->n; l++) row[i * LANES + l] = 0;
  if (u->step == LANES) {
    neap_cast(y->type.dtype, neap_element_at(y, to), NEAP_DTYPE_F32, row, n * LANES);
    return;
  }
  for (int64_t i = 0; i < n; i++)
    neap_cast(y->type.dtype, neap_element_at(y, to + i * u->step), NEAP_DTYPE_F32, row + i * LANES,
              u->n);
}

/* Outputs of a row, one after another, whose windows have tap `kw` inside the row of x: from the
 * first of `n` on. Tap by tap, so that no output waits for its last tap. */
typedef struct stretch {
  int64_t n, first, x, step; /* output, and position in x, of the first; positions to the next */
} stretch;

static stretch stretch_of(const neap_window *w, int64_t kw) {
  int64_t from, to;
  neap_window_range(w, 2, kw, 0, w->in[2], &from, &to);
  return (stretch){.n = to - from,
                   .first = from,
                   .x = from * w->stride[2] + kw * w->dilation[2] - w->begin[2],
                   .step = w->stride[2]};
}

/* ---- the lanes of one position --------------------------------------------------------------- */

/* The rule of window_max (ops/pool_body.h): the first of equal elements wins, a NaN over all. `won`
 * is below 0 before the first tap. Without the pragma the compiler makes single numbers of it. */
NEAP_INLINE void take_largest(float *best, int32_t *won, const float *x, int32_t tap) {
#pragma omp simd
  for (int l = 0; l < LANES; l++) {
    const float v = x[l], b = best[l];
    const int32_t w = won[l];
    const int wins = (w < 0) | (v > b) | ((v != v) & (b == b));
    best[l] = wins ? v : b;
    won[l] = wins ? tap : w;
  }
}

NEAP_INLINE void take_sum(double *sum, const float *x) {
#pragma omp simd
  for (int l = 0; l < LANES; l++) sum[l] += (double)x[l];
}

NEAP_INLINE void take_mean(float *mean, const double *sum, double n) {
#pragma omp simd
  for (int l = 0; l < LANES; l++) mean[l] = (float)(sum[l] / n);
}

/* In double, so that a share is rounded once. */
NEAP_INLINE void divide(float *share, double n) {
#pragma omp simd
  for (int l = 0; l < LANES; l++) share[l] = (float)((double)share[l] / n);
}

NEAP_INLINE void give_winner(float *dx, const float *dy, const int32_t *won, int32_t tap) {
#pragma omp simd
  for (int l = 0; l < LANES; l++) dx[l] += won[l] == tap ? dy[l] : 0;
}

NEAP_INLINE void give_share(float *dx, const float *share) {
#pragma omp simd
  for (int l = 0; l < LANES; l++) dx[l] += share[l];
}

/* ---- forward --------------------------------------------------------------------------------- */

/* What a thread has in its tile: a row of outputs, of floats or doubles, and `n_row` each of y or
 * dy, of numbers of taps, and of x or dx. Rows that several windows read are there while the next
 * ones want them, `held` by their numbers. Lanes that a unit does not have are zeros, not what
 * stood there. */
enum { MOST_HELD = 4 };
typedef struct parts {
  float *best;
  double *sum;
  float *y, *x;
  int32_t *won;
  int64_t n_row, held[MOST_HELD];
} parts;

static int64_t rows_held(const neap_window *w) { return NEAP_MIN(w->kernel[1], MOST_HELD); }

/* Floats of a tile. */
static int64_t tile_elems(const neap_window *w) {
  const int64_t n = rows_held(w);
  return neap_count_mul(neap_count_add(neap_count_mul(2 + 2 * n, w->out[2]), n * w->in[2]), LANES);
}

static parts parts_of(const neap_window *w, float *tile) {
  const int64_t n = w->out[2] * LANES, n_row = rows_held(w);
  memset(tile, 0, (size_t)tile_elems(w) * sizeof *tile);
  return (parts){.best = tile,
                 .sum = (double *)(void *)tile,
                 .y = tile + 2 * n,
                 .won = (int32_t *)(void *)(tile + (2 + n_row) * n),
                 .x = tile + (2 + 2 * n_row) * n,
                 .n_row = n_row};
}

static void forget_rows(parts *p) {
  for (int64_t i = 0; i < p->n_row; i++) p->held[i] = -1;
}

/* The place of a row; whether it is there already. */
static bool hold(parts *p, int64_t row, int64_t *place) {
  *place = row % p->n_row;
  const bool has = p->held[*place] == row;
  p->held[*place] = row;
  return has;
}

/* The row of x that taps (kd,kh) of windows at s read. */
static const float *x_row(const pool_job *j, const unit *u, const pool_spot *s, int64_t kd,
                          int64_t kh, parts *p) {
  const neap_window *w = &j->w;
  const int64_t at = pool_spot_at(w, s, kd, kh, 0) - s->start[2];
  int64_t place;
  const bool has = hold(p, at / NEAP_MAX(w->in[2], 1), &place);
  float *row = p->x + place * w->in[2] * LANES;
  if (!has) load_row(j->in, u, u->in, at, w->in[2], row);
  return row;
}

/* The largest elements of the row of outputs at s, and the numbers of their taps. */
NEAP_INLINE void max_row(const pool_job *j, const unit *u, const pool_spot *s, parts *p) {
  const neap_window *w = &j->w;
  for (int64_t i = 0; i < w->out[2] * LANES; i++) {
    p->best[i] = -INFINITY;
    p->won[i] = -1;
  }
  for (int64_t kd = s->from[0]; kd < s->to[0]; kd++)
    for (int64_t kh = s->from[1]; kh < s->to[1]; kh++) {
      /* Taps are numbered as they are walked: that number is what the stash holds. */
      const int64_t number = (kd * w->kernel[1] + kh) * w->kernel[2];
      const float *x = x_row(j, u, s, kd, kh, p);
      for (int64_t kw = 0; kw < w->kernel[2]; kw++) {
        const stretch t = stretch_of(w, kw);
        for (int64_t i = 0; i < t.n; i++)
          take_largest(p->best + (t.first + i) * LANES, p->won + (t.first + i) * LANES,
                       x + (t.x + i * t.step) * LANES, (int32_t)(number + kw));
      }
    }
}

/* The means of the row of outputs at s, of sums in double; 0 of no element. */
NEAP_INLINE void mean_row(const pool_job *j, const unit *u, pool_spot *s, parts *p) {
  const neap_window *w = &j->w;
  memset(p->sum, 0, (size_t)(w->out[2] * LANES) * sizeof *p->sum);
  for (int64_t kd = s->from[0]; kd < s->to[0]; kd++)
    for (int64_t kh = s->from[1]; kh < s->to[1]; kh++) {
      const float *x = x_row(j, u, s, kd, kh, p);
      for (int64_t kw = 0; kw < w->kernel[2]; kw++) {
        const stretch t = stretch_of(w, kw);
        for (int64_t i = 0; i < t.n; i++)
          take_sum(p->sum + (t.first + i) * LANES, x + (t.x + i * t.step) * LANES);
      }
    }

  /* Sums become means: windows that reach beyond x have fewer elements than the others. */
  for (s->o[2] = 0; s->o[2] < w->out[2]; s->o[2]++) {
    pool_spot_find(w, s, 2);
    const double n = pool_divisor(j, s);
    take_mean(p->y + s->o[2] * LANES, p->sum + s->o[2] * LANES, n > 0 ? n : 1);
  }
}

/* The stash lies as y does. */
NEAP_INLINE void keep_winners(const pool_job *j, const unit *u, int64_t at, const int32_t *won) {
  if (j->index == NULL) return;
  const int64_t to = u->out + at * u->step, n = j->w.out[2] * LANES;
  if (u->step == LANES && pool_index_bytes(&j->w) == 1) {
    uint8_t *index = (uint8_t *)j->index + to;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) index[i] = (uint8_t)NEAP_MAX(won[i], 0);
    return;
  }
  for (int64_t i = 0; i < j->w.out[2]; i++)
    for (int64_t l = 0; l < u->n; l++)
      pool_set_index(j, to + i * u->step + l, NEAP_MAX(won[i * LANES + l], 0));
}

/* The row of outputs that begins at output `at`. */
static void find_row(const neap_window *w, pool_spot *s, int64_t at) {
  s->o[0] = at / w->out[2] / w->out[1], s->o[1] = at / w->out[2] % w->out[1];
  pool_spot_find(w, s, 0);
  pool_spot_find(w, s, 1);
}

/* Of units the rows of y. */
NEAP_INLINE void fill_units(const pool_job *j, int64_t begin, int64_t end, float *tile,
                            bool is_max) {
  const neap_window *w = &j->w;
  const int64_t side = neap_window_side_by_side(&j->in->layout, &j->in->type.shape);
  parts p = parts_of(w, tile);
  for (int64_t i = begin; i < end; i++) {
    const unit u = unit_at(w, side, i);
    forget_rows(&p); /* the unit before had rows of the same numbers */
    pool_spot s = pool_spot_first(w);
    for (int64_t at = 0; at < w->n_out; at += w->out[2]) {
      find_row(w, &s, at);
      if (is_max)
        max_row(j, &u, &s, &p);
      else
        mean_row(j, &u, &s, &p);
      store_row(j->out, &u, u.out, at, w->out[2], is_max ? p.best : p.y);
      if (is_max) keep_winners(j, &u, at, p.won);
    }
  }
}

/* Bodies of neap_rows_run over units. */
NEAP_MULTIVERSION static void max_units(void *context, int64_t begin, int64_t end, float *tile) {
  fill_units(context, begin, end, tile, true);
}
NEAP_MULTIVERSION static void average_units(void *context, int64_t begin, int64_t end,
                                            float *tile) {
  fill_units(context, begin, end, tile, false);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* The numbers in the stash of the row of outputs that begins at output `row`. */
NEAP_INLINE void read_winners(const pool_job *j, const unit *u, int64_t row, int32_t *won) {
  const int64_t from = u->out + row * u->step, n = j->w.out[2] * LANES;
  if (u->step == LANES && pool_index_bytes(&j->w) == 1) {
    const uint8_t *index = (const uint8_t *)j->index + from;
#pragma omp simd
    for (int64_t i = 0; i < n; i++) won[i] = index[i];
    return;
  }
  for (int64_t i = 0; i < j->w.out[2]; i++)
    for (int64_t l = 0; l < u->n; l++)
      won[i * LANES + l] = (int32_t)pool_get_index(j, from + i * u->step + l);
}

/* dy's row of outputs at s goes to the elements that won by taps (kd,kh,..). */
NEAP_INLINE void give_max(const pool_job *j, const unit *u, const pool_spot *s, int64_t number,
                          parts *p) {
  const neap_window *w = &j->w;
  const int64_t row = s->o[0] * w->out[1] + s->o[1], n = w->out[2];
  int64_t place;

  /* Several rows of dx gather from one row of outputs: it is widened for the first of them and held
   * for the others. */
  const bool has = hold(p, row, &place);
  float *dy = p->y + place * n * LANES;
  int32_t *won = p->won + place * n * LANES;
  if (!has) {
    load_row(j->in, u, u->out, row * n, n, dy);
    read_winners(j, u, row * n, won);
  }

  /* The last tap first: so outputs reach an element in their order, as in the plain loops, and its
   * sum has the same bits. */
  for (int64_t kw = w->kernel[2] - 1; kw >= 0; kw--) {
    const stretch t = stretch_of(w, kw);
    for (int64_t i = 0; i < t.n; i++)
      give_winner(p->x + (t.x + i * t.step) * LANES, dy + (t.first + i) * LANES,
                  won + (t.first + i) * LANES, (int32_t)(number + kw));
  }
}

/* Each element of a window has the same share. */
NEAP_INLINE void give_average(const pool_job *j, const unit *u, pool_spot *s, parts *p) {
  const neap_window *w = &j->w;
  const int64_t row = s->o[0] * w->out[1] + s->o[1], n = w->out[2];
  int64_t place;
  const bool has = hold(p, row, &place);
  float *share = p->y + place * n * LANES;
  if (!has) {
    load_row(j->in, u, u->out, row * n, n, share);
    for (s->o[2] = 0; s->o[2] < n; s->o[2]++) {
      pool_spot_find(w, s, 2);
      divide(share + s->o[2] * LANES, pool_divisor(j, s));
    }
  }
  for (int64_t kw = w->kernel[2] - 1; kw >= 0; kw--) {
    const stretch t = stretch_of(w, kw);
    for (int64_t i = 0; i < t.n; i++)
      give_share(p->x + (t.x + i * t.step) * LANES, share + (t.first + i) * LANES);
  }
}

/* A row (d,h) of dx: of each row of outputs, in order, whose windows reach it. */
NEAP_INLINE void gather_row(const pool_job *j, const unit *u, int64_t d, int64_t h, parts *p,
                            bool is_max) {
  const neap_window *w = &j->w;
  int64_t from, to;
  pool_spot s = pool_spot_first(w);
  memset(p->x, 0, (size_t)(w->in[2] * LANES) * sizeof *p->x);
  /* Later taps are those of earlier windows. */
  for (int64_t kd = w->kernel[0] - 1; kd >= 0; kd--) {
    /* One output at most reads position d by tap kd: none where strides pass it over. */
    neap_window_range(w, 0, kd, d, d + 1, &from, &to);
    if (from >= to) continue;
    s.o[0] = from;
    pool_spot_find(w, &s, 0);
    for (int64_t kh = w->kernel[1] - 1; kh >= 0; kh--) {
      neap_window_range(w, 1, kh, h, h + 1, &from, &to);
      if (from >= to) continue;
      s.o[1] = from;
      pool_spot_find(w, &s, 1);
      if (is_max)
        give_max(j, u, &s, (kd * w->kernel[1] + kh) * w->kernel[2], p);
      else
        give_average(j, u, &s, p);
    }
  }
}

/* Of units the rows of dx. */
NEAP_INLINE void gather_units(const pool_job *j, int64_t begin, int64_t end, float *tile,
                              bool is_max) {
  const neap_window *w = &j->w;
  const int64_t side = neap_window_side_by_side(&j->out->layout, &j->out->type.shape);
  parts p = parts_of(w, tile);
  for (int64_t i = begin; i < end; i++) {
    const unit u = unit_at(w, side, i);
    forget_rows(&p);
    for (int64_t row = 0; row < w->in[0] * w->in[1]; row++) {
      gather_row(j, &u, row / w->in[1], row % w->in[1], &p, is_max);
      store_row(j->out, &u, u.in, row * w->in[2], w->in[2], p.x);
    }
  }
}

NEAP_MULTIVERSION static void max_grad_units(void *context, int64_t begin, int64_t end,
                                             float *tile) {
  gather_units(context, begin, end, tile, true);
}
NEAP_MULTIVERSION static void average_grad_units(void *context, int64_t begin, int64_t end,
                                                 float *tile) {
  gather_units(context, begin, end, tile, false);
}

/* ---- choosing and running -------------------------------------------------------------------- */

static int64_t units_of(const neap_window *w, int64_t side) {
  return w->batch * ((w->channels + side - 1) / side) * units_of_block(side);
}

/* Windows of sizes of their own have no taps that a row of dx could be asked for. */
bool neap_pool_lanes_choose(neap_choose *c, const neap_layout *layout) {
  const bool backward = neap_op_attr_index(c->op, "shape") >= 0;
  const neap_type *x = backward ? &c->out[0] : &c->in[0], *y = backward ? &c->in[0] : &c->out[0];
  const int64_t side = neap_window_side_by_side(layout, &x->shape);
  if (!neap_is_half(x->dtype) || side <= 1) return false;
  const neap_window w = neap_pool_window(c->op, c->attrs, &x->shape, &y->shape);
  if (w.adaptive && w.n_out != 1) return false;
  const neap_layout taken = *layout; /* which may lie in the choice */
  c->choice->in[0] = taken;
  c->choice->out[0] = taken;
  if (c->n_out > 1)
    c->choice->stash_bytes =
      neap_layout_bytes(y, &taken) / neap_dtype_bytes(y->dtype) * pool_index_bytes(&w);
  c->choice->scratch_bytes =
    neap_rows_bytes(x->dtype, NEAP_MIN(c->choice->n_thread, units_of(&w, side)), 1, tile_elems(&w));
  return true;
}

bool neap_pool_is_in_lanes(const neap_call *call) {
  const neap_operand *x = &call->in[0];
  return neap_is_half(x->type.dtype) && neap_window_side_by_side(&x->layout, &x->type.shape) > 1;
}

static void run_units(const neap_call *call, pool_job *j, neap_rows_body body) {
  const neap_window *w = &j->w;
  const int64_t side = neap_window_side_by_side(&j->in->layout, &j->in->type.shape),
                work = NEAP_MAX(1, neap_count_mul(neap_count_mul(w->n_out, w->n_kernel), LANES));
  neap_rows_run(call, j->in->type.dtype, call->scratch, 1, tile_elems(w), units_of(w, side),
                NEAP_MAX(1, NEAP_GRAIN / work), body, j);
}

void neap_pool_lanes_max(const neap_call *call, pool_job *j) { run_units(call, j, max_units); }
void neap_pool_lanes_average(const neap_call *call, pool_job *j) {
  run_units(call, j, average_units);
}
void neap_pool_lanes_max_grad(const neap_call *call, pool_job *j) {
  run_units(call, j, max_grad_units);
}
void neap_pool_lanes_average_grad(const neap_call *call, pool_job *j) {
  run_units(call, j, average_grad_units);
}
