/* ctc_loss.c: CtcLoss and its backward.
 *
 * A target of L labels is read with blanks around it, blank, l_1, blank, .., l_L, blank: K = 2 L +
 * 1 states. In one step of time a path stays in its state, goes to the next one, or passes over the
 * blank between two labels that differ. alpha_t(s) is the log of the probability of all paths
 * that are in state s at step t, with what step t emits; beta_t(s) of all ways to go on from there,
 * without it. So alpha_t(s) + beta_t(s) is of all paths through s, and nothing is subtracted that
 * may be infinite.
 *
 * Nothing is saved for the backward but the inputs: a thread makes the alphas of one sample again,
 * and goes back over them. A target that is longer than its input has no path, and so no state is
 * looked at: K is at most 2 min(L, T) + 1.
 * INVARIANT: a sample is one thread's, all is summed in double in one order, and bits do not depend
 * on threads.
 */
#include "math/vec.h"
#include "ops/fill.h"
#include "ops/rows.h"

#include <inttypes.h>

enum { LOG_PROBS, TARGETS, INPUT_LENGTHS, TARGET_LENGTHS, DLOSS };
enum { BLANK, REDUCTION, ZERO_INFINITY };
enum { MEAN, SUM, NONE };

typedef struct sizes {
  int64_t n_step, n_sample, n_class; /* log_probs (T,N,C) */
  int64_t n_target;                  /* labels of a row of targets (N,S), or of all rows */
  bool padded;                       /* targets are (N,S), not one list */
  int64_t most;                      /* labels of a target that has a path */
} sizes;

/* log_probs (T,C) are one sample's, whose targets are one row. */
static sizes sizes_of(const neap_type *in) {
  const neap_shape *x = &in[LOG_PROBS].shape, *t = &in[TARGETS].shape;
  sizes z = {.n_step = x->dim[0],
             .n_sample = x->n_dim == 3 ? x->dim[1] : 1,
             .n_class = x->dim[x->n_dim - 1],
             .n_target = t->dim[t->n_dim - 1],
             .padded = t->n_dim == 2};
  z.most = NEAP_MIN(z.n_target, z.n_step);
  return z;
}

typedef struct job {
  const neap_call *call;
  sizes z;
  const neap_operand *x, *target;
  int64_t blank;
  int reduction;
  bool zero_infinity, backward;
  double *loss; /* forward: of each sample, infinite ones as they are */
  char *scratch;
  size_t part_bytes;
  int n_part;
} job;

/* One sample at hand. */
typedef struct sample {
  int64_t n, n_step, n_label; /* of these many steps and labels */
  int64_t first;              /* of its labels, among the targets */
  bool wrong;                 /* told of, and left out */
} sample;

/* ---- states ---------------------------------------------------------------------------------- */

static int64_t label_at(const job *j, int64_t i) {
  return neap_element_get_i64(j->target->type.dtype, j->target->data, i);
}

/* What state s emits: labels lie between blanks. */
static int64_t class_of(const job *j, const sample *p, int64_t s) {
  return s % 2 == 0 ? j->blank : label_at(j, p->first + s / 2);
}

/* Whether a path may come to state s from s - 2. */
static bool may_pass(const job *j, const sample *p, int64_t s) {
  return s % 2 == 1 && s > 1 && class_of(j, p, s) != class_of(j, p, s - 2);
}

/* Element of log_probs, and of its gradient, for state s at step t. */
static int64_t place_of(const job *j, const sample *p, int64_t t, int64_t s) {
  return (t * j->z.n_sample + p->n) * j->z.n_class + class_of(j, p, s);
}

/* log(exp a + exp b + exp c). */
static double log_add(double a, double b, double c) {
  double most = fmax(a, fmax(b, c));
  /* Nothing but zeros, or a NaN beside them, which stays. */
  if (most == -INFINITY) return a + b + c;
  return most + log(exp(a - most) + exp(b - most) + exp(c - most));
}

/* alpha of step t from that of the step before, which it may overwrite: states from the last on. */
static void step_forward(const job *j, const sample *p, int64_t t, const double *before,
                         double *alpha) {
  /* `before` may be `alpha`: state s reads s, s - 1 and s - 2 of the step before, so the last goes
   * first. */
  for (int64_t s = 2 * p->n_label; s >= 0; s--) {
    double one = s > 0 ? before[s - 1] : -INFINITY,
           two = may_pass(j, p, s) ? before[s - 2] : -INFINITY;
    alpha[s] = log_add(before[s], one, two) + neap_number_at(j->x, place_of(j, p, t, s));
  }
}

/* beta of step t from that of step t + 1, in place: states from the first on. */
static void step_back(const job *j, const sample *p, int64_t t, double *beta) {
  int64_t n_state = 2 * p->n_label + 1;
  /* What step t + 1 emits belongs to the ways to go on from t, not to beta of t + 1 itself. */
  for (int64_t s = 0; s < n_state; s++) beta[s] += neap_number_at(j->x, place_of(j, p, t + 1, s));
  /* State s reads s, s + 1 and s + 2, so the first goes first. */
  for (int64_t s = 0; s < n_state; s++) {
    double one = s + 1 < n_state ? beta[s + 1] : -INFINITY,
           two = s + 2 < n_state && may_pass(j, p, s + 2) ? beta[s + 2] : -INFINITY;
    beta[s] = log_add(beta[s], one, two);
  }
}

/* alpha (T,K), or with a stride of 0 one row that is written again and again; the loss. */
static double loss_of(const job *j, const sample *p, double *alpha, int64_t stride) {
  int64_t last = 2 * p->n_label;
  if (p->n_label > p->n_step) return INFINITY;
  if (p->n_step == 0) return 0; /* no labels either: the one path there is */
  /* A path begins in the first blank or the first label. */
  for (int64_t s = 0; s <= last; s++)
    alpha[s] = s < 2 ? neap_number_at(j->x, place_of(j, p, 0, s)) : -INFINITY;
  for (int64_t t = 1; t < p->n_step; t++)
    step_forward(j, p, t, alpha + (t - 1) * stride, alpha + t * stride);
  /* And ends in the last label or the blank behind it. */
  const double *end = alpha + (p->n_step - 1) * stride;
  return -log_add(end[last], last > 0 ? end[last - 1] : -INFINITY, -INFINITY);
}

/* ---- samples --------------------------------------------------------------------------------- */

/* The length of sample n, from 0 to `most`; -1 for another, of which the forward tells. */
static int64_t length_at(const job *j, int input, int64_t n, int64_t most) {
  const neap_operand *lengths = &j->call->in[input];
  int64_t length = neap_element_get_i64(lengths->type.dtype, lengths->data, n);
  if (length >= 0 && length <= most) return length;
  if (!j->backward)
    neap_call_fault(j->call, "%s: %" PRId64 " at element %" PRId64 " is not between 0 and %" PRId64,
                    j->call->op->inputs[input].name, length, n + 1, most);
  return -1;
}

/* Whether all labels are classes, and none is the blank. */
static bool check_labels(const job *j, const sample *p) {
  for (int64_t i = p->first; i < p->first + p->n_label; i++) {
    int64_t label = label_at(j, i);
    if (label >= 0 && label < j->z.n_class && label != j->blank) continue;
    if (!j->backward)
      neap_call_fault(
        j->call,
        "target %" PRId64 " at element %" PRId64 " is %s %" PRId64 " classes (labels count from 0)",
        label, i + 1, label == j->blank ? "the blank among" : "out of range for", j->z.n_class);
    return false;
  }
  return true;
}

/* Sample n, whose labels begin at `first` where targets are one list. */
static sample sample_of(const job *j, int64_t n, int64_t first) {
  sample p = {.n = n, .first = j->z.padded ? n * j->z.n_target : first};
  p.n_step = length_at(j, INPUT_LENGTHS, n, j->z.n_step);
  p.n_label = length_at(j, TARGET_LENGTHS, n, j->z.n_target - (j->z.padded ? 0 : first));
  p.wrong = p.n_step < 0 || p.n_label < 0 || !check_labels(j, &p);
  return p;
}

/* ---- the passes ------------------------------------------------------------------------------ */

/* What a sample's loss is multiplied by in the result. */
static double weight_of(const job *j, const sample *p) {
  if (j->reduction != MEAN) return 1;
  return 1 / ((double)NEAP_MAX(p->n_label, 1) * (double)j->z.n_sample);
}

static void run_loss(const job *j, const sample *p, double *room) {
  double loss = p->wrong ? 0 : loss_of(j, p, room, 0);
  if (j->zero_infinity && loss == INFINITY) loss = 0;
  if (j->reduction == NONE)
    neap_number_put(&j->call->out[0], p->n, loss);
  else
    j->loss[p->n] = loss * weight_of(j, p);
}

/* No path at all: the gradient makes no sense, and is not to look as if it did. */
static void spread_nan(const job *j, const sample *p) {
  const sizes *z = &j->z;
  for (int64_t t = 0; t < p->n_step; t++)
    for (int64_t c = 0; c < z->n_class; c++)
      neap_number_put(&j->call->out[0], (t * z->n_sample + p->n) * z->n_class + c, NAN);
}

/* Into step t of the gradient, which is zero: -scale times the share of the paths that emit a class
 * there. share (C) is zero before and after. */
static void put_step(const job *j, const sample *p, int64_t t, const double *alpha,
                     const double *beta, double loss, double scale, double *share) {
  int64_t n_state = 2 * p->n_label + 1;
  /* alpha + beta is the log of what all paths through s are worth, and -loss that of all paths at
   * all: their difference is a share. Several states may emit one class, the blank above all. */
  for (int64_t s = 0; s < n_state; s++) share[class_of(j, p, s)] += exp(alpha[s] + beta[s] + loss);
  for (int64_t s = 0; s < n_state; s++)
    neap_number_put(&j->call->out[0], place_of(j, p, t, s), -scale * share[class_of(j, p, s)]);
  for (int64_t s = 0; s < n_state; s++) share[class_of(j, p, s)] = 0;
}

/* room: alpha (T,K), beta (K), share (C). */
static void run_gradient(const job *j, const sample *p, double *room) {
  int64_t stride = 2 * j->z.most + 1, last = 2 * p->n_label;
  double *alpha = room, *beta = alpha + j->z.n_step * stride, *share = beta + stride;
  if (p->wrong) return;
  double loss = loss_of(j, p, alpha, stride);

  /* No path leads to the target. The gradient has been filled with 0, which holds where such losses
   * count as 0; elsewhere there is none. */
  if (loss == INFINITY) {
    if (!j->zero_infinity) spread_nan(j, p);
    return;
  }
  double scale =
    neap_number_at(&j->call->in[DLOSS], j->reduction == NONE ? p->n : 0) * weight_of(j, p);

  for (int64_t c = 0; c < j->z.n_class; c++) share[c] = 0;
  /* From the last step, after which a path is at its end or is none. */
  for (int64_t s = 0; s <= last; s++) beta[s] = s + 1 >= last ? 0 : -INFINITY;
  for (int64_t t = p->n_step - 1; t >= 0; t--) {
    if (t + 1 < p->n_step) step_back(j, p, t, beta);
    put_step(j, p, t, alpha + t * stride, beta, loss, scale, share);
  }
}

/* Where the labels behind a target begin that has so many, from `first` on, where targets are one
 * list. A length that makes no sense counts as none, and all that follows is wrong with it. */
static int64_t behind(const job *j, int64_t first, int64_t n_label) {
  return n_label >= 0 && n_label <= j->z.n_target - first ? first + n_label : first;
}

static int64_t labels_before(const job *j, int64_t n) {
  const neap_operand *lengths = &j->call->in[TARGET_LENGTHS];
  int64_t before = 0;
  for (int64_t i = 0; i < n; i++)
    before = behind(j, before, neap_element_get_i64(lengths->type.dtype, lengths->data, i));
  return before;
}

/* Parts [begin, end): part k has samples [N k / parts, N (k + 1) / parts), and room of its own. */
static void run_parts(void *context, int64_t begin, int64_t end) {
  const job *j = context;
  for (int64_t k = begin; k < end; k++) {
    double *room = (double *)(void *)(j->scratch + (size_t)k * j->part_bytes);
    int64_t n = j->z.n_sample * k / j->n_part, stop = j->z.n_sample * (k + 1) / j->n_part;
    int64_t first = labels_before(j, n);
    for (; n < stop; n++) {
      sample p = sample_of(j, n, first);
      first = behind(j, first, p.n_label);
      (j->backward ? run_gradient : run_loss)(j, &p, room);
    }
  }
}

/* ---- the ops --------------------------------------------------------------------------------- */

/* One part's room, in bytes. */
static size_t part_bytes(const sizes *z, bool backward) {
  int64_t n_state = neap_count_add(neap_count_mul(2, z->most), 1), n = n_state;
  if (backward)
    n = neap_count_add(neap_count_mul(n_state, neap_count_add(z->n_step, 1)), z->n_class);
  return neap_align(neap_size_of(n, sizeof(double)));
}

/* Losses that are reduced, behind the parts' rooms. */
static size_t losses_bytes(const sizes *z, bool kept) {
  return kept ? neap_size_of(z->n_sample, sizeof(double)) : 0;
}

static bool choose_any(neap_choose *c, bool backward) {
  sizes z = sizes_of(c->in);
  bool kept = !backward && c->attrs[REDUCTION].i != NONE;
  int64_t n_part = NEAP_MIN(c->choice->n_thread, z.n_sample);
  c->choice->scratch_bytes =
    neap_size_add(neap_size_of(n_part, part_bytes(&z, backward)), losses_bytes(&z, kept));
  return true;
}
static bool choose(neap_choose *c) { return choose_any(c, false); }
static bool choose_grad(neap_choose *c) { return choose_any(c, true); }

/* As many parts as the choice has threads, even when fewer run: the scratch was measured so. */
static job run_any(const neap_call *call, bool backward) {
  neap_type types[] = {call->in[LOG_PROBS].type, call->in[TARGETS].type};
  job j = {.call = call,
           .z = sizes_of(types),
           .x = &call->in[LOG_PROBS],
           .target = &call->in[TARGETS],
           .blank = call->attrs[BLANK].i,
           .reduction = (int)call->attrs[REDUCTION].i,
           .zero_infinity = call->attrs[ZERO_INFINITY].i != 0,
           .backward = backward,
           .scratch = call->scratch};
  j.n_part = (int)NEAP_MIN(call->choice->n_thread, j.z.n_sample);
  j.part_bytes = part_bytes(&j.z, backward);
  j.loss = neap_call_scratch(call, (size_t)j.n_part * j.part_bytes);
  neap_parallel_for(j.n_part, 1, call->n_thread, run_parts, &j);
  return j;
}

static void run(const neap_call *call) {
  job j = run_any(call, false);

  if (j.reduction == NONE) return;
  /* In the order of the samples, whichever threads made them. */
  double loss = 0;
  for (int64_t n = 0; n < j.z.n_sample; n++) loss += j.loss[n];
  /* A mean of nothing is NaN. */
  if (j.reduction == MEAN && j.z.n_sample == 0) loss = NAN;
  neap_number_put(&call->out[0], 0, loss);
}

/* Most classes are in no target. */
static void run_grad(const neap_call *call) {
  neap_fill(&call->out[0], 0, call->n_thread);
  run_any(call, true);
}

/* Lengths have the shape of a batch: () for (T,C), (N) for (T,N,C). */
static neap_status infer(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[LOG_PROBS].shape, *targets = &c->in[TARGETS].shape;
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_rank(c, LOG_PROBS, 2, 3, error));
  NEAP_TRY(neap_infer_rank(c, TARGETS, 1, x->n_dim - 1, error));
  /* The shape of what each sample has one of: none of (T,C), (N) of (T,N,C). */
  neap_shape batch = {.n_dim = x->n_dim - 2, .dim = {x->n_dim == 3 ? x->dim[1] : 0}};
  int64_t n_class = x->dim[x->n_dim - 1];
  if (c->attrs[BLANK].i < 0 || c->attrs[BLANK].i >= n_class)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, LOG_PROBS, error,
                           "blank = %" PRId64 " is none of the %" PRId64
                           " classes of log_probs %s (they count from 0)",
                           c->attrs[BLANK].i, n_class, neap_shape_text(x, a));
  /* Targets (N,S), or one row behind the other for all samples: then the lengths cut it. */
  if (targets->n_dim == 2 && targets->dim[0] != batch.dim[0])
    return neap_infer_fail(c, NEAP_SHAPE, TARGETS, error,
                           "targets expect a row for each of the %" PRId64
                           " samples of log_probs %s, got %s",
                           batch.dim[0], neap_shape_text(x, a), neap_shape_text(targets, b));
  for (int i = INPUT_LENGTHS; i <= TARGET_LENGTHS; i++)
    if (!neap_shape_equal(&c->in[i].shape, &batch))
      return neap_infer_fail(c, NEAP_SHAPE, i, error, "%s expects shape %s, got %s",
                             c->op->inputs[i].name, neap_shape_text(&batch, a),
                             neap_shape_text(&c->in[i].shape, b));
  c->out[0] =
    (neap_type){c->in[LOG_PROBS].dtype, c->attrs[REDUCTION].i == NONE ? batch : (neap_shape){0}};
  return NEAP_OK;
}

extern const neap_op neap_op_CtcLoss;

/* dlog_probs like log_probs; dloss must be what the forward would give. */
static neap_status infer_grad(neap_infer *c, neap_error *error) {
  neap_type loss;
  NEAP_TRY(neap_infer_forward(c, &neap_op_CtcLoss, DLOSS, c->in, 1, &loss, error));
  NEAP_TRY(neap_infer_expect(c, DLOSS, &loss, error));
  c->out[0] = c->in[LOG_PROBS];
  return NEAP_OK;
}

/* Three exponentials and a logarithm for a state and step; the backward has twice as many. */
static void cost_any(const neap_infer *c, neap_cost *cost, double passes) {
  sizes z = sizes_of(c->in);
  cost->flops = passes * 8.0 * (double)z.n_step * (double)z.n_sample * (2.0 * (double)z.most + 1.0);
}
static void cost(const neap_infer *c, neap_cost *cost) { cost_any(c, cost, 1); }
static void cost_grad(const neap_infer *c, neap_cost *cost) { cost_any(c, cost, 2); }

#define INTEGERS (NEAP_BIT(I32) | NEAP_BIT(I64) | NEAP_BIT(U8))
#define ATTRS                                                                                     \
  [BLANK] = {"blank", "class that stands for no label", NEAP_ATTR_INT, .least = 0, .most = 1e15}, \
  [REDUCTION] = {"reduction",                                                                     \
                 "of the samples' losses; mean: each is divided by its number of labels",         \
                 NEAP_ATTR_ENUM, .choices = "mean|sum|none"},                                     \
  [ZERO_INFINITY] = {"zero_infinity", "0, with no gradient, where a target has no path",          \
                     NEAP_ATTR_BOOL}
#define INPUTS                                                                            \
  {"log_probs", "(T,N,C), or (T,C) of one sample: logarithms of probabilities"},          \
    {"targets", "(N,S), padded, or all labels in one list; they count from 0", INTEGERS}, \
    {"input_lengths", "(N): steps of each sample", INTEGERS}, {                           \
    "target_lengths", "(N): labels of each sample", INTEGERS                              \
  }

const neap_op neap_op_CtcLoss = {
  .name = "CtcLoss",
  .summary = "Connectionist temporal classification: how unlikely a sequence of labels is.",
  .math = "loss = -log of the sum over all paths that read as the target of prod_t p_t(path_t)",
  .example =
    "net:CtcLoss({\"log_probs\", \"targets\", \"input_lengths\", \"target_lengths\"}, "
    "\"loss\")",
  .source = "Graves et al., ICML 2006; torch.nn.functional.ctc_loss",
  .inputs = {INPUTS},
  .outputs = {{"loss", "a scalar; (N) for reduction none"}},
  .attrs = {ATTRS},
  .effects = NEAP_EFFECT_FAULT,
  .loss = true,
  .empty = NEAP_EMPTY_MEAN,
  .sum = NEAP_SUM_DOUBLE,
  .special =
    "a target that has no path, as it is too long, gives infinity and a gradient of NaN, "
    "or 0 by zero_infinity; the gradient is of log_probs as they are: behind LogSoftmax "
    "the same as PyTorch's",
  .infer = infer,
  .cost = cost,
  .grad_formula =
    "d.log_probs = CtcLossGrad(log_probs, targets, input_lengths, target_lengths, "
    "d.loss, ..)",
  .kernels = NEAP_REF_CHOOSE(choose, run, NEAP_FLOATS | INTEGERS),
  .cases =
    "{ {log_probs={6,2,4}, targets={{2,3}, dtype=\"i64\", low=1, high=4}, "
    "input_lengths={{2}, dtype=\"i64\", low=6, high=7}, "
    "target_lengths={{2}, dtype=\"i64\", low=1, high=4}}, "
    "{log_probs={7,2,4}, targets={{6}, dtype=\"i32\", low=0, high=3}, blank=3, "
    "input_lengths={{2}, dtype=\"i32\", low=6, high=8}, "
    "target_lengths={{2}, dtype=\"i32\", low=1, high=4}, reduction=\"none\"}, "
    "{log_probs={5,4}, targets={{2}, dtype=\"u8\", low=1, high=4}, "
    "input_lengths={{}, dtype=\"u8\", low=5, high=6}, "
    "target_lengths={{}, dtype=\"u8\", low=2, high=3}, reduction=\"sum\"}, "
    "{log_probs={2,3,4}, targets={{3,5}, dtype=\"i64\", low=1, high=4}, zero_infinity=true, "
    "input_lengths={{3}, dtype=\"i64\", low=2, high=3}, "
    "target_lengths={{3}, dtype=\"i64\", low=1, high=6}, reduction=\"sum\"} }",
  .long_cases =
    "{ {log_probs={{100000,4}, low=-1.4, high=-1.4}, targets={{2}, dtype=\"i64\", low=1, high=4}, "
    "input_lengths={{}, dtype=\"i64\", low=100000, high=100001}, "
    "target_lengths={{}, dtype=\"i64\", low=2, high=3}} }",
};

const neap_op neap_op_CtcLossGrad = {
  .name = "CtcLossGrad",
  .summary = "Backward of CtcLoss; paths are counted again from the inputs.",
  .math = "dlog_probs_tc = -dloss times the share of the paths that emit c at step t",
  .internal = true,
  .inputs = {INPUTS, {"dloss", "gradient of the loss"}},
  .outputs = {{"dlog_probs", "shape of log_probs"}},
  .attrs = {ATTRS},
  .sum = NEAP_SUM_DOUBLE,
  .infer = infer_grad,
  .cost = cost_grad,
  .kernels = NEAP_REF_CHOOSE(choose_grad, run_grad, NEAP_FLOATS | INTEGERS),
  .cases =
    "{ {log_probs={6,2,4}, targets={{2,3}, dtype=\"i64\", low=1, high=4}, "
    "input_lengths={{2}, dtype=\"i64\", low=6, high=7}, "
    "target_lengths={{2}, dtype=\"i64\", low=1, high=4}, dloss={}} }",
  .long_cases =
    "{ {log_probs={{3000,4}, low=-1.4, high=-1.4}, targets={{1000}, dtype=\"i64\", low=1, high=4}, "
    "input_lengths={{}, dtype=\"i64\", low=3000, high=3001}, "
    "target_lengths={{}, dtype=\"i64\", low=1000, high=1001}, dloss={}} }",
};
