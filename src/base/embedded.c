/* embedded.c: the Lua and SQL files that are part of the program, under their paths in the
 * repository. */
#include "base/base.h"
#include "embedded.h"

#include <string.h>

/* The list ends with an entry without a path, which is not counted. */
const char *neap_embedded_at(int index, size_t *n, const char **path) {
  if (index < 0 || index >= NEAP_COUNT(neap_embedded) - 1) return NULL;
  if (n != NULL) *n = neap_embedded[index].n;
  if (path != NULL) *path = neap_embedded[index].path;
  return neap_embedded[index].text;
}

/* By walking the list: there are few files. */
const char *neap_embedded_find(const char *path, size_t *n) {
  for (int i = 0; neap_embedded[i].path != NULL; i++)
    if (strcmp(neap_embedded[i].path, path) == 0) return neap_embedded_at(i, n, NULL);
  return NULL;
}
