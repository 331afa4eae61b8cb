/* verify_int.h: what the files of the check of plans share (verify.c). */
#ifndef NEAP_VERIFY_INT_H
#define NEAP_VERIFY_INT_H

#include "plan/plan_int.h"

#include <stdio.h>

typedef struct check {
  const neap_plan *plan;
  const neap_graph *graph;
  neap_error *error;
  int *step; /* by node */
  /* readers of value v: reader[reader_at[v] .. reader_at[v+1]), with repeats */
  int *reader_at, *reader;
  int *last_step;  /* by value: step of its last reader or definition */
  int *content;    /* by value: the value whose elements it shows */
  uint64_t *above; /* dag: bit matrix, above[n]: nodes with a path to n */
  size_t n_word;
  neap_arena arena;
} check;

/* For messages: a value may have no name. */
static inline const char *label(const check *c, int v) {
  return c->graph->value[v].name != NULL ? c->graph->value[v].name : "?";
}

/* A PLAN error about value v. */
#define FAIL(c, v, ...) fail_about(c, v, neap_fail((c)->error, NEAP_PLAN, __VA_ARGS__))
static inline neap_status fail_about(const check *c, int v, neap_status status) {
  if (c->error != NULL && c->error->blob[0] == '\0')
    snprintf(c->error->blob, sizeof c->error->blob, "%s", label(c, v));
  return status;
}

/* Whether the value has bytes in the arena that a node writes. */
static inline bool in_arena(const check *c, int v) {
  return c->graph->value[v].region == NEAP_REGION_ARENA && c->graph->value[v].bytes > 0 &&
         c->graph->value[v].node >= 0;
}

/* verify_figures.c: bytes live at each step, the bound, the peak and the arena are what the order
 * and the places make them. The lists are room: of steps and two more, and of values. */
neap_status verify_figures(check *c, size_t *live, int *from, int *to, size_t *bytes);

/* ---- spans in use at one moment (verify_live.c) ---------------------------------------------- */

/* Bytes of the arena that a value has. */
typedef struct span {
  size_t offset, bytes;
  int value;
} span;

/* Of `n` spans, sorted by offset, those that are in use. */
typedef struct live_spans {
  int n, n_leaf;
  const span *span; /* borrowed */
  size_t *most_end; /* a tree: of each part of the list the furthest end of one that is in use */
} live_spans;

neap_status verify_live_init(live_spans *live, int n, const span *spans, neap_arena *arena,
                             neap_error *error);
void verify_live_begin(live_spans *live, int at);
void verify_live_end(live_spans *live, int at);
/* The first span in use from number `from` on that meets these bytes; `n`: none. */
int verify_live_next(const live_spans *live, int from, size_t offset, size_t bytes);

#endif
