/* memory.c: dry runs and counts by class, before anything is allocated, and a dry run as text. */
#include "api/api.h"

/* mem_param's defaults hold where the options do not say how to plan. */
static void default_to_caffe(neap_compile_options *compile) {
  static const neap_mem_param caffe;
  if (!compile->policy_given && compile->mem_param == NULL && !compile->dynamic)
    compile->mem_param = &caffe;
}

neap_status neap_net_dry_run(const neap_net *net, const neap_options *options, neap_dry_run **out,
                             neap_error *error) {
  neap_compile_options compile;
  neap_memory_plan *plan;
  *out = NULL;
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_C, __func__, &compile, error));
  /* A plan that nobody keeps: only its log is wanted. */
  default_to_caffe(&compile);
  NEAP_TRY(neap_api_plan_by(net, &compile, NULL, &plan, error));
  neap_status status = neap_memory_plan_dry_run(plan, net, out, error);
  neap_memory_plan_free(plan);
  return status;
}

neap_status neap_net_count(const neap_net *net, const neap_options *options, neap_counts *before,
                           neap_counts *after, neap_error *error) {
  neap_compile_options compile;
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_C, __func__, &compile, error));
  return neap_driver_count(net, &compile, NULL, before, after, error);
}

/* ---- the log as text ------------------------------------------------------------------------- */

static void print_totals(const neap_dry_run *log, neap_buffer *out) {
  char a[24], b[24], c[24], d[24];
  /* What the net would take with bytes for each blob, then what is planned. */
  neap_buffer_add(out, "dry run of \"%s\", %s, policy %s: raw %s (data %s, diff %s)", log->net,
                  log->train ? "train" : "test", log->policy,
                  neap_bytes_text((double)log->raw_bytes, a),
                  neap_bytes_text((double)log->raw_data_bytes, b),
                  neap_bytes_text((double)log->raw_diff_bytes, c));
  neap_buffer_add(out, ", planned %s (arena %s, scratch at most %s in it), saved %.1f %%\n",
                  neap_bytes_text((double)log->planned_bytes, a),
                  neap_bytes_text((double)log->arena_bytes, b),
                  neap_bytes_text((double)log->scratch_bytes_max, d), 100 * log->saved);
}

/* Steps count from 1, as in all that people read; 0 is before the net runs. */
static void print_row(const neap_dry_row *row, neap_buffer *out) {
  /* The blob, its bytes, where it lies and how long; then why, and with whom. */
  char bytes[24];
  neap_buffer_add(out, "  %-28s %s %10s  %-10s steps %d-%d, %s%s%s\n", row->blob, row->key,
                  neap_bytes_text((double)row->bytes, bytes), row->slot, row->first_step + 1,
                  row->last_step + 1, row->reason, row->partner != NULL ? " " : "",
                  row->partner != NULL ? row->partner : "");
}

/* A layer comes where its first blob does, with all of its blobs. Names are interned: equal names
 * are equal pointers. */
static void print_layers(const neap_dry_run *log, neap_buffer *out) {
  char raw[24], planned[24];
  for (int l = 0; l < log->n_layer; l++) {
    const neap_dry_layer *layer = &log->layer[l];
    neap_buffer_add(out, "layer %s: raw %s, in bytes of its own %s\n", layer->layer,
                    neap_bytes_text((double)layer->raw_bytes, raw),
                    neap_bytes_text((double)layer->planned_bytes, planned));
    /* All rows of the layer, whatever place they have in the log. */
    for (int r = 0; r < log->n_row; r++)
      if (log->row[r].layer == layer->layer) print_row(&log->row[r], out);
  }
}

static bool is_of_layer(const neap_dry_run *log, const neap_dry_row *row) {
  for (int l = 0; l < log->n_layer; l++)
    if (log->layer[l].layer == row->layer) return true;
  return false;
}

/* What no layer of the net owns: converted weights, masks, terms of gradients. */
static void print_besides(const neap_dry_run *log, neap_buffer *out) {
  bool any = false;
  for (int r = 0; r < log->n_row; r++) {
    if (is_of_layer(log, &log->row[r])) continue;
    /* The heading comes with the first of them. */
    if (!any) neap_buffer_add(out, "made by the library\n");
    any = true;
    print_row(&log->row[r], out);
  }
}

static void print_slots(const neap_dry_run *log, neap_buffer *out) {
  char bytes[24];
  for (int s = 0; s < log->n_slot; s++) {
    const neap_dry_slot *slot = &log->slot[s];
    neap_buffer_add(out, "slot %d at %lld, %s:", s + 1, (long long)slot->offset_bytes,
                    neap_bytes_text((double)slot->bytes, bytes));
    /* Who lies in it, by blob and key. */
    for (int i = 0; i < slot->rows.n; i++) {
      const neap_dry_row *row = &log->row[slot->rows.index[i]];
      neap_buffer_add(out, " %s.%s", row->blob, row->key);
    }
    neap_buffer_add(out, "\n");
  }
}

neap_status neap_dry_run_text(const neap_dry_run *log, char **out, neap_error *error) {
  neap_buffer text = {0};
  print_totals(log, &text);
  print_layers(log, &text);
  print_besides(log, &text);
  print_slots(log, &text);
  return neap_api_give_text(&text, out, error);
}
