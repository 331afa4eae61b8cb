/* commit.c: the commit that a run was started from: what git's files say, without git.
 *
 * The script's repository is taken to be the one that the working directory lies in. Whether its
 * files differ only git can tell, so that this stays unknown. */
#include "store/store_int.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, MOST_PARENTS = 64 };

/* The first line of a file without its end; false: there is none. */
static bool read_line(const char *path, char *line, size_t size) {
  FILE *file = fopen(path, "r");
  if (file == NULL) return false;
  bool found = fgets(line, (int)size, file) != NULL;
  fclose(file);
  if (found) line[strcspn(line, "\r\n")] = '\0';
  return found;
}

/* Whether a text is the name of a commit: 40 or 64 hexadecimal digits. */
static bool is_commit(const char *text) {
  size_t n = 0;
  while (isxdigit((unsigned char)text[n])) n++;
  return text[n] == '\0' && (n == 40 || n == 64);
}

/* A branch that has no file of its own stands in the packed list: lines of commit and name. */
static bool find_packed(const char *git, const char *ref, char commit[NEAP_COMMIT_TEXT]) {
  char path[PATH_BYTES], line[PATH_BYTES];
  if ((size_t)snprintf(path, sizeof path, "%s/packed-refs", git) >= sizeof path) return false;
  FILE *file = fopen(path, "r");
  if (file == NULL) return false;
  bool found = false;
  while (!found && fgets(line, sizeof line, file) != NULL) {
    line[strcspn(line, "\r\n")] = '\0';
    char *name = strchr(line, ' ');
    if (name == NULL) continue;
    *name++ = '\0';
    found = strcmp(name, ref) == 0 && is_commit(line);
  }
  fclose(file);
  if (found) snprintf(commit, NEAP_COMMIT_TEXT, "%.64s", line);
  return found;
}

/* What the HEAD of a repository stands at, itself or through the branch it names. */
static bool read_head(const char *git, char commit[NEAP_COMMIT_TEXT]) {
  static const char branch[] = "ref: ";
  char path[PATH_BYTES], line[PATH_BYTES];
  if ((size_t)snprintf(path, sizeof path, "%s/HEAD", git) >= sizeof path) return false;
  if (!read_line(path, line, sizeof line)) return false;
  if (strncmp(line, branch, sizeof branch - 1) == 0) {
    char ref[PATH_BYTES];
    snprintf(ref, sizeof ref, "%s", line + sizeof branch - 1);
    if ((size_t)snprintf(path, sizeof path, "%s/%s", git, ref) >= sizeof path) return false;
    if (!read_line(path, line, sizeof line)) return find_packed(git, ref, commit);
  }
  if (!is_commit(line)) return false;
  snprintf(commit, NEAP_COMMIT_TEXT, "%.64s", line);
  return true;
}

bool neap_commit_read(char commit[NEAP_COMMIT_TEXT]) {
  char folder[PATH_BYTES], git[PATH_BYTES + 8];
  if (getcwd(folder, sizeof folder) == NULL) return false;
  /* From the working directory up to the root; each step cuts a name off. */
  for (int up = 0; up < MOST_PARENTS; up++) {
    snprintf(git, sizeof git, "%s/.git", folder);
    if (read_head(git, commit)) return true;
    char *last = strrchr(folder, '/');
    if (last == NULL || folder[0] == '\0') return false;
    *last = '\0';
  }
  return false;
}
