/* test_api_tensor.c: tensors, op records, ops run at once and what a process says of itself, as
 * users of neap.h meet them: linked with libneap.so alone. */
#include "check.h"

#include <stdlib.h>

/* (rows,cols) f32 with elements 0, 1, 2, .. */
static neap_tensor counted(int64_t rows, int64_t cols) {
  neap_tensor t = {0};
  CHECK_OK(neap_tensor_new(&t, NEAP_DTYPE_F32, &(neap_shape){2, {rows, cols}}, &error));
  for (int64_t i = 0; i < rows * cols; i++)
    neap_element_set(NEAP_DTYPE_F32, neap_tensor_data(&t), i, (double)i);
  return t;
}

static double at(const neap_tensor *t, int64_t i) {
  return neap_element_get(t->dtype, neap_tensor_data(t), i);
}

TEST(dtypes_and_shapes_have_names) {
  char text[NEAP_SHAPE_TEXT];
  for (int d = 1; d < NEAP_N_DTYPE; d++) {
    neap_dtype dtype = (neap_dtype)d;
    CHECK(neap_dtype_from_name(neap_dtype_name(dtype)) == dtype);
    CHECK(neap_dtype_bytes(dtype) > 0);
    CHECK(neap_dtype_is_float(dtype) + neap_dtype_is_integer(dtype) == (dtype != NEAP_DTYPE_BOOL));
  }
  CHECK(neap_dtype_from_name("f31") == NEAP_DTYPE_NONE);
  neap_shape a = neap_shape_of(3, (int64_t[]){2, 3, 4}), b = {3, {2, 3, 5}};
  CHECK_EQ(neap_shape_elems(&a), 24);
  CHECK_EQ(neap_shape_elems(&(neap_shape){0}), 1);
  CHECK(!neap_shape_equal(&a, &b));
  b.dim[2] = 4;
  CHECK(neap_shape_equal(&a, &b));
  CHECK(strcmp(neap_shape_text(&a, text), "(2,3,4)") == 0);
}

TEST(views_share_the_bytes_and_copies_do_not) {
  neap_tensor t = counted(3, 4), v = {0}, w = {0};
  CHECK_EQ(neap_tensor_elems(&t), 12);
  CHECK_EQ(neap_tensor_bytes(&t), 48);
  CHECK(neap_tensor_is_dense(&t) && !neap_tensor_is_read_only(&t));
  CHECK_OK(neap_tensor_select(&t, 0, 1, &v, &error)); /* 4 5 6 7 */
  CHECK(v.shape.n_dim == 1 && at(&v, 2) == 6);
  neap_element_set(v.dtype, neap_tensor_data(&v), 2, -1);
  neap_tensor_touch(&v);
  CHECK_NEAR(at(&t, 6), -1, 0);
  neap_tensor_fini(&v);
  CHECK_OK(neap_tensor_narrow(&t, 1, 1, 2, 2, &v, &error)); /* columns 1 and 3 */
  CHECK(v.shape.dim[1] == 2 && v.stride[1] == 2 && !neap_tensor_is_dense(&v));
  CHECK_OK(neap_tensor_clone(&v, NEAP_DTYPE_I64, &w, &error));
  CHECK(neap_tensor_is_dense(&w) && w.dtype == NEAP_DTYPE_I64);
  CHECK_EQ(neap_element_get_i64(w.dtype, neap_tensor_data(&w), 5), 11);
  neap_tensor_fini(&v);
  neap_tensor_fini(&w);
  CHECK_OK(neap_tensor_permute(&t, (int[]){1, 0}, &v, &error));
  CHECK(v.shape.dim[0] == 4 && v.stride[1] == 4);
  CHECK_FAILS(neap_tensor_reshape_view(&v, 1, (int64_t[]){12}, &w, &error), NEAP_SHAPE, "");
  neap_tensor_fini(&v);
  CHECK_OK(neap_tensor_reshape_view(&t, 2, (int64_t[]){2, -1}, &v, &error));
  CHECK_EQ(v.shape.dim[1], 6);
  neap_tensor_fini(&v);
  CHECK_OK(neap_tensor_expand(&t, &(neap_shape){3, {2, 3, 4}}, &v, &error));
  CHECK(v.stride[0] == 0);
  neap_tensor_fini(&v);
  CHECK_FAILS(neap_tensor_select(&t, 0, 3, &v, &error), NEAP_SHAPE, "");
  v = neap_tensor_retain(&t);
  neap_tensor_fini(&t); /* v holds the storage */
  CHECK(t.storage == NULL && at(&v, 11) == 11);
  neap_tensor_fini(&v);
}

static void count_release(void *owner) { ++*(int *)owner; }

TEST(bytes_of_the_callers_own_are_borrowed) {
  double data[3] = {1, 2, 300};
  int n_released = 0;
  neap_tensor t = {0}, u = {0};
  CHECK_OK(neap_tensor_borrow(&t, NEAP_DTYPE_F64, &(neap_shape){1, {3}}, data, count_release,
                              &n_released, &error));
  CHECK(neap_tensor_data(&t) == (char *)data);
  CHECK_OK(neap_tensor_new(&u, NEAP_DTYPE_U8, &(neap_shape){1, {3}}, &error));
  CHECK_OK(neap_tensor_copy(&u, &t, &error));
  CHECK_NEAR(at(&u, 2), 255, 0); /* saturated */
  neap_element_set_i64(u.dtype, neap_tensor_data(&u), 0, 7);
  CHECK_NEAR(at(&u, 0), 7, 0);
  neap_tensor_fini(&t);
  CHECK_EQ(n_released, 1);
  neap_tensor_fini(&u);
  CHECK_FAILS(neap_tensor_borrow(&t, NEAP_DTYPE_F64, &(neap_shape){1, {-3}}, data, count_release,
                                 &n_released, &error),
              NEAP_SHAPE, "borrowed");
  CHECK_EQ(n_released, 1);
}

TEST(tensors_have_text_and_hashes) {
  neap_tensor t = counted(2, 2), u = counted(2, 2), v = {0};
  char a[33], b[33], *text = NULL;
  CHECK_OK(neap_tensor_text(&t, NULL, "t", &text, &error));
  CHECK(text != NULL && strstr(text, "t f32 (2,2) 16 B") != NULL);
  neap_free(text);
  CHECK_OK(neap_tensor_hash(&t, a, &error));
  CHECK_OK(neap_tensor_hash(&u, b, &error));
  CHECK(strlen(a) == 32 && strcmp(a, b) == 0);
  neap_element_set(u.dtype, neap_tensor_data(&u), 0, -0.0);
  CHECK_OK(neap_tensor_hash(&u, b, &error));
  CHECK(strcmp(a, b) != 0);
  CHECK_OK(neap_tensor_permute(&t, (int[]){1, 0}, &v, &error));
  CHECK_FAILS(neap_tensor_hash(&v, b, &error), NEAP_ARGUMENT, "contiguous");
  neap_tensor_fini(&t), neap_tensor_fini(&u), neap_tensor_fini(&v);
}

TEST(blobs_are_fed_fetched_shared_and_viewed) {
  neap_workspace *ws = NULL;
  neap_tensor t = counted(2, 3), got = {0};
  uint64_t generation = 1;
  CHECK_OK(neap_workspace_open(1, &ws, &error));
  CHECK_OK(neap_workspace_feed(ws, "x", &t, false, &error));
  CHECK_OK(neap_workspace_fetch(ws, "x", &got, &error));
  CHECK(got.storage != t.storage && at(&got, 5) == 5);
  neap_tensor_fini(&got);
  CHECK_OK(neap_workspace_feed(ws, "shared", &t, true, &error));
  CHECK_OK(neap_workspace_view(ws, "shared", &got, &generation, &error));
  CHECK(got.storage == t.storage && generation == 0);
  neap_tensor_fini(&got);
  CHECK_FAILS(neap_workspace_fetch(ws, "y", &got, &error), NEAP_NAME, "y");
  CHECK(got.storage == NULL);
  (void)neap_workspace_generation(ws);
  CHECK(neap_workspace_retain(ws) == ws);
  neap_workspace_release(ws);
  CHECK(neap_workspace_has(ws, "x"));
  neap_workspace_release(ws);
  neap_tensor_fini(&t);
}

TEST(a_record_says_what_an_op_takes_and_gives) {
  const neap_op *conv = neap_op_find("Conv");
  char *text = NULL;
  CHECK(conv != NULL);
  if (conv == NULL) return;
  neap_op_record r = neap_op_read(conv);
  CHECK(strcmp(r.name, "Conv") == 0 && strcmp(neap_op_name(conv), "Conv") == 0);
  CHECK(r.n_input >= 2 && strcmp(r.input[1].name, "w") == 0 && r.n_output >= 1);
  CHECK(r.gradient && !r.no_grad && !r.control && !r.random && r.n_kernel > 0);
  CHECK_EQ(r.n_attr, neap_op_n_attrs(conv));
  int pad = neap_op_attr_index(conv, "pad");
  CHECK(pad >= 0 && neap_op_attr_at(conv, pad) == &r.attr[pad]);
  CHECK_EQ(neap_op_attr_index(conv, "pda"), -1);
  CHECK_EQ(neap_op_n_results(neap_op_find("Dropout")), 1); /* the mask is for its backward */
  CHECK(neap_op_read(neap_op_find("If")).control && neap_op_read(neap_op_find("Dropout")).random);
  CHECK(neap_op_find("Rellu") == NULL && strcmp(neap_op_suggest("Rellu"), "Relu") == 0);
  CHECK_OK(neap_op_help(conv, &text, &error));
  CHECK(text != NULL && strstr(text, "pad") != NULL);
  neap_free(text);
  for (int i = 1; i < neap_op_count(); i++)
    CHECK(strcmp(neap_op_name(neap_op_at(i - 1)), neap_op_name(neap_op_at(i))) < 0);
}

TEST(an_op_runs_on_tensors_at_once) {
  neap_tensor t = counted(2, 3), y = {0}, pair[2] = {{0}};
  const neap_set axes[] = {NEAP_SET_INTS("axes", 1, ((int64_t[]){0})), {0}};
  CHECK_OK(neap_run_op("Sum", 1, &t, axes, 1, &y, &error));
  CHECK(y.shape.n_dim == 1 && y.shape.dim[0] == 3 && at(&y, 2) == 7);
  neap_tensor_fini(&y);
  CHECK_FAILS(neap_run_op("Sum", 1, &t, (neap_set[]){NEAP_SET_INT("axe", 1), {0}}, 1, &y, &error),
              NEAP_ATTRIBUTE, "axe");
  CHECK_FAILS(neap_run_op("Summ", 1, &t, NULL, 1, &y, &error), NEAP_NAME, "Summ");
  CHECK_FAILS(neap_run_op("If", 1, &t, NULL, 1, &y, &error), NEAP_ARGUMENT, "net only");
  CHECK_FAILS(neap_run_op("MatMul", 2, (neap_tensor[]){t, t}, NULL, 1, &y, &error), NEAP_SHAPE, "");
  CHECK(y.storage == NULL);
  const neap_set half[] = {NEAP_SET_FLOAT("rate", 0.5), NEAP_SET_INT("training", 1), {0}};
  neap_tensor many = counted(64, 64);
  char a[33], b[33];
  for (int i = 0; i < 2; i++) { /* the same draws after the same seed */
    neap_draw_seed(5);
    CHECK_OK(neap_run_op("Dropout", 1, &many, half, 1, &pair[i], &error));
  }
  CHECK_OK(neap_tensor_hash(&pair[0], a, &error));
  CHECK_OK(neap_tensor_hash(&pair[1], b, &error));
  CHECK(strcmp(a, b) == 0);
  for (int i = 0; i < 2; i++) neap_tensor_fini(&pair[i]);
  neap_tensor_fini(&many);
  neap_tensor_fini(&t);
}

static int64_t watched;
static void watch(int64_t delta) { watched += delta; }

TEST(a_process_knows_its_memory_threads_and_time) {
  char text[160];
  neap_memory_stats before = neap_memory_read();
  neap_memory_watch(watch);
  neap_tensor t = counted(100, 100);
  CHECK(neap_memory_read().held_bytes[NEAP_DATA_BYTES] >=
        before.held_bytes[NEAP_DATA_BYTES] + 40000);
  CHECK(watched >= 40000);
  neap_tensor_fini(&t);
  CHECK_EQ(watched, 0);
  neap_memory_watch(NULL);
  neap_memory_reset_high();
  CHECK_EQ(neap_memory_read().held_bytes[NEAP_DATA_BYTES], before.held_bytes[NEAP_DATA_BYTES]);
  neap_memory_fail_nth(1, false);
  CHECK_FAILS(neap_tensor_new(&t, NEAP_DTYPE_F32, &(neap_shape){1, {4}}, &error), NEAP_MEMORY, "");
  CHECK(neap_memory_failed());
  neap_memory_fail_nth(0, false);
  int64_t reserved = -1, used = -1;
  neap_pool_totals(&reserved, &used);
  CHECK(reserved >= 0 && used >= 0 && used <= reserved);
  CHECK(neap_process_resident_bytes() > 0 && neap_process_resident_peak_bytes() > 0);
  neap_threads_set(2);
  CHECK_EQ(neap_threads(), 2);
  if (neap_threads_complaint(text)) CHECK(text[0] != '\0');
  int64_t ns = neap_clock_ns();
  CHECK(neap_clock_ns() >= ns);
  CHECK(neap_n_planned() >= 0 && neap_n_built() >= 0);
  neap_kernel_set_text(text);
  CHECK(strstr(text, "blas") != NULL && neap_instruction_set()[0] != '\0');
}

TEST(messages_and_names_are_made_as_neaps_own) {
  neap_error error = {0};
  char text[24];
  double bytes = 0;
  CHECK_EQ(neap_fail(&error, NEAP_NAME, "there is no \"%s\"", "x"), NEAP_NAME);
  CHECK_EQ(neap_fail(&error, NEAP_SHAPE, "later"), NEAP_NAME); /* the first message stays */
  CHECK(error.code == NEAP_NAME && strcmp(error.message, "there is no \"x\"") == 0);
  CHECK_EQ(neap_hint(&error, "try %d", 3), NEAP_NAME);
  CHECK(strcmp(error.hint, "try 3") == 0);
  neap_error_clear(&error);
  CHECK_EQ(neap_fail_memory(&error, 4096, "a list"), NEAP_MEMORY);
  CHECK(strstr(error.message, "a list") != NULL);
  CHECK(neap_bytes_parse("8 MiB", &bytes) && bytes == 8 << 20);
  CHECK(!neap_bytes_parse("8 MiBs", &bytes));
  CHECK(strcmp(neap_bytes_text(8 << 20, text), "8.0 MiB") == 0);
  CHECK(neap_text_distance("conv", "Cnov") == 2 || neap_text_distance("conv", "Cnov") == 1);
  CHECK(neap_intern("blob") == neap_intern_n("blobs", 4));
}

TEST(the_library_has_its_files_in_it) {
  const char *path = NULL, *text = NULL;
  size_t n = 0;
  text = neap_embedded_find("db/queries/peak.sql", &n);
  CHECK(text != NULL && strlen(text) == n);
  CHECK(neap_embedded_find("db/queries/none.sql", NULL) == NULL);
  CHECK(neap_embedded_at(0, &n, &path) != NULL && neap_embedded_find(path, NULL) != NULL);
  CHECK(neap_embedded_at(1 << 20, NULL, NULL) == NULL);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(dtypes_and_shapes_have_names),
             T(views_share_the_bytes_and_copies_do_not), T(bytes_of_the_callers_own_are_borrowed),
             T(tensors_have_text_and_hashes), T(blobs_are_fed_fetched_shared_and_viewed),
             T(a_record_says_what_an_op_takes_and_gives), T(an_op_runs_on_tensors_at_once),
             T(a_process_knows_its_memory_threads_and_time),
             T(messages_and_names_are_made_as_neaps_own), T(the_library_has_its_files_in_it));
}
