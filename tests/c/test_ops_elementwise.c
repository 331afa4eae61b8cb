/* test_ops_elementwise.c: elementwise ops, reductions, random numbers and updates, each kernel run
 * directly from its record and compared with a formula in double. Gradients by finite differences
 * come from the generic op tests; here the backward kernels are compared with the derivative of the
 * forward's formula. */
#include "check.h"
#include "math/philox.h"
#include "ops/op.h"

#include <stdlib.h>

/* ---- a call made by hand: op_begin, op_in, op_attr, op_run, op_end --------------------------- */

typedef struct call_kit {
  const neap_op *op;
  neap_attr_value attrs[NEAP_OP_MAX_ATTR];
  neap_operand in[NEAP_OP_MAX_IN], out[NEAP_OP_MAX_OUT];
  int n_in, n_out, n_thread;
  uint32_t stream, step;
  neap_fault fault;
  int inplace_in, inplace_out; /* in < 0: none */
  neap_error error;
} call_kit;

static call_kit op_begin(const char *name) {
  call_kit k = {.op = neap_op_find(name), .n_out = 1, .n_thread = 1, .inplace_in = -1};
  if (k.op == NULL) printf("  no op %s\n", name), exit(1);
  for (int i = 0; i < neap_op_n_attrs(k.op); i++) k.attrs[i] = k.op->attrs[i].value;
  return k;
}

static neap_attr_value *op_attr(call_kit *k, const char *name) {
  int i = neap_op_attr_index(k->op, name);
  if (i < 0) printf("  no attribute %s\n", name), exit(1);
  k->attrs[i].given = true;
  return &k->attrs[i];
}

static void *op_in(call_kit *k, neap_dtype dtype, neap_shape shape) {
  neap_operand *in = &k->in[k->n_in++];
  in->type = (neap_type){dtype, shape};
  return in->data = neap_alloc_data(neap_type_bytes(&in->type) + 1);
}

static neap_status op_infer(call_kit *k, neap_type *out) {
  neap_type in[NEAP_OP_MAX_IN];
  memset(out, 0, sizeof *out * NEAP_OP_MAX_OUT);
  for (int i = 0; i < k->n_in; i++) in[i] = k->in[i].type;
  neap_infer infer = {
    .op = k->op, .attrs = k->attrs, .n_in = k->n_in, .n_out = k->n_out, .in = in, .out = out};
  neap_error_clear(&k->error);
  return k->op->infer(&infer, &k->error);
}

static const neap_kernel *ref_of(const neap_op *op) {
  const neap_kernel *kernel = op->kernels;
  while (kernel->engine != NEAP_ENGINE_REF) kernel++;
  return kernel;
}

/* Infers, makes the outputs (filled with 0x7f bytes), chooses and runs. In place where asked. */
static void op_run(call_kit *k) {
  neap_type out[NEAP_OP_MAX_OUT], in[NEAP_OP_MAX_IN];
  if (op_infer(k, out) != NEAP_OK) {
    printf("  %s: %s\n", k->op->name, k->error.message);
    check_failures++;
    exit(1);
  }
  for (int i = 0; i < k->n_in; i++) in[i] = k->in[i].type;
  for (int i = 0; i < k->n_out; i++) {
    k->out[i].type = out[i];
    if (k->inplace_in >= 0 && k->inplace_out == i) {
      k->out[i].data = k->in[k->inplace_in].data;
      continue;
    }
    k->out[i].data = neap_alloc_data(neap_type_bytes(&out[i]) + 1);
    memset(k->out[i].data, 0x7f, neap_type_bytes(&out[i]) + 1);
  }
  const neap_kernel *kernel = ref_of(k->op);
  neap_layout layout_in[NEAP_OP_MAX_IN] = {{0}}, layout_out[NEAP_OP_MAX_OUT] = {{0}};
  neap_choice choice = {
    .engine = NEAP_ENGINE_REF, .n_thread = k->n_thread, .in = layout_in, .out = layout_out};
  neap_choose choose = {.op = k->op,
                        .attrs = k->attrs,
                        .n_in = k->n_in,
                        .n_out = k->n_out,
                        .in = in,
                        .out = out,
                        .in_layout = layout_in,
                        .train = true,
                        .scratch_limit = SIZE_MAX,
                        .choice = &choice};
  if (kernel->choose != NULL) CHECK(kernel->choose(&choose));
  void *scratch = neap_alloc_data(choice.scratch_bytes + 1);
  neap_call call = {.op = k->op,
                    .attrs = k->attrs,
                    .n_in = k->n_in,
                    .n_out = k->n_out,
                    .in = k->in,
                    .out = k->out,
                    .scratch = scratch,
                    .choice = &choice,
                    .n_thread = k->n_thread,
                    .seed = 42,
                    .stream = k->stream,
                    .step = k->step,
                    .fault = &k->fault};
  kernel->run(&call);
  neap_free(scratch);
  for (int i = 0; i < k->n_out; i++) /* the byte behind each output is untouched */
    if (k->inplace_in < 0) CHECK(((char *)k->out[i].data)[neap_type_bytes(&out[i])] == 0x7f);
}

static void op_end(call_kit *k) {
  for (int i = 0; i < k->n_out; i++)
    if (k->inplace_in < 0 || k->inplace_out != i) neap_free(k->out[i].data);
  for (int i = 0; i < k->n_in; i++) neap_free(k->in[i].data);
}

static int64_t op_elems(const neap_operand *o) { return neap_shape_elems(&o->type.shape); }
static double op_get(const neap_operand *o, int64_t i) {
  return neap_element_get(o->type.dtype, o->data, i);
}

/* Numbers in [low, high), the same in each run; half of them multiples of 1/4, so that ties and
 * bounds occur. */
static void fill(neap_operand *o, double low, double high, uint32_t stream) {
  for (int64_t i = 0; i < op_elems(o); i++) {
    uint32_t word[4];
    neap_philox(7, stream, 0, (uint64_t)i, word);
    double x = low + (high - low) * (double)word[0] * 0x1p-32;
    if ((word[1] & 1) != 0) x = floor(x * 4) / 4;
    neap_element_set(o->type.dtype, o->data, i, x < low ? low : x);
  }
}

static bool near(double got, double want, double tolerance) {
  if (isnan(want)) return isnan(got);
  if (isinf(want) || isinf(got)) return got == want;
  return fabs(got - want) <= tolerance * (1 + fabs(want));
}

#define CHECK_LIKE(got, want, tolerance, what, i)                                      \
  do {                                                                                 \
    double like_got = (got), like_want = (want);                                       \
    if (!near(like_got, like_want, tolerance)) {                                       \
      printf("  %s:%d: %s at %lld is %.9g, expected %.9g\n", __FILE__, __LINE__, what, \
             (long long)(i), like_got, like_want);                                     \
      check_failures++;                                                                \
    }                                                                                  \
  } while (0)

static double tolerance_of(neap_dtype dtype) { return dtype == NEAP_DTYPE_F64 ? 1e-12 : 2e-6; }

/* Runs the kit's op again in place for each allowed pair and compares bits with what it gave out of
 * place. */
static void check_inplace(const call_kit *done) {
  for (int p = 0; p < done->op->n_inplace; p++) {
    neap_pair pair = done->op->inplace[p];
    if (!neap_type_equal(&done->in[pair.in].type, &done->out[pair.out].type)) continue;
    call_kit k = *done;
    k.n_in = 0;
    for (int i = 0; i < done->n_in; i++)
      memcpy(op_in(&k, done->in[i].type.dtype, done->in[i].type.shape), done->in[i].data,
             neap_type_bytes(&done->in[i].type));
    k.inplace_in = pair.in;
    k.inplace_out = pair.out;
    op_run(&k);
    for (int o = 0; o < k.n_out; o++) {
      bool same = memcmp(k.out[o].data, done->out[o].data, neap_type_bytes(&k.out[o].type)) == 0;
      if (!same)
        printf("  %s in place (%d,%d) differs\n", k.op->name, pair.in, pair.out), check_failures++;
    }
    op_end(&k);
  }
}

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

/* ---- reductions ------------------------------------------------------------------------------ */

typedef struct reduce_case {
  neap_shape shape;
  int n_axes;
  int64_t axes[4];
  bool keepdim;
} reduce_case;

static const reduce_case reduce_cases[] = {
  {{3, {4, 5, 6}}, 1, {0}, false},
  {{3, {4, 5, 6}}, 1, {1}, true},
  {{3, {4, 5, 6}}, 1, {-1}, false},
  {{3, {4, 5, 6}}, 2, {0, 2}, true},
  {{3, {4, 5, 6}}, 0, {0}, false},
  {{4, {2, 3, 4, 5}}, 2, {1, 3}, false},
  {{4, {2, 3, 4, 5}}, 2, {0, 2}, false},
  {{2, {3, 0}}, 1, {0}, false},
  {{0, {0}}, 0, {0}, false},
  {{2, {1000, 700}}, 1, {0}, false},
  {{2, {700, 1000}}, 1, {1}, false},
  {{4, {6, 32, 14, 14}}, 3, {0, 2, 3}, false},
  {{4, {1, 5, 1, 3}}, 2, {0, 1}, true},
  {{1, {30011}}, 0, {0}, false},
};

/* Output of the element `at` of the input, when `axes` are reduced. */
static int64_t kept_index(const reduce_case *c, int64_t at) {
  int64_t index = 0, stride = 1;
  for (int d = c->shape.n_dim - 1; d >= 0; d--) {
    int64_t i = at % c->shape.dim[d];
    bool reduced = c->n_axes == 0;
    at /= c->shape.dim[d];
    for (int k = 0; k < c->n_axes; k++)
      reduced = reduced || (c->axes[k] + c->shape.n_dim) % c->shape.n_dim == d;
    if (!reduced) index += i * stride, stride *= c->shape.dim[d];
  }
  return index;
}

typedef enum reduce_kind { SUM, MEAN, PROD, MAX, MIN } reduce_kind;

static void check_reduce(const char *name, reduce_kind kind, neap_dtype dtype) {
  for (int s = 0; s < NEAP_COUNT(reduce_cases); s++) {
    const reduce_case *c = &reduce_cases[s];
    call_kit k = op_begin(name);
    k.n_thread = 2;
    op_attr(&k, "axes")->n = c->n_axes;
    op_attr(&k, "axes")->ints = c->axes;
    op_attr(&k, "keepdim")->i = c->keepdim;
    op_in(&k, dtype, c->shape);
    if (kind == PROD)
      fill(&k.in[0], 0.99, 1.01, 5);
    else
      fill(&k.in[0], dtype == NEAP_DTYPE_BOOL ? -1 : -9, dtype == NEAP_DTYPE_BOOL ? 1 : 9, 5);
    if (op_elems(&k.in[0]) == 120 && neap_dtype_is_float(dtype))
      neap_element_set(dtype, k.in[0].data, 77, NAN);
    op_run(&k);
    int64_t n_out = op_elems(&k.out[0]), n = op_elems(&k.in[0]);
    double *want = neap_alloc((size_t)(n_out + 1) * sizeof *want);
    for (int64_t o = 0; o < n_out; o++)
      want[o] = kind == PROD ? 1 : kind == MAX ? -INFINITY : kind == MIN ? INFINITY : 0;
    for (int64_t i = 0; i < n; i++) {
      double x = op_get(&k.in[0], i), *w = &want[kept_index(c, i)];
      bool take = isnan(x) || (kind == MAX && x > *w) || (kind == MIN && x < *w);
      if (kind >= MAX)
        *w = take ? x : *w;
      else
        *w = kind == PROD ? *w * x : *w + x;
    }
    for (int64_t o = 0; o < n_out; o++) {
      double w = kind == MEAN ? want[o] / ((double)n / (double)n_out) : want[o];
      CHECK_LIKE(op_get(&k.out[0], o), w, dtype == NEAP_DTYPE_F64 ? 1e-11 : 1e-6, name, o);
    }
    neap_free(want);
    op_end(&k);
  }
}

TEST(reductions) {
  const neap_dtype dtypes[] = {NEAP_DTYPE_F32, NEAP_DTYPE_F64, NEAP_DTYPE_I8, NEAP_DTYPE_I32,
                               NEAP_DTYPE_I64};
  for (int t = 0; t < NEAP_COUNT(dtypes); t++) {
    check_reduce("Sum", SUM, dtypes[t]);
    check_reduce("Max", MAX, dtypes[t]);
    check_reduce("Min", MIN, dtypes[t]);
    check_reduce("Prod", PROD, dtypes[t]);
  }
  check_reduce("Sum", SUM, NEAP_DTYPE_BOOL);
  check_reduce("Mean", MEAN, NEAP_DTYPE_F32);
  check_reduce("Mean", MEAN, NEAP_DTYPE_F64);
}

/* The backward of each reduction against its definition, on integers in [-2, 2], so that ties and
 * zeros are many. */
static void check_reduce_grad(const char *name, const char *forward, reduce_kind kind) {
  for (int s = 0; s < NEAP_COUNT(reduce_cases); s++) {
    const reduce_case *c = &reduce_cases[s];
    call_kit y = op_begin(forward), k = op_begin(name);
    for (call_kit *each = &y; each != NULL; each = each == &y ? &k : NULL) {
      op_attr(each, "axes")->n = c->n_axes;
      op_attr(each, "axes")->ints = c->axes;
      op_attr(each, "keepdim")->i = c->keepdim;
    }
    op_in(&y, NEAP_DTYPE_F64, c->shape);
    fill(&y.in[0], -2, 3, 6);
    for (int64_t i = 0; i < op_elems(&y.in[0]); i++)
      neap_element_set(NEAP_DTYPE_F64, y.in[0].data, i, floor(op_get(&y.in[0], i)));
    op_run(&y);
    int64_t n = op_elems(&y.in[0]), n_out = op_elems(&y.out[0]);
    if (kind >= PROD) memcpy(op_in(&k, NEAP_DTYPE_F64, c->shape), y.in[0].data, (size_t)n * 8);
    if (kind >= MAX)
      memcpy(op_in(&k, NEAP_DTYPE_F64, y.out[0].type.shape), y.out[0].data, (size_t)n_out * 8);
    op_in(&k, NEAP_DTYPE_F64, y.out[0].type.shape);
    const neap_operand *dy = &k.in[k.n_in - 1];
    fill(&k.in[k.n_in - 1], -2, 2, 7);
    if (kind < PROD)
      op_attr(&k, "shape")->n = c->shape.n_dim, op_attr(&k, "shape")->ints = c->shape.dim;
    op_run(&k);
    CHECK(neap_shape_equal(&k.out[0].type.shape, &c->shape));
    double *ties = neap_alloc_zeroed((size_t)(n_out + 1) * sizeof *ties);
    for (int64_t i = 0; i < n; i++)
      ties[kept_index(c, i)] += op_get(&y.in[0], i) == op_get(&y.out[0], kept_index(c, i));
    for (int64_t i = 0; i < n; i++) {
      int64_t o = kept_index(c, i);
      double want = op_get(dy, o);
      if (kind == MEAN) want /= (double)n / (double)n_out;
      if (kind >= MAX) want = op_get(&y.in[0], i) == op_get(&y.out[0], o) ? want / ties[o] : 0;
      if (kind == PROD && n <= 120)
        for (int64_t j = 0; j < n; j++)
          want *= j != i && kept_index(c, j) == o ? op_get(&y.in[0], j) : 1;
      if (kind != PROD || n <= 120) CHECK_LIKE(op_get(&k.out[0], i), want, 1e-12, name, i);
    }
    neap_free(ties);
    check_inplace(&k);
    op_end(&k);
    op_end(&y);
  }
}

TEST(reduction_backwards) {
  check_reduce_grad("SumGrad", "Sum", SUM);
  check_reduce_grad("MeanGrad", "Mean", MEAN);
  check_reduce_grad("ProdGrad", "Prod", PROD);
  check_reduce_grad("ExtremeGrad", "Max", MAX);
  check_reduce_grad("ExtremeGrad", "Min", MIN);
}

TEST(reductions_of_nothing) {
  neap_type out[NEAP_OP_MAX_OUT];
  const int64_t second[] = {1};
  const char *names[] = {"Sum", "Prod", "Mean"};
  double want[] = {0, 1, NAN};
  for (int i = 0; i < 3; i++) {
    call_kit k = op_begin(names[i]);
    op_in(&k, NEAP_DTYPE_F32, NEAP_SHAPE(3, 0));
    op_attr(&k, "axes")->n = 1, op_attr(&k, "axes")->ints = second;
    op_run(&k);
    CHECK_EQ(op_elems(&k.out[0]), 3);
    for (int64_t o = 0; o < 3; o++) CHECK_LIKE(op_get(&k.out[0], o), want[i], 0, names[i], o);
    op_end(&k);
  }
  call_kit k = op_begin("Max");
  op_in(&k, NEAP_DTYPE_F32, NEAP_SHAPE(3, 0));
  op_attr(&k, "axes")->n = 1, op_attr(&k, "axes")->ints = second;
  CHECK_EQ(op_infer(&k, out), NEAP_SHAPE);
  CHECK(strstr(k.error.message, "Max of nothing is undefined") != NULL);
  op_end(&k);
}

TEST(bad_axes_are_named) {
  neap_type out[NEAP_OP_MAX_OUT];
  const int64_t far[] = {3}, twice[] = {1, -2};
  call_kit k = op_begin("Sum");
  op_in(&k, NEAP_DTYPE_F32, NEAP_SHAPE(2, 3, 4));
  op_attr(&k, "axes")->n = 1, op_attr(&k, "axes")->ints = far;
  CHECK_EQ(op_infer(&k, out), NEAP_ATTRIBUTE);
  CHECK(strstr(k.error.message, "axes has 4, out of range for 3 dimensions") != NULL);
  op_attr(&k, "axes")->n = 2, op_attr(&k, "axes")->ints = twice;
  CHECK_EQ(op_infer(&k, out), NEAP_ATTRIBUTE);
  op_end(&k);
}

TEST(arg_extremes) {
  const neap_dtype dtypes[] = {NEAP_DTYPE_F32, NEAP_DTYPE_F64, NEAP_DTYPE_I32};
  for (int t = 0; t < 3; t++)
    for (int axis = -1; axis < 3; axis++)
      for (int least = 0; least < 2; least++) {
        call_kit k = op_begin(least ? "ArgMin" : "ArgMax");
        neap_shape shape = NEAP_SHAPE(3, 4, 5);
        op_in(&k, dtypes[t], shape);
        fill(&k.in[0], -2, 2, 9); /* quarters: ties */
        if (t < 2) neap_element_set(dtypes[t], k.in[0].data, 33, NAN);
        if (axis >= 0) op_attr(&k, "axis")->i = axis;
        op_run(&k);
        int64_t n = axis < 0 ? 60 : shape.dim[axis],
                inner = axis < 0 ? 1 : neap_shape_span(&shape, axis + 1, 3);
        CHECK_EQ(op_elems(&k.out[0]), 60 / n);
        for (int64_t o = 0; o < 60 / n; o++) {
          int64_t base = o / inner * n * inner + o % inner, at = 0;
          for (int64_t i = n - 1; i >= 0; i--) {
            double x = op_get(&k.in[0], base + i * inner),
                   best = op_get(&k.in[0], base + at * inner);
            if (isnan(x) || (!isnan(best) && (least ? x <= best : x >= best))) at = i;
            if (i == n - 1) at = i;
          }
          CHECK_EQ(op_get(&k.out[0], o), at);
        }
        op_end(&k);
      }
}

/* ---- sums, copies and casts ------------------------------------------------------------------ */

TEST(add_n_takes_any_input_in_place) {
  const neap_dtype dtypes[] = {NEAP_DTYPE_F32, NEAP_DTYPE_F64, NEAP_DTYPE_I8, NEAP_DTYPE_I32,
                               NEAP_DTYPE_I64};
  for (int t = 0; t < NEAP_COUNT(dtypes); t++)
    for (int n = 1; n <= 4; n++)
      for (int into = -1; into < n; into++) {
        call_kit k = op_begin("AddN");
        double want[5000] = {0};
        k.n_thread = 2;
        for (int i = 0; i < n; i++) {
          op_in(&k, dtypes[t], NEAP_SHAPE(5000));
          fill(&k.in[i], -9, 9, (uint32_t)i);
          for (int64_t e = 0; e < 5000; e++) want[e] += op_get(&k.in[i], e);
        }
        k.inplace_in = into;
        op_run(&k);
        for (int64_t e = 0; e < 5000; e++)
          CHECK_LIKE(op_get(&k.out[0], e), want[e], 1e-6, "AddN", e);
        op_end(&k);
      }
}

TEST(copies_and_casts) {
  const char *names[] = {"Copy", "StopGradient"};
  for (int c = 0; c < 2; c++)
    for (int dtype = NEAP_DTYPE_F32; dtype < NEAP_N_DTYPE; dtype++) {
      call_kit k = op_begin(names[c]);
      op_in(&k, (neap_dtype)dtype, NEAP_SHAPE(3, 5));
      fill(&k.in[0], 0, 9, 1);
      op_run(&k);
      CHECK(memcmp(k.in[0].data, k.out[0].data, neap_type_bytes(&k.in[0].type)) == 0);
      CHECK(neap_type_equal(&k.in[0].type, &k.out[0].type));
      op_end(&k);
    }
  call_kit k = op_begin("Cast");
  double given[] = {-2.5, -1.5, 0.5, 1.5, 300, NAN}, want[] = {-2, -2, 0, 2, 127, 0};
  memcpy(op_in(&k, NEAP_DTYPE_F64, NEAP_SHAPE(6)), given, sizeof given);
  op_attr(&k, "to")->i = NEAP_DTYPE_I8;
  op_run(&k);
  for (int i = 0; i < 6; i++) CHECK_EQ(op_get(&k.out[0], i), want[i]);
  op_end(&k);
}

TEST(fills) {
  const int64_t shape[] = {3, 7};
  for (int dtype = NEAP_DTYPE_F32; dtype < NEAP_N_DTYPE; dtype++) {
    call_kit k = op_begin("Constant");
    op_attr(&k, "shape")->n = 2, op_attr(&k, "shape")->ints = shape;
    op_attr(&k, "value")->f = 1;
    op_attr(&k, "dtype")->i = dtype;
    op_run(&k);
    CHECK_EQ(op_elems(&k.out[0]), 21);
    for (int i = 0; i < 21; i++) CHECK_EQ(op_get(&k.out[0], i), 1);
    op_end(&k);
  }
  call_kit r = op_begin("Range");
  op_attr(&r, "start")->f = 5, op_attr(&r, "stop")->f = 0, op_attr(&r, "step")->f = -2;
  op_run(&r);
  CHECK_EQ(op_elems(&r.out[0]), 3);
  for (int i = 0; i < 3; i++) CHECK_EQ(op_get(&r.out[0], i), 5 - 2 * i);
  op_end(&r);
}

/* ---- random numbers -------------------------------------------------------------------------- */

static call_kit draw(const char *name, int64_t n, int n_thread, uint32_t stream, uint32_t step,
                     neap_dtype dtype) {
  static _Thread_local int64_t shape[2];
  call_kit k = op_begin(name);
  shape[0] = 1, shape[1] = n;
  k.n_thread = n_thread, k.stream = stream, k.step = step;
  op_attr(&k, "shape")->n = 2, op_attr(&k, "shape")->ints = shape;
  op_attr(&k, "dtype")->i = dtype;
  op_run(&k);
  return k;
}

TEST(random_numbers_depend_on_their_counter_only) {
  const char *names[] = {"Uniform", "Gaussian", "Xavier", "Kaiming"};
  for (int i = 0; i < 4; i++) {
    call_kit a = draw(names[i], 70001, 1, 3, 5, NEAP_DTYPE_F32),
             b = draw(names[i], 70001, 2, 3, 5, NEAP_DTYPE_F32);
    call_kit c = draw(names[i], 70001, 1, 4, 5, NEAP_DTYPE_F32),
             d = draw(names[i], 70001, 1, 3, 6, NEAP_DTYPE_F32);
    CHECK(memcmp(a.out[0].data, b.out[0].data, 4 * 70001) == 0);
    CHECK(memcmp(a.out[0].data, c.out[0].data, 4 * 70001) != 0);
    CHECK(memcmp(a.out[0].data, d.out[0].data, 4 * 70001) != 0);
    if (i < 2) { /* no fan: a shorter tensor has the same first numbers */
      call_kit e = draw(names[i], 1001, 1, 3, 5, NEAP_DTYPE_F32);
      CHECK(memcmp(a.out[0].data, e.out[0].data, 4 * 1001) == 0);
      op_end(&e);
    }
    op_end(&a), op_end(&b), op_end(&c), op_end(&d);
  }
}

TEST(random_numbers_have_their_distribution) {
  const char *names[] = {"Uniform", "Gaussian", "Xavier", "Kaiming"};
  const int64_t n = 200000;
  /* Xavier and Kaiming of (1, n): deviations sqrt(2 / (n + 1)) and sqrt(2 / n) */
  double mean[] = {0.5, 0, 0, 0}, std[] = {sqrt(1 / 12.0), 1, sqrt(2.0 / (n + 1)), sqrt(2.0 / n)};
  for (int i = 0; i < 4; i++)
    for (int t = 0; t < 2; t++) {
      call_kit k = draw(names[i], n, 1, 1, 1, t == 0 ? NEAP_DTYPE_F32 : NEAP_DTYPE_F64);
      double sum = 0, square = 0, most = 0;
      for (int64_t e = 0; e < n; e++) {
        double x = op_get(&k.out[0], e);
        sum += x, square += x * x, most = fabs(x) > most ? fabs(x) : most;
      }
      double m = sum / n, s = sqrt(square / n - m * m);
      CHECK_NEAR(m, mean[i], 0.01 * std[i]);
      CHECK_NEAR(s, std[i], 0.01 * std[i]);
      if (i == 0) CHECK(most < 1);
      if (i >= 2) CHECK(most <= std[i] * sqrt(3) * (1 + 1e-6));
      op_end(&k);
    }
}

TEST(dropout_keeps_what_its_mask_says) {
  for (int t = 0; t < 2; t++) {
    neap_dtype dtype = t == 0 ? NEAP_DTYPE_F32 : NEAP_DTYPE_F64;
    uint8_t *mask[2] = {NULL, NULL};
    for (int n_thread = 1; n_thread <= 2; n_thread++) {
      call_kit k = op_begin("Dropout");
      k.n_out = 2, k.n_thread = n_thread;
      op_attr(&k, "rate")->f = 0.25;
      op_in(&k, dtype, NEAP_SHAPE(50003));
      fill(&k.in[0], 1, 2, 1);
      op_run(&k);
      int64_t kept = 0;
      const uint8_t *bits = k.out[1].data;
      for (int64_t i = 0; i < 50003; i++) {
        bool keep = (bits[i / 8] >> i % 8 & 1) != 0;
        kept += keep;
        CHECK_LIKE(op_get(&k.out[0], i), keep ? op_get(&k.in[0], i) / 0.75 : 0, 1e-6, "Dropout", i);
      }
      CHECK_NEAR((double)kept / 50003, 0.75, 0.01);
      check_inplace(&k);
      call_kit back = op_begin("DropoutGrad");
      op_attr(&back, "rate")->f = 0.25;
      memcpy(op_in(&back, dtype, NEAP_SHAPE(50003)), k.in[0].data, neap_type_bytes(&k.in[0].type));
      memcpy(op_in(&back, NEAP_DTYPE_U8, NEAP_SHAPE(6251)), bits, 6251);
      op_run(&back); /* of the same numbers: the forward again */
      CHECK(memcmp(back.out[0].data, k.out[0].data, neap_type_bytes(&k.out[0].type)) == 0);
      memcpy(mask[n_thread - 1] = neap_alloc(6251), bits, 6251);
      op_end(&back);
      op_end(&k);
    }
    CHECK(memcmp(mask[0], mask[1], 6251) == 0);
    neap_free(mask[0]), neap_free(mask[1]);
  }
  call_kit k = op_begin("Dropout");
  op_attr(&k, "training")->i = 0;
  op_in(&k, NEAP_DTYPE_F32, NEAP_SHAPE(99));
  fill(&k.in[0], -2, 2, 1);
  op_run(&k);
  CHECK(memcmp(k.in[0].data, k.out[0].data, 4 * 99) == 0);
  op_end(&k);
}

/* ---- losses ---------------------------------------------------------------------------------- */

static void check_loss(const char *name, const char *back_name, bool square) {
  for (int t = 0; t < 2; t++)
    for (int reduction = 0; reduction < 3; reduction++) {
      neap_dtype dtype = t == 0 ? NEAP_DTYPE_F32 : NEAP_DTYPE_F64;
      call_kit k = op_begin(name), back = op_begin(back_name);
      op_attr(&k, "reduction")->i = op_attr(&back, "reduction")->i = reduction;
      for (int i = 0; i < 2; i++) {
        op_in(&k, dtype, NEAP_SHAPE(37, 5));
        fill(&k.in[i], -2, 2, (uint32_t)i);
        memcpy(op_in(&back, dtype, NEAP_SHAPE(37, 5)), k.in[i].data,
               neap_type_bytes(&k.in[i].type));
      }
      op_run(&k);
      op_in(&back, dtype, k.out[0].type.shape);
      fill(&back.in[2], 1, 2, 4);
      op_run(&back);
      CHECK_EQ(op_elems(&k.out[0]), reduction == 2 ? 185 : 1);
      double sum = 0;
      for (int64_t i = 0; i < 185; i++) {
        double d = op_get(&k.in[0], i) - op_get(&k.in[1], i), each = square ? d * d : fabs(d);
        double slope = square ? 2 * d : f_sign(d), dy = op_get(&back.in[2], reduction == 2 ? i : 0);
        sum += each;
        if (reduction == 2) CHECK_LIKE(op_get(&k.out[0], i), each, tolerance_of(dtype), name, i);
        CHECK_LIKE(op_get(&back.out[0], i), slope * dy / (reduction == 0 ? 185 : 1),
                   tolerance_of(dtype), back_name, i);
      }
      if (reduction < 2)
        CHECK_LIKE(op_get(&k.out[0], 0), reduction == 0 ? sum / 185 : sum, tolerance_of(dtype),
                   name, 0);
      check_inplace(&back);
      op_end(&back);
      op_end(&k);
    }
}

TEST(distance_losses) {
  check_loss("MseLoss", "MseLossGrad", true);
  check_loss("L1Loss", "L1LossGrad", false);
}

/* ---- updates --------------------------------------------------------------------------------- */

static void update_kit(call_kit *k, int n, neap_dtype dtype, double lr) {
  for (int i = 0; i < n; i++) {
    op_in(k, i == 2 ? NEAP_DTYPE_F32 : dtype, i == 2 ? (neap_shape){0} : NEAP_SHAPE(4099));
    fill(&k->in[i], i == 4 ? 0 : -2, 2, (uint32_t)i);
  }
  *(float *)k->in[2].data = (float)lr;
}

TEST(sgd_follows_its_formula) {
  for (int form = 0; form < 8; form++) {
    bool has_m = (form & 1) != 0, nesterov = form == 3 || form == 7;
    double decay = (form & 4) != 0 ? 0.125 : 0, dampening = form == 5 ? 0.25 : 0;
    neap_dtype dtype = (form & 2) != 0 ? NEAP_DTYPE_F32 : NEAP_DTYPE_F64;
    call_kit k = op_begin("Sgd");
    k.n_out = has_m ? 2 : 1, k.n_thread = 2;
    op_attr(&k, "momentum")->f = has_m ? 0.75 : 0;
    op_attr(&k, "nesterov")->i = nesterov;
    op_attr(&k, "weight_decay")->f = decay;
    op_attr(&k, "dampening")->f = dampening;
    update_kit(&k, has_m ? 4 : 3, dtype, 0.5);
    op_run(&k);
    for (int64_t i = 0; i < 4099; i++) {
      double w = op_get(&k.in[0], i), d = op_get(&k.in[1], i) + decay * w,
             m = has_m ? 0.75 * op_get(&k.in[3], i) + (1 - dampening) * d : d;
      if (has_m) CHECK_LIKE(op_get(&k.out[1], i), m, tolerance_of(dtype), "m", i);
      CHECK_LIKE(op_get(&k.out[0], i), w - 0.5 * (nesterov ? d + 0.75 * m : m), tolerance_of(dtype),
                 "w", i);
    }
    op_end(&k);
  }
  neap_type out[NEAP_OP_MAX_OUT];
  call_kit k = op_begin("Sgd");
  op_attr(&k, "momentum")->f = 0.9;
  update_kit(&k, 3, NEAP_DTYPE_F32, 1);
  CHECK_EQ(op_infer(&k, out), NEAP_ATTRIBUTE);
  CHECK(strstr(k.error.message, "expects an input m") != NULL);
  for (int i = 0; i < 3; i++) neap_free(k.in[i].data);
}

TEST(adam_follows_its_formula) {
  for (int form = 0; form < 4; form++) {
    bool decoupled = (form & 1) != 0;
    neap_dtype dtype = (form & 2) != 0 ? NEAP_DTYPE_F32 : NEAP_DTYPE_F64;
    call_kit k = op_begin("Adam");
    k.n_out = 4, k.n_thread = 2;
    op_attr(&k, "weight_decay")->f = 0.125;
    op_attr(&k, "decoupled")->i = decoupled;
    update_kit(&k, 5, dtype, 0.25);
    *(int64_t *)op_in(&k, NEAP_DTYPE_I64, (neap_shape){0}) = 6;
    op_run(&k);
    CHECK_EQ(op_get(&k.out[3], 0), 7);
    for (int64_t i = 0; i < 4099; i++) {
      double w = op_get(&k.in[0], i), g = op_get(&k.in[1], i) + (decoupled ? 0 : 0.125 * w);
      double m = 0.9 * op_get(&k.in[3], i) + 0.1 * g,
             v = 0.999 * op_get(&k.in[4], i) + 0.001 * g * g;
      double step = 0.25 * (m / (1 - pow(0.9, 7))) / (sqrt(v / (1 - pow(0.999, 7))) + 1e-8);
      CHECK_LIKE(op_get(&k.out[1], i), m, tolerance_of(dtype), "m", i);
      CHECK_LIKE(op_get(&k.out[2], i), v, tolerance_of(dtype), "v", i);
      CHECK_LIKE(op_get(&k.out[0], i), (decoupled ? w * (1 - 0.25 * 0.125) : w) - step,
                 4 * tolerance_of(dtype), "w", i);
    }
    op_end(&k);
  }
}

/* Updates run in place always: each enforced pair over one storage gives the bits of separate
 * ones. */
TEST(updates_in_place_give_the_same_bits) {
  const char *names[] = {"Sgd", "Adam", "RunningAverage"};
  for (int u = 0; u < 3; u++) {
    call_kit a = op_begin(names[u]);
    a.n_out = u == 0 ? 2 : u == 1 ? 4 : 1;
    if (u == 0) op_attr(&a, "momentum")->f = 0.9;
    if (u < 2) update_kit(&a, u == 0 ? 4 : 5, NEAP_DTYPE_F32, 0.1);
    if (u == 1) *(int64_t *)op_in(&a, NEAP_DTYPE_I64, (neap_shape){0}) = 0;
    for (int i = 0; u == 2 && i < 2; i++)
      op_in(&a, NEAP_DTYPE_F32, NEAP_SHAPE(999)), fill(&a.in[i], -2, 2, (uint32_t)i);
    op_run(&a);
    neap_layout plain[NEAP_OP_MAX_IN] = {{0}};
    neap_choice choice = {.engine = NEAP_ENGINE_REF, .n_thread = 1, .in = plain, .out = plain};
    call_kit b = a;
    for (int p = 0; p < a.op->n_enforced; p++)
      b.out[a.op->enforced[p].out].data = a.in[a.op->enforced[p].in].data;
    neap_call call = {.op = a.op,
                      .attrs = a.attrs,
                      .n_in = a.n_in,
                      .n_out = a.n_out,
                      .in = a.in,
                      .out = b.out,
                      .choice = &choice,
                      .n_thread = 1,
                      .fault = &b.fault};
    ref_of(a.op)->run(&call);
    for (int k = 0; k < a.n_out; k++)
      CHECK(memcmp(a.out[k].data, b.out[k].data, neap_type_bytes(&a.out[k].type)) == 0);
    op_end(&a);
  }
}

TEST(norms_clip) {
  double orders[] = {1, 2, 3, INFINITY};
  for (int o = 0; o < 4; o++)
    for (int t = 0; t < 2; t++) {
      neap_dtype dtype = t == 0 ? NEAP_DTYPE_F32 : NEAP_DTYPE_F64;
      call_kit k = op_begin("GradNorm");
      op_attr(&k, "p")->f = orders[o];
      double sum = 0, most = 0;
      for (int i = 0; i < 3; i++) {
        op_in(&k, dtype, NEAP_SHAPE(i, 7)); /* the first is empty */
        fill(&k.in[i], -2, 2, (uint32_t)i);
        for (int64_t e = 0; e < op_elems(&k.in[i]); e++) {
          double x = fabs(op_get(&k.in[i], e));
          sum += pow(x, orders[o]), most = x > most ? x : most;
        }
      }
      op_run(&k);
      double norm = o == 3 ? most : pow(sum, 1 / orders[o]);
      CHECK_LIKE(op_get(&k.out[0], 0), norm, tolerance_of(dtype), "GradNorm", 0);
      for (int below = 0; below < 2; below++) {
        call_kit c = op_begin("ClipByNorm");
        op_attr(&c, "max")->f = below ? norm / 2 : norm * 2;
        memcpy(op_in(&c, dtype, NEAP_SHAPE(2, 7)), k.in[2].data, neap_type_bytes(&k.in[2].type));
        neap_element_set(dtype, op_in(&c, dtype, (neap_shape){0}), 0, norm);
        op_run(&c);
        for (int64_t e = 0; e < 14; e++)
          CHECK_LIKE(op_get(&c.out[0], e),
                     op_get(&c.in[0], e) * (below ? norm / 2 / (norm + 1e-6) : 1),
                     tolerance_of(dtype), "ClipByNorm", e);
        check_inplace(&c);
        op_end(&c);
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
             T(reductions), T(reduction_backwards), T(reductions_of_nothing), T(bad_axes_are_named),
             T(arg_extremes), T(add_n_takes_any_input_in_place), T(copies_and_casts), T(fills),
             T(random_numbers_depend_on_their_counter_only),
             T(random_numbers_have_their_distribution), T(dropout_keeps_what_its_mask_says),
             T(distance_losses), T(sgd_follows_its_formula), T(adam_follows_its_formula),
             T(updates_in_place_give_the_same_bits), T(norms_clip), T(records_are_complete),
             T(kernels_of_any_layout_map_zero_to_zero), T(many_philox_blocks_are_each_philox));
}
