/* pad.c: Pad, a tensor within a frame, and PadGrad.
 *
 * Position i of y shows position `source_of` of x, dimension by dimension: what is padded shows the
 * edge, or x mirrored or repeated, or none: one number. Negative pads take away. The gradient of
 * one number is a Pad that does the opposite; else an element has a gradient from every position
 * that shows it, which are listed by dimension, in the scratch, and added up in double.
 */
#include "ops/elementwise.h"
#include "ops/fill.h"
#include "ops/places.h"

enum { PADS, VALUE, MODE, AXES, SHAPE };
/* ORDER PAD: as the choices of `mode`. */
enum { CONSTANT, REFLECT, EDGE, WRAP };

typedef struct frame {
  int mode, n_dim;
  int64_t x[NEAP_MAX_DIM], y[NEAP_MAX_DIM]; /* sizes */
  int64_t before[NEAP_MAX_DIM], after[NEAP_MAX_DIM];
} frame;

/* The pads of each dimension of x; `y` is not computed yet. False: an axis is out of range. */
static bool read_frame(const neap_attr_value *attrs, const neap_shape *x, frame *f) {
  const neap_attr_value *pads = &attrs[PADS], *axes = &attrs[AXES];
  *f = (frame){.mode = (int)attrs[MODE].i, .n_dim = x->n_dim};
  /* `pads` has n numbers for before, then n for after, in the order of `axes`. */
  int n = axes->given ? axes->n : x->n_dim;
  for (int d = 0; d < x->n_dim; d++) f->x[d] = x->dim[d];
  for (int i = 0; i < n; i++) {
    int d = axes->given ? neap_axis(axes->ints[i], x->n_dim) : i;
    if (d < 0) return false;
    f->before[d] = pads->ints[i];
    f->after[d] = pads->ints[n + i];
  }
  return true;
}

/* For kernels: infer has checked. */
static frame frame_of(const neap_attr_value *attrs, const neap_shape *x, const neap_shape *y) {
  frame f;
  (void)read_frame(attrs, x, &f);
  for (int d = 0; d < f.n_dim; d++) f.y[d] = y->dim[d];
  return f;
}

/* Which position of dimension d of x is shown at position i of y; -1: none. */
static int64_t source_of(const frame *f, int d, int64_t i) {
  /* Mirrored, the edge itself is not repeated: a period has each inner position twice. */
  int64_t n = f->x[d], at = i - f->before[d], period = f->mode == REFLECT ? 2 * (n - 1) : n;
  if (at >= 0 && at < n) return at;
  if (f->mode == CONSTANT) return -1;
  if (f->mode == EDGE) return at < 0 ? 0 : n - 1;
  if (period == 0) return 0; /* one element is its own mirror */
  at %= period;
  if (at < 0) at += period;
  return at < n ? at : period - at;
}

/* ---- Pad ------------------------------------------------------------------------------------- */

/* `pads`: what comes before each dimension, then what comes after each, in elements, as ONNX has
 * it. */
static neap_status infer(neap_infer *c, neap_error *error) {
  const neap_attr_value *pads = &c->attrs[PADS], *axes = &c->attrs[AXES];
  int n_dim = c->in[0].shape.n_dim, n = axes->given ? axes->n : n_dim;
  frame f;
  /* Numbers for each dimension, or for those alone that `axes` names. */
  if (pads->n != 2 * n)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                           "pads expects %d numbers, before and after for %d dimensions, got %d",
                           2 * n, n, pads->n);
  if (n > n_dim || !read_frame(c->attrs, &c->in[0].shape, &f))
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "axes is out of range for %d dimensions",
                           n_dim);
  NEAP_TRY(neap_fill_check(c, "value", c->attrs[VALUE].f, c->in[0].dtype, error));

  /* Numbers below 0 cut. What is left must not be less than nothing, and a frame of x's own
   * elements needs one to begin with. */
  c->out[0] = c->in[0];
  for (int d = 0; d < n_dim; d++) {
    int64_t *size = &c->out[0].shape.dim[d];
    *size = neap_count_add(f.x[d], f.before[d] + f.after[d]);
    char text[NEAP_SHAPE_TEXT];
    if (*size < 0)
      return neap_infer_fail(c, NEAP_SHAPE, 0, error,
                             "pads take %lld from a dimension of %lld in x %s",
                             -(long long)(f.before[d] + f.after[d]), (long long)f.x[d],
                             neap_shape_text(&c->in[0].shape, text));
    if (f.mode != CONSTANT && f.x[d] == 0 && *size > 0)
      return neap_infer_fail(c, NEAP_SHAPE, 0, error,
                             "a dimension without elements in x %s has none to show in its frame",
                             neap_shape_text(&c->in[0].shape, text));
  }
  return NEAP_OK;
}

typedef struct job {
  const neap_call *call;
  frame f;
  int64_t n_row, n; /* rows of y, along its last dimension; elements of one */
  int64_t bytes;
} job;

/* The row of x that row r of y shows, -1: none. */
static int64_t source_row(const frame *f, int64_t r) {
  int64_t row = 0, step = 1;
  /* Row r counts y's dimensions but the last, the fastest last; the row of x is counted
   * likewise. */
  for (int d = f->n_dim - 2; d >= 0; d--) {
    int64_t at = source_of(f, d, r % f->y[d]);
    if (at < 0) return -1;
    row += at * step;
    step *= f->x[d];
    r /= f->y[d];
  }
  return row;
}

/* Elements [from, to) of a row of y, each from where its position shows in the row x. */
static void show(const job *k, const char *x, char *y, int64_t from, int64_t to) {
  const int last = k->f.n_dim - 1;
  for (int64_t i = from; i < to; i++)
    memcpy(y + i * k->bytes, x + source_of(&k->f, last, i) * k->bytes, (size_t)k->bytes);
}

/* Rows [begin, end) of y. What shows nothing has been filled. */
static void pad_rows(void *context, int64_t begin, int64_t end) {
  const job *k = context;
  const frame *f = &k->f;
  int last = f->n_dim - 1;
  /* x itself lies in [low, high). */
  int64_t low = NEAP_MIN(NEAP_MAX(f->before[last], 0), k->n),
          high = NEAP_MAX(NEAP_MIN(f->before[last] + f->x[last], k->n), low);
  for (int64_t r = begin; r < end; r++) {
    int64_t row = source_row(f, r);
    if (row < 0) continue;
    const char *x = (const char *)k->call->in[0].data + row * f->x[last] * k->bytes;
    char *y = (char *)k->call->out[0].data + r * k->n * k->bytes;
    /* x itself is one piece; what is beside it is shown element by element. */
    if (high > low)
      memcpy(y + low * k->bytes, x + (low - f->before[last]) * k->bytes,
             (size_t)((high - low) * k->bytes));
    if (f->mode == CONSTANT) continue;
    show(k, x, y, 0, low);
    show(k, x, y, high, k->n);
  }
}

static void run(const neap_call *call) {
  const neap_shape *x = &call->in[0].type.shape, *y = &call->out[0].type.shape;
  job k = {.call = call,
           .f = frame_of(call->attrs, x, y),
           .bytes = (int64_t)neap_dtype_bytes(call->in[0].type.dtype)};
  /* A scalar has no frame: it is a row of one. */
  if (x->n_dim == 0) k.f.n_dim = 1, k.f.x[0] = 1, k.f.y[0] = 1;
  k.n = k.f.y[k.f.n_dim - 1];
  k.n_row = neap_shape_span(y, 0, NEAP_MAX(y->n_dim - 1, 0));
  /* Of one number all of y is filled first, and x's rows are written over it. */
  if (k.f.mode == CONSTANT) neap_fill(&call->out[0], call->attrs[VALUE].f, call->n_thread);
  if (neap_shape_elems(x) == 0 || neap_shape_elems(y) == 0) return;
  neap_parallel_for(k.n_row, NEAP_MAX(NEAP_GRAIN / k.n, 1), call->n_thread, pad_rows, &k);
}

/* Of one number: the frame is taken away, and what was taken away is zero. */
static neap_status grad(neap_grad *g, neap_error *error) {
  const neap_attr_value *pads = &g->attrs[PADS];
  if (g->attrs[MODE].i != CONSTANT) return neap_formula_gradient(g, g->op->grad_formula, error);
  int64_t back[2 * NEAP_MAX_DIM];
  for (int i = 0; i < pads->n; i++) back[i] = -pads->ints[i];
  g->din[0] = neap_grad_emit1(
    g, "Pad", 1, g->dout, g,
    (neap_set[]){NEAP_SET_INTS("pads", pads->n, back), NEAP_SET_FLOAT("value", 0), {0}});
  return NEAP_OK;
}

/* ---- PadGrad --------------------------------------------------------------------------------- */

extern const neap_op neap_op_Pad;

static neap_status infer_grad(neap_infer *c, neap_error *error) {
  neap_type dy;
  NEAP_TRY(neap_infer_attr_type(c, SHAPE, &c->out[0], error));
  NEAP_TRY(neap_infer_forward(c, &neap_op_Pad, 1, c->out, 1, &dy, error));
  return neap_infer_expect(c, 0, &dy, error);
}

/* Of each dimension, where each of its positions begins and ends in the list of those of y, and the
 * list. */
static bool choose_grad(neap_choose *c) {
  int64_t n = 0;
  if (neap_shape_elems(&c->out[0].shape) == 0) return true;
  for (int d = 0; d < c->in[0].shape.n_dim; d++)
    n = neap_count_add(n, neap_count_add(c->in[0].shape.dim[d], c->out[0].shape.dim[d]));
  c->choice->scratch_bytes = neap_size_of(n, sizeof(int64_t));
  return true;
}

/* Positions of y that show each position of x, in dimension d: see neap_sort_by_row. */
typedef struct shown {
  const frame *f;
  int d;
} shown;

static int64_t shown_at(const void *context, int64_t i) {
  const shown *s = context;
  return source_of(s->f, s->d, i);
}

typedef struct grad_job {
  const neap_call *call;
  frame f;
  int64_t stride[NEAP_MAX_DIM]; /* of dy */
  const int64_t *end[NEAP_MAX_DIM], *order[NEAP_MAX_DIM];
} grad_job;

/* The lists of element i of dx, from[d] to to[d] of each dimension; false: one is empty. */
static bool lists_of(const grad_job *k, int64_t i, int64_t from[NEAP_MAX_DIM],
                     int64_t to[NEAP_MAX_DIM]) {
  bool is_shown = true;
  for (int d = k->f.n_dim - 1; d >= 0; d--) {
    /* The positions of y that show s are the list order[end(s - 1) .. end(s)). */
    int64_t s = i % k->f.x[d];
    i /= k->f.x[d];
    from[d] = s == 0 ? 0 : k->end[d][s - 1];
    to[d] = k->end[d][s];
    is_shown &= from[d] < to[d];
  }
  return is_shown;
}

#define NEAP_BODY "ops/pad_grad_body.h"
#include "math/each_element.h"

static void run_grad(const neap_call *call) {
  static void (*const loops[NEAP_N_DTYPE])(void *, int64_t, int64_t) = {NEAP_ELEMENTS(add_shown)};
  const neap_shape *dy = &call->in[0].type.shape, *dx = &call->out[0].type.shape;
  grad_job k = {.call = call, .f = frame_of(call->attrs, dx, dy)};
  int64_t *scratch = call->scratch;
  if (neap_shape_elems(dx) == 0) return;
  neap_shape_strides(dy, k.stride);
  /* For each dimension by itself: an element of y shows one of x if all of its positions do. */
  for (int d = 0; d < dx->n_dim; d++) {
    shown s = {&k.f, d};
    int64_t *end = scratch, *order = scratch + k.f.x[d];
    neap_sort_by_row(k.f.y[d], k.f.x[d], shown_at, &s, end, order);
    k.end[d] = end;
    k.order[d] = order;
    scratch = order + k.f.y[d];
  }
  neap_parallel_for(neap_shape_elems(dx), NEAP_GRAIN / 8, call->n_thread,
                    loops[call->in[0].type.dtype], &k);
}

/* ---- records --------------------------------------------------------------------------------- */

#define PAD_ATTRS                                                                                  \
  [PADS] = {"pads",                                                                                \
            "positions added before all dimensions, then after all; negative ones are taken away", \
            NEAP_ATTR_INTS,                                                                        \
            .required = true,                                                                      \
            .least = -(1 << 20),                                                                   \
            .most = 1 << 20},                                                                      \
  [VALUE] = {"value", "of the positions added, in mode constant; one that x's dtype holds",        \
             NEAP_ATTR_FLOAT},                                                                     \
  [MODE] = {"mode", "what is added: a number, x mirrored, its edge, or x again", NEAP_ATTR_ENUM,   \
            .choices = "constant|reflect|edge|wrap"},                                              \
  [AXES] = {"axes", "dimensions that pads speaks of; all when not given", NEAP_ATTR_AXES,          \
            .unlike_default = true}

const neap_op neap_op_Pad = {
  .name = "Pad",
  .summary = "A tensor within a frame: of one number, of its edge, or of itself.",
  .math = "y[i + before] = x[i], value elsewhere; or x[s(i)], s mirrored, held or repeated",
  .example = "net:Pad(\"x\", \"y\", {pads = {0, 0, 1, 1, 0, 0, 1, 1}})",
  .source =
    "ONNX Pad-19; a mirrored or repeated x is whole, as in PyTorch, where a pad is negative",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"y", "each dimension longer by before and after", NEAP_ANY}},
  .attrs = {PAD_ATTRS},
  .infer = infer,
  .grad = grad,
  .grad_formula = "d.x = PadGrad(d.y, .., shape = shape(x))",
  .empty = NEAP_EMPTY_FILLED,
  .special = "what is padded on to nothing is `value`, and refused in other modes",
  .kernels = NEAP_REF(run, NEAP_ANY),
  .cases =
    "{ {x={2,3,4}, pads={0,1,2,1,0,3}, value=0.5}, {x={5}, pads={2,0}}, {x={0,3}, pads={1,0,0,1}, "
    "value=-2}, {x={4,5}, pads={-1,2,0,-3}}, {x={3,4}, pads={2,-1}, axes={-1}, value=3}, "
    "{x={2,3,4}, pads={0,2,3,1,1,2}, mode=\"reflect\"}, {x={3,4}, pads={7,-1,0,9}, "
    "mode=\"reflect\"}, {x={2,3}, pads={2,0,1,4}, mode=\"edge\"}, {x={2,3}, pads={3,-1,4,8}, "
    "mode=\"wrap\"}, {x={1,1}, pads={2,1,0,1}, mode=\"reflect\"}, {x={}, pads={}}, "
    "{x={{2,2}, dtype=\"i64\", low=0, high=9}, pads={1,1,1,1}, value=3} }",
};

const neap_op neap_op_PadGrad = {
  .name = "PadGrad",
  .summary = "Gradient of Pad: each element adds up what arrives where it is shown.",
  .math = "dx[s] = sum of dy[i] with s(i) = s",
  .internal = true,
  .inputs = {{"dy", "shape of y"}},
  .outputs = {{"dx", "shape of x"}},
  .attrs = {PAD_ATTRS, [SHAPE] = {"shape", "of x", NEAP_ATTR_INTS, .required = true}},
  .infer = infer_grad,
  .sum = NEAP_SUM_DOUBLE,
  .grad_formula = "d.dy = Pad(d.dx, .., value = 0)",
  .kernels = NEAP_REF_CHOOSE(choose_grad, run_grad, NEAP_FLOATS),
  .cases =
    "{ {dy={4,9}, pads={1,2,1,4}, mode=\"edge\", shape={2,3}}, {dy={4,9}, pads={1,2,1,4}, "
    "mode=\"reflect\", shape={2,3}}, {dy={3,4}, pads={-1,2,1,-1}, mode=\"wrap\", shape={3,3}}, "
    "{dy={4}, pads={1,1}, shape={2}} }",
  .long_cases = "{ {dy={262145}, pads={0,262144}, mode=\"edge\", shape={1}} }",
};
