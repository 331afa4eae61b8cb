/* neap/onnx.h: what an ONNX file says, read and written as plain data: graphs of nodes with their
 * attributes, and tensors. What the nodes mean is not said here. Part of neap.h, which includes it.
 *
 *   neap_onnx_model *model = NULL;
 *   if (neap_onnx_read("m.onnx", &model, &error)) goto end;
 *   for (int i = 0; i < model->graph.n_node; i++) puts(model->graph.node[i].op);
 *   end:
 *   neap_onnx_free(model);
 *
 * What is wrong with a file is an IO error (it can't be opened or read) or a DATA error (it is not
 * what it says it is), which names the path, the node, and the attribute or tensor. All that a file
 * claims is held against the bytes that it has before anything is allocated for it; messages within
 * messages are counted before they are read. A newer version of the format than the schema's is no
 * error: fields that the schema has not are passed over.
 *
 * Lists are borrowed from the model and live as long; so do texts, which are never NULL.
 */
#include "neap.h"
#ifndef NEAP_ONNX_PART_H
#define NEAP_ONNX_PART_H

/* ONNX's numbers of element types that are named here; there are others. */
enum { NEAP_ONNX_STRING = 8, NEAP_ONNX_U32 = 12, NEAP_ONNX_U64 = 13 };
/* The dtype that elements of ONNX's type become; NONE: they are strings, or none that Neap reads.
 * Types that Neap has no dtype for are widened where nothing is lost: u32 to i64, 8-bit and smaller
 * floats to f32, 4- and 2-bit integers to i8 and u8; u64 to i64, where a larger value is a DATA
 * error. */
NEAP_API neap_dtype neap_onnx_dtype(int elem_type);
/* "float", "uint8", ..; "type 99" is NULL here */
NEAP_API const char *neap_onnx_type_name(int elem_type);

/* Bytes of a string, which need not be text. */
typedef struct neap_onnx_text {
  const char *data;
  size_t n;
} neap_onnx_text;

typedef struct neap_onnx_tensor {
  const char *name;
  int elem_type;
  neap_tensor tensor; /* dtype NONE: the elements are `text` */
  int n_text;
  const neap_onnx_text *text;
  bool mapped; /* its bytes are a file's, which is read when they are touched */
} neap_onnx_tensor;

/* A dimension: its size, or -1 and a name, "" where it has none. */
typedef struct neap_onnx_dim {
  int64_t size;
  const char *name;
} neap_onnx_dim;

/* A pair of texts that an exporter has put beside a part of a model. */
typedef struct neap_onnx_meta {
  const char *key, *value;
} neap_onnx_meta;

/* An input or output. `kind` is "tensor", "sequence", "optional", "map", "sparse", or "" where no
 * type is said; elem_type and dims are a tensor's, or those of the tensors in a sequence or
 * optional. */
typedef struct neap_onnx_value {
  const char *name, *kind;
  int elem_type; /* 0: not said */
  int n_dim;     /* -1: not said */
  const neap_onnx_dim *dim;
  int n_meta; /* read, not written */
  const neap_onnx_meta *meta;
} neap_onnx_value;

typedef struct neap_onnx_graph neap_onnx_graph;

typedef enum neap_onnx_attr_kind {
  NEAP_ONNX_INT,
  NEAP_ONNX_FLOAT,
  NEAP_ONNX_TEXT,
  NEAP_ONNX_TENSOR,
  NEAP_ONNX_GRAPH,
  NEAP_ONNX_INTS,
  NEAP_ONNX_FLOATS,
  NEAP_ONNX_TEXTS,
  NEAP_ONNX_REF,   /* the attribute of the function around it that is called `ref` */
  NEAP_ONNX_OTHER, /* of a kind that Neap does not read: sparse tensors, types, lists of graphs */
} neap_onnx_attr_kind;

typedef struct neap_onnx_attr {
  const char *name;
  neap_onnx_attr_kind kind;
  const char *ref;
  int64_t i;
  double f;
  neap_onnx_text text;
  neap_onnx_tensor tensor;
  neap_onnx_graph *graph;
  int n; /* of a list */
  const int64_t *ints;
  const float *floats;
  const neap_onnx_text *texts;
} neap_onnx_attr;

typedef struct neap_onnx_node {
  const char *name, *op, *domain;
  int n_in, n_out, n_attr;
  const char *const *in, *const *out; /* "": left out */
  neap_onnx_attr *attr;
  int n_meta; /* read, not written: "pkg.torch.onnx.fx_node" alone */
  const neap_onnx_meta *meta;
} neap_onnx_node;

struct neap_onnx_graph {
  const char *name;
  int n_node, n_initializer, n_input, n_output, n_value;
  neap_onnx_node *node;
  neap_onnx_tensor *initializer;
  neap_onnx_value *input, *output;
  neap_onnx_value *value; /* types of what lies between, as far as the file says them */
  int n_meta;             /* read, not written */
  const neap_onnx_meta *meta;
};

typedef struct neap_onnx_opset {
  const char *domain;
  int64_t version;
} neap_onnx_opset;

typedef struct neap_onnx_function {
  const char *name, *domain, *overload;
  int n_in, n_out, n_attr, n_node, n_opset, n_default;
  const char *const *in, *const *out, *const *attr;
  neap_onnx_node *node;
  neap_onnx_opset *opset;
  neap_onnx_attr *fallback; /* attributes that a call may leave out, n_default of them */
} neap_onnx_function;

typedef struct neap_onnx_model {
  int64_t ir_version;
  const char *producer;
  int n_opset, n_function;
  neap_onnx_opset *opset;
  neap_onnx_graph graph;
  neap_onnx_function *function;
} neap_onnx_model;

/* Tensors in files of their own are looked for in the model's folder and nowhere else; they are
 * mapped where their bytes are aligned, else read. */
NEAP_API neap_status neap_onnx_read(const char *path, neap_onnx_model **out, neap_error *error);
/* A file of one tensor (TensorProto), as the standard's tests have them: a model that holds nothing
 * but one initializer. */
NEAP_API neap_status neap_onnx_read_tensor(const char *path, neap_onnx_model **out,
                                           neap_error *error);
NEAP_API void neap_onnx_free(neap_onnx_model *model);

/* Writes a model, which the caller has filled: lists and texts are borrowed, tensors are dense, and
 * an elem_type of 0 is that of the tensor's dtype. NULL texts are "". The file is whole or it is
 * not there, and what stood under its name stays until then. Where the tensors are more than
 * `inline_bytes` in all (0: what one message may hold, some 2 GB), those of 1 KB and more go into a
 * second file, PATH.data, which has its name before the first one has. ARGUMENT error for what no
 * file of the format can say: an attribute of kind OTHER, a tensor with gaps, a number that its
 * elem_type does not hold. */
NEAP_API neap_status neap_onnx_write(const neap_onnx_model *model, const char *path,
                                     int64_t inline_bytes, neap_error *error);

#endif
