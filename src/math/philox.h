/* math/philox.h: neap_philox for many blocks at once, as plain loops over arrays, so that a
 * NEAP_MULTIVERSION function that calls it becomes vector code. The words are the same, bit for
 * bit. */
#ifndef NEAP_MATH_PHILOX_H
#define NEAP_MATH_PHILOX_H

#include "base/base.h"

enum { NEAP_PHILOX_BLOCKS = 32, NEAP_PHILOX_WORDS = 4 * NEAP_PHILOX_BLOCKS };

/* The words of blocks [first, first + NEAP_PHILOX_BLOCKS), four a block, in order. */
static inline void neap_philox_words(uint64_t seed, uint32_t stream, uint32_t step, uint64_t first,
                                     uint32_t *restrict out) {
  uint32_t c0[NEAP_PHILOX_BLOCKS], c1[NEAP_PHILOX_BLOCKS], c2[NEAP_PHILOX_BLOCKS],
    c3[NEAP_PHILOX_BLOCKS];
  uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);

  /* The counter of a block: its index, the step and the stream. */
  for (int i = 0; i < NEAP_PHILOX_BLOCKS; i++) {
    uint64_t index = first + (uint64_t)i;
    c0[i] = (uint32_t)index, c1[i] = (uint32_t)(index >> 32), c2[i] = step, c3[i] = stream;
  }

  /* Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): ten rounds
   * of two multiplications, whose high words are mixed with the other two words and the key. The
   * loop over blocks is the inner one: that is what becomes vectors. */
  for (int round = 0; round < 10; round++, k0 += 0x9E3779B9u, k1 += 0xBB67AE85u)
    for (int i = 0; i < NEAP_PHILOX_BLOCKS; i++) {
      uint64_t p0 = (uint64_t)0xD2511F53u * c0[i], p1 = (uint64_t)0xCD9E8D57u * c2[i];
      c0[i] = (uint32_t)(p1 >> 32) ^ c1[i] ^ k0;
      c2[i] = (uint32_t)(p0 >> 32) ^ c3[i] ^ k1;
      c1[i] = (uint32_t)p1;
      c3[i] = (uint32_t)p0;
    }
  for (int i = 0; i < NEAP_PHILOX_BLOCKS; i++)
    out[4 * i] = c0[i], out[4 * i + 1] = c1[i], out[4 * i + 2] = c2[i], out[4 * i + 3] = c3[i];
}

#endif
