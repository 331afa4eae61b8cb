/* number.c: numbers in texts as C writes them, whatever locale the program around us has set: in
 * many countries 0.5 is printed "0,5", which is no number of a net, a formula, a plan or JSON.
 *
 * The calling thread has the locale "C" for the length of one call; other threads, and what the
 * program prints itself, see nothing of it.
 *
 * INVARIANT: a text that was printed under one locale is read back under any other.
 */
#include "base/base.h"

#include <locale.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static locale_t plain; /* lives as long as the process */

static void make_plain(void) { plain = newlocale(LC_ALL_MASK, "C", (locale_t)0); }

/* Gives the thread the locale "C"; returns the one it had. Where memory was refused there is none,
 * and the thread keeps its own: 0 says that nothing is to change. */
static locale_t enter_plain(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, make_plain);
  return uselocale(plain);
}

double neap_number_read(const char *text, char **end) {
  const locale_t before = enter_plain();
  const double x = strtod(text, end);
  uselocale(before);
  return x;
}

int neap_format_list(char *text, size_t room, const char *format, va_list args) {
  const locale_t before = enter_plain();
  const int n = vsnprintf(text, room, format, args);
  uselocale(before);
  return n;
}

int neap_format(char *text, size_t room, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const int n = neap_format_list(text, room, format, args);
  va_end(args);
  return n;
}
