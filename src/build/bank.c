/* bank.c: memory banks: which one the nodes and values of a graph belong to.
 *
 * An op whose label is a bank's name is *confined*: what it reads and writes lies in that bank
 * while it runs, and so does its scratch. A blob may be assigned to a bank by itself. Everything
 * else is of bank 0, "main", and works on bytes wherever they lie. Nothing moves here: laying out
 * puts a Reorder between where a value lies and where it is wanted, as it does for layouts
 * (rewrite/lay_out.c).
 *
 * INVARIANT: `home` says where resident bytes lie, in main unless they were assigned in the
 * workspace; `bank` of a resident value where a run uses it.
 * INVARIANT: a subnet is of its owner's bank whole: its bytes are the owner's scratch.
 */
#include "build/build_int.h"

#include <stdio.h>
#include <string.h>

#define NO_KIND ((neap_bank_kind)-1) /* of main, before somebody has given it */

/* Index by name; -1: none. */
static int find_bank(const neap_graph *graph, const char *name) {
  for (int b = 0; b < graph->n_bank; b++)
    if (strcmp(graph->bank[b].name, name) == 0) return b;
  return -1;
}

static neap_status check_bank(const neap_graph *graph, const neap_bank *bank, neap_error *error) {
  NEAP_TRY(neap_net_check_name("bank", bank->name != NULL ? bank->name : "", error));
  if (bank->bytes < 0 || bank->bytes > INT64_MAX / 4)
    return neap_fail(error, NEAP_ARGUMENT,
                     "bank \"%s\": its bytes can't be negative, nor so many: %lld", bank->name,
                     (long long)bank->bytes);

  /* Main is in the list from the start, and counts as given once it has a kind. */
  int at = find_bank(graph, bank->name);
  if (at > 0 || (at == 0 && graph->bank[0].kind != NO_KIND))
    return neap_fail(error, NEAP_ARGUMENT, "bank \"%s\" is given twice", bank->name);
  return NEAP_OK;
}

/* The graph's own list, main first whether it is given or not. */
static neap_status take_banks(neap_graph *graph, const neap_graph_options *options,
                              neap_error *error) {
  /* the last for one too many */
  neap_bank *bank = neap_arena_alloc(&graph->arena, (NEAP_MAX_BANKS + 1) * sizeof *bank);
  if (bank == NULL) return graph_no_memory(error);
  bank[0] = (neap_bank){.name = neap_intern(NEAP_MAIN_BANK), .kind = NO_KIND};
  if (bank[0].name == NULL) return graph_no_memory(error);
  graph->bank = bank;
  graph->n_bank = 1;

  for (int i = 0; i < options->n_bank; i++) {
    const neap_bank *given = &options->bank[i];
    NEAP_TRY(check_bank(graph, given, error));
    int at = strcmp(given->name, NEAP_MAIN_BANK) == 0 ? 0 : graph->n_bank++;
    /* The list has room for this one too, so that it is counted before it is refused. */
    if (graph->n_bank > NEAP_MAX_BANKS)
      return neap_fail(error, NEAP_ARGUMENT, "at most %d memory banks are allowed, main among them",
                       NEAP_MAX_BANKS);
    bank[at] = *given;
    if ((bank[at].name = neap_intern(given->name)) == NULL) return graph_no_memory(error);
  }
  if (bank[0].kind == NO_KIND) bank[0].kind = NEAP_BANK_ORDINARY;
  return NEAP_OK;
}

/* "expected one of main, fast, huge", as a hint. */
static neap_status fail_unknown(const neap_graph *graph, const char *line, const char *what,
                                const char *name, const char *bank, neap_error *error) {
  char list[200] = "";
  for (int b = 0; b < graph->n_bank; b++)
    snprintf(list + strlen(list), sizeof list - strlen(list), "%s%.40s", b > 0 ? ", " : "",
             graph->bank[b].name);
  neap_fail(error, NEAP_GRAPH,
            "net \"%s\": %s \"%s\" is assigned to bank \"%s\", and the memory options give %s",
            graph->name, what, name, bank, list);
  neap_hint(error, "give { banks = { neap.bank { \"%s\", bytes = .. } } } too", bank);
  if (error != NULL && line != NULL) snprintf(error->line, sizeof error->line, "%s", line);
  return NEAP_GRAPH;
}

/* Labels in subnets of a node of bank `bank`. */
static neap_status check_inside(const neap_graph *top, const neap_graph *sub,
                                const neap_node *owner, neap_error *error) {
  for (int n = 0; n < sub->n_node; n++) {
    const neap_node *node = &sub->node[n];
    /* An op without a label is of its owner's bank. */
    int bank = node->device[0] != '\0' ? find_bank(top, node->device) : owner->bank;
    if (bank < 0) return fail_unknown(top, node->line, "op", node->name, node->device, error);
    if (bank != owner->bank) {
      neap_fail(error, NEAP_GRAPH,
                "%s \"%s\" is of bank \"%s\", and %s \"%s\" around it of \"%s\": a subnet lies "
                "whole in one bank",
                node->op->name, node->name, node->device, owner->op->name, owner->name,
                top->bank[owner->bank].name);
      neap_hint(error, "assign the %s", owner->op->name);
      if (error != NULL) snprintf(error->line, sizeof error->line, "%s", node->line);
      return NEAP_GRAPH;
    }

    /* At any depth the bank is that of the outermost owner, whose scratch it all lies in. */
    for (int s = 0; s < node->n_sub; s++) NEAP_TRY(check_inside(top, node->sub[s], owner, error));
  }
  return NEAP_OK;
}

static neap_status assign_nodes(neap_graph *graph, neap_error *error) {
  for (int n = 0; n < graph->n_node; n++) {
    neap_node *node = &graph->node[n];
    if (node->device[0] != '\0') {
      int bank = find_bank(graph, node->device);
      if (bank < 0) return fail_unknown(graph, node->line, "op", node->name, node->device, error);
      node->bank = bank;
      /* Only what the user labelled works on bytes of that bank alone. */
      node->confined = true;
    }
    /* What it makes lies where it was made, until a blob's own bank says otherwise. */
    for (int k = 0; k < node->n_out; k++)
      if (node->out[k] >= 0 && graph->value[node->out[k]].region == NEAP_REGION_ARENA)
        graph->value[node->out[k]].bank = node->bank;
    for (int s = 0; s < node->n_sub; s++) NEAP_TRY(check_inside(graph, node->sub[s], node, error));
  }
  return NEAP_OK;
}

/* Resident blobs are used where they lie, unless the net says otherwise. */
static void assign_homes(neap_graph *graph, const neap_graph_options *options) {
  /* Transient values and constants lie wherever the graph puts them; all others are the
   * workspace's. */
  for (int v = 0; v < graph->n_value; v++) {
    neap_value *value = &graph->value[v];
    if (value->region == NEAP_REGION_ARENA || value->region == NEAP_REGION_CONSTANT) continue;
    for (int i = 0; i < options->n_home; i++)
      if (value->root == v && value->is_blob && strcmp(value->name, options->home[i].name) == 0)
        value->home = NEAP_MAX(find_bank(graph, options->home[i].bank), 0);
    value->home = graph->value[value->root].home; /* a root stands first */
    value->bank = value->home;
  }
}

/* Blobs come after ops: their own bank counts. All versions of a name lie in it. */
static neap_status assign_values(neap_graph *graph, const neap_net *net, neap_error *error) {
  /* A blob that no op names any more has no bank to be in: the values are asked, not the blobs. */
  for (int v = 0; v < graph->n_value; v++) {
    const neap_net_blob *blob =
      graph->value[v].is_blob ? neap_net_find_blob(net, graph->value[v].name) : NULL;
    if (blob == NULL || blob->bank == NULL) continue;
    int bank = find_bank(graph, blob->bank);
    if (bank < 0) return fail_unknown(graph, blob->line, "blob", blob->name, blob->bank, error);
    graph->value[v].bank = bank;
  }
  for (int v = 0; v < graph->n_value; v++)
    graph->value[v].bank = graph->value[graph->value[v].root].bank; /* a root stands first */
  return NEAP_OK;
}

neap_status graph_assign_banks(neap_graph *graph, const neap_net *net,
                               const neap_graph_options *options, neap_error *error) {
  if (options->n_bank == 0) return NEAP_OK;
  NEAP_TRY(take_banks(graph, options, error));
  NEAP_TRY(assign_nodes(graph, error));
  assign_homes(graph, options);
  NEAP_TRY(assign_values(graph, net, error));
  if (NEAP_DEBUG) graph_check(graph);
  return NEAP_OK;
}
