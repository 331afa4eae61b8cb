/* trial.c: one run of a net, and whether two runs have left the same bits. */
#include "random/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

char ways_at[400];

/* ---- one run --------------------------------------------------------------------------------- */

void ran_close(ran *r) {
  neap_session_free(r->session);
  if (r->ws != NULL) neap_workspace_release(r->ws);
  if (r->outer != NULL) neap_workspace_release(r->outer);
  *r = (ran){0};
}

/* Numbers that follow from `salt`: reals in -0.5 .. 0.5, integers below BOUND. */
static neap_status numbers(const neap_type *type, int salt, neap_tensor *out, neap_error *error) {
  NEAP_TRY(neap_tensor_new(out, type->dtype, &type->shape, error));
  bool real = type->dtype == NEAP_DTYPE_F32 || type->dtype == NEAP_DTYPE_F64;
  for (int64_t i = 0; i < neap_tensor_elems(out); i++) {
    uint32_t word[4];
    neap_philox(7, (uint32_t)salt, 0, (uint64_t)i, word);
    neap_element_set(type->dtype, neap_tensor_data(out), i,
                     real ? (double)neap_uniform_f32(word[0]) - 0.5 : word[0] % BOUND);
  }
  return NEAP_OK;
}

neap_status feed_numbers(neap_workspace *ws, const char *name, const neap_type *type, int salt,
                         neap_error *error) {
  neap_tensor t;
  NEAP_TRY(numbers(type, salt, &t, error));
  neap_status status = neap_workspace_feed(ws, name, &t, false, error);
  neap_tensor_fini(&t);
  return status;
}

neap_status feed_inputs(neap_workspace *ws, const neap_net *net, int at_step, int64_t rows,
                        const char *before, neap_error *error) {
  for (int b = 0; b < neap_net_n_blobs(net); b++) {
    const neap_net_blob *known = neap_net_blob_at(net, b);
    /* an input, or state where inputs have a batch */
    bool is_condition = strcmp(known->name, "c") == 0;
    if (known->role != NEAP_ROLE_INPUT && !is_condition) continue;
    neap_type type = known->type;
    if (rows > 0 && !is_condition) type.shape.dim[0] = rows;

    /* Numbers follow from the step and the blob's place, so that each way is fed the same. */
    neap_tensor t;
    NEAP_TRY(numbers(&type, 1000 * at_step + b, &t, error));
    if (is_condition) neap_element_set(t.dtype, neap_tensor_data(&t), 0, at_step % 2);
    char name[64];
    snprintf(name, sizeof name, "%s%s", known->role == NEAP_ROLE_INPUT ? before : "", known->name);
    neap_status status = neap_workspace_feed(ws, name, &t, false, error);
    neap_tensor_fini(&t);
    NEAP_TRY(status);
  }
  return NEAP_OK;
}

/* Inputs that are forwarded are called otherwise in the parent. */
static neap_status make_forwarded(const neap_net *net, ran *r, neap_error *error) {
  enum { MOST = 400 };
  static char target[MOST][64];
  const char *name[MOST], *to[MOST];
  int n = 0;
  for (int b = 0; b < neap_net_n_blobs(net) && n < MOST; b++) {
    const neap_net_blob *known = neap_net_blob_at(net, b);
    bool is_input = known->role == NEAP_ROLE_INPUT,
         is_declared = known->role == NEAP_ROLE_PARAMETER || known->role == NEAP_ROLE_STATE;
    if (!is_input && !is_declared) continue;
    snprintf(target[n], sizeof target[n], "%s%s", is_input ? "outer_" : "", known->name);
    name[n] = known->name, to[n] = target[n], n++;
  }
  return neap_workspace_new(
    &(neap_workspace_options){
      .seed = 5, .parent = r->outer, .n_forward = n, .forward_name = name, .forward_target = to},
    &r->ws, error);
}

static neap_status make_workspace(const neap_net *net, lodging where, ran *r, neap_error *error) {
  NEAP_TRY(neap_workspace_new(&(neap_workspace_options){.seed = 5}, &r->ws, error));
  NEAP_TRY(neap_workspace_init(r->ws, net, error));
  if (where == OWN) return NEAP_OK;

  /* Parameters and state lie in the parent; the net runs in a child of it. */
  r->outer = r->ws, r->ws = NULL;
  if (where == CHILD)
    return neap_workspace_new(&(neap_workspace_options){.seed = 5, .parent = r->outer}, &r->ws,
                              error);
  NEAP_TRY(feed_inputs(r->outer, net, 0, 0, "outer_", error));
  return make_forwarded(net, r, error);
}

neap_status run_net(const neap_net *net, const neap_compile_options *o, lodging where, bool poison,
                    ran *r, neap_error *error) {
  *r = (ran){0};
  NEAP_TRY(make_workspace(net, where, r, error));
  neap_workspace_set_poison(r->ws, poison);
  NEAP_TRY(neap_driver_compile(r->ws, net, o, &r->session, error));
  for (int k = 0; k < N_STEP; k++) {
    NEAP_TRY(feed_inputs(where == FORWARDED ? r->outer : r->ws, net, k, 0,
                         where == FORWARDED ? "outer_" : "", error));
    NEAP_TRY(neap_session_run(r->session, error));
  }
  return NEAP_OK;
}

/* ---- the same bits --------------------------------------------------------------------------- */

static void describe(comparison *c, const char *name, const neap_tensor *x, const neap_tensor *y) {
  for (int64_t i = 0; i < neap_tensor_elems(x); i++) {
    double a = neap_element_get(x->dtype, neap_tensor_data(x), i),
           b = neap_element_get(y->dtype, neap_tensor_data(y), i);
    if (memcmp(&a, &b, sizeof a) == 0) continue;
    snprintf(c->different, sizeof c->different, "%s[%lld] is %.9g, not %.9g", name, (long long)i, b,
             a);
    return;
  }
}

/* Every blob with bytes of its own in the unplanned run; those that are transient there are
 * compared where they can be had. */
static void compare(void *context, const neap_blob_info *info) {
  comparison *c = context;
  if (info->kind != NEAP_BLOB_TENSOR && info->kind != NEAP_BLOB_TRANSIENT) return;
  neap_tensor x = {0}, y = {0};
  neap_error error = {0};
  bool had = neap_workspace_fetch(c->other, info->name, &y, &error) == NEAP_OK;
  bool released = c->several && error.code == NEAP_RELEASED;

  /* A transient blob may be gone under a plan; one with bytes of its own may not. */
  if (!had && info->kind != NEAP_BLOB_TRANSIENT && !released) {
    snprintf(c->different, sizeof c->different, "%s can't be had: %.100s", info->name,
             error.message);
  } else if (had && neap_workspace_fetch(c->plain, info->name, &x, NULL) == NEAP_OK) {
    neap_type a = neap_tensor_type(&x), b = neap_tensor_type(&y);
    if (!neap_type_equal(&a, &b))
      snprintf(c->different, sizeof c->different, "%s has another type", info->name);
    else if (memcmp(neap_tensor_data(&x), neap_tensor_data(&y), neap_type_bytes(&a)) != 0)
      describe(c, info->name, &x, &y);
    else
      c->n_same++;
  }
  neap_tensor_fini(&x);
  neap_tensor_fini(&y);
}

/* ---- a net, and what its ways have in common ------------------------------------------------- */

bool fail(trial *t, const char *way, const char *message) {
  snprintf(t->fault->way, sizeof t->fault->way, "%s", way);
  snprintf(t->fault->message, sizeof t->fault->message, "%s", message);
  return false;
}

/* Whether this way is to be taken. */
bool begins(trial *t, const char *way) {
  if (t->only != NULL && strcmp(t->only, way) != 0) return false;
  neap_buffer name = {0};
  recipe_print(t->recipe, &name);
  snprintf(ways_at, sizeof ways_at, "%s: %s", name.text, way);
  neap_buffer_fini(&name);
  return true;
}

planned planned_way(const char *what, int k) {
  static const struct {
    const char *name;
    neap_policy policy;
    neap_executor executor;
  } ways[N_PLANNED] = {{"offset", NEAP_POLICY_OFFSET, NEAP_EXECUTOR_SIMPLE},
                       {"offset, dag", NEAP_POLICY_OFFSET, NEAP_EXECUTOR_DAG},
                       {"name", NEAP_POLICY_NAME, NEAP_EXECUTOR_SIMPLE}};
  planned way = {
    .plan = {.policy = ways[k].policy, .executor = ways[k].executor, .most_steps = 300000}};
  snprintf(way.name, sizeof way.name, "%s, %s", what, ways[k].name);
  return way;
}

bool compared(trial *t, const char *way, comparison *c) {
  neap_workspace_each(c->plain, compare, c);
  t->totals->n_same += c->n_same;
  return c->different[0] == '\0' || fail(t, way, c->different);
}

/* Another net, or other options, that must give what the plain run gives. *out (may be NULL) gets
 * the run. */
bool agrees(trial *t, const char *way, const neap_net *net, const neap_compile_options *o,
            lodging where, ran *out) {
  ran r = {0};
  neap_error error = {0};
  bool holds = run_net(net, o, where, true, &r, &error) == NEAP_OK || fail(t, way, error.message);
  comparison c = {.plain = t->plain.ws, .other = r.ws};
  holds = holds && compared(t, way, &c);
  if (out != NULL)
    *out = r;
  else
    ran_close(&r);
  return holds;
}
