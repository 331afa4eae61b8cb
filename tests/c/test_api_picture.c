/* test_api_picture.c: pictures as users of the C API get them: DOT that Graphviz takes, SVG that is
 * well formed and to scale, workspaces as rows and tables. Texts are read back here, line by line,
 * as a stranger would. */
#include "check.h"
#include "comma.h"

#include <stdlib.h>
#include <unistd.h>

static const char deep_text[] =
  "net deep\ninput x f32 (4,8)\na = Relu(x)\nb = Tanh(a)\nc = Sigmoid(b)\nd = Tanh(c)\ne = "
  "Relu(d)\ny = Tanh(e)\noutputs y\n";

/* A training step whose values differ in size, so that places are reused in part. */
static const char net_text[] =
  "net mlp\ninput x f32 (16,64)\ninput label i32 (16)\ninput lr f32 (1)\n"
  "param w1 f32 (128,64) = Xavier\nparam w2 f32 (32,128) = Xavier\nparam w3 f32 (8,32) = Xavier\n"
  "a = FC(x, w1)\nb = Tanh(a)\nc = FC(b, w2)\nd = Sigmoid(c)\nscore = FC(d, w3)\nloss = "
  "SoftmaxCrossEntropy(score, label)\n"
  "outputs loss\n";

static const char control_text[] =
  "net control\ninput x f32 (4)\ninput flag bool ()\nparam w f32 (4) = Constant { value = 1 }\nh = "
  "Mul(x, w)\n"
  "subnet yes\n  r = Relu(h)\n  takes h\n  gives r\nend\n"
  "subnet no\n  s = Add(h, h)\n  t = Tanh(s)\n  takes h\n  gives t\nend\n"
  "z = If(flag, h) { then_net = yes, else_net = no }\nloss = Sum(z)\noutputs loss\n";

static neap_net *read_net(const char *text) {
  neap_net *net = NULL;
  CHECK_OK(neap_net_read(text, &net, &error));
  return net;
}

static neap_net *training_net(const char *text) {
  neap_net *net = read_net(text);
  CHECK_OK(neap_net_add_gradient(net, "loss", 0, NULL, NULL, NULL, &error));
  return net;
}

static neap_net *mlp(void) {
  neap_net *net = training_net(net_text);
  for (int i = 1; i <= 3; i++)
    CHECK_OK(neap_net_add_text(net, &error, "w%d = Sgd(w%d, w%d_grad, lr)", i, i, i));
  return net;
}

static int count(const char *text, const char *what) {
  int n = 0;
  for (const char *at = strstr(text, what); at != NULL; at = strstr(at + strlen(what), what)) n++;
  return n;
}

/* ---- DOT ------------------------------------------------------------------------------------- */

/* Braces balance outside of quotes, and quotes are closed. */
static void check_balance(const char *text) {
  int depth = 0, least = 0;
  bool quoted = false;
  for (const char *c = text; *c != '\0'; c++) {
    /* An escaped quote ends nothing. */
    if (quoted && *c == '\\') {
      c++;
      continue;
    }
    if (*c == '"') quoted = !quoted;
    if (!quoted) depth += (*c == '{') - (*c == '}');
    if (depth < least) least = depth;
  }
  CHECK_EQ(depth, 0);
  CHECK_EQ(least, 0);
  CHECK(!quoted);
}

/* What Graphviz says of it, where it is installed. */
static void check_dot(const char *text) {
  check_balance(text);
  if (system("command -v dot >/dev/null 2>&1") != 0) return;
  char path[] = "/tmp/neap_test_XXXXXX", command[128];
  close(mkstemp(path));
  CHECK_OK(neap_text_save(text, path, &error));
  snprintf(command, sizeof command, "! dot -Tsvg %s 2>&1 >/dev/null | grep . >&2", path);
  CHECK_EQ(system(command), 0);
  unlink(path);
}

/* Lines of the outermost graph that declare ops (`letter` o) or values (v). */
static int count_nodes(const char *text, char letter) {
  int n = 0;
  for (const char *line = text; line != NULL;
       line = strchr(line, '\n') != NULL ? strchr(line, '\n') + 1 : NULL) {
    int number, end = 0;
    char start[8] = {' ', ' ', letter, '%', 'd', '%', 'n', '\0'};
    if (sscanf(line, start, &number, &end) == 1 && strncmp(line + end, " [", 2) == 0) n++;
  }
  return n;
}

enum { MOST_VALUES = 400 };
typedef struct painted {
  unsigned colour;
  size_t offset;
} painted;

/* Transient values of a plan's drawing, those of subnets too. */
static int read_painted(const char *text, painted *list) {
  int n = 0;
  for (const char *at = strstr(text, "fillcolor=\"#"); at != NULL;
       at = strstr(at + 1, "fillcolor=\"#")) {
    painted p;
    if (sscanf(at, "fillcolor=\"#%6x\" tooltip=\"offset %zu,", &p.colour, &p.offset) == 2 &&
        n < MOST_VALUES)
      list[n++] = p;
  }
  return n;
}

TEST(a_net_is_drawn_with_one_node_an_op_and_its_backward) {
  neap_net *net = mlp();
  char *text = NULL, *again = NULL;
  CHECK_OK(neap_net_dot(net, &text, &error));
  check_dot(text);
  CHECK_EQ(count(text, "label=\"SoftmaxCrossEntropy\""), 1);
  CHECK_EQ(count(text, "label=\"SoftmaxCrossEntropyGrad\""), 1);
  CHECK_EQ(count(text, "label=\"Sgd\""), 3);
  CHECK_EQ(count(text, "label=\"FCGradWeight\""), 3);
  CHECK_EQ(count(text, "label=\"w1_grad\\n"), 1);
  CHECK_EQ(count(text, "tooltip=\"offset"), 0);
  CHECK_OK(neap_net_dot(net, &again, &error));
  CHECK(strcmp(text, again) == 0);
  neap_free(text);
  neap_free(again);
  neap_net_free(net);
}

TEST(a_plan_is_drawn_with_one_colour_a_place_whatever_the_policy) {
  static const char *const policy[] = {"offset", "name", "none", "pool"};
  static painted list[MOST_VALUES];
  for (int i = 0; i < 14; i++) {
    neap_net *net = i % 2 == 0 ? mlp() : training_net(control_text);
    neap_options options = {.policy = policy[i / 2 % 4],
                            .executor = i >= 8 ? "dag" : NULL /* pool needs simple */};
    neap_figures figures;
    char *text = NULL;
    CHECK_OK(neap_net_plan_dot(net, &options, &text, &error));
    CHECK_OK(neap_net_forecast(net, &options, &figures, NULL, &error));
    if (text == NULL) continue;
    check_dot(text);
    CHECK_EQ(count_nodes(text, 'o'), figures.n_op);
    int n = read_painted(text, list), shared = 0;
    CHECK(n >= 3);
    for (int a = 0; a < n; a++)
      for (int b = 0; b < a; b++) {
        CHECK((list[a].colour == list[b].colour) == (list[a].offset == list[b].offset));
        shared += list[a].offset == list[b].offset;
      }
    if (i / 2 % 4 == 0) CHECK(shared > 0); /* what is planned is reused */
    for (int a = 0; a < n; a++) CHECK(list[a].offset < (size_t)figures.arena_bytes);
    neap_free(text);
    neap_net_free(net);
  }
}

TEST(subnets_are_clusters_joined_to_what_they_take_and_give) {
  neap_net *net = training_net(control_text);
  char *text = NULL;
  for (int planned = 0; planned < 2; planned++) {
    CHECK_OK(planned ? neap_net_plan_dot(net, NULL, &text, &error)
                     : neap_net_dot(net, &text, &error));
    check_dot(text);
    CHECK_EQ(count(text, "subgraph cluster_"), 4); /* two branches, forward and backward */
    CHECK_EQ(count(text, "label=\"then_net of "), 2);
    CHECK_EQ(count(text, ", backward\""), 2);
    /* Forward: each branch takes h and gives z. Backward: each takes h and the gradient, and gives
     * h's gradient. */
    CHECK_EQ(count(text, "[style=dashed"), 2 * 2 + 2 * 3);
    neap_free(text);
  }
  neap_net_free(net);
}

/* ---- SVG ------------------------------------------------------------------------------------- */

/* Every tag is closed by its own name, nothing is left open, and no bare < or & is in the text. */
static void check_xml(const char *text) {
  char open[32][32];
  int depth = 0;
  for (const char *c = text; *c != '\0'; c++) {
    if (*c == '&')
      CHECK(strncmp(c, "&amp;", 5) == 0 || strncmp(c, "&lt;", 4) == 0 ||
            strncmp(c, "&gt;", 4) == 0 || strncmp(c, "&quot;", 6) == 0);
    if (*c != '<') continue;

    const char *end = strchr(c, '>');
    char name[32] = "";
    CHECK(end != NULL &&
          (sscanf(c + 1, "%31[a-zA-Z]", name) == 1 || sscanf(c + 1, "/%31[a-zA-Z]", name) == 1));
    if (end == NULL || name[0] == '\0') return;

    /* Names of open tags lie on a stack; one that closes itself never gets there. */
    if (c[1] == '/') {
      CHECK(depth > 0 && strcmp(open[depth - 1], name) == 0);
      depth -= depth > 0;
    } else if (end[-1] != '/' && depth < 32) {
      strcpy(open[depth++], name);
    }
    c = end;
  }
  CHECK_EQ(depth, 0);
  CHECK(strstr(text, "nan") == NULL && strstr(text, "inf\"") == NULL);
}

typedef struct rect {
  double x, y, width, height;
} rect;

/* Boxes of the arena: what is filled with a colour by number. */
static int read_boxes(const char *text, rect *list) {
  int n = 0;
  for (const char *at = strstr(text, "<rect "); at != NULL; at = strstr(at + 1, "<rect ")) {
    rect r;
    char fill[8] = "";
    if (sscanf(at, "<rect x=\"%lf\" y=\"%lf\" width=\"%lf\" height=\"%lf\" fill=\"%4[hsl(]", &r.x,
               &r.y, &r.width, &r.height, fill) == 5 &&
        strcmp(fill, "hsl(") == 0 && n < MOST_VALUES)
      list[n++] = r;
  }
  return n;
}

TEST(a_plan_as_svg_has_one_box_a_storage_that_overlaps_no_other) {
  static rect list[MOST_VALUES];
  static const char *const policy[] = {"offset", "name", "none", "pool"};
  for (int i = 0; i < 14; i++) {
    neap_net *net = i % 2 == 0 ? mlp() : training_net(control_text);
    char *text = NULL;
    CHECK_OK(
      neap_net_plan_svg(net,
                        &(neap_options){.policy = policy[i / 2 % 4],
                                        .executor = i >= 8 ? "dag" : NULL /* pool needs simple */},
                        &text, &error));
    if (text == NULL) continue;
    check_xml(text);
    int n = read_boxes(text, list);
    CHECK(n > 3);
    CHECK_EQ(count(text, "class=\"box\"") + count(text, "class=\"inner\""), n);
    CHECK((count(text, "class=\"inner\"") > 0) == (i % 2 == 1)); /* the frames of the branches */
    CHECK_EQ(count(text, "class=\"peak\""), 1);
    for (int a = 0; a < n; a++)
      for (int b = 0; b < a; b++)
        CHECK(list[a].x + list[a].width < list[b].x + 0.1 ||
              list[b].x + list[b].width < list[a].x + 0.1 ||
              list[a].y + list[a].height < list[b].y + 0.1 ||
              list[b].y + list[b].height < list[a].y + 0.1);
    neap_free(text);
    neap_net_free(net);
  }
}

TEST(members_of_a_storage_are_one_box_that_names_them_all) {
  neap_net *net = read_net(deep_text);
  char *text = NULL;
  CHECK_OK(neap_net_plan_svg(net, &(neap_options){.policy = "none"}, &text, &error));
  CHECK_EQ(count(text, "class=\"box\""), 5); /* a to e; x and y have bytes of their own */
  CHECK_EQ(count(text, "class=\"resident\""), 2);
  neap_free(text);
  CHECK_OK(neap_net_plan_svg(net, NULL, &text, &error));
  CHECK_EQ(count(text, "class=\"box\""), 1); /* each overwrites the one before */
  CHECK(strstr(text, "<title>a, b, c, d, e\n128 B at offset 0, steps 1-6</title>") != NULL);
  neap_free(text);
  neap_net_free(net);
}

TEST(names_are_escaped) {
  static const char odd_text[] =
    "net q<r>&s\ninput x\\<1>&2 f32 (4,8)\na&b<c> = Relu(x\\<1>&2)\nµ…é = Tanh(a&b<c>)\ny = "
    "Exp(µ…é)\noutputs y\n";
  neap_net *net = read_net(odd_text);
  char *text = NULL;
  CHECK_OK(neap_net_dot(net, &text, &error));
  check_dot(text);
  CHECK(strstr(text, "label=\"x\\\\<1>&2\\nf32 (4,8)") != NULL);
  neap_free(text);
  CHECK_OK(neap_net_plan_svg(net, &(neap_options){.policy = "none"}, &text, &error));
  check_xml(text);
  CHECK(strstr(text, "a&amp;b&lt;c&gt;") != NULL);
  CHECK(strstr(text, "x\\&lt;1&gt;&amp;2") != NULL);
  CHECK(strstr(text, "q&lt;r&gt;&amp;s, inference, batch 4") != NULL);
  CHECK(strstr(text, "µ…é") != NULL);
  neap_free(text);
  neap_net_free(net);
}

TEST(a_net_without_ops_or_arena_is_drawn_too) {
  neap_net *net = read_net("net still\ninput x f32 (2)\noutputs x\n");
  char *text = NULL;
  CHECK_OK(neap_net_dot(net, &text, &error));
  check_dot(text);
  neap_free(text);
  CHECK_OK(neap_net_plan_svg(net, NULL, &text, &error));
  check_xml(text);
  CHECK_EQ(count(text, "class=\"box\""), 0);
  neap_free(text);
  neap_net_free(net);
}

/* The decimal comma of many languages is no number in SVG or DOT. */
TEST(pictures_do_not_depend_on_the_locale) {
  neap_net *net = mlp();
  char *here = NULL, *there = NULL;
  CHECK_OK(neap_net_plan_svg(net, NULL, &here, &error));
  bool has_comma = use_comma();
  CHECK_OK(neap_net_plan_svg(net, NULL, &there, &error));
  end_comma();
  CHECK(strstr(here, "iB") != NULL && strstr(there, ",0 KiB") == NULL);
  rect a[MOST_VALUES], b[MOST_VALUES];
  int n = read_boxes(here, a);
  CHECK(n > 3);
  CHECK_EQ(read_boxes(there, b), n);
  CHECK(memcmp(a, b, (size_t)n * sizeof *a) == 0);
  neap_free(here);
  neap_free(there);
  neap_net_free(net);
  if (!has_comma) SKIP("no locale with a decimal comma is installed");
}

/* ---- sessions and workspaces ----------------------------------------------------------------- */

/* A session of the net in a new workspace, with its inputs written, not yet run. */
static neap_session *open_deep(neap_workspace **ws, neap_net *net, const neap_options *options) {
  float x[32];
  neap_session *session = NULL;
  for (int i = 0; i < 32; i++) x[i] = (float)i;
  CHECK_OK(neap_workspace_open(1, ws, &error));
  CHECK_OK(neap_workspace_write(*ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){4, 8}, x, &error));
  CHECK_OK(neap_session_open(*ws, net, options, &session, &error));
  return session;
}

TEST(a_session_is_drawn_as_its_forecast) {
  neap_net *net = read_net(deep_text);
  for (int dag = 0; dag < 2; dag++) {
    neap_options options = {.executor = dag ? "dag" : NULL};
    neap_workspace *ws;
    neap_session *session = open_deep(&ws, net, &options);
    char *text[4] = {NULL};
    CHECK_OK(neap_session_dot(session, &text[0], &error));
    CHECK_OK(neap_net_plan_dot(net, &options, &text[1], &error));
    CHECK_OK(neap_session_svg(session, &text[2], &error));
    CHECK_OK(neap_net_plan_svg(net, &options, &text[3], &error));
    CHECK(strcmp(text[0], text[1]) == 0);
    CHECK(strcmp(text[2], text[3]) == 0);
    for (int i = 0; i < 4; i++) neap_free(text[i]);
    neap_session_free(session);
    neap_workspace_release(ws);
  }
  neap_net_free(net);
}

static const neap_blob_row *row_named(const neap_blob_row *row, int n, const char *name) {
  const neap_blob_row *found = NULL;
  for (int i = 0; i < n; i++)
    if (strcmp(row[i].name, name) == 0) {
      CHECK(found == NULL); /* once */
      found = &row[i];
    }
  CHECK(found != NULL);
  static const neap_blob_row none;
  return found != NULL ? found : &none;
}

TEST(a_workspace_lists_every_blob_with_its_bytes_and_life) {
  neap_net *net = read_net(deep_text);
  neap_workspace *ws, *child = NULL;
  neap_session *session = open_deep(&ws, net, &(neap_options){.policy = "none"});
  neap_blob_row *row = NULL;
  int n = 0;
  CHECK_OK(neap_workspace_feed_string(ws, "note", "hello", 5, &error));
  CHECK_OK(neap_session_run(session, &error));
  CHECK_OK(neap_workspace_blobs(ws, &row, &n, &error));
  CHECK_EQ(n, 8); /* x, y, a to e, note */
  const neap_blob_row *x = row_named(row, n, "x"), *c = row_named(row, n, "c"),
                      *note = row_named(row, n, "note");
  CHECK(strcmp(x->kind, "tensor") == 0 && strcmp(x->region, "io") == 0);
  CHECK(strcmp(c->role, "activation") == 0);
  CHECK(strcmp(x->dtype, "f32") == 0 && x->shape.n == 2 && x->shape.number[0] == 4 &&
        x->shape.number[1] == 8);
  CHECK_EQ(x->counted_bytes, 128);
  CHECK(x->first_step == -1 && x->last_step == 0);
  CHECK(strcmp(c->kind, "transient") == 0 && strcmp(c->region, "arena") == 0);
  CHECK_EQ(c->bytes, 128);
  CHECK(c->first_step == 2 && c->last_step == 3);
  CHECK(strcmp(note->kind, "string") == 0 && note->bytes == 5 && note->dtype[0] == '\0' &&
        note->shape.number == NULL);
  CHECK_EQ(note->first_step, NEAP_NO_INDEX);
  neap_free(row);

  char *table = NULL;
  CHECK_OK(neap_workspace_table(ws, &table, &error));
  CHECK_EQ(count(table, "\n"), 10); /* a head, a line a blob, the total */

  /* x, y, note */
  CHECK(strstr(table, "before-1") != NULL && strstr(table, "3-4") != NULL &&
        strstr(table, "261 B") != NULL);
  CHECK_EQ(count(table, "█"), 141); /* 20 for each of seven of 128 B, one for the note */
  neap_free(table);

  CHECK_OK(neap_workspace_open_child(ws, 1, (const char *const[]){"seen"},
                                     (const char *const[]){"x"}, &child, &error));
  CHECK_OK(neap_workspace_blobs(child, &row, &n, &error));
  CHECK_EQ(n, 1);
  CHECK(row[0].borrowed && strcmp(row[0].name, "seen") == 0 && row[0].bytes == 128);
  neap_free(row);
  neap_workspace_release(child);
  neap_session_free(session);
  neap_workspace_release(ws);
  neap_net_free(net);
}

TEST(rows_outlive_their_workspace_and_an_empty_one_has_none) {
  neap_workspace *ws = NULL;
  neap_blob_row *row = NULL;
  char *text = NULL;
  int n = -1;
  CHECK_OK(neap_workspace_open(1, &ws, &error));
  CHECK_OK(neap_workspace_blobs(ws, &row, &n, &error));
  CHECK_EQ(n, 0);
  neap_free(row);
  CHECK_OK(neap_workspace_table(ws, &text, &error));
  CHECK(strstr(text, "total") != NULL && strstr(text, "0 B") != NULL);
  neap_free(text);
  CHECK_OK(neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 0, NULL, &(float){1}, &error));
  CHECK_OK(neap_workspace_blobs(ws, &row, &n, &error));
  neap_workspace_release(ws);
  CHECK(n == 1 && strcmp(row[0].name, "x") == 0 && strcmp(row[0].kind, "tensor") == 0);
  neap_free(row);
}

TEST(a_workspace_is_drawn_with_the_program_used_last_and_its_other_blobs) {
  neap_net *net = read_net(deep_text),
           *small = read_net("net small\ninput x f32 (4,8)\np = Relu(x)\nq = Tanh(p)\noutputs q\n");
  neap_workspace *ws;
  neap_session *session = open_deep(&ws, net, NULL), *second = NULL;
  char *text = NULL;
  CHECK_OK(
    neap_workspace_write(ws, "kept&", NEAP_DTYPE_F32, 1, (int64_t[]){2}, (float[]){1, 2}, &error));
  CHECK_OK(neap_workspace_svg(ws, &text, &error)); /* made, not yet run */
  check_xml(text);
  CHECK(strstr(text, ">deep, inference") != NULL);
  CHECK_EQ(count(text, "class=\"other\""), 1);
  CHECK(strstr(text, "other blobs") != NULL &&
        strstr(text, "<title>kept&amp;\n8 B</title>") != NULL);
  neap_free(text);
  CHECK_OK(neap_session_open(ws, small, NULL, &second, &error));
  CHECK_OK(neap_workspace_svg(ws, &text, &error));
  CHECK(strstr(text, ">small, inference") != NULL);
  neap_free(text);
  CHECK_OK(neap_session_run(session, &error));
  CHECK_OK(neap_workspace_svg(ws, &text, &error));
  CHECK(strstr(text, ">deep, inference") != NULL);
  neap_free(text);
  neap_session_free(session);
  CHECK_OK(neap_workspace_svg(ws, &text, &error)); /* what is left */
  CHECK(strstr(text, ">small, inference") != NULL);
  neap_free(text);
  text = NULL;
  neap_session_free(second);
  CHECK_FAILS(neap_workspace_svg(ws, &text, &error), NEAP_ARGUMENT, "it has none");
  CHECK_EQ(neap_workspace_svg(ws, &text, NULL), NEAP_ARGUMENT);
  CHECK(text == NULL);
  neap_workspace_release(ws);
  neap_net_free(net);
  neap_net_free(small);
}

/* ---- what goes wrong ------------------------------------------------------------------------- */

TEST(wrong_options_and_paths_are_errors_that_leave_everything_as_it_was) {
  neap_net *net = read_net(deep_text);
  char *text = NULL;
  CHECK_FAILS(neap_net_plan_dot(net, &(neap_options){.policy = "best"}, &text, &error),
              NEAP_ARGUMENT, "best");
  CHECK_FAILS(neap_net_plan_svg(net, &(neap_options){.budget = 1}, &text, &error), NEAP_BUDGET, "");
  CHECK(text == NULL);
  CHECK_FAILS(neap_text_save("x", "/nowhere/at/all.svg", &error), NEAP_IO, "/nowhere/at/all.svg");
  CHECK_FAILS(neap_text_save("x", "/dev/full", &error), NEAP_IO, "/dev/full");
  CHECK_FAILS(neap_text_save("x", "", &error), NEAP_IO, "");

  char directory[] = "/tmp/neap_test_XXXXXX", path[64], line[16] = "";
  CHECK(mkdtemp(directory) != NULL);
  snprintf(path, sizeof path, "%s/a.dot", directory);
  CHECK_OK(neap_text_save("first\n", path, &error));
  CHECK_OK(neap_text_save("second\n", path, &error));
  FILE *file = fopen(path, "r");
  CHECK(file != NULL && fgets(line, sizeof line, file) != NULL && strcmp(line, "second\n") == 0);
  fclose(file);
  unlink(path);
  CHECK_EQ(rmdir(directory), 0); /* nothing else is left in it */
  neap_net_free(net);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(a_net_is_drawn_with_one_node_an_op_and_its_backward),
             T(a_plan_is_drawn_with_one_colour_a_place_whatever_the_policy),
             T(subnets_are_clusters_joined_to_what_they_take_and_give),
             T(a_plan_as_svg_has_one_box_a_storage_that_overlaps_no_other),
             T(members_of_a_storage_are_one_box_that_names_them_all), T(names_are_escaped),
             T(a_net_without_ops_or_arena_is_drawn_too), T(pictures_do_not_depend_on_the_locale),
             T(a_session_is_drawn_as_its_forecast),
             T(a_workspace_lists_every_blob_with_its_bytes_and_life),
             T(rows_outlive_their_workspace_and_an_empty_one_has_none),
             T(a_workspace_is_drawn_with_the_program_used_last_and_its_other_blobs),
             T(wrong_options_and_paths_are_errors_that_leave_everything_as_it_was));
}
