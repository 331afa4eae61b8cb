/* conv_gemm.c: convolution as one matrix product an image (the engine `blas`).
 *
 * An image x (C,D,H,W) is unrolled to columns (C/g K, L), K the elements of the window, L the outputs of a plane; then
 * y (O/g,L) = w (O/g, C/g K) columns, a group at a time. The columns of one group are the scratch; a window of one
 * element without stride and padding needs none, since x itself is the matrix.
 * Source: Chellapilla, Puri and Simard, "High performance convolutional neural networks for document processing", 2006.
 */
#include "math/blas.h"
#include "math/vec.h"
#include "ops/window.h"

enum { GROUPS = NEAP_WINDOW_N_ATTR };

/* Whether x is its own column matrix. */
static bool is_pointwise(const neap_window *w) {
  for (int d = 0; d < 3; d++)
    if (w->kernel[d] != 1 || w->stride[d] != 1 || w->begin[d] != 0 || w->end[d] != 0) return false;
  return true;
}

static bool choose(neap_choose *c, const neap_shape *x, const neap_shape *weight, const neap_shape *y) {
  neap_window w = neap_window_of(c->attrs, x, y, weight->dim + 2);
  size_t bytes = (size_t)(weight->dim[1] * w.n_kernel * w.n_out) * neap_dtype_bytes(c->in[0].dtype);
  if (is_pointwise(&w)) bytes = 0;
  if (bytes > c->scratch_limit) return false;
  c->choice->scratch_bytes = bytes;
  return true;
}

bool neap_conv_gemm_choose(neap_choose *c) { return choose(c, &c->in[0].shape, &c->in[1].shape, &c->out[0].shape); }
bool neap_conv_gemm_choose_grad_input(neap_choose *c) { return choose(c, &c->out[0].shape, &c->in[1].shape, &c->in[0].shape); }
bool neap_conv_gemm_choose_grad_weight(neap_choose *c) { return choose(c, &c->in[0].shape, &c->out[0].shape, &c->in[1].shape); }

typedef struct job {
  neap_window w;
  neap_dtype dtype;
  size_t elem_bytes;
  int n_thread;
  int64_t groups, n_o, group_o, group_c;
  int64_t n_column; /* rows of the column matrix: C/g K */
  bool pointwise;
  char *image;      /* of the group at hand: x or dx, (C/g, D,H,W) */
  char *columns;
} job;

static job new_job(const neap_call *call, const neap_shape *x, const neap_shape *weight, const neap_shape *y) {
  job j = {.w = neap_window_of(call->attrs, x, y, weight->dim + 2), .dtype = call->out[0].type.dtype, .n_thread = call->n_thread};
  j.elem_bytes = neap_dtype_bytes(j.dtype);
  j.groups = call->attrs[GROUPS].i;
  j.n_o = weight->dim[0];
  j.group_o = weight->dim[0] / j.groups;
  j.group_c = weight->dim[1];
  j.n_column = j.group_c * j.w.n_kernel;
  j.pointwise = is_pointwise(&j.w);
  j.columns = call->scratch;
  return j;
}

/* Row `r` of the column matrix is one tap of one channel. `into_columns` copies x there, else adds it back to dx. */
#define MOVE_ROW(type, suffix)                                                                                            \
  NEAP_MULTIVERSION static void move_row_##suffix(const job *j, int64_t r, bool into_columns) {                           \
    const neap_window *w = &j->w;                                                                                         \
    int64_t kw = r % w->kernel[2], kh = r / w->kernel[2] % w->kernel[1], kd = r / w->kernel[2] / w->kernel[1] % w->kernel[0]; \
    type *plane = (type *)(void *)j->image + r / w->n_kernel * w->n_in; /* of x or dx */                                   \
    type *column = (type *)(void *)j->columns + r * w->n_out;                                                             \
    int64_t from, to, s = w->stride[2], shift = kw * w->dilation[2] - w->begin[2];                                        \
    neap_window_range(w, 2, kw, 0, w->in[2], &from, &to);                                                                 \
    to = NEAP_MAX(from, to);                                                                                              \
    for (int64_t od = 0; od < w->out[0]; od++)                                                                            \
      for (int64_t oh = 0; oh < w->out[1]; oh++, column += w->out[2]) {                                                   \
        int64_t d = od * w->stride[0] - w->begin[0] + kd * w->dilation[0];                                                \
        int64_t h = oh * w->stride[1] - w->begin[1] + kh * w->dilation[1];                                                \
        bool inside = d >= 0 && d < w->in[0] && h >= 0 && h < w->in[1];                                                   \
        int64_t row = (d * w->in[1] + h) * w->in[2] + shift; /* plane[row + i s] is what output i reads, when inside */    \
        if (into_columns && !inside) {                                                                                    \
          memset(column, 0, (size_t)w->out[2] * sizeof(type));                                                            \
        } else if (into_columns) {                                                                                        \
          for (int64_t i = 0; i < NEAP_MIN(from, w->out[2]); i++) column[i] = 0;                                          \
          if (s == 1 && to > from)                                                                                        \
            memcpy(column + from, plane + row + from, (size_t)(to - from) * sizeof(type));                                \
          else                                                                                                            \
            for (int64_t i = from; i < to; i++) column[i] = plane[row + i * s];                                           \
          for (int64_t i = to; i < w->out[2]; i++) column[i] = 0;                                                         \
        } else if (inside) {                                                                                              \
          for (int64_t i = from; i < to; i++) plane[row + i * s] += column[i];                                            \
        }                                                                                                                 \
      }                                                                                                                   \
  }
MOVE_ROW(float, f32)
MOVE_ROW(double, f64)

static void unroll_rows(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  for (int64_t r = begin; r < end; r++) j->dtype == NEAP_DTYPE_F64 ? move_row_f64(j, r, true) : move_row_f32(j, r, true);
}

/* Channels [begin, end): all taps of a channel add to the same plane, so a channel is one thread's. */
static void fold_channels(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  memset(j->image + (size_t)(begin * j->w.n_in) * j->elem_bytes, 0, (size_t)((end - begin) * j->w.n_in) * j->elem_bytes);
  for (int64_t r = begin * j->w.n_kernel; r < end * j->w.n_kernel; r++)
    j->dtype == NEAP_DTYPE_F64 ? move_row_f64(j, r, false) : move_row_f32(j, r, false);
}

/* The column matrix of the image at hand. */
static char *unroll(job *j) {
  if (j->pointwise) return j->image;
  neap_parallel_for(j->n_column, NEAP_MAX(1, NEAP_GRAIN / j->w.n_out), j->n_thread, unroll_rows, j);
  return j->columns;
}

static char *at(const job *j, void *base, int64_t elems) { return (char *)base + (size_t)elems * j->elem_bytes; }

#define ADD_BIAS(type)                                                            \
  static void add_bias_##type(type *y, const type *b, int64_t o, int64_t l) {     \
    for (int64_t i = 0; i < o; i++)                                               \
      for (int64_t k = 0; k < l; k++) y[i * l + k] += b[i];                       \
  }
ADD_BIAS(float)
ADD_BIAS(double)

void neap_conv_gemm_forward(const neap_call *call) {
  job j = new_job(call, &call->in[0].type.shape, &call->in[1].type.shape, &call->out[0].type.shape);
  void *bias = call->n_in > 2 ? call->in[2].data : NULL;
  int64_t l = j.w.n_out;
  for (int64_t n = 0; n < j.w.batch; n++) {
    char *y = at(&j, call->out[0].data, n * j.n_o * l);
    for (int64_t g = 0; g < j.groups; g++) {
      j.image = at(&j, call->in[0].data, (n * j.w.channels + g * j.group_c) * j.w.n_in);
      neap_gemm(j.dtype, false, false, false, j.group_o, l, j.n_column, at(&j, call->in[1].data, g * j.group_o * j.n_column),
                unroll(&j), false, at(&j, y, g * j.group_o * l), j.n_thread);
    }
    if (bias == NULL) continue;
    if (j.dtype == NEAP_DTYPE_F64)
      add_bias_double((double *)(void *)y, bias, j.n_o, l);
    else
      add_bias_float((float *)(void *)y, bias, j.n_o, l);
  }
}

/* columns (C/g K, L) = w' dy, then every column adds to the elements of dx it was copied from. */
void neap_conv_gemm_grad_input(const neap_call *call) {
  job j = new_job(call, &call->out[0].type.shape, &call->in[1].type.shape, &call->in[0].type.shape);
  int64_t l = j.w.n_out;
  for (int64_t n = 0; n < j.w.batch; n++)
    for (int64_t g = 0; g < j.groups; g++) {
      j.image = at(&j, call->out[0].data, (n * j.w.channels + g * j.group_c) * j.w.n_in);
      neap_gemm(j.dtype, false, true, false, j.n_column, l, j.group_o, at(&j, call->in[1].data, g * j.group_o * j.n_column),
                at(&j, call->in[0].data, (n * j.n_o + g * j.group_o) * l), false, j.pointwise ? j.image : j.columns, j.n_thread);
      if (!j.pointwise)
        neap_parallel_for(j.group_c, NEAP_MAX(1, NEAP_GRAIN / (j.w.n_out * j.w.n_kernel)), j.n_thread, fold_channels, &j);
    }
}

/* dw (O/g, C/g K) = sum over images of dy (O/g, L) columns' */
void neap_conv_gemm_grad_weight(const neap_call *call) {
  job j = new_job(call, &call->in[0].type.shape, &call->out[0].type.shape, &call->in[1].type.shape);
  int64_t l = j.w.n_out;
  if (j.w.batch == 0) memset(call->out[0].data, 0, neap_type_bytes(&call->out[0].type));
  for (int64_t n = 0; n < j.w.batch; n++)
    for (int64_t g = 0; g < j.groups; g++) {
      j.image = at(&j, call->in[0].data, (n * j.w.channels + g * j.group_c) * j.w.n_in);
      neap_gemm(j.dtype, false, false, true, j.group_o, j.n_column, l, at(&j, call->in[1].data, (n * j.n_o + g * j.group_o) * l),
                unroll(&j), n > 0, at(&j, call->out[0].data, g * j.group_o * j.n_column), j.n_thread);
    }
  if (call->n_out > 1 && call->out[1].data != NULL)
    neap_conv_sum_bias(j.dtype, call->in[1].data, j.w.batch, j.n_o, l, call->out[1].data);
}
