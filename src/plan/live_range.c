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
    int node = g->value[v].node;
    int first = node < 0 ? -1 : s->step[node];
    int last = first;
    for (int k = work->uses.first[v]; k < work->uses.first[v + 1]; k++)
      last = NEAP_MAX(last, s->step[work->uses.list[k]]);
    s->first[v] = first;
    s->last[v] = last;
  }
}

/* Hulls over members. There is no gap within: each member is made by a reader of one before it. */
static void live_storages(neap_schedule *s, const neap_graph *g) {
  for (int v = 0; v < g->n_value; v++) {
    if (v == s->root[v]) continue; /* the life begins as the root's own */
    neap_interval *life = &s->life[s->root[v]];
    life->first = NEAP_MIN(life->first, s->first[v]);
    life->last = NEAP_MAX(life->last, s->last[v]);
    life->bytes = NEAP_MAX(life->bytes, neap_align(g->value[v].bytes));
  }
}

/* Into `life`: all that takes bytes in one bank, or in all (-1): the storages, and the scratch of
 * each node in its step. Returns how many; there is room for each value and node. */
static int list_lives(const neap_schedule *s, const neap_work *work, int bank,
                      neap_interval *life) {
  /* A storage counts once, at its root; one that is never written takes nothing. */
  const neap_graph *g = work->graph;
  int n = 0;
  for (int v = 0; v < g->n_value; v++) {
    if (s->root[v] != v || g->value[v].region != NEAP_REGION_ARENA || s->life[v].first < 0)
      continue;
    if (bank < 0 || g->value[v].bank == bank) life[n++] = s->life[v];
  }

  /* Scratch begins and ends with its node's step. */
  for (int i = 0; i < g->n_node; i++) {
    int node = s->order[i];
    if (bank < 0 || g->node[node].bank == bank)
      life[n++] = (neap_interval){i, i, neap_align(work->scratch_bytes[node])};
  }
  return n;
}

/* Room for list_lives, of neap_alloc; NULL when it is refused. */
static neap_interval *new_lives(const neap_graph *g) {
  return neap_alloc(((size_t)g->n_value + (size_t)g->n_node + 1) * sizeof(neap_interval));
}

/* What is live at each step, and the peak. */
static neap_status live_steps(neap_schedule *s, const neap_work *work, neap_error *error) {
  neap_interval *life = new_lives(work->graph);
  if (life == NULL) return neap_fail_memory(error, sizeof *life, "the lives of a schedule");
  int n = list_lives(s, work, -1, life);
  neap_peak peak = neap_interval_live(n, life, work->graph->n_node, s->live_bytes);
  s->peak_bytes = peak.bytes;
  s->peak_step = (int)peak.step;
  neap_free(life);
  return NEAP_OK;
}

neap_status neap_schedule_bank_peak(const neap_schedule *s, const neap_work *work, int bank,
                                    size_t *peak_bytes, neap_error *error) {
  /* Without banks all bytes are of one, whose peak is known. */
  *peak_bytes = s->peak_bytes;
  if (work->graph->n_bank == 0) return NEAP_OK;
  neap_peak peak;
  neap_interval *life = new_lives(work->graph);
  if (life == NULL) return neap_fail_memory(error, sizeof *life, "the lives in a bank");
  neap_status status = neap_interval_peak(list_lives(s, work, bank, life), life, &peak, error);
  neap_free(life);
  if (status == NEAP_OK) *peak_bytes = peak.bytes;
  return status;
}

neap_status neap_schedule_live(neap_schedule *s, const neap_work *work, neap_error *error) {
  const neap_graph *g = work->graph;
  live_values(s, work);

  /* Values as storages of their own, which their members then make longer and larger. */
  for (int v = 0; v < g->n_value; v++) {
    if (g->value[v].region == NEAP_REGION_ARENA && s->first[v] < 0 && s->last[v] >= 0)
      return neap_fail(error, NEAP_GRAPH,
                       "value \"%s\" lies in the arena and is read, but no op defines it",
                       g->value[v].name != NULL ? g->value[v].name : "?");
    s->life[v] = (neap_interval){s->first[v], s->last[v], neap_align(g->value[v].bytes)};
  }
  live_storages(s, g);
  return live_steps(s, work, error);
}
