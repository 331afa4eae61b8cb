/* cast.c: dense casts and the scalar conversions of the halves.
 *
 * Any pair goes through a small buffer of the wide type (tensor_int.h): 11 loops to widen and 22 to
 * narrow instead of 121. The pairs with f32, which training and data loading use, have loops of
 * their own. Their results are the same bits.
 */
#include "tensor/tensor_int.h"

enum { CHUNK = 512 }; /* elements widened at a time: 4 KiB, well inside the first cache */

/* Casts n elements; `out` and `in` are dense and apart. */
typedef void cast_loop(void *restrict out, const void *restrict in, int64_t n);

/* Other rooms see the scalar conversions as functions; loops here inline them. */
float neap_bf16_to_f32(uint16_t x) { return bf16_to_f32(x); }
uint16_t neap_f32_to_bf16(float x) { return f32_to_bf16(x); }
float neap_f16_to_f32(uint16_t x) { return f16_to_f32(x); }
uint16_t neap_f32_to_f16(float x) { return f32_to_f16(x); }

/* A loop `name` over n elements: out[i] = expression of x = in[i]. */
#define LOOP(name, out_type, in_type, expression)                                              \
  NEAP_MULTIVERSION static void name(void *restrict out, const void *restrict in, int64_t n) { \
    out_type *restrict y = out;                                                                \
    const in_type *restrict from = in;                                                         \
    for (int64_t i = 0; i < n; i++) {                                                          \
      in_type x = from[i];                                                                     \
      y[i] = (expression);                                                                     \
    }                                                                                          \
  }

/* The wide types by the name that NEAP_ELEMENT_MAP gives them. */
typedef double wide_f64;
typedef int64_t wide_i64;

/* One loop to the wide type for each dtype, and two back, one from either wide type. */
#define X(symbol, name, type, wide)                           \
  LOOP(widen_##name, wide_##wide, type, name##_to_wide(x))    \
  LOOP(narrow_##name##_f64, type, double, name##_from_f64(x)) \
  LOOP(narrow_##name##_i64, type, int64_t, name##_from_i64(x))
NEAP_ELEMENT_MAP(X)
#undef X

/* By dtype: to its wide type. Exact. */
static cast_loop *const widen[NEAP_N_DTYPE] = {
#define X(symbol, name, type, wide) [NEAP_DTYPE_##symbol] = widen_##name,
  NEAP_ELEMENT_MAP(X)
#undef X
};

/* Second index of `narrow`: the wide type of the source dtype. */
enum { FROM_F64, FROM_I64 };

/* By dtype and wide type: from the wide type, with the one rounding. */
static cast_loop *const narrow[NEAP_N_DTYPE][2] = {
#define X(symbol, name, type, wide) \
  [NEAP_DTYPE_##symbol] = {narrow_##name##_f64, narrow_##name##_i64},
  NEAP_ELEMENT_MAP(X)
#undef X
};

/* f32 rounded and kept within bounds that f32 holds exactly; 0 for NaN. */
static inline float integral_within_f32(float x, float low, float high) {
  float y = rintf(x);
  y = y < low ? low : y;
  y = y > high ? high : y;
  return x != x ? 0 : y;
}

/* The direct pairs. f32 to i32 goes by f64, since f32 does not hold the largest i32. */
LOOP(f32_to_f64, double, float, x)
LOOP(f32_to_bf16_loop, uint16_t, float, f32_to_bf16(x))
LOOP(f32_to_f16_loop, uint16_t, float, f32_to_f16(x))
LOOP(f32_to_i8, int8_t, float, (int8_t)(int32_t)integral_within_f32(x, INT8_MIN, INT8_MAX))
LOOP(f32_to_u8, uint8_t, float, (uint8_t)(int32_t)integral_within_f32(x, 0, UINT8_MAX))
LOOP(f32_to_i16, int16_t, float, (int16_t)(int32_t)integral_within_f32(x, INT16_MIN, INT16_MAX))
LOOP(f32_to_u16, uint16_t, float, (uint16_t)(int32_t)integral_within_f32(x, 0, UINT16_MAX))
LOOP(f32_to_i32, int32_t, float, i32_from_f64((double)x))
LOOP(f32_to_i64, int64_t, float, i64_from_f64((double)x))
LOOP(f32_to_bool, uint8_t, float, x != 0)
LOOP(f64_to_f32, float, double, (float)x)
LOOP(bf16_to_f32_loop, float, uint16_t, bf16_to_f32(x))
LOOP(f16_to_f32_loop, float, uint16_t, f16_to_f32(x))
LOOP(i8_to_f32, float, int8_t, x)
LOOP(u8_to_f32, float, uint8_t, x)
LOOP(i16_to_f32, float, int16_t, x)
LOOP(u16_to_f32, float, uint16_t, x)
LOOP(i32_to_f32, float, int32_t, (float)x)
LOOP(i64_to_f32, float, int64_t, (float)x)
LOOP(bool_to_f32, float, uint8_t, x != 0)

/* By the other dtype of the pair. */
static cast_loop *const from_f32[NEAP_N_DTYPE] = {
  [NEAP_DTYPE_F64] = f32_to_f64,      [NEAP_DTYPE_BF16] = f32_to_bf16_loop,
  [NEAP_DTYPE_F16] = f32_to_f16_loop, [NEAP_DTYPE_I8] = f32_to_i8,
  [NEAP_DTYPE_U8] = f32_to_u8,        [NEAP_DTYPE_I16] = f32_to_i16,
  [NEAP_DTYPE_U16] = f32_to_u16,      [NEAP_DTYPE_I32] = f32_to_i32,
  [NEAP_DTYPE_I64] = f32_to_i64,      [NEAP_DTYPE_BOOL] = f32_to_bool,
};

static cast_loop *const to_f32[NEAP_N_DTYPE] = {
  [NEAP_DTYPE_F64] = f64_to_f32,      [NEAP_DTYPE_BF16] = bf16_to_f32_loop,
  [NEAP_DTYPE_F16] = f16_to_f32_loop, [NEAP_DTYPE_I8] = i8_to_f32,
  [NEAP_DTYPE_U8] = u8_to_f32,        [NEAP_DTYPE_I16] = i16_to_f32,
  [NEAP_DTYPE_U16] = u16_to_f32,      [NEAP_DTYPE_I32] = i32_to_f32,
  [NEAP_DTYPE_I64] = i64_to_f32,      [NEAP_DTYPE_BOOL] = bool_to_f32,
};

/* Casts n elements from `in` to `out`, dense and apart. Float dtypes widen to f64, the others to
 * i64, which is exact; the one rounding is that to the target. Runs on the calling thread:
 * neap_tensor_copy splits large casts, and a kernel knows its own threads. */
void neap_cast(neap_dtype to, void *out, neap_dtype from, const void *in, int64_t n) {
  if (n <= 0) return;
  /* No cast: the same bits, NaN's too. */
  if (to == from) {
    memcpy(out, in, (size_t)n * neap_dtype_bytes(to));
    return;
  }
  /* Pairs with f32 go in one step; the others through a chunk of the widest type. */
  cast_loop *direct = NULL;
  if (from == NEAP_DTYPE_F32)
    direct = from_f32[to];
  else if (to == NEAP_DTYPE_F32)
    direct = to_f32[from];
  if (direct != NULL) {
    direct(out, in, n);
    return;
  }
  union {
    double f64[CHUNK];
    int64_t i64[CHUNK];
  } wide;
  /* There and back through the buffer, a chunk at a time: the chunk stays in the first cache. */
  cast_loop *last = narrow[to][neap_dtype_is_float(from) ? FROM_F64 : FROM_I64];
  size_t from_bytes = neap_dtype_bytes(from), to_bytes = neap_dtype_bytes(to);
  for (int64_t i = 0; i < n; i += CHUNK) {
    int64_t part = NEAP_MIN(n - i, (int64_t)CHUNK);
    widen[from](&wide, (const char *)in + (size_t)i * from_bytes, part);
    last((char *)out + (size_t)i * to_bytes, &wide, part);
  }
}
