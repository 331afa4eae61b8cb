/* lstm.c: LSTM over whole sequences, one layer in one direction. Its backward ops: lstm_grad.c; the
 * letters of shapes: lstm_int.h.
 *
 * The inputs' share of the gates, x w^T + b, needs no step before it: it is one large product. The
 * states' share, h r^T, is a small product each step. The large one is made for the whole sequence
 * when the backward will read the gates (outputs `gates`, after their activation, and `cells`),
 * else for a few steps at a time, so that inference needs little scratch. Gates and cells have the
 * same form whatever the engine, and their gradient may take the gates' bytes.
 *
 * The small product uses r over and over. In f32, where units fill whole panels and the sequence is
 * long enough, r comes in panels (math/panels.h; at inference a constant, in training a Reorder
 * each step), at inference w too. Then a thread takes some sequences through all steps, from the
 * products to the cells, or some units of all sequences through one. Else a library makes the
 * products, and the cells follow.
 */
#include "math/panels.h"
#include "ops/lstm_int.h"

#include <inttypes.h>

enum { X, W, R, B, H0, C0, LENGTHS };  /* inputs of LSTM */
enum { Y, H, C, GATES, CELLS, N_OUT }; /* its outputs */
/* choice->algorithm of LSTM: who makes h r^T */
enum { BY_LIBRARY, BY_PANELS };
/* at least, for the panels: fewer do not make up for packing r (which costs as much as one) */
enum { PANELS_STEPS = 8 };
/* Rows of the inputs' product at inference: a library needs many to be busy, panels only enough to
 * use w from the cache. */
enum { CHUNK_ROWS = 256, CHUNK_ROWS_PANELS = 128 };

/* ---- sizes ----------------------------------------------------------------------------------- */

lstm_sizes lstm_sizes_of(const neap_type *y, const neap_attr_value *attrs) {
  /* by order: ifgo, iofg, ifog */
  static const int column[][4] = {{0, 1, 2, 3}, {0, 2, 3, 1}, {0, 1, 3, 2}};
  lstm_sizes s = {.n_step = y->shape.dim[0],
                  .n_seq = y->shape.dim[1],
                  .n_unit = y->shape.dim[2],
                  .dtype = y->dtype};
  s.item_bytes = neap_dtype_bytes(y->dtype);
  s.reverse = attrs[REVERSE].i != 0;
  for (int k = 0; k < 4; k++) s.gate[k] = column[attrs[ORDER].i][k] * s.n_unit;
  return s;
}

int64_t lstm_length_of(const lstm_sizes *s, int64_t seq) {
  if (s->lengths == NULL) return s->n_step;
  int64_t length = neap_element_get_i64(s->lengths->type.dtype, s->lengths->data, seq);
  return length < 0 ? 0 : NEAP_MIN(length, s->n_step);
}

void lstm_start_state(const lstm_sizes *s, void *to, const neap_operand *from) {
  if (from == NULL)
    neap_clear_bytes(to, lstm_state_bytes(s));
  else if (to != from->data)
    neap_copy_bytes(to, from->data, lstm_state_bytes(s));
}

neap_status lstm_expect_dtype(const neap_infer *c, int like, int lengths, neap_error *error) {
  for (int i = 0; i < c->n_in; i++)
    if (i != lengths && c->in[i].dtype != NEAP_DTYPE_NONE && c->in[i].dtype != c->in[like].dtype)
      return neap_infer_fail(c, NEAP_DTYPE, i, error, "%s expects dtype %s, as %s has, got %s",
                             c->op->inputs[i].name, neap_dtype_name(c->in[like].dtype),
                             c->op->inputs[like].name, neap_dtype_name(c->in[i].dtype));
  return NEAP_OK;
}

neap_status lstm_expect_shape(const neap_infer *c, int input, neap_shape want, neap_error *error) {
  char got_text[NEAP_SHAPE_TEXT], want_text[NEAP_SHAPE_TEXT];
  if (input >= c->n_in || c->in[input].dtype == NEAP_DTYPE_NONE ||
      neap_shape_equal(&c->in[input].shape, &want))
    return NEAP_OK;
  return neap_infer_fail(c, NEAP_SHAPE, input, error, "%s expects shape %s, got %s",
                         c->op->inputs[input].name, neap_shape_text(&want, want_text),
                         neap_shape_text(&c->in[input].shape, got_text));
}

/* Of what run keeps at the head of its scratch: see there. */
static size_t first_scratch_bytes(const lstm_sizes *s, bool panels) {
  return neap_align(panels ? lstm_state_bytes(s) : lstm_gates_bytes(s, 1));
}

/* Steps of inputs multiplied at once when nothing keeps the gates. */
static int64_t chunk_steps(const lstm_sizes *s, bool panels) {
  int64_t n_row = panels ? CHUNK_ROWS_PANELS : CHUNK_ROWS,
          n = (n_row + s->n_seq - 1) / NEAP_MAX(s->n_seq, 1);
  return NEAP_MIN(NEAP_MAX(n, 1), NEAP_MAX(s->n_step, 1));
}

/* ---- the cell -------------------------------------------------------------------------------- */

#define NEAP_BODY "ops/lstm_body.h"
#include "math/each_float.h"

/* ---- the sequence ---------------------------------------------------------------------------- */

/* Sizes of LSTM: those that y tells, then D and the lengths. */
static lstm_sizes forward_sizes(const neap_call *call) {
  lstm_sizes s = lstm_sizes_of(&call->out[Y].type, call->attrs);
  s.n_in = call->in[X].type.shape.dim[2];
  s.lengths = lstm_given(call, LENGTHS);
  return s;
}

/* A fault for each length out of [0,T]; the kernel goes on with it clamped. */
static void check_lengths(const neap_call *call, const lstm_sizes *s) {
  if (s->lengths != NULL)
    for (int64_t i = 0; i < s->n_seq; i++) {
      int64_t length = neap_element_get_i64(s->lengths->type.dtype, s->lengths->data, i);
      if (length < 0 || length > s->n_step)
        neap_call_fault(
          call, "length %" PRId64 " of sequence %" PRId64 " is out of range for %" PRId64 " steps",
          length, i + 1, s->n_step);
    }
}

/* What the steps of one forward have in common. */
typedef struct forward {
  const neap_call *call;
  lstm_sizes s;
  bool keeps, panels;
  int64_t chunk; /* steps of inputs multiplied at once */
} forward;

/* The state h before step i in order of computation. With panels it is once the output, once
 * scratch; the last is the output. */
static void *h_at(const forward *f, int64_t i) {
  return f->panels && (f->s.n_step - i) % 2 != 0 ? f->call->scratch : f->call->out[H].data;
}

/* Of the chunk that step i belongs to: its steps, and the first of them in time. */
static int64_t chunk_of(const forward *f, int64_t i, int64_t *first) {
  int64_t from = i - i % f->chunk, n = NEAP_MIN(f->chunk, f->s.n_step - from);
  *first = f->s.reverse ? f->s.n_step - from - n : from;
  return n;
}

/* The gates of time t: all are kept, or those of the chunk that begins at `first`. */
static void *gates_at(const forward *f, int64_t first, int64_t t) {
  if (f->keeps) return lstm_offset(&f->s, f->call->out[GATES].data, t * lstm_gate_row_elems(&f->s));
  char *chunk = (char *)f->call->scratch + first_scratch_bytes(&f->s, f->panels);
  return lstm_offset(&f->s, chunk, (t - first) * lstm_gate_row_elems(&f->s));
}

/* Step i in order of computation. */
static lstm_job forward_job(const forward *f, int64_t i) {
  const neap_call *call = f->call;
  const neap_operand *b = lstm_given(call, B);
  int64_t first, n_state = lstm_state_elems(&f->s);
  chunk_of(f, i, &first);
  /* The state moves from h_before to h. By a library both are the output: h r^T is made before any
   * cell writes. By panels they differ, as other shares may still read the old state. */
  lstm_job k = {.s = &f->s,
                .c = call->out[C].data,
                .h = h_at(f, i + 1),
                .h_before = h_at(f, i),
                .bias = b != NULL ? b->data : NULL};
  k.t = f->s.reverse ? f->s.n_step - 1 - i : i;
  k.gates = gates_at(f, first, k.t);
  k.y = lstm_offset(&f->s, call->out[Y].data, k.t * n_state);
  /* Without a backward nobody keeps the cells: the copy goes over c itself. */
  k.cell = f->keeps ? lstm_offset(&f->s, call->out[CELLS].data, k.t * n_state) : k.c;
  if (!f->panels) k.product = call->scratch;
  return k;
}

/* ---- by a library: products of all sequences, then cells ------------------------------------- */

/* The gates of the chunk of step i become x w^T. */
static void multiply_inputs(const forward *f, int64_t i) {
  int64_t first, n = chunk_of(f, i, &first);
  neap_gemm(f->s.dtype, f->call->choice->engine, false, true, n * f->s.n_seq, 4 * f->s.n_unit,
            f->s.n_in, lstm_offset(&f->s, f->call->in[X].data, first * f->s.n_seq * f->s.n_in),
            f->call->in[W].data, false, gates_at(f, first, first), f->call->n_thread);
}

static void run_by_library(const forward *f) {
  const neap_call *call = f->call;
  for (int64_t i = 0; i < f->s.n_step; i++) {
    if (i % f->chunk == 0) multiply_inputs(f, i);
    lstm_job k = forward_job(f, i);
    /* h r^T (N,4H) goes to scratch; the cells add it to the gates, which hold x w^T */
    neap_gemm(f->s.dtype, call->choice->engine, false, true, f->s.n_seq, 4 * f->s.n_unit,
              f->s.n_unit, k.h_before, call->in[R].data, false, call->scratch, call->n_thread);
    lstm_run_step(&k, f->s.dtype == NEAP_DTYPE_F64 ? forward_f64 : forward_f32, call->n_thread);
  }
}

/* ---- by panels: shares of sequences or of units, from the product to the cell ---------------- */

/* Of every step: these sequences, and these panels of each gate. */
typedef struct share {
  const forward *f;
  int64_t i; /* where steps go one by one */
  int64_t seq, n_seq, panel, n_panel;
} share;

/* The share's gates of the chunk of step i become x w^T. A panel stays in the cache for all steps
 * of the chunk. */
static void share_inputs(const share *p, int64_t i) {
  const lstm_sizes *s = &p->f->s;
  const float *x = p->f->call->in[X].data, *w = p->f->call->in[W].data;
  int64_t first, n = chunk_of(p->f, i, &first), rows = p->n_seq;

  /* Where the share is all sequences, the rows of all steps lie behind each other: one product. */
  if (p->n_seq == s->n_seq) {
    rows *= n;
    n = 1;
  }

  /* x (rows,D) times a panel of w, which holds NEAP_PANEL units of each of the four gates. */
  for (int64_t unit = p->panel * NEAP_PANEL; unit < (p->panel + p->n_panel) * NEAP_PANEL;
       unit += NEAP_PANEL)
    for (int64_t t = first; t < first + n; t++)
      neap_panels_f32(rows, s->n_in, x + (t * s->n_seq + p->seq) * s->n_in, s->n_in,
                      w + unit * s->n_in, s->n_unit * s->n_in, false,
                      (float *)gates_at(p->f, first, t) + p->seq * 4 * s->n_unit + unit,
                      4 * s->n_unit, s->n_unit);
}

/* Step i of the share: its gates, then its cells. */
static void share_step(const share *p, int64_t i) {
  const lstm_sizes *s = &p->f->s;
  lstm_job k = forward_job(p->f, i);
  const float *h = (const float *)k.h_before + p->seq * s->n_unit, *r = p->f->call->in[R].data;
  float *gates = (float *)k.gates + p->seq * 4 * s->n_unit;

  /* gates (N,4H) += h_before (N,H) r^T, for these sequences and panels */
  for (int64_t unit = p->panel * NEAP_PANEL; unit < (p->panel + p->n_panel) * NEAP_PANEL;
       unit += NEAP_PANEL)
    neap_panels_f32(p->n_seq, s->n_unit, h, s->n_unit, r + unit * s->n_unit, s->n_unit * s->n_unit,
                    true, gates + unit, 4 * s->n_unit, s->n_unit);

  /* A cell reads its own four gates only, and these the share has just made. */
  for (int64_t seq = p->seq; seq < p->seq + p->n_seq; seq++)
    cells_f32(&k, seq, p->panel * NEAP_PANEL, p->n_panel * NEAP_PANEL);
}

/* Sequences [begin, end) need no others: all their steps at once. */
static void run_sequences(void *context, int64_t begin, int64_t end) {
  const forward *f = context;
  share part = {.f = f, .seq = begin, .n_seq = end - begin, .n_panel = f->s.n_unit / NEAP_PANEL};
  for (int64_t i = 0; i < f->s.n_step; i++) {
    /* gates that are kept hold x w^T already: run_by_panels made it for all steps */
    if (!f->keeps && i % f->chunk == 0) share_inputs(&part, i);
    share_step(&part, i);
  }
}

/* Panels [begin, end) of step p->i, which needs the states of all units. */
static void run_panels(void *context, int64_t begin, int64_t end) {
  share part = *(const share *)context;
  part.panel = begin;
  part.n_panel = end - begin;
  if (!part.f->keeps && part.i % part.f->chunk == 0) share_inputs(&part, part.i);
  share_step(&part, part.i);
}

/* Enough sequences for all threads: one parallel region. Few: one each step. The sums are the same.
 * Gates that are kept are x w^T for all steps first, which is a library's work: w comes plain
 * then. */
static void run_by_panels(forward *f) {
  enum { LEAST = 1 << 18 }; /* multiply-adds that are worth a thread */
  const lstm_sizes *s = &f->s;
  int n_thread = f->call->n_thread;
  if (s->n_seq == 0 || s->n_step == 0) return;
  if (f->keeps) multiply_inputs(f, 0);

  /* A thread takes its sequences through all steps: nobody waits between two of them. */
  if (s->n_seq >= (int64_t)SHARE * n_thread || n_thread == 1) {
    neap_parallel_for(s->n_seq, SHARE, n_thread, run_sequences, f);
    return;
  }

  /* Each step reads the whole state that the step before has left, so all threads meet there. */
  share all = {.f = f, .n_seq = s->n_seq};
  /* A panel is NEAP_PANEL units of each of the four gates: so many multiply-adds a step. */
  int64_t grain = LEAST / NEAP_MAX(4 * NEAP_PANEL * s->n_unit * s->n_seq, 1) + 1;
  for (all.i = 0; all.i < s->n_step; all.i++)
    neap_parallel_for(s->n_unit / NEAP_PANEL, grain, n_thread, run_panels, &all);
}

/* scratch, first: h r^T (N,4H), or with panels a second h (N,H). Then, where nobody reads the
 * gates, those of one chunk. */
static void run(const neap_call *call) {
  forward f = {.call = call, .s = forward_sizes(call), .keeps = call->n_out == N_OUT};
  f.panels = call->choice->algorithm == BY_PANELS;
  f.chunk = f.keeps ? NEAP_MAX(f.s.n_step, 1) : chunk_steps(&f.s, f.panels);
  check_lengths(call, &f.s);

  /* The outputs h and c are the state while it is computed, and at the end what is asked for. */
  lstm_start_state(&f.s, h_at(&f, 0), lstm_given(call, H0));
  lstm_start_state(&f.s, call->out[C].data, lstm_given(call, C0));

  if (f.panels)
    run_by_panels(&f);
  else
    run_by_library(&f);
}

/* ---- choose ---------------------------------------------------------------------------------- */

static bool keeps_gates(const neap_choose *c) { return c->n_out == N_OUT; }

/* Whether the weights come in panels: f32, whole panels, and enough steps to make up for packing.
 * The panels are operands, not scratch; but who limits scratch wants no megabytes more for a little
 * time, where they are not held as constants anyway. */
static bool takes_panels(const neap_choose *c) {
  const neap_type *r = &c->in[R];
  int64_t n_unit = r->shape.dim[1];
  if (c->choice->engine == NEAP_ENGINE_REF || c->plain || r->dtype != NEAP_DTYPE_F32 ||
      n_unit == 0 || n_unit % NEAP_PANEL != 0)
    return false;
  /* Where a choice made for larger operands is given, its algorithm is this one's too. */
  if (c->like != NULL) return c->like->algorithm == BY_PANELS;
  size_t bytes = neap_type_bytes(r) + (keeps_gates(c) ? 0 : neap_type_bytes(&c->in[W]));
  return c->in[X].shape.dim[0] >= PANELS_STEPS && (!c->train || bytes <= c->scratch_limit);
}

static bool choose(neap_choose *c) {
  lstm_sizes s = lstm_sizes_of(&c->out[Y], c->attrs);
  bool panels = takes_panels(c);

  /* What is not taken is named beside it: plan:kernels() runs both and says how they compare. */
  c->choice->algorithm = panels ? BY_PANELS : BY_LIBRARY;
  c->choice->how = panels ? "panels" : "library";
  c->choice->other = panels ? "library" : "panels";
  c->choice->other_work = 1;
  c->choice->why = panels ? "steps enough to make up for packing the weights"
                          : "packing the weights would not pay, or not fit";
  if (panels) c->choice->in[R] = neap_panels_layout();
  if (panels && !keeps_gates(c)) c->choice->in[W] = neap_panels_layout();
  c->choice->scratch_bytes = first_scratch_bytes(&s, panels) +
                             (keeps_gates(c) ? 0 : lstm_gates_bytes(&s, chunk_steps(&s, panels)));
  return true;
}

/* ---- inference ------------------------------------------------------------------------------- */

/* x (T,N,D), w (4H,D), r (4H,H), b (4H), states (N,H), lengths (N). y (T,N,H), last states (N,H);
 * for the backward the gates (T,N,4H) and the cells (T,N,H). */
static neap_status infer(neap_infer *c, neap_error *error) {
  char text[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_rank(c, X, 3, 3, error));
  NEAP_TRY(neap_infer_rank(c, W, 2, 2, error));
  const neap_shape *x = &c->in[X].shape, *w = &c->in[W].shape;
  if (w->dim[0] % 4 != 0)
    return neap_infer_fail(c, NEAP_SHAPE, W, error, "w expects four rows for each unit, got %s",
                           neap_shape_text(w, text));
  NEAP_TRY(lstm_expect_dtype(c, X, LENGTHS, error));

  /* T, N and D are x's; H follows from w. All else must agree with these. */
  int64_t n_step = x->dim[0], n_seq = x->dim[1], n_unit = w->dim[0] / 4;
  NEAP_TRY(lstm_expect_shape(c, W, NEAP_SHAPE(4 * n_unit, x->dim[2]), error));
  NEAP_TRY(lstm_expect_shape(c, R, NEAP_SHAPE(4 * n_unit, n_unit), error));
  NEAP_TRY(lstm_expect_shape(c, B, NEAP_SHAPE(4 * n_unit), error));
  NEAP_TRY(lstm_expect_shape(c, H0, NEAP_SHAPE(n_seq, n_unit), error));
  NEAP_TRY(lstm_expect_shape(c, C0, NEAP_SHAPE(n_seq, n_unit), error));
  NEAP_TRY(lstm_expect_shape(c, LENGTHS, NEAP_SHAPE(n_seq), error));

  /* Gates and cells are outputs of a forward only whose backward will run. */
  c->out[Y] = (neap_type){c->in[X].dtype, NEAP_SHAPE(n_step, n_seq, n_unit)};
  c->out[H] = c->out[C] = (neap_type){c->in[X].dtype, NEAP_SHAPE(n_seq, n_unit)};
  if (c->n_out > GATES)
    c->out[GATES] = (neap_type){c->in[X].dtype, NEAP_SHAPE(n_step, n_seq, 4 * n_unit)};
  if (c->n_out > CELLS) c->out[CELLS] = c->out[Y];
  return NEAP_OK;
}

/* The products; the cells' own work is a few per cent of them. */
static void cost(const neap_infer *c, neap_cost *cost) {
  const neap_shape *y = &c->out[Y].shape;
  cost->flops = 8.0 * (double)neap_shape_elems(y) * (double)(c->in[X].shape.dim[2] + y->dim[2]);
}

/* ---- gradient -------------------------------------------------------------------------------- */

static neap_value_id in_or_none(const neap_grad *g, int input) {
  return input < g->n_in ? g->in[input] : NEAP_NO_VALUE;
}
static bool wants(const neap_grad *g, int input) { return input < g->n_in && g->want[input]; }

/* The gates' gradient once, step by step; from it those of x, w and b, which are those of a fully
 * connected layer over all T N rows, and that of r. */
static neap_status grad(neap_grad *g, neap_error *error) {
  if (g->n_out < N_OUT)
    return neap_fail(error, NEAP_GRAPH, "the backward needs the outputs gates and cells");
  if (g->dout[GATES] != NEAP_NO_VALUE || g->dout[CELLS] != NEAP_NO_VALUE)
    return neap_fail(error, NEAP_GRAPH, "no gradient is defined through gates and cells");
  neap_type x = neap_grad_type(g, g->in[X]);
  neap_value_id lengths = in_or_none(g, LENGTHS), in[G_N_IN], d[G_N_OUT], dwb[2];

  /* dgates (T,N,4H), before their activation, and the gradients of the first states. */
  in[G_R] = g->in[R];
  in[G_C0] = in_or_none(g, C0);
  in[G_LENGTHS] = lengths;
  in[G_GATES] = g->out[GATES];
  in[G_CELLS] = g->out[CELLS];
  in[G_DY] = g->dout[Y];
  in[G_DH] = g->dout[H];
  in[G_DC] = g->dout[C];
  neap_grad_emit(g, "LSTMGrad", G_N_IN, in, G_N_OUT, d, g, NULL);

  /* The gates before their activation are x w^T + b + h r^T. */
  if (wants(g, X))
    g->din[X] =
      neap_grad_emit1(g, "FCGradInput", 2, (neap_value_id[]){d[G_DGATES], g->in[W]}, NULL,
                      (neap_set[]){NEAP_SET_INTS("shape", x.shape.n_dim, x.shape.dim), {0}});
  if (wants(g, W) || wants(g, B)) {
    neap_grad_emit(g, "FCGradWeight", 2, (neap_value_id[]){g->in[X], d[G_DGATES]},
                   wants(g, B) ? 2 : 1, dwb, NULL, NULL);
    g->din[W] = dwb[0];
    if (wants(g, B)) g->din[B] = dwb[1];
  }
  if (wants(g, R))
    g->din[R] = neap_grad_emit1(
      g, "LSTMGradWeight", W_N_IN,
      (neap_value_id[]){d[G_DGATES], g->out[Y], in_or_none(g, H0), lengths}, g, NULL);

  if (wants(g, H0)) g->din[H0] = d[G_DH0];
  if (wants(g, C0)) g->din[C0] = d[G_DC0];
  return NEAP_OK;
}

/* ---- record ---------------------------------------------------------------------------------- */

const neap_op neap_op_LSTM = {
  .name = "LSTM",
  .summary = "Long short-term memory over whole sequences, time first: one layer, one direction.",
  .math = "[i f g o] = x_t w^T + h r^T + b;  c = s(f) c + s(i) tanh(g);  h = y_t = s(o) tanh(c)",
  .example = "net:LSTM({\"x\", \"w\", \"r\", \"b\"}, {\"y\", \"h\", \"c\"})",
  .source =
    "Hochreiter and Schmidhuber, Neural Computation 1997; forget gate: Gers et al., 2000; ONNX "
    "LSTM-14 without peepholes",
  .inputs = {[X] = {"x", "(T,N,D)"},
             [W] = {"w", "(4H,D), of the inputs"},
             [R] = {"r", "(4H,H), of the states"},
             [B] = {"b", "(4H); of two biases (PyTorch, ONNX) the sum", .flags = NEAP_ARG_OPTIONAL},
             [H0] = {"h0", "(N,H); 0 without", .flags = NEAP_ARG_OPTIONAL},
             [C0] = {"c0", "(N,H); 0 without", .flags = NEAP_ARG_OPTIONAL},
             [LENGTHS] = LSTM_LENGTHS},
  .outputs = {[Y] = {"y", "(T,N,H)"},
              [H] = {"h", "(N,H), after each sequence's last step"},
              [C] = {"c", "(N,H), likewise"},
              [GATES] = {"gates", "(T,N,4H), for the backward", .flags = NEAP_ARG_OPTIONAL},
              [CELLS] = {"cells", "(T,N,H), likewise", .flags = NEAP_ARG_OPTIONAL}},
  .attrs = {LSTM_ATTRS},
  .inplace = {{H0, H}, {C0, C}},
  .n_inplace = 2,
  .effects = NEAP_EFFECT_FAULT,
  .infer = infer,
  .cost = cost,
  .grad = grad,
  .nan = NEAP_NAN_REACHES,
  .empty = NEAP_EMPTY_NONE,
  .sum = NEAP_SUM_LIBRARY,
  .special = "no steps leave the states as they were",
  .mixed = NEAP_MIXED_HALF,
  .kernels = NEAP_GEMM_KERNELS(0, choose, run),
  .cases =
    "{ {x={3,2,4}, w={12,4}, r={12,3}, b={12}}, {x={3,2,4}, w={20,4}, r={20,5}, h0={2,5}, "
    "c0={2,5}, reverse=true}, "
    "{x={4,3,2}, w={12,2}, r={12,3}, b={12}, h0={3,3}, c0={3,3}, lengths={{3}, dtype=\"i64\", "
    "low=0, high=5}}, "
    "{x={4,3,2}, w={12,2}, r={12,3}, b={12}, h0={3,3}, c0={3,3}, lengths={{3}, dtype=\"i32\", "
    "low=1, high=5}, reverse=true}, "
    "{x={2,3,5}, w={8,5}, r={8,2}, b={8}, order=\"iofg\"}, {x={2,3,5}, w={8,5}, r={8,2}, c0={3,2}, "
    "order=\"ifog\"}, "
    "{x={0,3,5}, w={8,5}, r={8,2}, h0={3,2}}, {x={3,140,20}, w={40,20}, r={40,10}, b={40}}, "
    "{x={8,2,3}, w={64,3}, r={64,16}, b={64}, h0={2,16}, grad=false}, "
    "{x={9,13,5}, w={128,5}, r={128,32}, c0={13,32}, lengths={{13}, dtype=\"i64\", low=0, "
    "high=10}, reverse=true, grad=false}, "
    "{x={8,70,4}, w={64,4}, r={64,16}, h0={70,16}, lengths={{70}, dtype=\"i32\", low=0, high=9}, "
    "order=\"iofg\", grad=false} }",
  .long_cases = "{ {x={{1,1,262144}, low=1e-4, high=1e-4}, w={4,262144}, r={4,1}, b={4}} }",
};
