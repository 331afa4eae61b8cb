/* program: a plan made runnable. Instructions with bound kernels and operands (base, offset).
 * Running one makes no Neap allocation, looks up no name and computes no shape.
 *
 * A base is a pointer: base 0 is the arena; one more per resident blob (program_blob), attached by
 * the workspace before the first run; the next holds the constants. Subprograms of control
 * instructions have their own base table: the operands of the owner, and an arena that lies in the
 * owner's scratch. Under policy `pool` there is no arena: each transient storage has a base of its
 * own, set when its bytes are taken from the pool and forgotten when they are given back.
 *
 * INVARIANT: after a fault or an interrupt before the first commit instruction, no resident byte
 * has changed but declared outputs and gradients. After it an interrupt stops nothing, and a fault
 * is said when the run has ended: what that has written to blobs that were there before are those
 * that are `half_written`.
 * INVARIANT: under policy `pool` all that a run takes it has given back when it ends, however it
 * ends.
 */
#ifndef NEAP_PROGRAM_H
#define NEAP_PROGRAM_H

#include "base/pool.h"
#include "plan/plan.h"

#include <stdatomic.h>

typedef struct neap_program neap_program;

/* Binds kernels. The program takes over graph and plan (freed with it), also when it fails. */
neap_status neap_program_new(neap_graph *graph, neap_plan *plan, neap_program **out,
                             neap_error *error);
void neap_program_free(neap_program *program);
/* Policy `pool`, before the first run: instructions whose kernels give the same bits on one thread
 * may then run side by side, within the same bytes. After a failure, MEMORY, the program is good
 * for nothing but neap_program_free. */
neap_status neap_program_overlap(neap_program *program, neap_error *error);
const neap_graph *neap_program_graph(const neap_program *program);
bool neap_program_draws(const neap_program *program); /* has a random op, in a subnet perhaps */
const neap_plan *neap_program_plan(const neap_program *program);
/* Op, blob, scope and line of a node into the record. */
void neap_program_locate(const neap_graph *graph, int node, neap_error *error);

/* Resident blobs in order of first definition. */
typedef struct neap_program_blob {
  const char *name;
  neap_value_id value; /* root version */
  neap_type type;
  neap_role role;
  neap_region region;
  bool defined_before; /* read before it is written: must hold data when the run starts */
  bool written;        /* the run writes it; neither: it is declared and no more */
  bool half_written;   /* a run that fails may have committed to it */
  bool feeds_constant; /* a constant is computed from it */
  /* A Reorder's output among the constants that has all its elements, where nothing but makers of
   * constants reads the blob, or NEAP_NO_VALUE; and the step of the last of those makers. */
  neap_value_id packed;
  int last_maker;
  /* its bytes are to have room for so many: those of the largest batch; 0: its own */
  size_t reserve_bytes;
  void *base; /* attached by the workspace */
} neap_program_blob;
int neap_program_n_blobs(const neap_program *program);
neap_program_blob *neap_program_blob_at(neap_program *program, int index);

/* Where a value of the graph lies: *blob is the index of its resident blob, or NEAP_IN_ARENA or
 * NEAP_IN_CONSTANTS with an *offset; where the plan has banks, in the arena of the value's. False
 * for values without bytes here, or that have none between runs (policy `pool`). */
enum { NEAP_IN_ARENA = -1, NEAP_IN_CONSTANTS = -2 };
bool neap_program_where(const neap_program *program, neap_value_id value, int *blob,
                        size_t *offset);

/* Lengths that EXTENT ops found in the last run, by their number, *n of them; -1 for one that was
 * not reached. A run that finds another length than the program was made for stops there with DATA,
 * before anything is committed. */
const int64_t *neap_program_extents(const neap_program *program, int *n);
/* Whether the last run stopped for that reason. */
bool neap_program_is_outgrown(const neap_program *program);
/* Whether it was an iteration of a loop that found lengths which no body of the loop is for: they
 * are borrowed until the next run. The lengths that bodies find are in no list of extents
 * otherwise. */
bool neap_program_missed(const neap_program *program, neap_lengths *out);
/* Whether the last run used the body for lengths `met`. */
bool neap_program_used_body(const neap_program *program, const neap_lengths *met);

/* Policy `pool`: the most blocks a run has taken at once; 0 for all other policies. The bytes are
 * the plan's arena_bytes. */
int neap_program_pool_blocks(const neap_program *program);
/* Bytes taken from the pool while each step of the last run ran, by plan step; NULL for all other
 * policies. */
const int64_t *neap_program_pool_curve(const neap_program *program);

/* Frames of loops without a maximum (control.c): the bytes held from run to run, and giving them
 * back between runs; the next run takes what it needs again. Both count the subprograms' too. */
size_t neap_program_frames_bytes(const neap_program *program);
size_t neap_program_trim(neap_program *program);

/* The last calls one by one, call n at n % NEAP_N_RECENT: how long it took, when it began
 * (neap_clock_ns), which run of the program it was of, counted from 1, and on which thread. */
enum { NEAP_N_RECENT = 15 };
typedef struct neap_step_calls {
  int64_t took_ns[NEAP_N_RECENT], begun_ns[NEAP_N_RECENT], run_no[NEAP_N_RECENT],
    on_thread[NEAP_N_RECENT];
} neap_step_calls;
/* A step over all runs, whose calls are not kept. */
typedef struct neap_step_times {
  int64_t n_call;
  int thread; /* of the last call */
  int64_t min_ns, max_ns, last_ns, total_ns;
  int64_t gap_ns;   /* in all: since the step before it on its thread had ended */
  int64_t start_ns; /* of the last call, from the run's begin */
  neap_sketch took;
  neap_step_calls *calls; /* the last ones; NULL: they are not wanted */
} neap_step_times;
/* The time that `share` of the calls do not exceed: within 6.3 %, never outside of what was. */
int64_t neap_step_times_at(const neap_step_times *times, double share);

typedef struct neap_run {
  void *arena;
  /* by number, of the plan's banks; that of main is not looked at. NULL where it has none */
  void *const *bank;
  /* policy `pool`: empty, and reserved for the plan's bytes and neap_program_pool_blocks; else
   * NULL */
  neap_pool *pool;
  void *constants; /* region_bytes[CONSTANT] of the plan; NULL where it has none */
  /* they hold what an earlier run computed from the same parameters: not computed again */
  bool constants_valid;
  /* Called behind the last maker of constants that reads a blob that has its elements `packed`: its
   * bytes are not read again in this run, nor in those that find the constants valid. NULL: nobody
   * cares. */
  void (*spare)(void *owner, int blob);
  void *owner; /* of spare */
  uint64_t seed;
  uint32_t step;
  const atomic_int *interrupted; /* set by a signal handler or another thread; may be NULL */
  bool poison;                   /* fill bytes with NaN as their value dies */
  neap_step_times *times;        /* n_node entries by plan step, or NULL */
  bool finished;                 /* out: the step ran to its end, so that it counts */
} neap_run;

/* DATA (fault), INTERRUPTED or OK. Fills error's op, blob, scope and line. A step that has begun to
 * commit when the interrupt comes is finished and gives OK; the flag stays set, for the caller to
 * see. */
neap_status neap_program_run(neap_program *program, neap_run *run, neap_error *error);

/* ---- kernels side by side (kernel_times.c) --------------------------------------------------- */

/* Times each kernel that could run the op of a step: rows as neap/rows.h has them, *out from
 * neap_alloc, whose texts are the graph's and static ones. No rows where there is no other kernel.
 * Takes the bytes of the op's operands once more, and up to a second or two. */
neap_status neap_program_time_kernels(const neap_plan *plan, const neap_graph *graph, int step,
                                      neap_kernel_row **out, int *n, neap_error *error);

/* ---- one op alone (single.c): initialisers and eager calls ----------------------------------- */

/* An op bound for given input types, all operands plain. Immutable but for its call: one thread at
 * a time. */
typedef struct neap_single neap_single;
typedef struct neap_single_options {
  const neap_op *op;
  const neap_attr_value *attrs; /* one per record attribute; copied */
  int n_in, n_out;
  const neap_type *in;
  bool force; /* only `engine`, else `ref` */
  neap_engine engine;
  int n_thread;
} neap_single_options;
neap_status neap_single_new(const neap_single_options *options, neap_single **out,
                            neap_error *error);
void neap_single_free(neap_single *single);
const neap_type *neap_single_out_type(const neap_single *single, int output);
/* The type that the last run gave an output: smaller than neap_single_out_type where a length
 * depends on data. */
neap_status neap_single_found_type(const neap_single *single, int output, neap_type *out,
                                   neap_error *error);
size_t neap_single_scratch_bytes(const neap_single *single);
/* `in` and `out` point to dense bytes (NULL where absent); `scratch` is aligned. DATA when the
 * kernel records a fault. */
neap_status neap_single_run(neap_single *single, void *const *in, void *const *out, void *scratch,
                            uint64_t seed, uint32_t stream, uint32_t step, neap_error *error);

/* The same elements in another layout, by the Reorder op's plain kernel. `from` and `to` hold their
 * layout's bytes. */
neap_status neap_reorder(const neap_type *type, const neap_layout *from_layout, const void *from,
                         const neap_layout *to_layout, void *to, neap_error *error);

#endif
