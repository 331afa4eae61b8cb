/* assert.h: what the `INVARIANT:` lines claim, checked while the program runs. For faults of Neap
 * itself: what a user, a file or the system can cause is a status (error.c).
 *
 * In a build with NEAP_DEBUG=1 (`make debug`, asan, tsan, fuzz) an assertion that does not hold
 * says where it stands, what was expected and what there is, and aborts. In every other build it is
 * compiled, so that it can't rot, and never evaluated.
 */
#ifndef NEAP_BASE_ASSERT_H
#define NEAP_BASE_ASSERT_H

#ifndef NEAP_DEBUG
#define NEAP_DEBUG 0
#endif

/* NEAP_ASSERT(from < to, "an edge goes to a later node; this one goes from %d to %d", from, to).
 * Neither the condition nor what is printed may have an effect. A check that needs a loop is a
 * function `check_...`, called as `if (NEAP_DEBUG) check_...(...)`. */
#define NEAP_ASSERT(condition, ...)                                              \
  do {                                                                           \
    if (NEAP_DEBUG && !(condition))                                              \
      neap_assert_failed(__FILE__, __LINE__, __func__, #condition, __VA_ARGS__); \
  } while (0)

#if defined(__GNUC__)
__attribute__((noreturn, cold, format(printf, 5, 6)))
#endif
void
neap_assert_failed(const char *file, int line, const char *function, const char *condition,
                   const char *expected, ...);

#endif
