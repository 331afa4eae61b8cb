/* io: files of named tensors (.npy .npz .safetensors), idx files, whole files as bytes, and batches
 * of their rows. What users call is declared in neap/file.h.
 */
#ifndef NEAP_IO_H
#define NEAP_IO_H

#include "tensor/tensor.h"

/* Bytes of all files mapped now, in the whole process. They are no DATA bytes: the system takes
 * them back when it needs memory, but for pages of NEAP_IO_MAP_WRITE that have been written. */
int64_t neap_io_mapped_bytes(void);

#endif
