/* npz.c: named tensors in NumPy's .npz format: a zip archive of .npy files, stored or deflated.
 *
 * Reading goes by the central directory at the archive's end. A stored member of a mapped file is a
 * view of it; any other one is unpacked into a storage, checked against its CRC, and the tensor is
 * a view of that.
 * INVARIANT: no member's claimed size is believed beyond what its packed bytes could unpack to, and
 * the packed bytes of all members together are no more than the file has: a zip bomb by overlapping
 * members is refused. Source: PKWARE APPNOTE 6.3.9, sections 4.3 to 4.5. zip64 throughout when
 * writing, so that there is one path.
 */
#include "io/io_int.h"

#include <string.h>
#define ZLIB_CONST
#include <zlib.h>

enum {
  LOCAL_BYTES = 30,
  CENTRAL_BYTES = 46,
  END_BYTES = 22,
  END64_BYTES = 56,
  LOCATOR_BYTES = 20,
  MOST_COMMENT = 65535,
  EXTRA_ZIP64 = 1,
  EXTRA_ALIGN = 0xD935, /* the alignment field that Android's zipalign registered */
  STORED = 0,
  DEFLATED = 8,
  ENCRYPTED_FLAG = 1,
  VERSION_ZIP64 = 45,
  DATE_1980 = 0x21,
};
#define SIGNATURE_LOCAL 0x04034b50u
#define SIGNATURE_CENTRAL 0x02014b50u
#define SIGNATURE_END 0x06054b50u
#define SIGNATURE_END64 0x06064b50u
#define SIGNATURE_LOCATOR 0x07064b50u
#define MOST_DEFLATE_RATIO 1032 /* 258 bytes from 2 bits */

/* Little-endian fields. */
static uint64_t get(const unsigned char *at, int bytes) {
  uint64_t x = 0;
  memcpy(&x, at, (size_t)bytes);
  return x;
}

/* Writes the low `bytes` bytes of value at *at, which moves past them. */
static void put(unsigned char **at, uint64_t value, int bytes) {
  memcpy(*at, &value, (size_t)bytes);
  *at += bytes;
}

/* ---- reading --------------------------------------------------------------------------------- */

typedef struct member {
  const char *name; /* borrowed from the directory; not terminated */
  size_t n_name;
  int method;
  uint32_t crc;
  uint64_t packed, unpacked, local_offset; /* as claimed */
} member;

/* The central directory as it is in the file; members point into it. */
typedef struct directory {
  unsigned char *bytes; /* owned */
  int64_t n_bytes;
} directory;

/* One wording for whatever is not a zip archive. */
static neap_status bad_zip(const neap_io_source *source, neap_error *error, const char *what) {
  return neap_io_source_fail(source, error, NEAP_DATA, "truncated or damaged .npz (zip) file: %s",
                             what);
}

/* Where the central directory lies, from the record at the end, which only a comment may follow. */
static neap_status find_directory(const neap_io_source *source, uint64_t *offset, uint64_t *n_bytes,
                                  neap_error *error) {
  unsigned char tail[END_BYTES + MOST_COMMENT], record[END64_BYTES];
  int64_t n = NEAP_MIN(source->n_bytes, (int64_t)sizeof tail), end = n - END_BYTES;
  NEAP_TRY(
    neap_io_source_read(source, source->n_bytes - n, tail, n, "the end of the archive", error));
  /* From the end backwards: the record's own length of the comment tells a true one from bytes of a
   * comment that look like it. */
  while (end >= 0 && !(get(tail + end, 4) == SIGNATURE_END &&
                       (int64_t)get(tail + end + 20, 2) == n - end - END_BYTES))
    end--;
  if (end < 0) return bad_zip(source, error, "no end record");
  /* All ones in a field: the number is in the zip64 record, which a locator just before this record
   * leads to. */
  *n_bytes = get(tail + end + 12, 4);
  *offset = get(tail + end + 16, 4);
  bool wide =
    *offset == UINT32_MAX || *n_bytes == UINT32_MAX || get(tail + end + 10, 2) == UINT16_MAX;
  if (!wide || end < LOCATOR_BYTES || get(tail + end - LOCATOR_BYTES, 4) != SIGNATURE_LOCATOR)
    return NEAP_OK;
  /* The locator's offset comes from the file, as all else: it is looked at before it is used. */
  uint64_t at = get(tail + end - LOCATOR_BYTES + 8, 8);
  if (at > (uint64_t)source->n_bytes)
    return bad_zip(source, error, "the zip64 end record lies outside");
  NEAP_TRY(
    neap_io_source_read(source, (int64_t)at, record, END64_BYTES, "the zip64 end record", error));
  if (get(record, 4) != SIGNATURE_END64)
    return bad_zip(source, error, "no zip64 end record where one should be");
  *n_bytes = get(record + 40, 8);
  *offset = get(record + 48, 8);
  return NEAP_OK;
}

/* Its size is checked against the file's before it is allocated. Fills d, whose bytes the caller
 * frees. */
static neap_status read_directory(const neap_io_source *source, directory *d, neap_error *error) {
  uint64_t offset, n_bytes;
  NEAP_TRY(find_directory(source, &offset, &n_bytes, error));
  if (offset > (uint64_t)source->n_bytes || n_bytes > (uint64_t)source->n_bytes - offset)
    return bad_zip(source, error, "the central directory lies outside");
  d->n_bytes = (int64_t)n_bytes;
  d->bytes = neap_alloc((size_t)n_bytes);
  if (d->bytes == NULL) return neap_fail_memory(error, (size_t)n_bytes, "a zip directory");
  neap_status status = neap_io_source_read(source, (int64_t)offset, d->bytes, d->n_bytes,
                                           "the central directory", error);
  if (status != NEAP_OK) neap_free(d->bytes);
  return status;
}

/* Replaces what the 32-bit fields could not hold by the zip64 field's numbers, which come in this
 * order. */
static bool read_zip64(member *m, const unsigned char *extra, size_t n) {
  uint64_t *wanted[] = {&m->unpacked, &m->packed, &m->local_offset};
  /* An extra field is id, size and so many bytes; those of other ids are passed over. */
  while (n >= 4) {
    size_t id = get(extra, 2), size = get(extra + 2, 2);
    if (size > n - 4) return false;
    const unsigned char *at = extra + 4, *end = at + size;
    /* Only fields that are all ones stand in the zip64 field, in this order. */
    for (int i = 0; i < 3; i++) {
      if (id != EXTRA_ZIP64 || *wanted[i] != UINT32_MAX) continue;
      if (end - at < 8) return false;
      *wanted[i] = get(at, 8);
      at += 8;
    }
    extra = end;
    n -= 4 + size;
  }
  return true;
}

/* The directory's record at *at, which moves past it. */
static neap_status read_member(const neap_io_source *source, const directory *d, int64_t *at,
                               member *m, neap_error *error) {
  const unsigned char *r = d->bytes + *at;
  if (d->n_bytes - *at < CENTRAL_BYTES || get(r, 4) != SIGNATURE_CENTRAL)
    return bad_zip(source, error, "a record of the central directory");
  /* The record has a fixed part, then name, extra fields and comment, all within the directory. */
  size_t n_name = get(r + 28, 2), n_extra = get(r + 30, 2), n_comment = get(r + 32, 2);
  int64_t whole = CENTRAL_BYTES + (int64_t)(n_name + n_extra + n_comment);
  if (d->n_bytes - *at < whole) return bad_zip(source, error, "a record of the central directory");
  *m = (member){.name = (const char *)r + CENTRAL_BYTES,
                .n_name = n_name,
                .method = (int)get(r + 10, 2),
                .crc = (uint32_t)get(r + 16, 4),
                .packed = get(r + 20, 4),
                .unpacked = get(r + 24, 4),
                .local_offset = get(r + 42, 4)};
  /* Sizes that didn't fit 32 bits. */
  if (!read_zip64(m, r + CENTRAL_BYTES + n_name, n_extra))
    return bad_zip(source, error, "an extra field of the central directory");
  if (get(r + 8, 2) & ENCRYPTED_FLAG)
    return neap_io_source_fail(source, error, NEAP_DATA, "a member is encrypted");
  *at += whole;
  return NEAP_OK;
}

/* Inflates `in` into the n_out bytes at `out`: all of them, and no more. */
static bool inflate_all(const unsigned char *in, uint64_t n_in, char *out, uint64_t n_out) {
  z_stream z = {0};
  /* room for one byte too many, so that a stream longer than claimed is told from one that ends */
  unsigned char spare = 0;
  uint64_t left_in = n_in, left_out = n_out;
  if (inflateInit2(&z, -MAX_WBITS) != Z_OK) return false;
  int code = Z_OK;
  while (code == Z_OK && z.total_out <= n_out) {
    /* zlib counts in 32 bits, so both sides come in pieces of at most 1 GiB. */
    if (z.avail_in == 0 && left_in > 0) {
      z.next_in = in + (n_in - left_in);
      z.avail_in = (uInt)NEAP_MIN(left_in, (uint64_t)1 << 30);
      left_in -= z.avail_in;
    }
    if (z.avail_out == 0 && left_out > 0) {
      z.next_out = (unsigned char *)out + (n_out - left_out);
      z.avail_out = (uInt)NEAP_MIN(left_out, (uint64_t)1 << 30);
      left_out -= z.avail_out;
    } else if (z.avail_out == 0) {
      z.next_out = &spare;
      z.avail_out = 1;
    }
    code = inflate(&z, Z_NO_FLUSH);
  }
  /* A stream that has ended says so once more; one that is longer has filled the spare byte. */
  bool whole = z.total_out == n_out && inflate(&z, Z_NO_FLUSH) == Z_STREAM_END;
  inflateEnd(&z);
  return whole;
}

/* crc32_z takes sizes beyond 4 GiB, which crc32 does not. */
static bool crc_agrees(const char *data, uint64_t n, uint32_t crc) {
  uLong sum = crc32_z(0, NULL, 0);
  return (uint32_t)crc32_z(sum, (const unsigned char *)data, (z_size_t)n) == crc;
}

/* What the packed bytes of the member stand for. */
static neap_status inflate_member(const neap_io_source *source, const member *m,
                                  const neap_storage *packed, neap_storage **out,
                                  neap_error *error) {
  neap_storage *whole = neap_storage_new(m->unpacked);
  if (whole == NULL) return neap_fail_memory(error, m->unpacked, "a member of a .npz file");
  *out = whole;
  if (inflate_all((const unsigned char *)neap_storage_data(packed), m->packed,
                  neap_storage_data(whole), m->unpacked))
    return NEAP_OK;
  return neap_io_source_fail(source, error, NEAP_DATA, "the compressed data is damaged");
}

/* The member's bytes in a storage of their own. */
static neap_status unpack(const neap_io_source *source, const member *m, int64_t at,
                          neap_storage **out, neap_error *error) {
  neap_storage *packed = NULL, *whole = NULL;
  NEAP_TRY(
    neap_io_source_storage(source, at, (int64_t)m->packed, "the member's data", &packed, error));
  /* A stored member is its packed bytes; a deflated one is inflated beside them. */
  neap_status status = NEAP_OK;
  if (m->method == STORED) {
    whole = neap_storage_retain(packed);
  } else {
    status = inflate_member(source, m, packed, &whole, error);
  }
  neap_storage_release(packed);
  /* The checksum is of the unpacked bytes, whatever the method. */
  if (status == NEAP_OK && !crc_agrees(neap_storage_data(whole), m->unpacked, m->crc))
    status = neap_io_source_fail(source, error, NEAP_DATA,
                                 "the data is damaged: its checksum (CRC-32) does not agree");
  if (status == NEAP_OK)
    *out = whole;
  else
    neap_storage_release(whole);
  return status;
}

/* Where the member's data begins, after its local header; and whether its claims can be true. */
static neap_status locate(const neap_io_source *source, const member *m, int64_t *at,
                          neap_error *error) {
  unsigned char local[LOCAL_BYTES];
  uint64_t n_bytes = (uint64_t)source->n_bytes;
  if (m->method != STORED && m->method != DEFLATED)
    return neap_io_source_fail(
      source, error, NEAP_DATA,
      "compression method %d is unknown; Neap reads stored and deflated members", m->method);
  /* Claims are checked before anything of their size is allocated. */
  if (m->local_offset > n_bytes || m->packed > n_bytes)
    return bad_zip(source, error, "the member lies outside");
  NEAP_TRY(neap_io_source_read(source, (int64_t)m->local_offset, local, LOCAL_BYTES,
                               "a local header", error));
  if (get(local, 4) != SIGNATURE_LOCAL)
    return bad_zip(source, error, "no local header where one should be");
  /* The local header has a name and extra fields of its own lengths, which need not be the
   * directory's. */
  *at = (int64_t)m->local_offset + LOCAL_BYTES + (int64_t)get(local + 26, 2) +
        (int64_t)get(local + 28, 2);
  NEAP_TRY(neap_io_source_check(source, *at, (int64_t)m->packed, "the member's data", error));
  bool possible =
    m->method == STORED ? m->unpacked == m->packed : m->unpacked / MOST_DEFLATE_RATIO <= m->packed;
  return possible ? NEAP_OK
                  : bad_zip(source, error, "the member claims a size that its data cannot have");
}

/* Reads the member as a .npy file of its own. */
static neap_status load_member(const neap_io_source *source, const member *m, neap_io_map map,
                               neap_tensor *out, neap_error *error) {
  int64_t at = 0;
  NEAP_TRY(locate(source, m, &at, error));
  neap_io_source inner = {
    .path = source->path, .member = source->member, .fd = -1, .n_bytes = (int64_t)m->unpacked};
  /* Stored members of a mapped file are read where they lie; others get bytes of their own. */
  if (source->memory != NULL && m->method == STORED) {
    inner.memory = neap_storage_retain(source->memory);
    inner.memory_offset = source->memory_offset + at;
  } else {
    NEAP_TRY(unpack(source, m, at, &inner.memory, error));
    /* the same rules for every tensor of the file */
    if (map == NEAP_IO_MAP_READ) neap_storage_set_read_only(inner.memory);
  }
  neap_status status = neap_io_npy_load(&inner, map != NEAP_IO_COPY, out, error);
  neap_storage_release(inner.memory);
  return status;
}

/* Loads the member if it is a .npy file, and adds it under its name without the ending. */
static neap_status add_member(const neap_io_source *source, const member *m, neap_io_map map,
                              neap_io_list *list, neap_error *error) {
  /* Other files in the archive are passed over. */
  if (m->n_name < 4 || memcmp(m->name + m->n_name - 4, ".npy", 4) != 0) return NEAP_OK;
  char *name = neap_alloc(m->n_name + 1);
  if (name == NULL) return neap_fail_memory(error, m->n_name + 1, "a name");
  memcpy(name, m->name, m->n_name);
  name[m->n_name] = '\0';
  /* Messages name the member, with its ending. */
  neap_io_source named = *source;
  named.member = name;
  neap_tensor t;
  neap_status status = load_member(&named, m, map, &t, error);
  if (status == NEAP_OK) status = neap_io_list_add(list, name, m->n_name - 4, &t, error);
  neap_free(name);
  return status;
}

/* Adds a tensor for each .npy member, in the directory's order. */
neap_status neap_io_npz_load(const neap_io_source *source, neap_io_map map, neap_io_list *list,
                             neap_error *error) {
  directory d = {0};
  NEAP_TRY(read_directory(source, &d, error));
  neap_status status = NEAP_OK;
  uint64_t packed = 0;
  for (int64_t at = 0; at < d.n_bytes;) {
    member m = {0};
    status = read_member(source, &d, &at, &m, error);
    if (status != NEAP_OK) break;
    /* Members that overlap would unpack to more than the file is worth. */
    if (m.packed > (uint64_t)source->n_bytes - packed) {
      status = bad_zip(source, error, "its members claim more bytes than the file has");
      break;
    }
    packed += m.packed;
    NEAP_ASSERT(packed <= (uint64_t)source->n_bytes, "members of at most %lld bytes, got %llu",
                (long long)source->n_bytes, (unsigned long long)packed);
    status = add_member(source, &m, map, list, error);
    if (status != NEAP_OK) break;
  }
  neap_free(d.bytes);
  return status;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* What the central directory repeats of a member. */
typedef struct written {
  uint32_t crc;
  uint64_t n_bytes, offset;
} written;

enum { ENDING = 4 /* of ".npy" */, LOCAL_EXTRA = 20, CENTRAL_EXTRA = 28, ALIGN_EXTRA = 6 };

/* The fields that local header and directory share, from "version needed" to the name's length. */
static void put_common(unsigned char **at, const written *w, size_t n_name) {
  put(at, VERSION_ZIP64, 2);
  put(at, 1u << 11, 2); /* names are UTF-8 */
  put(at, STORED, 2);
  put(at, 0, 2);
  put(at, DATE_1980, 2); /* no clock in the file: the same tensors give the same bytes */
  put(at, w->crc, 4);
  put(at, UINT32_MAX, 4); /* both sizes are in the zip64 field */
  put(at, UINT32_MAX, 4);
  put(at, n_name + ENDING, 2);
}

/* Local header, name and extra fields, padded so that the .npy file begins at a multiple of 64:
 * mapped, it is aligned. */
static neap_status write_local(neap_io_sink *sink, const char *name, const written *w,
                               neap_error *error) {
  unsigned char head[LOCAL_BYTES], extra[LOCAL_EXTRA + ALIGN_EXTRA + NEAP_ALIGN] = {0}, *at = head;
  size_t n_name = strlen(name),
         before = (size_t)sink->n_bytes + LOCAL_BYTES + n_name + ENDING + LOCAL_EXTRA + ALIGN_EXTRA;
  /* Zeros in a field of its own, so that other readers pass over them. */
  size_t padding = neap_align(before) - before;
  /* The header; its sizes are all ones. */
  put(&at, SIGNATURE_LOCAL, 4);
  put_common(&at, w, n_name);
  put(&at, LOCAL_EXTRA + ALIGN_EXTRA + padding, 2);
  /* The zip64 field with both sizes, then the one that pads. */
  at = extra;
  put(&at, EXTRA_ZIP64, 2);
  put(&at, 16, 2);
  put(&at, w->n_bytes, 8);
  put(&at, w->n_bytes, 8);
  put(&at, EXTRA_ALIGN, 2);
  put(&at, 2 + padding, 2);
  put(&at, NEAP_ALIGN, 2);
  NEAP_TRY(neap_io_sink_write(sink, head, sizeof head, error));
  NEAP_TRY(neap_io_sink_write(sink, name, n_name, error));
  NEAP_TRY(neap_io_sink_write(sink, ".npy", ENDING, error));
  return neap_io_sink_write(sink, extra, LOCAL_EXTRA + ALIGN_EXTRA + padding, error);
}

/* The directory's record: sizes and offset in the zip64 field, 0 or all ones in the old places. */
static neap_status write_central(neap_io_sink *sink, const char *name, const written *w,
                                 neap_error *error) {
  unsigned char head[CENTRAL_BYTES] = {0}, extra[CENTRAL_EXTRA], *at = head;
  size_t n_name = strlen(name);
  /* Made by, needed by: the same version. */
  put(&at, SIGNATURE_CENTRAL, 4);
  put(&at, VERSION_ZIP64, 2);
  put_common(&at, w, n_name);
  put(&at, CENTRAL_EXTRA, 2);
  at = head + 42; /* no comment, first disk, no attributes */
  put(&at, UINT32_MAX, 4);
  at = extra;
  put(&at, EXTRA_ZIP64, 2);
  put(&at, 24, 2);
  put(&at, w->n_bytes, 8);
  put(&at, w->n_bytes, 8);
  put(&at, w->offset, 8);
  NEAP_TRY(neap_io_sink_write(sink, head, sizeof head, error));
  NEAP_TRY(neap_io_sink_write(sink, name, n_name, error));
  NEAP_TRY(neap_io_sink_write(sink, ".npy", ENDING, error));
  return neap_io_sink_write(sink, extra, sizeof extra, error);
}

/* zip64 end record, its locator, and the old end record. */
static neap_status write_end(neap_io_sink *sink, uint64_t n, uint64_t offset, neap_error *error) {
  unsigned char end[END64_BYTES + LOCATOR_BYTES + END_BYTES] = {0}, *at = end;
  uint64_t here = (uint64_t)sink->n_bytes;
  /* The record with the true numbers, whose size is said without its first 12 bytes. */
  put(&at, SIGNATURE_END64, 4);
  put(&at, END64_BYTES - 12, 8);
  put(&at, VERSION_ZIP64, 2);
  put(&at, VERSION_ZIP64, 2);
  put(&at, 0, 8); /* this disk, and the directory's: the first */
  put(&at, n, 8);
  put(&at, n, 8);
  put(&at, here - offset, 8);
  put(&at, offset, 8);
  /* Where that record lies: on the first disk, of one. */
  put(&at, SIGNATURE_LOCATOR, 4);
  put(&at, 0, 4);
  put(&at, here, 8);
  put(&at, 1, 4);
  /* The old record, all ones, which sends a reader to the other one. */
  put(&at, SIGNATURE_END, 4);
  put(&at, 0, 4);
  put(&at, UINT16_MAX, 2);
  put(&at, UINT16_MAX, 2);
  put(&at, UINT32_MAX, 4);
  put(&at, UINT32_MAX, 4);
  return neap_io_sink_write(sink, end, sizeof end, error);
}

/* The checksum stands before the data, so the tensor is passed over twice. Fills *w for the
 * directory. */
static neap_status write_member(neap_io_sink *sink, const neap_io_item *item, written *w,
                                neap_error *error) {
  char header[NEAP_IO_NPY_HEADER];
  neap_tensor dense;
  NEAP_TRY(neap_io_dense(&item->tensor, &dense, error));
  neap_type type = neap_tensor_type(&dense);
  size_t n_header = neap_io_npy_header(&type, header), n_data = neap_type_bytes(&type);
  /* Of header and data, as they will stand in the file. */
  uLong crc = crc32_z(crc32_z(0, NULL, 0), (const unsigned char *)header, n_header);
  if (n_data > 0) crc = crc32_z(crc, (const unsigned char *)neap_tensor_data(&dense), n_data);
  *w = (written){(uint32_t)crc, n_header + n_data, (uint64_t)sink->n_bytes};
  neap_status status = write_local(sink, item->name, w, error);
  if (status == NEAP_OK) status = neap_io_npy_save(sink, &dense, error);
  neap_tensor_fini(&dense);
  return status;
}

/* Members in the order given, then the directory, then its end record. */
neap_status neap_io_npz_save(neap_io_sink *sink, int n, const neap_io_item *item,
                             neap_error *error) {
  neap_status status = NEAP_OK;
  written *members = neap_alloc((size_t)n * sizeof *members);
  if (members == NULL)
    return neap_fail_memory(error, (size_t)n * sizeof *members, "a zip directory");
  for (int i = 0; i < n; i++) {
    if (strlen(item[i].name) + ENDING > UINT16_MAX)
      status = neap_fail(error, NEAP_ARGUMENT, "%s: a name is longer than a .npz file can hold",
                         sink->path);
    else
      status = write_member(sink, &item[i], &members[i], error);
    if (status != NEAP_OK) goto done;
  }
  /* Here the directory begins. */
  uint64_t offset = (uint64_t)sink->n_bytes;
  for (int i = 0; i < n; i++) {
    status = write_central(sink, item[i].name, &members[i], error);
    if (status != NEAP_OK) goto done;
  }
  status = write_end(sink, (uint64_t)n, offset, error);
done:
  neap_free(members);
  return status;
}
