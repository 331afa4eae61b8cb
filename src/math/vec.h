/* math/vec.h: what vector kernels share: elementary functions that the compiler vectorises.
 *
 * Functions marked NEAP_MULTIVERSION (base.h) are plain loops over restrict pointers. The elementary functions below are
 * branch-free, so that a loop calling them becomes vector code; their errors are stated beside them. No -ffast-math
 * anywhere.
 */
#ifndef NEAP_MATH_VEC_H
#define NEAP_MATH_VEC_H

#include "base/base.h"

#include <math.h>
#include <string.h>

/* exp(x), error below 2 ulp on [-87.3, 88.7]; 0 below, infinity above. Range reduction by ln 2 in two parts (Cody and
 * Waite), then a polynomial of degree 6 on [-ln2/2, ln2/2]. */
static inline float neap_exp_f32(float x) {
  float clamped = x < -87.33654f ? -87.33654f : x > 88.72283f ? 88.72283f : x;
  float n = rintf(clamped * 1.44269504f);
  float r = clamped - n * 0.693359375f + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  /* 2^n in two factors, so that n = 128 does not overflow before it must */
  int32_t k = (int32_t)n, half = k / 2;
  int32_t ia = (half + 127) << 23, ib = (k - half + 127) << 23;
  float a, b;
  memcpy(&a, &ia, sizeof a);
  memcpy(&b, &ib, sizeof b);
  float y = p * a * b;
  y = x < -87.33654f ? 0.0f : y;
  y = x > 88.72283f ? INFINITY : y;
  return x != x ? x : y;
}

/* tanh(x) through exp(-2|x|); a short series near 0, where that would cancel. Error below 4 ulp. */
static inline float neap_tanh_f32(float x) {
  float a = fabsf(x), e = neap_exp_f32(-2.0f * a);
  float far = (1.0f - e) / (1.0f + e);
  float s = x * x;
  float near = a * (1.0f + s * (-0.333333333f + s * (0.133333333f + s * (-0.0539682540f + s * 0.0218694885f))));
  float y = a < 0.3f ? near : far;
  return copysignf(y, x);
}

static inline float neap_sigmoid_f32(float x) { return 1.0f / (1.0f + neap_exp_f32(-x)); }

#endif
