/* test_ops_movement.c: ops that move elements, and layouts. */
#include "lane.h"
#include "op_run.h"

/* ---- movement -------------------------------------------------------------------------------- */

static void check_permute(neap_dtype dtype, neap_shape shape, const int64_t *axes) {
  op_call c = new_call("Permute", 1, 1);
  c.in[0] = tensor(dtype, shape);
  if (axes != NULL) attr(&c, "axes")->n = shape.n_dim, attr(&c, "axes")->ints = axes;
  run_op(&c);
  int64_t wrong = 0;
  for (int64_t i = 0; i < elems(&c.out[0]); i++) {
    int64_t y[NEAP_MAX_DIM], x[NEAP_MAX_DIM];
    unravel(&c.out[0].type.shape, i, y);
    for (int d = 0; d < shape.n_dim; d++) x[axes == NULL ? shape.n_dim - 1 - d : axes[d]] = y[d];
    wrong += get(&c.out[0], i) != get(&c.in[0], ravel(&shape, x));
  }
  CHECK_EQ(wrong, 0);
  release_all();
}

TEST(permute_moves_every_element) {
  neap_dtype dtypes[] = {NEAP_DTYPE_U8, NEAP_DTYPE_F32, NEAP_DTYPE_F64, NEAP_DTYPE_BF16};
  for (int t = 0; t < NEAP_COUNT(dtypes); t++) {
    check_permute(dtypes[t], SHAPE(2, 3, 4), NULL);
    check_permute(dtypes[t], SHAPE(67, 35), (int64_t[]){1, 0});
    check_permute(dtypes[t], SHAPE(3, 70, 41), (int64_t[]){0, 2, 1});
    check_permute(dtypes[t], SHAPE(2, 5, 6, 16), (int64_t[]){0, 2, 1, 3});
    check_permute(dtypes[t], SHAPE(2, 3, 4, 5), (int64_t[]){2, 0, 3, 1});
    check_permute(dtypes[t], SHAPE(4, 1, 9), (int64_t[]){2, 1, 0});
    check_permute(dtypes[t], SHAPE(0, 3), NULL);
    check_permute(dtypes[t], scalar, NULL);
    check_permute(dtypes[t], SHAPE(300, 257, 2), (int64_t[]){1, 0, 2});
  }
}

TEST(concat_and_split_are_inverse) {
  for (int64_t axis = 0; axis < 3; axis++) {
    op_call cat = new_call("Concat", 3, 1), split = new_call("Split", 1, 3);
    int64_t sizes[] = {2, 0, 5};
    for (int i = 0; i < 3; i++) {
      neap_shape shape = SHAPE(3, 4, 6);
      shape.dim[axis] = sizes[i];
      cat.in[i] = tensor(NEAP_DTYPE_F32, shape);
    }
    set_int(&cat, "axis", axis), set_int(&split, "axis", axis - 3);
    SET_INTS(&split, "sizes", 2, 0, 5);
    run_op(&cat);
    CHECK_EQ(cat.out[0].type.shape.dim[axis], 7);
    split.in[0] = cat.out[0];
    run_op(&split);
    for (int i = 0; i < 3; i++) CHECK(same_bytes(&split.out[i], &cat.in[i]));
    int64_t first[3] = {0, 0, 0}; /* the third part starts at 2 */
    first[axis] = 2;
    CHECK(get(&cat.out[0], ravel(&cat.out[0].type.shape, first)) == get(&cat.in[2], 0));
    release_all();
  }
  op_call bad = new_call("Concat", 2, 1);
  bad.in[0] = tensor(NEAP_DTYPE_F32, SHAPE(2, 3)), bad.in[1] = tensor(NEAP_DTYPE_F32, SHAPE(3, 3));
  CHECK_FAILS(infer(&bad, &error), NEAP_SHAPE, "agree");
  op_call uneven = new_call("Split", 1, 2);
  uneven.in[0] = tensor(NEAP_DTYPE_F32, SHAPE(2, 3));
  CHECK_FAILS(infer(&uneven, &error), NEAP_SHAPE, "evenly");
  release_all();
}

TEST(slice_takes_the_range_and_its_gradient_puts_it_back) {
  op_call c = new_call("Slice", 1, 1), back = new_call("SliceGrad", 1, 1);
  c.in[0] = tensor(NEAP_DTYPE_F32, SHAPE(6, 2, 5));
  SET_INTS(&c, "starts", 1, 0, -1);
  SET_INTS(&c, "ends", 5, -1, 2);
  SET_INTS(&c, "steps", 2, 1, -2);
  run_op(&c);
  CHECK_EQ(elems(&c.out[0]), 8);
  CHECK_EQ(c.out[0].type.shape.dim[0], 2);
  CHECK_EQ(c.out[0].type.shape.dim[2], 2);
  memcpy(back.attrs, c.attrs, sizeof c.attrs);
  set_shape(&back, &c.in[0].type.shape);
  back.in[0] = c.out[0];
  run_op(&back);
  double left = 0;
  for (int64_t a = 0; a < 6; a++)
    for (int64_t b = 0; b < 2; b++)
      for (int64_t d = 0; d < 5; d++) {
        int64_t at = (a * 2 + b) * 5 + d;
        bool inside = (a == 1 || a == 3) && (d == 4 || d == 2);
        if (inside)
          CHECK(get(&c.out[0], ((a / 2) * 2 + b) * 2 + (d == 4 ? 0 : 1)) == get(&c.in[0], at));
        left += fabs(get(&back.out[0], at) - (inside ? get(&c.in[0], at) : 0));
      }
  CHECK(left == 0);
  SET_INTS(&c, "ends", 7, -1, 2);
  CHECK_FAILS(infer(&c, &error), NEAP_SHAPE, "2..7");
  release_all();
}

TEST(slice_survives_positions_at_the_ends_of_the_numbers) {
  static const int64_t ends[] = {INT64_MIN, INT64_MIN + 1, -6,       -5, -1, 0, 1, 5,
                                 6,         INT64_MAX - 1, INT64_MAX};
  static const int64_t steps[] = {INT64_MIN, INT64_MIN + 1, -1, 1, INT64_MAX};
  op_call c = new_call("Slice", 1, 1);
  c.in[0] = tensor(NEAP_DTYPE_F32, SHAPE(5));
  for (int s = 0; s < NEAP_COUNT(ends); s++)
    for (int e = 0; e < NEAP_COUNT(ends); e++)
      for (int t = 0; t < NEAP_COUNT(steps); t++) {
        SET_INTS(&c, "starts", ends[s]);
        SET_INTS(&c, "ends", ends[e]);
        SET_INTS(&c, "steps", steps[t]);
        neap_error error = {0};
        neap_status status = infer(&c, &error);
        CHECK(status == NEAP_OK || status == NEAP_SHAPE);
        if (status == NEAP_OK)
          CHECK(c.out[0].type.shape.dim[0] >= 0 && c.out[0].type.shape.dim[0] <= 5);
      }
  SET_INTS(&c, "starts", 0);
  SET_INTS(&c, "ends", -1);
  SET_INTS(&c, "steps", INT64_MAX);
  run_op(&c);
  CHECK_EQ(elems(&c.out[0]), 1); /* one step leads out */
  SET_INTS(&c, "starts", -1);
  SET_INTS(&c, "ends", 1);
  SET_INTS(&c, "steps", INT64_MIN);
  run_op(&c);
  CHECK(elems(&c.out[0]) == 1 && get(&c.out[0], 0) == get(&c.in[0], 4));
  SET_INTS(&c, "starts", INT64_MIN);
  SET_INTS(&c, "ends", -1);
  SET_INTS(&c, "steps", 1);
  CHECK_FAILS(infer(&c, &error), NEAP_SHAPE, "leaves a dimension of 5");
  release_all();
}

TEST(expand_repeats) {
  op_call c = new_call("Expand", 1, 1);
  c.in[0] = tensor(NEAP_DTYPE_F64, SHAPE(3, 1));
  SET_INTS(&c, "shape", 2, -1, 4);
  run_op(&c);
  CHECK_EQ(elems(&c.out[0]), 24);
  for (int64_t i = 0; i < 24; i++) CHECK(get(&c.out[0], i) == get(&c.in[0], i / 4 % 3));
  SET_INTS(&c, "shape", 2, 4, 4);
  CHECK_FAILS(infer(&c, &error), NEAP_SHAPE, "broadcast");
  release_all();
}

TEST(reshape_finds_the_free_size) {
  op_call c = new_call("Reshape", 1, 1);
  c.in[0] = tensor(NEAP_DTYPE_F32, SHAPE(2, 3, 4));
  SET_INTS(&c, "shape", 0, -1);
  run_op(&c);
  CHECK_EQ(c.out[0].type.shape.dim[1], 12);
  CHECK(memcmp(c.out[0].data, c.in[0].data, 96) == 0);
  SET_INTS(&c, "shape", 5, -1);
  CHECK_FAILS(infer(&c, &error), NEAP_SHAPE, "24 elements");
  SET_INTS(&c, "shape", -1, -1);
  CHECK_FAILS(infer(&c, &error), NEAP_ATTRIBUTE, "one -1");
  op_call flat = new_call("Flatten", 1, 1), squeeze = new_call("Squeeze", 1, 1),
          un = new_call("Unsqueeze", 1, 1);
  flat.in[0] = tensor(NEAP_DTYPE_F32, SHAPE(2, 3, 4, 5));
  run_op(&flat);
  CHECK_EQ(flat.out[0].type.shape.n_dim, 2);
  CHECK_EQ(flat.out[0].type.shape.dim[1], 60);
  un.in[0] = flat.out[0];
  SET_INTS(&un, "axes", 0, -1);
  run_op(&un);
  CHECK_EQ(un.out[0].type.shape.n_dim, 4);
  CHECK_EQ(un.out[0].type.shape.dim[3], 1);
  squeeze.in[0] = un.out[0];
  run_op(&squeeze);
  CHECK(same_bytes(&squeeze.out[0], &flat.out[0]));
  release_all();
}

TEST(embedding_looks_up_adds_up_and_reports) {
  op_call c = new_call("Embedding", 2, 1), back = new_call("EmbeddingGrad", 2, 1);
  c.in[0] = tensor(NEAP_DTYPE_I32, SHAPE(40));
  int32_t *ids = c.in[0].data;
  for (int i = 0; i < 40; i++) ids[i] = i * 7 % 5;
  c.in[1] = tensor(NEAP_DTYPE_F32, SHAPE(5, 70));
  run_op(&c);
  for (int64_t i = 0; i < 40 * 70; i++)
    CHECK(get(&c.out[0], i) == get(&c.in[1], ids[i / 70] * 70 + i % 70));
  back.in[0] = c.in[0], back.in[1] = c.out[0];
  set_shape(&back, &c.in[1].type.shape);
  run_op(&back);

  /* each id comes 8 times */
  for (int64_t i = 0; i < 5 * 70; i++) CHECK_NEAR(get(&back.out[0], i), 8 * get(&c.in[1], i), 1e-5);
  op_call one = back;
  one.n_thread = 1, one.out[0].data = NULL;
  run_op(&one);
  CHECK(same_bytes(&one.out[0], &back.out[0]));
  CHECK(!c.fault.set);
  ids[3] = 5, ids[4] = -1;
  run_op(&c);
  CHECK(c.fault.set);
  CHECK(strstr(c.fault.message, "out of range for 5") != NULL);
  for (int64_t d = 0; d < 140; d++) CHECK(get(&c.out[0], 3 * 70 + d) == 0);
  run_op(&back);
  release_all();
}

/* ---- layouts --------------------------------------------------------------------------------- */

static void reorder(neap_operand *in, neap_operand *out, const neap_layout *layout) {
  op_call c = new_call("Reorder", 1, 1);
  c.in[0] = *in;
  c.out[0].layout = *layout;
  run_op(&c);
  *out = c.out[0];
}

static void check_reorder(neap_dtype dtype, neap_shape shape, const char *from, const char *to) {
  neap_operand plain = tensor(dtype, shape), a, b, back;
  neap_layout layout[2], none = {0};
  CHECK(neap_layout_from_text(from, 0, &layout[0]) && neap_layout_from_text(to, 0, &layout[1]));

  /* There and back again: over two layouts, so that neither is plain in one of the steps. */
  reorder(&plain, &a, &layout[0]);
  reorder(&a, &b, &layout[1]);
  reorder(&b, &back, &none);
  CHECK(same_bytes(&back, &plain));

  /* Each element where the definition has it; what is between holds zeros, which kernels rely
   * on. */
  int64_t lanes = neap_operand_lanes(&b), wrong = 0, not_zero = 0;
  bool *seen = buffer((size_t)lanes * sizeof *seen);
  memset(seen, 0, (size_t)lanes * sizeof *seen);
  for (int64_t i = 0; i < elems(&plain); i++) {
    const int64_t at = lane(&plain.type, &layout[1], i);
    seen[at] = true;
    wrong += get(&b, at) != get(&plain, i);
  }
  for (int64_t i = 0; i < lanes; i++) not_zero += !seen[i] && get(&b, i) != 0;
  CHECK_EQ(wrong, 0);
  CHECK_EQ(not_zero, 0);
  release_all();
}

TEST(reorder_keeps_values_and_zeroes_padding) {
  static const char *const layouts[] = {"plain",   "abcd",        "acdb",        "abcd:16b",
                                        "abcd:8b", "abcd:16b16a", "bacd:16a16b", "abcd:4b16a4b",
                                        "cdba:8a", "abcd:12b"};
  const neap_shape shapes[] = {SHAPE(2, 20, 5, 7), SHAPE(50, 3, 3, 3), SHAPE(17, 50, 1, 1),
                               SHAPE(1, 16, 4, 4), SHAPE(3, 1, 2, 2),  SHAPE(33, 64, 3, 3)};
  for (int s = 0; s < NEAP_COUNT(shapes); s++)
    for (int i = 0; i < NEAP_COUNT(layouts); i++)
      for (int j = 0; j < NEAP_COUNT(layouts); j++)
        check_reorder(NEAP_DTYPE_F32, shapes[s], layouts[i], layouts[j]);
  check_reorder(NEAP_DTYPE_U8, shapes[0], "acdb", "abcd:16b");
  check_reorder(NEAP_DTYPE_BF16, shapes[0], "plain", "abcd:16b");
  check_reorder(NEAP_DTYPE_F64, shapes[0], "plain", "abcd:8b");
  check_reorder(NEAP_DTYPE_F32, SHAPE(20, 30), "plain", "ab:16a");
  check_reorder(NEAP_DTYPE_F32, SHAPE(0, 20, 3, 3), "plain", "abcd:16b");
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(permute_moves_every_element), T(concat_and_split_are_inverse),
             T(slice_takes_the_range_and_its_gradient_puts_it_back),
             T(slice_survives_positions_at_the_ends_of_the_numbers), T(expand_repeats),
             T(reshape_finds_the_free_size), T(embedding_looks_up_adds_up_and_reports),
             T(reorder_keeps_values_and_zeroes_padding));
}
