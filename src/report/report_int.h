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

#endif
