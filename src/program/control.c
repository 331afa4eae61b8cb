/* control.c: instructions that own subprograms: a branch is run once, a body once an iteration.
 *
 * A subprogram's bases are set before each pass: base 0 is its arena, which lies in the owner's
 * scratch; then comes one for each argument, and last the iteration's frame. A loop's states lie in
 * two buffers that change places (the final output is one of them) or, where the backward reads
 * them, in the records: either way an iteration finds them by pointer and nothing is copied between
 * iterations.
 *
 * A loop looks for faults and for the interrupt after each instruction of its body and before each
 * iteration. INVARIANT: once its body has committed, an interrupt or fault ends the loop where an
 * iteration ends, as if its condition had become false, and the run goes to its end: after an
 * interrupt the step is finished, with the flag still set for the caller to see; after a fault the
 * workspace puts back what was committed.
 *
 * Scratch: the largest of the subprograms' frames, then the states' buffers, then the condition's
 * flag.
 */
#include "program/program_int.h"

#include <string.h>

/* A branch that was for lengths yet to be found has found some, and given nothing: the run ends
 * here, and one for what it found begins; or the pass, in a loop, for which there may be another
 * body. */
static void end_behind(const neap_instruction *i, neap_run_state *state, neap_lane *lane) {
  if (lane->in_body) {
    lane->misfits = true;
    return;
  }
  atomic_store(&state->outgrown, true);
  neap_call_fault(&i->call,
                  "lengths in the branch that is taken were not known beforehand; run it with "
                  "executor = \"dynamic\"");
}

/* Input 0 is the condition; subnet 0 runs when it is true, subnet 1 when not. The branch writes the
 * owner's outputs. */
void neap_program_run_if(const neap_instruction *i, neap_run_state *state, neap_lane *lane) {
  const neap_call *call = &i->call;
  bool condition = neap_element_get(call->in[0].type.dtype, call->in[0].data, 0) != 0;
  int branch = condition ? 0 : 1;
  /* An If without an else branch has nothing to do when its condition is false. */
  if (branch >= i->n_sub) return;

  neap_program *sub = i->sub[branch];
  sub->base[0] = call->scratch;
  /* The branch finds each operand of the If as an argument; outputs follow the inputs. */
  for (int k = 0; k < call->n_in + call->n_out; k++) sub->base[1 + k] = call->in[k].data;

  neap_program_run_sub(sub, state, lane);
  /* A probe's branch has only been run to find its lengths. */
  if (sub->graph->probe && !lane->misfits && !lane->fault.set && !neap_run_must_stop(state, lane))
    end_behind(i, state, lane);
}

/* ---- loops ----------------------------------------------------------------------------------- */

/* A loop under way. */
typedef struct loop_run {
  const neap_loop *loop;
  const neap_node *node;
  const neap_instruction *i;
  neap_run_state *state;
  neap_lane *lane;
  uint64_t outer_salt;
  char *own;               /* scratch behind the subprograms' frames */
  char *records;           /* of iteration 0; NULL: no frames, or on the stack */
  neap_frame_stack *stack; /* else NULL */
  size_t first_offset;     /* on the stack */
  int64_t n;               /* iterations known beforehand; -1 */
} loop_run;

/* outputs follow the inputs */
static void *operand(const loop_run *r, int k) { return k < 0 ? NULL : r->i->call.in[k].data; }

/* Record t; computed afresh each time, because a stack moves as it grows. NULL before it has any
 * bytes. */
static char *record(const loop_run *r, int64_t t) {
  size_t at = (size_t)t * r->loop->record_bytes;
  if (r->stack == NULL) return r->records + at;
  return r->stack->bytes != NULL ? r->stack->bytes + r->first_offset + at : NULL;
}

/* Where state s lies before iteration t (counted in the order of running). Without frames: the
 * initial operand, then by turns the output and the buffer, so that the last of n known iterations
 * leaves it in the output. */
static char *state_at(const loop_run *r, int s, int64_t t) {
  const neap_loop_state *state = &r->loop->state[s];
  if (state->item >= 0) return record(r, t) + r->loop->item[state->item].offset;

  /* The first iteration reads its operand where it lies: it is not copied into a buffer. */
  if (t == 0 && state->init >= 0) return operand(r, state->init);

  /* The buffers of the states before this one: two for each that has no final output. */
  char *buffer = r->own;
  for (int k = 0; k < s; k++) {
    const neap_loop_state *before = &r->loop->state[k];
    if (before->item >= 0) continue;
    buffer += neap_align(before->bytes) * (before->final < 0 ? 2 : 1);
  }
  char *final = state->final >= 0 ? operand(r, state->final) : buffer + neap_align(state->bytes);

  /* Where n is not known, iteration 1 begins in `final`, as good as any. */
  int64_t last = r->n >= 0 ? r->n : 1;
  return (last - t) % 2 == 0 ? final : buffer;
}

static char *flag_of(const loop_run *r) {
  return r->own + neap_loop_own_bytes(r->loop) - NEAP_ALIGN;
}

/* Bases of a subprogram for the pass that comes k-th and works on row t. */
static void set_bases(const loop_run *r, neap_program *sub, int64_t k, int64_t t) {
  const neap_loop *loop = r->loop;
  NEAP_ASSERT(sub->n_base == loop->n_port + 2,
              "a subprogram of \"%s\" has bases for its arena, %d ports and the frame: %d",
              r->node->name, loop->n_port, sub->n_base);

  /* Its arena is scratch: nothing in it outlives the pass. */
  sub->base[0] = r->i->call.scratch;

  /* An argument that stays is its operand, a row is found in its operand, a state changes its place
   * with every iteration, and what is kept lies in a record. */
  for (int p = 0; p < loop->n_port; p++) {
    const neap_port *port = &loop->port[p];
    void *base = NULL;
    switch (port->kind) {
      case NEAP_PORT_OPERAND: base = operand(r, port->index); break;
      case NEAP_PORT_SLICE:
        base = operand(r, port->index);
        if (base != NULL) base = (char *)base + (size_t)t * port->bytes;
        break;
      case NEAP_PORT_STATE: base = state_at(r, port->index, k); break;
      case NEAP_PORT_NEXT: base = state_at(r, port->index, k + 1); break;
      case NEAP_PORT_KEPT:
      case NEAP_PORT_KEPT_NEXT:
        if (port->index < 0) break;
        base = record(r, t + (port->kind == NEAP_PORT_KEPT_NEXT)) + loop->item[port->index].offset;
        break;
      case NEAP_PORT_FLAG: base = loop->has_condition ? flag_of(r) : NULL; break;
    }
    sub->base[1 + p] = base;
  }
  sub->base[sub->n_base - 1] = loop->frames >= 0 ? record(r, t) : NULL;
}

/* Splitmix64's last mix: iterations of loops within loops all get salts of their own. */
static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

/* One run of body or condition: the pass that comes k-th and works on row t, which a backward goes
 * through in reverse. */
static void run_pass(loop_run *r, neap_program *sub, int64_t k, int64_t t) {
  set_bases(r, sub, k, t);
  /* Salts go by the row, so that a loop gives the same numbers however it is cut short or
   * recomputed. */
  r->lane->salt = mix(r->outer_salt + 0x9e3779b97f4a7c15u * (uint64_t)(t + 1));
  neap_program_run_sub(sub, r->state, r->lane);
  r->lane->salt = r->outer_salt;
}

/* ---- bodies for several lengths -------------------------------------------------------------- */

/* The lengths that the iteration under way has found so far, which are its owner's. */
static int64_t *found_of(const loop_run *r, const neap_lengths *met) {
  return r->i->sub[r->i->n_sub - 1]->extent + met->first;
}

static void forget(const loop_run *r, const neap_lengths *met) {
  int64_t *found = found_of(r, met);
  for (int k = 0; k < met->n; k++) found[k] = -1;
}

/* Whether the body is for the lengths found so far; the others may still be anything. */
static bool may_fit(const loop_run *r, const neap_lengths *met) {
  const int64_t *found = found_of(r, met);
  for (int k = 0; k < met->n; k++)
    if (found[k] >= 0 && found[k] != met->length[k]) return false;
  return true;
}

/* The first body that may fit; -1: there is none. */
static int fitting(const loop_run *r, const neap_node *node) {
  for (int b = 0; b < node->n_body; b++)
    if (may_fit(r, &node->met[b])) return b;
  return -1;
}

/* No body is for what the iteration found: the run ends here, and one with such a body begins. */
static void miss(const loop_run *r, const neap_lengths *met, int64_t t) {
  bool none = false;
  /* Of several lanes the first one tells. */
  if (atomic_compare_exchange_strong(&r->state->has_missed, &none, true))
    r->state->missed = (neap_lengths){met->first, met->n, found_of(r, met)};
  atomic_store(&r->state->outgrown, true);
  neap_call_fault(&r->i->call, "lengths in iteration %lld are others than its bodies are made for",
                  (long long)t + 1);
}

/* One iteration, by the body that fits. What one that doesn't has written, the next one writes
 * again: it goes as far and further, since it is for the lengths that were found. */
static void run_body(loop_run *r, neap_instruction *i, int64_t t) {
  const neap_node *node = r->node;
  const neap_lengths *met = &node->met[0];
  int first = i->n_sub - node->n_body, body = i->body;

  /* One body for all lengths is the usual case. */
  if (met->n == 0) {
    run_pass(r, i->sub[first], t, t);
    return;
  }

  /* The body that fitted last time is tried first; each further one knows at least one length
   * more. */
  for (int tried = 0;; tried++) {
    neap_program *sub = i->sub[first + body];
    forget(r, met);
    r->lane->in_body = true;
    run_pass(r, sub, t, t);
    r->lane->in_body = false;

    /* A misfit is the pass's alone. A stop or a fault is the run's: then nothing is to be said of
     * bodies. */
    bool fits = !r->lane->misfits && !sub->graph->probe;
    r->lane->misfits = false;
    if (neap_run_must_stop(r->state, r->lane) || r->lane->fault.set) return;
    if (fits) {
      i->body = body;
      sub->n_run = r->state->serial;
      forget(r, met);
      return;
    }
    /* Next one for what was found; none, the same one again, or too many tries mean that none will
     * do. */
    int next = fitting(r, node);
    if (next < 0 || next == body || tried > met->n) break;
    body = next;
  }
  miss(r, met, t);
}

/* Whether no further iteration may begin.
 * The flag is read before the stop is asked for: an interrupt that came between the two would end
 * the loop and not the run, and the run would hand out what a loop cut short has left. */
static bool must_end(const loop_run *r) {
  if (r->lane->thread == 0) neap_run_let_signals_in(r->state);
  bool interrupted = neap_run_is_interrupted(r->state);
  return neap_run_must_stop(r->state, r->lane) || r->lane->fault.set || interrupted;
}

/* Room on the stack for records 0 to t. False, with the fault recorded, when memory is refused. */
static bool reserve(const loop_run *r, int64_t t) {
  if (r->stack == NULL) return true;
  size_t need = r->first_offset + (size_t)(t + 1) * r->loop->record_bytes;
  size_t room = r->stack->held_bytes;
  r->stack->used_bytes = need;

  /* The stack keeps its bytes from run to run, so a loop that runs as long as before takes none. */
  if (need <= room) return true;

  /* Twice the bytes each time: what is copied in all is then no more than what is held. */
  while (room < need) room = NEAP_MAX(2 * room, (size_t)16 * NEAP_ALIGN);

  /* The old bytes are kept until the new ones hold all: a refusal ends the loop and spoils
   * nothing. */
  char *grown = neap_alloc_data(room);
  if (grown == NULL) {
    r->lane->no_memory = !r->lane->fault.set;
    neap_call_fault(&r->i->call, "memory for the frame of iteration %lld was refused, %zu bytes",
                    (long long)t, room);
    return false;
  }
  if (r->stack->held_bytes > 0) memcpy(grown, r->stack->bytes, r->stack->held_bytes);
  neap_free(r->stack->bytes);
  r->stack->bytes = grown;
  r->stack->held_bytes = room;
  return true;
}

/* The condition before iteration t. */
static bool goes_on(loop_run *r, int64_t t) {
  const neap_program *cond = r->i->sub[0];
  run_pass(r, r->i->sub[0], t, t);
  const neap_value *flag = &cond->graph->value[cond->graph->output[0]];
  return !must_end(r) && neap_element_get(flag->type.dtype, flag_of(r), 0) != 0;
}

/* States before the first iteration, and what begins as zeros. */
static void begin(const loop_run *r) {
  const neap_loop *loop = r->loop;
  for (int s = 0; s < loop->n_state; s++) {
    const neap_loop_state *state = &loop->state[s];
    /* Without a first value a state begins as zeros; in a record it begins as a copy. */
    if (state->init < 0 && state->bytes > 0) memset(state_at(r, s, 0), 0, state->bytes);
    if (state->init >= 0 && state->item >= 0 && state->bytes > 0)
      memcpy(state_at(r, s, 0), operand(r, state->init), state->bytes);
  }

  /* Sums over iterations, like a weight's gradient, are added to. */
  for (int k = 0; k < loop->n_zero; k++) {
    const neap_operand *sum = &r->i->call.in[loop->zero[k]];
    if (sum->data != NULL) memset(sum->data, 0, neap_layout_bytes(&sum->type, &sum->layout));
  }
}

/* The states that n iterations have left, where they are asked for: at most one copy of each, in a
 * whole loop. */
static void finish(const loop_run *r, int64_t n) {
  for (int s = 0; s < r->loop->n_state; s++) {
    const neap_loop_state *state = &r->loop->state[s];
    if (state->final < 0 || state->bytes == 0) continue;
    const char *from = state_at(r, s, n);
    if (from != operand(r, state->final)) memcpy(operand(r, state->final), from, state->bytes);
  }
}

/* Where the loop's own bytes and its records are: behind the body's arena in the scratch, and
 * in the value of the frames. */
static loop_run loop_begin(const neap_instruction *i, neap_run_state *state, neap_lane *lane) {
  loop_run r = {.loop = i->loop,
                .node = i->loop_node,
                .i = i,
                .state = state,
                .lane = lane,
                .outer_salt = lane->salt,
                .n = -1};
  r.own = (char *)i->call.scratch + i->scratch_bytes - neap_loop_own_bytes(i->loop);
  if (i->loop->frames >= 0) r.records = (char *)operand(&r, i->loop->frames) + NEAP_ALIGN;
  return r;
}

void neap_program_run_loop(neap_instruction *i, neap_run_state *state, neap_lane *lane) {
  const neap_loop *loop = i->loop;
  loop_run r = loop_begin(i, state, lane);
  if (!loop->has_condition) r.n = loop->n_step;

  /* A loop without maximum has its records on the stack: behind those of this run that are there
   * already, from the first if there are none. */
  if (loop->grows && loop->frames >= 0) {
    if (i->stack.serial != state->serial) {
      i->stack.used_bytes = 0;
      i->stack.serial = state->serial;
    }
    r.stack = &i->stack;
    r.first_offset = i->stack.used_bytes;
  }

  /* Record t holds the states before iteration t, so there is one more than iterations. */
  if (!reserve(&r, 0)) return;
  begin(&r);

  /* The iterations. Each one's next record is made room for before its body runs, because the body
   * writes there. */
  bool endless = loop->max == 0 && loop->has_condition;
  int64_t t = 0;
  for (; endless || t < loop->max; t++) {
    if (must_end(&r)) break;
    if (loop->has_condition && !goes_on(&r, t)) break;
    if (!reserve(&r, t + 1)) break;
    run_body(&r, i, t);
  }

  /* The results, and for the backward pass how many iterations there were, and where. */
  finish(&r, t);
  if (loop->frames < 0) return;

  /* The head is written whole: where it crosses to another program as a blob, its bytes are the
   * same in each run. */
  char head[NEAP_ALIGN] = {0};
  const neap_frames_head has = {t, r.stack, r.first_offset};
  _Static_assert(sizeof has <= sizeof head, "the records begin behind the head");
  memcpy(head, &has, sizeof has);
  memcpy(operand(&r, loop->frames), head, sizeof head);
}

/* An iteration that a stop cut short is not asked for its gradient: then nothing after it runs
 * either. */
void neap_program_run_loop_gradient(const neap_instruction *i, neap_run_state *state,
                                    neap_lane *lane) {
  loop_run r = loop_begin(i, state, lane);
  neap_frames_head head;

  /* What the forward has left: its records and how many there are. */
  memcpy(&head, operand(&r, i->loop->frames), sizeof head);
  r.n = head.n_iteration;
  if (i->loop->grows) {
    r.stack = head.stack;
    r.first_offset = head.offset;
  } else { /* frames that crossed from another program are a blob, which anybody may have written */
    r.n = NEAP_MAX(NEAP_MIN(r.n, i->loop->max), 0);
  }

  NEAP_ASSERT(r.n >= 0 && (i->loop->max == 0 || r.n <= i->loop->max),
              "the forward of \"%s\" has left at most %lld frames: %lld", i->loop_node->name,
              (long long)i->loop->max, (long long)r.n);
  NEAP_ASSERT(r.stack == NULL || r.stack->serial == state->serial,
              "the backward of \"%s\" reads what this run has pushed, not run %llu",
              i->loop_node->name, (unsigned long long)r.stack->serial);
  NEAP_ASSERT(
    r.stack == NULL || r.stack->used_bytes >= r.first_offset + (size_t)r.n * i->loop->record_bytes,
    "the frames of \"%s\" are on the stack still: %lld of %zu bytes from %zu on, and %zu are used",
    i->loop_node->name, (long long)r.n, i->loop->record_bytes, r.first_offset, r.stack->used_bytes);

  /* Gradients of the states begin with those of the results, sums over iterations as zeros. */
  begin(&r);

  /* The rows from the last to the first. */
  int64_t k = 0;
  for (; k < r.n; k++) {
    if (must_end(&r)) break;
    run_pass(&r, i->sub[0], k, r.n - 1 - k);
  }
  finish(&r, k);

  /* Runs of an inner loop are gone through in reverse, too, so the records just read are the last
   * ones on the stack. */
  if (r.stack != NULL) r.stack->used_bytes = r.first_offset; /* last in, first out */
}

/* ---- frames that grow ------------------------------------------------------------------------ */

size_t neap_program_frames_bytes(const neap_program *program) {
  size_t total = 0;
  for (int n = 0; n < program->n_instruction; n++) {
    const neap_instruction *i = &program->instruction[n];
    total += i->stack.held_bytes;
    for (int s = 0; s < i->n_sub; s++) total += neap_program_frames_bytes(i->sub[s]);
  }
  return total;
}

size_t neap_program_trim(neap_program *program) {
  size_t total = 0;
  for (int n = 0; n < program->n_instruction; n++) {
    neap_instruction *i = &program->instruction[n];
    total += i->stack.held_bytes;
    neap_free(i->stack.bytes);
    i->stack = (neap_frame_stack){0};
    for (int s = 0; s < i->n_sub; s++) total += neap_program_trim(i->sub[s]);
  }
  return total;
}
