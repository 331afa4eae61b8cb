/* overlap.c: which turns of a pool's script must wait for which, so that the others may run side by
 * side within the same bytes.
 *
 * Turn b waits for an earlier turn a when
 *   an edge of the graph leads from a's op to b's;
 *   both touch the same bytes of one storage, and one of them writes: in the same *stay*, from one
 *     take to its give, as an evicted storage comes back with other bytes; resident storage has
 *     one stay, the whole run;
 *   a touches a stay that lay, in whole or in part, where b takes; or the stay before of a storage
 *     that b takes again.
 * All of these lead from smaller turns to larger ones, so some turn can always run, and none finds
 * its place in the pool taken: the pool reaches as far as the script, whatever runs at once.
 *
 * Data structure: a *resource* is a stay (the number of its take) or, behind those, a value that is
 * the root of a resident storage. Who lies where: segments of the pool in order of address, each
 * with the stay that took it last.
 */
#include "program/program_int.h"

#include <string.h>

/* One turn at one resource. */
typedef struct touch {
  int turn, resource;
  int before; /* the resource's touch before this one; -1: none */
  bool writes;
} touch;

typedef struct segment {
  size_t begin, end;
  int stay;
} segment;

typedef struct overlap {
  neap_program *program;
  int n_take;
  int *stay_of;     /* by slot: the stay at hand; -1: none. The last slot is scratch */
  int *stay_before; /* likewise: the stay at hand, or the last one */
  int *last;        /* by resource: its latest touch; -1: none */
  touch *touch;
  int n_touch, cap_touch;
  segment *segment; /* disjoint, sorted */
  int n_segment, cap_segment;
  neap_dag_edge *edge;
  int n_edge, cap_edge;
} overlap;

static bool add_edge(overlap *o, int from, int to) {
  if (from == to) return true;
  if (!neap_list_grow(&o->edge, &o->cap_edge, o->n_edge + 1, sizeof *o->edge)) return false;
  o->edge[o->n_edge++] = (neap_dag_edge){from, to};
  return true;
}

/* Turn `to` after all that touch the resource so far. */
static bool after_all(overlap *o, int resource, int to) {
  /* Touches of one resource are a list, from the latest back. */
  for (int k = o->last[resource]; k >= 0; k = o->touch[k].before)
    if (!add_edge(o, o->touch[k].turn, to)) return false;
  return true;
}

/* After those touches that this one may not overtake: the last write and, for a write, the reads
 * behind it. */
static bool add_touch(overlap *o, int turn, int resource, bool writes) {
  int k = o->last[resource];
  if (k >= 0 && o->touch[k].turn == turn) {
    /* Two operands of the turn in one storage are one touch, which writes if one of them does. */
    if (!writes || o->touch[k].writes) return true;
    o->touch[k].writes = true;
    k = o->touch[k].before;
  } else {
    if (!neap_list_grow(&o->touch, &o->cap_touch, o->n_touch + 1, sizeof *o->touch)) return false;
    o->touch[o->n_touch] = (touch){turn, resource, k, writes};
    o->last[resource] = o->n_touch++;
  }

  /* Back to the last write; what came before it waits for it already. */
  for (; k >= 0; k = o->touch[k].before) {
    bool is_write = o->touch[k].writes;
    if ((is_write || writes) && !add_edge(o, o->touch[k].turn, turn)) return false;
    if (is_write) break;
  }
  return true;
}

/* ---- places ---------------------------------------------------------------------------------- */

/* Puts a segment in at position `at`. */
static bool insert_segment(overlap *o, int at, segment s) {
  if (!neap_list_grow(&o->segment, &o->cap_segment, o->n_segment + 1, sizeof *o->segment))
    return false;
  memmove(&o->segment[at + 1], &o->segment[at], (size_t)(o->n_segment - at) * sizeof *o->segment);
  o->segment[at] = s;
  o->n_segment++;
  return true;
}

static void remove_segment(overlap *o, int at) {
  memmove(&o->segment[at], &o->segment[at + 1], (size_t)(--o->n_segment - at) * sizeof *o->segment);
}

/* Stay k takes [begin, end): its turn comes after all that touched those who lay there last;
 * whoever lay there before them is behind them already. */
static bool settle(overlap *o, int turn, int stay, size_t begin, size_t end) {
  int at = 0;

  /* Segments that end before the new one begins stay as they are. */
  while (at < o->n_segment && o->segment[at].end <= begin) at++;

  /* Each segment that reaches into [begin, end) is cut down to what is left of it outside. */
  while (at < o->n_segment && o->segment[at].begin < end) {
    segment *s = &o->segment[at], old = *s;
    if (!after_all(o, old.stay, turn)) return false;
    if (old.begin < begin && old.end > end) { /* a piece on both sides */
      s->end = begin;
      return insert_segment(o, at + 1, (segment){end, old.end, old.stay}) &&
             insert_segment(o, at + 1, (segment){begin, end, stay});
    }
    if (old.begin < begin) {
      s->end = begin;
      at++;
    } else if (old.end > end) {
      s->begin = end;
    } else {
      remove_segment(o, at);
    }
  }

  NEAP_ASSERT((at == 0 || o->segment[at - 1].end <= begin) &&
                (at == o->n_segment || o->segment[at].begin >= end),
              "segments are sorted and disjoint: %zu to %zu between its neighbours", begin, end);
  return insert_segment(o, at, (segment){begin, end, stay});
}

/* ---- turns ----------------------------------------------------------------------------------- */

/* What the turn takes: a new stay for each, which waits for the stay that its storage had before,
 * and for those that lay in the same bytes. */
static bool take_turn(overlap *o, int turn) {
  const neap_program *program = o->program;
  const neap_script *s = &program->script;
  const neap_instruction *i = &program->instruction[s->turn[turn].step];
  for (int k = turn > 0 ? s->turn[turn - 1].take_end : 0; k < s->turn[turn].take_end; k++) {
    const neap_take *t = &s->take[k];
    bool is_scratch = t->slot == program->graph->n_value;
    /* The slot of scratch is everybody's: the stay before was another instruction's. */
    if (!is_scratch && o->stay_before[t->slot] >= 0 && !after_all(o, o->stay_before[t->slot], turn))
      return false;

    /* From here on who touches the slot touches this stay. */
    o->stay_of[t->slot] = o->stay_before[t->slot] = k;
    size_t bytes = neap_align(neap_take_bytes(program, t->slot, i));
    if (!settle(o, turn, k, t->offset, t->offset + bytes)) return false;
    /* Scratch is no operand, so nobody else says that it is written. */
    if (is_scratch && !add_touch(o, turn, k, true)) return false;
  }
  return true;
}

/* Of a value's storage; -1: it has no bytes. */
static int resource_of(const overlap *o, neap_value_id v) {
  if (v < 0) return -1;
  const neap_place *place = &o->program->plan->place[v];
  return place->region == NEAP_REGION_ARENA ? o->stay_of[place->storage]
                                            : o->n_take + place->storage;
}

/* Reads first: what is written in place is then one touch that writes. */
static bool touch_operands(overlap *o, int turn) {
  const neap_program *program = o->program;
  int step = program->script.turn[turn].step;
  const neap_node *node = &program->graph->node[program->instruction[step].node];
  for (int k = 0; k < node->n_in + node->n_out; k++) {
    bool writes = k >= node->n_in;
    int resource = resource_of(o, writes ? node->out[k - node->n_in] : node->in[k]);
    if (resource >= 0 && !add_touch(o, turn, resource, writes)) return false;
  }
  return true;
}

/* What has been given back has no bytes: a Free may still name it. */
static void give_turn(overlap *o, int turn) {
  const neap_script *s = &o->program->script;
  for (int k = turn > 0 ? s->turn[turn - 1].give_end : 0; k < s->turn[turn].give_end; k++)
    o->stay_of[s->give[k]] = -1;
}

/* The graph's edges, between first runs. Turns that recompute wait for bytes alone: what is
 * recomputed draws, checks and computes what it did. */
static bool add_graph_edges(overlap *o, int *first_turn) {
  const neap_graph *graph = o->program->graph;
  const neap_script *s = &o->program->script;
  for (int t = 0; t < s->n_turn; t++)
    if (!s->turn[t].recomputed) first_turn[o->program->instruction[s->turn[t].step].node] = t;
  for (int e = 0; e < graph->n_edge; e++)
    if (!add_edge(o, first_turn[graph->edge[e].from], first_turn[graph->edge[e].to])) return false;
  return true;
}

/* Turn by turn, as the script says: what is taken, touched, given back. False: memory is
 * refused. */
static bool find_edges(overlap *o) {
  for (int turn = 0; turn < o->program->script.n_turn; turn++) {
    if (!take_turn(o, turn) || !touch_operands(o, turn)) return false;
    give_turn(o, turn);
  }
  return true;
}

/* Which stays each turn touches, by counting sort. False: memory is refused. */
static bool fill_stays(const overlap *o) {
  neap_program *program = o->program;
  neap_stays *stays = &program->stays;
  size_t n_turn = (size_t)program->script.n_turn;
  int *at = neap_alloc((n_turn + 1) * sizeof *at);
  stays->n_touch =
    neap_arena_alloc(&program->arena, ((size_t)o->n_take + 1) * sizeof *stays->n_touch);
  stays->left = neap_arena_alloc(&program->arena, ((size_t)o->n_take + 1) * sizeof *stays->left);
  stays->first = neap_arena_alloc(&program->arena, (n_turn + 1) * sizeof *stays->first);
  int *list = neap_arena_alloc(&program->arena, ((size_t)o->n_touch + 1) * sizeof *list);
  bool got = at != NULL && stays->n_touch != NULL && stays->left != NULL && stays->first != NULL &&
             list != NULL;
  if (!got) goto done;

  /* How many stays each turn touches, counted one place to the right: the sums are then where each
   * turn's part of the list begins. Resident storage has no stay. */
  for (int k = 0; k < o->n_touch; k++) {
    if (o->touch[k].resource >= o->n_take) continue;
    stays->n_touch[o->touch[k].resource]++;
    stays->first[o->touch[k].turn + 1]++;
  }
  for (size_t t = 0; t < n_turn; t++) stays->first[t + 1] += stays->first[t];
  neap_copy_bytes(at, stays->first, (n_turn + 1) * sizeof *at);
  for (int k = 0; k < o->n_touch; k++)
    if (o->touch[k].resource < o->n_take) list[at[o->touch[k].turn]++] = o->touch[k].resource;
  stays->list = list;
done:
  neap_free(at);
  return got;
}

/* Whether there is anything to gain: two instructions that may run beside others. */
static bool is_worth_it(const neap_program *program) {
  int n = 0;
  for (int step = 0; step < program->n_instruction; step++) {
    const neap_instruction *i = &program->instruction[step];
    if (i->kind == NEAP_INSTRUCTION_NOTHING || i->call.n_thread == 1) continue;
    if (!neap_runs_alone(program, i)) n++;
  }
  return n > 1 && neap_threads() > 1;
}

/* Edges from all three causes, then the dag over turns. Programs with nothing to gain stay as they
 * are. */
neap_status neap_program_overlap(neap_program *program, neap_error *error) {
  if (!neap_takes(program) || !is_worth_it(program)) return NEAP_OK;

  /* Tables by slot, by resource and by node; lists of touches, segments and edges grow as they are
   * found. */
  const neap_script *s = &program->script;
  size_t n_value = (size_t)program->graph->n_value;
  overlap o = {.program = program, .n_take = s->turn[s->n_turn - 1].take_end};
  size_t n_resource = (size_t)o.n_take + n_value;
  o.stay_of = neap_alloc((n_value + 1) * sizeof *o.stay_of);
  o.stay_before = neap_alloc((n_value + 1) * sizeof *o.stay_before);
  o.last = neap_alloc((n_resource + 1) * sizeof *o.last);
  int *first_turn = neap_alloc_zeroed((size_t)(program->graph->n_node + 1) * sizeof *first_turn);
  neap_status status = NEAP_OK;
  bool got = o.stay_of != NULL && o.stay_before != NULL && o.last != NULL && first_turn != NULL;
  if (got) {
    /* Nobody lies anywhere yet. Then the graph's edges, those of bytes, and which bytes may be
     * given back when. */
    for (size_t v = 0; v <= n_value; v++) o.stay_of[v] = o.stay_before[v] = -1;
    for (size_t r = 0; r <= n_resource; r++) o.last[r] = -1;
    got = add_graph_edges(&o, first_turn) && find_edges(&o) && fill_stays(&o);
  }

  /* What was found becomes a dag over turns; the tables were needed for nothing else. */
  if (got)
    status = neap_dag_new(program, s->n_turn, o.n_edge, o.edge, error);
  else
    status = neap_fail_memory(error, n_resource * sizeof *o.last, "a schedule of turns");
  neap_free(first_turn);
  neap_free(o.stay_of);
  neap_free(o.stay_before);
  neap_free(o.last);
  neap_free(o.touch);
  neap_free(o.segment);
  neap_free(o.edge);
  return status;
}
