/* buffer.c: text that grows. A refused allocation is remembered, so that callers check once, at the end. */
#include "base/base.h"

#include <stdio.h>
#include <string.h>

/* Room for `more` characters and the zero after them; false when memory is or was refused. Doubling, so that n
 * characters added one by one are copied O(n) times in all. */
static bool reserve(neap_buffer *buffer, size_t more) {
  if (buffer->failed) return false;
  if (buffer->n + more + 1 <= buffer->cap) return true;
  size_t cap = NEAP_MAX(2 * buffer->cap, buffer->n + more + 1);
  char *text = neap_realloc(buffer->text, NEAP_MAX(cap, 256u));
  if (text == NULL) {
    buffer->failed = true;
    return false;
  }
  buffer->text = text;
  buffer->cap = NEAP_MAX(cap, 256u);
  return true;
}

/* Copies n characters, which need not end with a zero. */
void neap_buffer_add_n(neap_buffer *buffer, const char *text, size_t n) {
  if (!reserve(buffer, n)) return;
  memcpy(buffer->text + buffer->n, text, n);
  buffer->n += n;
  buffer->text[buffer->n] = '\0';
}

/* Most pieces are short: they are formatted once, on the stack. A longer one is formatted again in place, when its
 * length is known. */
void neap_buffer_add(neap_buffer *buffer, const char *format, ...) {
  char small[256];
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int n = vsnprintf(small, sizeof small, format, args);
  va_end(args);
  if (n >= 0 && (size_t)n < sizeof small) {
    neap_buffer_add_n(buffer, small, (size_t)n);
  } else if (n > 0 && reserve(buffer, (size_t)n)) {
    vsnprintf(buffer->text + buffer->n, (size_t)n + 1, format, again);
    buffer->n += (size_t)n;
  }
  va_end(again);
}

/* Leaves the buffer empty and usable again. */
void neap_buffer_fini(neap_buffer *buffer) {
  neap_free(buffer->text);
  memset(buffer, 0, sizeof *buffer);
}
