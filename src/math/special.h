/* math/special.h: functions that C does not have, of one number. All compute in double, which is
 * exact enough for any dtype after one rounding.
 */
#ifndef NEAP_MATH_SPECIAL_H
#define NEAP_MATH_SPECIAL_H

/* ln |gamma(x)|; infinite at 0 and the negative integers. Error below 6 ulp of 1 or of itself,
 * whichever is larger. */
double neap_lgamma(double x);
/* d/dx ln gamma(x). At 0 infinite, with the sign that it has on the other side; NaN at the
 * negative integers. Error as above. */
double neap_digamma(double x);
/* The n-th derivative of digamma, n >= 0. From n = 1 on infinite at 0 and the negative integers. */
double neap_polygamma(int n, double x);
/* x with erf(x) = y; infinite at -1 and 1, NaN beyond. Error below 4 ulp. */
double neap_erfinv(double y);
/* sin(pi x) / (pi x), 1 at 0 and exactly 0 at the other integers. */
double neap_sinc(double x);

#endif
