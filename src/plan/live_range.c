/* live_range.c: when each value and each storage lives, and how many bytes are live at each step.
 *
 * A value lives from the step that defines it to the step of its last reader; unread, during its
 * own step only. A storage lives from the first definition among its members to the last reader of
 * any of them. A node's scratch lives in its step. Bytes are counted aligned, as they are laid out,
 * so that the peak is a bound that a packing can reach.
 */
#include "plan/plan_int.h"

/* Also for resident values: first and last use are worth knowing. */
static void live_values(neap_schedule *s, const neap_work *work) {
  const neap_graph *g = work->graph;
  for (int v = 0; v < g->n_value; v++) {
    int node = g->value[v].node, first = node < 0 ? -1 : s->step[node], last = first;
    for (int k = work->uses.first[v]; k < work->uses.first[v + 1]; k++)
      last = NEAP_MAX(last, s->step[work->uses.list[k]]);
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

/* live[step], zeroed, of one bank, or of all (-1): differences first, then their running sum.
 * Unsigned wrap-around is undone by the sum. */
static void live_in(const neap_schedule *s, const neap_work *work, int bank, size_t *live) {
  const neap_graph *g = work->graph;
  for (int v = 0; v < g->n_value; v++) {
    if (s->root[v] != v || g->value[v].region != NEAP_REGION_ARENA || s->from[v] < 0) continue;
    if (bank >= 0 && g->value[v].bank != bank) continue;
    live[s->from[v]] += s->bytes[v];
    if (s->to[v] + 1 < g->n_node) live[s->to[v] + 1] -= s->bytes[v];
  }
  for (int i = 1; i < g->n_node; i++) live[i] += live[i - 1];
  for (int i = 0; i < g->n_node; i++)
    if (bank < 0 || g->node[s->order[i]].bank == bank)
      live[i] += neap_align(work->scratch_bytes[s->order[i]]);
}

static void live_steps(neap_schedule *s, const neap_work *work) {
  live_in(s, work, -1, s->live_bytes);
  for (int i = 0; i < work->graph->n_node; i++) {
    if (s->live_bytes[i] <= s->peak_bytes) continue;
    s->peak_bytes = s->live_bytes[i];
    s->peak_step = i;
  }
}

neap_status neap_schedule_bank_peak(const neap_schedule *s, const neap_work *work, int bank,
                                    size_t *peak, neap_error *error) {
  *peak = s->peak_bytes;
  if (work->graph->n_bank == 0) return NEAP_OK;
  size_t n = (size_t)work->graph->n_node, *live = neap_alloc_zeroed((n + 1) * sizeof *live);
  if (live == NULL) return neap_fail_memory(error, n * sizeof *live, "the bytes live in a bank");
  live_in(s, work, bank, live);
  *peak = 0;
  for (size_t i = 0; i < n; i++) *peak = NEAP_MAX(*peak, live[i]);
  neap_free(live);
  return NEAP_OK;
}

neap_status neap_schedule_live(neap_schedule *s, const neap_work *work, neap_error *error) {
  const neap_graph *g = work->graph;
  live_values(s, work);
  for (int v = 0; v < g->n_value; v++) {
    if (g->value[v].region == NEAP_REGION_ARENA && s->first[v] < 0 && s->last[v] >= 0)
      return neap_fail(error, NEAP_GRAPH,
                       "value \"%s\" lies in the arena and is read, but no op defines it",
                       g->value[v].name != NULL ? g->value[v].name : "?");
    s->from[v] = s->first[v];
    s->to[v] = s->last[v];
    s->bytes[v] = neap_align(g->value[v].bytes);
  }
  live_storages(s, g);
  live_steps(s, work);
  return NEAP_OK;
}
