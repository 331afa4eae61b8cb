/* onnx.c: an ONNX file as plain data (neap/onnx.h). Its bytes are looked at (proto.c), unpacked
 * by protobuf-c, and laid out as lists that C and Lua read alike; tensors become tensors
 * (onnx_tensor.c), and their bytes in the messages are given back.
 */
#include "import/onnx_int.h"

#include <stdio.h>
#include <string.h>

/* Fields of the standard's schema. */
enum { META_OF_VALUE = 4, META_OF_NODE = 9, META_OF_GRAPH = 16 };
/* Of a node's metadata what says which call of a program it was. */
#define META_KEY_OF_NODE "pkg.torch.onnx.fx_node"

static const char *text_of(const char *text) { return text != NULL ? text : ""; }

/* How many there are, as an int: the skim has seen a byte for each. */
static neap_status count_of(const neap_onnx_file *file, size_t n, int *out, neap_error *error) {
  if (n > INT32_MAX / 2) return neap_onnx_fail(file, error, NEAP_DATA, "%zu items in a list", n);
  *out = (int)n;
  return NEAP_OK;
}

static neap_status take_names(neap_onnx_file *file, size_t n, char **from, int *n_out,
                              const char *const **out, neap_error *error) {
  NEAP_TRY(count_of(file, n, n_out, error));
  const char **names = neap_onnx_room(file, n, sizeof *names, error);
  if (names == NULL) return NEAP_MEMORY;
  for (size_t i = 0; i < n; i++) names[i] = text_of(from[i]);
  *out = names;
  return NEAP_OK;
}

/* ---- attributes and nodes -------------------------------------------------------------------- */

static neap_status take_graph(neap_onnx_file *file, Onnx__GraphProto *proto, neap_onnx_graph *out,
                              neap_error *error);

static neap_status take_texts(neap_onnx_file *file, const Onnx__AttributeProto *proto,
                              neap_onnx_attr *out, neap_error *error) {
  NEAP_TRY(count_of(file, proto->n_strings, &out->n, error));
  neap_onnx_text *texts = neap_onnx_room(file, proto->n_strings, sizeof *texts, error);
  if (texts == NULL) return NEAP_MEMORY;
  for (int i = 0; i < out->n; i++)
    texts[i] = (neap_onnx_text){(const char *)proto->strings[i].data, proto->strings[i].len};
  out->texts = texts;
  return NEAP_OK;
}

/* The kind that is said, or that what is there says: files of the first versions say none. */
static int kind_of(const Onnx__AttributeProto *proto) {
  if (proto->has_type && proto->type != 0) return (int)proto->type;
  if (proto->has_f) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT;
  if (proto->has_i) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT;
  if (proto->has_s) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING;
  if (proto->t != NULL) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR;
  if (proto->g != NULL) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH;
  if (proto->n_floats > 0) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS;
  if (proto->n_ints > 0) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS;
  if (proto->n_strings > 0) return ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS;
  return 0;
}

static neap_status take_attr(neap_onnx_file *file, Onnx__AttributeProto *proto, neap_onnx_attr *out,
                             neap_error *error) {
  *out = (neap_onnx_attr){.name = text_of(proto->name),
                          .kind = NEAP_ONNX_OTHER,
                          .ref = text_of(proto->ref_attr_name),
                          .text.data = "",
                          .tensor.name = ""};
  snprintf(file->part, sizeof file->part, "attribute \"%s\"", out->name);
  /* In a function: the value is that of the call's attribute, and none is here. */
  if (out->ref[0] != '\0') {
    out->kind = NEAP_ONNX_REF;
    return NEAP_OK;
  }

  /* Numbers, lists and texts are borrowed from the message, which lives as long as the model.
   * Tensors and graphs are made. */
  switch (kind_of(proto)) {
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INT:
      out->kind = NEAP_ONNX_INT;
      out->i = proto->i;
      return NEAP_OK;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOAT:
      out->kind = NEAP_ONNX_FLOAT;
      out->f = (double)proto->f;
      return NEAP_OK;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRING:
      out->kind = NEAP_ONNX_TEXT;
      if (proto->s.data != NULL)
        out->text = (neap_onnx_text){(const char *)proto->s.data, proto->s.len};
      return NEAP_OK;
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__TENSOR:
      out->kind = NEAP_ONNX_TENSOR;
      if (proto->t == NULL) return neap_onnx_fail(file, error, NEAP_DATA, "there is no tensor");
      return neap_onnx_take_tensor(file, proto->t, &out->tensor, error);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__GRAPH:
      out->kind = NEAP_ONNX_GRAPH;
      if (proto->g == NULL) return neap_onnx_fail(file, error, NEAP_DATA, "there is no graph");
      out->graph = neap_onnx_room(file, 1, sizeof *out->graph, error);
      return out->graph == NULL ? NEAP_MEMORY : take_graph(file, proto->g, out->graph, error);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__INTS:
      out->kind = NEAP_ONNX_INTS;
      out->ints = proto->ints;
      return count_of(file, proto->n_ints, &out->n, error);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__FLOATS:
      out->kind = NEAP_ONNX_FLOATS;
      out->floats = proto->floats;
      return count_of(file, proto->n_floats, &out->n, error);
    case ONNX__ATTRIBUTE_PROTO__ATTRIBUTE_TYPE__STRINGS:
      out->kind = NEAP_ONNX_TEXTS;
      return take_texts(file, proto, out, error);
    default: return NEAP_OK;
  }
}

static neap_status take_attrs(neap_onnx_file *file, size_t n, Onnx__AttributeProto **from,
                              int *n_out, neap_onnx_attr **out, neap_error *error) {
  NEAP_TRY(count_of(file, n, n_out, error));
  *out = neap_onnx_room(file, n, sizeof **out, error);
  if (*out == NULL) return NEAP_MEMORY;
  for (size_t i = 0; i < n; i++) NEAP_TRY(take_attr(file, from[i], &(*out)[i], error));
  file->part[0] = '\0';
  return NEAP_OK;
}

/* A node within a graph within a node: the innermost is the place, and the outer one again
 * afterwards. */
static neap_status take_node(neap_onnx_file *file, Onnx__NodeProto *proto, neap_onnx_node *out,
                             neap_error *error) {
  char around[sizeof file->node];
  memcpy(around, file->node, sizeof around);
  out->name = text_of(proto->name);

  /* The standard's own ops have two names of their domain, of which the empty one is kept. */
  out->op = text_of(proto->op_type);
  out->domain = text_of(proto->domain);
  if (strcmp(out->domain, "ai.onnx") == 0) out->domain = "";

  /* A node needs no name. For messages its first output, which is unique, stands for it. */
  const char *name = out->name;
  if (name[0] == '\0' && proto->n_output > 0) name = text_of(proto->output[0]);
  snprintf(file->node, sizeof file->node, "node \"%.120s\" (%.60s)", name, out->op);
  file->part[0] = '\0';
  NEAP_TRY(take_names(file, proto->n_input, proto->input, &out->n_in, &out->in, error));
  NEAP_TRY(take_names(file, proto->n_output, proto->output, &out->n_out, &out->out, error));
  NEAP_TRY(take_attrs(file, proto->n_attribute, proto->attribute, &out->n_attr, &out->attr, error));
  NEAP_TRY(neap_onnx_take_meta(file, &proto->base, META_OF_NODE, META_KEY_OF_NODE, &out->n_meta,
                               &out->meta, error));
  memcpy(file->node, around, sizeof around);
  return NEAP_OK;
}

static neap_status take_nodes(neap_onnx_file *file, size_t n, Onnx__NodeProto **from, int *n_out,
                              neap_onnx_node **out, neap_error *error) {
  NEAP_TRY(count_of(file, n, n_out, error));
  *out = neap_onnx_room(file, n, sizeof **out, error);
  if (*out == NULL) return NEAP_MEMORY;
  for (size_t i = 0; i < n; i++) NEAP_TRY(take_node(file, from[i], &(*out)[i], error));
  return NEAP_OK;
}

/* ---- values ---------------------------------------------------------------------------------- */

static neap_status take_dims(neap_onnx_file *file, const Onnx__TensorShapeProto *shape,
                             neap_onnx_value *out, neap_error *error) {
  if (shape == NULL) return NEAP_OK;
  NEAP_TRY(count_of(file, shape->n_dim, &out->n_dim, error));
  neap_onnx_dim *dim = neap_onnx_room(file, shape->n_dim, sizeof *dim, error);
  if (dim == NULL) return NEAP_MEMORY;
  /* A size, or a name that stands for one, or nothing: -1 is a size that the file does not say. */
  for (int d = 0; d < out->n_dim; d++) {
    const Onnx__TensorShapeProto__Dimension *from = shape->dim[d];
    bool is_number = from->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_VALUE;
    bool is_name = from->value_case == ONNX__TENSOR_SHAPE_PROTO__DIMENSION__VALUE_DIM_PARAM;
    dim[d] =
      (neap_onnx_dim){is_number ? from->dim_value : -1, is_name ? text_of(from->dim_param) : ""};
    /* Exporters write -1 where they know no size. */
    if (dim[d].size < -1)
      return neap_onnx_fail(file, error, NEAP_DATA, "a dimension of %lld", (long long)dim[d].size);
  }
  out->dim = dim;
  return NEAP_OK;
}

/* The type within sequences and optionals is that of their tensors. */
static neap_status take_type(neap_onnx_file *file, const Onnx__TypeProto *type,
                             neap_onnx_value *out, neap_error *error) {
  /* The first kind that is met is the outermost, the value's own. The walk ends: the skim has
   * bounded how deep messages are nested. */
  while (type != NULL) {
    switch (type->value_case) {
      case ONNX__TYPE_PROTO__VALUE_TENSOR_TYPE:
        if (out->kind[0] == '\0') out->kind = "tensor";
        out->elem_type = type->tensor_type->elem_type;
        return take_dims(file, type->tensor_type->shape, out, error);
      case ONNX__TYPE_PROTO__VALUE_SEQUENCE_TYPE:
        if (out->kind[0] == '\0') out->kind = "sequence";
        type = type->sequence_type->elem_type;
        break;
      case ONNX__TYPE_PROTO__VALUE_OPTIONAL_TYPE:
        if (out->kind[0] == '\0') out->kind = "optional";
        type = type->optional_type->elem_type;
        break;
      case ONNX__TYPE_PROTO__VALUE_MAP_TYPE: out->kind = "map"; return NEAP_OK;
      case ONNX__TYPE_PROTO__VALUE_SPARSE_TENSOR_TYPE: out->kind = "sparse"; return NEAP_OK;
      default: return NEAP_OK;
    }
  }
  return NEAP_OK;
}

static neap_status take_values(neap_onnx_file *file, size_t n, Onnx__ValueInfoProto **from,
                               int *n_out, neap_onnx_value **out, neap_error *error) {
  NEAP_TRY(count_of(file, n, n_out, error));
  *out = neap_onnx_room(file, n, sizeof **out, error);
  if (*out == NULL) return NEAP_MEMORY;
  for (size_t i = 0; i < n; i++) {
    neap_onnx_value *value = &(*out)[i];
    *value = (neap_onnx_value){.name = text_of(from[i]->name), .kind = "", .n_dim = -1};
    snprintf(file->part, sizeof file->part, "value \"%s\"", value->name);
    NEAP_TRY(take_type(file, from[i]->type, value, error));
    NEAP_TRY(neap_onnx_take_meta(file, &from[i]->base, META_OF_VALUE, NULL, &value->n_meta,
                                 &value->meta, error));
  }
  file->part[0] = '\0';
  return NEAP_OK;
}

/* ---- graphs and functions -------------------------------------------------------------------- */

static neap_status take_graph(neap_onnx_file *file, Onnx__GraphProto *proto, neap_onnx_graph *out,
                              neap_error *error) {
  *out = (neap_onnx_graph){.name = text_of(proto->name)};
  file->part[0] = '\0';
  if (proto->n_sparse_initializer > 0)
    return neap_onnx_fail(file, error, NEAP_DATA, "sparse initializers are not read");
  /* The count grows with each tensor, so that what is freed is what has been made. */
  neap_onnx_tensor *tensor = neap_onnx_room(file, proto->n_initializer, sizeof *tensor, error);
  if (tensor == NULL) return NEAP_MEMORY;
  out->initializer = tensor;
  int n;
  NEAP_TRY(count_of(file, proto->n_initializer, &n, error));
  for (int i = 0; i < n; i++) {
    NEAP_TRY(neap_onnx_take_tensor(file, proto->initializer[i], &tensor[i], error));
    out->n_initializer++;
  }
  file->part[0] = '\0';
  NEAP_TRY(take_values(file, proto->n_input, proto->input, &out->n_input, &out->input, error));
  NEAP_TRY(take_values(file, proto->n_output, proto->output, &out->n_output, &out->output, error));
  NEAP_TRY(
    take_values(file, proto->n_value_info, proto->value_info, &out->n_value, &out->value, error));
  NEAP_TRY(
    neap_onnx_take_meta(file, &proto->base, META_OF_GRAPH, NULL, &out->n_meta, &out->meta, error));
  return take_nodes(file, proto->n_node, proto->node, &out->n_node, &out->node, error);
}

static neap_status take_opsets(neap_onnx_file *file, size_t n, Onnx__OperatorSetIdProto **from,
                               int *n_out, neap_onnx_opset **out, neap_error *error) {
  NEAP_TRY(count_of(file, n, n_out, error));
  *out = neap_onnx_room(file, n, sizeof **out, error);
  if (*out == NULL) return NEAP_MEMORY;
  for (size_t i = 0; i < n; i++) {
    const char *domain = text_of(from[i]->domain);
    (*out)[i] = (neap_onnx_opset){strcmp(domain, "ai.onnx") == 0 ? "" : domain, from[i]->version};
  }
  return NEAP_OK;
}

static neap_status take_function(neap_onnx_file *file, Onnx__FunctionProto *proto,
                                 neap_onnx_function *out, neap_error *error) {
  out->name = text_of(proto->name);
  out->domain = text_of(proto->domain);
  out->overload = "";
  snprintf(file->node, sizeof file->node, "function \"%s\"", out->name);
  NEAP_TRY(take_names(file, proto->n_input, proto->input, &out->n_in, &out->in, error));
  NEAP_TRY(take_names(file, proto->n_output, proto->output, &out->n_out, &out->out, error));
  NEAP_TRY(take_names(file, proto->n_attribute, proto->attribute, &out->n_attr, &out->attr, error));
  NEAP_TRY(take_opsets(file, proto->n_opset_import, proto->opset_import, &out->n_opset, &out->opset,
                       error));
  NEAP_TRY(take_nodes(file, proto->n_node, proto->node, &out->n_node, &out->node, error));
  file->node[0] = '\0';
  return NEAP_OK;
}

static neap_status take_model(neap_onnx_file *file, neap_error *error) {
  Onnx__ModelProto *proto = file->proto;
  neap_onnx_model *model = &file->model;
  model->ir_version = proto->ir_version;
  model->producer = text_of(proto->producer_name);
  if (proto->graph == NULL) return neap_onnx_fail(file, error, NEAP_DATA, "there is no graph");
  NEAP_TRY(take_opsets(file, proto->n_opset_import, proto->opset_import, &model->n_opset,
                       &model->opset, error));
  NEAP_TRY(take_graph(file, proto->graph, &model->graph, error));
  NEAP_TRY(count_of(file, proto->n_functions, &model->n_function, error));
  model->function = neap_onnx_room(file, proto->n_functions, sizeof *model->function, error);
  /* What frees the model walks as many functions as the count says. */
  if (model->function == NULL) {
    model->n_function = 0;
    return NEAP_MEMORY;
  }
  for (int i = 0; i < model->n_function; i++)
    NEAP_TRY(take_function(file, proto->functions[i], &model->function[i], error));
  return NEAP_OK;
}

/* ---- reading --------------------------------------------------------------------------------- */

static neap_status read_file(const char *path, bool is_tensor, neap_onnx_model **out,
                             neap_error *error) {
  neap_onnx_file *file = neap_alloc_zeroed(sizeof *file);
  *out = NULL;
  if (file == NULL) return neap_fail_memory(error, sizeof *file, "an ONNX file");
  file->path = path;
  file->model.producer = file->model.graph.name = "";
  ProtobufCMessage *message = NULL;
  neap_status status = neap_proto_unpack(
    path, "ONNX file", is_tensor ? &onnx__tensor_proto__descriptor : &onnx__model_proto__descriptor,
    &message, error);
  if (status != NEAP_OK) goto fail;

  /* A file of one tensor is a model whose graph has that for its one initializer. It counts once it
   * is made, since what frees the model takes each that counts. */
  if (is_tensor) {
    file->tensor = (Onnx__TensorProto *)message;
    file->model.graph.initializer =
      neap_onnx_room(file, 1, sizeof *file->model.graph.initializer, error);
    status = file->model.graph.initializer == NULL
               ? NEAP_MEMORY
               : neap_onnx_take_tensor(file, file->tensor, file->model.graph.initializer, error);
    if (status == NEAP_OK) file->model.graph.n_initializer = 1;
  } else {
    file->proto = (Onnx__ModelProto *)message;
    status = take_model(file, error);
  }
  /* Tensors keep what they see of other files. */
  neap_onnx_close_external(file);
  if (status != NEAP_OK) goto fail;
  *out = &file->model;
  return NEAP_OK;
fail:
  neap_onnx_free(&file->model);
  return status;
}

neap_status neap_onnx_read(const char *path, neap_onnx_model **out, neap_error *error) {
  return read_file(path, false, out, error);
}

neap_status neap_onnx_read_tensor(const char *path, neap_onnx_model **out, neap_error *error) {
  return read_file(path, true, out, error);
}

/* ---- freeing --------------------------------------------------------------------------------- */

static void drop_graph(neap_onnx_graph *graph);

/* A list that was refused room is NULL though its count is there; rooms are zeroed, so that what
 * has not been filled holds nothing. */
static void drop_attrs(int n, neap_onnx_attr *attr) {
  if (attr == NULL) return;
  for (int k = 0; k < n; k++) {
    neap_tensor_fini(&attr[k].tensor.tensor);
    if (attr[k].graph != NULL) drop_graph(attr[k].graph);
  }
}

static void drop_nodes(int n, neap_onnx_node *node) {
  if (node == NULL) return;
  for (int i = 0; i < n; i++) drop_attrs(node[i].n_attr, node[i].attr);
}

static void drop_graph(neap_onnx_graph *graph) {
  for (int i = 0; i < graph->n_initializer; i++) neap_tensor_fini(&graph->initializer[i].tensor);
  drop_nodes(graph->n_node, graph->node);
}

void neap_onnx_free(neap_onnx_model *model) {
  if (model == NULL) return;
  neap_onnx_file *file = (neap_onnx_file *)model;
  drop_graph(&model->graph);
  for (int i = 0; i < model->n_function; i++)
    drop_nodes(model->function[i].n_node, model->function[i].node);
  bool refused = false;
  ProtobufCAllocator allocator = neap_proto_allocator(&refused);
  if (file->proto != NULL) onnx__model_proto__free_unpacked(file->proto, &allocator);
  if (file->tensor != NULL) onnx__tensor_proto__free_unpacked(file->tensor, &allocator);
  neap_onnx_close_external(file);
  neap_arena_fini(&file->arena);
  neap_free(file);
}
