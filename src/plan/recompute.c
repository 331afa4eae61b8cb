/* recompute.c: which forward nodes run again in the backward pass, so that the peak falls: of the
 * graph itself, and of bodies of loops and branches.
 *
 * A value that the backward reads is idle from its last forward reader to its first backward one.
 * Greedy: of the values idle at the peak, give up the one that costs least work a byte; what its
 * maker reads and nobody holds is recomputed too. That is a *move*; moves from one start until none
 * is left are a *descent*. Each move is judged by the exact peak of a trial schedule, never by an
 * estimate, and one that raises the peak is taken back.
 *
 * Giving up neighbours makes a run of nodes that is recomputed in one piece, all its values alive
 * at once; so long runs are charged for their bytes. On a chain of n equal layers that leads to
 * runs of about sqrt(n) between kept values, the memory of T. Chen et al., "Training deep nets with
 * sublinear memory cost" (2016), with at most one more forward pass in time.
 *
 * A node of a body is given up in the same way: with the makers of what it reads, or without, and
 * then that is kept. What it moves is the size of the loop's frames, or of a branch's own bytes
 * (ground.c). Since a loop that keeps less takes more while it steps back, descents begin at both
 * ends, with all of the bodies kept and with all recomputed; and since a plan that recomputes in
 * bodies alone is free in its order, each is done for that order too.
 *
 * What a descent has come to after each of its moves is a candidate; those that another beats in
 * work and in peak are left out.
 * INVARIANT: candidates depend on graph and options alone, not on any budget.
 */
#include "plan/recompute_int.h"

#include <stdlib.h>
#include <string.h>

/* How dear a run of recomputed nodes is for its length: the work of a move counts (1 + weight *
 * bytes of its run / peak without recomputations) times. No weight is best for all nets, so all are
 * tried. */
static const double run_weight[] = {1, 8, 64, 512};

/* Steps of the search: values asked about, nodes walked over, and what a trial takes, each node of
 * it as many as these; and of each ground, by node of all subnets too. */
#define DEFAULT_STEPS INT64_C(200000000)
enum { TRIAL_STEPS = 16, GROUND_STEPS = 1000 };

/* ---- trials ---------------------------------------------------------------------------------- */

static void trial_fini(trial *t) {
  neap_schedule_fini(&t->schedule);
  neap_uses_fini(&t->work.uses);
  neap_free(t->scratch);
  neap_graph_free_sketch(t->graph);
  neap_ground_release(t->ground);
  memset(t, 0, sizeof *t);
}

/* The set `recomputed` as a list, ascending, in c->list. */
static int list_of(const chooser *c) {
  int n = 0;
  for (int i = 0; i < c->graph->n_node; i++)
    if (c->recomputed[i]) c->list[n++] = i;
  return n;
}

/* Scratch of the trial's nodes. Nodes of the base keep their order among the recomputations, so
 * that they are counted as they are met. False: memory is refused. */
static bool spread_scratch(trial *t) {
  t->scratch = neap_alloc_zeroed(((size_t)t->graph->n_node + 1) * sizeof *t->scratch);
  if (t->scratch == NULL) return false;
  int base = 0;
  for (int n = 0; n < t->graph->n_node; n++) {
    const neap_node *node = &t->graph->node[n];
    /* No node with subnets is recomputed: a recomputation's scratch is what its kernel asks for. */
    if (node->recomputes > 0)
      t->scratch[n] = node->choice.scratch_bytes;
    else
      t->scratch[n] = t->ground->scratch_bytes[base++];
  }
  return true;
}

/* The ground with c->body recomputed: that of the present trial where it has the same. */
static neap_status find_ground(chooser *c, neap_ground **out, neap_error *error) {
  neap_ground *like = c->now.ground != NULL ? c->now.ground : c->grounds.first;
  if (memcmp(like->body, c->body, (size_t)c->grounds.n_body) == 0) {
    *out = neap_ground_retain(like);
    return NEAP_OK;
  }
  c->n_step += (int64_t)GROUND_STEPS * c->grounds.choices->n;
  return neap_ground_new(&c->grounds, like, c->body, out, error);
}

/* The schedule of the ground as a plan would have it that is free in its order. A sketch of nothing
 * recomputed has the same nodes, but no edges. */
static neap_status schedule_freely(trial *t, neap_error *error) {
  neap_work work = t->work;
  work.graph = t->ground->graph;
  return neap_schedule_best(&t->schedule, &work, error);
}

/* The schedule, in definition order, of the graph with c->body and c->recomputed recomputed. Owned;
 * ended here after a failure. */
static neap_status trial_init(chooser *c, trial *t, neap_error *error) {
  memset(t, 0, sizeof *t);
  int n = list_of(c);
  c->n_step += (int64_t)TRIAL_STEPS * (c->graph->n_node + n);
  NEAP_TRY(find_ground(c, &t->ground, error));

  /* In definition order a schedule asks for nodes and values alone, so a sketch of the graph will
   * do, which has no edges and is much cheaper than the graph itself. */
  neap_status status = neap_graph_sketch(t->ground->graph, n, c->list, &t->graph, error);
  if (status == NEAP_OK && !spread_scratch(t))
    status = neap_fail_memory(error, (size_t)n, "a trial of recomputation");
  if (status == NEAP_OK) {
    t->work = (neap_work){.graph = t->graph, .options = c->options, .scratch_bytes = t->scratch};
    status = neap_graph_uses(t->graph, &t->work.uses, error);
  }
  if (status == NEAP_OK && c->free_order) status = schedule_freely(t, error);
  if (status == NEAP_OK && !c->free_order)
    status = neap_schedule_init(&t->schedule, &t->work, NULL, error);
  if (status != NEAP_OK) trial_fini(t);
  return status;
}

static bool is_over(const chooser *c) { return c->n_step > c->most_steps; }

/* A trial of c->recomputed becomes the present one if its peak is at most `most_bytes`; *good says
 * whether. */
static neap_status try_set(chooser *c, size_t most_bytes, bool *good, neap_error *error) {
  trial next;
  NEAP_TRY(trial_init(c, &next, error));
  *good = next.schedule.peak_bytes <= most_bytes;
  if (*good) {
    trial_fini(&c->now);
    c->now = next;
  } else {
    trial_fini(&next);
  }
  return NEAP_OK;
}

/* Whether one of the node's outputs is live at the peak. */
static bool is_at_peak(const neap_schedule *s, const neap_node *node) {
  for (int k = 0; k < node->n_out; k++) {
    neap_value_id v = node->out[k];
    if (s->first[v] <= s->peak_step && s->peak_step <= s->last[v]) return true;
  }
  return false;
}

/* Where the peak lies within a run of recomputations, keeping one of its values may lower it: takes
 * out the first that does. */
static neap_status divide_run(chooser *c, bool *divided, neap_error *error) {
  const neap_graph *g = c->now.graph;
  int n = 0;
  *divided = false;

  /* The base nodes whose recomputations have made something that is live at the peak. They are
   * listed first, because the first set that does better takes the place of this trial. */
  for (int at = 0; at < g->n_node; at++) {
    const neap_node *node = &g->node[at];
    if (node->recomputes == 0 || !is_at_peak(&c->now.schedule, node)) continue;
    const neap_node *recomputed_node = &g->node[node->recomputes - 1];
    c->stack[n++] = c->graph->value[recomputed_node->out[0]].node;
  }

  /* Each of them kept again, by itself. One that does not lower the peak is put back. */
  for (int i = 0; i < n; i++) {
    if (is_over(c)) break;
    c->recomputed[c->stack[i]] = false;
    NEAP_TRY(try_set(c, c->now.schedule.peak_bytes - 1, divided, error));
    if (*divided) break;
    c->recomputed[c->stack[i]] = true;
  }
  return NEAP_OK;
}

/* Where no move of body nodes is left, one of them may have become better kept, or better
 * recomputed though it frees nothing by itself: changes the first that lowers the peak. */
static neap_status change_body(chooser *c, bool *changed, neap_error *error) {
  *changed = false;
  for (int i = 0; i < c->grounds.n_body; i++) {
    if (is_over(c)) break;
    c->body[i] = !c->body[i];
    NEAP_TRY(try_set(c, c->now.schedule.peak_bytes - 1, changed, error));
    if (*changed) break;
    c->body[i] = !c->body[i];
  }
  return NEAP_OK;
}

/* The present set as a candidate, if its peak is lower than all before it in this descent, which
 * began at `first`. */
static neap_status add_candidate(chooser *c, int first, neap_error *error) {
  size_t n = (size_t)c->graph->n_node, n_body = (size_t)c->grounds.n_body;
  candidate next = {.peak_bytes = c->now.schedule.peak_bytes, .free_order = c->free_order};

  /* Moves add work: without a lower peak the candidate before this one is better. */
  if (c->n_candidate > first && next.peak_bytes >= c->candidate[c->n_candidate - 1].peak_bytes)
    return NEAP_OK;
  next.recomputed = neap_arena_copy(&c->arena, c->recomputed, n * sizeof *c->recomputed);
  next.body = neap_arena_copy(&c->arena, c->body, n_body * sizeof *c->body);
  if (next.recomputed == NULL || next.body == NULL ||
      !neap_list_grow(&c->candidate, &c->cap_candidate, c->n_candidate + 1, sizeof next))
    return neap_fail_memory(error, n, "a choice of recomputation");

  /* Its work: of what runs again in bodies, and of the nodes of the graph itself. */
  next.work = c->now.ground->work;
  for (size_t m = 0; m < n; m++)
    if (c->recomputed[m]) next.work += c->cost[m];
  c->candidate[c->n_candidate++] = next;
  return NEAP_OK;
}

static void end_blocks(chooser *c) {
  memset(c->blocked, 0, (size_t)c->graph->n_node);
  memset(c->body_blocked, 0, 2 * (size_t)c->grounds.n_body);
}

/* From nothing recomputed, or all of the bodies, down as far as moves lead. */
static neap_status descend(chooser *c, double weight, bool from_all, neap_error *error) {
  /* A descent knows nothing of those before it: nothing is recomputed, and no move is blocked.
   * Moves are priced against the peak there. */
  int first = c->n_candidate;
  memset(c->recomputed, 0, (size_t)c->graph->n_node);
  memset(c->body, 0, (size_t)c->grounds.n_body);
  end_blocks(c);
  trial_fini(&c->now);
  NEAP_TRY(trial_init(c, &c->now, error));
  c->base_peak = NEAP_MAX(c->now.schedule.peak_bytes, 1);

  /* From the other end: all of the bodies recomputed, which is a candidate by itself. */
  if (from_all) {
    for (int i = 0; i < c->grounds.n_body; i++) c->body[i] = true;
    trial_fini(&c->now);
    NEAP_TRY(trial_init(c, &c->now, error));
    NEAP_TRY(add_candidate(c, first, error));
  }
  bool gained = false; /* since moves were last unblocked */
  while (!is_over(c)) {
    bool good;
    if (recompute_find_move(c, weight)) {
      /* The best move is made if the exact peak does not rise. Else it is taken back, and its first
       * node starts no other for now. */
      recompute_set_best(c, true);
      NEAP_TRY(try_set(c, c->now.schedule.peak_bytes, &good, error));
      if (good) {
        gained = true;
        NEAP_TRY(add_candidate(c, first, error));
      } else {
        recompute_set_best(c, false);
      }
      continue;
    }
    /* No move is left. Where neither a division nor any move since the last time has changed the
     * set, there will be none. */
    NEAP_TRY(divide_run(c, &good, error));
    if (!good) NEAP_TRY(change_body(c, &good, error));
    if (good) NEAP_TRY(add_candidate(c, first, error));
    if (!good && !gained) return NEAP_OK;
    /* What raised the peak before may not do so now. */
    end_blocks(c);
    gained = false;
  }
  return NEAP_OK;
}

/* The dearest recomputed node that has not been tried; -1: none. */
static int dearest(const chooser *c, const bool *tried) {
  int best = -1;
  for (int n = 0; n < c->graph->n_node; n++)
    if (c->recomputed[n] && !tried[n] && (best < 0 || c->cost[n] > c->cost[best])) best = n;
  return best;
}

/* Takes a node out of the set if the peak stays exactly what it is: a lower one would make it a
 * candidate that lower targets do not know. */
static neap_status take_out(chooser *c, bool *recomputed, size_t peak, neap_error *error) {
  trial next;
  *recomputed = false;
  NEAP_TRY(trial_init(c, &next, error));
  *recomputed = next.schedule.peak_bytes != peak;
  trial_fini(&next);
  return NEAP_OK;
}

/* Takes out what the candidate's own peak can do without: of bodies from the last on, of the
 * graph's nodes from the dearest on. */
static neap_status prune(chooser *c, const candidate *chosen, neap_error *error) {
  /* The marks of blocked moves are free to use: no descent is under way. */
  bool *tried = c->blocked;
  end_blocks(c);
  neap_copy_bytes(c->recomputed, chosen->recomputed,
                  (size_t)c->graph->n_node * sizeof *c->recomputed);
  neap_copy_bytes(c->body, chosen->body, (size_t)c->grounds.n_body * sizeof *c->body);
  c->free_order = chosen->free_order;

  /* Every node is tried once. With the dearest first, what can be saved is saved where it is worth
   * most. */
  for (int i = c->grounds.n_body - 1; i >= 0; i--)
    if (c->body[i] && !is_over(c)) NEAP_TRY(take_out(c, &c->body[i], chosen->peak_bytes, error));
  while (!is_over(c)) {
    int n = dearest(c, tried);
    if (n < 0) break;
    tried[n] = true;
    NEAP_TRY(take_out(c, &c->recomputed[n], chosen->peak_bytes, error));
  }
  return NEAP_OK;
}

/* ---- what no choice undercuts ---------------------------------------------------------------- */

/* Whether v is frames that shrink when bodies recompute. */
static bool may_shrink(const chooser *c, neap_value_id v) {
  for (int i = 0; i < c->grounds.n_body; i++)
    if (c->grounds.body[i].frames == v) return true;
  return false;
}

/* Bytes of distinct storages among n operands of the arena. Operands are few. */
static size_t distinct_bytes(const chooser *c, int n, const neap_value_id *id) {
  const neap_schedule *s = &c->now.schedule;
  size_t bytes = 0;
  for (int i = 0; i < n; i++) {
    if (id[i] < 0 || c->graph->value[id[i]].region != NEAP_REGION_ARENA) continue;
    if (may_shrink(c, id[i])) continue;
    /* A storage counts at the first operand that lies in it. */
    int j = 0;
    while (j < i && (id[j] < 0 || s->root[id[j]] != s->root[id[i]])) j++;
    if (j == i) bytes += neap_align(c->graph->value[id[i]].bytes);
  }
  return bytes;
}

/* The largest working set of a node: operands and scratch. Where a node may work in place, or makes
 * a view, outputs may lie in inputs. Of the base graph, whose schedule is the present one. */
static size_t least_peak(const chooser *c) {
  size_t most = 0;
  for (int n = 0; n < c->graph->n_node; n++) {
    const neap_node *node = &c->graph->node[n];
    size_t in = distinct_bytes(c, node->n_in, node->in);
    size_t out = distinct_bytes(c, node->n_out, node->out);
    /* Both at once, unless the one may lie in the other: then the larger is all that is sure. */
    bool may_share = node->op->n_inplace > 0 || node->op->inplace_any_input ||
                     node->op->n_alias > 0 || node->n_enforced > 0 || node->n_sub > 0;
    size_t operands = may_share ? NEAP_MAX(in, out) : in + out;
    /* What runs again in a body changes its bytes, so that of them only the node's own are sure. */
    size_t scratch = c->grounds.first->scratch_bytes[n];
    if (node->n_sub > 0 && c->grounds.n_body > 0) scratch = node->choice.scratch_bytes;
    most = NEAP_MAX(most, neap_align(scratch) + operands);
  }
  return most;
}

/* ---- the door -------------------------------------------------------------------------------- */

static bool take_arrays(chooser *c) {
  size_t n = (size_t)c->graph->n_node + 1;
  bool **flags[] = {&c->can, &c->recomputed, &c->blocked, &c->in_move, &c->visited};
  int **lists[] = {&c->stack, &c->move, &c->best, &c->list};
  for (int i = 0; i < NEAP_COUNT(flags); i++) {
    *flags[i] = neap_arena_alloc(&c->arena, n * sizeof(bool));
    if (*flags[i] == NULL) return false;
  }
  for (int i = 0; i < NEAP_COUNT(lists); i++) {
    *lists[i] = neap_arena_alloc(&c->arena, n * sizeof(int));
    if (*lists[i] == NULL) return false;
  }

  /* Of body nodes likewise; each has two kinds of move, with makers and without. */
  size_t n_body = (size_t)c->grounds.n_body + 1;
  c->body = neap_arena_alloc(&c->arena, n_body);
  c->body_blocked = neap_arena_alloc(&c->arena, 2 * n_body);
  int **by_body[] = {&c->body_list, &c->body_move, &c->best_body};
  for (int i = 0; i < NEAP_COUNT(by_body); i++) {
    *by_body[i] = neap_arena_alloc(&c->arena, n_body * sizeof(int));
    if (*by_body[i] == NULL) return false;
  }
  c->cost = neap_arena_alloc(&c->arena, n * sizeof *c->cost);
  return c->cost != NULL && c->body != NULL && c->body_blocked != NULL;
}

/* Less work first; of equal work the lower peak. */
static int compare_candidates(const void *a, const void *b) {
  const candidate *x = a, *y = b;
  if (x->work != y->work) return x->work < y->work ? -1 : 1;
  if (x->peak_bytes != y->peak_bytes) return x->peak_bytes < y->peak_bytes ? -1 : 1;
  return x->index - y->index;
}

/* Keeps those that no other one beats: of ever more work, each has a lower peak than all before
 * it. */
static void keep_best(chooser *c) {
  /* The index decides among equals, so that the list is the same with every qsort. */
  for (int i = 0; i < c->n_candidate; i++) c->candidate[i].index = i;
  if (c->n_candidate > 0)
    qsort(c->candidate, (size_t)c->n_candidate, sizeof *c->candidate, compare_candidates);

  /* Those before it take less work: one that has no lower peak than the last of them is beaten. */
  int n = 0;
  for (int i = 0; i < c->n_candidate; i++)
    if (n == 0 || c->candidate[i].peak_bytes < c->candidate[n - 1].peak_bytes)
      c->candidate[n++] = c->candidate[i];
  c->n_candidate = n;
}

/* The first ground, costs, and the schedule with nothing recomputed. */
static neap_status begin(chooser *c, neap_graph *graph, neap_error *error) {
  NEAP_TRY(neap_grounds_init(&c->grounds, graph, error));
  c->graph = c->grounds.first->graph;
  if (!take_arrays(c))
    return neap_fail_memory(error, (size_t)c->graph->n_node * sizeof *c->cost,
                            "a choice of recomputation");
  for (int n = 0; n < c->graph->n_node; n++) {
    c->can[n] = neap_graph_can_recompute(c->graph, n);
    c->cost[n] = neap_plan_work(c->graph, &c->graph->node[n]) + 1; /* so that nothing is free */
  }
  return trial_init(c, &c->now, error);
}

/* How a descent is done: from which end of the bodies, and for which order. Without bodies all but
 * the first come to the same. */
static const struct {
  bool from_all, free_order;
} ways[] = {{false, false}, {false, true}, {true, false}, {true, true}};

static neap_status find_candidates(chooser *c, neap_error *error) {
  NEAP_ASSERT(c->options.budget_bytes == 0,
              "candidates do not depend on a budget; this search has one of %zu bytes",
              c->options.budget_bytes);

  /* Each descent has its share of the steps, and what those before it have left. */
  const int64_t all = c->most_steps;
  const int n_way = c->grounds.n_body > 0 ? NEAP_COUNT(ways) : 1;
  const int n_descent = NEAP_COUNT(run_weight) * n_way;
  int n = 0;
  for (int w = 0; w < NEAP_COUNT(run_weight); w++)
    for (int k = 0; k < n_way; k++) {
      c->most_steps = all / n_descent * ++n;
      c->free_order = ways[k].free_order;
      NEAP_TRY(descend(c, run_weight[w], ways[k].from_all, error));
    }
  c->most_steps = all;
  keep_best(c);
  return NEAP_OK;
}

/* Ready for a search over `prepared`, or for a bound of `graph`; NULL after a failure. */
static neap_recomputes *chooser_new(const neap_graph *prepared, const neap_choices *choices,
                                    neap_graph *graph, const neap_plan_options *options,
                                    neap_error *error) {
  chooser *c = neap_alloc_zeroed(sizeof *c);
  if (c == NULL) {
    neap_fail_memory(error, sizeof *c, "a choice of recomputation");
    return NULL;
  }
  c->options = *options;
  c->options.budget_bytes = 0; /* what is found serves every budget */
  c->grounds = (neap_grounds){.prepared = prepared, .choices = choices, .options = c->options};
  c->most_steps = options->most_steps > 0 ? options->most_steps : DEFAULT_STEPS;
  if (begin(c, graph, error) == NEAP_OK) return c;
  neap_recomputes_free(c);
  return NULL;
}

neap_status neap_recomputes_new(const neap_graph *prepared, const neap_choices *choices,
                                const neap_plan_options *options, neap_recomputes **out,
                                neap_error *error) {
  *out = NULL;
  neap_error own = {0};
  chooser *c = chooser_new(prepared, choices, NULL, options, &own);
  if (c != NULL && find_candidates(c, &own) == NEAP_OK) {
    *out = c;
    return NEAP_OK;
  }
  neap_recomputes_free(c);
  if (error != NULL && error->code == NEAP_OK) *error = own;
  return own.code;
}

void neap_recomputes_free(neap_recomputes *c) {
  if (c == NULL) return;
  trial_fini(&c->now);
  neap_free(c->candidate);
  neap_arena_fini(&c->arena);
  neap_grounds_fini(&c->grounds);
  neap_free(c);
}

int neap_recomputes_n(const neap_recomputes *c) { return c->n_candidate; }

int64_t neap_recomputes_n_search(const neap_recomputes *c) { return c->n_done + c->n_step; }

size_t neap_recomputes_peak(const neap_recomputes *c, int i) {
  NEAP_ASSERT(i >= 0 && i < c->n_candidate, "one of %d sets is asked for: %d", c->n_candidate, i);
  return c->candidate[i].peak_bytes;
}

/* Has steps of its own, so that what comes out does not depend on which sets were asked for
 * before. */
neap_status neap_recomputes_take(neap_recomputes *c, int i, neap_recomputed *recomputed,
                                 bool *free_order, neap_error *error) {
  NEAP_ASSERT(i >= 0 && i < c->n_candidate, "one of %d sets is asked for: %d", c->n_candidate, i);
  c->n_done += c->n_step;
  c->n_step = 0;
  NEAP_TRY(prune(c, &c->candidate[i], error));
  int n = list_of(c), n_body = 0;
  for (int k = 0; k < c->grounds.n_body; k++)
    if (c->body[k]) c->body_list[n_body++] = k;
  *recomputed = (neap_recomputed){n, n_body, c->list, c->body_list};
  *free_order = c->candidate[i].free_order;
  return NEAP_OK;
}

neap_status neap_recomputes_least(neap_graph *graph, const neap_plan_options *options,
                                  size_t *least_bytes, neap_error *error) {
  neap_error own = {0};
  chooser *c = chooser_new(NULL, NULL, graph, options, &own);
  if (c != NULL) *least_bytes = least_peak(c);
  neap_recomputes_free(c);
  if (c == NULL && error != NULL && error->code == NEAP_OK) *error = own;
  return own.code;
}
