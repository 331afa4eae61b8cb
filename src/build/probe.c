/* probe.c: the part of a net that finds unknown lengths. A dynamic session runs it first where
 * outputs' lengths depend on data: the graph of a probe holds those ops and what leads to them, as
 * far as sizes are known.
 *
 * INVARIANT: lengths that are skipped count as they would otherwise, so that one that is found is
 * looked up under the same number in the whole graph.
 */
#include "build/build_int.h"

#include <string.h>

/* EXTENT ops that an op stands for: itself, or those of its subnets. */
static int count_of_op(const neap_net_op *op) {
  /* A Do has no lengths of its own. */
  const neap_net *body = neap_net_do_body(op);
  if (body != NULL) return neap_graph_count_extents(body);
  int n = (op->op->effects & NEAP_EFFECT_EXTENT) != 0;
  for (int a = 0; a < neap_op_n_attrs(op->op); a++)
    if (op->op->attrs[a].type == NEAP_ATTR_NET && op->attrs[a].net != NULL)
      n += neap_graph_count_extents(op->attrs[a].net);
  return n;
}

static bool is_loop(const neap_net_op *op) { return (op->op->effects & NEAP_EFFECT_LOOP) != 0; }

/* From number `at` on; where it ends. */
static int mark_loops(const neap_net *net, bool within, bool *in_loop, int at) {
  for (int i = 0; i < neap_net_n_ops(net); i++) {
    const neap_net_op *op = neap_net_op_at(net, i);
    const neap_net *body = neap_net_do_body(op);
    if (body != NULL) {
      at = mark_loops(body, within, in_loop, at);
      continue;
    }
    /* In the order in which building numbers them: the op's own, then those of its subnets. */
    if ((op->op->effects & NEAP_EFFECT_EXTENT) != 0) in_loop[at++] = within;
    for (int a = 0; a < neap_op_n_attrs(op->op); a++)
      if (op->op->attrs[a].type == NEAP_ATTR_NET && op->attrs[a].net != NULL)
        at = mark_loops(op->attrs[a].net, within || is_loop(op), in_loop, at);
  }
  return at;
}

void neap_graph_mark_loop_extents(const neap_net *net, bool *in_loop) {
  (void)mark_loops(net, false, in_loop, 0);
}

int neap_graph_count_extents(const neap_net *net) {
  int n = 0;
  for (int i = 0; i < neap_net_n_ops(net); i++) n += count_of_op(neap_net_op_at(net, i));
  return n;
}

/* Whether the name means bytes that are there before the run. */
static bool is_resident(const neap_builder *b, const char *name) {
  if (name == NULL) return false;
  neap_value_id v = neap_map_get(&b->env, name, NEAP_NO_VALUE);
  if (v >= 0) return build_is_writable(&b->graph->value[v]);
  /* Not mentioned so far: declared blobs are there before the run. */
  const neap_net_blob *blob = neap_net_find_blob(b->net, name);
  return blob != NULL && blob->type.dtype != NEAP_DTYPE_NONE;
}

/* Whether the op writes such bytes itself, in its turn: by a pair of its record, or in a subnet.
 * What ops of the net make under a declared name is a value like any other, which a probe assigns
 * to nothing; so it is with a Do, whose ops are the net's. */
static bool writes_resident(const neap_builder *b, const neap_net_op *op) {
  bool has_subnets = (op->op->effects & NEAP_EFFECT_CONTROL) != 0 && neap_net_do_body(op) == NULL;
  if (has_subnets) {
    for (int k = 0; k < op->n_out; k++)
      if (is_resident(b, op->out[k])) return true;
  }
  for (int p = 0; p < op->op->n_enforced; p++) {
    int in = op->op->enforced[p].in;
    if (in < op->n_in && is_resident(b, op->in[in])) return true;
  }
  return false;
}

static bool net_has_loop_lengths(const neap_net *net);

/* Whether a loop in it, or itself, has lengths to find in its iterations. */
static bool has_loop_lengths(const neap_net_op *op) {
  if (is_loop(op)) return count_of_op(op) > 0;

  /* A Do has the net that it runs; another op those of its attributes. */
  const neap_net *body = neap_net_do_body(op);
  if (body != NULL) return net_has_loop_lengths(body);
  for (int a = 0; a < neap_op_n_attrs(op->op); a++) {
    if (op->op->attrs[a].type != NEAP_ATTR_NET || op->attrs[a].net == NULL) continue;
    if (net_has_loop_lengths(op->attrs[a].net)) return true;
  }
  return false;
}

static bool net_has_loop_lengths(const neap_net *net) {
  for (int i = 0; i < neap_net_n_ops(net); i++)
    if (has_loop_lengths(neap_net_op_at(net, i))) return true;
  return false;
}

/* Updates and the backward pass of the net lead to no length, and what loops find the run itself
 * finds; but a branch has to find all that it can when it is run. The ops of a Do are the net's,
 * each left out for itself. */
bool build_probe_skips(const neap_builder *b, const neap_net_op *op) {
  if (neap_net_do_body(op) != NULL) return false;
  if (!b->is_sub &&
      (has_loop_lengths(op) || strcmp(op->op->name, "Gradient") == 0 || op->origin.backward))
    return true;

  /* A probe is run beside the step, not as part of it: it changes nothing that lasts. */
  if ((op->op->effects & NEAP_EFFECT_COMMIT) != 0) return true;

  /* Nor can it read what no probe has made. */
  for (int i = 0; i < op->n_in; i++)
    if (op->in[i] != NULL && neap_map_get(&b->env, op->in[i], NEAP_NO_VALUE) == BUILD_UNKNOWN)
      return true;
  return writes_resident(b, op);
}

/* What reads these names later is left out of the probe as well. */
neap_status build_probe_unknown(neap_builder *b, const neap_net_op *op, neap_error *error) {
  for (int k = 0; k < op->n_out; k++)
    if (op->out[k] != NULL && !neap_map_set(&b->env, op->out[k], BUILD_UNKNOWN))
      return graph_no_memory(error);
  return NEAP_OK;
}

/* The lengths after it keep their numbers. */
neap_status build_probe_skip(neap_builder *b, const neap_net_op *op, neap_error *error) {
  *b->n_extent += count_of_op(op);
  return build_probe_unknown(b, op, error);
}
