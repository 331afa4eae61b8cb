/* mark.c: marks of a net, and going back to them.
 *
 * While a mark is open, each change of a net is noted before it is made: the net's counts and
 * lists, cells that it changes, numbers it draws. Going back undoes the notes from the last to the
 * first. The notes of a net and of all its subnets are one list, kept by the outermost net, since
 * an op in a subnet changes what the nets around it know of their blobs. Without a mark nothing is
 * noted.
 *
 * INVARIANT: a note is made before the change that it undoes, and room for it is taken before
 * anything changes.
 * INVARIANT: what lies in `op`, `init`, `cell`, `sub` and `outside` beyond the counts is nobody's;
 * what lies in the arena stays.
 */
#include "net/net_int.h"

typedef struct net_head { /* what a net is besides its cells */
  int n_op, n_init, n_cell, n_sub, n_outside;
  int n_output, n_sub_input;
  const char **output, **sub_input;
  bool outputs_set, interface_set;
  int n_gradient, n_backward;
  uint64_t version;
} net_head;

struct neap_net_change {
  neap_net *net;
  enum { HEAD, CELL, COUNTER } kind;
  int at;          /* CELL: its index; COUNTER: the number */
  const char *key; /* COUNTER */
  union {
    net_head head;
    neap_net_cell cell;
  } was;
};

static neap_net *outermost(neap_net *net) {
  while (net->outer != NULL) net = net->outer;
  return net;
}

/* ---- notes ----------------------------------------------------------------------------------- */

neap_status neap_net_begin_change(neap_net *net, int n, neap_error *error) {
  for (const neap_net *at = net; at != NULL; at = at->outer) {
    /* A note for this net and each one around it. */
    n++;
    if (!at->given_up) continue;
    neap_hint(error, "build it again in a new call");
    return neap_fail(error, NEAP_GRAPH,
                     "subnet \"%s\" was given up: the call that built it has failed", at->name);
  }

  neap_net *root = outermost(net);

  /* Without a mark nothing is noted, and no room is needed. */
  if (root->n_mark == 0 ||
      neap_list_grow(&root->change, &root->cap_change, root->n_change + n, sizeof *root->change))
    return NEAP_OK;
  return neap_fail_memory(error, (size_t)n * sizeof *root->change, "notes about a net");
}

/* The next note, NULL without a mark. */
static neap_net_change *new_note(neap_net *net) {
  neap_net *root = outermost(net);
  if (root->n_mark == 0) return NULL;
  NEAP_ASSERT(root->n_change < root->cap_change, "room for a note was taken before the change");
  neap_net_change *change = &root->change[root->n_change++];
  change->net = net;
  return change;
}

void neap_net_note(neap_net *net) {
  for (; net != NULL; net = net->outer) {
    neap_net_change *change = new_note(net);
    if (change == NULL) return;
    /* Counts and lists: what lies beyond the counts later is taken back by them. */
    change->kind = HEAD;
    change->was.head = (net_head){.n_op = net->n_op,
                                  .n_init = net->n_init,
                                  .n_cell = net->n_cell,
                                  .n_sub = net->n_sub,
                                  .n_outside = net->n_outside,
                                  .n_output = net->n_output,
                                  .n_sub_input = net->n_sub_input,
                                  .output = net->output,
                                  .sub_input = net->sub_input,
                                  .outputs_set = net->outputs_set,
                                  .interface_set = net->interface_set,
                                  .n_gradient = net->n_gradient,
                                  .n_backward = net->n_backward,
                                  .version = net->version};
  }
}

void neap_net_note_cell(neap_net *net, int cell) {
  neap_net_change *change = new_note(net);
  if (change == NULL) return;
  change->kind = CELL;
  change->at = cell;
  change->was.cell = net->cell[cell];
}

void neap_net_note_counter(neap_net *net, const char *key) {
  neap_net_change *change = new_note(net);
  if (change == NULL) return;
  change->kind = COUNTER;
  change->key = key;
  change->at = neap_map_get(&net->counter, key, 0);
}

/* ---- going back ------------------------------------------------------------------------------ */

/* Names of what is beyond the counts go out of the indices; subnets beyond them can't end while
 * somebody may hold one. */
static void restore_head(neap_net *net, const net_head *was) {
  for (; net->n_op > was->n_op; net->n_op--)
    neap_map_remove(&net->op_of, net->op[net->n_op - 1].name);
  for (; net->n_cell > was->n_cell; net->n_cell--)
    neap_map_remove(&net->cell_of, net->cell[net->n_cell - 1].blob.name);

  /* A script may still hold such a subnet: it is kept until the net ends, and refuses every
   * change. */
  for (; net->n_sub > was->n_sub; net->n_sub--) {
    neap_net *sub = net->sub[net->n_sub - 1];
    sub->given_up = true;
    sub->next_given_up = net->given_ups;
    net->given_ups = sub;
  }

  /* Lists are as they were, since nothing writes below the counts; arrays that a call replaced are
   * still in the arena. */
  net->n_init = was->n_init;
  net->n_outside = was->n_outside;
  net->n_output = was->n_output;
  net->n_sub_input = was->n_sub_input;
  net->output = was->output;
  net->sub_input = was->sub_input;
  net->outputs_set = was->outputs_set;
  net->interface_set = was->interface_set;
  net->n_gradient = was->n_gradient;
  net->n_backward = was->n_backward;
  net->version = was->version; /* what was made of that version is good again */
}

static void undo(const neap_net_change *change) {
  neap_net *net = change->net;
  switch (change->kind) {
    case HEAD: restore_head(net, &change->was.head); break;
    case CELL: net->cell[change->at] = change->was.cell; break;
    case COUNTER:
      if (change->at > 0)
        (void)neap_map_set(&net->counter, change->key, change->at); /* present: takes no memory */
      else
        neap_map_remove(&net->counter, change->key);
      break;
  }
}

int neap_net_mark(neap_net *net) {
  net = outermost(net);
  net->n_mark++;
  return net->n_change;
}

void neap_net_end_mark(neap_net *net, int mark, bool keep) {
  net = outermost(net);
  if (net->n_mark == 0) return; /* a script may end a mark that it has not made, or any number */
  mark = NEAP_MAX(mark, 0);
  if (!keep && net->n_change > mark) {
    /* From the last to the first: each undoes what was there when it was made. */
    while (net->n_change > mark) undo(&net->change[--net->n_change]);
    net->n_rewind++;
  }
  /* Notes are kept as long as a mark around this one may need them. */
  if (--net->n_mark == 0) net->n_change = 0;
}

uint64_t neap_net_n_rewinds(const neap_net *net) {
  while (net->outer != NULL) net = net->outer;
  return net->n_rewind;
}
