/* rehearse.c: the forecast of policy `pool`. The runner takes a storage's bytes from a pool when
 * the first instruction that touches it runs, gives them back after the last, and takes an
 * instruction's scratch for as long as that runs. Here the same takes and gives, in the same order,
 * go to a pool without bytes: how far the pool reaches then is what a run needs.
 *
 * Best fit alone leaves holes, because what lives long comes to lie among what lives shortly (lenet
 * in training reaches 1.76 times its live bytes). So a pool has two ends, and a strategy says which
 * one a storage is taken from: by how long it lives (then activations form a stack at the low end),
 * by how large it is, or by which end's outermost block outlives it most closely. A few strategies
 * are rehearsed, and the one that reaches least is the plan's: "life:8", "size:4096", "stack", or
 * "fit" for one end alone. Where all of them leave too much between the blocks, the packers of the
 * planner say where each goes, since the rehearsal has seen all lives: "packed".
 *
 * INVARIANT: the runner takes and gives as the script says, so that it meets the forecast.
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

/* What strategies may reach beyond the most that is live at once, as a part of it, before the
 * packers are asked; and how long those may take: a new shape waits for them. */
enum { SLACK_PART = 64, MOST_PACK_STEPS = 100000000 };
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
  neap_arena arena;
  int n_taken;
  life **taken; /* those that have a block, in any order */
  int n_now;    /* storages that the step under way touches, */
  life **now;   /* those that live longest first: they belong nearest to an end */
} rehearsal;

static neap_status refused(neap_error *error, size_t bytes) {
  return neap_fail_memory(error, bytes, "the forecast of a pool");
}

/* Lives of storages, from their members' places. */
static void find_lives(const neap_plan *plan, life *lives) {
  for (int v = 0; v < plan->n_value; v++) lives[v] = (life){.from = -1, .to = -1};
  for (int v = 0; v < plan->n_value; v++) {
    const neap_place *place = &plan->place[v];
    if (place->region != NEAP_REGION_ARENA || place->first < 0) continue;
    life *l = &lives[place->storage];
    if (l->from < 0 || place->first < l->from) l->from = place->first;
    l->to = NEAP_MAX(l->to, place->last);
    l->bytes = NEAP_MAX(l->bytes, place->bytes);
  }
}

/* STACK: the last step of the outermost block at one end; beyond all steps when there is none. */
static int end_of_outermost(const rehearsal *r, bool high) {
  /* The outermost block of an end is the one next to the free bytes between the two ends. */
  const life *outer = NULL;
  for (int k = 0; k < r->n_taken; k++) {
    const life *l = r->taken[k];
    if (l->high != high) continue;
    /* The outermost of the high end is the lowest there, of the low end the highest. */
    if (outer == NULL || (neap_pool_offset(l->block) < neap_pool_offset(outer->block)) == high)
      outer = l;
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
      /* What outlives the block may lie under it: it will not leave a hole there. */
      if ((low >= to) != (high >= to)) return high >= to;
      /* Where both do, the one that outlives it most closely; where neither, the one that is given
       * back later. */
      if (low >= to) return high < low;
      return high > low;
    }
    case FIT: break;
  }
  return false;
}

/* The storage that operand k of the node lies in, inputs first; NULL: no bytes of the pool.
 * Borrowed from r->life. */
static life *storage_at(const rehearsal *r, const neap_node *node, int k) {
  int v = k < node->n_in ? node->in[k] : node->out[k - node->n_in];
  if (v == NEAP_NO_VALUE || r->plan->place[v].region != NEAP_REGION_ARENA) return NULL;
  life *l = &r->life[r->plan->place[v].storage];
  return l->bytes > 0 ? l : NULL;
}

/* The storages of one instruction, each once, those that live longest first, into `now`: by
 * insertion, since operands are few. */
static void find_now(rehearsal *r, const neap_node *node) {
  r->n_now = 0;
  for (int k = 0; k < node->n_in + node->n_out; k++) {
    life *l = storage_at(r, node, k);
    if (l == NULL) continue;
    int at = 0;
    while (at < r->n_now && r->now[at] != l) at++;
    if (at < r->n_now) continue; /* another operand lies there too */
    /* Those that live shorter make room for it. */
    r->n_now++;
    while (at > 0 && r->now[at - 1]->to < l->to) {
      r->now[at] = r->now[at - 1];
      at--;
    }
    r->now[at] = l;
  }
}

/* Takes what the instruction of node n needs and has not got: storages in the order of `now`, then
 * scratch, which goes back at once, since the script gives it first too. False: the pool
 * refuses. */
static bool take_step(rehearsal *r, int n) {
  /* Storages that live longest are taken first, and so come to lie nearest to their end. */
  for (int k = 0; k < r->n_now; k++) {
    life *l = r->now[k];
    if (l->block != NULL) continue;
    l->high = goes_high(r, l->from, l->to, l->bytes);
    l->block = neap_pool_take_at(r->pool, l->bytes, l->high);
    if (l->block == NULL) return false;
    l->at = r->n_taken;
    r->taken[r->n_taken++] = l;
    if (r->offset != NULL) r->offset[l - r->life] = neap_pool_offset(l->block);
  }

  /* Scratch lives shortest, so with two ends it goes to the high one. */
  if (r->plan->scratch_bytes[n] == 0) return true;
  neap_pool_block *scratch =
    neap_pool_take_at(r->pool, r->plan->scratch_bytes[n], r->strategy.kind != FIT);
  if (scratch == NULL) return false;
  if (r->scratch_offset != NULL) r->scratch_offset[n] = neap_pool_offset(scratch);
  neap_pool_give(r->pool, scratch);
  return true;
}

/* Gives back the storages that die at this step. The last of `taken` fills the hole, as its order
 * means nothing. */
static void give_step(rehearsal *r, int step) {
  for (int k = 0; k < r->n_now; k++) {
    life *l = r->now[k];
    if (l->to != step) continue;
    neap_pool_give(r->pool, l->block);
    l->block = NULL;
    life *last = r->taken[--r->n_taken];
    r->taken[l->at] = last;
    last->at = l->at;
  }
}

/* One walk with the present strategy, from an empty pool; *reach gets the bytes, at both ends
 * together. The pool is gone after it, so no life keeps a block. */
static neap_status walk(rehearsal *r, size_t *reach, neap_error *error) {
  /* The pool has no bytes, only the book of what is taken: a walk costs no memory but that. */
  NEAP_TRY(neap_pool_new_dry(&r->pool, error));
  r->n_taken = 0;
  bool ok = true;
  for (int step = 0; step < r->plan->n_node; step++) {
    int n = r->plan->order[step];
    find_now(r, &r->graph->node[n]);
    ok = take_step(r, n);
    if (!ok) break;
    give_step(r, step);
  }

  /* The bytes of both ends: the free ones between them are left out when offsets are counted. */
  *reach = neap_pool_read(r->pool).reach_bytes;
  for (int v = 0; v < r->plan->n_value; v++) r->life[v].block = NULL;
  neap_pool_free(r->pool);
  return ok ? NEAP_OK : refused(error, sizeof *r->life);
}

/* Makes the rehearsal ready for walks. Its arena is the caller's to finish, on failure too. */
static neap_status begin(rehearsal *r, const neap_plan *plan, const neap_graph *graph,
                         neap_error *error) {
  size_t bytes = ((size_t)plan->n_value + 1) * sizeof(life);
  *r = (rehearsal){.plan = plan, .graph = graph};
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

/* Walks with `st` unless the best one meets the bound already; equal reach leaves the earlier
 * strategy. */
static neap_status try_strategy(rehearsal *r, strategy st, strategy *best, size_t *least,
                                neap_error *error) {
  if (*least <= r->plan->lower_bound_bytes) return NEAP_OK;
  size_t reach;
  r->strategy = st;
  NEAP_TRY(walk(r, &reach, error));
  if (reach < *least) {
    *least = reach;
    *best = st;
  }
  return NEAP_OK;
}

/* The strategy that reaches least, the simplest first; the bound ends the search. Thresholds double
 * (steps) or grow fourfold (bytes), which makes O(log) walks: what a finer one would save is not
 * worth its walk. */
static neap_status choose_strategy(rehearsal *r, const neap_plan *plan, strategy *best,
                                   neap_error *error) {
  /* Those without a threshold first: among equals the simplest stays. */
  size_t least = SIZE_MAX;
  NEAP_TRY(try_strategy(r, (strategy){FIT, 0}, best, &least, error));
  NEAP_TRY(try_strategy(r, (strategy){STACK, 0}, best, &least, error));
  for (long long steps = 1; steps <= plan->n_node; steps *= 2)
    NEAP_TRY(try_strategy(r, (strategy){LIFE, steps}, best, &least, error));
  for (long long bytes = NEAP_ALIGN; bytes <= (long long)plan->lower_bound_bytes; bytes *= 4)
    NEAP_TRY(try_strategy(r, (strategy){SIZE, bytes}, best, &least, error));
  return NEAP_OK;
}

/* Fills offsets, arena_bytes and packer from one more walk with the best strategy. */
static neap_status fill(rehearsal *r, neap_plan *plan, strategy best, neap_error *error) {
  size_t reach;
  r->strategy = best;
  r->scratch_offset = plan->scratch_offset;
  NEAP_TRY(walk(r, &reach, error));
  plan->arena_bytes = reach;

  /* The reach is known now, and with it where the high end is. */
  for (int v = 0; v < plan->n_value; v++) r->offset[v] = from_begin(r->offset[v], reach);
  for (int n = 0; n < plan->n_node; n++)
    plan->scratch_offset[n] = from_begin(plan->scratch_offset[n], reach);
  char name[32];
  snprintf(name, sizeof name, best.below > 0 ? "%s:%lld" : "%s", strategy_name[best.kind],
           best.below);
  plan->packer = neap_arena_strdup(&plan->arena, name);
  return plan->packer != NULL ? NEAP_OK : refused(error, sizeof name);
}

/* The same from the planner's packers, if they do better than the strategies; storages first, then
 * scratch. */
static neap_status pack(rehearsal *r, neap_plan *plan, neap_error *error) {
  size_t room = (size_t)plan->n_value + (size_t)plan->n_node + 1;
  neap_block *block = neap_arena_alloc(&r->arena, room * sizeof *block);
  if (block == NULL) return refused(error, room * sizeof *block);

  /* Those that take nothing from the pool are left as blocks of no bytes. */
  for (int v = 0; v < plan->n_value; v++) {
    const life *l = &r->life[v];
    if (l->from < 0) continue;
    block[v] = (neap_block){neap_align(l->bytes), NEAP_ALIGN, l->from, l->to, 0};
  }
  for (int step = 0; step < plan->n_node; step++) {
    int n = plan->order[step];
    block[plan->n_value + n] =
      (neap_block){neap_align(plan->scratch_bytes[n]), NEAP_ALIGN, step, step, 0};
  }

  /* Slack is good enough: what a tighter packing would save is not worth the wait for it. */
  neap_pack_options options = {
    .stop_at_bytes = plan->lower_bound_bytes + plan->lower_bound_bytes / SLACK_PART,
    .most_steps = MOST_PACK_STEPS};
  neap_pack_result result;
  NEAP_TRY(neap_pack((int)room - 1, block, &options, &result, error));
  plan->n_search += result.n_step;
  if (result.total_bytes >= plan->arena_bytes) return NEAP_OK;

  /* Better than every strategy: the plan takes these offsets instead. */
  for (int v = 0; v < plan->n_value; v++) r->offset[v] = block[v].offset;
  for (int n = 0; n < plan->n_node; n++) plan->scratch_offset[n] = block[plan->n_value + n].offset;
  plan->arena_bytes = result.total_bytes;
  plan->packer = "packed";
  return NEAP_OK;
}

/* Places from offsets by root; what lies outside the pool (constants) keeps its own. */
static void place_storages(const rehearsal *r, neap_plan *plan) {
  for (int v = 0; v < plan->n_value; v++) {
    neap_place *place = &plan->place[v];
    if (place->region == NEAP_REGION_CONSTANT) continue;
    bool taken = place->region == NEAP_REGION_ARENA && r->life[place->storage].bytes > 0;
    place->offset = taken ? r->offset[place->storage] : 0;
  }
}

/* Needs the places' regions, storages and lives; fails when memory is refused, and then the plan is
 * half filled. */
neap_status neap_plan_foretell(neap_plan *plan, const neap_graph *graph, neap_error *error) {
  rehearsal r;
  strategy best = {FIT, 0};
  neap_status status = begin(&r, plan, graph, error);
  size_t bytes = ((size_t)plan->n_value + 1) * sizeof *r.offset;
  if (status == NEAP_OK) status = choose_strategy(&r, plan, &best, error);
  if (status != NEAP_OK) goto done;

  /* Offsets are of interest from here on: the walks before have compared how far they reach. */
  r.offset = neap_arena_alloc(&r.arena, bytes);
  status = r.offset != NULL ? fill(&r, plan, best, error) : refused(error, bytes);
  if (status != NEAP_OK) goto done;

  /* The packers take longer than a few walks, so they are asked only where much is left to be
   * gained. */
  bool loose = plan->arena_bytes > plan->lower_bound_bytes + plan->lower_bound_bytes / SLACK_PART;
  if (loose) status = pack(&r, plan, error);
  if (status == NEAP_OK) place_storages(&r, plan);
done:
  neap_arena_fini(&r.arena);
  return status;
}

/* ---- the script ------------------------------------------------------------------------------ */

/* Room for a script of one turn a step: each storage is taken and given once, and so is each
 * scratch. */
static neap_status script_init(neap_script *s, const neap_plan *plan, neap_arena *arena,
                               neap_error *error) {
  size_t n_turn = (size_t)plan->n_node + 1, n_event = n_turn + (size_t)plan->n_value;
  *s = (neap_script){.turn = neap_arena_alloc(arena, n_turn * sizeof *s->turn),
                     .take = neap_arena_alloc(arena, n_event * sizeof *s->take),
                     .give = neap_arena_alloc(arena, n_event * sizeof *s->give)};
  return s->turn != NULL && s->take != NULL && s->give != NULL
           ? NEAP_OK
           : refused(error, n_event * sizeof *s->take);
}

/* Turn after turn from the places; *n_used counts the blocks taken. */
static void write_script(rehearsal *r, neap_script *s) {
  int n_take = 0, n_give = 0;
  for (int step = 0; step < r->plan->n_node; step++) {
    int n = r->plan->order[step];
    bool has_scratch = r->plan->scratch_bytes[n] > 0;
    find_now(r, &r->graph->node[n]);
    /* Takes: what is touched for the first time, then scratch. */
    for (int k = 0; k < r->n_now; k++) {
      if (r->now[k]->from != step) continue;
      int root = (int)(r->now[k] - r->life);
      s->take[n_take++] = (neap_take){root, r->plan->place[root].offset};
    }
    if (has_scratch) s->take[n_take++] = (neap_take){r->plan->n_value, r->plan->scratch_offset[n]};
    s->n_block = NEAP_MAX(s->n_block, n_take - n_give);
    /* Gives: scratch, then what is touched for the last time. */
    if (has_scratch) s->give[n_give++] = r->plan->n_value;
    for (int k = 0; k < r->n_now; k++)
      if (r->now[k]->to == step) s->give[n_give++] = (int)(r->now[k] - r->life);
    s->turn[s->n_turn++] = (neap_turn){step, false, n_take, n_give};
  }
}

/* Takes a slot of the script for the instruction of node n, exactly where the script says. */
static neap_status play_take(const rehearsal *r, const neap_take *take, int n, int step,
                             neap_pool *pool, neap_pool_block **block, neap_error *error) {
  /* Slots past the values are scratch, whose bytes are those of the instruction that takes it. */
  int slot = take->slot;
  size_t bytes = slot < r->plan->n_value ? r->life[slot].bytes : r->plan->scratch_bytes[n];

  /* A slot that is taken already has a block that would be lost. */
  bool twice = block[slot] != NULL;
  if (!twice) block[slot] = neap_pool_take_exact(pool, take->offset, bytes);
  if (!twice && block[slot] != NULL) return NEAP_OK;
  return neap_fail(
    error, NEAP_PLAN,
    "the pool of net \"%s\" can't take %zu bytes at %zu in step %d, as its plan foretells",
    r->graph->name, bytes, take->offset, step + 1);
}

/* Plays the script in a dry pool, since a plan from a file may promise anything: takes must find
 * their place free, and end within the plan's bytes. */
static neap_status play(const rehearsal *r, const neap_script *s, neap_error *error) {
  neap_pool *pool = NULL;
  size_t room = ((size_t)r->plan->n_value + 1) * sizeof(neap_pool_block *);
  neap_pool_block **block = neap_alloc_zeroed(room); /* by slot */
  if (block == NULL) return refused(error, room);
  neap_status status = neap_pool_new_dry(&pool, error);
  if (status != NEAP_OK) goto no_pool;

  /* Reserved like the run's own, so that a take that fails has not found its place free. */
  if (!neap_pool_reserve(pool, r->plan->arena_bytes, s->n_block)) {
    status = refused(error, r->plan->arena_bytes);
    goto done;
  }

  /* As the runner does: the takes of a turn, then its gives. */
  int n_taken = 0, n_given = 0;
  for (int t = 0; t < s->n_turn; t++) {
    const neap_turn *turn = &s->turn[t];
    for (; n_taken < turn->take_end; n_taken++) {
      status =
        play_take(r, &s->take[n_taken], r->plan->order[turn->step], turn->step, pool, block, error);
      if (status != NEAP_OK) goto done;
    }
    for (; n_given < turn->give_end; n_given++) {
      neap_pool_give(pool, block[s->give[n_given]]);
      block[s->give[n_given]] = NULL;
    }
  }
done:
  neap_pool_free(pool);
no_pool:
  neap_free(block);
  return status;
}

neap_status neap_plan_rehearse(const neap_plan *plan, const neap_graph *graph, neap_arena *arena,
                               neap_script *out, neap_error *error) {
  /* A plan that evicts brings its script; every other one is rehearsed from its places. Either way
   * the script is played once, because a plan may come from a file. */
  rehearsal r;
  neap_status status = begin(&r, plan, graph, error);
  if (plan->script.n_turn > 0) {
    *out = plan->script; /* of a plan that evicts */
  } else {
    if (status == NEAP_OK) status = script_init(out, plan, arena, error);
    if (status == NEAP_OK) write_script(&r, out);
  }
  if (status == NEAP_OK) status = play(&r, out, error);
  neap_arena_fini(&r.arena);
  return status;
}
