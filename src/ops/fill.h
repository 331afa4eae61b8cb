/* ops/fill.h: what ops without inputs share: the attributes `shape` and `dtype`, and the type they
 * give. */
#ifndef NEAP_OPS_FILL_H
#define NEAP_OPS_FILL_H

#include "ops/op.h"

/* ORDER of the attributes, in every filling op: these two first. */
enum { NEAP_FILL_SHAPE, NEAP_FILL_DTYPE, NEAP_FILL_NEXT };
#define NEAP_FILL_ATTRS NEAP_FILL_ATTRS_OF(NEAP_DTYPE_F32)
#define NEAP_FILL_ATTRS_OF(usual)                                                             \
  [NEAP_FILL_SHAPE] = {"shape", "of the output; {} for a scalar", NEAP_ATTR_INTS, .least = 0, \
                       .most = 1e15},                                                         \
  [NEAP_FILL_DTYPE] = {"dtype", "of the output", NEAP_ATTR_DTYPE, .value = {.i = (usual)}}

/* Output 0 has the type that the attributes say; the dtype must be one the output admits. */
neap_status neap_fill_infer(neap_infer *infer, neap_error *error);
/* ATTRIBUTE error for a number `value` of attribute `name` that an integer dtype would make another
 * of: NaN, a fraction, one beyond its range. */
neap_status neap_fill_check(const neap_infer *infer, const char *name, double value,
                            neap_dtype dtype, neap_error *error);
/* Every element of a plain operand becomes `value`. */
void neap_fill(const neap_operand *out, double value, int n_thread);

#endif
