/* op_call.h: one kernel run from its record, by hand: op_begin, op_in, op_attr, op_run, op_end. */
#ifndef NEAP_TESTS_OP_CALL_H
#define NEAP_TESTS_OP_CALL_H

#include "check.h"
#include "ops/op.h"

#include <stdlib.h>

typedef struct call_kit {
  const neap_op *op;
  neap_attr_value attrs[NEAP_OP_MAX_ATTR];
  neap_operand in[NEAP_OP_MAX_IN], out[NEAP_OP_MAX_OUT];
  int n_in, n_out, n_thread;
  uint32_t stream, step;
  neap_fault fault;
  int inplace_in, inplace_out; /* in < 0: none */
  neap_error error;
} call_kit;

static inline call_kit op_begin(const char *name) {
  call_kit k = {.op = neap_op_find(name), .n_out = 1, .n_thread = 1, .inplace_in = -1};
  if (k.op == NULL) printf("  no op %s\n", name), exit(1);
  for (int i = 0; i < neap_op_n_attrs(k.op); i++) k.attrs[i] = k.op->attrs[i].value;
  return k;
}

static inline neap_attr_value *op_attr(call_kit *k, const char *name) {
  int i = neap_op_attr_index(k->op, name);
  if (i < 0) printf("  no attribute %s\n", name), exit(1);
  k->attrs[i].given = true;
  return &k->attrs[i];
}

static inline void *op_in(call_kit *k, neap_dtype dtype, neap_shape shape) {
  neap_operand *in = &k->in[k->n_in++];
  in->type = (neap_type){dtype, shape};
  return in->data = neap_alloc_data(neap_type_bytes(&in->type) + 1);
}

static inline neap_status op_infer(call_kit *k, neap_type *out) {
  neap_type in[NEAP_OP_MAX_IN];
  memset(out, 0, sizeof *out * NEAP_OP_MAX_OUT);
  for (int i = 0; i < k->n_in; i++) in[i] = k->in[i].type;
  neap_infer infer = {
    .op = k->op, .attrs = k->attrs, .n_in = k->n_in, .n_out = k->n_out, .in = in, .out = out};
  neap_error_clear(&k->error);
  return k->op->infer(&infer, &k->error);
}

static inline const neap_kernel *ref_of(const neap_op *op) {
  const neap_kernel *kernel = op->kernels;
  while (kernel->engine != NEAP_ENGINE_REF) kernel++;
  return kernel;
}

/* Infers, makes the outputs (filled with 0x7f bytes), chooses and runs. In place where asked. */
static inline void op_run(call_kit *k) {
  neap_type out[NEAP_OP_MAX_OUT], in[NEAP_OP_MAX_IN];
  if (op_infer(k, out) != NEAP_OK) {
    printf("  %s: %s\n", k->op->name, k->error.message);
    check_failures++;
    exit(1);
  }

  /* An output in place shares its input's bytes. Each other one has a byte more, which tells
   * whether the kernel writes behind it. */
  for (int i = 0; i < k->n_in; i++) in[i] = k->in[i].type;
  for (int i = 0; i < k->n_out; i++) {
    k->out[i].type = out[i];
    if (k->inplace_in >= 0 && k->inplace_out == i) {
      k->out[i].data = k->in[k->inplace_in].data;
      continue;
    }
    k->out[i].data = neap_alloc_data(neap_type_bytes(&out[i]) + 1);
    memset(k->out[i].data, 0x7f, neap_type_bytes(&out[i]) + 1);
  }

  /* Chosen as the driver does, but always the engine that the others are compared with. */
  const neap_kernel *kernel = ref_of(k->op);
  neap_layout layout_in[NEAP_OP_MAX_IN] = {{0}}, layout_out[NEAP_OP_MAX_OUT] = {{0}};
  neap_choice choice = {
    .engine = NEAP_ENGINE_REF, .n_thread = k->n_thread, .in = layout_in, .out = layout_out};
  neap_choose choose = {.op = k->op,
                        .attrs = k->attrs,
                        .n_in = k->n_in,
                        .n_out = k->n_out,
                        .in = in,
                        .out = out,
                        .in_layout = layout_in,
                        .train = true,
                        .scratch_limit = SIZE_MAX,
                        .choice = &choice};
  if (kernel->choose != NULL) CHECK(kernel->choose(&choose));

  void *scratch = neap_alloc_data(choice.scratch_bytes + 1);
  neap_call call = {.op = k->op,
                    .attrs = k->attrs,
                    .n_in = k->n_in,
                    .n_out = k->n_out,
                    .in = k->in,
                    .out = k->out,
                    .scratch = scratch,
                    .choice = &choice,
                    .n_thread = k->n_thread,
                    .seed = 42,
                    .stream = k->stream,
                    .step = k->step,
                    .fault = &k->fault};
  kernel->run(&call);
  neap_free(scratch);
  for (int i = 0; i < k->n_out; i++) /* the byte behind each output is untouched */
    if (k->inplace_in < 0) CHECK(((char *)k->out[i].data)[neap_type_bytes(&out[i])] == 0x7f);
}

static inline void op_end(call_kit *k) {
  for (int i = 0; i < k->n_out; i++)
    if (k->inplace_in < 0 || k->inplace_out != i) neap_free(k->out[i].data);
  for (int i = 0; i < k->n_in; i++) neap_free(k->in[i].data);
}

static inline int64_t op_elems(const neap_operand *o) { return neap_shape_elems(&o->type.shape); }
static inline double op_get(const neap_operand *o, int64_t i) {
  return neap_element_get(o->type.dtype, o->data, i);
}

/* Numbers in [low, high), the same in each run; half of them multiples of 1/4, so that ties and
 * bounds occur. */
static inline void fill(neap_operand *o, double low, double high, uint32_t stream) {
  for (int64_t i = 0; i < op_elems(o); i++) {
    uint32_t word[4];
    neap_philox(7, stream, 0, (uint64_t)i, word);
    double x = low + (high - low) * (double)word[0] * 0x1p-32;
    if ((word[1] & 1) != 0) x = floor(x * 4) / 4;
    neap_element_set(o->type.dtype, o->data, i, x < low ? low : x);
  }
}

static inline bool near(double got, double want, double tolerance) {
  if (isnan(want)) return isnan(got);
  if (isinf(want) || isinf(got)) return got == want;
  return fabs(got - want) <= tolerance * (1 + fabs(want));
}

#define CHECK_LIKE(got, want, tolerance, what, i)                                      \
  do {                                                                                 \
    double like_got = (got), like_want = (want);                                       \
    if (!near(like_got, like_want, tolerance)) {                                       \
      printf("  %s:%d: %s at %lld is %.9g, expected %.9g\n", __FILE__, __LINE__, what, \
             (long long)(i), like_got, like_want);                                     \
      check_failures++;                                                                \
    }                                                                                  \
  } while (0)

static inline double tolerance_of(neap_dtype dtype) {
  return dtype == NEAP_DTYPE_F64 ? 1e-12 : 2e-6;
}

/* Runs the kit's op again in place for each allowed pair and compares bits with what it gave out of
 * place. */
static inline void check_inplace(const call_kit *done) {
  for (int p = 0; p < done->op->n_inplace; p++) {
    neap_pair pair = done->op->inplace[p];
    if (!neap_type_equal(&done->in[pair.in].type, &done->out[pair.out].type)) continue;

    /* New copies of the inputs: the run before may have left only these. */
    call_kit k = *done;
    k.n_in = 0;
    for (int i = 0; i < done->n_in; i++)
      memcpy(op_in(&k, done->in[i].type.dtype, done->in[i].type.shape), done->in[i].data,
             neap_type_bytes(&done->in[i].type));
    k.inplace_in = pair.in;
    k.inplace_out = pair.out;
    op_run(&k);

    for (int o = 0; o < k.n_out; o++) {
      bool same = memcmp(k.out[o].data, done->out[o].data, neap_type_bytes(&k.out[o].type)) == 0;
      if (!same)
        printf("  %s in place (%d,%d) differs\n", k.op->name, pair.in, pair.out), check_failures++;
    }
    op_end(&k);
  }
}

#endif
