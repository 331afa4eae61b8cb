/* math/each_integer.h: as each_float.h, for the integers: name_i8, name_u8, ... */
#define T int8_t
#define OF(name) NEAP_JOIN(name, _i8)
#include NEAP_BODY
#undef T
#undef OF

#define T uint8_t
#define OF(name) NEAP_JOIN(name, _u8)
#include NEAP_BODY
#undef T
#undef OF

#define T int16_t
#define OF(name) NEAP_JOIN(name, _i16)
#include NEAP_BODY
#undef T
#undef OF

#define T uint16_t
#define OF(name) NEAP_JOIN(name, _u16)
#include NEAP_BODY
#undef T
#undef OF

#define T int32_t
#define OF(name) NEAP_JOIN(name, _i32)
#include NEAP_BODY
#undef T
#undef OF

#define T int64_t
#define OF(name) NEAP_JOIN(name, _i64)
#include NEAP_BODY
#undef T
#undef OF

#undef NEAP_BODY
