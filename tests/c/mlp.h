/* mlp.h: a small perceptron for the tests of program, workspace and driver: x (B,K) -> fc1 -> relu
 * -> fc2 -> loss, with fixed numbers in parameters and inputs, and with training where asked. */
#ifndef NEAP_TESTS_MLP_H
#define NEAP_TESTS_MLP_H

#include "check.h"
#include "driver/driver.h"

enum { MLP_BATCH = 8, MLP_IN = 12, MLP_HIDDEN = 16, MLP_OUT = 5 };

#define NAMES(...) ((const char *const[]){__VA_ARGS__})

typedef struct mlp {
  neap_workspace *ws;
  neap_net *net;
  neap_session *session; /* NULL until compiled */
} mlp;

static inline bool has_ops(int n, const char *const *name) {
  for (int i = 0; i < n; i++)
    if (neap_op_find(name[i]) == NULL) return false;
  return true;
}

static inline neap_status mlp_add(neap_net *net, const char *type, int n_in, const char *const *in,
                                  const char *out, const neap_set *set, neap_error *error) {
  neap_net_call call = {.type = type,
                        .n_in = n_in,
                        .in = in,
                        .n_out = 1,
                        .out = &out,
                        .attrs = set,
                        .line = "mlp.lua:3"};
  return neap_net_add(net, &call, NULL, error);
}

static inline neap_status mlp_declare(neap_net *net, const char *name, neap_role role,
                                      neap_dtype dtype, neap_shape shape, neap_error *error) {
  neap_type type = {dtype, shape};
  return neap_net_declare(net, name, role, &type, role == NEAP_ROLE_PARAMETER, NULL, NULL, NULL,
                          error);
}

/* The net up to "loss"; with `train` the gradient and one Sgd per parameter. */
static inline neap_status mlp_build(bool train, neap_net **out, neap_error *error) {
  neap_net *net = NULL;
  NEAP_TRY(neap_net_new("mlp", &net, error));
  neap_status s =
    mlp_declare(net, "x", NEAP_ROLE_INPUT, NEAP_DTYPE_F32, NEAP_SHAPE(MLP_BATCH, MLP_IN), error);
  if (s == NEAP_OK)
    s = mlp_declare(net, "label", NEAP_ROLE_INPUT, NEAP_DTYPE_I32, NEAP_SHAPE(MLP_BATCH), error);
  if (s == NEAP_OK)
    s = mlp_declare(net, "w1", NEAP_ROLE_PARAMETER, NEAP_DTYPE_F32, NEAP_SHAPE(MLP_HIDDEN, MLP_IN),
                    error);
  if (s == NEAP_OK)
    s = mlp_declare(net, "b1", NEAP_ROLE_PARAMETER, NEAP_DTYPE_F32, NEAP_SHAPE(MLP_HIDDEN), error);
  if (s == NEAP_OK)
    s = mlp_declare(net, "w2", NEAP_ROLE_PARAMETER, NEAP_DTYPE_F32, NEAP_SHAPE(MLP_OUT, MLP_HIDDEN),
                    error);
  if (s == NEAP_OK)
    s = mlp_declare(net, "b2", NEAP_ROLE_PARAMETER, NEAP_DTYPE_F32, NEAP_SHAPE(MLP_OUT), error);

  if (s == NEAP_OK) s = mlp_add(net, "FC", 3, NAMES("x", "w1", "b1"), "fc1", NULL, error);
  if (s == NEAP_OK) s = mlp_add(net, "Relu", 1, NAMES("fc1"), "relu1", NULL, error);
  if (s == NEAP_OK) s = mlp_add(net, "FC", 3, NAMES("relu1", "w2", "b2"), "fc2", NULL, error);
  if (s == NEAP_OK)
    s = mlp_add(net, "SoftmaxCrossEntropy", 2, NAMES("fc2", "label"), "loss", NULL, error);
  if (s == NEAP_OK) s = neap_net_set_outputs(net, 1, NAMES("loss"), error);

  /* A parameter is updated under its own name: the op writes the blob that it reads. */
  const char *const w[] = {"w1", "b1", "w2", "b2"};
  if (s == NEAP_OK && train) {
    s = mlp_declare(net, "lr", NEAP_ROLE_INPUT, NEAP_DTYPE_F32, NEAP_SHAPE(1), error);
    if (s == NEAP_OK) s = neap_net_add_gradient(net, "loss", 4, w, NULL, NULL, error);
    for (int i = 0; s == NEAP_OK && i < 4; i++) {
      char grad[16];
      snprintf(grad, sizeof grad, "%s_grad", w[i]);
      s = mlp_add(net, "Sgd", 3, NAMES(w[i], grad, "lr"), w[i], NULL, error);
    }
  }
  if (s != NEAP_OK) {
    neap_net_free(net);
    return s;
  }
  *out = net;
  return NEAP_OK;
}

/* A dense f32 or i32 tensor of small numbers that depend on `salt`; labels when i32. */
static inline neap_status mlp_numbers(neap_dtype dtype, neap_shape shape, int salt,
                                      neap_tensor *out, neap_error *error) {
  NEAP_TRY(neap_tensor_new(out, dtype, &shape, error));
  for (int64_t i = 0; i < neap_tensor_elems(out); i++) {
    uint32_t word[4];
    neap_philox(7, (uint32_t)salt, 0, (uint64_t)i, word);
    double value = dtype == NEAP_DTYPE_I32 ? (double)(word[0] % MLP_OUT)
                                           : (double)neap_uniform_f32(word[0]) - 0.5;
    neap_element_set(dtype, neap_tensor_data(out), i, value);
  }
  return NEAP_OK;
}

static inline neap_status mlp_feed(neap_workspace *ws, const char *name, neap_dtype dtype,
                                   neap_shape shape, int salt, neap_error *error) {
  neap_tensor t;
  NEAP_TRY(mlp_numbers(dtype, shape, salt, &t, error));
  neap_status status = neap_workspace_feed(ws, name, &t, false, error);
  neap_tensor_fini(&t);
  return status;
}

/* One f32 element. */
static inline neap_status mlp_feed_number(neap_workspace *ws, const char *name, float value,
                                          neap_error *error) {
  neap_tensor t;
  NEAP_TRY(neap_tensor_new(&t, NEAP_DTYPE_F32, &(neap_shape){1, {1}}, error));
  *(float *)(void *)neap_tensor_data(&t) = value;
  neap_status status = neap_workspace_feed(ws, name, &t, false, error);
  neap_tensor_fini(&t);
  return status;
}

/* Inputs of step `salt`, and the same parameters always. */
static inline neap_status mlp_feed_inputs(neap_workspace *ws, int salt, neap_error *error) {
  NEAP_TRY(mlp_feed(ws, "x", NEAP_DTYPE_F32, NEAP_SHAPE(MLP_BATCH, MLP_IN), 100 + salt, error));
  return mlp_feed(ws, "label", NEAP_DTYPE_I32, NEAP_SHAPE(MLP_BATCH), 200 + salt, error);
}

static inline neap_status mlp_feed_all(neap_workspace *ws, bool train, neap_error *error) {
  NEAP_TRY(mlp_feed_inputs(ws, 0, error));
  NEAP_TRY(mlp_feed(ws, "w1", NEAP_DTYPE_F32, NEAP_SHAPE(MLP_HIDDEN, MLP_IN), 1, error));
  NEAP_TRY(mlp_feed(ws, "b1", NEAP_DTYPE_F32, NEAP_SHAPE(MLP_HIDDEN), 2, error));
  NEAP_TRY(mlp_feed(ws, "w2", NEAP_DTYPE_F32, NEAP_SHAPE(MLP_OUT, MLP_HIDDEN), 3, error));
  NEAP_TRY(mlp_feed(ws, "b2", NEAP_DTYPE_F32, NEAP_SHAPE(MLP_OUT), 4, error));
  if (!train) return NEAP_OK;
  return mlp_feed_number(ws, "lr", 0.1f, error);
}

static inline void mlp_close(mlp *m) {
  neap_session_free(m->session);
  neap_workspace_release(m->ws);
  neap_net_free(m->net);
  *m = (mlp){0};
}

/* Net, workspace, parameters, inputs, program. After a failure *m is empty. */
static inline neap_status mlp_open(mlp *m, bool train, const neap_compile_options *options,
                                   neap_error *error) {
  static const neap_compile_options plain = {.plan = {.policy = NEAP_POLICY_OFFSET}};
  *m = (mlp){0};
  neap_status s = neap_workspace_new(&(neap_workspace_options){.seed = 42}, &m->ws, error);
  if (s == NEAP_OK) s = mlp_build(train, &m->net, error);
  if (s == NEAP_OK) s = neap_workspace_init(m->ws, m->net, error);
  if (s == NEAP_OK) s = mlp_feed_all(m->ws, train, error);
  if (s == NEAP_OK)
    s = neap_driver_compile(m->ws, m->net, options != NULL ? options : &plain, &m->session, error);
  if (s != NEAP_OK) mlp_close(m);
  return s;
}

/* Element `index` of a blob; NAN when it can't be fetched. */
static inline double mlp_element(neap_workspace *ws, const char *name, int64_t index) {
  neap_tensor t;
  if (neap_workspace_fetch(ws, name, &t, NULL) != NEAP_OK) return NAN;
  double value = neap_element_get(t.dtype, neap_tensor_data(&t), index);
  neap_tensor_fini(&t);
  return value;
}

/* Whether a blob has the same bytes in both workspaces. */
static inline bool mlp_same_bits(neap_workspace *a, neap_workspace *b, const char *name) {
  neap_tensor x = {0}, y = {0};
  bool same = neap_workspace_fetch(a, name, &x, NULL) == NEAP_OK &&
              neap_workspace_fetch(b, name, &y, NULL) == NEAP_OK;
  neap_type type = neap_tensor_type(&x), other = neap_tensor_type(&y);
  same = same && neap_type_equal(&type, &other) &&
         memcmp(neap_tensor_data(&x), neap_tensor_data(&y), neap_type_bytes(&type)) == 0;
  neap_tensor_fini(&x);
  neap_tensor_fini(&y);
  return same;
}

#endif
