/* ops/cumulative_loops.h: the loops CUMULATIVE of CumSum or CumProd for all types (cumulative.c),
 * by OPERATION from NEUTRAL on. Ends the three. */
#define U double
#define NEAP_BODY "ops/cumulative_body.h"
#include "math/each_element.h"
#undef U
#define U uint64_t
#define E T
#define WIDEN(element) (element)
#define NARROW(number) (number)
#define NEAP_BODY "ops/cumulative_body.h"
#include "math/each_integer.h"
#undef U
#undef E
#undef WIDEN
#undef NARROW
#undef CUMULATIVE
#undef OPERATION
#undef NEUTRAL
