/* test_ops_elementwise.c: elementwise ops, reductions, random numbers and updates, each kernel run directly from its record
 * and compared with a formula in double. Gradients by finite differences come from the generic op tests; here the
 * backward kernels are compared with the derivative of the forward's formula. */
#include "check.h"
#include "ops/op.h"

#include <stdlib.h>

/* ---- a call made by hand: op_begin, op_in, op_attr, op_run, op_end ------------------------------------------------- */

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
  neap_infer infer = {.op = k->op, .attrs = k->attrs, .n_in = k->n_in, .n_out = k->n_out, .in = in, .out = out};
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
  neap_choice choice = {.engine = NEAP_ENGINE_REF, .n_thread = k->n_thread, .in = layout_in, .out = layout_out};
  neap_choose choose = {.op = k->op, .attrs = k->attrs, .n_in = k->n_in, .n_out = k->n_out, .in = in, .out = out,
                        .in_layout = layout_in, .train = true, .scratch_limit = SIZE_MAX, .choice = &choice};
  if (kernel->choose != NULL) CHECK(kernel->choose(&choose));
  void *scratch = neap_alloc_data(choice.scratch_bytes + 1);
  neap_call call = {.op = k->op, .attrs = k->attrs, .n_in = k->n_in, .n_out = k->n_out, .in = k->in, .out = k->out,
                    .scratch = scratch, .choice = &choice, .n_thread = k->n_thread, .seed = 42, .stream = k->stream,
                    .step = k->step, .fault = &k->fault};
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
static double op_get(const neap_operand *o, int64_t i) { return neap_element_get(o->type.dtype, o->data, i); }

/* Numbers in [low, high), the same in each run; half of them multiples of 1/4, so that ties and bounds occur. */
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

#define CHECK_LIKE(got, want, tolerance, what, i)                                                                   \
  do {                                                                                                             \
    double like_got = (got), like_want = (want);                                                                    \
    if (!near(like_got, like_want, tolerance)) {                                                                    \
      printf("  %s:%d: %s at %lld is %.9g, expected %.9g\n", __FILE__, __LINE__, what, (long long)(i), like_got, like_want); \
      check_failures++;                                                                                            \
    }                                                                                                              \
  } while (0)

static double tolerance_of(neap_dtype dtype) { return dtype == NEAP_DTYPE_F64 ? 1e-12 : 2e-6; }

/* Runs the kit's op again in place for each allowed pair and compares bits with what it gave out of place. */
static void check_inplace(const call_kit *done) {
  for (int p = 0; p < done->op->n_inplace; p++) {
    neap_pair pair = done->op->inplace[p];
    if (!neap_type_equal(&done->in[pair.in].type, &done->out[pair.out].type)) continue;
    call_kit k = *done;
    k.n_in = 0;
    for (int i = 0; i < done->n_in; i++)
      memcpy(op_in(&k, done->in[i].type.dtype, done->in[i].type.shape), done->in[i].data, neap_type_bytes(&done->in[i].type));
    k.inplace_in = pair.in;
    k.inplace_out = pair.out;
    op_run(&k);
    for (int o = 0; o < k.n_out; o++) {
      bool same = memcmp(k.out[o].data, done->out[o].data, neap_type_bytes(&k.out[o].type)) == 0;
      if (!same) printf("  %s in place (%d,%d) differs\n", k.op->name, pair.in, pair.out), check_failures++;
    }
    op_end(&k);
  }
}

/* ---- binary ops ------------------------------------------------------------------------------------------------------ */

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
  {{2, {3, 5}}, {2, {3, 5}}},          {{2, {3, 4}}, {1, {4}}},  {{2, {3, 4}}, {2, {3, 1}}},       {{3, {2, 3, 4}}, {0, {0}}},
  {{2, {3, 1}}, {2, {1, 5}}},          {{1, {4}}, {3, {2, 3, 4}}}, {{4, {2, 1, 4, 1}}, {3, {3, 1, 5}}}, {{2, {0, 4}}, {1, {4}}},
  {{0, {0}}, {0, {0}}},                {{2, {300, 129}}, {2, {300, 129}}}, {{3, {40, 7, 99}}, {3, {40, 1, 99}}},
  {{4, {5, 6, 70, 9}}, {4, {1, 6, 1, 1}}},
};

static void check_binary(const char *name, neap_dtype dtype, double low, double high, double low_b, binary_formula *formula) {
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
  const neap_dtype dtypes[] = {NEAP_DTYPE_F32, NEAP_DTYPE_F64, NEAP_DTYPE_I8, NEAP_DTYPE_I32, NEAP_DTYPE_I64};
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

/* ---- unary ops --------------------------------------------------------------------------------------------------------- */

typedef double unary_formula(double x);

static void set_nothing(call_kit *k) { (void)k; }

/* The forward against `formula`, on both float types, with NaN, empty and 0-d inputs. `tolerance` is that of f32. */
static void check_unary(const char *name, void (*set)(call_kit *), double low, double high, double tolerance, unary_formula *formula) {
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
        CHECK_LIKE(op_get(&k.out[0], i), formula(op_get(&k.in[0], i)), t == 0 ? tolerance : 1e-12, name, i);
      check_inplace(&k);
      op_end(&k);
    }
}

/* dx of the backward op `name`, which reads `saved` (the input or the output of `formula`), is dy times `slope`. */
static void check_backward(const char *name, void (*set)(call_kit *), double low, double high, double tolerance,
                           unary_formula *saved, unary_formula *slope) {
  const neap_dtype dtypes[] = {NEAP_DTYPE_F32, NEAP_DTYPE_F64};
  for (int t = 0; t < 2; t++) {
    call_kit k = op_begin(name), x = op_begin("Relu");
    set(&k);
    op_in(&x, NEAP_DTYPE_F64, NEAP_SHAPE(4001));
    fill(&x.in[0], low, high, 3);
    op_in(&k, dtypes[t], NEAP_SHAPE(4001));
    op_in(&k, dtypes[t], NEAP_SHAPE(4001));
    for (int64_t i = 0; i < 4001; i++)
      neap_element_set(dtypes[t], k.in[0].data, i, saved == NULL ? op_get(&x.in[0], i) : saved(op_get(&x.in[0], i)));
    fill(&k.in[1], -2, 2, 4);
    op_run(&k);
    for (int64_t i = 0; i < 4001; i++)
      CHECK_LIKE(op_get(&k.out[0], i), op_get(&k.in[1], i) * slope(op_get(&x.in[0], i)), t == 0 ? tolerance : 1e-9, name, i);
    check_inplace(&k);
    op_end(&k);
    neap_free(x.in[0].data);
  }
}

static double f_gelu(double x) { return 0.5 * x * (1 + erf(x / sqrt(2))); }
static double d_gelu(double x) { return 0.5 * (1 + erf(x / sqrt(2))) + x * exp(-x * x / 2) / sqrt(2 * M_PI); }
static double f_gelu_tanh(double x) { return 0.5 * x * (1 + tanh(sqrt(2 / M_PI) * (x + 0.044715 * x * x * x))); }
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

int main(int argc, char **argv) {
  return RUN(argc, argv, T(arithmetic_broadcasts), T(integers_wrap), T(shapes_that_do_not_broadcast_are_named), T(gelu));
}
