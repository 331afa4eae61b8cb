/* scatter.c: the one scatter, and its records: ScatterElements, ScatterND and IndexAdd. What they
 * have in common with gathers is in places.h.
 *
 * The places are sorted by the row that they name; then each row is combined with its own, in the
 * order of the places. So no two threads write one row, a row named many times is added up as any
 * long sum is, and every bit is the same for any number of threads. O(rows + places) beside the
 * elements that are moved, with two numbers of scratch for them.
 */
#include "math/row.h"
#include "math/vec.h"
#include "ops/elementwise.h"
#include "ops/places.h"
#include "ops/rows.h"

/* ---- the kernel ------------------------------------------------------------------------------ */

/* Elements of a row that are combined at once: their sums fit the first-level cache, and so few
 * that threads get equal shares of a table whose rows are of very different length. */
enum { COLUMNS = 128 };

typedef struct scatter {
  const neap_places *places;
  neap_scatter_how how;
  const neap_operand *table, *updates, *out; /* table NULL: zeros */
  const int64_t *end, *order;                /* see neap_sort_by_row */
} scatter;

#define A double
#define ADD(a, b) ((a) + (b))
#define IS_NAN(x) ((x) != (x))
#define NEAP_BODY "ops/scatter_body.h"
#include "math/each_float.h"
#undef A
#undef ADD
#undef IS_NAN
/* On 64 unsigned bits integers wrap around, and nothing is undefined. */
#define A uint64_t
#define ADD(a, b) ((T)((uint64_t)(a) + (uint64_t)(b)))
#define IS_NAN(x) false
#define NEAP_BODY "ops/scatter_body.h"
#include "math/each_integer.h"
#undef A
#undef ADD
#undef IS_NAN

typedef void (*combine)(const scatter *s, const int64_t *order, int64_t count, int64_t at,
                        int64_t column, int64_t n);

/* n elements from `at` on become those of `from` at element `first`; NULL: zeros. */
static void copy_row(const scatter *s, int64_t at, const neap_operand *from, int64_t first,
                     int64_t n) {
  void *to = neap_element_at(s->out, at);
  size_t bytes = (size_t)n * neap_dtype_bytes(s->out->type.dtype);
  if (from == NULL)
    neap_clear_bytes(to, bytes);
  else if (neap_element_at(from, first) != to)
    neap_copy_bytes(to, neap_element_at(from, first), bytes);
}

/* Items [begin, end): COLUMNS elements of a row each, the first of all rows of all parts, then the
 * next. */
static void combine_rows(void *context, int64_t begin, int64_t end) {
  static const combine loops[NEAP_N_DTYPE] = {
    NEAP_ROWS_FLOATS(combine), [NEAP_DTYPE_BF16] = combine_f32, [NEAP_DTYPE_F16] = combine_f32,
    NEAP_EACH_INTEGER(NEAP_ROW_ENTRY, combine)};
  const scatter *s = context;
  const neap_places *p = s->places;
  int64_t n_row = p->n_part * p->n_row;
  for (int64_t i = begin; i < end; i++) {
    int64_t r = i % n_row, v = r % p->n_row, column = i / n_row * COLUMNS,
            n = NEAP_MIN(p->row_elems - column, COLUMNS), at = r * p->row_elems + column;
    int64_t first = v == 0 ? 0 : s->end[v - 1], count = s->end[v] - first;
    /* A row that nobody names is the table's, or zeros. */
    if (count == 0) {
      copy_row(s, at, s->table, at, n);
      continue;
    }

    /* Updates of the part begin behind those of the parts before it. */
    column += r / p->n_row * p->n_place * p->row_elems;
    const int64_t *order = s->order + first;
    /* Without a reduction the last update counts; places are sorted in their order. */
    if (s->how == NEAP_SCATTER_NONE)
      copy_row(s, at, s->updates, order[count - 1] * p->row_elems + column, n);
    else
      loops[s->out->type.dtype](s, order, count, at, column, n);
  }
}

/* Who names rows, and to whom faults are said. */
typedef struct named {
  const neap_places *places;
  const neap_call *call;
} named;

static int64_t row_named(const void *context, int64_t place) {
  const named *by = context;
  return neap_place_row(by->places, place, by->call);
}

/* Of a table without elements, which may have any number of rows, nothing is kept. */
static bool is_empty(const neap_places *p) {
  return p->n_part == 0 || p->n_row == 0 || p->row_elems == 0;
}

size_t neap_scatter_bytes(const neap_places *p) {
  if (is_empty(p)) return 0;
  return neap_size_of(neap_count_add(p->n_row, p->n_place), sizeof(int64_t));
}

void neap_combine(const neap_call *call, const neap_places *p, neap_scatter_how how,
                  const int64_t *end, const int64_t *order, const neap_operand *table,
                  const neap_operand *updates, const neap_operand *out) {
  scatter s = {p, how, table, updates, out, end, order};
  enum { LEAST_ELEMS = 2048 }; /* of a thread's share: sums of them pay for it */
  int64_t n = p->n_part * p->n_row * ((p->row_elems + COLUMNS - 1) / COLUMNS);
  neap_parallel_for(n, LEAST_ELEMS / NEAP_MIN(p->row_elems, COLUMNS), call->n_thread, combine_rows,
                    &s);
}

void neap_scatter(const neap_call *call, const neap_places *p, neap_scatter_how how,
                  const neap_operand *table, const neap_operand *updates, const neap_operand *out,
                  bool quiet) {
  named by = {p, quiet ? NULL : call};
  /* Nothing to write, but places that name no row are faults all the same. */
  if (is_empty(p)) {
    for (int64_t i = 0; i < p->n_place; i++) (void)row_named(&by, i);
    return;
  }
  int64_t *end = call->scratch, *order = end + p->n_row;
  neap_sort_by_row(p->n_place, p->n_row, row_named, &by, end, order);
  neap_combine(call, p, how, end, order, table, updates, out);
}

/* ---- what the ops share ---------------------------------------------------------------------- */

/* ORDER: the first attribute is the gather's. */
enum { AXIS, BATCH_DIMS = AXIS, REDUCTION };

extern const neap_op neap_op_Gather, neap_op_GatherElements, neap_op_GatherND;

/* y is like x; updates are what a gather with these indices gives. */
static neap_status infer_like(neap_infer *c, const neap_op *gather, neap_error *error) {
  neap_type y;
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_forward(c, gather, 2, c->in, 1, &y, error));
  if (c->in[2].dtype != y.dtype)
    return neap_infer_fail(c, NEAP_DTYPE, 2, error, "updates expects dtype %s, as x has, got %s",
                           neap_dtype_name(y.dtype), neap_dtype_name(c->in[2].dtype));
  if (!neap_shape_equal(&c->in[2].shape, &y.shape))
    return neap_infer_fail(c, NEAP_SHAPE, 2, error,
                           "updates expects shape %s, what these indices name, got %s",
                           neap_shape_text(&y.shape, a), neap_shape_text(&c->in[2].shape, b));
  c->out[0] = c->in[0];
  return NEAP_OK;
}

/* The same with a reduction: bool can be moved, not computed with. */
static neap_status infer_reduced(neap_infer *c, const neap_op *gather, neap_error *error) {
  if (c->attrs[REDUCTION].i != NEAP_SCATTER_NONE && c->in[0].dtype == NEAP_DTYPE_BOOL)
    return neap_infer_fail(c, NEAP_DTYPE, 0, error, "x expects numbers with a reduction, got bool");
  return infer_like(c, gather, error);
}

static void cost(const neap_infer *c, neap_cost *cost) {
  cost->flops = (double)neap_shape_elems(&c->in[2].shape);
}

/* What the kernel needs to know of its table and indices. */
static bool choose_places(neap_choose *c, neap_places places) {
  c->choice->scratch_bytes = neap_scatter_bytes(&places);
  return true;
}

static void run_places(const neap_call *call, neap_places places, neap_scatter_how how) {
  places.indices = &call->in[1];
  places.name = call->op->inputs[1].name;
  neap_scatter(call, &places, how, &call->in[0], &call->in[2], &call->out[0], false);
}

/* ---- along an axis --------------------------------------------------------------------------- */

static neap_status infer_along(neap_infer *c, neap_error *error) {
  return infer_like(c, &neap_op_Gather, error);
}

static neap_places along(const neap_attr_value *attrs, const neap_shape *x,
                         const neap_shape *indices) {
  return neap_places_along(indices, x, neap_axis(attrs[AXIS].i, x->n_dim));
}

static bool choose_along(neap_choose *c) {
  return choose_places(c, along(c->attrs, &c->in[0].shape, &c->in[1].shape));
}

static void run_along(const neap_call *call) {
  run_places(call, along(call->attrs, &call->in[0].type.shape, &call->in[1].type.shape),
             NEAP_SCATTER_ADD);
}

/* ---- element by element ---------------------------------------------------------------------- */

static neap_status infer_elements(neap_infer *c, neap_error *error) {
  return infer_reduced(c, &neap_op_GatherElements, error);
}

static neap_places elements(const neap_attr_value *attrs, const neap_shape *x,
                            const neap_shape *indices) {
  return neap_places_elements(indices, x, neap_axis(attrs[AXIS].i, x->n_dim));
}

static bool choose_elements(neap_choose *c) {
  return choose_places(c, elements(c->attrs, &c->in[0].shape, &c->in[1].shape));
}

static void run_elements(const neap_call *call) {
  run_places(call, elements(call->attrs, &call->in[0].type.shape, &call->in[1].type.shape),
             (neap_scatter_how)call->attrs[REDUCTION].i);
}

/* ---- by the first dimensions ----------------------------------------------------------------- */

static neap_status infer_nd(neap_infer *c, neap_error *error) {
  return infer_reduced(c, &neap_op_GatherND, error);
}

static neap_places nd(const neap_attr_value *attrs, const neap_shape *x,
                      const neap_shape *indices) {
  return neap_places_nd(indices, x, (int)attrs[BATCH_DIMS].i);
}

static bool choose_nd(neap_choose *c) {
  return choose_places(c, nd(c->attrs, &c->in[0].shape, &c->in[1].shape));
}

static void run_nd(const neap_call *call) {
  run_places(call, nd(call->attrs, &call->in[0].type.shape, &call->in[1].type.shape),
             (neap_scatter_how)call->attrs[REDUCTION].i);
}

/* ---- records --------------------------------------------------------------------------------- */

/* Of a scatter S whose gather is G. With none, an update has a gradient where it is the last of its
 * row, which is where its own number comes back. With mul, a product without one factor is the
 * whole by that factor, or, where that is 0, the product of the others; none where another one is
 * 0. With min and max, equals share evenly. */
#define GRADIENT(G, S)                                                                          \
  "number = reduction == none ? view(Range(stop = count(updates), dtype = i64), updates) : 0;"  \
  "last = reduction == none ?" G "(" S                                                          \
  "(Constant(shape = shape(x), dtype = i64), indices, number, ..), indices, ..) == number : 0;" \
  "zero = updates == 0; u = zero ? 1 : updates; own = zero ? 1 : 0;"                            \
  "zeros = reduction == mul ?" G "(" S                                                          \
  "(zeros(x), indices, own, .., reduction = add), indices, ..) : 0;"                            \
  "whole = reduction == mul ?" S                                                                \
  "(x, indices, u, ..) : 0;"                                                                    \
  "mine = updates == " G "(y, indices, ..); n = " S                                             \
  "(x == y ? 1 : 0, indices, mine ? 1 : 0, .., reduction = add);"                               \
  "d.x = reduction == add ? d.y : reduction == none ?" S                                        \
  "(d.y, indices, zeros(updates), ..)"                                                          \
  ": reduction == mul ? d.y * " S                                                               \
  "(ones(x), indices, updates, ..) : (x == y ? d.y / n : 0);"                                   \
  "d.updates = reduction == add ?" G                                                            \
  "(d.y, indices, ..)"                                                                          \
  ": reduction == none ? (last ? " G                                                            \
  "(d.y, indices, ..) : 0)"                                                                     \
  ": reduction == mul ? (zeros == own ?" G                                                      \
  "(d.y * whole, indices, ..) / u : 0)"                                                         \
  ": (mine ? " G "(d.y / n, indices, ..) : 0)"

#define SCATTER(choose_function, run_function)                                     \
  .inplace = {{0, 0}}, .n_inplace = 1, .effects = NEAP_EFFECT_FAULT, .cost = cost, \
  .sum = NEAP_SUM_RUNS, .kernels = NEAP_REF_CHOOSE(choose_function, run_function, NEAP_ANY)
#define REDUCTION_ATTR                                                                        \
  [REDUCTION] = {"reduction", "how an update is combined with what is there", NEAP_ATTR_ENUM, \
                 .choices = "none|add|mul|min|max"}
#define REDUCTION_SPECIAL                                                                         \
  "a row that no place names keeps its bits; of updates of one row the last counts with none, a " \
  "NaN wins with min and max; second gradients take zeros among factors for constants"

const neap_op neap_op_ScatterElements = {
  .name = "ScatterElements",
  .summary =
    "Elements written by number: each number is a position along a dimension, at its own "
    "place in the others.",
  .math = "y = x; y[i, indices[i,j,k], k] = updates[i,j,k], or +, *, min, max of both; axis 2",
  .example =
    "net:ScatterElements({\"x\", \"indices\", \"updates\"}, \"y\", {axis = 2, reduction = "
    "\"add\"})",
  .source = "ONNX ScatterElements-18; PyTorch scatter, scatter_reduce",
  .inputs = {{"x", "any shape", NEAP_ANY},
             {"indices", "dimensions as x has, none longer but the axis", NEAP_INDEX_DTYPES},
             {"updates", "shape of indices", NEAP_ANY}},
  .outputs = {{"y", "shape of x", NEAP_ANY}},
  .attrs = {[AXIS] = {"axis", "along which", NEAP_ATTR_AXIS}, REDUCTION_ATTR},
  .infer = infer_elements,
  .grad_formula = GRADIENT("GatherElements", "ScatterElements"),
  .empty = NEAP_EMPTY_NONE,
  .special = REDUCTION_SPECIAL,
  SCATTER(choose_elements, run_elements),
  .cases =
    "{ {x={3,4,2}, indices={{3,7,2}, dtype=\"i64\", low=-4, high=4}, updates={3,7,2}, axis=2}, "
    "{x={5,3}, indices={{4,2}, dtype=\"i32\", low=0, high=5}, updates={4,2}, reduction=\"add\"}, "
    "{x={4}, indices={{7}, dtype=\"i64\", low=-4, high=4}, updates={7}, reduction=\"mul\"}, "
    "{x={2,3}, indices={{2,6}, dtype=\"i64\", low=0, high=3}, updates={2,6}, axis=-1, "
    "reduction=\"max\"}, {x={2,3}, indices={{2,6}, dtype=\"u8\", low=0, high=3}, updates={2,6}, "
    "axis=2, reduction=\"min\"}, {x={0,3}, indices={{0,3}, dtype=\"i64\"}, updates={0,3}}, "
    "{x={3,2}, indices={{0,2}, dtype=\"i64\"}, updates={0,2}}, {x={{5}, dtype=\"bool\"}, "
    "indices={{3}, dtype=\"i64\", low=0, high=5}, updates={{3}, dtype=\"bool\"}, grad=false} }",
  .long_cases =
    "{ {x={2}, indices={{262144}, dtype=\"i64\", low=0, high=1}, updates={262144}, "
    "reduction=\"add\"} }",
};

const neap_op neap_op_ScatterND = {
  .name = "ScatterND",
  .summary = "Slices written by a number for each of the first dimensions.",
  .math =
    "y = x; y[indices[i.., 1], .., indices[i.., K], ..] = updates[i.., ..], or +, *, min, max",
  .example = "net:ScatterND({\"x\", \"indices\", \"updates\"}, \"y\")",
  .source = "ONNX ScatterND-18, with the batch_dims of GatherND",
  .inputs = {{"x", "any shape", NEAP_ANY},
             {"indices", "(.., K): K numbers each, from 0, or from -1 at the end",
              NEAP_INDEX_DTYPES},
             {"updates", "indices without K, then what is behind the dimensions named", NEAP_ANY}},
  .outputs = {{"y", "shape of x", NEAP_ANY}},
  .attrs = {[BATCH_DIMS] = {"batch_dims", "first dimensions that both have, which are not named",
                            NEAP_ATTR_INT, .most = NEAP_MAX_DIM},
            REDUCTION_ATTR},
  .infer = infer_nd,
  .grad_formula = GRADIENT("GatherND", "ScatterND"),
  .empty = NEAP_EMPTY_NONE,
  .special = REDUCTION_SPECIAL,
  SCATTER(choose_nd, run_nd),
  .cases =
    "{ {x={3,4,2}, indices={{5,1}, dtype=\"i64\", low=-3, high=3}, updates={5,4,2}}, {x={3,4}, "
    "indices={{2,5,2}, dtype=\"i32\", low=0, high=3}, updates={2,5}, reduction=\"add\"}, "
    "{x={2,3,4}, indices={{2,5,1}, dtype=\"i64\", low=-3, high=3}, updates={2,5,4}, "
    "batch_dims=1, reduction=\"mul\"}, {x={3,2}, indices={{5,1}, dtype=\"i64\", low=0, high=3}, "
    "updates={5,2}, reduction=\"min\"}, {x={3,2}, indices={{5,1}, dtype=\"i64\", low=0, high=3}, "
    "updates={5,2}, reduction=\"max\"}, {x={2,3}, indices={{0,1}, dtype=\"i64\"}, updates={0,3}} "
    "}",
  .long_cases =
    "{ {x={2,3}, indices={{262144,1}, dtype=\"i64\", low=0, high=1}, "
    "updates={262144,3}, reduction=\"add\"} }",
};

const neap_op neap_op_IndexAdd = {
  .name = "IndexAdd",
  .summary = "Adds to positions along a dimension, by number; one that is named again gets all.",
  .math = "y = x; y[.., indices[i..], ..] += updates[.., i.., ..]",
  .example = "net:IndexAdd({\"x\", \"indices\", \"updates\"}, \"y\", {axis = 2})",
  .source = "PyTorch index_add",
  .inputs = {{"x", "any shape", NEAP_NUMBERS},
             {"indices", "any shape; numbers from 0, or from -1 at the end", NEAP_INDEX_DTYPES},
             {"updates", "x, with the shape of indices for the axis", NEAP_NUMBERS}},
  .outputs = {{"y", "shape of x", NEAP_NUMBERS}},
  .attrs = {[AXIS] = {"axis", "along which", NEAP_ATTR_AXIS}},
  .infer = infer_along,
  .grad_formula = "d.x = d.y; d.updates = Gather(d.y, indices, ..)",
  SCATTER(choose_along, run_along),
  .cases =
    "{ {x={5,3}, indices={{2,4}, dtype=\"i64\", low=-5, high=5}, updates={2,4,3}}, {x={3,4,2}, "
    "indices={{7}, dtype=\"i32\", low=0, high=2}, updates={3,7,2}, axis=2}, {x={2,6}, "
    "indices={{}, dtype=\"i64\", low=-6, high=6}, updates={2}, axis=-1}, {x={{4,2}, "
    "dtype=\"i32\", low=-9, high=9}, indices={{3}, dtype=\"u8\", low=0, high=4}, updates={{3,2}, "
    "dtype=\"i32\", low=-9, high=9}, grad=false}, {x={0,2}, indices={{0}, dtype=\"i64\"}, "
    "updates={0,2}} }",
  .long_cases =
    "{ {x={2,3}, indices={{262144}, dtype=\"i64\", low=0, high=1}, "
    "updates={262144,3}} }",
};
