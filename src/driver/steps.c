/* steps.c: step trees (execution plans): nets of a workspace run in an order, repeated, side by
 * side.
 *
 * A tree is checked, then built, then run. Building makes one node a step, gives it the workspace
 * its nets run in, and compiles them all; so whatever can be wrong with names, types or memory is
 * said before anything has run. A step with create_workspace is built again for each further
 * execution.
 *
 * INVARIANT: a workspace belongs to one thread. Each branch of a concurrent step (a substep, or an
 * instance) therefore runs in a child workspace of its own, with an arena of its own; what its nets
 * put out is made in the workspace around it before the branches begin, and lands there.
 * INVARIANT: while branches run nobody makes, drops or renames a blob that two of them see, and no
 * blob that one writes is read or written by another; trees that would are refused.
 * INVARIANT: parallel regions never nest: nets of a branch are compiled for one thread and the
 * executor `simple`.
 */
#include "driver/driver_int.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum { MOST_NESTED = 64, MOST_INSTANCES = 256, SLICE_NS = 2000000 };

/* What all steps of one run share. */
typedef struct tree {
  neap_workspace *ws; /* the top step's, where names of nets are looked up */
  const neap_compile_options *options;
  _Atomic int stopped; /* the first failure stops the rest */
  pthread_mutex_t lock;
  neap_error first; /* that failure */
  /* the first session's that has one; written by the thread that has the store; NULL: nobody
   * asks */
  char *warning;
} tree;

typedef struct node node;
struct node {
  const neap_step *step;
  neap_workspace *outer, *ws; /* where the step stands, and where its nets run; retained */
  bool alone;                 /* on one thread among others */
  bool is_instance;           /* one of several of its step */
  bool fresh;                 /* built, and not run yet */
  bool concurrent;            /* children side by side */
  neap_session **session, *report;
  int n_session, n_child;
  node **child;
  node *group;              /* the concurrent node this is a branch of; NULL: none */
  _Atomic int n_unfinished; /* branches that end by themselves */
};

/* For messages: its own name, or that of its first net. */
static const char *step_name(const neap_step *step) {
  if (step->name != NULL) return step->name;
  if (step->n_net <= 0) return "unnamed";
  if (step->given != NULL && step->given[0] != NULL) return neap_net_name(step->given[0]);
  return step->net[0] != NULL ? step->net[0] : "unnamed";
}

/* ---- checking -------------------------------------------------------------------------------- */

/* An error that names the step; gives back `code`. */
static neap_status fail(const neap_step *step, neap_status code, neap_error *error,
                        const char *text) {
  return neap_fail(error, code, "run_steps: step \"%.100s\": %s", step_name(step), text);
}

static bool has_report(const neap_step *step) {
  return step->report_net != NULL || step->given_report != NULL;
}

/* Net i of the step: the one given, else the workspace's of that name. Borrowed; NULL: there is
 * none. */
static const neap_net *net_of(const tree *t, const neap_step *step, int i) {
  if (step->given != NULL && step->given[i] != NULL) return step->given[i];
  return step->net[i] != NULL ? neap_workspace_net(t->ws, step->net[i]) : NULL;
}

/* The same for the report. */
static const neap_net *report_of(const tree *t, const neap_step *step) {
  return step->given_report != NULL ? step->given_report
                                    : neap_workspace_net(t->ws, step->report_net);
}

/* NAME error that names the step and the net. */
static neap_status no_net(const neap_step *step, const char *name, neap_error *error) {
  char text[200];
  snprintf(text, sizeof text, "there is no net \"%.100s\"", name != NULL ? name : "");
  return fail(step, NEAP_NAME, error, text);
}

/* One element of dtype bool; *stop gets it. NAME error without the blob, SHAPE for any other
 * tensor. */
static neap_status read_stop(neap_workspace *ws, const neap_step *step, bool *stop,
                             neap_error *error) {
  /* It has to be there before the first iteration: nothing says that a net makes it in time. */
  neap_tensor tensor;
  char text[300], shape[NEAP_SHAPE_TEXT];
  if (!neap_workspace_has(ws, step->stop_blob)) {
    snprintf(text, sizeof text, "stop blob \"%.100s\" does not exist", step->stop_blob);
    neap_hint(error, "feed it with false first");
    return fail(step, NEAP_NAME, error, text);
  }

  /* One bool, read where it lies. */
  NEAP_TRY(neap_workspace_view(ws, step->stop_blob, &tensor, NULL, error));
  bool fits = tensor.dtype == NEAP_DTYPE_BOOL && neap_tensor_elems(&tensor) == 1;
  if (fits) *stop = *(const bool *)neap_tensor_data(&tensor);
  snprintf(text, sizeof text, "stop blob \"%.100s\" must be one bool, got %s %s", step->stop_blob,
           neap_dtype_name(tensor.dtype), neap_shape_text(&tensor.shape, shape));
  neap_tensor_fini(&tensor);
  return fits ? NEAP_OK : fail(step, NEAP_SHAPE, error, text);
}

/* The step and all below: ARGUMENT for what contradicts itself or exceeds a limit, NAME and SHAPE
 * for what it refers to. */
static neap_status check_step(const tree *t, const neap_step *step, int depth, neap_error *error) {
  /* What the step says of itself: depth, and words that exclude each other. */
  if (depth > MOST_NESTED) return fail(step, NEAP_ARGUMENT, error, "steps are nested too deeply");
  if (step->n_net > 0 && step->n_step > 0)
    return fail(step, NEAP_ARGUMENT, error,
                "it has both nets and substeps; a step has one or the other");
  if (step->iterations > 0 && step->stop_blob != NULL)
    return fail(step, NEAP_ARGUMENT, error,
                "it has both a number of iterations and a stop blob; a step has one or the other");
  if (step->n_net < 0 || step->n_step < 0 || step->iterations < 0 || step->run_every_ms < 0 ||
      step->report_every_ms < 0 || step->n_instance < 0 || step->n_instance > MOST_INSTANCES)
    return fail(step, NEAP_ARGUMENT, error,
                "its numbers can't be negative, and it has at most 256 instances");
  if (step->concurrent && step->n_step > MOST_INSTANCES)
    return fail(step, NEAP_ARGUMENT, error,
                "it has more than 256 concurrent substeps, each of which needs a thread");
  if (has_report(step) && step->report_every_ms == 0)
    return fail(step, NEAP_ARGUMENT, error, "a report net needs an interval, report_every_ms");

  /* What it names: nets, the report, the stop blob. Then the steps below it. */
  for (int i = 0; i < step->n_net; i++)
    if (net_of(t, step, i) == NULL) return no_net(step, step->net[i], error);
  if (has_report(step) && report_of(t, step) == NULL) return no_net(step, step->report_net, error);
  bool ignored;
  if (step->stop_blob != NULL) NEAP_TRY(read_stop(t->ws, step, &ignored, error));
  for (int i = 0; i < step->n_step; i++) NEAP_TRY(check_step(t, &step->step[i], depth + 1, error));
  return NEAP_OK;
}

/* ---- what branches share --------------------------------------------------------------------- */

static bool is_output(const neap_net *net, const char *name) {
  for (int k = 0; k < neap_net_n_outputs(net); k++)
    if (strcmp(neap_net_output_at(net, k), name) == 0) return true;
  return false;
}

/* Some op's output. Names of a net are interned: equal ones are the same pointer. */
static bool is_written(const neap_net *net, const char *name) {
  for (int i = 0; i < neap_net_n_ops(net); i++)
    for (int k = 0; k < neap_net_op_at(net, i)->n_out; k++)
      if (neap_net_op_at(net, i)->out[k] == name) return true;
  return false;
}

/* Whether running the net writes bytes under this name that others can see. */
static bool writes(const neap_net *net, const neap_net_blob *blob) {
  bool resident = blob->keep || blob->type.dtype != NEAP_DTYPE_NONE ||
                  blob->role == NEAP_ROLE_GRADIENT || is_output(net, blob->name);
  return resident && is_written(net, blob->name);
}

/* A blob with a declared type comes from outside; one without is made by the net's own ops. */
static bool reads(const neap_net_blob *blob) { return blob->type.dtype != NEAP_DTYPE_NONE; }

/* Calls visit for each net in the steps below. False as soon as visit gives false. */
static bool each_net(const tree *t, const neap_step *step,
                     bool (*visit)(void *, const neap_step *, const neap_net *), void *context) {
  for (int i = 0; i < step->n_net; i++)
    if (!visit(context, step, net_of(t, step, i))) return false;
  if (has_report(step) && !visit(context, step, report_of(t, step))) return false;
  for (int i = 0; i < step->n_step; i++)
    if (!each_net(t, &step->step[i], visit, context)) return false;
  return true;
}

/* A search for a blob at which two branches meet: what it goes by, and what it found. */
typedef struct sharing {
  const tree *t;
  neap_workspace *ws;
  const neap_step *other; /* the second branch */
  const neap_net_blob *blob;
  bool written;
  const neap_step *writer, *user; /* the clash */
} sharing;

/* Whether the net touches s->blob: writes it, or reads what the other branch writes. */
static bool net_uses(const sharing *s, const neap_net *net) {
  for (int i = 0; i < neap_net_n_blobs(net); i++) {
    const neap_net_blob *blob = neap_net_blob_at(net, i);
    if (!writes(net, blob) && !(s->written && reads(blob))) continue;
    /* Other names may be the same bytes: blobs of a shared or overlaid segment. */
    if (strcmp(blob->name, s->blob->name) == 0) return true;
    if (neap_workspace_meet(s->ws, blob->name, s->blob->name)) return true;
  }
  return false;
}

/* For each_net over the second branch: false where the net, or its step's stop blob, touches
 * s->blob. */
static bool clashes_with_net(void *context, const neap_step *step, const neap_net *net) {
  sharing *s = context;
  bool uses = net_uses(s, net);
  if (!uses && s->written && step->stop_blob != NULL)
    uses = strcmp(step->stop_blob, s->blob->name) == 0;
  if (uses) s->user = step;
  return !uses;
}

/* For each_net over the first branch: false where the second touches a blob that this net writes
 * and both see. A name that the workspace around lacks is each branch's own. */
static bool clashes(void *context, const neap_step *step, const neap_net *net) {
  sharing *s = context;
  for (int i = 0; i < neap_net_n_blobs(net); i++) {
    s->blob = neap_net_blob_at(net, i);

    s->written = writes(net, s->blob);
    if (!s->written || !neap_workspace_has(s->ws, s->blob->name)) continue;
    s->writer = step;
    if (!each_net(s->t, s->other, clashes_with_net, s)) return false;
  }
  return true;
}

/* GRAPH error when one branch writes what another one reads or writes. Instances of a step are
 * branches alike. Ordered pairs, each over all blobs of all nets: trees are small, and this comes
 * once. */
static neap_status check_branches(const tree *t, const node *group, neap_error *error) {
  /* What one branch writes no other may touch, in either direction. */
  for (int i = 0; i < group->n_child; i++)
    for (int k = 0; k < group->n_child; k++) {
      sharing s = {.t = t, .ws = group->ws, .other = group->child[k]->step};
      if (i == k || each_net(t, group->child[i]->step, clashes, &s)) continue;
      if (error != NULL && error->code == NEAP_OK)
        snprintf(error->blob, sizeof error->blob, "%.120s", s.blob->name);
      neap_fail(error, NEAP_GRAPH,
                "run_steps: concurrent steps \"%.80s\" and \"%.80s\" would meet at blob \"%.80s\", "
                "which the first writes",
                step_name(s.writer), step_name(s.user), s.blob->name);
      neap_hint(error,
                "name it otherwise in one of them; with create_workspace each has its own, unless "
                "the workspace around has the blob");
      return NEAP_GRAPH;
    }
  return NEAP_OK;
}

typedef struct landing {
  neap_workspace *ws;
  neap_status status;
  neap_error *error;
} landing;

/* Makes in the workspace around a branch what the branch's net puts out. */
static bool prepare_landing(void *context, const neap_step *step, const neap_net *net) {
  /* What the net declares, then what it writes and others can see. */
  landing *l = context;
  (void)step;
  l->status = neap_workspace_init(l->ws, net, l->error);
  for (int i = 0; i < neap_net_n_blobs(net); i++) {
    if (l->status != NEAP_OK) break;
    const neap_net_blob *blob = neap_net_blob_at(net, i);
    if (writes(net, blob)) l->status = neap_workspace_create(l->ws, blob->name, false, l->error);
  }
  return l->status == NEAP_OK;
}

/* The same for all nets of the step and below. With create_workspace what a step puts out ends with
 * its own workspace. */
static neap_status prepare_landings(const tree *t, neap_workspace *ws, const neap_step *step,
                                    neap_error *error) {
  if (step->create_workspace) return NEAP_OK;
  for (int i = 0; i < step->n_step; i++) NEAP_TRY(prepare_landings(t, ws, &step->step[i], error));
  landing l = {.ws = ws, .error = error};
  neap_step own = *step;
  own.n_step = 0;
  each_net(t, &own, prepare_landing, &l);
  return l.status;
}

/* ---- building -------------------------------------------------------------------------------- */

/* Ends sessions, children and the workspace, deepest first; the node itself and `outer` stay, so
 * that it can be built again. */
static void empty_node(node *n) {
  /* Children first: their workspaces are children of this one. */
  for (int i = 0; i < n->n_child; i++) {
    if (n->child[i] == NULL) continue;
    empty_node(n->child[i]);
    neap_workspace_release(n->child[i]->outer);
    neap_free(n->child[i]);
  }
  for (int i = 0; i < n->n_session; i++) neap_session_free(n->session[i]);
  neap_session_free(n->report);
  neap_free(n->child);
  neap_free(n->session);
  neap_workspace_release(n->ws);
  n->ws = NULL;
  n->report = NULL;
  n->child = NULL;
  n->session = NULL;
  n->n_child = n->n_session = 0;
}

static neap_status refused(neap_error *error) {
  return neap_fail_memory(error, sizeof(node), "a step");
}

/* One of n children that share a limit of which so much is taken; 0 is none. */
static size_t share_of(size_t limit, size_t taken, int n) {
  if (limit == 0) return 0;
  size_t left = limit > taken ? limit - taken : 0;
  return NEAP_MAX(left / (size_t)n, 1); /* 0 would be no limit */
}

/* A child that sees everything of `parent`, one of n; the `index` makes random numbers of several
 * children differ. What the parent's limits leave beside its own bytes is divided among them, so
 * that all together keep to them. */
static neap_status new_child(neap_workspace *parent, int index, int n, neap_workspace **out,
                             neap_error *error) {
  neap_workspace_options options = {
    .seed = neap_workspace_seed(parent) + (uint64_t)index,
    .parent = parent,
    .budget_bytes = share_of(neap_workspace_budget(parent), neap_workspace_arena_bytes(parent), n),
    .total_bytes = share_of(neap_workspace_total(parent), neap_workspace_held_bytes(parent), n)};
  NEAP_TRY(neap_workspace_new(&options, out, error));
  neap_workspace_rewind_step(*out, neap_workspace_step(parent));
  return NEAP_OK;
}

/* A session for the net in the node's workspace; owned by the node. */
static neap_status compile(const tree *t, const node *n, const neap_net *net, neap_session **out,
                           neap_error *error) {
  neap_compile_options options = *t->options;

  if (n->alone) {
    /* Its thread is one of several: kernels must not open a parallel region of their own. */
    options.n_thread = 1;
    options.plan.executor = NEAP_EXECUTOR_SIMPLE;
    options.store = NULL; /* one connection, one thread */
  }
  NEAP_TRY(neap_driver_compile(n->ws, net, &options, out, error));
  if (options.store != NULL && t->warning != NULL && t->warning[0] == '\0')
    strcpy(t->warning, neap_session_warning(*out));
  return NEAP_OK;
}

static neap_status build_node(const tree *t, node *n, neap_error *error);

/* Child i of n for `step`: in n's own workspace, or as a branch in a child of it. */
static neap_status add_child(const tree *t, node *n, int i, const neap_step *step,
                             neap_error *error) {
  /* Everything below a concurrent step is on a thread among others, at any depth. */
  node *child = n->child[i] = neap_alloc_zeroed(sizeof *child);
  if (child == NULL) return refused(error);
  child->step = step;
  child->alone = n->alone || n->concurrent;
  child->is_instance = n->concurrent && step == n->step;
  child->group = n->concurrent ? n : NULL;

  /* In turn they share a workspace; side by side each has one, and its results land in the one
   * around. */
  if (!n->concurrent) {
    child->outer = neap_workspace_retain(n->ws);
  } else {
    NEAP_TRY(prepare_landings(t, n->ws, step, error));
    NEAP_TRY(new_child(n->ws, i, n->n_child, &child->outer, error));
    NEAP_ASSERT(child->outer != n->ws && child->alone,
                "a workspace and one thread of its own for branch %d of \"%s\"", i,
                step_name(step));
  }
  return NEAP_OK;
}

/* Children for the substeps, or (`list` NULL) n_child instances of the step itself. */
static neap_status add_children(const tree *t, node *n, int n_child, const neap_step *list,
                                bool concurrent, neap_error *error) {
  /* All children exist before one is built, since each may look at the others. */
  n->concurrent = concurrent;
  n->child = neap_alloc_zeroed((size_t)n_child * sizeof(node *));
  if (n->child == NULL) return refused(error);
  n->n_child = n_child;

  /* All branches' blobs are made before any branch is checked or built: what two of them see must
   * be there, or each would make its own. */
  for (int i = 0; i < n_child; i++)
    NEAP_TRY(add_child(t, n, i, list != NULL ? &list[i] : n->step, error));
  if (concurrent) NEAP_TRY(check_branches(t, n, error));
  for (int i = 0; i < n_child; i++) NEAP_TRY(build_node(t, n->child[i], error));
  return NEAP_OK;
}

/* Everything below `outer`: workspace, sessions, children. What is there is ended first. */
static neap_status build_node(const tree *t, node *n, neap_error *error) {
  const neap_step *step = n->step;
  empty_node(n);
  n->fresh = true;

  /* A step of several instances is a node with that many children, each for the same step. */
  bool group = step->n_instance > 1 && !n->is_instance;
  if (step->create_workspace && !group)
    NEAP_TRY(new_child(n->outer, 0, 1, &n->ws, error));
  else
    n->ws = neap_workspace_retain(n->outer);
  if (group) return add_children(t, n, step->n_instance, NULL, true, error);
  if (step->n_step > 0)
    NEAP_TRY(
      add_children(t, n, step->n_step, step->step, step->concurrent && step->n_step > 1, error));

  /* Nets of this step, compiled in its workspace. */
  n->session = neap_alloc_zeroed((size_t)(step->n_net + 1) * sizeof(neap_session *));
  if (n->session == NULL) return refused(error);
  for (; n->n_session < step->n_net; n->n_session++)
    NEAP_TRY(compile(t, n, net_of(t, step, n->n_session), &n->session[n->n_session], error));
  return has_report(step) ? compile(t, n, report_of(t, step), &n->report, error) : NEAP_OK;
}

/* ---- running --------------------------------------------------------------------------------- */

/* The first failure is kept, and everybody stops at the next net. */
static void stop(tree *t, const neap_error *error) {
  pthread_mutex_lock(&t->lock);
  if (t->first.code == NEAP_OK) t->first = *error;
  pthread_mutex_unlock(&t->lock);
  atomic_store(&t->stopped, 1);
}

/* Whether to go no further; Ctrl-C is a failure like any other. */
static bool is_stopped(tree *t, const neap_step *step) {
  if (neap_interrupted && atomic_load(&t->stopped) == 0) {
    neap_error error = {0};
    fail(step, NEAP_INTERRUPTED, &error, "interrupted");
    stop(t, &error);
  }
  return atomic_load(&t->stopped) != 0;
}

/* A branch that repeats by the clock and has no end of its own goes on until its siblings have
 * ended. */
static bool is_periodic(const node *n) {
  return n->group != NULL && n->step->run_every_ms > 0 && n->step->iterations == 0 &&
         n->step->stop_blob == NULL;
}

static bool siblings_ended(const node *n) { return atomic_load(&n->group->n_unfinished) == 0; }

/* Sleeps in slices, so that a stop elsewhere, Ctrl-C or the end of the siblings is seen within
 * SLICE_NS. */
static void wait_until(tree *t, const node *n, int64_t due_ns) {
  while (!is_stopped(t, n->step) && !(is_periodic(n) && siblings_ended(n))) {
    int64_t left = due_ns - neap_clock_ns();
    if (left <= 0) return;
    nanosleep(&(struct timespec){.tv_nsec = (long)NEAP_MIN(left, (int64_t)SLICE_NS)}, NULL);
  }
}

/* Whether the step's stop blob says so; false, with the tree stopped, when it can't be read. */
static bool told_to_stop(tree *t, const node *n) {
  bool said = false;
  neap_error error = {0};
  if (n->step->stop_blob != NULL && read_stop(n->ws, n->step, &said, &error) != NEAP_OK)
    stop(t, &error);
  return said;
}

/* A failure stops the tree; the caller finds out by is_stopped. */
static void run_session(tree *t, neap_session *session) {
  neap_error error = {0};
  if (neap_session_run(session, &error) != NEAP_OK) stop(t, &error);
}

static void run_node(tree *t, node *n);

typedef struct branch {
  tree *t;
  node *n;
} branch;

/* A thread's start: one branch from its first iteration to its last. */
static void *run_branch(void *context) {
  branch *b = context;
  run_node(b->t, b->n);
  if (!is_periodic(b->n)) atomic_fetch_sub(&b->n->group->n_unfinished, 1);
  return NULL;
}

/* One thread a branch, the first one this thread. Signals stay with the thread that has them. */
static void run_branches(tree *t, node *n) {
  enum { MOST = MOST_INSTANCES };
  pthread_t thread[MOST];
  branch list[MOST] = {{0}};
  int n_branch = n->n_child, n_started = 1, n_unfinished = 0; /* at most MOST: see check_step */
  for (int i = 0; i < n_branch; i++) {
    list[i] = (branch){t, n->child[i]};
    n_unfinished += !is_periodic(n->child[i]);
  }
  atomic_store(&n->n_unfinished, n_unfinished); /* before the first thread can count down */
  /* New threads have all signals blocked, so that Ctrl-C reaches the thread that called. */
  sigset_t saved;
  neap_signals_hold_all(&saved);
  while (n_started < n_branch &&
         pthread_create(&thread[n_started], NULL, run_branch, &list[n_started]) == 0)
    n_started++;
  neap_signals_release(&saved);
  if (n_started < n_branch) {
    neap_error error = {0};
    fail(n->step, NEAP_MEMORY, &error, "a thread was refused");
    stop(t, &error);
  }

  /* After a refusal too: the tree is stopped, so that branch 0 ends at once, and counts down. */
  run_branch(&list[0]);
  for (int i = 1; i < n_started; i++) pthread_join(thread[i], NULL);
}

/* One iteration. True when the stop blob has ended the step. */
static bool run_body(tree *t, node *n) {
  if (n->concurrent) {
    if (told_to_stop(t, n)) return true;
    run_branches(t, n);
    return false;
  }

  /* A step has nets or substeps; either run one after the other. */
  for (int i = 0; i < n->n_session + n->n_child; i++) {
    if (is_stopped(t, n->step)) break;
    if (told_to_stop(t, n)) return true; /* asked before each net */
    if (i < n->n_session)
      run_session(t, n->session[i]);
    else
      run_node(t, n->child[i - n->n_session]);
  }
  return false;
}

/* How often a step's body runs: INT64_MAX where something else ends it. A group of instances runs
 * them once: each instance has the iterations. */
static int64_t most_iterations(const node *n) {
  if (n->concurrent && n->n_child > 0 && n->child[0]->is_instance) return 1;
  if (n->step->stop_blob != NULL || is_periodic(n)) return INT64_MAX;
  return NEAP_MAX(n->step->iterations, (int64_t)1);
}

/* All iterations, and the report between and after them. By the clock, iteration k is due k
 * intervals after the first: one that is late does not put off those behind it. */
static void repeat_body(tree *t, node *n) {
  /* Due times are counted from the start, so that lateness does not add up. */
  int64_t most = most_iterations(n), start = neap_clock_ns(), reported = start;
  for (int64_t k = 0; k < most && !is_stopped(t, n->step); k++) {
    if (k > 0 && n->step->run_every_ms > 0)
      wait_until(t, n, start + k * n->step->run_every_ms * 1000000);
    if (is_periodic(n) && k > 0 && siblings_ended(n)) break;

    /* The body, and the report where its interval is over. */
    if (run_body(t, n)) break;
    if (n->report == NULL || neap_clock_ns() - reported < n->step->report_every_ms * 1000000)
      continue;
    run_session(t, n->report);
    reported = neap_clock_ns();
  }

  /* A last report says how it ended. */
  if (n->report != NULL && !is_stopped(t, n->step)) run_session(t, n->report);
}

/* One execution of the step. One that makes its own workspace begins each further execution with a
 * new one. */
static void run_node(tree *t, node *n) {
  neap_error error = {0};
  if (!n->fresh && n->step->create_workspace && build_node(t, n, &error) != NEAP_OK)
    stop(t, &error);
  n->fresh = false;
  if (!is_stopped(t, n->step)) repeat_body(t, n);
}

/* Makes all of the tree, or nothing: blobs that the nets of the first steps have made go with the
 * one that fails. */
static neap_status build(const tree *t, node *top, neap_error *error) {
  neap_workspace_mark *before = NULL;
  NEAP_TRY(neap_workspace_mark_new(t->ws, true, 0, NULL, &before, error));
  neap_status status = build_node(t, top, error);
  if (status != NEAP_OK) {
    empty_node(top);
    neap_workspace_mark_undo(before, 0, NULL);
  }
  neap_workspace_mark_free(before);
  return status;
}

/* The top step stands in `ws`, on this thread. Its nets end with the run; what they put out stays.
 * Where one fails, its run has not been, and those before it have. */
neap_status neap_driver_run_steps(neap_workspace *ws, const neap_step *root,
                                  const neap_compile_options *options, char *warning,
                                  neap_error *error) {
  /* Checked, built, run: a tree that is wrong anywhere runs nothing. */
  tree t = {.ws = ws, .options = options, .lock = PTHREAD_MUTEX_INITIALIZER, .warning = warning};
  NEAP_TRY(check_step(&t, root, 0, error));
  node top = {.step = root, .outer = neap_workspace_retain(ws)};
  neap_status status = build(&t, &top, error);
  if (status == NEAP_OK) {
    run_node(&t, &top);
    status = t.first.code;
    if (status != NEAP_OK && error != NULL && error->code == NEAP_OK) *error = t.first;
  }
  empty_node(&top);
  neap_workspace_release(top.outer);
  pthread_mutex_destroy(&t.lock);
  return status;
}

/* Blobs that were made for a run that fails go with it. */
neap_status neap_driver_run_once(neap_workspace *ws, const neap_net *net,
                                 const neap_compile_options *options, char *warning,
                                 neap_error *error) {
  /* Blobs are marked before compiling makes any. */
  neap_session *session = NULL;
  neap_workspace_mark *before = NULL;
  NEAP_TRY(neap_workspace_mark_new(ws, true, 0, NULL, &before, error));
  neap_status status = neap_driver_compile(ws, net, options, &session, error);
  if (status == NEAP_OK && warning != NULL) strcpy(warning, neap_session_warning(session));
  if (status == NEAP_OK) status = neap_session_run(session, error);
  neap_session_free(session);
  if (status != NEAP_OK) neap_workspace_mark_undo(before, 0, NULL);
  neap_workspace_mark_free(before);
  return status;
}
