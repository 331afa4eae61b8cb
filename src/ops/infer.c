/* infer.c: the checks that the infer functions of many ops share, and the words of their errors.
 *
 * INVARIANT: a message names the argument as the record does, and says what was expected and what
 * came; who failed (the op, its name, scope and line) is added where that is known, by the graph.
 * Nothing here changes the types that it looks at.
 */
#include "ops/op.h"
#include "ops/tile.h"

#include <stdio.h>
#include <string.h>

/* By the record; a variadic argument's name stands for all that it takes. */
static const char *arg_name(const neap_infer *infer, int input) {
  const neap_arg *arg = neap_op_input(infer->op, input);
  return arg != NULL ? arg->name : "?";
}

/* The argument is named as the error's blob, unless a name is there already. */
neap_status neap_infer_fail(const neap_infer *infer, neap_status code, int input, neap_error *error,
                            const char *format, ...) {
  va_list args;
  va_start(args, format);
  neap_fail_list(error, code, format, args);
  va_end(args);
  if (error != NULL && error->blob[0] == '\0')
    snprintf(error->blob, sizeof error->blob, "%s", arg_name(infer, input));
  return code;
}

neap_status neap_infer_admits(const neap_infer *infer, neap_error *error) {
  for (int i = 0; i < infer->n_in; i++) {
    const neap_arg *arg = neap_op_input(infer->op, i);
    /* A record that says nothing means any float. */
    unsigned dtypes = arg == NULL || arg->dtypes == 0 ? NEAP_FLOATS : arg->dtypes;
    if (arg != NULL && infer->in[i].dtype != NEAP_DTYPE_NONE &&
        !neap_dtype_in(infer->in[i].dtype, dtypes))
      return neap_fail(error, NEAP_DTYPE, "%s does not take dtype %s", arg->name,
                       neap_dtype_name(infer->in[i].dtype));
  }
  return NEAP_OK;
}

/* DTYPE error for the first input whose dtype is not that of input `like`; absent ones do not
 * count. */
neap_status neap_infer_same_dtype(const neap_infer *infer, int like, neap_error *error) {
  for (int i = 0; i < infer->n_in; i++) {
    const neap_arg *arg = neap_op_input(infer->op, i);
    bool is_wide = arg != NULL && (arg->flags & NEAP_ARG_WIDE) != 0;
    neap_dtype got = infer->in[i].dtype, own = infer->in[like].dtype,
               want = is_wide ? neap_compute_dtype(own) : own;
    /* Statistics of halves are wider than what they are of. */
    if (got == NEAP_DTYPE_NONE || got == want) continue;
    if (want != own)
      return neap_infer_fail(infer, NEAP_DTYPE, i, error,
                             "%s expects dtype %s, in which statistics of %s are made, got %s",
                             arg_name(infer, i), neap_dtype_name(want), neap_dtype_name(own),
                             neap_dtype_name(got));
    neap_infer_fail(infer, NEAP_DTYPE, i, error, "%s expects dtype %s, as %s has, got %s",
                    arg_name(infer, i), neap_dtype_name(want), arg_name(infer, like),
                    neap_dtype_name(got));
    neap_hint(error, "Cast makes one dtype of another");
    return NEAP_DTYPE;
  }
  return NEAP_OK;
}

/* The words are those of the range: a number, "at least", or "2 to 4". */
neap_status neap_infer_rank(const neap_infer *infer, int input, int least, int most,
                            neap_error *error) {
  int n = infer->in[input].shape.n_dim;
  if (n >= least && n <= most) return NEAP_OK;
  char text[NEAP_SHAPE_TEXT], want[32];
  if (least == most)
    snprintf(want, sizeof want, "%d", least);
  else if (most >= NEAP_MAX_DIM)
    snprintf(want, sizeof want, "at least %d", least);
  else
    snprintf(want, sizeof want, "%d to %d", least, most);
  return neap_infer_fail(infer, NEAP_SHAPE, input, error, "%s expects %s dimensions, got %s",
                         arg_name(infer, input), want,
                         neap_shape_text(&infer->in[input].shape, text));
}

/* What 32 bits can't hold is out of range too, not some other axis. */
int neap_axis(int64_t axis, int n_dim) {
  if (axis < -n_dim || axis >= n_dim) return -1;
  return (int)(axis < 0 ? axis + n_dim : axis);
}

int64_t neap_axis_said(int64_t axis) {
  return axis >= 0 ? neap_count_add(axis, neap_first_number()) : axis;
}

neap_status neap_infer_axis(const neap_infer *infer, int attr, int n_dim, int *axis,
                            neap_error *error) {
  int64_t given = infer->attrs[attr].i;
  *axis = neap_axis(given, n_dim);
  if (*axis >= 0 && *axis < n_dim) return NEAP_OK;
  /* Users count from 1; negative axes are the same for both. */
  return neap_infer_fail(infer, NEAP_ATTRIBUTE, 0, error,
                         "%s = %lld is out of range for %d dimensions", infer->op->attrs[attr].name,
                         (long long)neap_axis_said(given), n_dim);
}

/* Names the first operand that no kernel computes, or else input 0: then it is the mixture that
 * none does. */
static neap_status no_kernel(const neap_infer *infer, neap_error *error) {
  const neap_arg *arg = neap_op_input(infer->op, 0);
  neap_dtype dtype = infer->n_in > 0 ? infer->in[0].dtype : infer->out[0].dtype;
  unsigned all = 0;
  for (const neap_kernel *k = infer->op->kernels; k->run != NULL; k++)
    all |= neap_kernel_dtypes(k) & NEAP_FLOATS;
  /* As if one kernel had all dtypes that there are: an operand beyond those is to blame by
   * itself. */
  const neap_kernel any = {.engine = NEAP_ENGINE_REF, .dtypes = all};
  for (int i = 0; i < infer->n_in + infer->n_out; i++) {
    bool is_in = i < infer->n_in;
    int k = is_in ? i : i - infer->n_in;
    const neap_arg *own = is_in ? neap_op_input(infer->op, k) : neap_op_output(infer->op, k);
    neap_dtype is = is_in ? infer->in[k].dtype : infer->out[k].dtype;
    if (neap_kernel_computes(&any, own, is)) continue;
    arg = own, dtype = is;
    break;
  }
  char text[NEAP_DTYPES_TEXT];
  neap_fail(error, NEAP_DTYPE, "no kernel computes %s of dtype %s; there are kernels for %s",
            arg != NULL ? arg->name : "operands", neap_dtype_name(dtype),
            neap_dtypes_text(all, text));
  if (error != NULL && error->blob[0] == '\0' && arg != NULL)
    snprintf(error->blob, sizeof error->blob, "%s", arg->name);
  neap_hint(error, "Cast makes one dtype of another");
  return NEAP_DTYPE;
}

/* Whether any kernel computes these operands; control ops have none. */
static bool has_kernel(const neap_infer *infer) {
  const neap_kernel *k = infer->op->kernels;
  if (k == NULL || k->run == NULL) return true;
  for (; k->run != NULL; k++)
    if (neap_kernel_computes_all(k, infer->op, infer->n_in, infer->in, infer->n_out, infer->out))
      return true;
  return false;
}

/* A stash's bytes are the choice's affair, so its type here says nothing. Unknown is what a subnet
 * gives that nobody has said the parameters' types of: only a net that is still being written may
 * have that. */
neap_status neap_infer_types(neap_infer *infer, neap_error *error) {
  if (infer->op->infer == NULL)
    return neap_fail(error, NEAP_INTERNAL, "the op has no infer function");
  NEAP_TRY(infer->op->infer(infer, error));
  /* Shapes are checked here for all ops, and not by each infer. */
  for (int k = 0; k < infer->n_out; k++) {
    const neap_arg *arg = neap_op_output(infer->op, k);
    bool is_stash = arg != NULL && (arg->flags & NEAP_ARG_STASH) != 0;
    if (is_stash || infer->out[k].dtype == NEAP_DTYPE_NONE) continue;
    char what[64];
    snprintf(what, sizeof what, "output %s", arg != NULL ? arg->name : "?");
    /* A shape may overflow though each input's is fine. */
    neap_status status = neap_type_check(&infer->out[k], what, error);
    if (status != NEAP_OK && error != NULL && error->blob[0] == '\0' && arg != NULL)
      snprintf(error->blob, sizeof error->blob, "%s", arg->name);
    NEAP_TRY(status);
  }
  return has_kernel(infer) ? NEAP_OK : no_kernel(infer, error);
}

/* Output 0 is of the type of input 0, and so must all inputs be. */
neap_status neap_infer_like(neap_infer *infer, neap_error *error) {
  NEAP_TRY(neap_infer_same_dtype(infer, 0, error));
  for (int i = 1; i < infer->n_in; i++) {
    char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
    if (infer->in[i].dtype != NEAP_DTYPE_NONE &&
        !neap_shape_equal(&infer->in[i].shape, &infer->in[0].shape))
      return neap_infer_fail(infer, NEAP_SHAPE, i, error, "%s expects shape %s, as %s has, got %s",
                             arg_name(infer, i), neap_shape_text(&infer->in[0].shape, a),
                             arg_name(infer, 0), neap_shape_text(&infer->in[i].shape, b));
  }
  infer->out[0] = infer->in[0];
  return NEAP_OK;
}

/* The shape comes from a user or a file here, so it is checked. */
neap_status neap_infer_attr_type(const neap_infer *infer, int attr, neap_type *out,
                                 neap_error *error) {
  const neap_attr_value *shape = &infer->attrs[attr];
  /* The message is the check's own, under the code and the operand of this op. */
  *out = (neap_type){infer->in[0].dtype, neap_shape_of(shape->n, shape->ints)};
  neap_error why = {0};
  if (neap_type_check(out, infer->op->attrs[attr].name, &why) == NEAP_OK) return NEAP_OK;
  return neap_infer_fail(infer, NEAP_ATTRIBUTE, 0, error, "%s", why.message);
}

/* The context has no subnets and no extent, so it is not for control ops. */
neap_status neap_infer_forward(const neap_infer *infer, const neap_op *forward, int n_in,
                               const neap_type *in, int n_out, neap_type *out, neap_error *error) {
  neap_infer ask = {
    .op = forward, .attrs = infer->attrs, .n_in = n_in, .n_out = n_out, .in = in, .out = out};
  return neap_infer_types(&ask, error);
}

/* The type of input `input`, of a backward op, must be the one that the forward gives: `want`. */
neap_status neap_infer_expect(const neap_infer *infer, int input, const neap_type *want,
                              neap_error *error) {
  char expected[NEAP_SHAPE_TEXT], got[NEAP_SHAPE_TEXT];
  if (infer->in[input].dtype != want->dtype)
    return neap_infer_fail(infer, NEAP_DTYPE, input, error,
                           "%s expects dtype %s, as the forward gives it, got %s",
                           arg_name(infer, input), neap_dtype_name(want->dtype),
                           neap_dtype_name(infer->in[input].dtype));
  if (neap_shape_equal(&infer->in[input].shape, &want->shape)) return NEAP_OK;
  return neap_infer_fail(infer, NEAP_SHAPE, input, error,
                         "%s expects shape %s, as the forward gives it, got %s",
                         arg_name(infer, input), neap_shape_text(&want->shape, expected),
                         neap_shape_text(&infer->in[input].shape, got));
}
