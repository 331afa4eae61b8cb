/* optimizer.c: types of the ops that update parameters (optimizer.h). */
#include "ops/optimizer.h"

/* Input i against w, or as one element. */
static neap_status check_input(const neap_infer *c, int i, neap_error *error) {
  const neap_type *type = &c->in[i], *w = &c->in[NEAP_OPTIMIZER_W];
  char want[NEAP_SHAPE_TEXT], got[NEAP_SHAPE_TEXT];
  /* A record that names dtypes for an input means a count or the like: one element, of its own
   * dtype. */
  if (i == NEAP_OPTIMIZER_LR || c->op->inputs[i].dtypes != 0) {
    if (neap_shape_elems(&type->shape) == 1) return NEAP_OK;
    return neap_infer_fail(c, NEAP_SHAPE, i, error, "%s expects one element, got %s",
                           c->op->inputs[i].name, neap_shape_text(&type->shape, got));
  }
  if (neap_type_equal(type, w)) return NEAP_OK;
  return neap_infer_fail(c, NEAP_SHAPE, i, error, "%s expects %s %s, as w has, got %s %s",
                         c->op->inputs[i].name, neap_dtype_name(w->dtype),
                         neap_shape_text(&w->shape, want), neap_dtype_name(type->dtype),
                         neap_shape_text(&type->shape, got));
}

neap_status neap_optimizer_infer(neap_infer *c, neap_error *error) {
  for (int i = 0; i < c->n_in; i++)
    if (c->in[i].dtype != NEAP_DTYPE_NONE) NEAP_TRY(check_input(c, i, error));
  /* What comes in is written in place, so that it has to come out. */
  for (int k = 0; k < c->op->n_enforced; k++) {
    int from = c->op->enforced[k].in, to = c->op->enforced[k].out;
    bool is_in = from < c->n_in && c->in[from].dtype != NEAP_DTYPE_NONE;
    if (is_in && to >= c->n_out)
      return neap_infer_fail(c, NEAP_ARGUMENT, from, error, "%s is an input, and not an output",
                             c->op->inputs[from].name);
    if (is_in) c->out[to] = c->in[from];
  }
  return NEAP_OK;
}
