/* live_at.c: what is live at a step, and who has overwritten a value's bytes.
 *
 * These look at a finished plan and its places, not at the schedule it came from, so that a stored
 * plan answers as a fresh one does. They are for messages and reports: O(values) or O(values^2)
 * where few are asked.
 */
#include "pack/pack.h"
#include "plan/plan_int.h"

#include <string.h>

/* Steps count from 0; a value is live in the step that makes it and in that of its last reader. */
static bool lives_at(const neap_place *place, int step) {
  return place->region == NEAP_REGION_ARENA && place->bytes > 0 && place->first >= 0 &&
         place->first <= step && step <= place->last;
}

/* Whether a newer value of the same storage lives there too: then that one stands for the
 * storage. */
static bool is_covered(const neap_plan *plan, int v, int step) {
  const neap_place *place = &plan->place[v];
  for (int w = 0; w < plan->n_value; w++) {
    const neap_place *other = &plan->place[w];
    if (w == v || other->storage != place->storage || !lives_at(other, step)) continue;
    if (other->first > place->first || (other->first == place->first && w > v)) return true;
  }
  return false;
}

int neap_plan_live_at(const neap_plan *plan, const neap_graph *graph, int bank, int step, int room,
                      int *value) {
  neap_interval *life = neap_alloc_zeroed(((size_t)plan->n_value + 1) * sizeof *life);
  if (life == NULL) return -1;
  for (int v = 0; v < plan->n_value; v++) {
    const neap_place *place = &plan->place[v];
    if (!lives_at(place, step)) continue;
    if (bank >= 0 && neap_graph_bank_of(graph, v) != bank) continue;

    /* All others are left as intervals of no bytes, which live nowhere. */
    if (!is_covered(plan, v, step))
      life[v] = (neap_interval){place->first, place->last, place->bytes};
  }
  int n = neap_interval_alive(plan->n_value, life, step, room, value);
  neap_free(life);
  return n;
}

/* ---- who owns the bytes now ------------------------------------------------------------------ */

/* The value whose elements `v` shows: views followed to their source. */
static int content_of(const neap_plan *plan, int v) {
  /* A chain of views is no longer than there are values. */
  for (int k = 0; k < plan->n_value; k++) {
    if (plan->place[v].reason != NEAP_REASON_ALIAS) break;
    v = plan->place[v].partner;
  }
  return v;
}

/* The value that holds these bytes after the run, or the last one that took some of them; -1: they
 * are intact; -2: some op's scratch lay there, which has no name. Other values that show the same
 * elements do not count. */
int neap_plan_overwriter(const neap_plan *plan, const neap_graph *graph, int value) {
  const neap_place *place = &plan->place[value];
  int owner = -1, content = content_of(plan, value);

  /* Resident bytes have no other owner than a later version: the last one. */
  if (place->region != NEAP_REGION_ARENA) {
    for (int w = 0; w < plan->n_value; w++) {
      const neap_place *other = &plan->place[w];
      if (other->storage != place->storage || other->first <= place->first) continue;
      if (owner < 0 || other->first > plan->place[owner].first) owner = w;
    }
    return owner;
  }

  /* Of the values made later in some of these bytes the last one. */
  for (int w = 0; w < plan->n_value; w++) {
    const neap_place *other = &plan->place[w];
    if (other->region != NEAP_REGION_ARENA || other->first <= place->first) continue;
    if (content_of(plan, w) == content || !neap_places_meet(place, other)) continue;
    if (owner < 0 || other->first > plan->place[owner].first) owner = w;
  }
  if (owner >= 0) return owner;

  /* No value: only scratch may have been written there. */
  for (int step = NEAP_MAX(place->first, 0); step < plan->n_node; step++) {
    int n = plan->order[step];
    if (neap_bytes_meet(place->offset, place->bytes, plan->scratch_offset[n],
                        plan->scratch_bytes[n]))
      return -2;
  }
  (void)graph;
  return -1;
}
