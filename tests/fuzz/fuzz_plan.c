/* fuzz_plan.c: stored plans and stored choices, as the database and exported models hold them. The
 * first byte says for which net, the second whether plan or choices. What is read prints as a text
 * that is; a plan that the independent verifier takes can be asked for all its pictures and
 * reasons. */
#include "driver/driver.h"

#include "fuzz.h"
#include "report/report.h"

static const char *const nets[] = {
  "net a\ninput x f32 (4,6)\nparam w f32 (3,6) = Xavier\nparam b f32 (3)\ny = FC(x, w, b)\nh = "
  "Relu(y)\nl = Sum(h)\nw_grad, "
  "b_grad = Gradient(l, w, b)\n"
  "input lr f32 ()\nw = Sgd(w, w_grad, lr)\noutputs l\n",
  "net b\ninput x f32 (2,16,8,8)\nparam w f32 (16,16,3,3)\nc = Conv(x, w) { pad = {1,1} }\nr = "
  "Relu(c)\nm = MaxPool(r) { kernel "
  "= {2,2} }\n"
  "g = GlobalAveragePool(m)\np, q = Split(g) { axis = 1, sizes = {8,8} }\ns = Add(p, q)\n",
  "net c\ninput x f32 (3)\nparam hundred f32 ()\nparam two f32 (3)\nsubnet cond\n  input p\n  g = "
  "Max(p)\n  more = Lt(g, "
  "hundred)\n"
  "  takes p, hundred, two\n  gives more\nend\nsubnet body\n  input p\n  q = Mul(p, two)\n  t = "
  "Neg(q)\n  u = Neg(t)\n  takes p, "
  "hundred, two\n"
  "  gives u\nend\ny = While(x, hundred, two) { cond_net = cond, body_net = body, n_state = 1, max "
  "= 20 }\nz = Exp(y)\n",
};

/* A net's graphs and what was chosen and planned for it. */
typedef struct made {
  neap_graph *graph, *laid;
  neap_choices choices;
  neap_plan *plan;
} made;

static made known[NEAP_COUNT(nets)];
static const neap_choose_options asked = {
  .force = true, .engine = NEAP_ENGINE_REF, .n_thread = 2, .scratch_limit = SIZE_MAX};

static made *made_of(int which) {
  made *m = &known[which];
  neap_error error = {0};
  neap_net *net = NULL;
  if (m->plan != NULL) return m;
  neap_plan_options o = {.policy = NEAP_POLICY_OFFSET, .most_steps = 100000};
  neap_status status = neap_net_read(nets[which], &net, &error);
  if (status == NEAP_OK)
    status = neap_graph_prepare(net, &(neap_graph_options){0}, &m->graph, &error);
  if (status == NEAP_OK) status = neap_graph_choose(m->graph, &asked, &m->choices, &error);
  if (status == NEAP_OK) status = neap_graph_lay_out(m->graph, &m->choices, &m->laid, &error);
  if (status == NEAP_OK) status = neap_plan_make(m->laid, &o, &m->plan, &error);
  if (status != NEAP_OK) fprintf(stderr, "net %d: %s\n", which, error.message);
  PROMISE(status == NEAP_OK);
  neap_net_free(net);
  return m;
}

bool fuzz_seed(int k, neap_buffer *out) {
  if (k >= 2 * NEAP_COUNT(nets)) return false;
  const char head[2] = {(char)(k / 2), (char)(k % 2)};
  const made *m = made_of(k / 2);
  neap_buffer_add_n(out, head, 2);
  if (k % 2 == 0)
    neap_plan_print(m->plan, out);
  else
    neap_choices_print(&m->choices, m->graph, out);
  return true;
}

/* What is recalled is what the kernels say, so it prints as it was read; but for blanks and noughts
 * in what they don't. */
static void recall_choices(const char *text, const neap_graph *graph) {
  neap_choices choices = {0};
  neap_error error = {0};
  neap_buffer printed = {0};
  PROMISE(neap_graph_choose(graph, &asked, &choices, &error) == NEAP_OK);
  neap_status status = neap_choices_recall(text, graph, &choices, &error);
  PROMISE_SAID(status, error);
  if (status == NEAP_OK) {
    neap_choices_print(&choices, graph, &printed);
    PROMISE(neap_choices_recall(printed.text, graph, &choices, &error) == NEAP_OK);
  }
  neap_buffer_fini(&printed);
  neap_choices_fini(&choices);
}

/* Everything that is said of a sound plan. */
static void ask(const neap_plan *plan, const neap_graph *graph) {
  neap_buffer out = {0};
  neap_plan_print(plan, &out);
  neap_report_dot(plan, graph, 2, &out);
  neap_report_svg(plan, graph, NULL, 0, NULL, &out);
  PROMISE(!out.failed);
  neap_buffer_fini(&out);
}

static void read_plan(const char *text, const neap_graph *graph) {
  neap_plan *plan = NULL;
  neap_error error = {0};
  neap_status status = neap_plan_read(text, graph, &plan, &error);
  PROMISE_SAID(status, error);
  if (status == NEAP_OK) status = neap_plan_verify(plan, graph, &error);
  PROMISE_SAID(status, error);
  if (status == NEAP_OK) ask(plan, graph);
  neap_plan_free(plan);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  if (n < 2) return 0;
  const made *m = made_of(data[0] % NEAP_COUNT(nets));
  char *text = fuzz_text(data + 2, n - 2);
  if (data[1] % 2 == 0)
    read_plan(text, m->laid);
  else
    recall_choices(text, m->graph);
  neap_free(text);
  return 0;
}
