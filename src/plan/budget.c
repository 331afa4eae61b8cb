/* budget.c: a budget is a promise: an arena above it is refused with what is needed and what stands
 * in the way.
 *
 * It bounds the arena (under policy `pool` the pool), and a total the arena with all that lies
 * beside it. The refusal is one message that a user can act on: the least bytes that the order and
 * kernels tried last need, the step where the most is live, and the blobs that live there, largest
 * first. The same lies in the error record for callers that go on from there. A total is spoken of
 * as a total: what of it is fixed, and what that leaves the arena.
 *
 * INVARIANT: a plan that passes never needs more than the budget, whatever data come: loops whose
 * frames grow are refused.
 */
#include "pack/pack.h"
#include "plan/plan_int.h"

#include <stdio.h>

enum { N_NAMED = 4 }; /* blobs in a message */

/* A loop without a maximum takes as much as its condition asks for: that can't be promised. */
static const neap_node *growing_loop(const neap_graph *graph) {
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    if (node->loop != NULL && node->loop->grows) return node;
    for (int s = 0; s < node->n_sub; s++) {
      const neap_node *inner = growing_loop(node->sub[s]);
      if (inner != NULL) return inner;
    }
  }
  return NULL;
}

/* BUDGET error at the loop's line. Within a maximum the frames would be part of the arena, so that
 * is the hint. */
static neap_status refuse_growth(const neap_node *node, const neap_limit *limit,
                                 neap_error *error) {
  /* The record says which limit and how many bytes; the line is the loop's, because that is what a
   * user has to change. */
  char asked[24], record[24];
  neap_error refused = {.limit = limit->is_total ? "total" : "budget",
                        .limit_bytes = (int64_t)limit->bytes};
  neap_hint(&refused, "give the loop max = n: its frames are planned then");
  snprintf(refused.line, sizeof refused.line, "%s", node->line != NULL ? node->line : "");
  return neap_fail_budget(
    error, &refused,
    "%s \"%s\" has no maximum of iterations: training through it takes %s for each, and no %s (%s) "
    "can be promised",
    node->op->name, node->name, neap_bytes_text((double)node->loop->record_bytes, record),
    refused.limit, neap_bytes_text((double)limit->bytes, asked));
}

int neap_plan_changed(const neap_graph *graph) {
  int n = 0;
  for (int i = 0; i < graph->n_node; i++) {
    if (graph->node[i].choice.changed) n++;
    for (int s = 0; s < graph->node[i].n_sub; s++) n += neap_plan_changed(graph->node[i].sub[s]);
  }
  return n;
}

int neap_plan_widened(const neap_graph *graph) {
  int n = 0;
  for (int i = 0; i < graph->n_node; i++) {
    if (graph->node[i].choice.is_widened || graph->node[i].choice.twin_bytes > 0) n++;
    for (int s = 0; s < graph->node[i].n_sub; s++) n += neap_plan_widened(graph->node[i].sub[s]);
  }
  return n;
}

/* ---- what is said ---------------------------------------------------------------------------- */

size_t neap_limit_fixed(const neap_limit *limit) {
  size_t bytes = 0;
  for (int i = 0; i < limit->n_fixed; i++) bytes += (size_t)limit->fixed[i].bytes;
  return bytes;
}

/* ": parameters 1.0 KiB, gradients 1.0 KiB leave the arena 2.0 KiB of 3.0 KiB": what became of a
 * total. */
static void add_fixed(const neap_limit *limit, const char *what, size_t need, neap_buffer *out) {
  /* First what is fixed, one by one, since a user may be able to give some of it up. */
  char text[24], rest[24];
  const size_t fixed = neap_limit_fixed(limit);
  const double left = limit->bytes > fixed ? (double)(limit->bytes - fixed) : 0;
  for (int i = 0; i < limit->n_fixed; i++)
    neap_buffer_add(out, "%s%s %s", i > 0 ? ", " : ": ", limit->fixed[i].name,
                    neap_bytes_text((double)limit->fixed[i].bytes, text));

  /* Then what that leaves of the total, beside what is needed: with as many digits as tell the two
   * apart. */
  if (need == 0 || limit->n_fixed == 0) return;
  neap_buffer_add(out, " leave the %s %s of the %s that it needs", what,
                  neap_bytes_text_beside(left, (double)need, text),
                  neap_bytes_text_beside((double)need, left, rest));
}

neap_status neap_plan_refuse(const neap_graph *graph, const neap_limit *limit, const char *what,
                             size_t need, const char *why, neap_error *refused, neap_error *error) {
  /* A total is spoken of as a total: what would do holds all that is fixed as well. */
  size_t least = need;
  if (limit->is_total) least += neap_limit_fixed(limit);

  /* The record, for callers that go on from there. */
  refused->limit = limit->is_total ? "total" : "budget";
  refused->limit_bytes = (int64_t)limit->bytes;
  refused->least_bytes = (int64_t)least;
  neap_buffer of_it = {0};
  if (limit->is_total) {
    for (int i = 0; i < limit->n_fixed; i++)
      neap_refused_fixed(refused, limit->fixed[i].name, (size_t)limit->fixed[i].bytes);
    add_fixed(limit, what, need, &of_it);
  }

  /* The same in one sentence, for people. */
  char text[24], asked[24];
  neap_fail_budget(error, refused, "least %s for \"%s\" is %s%s, the %s %s%s%s%s",
                   limit->is_total ? "total" : what, graph->name != NULL ? graph->name : "net",
                   neap_bytes_text_beside((double)least, (double)limit->bytes, text),
                   need == 0 ? ", all of it beside the arena" : "",
                   limit->is_total ? "total is" : "budget",
                   neap_bytes_text_beside((double)limit->bytes, (double)least, asked),
                   of_it.text != NULL ? of_it.text : "", why[0] != '\0' ? "; " : "", why);
  neap_buffer_fini(&of_it);
  return NEAP_BUDGET;
}

/* Room for more than the record keeps would be of no use: the list of a bank leaves out what lies
 * elsewhere. Where memory for the list is refused, nobody is named: the refusal stands as it is. */
static void name_live(const neap_plan *plan, const neap_graph *graph, int bank, int step,
                      neap_error *refused) {
  int value[NEAP_MOST_NAMED];
  int n = neap_plan_live_at(plan, graph, bank, step, NEAP_MOST_NAMED, value);
  for (int i = 0; i < n; i++)
    neap_refused_blob(refused, graph->value[value[i]].name, plan->place[value[i]].bytes);
}

void neap_plan_name_peak(const neap_plan *plan, const neap_graph *graph, neap_error *refused) {
  if (plan->n_node > 0) name_live(plan, graph, -1, plan->peak_step, refused);
}

static void set_where(const neap_node *node, neap_error *refused) {
  if (node->line != NULL) snprintf(refused->line, sizeof refused->line, "%s", node->line);
  if (node->scope != NULL) snprintf(refused->scope, sizeof refused->scope, "%s", node->scope);
}

/* "in the way at step 20 (fc1, net.lua:3): h 8.0 KiB, scratch 1.0 KiB": the peak is where something
 * would have to go. */
static void add_peak(const neap_plan *plan, const neap_graph *graph, const neap_error *refused,
                     neap_buffer *out) {
  /* The op whose step it is, with its line where the net has one. */
  const int at = plan->order[plan->peak_step];
  const neap_node *node = &graph->node[at];
  const bool has_line = node->line != NULL && node->line[0] != '\0';
  char text[24];
  neap_buffer_add(out, "in the way at step %d (%s%s%s): ", plan->peak_step + 1,
                  node->name != NULL ? node->name : "?", has_line ? ", " : "",
                  has_line ? node->line : "");

  /* The largest few of the blobs; the record has more of them. */
  int n_named = NEAP_MIN(refused->n_blob, (int)N_NAMED);
  for (int i = 0; i < n_named; i++)
    neap_buffer_add(out, "%s%s %s", i > 0 ? ", " : "", refused->blobs[i].name,
                    neap_bytes_text((double)refused->blobs[i].bytes, text));
  if (plan->scratch_bytes[at] > 0)
    neap_buffer_add(out, "%sscratch %s", refused->n_blob > 0 ? ", " : "",
                    neap_bytes_text((double)plan->scratch_bytes[at], text));
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* Called when everything has been tried: what is said to be least is so for this order and these
 * kernels. */
neap_status neap_plan_check_budget(const neap_plan *plan, const neap_graph *graph,
                                   const neap_limit *limit, neap_error *error) {
  if (limit->bytes == 0) return NEAP_OK;

  /* Frames that grow at run time have no most: whatever the arena is, nothing can be promised. */
  if (plan->region_bytes[NEAP_REGION_FRAME] > 0)
    return refuse_growth(growing_loop(graph), limit, error);
  NEAP_ASSERT(growing_loop(graph) == NULL,
              "no loop of \"%s\" takes more than the plan says: its frames do not grow",
              graph->name);

  /* Of a budget the arena alone; of a total also what lies beside it, and what another program
   * needs of the arena they share. */
  size_t arena = plan->arena_bytes, need = arena, fixed = 0;
  if (limit->is_total) {
    need = NEAP_MAX(arena, limit->least_arena);
    fixed = neap_limit_fixed(limit);
  }
  if (need + fixed <= limit->bytes) return NEAP_OK;

  /* Too much: who lives at the peak, in the message and in the record. */
  neap_error refused = {0};
  neap_buffer why = {0};
  if (arena > 0) { /* without an arena no step is in the way */
    neap_plan_name_peak(plan, graph, &refused);
    add_peak(plan, graph, &refused, &why);
    set_where(&graph->node[plan->order[plan->peak_step]], &refused);
  }
  neap_plan_refuse(graph, limit, plan->policy == NEAP_POLICY_POOL ? "pool" : "arena", need,
                   why.text != NULL ? why.text : "", &refused, error);
  neap_buffer_fini(&why);
  return NEAP_BUDGET;
}

/* The step of the most bytes live in bank `b`: of its storages, each from its first member to its
 * last, and its nodes' scratch. */
static neap_status bank_peak(const neap_plan *plan, const neap_graph *graph, int b, neap_peak *peak,
                             neap_error *error) {
  /* A plan keeps the live bytes of the whole arena only, so those of one bank are counted here,
   * from its places. */
  int n = plan->n_value;
  neap_interval *life = neap_alloc_zeroed(((size_t)n + (size_t)plan->n_node + 1) * sizeof *life);
  if (life == NULL) return neap_fail_memory(error, (size_t)n * sizeof *life, "the lives in a bank");

  /* At its root's number, each storage from its first member's step to its last's; all others are
   * left as intervals of no bytes, which live nowhere. */
  for (int v = 0; v < plan->n_value; v++) {
    const neap_place *place = &plan->place[v];
    if (place->region != NEAP_REGION_ARENA || graph->value[v].bank != b || place->first < 0)
      continue;
    neap_interval *storage = &life[place->storage];
    if (storage->bytes == 0) *storage = (neap_interval){place->first, place->last, 0};
    storage->first = NEAP_MIN(storage->first, place->first);
    storage->last = NEAP_MAX(storage->last, place->last);
    storage->bytes = NEAP_MAX(storage->bytes, neap_align(place->bytes));
  }

  /* Scratch lives while its node runs. */
  for (int i = 0; i < plan->n_node; i++) {
    int node = plan->order[i];
    if (graph->node[node].bank == b)
      life[n++] = (neap_interval){i, i, neap_align(plan->scratch_bytes[node])};
  }
  neap_status status = neap_interval_peak(n, life, peak, error);
  NEAP_ASSERT(status != NEAP_OK || plan->executor == NEAP_EXECUTOR_DAG ||
                peak->bytes == plan->bank[b].lower_bound_bytes,
              "the most bytes live in bank \"%s\", %zu, are its bound, %zu", graph->bank[b].name,
              peak->bytes, plan->bank[b].lower_bound_bytes);
  neap_free(life);
  return status;
}

static neap_status refuse_bank(const neap_plan *plan, const neap_graph *graph, int b,
                               neap_error *error) {
  /* The step at which the most of this bank is live: something would have to go there. */
  const neap_bank *bank = &graph->bank[b];
  neap_peak peak;
  NEAP_TRY(bank_peak(plan, graph, b, &peak, error));
  const int step = (int)peak.step;
  const neap_node *node = &graph->node[plan->order[step]];

  /* Who lives there then, with the largest in the message. */
  char need[24], has[24], most[24], largest[160] = "";
  neap_error refused = {.limit = "bank",
                        .bank = bank->name,
                        .limit_bytes = bank->bytes,
                        .least_bytes = (int64_t)plan->bank[b].bytes};
  name_live(plan, graph, b, step, &refused);
  set_where(node, &refused);
  if (refused.n_blob > 0)
    snprintf(largest, sizeof largest, ", the largest \"%.80s\" with %s", refused.blobs[0].name,
             neap_bytes_text((double)refused.blobs[0].bytes, most));
  neap_hint(&refused, "bytes = %lld would do, or assign fewer ops or blobs to \"%s\"",
            (long long)refused.least_bytes, bank->name);
  return neap_fail_budget(
    error, &refused,
    "bank \"%s\" has %s, \"%s\" needs at least %s of it; in the way at step %d (%s)%s", bank->name,
    neap_bytes_text_beside((double)bank->bytes, (double)plan->bank[b].bytes, has), graph->name,
    neap_bytes_text_beside((double)plan->bank[b].bytes, (double)bank->bytes, need), step + 1,
    node->name, largest);
}

neap_status neap_plan_check_banks(const neap_plan *plan, const neap_graph *graph,
                                  neap_error *error) {
  for (int b = 0; b < plan->n_bank; b++) {
    size_t limit = (size_t)graph->bank[b].bytes;
    if (limit > 0 && plan->bank[b].bytes > limit) return refuse_bank(plan, graph, b, error);
  }
  return NEAP_OK;
}
