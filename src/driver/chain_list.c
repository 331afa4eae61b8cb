/* chain_list.c: the memory of a chain of layers as four lists: params, outputs, inputs and caches.
 *
 * INVARIANT: an input holds one more reference of the storage of the output below it. Dropping an
 * entry drops its reference; a blob that no entry holds any more then leaves the workspace too, so
 * that its bytes return with the last holder, in whatever order entries go. Programs are detached
 * first, since they hold what they were bound to.
 */
#include "driver/driver_int.h"

#include <string.h>

static neap_status no_memory(neap_error *error) {
  return neap_fail_memory(error, 64, "a list of a chain");
}

/* ---- references ------------------------------------------------------------------------------ */

static bool holds(const neap_tensor *t, const neap_storage *storage) {
  return storage != NULL && t->storage == storage;
}

static bool is_held(const neap_chain *chain, const neap_storage *storage) {
  for (int i = 0; i < chain->n_layer; i++) {
    const neap_cache *cache = &chain->layer[i].cache;
    if (holds(&chain->output[i].data, storage) || holds(&chain->output[i].diff, storage) ||
        holds(&chain->input[i].data, storage) || holds(&chain->input[i].diff, storage))
      return true;
    for (int k = 0; k < cache->n; k++)
      if (holds(&cache->item[k].tensor, storage)) return true;
  }
  return false;
}

static void detach_all(neap_chain *chain) {
  for (int b = 0; b < chain->n_batch; b++)
    for (int i = 0; i < chain->n_layer; i++)
      for (int p = 0; p < NEAP_CHAIN_N_PART; p++) {
        neap_session *session = chain->batch[b].step[i].session[p];
        if (session != NULL) neap_workspace_detach(chain->ws, neap_session_program(session));
      }
}

/* The first input and the gradient of the last output: who writes them may still want them. */
static bool is_callers(const neap_chain *chain, const char *blob) {
  return blob == chain->layer[0].input || blob == chain->layer[chain->n_layer - 1].d_output;
}

/* Takes a blob of the chain's own out of the workspace when no entry holds it. */
static void forget(neap_chain *chain, const char *blob) {
  neap_tensor t;
  if (blob == NULL || is_callers(chain, blob) || !neap_workspace_has(chain->ws, blob)) return;

  /* A blob without contents can't be viewed, and nobody holds it. */
  if (neap_workspace_view(chain->ws, blob, &t, NULL, NULL) == NEAP_OK) {
    bool held = is_held(chain, t.storage);
    neap_tensor_fini(&t);
    if (held) return;
  }

  /* Programs hold what they were bound to. The next run attaches them again, and makes the blob
   * anew. */
  detach_all(chain);
  neap_workspace_remove(chain->ws, blob);
}

static void forget_all(neap_chain *chain) {
  for (int i = 0; i < chain->n_layer; i++) {
    forget(chain, chain->layer[i].output);
    forget(chain, chain->layer[i].d_output);
    if (i == 0)
      forget(chain, chain->layer[i].d_input); /* others' are d_output of the layer below */
    const neap_chain_step *step = &chain->batch[chain->at].step[i];
    for (int k = 0; k < step->n_saved; k++) forget(chain, step->saved[k]);
  }
}

void neap_chain_let_go(neap_chain *chain, bool forget_too) {
  for (int i = 0; i < chain->n_layer; i++) {
    neap_chain_value *value[] = {&chain->output[i], &chain->input[i]};
    for (int k = 0; k < 2; k++) {
      neap_tensor_fini(&value[k]->data);
      neap_tensor_fini(&value[k]->diff);
      value[k]->dropped = false;
    }
    neap_cache_clear(&chain->layer[i].cache);
  }
  chain->state = NEAP_CHAIN_EMPTY;
  if (forget_too) forget_all(chain);
}

void neap_chain_clear(neap_chain *chain) { neap_chain_let_go(chain, true); }

/* ---- reading --------------------------------------------------------------------------------- */

int neap_chain_n_layers(const neap_chain *chain) { return chain->n_layer; }

neap_cache *neap_chain_cache(neap_chain *chain, int layer) {
  return layer >= 0 && layer < chain->n_layer ? &chain->layer[layer].cache : NULL;
}

int neap_chain_n(const neap_chain *chain, neap_list list) {
  int n = 0;
  switch (list) {
    case NEAP_LIST_PARAMS: return chain->n_param;
    case NEAP_LIST_OUTPUTS:
    case NEAP_LIST_INPUTS: return chain->state != NEAP_CHAIN_EMPTY ? chain->n_layer : 0;
    case NEAP_LIST_CACHES:
      for (int i = 0; i < chain->n_layer; i++) n += chain->layer[i].cache.n;
      return n;
  }
  return 0;
}

static const char *list_text(neap_list list) {
  static const char *const name[] = {"params", "outputs", "inputs", "caches"};
  return (int)list >= 0 && (int)list < NEAP_COUNT(name) ? name[list] : "no list";
}

static neap_status check_index(const neap_chain *chain, neap_list list, int i, neap_error *error) {
  int n = neap_chain_n(chain, list);
  if (i >= 0 && i < n) return NEAP_OK;
  return neap_fail(error, NEAP_ARGUMENT, "chain: %s have %d entries, got position %d",
                   list_text(list), n, i);
}

static neap_status was_dropped(neap_list list, const char *what, neap_error *error) {
  return neap_fail(error, NEAP_RELEASED, "chain: the entry of \"%s\" in %s was dropped already",
                   what, list_text(list));
}

static neap_status read_param(const neap_chain *chain, const neap_chain_parameter *param,
                              neap_chain_item *out, neap_error *error) {
  *out = (neap_chain_item){
    .name = param->name, .layer = param->layer, .blob = param->is_attached ? NULL : param->name};
  if (param->is_attached && param->attached.storage == NULL)
    return was_dropped(NEAP_LIST_PARAMS, param->name, error);
  if (param->is_attached) {
    out->data = neap_tensor_retain(&param->attached);
    return NEAP_OK;
  }

  NEAP_TRY(neap_workspace_view(chain->ws, param->name, &out->data, NULL, error));
  out->diff_blob = param->grad;
  neap_type type;
  if (param->grad == NULL || !neap_workspace_type(chain->ws, param->grad, &type)) return NEAP_OK;

  /* The blob may be made and not written yet: then there is no gradient, which is no error. */
  neap_error none = {0};
  if (neap_workspace_view(chain->ws, param->grad, &out->diff, NULL, &none) != NEAP_OK)
    out->diff = (neap_tensor){0};
  return NEAP_OK;
}

/* Item i of all caches, one after the other: its cache and place there. */
static neap_cache *find_cached(const neap_chain *chain, int i, int *place) {
  int layer = 0;
  for (; i >= chain->layer[layer].cache.n; layer++) i -= chain->layer[layer].cache.n;
  *place = i;
  return &chain->layer[layer].cache;
}

static neap_status read_cached(const neap_chain *chain, int i, neap_chain_item *out,
                               neap_error *error) {
  int place;
  const neap_cache *cache = find_cached(chain, i, &place);
  const neap_cache_item *item = &cache->item[place];
  const char *label = item->label != NULL ? item->label : "";
  *out = (neap_chain_item){.name = label, .layer = cache->name};
  if (item->tensor.storage == NULL) return was_dropped(NEAP_LIST_CACHES, label, error);
  out->data = neap_tensor_retain(&item->tensor);
  return NEAP_OK;
}

neap_status neap_chain_item_at(const neap_chain *chain, neap_list list, int i, neap_chain_item *out,
                               neap_error *error) {
  *out = (neap_chain_item){0};
  NEAP_TRY(check_index(chain, list, i, error));
  if (list == NEAP_LIST_PARAMS) return read_param(chain, &chain->param[i], out, error);
  if (list == NEAP_LIST_CACHES) return read_cached(chain, i, out, error);

  /* An output or input: data, and its diff once a backward pass has been. */
  const neap_chain_layer *layer = &chain->layer[i];
  bool is_output = list == NEAP_LIST_OUTPUTS;
  const neap_chain_value *value = is_output ? &chain->output[i] : &chain->input[i];
  if (value->dropped) return was_dropped(list, layer->name, error);
  *out = (neap_chain_item){.name = layer->name,
                           .layer = layer->name,
                           .blob = is_output ? layer->output : layer->input,
                           .diff_blob = is_output ? layer->d_output : layer->d_input,
                           .data = neap_tensor_retain(&value->data)};
  if (value->diff.storage != NULL) out->diff = neap_tensor_retain(&value->diff);
  return NEAP_OK;
}

static const neap_chain_parameter *find_param(const neap_chain *chain, const char *name) {
  for (int p = 0; p < chain->n_param; p++)
    if (strcmp(chain->param[p].name, name) == 0) return &chain->param[p];
  return NULL;
}

neap_status neap_chain_find_param(const neap_chain *chain, const char *name, neap_chain_item *out,
                                  neap_error *error) {
  const neap_chain_parameter *param = find_param(chain, name);
  *out = (neap_chain_item){0};
  if (param != NULL) return read_param(chain, param, out, error);
  const char *best = NULL;
  int least = neap_text_reach(name);
  for (int p = 0; p < chain->n_param; p++) {
    int d = neap_text_distance(name, chain->param[p].name);
    if (d > least) continue;
    least = d - 1; /* from here on only a nearer name will do */
    best = chain->param[p].name;
  }
  if (best != NULL) neap_hint(error, "did you mean \"%s\"?", best);
  return neap_fail(error, NEAP_NAME, "chain: has no parameter \"%s\"", name);
}

void neap_chain_item_fini(neap_chain_item *item) {
  neap_tensor_fini(&item->data);
  neap_tensor_fini(&item->diff);
}

/* ---- changing -------------------------------------------------------------------------------- */

static neap_status drop_param(neap_chain_parameter *param, neap_error *error) {
  if (!param->is_attached)
    return neap_fail(error, NEAP_ARGUMENT,
                     "chain: parameter \"%s\" is layer %s's: only attached ones can be dropped",
                     param->name, param->layer);
  if (param->attached.storage == NULL) return was_dropped(NEAP_LIST_PARAMS, param->name, error);
  neap_tensor_fini(&param->attached);
  return NEAP_OK;
}

neap_status neap_chain_drop(neap_chain *chain, neap_list list, int i, neap_error *error) {
  NEAP_TRY(check_index(chain, list, i, error));
  if (list == NEAP_LIST_PARAMS) return drop_param(&chain->param[i], error);

  /* The reference goes; whoever holds another one still has the bytes. */
  if (list == NEAP_LIST_CACHES) {
    int place;
    neap_cache *cache = find_cached(chain, i, &place);
    NEAP_TRY(neap_cache_drop(cache, place, error));
  } else {
    neap_chain_value *value = list == NEAP_LIST_OUTPUTS ? &chain->output[i] : &chain->input[i];
    if (value->dropped) return was_dropped(list, chain->layer[i].name, error);
    neap_tensor_fini(&value->data);
    neap_tensor_fini(&value->diff);
    value->dropped = true;
  }
  forget_all(chain);
  return NEAP_OK;
}

neap_status neap_chain_attach(neap_chain *chain, const char *name, const neap_tensor *tensor,
                              neap_error *error) {
  if (name[0] == '\0')
    return neap_fail(error, NEAP_NAME, "chain: a parameter expects a name, got \"\"");
  if (find_param(chain, name) != NULL) {
    neap_hint(error, "names are of one parameter each");
    return neap_fail(error, NEAP_NAME, "chain: has a parameter \"%s\" already", name);
  }
  const char *own = neap_intern(name);
  if (own == NULL ||
      !neap_list_grow(&chain->param, &chain->cap_param, chain->n_param + 1, sizeof *chain->param))
    return no_memory(error);
  chain->param[chain->n_param++] = (neap_chain_parameter){
    .name = own, .layer = "", .attached = neap_tensor_retain(tensor), .is_attached = true};
  return NEAP_OK;
}
