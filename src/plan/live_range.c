/* live_range.c: when each value and each storage lives, and how many bytes are live at each step.
 *
 * A value lives from the step that defines it to the step of its last reader; unread, during its own step only. A storage
 * lives from the first definition among its members to the last reader of any of them. A node's scratch lives in its step.
 * Bytes are counted aligned, as they are laid out, so that the peak is a bound that a packing can reach.
 */
#include "plan/plan_int.h"

/* Also for resident values: first and last use are worth knowing. */
static void live_values(neap_schedule *s, const neap_work *work) {
  const neap_graph *g = work->graph;
  for (int v = 0; v < g->n_value; v++) {
    int node = g->value[v].node, first = node < 0 ? -1 : s->step[node], last = first;
    for (int k = work->uses.first[v]; k < work->uses.first[v + 1]; k++) last = NEAP_MAX(last, s->step[work->uses.list[k]]);
    s->first[v] = first;
    s->last[v] = last;
  }
}

/* Hulls over members. There is no gap within: each member is made by a reader of one before it. */
static void live_storages(neap_schedule *s, const neap_graph *g) {
  for (int v = 0; v < g->n_value; v++) {
    int root = s->root[v];
    if (v == root) continue;
    s->from[root] = NEAP_MIN(s->from[root], s->first[v]);
    s->to[root] = NEAP_MAX(s->to[root], s->last[v]);
    s->bytes[root] = NEAP_MAX(s->bytes[root], neap_align(g->value[v].bytes));
  }
}

/* live_bytes[step]: differences first, then their running sum. Unsigned wrap-around is undone by the sum. */
static void live_steps(neap_schedule *s, const neap_work *work) {
  const neap_graph *g = work->graph;
  for (int v = 0; v < g->n_value; v++) {
    if (s->root[v] != v || g->value[v].region != NEAP_REGION_ARENA || s->from[v] < 0) continue;
    s->live_bytes[s->from[v]] += s->bytes[v];
    if (s->to[v] + 1 < g->n_node) s->live_bytes[s->to[v] + 1] -= s->bytes[v];
  }
  for (int i = 1; i < g->n_node; i++) s->live_bytes[i] += s->live_bytes[i - 1];
  for (int i = 0; i < g->n_node; i++) {
    s->live_bytes[i] += neap_align(work->scratch_bytes[s->order[i]]);
    if (s->live_bytes[i] <= s->peak_bytes) continue;
    s->peak_bytes = s->live_bytes[i];
    s->peak_step = i;
  }
}

neap_status neap_schedule_live(neap_schedule *s, const neap_work *work, neap_error *error) {
  const neap_graph *g = work->graph;
  live_values(s, work);
  for (int v = 0; v < g->n_value; v++) {
    if (g->value[v].region == NEAP_REGION_ARENA && s->first[v] < 0 && s->last[v] >= 0)
      return neap_fail(error, NEAP_GRAPH, "value \"%s\" lies in the arena and is read, but no op defines it",
                       g->value[v].name != NULL ? g->value[v].name : "?");
    s->from[v] = s->first[v];
    s->to[v] = s->last[v];
    s->bytes[v] = neap_align(g->value[v].bytes);
  }
  live_storages(s, g);
  live_steps(s, work);
  return NEAP_OK;
}
