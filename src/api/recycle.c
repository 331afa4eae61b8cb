/* recycle.c: memonger's functions over whole nets; those over plain ranges are plan's own
 * (assign.c). */
#include "api/api.h"
#include "memonger/memonger.h"

neap_status neap_net_recycle(const neap_net *net, const neap_recycle_options *options,
                             neap_net **out, neap_recycle_figures *figures, neap_error *error) {
  return neap_recycle_net(net, options, NULL, out, figures, NULL, error);
}

neap_status neap_net_release_when_used(const neap_net *net, int n_keep, const char *const *keep,
                                       neap_net **out, int *n_freed, neap_error *error) {
  return neap_recycle_release(net, n_keep, keep, out, NULL, n_freed, error);
}

neap_status neap_net_estimate_memory(int n_net, const neap_net *const *net, const char *device,
                                     neap_memory_estimate *out, neap_error *error) {
  return neap_recycle_estimate(n_net, net, NULL, device, out, error);
}

neap_status neap_net_same(const neap_net *a, const neap_net *b, bool in_place, bool *same,
                          char **where, neap_error *error) {
  neap_buffer text = {0};
  if (where != NULL) *where = NULL;
  neap_recycle_sameness asked = {.graph = true, .in_place = in_place};
  neap_status status = neap_recycle_same(a, b, asked, same, &text, error);
  if (status == NEAP_OK && !*same && where != NULL) return neap_api_give_text(&text, where, error);
  neap_buffer_fini(&text);
  return status;
}

neap_status neap_net_live_ranges(const neap_net *net, neap_live_range **out, int *n,
                                 neap_error *error) {
  neap_net *written = NULL;
  neap_recycle recycle;
  NEAP_TRY(neap_recycle_write_out(net, NULL, &written, error));
  neap_status status =
    neap_recycle_open(&recycle, written != NULL ? written : net, NULL, NULL, error);
  if (status == NEAP_OK) {
    neap_live_range *list = neap_alloc(((size_t)recycle.n_blob + 1) * sizeof *list);
    if (list == NULL)
      status = neap_fail_memory(error, ((size_t)recycle.n_blob + 1) * sizeof *list, "live ranges");
    for (int b = 0; b < recycle.n_blob && list != NULL; b++) {
      const neap_recycle_blob *blob = &recycle.blob[b];
      list[b] = (neap_live_range){.name = blob->name,
                                  .fixed = blob->fixed,
                                  .device = blob->device != NULL ? blob->device : "",
                                  .dtype = blob->type.dtype,
                                  .bytes = (int64_t)blob->bytes,
                                  .first = blob->first,
                                  .last = blob->last,
                                  .class_id = blob->class_id};
    }
    if (list != NULL) *out = list, *n = recycle.n_blob;
    neap_recycle_close(&recycle);
  }
  neap_net_free(written);
  return status;
}
