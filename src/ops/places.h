/* places.h: what ops that move elements by number share: Gather, Scatter and their kin, Embedding.
 *
 * They have a table of rows and a list of places, each of which names a row by the numbers in
 * `indices`. A gather copies that row to the place; a scatter combines what lies at the places with
 * the rows that they name. What a row is, and how many numbers name one, is all that differs:
 *
 *   along     a position of one dimension; the same for all that is before it (parts), and with all
 *             that is behind it
 *   elements  one element; a number stands for its position along the axis, and where the number
 *             stands for all others
 *   nd        all behind the first dimensions, of which there is a number each
 *
 * INVARIANT: indices are checked where they are read, and nowhere else: no row out of the table
 * comes out of here. One out of range is a fault.
 */
#ifndef NEAP_OPS_PLACES_H
#define NEAP_OPS_PLACES_H

#include "ops/op.h"

#define NEAP_INDEX_DTYPES (NEAP_BIT(I32) | NEAP_BIT(I64) | NEAP_BIT(U8))

typedef struct neap_places {
  int64_t n_part;           /* the table is as many times n_row rows, named by the same places */
  int64_t n_row, row_elems; /* rows of a part, elements of each */
  int64_t n_place;          /* of a part */
  /* Numbers of a place: number k is below bound[k] and goes step[k] rows on. */
  int depth;
  int64_t bound[NEAP_MAX_DIM], step[NEAP_MAX_DIM];
  /* Where a place begins to count: places are a box of these dimensions, whose steps are rows. */
  int n_dim;
  int64_t dim[NEAP_MAX_DIM], stride[NEAP_MAX_DIM];
  bool from_end; /* negative numbers count from the end */
  int64_t skip;  /* a row that no place may name, silently; -1: none */
  /* filled in for a call */
  const neap_operand *indices;
  const char *name; /* of the operand */
} neap_places;

/* For checked types; negative numbers count from the end. */
neap_places neap_places_along(const neap_shape *indices, const neap_shape *table, int axis);
neap_places neap_places_elements(const neap_shape *indices, const neap_shape *table, int axis);
neap_places neap_places_nd(const neap_shape *indices, const neap_shape *table, int batch_dims);

/* The row of its part that a place names; -1 where it is none. `call` gets the fault; NULL: none is
 * said. */
int64_t neap_place_row(const neap_places *places, int64_t place, const neap_call *call);

/* The places of each row, in their order: row v has order[end[v - 1]] to order[end[v]], row 0 those
 * from 0 on; a place of row -1 is in none. `end` (n_row), `order` (n_place). row_of is asked twice.
 */
void neap_sort_by_row(int64_t n_place, int64_t n_row,
                      int64_t (*row_of)(const void *context, int64_t place), const void *context,
                      int64_t *end, int64_t *order);

/* out = the rows of `table` that the places name; zeros where that is none. Parts of `out` are
 * n_place rows. */
void neap_gather(const neap_call *call, const neap_places *places, const neap_operand *table,
                 const neap_operand *out);

/* ORDER SCATTER: as the choices of the attribute `reduction`. */
typedef enum neap_scatter_how {
  NEAP_SCATTER_NONE, /* the last place of a row is what is there */
  NEAP_SCATTER_ADD,
  NEAP_SCATTER_MUL,
  NEAP_SCATTER_MIN,
  NEAP_SCATTER_MAX,
  NEAP_SCATTER_MEAN /* no choice of the attribute: the sum by how many there are */
} neap_scatter_how;

/* Scratch of a scatter. */
size_t neap_scatter_bytes(const neap_places *places);
/* out = `table` (NULL: zeros), each row combined with the rows of `updates` whose places name it,
 * in their order. Sums are made in runs (math/row.h). `out` may lie over the table. `quiet`: no
 * fault is said. Bits do not depend on threads: each row is one thread's. */
void neap_scatter(const neap_call *call, const neap_places *places, neap_scatter_how how,
                  const neap_operand *table, const neap_operand *updates, const neap_operand *out,
                  bool quiet);
/* What a scatter does when its places are sorted, as by neap_sort_by_row: row v of `out` is that of
 * the table combined with the rows order[..] of `updates`. Without a table a greatest is that of
 * the rows; of none it is 0. */
void neap_combine(const neap_call *call, const neap_places *places, neap_scatter_how how,
                  const int64_t *end, const int64_t *order, const neap_operand *table,
                  const neap_operand *updates, const neap_operand *out);

/* For `grad` of an op that took elements of input 0, by `indices` along `axis` (-1: of all of them,
 * flattened): emits what arrives, `dy`, added up at the places it came from. */
neap_value_id neap_places_gradient(neap_grad *grad, neap_value_id indices, neap_value_id dy,
                                   int axis);

#endif
