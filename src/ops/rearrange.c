/* rearrange.c: ops that put all elements elsewhere by one rule: Flip, Roll, Tile, DepthToSpace and
 * SpaceToDepth. Each is a strided copy (math/move.h) or a few; the gradient goes the way back.
 */
#include "math/move.h"
#include "ops/op.h"

/* ---- Flip ------------------------------------------------------------------------------------ */

enum { FLIP_AXES };

/* No axis may be named twice. */
static neap_status infer_flip(neap_infer *c, neap_error *error) {
  const neap_attr_value *axes = &c->attrs[FLIP_AXES];
  int n_dim = c->in[0].shape.n_dim;
  bool is_named[NEAP_MAX_DIM] = {0};
  /* Twice would be not at all, which nobody means. */
  for (int i = 0; i < axes->n; i++) {
    int d = neap_axis(axes->ints[i], n_dim);
    if (d < 0 || is_named[d])
      return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error, "axes has %lld, %s",
                             (long long)neap_axis_said(axes->ints[i]),
                             d < 0 ? "out of range for x's dimensions" : "which is named twice");
    is_named[d] = true;
  }
  c->out[0] = c->in[0];
  return NEAP_OK;
}

/* A negative stride from the last position of each axis that is flipped. */
static void run_flip(const neap_call *call) {
  const neap_attr_value *axes = &call->attrs[FLIP_AXES];
  const neap_shape *x = &call->in[0].type.shape;
  int64_t in_stride[NEAP_MAX_DIM], out_stride[NEAP_MAX_DIM], first = 0;
  size_t bytes = neap_dtype_bytes(call->in[0].type.dtype);
  /* Without elements there is no last position to begin at. */
  if (neap_shape_elems(x) == 0) return;
  neap_shape_strides(x, in_stride);
  neap_shape_strides(x, out_stride);
  /* Without axes all are flipped. */
  for (int i = 0; i < (axes->given ? axes->n : x->n_dim); i++) {
    int d = axes->given ? neap_axis(axes->ints[i], x->n_dim) : i;
    first += (x->dim[d] - 1) * in_stride[d];
    in_stride[d] = -in_stride[d];
  }

  /* Written in order, read backwards. */
  neap_move move = {0};
  for (int d = 0; d < x->n_dim; d++) neap_move_add(&move, x->dim[d], in_stride[d], out_stride[d]);
  neap_move_run(&move, bytes, (const char *)call->in[0].data + first * (int64_t)bytes,
                call->out[0].data, call->n_thread);
}

/* ---- Roll ------------------------------------------------------------------------------------ */

enum { SHIFTS, ROLL_AXES };

static neap_status infer_roll(neap_infer *c, neap_error *error) {
  const neap_attr_value *shifts = &c->attrs[SHIFTS], *axes = &c->attrs[ROLL_AXES];
  int n_dim = c->in[0].shape.n_dim, n = axes->given ? axes->n : 1;
  /* An axis may stand there twice: its shifts add up. */
  if (shifts->n != n)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                           "shifts expects one number for each of axes, or one without axes: got "
                           "%d for %d",
                           shifts->n, n);
  for (int i = 0; i < axes->n; i++)
    if (neap_axis(axes->ints[i], n_dim) < 0)
      return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                             "axes has %lld, out of range for %d dimensions",
                             (long long)neap_axis_said(axes->ints[i]), n_dim);
  c->out[0] = c->in[0];
  return NEAP_OK;
}

/* How far each dimension of x goes on, below its size; without axes x is one dimension. */
static neap_shape rolled(const neap_call *call, int64_t shift[NEAP_MAX_DIM]) {
  const neap_attr_value *shifts = &call->attrs[SHIFTS], *axes = &call->attrs[ROLL_AXES];
  neap_shape x = call->in[0].type.shape;
  if (!axes->given) x = NEAP_SHAPE(neap_shape_elems(&x));
  for (int d = 0; d < x.n_dim; d++) shift[d] = 0;
  /* The remainder first, so that no sum of shifts is too large. */
  for (int i = 0; i < shifts->n; i++) {
    int d = axes->given ? neap_axis(axes->ints[i], x.n_dim) : 0;
    int64_t n = x.dim[d], s = shifts->ints[i] % n;
    shift[d] = (shift[d] + s + n) % n;
  }
  return x;
}

/* Of each dimension the elements before the seam go on, those behind it come to the front: as many
 * boxes as there are choices of the two. */
static void run_roll(const neap_call *call) {
  int64_t shift[NEAP_MAX_DIM], stride[NEAP_MAX_DIM];
  if (neap_shape_elems(&call->in[0].type.shape) == 0) return;
  neap_shape x = rolled(call, shift);
  neap_shape_strides(&x, stride);
  int64_t bytes = (int64_t)neap_dtype_bytes(call->in[0].type.dtype);
  /* Bit d of `front`: whether the box is of dimension d's part that comes to the front. */
  /* No more than 2^8 boxes for the eight dimensions of a tensor; an empty one moves nothing. */
  for (int front = 0; front < 1 << x.n_dim; front++) {
    neap_move move = {0};
    int64_t from = 0, to = 0;
    for (int d = 0; d < x.n_dim; d++) {
      bool is_front = (front >> d & 1) != 0;
      int64_t seam = x.dim[d] - shift[d];
      neap_move_add(&move, is_front ? shift[d] : seam, stride[d], stride[d]);
      from += is_front ? seam * stride[d] : 0;
      to += is_front ? 0 : shift[d] * stride[d];
    }
    neap_move_run(&move, (size_t)bytes, (const char *)call->in[0].data + from * bytes,
                  (char *)call->out[0].data + to * bytes, call->n_thread);
  }
}

/* Back by as much. The least of all integers has no opposite: a shift is taken by the size. */
static neap_status grad_roll(neap_grad *g, neap_error *error) {
  (void)error;
  const neap_attr_value *shifts = &g->attrs[SHIFTS], *axes = &g->attrs[ROLL_AXES];
  neap_shape x = neap_grad_type(g, g->in[0]).shape;
  int64_t back[NEAP_MAX_DIM];
  for (int i = 0; i < shifts->n; i++) {
    int64_t n = axes->given ? x.dim[neap_axis(axes->ints[i], x.n_dim)] : neap_shape_elems(&x);
    back[i] = -(shifts->ints[i] % NEAP_MAX(n, 1));
  }
  g->din[0] = neap_grad_emit1(g, "Roll", 1, g->dout, g,
                              (neap_set[]){NEAP_SET_INTS("shifts", shifts->n, back), {0}});
  return NEAP_OK;
}

/* ---- Tile ------------------------------------------------------------------------------------ */

enum { REPEATS };

static neap_status infer_tile(neap_infer *c, neap_error *error) {
  const neap_attr_value *repeats = &c->attrs[REPEATS];
  int n_dim = c->in[0].shape.n_dim;
  if (repeats->n != n_dim)
    return neap_infer_fail(c, NEAP_ATTRIBUTE, 0, error,
                           "repeats expects %d numbers, one for each dimension of x, got %d", n_dim,
                           repeats->n);
  c->out[0] = c->in[0];
  for (int d = 0; d < n_dim; d++)
    c->out[0].shape.dim[d] = neap_count_mul(c->in[0].shape.dim[d], repeats->ints[d]);
  return NEAP_OK;
}

/* A dimension of y is two of the box, of which the outer one stands still in x. */
static void run_tile(const neap_call *call) {
  const neap_shape *x = &call->in[0].type.shape, *y = &call->out[0].type.shape;
  int64_t in_stride[NEAP_MAX_DIM], out_stride[NEAP_MAX_DIM];
  if (neap_shape_elems(y) == 0) return;
  neap_shape_strides(x, in_stride);
  neap_shape_strides(y, out_stride);
  neap_move move = {0};
  for (int d = 0; d < x->n_dim; d++) {
    neap_move_add(&move, call->attrs[REPEATS].ints[d], 0, x->dim[d] * out_stride[d]);
    neap_move_add(&move, x->dim[d], in_stride[d], out_stride[d]);
  }
  neap_move_run(&move, neap_dtype_bytes(call->in[0].type.dtype), call->in[0].data,
                call->out[0].data, call->n_thread);
}

/* The sum over all repeats, one dimension after the other: what is before it and behind it are one
 * dimension each, so that there are three. Halves are added up in f32, and rounded once. */
static neap_status grad_tile(neap_grad *g, neap_error *error) {
  (void)error;
  const neap_attr_value *repeats = &g->attrs[REPEATS];
  neap_type x = neap_grad_type(g, g->in[0]);
  neap_shape y = neap_grad_type(g, g->out[0]).shape;
  bool is_half = neap_dtype_in(x.dtype, NEAP_HALVES);
  neap_value_id sum = is_half ? neap_grad_cast(g, g->dout[0], NEAP_DTYPE_F32) : g->dout[0];
  for (int d = 0; d < x.shape.n_dim; d++) {
    /* Dimensions before d are x's by now, those behind it still y's: (before, n, behind), with x's
     * own dimension d the first of what is behind. */
    int64_t n = repeats->ints[d], before = neap_shape_span(&x.shape, 0, d);
    if (n == 1) continue;
    int64_t behind = neap_count_mul(x.shape.dim[d], neap_shape_span(&y, d + 1, y.n_dim));
    sum = neap_grad_view(g, sum, NEAP_SHAPE(before, n, behind));
    sum = neap_grad_emit1(g, "Sum", 1, &sum, NULL,
                          (neap_set[]){NEAP_SET_INTS("axes", 1, (const int64_t[]){1}), {0}});
  }
  sum = neap_grad_view(g, sum, x.shape);
  g->din[0] = neap_grad_cast(g, sum, x.dtype);
  return NEAP_OK;
}

/* ---- DepthToSpace and SpaceToDepth ----------------------------------------------------------- */

enum { BLOCKSIZE, MODE };
/* ORDER BLOCK: as the choices of `mode`. */
enum { MODE_DCR, MODE_CRD };

/* x (..,C b b,H,W) and y (..,C,H b,W b), or the other way. */
static neap_status infer_block(neap_infer *c, bool to_space, neap_error *error) {
  char text[NEAP_SHAPE_TEXT];
  const neap_shape *x = &c->in[0].shape;
  const int64_t b = c->attrs[BLOCKSIZE].i;
  NEAP_TRY(neap_infer_rank(c, 0, 3, NEAP_MAX_DIM, error));
  int64_t *y = c->out[0].shape.dim + x->n_dim - 3;
  const int64_t *dim = x->dim + x->n_dim - 3;
  bool fits = to_space ? dim[0] % (b * b) == 0 : dim[1] % b == 0 && dim[2] % b == 0;
  if (!fits)
    return neap_infer_fail(c, NEAP_SHAPE, 0, error,
                           to_space ? "x %s expects channels that blocks of %lld x %lld divide"
                                    : "x %s expects a height and a width that %lld divides",
                           neap_shape_text(x, text), (long long)b, (long long)b);
  c->out[0] = c->in[0];
  y[0] = to_space ? dim[0] / (b * b) : neap_count_mul(dim[0], b * b);
  for (int d = 1; d < 3; d++) y[d] = to_space ? neap_count_mul(dim[d], b) : dim[d] / b;
  return NEAP_OK;
}

static neap_status infer_to_space(neap_infer *c, neap_error *error) {
  return infer_block(c, true, error);
}

static neap_status infer_to_depth(neap_infer *c, neap_error *error) {
  return infer_block(c, false, error);
}

/* One copy of six dimensions. Deep, a block's place is in front of the channels (dcr) or behind
 * them (crd); wide, in the rows and columns. */
static void run_block(const neap_call *call, bool to_space) {
  const neap_shape *x = &call->in[0].type.shape, *y = &call->out[0].type.shape,
                   *deep = to_space ? x : y, *wide = to_space ? y : x;
  if (neap_shape_elems(wide) == 0) return;
  int last = deep->n_dim - 1;
  int64_t b = call->attrs[BLOCKSIZE].i, n = neap_shape_span(deep, 0, last - 2),
          channels = wide->dim[last - 2], h = deep->dim[last - 1], w = deep->dim[last];
  bool dcr = call->attrs[MODE].i == MODE_DCR;
  /* The box in six letters: batch, channel, place in the block (row, column), row, column. */
  const int64_t dim[] = {n, channels, b, b, h, w};
  const int64_t deep_stride[] = {channels * b * b * h * w,
                                 (dcr ? 1 : b * b) * h * w,
                                 (dcr ? b * channels : b) * h * w,
                                 (dcr ? channels : 1) * h * w,
                                 w,
                                 1};
  /* Wide, (n,channels,h b,w b): a step of the block is one row or column, one of h or w is b of
   * them. */
  const int64_t wide_stride[] = {channels * b * b * h * w, b * b * h * w, w * b, 1, b * w * b, b};
  neap_move move = {0};
  for (int d = 0; d < 6; d++)
    neap_move_add(&move, dim[d], to_space ? deep_stride[d] : wide_stride[d],
                  to_space ? wide_stride[d] : deep_stride[d]);
  neap_move_run(&move, neap_dtype_bytes(call->in[0].type.dtype), call->in[0].data,
                call->out[0].data, call->n_thread);
}

static void run_to_space(const neap_call *call) { run_block(call, true); }
static void run_to_depth(const neap_call *call) { run_block(call, false); }

/* ---- records --------------------------------------------------------------------------------- */

const neap_op neap_op_Flip = {
  .name = "Flip",
  .summary = "Positions of some dimensions in the opposite order.",
  .math = "y[.., i, ..] = x[.., n - 1 - i, ..]",
  .example = "net:Flip(\"x\", \"y\", {axes = {2}})",
  .source = "PyTorch flip",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"y", "shape of x", NEAP_ANY}},
  .attrs = {[FLIP_AXES] = {"axes", "which; all when not given", NEAP_ATTR_AXES,
                           .unlike_default = true}},
  .infer = infer_flip,
  .grad_formula = "d.x = Flip(d.y, ..)",
  .kernels = NEAP_REF(run_flip, NEAP_ANY),
  .cases = "{ {x={3,4,2}, axes={1,-1}}, {x={5}}, {x={2,3}, axes={2}}, {x={0,3}}, {x={}} }",
};

const neap_op neap_op_Roll = {
  .name = "Roll",
  .summary = "Positions go on along dimensions, those at the end to the front.",
  .math = "y[.., (i + shift) mod n, ..] = x[.., i, ..]",
  .example = "net:Roll(\"x\", \"y\", {shifts = {1, -2}, axes = {1, 3}})",
  .source = "PyTorch roll",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"y", "shape of x", NEAP_ANY}},
  .attrs = {[SHIFTS] = {"shifts", "how far, for each of axes; negative to the front",
                        NEAP_ATTR_INTS, .required = true},
            [ROLL_AXES] = {"axes", "along which; all elements in order when not given",
                           NEAP_ATTR_AXES, .unlike_default = true}},
  .infer = infer_roll,
  .grad = grad_roll,
  .kernels = NEAP_REF(run_roll, NEAP_ANY),
  .cases =
    "{ {x={3,4,5}, shifts={1,-2}, axes={1,3}}, {x={2,3}, shifts={4}}, {x={5}, shifts={-12,3}, "
    "axes={1,-1}}, {x={0,3}, shifts={1,1}, axes={1,2}}, {x={}, shifts={2}} }",
};

const neap_op neap_op_Tile = {
  .name = "Tile",
  .summary = "A tensor side by side with itself, so many times along each dimension.",
  .math = "y[i, j] = x[i mod n, j mod m]",
  .example = "net:Tile(\"x\", \"y\", {repeats = {2, 1}})",
  .source = "ONNX Tile-13, with repeats as an attribute",
  .inputs = {{"x", "any shape", NEAP_ANY}},
  .outputs = {{"y", "each dimension so many times as long", NEAP_ANY}},
  .attrs = {[REPEATS] = {"repeats", "how often, for each dimension", NEAP_ATTR_INTS,
                         .required = true, .least = 0, .most = 1e15}},
  .infer = infer_tile,
  .grad = grad_tile,
  .kernels = NEAP_REF(run_tile, NEAP_ANY),
  .cases =
    "{ {x={2,3,2}, repeats={3,1,2}}, {x={4}, repeats={1}}, {x={2,2}, repeats={0,2}}, {x={0,2}, "
    "repeats={2,2}}, {x={}, repeats={}} }",
};

#define BLOCK_ATTRS                                                                         \
  [BLOCKSIZE] = {"blocksize",   "rows and columns of a block",                              \
                 NEAP_ATTR_INT, .required = true,                                           \
                 .least = 1,    .most = 1 << 15},                                           \
  [MODE] = {                                                                                \
    "mode",                                                                                 \
    "where a block's place stands in the channels: in front of them, or behind (PyTorch's " \
    "pixel shuffle)",                                                                       \
    NEAP_ATTR_ENUM, .choices = "dcr|crd"}

const neap_op neap_op_DepthToSpace = {
  .name = "DepthToSpace",
  .summary = "Channels become blocks of rows and columns.",
  .math = "y[n, c, h b + i, w b + j] = x[n, (i b + j) C + c, h, w]",
  .example = "net:DepthToSpace(\"x\", \"y\", {blocksize = 2, mode = \"crd\"})",
  .source = "ONNX DepthToSpace-13; PyTorch pixel_shuffle is mode crd",
  .inputs = {{"x", "(..,C b b,H,W)", NEAP_ANY}},
  .outputs = {{"y", "(..,C,H b,W b)", NEAP_ANY}},
  .attrs = {BLOCK_ATTRS},
  .infer = infer_to_space,
  .grad_formula = "d.x = SpaceToDepth(d.y, ..)",
  .kernels = NEAP_REF(run_to_space, NEAP_ANY),
  .cases =
    "{ {x={2,8,3,2}, blocksize=2}, {x={2,2,9,2,3}, blocksize=3, mode=\"crd\"}, {x={4,1,2}, "
    "blocksize=1}, {x={0,4,2,2}, blocksize=2} }",
};

const neap_op neap_op_SpaceToDepth = {
  .name = "SpaceToDepth",
  .summary = "Blocks of rows and columns become channels.",
  .math = "y[n, (i b + j) C + c, h, w] = x[n, c, h b + i, w b + j]",
  .example = "net:SpaceToDepth(\"x\", \"y\", {blocksize = 2})",
  .source = "ONNX SpaceToDepth-13; PyTorch pixel_unshuffle is mode crd",
  .inputs = {{"x", "(..,C,H b,W b)", NEAP_ANY}},
  .outputs = {{"y", "(..,C b b,H,W)", NEAP_ANY}},
  .attrs = {BLOCK_ATTRS},
  .infer = infer_to_depth,
  .grad_formula = "d.x = DepthToSpace(d.y, ..)",
  .kernels = NEAP_REF(run_to_depth, NEAP_ANY),
  .cases =
    "{ {x={2,3,4,6}, blocksize=2}, {x={2,2,6,3}, blocksize=3, mode=\"crd\"}, {x={3,2,2}, "
    "blocksize=2}, {x={2,0,4,2}, blocksize=2} }",
};
