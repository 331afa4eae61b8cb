/* lstm_int.h: private to LSTM: what its forward (lstm.c) and its backward (lstm_grad.c) share: the
 * letters, the sizes, one step's operands.
 *
 * Letters: T steps, N sequences, D inputs, H units. Time comes first, so that one step is dense. A
 * row of 4H numbers holds the four gates of one sequence, each H wide: i (input), f (forget), g
 * (candidate), o (output), in the order that the attribute `order` says: ifgo as PyTorch and Torch
 * have it, iofg as ONNX does (it calls g c), ifog as Caffe2 does.
 *
 * INVARIANT: past its length a sequence keeps its state and gives 0, in either direction; so the
 * rows of dgates there are 0.
 * INVARIANT: `cells` holds the state kept past the length too: the cell before step t is always
 * that of the step before.
 */
#ifndef NEAP_OPS_LSTM_INT_H
#define NEAP_OPS_LSTM_INT_H

#include "math/vec.h"
#include "ops/dnnl.h"

enum { REVERSE, ORDER }; /* attributes of all three ops */
/* inputs of LSTMGrad, and its outputs */
enum { G_R, G_C0, G_LENGTHS, G_GATES, G_CELLS, G_DY, G_DH, G_DC, G_N_IN };
enum { G_DGATES, G_DH0, G_DC0, G_N_OUT };
/* inputs of LSTMGradWeight */
enum { W_DGATES, W_Y, W_H0, W_LENGTHS, W_N_IN };
/* sequences that are worth a thread of their own: two tiles of panels.c */
enum { SHARE = 12 };

/* ---- sizes ----------------------------------------------------------------------------------- */

typedef struct lstm_sizes {
  int64_t n_step, n_seq, n_in, n_unit;
  int64_t gate[4]; /* first column of i, f, g, o */
  size_t item_bytes;
  neap_dtype dtype;
  bool reverse;
  const neap_operand *lengths; /* NULL: all sequences are n_step long */
} lstm_sizes;

/* y: type of (T,N,H). */
lstm_sizes lstm_sizes_of(const neap_type *y, const neap_attr_value *attrs);

/* of one step */
static inline int64_t lstm_gate_row_elems(const lstm_sizes *s) { return s->n_seq * 4 * s->n_unit; }
static inline int64_t lstm_state_elems(const lstm_sizes *s) { return s->n_seq * s->n_unit; }
static inline size_t lstm_gates_bytes(const lstm_sizes *s, int64_t n_step) {
  return (size_t)(n_step * lstm_gate_row_elems(s)) * s->item_bytes;
}
static inline size_t lstm_state_bytes(const lstm_sizes *s) {
  return (size_t)lstm_state_elems(s) * s->item_bytes;
}

/* What has no elements may have no bytes at all: then base is NULL, and elems 0. */
static inline char *lstm_offset(const lstm_sizes *s, const void *base, int64_t elems) {
  if (elems == 0) return (char *)base;
  return (char *)base + (size_t)elems * s->item_bytes;
}

/* Within [0,T] whatever the data says: the forward has recorded the fault. */
int64_t lstm_length_of(const lstm_sizes *s, int64_t seq);

/* The operand when it is there. */
static inline const neap_operand *lstm_given(const neap_call *call, int input) {
  return call->n_in > input && call->in[input].data != NULL ? &call->in[input] : NULL;
}

/* ---- one step -------------------------------------------------------------------------------- */

/* Pointers to one step of each operand; rows (N,4H) or (N,H). */
typedef struct lstm_job {
  const lstm_sizes *s;
  int64_t t;
  const void *product;  /* h_before r^T; NULL: the gates hold it already */
  const void *bias;     /* (4H), or NULL */
  const void *h_before; /* where r comes in panels not h, since other threads still read it */
  void *gates;          /* forward: in x w^T, out activated; backward: activated */
  void *c, *h;          /* forward: the state; c is replaced */
  void *y, *cell;       /* cell: where this step's c is kept; may be c itself */
  const void *c_before, *dy;
  void *dgates, *dh, *dc;
} lstm_job;

/* Elements [begin, end) of the state (N,H), for a job. */
typedef void (*lstm_step)(void *job, int64_t begin, int64_t end);

/* All elements of the state. A few transcendental functions each: worth a thread sooner than a
 * plain loop. */
static inline void lstm_run_step(lstm_job *k, lstm_step step, int n_thread) {
  neap_parallel_for(lstm_state_elems(k->s), NEAP_GRAIN / 16, n_thread, step, k);
}

/* `to` becomes `from`, which may be the same bytes, or zeros. */
void lstm_start_state(const lstm_sizes *s, void *to, const neap_operand *from);

/* ---- inference ------------------------------------------------------------------------------- */

/* DTYPE error unless all but the lengths have the dtype of input `like`. */
neap_status lstm_expect_dtype(const neap_infer *c, int like, int lengths, neap_error *error);
/* SHAPE error unless input `input` is absent or has the shape `want`. */
neap_status lstm_expect_shape(const neap_infer *c, int input, neap_shape want, neap_error *error);

/* ---- records --------------------------------------------------------------------------------- */

#define LSTM_ATTRS                                                                                 \
  [REVERSE] = {"reverse", "from the last step to the first", NEAP_ATTR_BOOL},                      \
  [ORDER] = {"order", "of the gates in w, r and b: ifgo is PyTorch's, iofg ONNX's, ifog Caffe2's", \
             NEAP_ATTR_ENUM, .choices = "ifgo|iofg|ifog"}
#define LSTM_LENGTHS                                                                             \
  {                                                                                              \
    "lengths", "(N): steps of each sequence; past them y is 0", (NEAP_BIT(I64) | NEAP_BIT(I32)), \
      NEAP_ARG_OPTIONAL                                                                          \
  }

#endif
