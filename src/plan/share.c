/* share.c: which values lie in the same bytes. Three ways: enforced versions (the graph says so),
 * views (the op record says so, `alias`), and in place (the record allows it, and nobody else needs
 * the input any more).
 *
 * Members of a storage form a ring (`next`). Versions and views are joined first, because a view
 * keeps its source's bytes alive wherever its definition stands; then in place is decided node by
 * node in the order of running.
 * INVARIANT: when a node writes in place, every other reader of any member of the storage has run
 * before it; in `dag`, runs before it in every order that the edges allow.
 * INVARIANT: until lives are counted (live_range.c), `last` of a root is the last step that reads
 * any member of its storage, -1 where none does: so a chain of many members is not walked for each
 * of them.
 */
#include "plan/plan_int.h"

/* Joins two rings; the root is the member defined first (values that exist before the graph runs
 * come first of all). Exchanging the successors of one member of each makes two rings one;
 * O(members of the ring that gets a new root). */
static void join(neap_schedule *s, const neap_graph *g, int a, int b) {
  int root_a = s->root[a], root_b = s->root[b];
  if (root_a == root_b) return;

  /* Which of the two roots is defined first, and stays one. */
  int at_a = g->value[root_a].node < 0 ? -1 : s->step[g->value[root_a].node];
  int at_b = g->value[root_b].node < 0 ? -1 : s->step[g->value[root_b].node];
  int root = root_a, other = root_b;
  if (at_b < at_a) {
    root = root_b;
    other = root_a;
  }

  /* All members of the other ring have the new root, then the rings are made one. */
  int v = other;
  do {
    s->root[v] = root;
    v = s->next[v];
  } while (v != other);
  int swap = s->next[root];
  s->next[root] = s->next[other];
  s->next[other] = swap;
  s->last[root] = NEAP_MAX(s->last[root], s->last[other]);
}

/* The input of the node at `pair.in`, or NEAP_NO_VALUE when the node has none there. */
static int pair_input(const neap_node *node, neap_pair pair) {
  return pair.in >= 0 && pair.in < node->n_in ? node->in[pair.in] : NEAP_NO_VALUE;
}

/* The version that value `v` replaces: the input of the enforced pair that defines it. */
static int version_before(const neap_graph *g, int v) {
  const neap_value *value = &g->value[v];
  const neap_node *node = &g->node[value->node];
  for (int k = 0; k < node->n_enforced; k++) {
    if (node->enforced[k].out != value->position) continue;
    int in = pair_input(node, node->enforced[k]);
    if (in != NEAP_NO_VALUE) return in;
  }
  return value->root;
}

/* Why a value has bytes before anything is joined: its region says it. */
static neap_reason first_reason(neap_region region) {
  switch (region) {
    case NEAP_REGION_ARENA: return NEAP_REASON_OWN;
    case NEAP_REGION_ARGUMENT: return NEAP_REASON_ARGUMENT;
    case NEAP_REGION_FRAME: return NEAP_REASON_FRAME;
    default: return NEAP_REASON_RESIDENT;
  }
}

/* First reasons, by region, and the chains that the graph has fixed: they are not ours to
 * refuse. */
static void share_versions(neap_schedule *s, const neap_graph *g) {
  for (int v = 0; v < g->n_value; v++) {
    const neap_value *value = &g->value[v];
    s->reason[v] = first_reason(value->region);
    if (value->root == v || value->root < 0 || value->root >= g->n_value) continue;
    if (value->node < 0) continue; /* it is there before the graph runs: nothing replaces it */
    /* A later version is written into the bytes of the first one, wherever its turn comes. */
    join(s, g, value->root, v);
    s->reason[v] = NEAP_REASON_VERSION;
    s->partner[v] = version_before(g, v);
  }
}

/* Whether policy `name` keeps the two apart: memonger's renaming shares bytes by name and in no
 * other way. */
static bool names_differ(const neap_work *work, int a, int b) {
  const neap_value *value = work->graph->value;
  return work->options.policy == NEAP_POLICY_NAME &&
         (value[a].name != value[b].name || !value[a].is_blob || !value[b].is_blob);
}

/* A view has its source's elements in its source's order; where layouts or banks differ the kernel
 * copies, as it does when one side is resident. */
static bool can_view(const neap_value *from, const neap_value *to) {
  return from->region == NEAP_REGION_ARENA && to->region == NEAP_REGION_ARENA &&
         from->bank == to->bank && from->bytes == to->bytes &&
         neap_layout_equal(&from->layout, &to->layout);
}

/* Views come before in place, because a view read late must keep an in-place write off its
 * source. */
static void share_views(neap_schedule *s, const neap_work *work) {
  const neap_graph *g = work->graph;
  for (int n = 0; n < g->n_node; n++) {
    const neap_node *node = &g->node[n];
    for (int k = 0; k < node->op->n_alias; k++) {
      neap_pair pair = node->op->alias[k];
      int from = pair_input(node, pair);
      int to = pair.out < node->n_out ? node->out[pair.out] : NEAP_NO_VALUE;
      if (from == NEAP_NO_VALUE || to == NEAP_NO_VALUE) continue;
      /* A version lies where it must. */
      if (s->reason[to] != NEAP_REASON_OWN) continue;
      /* Else its op copies, into bytes of the value's own. */
      if (!can_view(&g->value[from], &g->value[to]) || names_differ(work, from, to)) continue;
      join(s, g, from, to);
      s->reason[to] = NEAP_REASON_ALIAS;
      s->partner[to] = from;
    }
  }
}

/* Whether the record lists (in, out); pairs that inplace_any_input implies are not listed. */
static bool is_listed(const neap_op *op, int in, int out) {
  for (int k = 0; k < op->n_inplace; k++)
    if (op->inplace[k].in == in && op->inplace[k].out == out) return true;
  return false;
}

/* Positions of the node other than `in` that read the same bytes must be listed pairs with the same
 * output: then the kernel works element by element in all of them. */
static bool reads_elsewhere(const neap_schedule *s, const neap_node *node, int in, int out) {
  int root = s->root[node->in[in]];
  for (int p = 0; p < node->n_in; p++) {
    if (p == in || node->in[p] == NEAP_NO_VALUE || s->root[node->in[p]] != root) continue;

    /* A kernel that reads an element of each input before it writes that element may have all of
     * them overwritten. Only listed pairs promise that. The elements lie alike: members of one
     * storage have one layout. */
    if (!is_listed(node->op, p, out) || !is_listed(node->op, in, out)) return true;
  }
  return false;
}

/* Whether some reader of the storage, other than node n, may still come. */
static neap_refusal reader_left(const neap_schedule *s, const neap_work *work, int n, int value) {
  /* Whichever member is read, it is the storage's bytes that are. Later in the order is too
   * late. */
  if (s->last[s->root[value]] > s->step[n]) return NEAP_REFUSAL_READ_LATER;
  if (work->reach == NULL) return NEAP_REFUSAL_NONE;

  /* In a dag earlier in the order is not enough: only a path of edges makes sure that the reader
   * has run. */
  int v = value;
  do {
    for (int k = work->uses.first[v]; k < work->uses.first[v + 1]; k++) {
      int reader = work->uses.list[k];
      if (reader != n && !neap_reaches(work, reader, n)) return NEAP_REFUSAL_ORDER;
    }
    v = s->next[v];
  } while (v != value);
  return NEAP_REFUSAL_NONE;
}

/* Why output `pair.out` of node n can't take the bytes of input `pair.in`; NONE: it can. */
static neap_refusal refuse(const neap_schedule *s, const neap_work *work, int n, neap_pair pair) {
  const neap_graph *g = work->graph;
  const neap_node *node = &g->node[n];
  int from = node->in[pair.in], to = node->out[pair.out];
  const neap_value *a = &g->value[from], *b = &g->value[to];

  /* The cheap questions first. The first one that fails is the reason that a user is shown. */
  if (work->options.no_in_place || names_differ(work, from, to)) return NEAP_REFUSAL_OFF;
  if (a->keep) return NEAP_REFUSAL_KEPT;
  if (a->region != NEAP_REGION_ARENA) return NEAP_REFUSAL_RESIDENT_INPUT;
  if (a->bank != b->bank) return NEAP_REFUSAL_BANK;
  if (a->bytes != b->bytes || !neap_layout_equal(&a->layout, &b->layout)) return NEAP_REFUSAL_BYTES;

  /* One input can give its bytes to one output only. */
  for (int o = 0; o < node->n_out; o++)
    if (o != pair.out && node->out[o] != NEAP_NO_VALUE && s->root[node->out[o]] == s->root[from])
      return NEAP_REFUSAL_TAKEN;

  /* Last the questions that walk over operands and readers. */
  if (reads_elsewhere(s, node, pair.in, pair.out)) return NEAP_REFUSAL_READ_TWICE;
  return reader_left(s, work, n, from);
}

/* Tries the pair; true when taken. The first refusal is what explain shows: records list the best
 * pair first. */
static bool try_pair(neap_schedule *s, const neap_work *work, int n, neap_pair pair) {
  const neap_node *node = &work->graph->node[n];
  if (pair_input(node, pair) == NEAP_NO_VALUE) return false;
  int to = node->out[pair.out], from = node->in[pair.in];

  /* The first refusal stays: a later pair of the record is a poorer one, and says less. */
  neap_refusal why = refuse(s, work, n, pair);
  if (why != NEAP_REFUSAL_NONE) {
    if (s->refusal[to] == NEAP_REFUSAL_NONE || s->refusal[to] == NEAP_REFUSAL_NO_PAIR)
      s->refusal[to] = why;
    return false;
  }

  /* From now on both are one storage, and what refused other pairs before says nothing any more. */
  join(s, work->graph, from, to);
  s->reason[to] = NEAP_REASON_IN_PLACE;
  s->refusal[to] = NEAP_REFUSAL_NONE;
  s->partner[to] = from;
  return true;
}

/* In place for the outputs of node n, which no view and no version has claimed. Listed pairs first,
 * in the record's order. */
static void share_in_place(neap_schedule *s, const neap_work *work, int n) {
  const neap_node *node = &work->graph->node[n];
  for (int o = 0; o < node->n_out; o++) {
    int to = node->out[o];
    if (to == NEAP_NO_VALUE || s->reason[to] != NEAP_REASON_OWN) continue;
    s->refusal[to] = NEAP_REFUSAL_NO_PAIR;
    /* A subnet may write the output while it still reads the input. */
    if (node->n_sub > 0) continue;
    bool taken = false;
    for (int k = 0; k < node->op->n_inplace; k++) {
      if (node->op->inplace[k].out != o) continue;
      taken = try_pair(s, work, n, node->op->inplace[k]);
      if (taken) break;
    }
    /* Where any input will do, the first one that nobody needs any more is taken. */
    if (taken || o > 0 || !node->op->inplace_any_input) continue;
    for (int i = 0; i < node->n_in; i++)
      if (try_pair(s, work, n, (neap_pair){i, 0})) break;
  }
}

/* The whole of it, for the schedule's order. Policy `none` takes the graph's versions and nothing
 * else. In place comes in the order of running, because what a node may overwrite depends on who
 * has joined the storage before it. */
void neap_schedule_share(neap_schedule *s, const neap_work *work) {
  const neap_graph *g = work->graph;

  /* Each value is a ring of its own. */
  for (int v = 0; v < g->n_value; v++) {
    s->root[v] = v;
    s->next[v] = v;
    s->partner[v] = -1;
    s->last[v] = -1;
    for (int k = work->uses.first[v]; k < work->uses.first[v + 1]; k++)
      s->last[v] = NEAP_MAX(s->last[v], s->step[work->uses.list[k]]);
  }

  /* What the graph has fixed comes first, since no policy may undo it. */
  share_versions(s, g);
  if (work->options.policy == NEAP_POLICY_NONE) {
    for (int v = 0; v < g->n_value; v++)
      if (s->reason[v] == NEAP_REASON_OWN) s->reason[v] = NEAP_REASON_UNPLANNED;
    return;
  }

  /* All views before any in place: a view that is read late keeps an in-place write off its
   * source. */
  share_views(s, work);
  for (int i = 0; i < g->n_node; i++) share_in_place(s, work, s->order[i]);
}
