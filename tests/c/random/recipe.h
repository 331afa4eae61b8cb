/* recipe.h: a random net as data: a list of steps, each of which adds ops of one family to the net.
 *
 * All that a step draws follows from the recipe's seed and the step's own number, so that dropping
 * a step leaves the others what they are, unless they read what is gone. A draw of 0 is always the
 * plainest choice; a draw that is zeroed is 0. Shrinking a recipe (shrink.c) is dropping steps,
 * halving the size and zeroing draws.
 */
#ifndef NEAP_TESTS_RECIPE_H
#define NEAP_TESTS_RECIPE_H

#include "base/base.h"

enum { MOST_STEPS = 72, MOST_DRAWS = 64, STEP_HEAD = 0, STEP_END = MOST_STEPS - 1 };

typedef struct step {
  bool taken;
  uint64_t zeroed; /* bit k: draw k is 0 */
} step;

typedef struct recipe {
  uint64_t seed;
  int size; /* of matrices: the most rows, half the most columns */
  /* HEAD: inputs and what is true of the whole net; END: training, outputs; ops between */
  step step[MOST_STEPS];
} recipe;

/* Of `most` steps at most. */
void recipe_init(recipe *r, uint64_t seed, int most, int size);
uint32_t recipe_draw(const recipe *r, int step, int draw);
int recipe_n_steps(const recipe *r); /* taken, those of ops */
/* "17", or "17:size=3:steps=2,5:zero=0.1,5.2" once it was shrunk: what `test_random_nets NAME`
 * takes. */
void recipe_print(const recipe *r, neap_buffer *out);
bool recipe_read(recipe *r, const char *name);

#endif
