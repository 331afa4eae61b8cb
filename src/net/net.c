/* net.c: the life of a net, and reading it.
 *
 * Subnets belong to the net they were made in and die with it, whatever op refers to them: a subnet
 * whose op was never added is not lost, and two ops may run one. What a net says of itself is read
 * by index, in order of definition. What an op holds lies in the net's arena or among the interned
 * names, so that ops are not freed one by one.
 */
#include "net/net_int.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

const char *neap_role_name(neap_role role) {
  static const char *const name[] = {
#define X(symbol, text) text,
    NEAP_ROLE_MAP(X)
#undef X
  };
  return (unsigned)role < (unsigned)NEAP_COUNT(name) ? name[role] : "?";
}

neap_status neap_net_new(const char *name, neap_net **out, neap_error *error) {
  if (name == NULL) name = "net";
  NEAP_TRY(neap_net_check_name("net", name, error));
  neap_net *net = neap_alloc_zeroed(sizeof *net);
  if (net == NULL) return neap_fail_memory(error, sizeof *net, "a net");
  net->name = neap_intern(name);
  if (net->name == NULL) {
    neap_free(net);
    return neap_fail_memory(error, strlen(name), "a name");
  }
  atomic_init(&net->n_ref, 1);

  /* A version that no net of this process has had. */
  neap_net_touch(net);
  *out = net;
  return NEAP_OK;
}

/* Compared as texts: few, and only when a subnet is made. */
static bool sub_name_taken(const neap_net *outer, const char *name) {
  for (int i = 0; i < outer->n_sub; i++)
    if (strcmp(outer->sub[i]->name, name) == 0) return true;
  return false;
}

/* NAME error for what can't be a name. The subnet's name is made unique by a number, so it need not
 * be the one given. */
static neap_status new_sub(neap_net *outer, const char *name, bool closed, neap_net **out,
                           neap_error *error) {
  const char *unique = name != NULL ? name : "sub";
  NEAP_TRY(neap_net_check_name("net", unique, error));

  /* Names of the subnets of one net differ, so that the text form can refer to them. */
  for (int i = 2; sub_name_taken(outer, unique); i++) {
    unique = neap_net_join("", name != NULL ? name : "sub", i);
    if (unique == NULL) break;
  }

  /* Room in the list and for a note; then the net, which is not lost when it is refused. */
  NEAP_TRY(neap_net_begin_change(outer, 0, error));
  if (unique == NULL ||
      !neap_list_grow(&outer->sub, &outer->cap_sub, outer->n_sub + 1, sizeof(neap_net *)))
    return neap_fail_memory(error, sizeof(neap_net *), "a subnet");
  NEAP_TRY(neap_net_new(unique, out, error));

  /* It owns itself until here; from the list on it is the outer net's. */
  neap_net_note(outer);
  (*out)->outer = outer;
  (*out)->closed = closed;
  outer->sub[outer->n_sub++] = *out;
  return NEAP_OK;
}

neap_status neap_net_new_sub(neap_net *outer, const char *name, neap_net **out, neap_error *error) {
  return new_sub(outer, name, false, out, error);
}

neap_status neap_net_new_closed_sub(neap_net *outer, const char *name, neap_net **out,
                                    neap_error *error) {
  return new_sub(outer, name, true, out, error);
}

/* The net around all: it owns the subnets, so whoever holds one of them holds it. */
static neap_net *outermost(neap_net *net) {
  while (net->outer != NULL) net = net->outer;
  return net;
}

neap_net *neap_net_retain(neap_net *net) {
  if (net == NULL) return NULL;
  /* Relaxed: whoever retains holds the net already, which orders it before the last release. */
  int before = atomic_fetch_add_explicit(&outermost(net)->n_ref, 1, memory_order_relaxed);
  NEAP_ASSERT(before >= 1, "who retains a net holds it already; it had %d references", before);
  return net;
}

/* The net with all below it, whoever refers to them. */
static void end(neap_net *net) {
  /* Subnets first, those that a mark has given up among them: they refer to this one. */
  for (int i = 0; i < net->n_sub; i++) end(net->sub[i]);
  while (net->given_ups != NULL) {
    neap_net *sub = net->given_ups;
    net->given_ups = sub->next_given_up;
    end(sub);
  }

  /* Ops, names and lists lie in these tables and in the arena; nothing in them is freed one by
   * one. */
  neap_free(net->change);
  neap_free(net->sub);
  neap_free(net->op);
  neap_free(net->init);
  neap_free(net->cell);
  neap_free(net->outside);
  neap_map_fini(&net->cell_of);
  neap_map_fini(&net->op_of);
  neap_map_fini(&net->counter);
  neap_net_types_fini(&net->types);
  neap_net_types_fini(&net->taken);
  neap_arena_fini(&net->arena);
  neap_free(net);
}

/* A mark's notes may be of the subnet: then it must live until they have been undone. */
void neap_net_drop_last_sub(neap_net *outer) {
  if (outermost(outer)->n_mark == 0) end(outer->sub[--outer->n_sub]);
}

void neap_net_free(neap_net *net) {
  if (net == NULL) return;
  net = outermost(net);
  int before = atomic_fetch_sub_explicit(&net->n_ref, 1, memory_order_acq_rel);
  NEAP_ASSERT(before >= 1, "who lets go of a net holds it; it had %d references", before);
  if (before == 1) end(net);
}

/* ---- reading --------------------------------------------------------------------------------- */

const char *neap_net_name(const neap_net *net) { return net->name; }
uint64_t neap_net_version(const neap_net *net) { return net->version; }
const neap_net *neap_net_outer(const neap_net *net) { return net->outer; }
bool neap_net_is_train(const neap_net *net) { return net->n_gradient > 0 || net->n_backward > 0; }

/* Whether op is a Gradient by a blob that no op of the net makes. */
static bool is_by_given(const neap_net *net, const neap_net_op *op) {
  if (strcmp(op->op->name, "Gradient") != 0) return false;
  for (int i = 1; i < op->n_in; i++) {
    const neap_net_blob *wrt = neap_net_find_blob(net, op->in[i]);
    if (wrt == NULL || (wrt->role != NEAP_ROLE_ACTIVATION && wrt->role != NEAP_ROLE_OUTPUT))
      return true;
  }
  return false;
}

bool neap_net_is_step(const neap_net *net) {
  if (net->n_backward > 0) return true;
  for (int i = 0; net->n_gradient > 0 && i < net->n_op; i++) {
    const neap_net *body = neap_net_do_body(&net->op[i]);
    if (is_by_given(net, &net->op[i]) || (body != NULL && body->n_gradient > 0)) return true;
  }
  return false;
}

int neap_net_n_ops(const neap_net *net) { return net->n_op; }
const neap_net_op *neap_net_op_at(const neap_net *net, int index) {
  return index >= 0 && index < net->n_op ? &net->op[index] : NULL;
}

int neap_net_n_inits(const neap_net *net) { return net->n_init; }
const neap_net_op *neap_net_init_at(const neap_net *net, int index) {
  return index >= 0 && index < net->n_init ? &net->init[index] : NULL;
}

int neap_net_n_blobs(const neap_net *net) { return net->n_cell; }
const neap_net_blob *neap_net_blob_at(const neap_net *net, int index) {
  return index >= 0 && index < net->n_cell ? &net->cell[index].blob : NULL;
}

const neap_net_blob *neap_net_find_blob(const neap_net *net, const char *name) {
  /* The index is by address of an interned name; a name that nobody has used yet is interned on the
   * way, which does no harm. */
  const char *interned = neap_intern(name);
  return interned != NULL ? neap_net_blob_at(net, neap_map_get(&net->cell_of, interned, -1)) : NULL;
}

/* Outputs by default are counted on demand: `unread` changes with every op, the list is asked for
 * once a compilation. */
int neap_net_n_outputs(const neap_net *net) {
  if (net->outputs_set) return net->n_output;
  int n = 0;
  for (int i = 0; i < net->n_cell; i++) n += net->cell[i].unread;
  return n;
}

const char *neap_net_output_at(const neap_net *net, int index) {
  if (net->outputs_set) return index >= 0 && index < net->n_output ? net->output[index] : NULL;
  for (int i = 0; i < net->n_cell; i++)
    if (net->cell[i].unread && index-- == 0) return net->cell[i].blob.name;
  return NULL;
}

int neap_net_n_sub_inputs(const neap_net *net) { return net->n_sub_input; }
const char *neap_net_sub_input_at(const neap_net *net, int index) {
  return index >= 0 && index < net->n_sub_input ? net->sub_input[index] : NULL;
}
