/* record.c: what the record of an op says: its operands, attributes and subnets by position and by
 * name; and the fault of a call, which kernels of all ops tell in the same way.
 *
 * INVARIANT: records are constant and all their lists end by themselves: inputs and outputs at a
 * NULL name, attributes at type NONE, kernels at one without run. So nobody counts by hand what the
 * compiler could count wrongly.
 * INVARIANT: nothing here knows which ops there are: whoever has a record may ask.
 */
#include "ops/op.h"

#include <string.h>

bool neap_op_has_gradient(const neap_op *op) {
  return op->grad != NULL || op->grad_formula != NULL || op->formula != NULL || op->no_grad;
}

int neap_op_n_inputs(const neap_op *op) {
  int n = 0;
  while (n < NEAP_OP_MAX_IN && op->inputs[n].name != NULL) n++;
  return n;
}

int neap_op_n_outputs(const neap_op *op) {
  int n = 0;
  while (n < NEAP_OP_MAX_OUT && op->outputs[n].name != NULL) n++;
  return n;
}

int neap_op_n_attrs(const neap_op *op) {
  int n = 0;
  while (n < NEAP_OP_MAX_ATTR && op->attrs[n].type != NEAP_ATTR_NONE) n++;
  return n;
}

/* -1 when the record has no attribute of this name. Records have a handful: a walk beats
 * an index. */
int neap_op_attr_index(const neap_op *op, const char *name) {
  for (int i = 0; i < neap_op_n_attrs(op); i++)
    if (strcmp(op->attrs[i].name, name) == 0) return i;
  return -1;
}

/* Attribute of the op's subnet number `subnet`, in the record's order; -1: it has fewer. */
int neap_op_subnet_attr(const neap_op *op, int subnet) {
  for (int i = 0; i < neap_op_n_attrs(op); i++)
    if (op->attrs[i].type == NEAP_ATTR_NET && subnet-- == 0) return i;
  return -1;
}

/* The argument at a position of the call: past the end it is the last one declared, if that is
 * variadic, else NULL. */
static const neap_arg *arg_at(const neap_arg *args, int n, int position) {
  if (position >= 0 && position < n) return &args[position];
  return position >= n && n > 0 && (args[n - 1].flags & NEAP_ARG_VARIADIC) != 0 ? &args[n - 1]
                                                                                : NULL;
}

const neap_arg *neap_op_input(const neap_op *op, int position) {
  return arg_at(op->inputs, neap_op_n_inputs(op), position);
}
const neap_arg *neap_op_output(const neap_op *op, int position) {
  return arg_at(op->outputs, neap_op_n_outputs(op), position);
}

/* Kernels call it from many threads: whoever sets the flag first writes the message, alone. */
void neap_call_fault(const neap_call *call, const char *format, ...) {
  /* Later ones are lost: one fault stops the run. */
  if (__atomic_test_and_set(&call->fault->set, __ATOMIC_ACQ_REL)) return;
  va_list args;
  va_start(args, format);
  neap_format_list(call->fault->message, sizeof call->fault->message, format, args);
  va_end(args);
}
