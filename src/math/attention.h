/* math/attention.h: scaled dot-product attention over strided views, forward and backward, in
 * memory that does not grow with the square of the length (Dao et al., "FlashAttention", NeurIPS
 * 2022, algorithms 1 and 4).
 *
 * Sizes in letters: B batch, H heads, G key and value heads (H a multiple of G: head h reads key
 * head h / (H/G)), T queries, S keys, D depth of q and k, E depth of v and y. All data are of one
 * dtype, f32 or f64.
 */
#ifndef NEAP_MATH_ATTENTION_H
#define NEAP_MATH_ATTENTION_H

#include "math/blas.h"

#include <math.h>

/* (batch, head, row, depth) with the depth dense; the steps are in elements. */
typedef struct neap_attention_view {
  void *data;
  int64_t batch, head, row;
} neap_attention_view;

typedef struct neap_attention {
  neap_dtype dtype;
  int64_t n_batch, n_head, n_key_head, n_query, n_key, depth, value_depth;
  double scale;
  bool causal; /* query i sees keys 0 to first + i */
  /* (B): where the first query of each sequence stands among the keys; NULL: at key 0. Forward. */
  const int64_t *first;
  neap_attention_view q, k, v, y;
  /* (B,H,T): log of each row's sum of exp; -infinity where no key is seen. May be NULL forward */
  void *lse;
  const void *mask; /* NULL, or broadcast to (B,H,T,S): added to the scores; or bool, true = sees */
  bool mask_is_bool;
  int64_t mask_step[4];               /* in elements; 0 where broadcast */
  neap_attention_view dy, dq, dk, dv; /* backward */
  void *dmask;                        /* (B,H,T,S), or NULL */
  neap_engine engine;                 /* REF: plain loops with sums in double, the oracle */
  int n_part;                         /* threads; each part has its own scratch */
  void *scratch;
} neap_attention;

/* Of scores of q and k of this depth, as Vaswani et al. ("Attention is all you need", 2017) scale
 * them: their variance is that of one product then. Without depth all scores are 0. */
static inline double neap_attention_default_scale(int64_t depth) {
  return depth > 0 ? 1 / sqrt((double)depth) : 1;
}

size_t neap_attention_scratch_bytes(const neap_attention *attention, bool backward);
/* Writes y and lse. */
void neap_attention_forward(const neap_attention *attention);
/* Reads q, k, v, y, lse, dy; writes dq, dk, dv and dmask. Probabilities are computed again, tile by
 * tile. */
void neap_attention_backward(const neap_attention *attention);

#endif
