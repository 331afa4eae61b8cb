/* matrix_exp.c: MatrixExp, exponentials of stacks of matrices, by scaling and squaring: x is halved
 * until its powers are small, a quotient of polynomials of degree 13 is taken there, and squared as
 * many times. How often follows from powers of x and not from its norm, which may be far above
 * them: each halving too many costs digits (Al-Mohy and Higham, SIAM J. Matrix Anal. Appl. 31,
 * 2009). Of a triangle the diagonal and the line beside it are known, and put right after each
 * square.
 */
#include "math/blas.h"
#include "ops/matrices.h"

#include <math.h>
#include <string.h>

/* Below this norm the quotient is as exact as f64 (Higham 2005, table 2.3). */
#define LARGEST_NORM 5.371920351148152

/* The matrix and powers of it, two sums, the quotient's parts, and pivots. */
enum { N_SQUARE = 8 };
static int64_t exp_doubles(int64_t n) { return N_SQUARE * n * n + (n + 1) / 2; }

/* c = a b. What lies column by column is, row by row, the transpose: the factors change places. */
static void multiply(int64_t n, const double *a, const double *b, double *c) {
  neap_gemm_f64(false, false, n, n, n, 1, b, n, a, n, 0, c, n, 1);
}

/* The largest sum of magnitudes of a column. */
static double norm_of(int64_t n, const double *a) {
  double largest = 0;
  for (int64_t c = 0; c < n; c++) {
    double sum = 0;
    for (int64_t r = 0; r < n; r++) sum += fabs(a[c * n + r]);
    largest = NEAP_MAX(largest, sum);
  }
  return largest;
}

/* out = p a6 + q a4 + r a2 + s 1 */
static void combine(int64_t n, const double *a6, double p, const double *a4, double q,
                    const double *a2, double r, double s, double *out) {
  for (int64_t i = 0; i < n * n; i++) out[i] = p * a6[i] + q * a4[i] + r * a2[i];
  for (int64_t i = 0; i < n; i++) out[i * n + i] += s;
}

/* log2 of a norm's root; of 0, less than any other. */
static double root_log2(int64_t n, const double *a, int power) {
  return log2(norm_of(n, a)) / power;
}

/* log2 of the norm of |a|^27; `row` and `next` are n numbers each. */
static double log2_of_27th(int64_t n, const double *a, double *row, double *next) {
  /* Largest column sums of powers of |a|, by a row vector times |a| again and again: n^2 each,
   * where the powers themselves would be n^3. The vector is kept near 1 and its size counted in
   * `log`. */
  double log = 0;
  for (int64_t c = 0; c < n; c++) row[c] = 1;
  for (int i = 0; i < 27; i++) {
    double largest = 0;
    for (int64_t c = 0; c < n; c++) {
      next[c] = 0;
      for (int64_t r = 0; r < n; r++) next[c] += row[r] * fabs(a[c * n + r]);
      largest = NEAP_MAX(largest, next[c]);
    }
    if (largest == 0) return -INFINITY;
    log += log2(largest);
    for (int64_t c = 0; c < n; c++) row[c] = next[c] / largest;
  }
  return log;
}

/* How often x = a 2^scale must be halved: `roots` are log2 of the roots of norms of powers 6, 8, 10
 * of a. First until they are within the quotient's reach, then until its error, of the 27th power,
 * is below a rounding. */
static int halvings(int64_t n, const double *a, const double roots[3], int scale, double *row) {
  const double reach = log2(LARGEST_NORM), quotient = -116.447; /* log2 of 1 / (C(26,13) 27!) */
  /* Bounds of the norm of every high power by those of 6 and 8, or 8 and 10, whichever pair is
   * better. */
  double eta = fmin(fmax(roots[0], roots[1]), fmax(roots[1], roots[2])) + scale;
  double times = fmax(ceil(eta - reach), 0);
  /* The first term that the quotient leaves out, over |a|: log2 of its size in units of 2^-53. Each
   * halving takes 26 powers of 2 from it. */
  double error =
    quotient + log2_of_27th(n, a, row, row + n) - log2(norm_of(n, a)) + 26 * (scale - times) + 53;
  if (error > 0) times += ceil(error / 26);
  /* The matrix itself, times the quotient's largest number, must not be too large. */
  return (int)fmax(times, scale - 600);
}

/* The exponential of a 2x2 triangle's other element, divided by it: (e^p - e^q) / (p - q). */
static double divided_difference(double p, double q) {
  /* sinh(half) / half is 0 / 0 at 0: near it, the series, right to 1e-17 there. */
  double half = (p - q) / 2;
  double ratio = fabs(half) < 1e-4 ? 1 + half * half / 6 : sinh(half) / half;
  /* Far apart, sinh is infinite where the difference is not. */
  return fabs(half) > 300 ? (exp(p) - exp(q)) / (p - q) : exp((p + q) / 2) * ratio;
}

/* y is to be the exponential of a 2^power, a triangle: its diagonal and the line beside it, and the
 * zeros on the other side. */
static void set_lines(int64_t n, const double *a, int power, bool upper, double *y) {
  for (int64_t c = 0; c < n; c++)
    for (int64_t r = 0; r < n; r++)
      if (upper ? r > c : r < c) y[c * n + r] = 0;
  /* The line beside the diagonal is the exponential of 2x2 triangles, known in closed form. */
  for (int64_t i = 0; i < n; i++) {
    int64_t at = i * n + i, beside = upper ? at + n : at + 1;
    double own = ldexp(a[at], power);
    y[at] = exp(own);
    if (i + 1 == n) continue;
    double x = ldexp(a[beside], power);
    y[beside] = x == 0 ? 0 : x * divided_difference(own, ldexp(a[at + n + 1], power));
  }
}

/* Whether nothing is above the diagonal, or below it. */
static bool is_triangle(int64_t n, const double *a, bool upper) {
  for (int64_t c = 0; c < n; c++)
    for (int64_t r = 0; r < n; r++)
      if ((upper ? r > c : r < c) && a[c * n + r] != 0) return false;
  return true;
}

static void scale_by(int64_t size, double *a, int power) {
  for (int64_t i = 0; i < size; i++) a[i] = ldexp(a[i], power);
}

/* Scratch of one matrix: all (n,n), column by column, but the pivots. */
typedef struct room {
  double *a, *a2, *a4, *a6; /* the scaled matrix and its powers */
  double *u, *v, *w;        /* sums, and what is made of them */
  double *x;                /* the matrix as it came */
  int *pivot;               /* n of them */
} room;

static room room_of(double *scratch, int64_t n) {
  const int64_t size = n * n;
  room k = {.a = scratch};
  k.a2 = k.a + size;
  k.a4 = k.a2 + size;
  k.a6 = k.a4 + size;
  k.u = k.a6 + size;
  k.v = k.u + size;
  k.w = k.v + size;
  k.x = k.w + size;
  k.pivot = (int *)(void *)(k.x + size);
  return k;
}

/* Halves x until the quotient holds: a = x 2^-times with its powers 2, 4 and 6. Returns how
 * often. */
static int take_powers(int64_t n, const room *k) {
  const int64_t size = n * n;
  int scale = 0;
  /* Of a large matrix the powers are those of a part of it, so that they are finite. */
  double largest = 0;
  for (int64_t i = 0; i < size; i++) largest = NEAP_MAX(largest, fabs(k->a[i]));
  if (largest > 1) frexp(largest, &scale);
  scale_by(size, k->a, -scale);

  multiply(n, k->a, k->a, k->a2);
  multiply(n, k->a2, k->a2, k->a4);
  multiply(n, k->a2, k->a4, k->a6);
  /* The powers 8 and 10 only for their norms: their places are free so far. */
  multiply(n, k->a4, k->a4, k->u);
  multiply(n, k->a4, k->a6, k->v);
  double roots[] = {root_log2(n, k->a6, 6), root_log2(n, k->u, 8), root_log2(n, k->v, 10)};

  /* What was too much or too little of the first scaling is put right in all four: by powers of 2,
   * which round nothing. */
  int n_halved = halvings(n, k->a, roots, scale, k->w), back = scale - n_halved;
  scale_by(size, k->a, back);
  scale_by(size, k->a2, 2 * back);
  scale_by(size, k->a4, 4 * back);
  scale_by(size, k->a6, 6 * back);
  return n_halved;
}

/* exp(a) in k->v by the quotient (v - u)^-1 (v + u), u of the odd powers of a and v of the even
 * ones. With powers up to 6 at hand degree 13 takes three more products (Higham, SIAM J. Matrix
 * Anal. Appl. 26, 2005). */
static void take_quotient(int64_t n, const room *k) {
  /* b[i] of a^i: (26 - i)! / (i! (13 - i)!), Pade's coefficients without their denominator. */
  static const double b[] = {64764752532480000.,
                             32382376266240000.,
                             7771770303897600.,
                             1187353796428800.,
                             129060195264000.,
                             10559470521600.,
                             670442572800.,
                             33522128640.,
                             1323241920.,
                             40840800.,
                             960960.,
                             16380.,
                             182.,
                             1.};
  const int64_t size = n * n;
  double *u = k->u, *v = k->v, *w = k->w;

  /* u = a (a6 (b13 a6 + b11 a4 + b9 a2) + b7 a6 + b5 a4 + b3 a2 + b1) */
  combine(n, k->a6, b[13], k->a4, b[11], k->a2, b[9], 0, v);
  multiply(n, k->a6, v, w);
  combine(n, k->a6, b[7], k->a4, b[5], k->a2, b[3], b[1], v);
  for (int64_t i = 0; i < size; i++) w[i] += v[i];
  multiply(n, k->a, w, u);

  /* v likewise, of the even powers; then w = v - u and v + u in v */
  combine(n, k->a6, b[12], k->a4, b[10], k->a2, b[8], 0, w);
  multiply(n, k->a6, w, v);
  combine(n, k->a6, b[6], k->a4, b[4], k->a2, b[2], b[0], w);
  for (int64_t i = 0; i < size; i++) {
    v[i] += w[i];
    w[i] = v[i] - u[i];
    v[i] += u[i];
  }

  /* No inverse is made: n right sides are solved for, which is less work and loses fewer digits. */
  neap_lapack_lu(n, w, k->pivot);
  neap_lapack_lu_solve(false, n, n, w, k->pivot, v);
}

static void exp_one(const neap_matrix_job *j, int64_t at, double *scratch) {
  const neap_operand *y = &j->call->out[0];
  int64_t n = j->size.n, size = n * n;
  const room k = room_of(scratch, n);
  if (!neap_matrix_load(&j->call->in[0], at, n, n, k.a)) {
    neap_matrix_fill(y, at, size, NAN);
    return;
  }
  memcpy(k.x, k.a, (size_t)size * sizeof *k.x);
  bool upper = is_triangle(n, k.a, true), triangle = upper || is_triangle(n, k.a, false);
  int n_halved = take_powers(n, &k);
  take_quotient(n, &k);

  /* exp(x) is exp(x 2^-times) squared as often. With `left` squares to go v is exp(x 2^-left), of
   * which a triangle knows two lines exactly. */
  for (int left = n_halved; left >= 0; left--) {
    if (triangle) set_lines(n, k.x, -left, upper, k.v);
    if (left == 0) break;
    multiply(n, k.v, k.v, k.w);
    memcpy(k.v, k.w, (size_t)size * sizeof *k.v);
  }
  neap_matrix_store(y, at, n, n, n, k.v);
}

static bool choose(neap_choose *c) {
  return neap_matrices_choose(c, exp_doubles(neap_matrices_of(c->in, 1).n));
}

static void run(const neap_call *call) {
  const neap_shape *x = &call->in[0].type.shape;
  if (neap_shape_elems(x) > 0) neap_matrices_run(call, exp_doubles(x->dim[x->n_dim - 1]), exp_one);
}

static neap_status infer(neap_infer *c, neap_error *error) {
  neap_matrices s;
  c->out[0] = c->in[0];
  return neap_matrices_infer(c, true, &s, error);
}

static void cost(const neap_infer *c, neap_cost *cost) {
  neap_matrices_cost(c, cost);
  cost->flops *= 6; /* some ten products */
}

/* Of the matrix (x' dy; 0 x') the exponential has dx in the corner of dy. */
static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  neap_shape x = neap_grad_type(g, g->in[0]).shape;
  /* x' is x with its last two dimensions changed. */
  int64_t perm[NEAP_MAX_DIM];
  for (int d = 0; d < x.n_dim; d++) perm[d] = d < x.n_dim - 2 ? d : 2 * x.n_dim - 3 - d;
  neap_value_id t = neap_grad_emit1(g, "Permute", 1, &g->in[0], NULL,
                                    (neap_set[]){NEAP_SET_INTS("axes", x.n_dim, perm), {0}});
  neap_value_id zero =
    neap_grad_emit1(g, "Constant", 0, NULL, NULL,
                    (neap_set[]){NEAP_SET_FLOAT("value", 0),
                                 NEAP_SET_INT("dtype", neap_grad_type(g, t).dtype),
                                 NEAP_SET_INTS("shape", x.n_dim, x.dim),
                                 {0}});
  /* The four corners as one matrix (2N,2N). */
  const neap_set columns[] = {NEAP_SET_INT("axis", -1), {0}},
                 rows[] = {NEAP_SET_INT("axis", -2), {0}};
  neap_value_id upper =
    neap_grad_emit1(g, "Concat", 2, (neap_value_id[]){t, g->dout[0]}, NULL, columns);
  neap_value_id lower = neap_grad_emit1(g, "Concat", 2, (neap_value_id[]){zero, t}, NULL, columns);
  neap_value_id both = neap_grad_emit1(g, "Concat", 2, (neap_value_id[]){upper, lower}, NULL, rows);
  /* The upper right corner of its exponential is dx: that of the derivative in direction dy at
   * x'. */
  neap_value_id y = neap_grad_emit1(g, "MatrixExp", 1, &both, NULL, NULL), half[2], corner[2];
  neap_grad_emit(g, "Split", 1, &y, 2, half, NULL, rows);
  neap_grad_emit(g, "Split", 1, &half[0], 2, corner, NULL, columns);
  g->din[0] = corner[1];
  return NEAP_OK;
}

const neap_op neap_op_MatrixExp = {
  .name = "MatrixExp",
  .summary = "Exponentials of matrices.",
  .math = "y = sum of x^k / k!",
  .example = "net:MatrixExp(\"x\", \"y\")",
  .source = "torch.linalg.matrix_exp; Al-Mohy and Higham, SIAM J. Matrix Anal. Appl. 31, 2009",
  .inputs = {{"x", "(..,N,N)"}},
  .outputs = {{"y", "shape of x"}},
  .infer = infer,
  .cost = cost,
  .grad = grad,
  .nan = NEAP_NAN_REACHES,
  .infinity = NEAP_INFINITY_BLURS,
  .sum = NEAP_SUM_DOUBLE,
  .special = "all of y is NaN where a matrix has a NaN or an infinity",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_CHOOSE(choose, run, NEAP_FLOATS),
  .cases = "{ {x={4,4}}, {x={{2,3,3}, low=-9, high=9}}, {x={0,3,3}}, {x={2,0,0}} }",
  .long_cases = "{ {x={{512,512}, low=0.001, high=0.001}} }",
};
