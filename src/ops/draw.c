/* draw.c: Bernoulli, Multinomial, RandPerm, RandInt and TruncatedNormal.
 *
 * INVARIANT: draw i is made from words 2 (i % 2) and the next of Philox block i / 2 under (seed,
 * stream, step), and from nothing else: not from the number of threads, nor from the order of ops.
 */
#include "math/special.h"
#include "math/vec.h"
#include "ops/fill.h"
#include "ops/order.h"
#include "ops/rows.h"

/* 64 random bits. */
static uint64_t draw_bits(const neap_call *call, int64_t i) {
  uint32_t word[4];
  neap_philox(call->seed, call->stream, call->step, (uint64_t)i / 2, word);
  int at = i % 2 == 0 ? 0 : 2;
  return (uint64_t)word[at] << 32 | word[at + 1];
}

/* [0,1), on a grid of 2^-53. */
static double draw_unit(const neap_call *call, int64_t i) {
  return (double)(draw_bits(call, i) >> 11) * 0x1p-53;
}

/* Elements [0,n) of output 0, in the shares of threads. */
static void each_element(const neap_call *call, void (*body)(void *, int64_t, int64_t)) {
  neap_call job = *call;
  neap_parallel_for(neap_shape_elems(&call->out[0].type.shape), NEAP_GRAIN / 16, call->n_thread,
                    body, &job);
}

/* ---- Bernoulli ------------------------------------------------------------------------------- */

static void bernoulli_range(void *context, int64_t begin, int64_t end) {
  const neap_call *call = context;
  for (int64_t i = begin; i < end; i++) {
    double p = neap_number_at(&call->in[0], i);
    bool can_be = p >= 0 && p <= 1; /* no NaN either */
    if (!can_be)
      neap_call_fault(call, "p = %g at element %lld is no probability, 0 to 1", p,
                      (long long)i + 1);
    neap_number_put(&call->out[0], i, can_be && draw_unit(call, i) < p ? 1 : 0);
  }
}

static void run_bernoulli(const neap_call *call) { each_element(call, bernoulli_range); }

const neap_op neap_op_Bernoulli = {
  .name = "Bernoulli",
  .summary = "1 with the probability that the input says, else 0.",
  .math = "y_i = u_i < p_i, u ~ U[0, 1)",
  .example = "net:Bernoulli(\"p\", \"y\")",
  .source = "torch.bernoulli; ONNX Bernoulli-15",
  .inputs = {{"p", "probabilities, 0 to 1"}},
  .outputs = {{"y", "shape of p"}},
  .inplace = {{0, 0}},
  .n_inplace = 1,
  .effects = NEAP_EFFECT_RANDOM | NEAP_EFFECT_FAULT,
  .no_grad = true,
  .nan = NEAP_NAN_STOPS,
  .special = "a probability that is none, 0 to 1, is a fault",
  .infer = neap_infer_like,
  .kernels = NEAP_REF(run_bernoulli, NEAP_FLOATS),
  .cases = "{ {p={{2,3}, low=0, high=1}}, {p={{}, low=0, high=1}}, {p={0,3}} }",
};

/* ---- Multinomial ----------------------------------------------------------------------------- */

enum { COUNT, REPLACEMENT };

typedef struct rows_job {
  const neap_call *call;
  int64_t n_row, n_class, n; /* weights (M,C), draws (M,n) */
  bool replacement;
  int n_part;
} rows_job;

/* A row's doubles, then what it is sorted in. */
static size_t row_bytes(bool replacement, int64_t n_class) {
  size_t numbers = neap_align(neap_size_of(n_class, sizeof(double)));
  return replacement ? numbers : neap_size_add(numbers, neap_align(neap_order_bytes(1, n_class)));
}

/* The sum of a row's weights, and how many are not 0; -1 where one is no weight. */
static double weigh(const rows_job *j, int64_t row, int64_t *n_positive) {
  double total = 0;
  *n_positive = 0;
  for (int64_t c = 0; c < j->n_class; c++) {
    double w = neap_number_at(&j->call->in[0], row * j->n_class + c);
    if (!(w >= 0 && w < INFINITY)) {
      /* Told of here, row and class at hand; the row is then filled with zeros. */
      neap_call_fault(j->call, "weight %g of class %lld in row %lld is not 0 or a positive number",
                      w, (long long)c, (long long)row + 1);
      return -1;
    }
    total += w;
    *n_positive += w > 0;
  }
  return total;
}

/* Each draw is the first class up to which the weights add up to more than it. */
static void draw_again(const rows_job *j, int64_t row, double *sum) {
  double total = 0;
  /* Running sums of the weights, which grow: the place of a draw in them is found by halving. */
  for (int64_t c = 0; c < j->n_class; c++)
    sum[c] = total += neap_number_at(&j->call->in[0], row * j->n_class + c);
  int64_t *out = (int64_t *)j->call->out[0].data + row * j->n;
  for (int64_t k = 0; k < j->n; k++) {
    /* In [0,total): so below the last sum, and `high` is right from the start. */
    double u = draw_unit(j->call, row * j->n + k) * total;
    int64_t low = 0, high = j->n_class - 1;
    while (low < high) {
      int64_t middle = low + (high - low) / 2;
      if (sum[middle] > u)
        high = middle;
      else
        low = middle + 1;
    }
    out[k] = low;
  }
}

/* Classes arrive after exponential times with their weights as rates: in the order in which they
 * would be drawn one after the other, and those without weight never. */
static void draw_once(const rows_job *j, int64_t row, double *time) {
  for (int64_t c = 0; c < j->n_class; c++) {
    int64_t at = row * j->n_class + c;
    double w = neap_number_at(&j->call->in[0], at);
    time[c] = w > 0 ? -log1p(-draw_unit(j->call, at)) / w : INFINITY;
  }
  neap_operand times = {.data = time, .type = {NEAP_DTYPE_F64, NEAP_SHAPE(j->n_class)}};
  void *room = (char *)time + neap_align(neap_size_of(j->n_class, sizeof(double)));
  const neap_ordered *order = neap_order(&times, 0, 1, j->n_class, false, room);
  int64_t *out = (int64_t *)j->call->out[0].data + row * j->n;
  for (int64_t k = 0; k < j->n; k++) out[k] = order[k].index;
}

static void draw_row(const rows_job *j, int64_t row, double *room) {
  int64_t n_positive;
  double total = weigh(j, row, &n_positive);
  /* With replacement one class is enough. */
  int64_t needed = j->replacement ? 1 : j->n;
  if (total >= 0 && n_positive >= needed) {
    (j->replacement ? draw_again : draw_once)(j, row, room);
    return;
  }
  if (total >= 0)
    neap_call_fault(j->call, "row %lld has %lld classes with a weight, and %lld are to be drawn",
                    (long long)row + 1, (long long)n_positive, (long long)needed);
  memset((int64_t *)j->call->out[0].data + row * j->n, 0, (size_t)j->n * sizeof(int64_t));
}

/* Parts [begin, end): part p has rows [M p / parts, M (p + 1) / parts), and room of its own. */
static void draw_parts(void *context, int64_t begin, int64_t end) {
  const rows_job *j = context;
  for (int64_t p = begin; p < end; p++) {
    void *room = neap_call_scratch(j->call, (size_t)p * row_bytes(j->replacement, j->n_class));
    for (int64_t row = j->n_row * p / j->n_part; row < j->n_row * (p + 1) / j->n_part; row++)
      draw_row(j, row, room);
  }
}

static int64_t n_class_of(const neap_shape *p) { return p->dim[p->n_dim - 1]; }

/* As many parts as the choice has threads, even when fewer run: the scratch was measured so. */
static void run_multinomial(const neap_call *call) {
  const neap_shape *p = &call->in[0].type.shape;
  rows_job j = {.call = call,
                .n_row = neap_shape_span(p, 0, p->n_dim - 1),
                .n_class = n_class_of(p),
                .n = call->attrs[COUNT].i,
                .replacement = call->attrs[REPLACEMENT].i != 0};
  j.n_part = (int)NEAP_MIN(j.n_row, call->choice->n_thread);
  neap_parallel_for(j.n_part, 1, call->n_thread, draw_parts, &j);
}

static bool choose_multinomial(neap_choose *c) {
  const neap_shape *p = &c->in[0].shape;
  int64_t n_part = NEAP_MIN(neap_shape_span(p, 0, p->n_dim - 1), c->choice->n_thread);
  c->choice->scratch_bytes =
    neap_size_of(n_part, row_bytes(c->attrs[REPLACEMENT].i != 0, n_class_of(p)));
  return true;
}

static neap_status infer_multinomial(neap_infer *c, neap_error *error) {
  char text[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_rank(c, 0, 1, 2, error));
  int64_t n = c->attrs[COUNT].i, n_class = n_class_of(&c->in[0].shape);
  if (n_class < (c->attrs[REPLACEMENT].i != 0 ? 1 : n)) {
    neap_hint(error, "replacement = true draws a class more than once");
    return neap_infer_fail(
      c, NEAP_SHAPE, 0, error, "weights %s have %lld classes, too few for %lld draws",
      neap_shape_text(&c->in[0].shape, text), (long long)n_class, (long long)n);
  }
  c->out[0] = (neap_type){NEAP_DTYPE_I64, c->in[0].shape};
  c->out[0].shape.dim[c->out[0].shape.n_dim - 1] = n;
  return NEAP_OK;
}

const neap_op neap_op_Multinomial = {
  .name = "Multinomial",
  .summary = "Classes drawn by their weights, again and again or each at most once.",
  .math = "P(y = c) = w_c / sum w",
  .example = "net:Multinomial(\"weights\", \"y\", {count = 2})",
  .source = "torch.multinomial; Efraimidis and Spirakis, 2006",
  .inputs = {{"weights", "(C) or (M,C): 0 or more, not all 0"}},
  .outputs = {{"y", "(count) or (M,count): classes, from 0", NEAP_BIT(I64)}},
  .attrs = {[COUNT] = {"count", "how many are drawn of a row", NEAP_ATTR_INT, .value = {.i = 1},
                       .least = 1, .most = 1e15},
            [REPLACEMENT] = {"replacement", "whether a class may be drawn again", NEAP_ATTR_BOOL}},
  .effects = NEAP_EFFECT_RANDOM | NEAP_EFFECT_FAULT,
  .no_grad = true,
  .nan = NEAP_NAN_STOPS,
  .special =
    "a weight that is no finite number of 0 or more is a fault, and so is a row with fewer "
    "classes to draw than are asked for",
  .empty = NEAP_EMPTY_REFUSED,
  .infer = infer_multinomial,
  .kernels = NEAP_REF_CHOOSE(choose_multinomial, run_multinomial, NEAP_FLOATS),
  .cases =
    "{ {weights={{2,5}, low=0.1, high=1}, count=3}, "
    "{weights={{2,5}, low=0.1, high=1}, count=7, replacement=true}, "
    "{weights={{4}, low=0.1, high=1}} }",
};

/* ---- RandPerm -------------------------------------------------------------------------------- */

/* By exchanges from the end, each with one of those that are left (Durstenfeld). The remainder of
 * 64 bits favours no number by more than n / 2^64. */
static void run_perm(const neap_call *call) {
  int64_t *out = call->out[0].data, n = call->attrs[0].i;
  for (int64_t i = 0; i < n; i++) out[i] = i;
  for (int64_t i = n - 1; i > 0; i--) {
    int64_t with = (int64_t)(draw_bits(call, i) % (uint64_t)(i + 1)), moved = out[i];
    out[i] = out[with];
    out[with] = moved;
  }
}

static neap_status infer_perm(neap_infer *c, neap_error *error) {
  (void)error;
  c->out[0] = (neap_type){NEAP_DTYPE_I64, NEAP_SHAPE(c->attrs[0].i)};
  return NEAP_OK;
}

const neap_op neap_op_RandPerm = {
  .name = "RandPerm",
  .summary = "The numbers from 0 to n - 1 in random order.",
  .math = "y: each order with probability 1 / n!",
  .example = "net:RandPerm({}, \"y\", {n = 10})",
  .source = "torch.randperm; Durstenfeld, 1964",
  .outputs = {{"y", "(n)", NEAP_BIT(I64)}},
  .attrs = {{"n", "how many", NEAP_ATTR_INT, .required = true, .least = 0, .most = 1e15}},
  .effects = NEAP_EFFECT_RANDOM,
  .no_grad = true,
  .infer = infer_perm,
  .kernels = NEAP_REF(run_perm, NEAP_BIT(I64)),
  .cases = "{ {n=7}, {n=1}, {n=0} }",
};

/* ---- RandInt --------------------------------------------------------------------------------- */

enum { LOW = NEAP_FILL_NEXT, HIGH };

static void int_range(void *context, int64_t begin, int64_t end) {
  const neap_call *call = context;
  const neap_operand *out = &call->out[0];
  /* As unsigned numbers: high - low may be larger than the largest signed one. */
  uint64_t low = (uint64_t)call->attrs[LOW].i, n = (uint64_t)call->attrs[HIGH].i - low;
  for (int64_t i = begin; i < end; i++)
    neap_element_set_i64(out->type.dtype, out->data, i, (int64_t)(low + draw_bits(call, i) % n));
}

static void run_int(const neap_call *call) { each_element(call, int_range); }

static neap_status infer_int(neap_infer *c, neap_error *error) {
  int64_t low = c->attrs[LOW].i, high = c->attrs[HIGH].i;
  NEAP_TRY(neap_fill_infer(c, error));
  if (low >= high)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                           "low = %lld expects to be below high = %lld", (long long)low,
                           (long long)high);
  NEAP_TRY(neap_fill_check(c, "low", (double)low, c->out[0].dtype, error));
  return neap_fill_check(c, "the largest number", (double)(high - 1), c->out[0].dtype, error);
}

const neap_op neap_op_RandInt = {
  .name = "RandInt",
  .summary = "Random whole numbers, each of an interval as likely as the others.",
  .math = "y ~ U{low, .., high - 1}",
  .example = "net:RandInt({}, \"y\", {shape = {2, 3}, high = 10})",
  .source = "torch.randint",
  .outputs = {{"y", "`shape`", NEAP_NUMBERS}},
  .attrs = {NEAP_FILL_ATTRS_OF(NEAP_DTYPE_I64),
            [LOW] = {"low", "least number", NEAP_ATTR_INT, .least = -1e15, .most = 1e15},
            [HIGH] = {"high", "upper end, not included", NEAP_ATTR_INT, .required = true,
                      .least = -1e15, .most = 1e15}},
  .effects = NEAP_EFFECT_RANDOM,
  .no_grad = true,
  .infer = infer_int,
  .kernels = NEAP_REF(run_int, NEAP_NUMBERS),
  .cases =
    "{ {shape={2,3}, high=10}, {shape={7}, low=-3, high=4, dtype=\"f32\"}, "
    "{shape={0}, high=1}, {shape={}, low=5, high=6, dtype=\"u8\"} }",
};

/* ---- TruncatedNormal ------------------------------------------------------------------------- */

enum { MEAN = NEAP_FILL_NEXT, STD, LEAST, MOST };

/* The share of a normal distribution below z deviations. */
static double share_below(double z) { return 0.5 * erfc(-z * M_SQRT1_2); }

/* By the inverse of the distribution. Nothing is drawn again, so that an element is of its own draw
 * alone. An interval in the upper half is taken by its mirror image, where shares have more
 * digits. */
static void truncated_range(void *context, int64_t begin, int64_t end) {
  const neap_call *call = context;
  const neap_attr_value *a = call->attrs;
  double mean = a[MEAN].f, std = a[STD].f, low = (a[LEAST].f - mean) / std,
         high = (a[MOST].f - mean) / std, sign = low > 0 ? -1 : 1;
  double from = share_below(sign > 0 ? low : -high), to = share_below(sign > 0 ? high : -low);
  for (int64_t i = begin; i < end; i++) {
    /* Half a step on from the draw, so that neither end of the distribution, which is infinite, is
     * hit. */
    double share = from + (to - from) * (draw_unit(call, i) + 0x1p-54);
    double x = mean + std * sign * M_SQRT2 * neap_erfinv(2 * share - 1);
    neap_number_put(&call->out[0], i, fmin(fmax(x, a[LEAST].f), a[MOST].f));
  }
}

static void run_truncated(const neap_call *call) { each_element(call, truncated_range); }

static neap_status infer_truncated(neap_infer *c, neap_error *error) {
  double low = c->attrs[LEAST].f, high = c->attrs[MOST].f;
  if (!(low < high && isfinite(c->attrs[MEAN].f)))
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                           "low = %g and high = %g expect low below high, mean = %g to be finite",
                           low, high, c->attrs[MEAN].f);
  return neap_fill_infer(c, error);
}

const neap_op neap_op_TruncatedNormal = {
  .name = "TruncatedNormal",
  .summary =
    "Random numbers of a normal distribution, of which those outside an interval are left "
    "out.",
  .math = "y ~ N(mean, std^2), low <= y <= high",
  .example = "net:TruncatedNormal({}, \"y\", {shape = {2, 3}, std = 0.02})",
  .source = "torch.nn.init.trunc_normal_",
  .outputs = {{"y", "`shape`"}},
  .attrs = {NEAP_FILL_ATTRS, [MEAN] = {"mean", "centre", NEAP_ATTR_FLOAT},
            [STD] = {"std", "standard deviation before the cut", NEAP_ATTR_FLOAT, .value = {.f = 1},
                     .least = 1e-30, .most = 1e30},
            [LEAST] = {"low", "least value", NEAP_ATTR_FLOAT, .value = {.f = -2}},
            [MOST] = {"high", "greatest value", NEAP_ATTR_FLOAT, .value = {.f = 2}}},
  .effects = NEAP_EFFECT_RANDOM,
  .no_grad = true,
  .infer = infer_truncated,
  .kernels = NEAP_REF(run_truncated, NEAP_FLOATS),
  .cases =
    "{ {shape={2,3}}, {shape={7}, mean=3, std=0.5, low=2.5, high=5}, {shape={0}}, "
    "{shape={}, low=3, high=4} }",
};
