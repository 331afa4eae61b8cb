/* math/each_element.h: as each_float.h, once for each type that floats are stored in: E is that
 * type, T the one computed in, and OF(name) the name's form: name_f32, name_f64, name_bf16,
 * name_f16. WIDEN makes a T of an element; NARROW an element of a T, rounded once. For bodies that
 * walk elements in any order; what takes runs of them is faster in tiles (ops/tile.h).
 */
#define T float
#define E float
#define WIDEN(element) (element)
#define NARROW(number) (number)
#define OF(name) NEAP_JOIN(name, _f32)
#include NEAP_BODY
#undef OF
#undef E
#undef T

#define T double
#define E double
#define OF(name) NEAP_JOIN(name, _f64)
#include NEAP_BODY
#undef OF
#undef NARROW
#undef WIDEN
#undef E
#undef T

#define T float
#define E uint16_t
#define WIDEN(element) neap_bf16_to_f32(element)
#define NARROW(number) neap_f32_to_bf16(number)
#define OF(name) NEAP_JOIN(name, _bf16)
#include NEAP_BODY
#undef OF
#undef NARROW
#undef WIDEN

#define WIDEN(element) neap_f16_to_f32(element)
#define NARROW(number) neap_f32_to_f16(number)
#define OF(name) NEAP_JOIN(name, _f16)
#include NEAP_BODY
#undef OF
#undef NARROW
#undef WIDEN
#undef E
#undef T

#undef NEAP_BODY
