/* pool_int.h: private to the pools: the job of a plain kernel, and the walk over its windows, which
 * the loops over planes (pool.c) and over channels side by side (pool_lanes.c) share.
 *
 * INVARIANT: whichever loop runs, taps of a window are met in row-major order, and outputs too: so
 * the first of equal elements, and the order of every sum, are the same.
 */
#ifndef NEAP_OPS_POOL_INT_H
#define NEAP_OPS_POOL_INT_H

#include "ops/pool.h"

/* Of any pool and any backward: what has no `kernel` is global, or adapts to the size of y. */
neap_window neap_pool_window(const neap_op *op, const neap_attr_value *attrs, const neap_shape *x,
                             const neap_shape *y);

/* Of one number in the stash. */
static inline size_t pool_index_bytes(const neap_window *w) { return w->n_kernel <= 256 ? 1 : 4; }

typedef struct pool_job {
  neap_window w;
  bool count_pad, sum; /* an average divides by padding too; by nothing */
  double p;            /* LpPool's */
  const neap_operand *in;
  const neap_operand *out;
  void *index;       /* u8 or i32 by index_bytes; NULL when nobody reads it */
  int64_t *position; /* in x, of the winner; NULL when nobody asks */
} pool_job;

static inline int64_t pool_get_index(const pool_job *j, int64_t at) {
  return pool_index_bytes(&j->w) == 1 ? ((const uint8_t *)j->index)[at]
                                      : ((const int32_t *)j->index)[at];
}

static inline void pool_set_index(const pool_job *j, int64_t at, int64_t index) {
  if (j->index == NULL) return;
  if (pool_index_bytes(&j->w) == 1)
    ((uint8_t *)j->index)[at] = (uint8_t)index;
  else
    ((int32_t *)j->index)[at] = (int32_t)index;
}

/* Where a loop over the outputs of a plane is: the output, in x the position of its window's first
 * element, and the taps [from, to) in each dimension that fall inside x. */
typedef struct pool_spot {
  int64_t o[3], start[3], from[3], to[3];
} pool_spot;

/* Taps of dimension d before the end of x, or of x and the padding behind it: `in` positions. Most
 * windows are inside as a whole, and need no division. */
static inline int64_t pool_taps_before(const neap_window *w, int d, int64_t start, int64_t in) {
  const int64_t step = w->dilation[d];
  if (start + (w->kernel[d] - 1) * step < in) return w->kernel[d];
  return start >= in ? 0 : (in - start + step - 1) / step;
}

/* Dimension d of a spot whose output is known. */
static inline void pool_spot_find(const neap_window *w, pool_spot *s, int d) {
  if (w->adaptive) {
    /* From floor(o in / out) to ceil((o + 1) in / out): no larger than two of 2^31. */
    s->start[d] = s->o[d] * w->in[d] / w->out[d];
    s->from[d] = 0;
    s->to[d] = ((s->o[d] + 1) * w->in[d] + w->out[d] - 1) / w->out[d] - s->start[d];
    return;
  }
  /* The first tap that is not in front of x: -start / step, rounded up. */
  const int64_t start = s->o[d] * w->stride[d] - w->begin[d], step = w->dilation[d];
  s->start[d] = start;
  s->from[d] = start >= 0 ? 0 : NEAP_MIN((-start + step - 1) / step, w->kernel[d]);
  s->to[d] = pool_taps_before(w, d, start, w->in[d]);
}

static inline pool_spot pool_spot_first(const neap_window *w) {
  pool_spot s = {.o = {0}};
  for (int d = 0; d < 3; d++) pool_spot_find(w, &s, d);
  return s;
}

/* The next output of a plane in row-major order. */
static inline void pool_spot_next(const neap_window *w, pool_spot *s) {
  /* Only the dimensions that change are looked up again, most of the time the last alone. */
  int d = 2;
  while (++s->o[d] == w->out[d] && d > 0) {
    s->o[d] = 0;
    pool_spot_find(w, s, d--);
  }
  pool_spot_find(w, s, d);
}

/* The position in a plane of x of tap (kd,kh,kw) of the spot's window. */
static inline int64_t pool_spot_at(const neap_window *w, const pool_spot *s, int64_t kd, int64_t kh,
                                   int64_t kw) {
  int64_t d = s->start[0] + kd * w->dilation[0], h = s->start[1] + kh * w->dilation[1];
  return (d * w->in[1] + h) * w->in[2] + s->start[2] + kw * w->dilation[2];
}

/* Whether tap number `tap` is inside x; *at is its position there. */
static inline bool pool_spot_has(const neap_window *w, const pool_spot *s, int64_t tap,
                                 int64_t *at) {
  const int64_t k[3] = {tap / w->kernel[2] / w->kernel[1], tap / w->kernel[2] % w->kernel[1],
                        tap % w->kernel[2]};
  for (int d = 0; d < 3; d++)
    if (k[d] < s->from[d] || k[d] >= s->to[d]) return false;
  *at = pool_spot_at(w, s, k[0], k[1], k[2]);
  return true;
}

/* What an average divides by: the elements inside x, or inside x and its padding. Padding in front
 * is reached from tap 0 on, so with it every tap before the end counts; what rounding up adds
 * behind the padding never does. */
static inline double pool_divisor(const pool_job *j, const pool_spot *s) {
  const neap_window *w = &j->w;
  if (j->sum) return 1;
  double n = 1;
  for (int d = 0; d < 3; d++) {
    int64_t many = j->count_pad ? pool_taps_before(w, d, s->start[d], w->in[d] + w->end[d])
                                : NEAP_MAX(s->to[d] - s->from[d], 0);
    n *= (double)many;
  }
  return n;
}

/* A job of which x is the input, or, in a backward, the output. */
pool_job neap_pool_job_of(const neap_call *call, bool backward);

/* ---- channels side by side (pool_lanes.c) ---------------------------------------------------- */

/* Whether a pool of halves can be had with x in this layout, which y takes, too: sets the choice,
 * the bytes of a stash included where the op has one. */
bool neap_pool_lanes_choose(neap_choose *choose, const neap_layout *layout);
/* Whether a call was chosen so. */
bool neap_pool_is_in_lanes(const neap_call *call);
void neap_pool_lanes_max(const neap_call *call, pool_job *job);
void neap_pool_lanes_max_grad(const neap_call *call, pool_job *job);
void neap_pool_lanes_average(const neap_call *call, pool_job *job);
void neap_pool_lanes_average_grad(const neap_call *call, pool_job *job);

#endif
