/* places.c: see places.h: which row a place names, and the one gather.
 *
 * O(1) a place: its row is the sum of what its numbers and its position in the list give.
 */
#include "ops/places.h"

#include <inttypes.h>

/* ---- where places are ------------------------------------------------------------------------ */

neap_places neap_places_along(const neap_shape *indices, const neap_shape *table, int axis) {
  return (neap_places){.n_part = neap_shape_span(table, 0, axis),
                       .n_row = table->dim[axis],
                       .row_elems = neap_shape_span(table, axis + 1, table->n_dim),
                       .n_place = neap_shape_elems(indices),
                       .depth = 1,
                       .bound = {table->dim[axis]},
                       .step = {1},
                       .from_end = true,
                       .skip = -1};
}

/* Joins the box's last dimension with the one before it where both are steps of one walk. */
static void add_dim(neap_places *p, int64_t dim, int64_t stride) {
  /* One walk is one division less for each place. */
  int last = p->n_dim - 1;
  if (last >= 0 && p->stride[last] == stride * dim) {
    p->dim[last] *= dim;
    p->stride[last] = stride;
    return;
  }
  p->dim[p->n_dim] = dim;
  p->stride[p->n_dim++] = stride;
}

/* A row is an element. Along the axis the number says where it is, else the place. */
neap_places neap_places_elements(const neap_shape *indices, const neap_shape *table, int axis) {
  int64_t stride[NEAP_MAX_DIM];
  neap_shape_strides(table, stride);
  neap_places p = {.n_part = 1,
                   .n_row = neap_shape_elems(table),
                   .row_elems = 1,
                   .n_place = neap_shape_elems(indices),
                   .depth = 1,
                   .bound = {table->dim[axis]},
                   .step = {stride[axis]},
                   .from_end = true,
                   .skip = -1};
  /* Along the axis the position says nothing: stride 0. */
  for (int d = 0; d < table->n_dim; d++) add_dim(&p, indices->dim[d], d == axis ? 0 : stride[d]);
  return p;
}

/* Batches follow one another in the rows; within one, the numbers of a place are its first
 * dimensions'. */
neap_places neap_places_nd(const neap_shape *indices, const neap_shape *table, int batch_dims) {
  int last = indices->n_dim - 1, depth = (int)indices->dim[last], end = batch_dims + depth;
  int64_t n_batch = neap_shape_span(table, 0, batch_dims),
          n_row = neap_shape_span(table, batch_dims, end);
  neap_places p = {.n_part = 1,
                   .n_row = n_batch * n_row,
                   .row_elems = neap_shape_span(table, end, table->n_dim),
                   .n_place = neap_shape_span(indices, 0, last),
                   .depth = depth,
                   .n_dim = 2,
                   .dim = {n_batch, neap_shape_span(indices, batch_dims, last)},
                   .stride = {n_row, 0},
                   .from_end = true,
                   .skip = -1};
  /* Each number steps over the rows behind its dimension. */
  for (int k = 0; k < depth; k++) {
    p.bound[k] = table->dim[batch_dims + k];
    p.step[k] = neap_shape_span(table, batch_dims + k + 1, end);
  }
  return p;
}

/* ---- which row ------------------------------------------------------------------------------- */

/* Says what was wrong, in the words of who counts there. */
static void report(const neap_places *p, const neap_call *call, int64_t at, int64_t number,
                   int64_t bound) {
  neap_call_fault(call,
                  "%s has %" PRId64 " at element %" PRId64 ", out of range for %" PRId64
                  " rows (they count from 0%s)",
                  p->name, number, at + 1, bound, p->from_end ? ", or from -1 at the end" : "");
}

int64_t neap_place_row(const neap_places *p, int64_t place, const neap_call *call) {
  int64_t row = 0, rest = place;
  for (int k = 0; k < p->depth; k++) {
    int64_t at = place * p->depth + k, bound = p->bound[k],
            number = neap_element_get_i64(p->indices->type.dtype, p->indices->data, at);
    /* Below 0 counts from the end, where that is allowed and not too far. */
    int64_t i = p->from_end && number < 0 && number >= -bound ? number + bound : number;
    if (i < 0 || i >= bound) {
      if (call != NULL) report(p, call, at, number, bound);
      return -1;
    }
    row += i * p->step[k];
  }

  /* The place's position in the box, from the dimension that goes fastest. */
  for (int d = p->n_dim - 1; d > 0; d--) {
    row += rest % p->dim[d] * p->stride[d];
    rest /= p->dim[d];
  }
  if (p->n_dim > 0) row += rest * p->stride[0];
  NEAP_ASSERT(row >= 0 && row < p->n_row, "a place names one of %lld rows, not %lld",
              (long long)p->n_row, (long long)row);
  return row == p->skip ? -1 : row;
}

/* Counts the places of each row, so that each knows where its own begin; then puts them there, in
 * their order, which moves that beginning to its end. */
void neap_sort_by_row(int64_t n_place, int64_t n_row,
                      int64_t (*row_of)(const void *context, int64_t place), const void *context,
                      int64_t *end, int64_t *order) {
  neap_clear_bytes(end, (size_t)n_row * sizeof *end);
  for (int64_t i = 0; i < n_place; i++) {
    int64_t row = row_of(context, i);
    if (row >= 0) end[row]++;
  }
  /* From the counts the beginnings: end[v] is for now where row v's places begin. */
  int64_t sum = 0;
  for (int64_t v = 0; v < n_row; v++) {
    int64_t n = end[v];
    end[v] = sum;
    sum += n;
  }
  for (int64_t i = 0; i < n_place; i++) {
    int64_t row = row_of(context, i);
    if (row >= 0) order[end[row]++] = i;
  }
}

/* ---- the gather ------------------------------------------------------------------------------ */

typedef struct gather {
  const neap_call *call;
  const neap_places *places;
  const char *from;
  char *to;
  size_t row_bytes;
} gather;

/* Rows [begin, end) of the output, those of part after part. */
static void copy_rows(void *context, int64_t begin, int64_t end) {
  const gather *g = context;
  const neap_places *p = g->places;
  for (int64_t i = begin; i < end; i++) {
    int64_t part = i / p->n_place, row = neap_place_row(p, i - part * p->n_place, g->call);
    char *to = g->to + (size_t)i * g->row_bytes;
    if (row < 0) { /* it names none: there is nothing to copy from */
      neap_clear_bytes(to, g->row_bytes);
      continue;
    }
    /* Single elements by their width: a copy of as many bytes as a variable says is a call. */
    const char *from = g->from + (size_t)(part * p->n_row + row) * g->row_bytes;
    if (g->row_bytes == 4)
      memcpy(to, from, 4);
    else if (g->row_bytes == 8)
      memcpy(to, from, 8);
    else
      neap_copy_bytes(to, from, g->row_bytes);
  }
}

void neap_gather(const neap_call *call, const neap_places *places, const neap_operand *table,
                 const neap_operand *out) {
  gather g = {call, places, table->data, out->data,
              (size_t)places->row_elems * neap_dtype_bytes(table->type.dtype)};
  /* Rows of nothing, of which there may be any number, are named once. */
  int64_t n_part = places->row_elems > 0 ? places->n_part : NEAP_MIN(places->n_part, 1);
  neap_parallel_for(n_part * places->n_place,
                    NEAP_MAX(NEAP_GRAIN / NEAP_MAX(places->row_elems, 1), 1), call->n_thread,
                    copy_rows, &g);
}

/* ---- gradient -------------------------------------------------------------------------------- */

/* x, the indices and dy are seen with the dimensions in which elements were taken: one, where x was
 * flattened or is a scalar; with the dimension of one that was dropped. */
neap_value_id neap_places_gradient(neap_grad *g, neap_value_id indices, neap_value_id dy,
                                   int axis) {
  neap_type x = neap_grad_type(g, g->in[0]), taken = neap_grad_type(g, dy);
  neap_shape seen = x.shape, part = taken.shape;
  if (axis == -1 || x.shape.n_dim == 0) {
    axis = 0;
    seen = NEAP_SHAPE(neap_shape_elems(&x.shape));
    part = NEAP_SHAPE(neap_shape_elems(&taken.shape));
  } else if (taken.shape.n_dim < x.shape.n_dim) {
    part = x.shape;
    part.dim[axis] = 1;
  }
  /* What was taken from x by these places is added up there; places that no one took stay zero. */
  neap_value_id zeros = neap_grad_emit1(g, "Constant", 0, NULL, NULL,
                                        (neap_set[]){NEAP_SET_FLOAT("value", 0),
                                                     NEAP_SET_INT("dtype", x.dtype),
                                                     NEAP_SET_INTS("shape", seen.n_dim, seen.dim),
                                                     {0}});
  neap_value_id in[] = {zeros, neap_grad_view(g, indices, part), neap_grad_view(g, dy, part)};
  neap_value_id dx = neap_grad_emit1(
    g, "ScatterElements", 3, in, NULL,
    (neap_set[]){NEAP_SET_INT("axis", axis), NEAP_SET_INT("reduction", NEAP_SCATTER_ADD), {0}});
  return neap_grad_view(g, dx, x.shape);
}
