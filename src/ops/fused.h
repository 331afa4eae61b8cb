/* fused.h: what FusedConv and FusedFC share, and what they take from Conv and FC.
 *
 * A fused op is y = activation(product(x, w) + b + z), operands x, w, b, z; b and z may be absent.
 * It is made by rewrites of inference graphs alone (rewrite/fuse.c), so it has no gradient.
 *
 * INVARIANT: y may take the bytes of z: a kernel first has z in y (neap_fused_begin), then adds its
 * product to y.
 * INVARIANT: a NaN before the activation is a NaN after it, in every engine.
 */
#ifndef NEAP_OPS_FUSED_H
#define NEAP_OPS_FUSED_H

#include "ops/dnnl.h"

enum { NEAP_FUSED_X, NEAP_FUSED_W, NEAP_FUSED_B, NEAP_FUSED_Z };

/* Values of the attribute `activation`; the op whose plain kernel computes it. ORDER ACTIVATION:
 * names in NEAP_ACTIVATION_ATTR. */
typedef enum neap_activation {
  NEAP_ACTIVATION_NONE,
  NEAP_ACTIVATION_RELU,
  NEAP_ACTIVATION_RELU6,
  NEAP_ACTIVATION_SIGMOID,
  NEAP_ACTIVATION_TANH,
  NEAP_ACTIVATION_SILU,
  NEAP_ACTIVATION_GELU,
  NEAP_ACTIVATION_GELU_TANH,
  NEAP_N_ACTIVATION
} neap_activation;
#define NEAP_ACTIVATION_ATTR                                                \
  {                                                                         \
    "activation", "applied to the sum, element by element", NEAP_ATTR_ENUM, \
      .choices = "none|relu|relu6|sigmoid|tanh|silu|gelu|gelu_tanh"         \
  }
/* The activation that an op of this name and attributes is; NONE when it is none of them. */
neap_activation neap_activation_of(const neap_op *op, const neap_attr_value *attrs);
/* Whether 0 stays 0: what padding lanes demand. */
static inline bool neap_activation_keeps_zero(neap_activation a) {
  return a != NEAP_ACTIVATION_SIGMOID;
}

/* Whether the call adds z; false for the ops without one. */
static inline bool neap_fused_adds(const neap_call *call) {
  return call->n_in > NEAP_FUSED_Z && call->in[NEAP_FUSED_Z].data != NULL;
}
/* Puts z into y, unless it lies there. */
void neap_fused_begin(const neap_call *call);
/* y = activation(y), lane by lane, by the plain kernel of the activation's own op: the same bits as
 * unfused. */
void neap_fused_end(const neap_call *call, neap_activation activation);
/* SHAPE or DTYPE error unless z, where given, has y's type. */
neap_status neap_fused_check_z(const neap_infer *infer, neap_error *error);

/* Images that FusedConvPool works on at once, by what the convolution gives for one and by its
 * weights: enough to fill a cache, and so many that what each chunk does with the weights (reads
 * them, transforms them for Winograd) is little beside the rest. At least one. */
enum { NEAP_FUSED_CHUNK_BYTES = 1 << 20, NEAP_FUSED_CHUNK_WEIGHTS = 4 };
static inline int64_t neap_fused_chunk(int64_t batch, size_t image_bytes, size_t weight_bytes) {
  size_t bytes = NEAP_MAX((size_t)NEAP_FUSED_CHUNK_BYTES, NEAP_FUSED_CHUNK_WEIGHTS * weight_bytes);
  return NEAP_MAX(1, NEAP_MIN(batch, (int64_t)(bytes / NEAP_MAX(image_bytes, 1))));
}

/* fc.c: checks of x, weight and bias; 2 M N K flops; y (M,N) = [y +] x (M,K) w' (K,N) + b (N) by
 * the engine's products */
neap_status neap_fc_infer(neap_infer *infer, neap_error *error);
void neap_fc_cost(const neap_infer *infer, neap_cost *cost);
void neap_fc_run(const neap_call *call);

/* The two ways of engine dnnl, choice->algorithm: oneDNN's inner product, which packs the weight,
 * or its plain matrix product with loops of our own. */
enum { NEAP_FC_PRIMITIVE, NEAP_FC_PRODUCT };
/* Whether there are too few rows, those of y or dy, for packing a weight of `columns` rows to pay
 * (measured). */
bool neap_fc_has_few_rows(const neap_type *y, int64_t columns);
/* Settles the choice: the product, because of `why` (NULL: the rows are few), or else what oneDNN
 * says of `c`. False: it refuses. */
bool neap_fc_settle(neap_choose *choose, neap_onednn_case *c, bool by_product, const char *why);
/* The primitive that was chosen, in *kernel; a product has none, NULL. */
neap_status neap_fc_bind(const neap_bind *bind, neap_onednn_case *c, void **kernel,
                         neap_error *error);

#endif
