/* fused.c: FusedConv and FusedFC: a product, a residual and an activation as one op, so that what
 * lies between them is never a value of its own. See fused.h for what holds. */
#include "ops/fused.h"

#include "ops/window.h"
#include "ops/tile.h"

enum { CONV_ACTIVATION = NEAP_CONV_N_ATTR };
enum { FC_AXIS, FC_ACTIVATION };

/* ---- residual and activation ----------------------------------------------------------------- */

extern const neap_op neap_op_Relu, neap_op_Relu6, neap_op_Sigmoid, neap_op_Tanh, neap_op_Silu,
  neap_op_Gelu;

/* ORDER ACTIVATION. `variant` is attribute 0 of the op, where it has one. */
static const struct {
  const neap_op *op;
  int64_t variant;
} activations[NEAP_N_ACTIVATION] = {
  [NEAP_ACTIVATION_RELU] = {&neap_op_Relu, 0},       [NEAP_ACTIVATION_RELU6] = {&neap_op_Relu6, 0},
  [NEAP_ACTIVATION_SIGMOID] = {&neap_op_Sigmoid, 0}, [NEAP_ACTIVATION_TANH] = {&neap_op_Tanh, 0},
  [NEAP_ACTIVATION_SILU] = {&neap_op_Silu, 0},       [NEAP_ACTIVATION_GELU] = {&neap_op_Gelu, 0},
  [NEAP_ACTIVATION_GELU_TANH] = {&neap_op_Gelu, 1},
};

neap_activation neap_activation_of(const neap_op *op, const neap_attr_value *attrs) {
  /* Of Gelu its variant decides; the others have no attribute. */
  for (int a = 1; a < NEAP_N_ACTIVATION; a++)
    if (activations[a].op == op &&
        (neap_op_n_attrs(op) == 0 || attrs[0].i == activations[a].variant))
      return (neap_activation)a;
  return NEAP_ACTIVATION_NONE;
}

/* The copy is of all bytes, padding lanes too: z has the layout of y. */
void neap_fused_begin(const neap_call *call) {
  if (!neap_fused_adds(call)) return;
  const neap_operand *z = &call->in[NEAP_FUSED_Z], *y = &call->out[0];
  /* In place nothing is to be done. */
  if (y->data != z->data)
    neap_copy_bytes(y->data, z->data, neap_layout_bytes(&y->type, &y->layout));
}

/* The op's `ref` kernel, last in its list, as if it ran in place. */
void neap_fused_end(const neap_call *call, neap_activation activation) {
  if (activation == NEAP_ACTIVATION_NONE) return;
  const neap_op *op = activations[activation].op;
  const neap_kernel *kernel = op->kernels;
  while (kernel->engine != NEAP_ENGINE_REF) kernel++;
  /* Activations have one attribute at most: their variant. */
  neap_attr_value attrs[NEAP_OP_MAX_ATTR] = {{.i = activations[activation].variant}};
  /* y is input and output, in whatever layout the product has left. */
  neap_operand y = call->out[0];
  const neap_choice choice = {.engine = NEAP_ENGINE_REF,
                              .n_thread = call->choice->n_thread,
                              .in = &y.layout,
                              .out = &y.layout};
  neap_call inner = *call;
  inner.op = op, inner.attrs = attrs, inner.kernel = NULL, inner.scratch = NULL;
  inner.n_in = inner.n_out = 1, inner.in = inner.out = &y, inner.choice = &choice;
  neap_kernel_run(kernel, &inner);
}

neap_status neap_fused_check_z(const neap_infer *c, neap_error *error) {
  char text[NEAP_SHAPE_TEXT], text_y[NEAP_SHAPE_TEXT];
  if (c->n_in <= NEAP_FUSED_Z || c->in[NEAP_FUSED_Z].dtype == NEAP_DTYPE_NONE ||
      neap_type_equal(&c->in[NEAP_FUSED_Z], &c->out[0]))
    return NEAP_OK;
  return neap_infer_fail(c, NEAP_SHAPE, NEAP_FUSED_Z, error, "z expects the shape of y, %s, got %s",
                         neap_shape_text(&c->out[0].shape, text_y),
                         neap_shape_text(&c->in[NEAP_FUSED_Z].shape, text));
}

/* ---- FusedConv ------------------------------------------------------------------------------- */

/* As Conv, and z like y. */
static neap_status infer_conv(neap_infer *c, neap_error *error) {
  NEAP_TRY(neap_conv_infer(c, error));
  return neap_fused_check_z(c, error);
}

static neap_activation conv_activation(const neap_attr_value *attrs) {
  return (neap_activation)attrs[CONV_ACTIVATION].i;
}

/* z into y, the convolution added to it, the activation on the sum: the order in all run functions
 * here. */
static void run_conv_ref(const neap_call *call) {
  neap_fused_begin(call);
  neap_conv_ref_forward(call);
  neap_fused_end(call, conv_activation(call->attrs));
}

static void run_conv_gemm(const neap_call *call) {
  neap_fused_begin(call);
  neap_conv_gemm_forward(call);
  neap_fused_end(call, conv_activation(call->attrs));
}

static bool has_z(int n_in, const neap_type *in) {
  return n_in > NEAP_FUSED_Z && in[NEAP_FUSED_Z].dtype != NEAP_DTYPE_NONE;
}

/* What oneDNN knows of it: x, w, b; y holds z already. */
static void describe(neap_onednn_case *c, const neap_op *op, const neap_attr_value *attrs) {
  /* oneDNN adds to what y holds, and is not told of z as an input. */
  c->add = has_z(c->n_in, c->in);
  c->n_in = NEAP_MIN(c->n_in, NEAP_FUSED_Z);
  neap_conv_describe(c, op, attrs);
}

/* The activation is a pass of its own, since oneDNN's relu loses NaN: a tenth of the convolution's
 * time or less where that is a 3 x 3 of 64 channels. Padding lanes must be zero, so one that does
 * not keep zero is for whole blocks only. */
static bool choose_conv_dnnl(neap_choose *choose) {
  if (!neap_activation_keeps_zero(conv_activation(choose->attrs)) &&
      choose->out[0].shape.dim[1] % 16 != 0)
    return false;
  if (neap_conv_is_ragged(choose->op, choose->attrs, choose->in, choose->out)) return false;
  neap_onednn_case c = neap_dnnl_case_choose(choose, NEAP_ONEDNN_CONV);
  describe(&c, choose->op, choose->attrs);
  if (!neap_dnnl_choose(choose, &c)) return false;
  /* z is copied into y byte by byte: it comes in y's layout. */
  if (has_z(choose->n_in, choose->in)) choose->choice->in[NEAP_FUSED_Z] = choose->choice->out[0];
  return true;
}

static neap_status bind_conv_dnnl(const neap_bind *bind, void **kernel, neap_error *error) {
  neap_onednn_case c = neap_dnnl_case_bind(bind, NEAP_ONEDNN_CONV);
  describe(&c, bind->op, bind->attrs);
  return neap_dnnl_bind(bind, &c, kernel, error);
}

static void run_conv_dnnl(const neap_call *call) {
  neap_fused_begin(call);
  neap_dnnl_run(call);
  neap_fused_end(call, conv_activation(call->attrs));
}

const neap_op neap_op_FusedConv = {
  .name = "FusedConv",
  .summary = "Conv, a residual and an activation in one; made from them in nets that do not train.",
  .math = "y = activation(Conv(x, w, b) + z)",
  .source = "Conv's sources; He et al., arXiv 1512.03385, figure 2, for the residual",
  .internal = true,
  .inputs = {[NEAP_FUSED_X] = {"x", "(N,C,H,W), or one or three spatial dimensions"},
             [NEAP_FUSED_W] = {"w", "(O,C/groups,KH,KW)"},
             [NEAP_FUSED_B] = {"b", "(O)", .flags = NEAP_ARG_OPTIONAL},
             [NEAP_FUSED_Z] = {"z", "shape of y", .flags = NEAP_ARG_OPTIONAL}},
  .outputs = {{"y", "(N,O,OH,OW)"}},
  .attrs = {NEAP_CONV_ATTRS, [CONV_ACTIVATION] = NEAP_ACTIVATION_ATTR},
  .inplace = {{NEAP_FUSED_Z, 0}},
  .n_inplace = 1,
  .infer = infer_conv,
  .cost = neap_conv_cost,
  .nan = NEAP_NAN_REACHES,
  .sum = NEAP_SUM_LIBRARY,
  .no_grad = true,
  .kernels = (const neap_kernel[]){{.engine = NEAP_ENGINE_DNNL,
                                    .dtypes = NEAP_BIT(F32) | NEAP_HALVES,
                                    .widens = true,
                                    .splits = {"RwwR>R"},
                                    .choose = choose_conv_dnnl,
                                    .bind = bind_conv_dnnl,
                                    .unbind = neap_dnnl_unbind,
                                    .run = run_conv_dnnl},
                                   {.engine = NEAP_ENGINE_BLAS,
                                    .dtypes = NEAP_WIDE,
                                    .widens = true,
                                    .splits = {"RwwR>R"},
                                    .choose = neap_conv_gemm_choose,
                                    .run = run_conv_gemm},
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_WIDE,
                                    .widens = true,
                                    .splits = {"RwwR>R"},
                                    .any_team = true,
                                    .run = run_conv_ref},
                                   {0}},
  .cases =
    "{ {x={2,3,6,7}, w={4,3,3,3}, b={4}, pad={1}, activation=\"relu\"},"
    " {x={2,20,6,6}, w={50,20,3,3}, b={50}, z={2,50,4,4}, activation=\"relu\"},"
    " {x={2,16,6,6}, w={32,16,3,3}, b={32}, z={2,32,6,6}, pad={1}, activation=\"relu\"},"
    " {x={8,32,16,16}, w={32,32,3,3}, z={8,32,16,16}, pad={1}, activation=\"relu\"},"
    " {x={2,16,5,5}, w={16,16,1,1}, z={2,16,5,5}}, {x={2,16,5,5}, w={32,16,1,1}, b={32}, "
    "activation=\"sigmoid\"},"
    " {x={2,4,5,5}, w={5,4,1,1}, b={5}, activation=\"sigmoid\"}, {x={2,4,5,6}, w={6,2,3,2}, "
    "groups=2, activation=\"tanh\"},"
    " {x={2,20,3,4}, w={24,5,1,1}, b={24}, z={2,24,3,4}, groups=4, activation=\"relu\"},"
    " {x={2,6,5,5}, w={6,1,3,3}, pad={1}, groups=6, activation=\"relu6\"}, {x={1,4,9}, w={8,4,3}, "
    "activation=\"silu\"},"
    " {x={2,3,6,7}, w={4,3,3,3}, activation=\"gelu\"}, {x={2,3,6,7}, w={4,3,3,3}, "
    "activation=\"gelu_tanh\"} }",
  .long_cases = "{ {x={1,262144,2,2}, w={2,262144,1,1}} }",
};

/* ---- FusedFC --------------------------------------------------------------------------------- */

/* As FC, and z like y. */
static neap_status infer_fc(neap_infer *c, neap_error *error) {
  NEAP_TRY(neap_fc_infer(c, error));
  return neap_fused_check_z(c, error);
}

static void run_fc(const neap_call *call) {
  neap_fused_begin(call);
  neap_fc_run(call);
  neap_fused_end(call, (neap_activation)call->attrs[FC_ACTIVATION].i);
}

/* What oneDNN knows of it: x, w, b, and that y may hold z already. */
static void describe_fc(neap_onednn_case *c) {
  c->add = has_z(c->n_in, c->in);
  c->n_in = NEAP_MIN(c->n_in, NEAP_FUSED_Z);
}

/* As for FC; but where z is added the product is always taken, since y holds z. A choice to be like
 * decides before the number of rows does. */
static bool choose_fc_dnnl(neap_choose *choose) {
  const bool adds = has_z(choose->n_in, choose->in), is_half = neap_is_half(choose->in[0].dtype);
  const int64_t columns = choose->in[NEAP_FUSED_W].shape.dim[0];
  bool by_rule = adds || neap_fc_has_few_rows(&choose->out[0], columns);
  /* Of halves oneDNN has the primitive alone, which takes any rows and adds to what y holds; of
   * deep sums it keeps too few digits. */
  if (is_half) {
    if (columns == 0 || choose->in[NEAP_FUSED_W].shape.dim[1] > NEAP_DEEP) return false;
    by_rule = false;
  }
  bool by_product = by_rule;
  if (choose->like != NULL) by_product = choose->like->algorithm == NEAP_FC_PRODUCT;
  /* Who asks for an algorithm may ask for one that there is not. */
  if (by_product != by_rule && (is_half || adds)) return false;

  neap_onednn_case c = neap_dnnl_case_choose(choose, NEAP_ONEDNN_FC);
  describe_fc(&c);
  return neap_fc_settle(choose, &c, by_product, adds ? "it adds to what its output holds" : NULL);
}

static neap_status bind_fc_dnnl(const neap_bind *bind, void **kernel, neap_error *error) {
  neap_onednn_case c = neap_dnnl_case_bind(bind, NEAP_ONEDNN_FC);
  describe_fc(&c);
  return neap_fc_bind(bind, &c, kernel, error);
}

/* The primitive has z of halves alone: see choose_fc_dnnl. */
static void run_fc_dnnl(const neap_call *call) {
  if (call->choice->algorithm == NEAP_FC_PRODUCT) {
    run_fc(call);
    return;
  }
  neap_fused_begin(call);
  neap_dnnl_run(call);
  neap_fused_end(call, (neap_activation)call->attrs[FC_ACTIVATION].i);
}

const neap_op neap_op_FusedFC = {
  .name = "FusedFC",
  .summary = "FC, a residual and an activation in one; made from them in nets that do not train.",
  .math = "y = activation(FC(x, w, b) + z)",
  .source = "FC's sources",
  .internal = true,
  .inputs = {[NEAP_FUSED_X] = {"x", "(M,K); leading dimensions are rows"},
             [NEAP_FUSED_W] = {"w", "(N,K)"},
             [NEAP_FUSED_B] = {"b", "(N)", .flags = NEAP_ARG_OPTIONAL},
             [NEAP_FUSED_Z] = {"z", "(M,N)", .flags = NEAP_ARG_OPTIONAL}},
  .outputs = {{"y", "(M,N)"}},
  .attrs = {[FC_AXIS] = {"axis", "first of the dimensions that are features", NEAP_ATTR_AXIS,
                         .value = {.i = -1}},
            [FC_ACTIVATION] = NEAP_ACTIVATION_ATTR},
  .inplace = {{NEAP_FUSED_Z, 0}},
  .n_inplace = 1,
  .infer = infer_fc,
  .cost = neap_fc_cost,
  .sum = NEAP_SUM_LIBRARY,
  .no_grad = true,
  .kernels = (const neap_kernel[]){{.engine = NEAP_ENGINE_DNNL,
                                    .dtypes = NEAP_BIT(F32) | NEAP_HALVES,
                                    .widens = true,
                                    .splits = {"RwwR>R", "wrrc>c"},
                                    .choose = choose_fc_dnnl,
                                    .bind = bind_fc_dnnl,
                                    .unbind = neap_dnnl_unbind,
                                    .run = run_fc_dnnl},
                                   {.engine = NEAP_ENGINE_BLAS,
                                    .dtypes = NEAP_WIDE,
                                    .widens = true,
                                    .splits = {"RwwR>R", "wrrc>c"},
                                    .run = run_fc},
                                   {.engine = NEAP_ENGINE_REF,
                                    .dtypes = NEAP_WIDE,
                                    .widens = true,
                                    .splits = {"RwwR>R", "wrrc>c"},
                                    .any_team = true,
                                    .run = run_fc},
                                   {0}},
  .cases =
    "{ {x={4,6}, w={5,6}, b={5}, activation=\"relu\"}, {x={2,3,7}, w={4,7}, z={2,3,4}, "
    "activation=\"sigmoid\"},"
    " {x={3,2,4}, w={5,8}, b={5}, axis=2, activation=\"tanh\"}, {x={300,6}, w={5,6}, b={5}, "
    "activation=\"gelu\"},"
    " {x={300,6}, w={5,6}, b={5}, z={300,5}, activation=\"silu\"}, {x={4,130}, w={5,130}, b={5}, "
    "z={4,5}},"
    " {x={4,6}, w={5,6}, activation=\"relu6\"}, {x={4,6}, w={5,6}, activation=\"gelu_tanh\"}, "
    "{x={0,3}, w={2,3}, b={2}} }",
  .long_cases = "{ {x={1,262144}, w={4,262144}} }",
};
