/* test_ops_pool.c: pools and BatchNorm, forward and backward of one engine. */
#include "conv_run.h"

/* ---- pools and BatchNorm: forward and backward of one engine --------------------------------- */

static const neap_layout blocked = {.kind = NEAP_LAYOUT_BLOCKED,
                                    .n_inner = 1,
                                    .inner_dim = {1},
                                    .inner_block = {16},
                                    .order = {0, 1, 2, 3}};

/* Layouts at hand: f32 values of rank 4 blocked by 16 channels, or all plain. */
static void set_at_hand(run *r, bool is_blocked) {
  for (int i = 0; i < r->n_in; i++)
    r->at_hand[i] =
      is_blocked && r->in[i].type.shape.n_dim == 4 && r->in[i].type.dtype == NEAP_DTYPE_F32
        ? blocked
        : (neap_layout){0};
}

/* MaxPool, AveragePool or GlobalAveragePool and its backward; y and dx. False: the engine takes it
 * not. */
static bool pool_pair(const char *op, neap_engine engine, bool is_blocked, const conv_case *t,
                      bool ceil, bool count_pad, const value *x, const value *dy, value *y,
                      value *dx) {
  char grad[64];
  snprintf(grad, sizeof grad, "%sGrad", op);
  run f = new_run(op, engine), b = new_run(grad, engine);
  run *both[] = {&f, &b};
  bool max = strcmp(op, "MaxPool") == 0, global = strcmp(op, "GlobalAveragePool") == 0;
  for (int i = 0; i < 2 && !global; i++) {
    set_window(both[i], t);
    set_ints(both[i], "kernel", t->n, t->k);
    set_int(both[i], "ceil_mode", ceil);
    if (!max) set_int(both[i], "count_include_pad", count_pad);
  }

  f.n_in = 1, f.n_out = max ? 2 : 1, f.in[0] = *x;
  set_at_hand(&f, is_blocked);
  CHECK_OK(infer(&f, &error));
  if (!perform(&f)) {
    free_outs(&f);
    return false;
  }

  /* The backward reads where the maxima were, in the engine's own form, which the forward has
   * left. */
  set_ints(&b, "shape", x->type.shape.n_dim, x->type.shape.dim);
  b.n_in = max ? 2 : 1, b.n_out = 1, b.pair = &f.choice;
  b.in[0] = (value){f.out[0].type, dy->data};
  if (max)
    b.in[1] = (value){{NEAP_DTYPE_U8, NEAP_SHAPE((int64_t)f.choice.stash_bytes)}, f.out[1].data};
  set_at_hand(&b, false); /* the pair decides */
  CHECK_OK(infer(&b, &error));
  CHECK(perform(&b));
  if (max) free(f.out[1].data);
  *y = f.out[0], *dx = b.out[0];
  return true;
}

static const conv_case pool_cases[] = {
  {2, {2, 3, 6, 7}, 0, {2, 2}, {2, 2}, {1, 1}, 0, {0}, 1},
  {2, {2, 20, 7, 8}, 0, {3, 2}, {2, 1}, {1, 1}, 2, {1, 0}, 1},
  {2, {2, 16, 14, 14}, 0, {3, 3}, {2, 2}, {1, 1}, 2, {1, 1}, 1},
  {2, {1, 50, 8, 8}, 0, {2, 2}, {2, 2}, {1, 1}, 0, {0}, 1},
  {2, {1, 2, 40, 40}, 0, {17, 17}, {3, 3}, {1, 1}, 2, {4, 4}, 1},
  {2, {1, 2, 9, 9}, 0, {2, 2}, {1, 1}, {3, 3}, 0, {0}, 1},
  {1, {2, 3, 9}, 0, {3}, {2}, {1}, 1, {1}, 1},
  {3, {1, 2, 4, 5, 6}, 0, {2, 2, 2}, {1, 2, 2}, {1, 1, 1}, 3, {1, 0, 1}, 1},
};

/* A pool by definition: y, and dx for dy, of one plane set at a time, in double. */
static void naive_pool(bool max, bool count_pad, const conv_case *t, const value *x,
                       const value *dy, value *y, value *dx) {
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, k[3] = {1, 1, 1}, s[3] = {1, 1, 1},
          l[3] = {1, 1, 1}, p[3] = {0};

  /* Fewer than three spatial axes are the last ones; the others have one place. */
  for (int d = 0; d < t->n; d++) {
    int e = 3 - t->n + d;
    in[e] = t->x[2 + d], out[e] = y->type.shape.dim[2 + d], k[e] = t->k[d], s[e] = t->stride[d],
    l[e] = t->dilation[d];
    p[e] = t->n_pad == 0 ? 0 : t->n_pad == 1 ? t->pad[0] : t->pad[d];
  }

  int64_t plane = in[0] * in[1] * in[2], L = out[0] * out[1] * out[2], K = k[0] * k[1] * k[2];
  double *to = dx->data, *ty = y->data;
  memset(to, 0, neap_type_bytes(&dx->type));
  for (int64_t q = 0; q < t->x[0] * t->x[1]; q++)
    for (int64_t i = 0; i < L; i++) {
      int64_t o[3] = {i / (out[1] * out[2]), i / out[2] % out[1], i % out[2]}, best = -1;
      double sum = 0, n = 0;
      for (int turn = 0; turn < 2; turn++) /* the second shares dy out */
        for (int64_t j = 0; j < K; j++) {
          int64_t tap[3] = {j / (k[1] * k[2]), j / k[2] % k[1], j % k[2]}, at = 0;
          bool inside = true, padded = true;

          /* Padding that `ceil` adds behind the end is no padding that counts. */
          for (int d = 0; d < 3; d++) {
            int64_t a = o[d] * s[d] - p[d] + tap[d] * l[d];
            inside = inside && a >= 0 && a < in[d];
            padded = padded && a < in[d] + p[d];
            at = at * in[d] + a;
          }
          if (turn == 0) n += count_pad ? padded : inside;
          if (!inside) continue;
          at += q * plane;
          if (turn == 0) sum += get(x, at);
          if (turn == 0 && (best < 0 || get(x, at) > get(x, best))) best = at;
          if (turn == 1 && !max) to[at] += get(dy, q * L + i) / n;
        }
      if (max) to[best] += get(dy, q * L + i);
      ty[q * L + i] = max ? get(x, best) : sum / n;
    }
}

static int check_pools(const conv_case *t, bool max, bool ceil, bool count_pad) {
  const char *op = max ? "MaxPool" : "AveragePool";
  value x = new_value(NEAP_DTYPE_F32, neap_shape_of(t->n + 2, t->x)), y, dx, yd, dxd;

  /* ties */
  for (int64_t i = 0; i < neap_shape_elems(&x.type.shape); i += 3)
    neap_element_set(NEAP_DTYPE_F32, x.data, i, 0.5);
  value dy = new_value(NEAP_DTYPE_F32, NEAP_SHAPE(100000));
  int took = 0;
  CHECK(pool_pair(op, NEAP_ENGINE_REF, false, t, ceil, count_pad, &x, &dy, &y, &dx));
  double *unused;
  value y_want = like(&y, &unused), dx_want = like(&dx, &unused);
  naive_pool(max, count_pad, t, &x, &dy, &y_want, &dx_want);

  CHECK(distance(&y, &y_want) <= 1e-6);
  CHECK(distance(&dx, &dx_want) <= 1e-6);

  /* From plain inputs and from blocked ones, which give another kernel. */
  for (int is_blocked = 0; is_blocked < 2; is_blocked++)
    if (pool_pair(op, NEAP_ENGINE_DNNL, is_blocked, t, ceil, count_pad, &x, &dy, &yd, &dxd)) {
      took++;
      CHECK(distance(&yd, &y) <= 1e-6);
      CHECK(distance(&dxd, &dx) <= 1e-6);
      free(yd.data), free(dxd.data);
    }
  value all[] = {x, y, dx, dy, y_want, dx_want};
  for (int i = 0; i < NEAP_COUNT(all); i++) free(all[i].data);
  return took;
}

TEST(pools_agree_with_naive_loops) {
  int took[2] = {0};
  for (int i = 0; i < NEAP_COUNT(pool_cases); i++)
    for (int variant = 0; variant < 8; variant++) {
      int before = check_failures;
      took[variant & 1] +=
        check_pools(&pool_cases[i], variant & 1, (variant & 2) != 0, (variant & 4) != 0);
      if (check_failures > before) printf("  ... in pool case %d, variant %d\n", i, variant);
    }
  CHECK(!has_dnnl() || (took[0] >= 20 && took[1] >= 20));
}

TEST(global_average_pool_agrees_with_the_mean) {
  conv_case t = {.n = 2};
  value x = new_value(NEAP_DTYPE_F32, NEAP_SHAPE(2, 20, 5, 7)),
        dy = new_value(NEAP_DTYPE_F32, NEAP_SHAPE(2, 20, 1, 1)), y, dx;
  for (int turn = 0; turn < 3; turn++) { /* ref, dnnl plain, dnnl blocked */
    if (!pool_pair("GlobalAveragePool", turn == 0 ? NEAP_ENGINE_REF : NEAP_ENGINE_DNNL, turn == 2,
                   &t, false, false, &x, &dy, &y, &dx)) {
      CHECK(turn > 0);
      continue;
    }
    for (int64_t p = 0; p < 40; p++) {
      double mean = 0;
      for (int64_t i = 0; i < 35; i++) {
        mean += get(&x, p * 35 + i) / 35;
        CHECK_NEAR(get(&dx, p * 35 + i), get(&dy, p) / 35, 1e-6);
      }
      CHECK_NEAR(get(&y, p), mean, 1e-6);
    }
    free(y.data), free(dx.data);
  }
  free(x.data), free(dy.data);
}

TEST(max_pool_lets_nan_win_and_takes_the_first_of_equals) {
  conv_case t = {1, {1, 1, 4}, 0, {2}, {2}, {1}, 0, {0}, 1};
  value x = new_value(NEAP_DTYPE_F32, NEAP_SHAPE(1, 1, 4)),
        dy = new_value(NEAP_DTYPE_F32, NEAP_SHAPE(2)), y, dx;
  float values[] = {1, 1, NAN, 2}, *d;
  memcpy(x.data, values, sizeof values);
  CHECK(pool_pair("MaxPool", NEAP_ENGINE_REF, false, &t, false, false, &x, &dy, &y, &dx));
  d = dx.data;
  CHECK(get(&y, 0) == 1 && isnan(get(&y, 1)));
  CHECK(d[0] == (float)get(&dy, 0) && d[1] == 0 && d[2] == (float)get(&dy, 1) && d[3] == 0);
  free(x.data), free(dy.data), free(y.data), free(dx.data);
}

/* One pool of x in blocks of 16 channels, and of x as it lies plainly: the same elements, and zeros
 * behind the last channel, which perform() asks of every output. */
static void check_blocks(run *r) {
  run plain = *r;
  r->at_hand[0] = blocked;
  CHECK_OK(infer(r, &error));
  CHECK_OK(infer(&plain, &error));
  CHECK(perform(r) && perform(&plain));
  CHECK_EQ(r->layout_out[0].kind, NEAP_LAYOUT_BLOCKED);
  CHECK_EQ(plain.layout_out[0].kind, NEAP_LAYOUT_PLAIN);
  int n_other = 0;
  for (int64_t i = 0; i < neap_shape_elems(&r->out[0].type.shape); i++)
    n_other += get(&r->out[0], i) != get(&plain.out[0], i);
  CHECK_EQ(n_other, 0);
  free_outs(r), free_outs(&plain);
}

TEST(behind_the_last_channel_zeros_stay_where_a_window_has_no_element) {
  /* Taps of these windows lie 4 apart, beside x on either side: their maximum is below all
   * numbers. */
  static const conv_case apart = {2, {2, 20, 3, 3}, 0, {2, 2}, {1, 1}, {4, 4}, 2, {1, 1}, 1};
  static const neap_dtype halves[] = {NEAP_DTYPE_BF16, NEAP_DTYPE_F16};
  enum { LARGEST, MEAN_WITH_PADDING, MEAN, N_KIND };
  for (int d = 0; d < NEAP_COUNT(halves); d++)
    for (int kind = 0; kind < N_KIND; kind++) {
      run r = new_run(kind == LARGEST ? "MaxPool" : "AveragePool", NEAP_ENGINE_REF);
      set_window(&r, &apart);
      set_ints(&r, "kernel", apart.n, apart.k);
      if (kind != LARGEST) set_int(&r, "count_include_pad", kind == MEAN_WITH_PADDING);
      r.n_in = 1, r.n_out = kind == LARGEST ? 2 : 1;
      r.in[0] = new_value(halves[d], neap_shape_of(4, apart.x));
      check_blocks(&r);
      free(r.in[0].data);
    }
}

/* An operand of i8: `first`, then `step` more at each element. */
static value bytes(neap_shape shape, int64_t first, int64_t step) {
  value v = new_value(NEAP_DTYPE_I8, shape);
  for (int64_t i = 0; i < neap_shape_elems(&shape); i++)
    ((int8_t *)v.data)[i] = (int8_t)(first + i * step);
  return v;
}

TEST(means_of_bytes_in_blocks_have_zeros_behind_the_last_channel) {
  static const int64_t two[] = {2};
  const neap_shape one = {0};
  for (int global = 0; global < 2; global++) {
    run r = new_run(global ? "QLinearGlobalAveragePool" : "QLinearAveragePool", NEAP_ENGINE_REF);
    if (!global) set_ints(&r, "kernel", 1, two);
    r.n_in = 5, r.n_out = 1;
    r.in[0] = bytes(NEAP_SHAPE(2, 20, 4, 5), -100, 7);
    r.in[1] = new_value(NEAP_DTYPE_F32, one), r.in[2] = bytes(one, 9, 0);
    r.in[3] = new_value(NEAP_DTYPE_F32, one), r.in[4] = bytes(one, -3, 0);
    *(float *)r.in[1].data = 0.25f, *(float *)r.in[3].data = 0.125f;
    check_blocks(&r);
    for (int i = 0; i < r.n_in; i++) free(r.in[i].data);
  }
}

TEST(pools_say_what_does_not_fit) {
  run r = new_run("MaxPool", NEAP_ENGINE_REF);
  r.n_in = 1, r.n_out = 1;
  r.in[0].type = (neap_type){NEAP_DTYPE_F32, NEAP_SHAPE(1, 2, 4, 4)};
  set_ints(&r, "kernel", 1, (int64_t[]){2});
  set_ints(&r, "pad", 1, (int64_t[]){2});
  CHECK_FAILS(infer(&r, &error), NEAP_ATTRIBUTE,
              "pad expects less than the window's 2 elements, got 2");
}

typedef struct norm_result {
  value y, mean, var, dx, dgamma, dbeta;
} norm_result;

/* BatchNorm and its backward on one engine. in: x, gamma, beta, running_mean, running_var, dy. */
static bool norm_pair(neap_engine engine, bool is_blocked, bool training, bool relu, value in[6],
                      norm_result *out) {
  run f = new_run("BatchNorm", engine), b = new_run("BatchNormGrad", engine);
  set_int(&f, "training", training), set_int(&b, "training", training);
  set_int(&f, "relu", relu), set_int(&b, "relu", relu);
  f.n_in = training ? 3 : 5, f.n_out = 4;
  memcpy(f.in, in, (size_t)f.n_in * sizeof *in);
  set_at_hand(&f, is_blocked);
  CHECK_OK(infer(&f, &error));
  if (!perform(&f)) {
    free_outs(&f);
    return false;
  }

  /* The backward has the mean and variance that the forward has measured, and its mask. */
  b.n_in = 6, b.n_out = 3, b.pair = &f.choice;
  b.in[0] = in[0], b.in[1] = in[5], b.in[2] = f.out[1], b.in[3] = f.out[2], b.in[4] = in[1];
  b.in[5] = (value){{NEAP_DTYPE_U8, NEAP_SHAPE((int64_t)f.choice.stash_bytes)}, f.out[3].data};
  set_at_hand(&b, false);
  CHECK_OK(infer(&b, &error));
  CHECK(perform(&b));
  *out = (norm_result){f.out[0], f.out[1], f.out[2], b.out[0], b.out[1], b.out[2]};
  free(f.out[3].data);
  return true;
}

static void free_norm(norm_result *r) {
  free(r->y.data), free(r->mean.data), free(r->var.data), free(r->dx.data), free(r->dgamma.data),
    free(r->dbeta.data);
}

/* sum of y dy in double, for x with element i moved by h: the finite difference of it is dx[i]. */
static double norm_loss(value in[6], bool training, bool relu) {
  norm_result r;
  double loss = 0;
  CHECK(norm_pair(NEAP_ENGINE_REF, false, training, relu, in, &r));
  for (int64_t i = 0; i < neap_shape_elems(&r.y.type.shape); i++)
    loss += get(&r.y, i) * get(&in[5], i);
  free_norm(&r);
  return loss;
}

static void norm_inputs(neap_dtype dtype, neap_shape x, value in[6]) {
  in[0] = new_value(dtype, x), in[5] = new_value(dtype, x);
  for (int i = 1; i < 5; i++) in[i] = new_value(dtype, NEAP_SHAPE(x.dim[1]));
  for (int64_t c = 0; c < x.dim[1]; c++)
    neap_element_set(dtype, in[4].data, c, 0.6 + 0.3 * get(&in[4], c));
}

TEST(batch_norm_backward_is_the_finite_difference) {
  for (int variant = 0; variant < 4; variant++) {
    bool training = variant & 1, relu = (variant & 2) != 0;
    value in[6];
    norm_result r;
    norm_inputs(NEAP_DTYPE_F64, NEAP_SHAPE(3, 2, 3), in);
    CHECK(norm_pair(NEAP_ENGINE_REF, false, training, relu, in, &r));
    const value *grad[3] = {&r.dx, &r.dgamma, &r.dbeta};
    for (int k = 0; k < 3; k++)
      for (int64_t i = 0; i < neap_shape_elems(&in[k].type.shape); i++) {
        double *at = (double *)in[k].data + i, before = *at, h = 1e-6;
        *at = before + h;
        double up = norm_loss(in, training, relu);
        *at = before - h;
        double down = norm_loss(in, training, relu);
        *at = before;
        CHECK_NEAR(get(grad[k], i), (up - down) / (2 * h), 1e-6);
      }
    free_norm(&r);
    for (int i = 0; i < 6; i++) free(in[i].data);
  }
}

TEST(batch_norm_engines_agree) {
  const neap_shape shapes[] = {NEAP_SHAPE(4, 16, 6, 5), NEAP_SHAPE(3, 20, 5, 5),
                               NEAP_SHAPE(2, 50, 4, 4), NEAP_SHAPE(8, 24)};
  int took = 0;
  for (int s = 0; s < NEAP_COUNT(shapes); s++)
    for (int variant = 0; variant < 8; variant++) {
      bool training = variant & 1, relu = (variant & 2) != 0, is_blocked = (variant & 4) != 0;
      value in[6];
      norm_result r, d;
      int before = check_failures;
      norm_inputs(NEAP_DTYPE_F32, shapes[s], in);
      CHECK(norm_pair(NEAP_ENGINE_REF, false, training, relu, in, &r));
      if (norm_pair(NEAP_ENGINE_DNNL, is_blocked, training, relu, in, &d)) {
        took++;
        const value *got[] = {&d.y, &d.mean, &d.var, &d.dx, &d.dgamma, &d.dbeta},
                    *want[] = {&r.y, &r.mean, &r.var, &r.dx, &r.dgamma, &r.dbeta};
        for (int i = 0; i < 6; i++) {
          double off = distance(got[i], want[i]);
          if (!(off <= 2e-5)) printf("  output %d is off by %g\n", i, off), check_failures++;
        }
        free_norm(&d);
      }
      if (check_failures > before) printf("  ... shape %d, variant %d\n", s, variant);
      free_norm(&r);
      for (int i = 0; i < 6; i++) free(in[i].data);
    }
  CHECK(!has_dnnl() || took >= 24);
}

int main(int argc, char **argv) {
  return RUN(
    argc, argv, T(pools_agree_with_naive_loops), T(global_average_pool_agrees_with_the_mean),
    T(max_pool_lets_nan_win_and_takes_the_first_of_equals),
    T(behind_the_last_channel_zeros_stay_where_a_window_has_no_element),
    T(means_of_bytes_in_blocks_have_zeros_behind_the_last_channel), T(pools_say_what_does_not_fit),
    T(batch_norm_backward_is_the_finite_difference), T(batch_norm_engines_agree));
}
