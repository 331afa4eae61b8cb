/* within.c: what a workspace's own limits leave a net.
 *
 * A workspace with a budget or a total refuses a program that would exceed it beside what it holds.
 * Only the refusal knows how much that is for this program (blobs that are there already count
 * once, an arena is as large as the largest program's), so that a net is planned freely first, and
 * within what is left only when that was refused.
 */
#include "driver/driver_int.h"

#include <string.h>

/* Bytes of the program's own that neither arena nor arguments hold. */
static size_t fixed_bytes(const neap_plan *plan) {
  size_t bytes = 0;
  for (int r = 0; r < NEAP_N_REGION; r++)
    if (r != NEAP_REGION_ARENA && r != NEAP_REGION_ARGUMENT) bytes += plan->region_bytes[r];
  return bytes;
}

bool neap_within_limits(const neap_workspace *ws, const neap_program *program,
                        const neap_error *refused, neap_compile_options *options) {
  const neap_plan *plan = neap_program_plan(program);
  if (refused->code != NEAP_BUDGET || refused->limit == NULL || plan->n_bank > 0) return false;

  /* The refusal's least is what this program would need beside all that is held. Its own share of
   * that is the arena it wants, which is no smaller than the one that is there. */
  const size_t least = (size_t)refused->least_bytes;
  const size_t has = plan->policy == NEAP_POLICY_POOL ? neap_workspace_pool(ws).reserved_bytes
                                                      : neap_workspace_arena_bytes(ws);
  const size_t want = NEAP_MAX(plan->arena_bytes, has);
  if (strcmp(refused->limit, "budget") == 0) {
    NEAP_ASSERT(least >= want, "a least of no less than the arena, %zu bytes; got %zu", want,
                least);
    const size_t budget = neap_workspace_budget(ws), other = least - want;
    /* Nothing is left, or less than the arena that is there, which never shrinks. */
    if (budget <= other || has > budget - other) return false;
    options->plan.budget_bytes = budget - other;
    return true;
  }
  if (strcmp(refused->limit, "total") != 0) return false;

  /* What is neither the program's arena nor its other regions is held by others. Blobs that are
   * there already are counted once, so that the least may be smaller than the program's own. */
  const size_t own = want + fixed_bytes(plan);
  options->total_bytes = neap_workspace_total(ws);
  options->beside = (neap_beside){.bytes = least > own ? least - own : 0, .arena_bytes = has};
  return true;
}
