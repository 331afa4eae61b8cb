/* shrink.c: a recipe that fails is made smaller while it fails in the same way: fewer steps,
 * smaller blobs, plainer draws. */
#include "random/ways.h"

#include <string.h>

enum { MOST_TRIES = 1500 };

typedef struct hunt {
  recipe best;
  fault fault;
  bool runs;
  int n_try;
} hunt;

/* Whether the candidate fails in the way of the first failure; then it is the best one from here
 * on. */
static bool take(hunt *h, const recipe *candidate) {
  if (h->n_try++ >= MOST_TRIES) return false;
  totals apart = {0};
  fault f = {0};
  bool holds =
    h->runs ? runs_agree(candidate, h->fault.way, &apart, &f) : plans_hold(candidate, &apart, &f);
  if (holds || strcmp(f.way, h->fault.way) != 0) return false;
  h->best = *candidate;
  h->fault = f;
  return true;
}

/* Runs of steps, long ones first, from the end. */
static bool drop_steps(hunt *h) {
  bool any = false;
  for (int n = 16; n >= 1; n /= 2) {
    for (int from = STEP_END - n; from >= 1; from -= n) {
      recipe candidate = h->best;
      int n_dropped = 0;
      for (int k = from; k < from + n; k++)
        n_dropped += candidate.step[k].taken, candidate.step[k].taken = false;
      if (n_dropped > 0 && take(h, &candidate)) any = true;
    }
  }
  return any;
}

static bool halve_size(hunt *h) {
  recipe candidate = h->best;
  candidate.size = NEAP_MAX(1, candidate.size / 2);
  return candidate.size < h->best.size && take(h, &candidate);
}

/* All draws of a step but its family, then one after the other. */
static bool zero_draws(hunt *h) {
  bool any = false;
  for (int k = 0; k < MOST_STEPS; k++) {
    if (!h->best.step[k].taken) continue;
    for (int draw = -1; draw < 20; draw++) {
      recipe candidate = h->best;
      candidate.step[k].zeroed |= draw < 0 ? ~(uint64_t)1 : (uint64_t)1 << draw;
      if (candidate.step[k].zeroed != h->best.step[k].zeroed && take(h, &candidate)) any = true;
    }
  }
  return any;
}

void shrink(recipe *r, bool runs, fault *f) {
  hunt h = {.best = *r, .fault = *f, .runs = runs};

  /* Until nothing can be taken away any more: what was refused before may go once something else
   * has. */
  for (bool any = true; any && h.n_try < MOST_TRIES;) {
    any = drop_steps(&h);
    any = halve_size(&h) || any;
    any = zero_draws(&h) || any;
  }
  *r = h.best;
  *f = h.fault;
}
