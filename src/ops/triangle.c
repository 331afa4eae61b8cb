/* triangle.c: Tril and Triu: what lies on one side of a diagonal of each matrix, zeros elsewhere.
 */
#include "ops/op.h"

enum { DIAGONAL };

static neap_status infer(neap_infer *c, neap_error *error) {
  NEAP_TRY(neap_infer_rank(c, 0, 2, NEAP_MAX_DIM, error));
  c->out[0] = c->in[0];
  return NEAP_OK;
}

typedef struct job {
  const char *x;
  char *y;
  int64_t n_row, n_column, diagonal;
  size_t bytes;
  bool upper;
} job;

/* Rows [begin, end) of all matrices. What is kept of one ends or begins at its place on the
 * diagonal. */
static void keep_rows(void *context, int64_t begin, int64_t end) {
  const job *k = context;
  for (int64_t r = begin; r < end; r++) {
    /* Row r of all is row i of its matrix; column `edge` is the first above the diagonal, or on
     * it. */
    int64_t i = r % k->n_row + k->diagonal + (k->upper ? 0 : 1);
    int64_t edge = NEAP_MIN(NEAP_MAX(i, 0), k->n_column);
    int64_t from = k->upper ? edge : 0, to = k->upper ? k->n_column : edge;
    const char *x = k->x + (size_t)(r * k->n_column) * k->bytes;
    char *y = k->y + (size_t)(r * k->n_column) * k->bytes;
    neap_clear_bytes(y, (size_t)from * k->bytes);
    /* In place, what is kept is there. */
    if (x != y)
      neap_copy_bytes(y + (size_t)from * k->bytes, x + (size_t)from * k->bytes,
                      (size_t)(to - from) * k->bytes);
    neap_clear_bytes(y + (size_t)to * k->bytes, (size_t)(k->n_column - to) * k->bytes);
  }
}

static void run(const neap_call *call, bool upper) {
  const neap_shape *x = &call->in[0].type.shape;
  int64_t n_row = x->dim[x->n_dim - 2], n_column = x->dim[x->n_dim - 1];
  if (neap_shape_elems(x) == 0) return;
  /* Beyond its corners a matrix has no other diagonals. */
  int64_t diagonal = NEAP_MIN(NEAP_MAX(call->attrs[DIAGONAL].i, -n_row - 1), n_column + 1);
  job k = {call->in[0].data,
           call->out[0].data,
           n_row,
           n_column,
           diagonal,
           neap_dtype_bytes(call->in[0].type.dtype),
           upper};
  neap_parallel_for(neap_shape_span(x, 0, x->n_dim - 1), NEAP_MAX(NEAP_GRAIN / n_column, 1),
                    call->n_thread, keep_rows, &k);
}

static void run_lower(const neap_call *call) { run(call, false); }
static void run_upper(const neap_call *call) { run(call, true); }

#define TRIANGLE(run_function)                                                                \
  .source = "ONNX Trilu-14", .inputs = {{"x", "(..,N,M)", NEAP_ANY}},                         \
  .outputs = {{"y", "shape of x", NEAP_ANY}},                                                 \
  .attrs = {[DIAGONAL] = {"diagonal", "which: 0 the main one, 1 the next above it, -1 below", \
                          NEAP_ATTR_INT}},                                                    \
  .inplace = {{0, 0}}, .n_inplace = 1, .infer = infer, .kernels = NEAP_REF(run_function, NEAP_ANY)
#define TRIANGLE_CASES                                                                      \
  .cases =                                                                                  \
    "{ {x={2,5,4}, diagonal=-1}, {x={3,5}}, {x={4,3}, diagonal=1}, {x={2,2}, diagonal=9}, " \
    "{x={2,3}, diagonal=-9}, {x={3,0}}, {x={0,2,2}} }"

const neap_op neap_op_Tril = {
  .name = "Tril",
  .summary = "The lower triangle of matrices: what lies on a diagonal or below it.",
  .math = "y[i,j] = j - i <= diagonal ? x[i,j] : 0",
  .example = "net:Tril(\"x\", \"y\", {diagonal = -1})",
  .grad_formula = "d.x = Tril(d.y, ..)",
  TRIANGLE(run_lower),
  TRIANGLE_CASES,
};

const neap_op neap_op_Triu = {
  .name = "Triu",
  .summary = "The upper triangle of matrices: what lies on a diagonal or above it.",
  .math = "y[i,j] = j - i >= diagonal ? x[i,j] : 0",
  .example = "net:Triu(\"x\", \"y\", {diagonal = 1})",
  .grad_formula = "d.x = Triu(d.y, ..)",
  TRIANGLE(run_upper),
  TRIANGLE_CASES,
};
