/* program_int.h: what bind.c makes and run.c, dag.c walk over. Private to program.
 *
 * One instruction per plan step. It owns its call (operand types and layouts filled in once); a run
 * only adds each operand's offset to its base. INVARIANT: nothing here is written during a run but
 * `data` pointers in calls, the base table, the poison counters and the dag's queue: the run
 * context.
 */
#ifndef NEAP_PROGRAM_INT_H
#define NEAP_PROGRAM_INT_H

#include "program/program.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

/* Where an operand's bytes are: base[base] + offset; base < 0: absent.
 *
 * Bases: 0 is the arena (of a subprogram: inside its owner's scratch). In a program base 1 + k is
 * resident blob k, and base 1 + n_blob the constants; in a subprogram it is operand k of the owner,
 * inputs first, or port k of its loop, and the last one is the iteration's frame. Where the plan
 * has banks, base 0 is main, and base first_bank + b - 1 bank b. Under policy `pool`, base
 * first_slot + v is the storage whose root is value v, and first_slot + n_value + n is the scratch
 * of node n. */
typedef struct neap_address {
  int base;
  size_t offset;
} neap_address;

typedef enum neap_instruction_kind {
  NEAP_INSTRUCTION_KERNEL,
  /* a kernel that copies; nothing to do when the plan gave both sides the same bytes */
  NEAP_INSTRUCTION_VIEW,
  NEAP_INSTRUCTION_NOTHING, /* Free: an order of edges, no work */
  NEAP_INSTRUCTION_IF,
  NEAP_INSTRUCTION_LOOP, /* While, Recurrent */
  /* the same iterations from the last to the first, over the frames of the forward */
  NEAP_INSTRUCTION_LOOP_GRADIENT
} neap_instruction_kind;
static inline bool neap_instruction_is_control(neap_instruction_kind kind) {
  return kind >= NEAP_INSTRUCTION_IF;
}

/* Frames of a loop without maximum: records one after another, those of an inner loop's runs too.
 * It grows in the forward, and keeps its bytes from run to run. INVARIANT: what a run has pushed,
 * its backward reads before the next run begins. */
typedef struct neap_frame_stack {
  char *bytes;
  size_t held_bytes, used_bytes;
  uint64_t serial; /* of the run that last used it */
} neap_frame_stack;

/* The head of the operand `frames`: NEAP_ALIGN bytes that the forward writes. */
typedef struct neap_frames_head {
  int64_t n_iteration;
  neap_frame_stack *stack; /* NULL: the records follow the head */
  size_t offset;           /* of the first record on the stack */
} neap_frames_head;

typedef struct neap_instruction {
  neap_instruction_kind kind;
  int node;
  bool makes_constant; /* need not run while the constants are valid */
  /* writes resident storage: after the first of these a run goes to its end whatever happens */
  bool commits;
  /* the same bits on one lane of a dag as on the team of threads that its choice was made for */
  bool any_team;
  neap_call call;
  neap_address *address; /* n_in inputs, then n_out outputs */
  neap_address scratch;
  size_t scratch_bytes;
  const neap_kernel *kernel;
  int64_t n_found; /* EXTENT ops: the length that the program was made for */
  int n_sub;
  neap_program **sub; /* owned */
  const neap_loop *loop;
  const neap_node *loop_node;
  int body;               /* of a forward loop's bodies, that which fitted last */
  neap_frame_stack stack; /* of a forward loop that grows; owned */
  int n_touched;          /* arena storages that the instruction reads or writes, each once */
  int *touched;
} neap_instruction;

typedef struct neap_dag neap_dag;

/* Turns side by side (overlap.c): the bytes that take k of the script has taken are given back when
 * all turns have run that touch them. */
typedef struct neap_stays {
  /* by take: turns that touch it; of these, how many this run has yet to run */
  int *n_touch, *left;
  int *first, *list; /* takes that turn t touches: list[first[t] .. first[t+1]) */
} neap_stays;

struct neap_program {
  neap_graph *graph;
  neap_plan *plan;
  bool draws;  /* has a random op, in a subnet perhaps */
  bool is_sub; /* graph and plan belong to the owner's; base 1 + k is the owner's operand k */
  int n_instruction;
  neap_instruction *instruction; /* by step */
  int n_base;
  void **base;             /* see neap_address */
  int first_bank;          /* the base of bank 1 */
  int first_slot;          /* policy `pool`: the base of storage 0; else INT_MAX */
  neap_pool_block **block; /* by base less first_slot: taken now; NULL unless policy `pool` */
  neap_script script;      /* likewise: what each turn takes and gives */
  neap_stays stays;        /* likewise, where turns run side by side; else empty */
  /* by step: bytes of the pool taken in the last run; NULL unless policy `pool` */
  int64_t *used_at;
  int n_extent;
  int64_t *extent; /* by number of EXTENT op: what the run found; a subprogram's is its owner's */
  bool outgrown;
  /* lengths that an iteration found and no body is for, in `extent`; n 0: none */
  neap_lengths missed;
  int n_blob;
  neap_program_blob *blob;
  neap_address *where; /* by value */
  int *n_touch;        /* by storage: instructions that touch it */
  size_t *bytes;       /* by storage: the largest of its values */
  _Atomic int *left;   /* of n_touch, in this run: at 0 the bytes are dead */
  /* by storage: a fetch may still read it after the run, so poison leaves it */
  bool *spared;
  bool spared_known;
  uint64_t n_run;
  neap_dag *dag; /* NULL for executor `simple` */
  neap_arena arena;
};

/* Who executes: one per thread of executor `dag`, one in all for `simple`. */
typedef struct neap_lane {
  neap_fault fault;
  const neap_program *program; /* of the instruction that recorded the fault */
  int node, thread;
  int64_t ended_ns; /* the last timed step on this thread; 0: none yet */
  /* of the iterations that the lane is in; 0 outside loops. Random ops draw anew in each
   * iteration */
  uint64_t salt;
  bool no_memory; /* the fault is a frame that memory was refused for */
  bool in_body;   /* in an iteration of a loop that has bodies for several lengths */
  bool misfits;   /* the body under way is for other lengths than it found: it goes no further */
} neap_lane;

/* INVARIANT: the phase leaves RUNNING once: to COMMITTED, from where the step is finished, or to
 * STOPPED, after which no commit begins. One atomic word decides, so that in `dag` a commit and a
 * stop can't both win. */
enum { NEAP_RUN_RUNNING, NEAP_RUN_COMMITTED, NEAP_RUN_STOPPED };
typedef struct neap_run_state {
  neap_run *run;
  uint64_t serial; /* of this run among the program's */
  int64_t begin_ns;
  _Atomic int phase;
  _Atomic bool outgrown; /* some length is not what the program was made for */
  _Atomic bool has_missed;
  neap_lengths missed; /* of the first loop that has */
  /* mask of the calling thread outside the run; signals are held while kernels run */
  sigset_t signals;
  int64_t let_in_ns; /* when they were last let in */
} neap_run_state;

/* control.c: instructions that own subprograms. */
void neap_program_run_if(const neap_instruction *i, neap_run_state *state, neap_lane *lane);
void neap_program_run_loop(neap_instruction *i, neap_run_state *state, neap_lane *lane);
void neap_program_run_loop_gradient(const neap_instruction *i, neap_run_state *state,
                                    neap_lane *lane);
/* run.c: one pass of a subprogram whose bases are set. */
void neap_program_run_sub(neap_program *sub, neap_run_state *state, neap_lane *lane);
bool neap_run_is_interrupted(const neap_run_state *state);

/* Runs one instruction on `lane`. */
void neap_program_execute(neap_program *program, int step, neap_run_state *state, neap_lane *lane);
/* On the calling thread, between instructions: lets signals that wait come in, once a
 * millisecond. */
void neap_run_let_signals_in(neap_run_state *state);
/* Polls fault and interrupt; true when the run must stop here. */
bool neap_run_must_stop(neap_run_state *state, const neap_lane *lane);
neap_status neap_program_fault(const neap_lane *lane, neap_error *error);

/* Both set program->dag: steps that wait for each other as the edges say, from a smaller step to a
 * larger; and the graph's. */
typedef struct neap_dag_edge {
  int from, to;
} neap_dag_edge;
neap_status neap_dag_new(neap_program *program, int n_step, int n_edge, const neap_dag_edge *edge,
                         neap_error *error);
neap_status neap_dag_of_graph(neap_program *program, neap_error *error);
/* The *n steps that wait for `step` next, for tests of what waits for what; borrowed. */
const int *neap_dag_successors(const neap_dag *dag, int step, int *n);
void neap_dag_free(neap_dag *dag);
bool neap_runs_alone(const neap_program *program, const neap_instruction *i);
/* take.c, policy `pool`: a turn of the script takes before its instruction runs, and gives after.
 * begin fails with INTERNAL when the pool is not as neap_run says; nothing can fail later. */
neap_status neap_take_begin(neap_program *program, const neap_run *run, neap_error *error);
void neap_take_before(neap_program *program, int turn, const neap_run *run);
void neap_take_after(neap_program *program, int turn, const neap_run *run);
void neap_take_end(neap_program *program, const neap_run *run);
/* The bytes of a slot in the turn of instruction `i`: a storage's, or the instruction's scratch. */
size_t neap_take_bytes(const neap_program *program, int slot, const neap_instruction *i);
/* Whether the program takes its addresses while it runs. */
static inline bool neap_takes(const neap_program *program) { return program->block != NULL; }
/* Bytes that no correct program reads: NaN in every float dtype, -1 in every integer one. */
enum { NEAP_POISON = 0xFF };
/* What holds no bytes may lie nowhere. */
static inline void neap_poison(void *at, size_t bytes) {
  if (bytes > 0) memset(at, NEAP_POISON, bytes);
}
/* Runs all instructions; returns the lane whose fault counts, or any. */
neap_lane *neap_dag_run(neap_program *program, neap_run_state *state);

#endif
