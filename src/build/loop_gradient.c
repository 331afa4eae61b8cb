/* loop_gradient.c: the gradient of While and Recurrent is a backward loop over the frames that the
 * forward left.
 *
 * The body and its backward are built as one *joint* graph and then cut (cut.c says where). Values
 * that are kept get places in the iteration's frame; the forward's half writes them there, the
 * backward's half reads them. A state that the backward reads lies in the frames itself, so that
 * the forward writes it where it stays.
 *
 * In the backward loop the gradients of states are its states, those of sequences are rows, and
 * those of captures are sums that lie in its outputs, in f32 where the capture is bf16 or f16: who
 * differentiates rounds them once (gradient.c). A resident blob that the body writes where it
 * lies is a state too: one that is not in the frames, so that its gradient is passed on, and what
 * it was before is gone. All temporaries of the backward have one place, whatever the number of
 * iterations.
 *
 * INVARIANT: the forward's arguments keep their numbers in both halves; those that only the
 * backward has come behind.
 */
#include "build/build_int.h"
#include "ops/tile.h"

#include <stdio.h>
#include <string.h>

typedef struct loop_gradient {
  neap_builder *b;
  int index; /* the forward loop, in b's graph */
  neap_node node;
  int n_state, n_seq;
  const neap_value_id *dout;
  const bool *want;
  /* by state that the body writes where it lies: whether a gradient that passes through it is asked
   * for, and whether there is one */
  bool *may_carry, *carries;
  neap_joint joint;
  /* Arguments of the joint graph. seed: of result k; sum: of capture i; -1 where none. */
  int n_param, n_seed, n_wrt;
  int *in_argument, *out_argument, *seed_result, *seed_param, *wrt, *wrt_of, *seed_argument,
    *sum_param;
  neap_type *in_type;
  build_cut cut;
  int *next_of; /* by value: state that a kept value is the next of; -1 */
  int *item_of; /* by value: item of a kept value */
  neap_loop *forward, *backward;
  neap_value_id *in;        /* the backward node's operands */
  int n_in, n_out, *out_of; /* output that holds the gradient of input i; -1 */
} loop_gradient;

static bool is_float(neap_type type) { return neap_dtype_is_float(type.dtype); }

/* Of the gradient of a capture: a sum over iterations. */
static neap_type sum_type(neap_type type) {
  type.dtype = neap_compute_dtype(type.dtype);
  return type;
}

/* Whether the backward loop has a state for the gradient of state k: of a resident blob only where
 * one arrives, since what writes it may be an op without a gradient, such as an update. */
static bool passes_on(const loop_gradient *g, int k) {
  return g->node.loop->port[k].kind == NEAP_PORT_STATE || g->carries[k];
}

/* Whether result k has a gradient of its own in the backward loop: states pass it on, rows when it
 * arrives. */
static bool has_seed(const loop_gradient *g, int k) {
  const neap_graph *body = g->node.sub[g->node.n_sub - 1];
  if (!is_float(body->value[body->output[k]].type)) return false;
  return k < g->n_state ? passes_on(g, k) : g->dout[k] >= 0;
}

/* Lists by argument, -1 all over. The forward's operands and as many again for gradients are the
 * most there can be. */
static neap_status allocate(loop_gradient *g, neap_error *error) {
  /* All lists with the same room, since all count arguments. */
  neap_arena *arena = &g->b->graph->arena;
  size_t n = 2 * (size_t)(g->node.n_in + g->node.n_out) + 8;
  int **ints[] = {&g->in_argument, &g->out_argument,  &g->seed_result, &g->seed_param, &g->wrt,
                  &g->wrt_of,      &g->seed_argument, &g->sum_param,   &g->out_of};
  for (int k = 0; k < NEAP_COUNT(ints); k++) {
    if ((*ints[k] = neap_arena_alloc(arena, n * sizeof(int))) == NULL)
      return graph_no_memory(error);
    for (size_t i = 0; i < n; i++) (*ints[k])[i] = -1;
  }
  g->in_type = neap_arena_alloc(arena, n * sizeof *g->in_type);
  g->in = neap_arena_alloc(arena, n * sizeof *g->in);
  g->may_carry = neap_arena_alloc(arena, n * sizeof(bool));
  g->carries = neap_arena_alloc(arena, n * sizeof(bool));
  return g->in_type == NULL || g->in == NULL || g->may_carry == NULL || g->carries == NULL
           ? graph_no_memory(error)
           : NEAP_OK;
}

/* may_carry: of the resident blobs that the body writes, those that depend on a wanted input, in
 * this or an earlier iteration. They carry a gradient where one arrives behind the loop; whether
 * one does within it the joint graph says. */
static neap_status find_carried(loop_gradient *g, neap_error *error) {
  /* Which values of the body depend on a wanted input, iteration after iteration. */
  const neap_graph *body = g->node.sub[g->node.n_sub - 1];
  bool *active = neap_arena_alloc(&g->b->graph->arena, (size_t)body->n_value + 1);
  if (active == NULL) return graph_no_memory(error);
  for (int i = 0; i < g->node.n_in; i++) active[body->param[i]] = g->want[i];
  bool more = true;
  while (more) {
    /* One iteration, from its parameters to its results. */
    for (int n = 0; n < body->n_node; n++) {
      const neap_node *node = &body->node[n];
      bool is_active = false;
      for (int i = 0; i < node->n_in; i++)
        if (node->in[i] >= 0 && active[node->in[i]]) is_active = true;
      if (!is_active) continue;
      for (int k = 0; k < node->n_out; k++) active[node->out[k]] = true;
    }
    /* A state that one leaves active the next begins with. Each round adds one, or is the last. */
    more = false;
    for (int s = 0; s < g->n_state; s++) {
      if (!active[body->output[s]] || active[body->param[s]]) continue;
      active[body->param[s]] = more = true;
    }
  }
  for (int s = 0; s < g->n_state; s++) {
    /* Other states always have a gradient in the backward loop: see passes_on. */
    bool resident = g->node.loop->port[s].kind != NEAP_PORT_STATE;
    g->may_carry[s] =
      resident && active[body->param[s]] && is_float(body->value[body->param[s]].type);
    g->carries[s] = g->may_carry[s] && g->dout[s] >= 0;
  }
  return NEAP_OK;
}

/* ---- the joint graph ------------------------------------------------------------------------- */

/* A parameter that only the backward has: its argument comes behind those of the forward and its
 * condition. */
static int add_param(loop_gradient *g, neap_type type) {
  int argument = g->node.n_in + g->node.n_out + 1 + (g->n_param - g->node.n_in);
  g->in_type[g->n_param] = type;
  g->in_argument[g->n_param] = argument;
  return g->n_param++;
}

/* Parameters: the body's; a gradient for each seeded result; a running sum for each wanted
 * capture. */
static neap_status build(loop_gradient *g, neap_error *error) {
  const neap_graph *body = g->node.sub[g->node.n_sub - 1];
  int n_in = g->node.n_in, n_out = g->node.n_out;

  g->n_wrt = g->n_seed = 0;
  for (int i = 0; i < n_in; i++) {
    g->in_type[i] = body->value[body->param[i]].type;
    g->in_argument[i] = i;
    /* A state's gradient may have to be passed from iteration to iteration, wanted in the end or
     * not: `label` says which. */
    bool is_wanted = g->want[i];
    if (i < g->n_state) is_wanted = passes_on(g, i) || g->may_carry[i];
    if (!is_wanted || !is_float(g->in_type[i])) continue;
    g->wrt_of[i] = g->n_wrt;
    g->wrt[g->n_wrt++] = i;
  }
  g->n_param = n_in;

  /* Results lie where the forward put them, and each seed is a parameter behind the forward's. */
  for (int k = 0; k < n_out; k++) {
    const neap_value *result = &body->value[body->output[k]];
    g->out_argument[k] = result->argument;
    if (!has_seed(g, k)) continue;
    g->seed_result[g->n_seed] = k;
    g->seed_param[g->n_seed++] = add_param(g, result->type);
    g->seed_argument[k] = g->in_argument[g->n_param - 1];
  }

  /* A capture is the same in all iterations, so its gradient is their sum, which each reads and
   * writes. */
  for (int i = g->n_state + g->n_seq; i < n_in; i++)
    if (g->wrt_of[i] >= 0) g->sum_param[i] = add_param(g, sum_type(g->in_type[i]));

  /* The body's net is built anew, with its backward behind it: the body that the node has so far
   * was built for the forward alone, and its values are finished. */
  int subnet = g->node.n_sub - g->node.n_body, a = neap_op_subnet_attr(g->node.op, subnet);
  const neap_net *net = a >= 0 ? g->node.attrs[a].net : NULL;

  /* A Recurrent may name ops to recompute; While has no such attribute. */
  int recompute = neap_op_attr_index(g->node.op, "recompute");
  neap_sub_spec spec = {.net = net,
                        .n_in = g->n_param,
                        .in_type = g->in_type,
                        .in_argument = g->in_argument,
                        .n_out = n_out,
                        .out_argument = g->out_argument,
                        .n_seed = NEAP_MAX(g->n_seed, 1), /* extra parameters are allowed */
                        .n_wrt = g->n_wrt,
                        .seed_result = g->seed_result,
                        .seed_param = g->seed_param,
                        .wrt = g->wrt,
                        .n_recompute = recompute >= 0 ? g->node.attrs[recompute].n : 0,
                        .recompute = recompute >= 0 ? g->node.attrs[recompute].ints : NULL,
                        .stream = build_sub_stream(&g->node, subnet)};
  return build_joint(g->b, &spec, &g->joint, error);
}

/* Inputs whose wrt_of is -1 go from the list of those that a gradient is asked for; the others get
 * their new places in it. */
static void drop_unwanted(loop_gradient *g) {
  int n = 0;
  for (int w = 0; w < g->n_wrt; w++) {
    int i = g->wrt[w];
    if (g->wrt_of[i] < 0) continue;
    g->joint.grad[n] = g->joint.grad[w];
    g->wrt_of[i] = n;
    g->wrt[n++] = i;
  }
  g->n_wrt = n;
}

/* The joint graph with a state for each gradient that there is. A gradient that reaches a resident
 * blob within an iteration is one of what the iteration before wrote there: then the blob carries
 * one, and the graph is built again, since that may reach others. */
static neap_status build_carrying(loop_gradient *g, neap_error *error) {
  NEAP_TRY(find_carried(g, error));
  for (;;) {
    NEAP_TRY(build(g, error));
    /* Each round lets at least one more state carry, so that there are at most n_state of them. */
    bool more = false;
    for (int s = 0; s < g->n_state; s++) {
      if (!g->may_carry[s] || g->carries[s] || g->joint.grad[g->wrt_of[s]] < 0) continue;
      g->carries[s] = more = true;
    }
    if (!more) break;
    build_joint_fini(&g->joint);
  }

  /* What was asked for a state that carries none in the end. */
  for (int i = 0; i < g->n_state; i++)
    if (!passes_on(g, i)) g->wrt_of[i] = -1;
  drop_unwanted(g);
  return NEAP_OK;
}

/* ---- the cut --------------------------------------------------------------------------------- */

static bool is_kept(const loop_gradient *g, int v) { return g->cut.label[v] == BUILD_KEEP; }

/* The body writes a resident blob in place, and the backward would have to read what was there
 * before: those bytes are gone. */
static neap_status overwritten(const loop_gradient *g, const char *name, neap_error *error) {
  neap_fail(error, NEAP_GRAPH, "the backward of %s \"%s\" needs \"%s\", which its body overwrites",
            g->node.op->name, g->node.name, name);
  neap_hint(error,
            "carry it as a state of the loop, take gradients inside the body, or copy the blob "
            "before the loop");
  return NEAP_GRAPH;
}

/* The labels. A state's gradient is passed on only where it is asked for, or where an earlier
 * iteration makes one of it that is: what it would take else is dead, and so are the forward's
 * values that only that reads. */
static neap_status label(loop_gradient *g, neap_error *error) {
  /* At first the states whose gradient is wanted outside; each round adds those that these need. */
  neap_graph *joint = g->joint.builder.graph;
  neap_value_id *wanted = neap_arena_alloc(&joint->arena, ((size_t)g->n_wrt + 1) * sizeof *wanted);
  bool *passed = neap_arena_alloc(&joint->arena, (size_t)g->n_state + 1);
  if (wanted == NULL || passed == NULL) return graph_no_memory(error);
  for (int s = 0; s < g->n_state; s++) passed[s] = g->want[s] && g->wrt_of[s] >= 0;
  bool more = true;
  while (more) {
    for (int w = 0; w < g->n_wrt; w++) {
      bool is_wanted = g->wrt[w] >= g->n_state || passed[g->wrt[w]];
      wanted[w] = is_wanted ? g->joint.grad[w] : NEAP_NO_VALUE;
    }
    NEAP_TRY(build_cut_make(joint, g->joint.n_forward, g->n_wrt, wanted, false, &g->cut, error));
    /* What is read of a gradient that arrives, the iteration behind has to pass on. Each round lets
     * at least one more state do so, so that there are at most n_state of them. */
    more = false;
    for (int i = 0; i < g->n_seed; i++) {
      int s = g->seed_result[i];
      if (s >= g->n_state || passed[s] || !g->cut.read[joint->param[g->seed_param[i]]]) continue;
      passed[s] = more = true;
    }
  }
  for (int s = 0; s < g->n_state; s++)
    if (!passed[s]) g->wrt_of[s] = g->seed_argument[s] = -1;
  drop_unwanted(g);
  return NEAP_OK;
}

/* The labels; and which of the kept values are states that the next iteration begins with. */
static neap_status decide(loop_gradient *g, neap_error *error) {
  neap_graph *joint = g->joint.builder.graph;
  size_t n = (size_t)joint->n_value + 1;
  NEAP_TRY(label(g, error));

  /* Refused before any node is touched. */
  if (g->cut.overwritten >= 0) return overwritten(g, joint->value[g->cut.overwritten].name, error);
  g->next_of = neap_arena_alloc(&joint->arena, n * sizeof(int));
  g->item_of = neap_arena_alloc(&joint->arena, n * sizeof(int));
  if (g->next_of == NULL || g->item_of == NULL) return graph_no_memory(error);
  for (int v = 0; v < joint->n_value; v++) {
    g->next_of[v] = -1;
    if (!is_kept(g, v)) continue;
    /* Such a value need not be kept twice: it is the state that the next iteration begins with, and
     * lies there. Of two states that it is, the first will do. */
    for (int k = g->n_state - 1; k >= 0; k--)
      if (g->joint.result[k] == v && g->node.loop->port[k].kind == NEAP_PORT_STATE)
        g->next_of[v] = k;
  }
  return NEAP_OK;
}

/* Items: states that the backward reads before or after an iteration, then kept values. */
static neap_status lay_out_frame(loop_gradient *g, neap_error *error) {
  const neap_graph *joint = g->joint.builder.graph;
  neap_loop *loop = g->forward = graph_copy_loop(&g->b->graph->arena, g->node.loop);
  if (loop == NULL) return graph_no_memory(error);
  loop->item =
    neap_arena_alloc(&g->b->graph->arena, ((size_t)joint->n_value + 1) * sizeof *loop->item);
  if (loop->item == NULL) return graph_no_memory(error);

  for (int s = 0; s < g->n_state; s++) {
    /* Before the iteration, as its parameter, or behind it, as the kept value that is its next. */
    bool is_read = g->cut.read[joint->param[s]];
    for (int v = 0; v < joint->n_value; v++)
      if (is_kept(g, v) && g->next_of[v] == s) is_read = true;
    if (!is_read) continue;
    if (loop->port[s].kind != NEAP_PORT_STATE)
      return overwritten(g, joint->value[joint->param[s]].name, error);
    loop->state[s].item = loop->n_item;
    loop->item[loop->n_item++].bytes = neap_align(loop->state[s].bytes);
  }

  /* States come first: they are held once more than the rest, as what the last iteration leaves. */
  int n_state_item = loop->n_item;
  for (int v = 0; v < joint->n_value; v++) {
    if (!is_kept(g, v)) continue;
    if (g->next_of[v] >= 0) continue;
    g->item_of[v] = loop->n_item;
    loop->item[loop->n_item++].bytes = neap_align(joint->value[v].bytes);
  }

  /* Offsets, one behind the other, and how much of a record the states are. */
  for (int i = 0; i < loop->n_item; i++) {
    loop->item[i].offset = loop->record_bytes;
    loop->record_bytes += loop->item[i].bytes;
    if (i < n_state_item) loop->state_bytes = loop->record_bytes;
  }

  /* Without a limit nobody knows how many records there will be. */
  loop->grows = loop->max == 0 && loop->has_condition;
  loop->frames = g->node.n_in + g->node.n_out;
  return NEAP_OK;
}

/* A kept value of either half: defined elsewhere in the backward, kept beside its iteration in the
 * forward. */
static void place_kept(const loop_gradient *g, neap_graph *half, int v, bool is_backward) {
  neap_value *value = &half->value[v];
  if (is_backward) value->is_blob = false;
  if (g->next_of[v] >= 0 && !is_backward) return; /* build_result puts it there */
  value->region = g->next_of[v] >= 0 ? NEAP_REGION_ARGUMENT : NEAP_REGION_FRAME;
  value->argument = g->next_of[v] >= 0 ? g->node.n_in + g->next_of[v] : g->item_of[v];
  value->is_last = !is_backward;
}

/* The forward's half, which replaces the body that was built without a gradient. */
static neap_status cut_forward(loop_gradient *g, neap_error *error) {
  neap_joint *joint = &g->joint;
  neap_graph *whole = joint->builder.graph, *half = graph_clone(whole, joint->n_forward);
  if (half == NULL) return graph_no_memory(error);

  for (int v = 0; v < whole->n_value; v++)
    if (is_kept(g, v)) place_kept(g, half, v, false);

  /* What only the backward takes is left out. */
  half->n_param = g->node.n_in;
  for (int i = 0; i < g->n_param; i++)
    NEAP_ASSERT(i < g->node.n_in ? g->in_argument[i] == i : g->in_argument[i] > g->node.n_in,
                "argument %d of \"%s\" has its number in both halves: %d", i, g->node.name,
                g->in_argument[i]);
  half->train = true;
  half->output = neap_arena_alloc(&half->arena, (size_t)(g->node.n_out + 1) * sizeof *half->output);
  neap_status status = half->output == NULL ? graph_no_memory(error) : NEAP_OK;

  /* The builder works on the half for as long as results are placed. */
  joint->builder.graph = half; /* copies are emitted into it */
  joint->builder.phase = NEAP_PHASE_FORWARD;
  for (int k = 0; k < g->node.n_out; k++)
    if (status == NEAP_OK)
      status = build_result(&joint->builder, g->out_argument[k], joint->result[k], error);
  joint->builder.graph = whole;

  /* Only a finished half replaces the body: a failure before leaves the forward as it was. */
  if (status == NEAP_OK) status = graph_finish(half, false, error);
  if (status != NEAP_OK) {
    neap_graph_free(half);
    return status;
  }
  neap_node *node = &g->b->graph->node[g->index];
  neap_graph_free(node->sub[node->n_sub - 1]);
  node->sub[node->n_sub - 1] = half;
  node->loop = g->forward;
  return NEAP_OK;
}

/* sum + gradient, in the sum's bytes. */
static neap_value_id accumulate(neap_builder *b, neap_value_id sum, neap_value_id gradient) {
  neap_grad emit = build_emitter(b);
  neap_value_id in[2] = {sum, gradient};
  return neap_grad_emit1(&emit, "Accumulate", 2, in, NULL, NULL);
}

/* The backward's half: results are the gradients, in the order of the wanted inputs. */
static neap_status cut_backward(loop_gradient *g, neap_error *error) {
  neap_joint *joint = &g->joint;
  neap_builder *b = &joint->builder;
  neap_graph *half = b->graph;
  int n_value = half->n_value;
  b->phase = NEAP_PHASE_BACKWARD;
  build_begin_emit(b, error);
  half->train = true;
  half->output = neap_arena_alloc(&half->arena, (size_t)(g->n_wrt + 1) * sizeof *half->output);
  if (half->output == NULL) return graph_no_memory(error);
  for (int v = 0; v < n_value; v++) {
    /* What the forward's results were, here nobody asks for. */
    half->value[v].is_last = false;
    if (!is_kept(g, v)) continue;
    NEAP_TRY(build_define_elsewhere(half, v, error));
    place_kept(g, half, v, true);
  }
  build_end_forward(half, joint->n_forward);

  /* Where each gradient goes: the next state, the row of this iteration, or the running sum. */
  for (int w = 0; w < g->n_wrt; w++) {
    int i = g->wrt[w], argument = -1;
    neap_value_id gradient = joint->grad[w];
    if (i < g->n_state) {
      argument = g->backward->n_port - g->n_wrt + w;
      /* A state of the backward loop must have a next value in each iteration, if only zeros. */
      if (gradient < 0) gradient = build_constant(b, g->in_type[i], 0);
    } else if (gradient >= 0 && i < g->n_state + g->n_seq) {
      argument = g->backward->n_port - g->n_wrt + w;
    } else if (gradient >= 0) {
      argument = g->in_argument[g->sum_param[i]];
      gradient = accumulate(b, half->param[g->sum_param[i]], gradient);
    }
    NEAP_TRY(b->emit_status);
    if (argument >= 0) NEAP_TRY(build_result(b, argument, gradient, error));
  }
  return graph_finish(half, false, error);
}

/* ---- the backward loop ----------------------------------------------------------------------- */

/* The position that v gets among the operands of the backward node. */
static int operand(loop_gradient *g, neap_value_id v) {
  g->in[g->n_in] = v;
  return g->n_in++;
}

/* The tables of the backward loop. Ports: those of the forward, of the extra parameters, then one
 * of each wrt for its result; those that get no kind are of arguments that the half does not
 * have. */
static neap_status new_backward(loop_gradient *g, neap_error *error) {
  const neap_node *node = &g->node;
  neap_arena *arena = &g->b->graph->arena;
  neap_loop *f = g->forward, *l = g->backward = neap_arena_alloc(arena, sizeof *l);
  if (l == NULL) return graph_no_memory(error);
  int n_forward = node->n_in + node->n_out + 1, n_extra = g->n_param - node->n_in;
  *l = (neap_loop){.is_backward = true,
                   .n_step = f->n_step,
                   .max = f->max,
                   .grows = f->grows,
                   .item = f->item,
                   .n_item = f->n_item,
                   .state_bytes = f->state_bytes,
                   .record_bytes = f->record_bytes,
                   .n_port = n_forward + n_extra + g->n_wrt,
                   .n_result = node->n_out};
  l->port = neap_arena_alloc(arena, (size_t)l->n_port * sizeof *l->port);
  l->state = neap_arena_alloc(arena, ((size_t)g->n_state + 1) * sizeof *l->state);
  l->zero = neap_arena_alloc(arena, ((size_t)g->n_wrt + 1) * sizeof *l->zero);
  l->arrives = neap_arena_alloc(arena, ((size_t)node->n_out + 1) * sizeof *l->arrives);
  return l->port == NULL || l->state == NULL || l->zero == NULL || l->arrives == NULL
           ? graph_no_memory(error)
           : NEAP_OK;
}

/* Gradients that arrive: of states they are states here, of rows rows. */
static void port_arriving(loop_gradient *g) {
  const neap_node *node = &g->node;
  neap_loop *f = g->forward, *l = g->backward;
  for (int k = 0; k < node->n_out; k++) {
    l->arrives[k] = -1;
    if (k < g->n_state) {
      l->port[node->n_in + k] = (neap_port){NEAP_PORT_KEPT_NEXT, f->state[k].item, 0};
      if (g->seed_argument[k] < 0) continue;
      /* It begins with what arrives from behind the loop, or with zeros. */
      l->port[g->seed_argument[k]] = (neap_port){NEAP_PORT_STATE, l->n_state, 0};
      int init = l->arrives[k] = g->dout[k] >= 0 ? operand(g, g->dout[k]) : -1;
      /* the forward has no buffer of a resident one */
      size_t bytes = g->joint.builder.graph->value[g->joint.result[k]].bytes;
      l->state[l->n_state++] = (neap_loop_state){init, -1, -1, bytes};
    } else if (g->seed_argument[k] >= 0) {
      l->arrives[k] = operand(g, g->dout[k]);
      l->port[g->seed_argument[k]] =
        (neap_port){NEAP_PORT_SLICE, l->arrives[k], f->port[node->n_in + k].bytes};
    }
  }
}

/* What the forward's body read: states out of the frames, the rest from the same operands. */
static void port_read(loop_gradient *g) {
  const neap_node *node = &g->node;
  neap_loop *f = g->forward, *l = g->backward;
  for (int i = 0; i < node->n_in; i++) {
    if (i < g->n_state)
      l->port[i] = (neap_port){NEAP_PORT_KEPT, f->state[i].item, 0};
    else
      l->port[i] = (neap_port){f->port[i].kind, operand(g, node->in[i]), f->port[i].bytes};
  }
}

/* Where each gradient goes. All operands are known by now, so that outputs can be numbered behind
 * them. */
static void port_results(loop_gradient *g) {
  neap_loop *f = g->forward, *l = g->backward;
  int s = 0; /* states of the backward loop met so far */
  for (int w = 0; w < g->n_wrt; w++) {
    int i = g->wrt[w], port = l->n_port - g->n_wrt + w;
    if (i < g->n_state) {
      /* What the first iteration leaves of it is the gradient of the initial value. */
      if (g->want[i]) {
        g->out_of[i] = g->n_out++;
        l->state[s].final = g->n_in + g->out_of[i];
      }
      l->port[port] = (neap_port){NEAP_PORT_NEXT, s, 0};
      s++;
      continue;
    }
    if (g->joint.grad[w] < 0) continue;
    g->out_of[i] = g->n_out++;
    int out = g->n_in + g->out_of[i];
    if (i < g->n_state + g->n_seq) {
      l->port[port] = (neap_port){NEAP_PORT_SLICE, out, f->port[i].bytes};
    } else {
      /* The sum lies in the output itself and begins with zeros. */
      l->port[g->in_argument[g->sum_param[i]]] = (neap_port){NEAP_PORT_OPERAND, out, 0};
      l->zero[l->n_zero++] = out;
    }
  }
}

/* The backward loop as data. Operands: gradients that arrive, sequences and captures, frames. */
static neap_status make_backward(loop_gradient *g, neap_error *error) {
  NEAP_TRY(new_backward(g, error));
  port_arriving(g);
  port_read(g);
  /* The value comes once the forward has it: add_frames. */
  g->backward->frames = operand(g, NEAP_NO_VALUE);
  port_results(g);
  return NEAP_OK;
}

/* The forward gets one more output; it lies in the arena like any other value. */
static neap_status add_frames(loop_gradient *g, neap_value_id *frames, neap_error *error) {
  /* A value of as many bytes as the records of all iterations have; of a loop without a limit a
   * head alone. */
  neap_graph *graph = g->b->graph;
  char name[256];
  snprintf(name, sizeof name, "%s.frames", g->node.name);
  size_t bytes = neap_loop_frames_bytes(g->forward);
  neap_type type = {NEAP_DTYPE_U8,
                    NEAP_SHAPE(bytes > INT64_MAX ? NEAP_COUNT_TOO_LARGE : (int64_t)bytes)};
  NEAP_TRY(neap_type_check(&type, "what the iterations keep for the backward", error));
  NEAP_TRY(build_count(g->b, 0, 0, bytes, error));

  /* The value, and it as the last output of the forward loop. */
  *frames = graph_add_value(graph, neap_intern(name), &type);
  neap_node *node = &graph->node[g->index];
  neap_value_id *ids =
    neap_arena_alloc(&graph->arena, (size_t)(node->n_in + node->n_out + 1) * sizeof *ids);
  if (*frames < 0 || ids == NULL || graph->value[*frames].name == NULL)
    return graph_no_memory(error);

  /* The node's lists have no room for one more, so both get a new place. */
  memcpy(ids, node->in, (size_t)node->n_in * sizeof *ids);
  memcpy(ids + node->n_in, node->out, (size_t)node->n_out * sizeof *ids);
  node->in = ids, node->out = ids + node->n_in;
  graph->value[*frames].node = g->index;
  graph->value[*frames].position = node->n_out;
  node->out[node->n_out++] = *frames;
  return NEAP_OK;
}

/* Whether a node of the half reads parameter `param`. */
static bool reads_port(const neap_graph *half, int param) {
  int v = half->param[param];
  for (int n = 0; n < half->n_node; n++)
    for (int i = 0; i < half->node[n].n_in; i++)
      if (half->node[n].in[i] == v) return true;
  return false;
}

/* The node; takes over the half graph. Operands that it does not read are absent: they need not
 * live until then. */
static neap_status add_backward(loop_gradient *g, neap_value_id frames, neap_value_id *din,
                                neap_error *error) {
  /* The operand of the frames has a value by now. */
  neap_graph *graph = g->b->graph, *half = g->joint.builder.graph;
  g->in[g->backward->frames] = frames;
  for (int i = g->n_state; i < g->node.n_in; i++)
    if (!reads_port(half, i)) g->in[g->backward->port[i].index] = NEAP_NO_VALUE;

  /* Name, place and random stream are the forward's: it stands for the same op of the net. */
  int made = graph_add_node(graph, neap_op_find("LoopGradient"), g->n_in, g->n_out);
  if (made < 0) return graph_no_memory(error);
  neap_node *back = &graph->node[made];
  memcpy(back->in, g->in, (size_t)g->n_in * sizeof *g->in);
  back->name = g->node.name, back->scope = g->node.scope, back->line = g->node.line;
  back->phase = NEAP_PHASE_BACKWARD;
  back->forward = g->index;
  back->stream = g->node.stream;
  back->loop = g->backward;

  /* What a net that is written out says of it. */
  int64_t *wrt = neap_arena_alloc(&graph->arena, ((size_t)g->n_out + 1) * sizeof *wrt);
  back->attrs = neap_arena_alloc(&graph->arena, sizeof *back->attrs);
  back->enforced = neap_arena_alloc(&graph->arena, sizeof *back->enforced);
  back->sub = neap_arena_alloc(&graph->arena, sizeof *back->sub);
  if (wrt == NULL || back->attrs == NULL || back->enforced == NULL || back->sub == NULL)
    return graph_no_memory(error);
  for (int i = 0; i < g->node.n_in; i++)
    if (g->out_of[i] >= 0) wrt[g->out_of[i]] = i;
  back->attrs[0] = (neap_attr_value){.given = true, .n = g->n_out, .ints = wrt};
  back->sub[0] = half;
  back->n_sub = 1;

  /* The node owns it from here on, also when what follows fails. */
  g->joint.builder.graph = NULL;

  /* What happens inside happens to it. Commits were taken out of the half. */
  for (int n = 0; n < half->n_node; n++)
    back->effects |= half->node[n].effects & (NEAP_EFFECT_FAULT | NEAP_EFFECT_RANDOM);

  /* Values for its outputs, which are the gradients. */
  for (int i = 0; i < g->node.n_in; i++) {
    if (g->out_of[i] < 0) continue;
    const neap_value *like = &graph->value[g->node.in[i]];
    neap_type type = g->sum_param[i] >= 0 ? sum_type(like->type) : like->type;
    /* A sum of halves stays f32 until it is rounded: gradient.c. */
    int v = graph_add_value(graph, like->name, &type);
    if (v < 0) return graph_no_memory(error);
    graph->value[v].node = made;
    graph->value[v].position = g->out_of[i];
    graph->node[made].out[g->out_of[i]] = v;
    din[i] = v;
  }
  return NEAP_OK;
}

/* Frames have one layout for all iterations, so what they keep has one length in all of them. */
static neap_status check_lengths(const neap_node *node, neap_error *error) {
  int a = neap_op_subnet_attr(node->op, node->n_sub - node->n_body);
  if (a < 0 || node->attrs[a].net == NULL || neap_graph_count_extents(node->attrs[a].net) == 0)
    return NEAP_OK;
  neap_error inner = {0};
  neap_hint(&inner,
            "use masks in the body (Where, or a factor), which have one length in all iterations; "
            "or take its results as given, "
            "by StopGradient");
  neap_fail(&inner, NEAP_GRAPH,
            "lengths in its body depend on data, and no gradient is defined through such a loop");
  return graph_locate(error, &inner, node->op->name, node->name, node->scope, node->line);
}

/* The forward's body keeps in its frames what one backward reads, so that another one would need
 * another forward. */
static neap_status check_first(const neap_node *node, neap_error *error) {
  if (node->loop->frames < 0) return NEAP_OK;
  neap_error inner = {0};
  neap_hint(&inner,
            "take one gradient, of the sum of the losses, by all that is asked for; or write "
            "the loop once for each");
  neap_fail(&inner, NEAP_GRAPH, "another gradient goes through it already, and a loop has one");
  return graph_locate(error, &inner, node->op->name, node->name, node->scope, node->line);
}

/* Everything is decided on the joint graph before the forward node is touched; the forward's half
 * is put in once it is finished. Gradients of the inputs in din, as of any node, but that those of
 * captures are f32 where these are halves. */
neap_status graph_gradient_loop(neap_builder *b, int index, const neap_value_id *dout,
                                const bool *want, neap_value_id *din, neap_error *error) {
  loop_gradient g = {
    .b = b, .index = index, .node = b->graph->node[index], .dout = dout, .want = want};
  NEAP_TRY(check_lengths(&g.node, error));
  NEAP_TRY(check_first(&g.node, error));
  g.n_state = (int)graph_attr_int(&g.node, "n_state");
  g.n_seq = (int)graph_attr_int(&g.node, "n_seq");
  NEAP_TRY(allocate(&g, error));

  /* Up to here nothing is left behind on failure but what lies in the arena. */
  NEAP_TRY(build_carrying(&g, error));

  /* Decided on the joint graph; then both halves of it, and last the nodes around them. */
  neap_value_id frames = NEAP_NO_VALUE;
  neap_status status = decide(&g, error);
  if (status == NEAP_OK) status = lay_out_frame(&g, error);
  if (status == NEAP_OK) status = make_backward(&g, error);
  if (status == NEAP_OK) status = cut_forward(&g, error);
  if (status == NEAP_OK) status = cut_backward(&g, error);
  if (status == NEAP_OK) status = add_frames(&g, &frames, error);
  if (status == NEAP_OK) status = add_backward(&g, frames, din, error);
  build_joint_fini(&g.joint);
  return status;
}
