/* report_int.h: what the files of this room share and no other room sees. */
#ifndef NEAP_REPORT_INT_H
#define NEAP_REPORT_INT_H

#include "report/report.h"

enum { REPORT_LAYER_TEXT = 256 };

/* By node, the node whose layer it belongs to (layer.c); the caller ends it with neap_free. NULL
 * when memory is refused. */
int *report_owners(const neap_graph *graph);
/* The layer of a node that owns itself, in `text`. */
const char *report_layer(const neap_graph *graph, int owner, char text[REPORT_LAYER_TEXT]);

/* What a value is there for, in one word (colour.c). */
const char *report_category(const neap_graph *graph, neap_value_id v);

/* What has one colour in a drawing: a category, or a layer. */
typedef struct report_group {
  const char *name; /* interned */
  int hue, saturation;
  size_t bytes; /* of the boxes that were coloured so */
} report_group;
typedef struct report_palette {
  bool by_layer;
  const neap_graph *graph; /* the whole net's */
  int *owner;              /* by node, the node whose layer it belongs to; NULL: by category */
  neap_map number;         /* of a group's name, in the list */
  report_group *group;
  int n, cap;
  bool failed; /* there was no room for a group */
} report_palette;
/* false: no room. Borrows the graph until report_palette_fini. */
bool report_palette_init(report_palette *p, const neap_graph *graph, bool by_layer);
void report_palette_fini(report_palette *p);
/* The group of a value of `graph`, which is the palette's or that of a subnet. `node` of the
 * palette's graph makes it, or owns the subnet; `bytes` more are counted for the group. */
report_group report_palette_of(report_palette *p, const neap_graph *graph, neap_value_id v,
                               int node, size_t bytes);
/* Sorts the groups for the key, the largest first. No value is asked for afterwards. */
void report_palette_sort(report_palette *p);

#endif
