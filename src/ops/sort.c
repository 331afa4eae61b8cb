/* sort.c: Sort, ArgSort, TopK, Median, SearchSorted and Histogram: ops that go by the order of
 * elements (order.h).
 *
 * Rows are sorted one by one, each by one thread with scratch of its own, and then what an op wants
 * of the order is read off.
 */
#include "ops/elementwise.h"
#include "ops/order.h"
#include "ops/places.h"
#include "ops/reduce.h"

#include <stdlib.h>
#include <string.h>

typedef struct job job;
/* Reads off what the op wants of row `row`, which begins at element `at` of x. */
typedef void (*take_row)(const job *j, const neap_ordered *order, int64_t row, int64_t at);

struct job {
  const neap_call *call;
  take_row take;
  int64_t n, inner; /* x is (outer, n, inner) */
  int64_t n_row, n_taken;
  int n_part;
  bool descending, as_they_stand;
};

/* ---- rows ------------------------------------------------------------------------------------ */

enum { AXIS };                   /* of all that sort */
enum { DESCENDING = 1 };         /* of Sort and ArgSort */
enum { LARGEST = 1, SORTED, K }; /* of TopK */
enum { KEEPDIM = 1 };            /* of Median */
enum { RIGHT };                  /* of SearchSorted */
enum { BINS, LOW, HIGH };        /* of Histogram */

/* The dimension; -1: all, flattened, where the op does that when none is given. A scalar is a row
 * of one. */
static int axis_of(const neap_op *op, const neap_attr_value *attrs, int n_dim) {
  if (op->attrs[AXIS].unlike_default && !attrs[AXIS].given) return -1;
  return neap_axis(attrs[AXIS].i, NEAP_MAX(n_dim, 1));
}

static int64_t row_elems(const neap_shape *x, int axis) {
  if (axis < 0) return neap_shape_elems(x);
  return x->n_dim == 0 ? 1 : x->dim[axis];
}

/* Rows of a part are sorted in its scratch, one after the other. */
static int64_t part_count(int64_t n_row, int n_thread) { return NEAP_MIN(n_row, n_thread); }

static bool choose(neap_choose *c) {
  const neap_shape *x = &c->in[0].shape;
  int64_t elems = neap_shape_elems(x), n = row_elems(x, axis_of(c->op, c->attrs, x->n_dim));
  if (elems > 0)
    c->choice->scratch_bytes = neap_order_bytes(part_count(elems / n, c->choice->n_thread), n);
  return true;
}

/* Parts [begin, end): part p has the rows [rows p / parts, rows (p + 1) / parts). */
static void sort_parts(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  for (int64_t p = begin; p < end; p++) {
    void *scratch = neap_call_scratch(j->call, (size_t)p * neap_order_bytes(1, j->n));
    for (int64_t row = j->n_row * p / j->n_part; row < j->n_row * (p + 1) / j->n_part; row++) {
      /* Rows of x (outer, n, inner) are numbered (outer, inner): a row's elements lie `inner`
       * apart. */
      int64_t at = row / j->inner * j->n * j->inner + row % j->inner;
      j->take(j, neap_order(&j->call->in[0], at, j->inner, j->n, j->descending, scratch), row, at);
    }
  }
}

static void run(const neap_call *call, job j) {
  const neap_shape *x = &call->in[0].type.shape;
  int64_t elems = neap_shape_elems(x);
  if (elems == 0) return;
  int axis = axis_of(call->op, call->attrs, x->n_dim);
  j.call = call;
  j.n = row_elems(x, axis);
  j.inner = axis < 0 || x->n_dim == 0 ? 1 : neap_shape_span(x, axis + 1, x->n_dim);
  j.n_row = elems / j.n;
  /* As many as the choice has scratch for, whichever threads run them. */
  j.n_part = (int)part_count(j.n_row, call->choice->n_thread);
  neap_parallel_for(j.n_part, 1, call->n_thread, sort_parts, &j);
}

/* Element `at` of x becomes element `to` of output 0. */
static void copy_element(const neap_call *call, int64_t to, int64_t at) {
  memcpy(neap_element_at(&call->out[0], to), neap_element_at(&call->in[0], at),
         neap_dtype_bytes(call->in[0].type.dtype));
}

/* Of values and indices, in this order: what arrives goes to where each stood. */
static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  neap_type x = neap_grad_type(g, g->in[0]);
  int axis = axis_of(g->op, g->attrs, x.shape.n_dim);
  g->din[0] = neap_places_gradient(g, g->out[1], g->dout[0], axis);
  return NEAP_OK;
}

/* ---- Sort, ArgSort, TopK --------------------------------------------------------------------- */

static int by_index(const void *a, const void *b) {
  int64_t p = ((const neap_ordered *)a)->index, q = ((const neap_ordered *)b)->index;
  return (p > q) - (p < q);
}

/* The first of the order; the values too where the op has two outputs. */
static void take_first(const job *j, const neap_ordered *order, int64_t row, int64_t at) {
  const neap_call *call = j->call;
  int64_t *indices = call->out[call->n_out - 1].data;
  /* As in x, but that a row has n_taken elements. */
  int64_t to = row / j->inner * j->n_taken * j->inner + row % j->inner;
  /* The scratch is this row's alone, so that it may be sorted once more. */
  if (j->as_they_stand)
    qsort((neap_ordered *)(uintptr_t)order, (size_t)j->n_taken, sizeof *order, by_index);
  for (int64_t i = 0; i < j->n_taken; i++, to += j->inner) {
    indices[to] = order[i].index;
    if (call->n_out > 1) copy_element(call, to, at + order[i].index * j->inner);
  }
}

static void run_sort(const neap_call *call) {
  const neap_shape *x = &call->in[0].type.shape;
  run(call, (job){.take = take_first,
                  .n_taken = row_elems(x, axis_of(call->op, call->attrs, x->n_dim)),
                  .descending = call->attrs[DESCENDING].i != 0});
}

static void run_top(const neap_call *call) {
  if (call->attrs[K].i == 0) return;
  run(call, (job){.take = take_first,
                  .n_taken = call->attrs[K].i,
                  .descending = call->attrs[LARGEST].i != 0,
                  .as_they_stand = call->attrs[SORTED].i == 0});
}

static neap_status infer_sort(neap_infer *c, neap_error *error) {
  int axis;
  NEAP_TRY(neap_infer_axis(c, AXIS, NEAP_MAX(c->in[0].shape.n_dim, 1), &axis, error));
  c->out[0] = c->in[0];
  c->out[c->n_out - 1] = (neap_type){NEAP_DTYPE_I64, c->in[0].shape};
  return NEAP_OK;
}

static neap_status infer_top(neap_infer *c, neap_error *error) {
  int axis;
  const neap_shape *x = &c->in[0].shape;
  NEAP_TRY(neap_infer_rank(c, 0, 1, NEAP_MAX_DIM, error));
  NEAP_TRY(neap_infer_axis(c, AXIS, x->n_dim, &axis, error));
  int64_t k = c->attrs[K].i, n = x->dim[axis];
  if (k > n)
    return neap_infer_fail(c, NEAP_SHAPE, 0, error,
                           "k = %lld expects at least as many elements along dimension %lld, x has "
                           "%lld",
                           (long long)k, (long long)neap_axis_said(axis), (long long)n);
  c->out[0] = c->in[0];
  c->out[0].shape.dim[axis] = k;
  c->out[1] = (neap_type){NEAP_DTYPE_I64, c->out[0].shape};
  return NEAP_OK;
}

/* n log n comparisons, or as many moves. */
static void cost(const neap_infer *c, neap_cost *cost) {
  const neap_shape *x = &c->in[0].shape;
  int64_t elems = neap_shape_elems(x), n = row_elems(x, axis_of(c->op, c->attrs, x->n_dim));
  cost->flops = (double)elems * log2((double)n + 1);
}

/* ---- Median ---------------------------------------------------------------------------------- */

/* The lower of two in the middle; a NaN where there is one, the first. */
static void take_median(const job *j, const neap_ordered *order, int64_t row, int64_t at) {
  const neap_call *call = j->call;
  /* NaN is ordered behind all numbers: where there is one, the last is. */
  int64_t middle = (j->n - 1) / 2, last = order[j->n - 1].index;
  bool is_float = neap_dtype_is_float(call->in[0].type.dtype);
  double end =
    is_float ? neap_element_get(call->in[0].type.dtype, call->in[0].data, at + last * j->inner) : 0;
  if (end != end) {
    /* They are equal to each other, and in their order. */
    middle = j->n - 1;
    while (middle > 0 && order[middle - 1].key == order[j->n - 1].key) middle--;
  }
  int64_t index = order[middle].index;
  ((int64_t *)call->out[1].data)[row] = index;
  copy_element(call, row, at + index * j->inner);
}

static void run_median(const neap_call *call) { run(call, (job){.take = take_median}); }

static neap_status infer_median(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape;
  int axis = 0;
  if (c->attrs[AXIS].given) NEAP_TRY(neap_infer_axis(c, AXIS, x->n_dim, &axis, error));
  /* Without an axis all dimensions are one row. */
  unsigned axes = c->attrs[AXIS].given ? 1u << axis : (1u << x->n_dim) - 1;
  c->out[0] = (neap_type){c->in[0].dtype, neap_reduce_shape(x, axes, c->attrs[KEEPDIM].i != 0)};
  c->out[1] = (neap_type){NEAP_DTYPE_I64, c->out[0].shape};
  if (neap_reduce_count(x, axes) == 0 && neap_shape_elems(&c->out[0].shape) > 0)
    return neap_infer_fail(c, NEAP_SHAPE, 0, error,
                           "x has no elements along the dimension, and the median of nothing is "
                           "undefined");
  return NEAP_OK;
}

/* ---- SearchSorted ---------------------------------------------------------------------------- */

typedef struct search_job {
  const neap_call *call;
  int64_t n, n_value; /* of a row; n_value 0: one row for all */
} search_job;

/* Values [begin, end). */
static void search(void *context, int64_t begin, int64_t end) {
  const search_job *j = context;
  const neap_operand *sorted = &j->call->in[0], *values = &j->call->in[1];
  int64_t *out = j->call->out[0].data;
  bool right = j->call->attrs[RIGHT].i != 0;
  for (int64_t i = begin; i < end; i++) {
    /* Keys compare as unsigned integers, whatever the dtype; NaN goes last. */
    uint64_t key = neap_order_key(values->type.dtype, values->data, i);
    int64_t row = j->n_value > 0 ? i / j->n_value * j->n : 0, low = 0, high = j->n;
    /* All before `low` go before the value, none from `high` on. */
    while (low < high) {
      int64_t middle = low + (high - low) / 2;
      uint64_t other = neap_order_key(sorted->type.dtype, sorted->data, row + middle);
      if (right ? other <= key : other < key)
        low = middle + 1;
      else
        high = middle;
    }
    out[i] = low;
  }
}

static void run_search(const neap_call *call) {
  const neap_shape *sorted = &call->in[0].type.shape, *values = &call->in[1].type.shape;
  search_job j = {call, sorted->dim[sorted->n_dim - 1],
                  sorted->n_dim > 1 ? values->dim[values->n_dim - 1] : 0};
  neap_parallel_for(neap_shape_elems(values), NEAP_GRAIN / 16, call->n_thread, search, &j);
}

static neap_status infer_search(neap_infer *c, neap_error *error) {
  const neap_shape *sorted = &c->in[0].shape, *values = &c->in[1].shape;
  char own[NEAP_SHAPE_TEXT], other[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_rank(c, 0, 1, NEAP_MAX_DIM, error));
  NEAP_TRY(neap_infer_same_dtype(c, 0, error));
  bool fits = sorted->n_dim == 1 || sorted->n_dim == values->n_dim;
  for (int d = 0; fits && d < sorted->n_dim - 1; d++) fits = sorted->dim[d] == values->dim[d];
  if (!fits)
    return neap_infer_fail(c, NEAP_SHAPE, 1, error,
                           "values %s expects the dimensions of sorted %s but for the last, or one "
                           "row for all",
                           neap_shape_text(values, own), neap_shape_text(sorted, other));
  c->out[0] = (neap_type){NEAP_DTYPE_I64, *values};
  return NEAP_OK;
}

/* ---- Histogram ------------------------------------------------------------------------------- */

/* Where neither end is given, the range of the elements that are numbers. */
static void range_of(const neap_call *call, double *low, double *high) {
  const neap_operand *x = &call->in[0];
  int64_t n = neap_shape_elems(&x->type.shape);
  *low = call->attrs[LOW].f, *high = call->attrs[HIGH].f;
  if (*low < *high) return;
  *low = INFINITY, *high = -INFINITY;
  for (int64_t i = 0; i < n; i++) {
    double value = neap_element_get(x->type.dtype, x->data, i);
    if (!isfinite(value)) continue;
    *low = NEAP_MIN(*low, value);
    *high = NEAP_MAX(*high, value);
  }
  /* One number, or none, is the middle of a range. */
  if (*low > *high) *low = *high = 0;
  if (*low == *high) *low -= 1, *high += 1;
}

/* The last bin has both of its ends. */
static void run_histogram(const neap_call *call) {
  const neap_operand *x = &call->in[0];
  int64_t n = neap_shape_elems(&x->type.shape), bins = call->attrs[BINS].i,
          *count = call->out[0].data;
  double low, high;
  range_of(call, &low, &high);
  neap_clear_bytes(count, (size_t)bins * sizeof *count);
  for (int64_t i = 0; i < n; i++) {
    double value = neap_element_get(x->type.dtype, x->data, i);
    if (!(value >= low && value <= high)) continue;
    /* Halved, so that the distance of two large numbers is one. */
    double share = (value / 2 - low / 2) / (high / 2 - low / 2);
    count[NEAP_MIN((int64_t)(share * (double)bins), bins - 1)]++;
  }
}

static neap_status infer_histogram(neap_infer *c, neap_error *error) {
  if (!(c->attrs[LOW].f <= c->attrs[HIGH].f))
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "min = %g expects to be at most max = %g",
                           c->attrs[LOW].f, c->attrs[HIGH].f);
  c->out[0] = (neap_type){NEAP_DTYPE_I64, NEAP_SHAPE(c->attrs[BINS].i)};
  return NEAP_OK;
}

/* ---- records --------------------------------------------------------------------------------- */

#define AXIS_ATTR [AXIS] = {"axis", "along which", NEAP_ATTR_AXIS, .value = {.i = -1}}
#define SORT_ATTRS \
  .attrs = {AXIS_ATTR, [DESCENDING] = {"descending", "the largest first", NEAP_ATTR_BOOL}}
#define NAN_LAST .nan = NEAP_NAN_DECIDES, .special = "a NaN is larger than all numbers"
#define INDICES(doc) \
  { "indices", doc, NEAP_BIT(I64) }
/* Short rows, and some that are sorted by bytes. */
#define SORT_CASES                                                            \
  "{ {x={4,5,6}, axis=1}, {x={3,4,5}, axis=2, descending=true}, {x={2,70}}, " \
  "{x={{3,40}, dtype=\"i16\", low=-300, high=300}, descending=true}, {x={0,3}}, {x={}} }"

const neap_op neap_op_Sort = {
  .name = "Sort",
  .summary = "Elements in order along a dimension, and where they stood; equals keep their order.",
  .math = "values_i = x[indices_i], values_i <= values_(i+1)",
  .example = "net:Sort(\"x\", {\"values\", \"indices\"}, {axis = 1})",
  .source = "torch.sort with stable = true",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"values", "shape of x", NEAP_ANY}, INDICES("where each stood, from 0")},
  SORT_ATTRS,
  .infer = infer_sort,
  .cost = cost,
  .grad = grad,
  NAN_LAST,
  .kernels = NEAP_REF_CHOOSE(choose, run_sort, NEAP_ANY),
  .cases = SORT_CASES,
};

const neap_op neap_op_ArgSort = {
  .name = "ArgSort",
  .summary =
    "Where the elements stand that would be in order along a dimension; equals keep "
    "their order.",
  .math = "x[y_i] <= x[y_(i+1)]",
  .example = "net:ArgSort(\"x\", \"y\", {axis = 1})",
  .source = "torch.argsort with stable = true",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"y", "shape of x, from 0", NEAP_BIT(I64)}},
  SORT_ATTRS,
  .infer = infer_sort,
  .cost = cost,
  .no_grad = true,
  NAN_LAST,
  .kernels = NEAP_REF_CHOOSE(choose, run_sort, NEAP_ANY),
  .cases = SORT_CASES,
};

const neap_op neap_op_TopK = {
  .name = "TopK",
  .summary =
    "The largest or smallest elements along a dimension, and where they stand; of equals "
    "the first.",
  .math = "values = the k largest of x",
  .example = "net:TopK(\"x\", {\"values\", \"indices\"}, {k = 5})",
  .source = "ONNX TopK-11, torch.topk",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"values", "x with k elements along the axis", NEAP_ANY},
              INDICES("where each stands, from 0")},
  .attrs =
    {AXIS_ATTR, [LARGEST] = {"largest", "not the smallest", NEAP_ATTR_BOOL, .value = {.i = 1}},
     [SORTED] = {"sorted", "by size, the best first; else in the order in which they stand",
                 NEAP_ATTR_BOOL, .value = {.i = 1}},
     [K] = {"k", "how many", NEAP_ATTR_INT, .required = true, .least = 0, .most = 1e15}},
  .infer = infer_top,
  .cost = cost,
  .grad = grad,
  NAN_LAST,
  .kernels = NEAP_REF_CHOOSE(choose, run_top, NEAP_ANY),
  .cases =
    "{ {x={4,5,6}, axis=1, k=2}, {x={3,4,5}, axis=2, k=3, largest=false}, {x={2,70}, k=1}, "
    "{x={3,40}, k=7, sorted=false}, {x={0,3}, k=2}, {x={5}, k=0, grad=false} }",
};

const neap_op neap_op_Median = {
  .name = "Median",
  .summary =
    "Median along a dimension, the lower of two, and where it stands; the gradient goes "
    "there.",
  .math = "y = sorted(x)[(n + 1) / 2], rounded down",
  .example = "net:Median(\"x\", {\"y\", \"indices\"}, {axis = -1})",
  .source = "torch.median",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"y", "shape of x without axis", NEAP_ANY}, INDICES("where each stands, from 0")},
  .attrs = {[AXIS] = {"axis", "along which; not given: all, flattened", NEAP_ATTR_AXIS,
                      .unlike_default = true},
            [KEEPDIM] = {"keepdim", "leave the dimension in the shape, as 1", NEAP_ATTR_BOOL}},
  .infer = infer_median,
  .cost = cost,
  .grad = grad,
  .nan = NEAP_NAN_DECIDES,
  .empty = NEAP_EMPTY_REFUSED,
  .special = "a NaN wins, the first one counts",
  .kernels = NEAP_REF_CHOOSE(choose, run_median, NEAP_ANY),
  .cases =
    "{ {x={4,5,6}, axis=1}, {x={3,4,5}, axis=2, keepdim=true}, {x={2,70}, axis=-1}, {x={3,4}}, "
    "{x={3,4}, keepdim=true}, {x={0,3}, axis=2}, {x={}} }",
};

const neap_op neap_op_SearchSorted = {
  .name = "SearchSorted",
  .summary = "Where values would go in rows that are sorted: how many elements are smaller.",
  .math = "sorted[y - 1] < v <= sorted[y]; with right sorted[y - 1] <= v < sorted[y]",
  .example = "net:SearchSorted({\"sorted\", \"values\"}, \"y\")",
  .source = "torch.searchsorted; torch.bucketize where `sorted` is one row",
  .inputs = {{"sorted", "(..,N), ascending along the last", NEAP_ANY},
             {"values", "(..,M), or any shape where sorted is one row", NEAP_ANY}},
  .outputs = {{"y", "shape of values, from 0 to N", NEAP_BIT(I64)}},
  .attrs = {[RIGHT] = {"right", "behind what equals it, not before", NEAP_ATTR_BOOL}},
  .infer = infer_search,
  .no_grad = true,
  .empty = NEAP_EMPTY_FILLED,
  NAN_LAST ", and goes behind them; of no elements all values go first",
  .kernels = NEAP_REF(run_search, NEAP_ANY),
  .cases =
    "{ {sorted={1}, values={2,3}}, {sorted={3,1}, values={3,5}, right=true}, {sorted={{2}, "
    "low=1, high=1}, values={}} }",
};

const neap_op neap_op_Histogram = {
  .name = "Histogram",
  .summary = "How many elements fall into each of equally wide bins between two numbers.",
  .math =
    "y_b = number of x_i in [min + b w, min + (b + 1) w), w = (max - min) / bins; the last "
    "bin has its end",
  .example = "net:Histogram(\"x\", \"y\", {bins = 10, min = 0, max = 1})",
  .source = "torch.histc",
  .inputs = {{"x", "any shape", NEAP_NUMBERS}},
  .outputs = {{"y", "(bins)", NEAP_BIT(I64)}},
  .attrs = {[BINS] = {"bins", "how many", NEAP_ATTR_INT, .value = {.i = 100}, .least = 1,
                      .most = 1e15},
            [LOW] = {"min", "where the first begins", NEAP_ATTR_FLOAT},
            [HIGH] = {"max", "where the last ends; where that is min, they span the elements",
                      NEAP_ATTR_FLOAT}},
  .infer = infer_histogram,
  .no_grad = true,
  .nan = NEAP_NAN_DECIDES,
  .empty = NEAP_EMPTY_FILLED,
  .special = "NaN, and what lies beyond the ends, is not counted; of no elements all counts are 0",
  .kernels = (const neap_kernel[]){{.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_NUMBERS,
                                    .any_team = true,
                                    .one_thread = true,
                                    .run = run_histogram},
                                   {0}},
  .cases =
    "{ {x={4,5}, bins=3, min=-1, max=1}, {x={50}, bins=7}, {x={{3,9}, dtype=\"i32\", low=-3, "
    "high=9}, bins=5}, {x={0}, bins=2}, {x={}} }",
};
