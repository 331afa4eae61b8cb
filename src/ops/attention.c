/* attention.c: Attention and PackedAttention and their backward ops. The work is in
 * math/attention.c; here stand the shapes.
 *
 * One interface, three forms. Attention with heads = 0 takes q (B,H,T,D), k (B,G,S,D), v (B,G,S,E);
 * with heads = H it takes q (B,T,H D), k (B,S,G D), v (B,S,G E), as a linear layer leaves them.
 * PackedAttention takes one qkv (B,T,3 H D). The kernels read all three through strides, so no form
 * needs a copy or a Permute.
 *
 * Saved for the backward beside q, k, v and y: one number a row, the log of its sum of exp, in f32
 * where q is bf16 or f16: the probabilities come back as exp of a difference from it.
 */
#include "math/attention.h"
#include "ops/attention_twice.h"
#include "ops/dnnl.h"
#include "ops/tile.h"

#include <math.h>

enum { CAUSAL, SCALE, HEADS };
enum { Q, K, V, MASK };        /* Attention's inputs */
enum { P_QKV, P_MASK };        /* PackedAttention's */
enum { Y = 4, LSE, DY };       /* AttentionGrad: q, k, v, mask, y, lse, dy */
enum { P_Y = 2, P_LSE, P_DY }; /* PackedAttentionGrad: qkv, mask, y, lse, dy */

/* ---- sizes ----------------------------------------------------------------------------------- */

/* (B,H,T,D), or (B,T,H D) seen so. */
static neap_attention_view view_of(const neap_shape *x, int64_t heads) {
  if (heads == 0)
    return (neap_attention_view){NULL, x->dim[1] * x->dim[2] * x->dim[3], x->dim[2] * x->dim[3],
                                 x->dim[3]};
  return (neap_attention_view){NULL, x->dim[1] * x->dim[2], x->dim[2] / heads, x->dim[2]};
}

/* Fills sizes, strides and attributes from types. INVARIANT: infer has checked them, or checks what
 * comes out. */
static neap_attention sizes_of(const neap_type *q, const neap_type *k, const neap_type *v,
                               const neap_attr_value *attrs) {
  int64_t heads = attrs[HEADS].i;
  neap_attention a = {
    .dtype = q->dtype, .causal = attrs[CAUSAL].i != 0, .n_batch = q->shape.dim[0]};
  const bool rows = heads > 0;
  if (rows) {
    /* The head lies within a row, (B,T,H D): k and v have as many heads as D and E fit in. */
    a.n_head = heads;
    a.depth = q->shape.dim[2] / heads;
    a.n_key_head = a.depth == 0 ? 1 : k->shape.dim[2] / a.depth;
    a.value_depth = a.n_key_head == 0 ? 0 : v->shape.dim[2] / a.n_key_head;
    a.n_query = q->shape.dim[1];
    a.n_key = k->shape.dim[1];
  } else {
    /* The head is a dimension of its own, (B,H,T,D). */
    a.n_head = q->shape.dim[1];
    a.depth = q->shape.dim[3];
    a.n_key_head = k->shape.dim[1];
    a.value_depth = v->shape.dim[3];
    a.n_query = q->shape.dim[2];
    a.n_key = k->shape.dim[2];
  }
  a.scale = attrs[SCALE].given ? attrs[SCALE].f : neap_attention_default_scale(a.depth);
  /* A gradient has the shape of what it is of. */
  a.q = a.dq = view_of(&q->shape, rows ? a.n_head : 0);
  a.k = a.dk = view_of(&k->shape, rows ? a.n_key_head : 0);
  a.v = a.dv = view_of(&v->shape, rows ? a.n_key_head : 0);
  /* y is as deep as v, and has q's heads and rows. */
  a.y = a.dy = rows ? (neap_attention_view){NULL, a.n_query * a.n_head * a.value_depth,
                                            a.value_depth, a.n_head * a.value_depth}
                    : (neap_attention_view){NULL, a.n_head * a.n_query * a.value_depth,
                                            a.n_query * a.value_depth, a.value_depth};
  return a;
}

/* The same for qkv (B,T,3 H D). q, k and v share one row, so they have the same strides; set_thirds
 * says where each begins. */
static neap_attention packed_sizes_of(const neap_type *qkv, const neap_attr_value *attrs) {
  int64_t n_batch = qkv->shape.dim[0], length = qkv->shape.dim[1], width = qkv->shape.dim[2] / 3,
          heads = attrs[HEADS].i;
  neap_attention a = {.dtype = qkv->dtype,
                      .causal = attrs[CAUSAL].i != 0,
                      .n_batch = n_batch,
                      .n_head = heads,
                      .n_key_head = heads,
                      .n_query = length,
                      .n_key = length,
                      .depth = width / heads,
                      .value_depth = width / heads};
  a.scale = attrs[SCALE].given ? attrs[SCALE].f : neap_attention_default_scale(a.depth);
  a.q = a.k = a.v = a.dq = a.dk = a.dv =
    (neap_attention_view){NULL, length * 3 * width, a.depth, 3 * width};
  a.y = a.dy = (neap_attention_view){NULL, length * width, a.depth, width};
  return a;
}

/* Steps of a mask that broadcasts to (B,H,T,S). */
static void set_mask(neap_attention *a, const neap_operand *mask) {
  if (mask->data == NULL) return;
  int64_t stride[NEAP_MAX_DIM];
  const neap_shape *s = &mask->type.shape;
  neap_shape_strides(s, stride);
  a->mask = mask->data;
  a->mask_is_bool = mask->type.dtype == NEAP_DTYPE_BOOL;
  /* Dimensions are aligned at the last; one of a single element is read again and again. */
  for (int d = 0; d < 4; d++) {
    int from = d - (4 - s->n_dim);
    a->mask_step[d] = from >= 0 && s->dim[from] != 1 ? stride[from] : 0;
  }
}

/* A mask is bool or of the operands' dtype, and broadcasts to the scores (B,H,T,S) without
 * enlarging them. */
static neap_status check_mask(const neap_infer *c, int input, const neap_attention *a,
                              neap_error *error) {
  if (input >= c->n_in || c->in[input].dtype == NEAP_DTYPE_NONE) return NEAP_OK;
  const neap_type *mask = &c->in[input];
  neap_shape scores = NEAP_SHAPE(a->n_batch, a->n_head, a->n_query, a->n_key), both;
  char text[NEAP_SHAPE_TEXT], want[NEAP_SHAPE_TEXT];
  if (mask->dtype != NEAP_DTYPE_BOOL && mask->dtype != a->dtype)
    return neap_infer_fail(c, NEAP_DTYPE, input, error, "mask expects bool or %s, got %s",
                           neap_dtype_name(a->dtype), neap_dtype_name(mask->dtype));
  /* Broadcast, the scores must stay as they are: a mask can't make more of them. */
  if (!neap_shape_broadcast(&mask->shape, &scores, &both) || !neap_shape_equal(&both, &scores))
    return neap_infer_fail(c, NEAP_SHAPE, input, error,
                           "mask %s does not broadcast to the scores %s",
                           neap_shape_text(&mask->shape, text), neap_shape_text(&scores, want));
  return NEAP_OK;
}

/* ---- infer ----------------------------------------------------------------------------------- */

/* (B,H,T) */
static neap_type lse_type(const neap_attention *a) {
  return (neap_type){neap_compute_dtype(a->dtype), NEAP_SHAPE(a->n_batch, a->n_head, a->n_query)};
}

/* y (B,H,T,E) or (B,T,H E), and lse (B,H,T) where asked for. H is a multiple of G: several heads of
 * q may share one of k and v. */
static neap_status infer(neap_infer *c, neap_error *error) {
  int64_t heads = c->attrs[HEADS].i;
  int rank = heads > 0 ? 3 : 4;
  char text[3][NEAP_SHAPE_TEXT];
  const neap_shape *q = &c->in[Q].shape, *k = &c->in[K].shape, *v = &c->in[V].shape;
  /* k and v are read by the same kernel as q: one rank and one dtype for the three. */
  for (int i = Q; i <= V; i++) {
    NEAP_TRY(neap_infer_rank(c, i, rank, rank, error));
    if (c->in[i].dtype != c->in[Q].dtype)
      return neap_infer_fail(c, NEAP_DTYPE, i, error,
                             "q, k and v must have one dtype, got %s and %s",
                             neap_dtype_name(c->in[Q].dtype), neap_dtype_name(c->in[i].dtype));
  }
  /* Before sizes, which divide by what is checked here. */
  if (heads > 0 && q->dim[2] % heads != 0)
    return neap_infer_fail(c, NEAP_SHAPE, Q, error,
                           "q %s has a width that %lld heads do not share evenly",
                           neap_shape_text(q, text[0]), (long long)heads);
  neap_attention a = sizes_of(&c->in[Q], &c->in[K], &c->in[V], c->attrs);
  /* Sizes were read off one operand each: the others must say the same. */
  bool fits = k->dim[0] == a.n_batch && v->dim[0] == a.n_batch && a.depth > 0 && a.n_key_head > 0 &&
              a.n_head % a.n_key_head == 0;
  if (heads > 0)
    fits = fits && k->dim[2] == a.n_key_head * a.depth && v->dim[1] == a.n_key &&
           v->dim[2] == a.n_key_head * a.value_depth;
  else
    fits = fits && k->dim[3] == a.depth && v->dim[1] == a.n_key_head && v->dim[2] == a.n_key;
  if (!fits)
    return neap_infer_fail(c, NEAP_SHAPE, K, error, "q %s, k %s and v %s do not fit together",
                           neap_shape_text(q, text[0]), neap_shape_text(k, text[1]),
                           neap_shape_text(v, text[2]));
  /* The scores have a shape only now. */
  NEAP_TRY(check_mask(c, MASK, &a, error));

  /* y has q's heads and rows, and the depth of v. */
  c->out[0] = c->in[Q];
  if (heads > 0)
    c->out[0].shape.dim[2] = a.n_head * a.value_depth;
  else
    c->out[0].shape.dim[3] = a.value_depth;
  if (c->n_out > 1) c->out[1] = lse_type(&a);
  return NEAP_OK;
}

/* y (B,T,H D), and lse (B,H,T) where asked for. */
static neap_status infer_packed(neap_infer *c, neap_error *error) {
  const neap_shape *x = &c->in[P_QKV].shape;
  int64_t heads = c->attrs[HEADS].i;
  char text[NEAP_SHAPE_TEXT];
  NEAP_TRY(neap_infer_rank(c, P_QKV, 3, 3, error));
  if (heads < 1)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, P_QKV, error, "heads expects 1 or more, got %lld",
                           (long long)heads);
  if (x->dim[2] == 0 || x->dim[2] % (3 * heads) != 0)
    return neap_infer_fail(c, NEAP_SHAPE, P_QKV, error,
                           "qkv %s expects a width that 3 x %lld heads share evenly",
                           neap_shape_text(x, text), (long long)heads);
  /* Heads divide the width by now, which sizes count on. */
  neap_attention a = packed_sizes_of(&c->in[P_QKV], c->attrs);
  NEAP_TRY(check_mask(c, P_MASK, &a, error));
  c->out[0] = c->in[P_QKV];
  c->out[0].shape.dim[2] = x->dim[2] / 3;
  if (c->n_out > 1) c->out[1] = lse_type(&a);
  return NEAP_OK;
}

/* (B,H,T,S): the mask's gradient has it whole, whatever the mask's own shape. */
static neap_type scores_type(const neap_attention *a) {
  return (neap_type){a->dtype, NEAP_SHAPE(a->n_batch, a->n_head, a->n_query, a->n_key)};
}

extern const neap_op neap_op_Attention, neap_op_PackedAttention;

/* y, lse and dy are what the forward gives for these inputs: the forward, asked again, says so. */
static neap_status expect_forward(const neap_infer *c, const neap_op *forward, int n_in, int y,
                                  neap_error *error) {
  neap_type out[2] = {{0}};
  NEAP_TRY(neap_infer_forward(c, forward, n_in, c->in, 2, out, error));
  NEAP_TRY(neap_infer_expect(c, y, &out[0], error));
  NEAP_TRY(neap_infer_expect(c, y + 1, &out[1], error));
  return neap_infer_expect(c, y + 2, &out[0], error);
}

static neap_status infer_grad(neap_infer *c, neap_error *error) {
  NEAP_TRY(expect_forward(c, &neap_op_Attention, MASK + 1, Y, error));
  for (int i = Q; i <= V; i++) c->out[i] = c->in[i];
  neap_attention a = sizes_of(&c->in[Q], &c->in[K], &c->in[V], c->attrs);
  if (c->n_out > 3) c->out[3] = scores_type(&a);
  return NEAP_OK;
}

static neap_status infer_packed_grad(neap_infer *c, neap_error *error) {
  NEAP_TRY(expect_forward(c, &neap_op_PackedAttention, P_MASK + 1, P_Y, error));
  c->out[0] = c->in[P_QKV];
  neap_attention a = packed_sizes_of(&c->in[P_QKV], c->attrs);
  if (c->n_out > 1) c->out[1] = scores_type(&a);
  return NEAP_OK;
}

/* ---- cost: of the scores and what is made of them; causal attention does half ---------------- */

/* Two flops for each multiply and add of q k^T, which is D deep, and of the weights times v, which
 * is E wide. */
static double products(const neap_attention *a) {
  double pairs = (double)(a->n_batch * a->n_head) * (double)a->n_query * (double)a->n_key *
                 (a->causal ? 0.5 : 1);
  return 2 * pairs * (double)(a->depth + a->value_depth);
}

static void cost_forward(const neap_infer *c, neap_cost *cost) {
  neap_attention a = sizes_of(&c->in[Q], &c->in[K], &c->in[V], c->attrs);
  cost->flops = products(&a);
}

/* The backward has five products for the forward's two. */
static void cost_backward(const neap_infer *c, neap_cost *cost) {
  neap_attention a = sizes_of(&c->in[Q], &c->in[K], &c->in[V], c->attrs);
  cost->flops = 2.5 * products(&a);
}

static void cost_packed_forward(const neap_infer *c, neap_cost *cost) {
  neap_attention a = packed_sizes_of(&c->in[P_QKV], c->attrs);
  cost->flops = products(&a);
}

static void cost_packed_backward(const neap_infer *c, neap_cost *cost) {
  neap_attention a = packed_sizes_of(&c->in[P_QKV], c->attrs);
  cost->flops = 2.5 * products(&a);
}

/* ---- choose and run -------------------------------------------------------------------------- */

/* The scratch grows with the threads, since each part of the work has its own. */
static bool set_scratch(neap_choose *c, neap_attention a, bool backward) {
  /* The plain loops need other room than tiles do. */
  a.engine = c->choice->engine;
  a.n_part = c->choice->n_thread;
  c->choice->scratch_bytes = neap_attention_scratch_bytes(&a, backward);
  return true;
}

static bool choose(neap_choose *c) {
  return set_scratch(c, sizes_of(&c->in[Q], &c->in[K], &c->in[V], c->attrs), false);
}
static bool choose_grad(neap_choose *c) {
  return set_scratch(c, sizes_of(&c->in[Q], &c->in[K], &c->in[V], c->attrs), true);
}
static bool choose_packed(neap_choose *c) {
  return set_scratch(c, packed_sizes_of(&c->in[P_QKV], c->attrs), false);
}
static bool choose_packed_grad(neap_choose *c) {
  return set_scratch(c, packed_sizes_of(&c->in[P_QKV], c->attrs), true);
}

static void set_common(neap_attention *a, const neap_call *call) {
  a->engine = call->choice->engine;
  a->n_part = call->choice->n_thread;
  a->scratch = call->scratch;
}

/* q, k and v side by side in one row of `packed`. */
static void set_thirds(const neap_attention *a, void *packed, neap_attention_view *q,
                       neap_attention_view *k, neap_attention_view *v) {
  size_t third = (size_t)(a->n_head * a->depth) * neap_dtype_bytes(a->dtype);
  q->data = packed;
  k->data = (char *)packed + third;
  v->data = (char *)packed + 2 * third;
}

static void run(const neap_call *call) {
  neap_attention a = sizes_of(&call->in[Q].type, &call->in[K].type, &call->in[V].type, call->attrs);
  set_common(&a, call);
  a.q.data = call->in[Q].data, a.k.data = call->in[K].data, a.v.data = call->in[V].data,
  a.y.data = call->out[0].data;
  if (call->n_in > MASK) set_mask(&a, &call->in[MASK]);
  if (call->n_out > 1) a.lse = call->out[1].data;
  neap_attention_forward(&a);
}

static void run_packed(const neap_call *call) {
  neap_attention a = packed_sizes_of(&call->in[P_QKV].type, call->attrs);
  set_common(&a, call);
  set_thirds(&a, call->in[P_QKV].data, &a.q, &a.k, &a.v);
  a.y.data = call->out[0].data;
  if (call->n_in > P_MASK) set_mask(&a, &call->in[P_MASK]);
  if (call->n_out > 1) a.lse = call->out[1].data;
  neap_attention_forward(&a);
}

static void run_grad(const neap_call *call) {
  neap_attention a = sizes_of(&call->in[Q].type, &call->in[K].type, &call->in[V].type, call->attrs);
  set_common(&a, call);
  a.q.data = call->in[Q].data, a.k.data = call->in[K].data, a.v.data = call->in[V].data;
  a.y.data = call->in[Y].data, a.lse = call->in[LSE].data, a.dy.data = call->in[DY].data;
  a.dq.data = call->out[Q].data, a.dk.data = call->out[K].data, a.dv.data = call->out[V].data;
  set_mask(&a, &call->in[MASK]);
  if (call->n_out > 3) a.dmask = call->out[3].data;
  neap_attention_backward(&a);
}

static void run_packed_grad(const neap_call *call) {
  neap_attention a = packed_sizes_of(&call->in[P_QKV].type, call->attrs);
  set_common(&a, call);
  set_thirds(&a, call->in[P_QKV].data, &a.q, &a.k, &a.v);
  set_thirds(&a, call->out[0].data, &a.dq, &a.dk, &a.dv);
  a.y.data = call->in[P_Y].data, a.lse = call->in[P_LSE].data, a.dy.data = call->in[P_DY].data;
  set_mask(&a, &call->in[P_MASK]);
  if (call->n_out > 1) a.dmask = call->out[1].data;
  neap_attention_backward(&a);
}

/* ---- gradient -------------------------------------------------------------------------------- */

/* Inputs x (n_x of them), mask, y, lse, dy; outputs dx and, where wanted, the mask's gradient over
 * all scores, summed back to the mask's shape. */
static neap_status emit_grad(neap_grad *g, const char *op, int n_x, neap_error *error) {
  if (g->n_out < 2) return neap_fail(error, NEAP_GRAPH, "the backward needs the output lse");
  if (g->dout[1] != NEAP_NO_VALUE)
    return neap_fail(error, NEAP_GRAPH, "no gradient is defined through lse");
  /* A bool mask wants none: it is no float. Of an absent one nothing is asked. */
  bool has_mask = g->n_in > n_x && g->in[n_x] != NEAP_NO_VALUE,
       want_mask = has_mask && g->want[n_x];
  neap_value_id in[7], out[4];
  for (int i = 0; i < n_x; i++) in[i] = g->in[i];
  in[n_x] = has_mask ? g->in[n_x] : NEAP_NO_VALUE;
  in[n_x + 1] = g->out[0];
  in[n_x + 2] = g->out[1];
  in[n_x + 3] = g->dout[0];
  /* One op for all of them, since each needs the scores again. */
  neap_grad_emit(g, op, n_x + 4, in, n_x + (want_mask ? 1 : 0), out, g, NULL);
  for (int i = 0; i < n_x; i++) g->din[i] = out[i];
  if (want_mask) g->din[n_x] = neap_grad_reduce_to(g, out[n_x], g->in[n_x]);
  return NEAP_OK;
}

static neap_status grad(neap_grad *g, neap_error *error) {
  return emit_grad(g, "AttentionGrad", 3, error);
}
static neap_status grad_packed(neap_grad *g, neap_error *error) {
  return emit_grad(g, "PackedAttentionGrad", 1, error);
}

/* Twice: of the backward. Its y and lse follow from the others. */
static neap_status grad_twice(neap_grad *g, neap_error *error) {
  (void)error;
  neap_type q = neap_grad_type(g, g->in[Q]), k = neap_grad_type(g, g->in[K]),
            v = neap_grad_type(g, g->in[V]);
  neap_attention a = sizes_of(&q, &k, &v, g->attrs);
  neap_attention_twice t = {
    .q = g->in[Q],
    .k = g->in[K],
    .v = g->in[V],
    .mask = g->in[MASK],
    .lse = g->in[LSE],
    .dy = g->in[DY],
    .of_dq = g->dout[Q],
    .of_dk = g->dout[K],
    .of_dv = g->dout[V],
    .of_dscores = g->n_out > 3 ? g->dout[3] : NEAP_NO_VALUE,
    .heads = g->attrs[HEADS].i,
    .n_head = a.n_head,
    .n_key_head = a.n_key_head,
    .scale = a.scale,
    .causal = a.causal,
  };
  neap_attention_grad_twice(g, &t);
  g->din[Q] = t.dq, g->din[K] = t.dk, g->din[V] = t.dv, g->din[DY] = t.ddy;
  if (g->want[MASK] && t.dmask != NEAP_NO_VALUE)
    g->din[MASK] = neap_grad_reduce_to(g, t.dmask, g->in[MASK]);
  return NEAP_OK;
}

/* The same of qkv, in thirds. */
static neap_status grad_packed_twice(neap_grad *g, neap_error *error) {
  (void)error;
  neap_type qkv = neap_grad_type(g, g->in[P_QKV]);
  neap_attention a = packed_sizes_of(&qkv, g->attrs);
  /* q, k and v as values of their own, and what arrives for each; at the end they are one again. */
  const neap_set thirds[] = {NEAP_SET_INT("axis", 2), {0}};
  neap_value_id in[3], of[3] = {NEAP_NO_VALUE, NEAP_NO_VALUE, NEAP_NO_VALUE};
  neap_grad_emit(g, "Split", 1, &g->in[P_QKV], 3, in, NULL, thirds);
  if (g->dout[0] != NEAP_NO_VALUE) neap_grad_emit(g, "Split", 1, &g->dout[0], 3, of, NULL, thirds);
  neap_attention_twice t = {
    .q = in[0],
    .k = in[1],
    .v = in[2],
    .mask = g->in[P_MASK],
    .lse = g->in[P_LSE],
    .dy = g->in[P_DY],
    .of_dq = of[0],
    .of_dk = of[1],
    .of_dv = of[2],
    .of_dscores = g->n_out > 1 ? g->dout[1] : NEAP_NO_VALUE,
    .heads = a.n_head,
    .n_head = a.n_head,
    .n_key_head = a.n_head,
    .scale = a.scale,
    .causal = a.causal,
  };
  neap_attention_grad_twice(g, &t);
  /* The three gradients come together or not at all. */
  if (t.dq == NEAP_NO_VALUE || t.dv == NEAP_NO_VALUE) return NEAP_OK;
  g->din[P_QKV] =
    neap_grad_emit1(g, "Concat", 3, (neap_value_id[]){t.dq, t.dk, t.dv}, NULL, thirds);
  g->din[P_DY] = t.ddy;
  if (g->want[P_MASK] && t.dmask != NEAP_NO_VALUE)
    g->din[P_MASK] = neap_grad_reduce_to(g, t.dmask, g->in[P_MASK]);
  return NEAP_OK;
}

/* ---- records --------------------------------------------------------------------------------- */

#define MASK_ARG                                                                  \
  {                                                                               \
    "mask", "broadcasts to (B,H,T,S): bool, true = sees; or added to the scores", \
      NEAP_FLOATS | NEAP_BIT(BOOL), NEAP_ARG_OPTIONAL                             \
  }
#define ATTRS(heads_value, heads_least)                                           \
  [CAUSAL] = {"causal", "query i sees keys 1 to i", NEAP_ATTR_BOOL},              \
  [SCALE] = {"scale", "of the scores; 1/sqrt(D) when not given", NEAP_ATTR_FLOAT, \
             .unlike_default = true},                                             \
  [HEADS] = {"heads",                                                             \
             "of q in the form (B,T,H D); 0 for (B,H,T,D)",                       \
             NEAP_ATTR_INT,                                                       \
             .value = {.i = (heads_value)},                                       \
             .least = (heads_least),                                              \
             .most = 65536}

const neap_op neap_op_Attention = {
  .name = "Attention",
  .summary = "Scaled dot-product attention of queries to keys and values, in heads.",
  .math = "y = softmax(scale q k^T + mask) v",
  .example = "net:Attention({\"q\", \"k\", \"v\"}, \"y\", {causal = true, heads = 6})",
  .source = "Vaswani et al., NeurIPS 2017, section 3.2; tiles as in Dao et al., NeurIPS 2022",
  .inputs = {{"q", "(B,H,T,D), or (B,T,H D) with heads"},
             {"k", "(B,G,S,D), or (B,S,G D); H a multiple of G"},
             {"v", "(B,G,S,E), or (B,S,G E)"},
             MASK_ARG},
  .outputs = {{"y", "(B,H,T,E), or (B,T,H E)"},
              {"lse", "(B,H,T), for the backward", .flags = NEAP_ARG_OPTIONAL | NEAP_ARG_WIDE}},
  .attrs = {ATTRS(0, 0)},
  .infer = infer,
  .cost = cost_forward,
  .grad = grad,
  .nan = NEAP_NAN_REACHES,
  .sum = NEAP_SUM_LIBRARY,
  .special = "a query that sees no key gives 0; one score of +infinity makes its query NaN",
  .mixed = NEAP_MIXED_HALF,
  .kernels = NEAP_GEMM_KERNELS(NEAP_BIT(BOOL), choose, run),
  .cases =
    "{ {q={2,2,5,4}, k={2,2,5,4}, v={2,2,5,4}}, {q={2,2,3,4}, k={2,2,6,4}, v={2,2,6,4}, "
    "causal=true}, "
    "{q={2,4,5,4}, k={2,2,5,4}, v={2,2,5,3}}, {q={2,5,8}, k={2,5,8}, v={2,5,8}, heads=2, "
    "causal=true}, "
    "{q={1,1,67,16}, k={1,1,300,16}, v={1,1,300,16}}, {q={2,2,5,4}, k={2,2,5,4}, v={2,2,5,4}, "
    "mask={2,1,5,5}, scale=0.3, "
    "outputs=2}, {q={1,2,5,4}, k={1,2,7,4}, v={1,2,7,4}, mask={{5,7}, dtype=\"bool\"}} }",
  .long_cases = "{ {q={1,1,1,4}, k={1,1,262144,4}, v={1,1,262144,4}} }",
};

const neap_op neap_op_PackedAttention = {
  .name = "PackedAttention",
  .summary =
    "Self-attention whose queries, keys and values lie side by side, as one linear layer makes "
    "them.",
  .math = "[q k v] = qkv;  y = softmax(scale q k^T + mask) v",
  .example = "net:PackedAttention(\"qkv\", \"y\", {heads = 6, causal = true})",
  .source = "Vaswani et al., NeurIPS 2017, section 3.2; tiles as in Dao et al., NeurIPS 2022",
  .inputs = {{"qkv", "(B,T,3 H D)"}, MASK_ARG},
  .outputs = {{"y", "(B,T,H D)"},
              {"lse", "(B,H,T), for the backward", .flags = NEAP_ARG_OPTIONAL | NEAP_ARG_WIDE}},
  .attrs = {ATTRS(1, 1)},
  .infer = infer_packed,
  .cost = cost_packed_forward,
  .grad = grad_packed,
  .nan = NEAP_NAN_REACHES,
  .sum = NEAP_SUM_LIBRARY,
  .special = "a query that sees no key gives 0; one score of +infinity makes its query NaN",
  .mixed = NEAP_MIXED_HALF,
  .kernels = NEAP_GEMM_KERNELS(NEAP_BIT(BOOL), choose_packed, run_packed),
  .cases =
    "{ {qkv={2,5,24}, heads=2, causal=true}, {qkv={1,70,12}, heads=1}, {qkv={2,5,12}, mask={5,5}, "
    "heads=2} }",
  .long_cases = "{ {qkv={1,2048,12}, heads=1} }",
};

const neap_op neap_op_AttentionGrad = {
  .name = "AttentionGrad",
  .summary = "Backward of Attention; probabilities are computed again from lse.",
  .math = "ds = p (dp - sum dy y), dp = dy v^T;  dq = scale ds k;  dk = scale ds^T q;  dv = p^T dy",
  .internal = true,
  .inputs = {{"q", "as the forward's"},
             {"k", ""},
             {"v", ""},
             MASK_ARG,
             {"y", "output of the forward"},
             {"lse", "(B,H,T)", .flags = NEAP_ARG_WIDE},
             {"dy", "shape of y"}},
  .outputs = {{"dq", "shape of q"},
              {"dk", "shape of k"},
              {"dv", "shape of v"},
              {"dscores", "(B,H,T,S)", .flags = NEAP_ARG_OPTIONAL}},
  .attrs = {ATTRS(0, 0)},
  .infer = infer_grad,
  .grad = grad_twice,
  .cost = cost_backward,
  .nan = NEAP_NAN_REACHES,
  .sum = NEAP_SUM_LIBRARY,
  .kernels = NEAP_GEMM_KERNELS(NEAP_BIT(BOOL), choose_grad, run_grad),
  .cases =
    "{ {q={2,2,5,4}, k={2,2,5,4}, v={2,2,5,4}, y={2,2,5,4}, lse={2,2,5}, dy={2,2,5,4}, "
    "causal=true, engines=false} }",
  /* Keys that are 0 and values that are one number give these y and lse: all three belong together,
   * and dq and dk are 0. */
  .long_cases =
    "{ {q={1,1,262144,4}, k={{1,1,2,4}, low=0, high=0}, v={1,1,2,4}, y={1,1,262144,4}, "
    "lse={{1,1,262144}, low=0.6931471805599453, high=0.6931471805599453}, dy={1,1,262144,4}, "
    "of={\"dv\"}} }",
};

const neap_op neap_op_PackedAttentionGrad = {
  .name = "PackedAttentionGrad",
  .summary = "Backward of PackedAttention; probabilities are computed again from lse.",
  .math = "as AttentionGrad, with dq, dk, dv side by side",
  .internal = true,
  .inputs = {{"qkv", "(B,T,3 H D)"},
             MASK_ARG,
             {"y", "output of the forward"},
             {"lse", "(B,H,T)", .flags = NEAP_ARG_WIDE},
             {"dy", "shape of y"}},
  .outputs = {{"dqkv", "(B,T,3 H D)"}, {"dscores", "(B,H,T,T)", .flags = NEAP_ARG_OPTIONAL}},
  .attrs = {ATTRS(1, 1)},
  .infer = infer_packed_grad,
  .grad = grad_packed_twice,
  .cost = cost_packed_backward,
  .nan = NEAP_NAN_REACHES,
  .sum = NEAP_SUM_LIBRARY,
  .kernels = NEAP_GEMM_KERNELS(NEAP_BIT(BOOL), choose_packed_grad, run_packed_grad),
  .cases = "{ {qkv={2,5,24}, y={2,5,8}, lse={2,2,5}, dy={2,5,8}, heads=2, engines=false} }",
  .long_cases =
    "{ {qkv={{1,2048,12}, low=0, high=1}, y={1,2048,4}, lse={1,1,2048}, dy={1,2048,4}, heads=1, "
    "engines=false} }",
};
