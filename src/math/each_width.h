/* math/each_width.h: as each_float.h, for what moves elements and does not read them: once for each
 * number of bytes that an element may have. T is an unsigned type of that width, and OF(name) the
 * name's form: name_1, name_2, name_4, name_8.
 */
#define T uint8_t
#define OF(name) NEAP_JOIN(name, _1)
#include NEAP_BODY
#undef T
#undef OF

#define T uint16_t
#define OF(name) NEAP_JOIN(name, _2)
#include NEAP_BODY
#undef T
#undef OF

#define T uint32_t
#define OF(name) NEAP_JOIN(name, _4)
#include NEAP_BODY
#undef T
#undef OF

#define T uint64_t
#define OF(name) NEAP_JOIN(name, _8)
#include NEAP_BODY
#undef T
#undef OF

#undef NEAP_BODY
