/* chain.c: chains of layers for C programs: options in, entries of plain numbers out. The chain
 * itself is driver's. */
#include "api/api.h"

neap_status neap_chain_open(neap_workspace *workspace, int n, const neap_net *const *layer,
                            int64_t max_batch, const neap_options *options, neap_chain **out,
                            neap_error *error) {
  neap_compile_options compile;
  *out = NULL;
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_C, __func__, &compile, error));
  return neap_chain_new(workspace, n, layer, max_batch, &compile, out, error);
}

/* The storage stays where it is while the chain holds it. */
static neap_array array_of(const neap_tensor *t) {
  neap_array a = {0};
  if (t->storage == NULL) return a;
  /* Shape and address as plain numbers: a C program need not know of storages. */
  neap_type type = neap_tensor_type(t);
  a = (neap_array){.dtype = t->dtype,
                   .n_dim = t->shape.n_dim,
                   .bytes = (int64_t)neap_type_bytes(&type),
                   .data = neap_tensor_data(t)};
  for (int d = 0; d < a.n_dim; d++) a.dim[d] = t->shape.dim[d];
  return a;
}

/* Takes the item over. */
static neap_status give(neap_status status, neap_chain_item *item, neap_entry *out) {
  *out = (neap_entry){0};
  if (status == NEAP_OK)
    *out = (neap_entry){.name = item->name,
                        .layer = item->layer,
                        .data = array_of(&item->data),
                        .diff = array_of(&item->diff),
                        .blob = item->blob,
                        .diff_blob = item->diff_blob};
  neap_chain_item_fini(item);
  return status;
}

neap_status neap_chain_entry(const neap_chain *chain, neap_list list, int i, neap_entry *out,
                             neap_error *error) {
  neap_chain_item item = {0};
  return give(neap_chain_item_at(chain, list, i, &item, error), &item, out);
}

neap_status neap_chain_param(const neap_chain *chain, const char *name, neap_entry *out,
                             neap_error *error) {
  neap_chain_item item = {0};
  return give(neap_chain_find_param(chain, name, &item, error), &item, out);
}

neap_status neap_chain_attach_param(neap_chain *chain, const char *name, neap_dtype dtype,
                                    int n_dim, const int64_t *dim, void *data, neap_error *error) {
  if (dtype <= NEAP_DTYPE_NONE || dtype >= NEAP_N_DTYPE || n_dim < 0 || n_dim > NEAP_MAX_DIM)
    return neap_fail(error, NEAP_ARGUMENT,
                     "attach \"%s\": expects a dtype and at most %d dimensions, got %d of them",
                     name, NEAP_MAX_DIM, n_dim);
  neap_shape shape = neap_shape_of(n_dim, dim);
  /* The chain retains what it attaches; this view of the caller's bytes goes. */
  neap_tensor t;
  NEAP_TRY(neap_tensor_borrow(&t, dtype, &shape, data, NULL, NULL, error));
  neap_status status = neap_chain_attach(chain, name, &t, error);
  neap_tensor_fini(&t);
  return status;
}

neap_status neap_chain_pop(neap_chain *chain, int layer, const char *name, neap_entry *out,
                           neap_error *error) {
  neap_cache *cache = neap_chain_cache(chain, layer);
  *out = (neap_entry){0};
  if (cache == NULL)
    return neap_fail(error, NEAP_ARGUMENT, "chain: has %d layers, got position %d",
                     neap_chain_n_layers(chain), layer);
  /* The label of the entry on top is looked at before the pop, which forgets it. */
  neap_cache_want want = {.label = name};
  const char *label = cache->n > 0 ? cache->item[cache->n - 1].label : NULL;
  neap_chain_item item = {.name = label != NULL ? label : "", .layer = cache->name};
  return give(neap_cache_pop(cache, &want, &item.data, error), &item, out);
}
