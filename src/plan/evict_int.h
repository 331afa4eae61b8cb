/* evict_int.h: what the files of eviction share (evict.c says what it is). evict_cells.c finds what
 * holds under every limit, evict_turns.c plays a run under one, evict.c looks for the best run and
 * writes it down. Nobody else includes it. */
#ifndef NEAP_EVICT_INT_H
#define NEAP_EVICT_INT_H

#include "plan/plan_int.h"

/* A storage, as eviction sees it. */
typedef struct evict_cell {
  size_t bytes; /* aligned; 0: nothing of the pool */
  int to;       /* last step that needs it; -1: none */
  /* nodes that write it, in the order of the plan: the machine's writer[writer_at ..] */
  int writer_at, n_writer;
  /* steps that need it, need[need_at ..], and the first of them that is still to come */
  int need_at, n_need, next_need;
  int horizon;    /* last step at which it can still be made again */
  bool evictable; /* the horizon is not before `to` */
  double work;    /* of all writers: what making it again costs */
  /* as the rehearsal goes */
  int n_done;      /* writers that have run for the first time */
  bool live;       /* has a block */
  int pins;        /* how many need it to stay just now; 0: it may go */
  int used_at;     /* turn that touched it last */
  int stay, place; /* while live: index in the machine's `stay`, and in its `live` */
  int mark;        /* of the last walk that met it: a walk's number is n_mark */
} evict_cell;

/* What is known of the plan, and one rehearsal as it goes. */
typedef struct evict_machine {
  const neap_plan *plan;
  const neap_graph *graph;
  evict_cell *cell;    /* by root value */
  int *writer, *need;  /* nodes; steps */
  int *step;           /* by node */
  int *first;          /* by storage: its first value */
  int *next;           /* by value: the next one in the same storage; -1 */
  double *work;        /* by node */
  bool *idle;          /* by node: touches no bytes, as a Free or a view in its source's bytes */
  size_t least;        /* the most that one op needs, */
  int least_node;      /* and which */
  bool ahead;          /* judges by the next read */
  size_t target, used; /* bytes: the most that may be live, and what is */
  int now;             /* step under way */
  int n_mark;          /* walks so far */
  int depth;           /* of makings within makings */
  int64_t n_look;      /* cells looked at in this rehearsal */
  int64_t n_search;    /* of all rehearsals and packings, as a plan's */
  double recomputed;   /* work recomputed */
  int n_evicted;
  int64_t evicted_bytes;
  int *live; /* cells */
  int n_live;
  neap_turn *turn;
  size_t *turn_used; /* by turn: bytes taken */
  int n_turn, cap_turn, cap_used;
  neap_block *stay; /* first and last: turns */
  int *slot;        /* by stay */
  int n_stay, cap_stay, cap_slot;
  int stuck_node; /* where there was no room */
  bool no_memory;
  neap_arena arena;
} evict_machine;

/* evict_cells.c. Everything but what changes as a rehearsal goes. The machine is the caller's to
 * finish, on failure too. */
neap_status evict_init(evict_machine *m, const neap_plan *plan, const neap_graph *graph,
                       neap_error *error);
void evict_fini(evict_machine *m);
/* The cell of a value; NULL: absent, or no bytes of the pool. */
evict_cell *evict_cell_of(const evict_machine *m, neap_value_id v);
/* The cell of operand k of the node, inputs first; NULL as well where an earlier operand of the
 * same side has it. */
evict_cell *evict_operand_cell(const evict_machine *m, const neap_node *node, int k);
bool evict_reads(const evict_machine *m, const neap_node *node, const evict_cell *c);
neap_status evict_refused(neap_error *error, size_t bytes); /* MEMORY error */

/* evict_turns.c. One rehearsal with `target` bytes; `ahead`: judges by the next read, not by the
 * last. False: it can't be done, or m->no_memory. */
bool evict_rehearse(evict_machine *m, size_t target, bool ahead);

#endif
