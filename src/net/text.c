/* text.c: a net as text, one line a declaration or op; read.c reads it back. The grammar, words
 * divided by white space:
 *
 *   net NAME
 *   input|param|state|gradient NAME [DTYPE (D,D,..)] [frozen] [= INIT { ATTRS }] [at LINE]
 *   OUT, OUT = TYPE(IN, IN) { NAME = VALUE, .. } [as OP] [in SCOPE] [of LAYER] [on DEVICE]
 *       [back OP|_] [draws N] [at LINE]
 *   grad NAME of NAME [resident]
 *   keep NAME, ..      outputs NAME, ..      bank BANK NAME, ..
 *   subnet NAME        its lines, indented; `takes NAME, ..` and `gives NAME, ..` are its interface
 *   end
 *   subnet NAME closed sees no name from around it: the body of a Do
 *
 * "_" stands where an operand is absent. `back` and `draws` are the neap_net_origin of an expanded
 * net's op. An op without outputs is TYPE(IN, ..). A subnet stands before the first op that has it
 * as attribute. `as` is left out where the op is called as its first output; `in`, `of` and `at`
 * stand there on request. Attributes that the user did not give are left out. Axes count from 0.
 * INVARIANT: reading gives a net that prints the same text; floats have as many digits as reading
 * back needs.
 */
#include "net/net_int.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct printer {
  neap_buffer *out;
  bool lines;
  int depth;
} printer;

static void indent(const printer *p) {
  for (int d = 0; d < p->depth; d++) neap_buffer_add_n(p->out, "  ", 2);
}

/* {1,2,3}; floats with as many digits as reading back needs. */
static void print_list(const neap_attr_value *value, bool floats, neap_buffer *out) {
  neap_buffer_add(out, "{");
  for (int i = 0; i < value->n; i++) {
    if (i > 0) neap_buffer_add(out, ",");
    if (floats)
      neap_buffer_add_number(out, value->floats[i]);
    else
      neap_buffer_add(out, "%lld", (long long)value->ints[i]);
  }
  neap_buffer_add(out, "}");
}

/* "a, b, _" */
static void print_names(int n, const char *const *name, neap_buffer *out) {
  for (int i = 0; i < n; i++)
    neap_buffer_add(out, "%s%s", i > 0 ? ", " : "", name[i] != NULL ? name[i] : "_");
}

/* As read_value reads it. Positions and axes are as C has them, from 0. */
static void print_value(const neap_attr *attr, const neap_attr_value *value, neap_buffer *out) {
  switch (attr->type) {
    case NEAP_ATTR_FLOAT: neap_buffer_add_number(out, value->f); break;
    case NEAP_ATTR_BOOL: neap_buffer_add(out, "%s", value->i != 0 ? "true" : "false"); break;
    case NEAP_ATTR_DTYPE: neap_buffer_add(out, "%s", neap_dtype_name((neap_dtype)value->i)); break;
    case NEAP_ATTR_NET:
      neap_buffer_add(out, "%s", value->net != NULL ? value->net->name : "_");
      break;
    case NEAP_ATTR_ENUM: {
      /* The word at that place in "none|mean|sum". */
      const char *text = attr->choices;
      for (int64_t i = 0; i < value->i; i++) text = strchr(text, '|') + 1;
      neap_buffer_add_n(out, text, strcspn(text, "|"));
      break;
    }
    case NEAP_ATTR_INTS:
    case NEAP_ATTR_AXES: print_list(value, false, out); break;
    case NEAP_ATTR_FLOATS: print_list(value, true, out); break;
    case NEAP_ATTR_NAMES:
      neap_buffer_add(out, "{");
      print_names(value->n, value->names, out);
      neap_buffer_add(out, "}");
      break;
    case NEAP_ATTR_NONE:
    case NEAP_ATTR_INT:
    case NEAP_ATTR_AXIS: neap_buffer_add(out, "%lld", (long long)value->i); break;
  }
}

/* " { a = 1, b = {2,3} }", or nothing when the user gave none. */
static void print_attrs(const neap_net_op *op, bool skip_derived, neap_buffer *out) {
  int n = 0;
  for (int i = 0; i < neap_op_n_attrs(op->op); i++) {
    const neap_attr *attr = &op->op->attrs[i];
    /* Only what was said: a default that changes reaches nets that said nothing. */
    if (!op->attrs[i].given || (skip_derived && neap_net_is_derived(attr->name))) continue;
    neap_buffer_add(out, "%s%s = ", n++ == 0 ? " { " : ", ", attr->name);
    print_value(attr, &op->attrs[i], out);
  }
  if (n > 0) neap_buffer_add(out, " }");
}

/* The rest of a line: control characters would end it early. */
static void print_line_suffix(const printer *p, const char *line) {
  if (!p->lines || line[0] == '\0') return;
  /* A line comes from outside, and may hold anything. */
  neap_buffer_add(p->out, " at ");
  for (; *line != '\0'; line++)
    neap_buffer_add_n(p->out, iscntrl((unsigned char)*line) ? "?" : line, 1);
}

void neap_net_print_declared(const neap_net_blob *blob, const neap_net_op *init, neap_buffer *out) {
  char shape[NEAP_SHAPE_TEXT];
  if (blob->type.dtype != NEAP_DTYPE_NONE)
    neap_buffer_add(out, " %s %s", neap_dtype_name(blob->type.dtype),
                    neap_shape_text(&blob->type.shape, shape));
  if (blob->role == NEAP_ROLE_PARAMETER && !blob->trainable) neap_buffer_add(out, " frozen");
  if (init == NULL) return;
  neap_buffer_add(out, " = %s", init->op->name);
  print_attrs(init, true, out);
}

/* One declared blob, with its init op. */
static void print_declaration(const printer *p, const neap_net *net, const neap_net_blob *blob) {
  static const char *const word[] = {[NEAP_ROLE_INPUT] = "input",
                                     [NEAP_ROLE_PARAMETER] = "param",
                                     [NEAP_ROLE_STATE] = "state",
                                     [NEAP_ROLE_GRADIENT] = "gradient"};
  indent(p);
  /* Role, name, type, then what differs from the usual: frozen, an init op. */
  neap_buffer_add(p->out, "%s %s", word[blob->role], blob->name);
  neap_net_print_declared(blob, blob->init >= 0 ? &net->init[blob->init] : NULL, p->out);
  print_line_suffix(p, blob->line);
  neap_buffer_add(p->out, "\n");
}

/* One op; its name only where it differs from its first output's. */
static void print_op(const printer *p, const neap_net_op *op) {
  indent(p);

  /* Outputs, type, inputs, attributes. */
  print_names(op->n_out, op->out, p->out);

  /* An op without outputs begins with its type. */
  neap_buffer_add(p->out, "%s%s(", op->n_out > 0 ? " = " : "", op->op->name);
  print_names(op->n_in, op->in, p->out);
  neap_buffer_add(p->out, ")");
  print_attrs(op, false, p->out);

  /* What follows is left out where it says nothing. */
  if (op->n_out == 0 || op->out[0] != op->name) neap_buffer_add(p->out, " as %s", op->name);
  if (p->lines && op->scope[0] != '\0') neap_buffer_add(p->out, " in %s", op->scope);
  if (p->lines && op->layer[0] != '\0') neap_buffer_add(p->out, " of %s", op->layer);
  if (op->device[0] != '\0') neap_buffer_add(p->out, " on %s", op->device);
  if (op->origin.backward)
    neap_buffer_add(p->out, " back %s", op->origin.forward != NULL ? op->origin.forward : "_");
  if (op->origin.stream != 0) neap_buffer_add(p->out, " draws %u", (unsigned)op->origin.stream);
  print_line_suffix(p, op->line);
  neap_buffer_add(p->out, "\n");
}

static void print_body(printer *p, const neap_net *net);

/* Subnets of op `index` that no earlier op has. */
static void print_subnets(printer *p, const neap_net *net, int index, neap_map *printed) {
  const neap_net_op *op = &net->op[index];
  for (int i = 0; i < neap_op_n_attrs(op->op); i++) {
    const neap_net *sub = op->op->attrs[i].type == NEAP_ATTR_NET ? op->attrs[i].net : NULL;
    if (sub == NULL || neap_map_get(printed, sub, 0)) continue;
    /* What is not known to be printed would be printed again: the text fails as a whole. */
    if (!neap_map_set(printed, sub, 1)) p->out->failed = true;
    indent(p);
    neap_buffer_add(p->out, "subnet %s%s\n", sub->name, sub->closed ? " closed" : "");
    /* The same body as a net's, further in. */
    p->depth++;
    print_body(p, sub);
    p->depth--;
    indent(p);
    neap_buffer_add(p->out, "end\n");
  }
}

/* "keep a", "outputs a, b", "takes", "gives a". */
static void print_name_line(const printer *p, const char *word, int n, const char *const *name) {
  indent(p);
  neap_buffer_add(p->out, "%s%s", word, n > 0 ? " " : "");
  print_names(n, name, p->out);
  neap_buffer_add(p->out, "\n");
}

/* What is known of a backward pass that is written out; a Gradient op says the same of its
 * outputs. */
static void print_gradients(const printer *p, const neap_net *net) {
  if (net->n_gradient > 0) return;
  for (int i = 0; i < net->n_cell; i++) {
    const neap_net_blob *blob = &net->cell[i].blob;
    if (blob->gradient_of == NULL) continue;
    indent(p);
    neap_buffer_add(p->out, "grad %s of %s%s\n", blob->name, blob->gradient_of,
                    blob->role == NEAP_ROLE_GRADIENT ? " resident" : "");
  }
}

static void print_banks(const printer *p, const neap_net *net) {
  for (int i = 0; i < net->n_cell; i++) {
    const neap_net_blob *blob = &net->cell[i].blob;
    if (blob->bank == NULL) continue;
    indent(p);
    neap_buffer_add(p->out, "bank %s %s\n", blob->bank, blob->name);
  }
}

/* Declarations first, whenever they were made: an op can't have come before what it reads, and
 * nothing hides a declaration of its own net. */
static void print_body(printer *p, const neap_net *net) {
  neap_map printed = {0};

  /* What is there before the net runs. */
  for (int i = 0; i < net->n_cell; i++) {
    const neap_net_blob *blob = &net->cell[i].blob;
    if (blob->type.dtype != NEAP_DTYPE_NONE || blob->role == NEAP_ROLE_INPUT)
      print_declaration(p, net, blob);
  }

  /* Subnets before the op that names them: the reader knows them by then. */
  for (int i = 0; i < net->n_op; i++) {
    print_subnets(p, net, i, &printed);
    print_op(p, &net->op[i]);
  }

  /* What is said of blobs comes last, when all of them are there. */
  print_gradients(p, net);
  for (int i = 0; i < net->n_cell; i++)
    if (net->cell[i].blob.keep) print_name_line(p, "keep", 1, &net->cell[i].blob.name);
  print_banks(p, net);
  if (net->interface_set) {
    print_name_line(p, "takes", net->n_sub_input, net->sub_input);
    print_name_line(p, "gives", net->n_output, net->output);
  } else if (net->outputs_set) {
    print_name_line(p, "outputs", net->n_output, net->output);
  }
  neap_map_fini(&printed);
}

void neap_net_print(const neap_net *net, bool lines, neap_buffer *out) {
  printer p = {.out = out, .lines = lines};
  neap_buffer_add(out, "net %s\n", net->name);
  print_body(&p, net);
}
