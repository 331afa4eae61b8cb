/* read.c: reads the text form (its grammar is in text.c). Every line becomes one public call, so
 * that a text, wherever it comes from, gives a checked net or a DATA error with the number of its
 * line.
 *
 * INVARIANT: `at` never passes the terminating zero. Words and lists live in the parser's arena.
 */
#include "net/net_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_DEPTH = 64 }; /* of subnets: a text can't exhaust the stack */

typedef struct parser {
  const char *at;  /* what has not been read yet; borrowed from the caller */
  int line, depth; /* of `at`: counted from 1; subnets that are open */
  /* words and lists: they live until the text is read, nets intern what they keep */
  neap_arena arena;
  neap_error *error; /* never NULL */
} parser;

/* The names of one line. */
typedef struct names {
  const char **item;
  int n, cap;
} names;

/* DATA error: what the grammar wants here, and the next characters that stand here instead. */
static neap_status fail(parser *p, const char *expected) {
  char got[32];
  /* What stands here, as far as a message can show it: the rest of the line, at most 24
   * characters. */
  snprintf(got, sizeof got, "%.*s", (int)NEAP_MIN(strcspn(p->at, "\r\n"), (size_t)24), p->at);
  return neap_fail(p->error, NEAP_DATA, "net text, line %d: expected %s, got \"%s\"", p->line,
                   expected, got);
}

static neap_status fail_memory(parser *p) {
  return neap_fail_memory(p->error, 64, "reading a net");
}

/* A failed call on behalf of the text: its message with the line in front. */
static neap_status pass_on(parser *p, neap_status status, const neap_error *inner) {
  if (status == NEAP_OK) return NEAP_OK;
  /* Refused memory is no fault of the text. */
  if (status == NEAP_MEMORY) return fail_memory(p);
  neap_fail(p->error, NEAP_DATA, "net text, line %d: %.700s", p->line, inner->message);
  /* The fields that say what is at fault go along, so that an editor can mark the blob or op. */
  if (p->error == NULL || p->error->op[0] != '\0') return NEAP_DATA;
  memcpy(p->error->op, inner->op, sizeof inner->op);
  memcpy(p->error->blob, inner->blob, sizeof inner->blob);
  memcpy(p->error->scope, inner->scope, sizeof inner->scope);
  memcpy(p->error->line, inner->line, sizeof inner->line);
  memcpy(p->error->hint, inner->hint, sizeof inner->hint);
  return NEAP_DATA;
}

/* ---- words ----------------------------------------------------------------------------------- */

/* A carriage return is a blank, so that texts with either line ending read the same. */
static void skip_blanks(parser *p) { p->at += strspn(p->at, " \t\r"); }

/* Skips blanks; true before a newline and at the end of the text. */
static bool at_end_of_line(parser *p) {
  skip_blanks(p);
  return *p->at == '\n' || *p->at == '\0';
}

/* Skips blanks, then one character if it is c. */
static bool take(parser *p, char c) {
  skip_blanks(p);
  if (*p->at != c || c == '\0') return false;
  p->at++;
  return true;
}

/* A word ends where a name must: before white space and the characters that names can't have. */
static size_t word_length(const char *at) { return strcspn(at, " \t\r\n(){},\"'"); }

/* Whether the next word is exactly `word`. */
static bool next_is(parser *p, const char *word) {
  skip_blanks(p);
  size_t n = word_length(p->at);
  return n == strlen(word) && memcmp(p->at, word, n) == 0;
}

/* Skips blanks, then the word if it is the next one. A keyword that is a name's beginning is not
 * taken: words are whole. */
static bool take_word(parser *p, const char *word) {
  if (!next_is(p, word)) return false;
  p->at += strlen(word);
  return true;
}

/* The next word, copied: borrowed until the parser ends. Fails where none stands, naming what was
 * expected. */
static neap_status read_word(parser *p, const char *expected, const char **out) {
  skip_blanks(p);
  size_t n = word_length(p->at);
  if (n == 0) return fail(p, expected);
  char *word = neap_arena_alloc(&p->arena, n + 1);
  if (word == NULL) return fail_memory(p);
  memcpy(word, p->at, n);
  p->at += n;
  *out = word;
  return NEAP_OK;
}

/* The list's room is the caller's to free; the word is borrowed from the parser. */
static neap_status add_name(parser *p, names *list, const char *word) {
  if (!neap_list_grow(&list->item, &list->cap, list->n + 1, sizeof *list->item))
    return fail_memory(p);
  list->item[list->n++] = word;
  return NEAP_OK;
}

/* NAME, NAME, ..: at least one. */
static neap_status read_names(parser *p, names *list) {
  do {
    const char *word = "";
    NEAP_TRY(read_word(p, "a name", &word));
    NEAP_TRY(add_name(p, list, word));
  } while (take(p, ','));
  return NEAP_OK;
}

/* " at LINE": the rest of the line. */
static neap_status read_line_suffix(parser *p, const char **line) {
  *line = NULL;
  if (take_word(p, "at")) {
    skip_blanks(p);
    /* A line of the user's may hold blanks: all that is left of this one belongs to it. */
    size_t n = strcspn(p->at, "\r\n");
    char *text = neap_arena_alloc(&p->arena, n + 1);
    if (text == NULL) return fail_memory(p);
    memcpy(text, p->at, n);
    p->at += n;
    *line = text;
  }
  return at_end_of_line(p) ? NEAP_OK : fail(p, "the end of the line");
}

/* ---- values ---------------------------------------------------------------------------------- */

/* A whole number that fits 64 bits; nothing is rounded or cut off. */
static neap_status read_int(parser *p, int64_t *out) {
  skip_blanks(p);
  const char *start = p->at, *word = "", *expected = "a whole number";
  NEAP_TRY(read_word(p, expected, &word));
  char *end;
  errno = 0;
  *out = strtoll(word, &end, 10);
  if (*end == '\0' && errno == 0) return NEAP_OK;
  /* The message shows what stands here, from the word's beginning. */
  p->at = start;
  return fail(p, expected);
}

/* Whether a word of digits alone is an integer that 53 bits do not hold. */
static bool is_rounded(const char *word, double got) {
  char *end;
  errno = 0;
  long long exact = strtoll(word, &end, 10);
  if (*end != '\0') return false;
  return errno != 0 || !(got >= (double)INT64_MIN && got < -(double)INT64_MIN) ||
         (long long)got != exact;
}

/* Whatever C reads as one whole word: inf and nan too, which the range check of an attribute
 * may refuse. An integer is what it says, or refused. */
static neap_status read_float(parser *p, double *out) {
  skip_blanks(p);
  const char *start = p->at, *word = "";
  NEAP_TRY(read_word(p, "a number", &word));
  char *end;
  *out = neap_number_read(word, &end);
  bool is_number = *end == '\0', rounded = is_number && is_rounded(word, *out);
  if (is_number && !rounded) return NEAP_OK;
  p->at = start;
  return fail(p, rounded ? "a number of 53 bits" : "a number");
}

/* {1,2,3}: ints and doubles are equally wide, so one array serves both. */
static neap_status read_list(parser *p, bool floats, neap_attr_value *value) {
  skip_blanks(p);

  /* As many items as there are commas in the rest of the braces, and one: a hostile text gets no
   * more room than it has bytes. */
  size_t room = 1;
  for (const char *c = p->at; *c != '}' && *c != '\n' && *c != '\0'; c++) room += *c == ',';
  int64_t *ints = neap_arena_alloc(&p->arena, room * sizeof *ints);
  double *numbers = (double *)(void *)ints;
  if (ints == NULL) return fail_memory(p);
  value->ints = ints;

  /* Items up to the brace: none, or one behind each comma. */
  if (!take(p, '{')) return fail(p, "a list {..}");
  if (take(p, '}')) return NEAP_OK;
  do {
    if (floats)
      NEAP_TRY(read_float(p, &numbers[value->n]));
    else
      NEAP_TRY(read_int(p, &ints[value->n]));
    value->n++;
  } while (take(p, ','));
  if (floats) value->floats = numbers;
  return take(p, '}') ? NEAP_OK : fail(p, "\",\" or \"}\"");
}

/* {a, b}: interned by the call that gets them. */
static neap_status read_names_list(parser *p, neap_attr_value *value) {
  names list = {0};
  if (!take(p, '{')) return fail(p, "a list {..}");
  if (take(p, '}')) return NEAP_OK;
  neap_status status = read_names(p, &list);
  if (status == NEAP_OK && !take(p, '}')) status = fail(p, "\",\" or \"}\"");
  const char *const *copy =
    status == NEAP_OK ? neap_arena_copy(&p->arena, list.item, (size_t)list.n * sizeof *copy) : NULL;
  if (status == NEAP_OK && copy == NULL) status = fail_memory(p);
  value->n = list.n;
  value->names = copy;
  neap_free(list.item);
  return status;
}

/* The index of a word in "none|mean|sum". */
static neap_status read_choice(parser *p, const neap_attr *attr, int64_t *out) {
  skip_blanks(p);
  size_t n = word_length(p->at);
  const char *choice = attr->choices;

  /* Choice by choice, counting in *out. */
  for (*out = 0; choice != NULL; ++*out) {
    if (n > 0 && strcspn(choice, "|") == n && memcmp(choice, p->at, n) == 0) {
      p->at += n;
      return NEAP_OK;
    }
    choice = strchr(choice, '|');
    if (choice != NULL) choice++;
  }

  /* None of them: the message lists all. */
  char expected[160];
  snprintf(expected, sizeof expected, "%s, one of %s", attr->name, attr->choices);
  return fail(p, expected);
}

/* A subnet that was read before, by name; "_" is none. */
static neap_status read_subnet_name(parser *p, const neap_net *net, neap_attr_value *value) {
  const char *word = "";
  NEAP_TRY(read_word(p, "the name of a subnet", &word));
  if (strcmp(word, "_") == 0) return NEAP_OK;
  /* Names of a net's subnets differ, so that one is found at most. */
  for (int i = 0; i < net->n_sub; i++)
    if (strcmp(net->sub[i]->name, word) == 0) value->net = net->sub[i];
  if (value->net != NULL) return NEAP_OK;
  return neap_fail(p->error, NEAP_DATA,
                   "net text, line %d: no subnet \"%s\" stands before this line", p->line, word);
}

/* One value in the syntax of its attribute's type. Range and the like are checked by the call that
 * gets it. */
static neap_status read_value(parser *p, const neap_net *net, const neap_attr *attr,
                              neap_attr_value *value) {
  switch (attr->type) {
    case NEAP_ATTR_FLOAT: return read_float(p, &value->f);
    case NEAP_ATTR_INTS:
    case NEAP_ATTR_AXES: return read_list(p, false, value);
    case NEAP_ATTR_FLOATS: return read_list(p, true, value);
    case NEAP_ATTR_NAMES: return read_names_list(p, value);
    case NEAP_ATTR_ENUM: return read_choice(p, attr, &value->i);
    case NEAP_ATTR_NET: return read_subnet_name(p, net, value);
    case NEAP_ATTR_BOOL:
      value->i = take_word(p, "true");
      return value->i == 1 || take_word(p, "false") ? NEAP_OK : fail(p, "true or false");
    case NEAP_ATTR_DTYPE: {
      const char *word = "";
      NEAP_TRY(read_word(p, "a dtype", &word));
      value->i = neap_dtype_from_name(word);
      if (value->i != NEAP_DTYPE_NONE) return NEAP_OK;
      p->at -= strlen(word);
      return fail(p, "a dtype");
    }
    case NEAP_ATTR_NONE:
    case NEAP_ATTR_INT:
    case NEAP_ATTR_AXIS: break;
  }
  return read_int(p, &value->i);
}

/* { NAME = VALUE, .. }, or nothing. An unknown name ends the list: the call that gets it will
 * refuse it. */
static neap_status read_attrs(parser *p, const neap_net *net, const neap_op *op, neap_set *set) {
  if (!take(p, '{')) return NEAP_OK;
  int n = 0;
  do {
    /* What a value looks like follows from the record: the name comes first. */
    NEAP_TRY(read_word(p, "the name of an attribute", &set[n].name));
    int i = op != NULL ? neap_op_attr_index(op, set[n].name) : -1;
    /* What such a value looks like is not known, so the rest of the line is not read; the call
     * fails before it is missed. */
    if (i < 0 || n == NEAP_OP_MAX_ATTR) {
      p->at += strcspn(p->at, "\n");
      return NEAP_OK;
    }

    /* Known: the record's type of the attribute says how the value is read. */
    if (!take_word(p, "=")) return fail(p, "\"=\"");
    NEAP_TRY(read_value(p, net, &op->attrs[i], &set[n].value));
    set[n++].value.given = true;
  } while (take(p, ','));
  return take(p, '}') ? NEAP_OK : fail(p, "\",\" or \"}\"");
}

/* ---- lines ----------------------------------------------------------------------------------- */

/* DTYPE (D, D, ..) */
static neap_status read_type(parser *p, neap_type *type) {
  skip_blanks(p);
  const char *start = p->at, *word = "";
  NEAP_TRY(read_word(p, "a dtype", &word));
  type->dtype = neap_dtype_from_name(word);
  if (type->dtype == NEAP_DTYPE_NONE) {
    p->at = start;
    return fail(p, "a dtype");
  }

  /* A scalar has no dimensions: the parentheses are there and empty. */
  if (!take(p, '(')) return fail(p, "a shape (..)");
  if (take(p, ')')) return NEAP_OK;
  do {
    if (type->shape.n_dim == NEAP_MAX_DIM) return fail(p, "at most 8 dimensions");
    NEAP_TRY(read_int(p, &type->shape.dim[type->shape.n_dim++]));
  } while (take(p, ','));
  return take(p, ')') ? NEAP_OK : fail(p, "\",\" or \")\"");
}

/* The rest of a line after input, param, state or gradient. */
static neap_status read_declaration(parser *p, neap_net *net, neap_role role) {
  const char *name = "", *init = NULL, *line = NULL;
  neap_type type = {0};
  neap_set set[NEAP_OP_MAX_ATTR + 2] = {{0}};

  /* Name, type, init, line: in this order, each but the name may be missing. */
  NEAP_TRY(read_word(p, "a name", &name));
  if (!at_end_of_line(p) && !next_is(p, "at")) NEAP_TRY(read_type(p, &type));

  /* Only a parameter may be frozen; elsewhere the word is no keyword, and what stands there is
   * refused. */
  bool trainable = role == NEAP_ROLE_PARAMETER && !take_word(p, "frozen");
  if (take_word(p, "=")) {
    NEAP_TRY(read_word(p, "an init op", &init));
    NEAP_TRY(read_attrs(p, net, neap_op_find(init), set));
  }

  /* What the words mean together is for the call to judge. */
  NEAP_TRY(read_line_suffix(p, &line));
  neap_error inner = {0};
  return pass_on(p, neap_net_declare(net, name, role, &type, trainable, init, set, line, &inner),
                 &inner);
}

/* "_" is an absent argument: NULL among the inputs, "" among the outputs (NULL there asks for a
 * name). */
static void mark_absent(names *list, const char *absent) {
  for (int i = 0; i < list->n; i++)
    if (strcmp(list->item[i], "_") == 0) list->item[i] = absent;
}

/* [back OP|_] [draws N] */
static neap_status read_origin(parser *p, neap_net_origin *origin) {
  if (take_word(p, "back")) {
    origin->backward = true;
    NEAP_TRY(read_word(p, "an op or _", &origin->forward));
    if (strcmp(origin->forward, "_") == 0) origin->forward = NULL;
  }
  if (!take_word(p, "draws")) return NEAP_OK;
  int64_t stream = 0;
  NEAP_TRY(read_int(p, &stream));
  if (stream < 1 || stream > UINT32_MAX) return fail(p, "a stream from 1 to 2^32 - 1 before this");
  origin->stream = (uint32_t)stream;
  return NEAP_OK;
}

/* From "TYPE(" on; the outputs have been read. */
static neap_status read_call(parser *p, neap_net *net, const char *type, names *in, names *out) {
  neap_net_call call = {.type = type};
  neap_set set[NEAP_OP_MAX_ATTR + 2] = {{0}};
  if (!take(p, '(')) return fail(p, "\"(\"");
  if (!take(p, ')')) {
    NEAP_TRY(read_names(p, in));
    if (!take(p, ')')) return fail(p, "\",\" or \")\"");
  }

  /* What follows stands in this order, as a net is printed. */
  NEAP_TRY(read_attrs(p, net, neap_op_find(type), set));

  /* Without "as" an op is named after its first output; what prints a net relies on it and leaves
   * "as" out. */
  call.name = out->n > 0 ? out->item[0] : NULL;
  if (take_word(p, "as")) NEAP_TRY(read_word(p, "the name of the op", &call.name));
  if (take_word(p, "in")) NEAP_TRY(read_word(p, "a scope", &call.scope));
  if (take_word(p, "of")) NEAP_TRY(read_word(p, "the path of a layer", &call.layer));
  if (take_word(p, "on")) NEAP_TRY(read_word(p, "a device label such as cpu:1", &call.device));
  NEAP_TRY(read_origin(p, &call.origin));
  NEAP_TRY(read_line_suffix(p, &call.line));

  /* What is not there, and the op's name within its scope: as neap_net_add takes them. */
  mark_absent(in, NULL);
  mark_absent(out, "");
  if (call.name != NULL && call.scope != NULL)
    call.name = neap_net_strip_scope(call.name, call.scope);

  /* A list without items is not "nothing said", which would name the required outputs. */
  static const char *const none[1];
  call.n_in = in->n;
  call.in = in->item;
  call.n_out = out->n;
  call.out = out->n > 0 ? out->item : none;
  call.attrs = set;
  neap_error inner = {0};
  return pass_on(p, neap_net_add(net, &call, NULL, &inner), &inner);
}

/* An op line, whose first word (an output, or the type of an op without outputs) has been read. */
static neap_status read_op(parser *p, neap_net *net, const char *first) {
  names in = {0}, out = {0};
  const char *type = first;
  skip_blanks(p);
  neap_status status = NEAP_OK;

  /* Outputs before the type, unless the first word was the type. */
  if (*p->at != '(') {
    status = add_name(p, &out, first);
    if (status == NEAP_OK && take(p, ',')) status = read_names(p, &out);
    if (status == NEAP_OK && !take_word(p, "=")) status = fail(p, "\"=\"");
    if (status == NEAP_OK) status = read_word(p, "an op type", &type);
  }
  if (status == NEAP_OK) status = read_call(p, net, type, &in, &out);
  neap_free(in.item);
  neap_free(out.item);
  return status;
}

static neap_status read_lines(parser *p, neap_net *net);

/* After "subnet": its name, its lines, "end". It is part of `net` as soon as it is named, so that
 * lines can refer outwards. */
static neap_status read_subnet(parser *p, neap_net *net) {
  const char *name = "";
  neap_net *sub;
  neap_error inner = {0};
  NEAP_TRY(read_word(p, "the name of a subnet", &name));
  if (++p->depth > MAX_DEPTH) return fail(p, "fewer subnets inside each other");
  NEAP_TRY(pass_on(p,
                   take_word(p, "closed") ? neap_net_new_closed_sub(net, name, &sub, &inner)
                                          : neap_net_new_sub(net, name, &sub, &inner),
                   &inner));

  /* A taken name would be given a number, and lines that refer to it would mean the other one. */
  if (strcmp(sub->name, name) != 0)
    return neap_fail(p->error, NEAP_DATA, "net text, line %d: subnet \"%s\" is there already",
                     p->line, name);

  /* Its lines up to "end", which is not a line of its own. */
  NEAP_TRY(read_lines(p, sub));
  p->depth--;
  return take_word(p, "end") ? NEAP_OK : fail(p, "\"end\"");
}

/* takes A, B, newline, gives C */
static neap_status read_interface(parser *p, neap_net *net, names *in, names *out) {
  neap_error inner = {0};
  if (!at_end_of_line(p)) NEAP_TRY(read_names(p, in));
  if (!take(p, '\n')) return fail(p, "the end of the line");
  p->line++;
  /* The second line of the two. */
  if (!take_word(p, "gives")) return fail(p, "\"gives\"");
  if (!at_end_of_line(p)) NEAP_TRY(read_names(p, out));
  return pass_on(p, neap_net_set_sub_interface(net, in->n, in->item, out->n, out->item, &inner),
                 &inner);
}

/* After keep, outputs or takes: the names, and the call they stand for. */
static neap_status read_name_line(parser *p, neap_net *net, const char *word) {
  names list = {0}, results = {0};
  neap_error inner = {0};
  neap_status status = NEAP_OK;
  if (strcmp(word, "takes") == 0) {
    status = read_interface(p, net, &list, &results);
    goto done;
  }

  /* A net may have no outputs: the list may be empty. */
  if (!at_end_of_line(p)) status = read_names(p, &list);
  if (status == NEAP_OK && strcmp(word, "outputs") == 0) {
    status = pass_on(p, neap_net_set_outputs(net, list.n, list.item, &inner), &inner);
    goto done;
  }
  if (status != NEAP_OK) goto done;

  /* "keep": one call a name. */
  for (int i = 0; i < list.n; i++) {
    status = pass_on(p, neap_net_keep(net, list.item[i], &inner), &inner);
    if (status != NEAP_OK) break;
  }
done:
  neap_free(list.item);
  neap_free(results.item);
  return status;
}

/* After "bank": BANK NAME, .. */
static neap_status read_bank(parser *p, neap_net *net) {
  const char *bank = "";
  names list = {0};
  neap_error inner = {0};
  NEAP_TRY(read_word(p, "the name of a bank", &bank));
  neap_status status = read_names(p, &list);
  if (status == NEAP_OK)
    for (int i = 0; i < list.n; i++) {
      status = pass_on(p, neap_net_assign(net, list.item[i], bank, &inner), &inner);
      if (status != NEAP_OK) break;
    }
  neap_free(list.item);
  return status;
}

/* After "grad": NAME of NAME [resident] */
static neap_status read_gradient(parser *p, neap_net *net) {
  const char *name = "", *of = "";
  neap_error inner = {0};
  NEAP_TRY(read_word(p, "the name of a gradient", &name));
  if (!take_word(p, "of")) return fail(p, "\"of\"");
  NEAP_TRY(read_word(p, "the blob it is the gradient of", &of));
  bool resident = take_word(p, "resident");
  return pass_on(p, neap_net_set_gradient(net, name, of, resident, &inner), &inner);
}

/* A first word is a keyword unless "=", "," or "(" follows: then it is the name of a blob or op. */
static neap_status read_line(parser *p, neap_net *net) {
  static const struct {
    const char *word;
    neap_role role;
  } declaration[] = {{"input", NEAP_ROLE_INPUT},
                     {"param", NEAP_ROLE_PARAMETER},
                     {"state", NEAP_ROLE_STATE},
                     {"gradient", NEAP_ROLE_GRADIENT}};
  const char *word = "";
  NEAP_TRY(read_word(p, "a name or a keyword", &word));
  skip_blanks(p);

  /* So a blob may be called as a keyword is. */
  if (next_is(p, "=") || *p->at == ',' || *p->at == '(') return read_op(p, net, word);

  /* A keyword: one of the declarations, or what is said of other things. */
  for (int i = 0; i < NEAP_COUNT(declaration); i++)
    if (strcmp(word, declaration[i].word) == 0)
      return read_declaration(p, net, declaration[i].role);
  if (strcmp(word, "grad") == 0) return read_gradient(p, net);
  if (strcmp(word, "bank") == 0) return read_bank(p, net);
  if (strcmp(word, "subnet") == 0) return read_subnet(p, net);
  if (strcmp(word, "keep") == 0 || strcmp(word, "outputs") == 0 || strcmp(word, "takes") == 0)
    return read_name_line(p, net, word);
  return fail(p, "\"=\" after the name of an output");
}

/* To the end of the text, or to the "end" of a subnet. */
static neap_status read_lines(parser *p, neap_net *net) {
  for (;;) {
    if (!at_end_of_line(p)) return fail(p, "the end of the line");
    /* Lines without a word are passed over, and counted. */
    while (at_end_of_line(p) && *p->at == '\n') {
      p->at++;
      p->line++;
    }
    if (*p->at == '\0') return NEAP_OK;
    /* Only alone on its line: a blob may be called "end". */
    if (p->depth > 0 && next_is(p, "end")) {
      const char *after = p->at + strlen("end");
      after += strspn(after, " \t\r");
      if (*after == '\n' || *after == '\0') return NEAP_OK;
    }
    NEAP_TRY(read_line(p, net));
  }
}

/* All or nothing: a net that was read in part is freed. */
neap_status neap_net_read(const char *text, neap_net **out, neap_error *error) {
  neap_error unseen = {0};
  parser p = {.at = text, .line = 1, .error = error != NULL ? error : &unseen};
  neap_net *net = NULL;
  neap_error inner = {0};
  const char *name = "";

  /* Empty lines may come first. */
  while (at_end_of_line(&p) && *p.at == '\n') {
    p.at++;
    p.line++;
  }
  neap_status status =
    take_word(&p, "net") ? read_word(&p, "the name of the net", &name) : fail(&p, "\"net NAME\"");
  if (status == NEAP_OK) status = pass_on(&p, neap_net_new(name, &net, &inner), &inner);
  if (status == NEAP_OK) status = read_lines(&p, net);
  if (status == NEAP_OK && *p.at != '\0') status = fail(&p, "the end of the text");
  neap_arena_fini(&p.arena);
  if (status != NEAP_OK) {
    neap_net_free(net);
    return status;
  }
  *out = net;
  return NEAP_OK;
}

/* Lines are added one by one: those before one that fails stay, as neap.h says. A subnet is read
 * whole or fails. */
neap_status neap_net_read_lines(neap_net *net, const char *text, neap_error *error) {
  neap_error unseen = {0};
  parser p = {.at = text, .line = 1, .error = error != NULL ? error : &unseen};
  neap_status status = NEAP_OK;
  if (!at_end_of_line(&p)) status = read_line(&p, net);
  if (status == NEAP_OK) status = read_lines(&p, net);
  neap_arena_fini(&p.arena);
  return status;
}
