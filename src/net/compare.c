/* compare.c: what two nets have in common beside the names of their blobs: which op reads what which op wrote, and where an op
 * works in place. Subnets are compared with their owners.
 *
 * All outputs of a net are numbered, op after op. A *reading* of an input is the number of the last earlier output of its name;
 * in a subnet, of what its owner hands it, the position there; or nobody's: then the blob is declared, and such blobs are told
 * apart by nothing. O(operands).
 */
#include "net/net_int.h"

#include <stdlib.h>

/* Outputs of the op are numbered from `first` on. False when memory is refused. */
static bool note_outputs(neap_map *last, const neap_net_op *op, int first) {
  for (int k = 0; k < op->n_out; k++)
    if (op->out[k] != NULL && !neap_map_set(last, op->out[k], first + k)) return false;
  return true;
}

/* -1: nobody wrote it here; -2: absent. */
static int reading_of(const neap_map *last, const char *name) { return name == NULL ? -2 : neap_map_get(last, name, -1); }

/* Puts the place and the reason into `where` (may be NULL); false, so that a comparison can end with it. */
static bool say(neap_buffer *where, int i, const neap_net_op *a, const neap_net_op *b, const char *what) {
  if (where != NULL)
    neap_buffer_add(where, "op %d, %s \"%s\" and %s \"%s\": %s", i + 1, a->op->name, a->name, b->op->name, b->name, what);
  return false;
}

/* The names that `owner` hands to its subnet get readings by position, below all others: what an interface takes, or what a Do
 * binds. False when memory is refused. */
static bool note_captures(neap_map *last, const neap_net *sub, const neap_net_op *owner) {
  /* Below -1 (nobody) and -2 (absent), so that no capture is mistaken for either. */
  enum { FIRST = -3 };
  for (int k = 0; k < sub->n_sub_input; k++)
    if (!neap_map_set(last, sub->sub_input[k], FIRST - k)) return false;
  /* A Do has no interface: its names are bound by index, and the index is what two nets have in common. */
  if (neap_net_do_body(owner) != sub) return true;
  const neap_attr_value *inner = &owner->attrs[neap_op_attr_index(owner->op, "inner_blobs")];
  const neap_attr_value *outer = &owner->attrs[neap_op_attr_index(owner->op, "outer_blobs_idx")];
  for (int k = 0; k < inner->n && k < outer->n; k++)
    if (!neap_map_set(last, inner->names[k], FIRST - (int)outer->ints[k])) return false;
  return true;
}

static bool same_subnets(int i, const neap_net_op *x, const neap_net_op *y, neap_buffer *where, bool *memory);

/* Type, device, arity, and the same reading of each input. */
static bool same_op(int i, const neap_net_op *x, const neap_net_op *y, const neap_map *last_x, const neap_map *last_y,
                    neap_buffer *where, bool *memory) {
  if (x->op != y->op) return say(where, i, x, y, "they differ in type");
  if (x->device != y->device) return say(where, i, x, y, "they run on different devices");
  if (x->n_in != y->n_in || x->n_out != y->n_out) return say(where, i, x, y, "they differ in the number of operands");
  for (int k = 0; k < x->n_in; k++)
    if (reading_of(last_x, x->in[k]) != reading_of(last_y, y->in[k]))
      return say(where, i, x, y, "an input comes from different ops or operands");
  return same_subnets(i, x, y, where, memory);
}

/* Also whether the same ops make what the two give: without, a net whose last op writes over an output would be equal. */
static bool same_results(const neap_net *a, const neap_net *b, const neap_map *last_a, const neap_map *last_b,
                         neap_buffer *where) {
  bool same = neap_net_n_outputs(a) == neap_net_n_outputs(b);
  for (int k = 0; same && k < neap_net_n_outputs(a); k++)
    same = reading_of(last_a, neap_net_output_at(a, k)) == reading_of(last_b, neap_net_output_at(b, k));
  if (!same && where != NULL)
    neap_buffer_add(where, "nets \"%s\" and \"%s\": their outputs come from different ops", a->name, b->name);
  return same;
}

/* Subnets with their owners, outermost nets with NULL. *memory: an allocation was refused, and the answer means nothing. */
static bool same_nets(const neap_net *a, const neap_net *b, const neap_net_op *owner_a, const neap_net_op *owner_b,
                      neap_buffer *where, bool *memory) {
  neap_map last_a = {0}, last_b = {0};
  if (owner_a != NULL && !(note_captures(&last_a, a, owner_a) && note_captures(&last_b, b, owner_b))) *memory = true;
  bool same = a->n_op == b->n_op && !*memory;
  if (a->n_op != b->n_op && where != NULL)
    neap_buffer_add(where, "nets \"%s\" and \"%s\" have %d and %d ops", a->name, b->name, a->n_op, b->n_op);
  for (int i = 0, first = 0; same && i < a->n_op; first += a->op[i++].n_out) {
    same = same_op(i, &a->op[i], &b->op[i], &last_a, &last_b, where, memory);
    if (note_outputs(&last_a, &a->op[i], first) && note_outputs(&last_b, &b->op[i], first)) continue;
    *memory = true;
    break;
  }
  /* Where one net says its outputs and the other lets them follow, the lists need not agree: a planned net says what the
   * original left open. */
  same = same && (a->outputs_set != b->outputs_set || same_results(a, b, &last_a, &last_b, where));
  neap_map_fini(&last_a);
  neap_map_fini(&last_b);
  return same;
}

/* Attribute by attribute; the ops are of one type, so their lists of attributes are alike. */
static bool same_subnets(int i, const neap_net_op *x, const neap_net_op *y, neap_buffer *where, bool *memory) {
  for (int k = 0; k < neap_op_n_attrs(x->op); k++) {
    if (x->op->attrs[k].type != NEAP_ATTR_NET) continue;
    const neap_net *p = x->attrs[k].net, *q = y->attrs[k].net;
    if ((p == NULL) != (q == NULL)) return say(where, i, x, y, "one has a subnet that the other lacks");
    if (p != NULL && !same_nets(p, q, x, y, where, memory)) return false;
  }
  return true;
}

neap_status neap_net_same_graph(const neap_net *a, const neap_net *b, bool *same, neap_buffer *where, neap_error *error) {
  bool memory = false;
  *same = same_nets(a, b, NULL, NULL, where, &memory);
  return memory ? neap_fail_memory(error, 64, "comparing two nets") : NEAP_OK;
}

/* Whether both have the same pairs (input, output) of one name, subnets included. */
static bool same_pairs(int i, const neap_net_op *x, const neap_net_op *y, neap_buffer *where) {
  bool same = x->n_in == y->n_in && x->n_out == y->n_out;
  for (int p = 0; same && p < x->n_in; p++)
    for (int q = 0; same && q < x->n_out; q++)
      same = (x->in[p] != NULL && x->in[p] == x->out[q]) == (y->in[p] != NULL && y->in[p] == y->out[q]);
  if (!same) return say(where, i, x, y, "one works in place where the other does not");
  for (int k = 0; k < neap_op_n_attrs(x->op); k++) {
    const neap_net *a = x->op->attrs[k].type == NEAP_ATTR_NET ? x->attrs[k].net : NULL;
    const neap_net *b = a != NULL ? y->attrs[k].net : NULL;
    if (a != NULL && (b == NULL || !neap_net_same_in_place(a, b, where))) return false;
  }
  return true;
}

bool neap_net_same_in_place(const neap_net *a, const neap_net *b, neap_buffer *where) {
  if (a->n_op != b->n_op) {
    if (where != NULL) neap_buffer_add(where, "nets \"%s\" and \"%s\" have %d and %d ops", a->name, b->name, a->n_op, b->n_op);
    return false;
  }
  for (int i = 0; i < a->n_op; i++)
    if (a->op[i].op != b->op[i].op || !same_pairs(i, &a->op[i], &b->op[i], where)) return false;
  return true;
}

/* ---- interference ----------------------------------------------------------------------------------------------------- */

/* For qsort: by writer, then by reader. */
static int compare_pairs(const void *a, const void *b) {
  const int *x = a, *y = b;
  return x[0] != y[0] ? (x[0] > y[0]) - (x[0] < y[0]) : (x[1] > y[1]) - (x[1] < y[1]);
}

/* Writers of one name are a chain from the newest on: `newest` maps the name to the number of an output, `before` leads on,
 * and `writer` tells the op. */
neap_status neap_net_interference(const neap_net *net, int *n, int (**out)[2], neap_error *error) {
  neap_map newest = {0};
  size_t n_out = 0;
  for (int j = 0; j < net->n_op; j++) n_out += (size_t)net->op[j].n_out;
  int *before = neap_alloc((n_out + 1) * sizeof *before), *writer = neap_alloc((n_out + 1) * sizeof *writer);
  int cap = 0, kept = 0, number = 0;
  int(*pair)[2] = NULL;
  *n = 0;
  if (before == NULL || writer == NULL) goto fail_memory;
  for (int j = 0; j < net->n_op; j++) {
    const neap_net_op *op = &net->op[j];
    for (int k = 0; k < op->n_in; k++)
      for (int w = op->in[k] != NULL ? neap_map_get(&newest, op->in[k], -1) : -1; w >= 0; w = before[w]) {
        if (!neap_list_grow(&pair, &cap, *n + 1, sizeof *pair)) goto fail_memory;
        pair[*n][0] = writer[w];
        pair[(*n)++][1] = j;
      }
    for (int k = 0; k < op->n_out; k++, number++) {
      if (op->out[k] == NULL) continue;
      writer[number] = j;
      before[number] = neap_map_get(&newest, op->out[k], -1);
      if (!neap_map_set(&newest, op->out[k], number)) goto fail_memory;
    }
  }
  if (*n > 0) qsort(pair, (size_t)*n, sizeof *pair, compare_pairs);
  for (int i = 0; i < *n; i++)
    if (kept == 0 || compare_pairs(pair[kept - 1], pair[i]) != 0) {
      pair[kept][0] = pair[i][0];
      pair[kept++][1] = pair[i][1];
    }
  *n = kept;
  *out = pair;
  neap_free(before);
  neap_free(writer);
  neap_map_fini(&newest);
  return NEAP_OK;
fail_memory:
  neap_free(before);
  neap_free(writer);
  neap_free(pair);
  neap_map_fini(&newest);
  return neap_fail_memory(error, 64, "the interference of a net");
}
