/* ops: the op record. One op is one record in one file; all that Neap knows about it stands there.
 * How a record is written, and what its functions get, is part of the contract: neap/record.h, by
 * which plugins are written too. Here is what the rooms read of records, and what only Neap's own
 * ops use.
 */
#ifndef NEAP_OP_H
#define NEAP_OP_H

#include "math/engine.h"

/* Elements with padding lanes: what an elementwise kernel of any layout walks over. */
static inline int64_t neap_operand_lanes(const neap_operand *operand) {
  return (int64_t)(neap_layout_bytes(&operand->type, &operand->layout) /
                   neap_dtype_bytes(operand->type.dtype));
}

/* ---- gradients as text (formula.c) ---- */

/* By a text such as the record's `grad_formula`: sets grad->din. INTERNAL error where the text
 * makes no sense. */
neap_status neap_formula_gradient(neap_grad *grad, const char *text, neap_error *error);
/* By the record's `formula`: out[k] computes what output k is, NEAP_NO_VALUE where it says
 * nothing of it. dout, want and din are not looked at. */
neap_status neap_formula_outputs(neap_grad *grad, neap_value_id *out, neap_error *error);

/* ---- records (record.c) and their kernels (kernels.c); which ops there are: registry.c ------- */

bool neap_op_has_gradient(const neap_op *op); /* or it is nothing */
int neap_op_n_inputs(const neap_op *op);      /* declared */
int neap_op_n_outputs(const neap_op *op);
/* the attribute that holds subnet 0, 1, ..; -1 when there is none */
int neap_op_subnet_attr(const neap_op *op, int subnet);
/* variadic lists repeat their last */
const neap_arg *neap_op_input(const neap_op *op, int position);
const neap_arg *neap_op_output(const neap_op *op, int position);
/* Whether the kernel computes an operand of this dtype in the place of `arg` (NULL: any). Operands
 * that are no floats in any call (labels, masks, a stash) are the record's affair alone. */
bool neap_kernel_computes(const neap_kernel *kernel, const neap_arg *arg, neap_dtype dtype);
/* The floats that it computes, of those that its engine has, and what it widens. */
unsigned neap_kernel_dtypes(const neap_kernel *kernel);
/* All operands of a call; dtype NONE where absent or unknown. */
bool neap_kernel_computes_all(const neap_kernel *kernel, const neap_op *op, int n_in,
                              const neap_type *in, int n_out, const neap_type *out);
/* The kernel of an engine for these operands; NULL when there is none. */
const neap_kernel *neap_kernel_find(const neap_op *op, neap_engine engine, int n_in,
                                    const neap_type *in, int n_out, const neap_type *out);
/* The only way to a kernel's choose; true for a kernel without one. No engine that can't be had is
 * asked. A choice of more scratch or stash than NEAP_MOST_BYTES is none. */
bool neap_kernel_choose(const neap_kernel *kernel, neap_choose *choose);
/* The only way to a kernel's bind: nothing for one without. */
neap_status neap_kernel_bind(const neap_kernel *kernel, const neap_bind *bind, void **object,
                             neap_error *error);
void neap_widen_run(const neap_kernel *kernel, const neap_call *call);
/* call.c: whether a call is what kernels rely on; asserts, nothing else. */
void neap_kernel_check(const neap_kernel *kernel, const neap_call *call);
/* The only way to a kernel's run. */
static inline void neap_kernel_run(const neap_kernel *kernel, const neap_call *call) {
  if (NEAP_DEBUG) neap_kernel_check(kernel, call);
  if (call->choice->is_widened)
    neap_widen_run(kernel, call);
  else
    kernel->run(call);
}
/* The kernels of an op in the order in which they are tried: all as listed; with `force` those of
 * `engine`, then those of ref. `previous` NULL: the first of them. NULL: there is no other. */
const neap_kernel *neap_kernel_next(const neap_op *op, const neap_kernel *previous, bool force,
                                    neap_engine engine);
/* numbers.c: the promises by name, the usual ones by class of op, and their part of an op's page */
const char *neap_nan_name(neap_nan nan);
const char *neap_infinity_name(neap_infinity infinity);
const char *neap_empty_name(neap_empty empty);
const char *neap_sum_name(neap_sum sum);
double neap_sum_error(neap_sum sum);
/* What infinities give by this kernel; NULL: by those that say nothing of their own. */
neap_infinity neap_op_infinity(const neap_op *op, const neap_kernel *kernel);
neap_empty neap_op_empty(const neap_op *op);
void neap_numbers_print(const neap_op *op, neap_buffer *out);
/* What a record says, as text for people: its page for `neap ops NAME`. */
void neap_op_print(const neap_op *op, neap_buffer *out);

/* ---- types of an op (infer.c) ---------------------------------------------------------------- */

/* The only way to an op's infer: runs it and checks each type that it gives by neap_type_check, and
 * that some kernel computes the operands' dtypes: DTYPE error when none does.
 * What infer computes may saturate, or make no sense for a size that is none: no such type gets
 * past this. Unknown types (dtype NONE) do. */
neap_status neap_infer_types(neap_infer *infer, neap_error *error);

/* ---- helpers for infer that plugins have no use for ------------------------------------------ */

/* the same; -1 when out of range, which kernels never see */
int neap_axis(int64_t axis, int n_dim);
int64_t neap_axis_said(int64_t axis); /* from neap_first_number, or from -1 at the end */
/* For backward ops, which nets may hold too (net:expand, files): the type that INTS attribute
 * `attr` and input 0's dtype give; ATTRIBUTE error for a shape that can't be. */
neap_status neap_infer_attr_type(const neap_infer *infer, int attr, neap_type *out,
                                 neap_error *error);
/* The forward's checks on its inputs `in`, with this op's attributes, which begin as the forward's
 * do; `out` gets the types of its n_out outputs. */
neap_status neap_infer_forward(const neap_infer *infer, const neap_op *forward, int n_in,
                               const neap_type *in, int n_out, neap_type *out, neap_error *error);

#endif
