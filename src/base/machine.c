/* machine.c: how much memory there is left to take: what the kernel says is available, cut by the
 * limits of the control groups that the process is in (version 1 or 2, each up to the root) and by
 * its own address space limit (ulimit -v).
 *
 * Files that are not there limit nothing. Pages of files that a group can drop count as free, as in
 * MemAvailable. */
#include "base/base.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { PATH_ROOM = 1024 };

/* The number in the line that begins with `name`, or in the first line when it is "". False: no
 * such file, line or number ("max"). */
static bool read_number(const char *path, const char *name, uint64_t *out) {
  FILE *file = fopen(path, "r");
  if (file == NULL) return false;
  char line[256];
  size_t n = strlen(name);
  while (fgets(line, sizeof line, file) != NULL) {
    const char *at = line + n;
    if (strncmp(line, name, n) != 0 || (n > 0 && *at != ' ' && *at != ':')) continue;
    /* The line is found: what follows is a number, or the file has none to give. */
    at += strspn(at, ": \t");
    char *end;
    *out = strtoull(at, &end, 10);
    fclose(file);
    return end != at;
  }
  fclose(file);
  return false;
}

/* What a kind of control group calls its files. */
typedef struct group_files {
  const char *line, *folder, *limit, *used, *droppable;
} group_files;

static const group_files groups[] = {
  {"0::", "sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"},
  {"0::", "sys/fs/cgroup/unified", "memory.max", "memory.current", "inactive_file"},
  {":memory:", "sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes",
   "total_inactive_file"},
};

/* The group's path, "/a/b"; "" when the process is in none of that kind. */
static void find_group(const char *root, const char *mark, char path[PATH_ROOM]) {
  char line[PATH_ROOM];
  snprintf(line, sizeof line, "%s/proc/self/cgroup", root);
  FILE *file = fopen(line, "r");
  path[0] = '\0';
  if (file == NULL) return;
  while (path[0] == '\0' && fgets(line, sizeof line, file) != NULL) {
    /* "0::" of version 2 begins its line; ":memory:" of version 1 has a number before it. */
    const char *at = strstr(line, mark);
    if (at == NULL || (mark[0] == '0' && at != line)) continue;
    snprintf(path, PATH_ROOM, "%s", at + strlen(mark));
    path[strcspn(path, "\n")] = '\0';
  }
  fclose(file);
}

/* What one folder of a group leaves. */
static uint64_t left_in(const char *root, const group_files *g, const char *path) {
  char name[3 * PATH_ROOM];
  uint64_t limit, used = 0, droppable = 0;
  snprintf(name, sizeof name, "%s/%s%s/%s", root, g->folder, path, g->limit);
  if (!read_number(name, "", &limit)) return UINT64_MAX;
  /* What is used, without what the kernel would drop to make room. */
  snprintf(name, sizeof name, "%s/%s%s/%s", root, g->folder, path, g->used);
  (void)read_number(name, "", &used);
  snprintf(name, sizeof name, "%s/%s%s/memory.stat", root, g->folder, path);
  (void)read_number(name, g->droppable, &droppable);
  used -= NEAP_MIN(used, droppable);
  return limit > used ? limit - used : 0;
}

/* The least that the group and those around it leave. */
static uint64_t left_in_groups(const char *root, const group_files *g) {
  char path[PATH_ROOM];
  find_group(root, g->line, path);
  uint64_t least = left_in(root, g, "");
  while (path[0] != '\0') {
    least = NEAP_MIN(least, left_in(root, g, path));
    /* On to the group around it; a path that begins otherwise is nobody's. */
    char *slash = path[0] == '/' ? strrchr(path, '/') : path;
    *slash = '\0';
  }
  return least;
}

static uint64_t left_of_address_space(void) {
  struct rlimit limit;
  uint64_t used_kib = 0;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return UINT64_MAX;
  (void)read_number("/proc/self/status", "VmSize", &used_kib);
  return limit.rlim_cur > used_kib * 1024 ? limit.rlim_cur - used_kib * 1024 : 0;
}

size_t neap_memory_available_below(const char *root) {
  char path[PATH_ROOM];
  uint64_t kib;
  snprintf(path, sizeof path, "%s/proc/meminfo", root);
  uint64_t least = read_number(path, "MemAvailable", &kib) ? kib * 1024 : UINT64_MAX;
  /* The least of all limits. The address space is this process's, whatever root a test gives. */
  for (size_t g = 0; g < NEAP_COUNT(groups); g++)
    least = NEAP_MIN(least, left_in_groups(root, &groups[g]));
  if (root[0] == '\0') least = NEAP_MIN(least, left_of_address_space());
  return least == UINT64_MAX ? 0 : (size_t)least;
}

size_t neap_memory_available(void) { return neap_memory_available_below(""); }
