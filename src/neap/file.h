/* neap/file.h: files of named tensors (.npy .npz .safetensors), pictures (PNG, JPEG), sounds (WAV),
 * tables (CSV), idx files, whole files as bytes, and batches of rows that are read ahead. Part of
 * neap.h, which includes it.
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
 * by the first bytes (.npy, .npz, PNG, JPEG, WAV) or else by the ending; what is none of them is
 * read as .safetensors. Members of a .npz file that are not .npy are left out.
 *
 * A picture is one tensor, u8 (channels,height,width), 1 channel grey, 3 colours, and one more
 * where it is partly transparent. A sound is one tensor, f32 (channels,samples) in -1..1, with the
 * meta "rate", samples a second. */
NEAP_API neap_status neap_io_load(const char *path, neap_io_map map, neap_io_list *list,
                                  neap_error *error);
NEAP_API void neap_io_list_fini(neap_io_list *list);
/* Borrowed from the list; NULL when there is none of that name. */
NEAP_API neap_tensor *neap_io_list_find(const neap_io_list *list, const char *name);
NEAP_API const char *neap_io_list_meta(const neap_io_list *list, const char *key);

/* Writes n tensors of any strides, by the path's ending: .npy (one tensor, no metadata), .npz (no
 * metadata; stored, not compressed), .safetensors; .png, .jpg or .jpeg (one u8 tensor as it is
 * loaded, of 1 or 3 channels, or without them); .wav (one f32 tensor as it is loaded, or (samples);
 * meta "rate", which must be there, and "bits": 8, 16, which is usual, 24, 32 or "float"). The same
 * content gives the same bytes. ARGUMENT error for another ending, names that are double or empty,
 * and what the format cannot hold. */
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
/* Of the n bytes of a PNG or JPEG file: u8 (channels,height,width), with as many channels as it has
 * for 0, or grey for 1 and colours for 3, transparency left out. `path` is for messages. Pictures
 * of more pixels than their bytes can stand for, or than 2^28, are DATA errors. */
NEAP_API neap_status neap_io_decode_picture(const char *path, const void *bytes, size_t n,
                                            int channels, neap_tensor *out, neap_error *error);
/* pixels (height,width,channels), channels 1 (grey) or 3 (red, green, blue), row-major: a JPEG file
 * of this quality, 1 to 100, where the path ends in .jpg or .jpeg, else PNG. */
NEAP_API neap_status neap_io_write_picture(const char *path, int64_t height, int64_t width,
                                           int channels, const uint8_t *pixels, int quality,
                                           neap_error *error);
/* The cells of a CSV file (RFC 4180; gzip too), one after the other, each with a 0 behind it: cell
 * i ends before end[i], row r with cell row_end[r] (not in it), on line `line[r]`. Blanks around
 * cells without quotes and lines of blanks are left out. META memory, ended by neap_io_cells_fini.
 * DATA error for a quote that is not doubled or not closed. */
typedef struct neap_io_cells {
  neap_io_bytes text;
  int64_t n_cell, n_row;
  size_t *end;
  int64_t *row_end, *line;
} neap_io_cells;
NEAP_API neap_status neap_io_read_csv(const char *path, char separator, neap_io_cells *out,
                                      neap_error *error);
NEAP_API void neap_io_cells_fini(neap_io_cells *cells);
/* The names in a folder, sorted, each with a 0 behind it; those of folders end in "/". Names that
 * begin with a dot are left out. */
NEAP_API neap_status neap_io_read_folder(const char *path, neap_io_bytes *out, neap_error *error);
/* Replaces or makes the file, whole or not at all. */
NEAP_API neap_status neap_io_write_text(const char *path, const char *data, size_t n,
                                        neap_error *error);

/* ---- batches --------------------------------------------------------------------------------- */

/* A field takes its rows from a tensor: row i of a batch is source[index[i]], or, with a window,
 * the `window` elements from index[i] + offset of a one-dimensional source (text). Or it takes them
 * from files: row i is the picture file[index[i]], made to fit row_shape (channels,height,width).
 * Elements become source * scale + shift in the field's dtype. With n_class, a row's number k
 * becomes n_class numbers, of which the k-th (from 0) is 1 and the others 0. */
typedef enum neap_picture_fit {
  NEAP_PICTURE_CROP,    /* so that it covers the row; what is over is cut off evenly */
  NEAP_PICTURE_STRETCH, /* each side for itself */
  NEAP_PICTURE_PAD,     /* so that it all lies in the row, the rest 0 */
} neap_picture_fit;
typedef struct neap_batch_field {
  neap_tensor source;  /* (N, ...) or, with a window, (N); dense; retained by the reader */
  neap_dtype dtype;    /* of the batch */
  double scale, shift; /* 1 and 0 cast without arithmetic */
  int64_t window, offset, n_class;
  int64_t n_file;          /* 0: there is a source */
  const char *const *file; /* paths, copied */
  neap_shape row_shape;
  neap_picture_fit fit;
} neap_batch_field;

/* What is done to the rows of a field: a name of the table in src/io/transform.c and the numbers
 * that are listed there. Transforms that draw do so by the reader's seed and
 * epoch and the row's place in the epoch: the same ones on however many threads. */
typedef struct neap_transform {
  const char *name;
  int n_value;
  const double *value; /* copied */
} neap_transform;
/* What becomes of a row's shape: (channels,height,width), (height,width), or (numbers). ARGUMENT or
 * SHAPE error for a transform that can't be. */
NEAP_API neap_status neap_transform_shape(int n, const neap_transform *transform,
                                          neap_shape *row_shape, neap_error *error);

/* {.n_batch = 32}: rows in order, on one thread. */
typedef struct neap_batch_options {
  int64_t n_batch;
  bool drop_last; /* a last batch that is smaller */
  int n_thread;   /* that read; 0 is 1, at most 64 */
  int n_transform;
  const neap_transform *transform;
  int field, label; /* whose rows are transformed, and the field with n_class that is mixed with it,
                     * or -1 */
  uint64_t seed;
  uint32_t epoch;
  int64_t first; /* the first row's place in the epoch, from 0 */
} neap_batch_options;

/* Threads of its own read ahead. Two sets of buffers take turns: one is the caller's until its next
 * call, the other is being filled. */
typedef struct neap_batch_reader neap_batch_reader;

/* Rows in the order of `index` (copied), n_batch at a time. DATA error when an index leaves a
 * source. */
NEAP_API neap_status neap_batch_reader_new(int n_field, const neap_batch_field *field,
                                           int64_t n_index, const int64_t *index,
                                           const neap_batch_options *options,
                                           neap_batch_reader **out, neap_error *error);
NEAP_API void neap_batch_reader_free(neap_batch_reader *reader);
/* Fills out[n_field] with views (references of the caller) of the next batch and returns its rows;
 * 0 at the end, -1 with the error of a file that could not be read. Their contents hold until the
 * next call. */
NEAP_API int64_t neap_batch_reader_next(neap_batch_reader *reader, neap_tensor *out,
                                        neap_error *error);

#endif
