/* onnx_external.c: tensors whose bytes lie in files beside the model. Each such file is mapped
 * once; a tensor is a read-only view of it where its bytes are aligned, else a copy.
 *
 * INVARIANT: no file is opened that does not lie in the model's folder, whatever a path or a link
 * says. No assertion can see it: tests/import tries the paths and links.
 */
#include "import/onnx_int.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The value of a key; NULL where there is none. */
static const char *value_of(const Onnx__TensorProto *proto, const char *key) {
  for (size_t i = 0; i < proto->n_external_data; i++) {
    const Onnx__StringStringEntryProto *entry = proto->external_data[i];
    if (entry->key != NULL && entry->value != NULL && strcmp(entry->key, key) == 0)
      return entry->value;
  }
  return NULL;
}

/* A whole number that is not negative; `missing` where the key is not there. */
static neap_status number_of(const neap_onnx_file *file, const Onnx__TensorProto *proto,
                             const char *key, int64_t missing, int64_t *out, neap_error *error) {
  const char *text = value_of(proto, key);
  char *end;
  *out = missing;
  if (text == NULL) return NEAP_OK;
  errno = 0;
  long long number = strtoll(text, &end, 10);
  if (errno != 0 || end == text || *end != '\0' || number < 0)
    return neap_onnx_fail(file, error, NEAP_DATA, "external data: %s is \"%.40s\"", key, text);
  *out = number;
  return NEAP_OK;
}

/* Whether a path could lead elsewhere by its words alone. */
static bool leaves_folder(const char *location) {
  if (location[0] == '\0' || location[0] == '/') return true;
  /* Part by part: ".." alone leads up, while "a..b" is a name like others. */
  for (const char *part = location; part != NULL; part = strchr(part, '/')) {
    if (*part == '/') part++;
    size_t n = strcspn(part, "/");
    if (n == 2 && part[0] == '.' && part[1] == '.') return true;
  }
  return false;
}

/* The file's own path, links followed, into real[PATH_MAX]; it must lie below the folder's. */
static neap_status find(const neap_onnx_file *file, const char *location, char *real,
                        neap_error *error) {
  char folder[PATH_MAX], path[PATH_MAX];
  if (leaves_folder(location))
    return neap_onnx_fail(file, error, NEAP_DATA,
                          "external data \"%.200s\": not in the model's folder", location);
  const char *slash = strrchr(file->path, '/');
  int n_folder = slash == NULL ? 1 : (int)(slash - file->path) + 1;

  /* The folder by its own path too, since the model may have been reached through a link. */
  int n = snprintf(path, sizeof path, "%.*s", n_folder, slash == NULL ? "." : file->path);
  if (n >= (int)sizeof path || realpath(path, folder) == NULL)
    return neap_onnx_fail(file, error, NEAP_IO, "the model's folder: %s", strerror(errno));
  n = snprintf(path, sizeof path, "%s/%s", folder, location);
  if (n >= (int)sizeof path || realpath(path, real) == NULL)
    return neap_onnx_fail(file, error, NEAP_IO, "external data \"%.200s\": %s", location,
                          strerror(errno));
  /* A link may lead out of the folder where the words did not. */
  size_t length = strcmp(folder, "/") == 0 ? 0 : strlen(folder);
  if (strncmp(real, folder, length) != 0 || real[length] != '/')
    return neap_onnx_fail(file, error, NEAP_DATA,
                          "external data \"%.200s\" is a link out of the model's folder", location);
  return NEAP_OK;
}

/* The open file of a location, opened with the first tensor that is there. */
static neap_status data_of(neap_onnx_file *file, const char *location, struct neap_onnx_data **out,
                           neap_error *error) {
  for (int i = 0; i < file->n_data; i++) {
    *out = &file->data[i];
    if (strcmp((*out)->location, location) == 0) return NEAP_OK;
  }
  char real[PATH_MAX];
  NEAP_TRY(find(file, location, real, error));
  if (!neap_list_grow(&file->data, &file->cap_data, file->n_data + 1, sizeof *file->data))
    return neap_fail_memory(error, sizeof *file->data, "an ONNX file");
  *out = &file->data[file->n_data];
  **out = (struct neap_onnx_data){.location = location};
  NEAP_TRY(neap_io_map_file(real, &(*out)->storage, &(*out)->n_bytes, error));
  file->n_data++;
  return NEAP_OK;
}

neap_status neap_onnx_external(neap_onnx_file *file, const Onnx__TensorProto *proto,
                               neap_dtype dtype, const neap_shape *shape, int64_t n_bytes,
                               neap_tensor *out, neap_error *error) {
  const char *location = value_of(proto, "location");
  int64_t offset, length;
  struct neap_onnx_data *data;
  if (location == NULL)
    return neap_onnx_fail(file, error, NEAP_DATA, "external data without a location");

  /* Sizes are held against the tensor's and the file's before a byte is looked at. In the last
   * check n_bytes stands alone on its side, so that no sum can overflow. */
  NEAP_TRY(number_of(file, proto, "offset", 0, &offset, error));
  NEAP_TRY(number_of(file, proto, "length", n_bytes, &length, error));
  if (length != n_bytes)
    return neap_onnx_fail(file, error, NEAP_DATA, "external data: %lld bytes, the tensor has %lld",
                          (long long)length, (long long)n_bytes);
  if (n_bytes == 0) return neap_tensor_new(out, dtype, shape, error);
  NEAP_TRY(data_of(file, location, &data, error));
  if (offset > data->n_bytes || n_bytes > data->n_bytes - offset)
    return neap_onnx_fail(file, error, NEAP_DATA,
                          "external data \"%.200s\": %lld bytes from %lld on, the file has %lld",
                          location, (long long)n_bytes, (long long)offset,
                          (long long)data->n_bytes);
  /* A view where the processor can read the elements in their place. */
  if (offset % (int64_t)neap_dtype_bytes(dtype) == 0) {
    neap_type type = {dtype, *shape};
    NEAP_TRY(neap_type_check(&type, "external data", error));
    *out = neap_tensor_view(data->storage, offset, dtype, shape);
    return NEAP_OK;
  }
  NEAP_TRY(neap_tensor_new(out, dtype, shape, error));
  memcpy(neap_tensor_data(out), neap_storage_data(data->storage) + offset, (size_t)n_bytes);
  return NEAP_OK;
}

void neap_onnx_close_external(neap_onnx_file *file) {
  for (int i = 0; i < file->n_data; i++) neap_storage_release(file->data[i].storage);
  neap_free(file->data);
  file->data = NULL;
  file->n_data = file->cap_data = 0;
}
