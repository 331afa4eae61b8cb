/* ways.h: every way of running a net, all of which must give the same bits. */
#ifndef NEAP_TESTS_WAYS_H
#define NEAP_TESTS_WAYS_H

#include "random/writer.h"

/* What was seen over all nets, so that a test can't pass by doing nothing. */
typedef struct totals {
  int n_net, n_refused, n_plan, n_proved, n_node, n_loop, n_in_place, n_alias, n_train, n_again,
    most_nodes;
  int n_run, n_same, n_written, n_recomputed, n_evicted, n_moved, n_eager, n_ranged, n_micro,
    n_beside, n_chain, n_budget, n_turns;
  double worst;
  int by_family[64];
} totals;

/* What went wrong, and in which way. */
typedef struct fault {
  char way[64], message[800];
} fault;

/* False: *f says what failed. `only` (may be NULL) is the one way to take, besides what all are
 * compared with. */
bool plans_hold(const recipe *r, totals *t, fault *f);
bool runs_agree(const recipe *r, const char *only, totals *t, fault *f);

/* The recipe as small as it gets while it fails in the same way; what remains fails as *f then
 * says. */
void shrink(recipe *r, bool runs, fault *f);

/* Whether this is an error that the text asks for: what it frees, or the state that it moves by
 * name, its backward pass still wants. */
bool is_refusal(const neap_error *error, const char *text);

/* For a signal handler: the recipe and the way that are being tried. */
extern char ways_at[400];

#endif
