/* batch: rows of data sets as batches, read ahead by a thread.
 *
 * A field takes its rows from a tensor: row i of a batch is source[index[i]], or, with a window,
 * the `window` elements from index[i] + offset of a one-dimensional source (text). Elements become
 * source * scale + shift in the field's dtype. Two sets of buffers take turns: one is the caller's
 * until its next call, the other is being filled.
 */
#ifndef NEAP_IO_BATCH_H
#define NEAP_IO_BATCH_H

#include "tensor/tensor.h"

typedef struct neap_batch_field {
  neap_tensor source;  /* (N, ...) or, with a window, (N); dense; retained by the reader */
  neap_dtype dtype;    /* of the batch */
  double scale, shift; /* 1 and 0 cast without arithmetic */
  int64_t window, offset;
} neap_batch_field;

typedef struct neap_batch_reader neap_batch_reader;

/* Rows in the order of `index` (copied), n_batch at a time; the last batch may be smaller unless
 * `drop_last`. DATA error when an index leaves a source. */
neap_status neap_batch_reader_new(int n_field, const neap_batch_field *field, int64_t n_batch,
                                  int64_t n_index, const int64_t *index, bool drop_last,
                                  neap_batch_reader **out, neap_error *error);
void neap_batch_reader_free(neap_batch_reader *reader);
/* Fills out[n_field] with views (references of the caller) of the next batch and returns its rows;
 * 0 at the end. Their contents hold until the next call. */
int64_t neap_batch_reader_next(neap_batch_reader *reader, neap_tensor *out);

#endif
