/* plan_rows.c: the rows of one plan: what runs at each step, where each value lies, in names and
 * numbers that a reader of the database understands: steps and values count from 1, every row tells
 * its layer and script line.
 *
 * Subnets are not written out: the frame of a control op counts in its scratch_bytes.
 */
#include "store/store_int.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

/* Whether `part` is a name that net made up for an op of this type: "max_pool_3" for MaxPool. */
static bool is_made_up(const char *part, const char *type) {
  for (; *type != '\0' && *part != '\0'; part++) {
    if (*part == '_') continue;
    if (tolower((unsigned char)*type++) != *part) return false;
  }
  if (*type != '\0' || *part++ != '_' || !isdigit((unsigned char)*part)) return false;
  return part[strspn(part, "0123456789")] == '\0';
}

/* The layer of an op: its name, or only its scope where the name adds nothing to it. The backward
 * belongs to its forward. Writes at most `size` bytes; returns text. */
static const char *layer_of(const neap_graph *graph, int node, char *text, size_t size) {
  const neap_node *n = &graph->node[node];
  if (n->forward >= 0 && n->forward < graph->n_node && n->forward != node)
    n = &graph->node[n->forward];
  const char *slash = strrchr(n->name, '/');
  const char *part = slash != NULL ? slash + 1 : n->name;
  bool scope_says_it = n->scope != NULL && n->scope[0] != '\0' && is_made_up(part, n->op->name);
  snprintf(text, size, "%s", scope_says_it ? n->scope : n->name);
  return text;
}

/* NULL, hence null in the file, where unknown. */
static const char *line_of(const neap_node *node) {
  return node->line != NULL && node->line[0] != '\0' ? node->line : NULL;
}

/* "dnnl abcd:16b": the engine, and the layout of the first output (else input) that is not
 * plain. */
static const char *kernel_of(const neap_graph *graph, const neap_node *node, char *text,
                             size_t size) {
  if ((node->op->effects & NEAP_EFFECT_CONTROL) != 0) return "control";
  const char *engine = neap_engine_name(node->choice.engine);
  for (int i = 0; i < node->n_out + node->n_in; i++) {
    int v = i < node->n_out ? node->out[i] : node->in[i - node->n_out];
    if (v == NEAP_NO_VALUE || graph->value[v].layout.kind == NEAP_LAYOUT_PLAIN) continue;
    char layout[NEAP_LAYOUT_TEXT];
    snprintf(text, size, "%s %s", engine,
             neap_layout_text(&graph->value[v].layout, graph->value[v].type.shape.n_dim, layout));
    return text;
  }
  return engine;
}

/* What a repetition saves: the bytes of what the node makes, between its steps. */
static void bind_repetition(neap_sql *sql, const neap_plan *plan, const neap_graph *graph,
                            const neap_node *node) {
  char text[96], bytes_text[24];
  size_t bytes = 0;
  if (node->repeats == 0) {
    neap_sql_null(sql);
    neap_sql_null(sql);
    return;
  }
  int first = neap_plan_step_of(plan, graph, node->repeats - 1) + 1;
  for (int k = 0; k < node->n_out; k++) bytes += graph->value[node->out[k]].bytes;
  snprintf(text, sizeof text, "the budget has no room to keep %s from step %d",
           neap_bytes_text((double)bytes, bytes_text), first);
  neap_sql_int(sql, first);
  neap_sql_text(sql, text);
}

/* One row a step, in the plan's order. One statement, bound again for each row; the caller's
 * transaction is around it. */
neap_status neap_store_insert_ops(neap_store *store, int64_t plan_id, const neap_plan *plan,
                                  const neap_graph *graph, const char *lost, neap_error *error) {
  neap_sql sql = neap_sql_new(
    store,
    "INSERT INTO plan_op (plan_id, step, type, name, layer, line, phase, kernel, flop, read_bytes, "
    "write_bytes, scratch_bytes, live_bytes, recomputes, reason) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    lost);
  neap_status status = NEAP_OK;
  for (int step = 0; step < plan->n_node && status == NEAP_OK; step++) {
    int at = plan->order[step];
    const neap_node *node = &graph->node[at];
    char layer[256], kernel[96];
    neap_sql_int(&sql, plan_id);
    neap_sql_int(&sql, step + 1);
    neap_sql_text(&sql, node->op->name);
    neap_sql_text(&sql, node->name);
    neap_sql_text(&sql, layer_of(graph, at, layer, sizeof layer));
    neap_sql_text(&sql, line_of(node));
    neap_sql_text(&sql, neap_phase_name(node->phase));
    neap_sql_text(&sql, kernel_of(graph, node, kernel, sizeof kernel));
    neap_sql_int(&sql, (int64_t)node->cost.flop);
    neap_sql_int(&sql, (int64_t)node->cost.read_bytes);
    neap_sql_int(&sql, (int64_t)node->cost.write_bytes);
    neap_sql_int(&sql, (int64_t)plan->scratch_bytes[at]);
    neap_sql_int(&sql, (int64_t)plan->live_bytes[step]);
    bind_repetition(&sql, plan, graph, node);
    status = neap_sql_run(&sql, error);
  }
  neap_sql_fini(&sql);
  return status;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The name of a value, or a made-up label for one without. */
static const char *label_of(const neap_graph *graph, int value, char text[32]) {
  const char *name = graph->value[value].name;
  if (name != NULL && name[0] != '\0') return name;
  snprintf(text, 32, "value %d", value + 1);
  return text;
}

/* The node that makes the value, else the first that reads it; -1: nobody. `reader` has one entry a
 * value. */
static int owner_of(const neap_graph *graph, int value, const int *reader) {
  return graph->value[value].node >= 0 ? graph->value[value].node : reader[value];
}

/* reader[v] = first node that reads v, or -1: the nodes are walked from the last to the first, so
 * that the first stays. From neap_alloc; NULL when refused. */
static int *first_readers(const neap_graph *graph) {
  int *reader = neap_alloc((size_t)graph->n_value * sizeof *reader);
  if (reader == NULL) return NULL;
  for (int v = 0; v < graph->n_value; v++) reader[v] = -1;
  for (int i = graph->n_node - 1; i >= 0; i--)
    for (int k = 0; k < graph->node[i].n_in; k++)
      if (graph->node[i].in[k] != NEAP_NO_VALUE) reader[graph->node[i].in[k]] = i;
  return reader;
}

/* How the value got its bytes, with whom, and why not in place. */
static const char *detail_of(const neap_plan *plan, const neap_graph *graph, int value, char *text,
                             size_t size) {
  const neap_place *place = &plan->place[value];
  char label[32];
  bool has_partner = place->partner >= 0 && place->partner < graph->n_value;
  const char *refusal =
    place->refusal != NEAP_REFUSAL_NONE ? neap_refusal_words(place->refusal) : "";
  snprintf(text, size, "%s%s%s%s%s", neap_reason_words(place->reason), has_partner ? ": " : "",
           has_partner ? label_of(graph, place->partner, label) : "",
           refusal[0] != '\0' ? "; not in place: " : "", refusal);
  return text;
}

/* Binds in the order of the columns in neap_store_insert_values, from value_no. */
static void bind_value(neap_sql *sql, const neap_plan *plan, const neap_graph *graph, int v,
                       int owner) {
  const neap_value *value = &graph->value[v];
  const neap_place *place = &plan->place[v];
  char label[32], layer[256], layout[NEAP_LAYOUT_TEXT], shape[NEAP_SHAPE_TEXT], detail[512];
  neap_sql_int(sql, v + 1);
  neap_sql_int(sql, place->storage + 1);
  neap_sql_text(sql, label_of(graph, v, label));
  neap_sql_text(sql, owner >= 0 ? layer_of(graph, owner, layer, sizeof layer) : "");
  neap_sql_text(sql, owner >= 0 ? line_of(&graph->node[owner]) : NULL);
  neap_sql_text(sql, neap_role_name(value->role));
  neap_sql_text(sql, neap_region_name(place->region));
  neap_sql_text(sql, neap_dtype_name(value->type.dtype));
  neap_sql_text(sql, neap_layout_text(&value->layout, value->type.shape.n_dim, layout));
  neap_sql_text(sql, neap_shape_text(&value->type.shape, shape));
  neap_sql_int(sql, (int64_t)place->bytes);
  neap_sql_int(sql, place->region == NEAP_REGION_ARENA ? (int64_t)place->offset : 0);
  neap_sql_int(sql, NEAP_MAX(place->first, 0) + 1);
  neap_sql_int(sql, NEAP_MAX(place->last, 0) + 1);
  neap_sql_int(sql, value->keep);
  neap_sql_text(sql, neap_reason_code(place->reason));
  neap_sql_text(sql, detail_of(plan, graph, v, detail, sizeof detail));
}

/* One row a value. A value without a definition (an input, a parameter) stands under the first op
 * that reads it. */
neap_status neap_store_insert_values(neap_store *store, int64_t plan_id, const neap_plan *plan,
                                     const neap_graph *graph, const char *lost, neap_error *error) {
  int *reader = first_readers(graph);
  if (reader == NULL)
    return neap_fail_memory(error, (size_t)graph->n_value * sizeof *reader, "the rows of a plan");
  neap_sql sql =
    neap_sql_new(store,
                 "INSERT INTO plan_value (plan_id, value_no, storage_no, blob, layer, line, role, "
                 "region, dtype, layout, "
                 "shape, bytes, offset_bytes, first_step, last_step, kept, reason, detail) "
                 "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                 lost);
  neap_status status = NEAP_OK;
  for (int v = 0; v < plan->n_value && status == NEAP_OK; v++) {
    neap_sql_int(&sql, plan_id);
    bind_value(&sql, plan, graph, v, owner_of(graph, v, reader));
    status = neap_sql_run(&sql, error);
  }
  neap_sql_fini(&sql);
  neap_free(reader);
  return status;
}
