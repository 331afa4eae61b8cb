/* tensor.c: making, sharing and dropping tensors. A tensor is a value: dtype, shape, strides and
 * one reference. */
#include "tensor/tensor.h"

#include <stdio.h>
#include <string.h>

/* *tensor is set only on success. MEMORY error, with the shape, when the bytes are refused; DTYPE
 * or SHAPE for what is no type. */
neap_status neap_tensor_new(neap_tensor *tensor, neap_dtype dtype, const neap_shape *shape,
                            neap_error *error) {
  char text[NEAP_SHAPE_TEXT];
  neap_type type = {dtype, *shape};
  NEAP_TRY(neap_type_check(&type, "a tensor", error));
  size_t bytes = neap_type_bytes(&type);
  neap_storage *storage = neap_storage_new(bytes);
  if (storage == NULL) {
    char what[NEAP_SHAPE_TEXT + 32];
    snprintf(what, sizeof what, "a tensor %s %s", neap_dtype_name(dtype),
             neap_shape_text(shape, text));
    return neap_fail_memory(error, bytes, what);
  }
  /* The view retains the storage: this reference to it goes. */
  *tensor = neap_tensor_view(storage, 0, dtype, shape);
  neap_storage_release(storage);
  return NEAP_OK;
}

/* A dense tensor over bytes of `storage`, of which it takes a reference of its own. That they lie
 * inside is the caller's care. */
neap_tensor neap_tensor_view(neap_storage *storage, int64_t offset_bytes, neap_dtype dtype,
                             const neap_shape *shape) {
  neap_tensor tensor = {.dtype = dtype,
                        .shape = *shape,
                        .storage = neap_storage_retain(storage),
                        .offset_bytes = offset_bytes};
  neap_shape_strides(shape, tensor.stride);
  return tensor;
}

/* The same tensor again, to be dropped by itself with neap_tensor_fini. */
neap_tensor neap_tensor_retain(const neap_tensor *tensor) {
  neap_storage_retain(tensor->storage);
  return *tensor;
}

/* Safe on {0} and twice. */
void neap_tensor_fini(neap_tensor *tensor) {
  neap_storage_release(tensor->storage);
  memset(tensor, 0, sizeof *tensor);
}

/* Where element (0,0,..) lies; NULL for {0}. Borrowed for as long as the tensor lives. */
char *neap_tensor_data(const neap_tensor *tensor) {
  return tensor->storage == NULL ? NULL : neap_storage_data(tensor->storage) + tensor->offset_bytes;
}

/* Empty tensors are dense: there is nothing to lie apart. */
bool neap_tensor_is_dense(const neap_tensor *tensor) {
  if (neap_tensor_elems(tensor) == 0) return true;
  /* From the last dimension on, each stride is what lies behind it. */
  int64_t step = 1;
  for (int i = tensor->shape.n_dim - 1; i >= 0; i--) {
    if (tensor->shape.dim[i] == 1) continue; /* never stepped over, so its stride says nothing */
    if (tensor->stride[i] != step) return false;
    step *= tensor->shape.dim[i];
  }
  return true;
}

int64_t neap_tensor_elems(const neap_tensor *tensor) { return neap_shape_elems(&tensor->shape); }
