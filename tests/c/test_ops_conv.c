/* Conv, pools, BatchNorm and FC: `ref` against naive loops in double, the other engines against
 * `ref`, padding lanes zero. */
#include "check.h"
#include "ops/window.h"

#include <stdlib.h>

/* ---- values and one-op runs ------------------------------------------------------------------ */

typedef struct value {
  neap_type type;
  void *data; /* dense, plain; or stash bytes */
} value;

static uint64_t seed = 1;

static double draw(void) { /* in [-1, 1) */
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (double)(int64_t)(seed >> 11) / 4503599627370496.0 - 1.0;
}

static value new_value(neap_dtype dtype, neap_shape shape) {
  value v = {{dtype, shape}, NULL};
  int64_t n = neap_shape_elems(&shape);
  v.data = calloc((size_t)n + 1, neap_dtype_bytes(dtype));
  for (int64_t i = 0; i < n; i++) neap_element_set(dtype, v.data, i, draw());
  return v;
}

static double get(const value *v, int64_t i) { return neap_element_get(v->type.dtype, v->data, i); }

/* Lane of element `index` (row-major number) of a type in a layout, in elements. */
static int64_t lane(const neap_type *type, const neap_layout *layout, int64_t index) {
  int64_t at[NEAP_MAX_DIM], pos = 0;
  const neap_shape *s = &type->shape;
  if (layout->kind == NEAP_LAYOUT_PLAIN) return index;
  for (int d = s->n_dim - 1; d >= 0; d--) at[d] = index % s->dim[d], index /= s->dim[d];
  for (int k = 0; k < s->n_dim; k++) {
    int d = layout->order[k];
    int64_t block = 1;
    for (int i = 0; i < layout->n_inner; i++)
      if (layout->inner_dim[i] == d) block *= layout->inner_block[i];
    pos = pos * ((s->dim[d] + block - 1) / block) + at[d] / block;
  }
  for (int i = 0; i < layout->n_inner; i++) {
    int64_t below = 1; /* of the same dimension, in faster inner blocks */
    for (int j = i + 1; j < layout->n_inner; j++)
      if (layout->inner_dim[j] == layout->inner_dim[i]) below *= layout->inner_block[j];
    pos = pos * layout->inner_block[i] + at[layout->inner_dim[i]] / below % layout->inner_block[i];
  }
  return pos;
}

static void *buffer_of(const neap_type *type, const neap_layout *layout, size_t stash_bytes) {
  size_t bytes = stash_bytes != 0 ? stash_bytes : neap_layout_bytes(type, layout);
  return aligned_alloc(64, neap_align(bytes) + 64);
}

static void pack(const value *v, const neap_layout *layout, void *to) {
  memset(to, 0, neap_layout_bytes(&v->type, layout));
  for (int64_t i = 0; i < neap_shape_elems(&v->type.shape); i++)
    neap_element_set(v->type.dtype, to, lane(&v->type, layout, i), get(v, i));
}

/* Back to plain; every lane that holds no element must be zero. */
static void unpack(const void *from, const neap_layout *layout, value *v) {
  int64_t lanes = (int64_t)(neap_layout_bytes(&v->type, layout) / neap_dtype_bytes(v->type.dtype));
  bool *used = calloc((size_t)lanes + 1, sizeof *used);
  for (int64_t i = 0; i < neap_shape_elems(&v->type.shape); i++) {
    int64_t l = lane(&v->type, layout, i);
    used[l] = true;
    neap_element_set(v->type.dtype, v->data, i, neap_element_get(v->type.dtype, from, l));
  }
  int bad = 0;
  for (int64_t l = 0; l < lanes; l++)
    bad += !used[l] && neap_element_get(v->type.dtype, from, l) != 0.0;
  CHECK_EQ(bad, 0); /* padding lanes that are not zero */
  free(used);
}

/* Whether this build has oneDNN. */
static bool has_dnnl(void) { return neap_engine_at(NEAP_ENGINE_DNNL)->missing() == NULL; }

enum { MAX = 8 };
typedef struct run {
  const neap_op *op;
  neap_engine engine;
  neap_attr_value attrs[NEAP_OP_MAX_ATTR];
  int n_in, n_out, n_thread;
  value in[MAX], out[MAX];
  neap_layout at_hand[MAX], layout_in[MAX], layout_out[MAX];
  neap_choice choice;
  const neap_choice *pair;
  size_t scratch_limit; /* 0: none */
} run;

static run new_run(const char *op, neap_engine engine) {
  run r = {.op = neap_op_find(op), .engine = engine, .n_thread = 2};
  for (int i = 0; i < neap_op_n_attrs(r.op); i++) r.attrs[i] = r.op->attrs[i].value;
  return r;
}

static void set_ints(run *r, const char *name, int n, const int64_t *list) {
  int i = neap_op_attr_index(r->op, name);
  CHECK(i >= 0);
  r->attrs[i] = (neap_attr_value){.given = true, .n = n, .ints = list};
}

static void set_int(run *r, const char *name, int64_t x) {
  int i = neap_op_attr_index(r->op, name);
  CHECK(i >= 0);
  r->attrs[i].i = x;
}

static bool is_stash(const neap_arg *arg) {
  return arg != NULL && (arg->flags & NEAP_ARG_STASH) != 0;
}

/* Infers the outputs; data comes with perform. */
static neap_status infer(run *r, neap_error *error) {
  neap_type in[MAX] = {{0}}, out[MAX] = {{0}};
  for (int i = 0; i < r->n_in; i++) in[i] = r->in[i].type;
  neap_infer c = {
    .op = r->op, .attrs = r->attrs, .n_in = r->n_in, .n_out = r->n_out, .in = in, .out = out};
  NEAP_TRY(r->op->infer(&c, error));
  for (int i = 0; i < r->n_out; i++)
    r->out[i] = (value){out[i], calloc(1, neap_type_bytes(&out[i]) + 8)};
  return NEAP_OK;
}

/* Chooses, binds, runs twice over poisoned outputs. False: the engine does not take the case. A
 * stash input is passed as it is. */
static bool perform(run *r) {
  const neap_kernel *kernel = r->op->kernels;
  neap_type in[MAX], out[MAX];
  for (int i = 0; i < r->n_in; i++) in[i] = r->in[i].type;
  for (int i = 0; i < r->n_out; i++) out[i] = r->out[i].type;
  while (kernel->run != NULL && kernel->engine != r->engine) kernel++;
  if (kernel->run == NULL) return false;
  memcpy(r->layout_in, r->at_hand, sizeof r->layout_in);
  if (kernel->choose != NULL || !kernel->any_layout) memset(r->layout_in, 0, sizeof r->layout_in);
  r->choice = (neap_choice){
    .engine = r->engine, .n_thread = r->n_thread, .in = r->layout_in, .out = r->layout_out};
  if (kernel->choose == NULL && kernel->any_layout)
    for (int i = 0; i < r->n_out; i++) r->layout_out[i] = r->layout_in[0];
  neap_choose c = {.op = r->op,
                   .attrs = r->attrs,
                   .n_in = r->n_in,
                   .n_out = r->n_out,
                   .in = in,
                   .out = out,
                   .in_layout = r->at_hand,
                   .train = true,
                   .pair = r->pair,
                   .scratch_limit = r->scratch_limit != 0 ? r->scratch_limit : SIZE_MAX,
                   .choice = &r->choice};
  if (!neap_kernel_choose(kernel, &c)) return false;

  neap_bind bind = {.op = r->op,
                    .attrs = r->attrs,
                    .n_in = r->n_in,
                    .n_out = r->n_out,
                    .in = in,
                    .out = out,
                    .choice = &r->choice};
  void *object = NULL;
  if (kernel->bind != NULL) CHECK_OK(kernel->bind(&bind, &object, &error));
  neap_operand op_in[MAX] = {{0}}, op_out[MAX] = {{0}};
  neap_fault fault = {0};
  for (int i = 0; i < r->n_in; i++) {
    op_in[i] = (neap_operand){NULL, in[i], r->layout_in[i]};
    if (in[i].dtype == NEAP_DTYPE_NONE) continue;
    if (in[i].dtype == NEAP_DTYPE_U8) {
      op_in[i].data = r->in[i].data;
    } else {
      op_in[i].data = buffer_of(&in[i], &r->layout_in[i], 0);
      pack(&r->in[i], &r->layout_in[i], op_in[i].data);
    }
  }
  for (int i = 0; i < r->n_out; i++)
    op_out[i] =
      (neap_operand){buffer_of(&out[i], &r->layout_out[i],
                               is_stash(neap_op_output(r->op, i)) ? r->choice.stash_bytes : 0),
                     out[i], r->layout_out[i]};
  void *scratch = aligned_alloc(64, neap_align(r->choice.scratch_bytes) + 64);
  memset(scratch, 0xff, neap_align(r->choice.scratch_bytes) + 64);
  neap_call call = {.op = r->op,
                    .attrs = r->attrs,
                    .n_in = r->n_in,
                    .n_out = r->n_out,
                    .in = op_in,
                    .out = op_out,
                    .kernel = object,
                    .scratch = scratch,
                    .choice = &r->choice,
                    .n_thread = r->n_thread,
                    .fault = &fault};
  for (int turn = 0; turn < 2; turn++) {
    for (int i = 0; i < r->n_out; i++)
      if (!is_stash(neap_op_output(r->op, i)))
        memset(op_out[i].data, 0xff, neap_layout_bytes(&out[i], &r->layout_out[i]));
    kernel->run(&call);
  }
  for (int i = 0; i < r->n_out; i++) {
    if (is_stash(neap_op_output(r->op, i))) {
      free(r->out[i].data);
      r->out[i].data = op_out[i].data;
    } else {
      unpack(op_out[i].data, &r->layout_out[i], &r->out[i]);
      free(op_out[i].data);
    }
  }
  for (int i = 0; i < r->n_in; i++)
    if (op_in[i].data != r->in[i].data) free(op_in[i].data);
  free(scratch);
  if (kernel->unbind != NULL) kernel->unbind(object);
  return true;
}

/* Largest difference relative to the largest expected value (at least 1e-6). */
static double distance(const value *got, const value *want) {
  double worst = 0, scale = 1e-6;
  int64_t n = neap_shape_elems(&want->type.shape);
  CHECK(neap_shape_equal(&got->type.shape, &want->type.shape));
  for (int64_t i = 0; i < n; i++) scale = NEAP_MAX(scale, fabs(get(want, i)));
  for (int64_t i = 0; i < n; i++) {
    double d = fabs(get(got, i) - get(want, i));
    if (!(d <= worst)) worst = d;
  }
  return worst / scale;
}

static void free_outs(run *r) {
  for (int i = 0; i < r->n_out; i++) free(r->out[i].data);
}

/* Same operands and attributes under another engine; *took tells whether that engine has a kernel
 * for it. */
static void check_engine(const run *ref, neap_engine engine, double tolerance, int *took) {
  run r = *ref;
  r.engine = engine;
  CHECK_OK(infer(&r, &error));
  if (perform(&r)) {
    ++*took;
    for (int i = 0; i < r.n_out; i++) {
      if (is_stash(neap_op_output(r.op, i))) continue;
      double d = distance(&r.out[i], &ref->out[i]);
      if (!(d <= tolerance)) {
        char text[NEAP_LAYOUT_TEXT];
        printf("  %s on %s: output %d (%s) is off by %g\n", r.op->name, neap_engine_name(engine), i,
               neap_layout_text(&r.layout_out[i], r.out[i].type.shape.n_dim, text), d);
        check_failures++;
      }
    }
  }
  free_outs(&r);
}

/* ---- Conv ------------------------------------------------------------------------------------ */

typedef struct conv_case {
  int n;                 /* spatial dimensions */
  int64_t x[5], o, k[3]; /* x (N,C,...), output channels, window */
  int64_t stride[3], dilation[3];
  int n_pad;
  int64_t pad[6], groups;
} conv_case;

static const conv_case conv_cases[] = {
  {2, {2, 3, 6, 7}, 4, {3, 3}, {1, 1}, {1, 1}, 0, {0}, 1},
  {2, {2, 3, 9, 8}, 5, {3, 2}, {2, 3}, {1, 1}, 2, {1, 0}, 1},
  {2, {1, 4, 9, 10}, 6, {3, 3}, {1, 2}, {2, 3}, 4, {2, 1, 0, 3}, 2},
  {2, {2, 6, 7, 7}, 6, {3, 3}, {1, 1}, {1, 1}, 2, {1, 1}, 6},
  {2, {2, 32, 9, 9}, 32, {3, 3}, {2, 2}, {1, 1}, 2, {1, 1}, 32},
  {2, {2, 24, 6, 6}, 24, {3, 3}, {1, 1}, {1, 1}, 2, {1, 1}, 24},
  {2, {2, 32, 6, 6}, 64, {3, 3}, {1, 1}, {1, 1}, 2, {1, 1}, 2},
  {2, {3, 1, 14, 14}, 20, {5, 5}, {1, 1}, {1, 1}, 0, {0}, 1},
  {2, {3, 20, 8, 8}, 50, {5, 5}, {1, 1}, {1, 1}, 0, {0}, 1},
  {2, {2, 64, 10, 9}, 32, {3, 3}, {1, 1}, {1, 1}, 2, {1, 1}, 1},
  {2, {2, 32, 8, 8}, 64, {1, 1}, {1, 1}, {1, 1}, 0, {0}, 1},
  {2, {2, 32, 9, 8}, 64, {1, 1}, {2, 2}, {1, 1}, 0, {0}, 1},
  {2, {2, 3, 30, 30}, 64, {7, 7}, {2, 2}, {1, 1}, 2, {3, 3}, 1},
  {2, {1, 4, 1, 1}, 3, {3, 3}, {1, 1}, {1, 1}, 2, {1, 1}, 1},
  {2, {1, 2, 3, 300}, 3, {2, 5}, {1, 1}, {1, 1}, 2, {0, 2}, 1},
  {1, {2, 3, 13}, 4, {3}, {2}, {2}, 1, {2}, 1},
  {1, {2, 16, 40}, 16, {3}, {1}, {1}, 1, {1}, 1},
  {3, {1, 4, 4, 5, 6}, 4, {2, 2, 3}, {1, 2, 1}, {1, 1, 1}, 3, {0, 1, 1}, 2},
  {3, {1, 16, 4, 5, 6}, 16, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, 3, {1, 1, 1}, 1},
};

static neap_shape weight_shape(const conv_case *t) {
  neap_shape s = {.n_dim = t->n + 2, .dim = {t->o, t->x[1] / t->groups}};
  for (int d = 0; d < t->n; d++) s.dim[2 + d] = t->k[d];
  return s;
}

static void set_window(run *r, const conv_case *t) {
  set_ints(r, "stride", t->n, t->stride);
  set_ints(r, "dilation", t->n, t->dilation);
  set_ints(r, "pad", t->n_pad, t->pad);
  if (neap_op_attr_index(r->op, "groups") >= 0) set_int(r, "groups", t->groups);
}

/* One loop for everything: visits each product of the convolution with the indices of x, w and
 * y. */
static void visit(const conv_case *t, const neap_shape *y,
                  void (*product)(void *context, int64_t x, int64_t w, int64_t y), void *context) {
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, k[3] = {1, 1, 1}, s[3] = {1, 1, 1},
          l[3] = {1, 1, 1}, p[3] = {0};
  for (int d = 0; d < t->n; d++) {
    int e = 3 - t->n + d;
    in[e] = t->x[2 + d], out[e] = y->dim[2 + d], k[e] = t->k[d], s[e] = t->stride[d],
    l[e] = t->dilation[d];
    p[e] = t->n_pad == 0 ? 0 : t->pad[d];
  }
  int64_t cg = t->x[1] / t->groups, og = t->o / t->groups, L = out[0] * out[1] * out[2],
          K = k[0] * k[1] * k[2];
  for (int64_t n = 0; n < t->x[0]; n++)
    for (int64_t o = 0; o < t->o; o++)
      for (int64_t i = 0; i < L; i++)
        for (int64_t c = 0; c < cg; c++)
          for (int64_t q = 0; q < K; q++) {
            int64_t a = i / (out[1] * out[2]) * s[0] - p[0] + q / (k[1] * k[2]) * l[0];
            int64_t b = i / out[2] % out[1] * s[1] - p[1] + q / k[2] % k[1] * l[1];
            int64_t e = i % out[2] * s[2] - p[2] + q % k[2] * l[2];
            if (a < 0 || a >= in[0] || b < 0 || b >= in[1] || e < 0 || e >= in[2]) continue;
            product(context,
                    (((n * t->x[1] + o / og * cg + c) * in[0] + a) * in[1] + b) * in[2] + e,
                    (o * cg + c) * K + q, (n * t->o + o) * L + i);
          }
}

typedef struct sums {
  const value *x, *w, *dy;
  double *y, *dx, *dw;
} sums;

static void add_product(void *context, int64_t x, int64_t w, int64_t y) {
  sums *s = context;
  s->y[y] += get(s->x, x) * get(s->w, w);
  s->dx[x] += get(s->dy, y) * get(s->w, w);
  s->dw[w] += get(s->dy, y) * get(s->x, x);
}

static value like(const value *v, double **data) { /* an f64 value of the same shape, zero */
  value out = new_value(NEAP_DTYPE_F64, v->type.shape);
  memset(out.data, 0, neap_type_bytes(&out.type));
  *data = out.data;
  return out;
}

static void check_conv(const conv_case *t, neap_dtype dtype, int took[3][NEAP_N_ENGINE]) {
  double tolerance = dtype == NEAP_DTYPE_F64 ? 1e-13 : 2e-6;
  run f = new_run("Conv", NEAP_ENGINE_REF), gx = new_run("ConvGradInput", NEAP_ENGINE_REF),
      gw = new_run("ConvGradWeight", NEAP_ENGINE_REF);
  value x = new_value(dtype, neap_shape_of(t->n + 2, t->x)), w = new_value(dtype, weight_shape(t)),
        b = new_value(dtype, NEAP_SHAPE(t->o));
  set_window(&f, t);
  f.n_in = 3, f.n_out = 1, f.in[0] = x, f.in[1] = w, f.in[2] = b;
  CHECK_OK(infer(&f, &error));
  CHECK(perform(&f));
  value dy = new_value(dtype, f.out[0].type.shape);
  sums s = {&x, &w, &dy, NULL, NULL, NULL};
  value y = like(&f.out[0], &s.y), dx = like(&x, &s.dx), dw = like(&w, &s.dw),
        db = new_value(NEAP_DTYPE_F64, NEAP_SHAPE(t->o));
  visit(t, &y.type.shape, add_product, &s);
  int64_t l = neap_shape_span(&y.type.shape, 2, y.type.shape.n_dim),
          n_y = neap_shape_elems(&y.type.shape);
  memset(db.data, 0, neap_type_bytes(&db.type));
  for (int64_t i = 0; i < n_y; i++)
    s.y[i] += get(&b, i / l % t->o), ((double *)db.data)[i / l % t->o] += get(&dy, i);
  CHECK(distance(&f.out[0], &y) <= tolerance);

  set_window(&gx, t);
  set_ints(&gx, "shape", x.type.shape.n_dim, x.type.shape.dim);
  gx.n_in = 2, gx.n_out = 1, gx.in[0] = dy, gx.in[1] = w;
  CHECK_OK(infer(&gx, &error));
  CHECK(perform(&gx));
  CHECK(distance(&gx.out[0], &dx) <= tolerance);

  set_window(&gw, t);
  set_ints(&gw, "shape", w.type.shape.n_dim, w.type.shape.dim);
  gw.n_in = 2, gw.n_out = 2, gw.in[0] = x, gw.in[1] = dy;
  CHECK_OK(infer(&gw, &error));
  CHECK(perform(&gw));
  CHECK(distance(&gw.out[0], &dw) <= tolerance);
  CHECK(distance(&gw.out[1], &db) <= tolerance);

  for (int e = NEAP_ENGINE_BLAS; e <= NEAP_ENGINE_DNNL; e++) {
    if (e == NEAP_ENGINE_DNNL && dtype != NEAP_DTYPE_F32) continue;
    check_engine(&f, (neap_engine)e, 10 * tolerance, &took[0][e]);
    check_engine(&gx, (neap_engine)e, 10 * tolerance, &took[1][e]);
    check_engine(&gw, (neap_engine)e, 10 * tolerance, &took[2][e]);
  }
  value all[] = {x, w, b, dy, y, dx, dw, db};
  for (int i = 0; i < NEAP_COUNT(all); i++) free(all[i].data);
  free_outs(&f), free_outs(&gx), free_outs(&gw);
}

TEST(conv_engines_agree_with_naive_loops) {
  int took[3][NEAP_N_ENGINE] = {{0}};
  for (int i = 0; i < NEAP_COUNT(conv_cases); i++) {
    int before = check_failures;
    check_conv(&conv_cases[i], NEAP_DTYPE_F32, took);
    if (check_failures > before) printf("  ... in conv case %d\n", i);
  }
  for (int k = 0; k < 3; k++) CHECK_EQ(took[k][NEAP_ENGINE_BLAS], NEAP_COUNT(conv_cases));
  for (int k = 0; k < 3 && has_dnnl(); k++)
    CHECK(took[k][NEAP_ENGINE_DNNL] >= NEAP_COUNT(conv_cases) / 2);
}

TEST(conv_in_f64_agrees_with_naive_loops) {
  int took[3][NEAP_N_ENGINE] = {{0}};
  for (int i = 0; i < NEAP_COUNT(conv_cases); i += 2)
    check_conv(&conv_cases[i], NEAP_DTYPE_F64, took);
}

/* Large enough for Winograd, too large for the naive loops: against `ref`. A scratch limit brings
 * the direct kernel back. */
TEST(conv_takes_winograd_within_the_scratch_limit) {
  const conv_case t = {2, {3, 64, 26, 27}, 96, {3, 3}, {1, 1}, {1, 1}, 2, {1, 1}, 1};
  value x = new_value(NEAP_DTYPE_F32, NEAP_SHAPE(3, 64, 26, 27)),
        w = new_value(NEAP_DTYPE_F32, NEAP_SHAPE(96, 64, 3, 3));
  value dy = new_value(NEAP_DTYPE_F32, NEAP_SHAPE(3, 96, 26, 27)),
        b = new_value(NEAP_DTYPE_F32, NEAP_SHAPE(96));
  run r[3] = {new_run("Conv", NEAP_ENGINE_REF), new_run("ConvGradInput", NEAP_ENGINE_REF),
              new_run("ConvGradWeight", NEAP_ENGINE_REF)};
  r[0].n_in = 3, r[0].n_out = 1, r[0].in[0] = x, r[0].in[1] = w, r[0].in[2] = b;
  r[1].n_in = 2, r[1].n_out = 1, r[1].in[0] = dy, r[1].in[1] = w;
  r[2].n_in = 2, r[2].n_out = 2, r[2].in[0] = x, r[2].in[1] = dy;
  set_ints(&r[1], "shape", 4, x.type.shape.dim), set_ints(&r[2], "shape", 4, w.type.shape.dim);
  for (int k = 0; k < 3; k++) {
    int took = 0;
    set_window(&r[k], &t);
    CHECK_OK(infer(&r[k], &error));
    CHECK(perform(&r[k]));
    check_engine(&r[k], NEAP_ENGINE_DNNL, 2e-5, &took);
    run d = r[k];
    d.engine = NEAP_ENGINE_DNNL;
    size_t least = 0; /* of scratch: older machines have no kernel without */
    for (int turn = 0; turn < 2 && took > 0; turn++) {
      CHECK_OK(infer(&d, &error));
      d.scratch_limit = turn == 0 ? 1 : (size_t)1 << 20;
      CHECK(perform(&d));
      if (turn == 0) least = d.choice.scratch_bytes;
      CHECK(d.choice.algorithm == NEAP_ONEDNN_DIRECT);
      if (turn == 1) CHECK(d.choice.scratch_bytes <= NEAP_MAX(least, (size_t)1 << 20));
      free_outs(&d);
    }
    free_outs(&r[k]);
  }
  free(x.data), free(w.data), free(b.data), free(dy.data);
}

TEST(conv_says_what_does_not_fit) {
  run r = new_run("Conv", NEAP_ENGINE_REF);
  r.n_in = 2, r.n_out = 1;
  r.in[0].type = (neap_type){NEAP_DTYPE_F32, NEAP_SHAPE(8, 16, 28, 28)};
  r.in[1].type = (neap_type){NEAP_DTYPE_F32, NEAP_SHAPE(64, 32, 3, 3)};
  CHECK_FAILS(infer(&r, &error), NEAP_SHAPE,
              "weight (64,32,3,3) expects 32 input channels, got x (8,16,28,28)");
  r.in[1].type.shape = NEAP_SHAPE(64, 16, 3, 3);
  set_ints(&r, "kernel", 1, (int64_t[]){5});
  CHECK_FAILS(infer(&r, &error), NEAP_SHAPE, "kernel = 5");
  set_ints(&r, "kernel", 1, (int64_t[]){3});
  set_ints(&r, "stride", 3, (int64_t[]){1, 1, 1});
  CHECK_FAILS(infer(&r, &error), NEAP_ATTRIBUTE, "stride expects 1 or 2 values");
  set_ints(&r, "stride", 1, (int64_t[]){1});
  r.in[0].type.shape = NEAP_SHAPE(8, 16, 2, 2);
  CHECK_FAILS(infer(&r, &error), NEAP_SHAPE, "a window of 3 elements");
  r.in[0].type.shape = NEAP_SHAPE(8, 16);
  CHECK_FAILS(infer(&r, &error), NEAP_SHAPE, "x expects 3 to 5 dimensions");
}

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

/* ---- FC -------------------------------------------------------------------------------------- */

TEST(fc_engines_agree) {
  const struct {
    neap_shape x;
    int64_t n, axis;
  } cases[] = {{NEAP_SHAPE(1, 5), 3, -1},        {NEAP_SHAPE(3, 2051), 7, -1},
               {NEAP_SHAPE(15, 40), 9, -1},      {NEAP_SHAPE(4, 4117), 21, -1},
               {NEAP_SHAPE(17, 40), 9, -1},      {NEAP_SHAPE(64, 50), 10, -1},
               {NEAP_SHAPE(300, 33), 17, -1},    {NEAP_SHAPE(2, 150, 40), 24, -1},
               {NEAP_SHAPE(65, 5, 3, 2), 20, 1}, {NEAP_SHAPE(4, 32, 24), 48, -1}};
  for (int i = 0; i < NEAP_COUNT(cases); i++) {
    neap_shape xs = cases[i].x;
    int axis = neap_axis(cases[i].axis, xs.n_dim), took = 0;
    int64_t k = neap_shape_span(&xs, axis, xs.n_dim), n = cases[i].n;
    neap_shape ys = neap_shape_of(axis, xs.dim);
    ys.dim[ys.n_dim++] = n;
    value x = new_value(NEAP_DTYPE_F32, xs), w = new_value(NEAP_DTYPE_F32, NEAP_SHAPE(n, k)),
          b = new_value(NEAP_DTYPE_F32, NEAP_SHAPE(n));
    value dy = new_value(NEAP_DTYPE_F32, ys);
    run r[3] = {new_run("FC", NEAP_ENGINE_REF), new_run("FCGradInput", NEAP_ENGINE_REF),
                new_run("FCGradWeight", NEAP_ENGINE_REF)};
    r[0].n_in = 3, r[0].n_out = 1, r[0].in[0] = x, r[0].in[1] = w, r[0].in[2] = b;
    r[1].n_in = 2, r[1].n_out = 1, r[1].in[0] = dy, r[1].in[1] = w;
    r[2].n_in = 2, r[2].n_out = 2, r[2].in[0] = x, r[2].in[1] = dy;
    set_int(&r[0], "axis", cases[i].axis), set_int(&r[2], "axis", cases[i].axis);
    set_ints(&r[1], "shape", xs.n_dim, xs.dim);
    for (int q = 0; q < 3; q++) {
      CHECK_OK(infer(&r[q], &error));
      CHECK(perform(&r[q]));
      check_engine(&r[q], NEAP_ENGINE_BLAS, 1e-5, &took);
      check_engine(&r[q], NEAP_ENGINE_DNNL, 1e-5, &took);
      free_outs(&r[q]);
    }
    CHECK_EQ(took, has_dnnl() ? 6 : 3);
    free(x.data), free(w.data), free(b.data), free(dy.data);
  }
}

/* Lists that a file may hold: the sums and products of their numbers must not leave the
 * integers. */
TEST(windows_of_any_size_are_sized_or_refused) {
  static const int64_t sizes[] = {1,        2, 3, INT32_MAX, (int64_t)INT32_MAX + 1, INT64_MAX / 2,
                                  INT64_MAX};
  static const char *const attr[] = {"kernel", "stride", "dilation", "pad"};
  enum { N = NEAP_COUNT(sizes) };
  for (int at = 0; at < 16 * N * N; at++) {
    run r = new_run("MaxPool", NEAP_ENGINE_REF);
    neap_error error = {0};
    r.n_in = 1, r.n_out = 1;
    r.in[0].type = (neap_type){NEAP_DTYPE_F32, NEAP_SHAPE(1, 1, 4, 4, 4)};
    set_ints(&r, "kernel", 1, (int64_t[]){2});
    set_ints(&r, attr[at % 4], 1, &sizes[at / 16 % N]);
    set_ints(&r, attr[at / 4 % 4], 1, &sizes[at / 16 / N]);
    neap_status status = infer(&r, &error);
    CHECK(status == NEAP_OK || status == NEAP_SHAPE || status == NEAP_ATTRIBUTE);
    if (status != NEAP_OK) continue;
    CHECK(r.out[0].type.shape.dim[4] >= 1 && r.out[0].type.shape.dim[4] <= 3 + 2 * 2);
    free_outs(&r);
  }
  run r = new_run("MaxPool", NEAP_ENGINE_REF);
  r.n_in = 1, r.n_out = 1;
  r.in[0].type = (neap_type){NEAP_DTYPE_F32, NEAP_SHAPE(1, 1, 4)};
  set_ints(&r, "kernel", 1, (int64_t[]){INT64_MAX});
  CHECK_FAILS(infer(&r, &error), NEAP_ATTRIBUTE,
              "kernel expects values from 1 to 2147483647, got 9223372036854775807");
}

int main(int argc, char **argv) {
  return RUN(
    argc, argv, T(conv_engines_agree_with_naive_loops), T(conv_in_f64_agrees_with_naive_loops),
    T(conv_takes_winograd_within_the_scratch_limit), T(conv_says_what_does_not_fit),
    T(pools_agree_with_naive_loops), T(global_average_pool_agrees_with_the_mean),
    T(max_pool_lets_nan_win_and_takes_the_first_of_equals), T(pools_say_what_does_not_fit),
    T(windows_of_any_size_are_sized_or_refused), T(batch_norm_backward_is_the_finite_difference),
    T(batch_norm_engines_agree), T(fc_engines_agree));
}
