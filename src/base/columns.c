/* columns.c: what neap.h says of each kind of row as data, and a field of any row as people are
 * shown it.
 *
 * INVARIANT: nothing else lists the columns of a row: who keeps or shows rows reads these.
 */
#include "base/base.h"

#include <math.h>
#include <string.h>

enum { /* as the lists of neap.h write them */
       STORE = NEAP_SHOWN_STORE,
       ZERO = NEAP_SHOWN_ZERO,
       PRINT = NEAP_SHOWN_PRINT,
       SOME = NEAP_SHOWN_SOME,
       UNLESS_0 = NEAP_SHOWN_UNLESS_0,
       RUN = NEAP_SHOWN_RUN,
       IN_LAYER = NEAP_SHOWN_IN_LAYER
};

/* A table for each kind, ended by a column without a name. */
#define COLUMN(name, type, unit, shown, doc) \
  {#name, unit, doc, NEAP_COLUMN_##type, shown, offsetof(ROW, name)},
#define ROW neap_op_row
static const neap_column op_columns[] = {NEAP_OP_MAP(COLUMN){0}};
#undef ROW
#define ROW neap_value_row
static const neap_column value_columns[] = {NEAP_VALUE_MAP(COLUMN){0}};
#undef ROW
#define ROW neap_kernel_row
static const neap_column kernel_columns[] = {NEAP_KERNEL_MAP(COLUMN){0}};
#undef ROW
#define ROW neap_region_row
static const neap_column region_columns[] = {NEAP_REGION_ROW_MAP(COLUMN){0}};
#undef ROW
#define ROW neap_bank_row
static const neap_column bank_columns[] = {NEAP_BANK_ROW_MAP(COLUMN){0}};
#undef ROW
#define ROW neap_rewrite_row
static const neap_column rewrite_columns[] = {NEAP_REWRITE_MAP(COLUMN){0}};
#undef ROW
#define ROW neap_figures
static const neap_column figures_columns[] = {NEAP_FIGURE_MAP(COLUMN){0}};
#undef ROW
#define ROW neap_plan_row
static const neap_column plan_columns[] = {NEAP_PLAN_MAP(COLUMN){0}};
#undef ROW
#define ROW neap_run_row
static const neap_column run_columns[] = {NEAP_RUN_MAP(COLUMN){0}};
#undef ROW
#define ROW neap_program_row
static const neap_column program_columns[] = {NEAP_PROGRAM_MAP(COLUMN){0}};
#undef ROW
#define ROW neap_run_op_row
static const neap_column run_op_columns[] = {NEAP_RUN_OP_MAP(COLUMN){0}};
#undef ROW
#define ROW neap_dry_run
static const neap_column dry_run_columns[] = {NEAP_DRY_RUN_MAP(COLUMN){0}};
#undef ROW
#define ROW neap_dry_row
static const neap_column dry_row_columns[] = {NEAP_DRY_ROW_MAP(COLUMN){0}};
#undef ROW
#define ROW neap_dry_layer
static const neap_column dry_layer_columns[] = {NEAP_DRY_LAYER_MAP(COLUMN){0}};
#undef ROW
#define ROW neap_dry_slot
static const neap_column dry_slot_columns[] = {NEAP_DRY_SLOT_MAP(COLUMN){0}};
#undef ROW
#define ROW neap_counts
static const neap_column counts_columns[] = {NEAP_COUNT_MAP(COLUMN){0}};
#undef ROW
#define ROW neap_blob_row
static const neap_column blob_columns[] = {NEAP_BLOB_MAP(COLUMN){0}};
#undef ROW
#define ROW neap_pool_figures
static const neap_column pool_columns[] = {NEAP_POOL_MAP(COLUMN){0}};
#undef ROW

static const struct kind {
  const char *name, *doc;
  const neap_column *column;
  int n;
} kinds[NEAP_N_ROW] = {
#define X(symbol, word, map, doc) {#word, doc, word##_columns, NEAP_COUNT(word##_columns) - 1},
  NEAP_ROW_MAP(X)
#undef X
};

const neap_column *neap_column_at(neap_row_kind kind, int i) {
  if ((unsigned)kind >= NEAP_N_ROW || i < 0 || i >= kinds[kind].n) return NULL;
  return &kinds[kind].column[i];
}

const char *neap_row_kind_name(neap_row_kind kind, const char **doc) {
  if ((unsigned)kind >= NEAP_N_ROW) return NULL;
  if (doc != NULL) *doc = kinds[kind].doc;
  return kinds[kind].name;
}

/* A field is read by the type that its column says. */
#define FIELD(type, column, row) \
  (*(const type *)(const void *)((const char *)(row) + (column)->offset))

neap_datum neap_datum_of(const neap_column *column, const void *row) {
  neap_datum cell = {.type = NEAP_DATUM_NONE};
  bool unless_0 = (column->shown & NEAP_SHOWN_UNLESS_0) != 0;

  /* Each type has its own way of saying that there is nothing. */
  switch (column->type) {
    case NEAP_COLUMN_NUMBER:
      cell.integer = FIELD(int64_t, column, row);
      if (cell.integer != NEAP_NO_NUMBER && !(unless_0 && cell.integer == 0))
        cell.type = NEAP_DATUM_INTEGER;
      break;
    case NEAP_COLUMN_INDEX:
      if (FIELD(int, column, row) != NEAP_NO_INDEX) cell.type = NEAP_DATUM_INTEGER;
      cell.integer = (int64_t)FIELD(int, column, row) + 1;
      break;
    case NEAP_COLUMN_REAL:
      cell.real = FIELD(double, column, row);
      if (!(unless_0 && cell.real == 0)) cell.type = NEAP_DATUM_REAL;
      break;
    case NEAP_COLUMN_BOOL:
      cell.type = NEAP_DATUM_BOOL;
      cell.integer = FIELD(bool, column, row);
      break;
    /* A pointer to a text, or none. */
    case NEAP_COLUMN_TEXT:
      cell.text = FIELD(char *const, column, row);
      if (cell.text != NULL && !(unless_0 && cell.text[0] == '\0')) cell.type = NEAP_DATUM_TEXT;
      break;
    /* The text itself stands in the row. */
    case NEAP_COLUMN_KEY:
      cell.text = (const char *)row + column->offset;
      if (cell.text[0] != '\0') cell.type = NEAP_DATUM_TEXT;
      break;
    case NEAP_COLUMN_NAMES:
      cell.type = NEAP_DATUM_NAMES;
      cell.n = FIELD(neap_names, column, row).n;
      cell.names = FIELD(neap_names, column, row).name;
      break;
    case NEAP_COLUMN_INDICES:
      cell.type = NEAP_DATUM_INDICES;
      cell.n = FIELD(neap_indices, column, row).n;
      cell.indices = FIELD(neap_indices, column, row).index;
      break;
    case NEAP_COLUMN_NUMBERS:
      cell.n = FIELD(neap_numbers, column, row).n;
      cell.numbers = FIELD(neap_numbers, column, row).number;
      if (cell.numbers != NULL) cell.type = NEAP_DATUM_NUMBERS;
      break;
  }
  return cell;
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void add_list(const neap_datum *cell, neap_buffer *out) {
  neap_buffer_add(out, "[");
  for (int i = 0; i < cell->n; i++) {
    if (i > 0) neap_buffer_add(out, ",");
    /* Names are quoted; places count from 1, as in all that people read. */
    if (cell->type == NEAP_DATUM_NAMES)
      neap_json_text(out, cell->names[i]);
    else if (cell->type == NEAP_DATUM_NUMBERS)
      neap_buffer_add(out, "%lld", (long long)cell->numbers[i]);
    else
      neap_buffer_add(out, "%d", cell->indices[i] + 1);
  }
  neap_buffer_add(out, "]");
}

static void add_cell(const neap_datum *cell, neap_buffer *out) {
  switch (cell->type) {
    case NEAP_DATUM_INTEGER: neap_buffer_add(out, "%lld", (long long)cell->integer); break;
    case NEAP_DATUM_REAL: /* JSON has no infinity and no NaN */
      if (isfinite(cell->real))
        neap_buffer_add_number(out, cell->real);
      else
        neap_buffer_add(out, "null");
      break;
    case NEAP_DATUM_BOOL: neap_buffer_add(out, cell->integer != 0 ? "true" : "false"); break;
    case NEAP_DATUM_TEXT: neap_json_text(out, cell->text); break;
    case NEAP_DATUM_NAMES:
    case NEAP_DATUM_INDICES:
    case NEAP_DATUM_NUMBERS: add_list(cell, out); break;
    case NEAP_DATUM_NONE: neap_buffer_add(out, "null"); break;
  }
}

void neap_row_print_json(neap_row_kind kind, const void *row, neap_buffer *out) {
  const neap_column *column;
  int n = 0;
  neap_buffer_add(out, "{");
  for (int i = 0; (column = neap_column_at(kind, i)) != NULL; i++) {
    neap_datum cell = neap_datum_of(column, row);
    /* What has no value is left out. */
    if (cell.type == NEAP_DATUM_NONE) continue;
    neap_buffer_add(out, n++ > 0 ? ",\"%s\":" : "\"%s\":", column->name);
    add_cell(&cell, out);
  }
  neap_buffer_add(out, "}");
}
