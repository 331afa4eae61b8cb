/* tensor_int.h: how one number becomes another; private to this room.
 *
 * Every conversion is an exact widening followed by at most one rounding. The wide types are f64
 * for f32, bf16, f16 and f64 itself, and i64 for the integers and bool: to_wide is exact, from_f64
 * and from_i64 round or saturate once. All are inline and free of branches where it matters, so
 * that loops over them become vector code.
 *
 * Rules: float to integer goes to nearest even, saturates, and makes NaN 0; integers saturate; to
 * bool is "not 0" (NaN is true, as in C); to bf16 and f16 goes to nearest even, with overflow to
 * infinity and NaN kept quiet.
 */
#ifndef NEAP_TENSOR_INT_H
#define NEAP_TENSOR_INT_H

#include "tensor/tensor.h"

#include <math.h>
#include <string.h>

/* X(symbol, lower-case name, C type, wide) over the dtypes: `wide` is the type that holds each of
 * its values exactly. */
#define NEAP_ELEMENT_MAP(X)    \
  X(F32, f32, float, f64)      \
  X(F64, f64, double, f64)     \
  X(BF16, bf16, uint16_t, f64) \
  X(F16, f16, uint16_t, f64)   \
  NEAP_EACH_INTEGER(X, i64)    \
  X(BOOL, bool, uint8_t, i64)

static inline uint32_t f32_bits(float x) {
  uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  return bits;
}

static inline float f32_from_bits(uint32_t bits) {
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}

/* ---- the halves ------------------------------------------------------------------------------ */

static inline float bf16_to_f32(uint16_t x) { return f32_from_bits((uint32_t)x << 16); }

static inline uint16_t f32_to_bf16(float x) {
  uint32_t u = f32_bits(x);
  /* a carry out of the significand gives the next exponent */
  uint32_t rounded = (u + 0x7fff + (u >> 16 & 1)) >> 16;
  uint32_t quiet = u >> 16 | 0x40;
  return (uint16_t)((u & 0x7fffffff) > 0x7f800000 ? quiet : rounded);
}

/* f16 has 5 exponent bits (bias 15) and 10 of significand. A subnormal is its significand times
 * 2^-24: an integer conversion, so that the result does not depend on whether the processor flushes
 * subnormals to zero. */
static inline float f16_to_f32(uint16_t x) {
  uint32_t sign = (uint32_t)(x & 0x8000) << 16, magnitude = x & 0x7fff;
  /* infinity and NaN keep an exponent of ones */
  uint32_t rebias = magnitude < 0x7c00 ? 112u << 23 : 224u << 23;
  uint32_t normal = (magnitude << 13) + rebias;
  uint32_t subnormal = f32_bits((float)(int32_t)magnitude * 0x1p-24f);
  return f32_from_bits(sign | (magnitude < 0x0400 ? subnormal : normal));
}

/* Below 2^-14, adding 0.5, whose last place is 2^-24, makes the processor round to the grid of
 * f16's subnormals. */
static inline uint16_t f32_to_f16(float x) {
  /* Above: the exponent less the 112 that the biases differ by, rounded to nearest even at bit
   * 13. */
  uint32_t u = f32_bits(x), sign = u >> 16 & 0x8000, magnitude = u & 0x7fffffff;
  uint32_t normal = (magnitude + 0xfff + (magnitude >> 13 & 1) - (112u << 23)) >> 13;
  /* from 65536 on; 65520 to there carries to infinity above */
  normal = magnitude >= 0x47800000 ? 0x7c00 : normal;
  uint32_t subnormal = f32_bits(f32_from_bits(magnitude) + 0.5f) - f32_bits(0.5f);
  uint32_t rounded = magnitude < 0x38800000 ? subnormal : normal;
  uint32_t quiet = 0x7e00 | (magnitude >> 13 & 0x3ff);
  return (uint16_t)(sign | (magnitude > 0x7f800000 ? quiet : rounded));
}

/* f32 with the last bit set when x is not exactly an f32 ("rounding to odd"): rounding this again
 * to a narrower format gives what one rounding from x would (Boldo and Melquiond, IEEE TC 2008). */
static inline float f64_to_f32_odd(double x) {
  /* (float)x is one of the two neighbours of x; towards zero and with the last bit set, it stands
   * for all that lies between them. */
  float near = (float)x;
  uint32_t u = f32_bits(near);
  u -= fabs((double)near) > fabs(x); /* back towards zero; infinity becomes the largest finite */
  u |= (double)near != x;
  return x != x ? near : f32_from_bits(u);
}

/* The same for i64: above 2^53, the bits below the 53 that f64 surely keeps become one sticky
 * bit. */
static inline double i64_to_f64_odd(int64_t x) {
  uint64_t magnitude = x < 0 ? 0 - (uint64_t)x : (uint64_t)x;
  uint64_t sticky = (magnitude & ~(uint64_t)0x7ff) | (uint64_t)((magnitude & 0x7ff) != 0) << 11;
  double y = (double)(magnitude > (uint64_t)1 << 53 ? sticky : magnitude);
  return x < 0 ? -y : y;
}

/* ---- exact: to the wide type ----------------------------------------------------------------- */

static inline double f32_to_wide(float x) { return x; }
static inline double f64_to_wide(double x) { return x; }
static inline double bf16_to_wide(uint16_t x) { return bf16_to_f32(x); }
static inline double f16_to_wide(uint16_t x) { return f16_to_f32(x); }
static inline int64_t i8_to_wide(int8_t x) { return x; }
static inline int64_t u8_to_wide(uint8_t x) { return x; }
static inline int64_t i16_to_wide(int16_t x) { return x; }
static inline int64_t u16_to_wide(uint16_t x) { return x; }
static inline int64_t i32_to_wide(int32_t x) { return x; }
static inline int64_t i64_to_wide(int64_t x) { return x; }
/* files may hold other values than 1 */
static inline int64_t bool_to_wide(uint8_t x) { return x != 0; }

/* ---- one rounding: from the wide type -------------------------------------------------------- */

static inline float f32_from_f64(double x) { return (float)x; }
static inline double f64_from_f64(double x) { return x; }
static inline uint16_t bf16_from_f64(double x) { return f32_to_bf16(f64_to_f32_odd(x)); }
static inline uint16_t f16_from_f64(double x) { return f32_to_f16(f64_to_f32_odd(x)); }
static inline uint8_t bool_from_f64(double x) { return x != 0; }

/* x rounded and kept within [low, high], which f64 holds exactly; 0 for NaN. */
static inline double integral_within(double x, double low, double high) {
  double y = rint(x);
  y = y < low ? low : y;
  y = y > high ? high : y;
  return x != x ? 0 : y;
}

static inline int8_t i8_from_f64(double x) {
  return (int8_t)(int32_t)integral_within(x, INT8_MIN, INT8_MAX);
}
static inline uint8_t u8_from_f64(double x) {
  return (uint8_t)(int32_t)integral_within(x, 0, UINT8_MAX);
}
static inline int16_t i16_from_f64(double x) {
  return (int16_t)(int32_t)integral_within(x, INT16_MIN, INT16_MAX);
}
static inline uint16_t u16_from_f64(double x) {
  return (uint16_t)(int32_t)integral_within(x, 0, UINT16_MAX);
}
static inline int32_t i32_from_f64(double x) {
  return (int32_t)integral_within(x, INT32_MIN, INT32_MAX);
}
static inline int64_t i64_from_f64(double x) {
  if (x >= 0x1p63) return INT64_MAX; /* which f64 does not hold */
  return (int64_t)integral_within(x, -0x1p63, 0x1.fffffffffffffp62);
}

static inline float f32_from_i64(int64_t x) { return (float)x; }
static inline double f64_from_i64(int64_t x) { return (double)x; }
static inline uint16_t bf16_from_i64(int64_t x) { return bf16_from_f64(i64_to_f64_odd(x)); }
static inline uint16_t f16_from_i64(int64_t x) { return f16_from_f64(i64_to_f64_odd(x)); }
static inline int8_t i8_from_i64(int64_t x) {
  return (int8_t)NEAP_MAX(NEAP_MIN(x, INT8_MAX), INT8_MIN);
}
static inline uint8_t u8_from_i64(int64_t x) {
  return (uint8_t)NEAP_MAX(NEAP_MIN(x, UINT8_MAX), 0);
}
static inline int16_t i16_from_i64(int64_t x) {
  return (int16_t)NEAP_MAX(NEAP_MIN(x, INT16_MAX), INT16_MIN);
}
static inline uint16_t u16_from_i64(int64_t x) {
  return (uint16_t)NEAP_MAX(NEAP_MIN(x, UINT16_MAX), 0);
}
static inline int32_t i32_from_i64(int64_t x) {
  return (int32_t)NEAP_MAX(NEAP_MIN(x, INT32_MAX), INT32_MIN);
}
static inline int64_t i64_from_i64(int64_t x) { return x; }
static inline uint8_t bool_from_i64(int64_t x) { return x != 0; }

#endif
