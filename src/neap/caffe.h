/* neap/caffe.h: what Caffe's files say, as plain data: a text of the protobuf text format (nets and
 * solvers, .prototxt), the blobs of a net's layers (.caffemodel), and a list of blobs
 * (.binaryproto,
 * means). What layers mean is not said here. Part of neap.h, which includes it.
 *
 *   neap_caffe_text *text = NULL;
 *   if (neap_caffe_read_text("net.prototxt", &text, &error)) goto end;
 *   for (const neap_caffe_field *f = text->field; f != NULL; f = f->next) puts(f->name);
 *   end:
 *   neap_caffe_free_text(text);
 *
 * What is wrong with a file is an IO error (it can't be opened or read) or a DATA error (it is not
 * what it says it is), with the path, and of a text the line. Texts are at most 64 MiB, messages
 * within messages at most 64 deep; all that a binary file claims is held against the bytes that it
 * has before anything is allocated for it.
 */
#include "neap.h"
#ifndef NEAP_CAFFE_PART_H
#define NEAP_CAFFE_PART_H

typedef enum neap_caffe_kind {
  NEAP_CAFFE_STRING,
  NEAP_CAFFE_WORD, /* a name without quotes: an enum's, true, false */
  NEAP_CAFFE_INT,
  NEAP_CAFFE_FLOAT,
  NEAP_CAFFE_MESSAGE,
} neap_caffe_kind;

/* One field of a message; of a list "[1, 2]" there are as many. Texts are borrowed from the file
 * that was read, and are never NULL. */
typedef struct neap_caffe_field {
  const struct neap_caffe_field *next; /* of the same message */
  const char *name;
  int line; /* from 1 */
  neap_caffe_kind kind;
  const char *text; /* of a string or word; a string may hold zero bytes */
  size_t n_text;
  int64_t i;
  double f;                              /* of an int, too */
  const struct neap_caffe_field *fields; /* of a message; NULL: it is empty */
} neap_caffe_field;

typedef struct neap_caffe_text {
  const neap_caffe_field *field;
} neap_caffe_text;

NEAP_API neap_status neap_caffe_read_text(const char *path, neap_caffe_text **out,
                                          neap_error *error);
NEAP_API void neap_caffe_free_text(neap_caffe_text *text);

/* The blobs of one layer, f32 or, where they were written so, f64; shapes as the file has them: of
 * old files they have four dimensions. */
typedef struct neap_caffe_layer {
  const char *name;
  int n_blob;
  neap_tensor *blob;
} neap_caffe_layer;

typedef struct neap_caffe_weights {
  const char *name; /* of the net */
  int n_layer;
  neap_caffe_layer *layer; /* those that have blobs, in order */
} neap_caffe_weights;

/* Weights of a net: layers of all three versions of the format (V0, V1, "layer"). */
NEAP_API neap_status neap_caffe_read_weights(const char *path, neap_caffe_weights **out,
                                             neap_error *error);
/* A file of one blob (BlobProto), as means are: one layer with one blob. */
NEAP_API neap_status neap_caffe_read_blob(const char *path, neap_caffe_weights **out,
                                          neap_error *error);
NEAP_API void neap_caffe_free_weights(neap_caffe_weights *weights);

#endif
