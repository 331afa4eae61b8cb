/* test_net.c: nets as data: blobs, roles, schema errors, text and back, names, attributes. */
#include "small_net.h"

TEST(a_net_reads_as_it_was_written) {
  neap_net *net = built();
  CHECK_EQ(neap_net_n_ops(net), 3);
  CHECK_EQ(neap_net_n_blobs(net), 5);
  CHECK(strcmp(neap_net_op_at(net, 0)->name, "block1/fc_1") == 0);
  CHECK(strcmp(neap_net_op_at(net, 2)->out[0], "block1/relu_2") == 0);
  CHECK(neap_net_find_blob(net, "w")->role == NEAP_ROLE_PARAMETER);
  CHECK(neap_net_find_blob(net, "w")->trainable && !neap_net_find_blob(net, "b")->trainable);
  CHECK(neap_net_find_blob(net, "h")->role == NEAP_ROLE_ACTIVATION);
  CHECK(neap_net_find_blob(net, "nothing") == NULL);
  CHECK(neap_net_op_at(net, 3) == NULL && neap_net_op_at(net, -1) == NULL);

  /* FC's axis was not given: its default is there all the same. */
  CHECK(!neap_net_op_at(net, 0)->attrs[0].given);
  CHECK(!neap_net_is_train(net));
  neap_net_free(net);
}

TEST(outputs_are_what_nobody_reads_unless_named) {
  neap_net *net = built();
  CHECK_EQ(neap_net_n_outputs(net), 1);
  CHECK(strcmp(neap_net_output_at(net, 0), "block1/relu_2") == 0);
  CHECK(neap_net_output_at(net, 1) == NULL);

  /* Written again after it was read: the last version is unread. */
  CHECK_OK(add(net, "Relu", 1, LIST("block1/relu_2"), "h", &error));
  CHECK_EQ(neap_net_n_outputs(net), 1);
  CHECK(strcmp(neap_net_output_at(net, 0), "h") == 0);
  CHECK_OK(neap_net_set_outputs(net, 2, LIST("block1/relu_2", "x"), &error));
  CHECK_EQ(neap_net_n_outputs(net), 2);
  CHECK(neap_net_find_blob(net, "block1/relu_2")->role == NEAP_ROLE_OUTPUT);
  CHECK(neap_net_find_blob(net, "x")->role == NEAP_ROLE_INPUT);
  CHECK_FAILS(neap_net_set_outputs(net, 1, LIST("relu_9"), &error), NEAP_NAME,
              "blob \"relu_9\" is not defined");
  CHECK_FAILS(neap_net_set_outputs(net, 2, LIST("h", "h"), &error), NEAP_NAME, "named twice");
  CHECK_EQ(neap_net_n_outputs(net), 2);
  CHECK_OK(neap_net_set_outputs(net, 1, LIST("h"), &error));
  CHECK(neap_net_find_blob(net, "block1/relu_2")->role == NEAP_ROLE_ACTIVATION);
  neap_net_free(net);
}

TEST(names_are_drawn_unique_in_their_scope) {
  neap_net *net = built();
  int at = -1;
  const char *in = "x", *taken = "relu_1";
  neap_net_call call = {.type = "Relu", .n_in = 1, .in = &in};
  CHECK_OK(neap_net_add(net, &call, &at, &error));
  CHECK(strcmp(neap_net_op_at(net, at)->name, "relu_1") == 0);
  CHECK(strcmp(neap_net_op_at(net, at)->out[0], "relu_1") == 0);
  call.name = "a";
  call.scope = "deep/er";
  CHECK_OK(neap_net_add(net, &call, &at, &error));
  CHECK(strcmp(neap_net_op_at(net, at)->name, "deep/er/a") == 0);
  CHECK(strcmp(neap_net_op_at(net, at)->out[0], "deep/er/relu_1") == 0);
  CHECK_FAILS(neap_net_add(net, &call, &at, &error), NEAP_NAME, "Relu \"deep/er/a\": another op");
  call = (neap_net_call){.type = "Relu", .n_in = 1, .in = &in, .n_out = 1, .out = &taken};
  CHECK_OK(neap_net_add(net, &call, &at, &error));
  CHECK(strcmp(neap_net_op_at(net, at)->name, "relu_2") == 0);
  neap_net_free(net);
}

/* One bad call a line: status and words of its message. The net must stay as it was. */
TEST(each_schema_error_is_told_and_changes_nothing) {
  neap_net *net = built();
  char *before = text_of(net, true);
  uint64_t version = neap_net_version(net);

  /* The op, its operands and their number, and the names of what it makes. */
  CHECK_FAILS(add(net, "Rleu", 1, LIST("x"), "y", &error), NEAP_NAME,
              "unknown op type \"Rleu\", did you mean \"Relu\"?");
  CHECK_FAILS(add(net, "Relu", 1, LIST("hh"), "y", &error), NEAP_NAME,
              "Relu \"block1/relu_3\": blob \"hh\" is not defined here, did you mean \"h\"?");
  CHECK_FAILS(add(net, "Relu", 2, LIST("x", "h"), "y", &error), NEAP_GRAPH,
              "expects 1 input (x), got 2");
  CHECK_FAILS(add(net, "FC", 1, LIST("x"), "y", &error), NEAP_GRAPH, "FC \"block1/fc_2\": expects");
  CHECK_FAILS(add(net, "FC", 3, LIST("x", NULL, "b"), "y", &error), NEAP_GRAPH,
              "input w (number 1) is missing");
  CHECK_FAILS(add(net, "FC", 3, LIST("x", "w", "b"), "x", &error), NEAP_GRAPH,
              "can't be written in place over input x");
  CHECK_FAILS(add(net, "Relu", 1, LIST("x"), "a b", &error), NEAP_NAME, "white space");
  CHECK_FAILS(add(net, "Relu", 1, LIST("x"), "a(b", &error), NEAP_NAME, "a quote, parenthesis");
  CHECK_FAILS(add(net, "Relu", 1, LIST("x"), "", &error), NEAP_GRAPH, "can't be left out");
  CHECK_FAILS(add(net, "Relu", 1, LIST("x"), "=", &error), NEAP_NAME, "punctuation");

  neap_net_call two = {
    .type = "Relu", .n_in = 1, .in = LIST("x"), .n_out = 2, .out = LIST("p", "q")};
  CHECK_FAILS(neap_net_add(net, &two, NULL, &error), NEAP_GRAPH, "expects 1 output (y), got 2");

  /* Parts of a message are there for programs, too. */
  neap_error number = {0};
  CHECK_EQ(add(net, "Relu", 2, LIST("x", "h"), "y", &number), NEAP_GRAPH);
  CHECK(strcmp(number.expected, "1 input") == 0 && strcmp(number.got, "2") == 0);

  /* Attributes: misspelt, like none that there is, twice, and not there. */
  neap_set set[] = {NEAP_SET_INT("axs", 1), {0}};
  neap_net_call call = {
    .type = "FC", .n_in = 3, .in = LIST("x", "w", "b"), .n_out = 1, .out = LIST("y"), .attrs = set};
  CHECK_FAILS(neap_net_add(net, &call, NULL, &error), NEAP_ATTRIBUTE,
              "unknown attribute \"axs\", did you mean \"axis\"?");
  set[0].name = "qqqqqq";
  neap_error unknown = {0};
  CHECK_EQ(neap_net_add(net, &call, NULL, &unknown), NEAP_ATTRIBUTE);
  CHECK(strcmp(unknown.hint, "FC has: axis") == 0);
  neap_set twice[] = {NEAP_SET_INT("axis", 1), NEAP_SET_INT("axis", 1), {0}};
  call.attrs = twice;
  CHECK_FAILS(neap_net_add(net, &call, NULL, &error), NEAP_ATTRIBUTE, "given twice");
  neap_net_call bare = {
    .type = "FCGradInput", .n_in = 2, .in = LIST("x", "w"), .n_out = 1, .out = LIST("y")};
  CHECK_FAILS(neap_net_add(net, &bare, NULL, &error), NEAP_ATTRIBUTE,
              "attribute \"shape\" is missing");

  /* Declarations: of what is there as something else, and of what nothing can fill. */
  CHECK_FAILS(neap_net_declare(net, "h", NEAP_ROLE_INPUT, &x_type, false, NULL, NULL, NULL, &error),
              NEAP_NAME, "an op of net \"mlp\" makes it");
  CHECK_FAILS(neap_net_declare(net, "x", NEAP_ROLE_INPUT, &w_type, false, NULL, NULL, NULL, &error),
              NEAP_NAME, "declared already, as input f32 (64,784), got input f32 (10,784)");
  CHECK_FAILS(
    neap_net_declare(net, "z", NEAP_ROLE_OUTPUT, &w_type, false, NULL, NULL, NULL, &error),
    NEAP_ARGUMENT, "ops make those");
  CHECK_FAILS(
    neap_net_declare(net, "z", NEAP_ROLE_PARAMETER, &w_type, false, "Relu", NULL, NULL, &error),
    NEAP_GRAPH, "can't fill a blob");
  neap_type huge = {NEAP_DTYPE_F32, {3, {1LL << 31, 1LL << 31, 4}}};
  CHECK_FAILS(neap_net_declare(net, "z", NEAP_ROLE_INPUT, &huge, false, NULL, NULL, NULL, &error),
              NEAP_SHAPE, "blob \"z\" would be f32 (2147483648,2147483648,4), more than");
  CHECK_FAILS(neap_net_keep(net, "z", &error), NEAP_NAME, "not defined");

  /* The same once more is no error, and no change either. */
  CHECK_OK(neap_net_declare(net, "x", NEAP_ROLE_INPUT, &x_type, false, NULL, NULL, NULL, &error));
  CHECK(neap_net_version(net) == version);
  char *after = text_of(net, true);
  CHECK(strcmp(before, after) == 0);
  free(before);
  free(after);
  neap_net_free(net);
}

TEST(an_error_carries_op_blob_scope_and_line) {
  neap_net *net = built();
  neap_error error = {0};
  CHECK_EQ(add(net, "Relu", 1, LIST("nowhere_near"), "y", &error), NEAP_NAME);
  CHECK(strcmp(error.op, "Relu") == 0);
  CHECK(strcmp(error.blob, "nowhere_near") == 0);
  CHECK(strcmp(error.scope, "block1") == 0);
  CHECK(strcmp(error.line, "mlp.lua:7") == 0);
  CHECK(strstr(error.hint, "defined last: ") != NULL);
  neap_net_free(net);
}

TEST(text_reads_back_to_the_same_text) {
  neap_net *net = built();
  neap_set axis[] = {NEAP_SET_INT("axis", -1), {0}};
  neap_net_call call = {.type = "FC",
                        .n_in = 3,
                        .in = LIST("x", "w", "b"),
                        .n_out = 1,
                        .out = LIST("net"),
                        .attrs = axis,
                        .scope = "a/b",
                        .name = "fc",
                        .line = "dir with space/mlp.lua:9"};
  CHECK_OK(neap_net_add(net, &call, NULL, &error));
  CHECK_OK(neap_net_set_outputs(net, 1, LIST("net"), &error));
  for (int lines = 0; lines < 2; lines++) {
    char *text = text_of(net, lines);
    check_round_trip(text, lines);
    CHECK((strstr(text, " at dir with space/mlp.lua:9") != NULL) == (lines == 1));
    CHECK(strstr(text, "{ axis = -1 }") != NULL);
    free(text);
  }
  neap_net_free(net);
}

TEST(names_that_look_like_keywords_round_trip) {
  check_round_trip(
    "net net\n"
    "input input f32 (2,3)\n"
    "input end f32 ()\n"
    "input outputs\xc3\xa9 i64 (0)\n"
    "keep = Relu(input) as in\n"
    "net = Relu(keep)\n"
    "outputs = Relu(end)\n"
    "as = Relu(outputs)\n"
    "keep keep\n"
    "outputs as, net\n",
    false);
}

TEST(damaged_text_is_refused_with_its_line) {
  static const struct {
    const char *text, *words;
  } bad[] = {
    {"", "line 1: expected \"net NAME\""},
    {"net", "line 1: expected the name"},
    {"net f\ninput x f33 (2)\n", "line 2: expected a dtype, got \"f33 (2)\""},
    {"net f\ninput x f32 (2\n", "line 2: expected \",\" or \")\""},
    {"net f\ninput x f32 (1,1,1,1,1,1,1,1,1)\n", "line 2: expected at most 8"},
    {"net f\ninput x f32 (-1)\n", "line 2: blob \"x\""},
    {"net f\ninput x f32 (99999999999999999999)\n", "line 2: expected a whole number"},
    {"net f\ninput x f32 (2) junk\n", "line 2: expected the end of the line, got \"junk\""},
    {"net f\n\n\ny = Relu(x)\n", "line 4: Relu \"y\": blob \"x\" is not defined"},
    {"net f\ninput x f32 (2)\ny = Relu x\n", "line 3: expected \"(\""},
    {"net f\ninput x f32 (2)\ny Relu(x)\n", "line 3: expected \"=\""},
    {"net f\ninput x f32 (2)\ny = Relu(x) { slope = 2 }\n", "unknown attribute \"slope\""},
    {"net f\ninput x f32 (2)\ny = Relu(x) {\n", "line 3: expected the name of an attribute"},
    {"net f\ninput x f32 (2)\ny = Do(x) { inner_blobs = {a b} }\n",
     "line 3: expected \",\" or \"}\", got \"b"},
    {"net f\ninput x f32 (2)\ny = Do(x) { inner_blobs = {a\n", "line 3: expected \",\" or \"}\""},
    {"net f\nsubnet a\nsubnet b\n", "expected \"end\""},
    {"net f\nend\n", "line 2: expected"},
    {"net f\nsubnet a\nend\nsubnet a\nend\n", "is there already"},
    {"net f\nparam w f32 (2) = Constant { value = 1, value = 1, value = 1, value = 1, value = 1, "
     "value = 1, value = 1, value = "
     "1, value = 1, "
     "value = 1, value = 1, value = 1, value = 1, value = 1, value = 1, value = 1 }\n",
     "given twice"},
  };
  for (int i = 0; i < NEAP_COUNT(bad); i++) {
    neap_net *net = NULL;
    CHECK_FAILS(neap_net_read(bad[i].text, &net, &error), NEAP_DATA, bad[i].words);
    CHECK(net == NULL);
  }
}

TEST(a_clone_is_equal_and_independent) {
  neap_net *net = built(), *copy = NULL;
  CHECK_OK(neap_net_clone(net, &copy, &error));
  char *a = text_of(net, true), *b = text_of(copy, true);
  CHECK(strcmp(a, b) == 0);
  CHECK(neap_net_version(net) != neap_net_version(copy));
  CHECK_OK(add(copy, "Relu", 1, LIST("x"), "more", &error));
  CHECK_EQ(neap_net_n_ops(net), 3);
  neap_net_free(net);
  char *c = text_of(copy, true);
  CHECK(strstr(c, "more = Relu(x)") != NULL);
  free(a);
  free(b);
  free(c);
  neap_net_free(copy);
}

TEST(renaming_moves_names_and_checks_again) {
  neap_net *net = built(), *copy = NULL;
  CHECK_OK(neap_net_rename(net, 2, LIST("x", "block1/relu_2"), LIST("image", "h"), &copy, &error));
  CHECK(neap_net_find_blob(copy, "x") == NULL);
  CHECK(neap_net_find_blob(copy, "image")->role == NEAP_ROLE_INPUT);
  CHECK(strcmp(neap_net_op_at(copy, 2)->out[0], "h") == 0);
  CHECK(strcmp(neap_net_op_at(net, 0)->in[0], "x") == 0);
  neap_net_free(copy);
  copy = NULL;
  CHECK_FAILS(neap_net_rename(net, 1, LIST("h"), LIST("x"), &copy, &error), NEAP_GRAPH,
              "can't be written in place over input x");
  CHECK_FAILS(neap_net_rename(net, 1, LIST("y"), LIST("z"), &copy, &error), NEAP_NAME,
              "rename: blob \"y\"");
  CHECK(copy == NULL);
  neap_net_free(net);
}

TEST(free_ends_a_name) {
  neap_net *net = NULL;
  CHECK_OK(neap_net_read(
    "net f\ninput x f32 (2)\na = Relu(x)\nb = Relu(a)\nkept = Relu(a)\nkeep kept\n", &net, &error));
  neap_net_call call = {.type = "Free", .n_in = 1, .in = LIST("a"), .line = "f.lua:9"};
  CHECK_OK(neap_net_add(net, &call, NULL, &error));
  CHECK_FAILS(add(net, "Relu", 1, LIST("a"), "c", &error), NEAP_NAME,
              "was ended by Free \"free_1\" at f.lua:9");
  call.in = LIST("x");
  CHECK_FAILS(neap_net_add(net, &call, NULL, &error), NEAP_GRAPH, "can't be freed: it is declared");
  call.in = LIST("kept");
  CHECK_FAILS(neap_net_add(net, &call, NULL, &error), NEAP_GRAPH, "can't be freed: it is kept");
  CHECK_OK(add(net, "Relu", 1, LIST("b"), "a", &error)); /* written again: defined again */
  CHECK_OK(add(net, "Relu", 1, LIST("a"), "c", &error));
  char *text = text_of(net, true);
  check_round_trip(text, true);
  free(text);
  neap_net_free(net);
}

TEST(gradient_names_its_outputs_and_gives_them_their_role) {
  neap_net *net = built();
  CHECK_OK(neap_net_add_gradient(net, "block1/relu_2", 0, NULL, NULL, "mlp.lua:20", &error));
  const neap_net_op *op = neap_net_op_at(net, 3);
  CHECK_EQ(op->n_in, 2); /* b is frozen, x is no parameter */
  CHECK(strcmp(op->out[0], "w_grad") == 0);
  CHECK(neap_net_find_blob(net, "w_grad")->role == NEAP_ROLE_GRADIENT);
  CHECK(neap_net_is_train(net));
  CHECK_OK(neap_net_add_gradient(net, "block1/relu_2", 2, LIST("w", "x"), NULL, NULL, &error));
  CHECK(strcmp(neap_net_op_at(net, 4)->out[0], "w_grad_2") == 0);
  CHECK(neap_net_find_blob(net, "x_grad")->role == NEAP_ROLE_ACTIVATION);
  CHECK_FAILS(neap_net_add_gradient(net, "x", 0, NULL, NULL, NULL, &error), NEAP_GRAPH,
              "depends on no trainable parameter");
  CHECK_FAILS(neap_net_add_gradient(net, "los", 1, LIST("w"), NULL, NULL, &error), NEAP_NAME,
              "\"los\" is not defined");
  char *text = text_of(net, true);
  check_round_trip(text, true);
  free(text);
  neap_net *copy = NULL;
  CHECK_OK(neap_net_clone(net, &copy, &error));
  CHECK(neap_net_find_blob(copy, "w_grad")->role == NEAP_ROLE_GRADIENT);
  neap_net_free(copy);
  neap_net_free(net);
}

/* Those of a list, and those that are what nobody reads. */
TEST(all_outputs_are_renamed) {
  for (int said = 0; said < 2; said++) {
    neap_net *net = NULL, *copy = NULL;
    const char *output[20];
    CHECK_OK(neap_net_read("net f\ninput x f32 (2)\n", &net, &error));
    for (int k = 0; k < 20; k++) {
      char name[16];
      snprintf(name, sizeof name, "y%d", k);
      CHECK_OK(add(net, "Relu", 1, LIST("x"), name, &error));
      output[k] = neap_net_output_at(net, k);
    }
    if (said) CHECK_OK(neap_net_set_outputs(net, 20, output, &error));
    CHECK_OK(neap_net_rename(net, 2, LIST("y0", "y19"), LIST("first", "last"), &copy, &error));
    CHECK_EQ(neap_net_n_outputs(copy), 20);
    for (int k = 0; k < 20; k++)
      CHECK(strcmp(neap_net_output_at(copy, k), k == 0    ? "first"
                                                : k == 19 ? "last"
                                                          : neap_net_output_at(net, k)) == 0);
    neap_net_free(net), neap_net_free(copy);
  }
}

TEST(parameters_get_init_ops_from_their_type) {
  neap_net *net = built();
  neap_set set[] = {NEAP_SET_FLOAT("value", 0.1), {0}};
  CHECK_OK(
    neap_net_declare(net, "c", NEAP_ROLE_STATE, &b_type, true, "Constant", set, NULL, &error));
  CHECK_EQ(neap_net_n_inits(net), 1);
  const neap_net_op *init = neap_net_init_at(net, neap_net_find_blob(net, "c")->init);
  CHECK(init != NULL && init->n_in == 0 && init->n_out == 1);
  CHECK(init != NULL && strcmp(init->out[0], "c") == 0);
  const neap_attr_value *shape = &init->attrs[neap_op_attr_index(init->op, "shape")];
  CHECK_EQ(shape->n, 1);
  CHECK_EQ(shape->ints[0], 10);
  CHECK(!neap_net_find_blob(net, "c")->trainable);
  set[0].name = "valeu";
  CHECK_FAILS(
    neap_net_declare(net, "d", NEAP_ROLE_STATE, &b_type, true, "Constant", set, NULL, &error),
    NEAP_ATTRIBUTE, "did you mean \"value\"");
  CHECK_FAILS(
    neap_net_declare(net, "d", NEAP_ROLE_STATE, &b_type, true, "Constnat", NULL, NULL, &error),
    NEAP_NAME, "did you mean \"Constant\"");
  CHECK(neap_net_find_blob(net, "d") == NULL);
  char *text = text_of(net, false);
  check_round_trip(text, false);
  CHECK(strstr(text, "state c f32 (10) = Constant { value = 0.1 }") != NULL);
  free(text);
  neap_net_free(net);
}

TEST(subnets_read_outer_names_and_belong_to_their_net) {
  const neap_op *op = neap_op_find("If");
  const char *attr[2];
  int n_attr = 0;
  for (int i = 0; i < neap_op_n_attrs(op) && n_attr < 2; i++)
    if (op->attrs[i].type == NEAP_ATTR_NET) attr[n_attr++] = op->attrs[i].name;

  /* Two branches, and a subnet within the first. */
  neap_net *net = NULL, *yes, *no, *inner;
  CHECK_OK(neap_net_read("net f\ninput c bool ()\ninput x f32 (2)\nh = Relu(x)\n", &net, &error));
  CHECK_OK(neap_net_new_sub(net, "branch", &yes, &error));
  CHECK_OK(neap_net_new_sub(net, "branch", &no, &error));
  CHECK(strcmp(neap_net_name(no), "branch_2") == 0);
  CHECK_OK(neap_net_new_sub(yes, NULL, &inner, &error));
  CHECK(neap_net_outer(inner) == yes);
  CHECK_EQ(neap_net_n_outputs(net), 1);

  /* Names are looked for outside too, and what a subnet reads is no output of the net. */
  CHECK_OK(add(yes, "Relu", 1, LIST("h"), "y", &error));
  CHECK_EQ(neap_net_n_outputs(net), 0); /* a subnet reads h */
  CHECK_OK(add(no, "Relu", 1, LIST("x"), "y", &error));
  CHECK_FAILS(add(no, "Relu", 1, LIST("why"), "z", &error), NEAP_NAME, "\"why\" is not defined");

  CHECK_FAILS(neap_net_set_sub_interface(yes, 1, LIST("q"), 1, LIST("y"), &error), NEAP_NAME,
              "\"q\" is not defined");
  CHECK_FAILS(neap_net_set_sub_interface(net, 0, NULL, 0, NULL, &error), NEAP_ARGUMENT,
              "no subnet");
  CHECK_OK(neap_net_set_sub_interface(yes, 2, LIST("h", "x"), 1, LIST("y"), &error));
  CHECK_OK(neap_net_set_sub_interface(no, 2, LIST("h", "x"), 1, LIST("y"), &error));

  /* An op takes subnets of its own net only, not one of those within. */
  neap_set set[] = {
    {attr[0], {.given = true, .net = yes}}, {attr[1], {.given = true, .net = inner}}, {0}};
  neap_net_call call = {
    .type = "If", .n_in = 3, .in = LIST("c", "h", "x"), .n_out = 1, .out = LIST("y"), .attrs = set};
  CHECK_FAILS(neap_net_add(net, &call, NULL, &error), NEAP_ATTRIBUTE, "is not a subnet of");
  set[1].value.net = no;
  CHECK_OK(neap_net_add(net, &call, NULL, &error));

  /* Text, renaming and copies go into subnets, which belong to the copy then. */
  char *text = text_of(net, true);
  check_round_trip(text, true);
  neap_net *copy = NULL;
  CHECK_OK(neap_net_rename(net, 2, LIST("h", "y"), LIST("hh", "yy"), &copy, &error));
  const neap_net *sub = neap_net_op_at(copy, 1)->attrs[neap_op_attr_index(op, attr[0])].net;
  CHECK(sub != yes && neap_net_outer(sub) == copy);
  CHECK(strcmp(neap_net_sub_input_at(sub, 0), "hh") == 0);
  CHECK(strcmp(neap_net_output_at(sub, 0), "yy") == 0);
  CHECK(strcmp(neap_net_op_at(sub, 0)->in[0], "hh") == 0);
  free(text);
  neap_net_free(copy);
  copy = NULL;
  CHECK_OK(add(yes, "Tanh", 1, LIST("h"), "own", &error)); /* a name that only the subnet has */
  CHECK_OK(neap_net_rename(net, 1, LIST("own"), LIST("its"), &copy, &error));
  sub = neap_net_op_at(copy, 1)->attrs[neap_op_attr_index(op, attr[0])].net;
  CHECK(strcmp(neap_net_op_at(sub, 1)->out[0], "its") == 0);
  bool same = true;
  CHECK_OK(neap_net_same_graph(net, copy, &same, NULL, &error));
  CHECK(same);
  neap_net_free(copy);

  /* One more op, said to nobody. */
  CHECK_OK(neap_net_clone(net, &copy, &error));
  CHECK_OK(add(copy, "Relu", 1, LIST("x"), "more", &error));
  CHECK_OK(neap_net_same_graph(net, copy, &same, NULL, &error));
  CHECK(!same && !neap_net_same_in_place(net, copy, NULL));
  neap_net_free(copy);
  neap_net_free(net);
}

TEST(enforced_pairs_must_be_in_place_by_name) {
  neap_net *net = NULL;
  CHECK_OK(neap_net_read(
    "net f\nparam w f32 (10)\nparam v f32 (10)\nstate mean f32 (10)\ninput batch f32 (10)\n", &net,
    &error));
  neap_net_call call = {.type = "RunningAverage",
                        .n_in = 2,
                        .in = LIST("mean", "batch"),
                        .n_out = 1,
                        .out = LIST(NULL)};
  CHECK_OK(neap_net_add(net, &call, NULL, &error));
  const neap_net_op *op = neap_net_op_at(net, 0);
  CHECK(op->out[0] == op->in[0]); /* an output left out is named after its input */
  CHECK(neap_net_find_blob(net, "mean")->role == NEAP_ROLE_STATE);
  CHECK_EQ(neap_net_n_outputs(net), 0); /* the next version of a declared blob is no output */
  call.out = LIST("elsewhere");
  CHECK_FAILS(neap_net_add(net, &call, NULL, &error), NEAP_GRAPH,
              "must be written in place over input");

  /* An output whose input is absent, or the other way round, is written over nothing here; its op
   * says so. */
  CHECK_OK(neap_net_add_text(net, &error, "w = Sgd(w, batch, v)"));
  CHECK_OK(neap_net_add_text(net, &error, "w, mean = Sgd(w, batch, v) as second"));
  CHECK_OK(neap_net_add_text(net, &error, "w = Sgd(w, batch, v, mean) as third"));
  CHECK_FAILS(neap_net_add_text(net, &error, "w, other = Sgd(w, batch, v, mean) as fourth"),
              NEAP_DATA, "must be written in place");
  neap_net_free(net);
}

/* Whether an attribute takes an index; that others are missing is another matter. */
static bool takes(const neap_op *op, const char *attr, int index) {
  neap_arena arena = {0};
  neap_attr_value *value;
  neap_error own = {0};
  neap_status status =
    neap_attrs_fill(&arena, op, (neap_set[]){NEAP_SET_INT(attr, index), {0}}, "", &value, &own);
  neap_arena_fini(&arena);
  CHECK(status == NEAP_OK || status == NEAP_ATTRIBUTE);
  return status == NEAP_OK || strstr(own.message, "expects") == NULL;
}

TEST(attributes_are_checked_by_their_type) {
  neap_net *net = NULL;
  CHECK_OK(neap_net_read("net f\ninput x f32 (2,3,8,8)\nparam w f32 (4,3,3,3)\n", &net, &error));
  neap_set set[] = {NEAP_SET_INTS("kernel", 2, ((const int64_t[]){3, -1})), {0}};
  neap_net_call call = {
    .type = "MaxPool", .n_in = 1, .in = LIST("x"), .n_out = 1, .out = LIST("y"), .attrs = set};
  CHECK_FAILS(neap_net_add(net, &call, NULL, &error), NEAP_ATTRIBUTE,
              "kernel = -1 is out of range, expected 1 to 1048576");
  set[0] = (neap_set){"kernel", {.given = true, .n = 2}};
  CHECK_FAILS(neap_net_add(net, &call, NULL, &error), NEAP_ATTRIBUTE,
              "kernel is a list of 2 items without items");
  call.attrs = NULL;
  CHECK_FAILS(neap_net_add(net, &call, NULL, &error), NEAP_ATTRIBUTE,
              "attribute \"kernel\" is missing");
  neap_net *other = NULL; /* a choice is its whole word */
  const char *const word[] = {"", "m", "mea", "means", "none|mean"};
  for (int i = 0; i < NEAP_COUNT(word); i++) {
    char text[160];
    snprintf(text, sizeof text,
             "net f\ninput x f32 (2,3)\ninput t i64 (2)\ny = SoftmaxCrossEntropy(x, t) { reduction "
             "= %s }\n",
             word[i]);
    CHECK(neap_net_read(text, &other, NULL) != NEAP_OK);
  }
  CHECK_FAILS(
    neap_net_read("net f\nc = Constant() { shape = {2}, dtype = none }\n", &other, &error),
    NEAP_DATA, "expected a dtype");

  /* Every attribute with choices takes each of them and refuses an index beyond, every bool a third
   * value, every dtype none. */
  for (int i = 0; i < neap_op_count(); i++)
    for (int a = 0; a < neap_op_n_attrs(neap_op_at(i)); a++) {
      const neap_op *op = neap_op_at(i);
      neap_attr_type type = op->attrs[a].type;
      if (type != NEAP_ATTR_ENUM && type != NEAP_ATTR_BOOL && type != NEAP_ATTR_DTYPE) continue;
      int n = type == NEAP_ATTR_DTYPE ? NEAP_N_DTYPE : 2,
          first = type == NEAP_ATTR_DTYPE ? NEAP_DTYPE_NONE + 1 : 0;
      if (type == NEAP_ATTR_ENUM) {
        n = 1;
        for (const char *c = op->attrs[a].choices; *c != '\0'; c++)
          if (*c == '|') n++;
      }
      for (int index = -1; index <= n; index++)
        CHECK_EQ(takes(op, op->attrs[a].name, index), index >= first && index < n);
    }
  neap_net_free(net);
}

TEST(variadic_inputs_take_any_number) {
  neap_net *net = NULL;
  CHECK_OK(neap_net_read("net f\ninput a f32 (2)\ninput b f32 (2)\n", &net, &error));
  const char *in[40];
  for (int i = 0; i < 40; i++) in[i] = i % 2 == 0 ? "a" : "b";
  CHECK_OK(add(net, "Concat", 40, in, "all", &error));
  CHECK_EQ(neap_net_op_at(net, 0)->n_in, 40);
  CHECK_FAILS(add(net, "Concat", 0, in, "none", &error), NEAP_GRAPH, "expects at least 1 input");
  neap_net_free(net);
}

TEST(names_are_of_any_script_without_what_the_text_form_needs) {
  neap_net *net = NULL;
  CHECK_OK(neap_net_new("f", &net, &error));
  neap_type type = {NEAP_DTYPE_F32, NEAP_SHAPE(2)};
  for (int c = 1; c < 256; c++) {
    char name[] = {'a', (char)c, 'b', '\0'};
    bool fine = c > ' ' && c != 127 && strchr("\"'(){},", c) == NULL;
    CHECK_EQ(neap_net_declare(net, name, NEAP_ROLE_INPUT, &type, false, NULL, NULL, NULL, NULL),
             fine ? NEAP_OK : NEAP_NAME); /* the code is right without an error record, too */
  }
  neap_net_free(net);
}

TEST(words_of_a_list_are_read_whole) {
  static const char good[] =
    "net f\ninput x f32 (3)\ny = Gelu(x) { approximate = tanh }\nz = Gelu(y) { approximate = none "
    "}\n";
  neap_net *net = NULL;
  neap_buffer text = {0};
  CHECK_OK(neap_net_read(good, &net, &error));
  CHECK_EQ(neap_net_op_at(net, 0)->attrs[0].i, 1);
  CHECK_EQ(neap_net_op_at(net, 1)->attrs[0].i, 0);
  neap_net_print(net, false, &text);
  CHECK(strstr(text.text, "approximate = tanh") != NULL);
  neap_buffer_fini(&text);
  neap_net_free(net);
  for (int i = 0; i < 3; i++) {
    char bad[80];
    snprintf(bad, sizeof bad, "net f\ninput x f32 (3)\ny = Gelu(x) { approximate = %s }\n",
             (const char *[]){"tan", "sinh", "none2"}[i]);
    CHECK_FAILS(neap_net_read(bad, &net, &error), NEAP_DATA, "one of none|tanh");
  }
}

int main(int argc, char **argv) {
  return RUN(
    argc, argv, T(a_net_reads_as_it_was_written), T(outputs_are_what_nobody_reads_unless_named),
    T(names_are_drawn_unique_in_their_scope), T(each_schema_error_is_told_and_changes_nothing),
    T(an_error_carries_op_blob_scope_and_line), T(text_reads_back_to_the_same_text),
    T(names_that_look_like_keywords_round_trip), T(damaged_text_is_refused_with_its_line),
    T(a_clone_is_equal_and_independent), T(renaming_moves_names_and_checks_again),
    T(free_ends_a_name), T(gradient_names_its_outputs_and_gives_them_their_role),
    T(all_outputs_are_renamed), T(parameters_get_init_ops_from_their_type),
    T(subnets_read_outer_names_and_belong_to_their_net), T(enforced_pairs_must_be_in_place_by_name),
    T(attributes_are_checked_by_their_type), T(variadic_inputs_take_any_number),
    T(names_are_of_any_script_without_what_the_text_form_needs), T(words_of_a_list_are_read_whole));
}
