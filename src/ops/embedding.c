/* embedding.c: Embedding, rows of a table by number, and EmbeddingGrad.
 *
 * Ids of padding (padding_idx) take their row like the others and give it no gradient, so that it
 * stays what it was made.
 *
 * The gradient sorts the ids by row, then adds for each row the rows of dy that belong to it, in
 * the order of the ids, runs of them in their type and the runs in double; threads share the
 * columns, not the ids, so that the sum's order, and with it every bit, is the same for any number
 * of threads.
 */
#include "math/row.h"
#include "math/vec.h"
#include "ops/rows.h"

#include <inttypes.h>

enum { PADDING_IDX, SHAPE };
#define ID_DTYPES (NEAP_BIT(I32) | NEAP_BIT(I64) | NEAP_BIT(U8))

typedef struct job {
  const neap_call *call;
  neap_dtype id_dtype;
  const void *ids;
  int64_t n_id, n_row, row_elems;
  const char *from; /* forward: weight (V,D) */
  char *to;         /* forward: y (N,D) */
  size_t item_bytes;
  int64_t padding; /* backward: the row that gets no gradient; -1: none */
  /* backward: row v has the ids order[end[v - 1]] to order[end[v]], those of row 0 from 0 on */
  const int64_t *end, *order;
} job;

/* ---- forward --------------------------------------------------------------------------------- */

/* Rows [begin, end) of y. An id out of range is a fault, and its row becomes zeros. */
static void copy_rows(void *context, int64_t begin, int64_t end) {
  const job *k = context;
  size_t row_bytes = (size_t)k->row_elems * k->item_bytes;
  for (int64_t i = begin; i < end; i++) {
    int64_t id = neap_element_get_i64(k->id_dtype, k->ids, i);
    char *y = k->to + (size_t)i * row_bytes;
    /* No byte outside of the table is read, whatever the ids are. */
    if (id >= 0 && id < k->n_row) {
      neap_copy_bytes(y, k->from + (size_t)id * row_bytes, row_bytes);
    } else {
      neap_clear_bytes(y, row_bytes);
      neap_call_fault(k->call,
                      "id %" PRId64 " at element %" PRId64 " is out of range for %" PRId64
                      " rows (ids count from 0)",
                      id, i + 1, k->n_row);
    }
  }
}

/* Ids of any shape, rows of the table w (V,...). Each thread copies a stretch of ids. */
static void run(const neap_call *call) {
  const neap_operand *w = &call->in[1];
  int64_t row_elems = neap_shape_span(&w->type.shape, 1, w->type.shape.n_dim);
  job k = {.call = call,
           .id_dtype = call->in[0].type.dtype,
           .ids = call->in[0].data,
           .n_id = neap_shape_elems(&call->in[0].type.shape),
           .n_row = w->type.shape.dim[0],
           .row_elems = row_elems,
           .from = w->data,
           .to = call->out[0].data,
           .padding = -1,
           .item_bytes = neap_dtype_bytes(w->type.dtype)};
  neap_parallel_for(k.n_id, NEAP_MAX(NEAP_GRAIN / NEAP_MAX(row_elems, 1), 1), call->n_thread,
                    copy_rows, &k);
}

/* The row of n_row whose ids are padding, -1 for none. */
static int64_t padding_row(const neap_attr_value *padding, int64_t n_row) {
  if (!padding->given) return -1;
  return padding->i < 0 ? padding->i + n_row : padding->i;
}

/* The shape of the ids, then that of a row. */
static neap_status infer(neap_infer *c, neap_error *error) {
  const neap_shape *ids = &c->in[0].shape, *w = &c->in[1].shape;
  NEAP_TRY(neap_infer_rank(c, 1, 1, NEAP_MAX_DIM, error));
  neap_shape y = *ids;
  if (ids->n_dim + w->n_dim - 1 > NEAP_MAX_DIM)
    return neap_infer_fail(c, NEAP_SHAPE, 0, error,
                           "the output would have %d dimensions, at most %d are possible",
                           ids->n_dim + w->n_dim - 1, NEAP_MAX_DIM);
  int64_t n_row = w->dim[0], padding = c->attrs[PADDING_IDX].i;
  if (c->attrs[PADDING_IDX].given && (padding < -n_row || padding >= n_row))
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 1, error,
                           "padding_idx %" PRId64 " is no row of the table: rows are 0 to %" PRId64
                           ", or -%" PRId64 " to -1 from the end",
                           padding, n_row - 1, n_row);
  /* Each id gives a row of the table. */
  for (int d = 1; d < w->n_dim; d++) y.dim[y.n_dim++] = w->dim[d];
  c->out[0] = (neap_type){c->in[1].dtype, y};
  return NEAP_OK;
}

static void cost(const neap_infer *c, neap_cost *cost) {
  cost->write_bytes = (double)neap_type_bytes(&c->out[0]);
  /* only the rows asked for */
  cost->read_bytes = cost->write_bytes + (double)neap_type_bytes(&c->in[0]);
}

/* ---- backward -------------------------------------------------------------------------------- */

enum { COLUMNS = 512 }; /* added up at once: their sums fit the first-level cache */

#define NEAP_BODY "ops/embedding_body.h"
#include "math/each_float.h"

/* Whether the gradient takes the id at i: not that of padding, nor one out of range, which the
 * forward reported. */
static bool takes(const job *k, int64_t i, int64_t *id) {
  *id = neap_element_get_i64(k->id_dtype, k->ids, i);
  return *id >= 0 && *id < k->n_row && *id != k->padding;
}

/* Counts the ids of each row, so that each row knows where its own begin; then puts them there, in
 * their order, which moves that beginning to its end. `end` (V), `order` (N). */
static void sort_ids(const job *k, int64_t *end, int64_t *order) {
  int64_t id, sum = 0;
  memset(end, 0, (size_t)k->n_row * sizeof *end);
  for (int64_t i = 0; i < k->n_id; i++)
    if (takes(k, i, &id)) end[id]++;
  for (int64_t v = 0; v < k->n_row; v++) {
    int64_t n = end[v];
    end[v] = sum;
    sum += n;
  }
  for (int64_t i = 0; i < k->n_id; i++)
    if (takes(k, i, &id)) order[end[id]++] = i;
}

/* One number for each row of the table and one for each id. */
static bool choose_grad(neap_choose *c) {
  c->choice->scratch_bytes =
    ((size_t)c->out[0].shape.dim[0] + (size_t)neap_shape_elems(&c->in[0].shape)) * sizeof(int64_t);
  return true;
}

/* Every share walks all the ids, so each has LEAST_COLUMNS columns at least to pay for that. */
static void run_grad(const neap_call *call) {
  const neap_shape *dw = &call->out[0].type.shape;
  neap_dtype dtype = call->out[0].type.dtype;
  int64_t *end = call->scratch, *order = end + dw->dim[0];
  job k = {.call = call,
           .id_dtype = call->in[0].type.dtype,
           .ids = call->in[0].data,
           .n_id = neap_shape_elems(&call->in[0].type.shape),
           .n_row = dw->dim[0],
           .row_elems = neap_shape_span(dw, 1, dw->n_dim),
           .padding = padding_row(&call->attrs[PADDING_IDX], dw->dim[0]),
           .end = end,
           .order = order};
  enum { LEAST_COLUMNS = 32 };
  /* Threads share columns, not rows: rows are of very different length, and each sum keeps its
   * order. */
  if (k.n_row == 0 || k.row_elems == 0) return;
  sort_ids(&k, end, order);
  neap_parallel_for(k.row_elems, LEAST_COLUMNS, call->n_thread,
                    dtype == NEAP_DTYPE_F64 ? add_rows_f64 : add_rows_f32, &k);
}

extern const neap_op neap_op_Embedding;

/* SHAPE tells the table's shape, dy its dtype; the forward, asked again, says whether they belong
 * together. */
static neap_status infer_grad(neap_infer *c, neap_error *error) {
  neap_type in[2] = {c->in[0]}, y;
  NEAP_TRY(neap_infer_attr_type(c, SHAPE, &in[1], error));
  in[1].dtype = c->in[1].dtype;
  NEAP_TRY(neap_infer_forward(c, &neap_op_Embedding, 2, in, 1, &y, error));
  NEAP_TRY(neap_infer_expect(c, 1, &y, error));
  c->out[0] = in[1];
  return NEAP_OK;
}

static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  if (!g->want[1]) return NEAP_OK;
  neap_type w = neap_grad_type(g, g->in[1]);
  g->din[1] =
    neap_grad_emit1(g, "EmbeddingGrad", 2, (neap_value_id[]){g->in[0], g->dout[0]}, g,
                    (neap_set[]){NEAP_SET_INTS("shape", w.shape.n_dim, w.shape.dim), {0}});
  return NEAP_OK;
}

#define PADDING_ATTR                                                                 \
  [PADDING_IDX] = {                                                                  \
    "padding_idx",                                                                   \
    "row that gets no gradient, from 0 or negative from the end; none unless given", \
    NEAP_ATTR_INT}

const neap_op neap_op_Embedding = {
  .name = "Embedding",
  .summary = "Rows of a table, looked up by number.",
  .math = "y[i] = weight[ids[i]], ids from 0",
  .example = "net:Embedding({\"ids\", \"weight\"}, \"y\")",
  .source = "ONNX Gather-13 with axis 0; padding_idx as in PyTorch nn.Embedding",
  .inputs = {{"ids", "any shape; values from 0 to V-1", ID_DTYPES}, {"weight", "(V,D)", NEAP_ANY}},
  .outputs = {{"y", "shape of ids, then D", NEAP_ANY}},
  .attrs = {PADDING_ATTR},
  .effects = NEAP_EFFECT_FAULT,
  .infer = infer,
  .cost = cost,
  .grad = grad,
  .kernels =
    (const neap_kernel[]){
      {.engine = NEAP_ENGINE_REF, .dtypes = NEAP_ANY, .any_team = true, .run = run}, {0}},
  .cases =
    "{ {ids={{3,5}, dtype=\"i64\", low=0, high=7}, weight={7,4}}, {ids={{6}, dtype=\"i32\", low=0, "
    "high=3}, weight={3,33}}, "
    "{ids={{4}, dtype=\"i64\", low=0, high=3}, weight={3,2}, padding_idx=1, grad=false}, "
    "{ids={{0}, dtype=\"u8\"}, weight={3,2}}, {ids={{}, dtype=\"i64\", low=0, high=3}, "
    "weight={3,2}} }",
};

const neap_op neap_op_EmbeddingGrad = {
  .name = "EmbeddingGrad",
  .summary = "Gradient of Embedding with respect to the table.",
  .math = "dw[v] = sum over i with ids[i] = v of dy[i]; 0 for padding_idx",
  .internal = true,
  .inputs = {{"ids", "values from 0 to V-1", ID_DTYPES}, {"dy", "shape of ids, then D"}},
  .outputs = {{"dw", "(V,D)"}},
  .attrs = {PADDING_ATTR, [SHAPE] = {"shape", "of the table", NEAP_ATTR_INTS, .required = true}},
  .infer = infer_grad,
  .sum = NEAP_SUM_RUNS,
  .grad_formula =
    "used = EmbeddingGrad(ids, ones(dy), ..) > 0;"
    "d.dy = Embedding(ids, used ? d.dw : 0)",
  .kernels = (const neap_kernel[]){{.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_FLOATS,
                                    .any_team = true,
                                    .choose = choose_grad,
                                    .run = run_grad},
                                   {0}},
  .cases =
    "{ {ids={{3,5}, dtype=\"i64\", low=0, high=7}, dy={3,5,4}, shape={7,4}}, "
    "{ids={{3,5}, dtype=\"i64\", low=0, high=7}, dy={3,5,4}, shape={7,4}, padding_idx=-1} }",
  .long_cases = "{ {ids={{262144}, dtype=\"i64\", low=0, high=1}, dy={262144,4}, shape={2,4}} }",
};
