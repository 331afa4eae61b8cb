/* batch.c: the reader's thread and its two sets of buffers.
 *
 * INVARIANT: set s is the thread's while full[s] is false and the caller's while it is true; the
 * one lock guards the flags alone. The thread ends when `stop` is set or all batches are made.
 */
#include "io/io.h"

#include <pthread.h>
#include <string.h>

struct neap_batch_reader {
  int n_field;
  neap_batch_field *field;
  neap_tensor *buffer[2]; /* n_field each, for a whole batch */
  int64_t n_batch, n_index, *index;
  int64_t n_taken, n_total; /* batches */
  int64_t rows[2];
  bool full[2], stop, has_thread;
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t change;
};

/* Elements of one row of a field's batch. */
static int64_t row_elems(const neap_batch_field *f) {
  return f->window > 0 ? f->window : neap_shape_span(&f->source.shape, 1, f->source.shape.n_dim);
}

/* data[i] = data[i] * scale + shift, n elements in place. f32 has a loop of its own, in single
 * precision; others go by double. */
static void scale_elements(neap_dtype dtype, void *data, int64_t n, double scale, double shift) {
  if (dtype == NEAP_DTYPE_F32) {
    float *x = data;
    for (int64_t i = 0; i < n; i++) x[i] = x[i] * (float)scale + (float)shift;
    return;
  }
  for (int64_t i = 0; i < n; i++)
    neap_element_set(dtype, data, i, neap_element_get(dtype, data, i) * scale + shift);
}

/* The field's rows for index[first] to index[first + rows - 1], one after another in the buffer.
 * Each is one stretch of the source, so reading is one cast a row; scaling then passes over the
 * whole batch at once. */
static void fill_field(const neap_batch_reader *r, const neap_batch_field *f, neap_tensor *buffer,
                       int64_t first, int64_t rows) {
  int64_t n = row_elems(f), stride = f->window > 0 ? 1 : n;
  size_t from_bytes = neap_dtype_bytes(f->source.dtype), to_bytes = neap_dtype_bytes(f->dtype);
  char *to = neap_tensor_data(buffer);
  const char *from = neap_tensor_data(&f->source);
  /* Windows begin at any element, rows at the beginning of one. */
  for (int64_t i = 0; i < rows; i++) {
    int64_t start = r->index[first + i] * stride + f->offset;
    neap_cast(f->dtype, to + (size_t)(i * n) * to_bytes, f->source.dtype,
              from + (size_t)start * from_bytes, n);
  }
  if (f->scale != 1.0 || f->shift != 0.0)
    scale_elements(f->dtype, to, rows * n, f->scale, f->shift);
  neap_storage_touch(buffer->storage);
}

/* The thread: batch b goes to set b & 1 once the caller has given that back. The lock is not held
 * while a set is filled. */
static void *read_ahead(void *context) {
  neap_batch_reader *r = context;
  for (int64_t b = 0; b < r->n_total; b++) {
    int s = (int)(b & 1);
    /* The set is the caller's until it is given back. */
    pthread_mutex_lock(&r->lock);
    while (r->full[s] && !r->stop) pthread_cond_wait(&r->change, &r->lock);
    bool stop = r->stop;
    pthread_mutex_unlock(&r->lock);
    if (stop) break;
    /* Filled without the lock: nobody else touches the set. */
    int64_t first = b * r->n_batch, rows = NEAP_MIN(r->n_batch, r->n_index - first);
    for (int f = 0; f < r->n_field; f++) fill_field(r, &r->field[f], &r->buffer[s][f], first, rows);
    /* From here on it is the caller's. */
    pthread_mutex_lock(&r->lock);
    NEAP_ASSERT(!r->full[s], "set %d is the thread's while it is being filled", s);
    r->rows[s] = rows;
    r->full[s] = true;
    pthread_cond_broadcast(&r->change);
    pthread_mutex_unlock(&r->lock);
  }
  return NULL;
}

/* SHAPE or ARGUMENT error for a field that makes no sense, DATA for the first index whose row or
 * window leaves the source: the thread then reads without looking. `number` counts from 1. */
static neap_status check_field(const neap_batch_reader *r, const neap_batch_field *f, int number,
                               neap_error *error) {
  if (f->source.shape.n_dim < 1 || !neap_tensor_is_dense(&f->source) ||
      (f->window > 0 && f->source.shape.n_dim != 1))
    return neap_fail(
      error, NEAP_SHAPE,
      "field %d: the source must be dense, with one dimension where windows are read", number);
  /* The last place where a row, or a window, may begin. */
  int64_t room = f->source.shape.dim[0], span = f->window > 0 ? f->window : 1;
  if (f->window < 0 || f->offset < 0 || (f->window == 0 && f->offset != 0))
    return neap_fail(
      error, NEAP_ARGUMENT,
      "field %d: window and offset expect 0 or more, and offset a window, got %lld and %lld",
      number, (long long)f->window, (long long)f->offset);
  /* Compared by subtraction: indices may be anything, and a sum could overflow. */
  int64_t most = span > room || f->offset > room - span ? -1 : room - span - f->offset;
  for (int64_t i = 0; i < r->n_index; i++) {
    if (r->index[i] < 0 || r->index[i] > most)
      return neap_fail(error, NEAP_DATA, "field %d: row %lld is outside the %lld rows there are",
                       number, (long long)r->index[i], (long long)room);
  }
  return NEAP_OK;
}

/* Two sets, each for min(n_batch, n_index) rows of every field; what a failure leaves the caller
 * drops. */
static neap_status make_buffers(neap_batch_reader *r, neap_error *error) {
  for (int s = 0; s < 2; s++)
    for (int f = 0; f < r->n_field; f++) {
      neap_shape shape = r->field[f].source.shape;
      if (r->field[f].window > 0) shape = NEAP_SHAPE(0, r->field[f].window);
      shape.dim[0] = NEAP_MIN(r->n_batch, r->n_index);
      NEAP_TRY(neap_tensor_new(&r->buffer[s][f], r->field[f].dtype, &shape, error));
    }
  return NEAP_OK;
}

neap_status neap_batch_reader_new(int n_field, const neap_batch_field *field, int64_t n_batch,
                                  int64_t n_index, const int64_t *index, bool drop_last,
                                  neap_batch_reader **out, neap_error *error) {
  if (n_field < 0 || n_index < 0)
    return neap_fail(error, NEAP_ARGUMENT, "numbers of fields and rows expect 0 or more");
  if (n_batch < 1)
    return neap_fail(error, NEAP_ARGUMENT, "batch expects at least 1, got %lld",
                     (long long)n_batch);
  /* Lists and flags; a failure from here on is taken down by neap_batch_reader_free. */
  neap_batch_reader *r = neap_alloc_zeroed(sizeof *r);
  neap_status status = r == NULL ? neap_fail_memory(error, sizeof *r, "a batch reader") : NEAP_OK;
  if (status != NEAP_OK) return status;
  pthread_mutex_init(&r->lock, NULL);
  pthread_cond_init(&r->change, NULL);
  r->field = neap_alloc_zeroed((size_t)n_field * sizeof *r->field);
  r->index = neap_alloc((size_t)n_index * sizeof *r->index);
  for (int s = 0; s < 2; s++)
    r->buffer[s] = neap_alloc_zeroed((size_t)n_field * sizeof *r->buffer[s]);
  if (r->field == NULL || r->index == NULL || r->buffer[0] == NULL || r->buffer[1] == NULL) {
    status = neap_fail_memory(error, (size_t)n_index * sizeof *r->index, "a batch reader");
    goto fail;
  }
  /* A last batch that is smaller counts as one, unless it is dropped. */
  r->n_batch = n_batch;
  r->n_index = n_index;
  r->n_total = n_index / n_batch + (!drop_last && n_index % n_batch != 0);
  if (n_index > 0) memcpy(r->index, index, (size_t)n_index * sizeof *index);
  /* Counted as they come, so that a failure drops those that are retained. */
  for (int f = 0; f < n_field; f++) {
    r->field[r->n_field++] = field[f];
    r->field[f].source = neap_tensor_retain(&field[f].source);
    status = check_field(r, &r->field[f], f + 1, error);
    if (status != NEAP_OK) goto fail;
  }
  /* The buffers are taken now, so that reading ahead needs no memory and can't fail. */
  status = make_buffers(r, error);
  if (status != NEAP_OK) goto fail;
  sigset_t saved; /* the thread inherits the mask: interrupts are for those who run nets */
  neap_signals_hold_all(&saved);
  int refused = pthread_create(&r->thread, NULL, read_ahead, r);
  neap_signals_release(&saved);
  if (refused != 0) {
    status = neap_fail(error, NEAP_INTERNAL, "no thread could be started to read ahead");
    goto fail;
  }
  r->has_thread = true;
  *out = r;
  return NEAP_OK;
fail:
  neap_batch_reader_free(r);
  return status;
}

/* Joins the thread, which stops before its next batch; one being filled is filled to its end first.
 * Also takes down a reader that neap_batch_reader_new gave up half made: fields count from n_field,
 * so what was not retained is not dropped, and buffers that were not made are zero. */
void neap_batch_reader_free(neap_batch_reader *r) {
  if (r == NULL) return;
  /* The thread may be waiting for a set: it is woken, and sees `stop`. */
  if (r->has_thread) {
    pthread_mutex_lock(&r->lock);
    r->stop = true;
    pthread_cond_broadcast(&r->change);
    pthread_mutex_unlock(&r->lock);
    pthread_join(r->thread, NULL);
  }
  for (int f = 0; f < r->n_field; f++) {
    neap_tensor_fini(&r->field[f].source);
    for (int s = 0; s < 2; s++) neap_tensor_fini(&r->buffer[s][f]);
  }
  for (int s = 0; s < 2; s++) neap_free(r->buffer[s]);
  neap_free(r->field);
  neap_free(r->index);
  pthread_cond_destroy(&r->change);
  pthread_mutex_destroy(&r->lock);
  neap_free(r);
}

/* Batch b waits for its set to be full; the thread has had that set since the call for batch b - 1,
 * or from the start. Views are made after the lock is given back, as the set is the caller's until
 * the next call. */
int64_t neap_batch_reader_next(neap_batch_reader *r, neap_tensor *out) {
  pthread_mutex_lock(&r->lock);
  /* The set of the batch before goes back; after the last one once more, which changes nothing. */
  if (r->n_taken > 0) {
    r->full[(r->n_taken - 1) & 1] = false;
    pthread_cond_broadcast(&r->change);
  }
  /* The last batch has gone: no rows, and no views. */
  int64_t rows = 0;
  if (r->n_taken < r->n_total) {
    int s = (int)(r->n_taken & 1);
    while (!r->full[s]) pthread_cond_wait(&r->change, &r->lock);
    rows = r->rows[s];
    r->n_taken++;
  }
  pthread_mutex_unlock(&r->lock);
  if (rows == 0) return 0;
  for (int f = 0; f < r->n_field; f++) {
    const neap_tensor *buffer = &r->buffer[(r->n_taken - 1) & 1][f];
    neap_shape shape = buffer->shape;
    shape.dim[0] = rows;
    out[f] = neap_tensor_view(buffer->storage, 0, buffer->dtype, &shape);
  }
  return rows;
}
