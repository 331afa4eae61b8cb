/* fc.c: FC, the fully connected layer, and its two backward ops.
 *
 * x is seen as (M,K): the dimensions from `axis` on, flattened, are the K features; those before it
 * are the M rows. The weight is (N,K), as in Caffe2, PyTorch and ONNX's Gemm with transB. The
 * backward is two ops, so that a net whose input needs no gradient never computes one, and so that
 * x dies after the weight gradient, w after the input gradient.
 */
#include "math/row.h"
#include "ops/fused.h"
#include "ops/rows.h"

#include <string.h>

enum { AXIS };
extern const neap_op neap_op_FC;

/* M, K of x for the op's axis. */
static neap_status rows_and_features(const neap_infer *infer, const neap_shape *x, int64_t *m,
                                     int64_t *k, neap_error *error) {
  int axis;
  NEAP_TRY(neap_infer_axis(infer, AXIS, x->n_dim, &axis, error));
  *m = neap_shape_span(x, 0, axis);
  *k = neap_shape_span(x, axis, x->n_dim);
  return NEAP_OK;
}

/* x, with features from `axis` on, w (N,K) and b (N), where given: y has the dimensions of x before
 * `axis`, then N. SHAPE error when x has not K features or b not N elements, ATTRIBUTE error for an
 * axis that x lacks. */
neap_status neap_fc_infer(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape, *w = &c->in[1].shape;
  NEAP_TRY(neap_infer_same_dtype(c, 0, error));
  NEAP_TRY(neap_infer_rank(c, 0, 1, NEAP_MAX_DIM, error));
  NEAP_TRY(neap_infer_rank(c, 1, 2, 2, error));
  int64_t m, k;
  int axis;
  NEAP_TRY(neap_infer_axis(c, AXIS, x->n_dim, &axis, error));
  NEAP_TRY(rows_and_features(c, x, &m, &k, error));
  char text[NEAP_SHAPE_TEXT], text_w[NEAP_SHAPE_TEXT];
  if (w->dim[1] != k)
    return neap_infer_fail(
      c, NEAP_SHAPE, 1, error, "weight %s expects %lld features, got x %s with %lld",
      neap_shape_text(w, text_w), (long long)w->dim[1], neap_shape_text(x, text), (long long)k);
  /* One number for each row of w, or none. */
  neap_shape bias = NEAP_SHAPE(w->dim[0]);
  if (c->n_in > 2 && c->in[2].dtype != NEAP_DTYPE_NONE && !neap_shape_equal(&c->in[2].shape, &bias))
    return neap_infer_fail(c, NEAP_SHAPE, 2, error, "bias expects shape (%lld), got %s",
                           (long long)w->dim[0], neap_shape_text(&c->in[2].shape, text));
  /* Dimensions before `axis` stay, and N takes the place of the features. */
  c->out[0].dtype = c->in[0].dtype;
  c->out[0].shape = neap_shape_of(axis, x->dim);
  c->out[0].shape.dim[axis] = w->dim[0];
  c->out[0].shape.n_dim = axis + 1;
  return NEAP_OK;
}

/* 2 M N K: out (M,N) times K in the forward, out (M,K) times N in the input gradient. */
void neap_fc_cost(const neap_infer *c, neap_cost *cost) {
  cost->flops = 2.0 * (double)neap_shape_elems(&c->out[0].shape) * (double)c->in[1].shape.dim[1];
}

static void cost_grad_input(const neap_infer *c, neap_cost *cost) {
  cost->flops = 2.0 * (double)neap_shape_elems(&c->out[0].shape) * (double)c->in[1].shape.dim[0];
}

/* y (M,N) += b (N) in each row. On one thread: M N additions are little beside the 2 M N K
 * operations of the product. */
#define ADD_BIAS(type)                                                        \
  static void add_bias_##type(type *y, const type *b, int64_t m, int64_t n) { \
    for (int64_t i = 0; i < m; i++)                                           \
      for (int64_t j = 0; j < n; j++) y[i * n + j] += b[j];                   \
  }
ADD_BIAS(float)
ADD_BIAS(double)

/* y (M,N) = x (M,K) w' (K,N) + b (N) */
void neap_fc_run(const neap_call *call) {
  const neap_shape *w = &call->in[1].type.shape;
  int64_t n = w->dim[0], k = w->dim[1],
          m = n == 0 ? 0 : neap_shape_elems(&call->out[0].type.shape) / n;
  neap_dtype dtype = call->out[0].type.dtype;
  /* Fused, it is added to what y holds. */
  neap_gemm(dtype, call->choice->engine, false, true, m, n, k, call->in[0].data, call->in[1].data,
            neap_fused_adds(call), call->out[0].data, call->n_thread);
  if (call->n_in < 3 || call->in[2].data == NULL) return;
  if (dtype == NEAP_DTYPE_F64)
    add_bias_double(call->out[0].data, call->in[2].data, m, n);
  else
    add_bias_float(call->out[0].data, call->in[2].data, m, n);
}

/* dx (M,K) = dy (M,N) w (N,K) */
static void run_grad_input(const neap_call *call) {
  const neap_shape *w = &call->in[1].type.shape;
  int64_t n = w->dim[0], k = w->dim[1],
          m = k == 0 ? 0 : neap_shape_elems(&call->out[0].type.shape) / k;
  neap_gemm(call->out[0].type.dtype, call->choice->engine, false, false, m, k, n, call->in[0].data,
            call->in[1].data, false, call->out[0].data, call->n_thread);
}

typedef struct row_sum {
  const void *dy;
  void *db;
  int64_t m, n;
} row_sum;

/* db (N) = sum of the M rows of dy (M,N), columns [begin, end): the bits depend on no thread. */
#define NEAP_BODY "ops/fc_bias_body.h"
#include "math/each_float.h"

/* The same of halves, so many columns at a time as a tile has. */
static void sum_rows_half(void *context, int64_t begin, int64_t end) {
  const neap_call *call = context;
  const neap_operand *dy = &call->in[1], *db = &call->out[1];
  const int64_t n = db->type.shape.dim[0], m = neap_shape_elems(&dy->type.shape) / n;
  for (int64_t from = begin; from < end; from += NEAP_TILE) {
    const int64_t width = NEAP_MIN(end - from, NEAP_TILE);
    double sum[NEAP_TILE] = {0};
    neap_rows_add_halves(dy, from, m, n, width, sum);
    neap_rows_put_halves(db, from, width, sum);
  }
}

/* db (N) = sum of dy over M, where it is wanted: by every engine, since oneDNN's own adds up all
 * rows in f32. */
static void run_grad_bias(const neap_call *call) {
  int64_t n = call->out[0].type.shape.dim[0],
          m = n == 0 ? 0 : neap_shape_elems(&call->in[1].type.shape) / n;
  if (call->n_out < 2 || call->out[1].data == NULL) return;
  const neap_dtype dtype = call->out[0].type.dtype;
  const int64_t grain = NEAP_MAX(NEAP_GRAIN / NEAP_MAX(m, 1), 16);
  if (neap_is_half(dtype)) {
    neap_parallel_for(n, grain, call->n_thread, sum_rows_half, (void *)call);
    return;
  }
  row_sum sum = {call->in[1].data, call->out[1].data, m, n};
  neap_parallel_for(n, grain, call->n_thread, dtype == NEAP_DTYPE_F64 ? sum_rows_f64 : sum_rows_f32,
                    &sum);
}

/* dw (N,K) = dy' (N,M) x (M,K), and db */
static void run_grad_weight(const neap_call *call) {
  const neap_shape *dw = &call->out[0].type.shape;
  int64_t n = dw->dim[0], k = dw->dim[1],
          m = n == 0 ? 0 : neap_shape_elems(&call->in[1].type.shape) / n;
  neap_gemm(call->out[0].type.dtype, call->choice->engine, true, false, n, k, m, call->in[1].data,
            call->in[0].data, false, call->out[0].data, call->n_thread);
  run_grad_bias(call);
}

/* ---- oneDNN ---------------------------------------------------------------------------------- */

bool neap_fc_has_few_rows(const neap_type *y, int64_t columns) {
  enum { FEW = 256 };
  return columns == 0 || neap_shape_elems(&y->shape) / columns < FEW;
}

bool neap_fc_settle(neap_choose *choose, neap_onednn_case *c, bool by_product, const char *why) {
  if (by_product) {
    choose->choice->algorithm = NEAP_FC_PRODUCT;
    choose->choice->how = "product";
    choose->choice->other = "primitive";
    choose->choice->other_work = 1;
    choose->choice->why =
      why != NULL ? why : "few rows, for which oneDNN's kernel is the slower one";
    return true;
  }
  choose->choice->how = "primitive";
  choose->choice->why = "rows enough for oneDNN's kernel";
  c->other = "product";
  c->other_work = 1;
  /* Rows follow one another: a layout at hand would have to be undone. */
  memset(c->in_layout, 0, sizeof c->in_layout);
  return neap_dnnl_choose(choose, c);
}

neap_status neap_fc_bind(const neap_bind *bind, neap_onednn_case *c, void **kernel,
                         neap_error *error) {
  *kernel = NULL;
  if (bind->choice->algorithm == NEAP_FC_PRODUCT) return NEAP_OK;
  return neap_dnnl_bind(bind, c, kernel, error);
}

/* The primitive turns dy round in place; where its rows are a multiple of 4 KiB apart, the plain
 * product knows better. */
enum { PAGE_ELEMS = 4096 / sizeof(float) };

/* How many terms each sum has. */
static int64_t depth_of(const neap_type *y, const neap_type *w, neap_onednn_kind kind) {
  int64_t columns = w->shape.dim[0];
  if (kind == NEAP_ONEDNN_FC) return w->shape.dim[1];
  if (kind == NEAP_ONEDNN_FC_GRAD_INPUT) return columns;
  return columns == 0 ? 0 : neap_shape_elems(&y->shape) / columns;
}

/* y, or dy, which has its type: where it stands among the operands. */
static const neap_type *y_of(const neap_choose *choose, neap_onednn_kind kind) {
  if (kind == NEAP_ONEDNN_FC) return &choose->out[0];
  return kind == NEAP_ONEDNN_FC_GRAD_INPUT ? &choose->in[0] : &choose->in[1];
}

/* Why not oneDNN's primitive; NULL: for the rows alone. */
static const char *why_product(bool few, bool turned) {
  if (few) return NULL;
  return turned ? "rows of whole pages, which oneDNN's kernel reads badly"
                : "sums too long for oneDNN's kernel to keep their digits";
}

/* The rows are those of y or dy, the columns the N of w or dw; `kind` says at which operands they
 * stand. A choice to be like decides before the number of rows does. For the primitive all operands
 * count as plain at hand. Of deep sums it keeps too few digits. */
static bool choose_dnnl(neap_choose *choose, neap_onednn_kind kind) {
  const neap_type *y = y_of(choose, kind);
  const neap_type *w = kind == NEAP_ONEDNN_FC_GRAD_WEIGHT ? &choose->out[0] : &choose->in[1];
  /* Of the weight's gradient the product alone: the bias is summed here. */
  neap_onednn_case c = neap_dnnl_case_choose(choose, kind);
  c.n_out = 1;
  int64_t columns = w->shape.dim[0];
  /* Rows of dy a multiple of 4 KiB apart fall upon the same lines of the cache where they are
   * turned. */
  bool few = neap_fc_has_few_rows(y, columns);
  bool turned = kind == NEAP_ONEDNN_FC_GRAD_WEIGHT && columns % PAGE_ELEMS == 0;
  bool deep = depth_of(y, w, kind) > NEAP_DEEP;
  /* Of halves oneDNN has the primitive alone, which takes any rows. */
  if (neap_is_half(y->dtype)) {
    few = turned = false;
    if (deep || (choose->like != NULL && choose->like->algorithm == NEAP_FC_PRODUCT)) return false;
  }
  bool by_product = few || turned || deep;
  if (choose->like != NULL) by_product = choose->like->algorithm == NEAP_FC_PRODUCT;
  return neap_fc_settle(choose, &c, by_product, why_product(few, turned));
}

static neap_status bind_dnnl(const neap_bind *bind, neap_onednn_kind kind, void **kernel,
                             neap_error *error) {
  neap_onednn_case c = neap_dnnl_case_bind(bind, kind);
  c.n_out = 1;
  return neap_fc_bind(bind, &c, kernel, error);
}

/* The product of the plain kernels, or oneDNN's. */
static void run_either(const neap_call *call, void (*product)(const neap_call *call),
                       void (*primitive)(const neap_call *call)) {
  (call->choice->algorithm == NEAP_FC_PRODUCT ? product : primitive)(call);
}

static void run_primitive_grad_weight(const neap_call *call) {
  neap_dnnl_run(call);
  run_grad_bias(call);
}

/* choose_NAME, bind_NAME and run_dnnl_NAME. */
#define FC_DNNL(name, kind, product, primitive)                                             \
  static bool choose_##name(neap_choose *choose) { return choose_dnnl(choose, kind); }      \
  static neap_status bind_##name(const neap_bind *bind, void **kernel, neap_error *error) { \
    return bind_dnnl(bind, kind, kernel, error);                                            \
  }                                                                                         \
  static void run_dnnl_##name(const neap_call *call) { run_either(call, product, primitive); }
FC_DNNL(forward, NEAP_ONEDNN_FC, neap_fc_run, neap_dnnl_run)
FC_DNNL(grad_input, NEAP_ONEDNN_FC_GRAD_INPUT, run_grad_input, neap_dnnl_run)
FC_DNNL(grad_weight, NEAP_ONEDNN_FC_GRAD_WEIGHT, run_grad_weight, run_primitive_grad_weight)

#define DNNL_KERNEL(name, by_rows, by_columns)                                         \
  {                                                                                    \
    .engine = NEAP_ENGINE_DNNL, .dtypes = NEAP_BIT(F32) | NEAP_HALVES, .widens = true, \
    .splits = {by_rows, by_columns}, .choose = choose_##name, .bind = bind_##name,     \
    .unbind = neap_dnnl_unbind, .run = run_dnnl_##name                                 \
  }

/* The forward, asked again with its `axis`, says what dy must be. dy has one dimension more than
 * there are rows' ones. */
static neap_status expect_dy(const neap_infer *c, int dy, const neap_type *x, const neap_type *w,
                             int64_t axis, neap_error *error) {
  neap_type y = {0};
  neap_attr_value attr[] = {[AXIS] = {.given = true, .i = axis}};
  neap_infer asked = *c;
  asked.attrs = attr;
  NEAP_TRY(neap_infer_forward(&asked, &neap_op_FC, 2, (neap_type[]){*x, *w}, 1, &y, error));
  return neap_infer_expect(c, dy, &y, error);
}

/* dy (...,N) and w (N,K) give dx, whose shape is an attribute: dy does not tell how K is split into
 * dimensions. dy has the dimensions before `axis` and one more, so its last one is at `axis`. */
static neap_status infer_grad_input(neap_infer *c, neap_error *error) {
  NEAP_TRY(neap_infer_same_dtype(c, 0, error));
  NEAP_TRY(neap_infer_rank(c, 0, 1, NEAP_MAX_DIM, error));
  NEAP_TRY(neap_infer_attr_type(c, 0, &c->out[0], error)); /* here the attribute is x's shape */
  return expect_dy(c, 0, &c->out[0], &c->in[1], c->in[0].shape.n_dim - 1, error);
}

/* x and dy (...,N) give dw (N,K) and, where wanted, db (N). N is read from dy, then the forward
 * says whether the rest fits. */
static neap_status infer_grad_weight(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape, *dy = &c->in[1].shape;
  NEAP_TRY(neap_infer_same_dtype(c, 0, error));
  NEAP_TRY(neap_infer_rank(c, 1, 1, NEAP_MAX_DIM, error));
  int64_t m, k;
  NEAP_TRY(rows_and_features(c, x, &m, &k, error));
  /* The forward is asked with the weight that this would give. */
  int64_t n = dy->dim[dy->n_dim - 1];
  c->out[0] = (neap_type){c->in[0].dtype, NEAP_SHAPE(n, k)};
  NEAP_TRY(expect_dy(c, 1, &c->in[0], &c->out[0], c->attrs[AXIS].i, error));
  if (c->n_out > 1) c->out[1] = (neap_type){c->in[0].dtype, NEAP_SHAPE(n)};
  return NEAP_OK;
}

/* FCGradInput for x; FCGradWeight for w and b together, so a bias wanted alone computes dw too. */
static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  neap_value_id x = g->in[0], w = g->in[1], dy = g->dout[0];
  bool want_bias = g->n_in > 2 && g->want[2];
  if (g->want[0]) {
    neap_type type = neap_grad_type(g, x);
    g->din[0] =
      neap_grad_emit1(g, "FCGradInput", 2, (neap_value_id[]){dy, w}, NULL,
                      (neap_set[]){NEAP_SET_INTS("shape", type.shape.n_dim, type.shape.dim), {0}});
  }
  if (g->want[1] || want_bias) {
    /* One op reads dy once for both. */
    neap_value_id out[2] = {NEAP_NO_VALUE, NEAP_NO_VALUE};
    neap_grad_emit(g, "FCGradWeight", 2, (neap_value_id[]){x, dy}, want_bias ? 2 : 1, out, g, NULL);
    g->din[1] = out[0];
    if (want_bias) g->din[2] = out[1];
  }
  return NEAP_OK;
}

#define AXIS_ATTR                                                                            \
  {                                                                                          \
    "axis", "first of the dimensions that are features", NEAP_ATTR_AXIS, .value = {.i = -1 } \
  }

const neap_op neap_op_FC = {
  .name = "FC",
  .summary = "Fully connected layer: a matrix product with a weight, and a bias.",
  .math = "y (M,N) = x (M,K) w^T (K,N) + b (N)",
  .example = "net:FC({\"x\", \"w\", \"b\"}, \"y\")",
  .source = "ONNX Gemm-13 with transB = 1",
  .inputs = {{"x", "(M,K); leading dimensions are rows"},
             {"w", "(N,K)"},
             {"b", "(N)", .flags = NEAP_ARG_OPTIONAL}},
  .outputs = {{"y", "(M,N)"}},
  .attrs = {[AXIS] = AXIS_ATTR},
  .infer = neap_fc_infer,
  .cost = neap_fc_cost,
  .grad = grad,
  .sum = NEAP_SUM_LIBRARY,
  .mixed = NEAP_MIXED_LINEAR,
  .kernels = (const neap_kernel[]){DNNL_KERNEL(forward, "Rww>R", "wrr>c"),
                                   {.engine = NEAP_ENGINE_BLAS,
                                    .dtypes = NEAP_WIDE,
                                    .widens = true,
                                    .splits = {"Rww>R", "wrr>c"},

                                    .run = neap_fc_run},
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_WIDE,
                                    .widens = true,
                                    .splits = {"Rww>R", "wrr>c"},

                                    .any_team = true,
                                    .run = neap_fc_run},
                                   {0}},
  .cases =
    "{ {x={4,6}, w={5,6}, b={5}}, {x={2,3,7}, w={4,7}}, {x={3,2,4}, w={5,8}, b={5}, axis=2}, "
    "{x={0,3}, w={2,3}, b={2}}, "
    "{x={300,70}, w={1024,70}, b={1024}, grad=false} }",
  .long_cases = "{ {x={1,262144}, w={4,262144}} }",
};

const neap_op neap_op_FCGradInput = {
  .name = "FCGradInput",
  .summary = "Gradient of FC with respect to x.",
  .math = "dx (M,K) = dy (M,N) w (N,K)",
  .internal = true,
  .inputs = {{"dy", "(M,N)"}, {"w", "(N,K)"}},
  .outputs = {{"dx", "shape of x"}},
  .attrs = {{"shape", "of x", NEAP_ATTR_INTS, .required = true}},
  .infer = infer_grad_input,
  .cost = cost_grad_input,
  .sum = NEAP_SUM_LIBRARY,
  .grad_formula =
    "d.dy = FC(d.dx, w, axis = last(dy));"
    "d.w = FCGradWeight(d.dx, dy, axis = last(dy))",
  .kernels = (const neap_kernel[]){DNNL_KERNEL(grad_input, "Rw>R", "cr>s"),
                                   {.engine = NEAP_ENGINE_BLAS,
                                    .dtypes = NEAP_WIDE,
                                    .widens = true,
                                    .splits = {"Rw>R", "cr>s"},

                                    .run = run_grad_input},
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_WIDE,
                                    .widens = true,
                                    .splits = {"Rw>R", "cr>s"},

                                    .any_team = true,
                                    .run = run_grad_input},
                                   {0}},
  .cases = "{ {dy={4,5}, w={5,6}, shape={4,6}} }",
  .long_cases = "{ {dy={2,262144}, w={262144,4}, shape={2,4}} }",
};

static void cost_grad_weight(const neap_infer *c, neap_cost *cost) {
  cost->flops = 2.0 * (double)neap_shape_elems(&c->in[1].shape) * (double)c->out[0].shape.dim[1];
}

const neap_op neap_op_FCGradWeight = {
  .name = "FCGradWeight",
  .summary = "Gradients of FC with respect to w and b.",
  .math = "dw (N,K) = dy^T (N,M) x (M,K);  db (N) = sum_M dy",
  .internal = true,
  .inputs = {{"x", "(M,K)"}, {"dy", "(M,N)"}},
  .outputs = {{"dw", "(N,K)"}, {"db", "(N)", .flags = NEAP_ARG_OPTIONAL}},
  .attrs = {[AXIS] = AXIS_ATTR},
  .infer = infer_grad_weight,
  .cost = cost_grad_weight,
  .sum = NEAP_SUM_LIBRARY,
  .grad_formula =
    "w = given(d.dw, zeros(dw));"
    "d.x = FCGradInput(dy, w, shape = shape(x)); d.dy = FC(x, w, d.db, ..)",
  .kernels = (const neap_kernel[]){DNNL_KERNEL(grad_weight, "RR>ss", "wc>rr"),
                                   {.engine = NEAP_ENGINE_BLAS,
                                    .dtypes = NEAP_WIDE,
                                    .widens = true,
                                    .splits = {"RR>ss", "wc>rr"},
                                    .run = run_grad_weight},
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_WIDE,
                                    .widens = true,
                                    .splits = {"RR>ss", "wc>rr"},
                                    .any_team = true,
                                    .run = run_grad_weight},
                                   {0}},
  .cases = "{ {x={4,6}, dy={4,5}}, {x={40,6}, dy={40,300}, outputs=2, grad=false} }",
  .long_cases = "{ {x={262144,4}, dy={262144,4}, outputs=2} }",
};
