/* Conv, pools and BatchNorm: `ref` against naive loops in double, the other engines against `ref`, padding lanes zero. */
#include "check.h"
#include "ops/window.h"

#include <stdlib.h>

/* ---- values and one-op runs --------------------------------------------------------------------------------------- */

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
  for (int64_t l = 0; l < lanes; l++) bad += !used[l] && neap_element_get(v->type.dtype, from, l) != 0.0;
  CHECK_EQ(bad, 0); /* padding lanes that are not zero */
  free(used);
}

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

static bool is_stash(const neap_arg *arg) { return arg != NULL && (arg->flags & NEAP_ARG_STASH) != 0; }

/* Infers the outputs; data comes with perform. */
static neap_status infer(run *r, neap_error *error) {
  neap_type in[MAX] = {{0}}, out[MAX] = {{0}};
  for (int i = 0; i < r->n_in; i++) in[i] = r->in[i].type;
  neap_infer c = {.op = r->op, .attrs = r->attrs, .n_in = r->n_in, .n_out = r->n_out, .in = in, .out = out};
  NEAP_TRY(r->op->infer(&c, error));
  for (int i = 0; i < r->n_out; i++) r->out[i] = (value){out[i], calloc(1, neap_type_bytes(&out[i]) + 8)};
  return NEAP_OK;
}

/* Chooses, binds, runs twice over poisoned outputs. False: the engine does not take the case. A stash input is passed as
 * it is. */
static bool perform(run *r) {
  const neap_kernel *kernel = r->op->kernels;
  neap_type in[MAX], out[MAX];
  for (int i = 0; i < r->n_in; i++) in[i] = r->in[i].type;
  for (int i = 0; i < r->n_out; i++) out[i] = r->out[i].type;
  while (kernel->run != NULL && kernel->engine != r->engine) kernel++;
  if (kernel->run == NULL) return false;
  memcpy(r->layout_in, r->at_hand, sizeof r->layout_in);
  if (kernel->choose != NULL || !kernel->any_layout) memset(r->layout_in, 0, sizeof r->layout_in);
  r->choice = (neap_choice){.engine = r->engine, .n_thread = r->n_thread, .in = r->layout_in, .out = r->layout_out};
  if (kernel->choose == NULL && kernel->any_layout)
    for (int i = 0; i < r->n_out; i++) r->layout_out[i] = r->layout_in[0];
  neap_choose c = {.op = r->op, .attrs = r->attrs, .n_in = r->n_in, .n_out = r->n_out, .in = in, .out = out, .in_layout = r->at_hand,
                   .train = true, .pair = r->pair, .scratch_limit = SIZE_MAX, .choice = &r->choice};
  if (kernel->choose != NULL && !kernel->choose(&c)) return false;

  neap_bind bind = {.op = r->op, .attrs = r->attrs, .n_in = r->n_in, .n_out = r->n_out, .in = in, .out = out, .choice = &r->choice};
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
    op_out[i] = (neap_operand){buffer_of(&out[i], &r->layout_out[i], is_stash(neap_op_output(r->op, i)) ? r->choice.stash_bytes : 0),
                               out[i], r->layout_out[i]};
  void *scratch = aligned_alloc(64, neap_align(r->choice.scratch_bytes) + 64);
  memset(scratch, 0xff, neap_align(r->choice.scratch_bytes) + 64);
  neap_call call = {.op = r->op, .attrs = r->attrs, .n_in = r->n_in, .n_out = r->n_out, .in = op_in, .out = op_out, .kernel = object,
                    .scratch = scratch, .choice = &r->choice, .n_thread = r->n_thread, .fault = &fault};
  for (int turn = 0; turn < 2; turn++) {
    for (int i = 0; i < r->n_out; i++)
      if (!is_stash(neap_op_output(r->op, i))) memset(op_out[i].data, 0xff, neap_layout_bytes(&out[i], &r->layout_out[i]));
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

/* Same operands and attributes under another engine; *took tells whether that engine has a kernel for it. */
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

/* ---- Conv ------------------------------------------------------------------------------------------------------------ */

typedef struct conv_case {
  int n;                /* spatial dimensions */
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

/* One loop for everything: visits each product of the convolution with the indices of x, w and y. */
static void visit(const conv_case *t, const neap_shape *y, void (*product)(void *context, int64_t x, int64_t w, int64_t y), void *context) {
  int64_t in[3] = {1, 1, 1}, out[3] = {1, 1, 1}, k[3] = {1, 1, 1}, s[3] = {1, 1, 1}, l[3] = {1, 1, 1}, p[3] = {0};
  for (int d = 0; d < t->n; d++) {
    int e = 3 - t->n + d;
    in[e] = t->x[2 + d], out[e] = y->dim[2 + d], k[e] = t->k[d], s[e] = t->stride[d], l[e] = t->dilation[d];
    p[e] = t->n_pad == 0 ? 0 : t->pad[d];
  }
  int64_t cg = t->x[1] / t->groups, og = t->o / t->groups, L = out[0] * out[1] * out[2], K = k[0] * k[1] * k[2];
  for (int64_t n = 0; n < t->x[0]; n++)
    for (int64_t o = 0; o < t->o; o++)
      for (int64_t i = 0; i < L; i++)
        for (int64_t c = 0; c < cg; c++)
          for (int64_t q = 0; q < K; q++) {
            int64_t a = i / (out[1] * out[2]) * s[0] - p[0] + q / (k[1] * k[2]) * l[0];
            int64_t b = i / out[2] % out[1] * s[1] - p[1] + q / k[2] % k[1] * l[1];
            int64_t e = i % out[2] * s[2] - p[2] + q % k[2] * l[2];
            if (a < 0 || a >= in[0] || b < 0 || b >= in[1] || e < 0 || e >= in[2]) continue;
            product(context, (((n * t->x[1] + o / og * cg + c) * in[0] + a) * in[1] + b) * in[2] + e, (o * cg + c) * K + q, (n * t->o + o) * L + i);
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
  run f = new_run("Conv", NEAP_ENGINE_REF), gx = new_run("ConvGradInput", NEAP_ENGINE_REF), gw = new_run("ConvGradWeight", NEAP_ENGINE_REF);
  value x = new_value(dtype, neap_shape_of(t->n + 2, t->x)), w = new_value(dtype, weight_shape(t)), b = new_value(dtype, NEAP_SHAPE(t->o));
  set_window(&f, t);
  f.n_in = 3, f.n_out = 1, f.in[0] = x, f.in[1] = w, f.in[2] = b;
  CHECK_OK(infer(&f, &error));
  CHECK(perform(&f));
  value dy = new_value(dtype, f.out[0].type.shape);
  sums s = {&x, &w, &dy, NULL, NULL, NULL};
  value y = like(&f.out[0], &s.y), dx = like(&x, &s.dx), dw = like(&w, &s.dw), db = new_value(NEAP_DTYPE_F64, NEAP_SHAPE(t->o));
  visit(t, &y.type.shape, add_product, &s);
  int64_t l = neap_shape_span(&y.type.shape, 2, y.type.shape.n_dim), n_y = neap_shape_elems(&y.type.shape);
  memset(db.data, 0, neap_type_bytes(&db.type));
  for (int64_t i = 0; i < n_y; i++) s.y[i] += get(&b, i / l % t->o), ((double *)db.data)[i / l % t->o] += get(&dy, i);
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
#if NEAP_WITH_DNNL
  for (int k = 0; k < 3; k++) CHECK(took[k][NEAP_ENGINE_DNNL] >= NEAP_COUNT(conv_cases) / 2);
#endif
}

TEST(conv_in_f64_agrees_with_naive_loops) {
  int took[3][NEAP_N_ENGINE] = {{0}};
  for (int i = 0; i < NEAP_COUNT(conv_cases); i += 2) check_conv(&conv_cases[i], NEAP_DTYPE_F64, took);
}

TEST(conv_says_what_does_not_fit) {
  run r = new_run("Conv", NEAP_ENGINE_REF);
  r.n_in = 2, r.n_out = 1;
  r.in[0].type = (neap_type){NEAP_DTYPE_F32, NEAP_SHAPE(8, 16, 28, 28)};
  r.in[1].type = (neap_type){NEAP_DTYPE_F32, NEAP_SHAPE(64, 32, 3, 3)};
  CHECK_FAILS(infer(&r, &error), NEAP_SHAPE, "weight (64,32,3,3) expects 32 input channels, got x (8,16,28,28)");
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

int main(int argc, char **argv) {
  return RUN(argc, argv, T(conv_engines_agree_with_naive_loops), T(conv_in_f64_agrees_with_naive_loops), T(conv_says_what_does_not_fit));
}
