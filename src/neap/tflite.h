/* neap/tflite.h: what a TFLite file says, as plain data: graphs of operators with their options,
 * and tensors with their quantisation. What operators mean is not said here. Part of neap.h, which
 * includes it.
 *
 *   neap_tflite_model *model = NULL;
 *   if (neap_tflite_read("m.tflite", &model, &error)) goto end;
 *   for (int i = 0; i < model->graph[0].n_op; i++) puts(model->graph[0].op[i].name);
 *   end:
 *   neap_tflite_free(model);
 *
 * What is wrong with a file is an IO error (it can't be opened or read) or a DATA error (it is not
 * what it says it is), which names the path, and the subgraph, operator or tensor, counted from 1.
 * Every offset and every count is held against the bytes that the file has before anything is
 * allocated for it.
 *
 * Lists are borrowed from the model and live as long; so do texts, which are never NULL.
 */
#include "neap.h"
#ifndef NEAP_TFLITE_PART_H
#define NEAP_TFLITE_PART_H

/* The dtype that elements of TFLite's type become; NONE: they are none that Neap reads. Types that
 * Neap has no dtype for are widened where nothing is lost: u32 to i64, integers of 4 and 2 bits to
 * i8 and u8. */
NEAP_API neap_dtype neap_tflite_dtype(int type);
/* "float32", "int8", ..; "type 99" is NULL here */
NEAP_API const char *neap_tflite_type_name(int type);

/* A number x stands for scale (x - zero): of the whole tensor where there is one, of each position
 * along `axis`, counted from 0, where there are several, n_scale of them. */
typedef struct neap_tflite_tensor {
  const char *name;
  int type;
  int n_dim;
  int64_t dim[NEAP_MAX_DIM];
  bool open[NEAP_MAX_DIM]; /* the size may be another when the graph is run */
  bool is_variable;        /* it lasts from run to run */
  int n_scale, axis;
  const float *scale;
  const int64_t *zero;
  neap_tensor tensor; /* dtype NONE: its numbers are no part of the file */
} neap_tflite_tensor;

typedef enum neap_tflite_kind {
  NEAP_TFLITE_INT, /* bytes and booleans, too */
  NEAP_TFLITE_FLOAT,
  NEAP_TFLITE_TEXT,
  NEAP_TFLITE_INTS,
  NEAP_TFLITE_FLOATS,
} neap_tflite_kind;

/* A field of an operator's options, by the name that the schema has for it; one that is left out
 * has the schema's value, a list of nothing. */
typedef struct neap_tflite_option {
  const char *name;
  neap_tflite_kind kind;
  int64_t i;
  double f;
  const char *text;
  int n; /* of a list */
  const int64_t *ints;
  const float *floats;
} neap_tflite_option;

/* An operator; inputs and outputs are tensors of its graph, -1 an input that is left out. */
typedef struct neap_tflite_op {
  const char *name; /* "CONV_2D", ..; of a CUSTOM one what the file calls it */
  bool is_custom;
  int version;
  int n_in, n_out, n_option;
  const int *in, *out;
  const neap_tflite_option *option;
} neap_tflite_op;

typedef struct neap_tflite_graph {
  const char *name;
  int n_tensor, n_op, n_in, n_out;
  neap_tflite_tensor *tensor;
  neap_tflite_op *op;
  const int *in, *out;
} neap_tflite_graph;

typedef struct neap_tflite_model {
  const char *description;
  int n_graph;
  neap_tflite_graph *graph; /* the first is the one that is run */
} neap_tflite_model;

NEAP_API neap_status neap_tflite_read(const char *path, neap_tflite_model **out, neap_error *error);
NEAP_API void neap_tflite_free(neap_tflite_model *model);

#endif
