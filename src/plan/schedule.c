/* schedule.c: one order of a graph and what follows from it: storages, lives, bytes live at each
 * step.
 *
 * A schedule is what all policies pack: which values are one storage, from which step to which it
 * lives, and how many bytes are live while each step runs. Storages are found from the graph
 * (share.c), or taken over from a plan that stands already, when the same addresses are to serve
 * another batch size; lives come from the one analysis (live_range.c) either way.
 *
 * INVARIANT: `order` and `step` are inverse to each other; members of a storage form a ring through
 * `next`, which starts anywhere.
 */
#include "plan/plan_int.h"

#include <stdlib.h>
#include <string.h>

/* All arrays of a schedule in one place, so that the memory is refused at once or not at all. */
static bool take_arrays(neap_schedule *s, const neap_graph *g) {
  /* Lists of numbers first, then what has types of its own. */
  size_t n = (size_t)g->n_node, m = (size_t)g->n_value;
  int **by_value[] = {&s->root, &s->next, &s->partner, &s->first, &s->last};
  int **by_node[] = {&s->order, &s->step};
  for (int i = 0; i < NEAP_COUNT(by_value); i++) {
    *by_value[i] = neap_arena_alloc(&s->arena, m * sizeof(int));
    if (*by_value[i] == NULL) return false;
  }
  for (int i = 0; i < NEAP_COUNT(by_node); i++) {
    *by_node[i] = neap_arena_alloc(&s->arena, n * sizeof(int));
    if (*by_node[i] == NULL) return false;
  }
  s->reason = neap_arena_alloc(&s->arena, m * sizeof *s->reason);
  s->refusal = neap_arena_alloc(&s->arena, m * sizeof *s->refusal);
  s->life = neap_arena_alloc(&s->arena, m * sizeof *s->life);
  s->live_bytes = neap_arena_alloc(&s->arena, n * sizeof *s->live_bytes);
  return s->reason != NULL && s->refusal != NULL && s->life != NULL && s->live_bytes != NULL;
}

/* An empty schedule whose steps are those of `order`; NULL: of definition. On failure *s is
 * empty. */
static neap_status begin(neap_schedule *s, const neap_graph *g, const int *order,
                         neap_error *error) {
  memset(s, 0, sizeof *s);
  if (!take_arrays(s, g)) {
    neap_schedule_fini(s);
    return neap_fail_memory(error, (size_t)(g->n_node + g->n_value) * 8 * sizeof(int),
                            "a schedule");
  }
  for (int i = 0; i < g->n_node; i++) {
    s->order[i] = order != NULL ? order[i] : i;
    s->step[s->order[i]] = i;
  }
  return NEAP_OK;
}

/* `order` and `step` are inverse to each other, and every edge leads to a later step. */
static void check_order(const neap_schedule *s, const neap_graph *g) {
  for (int i = 0; i < g->n_node; i++) {
    int n = s->order[i];
    NEAP_ASSERT(n >= 0 && n < g->n_node && s->step[n] == i,
                "step %d runs one of %d nodes, whose step it is: node %d", i, g->n_node, n);
  }
  for (int e = 0; e < g->n_edge; e++)
    NEAP_ASSERT(s->step[g->edge[e].from] < s->step[g->edge[e].to],
                "node %d runs before node %d, as an edge says: steps %d and %d", g->edge[e].from,
                g->edge[e].to, s->step[g->edge[e].from], s->step[g->edge[e].to]);
}

/* Members of a storage form a ring through `next`, in which all have one root, the member that is
 * defined first. */
static void check_rings(const neap_schedule *s, const neap_graph *g) {
  int n_root = 0, n_member = 0;

  /* Each value alone: its root is a root, and so is that of the next one. */
  for (int v = 0; v < g->n_value; v++) {
    int root = s->root[v];
    NEAP_ASSERT(root >= 0 && root < g->n_value && s->root[root] == root,
                "value %d has a root that is its own root: %d", v, root);
    NEAP_ASSERT(s->next[v] >= 0 && s->next[v] < g->n_value && s->root[s->next[v]] == root,
                "value %d, of the storage of %d, has the next member behind it: %d", v, root,
                s->next[v]);
    NEAP_ASSERT(s->first[root] <= s->first[v],
                "the root %d of value %d is defined first: at steps %d and %d", root, v,
                s->first[root], s->first[v]);
    if (root == v) n_root++;
  }

  /* From each root once around: the rings meet every value, and none twice. */
  for (int v = 0; v < g->n_value; v++) {
    if (s->root[v] != v) continue;
    int u = v;
    do {
      u = s->next[u];
      n_member++;
      NEAP_ASSERT(n_member <= g->n_value, "the ring of value %d ends where it began", v);
    } while (u != v);
  }
  NEAP_ASSERT(n_member == g->n_value, "%d rings hold %d values, each once: %d", n_root, g->n_value,
              n_member);
}

/* Who writes in place is the last to read: `most` of a storage is the last reader so far, over the
 * members defined so far. */
static void check_in_place(const neap_schedule *s, const neap_graph *g) {
  int *most = malloc(((size_t)g->n_value + 1) * sizeof *most);
  if (most == NULL) return;

  /* Values that exist before the graph runs are members from the start. */
  for (int v = 0; v < g->n_value; v++) most[v] = -1;
  for (int v = 0; v < g->n_value; v++)
    if (g->value[v].node < 0) most[s->root[v]] = NEAP_MAX(most[s->root[v]], s->last[v]);

  /* Step by step: first what is claimed of the new member, then its own readers. */
  for (int i = 0; i < g->n_node; i++) {
    const neap_node *node = &g->node[s->order[i]];
    for (int k = 0; k < node->n_out; k++) {
      int v = node->out[k];
      if (v < 0) continue;
      int *last = &most[s->root[v]];
      NEAP_ASSERT(s->reason[v] != NEAP_REASON_IN_PLACE || *last <= i,
                  "when \"%s\" is written in place at step %d, every other reader of the storage "
                  "has run; one runs at step %d",
                  g->value[v].name != NULL ? g->value[v].name : "?", i, *last);
      *last = NEAP_MAX(*last, s->last[v]);
    }
  }
  free(most);
}

/* In a dag no order is promised: each other reader of an older member must lead to the node that
 * writes in place, by edges. */
static void check_in_place_by_edges(const neap_schedule *s, const neap_work *work) {
  const neap_graph *g = work->graph;
  for (int v = 0; v < g->n_value; v++) {
    if (s->reason[v] != NEAP_REASON_IN_PLACE) continue;
    int writer = g->value[v].node;

    /* The other members of the storage that were there before v. */
    for (int w = s->next[v]; w != v; w = s->next[w]) {
      if (s->first[w] >= s->first[v]) continue;
      for (int k = work->uses.first[w]; k < work->uses.first[w + 1]; k++) {
        int reader = work->uses.list[k];
        NEAP_ASSERT(reader == writer || neap_reaches(work, reader, writer),
                    "node %d writes value %d over value %d, so it runs after its reader, node %d",
                    writer, v, w, reader);
      }
    }
  }
}

/* A storage lives as long as any of its members; what is live at a step is counted in full for the
 * last of the peaks. */
static void check_lives(const neap_schedule *s, const neap_work *work) {
  const neap_graph *g = work->graph;
  size_t peak = 0;
  for (int v = 0; v < g->n_value; v++) {
    const neap_interval *life = &s->life[s->root[v]];
    NEAP_ASSERT(life->first <= s->first[v] && s->last[v] <= life->last && s->first[v] <= s->last[v],
                "value %d lives from %d to %d, within the life of its storage, %lld to %lld", v,
                s->first[v], s->last[v], (long long)life->first, (long long)life->last);
    NEAP_ASSERT(life->bytes >= g->value[v].bytes,
                "the storage of value %d has room for its %zu bytes: %zu", v, g->value[v].bytes,
                life->bytes);

    /* Each storage once, at its root. */
    bool is_live = s->root[v] == v && g->value[v].region == NEAP_REGION_ARENA && life->first >= 0 &&
                   life->first <= s->peak_step && s->peak_step <= life->last;
    if (is_live) peak += life->bytes;
  }

  /* The scratch of the op at the peak lives there too. */
  if (g->n_node > 0) peak += neap_align(work->scratch_bytes[s->order[s->peak_step]]);
  NEAP_ASSERT(g->n_node == 0 || s->peak_bytes == 0 || peak == s->peak_bytes,
              "%zu bytes are live at step %d, the peak: it says %zu", peak, s->peak_step,
              s->peak_bytes);
}

static void check_schedule(const neap_schedule *s, const neap_work *work) {
  check_order(s, work->graph);
  check_rings(s, work->graph);
  check_in_place(s, work->graph);
  if (work->reach != NULL) check_in_place_by_edges(s, work);
  check_lives(s, work);
}

/* The lives of the storages that s has by now. */
static neap_status complete(neap_schedule *s, const neap_work *work, neap_error *error) {
  neap_status status = neap_schedule_live(s, work, error);
  if (status == NEAP_OK && NEAP_DEBUG) check_schedule(s, work);
  if (status != NEAP_OK) neap_schedule_fini(s);
  return status;
}

neap_status neap_schedule_init(neap_schedule *s, const neap_work *work, const int *order,
                               neap_error *error) {
  NEAP_TRY(begin(s, work->graph, order, error));
  neap_schedule_share(s, work);
  return complete(s, work, error);
}

/* The ring of each storage, from the roots. */
static void link_ring(neap_schedule *s, int n_value) {
  for (int v = 0; v < n_value; v++) s->next[v] = v;

  /* Each member is put right behind the root. */
  for (int v = 0; v < n_value; v++) {
    int root = s->root[v];
    if (root == v) continue;
    s->next[v] = s->next[root];
    s->next[root] = v;
  }
}

/* Order and storages of `plan`, which was made for a graph of the same form. On failure *s is
 * empty. */
neap_status neap_schedule_init_like(neap_schedule *s, const neap_work *work, const neap_plan *plan,
                                    neap_error *error) {
  const neap_graph *g = work->graph;
  NEAP_TRY(begin(s, g, plan->order, error));
  for (int v = 0; v < g->n_value; v++) {
    s->root[v] = plan->place[v].storage;
    s->reason[v] = plan->place[v].reason;
    s->refusal[v] = plan->place[v].refusal;
    s->partner[v] = plan->place[v].partner;
  }

  /* A plan says of each member which root it has, and nothing of a ring. */
  link_ring(s, g->n_value);
  return complete(s, work, error);
}

void neap_schedule_fini(neap_schedule *s) {
  neap_arena_fini(&s->arena);
  memset(s, 0, sizeof *s);
}
