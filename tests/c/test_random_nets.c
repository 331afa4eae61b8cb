/* test_random_nets.c: the whole way from a net to its plan, and for some to its run, on nets that nobody has thought of: branches,
 * blobs written twice and in place by name, views, several consumers, AddN, Concat and Split, Free, If, While and Recurrent with
 * an Sgd inside, in one another, gradients of it all. Every plan goes through the independent verifier; every run must give the bits of the unplanned run, and so must the
 * net written out or with its names recycled.
 *
 * A net is made as text from one seed, so that a failure prints all it takes to see it again: `test_random_nets SEED` prints
 * that net. INVARIANT: the generator writes valid nets only; a net that is refused is a failure here.
 */
#include "mlp.h"

#include <stdlib.h>

enum { MOST_BLOBS = 160, N_PLANNED = 10000, N_RUN = 500, N_STEP = 3 };

/* ---- the generator ------------------------------------------------------------------------------------------------ */

typedef struct made {
  int n, rows, columns;
  bool is_activation, is_gone; /* gone: freed, or behind Free in the text */
  bool is_smooth;              /* a gradient may go through */
} made;

typedef struct generator {
  uint64_t seed;
  uint32_t drawn;
  neap_buffer head, body, after; /* declarations, ops, what follows the gradient */
  made blob[MOST_BLOBS];
  int n_blob, n_param, n_state, n_sub, size;
  int read[20], n_read; /* blobs that the op being written reads: not to be overwritten but where it allows */
  bool train;
} generator;

static int below(generator *g, int n) {
  uint32_t word[4];
  neap_philox(g->seed, 77, 0, g->drawn++, word);
  return (int)(word[0] % (uint32_t)n);
}
static bool chance(generator *g, int percent) { return below(g, 100) < percent; }

static int remember(generator *g, int rows, int columns, bool is_activation) {
  int k = g->n_blob++;
  g->blob[k] = (made){.n = k, .rows = rows, .columns = columns, .is_activation = is_activation};
  return k;
}

static int fresh(generator *g, int rows, int columns) { return remember(g, rows, columns, true); }

/* Name of an output of a shape: mostly a new one, at times one that was written before, the input's own for in place. */
static int target(generator *g, int rows, int columns, int input) {
  if (input >= 0 && g->blob[input].is_activation && chance(g, 25) && g->blob[input].rows == rows &&
      g->blob[input].columns == columns)
    return input;
  if (chance(g, 10)) {
    int k = below(g, g->n_blob);
    made *b = &g->blob[k];
    bool is_read = false;
    for (int i = 0; i < g->n_read; i++) is_read = is_read || g->read[i] == k;
    if (b->is_activation && !b->is_gone && !is_read) {
      b->rows = rows, b->columns = columns; /* another version may have another shape */
      return k;
    }
  }
  return fresh(g, rows, columns);
}

/* Newer blobs are likelier, so that nets grow deep as well as wide. */
static int any(generator *g) {
  int k;
  do k = chance(g, 60) ? g->n_blob - 1 - below(g, NEAP_MIN(g->n_blob, 5)) : below(g, g->n_blob);
  while (g->blob[k].is_gone);
  if (g->n_read < NEAP_COUNT(g->read)) g->read[g->n_read++] = k;
  return k;
}

static int like(generator *g, int k) {
  for (int tries = 0; tries < 12; tries++) {
    int other = any(g);
    if (g->blob[other].rows == g->blob[k].rows && g->blob[other].columns == g->blob[k].columns) return other;
    g->n_read--;
  }
  return k;
}

static int param(generator *g, int rows, int columns) {
  int k = g->n_param++;
  if (rows > 0)
    neap_buffer_add(&g->head, "param w%d f32 (%d,%d) = Uniform { low = -0.5, high = 0.5 }\n", k, rows, columns);
  else
    neap_buffer_add(&g->head, "param w%d f32 (%d) = Uniform { low = -0.5, high = 0.5 }\n", k, columns);
  return k;
}

static void op_unary(generator *g) {
  static const char *const type[] = {"Relu", "Tanh", "Sigmoid", "Gelu", "Softmax", "LayerNorm", "Copy", "Neg", "StopGradient"};
  int x = any(g), rows = g->blob[x].rows, columns = g->blob[x].columns, kind = below(g, NEAP_COUNT(type)),
      y = target(g, rows, columns, x);
  neap_buffer_add(&g->body, "v%d = %s(v%d)\n", y, type[kind], x);
}

static void op_binary(generator *g) {
  static const char *const type[] = {"Add", "Sub", "Mul", "Add"};
  int x = any(g), z = like(g, x), rows = g->blob[x].rows, columns = g->blob[x].columns, y = target(g, rows, columns, x);
  neap_buffer_add(&g->body, "v%d = %s(v%d, v%d)\n", y, type[below(g, 4)], x, z);
}

static void op_bias(generator *g) {
  int x = any(g), w = param(g, 0, g->blob[x].columns), y = target(g, g->blob[x].rows, g->blob[x].columns, x);
  neap_buffer_add(&g->body, "v%d = Add(v%d, w%d)\n", y, x, w);
}

static void op_add_n(generator *g) {
  int x = any(g), rows = g->blob[x].rows, columns = g->blob[x].columns, n = 2 + below(g, 4), in[6];
  for (int i = 0; i < n; i++) in[i] = i == 0 ? x : like(g, x);
  int y = target(g, rows, columns, x);
  neap_buffer_add(&g->body, "v%d = AddN(v%d", y, in[0]);
  for (int i = 1; i < n; i++) neap_buffer_add(&g->body, ", v%d", in[i]);
  neap_buffer_add(&g->body, ")\n");
}

static void op_fc(generator *g) {
  int x = any(g), rows = g->blob[x].rows, columns = g->blob[x].columns, out = 2 * (1 + below(g, g->size)),
      w = param(g, out, columns);
  int b = param(g, 0, out), y = target(g, rows, out, -1);
  neap_buffer_add(&g->body, "v%d = FC(v%d, w%d, w%d)\n", y, x, w, b);
}

static void op_matmul(generator *g) {
  int x = any(g), z = like(g, x), rows = g->blob[x].rows, y = target(g, rows, rows, -1);
  neap_buffer_add(&g->body, "v%d = MatMul(v%d, v%d) { trans_b = true }\n", y, x, z);
}

static void op_concat(generator *g) {
  int x = any(g), z = like(g, x), rows = g->blob[x].rows, columns = g->blob[x].columns;
  if (columns > 64) return op_unary(g);
  int y = target(g, rows, 2 * columns, -1);
  neap_buffer_add(&g->body, "v%d = Concat(v%d, v%d) { axis = 1 }\n", y, x, z);
}

static void op_split(generator *g) {
  int x = any(g), rows = g->blob[x].rows, columns = g->blob[x].columns;
  if (columns % 2 != 0) return op_unary(g);
  int a = fresh(g, rows, columns / 2), b = fresh(g, rows, columns / 2);
  neap_buffer_add(&g->body, "v%d, v%d = Split(v%d) { axis = 1 }\n", a, b, x);
}

static void op_view(generator *g) {
  int x = any(g), rows = g->blob[x].rows, columns = g->blob[x].columns;
  switch (below(g, 4)) {
    case 0: neap_buffer_add(&g->body, "v%d = Alias(v%d)\n", fresh(g, rows, columns), x); break;
    case 1:
      neap_buffer_add(&g->body, "v%d = Reshape(v%d) { shape = {%d,%d} }\n", fresh(g, columns, rows), x, columns, rows);
      break;
    case 2: neap_buffer_add(&g->body, "v%d = Reshape(v%d) { shape = {1,-1} }\n", fresh(g, 1, rows * columns), x); break;
    default: neap_buffer_add(&g->body, "v%d = Permute(v%d)\n", fresh(g, columns, rows), x);
  }
}

static void op_random(generator *g) {
  int x = any(g), rows = g->blob[x].rows, columns = g->blob[x].columns, y = target(g, rows, columns, x);
  neap_buffer_add(&g->body, "v%d = Dropout(v%d) { rate = 0.3 }\n", y, x);
}

static void op_reduce(generator *g) {
  int x = any(g), rows = g->blob[x].rows, y = target(g, rows, 1, -1);
  neap_buffer_add(&g->body, "v%d = %s(v%d) { axes = {1}, keepdim = true }\n", y, chance(g, 50) ? "Sum" : "Mean", x);
}

/* A blob's life ends here in the net; what a backward op still wants of it is graph's business. */
static void op_free(generator *g) {
  int x = any(g), n_left = 0;
  for (int k = 0; k < g->n_blob; k++) n_left += g->blob[k].is_activation && !g->blob[k].is_gone;
  if (!g->blob[x].is_activation || n_left < 3) return op_unary(g);
  neap_buffer_add(&g->body, "Free(v%d)\n", x);
  g->blob[x].is_gone = true;
}

/* If with locals. One form gives a new blob from both branches; the other has no else_net and writes outer blobs by name: an
 * activation, and a resident state by an Sgd in the branch. */
static void op_if(generator *g) {
  int x = any(g), z = like(g, x), rows = g->blob[x].rows, columns = g->blob[x].columns, s = g->n_sub++;
  if (chance(g, 50)) {
    int y = fresh(g, rows, columns);
    char second[16] = "";
    if (z != x) snprintf(second, sizeof second, ", v%d", z);
    neap_buffer_add(
      &g->body,
      "subnet s%d_then\n  a = Tanh(v%d)\n  b = Mul(a, v%d)\n  b = Relu(b)\n  r = Add(b, a)\n  takes v%d%s\n  gives r\nend\n", s,
      x, z, x, second);
    neap_buffer_add(&g->body, "subnet s%d_else\n  a = Copy(v%d)\n  r = Sigmoid(a)\n  takes v%d%s\n  gives r\nend\n", s, x, x,
                    second);
    neap_buffer_add(&g->body, "v%d = If(c, v%d%s) { then_net = s%d_then, else_net = s%d_else }\n", y, x, second, s, s);
    return;
  }
  int state = g->n_state++, y = g->blob[x].is_activation ? x : fresh(g, rows, columns);
  neap_buffer_add(&g->head, "state m%d f32 (%d,%d) = Uniform { low = -1, high = 1 }\n", state, rows, columns);
  if (y != x) neap_buffer_add(&g->body, "v%d = Copy(v%d)\n", y, x);
  neap_buffer_add(
    &g->body,
    "subnet s%d_then\n  a = StopGradient(v%d)\n  b = Relu(a)\n  d = Add(a, b)\n  m%d = Sgd(m%d, d, lr)\n  v%d = Add(v%d, b)\n"
    "  takes v%d, m%d, lr\n  gives v%d, m%d\nend\nv%d, m%d = If(c, v%d, m%d, lr) { then_net = s%d_then }\n",
    s, y, state, state, y, y, y, state, y, state, y, state, y, state, s);
}

/* Three iterations, bounded or not, with a state that counts and one that computes; at times a row to stack, a random op, a
 * branch, an Sgd of an outer state. */
static void op_while(generator *g) {
  int x = any(g), z = like(g, x), rows = g->blob[x].rows, columns = g->blob[x].columns, s = g->n_sub++,
      y = fresh(g, rows, columns);
  bool bounded = chance(g, 70), stacks = bounded && chance(g, 40), branches = chance(g, 40), drops = chance(g, 40),
       commits = chance(g, 30);
  char m[16] = "", takes[64] = "i, p, q, three, one, c";
  if (commits) {
    int state = g->n_state++;
    snprintf(m, sizeof m, "m%d", state);
    snprintf(takes, sizeof takes, "i, p, %s, q, three, one, c, lr", m);
    neap_buffer_add(&g->head, "state %s f32 (%d,%d) = Uniform { low = -1, high = 1 }\n", m, rows, columns);
  }
  static const char inputs[] = "  input i\n  input p\n  input q\n";
  neap_buffer_add(&g->body, "subnet s%d_cond\n%s  more = Lt(i, three)\n  takes %s\n  gives more\nend\n", s, inputs, takes);
  neap_buffer_add(&g->body, "subnet s%d_body\n%s  i2 = Add(i, one)\n  a = %s\n", s, inputs,
                  drops ? "Dropout(p) { rate = 0.2 }" : "Tanh(p)");
  if (branches)
    neap_buffer_add(&g->body,
                    "  subnet t%d_then\n    r = Sigmoid(a)\n    takes a, q\n    gives r\n  end\n"
                    "  subnet t%d_else\n    r = Mul(a, q)\n    takes a, q\n    gives r\n  end\n"
                    "  b = If(c, a, q) { then_net = t%d_then, else_net = t%d_else }\n",
                    s, s, s, s);
  else
    neap_buffer_add(&g->body, "  b = Mul(a, q)\n");
  if (commits) neap_buffer_add(&g->body, "  u = StopGradient(a)\n  d = Relu(u)\n  %s = Sgd(%s, d, lr)\n", m, m);
  neap_buffer_add(&g->body, "  n = Add(b, p)\n%s  takes %s\n  gives i2, n%s%s%s\nend\n", stacks ? "  row = Gelu(b)\n" : "", takes,
                  commits ? ", " : "", m, stacks ? ", row" : "");
  char row[32] = "", max[24] = "";
  if (stacks) snprintf(row, sizeof row, ", rows%d", s);
  if (bounded) snprintf(max, sizeof max, ", max = %d", 3 + below(g, 2));
  neap_buffer_add(&g->body,
                  "i%d, v%d%s%s%s = While(zero, v%d%s%s, v%d, three, one, c%s) { cond_net = s%d_cond, body_net = s%d_body, "
                  "n_state = %d%s }\n",
                  s, y, commits ? ", " : "", m, row, x, commits ? ", " : "", m, z, commits ? ", lr" : "", s, s, commits ? 3 : 2,
                  max);
}

/* Over the rows of a blob, with a vector as state; at times ops that the backward repeats, and a loop inside. */
static void op_recurrent(generator *g) {
  int x = any(g), rows = g->blob[x].rows, columns = g->blob[x].columns, w = param(g, 0, columns), k = param(g, 0, columns);
  int s = g->n_sub++, y = fresh(g, rows, columns);
  bool nested = chance(g, 30);
  neap_buffer_add(&g->body, "subnet s%d_step\n  input h\n  input x\n  input k\n  a = Mul(h, k)\n  b = Add(a, x)\n  n = Tanh(b)\n",
                  s);
  if (nested)
    neap_buffer_add(&g->body,
                    "  subnet t%d_cond\n    input j\n    input p\n    more = Lt(j, three)\n    takes j, p, x, one, three\n    "
                    "gives more\n  end\n"
                    "  subnet t%d_body\n    input j\n    input p\n    j2 = Add(j, one)\n    e = Sigmoid(p)\n    f = Add(e, x)\n"
                    "    takes j, p, x, one, three\n    gives j2, f\n  end\n"
                    "  j3, o = While(zero, n, x, one, three) { cond_net = t%d_cond, body_net = t%d_body, n_state = 2%s }\n",
                    s, s, s, s, chance(g, 50) ? ", max = 3" : "");
  else
    neap_buffer_add(&g->body, "  o = Mul(n, x)\n");
  neap_buffer_add(&g->body, "  takes h, x, k%s\n  gives n, o\nend\n", nested ? ", zero, one, three" : "");
  neap_buffer_add(&g->body, "h%d, v%d = Recurrent(w%d, v%d, w%d%s) { step_net = s%d_step, n_state = 1, n_seq = 1%s }\n", s, y, w,
                  x, k, nested ? ", zero, one, three" : "", s, chance(g, 40) ? ", recompute = {0,1}" : "");
}

static void add_op(generator *g) {
  static void (*const kind[])(generator *) = {op_unary,  op_unary,  op_unary,  op_binary, op_binary, op_bias,     op_add_n,
                                              op_fc,     op_fc,     op_matmul, op_concat, op_split,  op_view,     op_view,
                                              op_random, op_reduce, op_if,     op_free,   op_while,  op_recurrent};
  g->n_read = 0;
  if (g->n_blob + 4 < MOST_BLOBS) kind[below(g, NEAP_COUNT(kind))](g);
}

/* A loss over the last few blobs, the gradients of the parameters (and at times of an activation's first version), and an
 * update each, the last one at times inside an If. */
static void add_training(generator *g) {
  int x = any(g), z = any(g);
  if (g->n_param == 0) (void)param(g, 0, 4);
  neap_buffer_add(&g->body, "loss_a = Mean(v%d)\nloss_b = Mean(v%d)\nloss_w = Mean(w0)\nloss = AddN(loss_a, loss_b, loss_w)\n", x,
                  z);
  int n = 1 + below(g, g->n_param);
  for (int k = 0; k < n; k++) neap_buffer_add(&g->body, "%sw%d_grad", k > 0 ? ", " : "", k);
  neap_buffer_add(&g->body, " = Gradient(loss");
  for (int k = 0; k < n; k++) neap_buffer_add(&g->body, ", w%d", k);
  neap_buffer_add(&g->body, ")\n");
  for (int k = 0; k < n; k++) {
    if (k == n - 1 && chance(g, 40))
      neap_buffer_add(&g->body,
                      "subnet update\n  w%d = Sgd(w%d, w%d_grad, lr)\n  takes w%d, w%d_grad, lr\n  gives w%d\nend\n"
                      "w%d = If(c, w%d, w%d_grad, lr) { then_net = update }\n",
                      k, k, k, k, k, k, k, k, k);
    else
      neap_buffer_add(&g->body, "w%d = Sgd(w%d, w%d_grad, lr)\n", k, k, k);
  }
}

/* The ops of `body`, each under a name of its own: an op's name is its first output's otherwise, and blobs are written twice. */
static void add_named(neap_buffer *out, const char *body) {
  for (int n = 0; *body != '\0'; n++) {
    size_t length = strcspn(body, "\n");
    neap_buffer_add_n(out, body, length);
    if (memchr(body, '(', length) != NULL) neap_buffer_add(out, " as op_%d", n);
    neap_buffer_add(out, "\n");
    body += length + 1;
  }
}

/* Text of net `seed`; to be freed. Two of three train. */
static char *random_net(uint64_t seed, int most_ops, int size) {
  generator *g = calloc(1, sizeof *g);
  g->seed = seed;
  g->size = size;
  g->train = seed % 3 != 0;
  neap_buffer_add(&g->head,
                  "net random_%llu\ninput c f32 (1)\nstate lr f32 () = Constant { value = 0.05 }\n"
                  "state zero f32 () = Constant { value = 0 }\nstate one f32 () = Constant { value = 1 }\n"
                  "state three f32 () = Constant { value = 3 }\n",
                  (unsigned long long)seed);
  int n_input = 1 + below(g, 3), rows = 1 + below(g, size), columns = 2 * (1 + below(g, size));
  for (int i = 0; i < n_input; i++) {
    int k = remember(g, rows, columns, false);
    neap_buffer_add(&g->head, "input v%d f32 (%d,%d)\n", k, rows, columns);
  }
  for (int i = 0; i < 2; i++) op_unary(g);
  for (int i = 0, n = 2 + below(g, most_ops); i < n; i++) add_op(g);
  if (g->train) add_training(g);
  for (int k = 0; k < g->n_blob; k++)
    if (g->blob[k].is_activation && !g->blob[k].is_gone && chance(g, 4)) neap_buffer_add(&g->body, "keep v%d\n", k);
  if (g->train)
    neap_buffer_add(&g->body, "outputs loss\n");
  else if (chance(g, 50))
    neap_buffer_add(&g->body, "outputs v%d\n", any(g));
  add_named(&g->head, g->body.text);
  char *text = strdup(g->head.text);
  neap_buffer_fini(&g->head);
  neap_buffer_fini(&g->body);
  free(g);
  return text;
}

/* The text with labels on some of the ops outside of subnets, and some of their outputs in banks, anywhere: to be freed. */
static char *in_banks(const char *text, uint64_t seed) {
  static const char *const bank[] = {"fast", "slow", "main"};
  generator *g = calloc(1, sizeof *g);
  g->seed = seed + 1000;
  for (int depth = 0; *text != '\0'; text += strcspn(text, "\n") + 1) {
    int length = (int)strcspn(text, "\n");
    const char *word = text + strspn(text, " ");
    if (strncmp(word, "subnet ", 7) == 0) depth++;
    bool is_op = depth == 0 && memchr(text, '(', (size_t)length) != NULL && strncmp(text, "input ", 6) != 0 &&
                 strncmp(text, "param ", 6) != 0 && strncmp(text, "state ", 6) != 0;
    neap_buffer_add_n(&g->body, text, (size_t)length);
    if (is_op && chance(g, 40)) neap_buffer_add(&g->body, " on %s", bank[below(g, 3)]);
    neap_buffer_add(&g->body, "\n");
    int k, end;
    if (is_op && sscanf(text, "v%d =%n", &k, &end) == 1 && chance(g, 20))
      neap_buffer_add(&g->after, "bank %s v%d\n", bank[below(g, 3)], k);
    if (strncmp(word, "end", 3) == 0 && depth > 0) depth--;
  }
  neap_buffer_add(&g->body, "%s", g->after.text != NULL ? g->after.text : "");
  char *copy = strdup(g->body.text);
  neap_buffer_fini(&g->body);
  neap_buffer_fini(&g->after);
  free(g);
  return copy;
}

/* ---- plans ---------------------------------------------------------------------------------------------------------- */

typedef struct totals {
  int n_net, n_plan, n_proved, n_node, n_if, n_loop, n_in_place, n_alias, n_train, n_again, most_nodes;
  double worst;
} totals;

static void count_plan(const neap_graph *graph, const neap_plan *plan, totals *t) {
  t->n_plan++;
  if (plan->policy != NEAP_POLICY_OFFSET) return;
  t->n_proved += plan->proved;
  if (plan->lower_bound_bytes > 0) t->worst = NEAP_MAX(t->worst, (double)plan->arena_bytes / (double)plan->lower_bound_bytes);
  if (plan->executor != NEAP_EXECUTOR_SIMPLE) return;
  t->n_net++;
  t->n_node += graph->n_node;
  t->most_nodes = NEAP_MAX(t->most_nodes, graph->n_node);
  t->n_train += graph->train;
  for (int n = 0; n < graph->n_node; n++) t->n_if += graph->node[n].n_sub > 0, t->n_loop += graph->node[n].loop != NULL;
  for (int v = 0; v < plan->n_value; v++) {
    t->n_in_place += plan->place[v].reason == NEAP_REASON_IN_PLACE;
    t->n_alias += plan->place[v].reason == NEAP_REASON_ALIAS;
  }
}

static neap_status plan_and_verify(const neap_graph *graph, uint64_t seed, totals *t, neap_error *error) {
  static const neap_policy policy[] = {NEAP_POLICY_OFFSET, NEAP_POLICY_OFFSET, NEAP_POLICY_NAME, NEAP_POLICY_NAME,
                                       NEAP_POLICY_NONE};
  for (int k = 0; k < 4; k++) { /* offset for both executors, then by turns what is left */
    int which = k < 2 ? k : 2 + (int)((seed + (uint64_t)k) % 3);
    neap_plan_options o = {.policy = policy[which],
                           .executor = (neap_executor)(which % 2),
                           .most_steps = 300000,
                           .no_in_place = k == 3 && seed % 7 == 0};
    neap_plan *plan = NULL;
    NEAP_TRY(neap_plan_make(graph, &o, &plan, error));
    neap_status status = neap_plan_verify(plan, graph, error);
    if (status == NEAP_OK && plan->arena_bytes < plan->lower_bound_bytes)
      status = neap_fail(error, NEAP_PLAN, "the arena is below its lower bound");
    count_plan(graph, plan, t);
    neap_plan_free(plan);
    NEAP_TRY(status);
  }
  return NEAP_OK;
}

/* Every other node that may be is repeated for the backward: the plans must be as sound as those of the graph itself. */
static neap_status plan_repeated(const neap_graph *graph, const neap_graph *laid, neap_choices *choices, uint64_t seed, totals *t,
                                 neap_error *error) {
  neap_graph *repeated = NULL;
  int *again = malloc(((size_t)laid->n_node + 1) * sizeof *again), n_again = 0;
  totals apart = {0};
  for (int n = 0; n < laid->n_node; n++)
    if (neap_graph_can_repeat(laid, n) && (seed + (uint64_t)n * 7) % 3 > 0) again[n_again++] = n;
  neap_status s = neap_choices_repeat(choices, n_again, again, error);
  if (s == NEAP_OK) s = neap_graph_lay_out(graph, choices, &repeated, error);
  if (s == NEAP_OK) s = plan_and_verify(repeated, seed, &apart, error);
  for (int n = 0; s == NEAP_OK && n < repeated->n_node; n++) t->n_again += repeated->node[n].repeats > 0;
  t->n_plan += apart.n_plan;
  neap_graph_free(repeated);
  free(again);
  return s;
}

static neap_status plan_net(const char *text, uint64_t seed, totals *t, neap_error *error) {
  neap_net *net = NULL;
  neap_graph *graph = NULL, *laid = NULL;
  neap_choices choices = {0};
  NEAP_TRY(neap_net_read(text, &net, error));
  neap_status s = neap_graph_prepare(net, &(neap_graph_options){.no_rewrite = seed % 5 == 0}, &graph, error);
  neap_choose_options choose = {.force = true, .engine = NEAP_ENGINE_REF, .n_thread = 1, .scratch_limit = SIZE_MAX};
  if (s == NEAP_OK) s = neap_graph_choose(graph, &choose, &choices, error);
  if (s == NEAP_OK) s = neap_graph_lay_out(graph, &choices, &laid, error);
  if (s == NEAP_OK) s = plan_and_verify(laid, seed, t, error);
  if (s == NEAP_OK && laid->train) s = plan_repeated(graph, laid, &choices, seed, t, error);
  neap_choices_fini(&choices);
  neap_graph_free(laid);
  neap_graph_free(graph);
  neap_net_free(net);
  return s;
}

static void report(uint64_t seed, const char *what, const char *message) {
  printf("  net %llu: %s: %s\n", (unsigned long long)seed, what, message);
  check_failures++;
}

static bool wants_freed(const neap_error *error) {
  return error->code == NEAP_GRAPH && strstr(error->message, "has freed it") != NULL;
}

TEST(plans_of_random_nets_pass_the_verifier) {
  totals t = {0};
  int n_freed = 0;
  int n = getenv("NEAP_RANDOM_NETS") != NULL ? atoi(getenv("NEAP_RANDOM_NETS")) : N_PLANNED;
  for (uint64_t seed = 0; seed < (uint64_t)n && check_failures < 5; seed++) {
    char *text = random_net(seed, seed % 100 == 99 ? 60 : 14, 12);
    neap_error error = {0};
    if (plan_net(text, seed, &t, &error) == NEAP_OK) {
    } else if (wants_freed(&error))
      n_freed++;
    else
      report(seed, "refused", error.message);
    free(text);
  }
  int64_t live = neap_memory_read().n_live;
  for (uint64_t seed = 0; seed < 99; seed++) { /* once more, with all names known: nothing may stay behind */
    char *text = random_net(seed, 14, 12);
    totals again = {0};
    (void)plan_net(text, seed, &again, NULL);
    free(text);
  }
  CHECK_EQ(neap_memory_read().n_live, live);
  printf(
    "  %d nets (%d train), %d ops (most %d), %d with subnets, %d of them loops, %d in place, %d views; %d plans verified, %d "
    "proved, arena at most %.3f "
    "of the bound; %d ops repeated for a backward pass\n",
    t.n_net, t.n_train, t.n_node, t.most_nodes, t.n_if, t.n_loop, t.n_in_place, t.n_alias, t.n_plan, t.n_proved, t.worst,
    t.n_again);
  CHECK(t.n_net + n_freed == n && n_freed * 100 < n && t.n_if * 20 > n && t.n_loop * 5 > n && t.n_in_place > n &&
        t.n_alias > n / 4 && t.n_again > n / 8); /* the nets are what the head says */
}

/* ---- runs ----------------------------------------------------------------------------------------------------------- */

typedef struct ran {
  neap_workspace *ws;
  neap_session *session;
} ran;

static void ran_close(ran *r) {
  neap_session_free(r->session);
  neap_workspace_release(r->ws);
  *r = (ran){0};
}

static neap_status feed_inputs(neap_workspace *ws, const neap_net *net, int step, neap_error *error) {
  for (int b = 0; b < neap_net_n_blobs(net); b++) {
    const neap_net_blob *blob = neap_net_blob_at(net, b);
    if (blob->role != NEAP_ROLE_INPUT) continue;
    neap_tensor t;
    NEAP_TRY(mlp_numbers(blob->type.dtype, blob->type.shape, 1000 * step + b, &t, error));
    if (strcmp(blob->name, "c") == 0) neap_element_set(t.dtype, neap_tensor_data(&t), 0, step % 2);
    neap_status status = neap_workspace_feed(ws, blob->name, &t, false, error);
    neap_tensor_fini(&t);
    NEAP_TRY(status);
  }
  return NEAP_OK;
}

static neap_status run_net(const neap_net *net, const neap_compile_options *o, bool poison, ran *r, neap_error *error) {
  *r = (ran){0};
  NEAP_TRY(neap_workspace_new(&(neap_workspace_options){.seed = 5}, &r->ws, error));
  NEAP_TRY(neap_workspace_init(r->ws, net, error));
  neap_workspace_set_poison(r->ws, poison);
  NEAP_TRY(neap_driver_compile(r->ws, net, o, &r->session, error));
  for (int step = 0; step < N_STEP; step++) {
    NEAP_TRY(feed_inputs(r->ws, net, step, error));
    NEAP_TRY(neap_session_run(r->session, error));
  }
  return NEAP_OK;
}

typedef struct comparison {
  const ran *plain, *other;
  int n_same;
  const char *different;
} comparison;

/* Every blob with bytes of its own in the unplanned run; those that are transient there are compared where they can be had. */
static void compare(void *context, const neap_blob_info *info) {
  comparison *c = context;
  if (info->kind != NEAP_BLOB_TENSOR && info->kind != NEAP_BLOB_TRANSIENT) return;
  neap_tensor t = {0};
  bool had = neap_workspace_fetch(c->other->ws, info->name, &t, NULL) == NEAP_OK;
  neap_tensor_fini(&t);
  if (!had && info->kind == NEAP_BLOB_TRANSIENT) return;
  if (!had || !mlp_same_bits(c->plain->ws, c->other->ws, info->name))
    c->different = info->name;
  else
    c->n_same++;
}

/* Another net that must compute the same, run with options `o` beside the plain run; counts the blobs that are equal. */
static int check_like(uint64_t seed, const char *what, const neap_net *net, const neap_compile_options *o, const ran *plain) {
  ran r = {0};
  neap_error error = {0};
  comparison c = {.plain = plain, .other = &r};
  if (run_net(net, o, true, &r, &error) != NEAP_OK)
    report(seed, what, error.message);
  else
    neap_workspace_each(plain->ws, compare, &c);
  if (c.different != NULL) report(seed, what, c.different);
  ran_close(&r);
  return c.n_same;
}

/* The net with its backward pass written out, and with its names recycled; where a gradient runs through a loop, recycled as it
 * stands. */
static int check_rewritten(uint64_t seed, const neap_net *net, neap_compile_options o, const ran *plain, int *n_written) {
  int n_same = 0;
  neap_error error = {0};
  neap_net *other = NULL;
  o.plan = (neap_plan_options){.policy = NEAP_POLICY_NONE};
  if (neap_recycle_write_out(net, NULL, &other, &error) != NEAP_OK) report(seed, "written out", error.message);
  if (other != NULL) n_same += check_like(seed, "written out", other, &o, plain), ++*n_written;
  neap_net_free(other);
  for (int dag = 0; dag < 2 && check_failures == 0; dag++) {
    neap_recycle_figures f;
    other = NULL;
    o.plan = (neap_plan_options){.policy = NEAP_POLICY_NAME, .executor = dag ? NEAP_EXECUTOR_DAG : NEAP_EXECUTOR_SIMPLE};
    if (neap_net_recycle(net, &(neap_recycle_options){.dag = dag}, &other, &f, &error) != NEAP_OK)
      report(seed, "recycled", error.message);
    else if (f.lower_bound_bytes > f.planned_bytes || f.planned_bytes > f.baseline_bytes)
      report(seed, "recycled", "the figures are in the wrong order");
    else
      n_same += check_like(seed, dag ? "recycled, dag" : "recycled", other, &o, plain);
    neap_net_free(other);
  }
  return n_same;
}

/* The same net with ops and blobs in memory banks; n_moved counts the copies between them. */
static int check_banks(uint64_t seed, const char *text, neap_compile_options o, const ran *plain, int *n_moved) {
  static const struct {
    neap_policy policy;
    neap_executor executor;
  } way[] = {{NEAP_POLICY_OFFSET, NEAP_EXECUTOR_SIMPLE},
             {NEAP_POLICY_OFFSET, NEAP_EXECUTOR_DAG},
             {NEAP_POLICY_NAME, NEAP_EXECUTOR_SIMPLE},
             {NEAP_POLICY_NONE, NEAP_EXECUTOR_DAG}};
  static const neap_bank bank[] = {{.name = "fast", .bytes = 1 << 20}, {.name = "slow", .kind = NEAP_BANK_HUGE}};
  char *assigned = in_banks(text, seed);
  neap_net *net = NULL;
  neap_error error = {0};
  int n_same = 0;
  if (neap_net_read(assigned, &net, &error) != NEAP_OK) report(seed, "in banks", error.message);
  o.graph.n_bank = 2;
  o.graph.bank = bank;
  for (int k = 0; net != NULL && k < NEAP_COUNT(way) && check_failures == 0; k++) {
    neap_forecast forecast;
    o.plan = (neap_plan_options){.policy = way[k].policy, .executor = way[k].executor, .most_steps = 300000};
    n_same += check_like(seed, "in banks", net, &o, plain);
    if (k > 0 || neap_driver_plan(net, &o, &forecast, &error) != NEAP_OK) continue;
    for (int n = 0; n < forecast.graph->n_node; n++) {
      const neap_node *node = &forecast.graph->node[n];
      *n_moved += strcmp(node->op->name, "Reorder") == 0 &&
                  neap_graph_bank_of(forecast.graph, node->in[0]) != neap_graph_bank_of(forecast.graph, node->out[0]);
    }
    neap_forecast_fini(&forecast);
  }
  neap_net_free(net);
  free(assigned);
  return n_same;
}

/* A budget that only recomputation can meet, if anything can. */
static size_t tight_budget(const neap_net *net, const neap_compile_options *o) {
  neap_forecast forecast;
  neap_compile_options free_plan = *o;
  free_plan.plan.budget_bytes = 0;
  if (neap_driver_plan(net, &free_plan, &forecast, NULL) != NEAP_OK) return 0;
  size_t arena = forecast.plan->arena_bytes, bytes = arena > NEAP_ALIGN ? arena - NEAP_ALIGN : 0;
  neap_forecast_fini(&forecast);
  return bytes;
}

/* The least that a pool which evicts does with, as its refusal of one byte says. */
static size_t least_pool(const neap_net *net, const neap_compile_options *o) {
  neap_forecast forecast;
  neap_error refused = {0};
  neap_compile_options tight = *o;
  tight.plan.budget_bytes = 1;
  if (neap_driver_plan(net, &tight, &forecast, &refused) == NEAP_OK) neap_forecast_fini(&forecast);
  return (size_t)refused.least_bytes;
}

/* One net: unplanned, then every plan under poison, with the same choices (`engine`, one thread or two). */
static int check_runs(uint64_t seed, const char *engine, int *n_written, int *n_tight, int *n_evicted, int *n_moved) {
  static const struct {
    const char *name;
    neap_policy policy;
    neap_executor executor;
    bool no_in_place, tight, dynamic;
  } way[] = {{"offset", NEAP_POLICY_OFFSET, NEAP_EXECUTOR_SIMPLE, false, false, false},
             {"name", NEAP_POLICY_NAME, NEAP_EXECUTOR_SIMPLE, false, false, false},
             {"offset, nothing in place", NEAP_POLICY_OFFSET, NEAP_EXECUTOR_SIMPLE, true, false, false},
             {"none, dag", NEAP_POLICY_NONE, NEAP_EXECUTOR_DAG, false, false, false},
             {"offset, dag", NEAP_POLICY_OFFSET, NEAP_EXECUTOR_DAG, false, false, false},
             {"name, dag", NEAP_POLICY_NAME, NEAP_EXECUTOR_DAG, false, false, false},
             {"pool", NEAP_POLICY_POOL, NEAP_EXECUTOR_SIMPLE, false, false, false},
             {"recomputed", NEAP_POLICY_OFFSET, NEAP_EXECUTOR_SIMPLE, false, true, false},
             {"evicted", NEAP_POLICY_POOL, NEAP_EXECUTOR_SIMPLE, false, true, false},
             {"pool, side by side", NEAP_POLICY_POOL, NEAP_EXECUTOR_SIMPLE, false, false, true},
             {"evicted, side by side", NEAP_POLICY_POOL, NEAP_EXECUTOR_SIMPLE, false, true, true}};
  char *text = random_net(seed, 14, 6);
  neap_net *net = NULL;
  neap_error error = {0};
  ran plain = {0};
  int n_same = 0;
  neap_compile_options o = {.plan = {.policy = NEAP_POLICY_NONE}, .n_thread = 1 + (int)(seed % 2), .engine = engine};
  bool runs = neap_net_read(text, &net, &error) == NEAP_OK && run_net(net, &o, false, &plain, &error) == NEAP_OK;
  if (!runs && !wants_freed(&error)) report(seed, "unplanned", error.message);
  for (int k = 0; runs && k < NEAP_COUNT(way) && check_failures == 0; k++) {
    ran r = {0};
    bool evicts = way[k].tight && way[k].policy == NEAP_POLICY_POOL;
    /* A budget may take a kernel's scratch: other choices. */
    if (way[k].tight && !evicts && strcmp(engine, "ref") != 0) continue;
    o.plan = (neap_plan_options){
      .policy = way[k].policy, .executor = way[k].executor, .no_in_place = way[k].no_in_place, .most_steps = 300000};
    comparison c = {.plain = &plain, .other = &r};
    o.dynamic = way[k].dynamic;
    if (way[k].tight) o.plan.budget_bytes = evicts ? least_pool(net, &o) : tight_budget(net, &o);
    neap_status status = run_net(net, &o, true, &r, &error);
    if (status == NEAP_MEMORY && way[k].tight && !evicts) {
      neap_error_clear(&error); /* nothing of it could be made again */
      ran_close(&r);
      continue;
    }
    double work;
    if (way[k].tight && !evicts && status == NEAP_OK)
      *n_tight += neap_plan_repeated(neap_program_graph(neap_session_program(r.session)), &work) > 0;
    if (evicts && status == NEAP_OK) *n_evicted += neap_program_plan(neap_session_program(r.session))->script.n_evicted > 0;
    if (status != NEAP_OK)
      report(seed, way[k].name, error.message);
    else
      neap_workspace_each(plain.ws, compare, &c);
    if (c.different != NULL) report(seed, way[k].name, c.different);
    n_same += c.n_same;
    ran_close(&r);
  }
  o.dynamic = false;
  if (runs && check_failures == 0) n_same += check_banks(seed, text, o, &plain, n_moved);
  if (runs && check_failures == 0 && seed % 4 == 0) n_same += check_rewritten(seed, net, o, &plain, n_written);
  ran_close(&plain);
  neap_net_free(net);
  free(text);
  return n_same;
}

TEST(random_nets_run_alike_under_every_plan) {
  int n_written = 0, n_tight = 0, n_evicted = 0, n_moved = 0, n_same = 0;
  int n = getenv("NEAP_RANDOM_NETS") != NULL ? atoi(getenv("NEAP_RANDOM_NETS")) / 20 : N_RUN;
  for (uint64_t k = 0; k < (uint64_t)n && check_failures < 5; k++)
    n_same += check_runs(20000 + k, k % 4 == 3 ? "free" : "ref", &n_written, &n_tight, &n_evicted, &n_moved);
  int64_t live = neap_memory_read().n_live;
  (void)check_runs(20003, "free", &n_written, &n_tight, &n_evicted,
                   &n_moved); /* its names are known by now: nothing may stay behind */
  CHECK_EQ(neap_memory_read().n_live, live);
  printf(
    "  %d nets, 14 plans each under poison, %d written out, %d that recompute, %d that evict, %d copies between banks: %d blobs "
    "equal bit "
    "for bit\n",
    n, n_written, n_tight, n_evicted, n_moved, n_same);
  CHECK(n_same > 20 * n && n_moved > n && n_written * 12 > n &&
        (n < 200 || (n_tight * 50 > n && n_evicted * 50 > n))); /* of a few nets none may have something to make again */
}

int main(int argc, char **argv) {
  if (argc == 2 && argv[1][0] >= '0' && argv[1][0] <= '9') { /* the text of one net, to look at */
    uint64_t seed = strtoull(argv[1], NULL, 10);
    char *text = seed < 20000 ? random_net(seed, seed % 100 == 99 ? 60 : 14, 12) : random_net(seed, 14, 6);
    printf("%s", text);
    free(text);
    return 0;
  }
  return RUN(argc, argv, T(plans_of_random_nets_pass_the_verifier), T(random_nets_run_alike_under_every_plan));
}
