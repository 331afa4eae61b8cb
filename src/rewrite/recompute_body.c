/* recompute_body.c: recomputation in the bodies of loops and in the branches of an If.
 *
 * A training loop keeps in its frames what its backward reads (build/cut.c): T times the bytes of
 * an iteration. What a kept value was made of may be there too, in the frame, the operands or the
 * state: then the backward's body makes it once more, by the same kernel, and the frame is smaller.
 * The backward of an If holds the forward of its branch in front; there nodes run again as they do
 * in a whole graph (recompute.c).
 *
 * Where a loop stands in the body of another one, its forward is in the forward's body and its
 * backward in the backward's: its frames are what an iteration of the outer loop keeps. So a pair
 * knows the pair around it, at any depth, and inner pairs come first: what they no longer keep the
 * outer frame has not to hold.
 *
 * Which nodes run again is the planner's affair (plan/recompute.c). It names them by their places
 * in the list of all that could (neap_graph_body_nodes), which follows from the graph alone. What
 * they read is kept from then on, unless they are told to make it again too.
 *
 * INVARIANT: both halves of a loop see the same items, those of states first.
 * INVARIANT: what a recomputed node reads is there when the backward runs: it is neither freed nor
 * written again before.
 */
#include "rewrite/rewrite_int.h"

#include <string.h>

/* A loop and its backward in a laid-out graph, or in the two bodies of the pair around it. */
typedef struct pair {
  struct pair *outer; /* NULL: both are nodes of `graph` */
  neap_graph *graph;  /* of the backward */
  neap_node *forward, *backward;
  neap_graph *f, *b;      /* their bodies */
  neap_value_id kept;     /* in the forward's graph: its frames */
  bool is_changed;        /* a pair within keeps something else than it did */
  bool *can, *recomputed; /* by node of f: may run in b too; does */
  bool *read, *wanted;    /* by value of f: b reads it; or what runs again in b */
  int *seen;              /* by value of f: as b sees it; NEAP_NO_VALUE */
  int n_recomputed;
  double times; /* iterations of all pairs up to this one */
} pair;

/* A walk over the bodies of a graph: it lists what could run again, or makes run again what is
 * marked (`recompute` of a node). */
typedef struct walk {
  bool lists;
  neap_body_node *body;
  int n_body, cap_body;
  neap_body_node at; /* where the walk is, in the words of an entry */
} walk;

static neap_status list_node(walk *w, neap_graph *graph, int node, size_t bytes, bool is_kept,
                             neap_error *error) {
  if (!neap_list_grow(&w->body, &w->cap_body, w->n_body + 1, sizeof *w->body))
    return graph_no_memory(error);
  w->at.graph = graph;
  w->at.node = node;
  w->at.bytes = bytes;
  w->at.is_kept = is_kept;
  w->body[w->n_body++] = w->at;
  return NEAP_OK;
}

/* ---- loops: what can be ---------------------------------------------------------------------- */

/* Whether v keeps its content as long as the iteration lasts. */
static bool has_one_version(const neap_graph *graph, neap_value_id v) {
  for (int w = 0; w < graph->n_value; w++)
    if (w != v && graph->value[w].root == graph->value[v].root) return false;
  return true;
}

/* The value of b that is there before an iteration of it, at the place of f's value v. */
static int find_there(const pair *p, neap_value_id v) {
  const neap_value *like = &p->f->value[v];
  for (int u = 0; u < p->b->n_value; u++) {
    const neap_value *value = &p->b->value[u];
    if (value->node < 0 && value->region == like->region && value->argument == like->argument)
      return u;
  }
  return NEAP_NO_VALUE;
}

static bool is_there(const pair *p, neap_value_id v);

/* Whether the backward can be given what the forward reads from around it. */
static bool has_operand(const pair *p, neap_value_id v) {
  return p->outer != NULL ? is_there(p->outer, v) : rewrite_is_stable(p->graph, v);
}

/* The state that v is, as an iteration found it or as it leaves it; -1: none. */
static int state_of(const pair *p, neap_value_id v) {
  const neap_value *value = &p->f->value[v];
  if (value->region != NEAP_REGION_ARGUMENT) return -1;
  const neap_port *port = &p->forward->loop->port[value->argument];
  return port->kind == NEAP_PORT_STATE || port->kind == NEAP_PORT_NEXT ? port->index : -1;
}

/* Whether the backward can be given what parameter v of the forward's body holds. */
static bool has_param(const pair *p, neap_value_id v) {
  const neap_port *port = &p->forward->loop->port[p->f->value[v].argument];
  if (find_there(p, v) < 0) return false;
  if (port->kind == NEAP_PORT_STATE) return true; /* the frames have it, or will */
  if (port->kind != NEAP_PORT_OPERAND && port->kind != NEAP_PORT_SLICE) return false;
  neap_value_id operand = p->forward->in[port->index];
  return operand >= 0 && has_operand(p, operand);
}

/* Whether v is there before an iteration of b, or can be given to it, as things are. */
static bool is_there(const pair *p, neap_value_id v) {
  const neap_value *value = &p->f->value[v];
  if (!has_one_version(p->f, v)) return false;
  if (value->region == NEAP_REGION_FRAME) return true;
  if (value->region != NEAP_REGION_ARGUMENT) return false;
  return value->node < 0 ? has_param(p, v) : find_there(p, v) >= 0;
}

/* Whether v of the iteration's arena could be kept: it has bytes of its own, in their order. */
static bool is_keepable(const pair *p, neap_value_id v) {
  const neap_value *value = &p->f->value[v];
  const neap_node *maker = &p->f->node[value->node];
  return value->layout.kind == NEAP_LAYOUT_PLAIN && !value->is_stash && maker->n_enforced == 0 &&
         maker->op->n_alias == 0;
}

/* Whether a node that runs again in b can read input v of the node of f. */
static bool can_read(const pair *p, neap_value_id v) {
  const neap_value *value = &p->f->value[v];
  if (!has_one_version(p->f, v)) return false;
  if (value->region == NEAP_REGION_ARENA) return p->can[value->node] || is_keepable(p, v);
  return is_there(p, v) || (value->node >= 0 && state_of(p, v) >= 0);
}

/* Whether the node can run in the backward's body too. */
static bool can_run_again(const pair *p, const neap_node *node) {
  if ((node->effects & ~(unsigned)NEAP_EFFECT_RANDOM) != 0 || node->n_sub > 0 ||
      node->n_enforced > 0)
    return false;

  /* What it makes lies in the iteration alone, or is a state, and stays as it makes it. */
  for (int k = 0; k < node->n_out; k++) {
    const neap_value *value = &p->f->value[node->out[k]];
    bool is_own = value->region == NEAP_REGION_ARENA || value->region == NEAP_REGION_FRAME ||
                  state_of(p, node->out[k]) >= 0;
    if (!is_own || value->is_stash || !has_one_version(p->f, node->out[k])) return false;
  }
  for (int i = 0; i < node->n_in; i++)
    if (node->in[i] >= 0 && !can_read(p, node->in[i])) return false;
  return true;
}

static bool is_read(const neap_graph *graph, neap_value_id v) {
  for (int n = 0; n < graph->n_node; n++)
    for (int i = 0; i < graph->node[n].n_in; i++)
      if (graph->node[n].in[i] == v) return true;
  return false;
}

/* The lists of a pair: what can run again, and what the backward reads of the iteration. */
static neap_status fill_lists(pair *p, neap_error *error) {
  neap_arena *arena = &p->b->arena;
  size_t n = (size_t)p->f->n_node + 1, m = (size_t)p->f->n_value + 1;
  p->can = neap_arena_alloc(arena, n * sizeof(bool));
  p->recomputed = neap_arena_alloc(arena, n * sizeof(bool));
  p->read = neap_arena_alloc(arena, m * sizeof(bool));
  p->wanted = neap_arena_alloc(arena, m * sizeof(bool));
  p->seen = neap_arena_alloc(arena, m * sizeof(int));
  if (p->can == NULL || p->recomputed == NULL || p->read == NULL || p->wanted == NULL ||
      p->seen == NULL)
    return graph_no_memory(error);

  /* Makers come before readers. */
  for (int k = 0; k < p->f->n_node; k++) p->can[k] = can_run_again(p, &p->f->node[k]);
  return NEAP_OK;
}

/* What b reads now, and as which of its values. */
static void find_read(pair *p) {
  for (int v = 0; v < p->f->n_value; v++) {
    const neap_value *value = &p->f->value[v];
    bool is_place = value->region == NEAP_REGION_FRAME || value->region == NEAP_REGION_ARGUMENT;
    p->seen[v] = is_place ? find_there(p, v) : NEAP_NO_VALUE;
    p->read[v] = p->seen[v] >= 0 && is_read(p->b, p->seen[v]);
  }
}

/* Whether the backward wants something of the node, *must: that can't be kept for it. */
static bool is_wanted(const pair *p, const neap_node *node, bool *must) {
  bool wanted = false;
  *must = false;
  for (int k = 0; k < node->n_out; k++) {
    neap_value_id v = node->out[k];
    if (!p->wanted[v]) continue;
    wanted = true;
    if (p->f->value[v].region == NEAP_REGION_ARENA && !is_keepable(p, v)) *must = true;
  }
  return wanted;
}

/* The marked nodes, or `all` that can, run again where something of theirs is wanted; what they
 * read is kept, or made again too. */
static void choose_nodes(pair *p, bool all) {
  p->n_recomputed = 0;
  for (int v = 0; v < p->f->n_value; v++) p->wanted[v] = p->read[v];

  /* From the last back: readers come behind makers. */
  for (int m = p->f->n_node - 1; m >= 0; m--) {
    const neap_node *node = &p->f->node[m];
    bool must = false;
    p->recomputed[m] = p->can[m] && is_wanted(p, node, &must) && (all || must || node->recompute);
    if (!p->recomputed[m]) continue;
    p->n_recomputed++;
    for (int i = 0; i < node->n_in; i++)
      if (node->in[i] >= 0) p->wanted[node->in[i]] = true;
  }
}

/* Whether the backward reads state s as an iteration found it. */
static bool reads_found(const pair *p, int s, const bool *wanted) {
  for (int v = 0; v < p->f->n_value; v++)
    if (wanted[v] && p->f->value[v].node < 0 && state_of(p, v) == s) return true;
  return false;
}

/* Nodes that could run again; what each would take in the frames. A state that is read as it was
 * found lies there anyway. */
static neap_status list_nodes(pair *p, walk *w, neap_error *error) {
  /* As if all that can ran again: whatever the planner picks among them finds what it reads. */
  w->at.times = p->times;
  choose_nodes(p, true);
  for (int m = 0; m < p->f->n_node; m++) {
    const neap_node *node = &p->f->node[m];
    size_t bytes = 0;
    bool is_kept = false;
    if (!p->recomputed[m]) continue;

    /* What is kept of it now, and what would have to be if it alone did not run again. */
    for (int k = 0; k < node->n_out; k++) {
      neap_value_id v = node->out[k];
      int s = state_of(p, v);
      if (s >= 0 && reads_found(p, s, p->read)) continue;
      if (p->read[v]) is_kept = true;
      if (p->wanted[v]) bytes += neap_align(p->f->value[v].bytes);
    }
    NEAP_TRY(list_node(w, p->f, m, bytes, is_kept, error));
  }
  return NEAP_OK;
}

/* ---- loops: what is changed ------------------------------------------------------------------ */

/* A value of b like f's value v, without definition. */
static int copy_value(pair *p, neap_value_id v) {
  const neap_value like = p->f->value[v];
  int id = graph_add_value(p->b, like.name, &like.type);
  if (id < 0) return id;
  p->b->value[id] = like;
  p->b->value[id].node = -1;
  p->b->value[id].root = id;
  p->b->value[id].is_last = false;
  p->b->value[id].is_blob = false;
  p->b->value[id].keep = false;
  return id;
}

/* b's value for input v of a node that runs again: an operand that the backward did not read so
 * far is taken from the forward, or from what the pair around them has there. */
static neap_status see(pair *p, neap_value_id v, int *out, neap_error *error) {
  /* b may have it already: in a frame, as an operand, or made again. */
  *out = p->seen[v];
  if (*out < 0) *out = copy_value(p, v);
  if (*out < 0) return graph_no_memory(error);
  p->seen[v] = *out;
  const neap_value *value = &p->f->value[v];
  if (value->region != NEAP_REGION_ARGUMENT || value->node >= 0) return NEAP_OK;

  /* A parameter of the body: an operand of both loops, or a state, which lies in the frames. */
  const neap_port *from = &p->forward->loop->port[value->argument];
  const neap_port *to = &p->backward->loop->port[value->argument];
  if (from->kind == NEAP_PORT_STATE) return NEAP_OK;
  if (p->backward->in[to->index] >= 0) return NEAP_OK;
  neap_value_id operand = p->forward->in[from->index];
  if (p->outer != NULL) NEAP_TRY(see(p->outer, operand, &operand, error));
  p->backward->in[to->index] = operand;
  return NEAP_OK;
}

/* Node m of f as node `at` of b. */
static neap_status add_recomputed(pair *p, int m, int at, neap_error *error) {
  neap_node node = p->f->node[m];
  neap_arena *arena = &p->b->arena;

  /* The lists that it points to are b's own. */
  int *ids = neap_arena_alloc(arena, (size_t)(node.n_in + node.n_out + 1) * sizeof *ids);
  node.attrs = graph_copy_attrs(p->b, node.op, node.attrs);
  node.choice.in =
    neap_arena_copy(arena, node.choice.in, (size_t)node.n_in * sizeof *node.choice.in);
  node.choice.out =
    neap_arena_copy(arena, node.choice.out, (size_t)node.n_out * sizeof *node.choice.out);
  if (ids == NULL || node.attrs == NULL || node.choice.in == NULL || node.choice.out == NULL)
    return graph_no_memory(error);

  /* Inputs as b sees them; those that it did not read so far are brought in. */
  for (int i = 0; i < node.n_in; i++) {
    ids[i] = NEAP_NO_VALUE;
    if (node.in[i] >= 0) NEAP_TRY(see(p, node.in[i], &ids[i], error));
  }
  for (int k = 0; k < node.n_out; k++) {
    /* What the backward found in the frame is now what this node makes; all else is new to b. */
    neap_value_id v = node.out[k];
    int id = p->seen[v] >= 0 ? p->seen[v] : copy_value(p, v);
    if (id < 0) return graph_no_memory(error);
    neap_value *value = &p->b->value[id];
    value->region = NEAP_REGION_ARENA;
    value->role = NEAP_ROLE_ACTIVATION;
    value->argument = 0;
    value->is_last = false;
    value->node = at;
    value->position = k;
    value->root = id;
    p->seen[v] = id;
    ids[node.n_in + k] = id;
  }

  /* It is of no pair in b, and marked as done once more, so that work is counted. */
  node.in = ids;
  node.out = ids + node.n_in;
  node.forward = at;
  node.runs_again = true;
  node.recompute = false;
  p->b->node[at] = node;

  /* what happens inside happens to all that is around it */
  for (pair *around = p; around != NULL; around = around->outer)
    around->backward->effects |= node.effects;
  return NEAP_OK;
}

/* The nodes that run again stand in front: what is there before is all that they read. */
static neap_status add_nodes(pair *p, neap_error *error) {
  neap_graph *b = p->b;
  int n = p->n_recomputed;
  if (!neap_list_grow(&b->node, &b->cap_node, b->n_node + n + 1, sizeof *b->node))
    return graph_no_memory(error);

  /* All nodes of b move up, from the last on, and with them what refers to them. */
  for (int m = b->n_node - 1; m >= 0; m--) {
    b->node[m + n] = b->node[m];
    b->node[m + n].forward += n;
    if (b->node[m + n].recomputes > 0) b->node[m + n].recomputes += n;
  }
  b->n_node += n;
  for (int v = 0; v < b->n_value; v++)
    if (b->value[v].node >= 0) b->value[v].node += n;

  /* Their old places are emptied, so that a failure leaves no subgraph twice. */
  for (int at = 0; at < n; at++) b->node[at] = (neap_node){.op = b->node[n].op, .device = ""};
  int at = 0;
  for (int m = 0; m < p->f->n_node; m++)
    if (p->recomputed[m]) NEAP_TRY(add_recomputed(p, m, at++, error));
  return NEAP_OK;
}

/* The frames of the loop as one value, which the pair around it may keep. */
static void resize_frames(pair *p) {
  /* The value that the forward makes and the one that the backward reads: the same one in a graph,
   * two where each half stands in a half of the pair around. */
  size_t bytes = neap_loop_frames_bytes(p->forward->loop);
  neap_graph *outside = p->outer != NULL ? p->outer->f : p->graph;
  neap_value *both[] = {&outside->value[p->kept],
                        &p->graph->value[p->backward->in[p->backward->loop->frames]]};
  for (int h = 0; h < 2; h++) {
    both[h]->bytes = bytes;
    both[h]->type.shape = NEAP_SHAPE((int64_t)bytes);
  }
  if (p->outer != NULL) p->outer->is_changed = true;
}

/* Whether state s lies in the frames: the backward reads it as an iteration found it, or as it left
 * it. */
static bool is_in_frames(const pair *p, int s) {
  if (reads_found(p, s, p->wanted)) return true;
  for (int v = 0; v < p->f->n_value; v++) {
    int maker = p->f->value[v].node;
    if (maker >= 0 && p->wanted[v] && !p->recomputed[maker] && state_of(p, v) == s) return true;
  }
  return false;
}

/* The next item of a record that grows. */
static int add_item(neap_loop *loop, size_t bytes) {
  loop->item[loop->n_item] = (neap_frame_item){loop->record_bytes, neap_align(bytes)};
  loop->record_bytes += neap_align(bytes);
  return loop->n_item++;
}

/* States' items, for both halves. Those that lie in no frame have two buffers of the loop's own. */
static void place_states(pair *p) {
  neap_loop *loop = p->forward->loop, *back = p->backward->loop;
  for (int s = 0; s < loop->n_state; s++) {
    const neap_port *port = &loop->port[s];
    if (port->kind != NEAP_PORT_STATE) continue; /* a resident blob */
    loop->state[s].item = is_in_frames(p, s) ? add_item(loop, loop->state[s].bytes) : -1;
    /* The backward has the forward's ports under the same numbers. */
    back->port[s].index = back->port[p->forward->n_in + s].index = loop->state[s].item;
  }
  loop->state_bytes = loop->record_bytes;
  p->forward->choice.scratch_bytes = neap_loop_own_bytes(loop);
}

/* What the iteration keeps, in both halves, of what its nodes make: an item each. */
static void place_values(pair *p) {
  for (int v = 0; v < p->f->n_value; v++) {
    neap_value *value = &p->f->value[v];
    bool is_own = value->region == NEAP_REGION_ARENA || value->region == NEAP_REGION_FRAME;
    if (value->node < 0 || !is_own) continue;

    /* Kept: an item of the record. Not kept any more: transient, like all else that an iteration
     * makes. */
    if (p->wanted[v] && !p->recomputed[value->node]) {
      value->region = NEAP_REGION_FRAME;
      value->argument = add_item(p->forward->loop, value->bytes);
    } else if (value->region == NEAP_REGION_FRAME) {
      value->region = NEAP_REGION_ARENA;
      value->argument = 0;
      value->is_last = false;
    }
    /* The backward finds it at the same item. */
    if (p->seen[v] < 0) continue;
    p->b->value[p->seen[v]].region = value->region;
    p->b->value[p->seen[v]].argument = value->argument;
  }
}

/* The record anew: states first, then all that is wanted and does not run again. */
static neap_status lay_out_items(pair *p, neap_error *error) {
  /* New lists, since a record may get items that it did not have. */
  neap_loop *loop = p->forward->loop, *back = p->backward->loop;
  size_t room = (size_t)(loop->n_state + p->f->n_value + 1) * sizeof *loop->item;
  loop->item = neap_arena_alloc(&p->b->arena, room);
  back->item = neap_arena_alloc(&p->b->arena, room);
  if (loop->item == NULL || back->item == NULL) return graph_no_memory(error);

  /* The record is laid out from nothing: what is no longer kept leaves no hole. */
  loop->n_item = 0;
  loop->record_bytes = 0;
  place_states(p);
  place_values(p);

  /* Each half has a list of its own. */
  neap_copy_bytes(back->item, loop->item, (size_t)loop->n_item * sizeof *back->item);
  back->n_item = loop->n_item;
  back->record_bytes = loop->record_bytes;
  back->state_bytes = loop->state_bytes;
  resize_frames(p);
  return NEAP_OK;
}

/* How often a loop's body runs, if it runs as often as it may. */
static double most_iterations(const neap_loop *loop) { return NEAP_MAX((double)loop->max, 1); }

/* Sets p->forward and p->kept: the loop that made the frames which p->backward reads. false: it is
 * not here. */
static bool find_forward(pair *p) {
  /* The value that is read as frames says who made them. */
  neap_value_id frames = p->backward->in[p->backward->loop->frames];
  if (frames < 0) return false;
  const neap_value *value = &p->graph->value[frames];
  neap_graph *outside = p->outer != NULL ? p->outer->f : p->graph;
  p->kept = NEAP_NO_VALUE;
  if (p->outer == NULL && value->region == NEAP_REGION_ARENA) p->kept = frames;

  /* an item of the outer frame, which the forward's body has under the same number */
  if (p->outer != NULL && value->region == NEAP_REGION_FRAME)
    for (int v = 0; v < outside->n_value; v++)
      if (outside->value[v].region == NEAP_REGION_FRAME &&
          outside->value[v].argument == value->argument)
        p->kept = v;
  if (p->kept < 0 || outside->value[p->kept].node < 0) return false;
  p->forward = &outside->node[outside->value[p->kept].node];
  return true;
}

/* Loop `n` of the graph, the backward's body of `outer` unless that is NULL, if it is a backward
 * one whose forward is here; pairs within it first. */
static neap_status walk_loop(walk *w, pair *outer, neap_graph *graph, int n, neap_error *error) {
  pair p = {.outer = outer, .graph = graph, .backward = &graph->node[n]};
  const neap_loop *loop = p.backward->loop;

  /* Only frames of a known size can shrink, where their maker is at hand. */
  if (loop == NULL || !loop->is_backward || loop->grows || loop->frames < 0) return NEAP_OK;
  if (!find_forward(&p)) return NEAP_OK;

  /* The two bodies: a forward's is its last subgraph, a backward has no other. */
  p.f = p.forward->sub[p.forward->n_sub - 1];
  p.b = p.backward->sub[0];
  p.times = (outer != NULL ? outer->times : 1) * most_iterations(p.forward->loop);
  NEAP_TRY(fill_lists(&p, error));
  find_read(&p);

  /* Pairs within come first: what they no longer keep makes this one's frame smaller. */
  for (int m = 0; m < p.b->n_node; m++) NEAP_TRY(walk_loop(w, &p, p.b, m, error));
  find_read(&p); /* they may read more of this one than before */
  /* Only marked nodes run again. Where nothing does, and no pair within has changed, the frames
   * stay as they are. */
  if (w->lists) return list_nodes(&p, w, error);
  choose_nodes(&p, false);
  if (p.n_recomputed == 0 && !p.is_changed) return NEAP_OK;
  NEAP_TRY(lay_out_items(&p, error));
  NEAP_TRY(add_nodes(&p, error));
  NEAP_TRY(graph_make_edges(p.f, error));
  return graph_make_edges(p.b, error);
}

/* ---- branches -------------------------------------------------------------------------------- */

/* A branch of a backward If: forward nodes, then backward ones. */
static neap_status walk_branch(walk *w, neap_graph *branch, neap_error *error) {
  int n = 0, *list = neap_arena_alloc(&branch->arena, ((size_t)branch->n_node + 1) * sizeof *list);
  if (list == NULL) return graph_no_memory(error);
  for (int m = 0; m < branch->n_node; m++) {
    const neap_node *node = &branch->node[m];
    if (!neap_graph_can_recompute(branch, m)) continue;
    if (node->recompute) list[n++] = m;

    /* What a branch makes lies in its own bytes, and once, however often the branch runs. */
    if (!w->lists) continue;
    size_t bytes = 0;
    for (int k = 0; k < node->n_out; k++) bytes += neap_align(branch->value[node->out[k]].bytes);
    w->at.times = 1;
    NEAP_TRY(list_node(w, branch, m, bytes, true, error));
  }
  return w->lists ? NEAP_OK : neap_graph_recompute(branch, n, list, error);
}

/* ---- the door -------------------------------------------------------------------------------- */

/* The bodies of a graph's nodes, from inside out. */
static neap_status walk_bodies(walk *w, neap_graph *graph, bool is_top, neap_error *error) {
  for (int n = 0; n < graph->n_node; n++) {
    /* Entries of the list name the node of the whole graph in whose bytes they would run, whatever
     * the depth. */
    const neap_node *node = &graph->node[n];
    bool is_branch = node->loop == NULL && node->phase == NEAP_PHASE_BACKWARD;
    if (is_top) w->at.scratch = w->at.forward = n;
    if (is_top) w->at.frames = NEAP_NO_VALUE;
    for (int s = 0; s < node->n_sub; s++) {
      NEAP_TRY(walk_bodies(w, node->sub[s], false, error));
      if (is_branch) NEAP_TRY(walk_branch(w, node->sub[s], error));
    }
    /* What a loop of the graph itself keeps lies in a value of it. */
    if (is_top && node->loop != NULL && node->loop->is_backward && node->loop->frames >= 0) {
      w->at.frames = node->in[node->loop->frames];
      if (w->at.frames >= 0) w->at.forward = graph->value[w->at.frames].node;
    }
    NEAP_TRY(walk_loop(w, NULL, graph, n, error));
  }
  return w->lists ? NEAP_OK : graph_make_edges(graph, error);
}

/* No node is marked; what the user marked has been heeded when the graph was built. */
static void end_marks(neap_graph *graph) {
  for (int n = 0; n < graph->n_node; n++) {
    graph->node[n].recompute = false;
    for (int s = 0; s < graph->node[n].n_sub; s++) end_marks(graph->node[n].sub[s]);
  }
}

neap_status neap_graph_body_nodes(neap_graph *graph, int *n, neap_body_node **list,
                                  neap_error *error) {
  walk w = {.lists = true};
  end_marks(graph);
  neap_status status = walk_bodies(&w, graph, true, error);
  if (status != NEAP_OK) {
    neap_free(w.body);
    return status;
  }
  *n = w.n_body;
  *list = w.body;
  return NEAP_OK;
}

neap_status rewrite_recompute_bodies(neap_graph *graph, int n, const int *recomputed,
                                     neap_error *error) {
  neap_body_node *list = NULL;
  int n_list = 0;
  if (n == 0) return NEAP_OK;

  /* Places mean something only in this list, which is made again of the graph; nodes are marked by
   * it. */
  NEAP_TRY(neap_graph_body_nodes(graph, &n_list, &list, error));
  neap_status status = NEAP_OK;
  for (int i = 0; i < n; i++) {
    bool is_next =
      recomputed[i] >= 0 && recomputed[i] < n_list && (i == 0 || recomputed[i] > recomputed[i - 1]);
    if (!is_next) {
      status = neap_fail(error, NEAP_PLAN,
                         "op %d of the bodies of \"%s\" can't be recomputed: %d ops of them can",
                         recomputed[i] + 1, graph->name != NULL ? graph->name : "?", n_list);
      break;
    }
    list[recomputed[i]].graph->node[list[recomputed[i]].node].recompute = true;
  }
  neap_free(list);

  /* From inside out the marked nodes are made to run again. */
  walk w = {0};
  return status == NEAP_OK ? walk_bodies(&w, graph, true, error) : status;
}
