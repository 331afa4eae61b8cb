/* grad.c: what grad functions of op records emit with, over the context that graph fills. */
#include "ops/op.h"

void neap_grad_emit(neap_grad *grad, const char *type, int n_in, const neap_value_id *in, int n_out,
                    neap_value_id *out, const neap_grad *inherit, const neap_set *set) {
  grad->emit(grad, type, n_in, in, n_out, out, inherit, set);
}

neap_value_id neap_grad_emit1(neap_grad *grad, const char *type, int n_in, const neap_value_id *in,
                              const neap_grad *inherit, const neap_set *set) {
  neap_value_id out;
  neap_grad_emit(grad, type, n_in, in, 1, &out, inherit, set);
  return out;
}

neap_type neap_grad_type(const neap_grad *grad, neap_value_id value) {
  return grad->type_of(grad, value);
}

neap_value_id neap_grad_reduce_to(neap_grad *grad, neap_value_id value, neap_value_id like) {
  neap_type from = neap_grad_type(grad, value), to = neap_grad_type(grad, like);
  if (value < 0 || like < 0 || neap_shape_equal(&from.shape, &to.shape)) return value;
  /* Sum over the dimensions that broadcasting added or stretched, then drop those that were
   * added. */
  int64_t axes[NEAP_MAX_DIM];
  int n_axes = 0, lead = from.shape.n_dim - to.shape.n_dim;
  for (int d = 0; d < from.shape.n_dim; d++)
    if (d < lead || (to.shape.dim[d - lead] == 1 && from.shape.dim[d] != 1)) axes[n_axes++] = d;
  neap_value_id sum =
    n_axes == 0
      ? value
      : neap_grad_emit1(
          grad, "Sum", 1, &value, NULL,
          (neap_set[]){NEAP_SET_INTS("axes", n_axes, axes), NEAP_SET_INT("keepdim", 1), {0}});
  return neap_grad_view(grad, sum, to.shape);
}

/* With allow_zero: the sizes are meant as they are, 0 too. */
neap_value_id neap_grad_view(neap_grad *grad, neap_value_id value, neap_shape shape) {
  if (value == NEAP_NO_VALUE) return value;
  neap_type type = neap_grad_type(grad, value);
  if (neap_shape_equal(&type.shape, &shape)) return value;
  return neap_grad_emit1(
    grad, "Reshape", 1, &value, NULL,
    (neap_set[]){
      NEAP_SET_INTS("shape", shape.n_dim, shape.dim), NEAP_SET_INT("allow_zero", 1), {0}});
}

neap_value_id neap_grad_cast(neap_grad *grad, neap_value_id value, neap_dtype dtype) {
  if (value == NEAP_NO_VALUE || neap_grad_type(grad, value).dtype == dtype) return value;
  return neap_grad_emit1(grad, "Cast", 1, &value, NULL,
                         (neap_set[]){NEAP_SET_INT("to", dtype), {0}});
}
