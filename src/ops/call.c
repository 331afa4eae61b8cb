/* call.c: what every kernel relies on, checked where each is called (neap_kernel_run).
 *
 * INVARIANT: a kernel sees what its record and its choice say: operands of the dtypes that it
 * computes, in the layouts of the choice, at addresses fit for their elements; the scratch that it
 * asked for; and outputs that lie apart from each other, from the scratch, and from all inputs but
 * those whose bytes they may take.
 */
#include "ops/op.h"

/* Bytes that an operand covers; an absent one covers none. */
typedef struct stretch {
  const char *from, *to;
} stretch;

static stretch stretch_of(const neap_operand *operand) {
  const char *from = operand->data;
  if (from == NULL || operand->type.dtype == NEAP_DTYPE_NONE) return (stretch){0};
  return (stretch){from, from + neap_layout_bytes(&operand->type, &operand->layout)};
}

static bool meets(stretch a, stretch b) { return a.from < b.to && b.from < a.to; }

/* Whether the record lets output k lie in the bytes of input i. */
static bool is_pair(const neap_pair *pair, int n, int i, int k) {
  for (int p = 0; p < n; p++)
    if (pair[p].in == i && pair[p].out == k) return true;
  return false;
}
static bool may_share(const neap_op *op, int i, int k) {
  return (op->inplace_any_input && k == 0) || is_pair(op->inplace, op->n_inplace, i, k) ||
         is_pair(op->enforced, op->n_enforced, i, k) || is_pair(op->alias, op->n_alias, i, k);
}

/* Whether output k lies exactly where an input does whose bytes it may take. */
static bool is_shared(const neap_call *call, int k) {
  for (int i = 0; i < call->n_in; i++)
    if (call->in[i].data == call->out[k].data && may_share(call->op, i, k)) return true;
  return false;
}

static void check_operand(const neap_kernel *kernel, const neap_call *call, const char *side, int k,
                          const neap_arg *arg, const neap_operand *operand,
                          const neap_layout *chosen) {
  const char *op = call->op->name;
  const neap_dtype dtype = operand->type.dtype;
  NEAP_ASSERT(arg != NULL, "%s number %d is one that the record of %s has", side, k, op);
  if (arg == NULL || dtype == NEAP_DTYPE_NONE) return;

  NEAP_ASSERT(neap_kernel_computes(kernel, arg, dtype),
              "the kernel of %s by %s computes its %s \"%s\", which is %s", op,
              neap_engine_at(kernel->engine)->name, side, arg->name, neap_dtype_name(dtype));
  if (operand->data == NULL) return;
  NEAP_ASSERT((uintptr_t)operand->data % neap_dtype_bytes(dtype) == 0,
              "%s \"%s\" of %s begins where %s may lie, not at %p", side, arg->name, op,
              neap_dtype_name(dtype), operand->data);
  NEAP_ASSERT(neap_layout_equal(&operand->layout, chosen),
              "%s \"%s\" of %s has the layout of the choice", side, arg->name, op);
}

/* Output k lies apart from what it must not touch. */
static void check_apart(const neap_call *call, int k, stretch scratch) {
  const char *op = call->op->name;
  const stretch own = stretch_of(&call->out[k]);
  NEAP_ASSERT(!meets(own, scratch), "output %d of %s lies apart from its scratch", k, op);
  for (int other = 0; other < k; other++)
    NEAP_ASSERT(!meets(own, stretch_of(&call->out[other])), "outputs %d and %d of %s lie apart",
                other, k, op);
  if (is_shared(call, k)) return;
  for (int i = 0; i < call->n_in; i++)
    NEAP_ASSERT(!meets(own, stretch_of(&call->in[i])),
                "output %d of %s lies apart from input %d, whose bytes it may not take", k, op, i);
}

void neap_kernel_check(const neap_kernel *kernel, const neap_call *call) {
  const neap_op *op = call->op;
  const neap_choice *choice = call->choice;
  /* What the choice has promised: engine, threads, scratch and, operand by operand, dtype and
   * layout. */
  NEAP_ASSERT(choice->engine == kernel->engine, "%s runs by %s, whose choice it is, not by %s",
              op->name, neap_engine_at(choice->engine)->name, neap_engine_at(kernel->engine)->name);
  NEAP_ASSERT(1 <= call->n_thread && call->n_thread <= NEAP_MAX(choice->n_thread, 1),
              "%s runs on 1 to %d threads, not on %d", op->name, choice->n_thread, call->n_thread);
  NEAP_ASSERT(choice->scratch_bytes == 0 || call->scratch != NULL,
              "%s has the %zu bytes of scratch that it asked for", op->name, choice->scratch_bytes);
  NEAP_ASSERT(kernel->bind != NULL || call->kernel == NULL,
              "%s, which binds nothing, has no object", op->name);
  for (int i = 0; i < call->n_in; i++)
    check_operand(kernel, call, "input", i, neap_op_input(op, i), &call->in[i], &choice->in[i]);
  for (int k = 0; k < call->n_out; k++)
    check_operand(kernel, call, "output", k, neap_op_output(op, k), &call->out[k], &choice->out[k]);

  stretch scratch = {0};
  if (call->scratch != NULL)
    scratch = (stretch){call->scratch, (const char *)call->scratch + choice->scratch_bytes};
  for (int k = 0; k < call->n_out; k++) check_apart(call, k, scratch);
}
