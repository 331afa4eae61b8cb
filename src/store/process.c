/* process.c: which process writes a run, so that another one can tell whether it still lives.
 *
 * A number alone does not say: numbers are given again, and begin anew with each boot and in each
 * container. So a process is known by the boot, the space that its number is of, and its start. */
#include "store/store_int.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The first word of a file; "" without. */
static void read_word(const char *path, char *word, size_t size) {
  word[0] = '\0';
  FILE *file = fopen(path, "r");
  if (file == NULL) return;
  if (fgets(word, (int)size, file) == NULL) word[0] = '\0';
  word[strcspn(word, " \n")] = '\0';
  fclose(file);
}

/* State and start (in ticks since the boot) of a process; false: there is none. */
static bool read_stat(int64_t process_id, char *state, unsigned long long *start) {
  char path[64], line[1024];
  snprintf(path, sizeof path, "/proc/%lld/stat", (long long)process_id);
  FILE *file = fopen(path, "r");
  if (file == NULL) return false;
  bool found = fgets(line, sizeof line, file) != NULL;
  fclose(file);

  /* The name in brackets may hold anything; behind it, the state is the first word, the start the
   * 20th. */
  const char *at = found ? strrchr(line, ')') : NULL;
  if (at == NULL || at[1] != ' ') return false;
  *state = at[2];
  for (int word = 1; word < 20 && at != NULL; word++) at = strchr(at + (word == 1 ? 2 : 1), ' ');
  return at != NULL && sscanf(at, " %llu", start) == 1;
}

/* Boot, and the space of process numbers, of this process. */
static void read_space(char boot[64], char space[64]) {
  read_word("/proc/sys/kernel/random/boot_id", boot, 64);
  ssize_t n = readlink("/proc/self/ns/pid", space, 63);
  space[n > 0 ? n : 0] = '\0';
}

void neap_process_read(neap_process *process) {
  char boot[64], space[64], state;
  unsigned long long start = 0;
  if (gethostname(process->host, sizeof process->host) != 0) process->host[0] = '\0';
  process->host[sizeof process->host - 1] = '\0';
  process->id = getpid();
  read_space(boot, space);
  if (!read_stat(process->id, &state, &start)) start = 0;
  snprintf(process->key, sizeof process->key, "%s %s %llu", boot, space, start);
}

neap_process_state neap_process_look(const neap_process *other) {
  char boot[64], space[64], own_boot[64], own_space[64], host[65] = "", state;
  unsigned long long start, now;
  if (sscanf(other->key, "%63s %63s %llu", boot, space, &start) != 3) return NEAP_PROCESS_UNKNOWN;
  read_space(own_boot, own_space);
  if (strcmp(boot, own_boot) != 0) {
    /* Of this machine, before it was started again; or of another machine. */
    bool is_here = gethostname(host, sizeof host - 1) == 0 && strcmp(host, other->host) == 0;
    return is_here ? NEAP_PROCESS_GONE : NEAP_PROCESS_UNKNOWN;
  }
  if (strcmp(space, own_space) != 0) return NEAP_PROCESS_UNKNOWN;
  if (!read_stat(other->id, &state, &now)) return NEAP_PROCESS_GONE;

  /* One that nobody has waited for is a name without a process. */
  return now == start && state != 'Z' && state != 'X' ? NEAP_PROCESS_LIVES : NEAP_PROCESS_GONE;
}
