/* recompute_moves.c: the next nodes that recomputation gives up (recompute.c says what it is).
 *
 * A move is a node of the graph whose value is idle at the peak, with the makers of what it reads
 * that nobody holds; or a node of a body, with such makers or without. The best one costs least
 * work for a byte that it frees, where the bytes of the run of recomputed nodes that it makes count
 * against it.
 *
 * INVARIANT: a search changes no set: what a move would recompute is in c->best or c->best_body
 * until it is made.
 */
#include "plan/recompute_int.h"

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
  /* A walk upward from m over values that would be gone when the backward pass comes. */
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
  if (c->body[k]) return false;
  if (c->grounds.body[k].is_kept) return true;

  /* What nothing keeps by itself is kept for a node that runs again and reads it. */
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
  /* The list grows while it is walked: each node that joins is asked in turn what it reads. */
  double freed = 0;
  c->n_body_move = 0;
  c->body_move[c->n_body_move++] = i;
  for (int at = 0; at < c->n_body_move; at++) {
    int reader = c->body_move[at];
    if (is_kept(c, reader)) freed += body_bytes(c, reader);
    c->n_step += c->grounds.n_body;
    for (int k = 0; k < c->grounds.n_body; k++) {
      /* A node of the move is made again already, and so is one of the present set; what is kept is
       * there. All else that the reader reads would be missing. */
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
  /* Each body node is asked twice: at even places with the makers of what it reads, at odd ones
   * alone. */
  c->n_best_body = 0;
  for (int at = 0; at < 2 * c->grounds.n_body; at++) {
    int i = at / 2;
    if (c->body[i] || c->body_blocked[at] || !is_hot(c, i)) continue;

    /* Only what is live at the peak is worth a move, and only a move that frees more than it
     * keeps. */
    double freed = make_body_move(c, i, at % 2 == 0), cost = 0, run = 0;
    if (freed <= 0) continue;

    /* The run is all that is made again in the same body, alive at once when the backward reads it.
     * Work counts for each iteration. */
    for (int k = 0; k < c->grounds.n_body; k++) {
      const neap_body_node *body = &c->grounds.body[k];
      if (c->body[k] && body->graph == c->grounds.body[i].graph) run += (double)body->bytes;
    }
    for (int m = 0; m < c->n_body_move; m++) {
      const neap_body_node *body = &c->grounds.body[c->body_move[m]];
      run += (double)body->bytes;
      cost += body->times * neap_plan_work(body->graph, &body->graph->node[body->node]);
    }

    /* Priced like a move of the graph's nodes, so that the two can be compared; the cheapest of all
     * stays. */
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
bool recompute_find_move(chooser *c, double weight) {
  double least = 0;
  c->n_best = 0;
  for (int m = 0; m < c->graph->n_node; m++) {
    /* Under a free order only bodies recompute. A node whose outputs do not wait at the peak frees
     * nothing there. */
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
void recompute_set_best(chooser *c, bool recomputed) {
  for (int i = 0; i < c->n_best; i++) c->recomputed[c->best[i]] = recomputed;
  for (int i = 0; i < c->n_best_body; i++) c->body[c->best_body[i]] = recomputed;
  if (recomputed) return;
  if (c->n_best_body > 0)
    c->body_blocked[c->best_at] = true;
  else
    c->blocked[c->best[0]] = true;
}
