/* refused.c: what is alive where a plan needs most, by module: for whoever is told that it is too
 * much. */
#include "report/report.h"

#include <string.h>

/* Bytes by module, in the order in which modules are met. */
typedef struct sums {
  neap_live_bytes *module;
  int64_t *most; /* by module: the bytes of its largest blob, whose line it has */
  int n, cap, cap_most;
} sums;

/* `bytes` more of the module `name`, made at `line`. False: memory is refused. */
static bool add(sums *all, const char *name, const char *line, int64_t bytes) {
  if (name == NULL || bytes <= 0) return true;
  name = neap_intern(name);
  line = line != NULL ? neap_intern(line) : NULL;
  if (name == NULL) return false;

  /* Modules are few: they are looked for one by one. Names are interned. */
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

  /* The line that is told of a module is where its largest blob is made: what to look at first. */
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

/* Where the record tells of the row's blob: who made it. */
static void tell_blob(const neap_value_row *row, neap_error *refused) {
  if (row->blob == NULL) return;
  for (int b = 0; b < refused->n_blob; b++) {
    neap_live_bytes *blob = &refused->blobs[b];
    if (strcmp(blob->name, row->blob) != 0) continue;
    blob->module = row->module != NULL ? neap_intern(row->module) : NULL;
    blob->line = row->line != NULL ? neap_intern(row->line) : NULL;
  }
}

/* The values that are alive at the peak: into the sums, and what is known of them into the record's
 * blobs. */
static bool add_rows(neap_rows *rows, int n, const int *value, sums *all, neap_error *refused) {
  for (int i = 0; i < n; i++) {
    const void *at = NULL;
    if (neap_rows_at(rows, value[i], &at, NULL) != NEAP_OK) return false;
    if (at == NULL) continue;
    const neap_value_row *row = at;
    if (!add(all, module_of(row->module, row->layer), row->line, row->bytes)) return false;
    tell_blob(row, refused);
  }
  return true;
}

static bool add_values(const neap_plan *plan, const neap_graph *graph, int n, const int *value,
                       sums *all, neap_error *refused) {
  neap_rows *rows = NULL;
  const bool ok = neap_report_rows(plan, graph, NEAP_ROW_VALUE, &rows, NULL) == NEAP_OK &&
                  add_rows(rows, n, value, all, refused);
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

/* The module of the most bytes; -1: all are told. */
static int find_largest(const sums *all) {
  int best = -1;
  for (int i = 0; i < all->n; i++) {
    if (all->module[i].bytes == 0) continue;
    if (best < 0 || all->module[i].bytes > all->module[best].bytes) best = i;
  }
  return best;
}

/* Into the record, the largest first, as many as it has room for. A module that is told has no
 * bytes left in the sums. */
static void tell_modules(sums *all, neap_error *refused) {
  while (refused->n_module < NEAP_MOST_NAMED) {
    const int best = find_largest(all);
    if (best < 0) return;
    refused->modules[refused->n_module++] = all->module[best];
    all->module[best].bytes = 0;
  }
}

/* Where memory is refused the record has no modules: it stands as it is. */
void neap_report_refused(const neap_plan *plan, const neap_graph *graph, neap_error *refused) {
  sums all = {0};
  refused->n_module = 0;
  if (plan->n_node == 0) return;

  /* All values that are alive at the peak, however many they are. */
  int *value = neap_alloc((size_t)plan->n_value * sizeof *value + 1);
  const int n =
    value == NULL ? -1 : neap_plan_live_at(plan, graph, -1, plan->peak_step, plan->n_value, value);
  const bool ok =
    n >= 0 && add_values(plan, graph, n, value, &all, refused) && add_scratch(plan, graph, &all);
  if (ok) tell_modules(&all, refused);

  /* Whether or not something failed: the record has what could be told. */
  neap_free(all.module);
  neap_free(all.most);
  neap_free(value);
}
