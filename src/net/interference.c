/* interference.c: which ops of a net may read what another one has written, by names alone: pairs
 * (writer, reader) of positions. A name that is written more than once makes a pair of each writer
 * before a reader and that reader, since the names do not say which of the values lives on.
 *
 * Data structure: all outputs are numbered, op after op. The writers of one name are a chain from
 * the newest on: `newest` maps the name to the number of an output, `before` leads on, and `writer`
 * tells the op. O(pairs), which are sorted and told once each.
 */
#include "net/net_int.h"

#include <stdlib.h>

/* For qsort: by writer, then by reader. */
static int compare_pairs(const void *a, const void *b) {
  const int *x = a, *y = b;
  return x[0] != y[0] ? (x[0] > y[0]) - (x[0] < y[0]) : (x[1] > y[1]) - (x[1] < y[1]);
}

neap_status neap_net_interference(const neap_net *net, int *n, int (**out)[2], neap_error *error) {
  neap_map newest = {0};
  size_t n_out = 0;
  for (int j = 0; j < net->n_op; j++) n_out += (size_t)net->op[j].n_out;
  int *before = neap_alloc((n_out + 1) * sizeof *before),
      *writer = neap_alloc((n_out + 1) * sizeof *writer);
  int cap = 0, kept = 0, number = 0;
  int(*pair)[2] = NULL;
  bool refused = true; /* until the last of the memory is there */
  *n = 0;

  /* In the order of the ops, so that a writer's number is there when a reader comes. */
  if (before == NULL || writer == NULL) goto done;
  for (int j = 0; j < net->n_op; j++) {
    const neap_net_op *op = &net->op[j];
    /* Every writer of a name so far interferes with who reads it now. */
    for (int k = 0; k < op->n_in; k++)
      for (int w = op->in[k] != NULL ? neap_map_get(&newest, op->in[k], -1) : -1; w >= 0;
           w = before[w]) {
        if (!neap_list_grow(&pair, &cap, *n + 1, sizeof *pair)) goto done;
        pair[*n][0] = writer[w];
        pair[*n][1] = j;
        ++*n;
      }
    /* Then the op's own outputs become the newest of their names. */
    for (int k = 0; k < op->n_out; k++, number++) {
      if (op->out[k] == NULL) continue;
      writer[number] = j;
      before[number] = neap_map_get(&newest, op->out[k], -1);
      if (!neap_map_set(&newest, op->out[k], number)) goto done;
    }
  }

  /* Each pair once, in order. */
  if (*n > 0) qsort(pair, (size_t)*n, sizeof *pair, compare_pairs);
  for (int i = 0; i < *n; i++)
    if (kept == 0 || compare_pairs(pair[kept - 1], pair[i]) != 0) {
      pair[kept][0] = pair[i][0];
      pair[kept][1] = pair[i][1];
      kept++;
    }
  *n = kept;
  *out = pair;
  refused = false;
done:
  neap_free(before);
  neap_free(writer);
  neap_map_fini(&newest);
  if (!refused) return NEAP_OK;
  neap_free(pair);
  return neap_fail_memory(error, 64, "the interference of a net");
}
