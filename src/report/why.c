/* why.c: two values of one plan in words: what makes them share bytes, or what keeps them apart.
 *
 * Bytes are shared for one of two reasons: both are members of one storage (in place, view, next
 * version), or one storage takes bytes that another no longer needs. They are apart because one of
 * the two has bytes of its own, because both are needed at once, or because the packing had no use
 * for putting one over the other.
 */
#include "report/report.h"

#include <string.h>

typedef struct life {
  int value; /* that was asked about */
  /* steps of its storage: from the first definition to the last use of any member */
  int from, to;
  int last_reader; /* node that runs at `to`; -1 where nothing reads it */
} life;

/* A storage lives as long as any of its members, and that is what keeps another one away. */
static life life_of(const neap_plan *plan, int v) {
  life l = {v, plan->place[v].first, plan->place[v].last, -1};
  for (int w = 0; w < plan->n_value; w++) {
    const neap_place *place = &plan->place[w];
    if (place->storage != plan->place[v].storage) continue;
    l.from = NEAP_MIN(l.from, place->first);
    l.to = NEAP_MAX(l.to, place->last);
  }

  /* Where both are one step, its op makes the value and nobody reads it. */
  if (l.to > l.from && l.to < plan->n_node) l.last_reader = plan->order[l.to];
  return l;
}

/* One sentence: how much, where, from when to when, and who reads last. */
static void add_life(const neap_plan *plan, const neap_graph *graph, const life *l,
                     neap_buffer *out) {
  const neap_place *place = &plan->place[l->value];
  char text[24];
  neap_buffer_add(out, "%s: %s at offset %zu, needed in steps %d-%d",
                  neap_plan_name(graph, l->value), neap_bytes_text((double)place->bytes, text),
                  place->offset, l->from + 1, l->to + 1);
  if (l->last_reader >= 0)
    neap_buffer_add(out, ", last by %s \"%s\"", graph->node[l->last_reader].op->name,
                    graph->node[l->last_reader].name);
  neap_buffer_add(out, ".\n");
}

/* One storage: the link on the way from the later of the two to the earlier. */
static void add_link(const neap_plan *plan, const neap_graph *graph, int a, int b,
                     neap_buffer *out) {
  /* The earlier of the two may be linked to a third value, which says nothing of this pair. */
  int later = plan->place[a].first >= plan->place[b].first ? a : b;
  const neap_place *place = &plan->place[later];
  neap_buffer_add(out, "%s and %s are the same bytes: %s %s", neap_plan_name(graph, a),
                  neap_plan_name(graph, b), neap_plan_name(graph, later),
                  neap_reason_words(place->reason));
  if (place->partner >= 0)
    neap_buffer_add(out, " (%s: %s)", neap_reason_code(place->reason),
                    neap_plan_name(graph, place->partner));
  neap_buffer_add(out, ".\n");
}

/* Whether the node reads or writes a member of the storage. */
static bool touches(const neap_plan *plan, const neap_node *node, int storage) {
  for (int i = 0; i < node->n_in; i++)
    if (node->in[i] >= 0 && plan->place[node->in[i]].storage == storage) return true;
  for (int k = 0; k < node->n_out; k++)
    if (node->out[k] >= 0 && plan->place[node->out[k]].storage == storage) return true;
  return false;
}

/* In a dag steps are one schedule among many: the two may share only where a path makes one end
 * before the other begins. `reach`: n_word words a node, the bits of the nodes behind it. */
static bool is_ordered(const neap_plan *plan, const neap_graph *graph, const uint64_t *reach,
                       int n_word, int before, int after) {
  /* The node at which the second storage begins. */
  int maker = -1, first = plan->n_node;
  for (int w = 0; w < plan->n_value; w++) {
    const neap_place *place = &plan->place[w];
    if (place->storage != plan->place[after].storage || place->first >= first) continue;
    first = place->first;
    maker = graph->value[w].node;
  }

  /* There before the run: nothing can end before it begins. */
  if (maker < 0) return false;

  /* All that touch the first storage must lead to it. The maker itself may be one of them: it reads
   * the one for the last time while it writes the other. */
  for (int n = 0; n < graph->n_node; n++) {
    if (n == maker || !touches(plan, &graph->node[n], plan->place[before].storage)) continue;
    if (!neap_bit(reach + (size_t)n * (size_t)n_word, maker)) return false;
  }
  return true;
}

/* The first reason that holds, in the order in which a reader can do something about it: needed at
 * once; ordered by nothing, in a dag; packed elsewhere; a policy that does not share. */
static void add_apart(const neap_plan *plan, const neap_graph *graph, const life *a, const life *b,
                      bool ordered, neap_buffer *out) {
  const char *x = neap_plan_name(graph, a->value), *y = neap_plan_name(graph, b->value);
  int from = NEAP_MAX(a->from, b->from), to = NEAP_MIN(a->to, b->to); /* of both lives */
  /* Their lives overlap: nothing could be done without another order of the ops. */
  if (from <= to) {
    neap_buffer_add(out, "%s and %s are apart: both are needed in step%s %d", x, y,
                    from < to ? "s" : "", from + 1);
    if (from < to) neap_buffer_add(out, "-%d", to + 1);
    neap_buffer_add(out, ", so they can't share bytes.\n");
  } else if (!ordered) {
    neap_buffer_add(out,
                    "%s and %s are apart: no path in the dag makes one end before the other "
                    "begins, so both may live at once.\n",
                    x, y);
  } else if (plan->policy == NEAP_POLICY_OFFSET) {
    neap_buffer_add(
      out,
      "%s and %s are apart, though they never live at once: the packing %s without putting one "
      "over the other.\n",
      x, y, plan->proved ? "reaches the least for these kernels and this order" : "it found");
  } else {
    neap_buffer_add(
      out, "%s and %s are apart: under policy %s bytes are shared %s.\n", x, y,
      neap_policy_name(plan->policy),
      plan->policy == NEAP_POLICY_NAME ? "by blobs of one name only" : "by no two values");
  }
}

/* Either of them has bytes that no planning touches. */
static void add_resident(const neap_plan *plan, const neap_graph *graph, int a, int b,
                         neap_buffer *out) {
  int v = plan->place[a].region != NEAP_REGION_ARENA ? a : b;
  neap_buffer_add(out,
                  "%s and %s are apart: %s lies in %s, has bytes of its own from run to run, and "
                  "shares them with nobody.\n",
                  neap_plan_name(graph, a), neap_plan_name(graph, b), neap_plan_name(graph, v),
                  neap_region_name(plan->place[v].region));
}

/* Values of one plan, in either order. MEMORY is the only failure: paths of a dag are found
 * anew. */
neap_status neap_report_why(const neap_plan *plan, const neap_graph *graph, int a, int b,
                            neap_buffer *out, neap_error *error) {
  const neap_place *p = &plan->place[a], *q = &plan->place[b];
  life x = life_of(plan, a), y = life_of(plan, b);
  uint64_t *reach = NULL;
  int n_word = 0;
  bool ordered = true;

  /* The shortest answers first: one storage; no bytes of the arena; else two lives are compared. */
  if (p->storage == q->storage) {
    add_link(plan, graph, a, b, out);
    return NEAP_OK;
  }
  if (p->region != NEAP_REGION_ARENA || q->region != NEAP_REGION_ARENA) {
    add_resident(plan, graph, a, b, out);
    return NEAP_OK;
  }

  /* Steps of a dag are one schedule of many: lives alone say nothing, paths do. */
  if (plan->executor == NEAP_EXECUTOR_DAG) {
    NEAP_TRY(neap_reach_new(graph, &reach, &n_word, error));
    ordered =
      is_ordered(plan, graph, reach, n_word, a, b) || is_ordered(plan, graph, reach, n_word, b, a);
    neap_free(reach);
  }

  /* Addresses decide: who came first gave up what the second one takes. */
  if (neap_places_meet(p, q)) {
    const life *first = x.from <= y.from ? &x : &y, *second = first == &x ? &y : &x;
    neap_buffer_add(
      out, "%s takes bytes of %s, which has been read for the last time%s when %s is written.\n",
      neap_plan_name(graph, second->value), neap_plan_name(graph, first->value),
      plan->executor == NEAP_EXECUTOR_DAG ? " in every schedule" : "",
      neap_plan_name(graph, second->value));
  } else {
    add_apart(plan, graph, &x, &y, ordered, out);
  }

  /* The facts behind the sentence, for whoever doubts it. */
  add_life(plan, graph, &x, out);
  add_life(plan, graph, &y, out);
  return NEAP_OK;
}
