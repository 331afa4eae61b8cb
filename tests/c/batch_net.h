/* batch_net.h: a small classifier of any number of rows, with each kind of update: what tests of
 * batches and micro-batches begin with. */
#ifndef NEAP_TESTS_BATCH_NET_H
#define NEAP_TESTS_BATCH_NET_H

#include "check.h"

#include <stdlib.h>

enum {
  IN = 6,
  HIDDEN = 8,
  CLASSES = 3,
  MOST = 24,
  PARAMS = HIDDEN * IN + HIDDEN + CLASSES * HIDDEN + CLASSES
};

static const char *const parameter[] = {"w1", "b1", "w2", "b2"};
static const int size_of[] = {HIDDEN * IN, HIDDEN, CLASSES *HIDDEN, CLASSES};
static const char *const shape_of[] = {"(8,6)", "(8)", "(3,8)", "(3)"};

typedef enum method { NONE, SGD, ADAM, CLIPPED, N_METHOD } method;

/* Of parameter i, with the state that the method keeps. */
static inline neap_status add_update(neap_net *net, method update, int i, neap_error *error) {
  const char *p = parameter[i], *shape = shape_of[i];
  switch (update) {
    case CLIPPED:
      return neap_net_add_text(
        net, error,
        "%s_grad = ClipByNorm(%s_grad, norm) { max = 0.1 } as clip_%s\n%s = Sgd(%s, %s_grad, rate)",
        p, p, p, p, p, p);
    case SGD:
      return neap_net_add_text(
        net, error,
        "state %s.m f32 %s = Constant\n%s, %s.m = Sgd(%s, %s_grad, lr, %s.m) { momentum = 0.9 }", p,
        shape, p, p, p, p, p);
    default:
      return neap_net_add_text(
        net, error,
        "state %s.m f32 %s = Constant\nstate %s.v f32 %s = Constant\nstate %s.t i64 () = Constant\n"
        "%s, %s.m, %s.v, %s.t = Adam(%s, %s_grad, lr, %s.m, %s.v, %s.t)",
        p, shape, p, shape, p, p, p, p, p, p, p, p, p, p);
  }
}

/* A classifier of n rows, with its gradient and an update. CLIPPED writes the clipped gradients
 * over the names of the gradients, and scales the rate by a constant that is computed before the
 * gradients are. */
static inline neap_status make_net(int64_t n, method update, neap_net **out, neap_error *error) {
  NEAP_TRY(neap_net_new("classifier", out, error));
  neap_net *net = *out;
  NEAP_TRY(neap_net_add_text(net, error,
                             "input x f32 (%lld,6)\ninput y i32 (%lld)\ninput lr f32 (1)",
                             (long long)n, (long long)n));

  for (int i = 0; i < 4; i++)
    NEAP_TRY(neap_net_add_text(net, error, "param %s f32 %s = %s", parameter[i], shape_of[i],
                               i % 2 == 0 ? "Xavier" : "Constant"));
  NEAP_TRY(
    neap_net_add_text(net, error,
                      "half = Constant() { shape = {1}, value = 0.5 }\nrate = Mul(lr, half)\n"
                      "sum = FC(x, w1, b1)\nhidden = Tanh(sum)\nscore = FC(hidden, w2, b2)\n"
                      "loss = SoftmaxCrossEntropy(score, y)\naccuracy = Accuracy(score, y)"));

  /* Gradients are asked of a net that trains only; what clips reads them all, so it comes before
   * any update. */
  if (update == NONE) return neap_net_add_text(net, error, "outputs loss, accuracy, score");
  NEAP_TRY(neap_net_add_gradient(net, "loss", 0, NULL, NULL, NULL, error));
  if (update == CLIPPED)
    NEAP_TRY(neap_net_add_text(net, error,
                               "norm = GradNorm(w1_grad, b1_grad, w2_grad, b2_grad) as norm_op"));
  for (int i = 0; i < 4; i++) NEAP_TRY(add_update(net, update, i, error));
  return neap_net_add_text(
    net, error,
    update == CLIPPED ? "outputs loss, accuracy, score, norm" : "outputs loss, accuracy, score");
}

/* Batch k of n rows, the same for everybody. Label `bad_row` is out of range; -1: none is. */
static inline neap_status write_batch(neap_workspace *ws, int64_t n, int k, int64_t bad_row,
                                      neap_error *error) {
  float x[MOST * IN], lr = 0.1f;
  int32_t y[MOST];
  double at = 0.37 * k;
  for (int64_t i = 0; i < n * IN; i++) {
    at = fmod(at + 0.61803398875, 1);
    x[i] = (float)(2 * at - 1);
  }
  for (int64_t i = 0; i < n; i++) {
    at = fmod(at + 0.61803398875, 1);
    y[i] = i == bad_row ? 99 : (int32_t)(at * CLASSES);
  }
  NEAP_TRY(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){n, IN}, x, error));
  NEAP_TRY(neap_workspace_write(ws, "y", NEAP_DTYPE_I32, 1, &n, y, error));
  return neap_workspace_write(ws, "lr", NEAP_DTYPE_F32, 1, (int64_t[]){1}, &lr, error);
}

/* All parameters, or with "_grad" behind their names all gradients. */
static inline neap_status read_all(neap_workspace *ws, const char *suffix, float out[PARAMS],
                                   neap_error *error) {
  for (int i = 0, at = 0; i < 4; at += size_of[i++]) {
    char name[32];
    snprintf(name, sizeof name, "%s%s", parameter[i], suffix);
    NEAP_TRY(neap_workspace_read(ws, name, NEAP_DTYPE_F32, size_of[i], out + at, error));
  }
  return NEAP_OK;
}

static inline double distance(const float a[PARAMS], const float b[PARAMS]) {
  double most = 0;
  for (int i = 0; i < PARAMS; i++) most = fmax(most, fabs((double)a[i] - (double)b[i]));
  return most;
}

/* What steps of 12 rows leave: losses, accuracies, the norm of the last one, parameters, gradients,
 * scores of the last part. */
typedef struct outcome {
  float loss[3], accuracy[3], norm, parameter[PARAMS], gradient[PARAMS];
} outcome;

/* Three steps of 12 rows: as one for rows 0, else as micro-batches. */
static inline neap_status train(method update, int64_t rows, const neap_options *options,
                                outcome *out, neap_error *error) {
  neap_net *net = NULL;
  neap_workspace *ws = NULL;
  neap_session *session = NULL;
  neap_micro *micro = NULL;
  memset(out, 0, sizeof *out);

  neap_status status = make_net(12, update, &net, error);
  if (status == NEAP_OK) status = neap_workspace_open(5, &ws, error);
  if (status == NEAP_OK)
    status = rows == 0 ? neap_session_open(ws, net, options, &session, error)
                       : neap_micro_open(ws, net, rows, options, &micro, error);
  neap_net_free(net);

  /* The same three batches whatever the way, so that what comes out may be compared. */
  for (int k = 0; k < 3 && status == NEAP_OK; k++) {
    status = write_batch(ws, 12, k, -1, error);
    if (status == NEAP_OK)
      status = rows == 0 ? neap_session_run(session, error) : neap_micro_run(micro, 0, NULL, error);
    if (status == NEAP_OK)
      status = neap_workspace_read(ws, "loss", NEAP_DTYPE_F32, 1, &out->loss[k], error);
    if (status == NEAP_OK)
      status = neap_workspace_read(ws, "accuracy", NEAP_DTYPE_F32, 1, &out->accuracy[k], error);
  }

  if (status == NEAP_OK && update == CLIPPED)
    status = neap_workspace_read(ws, "norm", NEAP_DTYPE_F32, 1, &out->norm, error);
  if (status == NEAP_OK) status = read_all(ws, "", out->parameter, error);
  if (status == NEAP_OK) status = read_all(ws, "_grad", out->gradient, error);
  neap_session_free(session);
  neap_micro_free(micro);
  neap_workspace_release(ws);
  return status;
}

#endif
