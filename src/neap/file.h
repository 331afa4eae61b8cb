/* neap/file.h: files of named tensors (.npy .npz .safetensors), idx files, whole files as bytes,
 * and batches of rows that are read ahead. Part of neap.h, which includes it.
 *
 *   neap_io_list list;
 *   if (neap_io_load("weights.safetensors", NEAP_IO_MAP_READ, &list, &error)) goto end;
 *   const neap_tensor *w = neap_io_list_find(&list, "fc1.w");
 *   if (w != NULL && neap_workspace_feed(ws, "fc1.w", w, true, &error)) goto end;
 *   neap_io_list_fini(&list);
 *
 * What may be wrong with a file is an IO error (it cannot be opened, read or written) or a DATA
 * error (it is not what it says it is); both name the path, the member, and what is wrong. Sizes
 * that a file claims are checked against the bytes it has before anything is allocated for them, so
 * that hostile files end in an error. Writing goes to a file beside the target, which takes its
 * name when every byte is on the disk: a reader sees the old file or the new one.
 *
 * Number formats that Neap has no dtype for are widened where nothing is lost: u32 to i64; u64 to
 * i64, or a DATA error where a value is larger. Big-endian numbers are swapped. NumPy has no bf16:
 * as in the ml_dtypes package, two-byte voids ("<V2") stand for it.
 */
#include "neap.h"
#ifndef NEAP_FILE_PART_H
#define NEAP_FILE_PART_H

/* ---- files ----------------------------------------------------------------------------------- */

/* What becomes of a file's bytes. Mapped tensors are views of the file, which is read when they are
 * touched; those that cannot be (other byte order, unaligned, compressed) are copied all the same.
 * A mapped Fortran-order tensor has the strides of one; copies are dense. The mapping goes with the
 * last reference to any of its tensors.
 *
 * A mapped file may be replaced by rename, as neap_io_save does: the mapping keeps the old bytes.
 * It must not be cut short in place by others: the system answers the next touch of a missing page
 * with SIGBUS, which ends the process. */
typedef enum neap_io_map {
  NEAP_IO_COPY, /* memory of their own */
  /* "r": shared with the file; the tensor is read-only (neap_tensor_is_read_only) */
  NEAP_IO_MAP_READ,
  /* "c": shared until written; what is written stays in memory and never reaches the file */
  NEAP_IO_MAP_WRITE,
} neap_io_map;

typedef struct neap_io_item {
  char *name; /* owned by the list; borrowed in neap_io_save. "" for the tensor of a .npy file */
  neap_tensor tensor;
} neap_io_item;

typedef struct neap_io_pair {
  char *key, *value; /* owned by the list; borrowed in neap_io_save */
} neap_io_pair;

/* INVARIANT: names are unique; items are in file order. {0} is an empty list. */
typedef struct neap_io_list {
  neap_io_item *item;
  int n_item, cap_item;
  neap_io_pair *meta; /* the text map of a .safetensors file */
  int n_meta, cap_meta;
} neap_io_list;

/* Fills *list, which the caller ends with neap_io_list_fini; {0} after an error. The format is told
 * by the first bytes (.npy, .npz) or else by the ending; what is neither is read as .safetensors.
 * Members of a .npz file that are not .npy are left out. */
NEAP_API neap_status neap_io_load(const char *path, neap_io_map map, neap_io_list *list,
                                  neap_error *error);
NEAP_API void neap_io_list_fini(neap_io_list *list);
/* Borrowed from the list; NULL when there is none of that name. */
NEAP_API neap_tensor *neap_io_list_find(const neap_io_list *list, const char *name);
NEAP_API const char *neap_io_list_meta(const neap_io_list *list, const char *key);

/* Writes n tensors of any strides, by the path's ending: .npy (one tensor, no metadata), .npz (no
 * metadata; stored, not compressed) or .safetensors. The same content gives the same bytes.
 * ARGUMENT error for another ending, names that are double or empty, and what the format cannot
 * hold. */
NEAP_API neap_status neap_io_save(const char *path, int n, const neap_io_item *item, int n_meta,
                                  const neap_io_pair *meta, neap_error *error);

/* One tensor from an idx file (the format of MNIST), gzipped or not. */
NEAP_API neap_status neap_io_read_idx(const char *path, neap_tensor *out, neap_error *error);

/* A whole file. `data` is META memory, ended by neap_free, with a 0 after its n bytes. The second
 * one unpacks gzip. */
typedef struct neap_io_bytes {
  char *data;
  size_t n;
} neap_io_bytes;
NEAP_API neap_status neap_io_read_text(const char *path, neap_io_bytes *out, neap_error *error);
NEAP_API neap_status neap_io_read_gz_bytes(const char *path, neap_io_bytes *out, neap_error *error);
/* pixels (height,width,channels), channels 1 (grey) or 3 (red, green, blue), row-major, to a PNG
 * file. */
NEAP_API neap_status neap_io_write_png(const char *path, int64_t height, int64_t width,
                                       int channels, const uint8_t *pixels, neap_error *error);
/* Replaces or makes the file, whole or not at all. */
NEAP_API neap_status neap_io_write_text(const char *path, const char *data, size_t n,
                                        neap_error *error);

/* ---- batches --------------------------------------------------------------------------------- */

/* A field takes its rows from a tensor: row i of a batch is source[index[i]], or, with a window,
 * the `window` elements from index[i] + offset of a one-dimensional source (text). Elements become
 * source * scale + shift in the field's dtype. */
typedef struct neap_batch_field {
  neap_tensor source;  /* (N, ...) or, with a window, (N); dense; retained by the reader */
  neap_dtype dtype;    /* of the batch */
  double scale, shift; /* 1 and 0 cast without arithmetic */
  int64_t window, offset;
} neap_batch_field;

/* A thread of its own reads ahead. Two sets of buffers take turns: one is the caller's until its
 * next call, the other is being filled. */
typedef struct neap_batch_reader neap_batch_reader;

/* Rows in the order of `index` (copied), n_batch at a time; the last batch may be smaller unless
 * `drop_last`. DATA error when an index leaves a source. */
NEAP_API neap_status neap_batch_reader_new(int n_field, const neap_batch_field *field,
                                           int64_t n_batch, int64_t n_index, const int64_t *index,
                                           bool drop_last, neap_batch_reader **out,
                                           neap_error *error);
NEAP_API void neap_batch_reader_free(neap_batch_reader *reader);
/* Fills out[n_field] with views (references of the caller) of the next batch and returns its rows;
 * 0 at the end. Their contents hold until the next call. */
NEAP_API int64_t neap_batch_reader_next(neap_batch_reader *reader, neap_tensor *out);

#endif
