/* near.c: how far two names are apart, for "did you mean": insertions, deletions, substitutions and
 * swaps of neighbours (Damerau 1964, in the form that edits no letter twice), each counted once;
 * case does not matter. */
#include "base/base.h"

#include <string.h>

/* Characters of the longest name that is compared: the rows have fixed room. */
enum { MOST = 63 };

int neap_text_reach(const char *written) {
  int n = (int)strlen(written);
  return NEAP_MIN(1 + n / 3, NEAP_MAX(n / 2, 1));
}

/* O(|a| |b|); three rows of the table are enough, since a swap looks back two letters. */
int neap_text_distance(const char *a, const char *b) {
  int n = (int)strlen(b), rows[3][MOST + 1];
  if (n > MOST || strlen(a) > MOST) return MOST + 1;

  /* of a's last letter but one, last letter, this letter */
  int *before = rows[0], *above = rows[1], *row = rows[2];
  for (int j = 0; j <= n; j++) row[j] = j;

  /* row[j]: what the first i letters of a and the first j of b are apart. The three rows change
   * places, so none is copied. */
  for (int i = 1; a[i - 1] != '\0'; i++) {
    int *oldest = before;
    before = above;
    above = row;
    row = oldest;
    row[0] = i;
    for (int j = 1; j <= n; j++) {
      /* The cheapest of: both letters, one of them alone, or the last two of each swapped. */
      int x = a[i - 1] | 32, y = b[j - 1] | 32; /* small letters */
      row[j] = NEAP_MIN(above[j - 1] + (x != y), NEAP_MIN(row[j - 1], above[j]) + 1);
      if (i > 1 && j > 1 && x == (b[j - 2] | 32) && (a[i - 2] | 32) == y)
        row[j] = NEAP_MIN(row[j], before[j - 2] + 1);
    }
  }
  return row[n];
}
