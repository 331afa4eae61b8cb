/* embedding_bag.c: EmbeddingBag, sums, means or greatest of rows of a table, a bag of ids each.
 *
 * The ids of each bag are its places in what a scatter does when it has sorted (places.h): so rows
 * are combined as they are there, and those of a bag are never side by side in memory. The gradient
 * is made of other ops; for it, the bag of each id and its share are outputs.
 */
#include "ops/places.h"

#include <inttypes.h>

enum { MODE, BY, PADDING_IDX };
/* ORDER BAG: as the choices of `mode`. */
enum { MODE_MEAN, MODE_SUM, MODE_MAX };
enum { BY_OFFSETS, BY_LENGTHS };
enum { IDS, WEIGHT, BAGS };

/* y (B, row of the table); bag like ids; share (ids, 1). */
static neap_status infer(neap_infer *c, neap_error *error) {
  const neap_type *ids = &c->in[IDS], *weight = &c->in[WEIGHT];
  bool has_bags = c->n_in > BAGS && c->in[BAGS].dtype != NEAP_DTYPE_NONE;
  NEAP_TRY(neap_infer_rank(c, WEIGHT, 2, NEAP_MAX_DIM - 1, error));
  NEAP_TRY(neap_infer_rank(c, IDS, has_bags ? 1 : 2, has_bags ? 1 : 2, error));
  if (has_bags) NEAP_TRY(neap_infer_rank(c, BAGS, 1, 1, error));
  int64_t n_row = weight->shape.dim[0], padding = c->attrs[PADDING_IDX].i;
  if (c->attrs[PADDING_IDX].given && (padding < -n_row || padding >= n_row))
    return neap_infer_fail(c, NEAP_ATTRIBUTE, WEIGHT, error,
                           "padding_idx %" PRId64 " is no row of the table: rows are 0 to %" PRId64
                           ", or -%" PRId64 " to -1 from the end",
                           padding, n_row - 1, n_row);
  c->out[0] = *weight;
  c->out[0].shape.dim[0] = has_bags ? c->in[BAGS].shape.dim[0] : ids->shape.dim[0];
  if (c->n_out > 1) c->out[1] = (neap_type){NEAP_DTYPE_I64, ids->shape};
  /* The share is (ids, 1, ..): it is multiplied with rows. An id's weight in a mean, in f32 at
   * least. */
  if (c->n_out > 2) {
    neap_shape shape = ids->shape;
    for (int d = 1; d < weight->shape.n_dim; d++) shape.dim[shape.n_dim++] = 1;
    bool is_half = neap_dtype_in(weight->dtype, NEAP_HALVES);
    c->out[2] = (neap_type){is_half ? NEAP_DTYPE_F32 : weight->dtype, shape};
  }
  return NEAP_OK;
}

static void cost(const neap_infer *c, neap_cost *cost) {
  const neap_shape *weight = &c->in[WEIGHT].shape;
  double taken =
    (double)neap_shape_elems(&c->in[IDS].shape) * (double)neap_shape_span(weight, 1, weight->n_dim);
  cost->flops = taken;
  cost->write_bytes = (double)neap_type_bytes(&c->out[0]);
  cost->read_bytes =
    taken * (double)neap_dtype_bytes(c->in[WEIGHT].dtype) + (double)neap_type_bytes(&c->in[IDS]);
}

/* Where each bag ends in the list of rows, and the list. */
static bool choose(neap_choose *c) {
  c->choice->scratch_bytes = neap_size_of(
    neap_count_add(c->out[0].shape.dim[0], neap_shape_elems(&c->in[IDS].shape)), sizeof(int64_t));
  return true;
}

/* Where bag b ends among the ids, which begins at `begin`; a fault when that can't be. */
static int64_t bag_end(const neap_call *call, int64_t b, int64_t begin) {
  const neap_operand *ids = &call->in[IDS], *bags = call->n_in > BAGS ? &call->in[BAGS] : NULL;
  int64_t n_id = neap_shape_elems(&ids->type.shape), n_bag = call->out[0].type.shape.dim[0];
  if (bags == NULL || bags->data == NULL) return begin + ids->type.shape.dim[1];

  bool by_lengths = call->attrs[BY].i == BY_LENGTHS, is_last = b + 1 == n_bag, fits;
  int64_t own = neap_element_get_i64(bags->type.dtype, bags->data, b), end = n_id, wrong = b;
  if (by_lengths) {
    fits = own >= 0 && own <= n_id - begin && (!is_last || own == n_id - begin);
    end = fits ? begin + own : begin;
  } else {
    /* An offset says where its bag begins: where the one before it has ended. */
    if (!is_last) end = neap_element_get_i64(bags->type.dtype, bags->data, b + 1);
    fits = own == begin && end >= begin && end <= n_id;
    /* Where this bag begins well, it is the next one's offset that went back or too far. */
    if (!fits && own == begin) own = end, wrong = b + 1;
    if (!fits) end = begin;
  }
  if (!fits)
    neap_call_fault(call,
                    by_lengths ? "length %" PRId64 " of bag %" PRId64
                                 " does not fit: lengths are 0 or more and add up to %" PRId64
                               : "offset %" PRId64 " of bag %" PRId64
                                 " does not fit: offsets begin at 0, do not go back, and end by "
                                 "%" PRId64,
                    own, wrong + 1, n_id);
  return end;
}

/* First the list of rows, bag by bag, without padding; then what they come to. */
static void run(const neap_call *call) {
  const neap_operand *ids = &call->in[IDS], *weight = &call->in[WEIGHT];
  const neap_shape *y = &call->out[0].type.shape;
  static const neap_scatter_how how[] = {NEAP_SCATTER_MEAN, NEAP_SCATTER_ADD, NEAP_SCATTER_MAX};
  neap_places places = neap_places_along(&ids->type.shape, &weight->type.shape, 0);
  places.from_end = false;
  places.indices = ids;
  places.name = call->op->inputs[IDS].name;
  const neap_attr_value *padding = &call->attrs[PADDING_IDX];
  if (padding->given) places.skip = padding->i < 0 ? padding->i + places.n_row : padding->i;

  /* No ids and no bags: there is nothing to write, and no scratch. */
  if (call->scratch == NULL) return;
  int64_t *end = call->scratch, *order = end + y->dim[0], n = 0, begin = 0;
  int64_t *bag = call->n_out > 1 ? call->out[1].data : NULL;
  const neap_operand *share = call->n_out > 2 ? &call->out[2] : NULL;
  if (share != NULL && share->data == NULL) share = NULL;
  /* Ids that no bag takes, which is a fault, are in the first one, with no share. */
  if (bag != NULL) neap_clear_bytes(bag, neap_type_bytes(&call->out[1].type));
  if (share != NULL) neap_clear_bytes(share->data, neap_type_bytes(&share->type));
  for (int64_t b = 0; b < y->dim[0]; b++) {
    int64_t first = n, last = bag_end(call, b, begin);
    for (int64_t i = begin; i < last; i++) {
      int64_t row = neap_place_row(&places, i, call);
      if (bag != NULL) bag[i] = b;
      if (row >= 0) order[n++] = row;
    }
    end[b] = n;
    /* The mean is over the ids that are no padding: only now is their number known. */
    double own = call->attrs[MODE].i == MODE_MEAN ? 1 / (double)NEAP_MAX(n - first, 1) : 1;
    if (share != NULL)
      for (int64_t i = begin; i < last; i++)
        if (neap_place_row(&places, i, NULL) >= 0)
          neap_element_set(share->type.dtype, share->data, i, own);
    begin = last;
  }
  if (y->dim[0] == 0 && places.n_place > 0)
    neap_call_fault(call, "%" PRId64 " ids belong to no bag", places.n_place);

  /* Bags are the rows of y; the table's are what they are made of. */
  neap_places bags = {.n_part = 1, .n_row = y->dim[0], .row_elems = places.row_elems};
  if (neap_shape_elems(y) > 0)
    neap_combine(call, &bags, how[call->attrs[MODE].i], end, order, NULL, weight, &call->out[0]);
}

const neap_op neap_op_EmbeddingBag = {
  .name = "EmbeddingBag",
  .summary = "Means, sums or greatest of rows of a table, which a bag of numbers each looks up.",
  .math = "y[b] = mean, sum or max over i in bag b of weight[ids[i]]; 0 for an empty bag",
  .example = "net:EmbeddingBag({\"ids\", \"weight\", \"offsets\"}, \"y\", {mode = \"sum\"})",
  .source = "PyTorch EmbeddingBag; by lengths, Caffe2 SparseLengthsSum",
  .inputs = {{"ids", "(N), values from 0 to V-1; (B,L) without bags: each row is one",
              NEAP_INDEX_DTYPES},
             {"weight", "(V,D)"},
             {"bags", "(B), what `by` says", NEAP_BIT(I32) | NEAP_BIT(I64), NEAP_ARG_OPTIONAL}},
  .outputs = {{"y", "(B,D)"},
              {"bag", "of each id, for the backward", NEAP_BIT(I64), NEAP_ARG_OPTIONAL},
              {"share", "of each id in its bag, for the backward",
               .flags = NEAP_ARG_OPTIONAL | NEAP_ARG_WIDE}},
  .attrs = {[MODE] = {"mode", "how the rows of a bag become one", NEAP_ATTR_ENUM,
                      .choices = "mean|sum|max"},
            [BY] = {"by", "what bags says: where each begins, or how long it is", NEAP_ATTR_ENUM,
                    .choices = "offsets|lengths"},
            [PADDING_IDX] = {"padding_idx",
                             "row that counts for nothing and gets no gradient, from 0 or "
                             "negative from the end; none unless given",
                             NEAP_ATTR_INT, .unlike_default = true}},
  .effects = NEAP_EFFECT_FAULT,
  .infer = infer,
  .cost = cost,
  .grad_formula =
    "mine = mode == max ? (Embedding(ids, weight) == Gather(y, bag) ? share : 0) : share;"
    "n = mode == max ? Gather(IndexAdd(zeros(y), bag, mine), bag) : 1;"
    "d.weight = mode == max ? EmbeddingGrad(ids, mine == 0 ? 0 : Gather(d.y, bag) * mine / n, .., "
    "shape = shape(weight))"
    ": EmbeddingGrad(ids, Gather(d.y, bag) * share, .., shape = shape(weight))",
  .empty = NEAP_EMPTY_FILLED,
  .sum = NEAP_SUM_RUNS,
  .special =
    "an empty bag gives 0; a NaN wins; in a bag, equals that are the greatest share the "
    "gradient evenly",
  .mixed = NEAP_MIXED_ROUND,
  .kernels = NEAP_REF_CHOOSE(choose, run, NEAP_FLOATS),
  .cases =
    "{ {ids={{3,5}, dtype=\"i64\", low=0, high=7}, weight={7,4}}, {ids={{3,5}, dtype=\"i32\", "
    "low=0, high=3}, weight={3,2}, mode=\"sum\"}, {ids={{2,4}, dtype=\"i64\", low=0, high=7}, "
    "weight={7,3}, mode=\"max\", outputs=3}, {ids={{3,4}, dtype=\"i64\", low=0, high=3}, "
    "weight={3,2}, padding_idx=1, grad=false}, {ids={{6}, dtype=\"i64\", low=0, high=3}, "
    "weight={3,2}, bags={{1}, dtype=\"i64\", low=0, high=1}, mode=\"sum\"}, {ids={{6}, "
    "dtype=\"i64\", low=0, high=3}, weight={3,2}, bags={{1}, dtype=\"i32\", low=6, high=6}, "
    "by=\"lengths\"}, {ids={{2,0}, dtype=\"i64\"}, weight={3,2}} }",
  .long_cases = "{ {ids={{1,262144}, dtype=\"i64\", low=0, high=1}, weight={2,3}, mode=\"sum\"} }",
};
