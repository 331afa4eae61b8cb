/* take.c: addresses at run time, for policy `pool`. Each storage counts the instructions that touch it: the first takes its
 * bytes from the pool, the last gives them back. Values in one storage (in place, views, versions) share the count, and a Free
 * is an instruction that touches, so that bytes return with it at the latest. Scratch is taken and given around its instruction.
 *
 * INVARIANT: takes and gives are those that plan/rehearse.c has walked through, from an empty pool as well, so that a pool
 * reserved for the plan's bytes never refuses.
 */
#include "program/program_int.h"

#include <string.h>

/* Values without elements need no bytes, but operands need an address: NULL means absent. */
static char nothing[NEAP_ALIGN] __attribute__((aligned(NEAP_ALIGN)));

/* Before the first step: no storage has an address, and each waits for all that touch it. INTERNAL error unless the pool is
 * empty and reserved for the plan's bytes; the pool is borrowed from the run. */
neap_status neap_take_begin(neap_program *program, const neap_run *run, neap_error *error) {
  neap_pool_stats stats = run->pool != NULL ? neap_pool_read(run->pool) : (neap_pool_stats){0};
  if (run->pool == NULL || stats.n_used > 0 || stats.reserved_bytes < program->plan->arena_bytes)
    return neap_fail(error, NEAP_INTERNAL, "net \"%s\": its run needs an empty pool of %zu bytes, and got %zu with %zu in use",
                     program->graph->name, program->plan->arena_bytes, stats.reserved_bytes, stats.used_bytes);
  for (int v = 0; v < program->graph->n_value; v++) {
    atomic_store(&program->left[v], program->n_touch[v]);
    program->base[program->first_slot + v] = NULL;
  }
  memset(program->used_at, 0, (size_t)program->graph->n_node * sizeof *program->used_at);
  return NEAP_OK;
}

/* `bytes` for a slot, a root value or scratch, from the end that the rehearsal chose. The pool can't refuse (see INVARIANT), so
 * the block is not tested. Poisoned when asked, so that reading before writing shows. */
static void take(neap_program *program, int slot, size_t bytes, const neap_run *run) {
  neap_pool_block *block = neap_pool_take_at(run->pool, bytes, program->take[slot].high);
  program->block[slot] = block;
  program->base[program->first_slot + slot] = neap_pool_data(block);
  if (run->poison) memset(neap_pool_data(block), NEAP_POISON, bytes);
}

/* Back to the pool, and no address any more; a slot without a block is left alone. Poisoned first, when asked. */
static void give(neap_program *program, int slot, size_t bytes, const neap_run *run) {
  if (program->block[slot] == NULL) return;
  if (run->poison) memset(program->base[program->first_slot + slot], NEAP_POISON, bytes);
  neap_pool_give(run->pool, program->block[slot]);
  program->block[slot] = NULL;
  program->base[program->first_slot + slot] = NULL;
}

/* One slot for all scratch: it is held for one instruction only, and they run one at a time. */
static int scratch_slot(const neap_program *program) { return program->graph->n_value; }

/* Addresses for all that the instruction touches, storages that live longest first, as the rehearsal takes them, then scratch.
 * Records the pool's bytes in use at this step. */
void neap_take_before(neap_program *program, int step, const neap_run *run) {
  const neap_instruction *i = &program->instruction[step];
  for (int k = 0; k < i->n_touched; k++) {
    int storage = i->touched[k];
    if (program->bytes[storage] == 0)
      program->base[program->first_slot + storage] = nothing;
    else if (program->block[storage] == NULL)
      take(program, storage, program->bytes[storage], run);
  }
  if (i->scratch_bytes > 0) take(program, scratch_slot(program), i->scratch_bytes, run);
  program->used_at[step] = neap_pool_read(run->pool).used_bytes;
}

/* The instruction no longer needs its scratch, nor any storage that it was the last to touch. */
void neap_take_after(neap_program *program, const neap_instruction *i, const neap_run *run) {
  if (i->scratch_bytes > 0) give(program, scratch_slot(program), i->scratch_bytes, run);
  for (int k = 0; k < i->n_touched; k++) {
    int storage = i->touched[k];
    if (atomic_fetch_sub(&program->left[storage], 1) == 1) give(program, storage, program->bytes[storage], run);
  }
}

/* A run that was stopped still holds bytes: all go back, so that the next run meets an empty pool. */
void neap_take_end(neap_program *program, const neap_run *run) {
  for (int v = 0; v < program->graph->n_value; v++) give(program, v, program->bytes[v], run);
}
