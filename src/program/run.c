/* run.c: the runner. Walks the instructions of a program in plan order (or hands them to dag.c),
 * looks for faults and for the interrupt after each, and poisons dead bytes when asked. No Neap
 * allocation, no name lookup, no shape work.
 *
 * INVARIANT: a stop wins only before the first commit; the phase word of neap_run_state decides
 * (see program_int.h).
 */
#include "program/program_int.h"

#include <string.h>

static void run_steps(neap_program *program, neap_run_state *state, neap_lane *lane);

/* ---- commit and stop ------------------------------------------------------------------------- */

/* False when a stop has won: then nothing may be committed any more. */
static bool begin_commit(neap_run_state *state) {
  /* Another lane, or an instruction before, may have committed already: that is as good. */
  int expected = NEAP_RUN_RUNNING;
  return atomic_compare_exchange_strong(&state->phase, &expected, NEAP_RUN_COMMITTED) ||
         expected == NEAP_RUN_COMMITTED;
}

static bool is_interrupted(const neap_run *run) {
  return run->interrupted != NULL && *run->interrupted != 0;
}
bool neap_run_is_interrupted(const neap_run_state *state) { return is_interrupted(state->run); }

/* A fault or interrupt asks for a stop, which is granted while nothing has been committed. */
bool neap_run_must_stop(neap_run_state *state, const neap_lane *lane) {
  int expected = NEAP_RUN_RUNNING;
  /* Nothing stops a run that has committed: the exchange fails then, and the run goes on. */
  if (lane->fault.set || is_interrupted(state->run))
    return atomic_compare_exchange_strong(&state->phase, &expected, NEAP_RUN_STOPPED) ||
           expected == NEAP_RUN_STOPPED;
  return atomic_load(&state->phase) == NEAP_RUN_STOPPED;
}

/* ---- poison ---------------------------------------------------------------------------------- */

/* Bytes that a fetch may read after the run are no garbage: a value with a name that nobody
 * overwrites. Found once, in the first poisoned run, because it costs a look at every pair of
 * values. */
static void find_spared(neap_program *program) {
  if (program->spared_known) return;
  program->spared_known = true;
  /* What a subprogram leaves is its owner's. */
  if (program->is_sub) return;
  for (int v = 0; v < program->graph->n_value; v++) {
    const neap_value *value = &program->graph->value[v];
    if (!value->is_blob || !value->is_last) continue;
    if (neap_plan_overwriter(program->plan, program->graph, v) == -1)
      program->spared[program->plan->place[v].storage] = true;
  }
}

/* The whole arena starts as garbage, so that reading before writing shows as well as reading after
 * death. take.c sees to programs without one. */
static void poison_begin(neap_program *program) {
  if (neap_takes(program)) return;
  find_spared(program);
  /* Every storage waits for all instructions that touch it. */
  for (int v = 0; v < program->graph->n_value; v++)
    atomic_store(&program->left[v], program->n_touch[v]);
  /* Banks are arenas of their own, the first of them the main one. */
  const neap_plan *plan = program->plan;
  size_t main_bytes = plan->n_bank > 0 ? plan->bank[0].bytes : plan->arena_bytes;
  neap_poison(program->base[0], program->base[0] != NULL ? main_bytes : 0);
  for (int b = 1; b < plan->n_bank; b++)
    neap_poison(program->base[program->first_bank + b - 1], plan->bank[b].bytes);
}

static char *address(const neap_program *program, neap_address a) {
  return (char *)program->base[a.base] + a.offset;
}

/* After an instruction: its scratch, and every storage that it was the last to touch. Counting,
 * rather than the plan's last step, holds in any order the dag may take. */
static void poison_after(neap_program *program, const neap_instruction *i) {
  neap_poison(address(program, i->scratch), i->scratch_bytes);
  for (int k = 0; k < i->n_touched; k++) {
    int storage = i->touched[k];
    bool is_dead = atomic_fetch_sub(&program->left[storage], 1) == 1;
    if (is_dead && !program->spared[storage])
      neap_poison(address(program, program->where[storage]), program->bytes[storage]);
  }
}

/* ---- instructions ---------------------------------------------------------------------------- */

/* Base plus offset for each operand: the only address work of a run. An absent operand has base -1
 * and gets NULL. */
static void resolve(const neap_program *program, neap_instruction *i) {
  neap_operand *operand = i->call.in; /* outputs follow the inputs */
  int n = i->call.n_in + i->call.n_out;
  for (int k = 0; k < n; k++) {
    neap_address a = i->address[k];
    NEAP_ASSERT(a.base < program->n_base, "operand %d of %s has one of %d bases: %d", k,
                i->call.op->name, program->n_base, a.base);
    operand[k].data = a.base < 0 ? NULL : address(program, a);
  }
  i->call.scratch = i->scratch_bytes > 0 ? address(program, i->scratch) : NULL;
}

/* Whether every output that the op's record pairs with an input already lies where that does; else
 * the kernel must copy. */
static bool is_view(const neap_call *call) {
  for (int p = 0; p < call->op->n_alias; p++) {
    neap_pair pair = call->op->alias[p];
    if (pair.in < call->n_in && pair.out < call->n_out &&
        call->in[pair.in].data != call->out[pair.out].data)
      return false;
  }
  return true;
}

/* One pass of a subprogram whose bases the owner has set. Faults and stops are left in the lane and
 * the state. */
void neap_program_run_sub(neap_program *sub, neap_run_state *state, neap_lane *lane) {
  if (state->run->poison) poison_begin(sub);
  run_steps(sub, state, lane);
}

/* The one switch over instruction kinds. */
static void dispatch(neap_instruction *i, neap_run_state *state, neap_lane *lane) {
  /* What outlives the run is written only where no stop has won. */
  if (i->commits && !begin_commit(state)) return;
  NEAP_ASSERT(!i->commits || atomic_load(&state->phase) == NEAP_RUN_COMMITTED,
              "%s commits where no stop has won: phase %d", i->call.op->name,
              atomic_load(&state->phase));
  switch (i->kind) {
    case NEAP_INSTRUCTION_KERNEL: neap_kernel_run(i->kernel, &i->call); break;
    case NEAP_INSTRUCTION_VIEW:
      /* Most views lie in their input's bytes, and there is nothing to do. */
      if (!is_view(&i->call)) neap_kernel_run(i->kernel, &i->call);
      break;
    case NEAP_INSTRUCTION_IF: neap_program_run_if(i, state, lane); break;
    case NEAP_INSTRUCTION_LOOP: neap_program_run_loop(i, state, lane); break;
    case NEAP_INSTRUCTION_LOOP_GRADIENT: neap_program_run_loop_gradient(i, state, lane); break;
    case NEAP_INSTRUCTION_NOTHING: break;
  }
}

/* Types downstream were made for another length: the run must end here, and a program for this
 * length begin; or the pass, in a loop, for which there may be another body. */
static void check_extent(const neap_program *program, const neap_instruction *i,
                         neap_run_state *state, neap_lane *lane) {
  int64_t found = *i->call.extent;
  if (i->call.fault->set || found == i->n_found) return;

  /* A probe is run to find the length: any will do. */
  if (i->n_found < 0 && program->graph->probe) return;

  /* In a loop another body may be for this length: only the pass ends. */
  if (lane->in_body) {
    lane->misfits = true;
    return;
  }
  atomic_store(&state->outgrown, true);
  if (i->n_found < 0)
    neap_call_fault(
      &i->call,
      "its output has %lld elements, which depends on data; run it with executor = \"dynamic\"",
      (long long)found);
  else
    neap_call_fault(&i->call,
                    "its output has %lld elements, the program was made for %lld; run it with "
                    "executor = \"dynamic\"",
                    (long long)found, (long long)i->n_found);
}

/* One more call of a step, which began then. Takes no memory: what is kept of it has its room. */
static void count_time(neap_step_times *times, const neap_run_state *state, int64_t start_ns,
                       neap_lane *lane) {
  const int64_t end_ns = neap_clock_ns(), took = end_ns - start_ns;
  const int64_t free_ns = lane->ended_ns != 0 ? lane->ended_ns : state->begin_ns;

  /* The last calls are kept one by one, in a ring that each new call overwrites the oldest of. */
  neap_step_calls *calls = times->calls;
  if (calls != NULL) {
    const int64_t at = times->n_call % NEAP_N_RECENT;
    calls->took_ns[at] = took;
    calls->begun_ns[at] = start_ns;
    calls->run_no[at] = (int64_t)state->serial;
    calls->on_thread[at] = lane->thread;
  }

  /* Of all calls: extremes, sums, and a sketch from which quantiles are read. */
  times->min_ns = times->n_call == 0 ? took : NEAP_MIN(times->min_ns, took);
  times->max_ns = NEAP_MAX(times->max_ns, took);
  times->n_call++;
  times->last_ns = took;
  times->total_ns += took;

  /* The time that its thread was not in a step: since the step before, or since the run's begin. */
  times->gap_ns += start_ns - free_ns;
  times->start_ns = start_ns - state->begin_ns;
  times->thread = lane->thread;
  neap_sketch_add(&times->took, took);
  lane->ended_ns = end_ns;
}

int64_t neap_step_times_at(const neap_step_times *times, double share) {
  const int64_t ns = neap_sketch_at(&times->took, share);
  return NEAP_MIN(NEAP_MAX(ns, times->min_ns), times->max_ns);
}

/* Blobs that the makers of constants have read for the last time. A dag's lanes have no order in
 * which that could be known. */
static void spare_sources(const neap_program *program, int step, const neap_run *run) {
  const neap_instruction *i = &program->instruction[step];
  if (program->is_sub || program->dag != NULL) return;
  for (int k = 0; k < i->call.n_in; k++) {
    int b = i->address[k].base - 1;
    if (b < 0 || b >= program->n_blob) continue;
    if (program->blob[b].packed != NEAP_NO_VALUE && program->blob[b].last_maker == step)
      run->spare(run->owner, b);
  }
}

/* One instruction, with its addresses, clock, poison and fault record. */
void neap_program_execute(neap_program *program, int step, neap_run_state *state, neap_lane *lane) {
  neap_instruction *i = &program->instruction[step];
  neap_run *run = state->run;

  /* What makes a constant leaves nothing in the arena that any but its like reads, so skipping them
   * all leaves nothing to count. */
  if (i->makes_constant && run->constants_valid) return;

  bool timed = run->times != NULL && !program->is_sub;
  int64_t start_ns = timed ? neap_clock_ns() : 0;

  /* All that a call is told anew in each run; the rest was filled in when it was bound. */
  resolve(program, i);

  /* The salt makes iterations of a loop draw differently; it is 0 outside loops. */
  i->call.seed = run->seed ^ lane->salt;
  i->call.step = run->step;
  i->call.fault = &lane->fault;
  dispatch(i, state, lane);

  /* A length that was found is compared before anything reads the bytes that were planned for
   * another. */
  if (i->call.extent != NULL) check_extent(program, i, state, lane);

  /* The innermost program that sees a fault first names it: an If passes on what its branch
   * recorded. */
  if (lane->fault.set && lane->program == NULL) {
    lane->program = program;
    lane->node = i->node;
    lane->fault.instruction = step;
  }
  if (timed) count_time(&run->times[step], state, start_ns, lane);
  if (run->poison && !neap_takes(program)) poison_after(program, i);
  if (i->makes_constant && run->spare != NULL) spare_sources(program, step, run);
}

/* At most once a millisecond, because holding and releasing are system calls. On the calling thread
 * alone. */
void neap_run_let_signals_in(neap_run_state *state) {
  enum { EVERY_NS = 1000000 };
  int64_t now = neap_clock_ns();
  if (now - state->let_in_ns < EVERY_NS) return;
  state->let_in_ns = now;
  /* What came since is let in here: handlers run between these two lines. */
  neap_signals_release(&state->signals);
  neap_signals_hold(&state->signals);
}

/* Policy `pool`: the turns of the script, recomputed instructions among them. Blocks lie as
 * foretold only if none is left out. */
static void run_turns(neap_program *program, neap_run_state *state, neap_lane *lane) {
  for (int turn = 0; turn < program->script.n_turn; turn++) {
    neap_run_let_signals_in(state);
    if (neap_run_must_stop(state, lane)) return;
    neap_take_before(program, turn, state->run);
    neap_program_execute(program, program->script.turn[turn].step, state, lane);
    neap_take_after(program, turn, state->run);
  }
}

/* Plan order: a program without a dag on the calling thread, a subprogram on whichever lane its
 * owner runs. */
static void run_steps(neap_program *program, neap_run_state *state, neap_lane *lane) {
  if (neap_takes(program)) {
    run_turns(program, state, lane);
    return;
  }
  for (int step = 0; step < program->n_instruction; step++) {
    if (lane->thread == 0) neap_run_let_signals_in(state); /* a dag's other lanes never do */
    if (neap_run_must_stop(state, lane) || lane->misfits) return;
    neap_program_execute(program, step, state, lane);
  }
}

/* ---- the run --------------------------------------------------------------------------------- */

/* The record of a fault: what the kernel said, and which op, blob and line it was. */
neap_status neap_program_fault(const neap_lane *lane, neap_error *error) {
  const neap_graph *graph = lane->program->graph;
  const neap_node *node = &graph->node[lane->node];
  neap_program_locate(graph, lane->node, error);
  return neap_fail(error, lane->no_memory ? NEAP_MEMORY : NEAP_DATA, "%s \"%s\": %s",
                   node->op->name, node->name, lane->fault.message);
}

/* Runs a program once. The arena, constants and pool are borrowed from `run` until it returns. DATA
 * or MEMORY error for a fault, INTERRUPTED when a stop won, INTERNAL for a pool that is not as the
 * run promises. run->finished says whether the step counts: no stop has won. */
neap_status neap_program_run(neap_program *program, neap_run *run, neap_error *error) {
  neap_run_state state = {
    .run = run, .serial = ++program->n_run, .begin_ns = run->times != NULL ? neap_clock_ns() : 0};
  neap_lane own = {0}, *lane = &own;

  /* Nothing of the last run holds any more. */
  run->finished = false;
  program->outgrown = false;
  program->missed = (neap_lengths){0};
  for (int k = 0; k < program->n_extent; k++) program->extent[k] = -1;

  /* Bases are read here, once a run: the workspace may have moved them since the last. */
  program->base[0] = run->arena;
  for (int b = 1; b < program->plan->n_bank; b++)
    program->base[program->first_bank + b - 1] = run->bank[b];
  for (int b = 0; b < program->n_blob; b++) program->base[1 + b] = program->blob[b].base;
  program->base[1 + program->n_blob] = run->constants;

  /* Bytes that are taken while running, and garbage where there is nothing yet. */
  if (neap_takes(program)) NEAP_TRY(neap_take_begin(program, run, error));
  if (run->poison) poison_begin(program);

  /* The steps. Kernels' threads must not take signals, so those wait until they are let in. */
  neap_signals_hold(&state.signals);
  if (program->dag != NULL)
    lane = neap_dag_run(program, &state);
  else
    run_steps(program, &state, lane);
  neap_signals_release(&state.signals);

  /* What the run has found out about lengths, and all blocks back to the pool. */
  program->outgrown = atomic_load(&state.outgrown);
  program->missed = state.missed;
  if (neap_takes(program)) neap_take_end(program, run);

  /* The last instruction may have faulted; an interrupt that comes only now is too late to stop
   * anything. */
  if (lane->fault.set) (void)neap_run_must_stop(&state, lane);
  NEAP_ASSERT(!neap_takes(program) || neap_pool_read(run->pool).n_used == 0,
              "all that a run of \"%s\" takes from the pool it has given back when it ends: %lld "
              "blocks are taken",
              program->graph->name, (long long)neap_pool_read(run->pool).n_used);
  run->finished = atomic_load(&state.phase) != NEAP_RUN_STOPPED;
  if (lane->fault.set) return neap_program_fault(lane, error);
  if (!run->finished)
    return neap_fail(error, NEAP_INTERRUPTED, "Net \"%s\": interrupted", program->graph->name);
  return NEAP_OK;
}
