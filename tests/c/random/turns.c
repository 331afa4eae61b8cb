/* turns.c: whether the turns that a program runs side by side wait for each other where bytes are
 * at stake. Found out anew from the script, by where each operand lies, and pair by pair: without
 * what program/overlap.c knows of stays, of segments, and of what waits for what already.
 *
 * Data structure: the touches of all turns in order, and by turn the set of turns that wait for it.
 */
#include "random/trial.h"
#include "program/program_int.h"

#include <stdio.h>
#include <stdlib.h>

/* Bytes that a turn reads or writes, or takes, which counts as writing. */
typedef struct touch {
  int turn, slot; /* slot: whose address is read, or n_slot and more: a resident storage */
  int stay;       /* the take that the bytes come from; -1: resident */
  size_t begin, end;
  bool writes;
} touch;

typedef struct turns {
  const neap_program *program;
  int n_turn, n_slot;
  int *stay; /* by slot of the script: its take at hand; -1: none */
  touch *touch;
  int n_touch, cap_touch;
  bool *waits; /* n_turn rows: whether turn b waits for turn a, at a * n_turn + b */
} turns;

static bool add(turns *t, touch one) {
  if (!neap_list_grow(&t->touch, &t->cap_touch, t->n_touch + 1, sizeof *t->touch)) return false;
  t->touch[t->n_touch++] = one;
  return true;
}

/* What take k of the script brings. The scratch of each instruction has an address of its own. */
static touch of_take(const turns *t, int turn, int k, bool writes) {
  const neap_program *program = t->program;
  const neap_take *take = &program->script.take[k];
  const neap_instruction *i = &program->instruction[program->script.turn[turn].step];
  int n_value = program->graph->n_value;
  size_t bytes = neap_take_bytes(program, take->slot, i);
  return (touch){.turn = turn,
                 .slot = take->slot < n_value ? take->slot : n_value + i->node,
                 .stay = k,
                 .begin = take->offset,
                 .end = take->offset + bytes,
                 .writes = writes};
}

/* What is resident or constant has no stay; what has been given back has no bytes. */
static bool add_operand(turns *t, int turn, neap_value_id v, bool writes) {
  if (v < 0) return true;
  const neap_place *place = &t->program->plan->place[v];
  if (place->region != NEAP_REGION_ARENA)
    return add(
      t,
      (touch){
        .turn = turn, .slot = t->n_slot + place->storage, .stay = -1, .end = 1, .writes = writes});
  int stay = t->stay[place->storage];
  return stay < 0 || add(t, of_take(t, turn, stay, writes));
}

/* False: memory is refused. */
static bool find_touches(turns *t) {
  const neap_script *s = &t->program->script;
  int take = 0, give = 0;
  for (int turn = 0; turn < t->n_turn; turn++) {
    const neap_node *node =
      &t->program->graph->node[t->program->instruction[s->turn[turn].step].node];
    for (; take < s->turn[turn].take_end; take++) {
      t->stay[s->take[take].slot] = take;
      if (!add(t, of_take(t, turn, take, true))) return false;
    }
    for (int k = 0; k < node->n_in; k++)
      if (!add_operand(t, turn, node->in[k], false)) return false;
    for (int k = 0; k < node->n_out; k++)
      if (!add_operand(t, turn, node->out[k], true)) return false;
    for (; give < s->turn[turn].give_end; give++) t->stay[s->give[give]] = -1;
  }
  return true;
}

/* From the last turn back: all that wait for those that wait for it do. */
static void find_waits(turns *t) {
  size_t n = (size_t)t->n_turn;
  for (int a = t->n_turn - 1; a >= 0; a--) {
    int n_next;
    const int *next = neap_dag_successors(t->program->dag, a, &n_next);
    for (int k = 0; k < n_next; k++) {
      t->waits[(size_t)a * n + (size_t)next[k]] = true;
      for (size_t b = 0; b < n; b++)
        t->waits[(size_t)a * n + b] |= t->waits[(size_t)next[k] * n + b];
    }
  }
}

/* Whether two touches may not change places: of the same bytes, where one of them writes; or of one
 * address that lies elsewhere by then. */
static bool meet(const touch *a, const touch *b) {
  if (a->slot == b->slot && a->stay != b->stay) return true;
  bool same_bytes =
    a->stay < 0 || b->stay < 0 ? a->slot == b->slot : a->begin < b->end && b->begin < a->end;
  return same_bytes && (a->writes || b->writes);
}

bool turns_wait(trial *t, const char *way, const neap_program *program) {
  const neap_script *s = &program->script;
  if (program->dag == NULL || !neap_takes(program)) return true;
  int n_value = program->graph->n_value;
  turns own = {.program = program, .n_turn = s->n_turn, .n_slot = n_value + program->graph->n_node};
  size_t n = (size_t)s->n_turn;
  own.stay = malloc(((size_t)n_value + 1) * sizeof *own.stay);
  own.waits = calloc(n * n + 1, sizeof *own.waits);
  for (int v = 0; own.stay != NULL && v <= n_value; v++) own.stay[v] = -1;
  bool got = own.stay != NULL && own.waits != NULL && find_touches(&own);
  bool holds = got || fail(t, way, "no memory for the turns");
  if (got) find_waits(&own);

  /* Every pair, the earlier one first. */
  for (int j = 0; got && holds && j < own.n_touch; j++)
    for (int i = 0; holds && i < j; i++) {
      const touch *a = &own.touch[i], *b = &own.touch[j];
      if (a->turn == b->turn || !meet(a, b)) continue;
      if (own.waits[(size_t)a->turn * n + (size_t)b->turn]) continue;
      char text[200];
      snprintf(text, sizeof text,
               "turn %d of %d does not wait for turn %d: slots %d and %d, bytes %zu to %zu and %zu "
               "to %zu",
               b->turn, own.n_turn, a->turn, b->slot, a->slot, b->begin, b->end, a->begin, a->end);
      holds = fail(t, way, text);
    }
  t->totals->n_turns += got;
  free(own.stay);
  free(own.waits);
  neap_free(own.touch);
  return holds;
}
