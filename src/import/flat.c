/* flat.c: tables, vectors and texts of a file in the format of FlatBuffers (flat_int.h). Numbers
 * are put together byte by byte: they stand at any address, the low byte first.
 */
#include "import/flat_int.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void neap_flat_fail(neap_flat *flat, const char *format, ...) {
  char text[300];
  va_list args;
  if (flat->status != NEAP_OK) return;
  va_start(args, format);
  neap_format_list(text, sizeof text, format, args);
  va_end(args);
  flat->status = neap_fail(flat->error, NEAP_DATA, "%s: %s%s", flat->path, flat->place, text);
}

static void fail_at(neap_flat *flat, const char *what, int64_t at) {
  neap_flat_fail(flat, "damaged: %s at byte %lld, the file has %lld", what, (long long)at,
                 (long long)flat->n_bytes);
}

bool neap_flat_spend(neap_flat *flat, int64_t n) {
  if (flat->status != NEAP_OK) return false;
  if (n > flat->left) {
    neap_flat_fail(flat, "damaged: its lists are larger than the file, time and again");
    return false;
  }
  flat->left -= n;
  return true;
}

static bool is_inside(const neap_flat *flat, int64_t at, int64_t n) {
  return at >= 0 && n >= 0 && at <= flat->n_bytes && n <= flat->n_bytes - at;
}

/* The number of so many bytes, which are inside, signed. */
static int64_t number_at(const neap_flat *flat, int64_t at, int bytes) {
  NEAP_ASSERT(is_inside(flat, at, bytes), "%d bytes at %lld are of the file", bytes, (long long)at);
  uint64_t number = 0;
  for (int i = 0; i < bytes; i++) number |= (uint64_t)flat->data[at + i] << (8 * i);
  /* The number's highest bit is its sign: moved to the top it is an int64's, and what is moved back
   * fills with it. */
  int unused = 64 - 8 * bytes;
  return (int64_t)(number << unused) >> unused;
}

static int64_t unsigned_at(const neap_flat *flat, int64_t at, int bytes) {
  return number_at(flat, at, bytes) & ((INT64_C(1) << (8 * bytes)) - 1);
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* The table at `at`; none for 0. */
static neap_flat_table open_table(neap_flat *flat, int64_t at) {
  const neap_flat_table none = {0};
  neap_flat_table table = {.at = at};
  if (flat->status != NEAP_OK || at == 0) return none;
  if (!is_inside(flat, at, 4)) {
    fail_at(flat, "a table", at);
    return none;
  }
  /* The vtable: its own size, the table's, and an offset for each field. */
  table.vtable = at - number_at(flat, at, 4);
  int64_t size = is_inside(flat, table.vtable, 4) ? unsigned_at(flat, table.vtable, 2) : 0;
  if (size < 4 || !is_inside(flat, table.vtable, size)) {
    fail_at(flat, "the fields of a table", table.vtable);
    return none;
  }
  table.n_field = (int)(size - 4) / 2;
  table.n_bytes = (int)unsigned_at(flat, table.vtable + 2, 2);
  if (table.n_bytes < 4 || !is_inside(flat, at, table.n_bytes)) {
    fail_at(flat, "a table that does not end", at);
    return none;
  }
  return table;
}

/* Where field k is; 0 where it is missing. */
static int64_t place_of(neap_flat *flat, const neap_flat_table *table, int k, int bytes) {
  if (flat->status != NEAP_OK || table->at == 0 || k >= table->n_field) return 0;
  int64_t offset = unsigned_at(flat, table->vtable + 4 + 2 * k, 2);
  if (offset == 0) return 0;
  if (offset < 4 || offset + bytes > table->n_bytes) {
    fail_at(flat, "a field beyond its table", table->at + offset);
    return 0;
  }
  return table->at + offset;
}

/* Where the offset that stands at `at` leads; 0 for none. */
static int64_t follow(neap_flat *flat, int64_t at) {
  if (at == 0) return 0;
  int64_t to = at + unsigned_at(flat, at, 4);
  if (to == at || !is_inside(flat, to, 4)) {
    fail_at(flat, "an offset that leads nowhere", at);
    return 0;
  }
  return to;
}

neap_flat_table neap_flat_root(neap_flat *flat, const char *identifier, const char *what) {
  if (flat->n_bytes < 8 || memcmp(flat->data + 4, identifier, 4) != 0) {
    neap_flat_fail(flat, "no %s: bytes 4 to 7 are not \"%s\"", what, identifier);
    return (neap_flat_table){0};
  }
  return open_table(flat, unsigned_at(flat, 0, 4));
}

neap_flat_table neap_flat_child(neap_flat *flat, const neap_flat_table *table, int k) {
  return open_table(flat, follow(flat, place_of(flat, table, k, 4)));
}

/* ---- fields ---------------------------------------------------------------------------------- */

int64_t neap_flat_integer(neap_flat *flat, const neap_flat_table *table, int k, int bytes,
                          int64_t missing) {
  int64_t at = place_of(flat, table, k, bytes);
  return at == 0 ? missing : number_at(flat, at, bytes);
}

static float float_at(const neap_flat *flat, int64_t at) {
  uint32_t bits = (uint32_t)number_at(flat, at, 4);
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

double neap_flat_float(neap_flat *flat, const neap_flat_table *table, int k, double missing) {
  int64_t at = place_of(flat, table, k, 4);
  return at == 0 ? missing : (double)float_at(flat, at);
}

neap_flat_vector neap_flat_list(neap_flat *flat, const neap_flat_table *table, int k,
                                int elem_bytes) {
  const neap_flat_vector none = {0};
  int64_t at = follow(flat, place_of(flat, table, k, 4));
  if (at == 0) return none;
  int64_t n = unsigned_at(flat, at, 4);
  /* n is of 32 bits and an element of few bytes: the product fits. */
  if (n > INT32_MAX || !is_inside(flat, at + 4, n * elem_bytes)) {
    fail_at(flat, "a list that does not end", at);
    return none;
  }
  if (!neap_flat_spend(flat, n * elem_bytes)) return none;
  return (neap_flat_vector){at + 4, (int)n};
}

/* The byte behind a text is 0, as the format asks for, so that it can be used in its place. */
const char *neap_flat_text(neap_flat *flat, const neap_flat_table *table, int k) {
  neap_flat_vector list = neap_flat_list(flat, table, k, 1);
  if (list.at == 0) return "";
  if (!is_inside(flat, list.at, (int64_t)list.n + 1) || flat->data[list.at + list.n] != 0) {
    fail_at(flat, "a text that does not end", list.at);
    return "";
  }
  return (const char *)flat->data + list.at;
}

/* ---- elements -------------------------------------------------------------------------------- */

int64_t neap_flat_integer_at(const neap_flat *flat, neap_flat_vector list, int i, int bytes) {
  NEAP_ASSERT(i >= 0 && i < list.n, "element %d is one of %d", i, list.n);
  return number_at(flat, list.at + (int64_t)i * bytes, bytes);
}

float neap_flat_float_at(const neap_flat *flat, neap_flat_vector list, int i) {
  NEAP_ASSERT(i >= 0 && i < list.n, "element %d is one of %d", i, list.n);
  return float_at(flat, list.at + (int64_t)i * 4);
}

neap_flat_table neap_flat_table_at(neap_flat *flat, neap_flat_vector list, int i) {
  NEAP_ASSERT(flat->status != NEAP_OK || (i >= 0 && i < list.n), "element %d is one of %d", i,
              list.n);
  return open_table(flat, flat->status == NEAP_OK ? follow(flat, list.at + (int64_t)i * 4) : 0);
}
