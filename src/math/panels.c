/* panels.c: a few rows times four panels, with all sums in registers.
 *
 * A tile is ROWS rows of x by one vector of each of the four panels: an element of x is read once
 * for four vectors of products. The instruction sets differ in how many registers there are and how
 * long: 24 sums of 16 lanes where there are 32 long ones, 12 of 8 or 4 where there are 16. The
 * compiler knows neither the lanes nor the rows of a clone of a plain loop, so there is one
 * function for each set, made from one text, and the processor is asked once a call.
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

#define INLINE static inline __attribute__((always_inline))

/* tile: rows [i, i + n) of y over columns [from, from + depth) of x, n a constant at every call.
 * add: all rows, in tiles as even as can be; how an element is summed does not depend on its
 * tile. */
#define TILE_OF(name, n)                     \
  case n:                                    \
    tile_##name(p, i, n, from, depth, lane); \
    break;
#define LEVEL(name, vector, ROWS, CASES, target)                                                 \
  INLINE void tile_##name(const product *p, int64_t i, const int n, int64_t from, int64_t depth, \
                          int64_t lane) {                                                        \
    vector sum[ROWS][4];                                                                         \
    const float *x = p->x + i * p->ldx + from, *w = p->panels + from * NEAP_PANEL + lane;        \
    float *y = p->y + i * p->ldy + lane;                                                         \
    for (int r = 0; r < n; r++)                                                                  \
      for (int g = 0; g < 4; g++) {                                                              \
        if (from > 0 || p->add)                                                                  \
          memcpy(&sum[r][g], y + r * p->ldy + g * p->column_step, sizeof sum[r][g]);             \
        else                                                                                     \
          sum[r][g] = (vector){0};                                                               \
      }                                                                                          \
    for (int64_t j = 0; j < depth; j++) {                                                        \
      vector w0, w1, w2, w3;                                                                     \
      const float *at = w + j * NEAP_PANEL;                                                      \
      memcpy(&w0, at, sizeof w0), memcpy(&w1, at + p->panel_step, sizeof w1);                    \
      memcpy(&w2, at + 2 * p->panel_step, sizeof w2),                                            \
        memcpy(&w3, at + 3 * p->panel_step, sizeof w3);                                          \
      for (int r = 0; r < n; r++) {                                                              \
        float factor = x[r * p->ldx + j];                                                        \
        sum[r][0] += w0 * factor, sum[r][1] += w1 * factor, sum[r][2] += w2 * factor,            \
          sum[r][3] += w3 * factor;                                                              \
      }                                                                                          \
    }                                                                                            \
    for (int r = 0; r < n; r++)                                                                  \
      for (int g = 0; g < 4; g++)                                                                \
        memcpy(y + r * p->ldy + g * p->column_step, &sum[r][g], sizeof sum[r][g]);               \
  }                                                                                              \
  target static void add_##name(const product *p) {                                              \
    const int64_t lanes = (int64_t)(sizeof(vector) / sizeof(float)),                             \
                  n_tile = (p->m + ROWS - 1) / ROWS;                                             \
    for (int64_t from = 0; from < p->k; from += DEPTH)                                           \
      for (int64_t lane = 0; lane < NEAP_PANEL; lane += lanes)                                   \
        for (int64_t t = 0, depth = NEAP_MIN(p->k - from, DEPTH); t < n_tile; t++) {             \
          int64_t i = p->m * t / n_tile;                                                         \
          switch (p->m * (t + 1) / n_tile - i) { CASES }                                         \
        }                                                                                        \
  }
#define UP_TO_2(name) TILE_OF(name, 1) TILE_OF(name, 2)
#define UP_TO_3(name) UP_TO_2(name) TILE_OF(name, 3)
#define UP_TO_6(name) UP_TO_3(name) TILE_OF(name, 4) TILE_OF(name, 5) TILE_OF(name, 6)

LEVEL(any, lanes4, 2, UP_TO_2(any), )
#if HAS_LEVELS
LEVEL(v3, lanes8, 3, UP_TO_3(v3), __attribute__((target("arch=x86-64-v3"))))
LEVEL(v4, lanes16, 6, UP_TO_6(v4), __attribute__((target("arch=x86-64-v4"))))
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
