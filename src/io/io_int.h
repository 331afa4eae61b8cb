/* io_int.h: what the formats share: a source of bytes, and the numbers in files; private to
 * this room. */
#ifndef NEAP_IO_INT_H
#define NEAP_IO_INT_H

#include "io/io.h"

/* ---- source (source.c) ----------------------------------------------------------------------- */

/* Bytes to read from: an open file, or bytes in memory (the mapping of a file, or an unpacked
 * member of a .npz).
 * INVARIANT: `memory`, if any, holds the n_bytes of this source from memory_offset on; else `fd` is
 * open. */
typedef struct neap_io_source {
  const char *path;   /* borrowed, for messages */
  const char *member; /* borrowed; of a .npz, else NULL */
  int fd;             /* -1: none */
  int64_t n_bytes;
  neap_storage *memory;
  int64_t memory_offset;
} neap_io_source;

neap_status neap_io_source_open(neap_io_source *source, const char *path, neap_io_map map,
                                neap_error *error);
void neap_io_source_fini(neap_io_source *source);
/* neap_fail with the path, and the member, before the message. */
neap_status neap_io_source_fail(const neap_io_source *source, neap_error *error, neap_status code,
                                const char *format, ...) NEAP_PRINTF(4, 5);
/* The n bytes at `offset`; DATA error, naming `what`, when the source ends before. */
neap_status neap_io_source_check(const neap_io_source *source, int64_t offset, int64_t n,
                                 const char *what, neap_error *error);
neap_status neap_io_source_read(const neap_io_source *source, int64_t offset, void *out, int64_t n,
                                const char *what, neap_error *error);
/* The n bytes at `offset` as a storage of their own (copied). */
neap_status neap_io_source_storage(const neap_io_source *source, int64_t offset, int64_t n,
                                   const char *what, neap_storage **out, neap_error *error);

/* ---- numbers (number.c) ---------------------------------------------------------------------- */

/* How a file writes numbers, and the dtype they become. */
typedef struct neap_io_number {
  neap_dtype dtype;
  int bytes; /* of one number in the file */
  bool is_unsigned;
  bool swap; /* big-endian */
} neap_io_number;

/* kind: 'f' float, 'V' bf16, 'i' signed, 'u' unsigned, 'b' bool. False when Neap has nothing to
 * hold it. */
bool neap_io_number_of(char kind, int bytes, bool big_endian, neap_io_number *out);
/* Brings the dense numbers at `in` (n of them) to dtype; false when one does not fit. In place when
 * the widths agree. */
bool neap_io_number_convert(const neap_io_number *number, void *out, const void *in, int64_t n);
bool neap_io_number_is_plain(const neap_io_number *number); /* its bytes are those of the dtype */
/* A dense tensor of the numbers at `offset`: a view where the source is in memory and allows it,
 * else a copy. */
neap_status neap_io_number_tensor(const neap_io_source *source, int64_t offset,
                                  const neap_io_number *number, const neap_shape *shape,
                                  neap_tensor *out, neap_error *error);

/* ---- list (list.c) and formats --------------------------------------------------------------- */

/* Takes over `tensor` (also on failure). neap_io_load looks for doubles when all are there. */
neap_status neap_io_list_add(neap_io_list *list, const char *name, size_t n_name,
                             neap_tensor *tensor, neap_error *error);
neap_status neap_io_list_add_meta(neap_io_list *list, const char *key, const char *value,
                                  neap_error *error);

#define NEAP_IO_NPY_MAGIC "\x93NUMPY"
enum { NEAP_IO_NPY_HEADER = 512 }; /* room for the header of any tensor that Neap can hold */

neap_status neap_io_npy_load(const neap_io_source *source, bool keep_strides, neap_tensor *out,
                             neap_error *error);
/* Writes the header for a dense tensor of this type; returns its length, a multiple of 64. */
size_t neap_io_npy_header(const neap_type *type, char out[NEAP_IO_NPY_HEADER]);
neap_status neap_io_npy_save(neap_io_sink *sink, const neap_tensor *dense, neap_error *error);
neap_status neap_io_npz_load(const neap_io_source *source, neap_io_map map, neap_io_list *list,
                             neap_error *error);
neap_status neap_io_npz_save(neap_io_sink *sink, int n, const neap_io_item *item,
                             neap_error *error);
neap_status neap_io_safetensors_load(const neap_io_source *source, neap_io_list *list,
                                     neap_error *error);
neap_status neap_io_safetensors_save(neap_io_sink *sink, int n, const neap_io_item *item,
                                     int n_meta, const neap_io_pair *meta, neap_error *error);
/* The tensor itself when it is dense, else a dense copy: one reference either way. */
neap_status neap_io_dense(const neap_tensor *t, neap_tensor *out, neap_error *error);

#endif
