/* mixed.c: mixed precision, `dtype = "bf16"` or "f16": which ops of a net work in halves, decided
 * as each op is built, by what its record says (`mixed`, neap/record.h). What an op reads in the
 * other dtype is cast before it; each value once. The gradient needs no rules: that of a half is a
 * half, and that of the cast of a parameter is cast back, so that parameters, what updates them,
 * and all that comes behind a Gradient op, stay f32.
 *
 * Beside each value stands its twin: the same numbers in the other dtype.
 * INVARIANT: a blob that the net declares, its outputs, and the results of subnets have the dtype
 * that they have without mixing.
 */
#include "build/build_int.h"

#include <stdio.h>

struct build_mixed {
  neap_value_id twin; /* 1 + it; 0: none */
  signed char weak;   /* is_weak: 1 yes, -1 no, 0 not asked yet */
  bool rounded;       /* a half because of mixing: the net alone would give f32 */
};

static neap_dtype dtype_of(const neap_builder *b, neap_value_id v) {
  return v >= 0 ? b->graph->value[v].type.dtype : NEAP_DTYPE_NONE;
}

bool build_is_mixing(const neap_builder *b) {
  return b->options != NULL && b->options->dtype != NEAP_DTYPE_NONE && !b->options->by_op;
}

static bool is_half(const neap_builder *b, neap_value_id v) {
  return v >= 0 && dtype_of(b, v) == b->options->dtype;
}

/* What stands beside value v; NULL when memory is refused. */
static struct build_mixed *beside(neap_builder *b, neap_value_id v) {
  int had = b->cap_mixed;
  if (!neap_list_grow(&b->mixed, &b->cap_mixed, v + 1, sizeof *b->mixed)) return NULL;
  for (int i = had; i < b->cap_mixed; i++) b->mixed[i] = (struct build_mixed){0};
  return &b->mixed[v];
}

static bool is_weak(neap_builder *b, neap_value_id v);

/* Whether all that the node reads is weak. What a control op gives may come from anywhere. */
static bool is_of_weak(neap_builder *b, const neap_node *node) {
  if ((node->op->effects & NEAP_EFFECT_CONTROL) != 0) return false;
  for (int i = 0; i < node->n_in; i++)
    if (node->in[i] >= 0 && !is_weak(b, node->in[i])) return false;
  return true;
}

/* Whether v is parameters, constants, noise, or computed from such alone: it takes the dtype of
 * what it meets. What depends on an input does not: it may be a target, or have digits that
 * matter. */
static bool is_weak(neap_builder *b, neap_value_id v) {
  struct build_mixed *m = beside(b, v);
  if (m == NULL) return false;
  if (m->weak != 0) return m->weak > 0;

  const neap_value *value = &b->graph->value[v];
  bool weak = value->region == NEAP_REGION_PARAMETER || value->region == NEAP_REGION_STATE;
  if (value->node >= 0) weak = is_of_weak(b, &b->graph->node[value->node]);
  if ((m = beside(b, v)) != NULL) m->weak = weak ? 1 : -1;
  return weak;
}

/* v in another dtype, called "<v>.<dtype>", for the op that `line` and the rest are of. */
static neap_status add_cast(neap_builder *b, neap_value_id v, neap_dtype to, const char *label,
                            const neap_node_spec *of, neap_value_id *out, neap_error *error) {
  /* The one attribute of a Cast is the dtype. */
  const neap_op *op = neap_op_find("Cast");
  const neap_attr_value attr = {.given = true, .i = to};
  char text[256];
  snprintf(text, sizeof text, "%s.%s", b->graph->value[v].name, neap_dtype_name(to));

  /* It is the user's op that needs it, so that errors and profiles point there; what no op asks for
   * belongs to the op that made the value. */
  const int maker = b->graph->value[v].node;
  const char *made_for = of->name;
  if (made_for == NULL && maker >= 0) made_for = b->graph->node[maker].name;
  neap_node_spec spec = {.op = op,
                         .attrs = graph_copy_attrs(b->graph, op, &attr),
                         .n_in = 1,
                         .n_out = 1,
                         .in = &v,
                         .name = neap_intern(text),
                         .scope = of->scope,
                         .line = of->line,
                         .device = of->device,
                         .made_for = made_for};
  if (spec.attrs == NULL || spec.name == NULL) return graph_no_memory(error);
  const char *labels[] = {label != NULL ? label : spec.name};
  spec.out_name = labels;
  int node;
  NEAP_TRY(build_node(b, &spec, &node, error));
  *out = b->graph->node[node].out[0];
  return NEAP_OK;
}

/* The same, once for each value. */
static neap_status cast(neap_builder *b, neap_value_id v, neap_dtype to, const neap_node_spec *of,
                        neap_value_id *out, neap_error *error) {
  struct build_mixed *m = beside(b, v);
  if (m == NULL) return graph_no_memory(error);
  *out = m->twin - 1;
  if (m->twin > 0) return NEAP_OK;

  NEAP_TRY(add_cast(b, v, to, NULL, of, out, error));
  if ((m = beside(b, v)) == NULL) return graph_no_memory(error);
  m->twin = 1 + *out;
  if ((m = beside(b, *out)) == NULL) return graph_no_memory(error);
  m->rounded = to == b->options->dtype;
  return NEAP_OK;
}

static bool has_half_kernel(const neap_op *op, neap_dtype dtype) {
  for (const neap_kernel *k = op->kernels; k != NULL && k->run != NULL; k++)
    if (neap_dtype_in(dtype, neap_kernel_dtypes(k))) return true;
  return false;
}

/* Whether casting the weight costs more than a product of halves saves, and takes more bytes. A
 * training step casts it for the forward and for the backward, and its gradient back; each row
 * saves half of three products. Measured on one core with AVX512-BF16, a step of (M,9216) by
 * (4096,9216) with its update: left in f32 it takes 0.93 of the time at 8 rows, 1.13 at 16; and 75
 * MB less. Inference casts it once. */
static bool has_few_rows(const neap_builder *b, const neap_value_id *in) {
  enum { X, W, FEW = 12 };
  const neap_value *x = &b->graph->value[in[X]], *w = &b->graph->value[in[W]];
  const bool is_trained = b->all_outputs && w->region == NEAP_REGION_PARAMETER && w->node < 0;
  if (!is_trained || w->type.dtype != NEAP_DTYPE_F32 || w->type.shape.n_dim < 2) return false;
  const int64_t elems = neap_shape_elems(&w->type.shape), n = w->type.shape.dim[0];
  if (elems == 0) return false;
  const int64_t k = elems / n, rows = neap_shape_elems(&x->type.shape) / k;
  return rows <= FEW && 2 * rows * (n + k) < elems;
}

/* What the record says, and what follows from the rest of it, for operands `in`. */
static neap_mixed mixed_of(const neap_builder *b, const neap_op *op, const neap_value_id *in) {
  const unsigned apart = NEAP_EFFECT_CONTROL | NEAP_EFFECT_COMMIT;
  bool full = op->loss || (op->effects & apart) != 0 || op->n_enforced > 0;
  /* behind a gradient come updates, whose digits are what parameters are kept in f32 for */
  if (full || b->graph->train || !has_half_kernel(op, b->options->dtype)) return NEAP_MIXED_FULL;
  if (op->mixed != NEAP_MIXED_LINEAR) return op->mixed;
  return has_few_rows(b, in) ? NEAP_MIXED_ROUND : NEAP_MIXED_HALF;
}

/* Whether the argument may be f32 and half alike, and has the dtype of the others like it. */
static bool is_common(const neap_arg *arg, neap_dtype half) {
  return arg != NULL && (arg->flags & (NEAP_ARG_WIDE | NEAP_ARG_STASH | NEAP_ARG_SCOPE)) == 0 &&
         (arg->dtypes == 0 || neap_dtype_in(half, arg->dtypes));
}

/* Whether the op's common operands are halves in the end. A product makes them so; what follows its
 * operands does where one of them is a half and all others are, or are weak. */
static bool works_in_half(neap_builder *b, const neap_node_spec *spec, neap_mixed mixed,
                          const neap_value_id *in) {
  bool any = false, strong = false, other = false;
  if (mixed == NEAP_MIXED_FULL || mixed == NEAP_MIXED_ROUND) return false;

  for (int i = 0; i < spec->n_in; i++) {
    if (in[i] < 0 || !is_common(neap_op_input(spec->op, i), b->options->dtype)) continue;
    neap_dtype dtype = dtype_of(b, in[i]);
    if (is_half(b, in[i]))
      any = true;
    else if (dtype == NEAP_DTYPE_F32)
      strong = strong || !is_weak(b, in[i]);
    else if (neap_dtype_is_float(dtype))
      other = true; /* f64, which nobody asked to round */
  }
  return !other && (mixed == NEAP_MIXED_HALF || (any && !strong));
}

neap_status build_mix_inputs(neap_builder *b, const neap_node_spec *spec, neap_value_id *in,
                             neap_error *error) {
  if (!build_is_mixing(b) || (spec->op->effects & NEAP_EFFECT_RELEASE) != 0) return NEAP_OK;

  /* What has one operand follows it: a view, a cast of the user's, a function of each element. */
  const neap_dtype half = b->options->dtype;
  const neap_mixed mixed = mixed_of(b, spec->op, in);
  if (mixed == NEAP_MIXED_FOLLOW && spec->n_in == 1) return NEAP_OK;

  /* Decided once for the op. Each operand that may be either then gets the dtype that was
   * decided. */
  const bool to_half = works_in_half(b, spec, mixed, in);
  for (int i = 0; i < spec->n_in; i++) {
    const neap_arg *arg = neap_op_input(spec->op, i);
    if (in[i] < 0 || arg == NULL || (arg->flags & (NEAP_ARG_STASH | NEAP_ARG_SCOPE)) != 0) continue;
    bool as_half = to_half && is_common(arg, half);
    if (as_half && dtype_of(b, in[i]) == NEAP_DTYPE_F32)
      NEAP_TRY(cast(b, in[i], half, spec, &in[i], error));
    else if (!as_half && is_half(b, in[i]))
      NEAP_TRY(cast(b, in[i], NEAP_DTYPE_F32, spec, &in[i], error));
  }
  return NEAP_OK;
}

/* Notes of the node's outputs what those of its inputs say. */
static neap_status note_outputs(neap_builder *b, int index, neap_error *error) {
  /* What is made of rounded numbers is rounded itself. */
  bool rounded = false;
  for (int i = 0; i < b->graph->node[index].n_in; i++) {
    const neap_value_id v = b->graph->node[index].in[i];
    const struct build_mixed *m = v >= 0 ? beside(b, v) : NULL;
    if (v >= 0 && m == NULL) return graph_no_memory(error);
    rounded = rounded || (m != NULL && m->rounded);
  }
  for (int k = 0; k < b->graph->node[index].n_out; k++) {
    const neap_value_id v = b->graph->node[index].out[k];
    struct build_mixed *m = beside(b, v);
    if (m == NULL) return graph_no_memory(error);
    m->rounded = rounded && is_half(b, v);
    is_weak(b, v); /* asked of every op, so that no question goes deep */
  }
  return NEAP_OK;
}

/* v in another dtype takes its name: it is what the net means by it. */
static neap_status replace(neap_builder *b, neap_value_id v, neap_dtype to,
                           const neap_node_spec *of, neap_value_id *out, neap_error *error) {
  const char *name = b->graph->value[v].name;
  const char *own = neap_intern_format("%s.%s", name, neap_dtype_name(dtype_of(b, v)));
  if (own == NULL) return graph_no_memory(error);
  NEAP_TRY(add_cast(b, v, to, name, of, out, error));
  b->graph->value[v].name = own;
  struct build_mixed *m = beside(b, *out);
  if (m == NULL) return graph_no_memory(error);
  m->rounded = to == b->options->dtype;
  return NEAP_OK;
}

neap_status build_mix_outputs(neap_builder *b, const neap_node_spec *spec, int index,
                              neap_value_id *out, neap_error *error) {
  /* Without mixing the names mean what the node makes. */
  const int n_out = b->graph->node[index].n_out;
  neap_copy_bytes(out, b->graph->node[index].out, (size_t)n_out * sizeof *out);
  if (!build_is_mixing(b)) return NEAP_OK;
  NEAP_TRY(note_outputs(b, index, error));

  /* A declared f32 blob gets f32 although the op works in halves; what the record says to round is
   * rounded, unless it is such a blob. */
  /* Asked of what the op reads by now: of a weight that was cast the answer is the same. */
  const neap_mixed mixed = mixed_of(b, spec->op, b->graph->node[index].in);
  for (int k = 0; k < n_out; k++) {
    const char *name = spec->out_name[k];
    const neap_net_blob *blob = name != NULL ? neap_net_find_blob(b->net, name) : NULL;
    const bool is_f32 = blob != NULL && blob->type.dtype == NEAP_DTYPE_F32;
    const bool floats = dtype_of(b, out[k]) == NEAP_DTYPE_F32 &&
                        (neap_op_output(spec->op, k)->flags & NEAP_ARG_WIDE) == 0;
    if (is_f32 && is_half(b, out[k]) && b->mixed[out[k]].rounded)
      NEAP_TRY(replace(b, out[k], NEAP_DTYPE_F32, spec, &out[k], error));
    else if (!is_f32 && mixed == NEAP_MIXED_ROUND && floats)
      NEAP_TRY(replace(b, out[k], b->options->dtype, spec, &out[k], error));
  }
  return NEAP_OK;
}

/* For what no op of the net asks for. */
static const neap_node_spec nobody = {.scope = "", .line = "", .device = ""};

neap_status build_mix_results(neap_builder *b, int n, neap_value_id *result, neap_error *error) {
  if (!build_is_mixing(b)) return NEAP_OK;
  for (int k = 0; k < n; k++)
    if (is_half(b, result[k]))
      NEAP_TRY(cast(b, result[k], NEAP_DTYPE_F32, &nobody, &result[k], error));
  return NEAP_OK;
}

neap_status build_mix_net_outputs(neap_builder *b, neap_error *error) {
  /* A half that the user asked for by a cast stays one; what mixing has rounded, and gradients of
   * it, are f32 outside. */
  if (!build_is_mixing(b)) return NEAP_OK;
  for (int k = 0; k < neap_net_n_outputs(b->net); k++) {
    const char *name = neap_net_output_at(b->net, k);
    neap_value_id v = neap_map_get(&b->env, name, NEAP_NO_VALUE);
    if (v < 0 || !is_half(b, v) || b->graph->value[v].node < 0) continue;
    struct build_mixed *m = beside(b, v);
    if (m == NULL) return graph_no_memory(error);
    bool backward = b->graph->node[b->graph->value[v].node].phase == NEAP_PHASE_BACKWARD;
    if (!m->rounded && !backward) continue;
    NEAP_TRY(replace(b, v, NEAP_DTYPE_F32, &nobody, &v, error));
    b->graph->value[v].is_blob = true;
    if (!neap_map_set(&b->env, name, v)) return graph_no_memory(error);
  }
  return NEAP_OK;
}

/* A parameter in halves is made again for the backward rather than kept until then: half its bytes
 * would lie in the arena all the time. */
neap_status build_mix_again(neap_builder *b, int index, const neap_value_id **in,
                            neap_error *error) {
  /* Inputs that are casts of parameters, made by mixing and not by the user. */
  if (!build_is_mixing(b)) return NEAP_OK;
  const int n_in = b->graph->node[index].n_in;
  neap_value_id *fresh = NULL;
  for (int i = 0; i < n_in; i++) {
    const neap_value_id v = (*in)[i];
    const neap_value *value = v >= 0 ? &b->graph->value[v] : NULL;
    if (value == NULL || value->node < 0 || !is_half(b, v)) continue;
    const neap_node *maker = &b->graph->node[value->node];
    const neap_value_id from = maker->n_in == 1 ? maker->in[0] : NEAP_NO_VALUE;
    if (from < 0 || from >= b->cap_mixed || b->mixed[from].twin - 1 != v ||
        b->graph->value[from].region != NEAP_REGION_PARAMETER || b->graph->value[from].node >= 0)
      continue;

    /* The caller's list is the node's own, so it is copied before the first change. */
    if (fresh == NULL && (fresh = build_ids(b, n_in)) == NULL) return graph_no_memory(error);
    if (*in != fresh) neap_copy_bytes(fresh, *in, (size_t)n_in * sizeof *fresh);
    *in = fresh;
    const neap_node *of = &b->graph->node[index];
    const neap_node_spec spec = {
      .name = of->name, .scope = of->scope, .line = of->line, .device = of->device};
    const int forward = b->forward;
    b->forward = -1; /* of no pair */
    neap_status status = add_cast(b, from, b->options->dtype, NULL, &spec, &fresh[i], error);
    b->forward = forward;
    NEAP_TRY(status);
  }
  return NEAP_OK;
}
