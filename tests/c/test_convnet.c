/* test_convnet.c: a small convolutional net through the whole way: engines agree on loss and
 * gradients though layouts and stashes differ; planned runs equal unplanned ones bit for bit; a
 * step allocates nothing. */
#include "mlp.h"

enum { BATCH = 4, CLASSES = 5 };

/* Two convolutions with BatchNorm, residual sum, pools: channels 20 are no multiple of a block. */
static const struct {
  const char *name;
  neap_shape shape;
} params[] = {
  {"w1", {4, {20, 3, 3, 3}}},  {"b1", {1, {20}}},           {"gamma", {1, {20}}},
  {"beta", {1, {20}}},         {"w2", {4, {20, 20, 3, 3}}}, {"b2", {1, {20}}},
  {"w3", {4, {32, 20, 1, 1}}}, {"w4", {2, {CLASSES, 32}}},  {"b4", {1, {CLASSES}}},
};

static neap_status add(neap_net *net, const char *type, int n_in, const char *const *in, int n_out,
                       const char *const *out, const neap_set *set, neap_error *error) {
  neap_net_call call = {
    .type = type, .n_in = n_in, .in = in, .n_out = n_out, .out = out, .attrs = set};
  return neap_net_add(net, &call, NULL, error);
}

static neap_status build_ops(neap_net *net, neap_error *error) {
  static const int64_t one[] = {1}, two[] = {2}, three[] = {3};
  const neap_set same[] = {NEAP_SET_INTS("pad", 1, one), {0}},
                 train[] = {NEAP_SET_INT("training", 1), {0}};
  const neap_set max[] = {NEAP_SET_INTS("kernel", 1, two), {0}};
  const neap_set mean[] = {NEAP_SET_INTS("kernel", 1, three),
                           NEAP_SET_INTS("stride", 1, two),
                           NEAP_SET_INTS("pad", 1, one),
                           {0}};
  NEAP_TRY(add(net, "Conv", 3, NAMES("x", "w1", "b1"), 1, NAMES("c1"), same, error));
  NEAP_TRY(add(net, "BatchNorm", 3, NAMES("c1", "gamma", "beta"), 3, NAMES("n1", "mean", "var"),
               train, error));
  NEAP_TRY(add(net, "Relu", 1, NAMES("n1"), 1, NAMES("r1"), NULL, error));
  NEAP_TRY(add(net, "MaxPool", 1, NAMES("r1"), 1, NAMES("p1"), max, error));
  NEAP_TRY(add(net, "Conv", 3, NAMES("p1", "w2", "b2"), 1, NAMES("c2"), same, error));
  NEAP_TRY(add(net, "AddN", 2, NAMES("c2", "p1"), 1, NAMES("s2"), NULL, error));
  NEAP_TRY(add(net, "AveragePool", 1, NAMES("s2"), 1, NAMES("p2"), mean, error));
  NEAP_TRY(add(net, "Conv", 2, NAMES("p2", "w3"), 1, NAMES("c3"), NULL, error));
  NEAP_TRY(add(net, "GlobalAveragePool", 1, NAMES("c3"), 1, NAMES("g"), NULL, error));
  NEAP_TRY(add(net, "Flatten", 1, NAMES("g"), 1, NAMES("f"), NULL, error));
  NEAP_TRY(add(net, "FC", 3, NAMES("f", "w4", "b4"), 1, NAMES("y"), NULL, error));
  return add(net, "SoftmaxCrossEntropy", 2, NAMES("y", "label"), 1, NAMES("loss"), NULL, error);
}

static neap_status build(neap_net *net, neap_error *error) {
  const char *names[NEAP_COUNT(params)];
  NEAP_TRY(
    mlp_declare(net, "x", NEAP_ROLE_INPUT, NEAP_DTYPE_F32, NEAP_SHAPE(BATCH, 3, 12, 12), error));
  NEAP_TRY(mlp_declare(net, "label", NEAP_ROLE_INPUT, NEAP_DTYPE_I32, NEAP_SHAPE(BATCH), error));
  for (int i = 0; i < NEAP_COUNT(params); i++) {
    names[i] = params[i].name;
    NEAP_TRY(
      mlp_declare(net, names[i], NEAP_ROLE_PARAMETER, NEAP_DTYPE_F32, params[i].shape, error));
  }
  NEAP_TRY(build_ops(net, error));
  NEAP_TRY(neap_net_set_outputs(net, 1, NAMES("loss"), error));
  return neap_net_add_gradient(net, "loss", NEAP_COUNT(params), names, NULL, NULL, error);
}

static neap_status open_net(mlp *m, const neap_compile_options *options, neap_error *error) {
  *m = (mlp){0};
  NEAP_TRY(neap_workspace_new(&(neap_workspace_options){.seed = 1}, &m->ws, error));
  NEAP_TRY(neap_net_new("convnet", &m->net, error));
  NEAP_TRY(build(m->net, error));
  NEAP_TRY(neap_workspace_init(m->ws, m->net, error));
  NEAP_TRY(mlp_feed(m->ws, "x", NEAP_DTYPE_F32, NEAP_SHAPE(BATCH, 3, 12, 12), 100, error));
  NEAP_TRY(mlp_feed(m->ws, "label", NEAP_DTYPE_I32, NEAP_SHAPE(BATCH), 200, error));
  for (int i = 0; i < NEAP_COUNT(params); i++)
    NEAP_TRY(mlp_feed(m->ws, params[i].name, NEAP_DTYPE_F32, params[i].shape, i, error));
  NEAP_TRY(neap_driver_compile(m->ws, m->net, options, &m->session, error));
  return neap_session_run(m->session, error);
}

/* Every gradient of b is that of a, within `tolerance` of its largest element. */
static void check_gradients(mlp *a, mlp *b, double tolerance) {
  CHECK_NEAR(mlp_element(a->ws, "loss", 0), mlp_element(b->ws, "loss", 0), tolerance);
  for (int i = 0; i < NEAP_COUNT(params); i++) {
    char grad[32];
    double scale = 0, worst = 0;
    snprintf(grad, sizeof grad, "%s_grad", params[i].name);
    for (int64_t k = 0; k < neap_shape_elems(&params[i].shape); k++) {
      double x = mlp_element(a->ws, grad, k), y = mlp_element(b->ws, grad, k), d = fabs(x - y);
      scale = NEAP_MAX(scale, fabs(x));
      if (!(d <= worst)) worst = d;
    }
    /* a bias in front of BatchNorm has no gradient but rounding */
    if (!(worst <= tolerance * NEAP_MAX(scale, 1e-2)))
      printf("  %s: off by %g of %g\n", grad, worst, scale), check_failures++;
  }
}

TEST(engines_agree_on_loss_and_gradients) {
  static const char *const engine[] = {"blas", "dnnl", "free"};
  mlp ref;
  CHECK_OK(
    open_net(&ref, &(neap_compile_options){.plan = {.policy = NEAP_POLICY_OFFSET}, .engine = "ref"},
             &error));
  CHECK(mlp_element(ref.ws, "loss", 0) > 0);
  for (int e = 0; e < NEAP_COUNT(engine); e++)
    for (int threads = 1; threads <= 2; threads++) {
      mlp m;
      neap_compile_options options = {
        .plan = {.policy = NEAP_POLICY_OFFSET}, .engine = engine[e], .n_thread = threads};
      CHECK_OK(open_net(&m, &options, &error));
      if (m.session != NULL) check_gradients(&ref, &m, 1e-4);
      mlp_close(&m);
    }
  mlp_close(&ref);
}

TEST(planned_equals_unplanned) {
  mlp none;
  CHECK_OK(open_net(
    &none, &(neap_compile_options){.plan = {.policy = NEAP_POLICY_NONE}, .n_thread = 2}, &error));
  for (int way = 0; way < 4; way++) {
    mlp m;
    neap_compile_options options = {
      .plan = {.policy = way & 1 ? NEAP_POLICY_OFFSET : NEAP_POLICY_NAME,
               .executor = way & 2 ? NEAP_EXECUTOR_DAG : NEAP_EXECUTOR_SIMPLE},
      .n_thread = 2};
    CHECK_OK(open_net(&m, &options, &error));
    if (m.session != NULL) {
      neap_workspace_set_poison(m.ws, true);
      CHECK_OK(neap_session_run(m.session, &error));
      CHECK(mlp_same_bits(none.ws, m.ws, "loss"));
      for (int i = 0; i < NEAP_COUNT(params); i++) {
        char grad[32];
        snprintf(grad, sizeof grad, "%s_grad", params[i].name);
        CHECK(mlp_same_bits(none.ws, m.ws, grad));
      }
      CHECK_EQ(neap_session_stats_read(m.session).n_alloc_last, 0);
    }
    mlp_close(&m);
  }
  mlp_close(&none);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(engines_agree_on_loss_and_gradients), T(planned_equals_unplanned));
}
