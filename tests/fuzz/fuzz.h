/* fuzz.h: what every fuzz target has. A target is a file tests/fuzz/fuzz_NAME.c with two functions:
 * one tries bytes, and must not crash, leak or break a promise whatever they are; the other gives
 * the bytes to begin with, which are valid. Linked with libFuzzer it hunts (make fuzz SECONDS=60);
 * linked with replay.c it is a test of make test: all seeds, files in tests/fuzz/found that once
 * broke something, and some thousand random changes of the seeds.
 */
#ifndef NEAP_TESTS_FUZZ_H
#define NEAP_TESTS_FUZZ_H

#include "base/base.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
/* Appends seed k to *out; false: there are no more. */
bool fuzz_seed(int k, neap_buffer *out);

/* A promise that holds for all bytes. */
#define PROMISE(condition)                                                            \
  do {                                                                                \
    if (!(condition)) {                                                               \
      fprintf(stderr, "%s:%d: broken promise: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                                        \
    }                                                                                 \
  } while (0)

/* A call ends with OK, or with an error that says something. */
#define PROMISE_SAID(status, error) \
  PROMISE((status) == NEAP_OK || ((error).code == (status) && (error).message[0] != '\0'))

/* Bytes as decisions, one after the other; 0 when there are no more. */
typedef struct fuzz_bytes {
  const uint8_t *data;
  size_t n, at;
} fuzz_bytes;

static inline int fuzz_byte(fuzz_bytes *b) { return b->at < b->n ? b->data[b->at++] : 0; }
static inline int fuzz_below(fuzz_bytes *b, int n) { return fuzz_byte(b) % n; }

/* The bytes as a text of their own, which neap_free ends. */
static inline char *fuzz_text(const uint8_t *data, size_t n) {
  char *text = neap_alloc(n + 1);
  if (text == NULL) abort();
  if (n > 0) memcpy(text, data, n);
  text[n] = '\0';
  return text;
}

#endif
