/* compare.c: whether two nets compute the same, whatever their blobs are called: which op reads
 * what which op wrote, with which attributes, and what stays in the end. And where an op works in
 * place. Subnets are compared with their owners.
 *
 * All outputs of a net are numbered, op after op. A *reading* of a name is the number of the last
 * earlier output of that name, with the depth of the net that has it: a subnet sees what the nets
 * around it have written so far. What a subnet takes counts by its position in the interface. A
 * name that nobody wrote is declared, and is told apart by nothing but itself: such a name must be
 * the same in both nets, and so must its declaration. O(operands * depth). Another order of one net
 * is compared with the net in the same way, so that nothing which finds orders is trusted.
 */
#include "net/net_int.h"

#include <stdio.h>
#include <string.h>

/* A net under comparison: what was written last under each name, so far. */
typedef struct view {
  const neap_net *net;
  const struct view *around; /* NULL: outermost, or closed */
  int depth;
  /* name -> number of an output, or FIRST_TAKEN and below: the position among what the subnet
   * takes */
  neap_map last;
  /* Of a net that is looked at out of its order, all of which is noted: before[number] is the
   * output before of the same name, NOBODY for none, and outputs from `limit` on are yet to be
   * written. NULL: what is noted is what was written. */
  const int *before;
  int limit;
} view;

/* Map values that are no outputs: NOBODY stands for none, and what a subnet takes goes down from
 * FIRST_TAKEN. */
enum { NOBODY = -1, FIRST_TAKEN = -2 };

/* What a name means where an op reads it. */
typedef struct reading {
  int depth, number;             /* who wrote it; NOBODY: it is declared, or unknown */
  const char *name;              /* of what nobody wrote; NULL: absent, or written */
  const neap_net_blob *declared; /* NULL: it isn't */
  const neap_net *net;           /* that declares it */
} reading;

/* The two nets, and where the difference goes. */
typedef struct comparison {
  neap_buffer *where; /* may be NULL */
  bool no_memory;     /* an allocation was refused, and the answer means nothing */
} comparison;

/* Number of the output that wrote the name last; NOBODY: none did. */
static int latest(const view *v, const char *name) {
  int number = neap_map_get(&v->last, name, NOBODY);
  /* Of a net whose outputs are all noted, those that are yet to be written don't count. */
  if (v->before == NULL) return number;
  while (number >= v->limit) number = v->before[number];
  return number;
}

static reading read_name(const view *v, const char *name) {
  if (name == NULL) return (reading){.number = NOBODY};
  /* From the inside out: what was written, then what is declared, ends the search. */
  for (const view *level = v; level != NULL; level = level->around) {
    int number = latest(level, name);
    if (number != NOBODY) return (reading){.depth = level->depth, .number = number};
    const neap_net_blob *blob = neap_net_find_blob(level->net, name);
    if (blob != NULL && (blob->type.dtype != NEAP_DTYPE_NONE || blob->role == NEAP_ROLE_INPUT))
      return (reading){level->depth, NOBODY, name, blob, level->net};
  }
  return (reading){.number = NOBODY, .name = name};
}

/* Puts the place and the reason into `where`; false, so that a comparison can end with it. */
static bool say(const comparison *c, int i, const neap_net_op *a, const neap_net_op *b,
                const char *what, const char *which) {
  if (c->where != NULL)
    neap_buffer_add(c->where, "op %d, %s \"%s\" and %s \"%s\": %s%s", i + 1, a->op->name, a->name,
                    b->op->name, b->name, what, which);
  return false;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static bool same_bytes(const void *a, const void *b, int n, size_t size) {
  return n == 0 || memcmp(a, b, (size_t)n * size) == 0;
}

/* Values of one attribute, given or by default. Subnets are compared elsewhere, and so are the
 * lists of a Do. */
static bool same_attr(const neap_attr *attr, const neap_attr_value *x, const neap_attr_value *y) {
  if (attr->unlike_default && x->given != y->given) return false;

  /* Floats bit for bit: 0 and -0 may compute other results. */
  switch (attr->type) {
    case NEAP_ATTR_FLOAT: return same_bytes(&x->f, &y->f, 1, sizeof x->f);
    case NEAP_ATTR_INTS:
    case NEAP_ATTR_AXES: return x->n == y->n && same_bytes(x->ints, y->ints, x->n, sizeof *x->ints);
    case NEAP_ATTR_FLOATS:
      return x->n == y->n && same_bytes(x->floats, y->floats, x->n, sizeof *x->floats);
    case NEAP_ATTR_NAMES:
    case NEAP_ATTR_NET:
    case NEAP_ATTR_NONE: return true;
    default: return x->i == y->i;
  }
}

/* Name of the first attribute in which two ops of one type differ; NULL: none. */
static const char *other_attr(const neap_net_op *x, const neap_net_op *y) {
  int bound = -1;
  /* Which blobs a Do binds is compared by what they stand for: same_bindings. */
  if (neap_net_do_body(x) != NULL) bound = neap_op_attr_index(x->op, "outer_blobs_idx");
  for (int k = 0; k < neap_op_n_attrs(x->op); k++) {
    if (k == bound || same_attr(&x->op->attrs[k], &x->attrs[k], &y->attrs[k])) continue;
    return x->op->attrs[k].name;
  }
  return NULL;
}

/* ---- declarations ---------------------------------------------------------------------------- */

bool neap_net_same_init(const neap_net_op *x, const neap_net_op *y) {
  return x->op == y->op && other_attr(x, y) == NULL;
}

static bool same_init(const neap_net *a, const neap_net_blob *x, const neap_net *b,
                      const neap_net_blob *y) {
  if (x->init < 0 || y->init < 0) return x->init < 0 && y->init < 0;
  return neap_net_same_init(&a->init[x->init], &b->init[y->init]);
}

static bool same_declaration(const reading *x, const reading *y) {
  const neap_net_blob *a = x->declared, *b = y->declared;
  if (a == NULL || b == NULL) return a == b;
  return a->role == b->role && a->trainable == b->trainable &&
         neap_type_equal(&a->type, &b->type) && same_init(x->net, a, y->net, b);
}

/* NULL when both mean the same, else how they differ. */
static const char *differ(const reading *x, const reading *y) {
  if (x->depth != y->depth || x->number != y->number) return "comes from different ops or operands";
  if (x->name != y->name) return "is another blob that no op has written";
  return same_declaration(x, y) ? NULL : "is declared otherwise";
}

/* ---- ops ------------------------------------------------------------------------------------- */

static bool same_subnets(comparison *c, int i, const neap_net_op *x, const neap_net_op *y,
                         const view *a, const view *b);

/* Inputs in their order, and the same outputs left out. */
static bool same_operands(const comparison *c, int i, const neap_net_op *x, const neap_net_op *y,
                          const view *a, const view *b) {
  /* Operands are told apart by who wrote them, never by name. */
  char what[64];
  if (x->n_in != y->n_in || x->n_out != y->n_out)
    return say(c, i, x, y, "they differ in the number of operands", "");

  /* What each input means where its op stands. */
  for (int k = 0; k < x->n_in; k++) {
    reading p = read_name(a, x->in[k]), q = read_name(b, y->in[k]);
    const char *how = differ(&p, &q);
    snprintf(what, sizeof what, "input %d ", k + neap_first_number());
    if (how != NULL) return say(c, i, x, y, what, how);
  }

  for (int k = 0; k < x->n_out; k++)
    if ((x->out[k] == NULL) != (y->out[k] == NULL))
      return say(c, i, x, y, "one leaves out an output that the other gives", "");

  /* What a Do's body writes is bound by name, or found by name in its frame by a later Do. */
  if (!a->net->closed) return true;
  for (int k = 0; k < x->n_out; k++)
    if (x->out[k] != y->out[k]) return say(c, i, x, y, "they write other names of a Do's body", "");
  return true;
}

/* Whether two Do ops bind the same names of their bodies to the same operands, in whatever order
 * they say so. */
static bool same_bindings(const neap_net_op *x, const neap_net_op *y) {
  if (neap_net_do_body(x) == NULL) return true;
  int names = neap_op_attr_index(x->op, "inner_blobs"),
      places = neap_op_attr_index(x->op, "outer_blobs_idx");
  const neap_attr_value *p = &x->attrs[names], *q = &y->attrs[names];
  if (p->n != q->n) return false;
  /* Each name of the one is looked for in the other: a Do binds few. */
  for (int i = 0; i < p->n; i++) {
    int k = 0;
    while (k < q->n && q->names[k] != p->names[i]) k++;
    if (k == q->n || x->attrs[places].ints[i] != y->attrs[places].ints[k]) return false;
  }
  return true;
}

/* Type, device label, operands, attributes, random numbers, subnets. */
static bool same_op(comparison *c, int i, const neap_net_op *x, const neap_net_op *y, const view *a,
                    const view *b) {
  if (x->op != y->op) return say(c, i, x, y, "they differ in type", "");
  if (x->device != y->device) return say(c, i, x, y, "they have different device labels", "");
  if (!same_operands(c, i, x, y, a, b)) return false;
  const char *attr = other_attr(x, y);
  if (attr != NULL) return say(c, i, x, y, "they differ in attribute ", attr);

  /* 0 is a stream that is yet to be given. */
  uint32_t p = x->origin.stream, q = y->origin.stream;
  if ((x->op->effects & NEAP_EFFECT_RANDOM) != 0 && p != 0 && q != 0 && p != q)
    return say(c, i, x, y, "they draw different random numbers", "");
  if (!same_subnets(c, i, x, y, a, b)) return false;
  return same_bindings(x, y) || say(c, i, x, y, "they bind other blobs", "");
}

/* Outputs of the op are numbered from `first` on. */
static void note_outputs(comparison *c, view *v, const neap_net_op *op, int first) {
  for (int k = 0; k < op->n_out; k++)
    if (op->out[k] != NULL && !neap_map_set(&v->last, op->out[k], first + k)) c->no_memory = true;
}

/* What `owner` hands to its subnet gets numbers by position: what an interface takes, or what a Do
 * binds. */
static void note_taken(comparison *c, view *v, const neap_net_op *owner) {
  for (int k = 0; k < v->net->n_sub_input; k++)
    if (!neap_map_set(&v->last, v->net->sub_input[k], FIRST_TAKEN - k)) c->no_memory = true;
  /* A Do has no interface: its names are bound by index, and the index is what two nets have in
   * common. */
  if (neap_net_do_body(owner) != v->net) return;
  const neap_attr_value *inner = &owner->attrs[neap_op_attr_index(owner->op, "inner_blobs")];
  const neap_attr_value *outer = &owner->attrs[neap_op_attr_index(owner->op, "outer_blobs_idx")];
  for (int k = 0; k < inner->n && k < outer->n; k++)
    if (!neap_map_set(&v->last, inner->names[k], FIRST_TAKEN - (int)outer->ints[k]))
      c->no_memory = true;
}

/* ---- what stays ------------------------------------------------------------------------------ */

/* Whether both nets have as many outputs, and read each from the same op. */
static bool same_outputs(const view *a, const view *b) {
  int n = neap_net_n_outputs(a->net);
  if (n != neap_net_n_outputs(b->net)) return false;
  for (int k = 0; k < n; k++) {
    reading x = read_name(a, neap_net_output_at(a->net, k));
    reading y = read_name(b, neap_net_output_at(b->net, k));
    if (differ(&x, &y) != NULL) return false;
  }
  return true;
}

/* Also whether the same ops make what the two give: without, a net whose last op writes over an
 * output would be equal. */
static bool same_results(const comparison *c, const view *a, const view *b) {
  bool same = same_outputs(a, b);
  if (!same && c->where != NULL)
    neap_buffer_add(c->where, "nets \"%s\" and \"%s\": their outputs come from different ops",
                    a->net->name, b->net->name);
  return same;
}

/* Marks in kind[number] what stays of the net's blobs after a run, by who wrote it last: kept ones
 * and gradients of parameters. */
static void mark_resident(const view *v, int n, unsigned char *kind) {
  /* Bit 0: kept; bit 1: a gradient that stays. What is declared has been compared already. */
  for (int i = 0; i < v->net->n_cell; i++) {
    const neap_net_blob *blob = &v->net->cell[i].blob;
    int number = latest(v, blob->name);
    if (number < 0 || number >= n || blob->type.dtype != NEAP_DTYPE_NONE) continue;
    kind[number] |=
      (unsigned char)((blob->keep ? 1 : 0) | (blob->role == NEAP_ROLE_GRADIENT ? 2 : 0));
  }
}

/* What is declared has the same last writer in both nets: one that writes over a parameter or an
 * input differs from one that leaves it. */
static const char *other_declared(const view *a, const view *b) {
  for (int i = 0; i < a->net->n_cell; i++) {
    const neap_net_blob *blob = &a->net->cell[i].blob;
    if (blob->type.dtype == NEAP_DTYPE_NONE) continue;
    if (latest(a, blob->name) != latest(b, blob->name)) return blob->name;
  }
  return NULL;
}

/* `n`: outputs of all ops of either net. */
static bool same_residents(comparison *c, const view *a, const view *b, int n) {
  /* From both sides, since each net may declare what the other does not. */
  const char *name = other_declared(a, b);
  if (name == NULL) name = other_declared(b, a);
  if (name != NULL) {
    if (c->where != NULL)
      neap_buffer_add(c->where,
                      "nets \"%s\" and \"%s\": declared blob \"%s\" is written by different ops",
                      a->net->name, b->net->name, name);
    return false;
  }

  /* What stays is marked by the number of the output that wrote it; then the marks are compared. */
  unsigned char *kind = neap_alloc_zeroed(2 * (size_t)n + 1);
  if (kind == NULL) {
    c->no_memory = true;
    return false;
  }
  mark_resident(a, n, kind);
  mark_resident(b, n, kind + n);
  bool same = memcmp(kind, kind + n, (size_t)n) == 0;
  neap_free(kind);
  if (!same && c->where != NULL)
    neap_buffer_add(c->where, "nets \"%s\" and \"%s\": what they keep comes from different ops",
                    a->net->name, b->net->name);
  return same;
}

/* ---- nets ------------------------------------------------------------------------------------ */

/* Subnets with their owners and what lies around them, outermost nets with NULL. */
static bool same_nets(comparison *c, view *a, view *b, const neap_net_op *owner_a,
                      const neap_net_op *owner_b) {
  int n_a = a->net->n_op, n_b = b->net->n_op, first = 0;

  /* A subnet begins with what it is given. */
  if (owner_a != NULL) {
    note_taken(c, a, owner_a);
    note_taken(c, b, owner_b);
  }
  if (n_a != n_b) {
    if (c->where != NULL)
      neap_buffer_add(c->where, "nets \"%s\" and \"%s\" have %d and %d ops", a->net->name,
                      b->net->name, n_a, n_b);
    return false;
  }

  /* Op by op, in the order they run: an op sees what was written before it and nothing else. */
  for (int i = 0; i < n_a; i++) {
    /* What was refused is missing from the maps, so that no answer means anything. */
    if (c->no_memory) return false;
    const neap_net_op *x = &a->net->op[i], *y = &b->net->op[i];
    if (!same_op(c, i, x, y, a, b)) return false;
    /* Outputs get the same numbers in both, whatever their names. */
    note_outputs(c, a, x, first);
    note_outputs(c, b, y, first);
    first += x->n_out;
  }
  return !c->no_memory && same_results(c, a, b) && same_residents(c, a, b, first);
}

/* Attribute by attribute; the ops are of one type, so their lists of attributes are alike. */
static bool same_subnets(comparison *c, int i, const neap_net_op *x, const neap_net_op *y,
                         const view *a, const view *b) {
  for (int k = 0; k < neap_op_n_attrs(x->op); k++) {
    if (x->op->attrs[k].type != NEAP_ATTR_NET) continue;

    /* A subnet that both lack is alike; one that both have must take as much and see as far. */
    const neap_net *p = x->attrs[k].net, *q = y->attrs[k].net;
    if ((p == NULL) != (q == NULL))
      return say(c, i, x, y, "one has a subnet that the other lacks", "");
    if (p == NULL) continue;
    if (p->closed != q->closed || p->n_sub_input != q->n_sub_input)
      return say(c, i, x, y, "their subnets take different operands", "");
    /* A closed subnet sees nothing of what is around it. */
    view inner_a = {.net = p, .around = p->closed ? NULL : a, .depth = a->depth + 1};
    view inner_b = {.net = q, .around = q->closed ? NULL : b, .depth = b->depth + 1};
    bool same = same_nets(c, &inner_a, &inner_b, x, y);
    neap_map_fini(&inner_a.last);
    neap_map_fini(&inner_b.last);
    if (!same) return false;
  }
  return true;
}

neap_status neap_net_same_graph(const neap_net *a, const neap_net *b, bool *same,
                                neap_buffer *where, neap_error *error) {
  comparison c = {.where = where};
  view p = {.net = a}, q = {.net = b};
  *same = same_nets(&c, &p, &q, NULL, NULL);
  neap_map_fini(&p.last);
  neap_map_fini(&q.last);
  return c.no_memory ? neap_fail_memory(error, 64, "comparing two nets") : NEAP_OK;
}

/* ---- orders ---------------------------------------------------------------------------------- */

/* Notes all outputs of the view's net, numbered from first[i] on for op i, and whom each
 * overwrites. */
static void note_all(comparison *c, view *v, const int *first, int *before) {
  for (int i = 0; i < v->net->n_op; i++)
    for (int k = 0; k < v->net->op[i].n_out; k++) {
      const char *name = v->net->op[i].out[k];
      before[first[i] + k] = name != NULL ? neap_map_get(&v->last, name, NOBODY) : NOBODY;
      if (name != NULL && !neap_map_set(&v->last, name, first[i] + k)) c->no_memory = true;
    }
  v->before = before;
}

/* The net is compared with itself: `a` sees each op where it stands, `b` where it runs. */
static bool same_order(comparison *c, view *a, view *b, const int *order, const int *first) {
  int n = a->net->n_op;
  for (int i = 0; i < n; i++) {
    if (c->no_memory) return false;
    const neap_net_op *op = &a->net->op[order[i]];
    /* Where the op stands it reads what was written before it; where it runs, what has run. */
    a->limit = first[order[i]];
    if (!same_op(c, order[i], op, op, a, b)) return false;
    note_outputs(c, b, op, first[order[i]]);
  }

  /* In the end all has been written, in either order. */
  a->limit = first[n];
  return !c->no_memory && same_results(c, a, b) && same_residents(c, a, b, first[n]);
}

neap_status neap_net_same_in_order(const neap_net *net, const int *order, bool *same,
                                   neap_buffer *where, neap_error *error) {
  comparison c = {.where = where};
  view a = {.net = net}, b = {.net = net};
  int *first = neap_alloc(((size_t)net->n_op + 1) * sizeof *first), *before = NULL, n_out = 0;

  /* Until all room has been taken, an end means that it was refused. */
  c.no_memory = true;
  if (first == NULL) goto done;

  /* Numbers of outputs, in the order in which the ops stand. */
  for (int i = 0; i < net->n_op; i++) {
    first[i] = n_out;
    n_out += net->op[i].n_out;
  }
  first[net->n_op] = n_out;
  before = neap_alloc(((size_t)n_out + 1) * sizeof *before);
  if (before == NULL) goto done;

  /* All outputs are noted once; `before` and the limit then say what was written at any point. */
  c.no_memory = false;
  note_all(&c, &a, first, before);
  *same = !c.no_memory && same_order(&c, &a, &b, order, first);
done:
  neap_map_fini(&a.last);
  neap_map_fini(&b.last);
  neap_free(before);
  neap_free(first);
  return c.no_memory ? neap_fail_memory(error, 64, "comparing two orders of a net") : NEAP_OK;
}

/* ---- in place -------------------------------------------------------------------------------- */

/* Whether the same inputs and outputs of two ops have one name. */
static bool shares_alike(const neap_net_op *x, const neap_net_op *y) {
  if (x->n_in != y->n_in || x->n_out != y->n_out) return false;
  for (int p = 0; p < x->n_in; p++)
    for (int q = 0; q < x->n_out; q++) {
      bool in_x = x->in[p] != NULL && x->in[p] == x->out[q];
      bool in_y = y->in[p] != NULL && y->in[p] == y->out[q];
      if (in_x != in_y) return false;
    }
  return true;
}

/* Whether both have the same pairs (input, output) of one name, subnets included. */
static bool same_pairs(const comparison *c, int i, const neap_net_op *x, const neap_net_op *y) {
  if (!shares_alike(x, y))
    return say(c, i, x, y, "one works in place where the other does not", "");
  for (int k = 0; k < neap_op_n_attrs(x->op); k++) {
    const neap_net *a = x->op->attrs[k].type == NEAP_ATTR_NET ? x->attrs[k].net : NULL;
    const neap_net *b = a != NULL ? y->attrs[k].net : NULL;
    if (a != NULL && b == NULL) return say(c, i, x, y, "one has a subnet that the other lacks", "");
    if (a != NULL && !neap_net_same_in_place(a, b, c->where)) return false;
  }
  return true;
}

bool neap_net_same_in_place(const neap_net *a, const neap_net *b, neap_buffer *where) {
  const comparison c = {.where = where};
  if (a->n_op != b->n_op) {
    if (where != NULL)
      neap_buffer_add(where, "nets \"%s\" and \"%s\" have %d and %d ops", a->name, b->name, a->n_op,
                      b->n_op);
    return false;
  }

  /* Op by op: pairs of two ops that differ in type would say nothing of each other. */
  for (int i = 0; i < a->n_op; i++) {
    if (a->op[i].op != b->op[i].op)
      return say(&c, i, &a->op[i], &b->op[i], "they differ in type", "");
    if (!same_pairs(&c, i, &a->op[i], &b->op[i])) return false;
  }
  return true;
}
