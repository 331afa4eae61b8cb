/* test_net_steps.c: nets made of nets: subnets, micro-batches and updates of a step, evaluation. */
#include "small_net.h"

TEST(what_a_subnet_reads_must_stand_where_its_op_does) {
  for (int gone = 0; gone < 2; gone++) {
    neap_net *net = NULL, *yes, *no;
    CHECK_OK(neap_net_read("net f\ninput c bool ()\ninput x f32 (2)\na = Relu(x)\nb = Relu(x)\n",
                           &net, &error));
    CHECK_OK(neap_net_new_sub(net, "yes", &yes, &error));
    CHECK_OK(neap_net_new_sub(net, "no", &no, &error));
    CHECK_OK(add(yes, "Add", 2, LIST("a", "b"), "y", &error));
    CHECK_OK(add(no, "Add", 2, LIST("b", "a"), "y", &error));
    neap_net_call end = {.type = "Free", .n_in = 1, .in = gone == 0 ? LIST("a") : LIST("b")};
    CHECK_OK(neap_net_add(net, &end, NULL, &error));
    neap_set set[] = {
      {"then_net", {.given = true, .net = yes}}, {"else_net", {.given = true, .net = no}}, {0}};
    neap_net_call call = {
      .type = "If", .n_in = 1, .in = LIST("c"), .n_out = 1, .out = LIST("y"), .attrs = set};
    CHECK_FAILS(neap_net_add(net, &call, NULL, &error), NEAP_NAME, gone == 0 ? "\"a\"" : "\"b\"");
    neap_net_free(net);
  }
}

TEST(a_subnet_that_overwrites_an_outer_name_reads_it) {
  neap_net *net = NULL, *yes, *no;
  CHECK_OK(neap_net_read("net f\ninput c bool ()\ninput x f32 (2)\nh = Relu(x)\n", &net, &error));
  CHECK_OK(neap_net_new_sub(net, "yes", &yes, &error));
  CHECK_OK(neap_net_new_sub(net, "no", &no, &error));
  CHECK_EQ(neap_net_n_outputs(net), 1);
  CHECK_OK(add(yes, "Relu", 1, LIST("h"), "h", &error));
  CHECK_EQ(neap_net_n_outputs(net), 0);
  CHECK_OK(add(no, "Tanh", 1, LIST("h"), "h", &error));
  neap_net_call end = {.type = "Free", .n_in = 1, .in = LIST("h")};
  CHECK_OK(neap_net_add(net, &end, NULL, &error));
  neap_set set[] = {
    {"then_net", {.given = true, .net = yes}}, {"else_net", {.given = true, .net = no}}, {0}};
  neap_net_call call = {
    .type = "If", .n_in = 1, .in = LIST("c"), .n_out = 1, .out = LIST("y"), .attrs = set};
  CHECK_FAILS(neap_net_add(net, &call, NULL, &error), NEAP_NAME, "\"h\"");
  neap_net_free(net);
}

TEST(the_nets_of_a_step_ask_for_what_they_read) {
  neap_net *net = NULL, *micro = NULL, *update = NULL;
  CHECK_OK(neap_net_read(
    "net f\ninput x f32 (4,3)\ninput lr f32 (1)\nparam w f32 (2,3)\ny = FC(x, w)\nloss = Mean(y)\n"
    "w_grad = Gradient(loss, w)\nw = Sgd(w, w_grad, lr)\n",
    &net, &error));
  CHECK_OK(neap_net_split_micro(net, &micro, &update, &error));
  CHECK(neap_net_find_blob(micro, "x") != NULL && neap_net_find_blob(micro, "lr") == NULL);
  CHECK(neap_net_find_blob(update, "x") == NULL && neap_net_find_blob(update, "lr") != NULL);
  neap_net_free(net);
  neap_net_free(micro);
  neap_net_free(update);
}

/* Whether the net has an op of that name. */
static bool has_op(const neap_net *net, const char *name) {
  for (int i = 0; net != NULL && i < neap_net_n_ops(net); i++)
    if (strcmp(neap_net_op_at(net, i)->name, name) == 0) return true;
  return false;
}

TEST(what_follows_from_no_example_stands_where_it_is_read) {
  neap_net *net = NULL, *micro = NULL, *update = NULL;
  CHECK_OK(neap_net_read(
    "net f\ninput x f32 (4,3)\ninput lr f32 (1)\nparam w f32 (2,3)\nsize = Mean(w) as unread\n"
    "noise = Uniform() { shape = {1} } as for_update\nrate = Mul(lr, noise) as for_update_too\n"
    "v = Abs(w) as for_micro\nu = Tanh(w) as for_both\nz = Add(u, v)\ny = FC(x, z)\nloss = "
    "Mean(y)\n"
    "w_grad = Gradient(loss, w)\nd = Mul(w_grad, u)\nw = Sgd(w, d, rate)\n",
    &net, &error));
  CHECK_OK(neap_net_split_micro(net, &micro, &update, &error));
  static const struct {
    const char *op;
    bool in_micro, in_update;
  } expected[] = {{"unread", true, false},
                  {"for_update", false, true},
                  {"for_update_too", false, true},
                  {"for_micro", true, false},
                  {"for_both", true, true}};
  for (int i = 0; i < NEAP_COUNT(expected); i++) {
    CHECK(has_op(micro, expected[i].op) == expected[i].in_micro);
    CHECK(has_op(update, expected[i].op) == expected[i].in_update);
  }
  neap_net_free(net);
  neap_net_free(micro);
  neap_net_free(update);
}

/* A gradient is made by the micro-batches, whatever its loss follows from; of what they have summed
 * up it can't be made. */
TEST(gradients_belong_to_the_micro_batches) {
  neap_net *net = NULL, *micro = NULL, *update = NULL;
  CHECK_OK(
    neap_net_read("net f\ninput x f32 (4,3)\ninput lr f32 (1)\nparam w f32 (2,3)\nparam v f32 "
                  "(2,3)\ny = FC(x, w)\nloss = Mean(y)\n"
                  "w_grad = Gradient(loss, w)\nq = Mul(v, v)\ndecay = Mean(q)\nv_grad = "
                  "Gradient(decay, v) as of_no_example\n"
                  "w = Sgd(w, w_grad, lr)\nv = Sgd(v, v_grad, lr)\n",
                  &net, &error));
  CHECK_OK(neap_net_split_micro(net, &micro, &update, &error));
  CHECK(has_op(micro, "of_no_example") && !has_op(update, "of_no_example"));
  neap_net_free(net), neap_net_free(micro), neap_net_free(update);
  net = micro = update = NULL;
  CHECK_OK(neap_net_read(
    "net f\ninput x f32 (4,3)\nparam w f32 (2,3)\nparam v f32 (2,3)\ny = FC(x, w)\nloss = Mean(y)\n"
    "w_grad = Gradient(loss, w)\nq = Mul(w_grad, v)\npenalty = Mean(q)\nv_grad = Gradient(penalty, "
    "v)\n",
    &net, &error));
  CHECK_FAILS(neap_net_split_micro(net, &micro, &update, &error), NEAP_GRAPH,
              "can't be differentiated a second time");
  neap_net_free(net);
}

/* Whatever else reads the batch's mean and variance, be it an update of a parameter: a norm
 * evaluates by states that follow them. */
TEST(evaluation_reads_the_running_statistics) {
  neap_net *net = NULL, *evaluation = NULL;
  neap_buffer text = {0};
  CHECK_OK(neap_net_read(
    "net f\ninput x f32 (4,3)\ninput lr f32 ()\nparam gamma f32 (3)\nparam beta f32 (3)\nparam p "
    "f32 (3)\n"
    "state m f32 (3)\nstate v f32 (3)\ny, mean, var = BatchNorm(x, gamma, beta) { training = true "
    "} as norm\n"
    "p = Sgd(p, mean, lr)\nm = RunningAverage(m, mean)\nv = RunningAverage(v, var)\noutputs y\n",
    &net, &error));
  CHECK_OK(neap_net_evaluation(net, &evaluation, &error));
  neap_net_print(evaluation, false, &text);
  CHECK(strstr(text.text, "BatchNorm(x, gamma, beta, m, v)") != NULL);
  neap_buffer_fini(&text);
  neap_net_free(evaluation);
  neap_net_free(net);
}

TEST(evaluation_reads_the_statistics_that_are_given_or_kept) {
  static const char *const operands[] = {"x, g, b, m, v", "x, g, b"};
  for (int k = 0; k < 2; k++) {
    char text[512];
    neap_net *net = NULL, *evaluation = NULL;
    snprintf(text, sizeof text,
             "net f\ninput x f32 (4,3)\nparam g f32 (3)\nparam b f32 (3)\nstate m f32 (3)\nstate v "
             "f32 (3)\n"
             "y, mean, var = BatchNorm(%s) { training = true }\n%soutputs y\n",
             operands[k],
             k == 0 ? "" : "m = RunningAverage(m, mean)\nv = RunningAverage(v, var)\n");
    CHECK_OK(neap_net_read(text, &net, &error));
    CHECK_OK(neap_net_evaluation(net, &evaluation, &error));
    if (evaluation != NULL) {
      const neap_net_op *norm = neap_net_op_at(evaluation, 0);
      CHECK(neap_net_n_ops(evaluation) == 1 && norm->n_in == 5);
      CHECK(norm->n_in == 5 && strcmp(norm->in[3], "m") == 0 && strcmp(norm->in[4], "v") == 0);
    }
    neap_net_free(evaluation);
    neap_net_free(net);
  }
}

TEST(evaluation_leaves_what_ops_write_by_name_as_it_is) {
  neap_net *net = NULL, *evaluation = NULL;
  neap_buffer text = {0};
  CHECK_OK(
    neap_net_read("net f\ninput x f32 (3)\nstate m f32 (3)\nm~ = Neg(x)\na = Mul(x, m)\nm = Add(m, "
                  "x)\nm = Add(m, a) as more\n"
                  "y = Mul(m, m~)\noutputs y\n",
                  &net, &error));
  CHECK_OK(neap_net_evaluation(net, &evaluation, &error));
  neap_net_print(evaluation, false, &text);
  CHECK(strstr(text.text, "a = Mul(x, m)") != NULL);
  CHECK(strstr(text.text, "m~~ = Add(m, x)") != NULL);
  CHECK(strstr(text.text, "m~~ = Add(m~~, a)") != NULL);
  CHECK(strstr(text.text, "y = Mul(m~~, m~)") != NULL);
  neap_buffer_fini(&text);
  neap_net_free(evaluation);
  neap_net_free(net);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(what_a_subnet_reads_must_stand_where_its_op_does),
             T(a_subnet_that_overwrites_an_outer_name_reads_it),
             T(the_nets_of_a_step_ask_for_what_they_read),
             T(what_follows_from_no_example_stands_where_it_is_read),
             T(gradients_belong_to_the_micro_batches), T(evaluation_reads_the_running_statistics),
             T(evaluation_reads_the_statistics_that_are_given_or_kept),
             T(evaluation_leaves_what_ops_write_by_name_as_it_is));
}
