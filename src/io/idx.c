/* idx.c: gzip and idx files, both through zlib's gzread, which reads plain files as they are.
 *
 * idx, the format of MNIST: two zero bytes, the type, the number of dimensions, each dimension as a
 * big-endian u32, then the numbers, big-endian. Source: the description at
 * yann.lecun.com/exdb/mnist.
 */
#include "io/io_int.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define MOST_DEFLATE_RATIO 1032 /* what a gzip file can unpack to, per byte */

typedef struct unpacker {
  const char *path;
  gzFile file;
  int64_t most_bytes; /* that the file can hold unpacked */
} unpacker;

/* A regular file only: the bound on its unpacked size comes from its size. */
static neap_status unpacker_open(unpacker *u, const char *path, neap_error *error) {
  struct stat info;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return neap_fail(error, NEAP_IO, "%s: cannot be opened: %s", path, strerror(errno));
  if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
    close(fd);
    return neap_fail(error, NEAP_IO, "%s: is not a regular file", path);
  }
  /* If this works, zlib has the descriptor, and closes it. */
  *u = (unpacker){path, gzdopen(fd, "rb"), 0};
  if (u->file == NULL) {
    close(fd);
    return neap_fail_memory(error, 1 << 15, "zlib");
  }
  /* A header may claim any size: what the file can unpack to is the most that is believed. */
  gzbuffer(u->file, 1 << 17);
  if (__builtin_mul_overflow((int64_t)info.st_size, gzdirect(u->file) ? 1 : MOST_DEFLATE_RATIO,
                             &u->most_bytes))
    u->most_bytes = INT64_MAX;
  return NEAP_OK;
}

/* Reads up to n bytes; fewer only at the end. A damaged or truncated gzip file is a DATA error. */
static neap_status unpacker_read(unpacker *u, void *out, size_t n, size_t *got, neap_error *error) {
  for (*got = 0; *got < n;) {
    int part = gzread(u->file, (char *)out + *got, (unsigned)NEAP_MIN(n - *got, (size_t)1 << 30));
    /* gzread counts in an int: 1 GiB at a time. What is wrong, gzerror says. */
    int code = Z_OK;
    const char *wrong = gzerror(u->file, &code);
    if (code == Z_ERRNO)
      return neap_fail(error, NEAP_IO, "%s: cannot be read: %s", u->path, strerror(errno));
    if (code == Z_MEM_ERROR) return neap_fail_memory(error, 1 << 17, "zlib");
    if (part < 0 || (code != Z_OK && code != Z_STREAM_END))
      return neap_fail(error, NEAP_DATA, "%s: truncated or damaged gzip file: %s", u->path, wrong);
    if (part == 0) break;
    *got += (size_t)part;
  }
  return NEAP_OK;
}

/* n bytes, or a DATA error that names what they were for. */
static neap_status unpacker_read_all(unpacker *u, void *out, size_t n, const char *what,
                                     neap_error *error) {
  size_t got;
  NEAP_TRY(unpacker_read(u, out, n, &got, error));
  if (got == n) return NEAP_OK;
  return neap_fail(error, NEAP_DATA, "%s: truncated: %s needs %zu bytes, and %zu are left", u->path,
                   what, n, got);
}

/* The unpacked size is not known before: the buffer doubles with what has really come out. */
neap_status neap_io_read_gz_bytes(const char *path, neap_io_bytes *out, neap_error *error) {
  unpacker u;
  NEAP_TRY(unpacker_open(&u, path, error));
  neap_status status = NEAP_OK;
  char *data = NULL;
  size_t n = 0, cap = 0, got = 1;
  while (status == NEAP_OK && got > 0) {
    /* Twice the room when it is full: half of it at least is bytes that came out of the file. */
    size_t wider = cap == 0 ? (size_t)1 << 16 : 2 * cap;
    /* one more for the 0 at the end */
    char *fresh = n == cap ? neap_realloc(data, wider + 1) : data;
    if (fresh == NULL) {
      status = neap_fail_memory(error, wider, path);
      break;
    }
    /* The old block is gone, or is the same: the new one is what is freed on failure. */
    data = fresh;
    cap = n == cap ? wider : cap;
    status = unpacker_read(&u, data + n, cap - n, &got, error);
    n += got;
  }
  gzclose(u.file);
  if (status != NEAP_OK) {
    neap_free(data);
    return status;
  }
  /* At least one round has made room, for the 0 too. */
  data[n] = '\0';
  *out = (neap_io_bytes){data, n};
  return NEAP_OK;
}

/* ---- idx ------------------------------------------------------------------------------------- */

/* The format's type codes. */
static bool idx_number(unsigned char type, neap_io_number *number) {
  switch (type) {
    case 0x08: return neap_io_number_of('u', 1, true, number);
    case 0x09: return neap_io_number_of('i', 1, true, number);
    case 0x0B: return neap_io_number_of('i', 2, true, number);
    case 0x0C: return neap_io_number_of('i', 4, true, number);
    case 0x0D: return neap_io_number_of('f', 4, true, number);
    case 0x0E: return neap_io_number_of('f', 8, true, number);
    default: return false;
  }
}

/* Number format and shape; DATA error when the file cannot hold that many bytes, even packed. */
static neap_status read_idx_header(unpacker *u, neap_io_number *number, neap_shape *shape,
                                   neap_error *error) {
  unsigned char start[4], dim[4];
  NEAP_TRY(unpacker_read_all(u, start, 4, "the idx header", error));
  /* Two zeros, the type, the number of dimensions. */
  if (start[0] != 0 || start[1] != 0 || !idx_number(start[2], number))
    return neap_fail(error, NEAP_DATA, "%s: is not an idx file: it begins with %02x %02x %02x %02x",
                     u->path, start[0], start[1], start[2], start[3]);
  if (start[3] > NEAP_MAX_DIM)
    return neap_fail(error, NEAP_DATA, "%s: has %d dimensions; a tensor has at most %d", u->path,
                     start[3], NEAP_MAX_DIM);
  *shape = (neap_shape){.n_dim = start[3]};
  for (int i = 0; i < shape->n_dim; i++) {
    NEAP_TRY(unpacker_read_all(u, dim, 4, "the idx header", error));
    shape->dim[i] = (int64_t)dim[0] << 24 | dim[1] << 16 | dim[2] << 8 | dim[3];
  }
  /* The tensor is made only when the file may hold so many bytes. */
  int64_t bytes;
  char text[NEAP_SHAPE_TEXT];
  if (__builtin_mul_overflow(neap_shape_elems(shape), (int64_t)number->bytes, &bytes) ||
      bytes > u->most_bytes)
    return neap_fail(error, NEAP_DATA,
                     "%s: truncated or damaged: shape %s needs more bytes than the file can hold",
                     u->path, neap_shape_text(shape, text));
  return NEAP_OK;
}

/* The numbers after the header, by chunks, since they may be narrower in the file than in the
 * tensor. */
static neap_status read_idx_data(unpacker *u, const neap_io_number *number, neap_tensor *t,
                                 neap_error *error) {
  char chunk[1 << 16], beyond;
  size_t got;
  int64_t most = (int64_t)sizeof chunk / number->bytes, n = neap_tensor_elems(t),
          width = (int64_t)neap_dtype_bytes(t->dtype);
  for (int64_t i = 0; i < n; i += most) {
    int64_t part = NEAP_MIN(most, n - i);
    NEAP_TRY(unpacker_read_all(u, chunk, (size_t)(part * number->bytes), "the data", error));
    neap_io_number_convert(number, neap_tensor_data(t) + i * width, chunk, part);
  }
  /* at the end, gzip's own checksum is compared */
  NEAP_TRY(unpacker_read(u, &beyond, 1, &got, error));
  return got == 0
           ? NEAP_OK
           : neap_fail(error, NEAP_DATA,
                       "%s: damaged: there are bytes after the data that the header describes",
                       u->path);
}

neap_status neap_io_read_idx(const char *path, neap_tensor *out, neap_error *error) {
  unpacker u;
  neap_io_number number;
  neap_shape shape;
  neap_tensor t = {0};
  NEAP_TRY(unpacker_open(&u, path, error));
  neap_status status = read_idx_header(&u, &number, &shape, error);
  if (status == NEAP_OK) status = neap_tensor_new(&t, number.dtype, &shape, error);
  if (status == NEAP_OK) status = read_idx_data(&u, &number, &t, error);
  /* Only read: closing has nothing to say that matters. */
  gzclose(u.file);
  if (status == NEAP_OK)
    *out = t;
  else
    neap_tensor_fini(&t);
  return status;
}
