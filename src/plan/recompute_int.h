/* recompute_int.h: what the files of recomputation share (recompute.c says what it is).
 * recompute_moves.c finds the next nodes to give up, recompute.c makes them and keeps what they
 * lead to. Nobody else includes it. */
#ifndef NEAP_RECOMPUTE_INT_H
#define NEAP_RECOMPUTE_INT_H

#include "plan/plan_int.h"

/* What a trial set leads to. Values below the base graph's n_value have the same ids in it. */
typedef struct trial {
  neap_ground *ground; /* what it is a sketch of */
  neap_graph *graph;
  neap_work work;
  neap_schedule schedule;
  size_t *scratch; /* by node of its graph */
} trial;

/* What a descent (recompute.c) has come to after one of its moves. */
typedef struct candidate {
  size_t peak_bytes;
  double work;
  bool *recomputed; /* by base node; the chooser's arena */
  bool *body;       /* by body node; the same */
  bool free_order;  /* the peak is that of a plan whose order is free; else of definition order */
  int index;        /* as found */
} candidate;

typedef struct neap_recomputes {
  neap_grounds grounds;
  const neap_graph *graph; /* the base: nothing is recomputed */
  neap_plan_options options;
  bool *body;         /* by body node: recomputed */
  bool *body_blocked; /* by body node, moves with makers and without them */
  bool free_order;    /* of the descent at hand: bodies alone recompute, in the best order */
  /* by base node: may run again at all; does, in the set at hand; starts no move for now */
  bool *can, *recomputed, *blocked;
  bool *in_move;      /* by base node: of the move at hand */
  bool *visited;      /* by base node: scratch of a walk */
  int *stack;         /* of base nodes */
  int *move, *best;   /* nodes of a move, of the best one */
  int n_move, n_best; /* how many */
  /* the same of body nodes, which a move has either of */
  int *body_move, *best_body;
  int n_body_move, n_best_body, best_at; /* best_at: its place in body_blocked */
  int *list;                             /* room for a set as a list */
  int *body_list;                        /* the same of body nodes */
  double *cost;                          /* by base node */
  trial now;
  candidate *candidate;
  int n_candidate, cap_candidate;
  size_t base_peak; /* with nothing recomputed */
  int64_t n_step, most_steps;
  int64_t n_done; /* steps of what was found before n_step was set back */
  neap_arena arena;
} chooser;

/* recompute_moves.c. The move of least work a byte, into c->best or c->best_body; false: none is
 * left. `weight`: how dear a run of recomputed nodes is for its length. */
bool recompute_find_move(chooser *c, double weight);
/* Makes the best move, or takes it back: then its first node starts no other for now. */
void recompute_set_best(chooser *c, bool recomputed);

#endif
