/* ground.c: what a search for recomputations stands on: the laid-out graph, in whose bodies some
 * nodes run again, and what each of its nodes takes beside its operands. Nodes of the graph itself
 * run again in sketches of it (recompute.c).
 *
 * Nodes and values of the graph itself have the same numbers on every ground: what runs again in a
 * body changes bytes of frames, and who reads what from around the loop.
 *
 * INVARIANT: a ground takes what a plan of it would: subnets are planned by the same steps.
 */
#include "plan/plan_int.h"

#include <string.h>

/* The nodes of `body` that run again, as a list; NULL: memory is refused. */
static int *list_of(const neap_grounds *all, const bool *body, int *n) {
  int *list = neap_alloc(((size_t)all->n_body + 1) * sizeof *list);
  *n = 0;
  if (list != NULL)
    for (int i = 0; i < all->n_body; i++)
      if (body[i]) list[(*n)++] = i;
  return list;
}

/* Whether the two grounds have the same bodies within node n of the graph. */
static bool same_within(const neap_grounds *all, const bool *a, const bool *b, int n) {
  for (int i = 0; i < all->n_body; i++) {
    const neap_body_node *body = &all->body[i];
    bool is_within = body->scratch == n || body->forward == n;
    if (is_within && a[i] != b[i]) return false;
  }
  return true;
}

/* Scratch of all nodes; of those whose bodies are as in `like`, from there. */
static neap_status find_scratch(const neap_grounds *all, neap_ground *g, const neap_ground *like,
                                neap_error *error) {
  /* To find a node's scratch all of its subnets are planned, which is what a ground costs. Grounds
   * that follow each other mostly differ in one body, so most of it can be taken over. */
  for (int n = 0; n < g->graph->n_node; n++) {
    if (like != NULL && same_within(all, g->body, like->body, n))
      g->scratch_bytes[n] = like->scratch_bytes[n];
    else
      NEAP_TRY(neap_plan_scratch(g->graph, n, &all->options, &g->scratch_bytes[n], error));
  }
  return NEAP_OK;
}

/* The graph with these bodies recomputed; nothing else in it is. */
static neap_status lay_out(const neap_grounds *all, const bool *body, neap_graph **out,
                           neap_error *error) {
  neap_choices choices = *all->choices; /* its lists are borrowed */
  int n = 0, *list = list_of(all, body, &n);
  if (list == NULL) return neap_fail_memory(error, sizeof *list, "a trial of recomputation");
  choices.recomputed = (neap_recomputed){.n_body = n, .body = list};
  neap_status status = neap_graph_lay_out(all->prepared, &choices, out, error);
  neap_free(list);
  return status;
}

/* What there is to say of the ground's graph. */
static neap_status fill(const neap_grounds *all, neap_ground *g, const neap_ground *like,
                        const bool *body, neap_error *error) {
  size_t n_node = (size_t)g->graph->n_node + 1;
  g->scratch_bytes = neap_alloc_zeroed(n_node * sizeof *g->scratch_bytes);
  g->body = neap_alloc_zeroed((size_t)all->n_body + 1);
  if (g->scratch_bytes == NULL || g->body == NULL)
    return neap_fail_memory(error, n_node * sizeof *g->scratch_bytes, "a trial of recomputation");
  if (body != NULL) neap_copy_bytes(g->body, body, (size_t)all->n_body);
  g->work = neap_plan_recomputed_work(g->graph);
  return find_scratch(all, g, like, error);
}

neap_status neap_ground_new(const neap_grounds *all, const neap_ground *like, const bool *body,
                            neap_ground **out, neap_error *error) {
  neap_ground *g = neap_alloc_zeroed(sizeof *g);
  if (g == NULL) return neap_fail_memory(error, sizeof *g, "a trial of recomputation");
  g->n_ref = 1;
  neap_status status = lay_out(all, body, &g->graph, error);
  if (status == NEAP_OK) status = fill(all, g, like, body, error);
  if (status != NEAP_OK) neap_ground_release(g);
  if (status == NEAP_OK) *out = g;
  return status;
}

neap_ground *neap_ground_retain(neap_ground *g) {
  g->n_ref++;
  return g;
}

void neap_ground_release(neap_ground *g) {
  if (g == NULL || --g->n_ref > 0) return;
  if (!g->borrows) neap_graph_free(g->graph);
  neap_free(g->scratch_bytes);
  neap_free(g->body);
  neap_free(g);
}

neap_status neap_grounds_init(neap_grounds *all, neap_graph *graph, neap_error *error) {
  /* Set up by hand, because the graph may be the caller's, and because a ground needs the list of
   * body nodes, which is read off the graph of this one. */
  neap_ground *g = all->first = neap_alloc_zeroed(sizeof *g);
  if (g == NULL) return neap_fail_memory(error, sizeof *g, "a choice of recomputation");
  g->n_ref = 1;
  g->graph = graph;
  g->borrows = graph != NULL;
  if (graph == NULL) NEAP_TRY(lay_out(all, NULL, &g->graph, error));
  NEAP_TRY(neap_graph_body_nodes(g->graph, &all->n_body, &all->body, error));
  return fill(all, g, NULL, NULL, error);
}

void neap_grounds_fini(neap_grounds *all) {
  neap_ground_release(all->first);
  neap_free(all->body);
  memset(all, 0, sizeof *all);
}
