/* gradient.c: the gradient, from value to value (reverse accumulation: Griewank and Walther,
 * Evaluating Derivatives, chapter 3).
 *
 * Nodes are visited from the last to the first. Contributions to a value's gradient are collected
 * in a list and summed with one AddN when the node that defines the value is reached: all its
 * readers have been visited by then. Only values on a path from wrt to a seed take part, so unused
 * branches cost nothing. O(nodes + operands).
 *
 * INVARIANT: the walk sees the forward's nodes and values only; what it emits stands behind them
 * and is never differentiated in the same walk.
 * INVARIANT: a value that no gradient reaches has none: zeros are made by those who ask, where a
 * net's blob needs bytes.
 */
#include "build/build_int.h"

#include <stdio.h>
#include <string.h>

/* ---- emitting, for grad functions of op records ---------------------------------------------- */

/* Attributes of an emitted node, the later the stronger: the op's defaults; what `inherit` has
 * under the same name and type; `set`, a list that ends with a NULL name. The copy lies in the
 * graph's arena. */
static neap_status emit_attrs(neap_builder *b, const neap_op *op, const neap_grad *inherit,
                              const neap_set *set, neap_attr_value **out, neap_error *error) {
  /* What the backward has under the forward's name means the same there, such as a stride or an
   * axis; of another type it is another thing. */
  int n = neap_op_n_attrs(op);
  neap_attr_value value[NEAP_OP_MAX_ATTR];
  for (int i = 0; i < n; i++) {
    value[i] = op->attrs[i].value;
    int from = inherit != NULL ? neap_op_attr_index(inherit->op, op->attrs[i].name) : -1;
    if (from >= 0 && inherit->op->attrs[from].type == op->attrs[i].type)
      value[i] = inherit->attrs[from];
  }

  /* What the grad function says itself counts most. */
  for (; set != NULL; set++) {
    if (set->name == NULL) break;
    int i = neap_op_attr_index(op, set->name);
    /* A slip in the record of an op: no net can bring it about. */
    if (i < 0)
      return neap_fail(error, NEAP_INTERNAL,
                       "the gradient sets attribute \"%s\", which %s does not have", set->name,
                       op->name);
    value[i] = set->value;
  }
  *out = graph_copy_attrs(b->graph, op, value);
  return *out != NULL ? NEAP_OK : graph_no_memory(error);
}

/* The stream of a node that no op of the net stands for. Few draw, and they are counted apart, from
 * where the net begins: what else is emitted moves none of them. */
static uint32_t emitted_stream(neap_builder *b, const neap_op *op) {
  enum { EMITTED = 0x40000000, APART = 0x9e3779b1 & 0x3fffffff };
  if ((op->effects & NEAP_EFFECT_RANDOM) == 0) return 0;
  return EMITTED + ((b->first_stream * APART + b->n_drawn++) & (EMITTED - 1));
}

/* Adds one node behind all others. With a forward at hand it is called "<forward>.<type>" and takes
 * the forward's scope, line and device, so that errors and profiles point at what the user
 * wrote. */
static neap_status emit(neap_builder *b, const char *type, int n_in, const neap_value_id *in,
                        int n_out, neap_value_id *out, const neap_grad *inherit,
                        const neap_set *set, neap_error *error) {
  const neap_op *op = neap_op_find(type);
  if (op == NULL)
    return neap_fail(error, NEAP_INTERNAL, "the gradient emits op \"%s\", which does not exist",
                     type);

  /* Where there is no op of the net to point at, the node is called after its op. */
  const char *scope = "", *line = "", *name = op->name, *device = "";
  int after = b->after >= 0 ? b->after : b->forward;
  if (after >= 0) {
    const neap_node *forward = &b->graph->node[after];
    char text[256];
    snprintf(text, sizeof text, "%s.%s", forward->name, type);
    scope = forward->scope, line = forward->line, name = neap_intern(text),
    device = forward->device;
    if (name == NULL) return graph_no_memory(error);
  }

  /* As strictly as an op of the user's: a record's slip is found here, not when it runs. */
  neap_node_spec spec = {.op = op,
                         .n_in = n_in,
                         .n_out = n_out,
                         .in = in,
                         .name = name,
                         .scope = scope,
                         .line = line,
                         .device = device,
                         .stream = emitted_stream(b, op)};
  int node;
  NEAP_TRY(emit_attrs(b, op, inherit, set, &spec.attrs, error));
  NEAP_TRY(build_node(b, &spec, &node, error));
  neap_copy_bytes(out, b->graph->node[node].out, (size_t)n_out * sizeof *out);
  return NEAP_OK;
}

/* The first failure sticks: later calls emit nothing and give NEAP_NO_VALUE. So grad functions need
 * not check each call; whoever called them looks at emit_status once. */
static void emit_or_stick(neap_grad *grad, const char *type, int n_in, const neap_value_id *in,
                          int n_out, neap_value_id *out, const neap_grad *inherit,
                          const neap_set *set) {
  neap_builder *b = grad->graph;
  for (int k = 0; k < n_out; k++) out[k] = NEAP_NO_VALUE;
  if (b->emit_status == NEAP_OK)
    b->emit_status = emit(b, type, n_in, in, n_out, out, inherit, set, b->emit_error);
}

static neap_type type_of(const neap_grad *grad, neap_value_id value) {
  const neap_builder *b = grad->graph;
  return value >= 0 ? b->graph->value[value].type : (neap_type){0};
}

neap_grad build_emitter(neap_builder *b) {
  return (neap_grad){.emit = emit_or_stick, .type_of = type_of, .graph = b};
}

/* ---- the backward walk ----------------------------------------------------------------------- */

/* Contributions to one value's gradient, newest first. */
typedef struct part {
  neap_value_id value;
  struct part *next;
} part;

/* A whole graph so far, or the ops that a formula has just emitted for one node. */
typedef struct walk {
  neap_builder *b;
  int first_node, n_node; /* the forward that is walked back */
  int first_value;        /* that it makes; all earlier ones but wrt are constants to it */
  int n_wrt;
  const neap_value_id *wrt;
  bool of_formula; /* its terms are no gradients that anybody has a name for */
  bool *active;    /* by entry: the value depends on some wrt, in a way that gradients follow */
  part **parts;    /* by entry */
} walk;

enum { CONSTANT = -1 };

/* Where the lists have a value: wrt first, then what the walk's nodes make. */
static int entry_of(const walk *w, neap_value_id v) {
  if (w->of_formula)
    for (int i = 0; i < w->n_wrt; i++)
      if (w->wrt[i] == v) return i;
  return v < w->first_value ? CONSTANT : w->n_wrt + v - w->first_value;
}

static bool is_active(const walk *w, neap_value_id v) {
  int entry = v < 0 ? CONSTANT : entry_of(w, v);
  return entry != CONSTANT && w->active[entry];
}

/* A value that the backward pass made, and that is not yet known as another one's gradient, is the
 * gradient of v. */
static void mark_gradient(walk *w, neap_value_id gradient, neap_value_id v) {
  neap_graph *graph = w->b->graph;
  neap_value *value = &graph->value[gradient];
  /* A seed, or a value of the forward that is handed on, is not the backward's to name. */
  if (!w->of_formula && value->gradient_of == NULL && value->node >= 0 &&
      graph->node[value->node].phase == NEAP_PHASE_BACKWARD)
    value->gradient_of = graph->value[v].name;
}

/* Notes `gradient` as one term of the gradient of `to`. */
static neap_status add_part(walk *w, neap_value_id to, neap_value_id gradient, neap_error *error) {
  part *p = neap_arena_alloc(&w->b->graph->arena, sizeof *p);
  if (p == NULL) return graph_no_memory(error);
  int entry = entry_of(w, to);
  p->value = gradient;
  mark_gradient(w, gradient, to);

  /* The newest first; total_gradient turns them round. */
  p->next = w->parts[entry];
  w->parts[entry] = p;
  return NEAP_OK;
}

/* A gradient whose label "x.grad" is to be kept becomes a blob of that name; one that is another
 * blob already is copied. Later labels pass it by. The last blob of a name counts, as
 * everywhere. */
static neap_status keep_gradient(const walk *w, neap_value_id v, neap_value_id *gradient,
                                 neap_error *error) {
  neap_builder *b = w->b;
  if (!build_keeps_gradients(b)) return NEAP_OK; /* keep_all speaks of the net's own blobs */
  const char *name = neap_intern_format("%s.grad", b->graph->value[v].name);
  if (name == NULL) return graph_no_memory(error);

  /* Only the newest version of a name carries it, and only once. */
  if (!build_is_kept(b, name) || neap_map_get(&b->env, b->graph->value[v].name, -1) != v)
    return NEAP_OK;
  if (neap_map_get(&b->env, name, -1) == *gradient) return NEAP_OK;

  /* Two names would need bytes of their own each. The copy belongs to no pair. */
  if (b->graph->value[*gradient].is_blob) {
    neap_grad g = build_emitter(b);
    int forward = b->forward;
    b->forward = -1;
    *gradient = neap_grad_emit1(&g, "Copy", 1, gradient, NULL, NULL);
    b->forward = forward;
    NEAP_TRY(b->emit_status);
  }
  b->graph->value[*gradient].name = name;
  b->graph->value[*gradient].is_blob = true;

  /* Whoever asks again gets the blob, not what it was copied from. */
  w->parts[entry_of(w, v)]->value = *gradient;
  return neap_map_set(&b->env, name, *gradient) ? NEAP_OK : graph_no_memory(error);
}

/* The sum of the contributions, in the order they arrived; NEAP_NO_VALUE when there is none. */
static neap_status total_gradient(walk *w, neap_value_id v, neap_value_id *out, neap_error *error) {
  /* How many terms there are; one alone is the gradient itself. */
  *out = NEAP_NO_VALUE;
  part *parts = w->parts[entry_of(w, v)];
  int n = 0;
  for (const part *p = parts; p != NULL; p = p->next) n++;
  if (n == 0) return NEAP_OK;
  if (n > 1) {
    neap_value_id *terms = neap_arena_alloc(&w->b->graph->arena, (size_t)n * sizeof *terms);
    if (terms == NULL) return graph_no_memory(error);

    /* Terms were added at the front; the sum takes them in the order in which they arrived, so that
     * bits do not depend on how lists are kept. */
    int i = n;
    for (const part *p = parts; p != NULL; p = p->next) terms[--i] = p->value;
    neap_grad g = build_emitter(w->b);
    int forward = w->b->forward;
    w->b->forward = -1; /* a sum belongs to no pair: it may get any kernel */
    neap_value_id sum = neap_grad_emit1(&g, "AddN", n, terms, NULL, NULL);
    w->b->forward = forward;
    NEAP_TRY(w->b->emit_status);
    /* The sum runs where its first term was made. */
    neap_graph *graph = w->b->graph;
    int first = graph->value[terms[0]].node;
    if (first >= 0) graph->node[graph->value[sum].node].device = graph->node[first].device;
    /* From here on the sum is the one part, so that another caller does not add it up again. */
    mark_gradient(w, sum, v);
    parts->value = sum;
    parts->next = NULL;
  }

  /* What a formula is made of has no names that anybody asks for. */
  *out = parts->value;
  if (w->of_formula) return NEAP_OK;
  if (w->b->is_top && w->b->graph->value[v].name != NULL) NEAP_TRY(keep_gradient(w, v, out, error));

  /* A label for reports, where no blob has the value already. */
  neap_value *gradient = &w->b->graph->value[*out];
  if (!gradient->is_blob && gradient->region == NEAP_REGION_ARENA &&
      w->b->graph->value[v].name != NULL) {
    char text[256];
    snprintf(text, sizeof text, "%s.grad", w->b->graph->value[v].name);
    if ((gradient->name = neap_intern(text)) == NULL) return graph_no_memory(error);
  }
  return NEAP_OK;
}

/* A loop's sums over iterations are wider than what they are gradients of where that is a half:
 * they are rounded here, once. */
static neap_status round_sums(neap_builder *b, const neap_node *node, neap_value_id *din,
                              neap_error *error) {
  int forward = b->forward;
  b->forward = -1; /* it may get any kernel */
  build_begin_emit(b, error);
  for (int i = 0; i < node->n_in; i++) {
    if (din[i] < 0) continue;
    neap_dtype dtype = b->graph->value[node->in[i]].type.dtype;
    neap_grad g = build_emitter(b);
    if (b->graph->value[din[i]].type.dtype != dtype)
      din[i] =
        neap_grad_emit1(&g, "Cast", 1, &din[i], NULL, (neap_set[]){NEAP_SET_INT("to", dtype), {0}});
  }
  b->forward = forward;
  return b->emit_status;
}

static neap_status walk_back(walk *w, int n_seed, const neap_value_id *seed,
                             const neap_value_id *dseed, neap_value_id *dwrt, neap_error *error);

/* The gradient of a node by what its op is made of: the formula's ops are emitted, walked back, and
 * left for the end of building to drop, as far as their values are not needed. They are of the
 * node's name and line, and of no pair. */
static neap_status walk_formula(neap_builder *b, const neap_node *node, neap_grad *g,
                                neap_error *error) {
  neap_value_id result[NEAP_OP_MAX_OUT], wrt[NEAP_OP_MAX_IN], dwrt[NEAP_OP_MAX_IN];
  int from[NEAP_OP_MAX_IN] = {0};
  walk w = {.b = b,
            .of_formula = true,
            .first_node = b->graph->n_node,
            .first_value = b->graph->n_value,
            .wrt = wrt};

  /* An operand that the op reads twice is one value: its gradient goes to the first. */
  for (int i = 0; i < g->n_in; i++) {
    bool again = false;
    for (int k = 0; k < w.n_wrt; k++)
      if (wrt[k] == g->in[i]) again = true;
    if (!g->want[i] || again) continue;
    from[w.n_wrt] = i;
    wrt[w.n_wrt++] = g->in[i];
  }

  /* The formula once more as ops of this graph. An output that it does not say has no gradient to
   * give. */
  b->forward = -1;
  NEAP_TRY(neap_formula_outputs(g, result, error));
  NEAP_TRY(b->emit_status);
  for (int k = 0; k < g->n_out; k++)
    if (g->dout[k] >= 0 && result[k] == NEAP_NO_VALUE)
      return neap_fail(error, NEAP_GRAPH, "no gradient is defined through the %s of %s \"%s\"",
                       neap_op_output(node->op, k)->name, node->op->name, node->name);

  /* And back through those ops alone: the graph before them is constant to this walk. */
  NEAP_TRY(walk_back(&w, g->n_out, result, g->dout, dwrt, error));
  for (int k = 0; k < w.n_wrt; k++) g->din[from[k]] = dwrt[k];
  return NEAP_OK;
}

/* By the first of the ways that the op's record has. */
static neap_status emit_backward(neap_builder *b, const neap_node *node, neap_grad *g,
                                 neap_error *error) {
  if (node->op->grad != NULL) return node->op->grad(g, error);
  if (node->op->grad_formula != NULL)
    return neap_formula_gradient(g, node->op->grad_formula, error);
  if (node->op->formula != NULL) return walk_formula(b, node, g, error);
  neap_hint(error, node->phase == NEAP_PHASE_BACKWARD
                     ? "it is the backward of an op that is differentiated once"
                     : "StopGradient in front of it says that none is meant");
  return neap_fail(error, NEAP_GRAPH, "no gradient is defined through %s \"%s\"", node->op->name,
                   node->name);
}

/* The backward of an If or a loop, which is one too. */
static neap_status control_backward(neap_builder *b, int index, const neap_value_id *dout,
                                    const bool *want, neap_value_id *din, neap_error *error) {
  const neap_node node = b->graph->node[index]; /* by value: emitting moves the list */
  if ((node.op->effects & NEAP_EFFECT_LOOP) != 0)
    NEAP_TRY(graph_gradient_loop(b, index, dout, want, din, error));
  else
    NEAP_TRY(graph_gradient_if(b, index, dout, want, din, error));
  return round_sums(b, &node, din, error);
}

/* The backward of any other op, as its record says it. */
static neap_status op_backward(neap_builder *b, int index, const neap_value_id *dout,
                               const bool *want, neap_value_id *din, neap_error *error) {
  const neap_node node = b->graph->node[index]; /* by value: emitting moves the list */
  const neap_value_id *in = node.in;
  NEAP_TRY(build_mix_again(b, index, &in, error));
  neap_grad g = build_emitter(b);
  g.op = node.op, g.attrs = node.attrs;
  g.n_in = node.n_in, g.n_out = node.n_out, g.in = in, g.out = node.out;
  g.dout = dout, g.want = want, g.din = din;
  NEAP_TRY(emit_backward(b, &node, &g, error));
  return b->emit_status;
}

/* The backward of one node: totals of its outputs' gradients in, one more term for each wanted
 * input out. Nothing is emitted where no output has a gradient, no input wants one, or the op stops
 * gradients (no_grad). */
static neap_status differentiate(walk *w, int index, neap_error *error) {
  /* Lists for the operands on both sides, in one piece. */
  neap_builder *b = w->b;
  neap_arena *arena = &b->graph->arena;
  const neap_node node = b->graph->node[index]; /* by value: emitting moves the list */
  NEAP_ASSERT(index >= w->first_node && index < w->n_node,
              "the walk sees nodes %d to %d, not %d, which it has emitted itself", w->first_node,
              w->n_node - 1, index);
  neap_value_id *dout =
    neap_arena_alloc(arena, (size_t)(node.n_out + node.n_in + 1) * sizeof *dout);
  bool *want = neap_arena_alloc(arena, (size_t)(node.n_in + 1) * sizeof *want);
  if (dout == NULL || want == NULL) return graph_no_memory(error);
  neap_value_id *din = dout + node.n_out;
  bool any_out = false, any_in = false, is_active_node = false;

  /* All readers of the outputs stand behind and have been visited: the sums are complete. */
  for (int k = 0; k < node.n_out; k++) {
    b->forward = index;
    NEAP_TRY(total_gradient(w, node.out[k], &dout[k], error));
    any_out = any_out || dout[k] >= 0;
  }

  /* A gradient is wanted of floats that depend on something that is asked for. */
  for (int i = 0; i < node.n_in; i++) {
    /* What grad leaves alone has no gradient, rather than a zero one. */
    din[i] = NEAP_NO_VALUE;
    want[i] =
      is_active(w, node.in[i]) && neap_dtype_is_float(b->graph->value[node.in[i]].type.dtype);
    any_in = any_in || want[i];
    if (is_active(w, node.in[i])) is_active_node = true;
  }

  /* What a branch or a body computes for the backward of another one has no gradient yet: frames
   * and zeros would pass for constants. */
  bool is_control = (node.op->effects & NEAP_EFFECT_CONTROL) != 0;
  if (is_control && node.phase == NEAP_PHASE_BACKWARD && any_out && is_active_node) {
    neap_hint(error,
              "If, While, Recurrent, Loop and Scan are differentiated once; neap.where may "
              "take an If's place");
    return neap_fail(error, NEAP_GRAPH, "no gradient is defined through the gradient of \"%s\"",
                     b->graph->node[node.forward].name);
  }

  /* Nothing of the loss goes through this node, or nobody asks. */
  if (!any_out || !any_in || node.op->no_grad) return NEAP_OK;

  /* The backward of a backward op joins the pair that this is of. */
  b->forward = node.forward;
  b->after = index;
  b->emit_error = error;
  if (is_control)
    NEAP_TRY(control_backward(b, index, dout, want, din, error));
  else
    NEAP_TRY(op_backward(b, index, dout, want, din, error));
  b->after = -1;
  for (int i = 0; i < node.n_in; i++) {
    /* A record whose gradient has another type is wrong, and would show far from here. */
    if (!want[i] || din[i] < 0) continue;
    if (!neap_type_equal(&b->graph->value[din[i]].type, &b->graph->value[node.in[i]].type))
      return neap_fail(error, NEAP_INTERNAL,
                       "the gradient of %s gives input %d another type than the input has",
                       node.op->name, i + 1);
    NEAP_TRY(add_part(w, node.in[i], din[i], error));
  }
  return NEAP_OK;
}

/* Walks back over nodes [first_node, n_node) of the graph. */
static neap_status walk_back(walk *w, int n_seed, const neap_value_id *seed,
                             const neap_value_id *dseed, neap_value_id *dwrt, neap_error *error) {
  /* Lists for what the walk can meet: wrt, and all that its nodes make. What stands before is
   * constant. */
  neap_graph *graph = w->b->graph;
  size_t n_entry = (size_t)(w->n_wrt + graph->n_value - w->first_value);
  w->n_node = graph->n_node;
  w->active = neap_arena_alloc(&graph->arena, n_entry * sizeof *w->active);
  w->parts = neap_arena_alloc(&graph->arena, n_entry * sizeof *w->parts);
  if (w->active == NULL || w->parts == NULL) return graph_no_memory(error);

  /* From wrt forwards: a node is active when something active goes in. Backwards from the seeds it
   * shows by itself, where parts arrive. */
  for (int i = 0; i < w->n_wrt; i++) w->active[entry_of(w, w->wrt[i])] = true;
  for (int n = w->first_node; n < w->n_node; n++) {
    const neap_node *node = &graph->node[n];
    if (node->op->no_grad) continue;
    bool active = false;
    for (int i = 0; i < node->n_in; i++)
      if (is_active(w, node->in[i])) active = true;
    if (!active) continue;
    for (int k = 0; k < node->n_out; k++) w->active[entry_of(w, node->out[k])] = true;
  }
  build_begin_emit(w->b, error);

  /* From here on the walk adds nodes, behind those that it goes over. */
  for (int i = 0; i < n_seed; i++)
    if (dseed[i] >= 0 && entry_of(w, seed[i]) != CONSTANT)
      NEAP_TRY(add_part(w, seed[i], dseed[i], error));
  for (int n = w->n_node - 1; n >= w->first_node; n--) NEAP_TRY(differentiate(w, n, error));

  /* Sums of what was asked for, which nobody in the walk defines, such as parameters. */
  w->b->forward = -1;
  for (int i = 0; i < w->n_wrt; i++) NEAP_TRY(total_gradient(w, w->wrt[i], &dwrt[i], error));
  return NEAP_OK;
}

neap_status graph_gradient(neap_builder *b, int n_seed, const neap_value_id *seed,
                           const neap_value_id *dseed, int n_wrt, const neap_value_id *wrt,
                           neap_value_id *dwrt, neap_error *error) {
  walk w = {.b = b, .n_wrt = n_wrt, .wrt = wrt};
  neap_status status = walk_back(&w, n_seed, seed, dseed, dwrt, error);
  b->forward = -1;
  return status;
}
