/* tensor.c: tensors for C programs: what the rooms below do to storages and buffers, said of
 * tensors. */
#include "api/api.h"

neap_status neap_tensor_borrow(neap_tensor *tensor, neap_dtype dtype, const neap_shape *shape,
                               void *data, void (*release)(void *owner), void *owner,
                               neap_error *error) {
  neap_type type = {dtype, *shape};
  *tensor = (neap_tensor){0};
  NEAP_TRY(neap_type_check(&type, "a tensor of borrowed bytes", error));
  /* The tensor's view retains the storage, which this reference has made. */
  neap_storage *storage = neap_storage_borrow(data, neap_type_bytes(&type), release, owner);
  if (storage == NULL) return neap_fail_memory(error, 64, "a tensor of borrowed bytes");
  *tensor = neap_tensor_view(storage, 0, dtype, shape);
  neap_storage_release(storage);
  return NEAP_OK;
}

size_t neap_tensor_bytes(const neap_tensor *tensor) {
  neap_type type = neap_tensor_type(tensor);
  return neap_type_bytes(&type);
}

bool neap_tensor_is_read_only(const neap_tensor *tensor) {
  return neap_storage_is_read_only(tensor->storage);
}

void neap_tensor_touch(const neap_tensor *tensor) { neap_storage_touch(tensor->storage); }

neap_status neap_tensor_hash(const neap_tensor *t, char text[33], neap_error *error) {
  if (!neap_tensor_is_dense(t))
    return neap_fail(error, NEAP_ARGUMENT, "hash expects a contiguous tensor");
  neap_hash_text(neap_hash_words(neap_tensor_data(t), neap_tensor_bytes(t)), text);
  return NEAP_OK;
}

neap_status neap_tensor_text(const neap_tensor *t, const neap_print_options *options,
                             const char *name, char **out, neap_error *error) {
  neap_buffer text = {0};
  *out = NULL;
  neap_tensor_print(t, options, name, &text);
  return neap_api_give_text(&text, out, error);
}
