/* test_picture.c: pictures when memory is refused, and names that the public API can't make. */
#include "api/api.h"
#include "check.h"
#include "report/report.h"

#include <unistd.h>

static const char net_text[] =
  "net control\ninput x f32 (4)\ninput flag bool ()\nparam w f32 (4) = Constant { value = 1 }\nh = "
  "Mul(x, w)\n"
  "subnet yes\n  r = Relu(h)\n  takes h\n  gives r\nend\n"
  "subnet no\n  s = Add(h, h)\n  t = Tanh(s)\n  takes h\n  gives t\nend\n"
  "z = If(flag, h) { then_net = yes, else_net = no }\nloss = Sum(z)\noutputs loss\n";

typedef struct subject {
  neap_net *net;
  neap_workspace *ws;
  neap_session *session;
} subject;

static subject make_subject(void) {
  subject s = {0};
  CHECK_OK(neap_net_read(net_text, &s.net, &error));
  CHECK_OK(neap_net_add_gradient(s.net, "loss", 0, NULL, NULL, NULL, &error));
  CHECK_OK(neap_workspace_open(1, &s.ws, &error));
  CHECK_OK(neap_workspace_write(s.ws, "x", NEAP_DTYPE_F32, 1, (int64_t[]){4}, (float[]){1, 2, 3, 4},
                                &error));
  CHECK_OK(neap_workspace_write(s.ws, "flag", NEAP_DTYPE_BOOL, 0, NULL, &(bool){true}, &error));
  CHECK_OK(neap_workspace_write(s.ws, "other", NEAP_DTYPE_F32, 0, NULL, &(float){1}, &error));
  CHECK_OK(neap_session_open(s.ws, s.net, NULL, &s.session, &error));
  CHECK_OK(neap_session_run(s.session, &error));
  return s;
}

static void end_subject(subject *s) {
  neap_session_free(s->session);
  neap_workspace_release(s->ws);
  neap_net_free(s->net);
}

static neap_status draw_net(subject *s, char **out, neap_error *error) {
  return neap_net_dot(s->net, out, error);
}
static neap_status draw_plan(subject *s, char **out, neap_error *error) {
  return neap_net_plan_svg(s->net, NULL, out, error);
}
static neap_status draw_session_dot(subject *s, char **out, neap_error *error) {
  return neap_session_dot(s->session, out, error);
}
static neap_status draw_session_svg(subject *s, char **out, neap_error *error) {
  return neap_session_svg(s->session, out, error);
}
static neap_status draw_table(subject *s, char **out, neap_error *error) {
  return neap_workspace_table(s->ws, out, error);
}
static neap_status draw_workspace(subject *s, char **out, neap_error *error) {
  return neap_workspace_svg(s->ws, out, error);
}
static neap_status list_blobs(subject *s, char **out, neap_error *error) {
  int n;
  return neap_workspace_blobs(s->ws, (neap_blob_row **)(void *)out, &n, error);
}

/* The n-th allocation fails, then the next one, until the picture is drawn: then it is the same as
 * ever. */
TEST(refused_memory_is_an_error_that_leaves_nothing_behind) {
  static neap_status (*const draw[])(subject *, char **, neap_error *) = {
    draw_net,   draw_plan,      draw_session_dot, draw_session_svg,
    draw_table, draw_workspace, list_blobs};
  subject s = make_subject();
  for (int i = 0; i < NEAP_COUNT(draw); i++) {
    char *whole = NULL;
    CHECK_OK(draw[i](&s, &whole, &error));
    int64_t live = neap_memory_read().n_live, n = 1;
    for (bool done = false; !done && n < 10000 && check_failures < 5; n++) {
      char *text = NULL;
      neap_error error = {0};
      neap_memory_fail_nth_block(n);
      neap_status status = draw[i](&s, &text, &error);
      done = !neap_memory_failed();
      neap_memory_fail_nth(0, false);
      CHECK_EQ(status, done ? NEAP_OK : NEAP_MEMORY);
      CHECK((text != NULL) == done);
      if (done && draw[i] != list_blobs) CHECK(strcmp(text, whole) == 0);
      neap_free(text);
      CHECK_EQ(neap_memory_read().n_live, live);
    }
    CHECK(n > 2); /* there was something to refuse */
    neap_free(whole);
  }
  end_subject(&s);
}

TEST(quotes_backslashes_and_line_ends_are_escaped_in_dot) {
  neap_net *net = NULL;
  neap_graph *graph = NULL;
  neap_buffer out = {0};
  CHECK_OK(neap_net_read("net a\ninput x f32 (4)\ny = Relu(x)\noutputs y\n", &net, &error));
  CHECK_OK(neap_graph_prepare(net, NULL, &graph, &error));
  graph->name = "say \"a\\b\"\nnow";
  graph->node[0].name = "}\"";
  graph->node[0].line = "it\"s.lua:1";
  graph->value[0].name = "\"";
  neap_report_dot(NULL, graph, 0, &out);
  CHECK(strstr(out.text, "digraph \"say \\\"a\\\\b\\\"\\nnow\" {") == out.text);
  CHECK(strstr(out.text, "tooltip=\"}\\\" it\\\"s.lua:1\"];") != NULL);
  CHECK(strstr(out.text, "label=\"\\\"\\nf32 (4)") != NULL);
  neap_buffer_fini(&out);
  neap_graph_free(graph);
  neap_net_free(net);
}

TEST(control_characters_never_reach_svg) {
  neap_net *net = NULL;
  neap_forecast forecast;
  neap_buffer out = {0};
  CHECK_OK(
    neap_net_read("net a\ninput x f32 (4)\nm = Relu(x)\ny = Exp(m)\noutputs y\n", &net, &error));
  CHECK_OK(neap_driver_plan(net, &(neap_compile_options){.plan.policy = NEAP_POLICY_NONE},
                            &forecast, &error));
  for (int v = 0; v < forecast.graph->n_value; v++)
    forecast.graph->value[v].name = "\x01\x1b[2J\"'<>&";
  neap_report_svg(forecast.plan, forecast.graph, NULL, 0, NULL, &out);
  for (const char *c = out.text; *c != '\0'; c++) CHECK((unsigned char)*c >= ' ' || *c == '\n');
  CHECK(strstr(out.text, "??[2J&quot;'&lt;&gt;&amp;") != NULL);
  neap_buffer_fini(&out);
  neap_forecast_fini(&forecast);
  neap_net_free(net);
}

/* Thousands of places: graphs of that size are drawn in a moment, and their colours still tell
 * places apart. */
TEST(two_thousand_places_have_two_thousand_colours) {
  enum { N = 2000 };
  neap_buffer text = {0}, out = {0};
  neap_net *net = NULL;
  neap_forecast forecast;
  neap_buffer_add(&text, "net wide\ninput x f32 (4)\n");
  for (int i = 0; i < N; i++)
    neap_buffer_add(&text, "v%d = Relu(%s%d)\n", i + 1, i == 0 ? "x_" : "v", i);
  char *first = strstr(text.text, "x_0");
  memcpy(first, "x  ", 3);
  CHECK_OK(neap_net_read(text.text, &net, &error));
  CHECK_OK(neap_driver_plan(
    net, &(neap_compile_options){.plan.policy = NEAP_POLICY_NONE, .graph.no_rewrite = true},
    &forecast, &error));
  neap_report_dot(forecast.plan, forecast.graph, 0, &out);
  neap_map seen = {0};
  int n = 0;
  for (const char *at = strstr(out.text, "fillcolor=\"#"); at != NULL;
       at = strstr(at + 1, "fillcolor=\"#")) {
    unsigned colour;
    size_t offset;
    if (sscanf(at, "fillcolor=\"#%6x\" tooltip=\"offset %zu,", &colour, &offset) != 2) continue;
    n++;
    CHECK(neap_map_get(&seen, (const void *)(uintptr_t)(colour + 1), -1) < 0);
    CHECK(neap_map_set(&seen, (const void *)(uintptr_t)(colour + 1), 1));
  }
  CHECK_EQ(n, N - 1); /* the last one is the output */
  neap_map_fini(&seen);
  neap_buffer_fini(&text);
  neap_buffer_fini(&out);
  neap_forecast_fini(&forecast);
  neap_net_free(net);
}

int main(int argc, char **argv) {
  return RUN(argc, argv, T(refused_memory_is_an_error_that_leaves_nothing_behind),
             T(quotes_backslashes_and_line_ends_are_escaped_in_dot),
             T(control_characters_never_reach_svg),
             T(two_thousand_places_have_two_thousand_colours));
}
