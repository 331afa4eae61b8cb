/* verify_script.c: an independent check of a script, which evicts values and makes them again: turn
 * after turn it is played with names in the place of bytes. Shares no code with evict.c.
 *
 * Every op must run once in the order of the plan; a recomputation only after that, and only where
 * it can write nothing but what it wrote the first time. Each operand must have a block, in which
 * the very value stands that the op reads; no two blocks share a byte, and none reaches beyond the
 * plan's bytes.
 */
#include "plan/plan_int.h"

#include <string.h>

typedef struct player {
  const neap_plan *plan;
  const neap_graph *graph;
  neap_error *error;
  size_t *bytes; /* by slot */
  size_t *at;
  bool *taken;
  int *holds; /* by storage that is taken: the value whose elements stand there; -1: none */
  int *shows; /* by value: itself, or what it is a view of */
  int *step;  /* by node */
  int *list;  /* of slots taken */
  int n_list;
  int n_done; /* steps that have run for the first time */
  neap_arena arena;
} player;

static const char *op_name(const player *p, int n) {
  return p->graph->node[n].name != NULL ? p->graph->node[n].name : "?";
}

static bool init(player *p) {
  /* Slots are storages by their root value, and one more for scratch. */
  size_t n = (size_t)p->plan->n_value + 2, m = (size_t)p->plan->n_node + 1;
  int **lists[] = {&p->holds, &p->shows, &p->list};
  for (int k = 0; k < NEAP_COUNT(lists); k++) {
    *lists[k] = neap_arena_alloc(&p->arena, n * sizeof(int));
    if (*lists[k] == NULL) return false;
  }
  p->bytes = neap_arena_alloc(&p->arena, n * sizeof *p->bytes);
  p->at = neap_arena_alloc(&p->arena, n * sizeof *p->at);
  p->taken = neap_arena_alloc(&p->arena, n * sizeof *p->taken);
  p->step = neap_arena_alloc(&p->arena, m * sizeof *p->step);
  if (p->bytes == NULL || p->at == NULL || p->taken == NULL || p->step == NULL) return false;
  for (int i = 0; i < p->plan->n_node; i++) p->step[p->plan->order[i]] = i;

  /* A block is as large as the largest value of its storage. */
  for (int v = 0; v < p->plan->n_value; v++) {
    const neap_place *place = &p->plan->place[v];
    p->shows[v] = v;
    if (place->region == NEAP_REGION_ARENA)
      p->bytes[place->storage] = NEAP_MAX(p->bytes[place->storage], place->bytes);
  }

  /* Sources of views are made before the views. */
  for (int i = 0; i < p->plan->n_node; i++) {
    const neap_node *node = &p->graph->node[p->plan->order[i]];
    for (int k = 0; k < node->n_out; k++) {
      int v = node->out[k];
      if (v >= 0 && p->plan->place[v].reason == NEAP_REASON_ALIAS)
        p->shows[v] = p->shows[p->plan->place[v].partner];
    }
  }
  return true;
}

/* Whether v needs a block. */
static bool is_pooled(const player *p, int v) {
  return v >= 0 && p->plan->place[v].region == NEAP_REGION_ARENA &&
         p->bytes[p->plan->place[v].storage] > 0;
}

static neap_status take(player *p, const neap_take *t, int n) {
  int n_value = p->plan->n_value;
  if (t->slot < 0 || t->slot > n_value || p->taken[t->slot])
    return neap_fail(p->error, NEAP_PLAN, "op \"%s\" takes a block that is taken", op_name(p, n));

  /* The slot of scratch is as large as the op that takes it asks for. */
  bool is_scratch = t->slot == n_value;
  if (is_scratch) p->bytes[t->slot] = neap_align(p->plan->scratch_bytes[n]);
  size_t bytes = neap_align(p->bytes[t->slot]);

  /* It lies in the pool, apart from all that is taken. */
  if (t->offset % NEAP_ALIGN != 0 || t->offset > p->plan->arena_bytes ||
      bytes > p->plan->arena_bytes - t->offset)
    return neap_fail(p->error, NEAP_PLAN, "op \"%s\" takes %zu bytes at %zu, in a pool of %zu",
                     op_name(p, n), bytes, t->offset, p->plan->arena_bytes);
  for (int k = 0; k < p->n_list; k++) {
    int other = p->list[k];
    if (t->offset < p->at[other] + neap_align(p->bytes[other]) && p->at[other] < t->offset + bytes)
      return neap_fail(p->error, NEAP_PLAN,
                       "op \"%s\" takes %zu bytes at %zu, where other bytes are taken",
                       op_name(p, n), bytes, t->offset);
  }
  p->taken[t->slot] = true;
  p->at[t->slot] = t->offset;
  p->list[p->n_list++] = t->slot;
  if (!is_scratch) p->holds[t->slot] = -1; /* what stood there before is nothing to rely on */
  return NEAP_OK;
}

static neap_status give(player *p, int slot, int n) {
  if (slot < 0 || slot > p->plan->n_value || !p->taken[slot])
    return neap_fail(p->error, NEAP_PLAN, "op \"%s\" gives a block back that is not taken",
                     op_name(p, n));
  p->taken[slot] = false;
  int k = 0;
  while (p->list[k] != slot) k++;
  p->list[k] = p->list[--p->n_list];
  return NEAP_OK;
}

/* Whether the node only frees, or shows bytes where they are: it reads none. */
static bool is_idle(const player *p, const neap_node *node) {
  if ((node->effects & NEAP_EFFECT_RELEASE) != 0) return true;
  if (node->op->n_alias == 0) return false;
  for (int k = 0; k < node->n_out; k++) {
    int v = node->out[k];
    if (v >= 0 && p->plan->place[v].reason != NEAP_REASON_ALIAS) return false;
  }
  return true;
}

/* A resident that has been written since the node ran is no longer what it read then. */
static bool is_rewritten(const player *p, int v, int n) {
  for (int w = 0; w < p->plan->n_value; w++) {
    int maker = p->graph->value[w].node;
    if (w == v || maker < 0 || p->plan->place[w].storage != p->plan->place[v].storage) continue;
    if (p->step[maker] >= p->step[n] && p->step[maker] < p->n_done) return true;
  }
  return false;
}

/* Whether node n can run once more now and write nothing but what it wrote the first time. */
static bool is_recomputable(const player *p, int n) {
  const neap_node *node = &p->graph->node[n];
  const unsigned harmless =
    NEAP_EFFECT_RANDOM | NEAP_EFFECT_FAULT | NEAP_EFFECT_EXTENT | NEAP_EFFECT_CALLER;
  if (p->step[n] >= p->n_done || (node->effects & ~harmless) != 0 || node->n_sub > 0) return false;

  /* Bytes that outlive the run are written once. */
  for (int k = 0; k < node->n_out; k++) {
    int v = node->out[k];
    if (v >= 0 && p->plan->place[v].region != NEAP_REGION_ARENA) return false;
  }

  /* What it reads of such bytes is what it was; what it reads of the pool is looked at in run. */
  for (int i = 0; i < node->n_in; i++) {
    int v = node->in[i];
    if (v < 0 || p->plan->place[v].region == NEAP_REGION_ARENA) continue;
    if (is_rewritten(p, v, n)) return false;
  }
  return true;
}

/* Operands stand where they are looked for; then the outputs do. */
static neap_status run(player *p, int n) {
  const neap_node *node = &p->graph->node[n];
  if (is_idle(p, node)) return NEAP_OK;

  /* A block is not enough: the elements in it must be those of this very value. */
  for (int i = 0; i < node->n_in; i++) {
    int v = node->in[i];
    if (!is_pooled(p, v)) continue;
    int storage = p->plan->place[v].storage;
    if (!p->taken[storage] || p->holds[storage] != p->shows[v])
      return neap_fail(p->error, NEAP_PLAN, "op \"%s\" reads \"%s\", which is not there",
                       op_name(p, n), neap_plan_name(p->graph, v));
  }
  if (p->plan->scratch_bytes[n] > 0 && !p->taken[p->plan->n_value])
    return neap_fail(p->error, NEAP_PLAN, "op \"%s\" has no scratch", op_name(p, n));

  /* It writes over what stood in its outputs' blocks, which later readers then miss. */
  for (int k = 0; k < node->n_out; k++) {
    int v = node->out[k];
    if (!is_pooled(p, v)) continue;
    int storage = p->plan->place[v].storage;
    if (!p->taken[storage])
      return neap_fail(p->error, NEAP_PLAN, "op \"%s\" writes \"%s\", which has no block",
                       op_name(p, n), neap_plan_name(p->graph, v));
    p->holds[storage] = p->shows[v];
  }
  return NEAP_OK;
}

static neap_status play(player *p) {
  const neap_script *s = &p->plan->script;
  int n_taken = 0, n_given = 0;
  for (int t = 0; t < s->n_turn; t++) {
    /* The next step of the order, or one that has run before. */
    const neap_turn *turn = &s->turn[t];
    bool first = turn->step == p->n_done;
    if (turn->step < 0 || turn->step >= p->plan->n_node || (!turn->recomputed && !first))
      return neap_fail(p->error, NEAP_PLAN, "turn %d runs out of order", t + 1);
    int n = p->plan->order[turn->step];
    if (turn->recomputed && !is_recomputable(p, n))
      return neap_fail(p->error, NEAP_PLAN, "op \"%s\" can't be recomputed there", op_name(p, n));
    /* Takes come before it, gives after it. */
    for (; n_taken < turn->take_end; n_taken++) NEAP_TRY(take(p, &s->take[n_taken], n));
    NEAP_TRY(run(p, n));
    if (!turn->recomputed) p->n_done++;
    for (; n_given < turn->give_end; n_given++) NEAP_TRY(give(p, s->give[n_given], n));
    /* Each op has scratch of its own: later ones could not give it back. */
    if (p->taken[p->plan->n_value])
      return neap_fail(p->error, NEAP_PLAN, "op \"%s\" keeps its scratch", op_name(p, n));
  }
  if (p->n_done == p->plan->n_node) return NEAP_OK;
  return neap_fail(p->error, NEAP_PLAN, "%d of %d ops run", p->n_done, p->plan->n_node);
}

neap_status neap_plan_verify_script(const neap_plan *plan, const neap_graph *graph,
                                    neap_error *error) {
  player p = {.plan = plan, .graph = graph, .error = error};
  neap_status status =
    init(&p) ? play(&p) : neap_fail_memory(error, (size_t)plan->n_value, "checking a script");
  neap_arena_fini(&p.arena);
  return status;
}
