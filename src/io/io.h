/* io: files of named tensors (.npy .npz .safetensors), idx files, and whole files as bytes.
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
#ifndef NEAP_IO_H
#define NEAP_IO_H

#include "tensor/tensor.h"

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
  /* "r": shared with the file; the storage is read-only (neap_storage_is_read_only) */
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

/* Bytes of all files mapped now, in the whole process. They are no DATA bytes: the system takes
 * them back when it needs memory, but for pages of NEAP_IO_MAP_WRITE that have been written. */
int64_t neap_io_mapped_bytes(void);

/* Fills *list, which the caller ends with neap_io_list_fini; {0} after an error. The format is told
 * by the first bytes (.npy, .npz) or else by the ending; what is neither is read as .safetensors.
 * Members of a .npz file that are not .npy are left out. */
neap_status neap_io_load(const char *path, neap_io_map map, neap_io_list *list, neap_error *error);
void neap_io_list_fini(neap_io_list *list);
/* Borrowed from the list; NULL when there is none of that name. */
neap_tensor *neap_io_list_find(const neap_io_list *list, const char *name);
const char *neap_io_list_meta(const neap_io_list *list, const char *key);

/* Writes n tensors of any strides, by the path's ending: .npy (one tensor, no metadata), .npz (no
 * metadata; stored, not compressed) or .safetensors. The same content gives the same bytes.
 * ARGUMENT error for another ending, names that are double or empty, and what the format cannot
 * hold. */
neap_status neap_io_save(const char *path, int n, const neap_io_item *item, int n_meta,
                         const neap_io_pair *meta, neap_error *error);

/* One tensor from an idx file (the format of MNIST), gzipped or not. */
neap_status neap_io_read_idx(const char *path, neap_tensor *out, neap_error *error);

/* A whole file. `data` is META memory, ended by neap_free, with a 0 after its n bytes. The second
 * one unpacks gzip. */
typedef struct neap_io_bytes {
  char *data;
  size_t n;
} neap_io_bytes;
neap_status neap_io_read_text(const char *path, neap_io_bytes *out, neap_error *error);
neap_status neap_io_read_gz_bytes(const char *path, neap_io_bytes *out, neap_error *error);
/* pixels (height,width,channels), channels 1 (grey) or 3 (red, green, blue), row-major, to a PNG
 * file. */
neap_status neap_io_write_png(const char *path, int64_t height, int64_t width, int channels,
                              const uint8_t *pixels, neap_error *error);
/* Replaces or makes the file, whole or not at all. */
neap_status neap_io_write_text(const char *path, const char *data, size_t n, neap_error *error);

#endif
