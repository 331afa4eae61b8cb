/* cross_entropy.c: SoftmaxCrossEntropy and its backward.
 *
 * x is (outer, C, inner) around the axis: M = outer inner rows of C classes. A row's target is a
 * vector t over the classes: from a label, t = (1-s) w_label at the label plus s/C w_c everywhere;
 * from probabilities q, t_c = w_c ((1-s) q_c + s/C), with s the label smoothing and w the class
 * weights (1 when absent). Loss of a row: -sum_c t_c log softmax(x)_c. Its gradient: softmax(x)_c
 * sum(t) - t_c.
 *
 * INVARIANT: where a label's probability is nearly 1, its loss and gradient keep their relative
 * accuracy: they are what the other classes leave of 1, and are summed from those, never had by
 * subtraction from a rounded 1.
 *
 * Nothing is saved for the backward but the logits: probabilities come back from them for one pass
 * over a row that is in cache, and dlogits may overwrite them.
 * INVARIANT: rows are summed in their order, so bits do not depend on threads.
 */
#include "math/row.h"
#include "math/vec.h"
#include "ops/rows.h"

#include <inttypes.h>

enum { AXIS, REDUCTION, IGNORE_INDEX, LABEL_SMOOTHING, N_ATTR };
enum { NONE, MEAN, SUM };
enum { LOGITS, LABELS, WEIGHT, DLOSS };

#define LOG_HALF (-0.6931471805599453) /* a class above it has more than half of the probability */

typedef struct job {
  const neap_call *call;
  int64_t n_row, n_class, inner;
  const neap_operand *x, *label, *weight, *dloss; /* weight (C) may be NULL */
  bool is_soft;                                   /* labels are probabilities (outer, C, inner) */
  int64_t ignored;                                /* label without loss; INT64_MIN: none */
  double smoothing;
  int reduction;
  double *row; /* forward scratch: loss, then weight, of each row */
  const neap_operand *out;
  double divisor; /* backward, mean: what the rows' losses were divided by */
} job;

/* What a row's label asks for. */
typedef struct target {
  int64_t label; /* -1: probabilities, or none */
  bool skip;     /* ignored, or out of range (reported) */
  double weight; /* in the mean's divisor */
} target;

/* w_c, 1 without weights. */
static double class_weight(const job *k, int64_t c) {
  return k->weight == NULL ? 1 : neap_number_at(k->weight, c);
}

/* With `report` a label out of range is a fault: the forward's task, which the backward does not
 * repeat. Such a row is skipped like an ignored one, so no class is read that does not exist. */
static target target_of(const job *k, int64_t row, bool report) {
  if (k->is_soft) return (target){-1, false, 1};
  int64_t label = neap_element_get_i64(k->label->type.dtype, k->label->data, row);
  if (label == k->ignored) return (target){-1, true, 0};
  if (label >= 0 && label < k->n_class) return (target){label, false, class_weight(k, label)};
  if (report)
    neap_call_fault(k->call,
                    "label %" PRId64 " at element %" PRId64 " is out of range for %" PRId64
                    " classes (labels count from 0)",
                    label, row + 1, k->n_class);
  return (target){-1, true, 0};
}

/* Element offset of a row's first class. */
static int64_t row_offset(const job *k, int64_t row) {
  return row / k->inner * k->n_class * k->inner + row % k->inner;
}

/* ---- rows, by dtype -------------------------------------------------------------------------- */

#define NEAP_BODY "ops/cross_entropy_body.h"
#include "math/each_float.h"

/* ---- the ops --------------------------------------------------------------------------------- */

/* logits as (outer, C, inner): rows are outer times inner. The scratch has room for each row's loss
 * and weight. */
static job job_of(const neap_call *call) {
  const neap_shape *x = &call->in[LOGITS].type.shape;
  int axis = neap_axis(call->attrs[AXIS].i, x->n_dim);
  job k = {.call = call,
           .n_class = x->dim[axis],
           .inner = neap_shape_span(x, axis + 1, x->n_dim),
           .x = &call->in[LOGITS],
           .label = &call->in[LABELS],
           .is_soft = neap_dtype_is_float(call->in[LABELS].type.dtype),
           .ignored = call->attrs[IGNORE_INDEX].i,
           .smoothing = call->attrs[LABEL_SMOOTHING].f,
           .reduction = (int)call->attrs[REDUCTION].i,
           .row = call->scratch,
           .out = &call->out[0],
           .divisor = 1};
  if (call->n_in > WEIGHT && call->in[WEIGHT].data != NULL) k.weight = &call->in[WEIGHT];
  k.n_row = neap_shape_span(x, 0, axis) * k.inner;
  return k;
}

/* Rows in the least share of a thread. An element counts eightfold, for its exponential. */
static int64_t grain_of(const job *k) {
  return NEAP_MAX(NEAP_GRAIN / 8 / NEAP_MAX(k->n_class, 1), 1);
}

/* Rows of a tile: logits, which their gradient takes the place of, and probabilities as labels. */
static int64_t tile_rows(bool is_soft) { return is_soft ? 2 : 1; }

/* Loss and weight of each row, in double, where they are added up. */
static size_t losses_bytes(int reduction, int64_t n_row) {
  return reduction == NONE ? 0 : neap_size_of(2 * n_row, sizeof(double));
}

/* Runs the body over all rows, whose tiles lie in the scratch from byte `at` on. */
static void run_rows(const neap_call *call, job *k, size_t at, neap_rows_body f32,
                     neap_rows_body f64) {
  neap_dtype dtype = call->in[LOGITS].type.dtype;
  /* The gradient is written over the logits' tile. */
  neap_rows_run(call, dtype, neap_call_scratch(call, at), tile_rows(k->is_soft), k->n_class,
                k->n_row, grain_of(k), dtype == NEAP_DTYPE_F64 ? f64 : f32, k);
}

/* Rows are shared out among the threads; their losses are summed by one, in double. */
static void run(const neap_call *call) {
  job k = job_of(call);
  run_rows(call, &k, neap_align(losses_bytes(k.reduction, k.n_row)), forward_f32, forward_f64);
  if (k.reduction == NONE) return;
  /* In the order of the rows, whichever threads made them. */
  double loss = 0, weight = 0;
  for (int64_t i = 0; i < k.n_row; i++) loss += k.row[i], weight += k.row[k.n_row + i];
  if (k.reduction == MEAN) loss /= weight; /* nothing but ignored rows: NaN, as PyTorch has it */
  neap_element_set(call->out[0].type.dtype, call->out[0].data, 0, loss);
}

/* The divisor of the mean is summed again from the labels, in the order of the forward: the same
 * number. */
static void run_grad(const neap_call *call) {
  job k = job_of(call);
  k.dloss = &call->in[DLOSS];
  if (k.reduction == MEAN) {
    k.divisor = 0;
    for (int64_t i = 0; i < k.n_row; i++) k.divisor += target_of(&k, i, false).weight;
  }
  run_rows(call, &k, 0, backward_f32, backward_f64);
}

/* Tiles of a choice: a row of logits and one of labels for each thread. */
static size_t tiles_bytes(const neap_choose *c, int64_t n_row, int64_t n_class) {
  bool is_soft = neap_dtype_is_float(c->in[LABELS].dtype);
  return neap_rows_bytes(c->in[LOGITS].dtype, NEAP_MIN(c->choice->n_thread, n_row),
                         tile_rows(is_soft), n_class);
}

/* Sets rows and classes of the logits. */
static void sizes_of(const neap_choose *c, int64_t *n_row, int64_t *n_class) {
  const neap_shape *x = &c->in[LOGITS].shape;
  *n_class = x->dim[neap_axis(c->attrs[AXIS].i, x->n_dim)];
  *n_row = *n_class == 0 ? 0 : neap_shape_elems(x) / *n_class;
}

static bool choose(neap_choose *c) {
  int64_t n_row, n_class;
  sizes_of(c, &n_row, &n_class);
  size_t losses = losses_bytes((int)c->attrs[REDUCTION].i, n_row),
         tiles = tiles_bytes(c, n_row, n_class);
  c->choice->scratch_bytes = tiles == 0 ? losses : neap_size_add(neap_align(losses), tiles);
  return true;
}

static bool choose_grad(neap_choose *c) {
  int64_t n_row, n_class;
  sizes_of(c, &n_row, &n_class);
  c->choice->scratch_bytes = tiles_bytes(c, n_row, n_class);
  return true;
}

/* Labels as numbers have the shape of the logits without the classes, as probabilities theirs. The
 * loss is a scalar, or one a row. */
static neap_status infer(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[LOGITS].shape, *labels = &c->in[LABELS].shape;
  int axis;
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT], got[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_rank(c, LOGITS, 1, NEAP_MAX_DIM, error));
  NEAP_TRY(neap_infer_axis(c, AXIS, x->n_dim, &axis, error));
  /* A sum of no probabilities is not 1. */
  if (x->dim[axis] == 0)
    return neap_infer_fail(c, NEAP_SHAPE, LOGITS, error, "logits %s have no class",
                           neap_shape_text(x, a));
  /* The labels' shape where they are numbers, and the loss's without a reduction. */
  neap_shape rows = {.n_dim = x->n_dim - 1};
  for (int d = 0, to = 0; d < x->n_dim; d++)
    if (d != axis) rows.dim[to++] = x->dim[d];
  /* Floats are probabilities, integers numbers of classes. */
  bool is_soft = neap_dtype_is_float(c->in[LABELS].dtype);
  if (is_soft && c->in[LABELS].dtype != c->in[LOGITS].dtype)
    return neap_infer_fail(c, NEAP_DTYPE, LABELS, error,
                           "labels that are probabilities need the dtype of the logits, %s, got %s",
                           neap_dtype_name(c->in[LOGITS].dtype),
                           neap_dtype_name(c->in[LABELS].dtype));
  if (!neap_shape_equal(labels, is_soft ? x : &rows)) {
    neap_infer_fail(c, NEAP_SHAPE, LABELS, error, "labels expect shape %s for logits %s, got %s",
                    neap_shape_text(is_soft ? x : &rows, a), neap_shape_text(x, b),
                    neap_shape_text(labels, got));
    /* As many as there are rows: classes that came as floats, from a table of numbers. */
    if (is_soft && neap_shape_equal(labels, &rows))
      neap_hint(error,
                "floats are probabilities; labels that are classes are integers: y:to \"i64\"");
    return NEAP_SHAPE;
  }

  /* Weights (C) are optional: an operand without a dtype is left out. */
  if (c->n_in > WEIGHT && c->in[WEIGHT].dtype != NEAP_DTYPE_NONE) {
    const neap_type *w = &c->in[WEIGHT];
    if (w->dtype != c->in[LOGITS].dtype || w->shape.n_dim != 1 || w->shape.dim[0] != x->dim[axis])
      return neap_infer_fail(c, NEAP_SHAPE, WEIGHT, error,
                             "weight expects %s (%lld), one for each class, got %s %s",
                             neap_dtype_name(c->in[LOGITS].dtype), (long long)x->dim[axis],
                             neap_dtype_name(w->dtype), neap_shape_text(&w->shape, a));
  }
  c->out[0] =
    (neap_type){c->in[LOGITS].dtype, c->attrs[REDUCTION].i == NONE ? rows : (neap_shape){0}};
  return NEAP_OK;
}

extern const neap_op neap_op_SoftmaxCrossEntropy;

/* dlogits like the logits; dloss must be what the forward would give. */
static neap_status infer_grad(neap_infer *c, neap_error *error) {
  neap_type loss;
  NEAP_TRY(neap_infer_forward(c, &neap_op_SoftmaxCrossEntropy, DLOSS, c->in, 1, &loss, error));
  NEAP_TRY(neap_infer_expect(c, DLOSS, &loss, error));
  c->out[0] = c->in[LOGITS];
  return NEAP_OK;
}

static void cost(const neap_infer *c, neap_cost *cost) {
  cost->flops = 4.0 * (double)neap_shape_elems(&c->in[LOGITS].shape);
}

/* The loss is linear in the weights, but for its divisor: class c has in row r the factor q_rc of
 * -log p_rc. Of labels the divisor is the weights of the classes that rows name, c of each class;
 * `u` is 1 in rows that count: there logits of 0 have a loss. */
#define OF_LABELS                                                        \
  "o = ones(logits); n = Sum(o, axes = axis, keepdim = 1);"              \
  "r = SoftmaxCrossEntropy(zeros(logits), labels, .., reduction = 0);"   \
  "u = Unsqueeze(r, axes = axis) > 0 ? 1 : 0;"                           \
  "k = Cast(labels, to = f32);"                                          \
  "h = Unsqueeze(k, axes = axis) == CumSum(o, axis = axis) - 1 ? u : 0;" \
  "q = (1 - label_smoothing) * h + label_smoothing * u / n; c = sums(h, axis);"
#define OF_SHARES                                    \
  "n = Sum(ones(logits), axes = axis, keepdim = 1);" \
  "q = (1 - label_smoothing) * labels + label_smoothing / n;"
#define TERMS                                              \
  "l = q == 0 ? 0 : q * -LogSoftmax(logits, axis = axis);" \
  "t = sums(reduction ? l : l * Unsqueeze(d.loss, axes = axis), axis);"
static const char weight_of_labels[] = OF_LABELS TERMS
  "m = reduction == mean ? (t - loss * c) / Sum(c * weight) : t;"
  "d.weight = reduction ? d.loss * m : m";
static const char weight_of_shares[] = OF_SHARES TERMS
  "m = reduction == mean ? t / Sum(n / n) : t; d.weight = reduction ? d.loss * m : m";

static bool has_shares(const neap_grad *g) {
  return neap_dtype_is_float(neap_grad_type(g, g->in[LABELS]).dtype);
}

static neap_status grad(neap_grad *g, neap_error *error) {
  bool has_weight = g->n_in > WEIGHT;
  neap_value_id in[] = {g->in[LOGITS], g->in[LABELS], has_weight ? g->in[WEIGHT] : NEAP_NO_VALUE,
                        g->dout[0]};
  /* Probabilities as labels get no gradient: they are data. */
  if (g->want[LOGITS])
    g->din[LOGITS] = neap_grad_emit1(g, "SoftmaxCrossEntropyGrad", 4, in, g, NULL);
  if (!has_weight || !g->want[WEIGHT]) return NEAP_OK;
  return neap_formula_gradient(g, has_shares(g) ? weight_of_shares : weight_of_labels, error);
}

#define LABEL_INTEGERS (NEAP_BIT(I32) | NEAP_BIT(I64) | NEAP_BIT(U8))
#define LABEL_DTYPES (LABEL_INTEGERS | NEAP_FLOATS)
#define ATTRS                                                                              \
  [AXIS] = {"axis", "dimension of the classes", NEAP_ATTR_AXIS, .value = {.i = -1}},       \
  [REDUCTION] = {"reduction", "of the rows' losses", NEAP_ATTR_ENUM, .value = {.i = MEAN}, \
                 .choices = "none|mean|sum"},                                              \
  [IGNORE_INDEX] = {"ignore_index", "label of rows that do not count", NEAP_ATTR_INT,      \
                    .value = {.i = -100}},                                                 \
  [LABEL_SMOOTHING] = {"label_smoothing", "share of the target spread over all classes",   \
                       NEAP_ATTR_FLOAT, .least = 0, .most = 1}

const neap_op neap_op_SoftmaxCrossEntropy = {
  .name = "SoftmaxCrossEntropy",
  .summary = "Cross-entropy of logits with labels, softmax included.",
  .math = "loss = mean over rows of -log softmax(logits)[label]",
  .example = "net:SoftmaxCrossEntropy({\"logits\", \"labels\"}, \"loss\")",
  .source = "PyTorch nn.CrossEntropyLoss; label smoothing: Szegedy et al., CVPR 2016, section 7",
  .inputs = {{"logits", "(M,C); classes along axis"},
             {"labels", "(M) from 0 to C-1, or probabilities (M,C)", LABEL_DTYPES},
             {"weight", "(C), of the classes", .flags = NEAP_ARG_OPTIONAL}},
  .outputs = {{"loss", "a scalar; (M) for reduction none"}},
  .empty = NEAP_EMPTY_MEAN,
  .sum = NEAP_SUM_RUNS,
  .loss = true,
  .attrs = {ATTRS},
  .effects = NEAP_EFFECT_FAULT,
  .infer = infer,
  .cost = cost,
  .grad = grad,
  .kernels = NEAP_REF_CHOOSE(choose, run, NEAP_FLOATS | LABEL_INTEGERS),
  .cases =
    "{ {logits={5,4}, labels={{5}, dtype=\"i64\", low=0, high=4}}, "
    "{logits={5,4}, labels={{5}, dtype=\"i32\", low=0, high=4}, weight={{4}, low=0.5, high=2}, "
    "label_smoothing=0.15, "
    "reduction=\"none\"}, "
    "{logits={2,4,3,3}, labels={{2,3,3}, dtype=\"i64\", low=0, high=4}, axis=2, ignore_index=2, "
    "label_smoothing=0.1, weight={{4}, low=0.5, high=2}}, "
    "{logits={5,4}, labels={{5,4}, low=0, high=1}, weight={{4}, low=0.5, high=2}, "
    "wrt={\"logits\",\"weight\"}}, "
    "{logits={5,4}, labels={{5,4}, low=0, high=1}, reduction=\"sum\", wrt={\"logits\"}}, "
    "{logits={0,4}, labels={{0}, dtype=\"i64\"}, reduction=\"sum\"} }",
  .long_cases =
    "{ {logits={262144,4}, labels={{262144}, dtype=\"i64\", low=0, high=1}}, {logits={1,262144}, "
    "labels={{1}, dtype=\"i64\", low=0, high=1}} }",
};

/* The second gradient needs what the kernel knows of a row, sum(t) / divisor. Of logits that are
 * all 0 the loss of a row is sum(t) ln C, and the whole loss says by what their sum is divided. */
static const char again[] =
  "zero = zeros(logits); e = d.dlogits; p = Softmax(logits, axis = axis);"
  "rows = Unsqueeze(SoftmaxCrossEntropy(zero, labels, weight, .., reduction = 0), axes = axis);"
  "all = SoftmaxCrossEntropy(zero, labels, weight, ..);"
  "scale = reduction ? dloss * all / Sum(rows) : Unsqueeze(dloss, axes = axis);"
  "k = Log(Sum(ones(logits), axes = axis, keepdim = 1)); k = k == 0 ? 1 : k;"
  "d.logits = scale * rows / k * p * (e - Sum(p * e, axes = axis, keepdim = 1));"
  "g = e * SoftmaxCrossEntropyGrad(logits, labels, weight, ones(dloss), ..);"
  "d.dloss = reduction ? Sum(g) : Sum(g, axes = axis)";

/* What arrives at dlogits, e, is linear in the weights as the loss is: q_rc has the factor of what
 * e_rc lacks to the row's mean of e under p. */
#define TERMS_AGAIN                                     \
  "e = d.dlogits; p = Softmax(logits, axis = axis);"    \
  "l = q * (Sum(p * e, axes = axis, keepdim = 1) - e);" \
  "t = sums(reduction ? l : l * Unsqueeze(dloss, axes = axis), axis);"
static const char weight_of_labels_again[] = OF_LABELS TERMS_AGAIN
  "f = Sum(e * SoftmaxCrossEntropyGrad(logits, labels, weight, ones(dloss), ..));"
  "m = reduction == mean ? t / Sum(c * weight) - f * c / Sum(c * weight) : t;"
  "d.weight = reduction ? dloss * m : m";
static const char weight_of_shares_again[] = OF_SHARES TERMS_AGAIN
  "m = reduction == mean ? t / Sum(n / n) : t; d.weight = reduction ? dloss * m : m";

static neap_status grad_again(neap_grad *g, neap_error *error) {
  NEAP_TRY(neap_formula_gradient(g, again, error));
  if (g->in[WEIGHT] == NEAP_NO_VALUE || !g->want[WEIGHT]) return NEAP_OK;
  return neap_formula_gradient(g, has_shares(g) ? weight_of_shares_again : weight_of_labels_again,
                               error);
}

const neap_op neap_op_SoftmaxCrossEntropyGrad = {
  .name = "SoftmaxCrossEntropyGrad",
  .summary = "Backward of SoftmaxCrossEntropy; probabilities are computed again from the logits.",
  .math = "dlogits = (softmax(logits) sum(t) - t) dloss / divisor",
  .internal = true,
  .inputs = {{"logits", "(M,C)"},
             {"labels", "(M) or (M,C)", LABEL_DTYPES},
             {"weight", "(C)", .flags = NEAP_ARG_OPTIONAL},
             {"dloss", "gradient of the loss"}},
  .outputs = {{"dlogits", "shape of the logits"}},
  .attrs = {ATTRS},
  .inplace = {{LOGITS, 0}},
  .n_inplace = 1,
  .infer = infer_grad,
  .cost = cost,
  .grad = grad_again,
  .kernels = NEAP_REF_CHOOSE(choose_grad, run_grad, NEAP_FLOATS | LABEL_INTEGERS),
  .cases = "{ {logits={5,4}, labels={{5}, dtype=\"i64\", low=0, high=4}, dloss={}} }",
};
