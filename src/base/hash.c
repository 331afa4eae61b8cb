/* hash.c: FNV-1a with 128 bits (Fowler, Noll, Vo). Cache keys also keep their whole text, so a collision is found. */
#include "base/base.h"

#include <inttypes.h>
#include <stdio.h>

neap_hash neap_hash_bytes(const void *bytes, size_t n) {
  __extension__ typedef unsigned __int128 u128;
  const u128 prime = ((u128)1 << 88) + 0x13b;
  u128 h = ((u128)0x6c62272e07bb0142u << 64) | 0x62b821756295c58du;
  const unsigned char *p = bytes;
  for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * prime;
  return (neap_hash){(uint64_t)(h >> 64), (uint64_t)h};
}

void neap_hash_text(neap_hash hash, char text[33]) { snprintf(text, 33, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low); }
