/* recycle.c: memonger's functions over whole nets; those over plain ranges are pack's own. */
#include "api/api.h"
#include "memonger/memonger.h"

/* The options of the plan that lives are read from, in memonger's words. */
static neap_status graph_options(const neap_options *options, const char *who,
                                 neap_compile_options *out, neap_error *error) {
  return neap_options_compile(options, NEAP_FACE_C, who, out, error);
}

static const neap_options *plan_of(const neap_recycle_options *options) {
  return options != NULL ? options->plan : NULL;
}

neap_status neap_net_recycle(const neap_net *net, const neap_recycle_options *options,
                             neap_net **out, neap_recycle_figures *figures, neap_error *error) {
  neap_compile_options compile;
  NEAP_TRY(graph_options(plan_of(options), __func__, &compile, error));
  return neap_recycle_net(net, options, &compile.graph, out, figures, NULL, error);
}

/* The slots and the lists of their blobs as one block. */
static neap_recycle_slot *flatten(const neap_recycle_slots *slots, neap_error *error) {
  /* First all slots, then their lists, each behind the one before. */
  size_t bytes = (size_t)(slots->n + 1) * sizeof(neap_recycle_slot);
  for (int s = 0; s < slots->n; s++) bytes += (size_t)slots->slot[s].n_blob * sizeof(char *);
  neap_recycle_slot *flat = neap_alloc(bytes);
  if (flat == NULL) {
    neap_fail_memory(error, bytes, "names that blobs share");
    return NULL;
  }

  /* The names stay where they are: they are interned. */
  const char **blob = (const char **)(void *)(flat + slots->n + 1);
  for (int s = 0; s < slots->n; s++) {
    flat[s] = slots->slot[s];
    neap_copy_bytes(blob, flat[s].blob, (size_t)flat[s].n_blob * sizeof *blob);
    flat[s].blob = blob;
    blob += flat[s].n_blob;
  }
  return flat;
}

neap_status neap_net_recycle_slots(const neap_net *net, const neap_recycle_options *options,
                                   neap_net **out, neap_recycle_figures *figures,
                                   neap_recycle_slot **slot, int *n, neap_error *error) {
  neap_compile_options compile;
  neap_recycle_slots slots;
  *slot = NULL;
  *n = 0;
  NEAP_TRY(graph_options(plan_of(options), __func__, &compile, error));
  neap_net *made = NULL;
  NEAP_TRY(neap_recycle_net(net, options, &compile.graph, &made, figures, &slots, error));

  /* The net is given only with its slots. */
  *slot = flatten(&slots, error);
  if (*slot != NULL) {
    *n = slots.n;
    *out = made;
  } else {
    neap_net_free(made);
  }
  neap_recycle_slots_fini(&slots);
  return *slot != NULL ? NEAP_OK : NEAP_MEMORY;
}

neap_status neap_net_write_out(const neap_net *net, const neap_options *options, neap_net **out,
                               neap_error *error) {
  neap_compile_options compile;
  *out = NULL;
  NEAP_TRY(graph_options(options, __func__, &compile, error));
  return neap_recycle_write_out(net, &compile.graph, out, error);
}

neap_status neap_net_reorder(const neap_net *net, const int *position, neap_net **out,
                             neap_error *error) {
  return neap_recycle_reorder(net, position, out, error);
}

neap_status neap_net_release_when_used(const neap_net *net, int n_keep, const char *const *keep,
                                       neap_net **out, const char ***freed, int *n_freed,
                                       neap_error *error) {
  return neap_recycle_release(net, n_keep, keep, out, freed, n_freed, error);
}

neap_status neap_net_estimate_memory(int n_net, const neap_net *const *net, const char *device,
                                     const neap_options *options, neap_memory_estimate *out,
                                     neap_error *error) {
  neap_compile_options compile;
  NEAP_TRY(graph_options(options, __func__, &compile, error));
  return neap_recycle_estimate(n_net, net, &compile.graph, device, out, error);
}

neap_status neap_net_same(const neap_net *a, const neap_net *b, unsigned asked, bool *same,
                          char **where, neap_error *error) {
  neap_buffer text = {0};
  if (where != NULL) *where = NULL;
  const neap_recycle_sameness as = {.graph = (asked & NEAP_SAME_GRAPH) != 0,
                                    .in_place = (asked & NEAP_SAME_IN_PLACE) != 0};
  neap_status status = neap_recycle_same(a, b, as, same, &text, error);
  if (status == NEAP_OK && !*same && where != NULL) return neap_api_give_text(&text, where, error);
  neap_buffer_fini(&text);
  return status;
}

/* ---- live ranges ----------------------------------------------------------------------------- */

struct neap_lives {
  neap_recycle r;
  neap_net *net; /* what r looks at, retained */
};

neap_status neap_lives_open(neap_net *net, const neap_recycle_options *options, neap_lives **out,
                            neap_error *error) {
  neap_compile_options compile;
  *out = NULL;
  NEAP_TRY(graph_options(plan_of(options), __func__, &compile, error));
  neap_lives *lives = neap_alloc_zeroed(sizeof *lives);
  if (lives == NULL) return neap_fail_memory(error, sizeof *lives, "live ranges");
  neap_status status = neap_recycle_open(&lives->r, net, &compile.graph, options, error);
  if (status != NEAP_OK) {
    neap_free(lives);
    return status;
  }

  /* What was read refers to the net: it must live as long. */
  lives->net = neap_net_retain(net);
  *out = lives;
  return NEAP_OK;
}

void neap_lives_free(neap_lives *lives) {
  if (lives == NULL) return;
  neap_recycle_close(&lives->r);
  neap_net_free(lives->net);
  neap_free(lives);
}

int neap_lives_n(const neap_lives *lives) { return lives->r.n_blob; }

static neap_live_range range_of(const neap_recycle_blob *blob) {
  return (neap_live_range){.name = blob->name,
                           .fixed = blob->fixed,
                           .device = blob->device != NULL ? blob->device : "",
                           .gradient_of = blob->gradient_of,
                           .role = blob->role,
                           .dtype = blob->type.dtype,
                           .shape = blob->type.shape,
                           .shares = blob->shares,
                           .bytes = (int64_t)blob->bytes,
                           .first = blob->first,
                           .last = blob->last,
                           .class_id = blob->class_id};
}

neap_live_range neap_lives_at(const neap_lives *lives, int i) {
  return range_of(&lives->r.blob[i]);
}

bool neap_lives_conflict(const neap_lives *lives, int i, int j) {
  const neap_recycle *r = &lives->r;
  /* A row of bits for each blob; two classes never share. */
  const uint64_t word = r->conflict[(size_t)i * (size_t)r->n_word + (size_t)(j >> 6)];
  return (word >> (j & 63) & 1u) != 0 || r->blob[i].class_id != r->blob[j].class_id;
}

neap_status neap_net_live_ranges(const neap_net *net, neap_live_range **out, int *n,
                                 neap_error *error) {
  neap_net *written = NULL;
  neap_recycle recycle;

  /* A net with a backward pass or bodies is read as it would be written out; NULL: it stands as it
   * is. */
  NEAP_TRY(neap_recycle_write_out(net, NULL, &written, error));
  neap_status status =
    neap_recycle_open(&recycle, written != NULL ? written : net, NULL, NULL, error);
  if (status == NEAP_OK) {
    size_t bytes = ((size_t)recycle.n_blob + 1) * sizeof(neap_live_range);
    neap_live_range *list = neap_alloc(bytes);
    if (list == NULL) {
      status = neap_fail_memory(error, bytes, "live ranges");
    } else {
      for (int b = 0; b < recycle.n_blob; b++) list[b] = range_of(&recycle.blob[b]);
      *out = list;
      *n = recycle.n_blob;
    }
    neap_recycle_close(&recycle);
  }
  neap_net_free(written);
  return status;
}
