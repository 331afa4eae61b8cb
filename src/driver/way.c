/* way.c: what one round of planning owns, and how it is let go. */
#include "driver/driver_int.h"

/* What choosing and planning made; the prepared graph and the key stay, for another round. */
void neap_way_drop_result(neap_way *w) {
  neap_plan_free(w->plan);
  neap_graph_free(w->graph);
  neap_choices_fini(&w->choices);
  w->plan = NULL;
  w->graph = NULL;
}

void neap_way_fini(neap_way *w) {
  neap_way_drop_result(w);
  neap_graph_free(w->prepared);
  neap_buffer_fini(&w->key);
}
