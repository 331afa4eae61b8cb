/* conv_transpose.c: ConvTranspose, the gradient of a convolution as an op of its own.
 *
 * x (N,C,...), weight (C,O/g,...), y (N,O,...): what ConvGradInput computes when x stands in the
 * place of dy, so its kernels are those of ConvGradInput with a bias behind them, and its gradient
 * is Conv and ConvGradWeight. In its window, which slides over y and would give x, only the padding
 * in front is used; what is behind follows from the size of y.
 */
#include "ops/window.h"

enum { GROUPS = NEAP_CONV_GROUPS, OUTPUT_PADDING = NEAP_CONV_N_ATTR, OUTPUT_SHAPE };

/* ---- shapes ---------------------------------------------------------------------------------- */

/* Item i of a list of none, one for all dimensions, or one each. */
static int64_t item(const neap_attr_value *list, int i) {
  return list->n == 0 ? 0 : list->ints[list->n == 1 ? 0 : i];
}

/* How far n windows of dimension d reach. */
static int64_t reach(const neap_window *w, int d, int64_t n) {
  int64_t window = neap_count_add(neap_count_mul(w->kernel[d] - 1, w->dilation[d]), 1);
  return neap_count_add(neap_count_mul(n - 1, w->stride[d]), window);
}

/* y is in the window's place of x. A size that was asked for takes from the reach as much as it is
 * shorter, the larger half in front. */
void neap_conv_transpose_pads(const neap_attr_value *attrs, neap_window *w) {
  for (int d = 3 - w->n; d < 3; d++) {
    int64_t whole = reach(w, d, w->out[d]);
    /* How much shorter than the reach y was asked to be; longer means no padding in front. */
    if (attrs[OUTPUT_SHAPE].n > 0) {
      int64_t less = whole + item(&attrs[OUTPUT_PADDING], d - (3 - w->n)) - w->in[d];
      w->begin[d] = NEAP_MAX(less - less / 2, 0);
    }
    /* What is left of the reach lies behind, less than 0 where y goes on behind all windows. */
    w->end[d] = whole - w->begin[d] - w->in[d];
  }
}

/* The two lists of its own have an item for each dimension; `output_padding` may have one. */
static neap_status check_lists(const neap_infer *c, int n, neap_error *error) {
  const neap_attr_value *padding = &c->attrs[OUTPUT_PADDING], *shape = &c->attrs[OUTPUT_SHAPE];
  NEAP_TRY(neap_window_check_lists(c, n, error));
  /* Of the other attributes Conv's own check has spoken. */
  if (padding->n > 1 && padding->n != n)
    return neap_infer_fail(
      c, NEAP_ATTRIBUTE, 0, error,
      "output_padding expects 1 or %d values for %d spatial dimensions, got %d", n, n, padding->n);
  if (shape->n != 0 && shape->n != n)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                           "output_shape expects %d values, the spatial sizes of y, got %d", n,
                           shape->n);
  return NEAP_OK;
}

static neap_status check_weight(const neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape, *w = &c->in[1].shape;
  int64_t groups = c->attrs[GROUPS].i;
  char text[NEAP_SHAPE_TEXT], text_w[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_rank(c, 1, x->n_dim, x->n_dim, error));
  /* The weight is that of the convolution whose gradient this is, which gives x's channels. */
  if (w->dim[0] != x->dim[1])
    return neap_infer_fail(
      c, NEAP_SHAPE, 1, error, "weight %s expects %lld input channels, got x %s",
      neap_shape_text(w, text_w), (long long)w->dim[0], neap_shape_text(x, text));
  /* Each group takes as many channels of x. */
  if (groups < 1 || w->dim[0] % groups != 0)
    return neap_infer_fail(c, NEAP_SHAPE, 1, error,
                           "groups = %lld expects a multiple of as many input channels, got weight "
                           "%s",
                           (long long)groups, neap_shape_text(w, text_w));
  return neap_conv_check_kernel(c, error);
}

/* The size of y in one dimension is what the windows of x reach without the padding, and the extra
 * elements behind; or it is said. */
static neap_status infer(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[0].shape, *weight = &c->in[1].shape, *b = &c->in[2].shape;
  const neap_attr_value *sizes = &c->attrs[OUTPUT_SHAPE];
  char text[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_same_dtype(c, 0, error));
  NEAP_TRY(neap_infer_rank(c, 0, 3, 5, error));
  NEAP_TRY(check_weight(c, error));
  NEAP_TRY(check_lists(c, x->n_dim - 2, error));
  /* y's channels; its sizes follow, dimension by dimension. */
  int64_t n_out = neap_count_mul(weight->dim[1], c->attrs[GROUPS].i);

  /* w.in is the size of x here, whose elements are the windows; y has no size yet. */
  neap_window w = neap_window_of(c->attrs, x, NULL, weight->dim + 2);
  neap_shape y = {.n_dim = x->n_dim, .dim = {x->dim[0], n_out}};
  for (int i = 0; i < w.n; i++) {
    int d = 3 - w.n + i;
    int64_t extra = item(&c->attrs[OUTPUT_PADDING], i), size = reach(&w, d, w.in[d]);
    int64_t step = NEAP_MAX(w.stride[d], w.dilation[d]);
    /* Without an element there is no window, so no reach. */
    if (w.in[d] < 1)
      return neap_infer_fail(c, NEAP_SHAPE, 0, error,
                             "x expects at least one element in each spatial dimension, got %s",
                             neap_shape_text(x, text));
    /* More than a stride behind would be another window's, but for holes that dilation leaves. */
    if (extra > 0 && extra >= step)
      return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                             "output_padding expects less than stride or dilation, %lld, got %lld",
                             (long long)step, (long long)extra);
    /* The same of a size that is said: pads are not negative, and padding alone makes no y. */
    if (sizes->n > 0 && sizes->ints[i] >= neap_count_add(size, step))
      return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                             "output_shape expects at most %lld in spatial dimension %d, what the "
                             "windows reach and output_padding may add, got %lld",
                             (long long)neap_count_add(size, step) - 1, i + 1,
                             (long long)sizes->ints[i]);
    /* As asked for, or what the windows reach without padding. */
    size = sizes->n > 0 ? sizes->ints[i] : neap_count_add(size, extra) - w.begin[d] - w.end[d];
    if (size < 1)
      return neap_infer_fail(c, NEAP_SHAPE, 0, error,
                             "pad leaves no element of y in spatial dimension %d for x %s", i + 1,
                             neap_shape_text(x, text));
    y.dim[2 + i] = size;
  }

  /* The bias is optional, one number for each channel of y. */
  if (c->n_in > 2 && c->in[2].dtype != NEAP_DTYPE_NONE && (b->n_dim != 1 || b->dim[0] != n_out))
    return neap_infer_fail(c, NEAP_SHAPE, 2, error, "bias expects shape (%lld), got %s",
                           (long long)n_out, neap_shape_text(b, text));
  c->out[0] = (neap_type){c->in[0].dtype, y};
  return NEAP_OK;
}

/* 2 N C L O/g K, as its gradients. */
static void cost(const neap_infer *c, neap_cost *cost) {
  const neap_shape *w = &c->in[1].shape;
  cost->flops =
    2.0 * (double)neap_shape_elems(&c->in[0].shape) * (double)neap_shape_span(w, 1, w->n_dim);
}

/* ---- gradient -------------------------------------------------------------------------------- */

/* dy without the elements behind all windows, which got the bias alone. Too few of them for one
 * window more are no matter. */
static neap_value_id cut(neap_grad *g, const neap_window *w) {
  int64_t axes[3], starts[3], ends[3];
  int n = 0;
  for (int d = 3 - w->n; d < 3; d++) {
    /* Less than a stride is left over: Conv itself passes over it. */
    if (w->end[d] > -w->stride[d]) continue;
    axes[n] = 2 + d - (3 - w->n), starts[n] = 0,
    ends[n] = w->in[d] + w->end[d]; /* of Slice: the last one, from 1 */
    n++;
  }
  if (n == 0) return g->dout[0];
  return neap_grad_emit1(g, "Slice", 1, g->dout, NULL,
                         (neap_set[]){NEAP_SET_INTS("starts", n, starts),
                                      NEAP_SET_INTS("ends", n, ends),
                                      NEAP_SET_INTS("axes", n, axes),
                                      {0}});
}

/* x = Conv(y) with this window: dx is Conv of dy, dw the weight's gradient where dy is what the
 * window slides over. */
static neap_status grad(neap_grad *g, neap_error *error) {
  (void)error;
  neap_type x = neap_grad_type(g, g->in[0]), weight = neap_grad_type(g, g->in[1]),
            y = neap_grad_type(g, g->out[0]);
  neap_window w = neap_conv_window(g->op, g->attrs, &y.shape, &x.shape, &weight.shape);
  /* The padding of that Conv: as here, and behind never less than nothing, since dy was cut. */
  int64_t pad[6];
  for (int i = 0; i < w.n; i++) {
    pad[i] = w.begin[3 - w.n + i];
    pad[w.n + i] = NEAP_MAX(w.end[3 - w.n + i], 0);
  }
  neap_value_id dy = g->want[0] || g->want[1] ? cut(g, &w) : NEAP_NO_VALUE;
  if (g->want[0])
    g->din[0] = neap_grad_emit1(g, "Conv", 2, (neap_value_id[]){dy, g->in[1]}, g,
                                (neap_set[]){NEAP_SET_INTS("pad", 2 * w.n, pad), {0}});
  if (g->want[1])
    g->din[1] =
      neap_grad_emit1(g, "ConvGradWeight", 2, (neap_value_id[]){dy, g->in[0]}, g,
                      (neap_set[]){NEAP_SET_INTS("pad", 2 * w.n, pad),
                                   NEAP_SET_INTS("shape", weight.shape.n_dim, weight.shape.dim),
                                   {0}});
  /* The bias is added to every element of its channel: all dimensions but that one are summed. */
  if (g->n_in > 2 && g->want[2]) {
    int64_t axes[4] = {0, 2, 3, 4};
    g->din[2] = neap_grad_emit1(g, "Sum", 1, g->dout, NULL,
                                (neap_set[]){NEAP_SET_INTS("axes", y.shape.n_dim - 1, axes), {0}});
  }
  return NEAP_OK;
}

/* ---- kernels --------------------------------------------------------------------------------- */

static void run_ref(const neap_call *call) {
  neap_conv_ref_grad_input(call);
  neap_conv_add_bias(call);
}

static void run_gemm(const neap_call *call) {
  neap_conv_gemm_grad_input(call);
  neap_conv_add_bias(call);
}

static void run_dnnl(const neap_call *call) {
  neap_dnnl_run(call);
  neap_conv_add_bias(call);
}

/* oneDNN knows nothing of the bias, which is added to y in a layout that the loop knows. */
static bool choose_dnnl(neap_choose *choose) {
  neap_onednn_case c = neap_dnnl_case_choose(choose, NEAP_ONEDNN_CONV_GRAD_INPUT);
  const neap_shape *w = &choose->in[1].shape;
  /* Sums are over O/g channels and the window: too long, they lose digits in oneDNN. */
  int64_t window = neap_shape_span(w, 2, w->n_dim);
  if (neap_count_mul(w->dim[0] / choose->attrs[GROUPS].i, window) > NEAP_DEEP) return false;
  c.n_in = 2;
  neap_conv_describe(&c, choose->op, choose->attrs);
  return neap_dnnl_choose(choose, &c) &&
         neap_window_side_by_side(&choose->choice->out[0], &choose->out[0].shape) > 0;
}

static neap_status bind_dnnl(const neap_bind *bind, void **kernel, neap_error *error) {
  neap_onednn_case c = neap_dnnl_case_bind(bind, NEAP_ONEDNN_CONV_GRAD_INPUT);
  c.n_in = 2;
  neap_conv_describe(&c, bind->op, bind->attrs);
  return neap_dnnl_bind(bind, &c, kernel, error);
}

const neap_op neap_op_ConvTranspose = {
  .name = "ConvTranspose",
  .summary = "Transposed convolution over one, two or three spatial dimensions.",
  .math = "y[n,o, p stride - pad + k dilation] = b[o] + sum over c, p and k of x[n,c,p] w[c,o,k]",
  .example = "net:ConvTranspose({\"x\", \"w\", \"b\"}, \"y\", {stride = 2, pad = 1})",
  .source =
    "ONNX ConvTranspose-11; PyTorch conv_transpose2d; Dumoulin and Visin, arXiv 1603.07285, "
    "section 4",
  .inputs = {{"x", "(N,C,H,W), or one or three spatial dimensions"},
             {"w", "(C,O/groups,KH,KW)"},
             {"b", "(O)", .flags = NEAP_ARG_OPTIONAL}},
  .outputs = {{"y", "(N,O,OH,OW)"}},
  .attrs = {NEAP_CONV_ATTRS,
            [OUTPUT_PADDING] = {"output_padding",
                                "elements more at the end of y, one for all dimensions or one each",
                                NEAP_ATTR_INTS, .most = 1 << 20},
            [OUTPUT_SHAPE] = {"output_shape",
                              "spatial sizes of y, from which pad is found; its odd one in front",
                              NEAP_ATTR_INTS, .least = 1, .most = 1 << 30, .unlike_default = true}},
  .infer = infer,
  .cost = cost,
  .grad = grad,
  .nan = NEAP_NAN_REACHES,
  .sum = NEAP_SUM_LIBRARY,
  .mixed = NEAP_MIXED_HALF,
  .kernels = (const neap_kernel[]){{.engine = NEAP_ENGINE_DNNL,
                                    .dtypes = NEAP_BIT(F32),
                                    .widens = true,
                                    .splits = {"Rww>R"},
                                    .choose = choose_dnnl,
                                    .bind = bind_dnnl,
                                    .unbind = neap_dnnl_unbind,
                                    .run = run_dnnl},
                                   {.engine = NEAP_ENGINE_BLAS,
                                    .dtypes = NEAP_WIDE,
                                    .widens = true,
                                    .splits = {"Rww>R"},
                                    .choose = neap_conv_gemm_choose_grad_input,
                                    .run = run_gemm},
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_WIDE,
                                    .widens = true,
                                    .splits = {"Rww>R"},
                                    .any_team = true,
                                    .run = run_ref},
                                   {0}},
  .cases =
    "{ {x={2,4,3,4}, w={4,3,3,3}, b={3}, pad={1}, stride={2}}, {x={2,4,5}, w={4,2,3}, "
    "dilation={2}}, "
    "{x={1,4,3,3}, w={4,3,2,3}, b={6}, groups=2, stride={2,3}, pad={0,1,1,0}, "
    "output_padding={1,2}}, "
    "{x={1,2,3}, w={2,3,2}, b={3}, dilation={3}, output_padding={2}}, "
    "{x={1,1,3,3}, w={1,2,3,3}, b={2}, stride={3,2}, output_shape={10,8}}, "
    "{x={1,2,3,2}, w={2,2,3,3}, stride={2}, output_shape={6,4}}, "
    "{x={1,2,2,2,2}, w={2,3,2,2,2}, b={3}, stride={2}}, {x={2,20,4,4}, w={20,24,3,3}, b={24}}, "
    "{x={0,2,3}, w={2,3,3}, b={3}} }",
  .long_cases = "{ {x={1,262144,2,2}, w={262144,2,1,1}} }",
};
