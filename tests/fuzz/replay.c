/* replay.c: a fuzz target (fuzz.h) as a test: its seeds, what once broke it, and random changes of
 * both.
 *
 *   fuzz_net                  all tests; NEAP_FUZZ_CHANGES=10000 tries so many changes
 *   fuzz_net FILE ..          these inputs alone
 *   fuzz_net --seeds FOLDER   writes the seeds there, one file each: what a hunt begins with
 */
#include "fuzz.h"

#include "../c/check.h"

#include <dirent.h>

enum { MOST_SEEDS = 400 };

static const char *target_name;
static neap_buffer seed[MOST_SEEDS + 1];
static int n_seed;

static void make_seeds(void) {
  while (fuzz_seed(n_seed, &seed[n_seed])) {
    if (seed[n_seed].failed || n_seed == MOST_SEEDS) abort();
    n_seed++;
  }
}

static void free_seeds(void) {
  for (int k = 0; k < n_seed; k++) neap_buffer_fini(&seed[k]);
}

static int write_seeds(const char *folder) {
  for (int k = 0; k < n_seed; k++) {
    char path[500];
    snprintf(path, sizeof path, "%s/seed%d", folder, k);
    FILE *file = fopen(path, "wb");
    if (file == NULL || fwrite(seed[k].text, 1, seed[k].n, file) != seed[k].n ||
        fclose(file) != 0) {
      perror(path);
      return 2;
    }
  }
  return 0;
}

static bool try_file(const char *path) {
  FILE *file = fopen(path, "rb");
  if (file == NULL) return false;
  static uint8_t data[1 << 20];
  size_t n = fread(data, 1, sizeof data, file);
  fclose(file);
  LLVMFuzzerTestOneInput(data, n);
  return true;
}

TEST(nothing_and_the_seeds) {
  LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
  for (int k = 0; k < n_seed; k++) LLVMFuzzerTestOneInput((const uint8_t *)seed[k].text, seed[k].n);
  CHECK(n_seed > 0);
}

TEST(what_once_broke_it) {
  char folder[300], path[600];
  snprintf(folder, sizeof folder, "tests/fuzz/found/%s", target_name);
  DIR *list = opendir(folder);
  if (list == NULL) return; /* nothing yet */
  for (struct dirent *entry = readdir(list); entry != NULL; entry = readdir(list)) {
    snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (entry->d_name[0] != '.') CHECK(try_file(path));
  }
  closedir(list);
}

/* ---- changes --------------------------------------------------------------------------------- */

static uint32_t drawn;
static size_t below(size_t n) {
  uint32_t word[4];
  neap_philox(2024, 5, 0, drawn++, word);
  return n == 0 ? 0 : word[0] % n;
}

static const char *const tokens[] = {"0",
                                     "-1",
                                     "1",
                                     "4611686018427387904",
                                     "-9223372036854775808",
                                     "2147483648",
                                     "1e308",
                                     "nan",
                                     "(",
                                     "()",
                                     "\n",
                                     " ",
                                     "{",
                                     "}",
                                     "\"",
                                     ",",
                                     "=",
                                     "\xff",
                                     "\0\0\0\0"};

/* One change in place; the text has room for `most` bytes. */
static size_t change(uint8_t *data, size_t n, size_t most) {
  size_t at = below(n + 1), from = below(n), length = below(1 + NEAP_MIN(n - from, 40));
  switch (below(5)) {
    case 0: /* another byte */
      if (at < n) data[at] = (uint8_t)below(256);
      return n;
    case 1: /* one bit */
      if (at < n) data[at] ^= (uint8_t)(1 << below(8));
      return n;
    case 2: /* a part goes */
      memmove(data + from, data + from + length, n - from - length);
      return n - length;
    case 3: { /* a part comes again */
      uint8_t part[40];
      if (n + length > most) return n;
      memcpy(part, data + from, length);
      memmove(data + at + length, data + at, n - at);
      memcpy(data + at, part, length);
      return n + length;
    }
    default: { /* a token */
      const char *token = tokens[below(NEAP_COUNT(tokens))];
      length = strlen(token);
      if (n + length > most) return n;
      memmove(data + at + length, data + at, n - at);
      memcpy(data + at, token, length);
      return n + length;
    }
  }
}

TEST(changes_of_the_seeds) {
  const char *wanted = getenv("NEAP_FUZZ_CHANGES");
  long n_change = wanted != NULL ? atol(wanted) : 1000;
  for (long i = 0; i < n_change; i++) {
    const neap_buffer *from = &seed[below((size_t)n_seed)];
    size_t most = from->n + 200, n = from->n;
    uint8_t *data = malloc(most);
    if (data == NULL) abort();
    if (n > 0) memcpy(data, from->text, n);
    for (size_t times = 1 + below(4); times > 0; times--) n = change(data, n, most);
    uint8_t *exact = malloc(n + (n == 0)); /* so that a read past its end shows */
    if (exact == NULL) abort();
    memcpy(exact, data, n);
    LLVMFuzzerTestOneInput(exact, n);
    free(exact);
    free(data);
  }
}

int main(int argc, char **argv) {
  const char *slash = strrchr(argv[0], '/');
  target_name = slash != NULL ? slash + 1 : argv[0];
  int failed = 0;
  if (argc > 1 && strchr(argv[1], '/') != NULL) {
    for (int i = 1; i < argc; i++) failed += !try_file(argv[i]);
    return failed > 0;
  }
  make_seeds();
  if (argc == 3 && strcmp(argv[1], "--seeds") == 0)
    failed = write_seeds(argv[2]);
  else
    failed =
      RUN(argc, argv, T(nothing_and_the_seeds), T(what_once_broke_it), T(changes_of_the_seeds));
  free_seeds();
  return failed;
}
