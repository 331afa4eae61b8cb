/* exact.c: branch and bound for blocks that live on a line. Asks "is there a packing of at most C
 * bytes?", first for the lower bound, then by bisection between what is excluded and what is found.
 *
 * The time line is cut into *sections*, the maximal sets of blocks that live at once; a block lives
 * in a run of sections. Blocks are placed in order of offset, each on top of what is already there,
 * so that a state is a skyline: `floor` by section, and for each block not yet placed `low`, the
 * highest floor below it. The ideas are those of MiniMalloc (Maas et al., ASPLOS 2023, and its
 * repository's notes), which searches such pushed-down packings only:
 *   - a block that could rest no higher than the last one placed is *stuck* until a neighbour has
 *     raised its floor;
 *   - a block that would start above a place where another, unplaced one fits whole is not placed
 *     now (dominance);
 *   - in every section the lowest possible start plus all that is still to be placed there must fit
 *     (section inference);
 *   - where no unplaced block crosses from one section to the next, the two sides are solved on
 *     their own.
 * Failed searches are restarted with another preference among blocks and twice the nodes.
 *
 * Sizes are counted in their common divisor.
 *
 * INVARIANT: `trail` undoes floor and low to any earlier state; `rest` and `n_cross` follow from
 * the stack of placed blocks.
 */
#include "pack/pack_int.h"

#include <stdlib.h>
#include <string.h>

/* A block as the search sees it. Boxes are named by their place in the order of preference, blocks
 * by the caller's index. */
typedef struct box {
  int64_t size;
  int from, to; /* sections, inclusive */
  int block;
  double rank; /* preference: larger first */
} box;

/* A word of `floor` or `low` and what it held before. */
typedef struct undo {
  int64_t *where, old;
} undo;

/* Heights and sizes are in units. Arrays are in the arena; only the trail, which grows, is freed on
 * its own. `lists` holds n (n + 1) ints at most: the tree is n deep, and a part of k boxes takes k
 * for its list, k for its candidates. */
typedef struct search {
  neap_pack_work *w;
  int n, n_section;
  int64_t unit, capacity;
  box *box;                /* in order of preference */
  int64_t *low;            /* by box */
  int64_t *offset;         /* by box */
  int *near_at, *near;     /* boxes that meet box b: near[near_at[b] .. near_at[b+1]) */
  int64_t *floor, *rest;   /* by section: height of what is placed; bytes still to be placed */
  int *next_section;       /* by section: room for the inference */
  int *n_cross;            /* by section: unplaced boxes that reach into the next one */
  int *is_placed;          /* by box */
  int *stack, n_stack;     /* boxes placed, in order */
  int *lists, list_room;   /* room for lists of boxes, taken like a stack: n, n - 1, ... */
  int *moved;              /* room for one more */
  int64_t *start;          /* by box: room for its lowest start */
  int *inside_at, *inside; /* boxes of section s: inside[inside_at[s] .. inside_at[s+1]) */
  undo *trail;
  int n_trail, trail_cap;
  int64_t n_node, node_limit, stop_at; /* stop_at: of the work's steps */
  bool stopped, out_of_memory;
  neap_arena arena;
} search;

/* ---- the tree -------------------------------------------------------------------------------- */

/* Writes a word so that go_back can undo it. False: memory is refused, nothing is written, and the
 * search is stopped. */
static bool set(search *x, int64_t *where, int64_t value) {
  if (!neap_list_grow(&x->trail, &x->trail_cap, x->n_trail + 1, sizeof *x->trail)) {
    x->out_of_memory = x->stopped = true;
    return false;
  }
  x->trail[x->n_trail++] = (undo){where, *where};
  *where = value;
  return true;
}

/* Puts box b at its lowest start: raises the floor of its sections and the lowest start of each
 * unplaced box that it meets. When memory is refused the state is half changed but `stopped` is
 * set: the caller looks at that before it goes on. */
static void place(search *x, int b) {
  const box *it = &x->box[b];
  int64_t top = x->low[b] + it->size;
  x->offset[b] = x->low[b];
  x->is_placed[b] = 1;
  x->stack[x->n_stack++] = b;

  /* In its sections b is the new skyline, and one box less is to come. */
  for (int s = it->from; s <= it->to; s++) {
    set(x, &x->floor[s], top);
    x->rest[s] -= it->size;
    if (s < it->to) x->n_cross[s]--;
  }

  /* A box in one of these sections can't start below the top of b any more. */
  for (int k = x->near_at[b]; k < x->near_at[b + 1]; k++) {
    int c = x->near[k];
    if (!x->is_placed[c] && x->low[c] < top) set(x, &x->low[c], top);
  }
}

/* Back to an earlier state: words first, then what follows from the stack. A part solved before its
 * neighbour failed has left boxes too. */
static void go_back(search *x, int n_stack, int n_trail) {
  /* The newest first: a word may have been written twice, and the oldest value has to stand in the
   * end. */
  while (x->n_trail > n_trail) {
    undo *u = &x->trail[--x->n_trail];
    *u->where = u->old;
  }

  /* `rest` and `n_cross` are sums over boxes, so they are counted back and need no trail. */
  while (x->n_stack > n_stack) {
    int b = x->stack[--x->n_stack];
    const box *it = &x->box[b];
    x->is_placed[b] = 0;
    for (int s = it->from; s <= it->to; s++) {
      x->rest[s] += it->size;
      if (s < it->to) x->n_cross[s]++;
    }
  }
}

/* Part of the problem at one node of the tree: its unplaced boxes, lowest start first, equal ones
 * by preference. */
typedef struct part {
  int n;
  int *list;
  int64_t last; /* offset of the box placed last, */
  int last_box; /* and which: of boxes at one offset the preferred one comes first */
} part;

/* Whether box b may not come next: it would lie below the last box placed, or at its height though
 * the preferred one goes first. One packing is then met in one order of placing only, that of
 * offset and then preference. */
static bool is_stuck(const search *x, const part *p, int b) {
  return x->low[b] < p->last || (b < p->last_box && x->low[b] == p->last);
}

/* The next section from s on that is not painted; paths are halved on the way. */
static int next_bare(int *next, int s) {
  while (next[s] != s) {
    next[s] = next[next[s]];
    s = next[s];
  }
  return s;
}

/* Box b starts at `start` at the lowest: whether all that is bare of its sections holds that and
 * what is still to come. */
static bool paint(search *x, int b, int64_t start) {
  const box *it = &x->box[b];

  /* A section is tested by the first box that reaches it, which is the lowest there, and then
   * skipped by all later ones: each is tested once in an inference, however many boxes lie in
   * it. */
  for (int s = next_bare(x->next_section, it->from); s <= it->to;
       s = next_bare(x->next_section, s)) {
    if (NEAP_MAX(x->floor[s], start) + x->rest[s] > x->capacity) return false;
    x->next_section[s] = s + 1;
  }
  return true;
}

/* Section inference: in each section, the lowest start of a box still to come and all bytes still
 * to come must fit under the capacity. Boxes paint their sections in order of their lowest start,
 * so the first to reach a section is the lowest there. False: some section is too small. */
static bool sections_fit(search *x, const part *p, int from, int to) {
  /* Nothing is painted yet. Section to + 1 never is, so that each walk ends there. */
  for (int s = from; s <= to + 1; s++) x->next_section[s] = s;

  /* Boxes whose floor is no higher than the last offset, but not stuck: they can start there. */
  int n_low = 0;
  while (n_low < p->n && x->low[p->list[n_low]] <= p->last) {
    int b = p->list[n_low++];
    if (!is_stuck(x, p, b) && !paint(x, b, p->last)) return false;
  }

  /* The stuck ones among them start when a neighbour has raised their floor: above it. */
  for (int i = 0; i < n_low; i++) {
    int b = p->list[i];
    if (is_stuck(x, p, b) && !paint(x, b, p->last + 1)) return false;
  }

  /* All others start on their own floor at the lowest. */
  for (int i = n_low; i < p->n; i++) {
    int b = p->list[i];
    if (!paint(x, b, x->low[b])) return false;
  }
  return true;
}

/* Whether all may still fit; *height: a candidate must start below it, or another box would fit
 * whole under it. */
static bool may_fit(search *x, const part *p, int64_t *height) {
  /* One walk over the boxes: the lowest end of them, and the sections that they lie in. */
  int64_t h = INT64_MAX;
  int from = x->n_section, to = -1;
  for (int i = 0; i < p->n; i++) {
    const box *it = &x->box[p->list[i]];
    int64_t end = x->low[p->list[i]] + it->size;
    /* Nothing starts below the last offset any more, so each box alone must fit above it. */
    if (NEAP_MAX(end, p->last + it->size) > x->capacity) return false;
    from = NEAP_MIN(from, it->from);
    to = NEAP_MAX(to, it->to);
    h = NEAP_MIN(h, end);
  }
  *height = h;

  /* A box that fits whole under the last offset could be pushed down there: such a packing is met
   * in another branch, where that box comes first. */
  return h > p->last && sections_fit(x, p, from, to);
}

/* Places all boxes of the part. True: `offset` holds a packing of them. False: there is none on top
 * of what is placed, unless `stopped` is set; then nothing is known; either way the state is as
 * before the call. */
static bool solve(search *x, part p);

/* Into `list`: the boxes of p but b that start in sections (begin, end], ordered again. Only
 * neighbours of b have moved, and all to the top of b: two ordered lists are merged. */
static int part_list(const search *x, const part *p, int b, int begin, int end, int *list,
                     int *moved) {
  /* Both halves keep the order of p: those that b has raised to its top, and all others. */
  int64_t top = x->offset[b] + x->box[b].size;
  int n = 0, n_moved = 0;
  for (int i = 0; i < p->n; i++) {
    int c = p->list[i];
    if (c == b || x->box[c].from <= begin || x->box[c].from > end) continue;
    if (x->low[c] == top)
      moved[n_moved++] = c;
    else
      list[n++] = c;
  }

  /* Those at the top of b are of one height: by preference. What was there before comes ordered
   * already. */
  for (int i = 1; i < n_moved; i++) {
    int c = moved[i], at = i;
    for (; at > 0 && moved[at - 1] > c; at--) moved[at] = moved[at - 1];
    moved[at] = c;
  }

  /* What is higher than the top makes room for them. */
  int k = n;
  for (; k > 0 && x->low[list[k - 1]] > top; k--) list[k - 1 + n_moved] = list[k - 1];
  memcpy(list + k, moved, (size_t)n_moved * sizeof *moved);
  return n + n_moved;
}

/* Solves the part without box b, which has just been placed. Where b was the last to cross from one
 * section to the next, the part is cut: the pieces share no section, so that one which can't be
 * solved fails at once, without trying what the others could do instead. */
static bool solve_rest(search *x, const part *p, int b) {
  /* Lists of boxes are taken from the room behind the part's own, and given back at the end. */
  const box *it = &x->box[b];
  int room = x->list_room, begin = -1; /* sections up to `begin` are done */
  bool ok = true;

  /* Only within the sections of b can a crossing have ended with it: elsewhere the part hangs
   * together as it did before. */
  for (int s = it->from; s <= it->to; s++) {
    bool is_end = s == it->to;
    if (!is_end && x->n_cross[s] > 0) continue;
    /* The last piece has all the boxes that start behind b, too. */
    int end = is_end ? x->n_section : s, *list = x->lists + room;
    int n = part_list(x, p, b, begin, end, list, x->moved);
    x->list_room = room + n;
    ok = solve(x, (part){n, list, x->offset[b], b});
    if (!ok) break;
    begin = end;
  }
  x->list_room = room;
  return ok;
}

/* One section of `narrow`: a box that starts too high for the rest to fit above it can't be the
 * lowest there, so it lies on one that can. Sets *moved when a start has risen. False: no box can
 * be the lowest, or one no longer fits. */
static bool narrow_section(search *x, int s, bool *moved) {
  int64_t latest = x->capacity - x->rest[s], lowest_end = INT64_MAX;
  const int *in = x->inside + x->inside_at[s], *end = x->inside + x->inside_at[s + 1];

  /* The search is limited by the blocks looked at, here too. */
  x->w->n_step += end - in;

  /* `latest` is the highest start that leaves room for the rest: the lowest box of the section is
   * one that can start there or below, and the others lie on top of it. */
  for (const int *b = in; b < end; b++)
    if (!x->is_placed[*b] && x->start[*b] <= latest)
      lowest_end = NEAP_MIN(lowest_end, x->start[*b] + x->box[*b].size);
  if (lowest_end == INT64_MAX) return false;

  /* A box that can't be the lowest starts at the end of one that can, at the earliest. */
  for (const int *b = in; b < end; b++) {
    if (x->is_placed[*b] || x->start[*b] <= latest || x->start[*b] >= lowest_end) continue;
    if (lowest_end + x->box[*b].size > x->capacity) return false;
    x->start[*b] = lowest_end;
    *moved = true;
  }
  return true;
}

enum { MAX_ROUND = 4 };

/* Raises `start`, the lowest start of each box of the part, section by section until nothing moves
 * or for MAX_ROUND rounds: the first rounds find nearly all, and stopping early is safe, since
 * every round gives valid bounds. False: nothing fits. */
static bool narrow(search *x, const part *p) {
  int from = x->n_section, to = -1;

  /* What is known without looking at neighbours. */
  for (int i = 0; i < p->n; i++) {
    int b = p->list[i];
    x->start[b] = is_stuck(x, p, b) ? p->last + 1 : x->low[b];
    from = NEAP_MIN(from, x->box[b].from);
    to = NEAP_MAX(to, x->box[b].to);
  }

  /* A start that rises in one section counts in those to its right at once, and in those to its
   * left in the next round. */
  for (int round = 0; round < MAX_ROUND; round++) {
    bool moved = false;
    for (int s = from; s <= to; s++)
      if (x->rest[s] > 0 && !narrow_section(x, s, &moved)) return false;
    if (!moved) break;
  }
  return true;
}

static bool solve(search *x, part p) {
  if (p.n == 0) return true;

  /* One box alone meets nobody that is still to come: it lies where it falls. */
  if (p.n == 1) {
    int b = p.list[0];
    x->offset[b] = x->low[b];
    return x->low[b] + x->box[b].size <= x->capacity;
  }

  /* A node costs as many steps as it looks at boxes. Once a limit is passed the whole tree is left:
   * `stopped` makes every caller return, and what they return means nothing. */
  x->w->n_step += p.n;
  if (++x->n_node > x->node_limit || x->w->n_step > x->stop_at) x->stopped = true;
  if (x->stopped) return false;

  /* Two proofs that nothing fits, the cheap one first. Both also say which boxes may come next. */
  int64_t height;
  if (!may_fit(x, &p, &height) || !narrow(x, &p)) return false;

  /* Who may come next. The list is ordered by floor, so the first at `height` ends it. A box whose
   * start was narrowed upward lies at its present floor in no packing: it waits until a neighbour
   * raises that. */
  int *candidate = x->lists + x->list_room, n = 0;
  for (int i = 0; i < p.n; i++) {
    int b = p.list[i];
    if (x->low[b] >= height) break;
    if (!is_stuck(x, &p, b) && x->start[b] == x->low[b]) candidate[n++] = b;
  }
  x->list_room += n;

  /* Each is tried in turn; one that leads nowhere is taken back. */
  bool ok = false;
  for (int i = 0; i < n; i++) {
    int n_trail = x->n_trail, n_stack = x->n_stack;
    place(x, candidate[i]);
    ok = !x->stopped && solve_rest(x, &p, candidate[i]);
    if (ok) break;
    go_back(x, n_stack, n_trail);
    if (x->stopped) break;
  }
  x->list_room -= n;
  return ok;
}

/* ---- setting up ------------------------------------------------------------------------------ */

/* Euclid's; the other one when one is 0. */
static int64_t common_divisor(int64_t a, int64_t b) {
  while (b != 0) {
    int64_t t = a % b;
    a = b;
    b = t;
  }
  return a;
}

/* A block's life begins at `step`, or has ended before it. */
typedef struct event {
  int64_t step;
  int block;
  bool is_start;
} event;

/* By step, ends before starts: lives that only touch do not meet. */
static int compare_events(const void *a, const void *b) {
  const event *x = a, *y = b;
  if (x->step != y->step) return x->step < y->step ? -1 : 1;
  if (x->is_start != y->is_start) return x->is_start ? 1 : -1;
  return x->block < y->block ? -1 : 1;
}

/* Section by block, inclusive, into from and to; n_section. A set of blocks is maximal where the
 * next event after a start is an end, and there a section closes. O(n log n). Lives that overlap
 * share a section, and those that don't share none. False: memory is refused. */
static bool find_sections(search *x, int *from, int *to) {
  const neap_block *block = x->w->block;
  event *events = neap_alloc(2 * (size_t)x->n * sizeof *events);
  if (events == NULL) return false;

  /* The end of a life stands one step after its last: there another one may begin. */
  for (int b = 0; b < x->n; b++) {
    events[2 * b] = (event){block[b].first, b, true};
    events[2 * b + 1] = (event){(int64_t)block[b].last + 1, b, false};
  }

  /* In order of time, the open section is the set of blocks that live now. It is maximal, and
   * counted, only when a block ends after another has begun: a mere end leaves a smaller set. */
  qsort(events, 2 * (size_t)x->n, sizeof *events, compare_events);
  int section = 0;
  bool grew = false;

  /* A start joins the section that is open; the first end after it closes that one. */
  for (int i = 0; i < 2 * x->n; i++) {
    if (events[i].is_start) {
      from[events[i].block] = section;
      grew = true;
      continue;
    }
    if (grew) section++;
    grew = false;
    to[events[i].block] = section - 1;
  }
  x->n_section = section;
  neap_free(events);
  return true;
}

/* The preferred first; ties by block, so that equal input is searched alike on every machine. */
static int compare_boxes(const void *a, const void *b) {
  const box *x = a, *y = b;
  if (x->rank != y->rank) return x->rank > y->rank ? -1 : 1;
  return x->block < y->block ? -1 : 1;
}

enum { N_RANK = 5 };

/* Makes the boxes anew, in order of preference `which`: what lives long, is large, or lives where
 * it is crowded comes first. `seed` mixes in chance, a factor from 1 to 1.5 on each rank; 0: none.
 * `total` by section: all bytes there. The factor 1e12 makes one number of two: crowd counts first,
 * as long as areas are smaller. */
static void rank_boxes(search *x, const int *from, const int *to, const int64_t *total, int which,
                       int seed) {
  uint64_t state = (uint64_t)seed * 0x9e3779b97f4a7c15u + 1;
  for (int b = 0; b < x->n; b++) {
    box *it = &x->box[b];
    *it = (box){
      .size = (int64_t)x->w->block[b].bytes / x->unit, .from = from[b], .to = to[b], .block = b};
    /* How crowded it is where the block lives: the most bytes in one of its sections. */
    int64_t most = 0;
    for (int s = it->from; s <= it->to; s++) most = NEAP_MAX(most, total[s]);
    double width = (double)x->w->block[b].last - x->w->block[b].first + 1;
    double size = (double)it->size, area = width * size, crowd = (double)most;
    double rank[N_RANK] = {width, crowd * 1e12 + area, crowd * 1e12 + width, area, size};
    /* Drawn for every block, also where it is not used, so that a seed means one sequence. */
    state = state * 6364136223846793005u + 1442695040888963407u;
    double chance = seed == 0 ? 0 : (double)(state >> 40) * 0x1p-24;
    it->rank = rank[which] * (1 + 0.5 * chance);
  }
  qsort(x->box, (size_t)x->n, sizeof *x->box, compare_boxes);
}

/* Pairs (a, b) that meet, each counted both ways: room for `near`. O(n^2), once. */
static int64_t count_near(const search *x) {
  int64_t n = 0;
  for (int a = 0; a < x->n; a++)
    for (int b = 0; b < x->n; b++) n += a != b && neap_pack_conflicts(x->w, a, b);
  return n;
}

/* The boxes that meet each box. By sections, which holds for lives too; anew for each preference,
 * since boxes change places. */
static void find_near(search *x) {
  /* Two lives meet on the steps just when their sections do, and sections are numbers of boxes
   * alike. */
  int n = 0;
  for (int a = 0; a < x->n; a++) {
    x->near_at[a] = n;
    for (int b = 0; b < x->n; b++)
      if (a != b && x->box[a].from <= x->box[b].to && x->box[b].from <= x->box[a].to)
        x->near[n++] = b;
  }
  x->near_at[x->n] = n;
}

/* Room for the boxes by section; `inside` holds as many as lives are long in all, whatever the
 * preference. False: memory is refused. */
static bool find_inside(search *x, const int *from, const int *to) {
  size_t n = 0;
  for (int b = 0; b < x->n; b++) n += (size_t)(to[b] - from[b] + 1);
  x->inside = neap_arena_alloc(&x->arena, (n + 1) * sizeof *x->inside);
  return x->inside != NULL;
}

/* The boxes of each section, the preferred first. */
static void fill_inside(search *x) {
  int n = 0;
  for (int s = 0; s < x->n_section; s++) {
    x->inside_at[s] = n;
    for (int b = 0; b < x->n; b++)
      if (x->box[b].from <= s && s <= x->box[b].to) x->inside[n++] = b;
  }
  x->inside_at[x->n_section] = n;
}

/* The empty skyline: nothing is placed, all boxes are to come, no node has been visited. The trail
 * keeps its room. */
static void reset(search *x) {
  memset(x->floor, 0, (size_t)x->n_section * sizeof *x->floor);
  memset(x->rest, 0, (size_t)x->n_section * sizeof *x->rest);
  memset(x->n_cross, 0, (size_t)x->n_section * sizeof *x->n_cross);
  memset(x->low, 0, (size_t)x->n * sizeof *x->low);
  memset(x->is_placed, 0, (size_t)x->n * sizeof *x->is_placed);

  /* All is still to come. */
  for (int b = 0; b < x->n; b++)
    for (int s = x->box[b].from; s <= x->box[b].to; s++) {
      x->rest[s] += x->box[b].size;
      if (s < x->box[b].to) x->n_cross[s]++;
    }
  x->n_trail = x->n_stack = x->list_room = 0;
  x->n_node = 0;
  x->stopped = false;
}

/* NO is a proof: the tree was walked to its end. UNKNOWN: nodes, steps or memory ran out. */
typedef enum answer { YES, NO, UNKNOWN } answer;

/* One search with the present preference, over all parts that no block crosses from the start, one
 * after another. */
static answer ask_once(search *x) {
  reset(x);

  /* The list of a part lies at the bottom of the room; the parts come one after another and reuse
   * it. */
  int *list = x->lists, begin = 0;
  for (int s = 0; s < x->n_section; s++) {
    if (x->n_cross[s] > 0) continue;
    /* No block crosses to section s + 1: those from `begin` to s are a part of their own. */
    int n = 0;
    for (int b = 0; b < x->n; b++)
      if (x->box[b].from >= begin && x->box[b].from <= s) list[n++] = b;
    x->list_room = n;
    /* A part that can't be packed, or wasn't in time, says so for the whole. */
    if (!solve(x, (part){n, list, 0, -1})) return x->stopped ? UNKNOWN : NO;
    begin = s + 1;
  }
  return YES;
}

enum { FIRST_NODES = 2000, PATIENCE = 8 };

/* What a preference costs before the search: all pairs of boxes, and all boxes by section. */
static int64_t n_setting_up(const search *x) { return (int64_t)x->n * (x->n + x->n_section); }

/* Whether all fit into `capacity` units; on YES the packing goes into the work. Ends when the work
 * has come to `stop_at` steps, or to its own limit.
 *
 * Tries one preference after another until one answers or the steps are used up. Each round has all
 * of them, mixed with chance from the second round on, and one as it is with more patience; the
 * next round has twice the nodes. Many short tries and a few long ones: hard instances differ in
 * which of the two they yield to. */
static answer ask(search *x, int64_t capacity, int64_t stop_at, const int *from, const int *to,
                  const int64_t *total) {
  /* Nothing is known of this capacity. The limit for it is a part of what the work may do in all,
   * so that a hopeless target leaves steps for others. */
  answer got = UNKNOWN;
  x->capacity = capacity;
  x->stop_at = NEAP_MIN(stop_at, x->w->most_steps);
  int64_t limit = FIRST_NODES;
  for (int try = 0; x->w->n_step < x->stop_at; try++) {
    /* N_RANK short tries, then a patient one: that is a round. */
    int round = try / (N_RANK + 1), which = try % (N_RANK + 1);
    bool patient = which == N_RANK;
    if (patient) which = round % N_RANK;
    int seed = patient || round == 0 ? 0 : try;
    rank_boxes(x, from, to, total, which, seed);
    /* Boxes are numbered by preference, so what lists them is made anew. */
    find_near(x);
    fill_inside(x);
    x->w->n_step += n_setting_up(x);
    x->node_limit = patient ? PATIENCE * limit : limit;
    got = ask_once(x);
    if (got != UNKNOWN || x->out_of_memory) break;
    if (patient) limit += limit;
  }
  if (got != YES) return got;

  /* Found: from units back to bytes, from boxes back to blocks. */
  x->w->best_bytes = 0;
  for (int b = 0; b < x->n; b++) {
    size_t offset = (size_t)(x->offset[b] * x->unit);
    x->w->offset[x->box[b].block] = offset;
    x->w->best_bytes = NEAP_MAX(x->w->best_bytes, offset + x->w->block[x->box[b].block].bytes);
  }
  x->w->packer = "exact";
  return YES;
}

/* All arrays but `inside`, zeroed, from the arena; sections are no more than blocks. False: memory
 * is refused. */
static bool take_arrays(search *x, int64_t n_near, int **from, int **to, int64_t **total) {
  size_t n = (size_t)x->n + 2;
  int64_t **longs[] = {&x->low, &x->start, &x->offset, &x->floor, &x->rest, total};
  int **ints[] = {&x->near_at,      &x->inside_at, &x->n_cross,
                  &x->next_section, &x->moved,     &x->is_placed,
                  &x->stack,        from,          to};
  for (int i = 0; i < NEAP_COUNT(longs); i++)
    if ((*longs[i] = neap_arena_alloc(&x->arena, n * sizeof(int64_t))) == NULL) return false;
  for (int i = 0; i < NEAP_COUNT(ints); i++)
    if ((*ints[i] = neap_arena_alloc(&x->arena, n * sizeof(int))) == NULL) return false;
  x->box = neap_arena_alloc(&x->arena, n * sizeof *x->box);
  x->near = neap_arena_alloc(&x->arena, ((size_t)n_near + 1) * sizeof *x->near);
  x->lists = neap_arena_alloc(&x->arena, n * (n + 1) * sizeof *x->lists);
  return x->box != NULL && x->near != NULL && x->lists != NULL;
}

/* Bytes in a unit: the sizes' common divisor, since in a pushed-down packing every offset is a sum
 * of sizes. 0: the divisor does not keep some alignment; such blocks are not for this search. */
static int64_t find_unit(const neap_pack_work *w) {
  int64_t unit = 0, align = 1;
  for (int b = 0; b < w->n; b++) {
    unit = common_divisor(unit, (int64_t)w->block[b].bytes);
    align = NEAP_MAX(align, (int64_t)w->block[b].align);
  }
  return unit > 0 && unit % align == 0 ? unit : 0;
}

/* `low` and `high` bracket the least capacity: below `low` is excluded, `high` is found. A target
 * without an answer moves only `tried`, where the bisection goes on, because nothing is proved of
 * it. MEMORY is the one failure; what the search is not made for (a matrix, too many blocks, odd
 * alignments) is left as it is, with OK. */
neap_status neap_pack_exact(neap_pack_work *w, size_t goal_bytes, neap_error *error) {
  /* Arrays are taken once for all targets and preferences: their sizes depend on the lives
   * alone. */
  search x = {.w = w, .n = w->n, .unit = find_unit(w)};
  int *from, *to;
  int64_t *total;
  if (x.unit == 0 || w->conflict != NULL || w->n > NEAP_PACK_EXACT_MAX) return NEAP_OK;
  neap_status status = NEAP_OK;
  if (!take_arrays(&x, count_near(&x), &from, &to, &total) || !find_sections(&x, from, to) ||
      !find_inside(&x, from, to)) {
    status = neap_fail_memory(error, (size_t)w->n * (size_t)w->n * sizeof(int), "exact packing");
    goto done;
  }

  /* How crowded each section is: rank_boxes prefers blocks that live where most bytes are. */
  for (int b = 0; b < x.n; b++)
    for (int s = from[b]; s <= to[b]; s++) total[s] += (int64_t)w->block[b].bytes;

  /* The goal itself is asked for first, with most of the steps: often it can be had, and then all
   * is proved. Only then are the capacities between it and the best known packing halved. */
  int64_t low = ((int64_t)goal_bytes + x.unit - 1) / x.unit; /* all below is excluded */
  int64_t tried = low;                                       /* below it no answer came */
  int64_t target = low, percent = 75; /* the bound itself gets most of the steps */
  while (!neap_pack_is_done(w) && !x.out_of_memory) {
    int64_t high = (int64_t)w->best_bytes / x.unit, now = w->n_step;
    if (target >= high) break;
    int64_t stop_at = now + (w->most_steps - now) / 100 * percent;
    switch (ask(&x, target, stop_at, from, to, total)) {
      case YES: high = (int64_t)w->best_bytes / x.unit; break;
      case NO: low = target + 1; break;
      case UNKNOWN: tried = target + 1; break;
    }
    tried = NEAP_MAX(tried, low);
    target = tried + (high - tried) / 2; /* below `high`, so that each answer narrows */
    percent = 25;
  }
  if (x.out_of_memory)
    status = neap_fail_memory(error, (size_t)x.trail_cap * sizeof *x.trail, "exact packing");
done:
  neap_free(x.trail);
  neap_arena_fini(&x.arena);
  return status;
}
