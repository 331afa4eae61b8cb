/* test_ops_elementwise.c: elementwise ops, each kernel run directly from its record and compared
 * with a formula in double. Gradients by finite differences come from the generic op tests; here
 * the backward kernels are compared with the derivative of the formula. */
#include "math/philox.h"
#include "op_call.h"

/* ---- binary ops ------------------------------------------------------------------------------ */

/* Index into an input of shape `in` for element `at` of the broadcast shape `out`. */
static int64_t broadcast_index(const neap_shape *in, const neap_shape *out, int64_t at) {
  int64_t index = 0, stride = 1;
  for (int d = out->n_dim - 1; d >= 0; d--) {
    int own = d - (out->n_dim - in->n_dim);
    int64_t i = at % out->dim[d];
    at /= out->dim[d];
    if (own < 0) continue;
    if (in->dim[own] != 1) index += i * stride;
    stride *= in->dim[own];
  }
  return index;
}

typedef double binary_formula(double a, double b);

static neap_shape shapes[][2] = {
  {{2, {3, 5}}, {2, {3, 5}}},
  {{2, {3, 4}}, {1, {4}}},
  {{2, {3, 4}}, {2, {3, 1}}},
  {{3, {2, 3, 4}}, {0, {0}}},
  {{2, {3, 1}}, {2, {1, 5}}},
  {{1, {4}}, {3, {2, 3, 4}}},
  {{4, {2, 1, 4, 1}}, {3, {3, 1, 5}}},
  {{2, {0, 4}}, {1, {4}}},
  {{0, {0}}, {0, {0}}},
  {{2, {300, 129}}, {2, {300, 129}}},
  {{3, {40, 7, 99}}, {3, {40, 1, 99}}},
  {{4, {5, 6, 70, 9}}, {4, {1, 6, 1, 1}}},
};

static void check_binary(const char *name, neap_dtype dtype, double low, double high, double low_b,
                         binary_formula *formula) {
  for (int s = 0; s < NEAP_COUNT(shapes); s++) {
    call_kit k = op_begin(name);
    k.n_thread = 2;
    op_in(&k, dtype, shapes[s][0]);
    op_in(&k, dtype, shapes[s][1]);
    fill(&k.in[0], low, high, 1);
    fill(&k.in[1], low_b, high, 2);
    op_run(&k);
    for (int64_t i = 0; i < op_elems(&k.out[0]); i++) {
      double a = op_get(&k.in[0], broadcast_index(&shapes[s][0], &k.out[0].type.shape, i));
      double b = op_get(&k.in[1], broadcast_index(&shapes[s][1], &k.out[0].type.shape, i));
      CHECK_LIKE(op_get(&k.out[0], i), formula(a, b), tolerance_of(k.out[0].type.dtype), name, i);
    }
    check_inplace(&k);
    op_end(&k);
  }
}

static double f_add(double a, double b) { return a + b; }
static double f_sub(double a, double b) { return a - b; }
static double f_mul(double a, double b) { return a * b; }
static double f_div(double a, double b) { return a / b; }

TEST(arithmetic_broadcasts) {
  const neap_dtype dtypes[] = {NEAP_DTYPE_F32, NEAP_DTYPE_F64, NEAP_DTYPE_I8, NEAP_DTYPE_I32,
                               NEAP_DTYPE_I64};
  for (int t = 0; t < NEAP_COUNT(dtypes); t++) {
    check_binary("Add", dtypes[t], -5, 5, -5, f_add);
    check_binary("Sub", dtypes[t], -5, 5, -5, f_sub);
    check_binary("Mul", dtypes[t], -5, 5, -5, f_mul);
    check_binary("Div", dtypes[t], -5, 5, 1, f_div);
  }
}

TEST(integers_wrap) {
  call_kit k = op_begin("Add");
  *(int32_t *)op_in(&k, NEAP_DTYPE_I32, NEAP_SHAPE(1)) = INT32_MAX;
  *(int32_t *)op_in(&k, NEAP_DTYPE_I32, NEAP_SHAPE(1)) = 1;
  op_run(&k);
  CHECK_EQ(op_get(&k.out[0], 0), INT32_MIN);
  op_end(&k);
}

TEST(shapes_that_do_not_broadcast_are_named) {
  neap_type out[NEAP_OP_MAX_OUT];
  call_kit k = op_begin("Add");
  op_in(&k, NEAP_DTYPE_F32, NEAP_SHAPE(3, 4));
  op_in(&k, NEAP_DTYPE_F32, NEAP_SHAPE(3));
  CHECK_EQ(op_infer(&k, out), NEAP_SHAPE);
  CHECK(strstr(k.error.message, "b (3) does not broadcast with a (3,4)") != NULL);
  op_end(&k);
}

/* ---- unary ops ------------------------------------------------------------------------------- */

typedef double unary_formula(double x);

static void set_nothing(call_kit *k) { (void)k; }

/* The forward against `formula`, on both float types, with NaN, empty and 0-d inputs. `tolerance`
 * is that of f32. */
static void check_unary(const char *name, void (*set)(call_kit *), double low, double high,
                        double tolerance, unary_formula *formula) {
  const neap_dtype dtypes[] = {NEAP_DTYPE_F32, NEAP_DTYPE_F64};
  neap_shape sizes[] = {{1, {40001}}, {0, {0}}, {2, {0, 3}}, {2, {3, 7}}};
  for (int t = 0; t < 2; t++)
    for (int s = 0; s < NEAP_COUNT(sizes); s++) {
      call_kit k = op_begin(name);
      set(&k);
      k.n_thread = 2;
      op_in(&k, dtypes[t], sizes[s]);
      fill(&k.in[0], low, high, 3);
      if (op_elems(&k.in[0]) > 20) neap_element_set(dtypes[t], k.in[0].data, 17, NAN);
      op_run(&k);
      for (int64_t i = 0; i < op_elems(&k.out[0]); i++)
        CHECK_LIKE(op_get(&k.out[0], i), formula(op_get(&k.in[0], i)), t == 0 ? tolerance : 1e-12,
                   name, i);
      check_inplace(&k);
      op_end(&k);
    }
}

/* dx of the backward op `name`, which reads `saved` (the input or the output of `formula`), is dy
 * times `slope`. */
static void check_backward(const char *name, void (*set)(call_kit *), double low, double high,
                           double tolerance, unary_formula *saved, unary_formula *slope) {
  const neap_dtype dtypes[] = {NEAP_DTYPE_F32, NEAP_DTYPE_F64};
  for (int t = 0; t < 2; t++) {
    call_kit k = op_begin(name), x = op_begin("Relu");
    set(&k);
    op_in(&x, NEAP_DTYPE_F64, NEAP_SHAPE(4001));
    fill(&x.in[0], low, high, 3);
    op_in(&k, dtypes[t], NEAP_SHAPE(4001));
    op_in(&k, dtypes[t], NEAP_SHAPE(4001));
    for (int64_t i = 0; i < 4001; i++)
      neap_element_set(dtypes[t], k.in[0].data, i,
                       saved == NULL ? op_get(&x.in[0], i) : saved(op_get(&x.in[0], i)));
    fill(&k.in[1], -2, 2, 4);
    op_run(&k);
    for (int64_t i = 0; i < 4001; i++)
      CHECK_LIKE(op_get(&k.out[0], i), op_get(&k.in[1], i) * slope(op_get(&x.in[0], i)),
                 t == 0 ? tolerance : 1e-9, name, i);
    check_inplace(&k);
    op_end(&k);
    neap_free(x.in[0].data);
  }
}

static double f_gelu(double x) { return 0.5 * x * (1 + erf(x / sqrt(2))); }
static double d_gelu(double x) {
  return 0.5 * (1 + erf(x / sqrt(2))) + x * exp(-x * x / 2) / sqrt(2 * M_PI);
}
static double f_gelu_tanh(double x) {
  return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}
static double d_gelu_tanh(double x) {
  double t = tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt(2 / M_PI) * (1 + 3 * 0.044715 * x * x);
}
static void set_tanh(call_kit *k) { op_attr(k, "approximate")->i = 1; }

TEST(gelu) {
  check_unary("Gelu", set_nothing, -9, 9, 2e-6, f_gelu);
  check_unary("Gelu", set_tanh, -9, 9, 2e-6, f_gelu_tanh);
  check_backward("GeluGrad", set_nothing, -9, 9, 4e-6, NULL, d_gelu);
  check_backward("GeluGrad", set_tanh, -9, 9, 4e-6, NULL, d_gelu_tanh);
}

/* ---- the unary family and the activations ---------------------------------------------------- */

static double f_neg(double x) { return -x; }
static double f_square(double x) { return x * x; }
static double f_rsqrt(double x) { return 1 / sqrt(x); }
static double f_reciprocal(double x) { return 1 / x; }
static double f_sign(double x) { return x > 0 ? 1 : x < 0 ? -1 : x; }
static double d_square(double x) { return 2 * x; }
static double d_sqrt(double x) { return 0.5 / sqrt(x); }
static double d_rsqrt(double x) { return -0.5 * pow(x, -1.5); }
static double d_cos(double x) { return -sin(x); }
static double d_reciprocal(double x) { return -1 / (x * x); }
static double d_erf(double x) { return 2 / sqrt(M_PI) * exp(-x * x); }

TEST(unary_functions) {
  check_unary("Neg", set_nothing, -5, 5, 0, f_neg);
  check_unary("Abs", set_nothing, -5, 5, 0, fabs);
  check_unary("Square", set_nothing, -5, 5, 1e-6, f_square);
  check_unary("Exp", set_nothing, -80, 80, 1e-6, exp);
  check_unary("Log", set_nothing, 0, 50, 1e-6, log);
  check_unary("Log", set_nothing, -5, 5, 1e-6, log);
  check_unary("Sqrt", set_nothing, -1, 50, 1e-6, sqrt);
  check_unary("Rsqrt", set_nothing, 0, 50, 1e-6, f_rsqrt);
  check_unary("Sin", set_nothing, -50, 50, 1e-6, sin);
  check_unary("Cos", set_nothing, -50, 50, 1e-6, cos);
  check_unary("Reciprocal", set_nothing, 1e-3, 5, 1e-6, f_reciprocal);
  check_unary("Erf", set_nothing, -6, 6, 3e-7, erf);
  check_unary("Sign", set_nothing, -5, 5, 0, f_sign);
  check_unary("Floor", set_nothing, -5, 5, 0, floor);
  check_unary("Ceil", set_nothing, -5, 5, 0, ceil);
  check_unary("Round", set_nothing, -5, 5, 0, rint); /* quarters included: halves go to even */
}

TEST(unary_backwards) {
  check_backward("AbsGrad", set_nothing, -5, 5, 0, NULL, f_sign);
  check_backward("SquareGrad", set_nothing, -5, 5, 1e-6, NULL, d_square);
  check_backward("SqrtGrad", set_nothing, 0.5, 5, 1e-6, sqrt, d_sqrt);
  check_backward("RsqrtGrad", set_nothing, 0.5, 5, 2e-6, f_rsqrt, d_rsqrt);
  check_backward("SinGrad", set_nothing, -9, 9, 1e-6, NULL, cos);
  check_backward("CosGrad", set_nothing, -9, 9, 1e-6, NULL, d_cos);
  check_backward("ReciprocalGrad", set_nothing, 0.5, 5, 2e-6, f_reciprocal, d_reciprocal);
  check_backward("ErfGrad", set_nothing, -6, 6, 2e-6, NULL, d_erf);
}

static double f_sigmoid(double x) { return 1 / (1 + exp(-x)); }
static double d_sigmoid(double x) { return f_sigmoid(x) * (1 - f_sigmoid(x)); }
static double d_tanh(double x) { return 1 - tanh(x) * tanh(x); }
static double f_silu(double x) { return x * f_sigmoid(x); }
static double d_silu(double x) { return f_sigmoid(x) * (1 + x * (1 - f_sigmoid(x))); }
static double f_relu(double x) { return x < 0 ? 0 : x; }
static double d_relu(double x) { return x > 0; }
static double f_relu6(double x) { return x < 0 ? 0 : x > 6 ? 6 : x; }
static double d_relu6(double x) { return x > 0 && x < 6; }
static double f_leaky(double x) { return x > 0 ? x : 0.25 * x; }
static double d_leaky(double x) { return x > 0 ? 1 : 0.25; }
static double f_elu(double x) { return x > 0 ? x : 0.5 * expm1(x); }
static double d_elu(double x) { return x > 0 ? 1 : 0.5 * exp(x); }
static double f_softplus(double x) { return x * 2 > 8 ? x : log1p(exp(2 * x)) / 2; }
static double d_softplus(double x) { return x * 2 > 8 ? 1 : f_sigmoid(2 * x); }
static double f_clamp(double x) { return x < -0.5 ? -0.5 : x > 0.75 ? 0.75 : x; }
static double d_clamp(double x) { return x >= -0.5 && x <= 0.75; }
static void set_leaky(call_kit *k) { op_attr(k, "slope")->f = 0.25; }
static void set_elu(call_kit *k) { op_attr(k, "alpha")->f = 0.5; }
static void set_softplus(call_kit *k) { op_attr(k, "beta")->f = 2, op_attr(k, "threshold")->f = 8; }
static void set_clamp(call_kit *k) { op_attr(k, "min")->f = -0.5, op_attr(k, "max")->f = 0.75; }

TEST(activations) {
  check_unary("Relu", set_nothing, -5, 5, 0, f_relu);
  check_unary("Sigmoid", set_nothing, -90, 90, 1e-6, f_sigmoid);
  check_unary("Tanh", set_nothing, -9, 9, 1e-6, tanh);
  check_unary("Silu", set_nothing, -20, 20, 1e-6, f_silu);
  check_unary("Relu6", set_nothing, -9, 9, 0, f_relu6);
  check_unary("LeakyRelu", set_leaky, -9, 9, 0, f_leaky);
  check_unary("Elu", set_elu, -9, 9, 1e-6, f_elu);
  check_unary("Softplus", set_softplus, -9, 9, 1e-6, f_softplus);
  check_unary("Clamp", set_clamp, -2, 2, 0, f_clamp);
}

TEST(activation_backwards) {
  check_backward("ReluGrad", set_nothing, -5, 5, 0, f_relu, d_relu);
  check_backward("SigmoidGrad", set_nothing, -9, 9, 1e-6, f_sigmoid, d_sigmoid);
  check_backward("TanhGrad", set_nothing, -4, 4, 1e-6, tanh, d_tanh);
  check_backward("SiluGrad", set_nothing, -20, 20, 1e-6, NULL, d_silu);
  check_backward("Relu6Grad", set_nothing, -9, 9, 0, f_relu6, d_relu6);
  check_backward("LeakyReluGrad", set_leaky, -9, 9, 0, f_leaky, d_leaky);
  check_backward("EluGrad", set_elu, -9, 9, 1e-6, f_elu, d_elu);
  check_backward("SoftplusGrad", set_softplus, -9, 9, 1e-6, NULL, d_softplus);
  check_backward("ClampGrad", set_clamp, -2, 2, 0, NULL, d_clamp);
}

/* ---- more of two and three inputs ------------------------------------------------------------ */

static double f_max(double a, double b) { return a > b ? a : b; }
static double f_min(double a, double b) { return a < b ? a : b; }
static double f_floor_div(double a, double b) { return floor(a / b); }
static double f_mod(double a, double b) { return a - b * floor(a / b); }
static double f_eq(double a, double b) { return a == b; }
static double f_ne(double a, double b) { return a != b; }
static double f_lt(double a, double b) { return a < b; }
static double f_le(double a, double b) { return a <= b; }
static double f_gt(double a, double b) { return a > b; }
static double f_ge(double a, double b) { return a >= b; }
static double f_xor(double a, double b) { return a != b; }

TEST(binary_functions) {
  const neap_dtype dtypes[] = {NEAP_DTYPE_F32, NEAP_DTYPE_F64, NEAP_DTYPE_I32, NEAP_DTYPE_I64};
  for (int t = 0; t < NEAP_COUNT(dtypes); t++) {
    check_binary("Maximum", dtypes[t], -3, 3, -3, f_max);
    check_binary("Minimum", dtypes[t], -3, 3, -3, f_min);
    check_binary("Pow", dtypes[t], 1, 4, 0, pow);
    check_binary("FloorDiv", dtypes[t], -9, 9, 2, f_floor_div);
    check_binary("Eq", dtypes[t], -3, 3, -3, f_eq);
    check_binary("Ne", dtypes[t], -3, 3, -3, f_ne);
    check_binary("Lt", dtypes[t], -3, 3, -3, f_lt);
    check_binary("Le", dtypes[t], -3, 3, -3, f_le);
    check_binary("Gt", dtypes[t], -3, 3, -3, f_gt);
    check_binary("Ge", dtypes[t], -3, 3, -3, f_ge);
  }
  check_binary("Mod", NEAP_DTYPE_I32, -9, 9, 1, f_mod);
  check_binary("Mod", NEAP_DTYPE_I8, -9, 9, 1, f_mod);
  check_binary("LogicalAnd", NEAP_DTYPE_BOOL, -1, 1, -1, f_min);
  check_binary("LogicalOr", NEAP_DTYPE_BOOL, -1, 1, -1, f_max);
  check_binary("LogicalXor", NEAP_DTYPE_BOOL, -1, 1, -1, f_xor);
}

/* One element of each; returns the output. */
static double binary_at(const char *name, neap_dtype dtype, double a, double b, bool *fault) {
  call_kit k = op_begin(name);
  op_in(&k, dtype, (neap_shape){0});
  op_in(&k, dtype, (neap_shape){0});
  neap_element_set(dtype, k.in[0].data, 0, a);
  neap_element_set(dtype, k.in[1].data, 0, b);
  op_run(&k);
  double y = op_get(&k.out[0], 0);
  if (fault != NULL) *fault = k.fault.set;
  op_end(&k);
  return y;
}

TEST(edges_of_binary_functions) {
  bool fault;
  CHECK_EQ(binary_at("Mod", NEAP_DTYPE_I64, -7, 3, &fault), 2);
  CHECK_EQ(binary_at("Mod", NEAP_DTYPE_I64, 7, -3, &fault), -2);
  CHECK_EQ(binary_at("FloorDiv", NEAP_DTYPE_I64, -7, 3, &fault), -3);
  CHECK(!fault);
  CHECK_EQ(binary_at("FloorDiv", NEAP_DTYPE_I32, 7, 0, &fault), 0);
  CHECK(fault);
  CHECK_EQ(binary_at("FloorDiv", NEAP_DTYPE_I32, INT32_MIN, -1, &fault), INT32_MIN);
  CHECK_EQ(binary_at("Mod", NEAP_DTYPE_I32, 7, 0, &fault), 0);
  CHECK(fault);
  CHECK_EQ(binary_at("Pow", NEAP_DTYPE_I32, -2, 3, NULL), -8);
  CHECK_EQ(binary_at("Pow", NEAP_DTYPE_I32, 2, -1, NULL), 0);
  CHECK_NEAR(binary_at("Mod", NEAP_DTYPE_F64, -7.5, 2, NULL), 0.5, 0);
  CHECK_NEAR(binary_at("Mod", NEAP_DTYPE_F32, 7.5, -2, NULL), -0.5, 0);
  CHECK(isnan(binary_at("Maximum", NEAP_DTYPE_F32, NAN, 1, NULL)));
  CHECK(isnan(binary_at("Minimum", NEAP_DTYPE_F32, 1, NAN, NULL)));
  CHECK_EQ(binary_at("Eq", NEAP_DTYPE_F32, NAN, NAN, NULL), 0);
  CHECK_EQ(binary_at("Ne", NEAP_DTYPE_F32, NAN, NAN, NULL), 1);
}

/* The backward of a binary op with inputs (3,4), (4), (3,4) against `formula` of the three. */
static void check_ternary(const char *name, double low, double high,
                          double (*formula)(double, double, double)) {
  for (int t = 0; t < 2; t++) {
    neap_dtype dtype = t == 0 ? NEAP_DTYPE_F32 : NEAP_DTYPE_F64;
    call_kit k = op_begin(name);
    op_in(&k, dtype, NEAP_SHAPE(30, 44));
    op_in(&k, dtype, NEAP_SHAPE(44));
    op_in(&k, dtype, NEAP_SHAPE(30, 44));
    for (int i = 0; i < 3; i++) fill(&k.in[i], low, high, (uint32_t)i);
    op_run(&k);
    for (int64_t i = 0; i < 30 * 44; i++)
      CHECK_LIKE(op_get(&k.out[0], i),
                 formula(op_get(&k.in[0], i), op_get(&k.in[1], i % 44), op_get(&k.in[2], i)),
                 t == 0 ? 4e-6 : 1e-12, name, i);
    check_inplace(&k);
    op_end(&k);
  }
}

static double d_div(double y, double b, double dy) { return -dy * y / b; }
static double d_max(double a, double b, double dy) { return a > b ? dy : a == b ? dy / 2 : 0; }
static double d_min(double a, double b, double dy) { return a < b ? dy : a == b ? dy / 2 : 0; }
static double d_base(double a, double b, double dy) { return b == 0 ? 0 : dy * b * pow(a, b - 1); }
static double d_exponent(double a, double b, double dy) {
  return a == 0 && b >= 0 ? 0 : dy * pow(a, b) * log(a);
}

TEST(binary_backwards) {
  check_ternary("DivGrad", 0.5, 3, d_div);
  check_ternary("MaximumGrad", -2, 2, d_max);
  check_ternary("MinimumGrad", -2, 2, d_min);
  check_ternary("PowGradBase", 0, 2, d_base);
  check_ternary("PowGradExponent", 0, 2, d_exponent);
}

TEST(where_takes_every_dtype) {
  for (int dtype = NEAP_DTYPE_F32; dtype < NEAP_N_DTYPE; dtype++) {
    call_kit k = op_begin("Where");
    op_in(&k, NEAP_DTYPE_BOOL, NEAP_SHAPE(3, 1, 40));
    op_in(&k, (neap_dtype)dtype, NEAP_SHAPE(2, 40));
    op_in(&k, (neap_dtype)dtype, NEAP_SHAPE(3, 2, 1));
    fill(&k.in[0], -1, 1, 1);
    for (int i = 1; i < 3; i++) fill(&k.in[i], 0, 9, (uint32_t)i);
    op_run(&k);
    for (int64_t i = 0; i < 240; i++) {
      bool c = op_get(&k.in[0], i / 80 * 40 + i % 40) != 0;
      CHECK_EQ(op_get(&k.out[0], i), c ? op_get(&k.in[1], i % 80) : op_get(&k.in[2], i / 40));
    }
    op_end(&k);
  }
}

/* ---- records --------------------------------------------------------------------------------- */

/* What help, docs and the generic tests read is there, for each op of these files (and all
 * others). */
TEST(records_are_complete) {
  for (int i = 0; i < neap_op_count(); i++) {
    const neap_op *op = neap_op_at(i);
    bool special =
      (op->effects & (NEAP_EFFECT_CONTROL | NEAP_EFFECT_RELEASE | NEAP_EFFECT_PSEUDO)) != 0;
    bool complete =
      op->summary != NULL && op->summary[strlen(op->summary) - 1] == '.' && op->infer != NULL;
    if (!op->internal && !special)
      complete = complete && op->example != NULL && op->source != NULL && op->cases != NULL &&
                 op->math != NULL;
    if (!special) complete = complete && op->kernels != NULL && ref_of(op) != NULL;
    if (!complete) printf("  record %s is incomplete\n", op->name), check_failures++;
  }
}

/* Kernels that take any layout run over padding lanes, which must stay zero. */
TEST(kernels_of_any_layout_map_zero_to_zero) {
  int n_checked = 0;
  for (int i = 0; i < neap_op_count(); i++) {
    const neap_op *op = neap_op_at(i);
    if (op->kernels == NULL || !ref_of(op)->any_layout) continue;
    call_kit k = op_begin(op->name);
    for (int a = 0; a < neap_op_n_inputs(op); a++) {
      op_in(&k, NEAP_DTYPE_F32, NEAP_SHAPE(64));
      memset(k.in[a].data, 0, 256);
    }
    op_run(&k);
    bool zero = true;
    for (int e = 0; e < 64; e++) zero = zero && op_get(&k.out[0], e) == 0;
    if (!zero) printf("  %s makes padding lanes that are not zero\n", op->name), check_failures++;
    op_end(&k);
    n_checked++;
  }
  CHECK(n_checked > 30);
}

TEST(many_philox_blocks_are_each_philox) {
  uint32_t many[NEAP_PHILOX_WORDS], one[4];
  uint64_t first = UINT32_MAX - 5ull; /* crosses into the high half of the counter */
  neap_philox_words(0x123456789abcdefull, 7, 9, first, many);
  for (uint64_t i = 0; i < NEAP_PHILOX_BLOCKS; i++) {
    neap_philox(0x123456789abcdefull, 7, 9, first + i, one);
    CHECK(memcmp(many + 4 * i, one, sizeof one) == 0);
  }
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(arithmetic_broadcasts), T(integers_wrap),
             T(shapes_that_do_not_broadcast_are_named), T(gelu), T(unary_functions),
             T(unary_backwards), T(activations), T(activation_backwards), T(binary_functions),
             T(edges_of_binary_functions), T(binary_backwards), T(where_takes_every_dtype),
             T(records_are_complete), T(kernels_of_any_layout_map_zero_to_zero),
             T(many_philox_blocks_are_each_philox));
}
