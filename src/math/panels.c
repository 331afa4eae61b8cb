/* panels.c: a few rows times four panels, with all sums in registers.
 *
 * A tile is ROWS rows of x by one vector of each of the four panels: an element of x is read once
 * for four vectors of products. The instruction sets differ in how many registers there are and how
 * long: 24 sums of 16 lanes where there are 32 long ones, 12 of 8 or 4 where there are 16. The
 * compiler knows neither the lanes nor the rows of a clone of a plain loop, so there is one
 * function for each set, from one file, and the processor is asked once a call.
 *
 * A panel passes in pieces of DEPTH, which all rows use before the next one comes: what four of
 * them take stays in the second-level cache, and near the first.
 * INVARIANT: each element of y is summed in the order of K, whatever the tile it is in.
 */
#include "math/panels.h"

#include <string.h>

enum { DEPTH = 256 };

typedef struct product {
  int64_t m, k, ldx, panel_step, ldy, column_step;
  bool add;
  const float *x, *panels;
  float *y;
} product;

#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(NEAP_NO_MULTIVERSION)
#define HAS_LEVELS 1
#else
#define HAS_LEVELS 0
#endif

typedef float lanes4 __attribute__((vector_size(16)));
typedef float lanes8 __attribute__((vector_size(32)));
typedef float lanes16 __attribute__((vector_size(64)));

/* Once for each instruction set: V its vector, MOST_ROWS the rows of a tile that its registers have
 * room for, TARGET the attribute of a function for it. */
#define V lanes4
#define MOST_ROWS 2
#define TARGET
#define OF(name) NEAP_JOIN(name, _any)
#include "math/panels_body.h"
#if HAS_LEVELS
#define V lanes8
#define MOST_ROWS 3
#define TARGET __attribute__((target("arch=x86-64-v3")))
#define OF(name) NEAP_JOIN(name, _v3)
#include "math/panels_body.h"
#define V lanes16
#define MOST_ROWS 6
#define TARGET __attribute__((target("arch=x86-64-v4")))
#define OF(name) NEAP_JOIN(name, _v4)
#include "math/panels_body.h"
#endif

/* Without columns of x there is no first piece to begin the sums with. */
static void clear(const product *p) {
  for (int64_t i = 0; i < p->m; i++)
    for (int g = 0; g < 4; g++)
      memset(p->y + i * p->ldy + g * p->column_step, 0, NEAP_PANEL * sizeof *p->y);
}

void neap_panels_f32(int64_t m, int64_t k, const float *x, int64_t ldx, const float *panels,
                     int64_t panel_step, bool add, float *y, int64_t ldy, int64_t column_step) {
  product p = {m, k, ldx, panel_step, ldy, column_step, add, x, panels, y};
  if (k == 0 && !add) clear(&p);
#if HAS_LEVELS
  /* The widest vectors that the processor has; bits are promised for one machine only. */
  if (__builtin_cpu_supports("x86-64-v4")) {
    add_v4(&p);
    return;
  }
  if (__builtin_cpu_supports("x86-64-v3")) {
    add_v3(&p);
    return;
  }
#endif
  add_any(&p);
}
