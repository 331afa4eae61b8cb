/* work.c: what nodes cost to run, and how much of it is done twice. */
#include "plan/plan_int.h"

/* Work of a node in one unit: a byte moved stands for so many operations. Only ratios between nodes
 * matter. */
static const double FLOPS_A_BYTE = 10;

/* Records tell flops; the bytes are those of the operands. */
double neap_plan_work(const neap_graph *graph, const neap_node *node) {
  double bytes = 0;
  for (int i = 0; i < node->n_in; i++)
    if (node->in[i] >= 0) bytes += (double)graph->value[node->in[i]].bytes;
  for (int k = 0; k < node->n_out; k++) bytes += (double)graph->value[node->out[k]].bytes;
  return node->cost.flops + FLOPS_A_BYTE * bytes;
}

/* Nodes of the graph and its subgraphs that run again; adds up their work, and that of all others,
 * of a loop's body once an iteration. */
static int sum_recomputed(const neap_graph *graph, double times, double *recomputed, double *all) {
  int n_recomputed = 0;
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    /* Either sum gets the node's own work. */
    bool is_recomputed = node->recomputes > 0 || node->runs_again;
    double *sum = is_recomputed ? recomputed : all;
    *sum += times * neap_plan_work(graph, node);
    if (is_recomputed) n_recomputed++;
    /* A loop's subnets are weighed as if it took all the iterations that it may. */
    double runs = times;
    if (node->loop != NULL) runs *= NEAP_MAX((double)node->loop->max, 1);
    for (int s = 0; s < node->n_sub; s++)
      n_recomputed += sum_recomputed(node->sub[s], runs, recomputed, all);
  }
  return n_recomputed;
}

double neap_plan_recomputed_work(const neap_graph *graph) {
  double all = 0, recomputed = 0;
  sum_recomputed(graph, 1, &recomputed, &all);
  return recomputed;
}

int neap_plan_recomputed(const neap_graph *graph, double *share_of_work) {
  double all = 0, recomputed = 0;
  int n_recomputed = sum_recomputed(graph, 1, &recomputed, &all);
  *share_of_work = all > 0 ? recomputed / all : 0;
  return n_recomputed;
}
