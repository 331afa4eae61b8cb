/* onednn_desc.c: from a case to oneDNN's primitive descriptor, and the table of its execution
 * arguments.
 *
 * One function for each kind of problem. Each describes the operands and lists them as arguments in
 * one go, so that the table cannot forget one, then fills the operation's descriptor. oneDNN 2
 * derives a backward descriptor from the forward's, which is made for that alone (the `hint`) and
 * destroyed with the attempt.
 *
 * INVARIANT: operands of a case keep their positions; which execution argument each one is stands
 * in the table alone.
 */
#include "math/onednn_int.h"

#include <string.h>

/* What the functions below work on. `md`: of the operands, as fixed by the case or left free. */
typedef struct maker {
  const neap_onednn_case *c;
  bool free;
  onednn_with with;
  onednn_problem *out;
  dnnl_primitive_desc_t hint; /* the forward's, where one is needed; owned */
  bool failed;
  dnnl_memory_desc_t in[NEAP_ONEDNN_MAX_IN], done[NEAP_ONEDNN_MAX_OUT];
} maker;

int64_t onednn_groups(const neap_onednn_case *c, bool is_out, int position) {
  bool weight = is_out ? c->kind == NEAP_ONEDNN_CONV_GRAD_WEIGHT && position == 0
                       : (c->kind == NEAP_ONEDNN_CONV || c->kind == NEAP_ONEDNN_CONV_GRAD_INPUT) &&
                           position == 1;
  return weight ? c->groups : 1;
}

/* ---- operands -------------------------------------------------------------------------------- */

/* `keeps_plain`: dense whatever oneDNN would like; see onednn_arg. */
static void add_arg(maker *m, int arg, bool is_out, int position, bool keeps_plain) {
  m->out->arg[m->out->n_arg++] =
    (onednn_arg){.arg = arg, .is_out = is_out, .keeps_plain = keeps_plain, .position = position};
}

/* Describes an operand and lists it as argument `arg`. NULL when it is absent. With `may_choose`
 * its layout is left to oneDNN while the case is still free; else it is the case's. The descriptor
 * lives in m, until m does. */
static onednn_md_in operand(maker *m, bool is_out, int position, int arg, bool may_choose) {
  const neap_onednn_case *c = m->c;
  const neap_type *types = is_out ? c->out : c->in;
  dnnl_memory_desc_t *md = is_out ? &m->done[position] : &m->in[position];
  if (!onednn_is_present(types, is_out ? c->n_out : c->n_in, position)) return NULL;
  bool vector = types[position].shape.n_dim == 1; /* bias, statistics: never anything but dense */
  const neap_layout *layout = is_out ? &c->out_layout[position] : &c->in_layout[position];
  /* Free while oneDNN is asked what it likes; afterwards all layouts are the case's. */
  if (!onednn_md(&types[position], m->free && may_choose && !vector ? NULL : layout,
                 onednn_groups(c, is_out, position), md))
    m->failed = true;
  add_arg(m, arg, is_out, position, vector);
  return md;
}

/* any: a layout that oneDNN may choose; given: the one that the case has. */
static onednn_md_in any_in(maker *m, int position, int arg) {
  return operand(m, false, position, arg, true);
}
static onednn_md_in any_out(maker *m, int position, int arg) {
  return operand(m, true, position, arg, true);
}
static onednn_md_in given_in(maker *m, int position, int arg) {
  return operand(m, false, position, arg, false);
}

/* An operand of a product seen as a dense matrix, whatever its dimensions: (rows, columns) as it
 * lies, or `turned`, (columns, rows) of the same elements. NULL when it is absent. */
static onednn_md_in matrix_of(maker *m, bool is_out, int position, int arg, int64_t columns,
                              bool turned) {
  const neap_type *type = is_out ? &m->c->out[position] : &m->c->in[position];
  if (!onednn_is_present(is_out ? m->c->out : m->c->in, is_out ? m->c->n_out : m->c->n_in,
                         position))
    return NULL;
  int64_t rows = neap_shape_elems(&type->shape) / columns;
  neap_type flat = {type->dtype, turned ? NEAP_SHAPE(columns, rows) : NEAP_SHAPE(rows, columns)};
  dnnl_memory_desc_t *md = is_out ? &m->done[position] : &m->in[position];
  neap_layout plain = {.kind = NEAP_LAYOUT_PLAIN},
              by_columns = {.kind = NEAP_LAYOUT_BLOCKED, .order = {1, 0}};
  if (!onednn_md(&flat, turned ? &by_columns : &plain, 1, md)) m->failed = true;
  add_arg(m, arg, is_out, position, true);
  return md;
}

static onednn_md_in matrix(maker *m, bool is_out, int position, int arg, int64_t columns) {
  return matrix_of(m, is_out, position, arg, columns, false);
}

static onednn_md_in turned(maker *m, bool is_out, int position, int arg, int64_t columns) {
  return matrix_of(m, is_out, position, arg, columns, true);
}

/* The kernel of norms that is wished for: the threads of oneDNN's first choice wait for each other
 * by looking, many times in a run, which beside busy processes took 160 times as long (measured);
 * this one has a parallel region for each part instead. */
static const char norm_kernel[] = "bnorm_tbb_jit";

/* ---- convolution ----------------------------------------------------------------------------- */

/* `in`, `out`: the spatial shapes. Rounding up may reach beyond the padding that was asked for. */
static onednn_window window_of(const neap_onednn_case *c, const neap_shape *in,
                               const neap_shape *out) {
  onednn_window g;
  memset(&g, 0, sizeof g);
  for (int d = 0; d < c->n_space; d++) {
    /* What the windows reach of x, less x and the padding before it, is the padding behind it that
     * oneDNN needs. */
    int64_t reach = (out->dim[2 + d] - 1) * c->stride[d] + (c->kernel[d] - 1) * c->dilation[d] + 1;
    g.kernel[d] = c->kernel[d], g.stride[d] = c->stride[d], g.dilate[d] = c->dilation[d] - 1,
    g.begin[d] = c->begin[d];
    g.end[d] = NEAP_MAX(c->end[d], reach - in->dim[2 + d] - c->begin[d]);
  }
  return g;
}

/* Not `auto`: whether Winograd pays is decided in onednn.c, which knows the limit of scratch. */
static dnnl_alg_kind_t conv_algorithm(const neap_onednn_case *c) {
  return c->algorithm == NEAP_ONEDNN_WINOGRAD ? dnnl_convolution_winograd : dnnl_convolution_direct;
}

/* One more operand behind those in the chain: a vector of channels (1,C,1,..), or one number. */
static bool append_channels(maker *m, dnnl_post_ops_t chain, dnnl_alg_kind_t algorithm,
                            int position) {
  const neap_type *type = &m->c->in[position];
  static const neap_layout plain = {.kind = NEAP_LAYOUT_PLAIN};
  neap_type seen = {type->dtype, {.n_dim = m->c->kind == NEAP_ONEDNN_FC ? 2 : 2 + m->c->n_space}};
  /* oneDNN broadcasts along the dimensions of 1. */
  for (int d = 0; d < seen.shape.n_dim; d++) seen.shape.dim[d] = 1;
  seen.shape.dim[1] = neap_shape_elems(&type->shape);
  if (!onednn_md(&seen, &plain, 1, &m->in[position])) return false;
  int arg = DNNL_ARG_ATTR_MULTIPLE_POST_OP(dnnl_post_ops_len(chain)) | DNNL_ARG_SRC_1;
  add_arg(m, arg, false, position, true);
  return onednn_then_binary(chain, algorithm, &m->in[position]);
}

/* What follows a product of bytes; see NEAP_ONEDNN's `quantised`. Rounding comes before the zero
 * point, as in ONNX. */
static bool then_quantise(maker *m, dnnl_post_ops_t chain) {
  enum { SCALE = 3, RATIO, Y_ZERO };
  const neap_onednn_case *c = m->c;
  bool good = append_channels(m, chain, dnnl_binary_mul, SCALE);
  if (c->add) good = good && onednn_then_sum(chain);
  if (onednn_is_present(c->in, c->n_in, RATIO))
    good = good && append_channels(m, chain, dnnl_binary_mul, RATIO);
  if (c->relu) good = good && onednn_then_relu(chain);
  if (c->out[0].dtype != NEAP_DTYPE_F32) good = good && onednn_then_round(chain);
  if (onednn_is_present(c->in, c->n_in, Y_ZERO))
    good = good && append_channels(m, chain, dnnl_binary_add, Y_ZERO);
  return good;
}

/* The attributes with what follows the product: the sum with what y holds, or what makes bytes of
 * it. They replace m's; the caller destroys *own when the descriptor is made. *own is NULL when
 * nothing follows. */
static bool product_attr(maker *m, dnnl_primitive_attr_t *own) {
  *own = NULL;
  if (!m->c->add && !m->c->quantised) return true;
  /* A copy of the attributes: those of the process are everybody's. */
  dnnl_post_ops_t chain = NULL;
  bool good = dnnl_post_ops_create(&chain) == dnnl_success &&
              dnnl_primitive_attr_clone(own, m->with.attr) == dnnl_success;
  good = good && (m->c->quantised ? then_quantise(m, chain) : onednn_then_sum(chain));
  good = good && dnnl_primitive_attr_set_post_ops(*own, chain) == dnnl_success;
  if (good) m->with.attr = *own;
  if (chain != NULL) dnnl_post_ops_destroy(chain);
  return good;
}

/* Training, also for inference: only then Winograd leaves the weights in a layout that can be told
 * in dimensions. */
static bool conv_forward(maker *m) {
  onednn_window g = window_of(m->c, &m->c->in[0].shape, &m->c->out[0].shape);
  onednn_md_in x = any_in(m, 0, DNNL_ARG_SRC), w = any_in(m, 1, DNNL_ARG_WEIGHTS);
  onednn_md_in b = any_in(m, 2, DNNL_ARG_BIAS), y = any_out(m, 0, DNNL_ARG_DST);
  dnnl_primitive_attr_t own;
  bool good = product_attr(m, &own) && !m->failed &&
              onednn_conv_forward(&m->with, conv_algorithm(m->c), &g, x, w, b, y, &m->out->pd);
  if (own != NULL) dnnl_primitive_attr_destroy(own);
  return good;
}

/* Backward data: dy and w give dx, whose shape takes the place of the forward's x. */
static bool conv_grad_input(maker *m) {
  onednn_window g = window_of(m->c, &m->c->out[0].shape, &m->c->in[0].shape);
  onednn_md_in dy = any_in(m, 0, DNNL_ARG_DIFF_DST), w = any_in(m, 1, DNNL_ARG_WEIGHTS);
  onednn_md_in dx = any_out(m, 0, DNNL_ARG_DIFF_SRC);
  return !m->failed &&
         onednn_conv_grad_input(&m->with, conv_algorithm(m->c), &g, dx, w, dy, &m->out->pd);
}

/* Backward weights: dw alone. The ops sum the bias's themselves, in an order that keeps
 * its digits over many rows. */
static bool conv_grad_weight(maker *m) {
  onednn_window g = window_of(m->c, &m->c->in[0].shape, &m->c->in[1].shape);
  onednn_md_in x = any_in(m, 0, DNNL_ARG_SRC), dy = any_in(m, 1, DNNL_ARG_DIFF_DST);
  onednn_md_in dw = any_out(m, 0, DNNL_ARG_DIFF_WEIGHTS);
  return !m->failed &&
         onednn_conv_grad_weight(&m->with, conv_algorithm(m->c), &g, x, dw, dy, &m->out->pd);
}

/* ---- pooling --------------------------------------------------------------------------------- */

static dnnl_alg_kind_t pool_algorithm(const neap_onednn_case *c) {
  if (!c->average) return dnnl_pooling_max;
  return c->count_pad ? dnnl_pooling_avg_include_padding : dnnl_pooling_avg_exclude_padding;
}

/* Training only when there is a stash to keep the maxima's places in; inference needs none and
 * writes less. */
static bool pool_forward(maker *m) {
  onednn_window g = window_of(m->c, &m->c->in[0].shape, &m->c->out[0].shape);
  bool stash = onednn_is_present(m->c->out, m->c->n_out, 1);
  onednn_md_in x = given_in(m, 0, DNNL_ARG_SRC), y = any_out(m, 0, DNNL_ARG_DST);
  if (stash) add_arg(m, DNNL_ARG_WORKSPACE, true, 1, true);
  return !m->failed &&
         onednn_pool_forward(&m->with, stash ? dnnl_forward_training : dnnl_forward_inference,
                             pool_algorithm(m->c), &g, x, y, &m->out->pd);
}

/* The stash is absent for averages, whose gradient needs no places. Layouts are those of dy and dx
 * as they are given. */
static bool pool_backward(maker *m) {
  onednn_window g = window_of(m->c, &m->c->out[0].shape, &m->c->in[0].shape);
  onednn_md_in dy = given_in(m, 0, DNNL_ARG_DIFF_DST),
               dx = operand(m, true, 0, DNNL_ARG_DIFF_SRC, false);
  if (onednn_is_present(m->c->in, m->c->n_in, 1)) add_arg(m, DNNL_ARG_WORKSPACE, false, 1, true);
  /* oneDNN wants to see the forward that the stash is of. */
  if (m->failed || !onednn_pool_forward(&m->with, dnnl_forward_training, pool_algorithm(m->c), &g,
                                        dx, dy, &m->hint))
    return false;
  m->with.hint = m->hint;
  return onednn_pool_backward(&m->with, pool_algorithm(m->c), &g, dx, dy, &m->out->pd);
}

/* ---- batch normalisation --------------------------------------------------------------------- */

/* Scale and shift are two vectors; the ReLU, when it is fused, leaves its mask in the stash. */
static unsigned norm_flags(const neap_onednn_case *c) {
  return (unsigned)dnnl_use_scale | (unsigned)dnnl_use_shift |
         (c->global_stats ? (unsigned)dnnl_use_global_stats : 0u) |
         (c->relu ? (unsigned)dnnl_fuse_norm_relu : 0u);
}

/* Statistics are inputs 3 and 4 when they are given, else outputs 1 and 2. The stash is the mask of
 * a fused ReLU, which only the training kernel writes. */
static bool norm_forward(maker *m) {
  const neap_onednn_case *c = m->c;
  bool stash = c->relu && onednn_is_present(c->out, c->n_out, 3);
  onednn_md_in x = given_in(m, 0, DNNL_ARG_SRC);
  add_arg(m, DNNL_ARG_SCALE, false, 1, true);
  add_arg(m, DNNL_ARG_SHIFT, false, 2, true);
  add_arg(m, DNNL_ARG_MEAN, !c->global_stats, c->global_stats ? 3 : 1, true);
  add_arg(m, DNNL_ARG_VARIANCE, !c->global_stats, c->global_stats ? 4 : 2, true);
  any_out(m, 0, DNNL_ARG_DST); /* its layout is x's */
  if (stash) add_arg(m, DNNL_ARG_WORKSPACE, true, 3, true);
  /* The inference kernel writes neither statistics nor mask. */
  dnnl_prop_kind_t kind =
    stash || !c->global_stats ? dnnl_forward_training : dnnl_forward_inference;
  m->with.kernel = norm_kernel;
  return !m->failed &&
         onednn_norm_forward(&m->with, kind, x, (float)c->eps, norm_flags(c), &m->out->pd);
}

/* Everything from x, dy, the statistics and gamma; a fused ReLU's gradient goes by the mask in the
 * stash, so that y is not read. */
static bool norm_backward(maker *m) {
  const neap_onednn_case *c = m->c;
  onednn_md_in x = given_in(m, 0, DNNL_ARG_SRC), dy = given_in(m, 1, DNNL_ARG_DIFF_DST);
  add_arg(m, DNNL_ARG_MEAN, false, 2, true);
  add_arg(m, DNNL_ARG_VARIANCE, false, 3, true);
  add_arg(m, DNNL_ARG_SCALE, false, 4, true);
  /* demanded by oneDNN 2 but not read: any vector of C does */
  if (onednn_norm_backward_has_shift) add_arg(m, DNNL_ARG_SHIFT, false, 4, true);
  if (c->relu) add_arg(m, DNNL_ARG_WORKSPACE, false, 5, true);
  any_out(m, 0, DNNL_ARG_DIFF_SRC);
  add_arg(m, DNNL_ARG_DIFF_SCALE, true, 1, true);
  add_arg(m, DNNL_ARG_DIFF_SHIFT, true, 2, true);
  m->with.kernel = norm_kernel;
  /* Again by a forward of the same kind: the mask is in its format. */
  if (m->failed || !onednn_norm_forward(&m->with, dnnl_forward_training, x, (float)c->eps,
                                        norm_flags(c), &m->hint))
    return false;
  m->with.hint = m->hint;
  return onednn_norm_backward(&m->with, dy, x, (float)c->eps, norm_flags(c), &m->out->pd);
}

/* ---- products -------------------------------------------------------------------------------- */

/* All plain: packing a weight for one product costs more than the packed kernel saves (measured up
 * to 1024 rows). Weights of bytes are constants, packed once, as oneDNN likes them.
 *
 * Halves are multiplied by oneDNN's matmul, whose three operands may lie in any order. Its inner
 * product, told that weights are plain, takes as long and sums bf16 in a scratch of f32 as large as
 * the result: 12.6 MB for (2048,384) by (384,1536), where matmul has 0.05 (measured, 2.6 on
 * AVX512-BF16). */
bool onednn_is_matmul(const neap_onednn_case *c) {
  const bool is_product = c->kind >= NEAP_ONEDNN_FC && c->kind <= NEAP_ONEDNN_FC_GRAD_WEIGHT;
  return is_product && neap_dtype_in(c->in[0].dtype, NEAP_HALVES);
}

static bool product_forward(maker *m) {
  const neap_shape *w = &m->c->in[1].shape;
  const bool by_matmul = onednn_is_matmul(m->c);
  onednn_md_in x = matrix(m, false, 0, DNNL_ARG_SRC, w->dim[1]);
  onednn_md_in weight = by_matmul ? turned(m, false, 1, DNNL_ARG_WEIGHTS, w->dim[1])
                                  : operand(m, false, 1, DNNL_ARG_WEIGHTS, m->c->quantised);
  onednn_md_in b =
    by_matmul ? matrix(m, false, 2, DNNL_ARG_BIAS, w->dim[0]) : any_in(m, 2, DNNL_ARG_BIAS);
  onednn_md_in y = matrix(m, true, 0, DNNL_ARG_DST, w->dim[0]);
  /* What follows the product comes last, since it lists arguments of its own. */
  dnnl_primitive_attr_t own;
  bool good = product_attr(m, &own) && !m->failed;
  if (by_matmul)
    good = good && onednn_matmul(&m->with, x, weight, b, y, &m->out->pd);
  else
    good = good && onednn_product_forward(&m->with, x, weight, b, y, &m->out->pd);
  if (own != NULL) dnnl_primitive_attr_destroy(own);
  return good;
}

/* dx = dy w, with all operands plain as in the forward. */
static bool product_grad_input(maker *m) {
  const neap_shape *w = &m->c->in[1].shape;
  const bool by_matmul = onednn_is_matmul(m->c);
  onednn_md_in dy = matrix(m, false, 0, by_matmul ? DNNL_ARG_SRC : DNNL_ARG_DIFF_DST, w->dim[0]);
  onednn_md_in weight =
    by_matmul ? matrix(m, false, 1, DNNL_ARG_WEIGHTS, w->dim[1]) : given_in(m, 1, DNNL_ARG_WEIGHTS);
  onednn_md_in dx = matrix(m, true, 0, by_matmul ? DNNL_ARG_DST : DNNL_ARG_DIFF_SRC, w->dim[1]);
  if (m->failed) return false;
  return by_matmul ? onednn_matmul(&m->with, dy, weight, NULL, dx, &m->out->pd)
                   : onednn_product_grad_input(&m->with, dx, weight, dy, &m->out->pd);
}

/* dw = dy^T x. */
static bool product_grad_weight(maker *m) {
  const neap_shape *dw = &m->c->out[0].shape;
  if (onednn_is_matmul(m->c)) {
    /* matmul knows no gradients: dw (N,K) is the product of dy turned (N,M) and x (M,K). */
    onednn_md_in x = matrix(m, false, 0, DNNL_ARG_WEIGHTS, dw->dim[1]),
                 dy = turned(m, false, 1, DNNL_ARG_SRC, dw->dim[0]),
                 weight = matrix(m, true, 0, DNNL_ARG_DST, dw->dim[1]);
    return !m->failed && onednn_matmul(&m->with, dy, x, NULL, weight, &m->out->pd);
  }
  onednn_md_in x = matrix(m, false, 0, DNNL_ARG_SRC, dw->dim[1]),
               dy = matrix(m, false, 1, DNNL_ARG_DIFF_DST, dw->dim[0]);
  onednn_md_in weight = operand(m, true, 0, DNNL_ARG_DIFF_WEIGHTS, false);
  return !m->failed && onednn_product_grad_weight(&m->with, x, weight, dy, &m->out->pd);
}

/* ---- elementwise ----------------------------------------------------------------------------- */

/* An operand as one row of all its lanes, padding included, in whatever layout it has: elementwise
 * kernels that map zero to zero keep padding lanes zero. */
static onednn_md_in lanes(maker *m, bool is_out, int position, int arg) {
  const neap_type *type = is_out ? &m->c->out[position] : &m->c->in[position];
  const neap_layout *layout = is_out ? &m->c->out_layout[position] : &m->c->in_layout[position],
                    plain = {0};
  neap_type row = {type->dtype, NEAP_SHAPE((int64_t)(neap_layout_bytes(type, layout) /
                                                     neap_dtype_bytes(type->dtype)))};
  dnnl_memory_desc_t *md = is_out ? &m->done[position] : &m->in[position];
  if (!onednn_md(&row, &plain, 1, md)) m->failed = true;
  m->out->arg[m->out->n_arg++] =
    (onednn_arg){.arg = arg, .is_out = is_out, .position = position, .keeps_given = true};
  return md;
}

/* One more operation behind those in the chain: with operand `position` of the case, as a row of
 * lanes. */
static bool append_binary(maker *m, dnnl_post_ops_t chain, dnnl_alg_kind_t algorithm,
                          int position) {
  int index = dnnl_post_ops_len(chain);
  onednn_md_in b =
    lanes(m, false, position, DNNL_ARG_ATTR_MULTIPLE_POST_OP(index) | DNNL_ARG_SRC_1);
  return !m->failed && onednn_then_binary(chain, algorithm, b);
}

/* A binary primitive with the chain of post-ops, which it owns from here on. Each element is read
 * from every operand before the output's is written, so the output may be any of them. */
static bool finish_chain(maker *m, dnnl_alg_kind_t algorithm, onednn_md_in a, onednn_md_in b,
                         onednn_md_in y, dnnl_post_ops_t chain, bool good) {
  dnnl_primitive_attr_t attr = NULL;
  good = good && !m->failed && dnnl_primitive_attr_clone(&attr, m->with.attr) == dnnl_success &&
         dnnl_primitive_attr_set_post_ops(attr, chain) == dnnl_success;
  /* Ours, with the chain; a wish for a kernel is not meant for it. */
  onednn_with with = {.engine = m->with.engine, .attr = attr};
  good = good && onednn_binary(&with, algorithm, a, b, y, &m->out->pd);
  if (attr != NULL) dnnl_primitive_attr_destroy(attr);
  dnnl_post_ops_destroy(chain);
  return good;
}

/* max(relu(max(x, x)), x). oneDNN's relu alone is max(x, 0) in the processor's sense, which gives 0
 * for NaN; the last maximum gives its second operand when one of the two is NaN, and changes
 * nothing else. */
static bool relu_forward(maker *m) {
  dnnl_post_ops_t chain = NULL;
  if (dnnl_post_ops_create(&chain) != dnnl_success) return false;
  onednn_md_in a = lanes(m, false, 0, DNNL_ARG_SRC_0), b = lanes(m, false, 0, DNNL_ARG_SRC_1);
  onednn_md_in y = lanes(m, true, 0, DNNL_ARG_DST);
  bool good = onednn_then_relu(chain);
  return finish_chain(m, dnnl_binary_max, a, b, y, chain,
                      good && append_binary(m, chain, dnnl_binary_max, 0));
}

/* dy times 1 or 0. */
static bool relu_backward(maker *m) {
  onednn_md_in y = lanes(m, false, 0, DNNL_ARG_DST), dy = lanes(m, false, 1, DNNL_ARG_DIFF_DST);
  lanes(m, true, 0, DNNL_ARG_DIFF_SRC);
  dnnl_alg_kind_t by_output = dnnl_eltwise_relu_use_dst_for_bwd;
  if (m->failed || !onednn_eltwise_forward(&m->with, by_output, y, &m->hint)) return false;
  m->with.hint = m->hint;
  return onednn_eltwise_backward(&m->with, by_output, dy, y, &m->out->pd);
}

/* The first two, and the others as post-ops. oneDNN's sum would allow in place over the first
 * alone. */
static bool add(maker *m) {
  dnnl_post_ops_t chain = NULL;
  if (m->c->n_in < 2 || dnnl_post_ops_create(&chain) != dnnl_success) return false;
  onednn_md_in a = lanes(m, false, 0, DNNL_ARG_SRC_0), b = lanes(m, false, 1, DNNL_ARG_SRC_1);
  onednn_md_in y = lanes(m, true, 0, DNNL_ARG_DST);
  bool good = true;
  for (int i = 2; i < m->c->n_in; i++)
    if (good) good = append_binary(m, chain, dnnl_binary_add, i);
  return finish_chain(m, dnnl_binary_add, a, b, y, chain, good);
}

static bool describe(maker *m) {
  switch (m->c->kind) {
    case NEAP_ONEDNN_CONV: return conv_forward(m);
    case NEAP_ONEDNN_CONV_GRAD_INPUT: return conv_grad_input(m);
    case NEAP_ONEDNN_CONV_GRAD_WEIGHT: return conv_grad_weight(m);
    case NEAP_ONEDNN_POOL: return pool_forward(m);
    case NEAP_ONEDNN_POOL_GRAD: return pool_backward(m);
    case NEAP_ONEDNN_NORM: return norm_forward(m);
    case NEAP_ONEDNN_NORM_GRAD: return norm_backward(m);
    case NEAP_ONEDNN_FC: return product_forward(m);
    case NEAP_ONEDNN_FC_GRAD_INPUT: return product_grad_input(m);
    case NEAP_ONEDNN_FC_GRAD_WEIGHT: return product_grad_weight(m);
    case NEAP_ONEDNN_RELU: return relu_forward(m);
    case NEAP_ONEDNN_RELU_GRAD: return relu_backward(m);
    case NEAP_ONEDNN_ADD: return add(m);
  }
  return false;
}

bool onednn_describe(const neap_onednn_case *c, bool free, dnnl_engine_t engine,
                     const_dnnl_primitive_attr_t attr, onednn_problem *out) {
  maker m;
  memset(&m, 0, sizeof m);
  memset(out, 0, sizeof *out);
  m.c = c, m.free = free, m.out = out;
  m.with = (onednn_with){.engine = engine, .attr = attr};
  bool good = describe(&m);
  /* All but the descriptor was needed on the way to it. */
  if (m.hint != NULL) dnnl_primitive_desc_destroy(m.hint);
  for (int i = 0; i < NEAP_ONEDNN_MAX_IN; i++) onednn_md_end(&m.in[i]);
  for (int i = 0; i < NEAP_ONEDNN_MAX_OUT; i++) onednn_md_end(&m.done[i]);
  return good;
}
