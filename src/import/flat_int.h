/* flat_int.h: a file in the format of FlatBuffers, read in its place; private to this room.
 *
 * A file is tables; a table's fields are found through its vtable, and lead by offsets to texts,
 * vectors and other tables (flatbuffers.dev, "FlatBuffer Internals"). An offset may be any number.
 *
 * INVARIANT: nothing outside of data[0 .. n_bytes) is read. Once something is wrong `status` says
 * so, and from then on every table is empty, every vector has no elements, every number is what is
 * given for a missing one: a reader looks at `status` when it has read a part, not at each step.
 * INVARIANT: vectors that have been opened are in all a few times as large as the file (`left`):
 * a small file can't name one large vector over and over.
 */
#ifndef NEAP_IMPORT_FLAT_INT_H
#define NEAP_IMPORT_FLAT_INT_H

#include "import/import.h"

typedef struct neap_flat {
  const char *path; /* borrowed */
  const uint8_t *data;
  int64_t n_bytes, left;
  neap_status status;
  neap_error *error;
  char place[240]; /* for messages: "subgraph 1, operator 7 (CONV_2D): "; "" where nowhere */
} neap_flat;

/* at 0: there is none, and no field of it is */
typedef struct neap_flat_table {
  int64_t at, vtable;
  int n_field, n_bytes;
} neap_flat_table;

typedef struct neap_flat_vector {
  int64_t at; /* of the first element */
  int n;
} neap_flat_vector;

/* The first thing that is wrong is what is told. */
void neap_flat_fail(neap_flat *flat, const char *format, ...) NEAP_PRINTF(2, 3);
/* `n` bytes that are to be made of the file's; false when that is more than it could ask for. */
bool neap_flat_spend(neap_flat *flat, int64_t n);
/* The table that the file begins with, which says `identifier`, 4 letters. */
neap_flat_table neap_flat_root(neap_flat *flat, const char *identifier, const char *what);

/* Field `k` of a table, a number of so many bytes, signed. */
int64_t neap_flat_integer(neap_flat *flat, const neap_flat_table *table, int k, int bytes,
                          int64_t missing);
double neap_flat_float(neap_flat *flat, const neap_flat_table *table, int k, double missing);
/* "" where it is missing; its bytes are the file's. */
const char *neap_flat_text(neap_flat *flat, const neap_flat_table *table, int k);
neap_flat_table neap_flat_child(neap_flat *flat, const neap_flat_table *table, int k);
neap_flat_vector neap_flat_list(neap_flat *flat, const neap_flat_table *table, int k,
                                int elem_bytes);

/* Element i of a vector: of integers of so many bytes, of floats, of tables. */
int64_t neap_flat_integer_at(const neap_flat *flat, neap_flat_vector list, int i, int bytes);
float neap_flat_float_at(const neap_flat *flat, neap_flat_vector list, int i);
neap_flat_table neap_flat_table_at(neap_flat *flat, neap_flat_vector list, int i);

#endif
