/* folder.h: a folder for the files of one test program, made at its start and removed at its
 * end. */
#ifndef NEAP_TESTS_FOLDER_H
#define NEAP_TESTS_FOLDER_H

#include "check.h"

#include <dirent.h>
#include <stdlib.h>
#include <unistd.h>

static char folder[64]; /* of this run; emptied at the end */

/* A path in the folder; good until the 8th next call. */
static inline const char *in_folder(const char *name) {
  static char path[8][400];
  static int turn;
  turn = (turn + 1) % 8;
  snprintf(path[turn], sizeof path[turn], "%s/%s", folder, name);
  return path[turn];
}

static inline const char *put_file(const char *name, const void *bytes, size_t n) {
  const char *path = in_folder(name);
  /* some file systems force a file that is written over to the disk; a new one they do not */
  unlink(path);
  FILE *file = fopen(path, "wb");
  CHECK(file != NULL && fwrite(bytes, 1, n, file) == n);
  if (file != NULL) fclose(file);
  return path;
}

static inline bool there(const char *path) { return access(path, R_OK) == 0; }

static inline int n_files(void) {
  int n = 0;
  DIR *dir = opendir(folder);
  while (dir != NULL && readdir(dir) != NULL) n++;
  if (dir != NULL) closedir(dir);
  return n - 2;
}

static inline bool make_folder(void) {
  snprintf(folder, sizeof folder, "/tmp/neap-test-XXXXXX");
  return mkdtemp(folder) != NULL;
}

static inline void empty_folder(void) {
  DIR *dir = opendir(folder);
  for (struct dirent *entry = NULL; dir != NULL && (entry = readdir(dir)) != NULL;)
    if (entry->d_name[0] != '.') unlink(in_folder(entry->d_name));
  if (dir != NULL) closedir(dir);
  rmdir(folder);
}

#endif
