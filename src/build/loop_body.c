/* loop_body.c: the bodies of a loop in which lengths depend on data. Each iteration finds lengths
 * of its own, and types are fixed while a graph is built; so the loop gets a body for each of the
 * lengths that runs have met, all over the same operands, and the runner takes the one that fits
 * (program/control.c).
 *
 * Lengths are known one after another: what leads to the second may depend on the first. A body for
 * lengths of which some are unknown ends there: it is no more than what finds the next ones, as a
 * probe is (probe.c).
 *
 * INVARIANT: all bodies have the same parameters and results, of the same types; so lengths may not
 * show in what an iteration leaves.
 */
#include "build/build_int.h"

#include <string.h>

typedef struct bodies {
  neap_builder *b;
  neap_sub_spec *spec;
  int first, n; /* EXTENT ops of the body */
  int n_body;
  neap_graph **sub;
  neap_lengths *met;
  neap_type *type; /* of the results, NONE where not known yet */
} bodies;

/* One body, over the same numbers as all others. */
static neap_status build_one(bodies *l, const neap_lengths *met, const neap_type *result,
                             neap_graph **out, neap_error *error) {
  *l->b->n_extent = l->first;
  l->spec->met = met;
  l->spec->result = result;
  return build_sub(l->b, l->spec, out, error);
}

/* A result that is as long as data says. Of a state the op's record says so, with the type that it
 * began with. */
static neap_status check_type(const bodies *l, const neap_graph *sub, int k, neap_error *error) {
  const neap_type *type = &sub->value[sub->output[k]].type;

  /* The first body that says it says it for all. */
  if (l->type[k].dtype == NEAP_DTYPE_NONE) l->type[k] = *type;
  if (neap_type_equal(type, &l->type[k])) return NEAP_OK;
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  neap_hint(error, "reduce it in the body, or scatter it into a tensor of fixed shape");
  return neap_fail(
    error, NEAP_SHAPE,
    "result %d is %s in one iteration and %s in another: how long it is depends on data", k + 1,
    neap_shape_text(&l->type[k].shape, a), neap_shape_text(&type->shape, b));
}

/* The types that a result of unknown size stands in with. A body for lengths that are tried out is
 * built for nothing else, and dropped. */
static neap_status find_types(bodies *l, neap_error *error) {
  neap_graph *sub;
  *l->b->n_extent = l->first;
  l->spec->met = NULL;
  l->spec->result = NULL;
  NEAP_TRY(build_try(l->b, l->spec, &sub, error));
  neap_status status = NEAP_OK;

  /* The same rule as for bodies that are run. */
  for (int k = 0; k < l->spec->n_out; k++)
    if (status == NEAP_OK) status = check_type(l, sub, k, error);
  neap_graph_free(sub);
  return status;
}

static neap_status add_body(bodies *l, const neap_lengths *met, neap_error *error) {
  neap_lengths *own = &l->met[l->n_body];
  *own = *met;
  own->length =
    neap_arena_copy(&l->b->graph->arena, met->length, (size_t)met->n * sizeof *met->length);
  if (own->length == NULL) return graph_no_memory(error);

  /* The list is the options', and the graph outlives those: it has a copy. */
  int at = 0;
  bool partial = graph_is_partial(l->spec->net, own->length, own->n, &at);
  NEAP_TRY(build_one(l, own, partial ? l->type : NULL, &l->sub[l->n_body], error));

  /* Counted before it is checked, so that whoever frees the node finds it. */
  const neap_graph *sub = l->sub[l->n_body++];
  for (int k = 0; k < l->spec->n_out; k++) NEAP_TRY(check_type(l, sub, k, error));
  return NEAP_OK;
}

/* A body for each of the lengths met here, or one that finds the first. */
static neap_status add_bodies(bodies *l, neap_error *error) {
  const neap_graph_options *o = l->b->options;
  NEAP_TRY(find_types(l, error));

  /* Runs have met lengths of several loops; a loop is known by its first number. */
  for (int i = 0; i < o->n_met; i++)
    if (o->met[i].first == l->first) NEAP_TRY(add_body(l, &o->met[i], error));
  if (l->n_body > 0) return NEAP_OK;

  /* Nothing met yet: all are unknown, and the run ends where the first is found. */
  neap_lengths none = {.first = l->first, .n = l->n};
  none.length = neap_arena_alloc(&l->b->graph->arena, (size_t)l->n * sizeof *none.length);
  if (none.length == NULL) return graph_no_memory(error);
  for (int k = 0; k < l->n; k++) none.length[k] = -1;
  return add_body(l, &none, error);
}

neap_status graph_build_bodies(neap_builder *b, int index, int subnet, neap_sub_spec *spec,
                               neap_error *error) {
  bodies l = {
    .b = b, .spec = spec, .first = *b->n_extent, .n = neap_graph_count_extents(spec->net)};
  neap_arena *arena = &b->graph->arena;
  int room = b->options->n_met + 1;
  l.met = neap_arena_alloc(arena, (size_t)room * sizeof *l.met);

  /* Room for the condition in front, which the node has already. */
  l.sub = neap_arena_alloc(arena, (size_t)(subnet + room) * sizeof(neap_graph *));
  l.type = neap_arena_alloc(arena, (size_t)(spec->n_out + 1) * sizeof *l.type);
  if (l.met == NULL || l.sub == NULL || l.type == NULL) return graph_no_memory(error);

  /* One body will do where no length is looked for, or where none depends on data. */
  neap_status status;
  bool is_one = l.n == 0 || b->options->n_extent == 0 || b->trial != BUILD_NO_TRIAL;
  if (is_one || b->in_loop) { /* a loop in a loop refuses such an op when it meets it */
    l.met[0] = (neap_lengths){.first = l.first};
    l.n_body = 1;
    status = build_sub(b, spec, &l.sub[0], error);
  } else {
    status = add_bodies(&l, error);
    /* Each body began at the same number; what follows counts on from behind one of them. */
    *b->n_extent = l.first + l.n;
  }

  /* The graph frees what the node lists, also when it stays half made. */
  neap_node *node = &b->graph->node[index];
  for (int s = l.n_body - 1; s >= 0; s--) l.sub[subnet + s] = l.sub[s];
  for (int s = 0; s < subnet; s++) l.sub[s] = node->sub[s];
  node->sub = l.sub;
  node->n_sub = subnet + l.n_body;
  node->n_body = l.n_body;
  node->met = l.met;
  return status;
}
