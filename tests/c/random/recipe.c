/* recipe.c: making, printing and reading recipes. */
#include "random/recipe.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEFAULT_SIZE = 6, DEFAULT_STEPS = 14, LONG_STEPS = 60 };

void recipe_init(recipe *r, uint64_t seed, int most, int size) {
  uint32_t word[4];
  *r = (recipe){.seed = seed, .size = size};
  neap_philox(seed, 76, 0, 0, word);
  int n = 3 + (int)(word[0] % (uint32_t)most);
  r->step[STEP_HEAD].taken = r->step[STEP_END].taken = true;
  for (int k = 1; k <= n && k < STEP_END; k++) r->step[k].taken = true;
}

uint32_t recipe_draw(const recipe *r, int number, int draw) {
  if (draw < MOST_DRAWS && (r->step[number].zeroed >> draw & 1) != 0) return 0;
  uint32_t word[4];
  neap_philox(r->seed, 77, (uint32_t)number, (uint64_t)draw, word);
  return word[0];
}

int recipe_n_steps(const recipe *r) {
  int n = 0;
  for (int k = 1; k < STEP_END; k++) n += r->step[k].taken;
  return n;
}

/* What a seed gives by itself. One net of a hundred is long. */
static void init_default(recipe *r, uint64_t seed) {
  recipe_init(r, seed, seed % 100 == 99 ? LONG_STEPS : DEFAULT_STEPS, DEFAULT_SIZE);
}

void recipe_print(const recipe *r, neap_buffer *out) {
  recipe whole;
  init_default(&whole, r->seed);
  neap_buffer_add(out, "%llu", (unsigned long long)r->seed);
  if (r->size != whole.size) neap_buffer_add(out, ":size=%d", r->size);

  /* What differs from the seed's own recipe: nothing else has to be said. */
  bool same = true, zeroed = false;
  for (int k = 0; k < MOST_STEPS; k++) {
    same = same && r->step[k].taken == whole.step[k].taken;
    zeroed = zeroed || r->step[k].zeroed != 0;
  }

  /* Steps that are left, then draws that are zeroed, each as a list. */
  const char *before = ":steps=";
  for (int k = 1; !same && k < STEP_END; k++) {
    if (r->step[k].taken) neap_buffer_add(out, "%s%d", before, k), before = ",";
  }
  if (!same && recipe_n_steps(r) == 0) neap_buffer_add(out, ":steps=0");
  before = ":zero=";
  for (int k = 0; zeroed && k < MOST_STEPS; k++) {
    if (r->step[k].zeroed != 0)
      neap_buffer_add(out, "%s%d.%llx", before, k, (unsigned long long)r->step[k].zeroed),
        before = ",";
  }
}

bool recipe_read(recipe *r, const char *name) {
  char *at;
  init_default(r, strtoull(name, &at, 10));
  if (at == name) return false;

  /* Parts in any order, each with its list; what is left over at the end is an error. */
  while (*at == ':') {
    if (strncmp(at, ":size=", 6) == 0) {
      r->size = (int)strtol(at + 6, &at, 10);
    } else if (strncmp(at, ":steps=", 7) == 0) {
      for (int k = 1; k < STEP_END; k++) r->step[k].taken = false;
      do {
        long k = strtol(at + (*at == ',' ? 1 : 7), &at, 10);
        if (k > 0 && k < STEP_END) r->step[k].taken = true;
      } while (*at == ',');
    } else if (strncmp(at, ":zero=", 6) == 0) {
      do {
        long k = strtol(at + (*at == ',' ? 1 : 6), &at, 10);
        if (k < 0 || k >= MOST_STEPS || *at != '.') return false;
        r->step[k].zeroed = strtoull(at + 1, &at, 16);
      } while (*at == ',');
    } else {
      return false;
    }
  }
  return *at == '\0' && r->size > 0;
}
