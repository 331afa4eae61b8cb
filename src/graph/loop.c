/* loop.c: loops as data: how an iteration finds its operands, what a loop needs beside its body,
 * and copies of both.
 *
 * The operands of a loop op are: inputs: n_state initial states, n_seq sequences (T,...), captures;
 * outputs: n_state final states, then rows of stacked outputs. Its body takes all inputs (of a
 * sequence one row) and gives all outputs (of a stacked one one row), so the argument numbers of
 * the body's values are those of an If's: input i, n_in + output k; one more for the condition's
 * result.
 */
#include "graph/graph_int.h"

#include <string.h>

int64_t graph_attr_int(const neap_node *node, const char *name) {
  int a = neap_op_attr_index(node->op, name);
  return a >= 0 ? node->attrs[a].i : 0;
}

int64_t neap_node_flops(const neap_node *node) {
  int64_t flops = neap_whole(node->cost.flops);

  /* A condition ends it, or each iteration takes the body of its lengths: nobody can know. */
  if (node->loop == NULL || node->loop->n_step == 0 || node->n_body > 1) return flops;
  const neap_graph *body = node->sub[node->n_sub - 1];
  int64_t once = 0;
  for (int i = 0; i < body->n_node; i++)
    once = neap_count_add(once, neap_node_flops(&body->node[i]));
  return neap_count_add(flops, neap_count_mul(node->loop->n_step, once));
}

/* A head, then a record for each iteration there may be, and the states behind the last. Frames
 * that grow lie on a stack of their own, and the value has the head alone. */
size_t neap_loop_frames_bytes(const neap_loop *loop) {
  if (loop->grows) return NEAP_ALIGN;
  size_t records = neap_size_mul((size_t)loop->max, loop->record_bytes);
  return neap_size_add(NEAP_ALIGN, neap_size_add(records, loop->state_bytes));
}

/* States that do not lie in frames alternate between two buffers: one iteration reads what the next
 * one must not overwrite yet. One of the two may be the output itself, where the last state
 * goes. */
size_t neap_loop_own_bytes(const neap_loop *loop) {
  size_t bytes = loop->has_condition ? NEAP_ALIGN : 0;
  for (int s = 0; s < loop->n_state; s++) {
    const neap_loop_state *state = &loop->state[s];
    if (state->item >= 0) continue;
    int n_buffer = state->final < 0 ? 2 : 1;
    bytes += neap_align(state->bytes) * (size_t)n_buffer;
  }
  return bytes;
}

/* ---- of a forward loop ----------------------------------------------------------------------- */

/* Whether the body writes state s where it lies: a resident blob, by an enforced pair. */
static bool is_version(const neap_node *node, int s) {
  for (int p = 0; p < node->n_enforced; p++)
    if (node->enforced[p].in == s && node->enforced[p].out == s) return true;
  return false;
}

/* Tables of the right size, zeroed; NULL when refused. frames -1: no gradient goes through it. */
static neap_loop *new_loop(neap_arena *arena, const neap_node *node, int n_state) {
  /* A port for each operand, and one for the condition. */
  neap_loop *loop = neap_arena_alloc(arena, sizeof *loop);
  if (loop == NULL) return NULL;
  *loop = (neap_loop){.n_port = node->n_in + node->n_out + 1, .n_state = n_state, .frames = -1};
  loop->port = neap_arena_alloc(arena, (size_t)loop->n_port * sizeof *loop->port);
  loop->state = neap_arena_alloc(arena, (size_t)(n_state + 1) * sizeof *loop->state);
  loop->zero = neap_arena_alloc(arena, (size_t)(node->n_out + 1) * sizeof *loop->zero);
  return loop->port == NULL || loop->state == NULL || loop->zero == NULL ? NULL : loop;
}

neap_status graph_make_loop(neap_graph *graph, int index, neap_error *error) {
  neap_node *node = &graph->node[index];
  const neap_graph *body = node->sub[node->n_sub - 1];
  int n_state = (int)graph_attr_int(node, "n_state"), n_seq = (int)graph_attr_int(node, "n_seq");
  neap_loop *loop = node->loop = new_loop(&graph->arena, node, n_state);
  if (loop == NULL) return graph_no_memory(error);
  loop->has_condition = node->n_sub > node->n_body;

  /* Recurrent: as many iterations as sequences have rows. While: until the condition says so, and
   * never more than max, where it has one. */
  if (loop->has_condition)
    loop->max = graph_attr_int(node, "max");
  else
    loop->n_step = loop->max = graph->value[node->in[n_state]].type.shape.dim[0];

  /* Inputs: states, rows of sequences, captures, in this order. A state that the body writes where
   * it lies is an operand like a capture. */
  for (int i = 0; i < node->n_in; i++) {
    const bool is_row = i >= n_state && i < n_state + n_seq;
    neap_port *port = &loop->port[i];
    *port = (neap_port){NEAP_PORT_OPERAND, i, 0};
    if (is_row) *port = (neap_port){NEAP_PORT_SLICE, i, body->value[body->param[i]].bytes};
    if (i < n_state && !is_version(node, i)) port->kind = NEAP_PORT_STATE;
  }

  /* Outputs: final states, then rows of what is stacked. */
  for (int k = 0; k < node->n_out; k++) {
    const int operand = node->n_in + k;
    const size_t bytes = body->value[body->output[k]].bytes;
    if (k < n_state) {
      loop->port[operand] = (neap_port){NEAP_PORT_NEXT, k, 0};
      loop->state[k] = (neap_loop_state){k, operand, -1, bytes};
      /* What the body writes where it lies needs no buffers: it is the operand itself. */
      if (is_version(node, k)) loop->state[k] = (neap_loop_state){-1, -1, -1, 0};
      continue;
    }
    loop->port[operand] = (neap_port){NEAP_PORT_SLICE, operand, bytes};
    /* Rows that no iteration reaches must be zero, since the loop may end early. */
    if (loop->has_condition) loop->zero[loop->n_zero++] = operand;
  }

  /* The condition's result belongs to no output, so its place is behind them all. */
  loop->port[node->n_in + node->n_out] = (neap_port){NEAP_PORT_FLAG, 0, 0};
  return NEAP_OK;
}

/* ---- copies ---------------------------------------------------------------------------------- */

neap_loop *graph_copy_loop(neap_arena *arena, const neap_loop *loop) {
  neap_loop *copy = neap_arena_copy(arena, loop, sizeof *copy);
  if (copy == NULL) return NULL;

  /* Tables that a loop has not are copied as nothing, which is no refusal. */
  copy->port = neap_arena_copy(arena, loop->port, (size_t)loop->n_port * sizeof *loop->port);
  copy->state = neap_arena_copy(arena, loop->state, (size_t)loop->n_state * sizeof *loop->state);
  copy->zero = neap_arena_copy(arena, loop->zero, (size_t)loop->n_zero * sizeof *loop->zero);
  copy->item = neap_arena_copy(arena, loop->item, (size_t)loop->n_item * sizeof *loop->item);
  copy->arrives =
    neap_arena_copy(arena, loop->arrives, (size_t)loop->n_result * sizeof *loop->arrives);
  bool ok = copy->port != NULL && copy->state != NULL && copy->zero != NULL && copy->item != NULL &&
            copy->arrives != NULL;
  return ok ? copy : NULL;
}

bool graph_own_met(neap_graph *to, neap_node *node) {
  if (node->n_body == 0) return true;
  node->met = neap_arena_copy(&to->arena, node->met, (size_t)node->n_body * sizeof *node->met);
  if (node->met == NULL) return false;
  for (int k = 0; k < node->n_body; k++) {
    neap_lengths *met = &node->met[k];
    met->length = neap_arena_copy(&to->arena, met->length, (size_t)met->n * sizeof *met->length);
    if (met->length == NULL) return false;
  }
  return true;
}

/* What the node's lists point to, copied into the clone's arena. False when refused. */
static bool own_lists(neap_graph *to, neap_node *node) {
  neap_value_id *ids =
    neap_arena_alloc(&to->arena, (size_t)(node->n_in + node->n_out + 1) * sizeof *ids);
  if (ids == NULL) return false;

  /* One list for both, as graph_add_node makes it. */
  for (int i = 0; i < node->n_in; i++) ids[i] = node->in[i];
  for (int k = 0; k < node->n_out; k++) ids[node->n_in + k] = node->out[k];
  node->in = ids;
  node->out = ids + node->n_in;

  /* The tables by which a node finds its attributes and pairs, and the loop's, are the clone's too:
   * either graph may be freed first. */
  node->attrs = graph_copy_attrs(to, node->op, node->attrs);
  node->enforced =
    neap_arena_copy(&to->arena, node->enforced, (size_t)node->n_enforced * sizeof *node->enforced);
  if (node->loop != NULL) {
    node->loop = graph_copy_loop(&to->arena, node->loop);
    if (node->loop == NULL) return false;
  }
  if (!graph_own_met(to, node)) return false;
  return node->attrs != NULL && node->enforced != NULL;
}

/* The node with lists and subgraphs of its own. False when refused; the part that exists is freed
 * with the clone. */
static bool clone_node(neap_graph *to, const neap_node *from) {
  neap_node node = *from;
  node.sub = neap_arena_alloc(&to->arena, (size_t)(from->n_sub + 1) * sizeof *node.sub);
  if (node.sub == NULL || !own_lists(to, &node)) return false;
  to->node[to->n_node++] = node; /* from here on freed with the graph */
  for (int s = 0; s < node.n_sub; s++) {
    if (from->sub[s] == NULL) continue;
    node.sub[s] = graph_clone(from->sub[s], from->sub[s]->n_node);
    if (node.sub[s] == NULL) return false;
  }
  return true;
}

neap_graph *graph_clone(const neap_graph *from, int n_node) {
  neap_graph *to = graph_new(from->name);
  if (to == NULL) return NULL;
  if (!neap_list_grow(&to->node, &to->cap_node, n_node + 1, sizeof *to->node) ||
      !neap_list_grow(&to->value, &to->cap_value, from->n_value + 1, sizeof *to->value) ||
      !neap_list_grow(&to->edge, &to->cap_edge, from->n_edge + 1, sizeof *to->edge))
    goto fail;

  /* Numbers stay, whatever is left out: what refers to a value by its number means the same. */
  memcpy(to->value, from->value, (size_t)from->n_value * sizeof *to->value);
  if (from->n_edge > 0) memcpy(to->edge, from->edge, (size_t)from->n_edge * sizeof *to->edge);

  /* The counts are set before anything that may fail, so that a clone that is given up frees what
   * it has. */
  to->n_value = from->n_value;
  to->n_edge = from->n_edge;
  to->n_param = from->n_param;
  to->n_output = from->n_output;
  to->train = from->train;
  to->step = from->step;
  to->param = neap_arena_copy(&to->arena, from->param, (size_t)from->n_param * sizeof *to->param);
  to->output =
    neap_arena_copy(&to->arena, from->output, (size_t)from->n_output * sizeof *to->output);
  if (to->param == NULL || to->output == NULL) goto fail;

  /* What a node that is left out makes has no definition; no node that is cloned mentions it. */
  for (int v = 0; v < to->n_value; v++)
    if (to->value[v].node >= n_node) to->value[v].node = -1;
  for (int n = 0; n < n_node; n++)
    if (!clone_node(to, &from->node[n])) goto fail;
  return to;
fail:
  neap_graph_free(to);
  return NULL;
}
