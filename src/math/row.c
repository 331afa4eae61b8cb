/* row.c: reductions over one dense row. See row.h. */
#include "math/row.h"

#include "math/vec.h"

enum { COLUMNS = 1024 }; /* of rows that are added up: their sums fit the first-level cache */

#define NEAP_BODY "math/row_body.h"
#include "math/each_float.h"
