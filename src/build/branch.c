/* branch.c: branches of an If in which lengths depend on data. A branch's lengths are known only
 * once it has run, and it may never run; so one with an unknown length is built as no more than
 * what finds it, as a probe is (probe.c), and its results stand in with the types that the other
 * branch gives. Nothing is checked against a length that nobody knows. When such a branch is run,
 * the run ends behind it and begins anew with the lengths that it has found (program/control.c).
 *
 * Where neither branch can say what the If gives, a probe takes that for unknown, and what reads it
 * is left out; any other graph tries types out: with each unknown length as its bound, then as one,
 * which goes with whatever it meets.
 *
 * INVARIANT: lengths behind a branch have the numbers that they have whatever it found.
 */
#include "build/build_int.h"

static bool is_loop(const neap_op *op) { return (op->effects & NEAP_EFFECT_LOOP) != 0; }

bool graph_is_partial(const neap_net *net, const int64_t *length, int n, int *at) {
  bool partial = false;
  for (int i = 0; i < neap_net_n_ops(net); i++) {
    const neap_net_op *op = neap_net_op_at(net, i);
    const neap_net *inner = neap_net_do_body(op);
    /* The ops of a Do are the net's. */
    if (inner != NULL) {
      if (graph_is_partial(inner, length, n, at)) partial = true;
      continue;
    }
    if ((op->op->effects & NEAP_EFFECT_EXTENT) != 0) {
      if (*at >= n || length[*at] < 0) partial = true;
      ++*at;
    }
    /* Every subnet is walked, so that *at ends behind them all, whatever is known by then. */
    int n_partial = 0;
    for (int a = 0; a < neap_op_n_attrs(op->op); a++) {
      const neap_net *sub = op->op->attrs[a].type == NEAP_ATTR_NET ? op->attrs[a].net : NULL;
      if (sub == NULL) continue;
      if (is_loop(op->op))
        *at += neap_graph_count_extents(sub);
      else
        n_partial += graph_is_partial(sub, length, n, at);
    }
    /* A branch that is not taken finds nothing, so that one alone says nothing of the If. */
    if (n_partial > 1) partial = true;
  }
  return partial;
}

bool build_is_partial(const neap_builder *b, const neap_net *net) {
  if (net == NULL || b->options->n_extent == 0 || b->trial != BUILD_NO_TRIAL ||
      (b->in_loop && b->met == NULL))
    return false;
  /* In a body the lengths are those of one iteration, numbered from the body's first. */
  int at = b->in_body ? *b->n_extent - b->met->first : *b->n_extent;
  return b->in_body ? graph_is_partial(net, b->met->length, b->met->n, &at)
                    : graph_is_partial(net, b->options->extent, b->options->n_extent, &at);
}

/* Whether a build that fails so may succeed for other lengths. */
static bool is_of_shapes(neap_status status) {
  return status == NEAP_SHAPE || status == NEAP_ATTRIBUTE;
}

/* One build, from where the numbers are: the same again for each. */
static neap_status try_once(neap_builder *b, const neap_sub_spec *spec, int n_extent,
                            neap_graph **out, neap_error *error) {
  *b->n_extent = n_extent;
  *error = (neap_error){0};
  neap_status status = build_sub(b, spec, out, error);
  *b->n_extent = n_extent + neap_graph_count_extents(spec->net);
  return status;
}

neap_status build_try(neap_builder *b, neap_sub_spec *spec, neap_graph **out, neap_error *error) {
  /* Bounds first: they are what any length fits into, and where they go together their types are
   * the ones that later checks expect. */
  int n_extent = *b->n_extent;
  neap_error first, other;
  spec->trial = BUILD_BOUND;
  neap_status status = try_once(b, spec, n_extent, out, &first);

  /* The bounds did not go together, or this is skipped: ones, then, for a backward, zeros. */
  spec->trial = BUILD_ONE;
  for (int k = 0; k < 2; k++) {
    if (!is_of_shapes(status)) break;
    spec->is_blank = k == 1;
    /* A forward has no zeros to fall back on: its first error stands. */
    if (spec->is_blank && spec->n_seed == 0) break;
    /* Another failure than of shapes would come with any lengths, and ends the search. */
    neap_status again = try_once(b, spec, n_extent, out, &other);
    if (is_of_shapes(again)) continue;
    status = again;
    first = other;
  }
  spec->is_blank = false;
  spec->trial = BUILD_NO_TRIAL;
  if (status != NEAP_OK && error != NULL) *error = first; /* bounds are what users know of */
  return status;
}
