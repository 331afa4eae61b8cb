/* verify_loop.c: an independent check of a loop's own bytes and of its frames, for verify.c. Shares
 * no code with what lays them out (graph/loop.c, build).
 *
 * A frame is a record of items, one for each value of an iteration that the backward pass will
 * read. Items lie apart, each kept value of the body lies at its item, and both halves of a loop
 * see the same record.
 */
#include "plan/plan_int.h"

/* The items of a loop's frames: aligned, apart, in the record, those of states first. */
static neap_status check_items(const neap_graph *graph, const neap_node *node, neap_error *error) {
  const neap_loop *l = node->loop;

  /* Two by two: items are few. */
  for (int i = 0; i < l->n_item; i++) {
    const neap_frame_item *a = &l->item[i];
    if (a->offset % NEAP_ALIGN != 0 || a->offset > l->record_bytes ||
        a->bytes > l->record_bytes - a->offset)
      return neap_fail(error, NEAP_PLAN, "item %d of the frames of \"%s\" lies outside the record",
                       i, node->name);
    for (int j = 0; j < i; j++) {
      const neap_frame_item *b = &l->item[j];
      if (a->offset < b->offset + b->bytes && b->offset < a->offset + a->bytes)
        return neap_fail(error, NEAP_PLAN, "items %d and %d of the frames of \"%s\" share bytes", j,
                         i, node->name);
    }
  }

  /* A state in frames has room in its item, and lies in the part of the record that is held once
   * more than there are iterations. */
  for (int s = 0; s < l->n_state; s++) {
    int item = l->state[s].item;
    if (item < 0) continue;
    if (l->is_backward || item >= l->n_item || l->item[item].bytes < l->state[s].bytes ||
        l->item[item].offset + l->item[item].bytes > l->state_bytes)
      return neap_fail(error, NEAP_PLAN, "state %d of \"%s\" does not fit its item of the frames",
                       s, node->name);
  }

  /* The operand holds its head and, unless they grow elsewhere, the records of all iterations. */
  if (l->frames < 0) return NEAP_OK;
  int v = l->frames < node->n_in ? node->in[l->frames] : node->out[l->frames - node->n_in];
  size_t records = l->grows ? 0 : (size_t)l->max * l->record_bytes + l->state_bytes;
  if (v < 0 || graph->value[v].bytes < NEAP_ALIGN + records)
    return neap_fail(error, NEAP_PLAN, "the frames of \"%s\" do not hold %lld iterations",
                     node->name, (long long)l->max);
  return NEAP_OK;
}

/* Each kept value of a body lies at its item, and is as large as the other half of the loop takes
 * it to be. */
neap_status neap_plan_verify_kept(const neap_node *node, const neap_plan *plan,
                                  const neap_graph *body, neap_error *error) {
  /* `argument` of a value in frames is the number of its item. */
  for (int v = 0; v < body->n_value; v++) {
    const neap_value *value = &body->value[v];
    if (value->region != NEAP_REGION_FRAME) continue;
    const neap_frame_item *item = NULL;
    if (node->loop != NULL && value->argument >= 0 && value->argument < node->loop->n_item)
      item = &node->loop->item[value->argument];
    if (item == NULL || plan->place[v].offset != item->offset ||
        neap_align(value->bytes) != item->bytes)
      return neap_fail(error, NEAP_PLAN, "\"%s\" does not lie at its item of the frames of \"%s\"",
                       value->name, node->name);

    /* Two values in one item would overwrite each other before the backward reads them. */
    for (int w = 0; w < v; w++)
      if (body->value[w].region == NEAP_REGION_FRAME && body->value[w].argument == value->argument)
        return neap_fail(error, NEAP_PLAN,
                         "\"%s\" and \"%s\" lie at one item of the frames of \"%s\"",
                         body->value[w].name, value->name, node->name);
  }
  return NEAP_OK;
}

/* What a backward loop reads at an item, the forward whose frames it has must have put there. */
static neap_status check_halves(const neap_graph *graph, const neap_node *back, neap_error *error) {
  /* The node that makes the frames. In a body of an outer loop they may have been kept, and then no
   * node of this graph does. */
  const neap_loop *l = back->loop;
  int frames = back->in[l->frames];
  if (frames < 0 || graph->value[frames].node < 0) return NEAP_OK;
  const neap_node *node = &graph->node[graph->value[frames].node];
  const neap_loop *f = node->loop;
  if (f == NULL) return NEAP_OK;

  /* They need not agree in more than this: which items there are, where, and how many records. */
  bool equal = f->n_item == l->n_item && f->record_bytes == l->record_bytes && f->max == l->max &&
               f->grows == l->grows;
  if (equal) {
    for (int i = 0; i < f->n_item; i++)
      if (f->item[i].offset != l->item[i].offset || f->item[i].bytes != l->item[i].bytes)
        equal = false;
  }
  if (equal) return NEAP_OK;
  return neap_fail(error, NEAP_PLAN, "the two halves of \"%s\" see its frames differently",
                   node->name);
}

/* States' buffers and the condition's flag, counted again. */
static size_t own_bytes(const neap_loop *l) {
  size_t bytes = l->has_condition ? NEAP_ALIGN : 0;

  /* A state outside the frames has two buffers; one of them is the operand that gets its last
   * value, where there is one. */
  for (int s = 0; s < l->n_state; s++) {
    if (l->state[s].item >= 0) continue;
    bytes += neap_align(l->state[s].bytes);
    if (l->state[s].final < 0) bytes += neap_align(l->state[s].bytes);
  }
  return bytes;
}

/* The loop's own bytes, its frames, and, of a backward loop, that both halves agree about them. */
neap_status neap_plan_verify_loop(const neap_graph *graph, const neap_node *node,
                                  neap_error *error) {
  if (node->loop == NULL) return NEAP_OK;
  if (node->choice.scratch_bytes != own_bytes(node->loop))
    return neap_fail(error, NEAP_PLAN, "the states of \"%s\" need %zu bytes, the plan gives %zu",
                     node->name, own_bytes(node->loop), node->choice.scratch_bytes);
  NEAP_TRY(check_items(graph, node, error));
  return node->loop->is_backward ? check_halves(graph, node, error) : NEAP_OK;
}
