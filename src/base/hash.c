/* hash.c: FNV-1a with 128 bits (Fowler, Noll, Vo). Cache keys also keep their whole text, so a
 * collision is found. */
#include "base/base.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Offset basis and prime are those of the 128-bit variant; products are taken modulo 2^128. */
neap_hash neap_hash_bytes(const void *bytes, size_t n) {
  __extension__ typedef unsigned __int128 u128;
  const u128 prime = ((u128)1 << 88) + 0x13b;
  u128 h = ((u128)0x6c62272e07bb0142u << 64) | 0x62b821756295c58du;
  const unsigned char *p = bytes;
  for (size_t i = 0; i < n; i++) h = (h ^ p[i]) * prime;
  return (neap_hash){(uint64_t)(h >> 64), (uint64_t)h};
}

/* The same step on 64-bit words, the last one filled up with zeros, the length last: eight times as
 * fast. */
neap_hash neap_hash_words(const void *bytes, size_t n) {
  __extension__ typedef unsigned __int128 u128;
  const u128 prime = ((u128)1 << 88) + 0x13b;
  u128 h = ((u128)0x6c62272e07bb0142u << 64) | 0x62b821756295c58du;
  const unsigned char *p = bytes;
  for (size_t i = 0; i < n; i += sizeof(uint64_t)) {
    /* The bytes as they lie: hashes of words differ between byte orders. */
    uint64_t word = 0;
    memcpy(&word, p + i, NEAP_MIN(n - i, sizeof word));
    h = (h ^ word) * prime;
  }
  h = (h ^ n) * prime;
  return (neap_hash){(uint64_t)(h >> 64), (uint64_t)h};
}

/* 32 hexadecimal digits and a zero: the high word first. */
void neap_hash_text(neap_hash hash, char text[33]) {
  snprintf(text, 33, "%016" PRIx64 "%016" PRIx64, hash.high, hash.low);
}
