/* test_ops_reduce.c: reductions, sums of many inputs, copies, casts and fills, against formulas in
 * double. */
#include "op_call.h"

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

    /* Factors near 1, so that a product of thousands is still a number. */
    if (kind == PROD)
      fill(&k.in[0], 0.99, 1.01, 5);
    else
      fill(&k.in[0], dtype == NEAP_DTYPE_BOOL ? -1 : -9, dtype == NEAP_DTYPE_BOOL ? 1 : 9, 5);

    /* One NaN, which must come through. */
    if (op_elems(&k.in[0]) == 120 && neap_dtype_is_float(dtype))
      neap_element_set(dtype, k.in[0].data, 77, NAN);
    op_run(&k);

    /* Each output begins with what changes nothing, and takes the elements one by one. */
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

    /* A mean is the sum over the number of those that fell together. */
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

    /* Backwards read what they need: extremes input and output, products the input, sums only the
     * shape. */
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

    /* The gradient of an extreme is shared out among all that reach it. */
    double *ties = neap_alloc_zeroed((size_t)(n_out + 1) * sizeof *ties);
    for (int64_t i = 0; i < n; i++)
      ties[kept_index(c, i)] += op_get(&y.in[0], i) == op_get(&y.out[0], kept_index(c, i));
    for (int64_t i = 0; i < n; i++) {
      int64_t o = kept_index(c, i);
      double want = op_get(dy, o);
      if (kind == MEAN) want /= (double)n / (double)n_out;
      if (kind >= MAX) want = op_get(&y.in[0], i) == op_get(&y.out[0], o) ? want / ties[o] : 0;
      /* The product of the others, by multiplying them: dividing by a zero would not do. */
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
  CHECK(strstr(k.error.message, "axes has 3, out of range for 3 dimensions") != NULL);
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

int main(int argc, char **argv) {
  return RUN(argc, argv, T(reductions), T(reduction_backwards), T(reductions_of_nothing),
             T(bad_axes_are_named), T(arg_extremes), T(add_n_takes_any_input_in_place),
             T(copies_and_casts), T(fills));
}
