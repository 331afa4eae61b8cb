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
#include "base/base.h"

#if NEAP_WITH_DNNL

#include "math/onednn_int.h"

#include <string.h>

/* What the functions below work on. `md`: of the operands, as fixed by the case or left free. */
typedef struct maker {
  const neap_onednn_case *c;
  bool free;
  dnnl_engine_t engine;
  const_dnnl_primitive_attr_t attr;
  onednn_problem *out;
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
static const dnnl_memory_desc_t *operand(maker *m, bool is_out, int position, int arg,
                                         bool may_choose) {
  const neap_onednn_case *c = m->c;
  const neap_type *types = is_out ? c->out : c->in;
  dnnl_memory_desc_t *md = is_out ? &m->done[position] : &m->in[position];
  if (!onednn_is_present(types, is_out ? c->n_out : c->n_in, position)) return NULL;
  bool vector = types[position].shape.n_dim == 1; /* bias, statistics: never anything but dense */
  const neap_layout *layout = is_out ? &c->out_layout[position] : &c->in_layout[position];
  if (!onednn_md(&types[position], m->free && may_choose && !vector ? NULL : layout,
                 onednn_groups(c, is_out, position), md))
    m->failed = true;
  add_arg(m, arg, is_out, position, vector);
  return md;
}

/* any: a layout that oneDNN may choose; given: the one that the case has. */
static const dnnl_memory_desc_t *any_in(maker *m, int position, int arg) {
  return operand(m, false, position, arg, true);
}
static const dnnl_memory_desc_t *any_out(maker *m, int position, int arg) {
  return operand(m, true, position, arg, true);
}
static const dnnl_memory_desc_t *given_in(maker *m, int position, int arg) {
  return operand(m, false, position, arg, false);
}

/* An operand seen as a dense matrix (rows, columns), whatever its dimensions; of a product. */
static const dnnl_memory_desc_t *matrix(maker *m, bool is_out, int position, int arg,
                                        int64_t columns) {
  const neap_type *type = is_out ? &m->c->out[position] : &m->c->in[position];
  int64_t elems = neap_shape_elems(&type->shape);
  neap_type flat = {type->dtype, NEAP_SHAPE(elems / columns, columns)};
  dnnl_memory_desc_t *md = is_out ? &m->done[position] : &m->in[position];
  neap_layout plain = {.kind = NEAP_LAYOUT_PLAIN};
  if (!onednn_md(&flat, &plain, 1, md)) m->failed = true;
  add_arg(m, arg, is_out, position, true);
  return md;
}

/* Makes a descriptor, into NULL, with the first kernel that oneDNN has. Of norms it is the second:
 * the threads of the first wait for each other by looking, many times in a run, which beside busy
 * processes took 160 times as long (measured); the second has a parallel region for each part
 * instead. */
static bool create(const maker *m, const_dnnl_op_desc_t desc, const_dnnl_primitive_desc_t hint,
                   dnnl_primitive_desc_t *pd) {
  bool is_norm = m->c->kind == NEAP_ONEDNN_NORM || m->c->kind == NEAP_ONEDNN_NORM_GRAD,
       found = false;
  if (!is_norm)
    return dnnl_primitive_desc_create(pd, desc, m->attr, m->engine, hint) == dnnl_success;
  dnnl_primitive_desc_iterator_t all = NULL;
  if (dnnl_primitive_desc_iterator_create(&all, desc, m->attr, m->engine, hint) != dnnl_success)
    return false;
  do {
    const char *name = "";
    dnnl_primitive_desc_t other = dnnl_primitive_desc_iterator_fetch(all);
    if (other == NULL) break;
    dnnl_primitive_desc_query(other, dnnl_query_impl_info_str, 0, (void *)&name);
    found = strncmp(name, "bnorm_tbb_jit", strlen("bnorm_tbb_jit")) == 0;
    /* the first one, where none is the second */
    if (*pd != NULL) dnnl_primitive_desc_destroy(found ? *pd : other);
    if (found || *pd == NULL) *pd = other;
  } while (!found && dnnl_primitive_desc_iterator_next(all) == dnnl_success);
  dnnl_primitive_desc_iterator_destroy(all);
  return *pd != NULL;
}

/* Makes the descriptor, unless an operand or `status`, of the operation's descriptor, has failed.
 * `hint`, the forward's or NULL, is consumed either way. */
static bool finish(maker *m, const_dnnl_op_desc_t desc, dnnl_status_t status,
                   dnnl_primitive_desc_t hint) {
  bool good = !m->failed && status == dnnl_success && create(m, desc, hint, &m->out->pd);
  if (hint != NULL) dnnl_primitive_desc_destroy(hint);
  return good;
}

/* ---- convolution ----------------------------------------------------------------------------- */

/* A window by spatial dimension, as oneDNN counts: dilation from 0, padding in elements. */
typedef struct geometry {
  dnnl_dims_t kernel, stride, dilate, begin, end;
} geometry;

/* `in`, `out`: the spatial shapes. Rounding up may reach beyond the padding that was asked for. */
static geometry geometry_of(const neap_onednn_case *c, const neap_shape *in,
                            const neap_shape *out) {
  geometry g;
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

/* The attributes with what follows the convolution: the sum with what y holds. They replace m's;
 * the caller destroys *own when the descriptor is made. *own is NULL when nothing follows. */
static bool conv_attr(maker *m, dnnl_primitive_attr_t *own) {
  *own = NULL;
  if (!m->c->add) return true;
  dnnl_post_ops_t chain = NULL;
  bool good = dnnl_post_ops_create(&chain) == dnnl_success &&
              dnnl_primitive_attr_clone(own, m->attr) == dnnl_success;
  good = good && dnnl_post_ops_append_sum(chain, 1.0f) == dnnl_success;
  good = good && dnnl_primitive_attr_set_post_ops(*own, chain) == dnnl_success;
  if (good) m->attr = *own;
  if (chain != NULL) dnnl_post_ops_destroy(chain);
  return good;
}

/* Training, also for inference: only then Winograd leaves the weights in a layout that can be told
 * in dimensions. */
static bool conv_forward(maker *m) {
  geometry g = geometry_of(m->c, &m->c->in[0].shape, &m->c->out[0].shape);
  const dnnl_memory_desc_t *x = any_in(m, 0, DNNL_ARG_SRC), *w = any_in(m, 1, DNNL_ARG_WEIGHTS);
  const dnnl_memory_desc_t *b = any_in(m, 2, DNNL_ARG_BIAS), *y = any_out(m, 0, DNNL_ARG_DST);
  dnnl_convolution_desc_t desc;
  dnnl_status_t status =
    dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_training, conv_algorithm(m->c),
                                               x, w, b, y, g.stride, g.dilate, g.begin, g.end);
  dnnl_primitive_attr_t own;
  bool good = conv_attr(m, &own) && finish(m, &desc, status, NULL);
  if (own != NULL) dnnl_primitive_attr_destroy(own);
  return good;
}

/* Backward data: dy and w give dx, whose shape takes the place of the forward's x. */
static bool conv_grad_input(maker *m) {
  geometry g = geometry_of(m->c, &m->c->out[0].shape, &m->c->in[0].shape);
  const dnnl_memory_desc_t *dy = any_in(m, 0, DNNL_ARG_DIFF_DST),
                           *w = any_in(m, 1, DNNL_ARG_WEIGHTS);
  const dnnl_memory_desc_t *dx = any_out(m, 0, DNNL_ARG_DIFF_SRC);
  dnnl_convolution_desc_t desc;
  dnnl_status_t status = dnnl_dilated_convolution_backward_data_desc_init(
    &desc, conv_algorithm(m->c), dx, w, dy, g.stride, g.dilate, g.begin, g.end);
  return finish(m, &desc, status, NULL);
}

/* Backward weights: dw alone. The ops sum the bias's themselves, in an order that keeps
 * its digits over many rows. */
static bool conv_grad_weight(maker *m) {
  geometry g = geometry_of(m->c, &m->c->in[0].shape, &m->c->in[1].shape);
  const dnnl_memory_desc_t *x = any_in(m, 0, DNNL_ARG_SRC), *dy = any_in(m, 1, DNNL_ARG_DIFF_DST);
  const dnnl_memory_desc_t *dw = any_out(m, 0, DNNL_ARG_DIFF_WEIGHTS);
  dnnl_convolution_desc_t desc;
  dnnl_status_t status = dnnl_dilated_convolution_backward_weights_desc_init(
    &desc, conv_algorithm(m->c), x, dw, NULL, dy, g.stride, g.dilate, g.begin, g.end);
  return finish(m, &desc, status, NULL);
}

/* ---- pooling --------------------------------------------------------------------------------- */

static dnnl_alg_kind_t pool_algorithm(const neap_onednn_case *c) {
  if (!c->average) return dnnl_pooling_max;
  return c->count_pad ? dnnl_pooling_avg_include_padding : dnnl_pooling_avg_exclude_padding;
}

/* Training only when there is a stash to keep the maxima's places in; inference needs none and
 * writes less. */
static bool pool_forward(maker *m) {
  geometry g = geometry_of(m->c, &m->c->in[0].shape, &m->c->out[0].shape);
  bool stash = onednn_is_present(m->c->out, m->c->n_out, 1);
  const dnnl_memory_desc_t *x = given_in(m, 0, DNNL_ARG_SRC), *y = any_out(m, 0, DNNL_ARG_DST);
  if (stash) add_arg(m, DNNL_ARG_WORKSPACE, true, 1, true);
  dnnl_pooling_v2_desc_t desc;
  dnnl_status_t status = dnnl_pooling_v2_forward_desc_init(
    &desc, stash ? dnnl_forward_training : dnnl_forward_inference, pool_algorithm(m->c), x, y,
    g.stride, g.kernel, g.dilate, g.begin, g.end);
  return finish(m, &desc, status, NULL);
}

/* The stash is absent for averages, whose gradient needs no places. Layouts are those of dy and dx
 * as they are given. */
static bool pool_backward(maker *m) {
  geometry g = geometry_of(m->c, &m->c->out[0].shape, &m->c->in[0].shape);
  const dnnl_memory_desc_t *dy = given_in(m, 0, DNNL_ARG_DIFF_DST),
                           *dx = operand(m, true, 0, DNNL_ARG_DIFF_SRC, false);
  if (onednn_is_present(m->c->in, m->c->n_in, 1)) add_arg(m, DNNL_ARG_WORKSPACE, false, 1, true);
  if (m->failed) return false;
  dnnl_primitive_desc_t hint = NULL;
  dnnl_pooling_v2_desc_t desc, forward;
  dnnl_status_t status =
    dnnl_pooling_v2_forward_desc_init(&forward, dnnl_forward_training, pool_algorithm(m->c), dx, dy,
                                      g.stride, g.kernel, g.dilate, g.begin, g.end);
  if (status != dnnl_success || !create(m, &forward, NULL, &hint)) return false;
  status = dnnl_pooling_v2_backward_desc_init(&desc, pool_algorithm(m->c), dx, dy, g.stride,
                                              g.kernel, g.dilate, g.begin, g.end);
  return finish(m, &desc, status, hint);
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
  const dnnl_memory_desc_t *x = given_in(m, 0, DNNL_ARG_SRC);
  add_arg(m, DNNL_ARG_SCALE, false, 1, true);
  add_arg(m, DNNL_ARG_SHIFT, false, 2, true);
  add_arg(m, DNNL_ARG_MEAN, !c->global_stats, c->global_stats ? 3 : 1, true);
  add_arg(m, DNNL_ARG_VARIANCE, !c->global_stats, c->global_stats ? 4 : 2, true);
  any_out(m, 0, DNNL_ARG_DST); /* its layout is x's */
  if (stash) add_arg(m, DNNL_ARG_WORKSPACE, true, 3, true);
  dnnl_batch_normalization_desc_t desc;
  dnnl_prop_kind_t kind =
    stash || !c->global_stats ? dnnl_forward_training : dnnl_forward_inference;
  dnnl_status_t status =
    dnnl_batch_normalization_forward_desc_init(&desc, kind, x, (float)c->eps, norm_flags(c));
  return finish(m, &desc, status, NULL);
}

/* Everything from x, dy, the statistics and gamma; a fused ReLU's gradient goes by the mask in the
 * stash, so that y is not read. */
static bool norm_backward(maker *m) {
  const neap_onednn_case *c = m->c;
  const dnnl_memory_desc_t *x = given_in(m, 0, DNNL_ARG_SRC),
                           *dy = given_in(m, 1, DNNL_ARG_DIFF_DST);
  add_arg(m, DNNL_ARG_MEAN, false, 2, true);
  add_arg(m, DNNL_ARG_VARIANCE, false, 3, true);
  add_arg(m, DNNL_ARG_SCALE, false, 4, true);
  add_arg(m, DNNL_ARG_SHIFT, false, 4, true); /* demanded but not read: any vector of C does */
  if (c->relu) add_arg(m, DNNL_ARG_WORKSPACE, false, 5, true);
  any_out(m, 0, DNNL_ARG_DIFF_SRC);
  add_arg(m, DNNL_ARG_DIFF_SCALE, true, 1, true);
  add_arg(m, DNNL_ARG_DIFF_SHIFT, true, 2, true);
  if (m->failed) return false;
  dnnl_primitive_desc_t hint = NULL;
  dnnl_batch_normalization_desc_t desc, forward;
  dnnl_status_t status = dnnl_batch_normalization_forward_desc_init(
    &forward, dnnl_forward_training, x, (float)c->eps, norm_flags(c));
  if (status != dnnl_success || !create(m, &forward, NULL, &hint)) return false;
  status = dnnl_batch_normalization_backward_desc_init(&desc, dnnl_backward, dy, x, (float)c->eps,
                                                       norm_flags(c));
  return finish(m, &desc, status, hint);
}

/* ---- products -------------------------------------------------------------------------------- */

/* All plain: packing a weight for one product costs more than the packed kernel saves (measured up
 * to 1024 rows). */
static bool product_forward(maker *m) {
  const neap_shape *w = &m->c->in[1].shape;
  const dnnl_memory_desc_t *x = matrix(m, false, 0, DNNL_ARG_SRC, w->dim[1]),
                           *weight = given_in(m, 1, DNNL_ARG_WEIGHTS);
  const dnnl_memory_desc_t *b = any_in(m, 2, DNNL_ARG_BIAS),
                           *y = matrix(m, true, 0, DNNL_ARG_DST, w->dim[0]);
  dnnl_inner_product_desc_t desc;
  return finish(m, &desc,
                dnnl_inner_product_forward_desc_init(&desc, dnnl_forward_training, x, weight, b, y),
                NULL);
}

/* dx = dy w, with all operands plain as in the forward. */
static bool product_grad_input(maker *m) {
  const neap_shape *w = &m->c->in[1].shape;
  const dnnl_memory_desc_t *dy = matrix(m, false, 0, DNNL_ARG_DIFF_DST, w->dim[0]),
                           *weight = given_in(m, 1, DNNL_ARG_WEIGHTS);
  const dnnl_memory_desc_t *dx = matrix(m, true, 0, DNNL_ARG_DIFF_SRC, w->dim[1]);
  dnnl_inner_product_desc_t desc;
  return finish(m, &desc, dnnl_inner_product_backward_data_desc_init(&desc, dx, weight, dy), NULL);
}

/* dw = dy^T x. */
static bool product_grad_weight(maker *m) {
  const neap_shape *dw = &m->c->out[0].shape;
  const dnnl_memory_desc_t *x = matrix(m, false, 0, DNNL_ARG_SRC, dw->dim[1]),
                           *dy = matrix(m, false, 1, DNNL_ARG_DIFF_DST, dw->dim[0]);
  const dnnl_memory_desc_t *weight = operand(m, true, 0, DNNL_ARG_DIFF_WEIGHTS, false);
  dnnl_inner_product_desc_t desc;
  return finish(m, &desc, dnnl_inner_product_backward_weights_desc_init(&desc, x, weight, NULL, dy),
                NULL);
}

/* ---- elementwise ----------------------------------------------------------------------------- */

/* An operand as one row of all its lanes, padding included, in whatever layout it has: elementwise
 * kernels that map zero to zero keep padding lanes zero. */
static const dnnl_memory_desc_t *lanes(maker *m, bool is_out, int position, int arg) {
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
  const dnnl_memory_desc_t *b =
    lanes(m, false, position, DNNL_ARG_ATTR_MULTIPLE_POST_OP(index) | DNNL_ARG_SRC_1);
  return !m->failed && dnnl_post_ops_append_binary(chain, algorithm, b) == dnnl_success;
}

/* A binary primitive with the chain of post-ops, which it owns from here on. Each element is read
 * from every operand before the output's is written, so the output may be any of them. */
static bool finish_chain(maker *m, dnnl_alg_kind_t algorithm, const dnnl_memory_desc_t *a,
                         const dnnl_memory_desc_t *b, const dnnl_memory_desc_t *y,
                         dnnl_post_ops_t chain, bool good) {
  dnnl_primitive_attr_t attr = NULL;
  dnnl_binary_desc_t desc;
  good = good && !m->failed && dnnl_primitive_attr_clone(&attr, m->attr) == dnnl_success &&
         dnnl_primitive_attr_set_post_ops(attr, chain) == dnnl_success &&
         dnnl_binary_desc_init(&desc, algorithm, a, b, y) == dnnl_success &&
         dnnl_primitive_desc_create(&m->out->pd, &desc, attr, m->engine, NULL) == dnnl_success;
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
  const dnnl_memory_desc_t *a = lanes(m, false, 0, DNNL_ARG_SRC_0),
                           *b = lanes(m, false, 0, DNNL_ARG_SRC_1);
  const dnnl_memory_desc_t *y = lanes(m, true, 0, DNNL_ARG_DST);
  bool good = dnnl_post_ops_append_eltwise(chain, 1, dnnl_eltwise_relu, 0, 0) == dnnl_success;
  return finish_chain(m, dnnl_binary_max, a, b, y, chain,
                      good && append_binary(m, chain, dnnl_binary_max, 0));
}

/* dy times 1 or 0. */
static bool relu_backward(maker *m) {
  const dnnl_memory_desc_t *y = lanes(m, false, 0, DNNL_ARG_DST),
                           *dy = lanes(m, false, 1, DNNL_ARG_DIFF_DST);
  lanes(m, true, 0, DNNL_ARG_DIFF_SRC);
  dnnl_primitive_desc_t hint = NULL;
  dnnl_eltwise_desc_t desc, forward;
  dnnl_alg_kind_t by_output = dnnl_eltwise_relu_use_dst_for_bwd;
  if (m->failed ||
      dnnl_eltwise_forward_desc_init(&forward, dnnl_forward_training, by_output, y, 0, 0) !=
        dnnl_success ||
      !create(m, &forward, NULL, &hint))
    return false;
  return finish(m, &desc, dnnl_eltwise_backward_desc_init(&desc, by_output, dy, y, 0, 0), hint);
}

/* The first two, and the others as post-ops. oneDNN's sum would allow in place over the first
 * alone. */
static bool add(maker *m) {
  dnnl_post_ops_t chain = NULL;
  if (m->c->n_in < 2 || dnnl_post_ops_create(&chain) != dnnl_success) return false;
  const dnnl_memory_desc_t *a = lanes(m, false, 0, DNNL_ARG_SRC_0),
                           *b = lanes(m, false, 1, DNNL_ARG_SRC_1);
  const dnnl_memory_desc_t *y = lanes(m, true, 0, DNNL_ARG_DST);
  bool good = true;
  for (int i = 2; i < m->c->n_in && good; i++) good = append_binary(m, chain, dnnl_binary_add, i);
  return finish_chain(m, dnnl_binary_add, a, b, y, chain, good);
}

bool onednn_describe(const neap_onednn_case *c, bool free, dnnl_engine_t engine,
                     const_dnnl_primitive_attr_t attr, onednn_problem *out) {
  maker m = {.c = c, .free = free, .engine = engine, .attr = attr, .out = out};
  memset(out, 0, sizeof *out);
  switch (c->kind) {
    case NEAP_ONEDNN_CONV: return conv_forward(&m);
    case NEAP_ONEDNN_CONV_GRAD_INPUT: return conv_grad_input(&m);
    case NEAP_ONEDNN_CONV_GRAD_WEIGHT: return conv_grad_weight(&m);
    case NEAP_ONEDNN_POOL: return pool_forward(&m);
    case NEAP_ONEDNN_POOL_GRAD: return pool_backward(&m);
    case NEAP_ONEDNN_NORM: return norm_forward(&m);
    case NEAP_ONEDNN_NORM_GRAD: return norm_backward(&m);
    case NEAP_ONEDNN_FC: return product_forward(&m);
    case NEAP_ONEDNN_FC_GRAD_INPUT: return product_grad_input(&m);
    case NEAP_ONEDNN_FC_GRAD_WEIGHT: return product_grad_weight(&m);
    case NEAP_ONEDNN_RELU: return relu_forward(&m);
    case NEAP_ONEDNN_RELU_GRAD: return relu_backward(&m);
    case NEAP_ONEDNN_ADD: return add(&m);
  }
  return false;
}

#endif
