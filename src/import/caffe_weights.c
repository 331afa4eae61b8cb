/* caffe_weights.c: blobs of Caffe's binary files as tensors (neap/caffe.h), through protobuf-c and
 * caffe.proto, the part of the schema that holds numbers.
 *
 * INVARIANT: n_layer and n_blob grow with what is made, so that what is freed is what there is.
 */
#include "import/proto_int.h"

#include <caffe.pb-c.h>
#include <stdio.h>
#include <string.h>

typedef struct weights_file {
  neap_caffe_weights weights; /* first: a pointer to it is one to this */
  neap_arena arena;
  const char *path; /* borrowed, while it is read */
} weights_file;

static void *room(weights_file *file, size_t n, size_t bytes, neap_error *error) {
  size_t all;
  void *out = NULL;
  if (!__builtin_mul_overflow(n, bytes, &all)) out = neap_arena_alloc(&file->arena, all);
  if (out == NULL) neap_fail_memory(error, bytes, "a file of Caffe's");
  return out;
}

/* ---- blobs ----------------------------------------------------------------------------------- */

/* The shape that a blob claims, and how many elements that is. */
static neap_status read_shape(const Caffe__BlobProto *proto, neap_shape *shape, int64_t *n,
                              char message[static 120]) {
  /* Old blobs have four sizes, each in a field of its own; new ones have a list. */
  const int64_t old[] = {proto->num, proto->channels, proto->height, proto->width};
  bool has_shape = proto->shape != NULL;
  size_t n_dim = has_shape ? proto->shape->n_dim : 4;
  *shape = (neap_shape){0};
  *n = 1;
  message[0] = '\0';
  if (n_dim > NEAP_MAX_DIM) {
    snprintf(message, 120, "%zu dimensions, at most %d are read", n_dim, NEAP_MAX_DIM);
    return NEAP_DATA;
  }
  shape->n_dim = (int)n_dim;
  for (int d = 0; d < shape->n_dim; d++) {
    int64_t size = has_shape ? proto->shape->dim[d] : old[d];
    if (size < 0 || __builtin_mul_overflow(*n, size, n) || *n > INT64_MAX / 64) {
      snprintf(message, 120, "a dimension of %lld", (long long)size);
      return NEAP_DATA;
    }
    shape->dim[d] = size;
  }
  return NEAP_OK;
}

static neap_status take_blob(const weights_file *file, const char *layer, int k,
                             Caffe__BlobProto *proto, neap_tensor *out, neap_error *error) {
  char message[120];
  neap_shape shape;
  int64_t n;
  /* A blob has floats or, of a net that Caffe ran in doubles, doubles. */
  bool is_double = proto->n_data == 0 && proto->n_double_data > 0;
  size_t listed = is_double ? proto->n_double_data : proto->n_data;
  neap_status status = read_shape(proto, &shape, &n, message);
  if (status == NEAP_OK && (uint64_t)n != listed) {
    snprintf(message, sizeof message, "%lld elements are claimed, %zu are there", (long long)n,
             listed);
    status = NEAP_DATA;
  }
  if (status != NEAP_OK)
    return neap_fail(error, NEAP_DATA, "%s: layer \"%.120s\", blob %d: %s", file->path, layer, k,
                     message);
  neap_dtype dtype = is_double ? NEAP_DTYPE_F64 : NEAP_DTYPE_F32;
  NEAP_TRY(neap_tensor_new(out, dtype, &shape, error));
  const void *data = is_double ? (const void *)proto->double_data : (const void *)proto->data;
  if (n > 0) memcpy(neap_tensor_data(out), data, (size_t)n * neap_dtype_bytes(dtype));
  /* The numbers of the message go, so that a net is not in memory twice. */
  neap_free(proto->data);
  neap_free(proto->double_data);
  proto->data = NULL;
  proto->double_data = NULL;
  proto->n_data = proto->n_double_data = 0;
  return NEAP_OK;
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* A layer of blobs behind those that there are; one without has no place in the list. */
static neap_status take_layer(weights_file *file, const char *name, size_t n,
                              Caffe__BlobProto **proto, neap_error *error) {
  if (n == 0) return NEAP_OK;
  neap_caffe_layer *layer = &file->weights.layer[file->weights.n_layer];
  layer->blob = room(file, n, sizeof *layer->blob, error);
  layer->name = neap_arena_strdup(&file->arena, name != NULL ? name : "");
  if (layer->blob == NULL) return NEAP_MEMORY;
  if (layer->name == NULL) return neap_fail_memory(error, 1, "a layer's name");
  file->weights.n_layer++;
  for (size_t k = 0; k < n && k < INT32_MAX; k++) {
    NEAP_TRY(take_blob(file, layer->name, (int)k, proto[k], &layer->blob[k], error));
    layer->n_blob++;
  }
  return NEAP_OK;
}

/* Layers of the first version stand within those of the second. */
static neap_status take_old_layer(weights_file *file, const Caffe__V1LayerParameter *old,
                                  neap_error *error) {
  const Caffe__V0LayerParameter *first = old->layer;
  if (first != NULL && first->n_blobs > 0)
    return take_layer(file, first->name, first->n_blobs, first->blobs, error);
  return take_layer(file, old->name, old->n_blobs, old->blobs, error);
}

static neap_status take_net(weights_file *file, const Caffe__NetParameter *net, neap_error *error) {
  neap_caffe_weights *weights = &file->weights;
  if (net->name != NULL) weights->name = neap_arena_strdup(&file->arena, net->name);
  if (weights->name == NULL) return neap_fail_memory(error, 1, "a net's name");
  /* Old nets list their layers in one field, new ones in another. Room for all of them, though one
   * without blobs takes no place. */
  if (net->n_layer + net->n_layers > INT32_MAX / 2)
    return neap_fail(error, NEAP_DATA, "%s: too many layers", file->path);
  weights->layer = room(file, net->n_layer + net->n_layers, sizeof *weights->layer, error);
  if (weights->layer == NULL) return NEAP_MEMORY;
  for (size_t i = 0; i < net->n_layers; i++) NEAP_TRY(take_old_layer(file, net->layers[i], error));
  for (size_t i = 0; i < net->n_layer; i++)
    NEAP_TRY(
      take_layer(file, net->layer[i]->name, net->layer[i]->n_blobs, net->layer[i]->blobs, error));
  return NEAP_OK;
}

static neap_status take_one(weights_file *file, Caffe__BlobProto *blob, neap_error *error) {
  file->weights.layer = room(file, 1, sizeof *file->weights.layer, error);
  if (file->weights.layer == NULL) return NEAP_MEMORY;
  return take_layer(file, "", 1, &blob, error);
}

/* ---- files ----------------------------------------------------------------------------------- */

static neap_status read_file(const char *path, bool is_blob, neap_caffe_weights **out,
                             neap_error *error) {
  *out = NULL;
  weights_file *file = neap_alloc_zeroed(sizeof *file);
  if (file == NULL) return neap_fail_memory(error, sizeof *file, "a file of Caffe's");
  file->path = path;
  file->weights.name = "";

  /* The whole message is in memory for a while; each blob gives its numbers back once it is a
   * tensor (take_blob). */
  ProtobufCMessage *message = NULL;
  neap_status status = neap_proto_unpack(
    path, is_blob ? "file of one blob of Caffe's" : "net of Caffe's",
    is_blob ? &caffe__blob_proto__descriptor : &caffe__net_parameter__descriptor, &message, error);
  if (status == NEAP_OK)
    status = is_blob ? take_one(file, (Caffe__BlobProto *)message, error)
                     : take_net(file, (Caffe__NetParameter *)message, error);
  bool refused = false;
  ProtobufCAllocator allocator = neap_proto_allocator(&refused);
  if (message != NULL) protobuf_c_message_free_unpacked(message, &allocator);
  if (status == NEAP_OK)
    *out = &file->weights;
  else
    neap_caffe_free_weights(&file->weights);
  return status;
}

neap_status neap_caffe_read_weights(const char *path, neap_caffe_weights **out, neap_error *error) {
  return read_file(path, false, out, error);
}

neap_status neap_caffe_read_blob(const char *path, neap_caffe_weights **out, neap_error *error) {
  return read_file(path, true, out, error);
}

void neap_caffe_free_weights(neap_caffe_weights *weights) {
  if (weights == NULL) return;
  weights_file *file = (weights_file *)weights;
  for (int i = 0; i < weights->n_layer; i++)
    for (int k = 0; k < weights->layer[i].n_blob; k++) neap_tensor_fini(&weights->layer[i].blob[k]);
  neap_arena_fini(&file->arena);
  neap_free(file);
}
