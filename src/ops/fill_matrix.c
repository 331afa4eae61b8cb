/* fill_matrix.c: Eye, Dirac, Orthogonal and SparseGaussian: matrices, and weights (out, in, ..),
 * that begin in a shape of their own.
 *
 * INVARIANT: what is drawn for an element follows from its number under (seed, stream, step), and
 * from nothing else.
 */
#include "math/lapack.h"
#include "math/vec.h"
#include "ops/fill.h"
#include "ops/rows.h"

#include <math.h>

/* A standard normal number; `at` is its own. */
static double draw_normal(const neap_call *call, int64_t at) {
  uint32_t word[4];
  float pair[2];
  neap_philox(call->seed, call->stream, call->step, (uint64_t)at, word);
  neap_normal_f32(word[0], word[1], pair);
  return (double)pair[0];
}

/* Below n. */
static int64_t draw_below(const neap_call *call, int64_t at, int64_t n) {
  uint32_t word[4];
  neap_philox(call->seed, call->stream, call->step, (uint64_t)at, word);
  uint64_t bits = (uint64_t)word[0] << 32 | word[1];
  return (int64_t)((double)(bits >> 11) * 0x1p-53 * (double)n);
}

static neap_status infer_rank(neap_infer *c, int least, const char *what, neap_error *error) {
  NEAP_TRY(neap_fill_infer(c, error));
  char text[NEAP_SHAPE_TEXT];
  if (c->out[0].shape.n_dim < least)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                           "shape %s expects at least %d dimensions, %s",
                           neap_shape_text(&c->out[0].shape, text), least, what);
  return NEAP_OK;
}

/* ---- Eye ------------------------------------------------------------------------------------- */

enum { DIAGONAL = NEAP_FILL_NEXT };

static neap_status infer_eye(neap_infer *c, neap_error *error) {
  return infer_rank(c, 2, "(.., N, M)", error);
}

static void run_eye(const neap_call *call) {
  const neap_operand *y = &call->out[0];
  const neap_shape *s = &y->type.shape;
  int64_t n = s->dim[s->n_dim - 2], m = s->dim[s->n_dim - 1], k = call->attrs[DIAGONAL].i;
  neap_fill(y, 0, call->n_thread);
  /* Of each matrix the elements (i, i + k) that there are. */
  for (int64_t at = 0; at < neap_shape_elems(s); at += n * m)
    for (int64_t i = NEAP_MAX(0, -k); i < n && i + k < m; i++)
      neap_element_set(y->type.dtype, y->data, at + i * m + i + k, 1);
}

const neap_op neap_op_Eye = {
  .name = "Eye",
  .summary = "Ones on a diagonal of matrices, zeros elsewhere.",
  .math = "y_ij = j - i == diagonal",
  .example = "net:Eye({}, \"y\", {shape = {3, 3}})",
  .source = "torch.eye; ONNX EyeLike-9",
  .outputs = {{"y", "`shape`", NEAP_ANY}},
  .attrs = {NEAP_FILL_ATTRS, [DIAGONAL] = {"diagonal", "which: above the main one where positive",
                                           NEAP_ATTR_INT, .least = -1e15, .most = 1e15}},
  .infer = infer_eye,
  .no_grad = true,
  .kernels = NEAP_REF(run_eye, NEAP_ANY),
  .cases =
    "{ {shape={3,3}}, {shape={2,3,4}, diagonal=1}, {shape={4,3}, diagonal=-2, "
    "dtype=\"i64\"}, {shape={0,3}}, {shape={2,2}, dtype=\"bool\", diagonal=5} }",
};

/* ---- Dirac ----------------------------------------------------------------------------------- */

enum { GROUPS = NEAP_FILL_NEXT };

static neap_status infer_dirac(neap_infer *c, neap_error *error) {
  NEAP_TRY(infer_rank(c, 3, "those of a convolution's weight (out, in, K..)", error));
  int64_t n_out = c->out[0].shape.dim[0], groups = c->attrs[GROUPS].i;
  if (n_out % groups != 0)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                           "groups = %lld expects a multiple of as many output channels, got %lld",
                           (long long)groups, (long long)n_out);
  return NEAP_OK;
}

/* Output channel c of a group takes the middle of its window of input channel c. */
static void run_dirac(const neap_call *call) {
  const neap_operand *y = &call->out[0];
  const neap_shape *s = &y->type.shape;
  int64_t own = s->dim[0] / call->attrs[GROUPS].i, n_in = s->dim[1], middle = 0;
  /* The middle of the window as one number, as its elements are counted. */
  for (int d = 2; d < s->n_dim; d++) middle = middle * s->dim[d] + s->dim[d] / 2;
  int64_t window = neap_shape_span(s, 2, s->n_dim);
  neap_fill(y, 0, call->n_thread);
  if (window > 0)
    for (int64_t o = 0; o < s->dim[0]; o++)
      if (o % own < n_in)
        neap_element_set(y->type.dtype, y->data, (o * n_in + o % own) * window + middle, 1);
}

const neap_op neap_op_Dirac = {
  .name = "Dirac",
  .summary = "A convolution's weight that hands channels on as they are.",
  .math = "y[o,i,k] = o == i and k is the middle of the window, in each group",
  .example = "net:Dirac({}, \"w\", {shape = {8, 8, 3, 3}})",
  .source = "torch.nn.init.dirac_",
  .outputs = {{"y", "`shape`"}},
  .attrs = {NEAP_FILL_ATTRS, [GROUPS] = {"groups", "of the convolution", NEAP_ATTR_INT,
                                         .value = {.i = 1}, .least = 1, .most = 1e15}},
  .infer = infer_dirac,
  .no_grad = true,
  .kernels = NEAP_REF(run_dirac, NEAP_FLOATS),
  .cases = "{ {shape={3,3,3}}, {shape={4,2,3,2}, groups=2}, {shape={2,4,1,1,3}}, {shape={2,2,0}} }",
};

/* ---- Orthogonal ------------------------------------------------------------------------------ */

enum { GAIN = NEAP_FILL_NEXT };

/* A weight (out, in, ..) as a matrix (out, in * ..): its sizes, and the longer and the shorter. */
typedef struct halves {
  int64_t rows, columns, longer, shorter;
} halves;

static halves halves_of(const neap_shape *s) {
  halves h = {.rows = s->dim[0], .columns = neap_shape_span(s, 1, s->n_dim)};
  h.longer = NEAP_MAX(h.rows, h.columns), h.shorter = NEAP_MIN(h.rows, h.columns);
  return h;
}

/* The matrix drawn, Q, and what LAPACK needs. */
static int64_t orthogonal_doubles(halves h) {
  return 2 * h.longer * h.shorter + h.shorter + neap_lapack_qr_work(h.shorter);
}

static neap_status infer_orthogonal(neap_infer *c, neap_error *error) {
  NEAP_TRY(infer_rank(c, 2, "(out, in, ..)", error));
  halves h = halves_of(&c->out[0].shape);
  const int64_t most = (int64_t)NEAP_LAPACK_MOST * NEAP_LAPACK_MOST;
  if (neap_count_mul(h.rows, h.columns) > most)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "shape expects at most %lld elements",
                           (long long)most);
  return NEAP_OK;
}

static bool choose_orthogonal(neap_choose *c) {
  halves h = halves_of(&c->out[0].shape);
  c->choice->scratch_bytes = neap_size_of(orthogonal_doubles(h), sizeof(double));
  return true;
}

/* Q of a matrix of normal numbers, each column times the sign of R's diagonal there: so every
 * orthogonal matrix is equally likely (Mezzadri 2007). Rows that are fewer than columns are the
 * columns of Q. */
static void run_orthogonal(const neap_call *call) {
  const neap_operand *y = &call->out[0];
  halves h = halves_of(&y->type.shape);
  int64_t m = h.longer, n = h.shorter;
  if (m * n == 0) return;
  double *a = call->scratch, *q = a + m * n, *tau = q + m * n, *work = tau + n;
  for (int64_t i = 0; i < m * n; i++) a[i] = draw_normal(call, i);
  neap_lapack_qr(m, n, a, tau, work);
  /* a keeps R, whose signs are read below; the reflections become Q in a place of their own. */
  memcpy(q, a, (size_t)(m * n) * sizeof *q);
  neap_lapack_qr_q(m, n, n, q, tau, work);
  for (int64_t c = 0; c < n; c++) {
    double factor = call->attrs[GAIN].f * (a[c * m + c] < 0 ? -1 : 1);
    for (int64_t r = 0; r < m; r++) {
      bool is_tall = h.rows >= h.columns;
      neap_number_put(y, is_tall ? r * n + c : c * m + r, factor * q[c * m + r]);
    }
  }
}

const neap_op neap_op_Orthogonal = {
  .name = "Orthogonal",
  .summary = "Random matrices whose rows or columns, of both the fewer, are orthonormal.",
  .math = "y y' = gain^2 or y' y = gain^2, y as (out, in * ..)",
  .example = "net:Orthogonal({}, \"w\", {shape = {64, 64}})",
  .source = "torch.nn.init.orthogonal_; Saxe et al., ICLR 2014; Mezzadri, Notices AMS 54, 2007",
  .outputs = {{"y", "`shape`"}},
  .attrs = {NEAP_FILL_ATTRS, [GAIN] = {"gain", "factor", NEAP_ATTR_FLOAT, .value = {.f = 1},
                                       .least = -1e30, .most = 1e30}},
  .effects = NEAP_EFFECT_RANDOM,
  .no_grad = true,
  .infer = infer_orthogonal,
  .kernels = NEAP_REF_CHOOSE(choose_orthogonal, run_orthogonal, NEAP_FLOATS),
  .cases =
    "{ {shape={3,3}}, {shape={5,3}, gain=2}, {shape={2,3,2}, dtype=\"f64\"}, {shape={0,3}} }",
};

/* ---- SparseGaussian -------------------------------------------------------------------------- */

enum { STD = NEAP_FILL_NEXT, SPARSITY };

static neap_status infer_sparse(neap_infer *c, neap_error *error) {
  return infer_rank(c, 2, "(out, in, ..)", error);
}

static bool choose_sparse(neap_choose *c) {
  c->choice->scratch_bytes = neap_size_of(c->out[0].shape.dim[0], sizeof(int64_t));
  return true;
}

/* Of each column so many rows, without repetition, are 0: the first ones of a shuffle. */
static void run_sparse(const neap_call *call) {
  const neap_operand *y = &call->out[0];
  int64_t rows = y->type.shape.dim[0], n = neap_shape_elems(&y->type.shape), *row = call->scratch;
  if (n == 0) return;
  int64_t columns = n / rows, n_zero = (int64_t)ceil(call->attrs[SPARSITY].f * (double)rows);
  for (int64_t i = 0; i < n; i++) neap_number_put(y, i, call->attrs[STD].f * draw_normal(call, i));

  /* Fisher and Yates's shuffle, which ends once the first n_zero are known. */
  for (int64_t c = 0; c < columns; c++) {
    for (int64_t r = 0; r < rows; r++) row[r] = r;
    for (int64_t k = 0; k < n_zero; k++) {
      /* Draws for zeros have numbers behind those of the elements: no number is drawn twice. */
      int64_t other = k + draw_below(call, n + c * rows + k, rows - k), taken = row[other];
      row[other] = row[k], row[k] = taken;
      neap_number_put(y, taken * columns + c, 0);
    }
  }
}

const neap_op neap_op_SparseGaussian = {
  .name = "SparseGaussian",
  .summary = "Random numbers of a normal distribution, of which a share of every column is 0.",
  .math = "y_ij ~ N(0, std^2); ceil(sparsity rows) of each column are 0",
  .example = "net:SparseGaussian({}, \"w\", {shape = {64, 64}, sparsity = 0.9})",
  .source = "torch.nn.init.sparse_; Martens, ICML 2010",
  .outputs = {{"y", "`shape`"}},
  .attrs = {NEAP_FILL_ATTRS,
            [STD] = {"std", "standard deviation of the others", NEAP_ATTR_FLOAT,
                     .value = {.f = 0.01}, .least = 0, .most = 1e30},
            [SPARSITY] = {"sparsity", "share of a column that is 0", NEAP_ATTR_FLOAT,
                          .value = {.f = 0.5}, .least = 0, .most = 1}},
  .effects = NEAP_EFFECT_RANDOM,
  .no_grad = true,
  .infer = infer_sparse,
  .kernels = NEAP_REF_CHOOSE(choose_sparse, run_sparse, NEAP_FLOATS),
  .cases = "{ {shape={4,3}}, {shape={5,2,2}, sparsity=0.3, std=1, dtype=\"f64\"}, {shape={0,2}} }",
};
