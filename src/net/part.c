/* part.c: a net of some of another net's ops: what is left of a training net
 * when it does not train.
 *
 * As in rename.c, the new net is made by replaying the calls that made the old one, so that it has
 * passed the same checks: an op that reads what neither an op taken nor a declaration makes is
 * refused.
 */
#include "net/net_int.h"

#include <stdio.h>
#include <string.h>

static neap_status no_memory(neap_error *error) {
  return neap_fail_memory(error, 64, "a part of a net");
}

/* What exists before the net runs, with its initial values. */
static neap_status copy_declarations(const neap_net *net, neap_net *to, neap_error *error) {
  const neap_net_copier c = neap_net_plain_copier(net, error);
  for (int i = 0; i < net->n_cell; i++) {
    const neap_net_blob *blob = &net->cell[i].blob;
    if (blob->type.dtype != NEAP_DTYPE_NONE) NEAP_TRY(neap_net_copy_declaration(&c, net, blob, to));
  }
  return NEAP_OK;
}

/* The banks of `net`'s blobs, of those that `to` has. */
static neap_status copy_banks(const neap_net *net, neap_net *to, neap_error *error) {
  const neap_net_copier c = neap_net_plain_copier(net, error);
  return neap_net_copy_banks(&c, net, to);
}

/* The keeps of `net`, of blobs that `to` makes. */
static neap_status copy_keeps(const neap_net *net, neap_net *to, neap_error *error) {
  for (int i = 0; i < net->n_cell; i++) {
    const neap_net_blob *blob = &net->cell[i].blob, *copy = neap_net_find_blob(to, blob->name);
    /* What is declared is kept anyway. */
    if (blob->keep && copy != NULL && copy->type.dtype == NEAP_DTYPE_NONE)
      NEAP_TRY(neap_net_keep(to, blob->name, error));
  }
  return NEAP_OK;
}

static neap_status refuse_subnets(const neap_net *net, const neap_net_op *op, neap_error *error) {
  for (int a = 0; a < neap_op_n_attrs(op->op); a++)
    if (op->op->attrs[a].type == NEAP_ATTR_NET && op->attrs[a].net != NULL)
      return neap_fail(error, NEAP_GRAPH,
                       "net \"%s\": %s \"%s\" has a subnet, and can't be taken out of its net",
                       net->name, op->op->name, op->name);
  return NEAP_OK;
}

/* `op` once more in `to`, with these inputs and attributes and its first n_out outputs. */
static neap_status add(neap_net *to, const neap_net_op *op, int n_in, const char *const *in,
                       int n_out, const neap_set *set, neap_net_origin origin, neap_error *error) {
  neap_net_call call = {.type = op->op->name,
                        .n_in = n_in,
                        .n_out = n_out,
                        .in = in,
                        .out = (const char *const *)op->out,
                        .attrs = set,
                        .name = neap_net_strip_scope(op->name, op->scope),
                        .scope = op->scope,
                        .layer = op->layer,
                        .line = op->line,
                        .device = op->device,
                        .origin = origin};
  return neap_net_add(to, &call, NULL, error);
}

/* ---- evaluation ------------------------------------------------------------------------------ */

/* The running statistic that an op which writes state keeps of blob `of`: its input that is
 * declared. NULL: none. */
static const char *statistic_of(const neap_net *net, const char *of) {
  if (of == NULL) return NULL;
  for (int i = 0; i < net->n_op; i++) {
    const neap_net_op *op = &net->op[i];
    /* state = Update(state, of): the second input is what the statistic is of. */
    bool updates = (op->op->effects & NEAP_EFFECT_COMMIT) != 0 && op->n_in >= 2;
    if (!updates || op->in[1] != of || op->in[0] == NULL) continue;
    const neap_net_blob *blob = neap_net_find_blob(net, op->in[0]);
    if (blob != NULL && blob->role == NEAP_ROLE_STATE) return op->in[0];
  }
  return NULL;
}

enum { NORM_STATISTIC = 3, NORM_IN = 5 }; /* BatchNorm(x, gamma, beta, running_mean, running_var) */

/* The inputs of a norm that does not train: those it has, and the statistics kept of its outputs
 * mean and var. */
static neap_status norm_inputs(const neap_net *net, const neap_net_op *op, const char *in[NORM_IN],
                               neap_error *error) {
  for (int i = 0; i < NORM_IN; i++) in[i] = i < op->n_in ? op->in[i] : NULL;
  for (int i = NORM_STATISTIC; i < NORM_IN; i++) {
    /* Outputs 1 and 2 are the mean and the variance of the batch: what is kept of them stands for
     * inputs 3 and 4. */
    int k = i - NORM_STATISTIC + 1;
    if (in[i] == NULL && k < op->n_out) in[i] = statistic_of(net, op->out[k]);
    if (in[i] != NULL) continue;
    neap_hint(error, "state m f32 (C) .. m = RunningAverage(m, mean) beside it, for mean and var");
    return neap_fail(error, NEAP_NAME, "net \"%s\": %s \"%s\" keeps no running %s to evaluate with",
                     net->name, op->op->name, op->name, k == 1 ? "mean" : "variance");
  }
  return NEAP_OK;
}

/* Evaluation leaves parameters and state as they are: what an op makes of one is a transient blob,
 * by name of its own. `renamed`, by cell: that name, from the op on that writes the declared
 * one. */
static const char *name_in_evaluation(const neap_net *net, const char *const *renamed,
                                      const char *name) {
  int at = name != NULL ? neap_map_get(&net->cell_of, name, -1) : -1;
  return at >= 0 && renamed[at] != NULL ? renamed[at] : name;
}

static neap_status rename_written(const neap_net *net, const neap_net_op *op, const char **renamed,
                                  neap_error *error) {
  for (int k = 0; k < op->n_out; k++) {
    int at = op->out[k] != NULL ? neap_map_get(&net->cell_of, op->out[k], -1) : -1;
    if (at < 0 || renamed[at] != NULL || net->cell[at].blob.type.dtype == NEAP_DTYPE_NONE) continue;
    /* A tilde more until the name is free: what is declared keeps its own. */
    const char *name = neap_intern_format("%s~", op->out[k]);
    while (name != NULL && neap_net_find_blob(net, name) != NULL)
      name = neap_intern_format("%s~", name);
    if ((renamed[at] = name) == NULL) return no_memory(error);
  }
  return NEAP_OK;
}

/* The op as it is when it does not train: "training" says 0, and a BatchNorm reads the statistics
 * that were kept of it. */
static neap_status evaluate_op(const neap_net *net, const neap_net_op *op, neap_net *to,
                               neap_error *error) {
  NEAP_TRY(refuse_subnets(net, op, error));
  neap_set *set = neap_net_given(op, false);
  neap_set *edited = neap_alloc_zeroed((size_t)(neap_op_n_attrs(op->op) + 2) * sizeof *edited);
  neap_status status = NEAP_OK;
  if (set == NULL || edited == NULL) {
    status = no_memory(error);
    goto done;
  }

  /* What was given once more, but for "training", which says 0. */
  int training = neap_op_attr_index(op->op, "training"), n = 0;
  bool trains = training >= 0 && op->attrs[training].i != 0;
  for (int i = 0; set[i].name != NULL; i++)
    if (!trains || strcmp(set[i].name, "training") != 0) edited[n++] = set[i];
  if (trains) edited[n++] = (neap_set)NEAP_SET_INT("training", 0);
  if (trains && strcmp(op->op->name, "BatchNorm") == 0) {
    const char *in[NORM_IN];
    status = norm_inputs(net, op, in, error);
    if (status == NEAP_OK) status = add(to, op, NORM_IN, in, op->n_out, edited, op->origin, error);
  } else {
    status =
      add(to, op, op->n_in, (const char *const *)op->in, op->n_out, edited, op->origin, error);
  }
done:
  neap_free(edited);
  neap_free(set);
  return status;
}

/* The op with the names that evaluation has for what it reads and writes; updates are left out. */
static neap_status evaluate_named(const neap_net *net, const neap_net_op *op, const char **renamed,
                                  neap_net *to, neap_error *error) {
  if ((op->op->effects & NEAP_EFFECT_COMMIT) != 0) return NEAP_OK;
  neap_net_op named = *op;
  const char **list = neap_alloc_zeroed((size_t)(op->n_in + op->n_out + 1) * sizeof *list);
  if (list == NULL) return no_memory(error);
  named.in = list;
  named.out = list + op->n_in;

  for (int k = 0; k < op->n_in; k++) list[k] = name_in_evaluation(net, renamed, op->in[k]);

  /* From its outputs on the op's names are those of what it writes; its inputs are from before. */
  neap_status status = rename_written(net, op, renamed, error);
  for (int k = 0; k < op->n_out; k++)
    list[op->n_in + k] = name_in_evaluation(net, renamed, op->out[k]);
  if (status == NEAP_OK) status = evaluate_op(net, &named, to, error);
  neap_free((void *)list);
  return status;
}

/* Whether an op behaves otherwise when it trains. */
static bool trains(const neap_net *net) {
  for (int i = 0; i < net->n_op; i++) {
    const neap_net_op *op = &net->op[i];
    int training = neap_op_attr_index(op->op, "training");
    if ((op->op->effects & NEAP_EFFECT_COMMIT) != 0 || neap_net_op_writes_declared(net, op) ||
        (training >= 0 && op->attrs[training].i != 0))
      return true;
  }
  return false;
}

/* Ops, outputs, keeps and banks of `net`, in `to`, where its declarations are already. */
static neap_status evaluate(const neap_net *net, neap_net *to, const char **renamed,
                            const char **output, neap_error *error) {
  for (int i = 0; i < net->n_op; i++)
    NEAP_TRY(evaluate_named(net, &net->op[i], renamed, to, error));

  /* An output that was a state's next version is, in evaluation, what would have become it. */
  int n = neap_net_n_outputs(net);
  for (int k = 0; k < n; k++)
    output[k] = name_in_evaluation(net, renamed, neap_net_output_at(net, k));
  NEAP_TRY(neap_net_set_outputs(to, n, output, error));
  NEAP_TRY(copy_keeps(net, to, error));
  return copy_banks(net, to, error);
}

neap_status neap_net_evaluation(const neap_net *net, neap_net **out, neap_error *error) {
  neap_net *to = NULL;
  *out = NULL;
  if (neap_net_is_train(net))
    return neap_fail(error, NEAP_GRAPH, "net \"%s\": has a backward pass, which evaluation has not",
                     net->name);

  /* Nothing in it trains: evaluation is the net itself. */
  if (!trains(net)) return neap_net_clone(net, out, error);

  /* Else a net of its own: declarations, then the ops that do not only train. */
  NEAP_TRY(neap_net_new(net->name, &to, error));
  neap_status status = copy_declarations(net, to, error);
  const char **renamed = neap_alloc_zeroed((size_t)(net->n_cell + 1) * sizeof *renamed);
  const char **output = neap_alloc_zeroed((size_t)neap_net_n_outputs(net) * sizeof *output);
  if (status == NEAP_OK && (renamed == NULL || output == NULL)) status = no_memory(error);
  if (status == NEAP_OK) status = evaluate(net, to, renamed, output, error);
  neap_free((void *)output);
  neap_free((void *)renamed);
  if (status != NEAP_OK) {
    neap_net_free(to);
    return status;
  }
  *out = to;
  return NEAP_OK;
}
