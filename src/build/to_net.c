/* to_net.c: a prepared graph as a net again, backward written out: what `net:expand` gives and
 * memonger works on.
 *
 * Every value becomes a blob. What the graph knows and names can't say (roles, whose gradient a
 * blob is, pairs of forward and backward, random streams, devices) goes into the net's own fields,
 * so that the net runs as the graph would: same kernels, same bits.
 *
 * Subgraphs become subnets, in the backward pass too: the gradient of an If is an If whose branches
 * are forward and backward. What a branch or a loop's body captures goes by the name it has around;
 * states and rows, which a body gets by position, by names of its own. The backward of a loop is
 * one op, LoopGradient: it is made again of the loop that it names, whose frames are then cut as
 * they were (loop_gradient.c); so such a loop's body is written as it was before the cut.
 *
 * INVARIANT: the last version of a name keeps it, since that is what fetch sees; values before it
 * that go by the same name are "name~2", "name~3", except versions of one storage, which are in
 * place by name.
 *
 * INVARIANT: no name in a subnet means something else around it.
 */
#include "build/build_int.h"

#include <stdio.h>
#include <string.h>

typedef struct writer {
  const struct writer *outer; /* of the net around a subnet; NULL: outermost */
  const neap_graph *graph;
  const neap_net *from; /* may be NULL */
  neap_net *net;
  const char **name;    /* by value */
  neap_map taken;       /* names of blobs */
  const char **op_name; /* by node: as added to the net */
  neap_map op_taken;    /* names of ops */
  neap_map *sub_taken;  /* names of all subnets, at any depth */
  bool *skip;           /* by node: not written */
  int64_t *recompute;   /* of the loop body written last: ops that its backward recomputes */
  int n_recompute;
  bool is_recomputed; /* in the body of a loop whose backward is made again of it, at any depth */
} writer;

/* `base`, or "base~2", "base~3" ..: the first that `taken` lacks. NULL when memory is refused. */
static const char *free_name(neap_map *taken, const char *base) {
  const char *name = neap_intern(base);
  for (int n = 2; name != NULL && neap_map_get(taken, name, 0) != 0; n++)
    name = neap_intern_format("%s~%d", base, n);
  return name != NULL && neap_map_set(taken, name, 1) ? name : NULL;
}

/* The value that a declared blob has before the graph runs; -1: nothing reads it. */
static neap_value_id declared_value(const neap_graph *graph, const char *name) {
  for (int v = 0; v < graph->n_value; v++)
    if (graph->value[v].node < 0 && graph->value[v].name == name) return v;
  return NEAP_NO_VALUE;
}

/* A blob name that neither this net nor those around it have. NULL when memory is refused. */
static const char *free_blob_name(writer *w, const char *base) {
  for (;;) {
    const char *name = free_name(&w->taken, base);
    /* A subnet captures by name, so one that is free here and taken around would mean the other. */
    const writer *at = w->outer;
    while (name != NULL && at != NULL && neap_map_get(&at->taken, name, 0) == 0) at = at->outer;
    if (name == NULL || at == NULL) return name;
  }
}

/* All versions of one storage have one name: that of the first. */
static neap_status name_root(writer *w, neap_value_id v, neap_error *error) {
  neap_value_id root = w->graph->value[v].root;
  if (w->name[root] == NULL && (w->name[root] = free_blob_name(w, w->graph->value[v].name)) == NULL)
    return graph_no_memory(error);
  w->name[v] = w->name[root];
  return NEAP_OK;
}

/* Blobs that the world can ask for take their names first, then all others in order of
 * definition. */
static neap_status name_values(writer *w, neap_error *error) {
  const int n_blob = w->from != NULL ? neap_net_n_blobs(w->from) : 0;
  for (int i = 0; i < n_blob; i++) {
    const neap_net_blob *blob = neap_net_blob_at(w->from, i);
    if (blob->type.dtype == NEAP_DTYPE_NONE) continue;
    neap_value_id v = declared_value(w->graph, blob->name);
    /* Declared blobs keep their names whether the graph reads them or not. */
    if (free_name(&w->taken, blob->name) == NULL) return graph_no_memory(error);
    if (v >= 0) w->name[v] = blob->name;
  }

  for (int v = 0; v < w->graph->n_value; v++) {
    const neap_value *value = &w->graph->value[v];
    bool is_asked_for = value->node < 0 || (value->is_blob && value->is_last);
    if (w->name[v] == NULL && is_asked_for) NEAP_TRY(name_root(w, v, error));
  }

  /* The rest gives way: "name~2". */
  for (int v = 0; v < w->graph->n_value; v++)
    if (w->name[v] == NULL) NEAP_TRY(name_root(w, v, error));
  return NEAP_OK;
}

/* A blob that is there before the net runs, with the initial value that the net it came from gives
 * it. */
static neap_status declare(writer *w, const char *name, neap_role role, const neap_type *type,
                           const neap_net_blob *blob, neap_error *error) {
  /* Of a value that graph made there is no blob: nothing fills it but who feeds it. */
  if (blob == NULL)
    return neap_net_declare(w->net, name, role, type, role == NEAP_ROLE_PARAMETER, NULL, NULL, NULL,
                            error);
  if (blob->init < 0)
    return neap_net_declare(w->net, name, role, type, blob->trainable, NULL, NULL, blob->line,
                            error);
  const neap_net_op *init = neap_net_init_at(w->from, blob->init);
  neap_set *set = neap_net_given(init, true);
  if (set == NULL) return graph_no_memory(error);
  neap_status status = neap_net_declare(w->net, name, role, type, blob->trainable, init->op->name,
                                        set, blob->line, error);
  neap_free(set);
  return status;
}

/* First as the net it came from declares them, unread ones too: the order decides which random
 * numbers fill a parameter. Types are the graph's, whose inputs may have another batch. */
static neap_status declare_inputs(writer *w, neap_error *error) {
  const int n_blob = w->from != NULL ? neap_net_n_blobs(w->from) : 0;
  for (int i = 0; i < n_blob; i++) {
    const neap_net_blob *blob = neap_net_blob_at(w->from, i);
    if (blob->type.dtype == NEAP_DTYPE_NONE) continue;

    /* The type of the graph's value, whose batch may be another one than the net declares. */
    neap_value_id v = declared_value(w->graph, blob->name);
    NEAP_TRY(declare(w, blob->name, blob->role, v >= 0 ? &w->graph->value[v].type : &blob->type,
                     blob, error));
  }

  /* What is there before the run, and no net declares: gradients that arrive, what another half
   * keeps. Of one storage the first version stands for all. */
  for (int v = 0; v < w->graph->n_value; v++) {
    const neap_value *value = &w->graph->value[v];
    if (value->node >= 0 || value->root != v || neap_net_find_blob(w->net, w->name[v]) != NULL)
      continue;
    NEAP_TRY(declare(w, w->name[v],
                     value->role == NEAP_ROLE_ACTIVATION ? NEAP_ROLE_INPUT : value->role,
                     &value->type, NULL, error));
  }
  return NEAP_OK;
}

/* Where the op came from. A node with another one as `forward` is the backward half of a pair. */
static neap_net_origin origin_of(const writer *w, int n) {
  const neap_node *node = &w->graph->node[n];
  neap_net_origin origin = {.backward = node->phase == NEAP_PHASE_BACKWARD};
  if (origin.backward && node->forward != n) origin.forward = w->op_name[node->forward];
  /* Elsewhere the op stands at another place of the definition, and shall draw the same numbers. */
  if ((node->effects & NEAP_EFFECT_RANDOM) != 0) origin.stream = node->stream;
  return origin;
}

/* The part of an op's full name that lies in its scope. */
static const char *name_in_scope(const char *name, const char *scope) {
  size_t n = strlen(scope);
  /* The net puts the scope in front again; a name of another making is given whole. */
  return n > 0 && strncmp(name, scope, n) == 0 && name[n] == '/' ? name + n + 1 : NULL;
}

/* Given by the user, or set by a rewrite. Others stay defaults: to be given or not is part of what
 * some attributes mean. */
static bool is_told(const neap_attr *attr, const neap_attr_value *value) {
  return value->given || value->n != attr->value.n || value->i != attr->value.i;
}

/* ---- subnets --------------------------------------------------------------------------------- */

/* Operands of a control op before those that its subnets take: an If's condition. All subnets take
 * the same. */
static int n_before_params(const neap_node *node) { return node->n_in - node->sub[0]->n_param; }

/* Whether the operand is captured by name. States and rows of a loop are found by position, a
 * condition by nobody. */
static bool is_capture(const neap_node *node, int i) {
  if (node->loop == NULL) return i >= n_before_params(node);
  return i >= graph_attr_int(node, "n_state") + graph_attr_int(node, "n_seq");
}

/* A name is taken once, and what no branch reads not at all. */
static bool is_left_out(const writer *w, const neap_node *node, int i) {
  if (!is_capture(node, i)) return false;
  if (node->in[i] < 0) return true;
  /* Two operands that have one name here, such as two versions of one storage, are one capture. */
  for (int k = 0; k < i; k++)
    if (is_capture(node, k) && node->in[k] >= 0 && w->name[node->in[k]] == w->name[node->in[i]])
      return true;
  return false;
}

static neap_status write_nodes(writer *w, neap_error *error);

/* The parameters' names, and those among them that the interface lists, n of them. */
static neap_status name_params(writer *w, const neap_node *node, const char **takes, int *n,
                               neap_error *error) {
  static const neap_type untyped = {0};
  int first = n_before_params(node);
  for (int i = first; i < node->n_in; i++) {
    neap_value_id v = w->graph->param[i - first];
    if (is_capture(node, i) && node->in[i] < 0) {
      /* Nothing reads it, so that any name will do. */
      w->name[v] = w->graph->value[v].name;
    } else if (is_capture(node, i)) {
      /* What the name means around: no blob of the subnet may take it. */
      w->name[v] = w->outer->name[node->in[i]];
      if (!neap_map_set(&w->taken, w->name[v], 1)) return graph_no_memory(error);
    } else {
      /* Found by position, so that its name is the subnet's own. */
      NEAP_TRY(name_root(w, v, error));
      NEAP_TRY(neap_net_declare(w->net, w->name[v], NEAP_ROLE_INPUT, &untyped, false, NULL, NULL,
                                NULL, error));
    }
    if (!is_left_out(w->outer, node, i)) takes[(*n)++] = w->name[v];
  }
  return NEAP_OK;
}

static bool is_framed(const neap_node *node) {
  return node->loop != NULL && !node->loop->is_backward && node->loop->frames >= 0;
}

static bool is_read(const neap_graph *graph, neap_value_id v) {
  for (int n = 0; n < graph->n_node; n++)
    for (int i = 0; i < graph->node[n].n_in; i++)
      if (graph->node[n].in[i] == v) return true;
  return false;
}

static bool reads(const neap_node *node, neap_value_id v) {
  for (int i = 0; i < node->n_in; i++)
    if (node->in[i] == v) return true;
  return false;
}

/* Whether a result other than `v` gives value `from`, or one before result k does instead of the
 * copy that it was: a subnet gives a name once. */
static bool is_given(const writer *w, int k, neap_value_id from) {
  const neap_graph *graph = w->graph;
  for (int j = 0; j < graph->n_output; j++)
    if (graph->output[j] == from) return true;
  for (int j = 0; j < k; j++) {
    int maker = graph->value[graph->output[j]].node;
    if (maker >= 0 && w->skip[maker] && reads(&graph->node[maker], from)) return true;
  }
  return false;
}

/* What result k of a body, or of a branch in one, was before it was given its place (build_result):
 * a copy of what lies elsewhere or an assignment to the state that it replaces is made again when
 * the net is read, and in between would be differentiated. Marks that node as one to skip. */
static neap_value_id before_place(writer *w, int k) {
  const neap_graph *graph = w->graph;
  neap_value_id v = graph->output[k], from = NEAP_NO_VALUE;
  int n = graph->value[v].node;

  /* What an op of the body reads is no mere copy into a place. */
  if (n < 0 || is_read(graph, v)) return v;

  const neap_node *node = &graph->node[n];
  if (strcmp(node->op->name, "Assign") == 0) from = node->in[1];
  if (strcmp(node->op->name, "Copy") == 0 && graph->value[node->in[0]].region != NEAP_REGION_ARENA)
    from = node->in[0];
  if (from < 0 || is_given(w, k, from)) return v;
  w->skip[n] = true;
  return from;
}

/* Positions of the ops that are marked, in the list of the writer around. */
static neap_status list_recompute(const writer *w, writer *outer, neap_error *error) {
  neap_free(outer->recompute);
  outer->n_recompute = 0;
  outer->recompute = neap_alloc(((size_t)w->graph->n_node + 1) * sizeof *outer->recompute);
  if (outer->recompute == NULL) return graph_no_memory(error);

  /* Counted as they are written: what is skipped has no position. */
  int at = 0;
  for (int n = 0; n < w->graph->n_node; n++) {
    if (w->skip[n]) continue;
    if (w->graph->node[n].recompute) outer->recompute[outer->n_recompute++] = at;
    at++;
  }
  return NEAP_OK;
}

/* Into w->net, which is new. */
static neap_status write_body(writer *w, const neap_node *node, neap_error *error) {
  /* Lists of the interface: what it takes, then what it gives. */
  const neap_graph *graph = w->graph;
  const char **list =
    neap_alloc(((size_t)graph->n_param + (size_t)graph->n_output + 1) * sizeof *list);
  int n_takes = 0;
  if (list == NULL) return graph_no_memory(error);
  const char **gives = list + graph->n_param;

  /* Parameters first, whose names come from around; then all other values. */
  neap_status status = name_params(w, node, list, &n_takes, error);
  if (status == NEAP_OK) status = name_values(w, error);

  /* Results before nodes, since they say which of those are skipped. */
  if (status == NEAP_OK)
    for (int k = 0; k < graph->n_output; k++)
      gives[k] = w->name[w->is_recomputed ? before_place(w, k) : graph->output[k]];
  if (status == NEAP_OK) status = write_nodes(w, error);
  if (status == NEAP_OK)
    status = neap_net_set_sub_interface(w->net, n_takes, list, graph->n_output, gives, error);
  neap_free(list);
  return status;
}

static neap_status writer_init(writer *w, neap_error *error) {
  w->name = neap_alloc_zeroed((size_t)(w->graph->n_value + 1) * sizeof *w->name);
  w->op_name = neap_alloc_zeroed((size_t)(w->graph->n_node + 1) * sizeof *w->op_name);
  w->skip = neap_alloc_zeroed((size_t)(w->graph->n_node + 1) * sizeof *w->skip);
  return w->name == NULL || w->op_name == NULL || w->skip == NULL ? graph_no_memory(error)
                                                                  : NEAP_OK;
}

/* Tables only: the net is the caller's. */
static void writer_fini(writer *w) {
  neap_free((void *)w->name);
  neap_free((void *)w->op_name);
  neap_free(w->skip);
  neap_free(w->recompute);
  neap_map_fini(&w->taken);
  neap_map_fini(&w->op_taken);
}

/* Subgraph s of the node as a subnet, which the net around it owns. */
static neap_status write_sub(writer *outer, const neap_node *node, int s, const neap_net **out,
                             neap_error *error) {
  writer w = {.outer = outer, .graph = node->sub[s], .sub_taken = outer->sub_taken};
  w.is_recomputed = outer->is_recomputed || is_framed(node);
  const char *name = free_name(outer->sub_taken, w.graph->name);
  neap_status status = name == NULL ? graph_no_memory(error) : writer_init(&w, error);
  if (status == NEAP_OK) status = neap_net_new_sub(outer->net, name, &w.net, error);
  if (status == NEAP_OK) status = write_body(&w, node, error);
  if (status == NEAP_OK) status = list_recompute(&w, outer, error);
  if (status == NEAP_OK) *out = w.net;
  writer_fini(&w);
  return status;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* Into `set`: what the user gave or a rewrite set, and subnets, which are written here. */
static neap_status write_attrs(writer *w, const neap_node *node, neap_set *set, neap_error *error) {
  int n = 0, s = 0;
  for (int a = 0; a < neap_op_n_attrs(node->op); a++) {
    const neap_attr *attr = &node->op->attrs[a];
    neap_attr_value value = node->attrs[a];
    bool is_net = attr->type == NEAP_ATTR_NET;
    if (is_net) NEAP_TRY(write_sub(w, node, s++, &value.net, error));
    /* Positions have changed with the body, which is written by now: net attributes come first. */
    if (strcmp(attr->name, "recompute") == 0)
      value =
        (neap_attr_value){.given = w->n_recompute > 0, .n = w->n_recompute, .ints = w->recompute};
    if (is_net || is_told(attr, &value)) set[n++] = (neap_set){attr->name, value};
  }
  return NEAP_OK;
}

/* Of a backward loop: the gradients that arrive, one name for each result of its forward. */
static int name_arriving(const writer *w, const neap_node *node, const char **in) {
  const neap_loop *loop = node->loop;
  for (int k = 0; k < loop->n_result; k++)
    in[k] = loop->arrives[k] >= 0 ? w->name[node->in[loop->arrives[k]]] : NULL;
  return loop->n_result;
}

/* Whether operand i of a backward loop arrives, or is the frames: they are made again. */
static bool is_said(const neap_loop *loop, int i) {
  if (i == loop->frames) return true;
  for (int k = 0; k < loop->n_result; k++)
    if (loop->arrives[k] == i) return true;
  return false;
}

/* Names of what the op reads, in a list that has room for all; returns how many. A backward loop
 * says first what arrives, then what else it reads, and of frames nothing. */
static int name_inputs(const writer *w, const neap_node *node, const char **in) {
  const bool is_backward = node->loop != NULL && node->loop->is_backward;
  int n = is_backward ? name_arriving(w, node, in) : 0;
  for (int i = 0; i < node->n_in; i++) {
    const bool is_absent = node->in[i] < 0;
    if (is_backward && (is_absent || is_said(node->loop, i))) continue;
    /* A net names what its subnets capture once. */
    if (!is_backward && node->n_sub > 0 && is_left_out(w, node, i)) continue;
    in[n++] = is_absent ? NULL : w->name[node->in[i]];
  }
  return n;
}

/* One op by the public call, so that the net has passed every check. A Free is written with its
 * inputs as outputs, as a user writes it. */
static neap_status write_node(writer *w, int n, neap_error *error) {
  const neap_node *node = &w->graph->node[n];
  const char *in[512], *out[256];
  neap_set set[NEAP_OP_MAX_ATTR + 1] = {{0}};
  bool release = (node->op->effects & NEAP_EFFECT_RELEASE) != 0;

  /* Frames come last and have no name in a net: the backward's op makes them again. */
  int n_out = release ? node->n_in : node->n_out - is_framed(node);
  int n_result = node->loop != NULL ? node->loop->n_result : 0;
  if (node->n_in > 256 || n_out > 256 || n_result > 256)
    return neap_fail(error, NEAP_GRAPH, "%s \"%s\" has more than 256 operands", node->op->name,
                     node->name);

  /* Operands by their names in this net; a name of its own for the op, which pairs refer to. */
  int n_in = name_inputs(w, node, in);
  for (int k = 0; k < n_out; k++) out[k] = release ? in[k] : w->name[node->out[k]];
  const char *name = w->op_name[n] = free_name(&w->op_taken, node->name), *inner = NULL;
  if (name == NULL) return graph_no_memory(error);

  /* Subnets are written here, before the op that owns them. */
  NEAP_TRY(write_attrs(w, node, set, error));

  /* The call as a user would make it. */
  inner = name_in_scope(name, node->scope);
  neap_net_call call = {.type = node->op->name,
                        .n_in = n_in,
                        .n_out = n_out,
                        .in = in,
                        .out = out,
                        .attrs = set,
                        .name = inner != NULL ? inner : name,
                        .scope = inner != NULL ? node->scope : NULL,
                        .layer = node->layer,
                        .line = node->line,
                        .device = node->device,
                        .origin = origin_of(w, n)};
  return neap_net_add(w->net, &call, NULL, error);
}

static neap_status write_nodes(writer *w, neap_error *error) {
  for (int n = 0; n < w->graph->n_node; n++)
    if (!w->skip[n]) NEAP_TRY(write_node(w, n, error));
  return NEAP_OK;
}

/* Outputs, keeps, banks, and whose gradient each blob is. */
static neap_status write_roles(writer *w, neap_error *error) {
  const neap_graph *graph = w->graph;
  const char **output = neap_alloc(((size_t)graph->n_output + 1) * sizeof *output);
  if (output == NULL) return graph_no_memory(error);
  for (int k = 0; k < graph->n_output; k++) output[k] = w->name[graph->output[k]];
  neap_status status = neap_net_set_outputs(w->net, graph->n_output, output, error);
  neap_free(output);
  if (status != NEAP_OK) return status;

  /* What else the graph knows of blobs, for reports, fetches and banks. */
  for (int v = 0; v < graph->n_value; v++) {
    const neap_value *value = &graph->value[v];
    if (value->gradient_of != NULL && value->node >= 0 && value->root == v)
      NEAP_TRY(neap_net_set_gradient(w->net, w->name[v], value->gradient_of,
                                     value->region == NEAP_REGION_GRADIENT, error));
    if (value->keep) NEAP_TRY(neap_net_keep(w->net, w->name[v], error));
    /* A bank is of the blob that the user assigned, under whatever name it goes by now. */
    const neap_net_blob *blob = value->is_blob ? neap_net_find_blob(w->from, value->name) : NULL;
    if (blob != NULL && blob->bank != NULL)
      NEAP_TRY(neap_net_assign(w->net, w->name[v], blob->bank, error));
  }
  return NEAP_OK;
}

/* Names first, since ops refer to later blobs only by them. */
static neap_status write_net(writer *w, neap_error *error) {
  NEAP_TRY(name_values(w, error));
  NEAP_TRY(declare_inputs(w, error));
  NEAP_TRY(write_nodes(w, error));
  return write_roles(w, error);
}

neap_status neap_graph_to_net(const neap_graph *graph, const neap_net *from, neap_net **out,
                              neap_error *error) {
  neap_map sub_taken = {0};
  writer w = {.graph = graph, .from = from, .sub_taken = &sub_taken};
  neap_status status = writer_init(&w, error);
  if (status == NEAP_OK) status = neap_net_new(graph->name, &w.net, error);
  if (status == NEAP_OK) status = write_net(&w, error);
  writer_fini(&w);
  neap_map_fini(&sub_taken);
  if (status != NEAP_OK) {
    neap_net_free(w.net);
    return status;
  }
  *out = w.net;
  return NEAP_OK;
}
