/* buffer.c: text that grows. A refused allocation is remembered, so that callers check once, at the
 * end. */
#include "base/base.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Room for `more` characters and the zero after them; false when memory is or was refused.
 * Doubling, so that n characters added one by one are copied O(n) times in all. */
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

/* Backwards from `end`; returns where they begin. */
static char *digits_of(unsigned long long value, char *end) {
  char *at = end;
  do *--at = (char)('0' + value % 10);
  while ((value /= 10) > 0);
  return at;
}

size_t neap_integer_text(long long value, char text[NEAP_INTEGER_TEXT]) {
  char digits[NEAP_INTEGER_TEXT],
    *at = digits_of(value < 0 ? 0 - (unsigned long long)value : (unsigned long long)value,
                    digits + sizeof digits);
  if (value < 0) *--at = '-';
  size_t n = (size_t)(digits + sizeof digits - at);
  memcpy(text, at, n);
  return n;
}

/* Copies n characters, which need not end with a zero. */
void neap_buffer_add_n(neap_buffer *buffer, const char *text, size_t n) {
  if (!reserve(buffer, n)) return;
  memcpy(buffer->text + buffer->n, text, n);
  buffer->n += n;
  buffer->text[buffer->n] = '\0';
}

static void add_signed(neap_buffer *buffer, long long value) {
  char text[NEAP_INTEGER_TEXT];
  size_t n = neap_integer_text(value, text);
  neap_buffer_add_n(buffer, text, n);
}

static void add_unsigned(neap_buffer *buffer, unsigned long long value) {
  char text[NEAP_INTEGER_TEXT], *at = digits_of(value, text + sizeof text);
  neap_buffer_add_n(buffer, at, (size_t)(text + sizeof text - at));
}

/* What is left of a format, by the library. Most pieces are short: they are formatted once, on the
 * stack. A longer one is formatted again in place, when its length is known. */
static void add_by_library(neap_buffer *buffer, const char *format, va_list args) {
  char small[256];
  va_list again;
  va_copy(again, args);
  int n = neap_format_list(small, sizeof small, format, args);
  if (n >= 0 && (size_t)n < sizeof small) {
    neap_buffer_add_n(buffer, small, (size_t)n);
  } else if (n > 0 && reserve(buffer, (size_t)n)) {
    neap_format_list(buffer->text + buffer->n, (size_t)n + 1, format, again);
    buffer->n += (size_t)n;
  }
  va_end(again);
}

/* One conversion from behind its %, without width or precision; returns how long it is, 0: none of
 * those known here. */
static size_t add_known(neap_buffer *buffer, const char *format, va_list *args) {
  /* "ll" is long long; one "l" or "z" is long or size_t, which have one size here. */
  size_t n_length = strspn(format, "lz");

  bool is_int = n_length == 0, is_long_long = n_length == 2;
  switch (format[n_length]) {
    case 'd':
      if (is_int)
        add_signed(buffer, va_arg(*args, int));
      else if (is_long_long)
        add_signed(buffer, va_arg(*args, long long));
      else
        add_signed(buffer, va_arg(*args, long));
      break;
    case 'u':
      if (is_int)
        add_unsigned(buffer, va_arg(*args, unsigned));
      else if (is_long_long)
        add_unsigned(buffer, va_arg(*args, unsigned long long));
      else
        add_unsigned(buffer, va_arg(*args, size_t));
      break;
    case 's': {
      if (!is_int) return 0;
      const char *text = va_arg(*args, const char *);
      if (text == NULL) text = "(null)"; /* as the library writes it */
      neap_buffer_add_n(buffer, text, strlen(text));
      break;
    }
    case '%':
      if (!is_int) return 0;
      neap_buffer_add_n(buffer, "%", 1);
      break;
    default: return 0;
  }
  return n_length + 1;
}

/* Texts and integers, of which keys and plans are made, are written here: a library that has
 * registered a conversion of its own (libquadmath has) makes every printf of the process read its
 * format twice. */
void neap_buffer_add(neap_buffer *buffer, const char *format, ...) {
  va_list args;
  va_start(args, format);
  neap_buffer_add_n(buffer, "", 0); /* a text, even when nothing is added */
  while (*format != '\0') {
    /* Plain text up to the next conversion; the first that is not known here leaves the rest to the
     * library. */
    size_t plain = strcspn(format, "%");
    neap_buffer_add_n(buffer, format, plain);
    format += plain;
    if (*format == '\0') break;
    size_t known = add_known(buffer, format + 1, &args);
    if (known == 0) {
      add_by_library(buffer, format, args);
      break;
    }
    format += 1 + known;
  }
  va_end(args);
}

/* n / 10^k of at most six digits, the last of which is not 0, as %g writes it. */
static void add_decimal(neap_buffer *buffer, long long n, int k) {
  char digits[NEAP_INTEGER_TEXT];
  /* Digits and the power of ten say where the point stands. */
  int n_digit = (int)neap_integer_text(n, digits), exponent = n_digit - 1 - k;
  int n_whole = exponent < -4 ? 1 : NEAP_MAX(n_digit - k, 0); /* digits before the point */
  neap_buffer_add_n(buffer, n_whole > 0 ? digits : "0", (size_t)NEAP_MAX(n_whole, 1));
  if (n_whole < n_digit) neap_buffer_add_n(buffer, ".", 1);
  /* Zeros behind the point, where the number is written without an exponent. */
  if (exponent >= -4)
    for (int i = exponent; i < -1; i++) neap_buffer_add_n(buffer, "0", 1);
  neap_buffer_add_n(buffer, digits + n_whole, (size_t)(n_digit - n_whole));
  if (exponent < -4) neap_buffer_add(buffer, exponent > -10 ? "e-0%d" : "e-%d", -exponent);
}

/* Most numbers of a net have few digits: they are the nearest double of some n / 10^k, and one
 * division tells. */
void neap_buffer_add_number(neap_buffer *buffer, double x) {
  /* %g writes six digits: a number below 10^6 that is n / 10^k is written by that n, and reads back
   * as the same quotient. */
  double most = 1e6, scale = 1;
  if (fabs(x) < most && x != 0) {
    for (int k = 0; k <= 15; k++, scale *= 10) {
      double n = rint(fabs(x) * scale);
      if (n >= most || n / scale != fabs(x)) continue;
      if (x < 0) neap_buffer_add_n(buffer, "-", 1);
      add_decimal(buffer, (long long)n, k);
      return;
    }
  }

  /* Else as many digits as reading it back takes: 17 do for every double. */
  char text[40];
  int digits = 6;
  do neap_format(text, sizeof text, "%.*g", digits, x);
  while (digits++ < 17 && neap_number_read(text, NULL) != x);
  neap_buffer_add(buffer, "%s", text);
}

/* Leaves the buffer empty and usable again. */
void neap_buffer_fini(neap_buffer *buffer) {
  neap_free(buffer->text);
  memset(buffer, 0, sizeof *buffer);
}

/* One JSON string: messages hold quotes, and a file name may hold anything. Escapes what RFC 8259,
 * section 7, demands and no more; bytes above 127 go out as they are. */
void neap_json_text(neap_buffer *out, const char *text) {
  neap_buffer_add(out, "\"");
  for (; *text != '\0'; text++) {
    /* Quotes, backslashes and control characters are escaped. */
    if (*text == '"' || *text == '\\')
      neap_buffer_add(out, "\\%c", *text);
    else if ((unsigned char)*text < 32)
      neap_buffer_add(out, "\\u%04x", (unsigned)*text);
    else
      neap_buffer_add_n(out, text, 1);
  }
  neap_buffer_add(out, "\"");
}
