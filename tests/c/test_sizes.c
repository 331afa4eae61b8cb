/* test_sizes.c: sizes saturate, and what is too large gets nowhere: as a type, as a net from a
 * text, as a kernel's choice. */
#include "check.h"

#include "rewrite/rewrite.h"
#include "net/net.h"
#include "ops/op.h"

#define HUGE_COUNT ((int64_t)1 << 62)

TEST(sums_and_products_stop_at_too_large) {
  CHECK_EQ(neap_size_add(3, 4), 7);
  CHECK(neap_size_add(SIZE_MAX - 1, 1) == SIZE_MAX);
  CHECK(neap_size_add(SIZE_MAX - 1, 2) == NEAP_SIZE_TOO_LARGE);
  CHECK(neap_size_add(NEAP_SIZE_TOO_LARGE, 0) == NEAP_SIZE_TOO_LARGE);
  CHECK(neap_size_add(NEAP_SIZE_TOO_LARGE, NEAP_SIZE_TOO_LARGE) == NEAP_SIZE_TOO_LARGE);
  CHECK_EQ(neap_size_mul(6, 7), 42);
  CHECK(neap_size_mul((size_t)1 << 32, (size_t)1 << 32) == NEAP_SIZE_TOO_LARGE);
  CHECK(neap_size_mul(NEAP_SIZE_TOO_LARGE, 2) == NEAP_SIZE_TOO_LARGE);
  CHECK_EQ(neap_size_mul(NEAP_SIZE_TOO_LARGE, 0), 0);
  CHECK_EQ(neap_count_add(3, 4), 7);
  CHECK_EQ(neap_count_add(INT64_MAX, 1), NEAP_COUNT_TOO_LARGE);
  CHECK_EQ(neap_count_mul((int64_t)1 << 31, (int64_t)1 << 31), HUGE_COUNT);
  CHECK_EQ(neap_count_mul(HUGE_COUNT, 2), NEAP_COUNT_TOO_LARGE);
  CHECK_EQ(neap_size_of(5, 4), 20);
  CHECK(neap_size_of(NEAP_COUNT_TOO_LARGE, 1) == NEAP_SIZE_TOO_LARGE);
  CHECK(neap_size_of(HUGE_COUNT, 8) == NEAP_SIZE_TOO_LARGE);
}

TEST(aligning_does_not_wrap) {
  CHECK_EQ(neap_align(0), 0);
  CHECK_EQ(neap_align(1), 64);
  CHECK_EQ(neap_align(64), 64);
  CHECK_EQ(neap_align(65), 128);
  CHECK(neap_align(SIZE_MAX - 63) == SIZE_MAX - 63);
  CHECK(neap_align(SIZE_MAX - 62) == NEAP_SIZE_TOO_LARGE);
  CHECK(neap_align(NEAP_SIZE_TOO_LARGE) == NEAP_SIZE_TOO_LARGE);
}

static neap_status check(neap_dtype dtype, neap_shape shape, neap_error *error) {
  return neap_type_check(&(neap_type){dtype, shape}, "x", error);
}

TEST(a_type_is_checked_in_one_place) {
  const neap_dtype f32 = NEAP_DTYPE_F32, u8 = NEAP_DTYPE_U8;
  CHECK_OK(check(f32, (neap_shape){0}, &error));
  CHECK_OK(check(f32, NEAP_SHAPE(0, 3), &error));
  CHECK_OK(check(u8, NEAP_SHAPE((int64_t)1 << 47), &error));
  CHECK_OK(check(f32, NEAP_SHAPE((int64_t)1 << 25, 1 << 20), &error));
  CHECK_FAILS(check(u8, NEAP_SHAPE(((int64_t)1 << 47) + 1), &error), NEAP_SHAPE, "128.0 TiB");
  CHECK_FAILS(check(f32, NEAP_SHAPE(HUGE_COUNT, 4), &error), NEAP_SHAPE,
              "f32 (4611686018427387904,4)");
  CHECK_FAILS(check(f32, NEAP_SHAPE((int64_t)1 << 32, (int64_t)1 << 32), &error), NEAP_SHAPE,
              "more than");
  CHECK_FAILS(check(f32, NEAP_SHAPE(0, HUGE_COUNT, 4), &error), NEAP_SHAPE, "more than");
  CHECK_FAILS(check(f32, NEAP_SHAPE(2, -1), &error), NEAP_SHAPE, "negative");
  CHECK_FAILS(check(f32, NEAP_SHAPE(INT64_MIN), &error), NEAP_SHAPE, "negative");
  CHECK_FAILS(check(f32, (neap_shape){.n_dim = NEAP_MAX_DIM + 1}, &error), NEAP_SHAPE,
              "dimensions");
  CHECK_FAILS(check(f32, (neap_shape){.n_dim = -1}, &error), NEAP_SHAPE, "dimensions");
  CHECK_FAILS(check(NEAP_DTYPE_NONE, NEAP_SHAPE(1), &error), NEAP_DTYPE, "dtype");
  CHECK_FAILS(check((neap_dtype)77, NEAP_SHAPE(1), &error), NEAP_DTYPE, "unknown");
}

TEST(bytes_of_a_layout_saturate) {
  neap_type type = {NEAP_DTYPE_F32, NEAP_SHAPE(HUGE_COUNT, 3)};
  neap_layout plain = {0},
              blocked = {
                .kind = NEAP_LAYOUT_BLOCKED, .n_inner = 1, .inner_dim = {1}, .inner_block = {16}};
  CHECK(neap_layout_bytes(&type, &plain) == NEAP_SIZE_TOO_LARGE);
  CHECK(neap_layout_bytes(&type, &blocked) == NEAP_SIZE_TOO_LARGE);
  type.shape = NEAP_SHAPE(INT64_MAX, INT64_MAX);
  CHECK(neap_layout_bytes(&type, &blocked) == NEAP_SIZE_TOO_LARGE);
  type.shape = NEAP_SHAPE(2, 3);
  CHECK_EQ(neap_layout_bytes(&type, &plain), 24);
  CHECK_EQ(neap_layout_bytes(&type, &blocked), 128);
}

TEST(blocks_of_a_layout_are_1_to_255) {
  neap_layout layout;
  CHECK(neap_layout_from_text("abcd:16b", 0, &layout) && layout.inner_block[0] == 16);
  CHECK(neap_layout_from_text("abcd:255b", 0, &layout) && layout.inner_block[0] == 255);
  CHECK(!neap_layout_from_text("abcd:0b", 0, &layout));
  CHECK(!neap_layout_from_text("abcd:256b", 0, &layout));
  CHECK(!neap_layout_from_text("abcd:18446744073709551616b", 0, &layout));
}

TEST(axes_are_not_cut_to_32_bits) {
  CHECK_EQ(neap_axis(1, 2), 1);
  CHECK_EQ(neap_axis(-1, 2), 1);
  CHECK_EQ(neap_axis(-2, 2), 0);
  CHECK_EQ(neap_axis(2, 2), -1);
  CHECK_EQ(neap_axis(-3, 2), -1);
  CHECK_EQ(neap_axis((int64_t)1 << 32, 2), -1);
  CHECK_EQ(neap_axis(INT64_MIN, 2), -1);
  CHECK_EQ(neap_axis(INT64_MAX, 2), -1);
  CHECK_EQ(neap_axis_said(0), 0);
  CHECK_EQ(neap_axis_said(-1), -1);
  neap_count_from(1); /* as scripts have it */
  CHECK_EQ(neap_axis_said(0), 1);
  CHECK_EQ(neap_axis_said(-1), -1);
  CHECK_EQ(neap_axis_said(INT64_MAX), INT64_MAX);
  CHECK_EQ(neap_axis_said(INT64_MIN), INT64_MIN);
  neap_count_from(0);
}

/* The status of reading `text` and, when that goes well, of building its graph. */
static neap_status build(const char *text, neap_error *error) {
  neap_net *net = NULL;
  neap_graph *graph = NULL;
  neap_status status = neap_net_read(text, &net, error);
  if (status == NEAP_OK) status = neap_graph_prepare(net, NULL, &graph, error);
  neap_graph_free(graph);
  neap_net_free(net);
  return status;
}

TEST(what_infer_gives_is_checked) {
  CHECK_FAILS(
    build("net n\ninput x f32 (1)\ny = Expand(x) { shape = {4611686018427387904,4} }\noutputs y\n",
          &error),
    NEAP_SHAPE, "Expand \"y\": output y would be f32 (4611686018427387904,4)");
  CHECK_FAILS(
    build("net n\ny = Constant() { shape = {4294967296,4294967296} }\noutputs y\n", &error),
    NEAP_SHAPE, "Constant \"y\": output y would be f32 (4294967296,4294967296)");
  CHECK_FAILS(build("net n\ninput x f32 (1)\ny = Pad(x) { pads = {1048576,1048576} }\nz = "
                    "Expand(y) { shape = {1099511627776,-1} }\n"
                    "outputs z\n",
                    &error),
              NEAP_SHAPE, "Expand \"z\"");
  CHECK_FAILS(build("net n\ninput x f32 (2,3)\na, b, c = Split(x) { axis = 1, sizes = "
                    "{9223372036854775807,9223372036854775807,5} }\n"
                    "outputs a\n",
                    &error),
              NEAP_SHAPE, "Split \"a\": sizes");
  CHECK_FAILS(
    build("net n\ninput x f32 (2,3)\ny = Squeeze(x) { axes = {9223372036854775807} }\noutputs y\n",
          &error),
    NEAP_ATTRIBUTE, "out of range");
  CHECK_FAILS(
    build("net n\ninput x f32 (2,3)\ny = Softmax(x) { axis = 9223372036854775807 }\noutputs y\n",
          &error),
    NEAP_ATTRIBUTE, "out of range");
  CHECK_FAILS(
    build("net n\ninput x f32 (2,3)\ny = Softmax(x) { axis = 4294967296 }\noutputs y\n", &error),
    NEAP_ATTRIBUTE, "out of range");
}

TEST(declared_types_are_checked) {
  CHECK_FAILS(build("net n\ninput x f32 (4611686018427387904,4)\ny = Relu(x)\n", &error), NEAP_DATA,
              "blob \"x\" would be");
  CHECK_FAILS(build("net n\ninput x f32 (0,9223372036854775807)\ny = Relu(x)\n", &error), NEAP_DATA,
              "blob \"x\" would be");
  CHECK_FAILS(build("net n\ninput x f32 (-1)\ny = Relu(x)\n", &error), NEAP_DATA, "negative");
}

TEST(values_have_a_ceiling_together) {
  neap_buffer text = {0};
  neap_buffer_add(&text, "net n\ninput x u8 (140737488355328)\nv0 = Copy(x)\n");
  for (int i = 1; i < 600; i++) neap_buffer_add(&text, "v%d = Copy(v%d)\n", i, i - 1);
  CHECK_FAILS(build(text.text, &error), NEAP_GRAPH, "Copy \"v511\": the values of the graph");
  neap_buffer_fini(&text);
}

TEST(gradient_gives_as_many_as_it_is_asked_for) {
  CHECK_FAILS(build("net n\ninput x f32 (2)\nparam w f32 (2)\nm = Mul(x, w)\nl = Sum(m)\n"
                    "a, b, c, d, e, f, g, h, i, j, k = Gradient(l, w)\n",
                    &error),
              NEAP_DATA,
              "Gradient \"a\": expects as many outputs as blobs to differentiate by, 1, got 11");
  CHECK_FAILS(
    build("net n\nparam v f32 ()\nparam w f32 ()\nl = Mul(v, w)\na = Gradient(l, v, w)\n", &error),
    NEAP_DATA, "by, 2, got 1");
  CHECK_OK(build("net n\nparam v f32 ()\nparam w f32 ()\nl = Mul(v, w)\na, b = Gradient(l, v, w)\n",
                 &error));
}

/* Each level names the one below four times. */
static void add_level(neap_buffer *text, int depth) {
  if (depth == 0) {
    neap_buffer_add(text, "y = Relu(x)\n");
  } else {
    neap_buffer_add(text, "subnet s%d\n", depth);
    add_level(text, depth - 1);
    neap_buffer_add(text,
                    "end\na = If(c, x, c) { then_net = s%d, else_net = s%d }\n"
                    "y = If(c, a, c) { then_net = s%d, else_net = s%d }\n",
                    depth, depth, depth, depth);
  }
  neap_buffer_add(text, "takes x, c\ngives y\n");
}

/* Of `depth` levels, and perhaps its gradient; *bytes: how much building took at most. */
static neap_status build_nested(int depth, bool gradient, int64_t *bytes, neap_error *error) {
  neap_buffer text = {0};
  neap_buffer_add(&text, "net n\ninput c f32 (1)\nparam x f32 (2)\nsubnet top\n");
  add_level(&text, depth);
  neap_buffer_add(&text, "end\nz = If(c, x, c) { then_net = top, else_net = top }\n");
  if (gradient) neap_buffer_add(&text, "l = Sum(z)\ng = Gradient(l, x)\n");
  neap_memory_reset_high();
  int64_t before = neap_memory_read().held_bytes[NEAP_META_BYTES];
  neap_status status = build(text.text, error);
  *bytes = neap_memory_read().high_bytes[NEAP_META_BYTES] - before;
  neap_buffer_fini(&text);
  return status;
}

TEST(nets_are_counted_before_they_are_built) {
  int64_t bytes;
  CHECK_OK(build_nested(2, false, &bytes, &error));
  CHECK_OK(build_nested(2, true, &bytes, &error));
  CHECK_FAILS(build_nested(8, false, &bytes, &error), NEAP_DATA, "If \"");
  CHECK(bytes < 1 << 20);
  CHECK_FAILS(build_nested(24, false, &bytes, &error), NEAP_DATA,
              "more than 262144 ops or 16384 subnets");
  CHECK(bytes < 1 << 20);
}

TEST(a_backward_has_the_same_ceiling) {
  int64_t bytes;
  CHECK_OK(build_nested(6, false, &bytes, &error));
  CHECK_FAILS(build_nested(6, true, &bytes, &error), NEAP_GRAPH,
              "backward pass and subnets included");
  CHECK(bytes < (int64_t)1 << 29);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(sums_and_products_stop_at_too_large), T(aligning_does_not_wrap),
             T(a_type_is_checked_in_one_place), T(bytes_of_a_layout_saturate),
             T(blocks_of_a_layout_are_1_to_255), T(axes_are_not_cut_to_32_bits),
             T(what_infer_gives_is_checked), T(declared_types_are_checked),
             T(values_have_a_ceiling_together), T(gradient_gives_as_many_as_it_is_asked_for),
             T(nets_are_counted_before_they_are_built), T(a_backward_has_the_same_ceiling));
}
