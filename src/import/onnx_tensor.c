/* onnx_tensor.c: a TensorProto as a tensor. Its elements are raw bytes, a list of numbers of one of
 * five kinds, strings, or bytes of another file; whichever it is, they must be as many as the
 * dimensions say before anything is made.
 */
#include "import/onnx_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- element types --------------------------------------------------------------------------- */

/* Which list of a TensorProto holds the numbers of a type where raw bytes do not. */
typedef enum list { NOT_IN_LIST, IN_I32, IN_I64, IN_U64, IN_F32, IN_F64 } list;

/* A type of the standard. `bits` of one element in raw bytes; `plain`: those are the dtype's. */
typedef struct element {
  const char *name;
  neap_dtype dtype;
  int bits;
  bool plain;
  list list;
  /* A float of 8 or 4 bits: how many of them are exponent and mantissa, and the exponent's bias.
   * `finite`: no pattern is an infinity. `zero_is_nan`: minus zero's pattern is NaN, and no other.
   * All 0 for the other types. */
  struct {
    int exponent, mantissa, bias;
    bool finite, zero_is_nan;
  } small;
} element;

/* By number, as the standard (onnx.proto, TensorProto.DataType) counts them. */
static const element elements[] = {
  [1] = {"float", NEAP_DTYPE_F32, 32, true, IN_F32, {0}},
  [2] = {"uint8", NEAP_DTYPE_U8, 8, true, IN_I32, {0}},
  [3] = {"int8", NEAP_DTYPE_I8, 8, true, IN_I32, {0}},
  [4] = {"uint16", NEAP_DTYPE_U16, 16, true, IN_I32, {0}},
  [5] = {"int16", NEAP_DTYPE_I16, 16, true, IN_I32, {0}},
  [6] = {"int32", NEAP_DTYPE_I32, 32, true, IN_I32, {0}},
  [7] = {"int64", NEAP_DTYPE_I64, 64, true, IN_I64, {0}},
  [8] = {"string", NEAP_DTYPE_NONE, 0, false, NOT_IN_LIST, {0}},
  [9] = {"bool", NEAP_DTYPE_BOOL, 8, false, IN_I32, {0}},
  [10] = {"float16", NEAP_DTYPE_F16, 16, true, IN_I32, {0}},
  [11] = {"double", NEAP_DTYPE_F64, 64, true, IN_F64, {0}},
  [12] = {"uint32", NEAP_DTYPE_I64, 32, false, IN_U64, {0}},
  [13] = {"uint64", NEAP_DTYPE_I64, 64, false, IN_U64, {0}},
  [16] = {"bfloat16", NEAP_DTYPE_BF16, 16, true, IN_I32, {0}},
  [17] = {"float8e4m3fn", NEAP_DTYPE_F32, 8, false, IN_I32, {4, 3, 7, true, false}},
  [18] = {"float8e4m3fnuz", NEAP_DTYPE_F32, 8, false, IN_I32, {4, 3, 8, true, true}},
  [19] = {"float8e5m2", NEAP_DTYPE_F32, 8, false, IN_I32, {5, 2, 15, false, false}},
  [20] = {"float8e5m2fnuz", NEAP_DTYPE_F32, 8, false, IN_I32, {5, 2, 16, true, true}},
  [21] = {"uint4", NEAP_DTYPE_U8, 4, false, IN_I32, {0}},
  [22] = {"int4", NEAP_DTYPE_I8, 4, false, IN_I32, {0}},
  [23] = {"float4e2m1", NEAP_DTYPE_F32, 4, false, IN_I32, {2, 1, 1, true, false}},
  [25] = {"uint2", NEAP_DTYPE_U8, 2, false, IN_I32, {0}},
  [26] = {"int2", NEAP_DTYPE_I8, 2, false, IN_I32, {0}},
};

static const element *element_of(int elem_type) {
  if (elem_type < 0 || elem_type >= NEAP_COUNT(elements)) return NULL;
  return elements[elem_type].name != NULL ? &elements[elem_type] : NULL;
}

neap_dtype neap_onnx_dtype(int elem_type) {
  const element *e = element_of(elem_type);
  return e != NULL ? e->dtype : NEAP_DTYPE_NONE;
}

const char *neap_onnx_type_name(int elem_type) {
  const element *e = element_of(elem_type);
  return e != NULL ? e->name : NULL;
}

/* ---- numbers --------------------------------------------------------------------------------- */

/* The value of a small float's bits. Without infinities the largest exponent is one like the
 * others, but for NaN: all ones, or where zero_is_nan minus zero. */
static double small_float(const element *e, unsigned bits) {
  /* From the highest bit on: the sign, k bits of exponent, m of mantissa. */
  int m = e->small.mantissa, k = e->small.exponent;
  unsigned mantissa = bits & ((1u << m) - 1), exponent = bits >> m & ((1u << k) - 1);
  bool negative = bits >> (m + k) & 1, top = exponent == (1u << k) - 1;
  if (e->small.zero_is_nan && negative && mantissa == 0 && exponent == 0) return (double)NAN;

  /* With infinities the top exponent is what IEEE 754 makes of it. */
  if (!e->small.finite && top)
    return mantissa != 0 ? (double)NAN : (double)INFINITY * (negative ? -1 : 1);
  /* Of the finite types those of four bits hold no NaN, and those whose NaN is minus zero's pattern
   * no other; the one that is left has it at all ones. */
  bool ones = top && mantissa == (1u << m) - 1;
  if (e->bits == 8 && e->small.finite && !e->small.zero_is_nan && ones) return (double)NAN;

  /* Numbers below the smallest exponent have no leading one, and that exponent's scale. */
  double value = exponent == 0 ? ldexp(mantissa, 1 - e->small.bias - m)
                               : ldexp((1u << m) + mantissa, (int)exponent - e->small.bias - m);
  return negative ? -value : value;
}

/* Stores as element i the number that the type's bits stand for; they fit an i64. */
static void set_bits(const element *e, uint64_t bits, int64_t i, void *out) {
  if (e->small.exponent > 0) {
    neap_element_set(e->dtype, out, i, small_float(e, (unsigned)bits));
    return;
  }
  /* Signed ones of few bits: the upper half of the patterns stands below 0. */
  int64_t value = (int64_t)bits;
  if (e->dtype == NEAP_DTYPE_I8 && bits >> (e->bits - 1) != 0) value -= INT64_C(1) << e->bits;
  if (e->dtype == NEAP_DTYPE_BOOL) value = value != 0;
  neap_element_set_i64(e->dtype, out, i, value);
}

/* The bits of element i in the byte that it shares with its neighbours: the first is the lowest. */
static unsigned part_of(const element *e, uint8_t byte, int64_t i) {
  int64_t shift = i * e->bits % 8;
  return (unsigned)byte >> shift & ((1u << e->bits) - 1);
}

/* Element i of raw bytes whose type needs more than a copy. False: it does not fit an i64. */
static bool set_from_raw(const element *e, const uint8_t *raw, int64_t i, void *out) {
  /* By memcpy, since the bytes of a message stand at any address. */
  uint64_t bits = 0;
  if (e->bits >= 32)
    memcpy(&bits, raw + i * (e->bits / 8), (size_t)e->bits / 8);
  else
    bits = part_of(e, raw[i * e->bits / 8], i);
  if (bits > INT64_MAX) return false;
  set_bits(e, bits, i, out);
  return true;
}

/* ---- where the elements are ------------------------------------------------------------------ */

/* How many numbers the list that is meant for the type has, as far as it has any. */
static size_t n_in_list(const element *e, const Onnx__TensorProto *proto) {
  switch (e->list) {
    case IN_I32: return proto->n_int32_data;
    case IN_I64: return proto->n_int64_data;
    case IN_U64: return proto->n_uint64_data;
    case IN_F32: return proto->n_float_data;
    case IN_F64: return proto->n_double_data;
    case NOT_IN_LIST: break;
  }
  return 0;
}

/* Two halves of a byte, or four quarters, count as one number of a list. */
static int64_t n_numbers(const element *e, int64_t n) {
  return e->bits < 8 ? (n * e->bits + 7) / 8 : n;
}

/* Element i of a list of int32, which holds the types that have no list of their own. Three ways of
 * reading a number: halves are its low 16 bits; small floats and packed integers are bits of its
 * low byte; the integers of 8 bits and more are the number itself. */
static void set_from_i32(const element *e, const int32_t *numbers, int64_t i, void *out) {
  int64_t per_number = e->bits < 8 ? 8 / e->bits : 1;
  int32_t number = numbers[i / per_number];
  if (e->dtype == NEAP_DTYPE_F16 || e->dtype == NEAP_DTYPE_BF16)
    ((uint16_t *)out)[i] = (uint16_t)number;
  else if (e->bits < 8 || e->small.exponent > 0)
    set_bits(e, part_of(e, (uint8_t)number, i), i, out);
  else
    neap_element_set_i64(e->dtype, out, i, e->dtype == NEAP_DTYPE_BOOL ? number != 0 : number);
}

/* The n elements from the type's list, which has been counted. False: one does not fit an i64. */
static bool set_from_list(const element *e, const Onnx__TensorProto *proto, int64_t n, void *out) {
  switch (e->list) {
    case IN_F32: memcpy(out, proto->float_data, (size_t)n * sizeof(float)); return true;
    case IN_F64: memcpy(out, proto->double_data, (size_t)n * sizeof(double)); return true;
    case IN_I64: memcpy(out, proto->int64_data, (size_t)n * sizeof(int64_t)); return true;
    case IN_U64:
      for (int64_t i = 0; i < n; i++) {
        if (proto->uint64_data[i] > (uint64_t)INT64_MAX) return false;
        ((int64_t *)out)[i] = (int64_t)proto->uint64_data[i];
      }
      return true;
    case IN_I32:
      for (int64_t i = 0; i < n; i++) set_from_i32(e, proto->int32_data, i, out);
      return true;
    case NOT_IN_LIST: break;
  }
  return true;
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* The type that is claimed, which may be any numbers at all. */
static neap_status read_type(neap_onnx_file *file, const Onnx__TensorProto *proto,
                             const element **e, neap_shape *shape, int64_t *n, neap_error *error) {
  *e = element_of(proto->data_type);
  if (*e == NULL)
    return neap_onnx_fail(file, error, NEAP_DATA, "element type %d is none that Neap reads",
                          (int)proto->data_type);
  if (proto->n_dims > NEAP_MAX_DIM)
    return neap_onnx_fail(file, error, NEAP_DATA, "%zu dimensions, at most %d are read",
                          proto->n_dims, NEAP_MAX_DIM);

  /* What is claimed is bounded so that n times the bits of an element, at most 64, fits an
   * int64. */
  *shape = (neap_shape){.n_dim = (int)proto->n_dims};
  *n = 1;
  for (int d = 0; d < shape->n_dim; d++) {
    int64_t size = proto->dims[d];
    if (size < 0)
      return neap_onnx_fail(file, error, NEAP_DATA, "a dimension of %lld", (long long)size);
    if (__builtin_mul_overflow(*n, size, n) || *n > INT64_MAX / 64)
      return neap_onnx_fail(file, error, NEAP_DATA, "more elements than there can be");
    shape->dim[d] = size;
  }
  /* Of no elements, too, the dimensions are those of a tensor that can be. */
  neap_error inner = {0};
  neap_type type = {(*e)->dtype == NEAP_DTYPE_NONE ? NEAP_DTYPE_U8 : (*e)->dtype, *shape};
  if (neap_type_check(&type, "it", &inner) != NEAP_OK)
    return neap_onnx_fail(file, error, NEAP_DATA, "%s", inner.message);
  return NEAP_OK;
}

static neap_status take_text(neap_onnx_file *file, const Onnx__TensorProto *proto, int64_t n,
                             neap_onnx_tensor *out, neap_error *error) {
  if ((uint64_t)n != proto->n_string_data || n > INT32_MAX)
    return neap_onnx_fail(file, error, NEAP_DATA, "%lld strings are claimed, %zu are there",
                          (long long)n, proto->n_string_data);
  neap_onnx_text *text = neap_onnx_room(file, (size_t)n, sizeof *text, error);
  if (text == NULL) return NEAP_MEMORY;
  for (int64_t i = 0; i < n; i++)
    text[i] = (neap_onnx_text){(const char *)proto->string_data[i].data, proto->string_data[i].len};
  out->text = text;
  out->n_text = (int)n;
  return NEAP_OK;
}

/* The elements of n numbers at `raw`, as the type's dtype. */
static neap_status convert(const neap_onnx_file *file, const element *e, const uint8_t *raw,
                           int64_t n, const neap_shape *shape, neap_tensor *out,
                           neap_error *error) {
  NEAP_TRY(neap_tensor_new(out, e->dtype, shape, error));
  char *data = neap_tensor_data(out);
  if (e->plain && n > 0) memcpy(data, raw, (size_t)n * neap_dtype_bytes(e->dtype));
  bool fits = true;
  if (!e->plain)
    for (int64_t i = 0; i < n && fits; i++) fits = set_from_raw(e, raw, i, data);
  if (fits) return NEAP_OK;
  neap_tensor_fini(out);
  return neap_onnx_fail(file, error, NEAP_DATA, "a uint64 above 2^63 - 1");
}

static neap_status take_external(neap_onnx_file *file, const Onnx__TensorProto *proto,
                                 const element *e, const neap_shape *shape, int64_t n,
                                 int64_t n_bytes, neap_onnx_tensor *out, neap_error *error) {
  if (e->plain) {
    NEAP_TRY(neap_onnx_external(file, proto, e->dtype, shape, n_bytes, &out->tensor, error));
    out->mapped = neap_storage_is_read_only(out->tensor.storage);
    return NEAP_OK;
  }
  /* Bits that are to be widened are looked at as bytes first. */
  neap_tensor raw = {0};
  neap_shape flat = NEAP_SHAPE(n_bytes);
  NEAP_TRY(neap_onnx_external(file, proto, NEAP_DTYPE_U8, &flat, n_bytes, &raw, error));
  neap_status status =
    convert(file, e, (const uint8_t *)neap_tensor_data(&raw), n, shape, &out->tensor, error);
  neap_tensor_fini(&raw);
  return status;
}

/* Bytes of the message that have been copied go, so that a model is not in memory twice. */
static void drop_raw(Onnx__TensorProto *proto) {
  neap_free(proto->raw_data.data);
  proto->raw_data = (ProtobufCBinaryData){0};
  proto->has_raw_data = false;
}

/* The same of lists of numbers, of which there is one. */
static void drop_lists(Onnx__TensorProto *proto) {
  neap_free(proto->float_data);
  neap_free(proto->double_data);
  neap_free(proto->int32_data);
  neap_free(proto->int64_data);
  neap_free(proto->uint64_data);
  proto->float_data = NULL;
  proto->double_data = NULL;
  proto->int32_data = NULL;
  proto->int64_data = NULL;
  proto->uint64_data = NULL;
  proto->n_float_data = proto->n_double_data = 0;
  proto->n_int32_data = proto->n_int64_data = proto->n_uint64_data = 0;
}

neap_status neap_onnx_take_tensor(neap_onnx_file *file, Onnx__TensorProto *proto,
                                  neap_onnx_tensor *out, neap_error *error) {
  const element *e;
  neap_shape shape;
  int64_t n = 0;

  /* The name first, which is what a message tells of the place. */
  *out = (neap_onnx_tensor){.name = proto->name != NULL ? proto->name : "",
                            .elem_type = proto->data_type};
  if (out->name[0] != '\0') snprintf(file->part, sizeof file->part, "tensor \"%s\"", out->name);
  NEAP_TRY(read_type(file, proto, &e, &shape, &n, error));
  if (proto->segment != NULL)
    return neap_onnx_fail(file, error, NEAP_DATA, "a segment of a tensor, which is not read");
  if (e->dtype == NEAP_DTYPE_NONE) return take_text(file, proto, n, out, error);
  /* What is claimed against what is there, whichever of three places that is. */
  int64_t n_bytes = (n * e->bits + 7) / 8;
  if (proto->data_location == ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL)
    return take_external(file, proto, e, &shape, n, n_bytes, out, error);
  size_t listed = n_in_list(e, proto);

  /* Raw bytes, one element behind the other, the low byte first: as tensors have them. */
  if (proto->has_raw_data) {
    if ((uint64_t)n_bytes != proto->raw_data.len)
      return neap_onnx_fail(file, error, NEAP_DATA, "%lld bytes are claimed, %zu are there",
                            (long long)n_bytes, proto->raw_data.len);
    NEAP_TRY(convert(file, e, proto->raw_data.data, n, &shape, &out->tensor, error));
    drop_raw(proto);
    return NEAP_OK;
  }

  /* Neither: the list that the type has, where an empty one is that of no elements. */
  if ((uint64_t)n_numbers(e, n) != listed)
    return neap_onnx_fail(file, error, NEAP_DATA, "%lld elements are claimed, %zu are there",
                          (long long)n, listed);
  NEAP_TRY(neap_tensor_new(&out->tensor, e->dtype, &shape, error));
  if (n == 0 || set_from_list(e, proto, n, neap_tensor_data(&out->tensor))) {
    drop_lists(proto);
    return NEAP_OK;
  }
  neap_tensor_fini(&out->tensor);
  return neap_onnx_fail(file, error, NEAP_DATA, "a uint64 above 2^63 - 1");
}
