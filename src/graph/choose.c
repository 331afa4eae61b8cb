/* choose.c: picks a kernel for every node, once per forward and backward pair.
 *
 * Engines are tried in the order of the op's kernel list, a forced one before the others. A
 * candidate is taken when its own choose accepts and every backward node of the pair that has a
 * kernel of that engine accepts too; a pair with a stash may not fall back on another engine, since
 * the stash's format is the engine's own.
 */
#include "graph/graph_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct chooser {
  const neap_graph *graph;
  const neap_choose_options *options;
  neap_choices *out;
  graph_asked *asked;
  int first;  /* of this graph's choices in out */
  int *index; /* by node: its place in out */
  /* by node: its first backward node, and the next one of the same forward; -1: none. Ascending */
  int *first_back, *next_back;
  const neap_kernel **kernel; /* by node: settled kernel of the pair, NULL before */
  neap_layout *layout;        /* by value, as chosen so far; NULL: as the values have it */
} chooser;

static neap_layout *new_layouts(chooser *c, int n) {
  return neap_arena_alloc(&c->out->arena, (size_t)NEAP_MAX(n, 1) * sizeof(neap_layout));
}

static bool same_types(const neap_graph *graph, neap_value_id a, neap_value_id b) {
  return neap_type_equal(&graph->value[a].type, &graph->value[b].type);
}

static const neap_layout *first_blocked(const neap_node *node, const neap_layout *in_layout) {
  for (int i = 0; i < node->n_in; i++)
    if (node->in[i] >= 0 && in_layout[i].kind == NEAP_LAYOUT_BLOCKED) return &in_layout[i];
  return NULL;
}

/* any_layout: all operands of input 0's type take the first blocked layout at hand; plain if any
 * differs. */
static void take_any_layout(const chooser *c, const neap_node *node, const neap_layout *in_layout,
                            neap_choice *choice) {
  const neap_layout *found = first_blocked(node, in_layout);

  /* None is blocked: the choice says plain already. */
  if (found == NULL) return;

  /* One loop runs over all operands' bytes: they must be of one size and in one order. */
  neap_value_id like = node->in[0];
  for (int i = 0; i < node->n_in; i++)
    if (node->in[i] >= 0 && !same_types(c->graph, node->in[i], like)) return;
  for (int k = 0; k < node->n_out; k++)
    if (!same_types(c->graph, node->out[k], like)) return;
  for (int i = 0; i < node->n_in; i++) choice->in[i] = *found;
  for (int k = 0; k < node->n_out; k++) choice->out[k] = *found;
}

static bool dtypes_fit(const neap_graph *graph, const neap_node *node, const neap_kernel *kernel) {
  /* Each operand by its own argument: a kernel may take another dtype as index than as data. */
  for (int i = 0; i < node->n_in; i++)
    if (node->in[i] >= 0 && !neap_kernel_computes(kernel, neap_op_input(node->op, i),
                                                  graph->value[node->in[i]].type.dtype))
      return false;
  for (int k = 0; k < node->n_out; k++)
    if (!neap_kernel_computes(kernel, neap_op_output(node->op, k),
                              graph->value[node->out[k]].type.dtype))
      return false;
  return true;
}

/* The choice that the node at hand is to follow; NULL when it is free. Choices of both graphs are
 * in the same order. */
static const neap_choice *like_of(const chooser *c) {
  return c->options->like != NULL ? &c->options->like->choice[c->out->n] : NULL;
}

static bool same_layouts(const neap_layout *a, const neap_layout *b, int n) {
  for (int i = 0; i < n; i++)
    if (!neap_layout_equal(&a[i], &b[i])) return false;
  return true;
}

/* Fits where `like` stands: the same engine, the same layouts, no more scratch. */
static bool fits(const neap_node *node, const neap_choice *choice, const neap_choice *like) {
  return choice->engine == like->engine && choice->n_thread == like->n_thread &&
         choice->scratch_bytes <= like->scratch_bytes &&
         same_layouts(choice->in, like->in, node->n_in) &&
         same_layouts(choice->out, like->out, node->n_out);
}

/* What asking a kernel gives: it does not take the node, it does, or the asking itself was refused
 * memory. */
typedef enum verdict { REFUSED, TAKEN, NO_MEMORY } verdict;

/* For those who ask for plain layouts alone. */
static bool all_plain(const neap_choice *choice, int n_in, int n_out) {
  for (int i = 0; i < n_in; i++)
    if (choice->in[i].kind != NEAP_LAYOUT_PLAIN) return false;
  for (int k = 0; k < n_out; k++)
    if (choice->out[k].kind != NEAP_LAYOUT_PLAIN) return false;
  return true;
}

/* Asks one kernel about one node. `trial`: as if all inputs were plain. `like`: to be followed, may
 * be NULL. */
static verdict ask(chooser *c, int n, const neap_kernel *kernel, const neap_choice *pair,
                   bool trial, const neap_choice *like, size_t scratch_limit, neap_choice *choice) {
  const neap_node *node = &c->graph->node[n];
  neap_type *type = /* of inputs, then of outputs */
    neap_arena_alloc(&c->out->arena, (size_t)(node->n_in + node->n_out + 1) * sizeof *type);
  neap_layout *in_layout = new_layouts(c, node->n_in);
  *choice = (neap_choice){.engine = kernel->engine,
                          .n_thread = c->options->n_thread,
                          .in = new_layouts(c, node->n_in),
                          .out = new_layouts(c, node->n_out)};

  /* A candidate that is refused leaves its lists in the arena: they are small, and few are
   * asked. */
  if (type == NULL || in_layout == NULL || choice->in == NULL || choice->out == NULL)
    return NO_MEMORY;

  /* What the kernel is told of the operands, as far as they have been chosen. */
  for (int i = 0; i < node->n_in; i++) {
    if (node->in[i] < 0) continue;
    type[i] = c->graph->value[node->in[i]].type;
    const neap_value *value = &c->graph->value[node->in[i]];
    if (!trial) in_layout[i] = c->layout != NULL ? c->layout[node->in[i]] : value->layout;
  }
  for (int k = 0; k < node->n_out; k++) type[node->n_in + k] = c->graph->value[node->out[k]].type;

  /* Before it is asked: a kernel may count on its dtypes. */
  if (!dtypes_fit(c->graph, node, kernel)) return REFUSED;

  /* What an enforced pair writes are bytes that others find in order: behind a Reorder they would
   * have another writer, whom no edge lets wait for the readers of the old version. */
  bool plain = c->options->plain || node->n_enforced > 0;
  if (kernel->any_layout && node->n_in > 0 && !plain) take_any_layout(c, node, in_layout, choice);
  neap_choose ask = {.op = node->op,
                     .attrs = node->attrs,
                     .n_in = node->n_in,
                     .n_out = node->n_out,
                     .in = type,
                     .out = type + node->n_in,
                     .in_layout = in_layout,
                     .train = c->graph->train,
                     .pair = pair,
                     .scratch_limit = scratch_limit,
                     .like = like,
                     .plain = plain,
                     .choice = choice};
  bool taken;
  if (!graph_ask(c->asked, kernel, &ask, &c->graph->node[node->forward], &taken)) return NO_MEMORY;
  if (!taken) return REFUSED;

  /* A kernel may answer with layouts that were not asked for. */
  if (plain && !all_plain(choice, node->n_in, node->n_out)) return REFUSED;
  return TAKEN;
}

/* The same algorithm first; where this size can't have it in the scratch that is there, whichever
 * fits in its place: it may cost time, but moves no byte. */
static verdict ask_like(chooser *c, int n, const neap_kernel *kernel, const neap_choice *pair,
                        const neap_choice *like, neap_choice *choice) {
  const neap_node *node = &c->graph->node[n];
  verdict v = ask(c, n, kernel, pair, false, like, like->scratch_bytes, choice);
  if (v == NO_MEMORY) return v;
  /* The kernel may have taken `like` for a wish; only what really fits is taken over. */
  if (v == TAKEN && choice->algorithm == like->algorithm && fits(node, choice, like)) return TAKEN;
  v = ask(c, n, kernel, pair, false, NULL, like->scratch_bytes, choice);
  return v == TAKEN && !fits(node, choice, like) ? REFUSED : v;
}

const neap_kernel *neap_graph_kernel(const neap_graph *graph, const neap_node *node,
                                     neap_engine engine) {
  if (node->op->kernels == NULL) return NULL;
  for (const neap_kernel *k = node->op->kernels; k->run != NULL; k++)
    if (k->engine == engine && dtypes_fit(graph, node, k)) return k;
  return NULL;
}

/* Whether the forward leaves something in an engine's own format for its backward. */
static bool has_stash(const neap_graph *graph, const neap_node *node) {
  for (int k = 0; k < node->n_out; k++)
    if (graph->value[node->out[k]].is_stash) return true;
  return false;
}

/* Whether all backward nodes of forward node n would go along with `engine`. Settles their kernels
 * when so. */
static verdict ask_pair(chooser *c, int n, neap_engine engine, const neap_choice *choice) {
  /* Each backward node is asked as if its inputs were plain: their layouts are not known before the
   * nodes between have been chosen. */
  const neap_graph *graph = c->graph;
  for (int m = c->first_back[n]; m >= 0; m = c->next_back[m]) {
    const neap_kernel *kernel = neap_graph_kernel(graph, &graph->node[m], engine);
    /* Without a kernel of the engine the backward takes another one's, unless it is to read what
     * the engine has left in its own format. */
    if (kernel == NULL && has_stash(graph, &graph->node[n])) return REFUSED;
    if (kernel == NULL) continue;
    neap_choice trial;
    verdict v = ask(c, m, kernel, choice, true, NULL, c->options->scratch_limit, &trial);
    if (v != TAKEN) return v;
  }

  /* All were asked before any is settled: a pair that one node refuses must leave the others free
   * for the next engine. */
  for (int m = c->first_back[n]; m >= 0; m = c->next_back[m])
    c->kernel[m] = neap_graph_kernel(graph, &graph->node[m], engine);
  return TAKEN;
}

/* Why this kernel, where it has not said so itself. `n_refused` others were asked before it. */
static const char *say_why(const chooser *c, int n, const neap_kernel *kernel, int n_refused) {
  /* The first answer that is true. Where the record has one kernel there was nothing to decide. */
  const neap_node *node = &c->graph->node[n];
  const bool is_only = node->op->kernels[1].run == NULL;
  if (is_only) return NULL;
  if (c->kernel[n] != NULL && node->forward != n) return "the engine of its forward";
  if (c->options->like != NULL) return "as for the largest size";
  if (c->options->force)
    return kernel->engine == c->options->engine ? "the engine that is asked for"
                                                : "the engine that is asked for does not take it";
  return n_refused > 0 ? "the engines before it do not take it" : "the engine that is tried first";
}

/* Kinds of instruction that the runner carries out itself: without a kernel, in plain layouts. */
static neap_status choose_control(chooser *c, const neap_node *node, neap_choice *choice,
                                  neap_error *error) {
  *choice = (neap_choice){.engine = NEAP_ENGINE_REF,
                          .n_thread = c->options->n_thread,
                          .in = new_layouts(c, node->n_in),
                          .out = new_layouts(c, node->n_out)};
  if (node->loop != NULL) choice->scratch_bytes = neap_loop_own_bytes(node->loop);
  return choice->in == NULL || choice->out == NULL ? graph_no_memory(error) : NEAP_OK;
}

/* The first kernel that takes node n. A backward node whose pair was settled by its forward is
 * asked for that kernel alone. DTYPE error when no kernel takes it; PLAN error when `like` can't be
 * followed. */
static neap_status choose_node(chooser *c, int n, neap_choice *choice, neap_error *error) {
  const neap_node *node = &c->graph->node[n];
  bool is_forward = node->forward == n;
  const neap_choice *pair = is_forward ? NULL : &c->out->choice[c->index[node->forward]];
  const neap_choice *like = like_of(c);
  const neap_kernel *k = NULL;
  int n_refused = 0;

  /* In the order of preference. Each kernel is asked only if nothing that is settled rules it
   * out. */
  while ((k = neap_kernel_next(node->op, k, c->options->force, c->options->engine)) != NULL) {
    if (c->kernel[n] != NULL && k != c->kernel[n]) continue; /* settled by its forward */
    /* Another engine would have other layouts, and move bytes. */
    if (like != NULL && like->engine != k->engine) continue;

    /* A choice that follows another one stands for a pair that has agreed before; a free one of a
     * forward must suit its backward, too. */
    verdict v;
    if (like != NULL) {
      v = ask_like(c, n, k, pair, like, choice); /* its pair has agreed already */
    } else {
      v = ask(c, n, k, pair, false, NULL, c->options->scratch_limit, choice);
      if (v == TAKEN && is_forward) v = ask_pair(c, n, k->engine, choice);
    }
    if (v == NO_MEMORY) return graph_no_memory(error);
    if (v == TAKEN) {
      if (choice->why == NULL) choice->why = say_why(c, n, k, n_refused);
      return NEAP_OK;
    }
    n_refused++;
  }

  /* No kernel. That is as it should be for what the runner does; for anything else it is an
   * error. */
  if ((node->effects & (NEAP_EFFECT_CONTROL | NEAP_EFFECT_RELEASE)) != 0)
    return choose_control(c, node, choice, error);
  neap_error inner = {0};
  if (like != NULL)
    neap_fail(&inner, NEAP_PLAN, "its %s kernel can't be had for these sizes",
              neap_engine_name(like->engine));
  else
    neap_fail(&inner, NEAP_DTYPE, "no kernel takes these operands");
  return graph_locate(error, &inner, node->op->name, node->name, node->scope, node->line);
}

static neap_status choose_graph(const neap_graph *graph, const neap_choose_options *options,
                                neap_choices *out, graph_asked *asked, int *cap, neap_error *error);

/* Nodes in order, so that a node knows the layouts of its inputs; a subgraph's choices lie behind
 * its owner's, as every reader of the list walks them. */
static neap_status choose_all(chooser *c, int *cap, neap_error *error) {
  for (int n = 0; n < c->graph->n_node; n++) {
    const neap_node *node = &c->graph->node[n];
    neap_choice choice;
    /* What a node's kernels gave is known to all nodes behind it, which read it. */
    NEAP_TRY(choose_node(c, n, &choice, error));
    if (!neap_list_grow(&c->out->choice, cap, c->out->n + 1, sizeof choice))
      return graph_no_memory(error);
    c->index[n] = c->out->n;
    c->out->choice[c->out->n++] = choice;
    for (int k = 0; k < node->n_out; k++) {
      const neap_value *value = &c->graph->value[node->out[k]];
      /* Resident bytes and operands of the owner are plain: lay_out converts behind the node. */
      c->layout[node->out[k]] =
        value->region == NEAP_REGION_ARENA ? choice.out[k] : (neap_layout){0};
    }
    for (int s = 0; s < node->n_sub; s++)
      NEAP_TRY(choose_graph(node->sub[s], c->options, c->out, c->asked, cap, error));
  }
  return NEAP_OK;
}

/* The lists of backward nodes, from the last node back, so that they ascend. */
static void list_backwards(chooser *c) {
  for (int n = 0; n < c->graph->n_node; n++) c->first_back[n] = -1;
  for (int m = c->graph->n_node - 1; m >= 0; m--) {
    const int forward = c->graph->node[m].forward;
    if (forward >= m) continue; /* its own: it is none */
    c->next_back[m] = c->first_back[forward];
    c->first_back[forward] = m;
  }
}

/* Tables for one graph, then its nodes; the choices are appended to those of the graphs around
 * it. */
static neap_status choose_graph(const neap_graph *graph, const neap_choose_options *options,
                                neap_choices *out, graph_asked *asked, int *cap,
                                neap_error *error) {
  /* What has been chosen so far, by node and by value of this graph alone: inside a subnet other
   * numbers hold. */
  chooser c = {.graph = graph, .options = options, .out = out, .asked = asked, .first = out->n};
  c.index = neap_alloc_zeroed((size_t)(graph->n_node + 1) * sizeof *c.index);
  c.first_back = neap_alloc((size_t)(graph->n_node + 1) * sizeof *c.first_back);
  c.next_back = neap_alloc((size_t)(graph->n_node + 1) * sizeof *c.next_back);
  c.kernel = neap_alloc_zeroed((size_t)(graph->n_node + 1) * sizeof *c.kernel);
  c.layout = neap_alloc_zeroed((size_t)(graph->n_value + 1) * sizeof *c.layout);
  neap_status status;
  if (c.index == NULL || c.first_back == NULL || c.next_back == NULL || c.kernel == NULL ||
      c.layout == NULL) {
    status = graph_no_memory(error);
  } else {
    list_backwards(&c);
    status = choose_all(&c, cap, error);
  }
  neap_free(c.index);
  neap_free(c.first_back);
  neap_free(c.next_back);
  neap_free((void *)c.kernel);
  neap_free(c.layout);
  return status;
}

/* What kernels do not say: what is recomputed, and which choices a limit has changed. */
static neap_status take_from_like(neap_choices *out, const neap_choices *like, neap_error *error) {
  NEAP_ASSERT(out->n == like->n, "as many choices as the graph that is followed has, %d; got %d",
              like->n, out->n);
  for (int i = 0; i < out->n; i++) out->choice[i].changed = like->choice[i].changed;
  return neap_choices_recompute(out, &like->recomputed, error);
}

neap_status neap_graph_choose(const neap_graph *graph, const neap_choose_options *options,
                              neap_choices *out, neap_error *error) {
  int cap = 0;
  graph_asked asked = {0};
  memset(out, 0, sizeof *out);
  neap_status status = choose_graph(graph, options, out, &asked, &cap, error);
  graph_asked_fini(&asked);

  /* Only what was chosen as a whole is compared: on failure nothing is left. */
  if (status == NEAP_OK && options->like != NULL)
    status = take_from_like(out, options->like, error);
  if (status != NEAP_OK) neap_choices_fini(out);
  return status;
}

neap_status neap_graph_ask(const neap_graph *graph, int n, const neap_kernel *kernel,
                           const neap_choice *pair, const neap_choice *like, neap_choices *room,
                           neap_choice *choice, bool *taken, neap_error *error) {
  const neap_choose_options options = {.n_thread = graph->node[n].choice.n_thread,
                                       .scratch_limit = SIZE_MAX};
  graph_asked asked = {0};
  chooser c = {.graph = graph, .options = &options, .out = room, .asked = &asked};
  verdict v = ask(&c, n, kernel, pair, false, like, SIZE_MAX, choice);
  graph_asked_fini(&asked);
  *taken = v == TAKEN;
  return v == NO_MEMORY ? graph_no_memory(error) : NEAP_OK;
}

neap_status neap_choices_recompute(neap_choices *choices, const neap_recomputed *recomputed,
                                   neap_error *error) {
  neap_arena *arena = &choices->arena;
  neap_recomputed copy = *recomputed;
  copy.node = neap_arena_copy(arena, copy.node, (size_t)copy.n_node * sizeof *copy.node);
  copy.body = neap_arena_copy(arena, copy.body, (size_t)copy.n_body * sizeof *copy.body);
  if (copy.node == NULL || copy.body == NULL) return graph_no_memory(error);
  choices->recomputed = copy;
  return NEAP_OK;
}

/* Whether the bits of node's choice may depend on its number of threads. */
static bool counts_threads(const neap_graph *graph, const neap_node *node, neap_engine engine) {
  const neap_kernel *kernel = neap_graph_kernel(graph, node, engine);
  /* A control op has none: its subnets' nodes are compared. */
  return kernel != NULL && !kernel->any_team;
}

static void compare_graph(neap_choices *choices, const neap_choices *free, const neap_graph *graph,
                          int *next) {
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];

    neap_choice *a = &choices->choice[*next];
    const neap_choice *b = &free->choice[(*next)++];
    /* Another number of threads alone changes no bit of most kernels. */
    bool other_team = a->n_thread != b->n_thread && counts_threads(graph, node, a->engine);
    a->changed = a->engine != b->engine || a->algorithm != b->algorithm || other_team ||
                 a->scratch_bytes != b->scratch_bytes || a->stash_bytes != b->stash_bytes ||
                 !same_layouts(a->in, b->in, node->n_in) ||
                 !same_layouts(a->out, b->out, node->n_out);
    for (int s = 0; s < node->n_sub; s++) compare_graph(choices, free, node->sub[s], next);
  }
}

void neap_choices_compare(neap_choices *choices, const neap_choices *free,
                          const neap_graph *graph) {
  int next = 0;
  NEAP_ASSERT(choices->n == free->n, "choices for one graph, %d and %d", choices->n, free->n);
  compare_graph(choices, free, graph, &next);
}

void neap_choices_fini(neap_choices *choices) {
  neap_free(choices->choice);
  neap_arena_fini(&choices->arena);
  memset(choices, 0, sizeof *choices);
}

/* ---- text ---------------------------------------------------------------------------------------
 * "constants 1" (0: none, 2: those on the way to others too), "recomputed 2 4 7" (how many nodes
 * are recomputed, and which), "bodies 1 3" (the same in bodies, if any are), then one line a node:
 * "dnnl 0 2 4096 0 0 | abcd:16b@0 plain@0 > plain@0": engine, algorithm, threads, bytes of
 * scratch and of stash, whether it is changed, then layouts of inputs and of outputs. Bytes of an
 * opaque layout stand behind its @; others have 0.
 *
 * INVARIANT: no line of a node is read back. Kernels are asked again, and what the text says is
 * compared with what they say. */

/* Of n operands; an absent one is printed as plain, of rank 0. */
static void print_layouts(const neap_layout *layout, int n, const neap_graph *graph,
                          const neap_value_id *id, neap_buffer *out) {
  char text[NEAP_LAYOUT_TEXT];
  for (int i = 0; i < n; i++) {
    int rank = id[i] >= 0 ? graph->value[id[i]].type.shape.n_dim : 0;
    size_t bytes = layout[i].kind == NEAP_LAYOUT_OPAQUE ? layout[i].bytes : 0;
    neap_buffer_add(out, " %s@%zu", neap_layout_text(&layout[i], rank, text), bytes);
  }
}

static void print_choice(const neap_choice *c, const neap_graph *graph, const neap_node *node,
                         neap_buffer *out) {
  neap_buffer_add(out, "%s %d %d %zu %zu %d |", neap_engine_name(c->engine), c->algorithm,
                  c->n_thread, c->scratch_bytes, c->stash_bytes, c->changed);
  print_layouts(c->in, node->n_in, graph, node->in, out);
  neap_buffer_add(out, " >");
  print_layouts(c->out, node->n_out, graph, node->out, out);
  neap_buffer_add(out, "\n");
}

/* In the order of the list: a subgraph behind the node that owns it. */
static void print_graph(const neap_choices *choices, const neap_graph *graph, int *next,
                        neap_buffer *out) {
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    print_choice(&choices->choice[(*next)++], graph, node, out);
    for (int s = 0; s < node->n_sub; s++) print_graph(choices, node->sub[s], next, out);
  }
}

static void print_list(const char *word, int n, const int *list, neap_buffer *out) {
  neap_buffer_add(out, "%s %d", word, n);
  for (int i = 0; i < n; i++) neap_buffer_add(out, " %d", list[i]);
  neap_buffer_add(out, "\n");
}

void neap_choices_print(const neap_choices *choices, const neap_graph *graph, neap_buffer *out) {
  int next = 0, constants = choices->hold_constants ? 2 : 1;
  if (choices->no_constants) constants = 0;
  const neap_recomputed *r = &choices->recomputed;
  neap_buffer_add(out, "constants %d\n", constants);
  print_list("recomputed", r->n_node, r->node, out);
  if (r->n_body > 0) print_list("bodies", r->n_body, r->body, out);
  print_graph(choices, graph, &next, out);
}

/* Two lines in which `text` and `line` differ, word by word up to the first that does. PLAN error
 * that names it. */
static neap_status fail_line(const char *text, const char *line, const neap_node *node,
                             neap_error *error) {
  static const char *const field[] = {"engine",  "algorithm", "threads",
                                      "scratch", "stash",     "changed"};
  int word = 0;
  size_t a = strcspn(text, " \n"), b = strcspn(line, " \n");

  /* Words that are equal are passed over in both lines. */
  while (a == b && strncmp(text, line, a) == 0 && text[a] == ' ' && line[b] == ' ') {
    text += a + 1;
    line += b + 1;
    word++;
    a = strcspn(text, " \n");
    b = strcspn(line, " \n");
  }

  /* The word's place in the line says what it is. Texts may be of any length, so words are cut. */
  return neap_fail(error, NEAP_PLAN,
                   "%s \"%s\": its stored %s is \"%.*s\", its kernels say \"%.*s\"", node->op->name,
                   node->name, word < NEAP_COUNT(field) ? field[word] : "layout",
                   (int)NEAP_MIN(a, (size_t)NEAP_LAYOUT_TEXT), text,
                   (int)NEAP_MIN(b, (size_t)NEAP_LAYOUT_TEXT), line);
}

/* In the order of print_graph; `line` is room. */
static neap_status compare_text(const char **text, const neap_choices *choices,
                                const neap_graph *graph, int *next, neap_buffer *line,
                                neap_error *error) {
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    line->n = 0;
    print_choice(&choices->choice[(*next)++], graph, node, line);
    if (line->failed) return graph_no_memory(error);
    /* Byte for byte: what kernels would choose now is printed as it was printed then. */
    if (strncmp(*text, line->text, line->n) != 0) return fail_line(*text, line->text, node, error);
    *text += line->n;
    for (int s = 0; s < node->n_sub; s++)
      NEAP_TRY(compare_text(text, choices, node->sub[s], next, line, error));
  }
  return NEAP_OK;
}

static neap_status fail_list(neap_error *error) {
  return neap_fail(error, NEAP_PLAN, "stored choices do not say which ops run again");
}

/* A line of print_list; whether those nodes may be recomputed is seen when they are. *text moves
 * behind the line; after a failure it stays. */
static neap_status read_list(const char **text, const char *word, neap_arena *arena, int *n_list,
                             const int **list, neap_error *error) {
  int n = 0, used = 0;
  if (strncmp(*text, word, strlen(word)) != 0) return fail_list(error);
  const char *at = *text + strlen(word);

  /* No more numbers than the text has letters: what a file says is no reason to take memory. */
  if (sscanf(at, " %d%n", &n, &used) != 1 || n < 0 || (size_t)n > strlen(at))
    return fail_list(error);
  at += used;
  int *number = neap_arena_alloc(arena, ((size_t)n + 1) * sizeof *number);
  if (number == NULL) return graph_no_memory(error);

  /* Exactly as many numbers as were announced, and then the end of the line. */
  for (int i = 0; i < n; i++) {
    if (sscanf(at, " %d%n", &number[i], &used) != 1) return fail_list(error);
    at += used;
  }
  if (*at != '\n') return fail_list(error);
  *text = at + 1;
  *n_list = n;
  *list = number;
  return NEAP_OK;
}

neap_status neap_choices_recall(const char *text, const neap_graph *graph, neap_choices *choices,
                                neap_error *error) {
  int constants = 0, used = 0, next = 0;
  if (sscanf(text, "constants %d\n%n", &constants, &used) != 1 || constants < 0 || constants > 2)
    return neap_fail(error, NEAP_PLAN,
                     "stored choices do not begin by saying whether constants are held");

  text += used;
  neap_recomputed *r = &choices->recomputed;
  neap_arena *arena = &choices->arena;
  NEAP_TRY(read_list(&text, "recomputed", arena, &r->n_node, &r->node, error));

  /* The line of bodies stands only where they recompute. */
  if (strncmp(text, "bodies", strlen("bodies")) == 0)
    NEAP_TRY(read_list(&text, "bodies", arena, &r->n_body, &r->body, error));
  choices->no_constants = constants == 0;
  choices->hold_constants = constants == 2;

  /* The lines of nodes are only compared. */
  neap_buffer line = {0};
  neap_status status = compare_text(&text, choices, graph, &next, &line, error);
  neap_buffer_fini(&line);
  if (status == NEAP_OK && *text != '\0')
    status = neap_fail(error, NEAP_PLAN, "stored choices are more than the graph has nodes");
  return status;
}
