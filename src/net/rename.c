/* rename.c: a copy of a net under other blob names, in another order, with Frees put in; a clone
 * changes nothing.
 *
 * The copy is made by replaying the calls that made the net, so that a change which breaks a rule
 * (an in-place that the op does not allow, a read before the write) is refused by the check that
 * refuses it anywhere. Its order is that of dependence: declarations, ops with their subnets before
 * them, what is said of gradients, keeps, outputs.
 *
 * INVARIANT: the net that is copied is only read; a copy that fails is freed whole.
 */
#include "net/net_int.h"

#include <stdio.h>
#include <string.h>

typedef neap_net_copier copier;

static neap_status fail_memory(const copier *c) {
  return neap_fail_memory(c->error, 64, "a copy of a net");
}

/* The new name, by the innermost net that has one for it; the old one where it is not in a list. */
static const char *renamed(const copier *c, const char *name) {
  /* A subnet's local names come before the net's list, the innermost first: a local name may be one
   * that means something else outside. */
  for (const copier *level = c; level != NULL; level = level->around) {
    if (level->edit == NULL) break;
    for (int i = 0; i < level->edit->n_local; i++)
      if (level->edit->local[i].sub == level->net && level->edit->local[i].from == name)
        return level->edit->local[i].to;
  }
  /* Then the net's list; what is in neither keeps its name. */
  int i = name != NULL ? neap_map_get(c->at, name, -1) : -1;
  return i >= 0 ? c->to[i] : name;
}

/* The names of a list under the renaming, from neap_alloc; `absent` stands for NULL. NULL when
 * refused. */
static const char **rename_list(const copier *c, int n, const char *const *name,
                                const char *absent) {
  const char **list = neap_alloc_zeroed((size_t)n * sizeof *list);
  if (list == NULL) return NULL;
  for (int i = 0; i < n; i++) list[i] = name[i] != NULL ? renamed(c, name[i]) : absent;
  return list;
}

/* The body of a Do has names of its own: what the nets around it are renamed to does not reach
 * in. */
static const neap_map no_names;

neap_net_copier neap_net_plain_copier(const neap_net *net, neap_error *error) {
  return (copier){.net = net, .at = &no_names, .error = error};
}

neap_status neap_net_copy_declaration(const copier *c, const neap_net *net, const neap_net_blob *b,
                                      neap_net *to) {
  /* The init op comes along by name and by what was said of it; shape and dtype follow anew. */
  const neap_net_op *init = b->init >= 0 ? &net->init[b->init] : NULL;
  neap_set *set = init != NULL ? neap_net_given(init, true) : NULL;
  if (init != NULL && set == NULL) return fail_memory(c);
  neap_status status =
    neap_net_declare(to, renamed(c, b->name), b->role, &b->type, b->trainable,
                     init != NULL ? init->op->name : NULL, set, b->line, c->error);
  neap_free(set);
  return status;
}

/* Two blobs that become one must agree in role and type; the first one's init stays. */
static neap_status copy_declarations(const copier *c, const neap_net *net, neap_net *to) {
  for (int i = 0; i < net->n_cell; i++) {
    const neap_net_blob *b = &net->cell[i].blob;
    /* Made by an op: its own copy will make it. */
    if (b->type.dtype == NEAP_DTYPE_NONE && b->role != NEAP_ROLE_INPUT) continue;
    NEAP_TRY(neap_net_copy_declaration(c, net, b, to));
  }
  return NEAP_OK;
}

static neap_status copy_net(const copier *c, const neap_net *net, neap_net *to);

/* The copies of the op's subnets, in `set`; a subnet that an earlier op has brought is taken from
 * `subs`. */
static neap_status copy_subnets(const copier *c, const neap_net_op *op, neap_net *to,
                                neap_map *subs, neap_set *set) {
  for (; set->name != NULL; set++) {
    if (op->op->attrs[neap_op_attr_index(op->op, set->name)].type != NEAP_ATTR_NET ||
        set->value.net == NULL)
      continue;
    /* A subnet that two ops share is copied once, and shared by their copies too. */
    const neap_net *from = set->value.net;
    int i = neap_map_get(subs, from, -1);
    if (i < 0) {
      neap_net *sub;
      NEAP_TRY(from->closed ? neap_net_new_closed_sub(to, from->name, &sub, c->error)
                            : neap_net_new_sub(to, from->name, &sub, c->error));
      i = to->n_sub - 1;
      if (!neap_map_set(subs, from, i)) return fail_memory(c);

      /* A closed body sees no outer name, so no outer renaming; an open one sees them all, under
       * the new names. */
      copier inside = from->closed ? (copier){.at = &no_names, .error = c->error} : *c;
      inside.net = from;
      inside.around = from->closed ? NULL : c;
      NEAP_TRY(copy_net(&inside, from, sub));
    }
    set->value.net = to->sub[i];
  }
  return NEAP_OK;
}

/* Op names, scopes and lines stay: only blobs are renamed. */
neap_status neap_net_copy_op(const copier *c, const neap_net_op *op, neap_net *to, neap_map *subs) {
  neap_status status;
  neap_set *set = neap_net_given(op, false);
  const char **in = rename_list(c, op->n_in, op->in, NULL),
             **out = rename_list(c, op->n_out, op->out, "");
  if (set == NULL || in == NULL || out == NULL) {
    status = fail_memory(c);
    goto done;
  }

  /* Subnets first: the call names them. */
  status = copy_subnets(c, op, to, subs, set);
  if (status != NEAP_OK) goto done;
  neap_net_call call = {.type = op->op->name,
                        .n_in = op->n_in,
                        .n_out = op->n_out,
                        .in = in,
                        .out = out,
                        .attrs = set,
                        .name = neap_net_strip_scope(op->name, op->scope),
                        .scope = op->scope,
                        .layer = op->layer,
                        .line = op->line,
                        .device = op->device,
                        .origin = op->origin};
  status = neap_net_add(to, &call, NULL, c->error);
done:
  neap_free(set);
  neap_free(in);
  neap_free(out);
  return status;
}

/* What is said of gradients; blobs that became one are told apart no more, and the first one speaks
 * for them. */
static neap_status copy_gradients(const copier *c, const neap_net *net, neap_net *to) {
  for (int i = 0; i < net->n_cell; i++) {
    const neap_net_blob *blob = &net->cell[i].blob;
    if (blob->gradient_of == NULL) continue;
    const char *name = renamed(c, blob->name);
    const neap_net_blob *copy = neap_net_find_blob(to, name);
    /* Two names have become one blob: what the first says of it holds. */
    if (copy != NULL && copy->gradient_of != NULL && copy->role == blob->role) continue;
    NEAP_TRY(neap_net_set_gradient(to, name, renamed(c, blob->gradient_of),
                                   blob->role == NEAP_ROLE_GRADIENT, c->error));
  }
  return NEAP_OK;
}

/* The outputs of an outermost net, which are said in the copy even where they followed from what
 * nobody reads: after a renaming that may be another blob. */
static neap_status copy_outputs(const copier *c, const neap_net *net, neap_net *to) {
  int n = neap_net_n_outputs(net);
  const char **out = neap_alloc_zeroed((size_t)n * sizeof *out);
  if (out == NULL) return fail_memory(c);
  /* In the order of the original's. */
  for (int k = 0; k < n; k++) out[k] = renamed(c, neap_net_output_at(net, k));
  neap_status status = neap_net_set_outputs(to, n, out, c->error);
  neap_free(out);
  return status;
}

/* A blob that an edit or a cut has left out has no bank either. */
neap_status neap_net_copy_banks(const copier *c, const neap_net *net, neap_net *to) {
  for (int i = 0; i < net->n_cell; i++) {
    const neap_net_blob *blob = &net->cell[i].blob;
    const char *name = renamed(c, blob->name);
    if (blob->bank != NULL && neap_net_find_blob(to, name) != NULL)
      NEAP_TRY(neap_net_assign(to, name, blob->bank, c->error));
  }
  return NEAP_OK;
}

/* Gradients, keeps, banks, then outputs or the interface. */
static neap_status copy_lists(const copier *c, const neap_net *net, neap_net *to) {
  NEAP_TRY(copy_gradients(c, net, to));

  /* A kept blob is kept under its new name. */
  for (int i = 0; i < net->n_cell; i++)
    if (net->cell[i].blob.keep)
      NEAP_TRY(neap_net_keep(to, renamed(c, net->cell[i].blob.name), c->error));
  NEAP_TRY(neap_net_copy_banks(c, net, to));

  /* A plain clone of a net without a list keeps on saying nothing: its outputs follow from later
   * ops, as the original's do. */
  if (!net->outputs_set)
    return c->edit != NULL && net->outer == NULL ? copy_outputs(c, net, to) : NEAP_OK;

  /* A list that was said is said again, under the new names. */
  const char **in = rename_list(c, net->n_sub_input, net->sub_input, NULL),
             **out = rename_list(c, net->n_output, net->output, NULL);
  /* An interface is a list of both kinds; else there are only outputs. */
  neap_status status;
  if (in == NULL || out == NULL)
    status = fail_memory(c);
  else if (net->interface_set)
    status = neap_net_set_sub_interface(to, net->n_sub_input, in, net->n_output, out, c->error);
  else
    status = neap_net_set_outputs(to, net->n_output, out, c->error);
  neap_free(in);
  neap_free(out);
  return status;
}

/* Into `text`, without its scope: the name of a Free that neither `to` nor, of the ops that are
 * still to come, `net` has. */
static neap_status name_free(const copier *c, const neap_net *net, const char *scope,
                             const neap_net *to, char text[32]) {
  for (int number = 1;; number++) {
    snprintf(text, 32, "free_%d", number);
    const char *name = neap_net_join(scope, text, 0);
    if (name == NULL) return fail_memory(c);
    if (neap_map_get(&net->op_of, name, -1) < 0 && neap_map_get(&to->op_of, name, -1) < 0)
      return NEAP_OK;
  }
}

/* The Frees that stand after op `at`: each an op of its own, at the line of the op whose work it
 * follows. */
static neap_status add_frees(const copier *c, const neap_net *net, int at, neap_net *to) {
  const neap_net_op *op = &net->op[at];
  for (int i = 0; i < c->edit->n_free; i++) {
    if (c->edit->free_after[i] != at) continue;
    const char *name = renamed(c, neap_intern(c->edit->freed[i]));
    char free_name[32];
    NEAP_TRY(name_free(c, net, op->scope, to, free_name));
    /* Free names its blob on both sides: nothing else comes of it. */
    neap_net_call call = {.type = "Free",
                          .name = free_name,
                          .n_in = 1,
                          .in = &name,
                          .n_out = 1,
                          .out = &name,
                          .scope = op->scope,
                          .layer = op->layer,
                          .line = op->line,
                          .device = op->device};
    NEAP_TRY(neap_net_add(to, &call, NULL, c->error));
  }
  return NEAP_OK;
}

/* Op `at`, with the random stream that the edit has for it. */
static neap_status copy_op_at(const copier *c, const neap_net *net, int at, neap_net *to,
                              neap_map *subs) {
  neap_net_op op = net->op[at];
  if (c->edit != NULL && net->outer == NULL && c->edit->stream != NULL && c->edit->stream[at] != 0)
    op.origin.stream = c->edit->stream[at];
  return neap_net_copy_op(c, &op, to, subs);
}

/* Replays `net` into the empty net `to`. */
static neap_status copy_net(const copier *c, const neap_net *net, neap_net *to) {
  neap_map subs = {0};

  /* Subnets come along with their ops: what is edited is the outermost net. */
  bool edited = c->edit != NULL && net->outer == NULL;
  neap_status status = copy_declarations(c, net, to);
  if (status != NEAP_OK) goto done;

  /* Op by op, in the order that the edit asks for, each with the Frees that stand after it. */
  for (int i = 0; i < net->n_op; i++) {
    int at = edited && c->edit->order != NULL ? c->edit->order[i] : i;
    status = copy_op_at(c, net, at, to, &subs);
    if (status == NEAP_OK && edited) status = add_frees(c, net, at, to);
    if (status != NEAP_OK) goto done;
  }
  status = copy_lists(c, net, to);
done:
  neap_map_fini(&subs);
  return status;
}

/* Whether a blob of this name is defined in the net or in a subnet. */
static bool has_blob(const neap_net *net, const char *name) {
  if (neap_map_get(&net->cell_of, name, -1) >= 0) return true;
  for (int i = 0; i < net->n_sub; i++)
    if (!net->sub[i]->closed && has_blob(net->sub[i], name)) return true;
  return false;
}

/* from[i] -> i. NAME error for a blob that is nowhere in the net: a typing error would else rename
 * nothing, silently. */
static neap_status index_names(const neap_net *net, int n, const char *const *from, neap_map *at,
                               neap_error *error) {
  for (int i = 0; i < n; i++) {
    const char *name = neap_intern(from[i]);
    if (name == NULL) return neap_fail_memory(error, strlen(from[i]), "a name");
    if (!has_blob(net, name)) return neap_net_fail_undefined(net, "rename: ", name, error);
    /* The name's index leads to what it becomes. */
    if (!neap_map_set(at, name, i)) return neap_fail_memory(error, 64, "a renaming");
  }
  return NEAP_OK;
}

/* ARGUMENT error unless `order` names each op once. */
static neap_status check_order(const neap_net *net, const int *order, neap_error *error) {
  bool *seen = neap_alloc_zeroed((size_t)net->n_op + 1);
  if (seen == NULL) return neap_fail_memory(error, (size_t)net->n_op, "the order of a net");
  neap_status status = NEAP_OK;
  for (int i = 0; i < net->n_op; i++) {
    /* A place of its own for each op: n of them, none twice, are all. */
    int at = order[i];
    if (at < 0 || at >= net->n_op || seen[at]) {
      status =
        neap_fail(error, NEAP_ARGUMENT,
                  "order: net \"%s\" has %d ops, and each must be named once; entry %d is %d",
                  net->name, net->n_op, i + 1, at + 1);
      break;
    }
    seen[at] = true;
  }
  neap_free(seen);
  return status;
}

/* What an edit says of ops and blobs must be of this net: Frees stand after ops and name blobs. */
static neap_status check_edit(const neap_net *net, const neap_net_edit *edit, neap_error *error) {
  if (edit->order != NULL) NEAP_TRY(check_order(net, edit->order, error));
  for (int i = 0; i < edit->n_free; i++) {
    const char *name = neap_intern(edit->freed[i]);
    if (name == NULL) return neap_fail_memory(error, strlen(edit->freed[i]), "a name");
    if (neap_map_get(&net->cell_of, name, -1) < 0)
      return neap_net_fail_undefined(net, "free: ", name, error);
    if (edit->free_after[i] < 0 || edit->free_after[i] >= net->n_op)
      return neap_fail(error, NEAP_ARGUMENT, "free: net \"%s\" has no op %d", net->name,
                       edit->free_after[i] + 1);
  }
  return NEAP_OK;
}

/* All doors lead here. `edit` NULL: a clone. The lists are borrowed for the call; *out is owned. */
static neap_status copy(const neap_net *net, int n, const char *const *from, const char *const *to,
                        const neap_net_edit *edit, neap_net **out, neap_error *error) {
  if (net->outer != NULL)
    return neap_fail(error, NEAP_ARGUMENT,
                     "subnet \"%s\" can't be copied alone: copy the net around it", net->name);

  /* What the caller says is looked at before the copy is begun. */
  neap_map at = {0};
  neap_net *made = NULL;
  copier c = {.net = net, .at = &at, .to = to, .edit = edit, .error = error};
  neap_status status = index_names(net, n, from, &at, error);
  if (status == NEAP_OK && edit != NULL) status = check_edit(net, edit, error);
  if (status == NEAP_OK) status = neap_net_new(net->name, &made, error);
  if (status == NEAP_OK) status = copy_net(&c, net, made);
  neap_map_fini(&at);
  if (status != NEAP_OK) {
    neap_net_free(made);
    return status;
  }
  *out = made;
  return NEAP_OK;
}

/* Gradients, keeps and outputs come along; outputs of a closed subnet mean nothing, so they do no
 * harm. */
neap_status neap_net_copy_sub(neap_net *outer, const neap_net *net, neap_net **out,
                              neap_error *error) {
  if (net->outer != NULL)
    return neap_fail(error, NEAP_ARGUMENT,
                     "subnet \"%s\" can't be copied alone: copy the net around it", net->name);
  copier c = {.at = &no_names, .error = error};
  *out = NULL;
  /* It is in the outer net's list from its making on: one that fails is taken out again. */
  neap_net *sub;
  NEAP_TRY(neap_net_new_closed_sub(outer, net->name, &sub, error));
  neap_status status = copy_net(&c, net, sub);
  if (status == NEAP_OK)
    *out = sub;
  else
    neap_net_drop_last_sub(outer);
  return status;
}

neap_status neap_net_rename(const neap_net *net, int n, const char *const *from,
                            const char *const *to, neap_net **out, neap_error *error) {
  static const neap_net_edit no_other = {0};
  return copy(net, n, from, to, n > 0 ? &no_other : NULL, out, error);
}

neap_status neap_net_copy_edited(const neap_net *net, const neap_net_edit *edit, neap_net **out,
                                 neap_error *error) {
  return copy(net, edit->n_rename, edit->from, edit->to, edit, out, error);
}

neap_status neap_net_clone(const neap_net *net, neap_net **out, neap_error *error) {
  return neap_net_rename(net, 0, NULL, NULL, out, error);
}
