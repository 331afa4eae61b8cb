/* comma.h: a locale with a decimal comma, as programs around us set it in many countries. */
#ifndef NEAP_TESTS_COMMA_H
#define NEAP_TESTS_COMMA_H

#include "check.h"

#include <locale.h>
#include <stdlib.h>
#include <unistd.h>

static char comma_directory[] = "/tmp/neap_test_XXXXXX"; /* once: its name is filled in */

/* Made when the system has none. False: it can't be made, and numbers have points as before. */
static inline bool use_comma(void) {
  if (setlocale(LC_NUMERIC, "de_DE.UTF-8") != NULL) return true;
  CHECK(mkdtemp(comma_directory) != NULL);
  char command[200];
  snprintf(command, sizeof command,
           "localedef --no-archive -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1",
           comma_directory);
  if (system(command) != 0) return false;
  setenv("LOCPATH", comma_directory, 1);
  return setlocale(LC_NUMERIC, "de_DE.UTF-8") != NULL;
}

/* Points again, and nothing is left of what was made. */
static inline void end_comma(void) {
  setlocale(LC_NUMERIC, "C");
  char command[64];
  snprintf(command, sizeof command, "rm -rf %s", comma_directory);
  CHECK_EQ(system(command), 0);
}

#endif
