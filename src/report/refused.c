/* refused.c: what is alive where a plan needs most, by module: for whoever is told that it is too
 * much. */
#include "report/report.h"

#include <string.h>

/* `bytes` more of a module, whose line is that of its largest blob. `most` has what that has.
 * False:
 * memory is refused. */
typedef struct sums {
  neap_live_bytes *module;
  int64_t *most;
  int n, cap, cap_most;
} sums;

static bool add(sums *all, const char *name, const char *line, int64_t bytes) {
  if (name == NULL || bytes <= 0) return true;
  name = neap_intern(name);
  line = line != NULL ? neap_intern(line) : NULL;
  if (name == NULL) return false;
  int at = 0;
  while (at < all->n && all->module[at].name != name) at++;
  if (at == all->n) {
    if (!neap_list_grow(&all->module, &all->cap, all->n + 1, sizeof *all->module) ||
        !neap_list_grow(&all->most, &all->cap_most, all->n + 1, sizeof *all->most))
      return false;
    all->module[at] = (neap_live_bytes){.name = name};
    all->most[at] = 0;
    all->n++;
  }
  all->module[at].bytes += bytes;
  if (bytes > all->most[at]) {
    all->most[at] = bytes;
    all->module[at].line = line;
  }
  return true;
}

/* A layer that is made in no module stands for itself. */
static const char *module_of(const char *module, const char *layer) {
  return module != NULL ? module : layer;
}

/* The values that are alive at the peak: into the sums, and what is known of them into the record's
 * blobs. */
static bool add_values(const neap_plan *plan, const neap_graph *graph, int n, const int *value,
                       sums *all, neap_error *refused) {
  neap_rows *rows = NULL;
  bool ok = neap_report_rows(plan, graph, NEAP_ROW_VALUE, &rows, NULL) == NEAP_OK;
  for (int i = 0; ok && i < n; i++) {
    const void *at = NULL;
    ok = neap_rows_at(rows, value[i], &at, NULL) == NEAP_OK;
    if (!ok || at == NULL) continue;
    const neap_value_row *row = at;
    ok = add(all, module_of(row->module, row->layer), row->line, row->bytes);
    for (int b = 0; ok && b < refused->n_blob; b++) {
      neap_live_bytes *blob = &refused->blobs[b];
      if (row->blob == NULL || strcmp(blob->name, row->blob) != 0) continue;
      blob->module = row->module != NULL ? neap_intern(row->module) : NULL;
      blob->line = row->line != NULL ? neap_intern(row->line) : NULL;
    }
  }
  neap_rows_free(rows);
  return ok;
}

/* The scratch of the op at the peak is its module's. */
static bool add_scratch(const neap_plan *plan, const neap_graph *graph, sums *all) {
  neap_rows *rows = NULL;
  const void *at = NULL;
  bool ok = neap_report_rows(plan, graph, NEAP_ROW_OP, &rows, NULL) == NEAP_OK &&
            neap_rows_at(rows, plan->peak_step, &at, NULL) == NEAP_OK;
  if (ok && at != NULL) {
    const neap_op_row *row = at;
    ok = add(all, module_of(row->module, row->layer), row->line, row->scratch_bytes);
  }
  neap_rows_free(rows);
  return ok;
}

/* Where memory is refused the record has no modules: it stands as it is. */
void neap_report_refused(const neap_plan *plan, const neap_graph *graph, neap_error *refused) {
  sums all = {0};
  refused->n_module = 0;
  if (plan->n_node == 0) return;
  int *value = neap_alloc((size_t)plan->n_value * sizeof *value + 1);
  const int n =
    value == NULL ? -1 : neap_plan_live_at(plan, graph, -1, plan->peak_step, plan->n_value, value);
  const bool ok =
    n >= 0 && add_values(plan, graph, n, value, &all, refused) && add_scratch(plan, graph, &all);
  /* The largest first, as many as the record has room for. */
  while (ok && refused->n_module < NEAP_MOST_NAMED) {
    int best = -1;
    for (int i = 0; i < all.n; i++)
      if (all.module[i].bytes > 0 && (best < 0 || all.module[i].bytes > all.module[best].bytes))
        best = i;
    if (best < 0) break;
    refused->modules[refused->n_module++] = all.module[best];
    all.module[best].bytes = 0;
  }
  neap_free(all.module);
  neap_free(all.most);
  neap_free(value);
}
