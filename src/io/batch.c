/* batch.c: the reader's threads and its two sets of buffers.
 *
 * Threads take rows of a batch in chunks, batch after batch; whoever fills the last row of one
 * mixes its rows and gives it to the caller.
 *
 * INVARIANT: set s is the threads' while ready[s] is false and the caller's while it is true; the
 * one lock guards what says who has what: ready, done, n_given_back, batch, row, fault, stop. Rows
 * of a set that is being filled are each one thread's.
 * INVARIANT: what a row becomes depends on the row and its place in the epoch, not on who fills it.
 */
#include "io/picture.h"

#include <pthread.h>
#include <string.h>

enum { MOST_THREADS = 64 };

/* Where the rows of one thread go through transforms: three buffers of `most` elements. */
typedef struct worker {
  struct neap_batch_reader *reader;
  pthread_t thread;
  float *buffer[3];
} worker;

struct neap_batch_reader {
  neap_batch_options options; /* its transforms are copies in `arena` */
  neap_arena arena;
  int n_field;
  neap_batch_field *field;
  neap_tensor *buffer[2]; /* n_field each, for a whole batch */
  neap_shape row_shape;   /* of the field with transforms, before them */
  neap_shape out_shape;   /* behind them */
  int64_t n_index, *index, most;
  float *mix_room[2];            /* of each set; NULL where no rows are mixed */
  int64_t n_taken, n_given_back; /* batches, by the caller */
  int64_t n_total, batch, row;   /* the next row to be filled */
  int64_t done[2];               /* rows */
  bool ready[2], stop;
  int64_t fault_row; /* of the first row that could not be read: its number among all; -1: none */
  neap_error fault;
  int n_worker;
  worker *worker;
  pthread_mutex_t lock;
  pthread_cond_t change;
};

static int64_t rows_of(const neap_batch_reader *r, int64_t batch) {
  return NEAP_MIN(r->options.n_batch, r->n_index - batch * r->options.n_batch);
}

/* Shape of one row of a field, before transforms and without classes. */
static neap_shape row_shape_of(const neap_batch_field *f) {
  if (f->n_file > 0) return f->row_shape;
  if (f->window > 0) return NEAP_SHAPE(f->window);
  neap_shape shape = {.n_dim = f->source.shape.n_dim - 1};
  for (int i = 0; i < shape.n_dim; i++) shape.dim[i] = f->source.shape.dim[i + 1];
  return shape;
}

/* data[i] = data[i] * scale + shift, n elements in place. f32 has a loop of its own, in single
 * precision; others go by double. */
static void scale_elements(neap_dtype dtype, void *data, int64_t n, double scale, double shift) {
  if (scale == 1.0 && shift == 0.0) return;
  if (dtype == NEAP_DTYPE_F32) {
    float *x = data;
    for (int64_t i = 0; i < n; i++) x[i] = x[i] * (float)scale + (float)shift;
    return;
  }
  for (int64_t i = 0; i < n; i++)
    neap_element_set(dtype, data, i, neap_element_get(dtype, data, i) * scale + shift);
}

/* The n elements of a row as they are in the source, in `dtype`. */
static neap_status read_row(const neap_batch_field *f, int64_t index, int64_t n, neap_dtype dtype,
                            void *to, neap_error *error) {
  if (f->n_file > 0) /* checked: f32 */
    return neap_io_picture_fit(f->file[index], f->fit, &f->row_shape, to, error);
  /* Windows begin at any element, rows at the beginning of one. */
  int64_t start = index * (f->window > 0 ? 1 : n) + f->offset;
  neap_cast(dtype, to, f->source.dtype,
            neap_tensor_data(&f->source) + (size_t)start * neap_dtype_bytes(f->source.dtype), n);
  return NEAP_OK;
}

/* A number k as numbers that are 0 but for the k-th. */
static neap_status write_class(const neap_batch_field *f, int64_t index, float *to,
                               neap_error *error) {
  int64_t k = neap_element_get_i64(f->source.dtype, neap_tensor_data(&f->source), index);
  memset(to, 0, (size_t)f->n_class * sizeof *to);
  if (k < 0 || k >= f->n_class)
    return neap_fail(error, NEAP_DATA, "row %lld has the label %lld, classes are 0 to %lld",
                     (long long)index + 1, (long long)k, (long long)f->n_class - 1);
  to[k] = 1;
  return NEAP_OK;
}

/* Row `place` of the reader's list into a field's buffer, as row `at` of it. */
static neap_status fill_row(const worker *w, int number, int64_t place, int64_t at, int s,
                            neap_error *error) {
  const neap_batch_reader *r = w->reader;
  const neap_batch_field *f = &r->field[number];
  const neap_tensor *buffer = &r->buffer[s][number];
  neap_shape shape = row_shape_of(f);
  int64_t n = neap_shape_elems(&shape),
          n_out = neap_shape_span(&buffer->shape, 1, buffer->shape.n_dim);
  char *to = neap_tensor_data(buffer) + (size_t)(at * n_out) * neap_dtype_bytes(f->dtype);
  if (f->n_class > 0) return write_class(f, r->index[place], (float *)(void *)to, error);
  bool is_changed = r->options.n_transform > 0 && number == r->options.field;
  /* Without transforms straight into its place; else in f32, through them. */
  if (!is_changed) {
    NEAP_TRY(read_row(f, r->index[place], n, f->dtype, to, error));
    scale_elements(f->dtype, to, n, f->scale, f->shift);
    return NEAP_OK;
  }
  /* A row's place in the epoch decides what is drawn for it, whatever thread or batch it is in. */
  float *const *buffers = w->buffer;
  NEAP_TRY(read_row(f, r->index[place], n, NEAP_DTYPE_F32, buffers[0], error));
  scale_elements(NEAP_DTYPE_F32, buffers[0], n, f->scale, f->shift);
  neap_io_draw draw = {r->options.seed, r->options.epoch, (uint64_t)(r->options.first + place), 0};
  const float *row = neap_io_transform_row(r->options.n_transform, r->options.transform, &shape,
                                           &draw, (float *[]){buffers[0], buffers[1], buffers[2]});
  neap_cast(f->dtype, to, NEAP_DTYPE_F32, row, n_out);
  return NEAP_OK;
}

/* Rows [first,end) of a batch. A row that can't be read is noted, and the rest is filled. */
static void fill_rows(worker *w, int64_t batch, int64_t first, int64_t end) {
  neap_batch_reader *r = w->reader;
  for (int64_t i = first; i < end; i++) {
    int64_t place = batch * r->options.n_batch + i;
    for (int f = 0; f < r->n_field; f++) {
      neap_error error = {0};
      if (fill_row(w, f, place, i, (int)(batch & 1), &error) == NEAP_OK) continue;
      /* Of several the first row's is told, whoever found it. */
      pthread_mutex_lock(&r->lock);
      if (r->fault_row < 0 || place < r->fault_row) {
        r->fault_row = place;
        r->fault = error;
      }
      pthread_mutex_unlock(&r->lock);
    }
  }
}

/* What is done to a batch whose rows are all there. */
static void finish(const neap_batch_reader *r, int64_t batch) {
  const neap_batch_options *o = &r->options;
  int s = (int)(batch & 1);
  neap_io_draw draw = {o->seed, o->epoch, (uint64_t)(o->first + batch * o->n_batch) | 1ull << 63,
                       0};
  /* Mixing needs all rows of the batch, so it is done by the thread that has filled the last
   * one. */
  if (r->mix_room[s] != NULL)
    for (int i = 0; i < o->n_transform; i++) {
      if (!neap_io_is_mix(&o->transform[i])) continue;
      float *label =
        o->label >= 0 ? (float *)(void *)neap_tensor_data(&r->buffer[s][o->label]) : NULL;
      neap_io_transform_mix(&o->transform[i], &draw, rows_of(r, batch),
                            (float *)(void *)neap_tensor_data(&r->buffer[s][o->field]),
                            &r->out_shape, label, label != NULL ? r->field[o->label].n_class : 0,
                            r->mix_room[s]);
    }
  for (int f = 0; f < r->n_field; f++) neap_storage_touch(r->buffer[s][f].storage);
}

/* A thread. The lock is not held while rows are filled. */
static void *read_ahead(void *context) {
  worker *w = context;
  neap_batch_reader *r = w->reader;
  pthread_mutex_lock(&r->lock);
  for (;;) {
    /* A set is the caller's until it is given back. */
    while (!r->stop && r->batch < r->n_total && r->batch >= r->n_given_back + 2)
      pthread_cond_wait(&r->change, &r->lock);
    if (r->stop || r->batch >= r->n_total) break;
    /* Some rows, all where there is one thread: these are nobody else's. */
    int64_t batch = r->batch, rows = rows_of(r, batch), first = r->row,
            chunk = r->n_worker == 1 ? rows : NEAP_MAX(rows / (4 * r->n_worker), 1),
            end = NEAP_MIN(first + chunk, rows);
    int s = (int)(batch & 1);
    NEAP_ASSERT(!r->ready[s], "set %d is the threads' while it is being filled", s);
    r->row = end < rows ? end : 0;
    r->batch += end == rows;
    pthread_mutex_unlock(&r->lock);
    fill_rows(w, batch, first, end);
    pthread_mutex_lock(&r->lock);
    r->done[s] += end - first;
    if (r->done[s] < rows) continue;
    /* The last rows: nobody else has the set any more. */
    pthread_mutex_unlock(&r->lock);
    finish(r, batch);
    pthread_mutex_lock(&r->lock);
    r->ready[s] = true;
    pthread_cond_broadcast(&r->change);
  }
  pthread_mutex_unlock(&r->lock);
  return NULL;
}

/* ---- making ---------------------------------------------------------------------------------- */

/* (1,height,width) or (3,height,width), of sizes that pictures have. */
static bool is_of_picture(const neap_shape *s) {
  enum { MOST_SIDE = 1 << 15 };
  if (s->n_dim != 3 || (s->dim[0] != 1 && s->dim[0] != 3)) return false;
  return s->dim[1] >= 1 && s->dim[1] <= MOST_SIDE && s->dim[2] >= 1 && s->dim[2] <= MOST_SIDE;
}

/* Whether the source's rows are one number each, the number of a class, and are read in f32. */
static bool has_classes(const neap_batch_field *f) {
  return f->n_file == 0 && f->window == 0 && f->source.shape.n_dim == 1 &&
         f->dtype == NEAP_DTYPE_F32;
}

/* ARGUMENT, SHAPE or DTYPE error for a field that makes no sense. */
static neap_status check_kind(const neap_batch_field *f, int number, neap_error *error) {
  bool is_file = f->n_file > 0;

  /* A field is of one of three kinds: files of pictures, windows of a long row of numbers, or rows
   * of a tensor. */
  if (is_file && !is_of_picture(&f->row_shape))
    return neap_fail(error, NEAP_SHAPE,
                     "field %d: rows of pictures are (1,height,width) or (3,height,width)", number);
  if (is_file && f->dtype != NEAP_DTYPE_F32)
    return neap_fail(error, NEAP_DTYPE, "field %d: pictures are read in f32", number);
  if (!is_file && (f->source.shape.n_dim < 1 || !neap_tensor_is_dense(&f->source) ||
                   (f->window > 0 && f->source.shape.n_dim != 1)))
    return neap_fail(
      error, NEAP_SHAPE,
      "field %d: the source must be dense, with one dimension where windows are read", number);
  if (f->window < 0 || f->offset < 0 || (f->window == 0 && f->offset != 0))
    return neap_fail(
      error, NEAP_ARGUMENT,
      "field %d: window and offset expect 0 or more, and offset a window, got %lld and %lld",
      number, (long long)f->window, (long long)f->offset);
  if (f->n_class < 0 || (f->n_class > 0 && !has_classes(f)))
    return neap_fail(error, NEAP_SHAPE, "field %d: classes are made of one number a row, in f32",
                     number);
  return NEAP_OK;
}

/* As above; DATA for the first index whose row or window leaves the source: the threads then read
 * without looking. `number` counts from 1. */
static neap_status check_field(const neap_batch_reader *r, const neap_batch_field *f, int number,
                               neap_error *error) {
  NEAP_TRY(check_kind(f, number, error));
  /* The last place where a row, or a window, may begin. Compared by subtraction: indices may be
   * anything, and a sum could overflow. */
  int64_t room = f->n_file > 0 ? f->n_file : f->source.shape.dim[0],
          span = f->window > 0 ? f->window : 1;
  int64_t most = span > room || f->offset > room - span ? -1 : room - span - f->offset;
  for (int64_t i = 0; i < r->n_index; i++) {
    if (r->index[i] < 0 || r->index[i] > most)
      return neap_fail(error, NEAP_DATA, "field %d: row %lld is outside the %lld rows there are",
                       number, (long long)r->index[i], (long long)room);
  }
  return NEAP_OK;
}

/* The field's own references: a source retained, or paths copied. */
static neap_status take_field(neap_batch_reader *r, const neap_batch_field *from,
                              neap_error *error) {
  neap_batch_field *f = &r->field[r->n_field++];
  *f = *from;
  if (from->n_file == 0) {
    f->source = neap_tensor_retain(&from->source);
    return NEAP_OK;
  }

  /* The list may go when the call returns: paths are copied one by one. */
  f->source = (neap_tensor){0};
  const char **file = neap_arena_alloc(&r->arena, (size_t)f->n_file * sizeof *file);
  if (file != NULL)
    for (int64_t i = 0; i < f->n_file; i++) {
      file[i] = neap_arena_strdup(&r->arena, from->file[i]);
      if (file[i] == NULL) return neap_fail_memory(error, strlen(from->file[i]), "a list of files");
    }
  f->file = file;
  return file != NULL ? NEAP_OK : neap_fail_memory(error, 0, "a list of files");
}

/* Copies the transforms and says what becomes of rows. */
static neap_status take_transforms(neap_batch_reader *r, neap_error *error) {
  neap_batch_options *o = &r->options;
  if (o->n_transform == 0) return NEAP_OK;
  if (o->field < 0 || o->field >= r->n_field || o->label >= r->n_field || o->label == o->field)
    return neap_fail(error, NEAP_ARGUMENT, "transforms are of one of %d fields", r->n_field);
  neap_transform *copy =
    neap_arena_copy(&r->arena, o->transform, (size_t)o->n_transform * sizeof *copy);
  if (copy == NULL) return neap_fail_memory(error, sizeof *copy, "transforms");

  /* The caller's list, names and numbers may go: the reader has them in its arena. */
  bool has_mix = false;
  for (int i = 0; i < o->n_transform; i++) {
    size_t bytes = (size_t)copy[i].n_value * sizeof(double);
    copy[i].name = neap_arena_strdup(&r->arena, copy[i].name);
    copy[i].value = neap_arena_copy(&r->arena, copy[i].value, bytes);
    if (copy[i].name == NULL || copy[i].value == NULL)
      return neap_fail_memory(error, bytes, "transforms");
  }
  o->transform = copy;

  /* Each transform says what it makes of the shape before: the last one's is that of a row. */
  r->row_shape = r->out_shape = row_shape_of(&r->field[o->field]);
  NEAP_TRY(neap_io_transform_check(o->n_transform, copy, &r->out_shape, &r->most, error));
  for (int i = 0; i < o->n_transform; i++) has_mix = has_mix || neap_io_is_mix(&copy[i]);
  if (!neap_dtype_is_float(r->field[o->field].dtype) ||
      (has_mix && r->field[o->field].dtype != NEAP_DTYPE_F32))
    return neap_fail(error, NEAP_DTYPE, "transforms are of floats, and rows are mixed in f32");
  if (o->label >= 0 && r->field[o->label].n_class == 0)
    return neap_fail(error, NEAP_ARGUMENT, "labels that are mixed have classes");
  if (!has_mix) return NEAP_OK;
  /* Rows are mixed with copies of what they were: of the whole batch, and of its labels. */
  int64_t n = neap_shape_elems(&r->out_shape);
  if (o->label >= 0) n = neap_count_add(n, r->field[o->label].n_class);
  size_t rows = (size_t)NEAP_MIN(o->n_batch, r->n_index);
  size_t bytes = neap_size_mul(neap_size_of(n, sizeof(float)), rows);
  /* For each set: two threads may have filled one each, and mix them at the same time. */
  for (int s = 0; s < 2; s++) {
    r->mix_room[s] = bytes == NEAP_SIZE_TOO_LARGE ? NULL : neap_alloc(bytes);
    if (r->mix_room[s] == NULL) return neap_fail_memory(error, bytes, "mixed rows");
  }
  return NEAP_OK;
}

/* Two sets, each for min(n_batch, n_index) rows of every field; what a failure leaves the caller
 * drops. */
static neap_status make_buffers(neap_batch_reader *r, neap_error *error) {
  for (int s = 0; s < 2; s++)
    for (int f = 0; f < r->n_field; f++) {
      /* The last batch may have fewer rows: it is a view of the beginning. */
      neap_shape row = row_shape_of(&r->field[f]), shape = {0};
      if (r->options.n_transform > 0 && f == r->options.field) row = r->out_shape;
      if (r->field[f].n_class > 0) row = NEAP_SHAPE(r->field[f].n_class);
      shape.n_dim = row.n_dim + 1;
      shape.dim[0] = NEAP_MIN(r->options.n_batch, r->n_index);
      for (int i = 0; i < row.n_dim; i++) shape.dim[i + 1] = row.dim[i];
      NEAP_TRY(neap_tensor_new(&r->buffer[s][f], r->field[f].dtype, &shape, error));
    }
  return NEAP_OK;
}

/* Those of workers [begin, end), which do not run. */
static void free_row_buffers(neap_batch_reader *r, int begin, int end) {
  for (int i = begin; i < end; i++)
    for (int k = 0; k < 3; k++) neap_free(r->worker[i].buffer[k]);
}

/* What rows go through on their way, for n workers: all of them, or none and an error. */
static neap_status make_row_buffers(neap_batch_reader *r, int n, neap_error *error) {
  const size_t bytes = (size_t)r->most * sizeof(float);
  if (r->options.n_transform == 0) return NEAP_OK;
  for (int i = 0; i < n; i++)
    for (int k = 0; k < 3; k++) {
      r->worker[i].buffer[k] = neap_alloc(bytes);
      if (r->worker[i].buffer[k] != NULL) continue;
      free_row_buffers(r, 0, n);
      return neap_fail_memory(error, bytes, "rows on their way");
    }
  return NEAP_OK;
}

/* Threads, each with its buffers. Those that have begun are joined by neap_batch_reader_free. */
static neap_status start_threads(neap_batch_reader *r, int n, neap_error *error) {
  r->worker = neap_alloc_zeroed((size_t)n * sizeof *r->worker);
  if (r->worker == NULL) return neap_fail_memory(error, (size_t)n * sizeof *r->worker, "threads");
  NEAP_TRY(make_row_buffers(r, n, error));
  sigset_t saved; /* threads inherit the mask: interrupts are for those who run nets */
  neap_signals_hold_all(&saved);
  pthread_mutex_lock(&r->lock); /* n_worker is read by those that run already */
  for (int i = 0; i < n; i++) {
    r->worker[i].reader = r;
    if (pthread_create(&r->worker[i].thread, NULL, read_ahead, &r->worker[i]) != 0) break;
    r->n_worker++;
  }
  /* One is enough: others would only have been faster. */
  free_row_buffers(r, r->n_worker, n);
  pthread_mutex_unlock(&r->lock);
  neap_signals_release(&saved);
  if (r->n_worker > 0) return NEAP_OK;
  return neap_fail(error, NEAP_INTERNAL, "no thread could be started to read ahead");
}

neap_status neap_batch_reader_new(int n_field, const neap_batch_field *field, int64_t n_index,
                                  const int64_t *index, const neap_batch_options *options,
                                  neap_batch_reader **out, neap_error *error) {
  if (n_field < 0 || n_index < 0 || options->n_transform < 0)
    return neap_fail(error, NEAP_ARGUMENT, "numbers of fields and rows expect 0 or more");
  if (options->n_batch < 1)
    return neap_fail(error, NEAP_ARGUMENT, "batch expects at least 1, got %lld",
                     (long long)options->n_batch);
  if (options->n_thread < 0 || options->n_thread > MOST_THREADS)
    return neap_fail(error, NEAP_ARGUMENT, "threads that read expect 1 to %d, got %d", MOST_THREADS,
                     options->n_thread);
  /* Lists and flags; a failure from here on is taken down by neap_batch_reader_free. */
  neap_batch_reader *r = neap_alloc_zeroed(sizeof *r);
  neap_status status = r == NULL ? neap_fail_memory(error, sizeof *r, "a batch reader") : NEAP_OK;
  if (status != NEAP_OK) return status;
  r->options = *options;
  r->fault_row = -1;
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
  int64_t n_batch = options->n_batch;
  r->n_index = n_index;
  r->n_total = n_index / n_batch + (!options->drop_last && n_index % n_batch != 0);
  if (n_index > 0) memcpy(r->index, index, (size_t)n_index * sizeof *index);
  /* Counted as they come, so that a failure drops those that are retained. */
  for (int f = 0; f < n_field; f++) {
    status = take_field(r, &field[f], error);
    if (status == NEAP_OK) status = check_field(r, &r->field[f], f + 1, error);
    if (status != NEAP_OK) goto fail;
  }
  /* Everything is taken now, so that only files can fail later. */
  status = take_transforms(r, error);
  if (status == NEAP_OK) status = make_buffers(r, error);
  if (status == NEAP_OK) status = start_threads(r, NEAP_MAX(options->n_thread, 1), error);
  if (status != NEAP_OK) goto fail;
  *out = r;
  return NEAP_OK;
fail:
  neap_batch_reader_free(r);
  return status;
}

/* Joins the threads, which stop before their next rows; what is being filled is filled first. Also
 * takes down a reader that neap_batch_reader_new gave up half made: fields count from n_field, so
 * what was not retained is not dropped, and buffers that were not made are zero. */
void neap_batch_reader_free(neap_batch_reader *r) {
  if (r == NULL) return;
  /* Threads may be waiting for a set: they are woken, and see `stop`. */
  pthread_mutex_lock(&r->lock);
  r->stop = true;
  pthread_cond_broadcast(&r->change);
  pthread_mutex_unlock(&r->lock);
  for (int i = 0; i < r->n_worker; i++) {
    pthread_join(r->worker[i].thread, NULL);
    for (int k = 0; k < 3; k++) neap_free(r->worker[i].buffer[k]);
  }

  /* With no thread left nobody reads the sources or fills the sets. Views that the caller still
   * holds keep their storage. */
  for (int f = 0; f < r->n_field; f++) {
    neap_tensor_fini(&r->field[f].source);
    for (int s = 0; s < 2; s++) neap_tensor_fini(&r->buffer[s][f]);
  }
  for (int s = 0; s < 2; s++) neap_free(r->buffer[s]);
  neap_free(r->worker);
  for (int s = 0; s < 2; s++) neap_free(r->mix_room[s]);
  neap_free(r->field);
  neap_free(r->index);
  neap_arena_fini(&r->arena);
  pthread_cond_destroy(&r->change);
  pthread_mutex_destroy(&r->lock);
  neap_free(r);
}

/* Batch b waits for its set to be ready; the threads have had that set since the call for batch
 * b - 1, or from the start. Views are made after the lock is given back, as the set is the caller's
 * until the next call. */
int64_t neap_batch_reader_next(neap_batch_reader *r, neap_tensor *out, neap_error *error) {
  pthread_mutex_lock(&r->lock);
  /* The set of the batch before goes back; after the last one once more, which changes nothing. */
  if (r->n_taken > 0 && r->n_given_back < r->n_taken) {
    int s = (int)(r->n_given_back++ & 1);
    r->ready[s] = false;
    r->done[s] = 0;
    pthread_cond_broadcast(&r->change);
  }
  /* The last batch has gone: no rows, and no views. */
  int64_t rows = 0;
  if (r->n_taken < r->n_total) {
    int s = (int)(r->n_taken & 1);
    while (!r->ready[s]) pthread_cond_wait(&r->change, &r->lock);
    rows = rows_of(r, r->n_taken++);
  }
  /* A row of this batch is missing: there is no batch, and none after it. */
  bool is_missing = r->fault_row >= 0 && r->fault_row < r->n_taken * r->options.n_batch;
  if (rows > 0 && is_missing) {
    neap_error fault = r->fault;
    r->n_total = r->n_taken; /* threads end, and so does the next call */
    r->stop = true;
    pthread_cond_broadcast(&r->change);
    pthread_mutex_unlock(&r->lock);
    *error = fault;
    return -1;
  }
  pthread_mutex_unlock(&r->lock);
  if (rows == 0) return 0;

  /* The last batch may have fewer rows than its buffer: the view shows those alone. */
  for (int f = 0; f < r->n_field; f++) {
    const neap_tensor *buffer = &r->buffer[(r->n_taken - 1) & 1][f];
    neap_shape shape = buffer->shape;
    shape.dim[0] = rows;
    out[f] = neap_tensor_view(buffer->storage, 0, buffer->dtype, &shape);
  }
  return rows;
}
