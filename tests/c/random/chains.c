/* chains.c: a recipe's steps as the layers of a chain, run forward and backward layer by layer,
 * with the backward half of each apart from its forward: what parameters, state, outputs and
 * gradients are may depend on no plan.
 */
#include "random/trial.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_LAYERS = 3 };

typedef struct layers {
  int n;
  neap_net *net[MOST_LAYERS];
  neap_type input, output; /* of the first, of the last */
  /* has no net of its own for that: where there are subnets, or norms that keep no statistics */
  bool no_evaluation;
} layers;

static void layers_fini(layers *l) {
  for (int i = 0; i < l->n; i++) neap_net_free(l->net[i]);
}

static neap_status layers_read(const recipe *r, layers *l, neap_error *error) {
  char *text[MOST_LAYERS];
  l->n = 1 + (int)(r->seed % MOST_LAYERS);
  write_layers(r, l->n, text);
  neap_status status = NEAP_OK;
  for (int i = 0; i < l->n; i++) {
    l->no_evaluation = l->no_evaluation || strstr(text[i], "subnet ") != NULL ||
                       strstr(text[i], "training = true") != NULL;
    if (getenv("NEAP_SHOW_LAYERS") != NULL) printf("%s", text[i]);
    if (status == NEAP_OK) status = neap_net_read(text[i], &l->net[i], error);
    free(text[i]);
  }

  /* The types at both ends of the chain: its input is fed, and the gradient of its output. */
  NEAP_TRY(status);
  l->input = neap_net_find_blob(l->net[0], "x0")->type;
  return neap_graph_type(l->net[l->n - 1], NULL, neap_net_output_at(l->net[l->n - 1], 0),
                         &l->output, error);
}

/* Two steps of training, with an evaluation between them; the second one of fewer rows. */
static neap_status run_chain(const layers *l, const neap_compile_options *o, bool poison,
                             neap_workspace **ws, neap_error *error) {
  neap_chain *chain = NULL;
  neap_type input = l->input, output = l->output;
  char grad[32];
  snprintf(grad, sizeof grad, "layer%d/output_grad", l->n - 1);
  NEAP_TRY(neap_workspace_new(&(neap_workspace_options){.seed = 5}, ws, error));
  neap_workspace_set_poison(*ws, poison);
  neap_status s = neap_chain_new(*ws, l->n, (const neap_net *const *)l->net, input.shape.dim[0], o,
                                 &chain, error);

  /* Fewer rows in the second step, so that both run in the bytes of the larger batch. */
  for (int k = 0; k < 2 && s == NEAP_OK; k++) {
    if (k == 1) input.shape.dim[0] = output.shape.dim[0] = (input.shape.dim[0] + 1) / 2;
    s = feed_numbers(*ws, "x0", &input, 10 + k, error);
    if (s == NEAP_OK) s = feed_numbers(*ws, grad, &output, 20 + k, error);
    if (s == NEAP_OK && k == 1 && !l->no_evaluation) s = neap_chain_forward(chain, false, error);
    if (s == NEAP_OK) s = neap_chain_forward(chain, true, error);
    if (s == NEAP_OK) s = neap_chain_backward(chain, error);
  }
  neap_chain_free(chain);
  return s;
}

/* What a layer's text asks for and a backward can't have. */
static bool is_layer_refusal(const neap_error *error) {
  return error->code == NEAP_GRAPH && (strstr(error->message, "has freed it") != NULL ||
                                       strstr(error->message, "has overwritten it") != NULL);
}

bool chains_agree(trial *t) {
  layers l = {0};
  neap_workspace *plain = NULL;
  neap_error error = {0};
  bool holds = true, refused = false;
  for (int k = 0; k < N_PLANNED && holds && !refused; k++) {
    planned by = planned_way("chain", k);
    if (!begins(t, by.name)) continue;
    neap_workspace *ws = NULL;

    /* The plain run comes with the first way that is taken; a layer may be refused for what its
     * text asks. */
    if (plain == NULL) {
      neap_status status = layers_read(t->recipe, &l, &error);
      if (status == NEAP_OK) status = run_chain(&l, &t->options, false, &plain, &error);
      refused = status != NEAP_OK && is_layer_refusal(&error);
      holds = status == NEAP_OK || refused || fail(t, by.name, error.message);
    }
    if (!holds || refused) continue;

    /* The same chain, planned and poisoned. */
    neap_compile_options o = t->options;
    o.plan = by.plan;
    holds = run_chain(&l, &o, true, &ws, &error) == NEAP_OK || fail(t, by.name, error.message);
    comparison c = {.plain = plain, .other = ws, .several = true};
    holds = holds && compared(t, by.name, &c);
    t->totals->n_chain += holds;
    if (ws != NULL) neap_workspace_release(ws);
  }
  if (plain != NULL) neap_workspace_release(plain);
  layers_fini(&l);
  return holds;
}
