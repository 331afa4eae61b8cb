/* philox.c: Philox 4x32-10, counter-based random numbers (Salmon et al., SC 2011). */
#include "base/base.h"

#include <math.h>

/* Counter (index low, index high, step, stream), key the seed; multipliers and key increments are
 * the paper's. Ten rounds. */
void neap_philox(uint64_t seed, uint32_t stream, uint32_t step, uint64_t index, uint32_t out[4]) {
  uint32_t c0 = (uint32_t)index, c1 = (uint32_t)(index >> 32), c2 = step, c3 = stream;
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

  /* Each round multiplies two words of the counter to 64 bits, mixes the halves with the other two
   * and the key, and lets the key go on by its constants. */
  for (int round = 0; round < 10; round++) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
    uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0, n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c1 = (uint32_t)p1;
    c3 = (uint32_t)p0;
    c0 = n0;
    c2 = n2;
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

/* Box and Muller, 1958. u has 24 bits, so no number lies beyond sqrt(48 ln 2), about 5.77. */
void neap_normal_f32(uint32_t a, uint32_t b, float out[2]) {
  float u = ((float)(a >> 8) + 1.0f) * 0x1p-24f; /* (0,1], so that the logarithm is finite */
  float radius = sqrtf(-2.0f * logf(u)), angle = 6.2831853f * neap_uniform_f32(b);
  out[0] = radius * cosf(angle);
  out[1] = radius * sinf(angle);
}

/* ---- draws ----------------------------------------------------------------------------------- */

static _Thread_local neap_draw draws;

void neap_draw_seed(uint64_t seed) { draws = (neap_draw){.seed = seed}; }
neap_draw neap_draw_look(void) { return draws; }
void neap_draw_resume(const neap_draw *draw) { draws = *draw; }
void neap_draw_count(void) { draws.step++; }

uint64_t neap_draw_new_seed(void) {
  enum { STREAM = 0x5eed }; /* of no op: their streams are small numbers */
  uint32_t word[4];
  neap_philox(draws.seed, STREAM, draws.step, 0, word);
  neap_draw_count();
  return (uint64_t)word[0] << 32 | word[1];
}
