/* onnx_int.h: what the files that read ONNX share; private to this room. */
#ifndef NEAP_IMPORT_ONNX_INT_H
#define NEAP_IMPORT_ONNX_INT_H

#include "import/proto_int.h"

#include <onnx.pb-c.h>

/* A model and what it stands on.
 * INVARIANT: `model` is the first member, so that a pointer to it is one to this. Its texts lie in
 * the messages, its lists in the arena, its tensors hold references of their own. */
typedef struct neap_onnx_file {
  neap_onnx_model model;
  neap_arena arena;
  Onnx__ModelProto *proto;   /* NULL: of a file of one tensor */
  Onnx__TensorProto *tensor; /* NULL: of a model */
  const char *path;          /* borrowed, while it is read */
  /* where the reader is, for messages: a node, an attribute or tensor; "" where nowhere */
  char node[200], part[200];
  /* files of external data that are open: their path as the model says it, and their bytes */
  struct neap_onnx_data {
    const char *location;
    neap_storage *storage;
    int64_t n_bytes;
  } * data;
  int n_data, cap_data;
} neap_onnx_file;
_Static_assert(offsetof(neap_onnx_file, model) == 0, "a pointer to the model is one to the file");

/* neap_fail with path, node and part before the message. */
neap_status neap_onnx_fail(const neap_onnx_file *file, neap_error *error, neap_status code,
                           const char *format, ...) NEAP_PRINTF(4, 5);
/* `bytes` of the arena; NULL and a MEMORY error when they are refused. */
void *neap_onnx_room(neap_onnx_file *file, size_t n, size_t bytes, neap_error *error);

/* Fills *out, its name included, and lets go of the bytes in `proto` (onnx_tensor.c). */
neap_status neap_onnx_take_tensor(neap_onnx_file *file, Onnx__TensorProto *proto,
                                  neap_onnx_tensor *out, neap_error *error);
/* The tensor of `dtype` and `shape` whose n_bytes bytes lie in another file (onnx_external.c): a
 * view of that file where they are aligned, else a copy. */
neap_status neap_onnx_external(neap_onnx_file *file, const Onnx__TensorProto *proto,
                               neap_dtype dtype, const neap_shape *shape, int64_t n_bytes,
                               neap_tensor *out, neap_error *error);
void neap_onnx_close_external(neap_onnx_file *file);
/* The pairs of texts in field `tag` of a message, which lie in it or in the arena (onnx_meta.c);
 * with a key those that have it, NULL: all. */
neap_status neap_onnx_take_meta(neap_onnx_file *file, const ProtobufCMessage *from, unsigned tag,
                                const char *key, int *n_out, const neap_onnx_meta **out,
                                neap_error *error);

#endif
