/* take.c: addresses at run time, for policy `pool`. A script, which plan/rehearse.c has made, says
 * what each turn of the run takes from the pool before its instruction, and gives back after it.
 * Values in one storage (in place, views, versions) share a block; the scratch of each instruction
 * has one slot, held for one turn. Turns that run side by side give back when the last one has run
 * that touches a block, whichever that is.
 *
 * INVARIANT: takes and gives are those of the script, from an empty pool, so that a pool reserved
 * for the plan's bytes never refuses. Side by side a turn waits for all that touch what its bytes
 * held before (overlap.c), which is as good.
 */
#include "program/program_int.h"

#include <string.h>

/* Values without elements need no bytes, but operands need an address: NULL means absent. */
static char nothing[NEAP_ALIGN] __attribute__((aligned(NEAP_ALIGN)));

/* Before the first turn: no storage has an address but those without bytes. INTERNAL error unless
 * the pool is empty and reserved for the plan's bytes; the pool is borrowed from the run. */
neap_status neap_take_begin(neap_program *program, const neap_run *run, neap_error *error) {
  neap_pool_stats stats = run->pool != NULL ? neap_pool_read(run->pool) : (neap_pool_stats){0};
  bool is_ready =
    run->pool != NULL && stats.n_used == 0 && stats.reserved_bytes >= program->plan->arena_bytes;
  if (!is_ready)
    return neap_fail(
      error, NEAP_INTERNAL,
      "net \"%s\": its run needs an empty pool of %zu bytes, and got %zu with %zu in use",
      program->graph->name, program->plan->arena_bytes, stats.reserved_bytes, stats.used_bytes);
  for (int v = 0; v < program->graph->n_value; v++)
    program->base[program->first_slot + v] = program->bytes[v] == 0 ? nothing : NULL;
  memset(program->used_at, 0, (size_t)program->graph->n_node * sizeof *program->used_at);

  /* Side by side, each take counts down the turns that are still to touch it; the last turn's end
   * is the number of takes. */
  if (program->stays.list != NULL && program->script.n_turn > 0)
    neap_copy_bytes(program->stays.left, program->stays.n_touch,
                    (size_t)program->script.turn[program->script.n_turn - 1].take_end *
                      sizeof *program->stays.left);
  return NEAP_OK;
}

/* The scratch of the turn's instruction has a slot of its own. */
static int slot_of(const neap_program *program, int slot, const neap_instruction *i) {
  return slot < program->graph->n_value ? slot : program->graph->n_value + i->node;
}

size_t neap_take_bytes(const neap_program *program, int slot, const neap_instruction *i) {
  return slot < program->graph->n_value ? program->bytes[slot] : i->scratch_bytes;
}

/* A block at the offset of the script. The pool can't refuse (see INVARIANT). Poisoned when asked,
 * so that reading before writing shows. */
static void take(neap_program *program, const neap_take *t, const neap_instruction *i,
                 const neap_run *run) {
  int slot = slot_of(program, t->slot, i);
  size_t bytes = neap_take_bytes(program, slot, i);
  neap_pool_block *block = neap_pool_take_exact(run->pool, t->offset, bytes);
  NEAP_ASSERT(block != NULL,
              "a pool reserved for the plan's bytes never refuses: %zu bytes at %zu, slot %d",
              bytes, t->offset, slot);
  NEAP_ASSERT(program->block[slot] == NULL, "slot %d is taken once before it is given back", slot);
  program->block[slot] = block;
  program->base[program->first_slot + slot] = neap_pool_data(block);
  if (run->poison) neap_poison(neap_pool_data(block), bytes);
}

/* Back to the pool, and no address any more. Poisoned first, when asked. */
static void give(neap_program *program, int slot, size_t bytes, const neap_run *run) {
  if (program->block[slot] == NULL) return;
  if (run->poison) neap_poison(program->base[program->first_slot + slot], bytes);
  neap_pool_give(run->pool, program->block[slot]);
  program->block[slot] = NULL;
  program->base[program->first_slot + slot] = NULL;
}

/* Addresses for all that the turn needs and has not got. Records the most of the pool in use while
 * this step runs. */
void neap_take_before(neap_program *program, int turn, const neap_run *run) {
  const neap_script *s = &program->script;
  const neap_instruction *i = &program->instruction[s->turn[turn].step];
  int64_t *used = &program->used_at[s->turn[turn].step];
  /* A turn's takes stand behind those of the turn before. */
  for (int k = turn > 0 ? s->turn[turn - 1].take_end : 0; k < s->turn[turn].take_end; k++)
    take(program, &s->take[k], i, run);
  *used = NEAP_MAX(*used, (int64_t)neap_pool_read(run->pool).used_bytes);
}

/* Turns side by side: what no other turn is still to touch. */
static void give_untouched(neap_program *program, int turn, const neap_instruction *i,
                           const neap_run *run) {
  const neap_stays *stays = &program->stays;
  /* The count needs no lock of its own: before and after run with the dag's mutex held. */
  for (int k = stays->first[turn]; k < stays->first[turn + 1]; k++) {
    int slot = slot_of(program, program->script.take[stays->list[k]].slot, i);
    NEAP_ASSERT(stays->left[stays->list[k]] > 0,
                "take %d is touched by %d turns, and this one, %d, is one more", stays->list[k],
                stays->n_touch[stays->list[k]], turn);
    if (--stays->left[stays->list[k]] == 0)
      give(program, slot, neap_take_bytes(program, slot, i), run);
  }
}

/* What the turn was the last to need, or what has to make room for the next one. */
void neap_take_after(neap_program *program, int turn, const neap_run *run) {
  const neap_script *s = &program->script;
  const neap_instruction *i = &program->instruction[s->turn[turn].step];
  if (program->stays.list != NULL) {
    give_untouched(program, turn, i, run);
    return;
  }
  /* One after another, the script says when bytes are free; likewise behind the turn before. */
  for (int k = turn > 0 ? s->turn[turn - 1].give_end : 0; k < s->turn[turn].give_end; k++) {
    int slot = slot_of(program, s->give[k], i);
    give(program, slot, neap_take_bytes(program, slot, i), run);
  }
}

/* A run that was stopped still holds bytes: all go back, so that the next run meets an empty
 * pool. */
void neap_take_end(neap_program *program, const neap_run *run) {
  /* Storages, then the scratch of each instruction; what has been given back is passed over. */
  for (int v = 0; v < program->graph->n_value; v++) give(program, v, program->bytes[v], run);
  for (int step = 0; step < program->n_instruction; step++) {
    const neap_instruction *i = &program->instruction[step];
    give(program, program->graph->n_value + i->node, i->scratch_bytes, run);
  }
}
