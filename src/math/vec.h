/* math/vec.h: what vector kernels share: elementary functions that the compiler vectorises.
 *
 * Functions marked NEAP_MULTIVERSION (base.h) are plain loops over restrict pointers. The
 * elementary functions below are branch-free, so that a loop calling them becomes vector code;
 * their errors are stated beside them. No -ffast-math anywhere.
 */
#ifndef NEAP_MATH_VEC_H
#define NEAP_MATH_VEC_H

#include "base/base.h"

#include <math.h>
#include <string.h>

/* exp(x), error below 2 ulp on [-87.3, 88.7]; 0 below, infinity above. Range reduction by ln 2 in
 * two parts (Cody and Waite), then a polynomial of degree 7 on [-ln2/2, ln2/2]. */
static inline float neap_exp_f32(float x) {
  /* NaN becomes a bound */
  float most = x > -87.33654f ? x : -87.33654f, clamped = most < 88.72283f ? most : 88.72283f;

  /* x = n ln 2 + r with |r| <= ln 2 / 2. ln 2 is taken off in two parts: the product of n and the
   * first, which has few bits, is exact. */
  float n = rintf(clamped * 1.44269504f);
  float r = clamped - n * 0.693359375f + n * 2.12194440e-4f;

  /* exp(r) = 1 + r + r^2 P(r), by Horner's rule; coefficients as in Cephes' expf. */
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

  /* Selects, no branches: vector code computes all three and picks one. */
  float y = p * a * b;
  y = x < -87.33654f ? 0.0f : y;
  y = x > 88.72283f ? INFINITY : y;
  return x != x ? x : y;
}

/* exp(x) = scale (1 + more) for x <= 0 down to -87.3, as neap_exp_f32 has it; below, it is that of
 * -87.3; NaN gives NaN. The rounding of x / ln 2 is that of adding 1.5 2^23, whose low bits then
 * hold the integer: no conversion, so NaN needs no care. */
typedef struct neap_exp_parts {
  float scale, more;
} neap_exp_parts;

static inline neap_exp_parts neap_exp_nonpositive_f32(float x) {
  const float magic = 12582912.0f;
  float most = -87.33654f > x ? -87.33654f : x, shifted = most * 1.44269504f + magic,
        n = shifted - magic;
  float r = most - n * 0.693359375f + n * 2.12194440e-4f, p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;

  neap_exp_parts parts = {.more = p * (r * r) + r};

  /* The low bits of `shifted` are n; moved to the exponent, with the bias of 127 added, they are
   * 2^n. */
  uint32_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  bits = (bits << 23) + 0x3f800000u;
  memcpy(&parts.scale, &bits, sizeof bits);
  return parts;
}

/* tanh(|x|) = -m / (2 + m) with m = exp(-2|x|) - 1, which the parts give without cancellation.
 * Error below 3 ulp. */
static inline float neap_tanh_f32(float x) {
  neap_exp_parts e = neap_exp_nonpositive_f32(-2.0f * fabsf(x));
  float m = e.scale * e.more + (e.scale - 1.0f);
  return copysignf(m / (2.0f + m), x);
}

/* 1 / (1 + exp(-x)), by the exponential of -|x|, which can't overflow. Error below 3 ulp; 0 below
 * -87.3. */
static inline float neap_sigmoid_f32(float x) {
  float a = -fabsf(x);
  neap_exp_parts e = neap_exp_nonpositive_f32(a);
  float y = e.scale * e.more + e.scale;
  y = a < -87.33654f ? 0.0f : y;
  return (x < 0.0f ? y : 1.0f) / (1.0f + y);
}
/* erf(x): an odd polynomial below 0.92, above it 1 - exp(-P(|x|)) with P fitted to -log erfc on
 * [0.9, 4], from where on erf is 1 in f32. Error below 3 ulp. */
static inline float neap_erf_f32(float x) {
  float a = fabsf(x), s = a * a, b = a > 4.0f ? 4.0f : a;
  float near = s * (5.201837673e-03f + s * (-8.151340567e-04f + s * 8.404849603e-05f));
  near = s * (1.128370225e-01f + s * (-2.685974483e-02f + near));
  near = a * (1.128379167e+00f + s * (-3.761263422e-01f + near));
  float far = b * (4.458500148e-03f +
                   b * (-5.212258781e-04f + b * (3.559396167e-05f + b * -1.025399832e-06f)));
  far = b * (6.327987300e-01f + b * (1.090015329e-01f + b * (-2.569688467e-02f + far)));
  far = -2.165846509e-04f + b * (1.129746873e+00f + far);
  float y = a < 0.92f ? near : 1.0f - neap_exp_f32(-far);
  return copysignf(y, x);
}

static inline double neap_sigmoid_f64(double x) { return 1.0 / (1.0 + exp(-x)); }

/* Each by the type of x, for code that is written once for both. */
#define NEAP_BY_TYPE(f32, f64, x) _Generic((x), float : f32, double : f64)(x)
#define neap_exp(x) NEAP_BY_TYPE(neap_exp_f32, exp, x)
#define neap_tanh(x) NEAP_BY_TYPE(neap_tanh_f32, tanh, x)
#define neap_sigmoid(x) NEAP_BY_TYPE(neap_sigmoid_f32, neap_sigmoid_f64, x)
#define neap_erf(x) NEAP_BY_TYPE(neap_erf_f32, erf, x)

#endif
