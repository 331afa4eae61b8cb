/* attr.c: the attributes of an op against its record: unknown, twice, missing, out of range;
 * defaults filled in. `who` in every message is the op, "Conv "a/conv_1": ".
 *
 * A caller gives a list of (name, value), ended by a NULL name; an op has one value for each
 * attribute of its record, in the record's order, so that kernels find them by position. `given`
 * says which of them were said: the text form and copies repeat those and no others, and a record's
 * changed default reaches nets that did not say otherwise.
 *
 * INVARIANT: a filled list owns its texts and numbers, in the arena it was filled in; nothing of
 * the caller's list is kept.
 */
#include "net/net_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* The tail of every message: the attribute is what is at fault. */
static neap_status fail(const neap_attr *attr, neap_error *error) {
  if (error != NULL && error->blob[0] == '\0')
    snprintf(error->blob, sizeof error->blob, "%s", attr->name);
  return NEAP_ATTRIBUTE;
}

/* The attribute whose name is nearest; NULL when none is near. */
static const char *nearest(const neap_op *op, const char *name) {
  const char *best = NULL;
  int least = neap_text_reach(name);
  for (int i = 0; i < neap_op_n_attrs(op); i++) {
    int d = neap_text_distance(name, op->attrs[i].name);
    if (d < least || (d == least && best == NULL)) {
      best = op->attrs[i].name;
      least = d;
    }
  }
  return best;
}

/* ATTRIBUTE error with the nearest name, else with a hint that lists all there are. */
static neap_status fail_unknown(const neap_op *op, const char *name, const char *who,
                                neap_error *error) {
  const char *near = nearest(op, name);
  neap_fail(error, NEAP_ATTRIBUTE, "%sunknown attribute \"%s\"%s%s%s", who, name,
            near != NULL ? ", did you mean \"" : "", near != NULL ? near : "",
            near != NULL ? "\"?" : "");
  if (error != NULL && error->blob[0] == '\0')
    snprintf(error->blob, sizeof error->blob, "%s", name);
  if (near != NULL || error == NULL) return NEAP_ATTRIBUTE;

  /* No name is near: the user sees what there is, as much of it as a hint holds. */
  char list[200] = "";
  size_t n = 0;
  for (int i = 0; i < neap_op_n_attrs(op) && n + 40 < sizeof list; i++)
    n +=
      (size_t)snprintf(list + n, sizeof list - n, "%s%.32s", i > 0 ? ", " : "", op->attrs[i].name);
  return n > 0 ? neap_hint(error, "%s has: %s", op->name, list)
               : neap_hint(error, "%s has no attributes", op->name);
}

/* One number against the attribute's range; both limits 0 is no range. */
static neap_status check_number(const neap_attr *attr, double x, const char *who,
                                neap_error *error) {
  if (attr->least == 0 && attr->most == 0) return NEAP_OK;
  if (x >= attr->least && x <= attr->most) return NEAP_OK;

  /* The message says the range in words. */
  char range[64];

  /* Limits that nothing real reaches are there for the other end only. */
  if (attr->most >= 1e9 && x < attr->least)
    neap_format(range, sizeof range, "at least %.10g", attr->least);
  else if (attr->least <= -1e9 && x > attr->most)
    neap_format(range, sizeof range, "at most %.10g", attr->most);
  else
    neap_format(range, sizeof range, "%.10g to %.10g", attr->least, attr->most);

  /* In words, and in fields for those who read them. */
  neap_fail(error, NEAP_ATTRIBUTE, "%s%s = %.9g is out of range, expected %s", who, attr->name, x,
            range);
  if (error != NULL && error->expected[0] == '\0') {
    snprintf(error->expected, sizeof error->expected, "%s", range);
    neap_format(error->got, sizeof error->got, "%.9g", x);
  }
  return fail(attr, error);
}

/* Of "none|mean|sum". */
static int n_choices(const char *choices) {
  int n = 1;
  for (; *choices != '\0'; choices++) n += *choices == '|';
  return n;
}

/* A list has its items, each within the attribute's range. Ints and doubles share the pointer of
 * the union. */
static neap_status check_list(const neap_attr *attr, const neap_attr_value *value, const char *who,
                              neap_error *error) {
  if (value->n < 0 || (value->n > 0 && value->ints == NULL)) {
    neap_fail(error, NEAP_ATTRIBUTE, "%s%s is a list of %d items without items", who, attr->name,
              value->n);
    return fail(attr, error);
  }

  /* Names in a list become names of blobs, so they keep the rules of names. */
  if (attr->type == NEAP_ATTR_NAMES) {
    for (int i = 0; i < value->n; i++)
      NEAP_TRY(neap_net_check_name(attr->name, value->names[i], error));
    return NEAP_OK;
  }

  /* Each item is a number within the range of the attribute. */
  bool floats = attr->type == NEAP_ATTR_FLOATS;
  for (int i = 0; i < value->n; i++)
    NEAP_TRY(check_number(attr, floats ? value->floats[i] : (double)value->ints[i], who, error));
  return NEAP_OK;
}

/* Names that a subnet takes from around it must still mean something where its op stands. */
static neap_status check_subnet(const neap_net *net, const neap_attr *attr, const neap_net *sub,
                                const char *who, neap_error *error) {
  if (sub == NULL && !attr->required) return NEAP_OK;
  if (sub == NULL || net == NULL || sub->outer != net) {
    neap_fail(error, NEAP_ATTRIBUTE, "%s%s: net \"%s\" is not a subnet of \"%s\"", who, attr->name,
              sub != NULL ? sub->name : "?", net != NULL ? net->name : "?");
    return fail(attr, error);
  }

  /* The subnet was written earlier: a name may have been freed since. */
  for (int i = 0; i < sub->n_outside; i++) {
    neap_net_found found = neap_net_look_up(net, sub->outside[i]);
    if (found.cell == NULL || found.cell->freed_by >= 0)
      return neap_net_fail_undefined(net, who, sub->outside[i], error);
  }
  return NEAP_OK;
}

/* One given value against its attribute's type. Types of C values are the caller's word: the union
 * has no tag. */
static neap_status check_value(const neap_net *net, const neap_attr *attr,
                               const neap_attr_value *value, const char *who, neap_error *error) {
  switch (attr->type) {
    case NEAP_ATTR_INT: return check_number(attr, (double)value->i, who, error);
    case NEAP_ATTR_FLOAT: return check_number(attr, value->f, who, error);
    case NEAP_ATTR_INTS:
    case NEAP_ATTR_FLOATS:
    case NEAP_ATTR_AXES:
    case NEAP_ATTR_NAMES: return check_list(attr, value, who, error);
    case NEAP_ATTR_NET: return check_subnet(net, attr, value->net, who, error);
    case NEAP_ATTR_BOOL:
      if (value->i == 0 || value->i == 1) return NEAP_OK;
      neap_fail(error, NEAP_ATTRIBUTE, "%s%s expects true or false, got %lld", who, attr->name,
                (long long)value->i);
      return fail(attr, error);
    case NEAP_ATTR_ENUM:
      if (value->i >= 0 && value->i < n_choices(attr->choices)) return NEAP_OK;
      neap_fail(error, NEAP_ATTRIBUTE, "%s%s expects one of %s, got number %lld", who, attr->name,
                attr->choices, (long long)value->i);
      return fail(attr, error);
    case NEAP_ATTR_DTYPE:
      if (value->i > NEAP_DTYPE_NONE && value->i < NEAP_N_DTYPE) return NEAP_OK;
      neap_fail(error, NEAP_ATTRIBUTE, "%s%s expects a dtype, got number %lld", who, attr->name,
                (long long)value->i);
      return fail(attr, error);
    case NEAP_ATTR_NONE:
    case NEAP_ATTR_AXIS: break; /* axes have no range before the rank is known */
  }
  return NEAP_OK;
}

/* The names of a list, interned: they are compared by address from here on. */
static neap_status own_names(neap_arena *arena, const neap_attr_value *from, neap_attr_value *to,
                             neap_error *error) {
  size_t bytes = (size_t)from->n * sizeof(char *);
  const char **name = neap_arena_alloc(arena, bytes);
  if (name == NULL) return neap_fail_memory(error, bytes, "an attribute");
  for (int i = 0; i < from->n; i++)
    if ((name[i] = neap_intern(from->names[i])) == NULL)
      return neap_fail_memory(error, bytes, "an attribute");
  to->names = name;
  return NEAP_OK;
}

/* The value with its list copied into the arena. Sets `given`; of the unions only the member that
 * the type uses is kept. */
static neap_status own_value(neap_arena *arena, const neap_attr *attr, const neap_attr_value *from,
                             neap_attr_value *to, neap_error *error) {
  *to = *from;
  to->given = true;
  bool is_list = attr->type == NEAP_ATTR_INTS || attr->type == NEAP_ATTR_FLOATS ||
                 attr->type == NEAP_ATTR_AXES || attr->type == NEAP_ATTR_NAMES;
  if (!is_list) {
    to->n = 0;
    to->ints = NULL;
    return NEAP_OK;
  }

  /* A list: its items are copied, and the other members of the union are cleared. */
  size_t bytes = (size_t)from->n * sizeof(int64_t); /* doubles are as wide */
  to->i = 0;
  if (attr->type == NEAP_ATTR_NAMES) return own_names(arena, from, to, error);
  to->ints = neap_arena_copy(arena, from->ints, bytes);
  return to->ints != NULL ? NEAP_OK : neap_fail_memory(error, bytes, "an attribute");
}

/* `net` (may be NULL) is where subnets must belong. */
static neap_status fill(neap_arena *arena, const neap_net *net, const neap_op *op,
                        const neap_set *set, const char *who, neap_attr_value **out,
                        neap_error *error) {
  int n = neap_op_n_attrs(op);
  neap_attr_value *value = neap_arena_alloc(arena, (size_t)n * sizeof *value);
  if (value == NULL) return neap_fail_memory(error, (size_t)n * sizeof *value, "attributes");

  /* Every attribute has a value from here on: the record's default, or 0, false or nothing. */
  for (int i = 0; i < n; i++) {
    value[i] = op->attrs[i].value;
    value[i].given = false;
  }

  /* What is given takes the default's place, each once. */
  static const neap_set none = {0};
  if (set == NULL) set = &none;
  for (; set->name != NULL; set++) {
    int i = neap_op_attr_index(op, set->name);
    if (i < 0) return fail_unknown(op, set->name, who, error);
    if (value[i].given) {
      neap_fail(error, NEAP_ATTRIBUTE, "%sattribute \"%s\" is given twice", who, set->name);
      return fail(&op->attrs[i], error);
    }
    NEAP_TRY(check_value(net, &op->attrs[i], &set->value, who, error));
    NEAP_TRY(own_value(arena, &op->attrs[i], &set->value, &value[i], error));
  }

  /* And what has no default must be given. */
  for (int i = 0; i < n; i++)
    if (op->attrs[i].required && !value[i].given) {
      neap_fail(error, NEAP_ATTRIBUTE, "%sattribute \"%s\" is missing%s%s", who, op->attrs[i].name,
                op->attrs[i].doc != NULL ? ": " : "",
                op->attrs[i].doc != NULL ? op->attrs[i].doc : "");
      return fail(&op->attrs[i], error);
    }
  *out = value;
  return NEAP_OK;
}

neap_status neap_net_check_attrs(neap_net *net, const neap_op *op, const neap_set *set,
                                 const char *who, neap_attr_value **out, neap_error *error) {
  return fill(&net->arena, net, op, set, who, out, error);
}

/* For eager calls and fused ops, which belong to no net: subnets can't be given. */
neap_status neap_attrs_fill(neap_arena *arena, const neap_op *op, const neap_set *set,
                            const char *who, neap_attr_value **out, neap_error *error) {
  return fill(arena, NULL, op, set, who, out, error);
}

/* An init op says what its blob's declaration says; a copy under another declaration derives them
 * anew. */
bool neap_net_is_derived(const char *attr) {
  return strcmp(attr, "shape") == 0 || strcmp(attr, "dtype") == 0;
}

/* The lists inside are borrowed from the op: the set is for a call that copies them. */
neap_set *neap_net_given(const neap_net_op *op, bool skip_derived) {
  int n = neap_op_n_attrs(op->op), n_set = 0;
  neap_set *set = neap_alloc_zeroed((size_t)(n + 1) * sizeof *set);
  if (set == NULL) return NULL;
  /* What the user said, in the record's order. */
  for (int i = 0; i < n; i++) {
    const char *name = op->op->attrs[i].name;
    if (op->attrs[i].given && !(skip_derived && neap_net_is_derived(name)))
      set[n_set++] = (neap_set){name, op->attrs[i]};
  }
  return set;
}
