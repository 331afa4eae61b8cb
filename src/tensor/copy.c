/* copy.c: neap_tensor_copy: from any view to any view of the same shape, with cast and
 * broadcasting.
 *
 * The walk is a list of dimensions, outermost first, with a stride in bytes on either side.
 * Dimensions of one element are left out, the target's smallest stride comes last, and neighbours
 * that lie back to back on both sides are one. Then most copies are a few long rows. A
 * transposition, where the two sides run along different dimensions, goes by narrow blocks, so that
 * each cache line is fetched once.
 *
 * INVARIANT: while the walk runs, target and source do not overlap; every target element is written
 * exactly once.
 */
#include "tensor/tensor_int.h"

/* A block's source is one cache line a column: 16 of them stay in a cache of few ways even at
 * strides of a power of 2, and fill a line of the target with f32. */
enum { CHUNK = 512, TILE = 16 };

/* A copy under way. Strides are in bytes, since the two sides may have elements of different width;
 * a source stride of 0 repeats. */
typedef struct walk {
  neap_dtype to_dtype, from_dtype;
  size_t to_bytes, from_bytes; /* of one element */
  char *to;
  const char *from;
  int n_dim; /* at least 1 */
  int64_t dim[NEAP_MAX_DIM], to_stride[NEAP_MAX_DIM], from_stride[NEAP_MAX_DIM];
} walk;

/* n elements of constant width, so that the compiler turns each memcpy into a load and a store. */
#define MOVE(width)                                                                            \
  static void move_##width(char *restrict to, int64_t to_stride, const char *restrict from,    \
                           int64_t from_stride, int64_t n) {                                   \
    for (int64_t i = 0; i < n; i++) memcpy(to + i * to_stride, from + i * from_stride, width); \
  }
MOVE(1)
MOVE(2)
MOVE(4)
MOVE(8)

/* n elements of `width` bytes (1, 2, 4 or 8), strides in bytes; no overlap. */
static void move(char *to, int64_t to_stride, const char *from, int64_t from_stride, int64_t n,
                 size_t width) {
  /* Back to back on both sides: one long copy. */
  if (to_stride == (int64_t)width && from_stride == (int64_t)width) {
    neap_copy_bytes(to, from, (size_t)n * width);
    return;
  }
  switch (width) {
    case 1: move_1(to, to_stride, from, from_stride, n); break;
    case 2: move_2(to, to_stride, from, from_stride, n); break;
    case 4: move_4(to, to_stride, from, from_stride, n); break;
    default: move_8(to, to_stride, from, from_stride, n); break;
  }
}

/* n elements along the last dimension. A cast wants dense operands: what is not is gathered or
 * scattered by chunks. */
static void copy_row(const walk *w, char *to, const char *from, int64_t n) {
  int64_t to_stride = w->to_stride[w->n_dim - 1], from_stride = w->from_stride[w->n_dim - 1];
  /* No cast: only strides. */
  if (w->to_dtype == w->from_dtype) {
    move(to, to_stride, from, from_stride, n, w->to_bytes);
    return;
  }
  bool to_dense = to_stride == (int64_t)w->to_bytes,
       from_dense = from_stride == (int64_t)w->from_bytes;
  if (to_dense && from_dense) {
    neap_cast(w->to_dtype, to, w->from_dtype, from, n);
    return;
  }
  _Alignas(16) char gathered[CHUNK * 8], cast[CHUNK * 8];
  for (int64_t i = 0; i < n; i += CHUNK) {
    int64_t part = NEAP_MIN(n - i, (int64_t)CHUNK);
    const char *source = from + i * from_stride;
    char *target = to + i * to_stride;
    /* Gathered first, cast then, scattered last: what is dense already is used where it lies. */
    if (!from_dense)
      move(gathered, (int64_t)w->from_bytes, source, from_stride, part, w->from_bytes);
    neap_cast(w->to_dtype, to_dense ? target : cast, w->from_dtype, from_dense ? source : gathered,
              part);
    if (!to_dense) move(target, to_stride, cast, (int64_t)w->to_bytes, part, w->to_bytes);
  }
}

/* Moves both pointers to the index-th position of the dimensions [0, n_dim), counted in row-major
 * order. */
static void seek(const walk *w, int n_dim, int64_t index, char **to, const char **from) {
  for (int i = n_dim - 1; i >= 0; i--) {
    int64_t at = index % w->dim[i];
    index /= w->dim[i];
    *to += at * w->to_stride[i];
    *from += at * w->from_stride[i];
  }
}

/* Elements [begin, end) in the walk's order. */
static void copy_range(void *context, int64_t begin, int64_t end) {
  const walk *w = context;
  int last = w->n_dim - 1;
  while (begin < end) {
    char *to = w->to;
    const char *from = w->from;
    /* A row, or what is left of one, from where the range begins. */
    seek(w, w->n_dim, begin, &to, &from);
    int64_t n = NEAP_MIN(w->dim[last] - begin % w->dim[last], end - begin);
    copy_row(w, to, from, n);
    begin += n;
  }
}

/* Blocks in a plane of the last two dimensions. */
static int64_t n_block(const walk *w) { return (w->dim[w->n_dim - 1] + TILE - 1) / TILE; }

/* Blocks [begin, end): TILE columns of the last plane each, row by row. Both sides' cache lines are
 * then used up while they are in the first cache, and rows are long enough that a call for each
 * costs little. */
static void copy_blocks(void *context, int64_t begin, int64_t end) {
  const walk *w = context;
  int a = w->n_dim - 1, b = w->n_dim - 2;
  for (int64_t block = begin; block < end; block++) {
    char *to = w->to;
    const char *from = w->from;
    /* The plane that the block is in, and its first column there. */
    seek(w, b, block / n_block(w), &to, &from);
    int64_t first = block % n_block(w) * TILE, n = NEAP_MIN(w->dim[a] - first, (int64_t)TILE);
    to += first * w->to_stride[a];
    from += first * w->from_stride[a];
    for (int64_t i = 0; i < w->dim[b]; i++)
      copy_row(w, to + i * w->to_stride[b], from + i * w->from_stride[b], n);
  }
}

static int64_t magnitude(int64_t x) { return x < 0 ? -x : x; }

/* Moves dimension `from` to position `to` >= from; those between go one forward. */
static void move_dim(walk *w, int from, int to) {
  int64_t dim = w->dim[from], to_stride = w->to_stride[from], from_stride = w->from_stride[from];
  for (int i = from; i < to; i++) {
    w->dim[i] = w->dim[i + 1];
    w->to_stride[i] = w->to_stride[i + 1];
    w->from_stride[i] = w->from_stride[i + 1];
  }
  w->dim[to] = dim;
  w->to_stride[to] = to_stride;
  w->from_stride[to] = from_stride;
}

/* The walk over both tensors, which have one shape and at least one element, as the file head
 * describes it. */
static walk make_walk(const neap_tensor *to, const neap_tensor *from) {
  walk w = {.to_dtype = to->dtype,
            .from_dtype = from->dtype,
            .to = neap_tensor_data(to),
            .from = neap_tensor_data(from)};
  w.to_bytes = neap_dtype_bytes(to->dtype);
  w.from_bytes = neap_dtype_bytes(from->dtype);
  /* Dimensions of one element say nothing of the order. */
  for (int i = 0; i < to->shape.n_dim; i++) {
    if (to->shape.dim[i] == 1) continue;
    w.dim[w.n_dim] = to->shape.dim[i];
    w.to_stride[w.n_dim] = to->stride[i] * (int64_t)w.to_bytes;
    w.from_stride[w.n_dim] = from->stride[i] * (int64_t)w.from_bytes;
    w.n_dim++;
  }
  /* Largest target stride first, so that the target is written from front to back; by insertion,
   * since there are few. */
  for (int i = 1; i < w.n_dim; i++)
    for (int j = i; j > 0 && magnitude(w.to_stride[j - 1]) < magnitude(w.to_stride[j]); j--)
      move_dim(&w, j - 1, j);
  /* Neighbours are joined where a step of the outer is exactly the inner dimension, on both
   * sides. */
  int n = 0; /* dimensions kept so far */
  for (int i = 0; i < w.n_dim; i++) {
    bool joins = n > 0 && w.to_stride[n - 1] == w.to_stride[i] * w.dim[i] &&
                 w.from_stride[n - 1] == w.from_stride[i] * w.dim[i];
    if (!joins) n++;
    w.dim[n - 1] = joins ? w.dim[n - 1] * w.dim[i] : w.dim[i];
    w.to_stride[n - 1] = w.to_stride[i];
    w.from_stride[n - 1] = w.from_stride[i];
  }
  w.n_dim = n;
  /* A scalar, or dimensions of 1 alone: one row of one element. */
  if (n == 0) {
    w.n_dim = 1;
    w.dim[0] = 1;
    w.to_stride[0] = (int64_t)w.to_bytes;
    w.from_stride[0] = (int64_t)w.from_bytes;
  }
  return w;
}

/* If the source runs along another dimension than the last, that one comes next to the last; or
 * last, when it is the longer one and the last is too short for a row. */
static bool make_transposed(walk *w) {
  /* The source's smallest stride; strides of 0 repeat one element and are no direction to run
   * along. */
  int a = w->n_dim - 1, b = a;
  for (int i = 0; i < w->n_dim; i++)
    if (w->from_stride[i] != 0 && magnitude(w->from_stride[i]) < magnitude(w->from_stride[b]))
      b = i;
  if (b == a) return false;
  /* A row is to be long: if the last dimension is not, the source's own becomes the last. */
  bool swap = w->dim[a] < TILE && w->dim[b] > w->dim[a];
  move_dim(w, b, swap ? a : a - 1);
  return true;
}

/* Splits the walk over the threads: rows by elements, so that one long row is split too; planes by
 * blocks. */
static void run_walk(walk *w) {
  int64_t elems = 1;
  bool transposed = make_transposed(w);
  for (int i = 0; i < w->n_dim; i++) elems *= w->dim[i];
  if (!transposed) {
    neap_parallel_for(elems, NEAP_GRAIN, neap_threads(), copy_range, w);
    return;
  }
  int64_t columns = elems / w->dim[w->n_dim - 1] / w->dim[w->n_dim - 2] * n_block(w),
          rows = w->dim[w->n_dim - 2];
  neap_parallel_for(columns, NEAP_MAX(NEAP_GRAIN / (TILE * rows), 1), neap_threads(), copy_blocks,
                    w);
}

/* First and past-the-last address that the view touches; t is not empty. */
static void extent(const neap_tensor *t, uintptr_t *low, uintptr_t *high) {
  int64_t below = 0, above = 0, width = (int64_t)neap_dtype_bytes(t->dtype);
  /* A negative stride reaches down from the first element, a positive one up. */
  for (int i = 0; i < t->shape.n_dim; i++) {
    int64_t reach = (t->shape.dim[i] - 1) * t->stride[i] * width;
    if (reach < 0)
      below += reach;
    else
      above += reach;
  }
  uintptr_t base = (uintptr_t)neap_tensor_data(t);
  *low = base + (uintptr_t)below;
  *high = base + (uintptr_t)(above + width);
}

/* By extent: views that interleave without sharing an element count as overlapping, which costs a
 * copy, not bits. */
static bool overlap(const neap_tensor *a, const neap_tensor *b) {
  uintptr_t low_a, high_a, low_b, high_b;
  extent(a, &low_a, &high_a);
  extent(b, &low_b, &high_b);
  return low_a < high_b && low_b < high_a;
}

/* Whether each element of `to` may be written, and is one element. */
static neap_status check_target(const neap_tensor *to, neap_error *error) {
  if (to->storage == NULL || to->dtype == NEAP_DTYPE_NONE)
    return neap_fail(error, NEAP_ARGUMENT, "copy expects a tensor to write to, got none");
  if (neap_storage_is_read_only(to->storage)) {
    neap_fail(error, NEAP_ARGUMENT, "copy cannot write to this %s tensor: it is mapped read-only",
              neap_dtype_name(to->dtype));
    neap_hint(error, "map the file \"c\" (copy on write), or clone the tensor");
    return NEAP_ARGUMENT;
  }
  for (int i = 0; i < to->shape.n_dim; i++)
    if (to->stride[i] == 0 && to->shape.dim[i] > 1 && neap_tensor_elems(to) > 0)
      return neap_fail(error, NEAP_SHAPE,
                       "copy cannot write to a broadcast view: dimension %d (from 0) repeats one "
                       "element %lld times",
                       i, (long long)to->shape.dim[i]);
  return NEAP_OK;
}

/* Every element of the target is written once: as many positions as elements, and no dimension that
 * repeats. */
static void check_walk(const walk *w, const neap_tensor *to) {
  int64_t elems = 1;
  for (int i = 0; i < w->n_dim; i++) elems *= w->dim[i];
  NEAP_ASSERT(elems == neap_tensor_elems(to), "the walk has %lld positions for %lld elements",
              (long long)elems, (long long)neap_tensor_elems(to));
  for (int i = 0; i < w->n_dim; i++)
    NEAP_ASSERT(w->dim[i] == 1 || w->to_stride[i] != 0, "dimension %d of the target repeats", i);
}

/* Copies `from`, of to's shape already. */
static neap_status copy_same_shape(const neap_tensor *to, const neap_tensor *from,
                                   neap_error *error) {
  if (neap_tensor_elems(to) == 0) return NEAP_OK;
  walk w;
  if (!overlap(to, from)) {
    w = make_walk(to, from);
    if (NEAP_DEBUG) check_walk(&w, to);
    run_walk(&w);
    return NEAP_OK;
  }
  /* Through a second copy: simple, and rare enough that its bytes do not matter. */
  neap_tensor apart;
  NEAP_TRY(neap_tensor_new(&apart, from->dtype, &from->shape, error));
  w = make_walk(&apart, from);
  run_walk(&w);
  w = make_walk(to, &apart);
  run_walk(&w);
  neap_tensor_fini(&apart);
  return NEAP_OK;
}

/* Everything that can fail is checked before a byte is written; only overlap needs memory, taken
 * first as well. */
neap_status neap_tensor_copy(const neap_tensor *to, const neap_tensor *from, neap_error *error) {
  NEAP_TRY(check_target(to, error));
  if (from->storage == NULL || from->dtype == NEAP_DTYPE_NONE)
    return neap_fail(error, NEAP_ARGUMENT, "copy expects a tensor to read, got none");
  neap_tensor wide;
  NEAP_TRY(neap_tensor_expand(from, &to->shape, &wide, error));
  neap_status status = copy_same_shape(to, &wide, error);
  if (status == NEAP_OK) neap_storage_touch(to->storage);
  neap_tensor_fini(&wide);
  return status;
}

/* *out is set only on success. The result is dense whatever t's strides are. */
neap_status neap_tensor_clone(const neap_tensor *t, neap_dtype dtype, neap_tensor *out,
                              neap_error *error) {
  neap_tensor fresh;
  NEAP_TRY(neap_tensor_new(&fresh, dtype == NEAP_DTYPE_NONE ? t->dtype : dtype, &t->shape, error));
  neap_status status = neap_tensor_copy(&fresh, t, error);
  if (status == NEAP_OK)
    *out = fresh;
  else
    neap_tensor_fini(&fresh);
  return status;
}
