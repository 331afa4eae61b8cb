/* gradient_op.c: a Gradient op of a net: its operands checked, the backward pass emitted in its
 * place (gradient.c), and what that gives bound to the names that the net gave. Where no gradient
 * arrives the net gets zeros, if it said that it would take them.
 */
#include "build/build_int.h"

#include <stdio.h>

/* A gradient of zeros is more often a slip than a wish. */
static neap_status fail_unused(const neap_net_op *op, int i, neap_error *error) {
  neap_error inner = {0};
  snprintf(inner.blob, sizeof inner.blob, "%s", op->in[i + 1]);
  neap_fail(&inner, NEAP_GRAPH,
            "\"%s\" does not depend on \"%s\", or only through ops without a gradient", op->in[0],
            op->in[i + 1]);
  neap_hint(&inner, "allow_unused = true gives zeros");
  return graph_locate(error, &inner, op->op->name, op->name, op->scope, op->line);
}

/* Whether value `to` is computed from `from`, subnets' operands included. True too where memory is
 * refused. */
static bool depends_on(const neap_graph *graph, neap_value_id to, neap_value_id from) {
  /* Marks spread forwards from `from`. */
  bool *reached = neap_alloc_zeroed((size_t)graph->n_value + 1);
  if (reached == NULL) return true;
  reached[from] = true;

  /* One walk in definition order is enough: what a node reads stands before it. */
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    bool reads = false;
    for (int i = 0; i < node->n_in; i++)
      if (node->in[i] >= 0 && reached[node->in[i]]) reads = true;
    if (!reads) continue;
    for (int k = 0; k < node->n_out; k++) reached[node->out[k]] = true;
  }
  bool depends = reached[to];
  neap_free(reached);
  return depends;
}

/* The name means what an op has written since; the loss depends on what it meant before. Zeros
 * would train nothing. */
static neap_status fail_older(const neap_builder *b, const neap_net_op *op, int i,
                              neap_value_id newest, neap_error *error) {
  const neap_node *writer = &b->graph->node[b->graph->value[newest].node];
  neap_error inner = {0};
  snprintf(inner.blob, sizeof inner.blob, "%s", op->in[i + 1]);
  neap_fail(&inner, NEAP_GRAPH, "\"%s\" depends on \"%s\" as it was before %s \"%s\" wrote it",
            op->in[0], op->in[i + 1], writer->op->name, writer->name);
  neap_hint(&inner, "write it after the gradient, or before the loss reads it");
  return graph_locate(error, &inner, op->op->name, op->name, op->scope, op->line);
}

/* Gives each gradient the blob name the net gave it. One value under two names, or a value that
 * already has a name, is copied, since each blob has its own bytes. */
static neap_status name_gradients(neap_builder *b, const neap_net_op *op, const neap_value_id *wrt,
                                  neap_value_id *dwrt, neap_error *error) {
  build_begin_emit(b, error);
  neap_value_id loss = neap_map_get(&b->env, op->in[0], NEAP_NO_VALUE);
  for (int i = 0; i < op->n_out; i++) {
    /* A name that was written since may hide the value that the loss does depend on. */
    neap_value_id older = neap_map_get(&b->stored, op->in[i + 1], NEAP_NO_VALUE);
    if (dwrt[i] == NEAP_NO_VALUE && older >= 0 && loss >= 0 && depends_on(b->graph, loss, older))
      return fail_older(b, op, i, wrt[i], error);
    if (dwrt[i] == NEAP_NO_VALUE && op->attrs[0].i == 0) return fail_unused(op, i, error);
    if (dwrt[i] == NEAP_NO_VALUE) dwrt[i] = build_constant(b, b->graph->value[wrt[i]].type, 0);
    NEAP_TRY(b->emit_status);
    if (b->graph->value[dwrt[i]].is_blob) dwrt[i] = build_emit_copy(b, dwrt[i]);
    NEAP_TRY(b->emit_status);
    /* It has no other name by now, so this one can be its own. */
    b->graph->value[dwrt[i]].name = op->out[i];
    b->graph->value[dwrt[i]].is_blob = true;
    b->graph->value[dwrt[i]].gradient_of = b->graph->value[wrt[i]].name;
    NEAP_TRY(build_bind(b, op->out[i], dwrt[i], error));
  }
  return NEAP_OK;
}

/* What the loss is multiplied by before it is differentiated, and the gradients divided by: those
 * that go through f16 are often smaller than its numbers. A power of two, so that no digit changes;
 * bf16 has the range of f32. */
static double scale_of(const neap_builder *b) {
  return build_is_mixing(b) && b->options->dtype == NEAP_DTYPE_F16 ? 1024 : 1;
}

static neap_status divide_scale(neap_builder *b, int n, neap_value_id *gradient,
                                neap_error *error) {
  /* By a factor of the gradient's own dtype: that of a parameter is f32, in which nothing is
   * lost. */
  if (scale_of(b) == 1) return NEAP_OK;
  build_begin_emit(b, error);
  for (int i = 0; i < n; i++) {
    if (gradient[i] == NEAP_NO_VALUE) continue;
    neap_type type = {b->graph->value[gradient[i]].type.dtype, NEAP_SHAPE(1)};
    neap_grad g = build_emitter(b);
    neap_value_id in[2] = {gradient[i], build_constant(b, type, 1 / scale_of(b))};
    gradient[i] = neap_grad_emit1(&g, "Mul", 2, in, NULL, NULL);
  }
  return b->emit_status;
}

/* The backward pass of a Gradient op, in its place: in[0] is the loss, one floating-point element,
 * whose seed is 1; the others are what it is differentiated by. Rewrites come first, so that the
 * backward is that of the rewritten forward. SHAPE or DTYPE error when the operands are not so. */
neap_status build_gradient(neap_builder *b, const neap_net_op *op, int next_op, neap_error *error) {
  neap_value_id *in, *dwrt = build_ids(b, NEAP_MAX(op->n_out, 1));
  if (dwrt == NULL) return graph_no_memory(error);
  NEAP_TRY(build_keep_terms(b, error));
  NEAP_TRY(build_run_passes(b, NEAP_PASS_FORWARD, next_op, error));
  NEAP_TRY(build_read_names(b, op, &in, error));

  /* A gradient is of one number by many. More than one would need a seed for each. */
  const neap_type type = b->graph->value[in[0]].type;
  neap_error inner = {0};
  if (neap_shape_elems(&type.shape) != 1 || !neap_dtype_is_float(type.dtype)) {
    char text[NEAP_SHAPE_TEXT];
    neap_fail(&inner, NEAP_SHAPE, "the loss expects one floating-point element, got %s %s",
              neap_dtype_name(type.dtype), neap_shape_text(&type.shape, text));
    neap_hint(&inner, "reduce it with Mean or Sum first");
    return graph_locate(error, &inner, op->op->name, op->name, op->scope, op->line);
  }

  /* Refused where the net says it: deeper down it would be an op that the user did not write. */
  for (int i = 1; i < op->n_in; i++) {
    if (neap_dtype_is_float(b->graph->value[in[i]].type.dtype)) continue;
    neap_fail(&inner, NEAP_DTYPE, "\"%s\" is %s: only floating-point blobs have a gradient",
              op->in[i], neap_dtype_name(b->graph->value[in[i]].type.dtype));
    return graph_locate(error, &inner, op->op->name, op->name, op->scope, op->line);
  }

  /* All that is emitted from here on is backward, and forward kernels leave what it reads. */
  b->phase = NEAP_PHASE_BACKWARD;
  b->graph->train = true;
  build_begin_emit(b, error);
  neap_value_id seed = build_constant(b, type, scale_of(b));
  NEAP_TRY(b->emit_status);

  /* The seed lies on the loss's device, and the backward ops follow their forward ops. */
  if (b->graph->value[in[0]].node >= 0)
    b->graph->node[b->graph->value[seed].node].device =
      b->graph->node[b->graph->value[in[0]].node].device;

  /* The walk; then gradients are scaled back, and get the names that the net has for them. */
  if (graph_gradient(b, 1, in, &seed, op->n_out, in + 1, dwrt, &inner) != NEAP_OK)
    return graph_locate(error, &inner, op->op->name, op->name, op->scope, op->line);
  NEAP_TRY(divide_scale(b, op->n_out, dwrt, error));
  NEAP_TRY(name_gradients(b, op, in + 1, dwrt, error));

  /* The net may go on, with updates or with another loss. */
  b->phase = NEAP_PHASE_FORWARD;
  return NEAP_OK;
}
