/* test_ops_conv.c: convolutions and fully connected layers: engines against naive loops. */
#include "conv_run.h"

/* ---- Conv ------------------------------------------------------------------------------------ */

static const conv_case conv_cases[] = {
  {2, {2, 3, 6, 7}, 4, {3, 3}, {1, 1}, {1, 1}, 0, {0}, 1},
  {2, {2, 3, 9, 8}, 5, {3, 2}, {2, 3}, {1, 1}, 2, {1, 0}, 1},
  {2, {1, 4, 9, 10}, 6, {3, 3}, {1, 2}, {2, 3}, 4, {2, 1, 0, 3}, 2},
  {2, {2, 6, 7, 7}, 6, {3, 3}, {1, 1}, {1, 1}, 2, {1, 1}, 6},
  {2, {2, 32, 9, 9}, 32, {3, 3}, {2, 2}, {1, 1}, 2, {1, 1}, 32},
  {2, {2, 24, 6, 6}, 24, {3, 3}, {1, 1}, {1, 1}, 2, {1, 1}, 24},
  {2, {2, 32, 6, 6}, 64, {3, 3}, {1, 1}, {1, 1}, 2, {1, 1}, 2},
  {2, {3, 1, 14, 14}, 20, {5, 5}, {1, 1}, {1, 1}, 0, {0}, 1},
  {2, {3, 20, 8, 8}, 50, {5, 5}, {1, 1}, {1, 1}, 0, {0}, 1},
  {2, {2, 64, 10, 9}, 32, {3, 3}, {1, 1}, {1, 1}, 2, {1, 1}, 1},
  {2, {2, 32, 8, 8}, 64, {1, 1}, {1, 1}, {1, 1}, 0, {0}, 1},
  {2, {2, 32, 9, 8}, 64, {1, 1}, {2, 2}, {1, 1}, 0, {0}, 1},
  {2, {2, 3, 30, 30}, 64, {7, 7}, {2, 2}, {1, 1}, 2, {3, 3}, 1},
  {2, {1, 4, 1, 1}, 3, {3, 3}, {1, 1}, {1, 1}, 2, {1, 1}, 1},
  {2, {1, 2, 3, 300}, 3, {2, 5}, {1, 1}, {1, 1}, 2, {0, 2}, 1},
  {1, {2, 3, 13}, 4, {3}, {2}, {2}, 1, {2}, 1},
  {1, {2, 16, 40}, 16, {3}, {1}, {1}, 1, {1}, 1},
  {3, {1, 4, 4, 5, 6}, 4, {2, 2, 3}, {1, 2, 1}, {1, 1, 1}, 3, {0, 1, 1}, 2},
  {3, {1, 16, 4, 5, 6}, 16, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, 3, {1, 1, 1}, 1},
};

static neap_shape weight_shape(const conv_case *t) {
  neap_shape s = {.n_dim = t->n + 2, .dim = {t->o, t->x[1] / t->groups}};
  for (int d = 0; d < t->n; d++) s.dim[2 + d] = t->k[d];
  return s;
}

/* One loop for everything: visits each product of the convolution with the indices of x, w and
 * y. */
static void visit(const conv_case *t, const neap_shape *y,
                  void (*product)(void *context, int64_t x, int64_t w, int64_t y), void *context) {
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, k[3] = {1, 1, 1}, s[3] = {1, 1, 1},
          l[3] = {1, 1, 1}, p[3] = {0};

  /* Fewer than three spatial axes are the last ones; the others have one place. */
  for (int d = 0; d < t->n; d++) {
    int e = 3 - t->n + d;
    in[e] = t->x[2 + d], out[e] = y->dim[2 + d], k[e] = t->k[d], s[e] = t->stride[d],
    l[e] = t->dilation[d];
    p[e] = t->n_pad == 0 ? 0 : t->pad[d];
  }

  /* A group of outputs reads its own group of channels only. */
  int64_t cg = t->x[1] / t->groups, og = t->o / t->groups, L = out[0] * out[1] * out[2],
          K = k[0] * k[1] * k[2];
  for (int64_t n = 0; n < t->x[0]; n++)
    for (int64_t o = 0; o < t->o; o++)
      for (int64_t i = 0; i < L; i++)
        for (int64_t c = 0; c < cg; c++)
          for (int64_t q = 0; q < K; q++) {
            /* Where the tap falls in x; beyond the edge it meets padding, which adds nothing. */
            int64_t a = i / (out[1] * out[2]) * s[0] - p[0] + q / (k[1] * k[2]) * l[0];
            int64_t b = i / out[2] % out[1] * s[1] - p[1] + q / k[2] % k[1] * l[1];
            int64_t e = i % out[2] * s[2] - p[2] + q % k[2] * l[2];
            if (a < 0 || a >= in[0] || b < 0 || b >= in[1] || e < 0 || e >= in[2]) continue;
            product(context,
                    (((n * t->x[1] + o / og * cg + c) * in[0] + a) * in[1] + b) * in[2] + e,
                    (o * cg + c) * K + q, (n * t->o + o) * L + i);
          }
}

typedef struct sums {
  const value *x, *w, *dy;
  double *y, *dx, *dw;
} sums;

static void add_product(void *context, int64_t x, int64_t w, int64_t y) {
  sums *s = context;
  s->y[y] += get(s->x, x) * get(s->w, w);
  s->dx[x] += get(s->dy, y) * get(s->w, w);
  s->dw[w] += get(s->dy, y) * get(s->x, x);
}

static void check_conv(const conv_case *t, neap_dtype dtype, int took[3][NEAP_N_ENGINE]) {
  double tolerance = dtype == NEAP_DTYPE_F64 ? 1e-13 : 2e-6;
  run f = new_run("Conv", NEAP_ENGINE_REF), gx = new_run("ConvGradInput", NEAP_ENGINE_REF),
      gw = new_run("ConvGradWeight", NEAP_ENGINE_REF);
  value x = new_value(dtype, neap_shape_of(t->n + 2, t->x)), w = new_value(dtype, weight_shape(t)),
        b = new_value(dtype, NEAP_SHAPE(t->o));

  set_window(&f, t);
  f.n_in = 3, f.n_out = 1, f.in[0] = x, f.in[1] = w, f.in[2] = b;
  CHECK_OK(infer(&f, &error));
  CHECK(perform(&f));

  /* What is wanted of all three ops comes from one walk over the products, in double. */
  value dy = new_value(dtype, f.out[0].type.shape);
  sums s = {&x, &w, &dy, NULL, NULL, NULL};
  value y = like(&f.out[0], &s.y), dx = like(&x, &s.dx), dw = like(&w, &s.dw),
        db = new_value(NEAP_DTYPE_F64, NEAP_SHAPE(t->o));
  visit(t, &y.type.shape, add_product, &s);
  int64_t l = neap_shape_span(&y.type.shape, 2, y.type.shape.n_dim),
          n_y = neap_shape_elems(&y.type.shape);
  memset(db.data, 0, neap_type_bytes(&db.type));
  for (int64_t i = 0; i < n_y; i++)
    s.y[i] += get(&b, i / l % t->o), ((double *)db.data)[i / l % t->o] += get(&dy, i);

  CHECK(distance(&f.out[0], &y) <= tolerance);

  /* dx has the shape that the attribute says: with a stride, y leaves it open. */
  set_window(&gx, t);
  set_ints(&gx, "shape", x.type.shape.n_dim, x.type.shape.dim);
  gx.n_in = 2, gx.n_out = 1, gx.in[0] = dy, gx.in[1] = w;
  CHECK_OK(infer(&gx, &error));
  CHECK(perform(&gx));
  CHECK(distance(&gx.out[0], &dx) <= tolerance);

  set_window(&gw, t);
  set_ints(&gw, "shape", w.type.shape.n_dim, w.type.shape.dim);
  gw.n_in = 2, gw.n_out = 2, gw.in[0] = x, gw.in[1] = dy;
  CHECK_OK(infer(&gw, &error));
  CHECK(perform(&gw));
  CHECK(distance(&gw.out[0], &dw) <= tolerance);
  CHECK(distance(&gw.out[1], &db) <= tolerance);

  /* The other engines against the one that was just found right; each may refuse, and is
   * counted. */
  for (int e = NEAP_ENGINE_BLAS; e <= NEAP_ENGINE_DNNL; e++) {
    if (e == NEAP_ENGINE_DNNL && dtype != NEAP_DTYPE_F32) continue;
    check_engine(&f, (neap_engine)e, 10 * tolerance, &took[0][e]);
    check_engine(&gx, (neap_engine)e, 10 * tolerance, &took[1][e]);
    check_engine(&gw, (neap_engine)e, 10 * tolerance, &took[2][e]);
  }
  value all[] = {x, w, b, dy, y, dx, dw, db};
  for (int i = 0; i < NEAP_COUNT(all); i++) free(all[i].data);
  free_outs(&f), free_outs(&gx), free_outs(&gw);
}

TEST(conv_engines_agree_with_naive_loops) {
  int took[3][NEAP_N_ENGINE] = {{0}};
  for (int i = 0; i < NEAP_COUNT(conv_cases); i++) {
    int before = check_failures;
    check_conv(&conv_cases[i], NEAP_DTYPE_F32, took);
    if (check_failures > before) printf("  ... in conv case %d\n", i);
  }
  for (int k = 0; k < 3; k++) CHECK_EQ(took[k][NEAP_ENGINE_BLAS], NEAP_COUNT(conv_cases));
  for (int k = 0; k < 3 && has_dnnl(); k++)
    CHECK(took[k][NEAP_ENGINE_DNNL] >= NEAP_COUNT(conv_cases) / 2);
}

TEST(conv_in_f64_agrees_with_naive_loops) {
  int took[3][NEAP_N_ENGINE] = {{0}};
  for (int i = 0; i < NEAP_COUNT(conv_cases); i += 2)
    check_conv(&conv_cases[i], NEAP_DTYPE_F64, took);
}

/* Large enough for Winograd, too large for the naive loops: against `ref`. A scratch limit brings
 * the direct kernel back. */
TEST(conv_takes_winograd_within_the_scratch_limit) {
  const conv_case t = {2, {3, 64, 26, 27}, 96, {3, 3}, {1, 1}, {1, 1}, 2, {1, 1}, 1};
  value x = new_value(NEAP_DTYPE_F32, NEAP_SHAPE(3, 64, 26, 27)),
        w = new_value(NEAP_DTYPE_F32, NEAP_SHAPE(96, 64, 3, 3));
  value dy = new_value(NEAP_DTYPE_F32, NEAP_SHAPE(3, 96, 26, 27)),
        b = new_value(NEAP_DTYPE_F32, NEAP_SHAPE(96));
  run r[3] = {new_run("Conv", NEAP_ENGINE_REF), new_run("ConvGradInput", NEAP_ENGINE_REF),
              new_run("ConvGradWeight", NEAP_ENGINE_REF)};
  r[0].n_in = 3, r[0].n_out = 1, r[0].in[0] = x, r[0].in[1] = w, r[0].in[2] = b;
  r[1].n_in = 2, r[1].n_out = 1, r[1].in[0] = dy, r[1].in[1] = w;
  r[2].n_in = 2, r[2].n_out = 2, r[2].in[0] = x, r[2].in[1] = dy;
  set_ints(&r[1], "shape", 4, x.type.shape.dim), set_ints(&r[2], "shape", 4, w.type.shape.dim);
  for (int k = 0; k < 3; k++) {
    int took = 0;
    set_window(&r[k], &t);
    CHECK_OK(infer(&r[k], &error));
    CHECK(perform(&r[k]));
    check_engine(&r[k], NEAP_ENGINE_DNNL, 2e-5, &took);
    run d = r[k];
    d.engine = NEAP_ENGINE_DNNL;
    size_t least = 0; /* of scratch: older machines have no kernel without */
    for (int turn = 0; turn < 2 && took > 0; turn++) {
      CHECK_OK(infer(&d, &error));
      d.scratch_limit = turn == 0 ? 1 : (size_t)1 << 20;
      CHECK(perform(&d));
      if (turn == 0) least = d.choice.scratch_bytes;
      CHECK(d.choice.algorithm == NEAP_ONEDNN_DIRECT);
      if (turn == 1) CHECK(d.choice.scratch_bytes <= NEAP_MAX(least, (size_t)1 << 20));
      free_outs(&d);
    }
    free_outs(&r[k]);
  }
  free(x.data), free(w.data), free(b.data), free(dy.data);
}

TEST(conv_says_what_does_not_fit) {
  run r = new_run("Conv", NEAP_ENGINE_REF);
  r.n_in = 2, r.n_out = 1;
  r.in[0].type = (neap_type){NEAP_DTYPE_F32, NEAP_SHAPE(8, 16, 28, 28)};
  r.in[1].type = (neap_type){NEAP_DTYPE_F32, NEAP_SHAPE(64, 32, 3, 3)};
  CHECK_FAILS(infer(&r, &error), NEAP_SHAPE,
              "weight (64,32,3,3) expects 32 input channels, got x (8,16,28,28)");
  r.in[1].type.shape = NEAP_SHAPE(64, 16, 3, 3);
  set_ints(&r, "kernel", 1, (int64_t[]){5});
  CHECK_FAILS(infer(&r, &error), NEAP_SHAPE, "kernel = 5");
  set_ints(&r, "kernel", 1, (int64_t[]){3});
  set_ints(&r, "stride", 3, (int64_t[]){1, 1, 1});
  CHECK_FAILS(infer(&r, &error), NEAP_ATTRIBUTE, "stride expects 1 or 2 values");
  set_ints(&r, "stride", 1, (int64_t[]){1});
  r.in[0].type.shape = NEAP_SHAPE(8, 16, 2, 2);
  CHECK_FAILS(infer(&r, &error), NEAP_SHAPE, "a window of 3 elements");
  r.in[0].type.shape = NEAP_SHAPE(8, 16);
  CHECK_FAILS(infer(&r, &error), NEAP_SHAPE, "x expects 3 to 5 dimensions");
}

/* ---- FC -------------------------------------------------------------------------------------- */

TEST(fc_engines_agree) {
  const struct {
    neap_shape x;
    int64_t n, axis;
  } cases[] = {{NEAP_SHAPE(1, 5), 3, -1},        {NEAP_SHAPE(3, 2051), 7, -1},
               {NEAP_SHAPE(15, 40), 9, -1},      {NEAP_SHAPE(4, 4117), 21, -1},
               {NEAP_SHAPE(17, 40), 9, -1},      {NEAP_SHAPE(64, 50), 10, -1},
               {NEAP_SHAPE(300, 33), 17, -1},    {NEAP_SHAPE(2, 150, 40), 24, -1},
               {NEAP_SHAPE(65, 5, 3, 2), 20, 1}, {NEAP_SHAPE(4, 32, 24), 48, -1}};
  for (int i = 0; i < NEAP_COUNT(cases); i++) {
    neap_shape xs = cases[i].x;
    int axis = neap_axis(cases[i].axis, xs.n_dim), took = 0;
    int64_t k = neap_shape_span(&xs, axis, xs.n_dim), n = cases[i].n;
    neap_shape ys = neap_shape_of(axis, xs.dim);
    ys.dim[ys.n_dim++] = n;
    value x = new_value(NEAP_DTYPE_F32, xs), w = new_value(NEAP_DTYPE_F32, NEAP_SHAPE(n, k)),
          b = new_value(NEAP_DTYPE_F32, NEAP_SHAPE(n));
    value dy = new_value(NEAP_DTYPE_F32, ys);
    run r[3] = {new_run("FC", NEAP_ENGINE_REF), new_run("FCGradInput", NEAP_ENGINE_REF),
                new_run("FCGradWeight", NEAP_ENGINE_REF)};
    r[0].n_in = 3, r[0].n_out = 1, r[0].in[0] = x, r[0].in[1] = w, r[0].in[2] = b;
    r[1].n_in = 2, r[1].n_out = 1, r[1].in[0] = dy, r[1].in[1] = w;
    r[2].n_in = 2, r[2].n_out = 2, r[2].in[0] = x, r[2].in[1] = dy;
    set_int(&r[0], "axis", cases[i].axis), set_int(&r[2], "axis", cases[i].axis);
    set_ints(&r[1], "shape", xs.n_dim, xs.dim);
    for (int q = 0; q < 3; q++) {
      CHECK_OK(infer(&r[q], &error));
      CHECK(perform(&r[q]));
      check_engine(&r[q], NEAP_ENGINE_BLAS, 1e-5, &took);
      check_engine(&r[q], NEAP_ENGINE_DNNL, 1e-5, &took);
      free_outs(&r[q]);
    }
    CHECK_EQ(took, has_dnnl() ? 6 : 3);
    free(x.data), free(w.data), free(b.data), free(dy.data);
  }
}

/* Lists that a file may hold: the sums and products of their numbers must not leave the
 * integers. */
TEST(windows_of_any_size_are_sized_or_refused) {
  static const int64_t sizes[] = {1,        2, 3, INT32_MAX, (int64_t)INT32_MAX + 1, INT64_MAX / 2,
                                  INT64_MAX};
  static const char *const attr[] = {"kernel", "stride", "dilation", "pad"};
  enum { N = NEAP_COUNT(sizes) };
  for (int at = 0; at < 16 * N * N; at++) {
    run r = new_run("MaxPool", NEAP_ENGINE_REF);
    neap_error error = {0};
    r.n_in = 1, r.n_out = 1;
    r.in[0].type = (neap_type){NEAP_DTYPE_F32, NEAP_SHAPE(1, 1, 4, 4, 4)};
    set_ints(&r, "kernel", 1, (int64_t[]){2});
    set_ints(&r, attr[at % 4], 1, &sizes[at / 16 % N]);
    set_ints(&r, attr[at / 4 % 4], 1, &sizes[at / 16 / N]);
    neap_status status = infer(&r, &error);
    CHECK(status == NEAP_OK || status == NEAP_SHAPE || status == NEAP_ATTRIBUTE);
    if (status != NEAP_OK) continue;
    CHECK(r.out[0].type.shape.dim[4] >= 1 && r.out[0].type.shape.dim[4] <= 3 + 2 * 2);
    free_outs(&r);
  }
  run r = new_run("MaxPool", NEAP_ENGINE_REF);
  r.n_in = 1, r.n_out = 1;
  r.in[0].type = (neap_type){NEAP_DTYPE_F32, NEAP_SHAPE(1, 1, 4)};
  set_ints(&r, "kernel", 1, (int64_t[]){INT64_MAX});
  CHECK_FAILS(infer(&r, &error), NEAP_ATTRIBUTE,
              "kernel expects values from 1 to 2147483647, got 9223372036854775807");
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(conv_engines_agree_with_naive_loops),
             T(conv_in_f64_agrees_with_naive_loops),
             T(conv_takes_winograd_within_the_scratch_limit), T(conv_says_what_does_not_fit),
             T(fc_engines_agree), T(windows_of_any_size_are_sized_or_refused));
}
