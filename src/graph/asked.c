/* asked.c: what kernels have answered in one choosing. Nets repeat their layers, backward nodes are
 * asked twice, and asking oneDNN about one convolution takes up to a tenth of a millisecond: as
 * long as laying out the whole of a small net.
 *
 * An answer is found by its question as bytes: kernel, attributes, types, layouts at hand, the
 * pair's choice, limits.
 * INVARIANT: a kernel's answer depends on nothing else (neap/record.h, neap_choose).
 */
#include "graph/graph_int.h"

#include <stdlib.h>
#include <string.h>

typedef struct graph_answer {
  struct graph_answer *next; /* of the same bucket */
  neap_hash hash;
  size_t n;
  const char *question;
  bool taken;
  neap_choice choice;
} graph_answer;

enum { N_BUCKET = 256 };

/* A list of nothing may be NULL. */
static void add(neap_buffer *out, const void *bytes, size_t n) {
  if (n > 0) neap_buffer_add_n(out, bytes, n);
}
static void add_number(neap_buffer *out, int64_t number) { add(out, &number, sizeof number); }

/* Only the dimensions that there are. */
static void add_types(neap_buffer *out, int n, const neap_type *type) {
  for (int i = 0; i < n; i++) {
    add_number(out, (int64_t)type[i].dtype * 64 + type[i].shape.n_dim);
    add(out, type[i].shape.dim, (size_t)type[i].shape.n_dim * sizeof *type[i].shape.dim);
  }
}

/* Numbers, and lists by their elements; names are interned. */
static void add_attrs(neap_buffer *out, const neap_op *op, const neap_attr_value *attrs) {
  int n = neap_op_n_attrs(op);
  for (int a = 0; a < n; a++) {
    neap_attr_type type = op->attrs[a].type;
    bool is_list = type == NEAP_ATTR_INTS || type == NEAP_ATTR_AXES || type == NEAP_ATTR_FLOATS ||
                   type == NEAP_ATTR_NAMES;
    /* A kernel may ask whether the user said so, or read the default. */
    add_number(out, attrs[a].given);
    add_number(out, is_list ? attrs[a].n : attrs[a].i);
    if (is_list) add(out, attrs[a].ints, (size_t)attrs[a].n * sizeof *attrs[a].ints);
  }
}

static void add_choice(neap_buffer *out, const neap_choice *c, int n_in, int n_out) {
  add_number(out, c->engine);
  add_number(out, c->algorithm);
  add_number(out, c->n_thread);
  add_number(out, (int64_t)c->scratch_bytes);
  add_number(out, (int64_t)c->stash_bytes);
  add(out, c->in, (size_t)n_in * sizeof *c->in);
  add(out, c->out, (size_t)n_out * sizeof *c->out);
}

/* `forward`: the node that ask->pair is of. */
static void add_question(neap_buffer *out, const neap_kernel *kernel, const neap_choose *ask,
                         const neap_node *forward) {
  add(out, &kernel, sizeof kernel);
  add_number(out, ask->n_in * 65536 + ask->n_out * 4 + ask->train * 2 + ask->plain);
  add_number(out, (int64_t)ask->scratch_limit);
  add_types(out, ask->n_in, ask->in);
  add_types(out, ask->n_out, ask->out);
  add(out, ask->in_layout, (size_t)ask->n_in * sizeof *ask->in_layout);
  add_attrs(out, ask->op, ask->attrs);
  add_choice(out, ask->choice, ask->n_in, ask->n_out);

  /* The pair's lists are as long as its node's operands: the kernel reads what they say. */
  if (ask->pair != NULL) add_choice(out, ask->pair, forward->n_in, forward->n_out);
}

/* The choice that was made, in the lists of the one at hand. */
static void take(const graph_answer *answer, const neap_choose *ask) {
  neap_layout *in = ask->choice->in, *out = ask->choice->out;
  /* All but the lists, which the node keeps: the answer's own serve others too. */
  *ask->choice = answer->choice;
  ask->choice->in = in;
  ask->choice->out = out;
  neap_copy_bytes(in, answer->choice.in, (size_t)ask->n_in * sizeof *in);
  neap_copy_bytes(out, answer->choice.out, (size_t)ask->n_out * sizeof *out);
}

/* NULL when memory is refused. */
static graph_answer *remember(graph_asked *asked, const neap_choose *ask, bool taken,
                              neap_hash hash) {
  graph_answer *answer = neap_arena_alloc(&asked->arena, sizeof *answer);
  if (answer == NULL) return NULL;
  *answer =
    (graph_answer){.hash = hash, .n = asked->question.n, .taken = taken, .choice = *ask->choice};

  /* Copies, since the next question is written into the same buffer. */
  answer->question = neap_arena_copy(&asked->arena, asked->question.text, asked->question.n);
  answer->choice.in =
    neap_arena_copy(&asked->arena, ask->choice->in, (size_t)ask->n_in * sizeof *ask->choice->in);
  answer->choice.out =
    neap_arena_copy(&asked->arena, ask->choice->out, (size_t)ask->n_out * sizeof *ask->choice->out);
  if (answer->question == NULL || answer->choice.in == NULL || answer->choice.out == NULL)
    return NULL;
  return answer;
}

/* Asks once more: whether the kernel still says what it said to the same question. The lists are
 * the C library's own, so that tests which refuse memory meet the same allocations. */
static void check_answer(const graph_answer *answer, const neap_kernel *kernel,
                         const neap_choose *ask) {
  /* The kernel writes into lists of its own here, so that the answer at hand is not touched. */
  const size_t n_in = (size_t)ask->n_in, n_out = (size_t)ask->n_out;
  neap_choice fresh = *ask->choice;
  fresh.in = malloc((n_in + 1) * sizeof *fresh.in);
  fresh.out = malloc((n_out + 1) * sizeof *fresh.out);
  if (fresh.in == NULL || fresh.out == NULL) goto done;
  neap_copy_bytes(fresh.in, ask->choice->in, n_in * sizeof *fresh.in);
  neap_copy_bytes(fresh.out, ask->choice->out, n_out * sizeof *fresh.out);

  /* A choice of its own, so that what was answered stays as it is. */
  neap_choose again = *ask;
  again.choice = &fresh;
  bool taken = neap_kernel_choose(kernel, &again);
  NEAP_ASSERT(taken == answer->taken, "one answer of %s to one question", ask->op->name);

  /* A kernel that refuses leaves no choice to be compared. */
  if (!taken) goto done;

  /* All that a node takes over from an answer has to be as it was. */
  const neap_choice *was = &answer->choice;
  NEAP_ASSERT(fresh.engine == was->engine && fresh.algorithm == was->algorithm &&
                fresh.n_thread == was->n_thread && fresh.scratch_bytes == was->scratch_bytes &&
                fresh.stash_bytes == was->stash_bytes,
              "one choice of %s for one question", ask->op->name);
  for (size_t i = 0; i < n_in; i++)
    NEAP_ASSERT(neap_layout_equal(&fresh.in[i], &was->in[i]),
                "one layout of input %zu of %s for one question", i + 1, ask->op->name);
  for (size_t k = 0; k < n_out; k++)
    NEAP_ASSERT(neap_layout_equal(&fresh.out[k], &was->out[k]),
                "one layout of output %zu of %s for one question", k + 1, ask->op->name);
done:
  free(fresh.in);
  free(fresh.out);
}

bool graph_ask(graph_asked *asked, const neap_kernel *kernel, neap_choose *ask,
               const neap_node *forward, bool *taken) {
  /* Not worth a look, or with a choice to follow, which is no part of the question. */
  if ((kernel->choose == NULL && !kernel->widens) || ask->like != NULL) {
    *taken = neap_kernel_choose(kernel, ask);
    return true;
  }

  if (asked->bucket == NULL) {
    asked->bucket = neap_arena_alloc(&asked->arena, N_BUCKET * sizeof *asked->bucket);
    if (asked->bucket == NULL) return false;
  }

  /* The question as bytes, and whether it has been asked before. */
  asked->question.n = 0;
  add_question(&asked->question, kernel, ask, forward);
  if (asked->question.failed) return false;
  neap_hash hash = neap_hash_words(asked->question.text, asked->question.n);
  graph_answer **bucket = &asked->bucket[hash.low % N_BUCKET];
  for (const graph_answer *a = *bucket; a != NULL; a = a->next) {
    if (a->hash.low != hash.low || a->n != asked->question.n ||
        memcmp(a->question, asked->question.text, a->n) != 0)
      continue;
    if (NEAP_DEBUG) check_answer(a, kernel, ask);
    *taken = a->taken;
    if (a->taken) take(a, ask);
    return true;
  }

  /* It has not: the kernel is asked, and its answer kept. */
  *taken = neap_kernel_choose(kernel, ask);
  graph_answer *answer = remember(asked, ask, *taken, hash);
  if (answer == NULL) return false;
  answer->next = *bucket;
  *bucket = answer;
  return true;
}

void graph_asked_fini(graph_asked *asked) {
  neap_arena_fini(&asked->arena);
  neap_buffer_fini(&asked->question);
}
