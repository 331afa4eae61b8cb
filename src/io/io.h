/* io: files of named tensors (.npy .npz .safetensors), idx files, whole files as bytes, and batches
 * of their rows. What users call is declared in neap/file.h.
 */
#ifndef NEAP_IO_H
#define NEAP_IO_H

#include "tensor/tensor.h"

/* Bytes of all files mapped now, in the whole process. They are no DATA bytes: the system takes
 * them back when it needs memory, but for pages of NEAP_IO_MAP_WRITE that have been written. */
int64_t neap_io_mapped_bytes(void);

/* A whole file as bytes that are read when they are touched, and are not to be written; the caller
 * releases *out, which is NULL for an empty file. */
neap_status neap_io_map_file(const char *path, neap_storage **out, int64_t *n_bytes,
                             neap_error *error);

/* ---- sink (sink.c) --------------------------------------------------------------------------- */

/* A file being written under another name. Between open and commit or abort. */
typedef struct neap_io_sink {
  const char *path; /* borrowed */
  char *temporary;  /* owned */
  int fd;
  int64_t n_bytes; /* written so far */
} neap_io_sink;

neap_status neap_io_sink_open(neap_io_sink *sink, const char *path, neap_error *error);
neap_status neap_io_sink_write(neap_io_sink *sink, const void *data, size_t n, neap_error *error);
/* Puts the file in its place. Ends the sink, on failure as neap_io_sink_abort does. */
neap_status neap_io_sink_commit(neap_io_sink *sink, neap_error *error);
/* removes what was written; nothing to do after commit */
void neap_io_sink_abort(neap_io_sink *sink);

#endif
