/* test_ops_update.c: random numbers, losses and updates, against formulas in double. */
#include "math/philox.h"
#include "op_call.h"

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

      /* Each element by the definition, and the slope that the backward must give for it. */
      double sum = 0;
      for (int64_t i = 0; i < 185; i++) {
        double d = op_get(&k.in[0], i) - op_get(&k.in[1], i), each = square ? d * d : fabs(d);
        double slope = square ? 2 * d : (d > 0) - (d < 0),
               dy = op_get(&back.in[2], reduction == 2 ? i : 0);
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

int main(int argc, char **argv) {
  return RUN(argc, argv, T(random_numbers_depend_on_their_counter_only),
             T(random_numbers_have_their_distribution), T(dropout_keeps_what_its_mask_says),
             T(distance_losses), T(sgd_follows_its_formula), T(adam_follows_its_formula),
             T(updates_in_place_give_the_same_bits), T(norms_clip));
}
