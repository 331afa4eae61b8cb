/* test_api_net.c: nets made, typed and read by calls, as users of neap.h meet them: linked with
 * libneap.so alone. */
#include "check.h"
#include "comma.h"

#include <stdlib.h>

#define NAMES(...) ((const char *const[]){__VA_ARGS__})

static neap_status add(neap_net *net, const char *type, const char *in, const char *in2,
                       const char *out, const neap_set *attrs, neap_error *error) {
  const neap_net_call call = {.type = type,
                              .n_in = in2 != NULL ? 2 : 1,
                              .in = NAMES(in, in2),
                              .n_out = 1,
                              .out = &out,
                              .attrs = attrs,
                              .line = "maker:7",
                              .typed = true};
  return neap_net_add(net, &call, NULL, error);
}

/* x (4,3), w (2,3): y = Relu(FC(x, w)) */
static neap_net *little(void) {
  neap_net *net = NULL;
  const neap_type x = {NEAP_DTYPE_F32, {2, {4, 3}}}, w = {NEAP_DTYPE_F32, {2, {2, 3}}};
  CHECK_OK(neap_net_new("little", &net, &error));
  if (net == NULL) abort();
  CHECK_OK(neap_net_declare(net, "x", NEAP_ROLE_INPUT, &x, false, NULL, NULL, NULL, &error));
  CHECK_OK(
    neap_net_declare(net, "w", NEAP_ROLE_PARAMETER, &w, true, "Xavier", NULL, "maker:3", &error));
  CHECK_OK(add(net, "FC", "x", "w", "h", NULL, &error));
  CHECK_OK(add(net, "Relu", "h", NULL, "y", NULL, &error));
  return net;
}

static void check_type(neap_net *net, const char *blob, const char *shape) {
  neap_type type;
  char text[NEAP_SHAPE_TEXT];
  CHECK_OK(neap_net_type_of(net, blob, &type, &error));
  if (shape == NULL)
    CHECK_EQ(type.dtype, NEAP_DTYPE_NONE);
  else
    CHECK(type.dtype != NEAP_DTYPE_NONE && strcmp(neap_shape_text(&type.shape, text), shape) == 0);
}

TEST(what_was_made_is_read_back) {
  neap_net *net = little(), *copy = NULL;
  char *text = NULL;
  uint64_t version = neap_net_version(net);
  CHECK_EQ(neap_net_n_ops(net), 2);
  const neap_net_op *fc = neap_net_op_at(net, 0);
  CHECK(strcmp(neap_op_name(fc->op), "FC") == 0 && fc->n_in >= 2 && strcmp(fc->in[1], "w") == 0);
  CHECK(strcmp(fc->line, "maker:7") == 0 && neap_net_op_at(net, 2) == NULL);
  const neap_net_blob *w = neap_net_find_blob(net, "w");
  CHECK(w != NULL && w->role == NEAP_ROLE_PARAMETER && w->trainable && w->type.shape.dim[1] == 3);
  CHECK(strcmp(neap_role_name(w->role), "parameter") == 0);
  CHECK(neap_net_find_blob(net, "z") == NULL);
  CHECK_EQ(neap_net_n_blobs(net), 4);
  CHECK(strcmp(neap_net_blob_at(net, 0)->name, "x") == 0);
  CHECK_EQ(neap_net_n_outputs(net), 1);
  CHECK(strcmp(neap_net_output_at(net, 0), "y") == 0);
  CHECK_OK(neap_net_keep(net, "h", &error));
  CHECK(neap_net_find_blob(net, "h")->keep && neap_net_version(net) != version);
  CHECK_OK(neap_net_assign(net, "h", "fast", &error));
  CHECK(strcmp(neap_net_find_blob(net, "h")->bank, "fast") == 0);
  CHECK_OK(neap_net_set_outputs(net, 2, NAMES("h", "y"), &error));
  CHECK_EQ(neap_net_n_outputs(net), 2);
  CHECK_OK(neap_net_text_with(net, true, &text, &error));
  CHECK(text != NULL && strstr(text, "maker:7") != NULL);
  neap_free(text);
  CHECK_OK(neap_net_clone(net, &copy, &error));
  neap_net_free(net);
  CHECK_EQ(neap_net_n_ops(copy), 2);
  neap_net_free(copy);
}

TEST(types_are_known_while_a_net_is_built) {
  neap_net *net = little();
  check_type(net, "h", "(4,2)");
  check_type(net, "y", "(4,2)");
  check_type(net, "z", NULL);
  CHECK_FAILS(add(net, "FC", "y", "w", "z", NULL, &error), NEAP_SHAPE, "");
  CHECK_EQ(neap_net_n_ops(net), 2); /* what does not fit never got in */
  CHECK_OK(add(net, "Tanh", "y", NULL, "z", NULL, &error));
  check_type(net, "z", "(4,2)");
  CHECK_OK(neap_net_check_types(net, &error));
  neap_net_free(net);
  CHECK_OK(
    neap_net_read("net bad\ninput x f32 (4,3)\nparam w f32 (2,5)\ny = FC(x, w)\n", &net, &error));
  CHECK_FAILS(neap_net_check_types(net, &error), NEAP_SHAPE, "FC");
  CHECK_FAILS(neap_net_type_of(net, "y", &(neap_type){0}, &error), NEAP_SHAPE, "FC");
  neap_net_free(net);
}

TEST(a_mark_takes_back_what_came_after_it) {
  neap_net *net = little();
  int outer = neap_net_mark(net);
  CHECK_OK(add(net, "Tanh", "y", NULL, "z", NULL, &error));
  int inner = neap_net_mark(net);
  CHECK_OK(add(net, "Sum", "z", NULL, "s", NULL, &error));
  check_type(net, "s", "()");
  neap_net_end_mark(net, inner, true);
  neap_net_end_mark(net, outer, false);
  CHECK_EQ(neap_net_n_ops(net), 2);
  check_type(net, "z", NULL);
  const neap_set axes[] = {NEAP_SET_INTS("axes", 1, ((int64_t[]){0})), {0}};
  CHECK_OK(add(net, "Sum", "y", NULL, "z", axes, &error));
  check_type(net, "z", "(2)"); /* not what an op before of that name gave */
  neap_net_free(net);
}

TEST(a_gradient_that_can_not_be_is_refused_at_once) {
  neap_net *net = little();
  CHECK(!neap_net_is_train(net));
  CHECK_OK(add(net, "Sum", "y", NULL, "loss", NULL, &error));
  const neap_type u = {NEAP_DTYPE_F32, {1, {2}}};
  CHECK_OK(neap_net_declare(net, "u", NEAP_ROLE_PARAMETER, &u, true, NULL, NULL, NULL, &error));
  CHECK_FAILS(neap_net_gradient(net, "loss", 1, NAMES("u"), false, "maker:9", &error), NEAP_GRAPH,
              "u");
  CHECK_EQ(neap_net_n_ops(net), 3);
  CHECK(neap_net_find_blob(net, "u_grad") == NULL);
  CHECK_OK(neap_net_gradient(net, "loss", 1, NAMES("w"), false, "maker:9", &error));
  CHECK(neap_net_is_train(net) && neap_net_find_blob(net, "w_grad") != NULL);
  check_type(net, "w_grad", "(2,3)");
  neap_net *micro = NULL, *update = NULL, *hold = NULL, *join = NULL;
  CHECK_OK(neap_net_add_text(net, &error, "param lr f32 () frozen\nw = Sgd(w, w_grad, lr)"));
  CHECK_OK(neap_net_split_micro(net, &micro, &update, &error));
  CHECK_OK(neap_net_split_hold(update, &hold, &join, &error));
  CHECK(neap_net_n_ops(hold) > 0 && neap_net_n_ops(join) > 0);
  neap_net_free(micro), neap_net_free(update), neap_net_free(hold), neap_net_free(join);
  neap_net_free(net);
}

TEST(subnets_see_the_net_around_them_unless_they_are_closed) {
  neap_net *net = little(), *yes = NULL, *no = NULL, *body = NULL, *closed = NULL;
  CHECK_OK(neap_net_new_sub(net, "yes", &yes, &error));
  CHECK_OK(add(yes, "Neg", "y", NULL, "a", NULL, &error)); /* y is the outer net's */
  check_type(yes, "a", "(4,2)");
  CHECK_OK(neap_net_set_sub_interface(yes, 1, NAMES("y"), 1, NAMES("a"), &error));
  CHECK_OK(neap_net_new_sub(net, "no", &no, &error));
  CHECK_OK(add(no, "Relu", "y", NULL, "a", NULL, &error));
  CHECK_OK(neap_net_set_sub_interface(no, 1, NAMES("y"), 1, NAMES("a"), &error));
  CHECK_OK(add(net, "Sum", "y", NULL, "s", NULL, &error));
  CHECK_OK(add(net, "Gt", "s", "s", "c", NULL, &error));
  const neap_set branches[] = {
    {"then_net", {.given = true, .net = yes}}, {"else_net", {.given = true, .net = no}}, {0}};
  CHECK_OK(add(net, "If", "c", "y", "o", branches, &error));
  check_type(net, "o", "(4,2)"); /* through the branches */
  CHECK_OK(neap_net_new_closed_sub(net, "closed", &closed, &error));
  CHECK_FAILS(add(closed, "Neg", "y", NULL, "a", NULL, &error), NEAP_NAME, "y");
  CHECK_OK(neap_net_declare(closed, "y", NEAP_ROLE_INPUT, NULL, false, NULL, NULL, NULL, &error));
  const neap_type row = {NEAP_DTYPE_F64, {1, {7}}};
  CHECK_FAILS(neap_net_take_type(closed, "x", &row, &error), NEAP_NAME, "x");
  CHECK_OK(neap_net_take_type(closed, "y", &row, &error));
  CHECK_OK(add(closed, "Neg", "y", NULL, "a", NULL, &error));
  check_type(closed, "a", "(7)");
  neap_net *other = little();
  CHECK_OK(neap_net_copy_sub(net, other, &body, &error));
  neap_net_free(other);
  CHECK_EQ(neap_net_n_ops(body), 2);
  CHECK(neap_net_retain(body) == body); /* holds the net around it */
  neap_net_free(net);
  check_type(body, "y", "(4,2)");
  neap_net_free(body);
}

TEST(locals_of_scopes_have_names_around_them) {
  neap_net *net = NULL;
  CHECK_OK(
    neap_net_read("net scopes\ninput x f32 (4,3)\ns = CreateScope()\nsubnet add closed\n  input u\n"
                  "  w = Add(u, u)\n  t = Tanh(w)\nend\n"
                  "c, s = Do(x, s) { net = add, inner_blobs = {u, t}, outer_blobs_idx = {0,1} }\n",
                  &net, &error));
  CHECK(neap_net_is_scope(net, "s") && !neap_net_is_scope(net, "x"));
  const char *local = neap_net_local(net, "s", "w");
  CHECK(local != NULL && neap_net_has_local(net, local) && !neap_net_has_local(net, "x"));
  check_type(net, "c", "(4,3)");
  check_type(net, local, "(4,3)");
  neap_net_free(net);
}

/* A net with numbers, read and written; Gelu's second gradient is a formula with numbers of its
 * own. */
static char *net_with_numbers(void) {
  neap_net *net = NULL, *written = NULL;
  char *text = NULL;
  CHECK_OK(
    neap_net_read("net n\ninput x f32 (4)\nparam w f32 (4) = Constant { value = 0.5 }\n"
                  "h = Mul(x, w)\n",
                  &net, &error));
  if (net == NULL) return NULL;
  CHECK_OK(neap_net_add_text(net, &error, "g = LeakyRelu(h) { slope = %g }", 0.0123456789));
  CHECK_OK(neap_net_add_text(net, &error, "y = Gelu(g)\nloss = Sum(y)"));
  CHECK_OK(neap_net_add_gradient(net, "loss", 1, NAMES("w"), NAMES("dw"), NULL, &error));
  CHECK_OK(neap_net_add_text(net, &error, "slope = Sum(dw)"));
  CHECK_OK(neap_net_add_gradient(net, "slope", 1, NAMES("w"), NAMES("ddw"), NULL, &error));
  CHECK_OK(neap_net_expand(net, NULL, &written, &error));
  if (written != NULL) CHECK_OK(neap_net_text(written, &text, &error));
  neap_net_free(written);
  neap_net_free(net);
  return text;
}

NEAP_PRINTF(2, 3)
static void refuse(neap_error *error, const char *format, ...) {
  va_list args;
  va_start(args, format);
  CHECK_EQ(neap_fail_list(error, NEAP_DATA, format, args), NEAP_DATA);
  va_end(args);
}

/* A program of a country with a decimal comma has set its locale before it reads a net. */
TEST(numbers_of_texts_do_not_depend_on_the_locale) {
  bool has_comma = use_comma();
  char *there = net_with_numbers();
  neap_error bad = {0};
  neap_net *net = NULL;
  CHECK_EQ(neap_net_read("net n\nparam w f32 (4) = Constant { value = 0,5 }\n", &net, &bad),
           NEAP_DATA);
  neap_error said = {0};
  refuse(&said, "a rate of %g", 0.5);
  CHECK(strcmp(said.message, "a rate of 0.5") == 0);
  end_comma();
  char *here = net_with_numbers();
  CHECK(there != NULL && here != NULL && strcmp(here, there) == 0);
  CHECK(here != NULL && strstr(here, "value = 0.5") != NULL && strstr(here, "0.0123") != NULL);
  neap_free(there);
  neap_free(here);
  if (!has_comma) SKIP("no locale with a decimal comma is installed");
}

int main(int argc, char **argv) {
  return RUN(
    argc, argv, T(what_was_made_is_read_back), T(types_are_known_while_a_net_is_built),
    T(a_mark_takes_back_what_came_after_it), T(a_gradient_that_can_not_be_is_refused_at_once),
    T(subnets_see_the_net_around_them_unless_they_are_closed),
    T(locals_of_scopes_have_names_around_them), T(numbers_of_texts_do_not_depend_on_the_locale));
}
