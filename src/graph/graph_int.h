/* graph_int.h: what the files of src/graph share. Nobody else includes it. */
#ifndef NEAP_GRAPH_INT_H
#define NEAP_GRAPH_INT_H

#include "graph/change.h"

/* ---- asked.c: what kernels have answered in one choosing ------------------------------------- */

typedef struct graph_asked {
  struct graph_answer **bucket;
  neap_buffer question; /* that is being asked */
  neap_arena arena;
} graph_asked;
/* As neap_kernel_choose, but for questions asked before. `forward`: the node that ask->pair is of.
 * False: memory was refused. */
bool graph_ask(graph_asked *asked, const neap_kernel *kernel, neap_choose *ask,
               const neap_node *forward, bool *taken);
void graph_asked_fini(graph_asked *asked);

#endif
