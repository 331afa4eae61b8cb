/* declare.c: what is said about blobs rather than computed: declarations with their init ops,
 * outputs, keeps, the interface of a subnet; and the Gradient op, whose outputs get their names and
 * roles from the blobs it differentiates. */
#include "net/net_int.h"

#include <stdio.h>
#include <string.h>

/* The tail of every message about a declaration: which blob, which line. Returns the code. */
static neap_status fail_blob(neap_status code, const char *name, const char *line,
                             neap_error *error) {
  if (error != NULL && error->blob[0] == '\0')
    snprintf(error->blob, sizeof error->blob, "%s", name);
  if (error != NULL && error->line[0] == '\0' && line != NULL)
    snprintf(error->line, sizeof error->line, "%s", line);
  return code;
}

/* Shapes come from files too. */
static neap_status check_type(const char *name, const neap_type *type, const char *line,
                              neap_error *error) {
  char what[160];
  snprintf(what, sizeof what, "blob \"%.140s\"", name);
  neap_status status = neap_type_check(type, what, error);
  return status == NEAP_OK ? NEAP_OK : fail_blob(status, name, line, error);
}

/* The init op of a blob: `set` with shape and dtype filled in from the blob's type. */
static neap_status make_init(neap_net *net, const neap_net_blob *blob, const char *type,
                             const neap_set *set, neap_net_op *out, neap_error *error) {
  char who[256];

  /* The op must be one that fills a blob out of nothing. */
  const neap_op *op = neap_op_find(type);
  snprintf(who, sizeof who, "%.63s \"%.180s\": ", type, blob->name);

  if (op == NULL) {
    const char *near = neap_op_suggest(type);
    return neap_fail(error, NEAP_NAME, "blob \"%s\": unknown init op \"%s\"%s%s%s", blob->name,
                     type, near != NULL ? ", did you mean \"" : "", near != NULL ? near : "",
                     near != NULL ? "\"?" : "");
  }
  int shape_at = neap_op_attr_index(op, "shape"), dtype_at = neap_op_attr_index(op, "dtype");
  if (neap_op_n_inputs(op) > 0 || neap_op_n_outputs(op) != 1 || shape_at < 0 ||
      op->attrs[shape_at].type != NEAP_ATTR_INTS)
    return neap_fail(error, NEAP_GRAPH,
                     "%scan't fill a blob: an init op has no inputs, one output and a shape", who);

  /* The user's attributes, then shape and dtype as the blob has them. */
  neap_set full[NEAP_OP_MAX_ATTR + 3] = {{0}};
  int n = 0;

  /* What the user says of shape and dtype gives way to the declaration, so that the two never
   * disagree. */
  for (; set != NULL && set->name != NULL && n < NEAP_OP_MAX_ATTR; set++)
    if (!neap_net_is_derived(set->name)) full[n++] = *set;
  full[n] = (neap_set)NEAP_SET_INTS("shape", blob->type.shape.n_dim, blob->type.shape.dim);
  if (dtype_at >= 0) full[n + 1] = (neap_set)NEAP_SET_INT("dtype", blob->type.dtype);

  /* An init op lies outside the net's op list: it runs when a workspace is initialised, in scope
   * "", and its name is its blob's. */
  *out = (neap_net_op){
    .op = op, .name = blob->name, .scope = neap_intern(""), .line = blob->line, .n_out = 1};
  out->layer = out->device = out->scope;
  out->in = neap_arena_alloc(&net->arena, 0);
  out->out = neap_arena_copy(&net->arena, &blob->name, sizeof blob->name);
  if (out->scope == NULL || out->in == NULL || out->out == NULL)
    return neap_fail_memory(error, sizeof *out, "an init op");
  return neap_net_check_attrs(net, op, full, who, &out->attrs, error);
}

/* Both declarations in one message, with the lines that they stand in. */
static neap_status fail_again(const neap_net_blob *old, const neap_net_op *old_init,
                              const neap_net_blob *blob, const neap_net_op *init,
                              neap_error *error) {
  neap_buffer was = {0}, is = {0};
  neap_net_print_declared(old, old_init, &was);
  neap_net_print_declared(blob, init, &is);
  neap_fail(error, NEAP_NAME, "blob \"%s\" is declared already, as %s%.150s, got %s%.150s",
            old->name, neap_role_name(old->role), was.text != NULL ? was.text : "",
            neap_role_name(blob->role), is.text != NULL ? is.text : "");
  neap_buffer_fini(&was);
  neap_buffer_fini(&is);
  bool has_line = old->line[0] != '\0';
  neap_hint(error, "say the same as the first%s%s, or give one of the two another name",
            has_line ? ", at " : "", old->line);
  return fail_blob(NEAP_NAME, old->name, blob->line, error);
}

/* A second declaration says the same as the first; one without an init op says nothing of it. */
static neap_status check_again(const neap_net *net, const neap_net_blob *old,
                               const neap_net_blob *blob, const neap_net_op *init,
                               neap_error *error) {
  /* An input without type is a subnet's parameter; every other declared blob has one. */
  bool declared = old->type.dtype != NEAP_DTYPE_NONE || old->role == NEAP_ROLE_INPUT;
  if (!declared) {
    neap_fail(error, NEAP_NAME, "blob \"%s\" can't be declared: an op of net \"%s\" makes it",
              old->name, net->name);
    return fail_blob(NEAP_NAME, old->name, old->line, error);
  }
  const neap_net_op *old_init = old->init >= 0 ? &net->init[old->init] : NULL;
  bool same_init = init == NULL || (old_init != NULL && neap_net_same_init(old_init, init));
  if (old->role == blob->role && old->trainable == blob->trainable && same_init &&
      neap_type_equal(&old->type, &blob->type))
    return NEAP_OK;
  return fail_again(old, old_init, blob, init, error);
}

/* Checks all, then takes room, then enters blob and init op: so a refusal changes nothing. Layers
 * that share a parameter each declare it: the first counts, and the others must say the same. */
neap_status neap_net_declare(neap_net *net, const char *name, neap_role role, const neap_type *type,
                             bool trainable, const char *init, const neap_set *init_attrs,
                             const char *line, neap_error *error) {
  static const neap_type untyped = {0};
  if (type == NULL) type = &untyped;
  NEAP_TRY(neap_net_check_name("blob", name, error));
  if (role == NEAP_ROLE_ACTIVATION || role == NEAP_ROLE_OUTPUT)
    return neap_fail(error, NEAP_ARGUMENT, "blob \"%s\" can't be declared as %s: ops make those",
                     name, neap_role_name(role));

  /* A subnet's parameters take the types of what its op gives them. */
  if (type->dtype != NEAP_DTYPE_NONE || net->outer == NULL || role != NEAP_ROLE_INPUT)
    NEAP_TRY(check_type(name, type, line, error));
  neap_net_blob blob = {
    .role = role, .trainable = trainable && role == NEAP_ROLE_PARAMETER, .type = *type, .init = -1};
  blob.name = neap_intern(name);
  blob.line = neap_intern(line != NULL ? line : "");
  if (blob.name == NULL || blob.line == NULL)
    return neap_fail_memory(error, strlen(name), "a name");

  /* The init op is checked before the blob's name is looked for: of a second declaration, too, it
   * must be one that could fill the blob. */
  neap_net_op op = {0};
  if (init != NULL) {
    neap_status status = make_init(net, &blob, init, init_attrs, &op, error);
    if (status != NEAP_OK) return fail_blob(status, name, line, error);
    blob.init = net->n_init;
  }

  /* Said already: nothing changes, if both say the same. */
  int old = neap_map_get(&net->cell_of, blob.name, -1);
  if (old >= 0)
    return check_again(net, &net->cell[old].blob, &blob, init != NULL ? &op : NULL, error);
  NEAP_TRY(neap_net_begin_change(net, 0, error));

  /* Room in both lists and in the index: from there on nothing can fail. */
  if (!neap_list_grow(&net->init, &net->cap_init, net->n_init + 1, sizeof *net->init) ||
      !neap_list_grow(&net->cell, &net->cap_cell, net->n_cell + 1, sizeof *net->cell) ||
      !neap_map_set(&net->cell_of, blob.name, net->n_cell))
    return neap_fail_memory(error, sizeof *net->cell, "a blob");
  neap_net_note(net);
  if (init != NULL) net->init[net->n_init++] = op;
  net->cell[net->n_cell++] = (neap_net_cell){.blob = blob, .freed_by = -1};
  neap_net_touch(net);
  return NEAP_OK;
}

/* ---- outputs, keeps, interface --------------------------------------------------------------- */

/* The interned names of blobs that exist, each once, in the net's arena. With `outside` names of
 * the nets around count. */
static neap_status take_names(neap_net *net, const char *what, int n, const char *const *names,
                              bool outside, const char ***out, neap_error *error) {
  const char **list = neap_arena_alloc(&net->arena, (size_t)n * sizeof *list);
  if (list == NULL) return neap_fail_memory(error, (size_t)n * sizeof *list, "a list of names");
  for (int i = 0; i < n; i++) {
    list[i] = neap_intern(names[i]);
    if (list[i] == NULL) return neap_fail_memory(error, strlen(names[i]), "a name");
    neap_net_found found = neap_net_look_up(net, list[i]);
    char who[160];
    snprintf(who, sizeof who, "net \"%.100s\": %s: ", net->name, what);
    /* It must have a value here: defined, not freed and, where only own names count, of this
     * net. */
    if (found.cell == NULL || found.cell->freed_by >= 0 || (!outside && found.net != net))
      return neap_net_fail_undefined(net, who, list[i], error);
    if (found.cell->is_scope) {
      neap_fail(error, NEAP_GRAPH, "%s\"%s\" is a scope, no tensor", who, list[i]);
      return fail_blob(NEAP_GRAPH, list[i], NULL, error);
    }
    for (int k = 0; k < i; k++)
      if (list[k] == list[i]) {
        neap_fail(error, NEAP_NAME, "%sblob \"%s\" is named twice", who, list[i]);
        return fail_blob(NEAP_NAME, list[i], NULL, error);
      }
  }
  *out = list;
  return NEAP_OK;
}

static void set_role(neap_net *net, neap_net_cell *cell, neap_role role) {
  neap_net_note_cell(net, (int)(cell - net->cell));
  cell->blob.role = role;
}

/* Replaces an earlier list. Declared blobs and gradients may be outputs too and keep their roles:
 * they are resident anyway. */
neap_status neap_net_set_outputs(neap_net *net, int n, const char *const *names,
                                 neap_error *error) {
  const char **list = NULL;
  NEAP_TRY(take_names(net, "outputs", n, names, false, &list, error));
  NEAP_TRY(neap_net_begin_change(net, net->n_cell + n, error));
  neap_net_note(net);

  /* The earlier outputs lose the role, all at once: no blob stays an output because it was one in a
   * list before. */
  for (int i = 0; i < net->n_cell; i++)
    if (net->cell[i].blob.role == NEAP_ROLE_OUTPUT)
      set_role(net, &net->cell[i], NEAP_ROLE_ACTIVATION);
  for (int i = 0; i < n; i++) {
    neap_net_cell *cell = neap_net_look_up(net, list[i]).cell;
    if (cell->blob.role == NEAP_ROLE_ACTIVATION) set_role(net, cell, NEAP_ROLE_OUTPUT);
  }

  /* The list lies in the net's arena; the one before it stays there, unused. */
  net->output = list;
  net->n_output = n;
  net->outputs_set = true;
  neap_net_touch(net);
  return NEAP_OK;
}

/* Kept blobs have bytes of their own in every program of the net; nothing takes it back. */
neap_status neap_net_keep(neap_net *net, const char *name, neap_error *error) {
  const char **list = NULL;
  NEAP_TRY(take_names(net, "keep", 1, &name, false, &list, error));
  NEAP_TRY(neap_net_begin_change(net, 1, error));
  neap_net_cell *cell = neap_net_look_up(net, list[0]).cell;
  neap_net_note(net);
  neap_net_note_cell(net, (int)(cell - net->cell));
  cell->blob.keep = true;
  neap_net_touch(net);
  return NEAP_OK;
}

/* Assigning a blob again moves it. */
neap_status neap_net_assign(neap_net *net, const char *name, const char *bank, neap_error *error) {
  NEAP_TRY(neap_net_check_name("bank", bank, error));
  const char *interned = neap_intern(bank), *blob = neap_intern(name);
  if (interned == NULL || blob == NULL)
    return neap_fail_memory(error, strlen(bank) + strlen(name), "a bank's name");
  neap_net_found found = neap_net_look_up(net, blob);
  char who[160];
  snprintf(who, sizeof who, "net \"%.100s\": bank: ", net->name);

  /* A blob of this very net, no scope, and none of a subnet's, which lies whole in the bank of its
   * op. */
  if (found.cell == NULL || found.net != net) return neap_net_fail_undefined(net, who, blob, error);
  if (net->outer != NULL) {
    neap_hint(error, "assign the op that the subnet belongs to");
    neap_fail(error, NEAP_GRAPH,
              "%sblob \"%s\" is a subnet's, and a subnet lies whole in the bank of its op", who,
              blob);
    return fail_blob(NEAP_GRAPH, blob, NULL, error);
  }
  if (found.cell->is_scope) {
    neap_fail(error, NEAP_GRAPH, "%s\"%s\" is a scope, no tensor", who, blob);
    return fail_blob(NEAP_GRAPH, blob, NULL, error);
  }

  NEAP_TRY(neap_net_begin_change(net, 1, error));
  neap_net_cell *cell = neap_net_look_up(net, blob).cell;
  neap_net_note(net);
  neap_net_note_cell(net, (int)(cell - net->cell));
  cell->blob.bank = interned;
  neap_net_touch(net);
  return NEAP_OK;
}

/* What an expanded net says of the blobs of its backward. A resident gradient is there after the
 * run anyway, so it is no output because nobody reads it. */
neap_status neap_net_set_gradient(neap_net *net, const char *name, const char *of, bool resident,
                                  neap_error *error) {
  NEAP_TRY(neap_net_check_name("blob", of, error));
  const char *interned = neap_intern(name), *of_name = neap_intern(of);
  if (interned == NULL || of_name == NULL) return neap_fail_memory(error, strlen(of), "a name");
  int at = neap_map_get(&net->cell_of, interned, -1);
  if (at < 0) return neap_net_fail_undefined(net, "gradient: ", interned, error);
  neap_net_cell *cell = &net->cell[at]; /* one that a Free has ended still was a gradient */
  if (cell->blob.type.dtype != NEAP_DTYPE_NONE) {
    neap_fail(error, NEAP_ARGUMENT,
              "net \"%s\": gradient: blob \"%s\" is declared: its role says what it is", net->name,
              name);
    return fail_blob(NEAP_ARGUMENT, interned, NULL, error);
  }

  NEAP_TRY(neap_net_begin_change(net, 1, error));
  neap_net_note(net);
  neap_net_note_cell(net, at);
  cell->blob.gradient_of = of_name;
  if (resident && cell->blob.role == NEAP_ROLE_ACTIVATION) {
    cell->blob.role = NEAP_ROLE_GRADIENT;
    cell->unread = false;
  }
  neap_net_touch(net);
  return NEAP_OK;
}

/* Both lists may name blobs of the subnet or of the nets around it: a branch that is not taken
 * gives back what it got. Names from around count as read. */
neap_status neap_net_set_sub_interface(neap_net *sub, int n_in, const char *const *in, int n_out,
                                       const char *const *out, neap_error *error) {
  if (sub->outer == NULL)
    return neap_fail(error, NEAP_ARGUMENT, "net \"%s\" is no subnet: it has outputs, no interface",
                     sub->name);
  const char **inputs = NULL, **results = NULL;
  NEAP_TRY(take_names(sub, "inputs", n_in, in, true, &inputs, error));
  NEAP_TRY(take_names(sub, "results", n_out, out, true, &results, error));

  /* Room for both lists and for notes, before the first name is marked. */
  if (!neap_net_reserve_outside(sub, n_in + n_out))
    return neap_fail_memory(error, sizeof *inputs, "an interface");
  NEAP_TRY(neap_net_begin_change(sub, n_in + n_out, error));
  neap_net_note(sub);

  /* What is handed in is read by the owner where it stands; a result that the subnet does not make
   * itself is handed through. */
  for (int i = 0; i < n_in; i++) neap_net_mark_read(sub, inputs[i]);
  for (int i = 0; i < n_out; i++)
    if (neap_map_get(&sub->cell_of, results[i], -1) < 0) neap_net_mark_read(sub, results[i]);
  sub->sub_input = inputs;
  sub->n_sub_input = n_in;
  sub->output = results;
  sub->n_output = n_out;
  sub->outputs_set = sub->interface_set = true;
  neap_net_touch(sub);
  return NEAP_OK;
}

/* ---- gradient -------------------------------------------------------------------------------- */

/* Adds what op `o` reads, subnets included, to `needed`. */
static bool need_inputs(neap_map *needed, const neap_net_op *o) {
  for (int i = 0; i < o->n_in; i++)
    if (o->in[i] != NULL && !neap_map_set(needed, o->in[i], 1)) return false;
  for (int a = 0; a < neap_op_n_attrs(o->op); a++) {
    const neap_net *sub = o->op->attrs[a].type == NEAP_ATTR_NET ? o->attrs[a].net : NULL;
    if (sub == NULL) continue;
    for (int k = 0; k < sub->n_outside; k++)
      if (!neap_map_set(needed, sub->outside[k], 1)) return false;
  }
  return true;
}

/* Trainable parameters that `loss` depends on by name, in declaration order: an over-estimate where
 * names are reused. */
static neap_status default_wrt(neap_net *net, const char *loss, int *n, const char ***out,
                               neap_error *error) {
  neap_map needed = {0};
  const char **list = neap_arena_alloc(&net->arena, (size_t)net->n_cell * sizeof *list),
             *name = neap_intern(loss);
  if (list == NULL || name == NULL || !neap_map_set(&needed, name, 1)) goto fail_memory;

  /* Backwards from the loss: an op that makes something needed needs all that it reads. One walk
   * suffices, since readers stand behind writers. */
  for (int i = net->n_op - 1; i >= 0; i--) {
    const neap_net_op *o = &net->op[i];
    bool is_needed = false;
    for (int j = 0; j < o->n_out; j++)
      if (o->out[j] != NULL && neap_map_get(&needed, o->out[j], 0)) is_needed = true;
    if (is_needed && !need_inputs(&needed, o)) goto fail_memory;
  }

  /* Of all that is needed, the parameters that are trained, in the order of their declarations. */
  *n = 0;
  for (int i = 0; i < net->n_cell; i++) {
    const neap_net_blob *blob = &net->cell[i].blob;
    if (blob->trainable && neap_map_get(&needed, blob->name, 0)) list[(*n)++] = blob->name;
  }

  /* An empty list would be a net that trains nothing: that is said at once. */
  neap_map_fini(&needed);
  *out = list;
  if (*n > 0) return NEAP_OK;
  neap_fail(error, NEAP_GRAPH, "Gradient: \"%s\" depends on no trainable parameter", loss);
  return fail_blob(NEAP_GRAPH, loss, NULL, error);
fail_memory:
  neap_map_fini(&needed);
  return neap_fail_memory(error, 64, "a list of parameters");
}

/* "<blob>_grad", or with a number where that name is taken. */
static const char *gradient_name(const neap_net *net, const char *blob) {
  const char *base = neap_intern_format("%s_grad", blob), *name = base;
  for (int i = 2; name != NULL && neap_net_look_up(net, name).cell != NULL; i++)
    name = neap_net_join("", base, i);
  return name;
}

/* Without `wrt` all trainable parameters that the loss depends on. A second gradient of one blob
 * gets a name of its own, so that it never overwrites the first unasked. */
neap_status neap_net_add_gradient_of(neap_net *net, const char *loss, int n_wrt,
                                     const char *const *wrt, const char *const *grads,
                                     bool allow_unused, const char *line, neap_error *error) {
  if (wrt == NULL) {
    const char **list = NULL;
    NEAP_TRY(default_wrt(net, loss, &n_wrt, &list, error));
    wrt = list;
  }
  size_t bytes = (size_t)(n_wrt + 1) * sizeof(char *);
  const char **in = neap_arena_alloc(&net->arena, bytes),
             **out = neap_arena_alloc(&net->arena, bytes);
  if (in == NULL || out == NULL) return neap_fail_memory(error, bytes, "a Gradient op");

  /* The loss first, then what it is differentiated by, with a name for each gradient. */
  in[0] = loss;
  for (int i = 0; i < n_wrt; i++) {
    in[i + 1] = wrt[i];
    out[i] = grads != NULL && grads[i] != NULL ? grads[i] : gradient_name(net, wrt[i]);
    if (out[i] == NULL) return neap_fail_memory(error, 64, "a name");
  }

  /* The record's default allows blobs that the loss does not depend on; the attribute is given only
   * where it says otherwise. */
  const neap_set strict[] = {NEAP_SET_INT("allow_unused", 0), {0}};
  neap_net_call call = {.type = "Gradient",
                        .n_in = n_wrt + 1,
                        .in = in,
                        .n_out = n_wrt,
                        .out = out,
                        .attrs = allow_unused ? NULL : strict,
                        .line = line};
  return neap_net_add(net, &call, NULL, error);
}

neap_status neap_net_add_gradient(neap_net *net, const char *loss, int n_wrt,
                                  const char *const *wrt, const char *const *grads,
                                  const char *line, neap_error *error) {
  return neap_net_add_gradient_of(net, loss, n_wrt, wrt, grads, true, line, error);
}

bool neap_net_op_writes_declared(const neap_net *net, const neap_net_op *op) {
  /* In a subnet the declared names are arguments; a Free writes nothing. */
  if (net->outer != NULL || (op->op->effects & NEAP_EFFECT_RELEASE) != 0) return false;
  for (int k = 0; k < op->n_out; k++) {
    const neap_net_blob *blob = op->out[k] != NULL ? neap_net_find_blob(net, op->out[k]) : NULL;
    if (blob != NULL && blob->type.dtype != NEAP_DTYPE_NONE) return true;
  }
  return false;
}

unsigned neap_net_sub_effects(const neap_net_op *op) {
  unsigned effects = NEAP_EFFECT_NONE;
  for (int a = 0; a < neap_op_n_attrs(op->op); a++) {
    const neap_net *sub = op->op->attrs[a].type == NEAP_ATTR_NET ? op->attrs[a].net : NULL;
    if (sub == NULL) continue;
    for (int i = 0; i < sub->n_op; i++)
      effects |= sub->op[i].op->effects | neap_net_sub_effects(&sub->op[i]);
  }
  return effects;
}
