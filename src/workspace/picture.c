/* picture.c: a workspace as rows, as a table and as SVG: every blob by name, with its bytes and its
 * life in the program made or run last.
 *
 * Rows are public structs in one block of memory, their dimensions and texts behind them: nothing
 * in them points into the workspace, which may change or end. INVARIANT: a name is in one row;
 * counted bytes of own rows add up to what the own blobs hold.
 */
#include "workspace/workspace_int.h"
#include "report/report.h"

#include <stdio.h>
#include <stdlib.h>

enum { BAR_MOST = 20, STEPS_TEXT = 32, BAR_TEXT = 64 };

const char *neap_blob_kind_name(neap_blob_kind kind) {
  static const char *const name[] = {"empty", "tensor", "string", "transient", "scope"};
  return (unsigned)kind < NEAP_COUNT(name) ? name[kind] : "?";
}

/* The attachment that was made or has begun a run last; NULL: none. */
static const neap_attachment *latest(const neap_workspace *ws) {
  const neap_attachment *found = NULL;
  for (int a = 0; a < ws->n_attachment; a++)
    if (found == NULL || ws->attachment[a].last_use > found->last_use) found = &ws->attachment[a];
  return found;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* What a visit has seen; the texts are copied when the number of their bytes is known. */
typedef struct listing {
  neap_blob_info *info;
  int n, cap, n_dim;
  size_t name_bytes;
  bool failed;
} listing;

static void list_blob(void *context, const neap_blob_info *info) {
  listing *l = context;
  if (!neap_list_grow(&l->info, &l->cap, l->n + 1, sizeof *l->info)) l->failed = true;
  if (l->failed) return;
  l->info[l->n++] = *info;
  l->name_bytes += strlen(info->name) + 1;
  if (info->type.dtype != NEAP_DTYPE_NONE) l->n_dim += info->type.shape.n_dim;
}

/* Lives are added later, and what is said of them. */
static neap_blob_row row_of(const neap_blob_info *info, const char *name, int64_t *dim) {
  bool has_type = info->type.dtype != NEAP_DTYPE_NONE;
  neap_blob_row row = {.name = name,
                       .kind = neap_blob_kind_name(info->kind),
                       .role = neap_role_name(info->role),
                       .region = has_type ? neap_region_name(info->region) : "",
                       .dtype = has_type ? neap_dtype_name(info->type.dtype) : "",
                       .bytes = (int64_t)info->bytes,
                       .counted_bytes = (int64_t)info->counted_bytes,
                       .bank = info->bank != NULL ? info->bank : "",
                       .borrowed = info->borrowed,
                       .shares = info->shares,
                       .first_step = NEAP_NO_INDEX,
                       .last_step = NEAP_NO_INDEX,
                       .steps = "",
                       .bar = ""};

  /* Strings, scopes and empty blobs have no shape: their list of dimensions is NULL. */
  if (!has_type) return row;
  row.shape = (neap_numbers){info->type.shape.n_dim, dim};
  memcpy(dim, info->type.shape.dim, (size_t)row.shape.n * sizeof *dim);
  return row;
}

/* Of pointers to rows. */
static int compare_names(const void *a, const void *b) {
  return strcmp((*(neap_blob_row *const *)a)->name, (*(neap_blob_row *const *)b)->name);
}

static int compare_rows(const void *a, const void *b) {
  const neap_blob_row *x = a, *y = b;
  int region = strcmp(x->region, y->region);
  if (region != 0) return region;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return strcmp(x->name, y->name);
}

void neap_workspace_sort_blobs(neap_blob_row *row, int n) {
  /* A list of none is NULL. */
  if (n > 0) qsort(row, (size_t)n, sizeof *row, compare_rows);
}

/* A blob lives in a program from the first step of its first version to the last step of its last.
 * False: memory is refused. */
static bool add_lives(neap_blob_row *row, int n, const neap_graph *graph, const neap_plan *plan) {
  neap_blob_row **by_name = neap_alloc((size_t)n * sizeof *by_name);
  if (by_name == NULL) return false;
  for (int i = 0; i < n; i++) by_name[i] = &row[i];
  qsort(by_name, (size_t)n, sizeof *by_name, compare_names);

  /* Every value says how long its name lives; names of other programs are not among the rows. */
  for (int v = 0; v < graph->n_value; v++) {
    const neap_place *place = &plan->place[v];
    const neap_blob_row named = {.name = graph->value[v].name}, *wanted = &named;
    neap_blob_row **found = named.name != NULL
                              ? bsearch(&wanted, by_name, (size_t)n, sizeof *by_name, compare_names)
                              : NULL;
    if (found == NULL) continue;
    neap_blob_row *r = *found;
    r->first_step =
      r->first_step == NEAP_NO_INDEX ? place->first : NEAP_MIN(r->first_step, place->first);
    r->last_step =
      r->last_step == NEAP_NO_INDEX ? place->last : NEAP_MAX(r->last_step, place->last);
  }
  neap_free(by_name);
  return true;
}

/* "2-5", steps from 1; "before-3"; "unread"; "" for a blob that is not in the program. */
static void print_steps(const neap_blob_row *row, char text[STEPS_TEXT]) {
  if (row->last_step < 0)
    snprintf(text, STEPS_TEXT, "%s", row->last_step == NEAP_NO_INDEX ? "" : "unread");
  else if (row->first_step < 0)
    snprintf(text, STEPS_TEXT, "before-%d", row->last_step + 1);
  else
    snprintf(text, STEPS_TEXT, "%d-%d", row->first_step + 1, row->last_step + 1);
}

static void print_bar(const neap_blob_row *row, int64_t most_bytes, char text[BAR_TEXT]) {
  static const char block[] = "█";
  int64_t n = most_bytes > 0 ? (BAR_MOST * row->bytes + most_bytes - 1) / most_bytes : 0;
  text[0] = '\0';
  for (int i = 0; i < n && i < BAR_MOST; i++)
    memcpy(text + (size_t)i * (sizeof block - 1), block, sizeof block);
}

/* The columns that people are shown, when all rows are known. */
static void add_words(neap_blob_row *row, int n, char *text) {
  int64_t most = 0;
  for (int i = 0; i < n; i++) most = NEAP_MAX(most, row[i].bytes);
  for (int i = 0; i < n; i++, text += STEPS_TEXT + BAR_TEXT) {
    print_steps(&row[i], text);
    print_bar(&row[i], most, text + STEPS_TEXT);
    row[i].steps = text;
    row[i].bar = text + STEPS_TEXT;
  }
}

neap_status neap_workspace_blobs(const neap_workspace *ws, neap_blob_row **out, int *n,
                                 neap_error *error) {
  listing l = {0};
  neap_workspace_each(ws, list_blob, &l);

  /* Rows, their dimensions and texts are one allocation, which the caller frees. */
  size_t dim_bytes = ((size_t)l.n_dim + 1) * sizeof(int64_t), word_bytes = STEPS_TEXT + BAR_TEXT,
         all_bytes = (size_t)l.n * (sizeof **out + word_bytes) + dim_bytes + l.name_bytes;
  neap_blob_row *row = l.failed ? NULL : neap_alloc(all_bytes);
  if (row == NULL) goto refused;

  /* Rows come first, as they need the widest alignment; then numbers, then texts. */
  int64_t *dim = (int64_t *)(void *)(row + l.n);
  char *text = (char *)dim + dim_bytes;
  for (int i = 0; i < l.n; i++) {
    size_t bytes = strlen(l.info[i].name) + 1;
    memcpy(text, l.info[i].name, bytes);
    row[i] = row_of(&l.info[i], text, dim);
    text += bytes;
    dim += row[i].shape.n;
  }

  /* Steps are those of the program that was made or run last. */
  const neap_attachment *a = latest(ws);
  if (a != NULL &&
      !add_lives(row, l.n, neap_program_graph(a->program), neap_program_plan(a->program)))
    goto refused;
  add_words(row, l.n, text);
  neap_free(l.info);
  *out = row;
  *n = l.n;
  return NEAP_OK;
refused:
  neap_free(l.info);
  neap_free(row);
  return neap_fail_memory(error, all_bytes, "the list of a workspace's blobs");
}

/* ---- the table ------------------------------------------------------------------------------- */

/* "(4,8)", or what the blob is when it is no tensor. */
static const char *shape_of(const neap_blob_row *row, char text[NEAP_SHAPE_TEXT]) {
  if (row->shape.number == NULL) return row->kind;
  neap_shape shape = neap_shape_of(row->shape.n, row->shape.number);
  return neap_shape_text(&shape, text);
}

/* Characters, where printf's widths count bytes. */
static int width_of(const char *name) {
  int n = 0;
  for (; *name != '\0'; name++) n += ((unsigned char)*name & 0xC0u) != 0x80u;
  return n;
}

void neap_workspace_print(const neap_blob_row *row, int n, neap_buffer *out) {
  int name_width = 5, shape_width = 5;
  int64_t total = 0;

  /* Columns as wide as their longest entry. */
  char shape[NEAP_SHAPE_TEXT], bytes[24];
  for (int i = 0; i < n; i++) {
    name_width = NEAP_MAX(name_width, width_of(row[i].name));
    shape_width = NEAP_MAX(shape_width, (int)strlen(shape_of(&row[i], shape)));
    if (!row[i].borrowed) total += row[i].counted_bytes;
  }

  /* Names are padded by hand, since they may hold more bytes than characters. */
  neap_buffer_add(out, "%-*s  %-10s  %-5s  %-*s  %10s  %s\n", name_width, "name", "region", "dtype",
                  shape_width, "shape", "bytes", "steps");
  for (int i = 0; i < n; i++)
    neap_buffer_add(out, "%s%*s  %-10s  %-5s  %-*s  %10s  %-12s %s\n", row[i].name,
                    name_width - width_of(row[i].name), "", row[i].region, row[i].dtype,
                    shape_width, shape_of(&row[i], shape),
                    neap_bytes_text((double)row[i].bytes, bytes), row[i].steps, row[i].bar);
  neap_buffer_add(out, "%-*s  %-10s  %-5s  %-*s  %10s\n", name_width, "total", "", "", shape_width,
                  "", neap_bytes_text((double)total, bytes));
}

/* ---- SVG ------------------------------------------------------------------------------------- */

/* Own blobs that the drawn program does not know. */
static int find_others(const neap_blob_row *row, int n, neap_report_piece *other) {
  int n_other = 0;
  for (int i = 0; i < n; i++)
    if (!row[i].borrowed && row[i].counted_bytes > 0 && row[i].last_step == NEAP_NO_INDEX)
      other[n_other++] = (neap_report_piece){row[i].name, (size_t)row[i].counted_bytes};
  return n_other;
}

neap_status neap_workspace_draw(const neap_workspace *ws, neap_buffer *out, neap_error *error) {
  const neap_attachment *a = latest(ws);
  if (a == NULL) {
    neap_fail(error, NEAP_ARGUMENT,
              "a workspace is drawn with the program made or run last, and it has none");
    neap_hint(error, "run a net in it first");
    return NEAP_ARGUMENT;
  }

  /* The plan's picture, and beside it own blobs that the program does not know. */
  neap_blob_row *row = NULL;
  int n = 0;
  NEAP_TRY(neap_workspace_blobs(ws, &row, &n, error));
  neap_report_piece *other = neap_alloc((size_t)n * sizeof *other);
  if (other == NULL)
    out->failed = true;
  else
    neap_report_svg(neap_program_plan(a->program), neap_program_graph(a->program), NULL,
                    find_others(row, n, other), other, out);
  neap_free(other);
  neap_free(row);
  return out->failed ? neap_fail_memory(error, out->n, "a picture") : NEAP_OK;
}
