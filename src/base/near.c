/* near.c: how far two names are apart, for "did you mean". */
#include "base/base.h"

#include <string.h>

int neap_text_distance(const char *a, const char *b) {
  int n = (int)strlen(b), row[64];
  if (n > 63 || strlen(a) > 63) return 64;
  for (int j = 0; j <= n; j++) row[j] = j;
  for (int i = 1; a[i - 1] != '\0'; i++) {
    int corner = row[0];
    row[0] = i;
    for (int j = 1; j <= n; j++) {
      int swap = corner + ((a[i - 1] | 32) != (b[j - 1] | 32));
      corner = row[j];
      row[j] = NEAP_MIN(swap, NEAP_MIN(row[j], row[j - 1]) + 1);
    }
  }
  return row[n];
}
