/* single.c: one op bound for given input types and run on plain operands: what initialisers and
 * eager calls share. The kernel is the first of the record that takes the case. Where it wants a
 * blocked layout, the operand gets a place in the scratch, behind the kernel's own, and is
 * reordered on the way in or out.
 *
 * INVARIANT: a bound op depends on types and attributes alone: operands and scratch are the
 * caller's in each run, and their bytes may lie anywhere.
 * INVARIANT: a run allocates nothing; kernels can't fail, and what the data makes impossible is one
 * fault of the object.
 */
#include "program/program_int.h"

#include <stdio.h>
#include <string.h>

struct neap_single {
  neap_call call;  /* operand types and layouts filled in once; data by each run */
  neap_type *type; /* n_in inputs, then n_out outputs */
  neap_choice choice;
  const neap_kernel *kernel;
  /* by operand: offset in the scratch of its blocked twin; 0: the operand itself (the kernel's own
   * is first) */
  size_t *blocked;
  size_t scratch_bytes; /* the kernel's and all twins' */
  neap_fault fault;
  int64_t extent; /* EXTENT ops: what the last run found */
  neap_arena arena;
};

static neap_status refused(neap_error *error) {
  return neap_fail_memory(error, sizeof(neap_single), "an op");
}

/* Of one item of a list. */
static size_t item_bytes(neap_attr_type type) {
  return type == NEAP_ATTR_FLOATS ? sizeof(double) : sizeof(int64_t);
}

/* Attributes with their lists, in the arena, so that the caller's may go. NULL: memory is
 * refused. */
static neap_attr_value *copy_attrs(neap_arena *arena, const neap_op *op,
                                   const neap_attr_value *attrs) {
  int n = neap_op_n_attrs(op);
  neap_attr_value *copy = neap_arena_alloc(arena, (size_t)n * sizeof *copy);
  if (copy == NULL) return NULL;
  for (int a = 0; a < n; a++) {
    neap_attr_type type = op->attrs[a].type;
    bool is_list = type == NEAP_ATTR_INTS || type == NEAP_ATTR_FLOATS || type == NEAP_ATTR_AXES;
    copy[a] = attrs[a];
    if (!is_list || attrs[a].n == 0) continue;
    /* ints and floats are one pointer, so this copies either */
    copy[a].ints = neap_arena_copy(arena, attrs[a].ints, (size_t)attrs[a].n * item_bytes(type));
    if (copy[a].ints == NULL) return NULL;
  }
  return copy;
}

/* Subnets need a graph; an op alone has none. */
static neap_status no_subnet(const neap_infer *infer, int subnet, int n_in, const neap_type *in,
                             int n_out, neap_type *out, neap_error *error) {
  (void)subnet, (void)n_in, (void)in, (void)n_out, (void)out;
  return neap_fail(error, NEAP_GRAPH, "%s: has a subnet, so it needs a net around it",
                   infer->op->name);
}

/* Output types, behind the inputs' in single->type; an error gets the op's name in front, as in a
 * net it would get the op's own. */
static neap_status infer_types(neap_single *single, const neap_single_options *o,
                               neap_error *error) {
  neap_type *out = single->type + o->n_in;
  neap_infer infer = {.op = o->op,
                      .attrs = single->call.attrs,
                      .n_in = o->n_in,
                      .n_out = o->n_out,
                      .in = single->type,
                      .out = out,
                      .infer_subnet = no_subnet};

  /* The op's own words are put into an error of its own first, since its name is to stand before
   * them. */
  neap_error inner = {0};
  neap_status status = neap_infer_types(&infer, &inner);

  /* Who comes with an error that is set already keeps it. */
  if (status == NEAP_OK || error == NULL || error->code != NEAP_OK) return status;
  *error = inner;
  snprintf(error->op, sizeof error->op, "%s", o->op->name);
  snprintf(error->message, sizeof error->message, "%s: %.700s", o->op->name, inner.message);
  return status;
}

/* Whether every layout is one that Reorder can make. */
static bool can_reorder(const neap_layout *layout, int n) {
  for (int k = 0; k < n; k++)
    if (layout[k].kind == NEAP_LAYOUT_OPAQUE) return false;
  return true;
}

/* Asks one kernel, from a choice wiped clean of what the one before wrote; true when it takes the
 * case as it is, with layouts that Reorder can make. `at_hand`: the inputs' layouts, plain; there
 * is no limit on scratch. */
static bool takes(neap_single *single, const neap_kernel *kernel, const neap_single_options *o,
                  const neap_layout *at_hand) {
  neap_choice *choice = &single->choice;

  /* Nothing of what the kernel before has written is left. */
  choice->engine = kernel->engine;
  choice->algorithm = 0;
  choice->n_thread = o->n_thread;
  choice->scratch_bytes = choice->stash_bytes = choice->twin_bytes = 0;
  choice->is_widened = false;
  choice->split = 0;
  memset(choice->in, 0, (size_t)o->n_in * sizeof *choice->in);
  memset(choice->out, 0, (size_t)o->n_out * sizeof *choice->out);

  /* An op alone has plain operands and nobody who limits its scratch. A layout that only the
   * library can make is as good as a no: here nobody else would make it. */
  neap_choose choose = {.op = o->op,
                        .attrs = single->call.attrs,
                        .n_in = o->n_in,
                        .n_out = o->n_out,
                        .in = single->type,
                        .out = single->type + o->n_in,
                        .in_layout = at_hand,
                        .scratch_limit = SIZE_MAX,
                        .choice = choice};
  return neap_kernel_choose(kernel, &choose) && can_reorder(choice->in, o->n_in) &&
         can_reorder(choice->out, o->n_out);
}

/* The first kernel that takes the case, in the record's order. DTYPE error when none does. */
static neap_status pick(neap_single *single, const neap_single_options *o, neap_error *error) {
  const neap_kernel *k = NULL;

  /* Before a kernel is asked: one that is passed over for want of memory would leave the choice to
   * the next. */
  const neap_layout *at_hand = neap_arena_alloc(&single->arena, (size_t)o->n_in * sizeof *at_hand);
  if (at_hand == NULL)
    return neap_fail_memory(error, (size_t)o->n_in * sizeof *at_hand, "the choice of a kernel");
  while ((k = neap_kernel_next(o->op, k, o->force, o->engine)) != NULL) {
    if (!neap_kernel_computes_all(k, o->op, o->n_in, single->type, o->n_out,
                                  single->type + o->n_in))
      continue;
    if (!takes(single, k, o, at_hand)) continue;
    single->kernel = k;
    break;
  }
  if (single->kernel == NULL)
    return neap_fail(error, NEAP_DTYPE, "%s: no kernel takes these operands", o->op->name);

  /* A stash is as large as the choice says. */
  for (int out = 0; out < o->n_out; out++) {
    const neap_arg *arg = neap_op_output(o->op, out);
    if (arg == NULL || (arg->flags & NEAP_ARG_STASH) == 0) continue;
    single->type[o->n_in + out] =
      (neap_type){NEAP_DTYPE_U8, NEAP_SHAPE((int64_t)single->choice.stash_bytes)};
  }
  return NEAP_OK;
}

/* Layouts of the operands as the kernel sees them, and offsets of the twins: aligned, behind the
 * kernel's own scratch. */
static void place_blocked(neap_single *single, const neap_single_options *o) {
  size_t at = neap_align(single->choice.scratch_bytes);
  bool any = false;
  for (int k = 0; k < o->n_in + o->n_out; k++) {
    const neap_layout *layout = &single->choice.in[k]; /* outputs follow the inputs */
    single->call.in[k].layout = *layout;
    if (layout->kind == NEAP_LAYOUT_PLAIN || single->type[k].dtype == NEAP_DTYPE_NONE) continue;
    if (!any && at == 0) at = NEAP_ALIGN; /* 0 means no twin */
    any = true;
    single->blocked[k] = at;
    at += neap_align(neap_layout_bytes(&single->type[k], layout));
  }
  single->scratch_bytes = any ? at : single->choice.scratch_bytes;
}

/* Library objects for the choice just made; a kernel whose bind fails has made none. */
static neap_status bind(neap_single *single, const neap_single_options *o, neap_error *error) {
  for (int k = 0; k < o->n_in + o->n_out; k++) single->call.in[k].type = single->type[k];
  place_blocked(single, o);

  neap_bind bind = {o->op,        single->call.attrs,     o->n_in,        o->n_out,
                    single->type, single->type + o->n_in, &single->choice};
  neap_status status = neap_kernel_bind(single->kernel, &bind, &single->call.kernel, error);
  if (status != NEAP_OK) single->kernel = NULL; /* nothing to unbind */
  return status;
}

/* Everything sized by the number of operands, zeroed, in the arena; copies of the input types and
 * attributes. */
static neap_status allocate(neap_single *single, const neap_single_options *o, neap_error *error) {
  neap_arena *arena = &single->arena;
  size_t n = (size_t)(o->n_in + o->n_out);
  neap_operand *operand = neap_arena_alloc(arena, n * sizeof *operand);
  neap_attr_value *attrs = copy_attrs(arena, o->op, o->attrs);
  single->type = neap_arena_alloc(arena, n * sizeof *single->type);
  single->choice.in = neap_arena_alloc(arena, n * sizeof(neap_layout));
  single->blocked = neap_arena_alloc(arena, n * sizeof *single->blocked);
  if (single->blocked == NULL || operand == NULL || attrs == NULL || single->type == NULL ||
      single->choice.in == NULL)
    return refused(error);

  /* Inputs and outputs share one array each for types, layouts and operands: outputs follow the
   * inputs. */
  single->choice.out = single->choice.in + o->n_in;
  if (o->n_in > 0) memcpy(single->type, o->in, (size_t)o->n_in * sizeof *o->in);

  /* What is the same in every run. Addresses, seed and stream come with each of them. */
  single->call = (neap_call){.op = o->op,
                             .attrs = attrs,
                             .n_in = o->n_in,
                             .n_out = o->n_out,
                             .in = operand,
                             .out = operand + o->n_in,
                             .choice = &single->choice,
                             .n_thread = o->n_thread,
                             .fault = &single->fault,
                             .extent = &single->extent};
  return NEAP_OK;
}

/* Infer, pick, bind: what graph, choose and program do for a net, for one op. *out is owned by the
 * caller, NULL on failure; the options are not needed after the call. */
neap_status neap_single_new(const neap_single_options *options, neap_single **out,
                            neap_error *error) {
  *out = NULL;
  neap_single *single = neap_alloc_zeroed(sizeof *single);
  if (single == NULL) return refused(error);
  neap_status status = allocate(single, options, error);
  if (status == NEAP_OK) status = infer_types(single, options, error);
  if (status == NEAP_OK) status = pick(single, options, error);
  if (status == NEAP_OK) status = bind(single, options, error);
  if (status != NEAP_OK) {
    neap_single_free(single);
    return status;
  }
  *out = single;
  return NEAP_OK;
}

void neap_single_free(neap_single *single) {
  if (single == NULL) return;
  if (single->kernel != NULL && single->kernel->unbind != NULL)
    single->kernel->unbind(single->call.kernel);
  neap_arena_fini(&single->arena);
  neap_free(single);
}

const neap_type *neap_single_out_type(const neap_single *single, int output) {
  return &single->type[single->call.n_in + output];
}

/* For an EXTENT op the type is inferred again, now with the length that the last run found; for
 * others it is the type known. */
neap_status neap_single_found_type(const neap_single *single, int output, neap_type *out,
                                   neap_error *error) {
  const neap_call *call = &single->call;
  *out = *neap_single_out_type(single, output);
  if ((call->op->effects & NEAP_EFFECT_EXTENT) == 0) return NEAP_OK;

  /* The record computes what is asked, so that its shape function is the only place that knows how
   * a length enters a shape. */
  neap_type found[NEAP_OP_MAX_OUT] = {{0}};
  neap_infer infer = {.op = call->op,
                      .attrs = call->attrs,
                      .n_in = call->n_in,
                      .n_out = call->n_out,
                      .in = single->type,
                      .out = found,
                      .extent = &single->extent,
                      .infer_subnet = no_subnet};
  NEAP_TRY(neap_infer_types(&infer, error));
  *out = found[output];
  return NEAP_OK;
}

size_t neap_single_scratch_bytes(const neap_single *single) { return single->scratch_bytes; }

/* Reorders in, kernel, reorders out. Operands are borrowed for the call; a NULL one is absent.
 * `scratch` has the bytes that neap_single_scratch_bytes says, aligned. DATA error for a fault; the
 * outputs of a faulting run hold zero where the kernel had to make something up. Not to be run by
 * two threads at once: the call is the object's own. */
neap_status neap_single_run(neap_single *single, void *const *in, void *const *out, void *scratch,
                            uint64_t seed, uint32_t stream, uint32_t step, neap_error *error) {
  neap_call *call = &single->call;
  static const neap_layout plain = {0};
  char *twin = scratch;

  /* Inputs as they are, or in the layout that the kernel asked for, in the scratch. */
  for (int k = 0; k < call->n_in; k++) {
    call->in[k].data = in[k];
    if (single->blocked[k] == 0 || in[k] == NULL) continue;
    call->in[k].data = twin + single->blocked[k];
    NEAP_TRY(
      neap_reorder(&single->type[k], &plain, in[k], &call->in[k].layout, call->in[k].data, error));
  }

  /* Outputs likewise: a kernel that writes another layout writes to the scratch. */
  for (int k = 0; k < call->n_out; k++) {
    size_t offset = single->blocked[call->n_in + k];
    call->out[k].data = offset > 0 && out[k] != NULL ? twin + offset : out[k];
  }

  call->scratch = scratch;
  call->seed = seed;
  call->stream = stream;
  call->step = step;
  single->fault.set = false;

  /* Threads that the libraries start inherit the mask: signals stay with this thread. */
  sigset_t saved;
  neap_signals_hold(&saved);
  neap_kernel_run(single->kernel, call);
  neap_signals_release(&saved);

  /* What was written to the scratch goes to the caller's bytes, after a fault, too: the outputs
   * then hold what the kernel made up. */
  for (int k = 0; k < call->n_out; k++) {
    if (call->out[k].data == out[k]) continue;
    NEAP_TRY(neap_reorder(&call->out[k].type, &call->out[k].layout, call->out[k].data, &plain,
                          out[k], error));
  }

  if (!single->fault.set) return NEAP_OK;
  if (error != NULL && error->op[0] == '\0')
    snprintf(error->op, sizeof error->op, "%s", call->op->name);
  return neap_fail(error, NEAP_DATA, "%s: %s", call->op->name, single->fault.message);
}

/* Copies elements from one layout to another by the reference kernel of Reorder, found anew each
 * time: one look-up next to a pass over all bytes. */
neap_status neap_reorder(const neap_type *type, const neap_layout *from_layout, const void *from,
                         const neap_layout *to_layout, void *to, neap_error *error) {
  const neap_op *op = neap_op_find("Reorder");
  const neap_kernel *kernel =
    op != NULL ? neap_kernel_find(op, NEAP_ENGINE_REF, 1, type, 1, type) : NULL;
  if (kernel == NULL || kernel->bind != NULL)
    return neap_fail(error, NEAP_INTERNAL, "Reorder: has no plain kernel");

  /* The op is called as a program would call it, with a choice and a call that live on the
   * stack. */
  neap_layout layout[2] = {*from_layout, *to_layout};
  neap_choice choice = {
    .engine = NEAP_ENGINE_REF, .n_thread = neap_threads(), .in = &layout[0], .out = &layout[1]};

  /* an input is only read */
  neap_operand operand[2] = {{(void *)(uintptr_t)from, *type, *from_layout},
                             {to, *type, *to_layout}};
  neap_attr_value attrs[NEAP_OP_MAX_ATTR];
  for (int a = 0; a < neap_op_n_attrs(op); a++) attrs[a] = op->attrs[a].value;
  neap_fault fault = {0};
  neap_call call = {.op = op,
                    .attrs = attrs,
                    .n_in = 1,
                    .n_out = 1,
                    .in = &operand[0],
                    .out = &operand[1],
                    .choice = &choice,
                    .n_thread = choice.n_thread,
                    .fault = &fault};
  neap_kernel_run(kernel, &call);
  return NEAP_OK;
}
