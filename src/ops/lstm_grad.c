/* lstm_grad.c: the backward of LSTM: its gates' gradient step by step, with that of the first
 * states, and that of the states' weights. Those of the inputs' weights and of the bias follow from
 * the gates' by ops that there are (grad of lstm.c).
 */
#include "ops/lstm_int.h"

#define NEAP_BODY "ops/lstm_grad_body.h"
#include "math/each_float.h"

/* ---- the gates ------------------------------------------------------------------------------- */

/* What the steps of one backward have in common. */
typedef struct backward {
  const neap_call *call;
  lstm_sizes s;
} backward;

/* Step i in order of the forward's computation. */
static lstm_job backward_job(const backward *b, int64_t i) {
  const neap_call *call = b->call;
  const neap_operand *c0 = lstm_given(call, G_C0), *dy = lstm_given(call, G_DY);
  const char *cells = call->in[G_CELLS].data;
  int64_t n_state = lstm_state_elems(&b->s), before = b->s.reverse ? b->s.n_step - i : i - 1;
  /* The gradients of the state are the outputs themselves, which go from step to step; an absent dy
   * is read from scratch, which holds zeros. */
  lstm_job k = {
    .s = &b->s, .dh = call->out[G_DH0].data, .dc = call->out[G_DC0].data, .dy = call->scratch};
  k.t = b->s.reverse ? b->s.n_step - 1 - i : i;
  k.gates = lstm_offset(&b->s, call->in[G_GATES].data, k.t * lstm_gate_row_elems(&b->s));
  k.cell = (void *)lstm_offset(&b->s, cells, k.t * n_state);

  /* The cell before step i: kept by the forward, or the first state, which is 0 where none is
   * given (scratch is zeros). */
  if (i > 0)
    k.c_before = lstm_offset(&b->s, cells, before * n_state);
  else
    k.c_before = c0 != NULL ? c0->data : call->scratch;
  if (dy != NULL) k.dy = lstm_offset(&b->s, dy->data, k.t * n_state);
  k.dgates = lstm_offset(&b->s, call->out[G_DGATES].data, k.t * lstm_gate_row_elems(&b->s));
  return k;
}

/* dh of sequences [begin, end) += dgates r. */
static void multiply_back(const backward *b, const lstm_job *k, int64_t begin, int64_t end,
                          int n_thread) {
  neap_gemm(b->s.dtype, b->call->choice->engine, false, false, end - begin, b->s.n_unit,
            4 * b->s.n_unit, lstm_offset(&b->s, k->dgates, begin * 4 * b->s.n_unit),
            b->call->in[G_R].data, true, lstm_offset(&b->s, k->dh, begin * b->s.n_unit), n_thread);
}

static lstm_step backward_of(const lstm_sizes *s) {
  return s->dtype == NEAP_DTYPE_F64 ? backward_f64 : backward_f32;
}

/* All steps of sequences [begin, end), on one thread. */
static void run_sequences_back(void *context, int64_t begin, int64_t end) {
  const backward *b = context;
  for (int64_t i = b->s.n_step - 1; i >= 0; i--) {
    lstm_job k = backward_job(b, i);
    /* A cell sets dgates, and dh to 0: a step reads h through its gates alone, and their share
     * dgates r is added next. */
    backward_of (&b->s)(&k, begin * b->s.n_unit, end * b->s.n_unit);
    multiply_back(b, &k, begin, end, 1);
  }
}

/* scratch: zeros (N,H), in place of what is absent. dgates may be gates: a step reads and writes
 * its own rows only. Threads share out the sequences where there are enough, else the work of each
 * step. */
static void run_grad(const neap_call *call) {
  backward b = {.call = call, .s = lstm_sizes_of(&call->in[G_CELLS].type, call->attrs)};
  b.s.lengths = lstm_given(call, G_LENGTHS);

  /* dh0 and dc0 are the gradients of the state while it goes back through the steps. */
  neap_clear_bytes(call->scratch, lstm_state_bytes(&b.s));
  lstm_start_state(&b.s, call->out[G_DH0].data, lstm_given(call, G_DH));
  lstm_start_state(&b.s, call->out[G_DC0].data, lstm_given(call, G_DC));

  /* A sequence's gradient needs no other sequence. */
  if (b.s.n_seq >= (int64_t)SHARE * call->n_thread) {
    neap_parallel_for(b.s.n_seq, SHARE, call->n_thread, run_sequences_back, &b);
    return;
  }
  for (int64_t i = b.s.n_step - 1; i >= 0; i--) {
    lstm_job k = backward_job(&b, i);
    lstm_run_step(&k, backward_of(&b.s), call->n_thread);
    multiply_back(&b, &k, 0, b.s.n_seq, call->n_thread);
  }
}

/* ---- the states' weights --------------------------------------------------------------------- */

/* to (N,4H): of each sequence the gradient of the gates of its first step in order of
 * computation. */
static void first_rows(const lstm_sizes *s, const void *dgates, char *to) {
  size_t row_bytes = (size_t)(4 * s->n_unit) * s->item_bytes;
  for (int64_t i = 0; i < s->n_seq; i++) {
    int64_t length = lstm_length_of(s, i), t = s->reverse ? length - 1 : 0;
    /* a sequence of no steps has none; whatever t is then, it is not read */
    if (length > 0)
      memcpy(to + (size_t)i * row_bytes,
             lstm_offset(s, dgates, t * lstm_gate_row_elems(s) + i * 4 * s->n_unit), row_bytes);
    else
      memset(to + (size_t)i * row_bytes, 0, row_bytes);
  }
}

/* dr (4H,H) = sum over steps of dgates_t^T h_before. All but the first h are rows of y; where y is
 * 0 past a length, so is dgates, or (in reverse) the first step comes, whose h0 is added apart. */
static void run_grad_weight(const neap_call *call) {
  lstm_sizes s = lstm_sizes_of(&call->in[W_Y].type, call->attrs);
  s.lengths = lstm_given(call, W_LENGTHS);
  const neap_operand *h0 = lstm_given(call, W_H0);
  neap_engine engine = call->choice->engine;
  const void *dgates = call->in[W_DGATES].data, *y = call->in[W_Y].data;
  int64_t n_row = NEAP_MAX(s.n_step - 1, 0) * s.n_seq, n_gate = 4 * s.n_unit;

  /* All steps but the first, in one product over (T-1) N rows: dgates of a step meets y of the step
   * before, which stands one step behind it in time, or in reverse one step ahead. */
  neap_gemm(s.dtype, engine, true, false, n_gate, s.n_unit, n_row,
            s.reverse ? dgates : lstm_offset(&s, dgates, lstm_gate_row_elems(&s)),
            s.reverse ? lstm_offset(&s, y, lstm_state_elems(&s)) : y, false, call->out[0].data,
            call->n_thread);
  /* The first step, whose state before is h0: rows of dgates are gathered, since in reverse each
   * sequence begins at its own length. */
  if (h0 == NULL || s.n_step == 0) return;
  first_rows(&s, dgates, call->scratch);
  neap_gemm(s.dtype, engine, true, false, n_gate, s.n_unit, s.n_seq, call->scratch, h0->data, true,
            call->out[0].data, call->n_thread);
}

/* ---- choose ---------------------------------------------------------------------------------- */

static bool choose_grad(neap_choose *c) {
  lstm_sizes s = lstm_sizes_of(&c->in[G_CELLS], c->attrs);
  c->choice->scratch_bytes = lstm_state_bytes(&s);
  return true;
}

static bool choose_grad_weight(neap_choose *c) {
  lstm_sizes s = lstm_sizes_of(&c->in[W_Y], c->attrs);
  if (c->n_in > W_H0 && c->in[W_H0].dtype != NEAP_DTYPE_NONE)
    c->choice->scratch_bytes = lstm_gates_bytes(&s, 1);
  return true;
}

/* ---- inference ------------------------------------------------------------------------------- */

/* From the cells (T,N,H) and what arrives: gradients of the gates (T,N,4H) and of the first states
 * (N,H). */
static neap_status infer_grad(neap_infer *c, neap_error *error) {
  NEAP_TRY(lstm_expect_dtype(c, G_CELLS, G_LENGTHS, error));
  NEAP_TRY(neap_infer_rank(c, G_CELLS, 3, 3, error));
  const neap_shape *y = &c->in[G_CELLS].shape;
  neap_shape state = NEAP_SHAPE(y->dim[1], y->dim[2]),
             gates = NEAP_SHAPE(y->dim[0], y->dim[1], 4 * y->dim[2]);
  NEAP_TRY(lstm_expect_shape(c, G_R, NEAP_SHAPE(4 * y->dim[2], y->dim[2]), error));
  NEAP_TRY(lstm_expect_shape(c, G_C0, state, error));
  NEAP_TRY(lstm_expect_shape(c, G_LENGTHS, NEAP_SHAPE(y->dim[1]), error));
  NEAP_TRY(lstm_expect_shape(c, G_GATES, gates, error));
  NEAP_TRY(lstm_expect_shape(c, G_DY, *y, error));
  NEAP_TRY(lstm_expect_shape(c, G_DH, state, error));
  NEAP_TRY(lstm_expect_shape(c, G_DC, state, error));
  c->out[G_DGATES] = (neap_type){c->in[G_CELLS].dtype, gates};
  c->out[G_DH0] = c->out[G_DC0] = (neap_type){c->in[G_CELLS].dtype, state};
  return NEAP_OK;
}

/* The gradient of r (4H,H), from the gates' gradients (T,N,4H) and y (T,N,H). */
static neap_status infer_grad_weight(neap_infer *c, neap_error *error) {
  NEAP_TRY(lstm_expect_dtype(c, W_DGATES, W_LENGTHS, error));
  NEAP_TRY(neap_infer_rank(c, W_DGATES, 3, 3, error));
  NEAP_TRY(neap_infer_rank(c, W_Y, 3, 3, error));
  const neap_shape *y = &c->in[W_Y].shape;
  NEAP_TRY(lstm_expect_shape(c, W_DGATES, NEAP_SHAPE(y->dim[0], y->dim[1], 4 * y->dim[2]), error));
  NEAP_TRY(lstm_expect_shape(c, W_H0, NEAP_SHAPE(y->dim[1], y->dim[2]), error));
  NEAP_TRY(lstm_expect_shape(c, W_LENGTHS, NEAP_SHAPE(y->dim[1]), error));
  c->out[0] = (neap_type){c->in[W_Y].dtype, NEAP_SHAPE(4 * y->dim[2], y->dim[2])};
  return NEAP_OK;
}

static void cost_grad(const neap_infer *c, neap_cost *cost) {
  cost->flops =
    2.0 * (double)neap_shape_elems(&c->out[G_DGATES].shape) * (double)c->in[G_R].shape.dim[1];
}

static void cost_grad_weight(const neap_infer *c, neap_cost *cost) {
  cost->flops =
    2.0 * (double)neap_shape_elems(&c->in[W_DGATES].shape) * (double)c->in[W_Y].shape.dim[2];
}

/* ---- records --------------------------------------------------------------------------------- */

const neap_op neap_op_LSTMGrad = {
  .name = "LSTMGrad",
  .summary = "Backward of LSTM down to its gates and first states.",
  .math = "dgates_t from dy_t, dh and dc; dh = dgates_t r; dc = dc f",
  .internal = true,
  .inputs = {[G_R] = {"r", "(4H,H)"},
             [G_C0] = {"c0", "(N,H)", .flags = NEAP_ARG_OPTIONAL},
             [G_LENGTHS] = LSTM_LENGTHS,
             [G_GATES] = {"gates", "(T,N,4H), of the forward"},
             [G_CELLS] = {"cells", "(T,N,H), likewise"},
             [G_DY] = {"dy", "(T,N,H)", .flags = NEAP_ARG_OPTIONAL},
             [G_DH] = {"dh", "(N,H)", .flags = NEAP_ARG_OPTIONAL},
             [G_DC] = {"dc", "(N,H)", .flags = NEAP_ARG_OPTIONAL}},
  .outputs = {[G_DGATES] = {"dgates", "(T,N,4H), before their activation"},
              [G_DH0] = {"dh0", "(N,H)"},
              [G_DC0] = {"dc0", "(N,H)"}},
  .attrs = {LSTM_ATTRS},
  .inplace = {{G_GATES, G_DGATES}, {G_DH, G_DH0}, {G_DC, G_DC0}},
  .n_inplace = 3,
  .infer = infer_grad,
  .cost = cost_grad,
  .nan = NEAP_NAN_REACHES,
  .infinity = NEAP_INFINITY_OVERFLOWS,
  .empty = NEAP_EMPTY_NONE,
  .sum = NEAP_SUM_LIBRARY,
  .special = "no steps leave the gradients of the states as they were",
  .kernels = NEAP_GEMM_KERNELS(0, choose_grad, run_grad),
  .cases =
    "{ {r={12,3}, gates={4,2,12}, cells={4,2,3}, dy={4,2,3}, dh={2,3}, dc={2,3}}, "
    "{r={12,3}, c0={2,3}, lengths={{2}, dtype=\"i64\", low=1, high=5}, gates={4,2,12}, "
    "cells={4,2,3}, dh={2,3}, reverse=true} }",
  .long_cases = "{ {r={1024,256}, gates={2,1,1024}, cells={2,1,256}, dy={2,1,256}} }",
};

const neap_op neap_op_LSTMGradWeight = {
  .name = "LSTMGradWeight",
  .summary = "Gradient of LSTM with respect to r.",
  .math = "dr (4H,H) = sum_t dgates_t^T h_(t-1)",
  .internal = true,
  .inputs = {[W_DGATES] = {"dgates", "(T,N,4H)"},
             [W_Y] = {"y", "(T,N,H)"},
             [W_H0] = {"h0", "(N,H)", .flags = NEAP_ARG_OPTIONAL},
             [W_LENGTHS] = LSTM_LENGTHS},
  .outputs = {{"dr", "(4H,H)"}},
  .attrs = {LSTM_ATTRS},
  .infer = infer_grad_weight,
  .cost = cost_grad_weight,
  .sum = NEAP_SUM_LIBRARY,
  .kernels = NEAP_GEMM_KERNELS(0, choose_grad_weight, run_grad_weight),
  .cases = "{ {dgates={3,2,12}, y={3,2,3}}, {dgates={3,2,12}, y={3,2,3}, h0={2,3}, reverse=true} }",
  .long_cases = "{ {dgates={512,512,4}, y={{512,512,1}, low=0, high=1}} }",
};
