/* cut.c: what the backward needs of the forward, decided once for all who place it.
 *
 * A *joint* graph holds forward nodes first and their backward behind them. Where the two are to
 * run apart, each value that a forward node makes gets a label: *keep* when the backward reads it
 * and it is stored for that, *recompute* when the backward makes it once more from what it reads,
 * *dead* when the backward does without. Who asks says which gradients are wanted, and places what
 * is kept: a loop in its frames (loop_gradient.c), a chain's layer in blobs that its halves share
 * (half.c). What the backward computes for no wanted gradient asks for nothing.
 *
 * Recomputed are ops that the user marked so (`recompute`), views, what has no inputs, stashes in a
 * format that one pair of kernels agrees on, and loops whose frames lie on a stack that one program
 * has. All else is kept: nothing that costs much is computed twice unless a budget asks for it
 * (rewrite/recompute.c), from the same labels.
 *
 * INVARIANT: what a recomputed node reads is kept, recomputed, or there before the graph runs.
 */
#include "build/build_int.h"

static bool is_any_read(const build_cut *cut, const neap_node *node) {
  for (int k = 0; k < node->n_out; k++)
    if (cut->read[node->out[k]]) return true;
  return false;
}

static void read_inputs(build_cut *cut, const neap_node *node) {
  for (int i = 0; i < node->n_in; i++)
    if (node->in[i] >= 0) cut->read[node->in[i]] = true;
}

/* Whether all kernels of the op are of one engine: then a stash has one format. */
static bool has_one_engine(const neap_op *op) {
  if (op->kernels == NULL) return true;
  for (const neap_kernel *k = op->kernels; k->run != NULL; k++)
    if (k->engine != op->kernels[0].engine) return false;
  return true;
}

/* Whether stash v means the same to whichever kernels its maker and its readers get. */
static bool is_plain_stash(const neap_graph *joint, const neap_node *maker, neap_value_id v) {
  if (!has_one_engine(maker->op)) return false;

  /* Readers count too: a backward kernel of another engine would take the bytes for something
   * else. */
  for (int n = 0; n < joint->n_node; n++) {
    const neap_node *node = &joint->node[n];
    for (int i = 0; i < node->n_in; i++)
      if (node->in[i] == v && !has_one_engine(node->op)) return false;
  }
  return true;
}

bool build_grows(const neap_node *node) {
  if (node->loop != NULL && node->loop->grows) return true;
  for (int s = 0; s < node->n_sub; s++)
    for (int n = 0; n < node->sub[s]->n_node; n++)
      if (build_grows(&node->sub[s]->node[n])) return true;
  return false;
}

/* Whether the backward makes again what it reads of the node. */
static bool is_recomputed(const neap_graph *joint, const build_cut *cut, const neap_node *node,
                          bool is_apart) {
  /* A view costs nothing to make, and what reads nothing needs nothing kept for it. */
  if (node->recompute || node->op->n_alias > 0 || node->n_in == 0) return true;
  for (int k = 0; k < node->n_out; k++) {
    neap_value_id v = node->out[k];
    if (!cut->read[v]) continue;
    /* A stash that one format fits may be kept across, if each half chooses its kernels for
     * itself. */
    if (joint->value[v].is_stash && !(is_apart && is_plain_stash(joint, node, v))) return true;
    /* Frames are the last output of a loop that has them. */
    bool is_frames = node->loop != NULL && node->loop->frames == node->n_in + k;
    if (is_apart && is_frames && build_grows(node)) return true;
  }
  return false;
}

/* The backward reads a value in bytes that the forward half has written again by then. */
static neap_value_id find_overwritten(const neap_graph *joint, const build_cut *cut, int m) {
  const neap_node *node = &joint->node[m];
  if ((node->effects & NEAP_EFFECT_COMMIT) == 0) return NEAP_NO_VALUE;

  for (int k = 0; k < node->n_out; k++) {
    /* It is kept like any other, unless it lies in the bytes that are written. */
    neap_value_id v = node->out[k];
    if (cut->read[v] && (cut->recompute[m] || joint->value[v].root != v)) return v;
  }
  return NEAP_NO_VALUE;
}

/* What the backward itself reads, on the way to what is wanted. */
static void read_backward(const neap_graph *joint, int n_wanted, const neap_value_id *wanted,
                          build_cut *cut) {
  /* A gradient may be a value that was there before, such as one that arrives. */
  for (int i = 0; i < n_wanted; i++)
    if (wanted[i] >= 0) cut->read[wanted[i]] = true;

  /* From the last to the first, so that all readers of a node have been seen when it is met. */
  for (int m = joint->n_node - 1; m >= cut->n_forward; m--) {
    const neap_node *node = &joint->node[m];
    if ((node->effects & NEAP_EFFECT_COMMIT) != 0 || is_any_read(cut, node)) read_inputs(cut, node);
  }
}

neap_status build_cut_make(neap_graph *joint, int n_forward, int n_wanted,
                           const neap_value_id *wanted, bool is_apart, build_cut *out,
                           neap_error *error) {
  size_t n = (size_t)joint->n_value + 1;
  *out = (build_cut){.n_forward = n_forward, .n_value = joint->n_value};
  out->overwritten = NEAP_NO_VALUE;
  out->label = neap_arena_alloc(&joint->arena, n * sizeof *out->label);
  out->read = neap_arena_alloc(&joint->arena, n * sizeof(bool));
  out->recompute = neap_arena_alloc(&joint->arena, ((size_t)n_forward + 1) * sizeof(bool));
  if (out->label == NULL || out->read == NULL || out->recompute == NULL)
    return graph_no_memory(error);

  read_backward(joint, n_wanted, wanted, out);

  /* From the last to the first: what is recomputed needs its own inputs, and so on backwards. */
  for (int m = n_forward - 1; m >= 0; m--) {
    const neap_node *node = &joint->node[m];
    if (!is_any_read(out, node)) continue;
    /* All readers of what it makes are known by now, since they stand behind it. */
    out->recompute[m] = is_recomputed(joint, out, node, is_apart);
    if (out->overwritten < 0) out->overwritten = find_overwritten(joint, out, m);
    if (out->recompute[m]) read_inputs(out, node);
    /* Outputs that nobody reads stay dead, whatever becomes of their node. */
    for (int k = 0; k < node->n_out; k++) {
      neap_value_id v = node->out[k];
      if (out->read[v]) out->label[v] = out->recompute[m] ? BUILD_RECOMPUTE : BUILD_KEEP;
    }
  }
  build_check_cut(joint, out);
  return NEAP_OK;
}

neap_status build_define_elsewhere(neap_graph *half, neap_value_id v, neap_error *error) {
  neap_value *value = &half->value[v];
  int node = value->node, position = value->position;
  bool is_stash = value->is_stash;

  /* The node needs an output in that position; the value itself keeps its readers. */
  int other = graph_add_value(half, value->name, &value->type);
  if (other < 0) return graph_no_memory(error);
  half->value[other].node = node;
  half->value[other].position = position;
  half->value[other].is_stash = is_stash;
  half->node[node].out[position] = other;
  half->value[v].node = -1;
  return NEAP_OK;
}

/* What runs again writes nothing that lasts, nor does what it runs. */
static void end_commits(neap_node *node) {
  node->effects &= ~(unsigned)NEAP_EFFECT_COMMIT;
  for (int s = 0; s < node->n_sub; s++)
    for (int n = 0; n < node->sub[s]->n_node; n++) end_commits(&node->sub[s]->node[n]);
}

void build_end_forward(neap_graph *half, int n_forward) {
  for (int n = 0; n < n_forward; n++) {
    neap_node *node = &half->node[n];
    end_commits(node);
    /* Nor does it free: the half that ran first has. */
    if ((node->effects & NEAP_EFFECT_RELEASE) == 0) continue;
    for (int i = 0; i < node->n_in; i++) node->in[i] = NEAP_NO_VALUE;
  }
  build_check_backward(half, n_forward);
}
