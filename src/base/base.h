/* base: what every room of Neap stands on: status and error record, counted memory, arena, interned
 * names, hash, random numbers, threads. No global state but five: the memory counters, the name
 * table, the thread count, the teams, each safe to use from several threads, and the draws, of
 * which every thread has its own.
 */
#ifndef NEAP_BASE_H
#define NEAP_BASE_H

#include "base/assert.h"
#include "base/size.h"
#include "neap.h"

#include <signal.h>
#include <stdarg.h>
#include <string.h>

/* Of every tensor, arena offset and segment, in bytes: one cache line, one AVX-512 register. */
#define NEAP_ALIGN 64u

/* ---- status and error record (error.c) ------------------------------------------------------- */

/* The list of codes, the record and its text are part of the public contract, neap.h; neap_fail,
 * neap_fail_memory and neap_hint, the counters, threads, clock and names of neap/process.h too. */

/* BUDGET: a limit that the caller gave can't be met. All of them are made here. `refused` has
 * limit, bank, limit_bytes, least_bytes, held_bytes, fixed and blobs, and perhaps op, line, scope
 * and a hint, which else names the least; the rest is filled in. */
neap_status neap_fail_budget(neap_error *error, neap_error *refused, const char *format, ...)
  NEAP_PRINTF(3, 4);
/* One more of what is fixed, or of the blobs in the way, of which the largest are kept, largest
 * first. */
void neap_refused_fixed(neap_error *refused, const char *name, size_t bytes);
void neap_refused_blob(neap_error *refused, const char *name, size_t bytes);
#define NEAP_TRY(call)                              \
  do {                                              \
    neap_status try_status_ = (call);               \
    if (try_status_ != NEAP_OK) return try_status_; \
  } while (0)

/* ---- counted memory (alloc.c) ---------------------------------------------------------------- */

/* META memory, zeroed / not zeroed / grown. NULL when refused. Size 0 gives a valid pointer. */
void *neap_alloc_zeroed(size_t bytes);
void *neap_alloc(size_t bytes);
void *neap_realloc(void *block, size_t bytes);
/* DATA memory aligned to NEAP_ALIGN, contents undefined. Counted as `bytes`. */
void *neap_alloc_data(size_t bytes);
/* The same on huge pages of its own, where the kernel has them. */
void *neap_alloc_huge(size_t bytes);
/* Gives free memory back to the system: for whoever leaves much behind and then takes much. Costs a
 * walk over the heap. */
void neap_memory_trim(void);
/* Gives the whole pages within the bytes back to the system, which has them as zeros when they are
 * touched again. They stay allocated, and counted. */
void neap_memory_give_back(void *data, size_t bytes);
/* neap_free (neap.h) ends any of the above. */
char *neap_strdup(const char *text);

/* neap_memory_fail_nth, once, with every block of an arena counted as an allocation, whether the
 * arena must grow for it or not: so that each call which may be refused is, sometime. */
void neap_memory_fail_nth_block(int64_t n);
bool neap_memory_refuses_block(void); /* arena.c asks for each of its blocks */
/* neap_memory_available (neap.h) by the files of another tree, for tests. */
size_t neap_memory_available_below(const char *root);

/* What lies behind a block, up to the next one, nobody may touch: AddressSanitizer sees an overrun
 * of one byte. Else nothing. */
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#define NEAP_FORBID(address, bytes) ASAN_POISON_MEMORY_REGION(address, bytes)
#define NEAP_ALLOW(address, bytes) ASAN_UNPOISON_MEMORY_REGION(address, bytes)
enum { NEAP_GAP_BYTES = 16 }; /* between blocks of an arena, and before the first */
#else
#define NEAP_FORBID(address, bytes) ((void)0)
#define NEAP_ALLOW(address, bytes) ((void)0)
enum { NEAP_GAP_BYTES = 0 };
#endif

/* Growing list: `type *items; int n, cap;`. Returns false, items untouched, when memory is
 * refused. */
bool neap_list_grow(void *items_address, int *cap, int need, size_t item_bytes);

/* ---- arena: many small allocations, one release (arena.c) ------------------------------------ */

typedef struct neap_arena {
  struct neap_arena_chunk *chunk; /* newest first */
} neap_arena;

/* zeroed, 16-byte aligned; NULL when refused */
void *neap_arena_alloc(neap_arena *arena, size_t bytes);
char *neap_arena_strdup(neap_arena *arena, const char *text);
void *neap_arena_copy(neap_arena *arena, const void *from, size_t bytes);
void neap_arena_fini(neap_arena *arena);

/* ---- numbers in texts (number.c) ------------------------------------------------------------- */

/* strtod, snprintf and vsnprintf with a decimal point in every locale: numbers of a text that is
 * read, or may be read back, go through these. */
double neap_number_read(const char *text, char **end);
int neap_format(char *text, size_t room, const char *format, ...) NEAP_PRINTF(3, 4);
int neap_format_list(char *text, size_t room, const char *format, va_list args) NEAP_PRINTF(3, 0);

/* ---- text buffer (buffer.c) ------------------------------------------------------------------ */

/* INVARIANT: `text` is NULL or terminated. A refused allocation sets `failed` and drops what
 * follows. */
typedef struct neap_buffer {
  char *text;
  size_t n, cap;
  bool failed;
} neap_buffer;

/* Digits without a zero behind them, a minus before them where it is negative; returns how many
 * characters. */
#define NEAP_INTEGER_TEXT 24
size_t neap_integer_text(long long value, char text[NEAP_INTEGER_TEXT]);
void neap_buffer_add(neap_buffer *buffer, const char *format, ...) NEAP_PRINTF(2, 3);
/* As %g with the fewest digits, from six up, that read back to the same double; 17 always do. */
void neap_buffer_add_number(neap_buffer *buffer, double x);
void neap_buffer_add_n(neap_buffer *buffer, const char *text, size_t n);
void neap_buffer_fini(neap_buffer *buffer);
void neap_json_text(neap_buffer *out, const char *text); /* quoted, as a JSON string */

/* A row as neap.h describes it, as a JSON object: what it has not is left out (columns.c). */
void neap_row_print_json(neap_row_kind kind, const void *row, neap_buffer *out);

/* ---- interned names (intern.c) --------------------------------------------------------------- */

/* neap_intern of a text that is made first, however long: a name that were cut could be another
 * one's. */
const char *neap_intern_format(const char *format, ...) NEAP_PRINTF(1, 2);

/* Map from interned pointers (or any non-NULL pointer) to ints; open addressing. */
typedef struct neap_map {
  const void **key;
  int *value;
  int n, cap;
} neap_map;

/* false: memory refused, map unchanged */
bool neap_map_set(neap_map *map, const void *key, int value);
int neap_map_get(const neap_map *map, const void *key, int missing);
void neap_map_remove(neap_map *map, const void *key);
void neap_map_fini(neap_map *map);

/* ---- time (clock.c) -------------------------------------------------------------------------- */

int64_t neap_wall_ms(void); /* since 1970; neap_clock_ns is for differences */

/* ---- how long steps took (durations.c) ------------------------------------------------------- */

/* Durations of a whole run in room that does not grow: how many fell into each of N_SKETCH classes,
 * eight to an octave from 256 ns to four seconds, so that what is read is within 6.3 % of what was.
 * Counts are shares: where one is full all are halved. */
enum { NEAP_SKETCH_PARTS = 8, NEAP_N_SKETCH = 24 * NEAP_SKETCH_PARTS };
typedef struct neap_sketch {
  uint16_t count[NEAP_N_SKETCH];
} neap_sketch;
void neap_sketch_add(neap_sketch *sketch, int64_t ns);
/* The duration that `share` (0 to 1) of all do not exceed; 0 where there are none. */
int64_t neap_sketch_at(const neap_sketch *sketch, double share);

enum { NEAP_N_DURATION = 1024 }; /* the newest, for the median */
typedef struct neap_durations {
  int64_t n, last_ns, min_ns; /* of all steps */
  int64_t ring[NEAP_N_DURATION];
  neap_sketch sketch; /* of all steps */
} neap_durations;
void neap_durations_add(neap_durations *durations, int64_t ns);
/* Of the newest n, as far as the ring has them; zeros where there are none. */
typedef struct neap_durations_part {
  int64_t min_ns, median_ns, p95_ns;
} neap_durations_part;
neap_durations_part neap_durations_recent(const neap_durations *durations, int64_t n);
/* Of all: as long as the ring has them, exactly, then by the sketch. */
neap_durations_part neap_durations_all(const neap_durations *durations);

/* ---- hash (hash.c): stable across runs and machines; FNV-1a over 128 bits -------------------- */

typedef struct neap_hash {
  uint64_t high, low;
} neap_hash;

neap_hash neap_hash_bytes(const void *bytes, size_t n);
/* another function, for tensors: of this machine's byte order */
neap_hash neap_hash_words(const void *bytes, size_t n);
void neap_hash_text(neap_hash hash, char text[33]);

/* ---- random numbers (philox.c) --------------------------------------------------------------- */

/* Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC 2011).
 * Counter-based: the four words for (seed, stream, step, index) do not depend on what was drawn
 * before. */
void neap_philox(uint64_t seed, uint32_t stream, uint32_t step, uint64_t index, uint32_t out[4]);
/* The draws of this thread: what random ops draw by that nobody has given a seed and a step. Each
 * is another one, in order, and the same after the same neap_draw_seed. A draw is looked at first
 * (neap_draw_look) and counted when it has been used, so that what fails uses none. */
void neap_draw_count(void);
/* A seed of its own for something that draws by itself; counts a draw. */
uint64_t neap_draw_new_seed(void);
/* [0,1) */
static inline float neap_uniform_f32(uint32_t word) { return (float)(word >> 8) * 0x1p-24f; }
/* Two independent standard normals from two words (Box-Muller). */
void neap_normal_f32(uint32_t a, uint32_t b, float out[2]);

/* ---- threads (thread.c) ---------------------------------------------------------------------- */

/* How many a kernel may be made for of whom `asked` are wanted; 0: the usual number. */
int neap_threads_for(int asked);
/* Runs body(context, begin, end) over [0,n) in at most n_thread equal ranges of about `grain` or
 * more, on as many threads. */
void neap_parallel_for(int64_t n, int64_t grain, int n_thread,
                       void (*body)(void *context, int64_t begin, int64_t end), void *context);

/* ---- teams: the threads behind that (team.c) ------------------------------------------------- */

/* Runs share(context, i) once for each i in [0,n): 0 on the calling thread, the others by it or by
 * helpers, whoever is free. Shares must not wait for each other. Inside a share or somebody's
 * parallel region all run on the calling thread. */
void neap_team_run(int n, void (*share)(void *context, int share), void *context);
/* The same for shares that wait for each other: each has a thread of its own when all have begun.
 * Not inside a share. Waits for another caller's team where there is no other; false, nothing run,
 * when there can be none. */
bool neap_team_run_together(int n, void (*share)(void *context, int share), void *context);
/* In a share of neap_team_run_together: returns when all shares have called it. */
void neap_team_meet(void);
/* Whether this thread runs a share, or is in a parallel region of somebody's. */
bool neap_team_is_inside(void);
/* How many of n threads a team can have; at least 1. They exist from then on. */
int neap_team_prove(int n);

/* ---- signals (signals.c) --------------------------------------------------------------------- */

/* Holds signals off the calling thread while kernels run, and lets them in again. oneDNN's
 * generated code at times has its stack pointer in a heap buffer; the frame of a signal handler,
 * written below it, then lands in somebody's memory (measured: an interrupt during a matrix product
 * corrupted the heap in 3 of 8 runs). Signals of a thread's own faults are not held, nor are those
 * that usually end a process where they have no handler, or one on a stack of its own (SA_ONSTACK):
 * kill ends a process in the middle of a kernel. */
void neap_signals_hold(sigset_t *saved);
void neap_signals_release(const sigset_t *saved);
/* Around the making of a thread, which keeps the mask that it is made with: signals, with handlers
 * or without, are for others. */
void neap_signals_hold_all(sigset_t *saved);

/* ---- vector loops ---------------------------------------------------------------------------- */

/* Before a function: compiles it for x86-64-v2, AVX2 and AVX-512 and picks at load time. Not under
 * sanitizers, which instrument the resolver, and that runs before they are ready. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(NEAP_NO_MULTIVERSION)
#define NEAP_MULTIVERSION \
  __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define NEAP_MULTIVERSION
#endif

/* Before a function: it is part of each that calls it, and compiled for what that is compiled for;
 * a function handed to it too. */
#define NEAP_INLINE static inline __attribute__((always_inline))

/* One name of two; its parts may be macros. */
#define NEAP_JOIN_(a, b) a##b
#define NEAP_JOIN(a, b) NEAP_JOIN_(a, b)

/* Elements a thread should have at least, for loops that are bound by memory. */
enum { NEAP_GRAIN = 16384 };

/* ---- small arithmetic ------------------------------------------------------------------------ */

/* memcpy that takes no bytes from nowhere: an empty list may be NULL, which memcpy forbids. */
static inline void neap_copy_bytes(void *to, const void *from, size_t bytes) {
  if (bytes > 0) memcpy(to, from, bytes);
}
/* Zeros in so many bytes; none may lie nowhere. */
static inline void neap_clear_bytes(void *at, size_t bytes) {
  if (bytes > 0) memset(at, 0, bytes);
}
static inline size_t neap_align(size_t bytes) { return neap_size_align(bytes, NEAP_ALIGN); }
/* Bit j of a row of 64-bit words. */
static inline bool neap_bit(const uint64_t *row, int j) {
  return (row[j >> 6] >> (j & 63) & 1u) != 0;
}
static inline void neap_bit_set(uint64_t *row, int j) { row[j >> 6] |= (uint64_t)1 << (j & 63); }
#define NEAP_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define NEAP_MIN(a, b) ((a) < (b) ? (a) : (b))
#define NEAP_MAX(a, b) ((a) > (b) ? (a) : (b))

#endif
