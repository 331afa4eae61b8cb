/* eager.c: one op on tensors at once. Each thread keeps a small cache of bound kernels under (op,
 * attributes, input types), and a growing scratch.
 *
 * A call that finds its kernel compares itself with at most N_CACHE entries and binds nothing; one
 * that does not takes the place of the entry used longest ago.
 *
 * INVARIANT: a cached kernel belongs to one thread; outputs are new tensors in the pool
 * (eager_pool.c), so that nothing in the cache is ever shared.
 */
#include "driver/driver_int.h"

#include <stdio.h>
#include <string.h>

enum { N_CACHE = 64, MOST_IN = 64, MOST_OUT = 64 };

typedef struct entry {
  const neap_op *op; /* NULL: unused */
  int n_in, n_out, n_thread;
  const char *engine; /* interned name that was forced; NULL: none */
  neap_type *in;
  neap_attr_value *attrs; /* both in the arena */
  neap_arena arena;
  neap_single *single;
  uint64_t used_at; /* by the clock; AT_WORK while its kernel runs */
} entry;
#define AT_WORK UINT64_MAX

static _Thread_local struct {
  entry entry[N_CACHE];
  uint64_t clock;
  void *scratch;
  size_t scratch_bytes;
} eager;

/* Unbinds the kernel and forgets the case; a cleared entry is the first to be taken again. */
static void entry_clear(entry *e) {
  neap_single_free(e->single);
  neap_arena_fini(&e->arena);
  *e = (entry){0};
}

/* Everything this thread holds between calls. A thread that ends without this leaks it. */
void neap_eager_clear(void) {
  for (int i = 0; i < N_CACHE; i++) entry_clear(&eager.entry[i]);
  neap_free(eager.scratch);
  eager.scratch = NULL;
  eager.scratch_bytes = 0;
}

/* ---- one call -------------------------------------------------------------------------------- */

typedef struct call {
  const neap_op *op;
  int n_in, n_out, n_thread;
  const char *engine;
  neap_tensor in[MOST_IN]; /* dense; references of our own */
  neap_type type[MOST_IN];
  neap_attr_value *attrs;
  neap_arena arena; /* of attrs; goes to the cache on a miss */
  /* what a random op draws by; NULL: the thread's next draw, which is then used up */
  const neap_draw *by;
} call;

/* The record of `type`. Ops that are instructions of the runner, or that graph expands, mean
 * nothing alone: ARGUMENT. */
static neap_status find_op(const char *type, call *c, neap_error *error) {
  c->op = neap_op_find(type);
  if (c->op != NULL &&
      (c->op->effects & (NEAP_EFFECT_CONTROL | NEAP_EFFECT_PSEUDO | NEAP_EFFECT_RELEASE)) == 0)
    return NEAP_OK;
  if (c->op != NULL) return neap_fail(error, NEAP_ARGUMENT, "%s: works in a net only", type);
  const char *near = neap_op_suggest(type);
  neap_fail(error, NEAP_NAME, "unknown op type \"%s\"", type);
  if (near != NULL) neap_hint(error, "did you mean \"%s\"?", near);
  return NEAP_NAME;
}

/* {0} stands for an optional input that is not given. */
static bool is_present(const neap_tensor *t) { return t->dtype != NEAP_DTYPE_NONE; }

/* Counts and dtypes against the record. */
static neap_status check(const call *c, const neap_tensor *in, neap_error *error) {
  /* Lists of a call lie on the stack, so that their length is bounded. */
  const char *name = c->op->name;
  int declared = neap_op_n_inputs(c->op), n_out = neap_op_n_outputs(c->op);
  const neap_arg *last_out = n_out > 0 ? &c->op->outputs[n_out - 1] : NULL;
  if (c->n_in > MOST_IN || c->n_out > MOST_OUT)
    return neap_fail(error, NEAP_ARGUMENT,
                     "%s: too many tensors for one op by itself; at most %d inputs and %d outputs",
                     name, MOST_IN, MOST_OUT);
  if (c->n_out > n_out && (last_out == NULL || (last_out->flags & NEAP_ARG_VARIADIC) == 0))
    return neap_fail(error, NEAP_ARGUMENT, "%s: has %d outputs, %d are asked for", name, n_out,
                     c->n_out);

  /* The kernel writes what is not optional, wanted or not. */
  for (int k = c->n_out; k < n_out; k++)
    if ((c->op->outputs[k].flags & NEAP_ARG_OPTIONAL) == 0)
      return neap_fail(error, NEAP_ARGUMENT, "%s: output %s is missing", name,
                       c->op->outputs[k].name);

  /* Inputs one by one, those that are missing too. */
  for (int k = 0; k < NEAP_MAX(c->n_in, declared); k++) {
    const neap_arg *arg = neap_op_input(c->op, k);
    if (arg == NULL || (k >= declared && (arg->flags & NEAP_ARG_VARIADIC) == 0))
      return neap_fail(error, NEAP_ARGUMENT, "%s: expects %d inputs, got %d", name, declared,
                       c->n_in);
    if (k >= c->n_in || !is_present(&in[k])) {
      if ((arg->flags & NEAP_ARG_OPTIONAL) == 0)
        return neap_fail(error, NEAP_ARGUMENT, "%s: input %s is missing", name, arg->name);
      continue;
    }
    unsigned dtypes = arg->dtypes != 0 ? arg->dtypes : NEAP_FLOATS;
    if (!neap_dtype_in(in[k].dtype, dtypes))
      return neap_fail(error, NEAP_DTYPE, "%s: %s does not take dtype %s", name, arg->name,
                       neap_dtype_name(in[k].dtype));
  }
  return NEAP_OK;
}

/* Dense references or copies of the inputs, and their types. What was taken is dropped by the
 * caller, also after a failure. */
static neap_status take_inputs(call *c, const neap_tensor *in, neap_error *error) {
  for (int k = 0; k < c->n_in; k++) {
    if (!is_present(&in[k])) continue;
    /* Kernels read dense tensors alone. */
    if (neap_tensor_is_dense(&in[k]))
      c->in[k] = neap_tensor_retain(&in[k]);
    else
      NEAP_TRY(neap_tensor_clone(&in[k], NEAP_DTYPE_NONE, &c->in[k], error));
    c->type[k] = neap_tensor_type(&in[k]);
  }
  return NEAP_OK;
}

/* ---- the cache ------------------------------------------------------------------------------- */

/* Whether two values of one attribute are the same bits: -0 and 0, or two NaNs, may mean different
 * kernels or the same; the bits decide, which at worst binds once more. */
static bool same_attr(neap_attr_type type, const neap_attr_value *a, const neap_attr_value *b) {
  switch (type) {
    case NEAP_ATTR_FLOAT: return memcmp(&a->f, &b->f, sizeof a->f) == 0;
    case NEAP_ATTR_INTS:
    case NEAP_ATTR_FLOATS:
    case NEAP_ATTR_AXES: /* lists of 8 bytes an entry, all three */
      if (a->n != b->n) return false;
      return a->n == 0 || memcmp(a->ints, b->ints, (size_t)a->n * sizeof(int64_t)) == 0;
    default: return a->i == b->i;
  }
}

/* Whether a bound kernel serves the call: the cheap comparisons first. */
static bool same_case(const entry *e, const call *c) {
  if (e->op != c->op || e->n_in != c->n_in || e->n_out != c->n_out || e->n_thread != c->n_thread ||
      e->engine != c->engine)
    return false;
  for (int k = 0; k < c->n_in; k++)
    if (!neap_type_equal(&e->in[k], &c->type[k])) return false;
  for (int a = 0; a < neap_op_n_attrs(c->op); a++) {
    if (e->attrs[a].given != c->attrs[a].given ||
        !same_attr(c->op->attrs[a].type, &e->attrs[a], &c->attrs[a]))
      return false;
  }
  return true;
}

/* The entry for the case, or the one used longest ago, emptied. One at work, whose kernel has
 * called this, is neither; NULL: all are. */
static entry *look_up(const call *c) {
  /* A walk over few entries: to hash a case would cost as much as comparing it. */
  entry *oldest = &eager.entry[0];
  for (int i = 0; i < N_CACHE; i++) {
    entry *e = &eager.entry[i];
    if (e->used_at == AT_WORK) continue;
    if (e->op != NULL && same_case(e, c)) return e;
    if (e->used_at < oldest->used_at) oldest = e;
  }
  if (oldest->used_at == AT_WORK) return NULL;
  entry_clear(oldest);
  return oldest;
}

/* Binds the case; takes over the call's arena. On failure *e stays empty and the arena the
 * call's. */
static neap_status fill(entry *e, call *c, neap_error *error) {
  /* Types and attributes have to outlive the call: the entry is found by them. */
  neap_single_options options = {.op = c->op,
                                 .attrs = c->attrs,
                                 .n_in = c->n_in,
                                 .n_out = c->n_out,
                                 .in = c->type,
                                 .n_thread = c->n_thread};
  if (c->engine != NULL) options.force = neap_engine_from_name(c->engine, &options.engine);
  neap_type *in = neap_arena_copy(&c->arena, c->type, (size_t)c->n_in * sizeof *in);
  if (in == NULL) return neap_fail_memory(error, (size_t)c->n_in * sizeof *in, "an eager op");
  neap_single *single;
  NEAP_TRY(neap_single_new(&options, &single, error));
  *e = (entry){.op = c->op,
               .n_in = c->n_in,
               .n_out = c->n_out,
               .n_thread = c->n_thread,
               .engine = c->engine,
               .in = in,
               .attrs = c->attrs,
               .arena = c->arena,
               .single = single};
  c->arena = (neap_arena){0}; /* the entry's now */
  return NEAP_OK;
}

/* Grows the scratch of this thread, never shrinks it: the next call of the same op takes it as it
 * is. */
static neap_status reserve_scratch(size_t bytes, neap_error *error) {
  if (bytes <= eager.scratch_bytes) return NEAP_OK;
  void *scratch = neap_alloc_data(bytes);
  if (scratch == NULL) return neap_fail_memory(error, bytes, "an eager op's scratch");
  neap_free(eager.scratch);
  eager.scratch = scratch;
  eager.scratch_bytes = bytes;
  return NEAP_OK;
}

/* An output whose length is known only now becomes the begin of its bytes. */
static neap_status cut(const entry *e, int k, neap_tensor *out, neap_error *error) {
  neap_type found;
  NEAP_TRY(neap_single_found_type(e->single, k, &found, error));
  neap_tensor all = *out;
  *out = neap_tensor_view(all.storage, all.offset_bytes, found.dtype, &found.shape);
  neap_tensor_fini(&all);
  return NEAP_OK;
}

/* New tensors for the outputs, then the kernel. The caller drops outputs made before a failure. */
static neap_status run(entry *e, call *c, neap_tensor *out, neap_error *error) {
  void *in_data[MOST_IN] = {0}, *out_data[MOST_OUT] = {0};
  NEAP_TRY(reserve_scratch(neap_single_scratch_bytes(e->single), error));

  for (int k = 0; k < c->n_in; k++)
    in_data[k] = is_present(&c->in[k]) ? neap_tensor_data(&c->in[k]) : NULL;
  for (int k = 0; k < c->n_out; k++) {
    const neap_type *type = neap_single_out_type(e->single, k);
    NEAP_TRY(neap_eager_tensor(&out[k], type, error));
    out_data[k] = neap_tensor_data(&out[k]);
  }

  /* An op with enforced pairs writes its inputs' storage; alone it has none to write, so the new
   * tensor starts as a copy. */
  for (int p = 0; p < c->op->n_enforced; p++) {
    neap_pair pair = c->op->enforced[p];
    if (pair.in >= c->n_in || pair.out >= c->n_out || in_data[pair.in] == NULL) continue;
    NEAP_TRY(neap_tensor_copy(&out[pair.out], &c->in[pair.in], error));
    in_data[pair.in] = out_data[pair.out];
  }

  /* The thread's draw is used up only by a random op that ran: a failed call draws nothing. */
  neap_draw draw = c->by != NULL ? *c->by : neap_draw_look();
  NEAP_TRY(
    neap_single_run(e->single, in_data, out_data, eager.scratch, draw.seed, 0, draw.step, error));
  if (c->by == NULL && (c->op->effects & NEAP_EFFECT_RANDOM) != 0) neap_draw_count();
  if ((c->op->effects & NEAP_EFFECT_EXTENT) == 0) return NEAP_OK;
  for (int k = 0; k < c->n_out; k++) NEAP_TRY(cut(e, k, &out[k], error));
  return NEAP_OK;
}

/* Check, fill in attributes, find or bind the kernel, run. Nothing is kept of a call that fails.
 * `by` NULL: what random ops draw is the thread's. */
static neap_status call_op(const char *type, int n_in, const neap_tensor *in, const neap_set *attrs,
                           int n_out, neap_tensor *out, const neap_draw *by, neap_error *error) {
  /* Outputs that were not made are {0}, whatever fails. */
  call c = {.n_in = n_in, .n_out = n_out, .n_thread = neap_threads(), .by = by};
  memset(out, 0, (size_t)n_out * sizeof *out);

  /* Read at each call and part of the case: another engine takes effect at once. */
  bool force;
  neap_engine engine = NEAP_ENGINE_REF;
  NEAP_TRY(neap_engine_asked(NULL, &force, &engine, error));
  c.engine = force ? neap_engine_name(engine) : NULL;
  NEAP_TRY(find_op(type, &c, error));
  NEAP_TRY(check(&c, in, error));
  char who[80];
  snprintf(who, sizeof who, "%s: ", c.op->name);
  neap_status status = neap_attrs_fill(&c.arena, c.op, attrs, who, &c.attrs, error);
  if (status == NEAP_OK) status = take_inputs(&c, in, error);

  /* Bound already, or bound now. */
  if (status == NEAP_OK) {
    entry *e = look_up(&c);
    if (e == NULL)
      status = neap_fail(error, NEAP_ARGUMENT, "%s: ops that call ops are nested too deeply", type);
    else if (e->op == NULL)
      status = fill(e, &c, error);
    if (status == NEAP_OK) {
      e->used_at = AT_WORK;
      status = run(e, &c, out, error);
      e->used_at = ++eager.clock;
    }
  }

  /* References of this call's own; the arena only where no entry has taken it over. */
  for (int k = 0; k < n_in; k++) neap_tensor_fini(&c.in[k]);
  for (int k = 0; k < n_out; k++)
    if (status != NEAP_OK) neap_tensor_fini(&out[k]);
  neap_arena_fini(&c.arena);
  return status;
}

neap_status neap_run_op(const char *type, int n_in, const neap_tensor *in, const neap_set *attrs,
                        int n_out, neap_tensor *out, neap_error *error) {
  return call_op(type, n_in, in, attrs, n_out, out, NULL, error);
}

/* ---- on blobs of a workspace ----------------------------------------------------------------- */

/* The blob's tensor, a copy where its elements lie in a layout that only its kernels know. */
static neap_status take_blob(neap_workspace *ws, const char *name, neap_tensor *out,
                             neap_error *error) {
  neap_error not_plain = {0};
  if (neap_workspace_view(ws, name, out, NULL, &not_plain) == NEAP_OK) return NEAP_OK;
  return neap_workspace_fetch(ws, name, out, error);
}

/* Whether the outputs may all be given to their blobs: types of those in segments, and the total,
 * which counts what is not written over a blob's bytes. Old bytes are given up only afterwards, so
 * all outputs are counted together. Nothing changes. */
static neap_status check_outputs(const neap_workspace *ws, const char *type, int n,
                                 const char *const *name, const neap_tensor *out,
                                 neap_error *error) {
  /* Only what takes new bytes counts: an output of the blob's own type is written over it. */
  size_t bytes = 0, total = neap_workspace_total(ws);
  neap_error refused = {.limit = "total", .limit_bytes = (int64_t)total};
  for (int k = 0; k < n; k++) {
    bool in_place;
    neap_type made = neap_tensor_type(&out[k]);
    if (name[k] == NULL) continue;
    NEAP_TRY(neap_workspace_check_give(ws, name[k], &made, &in_place, error));
    if (in_place || total == 0) continue;
    bytes += neap_align(neap_type_bytes(&made));
    neap_refused_blob(&refused, name[k], neap_align(neap_type_bytes(&made)));
  }

  /* The workspace would hold both for a moment, the old bytes and the new ones. */
  size_t held = neap_workspace_held_bytes(ws);
  if (total == 0 || bytes == 0 || held + bytes <= total) return NEAP_OK;
  char a[24], b[24];
  refused.least_bytes = (int64_t)(held + bytes);
  refused.held_bytes = (int64_t)held;
  neap_refused_fixed(&refused, "held already", held);
  return neap_fail_budget(error, &refused,
                          "%s: the workspace would hold %s with its outputs, its total is %s", type,
                          neap_bytes_text_beside((double)(held + bytes), (double)total, a),
                          neap_bytes_text_beside((double)total, (double)(held + bytes), b));
}

/* The outputs into their blobs, all or none: what may be refused comes first, the blobs that are
 * not there yet, which go again. Then the tensors, which were checked. */
static neap_status give_all(neap_workspace *ws, int n, const char *const *name,
                            const neap_tensor *out, neap_error *error) {
  /* New blobs first, which may be refused; those that were made go again with the failure. */
  bool is_new[MOST_OUT] = {0};
  neap_status status = NEAP_OK;
  for (int k = 0; k < n; k++) {
    if (status != NEAP_OK) break;
    if (name[k] == NULL || neap_workspace_has(ws, name[k])) continue;
    status = neap_workspace_create(ws, name[k], false, error);
    is_new[k] = status == NEAP_OK;
  }
  for (int k = 0; k < n; k++)
    if (status == NEAP_OK && name[k] != NULL)
      status = neap_workspace_give(ws, name[k], &out[k], error);
  if (status == NEAP_OK) return status;
  for (int k = 0; k < n; k++)
    if (is_new[k]) neap_workspace_remove(ws, name[k]);
  return status;
}

neap_status neap_workspace_call_op(neap_workspace *ws, const char *type, int n_in,
                                   const char *const *in, const neap_set *attrs, int n_out,
                                   const char *const *out, neap_error *error) {
  if (n_in > MOST_IN || n_out > MOST_OUT)
    return neap_fail(error, NEAP_ARGUMENT,
                     "%s: too many operands for one op by itself; at most %d inputs and %d outputs",
                     type, MOST_IN, MOST_OUT);
  neap_tensor tensor[MOST_IN] = {0}, made[MOST_OUT] = {0};
  neap_status status = NEAP_OK;
  for (int k = 0; k < n_in; k++)
    if (status == NEAP_OK && in[k] != NULL) status = take_blob(ws, in[k], &tensor[k], error);

  /* The workspace's own draw, and not the thread's: a run of a net would draw by it, too. */
  neap_draw draw = neap_workspace_look_draw(ws, false);
  const neap_op *op = neap_op_find(type); /* NULL: call_op says so */
  bool draws = op != NULL && (op->effects & NEAP_EFFECT_RANDOM) != 0;
  if (status == NEAP_OK) status = call_op(type, n_in, tensor, attrs, n_out, made, &draw, error);

  /* All outputs are there as tensors before any blob is touched. */
  if (status == NEAP_OK) status = check_outputs(ws, type, n_out, out, made, error);
  if (status == NEAP_OK) status = give_all(ws, n_out, out, made, error);
  if (status == NEAP_OK && draws) neap_workspace_count_draw(ws);
  for (int k = 0; k < n_in; k++) neap_tensor_fini(&tensor[k]);
  for (int k = 0; k < n_out; k++) neap_tensor_fini(&made[k]);
  return status;
}
