/* written_out.c: how large a net gets when its subnets are written out, each as often as an op
 * names it. A net is counted before it is built and before an op is added to it, since naming a
 * subnet twice doubles what is below: a few lines can ask for 2^60 ops. An op's place among those
 * that are written out is its stream of random numbers.
 *
 * INVARIANT: counting stops soon behind the ceiling, so it never takes longer than building would.
 */
#include "net/net_int.h"

typedef struct count {
  int64_t n_op, n_sub;
} count;

/* Adds the op with all that it stands for; false, with the count somewhere above a ceiling, when
 * that is too much. */
static bool add_op(const neap_net_op *op, count *c) {
  if (++c->n_op > NEAP_MOST_NODES) return false;
  /* Each subnet once more for each op that names it. */
  for (int a = 0; a < neap_op_n_attrs(op->op); a++) {
    const neap_net *sub = op->op->attrs[a].type == NEAP_ATTR_NET ? op->attrs[a].net : NULL;
    if (sub == NULL) continue;
    if (++c->n_sub > NEAP_MOST_SUBNETS) return false;
    for (int i = 0; i < sub->n_op; i++)
      if (!add_op(&sub->op[i], c)) return false;
  }
  return true;
}

uint32_t neap_net_n_streams(const neap_net_op *op) {
  uint32_t n = 1;
  for (int a = 0; a < neap_op_n_attrs(op->op); a++) {
    const neap_net *sub = op->op->attrs[a].type == NEAP_ATTR_NET ? op->attrs[a].net : NULL;
    if (sub == NULL) continue;
    for (int i = 0; i < sub->n_op; i++) n += neap_net_n_streams(&sub->op[i]);
  }
  return n;
}

neap_status neap_net_fail_too_many(const char *who, neap_error *error) {
  neap_fail(error, NEAP_GRAPH,
            "%swith its subnets written out wherever ops name them, the net has more than %d ops "
            "or %d subnets",
            who, NEAP_MOST_NODES, NEAP_MOST_SUBNETS);
  neap_hint(error, "a subnet that two ops name is built twice, and so is all that is inside");
  return NEAP_GRAPH;
}

neap_status neap_net_check_written_out(const neap_net_op *op, const char *who, neap_error *error) {
  count c = {0};
  bool fits = add_op(op, &c);
  NEAP_ASSERT(c.n_op <= NEAP_MOST_NODES + 1 && c.n_sub <= NEAP_MOST_SUBNETS + 1,
              "counting stops behind the ceiling, not at %lld ops", (long long)c.n_op);
  return fits ? NEAP_OK : neap_net_fail_too_many(who, error);
}

const neap_net_op *neap_net_too_large_at(const neap_net *net) {
  count c = {0};
  for (int i = 0; i < net->n_op; i++)
    if (!add_op(&net->op[i], &c)) return &net->op[i];
  return NULL;
}
