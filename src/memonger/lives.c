/* lives.c: what the planner knows of a net's blob names: when each lives, what may overlap it, and
 * who may share at all. recycle.c chooses by it, apply.c renames.
 *
 * The net's graph is prepared so that node n is op n, and one schedule of it under policy `name`
 * gives the lives of all values; a name lives from the first write of any version to the last read
 * of any. A net whose Gradient op stands as it is has more nodes than ops: its names live as long
 * as the backward pass reads them, and lives count nodes. In `dag`, name A is over before B begins
 * when a path leads from all that touches A to all that writes B.
 * INVARIANT: names that `conflict` keeps apart may not become one; any other two of one class may.
 * INVARIANT: whatever shares, lower_bound_bytes is not above what the names hold: it counts the
 * same blobs at their full sizes, and those alive at one step conflict.
 */
#include "memonger/memonger_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What neap_recycle_open needs while it works; all but `r` is given back by finish_open. `blob_of`
 * lies in r's arena. */
typedef struct opener {
  neap_recycle *r;
  neap_work work;
  neap_schedule schedule;
  int *blob_of; /* by value; -1: nameless */
} opener;

static neap_status no_memory(neap_error *error) {
  return neap_fail_memory(error, 4096, "the live ranges of a net");
}

/* ---- what may not be shared ------------------------------------------------------------------ */

/* Why a blob keeps its name and bytes, as far as the net's definition says; NULL: nothing there
 * against it. Static text. Names are interned: equal ones are one pointer. */
static const char *why_fixed(const neap_net *net, const neap_net_blob *blob) {
  /* The first reason will do; it is told to who asks. */
  if (blob->type.dtype != NEAP_DTYPE_NONE || blob->role == NEAP_ROLE_INPUT) return "is declared";
  if (blob->keep) return "is kept";
  if (blob->role == NEAP_ROLE_OUTPUT) return "is an output";
  if (blob->role == NEAP_ROLE_GRADIENT || blob->role == NEAP_ROLE_STATE)
    return "stays from run to run";

  /* A list of outputs says the same as a role. */
  for (int k = 0; k < neap_net_n_outputs(net); k++)
    if (neap_net_output_at(net, k) == blob->name) return "is an output";
  return NULL;
}

/* Whether the op reads or writes the name. */
static bool is_operand(const neap_net_op *op, const char *name) {
  for (int i = 0; i < op->n_in; i++)
    if (op->in[i] == name) return true;
  for (int k = 0; k < op->n_out; k++)
    if (op->out[k] == name) return true;
  return false;
}

/* Whether the subnet gets the name from outside, or gives it out. */
static bool is_handed(const neap_net *sub, const char *name) {
  for (int k = 0; k < neap_net_n_outputs(sub); k++)
    if (neap_net_output_at(sub, k) == name) return true;
  for (int k = 0; k < neap_net_n_sub_inputs(sub); k++)
    if (neap_net_sub_input_at(sub, k) == name) return true;
  return false;
}

/* Names that a subnet of `owner` has to itself, parameters and results that stand for other
 * operands among them: a renaming from outside would reach them too. */
static void fix_inner_names(opener *o, const neap_net_op *owner, const neap_net *sub) {
  for (int i = 0; i < neap_net_n_blobs(sub); i++) {
    const char *name = neap_net_blob_at(sub, i)->name;

    /* A name that the net has not, or that is fixed already. */
    int b = neap_map_get(&o->r->index, name, -1);
    if (b < 0 || o->r->blob[b].fixed != NULL) continue;

    /* The owner's operand under its own name: inside and outside it is one blob. */
    if (is_handed(sub, name) && is_operand(owner, name)) continue;
    o->r->blob[b].fixed = "is a name inside a subnet too";
  }

  /* Subnets of the subnet, with their own owners. */
  for (int i = 0; i < neap_net_n_ops(sub); i++) {
    const neap_net_op *op = neap_net_op_at(sub, i);
    for (int a = 0; a < neap_op_n_attrs(op->op); a++)
      if (op->op->attrs[a].type == NEAP_ATTR_NET && op->attrs[a].net != NULL)
        fix_inner_names(o, op, op->attrs[a].net);
  }
}

/* One record per name of the net, with no life yet, and the index of names; then what keeps a name
 * fixed. Fails with MEMORY. */
static neap_status list_blobs(opener *o, neap_error *error) {
  neap_recycle *r = o->r;
  r->n_blob = neap_net_n_blobs(r->net);
  r->blob = neap_arena_alloc(&r->arena, ((size_t)r->n_blob + 1) * sizeof *r->blob);
  if (r->blob == NULL) return no_memory(error);

  /* All on one device until a version says otherwise, and alive at no time. */
  for (int i = 0; i < r->n_blob; i++) {
    const neap_net_blob *blob = neap_net_blob_at(r->net, i);
    r->blob[i] = (neap_recycle_blob){.name = blob->name,
                                     .gradient_of = blob->gradient_of,
                                     .role = blob->role,
                                     .type = blob->type,
                                     .first = -1,
                                     .last = -1,
                                     .is_one_device = true,
                                     .fixed = why_fixed(r->net, blob)};
    if (!neap_map_set(&o->r->index, blob->name, i)) return no_memory(error);
  }

  /* Subnets are looked at when all names of the net are known. */
  for (int i = 0; i < r->n_op; i++) {
    const neap_net_op *op = neap_net_op_at(r->net, i);
    for (int a = 0; a < neap_op_n_attrs(op->op); a++)
      if (op->op->attrs[a].type == NEAP_ATTR_NET && op->attrs[a].net != NULL)
        fix_inner_names(o, op, op->attrs[a].net);
  }
  return NEAP_OK;
}

/* ---- lives ----------------------------------------------------------------------------------- */

/* The definition order under policy `name`, without scratch, which no name has. `dag` adds
 * reachability. */
static neap_status schedule_net(opener *o, bool dag, neap_error *error) {
  neap_recycle *r = o->r;
  size_t *scratch_bytes =
    neap_arena_alloc(&r->arena, ((size_t)r->graph->n_node + 1) * sizeof *scratch_bytes);
  if (scratch_bytes == NULL) return no_memory(error);

  /* The planner's own order and lives: they say what really overlaps. */
  o->work = (neap_work){.graph = r->graph,
                        .options = {.policy = NEAP_POLICY_NAME,
                                    .executor = dag ? NEAP_EXECUTOR_DAG : NEAP_EXECUTOR_SIMPLE},
                        .scratch_bytes = scratch_bytes};

  /* Lives need who reads what; a dag needs the paths besides. */
  NEAP_TRY(neap_graph_uses(r->graph, &o->work.uses, error));
  if (dag) NEAP_TRY(neap_reach_new(r->graph, &o->work.reach, &o->work.n_word, error));
  return neap_schedule_init(&o->schedule, &o->work, NULL, error);
}

/* The net's graph, owned by the recycle, with all ops left as they are written. INTERNAL error when
 * nodes should be ops, and are not as many. */
static neap_status prepare_net(opener *o, const neap_graph_options *given, neap_error *error) {
  neap_recycle *r = o->r;
  neap_graph_options options = given != NULL ? *given : (neap_graph_options){0};
  options.by_op = r->by_op;
  options.no_rewrite = true;
  NEAP_TRY(neap_graph_prepare(r->net, &options, &r->graph, error));
  if (r->by_op && r->graph->n_node != r->n_op)
    return neap_fail(error, NEAP_INTERNAL, "net \"%s\" has %d ops, its graph %d nodes",
                     neap_net_name(r->net), r->n_op, r->graph->n_node);
  return NEAP_OK;
}

/* One version of a name adds to what is known of it: its life, its largest type, whether it stays
 * on one device. */
static void add_version(opener *o, int v) {
  const neap_value *value = &o->r->graph->value[v];
  const neap_schedule *s = &o->schedule;
  neap_recycle_blob *blob = &o->r->blob[o->blob_of[v]];
  const neap_net_blob *named = neap_net_find_blob(o->r->net, blob->name);
  const char *device = value->node >= 0 ? o->r->graph->node[value->node].device : "";
  if (named != NULL && named->bank != NULL) device = named->bank;

  /* One that lies on two devices, or in two banks, is no one's to share. */
  blob->is_one_device = blob->is_one_device && (blob->device == NULL || blob->device == device);
  blob->device = device;

  /* Alive from the first version's making to the last one's last reader. */
  if (value->node >= 0)
    blob->first = blob->first < 0 ? s->first[v] : NEAP_MIN(blob->first, s->first[v]);
  blob->last = NEAP_MAX(blob->last, s->last[v]);

  /* The largest version says how many bytes the name needs. */
  if (blob->bytes <= neap_align(value->bytes)) {
    blob->bytes = neap_align(value->bytes);
    blob->type = value->type;
  }

  /* Bytes that are not in the arena, or are the kernel's to size, are nobody's to share. */
  if (value->is_stash && blob->fixed == NULL)
    blob->fixed = "is a stash, whose size its kernel chooses";
  if (value->region != NEAP_REGION_ARENA && blob->fixed == NULL)
    blob->fixed = "stays from run to run";
}

/* Marks the names on either side of a view op. */
static void mark_views(opener *o) {
  neap_recycle *r = o->r;
  for (int n = 0; n < r->graph->n_node; n++) {
    const neap_node *node = &r->graph->node[n];
    for (int k = 0; k < node->op->n_alias; k++) {
      neap_pair pair = node->op->alias[k];
      /* Either operand may be absent, or have no name. */
      int in = pair.in < node->n_in ? node->in[pair.in] : -1,
          out = pair.out < node->n_out ? node->out[pair.out] : -1;
      if (in >= 0 && o->blob_of[in] >= 0) r->blob[o->blob_of[in]].is_view = true;
      if (out >= 0 && o->blob_of[out] >= 0) r->blob[o->blob_of[out]].is_view = true;
    }
  }
}

static neap_interval life_of(const neap_recycle_blob *blob) {
  return (neap_interval){blob->first, blob->last, blob->bytes};
}

/* The sum of the blobs that could share, and the most of them alive at one step. */
static neap_status find_figures(neap_recycle *r, neap_error *error) {
  neap_interval *life = neap_alloc(((size_t)r->n_blob + 1) * sizeof *life);
  if (life == NULL) return no_memory(error);
  int n = 0;

  /* Who is fixed has his bytes in any case: neither sum counts them. */
  for (int b = 0; b < r->n_blob; b++) {
    const neap_recycle_blob *blob = &r->blob[b];
    if (blob->fixed != NULL) continue;
    r->baseline_bytes += blob->bytes;
    /* What is there before the net runs is not the net's to share. */
    if (blob->first >= 0) life[n++] = life_of(blob);
  }

  /* What is alive at one step needs bytes of its own there, whatever the names. */
  neap_peak peak;
  neap_status status = neap_interval_peak(n, life, &peak, error);
  if (status == NEAP_OK) r->lower_bound_bytes = peak.bytes;
  neap_free(life);
  return status;
}

/* From values to names, and the figures of the net. */
static neap_status find_lives(opener *o, neap_error *error) {
  neap_recycle *r = o->r;
  o->blob_of = neap_arena_alloc(&r->arena, ((size_t)r->graph->n_value + 1) * sizeof *o->blob_of);
  if (o->blob_of == NULL) return no_memory(error);

  /* Blobs of the net alone: the graph's own values may have names too. */
  for (int v = 0; v < r->graph->n_value; v++) {
    o->blob_of[v] = neap_map_get(&o->r->index, r->graph->value[v].name, -1);
    if (!r->graph->value[v].is_blob) o->blob_of[v] = -1;
    if (o->blob_of[v] >= 0) add_version(o, v);
  }
  mark_views(o);
  return find_figures(r, error);
}

/* ---- conflicts ------------------------------------------------------------------------------- */

/* Two names conflict unless all writers of the one come after all that touches the other. */
static neap_status find_conflicts_dag(opener *o, neap_error *error) {
  neap_recycle *r = o->r;
  neap_arena arena = {0};
  const neap_uses *uses = &o->work.uses;
  int n_value = r->graph->n_value, n = r->n_blob, n_use = uses->first[n_value];
  /* Nodes by name, one list behind the other: who touches it, and who begins it. */
  int *touch = neap_arena_alloc(&arena, (size_t)(n_value + n_use + 1) * sizeof *touch),
      *begin = neap_arena_alloc(&arena, (size_t)(n_value + 1) * sizeof *begin),
      *touch_at = neap_arena_alloc(&arena, (size_t)(n + 2) * sizeof *touch_at),
      *begin_at = neap_arena_alloc(&arena, (size_t)(n + 2) * sizeof *begin_at);
  neap_status status = NEAP_OK;
  if (touch == NULL || begin == NULL || touch_at == NULL || begin_at == NULL) {
    status = no_memory(error);
    goto done;
  }

  /* How many nodes there are for each name, as the place where the next name's begin.. */
  for (int v = 0; v < n_value; v++) {
    int b = o->blob_of[v], written = r->graph->value[v].node >= 0;
    if (b < 0) continue;
    touch_at[b + 2] += written + uses->first[v + 1] - uses->first[v];
    begin_at[b + 2] += written;
  }
  for (int b = 0; b < n; b++) {
    touch_at[b + 2] += touch_at[b + 1];
    begin_at[b + 2] += begin_at[b + 1];
  }

  /* .. which moves to its own place while they are filled in: whoever writes a version of the name
   * touches it and begins it, and whoever reads one touches it. */
  for (int v = 0; v < n_value; v++) {
    int b = o->blob_of[v], node = r->graph->value[v].node;
    if (b < 0) continue;
    if (node >= 0) touch[touch_at[b + 1]++] = begin[begin_at[b + 1]++] = node;
    for (int k = uses->first[v]; k < uses->first[v + 1]; k++)
      touch[touch_at[b + 1]++] = uses->list[k];
  }

  /* The planner's own test, on names in place of storages. */
  const neap_touches touches = {touch_at, touch, begin_at, begin, o->work.reach, o->work.n_word};
  status = neap_interfere_in_order(n, &touches, r->conflict, r->n_word, error);
done:
  neap_arena_fini(&arena);
  return status;
}

/* Where nodes are not ops they need not be in the ops' order either: what commits comes last in a
 * graph; and no node need read what an op takes, as a Do may. There names conflict also when they
 * overlap in the text of the net, from the first op that mentions the one to the last. */
static neap_status add_text_conflicts(opener *o, neap_error *error) {
  neap_recycle *r = o->r;
  neap_interval *life = neap_alloc(((size_t)r->n_blob + 1) * sizeof *life);
  if (life == NULL) return no_memory(error);
  /* What no op mentions begins after its end, and so meets nobody. */
  for (int b = 0; b < r->n_blob; b++) life[b] = (neap_interval){r->n_op, -1, r->blob[b].bytes};
  for (int i = 0; i < r->n_op; i++) {
    const neap_net_op *op = neap_net_op_at(r->net, i);
    for (int k = 0; k < op->n_in + op->n_out; k++) {
      const char *name = k < op->n_in ? op->in[k] : op->out[k - op->n_in];
      int b = name != NULL ? neap_map_get(&r->index, name, -1) : -1;
      if (b < 0) continue; /* absent, or of the net around */
      life[b].first = NEAP_MIN(life[b].first, i);
      life[b].last = i;
    }
  }

  /* These come on top of the conflicts by lives, in the same matrix. */
  neap_interfere_on_line(r->n_blob, life, r->conflict, r->n_word);
  neap_free(life);
  return NEAP_OK;
}

/* Names whose lives meet, where ops run one after another. */
static neap_status find_conflicts_line(opener *o, neap_error *error) {
  neap_recycle *r = o->r;
  neap_interval *life = neap_alloc(((size_t)r->n_blob + 1) * sizeof *life);
  if (life == NULL) return no_memory(error);
  for (int b = 0; b < r->n_blob; b++) life[b] = life_of(&r->blob[b]);
  neap_interfere_on_line(r->n_blob, life, r->conflict, r->n_word);
  neap_free(life);
  return NEAP_OK;
}

/* Fills the matrix. */
static neap_status find_conflicts(opener *o, neap_error *error) {
  neap_recycle *r = o->r;
  r->n_word = (r->n_blob + 63) / 64;
  r->conflict =
    neap_arena_alloc(&r->arena, ((size_t)r->n_blob * (size_t)r->n_word + 1) * sizeof *r->conflict);
  if (r->conflict == NULL) return no_memory(error);

  /* Where nodes are ops, lives say it all. */
  if (!r->by_op) NEAP_TRY(add_text_conflicts(o, error));
  return o->work.reach != NULL ? find_conflicts_dag(o, error) : find_conflicts_line(o, error);
}

/* ---- who shares ------------------------------------------------------------------------------ */

/* NAME error for a blob that the net lacks. mark[b], where asked for, is set for each blob of the
 * list. */
static neap_status mark_names(const opener *o, const char *field, int n, const char *const *list,
                              bool *mark, neap_error *error) {
  char who[64];
  snprintf(who, sizeof who, "recycle: %s: ", field);
  for (int i = 0; i < n; i++) {
    const char *name = neap_intern(list[i]);
    if (name == NULL) return no_memory(error);

    /* A word that is no blob is an error always: a mistyped name would else leave nothing out. */
    int b = neap_map_get(&o->r->index, name, -1);
    if (b < 0) return neap_net_fail_undefined(o->r->net, who, name, error);
    if (mark != NULL) mark[b] = true;
  }
  return NEAP_OK;
}

/* Blobs that an op outside the list writes are out. */
static neap_status keep_to_ops(const opener *o, const neap_recycle_options *options, bool *out,
                               neap_error *error) {
  const neap_recycle *r = o->r;
  bool *listed = neap_alloc_zeroed((size_t)r->n_op + 1);
  if (listed == NULL) return no_memory(error);
  neap_status status = NEAP_OK;

  /* Numbers come from outside: each is looked at before it is used. */
  for (int i = 0; i < options->n_op; i++) {
    if (options->op[i] < 0 || options->op[i] >= r->n_op) {
      status = neap_fail(error, NEAP_ARGUMENT, "recycle: op: net \"%s\" has %d ops, got number %d",
                         neap_net_name(r->net), r->n_op, options->op[i] + 1);
      goto done;
    }
    listed[options->op[i]] = true;
  }

  /* What the others write keeps its name. */
  for (int i = 0; i < r->n_op; i++) {
    if (listed[i]) continue;
    const neap_net_op *op = neap_net_op_at(r->net, i);
    for (int k = 0; k < op->n_out; k++)
      if (op->out[k] != NULL) out[neap_map_get(&o->r->index, op->out[k], 0)] = true;
  }
done:
  neap_free(listed);
  return status;
}

static bool reads_parameter(const neap_net *net, const neap_net_op *op) {
  for (int i = 0; i < op->n_in; i++) {
    const neap_net_blob *blob = op->in[i] != NULL ? neap_net_find_blob(net, op->in[i]) : NULL;
    if (blob != NULL && blob->role == NEAP_ROLE_PARAMETER) return true;
  }
  return false;
}

/* What an op with parameters gives is an activation of a layer; the last ones are what people look
 * at. */
static void keep_last(const opener *o, int n, bool *out) {
  /* From the end of the net, until n are found. */
  for (int i = o->r->n_op - 1; i >= 0; i--) {
    if (n <= 0) return;
    const neap_net_op *op = neap_net_op_at(o->r->net, i);
    if (op->origin.backward || op->n_out == 0 || op->out[0] == NULL) continue;
    if (!reads_parameter(o->r->net, op)) continue;
    out[neap_map_get(&o->r->index, op->out[0], 0)] = true;
    n--;
  }
}

/* What no op of the backward pass writes is out, unless the net says that it is a gradient. */
static neap_status keep_to_gradients(const opener *o, bool *out, neap_error *error) {
  const neap_recycle *r = o->r;
  bool *made = neap_alloc_zeroed((size_t)r->n_blob + 1);
  if (made == NULL) return no_memory(error);

  for (int i = 0; i < r->n_op; i++) {
    const neap_net_op *op = neap_net_op_at(r->net, i);
    if (!op->origin.backward) continue;
    for (int k = 0; k < op->n_out; k++)
      if (op->out[k] != NULL) made[neap_map_get(&o->r->index, op->out[k], 0)] = true;
  }
  /* Made by the backward pass, or said to be a gradient: all else is out. */
  for (int b = 0; b < r->n_blob; b++)
    if (!made[b] && r->blob[b].gradient_of == NULL) out[b] = true;
  neap_free(made);
  return NEAP_OK;
}

/* out[b]: the options leave the blob out. */
static neap_status leave_out(const opener *o, const neap_recycle_options *options, bool *out,
                             neap_error *error) {
  int n_blob = o->r->n_blob;
  if (options->n_shareable > 0) {
    NEAP_TRY(mark_names(o, "shareable", options->n_shareable, options->shareable, out, error));
    for (int b = 0; b < n_blob; b++) out[b] = !out[b];
  }

  /* `out` holds what may be shared so far, if the options name that; from here on it holds the
   * rest. */
  NEAP_TRY(mark_names(o, "dont_share", options->n_dont_share, options->dont_share, out, error));
  NEAP_TRY(mark_names(o, "head", options->n_head, options->head, NULL, error));
  if (options->n_op > 0) NEAP_TRY(keep_to_ops(o, options, out, error));

  /* What is kept besides, and who is no gradient: both only add to what is out. */
  keep_last(o, options->keep_last, out);
  return options->gradients_only ? keep_to_gradients(o, out, error) : NEAP_OK;
}

/* Who shares, and the classes: a number for each pair of device and dtype. No device counts as
 * "". */
static neap_status select_blobs(opener *o, const neap_recycle_options *options, neap_error *error) {
  neap_recycle *r = o->r;
  bool *out = neap_alloc_zeroed((size_t)r->n_blob + 1);
  neap_map device = {0};
  int n_device = 0;
  neap_status status = NEAP_OK;
  if (out == NULL) {
    status = no_memory(error);
    goto done;
  }
  status = leave_out(o, options, out, error);
  if (status != NEAP_OK) goto done;

  for (int b = 0; b < r->n_blob; b++) {
    neap_recycle_blob *blob = &r->blob[b];
    const char *key = blob->device != NULL ? blob->device : "";
    /* Devices are numbered as they are met. */
    int at = neap_map_get(&device, key, -1);
    if (at < 0) {
      at = n_device++;
      if (!neap_map_set(&device, key, at)) {
        status = no_memory(error);
        goto done;
      }
    }

    /* One class shares: one device, and one dtype unless they may be mixed. */
    blob->class_id = at * NEAP_N_DTYPE + (options->mix_dtypes ? 0 : (int)blob->type.dtype);
    blob->shares = !out[b] && blob->fixed == NULL && blob->first >= 0 && blob->is_one_device;
  }
done:
  neap_map_fini(&device);
  neap_free(out);
  return status;
}

/* From the graph on. Closes the recycle when something fails, now or before. */
static neap_status finish_open(opener *o, const neap_recycle_options *options, neap_status status,
                               neap_error *error) {
  static const neap_recycle_options defaults;
  if (options == NULL) options = &defaults;

  /* Lives follow from the schedule, conflicts from lives; who shares is the options' choice among
   * what may. */
  if (status == NEAP_OK) status = schedule_net(o, options->dag, error);
  if (status == NEAP_OK) status = find_lives(o, error);
  if (status == NEAP_OK) status = find_conflicts(o, error);
  if (status == NEAP_OK) status = select_blobs(o, options, error);

  /* What only opening needs goes in any case; what is left is the recycle's own. */
  neap_schedule_fini(&o->schedule);
  neap_uses_fini(&o->work.uses);
  neap_free(o->work.reach);
  if (status != NEAP_OK) neap_recycle_close(o->r);
  return status;
}

neap_status neap_recycle_open(neap_recycle *recycle, const neap_net *net,
                              const neap_graph_options *graph, const neap_recycle_options *options,
                              neap_error *error) {
  *recycle = (neap_recycle){.net = net, .n_op = neap_net_n_ops(net), .by_op = true};
  opener o = {.r = recycle};

  /* A pseudo-op stands for more nodes than one, so that nodes are not ops. */
  for (int i = 0; i < recycle->n_op; i++)
    if ((neap_net_op_at(net, i)->op->effects & NEAP_EFFECT_PSEUDO) != 0) recycle->by_op = false;
  neap_status status = list_blobs(&o, error);
  if (status == NEAP_OK) status = prepare_net(&o, graph, error);
  return finish_open(&o, options, status, error);
}

/* What a subnet takes is static, and so are its results: they lie in its owner's operands, and so
 * in no arena. */
neap_status neap_recycle_open_sub(neap_recycle *recycle, const neap_net *sub, neap_graph *graph,
                                  neap_error *error) {
  *recycle =
    (neap_recycle){.net = sub, .n_op = neap_net_n_ops(sub), .graph = graph, .is_sub = true};
  opener o = {.r = recycle};
  neap_status status = list_blobs(&o, error);
  return finish_open(&o, NULL, status, error);
}

void neap_recycle_close(neap_recycle *recycle) {
  if (!recycle->is_sub) neap_graph_free(recycle->graph);
  neap_map_fini(&recycle->index);
  neap_arena_fini(&recycle->arena);
  *recycle = (neap_recycle){0};
}

neap_status neap_recycle_by_op(const neap_recycle *r, const char *what, neap_error *error) {
  if (r->by_op) return NEAP_OK;
  neap_fail(error, NEAP_ARGUMENT,
            "net \"%s\" has a Gradient or Do op, whose work is not written out: it has no %s by op",
            neap_net_name(r->net), what);
  neap_hint(error, "expand the net, which writes it out");
  return NEAP_ARGUMENT;
}
