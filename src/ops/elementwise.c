/* elementwise.c: walks the operands of an elementwise op in stretches that its row loop can take.
 *
 * Dimensions are collapsed first: neighbours that every input crosses with one constant stride (or
 * 0, where it is broadcast) become one. What is left is an odometer over a few outer dimensions and
 * stretches along the innermost; two equal shapes leave one stretch. Stretches of bf16 and f16 are
 * taken in tiles of f32.
 * INVARIANT: along the innermost collapsed dimension each stride is 1 or 0.
 */
#include "ops/elementwise.h"

typedef struct walk {
  const neap_call *call;
  neap_row_loop loop;
  const double *param;
  int n_in, n_out, n_dim;
  const neap_operand *in[NEAP_ROW_MAX_IN], *out[NEAP_ROW_MAX_OUT];
  bool tiled; /* some operand is widened and rounded */
  int64_t dim[NEAP_MAX_DIM];
  int64_t stride[NEAP_ROW_MAX_IN][NEAP_MAX_DIM]; /* in elements */
} walk;

/* Stride of input `in`, of shape `shape`, along dimension d of an output of n_dim dimensions. */
static int64_t broadcast_stride(const neap_shape *shape, int d, int n_dim) {
  /* Aligned at the last dimension, as NumPy has it. */
  int own = d - (n_dim - shape->n_dim);
  return own < 0 || shape->dim[own] == 1 ? 0 : neap_shape_span(shape, own + 1, shape->n_dim);
}

/* Appends a dimension of n elements, merging it with the one before where all inputs allow. */
static void add_dim(walk *w, int64_t n, const int64_t stride[NEAP_ROW_MAX_IN]) {
  /* An outer step of n inner steps, for every input: then the two dimensions are one. */
  bool merge = w->n_dim > 0;
  for (int k = 0; k < w->n_in; k++)
    if (merge && w->stride[k][w->n_dim - 1] != stride[k] * n) merge = false;
  /* Merged, it has the strides of the inner dimension: the outer one goes on where that ends. */
  int d = merge ? w->n_dim - 1 : w->n_dim++;
  w->dim[d] = merge ? w->dim[d] * n : n;
  for (int k = 0; k < w->n_in; k++) w->stride[k][d] = stride[k];
}

/* The output's dimensions as few as they can be: equal shapes are one row, whatever their layout;
 * else neighbours merge where every operand walks them as one. */
static void collapse(walk *w) {
  const neap_operand *out = w->out[0];
  const neap_shape *shape = &out->type.shape;
  int64_t ones[NEAP_ROW_MAX_IN];
  for (int k = 0; k < NEAP_ROW_MAX_IN; k++) ones[k] = 1;
  /* One row in the order of the bytes, whatever that is, since all operands have it. An absent
   * input is read by no loop. */
  bool same = true;
  for (int k = 0; k < w->n_in; k++)
    same = same && (w->in[k]->data == NULL || neap_shape_equal(&w->in[k]->type.shape, shape));
  if (same) {
    add_dim(w, neap_operand_lanes(out), ones);
    return;
  }
  /* Dimensions of one element take no step, and would keep their neighbours apart. */
  for (int d = 0; d < shape->n_dim; d++) {
    int64_t stride[NEAP_ROW_MAX_IN] = {0};
    if (shape->dim[d] == 1) continue;
    for (int k = 0; k < w->n_in; k++)
      stride[k] = broadcast_stride(&w->in[k]->type.shape, d, shape->n_dim);
    add_dim(w, shape->dim[d], stride);
  }
  /* One element has no dimension left, and is a row all the same. */
  if (w->n_dim == 0) add_dim(w, 1, ones);
}

/* ---- tiles of bf16 and f16 ------------------------------------------------------------------- */

static bool is_half(const neap_operand *operand) {
  return operand->data != NULL && neap_is_half(operand->type.dtype);
}

/* Where element `offset` of a stretch lies that begins at `data`. */
static void *element_at(const neap_operand *operand, const void *data, int64_t offset) {
  return (char *)(uintptr_t)data + offset * (int64_t)neap_dtype_bytes(operand->type.dtype);
}

/* The loop on one stretch, tile by tile: each half is widened into a tile of its own, and rounded
 * from one into the output. A tile is read before it is written, so that in place stays safe. */
static void run_tiles(const walk *w, const neap_row *row) {
  float in[NEAP_ROW_MAX_IN][NEAP_TILE], out[NEAP_ROW_MAX_OUT][NEAP_TILE];
  for (int64_t at = 0; at < row->n; at += NEAP_TILE) {
    neap_row tile = *row;
    tile.n = NEAP_MIN(row->n - at, NEAP_TILE);
    for (int k = 0; k < w->n_in; k++) {
      tile.in[k] = element_at(w->in[k], row->in[k], at * row->step[k]);
      /* An operand of another dtype, a mask or an index, is read where it lies. */
      if (!is_half(w->in[k])) continue;
      neap_cast(NEAP_DTYPE_F32, in[k], w->in[k]->type.dtype, tile.in[k],
                row->step[k] == 0 ? 1 : tile.n);
      tile.in[k] = in[k];
    }
    /* A half is made in f32 first, and rounded once, behind the loop. */
    for (int k = 0; k < w->n_out; k++)
      tile.out[k] = is_half(w->out[k]) ? out[k] : element_at(w->out[k], row->out[k], at);
    w->loop(&tile);
    for (int k = 0; k < w->n_out; k++)
      if (is_half(w->out[k]))
        neap_cast(w->out[k]->type.dtype, element_at(w->out[k], row->out[k], at), NEAP_DTYPE_F32,
                  out[k], tile.n);
  }
}

/* ---- the walk -------------------------------------------------------------------------------- */

/* Elements [begin, end) of the output. */
static void walk_range(void *context, int64_t begin, int64_t end) {
  const walk *w = context;
  const int last = w->n_dim - 1;
  /* Where the range begins, as an index: the walk knows rows, and a thread may begin within one. */
  int64_t index[NEAP_MAX_DIM], rest = begin;
  for (int d = last; d >= 0; d--) {
    index[d] = rest % w->dim[d];
    rest /= w->dim[d];
  }
  neap_row row = {.call = w->call, .param = w->param};
  for (int k = 0; k < w->n_in; k++) {
    row.step[k] = w->stride[k][last];
    NEAP_ASSERT(row.step[k] == 0 || row.step[k] == 1,
                "input %d of %s goes on by 0 or 1 in a row, not by %lld", k, w->call->op->name,
                (long long)row.step[k]);
  }
  for (int64_t at = begin; at < end; at += row.n) {
    /* To the end of the innermost dimension, along which every operand has one step. */
    row.n = NEAP_MIN(w->dim[last] - index[last], end - at);
    for (int k = 0; k < w->n_out; k++) row.out[k] = element_at(w->out[k], w->out[k]->data, at);
    for (int k = 0; k < w->n_in; k++) {
      int64_t offset = 0;
      /* Outputs are dense; an input is found by its strides, which are 0 where it broadcasts. */
      if (w->in[k]->data == NULL) continue;
      for (int d = 0; d <= last; d++) offset += index[d] * w->stride[k][d];
      row.in[k] = element_at(w->in[k], w->in[k]->data, offset);
    }
    if (w->tiled)
      run_tiles(w, &row);
    else
      w->loop(&row);
    /* The next row, with a carry into the dimensions before it. */
    index[last] = 0;
    for (int d = last - 1; d >= 0; d--) {
      if (++index[d] < w->dim[d]) break;
      index[d] = 0;
    }
  }
}

/* All operands are in place; divides the walk among the threads. */
static void run(walk *w) {
  collapse(w);
  int64_t elems = 1;
  for (int d = 0; d < w->n_dim; d++) elems *= w->dim[d];
  neap_parallel_for(elems, NEAP_GRAIN, w->call->n_thread, walk_range, w);
}

void neap_elementwise_run_on(const neap_call *call, int n_in, const int *in, int n_out,
                             const int *out, const neap_row_loop loops[NEAP_N_DTYPE],
                             const double *param) {
  static const neap_operand absent;
  /* Halves have no loop of their own: that of f32, in tiles. */
  walk w = {.call = call,
            .loop = loops[neap_compute_dtype(call->in[in[0]].type.dtype)],
            .param = param,
            .n_in = n_in,
            .n_out = n_out};
  /* An operand that the call leaves out is there for the walk, without bytes. */
  for (int k = 0; k < n_in; k++) {
    w.in[k] = in[k] < call->n_in ? &call->in[in[k]] : &absent;
    w.tiled = w.tiled || is_half(w.in[k]);
  }
  for (int k = 0; k < n_out; k++) {
    w.out[k] = out[k] < call->n_out ? &call->out[out[k]] : &absent;
    w.tiled = w.tiled || is_half(w.out[k]);
  }
  run(&w);
}

static const int in_order[NEAP_ROW_MAX_IN] = {0, 1, 2, 3, 4};

void neap_elementwise_run_param(const neap_call *call, int n_in,
                                const neap_row_loop loops[NEAP_N_DTYPE], const double *param) {
  neap_elementwise_run_on(call, n_in, in_order, 1, in_order, loops, param);
}

void neap_elementwise_run(const neap_call *call, int n_in,
                          const neap_row_loop loops[NEAP_N_DTYPE]) {
  double param[NEAP_ROW_MAX_PARAM] = {0};
  const int n = NEAP_MIN(neap_op_n_attrs(call->op), NEAP_ROW_MAX_PARAM);
  for (int i = 0; i < n; i++)
    param[i] =
      call->op->attrs[i].type == NEAP_ATTR_FLOAT ? call->attrs[i].f : (double)call->attrs[i].i;
  neap_elementwise_run_param(call, n_in, loops, param);
}

void neap_elementwise_move(const neap_call *call, int n_in, neap_row_loop loop) {
  static const double none[NEAP_ROW_MAX_PARAM];
  /* Moved and not computed: a half stays what it is, so that no tile is needed. */
  walk w = {.call = call, .loop = loop, .param = none, .n_in = n_in, .n_out = 1};
  for (int k = 0; k < n_in; k++) w.in[k] = &call->in[k];
  w.out[0] = &call->out[0];
  run(&w);
}

neap_status neap_elementwise_infer_shape(neap_infer *infer, neap_error *error) {
  neap_shape shape = infer->in[0].shape;
  for (int k = 1; k < infer->n_in; k++) {
    char so_far[NEAP_SHAPE_TEXT], own[NEAP_SHAPE_TEXT];
    /* Said before the shape is changed: a failure must tell what the inputs before gave. */
    neap_shape_text(&shape, so_far);
    if (!neap_shape_broadcast(&shape, &infer->in[k].shape, &shape))
      return neap_infer_fail(
        infer, NEAP_SHAPE, k, error,
        "%s %s does not broadcast with %s %s: dimensions, aligned at the last, "
        "must be equal or 1",
        neap_op_input(infer->op, k)->name, neap_shape_text(&infer->in[k].shape, own),
        k == 1 ? neap_op_input(infer->op, 0)->name : "the inputs before it,", so_far);
  }
  infer->out[0].shape = shape;
  return NEAP_OK;
}

neap_status neap_elementwise_infer(neap_infer *infer, neap_error *error) {
  NEAP_TRY(neap_infer_same_dtype(infer, 0, error));
  NEAP_TRY(neap_elementwise_infer_shape(infer, error));
  infer->out[0].dtype = infer->in[0].dtype;
  return NEAP_OK;
}
