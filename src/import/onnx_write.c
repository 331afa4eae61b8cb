/* onnx_write.c: plain data (neap/onnx.h) as an ONNX file. Each struct becomes the message that
 * onnx.c reads it from; protobuf-c packs the whole, piece by piece, into the file, so that weights
 * are never in memory twice.
 *
 * INVARIANT: messages lie in the writer's arena and borrow all texts, lists and bytes of the model
 * but those that are converted.
 */
#include "import/onnx_int.h"

#include <stdio.h>
#include <string.h>

enum {
  MESSAGE_BYTES = 1900000000, /* what a message may hold is 2^31 - 1, and there is more in it */
  LEAST_APART = 1024,         /* smaller tensors stay in the model */
  APART_ALIGNED = 64,         /* where a tensor begins in the file of data, for who maps it */
  MOST_OWN_TYPE = 16,         /* bfloat16: types above it are widened when they are read */
  N_GATHERED = 1 << 16
};

typedef struct writer {
  neap_arena arena;
  const char *path;
  bool apart;           /* tensors go into a file of their own */
  const char *location; /* that file's name without its folder */
  neap_io_sink data;    /* open where `apart` */
  neap_error *error;
  neap_status status; /* the first failure; what is asked for after it does nothing */
} writer;

static void fail(writer *w, neap_status code, const char *what, const char *name,
                 const char *message) {
  if (w->status != NEAP_OK) return;
  w->status = neap_fail(w->error, code, "%s: %s \"%.200s\": %s", w->path, what,
                        name != NULL ? name : "", message);
}

/* Zeroed room; NULL when there is none, and of nothing. */
static void *room(writer *w, int64_t n, size_t bytes) {
  if (w->status != NEAP_OK || n <= 0) return NULL;
  void *out = neap_arena_alloc(&w->arena, (size_t)n * bytes);
  if (out == NULL) w->status = neap_fail_memory(w->error, (size_t)n * bytes, "an ONNX file");
  return out;
}

/* A message of the descriptor, ready to be filled. */
static void *message(writer *w, const ProtobufCMessageDescriptor *descriptor) {
  void *out = room(w, 1, descriptor->sizeof_message);
  if (out != NULL) protobuf_c_message_init(descriptor, out);
  return out;
}

/* protobuf-c's texts are not const, and are not written to. NULL leaves the field out. */
static char *text_of(const char *text) { return (char *)(uintptr_t)(text != NULL ? text : ""); }

static char **texts_of(writer *w, int n, const char *const *from) {
  char **out = room(w, n, sizeof *out);
  if (out != NULL)
    for (int i = 0; i < n; i++) out[i] = text_of(from[i]);
  return out;
}

static ProtobufCBinaryData bytes_of(const neap_onnx_text *text) {
  return (ProtobufCBinaryData){text->n, (uint8_t *)(uintptr_t)text->data};
}

/* ---- tensors --------------------------------------------------------------------------------- */

static size_t dense_bytes(const neap_tensor *t) {
  neap_type type = neap_tensor_type(t);
  return neap_type_bytes(&type);
}

/* The elements as the file has them: the tensor's own bytes, or, of uint32, which lies in i64, the
 * lower half of each. What uint32 and uint64 do not have is an error, not another number. */
static ProtobufCBinaryData raw_of(writer *w, const neap_onnx_tensor *from, int elem_type) {
  const neap_tensor *t = &from->tensor;
  int64_t n = neap_tensor_elems(t);
  size_t bytes = dense_bytes(t);
  ProtobufCBinaryData own = {bytes, (uint8_t *)neap_tensor_data(t)};
  if (elem_type != NEAP_ONNX_U32 && elem_type != NEAP_ONNX_U64) return own;
  /* Both lie in i64, which holds each uint32 but a half of the uint64. A number of 64 bits that is
   * not negative has the same bytes as either; one of 32 is the lower half of its i64. */
  const int64_t *number = (const int64_t *)neap_tensor_data(t);
  int64_t most = elem_type == NEAP_ONNX_U32 ? UINT32_MAX : INT64_MAX;
  for (int64_t i = 0; i < n; i++)
    if (number[i] < 0 || number[i] > most)
      fail(w, NEAP_ARGUMENT, "tensor", from->name, "a number that its element type does not have");
  if (elem_type == NEAP_ONNX_U64) return own;
  uint32_t *low = room(w, n, sizeof *low);
  if (low != NULL)
    for (int64_t i = 0; i < n; i++) low[i] = (uint32_t)number[i];
  return (ProtobufCBinaryData){(size_t)n * sizeof *low, (uint8_t *)low};
}

/* The digits of a number, in room; NULL when there is none. */
static char *digits_of(writer *w, int64_t number) {
  char *out = room(w, 24, 1);
  if (out != NULL) snprintf(out, 24, "%lld", (long long)number);
  return out;
}

/* One more word on where a tensor's bytes lie; out->external_data has place for it. */
static void put_entry(writer *w, const char *key, char *value, Onnx__TensorProto *out) {
  Onnx__StringStringEntryProto *entry = message(w, &onnx__string_string_entry_proto__descriptor);
  if (w->status != NEAP_OK) return;
  entry->key = text_of(key);
  entry->value = value;
  out->external_data[out->n_external_data++] = entry;
}

/* Bytes of a tensor in the file of data, and where they lie there. */
static void put_apart(writer *w, const ProtobufCBinaryData *raw, Onnx__TensorProto *out) {
  static const char zeros[APART_ALIGNED];
  /* Zeros up to the next multiple of 64, so that a reader may map the elements in their place. */
  size_t gap = (size_t)(-w->data.n_bytes & (APART_ALIGNED - 1));
  int64_t at = w->data.n_bytes + (int64_t)gap;
  w->status = neap_io_sink_write(&w->data, zeros, gap, w->error);
  if (w->status == NEAP_OK) w->status = neap_io_sink_write(&w->data, raw->data, raw->len, w->error);

  /* Keys and values are all texts (onnx.proto, external_data), the numbers too. */
  out->external_data = room(w, 3, sizeof *out->external_data);
  put_entry(w, "location", text_of(w->location), out);
  put_entry(w, "offset", digits_of(w, at), out);
  put_entry(w, "length", digits_of(w, (int64_t)raw->len), out);
  out->has_data_location = true;
  out->data_location = ONNX__TENSOR_PROTO__DATA_LOCATION__EXTERNAL;
}

/* The element type that is said, or the dtype's own; 0 where the tensor does not hold that. */
static int elem_of(const neap_onnx_tensor *from) {
  neap_dtype dtype = from->tensor.dtype;
  int type = from->elem_type;
  if (type != 0) return type <= MOST_OWN_TYPE && neap_onnx_dtype(type) == dtype ? type : 0;
  /* i64 is int64: that comes before uint32 and uint64, which are i64 too. */
  for (int i = 1; i <= MOST_OWN_TYPE; i++)
    if (neap_onnx_dtype(i) == dtype) return i;
  return 0;
}

/* Texts: a list of strings, as many as there are. */
static void put_texts(writer *w, const neap_onnx_tensor *from, Onnx__TensorProto *out) {
  out->data_type = NEAP_ONNX_STRING;
  out->dims = room(w, 1, sizeof *out->dims);
  out->string_data = room(w, from->n_text, sizeof *out->string_data);
  if (w->status != NEAP_OK) return;
  out->n_dims = 1;
  out->dims[0] = from->n_text;
  out->n_string_data = (size_t)from->n_text;
  for (int i = 0; i < from->n_text; i++) out->string_data[i] = bytes_of(&from->text[i]);
}

/* Numbers: dimensions and raw bytes, which lie in the message or in the file of data. */
static void put_numbers(writer *w, const neap_onnx_tensor *from, Onnx__TensorProto *out) {
  const neap_tensor *t = &from->tensor;
  out->data_type = elem_of(from);

  /* The format's types are told apart by the number alone: one that the dtype does not hold would
   * make other numbers of the same bytes. */
  if (out->data_type == 0)
    fail(w, NEAP_ARGUMENT, "tensor", from->name, "its dtype does not hold its element type");
  if (!neap_tensor_is_dense(t)) fail(w, NEAP_ARGUMENT, "tensor", from->name, "it has gaps");
  out->dims = room(w, t->shape.n_dim, sizeof *out->dims);
  if (w->status != NEAP_OK) return;
  out->n_dims = (size_t)t->shape.n_dim;
  for (int d = 0; d < t->shape.n_dim; d++) out->dims[d] = t->shape.dim[d];

  /* Small tensors stay in the model even where others lie apart: axes and shapes are of use to
   * programs that do not open the file of data. */
  ProtobufCBinaryData raw = raw_of(w, from, out->data_type);
  if (w->status != NEAP_OK) return;
  if (w->apart && raw.len >= LEAST_APART) {
    put_apart(w, &raw, out);
    return;
  }
  out->has_raw_data = true;
  out->raw_data = raw;
}

static Onnx__TensorProto *put_tensor(writer *w, const neap_onnx_tensor *from) {
  Onnx__TensorProto *out = message(w, &onnx__tensor_proto__descriptor);
  if (out == NULL) return NULL;
  if (from->name != NULL && from->name[0] != '\0') out->name = text_of(from->name);
  out->has_data_type = true;
  if (from->tensor.dtype == NEAP_DTYPE_NONE)
    put_texts(w, from, out);
  else
    put_numbers(w, from, out);
  return out;
}

/* ---- attributes and nodes -------------------------------------------------------------------- */

static Onnx__GraphProto *put_graph(writer *w, const neap_onnx_graph *from);

static Onnx__AttributeProto *put_attr(writer *w, const neap_onnx_attr *from) {
  Onnx__AttributeProto *out = message(w, &onnx__attribute_proto__descriptor);
  if (out == NULL) return NULL;
  out->name = text_of(from->name);
  out->has_type = true;

  /* Readers go by `type`, which says the one field that holds the value. */
  switch (from->kind) {
    case NEAP_ONNX_INT:
      out->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
      out->has_i = true;
      out->i = from->i;
      break;
    case NEAP_ONNX_FLOAT:
      out->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
      out->has_f = true;
      /* The format has no wider floats; what was read from one comes back as it was. */
      out->f = (float)from->f;
      break;
    case NEAP_ONNX_TEXT:
      out->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
      out->has_s = true;
      out->s = bytes_of(&from->text);
      break;
    case NEAP_ONNX_TENSOR:
      out->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
      out->t = put_tensor(w, &from->tensor);
      break;
    case NEAP_ONNX_GRAPH:
      out->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH;
      out->g = put_graph(w, from->graph);
      break;
    case NEAP_ONNX_INTS:
      out->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
      out->n_ints = (size_t)from->n;
      out->ints = (int64_t *)(uintptr_t)from->ints;
      break;
    case NEAP_ONNX_FLOATS:
      out->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS;
      out->n_floats = (size_t)from->n;
      out->floats = (float *)(uintptr_t)from->floats;
      break;
    case NEAP_ONNX_TEXTS:
      out->type = ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS;
      out->strings = room(w, from->n, sizeof *out->strings);
      if (out->strings == NULL) break;
      out->n_strings = (size_t)from->n;
      for (int i = 0; i < from->n; i++) out->strings[i] = bytes_of(&from->texts[i]);
      break;
    case NEAP_ONNX_REF:
      /* The value, and with it the type, is that of the call's attribute. */
      out->has_type = false;
      out->ref_attr_name = text_of(from->ref);
      break;
    case NEAP_ONNX_OTHER:
      fail(w, NEAP_ARGUMENT, "attribute", from->name, "of a kind that is not written");
  }
  return out;
}

static Onnx__NodeProto *put_node(writer *w, const neap_onnx_node *from) {
  Onnx__NodeProto *out = message(w, &onnx__node_proto__descriptor);
  if (out == NULL) return NULL;
  if (from->name != NULL && from->name[0] != '\0') out->name = text_of(from->name);
  out->op_type = text_of(from->op);
  if (from->domain != NULL && from->domain[0] != '\0') out->domain = text_of(from->domain);
  out->input = texts_of(w, from->n_in, from->in);
  out->output = texts_of(w, from->n_out, from->out);
  out->attribute = room(w, from->n_attr, sizeof *out->attribute);
  if (w->status != NEAP_OK) return out;
  out->n_input = (size_t)from->n_in;
  out->n_output = (size_t)from->n_out;
  for (int i = 0; i < from->n_attr && w->status == NEAP_OK; i++)
    out->attribute[out->n_attribute++] = put_attr(w, &from->attr[i]);
  return out;
}

static Onnx__NodeProto **put_nodes(writer *w, int n, const neap_onnx_node *from, size_t *n_out) {
  Onnx__NodeProto **out = room(w, n, sizeof *out);
  for (int i = 0; i < n && w->status == NEAP_OK; i++) out[(*n_out)++] = put_node(w, &from[i]);
  return out;
}

/* ---- values and graphs ----------------------------------------------------------------------- */

static Onnx__TensorShapeProto *put_dims(writer *w, const neap_onnx_value *from) {
  Onnx__TensorShapeProto *out = message(w, &onnx__tensor_shape_proto__descriptor);
  if (out == NULL) return NULL;
  out->dim = room(w, from->n_dim, sizeof *out->dim);
  for (int d = 0; d < from->n_dim && w->status == NEAP_OK; d++) {
    Onnx__TensorShapeProto__Dimension *dim =
      message(w, &onnx__tensor_shape_proto__dimension__descriptor);
    if (dim == NULL) return NULL;
    out->dim[out->n_dim++] = dim;
    /* Of neither size nor name the field is left out: so a file says that nothing is known. */
    if (from->dim[d].size >= 0) {
      dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
      dim->dim_value = from->dim[d].size;
    } else if (from->dim[d].name != NULL && from->dim[d].name[0] != '\0') {
      dim->value_case = ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
      dim->dim_param = text_of(from->dim[d].name);
    }
  }
  return out;
}

/* A value of a kind other than a tensor has no type here. */
static Onnx__ValueInfoProto *put_value(writer *w, const neap_onnx_value *from) {
  Onnx__ValueInfoProto *out = message(w, &onnx__value_info_proto__descriptor);
  if (out == NULL) return NULL;
  out->name = text_of(from->name);
  if (from->elem_type == 0) return out;
  out->type = message(w, &onnx__type_proto__descriptor);
  Onnx__TypeProto__Tensor *tensor = message(w, &onnx__type_proto__tensor__descriptor);
  if (out->type == NULL || tensor == NULL) return out;
  out->type->value_case = ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE;
  out->type->tensor_type = tensor;
  tensor->has_elem_type = true;
  tensor->elem_type = from->elem_type;

  /* No shape says that not even the rank is known; a shape of no dimensions is a scalar's. */
  if (from->n_dim >= 0) tensor->shape = put_dims(w, from);
  return out;
}

static Onnx__ValueInfoProto **put_values(writer *w, int n, const neap_onnx_value *from,
                                         size_t *n_out) {
  Onnx__ValueInfoProto **out = room(w, n, sizeof *out);
  for (int i = 0; i < n && w->status == NEAP_OK; i++) out[(*n_out)++] = put_value(w, &from[i]);
  return out;
}

static Onnx__GraphProto *put_graph(writer *w, const neap_onnx_graph *from) {
  Onnx__GraphProto *out = message(w, &onnx__graph_proto__descriptor);
  if (out == NULL) return NULL;
  out->name = text_of(from->name);
  out->initializer = room(w, from->n_initializer, sizeof *out->initializer);
  for (int i = 0; i < from->n_initializer && w->status == NEAP_OK; i++)
    out->initializer[out->n_initializer++] = put_tensor(w, &from->initializer[i]);
  out->input = put_values(w, from->n_input, from->input, &out->n_input);
  out->output = put_values(w, from->n_output, from->output, &out->n_output);
  out->value_info = put_values(w, from->n_value, from->value, &out->n_value_info);
  out->node = put_nodes(w, from->n_node, from->node, &out->n_node);
  return out;
}

static Onnx__OperatorSetIdProto **put_opsets(writer *w, int n, const neap_onnx_opset *from,
                                             size_t *n_out) {
  Onnx__OperatorSetIdProto **out = room(w, n, sizeof *out);
  for (int i = 0; i < n && w->status == NEAP_OK; i++) {
    Onnx__OperatorSetIdProto *set = message(w, &onnx__operator_set_id_proto__descriptor);
    if (set == NULL) return out;
    set->domain = text_of(from[i].domain);
    set->has_version = true;
    set->version = from[i].version;
    out[(*n_out)++] = set;
  }
  return out;
}

static Onnx__FunctionProto *put_function(writer *w, const neap_onnx_function *from) {
  Onnx__FunctionProto *out = message(w, &onnx__function_proto__descriptor);
  if (out == NULL) return NULL;

  /* Defaults stand as attributes in the message, which nothing here writes: better refused than
   * lost. */
  if (from->n_default > 0)
    fail(w, NEAP_ARGUMENT, "function", from->name, "attributes that may be left out");
  out->name = text_of(from->name);
  out->domain = text_of(from->domain);
  out->input = texts_of(w, from->n_in, from->in);
  out->output = texts_of(w, from->n_out, from->out);
  out->attribute = texts_of(w, from->n_attr, from->attr);
  if (w->status != NEAP_OK) return out;
  out->n_input = (size_t)from->n_in;
  out->n_output = (size_t)from->n_out;
  out->n_attribute = (size_t)from->n_attr;
  out->opset_import = put_opsets(w, from->n_opset, from->opset, &out->n_opset_import);
  out->node = put_nodes(w, from->n_node, from->node, &out->n_node);
  return out;
}

static Onnx__ModelProto *put_model(writer *w, const neap_onnx_model *from) {
  Onnx__ModelProto *out = message(w, &onnx__model_proto__descriptor);
  if (out == NULL) return NULL;
  out->has_ir_version = true;
  out->ir_version = from->ir_version;
  out->producer_name = text_of(from->producer);
  out->opset_import = put_opsets(w, from->n_opset, from->opset, &out->n_opset_import);
  out->graph = put_graph(w, &from->graph);
  out->functions = room(w, from->n_function, sizeof(Onnx__FunctionProto *));
  for (int i = 0; i < from->n_function && w->status == NEAP_OK; i++)
    out->functions[out->n_functions++] = put_function(w, &from->function[i]);
  return out;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Small pieces are gathered before they are written. */
typedef struct gathered {
  ProtobufCBuffer base;
  writer *w;
  neap_io_sink sink;
  size_t n;
  uint8_t bytes[N_GATHERED];
} gathered;

static void flush(gathered *g) {
  if (g->w->status == NEAP_OK)
    g->w->status = neap_io_sink_write(&g->sink, g->bytes, g->n, g->w->error);
  g->n = 0;
}

static void append(ProtobufCBuffer *buffer, size_t n, const uint8_t *data) {
  gathered *g = (gathered *)buffer;

  /* protobuf-c gives a tag, a length and the bytes of a tensor in pieces of their own. Small ones
   * wait for each other; one that is larger than the room is written from where it lies. */
  if (n > N_GATHERED - g->n) flush(g);
  if (n <= N_GATHERED) {
    if (n > 0) memcpy(g->bytes + g->n, data, n);
    g->n += n;
    return;
  }
  if (g->w->status == NEAP_OK) g->w->status = neap_io_sink_write(&g->sink, data, n, g->w->error);
}

static int64_t tensor_bytes(const neap_onnx_graph *graph) {
  int64_t n = 0;
  for (int i = 0; i < graph->n_initializer; i++)
    n += (int64_t)dense_bytes(&graph->initializer[i].tensor);
  return n;
}

/* Opens PATH.data, where tensors are too many for one message. */
static void open_data(writer *w, const neap_onnx_model *model, int64_t inline_bytes) {
  /* Of the graph's own tensors alone: what else a message holds is small, and pack looks at the
   * sum. */
  if (inline_bytes <= 0) inline_bytes = MESSAGE_BYTES;
  if (tensor_bytes(&model->graph) <= inline_bytes) return;
  size_t n = strlen(w->path) + sizeof ".data";
  char *path = room(w, (int64_t)n, 1);
  if (path == NULL) return;
  snprintf(path, n, "%s.data", w->path);

  /* The model names its data without a folder, so that both files may be moved together. */
  const char *slash = strrchr(path, '/');
  w->location = slash != NULL ? slash + 1 : path;
  w->status = neap_io_sink_open(&w->data, path, w->error);
  w->apart = w->status == NEAP_OK;
}

static void pack(writer *w, const Onnx__ModelProto *proto) {
  gathered *out = room(w, 1, sizeof *out);
  if (w->status != NEAP_OK) return;
  if (onnx__model_proto__get_packed_size(proto) > INT32_MAX) {
    fail(w, NEAP_ARGUMENT, "graph", proto->graph->name, "more than 2 GB beside its weights");
    return;
  }

  /* A failure is known to the sink and the status: protobuf-c's functions have no way to say
   * one. */
  *out = (gathered){.base.append = append, .w = w};
  w->status = neap_io_sink_open(&out->sink, w->path, w->error);
  if (w->status != NEAP_OK) return;
  (void)onnx__model_proto__pack_to_buffer(proto, &out->base);
  flush(out);
  /* The data first: a model that is there never waits for them. */
  if (w->status == NEAP_OK && w->apart) {
    w->status = neap_io_sink_commit(&w->data, w->error);
    w->apart = false;
  }
  if (w->status == NEAP_OK)
    w->status = neap_io_sink_commit(&out->sink, w->error);
  else
    neap_io_sink_abort(&out->sink);
}

neap_status neap_onnx_write(const neap_onnx_model *model, const char *path, int64_t inline_bytes,
                            neap_error *error) {
  writer w = {.path = path, .error = error};
  open_data(&w, model, inline_bytes);
  Onnx__ModelProto *proto = put_model(&w, model);
  pack(&w, proto);
  if (w.apart) neap_io_sink_abort(&w.data);
  neap_arena_fini(&w.arena);
  return w.status;
}
