/* ladder.c: the plans that a budget takes its own from.
 *
 * For every net there is a *ladder*: a fixed list of plans, *rungs*. The first is the *free* plan,
 * the one without any limit. Each rung after it runs a *set* of forward ops again in the backward
 * pass rather than keep what they make, in bodies of loops and branches as in the graph itself;
 * sets come in the order of that work (plan/recompute.c finds them). A free rung and its sets are a
 * *section*: all of it has the same kernels. Under a total there is a second section, without
 * constants. With `inexact` more follow, each with half the scratch of the one before, and so
 * perhaps other kernels. A budget takes the first rung that keeps it; where none does, the refusal
 * is that of the rung nearest to fitting, in the words of plan/budget.c.
 *
 * INVARIANT: rungs depend on graph and options, not on the budget. So a rung that keeps a budget
 * and is passed over for an earlier one under a larger budget is never smaller than what that
 * larger budget got: less budget never takes more memory, and a least that was named is met.
 * INVARIANT: but for `inexact`, all rungs have the kernels of the free plan, a dag's those of
 * `simple`, so that results have the same bits.
 *
 * Rungs are made when they are asked for. One is left out without being made only where a bound
 * below its arena exceeds the limits.
 */
#include "driver/driver_int.h"
#include "report/report.h"

#include <stdio.h>
#include <string.h>

enum { MOST_SECTIONS = 9 }; /* one of all scratch, then halving */

/* Of packing one rung with recomputations: there may be many to try. */
#define RUNG_STEPS INT64_C(200000000)

/* How near to fitting a refused plan is. Of two limits a refusal names one, whose least must do as
 * long as the other one is met. */
typedef enum nearness { BREAKS_BANK, BREAKS_BOTH, BREAKS_BUDGET, BREAKS_TOTAL, GROWS } nearness;

/* Where the climb is. */
typedef struct ladder {
  neap_way *w;
  neap_choices free; /* the first section's: what others are compared with */
  bool has_free;
  neap_recomputes *recomputes; /* of the section; NULL before they are asked for */
  size_t *need;                /* by set of the section: what its plan takes; 0: not made yet */
  /* what the plan nearest to fitting has to say; code OK: none is made yet */
  neap_error least;
  nearness near; /* how near that is */
} ladder;

/* ---- limits ---------------------------------------------------------------------------------- */

static size_t constant_bytes(const neap_way *w) {
  return neap_graph_region_bytes(w->graph, NEAP_REGION_CONSTANT);
}

static bool has_limit(const neap_way *w) {
  return w->resolved.arena_limit > 0 || w->resolved.total_left < SIZE_MAX;
}

/* Whether no bank takes more than it has. */
static bool keeps_banks(const neap_way *w) {
  return neap_plan_check_banks(w->plan, w->graph, NULL) == NEAP_OK;
}

/* Whether an arena of so many bytes keeps the total beside the constants of the graph at hand. */
static bool keeps_total(const neap_way *w, size_t arena) {
  const neap_resolved *r = &w->resolved;
  if (r->total_left == SIZE_MAX) return true;

  /* The other regions alone exceed the total: no arena is small enough, not even an empty one. */
  if (r->resident_bytes > r->total_bytes) return false;
  size_t constants = constant_bytes(w);
  if (constants > r->total_left) return false;

  /* One arena serves this program and those that are held beside it: the larger one counts. */
  return NEAP_MAX(arena, r->least_arena) <= r->total_left - constants;
}

/* Whether it keeps both limits. */
static bool keeps(const neap_way *w, size_t arena) {
  return (w->resolved.arena_limit == 0 || arena <= w->resolved.arena_limit) &&
         keeps_total(w, arena);
}

/* A loop that grows at run time keeps no limit. */
bool neap_way_fits(const neap_way *w) {
  if (!keeps_banks(w)) return false;
  if (!has_limit(w)) return true;
  return keeps(w, w->plan->arena_bytes) && w->plan->region_bytes[NEAP_REGION_FRAME] == 0;
}

/* The total, in the words of who gave it: what of it the regions beside the arena take, and what is
 * held beside the net. */
static neap_limit total_limit(const neap_way *w) {
  const neap_resolved *r = &w->resolved;
  neap_limit limit = {.bytes = r->total_bytes, .is_total = true, .least_arena = r->least_arena};

  /* resident_bytes is the regions of the prepared graph and what is held beside the net: what is
   * left after the regions is the latter. */
  size_t beside = r->resident_bytes;
  for (int k = 0; k < NEAP_N_REGION; k++) {
    if (k == NEAP_REGION_ARENA || k == NEAP_REGION_ARGUMENT) continue;
    size_t bytes = neap_graph_region_bytes(w->prepared, (neap_region)k);
    NEAP_ASSERT(bytes <= beside, "a region of %zu bytes was counted, %zu are left", bytes, beside);
    beside -= bytes;
    /* Constants come with laying out: the prepared graph, which was counted, has none of them. */
    if (k == NEAP_REGION_CONSTANT) bytes += constant_bytes(w);
    if (bytes > 0)
      limit.fixed[limit.n_fixed++] =
        (neap_named_bytes){neap_region_name((neap_region)k), (int64_t)bytes};
  }
  if (beside > 0)
    limit.fixed[limit.n_fixed++] = (neap_named_bytes){"held beside the net", (int64_t)beside};
  return limit;
}
_Static_assert(NEAP_N_REGION - 2 < NEAP_MOST_NAMED,
               "all of a total that is fixed has a place in the record");

/* Keeps the refusal of the plan nearest to fitting, of those the one of least need. */
static void keep_nearest(ladder *l, nearness near, const neap_error *refused) {
  /* A plan that breaks less is nearer, whatever its least is: leasts of two limits do not
   * compare. */
  const bool first = l->least.code == NEAP_OK;
  const bool less = refused->least_bytes < l->least.least_bytes;
  if (!first && near < l->near) return;
  if (!first && near == l->near && !less) return;

  /* The record is filled while the plan is at hand, which the next rung replaces. */
  l->least = *refused;
  l->near = near;
  neap_report_refused(l->w->plan, l->w->graph, &l->least);
}

/* Of the plan at hand, in the words of the limit that it breaks. */
static void note_refusal(ladder *l) {
  const neap_way *w = l->w;
  const neap_limit arena = {.bytes = w->resolved.arena_limit};
  neap_error bank = {0}, budget = {0}, total = {0};

  /* Each limit is asked for itself: which ones are broken says how near the plan is to fitting. */
  neap_plan_check_banks(w->plan, w->graph, &bank);
  neap_plan_check_budget(w->plan, w->graph, &arena, &budget);
  if (w->resolved.total_left < SIZE_MAX) {
    const neap_limit limit = total_limit(w);
    neap_plan_check_budget(w->plan, w->graph, &limit, &total);
  }
  const neap_error *refused = total.code != NEAP_OK ? &total : &budget;

  /* A refusal without a least: frames grow with the iterations, so no number of bytes would do. */
  if (refused->code != NEAP_OK && refused->least_bytes == 0)
    keep_nearest(l, GROWS, refused);
  else if (bank.code != NEAP_OK)
    keep_nearest(l, BREAKS_BANK, &bank);
  else if (total.code != NEAP_OK)
    keep_nearest(l, budget.code != NEAP_OK ? BREAKS_BOTH : BREAKS_TOTAL, &total);
  else if (budget.code != NEAP_OK)
    keep_nearest(l, BREAKS_BUDGET, &budget);
}

/* ---- rungs ----------------------------------------------------------------------------------- */

/* Values on the way to constants (folded weights that are then packed) need not be held where the
 * arena has room for them: the same choices, the same arena or a smaller one, fewer constants.
 * Where that can't be had, graph and plan stay as they are. */
static neap_status pass_through_arena(neap_way *w, const neap_plan_options *options,
                                      neap_error *error) {
  /* Only where some constants are made of others is there anything to gain. */
  neap_graph *graph = NULL;
  neap_plan *plan = NULL;
  bool has_passing = false;
  if (!w->choices.no_constants) NEAP_TRY(neap_graph_has_passing(w->graph, &has_passing, error));
  if (!has_passing) return NEAP_OK;

  /* Try the other form beside the plan at hand, and keep the better of the two. */
  w->choices.hold_constants = false;
  neap_status status = neap_graph_lay_out(w->prepared, &w->choices, &graph, error);
  if (status == NEAP_OK) status = neap_plan_make(graph, options, &plan, error);
  bool better = status == NEAP_OK && plan->arena_bytes <= w->plan->arena_bytes;
  neap_plan_free(better ? w->plan : plan);
  neap_graph_free(better ? w->graph : graph);
  if (better) {
    w->plan = plan;
    w->graph = graph;
  }

  /* The choices must lay out the graph that was kept: they are stored, and read back, for it. */
  w->choices.hold_constants = !better;
  return status;
}

/* Into w->graph and w->plan: the section's choices with these nodes recomputed. */
static neap_status make_rung(neap_way *w, const neap_recomputed *recomputed, bool keep_order,
                             neap_error *error) {
  /* Planned without the budget: a rung may not depend on it (see the head of the file). */
  neap_plan_options options = w->resolved.plan;
  options.budget_bytes = 0;
  options.keep_order = keep_order; /* the order that its peak is of */
  bool is_first = recomputed->n_node == 0 && recomputed->n_body == 0;
  if (!is_first && options.most_steps == 0) options.most_steps = RUNG_STEPS;

  /* One rung at a time is held: the next one is made from the same prepared graph. */
  neap_plan_free(w->plan);
  neap_graph_free(w->graph);
  w->plan = NULL;
  w->graph = NULL;
  w->choices.hold_constants = true;
  NEAP_TRY(neap_choices_recompute(&w->choices, recomputed, error));
  NEAP_TRY(neap_graph_lay_out(w->prepared, &w->choices, &w->graph, error));
  NEAP_TRY(neap_plan_make(w->graph, &options, &w->plan, error));
  w->n_rung++;
  w->n_search += w->plan->n_search;
  return pass_through_arena(w, &options, error);
}

/* It takes a backward pass and one order of steps. In a dag, where whatever is ready may run, a
 * recomputation that waits for all before it changes what overlaps more than what is kept: less
 * budget could take more memory. */
bool neap_way_may_recompute(const neap_way *w) {
  return !w->resolved.no_recompute && w->prepared->train &&
         w->resolved.plan.policy == NEAP_POLICY_OFFSET &&
         w->resolved.plan.executor == NEAP_EXECUTOR_SIMPLE;
}

static neap_status make_set(ladder *l, int i, neap_error *error) {
  /* The set without what its own peak can do without; its plan has the order that the peak is
   * of. */
  neap_recomputed recomputed;
  bool free_order;
  NEAP_TRY(neap_recomputes_take(l->recomputes, i, &recomputed, &free_order, error));
  NEAP_TRY(make_rung(l->w, &recomputed, !free_order, error));
  NEAP_ASSERT(l->w->plan->arena_bytes >= neap_recomputes_peak(l->recomputes, i),
              "no arena below the peak of its order, %zu bytes; got %zu",
              neap_recomputes_peak(l->recomputes, i), l->w->plan->arena_bytes);
  l->need[i] = NEAP_MAX(l->w->plan->arena_bytes, 1); /* 0 says that it is not made yet */
  note_refusal(l);
  return NEAP_OK;
}

/* The sets of nodes that may be recomputed, for the kernels of this section. */
static neap_status find_sets(ladder *l, neap_error *error) {
  /* The search is dear, so it is made once for a section, and only where the section is worth
   * it. */
  neap_way *w = l->w;
  NEAP_TRY(neap_recomputes_new(w->prepared, &w->choices, &w->resolved.plan, &l->recomputes, error));
  for (int i = 1; i < neap_recomputes_n(l->recomputes); i++)
    NEAP_ASSERT(neap_recomputes_peak(l->recomputes, i) < neap_recomputes_peak(l->recomputes, i - 1),
                "peaks that fall along the list; set %d does not lie below the one before it", i);
  size_t bytes = ((size_t)neap_recomputes_n(l->recomputes) + 1) * sizeof *l->need;
  l->need = neap_alloc_zeroed(bytes);
  return l->need != NULL ? NEAP_OK : neap_fail_memory(error, bytes, "a budget's plans");
}

static void leave_section(ladder *l) {
  if (l->recomputes != NULL) l->w->n_search += neap_recomputes_n_search(l->recomputes);
  neap_recomputes_free(l->recomputes);
  neap_free(l->need);
  l->recomputes = NULL;
  l->need = NULL;
}

/* The first set whose plan keeps the limits: the one of least work. */
static neap_status climb_sets(ladder *l, bool *found, neap_error *error) {
  for (int i = 0; i < neap_recomputes_n(l->recomputes); i++) {
    /* No arena lies below its peak, so that a peak above the limits needs no plan. */
    if (!keeps(l->w, neap_recomputes_peak(l->recomputes, i))) continue;
    NEAP_TRY(make_set(l, i, error));
    *found = neap_way_fits(l->w);
    if (*found) return NEAP_OK;
  }
  return NEAP_OK;
}

/* Plans the sets of lowest peak until no other can take less: what is then least is so for every
 * budget. */
static neap_status name_least(ladder *l, neap_error *error) {
  size_t least = SIZE_MAX;
  for (int i = neap_recomputes_n(l->recomputes) - 1; i >= 0; i--) {
    /* Peaks rise from here on, and an arena is no smaller than its peak: none left can be less. */
    if (neap_recomputes_peak(l->recomputes, i) >= least) break;
    if (l->need[i] == 0) NEAP_TRY(make_set(l, i, error));
    least = NEAP_MIN(least, l->need[i]);
  }
  return NEAP_OK;
}

/* ---- sections -------------------------------------------------------------------------------- */

/* Whether anything is to be tried in the section beside its first rung: `last`, for the least's
 * sake, else only what may keep the limits. */
static neap_status is_worth_it(ladder *l, bool last, bool *worth, neap_error *error) {
  size_t least = 0;

  /* Frames that grow at run time keep no limit, whatever is recomputed beside them. */
  *worth = neap_way_may_recompute(l->w) && l->w->plan->region_bytes[NEAP_REGION_FRAME] == 0;
  if (!*worth || last) return NEAP_OK;

  /* A bound below every set of the section, which costs less than finding the sets. */
  NEAP_TRY(neap_recomputes_least(l->w->graph, &l->w->resolved.plan, &least, error));
  *worth = keeps(l->w, least);
  return NEAP_OK;
}

/* The most scratch that a kernel of the section may take. `most`: what the first section's do. */
static size_t section_limit(size_t most, int section) {
  if (section == 0) return SIZE_MAX;
  return section < MOST_SECTIONS - 1 ? most >> section : 0;
}

/* Keeps the choices at hand as those that others are compared with. The first ones stay. */
static void keep_free(ladder *l) {
  if (l->has_free) return;
  l->free = l->w->choices;
  l->has_free = true;
  l->w->choices = (neap_choices){0};
}

/* What the kernels say within a limit. */
static neap_status choose_within(ladder *l, size_t scratch_limit, neap_error *error) {
  neap_way *w = l->w;
  neap_choose_options choose = w->resolved.choose;
  choose.scratch_limit = scratch_limit;
  neap_way_drop_result(w);
  NEAP_TRY(neap_graph_choose(w->prepared, &choose, &w->choices, error));

  /* Which kernels a limit has changed is told to users, since bits may differ. */
  if (l->has_free) neap_choices_compare(&w->choices, &l->free, w->prepared);
  return NEAP_OK;
}

/* A section's first rung: kernels within a scratch limit, nothing recomputed. */
static neap_status enter_section(ladder *l, size_t scratch_limit, bool constants, bool *found,
                                 neap_error *error) {
  /* Each section has kernels of its own, and so a graph and recomputations of its own. */
  neap_way *w = l->w;
  NEAP_TRY(choose_within(l, scratch_limit, error));
  w->choices.no_constants = !constants;
  const neap_recomputed none = {0};
  NEAP_TRY(make_rung(w, &none, false, error));
  *found = neap_way_fits(w);
  if (!*found) note_refusal(l);
  return NEAP_OK;
}

/* What the limits leave the arena; 0: nothing. */
static size_t room(const neap_way *w) {
  const neap_resolved *r = &w->resolved;
  size_t bytes = r->arena_limit > 0 ? r->arena_limit : SIZE_MAX, constants = constant_bytes(w);
  if (r->total_left == SIZE_MAX) return bytes;
  return constants >= r->total_left ? 0 : NEAP_MIN(bytes, r->total_left - constants);
}

/* Policy `pool`: one rung of the very limit, since a run evicts only what has to go. It is refused
 * with a least of its own, which is met too. */
static neap_status climb_evicting(ladder *l, bool *found, neap_error *error) {
  neap_way *w = l->w;
  neap_plan *plan = NULL;
  neap_plan_options options = w->resolved.plan;
  neap_error refused = {0};
  const size_t budget = w->resolved.arena_limit;

  /* Of budget and total the tighter one is the pool's limit, and a refusal speaks of that one. */
  options.budget_bytes = NEAP_MAX(room(w), 1); /* 0 would be no limit */
  const bool by_total = budget == 0 || options.budget_bytes < budget;
  const neap_limit total = by_total ? total_limit(w) : (neap_limit){0};
  if (by_total) options.limit = &total;

  neap_status status = neap_plan_make(w->graph, &options, &plan, &refused);
  if (status == NEAP_OK) {
    w->n_search += plan->n_search;
    neap_plan_free(w->plan);
    w->plan = plan;
    *found = neap_way_fits(w);
    return NEAP_OK;
  }
  if (status == NEAP_BUDGET) {
    /* Whether the least pool, which the refusal names, would keep the other limit. */
    size_t pool = (size_t)refused.least_bytes - (by_total ? neap_limit_fixed(&total) : 0);
    nearness near = by_total ? BREAKS_TOTAL : BREAKS_BUDGET;
    bool keeps_other = by_total ? budget == 0 || pool <= budget : keeps_total(w, pool);
    if (!keeps_other) near = BREAKS_BOTH;
    keep_nearest(l, near, &refused);
    return NEAP_OK;
  }
  if (error != NULL && error->code == NEAP_OK) *error = refused;
  return status;
}

/* The rungs below a section's first. `last`: no section follows. */
static neap_status climb_section(ladder *l, bool last, bool *found, neap_error *error) {
  /* A pool has one rung for each limit; frames that grow keep none. */
  const neap_way *w = l->w;
  if (w->resolved.plan.evict && w->plan->region_bytes[NEAP_REGION_FRAME] == 0)
    return climb_evicting(l, found, error);
  bool worth = false;
  neap_status status = is_worth_it(l, last, &worth, error);
  if (status != NEAP_OK || !worth) return status;

  /* Sets in the order of their work: the first that fits is the fastest that does. */
  status = find_sets(l, error);
  if (status == NEAP_OK) status = climb_sets(l, found, error);
  if (status == NEAP_OK && !*found && last) status = name_least(l, error);
  leave_section(l);
  return status;
}

/* Sections of ever less scratch: halving finds a limit in few plans, and the last one allows
 * none. */
static neap_status climb_inexact(ladder *l, size_t limit, bool constants, bool *found,
                                 neap_error *error) {
  /* Kernels of the first section are what all later ones are compared with. */
  size_t most = limit;
  keep_free(l);
  for (int k = 1; k < MOST_SECTIONS; k++) {
    if (limit == 0 || *found) break; /* 0: the last section has been climbed, or there is none */
    limit = section_limit(most, k);
    l->w->section = k;
    NEAP_TRY(enter_section(l, limit, constants, found, error));
    if (!*found) NEAP_TRY(climb_section(l, limit == 0, found, error));
  }
  return NEAP_OK;
}

/* A dag that may be inexact has kernels of one thread: those of executor `simple` are what they
 * are compared with. */
static neap_status choose_for_team(ladder *l, neap_error *error) {
  neap_choose_options team = l->w->resolved.choose;
  team.n_thread = l->w->resolved.n_thread;
  if (team.n_thread == l->w->resolved.choose.n_thread) return NEAP_OK;
  NEAP_TRY(neap_graph_choose(l->w->prepared, &team, &l->free, error));
  l->has_free = true;
  return NEAP_OK;
}

/* With constants, under a total then without; with `inexact` then with less scratch. */
static neap_status climb(ladder *l, bool *found, neap_error *error) {
  const neap_way *w = l->w;
  bool constants = !w->resolved.no_constants;
  NEAP_TRY(choose_for_team(l, error));

  /* The free plan. Most nets are done here. */
  NEAP_TRY(enter_section(l, SIZE_MAX, constants, found, error));
  if (*found) return NEAP_OK;

  /* Which sections follow. The last one must name its least, which costs plans. Constants are given
   * up before exact bits are, since that changes no result. */
  bool without = constants && w->resolved.total_left < SIZE_MAX && constant_bytes(w) > 0;
  size_t limit = w->resolved.inexact ? neap_most_scratch(&w->choices) : 0;
  NEAP_TRY(climb_section(l, !without && limit == 0, found, error));

  /* Constants are bytes of the total, not of the arena: a budget gains nothing without them. */
  if (without && !*found) {
    constants = false;
    NEAP_TRY(enter_section(l, SIZE_MAX, constants, found, error));
    if (!*found) NEAP_TRY(climb_section(l, limit == 0, found, error));
  }
  return *found ? NEAP_OK : climb_inexact(l, limit, constants, found, error);
}

/* BUDGET error of the plan nearest to fitting, and what else could be tried. */
static neap_status refuse(const ladder *l, neap_error *error) {
  /* One more thing to try, by what stands in the way of smaller plans: the dag, exact bits, the
   * batch. */
  const neap_way *w = l->w;
  neap_error refused = l->least;
  char least[sizeof refused.hint];
  snprintf(least, sizeof least, "%s", refused.hint); /* neap_hint below writes over it */
  if (refused.least_bytes > 0 && w->prepared->train && !w->resolved.no_recompute &&
      w->resolved.plan.executor != NEAP_EXECUTOR_SIMPLE)
    neap_hint(&refused,
              "%s; executor = \"simple\" could recompute: it meets smaller budgets than a dag",
              least);
  else if (refused.least_bytes > 0 && !w->resolved.inexact && neap_most_scratch(&w->choices) > 0)
    neap_hint(&refused, "%s; exact = false allows kernels that take less scratch: other bits",
              least);
  else if (refused.least_bytes > 0 && neap_graph_batch(w->prepared) > 1)
    neap_hint(&refused, "%s; fit_batch finds the batch that fits", least);
  if (error != NULL && error->code == NEAP_OK) *error = refused;
  return refused.code;
}

size_t neap_most_scratch(const neap_choices *choices) {
  size_t most = 0;
  for (int i = 0; i < choices->n; i++) most = NEAP_MAX(most, choices->choice[i].scratch_bytes);
  return most;
}

neap_status neap_ladder_choose(neap_way *w, int section, neap_error *error) {
  /* A text names the section; the options must have it. */
  ladder l = {.w = w};
  if (section < 0 || section >= MOST_SECTIONS || (section > 0 && !w->resolved.inexact))
    return neap_fail(error, NEAP_PLAN, "there are no kernels of section %d of less scratch",
                     section);
  w->section = section;
  neap_status status = choose_for_team(&l, error);
  if (status == NEAP_OK) status = choose_within(&l, SIZE_MAX, error);

  /* As the climb did: limits of sections are shares of what the free kernels take. */
  if (status == NEAP_OK && section > 0) {
    size_t most = neap_most_scratch(&w->choices);
    keep_free(&l);
    status = choose_within(&l, section_limit(most, section), error);
  }
  if (l.has_free) neap_choices_fini(&l.free);
  return status;
}

static int64_t n_planned; /* atomic; for tests, and for who asks what the store saves */

int64_t neap_n_planned(void) { return __atomic_load_n(&n_planned, __ATOMIC_RELAXED); }

neap_status neap_ladder_climb(neap_way *w, neap_error *error) {
  /* What the search costs is counted in steps, and timed for people. */
  ladder l = {.w = w};
  __atomic_add_fetch(&n_planned, 1, __ATOMIC_RELAXED);
  const int64_t start = neap_clock_ns();
  w->section = w->n_rung = 0;
  w->n_search = 0;
  bool found = false;

  /* Whatever was found is verified: a rung is no better than its proof. */
  neap_status status = climb(&l, &found, error);
  NEAP_ASSERT(status != NEAP_OK || !found || neap_way_fits(w), "a plan within the limits");
  if (status == NEAP_OK)
    status = found ? neap_plan_verify(w->plan, w->graph, error) : refuse(&l, error);
  leave_section(&l);
  if (status == NEAP_OK) w->plan->n_search = w->n_search;
  if (status == NEAP_OK) w->plan->plan_ns = neap_clock_ns() - start;
  if (l.has_free) neap_choices_fini(&l.free);
  return status;
}
