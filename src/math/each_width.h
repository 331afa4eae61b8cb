/* math/each_width.h: as each_float.h, for what moves elements and does not read them: once for each
 * number of bytes that an element may have. T is an unsigned type of that width, and OF(name) the
 * name's form: name_1, name_2, name_4, name_8.
 *
 * Several elements may go as one wider one, and whatever they are is moved as integers: T need not
 * be aligned, and may be another type's bytes.
 */
typedef uint16_t __attribute__((aligned(1), may_alias)) neap_width_2;
typedef uint32_t __attribute__((aligned(1), may_alias)) neap_width_4;
typedef uint64_t __attribute__((aligned(1), may_alias)) neap_width_8;

#define T uint8_t
#define OF(name) NEAP_JOIN(name, _1)
#include NEAP_BODY
#undef T
#undef OF

#define T neap_width_2
#define OF(name) NEAP_JOIN(name, _2)
#include NEAP_BODY
#undef T
#undef OF

#define T neap_width_4
#define OF(name) NEAP_JOIN(name, _4)
#include NEAP_BODY
#undef T
#undef OF

#define T neap_width_8
#define OF(name) NEAP_JOIN(name, _8)
#include NEAP_BODY
#undef T
#undef OF

#undef NEAP_BODY
