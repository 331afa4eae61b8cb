/* optimizer.h: what the ops that update parameters have in common.
 *
 * Inputs are w, its gradient g, lr, and what the optimizer keeps between steps; all but g and lr
 * are resident and come out as their next versions, in the same storage. The learning rate is a
 * tensor, so that a schedule changes it without a new plan; a count of steps t is an i64 that the
 * op counts by itself, so that a checkpoint holds all there is to know.
 */
#ifndef NEAP_OPS_OPTIMIZER_H
#define NEAP_OPS_OPTIMIZER_H

#include "ops/elementwise.h"

enum { NEAP_OPTIMIZER_W, NEAP_OPTIMIZER_G, NEAP_OPTIMIZER_LR, NEAP_OPTIMIZER_STATE };

/* Whether input i of the call is there. */
static inline bool neap_optimizer_has(const neap_call *call, int i) {
  return i < call->n_in && call->in[i].data != NULL;
}

/* The one element of input i. */
static inline double neap_optimizer_scalar(const neap_call *call, int i) {
  return neap_element_get(call->in[i].type.dtype, call->in[i].data, 0);
}

/* Steps with this one, from 1, of the count that is input i. */
static inline int64_t neap_optimizer_step(const neap_call *call, int i) {
  return neap_count_add(*(const int64_t *)call->in[i].data, 1);
}

/* lr, and inputs of a dtype that the record names, are one element each; all others have the type
 * of w. What comes in to be written has to come out. */
neap_status neap_optimizer_infer(neap_infer *infer, neap_error *error);

/* Fields of the records. */
#define NEAP_OPTIMIZER_INPUTS \
  {"w", "parameter"}, {"g", "its gradient"}, { "lr", "learning rate, one element" }
#define NEAP_OPTIMIZER_DECAY \
  { "weight_decay", "times w, added to the gradient", NEAP_ATTR_FLOAT, .least = 0, .most = 1e30 }
#define NEAP_OPTIMIZER_EPS(text, otherwise) \
  { "eps", text, NEAP_ATTR_FLOAT, .value = {.f = otherwise}, .least = 0, .most = 1 }

#endif
