/* report: why and how much, in words, pictures and rows, from a finished plan and its graph.
 * Nothing here decides anything, and a stored plan is told as a fresh one. */
#ifndef NEAP_REPORT_H
#define NEAP_REPORT_H

#include "plan/plan.h"

/* What planning does to every blob of `net`, which the graph was made of, as neap.h says; *out is
 * ended by neap_dry_run_free. And the plan's bytes by class. Neither looks into subnets: their
 * bytes are those of the op that owns them. */
neap_status neap_report_dry_run(const neap_plan *plan, const neap_graph *graph, const neap_net *net,
                                neap_dry_run **out, neap_error *error);
neap_status neap_report_count(const neap_plan *plan, const neap_graph *graph, const neap_net *net,
                              neap_counts *out, neap_error *error);

/* A cursor over rows of a kind, as neap.h describes them (rows.c). Borrows plan and graph. */
neap_status neap_report_rows(const neap_plan *plan, const neap_graph *graph, neap_row_kind kind,
                             neap_rows **out, neap_error *error);
/* A cursor over the n rows of a kind that lie one after another from `list`, row_bytes each.
 * Borrows them. */
neap_status neap_report_list(neap_row_kind kind, const void *list, int n, size_t row_bytes,
                             neap_rows **out, neap_error *error);
/* Hands the cursor what it looks into: `fini` is called with `owned`, and frees it, when the cursor
 * ends. */
void neap_rows_own(neap_rows *rows, void (*fini)(void *owned), void *owned);

/* Into the record of a refusal: what is alive where the plan needs most, by module, and the module
 * and line of the record's blobs (refused.c). Never fails: where memory is refused less is said. */
void neap_report_refused(const neap_plan *plan, const neap_graph *graph, neap_error *refused);

/* A plan in figures (figures.c); what runs and the store add to them is 0. */
neap_figures neap_report_figures(const neap_plan *plan, const neap_graph *graph);

/* For people. explain: value NEAP_NO_VALUE for the whole plan. */
void neap_report_explain(const neap_plan *plan, const neap_graph *graph, int value,
                         neap_buffer *out);
/* Two values: what makes them share bytes, or what keeps them apart (why.c). */
neap_status neap_report_why(const neap_plan *plan, const neap_graph *graph, int a, int b,
                            neap_buffer *out, neap_error *error);
void neap_report_peak(const neap_plan *plan, const neap_graph *graph, neap_buffer *out);
/* The graph as Graphviz text (dot.c): with a plan one colour for each place in the arena; without
 * one (NULL) as it is written. `fold` > 0: ops in scopes are drawn as one box for each path of so
 * many parts. */
void neap_report_dot(const neap_plan *plan, const neap_graph *graph, int fold, neap_buffer *out);
/* Bytes by name over op order, as SVG (svg.c). `other`: blobs besides the plan's own, shown as one
 * more bar. */
typedef struct neap_report_piece {
  const char *name;
  size_t bytes;
} neap_report_piece;
/* `drawing` NULL: the defaults; its step_ns has as many entries as the plan has steps. */
void neap_report_svg(const neap_plan *plan, const neap_graph *graph, const neap_drawing *drawing,
                     int n_other, const neap_report_piece *other, neap_buffer *out);

#endif
