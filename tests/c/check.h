/* check.h: the whole C test harness. A test file is a program:
 *
 *   #include "check.h"
 *   TEST(storage_counts_references) { CHECK(x == 1); CHECK_OK(neap_tensor_new(...)); }
 *   int main(int argc, char **argv) { return RUN(argc, argv, T(storage_counts_references)); }
 *
 * It prints "ok NAME", "FAIL NAME" or "skip NAME: why" a test, and last "N passed, N failed, N
 * skipped"; a name as argument runs that test alone. */
#ifndef NEAP_CHECK_H
#define NEAP_CHECK_H

#include "base/base.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int check_failures; /* of the current test */
static const char *check_skipped;

#define TEST(name) static void test_##name(void)

#define CHECK(condition)                                                     \
  do {                                                                       \
    if (!(condition)) {                                                      \
      printf("  %s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
      check_failures++;                                                      \
    }                                                                        \
  } while (0)

#define CHECK_EQ(a, b)                                                                          \
  do {                                                                                          \
    long long check_a = (long long)(a), check_b = (long long)(b);                               \
    if (check_a != check_b) {                                                                   \
      printf("  %s:%d: %s is %lld, expected %lld\n", __FILE__, __LINE__, #a, check_a, check_b); \
      check_failures++;                                                                         \
    }                                                                                           \
  } while (0)

#define CHECK_NEAR(a, b, tolerance)                                                             \
  do {                                                                                          \
    double check_a = (double)(a), check_b = (double)(b);                                        \
    if (!(fabs(check_a - check_b) <= (tolerance))) {                                            \
      printf("  %s:%d: %s is %.9g, expected %.9g\n", __FILE__, __LINE__, #a, check_a, check_b); \
      check_failures++;                                                                         \
    }                                                                                           \
  } while (0)

/* The call, which may use `&error`, gives NEAP_OK. */
#define CHECK_OK(call)                                                       \
  do {                                                                       \
    neap_error error = {0};                                                  \
    if ((call) != NEAP_OK) {                                                 \
      printf("  %s:%d: %s: %s\n", __FILE__, __LINE__, #call, error.message); \
      check_failures++;                                                      \
    }                                                                        \
  } while (0)

/* The call fails with `status` and a message that contains `words`. */
#define CHECK_FAILS(call, status, words)                                 \
  do {                                                                   \
    neap_error error = {0};                                              \
    neap_status check_got = (call);                                      \
    if (check_got != (status) || strstr(error.message, words) == NULL) { \
      printf("  %s:%d: %s gives %s \"%s\"\n", __FILE__, __LINE__, #call, \
             neap_status_text(check_got), error.message);                \
      check_failures++;                                                  \
    }                                                                    \
  } while (0)

#define SKIP(why)          \
  do {                     \
    check_skipped = (why); \
    return;                \
  } while (0)

typedef struct check_test {
  const char *name;
  void (*run)(void);
} check_test;

static int check_run(int argc, char **argv, int n, const check_test *test) {
  int passed = 0, failed = 0, skipped = 0;
  for (int i = 0; i < n; i++) {
    if (argc > 1 && strcmp(argv[1], test[i].name) != 0) continue;
    check_failures = 0;
    check_skipped = NULL;
    test[i].run();
    if (check_skipped != NULL)
      printf("skip %s: %s\n", test[i].name, check_skipped), skipped++;
    else if (check_failures > 0)
      printf("FAIL %s\n", test[i].name), failed++;
    else
      printf("ok %s\n", test[i].name), passed++;
    fflush(stdout);
  }
  printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed > 0 || passed + skipped == 0;
}

/* RUN(argc, argv, T(a), T(b)) */
#define RUN(argc, argv, ...)                                                             \
  check_run(argc, argv, (int)(sizeof((check_test[]){__VA_ARGS__}) / sizeof(check_test)), \
            (check_test[]){__VA_ARGS__})
#define T(name) \
  { #name, test_##name }

#endif
