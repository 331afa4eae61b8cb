/* csv.c: tables in text files, through libcsv. */
#include "io/io_int.h"

#include <csv.h>

#include <stdlib.h>
#include <string.h>

/* What is built while libcsv calls back.
 * INVARIANT: `failed` once memory was refused; nothing is added after that. */
typedef struct table {
  neap_io_cells cells;
  int cap_end, cap_row, cap_line;
  size_t cap_text;
  int64_t line; /* that is being read, from 1 */
  bool failed;
} table;

/* The cell's bytes and a 0; libcsv gives NULL for none. */
static void add_cell(void *text, size_t n, void *context) {
  table *t = context;
  neap_io_cells *c = &t->cells;
  /* Room for twice as much, so that each byte is copied a few times at most. */
  size_t need = c->text.n + n + 1;
  /* Lists count in an int: a table beyond that is refused, not cut. */
  t->failed = t->failed || c->n_cell > INT32_MAX / 2;
  if (t->failed) return;
  if (need > t->cap_text) {
    char *wider = neap_realloc(c->text.data, 2 * need);
    t->failed = wider == NULL;
    if (t->failed) return;
    c->text.data = wider;
    t->cap_text = 2 * need;
  }
  t->failed = !neap_list_grow(&c->end, &t->cap_end, (int)c->n_cell + 1, sizeof *c->end);
  if (t->failed) return;
  neap_copy_bytes(c->text.data + c->text.n, text, n);
  c->text.data[need - 1] = '\0';
  c->end[c->n_cell++] = need - 1;
  c->text.n = need;
}

static void end_row(int terminator, void *context) {
  table *t = context;
  neap_io_cells *c = &t->cells;
  (void)terminator;
  t->failed = t->failed ||
              !neap_list_grow(&c->row_end, &t->cap_row, (int)c->n_row + 1, sizeof *c->row_end) ||
              !neap_list_grow(&c->line, &t->cap_line, (int)c->n_row + 1, sizeof *c->line);
  if (t->failed) return;
  c->row_end[c->n_row] = c->n_cell;
  c->line[c->n_row++] = t->line;
}

void neap_io_cells_fini(neap_io_cells *cells) {
  neap_free(cells->text.data);
  neap_free(cells->end);
  neap_free(cells->row_end);
  neap_free(cells->line);
  *cells = (neap_io_cells){0};
}

/* One line after the other, so that a row and a fault have the line where they are. */
static neap_status parse(struct csv_parser *parser, const char *path, const neap_io_bytes *bytes,
                         table *t, neap_error *error) {
  for (size_t at = 0; at < bytes->n; t->line++) {
    const char *end = memchr(bytes->data + at, '\n', bytes->n - at);
    size_t n = end == NULL ? bytes->n - at : (size_t)(end - bytes->data) + 1 - at;
    if (csv_parse(parser, bytes->data + at, n, add_cell, end_row, t) != n) {
      if (csv_error(parser) == CSV_EPARSE)
        return neap_fail(
          error, NEAP_DATA,
          "%s: line %lld: a quote within a cell; a cell with quotes stands in quotes, "
          "and those within it are doubled",
          path, (long long)t->line);
      return neap_fail_memory(error, n, "a table");
    }
    at += n;
  }
  /* The last line may end with the file. */
  t->line -= bytes->n > 0 && bytes->data[bytes->n - 1] != '\n';
  if (csv_fini(parser, add_cell, end_row, t) != 0)
    return csv_error(parser) == CSV_EPARSE
             ? neap_fail(error, NEAP_DATA, "%s: line %lld: the file ends within quotes", path,
                         (long long)t->line)
             : neap_fail_memory(error, bytes->n, "a table");
  return t->failed ? neap_fail_memory(error, bytes->n, "a table") : NEAP_OK;
}

neap_status neap_io_read_csv(const char *path, char separator, neap_io_cells *out,
                             neap_error *error) {
  neap_io_bytes bytes = {0};
  if (strchr("\"\r\n", separator) != NULL)
    return neap_fail(error, NEAP_ARGUMENT, "%s: cells are not separated by quotes or line ends",
                     path);
  NEAP_TRY(neap_io_read_gz_bytes(path, &bytes, error));
  table t = {.line = 1};
  struct csv_parser parser;
  /* Strict: a quote in the middle of a cell, or none at its end, is an error and no part of the
   * text. */
  if (csv_init(&parser, CSV_STRICT | CSV_STRICT_FINI) != 0) {
    neap_free(bytes.data);
    return neap_fail_memory(error, sizeof parser, "a table");
  }
  csv_set_delim(&parser, (unsigned char)separator);
  csv_set_realloc_func(&parser, neap_realloc);
  csv_set_free_func(&parser, neap_free);
  neap_status status = parse(&parser, path, &bytes, &t, error);
  csv_free(&parser);
  neap_free(bytes.data);
  if (status == NEAP_OK)
    *out = t.cells;
  else
    neap_io_cells_fini(&t.cells);
  return status;
}
