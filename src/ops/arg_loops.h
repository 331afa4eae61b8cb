/* ops/arg_loops.h: the loops ARG of ArgMax or ArgMin for all types (extreme.c), by the comparison
 * BEATS. Integers have no NaN, and are compared as they are. Ends ARG and BEATS. */
#define IS_NAN(x) ((x) != (x))
#define NEAP_BODY "ops/arg_body.h"
#include "math/each_element.h"
#undef IS_NAN
#define IS_NAN(x) false
#define E T
#define WIDEN(element) (element)
#define NEAP_BODY "ops/arg_body.h"
#include "math/each_integer.h"
#undef IS_NAN
#undef WIDEN
#undef E
#undef ARG
#undef BEATS
