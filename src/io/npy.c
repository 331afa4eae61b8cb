/* npy.c: one tensor in NumPy's .npy format, versions 1.0 to 3.0.
 *
 * Format: "\x93NUMPY", major, minor, the header's length (u16 in version 1, else u32), a header
 * that is a Python dictionary {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, then the
 * numbers. Source: numpy.lib.format's documentation, and NEP 1.
 */
#include "io/io_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_HEADER_BYTES = 1 << 16, DESCR_TEXT = 64 };

/* What a header says. */
typedef struct header {
  char descr[DESCR_TEXT];
  bool fortran_order;
  neap_shape shape;
  int64_t data_offset;
} header;

/* ---- reading the dictionary ------------------------------------------------------------------ */

/* INVARIANT: *end is 0, so that looking at *at needs no bounds check. */
typedef struct cursor {
  const char *at, *end;
} cursor;

/* Blanks, tabs and the line end that closes the header. */
static void skip_space(cursor *c) {
  while (c->at < c->end && (*c->at == ' ' || *c->at == '\n' || *c->at == '\t')) c->at++;
}

/* Takes `word` if it comes next. */
static bool take(cursor *c, const char *word) {
  skip_space(c);
  size_t n = strlen(word);
  if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n) != 0) return false;
  c->at += n;
  return true;
}

/* A quoted text without escapes. */
static bool take_text(cursor *c, char *out, size_t room) {
  skip_space(c);
  char quote = *c->at;
  if (quote != '\'' && quote != '"') return false;
  /* Up to the same quote, which must come before the end, and fit. No key has an escape in it. */
  const char *from = c->at + 1, *to = memchr(from, quote, (size_t)(c->end - from));
  if (to == NULL || (size_t)(to - from) >= room || memchr(from, '\\', (size_t)(to - from)) != NULL)
    return false;
  memcpy(out, from, (size_t)(to - from));
  out[to - from] = '\0';
  c->at = to + 1;
  return true;
}

/* A count that int64_t holds. */
static bool take_count(cursor *c, int64_t *out) {
  skip_space(c);
  if (*c->at < '0' || *c->at > '9') return false;
  /* Digit by digit, as far as int64_t goes. */
  for (*out = 0; *c->at >= '0' && *c->at <= '9'; c->at++)
    if (__builtin_mul_overflow(*out, 10, out) || __builtin_add_overflow(*out, *c->at - '0', out))
      return false;
  if (*c->at == 'L') c->at++; /* Python 2 wrote long integers so */
  return true;
}

/* "()", "(3,)", "(3, 4)". NULL, or what is wrong. */
static const char *take_shape(cursor *c, neap_shape *shape) {
  *shape = (neap_shape){0};
  if (!take(c, "(")) return "'shape' is not a tuple";
  while (!take(c, ")")) {
    if (shape->n_dim == NEAP_MAX_DIM) return "the array has more than 8 dimensions";
    /* A count, then a comma or the end; one count alone needs the comma, since (3) is no tuple in
     * Python. */
    if (!take_count(c, &shape->dim[shape->n_dim]))
      return "'shape' holds something else than counts";
    shape->n_dim++;
    if (!take(c, ",")) {
      if (!take(c, ")") || shape->n_dim == 1) return "'shape' is not a tuple of counts";
      break;
    }
  }
  return NULL;
}

/* The value of `key`, whose bit in *seen tells a second one. NULL, or what is wrong. */
static const char *take_value(cursor *c, const char *key, unsigned bit, unsigned *seen, header *h) {
  if (*seen & bit) return "the header names a key twice";
  *seen |= bit;
  if (strcmp(key, "shape") == 0) return take_shape(c, &h->shape);
  if (strcmp(key, "fortran_order") == 0) {
    h->fortran_order = take(c, "True");
    if (h->fortran_order || take(c, "False")) return NULL;
    return "'fortran_order' is neither True nor False";
  }
  /* What is left is 'descr'. A list there describes a record of several numbers. */
  skip_space(c);
  if (*c->at == '[')
    return "it is a structured array (a list as 'descr'); Neap reads arrays of one number type";
  return take_text(c, h->descr, sizeof h->descr) ? NULL : "'descr' is not a text";
}

/* Fills h from the dictionary. NULL, or what is wrong. */
static const char *parse_dictionary(cursor *c, header *h) {
  static const char *const keys[] = {"descr", "fortran_order", "shape"};
  NEAP_ASSERT(*c->end == '\0', "a header ends with a zero");
  unsigned seen = 0;
  if (!take(c, "{")) return "the header is not a dictionary";
  while (!take(c, "}")) {
    /* One of the three keys; another one would change what the file means, and nobody knows how. */
    char key[16];
    int k = 0;
    if (!take_text(c, key, sizeof key) || !take(c, ":"))
      return "the header is not a dictionary with text keys";
    while (k < NEAP_COUNT(keys) && strcmp(key, keys[k]) != 0) k++;
    if (k == NEAP_COUNT(keys)) return "the header has an unknown key";
    const char *wrong = take_value(c, key, 1u << k, &seen, h);
    if (wrong != NULL) return wrong;
    /* Without a comma it must end here. */
    if (!take(c, ",")) {
      if (!take(c, "}")) return "the header's dictionary does not end";
      break;
    }
  }
  /* Nothing may follow, and none of the three bits be missing. */
  skip_space(c);
  if (c->at != c->end) return "something follows the header's dictionary";
  return seen == 7 ? NULL : "the header lacks 'descr', 'fortran_order' or 'shape'";
}

/* ---- loading --------------------------------------------------------------------------------- */

/* Fills h. DATA error for another magic, version, length or dictionary. */
static neap_status read_header(const neap_io_source *source, header *h, neap_error *error) {
  unsigned char start[12];
  NEAP_TRY(neap_io_source_read(source, 0, start, 10, "the .npy header", error));
  if (memcmp(start, NEAP_IO_NPY_MAGIC, 6) != 0)
    return neap_io_source_fail(source, error, NEAP_DATA, "is not a .npy file");
  if (start[6] < 1 || start[6] > 3 || start[7] != 0)
    return neap_io_source_fail(source, error, NEAP_DATA,
                               ".npy version %d.%d is unknown; Neap reads 1.0 to 3.0", start[6],
                               start[7]);
  /* Version 1 has two bytes of length, the later ones four. */
  int64_t prefix = start[6] == 1 ? 10 : 12, n = start[8] | start[9] << 8;
  if (prefix == 12) {
    NEAP_TRY(neap_io_source_read(source, 0, start, 12, "the .npy header", error));
    n |= (int64_t)start[10] << 16 | (int64_t)start[11] << 24;
  }
  if (n > MOST_HEADER_BYTES)
    return neap_io_source_fail(
      source, error, NEAP_DATA,
      "the .npy header claims %lld bytes; one of a plain array has a few dozen", (long long)n);
  NEAP_TRY(neap_io_source_check(source, prefix, n, "the .npy header", error));

  /* The zero byte behind the text ends each scan of it, wherever the text is damaged. */
  char *text = neap_alloc((size_t)n + 1);
  if (text == NULL) return neap_fail_memory(error, (size_t)n + 1, "a .npy header");
  neap_status status = neap_io_source_read(source, prefix, text, n, "the .npy header", error);
  if (status == NEAP_OK) {
    text[n] = '\0';
    cursor c = {text, text + n};
    const char *wrong = parse_dictionary(&c, h);
    if (wrong != NULL) status = neap_io_source_fail(source, error, NEAP_DATA, "%s", wrong);
  }
  neap_free(text);
  h->data_offset = prefix + n;
  return status;
}

/* "<f4": byte order, kind, bytes. DATA error for what no dtype of Neap holds; pickled objects are
 * never unpacked. */
static neap_status parse_descr(const neap_io_source *source, const char *descr,
                               neap_io_number *number, neap_error *error) {
  /* '|' and '=' are no order: of single bytes there is none, and this machine's is the file's. */
  const char *kind = descr + (descr[0] != '\0' && strchr("<>|=", descr[0]) != NULL);
  if (*kind == 'O') {
    neap_io_source_fail(
      source, error, NEAP_DATA,
      "holds Python objects (descr '%s'), stored as a pickle; Neap reads numbers only", descr);
    neap_hint(error, "in Python, save array.astype('float32') or another number type");
    return NEAP_DATA;
  }
  char *end = NULL;
  long bytes = *kind == '\0' ? 0 : strtol(kind + 1, &end, 10);
  if (end == NULL || *end != '\0' || bytes < 1 || bytes > 8 ||
      !neap_io_number_of(*kind, (int)bytes, descr[0] == '>', number))
    return neap_io_source_fail(source, error, NEAP_DATA,
                               "no dtype of Neap holds numbers of descr '%s'", descr);
  return NEAP_OK;
}

/* keep_strides: a Fortran-order tensor of a mapped file stays a view with its strides; else it
 * becomes dense. */
neap_status neap_io_npy_load(const neap_io_source *source, bool keep_strides, neap_tensor *out,
                             neap_error *error) {
  header h = {0};
  neap_io_number number;
  NEAP_TRY(read_header(source, &h, error));
  NEAP_TRY(parse_descr(source, h.descr, &number, error));
  if (!h.fortran_order || h.shape.n_dim < 2)
    return neap_io_number_tensor(source, h.data_offset, &number, &h.shape, out, error);
  /* The file is the dense array of the reversed shape: read that, and look at it in the other
   * order. */
  neap_shape reversed = {.n_dim = h.shape.n_dim};
  int order[NEAP_MAX_DIM];
  for (int i = 0; i < h.shape.n_dim; i++) {
    order[i] = h.shape.n_dim - 1 - i;
    reversed.dim[i] = h.shape.dim[order[i]];
  }
  neap_tensor stored, view;
  NEAP_TRY(neap_io_number_tensor(source, h.data_offset, &number, &reversed, &stored, error));
  neap_status status = neap_tensor_permute(&stored, order, &view, error);
  neap_tensor_fini(&stored);
  if (status != NEAP_OK || keep_strides) {
    if (status == NEAP_OK) *out = view;
    return status;
  }
  status = neap_tensor_clone(&view, NEAP_DTYPE_NONE, out, error);
  neap_tensor_fini(&view);
  return status;
}

/* ---- saving ---------------------------------------------------------------------------------- */

/* Version 1.0, C order, as numpy.save writes it. */
size_t neap_io_npy_header(const neap_type *type, char out[NEAP_IO_NPY_HEADER]) {
  static const char *const descr[NEAP_N_DTYPE] = {
    [NEAP_DTYPE_F32] = "<f4", [NEAP_DTYPE_F64] = "<f8",  [NEAP_DTYPE_BF16] = "<V2",
    [NEAP_DTYPE_F16] = "<f2", [NEAP_DTYPE_I8] = "|i1",   [NEAP_DTYPE_U8] = "|u1",
    [NEAP_DTYPE_I16] = "<i2", [NEAP_DTYPE_U16] = "<u2",  [NEAP_DTYPE_I32] = "<i4",
    [NEAP_DTYPE_I64] = "<i8", [NEAP_DTYPE_BOOL] = "|b1",
  };
  char shape[NEAP_MAX_DIM * 22 + 4] = "(";
  size_t n = 1;
  /* As Python writes a tuple: (2, 3), and (2,) of one. */
  for (int i = 0; i < type->shape.n_dim; i++)
    n += (size_t)snprintf(shape + n, sizeof shape - n, "%s%lld", i > 0 ? ", " : "",
                          (long long)type->shape.dim[i]);
  snprintf(shape + n, sizeof shape - n, type->shape.n_dim == 1 ? ",)" : ")");
  int used =
    snprintf(out + 10, NEAP_IO_NPY_HEADER - 10,
             "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", descr[type->dtype], shape);
  /* so that the data is aligned when the file is mapped */
  size_t whole = neap_align(10 + (size_t)used + 1);
  memset(out + 10 + used, ' ', whole - 10 - (size_t)used);
  out[whole - 1] = '\n';
  memcpy(out, NEAP_IO_NPY_MAGIC "\x01\x00", 8);
  out[8] = (char)((whole - 10) & 0xff);
  out[9] = (char)((whole - 10) >> 8);
  return whole;
}

/* Header and bytes at the sink's end: a whole file, or a member of a .npz. */
neap_status neap_io_npy_save(neap_io_sink *sink, const neap_tensor *dense, neap_error *error) {
  char header_text[NEAP_IO_NPY_HEADER];
  neap_type type = neap_tensor_type(dense);
  NEAP_TRY(neap_io_sink_write(sink, header_text, neap_io_npy_header(&type, header_text), error));
  return neap_io_sink_write(sink, neap_tensor_data(dense), neap_type_bytes(&type), error);
}
