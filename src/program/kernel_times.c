/* kernel_times.c: how long each kernel takes that could run an op of a plan: of each engine, and of
 * each algorithm that the engine has for it.
 *
 * A *trial* is one kernel that has been asked, bound and given operands. What it is asked is what
 * choosing asks, with the layouts that the plan has at hand; the one that the plan has taken is
 * bound as it stands there. A backward op reads what its forward leaves in the engine's own format:
 * then the forward is tried first, by a kernel of the same engine, and run once.
 *
 * INVARIANT: plan, graph and workspace are read only. Operands are made here, as large as the
 * plan's, of numbers between 1/2 and 3/2; halves are 0, and so are integers, which is an index
 * wherever one is asked for.
 */
#include "program/program_int.h"

#include <string.h>

/* Plain loops take some tenths of a second for so many operations of a product: no time worth
 * waiting for, beside libraries that take a hundredth of it. */
static const double most_plain_flops = 5e8;

typedef struct trial {
  const neap_node *node;
  const neap_kernel *kernel;
  neap_choice choice; /* its lists are the plan's, or in the room of the choices */
  neap_type *type;    /* of inputs, then of outputs */
  neap_operand *operand;
  void **block; /* by operand: bytes of its own; NULL: absent, or another's */
  void *scratch, *object;
} trial;

/* ---- one trial ------------------------------------------------------------------------------- */

static void end_trial(trial *t) {
  if (t->object != NULL && t->kernel->unbind != NULL) t->kernel->unbind(t->object);
  if (t->block != NULL)
    for (int k = 0; k < t->node->n_in + t->node->n_out; k++) neap_free(t->block[k]);
  neap_free(t->block);
  neap_free(t->operand);
  neap_free(t->type);
  neap_free(t->scratch);
  *t = (trial){0};
}

/* Numbers that every function takes: above 0, and of one magnitude. Other dtypes are zeros. */
static void fill(void *bytes, size_t n_byte, neap_dtype dtype) {
  memset(bytes, 0, n_byte);
  if (!neap_dtype_in(dtype, NEAP_WIDE)) return;
  uint32_t word = 1;
  for (int64_t i = 0; i < (int64_t)(n_byte / neap_dtype_bytes(dtype)); i++) {
    word = word * 1664525u + 1013904223u;
    neap_element_set(dtype, bytes, i, 0.5 + (double)(word >> 8) * 0x1p-24);
  }
}

/* Operand k of the node lies in the bytes of which other one: that of an enforced pair, which the
 * kernel overwrites; k itself where it has its own. */
static int owner_of(const neap_node *node, int k) {
  for (int p = 0; p < node->n_enforced; p++)
    if (node->n_in + node->enforced[p].out == k) return node->enforced[p].in;
  return k;
}

/* Type, layout and bytes of operand k. `forward` (may be NULL) has run: what it left in a format of
 * its own is read from there. */
static neap_status make_operand(trial *t, const neap_graph *graph, const trial *forward, int k,
                                neap_error *error) {
  const neap_node *node = t->node;
  const bool is_out = k >= node->n_in;
  const neap_value_id v = is_out ? node->out[k - node->n_in] : node->in[k];
  if (v == NEAP_NO_VALUE) return NEAP_OK;

  const neap_value *value = &graph->value[v];
  neap_operand *operand = &t->operand[k];
  operand->type = value->type;
  operand->layout = is_out ? t->choice.out[k - node->n_in] : t->choice.in[k];

  /* A stash is as large as the kernel says; the plan's type of it is that of its own kernel. */
  if (value->is_stash && is_out) operand->type.shape = NEAP_SHAPE((int64_t)t->choice.stash_bytes);

  /* Whose bytes: those that the forward left, those of the input that is written over, or its
   * own. */
  const int owner = owner_of(node, k);
  if (value->is_stash && !is_out && forward != NULL) {
    *operand = forward->operand[forward->node->n_in + value->position];
  } else if (owner != k) {
    operand->data = t->operand[owner].data;
  } else {
    const size_t bytes = neap_layout_bytes(&operand->type, &operand->layout);
    t->block[k] = operand->data = neap_alloc_data(bytes);
    if (t->block[k] == NULL) return neap_fail_memory(error, bytes, "operands to time a kernel");
    fill(operand->data, bytes, operand->type.dtype);
  }

  t->type[k] = operand->type;
  return NEAP_OK;
}

/* Operands, scratch and the library's objects; to be ended in any case. */
static neap_status begin_trial(trial *t, const neap_graph *graph, const trial *forward,
                               neap_error *error) {
  const neap_node *node = t->node;
  const int n = node->n_in + node->n_out;
  t->type = neap_alloc_zeroed((size_t)n * sizeof *t->type);
  t->operand = neap_alloc_zeroed((size_t)n * sizeof *t->operand);
  t->block = neap_alloc_zeroed((size_t)n * sizeof *t->block);
  if (t->type == NULL || t->operand == NULL || t->block == NULL)
    return neap_fail_memory(error, (size_t)n * sizeof *t->operand, "operands to time a kernel");

  /* Inputs come first, so that an output that lies in one finds its bytes. */
  for (int k = 0; k < n; k++) NEAP_TRY(make_operand(t, graph, forward, k, error));
  t->scratch = neap_alloc_data(t->choice.scratch_bytes);
  if (t->scratch == NULL)
    return neap_fail_memory(error, t->choice.scratch_bytes, "scratch to time a kernel");

  neap_bind bind = {node->op, node->attrs,          node->n_in, node->n_out,
                    t->type,  t->type + node->n_in, &t->choice};
  return neap_kernel_bind(t->kernel, &bind, &t->object, error);
}

/* One call. What the data makes impossible is a fault that nobody asks for: its time is as good. */
static void run(const trial *t) {
  const neap_node *node = t->node;
  neap_fault fault = {0};

  /* A place for each thing that a kernel may say, whether this one does or not. */
  int64_t extent = 0;
  neap_call call = {.op = node->op,
                    .attrs = node->attrs,
                    .n_in = node->n_in,
                    .n_out = node->n_out,
                    .in = t->operand,
                    .out = t->operand + node->n_in,
                    .kernel = t->object,
                    .scratch = t->choice.scratch_bytes > 0 ? t->scratch : NULL,
                    .choice = &t->choice,
                    .n_thread = NEAP_MAX(t->choice.n_thread, 1),
                    .seed = 1,
                    .stream = node->stream,
                    .fault = &fault,
                    .extent = &extent};

  sigset_t saved;

  /* Threads that the libraries start inherit the mask: signals stay with this thread. */
  neap_signals_hold(&saved);
  neap_kernel_run(t->kernel, &call);
  neap_signals_release(&saved);
}

/* The fastest of a few calls, the first of which only warms caches up. Somebody else's work may
 * hold one call up, long or short, but hardly each of them. */
static int64_t fastest_ns(const trial *t) {
  enum { LONG_NS = 300000000, ENOUGH_NS = 20000000, LEAST_CALLS = 4, MOST_CALLS = 100 };
  int64_t start = neap_clock_ns();
  run(t);
  int64_t best = neap_clock_ns() - start, sum = 0;

  const int least = best > LONG_NS ? 1 : LEAST_CALLS;
  for (int n = 0; n < MOST_CALLS && (n < least || sum < ENOUGH_NS); n++) {
    start = neap_clock_ns();
    run(t);
    const int64_t ns = neap_clock_ns() - start;
    sum += ns;
    best = n == 0 ? ns : NEAP_MIN(best, ns);
  }
  return NEAP_MAX(best, 1);
}

/* ---- candidates ------------------------------------------------------------------------------ */

typedef struct contest {
  const neap_graph *graph;
  int node, step;    /* whose kernels are timed */
  neap_choices room; /* lists of what the kernels answer */
  neap_kernel_row *row;
  int n, cap;
} contest;

/* A backward op's forward, by a kernel of the engine at hand. kernel NULL: there is none, or the op
 * is a forward itself. */
typedef struct partner {
  const neap_kernel *kernel;
  neap_choice choice;
  bool leaves; /* it leaves what the backward op reads in the engine's own format */
} partner;

/* What the kernel would choose, were it free; of the engine that the plan has taken, the plan's. */
static neap_status ask_free(contest *c, int node, const neap_kernel *kernel,
                            const neap_choice *pair, neap_choice *choice, bool *taken,
                            neap_error *error) {
  const neap_choice *planned = &c->graph->node[node].choice;
  *taken = planned->engine == kernel->engine;
  *choice = *planned;
  if (*taken) return NEAP_OK;
  return neap_graph_ask(c->graph, node, kernel, pair, NULL, &c->room, choice, taken, error);
}

static neap_status find_partner(contest *c, neap_engine engine, partner *p, neap_error *error) {
  const neap_node *node = &c->graph->node[c->node];
  const int forward = node->forward;
  *p = (partner){0};
  if (forward == c->node) return NEAP_OK;

  /* Of the same engine as the one to be timed: only that can read what it leaves. */
  const neap_kernel *kernel = neap_graph_kernel(c->graph, &c->graph->node[forward], engine);
  bool taken = false;
  if (kernel != NULL) NEAP_TRY(ask_free(c, forward, kernel, NULL, &p->choice, &taken, error));
  if (taken) p->kernel = kernel;

  for (int i = 0; i < node->n_in; i++)
    if (node->in[i] != NEAP_NO_VALUE && c->graph->value[node->in[i]].is_stash) p->leaves = true;
  return NEAP_OK;
}

/* The next row, for this choice; it says why the choice is not timed, or nothing yet. NULL: memory
 * is refused. */
static neap_kernel_row *add_row(contest *c, const neap_choice *choice) {
  const neap_node *node = &c->graph->node[c->node];
  if (!neap_list_grow(&c->row, &c->cap, c->n + 1, sizeof *c->row)) return NULL;

  /* The plan's own is timed however slow it is: the others are compared with it. */
  const bool is_taken =
    choice->engine == node->choice.engine && choice->algorithm == node->choice.algorithm;
  const bool is_slow = choice->engine == NEAP_ENGINE_REF && node->cost.flops > most_plain_flops;

  neap_kernel_row *row = &c->row[c->n];
  *row = (neap_kernel_row){
    .step = c->step,
    .kernel_no = c->n,
    .name = node->name,
    .type = node->op->name,
    .engine = neap_engine_name(choice->engine),
    .algorithm = choice->how,
    .taken = is_taken,
    .min_ns = NEAP_NO_NUMBER,
    .scratch_bytes = (int64_t)choice->scratch_bytes,
    .untimed = is_slow && !is_taken ? "plain loops of more than 0.5 GFLOP" : NULL};
  c->n++;
  return row;
}

static neap_status time_choice(contest *c, const neap_kernel *kernel, const neap_choice *choice,
                               const partner *p, neap_error *error) {
  const neap_node *node = &c->graph->node[c->node];
  neap_kernel_row *row = add_row(c, choice);
  if (row == NULL) return neap_fail_memory(error, sizeof *row, "times of kernels");
  if (row->untimed != NULL) return NEAP_OK;

  trial t = {.node = node, .kernel = kernel, .choice = *choice};
  trial before = {.node = &c->graph->node[node->forward], .kernel = p->kernel, .choice = p->choice};

  /* The forward runs once, beforehand, and lives as long as its backward is timed. */
  const bool leaves = p->kernel != NULL && p->leaves;
  neap_status status = NEAP_OK;
  if (leaves) status = begin_trial(&before, c->graph, NULL, error);
  if (leaves && status == NEAP_OK) run(&before);
  if (status == NEAP_OK) status = begin_trial(&t, c->graph, leaves ? &before : NULL, error);
  if (status == NEAP_OK) row->min_ns = fastest_ns(&t);

  end_trial(&t);
  end_trial(&before);
  return status;
}

/* The kernel as it is, then by its other algorithm, where it has two. */
static neap_status time_kernel(contest *c, const neap_kernel *kernel, neap_error *error) {
  const neap_node *node = &c->graph->node[c->node];
  partner p;
  NEAP_TRY(find_partner(c, kernel->engine, &p, error));
  const neap_choice *pair = p.kernel != NULL ? &p.choice : NULL;

  /* A kernel of another engine than the forward's would have nothing to go by. */
  const bool is_alone = node->forward != c->node && pair == NULL;

  neap_choice choice, other;
  bool taken;
  NEAP_TRY(ask_free(c, c->node, kernel, pair, &choice, &taken, error));
  if (!taken || (is_alone && choice.engine != node->choice.engine)) return NEAP_OK;
  NEAP_TRY(time_choice(c, kernel, &choice, &p, error));

  /* Asked for the other algorithm by its number; what answers with the same one again has no
   * other. */
  if (choice.how == NULL || (unsigned)choice.algorithm > 1) return NEAP_OK;
  neap_choice like = choice;
  like.algorithm = !choice.algorithm;
  like.in = like.out = NULL;
  NEAP_TRY(neap_graph_ask(c->graph, c->node, kernel, pair, &like, &c->room, &other, &taken, error));
  if (!taken || other.algorithm == choice.algorithm) return NEAP_OK;
  return time_choice(c, kernel, &other, &p, error);
}

/* Whether there may be another kernel: of another engine, or another algorithm. Views cost nothing,
 * a Reorder has one kernel, and an op that runs again has those of the first time. */
static bool has_rivals(const neap_node *node) {
  const neap_kernel *k = node->op->kernels;
  if (k == NULL || node->n_sub > 0 || node->op->n_alias > 0 || node->recomputes > 0) return false;
  return k[1].run != NULL || node->choice.how != NULL;
}

neap_status neap_program_time_kernels(const neap_plan *plan, const neap_graph *graph, int step,
                                      neap_kernel_row **out, int *n, neap_error *error) {
  contest c = {.graph = graph, .node = plan->order[step], .step = step};
  const neap_node *node = &graph->node[c.node];
  neap_status status = NEAP_OK;
  *out = NULL;
  *n = 0;

  /* Of each engine the first kernel for the node's dtypes, as choosing has it. */
  const neap_kernel *k = has_rivals(node) ? node->op->kernels : NULL;
  for (; k != NULL && k->run != NULL && status == NEAP_OK; k++)
    if (k == neap_graph_kernel(graph, node, k->engine)) status = time_kernel(&c, k, error);
  neap_choices_fini(&c.room);

  if (status != NEAP_OK) {
    neap_free(c.row);
    return status;
  }
  *out = c.row;
  *n = c.n;
  return NEAP_OK;
}
