/* recompute.c: which forward nodes run again in the backward pass, so that the peak falls: of the
 * graph itself, and of bodies of loops and branches.
 *
 * A value that the backward reads is idle from its last forward reader to its first backward one.
 * Greedy: of the values idle at the peak, give up the one that costs least work a byte; what its
 * maker reads and nobody holds is recomputed too. Each step is judged by the exact peak of a trial
 * schedule, never by an estimate, and a step that raises the peak is taken back.
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
 * The states of the descents are the candidates; those that another beats in work and in peak are
 * left out.
 * INVARIANT: candidates depend on graph and options alone, not on any budget.
 */
#include "plan/plan_int.h"

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

/* What a trial set leads to. Values below the base graph's n_value have the same ids in it. */
typedef struct trial {
  neap_ground *ground; /* what it is a sketch of */
  neap_graph *graph;
  neap_work work;
  neap_schedule schedule;
  size_t *scratch; /* by node of its graph */
} trial;

/* A state of a descent. */
typedef struct candidate {
  size_t peak_bytes;
  double work;
  bool *recomputed; /* by base node; the chooser's arena */
  bool *body;       /* by body node; the same */
  bool free_order;  /* the peak is that of a plan whose order is free; else of definition order */
  int index;        /* as found */
} candidate;

typedef struct neap_recomputes {
  neap_grounds grounds;
  const neap_graph *graph; /* the base: nothing is recomputed */
  neap_plan_options options;
  bool *body;         /* by body node: recomputed */
  bool *body_blocked; /* by body node, moves with makers and without them */
  bool free_order;    /* of the descent at hand: bodies alone recompute, in the best order */
  bool *can, *recomputed, *blocked;
  bool *in_move;      /* by base node: of the move at hand */
  bool *visited;      /* by base node: scratch of a walk */
  int *stack;         /* of base nodes */
  int *move, *best;   /* nodes of a move, of the best one */
  int n_move, n_best; /* how many */
  /* the same of body nodes, which a move has either of */
  int *body_move, *best_body;
  int n_body_move, n_best_body, best_at; /* best_at: its place in body_blocked */
  int *list;                             /* room for a set as a list */
  int *body_list;                        /* the same of body nodes */
  double *cost;                          /* by base node */
  trial now;
  candidate *candidate;
  int n_candidate, cap_candidate;
  size_t base_peak; /* with nothing recomputed */
  int64_t n_step, most_steps;
  neap_arena arena;
} chooser;

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
  /* A sketch has the nodes, values and edges that a schedule asks for, and nothing else. */
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

/* ---- moves ----------------------------------------------------------------------------------- */

/* Whether the backward of the trial reads v; *idle: and whether v waits for it at the peak. */
static bool is_held(chooser *c, neap_value_id v, bool *idle) {
  const neap_uses *uses = &c->now.work.uses;
  const neap_schedule *s = &c->now.schedule;
  c->n_step += 1 + uses->first[v + 1] - uses->first[v];
  /* The last step of the forward that touches v, and the first one behind the forward; -1: none. */
  int forward = s->first[v], backward = -1;
  for (int k = uses->first[v]; k < uses->first[v + 1]; k++) {
    int reader = uses->list[k], step = s->step[reader];
    if (c->now.graph->node[reader].phase == NEAP_PHASE_FORWARD)
      forward = NEAP_MAX(forward, step);
    else if (backward < 0 || step < backward)
      backward = step;
  }
  /* Nobody touches v between the two: at a peak there its bytes only wait. */
  *idle = backward >= 0 && forward < s->peak_step && s->peak_step < backward;
  return backward >= 0;
}

/* Whether base node m can be recomputed, and is not yet. */
static bool is_free(const chooser *c, int m) { return c->can[m] && !c->recomputed[m]; }

/* Fills c->move with node m and, on from it, the makers of what it reads that nobody holds anyway.
 * *held_bytes: of values that must be held because their maker can't be recomputed. Returns the
 * work. */
static double make_move(chooser *c, int m, size_t *held_bytes) {
  double cost = 0;
  int n_stack = 0;
  c->n_move = 0;
  *held_bytes = 0;
  c->stack[n_stack++] = m;
  c->in_move[m] = true;
  while (n_stack > 0) {
    /* The next node of the move, and its work. */
    int at = c->stack[--n_stack];
    c->move[c->n_move++] = at;
    cost += c->cost[at];
    const neap_node *node = &c->graph->node[at];
    for (int i = 0; i < node->n_in; i++) {
      neap_value_id v = node->in[i];
      /* Bytes outside the arena are there in the backward pass too. */
      if (v < 0 || c->graph->value[v].region != NEAP_REGION_ARENA) continue;
      /* So is what is made again already, or in this move, or held for another reader. */
      int maker = c->graph->value[v].node;
      bool idle;
      if (maker < 0 || c->recomputed[maker] || c->in_move[maker] || is_held(c, v, &idle)) continue;
      /* All else is made again by a node that joins the move, or held from now on. */
      if (is_free(c, maker)) {
        c->in_move[maker] = true;
        c->stack[n_stack++] = maker;
      } else {
        *held_bytes += neap_align(c->graph->value[v].bytes);
      }
    }
  }
  return cost;
}

static void end_move(chooser *c) {
  for (int i = 0; i < c->n_move; i++) c->in_move[c->move[i]] = false;
}

/* Whether every member of v's storage that is held comes from the move: then the storage goes. v
 * itself does. */
static bool storage_goes(chooser *c, neap_value_id v) {
  const neap_schedule *s = &c->now.schedule;
  for (int w = s->next[v]; w != v; w = s->next[w]) {
    bool idle;
    /* Values of the trial alone are made by recomputations, which no move takes away. */
    int maker = w < c->graph->n_value ? c->graph->value[w].node : -1;
    if (is_held(c, w, &idle) && (maker < 0 || !c->in_move[maker])) return false;
  }
  return true;
}

/* Whether an older member of v's storage waits at the peak as well. */
static bool waits_with_older(chooser *c, neap_value_id v) {
  const neap_schedule *s = &c->now.schedule;
  for (int w = s->next[v]; w != v; w = s->next[w]) {
    bool idle;
    if (w < v && is_held(c, w, &idle) && idle) return true;
  }
  return false;
}

/* Bytes that wait at the peak and go with the move. A storage that goes has all its waiting members
 * in the move, and is counted once: at the oldest of them. */
static size_t freed_bytes(chooser *c) {
  const neap_schedule *s = &c->now.schedule;
  size_t bytes = 0;
  for (int i = 0; i < c->n_move; i++) {
    const neap_node *node = &c->graph->node[c->move[i]];
    for (int k = 0; k < node->n_out; k++) {
      neap_value_id v = node->out[k];
      bool idle;
      if (!is_held(c, v, &idle) || !idle) continue;
      if (!storage_goes(c, v) || waits_with_older(c, v)) continue;
      bytes += s->life[s->root[v]].bytes;
    }
  }
  return bytes;
}

/* A walk over recomputed nodes: those still to be looked at are in c->stack, all that were met in
 * c->list. */
typedef struct walk {
  int n_stack, n_met;
} walk;

static void meet(chooser *c, walk *w, int node) {
  if (c->visited[node]) return;
  c->visited[node] = true;
  c->stack[w->n_stack++] = node;
  c->list[w->n_met++] = node;
}

/* The base node that a node of the trial is; -1 for a recomputation. */
static int base_of(const chooser *c, const neap_node *node) {
  if (node->n_out == 0 || node->out[0] >= c->graph->n_value) return -1;
  return c->graph->value[node->out[0]].node;
}

/* Repeated neighbours of a node: who makes what it reads, and who reads what it makes. */
static void meet_neighbours(chooser *c, walk *w, const neap_node *node) {
  for (int i = 0; i < node->n_in; i++) {
    if (node->in[i] < 0) continue;
    int maker = c->graph->value[node->in[i]].node;
    if (maker >= 0 && c->recomputed[maker]) meet(c, w, maker);
  }
  /* Readers are those of the trial, where values of the base have the same ids. */
  const neap_uses *uses = &c->now.work.uses;
  for (int k = 0; k < node->n_out; k++) {
    neap_value_id v = node->out[k];
    for (int n = uses->first[v]; n < uses->first[v + 1]; n++) {
      int reader = base_of(c, &c->now.graph->node[uses->list[n]]);
      if (reader >= 0 && c->recomputed[reader]) meet(c, w, reader);
    }
  }
}

/* Bytes that the run of recomputed nodes around the move makes: all alive at once when it is
 * recomputed. */
static size_t run_bytes(chooser *c) {
  size_t bytes = 0;
  walk w = {0};
  for (int i = 0; i < c->n_move; i++) meet(c, &w, c->move[i]);
  /* From the nodes of the move on to all that are recomputed beside them. */
  while (w.n_stack > 0) {
    const neap_node *node = &c->graph->node[c->stack[--w.n_stack]];
    c->n_step += 1 + node->n_in + node->n_out;
    for (int k = 0; k < node->n_out; k++) bytes += neap_align(c->graph->value[node->out[k]].bytes);
    meet_neighbours(c, &w, node);
  }
  /* The next walk finds no node visited. */
  for (int i = 0; i < w.n_met; i++) c->visited[c->list[i]] = false;
  return bytes;
}

/* Whether something that node m makes waits at the peak. */
static bool has_waiting_output(chooser *c, int m) {
  const neap_node *node = &c->graph->node[m];
  for (int k = 0; k < node->n_out; k++) {
    bool idle;
    if (is_held(c, node->out[k], &idle) && idle) return true;
  }
  return false;
}

/* Whether the bytes that body nodes of i's kind keep are live at the peak: its frames, or the bytes
 * of the node it would run in. */
static bool is_hot(const chooser *c, int i) {
  const neap_body_node *body = &c->grounds.body[i];
  const neap_schedule *s = &c->now.schedule;
  if (body->frames < 0)
    return base_of(c, &c->now.graph->node[s->order[s->peak_step]]) == body->scratch;
  const neap_interval *life = &s->life[s->root[body->frames]];
  return life->first <= s->peak_step && s->peak_step <= life->last;
}

/* Whether body node i reads of what body node k makes. */
static bool reads_body(const chooser *c, int i, int k) {
  const neap_body_node *reader = &c->grounds.body[i], *maker = &c->grounds.body[k];
  if (reader->graph != maker->graph) return false;
  const neap_node *node = &reader->graph->node[reader->node];
  for (int n = 0; n < node->n_in; n++)
    if (node->in[n] >= 0 && reader->graph->value[node->in[n]].node == maker->node) return true;
  return false;
}

/* Whether what body node k makes is kept by the present set. */
static bool is_kept(chooser *c, int k) {
  if (c->body[k] || c->grounds.body[k].is_kept) return !c->body[k];
  c->n_step += c->grounds.n_body;
  for (int i = 0; i < c->grounds.n_body; i++)
    if (c->body[i] && reads_body(c, i, k)) return true;
  return false;
}

/* What body node k keeps in all iterations, if it does. */
static double body_bytes(const chooser *c, int k) {
  return (double)c->grounds.body[k].bytes * c->grounds.body[k].times;
}

/* Fills c->body_move with body node i and, if `deep`, the makers of what it reads that is not kept
 * yet, on from there; else that is kept from now on. Returns the bytes that the frames lose. */
static double make_body_move(chooser *c, int i, bool deep) {
  double freed = 0;
  c->n_body_move = 0;
  c->body_move[c->n_body_move++] = i;
  for (int at = 0; at < c->n_body_move; at++) {
    int reader = c->body_move[at];
    if (is_kept(c, reader)) freed += body_bytes(c, reader);
    c->n_step += c->grounds.n_body;
    for (int k = 0; k < c->grounds.n_body; k++) {
      bool in_move = false;
      for (int m = 0; m < c->n_body_move; m++)
        if (c->body_move[m] == k) in_move = true;
      if (in_move || c->body[k] || !reads_body(c, reader, k) || is_kept(c, k)) continue;
      if (deep)
        c->body_move[c->n_body_move++] = k;
      else
        freed -= body_bytes(c, k);
    }
  }
  return freed;
}

/* The cheapest move of body nodes that frees something at the peak into c->best_body, if it is
 * cheaper than `least`, the price of the best move so far. */
static void find_body(chooser *c, double weight, double least) {
  c->n_best_body = 0;
  for (int at = 0; at < 2 * c->grounds.n_body; at++) {
    int i = at / 2;
    if (c->body[i] || c->body_blocked[at] || !is_hot(c, i)) continue;
    double freed = make_body_move(c, i, at % 2 == 0), cost = 0, run = 0;
    if (freed <= 0) continue;
    for (int k = 0; k < c->grounds.n_body; k++) {
      const neap_body_node *body = &c->grounds.body[k];
      if (c->body[k] && body->graph == c->grounds.body[i].graph) run += (double)body->bytes;
    }
    for (int m = 0; m < c->n_body_move; m++) {
      const neap_body_node *body = &c->grounds.body[c->body_move[m]];
      run += (double)body->bytes;
      cost += body->times * neap_plan_work(body->graph, &body->graph->node[body->node]);
    }
    double price = cost * (1 + weight * run / (double)c->base_peak) / freed;
    if ((c->n_best > 0 || c->n_best_body > 0) && price >= least) continue;
    least = price;
    c->n_best = 0;
    c->best_at = at;
    c->n_best_body = c->n_body_move;
    neap_copy_bytes(c->best_body, c->body_move, (size_t)c->n_body_move * sizeof *c->best_body);
  }
}

/* The cheapest move at the peak into c->best or c->best_body; false: there is none. */
static bool find_move(chooser *c, double weight) {
  double least = 0;
  c->n_best = 0;
  for (int m = 0; m < c->graph->n_node; m++) {
    if (c->free_order || !is_free(c, m) || c->blocked[m] || !has_waiting_output(c, m)) continue;
    size_t held_bytes;
    double cost = make_move(c, m, &held_bytes);
    size_t freed = freed_bytes(c);
    /* The price of a move is its work for each byte that it gains, dearer in a long run. A move
     * that has to hold as much as it frees gains nothing. */
    if (freed > held_bytes) {
      double run = (double)run_bytes(c) / (double)c->base_peak;
      double price = cost * (1 + weight * run) / (double)(freed - held_bytes);
      if (c->n_best == 0 || price < least) {
        least = price;
        c->n_best = c->n_move;
        neap_copy_bytes(c->best, c->move, (size_t)c->n_move * sizeof *c->best);
      }
    }
    end_move(c);
  }
  find_body(c, weight, least);
  return c->n_best > 0 || c->n_best_body > 0;
}

/* Makes the best move, or takes it back: then its first node starts no other for now. */
static void set_best(chooser *c, bool recomputed) {
  for (int i = 0; i < c->n_best; i++) c->recomputed[c->best[i]] = recomputed;
  for (int i = 0; i < c->n_best_body; i++) c->body[c->best_body[i]] = recomputed;
  if (recomputed) return;
  if (c->n_best_body > 0)
    c->body_blocked[c->best_at] = true;
  else
    c->blocked[c->best[0]] = true;
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
  int first = c->n_candidate;
  memset(c->recomputed, 0, (size_t)c->graph->n_node);
  memset(c->body, 0, (size_t)c->grounds.n_body);
  end_blocks(c);
  trial_fini(&c->now);
  NEAP_TRY(trial_init(c, &c->now, error));
  c->base_peak = NEAP_MAX(c->now.schedule.peak_bytes, 1);
  if (from_all) {
    for (int i = 0; i < c->grounds.n_body; i++) c->body[i] = true;
    trial_fini(&c->now);
    NEAP_TRY(trial_init(c, &c->now, error));
    NEAP_TRY(add_candidate(c, first, error));
  }
  bool gained = false; /* since moves were last unblocked */
  while (!is_over(c)) {
    bool good;
    if (find_move(c, weight)) {
      /* The best move is made if the exact peak does not rise. Else it is taken back, and its first
       * node starts no other for now. */
      set_best(c, true);
      NEAP_TRY(try_set(c, c->now.schedule.peak_bytes, &good, error));
      if (good) {
        gained = true;
        NEAP_TRY(add_candidate(c, first, error));
      } else {
        set_best(c, false);
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
  bool *tried = c->blocked;
  end_blocks(c);
  neap_copy_bytes(c->recomputed, chosen->recomputed,
                  (size_t)c->graph->n_node * sizeof *c->recomputed);
  neap_copy_bytes(c->body, chosen->body, (size_t)c->grounds.n_body * sizeof *c->body);
  c->free_order = chosen->free_order;
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

static neap_status find_candidates(chooser *c, neap_error *error) {
  NEAP_ASSERT(c->options.budget_bytes == 0,
              "candidates do not depend on a budget; this search has one of %zu bytes",
              c->options.budget_bytes);
  /* Each descent has its share of the steps, and what those before it have left. */
  const int64_t all = c->most_steps;
  const bool has_bodies = c->grounds.n_body > 0;
  const int n_descent = NEAP_COUNT(run_weight) * (has_bodies ? 4 : 1);
  int n = 0;
  for (int w = 0; w < NEAP_COUNT(run_weight); w++)
    for (int end = 0; end < (has_bodies ? 4 : 1); end++) {
      c->most_steps = all / n_descent * ++n;
      c->free_order = end % 2 == 1;
      NEAP_TRY(descend(c, run_weight[w], end / 2 == 1, error));
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

size_t neap_recomputes_peak(const neap_recomputes *c, int i) {
  NEAP_ASSERT(i >= 0 && i < c->n_candidate, "one of %d sets is asked for: %d", c->n_candidate, i);
  return c->candidate[i].peak_bytes;
}

/* Has steps of its own, so that what comes out does not depend on which sets were asked for
 * before. */
neap_status neap_recomputes_take(neap_recomputes *c, int i, neap_recomputed *recomputed,
                                 bool *free_order, neap_error *error) {
  NEAP_ASSERT(i >= 0 && i < c->n_candidate, "one of %d sets is asked for: %d", c->n_candidate, i);
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
