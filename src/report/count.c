/* count.c: a plan's bytes by the classes of Torch's optnet: parameters, their gradients, outputs of
 * layers, gradients of those, buffers.
 *
 * INVARIANT: a storage with bytes of its own counts once, in the class of its first value. In the
 * arena a class has the bytes that any of its values ever touches: the union of their address
 * ranges. Two classes may touch the same bytes at different times, so the total is the union over
 * all classes, not their sum.
 */
#include "report/report.h"

#include <stdlib.h>

typedef enum byte_class {
  PARAMETERS,
  GRADIENTS,
  OUTPUTS,
  GRADIENT_INPUTS,
  BUFFERS,
  N_CLASS
} byte_class;

/* Addresses [begin, end) of the arena that a value, or an op's scratch, lies at. */
typedef struct span {
  size_t begin, end;
  byte_class of;
} span;

/* What lies in a region of its own is of that region's class; the rest goes by what the value is. A
 * value that the net does not name, and that is no gradient, was made by the library: a stash, a
 * converted weight. */
static byte_class class_of(const neap_net *net, const neap_value *value, neap_region region) {
  switch (region) {
    case NEAP_REGION_PARAMETER: return PARAMETERS;
    case NEAP_REGION_GRADIENT: return GRADIENTS;
    case NEAP_REGION_STATE:
    case NEAP_REGION_CONSTANT:
    case NEAP_REGION_FRAME: return BUFFERS;
    default: break;
  }
  if (value->role == NEAP_ROLE_GRADIENT || neap_gradient_stem(value->name) > 0)
    return GRADIENT_INPUTS;
  return neap_net_find_blob(net, value->name) != NULL ? OUTPUTS : BUFFERS;
}

static int compare_begin(const void *a, const void *b) {
  const span *x = a, *y = b;
  return (x->begin > y->begin) - (x->begin < y->begin);
}

/* Bytes of the union of the spans of one class, or with N_CLASS of all; they are in order of their
 * begin. */
static int64_t cover(int n, const span *list, byte_class of) {
  size_t total = 0, at = 0; /* all up to `at` is counted */
  /* In order of their begin, so that of each span only what lies behind all earlier ones is new. */
  for (int i = 0; i < n; i++) {
    if (of != N_CLASS && list[i].of != of) continue;
    if (list[i].end <= at) continue;
    total += list[i].end - NEAP_MAX(list[i].begin, at);
    at = list[i].end;
  }
  return (int64_t)total;
}

/* Room for a span of each value and each node, and a mark for each storage, is taken before
 * anything is counted. */
neap_status neap_report_count(const neap_plan *plan, const neap_graph *graph, const neap_net *net,
                              neap_counts *out, neap_error *error) {
  size_t most = (size_t)plan->n_value + (size_t)plan->n_node;
  span *list = neap_alloc((most + 1) * sizeof *list);
  bool *seen = neap_alloc_zeroed((size_t)plan->n_value * sizeof *seen + 1); /* by storage */
  if (list == NULL || seen == NULL) {
    neap_free(list);
    neap_free(seen);
    return neap_fail_memory(error, most * sizeof *list, "a count by class");
  }

  /* What has bytes of its own is counted at once; what lies in the arena is listed. */
  int64_t bytes[N_CLASS + 1] = {0}; /* the last: of all */
  int n = 0;
  for (int v = 0; v < plan->n_value; v++) {
    const neap_place *place = &plan->place[v];
    /* What lies in an operand of its owner is counted there. */
    byte_class of = class_of(net, &graph->value[v], place->region);
    if (place->region == NEAP_REGION_ARENA) {
      list[n++] = (span){place->offset, place->offset + place->bytes, of};
    } else if (place->region != NEAP_REGION_ARGUMENT && !seen[place->storage]) {
      seen[place->storage] = true;
      bytes[of] += (int64_t)place->bytes;
      bytes[N_CLASS] += (int64_t)place->bytes;
    }
  }

  /* Scratch counts among the buffers: it holds nothing that the net names. */
  for (int i = 0; i < plan->n_node; i++) {
    const size_t begin = plan->scratch_offset[i], scratch = plan->scratch_bytes[i];
    if (scratch > 0) list[n++] = (span){begin, begin + scratch, BUFFERS};
  }

  /* Of the list each class counts the addresses that it touches. */
  qsort(list, (size_t)n, sizeof *list, compare_begin);
  for (int c = 0; c <= N_CLASS; c++) bytes[c] += cover(n, list, (byte_class)c);

  /* A pool has no arena that could be full: there the figure is a forecast. */
  NEAP_ASSERT(
    plan->policy == NEAP_POLICY_POOL || cover(n, list, N_CLASS) <= (int64_t)plan->arena_bytes,
    "at most the arena's %zu bytes; got %lld", plan->arena_bytes,
    (long long)cover(n, list, N_CLASS));
  *out = (neap_counts){bytes[PARAMETERS],      bytes[GRADIENTS], bytes[OUTPUTS],
                       bytes[GRADIENT_INPUTS], bytes[BUFFERS],   bytes[N_CLASS]};
  neap_free(list);
  neap_free(seen);
  return NEAP_OK;
}
