/* split.c: a training net as two: one for a micro-batch, and one for the update that ends the step
 * of the large batch.
 *
 * Each value of the net follows from one of three things. PART: from the examples of a micro-batch,
 * so that it differs from one to the next. WHOLE: from gradients of parameters, which are complete
 * when all micro-batches have run. EITHER: from neither, but from constants, parameters, a learning
 * rate. The ops that give PART values are the micro-batch's, those that give WHOLE values the
 * update's; of the rest each net gets what it reads. An op that reads both PART and WHOLE can stand
 * in neither.
 *
 * An accumulator is called as the gradient is in the net that was split: who reads that name finds
 * the large batch's gradient. Where gradients are bf16 or f16, in which a sum of many soon stops
 * growing, the accumulator is f32 and has a name of its own, and the update begins by rounding it
 * to the gradient.
 *
 * INVARIANT: accumulators are resident, so that no plan gives their bytes away between
 * micro-batches; the first micro-batch of a step (keep 0) does not read them, so nothing of a step
 * that was broken off remains.
 * INVARIANT: the update writes parameters and optimizer state and raises NEAP_MICRO_STEPS; the
 * micro-batch writes none of them.
 */
#include "net/net_int.h"
#include "ops/tile.h"

#include <stdio.h>
#include <string.h>

typedef enum kind { EITHER, PART, WHOLE } kind;

typedef struct part_op {
  int n_read;
  const char **read; /* what it reads, its subnets included */
  int *def;          /* the op that wrote read[i] last before it; -1: declared */
  unsigned effects;  /* of the op and its subnets */
  kind kind;
  bool leads; /* a Gradient depends on it */
  bool in_micro, in_update;
} part_op;

typedef struct splitter {
  const neap_net *net;
  part_op *op;
  int64_t batch;    /* of the inputs that the loss depends on; -1: none has one */
  neap_map leading; /* declared names that a gradient depends on */
  neap_map last;    /* name -> op that wrote it last */
  neap_arena room;
  neap_error *error;
} splitter;

static neap_status fail_memory(const splitter *s) {
  return neap_fail_memory(s->error, 64, "the net of a micro-batch");
}

static bool is_gradient(const neap_net_op *op) { return strcmp(op->op->name, "Gradient") == 0; }
static bool is_free(const neap_net_op *op) { return (op->op->effects & NEAP_EFFECT_RELEASE) != 0; }

/* Whether output `name` of a Gradient op is with respect to a parameter. */
static bool is_parameter_gradient(const splitter *s, const neap_net_op *op, const char *name) {
  if (!is_gradient(op)) return false;
  for (int k = 0; k < op->n_out; k++)
    if (op->out[k] == name)
      return neap_net_find_blob(s->net, op->in[k + 1])->role == NEAP_ROLE_PARAMETER;
  return false;
}

/* ---- what reads what ------------------------------------------------------------------------- */

/* The op's own, what it makes of declared blobs, and what lasts or draws in its subnets. */
static unsigned effects_of(const neap_net *net, const neap_net_op *op) {
  unsigned effects =
    op->op->effects | (neap_net_op_writes_declared(net, op) ? NEAP_EFFECT_COMMIT : 0);
  return effects | (neap_net_sub_effects(op) & (NEAP_EFFECT_COMMIT | NEAP_EFFECT_RANDOM));
}

/* Inputs that are there, then the names that subnets take from around them. */
static neap_status find_reads(splitter *s, const neap_net_op *op, part_op *p) {
  /* Room for the most it can be: inputs may be absent. */
  int most = op->n_in;
  for (int a = 0; a < neap_op_n_attrs(op->op); a++)
    if (op->op->attrs[a].type == NEAP_ATTR_NET && op->attrs[a].net != NULL)
      most += op->attrs[a].net->n_outside;
  p->read = neap_arena_alloc(&s->room, (size_t)most * sizeof *p->read);
  p->def = neap_arena_alloc(&s->room, (size_t)most * sizeof *p->def);
  if (p->read == NULL || p->def == NULL) return fail_memory(s);
  for (int i = 0; i < op->n_in; i++)
    if (op->in[i] != NULL) p->read[p->n_read++] = op->in[i];
  for (int a = 0; a < neap_op_n_attrs(op->op); a++) {
    const neap_net *sub = op->op->attrs[a].type == NEAP_ATTR_NET ? op->attrs[a].net : NULL;
    if (sub == NULL) continue;
    for (int k = 0; k < sub->n_outside; k++) p->read[p->n_read++] = sub->outside[k];
  }

  /* Who has written each before this op. */
  for (int i = 0; i < p->n_read; i++) p->def[i] = neap_map_get(&s->last, p->read[i], -1);
  return NEAP_OK;
}

/* Which op each read comes from; then which ops a gradient depends on, and the batch of the inputs
 * among them. */
static neap_status find_flow(splitter *s) {
  const neap_net *net = s->net;
  s->op = neap_arena_alloc(&s->room, (size_t)net->n_op * sizeof *s->op);
  if (s->op == NULL) return fail_memory(s);

  /* In the order of the ops, so that `last` is who wrote a name before the op that reads it. */
  for (int i = 0; i < net->n_op; i++) {
    NEAP_TRY(find_reads(s, &net->op[i], &s->op[i]));
    /* What the op does besides its outputs: a write that lasts, numbers that are drawn. */
    s->op[i].effects = effects_of(net, &net->op[i]);
    for (int k = 0; k < net->op[i].n_out; k++)
      if (net->op[i].out[k] != NULL && !neap_map_set(&s->last, net->op[i].out[k], i))
        return fail_memory(s);
  }

  /* Backwards, since who writes stands before who reads. */
  for (int i = net->n_op - 1; i >= 0; i--) {
    part_op *p = &s->op[i];
    if (is_gradient(&net->op[i])) p->leads = true;
    if (!p->leads) continue;
    for (int k = 0; k < p->n_read; k++) {
      if (p->def[k] >= 0)
        s->op[p->def[k]].leads = true;
      else if (!neap_map_set(&s->leading, p->read[k], 1))
        return fail_memory(s);
    }
  }

  /* The first input that a gradient depends on says how large a batch is. */
  s->batch = -1;
  for (int c = 0; c < net->n_cell; c++) {
    const neap_net_blob *blob = &net->cell[c].blob;
    bool is_input = blob->role == NEAP_ROLE_INPUT && blob->type.shape.n_dim > 0;
    if (!is_input || !neap_map_get(&s->leading, blob->name, 0)) continue;
    s->batch = blob->type.shape.dim[0];
    break;
  }
  return NEAP_OK;
}

/* Declared inputs with the batch as first dimension. Of a batch of one, those only that a gradient
 * depends on: a learning rate (1) has no batch. */
static bool has_batch(const splitter *s, const neap_net_blob *blob) {
  return blob != NULL && blob->role == NEAP_ROLE_INPUT && blob->type.shape.n_dim > 0 &&
         blob->type.shape.dim[0] == s->batch &&
         (s->batch > 1 || neap_map_get(&s->leading, blob->name, 0));
}

/* ---- what belongs where ---------------------------------------------------------------------- */

/* What kind of value read i of the op is. */
static kind kind_of_read(const splitter *s, const part_op *p, int i) {
  if (p->def[i] < 0) return has_batch(s, neap_net_find_blob(s->net, p->read[i])) ? PART : EITHER;
  /* A gradient of a parameter is whole when it is read: the sum over all micro-batches. */
  const neap_net_op *op = &s->net->op[p->def[i]];
  if (is_parameter_gradient(s, op, p->read[i])) return WHOLE;
  return s->op[p->def[i]].kind;
}

/* GRAPH error that names the op and, where both are known, the two blobs that part it. */
static neap_status fail_both(const splitter *s, const neap_net_op *op, const char *part,
                             const char *whole) {
  neap_error *error = s->error;

  /* The error's fields say which op it is, and what of it. */
  if (error != NULL && error->code == NEAP_OK) {
    snprintf(error->op, sizeof error->op, "%s", op->op->name);
    snprintf(error->scope, sizeof error->scope, "%s", op->scope);
    snprintf(error->line, sizeof error->line, "%s", op->line);
    snprintf(error->blob, sizeof error->blob, "%s", part);
  }
  neap_hint(error,
            "compute it from gradients, parameters and inputs without a batch alone, or run the "
            "large batch as one");

  /* For a Gradient op the usual cause has a name of its own: a gradient of a gradient. */
  if (is_gradient(op))
    return neap_fail(error, NEAP_GRAPH,
                     "%s \"%s\": depends on \"%s\", which follows from the gradient of the whole "
                     "batch: micro-batches can't be "
                     "differentiated a second time",
                     op->op->name, op->name, whole);
  return neap_fail(error, NEAP_GRAPH,
                   "%s \"%s\": reads \"%s\", which every micro-batch makes anew, and \"%s\", which "
                   "is made once, after the gradient of the "
                   "whole batch: it can stand neither before nor after the sum of the gradients",
                   op->op->name, op->name, part, whole);
}

/* A write that the large batch makes once, before its gradient: each micro-batch would make it
 * again. */
static neap_status fail_again(const splitter *s, const neap_net_op *op) {
  neap_error *error = s->error;
  if (error != NULL && error->code == NEAP_OK) {
    snprintf(error->op, sizeof error->op, "%s", op->op->name);
    snprintf(error->scope, sizeof error->scope, "%s", op->scope);
    snprintf(error->line, sizeof error->line, "%s", op->line);
  }
  neap_hint(error, "write it after the update, or give what the gradient reads another name");
  return neap_fail(
    error, NEAP_GRAPH,
    "%s \"%s\": writes a declared blob that the gradient depends on, once a step: every "
    "micro-batch would do so again",
    op->op->name, op->name);
}

/* What a state in the forward pass becomes is of the micro-batches; one that no gradient depends on
 * goes on once a step. */
static neap_status find_kind(splitter *s, int i) {
  const neap_net_op *op = &s->net->op[i];
  part_op *p = &s->op[i];
  const char *part = NULL, *whole = NULL;

  /* What it reads decides what it is. */
  for (int k = 0; k < p->n_read; k++) {
    kind read = kind_of_read(s, p, k);
    /* The first of each kind is kept, for the message. */
    if (read == PART && part == NULL) part = p->read[k];
    if (read == WHOLE && whole == NULL) whole = p->read[k];
  }

  /* A Free computes nothing: one that could stand in neither net is left out. */
  if (is_free(op) && part != NULL && whole != NULL) part = whole = NULL;
  if (is_gradient(op) && part == NULL) part = op->in[0];
  if (part != NULL && whole != NULL) return fail_both(s, op, part, whole);

  /* A state that is written before the gradient, from nothing of the batch, would go on with each
   * micro-batch rather than once a step. */
  if (part == NULL && p->leads && neap_net_op_writes_declared(s->net, op) &&
      (op->op->effects & NEAP_EFFECT_COMMIT) == 0)
    return fail_again(s, op);

  /* What commits or draws on the way to a gradient does so in each micro-batch. */
  bool each = p->leads && (p->effects & (NEAP_EFFECT_COMMIT | NEAP_EFFECT_RANDOM)) != 0;
  if (part != NULL || each)
    p->kind = PART;
  else if (whole != NULL || (p->effects & NEAP_EFFECT_COMMIT) != 0)
    p->kind = WHOLE;
  else
    p->kind = EITHER;
  return NEAP_OK;
}

/* What op i reads of EITHER kind goes to the micro-batch's net, or to the update's. */
static void give_reads(splitter *s, int i, bool micro) {
  const part_op *p = &s->op[i];
  for (int k = 0; k < p->n_read; k++) {
    if (p->def[k] < 0 || s->op[p->def[k]].kind != EITHER) continue;
    if (micro)
      s->op[p->def[k]].in_micro = true;
    else
      s->op[p->def[k]].in_update = true;
  }
}

/* Backwards: what the update reads; then the rest, and what that reads. A random op that both read
 * would draw twice. */
static neap_status share_out(splitter *s) {
  /* First the update, with all of EITHER kind that it needs. */
  for (int i = s->net->n_op - 1; i >= 0; i--) {
    part_op *p = &s->op[i];
    if (p->kind == WHOLE) p->in_update = true;
    if (p->in_update) give_reads(s, i, false);
  }
  for (int i = s->net->n_op - 1; i >= 0; i--) {
    part_op *p = &s->op[i];
    /* A Free of neither kind would free in one net what it does not have. */
    if (is_free(&s->net->op[i]) && p->kind == EITHER) {
      p->in_micro = p->in_update = false;
      continue;
    }
    if (p->kind == PART || (p->kind == EITHER && !p->in_update)) p->in_micro = true;
    if (p->in_micro) give_reads(s, i, true);
    if (p->in_micro && p->in_update && (p->effects & NEAP_EFFECT_RANDOM) != 0)
      return neap_fail(s->error, NEAP_GRAPH,
                       "%s \"%s\": draws numbers that both the micro-batches and the update read",
                       s->net->op[i].op->name, s->net->op[i].name);
  }
  return NEAP_OK;
}

/* ---- building -------------------------------------------------------------------------------- */

/* Whether the ops that go to one of the nets read or write the declared name. A gradient that was
 * declared is none of these. */
static bool is_named(const splitter *s, const char *name, bool micro) {
  for (int i = 0; i < s->net->n_op; i++) {
    const part_op *p = &s->op[i];
    /* Only ops of the net that is asked about count. */
    if (!(micro ? p->in_micro : p->in_update)) continue;
    for (int k = 0; k < p->n_read; k++)
      if (p->read[k] == name) return true;
    for (int k = 0; k < s->net->op[i].n_out; k++)
      if (s->net->op[i].out[k] == name) return true;
  }
  return false;
}

/* Inputs with the batch first, so that the first input of a micro-batch's net tells its rows. What
 * nobody names is declared with the micro-batch, so that its parameters are made as before. */
static neap_status declare(const splitter *s, neap_net *to, bool micro) {
  neap_net_copier c = neap_net_plain_copier(s->net, s->error);
  for (int round = 0; round < 2; round++)
    for (int i = 0; i < s->net->n_cell; i++) {
      const neap_net_blob *blob = &s->net->cell[i].blob;
      if (blob->type.dtype == NEAP_DTYPE_NONE || has_batch(s, blob) != (round == 0)) continue;
      /* Named by this net's ops; or by nobody's, and then the micro-batch's, unless it is an
       * input. */
      bool wanted = is_named(s, blob->name, micro) ||
                    (micro && blob->role != NEAP_ROLE_INPUT && !is_named(s, blob->name, false));
      if (wanted) NEAP_TRY(neap_net_copy_declaration(&c, s->net, blob, to));
    }
  return NEAP_OK;
}

/* "w_grad.part" for the end "part"; with a number where that name is taken. */
static const char *own_name(const splitter *s, const char *gradient, const char *end) {
  const char *base = neap_intern_format("%s.%s", gradient, end), *name = base;
  for (int i = 2; name != NULL && neap_net_find_blob(s->net, name) != NULL; i++)
    name = neap_net_join("", base, i);
  return name;
}

/* The gradient of one micro-batch. */
static const char *part_name(const splitter *s, const char *gradient) {
  return own_name(s, gradient, "part");
}

/* Whether the sum of gradients of the parameter has more digits than they. */
static bool is_wider(const splitter *s, const char *parameter) {
  return neap_is_half(neap_net_find_blob(s->net, parameter)->type.dtype);
}

/* The accumulator of a gradient. */
static const char *sum_name(const splitter *s, const char *gradient, const char *parameter) {
  return is_wider(s, parameter) ? own_name(s, gradient, "sum") : gradient;
}

/* Zeros until the first step. */
static neap_status declare_accumulator(const splitter *s, neap_net *to, const char *name,
                                       const char *parameter, const char *line) {
  neap_type type = neap_net_find_blob(s->net, parameter)->type;
  type.dtype = neap_compute_dtype(type.dtype);
  const neap_set zero[] = {NEAP_SET_FLOAT("value", 0), {0}};
  return neap_net_declare(to, name, NEAP_ROLE_GRADIENT, &type, false, "Constant", zero, line,
                          s->error);
}

/* The Gradient op, whose gradients of parameters are of one micro-batch and end with their sums. */
static neap_status add_gradient(const splitter *s, const neap_net_op *op, neap_net *to) {
  const char **out = neap_alloc_zeroed((size_t)(op->n_out + 1) * sizeof *out);
  if (out == NULL) return fail_memory(s);
  neap_status status = NEAP_OK;
  for (int k = 0; k < op->n_out; k++) {
    /* Gradients of parameters get names of their own: the old name is the sum's. */
    out[k] = is_parameter_gradient(s, op, op->out[k]) ? part_name(s, op->out[k]) : op->out[k];
    if (out[k] == NULL) {
      status = fail_memory(s);
      goto done;
    }
  }

  /* As the op was, but that its gradients of parameters go when they have been added up. */
  int unused = neap_op_attr_index(op->op, "allow_unused");
  const neap_set attrs[] = {
    NEAP_SET_INT("allow_unused", op->attrs[unused].i), NEAP_SET_INT("resident", 0), {0}};
  const neap_net_call call = {.type = "Gradient",
                              .n_in = op->n_in,
                              .in = op->in,
                              .n_out = op->n_out,
                              .out = out,
                              .attrs = attrs,
                              .name = neap_net_strip_scope(op->name, op->scope),
                              .scope = op->scope,
                              .layer = op->layer,
                              .line = op->line};
  status = neap_net_add(to, &call, NULL, s->error);
done:
  neap_free(out);
  return status;
}

/* After the ops: each gradient times the micro-batch's weight, added to its accumulator. */
static neap_status add_sums(const splitter *s, const neap_net_op *op, neap_net *to) {
  for (int k = 0; k < op->n_out; k++) {
    if (!is_parameter_gradient(s, op, op->out[k])) continue;
    const char *name = sum_name(s, op->out[k], op->in[k + 1]), *part = part_name(s, op->out[k]);
    if (name == NULL || part == NULL) return fail_memory(s);
    NEAP_TRY(declare_accumulator(s, to, name, op->in[k + 1], op->line));
    /* The total, what is added, its weight, and how much of the total stays: 0 in the first
     * micro-batch. */
    const neap_net_call call = {
      .type = "WeightedAccumulate",
      .n_in = 4,
      .in = (const char *[]){name, part, NEAP_MICRO_WEIGHT, NEAP_MICRO_KEEP},
      .n_out = 1,
      .out = &name,
      .line = op->line};
    NEAP_TRY(neap_net_add(to, &call, NULL, s->error));
  }
  return NEAP_OK;
}

static neap_status add_ops(const splitter *s, neap_net *to, bool micro) {
  neap_net_copier c = neap_net_plain_copier(s->net, s->error);
  neap_map subs = {0};
  neap_status status = NEAP_OK;
  for (int i = 0; i < s->net->n_op; i++) {
    const neap_net_op *op = &s->net->op[i];
    /* In the order of the net that was split: it is a right one for either part. */
    if (!(micro ? s->op[i].in_micro : s->op[i].in_update)) continue;
    status = is_gradient(op) ? add_gradient(s, op, to) : neap_net_copy_op(&c, op, to, &subs);
    if (status != NEAP_OK) break;
  }
  neap_map_fini(&subs);
  return status;
}

/* Outputs, keeps and banks, each where its last version is made. Accumulators are resident
 * anyway. */
static neap_status say_outputs(const splitter *s, neap_net *to, bool micro) {
  int n = 0, n_all = neap_net_n_outputs(s->net);
  const char **list = neap_alloc_zeroed((size_t)(n_all + 1) * sizeof *list);
  if (list == NULL) return fail_memory(s);

  /* An output goes to the net that makes it; what both make, to the micro-batch. */
  for (int k = 0; k < n_all; k++) {
    const char *name = neap_net_output_at(s->net, k);
    int def = neap_map_get(&s->last, name, -1);
    if (def < 0 || is_parameter_gradient(s, &s->net->op[def], name)) continue;
    if (micro ? s->op[def].in_micro : s->op[def].in_update && !s->op[def].in_micro)
      list[n++] = name;
  }
  neap_status status = neap_net_set_outputs(to, n, list, s->error);
  neap_free(list);
  NEAP_TRY(status);

  /* Keeps and banks, of blobs that this net has. */
  for (int i = 0; i < s->net->n_cell; i++) {
    const neap_net_cell *cell = &s->net->cell[i];
    int at = neap_map_get(&to->cell_of, cell->blob.name, -1);
    if (at < 0) continue;
    if (cell->blob.keep && to->cell[at].freed_by < 0)
      NEAP_TRY(neap_net_keep(to, cell->blob.name, s->error));
    if (cell->blob.bank != NULL)
      NEAP_TRY(neap_net_assign(to, cell->blob.name, cell->blob.bank, s->error));
  }
  return NEAP_OK;
}

static neap_status build_micro(const splitter *s, neap_net *to) {
  const neap_type scalar = {NEAP_DTYPE_F32, {0}};
  NEAP_TRY(declare(s, to, true));
  NEAP_TRY(neap_net_declare(to, NEAP_MICRO_WEIGHT, NEAP_ROLE_INPUT, &scalar, false, NULL, NULL,
                            NULL, s->error));
  NEAP_TRY(neap_net_declare(to, NEAP_MICRO_KEEP, NEAP_ROLE_INPUT, &scalar, false, NULL, NULL, NULL,
                            s->error));
  /* The weight and the keep of a micro-batch are inputs, so that one plan serves all of them. */
  NEAP_TRY(add_ops(s, to, true));
  /* The sums come last: every gradient is there. */
  for (int i = 0; i < s->net->n_op; i++)
    if (is_gradient(&s->net->op[i])) NEAP_TRY(add_sums(s, &s->net->op[i], to));
  return say_outputs(s, to, true);
}

/* NEAP_MICRO_STEPS goes up by one: the sum of itself and 1. */
static neap_status add_counter(const splitter *s, neap_net *to) {
  const neap_type count = {NEAP_DTYPE_F64, {0}};
  const neap_set zero[] = {NEAP_SET_FLOAT("value", 0), {0}};
  const neap_set one[] = {NEAP_SET_INTS("shape", 0, NULL),
                          NEAP_SET_FLOAT("value", 1),
                          NEAP_SET_INT("dtype", NEAP_DTYPE_F64),
                          {0}};
  const char *steps = NEAP_MICRO_STEPS, *ones = NEAP_MICRO_STEPS ".one";
  NEAP_TRY(
    neap_net_declare(to, steps, NEAP_ROLE_STATE, &count, false, "Constant", zero, NULL, s->error));

  /* WeightedAccumulate is the op that writes a state in place; a constant serves as what is added
   * and as both weights. */
  const neap_net_call constant = {.type = "Constant", .n_out = 1, .out = &ones, .attrs = one};
  NEAP_TRY(neap_net_add(to, &constant, NULL, s->error));

  /* 1 times the constant, added to 1 times what is there. */
  const neap_net_call sum = {.type = "WeightedAccumulate",
                             .n_in = 4,
                             .in = (const char *[]){steps, ones, ones, ones},
                             .n_out = 1,
                             .out = &steps};
  return neap_net_add(to, &sum, NULL, s->error);
}

/* The gradient that an accumulator of more digits stands for, kept for who reads it after the
 * step. */
static neap_status add_rounding(const splitter *s, neap_net *to, const char *gradient,
                                const char *sum, const char *parameter, const char *line) {
  const neap_dtype dtype = neap_net_find_blob(s->net, parameter)->type.dtype;
  const neap_set attrs[] = {NEAP_SET_INT("to", dtype), {0}};

  /* A name of its own: one that is drawn may be that of a Cast of the update, which comes later. */
  const char *name = own_name(s, gradient, "rounded");
  if (name == NULL) return fail_memory(s);
  const neap_net_call cast = {.type = "Cast",
                              .name = name,
                              .n_in = 1,
                              .in = &sum,
                              .n_out = 1,
                              .out = &gradient,
                              .attrs = attrs,
                              .line = line};
  NEAP_TRY(neap_net_add(to, &cast, NULL, s->error));
  return neap_net_keep(to, gradient, s->error);
}

/* The gradients that the update reads are the sums that the micro-batches leave. */
static neap_status take_sums(const splitter *s, const neap_net_op *op, neap_net *to) {
  for (int k = 0; k < op->n_out; k++) {
    const char *gradient = op->out[k], *parameter = op->in[k + 1];
    if (!is_parameter_gradient(s, op, gradient)) continue;

    /* A sum that nobody reads is not declared here; one that is rounded is, since the gradient is
     * kept for readers after the step. */
    bool rounds = is_wider(s, parameter);
    if (!rounds && !is_named(s, gradient, false)) continue;
    const char *sum = sum_name(s, gradient, parameter);
    if (sum == NULL) return fail_memory(s);
    NEAP_TRY(declare_accumulator(s, to, sum, parameter, op->line));
    if (rounds) NEAP_TRY(add_rounding(s, to, gradient, sum, parameter, op->line));
  }
  return NEAP_OK;
}

static neap_status build_update(const splitter *s, neap_net *to) {
  NEAP_TRY(declare(s, to, false));
  for (int i = 0; i < s->net->n_op; i++)
    if (is_gradient(&s->net->op[i])) NEAP_TRY(take_sums(s, &s->net->op[i], to));
  NEAP_TRY(add_ops(s, to, false));
  NEAP_TRY(say_outputs(s, to, false));
  return add_counter(s, to);
}

/* ---- the door -------------------------------------------------------------------------------- */

static neap_status check(const splitter *s) {
  static const char *const own[] = {NEAP_MICRO_WEIGHT, NEAP_MICRO_KEEP, NEAP_MICRO_STEPS,
                                    NEAP_MICRO_KEPT, NEAP_MICRO_ADDED};
  if (s->net->outer != NULL)
    return neap_fail(s->error, NEAP_ARGUMENT,
                     "subnet \"%s\" can't be split alone: split the net around it", s->net->name);

  /* Names that the two nets add must be free, which they are not in a net that has been split. */
  for (int i = 0; i < NEAP_COUNT(own); i++)
    if (neap_net_find_blob(s->net, own[i]) != NULL)
      return neap_fail(s->error, NEAP_NAME,
                       "net \"%s\": has a blob \"%s\" already: it is split, or the name is taken",
                       s->net->name, own[i]);

  /* The sums stand where the Gradient op gives its results, so there must be one. */
  for (int i = 0; i < s->net->n_op; i++)
    if (is_gradient(&s->net->op[i])) return NEAP_OK;
  neap_hint(s->error,
            "add the gradient of the loss first; a net whose backward pass was written out can't "
            "be split any more");
  return neap_fail(s->error, NEAP_GRAPH,
                   "net \"%s\": has no Gradient op, so micro-batches have nothing to add up",
                   s->net->name);
}

static neap_status understand(splitter *s) {
  NEAP_TRY(check(s));
  NEAP_TRY(find_flow(s));
  if (s->batch < 0)
    return neap_fail(s->error, NEAP_ARGUMENT,
                     "net \"%s\": no input with a batch leads to a gradient", s->net->name);
  for (int i = 0; i < s->net->n_op; i++) NEAP_TRY(find_kind(s, i));
  return share_out(s);
}

neap_status neap_net_split_micro(const neap_net *net, neap_net **micro, neap_net **update,
                                 neap_error *error) {
  splitter s = {.net = net, .error = error};
  neap_net *part = NULL, *whole = NULL;
  const char *name = neap_intern_format("%s_update", net->name);
  if (name == NULL) return fail_memory(&s);

  /* Understood whole before the first of the two nets is begun. */
  neap_status status = understand(&s);
  if (status == NEAP_OK) status = neap_net_new(net->name, &part, error);
  if (status == NEAP_OK) status = neap_net_new(name, &whole, error);
  if (status == NEAP_OK) status = build_micro(&s, part);
  if (status == NEAP_OK) status = build_update(&s, whole);
  neap_map_fini(&s.leading);
  neap_map_fini(&s.last);
  neap_arena_fini(&s.room);
  if (status != NEAP_OK) {
    neap_net_free(part);
    neap_net_free(whole);
    return status;
  }
  *micro = part;
  *update = whole;
  return NEAP_OK;
}
