/* list.c: the named tensors and the texts of a file, in the order in which they were added. */
#include "io/io_int.h"

#include <string.h>

void neap_io_list_fini(neap_io_list *list) {
  for (int i = 0; i < list->n_item; i++) {
    neap_free(list->item[i].name);
    neap_tensor_fini(&list->item[i].tensor);
  }
  for (int i = 0; i < list->n_meta; i++) {
    neap_free(list->meta[i].key);
    neap_free(list->meta[i].value);
  }
  neap_free(list->item);
  neap_free(list->meta);
  memset(list, 0, sizeof *list);
}

/* One after the other: lists are hundreds long, and a reader that looks for all of them walks the
 * list itself. */
neap_tensor *neap_io_list_find(const neap_io_list *list, const char *name) {
  for (int i = 0; i < list->n_item; i++)
    if (strcmp(list->item[i].name, name) == 0) return &list->item[i].tensor;
  return NULL;
}

const char *neap_io_list_meta(const neap_io_list *list, const char *key) {
  for (int i = 0; i < list->n_meta; i++)
    if (strcmp(list->meta[i].key, key) == 0) return list->meta[i].value;
  return NULL;
}

neap_status neap_io_list_add(neap_io_list *list, const char *name, size_t n_name,
                             neap_tensor *tensor, neap_error *error) {
  /* The tensor is taken over in any case: a refusal drops it. */
  char *copy = neap_alloc(n_name + 1);
  if (copy == NULL ||
      !neap_list_grow(&list->item, &list->cap_item, list->n_item + 1, sizeof *list->item)) {
    neap_free(copy);
    neap_tensor_fini(tensor);
    return neap_fail_memory(error, n_name + 1, "a list of tensors");
  }
  memcpy(copy, name, n_name);
  copy[n_name] = '\0';
  list->item[list->n_item++] = (neap_io_item){copy, *tensor};
  return NEAP_OK;
}

neap_status neap_io_list_add_meta(neap_io_list *list, const char *key, const char *value,
                                  neap_error *error) {
  /* Both copies and the room in the list, or nothing. */
  neap_io_pair pair = {neap_strdup(key), neap_strdup(value)};
  if (pair.key == NULL || pair.value == NULL ||
      !neap_list_grow(&list->meta, &list->cap_meta, list->n_meta + 1, sizeof *list->meta)) {
    neap_free(pair.key);
    neap_free(pair.value);
    return neap_fail_memory(error, strlen(key) + strlen(value) + 2, "a list of metadata");
  }
  list->meta[list->n_meta++] = pair;
  return NEAP_OK;
}

neap_status neap_io_dense(const neap_tensor *t, neap_tensor *out, neap_error *error) {
  if (!neap_tensor_is_dense(t)) return neap_tensor_clone(t, NEAP_DTYPE_NONE, out, error);
  *out = neap_tensor_retain(t);
  return NEAP_OK;
}
