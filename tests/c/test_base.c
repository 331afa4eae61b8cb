/* test_base.c: what every room relies on: counters that add up, failures on demand, names, hashes,
 * random numbers. */
#include "check.h"

#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

TEST(memory_counters_follow_every_block) {
  neap_memory_stats before = neap_memory_read();
  char *meta = neap_alloc_zeroed(1000), *data = neap_alloc_data(12345);
  neap_memory_stats during = neap_memory_read();
  CHECK_EQ(during.held_bytes[NEAP_META_BYTES] - before.held_bytes[NEAP_META_BYTES], 1000);
  CHECK_EQ(during.held_bytes[NEAP_DATA_BYTES] - before.held_bytes[NEAP_DATA_BYTES], 12345);
  CHECK_EQ(during.n_live - before.n_live, 2);
  CHECK_EQ((uintptr_t)data % NEAP_ALIGN, 0);
  for (int i = 0; i < 1000; i++) CHECK(meta[i] == 0);
  meta = neap_realloc(meta, 3000);
  CHECK_EQ(neap_memory_read().held_bytes[NEAP_META_BYTES] - before.held_bytes[NEAP_META_BYTES],
           3000);
  neap_free(meta);
  neap_free(data);
  neap_memory_stats after = neap_memory_read();
  CHECK_EQ(after.held_bytes[NEAP_DATA_BYTES], before.held_bytes[NEAP_DATA_BYTES]);
  CHECK_EQ(after.held_bytes[NEAP_META_BYTES], before.held_bytes[NEAP_META_BYTES]);
  CHECK_EQ(after.n_live, before.n_live);
  CHECK_EQ(after.n_alloc - before.n_alloc, 3);
  CHECK(after.high_bytes[NEAP_DATA_BYTES] >= before.held_bytes[NEAP_DATA_BYTES] + 12345);
}

TEST(high_water_mark_restarts) {
  neap_free(neap_alloc_data(1 << 20));
  neap_memory_reset_high();
  neap_memory_stats stats = neap_memory_read();
  CHECK_EQ(stats.high_bytes[NEAP_DATA_BYTES], stats.held_bytes[NEAP_DATA_BYTES]);
}

TEST(the_nth_allocation_fails_once) {
  neap_memory_fail_nth(3, false);
  void *a = neap_alloc(8), *b = neap_alloc_data(8), *c = neap_alloc(8), *d = neap_alloc(8);
  CHECK(a != NULL && b != NULL && c == NULL && d != NULL);
  CHECK(neap_memory_failed());
  neap_memory_fail_nth(2, true);
  void *e = neap_alloc(8), *f = neap_alloc(8), *g = neap_alloc(8);
  CHECK(e != NULL && f == NULL && g == NULL);
  neap_memory_fail_nth(0, false);
  CHECK(!neap_memory_failed());
  neap_free(a), neap_free(b), neap_free(d), neap_free(e);
}

TEST(each_block_of_an_arena_may_be_the_nth_that_fails) {
  neap_arena arena = {0};

  /* counted where that is asked for, else only what the arena takes: one chunk */
  for (int asked = 0; asked < 2; asked++) {
    if (asked)
      neap_memory_fail_nth_block(3);
    else
      neap_memory_fail_nth(2, false);
    void *a = neap_arena_alloc(&arena, 8), *b = neap_arena_alloc(&arena, 8),
         *c = neap_arena_alloc(&arena, 8);
    CHECK(a != NULL && (b == NULL) == asked && c != NULL);
    CHECK_EQ(neap_memory_failed(), asked);
    neap_memory_fail_nth(0, false);
    neap_arena_fini(&arena);
  }
}

TEST(absurd_sizes_are_refused) {
  CHECK(neap_alloc(SIZE_MAX) == NULL);
  CHECK(neap_alloc_data(SIZE_MAX / 2 + 1) == NULL);
  neap_arena arena = {0};
  CHECK(neap_arena_alloc(&arena, SIZE_MAX) == NULL &&
        neap_arena_alloc(&arena, SIZE_MAX / 2) == NULL);
  neap_arena_fini(&arena);
  void *empty = neap_alloc(0);
  CHECK(empty != NULL);
  neap_free(empty);
}

TEST(a_failed_realloc_keeps_the_block) {
  char *block = neap_strdup("neap");
  neap_memory_fail_nth(1, false);
  CHECK(neap_realloc(block, 100) == NULL);
  neap_memory_fail_nth(0, false);
  CHECK(strcmp(block, "neap") == 0);
  neap_free(block);
}

TEST(lists_grow_and_keep_their_items) {
  int *items = NULL, cap = 0;
  for (int i = 0; i < 1000; i++) {
    CHECK(neap_list_grow(&items, &cap, i + 1, sizeof *items));
    items[i] = i * i;
  }
  for (int i = 0; i < 1000; i++) CHECK_EQ(items[i], i * i);
  neap_memory_fail_nth(1, false);
  CHECK(!neap_list_grow(&items, &cap, cap + 1, sizeof *items));
  neap_memory_fail_nth(0, false);
  CHECK_EQ(items[999], 999 * 999);
  neap_free(items);
}

TEST(arena_blocks_are_zeroed_aligned_and_apart) {
  neap_arena arena = {0};
  int64_t live = neap_memory_read().n_live;
  char *block[200];
  for (int i = 0; i < 200; i++) {
    size_t n = (size_t)(i * 37 % 500 + 1);
    block[i] = neap_arena_alloc(&arena, n);
    CHECK_EQ((uintptr_t)block[i] % 16, 0);
    for (size_t j = 0; j < n; j++) CHECK(block[i][j] == 0);
    memset(block[i], i, n);
  }
  for (int i = 0; i < 200; i++) CHECK(block[i][0] == (char)i && block[i][i * 37 % 500] == (char)i);
  CHECK(strcmp(neap_arena_strdup(&arena, "tide"), "tide") == 0);
  char *large = neap_arena_alloc(&arena, 5 << 20);
  CHECK(large != NULL && large[(5 << 20) - 1] == 0);
  neap_arena_fini(&arena);
  CHECK_EQ(neap_memory_read().n_live, live);
}

TEST(interned_names_are_one) {
  char text[] = "fc1.weight";
  const char *a = neap_intern(text);
  CHECK(a == neap_intern("fc1.weight") && a != text);
  CHECK(a == neap_intern_n("fc1.weight and more", 10));
  CHECK(a != neap_intern("fc1.weigh") && neap_intern("") != NULL);
  const char *name[3000];
  for (int i = 0; i < 3000; i++) { /* beyond the first table */
    char many[32];
    snprintf(many, sizeof many, "blob_%d", i);
    name[i] = neap_intern(many);
  }
  for (int i = 0; i < 3000; i++) {
    char many[32];
    snprintf(many, sizeof many, "blob_%d", i);
    CHECK(neap_intern(many) == name[i]);
  }
  CHECK(a == neap_intern("fc1.weight"));
}

/* A small pseudo-random sequence, the same in every run. */
static unsigned next_random(unsigned *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 8;
}

TEST(map_agrees_with_an_array_under_insertions_and_removals) {
  static char object[512];
  int expected[512];
  neap_map map = {0};
  unsigned state = 1;
  for (int i = 0; i < 512; i++) expected[i] = -1;
  for (int step = 0; step < 20000; step++) {
    int i = (int)(next_random(&state) % 512);
    if (next_random(&state) % 3 == 0) {
      neap_map_remove(&map, &object[i]);
      expected[i] = -1;
    } else {
      CHECK(neap_map_set(&map, &object[i], step));
      expected[i] = step;
    }
  }
  int n = 0;
  for (int i = 0; i < 512; i++) {
    CHECK_EQ(neap_map_get(&map, &object[i], -1), expected[i]);
    n += expected[i] >= 0;
  }
  CHECK_EQ(map.n, n);
  neap_map_fini(&map);
  CHECK_EQ(neap_map_get(&map, &object[0], -7), -7);
}

TEST(map_is_unchanged_when_memory_is_refused) {
  static char object[9];
  neap_map map = {0};
  for (int i = 0; i < 8; i++) CHECK(neap_map_set(&map, &object[i], i));
  for (int n = 1; n <= 2; n++) {
    neap_memory_fail_nth(n, false);
    CHECK(!neap_map_set(&map, &object[8], 8));
    neap_memory_fail_nth(0, false);
    for (int i = 0; i < 8; i++) CHECK_EQ(neap_map_get(&map, &object[i], -1), i);
    CHECK_EQ(neap_map_get(&map, &object[8], -1), -1);
  }
  neap_map_fini(&map);
}

TEST(hash_is_the_published_one) {
  char text[33];
  /* FNV-1a's test vectors for 128 bits: of "" (the offset basis) and of "a". */
  neap_hash_text(neap_hash_bytes("", 0), text);
  CHECK(strcmp(text, "6c62272e07bb014262b821756295c58d") == 0);
  neap_hash_text(neap_hash_bytes("a", 1), text);
  CHECK(strcmp(text, "d228cb696f1a8caf78912b704e4a8964") == 0);
}

TEST(philox_gives_the_published_words) {
  /* kat_vectors of Random123 for philox4x32-10: (counter, key) zero, all ones, and digits of pi. */
  static const struct {
    uint64_t seed, index;
    uint32_t step, stream, expected[4];
  } known[] = {
    {0, 0, 0, 0, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
    {UINT64_MAX,
     UINT64_MAX,
     UINT32_MAX,
     UINT32_MAX,
     {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
    {0x299f31d0a4093822,
     0x85a308d3243f6a88,
     0x13198a2e,
     0x03707344,
     {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (int i = 0; i < NEAP_COUNT(known); i++) {
    uint32_t out[4];
    neap_philox(known[i].seed, known[i].stream, known[i].step, known[i].index, out);
    for (int j = 0; j < 4; j++) CHECK_EQ(out[j], known[i].expected[j]);
  }
}

TEST(random_numbers_have_their_distribution) {
  double sum = 0, square = 0, normal_sum = 0, normal_square = 0;
  enum { N = 20000 };
  for (int i = 0; i < N; i++) {
    uint32_t word[4];
    float normal[2];
    neap_philox(42, 3, 1, (uint64_t)i, word);
    float u = neap_uniform_f32(word[0]);
    CHECK(u >= 0 && u < 1);
    neap_normal_f32(word[1], word[2], normal);
    sum += u, square += u * u;
    normal_sum += normal[0], normal_square += normal[1] * normal[1];
  }
  CHECK_NEAR(sum / N, 0.5, 0.01);
  CHECK_NEAR(square / N, 1.0 / 3, 0.01);
  CHECK_NEAR(normal_sum / N, 0, 0.03);
  CHECK_NEAR(normal_square / N, 1, 0.05);
  float edge[2];
  neap_normal_f32(0, 0, edge);
  CHECK(isfinite(edge[0]) && isfinite(edge[1]));
}

static void mark(void *context, int64_t begin, int64_t end) {
  _Atomic int *count = context;
  for (int64_t i = begin; i < end; i++) atomic_fetch_add(&count[i], 1);
}

static void mark_nested(void *context, int64_t begin, int64_t end) {
  _Atomic int *count = context;
  neap_parallel_for(end - begin, 1, 4, mark, count + begin);
}

TEST(parallel_for_covers_each_index_once) {
  enum { MOST = 1001 };
  static _Atomic int count[MOST];
  static const int64_t sizes[] = {0, 1, 2, 7, 64, MOST};
  for (int s = 0; s < NEAP_COUNT(sizes); s++)
    for (int threads = 1; threads <= 5; threads += 2)
      for (int64_t grain = 1; grain <= 100; grain += 33)
        for (int nested = 0; nested < 2; nested++) {
          for (int i = 0; i < MOST; i++) atomic_store(&count[i], 0);
          neap_parallel_for(sizes[s], grain, threads, nested ? mark_nested : mark, count);
          for (int i = 0; i < MOST; i++) CHECK_EQ(atomic_load(&count[i]), i < sizes[s]);
        }
}

TEST(the_deepest_error_message_wins) {
  neap_error error = {0};
  CHECK_EQ(neap_fail(&error, NEAP_SHAPE, "weight %s", "(2,3)"), NEAP_SHAPE);
  CHECK_EQ(neap_fail(&error, NEAP_GRAPH, "something above"), NEAP_SHAPE);
  CHECK(strcmp(error.message, "weight (2,3)") == 0);
  CHECK_EQ(neap_hint(&error, "transpose it"), NEAP_SHAPE);
  CHECK_EQ(neap_fail(NULL, NEAP_IO, "nobody listens"), NEAP_IO);
  CHECK(strcmp(neap_status_text(NEAP_INTERNAL), "internal") == 0);
  neap_error_clear(&error);
  CHECK_EQ(error.code, NEAP_OK);
}

/* As the library writes them, whatever is written without it. */
TEST(a_buffer_writes_as_the_library) {
  static const char *const format[] = {"%d|",  "%ld|",  "%lld|", "%u|",
                                       "%zu|", "%llu|", "%5d|",  "%x|"};
  static const long long number[] = {0,  1,       -1,      9,         10,       -10,
                                     99, INT_MAX, INT_MIN, LLONG_MAX, LLONG_MIN};
  neap_buffer buffer = {0};
  char want[4096];
  size_t n = 0;
  for (int f = 0; f < NEAP_COUNT(format); f++)
    for (int i = 0; i < NEAP_COUNT(number); i++) {
      /* one argument of its type; formats are not for the compiler to check here */
      bool is_int = f == 0 || f == 3 || f > 5;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
#pragma GCC diagnostic ignored "-Wformat-security"
      if (is_int) {
        neap_buffer_add(&buffer, format[f], (int)number[i]);
        n += (size_t)snprintf(want + n, sizeof want - n, format[f], (int)number[i]);
      } else {
        neap_buffer_add(&buffer, format[f], number[i]);
        n += (size_t)snprintf(want + n, sizeof want - n, format[f], number[i]);
      }
#pragma GCC diagnostic pop
    }
  neap_buffer_add(&buffer, "%%%s%s%.3s%c%s%%", "a", "", "bcde", 'f', "g");
  snprintf(want + n, sizeof want - n, "%%%s%s%.3s%c%s%%", "a", "", "bcde", 'f', "g");
  CHECK(strcmp(buffer.text, want) == 0);
  neap_buffer_fini(&buffer);
}

/* The fewest digits from six up that read back, as the library writes them. */
static void check_number(double x) {
  neap_buffer buffer = {0};
  char want[40];
  int digits = 6;
  do snprintf(want, sizeof want, "%.*g", digits, x);
  while (digits++ < 17 && strtod(want, NULL) != x);
  neap_buffer_add_number(&buffer, x);
  if (strcmp(buffer.text, want) != 0) printf("  %s, expected %s\n", buffer.text, want);
  CHECK(strcmp(buffer.text, want) == 0);
  neap_buffer_fini(&buffer);
}

TEST(numbers_are_written_in_few_digits_as_the_library_writes_them) {
  static const double some[] = {0,     -0.0,    1,     -1,       0.1,      0.9,     1e-5,   1.5e-5,
                                1e-4,  0.00012, 1e5,   999999,   1e6,      1234567, 1e-10,  2.5e-12,
                                1e-15, 1e-16,   1e300, 5e-324,   1.0 / 3,  100,     120000, 0.5,
                                0.25,  0.02,    1e22,  123456.5, 0.1234567};
  for (int i = 0; i < NEAP_COUNT(some); i++) check_number(some[i]), check_number(-some[i]);
  check_number((double)INFINITY), check_number((double)NAN);
  for (int k = 0; k < 20; k++)
    for (int i = 1; i < 3000; i += 7)
      check_number(i / pow(10, k)), check_number((double)(float)(i / pow(10, k)));
}

TEST(buffer_remembers_refused_memory) {
  neap_buffer buffer = {0};
  for (int i = 0; i < 100; i++)
    neap_buffer_add(&buffer, "%d %s;", i, "0123456789012345678901234567890123456789");
  CHECK(buffer.n == strlen(buffer.text) && !buffer.failed);
  neap_memory_fail_nth(1, true);
  for (int i = 0; i < 1000; i++) neap_buffer_add(&buffer, "more");
  neap_memory_fail_nth(0, false);
  CHECK(buffer.failed && strncmp(buffer.text, "0 0123", 6) == 0);
  neap_buffer_fini(&buffer);
}

TEST(bytes_read_well) {
  char text[24];
  CHECK(strcmp(neap_bytes_text(512, text), "512 B") == 0);
  CHECK(strcmp(neap_bytes_text(2560, text), "2.5 KiB") == 0);
  CHECK(strcmp(neap_bytes_text(43201331, text), "41.2 MiB") == 0);
}

/* ---- what the machine has left --------------------------------------------------------------- */

/* Writes root/path, its folders made. */
static void put(const char *root, const char *path, const char *text) {
  char name[512];
  snprintf(name, sizeof name, "%s/%s", root, path);
  for (char *at = strchr(name + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
    *at = '\0';
    (void)mkdir(name, 0700);
    *at = '/';
  }
  FILE *file = fopen(name, "w");
  CHECK(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

TEST(what_is_left_is_the_least_of_the_kernel_and_every_group) {
  char root[] = "/tmp/neap_machine_XXXXXX", command[64];
  CHECK(mkdtemp(root) != NULL);
  CHECK_EQ(neap_memory_available_below(root), 0); /* nothing is known */
  put(root, "proc/meminfo", "MemTotal:  9000 kB\nMemFree:  100 kB\nMemAvailable:    8000 kB\n");
  CHECK_EQ(neap_memory_available_below(root), 8000 * 1024);

  /* Version 2: the group itself is without a limit, the one around it has one. */
  put(root, "proc/self/cgroup", "3:cpu:/other\n0::/user/job\n");
  put(root, "sys/fs/cgroup/user/job/memory.max", "max\n");
  put(root, "sys/fs/cgroup/user/memory.max", "5000000\n");
  put(root, "sys/fs/cgroup/user/memory.current", "3000000\n");
  CHECK_EQ(neap_memory_available_below(root), 2000000);

  /* pages that can go */
  put(root, "sys/fs/cgroup/user/memory.stat",
      "anon 7\ninactive_file_not 1\ninactive_file 500000\n");
  CHECK_EQ(neap_memory_available_below(root), 2500000);
  put(root, "sys/fs/cgroup/memory.max", "100\n"); /* of the root, as a container sees it */
  CHECK_EQ(neap_memory_available_below(root), 100);
  put(root, "sys/fs/cgroup/memory.max", "7000000\n");

  /* Version 1 beside it, with less; used up: nothing is left. */
  put(root, "proc/self/cgroup", "4:memory:/box\n0::/user/job\n");
  put(root, "sys/fs/cgroup/memory/box/memory.limit_in_bytes", "4000\n");
  put(root, "sys/fs/cgroup/memory/box/memory.usage_in_bytes", "1500\n");
  CHECK_EQ(neap_memory_available_below(root), 2500);
  put(root, "sys/fs/cgroup/memory/box/memory.usage_in_bytes", "4001\n");
  CHECK_EQ(neap_memory_available_below(root), 0);
  CHECK(neap_memory_available() > 0);
  snprintf(command, sizeof command, "rm -r %s", root);
  CHECK_EQ(system(command), 0);
}

static int n_looked; /* how often `looks` was asked */
static bool looks(bool answer) {
  n_looked++;
  return answer;
}

/* What a child that runs the assertion says, and how it ends: waitpid's status. */
static int say_from_child(bool holds, char *said, size_t room) {
  int end[2], status = -1;
  size_t n = 0;
  if (pipe(end) != 0) return -1;
  fflush(stdout);
  pid_t child = fork();
  if (child == 0) {
    dup2(end[1], STDERR_FILENO);
    NEAP_ASSERT(looks(holds), "an edge goes to a later node; this one goes from %d to %d", 7, 3);
    _exit(0);
  }
  close(end[1]);
  for (ssize_t got; n + 1 < room && (got = read(end[0], said + n, room - 1 - n)) > 0;)
    n += (size_t)got;
  said[n] = '\0';
  close(end[0]);
  return child > 0 && waitpid(child, &status, 0) == child ? status : -1;
}

TEST(a_wrong_assertion_stops_a_checked_program_and_says_why) {
  char said[2048];
  int status = say_from_child(false, said, sizeof said);
  if (NEAP_DEBUG) {
    CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    CHECK(strstr(said, "tests/c/test_base.c:") == said);
    CHECK(strstr(said, "say_from_child: ") != NULL);
    CHECK(strstr(said, "an edge goes to a later node; this one goes from 7 to 3") != NULL);
    CHECK(strstr(said, "looks(holds)") != NULL);
  } else {
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    CHECK(said[0] == '\0');
  }
  status = say_from_child(true, said, sizeof said);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  CHECK(said[0] == '\0');
}

TEST(an_assertion_is_evaluated_in_a_checked_build_only) {
  n_looked = 0;
  NEAP_ASSERT(looks(true), "%d", n_looked);
  CHECK_EQ(n_looked, NEAP_DEBUG);
  if (!NEAP_DEBUG) NEAP_ASSERT(looks(false), "nobody asks");
  CHECK_EQ(n_looked, NEAP_DEBUG);
}

TEST(two_sizes_of_one_message_differ) {
  static const double size[][2] = {{1048576, 1048640}, {1e9, 1e9 + 1},   {5000, 5100}, {3, 4},
                                   {1023, 1024},       {7e12, 7e12 + 64}};
  char a[24], b[24];
  for (int i = 0; i < NEAP_COUNT(size); i++) {
    neap_bytes_text_beside(size[i][0], size[i][1], a);
    neap_bytes_text_beside(size[i][1], size[i][0], b);
    CHECK(strcmp(a, b) != 0);
  }
  CHECK_EQ(strcmp(neap_bytes_text_beside(5120, 5120, a), "5.0 KiB"), 0);
  CHECK_EQ(strcmp(neap_bytes_text_beside(5120, 9000, a), "5.0 KiB"), 0);
}

TEST(a_short_name_is_near_to_few) {
  CHECK_EQ(neap_text_reach("Foo"), 1); /* not Cos */
  CHECK_EQ(neap_text_reach("x"), 1);
  CHECK_EQ(neap_text_reach("Covn"), 2);
  CHECK_EQ(neap_text_reach("SoftmaxCrosEntropy"), 7);
}

static int compare_numbers(const void *a, const void *b) {
  const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return (x > y) - (x < y);
}

/* Whatever is added, a share of it is read within half a class: 4.5 %. */
TEST(a_sketch_tells_shares_of_all_that_was_added) {
  enum { N = 20000 };
  static int64_t all[N];
  static const double share[] = {0.01, 0.5, 0.95, 0.999};
  neap_sketch sketch = {0};
  CHECK_EQ(neap_sketch_at(&sketch, 0.5), 0);
  uint64_t state = 1;
  for (int i = 0; i < N; i++) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    /* From 300 ns on over five powers of ten. */
    double ns = 300;
    for (uint64_t k = state >> 60; k > 0; k--) ns *= 2.1;
    all[i] = (int64_t)(ns * (1 + (double)((state >> 40) % 1000) / 1000));
    neap_sketch_add(&sketch, all[i]);
  }
  qsort(all, N, sizeof *all, compare_numbers);
  for (int k = 0; k < NEAP_COUNT(share); k++) {
    double want = (double)all[(int)(share[k] * N)];
    double got = (double)neap_sketch_at(&sketch, share[k]);
    CHECK(got > want * 0.93 && got < want * 1.07);
  }

  /* A class that is full: shares stay what they were. */
  neap_sketch two = {0};
  for (int i = 0; i < 200000; i++) neap_sketch_add(&two, i % 4 == 0 ? 1000 : 100000);
  CHECK(neap_sketch_at(&two, 0.2) < 1100 && neap_sketch_at(&two, 0.3) > 90000);

  /* What lies outside is counted at the ends. */
  neap_sketch ends = {0};
  neap_sketch_add(&ends, 0);
  neap_sketch_add(&ends, INT64_MAX / 2);
  CHECK(neap_sketch_at(&ends, 0) < 300 && neap_sketch_at(&ends, 1) > 4000000000);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(two_sizes_of_one_message_differ), T(a_short_name_is_near_to_few),
             T(what_is_left_is_the_least_of_the_kernel_and_every_group),
             T(memory_counters_follow_every_block), T(high_water_mark_restarts),
             T(the_nth_allocation_fails_once), T(each_block_of_an_arena_may_be_the_nth_that_fails),
             T(absurd_sizes_are_refused), T(a_failed_realloc_keeps_the_block),
             T(lists_grow_and_keep_their_items), T(a_sketch_tells_shares_of_all_that_was_added),
             T(arena_blocks_are_zeroed_aligned_and_apart), T(interned_names_are_one),
             T(map_agrees_with_an_array_under_insertions_and_removals),
             T(map_is_unchanged_when_memory_is_refused), T(hash_is_the_published_one),
             T(philox_gives_the_published_words), T(random_numbers_have_their_distribution),
             T(parallel_for_covers_each_index_once), T(the_deepest_error_message_wins),
             T(buffer_remembers_refused_memory), T(a_buffer_writes_as_the_library),
             T(numbers_are_written_in_few_digits_as_the_library_writes_them), T(bytes_read_well),
             T(a_wrong_assertion_stops_a_checked_program_and_says_why),
             T(an_assertion_is_evaluated_in_a_checked_build_only));
}
