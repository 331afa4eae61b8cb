/* folder.c: what is in a folder. */
#include "io/io_int.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Whether a name in the folder is that of a folder, links followed. */
static bool is_folder(DIR *folder, const char *name) {
  struct stat info;
  return fstatat(dirfd(folder), name, &info, 0) == 0 && S_ISDIR(info.st_mode);
}

static int compare_names(const void *a, const void *b) {
  return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The names one by one, "/" behind those of folders; *names is a list of n of META memory, also on
 * failure. */
static neap_status read_names(DIR *folder, const char *path, char ***names, int *n,
                              neap_error *error) {
  int cap = 0;
  errno = 0;
  for (const struct dirent *entry; (entry = readdir(folder)) != NULL; errno = 0) {
    /* Hidden ones, "." and ".." are not data. */
    if (entry->d_name[0] == '.') continue;
    size_t length = strlen(entry->d_name);
    char *name = neap_alloc(length + 2);
    if (name == NULL || !neap_list_grow(names, &cap, *n + 1, sizeof **names)) {
      neap_free(name);
      return neap_fail_memory(error, length + 2, "a list of names");
    }
    memcpy(name, entry->d_name, length + 1);
    if (is_folder(folder, name)) memcpy(name + length, "/", 2);
    (*names)[(*n)++] = name;
  }
  return errno == 0 ? NEAP_OK
                    : neap_fail(error, NEAP_IO, "%s: cannot be read: %s", path, strerror(errno));
}

neap_status neap_io_read_folder(const char *path, neap_io_bytes *out, neap_error *error) {
  DIR *folder = opendir(path);
  if (folder == NULL)
    return neap_fail(error, NEAP_IO, "%s: is no folder that can be read: %s", path,
                     strerror(errno));
  char **names = NULL;
  int n = 0;
  neap_status status = read_names(folder, path, &names, &n, error);
  closedir(folder);
  /* Sorted, since the system gives them in any order. */
  neap_buffer text = {0};
  if (status == NEAP_OK && n > 0) qsort(names, (size_t)n, sizeof *names, compare_names);
  for (int i = 0; i < n; i++) {
    neap_buffer_add_n(&text, names[i], strlen(names[i]) + 1);
    neap_free(names[i]);
  }
  neap_free(names);
  if (status == NEAP_OK && text.failed) status = neap_fail_memory(error, text.n, "a list of names");
  if (status == NEAP_OK)
    *out = (neap_io_bytes){text.text, text.n};
  else
    neap_buffer_fini(&text);
  return status;
}
