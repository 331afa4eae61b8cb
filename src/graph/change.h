/* change.h: growing and changing a graph, for the rooms that make one: build and rewrite. */
#ifndef NEAP_GRAPH_CHANGE_H
#define NEAP_GRAPH_CHANGE_H

#include "graph/graph.h"

/* graph.c */
neap_graph *graph_new(const char *name);
/* -1: memory refused */
int graph_add_value(neap_graph *graph, const char *name, const neap_type *type);
/* ids are the caller's to set; -1: refused */
int graph_add_node(neap_graph *graph, const neap_op *op, int n_in, int n_out);
bool graph_add_gone(neap_graph *graph, const char *name, const char *into);
/* texts in the graph's arena, or constant */
bool graph_add_rewrite(neap_graph *graph, const neap_rewrite *rewrite);
/* Copies one record's worth of attribute values, lists included. NULL when refused. */
neap_attr_value *graph_copy_attrs(neap_graph *graph, const neap_op *op,
                                  const neap_attr_value *attrs);
/* "Conv "net/conv1": " in front of inner's message, op, scope and line filled; into error. Returns
 * inner's code. */
neap_status graph_locate(neap_error *error, const neap_error *inner, const char *type,
                         const char *name, const char *scope, const char *line);
neap_status graph_no_memory(neap_error *error);

/* loop.c: what the runner must know of a loop, from the record's attributes and the subgraphs. No
 * frames yet. */
neap_status graph_make_loop(neap_graph *graph, int node, neap_error *error);
/* An integer attribute by name; 0 where the record has none of it. */
int64_t graph_attr_int(const neap_node *node, const char *name);
neap_loop *graph_copy_loop(neap_arena *arena, const neap_loop *loop); /* NULL when refused */
/* The lengths that the node's bodies are for, copied into the graph's arena; false when refused. */
bool graph_own_met(neap_graph *graph, neap_node *node);
/* The first `n_node` nodes of an unfinished graph once more, subgraphs included, all values with
 * their ids. NULL when refused. */
neap_graph *graph_clone(const neap_graph *graph, int n_node);

/* bank.c. Whether ops of these labels work in one bank; without a label in main. */
bool graph_same_bank(const char *label, const char *other);
/* finish.c: commits last, dead nodes and values out, values in order of definition, edges. `by_op`:
 * nodes stay. */
neap_status graph_finish(neap_graph *graph, bool by_op, neap_error *error);
neap_status graph_make_edges(neap_graph *graph, neap_error *error);

/* check.c, where NEAP_DEBUG is on: nodes and values of a graph whose edges may not be there yet;
 * with its edges; and what laying out adds to that. */
void graph_check_nodes(const neap_graph *graph);
void graph_check(const neap_graph *graph);
void graph_check_laid_out(const neap_graph *graph);

#endif
