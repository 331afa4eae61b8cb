/* name.c: names: what may be one, what they mean in a net and the nets around it, and how ops and
 * outputs without a name get theirs.
 *
 * A name is any text without white space, control characters, quotes, parentheses, commas and
 * braces, so that the text form needs no quoting; "=" and "_" are its punctuation. Scopes are no
 * objects: "a/b/conv" lies in scope "a/b" because of its slashes, and a subnet's names live in a
 * table of their own.
 *
 * INVARIANT: names that are compared by address are interned; texts that come from outside are
 * interned first.
 */
#include "net/net_int.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Bytes above 127 pass, so that names may be in any script; positions in messages count bytes from
 * 1. */
neap_status neap_net_check_name(const char *what, const char *text, neap_error *error) {
  if (text[0] == '\0') return neap_fail(error, NEAP_NAME, "the name of a %s is empty", what);
  if (strcmp(text, "=") == 0 || strcmp(text, "_") == 0)
    return neap_fail(error, NEAP_NAME,
                     "\"%s\" can't be the name of a %s: it is punctuation of the text form", text,
                     what);

  /* The first character that no name may have. */
  for (const char *c = text; *c != '\0'; c++)
    if ((unsigned char)*c <= ' ' || *c == 127 || strchr("\"'(){},", *c) != NULL) {
      neap_fail(error, NEAP_NAME, "\"%s\" can't be the name of a %s: %s at position %d", text, what,
                (unsigned char)*c <= ' ' || *c == 127 ? "white space"
                                                      : "a quote, parenthesis, comma or brace",
                (int)(c - text) + 1);
      if (error != NULL && error->blob[0] == '\0')
        snprintf(error->blob, sizeof error->blob, "%s", text);
      neap_hint(error, "use letters, digits and . _ - / :");
      return NEAP_NAME;
    }
  return NEAP_OK;
}

/* Inner names hide outer ones. A freed name is found: the caller looks at freed_by. */
neap_net_found neap_net_look_up(const neap_net *net, const char *name) {
  for (const neap_net *n = net; n != NULL; n = n->closed ? NULL : n->outer) {
    int i = neap_map_get(&n->cell_of, name, -1);
    if (i >= 0) return (neap_net_found){(neap_net *)n, &n->cell[i]};
  }
  return (neap_net_found){NULL, NULL};
}

/* The nearest living name that is seen from the net, for "did you mean": at most a third of its
 * letters may differ, since what is farther away is more often another word than a slip. NULL: none
 * is near. O(names), on the way to an error only. */
const char *neap_net_nearest(const neap_net *net, const char *name) {
  const char *best = NULL;
  int least = neap_text_reach(name);
  for (; net != NULL; net = net->closed ? NULL : net->outer)
    /* All names in sight, those of inner nets first. */
    for (int i = 0; i < net->n_cell; i++) {
      const neap_net_cell *cell = &net->cell[i];
      /* A freed name would only lead into the next error. */
      int d = cell->freed_by >= 0 ? 64 : neap_text_distance(name, cell->blob.name);
      if (d < least || (d == least && best == NULL)) {
        best = cell->blob.name;
        least = d;
      }
    }
  return best;
}

/* The last few names in sight, as a hint for those who look for one. */
static void hint_defined(const neap_net *net, neap_error *error) {
  char list[200] = "";
  size_t n = 0;
  int shown = 0;
  for (; net != NULL; net = net->closed ? NULL : net->outer)
    /* From the last one backwards, as many as fit. */
    for (int i = net->n_cell - 1; i >= 0 && shown < 8 && n + 40 < sizeof list; i--, shown++)
      n += (size_t)snprintf(list + n, sizeof list - n, "%s%.32s", shown > 0 ? ", " : "",
                            net->cell[i].blob.name);
  if (shown > 0)
    neap_hint(error, "defined last: %s", list);
  else
    neap_hint(error, "nothing is defined yet: declare inputs and parameters first");
}

/* Two different slips: a name that a Free has ended, where the Free is what has to move, and one
 * that was never defined. `who` is the prefix of the message. NULL for the error is allowed, and
 * then only the code counts. */
neap_status neap_net_fail_undefined(const neap_net *net, const char *who, const char *name,
                                    neap_error *error) {
  if (error == NULL) return NEAP_NAME;

  /* Found, but freed: the Free is what is in the way. */
  neap_net_found found = neap_net_look_up(net, name);
  if (found.cell != NULL && found.cell->freed_by >= 0) {
    const neap_net_op *by = &found.net->op[found.cell->freed_by];
    neap_fail(error, NEAP_NAME, "%sblob \"%s\" was ended by %s \"%s\"%s%s", who, name, by->op->name,
              by->name, by->line[0] != '\0' ? " at " : "", by->line);
    neap_hint(error,
              "move the %s after the last reader, or leave it out: the planner frees by itself",
              by->op->name);
  } else {
    /* Never defined: a name that is nearly the same, else the ones that were defined last. */
    const char *near = neap_net_nearest(net, name);
    neap_fail(error, NEAP_NAME, "%sblob \"%s\" is not defined here%s%s%s", who, name,
              near != NULL ? ", did you mean \"" : "", near != NULL ? near : "",
              near != NULL ? "\"?" : "");
    if (near == NULL) hint_defined(net, error);
  }
  if (error->blob[0] == '\0') snprintf(error->blob, sizeof error->blob, "%s", name);
  return error->code;
}

/* Only a number above 0 is written: 0 is for a name that the user gave whole. */
const char *neap_net_join(const char *scope, const char *base, int number) {
  const char *slash = scope[0] != '\0' ? "/" : "";
  if (number > 0) return neap_intern_format("%s%s%s_%d", scope, slash, base, number);
  return neap_intern_format("%s%s%s", scope, slash, base);
}

/* A word starts at a capital after a small letter or digit, and at the last capital of a run:
 * FCGradInput is fc_grad_input. */
const char *neap_net_snake(const char *type) {
  char text[128];
  size_t n = 0;
  for (size_t i = 0; type[i] != '\0' && n + 2 < sizeof text; i++) {
    /* A capital behind a small letter, or one that a small letter follows. */
    bool starts = i > 0 && isupper((unsigned char)type[i]) &&
                  (!isupper((unsigned char)type[i - 1]) || islower((unsigned char)type[i + 1]));
    if (starts && type[i - 1] != '_') text[n++] = '_';
    text[n++] = (char)tolower((unsigned char)type[i]);
  }
  return neap_intern_n(text, n);
}

/* "a/" in "a" stays as it is: what is left of it would be no name. */
const char *neap_net_strip_scope(const char *name, const char *scope) {
  size_t n = strlen(scope);
  bool is_inside = n > 0 && strncmp(name, scope, n) == 0 && name[n] == '/' && name[n + 1] != '\0';
  return is_inside ? name + n + 1 : name;
}
