/* bank.c: memory banks: where the nodes and values of a graph lie and are wanted. build/bank.c
 * assigns them. */
#include "graph/graph_int.h"

#include <string.h>

static const char *const kind_names[] = {"ordinary", "huge"};

const char *neap_bank_kind_name(neap_bank_kind kind) {
  return (unsigned)kind < NEAP_COUNT(kind_names) ? kind_names[kind] : "?";
}

bool neap_bank_kind_from_name(const char *name, neap_bank_kind *kind) {
  for (int k = 0; k < NEAP_COUNT(kind_names); k++)
    if (strcmp(name, kind_names[k]) == 0) {
      *kind = (neap_bank_kind)k;
      return true;
    }
  return false;
}

int neap_graph_bank_of(const neap_graph *graph, neap_value_id v) {
  return graph->value[v].region == NEAP_REGION_ARENA ? graph->value[v].bank : graph->value[v].home;
}

neap_bank *neap_banks_copy(neap_arena *arena, int n, const neap_bank *bank) {
  neap_bank *copy = neap_arena_copy(arena, bank, (size_t)n * sizeof *copy);
  if (copy == NULL) return NULL;
  for (int i = 0; i < n; i++) {
    if (bank[i].name == NULL) continue;
    copy[i].name = neap_arena_strdup(arena, bank[i].name);
    if (copy[i].name == NULL) return NULL;
  }
  return copy;
}

/* What is freed is not looked at, and what is written in place is written where it is. */
int neap_graph_bank_wanted(const neap_graph *graph, const neap_node *node, neap_value_id v,
                           bool paired) {
  if (paired || graph->n_bank == 0 || (node->effects & NEAP_EFFECT_RELEASE) != 0) return -1;
  if (node->confined) return node->bank;
  /* A resident value may lie in one bank and be used in another. */
  int bank = graph->value[v].bank;
  return bank != neap_graph_bank_of(graph, v) ? bank : -1;
}

bool graph_same_bank(const char *label, const char *other) {
  /* No label is the main bank's. */
  if (label[0] == '\0') label = NEAP_MAIN_BANK;
  if (other[0] == '\0') other = NEAP_MAIN_BANK;
  return strcmp(label, other) == 0;
}
