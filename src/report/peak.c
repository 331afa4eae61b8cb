/* peak.c: the step of the most live bytes, and what they are. */
#include "report/report.h"

enum { N_SHOWN = 20 };

/* The step of the most live bytes, and what they are, largest first. What is not listed is told as
 * a sum, so that the figures add up; each storage counts by its newest living value, padding
 * included. */
void neap_report_peak(const neap_plan *plan, const neap_graph *graph, neap_buffer *out) {
  if (plan->n_node == 0) {
    neap_buffer_add(out, "nothing runs\n");
    return;
  }

  /* What is alive then, the largest first, no more than are shown. */
  int value[N_SHOWN];
  const int op = plan->order[plan->peak_step];
  const int n = neap_plan_live_at(plan, graph, -1, plan->peak_step, N_SHOWN, value);
  if (n < 0) {
    out->failed = true; /* as a buffer that gets no memory */
    return;
  }

  /* The step itself: how much, when, whose op, and where that was written. */
  const neap_node *node = &graph->node[op];
  char text[24], shape[NEAP_SHAPE_TEXT];
  neap_buffer_add(out, "peak %s at step %d of %d, %s \"%s\"",
                  neap_bytes_text((double)plan->live_bytes[plan->peak_step], text),
                  plan->peak_step + 1, plan->n_node, node->op->name,
                  node->name != NULL ? node->name : "?");
  if (node->line != NULL && node->line[0] != '\0') neap_buffer_add(out, ", %s", node->line);
  neap_buffer_add(out, "\n");

  /* Steps count from 1, as everywhere that people read. */
  for (int i = 0; i < n; i++) {
    const neap_value *v = &graph->value[value[i]];
    const neap_place *place = &plan->place[value[i]];
    neap_buffer_add(out, "  %10s  %-28s %-5s %-20s steps %d-%d\n",
                    neap_bytes_text((double)place->bytes, text), v->name != NULL ? v->name : "?",
                    neap_dtype_name(v->type.dtype), neap_shape_text(&v->type.shape, shape),
                    place->first + 1, place->last + 1);
  }

  /* The op's scratch is in the sum too. */
  if (plan->scratch_bytes[op] > 0)
    neap_buffer_add(out, "  %10s  scratch\n",
                    neap_bytes_text((double)plan->scratch_bytes[op], text));

  /* As the live bytes count: each storage aligned. */
  size_t shown = neap_align(plan->scratch_bytes[op]);
  for (int i = 0; i < n; i++) shown += neap_align(plan->place[value[i]].bytes);
  if (shown < plan->live_bytes[plan->peak_step])
    neap_buffer_add(out, "  %10s  in smaller blobs\n",
                    neap_bytes_text((double)(plan->live_bytes[plan->peak_step] - shown), text));
}
