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
 * How much is recomputed is a level, from 1 to NEAP_BODY_LEVELS: first what moves bytes rather
 * than computes, then whatever can be, in branches but for every sqrt(n)-th node (T. Chen et al.,
 * 2016). Levels depend on the graph alone; a budget takes the first that keeps it
 * (driver/ladder.c).
 *
 * INVARIANT: both halves of a loop see the same items, those of states first.
 * INVARIANT: what a recomputed node reads is there when the backward runs: it is neither freed nor
 * written again before.
 */
#include "rewrite/rewrite_int.h"

#include <math.h>
#include <string.h>

/* A loop and its backward in a laid-out graph, or in the two bodies of the pair around it. */
typedef struct pair {
  struct pair *outer; /* NULL: both are nodes of `graph` */
  neap_graph *graph;  /* of the backward */
  neap_node *forward, *backward;
  neap_graph *f, *b;      /* their bodies */
  neap_value_id kept;     /* in the forward's graph: its frames */
  bool is_less;           /* a pair within keeps less than it did */
  bool *can, *recomputed; /* by node of f: may run in b too; does */
  int *seen;              /* by value of f: as b sees it; NEAP_NO_VALUE */
  int n_recomputed;
} pair;

/* Operations for a byte moved below which a node is cheap to run again. */
static const double FLOPS_A_BYTE = 4;

static bool is_cheap(const neap_graph *graph, const neap_node *node) {
  double bytes = 0;
  for (int i = 0; i < node->n_in; i++)
    if (node->in[i] >= 0) bytes += (double)graph->value[node->in[i]].bytes;
  for (int k = 0; k < node->n_out; k++) bytes += (double)graph->value[node->out[k]].bytes;
  return node->cost.flops <= FLOPS_A_BYTE * bytes;
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

/* Whether the backward can read what parameter v of the forward's body holds. */
static bool has_param(const pair *p, neap_value_id v) {
  const neap_loop *loop = p->forward->loop;
  const neap_port *port = &loop->port[p->f->value[v].argument];
  if (find_there(p, v) < 0) return false;
  if (port->kind == NEAP_PORT_STATE) return loop->state[port->index].item >= 0;
  if (port->kind != NEAP_PORT_OPERAND && port->kind != NEAP_PORT_SLICE) return false;
  neap_value_id operand = p->forward->in[port->index];
  return operand >= 0 && has_operand(p, operand);
}

/* Whether v is there before an iteration of b, or can be given to it. */
static bool is_there(const pair *p, neap_value_id v) {
  const neap_value *value = &p->f->value[v];
  if (!has_one_version(p->f, v)) return false;
  if (value->region == NEAP_REGION_FRAME) return true;
  if (value->region != NEAP_REGION_ARGUMENT) return false;
  return value->node < 0 ? has_param(p, v) : find_there(p, v) >= 0;
}

/* Whether input v of a node of f can be had in b. */
static bool can_read(const pair *p, neap_value_id v) {
  const neap_value *value = &p->f->value[v];
  if (value->region == NEAP_REGION_ARENA) return has_one_version(p->f, v) && p->can[value->node];
  return is_there(p, v);
}

/* Whether the node can run in the backward's body too, and should at this level. */
static bool can_run_again(const pair *p, const neap_node *node, int level) {
  if ((node->effects & ~(unsigned)NEAP_EFFECT_RANDOM) != 0 || node->n_sub > 0 ||
      node->n_enforced > 0)
    return false;
  if (level == 1 && !is_cheap(p->f, node)) return false;
  /* What it makes lies in the iteration alone, and stays as it makes it. */
  for (int k = 0; k < node->n_out; k++) {
    const neap_value *value = &p->f->value[node->out[k]];
    bool is_own = value->region == NEAP_REGION_ARENA || value->region == NEAP_REGION_FRAME;
    if (!is_own || value->is_stash || !has_one_version(p->f, node->out[k])) return false;
  }
  for (int i = 0; i < node->n_in; i++)
    if (node->in[i] >= 0 && !can_read(p, node->in[i])) return false;
  return true;
}

static neap_status take_lists(pair *p, neap_error *error) {
  size_t n = (size_t)p->f->n_node + 1;
  p->can = neap_arena_alloc(&p->b->arena, n * sizeof(bool));
  p->recomputed = neap_arena_alloc(&p->b->arena, n * sizeof(bool));
  p->seen = neap_arena_alloc(&p->b->arena, ((size_t)p->f->n_value + 1) * sizeof(int));
  if (p->can == NULL || p->recomputed == NULL || p->seen == NULL) return graph_no_memory(error);
  for (int v = 0; v < p->f->n_value; v++) p->seen[v] = NEAP_NO_VALUE;
  return NEAP_OK;
}

/* Nodes that make a kept value and can run again do; and those that they read of, in the end. */
static void choose_nodes(pair *p, int level) {
  /* Makers come before readers: who can is asked from the first on, who does from the last back. */
  for (int m = 0; m < p->f->n_node; m++) p->can[m] = can_run_again(p, &p->f->node[m], level);
  for (int m = p->f->n_node - 1; m >= 0; m--) {
    const neap_node *node = &p->f->node[m];
    for (int k = 0; k < node->n_out; k++)
      if (p->can[m] && p->f->value[node->out[k]].region == NEAP_REGION_FRAME)
        p->recomputed[m] = true;
    if (!p->recomputed[m]) continue;
    p->n_recomputed++;
    /* What it reads of the iteration's arena is gone by then, so it is made again too. */
    for (int i = 0; i < node->n_in; i++) {
      const neap_value *value = node->in[i] >= 0 ? &p->f->value[node->in[i]] : NULL;
      if (value != NULL && value->node >= 0 && value->region == NEAP_REGION_ARENA)
        p->recomputed[value->node] = true;
    }
  }
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
  *out = p->seen[v];
  if (*out < 0) *out = find_there(p, v);
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
  for (int i = 0; i < node.n_in; i++) {
    ids[i] = NEAP_NO_VALUE;
    if (node.in[i] >= 0) NEAP_TRY(see(p, node.in[i], &ids[i], error));
  }
  for (int k = 0; k < node.n_out; k++) {
    /* What the backward found in the frame is now what this node makes; all else is new to b. */
    neap_value_id v = node.out[k];
    int id = NEAP_NO_VALUE;
    if (p->f->value[v].region == NEAP_REGION_FRAME) id = find_there(p, v);
    if (id < 0) id = copy_value(p, v);
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
  node.in = ids;
  node.out = ids + node.n_in;
  node.forward = at;
  node.recomputed = true;
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

/* Items of the loop without those that `gone` says; each half has a list of its own. */
static void shrink_record(neap_loop *loop, const bool *gone) {
  int n = 0;
  loop->record_bytes = 0;
  for (int k = 0; k < loop->n_item; k++) {
    if (gone[k]) continue;
    neap_frame_item item = loop->item[k];
    item.offset = loop->record_bytes;
    loop->record_bytes += item.bytes;
    loop->item[n++] = item;
  }
  loop->n_item = n;
}

/* The frames of the loop as one value, which the pair around it may keep. */
static void resize_frames(pair *p) {
  size_t bytes = neap_loop_frames_bytes(p->forward->loop);
  neap_graph *outside = p->outer != NULL ? p->outer->f : p->graph;
  neap_value *both[] = {&outside->value[p->kept],
                        &p->graph->value[p->backward->in[p->backward->loop->frames]]};
  for (int h = 0; h < 2; h++) {
    both[h]->bytes = bytes;
    both[h]->type.shape = NEAP_SHAPE((int64_t)bytes);
  }
  if (p->outer == NULL) return;
  p->outer->forward->loop->item[both[0]->argument].bytes = neap_align(bytes);
  p->outer->backward->loop->item[both[0]->argument].bytes = neap_align(bytes);
  p->outer->is_less = true;
}

/* Kept values that run again leave the frames; those behind them move up. */
static neap_status drop_items(pair *p, neap_error *error) {
  neap_loop *loop = p->forward->loop, *back = p->backward->loop;
  int *place = neap_arena_alloc(&p->b->arena, ((size_t)loop->n_item + 1) * sizeof *place);
  bool *gone = neap_arena_alloc(&p->b->arena, (size_t)loop->n_item + 1);
  if (place == NULL || gone == NULL) return graph_no_memory(error);
  /* Which items go: those of values that run again, which are transient in the forward from now
   * on. */
  for (int v = 0; v < p->f->n_value; v++) {
    neap_value *value = &p->f->value[v];
    if (value->region != NEAP_REGION_FRAME || value->node < 0 || !p->recomputed[value->node])
      continue;
    gone[value->argument] = true;
    value->region = NEAP_REGION_ARENA;
    value->argument = 0;
    value->is_last = false;
  }
  /* The new numbers of those that stay, wherever one is named: in both bodies, and in the ports of
   * the backward. */
  int n = 0;
  for (int k = 0; k < loop->n_item; k++) place[k] = gone[k] ? -1 : n++;
  neap_graph *both[] = {p->f, p->b};
  for (int h = 0; h < 2; h++)
    for (int v = 0; v < both[h]->n_value; v++) {
      neap_value *value = &both[h]->value[v];
      if (value->region == NEAP_REGION_FRAME) value->argument = place[value->argument];
    }
  for (int i = 0; i < back->n_port; i++) {
    neap_port *port = &back->port[i];
    bool is_kept = port->kind == NEAP_PORT_KEPT || port->kind == NEAP_PORT_KEPT_NEXT;
    if (is_kept && port->index >= 0) port->index = place[port->index];
  }
  /* The record itself; the halves may have one list of items. */
  shrink_record(loop, gone);
  if (back->item != loop->item) {
    shrink_record(back, gone);
  } else {
    back->n_item = loop->n_item;
    back->record_bytes = loop->record_bytes;
  }
  resize_frames(p);
  return NEAP_OK;
}

/* Sets p->forward and p->kept: the loop that made the frames which p->backward reads. false: it is
 * not here. */
static bool find_forward(pair *p) {
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
static neap_status recompute_in_loop(pair *outer, neap_graph *graph, int n, int level,
                                     neap_error *error) {
  pair p = {.outer = outer, .graph = graph, .backward = &graph->node[n]};
  const neap_loop *loop = p.backward->loop;
  /* Only frames of a known size can shrink, where their maker is at hand. */
  if (loop == NULL || !loop->is_backward || loop->grows || loop->frames < 0) return NEAP_OK;
  if (!find_forward(&p)) return NEAP_OK;
  p.f = p.forward->sub[p.forward->n_sub - 1];
  p.b = p.backward->sub[0];
  NEAP_TRY(take_lists(&p, error));
  /* Pairs within come first: what they no longer keep makes this one's frame smaller. */
  for (int m = 0; m < p.b->n_node; m++) NEAP_TRY(recompute_in_loop(&p, p.b, m, level, error));
  choose_nodes(&p, level);
  if (p.n_recomputed == 0 && !p.is_less) return NEAP_OK;
  NEAP_TRY(add_nodes(&p, error));
  NEAP_TRY(drop_items(&p, error));
  NEAP_TRY(graph_make_edges(p.f, error));
  return graph_make_edges(p.b, error);
}

/* ---- branches -------------------------------------------------------------------------------- */

/* A branch of a backward If: forward nodes, then backward ones. */
static neap_status recompute_in_branch(neap_graph *branch, int level, neap_error *error) {
  int *list = neap_arena_alloc(&branch->arena, ((size_t)branch->n_node + 1) * sizeof *list);
  if (list == NULL) return graph_no_memory(error);
  /* How many can run again, and from that how long the runs are between those that do not. */
  int n_can = 0;
  for (int m = 0; m < branch->n_node; m++)
    if (neap_graph_can_recompute(branch, m)) n_can++;
  int run = NEAP_MAX((int)ceil(sqrt((double)n_can)), 2);
  int n = 0, at = 0;
  for (int m = 0; m < branch->n_node; m++) {
    if (!neap_graph_can_recompute(branch, m)) continue;
    at++;
    bool is_recomputed = at % run != 0;
    if (level == 1) is_recomputed = is_cheap(branch, &branch->node[m]);
    if (is_recomputed) list[n++] = m;
  }
  return neap_graph_recompute(branch, n, list, error);
}

neap_status rewrite_recompute_bodies(neap_graph *graph, int level, neap_error *error) {
  if (level == 0) return NEAP_OK;
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    bool is_branch = node->loop == NULL && node->phase == NEAP_PHASE_BACKWARD;
    for (int s = 0; s < node->n_sub; s++) {
      NEAP_TRY(rewrite_recompute_bodies(node->sub[s], level, error));
      if (is_branch) NEAP_TRY(recompute_in_branch(node->sub[s], level, error));
    }
    NEAP_TRY(recompute_in_loop(NULL, graph, n, level, error));
  }
  return graph_make_edges(graph, error);
}

bool neap_graph_has_bodies(const neap_graph *graph) {
  for (int n = 0; n < graph->n_node; n++)
    if (graph->node[n].phase == NEAP_PHASE_BACKWARD && graph->node[n].n_sub > 0) return true;
  return false;
}
