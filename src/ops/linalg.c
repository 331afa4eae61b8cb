/* linalg.c: systems of equations, inverses, determinants and Cholesky factors of stacks of matrices
 * (matrices.h).
 *
 * A matrix that is singular is a fault that says which, where a solution or an inverse is asked
 * for; a determinant is 0. A triangle is solved as it is: what is divided by 0 is infinite or NaN.
 */
#include "ops/matrices.h"
#include "ops/rows.h"

#include <math.h>

/* Doubles that `n` integers take. */
static int64_t pivot_doubles(int64_t n) { return (n + 1) / 2; }

/* The LU factors of matrix `at` of x in `lu`, pivots behind them. False where the matrix has a NaN
 * or an infinity; `*zero` the first pivot that is 0, from 1. */
static bool factor(const neap_matrix_job *j, int64_t at, double *lu, int *zero) {
  int64_t n = j->size.n;
  if (!neap_matrix_load(&j->call->in[0], at, n, n, lu)) return false;
  *zero = neap_lapack_lu(n, lu, (int *)(void *)(lu + n * n));
  return true;
}

static const int *pivots_of(const double *lu, int64_t n) {
  return (const int *)(const void *)(lu + n * n);
}

/* ---- Solve, SolveTriangular and Inverse ------------------------------------------------------ */

enum { TRANSPOSED, UPPER, UNIT }; /* Solve has the first */

static int64_t solve_doubles(neap_matrices s) { return s.n * s.n + pivot_doubles(s.n) + s.n * s.k; }

static bool choose_solve(neap_choose *c) {
  return neap_matrices_choose(c, solve_doubles(neap_matrices_of(c->in, 2)));
}

static void solve_one(const neap_matrix_job *j, int64_t at, double *lu) {
  const neap_call *call = j->call;
  int64_t n = j->size.n, k = j->size.k, at_a, at_b;
  neap_batches_at(&j->size.batches, at, &at_a, &at_b);
  /* Scratch: the factors, their pivots, the right side, which LAPACK turns into x. */
  double *b = lu + n * n + pivot_doubles(n);
  int zero = 0;
  if (!factor(j, at_a, lu, &zero)) {
    neap_matrix_fill(&call->out[0], at, n * k, NAN);
    return;
  }
  /* A pivot of 0: no x, or many. */
  if (zero > 0) {
    neap_matrix_fault(j, at, "is singular");
    neap_matrix_fill(&call->out[0], at, n * k, 0);
    return;
  }
  neap_matrix_load(&call->in[1], at_b, n, k, b);
  neap_lapack_lu_solve(call->attrs[TRANSPOSED].i != 0, n, k, lu, pivots_of(lu, n), b);
  neap_matrix_store(&call->out[0], at, n, k, n, b);
}

static void triangle_one(const neap_matrix_job *j, int64_t at, double *a) {
  const neap_call *call = j->call;
  int64_t n = j->size.n, k = j->size.k, at_a, at_b;
  neap_batches_at(&j->size.batches, at, &at_a, &at_b);
  /* No factors are made: a triangle is one. */
  double *b = a + n * n;
  neap_matrix_load(&call->in[0], at_a, n, n, a);
  neap_matrix_load(&call->in[1], at_b, n, k, b);
  neap_lapack_triangle_solve(call->attrs[UPPER].i != 0, call->attrs[TRANSPOSED].i != 0,
                             call->attrs[UNIT].i != 0, n, k, a, b);
  neap_matrix_store(&call->out[0], at, n, k, n, b);
}

static void run_solve_by(const neap_call *call,
                         void (*one)(const neap_matrix_job *, int64_t, double *)) {
  if (neap_shape_elems(&call->out[0].type.shape) == 0) return;
  neap_type in[] = {call->in[0].type, call->in[1].type};
  neap_matrices_run(call, solve_doubles(neap_matrices_of(in, 2)), one);
}
static void run_solve(const neap_call *call) { run_solve_by(call, solve_one); }
static void run_triangle(const neap_call *call) { run_solve_by(call, triangle_one); }

static neap_status infer_solve(neap_infer *c, neap_error *error) {
  neap_matrices s;
  NEAP_TRY(neap_matrices_infer(c, true, &s, error));
  neap_shape y = s.batches.all;
  y.dim[y.n_dim++] = s.n;
  if (!s.is_vector) y.dim[y.n_dim++] = s.k;
  c->out[0] = (neap_type){c->in[0].dtype, y};
  return NEAP_OK;
}

/* x as a stack of matrices: a vector is one column. */
static neap_value_id as_columns(neap_grad *g, neap_value_id x, bool is_vector) {
  neap_shape s = neap_grad_type(g, x).shape;
  if (!is_vector) return x;
  s.dim[s.n_dim++] = 1;
  return neap_grad_emit1(
    g, "Reshape", 1, &x, NULL,
    (neap_set[]){NEAP_SET_INTS("shape", s.n_dim, s.dim), NEAP_SET_INT("allow_zero", 1), {0}});
}

/* With A x = b: A' db = dx and dA = -db x', transposed where A was. Of a triangle, that triangle
 * has it, without the diagonal where ones stand for it. */
static neap_status grad_solve(neap_grad *g, neap_error *error) {
  (void)error;
  bool transposed = g->attrs[TRANSPOSED].i != 0, is_triangle = g->op->attrs[UPPER].name != NULL;
  neap_type in[] = {neap_grad_type(g, g->in[0]), neap_grad_type(g, g->in[1])};
  bool is_vector = neap_matrices_of(in, 2).is_vector;
  /* db is another solve, of the transposed matrix; a smaller batch of b gets the sum. */
  neap_value_id db = neap_grad_emit1(g, g->op->name, 2, (neap_value_id[]){g->in[0], g->dout[0]}, g,
                                     (neap_set[]){NEAP_SET_INT("transposed", !transposed), {0}});
  if (g->want[1]) g->din[1] = neap_grad_reduce_to(g, db, g->in[1]);
  if (!g->want[0]) return NEAP_OK;
  /* An outer product of columns for each matrix. */
  neap_value_id x = as_columns(g, g->out[0], is_vector), d = as_columns(g, db, is_vector);
  neap_value_id da =
    neap_grad_emit1(g, "MatMul", 2, transposed ? (neap_value_id[]){x, d} : (neap_value_id[]){d, x},
                    NULL, (neap_set[]){NEAP_SET_INT("trans_b", 1), {0}});
  /* What the op does not read has no gradient. */
  if (is_triangle) {
    bool upper = g->attrs[UPPER].i != 0;
    int64_t beside = upper ? 1 : -1, off = g->attrs[UNIT].i != 0 ? beside : 0;
    da = neap_grad_emit1(g, upper ? "Triu" : "Tril", 1, &da, NULL,
                         (neap_set[]){NEAP_SET_INT("diagonal", off), {0}});
  }
  da = neap_grad_reduce_to(g, da, g->in[0]);
  g->din[0] = neap_grad_emit1(g, "Neg", 1, &da, NULL, NULL);
  return NEAP_OK;
}

/* A right side of one dimension, or of the shape of A without its columns, is a vector, so a vector
 * for each matrix needs no dimension of 1. What comes back for it must be told apart as well as it
 * was: the batch is A's own there. */
#define SOLVE_INPUTS                                                                     \
  .inputs = {{"a", "(..,N,N)"},                                                          \
             {"b",                                                                       \
              "(..,N,K), whose batch broadcasts with that of a; or vectors, (N) or the " \
              "shape of a without its columns"}},                                        \
  .outputs = {{"x", "shape of b, with the batch of both"}}
#define TRANSPOSED_ATTR [TRANSPOSED] = {"transposed", "solve A' x = b", NEAP_ATTR_BOOL}

const neap_op neap_op_Solve = {
  .name = "Solve",
  .summary =
    "The solution of systems of linear equations, matrix by matrix; a singular matrix is "
    "a fault that names it.",
  .math = "x = A^-1 b",
  .example = "net:Solve({\"a\", \"b\"}, \"x\")",
  .source = "torch.linalg.solve; LAPACK getrf, getrs, computed in f64",
  SOLVE_INPUTS,
  .attrs = {TRANSPOSED_ATTR},
  .effects = NEAP_EFFECT_FAULT,
  .infer = infer_solve,
  .cost = neap_matrices_cost,
  .grad = grad_solve,
  .nan = NEAP_NAN_REACHES,
  .infinity = NEAP_INFINITY_REACHES,
  .sum = NEAP_SUM_DOUBLE,
  .special = "all of x is NaN where a matrix has a NaN or an infinity",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_CHOOSE(choose_solve, run_solve, NEAP_FLOATS),
  .cases =
    "{ {a={4,4}, b={4,3}}, {a={2,3,3}, b={2,3,2}, transposed=true}, {a={{3,1,3,3}, eye=5}, "
    "b={2,3,1}}, "
    "{a={4,4}, b={4}}, {a={2,4,4}, b={2,4}, transposed=true}, {a={2,4,4}, b={4}}, "
    "{a={0,3,3}, b={0,3,2}}, {a={2,0,0}, b={2,0,3}}, {a={3,3}, b={3,0}} }",
  .long_cases = "{ {a={{512,512}, eye=1}, b={512,4}} }",
};

const neap_op neap_op_SolveTriangular = {
  .name = "SolveTriangular",
  .summary =
    "The solution of systems whose matrices are triangles: the other side is not looked "
    "at.",
  .math = "x = A^-1 b, A the lower or upper triangle of a",
  .example = "net:SolveTriangular({\"a\", \"b\"}, \"x\", {upper = true})",
  .source = "torch.linalg.solve_triangular; BLAS trsm, computed in f64",
  SOLVE_INPUTS,
  .attrs = {TRANSPOSED_ATTR,
            [UPPER] = {"upper", "the upper triangle; otherwise the lower", NEAP_ATTR_BOOL},
            [UNIT] = {"unit", "take the diagonal for ones", NEAP_ATTR_BOOL}},
  .infer = infer_solve,
  .cost = neap_matrices_cost,
  .grad = grad_solve,
  .nan = NEAP_NAN_REACHES,
  .infinity = NEAP_INFINITY_REACHES,
  .sum = NEAP_SUM_DOUBLE,
  .special = "a 0 on the diagonal is divided by: infinities and NaN",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_CHOOSE(choose_solve, run_triangle, NEAP_FLOATS),
  .cases =
    "{ {a={{4,4}, eye=2}, b={4,3}}, {a={{2,3,3}, eye=2}, b={2,3,2}, upper=true}, "
    "{a={{3,1,3,3}, eye=2}, b={2,3,1}, transposed=true}, "
    "{a={4,4}, b={4}, unit=true, upper=true, transposed=true}, {a={2,4,4}, b={2,4}, unit=true}, "
    "{a={2,0,0}, b={2,0,3}} }",
  .long_cases = "{ {a={{512,512}, eye=1}, b={512,4}} }",
};

static int64_t inverse_doubles(int64_t n) { return 2 * n * n + pivot_doubles(n); }

static bool choose_inverse(neap_choose *c) {
  return neap_matrices_choose(c, inverse_doubles(neap_matrices_of(c->in, 1).n));
}

static void set_identity(double *a, int64_t n, double one) {
  for (int64_t i = 0; i < n * n; i++) a[i] = 0;
  for (int64_t i = 0; i < n; i++) a[i * n + i] = one;
}

static void inverse_one(const neap_matrix_job *j, int64_t at, double *lu) {
  const neap_operand *y = &j->call->out[0];
  int64_t n = j->size.n;
  double *b = lu + n * n + pivot_doubles(n);
  int zero = 0;
  if (!factor(j, at, lu, &zero)) {
    neap_matrix_fill(y, at, n * n, NAN);
    return;
  }
  if (zero > 0) {
    neap_matrix_fault(j, at, "is singular");
    neap_matrix_fill(y, at, n * n, 0);
    return;
  }
  /* The inverse solves A x = 1. */
  set_identity(b, n, 1);
  neap_lapack_lu_solve(false, n, n, lu, pivots_of(lu, n), b);
  neap_matrix_store(y, at, n, n, n, b);
}

static void run_inverse(const neap_call *call) {
  const neap_shape *x = &call->in[0].type.shape;
  if (neap_shape_elems(x) == 0) return;
  neap_matrices_run(call, inverse_doubles(x->dim[x->n_dim - 1]), inverse_one);
}

static neap_status infer_square(neap_infer *c, neap_error *error) {
  neap_matrices s;
  c->out[0] = c->in[0];
  return neap_matrices_infer(c, true, &s, error);
}

const neap_op neap_op_Inverse = {
  .name = "Inverse",
  .summary =
    "Inverses of matrices; a singular matrix is a fault that names it. To multiply by an "
    "inverse, Solve is faster and more exact.",
  .math = "y = x^-1",
  .example = "net:Inverse(\"x\", \"y\")",
  .source = "torch.linalg.inv; LAPACK getrf, getrs, computed in f64",
  .inputs = {{"x", "(..,N,N)"}},
  .outputs = {{"y", "shape of x"}},
  .effects = NEAP_EFFECT_FAULT,
  .infer = infer_square,
  .cost = neap_matrices_cost,
  .nan = NEAP_NAN_REACHES,
  .infinity = NEAP_INFINITY_REACHES,
  .sum = NEAP_SUM_DOUBLE,
  .special = "all of y is NaN where a matrix has a NaN or an infinity",
  .grad_formula = "d.x = -MatMul(y, MatMul(d.y, y, trans_b = 1), trans_a = 1)",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_CHOOSE(choose_inverse, run_inverse, NEAP_FLOATS),
  .cases = "{ {x={4,4}}, {x={{2,3,3}, eye=4}}, {x={0,3,3}}, {x={2,0,0}} }",
  .long_cases = "{ {x={{512,512}, eye=1}} }",
};

/* ---- determinants ---------------------------------------------------------------------------- */

static int64_t lu_doubles(int64_t n) { return n * n + pivot_doubles(n); }

static bool choose_lu(neap_choose *c) {
  return neap_matrices_choose(c, lu_doubles(neap_matrices_of(c->in, 1).n));
}

/* 1 or -1 by the swaps of rows, and the signs of the pivots unless `abs`. */
static double sign_of(const double *lu, int64_t n, bool abs) {
  const int *pivot = pivots_of(lu, n);
  double sign = 1;
  for (int64_t i = 0; i < n; i++) {
    if (pivot[i] != i + 1) sign = -sign;
    if (!abs) continue;
    const double p = lu[i * n + i];
    sign *= (p > 0) - (p < 0);
  }
  return sign;
}

/* x 2^power, whatever the power. */
static double scaled(double x, int64_t power) {
  enum { MOST = 1 << 14 }; /* beyond it every double is 0 or infinite */
  return ldexp(x, (int)NEAP_MAX(NEAP_MIN(power, MOST), -MOST));
}

/* The product of the pivots, its sign that of the swaps too, as a number near 1 times 2^*power: the
 * product of some of them may be larger or smaller than that of all. */
static double product_of(const double *lu, int64_t n, int64_t *power) {
  double product = sign_of(lu, n, false);
  *power = 0;
  for (int64_t i = 0; i < n; i++) {
    int own = 0;
    /* After each pivot the product is of a size between 1/2 and 1, and its power of 2 goes apart:
     * nothing overflows on the way. */
    product = frexp(product * lu[i * n + i], &own);
    *power += own;
  }
  return product;
}

static void det_one(const neap_matrix_job *j, int64_t at, double *lu) {
  int64_t n = j->size.n, power;
  int zero = 0;
  double det = NAN;
  if (factor(j, at, lu, &zero)) {
    det = product_of(lu, n, &power);
    det = scaled(det, power);
  }
  neap_matrix_fill(&j->call->out[0], at, 1, det);
}

static void log_det_one(const neap_matrix_job *j, int64_t at, double *lu) {
  int64_t n = j->size.n;
  int zero = 0;
  double sign = NAN, log_abs = NAN;
  if (factor(j, at, lu, &zero)) {
    sign = sign_of(lu, n, true);
    log_abs = 0;
    /* The log of a product as a sum of logs: no determinant is too large or too small for it. */
    for (int64_t i = 0; i < n; i++) log_abs += log(fabs(lu[i * n + i]));
  }
  neap_matrix_fill(&j->call->out[0], at, 1, sign);
  neap_matrix_fill(&j->call->out[1], at, 1, log_abs);
}

static void run_det(const neap_call *call) {
  neap_matrices_run(call, lu_doubles(neap_matrices_of(&call->in[0].type, 1).n), det_one);
}
static void run_log_det(const neap_call *call) {
  neap_matrices_run(call, lu_doubles(neap_matrices_of(&call->in[0].type, 1).n), log_det_one);
}

static neap_status infer_det(neap_infer *c, neap_error *error) {
  neap_matrices s;
  NEAP_TRY(neap_matrices_infer(c, true, &s, error));
  for (int k = 0; k < c->n_out; k++) c->out[k] = (neap_type){c->in[0].dtype, s.batches.all};
  return NEAP_OK;
}

static void cost_det(const neap_infer *c, neap_cost *cost) {
  neap_matrices_cost(c, cost);
  cost->flops /= 4; /* the factors alone */
}

/* Rows of a (n,n), then its columns, times powers of 2 so that the largest of each is near 1;
 * returns the sum of the powers that were taken out, which are in `row` and `column`. */
static int64_t equilibrate(double *a, int64_t n, double *row, double *column) {
  int64_t sum = 0;
  for (int by_column = 0; by_column < 2; by_column++)
    for (int64_t i = 0; i < n; i++) {
      /* LAPACK's order is by columns: element (r,c) is at c n + r. So a row steps by n. */
      double *line = by_column ? a + i * n : a + i, largest = 0;
      int64_t step = by_column ? 1 : n;
      int power = 0;
      for (int64_t k = 0; k < n; k++) largest = NEAP_MAX(largest, fabs(line[k * step]));
      frexp(largest, &power); /* 0 of a line of zeros */
      for (int64_t k = 0; k < n; k++) line[k * step] = ldexp(line[k * step], -power);
      (by_column ? column : row)[i] = power;
      sum += power;
    }
  return sum;
}

/* The factors, their pivots, the inverse, and the powers of rows and columns. */
static int64_t cofactor_doubles(int64_t n) { return inverse_doubles(n) + 2 * n; }

/* det(x) x^-T, which exists where x has no inverse, too. A pivot of 0 is taken for one that is as
 * small as its rounding: the others times that inverse have the same error. So that this is small
 * for every element, rows and columns are made alike before. */
static void cofactor_one(const neap_matrix_job *j, int64_t at, double *lu) {
  const neap_operand *y = &j->call->out[0];
  int64_t n = j->size.n, power;
  double *b = lu + lu_doubles(n), *row = b + n * n, *column = row + n;
  if (!neap_matrix_load(&j->call->in[0], at, n, n, lu)) {
    neap_matrix_fill(y, at, n * n, NAN);
    return;
  }

  int64_t taken = equilibrate(lu, n, row, column);
  neap_lapack_lu(n, lu, (int *)(void *)(lu + n * n));
  for (int64_t i = 0; i < n; i++) {
    double *pivot = &lu[i * n + i];
    if (*pivot == 0) *pivot = 0x1p-52;
  }
  double det = product_of(lu, n, &power) * neap_number_at(&j->call->in[1], at);

  /* det times the inverse transposed, from the same factors; each element gets its powers of 2
   * back, of all rows and columns but its own. */
  set_identity(b, n, 1);
  neap_lapack_lu_solve(true, n, n, lu, pivots_of(lu, n), b);
  for (int64_t c = 0; c < n; c++)
    for (int64_t r = 0; r < n; r++) {
      int64_t own = power + taken - (int64_t)row[r] - (int64_t)column[c];
      b[c * n + r] = scaled(b[c * n + r] * det, own);
    }
  neap_matrix_store(y, at, n, n, n, b);
}

static bool choose_cofactor(neap_choose *c) {
  return neap_matrices_choose(c, cofactor_doubles(neap_matrices_of(c->in, 1).n));
}

static void run_cofactor(const neap_call *call) {
  const neap_shape *x = &call->in[0].type.shape;
  if (neap_shape_elems(x) == 0) return;
  neap_matrices_run(call, cofactor_doubles(x->dim[x->n_dim - 1]), cofactor_one);
}

extern const neap_op neap_op_Det;

static neap_status infer_cofactor(neap_infer *c, neap_error *error) {
  neap_type y;
  NEAP_TRY(neap_infer_forward(c, &neap_op_Det, 1, c->in, 1, &y, error));
  c->out[0] = c->in[0];
  return neap_infer_expect(c, 1, &y, error);
}

#define DET_OP                                                                                  \
  .inputs = {{"x", "(..,N,N)"}}, .cost = cost_det, .infer = infer_det, .nan = NEAP_NAN_REACHES, \
  .infinity = NEAP_INFINITY_REACHES, .sum = NEAP_SUM_DOUBLE, .empty = NEAP_EMPTY_ONE

const neap_op neap_op_Det = {
  .name = "Det",
  .summary = "Determinants of matrices; that of a singular one is 0.",
  .math = "y = det x",
  .example = "net:Det(\"x\", \"y\")",
  .source = "torch.linalg.det; LAPACK getrf, computed in f64",
  .outputs = {{"y", "(..)"}},
  DET_OP,
  .special = "NaN where a matrix has a NaN or an infinity",
  .grad_formula = "d.x = DetGrad(x, d.y)",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_CHOOSE(choose_lu, run_det, NEAP_FLOATS),
  .cases = "{ {x={4,4}}, {x={2,3,3}}, {x={3,2,1,1}}, {x={0,3,3}}, {x={2,0,0}} }",
  .long_cases = "{ {x={{512,512}, eye=0.9}} }",
};

/* Twice, where x has an inverse, with b = x^-T: d(dy det(x) b) = dy det(x) (<h, b> b - b h' b). */
const neap_op neap_op_DetGrad = {
  .name = "DetGrad",
  .summary = "Backward of Det: the cofactors, of singular matrices too.",
  .math = "dx = dy det(x) x^-T",
  .internal = true,
  .inputs = {{"x", "(..,N,N)"}, {"dy", "(..)"}},
  .outputs = {{"dx", "shape of x"}},
  .infer = infer_cofactor,
  .nan = NEAP_NAN_REACHES,
  .infinity = NEAP_INFINITY_REACHES,
  .sum = NEAP_SUM_DOUBLE,
  .grad_formula =
    "b = turned(Inverse(x)); f = Unsqueeze(dy * Det(x), axes = {-2,-1}); p = d.dx * b;"
    "d.x = f * (Sum(p, axes = {-2,-1}, keepdim = 1) * b - MatMul(b, MatMul(d.dx, b, trans_a = 1)));"
    "d.dy = Sum(d.dx * DetGrad(x, ones(dy)), axes = {-2,-1})",
  .kernels = NEAP_REF_CHOOSE(choose_cofactor, run_cofactor, NEAP_FLOATS),
  .cases = "{ {x={2,3,3}, dy={2}} }",
  .long_cases = "{ {x={{512,512}, eye=0.9}, dy={}} }",
};

const neap_op neap_op_SlogDet = {
  .name = "SlogDet",
  .summary =
    "Signs of determinants and logarithms of their magnitudes, which no size of matrix "
    "makes too large.",
  .math = "det x = sign exp(log_abs)",
  .example = "net:SlogDet(\"x\", {\"sign\", \"log_abs\"})",
  .source = "torch.linalg.slogdet; LAPACK getrf, computed in f64",
  .outputs = {{"sign", "(..): 1, -1, or 0 of a singular matrix"},
              {"log_abs", "(..), -infinity of a singular matrix"}},
  DET_OP,
  .special = "both are NaN where a matrix has a NaN or an infinity",
  .grad_formula =
    "d.x = Unsqueeze(given(d.log_abs, zeros(log_abs)), axes = {-2,-1}) * "
    "turned(Inverse(x))",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_CHOOSE(choose_lu, run_log_det, NEAP_FLOATS),
  .cases = "{ {x={4,4}}, {x={2,3,3}}, {x={2,1,1}}, {x={0,3,3}}, {x={2,0,0}} }",
  .long_cases = "{ {x={{512,512}, eye=0.9}} }",
};

/* ---- Cholesky -------------------------------------------------------------------------------- */

enum { FACTOR_UPPER };

static bool choose_cholesky(neap_choose *c) {
  int64_t n = neap_matrices_of(c->in, 1).n;
  return neap_matrices_choose(c, n * n);
}

/* The mean of both triangles, so that the gradient of each element is what it changes. */
static void cholesky_one(const neap_matrix_job *j, int64_t at, double *a) {
  const neap_operand *y = &j->call->out[0];
  int64_t n = j->size.n;
  bool is_finite = neap_matrix_load(&j->call->in[0], at, n, n, a);
  neap_matrix_symmetric(n, a);
  if (!is_finite || neap_lapack_cholesky(n, a) != 0) {
    neap_matrix_fault(j, at, is_finite ? "is not positive definite" : NEAP_NOT_FINITE);
    neap_matrix_fill(y, at, n * n, 0);
    return;
  }
  /* The other side is what it was: zeros, or the factor mirrored. */
  bool upper = j->call->attrs[FACTOR_UPPER].i != 0;
  for (int64_t c = 0; c < n; c++)
    for (int64_t r = 0; r < c; r++) {
      a[c * n + r] = upper ? a[r * n + c] : 0;
      if (upper) a[r * n + c] = 0;
    }
  neap_matrix_store(y, at, n, n, n, a);
}

static void run_cholesky(const neap_call *call) {
  const neap_shape *x = &call->in[0].type.shape;
  int64_t n = x->dim[x->n_dim - 1];
  if (neap_shape_elems(x) > 0) neap_matrices_run(call, n * n, cholesky_one);
}

const neap_op neap_op_Cholesky = {
  .name = "Cholesky",
  .summary =
    "Cholesky factors of symmetric positive definite matrices; one that is not is a fault "
    "that names it.",
  .math = "y y' = x, or y' y = x where upper; x as (x + x') / 2",
  .example = "net:Cholesky(\"x\", \"y\")",
  .source =
    "torch.linalg.cholesky; LAPACK potrf, computed in f64. The gradient is symmetric: Murray "
    "2016",
  .inputs = {{"x", "(..,N,N), symmetric"}},
  .outputs = {{"y", "shape of x: a lower triangle, or an upper one"}},
  .attrs = {[FACTOR_UPPER] = {"upper", "the factor as an upper triangle", NEAP_ATTR_BOOL}},
  .effects = NEAP_EFFECT_FAULT,
  .infer = infer_square,
  .cost = cost_det,
  .nan = NEAP_NAN_STOPS,
  .sum = NEAP_SUM_DOUBLE,
  .special = "a NaN or an infinity is a fault",
  .grad_formula =
    "l = upper ? turned(y) : y; g = upper ? turned(d.y) : d.y; p = MatMul(l, g, trans_a = 1);"
    "z = SolveTriangular(l, Tril(p) + Tril(p, diagonal = -1), transposed = 1);"
    "w = SolveTriangular(l, turned(z), transposed = 1); d.x = (w + turned(w)) * 0.25",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_CHOOSE(choose_cholesky, run_cholesky, NEAP_FLOATS),
  .cases =
    "{ {x={{4,4}, eye=9}}, {x={{2,3,3}, eye=9}, upper=true}, {x={{1,1}, eye=4}}, {x={0,3,3}}, "
    "{x={2,0,0}} }",
  .long_cases = "{ {x={{512,512}, eye=1}} }",
};
