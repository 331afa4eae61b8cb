/* dynamic.c: one net for any shapes. Before each run the shapes of the inputs are looked up in a
 * small cache of programs; for new ones the net is prepared, chosen for, rehearsed and bound once.
 * All programs take from the workspace's one pool, which is empty between runs, so that memory is
 * that of the largest shape, not of all shapes together.
 *
 * Lengths that depend on data are shapes too, known a little later. The lengths found last are the
 * guess for the next run; an EXTENT op that finds another one stops it, before anything is
 * committed. Then, or at once when guesses have been wrong of late, the lengths are looked for by
 * probes: programs of no more than the EXTENT ops and what leads to them. One probe finds all
 * lengths that depend on no unknown one, up to a branch that it is the first to take: that finds
 * its own, and the next one goes on. Branches that are not taken keep lengths that nobody knows
 * (build/branch.c). Last runs the program for what was found. What a probe computes is computed a
 * second time, with the same random numbers.
 *
 * Lengths in the bodies of loops are others in each iteration. A program has a body for each of
 * them that its runs have met; where an iteration misses one, the run stops as for any other
 * length, and a program with one body more takes the place of that program.
 *
 * INVARIANT: at most MOST_PROGRAMS programs, and beyond the current one at most MOST_BYTES for all;
 * the one used longest ago goes first.
 * INVARIANT: at most MOST_BODIES bodies of a loop in a program, beyond those that the run under way
 * has used.
 * INVARIANT: a program that is not the current one holds no bytes of inputs and outputs.
 */
#include "driver/driver_int.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_PROGRAMS = 16, MOST_BODIES = 16, MOST_BYTES = 64 << 20 };

typedef struct entry {
  neap_program *program;
  neap_type *type; /* of each input */
  int64_t *extent; /* as given when it was made; n_extent of the cache */
  int n_met;
  neap_lengths *met; /* lengths met in bodies of loops, which it has bodies for; owned */
  bool probe;
  size_t planned_bytes; /* all regions */
  size_t bytes;         /* graph, plan, tables and kernels' own records in Neap's allocator */
  uint64_t used_at;
} entry;

struct neap_dynamic {
  neap_workspace *ws; /* borrowed: the session holds it */
  neap_net *net;
  neap_compile_options options; /* its lists are in the arena */
  int n_input;
  neap_input *input;   /* as the run under way has them */
  neap_type *declared; /* of each input */
  int n_extent;        /* EXTENT ops of the net; known when the first program is made */
  /* of these the ones in no loop; the others are unknown in the lists below */
  int n_lone;
  bool *in_loop;     /* by number */
  int64_t *extent;   /* what is guessed of each; -1: unknown */
  int64_t *previous; /* what the last finished run had */
  int64_t *guess;    /* while probes run: what was guessed before */
  bool probe;        /* the program at hand is to find lengths */
  bool trust;        /* lengths were the same in the last two runs */
  bool has_run;      /* to its end, once */
  entry entry[MOST_PROGRAMS];
  int n_entry;
  entry *current; /* ran last, or will run first */
  uint64_t clock;
  neap_dynamic_stats stats;
  neap_arena arena;
};

static neap_status refused(neap_error *error, size_t bytes) {
  return neap_fail_memory(error, bytes, "a dynamic program");
}

/* ---- life ------------------------------------------------------------------------------------ */

/* Also of an entry half made: a program that was not attached, or none. */
static void entry_fini(neap_dynamic *d, entry *e) {
  neap_workspace_detach(d->ws, e->program);
  neap_program_free(e->program);
  neap_free(e->type);
  neap_free(e->extent);
  for (int m = 0; m < e->n_met; m++) neap_free(e->met[m].length);
  neap_free(e->met);
  d->stats.cache_bytes -= (int64_t)e->bytes;
  *e = (entry){0};
}

void neap_dynamic_free(neap_dynamic *d) {
  if (d == NULL) return;
  for (int i = 0; i < d->n_entry; i++) entry_fini(d, &d->entry[i]);
  neap_net_free(d->net);
  neap_arena_fini(&d->arena);
  neap_free(d);
}

static neap_status copy_names(neap_dynamic *d, int n, const char *const *from,
                              const char *const **out, neap_error *error) {
  size_t bytes = (size_t)(n + 1) * sizeof(char *);
  const char **name = neap_arena_alloc(&d->arena, bytes);
  if (name == NULL) return refused(error, bytes);
  for (int k = 0; k < n; k++)
    if ((name[k] = neap_intern(from[k])) == NULL) return refused(error, bytes);
  *out = name;
  return NEAP_OK;
}

/* Copies of the options' texts and lists, which the caller may drop. The store is left out: shapes
 * come and go, and each would leave its row. */
static neap_status copy_options(neap_dynamic *d, const neap_compile_options *o, neap_error *error) {
  d->options = *o;
  d->options.store = NULL;
  d->options.profile = false;
  d->options.script = d->options.tag = NULL;

  const neap_graph_options *from = &o->graph;
  neap_graph_options *to = &d->options.graph;
  NEAP_TRY(copy_names(d, from->n_keep, from->keep, &to->keep, error));
  NEAP_TRY(copy_names(d, from->n_loss, from->loss, &to->loss, error));
  NEAP_TRY(copy_names(d, from->n_diff, from->diff, &to->diff, error));
  if (o->engine != NULL && (d->options.engine = neap_intern(o->engine)) == NULL)
    return refused(error, sizeof *o->engine);
  return NEAP_OK;
}

/* The net's inputs; a shape among the options is what the first program is made for. From here on
 * the options refer to d->input, so that each program is made for the types found last. */
static neap_status find_inputs(neap_dynamic *d, const neap_compile_options *o, neap_error *error) {
  size_t n = (size_t)neap_net_n_blobs(d->net) + 1;
  d->input = neap_arena_alloc(&d->arena, n * sizeof *d->input);
  d->declared = neap_arena_alloc(&d->arena, n * sizeof *d->declared);
  if (d->input == NULL || d->declared == NULL) return refused(error, n * sizeof *d->input);
  for (int b = 0; b < neap_net_n_blobs(d->net); b++) {
    const neap_net_blob *blob = neap_net_blob_at(d->net, b);
    if (blob->role != NEAP_ROLE_INPUT) continue;
    d->declared[d->n_input] = blob->type;
    /* The caller's type for this input, if it gives one, stands for the net's. */
    for (int i = 0; i < o->graph.n_input; i++)
      if (strcmp(o->graph.input[i].name, blob->name) == 0)
        d->declared[d->n_input] = o->graph.input[i].type;
    d->input[d->n_input] =
      (neap_input){.name = neap_intern(blob->name), /* known: takes no memory */
                   .type = d->declared[d->n_input]};
    d->n_input++;
  }
  d->options.graph.n_input = d->n_input;
  d->options.graph.input = d->input;
  return NEAP_OK;
}

static void forget_extents(neap_dynamic *d) {
  for (int k = 0; k < d->n_extent; k++) d->extent[k] = -1;
}

/* The net's EXTENT ops. Where there are some, the first program is a probe. */
static neap_status find_extents(neap_dynamic *d, neap_error *error) {
  /* Lists by number of the EXTENT op. The builder reads `extent`, which changes from run to run. */
  d->n_extent = neap_graph_count_extents(d->net);
  size_t bytes = ((size_t)d->n_extent + 1) * sizeof *d->extent;
  d->extent = neap_arena_alloc(&d->arena, bytes);
  d->previous = neap_arena_alloc(&d->arena, bytes);
  d->guess = neap_arena_alloc(&d->arena, bytes);
  d->in_loop = neap_arena_alloc(&d->arena, (size_t)d->n_extent + 1);
  if (d->extent == NULL || d->previous == NULL || d->guess == NULL || d->in_loop == NULL)
    return refused(error, bytes);
  neap_graph_mark_loop_extents(d->net, d->in_loop);
  for (int k = 0; k < d->n_extent; k++) d->n_lone += !d->in_loop[k];
  forget_extents(d);
  neap_copy_bytes(d->previous, d->extent, bytes);

  /* A program is made for what stands there when it is made. */
  d->options.graph.n_extent = d->n_extent;
  d->options.graph.extent = d->extent;
  d->probe = d->n_lone > 0;
  return NEAP_OK;
}

/* ---- the cache ------------------------------------------------------------------------------- */

/* Whether the program was made for the types and lengths at hand. */
static bool is_for(const neap_dynamic *d, const entry *e) {
  if (e->probe != d->probe) return false;
  if (memcmp(e->extent, d->extent, (size_t)d->n_extent * sizeof *e->extent) != 0) return false;
  for (int k = 0; k < d->n_input; k++)
    if (!neap_type_equal(&e->type[k], &d->input[k].type)) return false;
  return true;
}

/* The program for the types and lengths at hand, probe or not; NULL: none. A walk: there are at
 * most 16, and a hash of the shapes would cost as much as comparing them. */
static entry *look_up(neap_dynamic *d) {
  for (int i = 0; i < d->n_entry; i++)
    if (is_for(d, &d->entry[i])) return &d->entry[i];
  return NULL;
}

/* What the head of the file says of the cache. */
static void check_cache(const neap_dynamic *d) {
  int64_t bytes = 0;
  bool has_current = false;
  for (int i = 0; i < d->n_entry; i++) {
    bytes += (int64_t)d->entry[i].bytes;
    has_current = has_current || &d->entry[i] == d->current;
  }
  NEAP_ASSERT(d->n_entry >= 1 && d->n_entry <= MOST_PROGRAMS && has_current,
              "1 to %d programs, the current one among them; got %d", MOST_PROGRAMS, d->n_entry);
  NEAP_ASSERT(bytes == d->stats.cache_bytes, "the programs' %lld bytes; %lld are counted",
              (long long)bytes, (long long)d->stats.cache_bytes);
  NEAP_ASSERT(bytes - (int64_t)d->current->bytes <= MOST_BYTES,
              "at most %d bytes beside the current program; got %lld", MOST_BYTES,
              (long long)(bytes - (int64_t)d->current->bytes));
}

/* Drops what was used longest ago until there are at most n programs, and those beside the current
 * one have at most MOST_BYTES. The current one stays. */
static void trim(neap_dynamic *d, int n) {
  /* Both limits at once; the current program is never dropped, however large it is. */
  while (d->n_entry > n ||
         (d->n_entry > 1 && d->stats.cache_bytes - (int64_t)d->current->bytes > MOST_BYTES)) {
    entry *oldest = NULL;
    for (int i = 0; i < d->n_entry; i++)
      if (&d->entry[i] != d->current && (oldest == NULL || d->entry[i].used_at < oldest->used_at))
        oldest = &d->entry[i];
    if (oldest == NULL) return; /* there is none but the current one */
    entry_fini(d, oldest);
    /* The last one fills the gap: the order of entries means nothing. */
    entry *last = &d->entry[--d->n_entry];
    if (d->current == last) d->current = oldest;
    if (oldest != last) *oldest = *last;
    d->stats.n_dropped++;
  }
}

/* Plans, binds and attaches a program for the types and lengths at hand. On failure the caller
 * drops *e. The first program's net makes and fills the parameters; later programs find them. */
static neap_status fill(neap_dynamic *d, entry *e, neap_error *error) {
  /* For the types, lengths and bodies at hand: the options point to the lists that say them. */
  neap_forecast forecast;
  d->options.graph.probe = e->probe = d->probe;
  d->options.graph.n_met = e->n_met;
  d->options.graph.met = e->met;
  NEAP_TRY(neap_session_bind(d->net, &d->options, &forecast, &e->program, error));
  e->planned_bytes = forecast.total_bytes;
  NEAP_TRY(neap_program_overlap(e->program, error));
  if (d->n_entry == 0) NEAP_TRY(neap_workspace_make_declared(d->ws, d->net, error));

  /* What it was made for, by which it is found again. */
  size_t type_bytes = (size_t)d->n_input * sizeof *e->type,
         extent_bytes = (size_t)d->n_extent * sizeof *e->extent;
  e->type = neap_alloc(type_bytes + 1);
  e->extent = neap_alloc(extent_bytes + 1);
  if (e->type == NULL || e->extent == NULL) return refused(error, type_bytes + extent_bytes);
  for (int k = 0; k < d->n_input; k++) e->type[k] = d->input[k].type;
  neap_copy_bytes(e->extent, d->extent, extent_bytes);
  return neap_workspace_attach(d->ws, e->program, error);
}

/* A program made and counted; nothing is left of one that fails. */
static neap_status make_entry(neap_dynamic *d, entry *made, neap_error *error) {
  /* What a program costs is measured: kernels' own records have no size that could be asked. */
  int64_t before = neap_memory_read().held_bytes[NEAP_META_BYTES];
  neap_status status = fill(d, made, error);
  if (status != NEAP_OK) {
    entry_fini(d, made);
    return status;
  }
  int64_t bytes = neap_memory_read().held_bytes[NEAP_META_BYTES] - before;
  made->bytes = (size_t)NEAP_MAX(bytes, 0);
  d->stats.cache_bytes += (int64_t)made->bytes;
  d->stats.n_made++;
  return NEAP_OK;
}

/* The program for the types and lengths at hand becomes the current one; the one before lets go of
 * inputs and outputs. On failure the current one stays. */
static neap_status switch_program(neap_dynamic *d, neap_error *error) {
  entry *e = look_up(d);
  if (e == NULL) {
    trim(d, MOST_PROGRAMS - 1);
    entry made = {0};
    NEAP_TRY(make_entry(d, &made, error));
    e = &d->entry[d->n_entry++];
    *e = made;
  }
  if (d->current != NULL && d->current != e) neap_workspace_rest(d->ws, d->current->program);
  d->current = e;
  e->used_at = ++d->clock;
  trim(d, MOST_PROGRAMS); /* what was the current program counts now */
  if (NEAP_DEBUG) check_cache(d);
  return NEAP_OK;
}

/* ---- bodies of loops ------------------------------------------------------------------------- */

/* Whether two lists of lengths of one loop agree where both know them. */
static bool agree(const neap_lengths *a, const neap_lengths *b) {
  if (a->first != b->first) return false;
  for (int k = 0; k < a->n; k++) {
    bool both_known = a->length[k] >= 0 && b->length[k] >= 0;
    if (both_known && a->length[k] != b->length[k]) return false;
  }
  return true;
}

/* What was found, with what an older list knows of the same: branches that did not run this
 * time. */
static void complete(neap_lengths *found, const neap_lengths *older) {
  for (int k = 0; k < found->n; k++)
    if (found->length[k] < 0) found->length[k] = older->length[k];
}

static bool copy_lengths(entry *e, const neap_lengths *from) {
  neap_lengths *to = &e->met[e->n_met];
  *to = *from;
  to->length = neap_alloc((size_t)from->n * sizeof *to->length);
  if (to->length == NULL) return false;
  neap_copy_bytes(to->length, from->length, (size_t)from->n * sizeof *to->length);
  e->n_met++;
  return true;
}

/* The lists of the current program that one more is to have: those that agree with `found` become
 * part of it; beyond MOST_BODIES those that this run has not used go. */
static bool collect_lengths(const neap_dynamic *d, entry *made, const neap_lengths *found) {
  const entry *old = d->current;
  made->met = neap_alloc((size_t)(old->n_met + 1) * sizeof *made->met);
  if (made->met == NULL || !copy_lengths(made, found)) return false;

  /* Other loops' lists stay; of this loop at most MOST_BODIES. */
  int n = 1; /* bodies of this loop: the new one and the old ones */
  for (int m = 0; m < old->n_met; m++) n += old->met[m].first == found->first;
  for (int m = 0; m < old->n_met; m++) {
    const neap_lengths *met = &old->met[m];
    const bool is_same_loop = met->first == found->first;
    if (agree(&made->met[0], met)) {
      complete(&made->met[0], met);
    } else if (is_same_loop && n > MOST_BODIES && !neap_program_used_body(old->program, met)) {
      n--; /* left out */
    } else if (!copy_lengths(made, met)) {
      return false;
    }
  }
  return true;
}

/* A program with a body for what the last run missed takes the current one's place, which is the
 * only one for these types. On failure that stays. */
static neap_status add_body(neap_dynamic *d, const neap_lengths *found, neap_error *error) {
  entry made = {0}, *old = d->current;
  if (!collect_lengths(d, &made, found)) {
    entry_fini(d, &made);
    return refused(error, (size_t)(old->n_met + 1) * sizeof *made.met);
  }

  /* The new program is there before the old one goes, so that a failure changes nothing. */
  d->probe = false;
  NEAP_TRY(make_entry(d, &made, error));
  made.used_at = ++d->clock;
  entry_fini(d, old);
  *old = made; /* in its place, so that d->current still points to it */
  if (NEAP_DEBUG) check_cache(d);
  return NEAP_OK;
}

/* Whether the list says already all that was found of the same loop. */
static bool says(const neap_lengths *met, const neap_lengths *found) {
  if (met->first != found->first) return false;
  for (int k = 0; k < found->n; k++)
    if (found->length[k] >= 0 && found->length[k] != met->length[k]) return false;
  return true;
}

/* Whether no list of the current program says already what was found: else more bodies would not
 * help. */
static bool is_news(const neap_dynamic *d, const neap_lengths *found) {
  for (int m = 0; m < d->current->n_met; m++)
    if (says(&d->current->met[m], found)) return false;
  return true;
}

/* ---- the doors ------------------------------------------------------------------------------- */

neap_status neap_dynamic_new(neap_workspace *ws, const neap_net *net,
                             const neap_compile_options *options, neap_dynamic **out,
                             neap_error *error) {
  /* Copies of all that it will be made from again and again. */
  *out = NULL;
  neap_dynamic *d = neap_alloc_zeroed(sizeof *d);
  if (d == NULL) return refused(error, sizeof *d);
  d->ws = ws;
  neap_status status = neap_net_clone(net, &d->net, error);
  if (status == NEAP_OK) status = copy_options(d, options, error);
  if (status == NEAP_OK) status = find_inputs(d, options, error);
  if (status == NEAP_OK) status = find_extents(d, error);

  /* The first program at once, so that what is wrong with the net is said before any run. */
  if (status == NEAP_OK) status = switch_program(d, error);
  if (status != NEAP_OK) {
    neap_dynamic_free(d);
    return status;
  }
  *out = d;
  return NEAP_OK;
}

/* The shapes that the workspace has now; the declared dtype, so that a wrong one is an error rather
 * than another net. */
static void read_types(neap_dynamic *d) {
  for (int k = 0; k < d->n_input; k++) {
    neap_type type;
    neap_input *input = &d->input[k];
    input->type = d->declared[k];
    if (neap_workspace_type(d->ws, input->name, &type)) input->type.shape = type.shape;
  }
}

/* One run of the program for the types and lengths at hand. What it finds replaces the guesses;
 * what it did not reach stays. */
static neap_status run_once(neap_dynamic *d, bool probe, neap_error *error) {
  d->probe = probe;
  NEAP_TRY(switch_program(d, error));
  neap_status status = neap_workspace_run(d->ws, d->current->program, NULL, error);

  /* Of a failed run too: it may have stopped because of what it found. */
  int n;
  const int64_t *found = neap_program_extents(d->current->program, &n);
  for (int k = 0; k < NEAP_MIN(n, d->n_extent); k++)
    if (found[k] >= 0 && !d->in_loop[k]) d->extent[k] = found[k];
  return status;
}

static int count_known(const neap_dynamic *d) {
  int n = 0;
  for (int k = 0; k < d->n_extent; k++) n += d->extent[k] >= 0;
  return n;
}

/* Probes for as long as they find something. Those of subnets, which may not run at all, and what
 * depends on them no probe finds: with `keep` they are guessed as before. */
static neap_status find_lengths(neap_dynamic *d, bool keep, neap_error *error) {
  /* Probes draw what the run to come will draw, or they would find other lengths. */
  neap_draw draw = neap_workspace_look_draw(d->ws, neap_net_is_step(d->net));
  neap_status status = NEAP_OK;
  neap_copy_bytes(d->guess, d->extent, (size_t)d->n_extent * sizeof *d->guess);
  forget_extents(d);
  neap_workspace_give_draw(d->ws, &draw);

  /* Each probe finds the lengths that depend on no unknown one, so the next one gets further. */
  for (int known = 0; known < d->n_lone;) {
    neap_error own = {0};
    uint64_t before = d->clock;
    status = run_once(d, true, &own);
    /* One that takes a branch for the first time ends behind it: it has found what it could. */
    bool has_program = d->clock > before; /* switch_program counts */
    if (status == NEAP_DATA && has_program && neap_program_is_outgrown(d->current->program))
      status = NEAP_OK;
    if (status != NEAP_OK && error != NULL) *error = own;
    if (status != NEAP_OK || count_known(d) == known) break; /* another probe finds no more */
    known = count_known(d);
  }
  neap_workspace_give_draw(d->ws, NULL);
  for (int k = 0; k < d->n_extent; k++)
    if (keep && d->extent[k] < 0) d->extent[k] = d->guess[k];
  return status;
}

/* After a finished run: whether to guess next time, which pays where lengths repeat. After the
 * first run there is nothing to compare with, and a guess is tried. */
static void judge(neap_dynamic *d) {
  size_t bytes = (size_t)d->n_extent * sizeof *d->extent;
  d->trust = !d->has_run || memcmp(d->previous, d->extent, bytes) == 0;
  d->has_run = true;
  neap_copy_bytes(d->previous, d->extent, bytes);
}

/* Whether a run of the program at hand may succeed with other lengths, so that it is to begin anew:
 * some length was not what it was made for, or it could not be made for lengths that were guessed
 * (`made` false), with which the shapes of this run do not go. */
static bool may_begin_anew(const neap_dynamic *d, neap_status status, bool made, bool guessed) {
  if (!made) return guessed && status != NEAP_INTERRUPTED;
  return status == NEAP_DATA && neap_program_is_outgrown(d->current->program);
}

/* A program that was made for probed lengths and yet finds others rounds otherwise than the probe
 * (ops fused into one), draws other random numbers (behind a loop that the probe left out), or is
 * the first to run a branch; then what it found is taken for true, at most once for each length and
 * once more. */
neap_status neap_dynamic_run(neap_dynamic *d, neap_error *error) {
  read_types(d);
  if (d->n_extent == 0) return run_once(d, false, error);

  /* Lengths that repeat are guessed: a run with a wrong guess costs more than a probe, one with a
   * right guess costs nothing. */
  bool guessed = d->trust || count_known(d) > 0;
  if (!d->trust) NEAP_TRY(find_lengths(d, true, error));

  /* The run itself, until it comes to its end or nothing is to be gained by another one. */
  for (int round = 0;; round++) {
    neap_error own = {0};
    uint64_t before = d->clock;
    neap_status status = run_once(d, false, &own);
    bool made = d->clock > before; /* switch_program counts */
    neap_lengths missed;
    bool same =
      made && memcmp(d->extent, d->current->extent, (size_t)d->n_extent * sizeof *d->extent) == 0;
    /* All lengths outside loops were right, and an iteration found one that no body is for. That is
     * no round: the bodies come to an end by is_news. */
    if (same && status == NEAP_DATA && neap_program_missed(d->current->program, &missed) &&
        is_news(d, &missed)) {
      d->stats.n_restart++;
      round--;
      NEAP_TRY(add_body(d, &missed, error));
      continue;
    }
    /* The end, good or bad: another round would not help. */
    if (round > d->n_extent || !may_begin_anew(d, status, made, guessed)) {
      if (status == NEAP_OK) judge(d);
      d->trust = d->trust && status == NEAP_OK;
      if (status != NEAP_OK && error != NULL && error->code == NEAP_OK) *error = own;
      return status;
    }
    d->stats.n_restart++;
    if (!made) { /* once: what is found from here on belongs together */
      guessed = false;
      round = 0;
    }
    /* A wrong guess is followed by probes; later what the runs themselves find is taken. */
    if (!made || (round == 0 && d->trust)) NEAP_TRY(find_lengths(d, made, error));
  }
}

neap_program *neap_dynamic_program(const neap_dynamic *d) { return d->current->program; }
size_t neap_dynamic_planned_bytes(const neap_dynamic *d) { return d->current->planned_bytes; }

neap_dynamic_stats neap_dynamic_stats_read(const neap_dynamic *d) {
  neap_dynamic_stats stats = d->stats;
  stats.n_program = d->n_entry;
  return stats;
}
