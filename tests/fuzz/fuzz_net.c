/* fuzz_net.c: the text of a net. What reads prints as a text that reads as the same net, which
 * prints the same; what can be planned has plans that pass the independent verifier. */
#include "driver/driver.h"

#include "fuzz.h"

static const char *const seeds[] = {
  "net a\ninput x f32 (4,6)\nparam w f32 (3,6) = Xavier\nparam b f32 (3) = Constant { value = 0.5 "
  "}\nlabel = Cast(x) { to = i64 "
  "}\n"
  "y = FC(x, w, b)\nh = Relu(y)\nd = Dropout(h) { rate = 0.5 }\nloss = Sum(d)\nw_grad, b_grad = "
  "Gradient(loss, w, b)\n"
  "input lr f32 ()\nw = Sgd(w, w_grad, lr)\noutputs loss\nkeep h\n",
  "net b\ninput x f32 (2,1,8,8)\nparam w f32 (4,1,3,3) = Kaiming { gain = 1.4 }\nc = Conv(x, w) { "
  "pad = {1,1} } on cpu:1\n"
  "m = MaxPool(c) { kernel = {2,2}, stride = {2,2} }\nf = Flatten(m)\np, q = Split(f) { axis = 1, "
  "sizes = {32,32} }\ns = "
  "Concat(p, q) { axis = 0 }\n"
  "t = Permute(s) { axes = {1,0} }\nr = Reshape(t) { shape = {-1,8} }\nbank fast r, s\ngone = "
  "Free(m)\noutputs r\n",
  "net c\ninput x f32 (3)\nparam hundred f32 () = Constant { value = 100 }\nparam two f32 (3) = "
  "Constant { value = 2 }\nsubnet "
  "cond\n  input p\n"
  "  g = Max(p)\n  more = Lt(g, hundred)\n  takes p, hundred, two\n  gives more\nend\nsubnet "
  "body\n  input p\n  q = Mul(p, "
  "two)\n  takes p, hundred, two\n"
  "  gives q\nend\ny = While(x, hundred, two) { cond_net = cond, body_net = body, n_state = 1, max "
  "= 20 }\n",
  "net d\ninput a f32 (2)\ninput b f32 (2)\ns = CreateScope()\nsubnet add closed\n  input u\n  "
  "input v\n  w = Add(u, v)\nend\n"
  "c, s = Do(a, b, s) { net = add, inner_blobs = {u, v, w}, outer_blobs_idx = {0,1,2} }\nstate n "
  "i64 () = Constant { value = 1 "
  "}\n"
  "e = HasScope(s)\nn = Add(n, n)\noutputs c, n\n",
  "net e\ninput x f32 (5,2,3)\ninput c bool ()\nparam w f32 (16,3) = Xavier\nparam r f32 (16,4) = "
  "Xavier\nparam b f32 (16)\ny, "
  "h, k = LSTM(x, w, r, b)\n"
  "subnet yes\n  z = Neg(y)\n  takes y\n  gives z\nend\nsubnet no\n  z = Relu(y)\n  takes y\n  "
  "gives z\nend\nz = If(c, y) { "
  "then_net = yes, else_net = no }\nl = Mean(z)\n"
  "w_grad, r_grad = Gradient(l, w, r)\n",
};

bool fuzz_seed(int k, neap_buffer *out) {
  if (k >= NEAP_COUNT(seeds)) return false;
  neap_buffer_add_n(out, seeds[k], strlen(seeds[k]));
  return true;
}

/* The same net by both its texts. */
static void read_back(const neap_net *net) {
  neap_error error = {0};
  neap_buffer once = {0}, twice = {0};
  neap_net *again = NULL;
  neap_net_print(net, true, &once);
  PROMISE(!once.failed);
  neap_status status = neap_net_read(once.text, &again, &error);
  if (status != NEAP_OK) fprintf(stderr, "%s\n%s", error.message, once.text);
  PROMISE(status == NEAP_OK);
  neap_net_print(again, true, &twice);
  PROMISE(strcmp(once.text, twice.text) == 0);
  neap_buffer_fini(&once);
  neap_buffer_fini(&twice);
  neap_net_free(again);
}

static void plan(const neap_graph *graph) {
  for (neap_policy policy = NEAP_POLICY_NONE; policy <= NEAP_POLICY_OFFSET; policy++)
    for (int dag = 0; dag < 2; dag++) {
      neap_error error = {0};
      neap_plan *made = NULL;
      neap_plan_options o = {.policy = policy,
                             .executor = dag ? NEAP_EXECUTOR_DAG : NEAP_EXECUTOR_SIMPLE,
                             .most_steps = 2000};
      neap_status status = neap_plan_make(graph, &o, &made, &error);
      PROMISE_SAID(status, error);
      if (status != NEAP_OK) continue;
      status = neap_plan_verify(made, graph, &error);
      if (status != NEAP_OK) fprintf(stderr, "%s\n", error.message);
      PROMISE(status == NEAP_OK);
      neap_plan_free(made);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
  char *text = fuzz_text(data, n);
  neap_error error = {0};
  neap_net *net = NULL;
  neap_status status = neap_net_read(text, &net, &error);
  PROMISE_SAID(status, error);
  neap_free(text);
  if (status != NEAP_OK) return 0;
  read_back(net);
  neap_graph *graph = NULL, *laid = NULL;
  neap_choices choices = {0};
  status = neap_graph_prepare(net, &(neap_graph_options){.no_rewrite = n % 2 == 0}, &graph, &error);
  neap_choose_options choose = {
    .force = true, .engine = NEAP_ENGINE_REF, .n_thread = 1, .scratch_limit = SIZE_MAX};
  if (status == NEAP_OK) status = neap_graph_choose(graph, &choose, &choices, &error);
  if (status == NEAP_OK) status = neap_graph_lay_out(graph, &choices, &laid, &error);
  PROMISE_SAID(status, error);
  if (status == NEAP_OK) plan(laid);
  neap_choices_fini(&choices);
  neap_graph_free(laid);
  neap_graph_free(graph);
  neap_net_free(net);
  return 0;
}
