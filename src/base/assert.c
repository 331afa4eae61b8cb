/* assert.c: the end of a program whose own words do not hold. Nothing is tidied up: a debugger or a
 * core file shall see the state as it is. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>

/* One call of printf for all, so that what two threads say does not mix. */
void neap_assert_failed(const char *file, int line, const char *function, const char *condition,
                        const char *expected, ...) {
  char words[1024];
  va_list args;
  va_start(args, expected);
  neap_format_list(words, sizeof words, expected, args);
  va_end(args);
  fflush(stdout); /* what the program has said comes first */
  fprintf(stderr, "%s:%d: %s: an invariant does not hold\n  expected: %s\n  not so: %s\n", file,
          line, function, words, condition);
  abort();
}
