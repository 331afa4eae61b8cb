/* ops/cumulative_extreme_loops.h: the loops EXTREME of CumMax or CumMin for all types
 * (cumulative.c), by the comparison BEATS. Ends both. */
#define IS_NAN(x) ((x) != (x))
#define NEAP_BODY "ops/cumulative_extreme_body.h"
#include "math/each_element.h"
#undef IS_NAN
#define IS_NAN(x) false
#define E T
#define WIDEN(element) (element)
#define NEAP_BODY "ops/cumulative_extreme_body.h"
#include "math/each_integer.h"
#undef IS_NAN
#undef WIDEN
#undef E
#undef EXTREME
#undef BEATS
