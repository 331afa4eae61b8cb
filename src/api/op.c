/* op.c: op records for C programs, and for the binding, whose help, checks and tests are made of
 * them. */
#include "api/api.h"

const char *neap_op_name(const neap_op *op) { return op->name; }
const neap_attr *neap_op_attr_at(const neap_op *op, int index) { return &op->attrs[index]; }

int neap_op_n_results(const neap_op *op) {
  int n = 0;
  /* Optional outputs and stashes come last: the others must be there. */
  while (n < neap_op_n_outputs(op) &&
         (op->outputs[n].flags & (NEAP_ARG_OPTIONAL | NEAP_ARG_STASH)) == 0)
    n++;
  return n;
}

/* INVARIANT: no op has more kernels than a record has room for. */
static void list_kernels(const neap_op *op, neap_op_record *record) {
  for (const neap_kernel *k = op->kernels; k != NULL && k->run != NULL; k++) {
    NEAP_ASSERT(record->n_kernel < NEAP_MOST_KERNELS, "%s has more than %d kernels", op->name,
                NEAP_MOST_KERNELS);
    if (record->n_kernel == NEAP_MOST_KERNELS) return;
    record->kernel[record->n_kernel].engine = neap_engine_name(k->engine);
    record->kernel[record->n_kernel].infinity = neap_infinity_name(neap_op_infinity(op, k));
    record->kernel[record->n_kernel].dtypes = neap_kernel_dtypes(k);
    record->n_kernel++;
  }
}

neap_op_record neap_op_read(const neap_op *op) {
  static const neap_pair first[] = {{0, 0}}; /* any input may give its bytes: the first, say */
  const unsigned in_nets = NEAP_EFFECT_CONTROL | NEAP_EFFECT_PSEUDO | NEAP_EFFECT_RELEASE;
  neap_op_record record = {.name = op->name,
                           .summary = op->summary,
                           .math = op->math,
                           .example = op->example,
                           .source = op->source,
                           .cases = op->cases,
                           .long_cases = op->long_cases,
                           .special = op->special,
                           .nan = neap_nan_name(op->nan),
                           .infinity = neap_infinity_name(neap_op_infinity(op, NULL)),
                           .empty = neap_empty_name(neap_op_empty(op)),
                           .sum = neap_sum_name(op->sum),
                           .sum_error = neap_sum_error(op->sum),
                           .internal = op->internal,
                           .control = (op->effects & in_nets) != 0,
                           .pseudo = (op->effects & NEAP_EFFECT_PSEUDO) != 0,
                           .extent = (op->effects & NEAP_EFFECT_EXTENT) != 0,
                           .random = (op->effects & NEAP_EFFECT_RANDOM) != 0,
                           .gradient = neap_op_has_gradient(op),
                           .no_grad = op->no_grad,
                           .n_input = neap_op_n_inputs(op),
                           .n_output = neap_op_n_outputs(op),
                           .n_attr = neap_op_n_attrs(op),
                           .n_inplace = op->inplace_any_input ? 1 : op->n_inplace,
                           .n_enforced = op->n_enforced,
                           .input = op->inputs,
                           .output = op->outputs,
                           .attr = op->attrs,
                           .inplace = op->inplace_any_input ? first : op->inplace,
                           .enforced = op->enforced};

  /* Texts and lists above are borrowed from the op's record; kernels are told as plain words. */
  list_kernels(op, &record);
  return record;
}

neap_status neap_op_help(const neap_op *op, char **out, neap_error *error) {
  neap_buffer text = {0};
  *out = NULL;
  neap_op_print(op, &text);
  return neap_api_give_text(&text, out, error);
}
