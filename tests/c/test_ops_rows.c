/* test_ops_rows.c: softmax, losses, norms, products and attention. */
#include "op_run.h"

/* ---- softmax and losses ---------------------------------------------------------------------- */

TEST(softmax_adds_up_to_one_along_any_axis) {
  for (int log_ = 0; log_ < 2; log_++)
    for (int64_t axis = 0; axis < 3; axis++)
      for (int wide = 0; wide < 2; wide++) {
        op_call c = new_call(log_ ? "LogSoftmax" : "Softmax", 1, 1);
        c.in[0] = tensor(wide ? NEAP_DTYPE_F64 : NEAP_DTYPE_F32, SHAPE(3, 5, 70));
        set_int(&c, "axis", axis);
        run_op(&c);
        int64_t n = c.in[0].type.shape.dim[axis], inner = axis == 0 ? 350 : axis == 1 ? 70 : 1;
        for (int64_t i = 0; i < elems(&c.in[0]); i++) {
          int64_t first = i / (n * inner) * n * inner + i % inner;
          double sum = 0;
          for (int64_t k = 0; k < n; k++) sum += exp(get(&c.in[0], first + k * inner));
          double want = log_ ? get(&c.in[0], i) - log(sum) : exp(get(&c.in[0], i)) / sum;
          CHECK_NEAR(get(&c.out[0], i), want, wide ? 1e-13 : 2e-6);
        }
        op_call place = c; /* in place gives the same bits */
        place.in[0] =
          (neap_operand){.type = c.in[0].type, .data = buffer(neap_type_bytes(&c.in[0].type))};
        memcpy(place.in[0].data, c.in[0].data, neap_type_bytes(&c.in[0].type));
        place.out[0].data = place.in[0].data;
        run_kernel(&place);
        CHECK(same_bytes(&place.out[0], &c.out[0]));
        release_all();
      }
}

TEST(softmax_gradients) {
  for (int log_ = 0; log_ < 2; log_++)
    for (int64_t axis = 0; axis < 2; axis++) {
      op_call c = new_call(log_ ? "LogSoftmax" : "Softmax", 1, 1),
              back = new_call(log_ ? "LogSoftmaxGrad" : "SoftmaxGrad", 2, 1);
      c.in[0] = tensor(NEAP_DTYPE_F64, SHAPE(4, 7));
      set_int(&c, "axis", axis), set_int(&back, "axis", axis);
      run_op(&c);
      back.in[0] = c.out[0], back.in[1] = tensor(NEAP_DTYPE_F64, SHAPE(4, 7));
      run_op(&back);
      op_call again = c;
      again.out[0].data = buffer(4 * 7 * 8);
      check_gradient(&again, 0, &back.in[1], &back.out[0]);
      release_all();
    }
}

static void check_cross_entropy(int reduction, double smoothing, bool weighted, int64_t ignored,
                                bool soft, bool middle) {
  op_call c = new_call("SoftmaxCrossEntropy", 3, 1),
          back = new_call("SoftmaxCrossEntropyGrad", 4, 1);
  neap_shape shape = middle ? SHAPE(2, 5, 3) : SHAPE(6, 5), rows = middle ? SHAPE(2, 3) : SHAPE(6);
  int64_t inner = middle ? 3 : 1;

  /* Shares of each class, which need not add up to 1, or one class a row, all of them met. */
  c.in[0] = tensor(NEAP_DTYPE_F64, shape);
  c.in[1] = soft ? tensor(NEAP_DTYPE_F64, shape) : tensor(NEAP_DTYPE_I64, rows);
  for (int64_t i = 0; i < elems(&c.in[1]); i++)
    if (soft)
      ((double *)c.in[1].data)[i] = fabs(get(&c.in[1], i));
    else
      ((int64_t *)c.in[1].data)[i] = (i * 3 + 1) % 5;

  if (weighted) {
    c.in[2] = tensor(NEAP_DTYPE_F64, SHAPE(5));
    for (int i = 0; i < 5; i++) ((double *)c.in[2].data)[i] = 0.5 + 0.25 * i;
  }

  set_int(&c, "reduction", reduction), set_float(&c, "label_smoothing", smoothing),
    set_int(&c, "ignore_index", ignored);
  set_int(&c, "axis", middle ? 1 : -1);
  run_op(&c);

  /* The definition, row by row: logs of shares against those of the labels, smoothed over all
   * classes. */
  double total = 0, divisor = 0;
  for (int64_t r = 0; r < 6; r++) {
    /* Classes of a row lie `inner` apart, where they are not the last axis. */
    int64_t first = r / inner * 5 * inner + r % inner,
            label = soft ? -1 : ((int64_t *)c.in[1].data)[r];
    double sum = 0, loss = 0;
    for (int k = 0; k < 5; k++) sum += exp(get(&c.in[0], first + k * inner));
    for (int k = 0; k < 5; k++) {
      double w = weighted ? get(&c.in[2], k) : 1,
             share = soft ? get(&c.in[1], first + k * inner) : k == label;
      loss -= w * ((1 - smoothing) * share + smoothing / 5) *
              (get(&c.in[0], first + k * inner) - log(sum));
    }

    /* A row that is ignored counts for nothing: neither as loss nor in the mean. */
    if (!soft && label == ignored)
      loss = 0;
    else
      divisor += soft ? 1 : weighted ? get(&c.in[2], label) : 1;
    total += loss;
    if (reduction == 0) CHECK_NEAR(get(&c.out[0], r), loss, 1e-12);
  }
  if (reduction == 1) CHECK_NEAR(get(&c.out[0], 0), total / divisor, 1e-12);
  if (reduction == 2) CHECK_NEAR(get(&c.out[0], 0), total, 1e-12);

  /* The gradient against differences of the forward that was just checked. */
  memcpy(back.attrs, c.attrs, sizeof c.attrs);
  for (int i = 0; i < 3; i++) back.in[i] = c.in[i];
  back.in[3] = tensor(NEAP_DTYPE_F64, c.out[0].type.shape);
  run_op(&back);
  check_gradient(&c, 0, &back.in[3], &back.out[0]);
  neap_operand apart = back.out[0]; /* over the logits: the same bits */
  back.out[0].data = back.in[0].data;
  run_kernel(&back);
  CHECK(same_bytes(&back.out[0], &apart));
  release_all();
}

TEST(cross_entropy_follows_its_definition) {
  for (int reduction = 0; reduction < 3; reduction++)
    for (int kind = 0; kind < 16; kind++)
      check_cross_entropy(reduction, (kind & 1) ? 0.15 : 0, (kind & 2) != 0, (kind & 4) ? 1 : -100,
                          kind >= 12, (kind & 8) != 0);
}

TEST(cross_entropy_in_f32_and_bad_labels) {
  op_call c = new_call("SoftmaxCrossEntropy", 2, 1);
  c.in[0] = tensor(NEAP_DTYPE_F32, SHAPE(50, 1000));
  c.in[1] = tensor(NEAP_DTYPE_U8, SHAPE(50));
  run_op(&c);
  double total = 0;
  for (int64_t r = 0; r < 50; r++) {
    double sum = 0;
    for (int64_t k = 0; k < 1000; k++) sum += exp(get(&c.in[0], r * 1000 + k));
    total += log(sum) - get(&c.in[0], r * 1000 + (int64_t)get(&c.in[1], r));
  }
  CHECK_NEAR(get(&c.out[0], 0), total / 50, 1e-5);
  CHECK(!c.fault.set);
  c.in[0] = tensor(NEAP_DTYPE_F32, SHAPE(50, 10));
  run_op(&c);
  CHECK(c.fault.set);
  CHECK(strstr(c.fault.message, "out of range for 10 classes") != NULL);
  CHECK(isfinite(get(&c.out[0], 0)));
  op_call top = new_call("Accuracy", 2, 1);
  top.in[0] = tensor(NEAP_DTYPE_F32, SHAPE(4, 3)), top.in[1] = tensor(NEAP_DTYPE_I32, SHAPE(4));
  memcpy(top.in[0].data, (float[]){3, 2, 1, 1, 3, 2, 1, 1, 0, 0, 1, 2}, 48);
  memcpy(top.in[1].data, (int32_t[]){0, 2, 1, 2}, 16);
  run_op(&top);
  CHECK_NEAR(get(&top.out[0], 0), 0.5, 1e-7); /* a tie goes to the smaller class */
  set_int(&top, "top_k", 2);
  run_op(&top);
  CHECK_NEAR(get(&top.out[0], 0), 1, 1e-7);
  release_all();
}

/* ---- norms ----------------------------------------------------------------------------------- */

static void check_norm(bool centre, int64_t axis, bool gamma, bool beta) {
  neap_shape shape = SHAPE(3, 4, 5), features = axis == 2 ? SHAPE(5) : SHAPE(4, 5);
  int64_t n = neap_shape_elems(&features), m = 60 / n;
  int stats = centre ? 2 : 1;
  op_call c = new_call(centre ? "LayerNorm" : "RmsNorm", centre ? 3 : 2, 1 + stats);
  c.in[0] = tensor(NEAP_DTYPE_F64, shape);
  if (gamma) c.in[1] = tensor(NEAP_DTYPE_F64, features);
  if (beta) c.in[2] = tensor(NEAP_DTYPE_F64, features);
  set_int(&c, "axis", axis);
  run_op(&c);

  double eps = c.attrs[1].f;
  for (int64_t r = 0; r < m; r++) {
    double mean = 0, square = 0;
    for (int64_t i = 0; i < n && centre; i++) mean += get(&c.in[0], r * n + i) / (double)n;
    for (int64_t i = 0; i < n; i++) square += pow(get(&c.in[0], r * n + i) - mean, 2) / (double)n;
    for (int64_t i = 0; i < n; i++) {
      double y = (get(&c.in[0], r * n + i) - mean) / sqrt(square + eps);
      CHECK_NEAR(get(&c.out[0], r * n + i),
                 y * (gamma ? get(&c.in[1], i) : 1) + (beta ? get(&c.in[2], i) : 0), 1e-12);
    }
  }
  op_call back = new_call(centre ? "LayerNormGrad" : "RmsNormGrad", centre ? 5 : 4, beta ? 3 : 2);
  back.in[0] = c.in[0], back.in[1] = c.in[1], back.in[2] = tensor(NEAP_DTYPE_F64, shape),
  back.in[3] = c.out[stats];
  if (centre) back.in[4] = c.out[1];
  set_int(&back, "axis", axis);
  run_op(&back);
  check_gradient(&c, 0, &back.in[2], &back.out[0]);
  if (gamma) check_gradient(&c, 1, &back.in[2], &back.out[1]);
  if (beta) check_gradient(&c, 2, &back.in[2], &back.out[2]);
  release_all();
}

TEST(norms_and_their_gradients) {
  for (int64_t axis = 1; axis < 3; axis++)
    for (int kind = 0; kind < 4; kind++) {
      check_norm(true, axis, (kind & 1) != 0, (kind & 2) != 0);
      if (kind < 2) check_norm(false, axis, kind == 1, false);
    }
}

/* ---- products -------------------------------------------------------------------------------- */

/* y[i,j] of batch element by its index in y, read through NumPy's rules. */
static double matmul_at(const op_call *c, int64_t at) {
  const neap_shape *sa = &c->in[0].type.shape, *sb = &c->in[1].type.shape,
                   *sy = &c->out[0].type.shape;
  bool ta = c->attrs[0].i != 0, tb = c->attrs[1].i != 0;
  int64_t y[NEAP_MAX_DIM], a[NEAP_MAX_DIM] = {0}, b[NEAP_MAX_DIM] = {0};
  unravel(sy, at, y);

  /* What stands before the matrix is a batch. It is counted from behind, and a 1 goes with any
   * index. */
  int n_batch = sy->n_dim - (sa->n_dim > 1) - (sb->n_dim > 1), ra = sa->n_dim, rb = sb->n_dim;
  for (int d = 0; d < n_batch; d++) {
    int da = d - (n_batch - (ra - 2)), db = d - (n_batch - (rb - 2));
    if (ra > 2 && da >= 0 && sa->dim[da] != 1) a[da] = y[d];
    if (rb > 2 && db >= 0 && sb->dim[db] != 1) b[db] = y[d];
  }

  /* A vector has neither row nor column of y: its only axis is the sum's. */
  int64_t i = ra > 1 ? y[n_batch] : 0, j = rb > 1 ? y[sy->n_dim - 1] : 0,
          n_k = ra == 1 ? sa->dim[0] : sa->dim[ta ? ra - 2 : ra - 1];
  double sum = 0;
  for (int64_t k = 0; k < n_k; k++) {
    if (ra == 1)
      a[0] = k;
    else
      a[ra - 2] = ta ? k : i, a[ra - 1] = ta ? i : k;
    if (rb == 1)
      b[0] = k;
    else
      b[rb - 2] = tb ? j : k, b[rb - 1] = tb ? k : j;
    sum += get(&c->in[0], ravel(sa, a)) * get(&c->in[1], ravel(sb, b));
  }
  return sum;
}

static void check_matmul(neap_shape a, neap_shape b, bool ta, bool tb) {
  for (int kind = 0; kind < 4 + has_dnnl(); kind++) {
    op_call c = new_call("MatMul", 2, 1);
    c.engine = kind == 4 ? NEAP_ENGINE_DNNL : (kind & 1) ? NEAP_ENGINE_BLAS : NEAP_ENGINE_REF;
    neap_dtype dtype = (kind & 2) ? NEAP_DTYPE_F64 : NEAP_DTYPE_F32;
    c.in[0] = tensor(dtype, a), c.in[1] = tensor(dtype, b);
    set_int(&c, "trans_a", ta), set_int(&c, "trans_b", tb);
    run_op(&c);
    for (int64_t i = 0; i < elems(&c.out[0]); i++)
      CHECK_NEAR(get(&c.out[0], i), matmul_at(&c, i), (kind & 2) ? 1e-12 : 2e-5);
    release_all();
  }
}

TEST(matmul_follows_numpy) {
  check_matmul(SHAPE(5), SHAPE(5), false, false);
  check_matmul(SHAPE(4, 5), SHAPE(5), false, false);
  check_matmul(SHAPE(4), SHAPE(4, 3), false, false);
  check_matmul(SHAPE(17, 33), SHAPE(33, 9), false, false);
  check_matmul(SHAPE(33, 17), SHAPE(9, 33), true, true);
  check_matmul(SHAPE(2, 1, 4, 5), SHAPE(3, 5, 2), false, false);
  check_matmul(SHAPE(6, 5, 4), SHAPE(6, 5, 3), true, false);
  check_matmul(SHAPE(3, 2, 4, 5), SHAPE(6, 5), false, true);
  check_matmul(SHAPE(3, 5, 4), SHAPE(5, 6), true, false);
  check_matmul(SHAPE(4, 5), SHAPE(3, 5, 2), false, false);
  check_matmul(SHAPE(2, 0), SHAPE(0, 3), false, false);
  check_matmul(SHAPE(0, 4, 5), SHAPE(5, 3), false, false);
  op_call bad = new_call("MatMul", 2, 1);
  bad.in[0] = tensor(NEAP_DTYPE_F32, SHAPE(4, 5)), bad.in[1] = tensor(NEAP_DTYPE_F32, SHAPE(4, 5));
  CHECK_FAILS(infer(&bad, &error), NEAP_SHAPE, "do not multiply");
  release_all();
}

/* ---- attention ------------------------------------------------------------------------------- */

typedef struct attention_case {
  int64_t batch, heads, key_heads, queries, keys, depth, value_depth;
  bool causal, by_rows;
  int mask; /* 0 none, 1 added, 2 bool with one row that sees nothing */
} attention_case;

static op_call attention_forward(const attention_case *a, neap_dtype dtype, neap_engine engine) {
  op_call c = new_call("Attention", a->mask != 0 ? 4 : 3, 2);
  c.engine = engine;
  state = 7;

  /* Heads side by side in each row, or as an axis of their own: the same numbers otherwise. */
  if (a->by_rows) {
    c.in[0] = tensor(dtype, SHAPE(a->batch, a->queries, a->heads * a->depth));
    c.in[1] = tensor(dtype, SHAPE(a->batch, a->keys, a->key_heads * a->depth));
    c.in[2] = tensor(dtype, SHAPE(a->batch, a->keys, a->key_heads * a->value_depth));
    set_int(&c, "heads", a->heads);
  } else {
    c.in[0] = tensor(dtype, SHAPE(a->batch, a->heads, a->queries, a->depth));
    c.in[1] = tensor(dtype, SHAPE(a->batch, a->key_heads, a->keys, a->depth));
    c.in[2] = tensor(dtype, SHAPE(a->batch, a->key_heads, a->keys, a->value_depth));
  }

  /* What is added to scores, or which keys a query sees: its second row sees none. */
  if (a->mask == 1) c.in[3] = tensor(dtype, SHAPE(a->batch, 1, a->queries, a->keys));
  if (a->mask == 2) {
    c.in[3] = tensor(NEAP_DTYPE_BOOL, SHAPE(a->queries, a->keys));
    for (int64_t i = 0; i < elems(&c.in[3]); i++)
      ((uint8_t *)c.in[3].data)[i] = i / a->keys != 1 && (i * 7 % 3) != 0;
  }
  set_int(&c, "causal", a->causal);
  run_op(&c);
  return c;
}

static op_call attention_backward(const op_call *forward, bool dmask) {
  op_call c = new_call("AttentionGrad", 7, dmask ? 4 : 3);
  c.engine = forward->engine;
  memcpy(c.attrs, forward->attrs, sizeof c.attrs);
  for (int i = 0; i < forward->n_in; i++) c.in[i] = forward->in[i];
  c.in[4] = forward->out[0], c.in[5] = forward->out[1];
  state = 99;
  c.in[6] = tensor(forward->out[0].type.dtype, forward->out[0].type.shape);
  run_op(&c);
  return c;
}

/* y of (B,H,T,E) against the definition. */
static double attention_error(const attention_case *a, const op_call *c) {
  double far = 0, scale = 1 / sqrt((double)a->depth);
  double *p = buffer((size_t)a->keys * sizeof *p);
  for (int64_t row = 0; row < a->batch * a->heads * a->queries; row++) {
    /* Several heads of queries share one of keys. */
    int64_t i = row % a->queries, h = row / a->queries % a->heads, b = row / a->queries / a->heads,
            g = h / (a->heads / a->key_heads);
    double sum = 0;
    for (int64_t j = 0; j < a->keys; j++) {
      double s = 0;
      for (int64_t d = 0; d < a->depth; d++)
        s += get(&c->in[0], row * a->depth + d) *
             get(&c->in[1], ((b * a->key_heads + g) * a->keys + j) * a->depth + d);
      s *= scale;
      if (a->mask == 1) s += get(&c->in[3], (b * a->queries + i) * a->keys + j);
      bool seen = !(a->causal && j > i) && !(a->mask == 2 && get(&c->in[3], i * a->keys + j) == 0);
      sum += p[j] = seen ? exp(s) : 0;
    }

    /* A query that sees no key gives zeros. */
    for (int64_t e = 0; e < a->value_depth; e++) {
      double y = 0;
      for (int64_t j = 0; j < a->keys && sum > 0; j++)
        y +=
          p[j] / sum * get(&c->in[2], ((b * a->key_heads + g) * a->keys + j) * a->value_depth + e);
      double d = fabs(y - get(&c->out[0], row * a->value_depth + e));
      far = d == d ? fmax(far, d) : INFINITY;
    }
  }
  return far;
}

static const attention_case attention_cases[] = {
  {2, 2, 2, 5, 5, 4, 4, false, false, 0},     {2, 2, 2, 5, 5, 4, 4, true, false, 0},
  {2, 2, 2, 3, 6, 4, 4, true, false, 0},      {2, 4, 2, 5, 5, 4, 3, false, false, 0},
  {1, 1, 1, 67, 67, 16, 16, true, false, 0},  {1, 2, 1, 130, 600, 8, 8, false, false, 0},
  {1, 2, 2, 600, 600, 8, 12, true, false, 0}, {2, 2, 2, 5, 5, 4, 4, false, false, 1},
  {2, 2, 2, 70, 300, 4, 4, false, false, 2},  {1, 1, 1, 4, 3, 2, 2, true, false, 2},
  {2, 3, 3, 9, 0, 4, 4, false, false, 0},
};

TEST(attention_tiles_give_what_the_definition_says) {
  for (int i = 0; i < NEAP_COUNT(attention_cases); i++) {
    const attention_case *a = &attention_cases[i];
    op_call wide = attention_forward(a, NEAP_DTYPE_F64, NEAP_ENGINE_REF),
            tiled = attention_forward(a, NEAP_DTYPE_F64, NEAP_ENGINE_BLAS);
    op_call slow = attention_forward(a, NEAP_DTYPE_F32, NEAP_ENGINE_REF);
    CHECK_NEAR(attention_error(a, &wide), 0, 1e-12);
    CHECK_NEAR(attention_error(a, &tiled), 0, 1e-12);
    CHECK_NEAR(attention_error(a, &slow), 0, 3e-6);
    if (a->mask != 2) CHECK(distance(&tiled.out[1], &wide.out[1]) < 1e-12 || a->keys == 0);
    op_call back = attention_backward(&wide, a->mask == 1),
            back_tiled = attention_backward(&tiled, a->mask == 1);
    op_call back_slow = attention_backward(&slow, false);
    for (int k = 0; k < back.n_out; k++)
      CHECK_NEAR(distance(&back_tiled.out[k], &back.out[k]), 0, 1e-12);
    for (int engine = NEAP_ENGINE_BLAS;
         engine <= (has_dnnl() ? NEAP_ENGINE_DNNL : NEAP_ENGINE_BLAS); engine++) {
      op_call narrow = attention_forward(a, NEAP_DTYPE_F32, (neap_engine)engine),
              back_narrow = attention_backward(&narrow, false);
      CHECK_NEAR(attention_error(a, &narrow), 0, 3e-6);
      for (int k = 0; k < 3; k++)
        CHECK_NEAR(distance(&back_narrow.out[k], &back_slow.out[k]), 0, 3e-5);
    }
    release_all();
  }
}

TEST(attention_gradients) {
  for (int i = 0; i < NEAP_COUNT(attention_cases); i++) {
    const attention_case *a = &attention_cases[i];
    if (a->batch * a->heads * a->queries * a->keys > 200) continue;
    for (int engine = NEAP_ENGINE_REF; engine <= NEAP_ENGINE_BLAS; engine++) {
      op_call c = attention_forward(a, NEAP_DTYPE_F64, (neap_engine)engine);
      op_call back = attention_backward(&c, false);
      op_call again = c;
      again.out[0].data = again.out[1].data = NULL;
      CHECK_OK(infer(&again, &error));
      for (int k = 0; k < 3; k++) check_gradient(&again, k, &back.in[6], &back.out[k]);
      release_all();
    }
  }
}

/* Both forms of rows against (B,H,T,D): the same numbers, other places. */
TEST(attention_reads_packed_and_row_forms) {
  enum { B = 2, H = 3, T = 70, D = 8, C = H * D };
  for (int engine = NEAP_ENGINE_REF; engine <= NEAP_ENGINE_BLAS; engine++) {
    attention_case a = {B, H, H, T, T, D, D, true, true, 0};
    op_call rows = attention_forward(&a, NEAP_DTYPE_F32, (neap_engine)engine),
            back = attention_backward(&rows, false);
    op_call heads = new_call("Attention", 3, 2), packed = new_call("PackedAttention", 1, 2),
            packed_back = new_call("PackedAttentionGrad", 5, 1);
    heads.engine = packed.engine = packed_back.engine = (neap_engine)engine;
    set_int(&heads, "causal", 1), set_int(&packed, "causal", 1), set_int(&packed, "heads", H);
    memcpy(packed_back.attrs, packed.attrs, sizeof packed.attrs);
    packed.in[0] = tensor(NEAP_DTYPE_F32, SHAPE(B, T, 3 * C));
    for (int i = 0; i < 3; i++) {
      heads.in[i] = tensor(NEAP_DTYPE_F32, SHAPE(B, H, T, D));
      for (int64_t at = 0; at < B * T * C; at++) {
        int64_t b = at / C / T, t = at / C % T, h = at % C / D, d = at % D;
        float x = ((float *)rows.in[i].data)[at];
        ((float *)heads.in[i].data)[((b * H + h) * T + t) * D + d] = x;
        ((float *)packed.in[0].data)[(b * T + t) * 3 * C + i * C + h * D + d] = x;
      }
    }
    run_op(&heads);
    run_op(&packed);
    CHECK_NEAR(distance(&packed.out[0], &rows.out[0]), 0, 1e-6);
    CHECK_NEAR(distance(&heads.out[1], &rows.out[1]), 0, 1e-6);
    double far = 0;
    for (int64_t at = 0; at < B * T * C; at++) {
      int64_t b = at / C / T, t = at / C % T, h = at % C / D, d = at % D;
      far =
        fmax(far, fabs(get(&rows.out[0], at) - get(&heads.out[0], ((b * H + h) * T + t) * D + d)));
    }
    CHECK_NEAR(far, 0, 1e-6);
    packed_back.in[0] = packed.in[0], packed_back.in[2] = packed.out[0],
    packed_back.in[3] = packed.out[1], packed_back.in[4] = back.in[6];
    run_op(&packed_back);
    far = 0;
    for (int i = 0; i < 3; i++)
      for (int64_t at = 0; at < B * T * C; at++)
        far = fmax(far, fabs(get(&back.out[i], at) -
                             get(&packed_back.out[0], at / C * 3 * C + i * C + at % C)));
    CHECK_NEAR(far, 0, 1e-5);
    release_all();
  }
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(softmax_adds_up_to_one_along_any_axis), T(softmax_gradients),
             T(cross_entropy_follows_its_definition), T(cross_entropy_in_f32_and_bad_labels),
             T(norms_and_their_gradients), T(matmul_follows_numpy),
             T(attention_tiles_give_what_the_definition_says), T(attention_gradients),
             T(attention_reads_packed_and_row_forms));
}
