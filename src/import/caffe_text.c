/* caffe_text.c: the text format of protobuf, in which Caffe's nets and solvers are written, as
 * plain data (neap/caffe.h). protobuf-c reads no text.
 *
 *   message = { name ( ":" value | [":"] "{" message "}" | [":"] "<" message ">" ) [","|";"] }
 *   value   = string {string} | number | word | "[" value {"," value} "]"
 *
 * Fields lie in an arena, in lists in the order of the text.
 *
 * INVARIANT: `at` is within the text, which ends with a zero byte of its own at `end`; each loop
 * takes a byte or ends.
 */
#include "import/import.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 64, MOST_BYTES = 64 << 20 };

typedef struct text_file {
  neap_caffe_text text; /* first: a pointer to it is one to this */
  neap_arena arena;
} text_file;

typedef struct reader {
  text_file *file;
  const char *path;
  const char *at, *end;
  int line;
  neap_error *error;
} reader;

/* A list of fields while it grows. */
typedef struct list {
  const neap_caffe_field *first, **end;
} list;

static neap_status fail(const reader *r, const char *format, ...) {
  char text[300];
  va_list args;
  va_start(args, format);
  neap_format_list(text, sizeof text, format, args);
  va_end(args);
  return neap_fail(r->error, NEAP_DATA, "%s:%d: %s", r->path, r->line, text);
}

static void *room(reader *r, size_t bytes) {
  void *out = neap_arena_alloc(&r->file->arena, bytes);
  if (out == NULL) neap_fail_memory(r->error, bytes, "a text of Caffe's");
  return out;
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Passes over white space and comments. */
static void skip(reader *r) {
  while (r->at < r->end) {
    char c = *r->at;
    if (c == '#') {
      while (r->at < r->end && *r->at != '\n') r->at++;
    } else if (c == '\n') {
      r->line++;
      r->at++;
    } else if (c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
      r->at++;
    } else {
      return;
    }
  }
}

static bool take(reader *r, char c) {
  skip(r);
  if (r->at == r->end || *r->at != c) return false;
  r->at++;
  return true;
}

static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_digit(char c) { return c >= '0' && c <= '9'; }

/* What stands there, up to the next white space, but not much of it, for messages. */
static neap_status fail_here(const reader *r, const char *expected) {
  unsigned char c = (unsigned char)*r->at;
  if (r->at == r->end) return fail(r, "%s is expected, the text ends", expected);
  if (c < 32 || c > 126) return fail(r, "%s is expected, got the byte 0x%02x", expected, c);
  int n = NEAP_MIN((int)strcspn(r->at, " \t\r\n"), 24);
  return fail(r, "%s is expected, got \"%.*s\"", expected, n, r->at);
}

static neap_status read_word(reader *r, const char **out, size_t *n) {
  const char *from = r->at;
  while (r->at < r->end && (is_letter(*r->at) || is_digit(*r->at))) r->at++;
  *n = (size_t)(r->at - from);
  char *word = room(r, *n + 1);
  if (word == NULL) return NEAP_MEMORY;
  memcpy(word, from, *n);
  *out = word;
  return NEAP_OK;
}

/* ---- strings --------------------------------------------------------------------------------- */

/* What a digit counts, to base 16; more than any base for what is none. */
static int digit_of(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

/* The digits of a base behind an escape, `most` of them at most. */
static int read_digits(reader *r, int base, int most) {
  int value = 0;
  for (int i = 0; i < most && r->at < r->end; i++) {
    int digit = digit_of(*r->at);
    if (digit >= base) break;
    value = value * base + digit;
    r->at++;
  }
  return value;
}

/* The byte that the escape at r->at stands for, behind its backslash. */
static char read_escape(reader *r) {
  char c = *r->at;
  if (c >= '0' && c <= '7') return (char)read_digits(r, 8, 3);
  r->at++;
  switch (c) {
    case 'n': return '\n';
    case 't': return '\t';
    case 'r': return '\r';
    case 'a': return '\a';
    case 'b': return '\b';
    case 'f': return '\f';
    case 'v': return '\v';
    case 'x':
    case 'X': return (char)read_digits(r, 16, 2);
    default: return c; /* quotes, the backslash, the question mark */
  }
}

static bool is_quote(char c) { return c == '"' || c == '\''; }

/* Adds the string at r->at, which is a quote. It ends with the same quote, in the same line. */
static neap_status add_string(reader *r, neap_buffer *bytes) {
  char quote = *r->at++;
  while (r->at < r->end && *r->at != quote && *r->at != '\n') {
    char c = *r->at++;
    if (c == '\\' && r->at < r->end) c = read_escape(r);
    neap_buffer_add_n(bytes, &c, 1);
  }
  if (r->at == r->end || *r->at != quote) return fail(r, "a string has no end");
  r->at++;
  return NEAP_OK;
}

/* The field gets a copy of its own. Rooms are zeroed: a zero byte ends it. */
static neap_status set_string(reader *r, neap_caffe_field *f, const neap_buffer *bytes) {
  if (bytes->failed) return neap_fail_memory(r->error, bytes->n, "a string");
  char *text = room(r, bytes->n + 1);
  if (text == NULL) return NEAP_MEMORY;
  if (bytes->n > 0) memcpy(text, bytes->text, bytes->n);
  f->kind = NEAP_CAFFE_STRING;
  f->text = text;
  f->n_text = bytes->n;
  return NEAP_OK;
}

/* Strings one after the other are one, as in C: those from r->at, which is a quote, on. */
static neap_status read_strings(reader *r, neap_caffe_field *f) {
  neap_buffer bytes = {0};
  neap_status status;
  do {
    status = add_string(r, &bytes);
    skip(r);
  } while (status == NEAP_OK && is_quote(*r->at));
  if (status == NEAP_OK) status = set_string(r, f, &bytes);
  neap_buffer_fini(&bytes);
  return status;
}

/* ---- numbers and words ----------------------------------------------------------------------- */

/* A number that begins at r->at, perhaps with a sign; inf and nan are words with one. */
static neap_status read_number(reader *r, neap_caffe_field *f) {
  /* The letters that may be of a number, copied: strtoll wants a zero byte behind them. What does
   * not fit is no number, since none needs so many. */
  char text[64];
  size_t n = 0;
  const char *from = r->at;
  while (r->at < r->end && n + 1 < sizeof text) {
    char c = *r->at;
    bool after_e = n > 0 && (text[n - 1] == 'e' || text[n - 1] == 'E');
    bool sign = (c == '-' || c == '+') && (n == 0 || after_e);
    if (!sign && !is_digit(c) && !is_letter(c) && c != '.') break;
    text[n++] = c;
    r->at++;
  }
  text[n] = '\0';
  char *end;
  bool is_hex = strncmp(text + (text[0] == '-'), "0x", 2) == 0;
  /* A whole number as such where it fits 64 bits; "0x1f" and "017" as C has them. */
  if (strpbrk(text, is_hex ? "." : ".eEfFnN") == NULL) {
    errno = 0;
    f->i = strtoll(text, &end, 0);
    if (end != text && *end == '\0' && errno == 0) {
      f->kind = NEAP_CAFFE_INT;
      f->f = (double)f->i;
      return NEAP_OK;
    }
  }

  /* Every other number is a double; one that C writes with an f behind it too. */
  f->f = neap_number_read(text, &end);
  if (end != text && (*end == 'f' || *end == 'F')) end++;
  if (end == text || *end != '\0' || n + 1 == sizeof text) {
    r->at = from;
    return fail(r, "\"%.40s\" is no number", text);
  }
  f->kind = NEAP_CAFFE_FLOAT;
  return NEAP_OK;
}

static neap_status read_scalar(reader *r, neap_caffe_field *f) {
  skip(r);
  char c = r->at < r->end ? *r->at : '\0';
  f->line = r->line;
  if (is_quote(c)) return read_strings(r, f);
  if (is_digit(c) || c == '-' || c == '+' || c == '.') return read_number(r, f);
  if (is_letter(c)) {
    f->kind = NEAP_CAFFE_WORD;
    return read_word(r, &f->text, &f->n_text);
  }
  return fail_here(r, "a value");
}

/* ---- messages -------------------------------------------------------------------------------- */

static neap_status read_message(reader *r, char close, int depth, list *out);

static neap_caffe_field *new_field(reader *r, list *fields, const char *name, int line) {
  neap_caffe_field *f = room(r, sizeof *f);
  if (f == NULL) return NULL;
  *f = (neap_caffe_field){.name = name, .line = line, .text = ""};
  *fields->end = f;
  fields->end = &f->next;
  return f;
}

/* A value, or a message where one is opened. */
static neap_status read_value(reader *r, neap_caffe_field *f, int depth) {
  bool brace = take(r, '{');
  if (!brace && !take(r, '<')) return read_scalar(r, f);
  list fields = {NULL, &fields.first};
  f->kind = NEAP_CAFFE_MESSAGE;
  neap_status status = read_message(r, brace ? '}' : '>', depth + 1, &fields);
  f->fields = fields.first;
  return status;
}

/* "[a, b]": a field for each. */
static neap_status read_list(reader *r, const char *name, list *fields, int depth) {
  if (take(r, ']')) return NEAP_OK;
  do {
    skip(r);
    neap_caffe_field *f = new_field(r, fields, name, r->line);
    if (f == NULL) return NEAP_MEMORY;
    NEAP_TRY(read_value(r, f, depth));
  } while (take(r, ','));
  return take(r, ']') ? NEAP_OK : fail_here(r, "\",\" or \"]\"");
}

static neap_status read_field(reader *r, list *fields, int depth) {
  const char *name;
  size_t n;
  int line = r->line;
  if (!is_letter(*r->at)) return fail_here(r, "a field's name");
  NEAP_TRY(read_word(r, &name, &n));

  /* The colon may be left out before a message, and before nothing else. */
  bool colon = take(r, ':');
  skip(r);
  if (!colon && *r->at != '{' && *r->at != '<') return fail_here(r, "\":\" or \"{\"");
  /* Fields of a list share a name, and each is in the line where it stands itself. */
  if (colon && take(r, '['))
    NEAP_TRY(read_list(r, name, fields, depth));
  else {
    neap_caffe_field *f = new_field(r, fields, name, line);
    if (f == NULL) return NEAP_MEMORY;
    NEAP_TRY(read_value(r, f, depth));
    f->line = line;
  }
  if (!take(r, ',')) take(r, ';');
  return NEAP_OK;
}

/* Fields up to `close`, which is taken; '\0': up to the end of the text. */
static neap_status read_message(reader *r, char close, int depth, list *out) {
  int line = r->line;
  if (depth > MOST_DEPTH) return fail(r, "messages are nested more than %d deep", MOST_DEPTH);
  for (skip(r); r->at < r->end; skip(r)) {
    if (close != '\0' && take(r, close)) return NEAP_OK;
    NEAP_TRY(read_field(r, out, depth));
  }
  if (close == '\0') return NEAP_OK;
  return fail(r, "the \"%c\" of line %d has no \"%c\"", close == '}' ? '{' : '<', line, close);
}

/* ---- files ----------------------------------------------------------------------------------- */

neap_status neap_caffe_read_text(const char *path, neap_caffe_text **out, neap_error *error) {
  neap_storage *bytes = NULL;
  int64_t n;
  *out = NULL;
  text_file *file = neap_alloc_zeroed(sizeof *file);
  if (file == NULL) return neap_fail_memory(error, sizeof *file, "a text of Caffe's");
  char *copy = NULL;
  /* Its size is known before its bytes are touched: the text is copied once, and all fields lie in
   * the same arena, so they are bounded by it. */
  neap_status status = neap_io_map_file(path, &bytes, &n, error);
  if (status == NEAP_OK && n > MOST_BYTES)
    status = neap_fail(error, NEAP_DATA, "%s: %lld bytes, a net's text has at most %d", path,
                       (long long)n, MOST_BYTES);
  /* With a zero byte behind it, which no loop looks beyond. */
  if (status == NEAP_OK) {
    copy = neap_arena_alloc(&file->arena, (size_t)n + 1);
    if (copy == NULL) status = neap_fail_memory(error, (size_t)n, "a text of Caffe's");
  }
  if (status == NEAP_OK) {
    if (n > 0) memcpy(copy, neap_storage_data(bytes), (size_t)n);
    reader r = {file, path, copy, copy + n, 1, error};
    list fields = {NULL, &fields.first};
    status = read_message(&r, '\0', 0, &fields);
    file->text.field = fields.first;
  }
  neap_storage_release(bytes);
  if (status == NEAP_OK)
    *out = &file->text;
  else
    neap_caffe_free_text(&file->text);
  return status;
}

void neap_caffe_free_text(neap_caffe_text *text) {
  if (text == NULL) return;
  text_file *file = (text_file *)text;
  neap_arena_fini(&file->arena);
  neap_free(file);
}
