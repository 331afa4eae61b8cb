/* explain.c: a plan in words: what it needs, how good that is, and for one value where its bytes
 * lie, with whom it shares them, before and after, and why. Steps count from 1 here, as everywhere
 * that people read.
 *
 * Every sentence is read off the plan and its graph: a stored plan explains itself as well as one
 * just made. What the words of a reason are is said in plan.h, once.
 */
#include "report/report.h"

#include <string.h>

/* ---- the whole plan -------------------------------------------------------------------------- */

/* Whether value v lies in the arena at the peak, as the first of those that have its bytes then:
 * members of one storage count once. */
static bool is_at_peak(const neap_plan *plan, int v) {
  for (int u = 0; u <= v; u++) {
    const neap_place *place = &plan->place[u];
    bool live = place->region == NEAP_REGION_ARENA && place->first <= plan->peak_step &&
                plan->peak_step <= place->last;
    if (live && place->storage == plan->place[v].storage) return u == v;
  }
  return false;
}

/* What of the arena no value as the user sees it needs: layouts that round channels up, and
 * scratch; where most is live. */
static void explain_padding(const neap_plan *plan, const neap_graph *graph, neap_buffer *out) {
  if (plan->n_node == 0) return;

  /* Counted at the peak alone: padding elsewhere lies in bytes that the arena has anyway. */
  size_t scratch = neap_align(plan->scratch_bytes[plan->order[plan->peak_step]]), padding = 0;
  for (int v = 0; v < plan->n_value; v++) {
    size_t has = neap_align(plan->place[v].bytes),
           plain = neap_align(neap_type_bytes(&graph->value[v].type));
    if (has > plain && is_at_peak(plan, v)) padding += has - plain;
  }

  char a[24], b[24];
  neap_buffer_add(out, "of its peak %s are padding of layouts and %s scratch\n",
                  neap_bytes_text((double)padding, a), neap_bytes_text((double)scratch, b));
}

/* What there is to say of a region's bytes. */
static const char *note_of(const neap_graph *graph, neap_region region) {
  if (region == NEAP_REGION_FRAME)
    return " an iteration: a loop without a maximum grows them at run time";
  if (region == NEAP_REGION_STATE && neap_graph_stops_late(graph))
    return " with copies of what the net updates: an op behind an update may fail, and then all is "
           "put back";
  return "";
}

/* How long planning took, in the unit that shows it: small nets are planned in microseconds.
 * Nothing where it is not known, as of a plan that was read from a text. */
static void explain_time(int64_t ns, neap_buffer *out) {
  const bool is_short = ns < 1000000;
  if (ns > 0)
    neap_buffer_add(out, ", planned in %.1f %s", (double)ns * (is_short ? 1e-3 : 1e-6),
                    is_short ? "us" : "ms");
  neap_buffer_add(out, "\n");
}

/* The figures in the order of their weight: what is needed, how near that is to the least, what it
 * would be without reuse; then how it was found, and the regions. */
static void explain_bytes(const neap_plan *plan, const neap_graph *graph, neap_buffer *out) {
  char a[24], b[24], c[24];
  bool is_pool = plan->policy == NEAP_POLICY_POOL;
  neap_buffer_add(
    out, "%s %s, least for these kernels and this order %s",
    is_pool ? "not planned: peak forecast of the pool" : "arena",
    neap_bytes_text_beside((double)plan->arena_bytes, (double)plan->lower_bound_bytes, a),
    neap_bytes_text_beside((double)plan->lower_bound_bytes, (double)plan->arena_bytes, b));

  /* How near it is to the bound, or that it reaches it. */
  if (plan->proved)
    neap_buffer_add(out, " (proved)");
  else if (plan->lower_bound_bytes > 0)
    neap_buffer_add(out, " (%.4f of the bound)",
                    (double)plan->arena_bytes / (double)plan->lower_bound_bytes);
  neap_buffer_add(out, ", without reuse %s\n", neap_bytes_text((double)plan->baseline_bytes, c));
  explain_padding(plan, graph, out);
  neap_buffer_add(out, "policy %s, executor %s, ", neap_policy_name(plan->policy),
                  neap_executor_name(plan->executor));
  if (is_pool)
    neap_buffer_add(out, "addresses found while running");
  else
    neap_buffer_add(out, "packed by %s", plan->packer);
  explain_time(plan->plan_ns, out);

  /* A pool may have to give up values and make them again, which costs work. */
  if (plan->script.n_turn > 0)
    neap_buffer_add(out,
                    "evicts %d values (%s) and runs %d ops again to make them anew, %.0f %% of the "
                    "work of a run\n",
                    plan->script.n_evicted, neap_bytes_text((double)plan->script.evicted_bytes, a),
                    plan->script.n_recomputed, 100 * plan->script.recomputed_work);

  /* The same bank by bank, where the device has several. */
  for (int i = 0; i < plan->n_bank; i++) {
    neap_buffer_add(out, "  bank %-7s %10s", graph->bank[i].name,
                    neap_bytes_text((double)plan->bank[i].bytes, a));
    if (graph->bank[i].bytes > 0) /* it has a limit */
      neap_buffer_add(out, " of %s", neap_bytes_text((double)graph->bank[i].bytes, b));
    neap_buffer_add(out, ", least for these kernels and this order %s\n",
                    neap_bytes_text((double)plan->bank[i].lower_bound_bytes, c));
  }

  /* What else the net needs, so that the figures add up to all of its bytes. */
  for (int r = 0; r < NEAP_N_REGION; r++)
    if (plan->region_bytes[r] > 0)
      neap_buffer_add(out, "  %-12s %10s%s\n", neap_region_name((neap_region)r),
                      neap_bytes_text((double)plan->region_bytes[r], a),
                      note_of(graph, (neap_region)r));
}

enum { N_COLUMN = 60 };

/* Bytes live over the steps, as a line of blocks: each column shows the most among its steps. */
static void explain_curve(const neap_plan *plan, neap_buffer *out) {
  static const char *const blocks[] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  int n = NEAP_MIN(plan->n_node, N_COLUMN);
  if (plan->lower_bound_bytes == 0) return; /* nothing is live, and there is no scale */
  neap_buffer_add(out, "memory over one run  ");
  for (int column = 0; column < n; column++) {
    int64_t from = (int64_t)column * plan->n_node / n,
            to = (int64_t)(column + 1) * plan->n_node / n;
    size_t most = 0;
    for (int64_t step = from; step < to; step++) most = NEAP_MAX(most, plan->live_bytes[step]);

    /* The bound is the most bytes live in any step, so that the highest block is the peak. */
    double part = (double)most / (double)plan->lower_bound_bytes * (NEAP_COUNT(blocks) - 1);
    int level = (int)(part + 0.5);
    neap_buffer_add(out, "%s", blocks[NEAP_MIN(level, NEAP_COUNT(blocks) - 1)]);
  }
  neap_buffer_add(out, "\n");
}

/* How many values got their place for which reason, and their bytes, shared ones counted for
 * each. */
static void explain_reasons(const neap_plan *plan, neap_buffer *out) {
  /* As many as there can ever be reasons: the list in plan.h is far shorter. */
  int count[64] = {0};
  size_t bytes[64] = {0};
  char text[24];
  for (int v = 0; v < plan->n_value; v++) {
    if (plan->place[v].region != NEAP_REGION_ARENA) continue;
    count[plan->place[v].reason]++;
    bytes[plan->place[v].reason] += plan->place[v].bytes;
  }
  for (int r = 0; r < NEAP_COUNT(count); r++)
    if (count[r] > 0)
      neap_buffer_add(out, "  %5d %s %10s  %s: %s\n", count[r], count[r] == 1 ? "value " : "values",
                      neap_bytes_text((double)bytes[r], text), neap_reason_code((neap_reason)r),
                      neap_reason_words((neap_reason)r));
}

enum { N_LARGEST = 10 };

/* Storages of the arena by size, each by its first value; insertion into a short list, as in
 * plan/live_at.c. */
static void explain_largest(const neap_plan *plan, const neap_graph *graph, neap_buffer *out) {
  int best[N_LARGEST], n = 0;
  char text[24], shape[NEAP_SHAPE_TEXT];
  for (int v = 0; v < plan->n_value; v++) {
    size_t bytes = plan->place[v].bytes;
    if (plan->place[v].region != NEAP_REGION_ARENA || bytes == 0 || plan->place[v].storage != v)
      continue;

    /* A full list takes it in the place of its smallest. */
    if (n == N_LARGEST && bytes <= plan->place[best[n - 1]].bytes) continue;
    int at = n < N_LARGEST ? n++ : n - 1;

    /* The rest moves down; equal ones stay in the order of definition. */
    for (; at > 0 && plan->place[best[at - 1]].bytes < bytes; at--) best[at] = best[at - 1];
    best[at] = v;
  }

  neap_buffer_add(out, "largest\n");
  for (int i = 0; i < n; i++) {
    const neap_value *value = &graph->value[best[i]];
    const neap_place *place = &plan->place[best[i]];
    neap_buffer_add(out, "  %10s  at %-12zu %-28s %-5s %-20s steps %d-%d\n",
                    neap_bytes_text((double)place->bytes, text), place->offset,
                    neap_plan_name(graph, best[i]), neap_dtype_name(value->type.dtype),
                    neap_shape_text(&value->type.shape, shape), place->first + 1, place->last + 1);
  }
}

/* How often each rule of fusion was applied; plan:rewrites() lists them one by one. */
static void explain_rewrites(const neap_graph *graph, neap_buffer *out) {
  for (int i = 0; i < graph->n_rewrite; i++) {
    const char *rule = graph->rewrite[i].rule;

    /* Each rule is told where it comes first, with all that follow. */
    bool told = false;
    for (int k = 0; k < i; k++)
      if (strcmp(graph->rewrite[k].rule, rule) == 0) told = true;
    if (told) continue;

    /* How often from here on, and what it has saved. */
    int n = 0;
    size_t bytes = 0;
    for (int k = i; k < graph->n_rewrite; k++) {
      if (strcmp(graph->rewrite[k].rule, rule) != 0) continue;
      n++;
      bytes += graph->rewrite[k].saved_bytes;
    }
    char text[24];
    neap_buffer_add(out, "fused: %d times %s, %s of values gone\n", n, rule,
                    neap_bytes_text((double)bytes, text));
  }
}

static void explain_recompute(const neap_graph *graph, neap_buffer *out) {
  double share;
  int n = neap_plan_recomputed(graph, &share);
  if (n > 0)
    neap_buffer_add(
      out, "recomputed: %d of %d ops run again in the backward pass, about %.0f %% more work\n", n,
      graph->n_node - n, 100 * share);
}

static void explain_changed(const neap_plan *plan, const neap_graph *graph, neap_buffer *out) {
  int n = neap_plan_changed(graph), told = 0;
  if (n == 0) return;

  /* What the user asked for is the reason: a dag's kernels have one thread, a budget's less
   * scratch. */
  neap_buffer_add(
    out, "other kernels than %s, so other bits: %d of %d ops",
    plan->executor == NEAP_EXECUTOR_DAG ? "executor \"simple\" has" : "without the budget", n,
    graph->n_node);

  /* A few names say which part of the net it is; the rows have them all. */
  for (int i = 0; i < graph->n_node; i++) {
    if (!graph->node[i].choice.changed) continue;
    if (told == 4) break;
    neap_buffer_add(out, "%s %s", told > 0 ? "," : ":", graph->node[i].name);
    told++;
  }
  neap_buffer_add(out, "%s\n", told < n ? ", ..." : "");
}

/* The slow way of halves: said once, since no option changes it. */
static void explain_widened(const neap_plan *plan, const neap_graph *graph, neap_buffer *out) {
  int n = neap_plan_widened(graph);
  if (n == 0) return;
  neap_buffer_add(out,
                  "bf16 and f16 are computed in f32 by %d of %d ops: there are no kernels for them "
                  "on this processor\n",
                  n, plan->n_node);
}

static void explain_plan(const neap_plan *plan, const neap_graph *graph, neap_buffer *out) {
  neap_buffer_add(out, "%s: %d ops, %d values\n", graph->name != NULL ? graph->name : "net",
                  plan->n_node, plan->n_value);
  explain_bytes(plan, graph, out);
  explain_curve(plan, out);
  explain_rewrites(graph, out);
  explain_recompute(graph, out);
  explain_changed(plan, graph, out);
  explain_widened(plan, graph, out);
  explain_reasons(plan, out);
  explain_largest(plan, graph, out);
  neap_report_peak(plan, graph, out);
}

/* ---- one value ------------------------------------------------------------------------------- */

/* The value of another storage in the same bytes that was read last before `v`, or is written first
 * after it; -1: none. */
static int neighbour(const neap_plan *plan, int v, bool before) {
  const neap_place *place = &plan->place[v];
  int best = -1;
  for (int w = 0; w < plan->n_value; w++) {
    const neap_place *other = &plan->place[w];
    if (other->region != NEAP_REGION_ARENA || other->storage == place->storage) continue;
    if (!neap_places_meet(place, other)) continue;

    /* The nearest in time of those on the side that is asked for. */
    if (before) {
      if (other->last >= place->first) continue;
      if (best < 0 || other->last > plan->place[best].last) best = w;
    } else {
      if (other->first <= place->last) continue;
      if (best < 0 || other->first < plan->place[best].first) best = w;
    }
  }
  return best;
}

/* The nearest in time only: a long list of tenants helps nobody. In a dag "before" holds in every
 * schedule, since packing went by paths. */
static void explain_neighbours(const neap_plan *plan, const neap_graph *graph, int v,
                               neap_buffer *out) {
  int before = neighbour(plan, v, true), after = neighbour(plan, v, false);
  const char *path = plan->executor == NEAP_EXECUTOR_DAG ? " in every schedule" : "";

  /* Whose bytes it takes over. */
  if (before >= 0)
    neap_buffer_add(out,
                    "Shares bytes with %s (steps %d-%d) before it: that has been read for the last "
                    "time%s when this is written.\n",
                    neap_plan_name(graph, before), plan->place[before].first + 1,
                    plan->place[before].last + 1, path);

  /* Who takes over its bytes. */
  if (after >= 0)
    neap_buffer_add(out,
                    "Shares bytes with %s (steps %d-%d) after it: written when %s has been read "
                    "for the last time%s.\n",
                    neap_plan_name(graph, after), plan->place[after].first + 1,
                    plan->place[after].last + 1, neap_plan_name(graph, v), path);
  if (before < 0 && after < 0) neap_buffer_add(out, "No other storage shares its bytes.\n");
}

/* Those of its own storage: what it overwrites or views, and what overwrites or views it. */
static void explain_chain(const neap_plan *plan, const neap_graph *graph, int v, neap_buffer *out) {
  const neap_place *place = &plan->place[v];

  /* The one that it lies in the bytes of. */
  bool linked = place->reason == NEAP_REASON_ALIAS || place->reason == NEAP_REASON_IN_PLACE ||
                place->reason == NEAP_REASON_VERSION;
  if (linked && place->partner >= 0)
    neap_buffer_add(out, "It %s (%s: %s).\n", neap_reason_words(place->reason),
                    neap_reason_code(place->reason), neap_plan_name(graph, place->partner));

  /* And those whose partner it is, from the other side. */
  for (int w = 0; w < plan->n_value; w++) {
    const neap_place *other = &plan->place[w];
    if (other->partner != v || other->storage != place->storage || w == v) continue;
    if (other->reason == NEAP_REASON_IN_PLACE)
      neap_buffer_add(out, "%s is computed in place over it at step %d.\n",
                      neap_plan_name(graph, w), other->first + 1);
    else if (other->reason == NEAP_REASON_ALIAS)
      neap_buffer_add(out, "%s is a view of it.\n", neap_plan_name(graph, w));
    else if (other->reason == NEAP_REASON_VERSION)
      neap_buffer_add(out, "Step %d writes its next version, %s.\n", other->first + 1,
                      neap_plan_name(graph, w));
  }
}

/* Resident, the value would cost its own bytes. What the arena then takes, only planning again
 * tells. */
static void explain_keep(const neap_plan *plan, const neap_graph *graph, int v, neap_buffer *out) {
  /* Only the last version of a blob can be kept: that is what the user sees of it after a run. */
  const neap_place *place = &plan->place[v];
  char text[24];
  if (place->region != NEAP_REGION_ARENA || !graph->value[v].is_blob || !graph->value[v].is_last)
    return;
  neap_buffer_add(out,
                  "keep = {\"%s\"} would cost %s of its own, beside what the arena then takes.\n",
                  neap_plan_name(graph, v), neap_bytes_text((double)place->bytes, text));
}

/* What gives a value up and makes it again, so that the reader of one finds the other. */
static void explain_recomputed(const neap_plan *plan, const neap_graph *graph, int v,
                               neap_buffer *out) {
  /* A recomputed node has the outputs of the first one, in the same positions. */
  int maker = graph->value[v].node, position = graph->value[v].position;
  if (maker < 0) return;

  /* Seen from the second time it is made. */
  if (graph->node[maker].recomputes > 0)
    neap_buffer_add(
      out, "It is %s, made again for the backward pass: keeping it would exceed the budget.\n",
      graph->value[graph->node[graph->node[maker].recomputes - 1].out[position]].name);

  /* Seen from the first: who makes it again comes later. */
  for (int n = maker + 1; n < graph->n_node; n++) {
    if (graph->node[n].recomputes != maker + 1) continue;
    int twin = graph->node[n].out[position];
    neap_buffer_add(
      out, "It is not kept for the backward pass, which makes it again as %s (steps %d-%d).\n",
      graph->value[twin].name, plan->place[twin].first + 1, plan->place[twin].last + 1);
  }
}

/* Type, size and place; life; maker; then links within the storage, neighbours in the bytes, and
 * what keeping it would cost. */
static void explain_value(const neap_plan *plan, const neap_graph *graph, int v, neap_buffer *out) {
  const neap_value *value = &graph->value[v];
  const neap_place *place = &plan->place[v];
  char text[24], shape[NEAP_SHAPE_TEXT];
  neap_buffer_add(out, "%s %s %s, %s", neap_plan_name(graph, v),
                  neap_shape_text(&value->type.shape, shape), neap_dtype_name(value->type.dtype),
                  neap_bytes_text((double)place->bytes, text));

  /* The address, which in the arena is the plan's, elsewhere the region's affair. */
  if (place->region == NEAP_REGION_ARENA)
    neap_buffer_add(out, " at offset %zu (%s)", place->offset,
                    neap_bytes_text((double)place->offset, text));
  else
    neap_buffer_add(out, " in %s", neap_region_name(place->region));

  /* What exists before the run has no step that makes it. */
  if (place->first < 0)
    neap_buffer_add(out, ", exists before the run");
  else
    neap_buffer_add(out, ", steps %d-%d", place->first + 1, place->last + 1);

  /* Its maker, and the line where that was written. */
  if (value->node >= 0) {
    const neap_node *node = &graph->node[value->node];
    neap_buffer_add(out, ", made by %s \"%s\"", node->op->name,
                    node->name != NULL ? node->name : "?");
    if (node->line != NULL && node->line[0] != '\0') neap_buffer_add(out, " %s", node->line);
  }
  neap_buffer_add(out, ".\n");

  /* What it shares its bytes with, the closest first: itself made twice, its own storage, other
   * storages. */
  explain_recomputed(plan, graph, v, out);
  explain_chain(plan, graph, v, out);

  /* Only in the arena do others come and go; elsewhere the reason is the region itself. */
  if (place->region == NEAP_REGION_ARENA) {
    explain_neighbours(plan, graph, v, out);
    if (place->refusal != NEAP_REFUSAL_NONE)
      neap_buffer_add(out, "Not in place: %s.\n", neap_refusal_words(place->refusal));
  } else {
    neap_buffer_add(
      out, "It %s.\n",
      neap_reason_words(place->region == NEAP_REGION_ARGUMENT ? NEAP_REASON_ARGUMENT
                                                              : NEAP_REASON_RESIDENT));
  }
  explain_keep(plan, graph, v, out);
}

/* -1, or any number that is no value: the whole plan. */
void neap_report_explain(const neap_plan *plan, const neap_graph *graph, int value,
                         neap_buffer *out) {
  if (value >= 0 && value < plan->n_value)
    explain_value(plan, graph, value, out);
  else
    explain_plan(plan, graph, out);
}
