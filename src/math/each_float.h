/* math/each_float.h: includes the file NEAP_BODY once for each type that floats are computed in,
 * with T that type and OF(name) the name's form for it: name_f32, name_f64.
 *
 *     #define NEAP_BODY "ops/softmax_body.h"
 *     #include "math/each_float.h"
 *
 * So a body is written once, as code that a debugger steps through. What it calls by OF is for its
 * own type; elementary functions take either type (math/vec.h, tgmath.h). f32 computes for bf16 and
 * f16 too: their elements are widened on the way in and rounded on the way out.
 */
#define T float
#define OF(name) NEAP_JOIN(name, _f32)
#include NEAP_BODY
#undef T
#undef OF

#define T double
#define OF(name) NEAP_JOIN(name, _f64)
#include NEAP_BODY
#undef T
#undef OF

#undef NEAP_BODY
