/* matrices.c: stacks of matrices, one by one, in scratch of doubles. */
#include "ops/matrices.h"

#include "ops/rows.h"

#include <math.h>

neap_matrices neap_matrices_of(const neap_type *in, int n_in) {
  const neap_shape *a = &in[0].shape, *b = &in[1].shape;
  neap_matrices s = {.m = a->dim[a->n_dim - 2], .n = a->dim[a->n_dim - 1], .k = 1};
  if (n_in < 2) {
    s.batches.all = neap_shape_of(a->n_dim - 2, a->dim);
    return s;
  }
  /* A vector for each matrix, or one for all: what is as long as they are high and no matrix. */
  s.is_vector = b->n_dim == 1;
  if (b->n_dim == a->n_dim - 1) {
    s.is_vector = true;
    for (int d = 0; d < b->n_dim; d++)
      if (b->dim[d] != a->dim[d]) s.is_vector = false;
  }
  if (!s.is_vector) s.k = b->dim[b->n_dim - 1];
  if (!neap_batches_of(a, b, s.is_vector ? 1 : 2, &s.batches)) s.k = -1;
  return s;
}

neap_status neap_matrices_infer(neap_infer *c, bool square, neap_matrices *size,
                                neap_error *error) {
  NEAP_TRY(neap_infer_rank(c, 0, 2, NEAP_MAX_DIM, error));
  if (c->n_in > 1) NEAP_TRY(neap_infer_rank(c, 1, 1, NEAP_MAX_DIM, error));
  *size = neap_matrices_of(c->in, c->n_in);
  const neap_shape *x = &c->in[0].shape;
  char text[NEAP_SHAPE_TEXT];
  if (square && size->m != size->n)
    return neap_infer_fail(c, NEAP_SHAPE, 0, error, "expects square matrices (..,N,N), got %s",
                           neap_shape_text(x, text));
  /* LAPACK counts in 32 bits: rows times columns of every matrix in the scratch. */
  const int64_t most = (int64_t)NEAP_LAPACK_MOST * NEAP_LAPACK_MOST;
  if (neap_count_mul(NEAP_MAX(size->m, 1), NEAP_MAX(size->n, size->k)) > most ||
      neap_count_mul(NEAP_MAX(size->n, 1), NEAP_MAX(size->m, size->k)) > most)
    return neap_infer_fail(c, NEAP_SHAPE, 0, error, "a matrix has at most %lld elements",
                           (long long)most);

  /* The right-hand side: a matrix, or a vector, whose only dimension is its rows. */
  if (c->n_in < 2) return NEAP_OK;
  NEAP_TRY(neap_infer_same_dtype(c, 0, error));
  const neap_shape *b = &c->in[1].shape;
  int64_t rows = b->dim[size->is_vector ? b->n_dim - 1 : b->n_dim - 2];
  if (rows != size->n || size->k < 0)
    return neap_infer_fail(
      c, NEAP_SHAPE, 1, error,
      "expects %lld rows and a batch that broadcasts with that of a %s, got %s", (long long)size->n,
      neap_shape_text(x, text), neap_shape_text(b, (char[NEAP_SHAPE_TEXT]){0}));
  return NEAP_OK;
}

void neap_matrices_cost(const neap_infer *c, neap_cost *cost) {
  neap_matrices s = neap_matrices_of(c->in, c->n_in);
  double n = (double)NEAP_MIN(s.m, s.n), longer = (double)NEAP_MAX(s.m, s.n);
  double columns = c->n_in > 1 ? (double)s.k : n;
  cost->flops = (double)neap_shape_elems(&s.batches.all) * 2 * n * (n * longer / 3 + n * columns);
}

/* ---- all matrices of a call ------------------------------------------------------------------ */

/* Scratch begins at lines of the cache, so that threads do not share one. Matrices without numbers
 * have some too: what lies where in it is counted from an address, which NULL is not. */
static size_t part_bytes(int64_t n_double) {
  return neap_align((size_t)NEAP_MAX(n_double, 1) * sizeof(double));
}

static int part_count(int64_t n_matrix, int n_thread) {
  return (int)NEAP_MIN(n_matrix, (int64_t)n_thread);
}

bool neap_matrices_choose(neap_choose *c, int64_t n_double) {
  neap_matrices s = neap_matrices_of(c->in, c->n_in);
  int n_part = part_count(neap_shape_elems(&s.batches.all), c->choice->n_thread);
  c->choice->scratch_bytes = neap_size_mul((size_t)n_part, part_bytes(n_double));
  return true;
}

/* Parts [begin, end): part p has the matrices [n p / parts, n (p + 1) / parts). */
static void run_parts(void *context, int64_t begin, int64_t end) {
  const neap_matrix_job *j = context;
  for (int64_t p = begin; p < end; p++) {
    double *scratch = neap_call_scratch(j->call, (size_t)p * part_bytes(j->n_double));
    for (int64_t i = j->n_matrix * p / j->n_part; i < j->n_matrix * (p + 1) / j->n_part; i++)
      j->one(j, i, scratch);
  }
}

void neap_matrices_run(const neap_call *call, int64_t n_double,
                       void (*one)(const neap_matrix_job *job, int64_t at, double *scratch)) {
  neap_type in[2] = {0};
  for (int i = 0; i < NEAP_MIN(call->n_in, 2); i++) in[i] = call->in[i].type;
  neap_matrix_job j = {
    .call = call, .one = one, .size = neap_matrices_of(in, call->n_in), .n_double = n_double};
  j.n_matrix = neap_shape_elems(&j.size.batches.all);
  /* As many as the choice has scratch for, whichever threads run them. */
  j.n_part = part_count(j.n_matrix, call->choice->n_thread);
  neap_parallel_for(j.n_part, 1, call->n_thread, run_parts, &j);
}

/* ---- one matrix ------------------------------------------------------------------------------ */

enum { TILE = 64 };

/* Row by row as they lie, a tile of each at a time. */
bool neap_matrix_load(const neap_operand *x, int64_t at, int64_t rows, int64_t columns,
                      double *to) {
  double tile[TILE], sum = 0;
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c += TILE) {
      int64_t n = NEAP_MIN(columns - c, TILE);
      neap_cast(NEAP_DTYPE_F64, tile, x->type.dtype,
                neap_element_at(x, (at * rows + r) * columns + c), n);
      /* Turned: LAPACK has columns one behind the other. */
      for (int64_t i = 0; i < n; i++) {
        to[(c + i) * rows + r] = tile[i];
        sum += tile[i] * 0; /* NaN from the first that is not finite */
      }
    }
  return sum == 0;
}

void neap_matrix_store(const neap_operand *y, int64_t at, int64_t rows, int64_t columns,
                       int64_t stride, const double *from) {
  double tile[TILE];
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < columns; c += TILE) {
      int64_t n = NEAP_MIN(columns - c, TILE);
      for (int64_t i = 0; i < n; i++) tile[i] = from[(c + i) * stride + r];
      neap_cast(y->type.dtype, neap_element_at(y, (at * rows + r) * columns + c), NEAP_DTYPE_F64,
                tile, n);
    }
}

void neap_matrix_fill(const neap_operand *y, int64_t at, int64_t n, double value) {
  for (int64_t i = 0; i < n; i++) neap_element_set(y->type.dtype, y->data, at * n + i, value);
}

void neap_matrix_symmetric(int64_t n, double *a) {
  for (int64_t c = 0; c < n; c++)
    for (int64_t r = 0; r < c; r++)
      a[c * n + r] = a[r * n + c] = 0.5 * a[c * n + r] + 0.5 * a[r * n + c];
}

/* A stack of one is spoken of without a number. */
void neap_matrix_fault(const neap_matrix_job *j, int64_t at, const char *what) {
  const char *name = j->call->op->inputs[0].name;
  if (j->n_matrix == 1)
    neap_call_fault(j->call, "%s %s", name, what);
  else
    neap_call_fault(j->call, "matrix %lld of %s %s", (long long)at + neap_first_number(), name,
                    what);
}
