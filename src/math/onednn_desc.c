/* onednn_desc.c: from a case to oneDNN's primitive descriptor, and the table of its execution arguments. */
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
                       : (c->kind == NEAP_ONEDNN_CONV || c->kind == NEAP_ONEDNN_CONV_GRAD_INPUT) && position == 1;
  return weight ? c->groups : 1;
}

/* ---- operands ------------------------------------------------------------------------------------------------------------ */

static void add_arg(maker *m, int arg, bool is_out, int position, bool keeps_plain) {
  m->out->arg[m->out->n_arg++] = (onednn_arg){arg, is_out, keeps_plain, position};
}

/* Describes an operand and lists it as argument `arg`. NULL when it is absent. */
static const dnnl_memory_desc_t *operand(maker *m, bool is_out, int position, int arg, bool may_choose) {
  const neap_onednn_case *c = m->c;
  const neap_type *types = is_out ? c->out : c->in;
  dnnl_memory_desc_t *md = is_out ? &m->done[position] : &m->in[position];
  if (!onednn_is_present(types, is_out ? c->n_out : c->n_in, position)) return NULL;
  bool vector = types[position].shape.n_dim == 1; /* bias, statistics: never anything but dense */
  const neap_layout *layout = is_out ? &c->out_layout[position] : &c->in_layout[position];
  if (!onednn_md(&types[position], m->free && may_choose && !vector ? NULL : layout, onednn_groups(c, is_out, position), md))
    m->failed = true;
  add_arg(m, arg, is_out, position, vector);
  return md;
}

static const dnnl_memory_desc_t *any_in(maker *m, int position, int arg) { return operand(m, false, position, arg, true); }
static const dnnl_memory_desc_t *any_out(maker *m, int position, int arg) { return operand(m, true, position, arg, true); }
static const dnnl_memory_desc_t *given_in(maker *m, int position, int arg) { return operand(m, false, position, arg, false); }

/* An operand seen as a dense matrix (rows, columns), whatever its dimensions; of a product. */
static const dnnl_memory_desc_t *matrix(maker *m, bool is_out, int position, int arg, int64_t columns) {
  const neap_type *type = is_out ? &m->c->out[position] : &m->c->in[position];
  int64_t elems = neap_shape_elems(&type->shape);
  neap_type flat = {type->dtype, NEAP_SHAPE(elems / columns, columns)};
  dnnl_memory_desc_t *md = is_out ? &m->done[position] : &m->in[position];
  neap_layout plain = {.kind = NEAP_LAYOUT_PLAIN};
  if (!onednn_md(&flat, &plain, 1, md)) m->failed = true;
  add_arg(m, arg, is_out, position, true);
  return md;
}

/* The descriptor; `hint`, the forward's, is consumed. */
static bool finish(maker *m, const_dnnl_op_desc_t desc, dnnl_status_t status, dnnl_primitive_desc_t hint) {
  bool good = !m->failed && status == dnnl_success &&
              dnnl_primitive_desc_create(&m->out->pd, desc, m->attr, m->engine, hint) == dnnl_success;
  if (hint != NULL) dnnl_primitive_desc_destroy(hint);
  return good;
}

/* ---- convolution ------------------------------------------------------------------------------------------------------------ */

typedef struct geometry {
  dnnl_dims_t kernel, stride, dilate, begin, end;
} geometry;

/* `in`, `out`: the spatial shapes. Rounding up may reach beyond the padding that was asked for. */
static geometry geometry_of(const neap_onednn_case *c, const neap_shape *in, const neap_shape *out) {
  geometry g;
  memset(&g, 0, sizeof g);
  for (int d = 0; d < c->n_space; d++) {
    int64_t reach = (out->dim[2 + d] - 1) * c->stride[d] + (c->kernel[d] - 1) * c->dilation[d] + 1;
    g.kernel[d] = c->kernel[d], g.stride[d] = c->stride[d], g.dilate[d] = c->dilation[d] - 1, g.begin[d] = c->begin[d];
    g.end[d] = NEAP_MAX(c->end[d], reach - in->dim[2 + d] - c->begin[d]);
  }
  return g;
}

static dnnl_alg_kind_t conv_algorithm(const neap_onednn_case *c) {
  return c->algorithm == NEAP_ONEDNN_WINOGRAD ? dnnl_convolution_winograd : dnnl_convolution_direct;
}

/* Training, also for inference: only then Winograd leaves the weights in a layout that can be told in dimensions. */
static bool conv_forward(maker *m) {
  geometry g = geometry_of(m->c, &m->c->in[0].shape, &m->c->out[0].shape);
  const dnnl_memory_desc_t *x = any_in(m, 0, DNNL_ARG_SRC), *w = any_in(m, 1, DNNL_ARG_WEIGHTS);
  const dnnl_memory_desc_t *b = any_in(m, 2, DNNL_ARG_BIAS), *y = any_out(m, 0, DNNL_ARG_DST);
  dnnl_convolution_desc_t desc;
  dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(&desc, dnnl_forward_training, conv_algorithm(m->c), x, w, b,
                                                                    y, g.stride, g.dilate, g.begin, g.end);
  return finish(m, &desc, status, NULL);
}

static bool conv_grad_input(maker *m) {
  geometry g = geometry_of(m->c, &m->c->out[0].shape, &m->c->in[0].shape);
  const dnnl_memory_desc_t *dy = any_in(m, 0, DNNL_ARG_DIFF_DST), *w = any_in(m, 1, DNNL_ARG_WEIGHTS);
  const dnnl_memory_desc_t *dx = any_out(m, 0, DNNL_ARG_DIFF_SRC);
  dnnl_convolution_desc_t desc;
  dnnl_status_t status =
    dnnl_dilated_convolution_backward_data_desc_init(&desc, conv_algorithm(m->c), dx, w, dy, g.stride, g.dilate, g.begin, g.end);
  return finish(m, &desc, status, NULL);
}

static bool conv_grad_weight(maker *m) {
  geometry g = geometry_of(m->c, &m->c->in[0].shape, &m->c->in[1].shape);
  const dnnl_memory_desc_t *x = any_in(m, 0, DNNL_ARG_SRC), *dy = any_in(m, 1, DNNL_ARG_DIFF_DST);
  const dnnl_memory_desc_t *dw = any_out(m, 0, DNNL_ARG_DIFF_WEIGHTS), *db = any_out(m, 1, DNNL_ARG_DIFF_BIAS);
  dnnl_convolution_desc_t desc;
  dnnl_status_t status = dnnl_dilated_convolution_backward_weights_desc_init(&desc, conv_algorithm(m->c), x, dw, db, dy, g.stride,
                                                                             g.dilate, g.begin, g.end);
  return finish(m, &desc, status, NULL);
}

/* ---- pooling ---------------------------------------------------------------------------------------------------------------------- */

static dnnl_alg_kind_t pool_algorithm(const neap_onednn_case *c) {
  if (!c->average) return dnnl_pooling_max;
  return c->count_pad ? dnnl_pooling_avg_include_padding : dnnl_pooling_avg_exclude_padding;
}

static bool pool_forward(maker *m) {
  geometry g = geometry_of(m->c, &m->c->in[0].shape, &m->c->out[0].shape);
  bool stash = onednn_is_present(m->c->out, m->c->n_out, 1);
  const dnnl_memory_desc_t *x = given_in(m, 0, DNNL_ARG_SRC), *y = any_out(m, 0, DNNL_ARG_DST);
  if (stash) add_arg(m, DNNL_ARG_WORKSPACE, true, 1, true);
  dnnl_pooling_v2_desc_t desc;
  dnnl_status_t status =
    dnnl_pooling_v2_forward_desc_init(&desc, stash ? dnnl_forward_training : dnnl_forward_inference, pool_algorithm(m->c), x, y,
                                      g.stride, g.kernel, g.dilate, g.begin, g.end);
  return finish(m, &desc, status, NULL);
}

static bool pool_backward(maker *m) {
  geometry g = geometry_of(m->c, &m->c->out[0].shape, &m->c->in[0].shape);
  const dnnl_memory_desc_t *dy = given_in(m, 0, DNNL_ARG_DIFF_DST), *dx = operand(m, true, 0, DNNL_ARG_DIFF_SRC, false);
  if (onednn_is_present(m->c->in, m->c->n_in, 1)) add_arg(m, DNNL_ARG_WORKSPACE, false, 1, true);
  if (m->failed) return false;
  dnnl_primitive_desc_t hint = NULL;
  dnnl_pooling_v2_desc_t desc, forward;
  dnnl_status_t status = dnnl_pooling_v2_forward_desc_init(&forward, dnnl_forward_training, pool_algorithm(m->c), dx, dy,
                                                           g.stride, g.kernel, g.dilate, g.begin, g.end);
  if (status != dnnl_success || dnnl_primitive_desc_create(&hint, &forward, m->attr, m->engine, NULL) != dnnl_success)
    return false;
  status = dnnl_pooling_v2_backward_desc_init(&desc, pool_algorithm(m->c), dx, dy, g.stride, g.kernel, g.dilate, g.begin, g.end);
  return finish(m, &desc, status, hint);
}

/* ---- batch normalisation ------------------------------------------------------------------------------------------------------------ */

static unsigned norm_flags(const neap_onednn_case *c) {
  return (unsigned)dnnl_use_scale | (unsigned)dnnl_use_shift | (c->global_stats ? (unsigned)dnnl_use_global_stats : 0u) |
         (c->relu ? (unsigned)dnnl_fuse_norm_relu : 0u);
}

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
  dnnl_prop_kind_t kind = stash || !c->global_stats ? dnnl_forward_training : dnnl_forward_inference;
  dnnl_status_t status = dnnl_batch_normalization_forward_desc_init(&desc, kind, x, (float)c->eps, norm_flags(c));
  return finish(m, &desc, status, NULL);
}

static bool norm_backward(maker *m) {
  const neap_onednn_case *c = m->c;
  const dnnl_memory_desc_t *x = given_in(m, 0, DNNL_ARG_SRC), *dy = given_in(m, 1, DNNL_ARG_DIFF_DST);
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
  dnnl_status_t status =
    dnnl_batch_normalization_forward_desc_init(&forward, dnnl_forward_training, x, (float)c->eps, norm_flags(c));
  if (status != dnnl_success || dnnl_primitive_desc_create(&hint, &forward, m->attr, m->engine, NULL) != dnnl_success)
    return false;
  status = dnnl_batch_normalization_backward_desc_init(&desc, dnnl_backward, dy, x, (float)c->eps, norm_flags(c));
  return finish(m, &desc, status, hint);
}

/* ---- products ------------------------------------------------------------------------------------------------------------------------- */

/* All plain: packing a weight for one product costs more than the packed kernel saves (measured up to 1024 rows). */
static bool product_forward(maker *m) {
  const neap_shape *w = &m->c->in[1].shape;
  const dnnl_memory_desc_t *x = matrix(m, false, 0, DNNL_ARG_SRC, w->dim[1]), *weight = given_in(m, 1, DNNL_ARG_WEIGHTS);
  const dnnl_memory_desc_t *b = any_in(m, 2, DNNL_ARG_BIAS), *y = matrix(m, true, 0, DNNL_ARG_DST, w->dim[0]);
  dnnl_inner_product_desc_t desc;
  return finish(m, &desc, dnnl_inner_product_forward_desc_init(&desc, dnnl_forward_training, x, weight, b, y), NULL);
}

static bool product_grad_input(maker *m) {
  const neap_shape *w = &m->c->in[1].shape;
  const dnnl_memory_desc_t *dy = matrix(m, false, 0, DNNL_ARG_DIFF_DST, w->dim[0]), *weight = given_in(m, 1, DNNL_ARG_WEIGHTS);
  const dnnl_memory_desc_t *dx = matrix(m, true, 0, DNNL_ARG_DIFF_SRC, w->dim[1]);
  dnnl_inner_product_desc_t desc;
  return finish(m, &desc, dnnl_inner_product_backward_data_desc_init(&desc, dx, weight, dy), NULL);
}

static bool product_grad_weight(maker *m) {
  const neap_shape *dw = &m->c->out[0].shape;
  const dnnl_memory_desc_t *x = matrix(m, false, 0, DNNL_ARG_SRC, dw->dim[1]),
                           *dy = matrix(m, false, 1, DNNL_ARG_DIFF_DST, dw->dim[0]);
  const dnnl_memory_desc_t *weight = operand(m, true, 0, DNNL_ARG_DIFF_WEIGHTS, false), *db = any_out(m, 1, DNNL_ARG_DIFF_BIAS);
  dnnl_inner_product_desc_t desc;
  return finish(m, &desc, dnnl_inner_product_backward_weights_desc_init(&desc, x, weight, db, dy), NULL);
}

bool onednn_describe(const neap_onednn_case *c, bool free, dnnl_engine_t engine, const_dnnl_primitive_attr_t attr,
                     onednn_problem *out) {
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
  }
  return false;
}

#endif
