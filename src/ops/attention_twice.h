/* ops/attention_twice.h: the gradient of attention's backward, in other ops. */
#ifndef NEAP_OPS_ATTENTION_TWICE_H
#define NEAP_OPS_ATTENTION_TWICE_H

#include "ops/op.h"

/* What one call of the backward read, and the gradients that arrive for what it gave; in both forms
 * of `heads`. NEAP_NO_VALUE where there is none. */
typedef struct neap_attention_twice {
  neap_value_id q, k, v, mask, lse, dy; /* read */
  neap_value_id of_dq, of_dk, of_dv, of_dscores;
  int64_t heads, n_head, n_key_head; /* heads: 0, a dimension of its own; else they lie in rows */
  double scale;
  bool causal;
  neap_value_id dq, dk, dv, ddy, dmask; /* set; dmask as the scores (B,H,T,S) */
} neap_attention_twice;
void neap_attention_grad_twice(neap_grad *grad, neap_attention_twice *twice);

#endif
