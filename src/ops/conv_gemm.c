/* conv_gemm.c: convolution as one matrix product an image (the engine `blas`).
 *
 * An image x (C,D,H,W) is unrolled to columns (C/g K, L), K the elements of the window, L the
 * outputs of a plane; then y (O/g,L) = w (O/g, C/g K) columns, a group at a time. A window of one
 * element without stride and padding needs no columns, since x itself is the matrix; else they are
 * the scratch.
 *
 * Forward and input gradient share the images out among the threads, each with columns of its own;
 * without columns the forward shares out the groups of all images.
 * The weight gradient is a sum over images, so there each thread has some rows of the columns, and
 * with them some columns of dw, for all images: nothing is shared and the order of the sum is that
 * of the images. Source: Chellapilla, Puri and Simard, "High performance convolutional neural
 * networks for document processing", 2006.
 */
#include "math/blas.h"
#include "math/vec.h"
#include "ops/window.h"

enum { GROUPS = NEAP_WINDOW_N_ATTR };

/* How many parts the images fall into, each with columns of its own. */
static int64_t image_parts(const neap_window *w, int n_thread) {
  return NEAP_MAX(1, NEAP_MIN(w->batch, n_thread));
}

/* `by_image`: a column matrix for each part of the images. Empty problems are left to the plain
 * loops. */
static bool choose(neap_choose *c, const neap_shape *x, const neap_shape *weight,
                   const neap_shape *y, bool by_image) {
  neap_window w = neap_conv_window(c->op, c->attrs, x, y, weight);
  if (neap_shape_elems(x) == 0 || neap_shape_elems(weight) == 0) return false;
  /* The column matrix (C/g K, L), of one group at a time. */
  int64_t elems = neap_count_mul(neap_count_mul(weight->dim[1], w.n_kernel), w.n_out);
  /* Parts of the images run side by side; the weight's gradient sums over images, and has one
   * matrix. */
  if (by_image) elems = neap_count_mul(elems, image_parts(&w, c->choice->n_thread));
  size_t bytes = neap_size_of(elems, neap_dtype_bytes(c->in[0].dtype));
  /* Each position reads itself alone: x is the matrix. */
  if (neap_window_is_pointwise(&w)) bytes = 0;
  if (bytes > c->scratch_limit) return false;
  c->choice->scratch_bytes = bytes;
  return true;
}

bool neap_conv_gemm_choose(neap_choose *c) {
  return choose(c, &c->in[0].shape, &c->in[1].shape, &c->out[0].shape, true);
}
bool neap_conv_gemm_choose_grad_input(neap_choose *c) {
  return choose(c, &c->out[0].shape, &c->in[1].shape, &c->in[0].shape, true);
}
bool neap_conv_gemm_choose_grad_weight(neap_choose *c) {
  return choose(c, &c->in[0].shape, &c->out[0].shape, &c->in[1].shape, false);
}

typedef struct job {
  neap_window w;
  neap_dtype dtype;
  size_t elem_bytes;
  int64_t n_part; /* of the images, or of the columns' rows */
  int64_t groups, n_o, group_o, group_c;
  int64_t n_column; /* rows of the column matrix: C/g K */
  bool pointwise;
  char *image;          /* of the group at hand: x or dx, (C/g, D,H,W) */
  char *columns;        /* of this part */
  char *x, *weight, *y; /* the operands, or their gradients */
  const void *bias;
  bool add; /* to what y holds */
} job;

/* The problem in terms of x, weight and y, whichever of the three, or its gradient, is the
 * output. */
static job new_job(const neap_call *call, const neap_operand *x, const neap_operand *weight,
                   const neap_operand *y) {
  const neap_shape *w = &weight->type.shape;
  job j = {.w = neap_conv_window(call->op, call->attrs, &x->type.shape, &y->type.shape, w),
           .dtype = call->out[0].type.dtype};
  j.elem_bytes = neap_dtype_bytes(j.dtype);
  j.groups = call->attrs[GROUPS].i;
  j.n_o = w->dim[0];
  j.group_o = w->dim[0] / j.groups;
  j.group_c = w->dim[1];
  /* A row of the column matrix for each tap of each channel, an element for each position of y. */
  j.n_column = j.group_c * j.w.n_kernel;
  j.n_part = image_parts(&j.w, call->choice->n_thread);
  j.pointwise = neap_window_is_pointwise(&j.w);
  j.columns = call->scratch;
  j.x = x->data, j.weight = weight->data, j.y = y->data;
  return j;
}

#define NEAP_BODY "ops/conv_gemm_body.h"
#include "math/each_float.h"

static void move_row(const job *j, int64_t r, bool into_columns) {
  j->dtype == NEAP_DTYPE_F64 ? move_row_f64(j, r, into_columns) : move_row_f32(j, r, into_columns);
}

/* Element `elems` from `base`, which is NULL where the operand is empty. */
static char *at(const job *j, char *base, int64_t elems) {
  return elems == 0 ? base : base + (size_t)elems * j->elem_bytes;
}

/* Rows [begin, end) of the column matrix of the image at hand; returns row `begin`. */
static char *unroll(const job *j, int64_t begin, int64_t end) {
  if (j->pointwise) return at(j, j->image, begin * j->w.n_out);
  for (int64_t r = begin; r < end; r++) move_row(j, r, true);
  return at(j, j->columns, begin * j->w.n_out);
}

/* Adds every column to the elements of dx that it was copied from. */
static void fold(const job *j) {
  neap_clear_bytes(j->image, (size_t)(j->group_c * j->w.n_in) * j->elem_bytes);
  for (int64_t r = 0; r < j->n_column; r++) move_row(j, r, false);
}

/* C (m,n) = A B, or C += A B; A and B dense, rows of C ldc elements apart. */
static void product(const job *j, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                    const void *a, const void *b, bool add, void *c, int64_t ldc) {
  int64_t lda = NEAP_MAX(1, trans_a ? m : k), ldb = NEAP_MAX(1, trans_b ? k : n);
  if (j->dtype == NEAP_DTYPE_F64)
    neap_gemm_f64(trans_a, trans_b, m, n, k, 1.0, a, lda, b, ldb, add ? 1.0 : 0.0, c, ldc,
                  (int)j->n_part);
  else
    neap_gemm_f32(NEAP_ENGINE_BLAS, trans_a, trans_b, m, n, k, 1.0f, a, lda, b, ldb,
                  add ? 1.0f : 0.0f, c, ldc, (int)j->n_part);
}

/* Images of part `part`, with the part's columns in *own. */
static void part_of_images(const job *j, int64_t part, job *own, int64_t *from, int64_t *to) {
  *own = *j;
  own->columns = at(j, j->columns, part * j->n_column * j->w.n_out);
  *from = j->w.batch * part / j->n_part, *to = j->w.batch * (part + 1) / j->n_part;
}

static void run_parts(job *j, void (*body)(void *, int64_t, int64_t)) {
  neap_parallel_for(j->n_part, 1, (int)j->n_part, body, j);
}

/* b (O) to each row of y (O,L). */
#define ADD_BIAS(type)                                                        \
  static void add_bias_##type(type *y, const type *b, int64_t o, int64_t l) { \
    for (int64_t i = 0; i < o; i++)                                           \
      for (int64_t k = 0; k < l; k++) y[i * l + k] += b[i];                   \
  }
ADD_BIAS(float)
ADD_BIAS(double)

/* Group g of image n. With `add` the product is added to what y holds; the bias is added in either
 * case. */
static void forward_group(job *j, int64_t n, int64_t g) {
  int64_t l = j->w.n_out, first = g * j->group_o;
  char *y = at(j, j->y, (n * j->n_o + first) * l);
  /* A group sees its own channels and filters; its product is dense in both. */
  j->image = at(j, j->x, (n * j->w.channels + g * j->group_c) * j->w.n_in);
  product(j, false, false, j->group_o, l, j->n_column, at(j, j->weight, first * j->n_column),
          unroll(j, 0, j->n_column), j->add, y, l);
  /* Behind the product, while it is in cache. */
  if (j->bias == NULL) return;
  if (j->dtype == NEAP_DTYPE_F64)
    add_bias_double((double *)(void *)y, (const double *)j->bias + first, j->group_o, l);
  else
    add_bias_float((float *)(void *)y, (const float *)j->bias + first, j->group_o, l);
}

static void forward_parts(void *context, int64_t begin, int64_t end) {
  for (int64_t p = begin; p < end; p++) {
    job own;
    int64_t from, to;
    part_of_images(context, p, &own, &from, &to);
    for (int64_t n = from; n < to; n++)
      for (int64_t g = 0; g < own.groups; g++) forward_group(&own, n, g);
  }
}

/* Groups [begin, end) of all images, counted through: x is the matrix, so they share nothing. */
static void forward_groups(void *context, int64_t begin, int64_t end) {
  job own = *(const job *)context;
  for (int64_t i = begin; i < end; i++) forward_group(&own, i / own.groups, i % own.groups);
}

void neap_conv_gemm_forward(const neap_call *call) {
  job j = new_job(call, &call->in[0], &call->in[1], &call->out[0]);
  j.bias = call->n_in > 2 ? call->in[2].data : NULL;
  j.add = neap_fused_adds(call);
  /* With columns, or without groups to share out, the images are shared out: each part's columns
   * are its own. */
  if (!j.pointwise || j.groups == 1) {
    run_parts(&j, forward_parts);
    return;
  }
  j.n_part = 1; /* of what one thread does */
  neap_parallel_for(j.w.batch * j.groups, 1, call->n_thread, forward_groups, &j);
}

/* columns (C/g K, L) = w' dy, then back to dx */
static void grad_input_image(job *j, int64_t n) {
  int64_t l = j->w.n_out;
  /* A group at a time, so that one matrix of columns does for all. */
  for (int64_t g = 0; g < j->groups; g++) {
    j->image = at(j, j->x, (n * j->w.channels + g * j->group_c) * j->w.n_in);
    product(j, true, false, j->n_column, l, j->group_o,
            at(j, j->weight, g * j->group_o * j->n_column),
            at(j, j->y, (n * j->n_o + g * j->group_o) * l), false,
            j->pointwise ? j->image : j->columns, l);
    if (!j->pointwise) fold(j);
  }
}

static void grad_input_parts(void *context, int64_t begin, int64_t end) {
  for (int64_t p = begin; p < end; p++) {
    job own;
    int64_t from, to;
    part_of_images(context, p, &own, &from, &to);
    for (int64_t n = from; n < to; n++) grad_input_image(&own, n);
  }
}

void neap_conv_gemm_grad_input(const neap_call *call) {
  job j = new_job(call, &call->out[0], &call->in[1], &call->in[0]);
  run_parts(&j, grad_input_parts);
}

/* dw (O/g, rows) = sum over images of dy (O/g, L) columns' (L, rows), for the part's rows of the
 * column matrix */
static void grad_weight_parts(void *context, int64_t begin, int64_t end) {
  job own = *(const job *)context, *j = &own;
  int64_t l = j->w.n_out;
  for (int64_t p = begin; p < end; p++) {
    /* A part has rows of dw to itself, and adds image after image to them: no two threads meet. */
    int64_t from = j->n_column * p / j->n_part, to = j->n_column * (p + 1) / j->n_part;
    if (from == to) continue;
    for (int64_t n = 0; n < j->w.batch; n++)
      for (int64_t g = 0; g < j->groups; g++) {
        j->image = at(j, j->x, (n * j->w.channels + g * j->group_c) * j->w.n_in);
        product(j, false, true, j->group_o, to - from, l,
                at(j, j->y, (n * j->n_o + g * j->group_o) * l), unroll(j, from, to), n > 0,
                at(j, j->weight, g * j->group_o * j->n_column + from), j->n_column);
      }
  }
}

void neap_conv_gemm_grad_weight(const neap_call *call) {
  job j = new_job(call, &call->in[0], &call->out[0], &call->in[1]);
  /* Not of the images: parts are of the rows. */
  j.n_part = NEAP_MAX(1, call->choice->n_thread);
  run_parts(&j, grad_weight_parts);
  neap_conv_sum_bias(call);
}
