/* colour.c: the colours of a drawing's boxes, and the key that says what they mean. A box has the
 * colour of its category ("activation", "gradient"), or of its layer.
 *
 * INVARIANT: boxes of one group have one hue, and those of two categories two; the hues of layers
 * come again after some two hundred. The key of a palette lists groups in the order of their bytes,
 * the largest first.
 */
#include "report/report_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Hue and saturation of each category. What the backward makes is warm, what the forward makes is
 * cool, and what belongs to kernels and optimizers has little colour. */
static const struct {
  const char *name;
  int hue, saturation;
} categories[] = {{"activation", 210, 58}, {"gradient", 14, 70}, {"stash", 285, 42},
                  {"reorder", 170, 34},    {"output", 95, 48},   {"input", 60, 45},
                  {"parameter", 228, 40},  {"state", 262, 32},   {"update", 42, 66},
                  {"constant", 50, 30},    {"frame", 190, 30}};

/* What a value is there for, in one word. */
const char *report_category(const neap_graph *graph, neap_value_id v) {
  const neap_value *value = &graph->value[v];
  const neap_node *maker = value->node >= 0 ? &graph->node[value->node] : NULL;

  /* The library's own values first, whatever role they have. */
  if (value->is_reordered) return "reorder";
  if (value->is_stash) return "stash";

  /* What the net says of its blobs. */
  switch (value->role) {
    case NEAP_ROLE_INPUT: return "input";
    case NEAP_ROLE_PARAMETER: return "parameter";
    case NEAP_ROLE_GRADIENT: return "gradient";
    case NEAP_ROLE_STATE: return "state";
    case NEAP_ROLE_OUTPUT: return "output";
    default: break;
  }

  /* A value without a role is told by where it lies, or by what it is the gradient of. */
  if (value->region == NEAP_REGION_CONSTANT) return "constant";
  if (value->region == NEAP_REGION_FRAME) return "frame";
  if (value->gradient_of != NULL) return "gradient";
  /* Else by the pass that makes it. What runs again in the backward makes the forward's
   * activations. */
  if (maker == NULL || maker->recomputes > 0) return "activation";
  if (maker->phase == NEAP_PHASE_BACKWARD) return "gradient";
  return maker->phase == NEAP_PHASE_UPDATE ? "update" : "activation";
}

bool report_palette_init(report_palette *p, const neap_graph *graph, bool by_layer) {
  *p = (report_palette){.by_layer = by_layer, .graph = graph};
  if (!by_layer) return true;
  p->owner = report_owners(graph);
  return p->owner != NULL;
}

void report_palette_fini(report_palette *p) {
  neap_free(p->owner);
  neap_free(p->group);
  neap_map_fini(&p->number);
}

/* The number of the group called `name`, which is interned, in the list; -1: no room. */
static int group_of(report_palette *p, const char *name) {
  int known = neap_map_get(&p->number, name, -1);
  if (known >= 0) return known;

  /* Met for the first time: it goes to the end of the list. */
  if (!neap_list_grow(&p->group, &p->cap, p->n + 1, sizeof *p->group) ||
      !neap_map_set(&p->number, name, p->n))
    return -1;

  /* The hues of layers are the golden ratio of a circle apart: neighbours differ. */
  report_group group = {
    .name = name, .hue = (int)((int64_t)p->n * 22249 / 100 % 360), .saturation = 58};

  /* Categories have colours that are chosen by hand; a drawing means the same in every net. */
  if (!p->by_layer)
    for (int i = 0; i < NEAP_COUNT(categories); i++) {
      if (strcmp(categories[i].name, name) != 0) continue;
      group.hue = categories[i].hue;
      group.saturation = categories[i].saturation;
    }
  p->group[p->n] = group;
  return p->n++;
}

report_group report_palette_of(report_palette *p, const neap_graph *graph, neap_value_id v,
                               int node, size_t bytes) {
  char text[REPORT_LAYER_TEXT];
  const char *name = p->by_layer ? "(no layer)" : report_category(graph, v);

  /* What is made inside a subnet belongs to the layer of the op that owns it. */
  if (p->by_layer && node >= 0) name = report_layer(p->graph, p->owner[node], text);

  /* Interned, since `text` ends here, and since groups are found by pointer. */
  name = neap_intern_format("%s", name);

  /* A drawing without memory goes on, in grey; whoever asked for it looks at `failed` in the
   * end. */
  int number = name != NULL ? group_of(p, name) : -1;
  if (number < 0) {
    p->failed = true;
    return (report_group){.name = "?"};
  }
  p->group[number].bytes = neap_size_add(p->group[number].bytes, bytes);
  return p->group[number];
}

/* For qsort: the largest first; equal ones by name. */
static int compare_groups(const void *a, const void *b) {
  const report_group *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return strcmp(x->name, y->name);
}

void report_palette_sort(report_palette *p) {
  /* Numbers are places in the list: they mean nothing from here on. */
  neap_map_fini(&p->number);
  p->number = (neap_map){0};
  if (p->n > 0) qsort(p->group, (size_t)p->n, sizeof *p->group, compare_groups);
}
