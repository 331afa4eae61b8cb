/* neap/process.h: what a program can ask and say of the whole process: its memory, threads and
 * clock, and the small things that messages are made of. Part of neap.h, which includes it.
 */
#include "neap.h"
#ifndef NEAP_PROCESS_H
#define NEAP_PROCESS_H

/* ---- memory ---------------------------------------------------------------------------------- */

/* Two accounts, because a forecast speaks of the bytes of tensors: DATA is what tensors, segments
 * and arenas hold; META is everything else (structs, names, lists). */
typedef enum neap_account { NEAP_DATA_BYTES, NEAP_META_BYTES, NEAP_N_ACCOUNT } neap_account;
typedef struct neap_memory_stats {
  int64_t held_bytes[NEAP_N_ACCOUNT]; /* live, as asked for */
  int64_t high_bytes[NEAP_N_ACCOUNT]; /* high-water mark since start or the last reset */
  int64_t n_live;                     /* live blocks */
  int64_t n_alloc;                    /* blocks taken since start */
} neap_memory_stats;
NEAP_API neap_memory_stats neap_memory_read(void);
NEAP_API void neap_memory_reset_high(void);
/* Bytes that all pools of the process have reserved, and that are taken from them. */
NEAP_API void neap_pool_totals(int64_t *reserved_bytes, int64_t *used_bytes);
/* Bytes the process has resident now, and its high-water mark, as the system counts; 0 where
 * unknown. */
NEAP_API size_t neap_process_resident_bytes(void);
NEAP_API size_t neap_process_resident_peak_bytes(void);
/* From now on called when DATA bytes have been taken (+) or returned (-), on whatever thread: for a
 * collector that is to know. NULL: nobody. It must not call Neap. */
NEAP_API void neap_memory_watch(void (*on_data)(int64_t delta));
/* For tests of programs: the n-th allocation from now (1 = the next) fails, once; with `persist`,
 * all from there on. 0 switches it off. And whether that has happened since. */
NEAP_API void neap_memory_fail_nth(int64_t n, bool persist);
NEAP_API bool neap_memory_failed(void);

/* ---- threads, time, kernels ------------------------------------------------------------------ */

/* How many threads kernels have: what was set, else NEAP_NUM_THREADS, else OMP_NUM_THREADS, else
 * the number of cores; no more than the system grants. 1 inside a parallel region of the
 * caller's. */
NEAP_API int neap_threads(void);
NEAP_API void neap_threads_set(int n);
/* What is wrong with NEAP_NUM_THREADS, which then is ignored or taken for less; false: nothing. */
NEAP_API bool neap_threads_complaint(char text[160]);
NEAP_API int64_t neap_clock_ns(void); /* monotonic */
/* Nets planned by this process so far, refused ones too; what a database knew is not planned. */
NEAP_API int64_t neap_n_planned(void);
/* Nets made into graphs so far, each with its subnets as part of it: a plan, and a hit of the
 * database too, takes one. */
NEAP_API int64_t neap_n_built(void);
/* The libraries that compute, with their versions, in one line; and the widest vector instructions
 * that both they and the machine have, which is one of a few words. A plan depends on both. */
NEAP_API void neap_kernel_set_text(char text[160]);
NEAP_API const char *neap_instruction_set(void);
/* Stops the runs of this process at the next instruction; may be called from a signal handler. The
 * flag stays set until neap_interrupt(false). */
NEAP_API void neap_interrupt(bool stop);

/* ---- messages and names ---------------------------------------------------------------------- */

/* Fills an error record, unless it is filled already, and returns the record's code: for functions
 * of one's own that fail as Neap's do. `error` may be NULL. */
NEAP_API neap_status neap_fail(neap_error *error, neap_status code, const char *format, ...)
  NEAP_PRINTF(3, 4);
/* The same with the arguments of a function of one's own that has "..." itself. */
NEAP_API neap_status neap_fail_list(neap_error *error, neap_status code, const char *format,
                                    va_list args) NEAP_PRINTF(3, 0);
/* The same for `bytes` that were refused: "8.0 KiB for WHAT was refused". */
NEAP_API neap_status neap_fail_memory(neap_error *error, size_t bytes, const char *what);
/* Sets the hint, instead of one that is there; returns error->code, INTERNAL without a record. */
NEAP_API neap_status neap_hint(neap_error *error, const char *format, ...) NEAP_PRINTF(2, 3);
/* What messages count inputs, outputs and axes from: 0, as the functions here do, until a face
 * whose users count otherwise says so, as the Lua module does with 1. One for the process. */
NEAP_API void neap_count_from(int first);
NEAP_API int neap_first_number(void);
/* A number, blanks, a unit: "8MiB", "8 MB", "512"; units are B, kB to TB, by thousands, and KiB to
 * TiB, by 1024. False for what is none, for negative numbers, and for what no machine has. */
NEAP_API bool neap_bytes_parse(const char *text, double *bytes);
/* "41.2 MiB", "512 B". Returns text. */
NEAP_API const char *neap_bytes_text(double bytes, char text[24]);
/* The same with as many digits as tell it from `other`, so that two sizes of one message never look
 * alike: "1.00 MiB" beside "1.01 MiB", or "1048640 B". */
NEAP_API const char *neap_bytes_text_beside(double bytes, double other, char text[24]);
/* Edits between two names without regard to case, for "did you mean"; 64 when one has more than 63
 * characters. */
NEAP_API int neap_text_distance(const char *a, const char *b);
/* How far a name that is meant may be from the one that was written: a third of its letters and
 * one, but for short ones no more than half of them. */
NEAP_API int neap_text_reach(const char *written);
/* The one copy of a name, which lives to the end of the process: equal texts give equal pointers.
 * NULL when memory is refused. */
NEAP_API const char *neap_intern(const char *text);
NEAP_API const char *neap_intern_n(const char *text, size_t n);

/* ---- files within ---------------------------------------------------------------------------- */

/* Files that are part of the library, under their paths in the sources: "lua/neap/..",
 * "db/queries/.." (questions for neap_db_query), "scripts/nets/..". The text, ended by a zero that
 * *n (may be NULL) does not count; NULL when there is no such file. */
NEAP_API const char *neap_embedded_find(const char *path, size_t *n);
/* The same by index, in order of their paths; NULL after the last. */
NEAP_API const char *neap_embedded_at(int index, size_t *n, const char **path);

#endif
