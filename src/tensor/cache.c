/* cache.c: a stack of tensors, each with a label, whose pops say what they expect.
 *
 * INVARIANT: a failed call leaves the stack as it was.
 * INVARIANT: item[0 .. n) hold one reference each, but those that were dropped; their places stay
 * until they are popped.
 */
#include "tensor/tensor.h"

neap_status neap_cache_new(const char *name, neap_cache **out, neap_error *error) {
  *out = NULL;
  const char *own = neap_intern(name);
  neap_cache *cache = own != NULL ? neap_alloc_zeroed(sizeof *cache) : NULL;
  if (cache == NULL) return neap_fail_memory(error, sizeof *cache, "a cache");
  cache->name = own;
  *out = cache;
  return NEAP_OK;
}

void neap_cache_free(neap_cache *cache) {
  if (cache == NULL) return;
  neap_cache_fini(cache);
  neap_free(cache);
}

const char *neap_cache_name(const neap_cache *cache) { return cache->name; }
int neap_cache_n(const neap_cache *cache) { return cache->n; }

const char *neap_cache_label(const neap_cache *cache, int i) {
  return i >= 0 && i < cache->n ? cache->item[i].label : NULL;
}

neap_status neap_cache_push(neap_cache *cache, const neap_tensor *tensor, const char *label,
                            neap_error *error) {
  /* Both may be refused, and are taken before anything changes. A grown list with nothing more in
   * it is the same stack. */
  const char *name = label != NULL ? neap_intern(label) : NULL;
  if ((label != NULL && name == NULL) ||
      !neap_list_grow(&cache->item, &cache->cap, cache->n + 1, sizeof *cache->item))
    return neap_fail_memory(error, sizeof *cache->item, "a cache");
  cache->item[cache->n++] = (neap_cache_item){neap_tensor_retain(tensor), name};
  return NEAP_OK;
}

static const char *label_text(const char *label) {
  return label != NULL ? label : "nothing by name";
}

neap_status neap_cache_check(const neap_cache *cache, int depth, const neap_cache_want *want,
                             neap_error *error) {
  /* The first thing that differs is told: is there one, is it the one that was pushed then, are its
   * bytes there, is it what was expected. */
  if (depth >= cache->n) {
    neap_hint(error, "each pop needs a push before it");
    return neap_fail(error, NEAP_RELEASED, "cache of %s: nothing is left to pop", cache->name);
  }
  /* Labels are interned: equal ones are one pointer. A refused name is equal to none. */
  const neap_cache_item *top = &cache->item[cache->n - 1 - depth];
  if (want->label != NULL && (top->label == NULL || neap_intern(want->label) != top->label)) {
    neap_hint(error, "pops go in reverse of pushes");
    return neap_fail(error, NEAP_NAME, "cache of %s: pop expects \"%s\", on top is \"%s\"",
                     cache->name, want->label, label_text(top->label));
  }
  if (top->tensor.storage == NULL) {
    neap_hint(error, "the backward pass needs all that the forward pass left");
    return neap_fail(error, NEAP_RELEASED, "cache of %s: \"%s\", on top, was dropped", cache->name,
                     label_text(top->label));
  }
  if (want->shape != NULL && !neap_shape_equal(want->shape, &top->tensor.shape)) {
    char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
    return neap_fail(error, NEAP_SHAPE, "cache of %s: pop expects %s, on top is %s", cache->name,
                     neap_shape_text(want->shape, a), neap_shape_text(&top->tensor.shape, b));
  }
  if (want->dtype != NEAP_DTYPE_NONE && want->dtype != top->tensor.dtype)
    return neap_fail(error, NEAP_DTYPE, "cache of %s: pop expects %s, on top is %s", cache->name,
                     neap_dtype_name(want->dtype), neap_dtype_name(top->tensor.dtype));
  return NEAP_OK;
}

neap_status neap_cache_pop(neap_cache *cache, const neap_cache_want *want, neap_tensor *out,
                           neap_error *error) {
  static const neap_cache_want anything = {0};
  NEAP_TRY(neap_cache_check(cache, 0, want != NULL ? want : &anything, error));
  /* The reference goes over to the caller. */
  *out = cache->item[--cache->n].tensor;
  return NEAP_OK;
}

neap_status neap_cache_drop(neap_cache *cache, int i, neap_error *error) {
  if (i < 0 || i >= cache->n)
    return neap_fail(error, NEAP_ARGUMENT, "cache of %s: has %d tensors, got position %d",
                     cache->name, cache->n, i);
  if (cache->item[i].tensor.storage == NULL)
    return neap_fail(error, NEAP_RELEASED, "cache of %s: \"%s\" was dropped already", cache->name,
                     label_text(cache->item[i].label));
  /* Its storage becomes NULL, by which a later pop knows that it was dropped. */
  neap_tensor_fini(&cache->item[i].tensor);
  return NEAP_OK;
}

void neap_cache_clear(neap_cache *cache) {
  while (cache->n > 0) neap_tensor_fini(&cache->item[--cache->n].tensor);
}

void neap_cache_fini(neap_cache *cache) {
  neap_cache_clear(cache);
  neap_free(cache->item);
  cache->item = NULL;
  cache->cap = 0;
}
