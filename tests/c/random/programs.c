/* programs.c: ops run one by one, several programs in one workspace, ranges of batches,
 * micro-batches. Each has a plain run of its own to be compared with: the same calls, unplanned.
 */
#include "memonger/memonger.h"
#include "random/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static neap_status open_workspace(const neap_net *net, bool poison, neap_workspace **ws,
                                  neap_error *error) {
  NEAP_TRY(neap_workspace_new(&(neap_workspace_options){.seed = 5}, ws, error));
  neap_workspace_set_poison(*ws, poison);
  return neap_workspace_init(*ws, net, error);
}

static void close_workspace(neap_workspace *ws) {
  if (ws != NULL) neap_workspace_release(ws);
}

/* ---- one by one ------------------------------------------------------------------------------ */

static neap_status run_op(neap_workspace *ws, const neap_net_op *op, neap_error *error) {
  enum { MOST_SET = 32 };
  neap_set set[MOST_SET + 1] = {0};
  int n_set = 0;
  for (int a = 0; a < neap_op_n_attrs(op->op) && n_set < MOST_SET; a++)
    if (op->attrs[a].given) set[n_set++] = (neap_set){op->op->attrs[a].name, op->attrs[a]};
  /* what is freed is gone: that is no op to run */
  if ((op->op->effects & NEAP_EFFECT_RELEASE) != 0) return NEAP_OK;
  return neap_workspace_call_op(ws, op->op->name, op->n_in, op->in, set, op->n_out, op->out, error);
}

static neap_status run_eagerly(const neap_net *net, const neap_net *ops, neap_workspace **ws,
                               neap_error *error) {
  NEAP_TRY(open_workspace(net, false, ws, error));
  for (int k = 0; k < N_STEP; k++) {
    NEAP_TRY(feed_inputs(*ws, net, k, 0, "", error));
    for (int n = 0; n < neap_net_n_ops(ops); n++)
      NEAP_TRY(run_op(*ws, neap_net_op_at(ops, n), error));
  }
  return NEAP_OK;
}

static bool has_op(const neap_net *net, const char *name) {
  for (int n = 0; net != NULL && n < neap_net_n_ops(net); n++)
    if (strcmp(neap_net_op_at(net, n)->op->name, name) == 0) return true;
  return false;
}

/* The ops of the net, backward pass and all, called one after the other: by engine ref, with as
 * many threads, as they are those of a net whose ops nobody rewrites. */
static bool eager_agrees(trial *t) {
  static const char way[] = "eager";
  if (t->made.has_control || t->made.has_random || !begins(t, way)) return true;
  neap_net *written = NULL;
  ran plain = {0};
  neap_workspace *ws = NULL;
  neap_error error = {0};
  neap_compile_options o = {.plan = {.policy = NEAP_POLICY_NONE},
                            .graph = {.no_rewrite = true, .no_fuse = true},
                            .n_thread = 0,
                            .engine = "ref"};

  /* The net with its backward pass written out, unrewritten: then its ops are those that are
   * called. */
  neap_status status = neap_recycle_write_out(t->net, &o.graph, &written, &error);
  if (status == NEAP_OK) status = run_net(t->net, &o, OWN, false, &plain, &error);
  setenv("NEAP_ENGINE", "ref", 1);
  if (status == NEAP_OK)
    status = run_eagerly(t->net, written != NULL ? written : t->net, &ws, &error);
  unsetenv("NEAP_ENGINE");

  /* What a stash means only the kernel knows that made it, and an op alone has no such partner. */
  bool refused = status == NEAP_DTYPE &&
                 strstr(error.message, "MaxPoolGrad: no kernel takes") != NULL &&
                 has_op(written, "MaxPoolGrad");
  bool holds = status == NEAP_OK || refused || fail(t, way, error.message);

  /* What both have is compared; an op that none of the kernels takes alone leaves nothing to
   * compare. */
  comparison c = {.plain = plain.ws, .other = ws};
  holds = holds && (refused || compared(t, way, &c));
  t->totals->n_eager += holds && !refused;
  close_workspace(ws);
  ran_close(&plain);
  neap_net_free(written);
  return holds;
}

/* ---- side by side ---------------------------------------------------------------------------- */

/* The same net without training: the same parameters and state. */
static neap_net *without_training(const trial *t) {
  recipe r = *t->recipe;
  neap_net *net = NULL;
  r.step[STEP_HEAD].zeroed |= 1;
  made m = write_net(&r);
  neap_status status = neap_net_read(m.text, &net, NULL);
  made_fini(&m);
  return status == NEAP_OK ? net : NULL;
}

/* Both nets in one workspace, by turns. */
static neap_status run_both(const neap_net *train, const neap_net *test,
                            const neap_compile_options *o, const neap_compile_options *o_test,
                            bool poison, neap_workspace **ws, neap_error *error) {
  static const bool trains[] = {true, false, false, true, false, true};
  neap_session *session[2] = {0};
  NEAP_TRY(open_workspace(train, poison, ws, error));
  neap_status status = neap_workspace_init(*ws, test, error);
  if (status == NEAP_OK) status = neap_driver_compile(*ws, train, o, &session[1], error);

  /* The test net is compiled when it is first asked for, between runs of the other, so that the
   * arena grows or moves in between. */
  for (int k = 0; k < NEAP_COUNT(trains) && status == NEAP_OK; k++) {
    if (session[0] == NULL && !trains[k])
      status = neap_driver_compile(*ws, test, o_test, &session[0], error);
    if (status == NEAP_OK) status = feed_inputs(*ws, train, k, 0, "", error);
    if (status == NEAP_OK) status = neap_session_run(session[trains[k]], error);
  }
  for (int i = 0; i < 2; i++) neap_session_free(session[i]);
  return status;
}

static bool both_agree(trial *t) {
  static const struct {
    const char *name;
    neap_policy train, test;
    bool dag;
  } ways[] = {{"training and test, offset", NEAP_POLICY_OFFSET, NEAP_POLICY_OFFSET, false},
              {"training and test, name and dag", NEAP_POLICY_NAME, NEAP_POLICY_OFFSET, true},
              {"training and test, pool and offset", NEAP_POLICY_POOL, NEAP_POLICY_OFFSET, false}};
  neap_net *test = t->made.trains ? without_training(t) : NULL;
  neap_workspace *plain = NULL;
  neap_error error = {0};
  bool holds = true;
  for (int k = 0; k < NEAP_COUNT(ways) && holds && test != NULL; k++) {
    if (!begins(t, ways[k].name)) continue;
    neap_workspace *ws = NULL;
    if (plain == NULL)
      holds = run_both(t->net, test, &t->options, &t->options, false, &plain, &error) == NEAP_OK ||
              fail(t, ways[k].name, error.message);

    /* Two policies side by side, one for each net. */
    neap_compile_options o = t->options, o_test = t->options;
    o.plan.policy = ways[k].train, o_test.plan.policy = ways[k].test;
    o.plan.executor = o_test.plan.executor = ways[k].dag ? NEAP_EXECUTOR_DAG : NEAP_EXECUTOR_SIMPLE;
    o.plan.most_steps = o_test.plan.most_steps = 300000;
    holds = holds && (run_both(t->net, test, &o, &o_test, true, &ws, &error) == NEAP_OK ||
                      fail(t, ways[k].name, error.message));
    comparison c = {.plain = plain, .other = ws, .several = true};
    holds = holds && compared(t, ways[k].name, &c);
    t->totals->n_beside += holds;
    close_workspace(ws);
  }
  close_workspace(plain);
  neap_net_free(test);
  return holds;
}

/* ---- ranges of batches ----------------------------------------------------------------------- */

static int64_t batch_of(const neap_net *net) {
  for (int b = 0; b < neap_net_n_blobs(net); b++)
    if (neap_net_blob_at(net, b)->role == NEAP_ROLE_INPUT)
      return neap_net_blob_at(net, b)->type.shape.dim[0];
  return 1;
}

/* Batches of several sizes in one workspace, by turns. range: NULL for programs that know nothing
 * of each other. */
static neap_status run_batches(const neap_net *net, const neap_compile_options *o,
                               const neap_range *range, neap_workspace **ws, neap_error *error) {
  int64_t most = batch_of(net), rows[] = {most, (most + 1) / 2, 1};
  static const int turn[] = {0, 1, 0, 2, 1, 2, 0, 1};
  neap_session *session[NEAP_COUNT(rows)] = {0};
  neap_arena room = {0};
  neap_status status = open_workspace(net, range != NULL, ws, error);

  /* Each size has a session of its own, made with its first turn. */
  for (int k = 0; k < NEAP_COUNT(turn) && status == NEAP_OK; k++) {
    int i = turn[k];
    status = feed_inputs(*ws, net, k, rows[i], "", error);
    neap_compile_options with = *o;
    if (status == NEAP_OK && session[i] == NULL) {
      status = neap_batch_inputs(net, rows[i], &with.graph, &room, error);
      if (status == NEAP_OK)
        status = range != NULL ? neap_range_compile(range, *ws, net, &with, &session[i], error)
                               : neap_driver_compile(*ws, net, &with, &session[i], error);
    }
    if (status == NEAP_OK) status = neap_session_run(session[i], error);
  }
  for (int i = 0; i < NEAP_COUNT(rows); i++) neap_session_free(session[i]);
  neap_arena_fini(&room);
  return status;
}

static bool ranges_agree(trial *t) {
  neap_workspace *plain = NULL;
  neap_error error = {0};
  bool holds = true;
  for (int k = 0; k < N_PLANNED && holds && t->made.by_rows; k++) {
    planned by = planned_way("range", k);
    const char *way = by.name;
    if (!begins(t, way)) continue;
    neap_workspace *ws = NULL;
    neap_range *range = NULL;
    if (plain == NULL)
      holds = run_batches(t->net, &t->options, NULL, &plain, &error) == NEAP_OK ||
              fail(t, way, error.message);

    /* The range is planned for the largest batch, and smaller ones run in its bytes. */
    neap_compile_options o = t->options;
    o.plan = by.plan;
    holds = holds &&
            (neap_range_new(t->net, &o, &range, &error) == NEAP_OK || fail(t, way, error.message));
    holds = holds &&
            (run_batches(t->net, &o, range, &ws, &error) == NEAP_OK || fail(t, way, error.message));
    comparison c = {.plain = plain, .other = ws, .several = true};
    holds = holds && compared(t, way, &c);
    t->totals->n_ranged += holds;
    neap_range_free(range);
    close_workspace(ws);
  }
  close_workspace(plain);
  return holds;
}

/* ---- micro-batches --------------------------------------------------------------------------- */

static neap_status run_micro(const neap_net *net, const neap_compile_options *o, int64_t rows,
                             bool poison, neap_workspace **ws, neap_error *error) {
  neap_micro *micro = NULL;
  NEAP_TRY(open_workspace(net, poison, ws, error));
  neap_status status = neap_micro_new(*ws, net, rows, o, &micro, error);
  for (int k = 0; k < N_STEP && status == NEAP_OK; k++) {
    status = feed_inputs(*ws, net, k, 0, "", error);
    if (status == NEAP_OK) status = neap_micro_take(micro, &(neap_micro_batch){0}, error);
  }
  neap_micro_free(micro);
  return status;
}

/* A loss of what has no batch has no parts; what is drawn from no batch, for the parts and for the
 * update, would be drawn twice; and what moves once a step would move with every part. */
static bool is_unsplit(const trial *t, const neap_error *error) {
  const char *moved = "writes a declared blob that the gradient depends on, once a step";
  const char *parted = "it can stand neither before nor after the sum of the gradients";
  const char *drawn = "draws numbers that both the micro-batches and the update read";
  if (strstr(error->message, "no input with a batch leads to a gradient") != NULL)
    return error->code == NEAP_ARGUMENT;
  return error->code == NEAP_GRAPH &&
         ((t->made.has_random && strstr(error->message, drawn) != NULL) ||
          (t->made.has_state &&
           (strstr(error->message, moved) != NULL || strstr(error->message, parted) != NULL)));
}

static bool micro_agrees(trial *t) {
  neap_workspace *plain = NULL;
  neap_error error = {0};
  int64_t rows = (batch_of(t->net) + 1) / 2;
  bool holds = true;
  for (int k = 0; k < N_PLANNED && holds && t->made.by_rows && t->made.trains; k++) {
    planned by = planned_way("micro-batches", k);
    const char *way = by.name;
    if (!begins(t, way)) continue;
    neap_workspace *ws = NULL;

    /* A net that can't be split is refused in the plain run already. */
    if (plain == NULL && run_micro(t->net, &t->options, rows, false, &plain, &error) != NEAP_OK) {
      holds = is_unsplit(t, &error) || fail(t, way, error.message);
      break;
    }
    neap_compile_options o = t->options;
    o.plan = by.plan;
    holds = holds && (run_micro(t->net, &o, rows, true, &ws, &error) == NEAP_OK ||
                      fail(t, way, error.message));
    comparison c = {.plain = plain, .other = ws, .several = true};
    holds = holds && compared(t, way, &c);
    t->totals->n_micro += holds;
    close_workspace(ws);
  }
  close_workspace(plain);
  return holds;
}

bool programs_agree(trial *t) {
  return eager_agrees(t) && both_agree(t) && ranges_agree(t) && micro_agrees(t);
}
