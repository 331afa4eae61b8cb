/* error.c: the status texts and the error record. The record has fixed room, so that reporting
 * never allocates.
 *
 * INVARIANT: a record holds the first failure, with its code and message; code OK means that
 * nothing has failed. NULL in place of a record is allowed everywhere: then only the code counts.
 */
#include "base/base.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *neap_status_text(neap_status status) {
  static const char *const text[] = {
#define X(symbol, text) text,
    NEAP_STATUS_MAP(X)
#undef X
  };
  return (unsigned)status < (unsigned)NEAP_COUNT(text) ? text[status] : "unknown";
}

/* The first failure is kept: what fails after it is mostly its consequence. A message too long for
 * the record is cut. */
neap_status neap_fail_list(neap_error *error, neap_status code, const char *format, va_list args) {
  if (error == NULL) return code;
  if (error->code != NEAP_OK) return error->code;
  error->code = code;
  neap_format_list(error->message, sizeof error->message, format, args);
  return code;
}

neap_status neap_fail(neap_error *error, neap_status code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const neap_status status = neap_fail_list(error, code, format, args);
  va_end(args);
  return status;
}

neap_status neap_fail_memory(neap_error *error, size_t bytes, const char *what) {
  char text[24];
  if (error != NULL && error->code == NEAP_OK) error->request_bytes = (int64_t)bytes;
  return neap_fail(error, NEAP_MEMORY, "%s for %s was refused",
                   neap_bytes_text((double)bytes, text), what);
}

void neap_refused_fixed(neap_error *refused, const char *name, size_t bytes) {
  if (bytes == 0 || refused->n_fixed == NEAP_MOST_NAMED) return;
  refused->fixed[refused->n_fixed++] = (neap_named_bytes){name, (int64_t)bytes};
}

void neap_refused_blob(neap_error *refused, const char *name, size_t bytes) {
  /* Interned, since the record outlives what the name is of. Refused memory leaves the blob out: a
   * list without it is better than none. */
  if (name != NULL) name = neap_intern(name);
  if (name == NULL) return;

  int at = refused->n_blob;
  if (at == NEAP_MOST_NAMED && refused->blobs[at - 1].bytes >= (int64_t)bytes) return;

  /* At the end, or in the place of the smallest; then up to where it belongs by size. */
  if (at < NEAP_MOST_NAMED)
    refused->n_blob++;
  else
    at--;
  for (; at > 0 && refused->blobs[at - 1].bytes < (int64_t)bytes; at--)
    refused->blobs[at] = refused->blobs[at - 1];
  refused->blobs[at] = (neap_live_bytes){.name = name, .bytes = (int64_t)bytes};
}

/* The least as the very number to give: what a message rounds is often too little. */
neap_status neap_fail_budget(neap_error *error, neap_error *refused, const char *format, ...) {
  va_list args;
  va_start(args, format);
  neap_format_list(refused->message, sizeof refused->message, format, args);
  va_end(args);
  refused->code = NEAP_BUDGET;

  /* What the fixed parts leave of the limit; none, where they exceed it. */
  refused->left_bytes = refused->limit_bytes;
  for (int i = 0; i < refused->n_fixed; i++) refused->left_bytes -= refused->fixed[i].bytes;
  refused->left_bytes = NEAP_MAX(refused->left_bytes, 0);

  /* The largest blob is what is spoken of, unless the caller has named one. */
  if (refused->blob[0] == '\0' && refused->n_blob > 0)
    snprintf(refused->blob, sizeof refused->blob, "%s", refused->blobs[0].name);
  if (refused->hint[0] == '\0' && refused->least_bytes > 0)
    neap_hint(refused, "%s = %lld would do", refused->bank != NULL ? "bytes" : refused->limit,
              (long long)refused->least_bytes);
  if (error == NULL) return NEAP_BUDGET;
  if (error->code == NEAP_OK) *error = *refused;
  return error->code;
}

/* Without a record the code is not known here; INTERNAL is at least a failure. */
neap_status neap_hint(neap_error *error, const char *format, ...) {
  if (error == NULL) return NEAP_INTERNAL;
  va_list args;
  va_start(args, format);
  neap_format_list(error->hint, sizeof error->hint, format, args);
  va_end(args);
  return error->code;
}

/* For another attempt with the same record. */
void neap_error_clear(neap_error *error) {
  if (error != NULL) memset(error, 0, sizeof *error);
}

/* What messages count from. */
static atomic_int first_number;

void neap_count_from(int first) { atomic_store(&first_number, first); }
int neap_first_number(void) { return atomic_load(&first_number); }

/* "1.5 MiB": `digits` behind the point from 1 KiB on, powers of 1024. Returns `text`. */
static const char *print_bytes(double bytes, int digits, char text[24]) {
  static const char *const unit[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  int u = 0;
  while (u < 4 && bytes >= 1024) {
    bytes /= 1024;
    u++;
  }
  neap_format(text, 24, "%.*f %s", u == 0 ? 0 : digits, bytes, unit[u]);
  return text;
}

const char *neap_bytes_text(double bytes, char text[24]) { return print_bytes(bytes, 1, text); }

const char *neap_bytes_text_beside(double bytes, double other, char text[24]) {
  char beside[24];
  if (bytes == other) return print_bytes(bytes, 1, text);

  /* As few digits as tell the two apart: "6.0 MiB exceeds 6.0 MiB" would say nothing. */
  for (int digits = 1; digits <= 3; digits++) {
    print_bytes(bytes, digits, text);
    if (strcmp(text, print_bytes(other, digits, beside)) != 0) return text;
  }
  snprintf(text, 24, "%.0f B", bytes);
  return text;
}

bool neap_bytes_parse(const char *text, double *bytes) {
  static const struct {
    const char *unit;
    double factor;
  } units[] = {{"", 1},         {"B", 1},        {"kB", 1e3},     {"KB", 1e3},
               {"MB", 1e6},     {"GB", 1e9},     {"KiB", 0x1p10}, {"MiB", 0x1p20},
               {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"TB", 1e12}};
  char *end;
  double x = neap_number_read(text, &end);

  /* A number first; NaN fails too. */
  if (end == text || !(x >= 0)) return false;
  while (*end == ' ') end++;

  /* Then blanks, and a unit to the end of the text. */
  for (int i = 0; i < NEAP_COUNT(units); i++)
    if (strcmp(end, units[i].unit) == 0) {
      *bytes = x * units[i].factor;
      return *bytes < 0x1p62;
    }
  return false;
}
