/* conv_run.h: values and runs of one convolution, pool, norm or product on each engine. */
#ifndef NEAP_TESTS_CONV_RUN_H
#define NEAP_TESTS_CONV_RUN_H

#include "check.h"
#include "lane.h"
#include "ops/window.h"
#include <stdlib.h>

typedef struct value {
  neap_type type;
  void *data; /* dense, plain; or stash bytes */
} value;

static uint64_t seed = 1;

static inline double draw(void) { /* in [-1, 1) */
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return (double)(int64_t)(seed >> 11) / 4503599627370496.0 - 1.0;
}

static inline value new_value(neap_dtype dtype, neap_shape shape) {
  value v = {{dtype, shape}, NULL};
  int64_t n = neap_shape_elems(&shape);
  v.data = calloc((size_t)n + 1, neap_dtype_bytes(dtype));
  for (int64_t i = 0; i < n; i++) neap_element_set(dtype, v.data, i, draw());
  return v;
}

static inline double get(const value *v, int64_t i) {
  return neap_element_get(v->type.dtype, v->data, i);
}

static inline void *buffer_of(const neap_type *type, const neap_layout *layout,
                              size_t stash_bytes) {
  size_t bytes = stash_bytes != 0 ? stash_bytes : neap_layout_bytes(type, layout);
  return aligned_alloc(64, neap_align(bytes) + 64);
}

static inline void pack(const value *v, const neap_layout *layout, void *to) {
  memset(to, 0, neap_layout_bytes(&v->type, layout));
  for (int64_t i = 0; i < neap_shape_elems(&v->type.shape); i++)
    neap_element_set(v->type.dtype, to, lane(&v->type, layout, i), get(v, i));
}

/* Back to plain; every lane that holds no element must be zero. */
static inline void unpack(const void *from, const neap_layout *layout, value *v) {
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
static inline bool has_dnnl(void) { return neap_engine_at(NEAP_ENGINE_DNNL)->missing() == NULL; }

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

static inline run new_run(const char *op, neap_engine engine) {
  run r = {.op = neap_op_find(op), .engine = engine, .n_thread = 2};
  for (int i = 0; i < neap_op_n_attrs(r.op); i++) r.attrs[i] = r.op->attrs[i].value;
  return r;
}

static inline void set_ints(run *r, const char *name, int n, const int64_t *list) {
  int i = neap_op_attr_index(r->op, name);
  CHECK(i >= 0);
  r->attrs[i] = (neap_attr_value){.given = true, .n = n, .ints = list};
}

static inline void set_int(run *r, const char *name, int64_t x) {
  int i = neap_op_attr_index(r->op, name);
  CHECK(i >= 0);
  r->attrs[i].i = x;
}

static inline bool is_stash(const neap_arg *arg) {
  return arg != NULL && (arg->flags & NEAP_ARG_STASH) != 0;
}

/* Infers the outputs; data comes with perform. */
static inline neap_status infer(run *r, neap_error *error) {
  neap_type in[MAX] = {{0}}, out[MAX] = {{0}};
  for (int i = 0; i < r->n_in; i++) in[i] = r->in[i].type;
  neap_infer c = {
    .op = r->op, .attrs = r->attrs, .n_in = r->n_in, .n_out = r->n_out, .in = in, .out = out};
  NEAP_TRY(r->op->infer(&c, error));
  for (int i = 0; i < r->n_out; i++)
    r->out[i] = (value){out[i], calloc(1, neap_type_bytes(&out[i]) + 8)};
  return NEAP_OK;
}

static inline const neap_kernel *kernel_of(const run *r) {
  const neap_kernel *kernel = r->op->kernels;
  while (kernel->run != NULL && kernel->engine != r->engine) kernel++;
  return kernel->run != NULL ? kernel : NULL;
}

/* Layouts, scratch and stash, into the run's choice. False: the kernel does not take the case. */
static inline bool choose_with(run *r, const neap_kernel *kernel, const neap_type *in,
                               const neap_type *out) {
  /* What takes any layout, and chooses none, takes what is at hand, and gives the same. Others
   * begin with plain ones. */
  bool is_any = kernel->choose == NULL && kernel->any_layout;
  memset(r->layout_in, 0, sizeof r->layout_in);
  if (is_any) memcpy(r->layout_in, r->at_hand, sizeof r->layout_in);
  for (int i = 0; i < r->n_out && is_any; i++) r->layout_out[i] = r->layout_in[0];

  r->choice = (neap_choice){
    .engine = r->engine, .n_thread = r->n_thread, .in = r->layout_in, .out = r->layout_out};
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
  return neap_kernel_choose(kernel, &c);
}

/* An input in the layout that was chosen. A stash is passed as it is; an operand that is left out
 * has no bytes. */
static inline neap_operand input_of(const run *r, int i) {
  const value *v = &r->in[i];
  neap_operand x = {NULL, v->type, r->layout_in[i]};
  if (v->type.dtype == NEAP_DTYPE_NONE) return x;
  if (v->type.dtype == NEAP_DTYPE_U8) {
    x.data = v->data;
    return x;
  }

  x.data = buffer_of(&v->type, &r->layout_in[i], 0);
  pack(v, &r->layout_in[i], x.data);
  return x;
}

/* What the kernel wrote becomes the run's, plain; a stash as it is. */
static inline void take_output(run *r, int i, const neap_operand *from) {
  if (!is_stash(neap_op_output(r->op, i))) {
    unpack(from->data, &r->layout_out[i], &r->out[i]);
    free(from->data);
    return;
  }
  free(r->out[i].data);
  r->out[i].data = from->data;
}

/* Chooses, binds, runs twice over poisoned outputs. False: the engine does not take the case. */
static inline bool perform(run *r) {
  neap_type in[MAX], out[MAX];
  for (int i = 0; i < r->n_in; i++) in[i] = r->in[i].type;
  for (int i = 0; i < r->n_out; i++) out[i] = r->out[i].type;
  const neap_kernel *kernel = kernel_of(r);
  if (kernel == NULL || !choose_with(r, kernel, in, out)) return false;

  neap_bind bind = {.op = r->op,
                    .attrs = r->attrs,
                    .n_in = r->n_in,
                    .n_out = r->n_out,
                    .in = in,
                    .out = out,
                    .choice = &r->choice};
  void *object = NULL;
  if (kernel->bind != NULL) CHECK_OK(kernel->bind(&bind, &object, &error));

  /* Outputs may be longer than their elements: blocks that are not full, and stashes. */
  neap_operand op_in[MAX] = {{0}}, op_out[MAX] = {{0}};
  for (int i = 0; i < r->n_in; i++) op_in[i] = input_of(r, i);
  for (int i = 0; i < r->n_out; i++) {
    size_t stash_bytes = is_stash(neap_op_output(r->op, i)) ? r->choice.stash_bytes : 0;
    op_out[i] =
      (neap_operand){buffer_of(&out[i], &r->layout_out[i], stash_bytes), out[i], r->layout_out[i]};
  }

  /* Scratch holds NaN, so that what a kernel reads before it writes shows. */
  void *scratch = aligned_alloc(64, neap_align(r->choice.scratch_bytes) + 64);
  memset(scratch, 0xff, neap_align(r->choice.scratch_bytes) + 64);
  neap_fault fault = {0};
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

  /* Twice: the second run finds the scratch as the first has left it. */
  for (int turn = 0; turn < 2; turn++) {
    for (int i = 0; i < r->n_out; i++)
      if (!is_stash(neap_op_output(r->op, i)))
        memset(op_out[i].data, 0xff, neap_layout_bytes(&out[i], &r->layout_out[i]));
    kernel->run(&call);
  }

  for (int i = 0; i < r->n_out; i++) take_output(r, i, &op_out[i]);
  for (int i = 0; i < r->n_in; i++)
    if (op_in[i].data != r->in[i].data) free(op_in[i].data);
  free(scratch);
  if (kernel->unbind != NULL) kernel->unbind(object);
  return true;
}

/* Largest difference relative to the largest expected value (at least 1e-6). */
static inline double distance(const value *got, const value *want) {
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

static inline void free_outs(run *r) {
  for (int i = 0; i < r->n_out; i++) free(r->out[i].data);
}

/* Same operands and attributes under another engine; *took tells whether that engine has a kernel
 * for it. */
static inline void check_engine(const run *ref, neap_engine engine, double tolerance, int *took) {
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

typedef struct conv_case {
  int n;                 /* spatial dimensions */
  int64_t x[5], o, k[3]; /* x (N,C,...), output channels, window */
  int64_t stride[3], dilation[3];
  int n_pad;
  int64_t pad[6], groups;
} conv_case;

static inline void set_window(run *r, const conv_case *t) {
  set_ints(r, "stride", t->n, t->stride);
  set_ints(r, "dilation", t->n, t->dilation);
  set_ints(r, "pad", t->n_pad, t->pad);
  if (neap_op_attr_index(r->op, "groups") >= 0) set_int(r, "groups", t->groups);
}

static inline value like(const value *v, double **data) { /* an f64 value of the same shape, zero */
  value out = new_value(NEAP_DTYPE_F64, v->type.shape);
  memset(out.data, 0, neap_type_bytes(&out.type));
  *data = out.data;
  return out;
}

#endif
