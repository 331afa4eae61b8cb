/* test_net_memory.c: nets while memory is refused, hostile text, and what a mark takes back. */
#include "small_net.h"

/* Everything a text can hold: inits where there are any, subnets, Free, Gradient, lists, floats. */
static const char full_text[] =
  "net full\n"
  "input x f32 (4,6) at full.lua:1\n"
  "input c bool ()\n"
  "param w f32 (5,6)\n"
  "param frozen f32 (5) frozen\n"
  "state s i64 ()\n"
  "state m f32 (3) = Constant { value = 0.30000000000000004 }\n"
  "gradient g f32 (2)\n"
  "fc_1 = FC(x, w, frozen) { axis = -1 } at full.lua:7\n"
  "h = Relu(fc_1) as block/relu_1 in block at full.lua:8\n"
  "Free(fc_1) as free_1\n"
  "subnet then\n"
  "  input p\n"
  "  y = Relu(p) as relu_1\n"
  "  takes h\n"
  "  gives y\n"
  "end\n"
  "subnet else\n"
  "  subnet deeper\n"
  "    z = Relu(h) as relu_1\n"
  "    takes h\n"
  "    gives z\n"
  "  end\n"
  "  y = If(c, h) { then_net = deeper } as if_1\n"
  "  takes h\n"
  "  gives y\n"
  "end\n"
  "y = If(c, h) { then_net = then, else_net = else } as if_1\n"
  "loss = Sum(y) as sum_1\n"
  "w_grad = Gradient(loss, w) as gradient_1\n"
  "keep h\n"
  "keep y\n"
  "outputs loss\n";

TEST(everything_a_text_can_hold_round_trips) {
  check_round_trip(full_text, true);
  neap_net *net = NULL, *copy = NULL;
  CHECK_OK(neap_net_read(full_text, &net, &error));
  if (net == NULL) return;
  CHECK_OK(neap_net_clone(net, &copy, &error));
  char *text = text_of(copy, true);
  CHECK(strcmp(text, full_text) == 0);
  CHECK(neap_net_find_blob(copy, "w_grad")->role == NEAP_ROLE_GRADIENT);
  CHECK(neap_net_find_blob(copy, "loss")->role == NEAP_ROLE_OUTPUT);
  CHECK(neap_net_find_blob(copy, "h")->keep);
  free(text);
  neap_net_free(copy);
  neap_net_free(net);
}

/* Cuts and bit flips of a good text: an error or a net, never anything else. */
TEST(hostile_text_never_crashes) {
  const char *text = full_text;
  size_t n = strlen(text);
  for (size_t i = 0; i < n; i++) {
    for (int bit = -1; bit < 8; bit++) {
      char *copy = strdup(text);
      if (bit < 0)
        copy[i] = '\0';
      else
        copy[i] = (char)(copy[i] ^ (1 << bit));
      neap_net *got = NULL;
      neap_error error = {0};
      neap_status status = neap_net_read(copy, &got, &error);
      CHECK(status == NEAP_OK ? got != NULL
                              : status == NEAP_DATA && got == NULL && error.message[0] != '\0');
      neap_net_free(got);
      free(copy);
    }
  }

  /* Subnets inside each other without end. */
  neap_buffer deep = {0};
  neap_buffer_add(&deep, "net f\n");
  for (int i = 0; i < 100000; i++) neap_buffer_add(&deep, "subnet s\n");
  neap_net *got = NULL;
  CHECK_FAILS(neap_net_read(deep.text, &got, &error), NEAP_DATA, "fewer subnets");
  neap_buffer_fini(&deep);
}

static neap_status read_full(neap_error *error) {
  neap_net *net = NULL, *copy = NULL;
  neap_status status = neap_net_read(full_text, &net, error);
  if (status == NEAP_OK) status = neap_net_rename(net, 1, LIST("h"), LIST("hidden"), &copy, error);
  if (status == NEAP_OK) status = neap_net_add_gradient(copy, "loss", 0, NULL, NULL, NULL, error);
  neap_net_free(net);
  neap_net_free(copy);
  return status;
}

static neap_status build_all(neap_error *error) {
  neap_net *net = NULL, *copy = NULL, *again = NULL;
  neap_buffer text = {0};
  neap_status status = build(&net, error);
  if (status == NEAP_OK) status = neap_net_set_outputs(net, 1, LIST("h"), error);
  if (status == NEAP_OK) status = neap_net_rename(net, 1, LIST("x"), LIST("image"), &copy, error);
  if (status == NEAP_OK) {
    neap_net_print(copy, true, &text);
    status =
      text.failed ? neap_fail(error, NEAP_MEMORY, "text") : neap_net_read(text.text, &again, error);
  }
  neap_buffer_fini(&text);
  neap_net_free(net);
  neap_net_free(copy);
  neap_net_free(again);
  return status;
}

TEST(every_refused_allocation_is_an_error_and_leaks_nothing) {
  neap_error error = {0};
  CHECK_EQ(build_all(&error), NEAP_OK); /* the name table has grown */
  CHECK_EQ(read_full(&error), NEAP_OK);
  if (error.code != NEAP_OK) printf("  %s\n", error.message);
  int64_t live = neap_memory_read().n_live;
  int64_t n = 1;
  for (;; n++) {
    neap_error_clear(&error);
    neap_memory_fail_nth_block(n);
    neap_status status = build_all(&error);
    if (status == NEAP_OK) status = read_full(&error);
    bool failed = neap_memory_failed();
    neap_memory_fail_nth(0, false);
    CHECK_EQ(neap_memory_read().n_live, live);
    if (!failed) break;
    CHECK_EQ(status, NEAP_MEMORY);
    CHECK(error.message[0] != '\0');
    if (check_failures > 0) break;
  }
  CHECK(n > 60);
}

/* A net that a refused allocation hits can be built on as if nothing had been. */
TEST(a_refused_op_can_be_added_again) {
  for (int64_t n = 1; n < 40; n++) {
    neap_net *net = built();
    char *before = text_of(net, true);
    neap_memory_fail_nth_block(n);
    neap_error error = {0};
    neap_status status = add(net, "FC", 3, LIST("x", "w", "b"), NULL, &error);
    neap_memory_fail_nth(0, false);
    if (status != NEAP_OK) {
      char *after = text_of(net, true);
      CHECK(strcmp(before, after) == 0);
      free(after);
      neap_error again = {0};
      CHECK_EQ(add(net, "FC", 3, LIST("x", "w", "b"), NULL, &again), NEAP_OK);
    }
    CHECK(strcmp(neap_net_op_at(net, 3)->name, "block1/fc_2") == 0);
    free(before);
    neap_net_free(net);
    if (status == NEAP_OK) break;
  }
}

TEST(a_refusal_may_go_unread) {
  neap_net *net = NULL, *micro = NULL, *update = NULL;
  CHECK_OK(
    neap_net_read("net f\ninput x f32 (4,3)\nparam w f32 (2,3)\ny = FC(x, w)\nloss = "
                  "Mean(y)\nw_grad = Gradient(loss, w)\n"
                  "scaled = Mul(w_grad, loss)\n",
                  &net, &error));
  CHECK_FAILS(neap_net_split_micro(net, &micro, &update, &error), NEAP_GRAPH, "makes anew");
  CHECK(neap_net_split_micro(net, &micro, &update, NULL) == NEAP_GRAPH);
  neap_net_free(net);
  CHECK_OK(neap_net_new("f", &net, &error));
  neap_type huge = {NEAP_DTYPE_F32, NEAP_SHAPE(INT64_MAX, INT64_MAX)};
  CHECK(neap_net_declare(net, "x", NEAP_ROLE_INPUT, &huge, false, NULL, NULL, "f.lua:1", NULL) !=
        NEAP_OK);
  neap_error error = {0};
  CHECK(neap_net_declare(net, "x", NEAP_ROLE_INPUT, &huge, false, NULL, NULL, "f.lua:1", &error) !=
        NEAP_OK);
  CHECK(strcmp(error.blob, "x") == 0 && strcmp(error.line, "f.lua:1") == 0);
  neap_type small = {NEAP_DTYPE_F32, NEAP_SHAPE(2, 3)};
  CHECK(neap_net_declare(net, "y", NEAP_ROLE_INPUT, &small, false, NULL, NULL, NULL, NULL) ==
        NEAP_OK);
  neap_set set[] = {{"rate", {.given = true, .f = 2}}, {0}};
  neap_net_call call = {
    .type = "Dropout", .n_in = 1, .in = LIST("y"), .n_out = 1, .out = LIST("z"), .attrs = set};
  CHECK(neap_net_add(net, &call, NULL, NULL) == NEAP_ATTRIBUTE);
  CHECK(neap_net_add(net, &call, NULL, &error) != NEAP_OK);
  CHECK(strcmp(error.blob, "x") == 0); /* the first failure is told */
  neap_net_free(net);
}

TEST(what_is_taken_back_was_not_read) {
  neap_net *net = NULL, *yes, *no;
  CHECK_OK(neap_net_read("net f\ninput c bool ()\ninput x f32 (2)\nh = Relu(x)\n", &net, &error));
  CHECK_OK(neap_net_new_sub(net, "yes", &yes, &error));
  CHECK_OK(neap_net_new_sub(net, "no", &no, &error));
  int mark = neap_net_mark(net);
  CHECK_OK(add(yes, "Relu", 1, LIST("h"), "y", &error));
  CHECK_EQ(neap_net_n_outputs(net), 0);
  neap_net_end_mark(net, mark, false);
  CHECK_EQ(neap_net_n_outputs(net), 1);
  CHECK_OK(add(yes, "Relu", 1, LIST("x"), "y", &error));
  CHECK_OK(add(no, "Tanh", 1, LIST("x"), "y", &error));
  neap_net_call end = {.type = "Free", .n_in = 1, .in = LIST("h")};
  CHECK_OK(neap_net_add(net, &end, NULL, &error));
  neap_set set[] = {
    {"then_net", {.given = true, .net = yes}}, {"else_net", {.given = true, .net = no}}, {0}};
  CHECK_OK(neap_net_set_sub_interface(yes, 1, LIST("x"), 1, LIST("y"), &error));
  CHECK_OK(neap_net_set_sub_interface(no, 1, LIST("x"), 1, LIST("y"), &error));
  neap_net_call call = {
    .type = "If", .n_in = 2, .in = LIST("c", "x"), .n_out = 1, .out = LIST("y"), .attrs = set};
  CHECK_OK(neap_net_add(net, &call, NULL, &error));
  neap_net_free(net);
}

/* Each name that a subnet reads may be another value by the time its op reads it: all of them are,
 * and are not, once it is gone. */
TEST(what_a_subnet_has_read_is_taken_back_with_its_op) {
  neap_net *net = NULL, *yes, *no;
  char name[16], out[16];
  CHECK_OK(neap_net_read("net f\ninput c bool ()\ninput x f32 (2)\n", &net, &error));
  CHECK_OK(neap_net_new_sub(net, "yes", &yes, &error));
  CHECK_OK(neap_net_new_sub(net, "no", &no, &error));
  for (int version = 0; version < 2; version++)
    for (int k = 0; k < 60; k++) {
      snprintf(name, sizeof name, "h%d", k), snprintf(out, sizeof out, "own%d", k);
      CHECK_OK(add(net, "Relu", 1, LIST("x"), name, &error));
      if (version == 0) CHECK_OK(add(yes, "Neg", 1, LIST(name), out, &error));
    }
  CHECK_OK(add(no, "Neg", 1, LIST("x"), "own59", &error));
  CHECK_OK(neap_net_set_sub_interface(yes, 0, NULL, 1, LIST("own59"), &error));
  CHECK_OK(neap_net_set_sub_interface(no, 0, NULL, 1, LIST("own59"), &error));
  CHECK_EQ(neap_net_n_outputs(net), 60);
  neap_set set[] = {
    {"then_net", {.given = true, .net = yes}}, {"else_net", {.given = true, .net = no}}, {0}};
  neap_net_call call = {
    .type = "If", .n_in = 1, .in = LIST("c"), .n_out = 1, .out = LIST("y"), .attrs = set};
  for (int keep = 0; keep < 2; keep++) {
    int mark = neap_net_mark(net);
    CHECK_OK(neap_net_add(net, &call, NULL, &error));
    CHECK_EQ(neap_net_n_outputs(net), 1);
    neap_net_end_mark(net, mark, keep);
    CHECK_EQ(neap_net_n_outputs(net), keep ? 1 : 60);
  }
  neap_net_free(net);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(everything_a_text_can_hold_round_trips), T(hostile_text_never_crashes),
             T(every_refused_allocation_is_an_error_and_leaks_nothing),
             T(a_refused_op_can_be_added_again), T(a_refusal_may_go_unread),
             T(what_is_taken_back_was_not_read),
             T(what_a_subnet_has_read_is_taken_back_with_its_op));
}
