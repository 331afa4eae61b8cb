/* formula.c: gradients that records say as text, and what an op computes, said in other ops.
 *
 * A record has two such texts. `grad_formula` gives the gradient of each input from those of the
 * outputs; `formula` gives the outputs of an op that has no gradient of its own, most often the
 * backward of another one, so that the gradient is that of the ops it is made of.
 *
 *   d.x = d.y * (1 - y * y)
 *   h = dy * given(gamma, 1); dx = rstd * (h - Mean(h, axes = axis, keepdim = 1))
 *
 * Statements are separated by `;`. A name is an input, an output, a numeric attribute or what a
 * statement before has named; `d.NAME` is the gradient of an operand. + - * / and comparisons
 * broadcast; `a ? b : c` takes elements by a, or one of the two by an attribute: `keepdim ? b : c`,
 * or `mode == sum ? b : c` by the word of one that has choices.
 *
 * OP(x, ..) applies an op, with attributes behind its inputs, each a number, {a list}, a word among
 * its choices, a dtype, one of the lists shape(x), rest(axis) and others(k), last(x), the number of
 * an operand's last dimension, count(x), or the name of an attribute of the record; `..` hands on
 * all that both records have.
 *
 * given(x, y) is x where that operand is there, else y, and has(x) ? a : b takes a where it is;
 * like(x, y) is x summed back to the shape of y, as for broadcasting; view(x, y) is x in the shape
 * of y; sums(x, axis) is x, of the first input's dimensions, summed over all but that attribute's;
 * turned(x) has the last two dimensions of x in the other order; count(x) is its number of
 * elements, zeros(x) and ones(x) are tensors of its shape. undefined(relu) is no gradient: an
 * attribute asks for what the text does not say.
 *
 * Halves are computed in f32 and rounded at the end, so that no chain of ops loses digits that one
 * kernel would have kept.
 *
 * INVARIANT: nothing is emitted for what nobody asks for: a statement for an operand that is absent
 * or whose gradient is not wanted is read and passed over.
 */
#include "ops/op.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LOCAL = 16, MOST_NAME = 24, MOST_ARGUMENT = 8, MOST_SET = 4 };

/* A statement of which nothing is to be emitted is read in silence. */
typedef struct reader {
  neap_grad *g;
  const char *text, *at;
  bool silent;
  bool keeps;       /* operands of an op are read, which takes them in their own dtype */
  neap_dtype dtype; /* of numbers, and of what is computed */
  neap_status status;
  neap_error *error;
  int n_local;
  struct {
    char name[MOST_NAME];
    neap_value_id value;
  } local[MOST_LOCAL];
} reader;

static neap_value_id read_choice(reader *r);

/* ---- letters --------------------------------------------------------------------------------- */

static neap_value_id fail(reader *r, const char *what) {
  if (r->status == NEAP_OK)
    r->status = neap_fail(r->error, NEAP_INTERNAL, "formula of %s: %s at \"%.40s\" of \"%s\"",
                          r->g->op->name, what, r->at, r->text);
  return NEAP_NO_VALUE;
}

static void skip_space(reader *r) {
  while (*r->at == ' ') r->at++;
}

/* Takes the letters when they are next. */
static bool take(reader *r, const char *letters) {
  skip_space(r);
  size_t n = strlen(letters);
  if (strncmp(r->at, letters, n) != 0) return false;
  r->at += n;
  return true;
}

static void expect(reader *r, const char *letters) {
  if (!take(r, letters)) fail(r, "other letters are expected");
}

/* A name, with the dot of `d.x`; empty when none is next. */
static void take_name(reader *r, char name[MOST_NAME]) {
  skip_space(r);
  int n = 0;
  /* The text is the records' own: a name longer than the room is cut, and then none of theirs. */
  bool is_name = isalpha((unsigned char)*r->at) != 0;
  while (is_name && (isalnum((unsigned char)*r->at) || *r->at == '_' || *r->at == '.')) {
    if (n < MOST_NAME - 1) name[n++] = *r->at;
    r->at++;
  }
  name[n] = '\0';
}

/* ---- values ---------------------------------------------------------------------------------- */

static neap_value_id emit(reader *r, const char *op, int n_in, const neap_value_id *in,
                          const neap_grad *inherit, const neap_set *set) {
  if (r->silent || r->status != NEAP_OK) return NEAP_NO_VALUE;
  return neap_grad_emit1(r->g, op, n_in, in, inherit, set);
}

static neap_value_id emit2(reader *r, const char *op, neap_value_id a, neap_value_id b) {
  return emit(r, op, 2, (neap_value_id[]){a, b}, NULL, NULL);
}

static neap_value_id number(reader *r, double value) {
  return emit(r, "Constant", 0, NULL, NULL,
              (neap_set[]){NEAP_SET_FLOAT("value", value), NEAP_SET_INT("dtype", r->dtype), {0}});
}

/* Floats of other dtypes become the one that is computed in. */
static neap_value_id widen(reader *r, neap_value_id value) {
  neap_dtype dtype = neap_grad_type(r->g, value).dtype;
  if (!neap_dtype_is_float(dtype) || dtype == r->dtype || r->keeps) return value;
  return emit(r, "Cast", 1, &value, NULL, (neap_set[]){NEAP_SET_INT("to", r->dtype), {0}});
}

/* Position of the operand in the record's list, -1: none of this name. */
static int operand_at(const neap_arg *list, int most, const char *name) {
  for (int i = 0; i < most && list[i].name != NULL; i++)
    if (strcmp(list[i].name, name) == 0) return i;
  return -1;
}

static int input_at(const reader *r, const char *name) {
  return operand_at(r->g->op->inputs, NEAP_OP_MAX_IN, name);
}

static int output_at(const reader *r, const char *name) {
  return operand_at(r->g->op->outputs, NEAP_OP_MAX_OUT, name);
}

/* Which kind of name it is, and what it stands for; absent operands are NO_VALUE. */
static bool find_value(const reader *r, const char *name, neap_value_id *out) {
  const neap_grad *g = r->g;
  *out = NEAP_NO_VALUE;
  /* What statements have named comes first, the newest before older ones of the same name. */
  for (int i = r->n_local - 1; i >= 0; i--)
    if (strcmp(r->local[i].name, name) == 0) {
      *out = r->local[i].value;
      return true;
    }

  /* An operand, or what arrives for it: `d.` means an output here, since the gradients of inputs
   * are locals from the statement on that makes them. */
  bool is_gradient = strncmp(name, "d.", 2) == 0;
  int k = output_at(r, is_gradient ? name + 2 : name), i = is_gradient ? -1 : input_at(r, name);
  if (i >= 0) {
    if (i < g->n_in) *out = g->in[i];
    return true;
  }
  if (k < 0) return false;
  const neap_value_id *list = is_gradient ? g->dout : g->out;
  if (k < g->n_out && list != NULL) *out = list[k];
  return true;
}

static neap_value_id read_name(reader *r, const char *name) {
  neap_value_id value;
  if (find_value(r, name, &value)) return value < 0 ? value : widen(r, value);
  /* An attribute is a number that is known now. */
  int a = neap_op_attr_index(r->g->op, name);
  if (a < 0) return fail(r, "a name that the record does not have");
  const neap_attr_value *attr = &r->g->attrs[a];
  return number(r, r->g->op->attrs[a].type == NEAP_ATTR_FLOAT ? attr->f : (double)attr->i);
}

/* ---- attributes of an op --------------------------------------------------------------------- */

/* The operand of that name as it is; its type is known even where its value is not read. */
static neap_value_id take_operand(reader *r) {
  char name[MOST_NAME];
  neap_value_id value = NEAP_NO_VALUE;
  take_name(r, name);
  if (!find_value(r, name, &value)) fail(r, "an operand that the record does not have");
  return value;
}

/* The name of an axis among the record's attributes: the dimension of the first input, from 0. */
static int take_axis(reader *r) {
  char name[MOST_NAME];
  take_name(r, name);
  int a = neap_op_attr_index(r->g->op, name), n_dim = neap_grad_type(r->g, r->g->in[0]).shape.n_dim;
  int axis = a < 0 ? -1 : neap_axis(r->g->attrs[a].i, n_dim);
  if (axis < 0) fail(r, "an axis is expected");
  return NEAP_MAX(axis, 0);
}

/* shape(x), the sizes of an operand; rest(axis), the dimensions from that attribute on; others(k),
 * all but dimension k, from 0. Both of the first input. Behind the bracket; the length. */
static int read_list_of(reader *r, const char *word, int64_t ints[NEAP_MAX_DIM]) {
  neap_type first = neap_grad_type(r->g, r->g->in[0]);
  int n = 0;
  if (strcmp(word, "shape") == 0) {
    neap_type type = neap_grad_type(r->g, take_operand(r));
    for (; n < type.shape.n_dim; n++) ints[n] = type.shape.dim[n];
  } else if (strcmp(word, "rest") == 0) {
    for (int d = take_axis(r); d < first.shape.n_dim; d++) ints[n++] = d;
  } else if (strcmp(word, "others") == 0) {
    char *end;
    long left_out = strtol(r->at, &end, 10);
    r->at = end;
    for (int d = 0; d < first.shape.n_dim; d++)
      if (d != left_out) ints[n++] = d;
  } else {
    fail(r, "a list that there is not");
  }
  expect(r, ")");
  return n;
}

/* A number, or several in braces. */
static neap_attr_value read_numbers(reader *r, neap_attr_type type, int64_t ints[NEAP_MAX_DIM]) {
  neap_attr_value value = {.given = true};
  bool is_list = take(r, "{");
  do {
    char *end;
    skip_space(r);
    double number = neap_number_read(r->at, &end);
    if (end == r->at) fail(r, "a number is expected");
    r->at = end;
    if (is_list && value.n < NEAP_MAX_DIM) ints[value.n++] = (int64_t)number;
    /* Of a list, the last number stays here too, where nobody looks. */
    if (type == NEAP_ATTR_FLOAT) {
      value.f = number;
    } else {
      value.i = (int64_t)number;
    }
  } while (is_list && r->status == NEAP_OK && take(r, ","));
  if (is_list) {
    expect(r, "}");
    value.ints = ints;
  }
  return value;
}

/* What a word is among the choices of an attribute, or as a dtype; -1 where it is none. */
static int64_t word_of(const neap_attr *attr, const char *name) {
  if (attr->type == NEAP_ATTR_DTYPE) {
    neap_dtype dtype = neap_dtype_from_name(name);
    return dtype == NEAP_DTYPE_NONE ? -1 : (int64_t)dtype;
  }
  if (attr->type != NEAP_ATTR_ENUM) return -1;
  size_t n = strlen(name);
  const char *text = attr->choices;
  for (int64_t i = 0;; i++) {
    size_t length = strcspn(text, "|");
    if (length == n && strncmp(text, name, n) == 0) return i;
    if (text[length] == '\0') return -1;
    text += length + 1;
  }
}

/* Behind "word(": last(x), count(x) or a list, as an attribute of that type. */
static neap_attr_value read_attr_of(reader *r, const char *word, neap_attr_type type,
                                    int64_t ints[NEAP_MAX_DIM]) {
  neap_attr_value value = {.given = true};
  /* A number goes where the attribute's type has it; a list always into `ints`, which the caller
   * keeps until the op is emitted. */
  const bool is_last = strcmp(word, "last") == 0, is_count = strcmp(word, "count") == 0;
  if (!is_last && !is_count) {
    value.n = read_list_of(r, word, ints);
    value.ints = ints;
    return value;
  }
  neap_type of = neap_grad_type(r->g, take_operand(r));
  expect(r, ")");
  const int64_t n = is_last ? of.shape.n_dim - 1 : neap_shape_elems(&of.shape);
  if (type == NEAP_ATTR_FLOAT) {
    value.f = (double)n;
  } else {
    value.i = n;
  }
  return value;
}

/* Behind "name =", of attribute `attr` of the op that is applied. A list lies in `ints`. */
static neap_attr_value read_attr(reader *r, const neap_attr *attr, int64_t ints[NEAP_MAX_DIM]) {
  neap_attr_value value = {.given = true};
  char name[MOST_NAME];
  take_name(r, name);
  if (name[0] == '\0') return read_numbers(r, attr->type, ints);

  /* A word means a choice or a dtype first, and an attribute of the record only where it is none:
   * what the op's own record lists can't be taken away by a name elsewhere. */
  int64_t word = word_of(attr, name);
  if (word >= 0) {
    value.i = word;
    return value;
  }
  if (take(r, "(")) return read_attr_of(r, name, attr->type, ints);

  int a = neap_op_attr_index(r->g->op, name);
  if (a < 0) {
    fail(r, "an attribute that the record does not have");
    return value;
  }
  value = r->g->attrs[a];
  /* One axis is a list of axes too; of a scalar there is none. */
  if (r->g->op->attrs[a].type == NEAP_ATTR_AXIS && attr->type == NEAP_ATTR_AXES) {
    ints[0] = value.i;
    value.n = neap_grad_type(r->g, r->g->in[0]).shape.n_dim > 0 ? 1 : 0;
    value.ints = ints;
  }
  return value;
}

static bool reads_stash(const neap_op *op) {
  for (int i = 0; i < NEAP_OP_MAX_IN && op->inputs[i].name != NULL; i++)
    if ((op->inputs[i].flags & NEAP_ARG_STASH) != 0) return true;
  return false;
}

/* An op, behind its bracket. What a stash says is said of numbers of the forward's dtype, so what
 * is read with it is not widened. */
static neap_value_id read_call(reader *r, const char *name) {
  const neap_op *op = neap_op_find(name);
  if (op == NULL) return fail(r, "an op that does not exist");
  neap_value_id in[MOST_ARGUMENT];
  neap_set set[MOST_SET + 1] = {{0}};
  int64_t ints[MOST_SET][NEAP_MAX_DIM];
  const neap_grad *inherit = NULL;
  const bool kept = r->keeps;
  int n_in = 0, n_set = 0;
  r->keeps = kept || reads_stash(op);

  do {
    if (take(r, "..")) {
      inherit = r->g;
      continue;
    }
    /* An attribute is a name with one = behind it. */
    const char *before = r->at;
    char word[MOST_NAME];
    take_name(r, word);
    bool is_attr = word[0] != '\0' && take(r, "=") && *r->at != '=';
    if (!is_attr) {
      r->at = before;
      neap_value_id value = read_choice(r);
      if (n_in == MOST_ARGUMENT) return fail(r, "too many inputs");
      in[n_in++] = value;
      continue;
    }

    /* What is behind = is read as the attribute's type asks, so the attribute is found first. */
    int a = neap_op_attr_index(op, word);
    if (a < 0 || n_set == MOST_SET) return fail(r, "an attribute that the op does not have");
    set[n_set].name = op->attrs[a].name;
    set[n_set].value = read_attr(r, &op->attrs[a], ints[n_set]);
    n_set++;
  } while (r->status == NEAP_OK && take(r, ","));
  r->keeps = kept;
  expect(r, ")");
  return emit(r, op->name, n_in, in, inherit, set);
}

/* given(x, y), behind the bracket: of the two only the one that is taken is emitted. */
static neap_value_id read_given(reader *r) {
  bool was_silent = r->silent;
  neap_value_id value = take_operand(r);
  if (value >= 0) value = widen(r, value);
  expect(r, ",");
  /* The second is read either way, since the text goes on behind it; in silence it makes no op. */
  r->silent = was_silent || value >= 0;
  neap_value_id other = read_choice(r);
  r->silent = was_silent;
  expect(r, ")");
  return value >= 0 ? value : other;
}

/* undefined(attribute), behind the bracket. */
static neap_value_id read_undefined(reader *r) {
  char name[MOST_NAME];
  take_name(r, name);
  expect(r, ")");
  if (!r->silent && r->status == NEAP_OK)
    r->status = neap_fail(r->error, NEAP_GRAPH, "no gradient is defined through %s with %s",
                          r->g->op->name, name);
  return NEAP_NO_VALUE;
}

/* zeros(x) and ones(x), behind the bracket. */
static neap_value_id read_filled(reader *r, double value) {
  neap_type type = neap_grad_type(r->g, take_operand(r));
  expect(r, ")");
  return emit(r, "Constant", 0, NULL, NULL,
              (neap_set[]){NEAP_SET_FLOAT("value", value),
                           NEAP_SET_INT("dtype", r->dtype),
                           NEAP_SET_INTS("shape", type.shape.n_dim, type.shape.dim),
                           {0}});
}

/* x with the last two dimensions in the other order. */
static neap_value_id turned(reader *r, neap_value_id value, int n_dim) {
  int64_t perm[NEAP_MAX_DIM];
  for (int d = 0; d < n_dim; d++) perm[d] = d < n_dim - 2 ? d : 2 * n_dim - 3 - d;
  return emit(r, "Permute", 1, &value, NULL, (neap_set[]){NEAP_SET_INTS("axes", n_dim, perm), {0}});
}

/* x summed over all dimensions but one; of one dimension it is x, which a Sum over none is not. */
static neap_value_id sums(reader *r, neap_value_id value, int n_dim, int axis) {
  int64_t axes[NEAP_MAX_DIM];
  int n = 0;
  for (int d = 0; d < n_dim; d++)
    if (d != axis) axes[n++] = d;
  if (n == 0) return value;
  return emit(r, "Sum", 1, &value, NULL, (neap_set[]){NEAP_SET_INTS("axes", n, axes), {0}});
}

/* like(x, y), view(x, y), sums(x, axis), turned(x) and count(x), behind the bracket. */
static neap_value_id read_shaped(reader *r, const char *name) {
  neap_value_id value = read_choice(r);
  neap_type type = neap_grad_type(r->g, value);
  if (strcmp(name, "count") == 0) {
    expect(r, ")");
    return number(r, (double)neap_shape_elems(&type.shape));
  }
  if (strcmp(name, "turned") == 0) {
    expect(r, ")");
    return turned(r, value, type.shape.n_dim);
  }

  /* The others have a second operand. */
  expect(r, ",");
  if (strcmp(name, "sums") == 0) {
    int axis = take_axis(r);
    expect(r, ")");
    return sums(r, value, type.shape.n_dim, axis);
  }

  /* like and view look at types, which a value that was read in silence does not have. */
  neap_value_id like = read_choice(r);
  expect(r, ")");
  if (r->silent || r->status != NEAP_OK) return NEAP_NO_VALUE;
  if (strcmp(name, "like") == 0) return neap_grad_reduce_to(r->g, value, like);
  type = neap_grad_type(r->g, like);
  return emit(r, "Reshape", 1, &value, NULL,
              (neap_set[]){NEAP_SET_INTS("shape", type.shape.n_dim, type.shape.dim),
                           NEAP_SET_INT("allow_zero", 1),
                           {0}});
}

/* ---- expressions, the tighter ones first ----------------------------------------------------- */

static neap_value_id read_primary(reader *r) {
  /* The first sign tells what it is: a bracket, a minus, a digit or a letter. */
  if (take(r, "(")) {
    neap_value_id value = read_choice(r);
    expect(r, ")");
    return value;
  }
  if (take(r, "-")) {
    neap_value_id value = read_primary(r);
    return emit(r, "Neg", 1, &value, NULL, NULL);
  }
  char name[MOST_NAME], *end;
  take_name(r, name);
  if (name[0] == '\0') {
    double value = neap_number_read(r->at, &end);
    if (end == r->at) return fail(r, "a name or a number is expected");
    r->at = end;
    return number(r, value);
  }

  /* A name alone is a value. Before a bracket it is an op, or in small letters a word of
   * formulas. */
  if (!take(r, "(")) return read_name(r, name);
  if (strcmp(name, "given") == 0) return read_given(r);
  if (strcmp(name, "undefined") == 0) return read_undefined(r);
  if (strcmp(name, "zeros") == 0) return read_filled(r, 0);
  if (strcmp(name, "ones") == 0) return read_filled(r, 1);
  /* Ops begin with a capital. */
  return islower((unsigned char)name[0]) ? read_shaped(r, name) : read_call(r, name);
}

static neap_value_id read_product(reader *r) {
  neap_value_id value = read_primary(r);
  while (r->status == NEAP_OK) {
    /* Left to right, as they bind in C. */
    const char *op = take(r, "*") ? "Mul" : take(r, "/") ? "Div" : NULL;
    if (op == NULL) break;
    value = emit2(r, op, value, read_primary(r));
  }
  return value;
}

static neap_value_id read_sum(reader *r) {
  neap_value_id value = read_product(r);
  while (r->status == NEAP_OK) {
    const char *op = take(r, "+") ? "Add" : take(r, "-") ? "Sub" : NULL;
    if (op == NULL) break;
    value = emit2(r, op, value, read_product(r));
  }
  return value;
}

static neap_value_id read_comparison(reader *r) {
  static const struct {
    const char *sign, *op;
  } comparison[] = {{"<=", "Le"}, {">=", "Ge"}, {"==", "Eq"}, {"<", "Lt"}, {">", "Gt"}};
  neap_value_id value = read_sum(r);
  /* Two letters before one: "<" would take the first of "<=". */
  for (int i = 0; i < NEAP_COUNT(comparison); i++)
    if (take(r, comparison[i].sign)) return emit2(r, comparison[i].op, value, read_sum(r));
  return value;
}

/* Of the two sides of an attribute's choice only the one that is taken is emitted. */
static neap_value_id read_sides(reader *r, bool first) {
  bool was_silent = r->silent;
  r->silent = was_silent || !first;
  neap_value_id yes = read_choice(r);
  expect(r, ":");
  r->silent = was_silent || first;
  neap_value_id no = read_choice(r);
  r->silent = was_silent;
  return first ? yes : no;
}

/* What decides before a `?` without being computed: has(x), an attribute of the record, or the
 * word that it has. True with `*first`, behind the `?`; else the text is where it was. */
static bool take_decision(reader *r, bool *first) {
  const char *before = r->at;
  char name[MOST_NAME];
  take_name(r, name);

  /* Each of the three is tried from the same place; where none fits, the text is put back and read
   * as an expression, since an operand may be called as an attribute is. */
  if (strcmp(name, "has") == 0 && take(r, "(")) {
    *first = take_operand(r) >= 0;
    expect(r, ")");
    expect(r, "?");
    return true;
  }
  int a = name[0] != '\0' ? neap_op_attr_index(r->g->op, name) : -1;
  if (a >= 0 && take(r, "?")) {
    *first = r->g->attrs[a].i != 0;
    return true;
  }
  if (a >= 0 && r->g->op->attrs[a].type == NEAP_ATTR_ENUM && take(r, "==")) {
    take_name(r, name);
    int64_t word = word_of(&r->g->op->attrs[a], name);
    if (word < 0) fail(r, "a word that is no choice");
    expect(r, "?");
    *first = r->g->attrs[a].i == word;
    return true;
  }
  r->at = before;
  return false;
}

/* An expression of any kind: a choice, or what stands before its `?`. */
static neap_value_id read_choice(reader *r) {
  bool first;
  if (take_decision(r, &first)) return read_sides(r, first);

  /* A condition of elements: both sides are computed, and Where takes from them. */
  neap_value_id condition = read_comparison(r);
  if (r->status != NEAP_OK || !take(r, "?")) return condition;
  neap_value_id yes = read_choice(r);
  expect(r, ":");
  return emit(r, "Where", 3, (neap_value_id[]){condition, yes, read_choice(r)}, NULL, NULL);
}

/* ---- statements ------------------------------------------------------------------------------ */

/* The value as the operand is: summed back to its shape, rounded to its dtype. */
static neap_value_id fit(reader *r, neap_value_id value, neap_value_id operand) {
  if (value < 0 || r->status != NEAP_OK) return value;
  value = neap_grad_reduce_to(r->g, value, operand);
  neap_dtype dtype = neap_grad_type(r->g, operand).dtype;
  if (neap_grad_type(r->g, value).dtype == dtype) return value;
  return emit(r, "Cast", 1, &value, NULL, (neap_set[]){NEAP_SET_INT("to", dtype), {0}});
}

static void add_local(reader *r, const char *name, neap_value_id value) {
  if (r->n_local == MOST_LOCAL) {
    fail(r, "too many names");
    return;
  }
  memcpy(r->local[r->n_local].name, name, MOST_NAME);
  r->local[r->n_local++].value = value;
}

/* Of f32 at least: the first float among the operands says of which. */
static neap_dtype computed_dtype(const neap_grad *g) {
  neap_dtype dtype = NEAP_DTYPE_F32;
  for (int i = 0; i < g->n_in; i++)
    if (neap_grad_type(g, g->in[i]).dtype == NEAP_DTYPE_F64) dtype = NEAP_DTYPE_F64;
  return dtype;
}

/* All statements of the text. A gradient is set in g->din, or, where `out` is given, an output in
 * out; other names are local. */
static neap_status read_text(neap_grad *g, const char *text, neap_value_id *out,
                             neap_error *error) {
  reader r = {.g = g, .text = text, .at = text, .dtype = computed_dtype(g), .error = error};
  do {
    char name[MOST_NAME];
    take_name(&r, name);
    expect(&r, "=");
    bool is_gradient = out == NULL && strncmp(name, "d.", 2) == 0;
    /* What the statement names: the gradient of input i, output k, or something of its own. */
    int i = is_gradient ? input_at(&r, name + 2) : -1, k = out != NULL ? output_at(&r, name) : -1;
    if (is_gradient && i < 0) fail(&r, "a gradient of no input");
    /* A gradient that nobody wants is passed over, and with it all that its statement would
     * emit. */
    r.silent = (i >= 0 && (i >= g->n_in || !g->want[i])) || k >= g->n_out;
    neap_value_id value = read_choice(&r);
    if (i >= 0 && !r.silent) g->din[i] = fit(&r, value, g->in[i]);
    if (k >= 0 && !r.silent) out[k] = fit(&r, value, g->out[k]);
    add_local(&r, name, value);
  } while (r.status == NEAP_OK && take(&r, ";"));
  skip_space(&r);
  if (*r.at != '\0') fail(&r, "more text than statements");
  return r.status;
}

neap_status neap_formula_gradient(neap_grad *grad, const char *text, neap_error *error) {
  return read_text(grad, text, NULL, error);
}

neap_status neap_formula_outputs(neap_grad *grad, neap_value_id *out, neap_error *error) {
  for (int k = 0; k < grad->n_out; k++) out[k] = NEAP_NO_VALUE;
  return read_text(grad, grad->op->formula, out, error);
}
