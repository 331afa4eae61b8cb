/* half.c: one half of a layer: its forward, which leaves what the backward reads, or its backward,
 * which takes that. Both are graphs of one net, planned and run apart.
 *
 * The layer's ops and their gradient are built as one joint graph, and the half is what is left of
 * it: cut.c labels each value, and what is kept becomes a blob with bytes of its own, an output of
 * the one half and an input of the other. A loop steps back over the frames that its forward left,
 * which cross like any other value; only one whose frames grow on a stack runs once more.
 *
 * INVARIANT: both halves call a blob by the same name: that of the net where it has one, and else
 * the half's prefix with its label.
 * INVARIANT: state is written by the forward half alone.
 */
#include "build/build_int.h"
#include "ops/tile.h"

#include <string.h>

typedef struct halver {
  neap_builder *b;
  neap_graph *graph;
  const neap_half *half;
  int n_forward, n_value; /* nodes of the forward, values of the joint graph */
  neap_graph *plain;      /* its nodes as they were before loops got frames; NULL: no loops */
  build_cut cut;
  neap_value_id *grad; /* by wrt */
} halver;

/* ---- the joint graph ------------------------------------------------------------------------- */

static neap_status value_of(halver *h, const char *blob, neap_value_id *out, neap_error *error) {
  const char *name = neap_intern(blob);
  return name != NULL ? build_value_of(h->b, name, out, error) : graph_no_memory(error);
}

/* The gradient that arrives: an input of the output's type. */
static neap_status add_seed(halver *h, neap_value_id output, neap_value_id *seed,
                            neap_error *error) {
  const neap_type type = h->graph->value[output].type;
  const char *name = neap_intern(h->half->d_output);
  NEAP_TRY(build_count(h->b, 0, 0, neap_type_bytes(&type), error));

  *seed = name != NULL ? graph_add_value(h->graph, name, &type) : -1;
  if (*seed < 0) return graph_no_memory(error);
  neap_value *value = &h->graph->value[*seed];
  value->region = NEAP_REGION_IO;
  value->role = NEAP_ROLE_INPUT;

  /* The user feeds it by name, as any input. */
  value->is_blob = value->is_last = true;
  value->gradient_of = h->graph->value[output].name;
  return NEAP_OK;
}

/* The backward behind the forward; grad[i] of wrt i, each a value of its own, zeros where no
 * gradient arrives. */
static neap_status add_backward(halver *h, neap_error *error) {
  /* What is differentiated, and by what, as values of the graph so far. */
  neap_builder *b = h->b;
  int n = h->half->n_wrt;
  neap_value_id output, seed, *wrt = build_ids(b, n + 1);
  h->grad = build_ids(b, n + 1);
  if (wrt == NULL || h->grad == NULL) return graph_no_memory(error);
  NEAP_TRY(value_of(h, h->half->output, &output, error));
  for (int i = 0; i < n; i++) NEAP_TRY(value_of(h, h->half->wrt[i], &wrt[i], error));

  /* The seed is a value of the graph before the walk, which takes what exists then for forward. */
  NEAP_TRY(add_seed(h, output, &seed, error));

  /* From here on all nodes are backward, emitted behind the forward's. */
  b->phase = NEAP_PHASE_BACKWARD;
  NEAP_TRY(graph_gradient(b, 1, &output, &seed, n, wrt, h->grad, error));

  /* Each gradient gets a value, a name and a role of its own: the backward half gives it as a
   * blob. */
  build_begin_emit(b, error);
  for (int i = 0; i < n; i++) {
    neap_value_id v = h->grad[i];
    if (v == NEAP_NO_VALUE) v = build_constant(b, h->graph->value[wrt[i]].type, 0);
    NEAP_TRY(b->emit_status);
    /* handed on unchanged, or wanted under two names */
    bool is_taken = h->graph->value[v].is_blob || h->graph->value[v].node < h->n_forward;
    if (is_taken) v = build_emit_copy(b, v);
    NEAP_TRY(b->emit_status);
    neap_value *value = &h->graph->value[h->grad[i] = v];
    if ((value->name = neap_intern(h->half->grad[i])) == NULL) return graph_no_memory(error);
    value->is_blob = value->is_last = true;
    value->gradient_of = h->graph->value[wrt[i]].name;
    value->role =
      h->graph->value[wrt[i]].role == NEAP_ROLE_PARAMETER ? NEAP_ROLE_GRADIENT : NEAP_ROLE_OUTPUT;
  }
  return NEAP_OK;
}

/* Value v is gradient i from here on, a blob of that name. */
static void name_grad(halver *h, int i, neap_value_id v, const char *name) {
  neap_value *value = &h->graph->value[v];
  value->name = name;
  value->is_blob = value->is_last = true;
  value->role = NEAP_ROLE_GRADIENT;
  value->region = NEAP_REGION_GRADIENT;
  value->gradient_of = h->graph->value[h->grad[i]].gradient_of;
  h->grad[i] = v;
}

/* Gradient i, computed until now, is a term of something else. */
static neap_value_id emit_of_grad(halver *h, int i, const char *op, neap_value_id sum,
                                  const neap_set *set) {
  neap_grad emit = build_emitter(h->b);
  neap_value_id in[2] = {sum, h->grad[i]};
  bool has_sum = sum != NEAP_NO_VALUE;
  return neap_grad_emit1(&emit, op, has_sum ? 2 : 1, has_sum ? in : in + 1, NULL, set);
}

/* Where another layer has begun the gradient, this one is added to it, in its bytes. A sum of
 * halves is f32 from its first term on, and rounded behind its last. */
static neap_status add_sum(halver *h, int i, neap_error *error) {
  /* Halves are summed in f32: small terms would vanish beside a large sum. */
  neap_graph *graph = h->graph;
  const neap_half *half = h->half;
  const char *name = neap_intern(half->sum[i]);
  neap_type type = graph->value[h->grad[i]].type;
  const neap_dtype dtype = type.dtype;
  type.dtype = neap_compute_dtype(dtype);
  if (name == NULL) return graph_no_memory(error);
  build_begin_emit(h->b, error);

  /* What was the gradient is only a term now; the sum takes its name and its place. */
  graph->value[h->grad[i]].role = NEAP_ROLE_ACTIVATION;
  graph->value[h->grad[i]].region = NEAP_REGION_ARENA;
  neap_value_id out;
  if (half->begins != NULL && half->begins[i]) {
    out =
      emit_of_grad(h, i, "Cast", NEAP_NO_VALUE, (neap_set[]){NEAP_SET_INT("to", type.dtype), {0}});
  } else {
    /* The sum so far lies in bytes that outlive both runs, and Accumulate writes it there. */
    neap_value_id sum = graph_add_value(graph, name, &type);
    if (sum < 0) return graph_no_memory(error);
    graph->value[sum].region = NEAP_REGION_GRADIENT;
    graph->value[sum].role = NEAP_ROLE_GRADIENT;
    graph->value[sum].is_blob = true;
    out = emit_of_grad(h, i, "Accumulate", sum, NULL);
  }
  NEAP_TRY(h->b->emit_status);
  name_grad(h, i, out, name);
  if (half->rounded == NULL || half->rounded[i] == NULL) return NEAP_OK;

  /* The last term: from here on the gradient is in the parameter's own dtype. */
  if ((name = neap_intern(half->rounded[i])) == NULL) return graph_no_memory(error);
  out = emit_of_grad(h, i, "Cast", NEAP_NO_VALUE, (neap_set[]){NEAP_SET_INT("to", dtype), {0}});
  NEAP_TRY(h->b->emit_status);
  name_grad(h, i, out, name);
  return NEAP_OK;
}

/* ---- what crosses ---------------------------------------------------------------------------- */

/* The first node of the forward that writes the storage of v; NULL: none. */
static const neap_node *find_writer(const halver *h, neap_value_id v) {
  const neap_graph *graph = h->graph;
  for (int n = 0; n < h->n_forward; n++) {
    const neap_node *node = &graph->node[n];
    for (int k = 0; k < node->n_out; k++)
      if (graph->value[node->out[k]].root == graph->value[v].root) return node;
  }
  return NULL;
}

/* The forward writes the bytes of v, which the backward reads. */
static neap_status overwritten(const halver *h, neap_value_id v, neap_error *error) {
  const neap_node *writer = find_writer(h, v);
  neap_hint(error, "let the layer write its state in place of nothing that its own gradient needs");
  return neap_fail(error, NEAP_GRAPH,
                   "net \"%s\": the backward needs \"%s\" as it was before %s \"%s\" wrote it",
                   neap_net_name(h->b->net), h->graph->value[v].name,
                   writer != NULL ? writer->op->name : "an op", writer != NULL ? writer->name : "");
}

/* Bytes that outlive the run are the forward's to write: what they held before is gone. */
static neap_status decide(halver *h, neap_error *error) {
  NEAP_TRY(build_cut_make(h->graph, h->n_forward, h->half->n_wrt, h->grad, true, &h->cut, error));
  h->n_value = h->cut.n_value;
  if (h->cut.overwritten >= 0) return overwritten(h, h->cut.overwritten, error);

  /* A later version of a declared blob, made by the forward, has overwritten what the backward
   * reads of the first. */
  for (int v = 0; v < h->n_value; v++) {
    int root = h->graph->value[v].root;
    if (root != v && h->graph->value[v].node < h->n_forward && h->cut.read[root] &&
        h->graph->value[root].node < 0)
      return overwritten(h, root, error);
  }
  return NEAP_OK;
}

static bool is_kept(const halver *h, neap_value_id v) {
  return v < h->n_value && h->cut.label[v] == BUILD_KEEP;
}

/* Whether a blob beside v has the name in the halves. */
static bool is_taken(const halver *h, neap_value_id v, const char *name) {
  const neap_graph *graph = h->graph;
  for (int u = 0; u < graph->n_value; u++)
    if (u != v && graph->value[u].name == name && graph->value[u].is_blob &&
        (is_kept(h, u) || graph->value[u].is_last || graph->value[u].region != NEAP_REGION_ARENA))
      return true;
  return !graph->value[v].is_blob && neap_net_find_blob(h->b->net, name) != NULL;
}

static neap_status name_kept(halver *h, neap_error *error) {
  for (int v = 0; v < h->n_value; v++) {
    neap_value *value = &h->graph->value[v];
    if (!is_kept(h, v)) continue;

    /* The net's own blobs keep their names; labels are only unique with a prefix, or with a
     * mark. */
    const char *prefix = h->half->prefix != NULL ? h->half->prefix : "";
    const char *name =
      value->is_blob ? value->name : neap_intern_format("%s%s", prefix, value->name);
    while (name != NULL && is_taken(h, v, name)) name = neap_intern_format("%s~", name);
    if (name == NULL) return graph_no_memory(error);
    value->name = name;
    value->is_blob = true;
  }
  return NEAP_OK;
}

/* ---- the halves ------------------------------------------------------------------------------ */

/* A value whose node is gone, or defines it no more. finish.c leaves out what no node names. */
static void disown(neap_graph *graph, neap_value_id v) {
  graph->value[v].node = -1;
  graph->value[v].root = v;
}

/* A loop that the backward runs once more leaves no frames here: it is as it was built first. */
static neap_status take_plain_loop(halver *h, int n, neap_error *error) {
  /* Frames are an output more: without one the loop is plain already. */
  neap_node *node = &h->graph->node[n], *was = &h->plain->node[n];
  if (node->n_out == was->n_out) return NEAP_OK;
  neap_loop *loop = graph_copy_loop(&h->graph->arena, was->loop);
  if (loop == NULL) return graph_no_memory(error);

  /* The loop without frames; its subgraphs change places, so that each graph frees its own. */
  node->loop = loop;
  for (int k = was->n_out; k < node->n_out; k++) disown(h->graph, node->out[k]);
  node->n_out = was->n_out;
  for (int s = 0; s < node->n_sub; s++) {
    neap_graph *sub = node->sub[s];
    node->sub[s] = was->sub[s];
    was->sub[s] = sub;
  }
  return NEAP_OK;
}

/* An output that an op may leave out and nobody reads need not be computed (finish.c), though the
 * layer has a name for it. */
static neap_status forget_unread(halver *h, neap_error *error) {
  neap_graph *graph = h->graph;
  bool *read = neap_arena_alloc(&graph->arena, (size_t)graph->n_value + 1);
  if (read == NULL) return graph_no_memory(error);

  /* An output of the half is read by whoever runs it. */
  for (int k = 0; k < graph->n_output; k++) read[graph->output[k]] = true;
  for (int m = 0; m < h->n_forward; m++)
    for (int i = 0; i < graph->node[m].n_in; i++)
      if (graph->node[m].in[i] >= 0) read[graph->node[m].in[i]] = true;

  /* What only the backward read, or nobody: finish.c may trim it once it is no blob. */
  for (int m = 0; m < h->n_forward; m++) {
    const neap_node *node = &graph->node[m];
    for (int k = 0; k < node->n_out; k++) {
      neap_value *value = &graph->value[node->out[k]];
      const neap_arg *arg = neap_op_output(node->op, k);
      bool may_go = arg != NULL && (arg->flags & NEAP_ARG_OPTIONAL) != 0;
      if (may_go && !read[node->out[k]] && value->region == NEAP_REGION_ARENA)
        value->is_blob = value->is_last = false;
    }
  }
  return NEAP_OK;
}

/* What is kept is an output; nobody frees it. */
static neap_status leave_forward(halver *h, neap_error *error) {
  /* The net's outputs stay in front, so that they are found where the net has them. */
  neap_graph *graph = h->graph;
  neap_value_id *output = build_ids(h->b, graph->n_output + h->n_value + 1);
  if (output == NULL) return graph_no_memory(error);
  int n = 0;
  for (; n < graph->n_output; n++) output[n] = graph->output[n];
  for (int v = 0; v < h->n_value; v++) {
    if (!is_kept(h, v)) continue;
    neap_value *value = &graph->value[v];
    /* Bytes of its own, which stay until the other half has run. */
    value->is_last = true;
    if (value->region == NEAP_REGION_ARENA)
      value->region = NEAP_REGION_IO, value->role = NEAP_ROLE_OUTPUT;
    bool listed = false;
    for (int k = 0; k < graph->n_output; k++) listed = listed || graph->output[k] == v;
    if (!listed) output[n++] = v;
  }
  graph->output = output;
  graph->n_output = n;

  /* The ops of the forward: a loop that the backward half runs once more leaves nothing here. */
  for (int m = 0; m < h->n_forward; m++) {
    neap_node *node = &graph->node[m];
    if (h->plain != NULL && h->cut.recompute[m]) NEAP_TRY(take_plain_loop(h, m, error));
    /* What is kept for the backward is not freed before. */
    if ((node->effects & NEAP_EFFECT_RELEASE) == 0) continue;
    for (int i = 0; i < node->n_in; i++)
      if (is_kept(h, node->in[i])) node->in[i] = NEAP_NO_VALUE;
  }

  /* The backward goes, with the subgraphs that it owns and the values that it defines. */
  for (int m = h->n_forward; m < graph->n_node; m++)
    for (int s = 0; s < graph->node[m].n_sub; s++) neap_graph_free(graph->node[m].sub[s]);
  graph->n_node = h->n_forward;
  for (int v = 0; v < graph->n_value; v++)
    if (graph->value[v].node >= h->n_forward) disown(graph, v);

  /* Kernels of this half leave nothing for a pair: the other half chooses its own. */
  graph->train = false;
  return forget_unread(h, error);
}

/* What is kept is an input; results are the gradients. */
static neap_status leave_backward(halver *h, neap_error *error) {
  /* The half has outputs and a name of its own; the net's outputs are the forward's to give. */
  neap_graph *graph = h->graph;
  graph->output = build_ids(h->b, h->half->n_wrt + 1);
  graph->name = neap_intern_format("%s_backward", graph->name);
  if (graph->output == NULL || graph->name == NULL) return graph_no_memory(error);
  for (int v = 0; v < h->n_value; v++) {
    neap_value *value = &graph->value[v];
    if (value->node < 0 || value->node >= h->n_forward) continue;
    /* The forward half gives it; here it is made again, if anything reads it. */
    value->is_last = value->keep = false;
    if (value->region == NEAP_REGION_IO)
      value->region = NEAP_REGION_ARENA, value->role = NEAP_ROLE_ACTIVATION;
    if (!is_kept(h, v)) continue;
    NEAP_TRY(build_define_elsewhere(graph, v, error));
    value = &graph->value[v];
    /* An input like any other: whatever it was, its bytes are there before this half runs. */
    value->region = NEAP_REGION_IO;
    value->role = NEAP_ROLE_INPUT;
    value->is_last = true;
    value->is_stash = false;
    value->root = v;
    /* A stash has as many bytes as the forward's kernel asked for, which the options tell. */
    const neap_type *type = build_given_type(h->b, value->name);
    if (type != NULL) value->type = *type, value->bytes = neap_type_bytes(type);
  }

  /* Forward nodes that nothing reads are dead from here on; finish.c takes them out. */
  build_end_forward(graph, h->n_forward);

  /* The gradients, in the order in which they were asked for. */
  graph->n_output = 0;
  for (int i = 0; i < h->half->n_wrt; i++) {
    if (h->half->sum != NULL && h->half->sum[i] != NULL) NEAP_TRY(add_sum(h, i, error));
    neap_value *value = &graph->value[h->grad[i]];
    value->region = build_region_of(value->role);
    graph->output[graph->n_output++] = h->grad[i];
  }
  graph->train = true;
  return NEAP_OK;
}

static neap_status build_joint_half(halver *h, neap_error *error) {
  /* The gradient changes a loop in its place, and the forward may need it as it was. */
  bool has_loop = false;
  for (int n = 0; n < h->n_forward; n++)
    if (h->graph->node[n].loop != NULL) has_loop = true;
  if (has_loop && !h->half->backward) {
    h->plain = graph_clone(h->graph, h->n_forward);
    if (h->plain == NULL) return graph_no_memory(error);
  }

  NEAP_TRY(add_backward(h, error));
  NEAP_TRY(decide(h, error));
  NEAP_TRY(name_kept(h, error));
  return h->half->backward ? leave_backward(h, error) : leave_forward(h, error);
}

neap_status build_half(neap_builder *b, neap_error *error) {
  halver h = {.b = b, .graph = b->graph, .half = b->options->half, .n_forward = b->graph->n_node};
  neap_status status = build_joint_half(&h, error);
  neap_graph_free(h.plain);
  return status;
}
