/* by_cast.c: the plain kernel of an op for bf16 and f16 where it has no tiles of its own: operands
 * are widened whole into the scratch, the op's kernel for f32 runs on them, and what it wrote is
 * rounded once. It costs the bytes of f32 while the op runs, which the plan counts.
 *
 * INVARIANT: an operand that is input and output at once has one twin, so that what is not written
 * stays as it was.
 */
#include "ops/by_cast.h"

#include "ops/tile.h"

#include <string.h>

enum { MOST = NEAP_OP_MAX_IN + NEAP_OP_MAX_OUT };

/* The ref kernel for f32; the same for every case, as a record has one. */
static const neap_kernel *kernel_of(const neap_op *op) {
  const neap_kernel *k = op->kernels;
  while (k->engine != NEAP_ENGINE_REF) k++;
  return k;
}

static neap_type widened(const neap_type *type) {
  neap_type wide = *type;
  wide.dtype = neap_compute_dtype(type->dtype);
  return wide;
}

/* Bytes of the twin of an operand, at a multiple of NEAP_ALIGN. */
static size_t twin_bytes(const neap_type *type) {
  neap_type wide = widened(type);
  return neap_is_half(type->dtype) ? neap_align(neap_type_bytes(&wide)) : 0;
}

bool neap_by_cast_choose(neap_choose *c) {
  const neap_kernel *kernel = kernel_of(c->op);
  neap_type type[MOST];
  size_t bytes = 0;
  if (c->n_in + c->n_out > MOST) return false;
  for (int i = 0; i < c->n_in + c->n_out; i++) {
    const neap_type *own = i < c->n_in ? &c->in[i] : &c->out[i - c->n_in];
    type[i] = widened(own);
    bytes = neap_size_add(bytes, twin_bytes(own));
  }
  /* The kernel is asked as if all were f32; what it chooses of layouts and scratch is for the
   * twins. A choice to follow has the twins' bytes in its scratch. */
  neap_choose inner = *c;
  inner.in = type, inner.out = type + c->n_in;
  inner.like = NULL;
  if (!neap_kernel_choose(kernel, &inner)) return false;
  c->choice->scratch_bytes = neap_size_add(neap_align(c->choice->scratch_bytes), bytes);
  return true;
}

typedef struct cast_job {
  const neap_operand *from, *to;
} cast_job;

static void cast_range(void *context, int64_t begin, int64_t end) {
  const cast_job *j = context;
  neap_cast(j->to->type.dtype, neap_element_at(j->to, begin), j->from->type.dtype,
            neap_element_at(j->from, begin), end - begin);
}

static void cast(const neap_call *call, const neap_operand *from, const neap_operand *to) {
  cast_job j = {from, to};
  neap_parallel_for(neap_shape_elems(&from->type.shape), NEAP_GRAIN, call->n_thread, cast_range,
                    &j);
}

/* The twins lie behind the kernel's own scratch, in the order of the operands. */
void neap_by_cast_run(const neap_call *call) {
  neap_operand wide[MOST];
  neap_call inner = *call;
  size_t twins = 0;
  for (int i = 0; i < call->n_in; i++) twins += twin_bytes(&call->in[i].type);
  for (int k = 0; k < call->n_out; k++) twins += twin_bytes(&call->out[k].type);
  /* The kernel's own scratch comes first, as long as it asked for. */
  char *twin = neap_call_scratch(call, call->choice->scratch_bytes - twins);
  for (int i = 0; i < call->n_in + call->n_out; i++) {
    const neap_operand *own = i < call->n_in ? &call->in[i] : &call->out[i - call->n_in];
    wide[i] = *own;
    wide[i].type = widened(&own->type);
    if (own->data == NULL || !neap_is_half(own->type.dtype)) continue;
    wide[i].data = twin;
    if (twin != NULL) twin += twin_bytes(&own->type); /* NULL: all are empty */
    if (i < call->n_in) {
      cast(call, own, &wide[i]);
      continue;
    }
    /* An output in an input's bytes is made in that input's twin: the kernel works in place. */
    for (int k = 0; k < call->n_in; k++)
      if (call->in[k].data == own->data) wide[i].data = wide[k].data;
  }
  neap_choice choice = *call->choice; /* the kernel's own scratch ends where the twins begin */
  choice.scratch_bytes -= twins;
  inner.in = wide, inner.out = wide + call->n_in, inner.choice = &choice;
  neap_kernel_run(kernel_of(call->op), &inner);
  for (int k = 0; k < call->n_out; k++) /* Rounded once, from what the kernel made in f32. */
    if (call->out[k].data != NULL && neap_is_half(call->out[k].type.dtype))
      cast(call, &inner.out[k], &call->out[k]);
}
