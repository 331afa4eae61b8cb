/* add.c: adding an op. A draft of it is checked against the record, then committed.
 *
 * INVARIANT: until `commit` the net's lists are untouched; commit first takes all the room it
 * needs, then can't fail. What a failed draft took from the arena stays unused until the net dies.
 */
#include "net/net_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct draft {
  neap_net *net;
  const neap_net_call *call;
  neap_net_op op;      /* what will be added */
  const char *counter; /* "scope/conv": key in net->counter; NULL: no number was drawn */
  int number;          /* the last one drawn */
  char who[256];       /* "Conv \"a/conv_1\": " */
} draft;

/* Fills the record's op, scope, line and blob, once the message stands. Returns the code. */
static neap_status located(const draft *d, neap_status code, const char *blob, neap_error *error) {
  if (error == NULL || error->op[0] != '\0') return code;
  /* The deepest error has spoken first: what it has filled in stays. */
  snprintf(error->op, sizeof error->op, "%s", d->call->type);
  snprintf(error->scope, sizeof error->scope, "%s", d->op.scope != NULL ? d->op.scope : "");
  snprintf(error->line, sizeof error->line, "%s", d->op.line != NULL ? d->op.line : "");
  if (blob != NULL && error->blob[0] == '\0') snprintf(error->blob, sizeof error->blob, "%s", blob);
  return code;
}

static neap_status out_of_memory(neap_error *error) {
  return neap_fail_memory(error, 64, "an op of a net");
}

/* ---- identity: record, scope, line, name ----------------------------------------------------- */

/* The record of the call's type. NAME error with the nearest public op when there is none. */
static neap_status find_record(draft *d, neap_error *error) {
  d->op.op = neap_op_find(d->call->type);
  if (d->op.op != NULL) return NEAP_OK;
  const char *near = neap_op_suggest(d->call->type);
  neap_fail(error, NEAP_NAME, "unknown op type \"%s\"%s%s%s", d->call->type,
            near != NULL ? ", did you mean \"" : "", near != NULL ? near : "",
            near != NULL ? "\"?" : "");
  if (near == NULL) neap_hint(error, "`neap ops` lists all ops");
  return NEAP_NAME;
}

/* Op names and blob names live apart: only other ops can take one. */
static bool op_name_taken(const neap_net *net, const char *name) {
  return neap_map_get(&net->op_of, name, -1) >= 0;
}

/* The next number that makes both an op name and a blob name that are free. */
static const char *draw_name(draft *d) {
  const char *base = neap_net_snake(d->op.op->name);
  if (base == NULL) return NULL;

  /* Numbers go on from the last one that was drawn for this scope and type. */
  if (d->counter == NULL) {
    d->counter = neap_net_join(d->op.scope, base, 0);
    if (d->counter == NULL) return NULL;
    d->number = neap_map_get(&d->net->counter, d->counter, 0);
  }
  for (;;) {
    const char *name = neap_net_join(d->op.scope, base, ++d->number);
    /* Both at once, because an op without a name gives it to its first output. */
    if (name == NULL ||
        (!op_name_taken(d->net, name) && neap_net_look_up(d->net, name).cell == NULL))
      return name;
  }
}

/* Interns scope, layer and line, and gives the op its full name: "scope/name" as the user said,
 * else "scope/type_n" with the next free number. From here on `who` names the op. NAME error when a
 * name is none or is taken. */
static neap_status name_op(draft *d, neap_error *error) {
  const neap_net_call *call = d->call;
  const char *scope = call->scope != NULL ? call->scope : "";
  const char *layer = call->layer != NULL ? call->layer : "";
  if (scope[0] != '\0') NEAP_TRY(neap_net_check_name("scope", scope, error));
  if (layer[0] != '\0') NEAP_TRY(neap_net_check_name("layer", layer, error));

  /* What comes from outside must be a name before it is interned. */
  d->op.scope = neap_intern(scope);
  d->op.layer = neap_intern(layer);
  d->op.line = neap_intern(call->line != NULL ? call->line : "");
  const char *device = call->device != NULL ? call->device : "";
  if (device[0] != '\0') NEAP_TRY(neap_net_check_name("label", device, error));
  d->op.device = neap_intern(device);

  /* Of an op of a backward pass: the forward op it belongs to, by name. */
  d->op.origin = call->origin;
  if (call->origin.forward != NULL) {
    NEAP_TRY(neap_net_check_name("op", call->origin.forward, error));
    d->op.origin.forward = neap_intern(call->origin.forward);
    if (d->op.origin.forward == NULL) return out_of_memory(error);
  }

  /* One question for four texts: each is NULL when memory was refused. */
  if (d->op.scope == NULL || d->op.layer == NULL || d->op.line == NULL || d->op.device == NULL)
    return out_of_memory(error);

  /* A name that the user gave must be one before a scope goes in front of it. */
  if (call->name != NULL) NEAP_TRY(neap_net_check_name("op", call->name, error));
  d->op.name = call->name != NULL ? neap_net_join(scope, call->name, 0) : draw_name(d);
  if (d->op.name == NULL) return out_of_memory(error);
  snprintf(d->who, sizeof d->who, "%.63s \"%.180s\": ", d->op.op->name, d->op.name);

  /* Two ops of one name: the message says where the other one stands. */
  int taken = neap_map_get(&d->net->op_of, d->op.name, -1);
  if (taken < 0) return NEAP_OK;
  const char *line = d->net->op[taken].line;
  return neap_fail(error, NEAP_NAME, "%sanother op of net \"%s\" has this name%s%s", d->who,
                   d->net->name, line[0] != '\0' ? ", at " : "", line);
}

/* ---- arity ----------------------------------------------------------------------------------- */

/* The least and most arguments of a list; most -1: any number. */
static void arity(const neap_arg *args, int n, int *least, int *most) {
  *least = 0;
  /* An optional argument before a required one has a place all the same: it is given as absent. */
  for (int i = 0; i < n; i++)
    if ((args[i].flags & NEAP_ARG_OPTIONAL) == 0) *least = i + 1;
  *most = n > 0 && (args[n - 1].flags & NEAP_ARG_VARIADIC) != 0 ? -1 : n;
}

/* GRAPH error unless n fits the list: "expects 2 to 3 inputs (x, w, b?), got 1"; "?" marks what may
 * be absent, "..." what may be repeated. */
static neap_status check_arity(const draft *d, const char *what, const neap_arg *args, int n_arg,
                               int n, neap_error *error) {
  int least, most;
  arity(args, n_arg, &least, &most);
  if (n >= least && (n <= most || most < 0)) return NEAP_OK;

  /* The record's arguments, as far as they fit. */
  char list[160] = "", want[48];
  size_t used = 0;
  for (int i = 0; i < n_arg && used + 40 < sizeof list; i++) {
    const char *mark = "";
    if ((args[i].flags & NEAP_ARG_OPTIONAL) != 0) mark = "?";
    if ((args[i].flags & NEAP_ARG_VARIADIC) != 0) mark = "...";
    used += (size_t)snprintf(list + used, sizeof list - used, "%s%.30s%s", i > 0 ? ", " : "",
                             args[i].name, mark);
  }
  if (most < 0)
    snprintf(want, sizeof want, "at least %d", least);
  else if (least == most)
    snprintf(want, sizeof want, "%d", least);
  else
    snprintf(want, sizeof want, "%d to %d", least, most);

  /* One error in three forms: the message, and what was expected and got for those who read
   * fields. */
  const char *plural = least == 1 && most == 1 ? "" : "s";
  neap_fail(error, NEAP_GRAPH, "%sexpects %s %s%s (%s), got %d", d->who, want, what, plural, list,
            n);
  if (error != NULL && error->expected[0] == '\0') {
    snprintf(error->expected, sizeof error->expected, "%s %s%s", want, what, plural);
    snprintf(error->got, sizeof error->got, "%d", n);
  }
  return NEAP_GRAPH;
}

/* ---- inputs and outputs ---------------------------------------------------------------------- */

/* A scope where one is asked for, a tensor elsewhere. A scope is used in the net that made it: its
 * frames are values there. */
static neap_status check_kind(const draft *d, const neap_arg *arg, int i, int n,
                              neap_net_found found, neap_error *error) {
  bool wants_scope = neap_net_is_scope_arg(arg, i, n);
  const char *name = found.cell->blob.name;
  if (wants_scope && !found.cell->is_scope) {
    neap_fail(error, NEAP_GRAPH, "%sexpects a scope, \"%s\" is a tensor", d->who, name);
    neap_hint(error, "%s = CreateScope() makes one", name);
    return located(d, NEAP_GRAPH, name, error);
  }

  /* No kernel reads a scope: it is a table of names, and has no bytes. */
  if (!wants_scope && found.cell->is_scope) {
    neap_fail(error, NEAP_GRAPH, "%sinput %s expects a tensor, \"%s\" is a scope", d->who,
              arg->name, name);
    return located(d, NEAP_GRAPH, name, error);
  }

  /* A branch that may not be taken must not push frames that the net around it counts on. */
  if (wants_scope && found.net != d->net) {
    neap_fail(error, NEAP_GRAPH,
              "%sscope \"%s\" belongs to net \"%s\", around the branch or body that uses it",
              d->who, name, found.net->name);
    neap_hint(error, "create the scope inside the branch or body");
    return located(d, NEAP_GRAPH, name, error);
  }
  return NEAP_OK;
}

/* Interns the inputs into the draft; each must be readable here: declared, or made by an earlier
 * op, and not freed. An absent one (NULL) must be optional. */
static neap_status take_inputs(draft *d, neap_error *error) {
  const neap_net_call *call = d->call;
  const neap_op *op = d->op.op;
  NEAP_TRY(check_arity(d, "input", op->inputs, neap_op_n_inputs(op), call->n_in, error));
  d->op.n_in = call->n_in;
  d->op.in = neap_arena_alloc(&d->net->arena, (size_t)call->n_in * sizeof *d->op.in);
  if (d->op.in == NULL) return out_of_memory(error);
  for (int i = 0; i < call->n_in; i++) {
    /* Absent: allowed where the record says so. */
    const neap_arg *arg = neap_op_input(op, i);
    if (call->in[i] == NULL) {
      if ((arg->flags & NEAP_ARG_OPTIONAL) != 0) continue;
      neap_fail(error, NEAP_GRAPH, "%sinput %s (number %d) is missing", d->who, arg->name,
                i + neap_first_number());
      return located(d, NEAP_GRAPH, arg->name, error);
    }
    const char *name = neap_intern(call->in[i]);
    if (name == NULL) return out_of_memory(error);
    neap_net_found found = neap_net_look_up(d->net, name);
    /* A blob that a Free has ended has no value here. */
    if (found.cell == NULL || found.cell->freed_by >= 0)
      return neap_net_fail_undefined(d->net, d->who, name, error);
    NEAP_TRY(check_kind(d, arg, i, call->n_in, found, error));
    d->op.in[i] = name;
  }
  return NEAP_OK;
}

/* The name of an enforced output is its input's; NULL when output j is not enforced. */
static const char *enforced_name(const draft *d, int j) {
  for (int k = 0; k < d->op.op->n_enforced; k++) {
    neap_pair pair = d->op.op->enforced[k];
    if (pair.out == j && pair.in < d->op.n_in) return d->op.in[pair.in];
  }
  return NULL;
}

/* Fills out[j]. `given`: the user's name; "" for absent, which only an optional output may be; NULL
 * to get a name: that of the input it is enforced upon, else the op's own while that is free, else
 * the next number. */
static neap_status name_output(draft *d, int j, const char *given, neap_error *error) {
  const neap_arg *arg = neap_op_output(d->op.op, j);
  if (given != NULL && given[0] == '\0') {
    if ((arg->flags & NEAP_ARG_OPTIONAL) != 0) return NEAP_OK;
    return neap_fail(error, NEAP_GRAPH, "%soutput %s (number %d) can't be left out", d->who,
                     arg->name, j + neap_first_number());
  }
  if (given != NULL) NEAP_TRY(neap_net_check_name("blob", given, error));

  /* A name of the user's, or that of the input which the output is written over. */
  const char *name = given != NULL ? neap_intern(given) : enforced_name(d, j);

  /* The op's own number serves its first unnamed output, so that conv_1 is the output of conv_1. */
  if (name == NULL && d->counter != NULL && neap_net_look_up(d->net, d->op.name).cell == NULL) {
    name = d->op.name;
    for (int k = 0; k < j; k++)
      if (d->op.out[k] == name) name = NULL;
  }
  if (name == NULL) name = draw_name(d);
  d->op.out[j] = name;
  return name != NULL ? NEAP_OK : out_of_memory(error);
}

/* GRAPH error when the name is a constant's, of this net or one around it: its values stand for it
 * in all nets of a workspace. */
static neap_status check_constant(const draft *d, int j, const char *name, neap_error *error) {
  neap_net_found found = neap_net_look_up(d->net, name);
  if (found.cell == NULL || found.cell->blob.init < 0) return NEAP_OK;
  const neap_net_op *init = &found.net->init[found.cell->blob.init];
  int constant = neap_op_attr_index(init->op, "constant");
  if (constant < 0 || init->attrs[constant].i == 0) return NEAP_OK;

  /* The message says where the constant is declared: that line and this op's exclude each other. */
  const char *line = found.cell->blob.line;
  neap_fail(error, NEAP_GRAPH, "%sconstant \"%s\"%s%s%s is written by output %s", d->who, name,
            line[0] != '\0' ? " (" : "", line, line[0] != '\0' ? ")" : "",
            neap_op_output(d->op.op, j)->name);
  neap_hint(error,
            "all nets of a workspace read its values: give the output another name, or "
            "declare a state");
  return located(d, NEAP_GRAPH, name, error);
}

/* What an output's name stood for until now must let it be written here; and no output before it
 * has the same name. */
static neap_status check_output(const draft *d, int j, neap_error *error) {
  const neap_op *op = d->op.op;
  const char *name = d->op.out[j], *label = neap_op_output(op, j)->name;
  if ((op->effects & NEAP_EFFECT_RELEASE) == 0) NEAP_TRY(check_constant(d, j, name, error));

  /* What the name stood for stays of its kind: a scope or a tensor. */
  int old = neap_map_get(&d->net->cell_of, name, -1);
  bool makes_scope = neap_net_is_scope_arg(neap_op_output(op, j), j, d->op.n_out);
  if (old >= 0 && d->net->cell[old].is_scope != makes_scope) {
    neap_fail(error, NEAP_GRAPH, "%soutput %s can't be \"%s\", which is a %s", d->who, label, name,
              makes_scope ? "tensor" : "scope");
    return located(d, NEAP_GRAPH, name, error);
  }

  /* Later readers could not say which of the two they mean. */
  for (int k = 0; k < j; k++)
    if (d->op.out[k] == name) {
      neap_fail(error, NEAP_GRAPH, "%soutputs %d and %d are both named \"%s\"", d->who, k + 1,
                j + 1, name);
      return located(d, NEAP_GRAPH, name, error);
    }
  return NEAP_OK;
}

/* Names all outputs; GRAPH error when two of them are one name: SSA could not tell which is
 * meant. */
static neap_status take_outputs(draft *d, neap_error *error) {
  const neap_net_call *call = d->call;
  const neap_op *op = d->op.op;

  /* As many as the user gave names for, or the least that the record asks for. */
  int least, most, n = call->n_out;
  arity(op->outputs, neap_op_n_outputs(op), &least, &most);
  if (call->out == NULL && n == 0) n = least; /* nothing said: all required ones, named here */
  NEAP_TRY(check_arity(d, "output", op->outputs, neap_op_n_outputs(op), n, error));

  /* One after another: a name that is drawn must differ from those that were given before it. */
  d->op.n_out = n;
  d->op.out = neap_arena_alloc(&d->net->arena, (size_t)n * sizeof *d->op.out);
  if (d->op.out == NULL) return out_of_memory(error);
  for (int j = 0; j < n; j++) {
    NEAP_TRY(name_output(d, j, call->out != NULL ? call->out[j] : NULL, error));
    if (d->op.out[j] != NULL) NEAP_TRY(check_output(d, j, error));
  }
  return NEAP_OK;
}

/* ---- in place by name ------------------------------------------------------------------------ */

/* Whether (in, out) is one of n pairs. */
static bool has_pair(const neap_pair *pair, int n, int in, int out) {
  for (int k = 0; k < n; k++)
    if (pair[k].in == in && pair[k].out == out) return true;
  return false;
}

/* Whether the record lets output `out` carry the name of input `in`. A control op writes the blobs
 * around it by name, so it may do so everywhere. */
static bool may_share_name(const neap_op *op, int in, int out) {
  return (op->effects & (NEAP_EFFECT_CONTROL | NEAP_EFFECT_RELEASE)) != 0 ||
         (op->inplace_any_input && out == 0) || has_pair(op->inplace, op->n_inplace, in, out) ||
         has_pair(op->enforced, op->n_enforced, in, out) ||
         has_pair(op->alias, op->n_alias, in, out);
}

/* GRAPH error when output `out` has the name of inputs, and none of them may give it its bytes. One
 * allowed pair is enough: in y = Add(y, y) both are the same value. */
static neap_status check_in_place(const draft *d, int out, neap_error *error) {
  const neap_op *op = d->op.op;
  int same = -1;
  for (int i = 0; i < d->op.n_in; i++) {
    if (d->op.in[i] != d->op.out[out]) continue;
    if (may_share_name(op, i, out)) return NEAP_OK;
    same = i;
  }
  if (same < 0) return NEAP_OK;
  neap_fail(error, NEAP_GRAPH, "%soutput %s can't be written in place over input %s (\"%s\")",
            d->who, neap_op_output(op, out)->name, neap_op_input(op, same)->name, d->op.out[out]);
  neap_hint(error, "give the output another name: the planner shares the bytes where it can");
  return located(d, NEAP_GRAPH, d->op.out[out], error);
}

/* An enforced output is the next version of its input's storage; another name would promise a copy
 * that nobody makes. */
static neap_status check_enforced(const draft *d, neap_pair pair, neap_error *error) {
  if (pair.in >= d->op.n_in || pair.out >= d->op.n_out) return NEAP_OK;
  const char *in = d->op.in[pair.in], *out = d->op.out[pair.out];
  if (in == NULL || out == NULL || in == out) return NEAP_OK;
  neap_fail(error, NEAP_GRAPH,
            "%soutput %s must be written in place over input %s: expected \"%s\", got \"%s\"",
            d->who, neap_op_output(d->op.op, pair.out)->name,
            neap_op_input(d->op.op, pair.in)->name, in, out);
  return located(d, NEAP_GRAPH, out, error);
}

/* NULL when the blob may be freed in `net`: it is a transient value of this very net, and nobody
 * was promised to find it. */
static const char *why_not_freed(const neap_net *net, neap_net_found found) {
  const neap_net_blob *blob = &found.cell->blob;
  if (found.net != net) return "belongs to the net around this one";
  if (blob->keep) return "is kept";
  if (blob->role == NEAP_ROLE_OUTPUT) return "is an output of the net";
  bool declared = blob->type.dtype != NEAP_DTYPE_NONE || blob->role == NEAP_ROLE_INPUT;
  return declared ? "is declared" : NULL;
}

/* The inputs of Free, each once; its outputs, if any are named, are the inputs in their order. */
static neap_status check_release(const draft *d, neap_error *error) {
  if ((d->op.op->effects & NEAP_EFFECT_RELEASE) == 0) return NEAP_OK;
  if (d->op.n_out != 0 && d->op.n_out != d->op.n_in)
    return neap_fail(error, NEAP_GRAPH,
                     "%sexpects as many outputs as inputs, each the same blob, got %d and %d",
                     d->who, d->op.n_out, d->op.n_in);

  /* Outputs that are named are the inputs; no blob is freed twice; each may be freed. */
  for (int k = 0; k < d->op.n_out; k++)
    if (d->op.out[k] != d->op.in[k]) {
      neap_fail(error, NEAP_GRAPH, "%soutput %d must be its input: expected \"%s\", got \"%s\"",
                d->who, k + 1, d->op.in[k], d->op.out[k] != NULL ? d->op.out[k] : "_");
      return located(d, NEAP_GRAPH, d->op.in[k], error);
    }

  /* A second end of one life would free what somebody else has by then. */
  for (int i = 1; i < d->op.n_in; i++)
    for (int k = 0; k < i; k++)
      if (d->op.in[k] == d->op.in[i]) {
        neap_fail(error, NEAP_GRAPH, "%sblob \"%s\" would be freed twice", d->who, d->op.in[i]);
        return located(d, NEAP_GRAPH, d->op.in[i], error);
      }

  /* What lasts, or was promised, is not the net's to end. */
  for (int i = 0; i < d->op.n_in; i++) {
    const char *name = d->op.in[i];
    const char *why = name != NULL ? why_not_freed(d->net, neap_net_look_up(d->net, name)) : NULL;
    if (why == NULL) continue;
    neap_fail(error, NEAP_GRAPH, "%sblob \"%s\" can't be freed: it %s", d->who, name, why);
    return located(d, NEAP_GRAPH, name, error);
  }
  return NEAP_OK;
}

/* The one pseudo-op whose outputs get a role from its inputs. */
static bool is_gradient(const neap_op *op) {
  return (op->effects & NEAP_EFFECT_PSEUDO) != 0 && strcmp(op->name, "Gradient") == 0;
}

/* A list that may be of any length has another that must be as long: the record can't say so. */
static neap_status check_gradient(const draft *d, neap_error *error) {
  if (!is_gradient(d->op.op) || d->op.n_out == d->op.n_in - 1) return NEAP_OK;
  neap_fail(error, NEAP_GRAPH, "%sexpects as many outputs as blobs to differentiate by, %d, got %d",
            d->who, d->op.n_in - 1, d->op.n_out);
  return located(d, NEAP_GRAPH, NULL, error);
}

/* All rules about names that stand on both sides. */
static neap_status check_pairs(const draft *d, neap_error *error) {
  for (int j = 0; j < d->op.n_out; j++)
    if (d->op.out[j] != NULL) NEAP_TRY(check_in_place(d, j, error));
  for (int k = 0; k < d->op.op->n_enforced; k++)
    NEAP_TRY(check_enforced(d, d->op.op->enforced[k], error));
  NEAP_TRY(check_gradient(d, error));
  return check_release(d, error);
}

/* ---- commit ---------------------------------------------------------------------------------- */

bool neap_net_reserve_outside(neap_net *net, int more) {
  /* In every net around: a name that is read here and defined nowhere on the way out is outside of
   * each of them. */
  for (; net->outer != NULL; net = net->outer)
    if (!neap_list_grow(&net->outside, &net->cap_outside, net->n_outside + more,
                        sizeof *net->outside))
      return false;
  return true;
}

void neap_net_mark_read(neap_net *net, const char *name) {
  for (; net != NULL; net = net->outer) {
    int i = neap_map_get(&net->cell_of, name, -1);
    /* a cell beyond is what the op itself is about to write: it reads the name around it */
    if (i >= 0 && i < net->n_cell) {
      if (net->cell[i].unread) neap_net_note_cell(net, i);
      net->cell[i].unread = false;
      return;
    }
    int k = 0;
    while (k < net->n_outside && net->outside[k] != name) k++;
    if (k == net->n_outside && net->outer != NULL) net->outside[net->n_outside++] = name;
  }
}

void neap_net_touch(neap_net *net) {
  /* so that a version is never given twice in a process; atomic, hence safe between threads */
  static uint64_t last;
  for (; net != NULL; net = net->outer)
    net->version = __atomic_add_fetch(&last, 1, __ATOMIC_RELAXED);
}

/* Names that the op's subnets take from outside. */
static int n_outside_of_subs(const draft *d) {
  int n = 0;
  for (int i = 0; i < neap_op_n_attrs(d->op.op); i++)
    if (d->op.op->attrs[i].type == NEAP_ATTR_NET && d->op.attrs[i].net != NULL)
      n += d->op.attrs[i].net->n_outside;
  return n;
}

/* All that can be refused: room in the lists, keys in the maps. Undone when the last of it
 * fails. */
static bool reserve(draft *d) {
  neap_net *net = d->net;
  int n_new = 0, n_sub_name = n_outside_of_subs(d);

  /* Each input is marked as read, and perhaps freed; each output is written; a number is drawn. */
  if (neap_net_begin_change(net, 2 * d->op.n_in + d->op.n_out + n_sub_name + 1, NULL) != NEAP_OK)
    return false;

  /* Lists first: what they have grown is simply not used. Keys come last, since they must be taken
   * out again. */
  if (!neap_list_grow(&net->op, &net->cap_op, net->n_op + 1, sizeof *net->op)) return false;
  if (!neap_list_grow(&net->cell, &net->cap_cell, net->n_cell + d->op.n_out, sizeof *net->cell))
    return false;
  if (!neap_net_reserve_outside(net, d->op.n_in + n_sub_name)) return false;
  if (!neap_map_set(&net->op_of, d->op.name, net->n_op)) return false;

  /* New names get the numbers that their cells will have. */
  for (int j = 0; j < d->op.n_out; j++) {
    if (d->op.out[j] == NULL || neap_map_get(&net->cell_of, d->op.out[j], -1) >= 0) continue;
    if (!neap_map_set(&net->cell_of, d->op.out[j], net->n_cell + n_new)) goto fail_names;
    n_new++;
  }

  /* Last, so that what follows undoes everything else; a number that a refused op has drawn is
   * drawn again. */
  if (d->counter != NULL) neap_net_note_counter(net, d->counter);
  if (d->counter == NULL || neap_map_set(&net->counter, d->counter, d->number)) return true;
fail_names:
  neap_map_remove(&net->op_of, d->op.name);
  for (int j = 0; j < d->op.n_out; j++)
    if (d->op.out[j] != NULL && neap_map_get(&net->cell_of, d->op.out[j], -1) >= net->n_cell)
      neap_map_remove(&net->cell_of, d->op.out[j]);
  return false;
}

/* Output j becomes the last version of its name: a new cell, or an old one that is alive (again).
 * Its role is GRADIENT where a Gradient op differentiates by a parameter, unless it says that they
 * are not resident; a declared blob keeps the role it was declared with. */
static void write_output(draft *d, int j) {
  neap_net *net = d->net;
  const char *name = d->op.out[j];
  if (name == NULL) return;

  /* A new name has its number from reserve; an old one changes, so that it is noted first. */
  int at = neap_map_get(&net->cell_of, name, -1);
  neap_net_cell *cell = &net->cell[at];
  if (at >= net->n_cell) {
    *cell = (neap_net_cell){.blob = {.name = name, .init = -1, .line = d->op.line}, .freed_by = -1};
    net->n_cell = at + 1;
  } else {
    neap_net_note_cell(net, at);
  }

  cell->freed_by = -1;

  /* A name that a Free had ended may be written again: it is another value from here on. */
  cell->n_write++;

  /* Output j of a Gradient is by input j + 1: the first input is the loss. */
  if (is_gradient(d->op.op)) {
    const char *by = d->op.in[j + 1];
    bool resident = d->op.attrs[neap_op_attr_index(d->op.op, "resident")].i != 0;
    if (resident && cell->blob.role == NEAP_ROLE_ACTIVATION &&
        neap_net_look_up(net, by).cell->blob.role == NEAP_ROLE_PARAMETER)
      cell->blob.role = NEAP_ROLE_GRADIENT;
    cell->blob.gradient_of = by;
  }

  /* What an enforced pair writes in place is the declared blob's next version, which is there
   * anyway: no output by default. */
  bool declared = cell->blob.type.dtype != NEAP_DTYPE_NONE;
  cell->is_scope = neap_net_is_scope_arg(neap_op_output(d->op.op, j), j, d->op.n_out);
  cell->unread = !cell->is_scope && cell->blob.role != NEAP_ROLE_GRADIENT &&
                 !(declared && enforced_name(d, j) == name);
}

/* Marks what the op reads: its inputs, and what its subnets take from here. */
static void mark_reads(draft *d) {
  neap_net *net = d->net;
  const neap_op *op = d->op.op;
  for (int i = 0; i < d->op.n_in; i++) {
    if (d->op.in[i] == NULL) continue;
    /* A loss stays an output of the net although Gradient reads it. */
    if (!is_gradient(op) || i > 0) neap_net_mark_read(net, d->op.in[i]);
    /* A Free ends its inputs: readers from here on are refused. */
    if ((op->effects & NEAP_EFFECT_RELEASE) == 0) continue;
    int at = neap_map_get(&net->cell_of, d->op.in[i], -1);
    neap_net_note_cell(net, at);
    net->cell[at].freed_by = net->n_op;
  }
  for (int i = 0; i < neap_op_n_attrs(op); i++) {
    const neap_net *sub = op->attrs[i].type == NEAP_ATTR_NET ? d->op.attrs[i].net : NULL;
    if (sub == NULL) continue;
    /* Names that a subnet takes are read here, or further out. */
    for (int k = 0; k < sub->n_outside; k++) neap_net_mark_read(net, sub->outside[k]);
  }
}

/* The op goes into the net. Can't fail: see reserve. */
static void commit(draft *d) {
  neap_net *net = d->net;
  const neap_op *op = d->op.op;
  NEAP_ASSERT(net->n_op < net->cap_op && net->n_cell <= net->cap_cell, "room was taken before");
  neap_net_note(net);

  /* Reads before writes, so that x = Relu(x) leaves x unread. */
  mark_reads(d);

  /* Map values for new cells count up in output order, as write_output fills them. The outputs of a
   * Free are its inputs' names, and nothing is written. */
  if ((op->effects & NEAP_EFFECT_RELEASE) == 0)
    for (int j = 0; j < d->op.n_out; j++) write_output(d, j);
  neap_net_enter_frame(net, &d->op);

  /* Now the op is part of the net; a new version tells those who have read it before. */
  net->op[net->n_op++] = d->op;

  /* How many Gradients and backward ops there are, so that nobody has to look for them. */
  net->n_gradient += is_gradient(op);

  /* built into this net */
  if (neap_net_do_body(&d->op) != NULL) net->n_gradient += neap_net_do_body(&d->op)->n_gradient;
  net->n_backward += d->op.origin.backward;
  neap_net_touch(net);
}

/* The whole schema check, in the order in which messages make sense: what the op is, what it reads,
 * what it writes, how. */
static neap_status check(draft *d, neap_error *error) {
  snprintf(d->who, sizeof d->who, "%.63s: ", d->call->type);
  NEAP_TRY(find_record(d, error));
  NEAP_TRY(name_op(d, error));
  NEAP_TRY(take_inputs(d, error));
  NEAP_TRY(take_outputs(d, error));
  NEAP_TRY(check_pairs(d, error));
  NEAP_TRY(neap_net_check_attrs(d->net, d->op.op, d->call->attrs, d->who, &d->op.attrs, error));
  NEAP_TRY(neap_net_check_do(d->net, &d->op, d->who, error));
  return neap_net_check_written_out(&d->op, d->who, error);
}

/* The one door by which ops get into nets, whoever writes them: Lua, text, a copy, an optimizer. */
neap_status neap_net_add(neap_net *net, const neap_net_call *call, int *op_index,
                         neap_error *error) {
  /* Either the op stands in the net with all that follows from it, or nothing has changed. */
  draft d = {.net = net, .call = call};
  NEAP_TRY(neap_net_begin_change(net, 0, error));
  neap_status status = check(&d, error);
  if (status == NEAP_OK && call->typed) status = neap_net_check_op_types(net, &d.op, error);
  if (status == NEAP_OK && !reserve(&d)) status = out_of_memory(error);
  if (status != NEAP_OK) return located(&d, status, NULL, error);
  commit(&d);
  if (op_index != NULL) *op_index = net->n_op - 1;
  return NEAP_OK;
}
