/* kernels.c: the kernels of a record: which of them computes operands of some types, the order in
 * which they are tried, and how one is asked and bound. One that lists no halves may compute them
 * on widened operands (widen.c).
 */
#include "ops/op.h"
#include "ops/widen.h"

unsigned neap_kernel_dtypes(const neap_kernel *kernel) {
  unsigned of_engine = neap_engine_at(kernel->engine)->dtypes | ~NEAP_FLOATS;
  unsigned computed = kernel->dtypes & of_engine;
  return kernel->widens && (computed & NEAP_BIT(F32)) != 0 ? computed | NEAP_HALVES : computed;
}

bool neap_kernel_computes(const neap_kernel *kernel, const neap_arg *arg, neap_dtype dtype) {
  if (arg == NULL || dtype == NEAP_DTYPE_NONE) return true;
  if ((arg->flags & (NEAP_ARG_STASH | NEAP_ARG_SCOPE)) != 0) return true;
  /* Kernels name floats; integers and bool an argument takes are the op's affair. */
  bool may_be_float = arg->dtypes == 0 || (arg->dtypes & NEAP_FLOATS) != 0;
  if (!may_be_float) return true;
  return neap_dtype_in(dtype, neap_kernel_dtypes(kernel));
}

bool neap_kernel_computes_all(const neap_kernel *kernel, const neap_op *op, int n_in,
                              const neap_type *in, int n_out, const neap_type *out) {
  for (int i = 0; i < n_in; i++)
    if (!neap_kernel_computes(kernel, neap_op_input(op, i), in[i].dtype)) return false;
  for (int k = 0; k < n_out; k++)
    if (!neap_kernel_computes(kernel, neap_op_output(op, k), out[k].dtype)) return false;
  return true;
}

const neap_kernel *neap_kernel_find(const neap_op *op, neap_engine engine, int n_in,
                                    const neap_type *in, int n_out, const neap_type *out) {
  if (op->kernels == NULL) return NULL;
  for (const neap_kernel *k = op->kernels; k->run != NULL; k++)
    if (k->engine == engine && neap_kernel_computes_all(k, op, n_in, in, n_out, out)) return k;
  return NULL;
}

/* Whether some operand is a half that the kernel does not compute itself: of the floats that it
 * lists. */
static bool has_others(const neap_kernel *kernel, int n, const neap_type *types) {
  const neap_kernel narrow = {.engine = kernel->engine, .dtypes = kernel->dtypes};
  for (int i = 0; i < n; i++)
    if (neap_dtype_in(types[i].dtype, NEAP_HALVES & ~neap_kernel_dtypes(&narrow))) return true;
  return false;
}

/* Whether some operand is a half. */
static bool has_halves(int n, const neap_type *types) {
  for (int i = 0; i < n; i++)
    if (neap_dtype_in(types[i].dtype, NEAP_HALVES)) return true;
  return false;
}

/* A kernel for halves comes first, then that for f32 on widened operands, which finds the choice as
 * it was. */
static bool ask_kernel(const neap_kernel *kernel, neap_choose *c) {
  enum { MOST = NEAP_OP_MAX_IN + NEAP_OP_MAX_OUT };
  bool halves = has_halves(c->n_in, c->in) || has_halves(c->n_out, c->out);
  bool may_widen = kernel->widens && halves && c->n_in + c->n_out <= MOST;
  bool as_wide = c->like != NULL && c->like->is_widened; /* which is followed in this, too */
  neap_choice before = *c->choice;
  neap_layout layout[MOST];
  if (may_widen) {
    neap_copy_bytes(layout, before.in, (size_t)c->n_in * sizeof *layout);
    neap_copy_bytes(layout + c->n_in, before.out, (size_t)c->n_out * sizeof *layout);
  }

  /* The kernel's own halves, where it has them; a choice to follow says which of the two ways it
   * went. */
  if (!as_wide && !has_others(kernel, c->n_in, c->in) && !has_others(kernel, c->n_out, c->out) &&
      (kernel->choose == NULL || kernel->choose(c)))
    return true;
  if (!may_widen || (c->like != NULL && !as_wide)) return false;

  /* A choose that has refused may have written into the choice and its lists of layouts: both are
   * put back. */
  *c->choice = before;
  neap_copy_bytes(before.in, layout, (size_t)c->n_in * sizeof *layout);
  neap_copy_bytes(before.out, layout + c->n_in, (size_t)c->n_out * sizeof *layout);
  return neap_widen_choose(kernel, c);
}

bool neap_kernel_choose(const neap_kernel *kernel, neap_choose *choose) {
  if (neap_engine_at(kernel->engine)->missing() != NULL) return false;
  /* Sizes that no machine has are refused here, so that no choose has to look. */
  return ask_kernel(kernel, choose) && choose->choice->scratch_bytes <= NEAP_MOST_BYTES &&
         choose->choice->stash_bytes <= NEAP_MOST_BYTES;
}

neap_status neap_kernel_bind(const neap_kernel *kernel, const neap_bind *bind, void **object,
                             neap_error *error) {
  if (kernel->bind == NULL) return NEAP_OK;
  return bind->choice->is_widened ? neap_widen_bind(kernel, bind, object, error)
                                  : kernel->bind(bind, object, error);
}

/* With `force` the list is walked twice, for `engine` and then for ref. Which walk `previous`
 * belongs to is told by its engine. */
const neap_kernel *neap_kernel_next(const neap_op *op, const neap_kernel *previous, bool force,
                                    neap_engine engine) {
  const neap_kernel *k = previous == NULL ? op->kernels : previous + 1;
  bool fallen_back = previous != NULL && previous->engine != engine;
  if (k == NULL) return NULL;
  for (; k->run != NULL; k++)
    if (!force || k->engine == (fallen_back ? NEAP_ENGINE_REF : engine)) return k;

  /* Without a kernel of the forced engine the list is walked once more, for ref alone. */
  if (!force || fallen_back || engine == NEAP_ENGINE_REF) return NULL;
  /* The engine has none that took it: plain C may. */
  for (k = op->kernels; k->run != NULL; k++)
    if (k->engine == NEAP_ENGINE_REF) return k;
  return NULL;
}
