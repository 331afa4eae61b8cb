/* test_tensor.c: shapes, views, casts, copies and text, each against something slower and
 * plainer. */
#include "check.h"
#include "tensor/tensor.h"

#include <stdlib.h>

/* ---- helpers --------------------------------------------------------------------------------- */

static unsigned random_state = 1;
static unsigned next_random(void) {
  random_state = random_state * 1664525u + 1013904223u;
  return random_state >> 8;
}

static const neap_dtype all_dtypes[] = {NEAP_DTYPE_F32, NEAP_DTYPE_F64, NEAP_DTYPE_BF16,
                                        NEAP_DTYPE_F16, NEAP_DTYPE_I8,  NEAP_DTYPE_U8,
                                        NEAP_DTYPE_I32, NEAP_DTYPE_I64, NEAP_DTYPE_BOOL};

static neap_tensor make(neap_dtype dtype, neap_shape shape) {
  neap_tensor t = {0};
  CHECK_OK(neap_tensor_new(&t, dtype, &shape, &error));
  return t;
}

/* 0, 1, 2, .. in the tensor's dtype. */
static neap_tensor count_up(neap_dtype dtype, neap_shape shape) {
  neap_tensor t = make(dtype, shape);
  for (int64_t i = 0; i < neap_tensor_elems(&t); i++)
    neap_element_set_i64(dtype, neap_tensor_data(&t), i, i);
  return t;
}

/* The element whose row-major number is `index`, found without any code under test but the
 * strides. */
static double at(const neap_tensor *t, int64_t index) {
  int64_t offset = 0;
  for (int i = t->shape.n_dim - 1; i >= 0; i--) {
    offset += index % t->shape.dim[i] * t->stride[i];
    index /= t->shape.dim[i];
  }
  return neap_element_get(t->dtype, neap_tensor_data(t), offset);
}

static bool text_is(const neap_tensor *t, const neap_print_options *options, const char *name,
                    const char *expected) {
  neap_buffer out = {0};
  neap_tensor_print(t, options, name, &out);
  bool same = strcmp(out.text, expected) == 0;
  if (!same) printf("  got:\n%s\n", out.text);
  neap_buffer_fini(&out);
  return same;
}

/* ---- dtype, shape, storage ------------------------------------------------------------------- */

TEST(dtypes_have_names_and_widths) {
  static const size_t bytes[] = {4, 8, 2, 2, 1, 1, 4, 8, 1};
  for (int i = 0; i < NEAP_COUNT(all_dtypes); i++) {
    CHECK_EQ(neap_dtype_bytes(all_dtypes[i]), bytes[i]);
    CHECK_EQ(neap_dtype_from_name(neap_dtype_name(all_dtypes[i])), all_dtypes[i]);
    CHECK(neap_dtype_in(all_dtypes[i], NEAP_ANY));
  }
  CHECK_EQ(neap_dtype_from_name("none"), NEAP_DTYPE_NONE);
  CHECK_EQ(neap_dtype_from_name("f33"), NEAP_DTYPE_NONE);
  CHECK_EQ(neap_dtype_bytes((neap_dtype)99), 0);
}

TEST(shapes_count_without_wrapping) {
  char text[NEAP_SHAPE_TEXT];
  neap_shape scalar = {0}, s = NEAP_SHAPE(64, 20, 24, 24), huge = NEAP_SHAPE(INT64_MAX, 2),
             empty = NEAP_SHAPE(INT64_MAX, 2, 0);
  CHECK_EQ(neap_shape_elems(&scalar), 1);
  CHECK_EQ(neap_shape_elems(&s), 64 * 20 * 24 * 24);
  CHECK_EQ(neap_shape_span(&s, 1, 3), 480);
  CHECK_EQ(neap_shape_elems(&huge), INT64_MAX);
  CHECK_EQ(neap_shape_elems(&empty), 0);
  neap_type type = {NEAP_DTYPE_F64, huge}, small = {NEAP_DTYPE_BF16, NEAP_SHAPE(3, 5)};
  CHECK(neap_type_bytes(&type) == SIZE_MAX);
  CHECK_EQ(neap_type_bytes(&small), 30);
  CHECK(strcmp(neap_shape_text(&s, text), "(64,20,24,24)") == 0);
  CHECK(strcmp(neap_shape_text(&scalar, text), "()") == 0);
  neap_shape widest = NEAP_SHAPE(INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX,
                                 INT64_MAX, INT64_MAX);
  CHECK(strlen(neap_shape_text(&widest, text)) < NEAP_SHAPE_TEXT);
  neap_tensor t;
  CHECK_FAILS(neap_tensor_new(&t, NEAP_DTYPE_F32, &huge, &error), NEAP_SHAPE,
              "more than the 128.0 TiB");
  neap_shape negative = NEAP_SHAPE(2, -1);
  CHECK_FAILS(neap_tensor_new(&t, NEAP_DTYPE_F32, &negative, &error), NEAP_SHAPE, "negative");
  CHECK_FAILS(neap_tensor_new(&t, NEAP_DTYPE_NONE, &s, &error), NEAP_DTYPE, "none");
}

TEST(shapes_broadcast_as_in_numpy) {
  neap_shape a = NEAP_SHAPE(8, 1, 6, 1), b = NEAP_SHAPE(7, 1, 5), wide = NEAP_SHAPE(8, 7, 6, 5),
             out;
  CHECK(neap_shape_broadcast(&a, &b, &out) && neap_shape_equal(&out, &wide));
  /* out may be an operand */
  CHECK(neap_shape_broadcast(&a, &b, &a) && neap_shape_equal(&a, &wide));
  neap_shape three = NEAP_SHAPE(3), four = NEAP_SHAPE(4), zero = NEAP_SHAPE(0), one = NEAP_SHAPE(1),
             scalar = {0};
  CHECK(!neap_shape_broadcast(&three, &four, &out));
  CHECK(!neap_shape_broadcast(&three, &zero, &out));
  CHECK(neap_shape_broadcast(&one, &zero, &out) && neap_shape_equal(&out, &zero));
  CHECK(neap_shape_broadcast(&scalar, &three, &out) && neap_shape_equal(&out, &three));
}

static void count_release(void *owner) { ++*(int *)owner; }

TEST(storage_lives_as_long_as_its_last_view) {
  int64_t held = neap_memory_read().held_bytes[NEAP_DATA_BYTES];
  neap_tensor t = make(NEAP_DTYPE_F32, NEAP_SHAPE(4, 5)), view, again = neap_tensor_retain(&t);
  CHECK_OK(neap_tensor_select(&t, 0, 2, &view, &error));
  CHECK_EQ(neap_storage_n_ref(t.storage), 3);
  neap_tensor_fini(&t);
  neap_tensor_fini(&again);
  CHECK(t.storage == NULL && t.dtype == NEAP_DTYPE_NONE);
  CHECK_EQ(neap_memory_read().held_bytes[NEAP_DATA_BYTES] - held, 80);
  neap_tensor_fini(&view);
  CHECK_EQ(neap_memory_read().held_bytes[NEAP_DATA_BYTES], held);
  int released = 0;
  float data[6] = {0};
  neap_storage *storage = neap_storage_borrow(data, sizeof data, count_release, &released);
  CHECK(neap_storage_retain(storage) == storage);
  neap_storage_release(storage);
  CHECK_EQ(released, 0);
  neap_storage_release(storage);
  CHECK_EQ(released, 1);
}

/* ---- views ----------------------------------------------------------------------------------- */

TEST(narrow_and_select_see_the_right_elements) {
  neap_tensor t = count_up(NEAP_DTYPE_I32, NEAP_SHAPE(4, 6)), v, w;
  CHECK_OK(neap_tensor_narrow(&t, 1, 1, 3, 2, &v, &error)); /* columns 1 3 5 */
  CHECK_EQ(at(&v, 0), 1);
  CHECK_EQ(at(&v, 5), 11);
  CHECK(!neap_tensor_is_dense(&v) && neap_tensor_elems(&v) == 12);
  CHECK_OK(neap_tensor_narrow(&v, 0, 3, 4, -1, &w, &error)); /* rows reversed */
  CHECK_EQ(at(&w, 0), 19);
  CHECK_EQ(at(&w, 11), 5);
  neap_tensor_fini(&v), neap_tensor_fini(&w);
  CHECK_OK(neap_tensor_select(&t, 1, 4, &v, &error));
  CHECK_EQ(v.shape.n_dim, 1);
  CHECK_EQ(at(&v, 3), 22);
  neap_shape four = NEAP_SHAPE(4);
  CHECK(memcmp(&v.shape, &four, sizeof four) == 0); /* the dims past the last are 0 */
  neap_tensor_fini(&v);
  CHECK_OK(neap_tensor_narrow(&t, 0, 4, 0, 1, &v, &error));
  CHECK_EQ(neap_tensor_elems(&v), 0);
  neap_tensor_fini(&v);
  CHECK_FAILS(neap_tensor_narrow(&t, 1, 4, 3, 1, &v, &error), NEAP_SHAPE, "leave dimension 1");
  CHECK_FAILS(neap_tensor_narrow(&t, 1, 0, INT64_MAX, INT64_MAX, &v, &error), NEAP_SHAPE, "leave");
  CHECK_FAILS(neap_tensor_narrow(&t, 1, 0, -1, 1, &v, &error), NEAP_SHAPE, "leave");
  CHECK_FAILS(neap_tensor_narrow(&t, 1, 0, 2, 0, &v, &error), NEAP_SHAPE, "step");
  CHECK_FAILS(neap_tensor_narrow(&t, 2, 0, 1, 1, &v, &error), NEAP_SHAPE, "(4,6)");
  CHECK_FAILS(neap_tensor_select(&t, 0, 4, &v, &error), NEAP_SHAPE, "index 4");
  CHECK_EQ(neap_storage_n_ref(t.storage), 1); /* failures keep nothing */
  neap_tensor_fini(&t);
}

TEST(permute_and_expand_see_the_right_elements) {
  neap_tensor t = count_up(NEAP_DTYPE_I64, NEAP_SHAPE(2, 3, 4)), v;
  CHECK_OK(neap_tensor_permute(&t, (int[]){2, 0, 1}, &v, &error)); /* (4,2,3) */
  for (int64_t i = 0; i < 24; i++) CHECK_EQ(at(&v, i), i % 3 * 4 + i / 3 % 2 * 12 + i / 6);
  neap_tensor_fini(&v);
  CHECK_FAILS(neap_tensor_permute(&t, (int[]){0, 1, 1}, &v, &error), NEAP_SHAPE, "twice");
  CHECK_FAILS(neap_tensor_permute(&t, (int[]){0, 1, 3}, &v, &error), NEAP_SHAPE, "dimension 3");
  neap_tensor_fini(&t);
  t = count_up(NEAP_DTYPE_I64, NEAP_SHAPE(3, 1));
  neap_shape wide = NEAP_SHAPE(2, 3, 5), narrow = NEAP_SHAPE(3);
  CHECK_OK(neap_tensor_expand(&t, &wide, &v, &error));
  for (int64_t i = 0; i < 30; i++) CHECK_EQ(at(&v, i), i / 5 % 3);
  CHECK_FAILS(neap_tensor_expand(&t, &narrow, &v, &error), NEAP_SHAPE, "does not broadcast");
  neap_tensor_fini(&v);
  neap_tensor_fini(&t);
}

/* Views by reshape keep the row-major order of elements, or are refused; random strides find
 * both. */
TEST(reshape_views_keep_the_order_of_elements) {
  static const int64_t shapes[][4] = {{24, 1, 1, 1}, {2, 12, 1, 1}, {2, 3, 4, 1}, {4, 3, 2, 1},
                                      {1, 6, 4, 1},  {2, 3, 2, 2},  {3, 1, 8, 1}};
  int views = 0, refused = 0;
  for (int step = 0; step < 500; step++) {
    neap_tensor t = count_up(NEAP_DTYPE_I32, NEAP_SHAPE(2, 3, 4)), v, r;
    int order[] = {0, 1, 2}, i = (int)(next_random() % 3), j = (int)(next_random() % 3),
        hold = order[i];
    order[i] = order[j], order[j] = hold;
    CHECK_OK(neap_tensor_permute(&t, order, &v, &error));
    const int64_t *dim = shapes[next_random() % NEAP_COUNT(shapes)];
    neap_error error = {0};
    if (neap_tensor_reshape_view(&v, 4, dim, &r, &error) == NEAP_OK) {
      for (int64_t k = 0; k < 24; k++) CHECK_EQ(at(&r, k), at(&v, k));
      neap_tensor_fini(&r);
      views++;
    } else {
      CHECK_EQ(error.code, NEAP_SHAPE);
      CHECK(!neap_tensor_is_dense(&v));
      refused++;
    }
    neap_tensor_fini(&v), neap_tensor_fini(&t);
  }
  CHECK(views > 50 && refused > 50);
}

TEST(reshape_infers_one_dimension) {
  neap_tensor t = count_up(NEAP_DTYPE_F32, NEAP_SHAPE(4, 6)), v,
              empty = make(NEAP_DTYPE_F32, NEAP_SHAPE(0, 3));
  CHECK_OK(neap_tensor_reshape_view(&t, 2, (int64_t[]){-1, 8}, &v, &error));
  CHECK(v.shape.dim[0] == 3 && neap_tensor_is_dense(&v));
  neap_tensor_fini(&v);
  CHECK_FAILS(neap_tensor_reshape_view(&t, 2, (int64_t[]){-1, 5}, &v, &error), NEAP_SHAPE,
              "(-1,5)");
  CHECK_FAILS(neap_tensor_reshape_view(&t, 2, (int64_t[]){-1, -1}, &v, &error), NEAP_SHAPE,
              "one dimension may be -1");
  CHECK_FAILS(neap_tensor_reshape_view(&t, 1, (int64_t[]){23}, &v, &error), NEAP_SHAPE,
              "24 elements");
  CHECK_FAILS(neap_tensor_reshape_view(&empty, 2, (int64_t[]){0, -1}, &v, &error), NEAP_SHAPE,
              "(0,-1)");
  CHECK_OK(neap_tensor_reshape_view(&empty, 2, (int64_t[]){5, 0}, &v, &error));
  neap_tensor_fini(&v);
  neap_tensor_fini(&t), neap_tensor_fini(&empty);
  neap_tensor scalar = make(NEAP_DTYPE_F32, (neap_shape){0});
  CHECK_OK(neap_tensor_reshape_view(&scalar, 3, (int64_t[]){1, 1, 1}, &v, &error));
  neap_tensor_fini(&v), neap_tensor_fini(&scalar);
}

/* ---- casts ----------------------------------------------------------------------------------- */

/* What a half with these bits is worth, by the definition of the formats. */
static double half_value(uint16_t bits, int exponent_bits) {
  int significand_bits = 15 - exponent_bits, bias = (1 << (exponent_bits - 1)) - 1;
  int exponent = bits >> significand_bits & ((1 << exponent_bits) - 1),
      significand = bits & ((1 << significand_bits) - 1);
  double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1) return significand != 0 ? NAN : sign * INFINITY;
  if (exponent == 0) return sign * ldexp(significand, 1 - bias - significand_bits);
  return sign * ldexp((1 << significand_bits) + significand, exponent - bias - significand_bits);
}

TEST(every_half_widens_exactly) {
  for (unsigned bits = 0; bits < 65536; bits++) {
    double f16 = half_value((uint16_t)bits, 5), bf16 = half_value((uint16_t)bits, 8);
    float a = neap_f16_to_f32((uint16_t)bits), b = neap_bf16_to_f32((uint16_t)bits);
    CHECK(isnan(f16) ? isnan(a) : a == f16 && !signbit(a) == !signbit(f16));
    CHECK(isnan(bf16) ? isnan(b) : b == bf16 && !signbit(b) == !signbit(bf16));
    if (!isnan(f16)) CHECK_EQ(neap_f32_to_f16(a), bits);
    if (!isnan(bf16)) CHECK_EQ(neap_f32_to_bf16(b), bits);
  }
}

/* The nearest half of a positive x, ties to even, by bisection over the bits, which are in
 * order. */
static uint16_t nearest_half(double x, int exponent_bits) {
  /* 0 and infinity */
  unsigned low = 0, high = (unsigned)((1 << exponent_bits) - 1) << (15 - exponent_bits);
  while (high - low > 1) {
    unsigned middle = (low + high) / 2;
    if (half_value((uint16_t)middle, exponent_bits) <= x)
      low = middle;
    else
      high = middle;
  }
  double below = half_value((uint16_t)low, exponent_bits);

  /* infinity counts as the next power of two when rounding */
  double above = isinf(half_value((uint16_t)high, exponent_bits))
                   ? 2 * half_value((uint16_t)(high - (1u << (15 - exponent_bits))), exponent_bits)
                   : half_value((uint16_t)high, exponent_bits);
  if (x >= above || x - below > above - x || (x - below == above - x && (low & 1)))
    return (uint16_t)high;
  return (uint16_t)low;
}

TEST(halves_round_to_nearest_even_from_every_dtype) {
  for (int step = 0; step < 100000; step++) {
    uint32_t bits = next_random() << 15 ^ next_random();
    float x;
    memcpy(&x, &bits, sizeof x);
    if (step % 2 == 0) /* f16's range, its subnormals and beyond */
      x = ldexpf((float)(bits & 0xffffff) + 1, (int)(bits >> 24) % 44 - 50);
    x = fabsf(x);
    if (!isfinite(x)) continue;
    CHECK_EQ(neap_f32_to_f16(x), nearest_half(x, 5));
    CHECK_EQ(neap_f32_to_bf16(x), nearest_half(x, 8));
    /* f64 in one rounding: a tie of f32 values, moved by less than f32 can see */
    double tie = (half_value((uint16_t)(step % 0x7bff), 5) +
                  half_value((uint16_t)(step % 0x7bff + 1), 5)) /
                 2,
           moved = nextafter(tie, step & 1 ? 0 : 1e9);
    uint16_t half;
    neap_cast(NEAP_DTYPE_F16, &half, NEAP_DTYPE_F64, &moved, 1);
    CHECK_EQ(half, nearest_half(moved, 5));
    neap_cast(NEAP_DTYPE_F16, &half, NEAP_DTYPE_F64, &tie, 1);
    CHECK_EQ(half, nearest_half(tie, 5));
    double wide = (double)x * (1 + 1e-12);
    neap_cast(NEAP_DTYPE_BF16, &half, NEAP_DTYPE_F64, &wide, 1);
    CHECK_EQ(half, nearest_half(wide, 8));
  }
  static const int64_t wholes[] = {2049,
                                   2051,
                                   65519,
                                   65520,
                                   65504,
                                   INT64_MAX,
                                   (int64_t)257 << 54,
                                   ((int64_t)257 << 54) + 1,
                                   ((int64_t)257 << 54) - 1};
  for (int i = 0; i < NEAP_COUNT(wholes); i++) {
    uint16_t half;
    neap_cast(NEAP_DTYPE_F16, &half, NEAP_DTYPE_I64, &wholes[i], 1);
    if (wholes[i] < 1 << 20) CHECK_EQ(half, nearest_half((double)wholes[i], 5));
    if (wholes[i] > 1 << 20) CHECK_EQ(half, 0x7c00);
  }

  /* 257 2^54 lies between two bf16; one more or less, which f64 cannot hold, decides */
  uint16_t tie, above, below;
  neap_cast(NEAP_DTYPE_BF16, &tie, NEAP_DTYPE_I64, &wholes[6], 1);
  neap_cast(NEAP_DTYPE_BF16, &above, NEAP_DTYPE_I64, &wholes[7], 1);
  neap_cast(NEAP_DTYPE_BF16, &below, NEAP_DTYPE_I64, &wholes[8], 1);
  CHECK(tie == below && above == tie + 1 && (tie & 1) == 0);
  CHECK(isnan(neap_f16_to_f32(neap_f32_to_f16(NAN))) &&
        isnan(neap_bf16_to_f32(neap_f32_to_bf16(NAN))));
  uint32_t sparse = 0x7f800001; /* a NaN whose payload lies in the bits that are cut */
  float nan;
  memcpy(&nan, &sparse, sizeof nan);
  CHECK(isnan(neap_bf16_to_f32(neap_f32_to_bf16(nan))) &&
        isnan(neap_f16_to_f32(neap_f32_to_f16(nan))));
}

/* The rules of tensor.h in quadruple precision, which holds every value of every dtype, everywhere:
 * a long double is 64 bits wide on some machines, and under valgrind. */
typedef _Float128 number;

static number expected_whole(number x, number low, number high) {
  if (isnan(x)) return 0;
  x = rintf128(x);
  return x < low ? low : x > high ? high : x;
}

static number expected_cast(neap_dtype to, number x) {
  switch (to) {
    case NEAP_DTYPE_F32: return (float)x;
    case NEAP_DTYPE_F64: return (double)x;
    case NEAP_DTYPE_BF16:
      return isnan(x) || isinf(x)
               ? x
               : copysignf128(half_value(nearest_half(fabs((double)x), 8), 8), x);
    case NEAP_DTYPE_F16:
      return isnan(x) || isinf(x)
               ? x
               : copysignf128(half_value(nearest_half(fabs((double)x), 5), 5), x);
    case NEAP_DTYPE_I8: return expected_whole(x, -128, 127);
    case NEAP_DTYPE_U8: return expected_whole(x, 0, 255);
    case NEAP_DTYPE_I32: return expected_whole(x, INT32_MIN, INT32_MAX);
    case NEAP_DTYPE_I64: return expected_whole(x, INT64_MIN, INT64_MAX);
    case NEAP_DTYPE_BOOL: return x != 0;
    default: return NAN;
  }
}

static number exact(neap_dtype dtype, const void *base, int64_t i) {
  if (dtype == NEAP_DTYPE_I64) return neap_element_get_i64(dtype, base, i);
  return neap_element_get(dtype, base, i);
}

TEST(every_pair_of_dtypes_casts_by_the_rules) {
  static const double interesting[] = {0,
                                       -0.0,
                                       0.5,
                                       1.5,
                                       2.5,
                                       -0.5,
                                       -1.5,
                                       126.5,
                                       127.4,
                                       127.5,
                                       128,
                                       -128.5,
                                       -129,
                                       254.5,
                                       255.5,
                                       256,
                                       1e-8,
                                       1e-45,
                                       3e38,
                                       1e39,
                                       -1e39,
                                       65504,
                                       65519.99,
                                       65520,
                                       2147483647,
                                       2147483648.0,
                                       -2147483648.0,
                                       -2147483649.0,
                                       2147483646.5,
                                       9.2233720368547748e18,
                                       9.2233720368547758e18,
                                       -9.2233720368547758e18,
                                       1e300,
                                       INFINITY,
                                       -INFINITY,
                                       NAN,
                                       16777217,
                                       0.1,
                                       1.0 / 3,
                                       -1,
                                       1,
                                       2,
                                       100,
                                       5.960464477539063e-08,
                                       2.9802322387695312e-08};
  enum { N = 1500 }; /* several chunks and an odd rest */
  for (int f = 0; f < NEAP_COUNT(all_dtypes); f++)
    for (int t = 0; t < NEAP_COUNT(all_dtypes); t++) {
      neap_tensor from = make(all_dtypes[f], NEAP_SHAPE(N)),
                  to = make(all_dtypes[t], NEAP_SHAPE(N));
      for (int i = 0; i < N; i++) {
        double x = i < NEAP_COUNT(interesting)
                     ? interesting[i]
                     : ldexp((double)(int)(next_random() << 8), (int)(next_random() % 100) - 70);
        neap_element_set(all_dtypes[f], neap_tensor_data(&from), i, x);
      }

      /* All at once, as kernels do; what is wanted follows from the number that the first type
       * really holds, in more digits than either has. */
      neap_cast(all_dtypes[t], neap_tensor_data(&to), all_dtypes[f], neap_tensor_data(&from), N);
      for (int i = 0; i < N; i++) {
        number in = exact(all_dtypes[f], neap_tensor_data(&from), i),
               got = exact(all_dtypes[t], neap_tensor_data(&to), i);
        number expected = expected_cast(all_dtypes[t], in);
        bool same = isnan(expected) ? isnan(got) : got == expected;
        if (!same)
          printf("  %s to %s: %.20g gives %.20g, expected %.20g\n", neap_dtype_name(all_dtypes[f]),
                 neap_dtype_name(all_dtypes[t]), (double)in, (double)got, (double)expected);

        CHECK(same);
        char one[8]; /* one element at a time: the same bits */
        if (all_dtypes[f] != NEAP_DTYPE_I64) {
          neap_element_set(all_dtypes[t], one, 0, (double)in);
          size_t bytes = neap_dtype_bytes(all_dtypes[t]);
          CHECK(isnan(expected) ||
                memcmp(one, neap_tensor_data(&to) + (size_t)i * bytes, bytes) == 0);
        }
      }
      neap_tensor_fini(&from), neap_tensor_fini(&to);
    }
}

TEST(large_integers_keep_their_value) {
  int64_t x[3];
  neap_element_set_i64(NEAP_DTYPE_I64, x, 0, INT64_MAX - 1);
  CHECK(neap_element_get_i64(NEAP_DTYPE_I64, x, 0) == INT64_MAX - 1);
  int32_t y;
  neap_cast(NEAP_DTYPE_I32, &y, NEAP_DTYPE_I64, x, 1);
  CHECK_EQ(y, INT32_MAX);
  uint8_t loose = 7, b; /* a bool from elsewhere */
  CHECK_EQ(neap_element_get_i64(NEAP_DTYPE_BOOL, &loose, 0), 1);
  float f;
  neap_cast(NEAP_DTYPE_F32, &f, NEAP_DTYPE_BOOL, &loose, 1);
  CHECK(f == 1);
  double half = 0.25;
  neap_cast(NEAP_DTYPE_BOOL, &b, NEAP_DTYPE_F64, &half, 1);
  CHECK_EQ(b, 1);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* A random view of a fresh tensor: permuted, narrowed, reversed, sometimes with dimensions of 1. */
static neap_tensor random_view(neap_dtype dtype) {
  neap_shape shape = {.n_dim = (int)(next_random() % 5)};
  for (int i = 0; i < shape.n_dim; i++)
    shape.dim[i] = next_random() % 40 == 0 ? 0 : 1 + next_random() % (shape.n_dim < 3 ? 70 : 9);
  neap_tensor t = count_up(dtype, shape), v;
  for (int i = 0; i < shape.n_dim; i++) {
    /* Steps of 1 to 3 from either end; what begins at the end goes backwards. */
    int64_t size = t.shape.dim[i];
    if (size == 0 || next_random() % 2) continue;
    int64_t step = 1 + next_random() % 3, n = (size + step - 1) / step;
    bool back = next_random() % 2;
    CHECK_OK(
      neap_tensor_narrow(&t, i, back ? (n - 1) * step : 0, n, back ? -step : step, &v, &error));
    neap_tensor_fini(&t);
    t = v;
  }

  if (shape.n_dim >= 2 && next_random() % 2) {
    int order[NEAP_MAX_DIM];
    for (int i = 0; i < shape.n_dim; i++) order[i] = (i + 1) % shape.n_dim;
    CHECK_OK(neap_tensor_permute(&t, order, &v, &error));
    neap_tensor_fini(&t);
    t = v;
  }
  return t;
}

/* A view of the same shape over gaps and another order of dimensions: a hard target. */
static neap_tensor scattered_target(neap_dtype dtype, const neap_shape *shape) {
  neap_shape wide = {.n_dim = shape->n_dim};
  int order[NEAP_MAX_DIM];
  for (int i = 0; i < shape->n_dim; i++) {
    wide.dim[shape->n_dim - 1 - i] = 2 * shape->dim[i];
    order[i] = shape->n_dim - 1 - i;
  }

  /* Filled with a pattern, so that a write beside the elements shows. */
  neap_tensor t = make(dtype, wide), v;
  neap_type type = {dtype, wide};
  memset(neap_tensor_data(&t), 0x11, neap_type_bytes(&type));
  CHECK_OK(neap_tensor_permute(&t, order, &v, &error));
  neap_tensor_fini(&t);

  /* Every second element along each dimension. */
  for (int i = 0; i < shape->n_dim; i++) {
    neap_tensor w;
    CHECK_OK(neap_tensor_narrow(&v, i, 0, shape->dim[i], shape->dim[i] > 0 ? 2 : 1, &w, &error));
    neap_tensor_fini(&v);
    v = w;
  }
  return v;
}

TEST(copies_between_any_views_agree_with_element_by_element) {
  for (int step = 0; step < 1500; step++) {
    neap_dtype from_dtype = all_dtypes[next_random() % NEAP_COUNT(all_dtypes)],
               to_dtype = all_dtypes[next_random() % NEAP_COUNT(all_dtypes)];
    if (step % 2) to_dtype = from_dtype;
    neap_tensor from = random_view(from_dtype), to = scattered_target(to_dtype, &from.shape), dense;
    CHECK_OK(neap_tensor_copy(&to, &from, &error));
    CHECK_OK(neap_tensor_clone(&from, to_dtype, &dense, &error));
    CHECK(neap_tensor_is_dense(&dense) && dense.dtype == to_dtype);
    for (int64_t i = 0; i < neap_tensor_elems(&from); i++) {
      char one[8];
      neap_element_set(to_dtype, one, 0, at(&from, i));
      double expected = neap_element_get(to_dtype, one, 0);
      if (at(&to, i) != expected || at(&dense, i) != expected) {
        CHECK(at(&to, i) == expected);
        CHECK(at(&dense, i) == expected);
        break;
      }
    }
    neap_tensor_fini(&from), neap_tensor_fini(&to), neap_tensor_fini(&dense);
  }
}

TEST(copies_leave_the_gaps_alone) {
  neap_tensor t = count_up(NEAP_DTYPE_U8, NEAP_SHAPE(10, 10)), v,
              zero = make(NEAP_DTYPE_F32, (neap_shape){0});
  neap_element_set(NEAP_DTYPE_F32, neap_tensor_data(&zero), 0, 200);
  CHECK_OK(neap_tensor_narrow(&t, 1, 1, 4, 2, &v, &error));
  CHECK_OK(neap_tensor_copy(&v, &zero, &error)); /* a scalar broadcasts */
  for (int i = 0; i < 100; i++) CHECK_EQ(at(&t, i), i % 10 % 2 == 1 && i % 10 < 8 ? 200 : i);
  neap_tensor_fini(&t), neap_tensor_fini(&v), neap_tensor_fini(&zero);
}

TEST(large_copies_use_threads_and_agree) {
  int threads = neap_threads();
  neap_threads_set(4);
  neap_tensor t = make(NEAP_DTYPE_F32, NEAP_SHAPE(3, 401, 307)), p, c, i, d;
  for (int64_t k = 0; k < neap_tensor_elems(&t); k++) ((float *)neap_tensor_data(&t))[k] = (float)k;
  CHECK_OK(neap_tensor_permute(&t, (int[]){2, 1, 0}, &p, &error));
  CHECK_OK(neap_tensor_clone(&p, NEAP_DTYPE_NONE, &c, &error));
  CHECK_OK(neap_tensor_clone(&p, NEAP_DTYPE_I32, &i, &error));
  CHECK_OK(neap_tensor_clone(&t, NEAP_DTYPE_F64, &d, &error));
  for (int64_t k = 0; k < neap_tensor_elems(&t); k++)
    if (at(&c, k) != at(&p, k) || at(&i, k) != at(&p, k) || at(&d, k) != k) {
      CHECK_EQ(k, -1);
      break;
    }
  neap_threads_set(threads);
  neap_tensor_fini(&t), neap_tensor_fini(&p), neap_tensor_fini(&c), neap_tensor_fini(&i),
    neap_tensor_fini(&d);
}

TEST(overlapping_copies_act_as_if_the_source_came_first) {
  neap_tensor t = count_up(NEAP_DTYPE_I32, NEAP_SHAPE(20)), a, b, m, mt;
  CHECK_OK(neap_tensor_narrow(&t, 0, 0, 15, 1, &a, &error));
  CHECK_OK(neap_tensor_narrow(&t, 0, 5, 15, 1, &b, &error));
  CHECK_OK(neap_tensor_copy(&b, &a, &error));
  for (int i = 0; i < 20; i++) CHECK_EQ(at(&t, i), i < 5 ? i : i - 5);
  neap_tensor_fini(&b);
  CHECK_OK(neap_tensor_narrow(&t, 0, 14, 15, -1, &b, &error));
  CHECK_OK(neap_tensor_copy(&a, &b, &error)); /* reverses in place */
  for (int i = 0; i < 15; i++) CHECK_EQ(at(&t, i), 14 - i < 5 ? 14 - i : 9 - i);
  neap_tensor_fini(&a), neap_tensor_fini(&b), neap_tensor_fini(&t);
  m = count_up(NEAP_DTYPE_F32, NEAP_SHAPE(40, 40));
  CHECK_OK(neap_tensor_permute(&m, (int[]){1, 0}, &mt, &error));
  CHECK_OK(neap_tensor_copy(&m, &mt, &error)); /* transposes in place */
  for (int i = 0; i < 1600; i++) CHECK_EQ(at(&m, i), i % 40 * 40 + i / 40);
  neap_tensor_fini(&m), neap_tensor_fini(&mt);
}

TEST(copies_refuse_what_cannot_be_written) {
  neap_tensor t = count_up(NEAP_DTYPE_F32, NEAP_SHAPE(1, 4)), v,
              other = count_up(NEAP_DTYPE_F32, NEAP_SHAPE(3)), none = {0};
  neap_shape wide = NEAP_SHAPE(3, 4);
  CHECK_OK(neap_tensor_expand(&t, &wide, &v, &error));
  CHECK_FAILS(neap_tensor_copy(&v, &t, &error), NEAP_SHAPE, "broadcast view");
  CHECK_FAILS(neap_tensor_copy(&t, &other, &error), NEAP_SHAPE, "(3) does not broadcast to (1,4)");
  CHECK_FAILS(neap_tensor_copy(&none, &t, &error), NEAP_ARGUMENT, "none");
  CHECK_FAILS(neap_tensor_copy(&t, &none, &error), NEAP_ARGUMENT, "none");
  neap_storage_set_read_only(other.storage);
  CHECK_FAILS(neap_tensor_copy(&other, &other, &error), NEAP_ARGUMENT, "read-only");
  neap_tensor_fini(&t), neap_tensor_fini(&v), neap_tensor_fini(&other);
}

TEST(refused_memory_leaves_nothing_behind) {
  neap_tensor t = count_up(NEAP_DTYPE_F32, NEAP_SHAPE(6, 6)), mt, c;
  CHECK_OK(neap_tensor_permute(&t, (int[]){1, 0}, &mt, &error));
  int64_t live = neap_memory_read().n_live;
  int failures = 0;
  for (int n = 1;; n++) {
    neap_error error = {0};
    neap_memory_fail_nth_block(n);
    neap_status status = neap_tensor_clone(&mt, NEAP_DTYPE_F64, &c, &error);
    if (status == NEAP_OK) neap_tensor_fini(&c);
    if (status == NEAP_OK) status = neap_tensor_copy(&t, &mt, &error); /* overlaps: needs memory */
    bool failed = neap_memory_failed();
    neap_memory_fail_nth(0, false);
    CHECK_EQ(neap_memory_read().n_live, live);
    if (!failed) {
      CHECK_EQ(status, NEAP_OK);
      break;
    }
    CHECK_EQ(status, NEAP_MEMORY);
    failures++;
  }
  CHECK_EQ(failures, 4); /* a storage and its bytes, twice */
  neap_tensor_fini(&t), neap_tensor_fini(&mt);
}

/* ---- text ------------------------------------------------------------------------------------ */

TEST(prints_as_numpy_does) {
  neap_tensor t = make(NEAP_DTYPE_F32, NEAP_SHAPE(2, 2, 3));
  for (int i = 0; i < 12; i++) neap_element_set(t.dtype, neap_tensor_data(&t), i, i * 0.75 - 2);
  CHECK(text_is(&t, NULL, NULL,
                "[[[-2.   -1.25 -0.5 ]\n  [ 0.25  1.    1.75]]\n\n [[ 2.5   3.25  4.  ]\n  [ 4.75  "
                "5.5   6.25]]]\nf32 (2,2,3) 48 B"));
  neap_tensor_fini(&t);
  t = make(NEAP_DTYPE_F64, NEAP_SHAPE(4));
  static const double x[] = {NAN, -INFINITY, 0.5, -10};
  for (int i = 0; i < 4; i++) neap_element_set(t.dtype, neap_tensor_data(&t), i, x[i]);
  CHECK(text_is(&t, NULL, "x", "[  nan  -inf   0.5 -10. ]\nx f64 (4) 32 B"));
  static const double y[] = {1e-7, 1, -250000, INFINITY};
  for (int i = 0; i < 4; i++) neap_element_set(t.dtype, neap_tensor_data(&t), i, y[i]);
  CHECK(text_is(&t, NULL, NULL, "[ 1.0e-07  1.0e+00 -2.5e+05      inf]\nf64 (4) 32 B"));
  neap_tensor_fini(&t);
}

TEST(prints_integers_bools_scalars_and_empty_tensors) {
  neap_tensor t = count_up(NEAP_DTYPE_I64, NEAP_SHAPE(2, 3));
  neap_element_set_i64(t.dtype, neap_tensor_data(&t), 4, INT64_MIN);
  CHECK(
    text_is(&t, NULL, NULL,
            "[[                   0                    1                    2]\n"
            " [                   3 -9223372036854775808                    5]]\ni64 (2,3) 48 B"));
  neap_tensor_fini(&t);
  t = count_up(NEAP_DTYPE_BOOL, NEAP_SHAPE(3));
  CHECK(text_is(&t, NULL, NULL, "[false  true  true]\nbool (3) 3 B"));
  neap_tensor_fini(&t);
  t = make(NEAP_DTYPE_BF16, (neap_shape){0});
  neap_element_set(t.dtype, neap_tensor_data(&t), 0, 3.5);
  CHECK(text_is(&t, NULL, NULL, "3.5\nbf16 () 2 B"));
  neap_tensor_fini(&t);
  t = make(NEAP_DTYPE_F32, NEAP_SHAPE(3, 0, 2));
  CHECK(text_is(&t, NULL, NULL, "[]\nf32 (3,0,2) 0 B"));
  neap_tensor_fini(&t);
  CHECK(text_is(&t, NULL, NULL, "no tensor"));
}

TEST(prints_large_tensors_shortened_and_long_rows_broken) {
  neap_tensor t = count_up(NEAP_DTYPE_I32, NEAP_SHAPE(40, 50)), v;
  CHECK(text_is(
    &t, &(neap_print_options){.precision = 4, .threshold = 1000, .edge = 2, .width = 80}, NULL,
    "[[   0    1 ...   48   49]\n [  50   51 ...   98   99]\n ...\n [1900 1901 ... 1948 1949]\n "
    "[1950 1951 ... 1998 1999]]\n"
    "i32 (40,50) 7.8 KiB"));
  CHECK_OK(neap_tensor_select(&t, 0, 0, &v, &error));
  CHECK(text_is(
    &v, &(neap_print_options){.precision = 4, .threshold = 1000, .edge = 3, .width = 60}, NULL,
    "[ 0  1  2  3  4  5  6  7  8  9 10 11 12 13 14 15 16 17 18\n"
    " 19 20 21 22 23 24 25 26 27 28 29 30 31 32 33 34 35 36 37\n"
    " 38 39 40 41 42 43 44 45 46 47 48 49]\ni32 (50) 200 B"));
  neap_tensor_fini(&t), neap_tensor_fini(&v);
}

int main(int argc, char **argv) {
  return RUN(
    argc, argv, T(dtypes_have_names_and_widths), T(shapes_count_without_wrapping),
    T(shapes_broadcast_as_in_numpy), T(storage_lives_as_long_as_its_last_view),
    T(narrow_and_select_see_the_right_elements), T(permute_and_expand_see_the_right_elements),
    T(reshape_views_keep_the_order_of_elements), T(reshape_infers_one_dimension),
    T(every_half_widens_exactly), T(halves_round_to_nearest_even_from_every_dtype),
    T(every_pair_of_dtypes_casts_by_the_rules), T(large_integers_keep_their_value),
    T(copies_between_any_views_agree_with_element_by_element), T(copies_leave_the_gaps_alone),
    T(large_copies_use_threads_and_agree), T(overlapping_copies_act_as_if_the_source_came_first),
    T(copies_refuse_what_cannot_be_written), T(refused_memory_leaves_nothing_behind),
    T(prints_as_numpy_does), T(prints_integers_bools_scalars_and_empty_tensors),
    T(prints_large_tensors_shortened_and_long_rows_broken));
}
