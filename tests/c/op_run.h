/* op_run.h: one op chosen, bound and run on any engine: what tests of single ops begin with. */
#ifndef NEAP_TESTS_OP_RUN_H
#define NEAP_TESTS_OP_RUN_H

#include "check.h"
#include "math/vec.h"
#include "ops/op.h"
#include <stdlib.h>

enum { MAX_BUFFER = 4096 };
static void *buffers[MAX_BUFFER];
static int n_buffer;

static inline void *buffer(size_t bytes) {
  void *block = aligned_alloc(64, (bytes + 127) / 64 * 64);
  memset(block, 0xff, (bytes + 127) / 64 * 64); /* NaN where nothing is written */
  return n_buffer < MAX_BUFFER ? buffers[n_buffer++] = block : NULL;
}

static inline void release_all(void) {
  while (n_buffer > 0) free(buffers[--n_buffer]);
}

static uint32_t state = 1;
static inline double uniform(void) { /* in [-1,1) */
  state = state * 1664525u + 1013904223u;
  return (double)(state >> 8) / 8388608.0 - 1.0;
}

#define SHAPE(...) NEAP_SHAPE(__VA_ARGS__)
static const neap_shape scalar;

static inline neap_operand tensor(neap_dtype dtype, neap_shape shape) {
  neap_operand x = {.type = {dtype, shape}};
  x.data = buffer(neap_type_bytes(&x.type));
  for (int64_t i = 0; i < neap_shape_elems(&shape); i++)
    if (neap_dtype_is_float(dtype))
      neap_element_set(dtype, x.data, i, uniform());
    else
      neap_element_set_i64(dtype, x.data, i, i % 100);
  return x;
}

static inline double get(const neap_operand *x, int64_t i) {
  return neap_element_get(x->type.dtype, x->data, i);
}
static inline int64_t elems(const neap_operand *x) { return neap_shape_elems(&x->type.shape); }

/* Whether this build has oneDNN. */
static inline bool has_dnnl(void) { return neap_engine_at(NEAP_ENGINE_DNNL)->missing() == NULL; }

typedef struct op_call {
  const neap_op *op;
  neap_attr_value attrs[NEAP_OP_MAX_ATTR];
  int n_in, n_out;
  neap_operand in[8], out[8];
  neap_engine engine;
  int n_thread;
  neap_fault fault;
} op_call;

static inline op_call new_call(const char *name, int n_in, int n_out) {
  op_call c = {.op = neap_op_find(name),
               .n_in = n_in,
               .n_out = n_out,
               .engine = NEAP_ENGINE_REF,
               .n_thread = 2};
  for (int i = 0; i < neap_op_n_attrs(c.op); i++) c.attrs[i] = c.op->attrs[i].value;
  return c;
}

static inline neap_attr_value *attr(op_call *c, const char *name) {
  neap_attr_value *a = &c->attrs[neap_op_attr_index(c->op, name)];
  a->given = true;
  return a;
}
static inline void set_int(op_call *c, const char *name, int64_t x) { attr(c, name)->i = x; }
static inline void set_float(op_call *c, const char *name, double x) { attr(c, name)->f = x; }
#define SET_INTS(c, name, ...)                                                    \
  do {                                                                            \
    neap_attr_value *set_a = attr(c, name);                                       \
    set_a->n = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t));         \
    int64_t *set_copy = buffer(sizeof((int64_t[]){__VA_ARGS__}));                 \
    memcpy(set_copy, (int64_t[]){__VA_ARGS__}, sizeof((int64_t[]){__VA_ARGS__})); \
    set_a->ints = set_copy;                                                       \
  } while (0)
static inline void set_shape(op_call *c, const neap_shape *shape) {
  neap_attr_value *a = attr(c, "shape");
  int64_t *copy = buffer(sizeof shape->dim);
  memcpy(copy, shape->dim, sizeof shape->dim);
  a->n = shape->n_dim, a->ints = copy;
}

static inline neap_status infer(op_call *c, neap_error *error) {
  neap_type in[8] = {0}, out[8] = {0};
  for (int i = 0; i < c->n_in; i++) in[i] = c->in[i].type;
  neap_infer infer = {
    .op = c->op, .attrs = c->attrs, .n_in = c->n_in, .n_out = c->n_out, .in = in, .out = out};
  NEAP_TRY(c->op->infer(&infer, error));
  for (int k = 0; k < c->n_out; k++) {
    c->out[k].type = out[k];
    if (c->out[k].data == NULL)
      c->out[k].data = buffer(neap_layout_bytes(&out[k], &c->out[k].layout));
  }
  return NEAP_OK;
}

/* Runs the kernel of the call's engine. */
static inline void run_kernel(op_call *c) {
  neap_layout in_layout[8] = {0}, out_layout[8] = {0};
  neap_type in[8] = {0}, out[8] = {0};
  neap_choice choice = {
    .engine = c->engine, .n_thread = c->n_thread, .in = in_layout, .out = out_layout};
  for (int i = 0; i < c->n_in; i++) in[i] = c->in[i].type;
  for (int k = 0; k < c->n_out; k++) out[k] = c->out[k].type;
  for (const neap_kernel *k = c->op->kernels; k->run != NULL; k++) {
    /* The engine's first kernel that is there is the one; what it can't take is a failure of the
     * test. */
    if (k->engine != c->engine) continue;
    neap_choose choose = {.op = c->op,
                          .attrs = c->attrs,
                          .n_in = c->n_in,
                          .n_out = c->n_out,
                          .in = in,
                          .out = out,
                          .in_layout = in_layout,
                          .scratch_limit = SIZE_MAX,
                          .choice = &choice};
    if (k->choose != NULL) CHECK(k->choose(&choose));
    neap_call call = {.op = c->op,
                      .attrs = c->attrs,
                      .n_in = c->n_in,
                      .n_out = c->n_out,
                      .in = c->in,
                      .out = c->out,
                      .choice = &choice,
                      .n_thread = c->n_thread,
                      .fault = &c->fault};

    /* Behind the scratch a mark: a kernel takes no more than it has asked for. */
    call.scratch = buffer(choice.scratch_bytes);
    memset((char *)call.scratch + choice.scratch_bytes, 0x5a, 32);
    k->run(&call);
    for (int i = 0; i < 32; i++)
      CHECK(((unsigned char *)call.scratch)[choice.scratch_bytes + (size_t)i] == 0x5a);
    return;
  }
  CHECK(!"the engine has a kernel");
}

static inline void run_op(op_call *c) {
  CHECK_OK(infer(c, &error));
  run_kernel(c);
}

static inline bool same_bytes(const neap_operand *a, const neap_operand *b) {
  return neap_type_equal(&a->type, &b->type) &&
         memcmp(a->data, b->data, neap_type_bytes(&a->type)) == 0;
}

/* Largest difference, relative to the largest value of b. */
static inline double distance(const neap_operand *a, const neap_operand *b) {
  double most = 1e-30, far = 0;
  if (!neap_type_equal(&a->type, &b->type)) return INFINITY;
  for (int64_t i = 0; i < elems(b); i++) {
    double d = fabs(get(a, i) - get(b, i));
    most = fmax(most, fabs(get(b, i)));
    far = d == d ? fmax(far, d) : INFINITY;
  }
  return far / most;
}

/* d sum(out0 dout) / d in[which] by central differences in f64 against `analytic`. */
static inline void check_gradient(const op_call *forward, int which, const neap_operand *dout,
                                  const neap_operand *analytic) {
  op_call c = *forward;
  double worst = 0;
  CHECK(neap_shape_equal(&analytic->type.shape, &forward->in[which].type.shape));
  for (int64_t i = 0; i < elems(&c.in[which]); i++) {
    double *x = (double *)c.in[which].data + i, keep = *x, side[2];
    for (int s = 0; s < 2; s++) {
      *x = keep + (s == 0 ? 1e-5 : -1e-5);
      run_kernel(&c);
      side[s] = 0;
      for (int64_t j = 0; j < elems(dout); j++) side[s] += get(&c.out[0], j) * get(dout, j);
    }
    *x = keep;
    double d = fabs((side[0] - side[1]) / 2e-5 - get(analytic, i));
    worst = d == d ? fmax(worst, d) : INFINITY;
  }
  run_kernel(&c);
  CHECK_NEAR(worst, 0, 1e-7);
}

/* Index of element i of a dense tensor. */
static inline void unravel(const neap_shape *shape, int64_t i, int64_t index[NEAP_MAX_DIM]) {
  for (int d = shape->n_dim - 1; d >= 0; d--) index[d] = i % shape->dim[d], i /= shape->dim[d];
}
static inline int64_t ravel(const neap_shape *shape, const int64_t *index) {
  int64_t at = 0;
  for (int d = 0; d < shape->n_dim; d++) at = at * shape->dim[d] + index[d];
  return at;
}

#endif
