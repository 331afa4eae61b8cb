/* pool_more.c: pools whose windows adapt to the size of y (AdaptiveAveragePool, AdaptiveMaxPool,
 * and GlobalMaxPool, where y has one element), sums and norms of windows (SumPool, LpPool,
 * GlobalLpPool), and the places of maxima as numbers: MaxPoolWithIndices and its inverse,
 * MaxUnpool.
 *
 * The kernels are those of pool.c. An index counts the elements of x from 0, all images and
 * channels included, as in ONNX; -1 stands for a window that has no element of x.
 */
#include "math/vec.h"
#include "ops/pool.h"

#include <inttypes.h>
#include <string.h>

extern const neap_op neap_op_GlobalMaxPool, neap_op_AdaptiveMaxPool, neap_op_AdaptiveAveragePool,
  neap_op_SumPool;

/* ---- windows that adapt ---------------------------------------------------------------------- */

enum { OUTPUT_SIZE, ADAPTIVE_SHAPE };

/* One size for all spatial dimensions, or one each. */
static neap_status infer_adaptive(neap_infer *c, neap_error *error) {
  const neap_attr_value *size = &c->attrs[OUTPUT_SIZE];
  int n = c->in[0].shape.n_dim - 2;
  char text[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_rank(c, 0, 3, 5, error));
  if (size->n != 1 && size->n != n)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                           "output_size expects 1 or %d values for %d spatial dimensions, got %d",
                           n, n, size->n);

  /* N and C stay; a spatial size is that of all dimensions or of its own. */
  c->out[0] = c->in[0];
  for (int i = 0; i < n; i++) {
    if (c->in[0].shape.dim[2 + i] < 1)
      return neap_infer_fail(c, NEAP_SHAPE, 0, error,
                             "x expects at least one element to pool, got %s",
                             neap_shape_text(&c->in[0].shape, text));
    c->out[0].shape.dim[2 + i] = size->ints[size->n == 1 ? 0 : i];
  }
  if (c->n_out > 1) c->out[1] = (neap_type){NEAP_DTYPE_U8, NEAP_SHAPE(0)};
  return NEAP_OK;
}

static neap_status infer_adaptive_max_grad(neap_infer *c, neap_error *error) {
  return neap_pool_infer_grad(c, &neap_op_AdaptiveMaxPool, error);
}
static neap_status infer_adaptive_max_take(neap_infer *c, neap_error *error) {
  return neap_pool_infer_take(c, &neap_op_AdaptiveMaxPool, error);
}
static neap_status infer_adaptive_average_grad(neap_infer *c, neap_error *error) {
  return neap_pool_infer_grad(c, &neap_op_AdaptiveAveragePool, error);
}

/* The backward of a maximum, also of the global one, whose y has one element. */
static neap_status grad_max(neap_grad *g, neap_error *error) {
  if (g->n_out < 2 || g->out[1] == NEAP_NO_VALUE)
    return neap_fail(error, NEAP_INTERNAL, "%s has no stash to differentiate with", g->op->name);
  static const int64_t one = 1;
  neap_type x = neap_grad_type(g, g->in[0]);
  neap_set set[] = {NEAP_SET_INTS("shape", x.shape.n_dim, x.shape.dim), {0}, {0}};
  if (g->op == &neap_op_GlobalMaxPool) set[1] = (neap_set)NEAP_SET_INTS("output_size", 1, &one);
  g->din[0] =
    neap_grad_emit1(g, "AdaptiveMaxPoolGrad", 2, (neap_value_id[]){g->dout[0], g->out[1]}, g, set);
  return NEAP_OK;
}

#define OUTPUT_SIZE_ATTR                                                                     \
  [OUTPUT_SIZE] = {"output_size",  "spatial sizes of y, one for all dimensions or one each", \
                   NEAP_ATTR_INTS, .required = true,                                         \
                   .least = 1,     .most = 1 << 20}
#define X_ANY \
  { "x", "(N,C,H,W), or one or three spatial dimensions" }
#define STASH_OUT \
  { "stash", "which element won", NEAP_BIT(U8), NEAP_ARG_OPTIONAL | NEAP_ARG_STASH }
#define STASH_IN \
  { "stash", "of the forward", NEAP_BIT(U8), NEAP_ARG_STASH }

const neap_op neap_op_AdaptiveMaxPool = {
  .name = "AdaptiveMaxPool",
  .summary = "The largest element of each of as many windows as asked for, which share x out.",
  .math = "y[n,c,p] = max of x[n,c,i], floor(p in / out) <= i < ceil((p + 1) in / out)",
  .example = "net:AdaptiveMaxPool(\"x\", \"y\", {output_size = 7})",
  .source = "PyTorch adaptive_max_pool2d",
  .inputs = {X_ANY},
  .outputs = {{"y", "(N,C,OH,OW)"}, STASH_OUT},
  .attrs = {OUTPUT_SIZE_ATTR},
  .infer = infer_adaptive,
  .cost = neap_pool_cost,
  .grad = grad_max,
  .empty = NEAP_EMPTY_REFUSED,
  .special = "a NaN wins its window; the first of equal elements gets the gradient",
  .kernels = NEAP_REF_CHOOSE(neap_pool_choose_max, neap_pool_run_max, NEAP_FLOATS),
  .cases =
    "{ {x={2,3,7,5}, output_size={3,2}}, {x={2,3,4,5}, output_size={6}}, {x={1,2,9}, "
    "output_size={4}}, {x={1,2,3,4,5}, output_size={2}}, {x={1,2,20,20}, output_size={1}} }",
};

const neap_op neap_op_AdaptiveMaxPoolGrad = {
  .name = "AdaptiveMaxPoolGrad",
  .summary = "Backward of AdaptiveMaxPool and GlobalMaxPool.",
  .math = "dx[i] = sum of dy over the windows that i won",
  .internal = true,
  .inputs = {{"dy", "(N,C,OH,OW)"}, STASH_IN},
  .outputs = {{"dx", "shape of x"}},
  .attrs = {OUTPUT_SIZE_ATTR, [ADAPTIVE_SHAPE] = NEAP_POOL_SHAPE_ATTR},
  .infer = infer_adaptive_max_grad,
  .grad_formula = "d.dy = AdaptiveMaxPoolTake(d.dx, stash, ..)",
  .kernels = NEAP_REF_CHOOSE(neap_pool_choose_max_grad, neap_pool_run_max_grad, NEAP_FLOATS),
};

const neap_op neap_op_AdaptiveMaxPoolTake = {
  .name = "AdaptiveMaxPoolTake",
  .summary = "The elements of x at the places where an AdaptiveMaxPool found its largest.",
  .math = "y[p] = x[i], i the element that won window p of the forward",
  .internal = true,
  .inputs = {{"x", "shape of the forward's x"}, STASH_IN},
  .outputs = {{"y", "(N,C,OH,OW)"}},
  .attrs = {OUTPUT_SIZE_ATTR, [ADAPTIVE_SHAPE] = NEAP_POOL_SHAPE_ATTR},
  .infer = infer_adaptive_max_take,
  .grad_formula = "d.x = AdaptiveMaxPoolGrad(d.y, stash, ..)",
  .kernels = NEAP_REF_CHOOSE(neap_pool_choose_max_take, neap_pool_run_max_take, NEAP_FLOATS),
};

const neap_op neap_op_GlobalMaxPool = {
  .name = "GlobalMaxPool",
  .summary = "The largest element over all spatial dimensions, which are kept with size 1.",
  .math = "y[n,c] = max_p x[n,c,p]",
  .example = "net:GlobalMaxPool(\"x\", \"y\")",
  .source = "ONNX GlobalMaxPool-1",
  .inputs = {X_ANY},
  .outputs = {{"y", "(N,C,1,1)"}, STASH_OUT},
  .infer = neap_pool_infer_global,
  .cost = neap_pool_cost,
  .grad = grad_max,
  .empty = NEAP_EMPTY_REFUSED,
  .special = "a NaN wins; the first of equal elements gets the gradient",
  .kernels = NEAP_REF_CHOOSE(neap_pool_choose_max, neap_pool_run_max, NEAP_FLOATS),
  .cases = "{ {x={2,3,4,5}}, {x={1,2,300}}, {x={1,2,2,3,4}} }",
};

const neap_op neap_op_AdaptiveAveragePool = {
  .name = "AdaptiveAveragePool",
  .summary = "The mean of each of as many windows as asked for, which share x out.",
  .math = "y[n,c,p] = mean of x[n,c,i], floor(p in / out) <= i < ceil((p + 1) in / out)",
  .example = "net:AdaptiveAveragePool(\"x\", \"y\", {output_size = 7})",
  .source = "PyTorch adaptive_avg_pool2d",
  .inputs = {X_ANY},
  .outputs = {{"y", "(N,C,OH,OW)"}},
  .attrs = {OUTPUT_SIZE_ATTR},
  .infer = infer_adaptive,
  .cost = neap_pool_cost,
  .empty = NEAP_EMPTY_REFUSED,
  .sum = NEAP_SUM_DOUBLE,
  .grad_formula = "d.x = AdaptiveAveragePoolGrad(d.y, .., shape = shape(x))",
  .kernels = NEAP_REF_CHOOSE(neap_pool_choose_average, neap_pool_run_average, NEAP_FLOATS),
  .cases =
    "{ {x={2,3,7,5}, output_size={3,2}}, {x={2,3,4,5}, output_size={6}}, {x={1,2,9}, "
    "output_size={4}}, {x={1,2,3,4,5}, output_size={2}} }",
  .long_cases = "{ {x={1,2,512,512}, output_size={1}} }",
};

const neap_op neap_op_AdaptiveAveragePoolGrad = {
  .name = "AdaptiveAveragePoolGrad",
  .summary = "Backward of AdaptiveAveragePool.",
  .math = "dx[i] = sum of dy[p] / n[p] over the windows p that hold i",
  .internal = true,
  .inputs = {{"dy", "(N,C,OH,OW)"}},
  .outputs = {{"dx", "shape of x"}},
  .attrs = {OUTPUT_SIZE_ATTR, [ADAPTIVE_SHAPE] = NEAP_POOL_SHAPE_ATTR},
  .infer = infer_adaptive_average_grad,
  .grad_formula = "d.dy = AdaptiveAveragePool(d.dx, ..)",
  .kernels = NEAP_REF_CHOOSE(neap_pool_choose_average, neap_pool_run_average_grad, NEAP_FLOATS),
  .cases = "{ {dy={2,3,3,2}, output_size={3,2}, shape={2,3,7,5}} }",
};

/* ---- sums and norms of windows --------------------------------------------------------------- */

enum { SUM_SHAPE = NEAP_POOL_N_ATTR, P = NEAP_POOL_N_ATTR };

static neap_status infer_sum_grad(neap_infer *c, neap_error *error) {
  return neap_pool_infer_grad(c, &neap_op_SumPool, error);
}

const neap_op neap_op_SumPool = {
  .name = "SumPool",
  .summary = "The sum of each window.",
  .math = "y[n,c,p] = sum_k x[n,c, p stride - pad + k dilation]",
  .example = "net:SumPool(\"x\", \"y\", {kernel = 3, stride = 2, pad = 1})",
  .source = "PyTorch avg_pool2d with divisor_override = 1",
  .inputs = {X_ANY},
  .outputs = {{"y", "(N,C,OH,OW)"}},
  .attrs = {NEAP_POOL_ATTRS},
  .infer = neap_pool_infer,
  .cost = neap_pool_cost,
  .empty = NEAP_EMPTY_REFUSED,
  .sum = NEAP_SUM_DOUBLE,
  .grad_formula = "d.x = SumPoolGrad(d.y, .., shape = shape(x))",
  .kernels = NEAP_REF_CHOOSE(neap_pool_choose, neap_pool_run_sum, NEAP_FLOATS),
  .cases =
    "{ {x={2,3,6,7}, kernel={2}}, {x={2,4,7,7}, kernel={3}, stride={2}, pad={1}, ceil_mode=true}, "
    "{x={1,2,8}, kernel={3}, dilation={2}, stride={1}} }",
  .long_cases = "{ {x={1,2,512,512}, kernel={512}} }",
};

const neap_op neap_op_SumPoolGrad = {
  .name = "SumPoolGrad",
  .summary = "Backward of SumPool.",
  .math = "dx[i] = sum of dy[p] over the windows p that hold i",
  .internal = true,
  .inputs = {{"dy", "(N,C,OH,OW)"}},
  .outputs = {{"dx", "shape of x"}},
  .attrs = {NEAP_POOL_ATTRS, [SUM_SHAPE] = NEAP_POOL_SHAPE_ATTR},
  .infer = infer_sum_grad,
  .grad_formula = "d.dy = SumPool(d.dx, ..)",
  .kernels = NEAP_REF_CHOOSE(neap_pool_choose, neap_pool_run_sum_grad, NEAP_FLOATS),
  .cases = "{ {dy={2,3,3,3}, kernel={2}, shape={2,3,6,7}} }",
};

#define P_ATTR \
  { "p", "power of the norm", NEAP_ATTR_INT, .value = {.i = 2}, .least = 1, .most = 1024 }

/* Of a window of zeros the gradient is 0, where a norm has none. */
const neap_op neap_op_LpPool = {
  .name = "LpPool",
  .summary = "The p-norm of each window.",
  .math = "y[n,c,q] = (sum_k |x[n,c, q stride - pad + k dilation]|^p)^(1/p)",
  .example = "net:LpPool(\"x\", \"y\", {kernel = 2, p = 2})",
  .source = "ONNX LpPool-18",
  .inputs = {X_ANY},
  .outputs = {{"y", "(N,C,OH,OW)"}},
  .attrs = {NEAP_POOL_ATTRS, [P] = P_ATTR},
  .infer = neap_pool_infer,
  .cost = neap_pool_cost,
  .empty = NEAP_EMPTY_REFUSED,
  .sum = NEAP_SUM_DOUBLE,
  .special = "the gradient of a window of zeros is 0",
  .grad_formula =
    "u = y > 0 ? y : 1; s = SumPoolGrad(d.y * Pow(u, 1 - p), .., shape = shape(x));"
    "d.x = s * Sign(x) * Pow(Abs(x), p - 1)",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_CHOOSE(neap_pool_choose, neap_pool_run_lp, NEAP_FLOATS),
  .cases =
    "{ {x={2,3,6,7}, kernel={2}}, {x={2,4,7,7}, kernel={3}, stride={2}, pad={1}, ceil_mode=true, "
    "p=3}, {x={1,2,8}, kernel={3}, dilation={2}, stride={1}, p=1}, {x={1,2,3,4,4}, kernel={2}, "
    "p=4} }",
  .long_cases = "{ {x={1,2,512,512}, kernel={512}} }",
};

const neap_op neap_op_GlobalLpPool = {
  .name = "GlobalLpPool",
  .summary = "The p-norm over all spatial dimensions, which are kept with size 1.",
  .math = "y[n,c] = (sum_q |x[n,c,q]|^p)^(1/p)",
  .example = "net:GlobalLpPool(\"x\", \"y\", {p = 2})",
  .source = "ONNX GlobalLpPool-2",
  .inputs = {X_ANY},
  .outputs = {{"y", "(N,C,1,1)"}},
  .attrs = {P_ATTR},
  .infer = neap_pool_infer_global,
  .cost = neap_pool_cost,
  .empty = NEAP_EMPTY_REFUSED,
  .sum = NEAP_SUM_DOUBLE,
  .special = "the gradient of zeros is 0",
  .grad_formula = "u = y > 0 ? y : 1; d.x = d.y * Sign(x) * Pow(Abs(x) / u, p - 1)",
  .mixed = NEAP_MIXED_FULL,
  .kernels = NEAP_REF_CHOOSE(neap_pool_choose, neap_pool_run_lp, NEAP_FLOATS),
  .cases = "{ {x={2,3,4,5}}, {x={1,2,9}, p=3}, {x={1,2,2,3,4}, p=1} }",
  .long_cases = "{ {x={1,2,512,512}} }",
};

/* ---- indices --------------------------------------------------------------------------------- */

/* y is a MaxPool's; the indices are as many. */
static neap_status infer_indices(neap_infer *c, neap_error *error) {
  NEAP_TRY(neap_pool_infer(c, error));
  c->out[1] = (neap_type){NEAP_DTYPE_I64, c->out[0].shape};
  return NEAP_OK;
}

const neap_op neap_op_MaxPoolWithIndices = {
  .name = "MaxPoolWithIndices",
  .summary = "MaxPool that also says where in x each largest element stands.",
  .math = "y[n,c,p] = max_k x[n,c, p stride - pad + k dilation] = x.flat[indices[n,c,p]]",
  .example = "net:MaxPoolWithIndices(\"x\", {\"y\", \"indices\"}, {kernel = 2})",
  .source = "ONNX MaxPool-12 with its second output, storage_order 0",
  .inputs = {X_ANY},
  .outputs = {{"y", "(N,C,OH,OW)"},
              {"indices", "(N,C,OH,OW), elements of x from 0", NEAP_BIT(I64)}},
  .attrs = {NEAP_POOL_ATTRS},
  .infer = infer_indices,
  .cost = neap_pool_cost,
  .empty = NEAP_EMPTY_REFUSED,
  .special =
    "a NaN wins its window; the first of equal elements gets the gradient; the index of a window "
    "of padding alone is -1",
  .grad_formula = "d.x = PlaneAdd(d.y, indices, shape = shape(x))",
  .kernels = NEAP_REF_CHOOSE(neap_pool_choose, neap_pool_run_max_indices, NEAP_FLOATS),
  .cases =
    "{ {x={2,3,6,7}, kernel={2}}, {x={2,4,7,8}, kernel={3,2}, stride={2,1}, pad={1,0}}, "
    "{x={1,2,9}, "
    "kernel={3}, ceil_mode=true, stride={2}}, {x={1,2,4,4,4}, kernel={2}} }",
};

typedef struct index_job {
  const neap_call *call;
  const int64_t *index;
  int64_t n_in, n_out; /* elements of a plane of what goes in, of what comes out */
  bool strict;         /* an index outside its plane is a fault */
} index_job;

/* An element of plane p, as the index of element i says; false where it is in another. */
static bool find_element(const index_job *j, int64_t p, int64_t i, int64_t n, int64_t *at) {
  const int64_t first = p * n;
  if (j->index[i] >= first && j->index[i] - first < n) {
    *at = j->index[i] - first;
    return true;
  }
  if (j->strict)
    neap_call_fault(j->call,
                    "index %" PRId64 " at element %" PRId64 " is outside its plane of y, %" PRId64
                    " to %" PRId64,
                    j->index[i], i + 1, first, first + n - 1);
  return false;
}

#define NEAP_BODY "ops/pool_index_body.h"
#include "math/each_float.h"

/* Planes of (N,C): each is written by one thread, in the order of its indices. */
static void run_index(const neap_call *call, const neap_shape *out, neap_rows_body f32,
                      neap_rows_body f64, bool strict) {
  const neap_shape *in = &call->in[0].type.shape;
  const neap_dtype dtype = call->in[0].type.dtype;
  index_job j = {.call = call, .index = call->in[1].data, .strict = strict};
  j.n_in = neap_shape_span(in, 2, in->n_dim);
  j.n_out = neap_shape_span(out, 2, out->n_dim);
  neap_rows_run(call, dtype, call->scratch, 1, j.n_in + j.n_out, in->dim[0] * in->dim[1],
                NEAP_MAX(1, NEAP_GRAIN / NEAP_MAX(j.n_in + j.n_out, 1)),
                dtype == NEAP_DTYPE_F64 ? f64 : f32, &j);
}

static void run_plane_add(const neap_call *call) {
  run_index(call, &call->out[0].type.shape, plane_add_f32, plane_add_f64, false);
}
static void run_plane_take(const neap_call *call) {
  run_index(call, &call->out[0].type.shape, plane_take_f32, plane_take_f64, false);
}
static void run_unpool(const neap_call *call) {
  run_index(call, &call->out[0].type.shape, plane_put_f32, plane_put_f64, true);
}

/* dy and its indices have one shape, in the planes of the attribute's shape. */
static neap_status infer_plane_add(neap_infer *c, neap_error *error) {
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_attr_type(c, 0, &c->out[0], error));
  NEAP_TRY(neap_infer_rank(c, 0, 3, 5, error));
  NEAP_TRY(neap_infer_expect(c, 1, &(neap_type){NEAP_DTYPE_I64, c->in[0].shape}, error));
  const neap_shape *x = &c->out[0].shape, *dy = &c->in[0].shape;
  if (x->n_dim != dy->n_dim || x->dim[0] != dy->dim[0] || x->dim[1] != dy->dim[1])
    return neap_infer_fail(c, NEAP_SHAPE, 0, error, "shape %s expects as many planes, got %s",
                           neap_shape_text(x, a), neap_shape_text(dy, b));
  return NEAP_OK;
}

static neap_status infer_plane_take(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape, *i = &c->in[1].shape;
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_rank(c, 0, 3, 5, error));
  if (x->n_dim != i->n_dim || x->dim[0] != i->dim[0] || x->dim[1] != i->dim[1])
    return neap_infer_fail(c, NEAP_SHAPE, 1, error, "indices expect the planes of x %s, got %s",
                           neap_shape_text(x, a), neap_shape_text(i, b));
  c->out[0] = (neap_type){c->in[0].dtype, *i};
  return NEAP_OK;
}

const neap_op neap_op_PlaneAdd = {
  .name = "PlaneAdd",
  .summary = "Elements added up where their indices say, plane by plane.",
  .math = "dx.flat[indices[i]] += dy[i]",
  .internal = true,
  .inputs = {{"dy", "(N,C,OH,OW)"}, {"indices", "shape of dy, from 0", NEAP_BIT(I64)}},
  .outputs = {{"dx", "the attribute's shape"}},
  .attrs = {{"shape", "of dx", NEAP_ATTR_INTS, .required = true}},
  .infer = infer_plane_add,
  .empty = NEAP_EMPTY_ZERO,
  .special = "an index outside its plane adds nothing",
  .grad_formula = "d.dy = PlaneTake(d.dx, indices)",
  .kernels = NEAP_REF_CHOOSE(neap_pool_choose, run_plane_add, NEAP_FLOATS),
  .cases = "{ {dy={1,1,6}, indices={{1,1,6}, dtype=\"i64\", low=0, high=4}, shape={1,1,4}} }",
};

const neap_op neap_op_PlaneTake = {
  .name = "PlaneTake",
  .summary = "The elements that indices say, plane by plane.",
  .math = "y[i] = x.flat[indices[i]]",
  .internal = true,
  .inputs = {{"x", "(N,C,H,W)"}, {"indices", "(N,C,OH,OW), from 0", NEAP_BIT(I64)}},
  .outputs = {{"y", "shape of indices"}},
  .infer = infer_plane_take,
  .special = "an index outside its plane gives 0",
  .grad_formula = "d.x = PlaneAdd(d.y, indices, shape = shape(x))",
  .kernels = NEAP_REF_CHOOSE(neap_pool_choose, run_plane_take, NEAP_FLOATS),
  .cases = "{ {x={1,1,4}, indices={{1,1,6}, dtype=\"i64\", low=0, high=4}} }",
};

enum { UNPOOL_SHAPE = NEAP_WINDOW_N_ATTR };

/* What a pooling with this window would have taken in, if nothing was left over. */
static neap_status infer_unpool(neap_infer *c, neap_error *error) {
  const neap_attr_value *sizes = &c->attrs[UNPOOL_SHAPE];
  neap_shape y = c->in[0].shape;
  char text[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_rank(c, 0, 3, 5, error));
  NEAP_TRY(neap_infer_expect(c, 1, &(neap_type){NEAP_DTYPE_I64, y}, error));
  NEAP_TRY(neap_window_check_lists(c, y.n_dim - 2, error));
  if (sizes->n != 0 && sizes->n != y.n_dim - 2)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                           "output_shape expects %d values, the spatial sizes of y, got %d",
                           y.n_dim - 2, sizes->n);

  /* Each size is where the last window ends, without the padding; what a pooling had left over
   * behind it only `output_shape` can say. */
  neap_window w = neap_window_of(c->attrs, &c->in[0].shape, NULL, NULL);
  for (int i = 0; i < w.n; i++) {
    int d = 3 - w.n + i;
    int64_t last = (w.kernel[d] - 1) * w.dilation[d] + 1; /* two of at most 2^20 */
    int64_t reach = neap_count_add(neap_count_mul(w.in[d] - 1, w.stride[d]), last);
    y.dim[2 + i] = sizes->n > 0 ? sizes->ints[i] : reach - w.begin[d] - w.end[d];
    if (w.in[d] < 1 || y.dim[2 + i] < 1)
      return neap_infer_fail(c, NEAP_SHAPE, 0, error,
                             "x %s gives no element in spatial dimension %d",
                             neap_shape_text(&c->in[0].shape, text), i + 1);
  }
  c->out[0] = (neap_type){c->in[0].dtype, y};
  return NEAP_OK;
}

const neap_op neap_op_MaxUnpool = {
  .name = "MaxUnpool",
  .summary = "Puts elements among zeros where MaxPoolWithIndices found them.",
  .math = "y.flat[indices[i]] = x[i], else 0",
  .example = "net:MaxUnpool({\"x\", \"indices\"}, \"y\", {kernel = 2})",
  .source = "PyTorch max_unpool2d, with indices as in ONNX MaxUnpool-11",
  .inputs = {{"x", "(N,C,H,W), or one or three spatial dimensions"},
             {"indices", "shape of x, elements of y from 0, each in its own plane", NEAP_BIT(I64)}},
  .outputs = {{"y", "(N,C,OH,OW)"}},
  .attrs = {NEAP_WINDOW_ATTRS("size of the window, one for all dimensions or one each", true),
            [UNPOOL_SHAPE] = {"output_shape",
                              "spatial sizes of y; not given: the least that the window gives",
                              NEAP_ATTR_INTS, .least = 1, .most = 1 << 30, .unlike_default = true}},
  .effects = NEAP_EFFECT_FAULT,
  .infer = infer_unpool,
  .special = "of elements with one index the last is put, and all get its gradient",
  .grad_formula = "d.x = PlaneTake(d.y, indices)",
  .kernels = NEAP_REF_CHOOSE(neap_pool_choose, run_unpool, NEAP_FLOATS),
  .cases =
    "{ {x={1,1,1,1}, indices={{1,1,1,1}, dtype=\"i64\", low=0, high=4}, kernel={2}}, {x={1,1,1}, "
    "indices={{1,1,1}, dtype=\"i64\", low=0, high=5}, kernel={2}, output_shape={5}} }",
};
