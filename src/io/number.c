/* number.c: the numbers in files: which dtype they become, and the way there. */
#include "io/io_int.h"

#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__,
               "files hold little-endian numbers, and so do tensors");

enum { CHUNK_BYTES = 1 << 16 };

/* A table, not rules: what is not in it is refused by name. u32 and u64 are in it under wider
 * dtypes. */
bool neap_io_number_of(char kind, int bytes, bool big_endian, neap_io_number *out) {
  static const struct {
    char kind;
    int bytes;
    neap_dtype dtype;
  } known[] = {
    {'f', 4, NEAP_DTYPE_F32},  {'f', 8, NEAP_DTYPE_F64}, {'f', 2, NEAP_DTYPE_F16},
    {'V', 2, NEAP_DTYPE_BF16}, {'i', 1, NEAP_DTYPE_I8},  {'i', 2, NEAP_DTYPE_I16},
    {'i', 4, NEAP_DTYPE_I32},  {'i', 8, NEAP_DTYPE_I64}, {'u', 1, NEAP_DTYPE_U8},
    {'u', 2, NEAP_DTYPE_U16},  {'u', 4, NEAP_DTYPE_I64}, {'u', 8, NEAP_DTYPE_I64},
    {'b', 1, NEAP_DTYPE_BOOL},
  };
  for (int i = 0; i < NEAP_COUNT(known); i++)
    if (known[i].kind == kind && known[i].bytes == bytes) {
      *out = (neap_io_number){known[i].dtype, bytes, kind == 'u', big_endian && bytes > 1};
      return true;
    }
  return false;
}

bool neap_io_number_is_plain(const neap_io_number *number) {
  bool may_overflow = number->is_unsigned && number->bytes == 8;
  return !number->swap && !may_overflow && (size_t)number->bytes == neap_dtype_bytes(number->dtype);
}

/* The bits of one number, zero-extended. */
static uint64_t load_bits(const char *at, int bytes, bool swap) {
  uint64_t bits = 0;
  memcpy(&bits, at, (size_t)bytes); /* little-endian: the low bytes */
  return swap ? __builtin_bswap64(bits) >> (64 - 8 * bytes) : bits;
}

/* Bits are moved, not values computed: so floats keep NaN payloads and -0. */
bool neap_io_number_convert(const neap_io_number *number, void *out, const void *in, int64_t n) {
  int from = number->bytes, to = (int)neap_dtype_bytes(number->dtype);
  for (int64_t i = 0; i < n; i++) {
    /* The bits as a number of this machine; what i64 can't hold is refused. */
    uint64_t bits = load_bits((const char *)in + i * from, from, number->swap);
    if (number->is_unsigned && from == 8 && bits > INT64_MAX) return false;
    if (from < to && !number->is_unsigned) { /* only integers are widened: repeat the sign bit */
      int empty = 64 - 8 * from;
      bits = (uint64_t)((int64_t)(bits << empty) >> empty);
    }
    memcpy((char *)out + i * to, &bits, (size_t)to);
  }
  return true;
}

/* Reads and converts n numbers by chunks, so that no second copy of them is held. */
static neap_status read_converted(const neap_io_source *source, int64_t offset,
                                  const neap_io_number *number, char *out, int64_t n,
                                  neap_error *error) {
  char chunk[CHUNK_BYTES];
  int64_t most = CHUNK_BYTES / number->bytes;
  for (int64_t i = 0; i < n; i += most) {
    int64_t part = NEAP_MIN(most, n - i);
    NEAP_TRY(neap_io_source_read(source, offset + i * number->bytes, chunk, part * number->bytes,
                                 "the data", error));
    if (!neap_io_number_convert(number, out + i * (int64_t)neap_dtype_bytes(number->dtype), chunk,
                                part))
      return neap_io_source_fail(source, error, NEAP_DATA,
                                 "a u64 number is larger than i64 holds (9223372036854775807)");
  }
  return NEAP_OK;
}

/* Size and bounds are checked first; *out is set only on success. */
neap_status neap_io_number_tensor(const neap_io_source *source, int64_t offset,
                                  const neap_io_number *number, const neap_shape *shape,
                                  neap_tensor *out, neap_error *error) {
  /* The shape comes from the file: its words become the file's. */
  neap_error why = {0};
  if (neap_type_check(&(neap_type){number->dtype, *shape}, "the tensor", &why) != NEAP_OK)
    return neap_io_source_fail(source, error, NEAP_DATA, "%s", why.message);
  int64_t elems = neap_shape_elems(shape), file_bytes = elems * number->bytes;
  NEAP_TRY(neap_io_source_check(source, offset, file_bytes, "the data", error));
  /* Mapped, of the tensor's own format and aligned: a view of the file. */
  bool plain = neap_io_number_is_plain(number);
  if (plain && source->memory != NULL) {
    int64_t at = source->memory_offset + offset;
    if ((uintptr_t)(neap_storage_data(source->memory) + at) % (uintptr_t)number->bytes == 0) {
      *out = neap_tensor_view(source->memory, at, number->dtype, shape);
      return NEAP_OK;
    }
  }
  /* Else a copy, read straight into its place where nothing is to be converted. */
  neap_tensor fresh;
  NEAP_TRY(neap_tensor_new(&fresh, number->dtype, shape, error));
  neap_status status =
    plain
      ? neap_io_source_read(source, offset, neap_tensor_data(&fresh), file_bytes, "the data", error)
      : read_converted(source, offset, number, neap_tensor_data(&fresh), elems, error);
  if (status == NEAP_OK)
    *out = fresh;
  else
    neap_tensor_fini(&fresh);
  return status;
}
