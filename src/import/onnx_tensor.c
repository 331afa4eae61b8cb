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
  /* small floats: bits of exponent and mantissa, what is added to the exponent, no infinities,
   * and the bits of NaN where that is one pattern alone: as in the IEEE's where all are 0 */
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
  int m = e->small.mantissa, k = e->small.exponent;
  unsigned mantissa = bits & ((1u << m) - 1), exponent = bits >> m & ((1u << k) - 1);
  bool negative = bits >> (m + k) & 1, top = exponent == (1u << k) - 1;
  if (e->small.zero_is_nan && negative && mantissa == 0 && exponent == 0) return (double)NAN;
  if (!e->small.finite && top)
    return mantissa != 0 ? (double)NAN : (double)INFINITY * (negative ? -1 : 1);
  /* Four bits hold no NaN; eight without a sign for zero hold one, all ones. */
  bool ones = top && mantissa == (1u << m) - 1;
  if (e->bits == 8 && e->small.finite && !e->small.zero_is_nan && ones) return (double)NAN;
  double value = exponent == 0 ? ldexp(mantissa, 1 - e->small.bias - m)
                               : ldexp((1u << m) + mantissa, (int)exponent - e->small.bias - m);
  return negative ? -value : value;
}

/* Element i of raw bytes whose type needs more than a copy. False: it does not fit an i64. */
static bool set_from_bits(const element *e, const uint8_t *raw, int64_t i, void *out) {
  int64_t bit = i * e->bits;
  unsigned mask = e->bits < 32 ? (1u << e->bits) - 1 : 0;
  uint64_t wide = 0;
  uint32_t word;
  if (e->bits == 64) {
    memcpy(&wide, raw + i * 8, 8);
    if (wide > INT64_MAX) return false;
  } else if (e->bits == 32) {
    memcpy(&word, raw + i * 4, 4);
    wide = word;
  } else {
    wide = (unsigned)raw[bit / 8] >> (bit % 8) & mask;
  }
  if (e->small.exponent > 0) {
    neap_element_set(e->dtype, out, i, small_float(e, (unsigned)wide));
    return true;
  }
  /* Signed ones of few bits: the upper half of the numbers stands below 0. */
  int64_t value = (int64_t)wide;
  if (e->dtype == NEAP_DTYPE_I8 && value >> (e->bits - 1) != 0) value -= (int64_t)mask + 1;
  if (e->dtype == NEAP_DTYPE_BOOL) value = value != 0;
  neap_element_set_i64(e->dtype, out, i, value);
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

/* The numbers of a list, each cut to the type's bits. False: one does not fit. */
static bool set_from_list(const element *e, const Onnx__TensorProto *proto, int64_t n, void *out) {
  if (e->list == IN_F32) memcpy(out, proto->float_data, (size_t)n * sizeof(float));
  if (e->list == IN_F64) memcpy(out, proto->double_data, (size_t)n * sizeof(double));
  if (e->list == IN_I64) memcpy(out, proto->int64_data, (size_t)n * sizeof(int64_t));
  if (e->list == IN_U64)
    for (int64_t i = 0; i < n; i++) {
      if (proto->uint64_data[i] > (uint64_t)INT64_MAX) return false;
      ((int64_t *)out)[i] = (int64_t)proto->uint64_data[i];
    }
  if (e->list != IN_I32) return true;
  for (int64_t i = 0; i < n; i++) {
    int64_t per_number = e->bits < 8 ? 8 / e->bits : 1;
    int32_t number = proto->int32_data[i / per_number];
    uint8_t low = (uint8_t)number;
    uint16_t half = (uint16_t)number;
    /* Halves are bits, small types are bits in the low byte, and what is plain is a number. */
    if (e->dtype == NEAP_DTYPE_F16 || e->dtype == NEAP_DTYPE_BF16)
      ((uint16_t *)out)[i] = half;
    else if (e->bits < 8 && per_number > 1) {
      unsigned part = (unsigned)low >> (i % per_number * e->bits) & ((1u << e->bits) - 1);
      int64_t value = part;
      if (e->small.exponent > 0)
        neap_element_set(e->dtype, out, i, small_float(e, part));
      else
        neap_element_set_i64(e->dtype, out, i,
                             e->dtype == NEAP_DTYPE_I8 && value >> (e->bits - 1) != 0
                               ? value - (1 << e->bits)
                               : value);
    } else if (e->small.exponent > 0)
      neap_element_set(e->dtype, out, i, small_float(e, low));
    else
      neap_element_set_i64(e->dtype, out, i, e->dtype == NEAP_DTYPE_BOOL ? number != 0 : number);
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
    for (int64_t i = 0; i < n && fits; i++) fits = set_from_bits(e, raw, i, data);
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

neap_status neap_onnx_take_tensor(neap_onnx_file *file, Onnx__TensorProto *proto,
                                  neap_onnx_tensor *out, neap_error *error) {
  const element *e;
  neap_shape shape;
  int64_t n = 0;
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
  if (proto->has_raw_data) {
    if ((uint64_t)n_bytes != proto->raw_data.len)
      return neap_onnx_fail(file, error, NEAP_DATA, "%lld bytes are claimed, %zu are there",
                            (long long)n_bytes, proto->raw_data.len);
    NEAP_TRY(convert(file, e, proto->raw_data.data, n, &shape, &out->tensor, error));
    drop_raw(proto);
    return NEAP_OK;
  }
  if ((uint64_t)n_numbers(e, n) != listed)
    return neap_onnx_fail(file, error, NEAP_DATA, "%lld elements are claimed, %zu are there",
                          (long long)n, listed);
  NEAP_TRY(neap_tensor_new(&out->tensor, e->dtype, &shape, error));
  if (n == 0 || set_from_list(e, proto, n, neap_tensor_data(&out->tensor))) return NEAP_OK;
  neap_tensor_fini(&out->tensor);
  return neap_onnx_fail(file, error, NEAP_DATA, "a uint64 above 2^63 - 1");
}
