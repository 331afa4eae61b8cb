/* pinv.c: Pinv, pseudo-inverses of stacks of matrices (matrices.h), by their singular values. The
 * gradient is made of the pseudo-inverse itself, so that singular values may be equal, or 0.
 */
#include "math/blas.h"
#include "ops/matrices.h"

enum { RTOL };

static int64_t shorter(neap_matrices s) { return NEAP_MIN(s.m, s.n); }

/* The matrix, whose bytes the result takes, and u, s, vt, and LAPACK's own. */
static int64_t doubles(neap_matrices s) {
  int64_t k = shorter(s);
  return s.m * s.n + s.m * k + k + k * s.n + neap_lapack_svd_work(s.m, s.n);
}

static bool choose(neap_choose *c) {
  return neap_matrices_choose(c, doubles(neap_matrices_of(c->in, 1)));
}

/* What counts as 0, of the largest singular value. */
static double tolerance(const neap_call *call, int64_t m, int64_t n) {
  const neap_attr_value *rtol = &call->attrs[RTOL];
  double rounding = call->in[0].type.dtype == NEAP_DTYPE_F64 ? 0x1p-52 : 0x1p-23;
  return rtol->given ? rtol->f : (double)NEAP_MAX(m, n) * rounding;
}

/* y (n,m) = v diag(1 / s) u' */
static void pinv_one(const neap_matrix_job *j, int64_t at, double *a) {
  const neap_operand *y = &j->call->out[0];
  int64_t m = j->size.m, n = j->size.n, k = shorter(j->size);
  double *u = a + m * n, *s = u + m * k, *vt = s + k, *work = vt + k * n;
  /* LAPACK may run for ever on what is not finite, so it is not asked. */
  bool is_finite = neap_matrix_load(&j->call->in[0], at, m, n, a);
  if (!is_finite || !neap_lapack_svd(false, m, n, a, u, s, vt, work)) {
    neap_matrix_fault(j, at,
                      is_finite ? "has no singular values that LAPACK finds" : NEAP_NOT_FINITE);
    neap_matrix_fill(y, at, m * n, 0);
    return;
  }
  /* They descend: the first is the largest. */
  double least = s[0] * tolerance(j->call, m, n);
  /* A singular value that is small beside the largest is rounding: its direction is left out, where
   * 1 / s would blow it up. */
  for (int64_t i = 0; i < k; i++)
    for (int64_t r = 0; r < m; r++) u[i * m + r] = s[i] > least ? u[i * m + r] / s[i] : 0;
  /* Row by row, what lies column by column is the transpose: this is y' = u diag vt. */
  neap_gemm_f64(true, true, m, n, k, 1, u, m, vt, k, 0, a, n, 1);
  neap_matrix_store(y, at, n, m, n, a);
}

static void run(const neap_call *call) {
  if (neap_shape_elems(&call->in[0].type.shape) > 0)
    neap_matrices_run(call, doubles(neap_matrices_of(&call->in[0].type, 1)), pinv_one);
}

static neap_status infer(neap_infer *c, neap_error *error) {
  neap_matrices s;
  NEAP_TRY(neap_matrices_infer(c, false, &s, error));
  if (shorter(s) > NEAP_LAPACK_MOST / 2)
    return neap_infer_fail(c, NEAP_SHAPE, 0, error, "a matrix has at most %d rows or columns",
                           NEAP_LAPACK_MOST / 2);
  c->out[0] = c->in[0];
  neap_shape *y = &c->out[0].shape;
  y->dim[y->n_dim - 2] = s.n, y->dim[y->n_dim - 1] = s.m;
  return NEAP_OK;
}

static void cost(const neap_infer *c, neap_cost *cost) {
  neap_matrices_cost(c, cost);
  cost->flops *= 9;
}

/* Golub and Pereyra, SIAM J. Numer. Anal. 10, 1973, for matrices of one rank: with p = y, g = d.y
 * dx = -p' g p' + (1 - x p) g' p p' + p' p g' (1 - p x). */
const neap_op neap_op_Pinv = {
  .name = "Pinv",
  .summary = "Pseudo-inverses of matrices; singular values below a part of the largest count as 0.",
  .math = "y = v diag(1 / s) u', x = u diag(s) v'",
  .example = "net:Pinv(\"x\", \"y\")",
  .source = "torch.linalg.pinv; LAPACK gesdd, computed in f64; gradient: Golub and Pereyra 1973",
  .inputs = {{"x", "(..,M,N)"}},
  .outputs = {{"y", "(..,N,M)"}},
  .attrs = {[RTOL] = {"rtol",
                      "the part of the largest singular value; max(M, N) roundings of the dtype "
                      "unless given",
                      NEAP_ATTR_FLOAT, .least = 0}},
  .effects = NEAP_EFFECT_FAULT,
  .infer = infer,
  .cost = cost,
  .nan = NEAP_NAN_STOPS,
  .special = "a NaN or an infinity is a fault",
  .sum = NEAP_SUM_DOUBLE,
  .mixed = NEAP_MIXED_FULL,
  .grad_formula =
    "q = MatMul(y, d.y, trans_b = 1); w = MatMul(y, y, trans_b = 1);"
    "d.x = MatMul(y, q - MatMul(MatMul(q, y), x) - MatMul(d.y, y, trans_b = 1), trans_a = 1)"
    " + MatMul(d.y, w, trans_a = 1) - MatMul(x, MatMul(q, w))",
  .kernels = NEAP_REF_CHOOSE(choose, run, NEAP_FLOATS),
  .cases =
    "{ {x={4,3}}, {x={2,3,3}, rtol=1e-3}, {x={2,3,5}}, {x={{3,3}, eye=1, low=0, high=0}}, "
    "{x={0,3,2}} }",
  .long_cases = "{ {x={{4096,1}, low=0.1, high=0.1}} }",
};
