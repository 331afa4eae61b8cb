/* release.c: what a net holds from op to op if only Free gives bytes back, and Frees put where they
 * may stand.
 *
 * INVARIANT: no Free stands before a reader of its blob, and no blob is freed twice: the copy of
 * the net is made by its own rules, which refuse both.
 */
#include "memonger/memonger_int.h"

#include <stdlib.h>
#include <string.h>

static neap_status no_memory(neap_error *error) {
  return neap_fail_memory(error, 4096, "the Frees of a net");
}

/* ---- release --------------------------------------------------------------------------------- */

/* What the ops do with one blob: positions, -1 for never. */
typedef struct use {
  int last_write, first_read, last_read; /* a Free counts in first_read alone */
  bool freed, kept;
} use;

/* use[b] from the ops in order. */
static void find_uses(const neap_recycle *r, use *uses) {
  for (int b = 0; b < r->n_blob; b++)
    uses[b] = (use){.last_write = -1, .first_read = -1, .last_read = -1};

  for (int i = 0; i < r->n_op; i++) {
    const neap_net_op *op = neap_net_op_at(r->net, i);
    bool release = (op->op->effects & NEAP_EFFECT_RELEASE) != 0;
    for (int k = 0; k < op->n_in; k++) {
      if (op->in[k] == NULL) continue;

      /* A Free of the user's own counts as what it is: the blob is not freed twice. */
      use *u = &uses[neap_map_get(&r->index, op->in[k], 0)];
      if (u->first_read < 0) u->first_read = i;
      if (release) u->freed = true;
      if (!release) u->last_read = i;
    }

    /* A name that is written again after its last reading is not over with that reading. */
    for (int k = 0; k < op->n_out; k++)
      if (op->out[k] != NULL) uses[neap_map_get(&r->index, op->out[k], 0)].last_write = i;
  }
}

/* Made here and read here, its last version too; nobody may ask for it, and nobody looks at its
 * bytes under another name. */
static bool may_free(const neap_recycle_blob *blob, const use *u) {
  return blob->first >= 0 && blob->fixed == NULL && !blob->is_view && !u->kept && !u->freed &&
         u->last_read >= 0 && u->last_read >= u->last_write && blob->first < u->first_read;
}

/* From a recycle that is open. */
static neap_status release(const neap_recycle *r, int n_keep, const char *const *keep,
                           neap_net **out, const char ***freed, int *n_freed, neap_error *error) {
  /* Lists by blob; a Free may stand behind each of them. */
  use *uses = neap_alloc((size_t)r->n_blob * sizeof *uses);
  const char **name = neap_alloc((size_t)r->n_blob * sizeof *name);
  int *after = neap_alloc((size_t)r->n_blob * sizeof *after), n = 0;

  /* Frees count as ops: what is drawn behind them stays */
  uint32_t *stream = neap_alloc(((size_t)r->n_op + 1) * sizeof *stream);
  neap_net_edit edit = {.stream = stream, .freed = name, .free_after = after};
  neap_status status = NEAP_OK;
  if (uses == NULL || name == NULL || after == NULL || stream == NULL) {
    status = no_memory(error);
    goto done;
  }

  /* A Free stands behind an op, so that there must be ops to stand behind. */
  status = neap_recycle_by_op(r, "Free", error);
  if (status != NEAP_OK) goto done;
  neap_recycle_streams(r->net, stream);
  find_uses(r, uses);

  /* What the caller wants to keep must be in the net. */
  for (int i = 0; i < n_keep; i++) {
    const char *kept = neap_intern(keep[i]);
    int b = kept != NULL ? neap_map_get(&r->index, kept, -1) : -1;
    if (b < 0) {
      status = kept == NULL ? no_memory(error)
                            : neap_net_fail_undefined(r->net, "release: keep: ", kept, error);
      goto done;
    }
    uses[b].kept = true;
  }

  /* A Free behind the last reader of each blob that may go. */
  for (int b = 0; b < r->n_blob; b++) {
    if (!may_free(&r->blob[b], &uses[b])) continue;
    name[n] = r->blob[b].name;
    after[n++] = NEAP_MAX(uses[b].last_read, r->blob[b].last);
  }

  /* The copy is a net like any other: it refuses a Free that comes too early. */
  edit.n_free = n;
  status = neap_net_copy_edited(r->net, &edit, out, error);
done:
  neap_free(uses);
  neap_free(after);
  neap_free(stream);

  /* The list of names is given out, where it is asked for; names are interned, and last. */
  if (status == NEAP_OK && n_freed != NULL) *n_freed = n;
  if (status == NEAP_OK && freed != NULL)
    *freed = name;
  else
    neap_free(name);
  return status;
}

neap_status neap_recycle_release(const neap_net *net, int n_keep, const char *const *keep,
                                 neap_net **out, const char ***freed, int *n_freed,
                                 neap_error *error) {
  neap_net *written = NULL;
  neap_recycle recycle;

  /* A net with pseudo-ops is written out first: its ops are then all there is. */
  NEAP_TRY(neap_recycle_write_out(net, NULL, &written, error));
  neap_status status =
    neap_recycle_open(&recycle, written != NULL ? written : net, NULL, NULL, error);
  if (status == NEAP_OK) {
    status = release(&recycle, n_keep, keep, out, freed, n_freed, error);
    neap_recycle_close(&recycle);
  }
  neap_net_free(written);
  return status;
}

/* ---- estimate -------------------------------------------------------------------------------- */

/* The sums of several nets. The nets run in one workspace: a name is one blob, whichever of them
 * writes it. */
typedef struct counter {
  neap_memory_estimate *out;
  const char *device; /* NULL: any */
  int64_t held_bytes; /* by the nets before, and by this one so far */
  int cap;
  neap_map held; /* name of a blob that has bytes -> index in `bytes` */
  int64_t *bytes;
  int n_held, cap_held;
} counter;

/* Adds to the sum of an op type. False: memory is refused. */
static bool add_type(counter *c, const char *type, int64_t bytes) {
  neap_memory_estimate *e = c->out;

  /* Few types, so that they are looked for one by one. */
  int k = 0;
  while (k < e->n_type && strcmp(e->by_type[k].type, type) != 0) k++;
  if (k == e->n_type) {
    if (!neap_list_grow(&e->by_type, &c->cap, e->n_type + 1, sizeof *e->by_type)) return false;
    e->by_type[e->n_type++] = (struct neap_type_bytes){type, 0};
  }

  e->by_type[k].bytes += bytes;
  return true;
}

/* A view op's output lies in its input's bytes. */
static bool is_view_output(const neap_node *node, int k) {
  for (int p = 0; p < node->op->n_alias; p++)
    if (node->op->alias[p].out == k) return true;
  return false;
}

/* Notes that `name` has at least so many bytes, and returns how many of them are new. -1: memory is
 * refused. */
static int64_t hold(counter *c, const char *name, int64_t bytes) {
  int at = neap_map_get(&c->held, name, -1);
  if (at < 0) {
    if (!neap_list_grow(&c->bytes, &c->cap_held, c->n_held + 1, sizeof *c->bytes)) return -1;
    if (!neap_map_set(&c->held, name, c->n_held)) return -1;
    at = c->n_held++;
    c->bytes[at] = 0;
  }

  /* A name is as large as the largest blob that any of the nets keeps under it. */
  int64_t more = NEAP_MAX(0, bytes - c->bytes[at]);
  c->bytes[at] += more;
  return more;
}

/* Bytes of the blobs that the node writes, as far as they are not held yet. -1: memory is
 * refused. */
static int64_t make_outputs(counter *c, const neap_recycle *r, const neap_node *node) {
  int64_t made = 0;
  for (int k = 0; k < node->n_out; k++) {
    const neap_value *value = &r->graph->value[node->out[k]];

    /* Only a named blob has bytes of its own; a later version lies in the first one's, a view in
     * its input's. */
    int b = value->is_blob ? neap_map_get(&r->index, value->name, -1) : -1;
    if (b < 0 || value->root != node->out[k] || is_view_output(node, k)) continue;
    int64_t more = hold(c, value->name, (int64_t)r->blob[b].bytes);
    if (more < 0) return -1;
    made += more;
  }
  return made;
}

/* Bytes that a Free gives back. */
static int64_t free_inputs(counter *c, const neap_recycle *r, const neap_node *node) {
  if ((node->effects & NEAP_EFFECT_RELEASE) == 0) return 0;
  int64_t bytes = 0;

  for (int i = 0; i < node->n_in; i++) {
    const char *name = node->in[i] >= 0 ? r->graph->value[node->in[i]].name : NULL;
    int at = name != NULL ? neap_map_get(&c->held, name, -1) : -1;
    if (at < 0) continue;

    /* What comes back is what the name holds by now, of whichever net. */
    bytes += c->bytes[at];
    c->bytes[at] = 0;
  }
  return bytes;
}

/* A walk over the ops of one net in definition order: a name's bytes are held from its first write
 * to the Free that releases it, else to the end of all nets. */
static neap_status count_net(counter *c, const neap_recycle *r, neap_error *error) {
  NEAP_TRY(neap_recycle_by_op(r, "estimate", error));
  for (int n = 0; n < r->graph->n_node; n++) {
    const neap_node *node = &r->graph->node[n];

    /* Ops of other devices make nothing that counts. */
    bool here =
      c->device == NULL || strcmp(node->device != NULL ? node->device : "", c->device) == 0;
    int64_t made = here ? make_outputs(c, r, node) : 0;
    if (made < 0 || (made > 0 && !add_type(c, node->op->name, made))) return no_memory(error);

    /* The op's outputs are there while its inputs still are; what a Free ends goes after that. */
    c->out->total_bytes += made;
    c->held_bytes += made;
    c->out->high_bytes = NEAP_MAX(c->out->high_bytes, c->held_bytes);
    c->held_bytes -= free_inputs(c, r, node);
  }
  return NEAP_OK;
}

/* Largest first, then by name. */
static int by_bytes(const void *a, const void *b) {
  const struct neap_type_bytes *x = a, *y = b;
  if (x->bytes != y->bytes) return x->bytes > y->bytes ? -1 : 1;
  return strcmp(x->type, y->type);
}

neap_status neap_recycle_estimate(int n_net, const neap_net *const *net,
                                  const neap_graph_options *graph, const char *device,
                                  neap_memory_estimate *out, neap_error *error) {
  *out = (neap_memory_estimate){0};
  counter c = {.out = out, .device = device};
  neap_status status = NEAP_OK;
  for (int i = 0; i < n_net; i++) {
    neap_net *written = NULL;
    neap_recycle recycle;

    /* One net after the other; what a net leaves is held while the next one runs. */
    status = neap_recycle_write_out(net[i], graph, &written, error);
    if (status == NEAP_OK)
      status = neap_recycle_open(&recycle, written != NULL ? written : net[i], graph, NULL, error);
    if (status == NEAP_OK) {
      status = count_net(&c, &recycle, error);
      neap_recycle_close(&recycle);
    }
    neap_net_free(written);
    if (status != NEAP_OK) break;
  }

  /* Sums of nets that failed halfway say nothing: all or none is given out. */
  neap_map_fini(&c.held);
  neap_free(c.bytes);
  if (out->n_type > 0) qsort(out->by_type, (size_t)out->n_type, sizeof *out->by_type, by_bytes);
  if (status == NEAP_OK) return NEAP_OK;
  neap_free(out->by_type);
  *out = (neap_memory_estimate){0};
  return status;
}
