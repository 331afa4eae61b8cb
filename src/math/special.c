/* special.c: see special.h. */
#include "math/special.h"

#include "base/base.h"

#include <math.h>

static const double pi = 3.14159265358979323846;

/* The variant that leaves no sign behind in a global, so that threads may call it. */
double neap_lgamma(double x) {
  int sign;
  return lgamma_r(x, &sign);
}

/* sin(pi x) without the rounding of pi x: what is left of x by its even integer is exact. */
static double sin_pi(double x) {
  double rest = x - 2 * rint(x / 2);
  /* To [-1/2, 1/2], where the product is small: sin(pi - a) = sin(a). */
  if (fabs(rest) > 0.5) rest = copysign(1, rest) - rest;
  return sin(pi * rest);
}

double neap_sinc(double x) { return x == 0 ? 1 : sin_pi(x) / (pi * x); }

/* ---- gamma ----------------------------------------------------------------------------------- */

/* pi cot(pi x), x no integer. */
static double pi_cot_pi(double x) {
  double rest = x - rint(x);
  return pi / tan(pi * rest);
}

/* Abramowitz and Stegun 6.3: what is left of 0 by reflection (6.3.7), up to 10 by recurrence
 * (6.3.5), from there the asymptotic series (6.3.18), whose next term is below 5e-17. */
double neap_digamma(double x) {
  /* B_2k / 2k */
  static const double series[] = {1.0 / 12,  -1.0 / 120,     1.0 / 252, -1.0 / 240,
                                  1.0 / 132, -691.0 / 32760, 1.0 / 12};
  /* A pole at 0 and at each negative integer; only at 0 does the sign of x say from which side. */
  if (x == 0) return copysign(INFINITY, -x);
  if (x < 0) return x == floor(x) ? NAN : neap_digamma(1 - x) - pi_cot_pi(x);
  double sum = 0;
  for (; x < 10; x++) sum -= 1 / x;
  if (x == INFINITY) return x;

  double square = 1 / (x * x), power = square;
  double tail = 0;
  for (int k = 0; k < NEAP_COUNT(series); k++) {
    tail += series[k] * power;
    power *= square;
  }
  return sum + (log(x) - 0.5 / x - tail);
}

/* The Hurwitz zeta function, sum over k of (k + a)^-s, for a > 0: the first terms as they are, the
 * others by Euler and Maclaurin's formula. */
static double zeta_of(int s, double a) {
  /* B_2k / (2k)! */
  static const double series[] = {1.0 / 12,
                                  -1.0 / 720,
                                  1.0 / 30240,
                                  -1.0 / 1209600,
                                  1.0 / 47900160,
                                  -691.0 / 1307674368000.0,
                                  1.0 / 74724249600.0,
                                  -3617.0 / 10670622842880000.0};
  double sum = 0;
  /* Far enough out that the factors of s below do not outgrow the powers. */
  for (; a < 10 + s; a++) {
    double term = pow(a, -s);
    sum += term;
    if (term < 0x1p-60 * sum) return sum;
  }

  /* What is left is the integral from a on, half the first term, and corrections by the derivatives
   * there. */
  double power = pow(a, -s);
  sum += power * a / (s - 1) + power / 2;
  double factor = s;
  /* In round k the sum takes B_2k+2 / (2k + 2)! times s (s + 1) .. (s + 2k) times a^(-s - 2k -
   * 1). */
  for (int k = 0; k < NEAP_COUNT(series); k++) {
    power /= a;
    sum += series[k] * factor * power;
    power /= a;
    factor *= (double)(s + 2 * k + 1) * (s + 2 * k + 2);
  }
  return sum;
}

/* Left of 0 what is missing between two sums that begin right of it: the sum over all integers,
 * which repeats itself from 1 to 1, less the part right of 1 - x. */
static double zeta(int s, double x) {
  if (x > 0) return x == INFINITY ? 0 : zeta_of(s, x);
  if (x == floor(x)) return x == -INFINITY ? NAN : INFINITY;
  /* How far the integers beside x are. */
  double below = x - floor(x), above = ceil(x) - x;
  double mirrored = zeta_of(s, above) - zeta_of(s, 1 - x);
  return zeta_of(s, below) + (s % 2 == 0 ? mirrored : -mirrored);
}

/* Abramowitz and Stegun 6.4.10. */
double neap_polygamma(int n, double x) {
  if (n == 0) return neap_digamma(x);
  if (x != x) return x;
  double size = tgamma(n + 1.0) * zeta(n + 1, x);
  return n % 2 == 0 ? -size : size;
}

/* ---- the error function ---------------------------------------------------------------------- */

/* Winitzki's approximation, right to 2e-3, then Halley's method, which makes of an error its third
 * power. In the outer half the complement is compared, which keeps its digits; 1 - |y| is exact
 * there. */
double neap_erfinv(double y) {
  double size = fabs(y);
  if (!(size < 1)) return size == 1 ? copysign(INFINITY, y) : NAN;
  const double half_root_pi = 0.88622692545275801365;
  /* Below 1e-8 the first term of the series is all that a double holds. */
  if (size < 1e-8) return y * half_root_pi;
  const double a = 0.147;
  double l = log((1 - size) * (1 + size)), b = 2 / (pi * a) + l / 2;
  double x = sqrt(-l / a / (sqrt(b * b - l / a) + b));
  for (int i = 0; i < 3; i++) {
    double over = size < 0.5 ? erf(x) - size : (1 - size) - erfc(x);
    double step = over * half_root_pi * exp(x * x);
    x -= step / (1 + x * step);
  }
  return copysign(x, y);
}
