/* test_batch.c: the reader of batches: what each batch holds, readers closed early, hostile
 * indices, refused memory. */
#include "check.h"
#include "io/io.h"

#include <limits.h>
#include <unistd.h>

/* Options of batches of n rows, on one thread. */
#define BATCH(n) (&(neap_batch_options){.n_batch = (n)})

/* (n,2) of u8: row i is {i, 100 + i}. */
static neap_tensor rows_of_two(int64_t n) {
  neap_tensor t = {0};
  neap_shape shape = NEAP_SHAPE(n, 2);
  CHECK_OK(neap_tensor_new(&t, NEAP_DTYPE_U8, &shape, &error));
  for (int64_t i = 0; i < n; i++) {
    neap_element_set_i64(NEAP_DTYPE_U8, neap_tensor_data(&t), 2 * i, i);
    neap_element_set_i64(NEAP_DTYPE_U8, neap_tensor_data(&t), 2 * i + 1, 100 + i);
  }
  return t;
}

/* (n) of u8: 0, 1, 2 .. */
static neap_tensor counting(int64_t n) {
  neap_tensor t = {0};
  neap_shape shape = NEAP_SHAPE(n);
  CHECK_OK(neap_tensor_new(&t, NEAP_DTYPE_U8, &shape, &error));
  for (int64_t i = 0; i < n; i++) neap_element_set_i64(NEAP_DTYPE_U8, neap_tensor_data(&t), i, i);
  return t;
}

/* The next batch of a reader whose rows can all be read. */
static int64_t next_batch(neap_batch_reader *reader, neap_tensor *out) {
  neap_error error = {0};
  int64_t n = neap_batch_reader_next(reader, out, &error);
  CHECK(n >= 0 && error.message[0] == '\0');
  return n;
}

static double at(const neap_tensor *t, int64_t i) {
  return neap_element_get(t->dtype, neap_tensor_data(t), i);
}

TEST(batches_hold_the_rows_asked_for_in_order) {
  neap_tensor x = rows_of_two(10), y = counting(10), out[2];
  neap_batch_field field[2] = {{.source = x, .dtype = NEAP_DTYPE_F32, .scale = 0.5, .shift = 1},
                               {.source = y, .dtype = NEAP_DTYPE_I64, .scale = 1}};
  const int64_t index[] = {7, 0, 9, 9, 3};
  neap_batch_reader *reader = NULL;
  CHECK_OK(neap_batch_reader_new(2, field, 5, index, BATCH(2), &reader, &error));
  int64_t row = 0;
  for (int b = 0; b < 3; b++) {
    int64_t n = next_batch(reader, out);
    CHECK_EQ(n, b < 2 ? 2 : 1);
    CHECK_EQ(out[0].shape.dim[0], n);
    CHECK_EQ(out[0].dtype, NEAP_DTYPE_F32);
    for (int64_t i = 0; i < n; i++, row++) {
      CHECK_NEAR(at(&out[0], 2 * i), 0.5 * (double)index[row] + 1, 0);
      CHECK_NEAR(at(&out[0], 2 * i + 1), 0.5 * (double)(100 + index[row]) + 1, 0);
      CHECK_NEAR(at(&out[1], i), (double)index[row], 0);
    }
    neap_tensor_fini(&out[0]), neap_tensor_fini(&out[1]);
  }
  CHECK_EQ(next_batch(reader, out), 0);
  CHECK_EQ(next_batch(reader, out), 0); /* and stays at the end */
  neap_batch_reader_free(reader);
  neap_tensor_fini(&x), neap_tensor_fini(&y);
}

TEST(the_last_smaller_batch_can_be_dropped) {
  neap_tensor y = counting(5), out;
  neap_batch_field field = {.source = y, .dtype = NEAP_DTYPE_U8, .scale = 1};
  const int64_t index[] = {0, 1, 2, 3, 4};
  neap_batch_reader *reader = NULL;
  CHECK_OK(neap_batch_reader_new(
    1, &field, 5, index, &(neap_batch_options){.n_batch = 2, .drop_last = true}, &reader, &error));
  for (int b = 0; b < 2; b++) {
    CHECK_EQ(next_batch(reader, &out), 2);
    neap_tensor_fini(&out);
  }
  CHECK_EQ(next_batch(reader, &out), 0);
  neap_batch_reader_free(reader);
  neap_tensor_fini(&y);
}

TEST(windows_read_text_and_its_next_characters) {
  neap_tensor text = counting(10), out[2];
  neap_batch_field field[2] = {
    {.source = text, .dtype = NEAP_DTYPE_I64, .scale = 1, .window = 4},
    {.source = text, .dtype = NEAP_DTYPE_I64, .scale = 1, .window = 4, .offset = 1}};
  const int64_t index[] = {5, 0};
  neap_batch_reader *reader = NULL;
  CHECK_OK(neap_batch_reader_new(2, field, 2, index, BATCH(2), &reader, &error));
  CHECK_EQ(next_batch(reader, out), 2);
  for (int64_t r = 0; r < 2; r++)
    for (int64_t i = 0; i < 4; i++) {
      CHECK_NEAR(at(&out[0], 4 * r + i), (double)(index[r] + i), 0);
      CHECK_NEAR(at(&out[1], 4 * r + i), (double)(index[r] + i + 1), 0);
    }
  neap_tensor_fini(&out[0]), neap_tensor_fini(&out[1]);
  neap_batch_reader_free(reader);
  neap_tensor_fini(&text);
}

/* A reader may end before its first batch, with both sets full, or while a batch is still in
 * use. */
TEST(a_reader_can_be_closed_at_any_time) {
  enum { N = 64 };
  neap_tensor y = counting(N), out;
  int64_t index[N];
  for (int64_t i = 0; i < N; i++) index[i] = i;
  neap_batch_field field = {.source = y, .dtype = NEAP_DTYPE_F32, .scale = 1};
  int64_t live = neap_memory_read().n_live;
  for (int taken = 0; taken < 6; taken++) {
    neap_batch_reader *reader = NULL;
    CHECK_OK(neap_batch_reader_new(1, &field, N, index, BATCH(4), &reader, &error));
    neap_tensor last = {0};
    for (int b = 0; b < taken; b++) {
      CHECK_EQ(next_batch(reader, &out), 4);
      neap_tensor_fini(&last);
      last = out;
    }
    if (taken % 2 == 1) usleep(2000); /* let the thread fill both sets and wait */
    neap_batch_reader_free(reader);
    if (taken > 0) CHECK_NEAR(at(&last, 3), 4.0 * taken - 1, 0); /* a batch outlives its reader */
    neap_tensor_fini(&last);
  }
  CHECK_EQ(neap_memory_read().n_live, live);
  neap_batch_reader_free(NULL);
  neap_tensor_fini(&y);
}

TEST(hostile_indices_are_refused) {
  neap_tensor x = rows_of_two(10), text = counting(10), out;
  neap_batch_reader *reader = NULL;
  static const int64_t bad[] = {-1, 10, INT64_MAX, INT64_MIN, INT64_MAX - 1};
  neap_batch_field rows = {.source = x, .dtype = NEAP_DTYPE_F32, .scale = 1};
  neap_batch_field window = {
    .source = text, .dtype = NEAP_DTYPE_F32, .scale = 1, .window = 4, .offset = 1};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    const int64_t index[] = {0, bad[i]};
    CHECK_FAILS(neap_batch_reader_new(1, &rows, 2, index, BATCH(2), &reader, &error), NEAP_DATA,
                "outside the 10 rows");
    CHECK_FAILS(neap_batch_reader_new(1, &window, 2, index, BATCH(2), &reader, &error), NEAP_DATA,
                "outside the 10 rows");
  }
  const int64_t last_fits = 5, one_more = 6, zero = 0;
  CHECK_OK(neap_batch_reader_new(1, &window, 1, &last_fits, BATCH(1), &reader, &error));
  CHECK_EQ(next_batch(reader, &out), 1);
  CHECK_NEAR(at(&out, 3), 9, 0);
  neap_tensor_fini(&out);
  neap_batch_reader_free(reader);
  CHECK_FAILS(neap_batch_reader_new(1, &window, 1, &one_more, BATCH(1), &reader, &error), NEAP_DATA,
              "row 6");
  window.window = INT64_MAX, window.offset = INT64_MAX;
  CHECK_FAILS(neap_batch_reader_new(1, &window, 1, &zero, BATCH(1), &reader, &error), NEAP_DATA,
              "outside");
  window.window = 4, window.offset = -2;
  CHECK_FAILS(neap_batch_reader_new(1, &window, 1, &last_fits, BATCH(1), &reader, &error),
              NEAP_ARGUMENT, "offset");
  CHECK_FAILS(neap_batch_reader_new(1, &rows, 1, &zero, BATCH(0), &reader, &error), NEAP_ARGUMENT,
              "batch");
  rows.window = 2;
  CHECK_FAILS(neap_batch_reader_new(1, &rows, 1, &zero, BATCH(1), &reader, &error), NEAP_SHAPE,
              "one dimension");
  neap_tensor_fini(&x), neap_tensor_fini(&text);
}

TEST(fields_and_transforms_that_make_no_sense_are_refused) {
  neap_tensor image = {0}, y = counting(2), x = rows_of_two(2);
  neap_shape shape = NEAP_SHAPE(2, 1, 4, 4);
  CHECK_OK(neap_tensor_new(&image, NEAP_DTYPE_F32, &shape, &error));
  const int64_t index[] = {0, 1};
  neap_batch_reader *reader = NULL;
#define REFUSED(n_field, field, options, code, text) \
  CHECK_FAILS(neap_batch_reader_new(n_field, field, 2, index, options, &reader, &error), code, text)
#define TRANSFORMS(...) (&(neap_batch_options){.n_batch = 2, .n_transform = 1, __VA_ARGS__})

  /* Pictures from files have one shape or the other, and a dtype. */
  const char *file[] = {"a.png", "b.png"};
  neap_batch_field pictures = {
    .file = file, .n_file = 2, .row_shape = NEAP_SHAPE(2, 4, 4), .dtype = NEAP_DTYPE_F32};
  REFUSED(1, &pictures, BATCH(2), NEAP_SHAPE, "rows of pictures are (1,height,width) or (3,");
  pictures.row_shape = NEAP_SHAPE(3, 4, INT64_MAX);
  REFUSED(1, &pictures, BATCH(2), NEAP_SHAPE, "rows of pictures");
  pictures.row_shape = NEAP_SHAPE(3, 4, 4), pictures.dtype = NEAP_DTYPE_U8;
  REFUSED(1, &pictures, BATCH(2), NEAP_DTYPE, "pictures are read in f32");

  /* Classes are made of numbers, one a row; how many is any number at all. */
  neap_batch_field two[2] = {{.source = image, .dtype = NEAP_DTYPE_F32, .scale = 1},
                             {.source = x, .dtype = NEAP_DTYPE_F32, .scale = 1, .n_class = 3}};
  REFUSED(2, two, BATCH(2), NEAP_SHAPE, "classes are made of one number a row");
  two[1].source = y, two[1].n_class = -1;
  REFUSED(2, two, BATCH(2), NEAP_SHAPE, "classes are made of one number a row");

  const neap_transform mix = {"mixup", 2, (double[]){0.2, 1}},
                       flip = {"flip", 2, (double[]){0.5, 0}};
  two[1].n_class = 3;
  REFUSED(2, two, TRANSFORMS(.transform = &flip, .field = 2, .label = -1), NEAP_ARGUMENT,
          "of one of 2 fields");
  REFUSED(2, two, TRANSFORMS(.transform = &mix, .label = 2), NEAP_ARGUMENT, "of one of 2 fields");
  REFUSED(2, two, TRANSFORMS(.transform = &mix, .label = 0), NEAP_ARGUMENT, "of one of 2 fields");
  static const int64_t many[] = {INT64_MAX, INT64_MAX / 4, (int64_t)1 << 61, (int64_t)1 << 62};
  for (int i = 0; i < NEAP_COUNT(many); i++) {
    two[1].n_class = many[i];
    neap_error why = {0};
    neap_status status = neap_batch_reader_new(
      2, two, 2, index, TRANSFORMS(.transform = &mix, .label = 1), &reader, &why);
    CHECK(status == NEAP_MEMORY || status == NEAP_SHAPE);
  }
  two[1].n_class = 0;
  REFUSED(2, two, TRANSFORMS(.transform = &mix, .label = 1), NEAP_ARGUMENT, "have classes");
  two[0].dtype = NEAP_DTYPE_F64;
  REFUSED(2, two, TRANSFORMS(.transform = &mix, .label = -1), NEAP_DTYPE, "mixed in f32");
  two[0].dtype = NEAP_DTYPE_U8;
  REFUSED(2, two, TRANSFORMS(.transform = &flip, .label = -1), NEAP_DTYPE, "are of floats");

  /* Numbers of fields and threads. */
  REFUSED(-1, two, BATCH(2), NEAP_ARGUMENT, "expect 0 or more");
  REFUSED(2, two, (&(neap_batch_options){.n_batch = 2, .n_thread = 65}), NEAP_ARGUMENT,
          "threads that read expect 1 to 64, got 65");
#undef REFUSED
#undef TRANSFORMS

  /* A label that is none of the classes is found when its row is read. */
  neap_tensor out;
  two[1].n_class = 1;
  CHECK_OK(neap_batch_reader_new(1, &two[1], 2, index, BATCH(2), &reader, &error));
  neap_error why = {0};
  CHECK_EQ(neap_batch_reader_next(reader, &out, &why), -1);
  CHECK(strstr(why.message, "row 2 has the label 1, classes are 0 to 0") != NULL);
  neap_batch_reader_free(reader);
  neap_tensor_fini(&image), neap_tensor_fini(&y), neap_tensor_fini(&x);
}

TEST(no_rows_are_no_batches_and_a_huge_batch_holds_only_the_rows_there_are) {
  neap_tensor y = counting(3), out;
  neap_batch_field field = {.source = y, .dtype = NEAP_DTYPE_F32, .scale = 1};
  neap_batch_reader *reader = NULL;
  CHECK_OK(neap_batch_reader_new(1, &field, 0, NULL, BATCH(4), &reader, &error));
  CHECK_EQ(next_batch(reader, &out), 0);
  neap_batch_reader_free(reader);
  const int64_t index[] = {2, 1, 0};
  CHECK_OK(neap_batch_reader_new(1, &field, 3, index, BATCH(INT64_MAX), &reader, &error));
  CHECK_EQ(next_batch(reader, &out), 3);
  CHECK_NEAR(at(&out, 0), 2, 0);
  neap_tensor_fini(&out);
  CHECK_EQ(next_batch(reader, &out), 0);
  neap_batch_reader_free(reader);
  neap_tensor_fini(&y);
}

TEST(refused_memory_is_an_error_and_leaves_nothing) {
  neap_tensor y = counting(8);
  neap_batch_field field = {.source = y, .dtype = NEAP_DTYPE_F32, .scale = 1};
  const int64_t index[] = {0, 1, 2, 3};
  int64_t live = neap_memory_read().n_live;
  bool passed = false;
  for (int64_t n = 1; n < 40 && !passed; n++) {
    neap_batch_reader *reader = NULL;
    neap_error error = {0};
    neap_memory_fail_nth_block(n);
    neap_status status = neap_batch_reader_new(1, &field, 4, index, BATCH(2), &reader, &error);
    neap_memory_fail_nth(0, false);
    passed = status == NEAP_OK;
    if (passed) neap_batch_reader_free(reader);
    CHECK(passed || status == NEAP_MEMORY);
    CHECK_EQ(neap_memory_read().n_live, live);
  }
  CHECK(passed);
  neap_tensor_fini(&y);
}

/* Sums of all batches of ten pictures of 3x4x4 that are cut, turned, flipped and mixed, from the
 * row `first` on. */
static void mixed_sums(int n_thread, int64_t first, double sum[4]) {
  neap_tensor x = {0}, y = counting(10), out[2];
  neap_shape shape = NEAP_SHAPE(10, 3, 4, 4);
  CHECK_OK(neap_tensor_new(&x, NEAP_DTYPE_F32, &shape, &error));
  for (int64_t i = 0; i < neap_tensor_elems(&x); i++)
    neap_element_set(NEAP_DTYPE_F32, neap_tensor_data(&x), i, (double)(i % 37));

  /* Transforms that all draw: what a row draws must follow from the row, not from who works on
   * it. */
  const neap_transform transform[] = {{"random_crop", 4, (double[]){4, 4, 2, 1}},
                                      {"flip", 2, (double[]){0.5, 0.5}},
                                      {"rotate", 2, (double[]){30, 0}},
                                      {"mixup", 2, (double[]){0.3, 1}}};
  neap_batch_field field[2] = {{.source = x, .dtype = NEAP_DTYPE_F32, .scale = 1},
                               {.source = y, .dtype = NEAP_DTYPE_F32, .scale = 1, .n_class = 10}};
  const int64_t index[] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
  neap_batch_options options = {.n_batch = 4,
                                .n_thread = n_thread,
                                .n_transform = 4,
                                .transform = transform,
                                .label = 1,
                                .seed = 7,
                                .epoch = 2,
                                .first = first};
  neap_batch_reader *reader = NULL;
  CHECK_OK(neap_batch_reader_new(2, field, 10 - first, index + first, &options, &reader, &error));

  /* Sums weighted by place, so that rows that change places show. */
  for (int b = 0, n; (n = (int)next_batch(reader, out)) > 0; b++) {
    sum[b] = 0;
    for (int64_t i = 0; i < neap_tensor_elems(&out[0]); i++)
      sum[b] += at(&out[0], i) * (double)(i + 1);
    for (int64_t i = 0; i < neap_tensor_elems(&out[1]); i++)
      sum[b] += at(&out[1], i) * (double)(i + 1);
    for (int f = 0; f < 2; f++) neap_tensor_fini(&out[f]);
  }
  neap_batch_reader_free(reader);
  neap_tensor_fini(&x), neap_tensor_fini(&y);
}

TEST(rows_are_the_same_on_any_number_of_threads) {
  double one[4] = {0}, other[4];
  mixed_sums(1, 0, one);
  CHECK(one[0] != 0 && one[2] != 0 && one[3] == 0);
  for (int n = 2; n < 9; n++) {
    memset(other, 0, sizeof other);
    mixed_sums(n, 0, other);
    for (int b = 0; b < 4; b++) CHECK(one[b] == other[b]);
  }
}

/* Rows and mixes draw by their place in the epoch, whatever batch comes first. */
TEST(what_begins_within_an_epoch_goes_on_as_the_whole_does) {
  double whole[4] = {0}, rest[4] = {0};
  mixed_sums(1, 0, whole);
  mixed_sums(1, 4, rest);
  CHECK(rest[0] == whole[1] && rest[1] == whole[2] && rest[2] == 0);
}

/* Of batches that are not mixed some have their first row turned round, and some have not. */
TEST(a_batch_draws_other_numbers_than_its_first_row) {
  const neap_transform transform[] = {{"flip", 2, (double[]){0.5, 0}},
                                      {"mixup", 2, (double[]){0.3, 0.5}}};
  neap_tensor x = {0}, out;
  neap_shape shape = NEAP_SHAPE(2, 1, 1, 2);
  CHECK_OK(neap_tensor_new(&x, NEAP_DTYPE_F32, &shape, &error));
  for (int i = 0; i < 4; i++) neap_element_set(NEAP_DTYPE_F32, neap_tensor_data(&x), i, 1 << i);
  neap_batch_field field = {.source = x, .dtype = NEAP_DTYPE_F32, .scale = 1};
  const int64_t index[] = {0, 1};
  int n_plain = 0, n_turned = 0;
  for (int epoch = 0; epoch < 64; epoch++) {
    neap_batch_options options = {
      .n_batch = 2, .n_transform = 2, .transform = transform, .label = -1, .epoch = epoch};
    neap_batch_reader *reader = NULL;
    CHECK_OK(neap_batch_reader_new(1, &field, 2, index, &options, &reader, &error));
    CHECK_EQ(next_batch(reader, &out), 2);
    n_plain += at(&out, 0) == 1 && at(&out, 1) == 2;
    n_turned += at(&out, 0) == 2 && at(&out, 1) == 1;
    neap_tensor_fini(&out);
    neap_batch_reader_free(reader);
  }
  CHECK(n_plain > 5 && n_turned > 5);
  neap_tensor_fini(&x);
}

/* The sum of all batches of two rows of large pictures that are mixed, weighted by place. */
static double sum_of_mixed_pairs(int n_thread) {
  enum { ROWS = 40, SIDE = 96 };
  neap_tensor x = {0}, out[1];
  neap_shape shape = NEAP_SHAPE(ROWS, 1, SIDE, SIDE);
  CHECK_OK(neap_tensor_new(&x, NEAP_DTYPE_F32, &shape, &error));
  float *data = (float *)(void *)neap_tensor_data(&x);
  for (int64_t i = 0; i < neap_tensor_elems(&x); i++) data[i] = (float)(i % 101);

  const neap_transform transform[] = {{"mixup", 2, (double[]){0.3, 1}}};
  neap_batch_field field = {.source = x, .dtype = NEAP_DTYPE_F32, .scale = 1};
  int64_t index[ROWS];
  for (int64_t i = 0; i < ROWS; i++) index[i] = i;
  neap_batch_options options = {.n_batch = 2,
                                .n_thread = n_thread,
                                .n_transform = 1,
                                .transform = transform,
                                .label = -1,
                                .seed = 7};
  neap_batch_reader *reader = NULL;
  CHECK_OK(neap_batch_reader_new(1, &field, ROWS, index, &options, &reader, &error));
  double sum = 0;
  for (int b = 1; next_batch(reader, out) > 0; b++) {
    const float *y = (const float *)(const void *)neap_tensor_data(&out[0]);
    for (int64_t i = 0; i < neap_tensor_elems(&out[0]); i++)
      sum += (double)y[i] * (double)(i % 7 + b);
    neap_tensor_fini(&out[0]);
  }
  neap_batch_reader_free(reader);
  neap_tensor_fini(&x);
  return sum;
}

/* Two batches may be full at the same time: each is mixed in a room of its own. */
TEST(batches_are_mixed_beside_each_other) {
  double one = sum_of_mixed_pairs(1);
  CHECK(one != 0);
  for (int k = 0; k < 20; k++) CHECK(sum_of_mixed_pairs(4) == one);
}

TEST(a_file_that_cannot_be_read_ends_the_batches) {
  neap_tensor out[1];
  const char *const file[] = {"/no/such/a.png", "/no/such/b.png"};
  neap_batch_field field = {.dtype = NEAP_DTYPE_F32,
                            .scale = 1,
                            .n_file = 2,
                            .file = file,
                            .row_shape = NEAP_SHAPE(3, 2, 2)};
  const int64_t index[] = {1, 0, 1, 0};
  neap_batch_reader *reader = NULL;
  neap_batch_options options = {.n_batch = 2, .n_thread = 3};
  CHECK_OK(neap_batch_reader_new(1, &field, 4, index, &options, &reader, &error));
  neap_error error = {0};
  CHECK_EQ(neap_batch_reader_next(reader, out, &error), -1);
  CHECK(strstr(error.message, "b.png") != NULL); /* the first row's, whichever thread was first */
  CHECK_EQ(neap_batch_reader_next(reader, out, &error), 0);
  neap_batch_reader_free(reader);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(batches_hold_the_rows_asked_for_in_order),
             T(the_last_smaller_batch_can_be_dropped), T(windows_read_text_and_its_next_characters),
             T(a_reader_can_be_closed_at_any_time), T(hostile_indices_are_refused),
             T(fields_and_transforms_that_make_no_sense_are_refused),
             T(no_rows_are_no_batches_and_a_huge_batch_holds_only_the_rows_there_are),
             T(refused_memory_is_an_error_and_leaves_nothing),
             T(what_begins_within_an_epoch_goes_on_as_the_whole_does),
             T(a_batch_draws_other_numbers_than_its_first_row),
             T(rows_are_the_same_on_any_number_of_threads), T(batches_are_mixed_beside_each_other),
             T(a_file_that_cannot_be_read_ends_the_batches));
}
