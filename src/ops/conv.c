/* conv.c: Conv in one, two or three spatial dimensions, and its two backward ops.
 *
 * x (N,C,...), weight (O,C/g,...), y (N,O,...), as in ONNX and PyTorch: a cross-correlation. As
 * with FC the backward is two ops, so that the first layer of a net computes no input gradient, and
 * so that x and w die apart. Kernels: oneDNN with its blocked layouts, a matrix product over
 * unrolled windows (conv_gemm.c), plain loops (conv_ref.c).
 */
#include "math/blas.h"
#include "ops/window.h"
#include "ops/tile.h"

enum { GROUPS = NEAP_CONV_GROUPS, SHAPE = NEAP_CONV_N_ATTR };

extern const neap_op neap_op_Conv, neap_op_ConvTranspose;

neap_status neap_conv_check_kernel(const neap_infer *c, neap_error *error) {
  const neap_shape *w = &c->in[1].shape;
  const neap_attr_value *kernel = &c->attrs[NEAP_WINDOW_KERNEL];
  char text_w[NEAP_SHAPE_TEXT];
  neap_shape_text(w, text_w);

  /* `kernel` only repeats what the weight says. One number is for all dimensions; a list that is
   * too long or short is told with the other lists (neap_window_check_lists). */
  for (int k = 0; k < w->n_dim - 2; k++) {
    if (kernel->n == 0 || (kernel->n > 1 && k >= kernel->n)) break;
    int64_t size = kernel->ints[kernel->n == 1 ? 0 : k];
    if (size != w->dim[2 + k])
      return neap_infer_fail(c, NEAP_SHAPE, 1, error,
                             "kernel = %lld expects a weight of that size, got %s", (long long)size,
                             text_w);
  }

  /* A window without elements reads nothing: no sum has a meaning then. */
  for (int k = 2; k < w->n_dim; k++)
    if (w->dim[k] < 1)
      return neap_infer_fail(c, NEAP_SHAPE, 1, error,
                             "weight expects a window of at least one element, got %s", text_w);
  return NEAP_OK;
}

neap_window neap_conv_window(const neap_op *op, const neap_attr_value *attrs, const neap_shape *x,
                             const neap_shape *y, const neap_shape *weight) {
  neap_window w = neap_window_of(attrs, x, y, weight->dim + 2);
  if (op == &neap_op_ConvTranspose) neap_conv_transpose_pads(attrs, &w);
  return w;
}

/* The weight fits x, and the attribute `kernel`, when given, fits the weight. */
static neap_status check_weight(const neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape, *w = &c->in[1].shape;
  char text[NEAP_SHAPE_TEXT], text_w[NEAP_SHAPE_TEXT];
  int64_t groups = c->attrs[GROUPS].i;
  NEAP_TRY(neap_infer_rank(c, 1, x->n_dim, x->n_dim, error));
  neap_shape_text(x, text);
  neap_shape_text(w, text_w);

  /* Each group reads its own C/g channels of x and makes its own O/g channels of y. */
  if (groups < 1 || w->dim[1] * groups != x->dim[1])
    return neap_infer_fail(c, NEAP_SHAPE, 1, error,
                           "weight %s expects %lld input channels, got x %s", text_w,
                           (long long)(w->dim[1] * groups), text);
  if (w->dim[0] % groups != 0)
    return neap_infer_fail(
      c, NEAP_SHAPE, 1, error,
      "groups = %lld expects a multiple of as many output channels, got weight %s",
      (long long)groups, text_w);

  return neap_conv_check_kernel(c, error);
}

/* x (N,C,...), weight (O,C/g,...) and bias (O), if any, give y (N,O,...). An error names the
 * operand that does not fit. */
neap_status neap_conv_infer(neap_infer *c, neap_error *error) {
  const neap_shape *b = &c->in[2].shape;
  char text[NEAP_SHAPE_TEXT];
  neap_window w;
  /* The weight is checked first, since its dimensions are the window's. */
  NEAP_TRY(neap_infer_same_dtype(c, 0, error));
  NEAP_TRY(neap_infer_rank(c, 0, 3, 5, error));
  NEAP_TRY(check_weight(c, error));
  NEAP_TRY(neap_window_infer(c, c->in[1].shape.dim + 2, false, &w, error));

  /* An input that is left out has no dtype. */
  if (c->n_in > 2 && c->in[2].dtype != NEAP_DTYPE_NONE &&
      (b->n_dim != 1 || b->dim[0] != c->in[1].shape.dim[0]))
    return neap_infer_fail(c, NEAP_SHAPE, 2, error, "bias expects shape (%lld), got %s",
                           (long long)c->in[1].shape.dim[0], neap_shape_text(b, text));
  c->out[0] = (neap_type){c->in[0].dtype, neap_window_shape(&w, c->in[1].shape.dim[0])};
  return NEAP_OK;
}

/* The attribute tells the shape that the operands do not; the forward, asked again, says whether
 * they belong together. */
static neap_status infer_grad_input(neap_infer *c, neap_error *error) {
  neap_type x, y = {0};
  NEAP_TRY(neap_infer_same_dtype(c, 0, error));
  NEAP_TRY(neap_infer_attr_type(c, SHAPE, &x, error));
  NEAP_TRY(neap_infer_forward(c, &neap_op_Conv, 2, (neap_type[]){x, c->in[1]}, 1, &y, error));
  NEAP_TRY(neap_infer_expect(c, 0, &y, error));
  c->out[0] = x;
  return NEAP_OK;
}

/* Likewise for w. db (O) has an element for each output channel. */
static neap_status infer_grad_weight(neap_infer *c, neap_error *error) {
  neap_type w, y = {0};
  NEAP_TRY(neap_infer_same_dtype(c, 0, error));
  NEAP_TRY(neap_infer_attr_type(c, SHAPE, &w, error));
  NEAP_TRY(neap_infer_forward(c, &neap_op_Conv, 2, (neap_type[]){c->in[0], w}, 1, &y, error));
  NEAP_TRY(neap_infer_expect(c, 1, &y, error));
  c->out[0] = w;
  if (c->n_out > 1) c->out[1] = (neap_type){c->in[0].dtype, NEAP_SHAPE(w.shape.dim[0])};
  return NEAP_OK;
}

/* 2 N O L C/g K, the same for all three. */
static double flops(const neap_shape *weight, const neap_shape *y) {
  return 2.0 * (double)neap_shape_elems(y) * (double)neap_shape_span(weight, 1, weight->n_dim);
}

void neap_conv_cost(const neap_infer *c, neap_cost *cost) {
  cost->flops = flops(&c->in[1].shape, &c->out[0].shape);
}
static void cost_grad_input(const neap_infer *c, neap_cost *cost) {
  cost->flops = flops(&c->in[1].shape, &c->in[0].shape);
}
static void cost_grad_weight(const neap_infer *c, neap_cost *cost) {
  cost->flops = flops(&c->out[0].shape, &c->in[1].shape);
}

/* What nobody wants is not computed, but dw comes along where only db is wanted: one op makes both
 * from dy. */
static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  neap_value_id x = g->in[0], w = g->in[1], dy = g->dout[0];
  bool want_bias = g->n_in > 2 && g->want[2];

  /* dx needs dy and w, but not x: x may die before, and its shape is an attribute. */
  if (g->want[0]) {
    neap_type type = neap_grad_type(g, x);
    g->din[0] =
      neap_grad_emit1(g, "ConvGradInput", 2, (neap_value_id[]){dy, w}, g,
                      (neap_set[]){NEAP_SET_INTS("shape", type.shape.n_dim, type.shape.dim), {0}});
  }

  /* dw and db need dy and x, but not w. */
  if (g->want[1] || want_bias) {
    neap_type type = neap_grad_type(g, w);
    neap_value_id out[2] = {NEAP_NO_VALUE, NEAP_NO_VALUE};
    neap_grad_emit(g, "ConvGradWeight", 2, (neap_value_id[]){x, dy}, want_bias ? 2 : 1, out, g,
                   (neap_set[]){NEAP_SET_INTS("shape", type.shape.n_dim, type.shape.dim), {0}});
    if (g->want[1]) g->din[1] = out[0];
    if (want_bias) g->din[2] = out[1];
  }
  return NEAP_OK;
}

/* ---- oneDNN ---------------------------------------------------------------------------------- */

/* Completes a problem whose operands are set: where x, weight and y stand differs by kind. */
void neap_conv_describe(neap_onednn_case *c, const neap_op *op, const neap_attr_value *attrs) {
  /* x, weight -> y */
  const neap_shape *x = &c->in[0].shape, *weight = &c->in[1].shape, *y = &c->out[0].shape;
  if (c->kind == NEAP_ONEDNN_CONV_GRAD_INPUT) { /* dy, weight -> dx */
    y = &c->in[0].shape;
    x = &c->out[0].shape;
  } else if (c->kind == NEAP_ONEDNN_CONV_GRAD_WEIGHT) { /* x, dy -> dweight */
    y = &c->in[1].shape;
    weight = &c->out[0].shape;
  }
  neap_window w = neap_conv_window(op, attrs, x, y, weight);
  neap_window_to_case(c, &w);
  c->groups = attrs[GROUPS].i;
}

/* Sums of more terms than oneDNN keeps the digits of: over a window of all channels that go in, or
 * that come out. */
static bool is_deep(const neap_choose *choose, neap_onednn_kind kind) {
  const neap_shape *w = &choose->in[1].shape;
  int64_t window = neap_shape_span(w, 2, w->n_dim);
  int64_t channels = kind == NEAP_ONEDNN_CONV ? w->dim[1] : w->dim[0] / choose->attrs[GROUPS].i;
  return neap_count_mul(channels, window) > NEAP_DEEP;
}

/* Groups whose channels fill no block of a layout: oneDNN then works in blocks of four or eight,
 * and with a window of one element a matrix product is several times faster (68 channels a group
 * on AVX-512: 97 against 20 Gflop/s). One channel a group is another matter. */
bool neap_conv_is_ragged(const neap_op *op, const neap_attr_value *attrs, const neap_type *in,
                         const neap_type *out) {
  enum { BLOCK = 16 };
  const neap_shape *x = &in[0].shape, *w = &in[1].shape;
  int64_t groups = attrs[GROUPS].i, group_o = w->dim[0] / groups;
  if (groups == 1 || w->dim[1] * group_o == 1) return false;
  if (w->dim[1] % BLOCK == 0 && group_o % BLOCK == 0) return false;
  neap_window window = neap_conv_window(op, attrs, x, &out[0].shape, w);
  return neap_window_is_pointwise(&window);
}

/* INVARIANT: choose and bind describe the same problem, so what was chosen is what gets built. */
static bool choose_dnnl(neap_choose *choose, neap_onednn_kind kind) {
  neap_onednn_case c = neap_dnnl_case_choose(choose, kind);
  neap_conv_describe(&c, choose->op, choose->attrs);
  return !is_deep(choose, kind) && neap_dnnl_choose(choose, &c);
}

static neap_status bind_dnnl(const neap_bind *bind, neap_onednn_kind kind, void **kernel,
                             neap_error *error) {
  neap_onednn_case c = neap_dnnl_case_bind(bind, kind);
  neap_conv_describe(&c, bind->op, bind->attrs);
  return neap_dnnl_bind(bind, &c, kernel, error);
}

static bool choose_forward(neap_choose *choose) {
  return !neap_conv_is_ragged(choose->op, choose->attrs, choose->in, choose->out) &&
         choose_dnnl(choose, NEAP_ONEDNN_CONV);
}

static neap_status bind_forward(const neap_bind *bind, void **kernel, neap_error *error) {
  return bind_dnnl(bind, NEAP_ONEDNN_CONV, kernel, error);
}

static bool choose_grad_input(neap_choose *choose) {
  return choose_dnnl(choose, NEAP_ONEDNN_CONV_GRAD_INPUT);
}

static neap_status bind_grad_input(const neap_bind *bind, void **kernel, neap_error *error) {
  return bind_dnnl(bind, NEAP_ONEDNN_CONV_GRAD_INPUT, kernel, error);
}

/* oneDNN adds up the rows of all images in f32, one after the other: so many at most on each
 * thread, whose sums it then adds. */
enum { MOST_ROWS = 1 << 14 };

/* db is not oneDNN's, which adds up all elements so: dy is read once more. */
static bool choose_grad_weight(neap_choose *choose) {
  neap_onednn_case c = neap_dnnl_case_choose(choose, NEAP_ONEDNN_CONV_GRAD_WEIGHT);
  const neap_shape *dy = &choose->in[1].shape;

  /* Rows of dy (N,O,..,W) that go into one element of dw: N times the planes' rows. */
  if (neap_shape_elems(dy) > 0) {
    int64_t n_row = neap_shape_elems(dy) / dy->dim[1] / dy->dim[dy->n_dim - 1];
    if (n_row > (int64_t)MOST_ROWS * choose->choice->n_thread) return false;
  }

  c.n_out = 1;
  neap_conv_describe(&c, choose->op, choose->attrs);
  if (!neap_dnnl_choose(choose, &c)) return false;
  /* db is summed over dy as it lies: in a layout that the sum knows, or not at all. */
  return choose->n_out < 2 || neap_window_side_by_side(&choose->choice->in[1], dy) > 0;
}

static neap_status bind_grad_weight(const neap_bind *bind, void **kernel, neap_error *error) {
  neap_onednn_case c = neap_dnnl_case_bind(bind, NEAP_ONEDNN_CONV_GRAD_WEIGHT);
  c.n_out = 1;
  neap_conv_describe(&c, bind->op, bind->attrs);
  return neap_dnnl_bind(bind, &c, kernel, error);
}

static void run_dnnl_grad_weight(const neap_call *call) {
  neap_dnnl_run(call);
  neap_conv_sum_bias(call);
}

#define DNNL_KERNEL(name, split, run_function)                                                   \
  {                                                                                              \
    .engine = NEAP_ENGINE_DNNL, .dtypes = NEAP_BIT(F32) | NEAP_HALVES, .widens = true,           \
    .splits = {split}, .choose = choose_##name, .bind = bind_##name, .unbind = neap_dnnl_unbind, \
    .run = (run_function)                                                                        \
  }

/* ---- records --------------------------------------------------------------------------------- */

const neap_op neap_op_Conv = {
  .name = "Conv",
  .summary = "Convolution (cross-correlation) over one, two or three spatial dimensions.",
  .math = "y[n,o,p] = b[o] + sum_{c,k} w[o,c,k] x[n,c, p stride - pad + k dilation]",
  .example = "net:Conv({\"x\", \"w\", \"b\"}, \"y\", {stride = 2, pad = 1})",
  .source = "ONNX Conv-11; Dumoulin and Visin, arXiv 1603.07285",
  .inputs = {{"x", "(N,C,H,W), or one or three spatial dimensions"},
             {"w", "(O,C/groups,KH,KW)"},
             {"b", "(O)", .flags = NEAP_ARG_OPTIONAL}},
  .outputs = {{"y", "(N,O,OH,OW)"}},
  .attrs = {NEAP_CONV_ATTRS},
  .infer = neap_conv_infer,
  .cost = neap_conv_cost,
  .grad = grad,
  .nan = NEAP_NAN_REACHES,
  .sum = NEAP_SUM_LIBRARY,
  .mixed = NEAP_MIXED_HALF,
  .kernels = (const neap_kernel[]){DNNL_KERNEL(forward, "Rww>R", neap_dnnl_run),
                                   {.engine = NEAP_ENGINE_BLAS,
                                    .dtypes = NEAP_WIDE,
                                    .widens = true,
                                    .splits = {"Rww>R"},
                                    .choose = neap_conv_gemm_choose,
                                    .run = neap_conv_gemm_forward},
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_WIDE,
                                    .widens = true,
                                    .splits = {"Rww>R"},
                                    .any_team = true,
                                    .run = neap_conv_ref_forward},
                                   {0}},
  .cases =
    "{ {x={2,3,6,7}, w={4,3,3,3}, b={4}, pad={1}}, {x={2,4,5,6}, w={6,2,3,2}, stride={2,1}, "
    "pad={1,0}, groups=2},"
    " {x={1,2,9,7}, w={3,2,5,2}, b={3}, stride={3,1}, pad={2,0,1,1}, dilation={1,2}}, {x={2,3,13}, "
    "w={4,3,3}, stride={2}, "
    "dilation={2}},"
    " {x={1,4,4,4,4}, w={4,2,2,2,2}, groups=2}, {x={1,20,3,4}, w={24,5,1,1}, b={24}, "
    "groups=4}, {x={2,20,6,6}, w={50,20,3,3}, b={50}}, "
    "{x={2,6,5,5}, w={6,1,3,3}, pad={1}, "
    "groups=6} }",
  .long_cases = "{ {x={1,262144,2,2}, w={2,262144,1,1}} }",
};

const neap_op neap_op_ConvGradInput = {
  .name = "ConvGradInput",
  .summary = "Gradient of Conv with respect to x.",
  .math = "dx[n,c,i] = sum over o, k and the outputs p that read i with k of w[o,c,k] dy[n,o,p]",
  .internal = true,
  .inputs = {{"dy", "(N,O,OH,OW)"}, {"w", "(O,C/groups,KH,KW)"}},
  .outputs = {{"dx", "shape of x"}},
  .attrs = {NEAP_CONV_ATTRS, [SHAPE] = {"shape", "of x", NEAP_ATTR_INTS, .required = true}},
  .infer = infer_grad_input,
  .cost = cost_grad_input,
  .nan = NEAP_NAN_REACHES,
  .sum = NEAP_SUM_LIBRARY,
  .grad_formula = "d.dy = Conv(d.dx, w, ..); d.w = ConvGradWeight(d.dx, dy, .., shape = shape(w))",
  .kernels = (const neap_kernel[]){DNNL_KERNEL(grad_input, "Rw>R", neap_dnnl_run),
                                   {.engine = NEAP_ENGINE_BLAS,
                                    .dtypes = NEAP_WIDE,
                                    .widens = true,
                                    .splits = {"Rw>R"},
                                    .choose = neap_conv_gemm_choose_grad_input,
                                    .run = neap_conv_gemm_grad_input},
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_WIDE,
                                    .widens = true,
                                    .splits = {"Rw>R"},
                                    .any_team = true,
                                    .run = neap_conv_ref_grad_input},
                                   {0}},
  .cases =
    "{ {dy={2,4,3,4}, w={4,3,3,3}, pad={1}, stride={2}, shape={2,3,6,7}}, {dy={2,50,4,4}, "
    "w={50,20,3,3}, shape={2,20,6,6}} }",
  .long_cases = "{ {dy={1,262144,2,2}, w={262144,2,1,1}, shape={1,2,2,2}} }",
};

const neap_op neap_op_ConvGradWeight = {
  .name = "ConvGradWeight",
  .summary = "Gradients of Conv with respect to w and b.",
  .math =
    "dw[o,c,k] = sum_{n,p} dy[n,o,p] x[n,c, p stride - pad + k dilation];  db[o] = sum_{n,p} "
    "dy[n,o,p]",
  .internal = true,
  .inputs = {{"x", "(N,C,H,W)"}, {"dy", "(N,O,OH,OW)"}},
  .outputs = {{"dw", "shape of w"}, {"db", "(O)", .flags = NEAP_ARG_OPTIONAL}},
  .attrs = {NEAP_CONV_ATTRS, [SHAPE] = {"shape", "of w", NEAP_ATTR_INTS, .required = true}},
  .infer = infer_grad_weight,
  .cost = cost_grad_weight,
  .nan = NEAP_NAN_REACHES,
  .sum = NEAP_SUM_LIBRARY,
  .grad_formula =
    "w = given(d.dw, zeros(dw));"
    "d.x = ConvGradInput(dy, w, .., shape = shape(x)); d.dy = Conv(x, w, d.db, ..)",
  .kernels = (const neap_kernel[]){DNNL_KERNEL(grad_weight, "RR>ss", run_dnnl_grad_weight),
                                   {.engine = NEAP_ENGINE_BLAS,
                                    .dtypes = NEAP_WIDE,
                                    .widens = true,
                                    .splits = {"RR>ss"},
                                    .choose = neap_conv_gemm_choose_grad_weight,
                                    .run = neap_conv_gemm_grad_weight},
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_WIDE,
                                    .widens = true,
                                    .splits = {"RR>ss"},
                                    .any_team = true,
                                    .run = neap_conv_ref_grad_weight},
                                   {0}},
  .cases =
    "{ {x={2,3,6,7}, dy={2,4,3,4}, pad={1}, stride={2}, shape={4,3,3,3}}, {x={2,20,6,6}, "
    "dy={2,50,4,4}, shape={50,20,3,3}} }",
  .long_cases =
    "{ {x={{64,3,64,64}, low=0, high=1}, dy={64,16,64,64}, shape={16,3,1,1}, outputs=2, tol=1e-5}, "
    "{x={{64,2,64,64}, low=0, high=1}, dy={64,20,62,62}, shape={20,2,3,3}, outputs=2, tol=1e-5}, "
    "{x={2,2,262144}, dy={2,3,262144}, shape={3,2,1}, outputs=2} }",
};
