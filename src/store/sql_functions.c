/* sql_functions.c: what SQL can call on Neap's connections: texts are compressed and given back,
 * hashed, and ids are made.
 *
 * sqlar_compress and sqlar_uncompress do what those of the sqlite3 shell do, so that a view which
 * uses them can be read there too: a blob that zlib makes no shorter stays as it is, and is known
 * by its length.
 */
#include "store/store_int.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <zlib.h>

/* ---- texts ----------------------------------------------------------------------------------- */

unsigned char *neap_zip(const void *bytes, size_t n, size_t *n_zip) {
  uLongf room = compressBound((uLong)n);
  unsigned char *zip = neap_alloc(room);
  if (zip == NULL) return NULL;

  if (compress(zip, &room, bytes, (uLong)n) == Z_OK && room < n) {
    *n_zip = room;
    return zip;
  }
  neap_copy_bytes(zip, bytes, n); /* compressBound is never below n */
  *n_zip = n;
  return zip;
}

/* deflate's best is 1,032 to 1: what claims to be longer than that was never compressed by it. */
static bool is_possible(size_t n, size_t n_zip) { return n <= 1100 * (n_zip + 1); }

char *neap_unzip(const void *zip, size_t n_zip, int64_t n) {
  if (n < 0 || zip == NULL || !is_possible((size_t)n, n_zip)) return NULL;
  char *text = neap_alloc((size_t)n + 1);
  if (text == NULL) return NULL;

  uLongf got = (uLongf)n;
  bool is_plain = (size_t)n == n_zip;
  if (is_plain) neap_copy_bytes(text, zip, n_zip);

  /* Exactly as long as it claims: shorter is damaged too. */
  bool is_whole =
    is_plain || (uncompress((Bytef *)text, &got, zip, (uLong)n_zip) == Z_OK && got == (uLongf)n);
  if (!is_whole) {
    neap_free(text);
    return NULL;
  }
  text[n] = '\0';
  return text;
}

static void compress_blob(sqlite3_context *context, int n_arg, sqlite3_value **arg) {
  (void)n_arg;
  size_t n = (size_t)sqlite3_value_bytes(arg[0]), n_zip = 0;
  unsigned char *zip = neap_zip(sqlite3_value_blob(arg[0]), n, &n_zip);
  if (zip == NULL) {
    sqlite3_result_error_nomem(context);
    return;
  }

  sqlite3_result_blob64(context, zip, n_zip, SQLITE_TRANSIENT);
  neap_free(zip);
}

static void uncompress_blob(sqlite3_context *context, int n_arg, sqlite3_value **arg) {
  (void)n_arg;
  int64_t n = sqlite3_value_int64(arg[1]);
  char *text = neap_unzip(sqlite3_value_blob(arg[0]), (size_t)sqlite3_value_bytes(arg[0]), n);
  if (text == NULL) {
    sqlite3_result_null(context);
    return;
  }
  sqlite3_result_blob64(context, text, (sqlite3_uint64)n, SQLITE_TRANSIENT);
  neap_free(text);
}

static void hash_text(sqlite3_context *context, int n_arg, sqlite3_value **arg) {
  (void)n_arg;
  char hex[33];
  const unsigned char *text = sqlite3_value_text(arg[0]);
  size_t n = (size_t)sqlite3_value_bytes(arg[0]);
  neap_hash_text(neap_hash_bytes(text != NULL ? text : (const unsigned char *)"", n), hex);
  sqlite3_result_text(context, hex, -1, SQLITE_TRANSIENT);
}

/* ---- ids ------------------------------------------------------------------------------------- */

/* The 12 bits behind the time, of `drawn` random ones: within a millisecond each id has one more
 * than the id before, so that ids of one thread sort as they were made. A first one is small, to
 * leave 2,048 behind it; what comes after those has no order. */
static unsigned count_within(int64_t at_ms, unsigned drawn) {
  static _Thread_local int64_t last_ms = -1;
  static _Thread_local unsigned last;
  if (at_ms != last_ms)
    last = drawn & 0x7ff;
  else if (last < 0xfff)
    last++;
  last_ms = at_ms;
  return last;
}

/* RFC 9562, version 7: 48 bits of milliseconds since 1970, so that ids sort by time, then a count
 * of 12 bits and 62 random ones. */
void neap_uuid_text(int64_t at_ms, char text[37]) {
  unsigned char b[16];
  if (getentropy(b, sizeof b) != 0) { /* no source of randomness: time and counting must do */
    static _Thread_local uint64_t count;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t mixed[2] = {(uint64_t)now.tv_nsec ^ (uint64_t)(uintptr_t)&count << 20, ++count};
    neap_copy_bytes(b, mixed, sizeof mixed);
  }
  for (int i = 0; i < 6; i++) b[i] = (unsigned char)(at_ms >> (40 - 8 * i));
  unsigned count = count_within(at_ms, (unsigned)b[6] << 8 | b[7]);
  b[6] = (unsigned char)(0x70 | count >> 8);
  b[7] = (unsigned char)count;
  b[8] = (unsigned char)(0x80 | (b[8] & 0x3f));

  static const char digit[] = "0123456789abcdef";
  char *at = text;
  for (int i = 0; i < 16; i++) {
    if (i == 4 || i == 6 || i == 8 || i == 10) *at++ = '-';
    *at++ = digit[b[i] >> 4];
    *at++ = digit[b[i] & 0x0f];
  }
  *at = '\0';
}

static void make_uuid(sqlite3_context *context, int n_arg, sqlite3_value **arg) {
  (void)n_arg;
  char text[37];
  neap_uuid_text(sqlite3_value_int64(arg[0]) * 1000, text);
  sqlite3_result_text(context, text, -1, SQLITE_TRANSIENT);
}

/* ---- the connection -------------------------------------------------------------------------- */

int neap_sql_add_functions(sqlite3 *db) {
  static const struct {
    const char *name;
    int n_arg;
    int flags;
    void (*call)(sqlite3_context *, int, sqlite3_value **);
  } function[] = {
    {"sqlar_compress", 1, SQLITE_DETERMINISTIC, compress_blob},
    {"sqlar_uncompress", 2, SQLITE_DETERMINISTIC, uncompress_blob},
    {"neap_hash", 1, SQLITE_DETERMINISTIC, hash_text},
    {"neap_uuid", 1, 0, make_uuid},
  };

  /* Harmless ones, so that views and triggers may call them even where SQLite trusts no schema. */
  for (int i = 0; i < NEAP_COUNT(function); i++) {
    int rc = sqlite3_create_function_v2(db, function[i].name, function[i].n_arg,
                                        SQLITE_UTF8 | SQLITE_INNOCUOUS | function[i].flags, NULL,
                                        function[i].call, NULL, NULL, NULL);
    if (rc != SQLITE_OK) return rc;
  }
  return SQLITE_OK;
}
