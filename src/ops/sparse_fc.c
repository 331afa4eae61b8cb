/* sparse_fc.c: SparseFC, a fully connected layer whose weight has only blocks that are not zero,
 * and SparseToDense, that weight in full.
 *
 * The weight (N,K) is cut into blocks of (r,c); those that hold a number lie one after another, row
 * of blocks by row: `values` (B,r,c), the column of each, in blocks (`columns`, B), and where each
 * row of blocks begins among them (`starts`, N/r + 1). Blocks of (1,1) are CSR.
 *
 * INVARIANT: no address follows from `columns` and `starts` before they are seen to be in range: a
 * file may hold any numbers. What is not counts as nothing.
 */
#include "math/vec.h"
#include "ops/op.h"

#include <string.h>

enum { X, VALUES, COLUMNS, STARTS, BIAS };
enum { K };
enum { WIDE = 16 };

/* The three lists from input `first` on, and the block's sizes. N to *n. */
static neap_status check_lists(const neap_infer *c, int first, int64_t *n, neap_error *error) {
  const neap_shape *values = &c->in[first].shape, *columns = &c->in[first + 1].shape,
                   *starts = &c->in[first + 2].shape;
  char text[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_rank(c, first, 3, 3, error));
  NEAP_TRY(neap_infer_rank(c, first + 1, 1, 1, error));
  NEAP_TRY(neap_infer_rank(c, first + 2, 1, 1, error));
  if (columns->dim[0] != values->dim[0])
    return neap_infer_fail(c, NEAP_SHAPE, first + 1, error,
                           "columns expects one number for each block, (%lld), got %s",
                           (long long)values->dim[0], neap_shape_text(columns, text));
  if (starts->dim[0] < 1 || values->dim[1] < 1 || values->dim[2] < 1 ||
      c->attrs[K].i % values->dim[2] != 0)
    return neap_infer_fail(c, NEAP_SHAPE, first, error,
                           "values expects blocks that divide k = %lld, got %s",
                           (long long)c->attrs[K].i, neap_shape_text(values, text));
  /* `starts` has one more number than there are rows of blocks. */
  *n = neap_count_mul(starts->dim[0] - 1, values->dim[1]);
  return NEAP_OK;
}

static neap_status infer(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[X].shape;
  int64_t n = 0;
  char text[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_rank(c, X, 1, NEAP_MAX_DIM, error));
  NEAP_TRY(check_lists(c, VALUES, &n, error));
  if (x->dim[x->n_dim - 1] != c->attrs[K].i)
    return neap_infer_fail(c, NEAP_SHAPE, X, error, "x expects %lld features, got %s",
                           (long long)c->attrs[K].i, neap_shape_text(x, text));
  const neap_type bias = {NEAP_DTYPE_F32, NEAP_SHAPE(n)};
  if (c->n_in > BIAS && c->in[BIAS].dtype != NEAP_DTYPE_NONE)
    NEAP_TRY(neap_infer_expect(c, BIAS, &bias, error));
  c->out[0] = c->in[X];
  c->out[0].shape.dim[x->n_dim - 1] = n;
  return NEAP_OK;
}

static neap_status infer_dense(neap_infer *c, neap_error *error) {
  int64_t n = 0;
  NEAP_TRY(check_lists(c, 0, &n, error));
  c->out[0] = (neap_type){NEAP_DTYPE_F32, NEAP_SHAPE(n, c->attrs[K].i)};
  return NEAP_OK;
}

static void cost(const neap_infer *c, neap_cost *cost) {
  const neap_shape *x = &c->in[X].shape;
  cost->flops = 2.0 * (double)neap_shape_elems(&c->in[VALUES].shape) *
                (double)neap_shape_span(x, 0, x->n_dim - 1);
}

NEAP_MULTIVERSION static bool all_below(const int32_t *x, int64_t n, int64_t most) {
  uint32_t largest = 0;
  /* One below 0 is large. */
  for (int64_t i = 0; i < n; i++) largest = NEAP_MAX(largest, (uint32_t)x[i]);
  return n == 0 || largest < most;
}

/* Whether the lists name places in a weight of `n_column` blocks a row. */
static bool has_places(const neap_call *call, int first, int64_t n_column) {
  const int32_t *column = call->in[first + 1].data, *start = call->in[first + 2].data;
  const int64_t n_block = call->in[first].type.shape.dim[0],
                n_row = call->in[first + 2].type.shape.dim[0] - 1;
  /* Starts that begin at 0, never fall and end at B lie all in [0, B]. */
  bool good = start[0] == 0 && start[n_row] == n_block;
  for (int64_t r = 0; r < n_row; r++) good &= start[r] <= start[r + 1];
  return good && all_below(column, n_block, n_column);
}

typedef struct job {
  const float *x, *values, *bias;
  const int32_t *column, *start;
  float *y;
  int64_t k, n, n_row, r, c; /* r, c: of a block */
} job;

/* One row of blocks of (1,1) with one row of x: eight sums, so that loads need not wait. */
NEAP_MULTIVERSION static float dot(const float *x, const float *values, const int32_t *column,
                                   int64_t n) {
  float sum[8] = {0};
  int64_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (int64_t l = 0; l < 8; l++) sum[l] += values[i + l] * x[column[i + l]];
  for (; i < n; i++) sum[0] += values[i] * x[column[i]];
  return ((sum[0] + sum[1]) + (sum[2] + sum[3])) + ((sum[4] + sum[5]) + (sum[6] + sum[7]));
}

/* y[0,r) of one row of blocks: the block's rows each with c numbers of x. */
NEAP_MULTIVERSION static void dot_blocks(const job *j, const float *x, int64_t row, float *y) {
  for (int64_t b = j->start[row]; b < j->start[row + 1]; b++) {
    const float *block = j->values + b * j->r * j->c, *from = x + j->column[b] * j->c;
    for (int64_t i = 0; i < j->r; i++) {
      float sum = 0;
      for (int64_t l = 0; l < j->c; l++) sum += block[i * j->c + l] * from[l];
      y[i] += sum;
    }
  }
}

/* Sixteen numbers side by side, wherever they lie: told as a vector, since the compiler makes
 * single numbers of the loop that would say it. */
typedef float lanes __attribute__((vector_size(WIDE * sizeof(float)), aligned(4), may_alias));

/* The same of blocks of (16,1): sixteen sums side by side, one number of x for all. */
NEAP_MULTIVERSION static void dot_columns(const float *x, const float *values,
                                          const int32_t *column, int64_t n, float *y) {
  const lanes *block = (const lanes *)values;
  lanes sum0 = {0}, sum1 = {0}, sum2 = {0}, sum3 = {0};
  int64_t b = 0;
  /* Four, so that none waits for the one before. */
  for (; b + 4 <= n; b += 4) {
    sum0 += block[b] * x[column[b]];
    sum1 += block[b + 1] * x[column[b + 1]];
    sum2 += block[b + 2] * x[column[b + 2]];
    sum3 += block[b + 3] * x[column[b + 3]];
  }
  for (; b < n; b++) sum0 += block[b] * x[column[b]];
  *(lanes *)y += (sum0 + sum1) + (sum2 + sum3);
}

/* Rows of blocks [begin, end), numbered m * n_row + row. */
static void run_rows(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  for (int64_t at = begin; at < end; at++) {
    const int64_t m = at / j->n_row, row = at % j->n_row;
    const float *x = j->x + m * j->k;
    float *y = j->y + m * j->n + row * j->r;
    /* y begins as the bias, and each row of blocks adds to its own r rows of it. */
    for (int64_t i = 0; i < j->r; i++) y[i] = j->bias != NULL ? j->bias[row * j->r + i] : 0;
    const int64_t first = j->start[row], n = j->start[row + 1] - first;
    /* Blocks of (16,1) are what pruning makes, those of (1,1) are CSR: both have loops of their
     * own. */
    if (j->r == WIDE && j->c == 1)
      dot_columns(x, j->values + first * WIDE, j->column + first, n, y);
    else if (j->r * j->c > 1)
      dot_blocks(j, x, row, y);
    else
      y[0] += dot(x, j->values + first, j->column + first, n);
  }
}

static void run(const neap_call *call) {
  const neap_shape *values = &call->in[VALUES].type.shape;
  job j = {.x = call->in[X].data,
           .values = call->in[VALUES].data,
           .column = call->in[COLUMNS].data,
           .start = call->in[STARTS].data,
           .bias = call->n_in > BIAS ? call->in[BIAS].data : NULL,
           .y = call->out[0].data,
           .k = call->attrs[K].i,
           .n_row = call->in[STARTS].type.shape.dim[0] - 1,
           .r = values->dim[1],
           .c = values->dim[2]};
  const int64_t elems = neap_shape_elems(&call->out[0].type.shape);
  j.n = j.n_row * j.r;
  if (elems == 0) return;
  /* Looked at once, before any thread: the kernels trust both lists. */
  if (!has_places(call, VALUES, j.k / j.c)) {
    neap_call_fault(call, "the blocks lie outside of the weight, or in no order");
    memset(j.y, 0, (size_t)elems * sizeof *j.y);
    return;
  }

  /* A thread takes rows enough to be worth it: by the multiplications that a row of blocks has. */
  const int64_t work = values->dim[0] * j.r * j.c / NEAP_MAX(j.n_row, 1);
  neap_parallel_for(elems / j.r, NEAP_GRAIN / (work + 1) + 1, call->n_thread, run_rows, &j);
}

/* The weight (N,K) that the blocks are of, with zeros beside them. */
static void run_dense(const neap_call *call) {
  const neap_operand *values = &call->in[0], *y = &call->out[0];
  const int64_t r = values->type.shape.dim[1], c = values->type.shape.dim[2], k = call->attrs[K].i;
  const int64_t n_row = call->in[2].type.shape.dim[0] - 1;
  const int32_t *column = call->in[1].data, *start = call->in[2].data;
  float *w = y->data;
  memset(w, 0, neap_type_bytes(&y->type));
  /* Lists that are not right leave all of it 0, as the record says. */
  if (!has_places(call, 0, k / c)) return;
  for (int64_t row = 0; row < n_row; row++)
    for (int64_t b = start[row]; b < start[row + 1]; b++)
      for (int64_t i = 0; i < r; i++)
        memcpy(w + (row * r + i) * k + column[b] * c, (const float *)values->data + (b * r + i) * c,
               (size_t)c * sizeof *w);
}

#define LISTS                                                                          \
  {"values", "(B,r,c), blocks that are not zero, by rows of blocks", NEAP_BIT(F32)},   \
    {"columns", "(B), the column of each, counted in blocks from 0", NEAP_BIT(I32)}, { \
    "starts", "(N/r + 1), the first block of each row of blocks, and B", NEAP_BIT(I32) \
  }
#define K_ATTR \
  [K] = {"k", "columns of the weight", NEAP_ATTR_INT, .required = true, .least = 1, .most = 1 << 30}

const neap_op neap_op_SparseFC = {
  .name = "SparseFC",
  .summary = "Fully connected layer whose weight has only its blocks that are not zero.",
  .math = "y (M,N) = x (M,K) w^T (K,N) + b (N)",
  .example = "net:SparseFC({\"x\", \"values\", \"columns\", \"starts\", \"b\"}, \"y\", {k = 784})",
  .source = "Saad, Iterative Methods for Sparse Linear Systems, section 3.4 (CSR, BSR)",
  .inputs = {[X] = {"x", "(M,K); leading dimensions are rows", NEAP_BIT(F32)},
             LISTS,
             [BIAS] = {"b", "(N)", NEAP_BIT(F32), NEAP_ARG_OPTIONAL}},
  .outputs = {{"y", "(M,N)", NEAP_BIT(F32)}},
  .attrs = {K_ATTR},
  .effects = NEAP_EFFECT_FAULT,
  .infer = infer,
  .cost = cost,
  .no_grad = true,
  .mixed = NEAP_MIXED_FULL,
  .nan = NEAP_NAN_REACHES,
  /* Of sums nothing is promised: the terms are as many as the weight has numbers in a row. */
  .special = "places that the weight has not are a fault, and give 0; sums are of f32, in parts",
  .kernels = NEAP_REF(run, NEAP_BIT(F32)),
  .cases =
    "{ {x={2,4}, values={0,1,1}, columns={{0}, dtype=\"i32\"}, starts={{2}, dtype=\"i32\", low=0, "
    "high=0}, b={1}, k=4} }",
};

const neap_op neap_op_SparseToDense = {
  .name = "SparseToDense",
  .summary = "A weight of blocks in full, zeros between them.",
  .math = "w (N,K)",
  .example = "net:SparseToDense({\"values\", \"columns\", \"starts\"}, \"w\", {k = 784})",
  .source = "Saad, Iterative Methods for Sparse Linear Systems, section 3.4 (CSR, BSR)",
  .inputs = {LISTS},
  .outputs = {{"w", "(N,K)", NEAP_BIT(F32)}},
  .attrs = {K_ATTR},
  .infer = infer_dense,
  .no_grad = true,
  .mixed = NEAP_MIXED_FULL,
  .special = "of lists that are not right all is 0",
  .kernels = NEAP_REF(run_dense, NEAP_BIT(F32)),
  .cases =
    "{ {values={0,2,2}, columns={{0}, dtype=\"i32\"}, starts={{2}, dtype=\"i32\", low=0, high=0}, "
    "k=4} }",
};
