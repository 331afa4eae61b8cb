/* rehearse.c: the forecast of policy `pool`. The runner takes a storage's bytes from a pool when the first instruction that
 * touches it runs, gives them back after the last, and takes an instruction's scratch for as long as that runs. Here the same
 * takes and gives, in the same order, go to a pool without bytes: how far the pool reaches then is what a run needs.
 *
 * Best fit alone leaves holes, because what lives long comes to lie among what lives shortly (lenet in training reaches 1.76
 * times its live bytes). So a pool has two ends, and a strategy says which one a storage is taken from: by how long it lives
 * (then activations form a stack at the low end), by how large it is, or by which end's outermost block outlives it most closely.
 * A few strategies are rehearsed, and the one that reaches least is the plan's: "life:8", "size:4096", "stack", or "fit" for
 * one end alone.
 *
 * INVARIANT: this walk and take.c of program take and give alike.
 */
#include "base/pool.h"
#include "plan/plan_int.h"

#include <stdio.h>
#include <string.h>

typedef struct life {
  int from, to; /* steps of the storage; from < 0: takes nothing from the pool */
  size_t bytes;
  neap_pool_block *block; /* taken now */
  bool high;              /* the end it was taken from last */
  int at;                 /* while taken: its place among the taken ones */
} life;

typedef enum strategy_kind { FIT, LIFE, SIZE, STACK } strategy_kind;
static const char *const strategy_name[] = {"fit", "life", "size", "stack"};
typedef struct strategy {
  strategy_kind kind;
  long long below; /* LIFE, SIZE: steps or bytes below this go to the high end */
} strategy;

typedef struct rehearsal {
  const neap_plan *plan;
  const neap_graph *graph;
  strategy strategy;
  life *life; /* by root */
  neap_pool *pool;
  size_t *offset, *scratch_offset; /* out, from the end a block was taken at; may be NULL */
  int n_block;                     /* most blocks taken at once */
  neap_arena arena;
  int n_taken;
  life **taken; /* those that have a block, in any order */
  int n_now;    /* storages that the step under way touches, */
  life **now;   /* those that live longest first: they belong nearest to an end */
} rehearsal;

static neap_status refused(neap_error *error, size_t bytes) { return neap_fail_memory(error, bytes, "the forecast of a pool"); }

/* Lives of storages, from their members' places. */
static void find_lives(const neap_plan *plan, life *lives) {
  for (int v = 0; v < plan->n_value; v++) lives[v] = (life){.from = -1, .to = -1};
  for (int v = 0; v < plan->n_value; v++) {
    const neap_place *place = &plan->place[v];
    life *l = &lives[place->storage];
    if (place->region != NEAP_REGION_ARENA || place->first < 0) continue;
    l->from = l->from < 0 ? place->first : NEAP_MIN(l->from, place->first);
    l->to = NEAP_MAX(l->to, place->last);
    l->bytes = NEAP_MAX(l->bytes, place->bytes);
  }
}

/* The strategy that a plan was made with; an unknown one is best fit. */
static strategy strategy_of(const neap_plan *plan) {
  strategy st = {FIT, 0};
  char name[16] = "";
  if (plan->packer == NULL || sscanf(plan->packer, "%15[a-z]:%lld", name, &st.below) < 1) return st;
  for (int k = 0; k < NEAP_COUNT(strategy_name); k++)
    if (strcmp(name, strategy_name[k]) == 0) st.kind = (strategy_kind)k;
  return st;
}

/* STACK: the last step of the outermost block at one end; beyond all steps when there is none. */
static int end_of_outermost(const rehearsal *r, bool high) {
  const life *outer = NULL;
  for (int k = 0; k < r->n_taken; k++) {
    const life *l = r->taken[k];
    if (l->high != high) continue;
    if (outer == NULL || (neap_pool_offset(l->block) < neap_pool_offset(outer->block)) == high) outer = l;
  }
  return outer != NULL ? outer->to : r->plan->n_node;
}

/* Which end a block goes to that is given back after step `to`. */
static bool goes_high(const rehearsal *r, int from, int to, size_t bytes) {
  switch (r->strategy.kind) {
    case LIFE: return to - from < r->strategy.below;
    case SIZE: return (long long)bytes < r->strategy.below;
    case STACK: {
      int low = end_of_outermost(r, false), high = end_of_outermost(r, true);
      if ((low >= to) != (high >= to)) return high >= to;
      return low >= to ? high < low : high > low; /* the closest that outlives it, else the one that blocks least */
    }
    case FIT: break;
  }
  return false;
}

/* The storage that operand k of the node lies in, inputs first; NULL: no bytes of the pool. Borrowed from r->life. */
static life *storage_at(const rehearsal *r, const neap_node *node, int k) {
  int v = k < node->n_in ? node->in[k] : node->out[k - node->n_in];
  if (v == NEAP_NO_VALUE || r->plan->place[v].region != NEAP_REGION_ARENA) return NULL;
  life *l = &r->life[r->plan->place[v].storage];
  return l->bytes > 0 ? l : NULL;
}

/* The storages of one instruction, each once, those that live longest first, into `now`: by insertion, since operands are few. */
static void find_now(rehearsal *r, const neap_node *node) {
  r->n_now = 0;
  for (int k = 0; k < node->n_in + node->n_out; k++) {
    life *l = storage_at(r, node, k);
    int at = 0;
    while (at < r->n_now && r->now[at] != l) at++;
    if (l == NULL || at < r->n_now) continue;
    for (at = r->n_now++; at > 0 && r->now[at - 1]->to < l->to; at--) r->now[at] = r->now[at - 1];
    r->now[at] = l;
  }
}

/* Takes what the instruction of node n needs and has not got: storages in the order of `now`, then scratch, which goes back at
 * once, since the give of scratch comes first in take.c too. False: the pool refuses. */
static bool take_step(rehearsal *r, int n) {
  for (int k = 0; k < r->n_now; k++) {
    life *l = r->now[k];
    if (l->block != NULL) continue;
    l->high = goes_high(r, l->from, l->to, l->bytes);
    if ((l->block = neap_pool_take_at(r->pool, l->bytes, l->high)) == NULL) return false;
    l->at = r->n_taken;
    r->taken[r->n_taken++] = l;
    if (r->offset != NULL) r->offset[l - r->life] = neap_pool_offset(l->block);
  }
  if (r->plan->scratch_bytes[n] == 0) return true;
  neap_pool_block *scratch = neap_pool_take_at(r->pool, r->plan->scratch_bytes[n], r->strategy.kind != FIT);
  if (scratch == NULL) return false;
  if (r->scratch_offset != NULL) r->scratch_offset[n] = neap_pool_offset(scratch);
  r->n_block = NEAP_MAX(r->n_block, (int)neap_pool_read(r->pool).n_used);
  neap_pool_give(r->pool, scratch);
  return true;
}

/* Gives back the storages that die at this step. The last of `taken` fills the hole, as its order means nothing. */
static void give_step(rehearsal *r, int step) {
  r->n_block = NEAP_MAX(r->n_block, (int)neap_pool_read(r->pool).n_used);
  for (int k = 0; k < r->n_now; k++) {
    if (r->now[k]->to != step) continue;
    life *l = r->now[k], *last = r->taken[--r->n_taken];
    neap_pool_give(r->pool, l->block);
    l->block = NULL;
    r->taken[l->at] = last;
    last->at = l->at;
  }
}

/* One walk with the present strategy, from an empty pool; *reach gets the bytes, at both ends together. The pool is gone after
 * it, so no life keeps a block. */
static neap_status walk(rehearsal *r, size_t *reach, neap_error *error) {
  NEAP_TRY(neap_pool_new_dry(&r->pool, error));
  r->n_taken = 0;
  bool ok = true;
  for (int step = 0; ok && step < r->plan->n_node; step++) {
    find_now(r, &r->graph->node[r->plan->order[step]]);
    ok = take_step(r, r->plan->order[step]);
    if (ok) give_step(r, step);
  }
  *reach = neap_pool_read(r->pool).reach_bytes;
  for (int v = 0; v < r->plan->n_value; v++) r->life[v].block = NULL;
  neap_pool_free(r->pool);
  return ok ? NEAP_OK : refused(error, sizeof *r->life);
}

/* Makes the rehearsal ready for walks with the plan's strategy. Its arena is the caller's to finish, on failure too. */
static neap_status begin(rehearsal *r, const neap_plan *plan, const neap_graph *graph, neap_error *error) {
  size_t bytes = ((size_t)plan->n_value + 1) * sizeof(life);
  *r = (rehearsal){.plan = plan, .graph = graph, .strategy = strategy_of(plan)};
  r->life = neap_arena_alloc(&r->arena, bytes);
  r->now = neap_arena_alloc(&r->arena, bytes);
  r->taken = neap_arena_alloc(&r->arena, bytes);
  if (r->life == NULL || r->now == NULL || r->taken == NULL) return refused(error, bytes);
  find_lives(plan, r->life);
  return NEAP_OK;
}

/* Offsets count from the region's begin: those at the high end were found in a pool without end. */
static size_t from_begin(size_t offset, size_t reach) {
  return offset < NEAP_POOL_DRY_BYTES / 2 ? offset : reach - (NEAP_POOL_DRY_BYTES - offset);
}

/* Walks with `st` unless the best one meets the bound already; equal reach leaves the earlier strategy. */
static neap_status try_strategy(rehearsal *r, strategy st, strategy *best, size_t *least, neap_error *error) {
  size_t reach;
  if (*least <= r->plan->lower_bound_bytes) return NEAP_OK;
  r->strategy = st;
  NEAP_TRY(walk(r, &reach, error));
  if (reach < *least) *least = reach, *best = st;
  return NEAP_OK;
}

/* The strategy that reaches least, the simplest first; the bound ends the search. Thresholds double (steps) or grow fourfold
 * (bytes), which makes O(log) walks: what a finer one would save is not worth its walk. */
static neap_status choose_strategy(rehearsal *r, const neap_plan *plan, strategy *best, neap_error *error) {
  size_t least = SIZE_MAX;
  NEAP_TRY(try_strategy(r, (strategy){FIT, 0}, best, &least, error));
  NEAP_TRY(try_strategy(r, (strategy){STACK, 0}, best, &least, error));
  for (long long steps = 1; steps <= plan->n_node; steps *= 2)
    NEAP_TRY(try_strategy(r, (strategy){LIFE, steps}, best, &least, error));
  for (long long bytes = NEAP_ALIGN; bytes <= (long long)plan->lower_bound_bytes; bytes *= 4)
    NEAP_TRY(try_strategy(r, (strategy){SIZE, bytes}, best, &least, error));
  return NEAP_OK;
}

/* Fills offsets, arena_bytes and packer. */
static neap_status fill(rehearsal *r, neap_plan *plan, strategy best, neap_error *error) {
  size_t reach;
  r->strategy = best;
  r->scratch_offset = plan->scratch_offset;
  NEAP_TRY(walk(r, &reach, error));
  plan->arena_bytes = reach;
  for (int v = 0; v < plan->n_value; v++) {
    neap_place *place = &plan->place[v];
    const life *l = &r->life[place->storage];
    if (place->region == NEAP_REGION_CONSTANT) continue; /* outside the pool: those offsets stand */
    place->offset = place->region == NEAP_REGION_ARENA && l->bytes > 0 ? from_begin(r->offset[place->storage], reach) : 0;
  }
  for (int n = 0; n < plan->n_node; n++) plan->scratch_offset[n] = from_begin(plan->scratch_offset[n], reach);
  char name[32];
  snprintf(name, sizeof name, best.below > 0 ? "%s:%lld" : "%s", strategy_name[best.kind], best.below);
  plan->packer = neap_arena_strdup(&plan->arena, name);
  return plan->packer != NULL ? NEAP_OK : refused(error, sizeof name);
}

/* Needs the places' regions, storages and lives; fails when memory is refused, and then the plan is half filled. */
neap_status neap_plan_foretell(neap_plan *plan, const neap_graph *graph, neap_error *error) {
  rehearsal r;
  strategy best = {FIT, 0};
  neap_status status = begin(&r, plan, graph, error);
  size_t bytes = ((size_t)plan->n_value + 1) * sizeof *r.offset;
  if (status == NEAP_OK) status = choose_strategy(&r, plan, &best, error);
  if (status == NEAP_OK && (r.offset = neap_arena_alloc(&r.arena, bytes)) == NULL) status = refused(error, bytes);
  if (status == NEAP_OK) status = fill(&r, plan, best, error);
  neap_arena_fini(&r.arena);
  return status;
}

/* Walks once more, since a plan from a file may promise anything. */
neap_status neap_plan_rehearse(const neap_plan *plan, const neap_graph *graph, neap_take *take, int *n_block, neap_error *error) {
  rehearsal r;
  size_t reach = 0;
  neap_status status = begin(&r, plan, graph, error);
  if (status == NEAP_OK) status = walk(&r, &reach, error);
  if (status == NEAP_OK && reach > plan->arena_bytes)
    status = neap_fail(error, NEAP_PLAN, "the pool of net \"%s\" will reach %zu bytes, its plan foretells %zu", graph->name,
                       reach, plan->arena_bytes);
  for (int v = 0; status == NEAP_OK && v < plan->n_value; v++) take[v] = (neap_take){r.life[v].high, r.life[v].to};
  take[plan->n_value] = (neap_take){r.strategy.kind != FIT, -1};
  *n_block = r.n_block;
  neap_arena_fini(&r.arena);
  return status;
}
