/* factor.c: orthogonal factors of stacks of matrices (matrices.h): Qr, Svd and Eigh.
 *
 * Of the signs that a factor may have it has those of LAPACK. Gradients are those of losses that do
 * not depend on such a choice; where two singular values or eigenvalues are equal, vectors have
 * none, and values keep theirs.
 */
#include "ops/matrices.h"
#include "ops/rows.h"

#include <string.h>

enum { FULL };

static int64_t longer(neap_matrices s) { return NEAP_MAX(s.m, s.n); }
static int64_t shorter(neap_matrices s) { return NEAP_MIN(s.m, s.n); }
static bool is_full(const neap_attr_value *attrs) { return attrs[FULL].i != 0; }

/* Output k: the batch, then two sizes. */
static void set_matrix(neap_infer *c, int k, const neap_shape *batch, int64_t rows,
                       int64_t columns) {
  c->out[k] = (neap_type){c->in[0].dtype, *batch};
  neap_shape *y = &c->out[k].shape;
  y->dim[y->n_dim++] = rows;
  y->dim[y->n_dim++] = columns;
}

/* Square factors of a long matrix may be too large. */
static neap_status check_full(const neap_infer *c, const neap_matrices *s, neap_error *error) {
  if (is_full(c->attrs) && longer(*s) > NEAP_LAPACK_MOST)
    return neap_infer_fail(c, NEAP_SHAPE, 0, error, "a full factor has at most %d rows",
                           NEAP_LAPACK_MOST);
  return NEAP_OK;
}

/* x has no elements: a factor that has some is a part of the identity. */
static void fill_identity(const neap_operand *y) {
  const neap_shape *shape = &y->type.shape;
  int64_t rows = shape->dim[shape->n_dim - 2], columns = shape->dim[shape->n_dim - 1];
  neap_clear_bytes(y->data, neap_type_bytes(&y->type));
  /* Ones on the diagonal of each matrix, as far as the shorter side goes. */
  for (int64_t i = 0; i < neap_shape_elems(shape) / NEAP_MAX(rows * columns, 1); i++)
    for (int64_t d = 0; d < NEAP_MIN(rows, columns); d++)
      neap_number_put(y, i * rows * columns + d * columns + d, 1);
}

/* ---- Qr -------------------------------------------------------------------------------------- */

/* a (m,n), q (m, m or k), tau, work. */
static int64_t qr_doubles(neap_matrices s, bool full) {
  int64_t columns = full ? s.m : shorter(s);
  return s.m * s.n + s.m * columns + shorter(s) + neap_lapack_qr_work(NEAP_MAX(s.n, columns));
}

static bool choose_qr(neap_choose *c) {
  return neap_matrices_choose(c, qr_doubles(neap_matrices_of(c->in, 1), is_full(c->attrs)));
}

static void qr_one(const neap_matrix_job *j, int64_t at, double *a) {
  int64_t m = j->size.m, n = j->size.n, k = shorter(j->size);
  int64_t columns = is_full(j->call->attrs) ? m : k;
  double *q = a + m * n, *tau = q + m * columns, *work = tau + k;
  /* LAPACK leaves r in the upper triangle of a, and q as reflections below it. */
  neap_matrix_load(&j->call->in[0], at, m, n, a);
  neap_lapack_qr(m, n, a, tau, work);
  /* q is made of the reflections apart, since r is still to be read. */
  memcpy(q, a, (size_t)(m * k) * sizeof *q);
  neap_lapack_qr_q(m, columns, k, q, tau, work);
  /* Below the diagonal nothing is r's. */
  for (int64_t c = 0; c < n; c++)
    for (int64_t r = c + 1; r < m; r++) a[c * m + r] = 0;
  neap_matrix_store(&j->call->out[0], at, m, columns, m, q);
  neap_matrix_store(&j->call->out[1], at, columns, n, m, a);
}

static void run_qr(const neap_call *call) {
  neap_matrices s = neap_matrices_of(&call->in[0].type, 1);
  if (neap_shape_elems(&call->in[0].type.shape) == 0)
    fill_identity(&call->out[0]);
  else
    neap_matrices_run(call, qr_doubles(s, is_full(call->attrs)), qr_one);
}

static neap_status infer_qr(neap_infer *c, neap_error *error) {
  neap_matrices s;
  NEAP_TRY(neap_matrices_infer(c, false, &s, error));
  NEAP_TRY(check_full(c, &s, error));
  int64_t columns = is_full(c->attrs) ? s.m : shorter(s);
  set_matrix(c, 0, &s.batches.all, s.m, columns);
  set_matrix(c, 1, &s.batches.all, columns, s.n);
  return NEAP_OK;
}

/* Of x = q u, u square: dx = (dq + q b) u^-T, where b is the lower triangle of u du' - dq' q,
 * mirrored. */
#define QR_SQUARE(q_gradient, u, u_gradient)                            \
  "g = " q_gradient "; p = MatMul(" u ", " u_gradient                   \
  ", trans_b = 1) - MatMul(g, q, trans_a = 1);"                         \
  "l = Tril(p, diagonal = -1); e = g + MatMul(q, Tril(p) + turned(l));" \
  "w = turned(SolveTriangular(" u ", turned(e), upper = 1));"

/* A wide x is (x1 x2), u is r without the columns of x2, and those are v = q' x2: what arrives at v
 * goes to x2, and by x2 to q. i takes the first columns, c is 1 in them. */
static neap_status grad_qr(neap_grad *g, neap_error *error) {
  neap_shape x = neap_grad_type(g, g->in[0]).shape;
  int64_t m = x.dim[x.n_dim - 2], n = x.dim[x.n_dim - 1];
  /* Columns of q beyond x's are any that are orthogonal to it: nothing says how they move. */
  if (is_full(g->attrs) && m > n)
    return neap_fail(error, NEAP_GRAPH, "no gradient is defined through Qr with full");
  return neap_formula_gradient(
    g,
    m >= n ? QR_SQUARE("given(d.q, zeros(q))", "r", "given(d.r, zeros(r))") "d.x = w"
           : "i = Tril(Triu(ones(r))); c = Sum(i, axes = {-2}, keepdim = 1);"
             "h = given(d.r, zeros(r)); v = h * (1 - c); u = MatMul(r, i, trans_b = 1);"
             "k = MatMul(h, i, trans_b = 1);" QR_SQUARE(
               "given(d.q, zeros(q)) + MatMul(x, v, trans_b = 1)", "u",
               "k") "d.x = MatMul(w, i) + MatMul(q, v)",
    error);
}

const neap_op neap_op_Qr = {
  .name = "Qr",
  .summary = "QR factors of matrices: orthonormal columns, and an upper triangle.",
  .math = "x = q r",
  .example = "net:Qr(\"x\", {\"q\", \"r\"})",
  .source = "torch.linalg.qr; LAPACK geqrf, orgqr, computed in f64",
  .inputs = {{"x", "(..,M,N)"}},
  .outputs = {{"q", "(..,M,K), K = min(M,N); K = M where full"}, {"r", "(..,K,N)"}},
  .attrs = {[FULL] = {"full", "a square q, of all M columns", NEAP_ATTR_BOOL}},
  .infer = infer_qr,
  .cost = neap_matrices_cost,
  .grad = grad_qr,
  .nan = NEAP_NAN_REACHES,
  .infinity = NEAP_INFINITY_REACHES,
  .empty = NEAP_EMPTY_IDENTITY,
  .sum = NEAP_SUM_DOUBLE,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_CHOOSE(choose_qr, run_qr, NEAP_FLOATS),
  .cases =
    "{ {x={4,3}}, {x={2,3,3}}, {x={2,3,5}}, {x={4,3}, full=true, grad=false}, {x={3,4}, "
    "full=true}, {x={0,3,2}}, {x={2,3,0}, full=true, grad=false} }",
  .long_cases = "{ {x={262144,1}} }",
};

/* ---- Svd ------------------------------------------------------------------------------------- */

/* a, u, s, vt and work. */
static int64_t svd_doubles(neap_matrices s, bool full) {
  int64_t k = shorter(s), u = full ? s.m : k, v = full ? s.n : k;
  return s.m * s.n + s.m * u + k + v * s.n + neap_lapack_svd_work(s.m, s.n);
}

static bool choose_svd(neap_choose *c) {
  return neap_matrices_choose(c, svd_doubles(neap_matrices_of(c->in, 1), is_full(c->attrs)));
}

static void svd_one(const neap_matrix_job *j, int64_t at, double *a) {
  const neap_operand *out = j->call->out;
  bool full = is_full(j->call->attrs);
  /* Parts of the one piece of scratch, in the order of svd_doubles. */
  int64_t m = j->size.m, n = j->size.n, k = shorter(j->size), n_u = full ? m : k,
          n_v = full ? n : k;
  double *u = a + m * n, *s = u + m * n_u, *vt = s + k, *work = vt + n_v * n;
  /* LAPACK may run for ever on what is not finite, so it is not asked. */
  bool is_finite = neap_matrix_load(&j->call->in[0], at, m, n, a);
  if (!is_finite || !neap_lapack_svd(full, m, n, a, u, s, vt, work)) {
    neap_matrix_fault(j, at,
                      is_finite ? "has no singular values that LAPACK finds" : NEAP_NOT_FINITE);
    neap_matrix_fill(&out[0], at, m * n_u, 0);
    neap_matrix_fill(&out[1], at, k, 0);
    neap_matrix_fill(&out[2], at, n_v * n, 0);
    return;
  }
  neap_matrix_store(&out[0], at, m, n_u, m, u);
  neap_matrix_store(&out[1], at, k, 1, k, s);
  neap_matrix_store(&out[2], at, n_v, n, n_v, vt);
}

static void run_svd(const neap_call *call) {
  neap_matrices s = neap_matrices_of(&call->in[0].type, 1);
  if (neap_shape_elems(&call->in[0].type.shape) == 0) {
    fill_identity(&call->out[0]);
    fill_identity(&call->out[2]);
  } else {
    neap_matrices_run(call, svd_doubles(s, is_full(call->attrs)), svd_one);
  }
}

static neap_status infer_svd(neap_infer *c, neap_error *error) {
  neap_matrices s;
  NEAP_TRY(neap_matrices_infer(c, false, &s, error));
  NEAP_TRY(check_full(c, &s, error));
  if (shorter(s) > NEAP_LAPACK_MOST / 2)
    return neap_infer_fail(c, NEAP_SHAPE, 0, error, "a matrix has at most %d rows or columns",
                           NEAP_LAPACK_MOST / 2);
  int64_t k = shorter(s);
  set_matrix(c, 0, &s.batches.all, s.m, is_full(c->attrs) ? s.m : k);
  c->out[1] = (neap_type){c->in[0].dtype, s.batches.all};
  c->out[1].shape.dim[c->out[1].shape.n_dim++] = k;
  set_matrix(c, 2, &s.batches.all, is_full(c->attrs) ? s.n : k, s.n);
  return NEAP_OK;
}

static void cost_svd(const neap_infer *c, neap_cost *cost) {
  neap_matrices_cost(c, cost);
  cost->flops *= 8;
}

/* dx = u (diag(ds) + skew(u' du) / e s + s skew(vt dvt') / e) vt, skew(p) = p - p' and
 * e_ij = s_j^2 - s_i^2, and what du and dv have outside of the spaces of u and v: only of a matrix
 * that is not square, so that a singular value of 0 is no trouble where it need not be. */
#define SVD_INSIDE                                                                \
  "b = Unsqueeze(s, axes = {-2}); c = Unsqueeze(s, axes = {-1}); o = c * b; i = " \
  "Tril(Triu(ones(o)));"                                                          \
  "e = (b - c) * (b + c) + i; p = has(d.u) ? MatMul(u, d.u, trans_a = 1) : 0;"    \
  "q = has(d.vt) ? MatMul(vt, d.vt, trans_b = 1) : 0;"                            \
  "k = i * Unsqueeze(given(d.s, zeros(s)), axes = {-2});"                         \
  "l = has(d.u) ? k + (p - turned(p)) / e * b : k;"                               \
  "m = has(d.vt) ? l + (q - turned(q)) / e * c : l; h = MatMul(MatMul(u, m), vt);"
#define SVD_TALL                \
  "w = has(d.u) ? d.u / b : 0;" \
  "d.x = has(d.u) ? h + MatMul(w - MatMul(u, MatMul(u, w, trans_a = 1)), vt) : h"
#define SVD_WIDE                  \
  "w = has(d.vt) ? d.vt / c : 0;" \
  "d.x = has(d.vt) ? h + MatMul(u, w - MatMul(MatMul(w, vt, trans_b = 1), vt)) : h"

static neap_status grad_svd(neap_grad *g, neap_error *error) {
  neap_shape x = neap_grad_type(g, g->in[0]).shape;
  int64_t m = x.dim[x.n_dim - 2], n = x.dim[x.n_dim - 1];
  if (is_full(g->attrs) && m != n)
    return neap_fail(error, NEAP_GRAPH, "no gradient is defined through Svd with full");
  return neap_formula_gradient(g,
                               m == n  ? SVD_INSIDE "d.x = h"
                               : m > n ? SVD_INSIDE SVD_TALL
                                       : SVD_INSIDE SVD_WIDE,
                               error);
}

const neap_op neap_op_Svd = {
  .name = "Svd",
  .summary = "Singular value decompositions of matrices; the values descend.",
  .math = "x = u diag(s) vt",
  .example = "net:Svd(\"x\", {\"u\", \"s\", \"vt\"})",
  .source = "torch.linalg.svd; LAPACK gesdd, computed in f64",
  .inputs = {{"x", "(..,M,N)"}},
  .outputs = {{"u", "(..,M,K), K = min(M,N); (..,M,M) where full"},
              {"s", "(..,K)"},
              {"vt", "(..,K,N): rows, not columns; (..,N,N) where full"}},
  .attrs = {[FULL] = {"full", "square u and vt", NEAP_ATTR_BOOL}},
  .effects = NEAP_EFFECT_FAULT,
  .infer = infer_svd,
  .cost = cost_svd,
  .grad = grad_svd,
  .nan = NEAP_NAN_STOPS,
  .empty = NEAP_EMPTY_IDENTITY,
  .special = "a NaN or an infinity is a fault",
  .sum = NEAP_SUM_DOUBLE,
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_CHOOSE(choose_svd, run_svd, NEAP_FLOATS),
  .cases =
    "{ {x={3,3}}, {x={2,4,3}}, {x={3,5}}, {x={4,3}, full=true, grad=false}, {x={3,3}, "
    "full=true}, {x={0,3,2}}, {x={2,3,0}, full=true, grad=false} }",
  .long_cases = "{ {x={262144,1}} }",
};

/* ---- Eigh ------------------------------------------------------------------------------------ */

static int64_t eigh_doubles(int64_t n) { return n * n + n + neap_lapack_eigh_work(n); }

static bool choose_eigh(neap_choose *c) {
  return neap_matrices_choose(c, eigh_doubles(neap_matrices_of(c->in, 1).n));
}

/* The mean of both triangles, so that the gradient of each element is what it changes. */
static void eigh_one(const neap_matrix_job *j, int64_t at, double *a) {
  const neap_operand *out = j->call->out;
  int64_t n = j->size.n;
  double *w = a + n * n, *work = w + n;
  bool is_finite = neap_matrix_load(&j->call->in[0], at, n, n, a);
  neap_matrix_symmetric(n, a);
  if (!is_finite || !neap_lapack_eigh(n, a, w, work)) {
    neap_matrix_fault(j, at, is_finite ? "has no eigenvalues that LAPACK finds" : NEAP_NOT_FINITE);
    neap_matrix_fill(&out[0], at, n, 0);
    neap_matrix_fill(&out[1], at, n * n, 0);
    return;
  }
  neap_matrix_store(&out[0], at, n, 1, n, w);
  neap_matrix_store(&out[1], at, n, n, n, a);
}

static void run_eigh(const neap_call *call) {
  const neap_shape *x = &call->in[0].type.shape;
  if (neap_shape_elems(x) > 0)
    neap_matrices_run(call, eigh_doubles(x->dim[x->n_dim - 1]), eigh_one);
}

static neap_status infer_eigh(neap_infer *c, neap_error *error) {
  neap_matrices s;
  NEAP_TRY(neap_matrices_infer(c, true, &s, error));
  if (s.n > NEAP_LAPACK_MOST)
    return neap_infer_fail(c, NEAP_SHAPE, 0, error, "a matrix has at most %d rows",
                           NEAP_LAPACK_MOST);
  c->out[0] = (neap_type){c->in[0].dtype, s.batches.all};
  c->out[0].shape.dim[c->out[0].shape.n_dim++] = s.n;
  c->out[1] = c->in[0];
  return NEAP_OK;
}

const neap_op neap_op_Eigh = {
  .name = "Eigh",
  .summary = "Eigenvalues of symmetric matrices, ascending, and their eigenvectors.",
  .math = "x v = v diag(w), v' v = 1; x as (x + x') / 2",
  .example = "net:Eigh(\"x\", {\"w\", \"v\"})",
  .source = "torch.linalg.eigh; LAPACK syevd, computed in f64",
  .inputs = {{"x", "(..,N,N), symmetric"}},
  .outputs = {{"w", "(..,N)"}, {"v", "(..,N,N): columns"}},
  .effects = NEAP_EFFECT_FAULT,
  .infer = infer_eigh,
  .cost = cost_svd,
  .nan = NEAP_NAN_STOPS,
  .special = "a NaN or an infinity is a fault",
  .sum = NEAP_SUM_DOUBLE,
  .grad_formula =
    "b = Unsqueeze(w, axes = {-2}); c = Unsqueeze(w, axes = {-1}); i = Tril(Triu(ones(x)));"
    "k = i * Unsqueeze(given(d.w, zeros(w)), axes = {-2});"
    "p = has(d.v) ? MatMul(v, d.v, trans_a = 1) * (1 - i) / (b - c + i) : 0;"
    "m = has(d.v) ? k + p : k; h = MatMul(MatMul(v, m), v, trans_b = 1);"
    "d.x = (h + turned(h)) * 0.5",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_CHOOSE(choose_eigh, run_eigh, NEAP_FLOATS),
  .cases = "{ {x={4,4}}, {x={2,3,3}}, {x={0,3,3}}, {x={2,0,0}} }",
  .long_cases = "{ {x={{64,64}, eye=1}, of={\"w\"}} }",
};
