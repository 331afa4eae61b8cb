/* embedding.c: Embedding, rows of a table by number, and EmbeddingGrad: a gather of rows, and a
 * scatter that adds to zeros (places.h).
 *
 * Ids of padding (padding_idx) take their row like the others and give it no gradient, so that it
 * stays what it was made.
 */
#include "ops/places.h"

#include <inttypes.h>

enum { PADDING_IDX, SHAPE };

/* Ids name rows of the table (V,..) and count from 0 alone. */
static neap_places places_of(const neap_shape *ids, const neap_shape *table) {
  neap_places places = neap_places_along(ids, table, 0);
  places.from_end = false;
  return places;
}

/* ---- forward --------------------------------------------------------------------------------- */

static void run(const neap_call *call) {
  neap_places places = places_of(&call->in[0].type.shape, &call->in[1].type.shape);
  places.indices = &call->in[0];
  places.name = call->op->inputs[0].name;
  neap_gather(call, &places, &call->in[1], &call->out[0]);
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

static bool choose_grad(neap_choose *c) {
  neap_places places = places_of(&c->in[0].shape, &c->out[0].shape);
  c->choice->scratch_bytes = neap_scatter_bytes(&places);
  return true;
}

/* Ids out of range were the forward's fault. */
static void run_grad(const neap_call *call) {
  const neap_shape *dw = &call->out[0].type.shape;
  neap_places places = places_of(&call->in[0].type.shape, dw);
  places.indices = &call->in[0];
  places.skip = padding_row(&call->attrs[PADDING_IDX], dw->dim[0]);
  neap_scatter(call, &places, NEAP_SCATTER_ADD, NULL, &call->in[1], &call->out[0], true);
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
    NEAP_ATTR_INT, .unlike_default = true}

const neap_op neap_op_Embedding = {
  .name = "Embedding",
  .summary = "Rows of a table, looked up by number.",
  .math = "y[i] = weight[ids[i]], ids from 0",
  .example = "net:Embedding({\"ids\", \"weight\"}, \"y\")",
  .source = "ONNX Gather-13 with axis 0; padding_idx as in PyTorch nn.Embedding",
  .inputs = {{"ids", "any shape; values from 0 to V-1", NEAP_INDEX_DTYPES},
             {"weight", "(V,D)", NEAP_ANY}},
  .outputs = {{"y", "shape of ids, then D", NEAP_ANY}},
  .attrs = {PADDING_ATTR},
  .effects = NEAP_EFFECT_FAULT,
  .infer = infer,
  .cost = cost,
  .grad = grad,
  .mixed = NEAP_MIXED_ROUND,
  .kernels = NEAP_REF(run, NEAP_ANY),
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
  .inputs = {{"ids", "values from 0 to V-1", NEAP_INDEX_DTYPES}, {"dy", "shape of ids, then D"}},
  .outputs = {{"dw", "(V,D)"}},
  .attrs = {PADDING_ATTR, [SHAPE] = {"shape", "of the table", NEAP_ATTR_INTS, .required = true}},
  .infer = infer_grad,
  .sum = NEAP_SUM_RUNS,
  .grad_formula =
    "used = EmbeddingGrad(ids, ones(dy), ..) > 0;"
    "d.dy = Embedding(ids, used ? d.dw : 0)",
  .kernels = NEAP_REF_CHOOSE(choose_grad, run_grad, NEAP_FLOATS),
  .cases =
    "{ {ids={{3,5}, dtype=\"i64\", low=0, high=7}, dy={3,5,4}, shape={7,4}}, "
    "{ids={{3,5}, dtype=\"i64\", low=0, high=7}, dy={3,5,4}, shape={7,4}, padding_idx=-1} }",
  .long_cases = "{ {ids={{262144}, dtype=\"i64\", low=0, high=1}, dy={262144,4}, shape={2,4}} }",
};
