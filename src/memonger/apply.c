/* apply.c: from slots to a net: names for what is shared, the renaming, and the proof that the net
 * has stayed the same.
 *
 * INVARIANT: names are given in order of first definition and never to what exists, in the net or
 * its subnets; so two runs give the same net, and a net that was planned keeps its names when it is
 * planned again.
 */
#include "memonger/memonger_int.h"

#include <stdio.h>
#include <stdlib.h>

/* Names for one net's slots. Arrays are the caller's; names are interned, and outlive them all. */
typedef struct namer {
  const neap_recycle *r;
  const int *slot;
  int *count, *order; /* by slot: members; slots that have several */
  const char **name;  /* by slot; NULL: of one member, which keeps its own */
} namer;

/* Whether the net or a net inside it has a blob of that name: a subnet sees the names around it. */
static bool is_taken(const neap_net *net, const char *name) {
  if (neap_net_find_blob(net, name) != NULL) return true;
  for (int i = 0; i < neap_net_n_ops(net); i++) {
    const neap_net_op *op = neap_net_op_at(net, i);
    for (int a = 0; a < neap_op_n_attrs(op->op); a++)
      if (op->op->attrs[a].type == NEAP_ATTR_NET && op->attrs[a].net != NULL &&
          is_taken(op->attrs[a].net, name))
        return true;
  }
  return false;
}

/* Counts members and lists the slots that have several in `order`; returns how many those are.
 * slot[b] < 0: blob b is in none. neap_assign numbers slots by their first members. */
static int list_shared(namer *s, int n_slot) {
  int n = 0;
  /* How many names each slot has; one alone keeps its own name. */
  for (int b = 0; b < s->r->n_blob; b++)
    if (s->slot[b] >= 0) s->count[s->slot[b]]++;

  /* In the order of their first blobs: names are then numbered as one meets them. */
  for (int k = 0; k < n_slot; k++)
    if (s->count[k] > 1) s->order[n++] = k;
  return n;
}

/* The first n slots of `order` get names that `net` lacks, numbered on from *number, which is left
 * at the last one given. */
static neap_status name_slots(namer *s, int n, const neap_net *net, const char *prefix, int *number,
                              neap_error *error) {
  for (int k = 0; k < n; k++) {
    const char *name;
    /* The next number whose name is free; each slot goes on where the one before has stopped. */
    do {
      name = neap_intern_format("%sshared_%d", prefix, ++*number);
      if (name == NULL) return neap_fail_memory(error, strlen(prefix), "a name");
    } while (is_taken(net, name));
    s->name[s->order[k]] = name;
  }
  return NEAP_OK;
}

/* INTERNAL error unless both nets have the same ops reading from the same ops, in place at the same
 * places. */
static neap_status prove_same(const neap_net *net, const neap_net *made, neap_error *error) {
  neap_buffer where = {0};
  bool same = false;

  /* Ops and their operands first; then that nothing new is written over what it reads. */
  neap_status status = neap_net_same_graph(net, made, &same, &where, error);
  if (status == NEAP_OK && same) same = neap_net_same_in_place(net, made, &where);
  if (status == NEAP_OK && !same)
    status =
      neap_fail(error, NEAP_INTERNAL, "the renamed net \"%s\" is not the net it came from: %s",
                neap_net_name(net), where.text != NULL ? where.text : "they differ");
  neap_buffer_fini(&where);
  return status;
}

/* ---- names inside subnets -------------------------------------------------------------------- */

typedef struct inner {
  const neap_net *net; /* the outermost: new names are new in all of it */
  const char *prefix;
  neap_local_rename *list;
  int n, cap;
  int number; /* the last number that a name was given */
} inner;

/* Adds the renames of all subnets of `net`, at any depth. `graph` is the one made of `net`: its
 * nodes hold the subnets' graphs. */
static neap_status rename_inside(inner *all, const neap_net *net, const neap_graph *graph,
                                 neap_error *error);

/* Renames of one subnet's own names, each slot of several under a name of its own. */
static neap_status rename_sub(inner *all, const neap_net *sub, neap_graph *graph,
                              neap_error *error) {
  neap_recycle recycle;
  neap_assign_figures assigned = {0};
  const neap_recycle_options greedily = {0};
  NEAP_TRY(neap_recycle_open_sub(&recycle, sub, graph, error));

  /* Three lists in one piece: slot of each blob, members and order of the slots. */
  int *lists = neap_arena_alloc(&recycle.arena, ((size_t)recycle.n_blob * 3 + 3) * sizeof *lists);
  const char **name = neap_arena_alloc(&recycle.arena, ((size_t)recycle.n_blob + 1) * sizeof *name);
  int room = recycle.n_blob + 1;
  namer s = {.r = &recycle, .slot = lists, .name = name};
  neap_status status;
  if (lists == NULL || name == NULL) {
    status = neap_fail_memory(error, (size_t)room * 32, "names");
    goto done;
  }

  s.count = lists + room;
  s.order = lists + 2 * room;

  /* The subnet's own names are shared as the net's are, under numbers that go on. */
  status = neap_recycle_assign(&recycle, &greedily, lists, &assigned, error);
  if (status != NEAP_OK) goto done;
  status =
    name_slots(&s, list_shared(&s, assigned.n_slot), all->net, all->prefix, &all->number, error);
  if (status != NEAP_OK) goto done;

  /* A rename for each name in a slot of several. */
  for (int b = 0; b < recycle.n_blob; b++) {
    if (lists[b] < 0 || name[lists[b]] == NULL) continue;
    if (!neap_list_grow(&all->list, &all->cap, all->n + 1, sizeof *all->list)) {
      status = neap_fail_memory(error, 64, "renames of a subnet");
      goto done;
    }
    all->list[all->n++] = (neap_local_rename){sub, recycle.blob[b].name, name[lists[b]]};
  }
done:
  neap_recycle_close(&recycle);

  /* Then what lies inside this subnet. */
  NEAP_TRY(status);
  return rename_inside(all, sub, graph, error);
}

/* The node that op `op` has become; graphs of subnets have nodes besides, which copy what is handed
 * on. */
static const neap_node *node_of(const neap_graph *graph, const neap_net_op *op) {
  /* Names are interned, and records are one a type: two pointers say that it is the same op. */
  for (int n = 0; n < graph->n_node; n++)
    if (graph->node[n].op == op->op && graph->node[n].name == op->name) return &graph->node[n];
  return NULL;
}

/* A subnet that several ops share is looked at once. */
static bool is_listed(const inner *all, const neap_net *sub) {
  for (int i = 0; i < all->n; i++)
    if (all->list[i].sub == sub) return true;
  return false;
}

static neap_status rename_inside(inner *all, const neap_net *net, const neap_graph *graph,
                                 neap_error *error) {
  for (int i = 0; i < neap_net_n_ops(net); i++) {
    const neap_net_op *op = neap_net_op_at(net, i);
    if ((op->op->effects & NEAP_EFFECT_PSEUDO) != 0) continue;

    const neap_node *node = NULL;
    int k = 0; /* of the node's subnets, which are those of the attributes in their order */
    for (int a = 0; a < neap_op_n_attrs(op->op); a++) {
      if (op->op->attrs[a].type != NEAP_ATTR_NET) continue;

      /* The node is looked for only where the op has a subnet. */
      if (node == NULL) node = node_of(graph, op);
      if (node == NULL) break; /* dead: nothing of it is left in the graph */
      /* An attribute may be left out, and its graph with it. */
      const neap_net *sub = op->attrs[a].net;
      bool is_there = sub != NULL && k < node->n_sub && node->sub[k] != NULL;
      if (is_there && !is_listed(all, sub)) NEAP_TRY(rename_sub(all, sub, node->sub[k], error));
      k++;
    }
  }
  return NEAP_OK;
}

/* ---- the net --------------------------------------------------------------------------------- */

/* A copy of the net in which the blobs of each slot of several have one name, proved the same
 * before it is given out; *out is owned by the caller and set on success alone. `inside`: subnets'
 * own names are recycled too. name[k], when asked for: the name of slot k, NULL for a slot of
 * one. */
neap_status neap_recycle_apply(const neap_recycle *recycle, const int *slot, int n_slot,
                               const char *prefix, bool inside, const char **name, neap_net **out,
                               neap_error *error) {
  neap_arena arena = {0};
  size_t room = (size_t)recycle->n_blob; /* each slot has a blob */
  namer s = {.r = recycle, .slot = slot};
  const char **from = neap_arena_alloc(&arena, room * sizeof *from),
             **to = neap_arena_alloc(&arena, room * sizeof *to);
  s.name = neap_arena_alloc(&arena, room * sizeof *s.name);
  s.count = neap_arena_alloc(&arena, room * sizeof *s.count);
  s.order = neap_arena_alloc(&arena, room * sizeof *s.order);

  neap_net *made = NULL;
  neap_net_edit edit = {.from = from, .to = to};
  inner all = {.net = recycle->net, .prefix = prefix};
  neap_status status;
  if (from == NULL || to == NULL || s.name == NULL || s.count == NULL || s.order == NULL) {
    status = neap_fail_memory(error, room * 32, "names");
    goto done;
  }

  /* One name for each slot of several, which all its blobs get. */
  status = name_slots(&s, list_shared(&s, n_slot), recycle->net, prefix, &all.number, error);
  if (status != NEAP_OK) goto done;

  /* Names of the net itself: from the old one to that of its slot. */
  for (int b = 0; b < recycle->n_blob; b++) {
    if (slot[b] < 0 || s.name[slot[b]] == NULL) continue;
    from[edit.n_rename] = recycle->blob[b].name;
    to[edit.n_rename++] = s.name[slot[b]];
  }

  /* Names inside subnets go on with the numbers: one name means one thing in all of the net. */
  if (inside) status = rename_inside(&all, recycle->net, recycle->graph, error);
  if (status != NEAP_OK) goto done;
  edit.local = all.list;
  edit.n_local = all.n;

  /* The copy is checked as any net is; that it is the same net is proved on top. */
  status = neap_net_copy_edited(recycle->net, &edit, &made, error);
  if (status == NEAP_OK) status = prove_same(recycle->net, made, error);

  /* Only now: names are told of a net that was made. */
  if (status == NEAP_OK && name != NULL)
    for (int k = 0; k < n_slot; k++) name[k] = s.name[k];
done:
  neap_free(all.list);
  neap_arena_fini(&arena);
  if (status != NEAP_OK) {
    neap_net_free(made);
    return status;
  }
  *out = made;
  return NEAP_OK;
}
