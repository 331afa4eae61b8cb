/* bind.c: from graph and plan to instructions. Every operand gets a base and an offset, every
 * choice its kernel, every control node its subprograms, so that a run has nothing left to decide.
 *
 * A program is a list of instructions in the plan's order and a list of bases; an operand is
 * (number of a base, offset in bytes). What bases stand for: see neap_address. A workspace fills
 * the bases in when it attaches the program, so one program may run on other bytes later, and
 * nothing here is bound to an address.
 *
 * INVARIANT: binding changes neither graph nor plan: what a kernel needs must have been promised by
 * its choice, and a promise that is too small is a PLAN error, upon which the driver plans anew.
 * INVARIANT: all tables of a program lie in its arena; only kernels' objects, subprograms and
 * stacks of frames are ended one by one.
 */
#include "program/program_int.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static neap_status make(neap_graph *graph, neap_plan *plan, const neap_program *owner,
                        int n_owner_operand, neap_program **out, neap_error *error);

static neap_status refused(neap_error *error, size_t bytes) {
  return neap_fail_memory(error, bytes, "a program");
}

/* Whether a value holds what ops look things up by: an index, a label, a condition. */
static bool is_integer(const neap_graph *graph, neap_value_id v) {
  return v >= 0 && neap_dtype_in(graph->value[v].type.dtype, NEAP_INTEGERS | NEAP_BIT(BOOL));
}

/* The blob that a fault of the node speaks of. Faults are mostly of integers, so the first integer
 * input, if there is one; else the first operand. */
static neap_value_id blob_of_fault(const neap_graph *graph, const neap_node *n) {
  for (int k = 0; k < n->n_in; k++)
    if (is_integer(graph, n->in[k])) return n->in[k];
  if (n->n_in > 0) return n->in[0];
  return n->n_out > 0 ? n->out[0] : NEAP_NO_VALUE;
}

/* What is known of the place already, from a subnet perhaps, stays. */
void neap_program_locate(const neap_graph *graph, int node, neap_error *error) {
  if (error == NULL) return;
  const neap_node *n = &graph->node[node];
  neap_value_id blob = blob_of_fault(graph, n);
  const char *const text[] = {n->op->name, n->scope, n->line,
                              blob >= 0 ? graph->value[blob].name : NULL};
  char *const field[] = {error->op, error->scope, error->line, error->blob};
  const size_t room[] = {sizeof error->op, sizeof error->scope, sizeof error->line,
                         sizeof error->blob};
  for (int f = 0; f < NEAP_COUNT(text); f++)
    if (text[f] != NULL && field[f][0] == '\0') snprintf(field[f], room[f], "%s", text[f]);
}

/* ---- blobs and addresses --------------------------------------------------------------------- */

/* Whether a blob of the workspace owns the bytes, unlike arena, constants, frames and the owner's
 * operands. */
static bool is_resident(neap_region region) {
  return region != NEAP_REGION_ARENA && region != NEAP_REGION_FRAME &&
         region != NEAP_REGION_ARGUMENT && region != NEAP_REGION_CONSTANT;
}

/* read[v] of root value v: a node reads one of its versions, or it is an output of the graph. */
static void find_read(const neap_graph *graph, bool *read) {
  for (int n = 0; n < graph->n_node; n++)
    for (int i = 0; i < graph->node[n].n_in; i++)
      if (graph->node[n].in[i] >= 0) read[graph->value[graph->node[n].in[i]].root] = true;
  for (int k = 0; k < graph->n_output; k++) read[graph->value[graph->output[k]].root] = true;
}

/* One blob per resident root, in order of the values; index[v] is the blob of root value v, -1 for
 * all other values. A blob is `written` when any of its versions is made by this graph. Names are
 * borrowed from the graph. */
static neap_status collect_blobs(neap_program *program, int *index, neap_error *error) {
  const neap_graph *graph = program->graph;

  /* Numbers first, so that the table is as long as there are blobs. */
  int n = 0;
  for (int v = 0; v < graph->n_value; v++) {
    bool is_blob = is_resident(graph->value[v].region) && graph->value[v].root == v;
    index[v] = is_blob ? n++ : -1;
  }

  program->n_blob = n;
  program->blob = neap_arena_alloc(&program->arena, (size_t)n * sizeof *program->blob);
  if (program->blob == NULL) return refused(error, (size_t)n * sizeof *program->blob);
  bool *read = neap_arena_alloc(&program->arena, (size_t)graph->n_value + 1);
  if (read == NULL) return refused(error, (size_t)graph->n_value + 1);
  find_read(graph, read);
  bool late = neap_graph_stops_late(graph);

  /* A root comes before its later versions, so its entry is there when they come. */
  for (int v = 0; v < graph->n_value; v++) {
    const neap_value *value = &graph->value[v];
    if (index[v] >= 0) {
      program->blob[index[v]] = (neap_program_blob){.name = value->name,
                                                    .value = v,
                                                    .type = value->type,
                                                    .role = value->role,
                                                    .region = value->region,
                                                    .packed = NEAP_NO_VALUE,
                                                    .defined_before = value->node < 0 && read[v],
                                                    .written = value->node >= 0};
    } else if (value->node >= 0 && index[value->root] >= 0) {
      /* A later version that an op makes: the run writes to the blob. If it may stop behind that,
       * what was in the blob before is half gone. */
      neap_program_blob *blob = &program->blob[index[value->root]];
      blob->written = true;
      blob->half_written = late && blob->defined_before;
    }
  }
  return NEAP_OK;
}

/* Offset `at` of the arena, which bank `b` has. */
static neap_address in_bank(const neap_program *program, int b, size_t at) {
  const neap_plan *plan = program->plan;
  if (plan->n_bank == 0) return (neap_address){0, at};
  return (neap_address){b == 0 ? 0 : program->first_bank + b - 1, at - plan->bank[b].begin_bytes};
}

/* Where a value's bytes are. `blob` maps root values to blobs. A value of a resident or argument
 * region may be the alias or the in-place successor of another: the storage's root then says which
 * bytes, else the value itself. */
static neap_address address_of(const neap_program *program, const int *blob, neap_value_id v) {
  const neap_graph *graph = program->graph;
  const neap_place *place = &program->plan->place[v];
  const neap_value *value = &graph->value[v], *storage = &graph->value[place->storage];

  /* Addresses that are found while running have a base for each storage; planned ones share base 0,
   * the arena. */
  if (place->region == NEAP_REGION_ARENA && neap_takes(program))
    return (neap_address){program->first_slot + place->storage, 0};

  /* Planned bytes are one base and an offset each, by region. */
  if (place->region == NEAP_REGION_ARENA) return in_bank(program, value->bank, place->offset);
  if (place->region == NEAP_REGION_FRAME) return (neap_address){program->n_base - 1, place->offset};
  if (place->region == NEAP_REGION_CONSTANT)
    return (neap_address){1 + program->n_blob, place->offset};
  if (program->is_sub) {
    /* An operand of the owner, or what lies in the bytes of one. */
    bool own = value->region == NEAP_REGION_ARGUMENT && value->argument >= 0;
    int argument = own ? value->argument : storage->argument;
    return (neap_address){argument < 0 ? -1 : 1 + argument, 0};
  }

  /* Resident: the blob of the storage, else that of the first version of either. */
  int index = blob[place->storage];
  if (index < 0) index = blob[storage->root];
  if (index < 0) index = blob[value->root];
  return (neap_address){index < 0 ? -1 : 1 + index, 0};
}

/* ---- instructions ---------------------------------------------------------------------------- */

/* What a kernel is told of an operand but for its address; {0} where absent. */
static neap_operand operand_of(const neap_graph *graph, neap_value_id v) {
  neap_operand operand = {0};
  if (v >= 0) {
    operand.type = graph->value[v].type;
    operand.layout = graph->value[v].layout;
  }
  return operand;
}

/* The one place where records become instruction kinds. */
static neap_instruction_kind kind_of(const neap_node *node) {
  const neap_op *op = node->op;
  if (node->loop != NULL)
    return node->loop->is_backward ? NEAP_INSTRUCTION_LOOP_GRADIENT : NEAP_INSTRUCTION_LOOP;
  if (op->effects & NEAP_EFFECT_CONTROL) return NEAP_INSTRUCTION_IF;
  if ((op->effects & NEAP_EFFECT_RELEASE) || op->kernels == NULL) return NEAP_INSTRUCTION_NOTHING;
  return op->n_alias > 0 ? NEAP_INSTRUCTION_VIEW : NEAP_INSTRUCTION_KERNEL;
}

/* Whether the base is one of arena, banks and slots. */
static bool is_transient(const neap_program *program, int base) {
  return base == 0 || base >= program->first_slot ||
         (base >= program->first_bank && base < program->first_bank + program->plan->n_bank - 1);
}

/* Addresses, types and layouts of the operands, inputs first, in one array that `in` and `out` of
 * the call point into; and the storages touched, each once, whatever the number of operands in it.
 * `data` is left to each run. */
static neap_status bind_operands(neap_program *program, neap_instruction *i, neap_error *error) {
  const neap_node *node = &program->graph->node[i->node];
  int n = node->n_in + node->n_out;
  neap_operand *operand = neap_arena_alloc(&program->arena, (size_t)n * sizeof *operand);
  i->address = neap_arena_alloc(&program->arena, (size_t)n * sizeof *i->address);
  i->touched = neap_arena_alloc(&program->arena, (size_t)n * sizeof *i->touched);
  if (operand == NULL || i->address == NULL || i->touched == NULL)
    return refused(error, (size_t)n * sizeof *operand);

  /* Each operand's address is its value's. On the way the storages it touches are noted. */
  for (int k = 0; k < n; k++) {
    neap_value_id v = k < node->n_in ? node->in[k] : node->out[k - node->n_in];
    operand[k] = operand_of(program->graph, v);
    i->address[k] = v >= 0 ? program->where[v] : (neap_address){-1, 0};
    /* Only transient bytes are poisoned, taken and given back. */
    if (!is_transient(program, i->address[k].base)) continue;
    /* Few operands share a storage, so a look at those seen costs less than a table. */
    int storage = program->plan->place[v].storage, seen = 0;
    while (seen < i->n_touched && i->touched[seen] != storage) seen++;
    if (seen == i->n_touched) {
      i->touched[i->n_touched++] = storage;
      program->n_touch[storage]++;
    }
    /* A storage is as large as the largest of its values. */
    program->bytes[storage] = NEAP_MAX(program->bytes[storage], program->plan->place[v].bytes);
  }

  i->call = (neap_call){.op = node->op,
                        .attrs = node->attrs,
                        .n_in = node->n_in,
                        .n_out = node->n_out,
                        .in = operand,
                        .out = operand + node->n_in,
                        .choice = &node->choice,
                        .n_thread = NEAP_MAX(node->choice.n_thread, 1),
                        .stream = node->stream,
                        .extent = node->extent > 0 ? &program->extent[node->extent - 1] : NULL};
  i->n_found = node->n_found;
  return NEAP_OK;
}

/* Finds the kernel of the choice and makes its objects. PLAN error when the plan names a kernel
 * that does not exist: a stored plan may. */
static neap_status bind_kernel(neap_program *program, neap_instruction *i, neap_error *error) {
  const neap_node *node = &program->graph->node[i->node];
  int n = node->n_in + node->n_out;
  neap_type *type = neap_arena_alloc(&program->arena, (size_t)n * sizeof *type);
  if (type == NULL) return refused(error, (size_t)n * sizeof *type);

  /* Kernels are found by dtype, and bound by all types. */
  for (int k = 0; k < n; k++) type[k] = i->call.in[k].type;
  const neap_kernel *kernel = neap_kernel_find(node->op, node->choice.engine, node->n_in, type,
                                               node->n_out, type + node->n_in);
  if (kernel == NULL) {
    neap_program_locate(program->graph, i->node, error);
    return neap_fail(error, NEAP_PLAN, "%s \"%s\": has no %s kernel for its operands' dtypes",
                     node->op->name, node->name, neap_engine_name(node->choice.engine));
  }

  /* Library objects may refuse what choose accepted, when memory is short or the library has
   * changed. */
  neap_bind bind = {node->op, node->attrs,       node->n_in,   node->n_out,
                    type,     type + node->n_in, &node->choice};
  neap_status status = neap_kernel_bind(kernel, &bind, &i->call.kernel, error);
  if (status != NEAP_OK) {
    neap_program_locate(program->graph, i->node, error);
    return status;
  }
  i->kernel = kernel;
  /* A dag's other lanes are threads, too: what only the calling one may run, no lane may. */
  i->any_team =
    (kernel->any_team || i->call.n_thread == 1) && (node->op->effects & NEAP_EFFECT_CALLER) == 0;
  return NEAP_OK;
}

/* Subprograms of a control node; their frames overlay each other in the node's scratch, the loop's
 * own bytes follow. PLAN error when a stored plan has not the scratch that they need. */
static neap_status bind_subs(neap_program *program, neap_instruction *i, neap_error *error) {
  const neap_node *node = &program->graph->node[i->node];
  i->sub = neap_arena_alloc(&program->arena, (size_t)node->n_sub * sizeof *i->sub);
  if (i->sub == NULL) return refused(error, (size_t)node->n_sub * sizeof *i->sub);
  i->n_sub = node->n_sub;

  /* A loop has its states' buffers and its condition's flag behind the frames; a branch has nothing
   * there. */
  size_t own_bytes = node->loop != NULL ? neap_loop_own_bytes(node->loop) : 0;

  /* A loop's body finds its arguments through ports, which may be frames; a branch finds the
   * owner's operands. */
  int n_argument = node->loop != NULL ? node->loop->n_port : node->n_in + node->n_out;
  for (int s = 0; s < node->n_sub; s++) {
    neap_plan *plan = program->plan->sub[i->node][s];
    /* A stored plan promises this scratch; the body's arena and the loop's own bytes must be
     * within. */
    if (neap_align(plan->arena_bytes) + own_bytes > i->scratch_bytes ||
        node->choice.scratch_bytes != own_bytes)
      return neap_fail(error, NEAP_PLAN,
                       "%s \"%s\": a body of %zu bytes does not fit the planned %zu",
                       node->op->name, node->name, plan->arena_bytes + own_bytes, i->scratch_bytes);
    NEAP_TRY(make(node->sub[s], plan, program, n_argument, &i->sub[s], error));
    /* What one kernel of a body needs, all of the control op needs. */
    for (int k = 0; k < i->sub[s]->n_instruction; k++)
      i->any_team = i->any_team && i->sub[s]->instruction[k].any_team;
  }
  return NEAP_OK;
}

/* What a constant is computed from: a write to one of these blobs makes the constants stale. */
static void note_sources(neap_program *program, const neap_node *node) {
  for (int k = 0; k < node->n_in; k++) {
    int blob = node->in[k] >= 0 ? program->where[node->in[k]].base - 1 : -1;
    if (blob >= 0 && blob < program->n_blob) program->blob[blob].feeds_constant = true;
  }
}

/* A control instruction commits through those inside its subnets, each in its turn, so it does not
 * itself. */
static neap_status bind_instruction(neap_program *program, int step, neap_error *error) {
  neap_instruction *i = &program->instruction[step];
  i->node = program->plan->order[step];
  const neap_node *node = &program->graph->node[i->node];
  i->kind = kind_of(node);
  i->loop = node->loop;
  i->loop_node = node->loop != NULL ? node : NULL;

  /* Under policy `pool` the scratch of each node is a slot of its own; else it has planned bytes,
   * in the bank that the node works in. */
  if (neap_takes(program))
    i->scratch = (neap_address){program->first_slot + program->graph->n_value + i->node, 0};
  else
    i->scratch = in_bank(program, node->bank, program->plan->scratch_offset[i->node]);
  i->scratch_bytes = program->plan->scratch_bytes[i->node];

  /* What a run asks of it: may a stop still win, may it be left out, does it give the same bits on
   * one thread. */
  i->commits = !neap_instruction_is_control(i->kind) && (node->effects & NEAP_EFFECT_COMMIT) != 0;
  i->makes_constant = node->once;
  i->any_team = true; /* until a kernel, its own or a subprogram's, says no */
  if (i->makes_constant) note_sources(program, node);

  /* Operands come first: kernels are found by their types. */
  NEAP_TRY(bind_operands(program, i, error));
  switch (i->kind) {
    case NEAP_INSTRUCTION_KERNEL:
    case NEAP_INSTRUCTION_VIEW: return bind_kernel(program, i, error);
    case NEAP_INSTRUCTION_IF:
    case NEAP_INSTRUCTION_LOOP:
    case NEAP_INSTRUCTION_LOOP_GRADIENT: return bind_subs(program, i, error);
    case NEAP_INSTRUCTION_NOTHING: break;
  }
  return NEAP_OK;
}

/* ---- the program ----------------------------------------------------------------------------- */

/* The largest number of an EXTENT op, those of subnets included. */
static int last_extent(const neap_graph *graph) {
  int last = 0;
  for (int n = 0; n < graph->n_node; n++) {
    last = NEAP_MAX(last, graph->node[n].extent);
    for (int k = 0; k < graph->node[n].n_body; k++)
      last = NEAP_MAX(last, graph->node[n].met[k].first + graph->node[n].met[k].n);
    for (int s = 0; s < graph->node[n].n_sub; s++)
      last = NEAP_MAX(last, last_extent(graph->node[n].sub[s]));
  }
  return last;
}

/* Room for the lengths that EXTENT ops find; a subprogram leaves them in its owner's. */
static neap_status allocate_extents(neap_program *program, neap_error *error) {
  if (program->extent != NULL) return NEAP_OK;
  program->n_extent = last_extent(program->graph);
  program->extent =
    neap_arena_alloc(&program->arena, ((size_t)program->n_extent + 1) * sizeof *program->extent);
  return program->extent != NULL ? NEAP_OK : refused(error, sizeof *program->extent);
}

/* Policy `pool`: a slot for each value that may be a storage's root, and one for the scratch of
 * each node. */
static neap_status allocate_slots(neap_program *program, neap_error *error) {
  program->first_slot = INT_MAX;
  if (program->is_sub || program->plan->policy != NEAP_POLICY_POOL) return NEAP_OK;
  int n_slot = program->graph->n_value + program->graph->n_node;
  program->first_slot = program->n_base;
  program->n_base += n_slot;

  /* A block for each slot while it is taken, and what was taken while each step ran. */
  program->block = neap_arena_alloc(&program->arena, (size_t)n_slot * sizeof(neap_pool_block *));
  program->used_at = neap_arena_alloc(
    &program->arena, ((size_t)program->graph->n_node + 1) * sizeof *program->used_at);
  if (program->block == NULL || program->used_at == NULL)
    return refused(error, (size_t)n_slot * sizeof(neap_pool_block *));

  /* The order of takes and gives is found once, here, so that no run has to decide when bytes are
   * free. */
  return neap_plan_rehearse(program->plan, program->graph, &program->arena, &program->script,
                            error);
}

/* All tables by value and by step at once; the arena frees them. */
static neap_status allocate_tables(neap_program *program, int n_owner_operand, neap_error *error) {
  neap_arena *arena = &program->arena;
  size_t n_value = (size_t)program->graph->n_value;

  /* Arena; blobs and constants, or the owner's operands and the record; banks; then slots. */
  program->n_base = 1 + (program->is_sub ? n_owner_operand + 1 : program->n_blob + 1);
  program->first_bank = program->n_base;
  program->n_base += NEAP_MAX(program->plan->n_bank, 1) - 1;
  NEAP_TRY(allocate_extents(program, error));
  NEAP_TRY(allocate_slots(program, error));

  /* By base, by step, and by value. */
  program->base = neap_arena_alloc(arena, (size_t)program->n_base * sizeof *program->base);
  program->instruction =
    neap_arena_alloc(arena, (size_t)program->graph->n_node * sizeof *program->instruction);
  program->where = neap_arena_alloc(arena, n_value * sizeof *program->where);
  program->n_touch = neap_arena_alloc(arena, n_value * sizeof *program->n_touch);
  program->bytes = neap_arena_alloc(arena, n_value * sizeof *program->bytes);
  program->left = neap_arena_alloc(arena, n_value * sizeof *program->left);
  program->spared = neap_arena_alloc(arena, n_value * sizeof *program->spared);
  bool got = program->base != NULL && program->instruction != NULL && program->where != NULL &&
             program->n_touch != NULL && program->bytes != NULL && program->left != NULL &&
             program->spared != NULL;
  return got ? NEAP_OK : refused(error, n_value * sizeof(size_t));
}

/* An address leads to one of the bases and, in arena and banks, to bytes that the plan has
 * there. */
static void check_address(const neap_program *program, neap_address a, size_t bytes,
                          const char *what, const neap_node *node) {
  if (a.base < 0) return;
  NEAP_ASSERT(a.base < program->n_base, "%s of %s \"%s\" has one of %d bases: %d", what,
              node->op->name, node->name, program->n_base, a.base);
  const neap_plan *plan = program->plan;
  bool in_main = a.base == 0,
       in_bank = a.base >= program->first_bank && a.base < program->first_bank + plan->n_bank - 1;
  if (!in_main && !in_bank) return;

  /* Only the plan's own bytes have a known end: what lies behind the other bases is somebody
   * else's. */
  size_t room = plan->arena_bytes;
  if (plan->n_bank > 0) room = plan->bank[in_main ? 0 : a.base - program->first_bank + 1].bytes;
  NEAP_ASSERT(bytes == 0 || (a.offset <= room && bytes <= room - a.offset),
              "%s of %s \"%s\" lies within %zu bytes: %zu at %zu", what, node->op->name, node->name,
              room, bytes, a.offset);
}

/* An instruction is its node's: kernel, operands, subprograms. */
static void check_instruction(const neap_program *program, const neap_instruction *i) {
  const neap_node *node = &program->graph->node[i->node];
  bool has_kernel = i->kind == NEAP_INSTRUCTION_KERNEL || i->kind == NEAP_INSTRUCTION_VIEW;
  NEAP_ASSERT((i->kernel != NULL) == has_kernel, "%s \"%s\" %s a kernel", node->op->name,
              node->name, has_kernel ? "has" : "needs not");
  NEAP_ASSERT(i->n_sub == (neap_instruction_is_control(i->kind) ? node->n_sub : 0),
              "%s \"%s\" has its %d subprograms: %d", node->op->name, node->name, node->n_sub,
              i->n_sub);
  NEAP_ASSERT(i->call.n_in == node->n_in && i->call.n_out == node->n_out &&
                i->call.out == i->call.in + node->n_in,
              "%s \"%s\" has its operands in one list, inputs first", node->op->name, node->name);

  /* Absent operands are absent in the node and in the call; the others have bytes within their
   * base. */
  for (int k = 0; k < node->n_in + node->n_out; k++) {
    neap_value_id v = k < node->n_in ? node->in[k] : node->out[k - node->n_in];
    NEAP_ASSERT((v < 0) == (i->call.in[k].type.dtype == NEAP_DTYPE_NONE),
                "operand %d of %s \"%s\" is there or absent in both", k, node->op->name,
                node->name);
    if (v >= 0)
      check_address(program, i->address[k], program->plan->place[v].bytes, "an operand", node);
  }

  /* Scratch lies within its base, too, and is no smaller than the kernel was promised. */
  if (i->scratch_bytes > 0) check_address(program, i->scratch, i->scratch_bytes, "scratch", node);
  NEAP_ASSERT(i->scratch_bytes >= node->choice.scratch_bytes,
              "%s \"%s\" has the scratch its choice promised, %zu bytes: %zu", node->op->name,
              node->name, node->choice.scratch_bytes, i->scratch_bytes);

  /* What may be left out of a later run must not be what that run is for. */
  NEAP_ASSERT(!i->makes_constant || !i->commits,
              "%s \"%s\" makes a constant, so it writes nothing that lasts", node->op->name,
              node->name);
}

/* n_touch counts the instructions that touch a storage, each once: poison and turns side by side go
 * by it. */
static void check_touches(const neap_program *program) {
  int sum = 0, counted = 0;
  for (int step = 0; step < program->n_instruction; step++) {
    const neap_instruction *i = &program->instruction[step];
    sum += i->n_touched;
    for (int a = 0; a < i->n_touched; a++)
      for (int b = 0; b < a; b++)
        NEAP_ASSERT(i->touched[a] != i->touched[b],
                    "an instruction counts a storage once, not storage %d twice", i->touched[a]);
  }
  for (int v = 0; v < program->graph->n_value; v++) counted += program->n_touch[v];
  NEAP_ASSERT(sum == counted, "instructions touch storages as often as is counted: %d, %d", sum,
              counted);
}

/* Each resident storage is one blob, and its first version says so. */
static void check_blobs(const neap_program *program) {
  for (int b = 0; b < program->n_blob; b++) {
    const neap_program_blob *blob = &program->blob[b];
    const neap_value *value = &program->graph->value[blob->value];
    NEAP_ASSERT(value->root == blob->value && is_resident(value->region),
                "blob %d \"%s\" is the first version of resident bytes", b,
                blob->name != NULL ? blob->name : "?");
    NEAP_ASSERT(blob->written || blob->defined_before || value->is_held,
                "blob \"%s\" is read by the run, written by it, or declared",
                blob->name != NULL ? blob->name : "?");
    NEAP_ASSERT(b == 0 || program->blob[b - 1].value < blob->value,
                "blobs are in order of first definition: %d, %d", program->blob[b - 1].value,
                blob->value);
  }
}

/* What take k of the script, of turn t, lies on: within the plan's bytes, and on nobody who is
 * `at` hand. Quadratic, so for few values. */
static void check_take(const neap_program *program, const int *at, int k, int t) {
  enum { FEW = 1000 };
  const neap_script *s = &program->script;
  const neap_instruction *i = &program->instruction[s->turn[t].step];
  int slot = s->take[k].slot, n_value = program->graph->n_value;
  NEAP_ASSERT(slot >= 0 && slot <= n_value && at[slot] < 0,
              "turn %d takes slot %d of %d, which nobody has", t, slot, n_value);

  /* The script's bytes reach no further than the pool is reserved for. */
  size_t from = s->take[k].offset, to = from + neap_align(neap_take_bytes(program, slot, i));
  NEAP_ASSERT(to <= program->plan->arena_bytes,
              "turn %d takes bytes of the %zu that the plan has: up to %zu", t,
              program->plan->arena_bytes, to);
  if (n_value > FEW) return;

  /* No other block that is taken now lies in the same bytes. */
  for (int other = 0; other <= n_value; other++) {
    if (at[other] < 0) continue;
    size_t begin = s->take[at[other]].offset;
    size_t end = begin + neap_align(neap_take_bytes(program, other, i));
    NEAP_ASSERT(to <= begin || end <= from,
                "slots %d and %d are taken at once, and share no byte: %zu to %zu, %zu to %zu",
                slot, other, from, to, begin, end);
  }
}

/* What a script takes it gives back, each slot once at a time; what is taken at once shares no
 * byte. */
static void check_script(const neap_program *program) {
  const neap_script *s = &program->script;
  int n_value = program->graph->n_value, n_taken = 0;

  /* by slot, the last one scratch: the take that holds it, -1: none */
  int *at = malloc(((size_t)n_value + 1) * sizeof *at);
  if (at == NULL) return;
  for (int slot = 0; slot <= n_value; slot++) at[slot] = -1;

  /* The run is gone through turn by turn, without its instructions: what is taken, how many that
   * makes, what is given back. */
  int k = 0, g = 0;
  for (int t = 0; t < s->n_turn; t++) {
    for (; k < s->turn[t].take_end; k++) {
      check_take(program, at, k, t);
      at[s->take[k].slot] = k;
      n_taken++;
    }
    NEAP_ASSERT(n_taken <= s->n_block, "at most %d blocks are taken at once: %d in turn %d",
                s->n_block, n_taken, t);
    for (; g < s->turn[t].give_end; g++) {
      int slot = s->give[g];
      NEAP_ASSERT(slot >= 0 && slot <= n_value && at[slot] >= 0,
                  "turn %d gives slot %d, which is taken", t, slot);
      at[slot] = -1;
      n_taken--;
    }
  }

  NEAP_ASSERT(n_taken == 0, "what a run takes it has given back when it ends: %d slots are not",
              n_taken);
  free(at);
}

static void check_program(const neap_program *program) {
  for (int step = 0; step < program->n_instruction; step++) {
    NEAP_ASSERT(program->instruction[step].node == program->plan->order[step],
                "step %d is the plan's, node %d: node %d", step, program->plan->order[step],
                program->instruction[step].node);
    check_instruction(program, &program->instruction[step]);
  }
  check_touches(program);
  check_blobs(program);
  if (neap_takes(program)) check_script(program);
}

/* The output of a Reorder that has each element of blob b, as it lies in the workspace, in an order
 * that can be read back; NEAP_NO_VALUE where the instruction is none. */
static neap_value_id packed_by(const neap_program *program, const neap_instruction *i, int b) {
  const neap_node *node = &program->graph->node[i->node];
  if (strcmp(node->op->name, "Reorder") != 0 || i->address[0].base != 1 + b) return NEAP_NO_VALUE;
  const neap_value *in = &program->graph->value[node->in[0]],
                   *out = &program->graph->value[node->out[0]];
  bool is_whole = i->address[0].offset == 0 && in->layout.kind == NEAP_LAYOUT_PLAIN &&
                  neap_type_bytes(&in->type) == neap_type_bytes(&program->blob[b].type);
  bool is_kept = program->plan->place[node->out[0]].region == NEAP_REGION_CONSTANT &&
                 out->layout.kind == NEAP_LAYOUT_BLOCKED;
  return is_whole && is_kept ? node->out[0] : NEAP_NO_VALUE;
}

/* Fills `packed` and `last_maker` of blobs. One instruction that reads or writes a blob in every
 * run, or one with subnets, is enough for it to be needed as it is. */
static void find_packed(neap_program *program) {
  if (program->is_sub) return;
  for (int step = 0; step < program->n_instruction; step++) {
    const neap_instruction *i = &program->instruction[step];
    for (int k = 0; k < i->call.n_in + i->call.n_out; k++) {
      int b = i->address[k].base - 1;
      if (b < 0 || b >= program->n_blob) continue;
      neap_program_blob *blob = &program->blob[b];
      blob->last_maker = i->makes_constant && blob->last_maker >= 0 ? step : -1;
      if (i->makes_constant && blob->packed == NEAP_NO_VALUE)
        blob->packed = packed_by(program, i, b);
    }
  }
  for (int b = 0; b < program->n_blob; b++)
    if (program->blob[b].last_maker < 0) program->blob[b].packed = NEAP_NO_VALUE;
}

/* Binds it all: blobs, tables, addresses, instructions, and the schedule on top. */
static neap_status fill(neap_program *program, int n_owner_operand, int *blob, neap_error *error) {
  NEAP_TRY(collect_blobs(program, blob, error));
  NEAP_TRY(allocate_tables(program, n_owner_operand, error));
  for (int v = 0; v < program->graph->n_value; v++)
    program->where[v] = address_of(program, blob, v);
  for (int step = 0; step < program->graph->n_node; step++) {
    /* Counted before it is bound, so that a half-bound one is unbound with the rest. */
    program->n_instruction = step + 1;
    NEAP_TRY(bind_instruction(program, step, error));
  }
  find_packed(program);

  /* A subprogram runs on whichever lane its owner runs, in plan order. */
  if (!program->is_sub && program->plan->executor == NEAP_EXECUTOR_DAG)
    NEAP_TRY(neap_dag_of_graph(program, error));
  if (NEAP_DEBUG) check_program(program);
  return NEAP_OK;
}

/* A program of graph and plan; those of a subprogram stay its owner's, others (owner NULL) are the
 * program's, and are freed on failure too. `n_owner_operand`: operands or ports that a subprogram
 * has bases for. */
static neap_status make(neap_graph *graph, neap_plan *plan, const neap_program *owner,
                        int n_owner_operand, neap_program **out, neap_error *error) {
  neap_program *program = neap_alloc_zeroed(sizeof *program);
  if (program == NULL) {
    if (owner == NULL) {
      neap_plan_free(plan);
      neap_graph_free(graph);
    }
    return refused(error, sizeof *program);
  }

  program->graph = graph;
  program->plan = plan;
  program->is_sub = owner != NULL;
  program->extent = owner != NULL ? owner->extent : NULL;
  for (int n = 0; n < graph->n_node; n++)
    program->draws |= (graph->node[n].effects & NEAP_EFFECT_RANDOM) != 0;

  /* Which blob a value is, is asked only while binding. */
  size_t index_bytes = (size_t)graph->n_value * sizeof(int);
  int *blob = neap_alloc(index_bytes);
  neap_status status =
    blob != NULL ? fill(program, n_owner_operand, blob, error) : refused(error, index_bytes);
  neap_free(blob);
  if (status != NEAP_OK) {
    neap_program_free(program);
    return status;
  }
  *out = program;
  return NEAP_OK;
}

/* Graph and plan are the program's from here on, whatever happens. */
neap_status neap_program_new(neap_graph *graph, neap_plan *plan, neap_program **out,
                             neap_error *error) {
  *out = NULL;
  return make(graph, plan, NULL, 0, out, error);
}

/* Each instruction's library objects and subprograms, then tables, then what they refer to. */
void neap_program_free(neap_program *program) {
  if (program == NULL) return;
  for (int step = 0; step < program->n_instruction; step++) {
    neap_instruction *i = &program->instruction[step];
    if (i->kernel != NULL && i->kernel->unbind != NULL) i->kernel->unbind(i->call.kernel);
    for (int s = 0; s < i->n_sub; s++) neap_program_free(i->sub[s]);
    neap_free(i->stack.bytes);
  }

  /* Tables go at once with the arena. Graph and plan go last, since calls hold pointers into them;
   * a subprogram's are its owner's. */
  neap_dag_free(program->dag);
  neap_arena_fini(&program->arena);
  if (!program->is_sub) {
    neap_plan_free(program->plan);
    neap_graph_free(program->graph);
  }
  neap_free(program);
}

/* What fetch asks (see workspace/blob.c): a blob's number, or one of NEAP_IN_ARENA and
 * NEAP_IN_CONSTANTS, and the offset in bytes. False: the value has no address after the run, as it
 * is absent or lay in a pool. */
bool neap_program_where(const neap_program *program, neap_value_id value, int *blob,
                        size_t *offset) {
  neap_address where = program->where[value];
  if (where.base >= program->first_slot) return false;

  /* Bases stand in the order of neap_address, so their number says what they are. */
  if (is_transient(program, where.base))
    *blob = NEAP_IN_ARENA;
  else if (where.base == 1 + program->n_blob)
    *blob = NEAP_IN_CONSTANTS;
  else
    *blob = where.base - 1;
  *offset = where.offset;
  return where.base >= 0;
}

const neap_graph *neap_program_graph(const neap_program *program) { return program->graph; }
bool neap_program_draws(const neap_program *program) { return program->draws; }
const int64_t *neap_program_extents(const neap_program *program, int *n) {
  *n = program->n_extent;
  return program->extent;
}
bool neap_program_is_outgrown(const neap_program *program) { return program->outgrown; }
bool neap_program_missed(const neap_program *program, neap_lengths *out) {
  *out = program->missed;
  return program->missed.n > 0;
}

static bool same_lengths(const neap_lengths *a, const neap_lengths *b) {
  return a->n == b->n && a->first == b->first &&
         memcmp(a->length, b->length, (size_t)a->n * sizeof *a->length) == 0;
}

/* A subprogram counts the runs of its owner in which it fitted. */
static bool used_body(const neap_program *program, const neap_lengths *met, uint64_t run) {
  for (int k = 0; k < program->n_instruction; k++) {
    const neap_instruction *i = &program->instruction[k];
    const neap_node *node = &program->graph->node[i->node];
    /* Bodies are the last of the subnets; before them stands a condition. */
    int first_body = i->n_sub - node->n_body;
    for (int s = 0; s < i->n_sub; s++) {
      bool fitted = s >= first_body && i->sub[s]->n_run == run;
      if (fitted && same_lengths(&node->met[s - first_body], met)) return true;
      if (used_body(i->sub[s], met, run)) return true;
    }
  }
  return false;
}

bool neap_program_used_body(const neap_program *program, const neap_lengths *met) {
  return used_body(program, met, program->n_run);
}
int neap_program_pool_blocks(const neap_program *program) {
  /* Side by side each storage and each scratch may be taken at once, as far as their bytes go. */
  return program->stays.list != NULL ? program->graph->n_value + program->graph->n_node
                                     : program->script.n_block;
}
const int64_t *neap_program_pool_curve(const neap_program *program) { return program->used_at; }
const neap_plan *neap_program_plan(const neap_program *program) { return program->plan; }
int neap_program_n_blobs(const neap_program *program) { return program->n_blob; }
neap_program_blob *neap_program_blob_at(neap_program *program, int index) {
  return &program->blob[index];
}
