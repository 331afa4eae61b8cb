/* blob.c: feed, fetch and view.
 *
 * A name means the cell of that name, unless the last program to run has a later version of it: a
 * transient value in the arena, or another version of resident bytes under a new name. A transient
 * value can be read while nobody has taken its bytes; the error says who has, and what to do.
 */
#include "workspace/workspace_int.h"

#include <stdio.h>
#include <string.h>

/* SHAPE, or DTYPE when those differ, with both types in the message and in the record. */
neap_status neap_workspace_fail_type(const char *what, const char *name, const neap_type *expected,
                                     const neap_type *got, neap_error *error) {
  char want[NEAP_SHAPE_TEXT], have[NEAP_SHAPE_TEXT];
  neap_shape_text(&expected->shape, want);
  neap_shape_text(&got->shape, have);
  if (error != NULL && error->code == NEAP_OK) {
    snprintf(error->blob, sizeof error->blob, "%s", name);
    snprintf(error->expected, sizeof error->expected, "%s %.110s", neap_dtype_name(expected->dtype),
             want);
    snprintf(error->got, sizeof error->got, "%s %.110s", neap_dtype_name(got->dtype), have);
  }
  return neap_fail(error, expected->dtype == got->dtype ? NEAP_SHAPE : NEAP_DTYPE,
                   "%s \"%s\": expects %s %s, got %s %s", what, name,
                   neap_dtype_name(expected->dtype), want, neap_dtype_name(got->dtype), have);
}

void neap_cell_clear(neap_cell *cell) {
  neap_tensor_fini(&cell->tensor);
  neap_tensor_fini(&cell->left);
  neap_free(cell->text);
  neap_scope_release(cell->scope);
  cell->text = NULL;
  cell->text_bytes = 0;
  cell->scope = NULL;
  cell->bank = NULL;
  cell->is_shared = cell->in_segment = cell->filled = false;
  cell->outdated = NULL;
}

neap_blob_kind neap_cell_kind(const neap_cell *cell) {
  if (cell->text != NULL) return NEAP_BLOB_STRING;
  if (cell->scope != NULL) return NEAP_BLOB_SCOPE;
  return cell->tensor.storage != NULL ? NEAP_BLOB_TENSOR : NEAP_BLOB_EMPTY;
}

neap_status neap_workspace_fail_kind(const char *what, const char *name, neap_blob_kind kind,
                                     neap_error *error) {
  if (error != NULL && error->code == NEAP_OK) {
    snprintf(error->blob, sizeof error->blob, "%s", name);
    snprintf(error->expected, sizeof error->expected, "a tensor");
    snprintf(error->got, sizeof error->got, "%s",
             kind == NEAP_BLOB_STRING ? "a string" : "a scope");
  }
  return neap_fail(error, NEAP_DTYPE, "%s: blob \"%s\" holds a %s; only tensors are operands", what,
                   name, kind == NEAP_BLOB_STRING ? "string" : "scope");
}

/* ---- feed ------------------------------------------------------------------------------------ */

/* Bytes of its own with the elements of `tensor`, in `bank` (may be NULL), or with `share` the
 * tensor itself. */
static neap_status take(const neap_workspace *ws, const char *name, const char *bank,
                        const neap_tensor *tensor, bool share, neap_tensor *out,
                        neap_error *error) {
  if (share) {
    *out = neap_tensor_retain(tensor);
    return NEAP_OK;
  }
  if (bank == NULL) return neap_workspace_copy_in(tensor, out, error);
  char who[200];
  neap_type type = neap_tensor_type(tensor);
  snprintf(who, sizeof who, "feed \"%.180s\"", name);
  NEAP_TRY(neap_workspace_make_in_bank(ws, who, bank, &type, 0, out, error));
  neap_status status = neap_tensor_copy(out, tensor, error);
  if (status != NEAP_OK) neap_tensor_fini(out);
  return status;
}

/* From here on the cell is later than what the last program left under its name. */
static void mark_fed(neap_workspace *ws, neap_cell *cell) {
  cell->filled = true;
  cell->outdated = NULL;
  cell->fed_run = ws->n_run;
}

neap_status neap_workspace_check_total(const neap_workspace *ws, const char *who, const char *name,
                                       size_t more, neap_error *error) {
  if (ws->total_bytes == 0) return NEAP_OK;
  const size_t held = neap_workspace_held_bytes(ws);
  if (held + more <= ws->total_bytes) return NEAP_OK;

  /* Held and wanted are told apart, so that the reader sees what could go. */
  char a[24], b[24];
  neap_error refused = {.limit = "total",
                        .limit_bytes = (int64_t)ws->total_bytes,
                        .least_bytes = (int64_t)(held + more),
                        .held_bytes = (int64_t)held};
  neap_refused_fixed(&refused, "held already", held);
  neap_refused_blob(&refused, name, more);
  return neap_fail_budget(
    error, &refused, "%s \"%s\": the workspace would hold %s, its total is %s", who, name,
    neap_bytes_text_beside((double)(held + more), (double)ws->total_bytes, a),
    neap_bytes_text_beside((double)ws->total_bytes, (double)(held + more), b));
}

/* Whether a feed of this type is written over the cell's bytes, which programs keep pointers to: it
 * takes no others. */
static bool lies_in_place(const neap_cell *cell, const neap_type *type) {
  if (cell == NULL || cell->tensor.storage == NULL || cell->is_shared) return false;
  neap_type has = neap_tensor_type(&cell->tensor);
  return neap_type_equal(&has, type) || neap_workspace_has_room(cell, type);
}

neap_status neap_workspace_check_give(const neap_workspace *ws, const char *name,
                                      const neap_type *type, bool *in_place, neap_error *error) {
  neap_found found = neap_workspace_find(ws, name);
  const neap_cell *cell = found.ws != NULL ? &found.ws->cell[found.cell] : NULL;
  *in_place = lies_in_place(cell, type);
  if (*in_place || cell == NULL || !cell->in_segment) return NEAP_OK;
  neap_type has = neap_tensor_type(&cell->tensor);
  return neap_workspace_fail_type("feed", name, &has, type, error);
}

/* The elements of the tensor, which fit, in the cell's bytes; where those have room for another
 * shape, the cell's type follows the tensor's. */
static neap_status overwrite(neap_workspace *ws, neap_found found, const neap_tensor *tensor,
                             neap_error *error) {
  neap_cell *cell = &found.ws->cell[found.cell];
  neap_type has = neap_tensor_type(&cell->tensor), got = neap_tensor_type(tensor);
  if (!neap_type_equal(&has, &got)) neap_workspace_retype(found.ws, cell, &got);
  NEAP_TRY(neap_tensor_copy(&cell->tensor, tensor, error));
  mark_fed(ws, cell);
  return NEAP_OK;
}

/* Parameters, gradients and state lie in segments, which views and updates rely on: such a cell
 * gets no other bytes. */
static neap_status fail_in_segment(const neap_cell *cell, const char *name, const neap_type *got,
                                   neap_error *error) {
  neap_type has = neap_tensor_type(&cell->tensor);
  if (!neap_type_equal(&has, got)) return neap_workspace_fail_type("feed", name, &has, got, error);
  neap_hint(error, "feed it without share");
  return neap_fail(error, NEAP_ARGUMENT, "feed \"%s\": %s lie in one segment and can't be shared",
                   name, neap_region_name(cell->region));
}

/* Where the bytes fit they are overwritten, so that programs keep their pointers; else the cell
 * gets others, in the bank that it is assigned to, and the version changes. A shared tensor lies
 * where its owner put it, in no bank. */
neap_status neap_workspace_feed(neap_workspace *ws, const char *name, const neap_tensor *tensor,
                                bool share, neap_error *error) {
  /* Only dense bytes can be the cell's own. */
  if (share && !neap_tensor_is_dense(tensor))
    return neap_fail(error, NEAP_ARGUMENT,
                     "feed \"%s\": a shared tensor must be dense; feed a copy instead", name);
  neap_found found = neap_workspace_find(ws, name);
  neap_cell *cell = found.ws != NULL ? &found.ws->cell[found.cell] : NULL;
  neap_type got = neap_tensor_type(tensor);
  if (!share && lies_in_place(cell, &got)) return overwrite(ws, found, tensor, error);
  if (cell != NULL && cell->in_segment) return fail_in_segment(cell, name, &got, error);

  /* Other bytes: taken first, so that a refusal leaves the blob as it was. */
  neap_tensor fresh;
  const char *bank = cell != NULL && !share ? cell->bank : NULL;
  if (!share) {
    const neap_workspace *owner = found.ws != NULL ? found.ws : ws;
    NEAP_TRY(
      neap_workspace_check_total(owner, "feed", name, neap_align(neap_type_bytes(&got)), error));
  }
  NEAP_TRY(take(found.ws, name, bank, tensor, share, &fresh, error));

  /* The name comes last of what may be refused. */
  if (cell == NULL) {
    int index;
    neap_status status = neap_workspace_new_cell(ws, name, &index, error);
    if (status != NEAP_OK) {
      neap_tensor_fini(&fresh);
      return status;
    }
    cell = &ws->cell[index];
    found.ws = ws;
  }

  /* Else both would be held, the old bytes and the new ones, while programs point to the old. */
  neap_workspace_leave_bytes(found.ws, cell);
  neap_cell_clear(cell);
  cell->tensor = fresh;
  cell->bank = bank;
  cell->is_shared = share;
  cell->reserve_bytes = 0;
  mark_fed(ws, cell);
  found.ws->version++;
  return NEAP_OK;
}

neap_status neap_workspace_give(neap_workspace *ws, const char *name, const neap_tensor *tensor,
                                neap_error *error) {
  neap_type type = neap_tensor_type(tensor);
  neap_found found = neap_workspace_find(ws, name);
  if (found.ws != NULL && lies_in_place(&found.ws->cell[found.cell], &type))
    return neap_workspace_feed(ws, name, tensor, false, error);

  /* Shared first, as that copies nothing; but nobody else has these bytes, so later feeds may write
   * to them. */
  NEAP_TRY(neap_workspace_feed(ws, name, tensor, true, error));
  found = neap_workspace_find(ws, name);
  found.ws->cell[found.cell].is_shared = false;
  return NEAP_OK;
}

/* What the cell says of its bytes (room, shared) stays: it is true again when they are back. */
neap_status neap_workspace_exchange(neap_workspace *ws, const char *name, neap_tensor *tensor,
                                    neap_error *error) {
  neap_found found = neap_workspace_find(ws, name);
  neap_cell *cell = found.ws != NULL ? &found.ws->cell[found.cell] : NULL;
  if (cell == NULL || cell->tensor.storage == NULL)
    return neap_workspace_fail_unknown(ws, "exchange", name, error);
  if (cell->in_segment)
    return neap_fail(error, NEAP_ARGUMENT, "exchange \"%s\": %s lie in one segment and stay there",
                     name, neap_region_name(cell->region));
  neap_tensor own = cell->tensor;
  cell->outdated = NULL;
  cell->tensor = *tensor;
  *tensor = own;
  found.ws->version++;
  return NEAP_OK;
}

/* The own or found cell of a name that is about to hold another kind of thing; what a segment holds
 * can't. */
static neap_status cell_for(neap_workspace *ws, const char *name, neap_found *found,
                            neap_error *error) {
  *found = neap_workspace_find(ws, name);
  if (found->ws != NULL && found->ws->cell[found->cell].in_segment)
    return neap_fail(error, NEAP_DTYPE, "feed \"%s\": %s lie in one segment and stay tensors", name,
                     neap_region_name(found->ws->cell[found->cell].region));
  if (found->ws != NULL) return NEAP_OK;
  found->ws = ws;
  return neap_workspace_new_cell(ws, name, &found->cell, error);
}

/* The cell owns a copy of the n bytes, which may hold zeros; one more zero follows, which n does
 * not count. */
neap_status neap_workspace_feed_string(neap_workspace *ws, const char *name, const char *text,
                                       size_t n, neap_error *error) {
  neap_found found;
  char *copy = neap_alloc(n + 1);
  if (copy == NULL) return neap_fail_memory(error, n + 1, "a string");
  if (n > 0) memcpy(copy, text, n);
  copy[n] = '\0';

  /* The copy is made first: a refusal leaves the blob as it was. */
  neap_status status = cell_for(ws, name, &found, error);
  if (status != NEAP_OK) {
    neap_free(copy);
    return status;
  }

  /* The version changes although no program takes strings: one may have used the tensor that was
   * here. */
  neap_cell *cell = &found.ws->cell[found.cell];
  neap_workspace_leave_bytes(found.ws, cell);
  neap_cell_clear(cell);
  cell->text = copy;
  cell->text_bytes = n;
  mark_fed(ws, cell);
  found.ws->version++;
  return NEAP_OK;
}

neap_status neap_workspace_create_scope(neap_workspace *ws, const char *name, neap_scope **out,
                                        neap_error *error) {
  /* A scope that is there is emptied and keeps its frames, whose memory the next push uses
   * again. */
  neap_found found = neap_workspace_find(ws, name);
  if (found.ws != NULL && found.ws->cell[found.cell].scope != NULL) {
    *out = found.ws->cell[found.cell].scope;
    neap_scope_clear(*out);
    return NEAP_OK;
  }

  neap_scope *scope;
  NEAP_TRY(neap_scope_new(&scope, error));
  neap_status status = cell_for(ws, name, &found, error);
  if (status != NEAP_OK) {
    neap_scope_release(scope);
    return status;
  }
  neap_cell *cell = &found.ws->cell[found.cell];
  neap_workspace_leave_bytes(found.ws, cell);
  neap_cell_clear(cell);
  cell->scope = *out = scope;
  mark_fed(ws, cell);
  found.ws->version++;
  return NEAP_OK;
}

/* ---- other kinds ----------------------------------------------------------------------------- */

neap_blob_kind neap_workspace_kind(const neap_workspace *ws, const char *name) {
  neap_found found = neap_workspace_find(ws, name);
  if (found.ws != NULL) return neap_cell_kind(&found.ws->cell[found.cell]);
  return ws->last != NULL && neap_graph_find(neap_program_graph(ws->last), name) >= 0
           ? NEAP_BLOB_TENSOR
           : NEAP_BLOB_EMPTY;
}

/* NAME error for a name that nobody knows, else DTYPE: the blob holds another kind of thing than
 * `expected`. */
static neap_status fail_other(const neap_workspace *ws, const char *name, const char *expected,
                              neap_error *error) {
  static const char *const word[] = {"nothing", "a tensor", "a string", "a tensor", "a scope"};
  if (!neap_workspace_has(ws, name)) return neap_workspace_fail_unknown(ws, "fetch", name, error);
  return neap_fail(error, NEAP_DTYPE, "fetch \"%s\": expects %s, the blob holds %s", name, expected,
                   word[neap_workspace_kind(ws, name)]);
}

/* *text: borrowed until the blob is fed or removed. */
neap_status neap_workspace_fetch_string(const neap_workspace *ws, const char *name,
                                        const char **text, size_t *n, neap_error *error) {
  neap_found found = neap_workspace_find(ws, name);
  const neap_cell *cell = found.ws != NULL ? &found.ws->cell[found.cell] : NULL;
  if (cell == NULL || cell->text == NULL) return fail_other(ws, name, "a string", error);
  *text = cell->text;
  *n = cell->text_bytes;
  return NEAP_OK;
}

neap_status neap_workspace_scope(const neap_workspace *ws, const char *name, neap_scope **out,
                                 neap_error *error) {
  neap_found found = neap_workspace_find(ws, name);
  const neap_cell *cell = found.ws != NULL ? &found.ws->cell[found.cell] : NULL;
  if (cell == NULL || cell->scope == NULL) return fail_other(ws, name, "a scope", error);
  *out = cell->scope;
  return NEAP_OK;
}

/* ---- finding what a name means now ----------------------------------------------------------- */

/* What a name leads to. `layout` is that of transient bytes. */
typedef struct meaning {
  /* a reference the caller drops; its strides mean nothing unless the layout is plain */
  neap_tensor tensor;
  neap_layout layout;
  bool transient;
} meaning;

/* The op of the graph that frees value v; NULL: none. A walk over all ops, for messages only. */
static const neap_node *freed_by(const neap_graph *graph, neap_value_id v) {
  for (int n = 0; n < graph->n_node; n++) {
    const neap_node *node = &graph->node[n];
    if ((node->effects & NEAP_EFFECT_RELEASE) == 0) continue;
    for (int k = 0; k < node->n_in; k++)
      if (node->in[k] == v) return node;
  }
  return NULL;
}

/* A Free has ended the blob: nothing can be kept of it, so no hint to keep it; the line says where
 * it was freed. */
static neap_status fail_freed(const char *verb, const char *name, const neap_node *release,
                              neap_error *error) {
  if (error != NULL && error->code == NEAP_OK) {
    snprintf(error->blob, sizeof error->blob, "%s", name);
    snprintf(error->op, sizeof error->op, "%s", release->op->name);
    snprintf(error->line, sizeof error->line, "%s", release->line);
  }
  bool known = release->line[0] != '\0';
  return neap_fail(error, NEAP_RELEASED,
                   "%s \"%s\": the blob is untyped, %s \"%s\" has freed it%s%s", verb, name,
                   release->op->name, release->name, known ? ", at " : "", release->line);
}

/* One sentence with the way out in it, which the hint repeats for those who read fields. */
static neap_status fail_released(const char *verb, const char *name, neap_error *error,
                                 const char *why) {
  if (error != NULL && error->code == NEAP_OK) {
    snprintf(error->blob, sizeof error->blob, "%s", name);
    snprintf(error->hint, sizeof error->hint,
             "ws:keep \"%s\" makes it resident, and so do mem_param's exclude_blob and, in C, keep "
             "of neap_options",
             name);
  }
  return neap_fail(error, NEAP_RELEASED, "%s \"%s\": %s; ws:keep \"%s\" makes it resident", verb,
                   name, why, name);
}

/* Steps count from 1 in messages, as everywhere people see them. */
static neap_status fail_overwritten(const neap_program *program, const char *verb, const char *name,
                                    int owner, neap_error *error) {
  const neap_graph *graph = neap_program_graph(program);
  const neap_plan *plan = neap_program_plan(program);
  char why[300];
  if (owner >= 0)
    snprintf(why, sizeof why, "its bytes now belong to \"%s\" (step %d)", graph->value[owner].name,
             plan->place[owner].first + 1);
  else
    snprintf(why, sizeof why, "its bytes were used as scratch by a later step");
  return fail_released(verb, name, error, why);
}

/* Value v of the program that ran last: in the arena while intact, or in the bytes of a resident
 * blob. */
static neap_status mean_value(neap_workspace *ws, const char *verb, const char *name,
                              neap_value_id v, meaning *out, neap_error *error) {
  const neap_graph *graph = neap_program_graph(ws->last);
  const neap_value *value = &graph->value[v];
  int blob;
  size_t offset;
  const neap_plan *plan = neap_program_plan(ws->last);
  if (plan->policy == NEAP_POLICY_POOL && plan->place[v].region == NEAP_REGION_ARENA) {
    /* The pool has its bytes back once the last value in the same storage has been read. */
    char why[300];
    int last = plan->place[plan->place[v].storage].last;
    for (int w = 0; w < plan->n_value; w++)
      if (plan->place[w].storage == plan->place[v].storage)
        last = NEAP_MAX(last, plan->place[w].last);
    snprintf(why, sizeof why, "its bytes were released to the pool after step %d", last + 1);
    return fail_released(verb, name, error, why);
  }

  if (!neap_program_where(ws->last, v, &blob, &offset))
    return neap_fail(error, NEAP_INTERNAL, "%s \"%s\": the value has no bytes", verb, name);

  /* In a resident blob: its bytes, seen as this value. */
  if (blob >= 0) {
    const neap_tensor *bytes = &neap_workspace_attachment(ws, ws->last)->tensor[blob];
    if (bytes->storage == NULL)
      return neap_fail(
        error, NEAP_RELEASED,
        "%s \"%s\": its bytes were given back; the next run that computes it makes it again", verb,
        name);
    out->tensor =
      neap_tensor_view(bytes->storage, bytes->offset_bytes, value->type.dtype, &value->type.shape);
    return NEAP_OK;
  }

  /* A constant stays as it is between runs, perhaps in the layout that its reader asked for. */
  if (blob == NEAP_IN_CONSTANTS) {
    neap_storage *constants = neap_workspace_attachment(ws, ws->last)->constants;
    out->tensor =
      neap_tensor_view(constants, (int64_t)offset, value->type.dtype, &value->type.shape);
    out->layout = value->layout;
    return NEAP_OK;
  }

  /* In the arena: only as long as nothing else has been written there. */
  int owner = neap_plan_overwriter(neap_program_plan(ws->last), graph, v);
  if (owner != -1) return fail_overwritten(ws->last, verb, name, owner, error);
  neap_storage *arena = neap_workspace_bank_arena(ws, ws->last, neap_graph_bank_of(graph, v));
  out->tensor = neap_tensor_view(arena, (int64_t)offset, value->type.dtype, &value->type.shape);
  out->layout = value->layout;
  out->transient = true;
  return NEAP_OK;
}

/* Value of the last program that the name stands for, when that is later than the cell; else
 * NEAP_NO_VALUE. */
static neap_value_id later_value(const neap_workspace *ws, const char *name,
                                 const neap_cell *cell) {
  if (ws->last == NULL || (cell != NULL && cell->fed_run >= ws->n_run && cell->filled))
    return NEAP_NO_VALUE;

  /* What lies in no blob is later than the cell, which was fed before that run. */
  const neap_graph *graph = neap_program_graph(ws->last);
  neap_value_id v = neap_graph_find(graph, name);
  int blob;
  size_t offset;
  if (v < 0 || !neap_program_where(ws->last, v, &blob, &offset) || blob < 0) return v;

  /* In resident bytes. Of a gradient that was given back, mean_value says so. */
  neap_workspace *last = (neap_workspace *)(uintptr_t)ws;
  const neap_attachment *a = neap_workspace_attachment(last, ws->last);
  const char *own = a->name[blob];
  if (cell == NULL && neap_resident_is_given_back(last, a, blob)) return v; /* which says so */

  /* The value lies in the cell's own bytes: the cell answers. Without a cell the blob has been
   * removed, and with it its name. */
  return own == (cell != NULL ? cell->name : neap_intern(name)) ? NEAP_NO_VALUE : v;
}

/* A value of the last program that no blob's last version is: one that was freed, or the gradient
 * "x.grad" of a net that has run, which is a value between two ops unless it is kept. *is_value:
 * there is such a value. */
static neap_status fail_value(const neap_workspace *ws, const char *verb, const char *name,
                              bool *is_value, neap_error *error) {
  *is_value = false;
  if (ws->last == NULL) return NEAP_OK;
  const neap_graph *graph = neap_program_graph(ws->last);

  /* By its name alone, as the graph's index has only last versions of blobs. */
  int v = 0;
  while (v < graph->n_value &&
         (graph->value[v].name == NULL || strcmp(graph->value[v].name, name) != 0))
    v++;
  if (v == graph->n_value) return NEAP_OK;
  *is_value = true;

  const neap_node *release = freed_by(graph, v);
  if (release != NULL) return fail_freed(verb, name, release, error);

  /* Nobody has freed it. Either its bytes are another's by now, or it never was a blob. */
  int owner = -1;
  if (graph->value[v].region == NEAP_REGION_ARENA)
    owner = neap_plan_overwriter(neap_program_plan(ws->last), graph, v);
  if (owner != -1) return fail_overwritten(ws->last, verb, name, owner, error);
  return fail_released(verb, name, error, "it is a value between two ops, and no blob");
}

/* A rewrite has absorbed the blob or left it out: no program has bytes for it. */
static neap_status fail_gone(const struct neap_gone *gone, const char *verb, const char *name,
                             neap_error *error) {
  char why[200] = "nothing reads it, so that it is not computed";
  if (gone->into != NULL) snprintf(why, sizeof why, "\"%s\" has absorbed it", gone->into);
  return fail_released(verb, name, error, why);
}

/* An attached program computes value v of that name: but has not run, or has lost the blob, or
 * another one has run since. */
static neap_status fail_computed(const neap_workspace *ws, const neap_attachment *a,
                                 neap_value_id v, const char *verb, const char *name,
                                 neap_error *error) {
  const char *net = neap_program_graph(a->program)->name;
  if (a->last_run == 0)
    return neap_fail(error, NEAP_RELEASED,
                     "%s \"%s\": net \"%s\", which computes it, has not run yet", verb, name, net);
  int blob;
  size_t offset;
  bool is_own = neap_program_where(a->program, v, &blob, &offset) && blob >= 0 &&
                a->name[blob] == neap_intern(name);
  if (is_own)
    return neap_fail(error, NEAP_NAME,
                     "%s \"%s\": the blob of net \"%s\" has been removed from the workspace", verb,
                     name, net);
  char why[300];
  if (ws->last == NULL)
    snprintf(why, sizeof why, "the last run did not finish");
  else
    snprintf(why, sizeof why, "its bytes belong to net \"%s\", which has run since", ws->last_name);
  return fail_released(verb, name, error, why);
}

/* Nothing in the arena or the table answers to the name: say what is known of it. */
static neap_status fail_missing(const neap_workspace *ws, const char *verb, const char *name,
                                neap_error *error) {
  /* The first attached program that knows the name speaks of it. */
  for (int a = 0; a < ws->n_attachment; a++) {
    const neap_attachment *at = &ws->attachment[a];
    const neap_graph *graph = neap_program_graph(at->program);
    const struct neap_gone *gone = neap_graph_find_gone(graph, name);
    if (gone != NULL) return fail_gone(gone, verb, name, error);
    neap_value_id v = neap_graph_find(graph, name);
    if (v >= 0) return fail_computed(ws, at, v, verb, name, error);
  }

  /* Else a value of the last run, which is no blob, or nobody's name. */
  bool is_value;
  neap_status status = fail_value(ws, verb, name, &is_value, error);
  return is_value ? status : neap_workspace_fail_unknown(ws, verb, name, error);
}

/* The table first tells whether there is a cell, then whether the last run has something later.
 * RELEASED when bytes are gone or were never written, NAME when nobody knows the name. */
static neap_status mean(neap_workspace *ws, const char *verb, const char *name, meaning *out,
                        neap_error *error) {
  *out = (meaning){0};
  neap_found found = neap_workspace_find(ws, name);
  const neap_cell *cell = found.ws != NULL ? &found.ws->cell[found.cell] : NULL;

  /* The last run may have something later than the cell. */
  neap_value_id v = later_value(ws, name, cell);
  if (v >= 0) return mean_value(ws, verb, name, v, out, error);
  if (cell == NULL) return fail_missing(ws, verb, name, error);

  /* A newer value than the cell's was computed, and is gone; a parent's last run may still have
   * it. */
  if (cell->outdated != NULL && found.ws != ws) return mean(found.ws, verb, cell->name, out, error);
  if (cell->outdated != NULL) return neap_newest_fail(verb, name, cell->outdated, error);

  /* The cell's own bytes, if they are a tensor's and anybody has written them. */
  neap_blob_kind kind = neap_cell_kind(cell);
  if (kind == NEAP_BLOB_STRING || kind == NEAP_BLOB_SCOPE)
    return neap_workspace_fail_kind(verb, name, kind, error);
  if (!cell->filled) {
    if (error != NULL && error->code == NEAP_OK)
      snprintf(error->blob, sizeof error->blob, "%s", name);
    return neap_fail(error, NEAP_RELEASED, "%s \"%s\": nothing has been fed or computed yet", verb,
                     name);
  }
  out->tensor = neap_tensor_retain(&cell->tensor);
  return NEAP_OK;
}

/* ---- fetch and view -------------------------------------------------------------------------- */

/* Always plain: blocked bytes are reordered on the way out. */
neap_status neap_workspace_fetch(neap_workspace *ws, const char *name, neap_tensor *out,
                                 neap_error *error) {
  meaning m;
  *out = (neap_tensor){0};
  NEAP_TRY(mean(ws, "fetch", name, &m, error));
  neap_status status;
  if (m.layout.kind == NEAP_LAYOUT_PLAIN)
    status = neap_tensor_clone(&m.tensor, NEAP_DTYPE_NONE, out, error);
  else {
    /* Blocked bytes are put in order on the way out. */
    neap_type type = neap_tensor_type(&m.tensor);
    status = neap_tensor_new(out, type.dtype, &type.shape, error);
    if (status == NEAP_OK)
      status = neap_reorder(&type, &m.layout, neap_tensor_data(&m.tensor), &(neap_layout){0},
                            neap_tensor_data(out), error);
    if (status != NEAP_OK) neap_tensor_fini(out);
  }
  neap_tensor_fini(&m.tensor);
  return status;
}

/* No copy, so no reordering: a blocked value can only be fetched. */
neap_status neap_workspace_view(neap_workspace *ws, const char *name, neap_tensor *out,
                                uint64_t *generation, neap_error *error) {
  meaning m;
  *out = (neap_tensor){0};
  NEAP_TRY(mean(ws, "view", name, &m, error));
  if (generation != NULL) *generation = m.transient ? ws->n_run : 0;
  if (m.layout.kind != NEAP_LAYOUT_PLAIN) {
    neap_tensor_fini(&m.tensor);
    char text[NEAP_LAYOUT_TEXT];
    neap_fail(error, NEAP_ARGUMENT, "view \"%s\": its elements lie in layout %s", name,
              neap_layout_text(&m.layout, NEAP_MAX_DIM, text));
    neap_hint(error, "ws:fetch \"%s\" gives a plain copy", name);
    return NEAP_ARGUMENT;
  }
  *out = m.tensor;
  return NEAP_OK;
}

/* The cell's own bytes: transient ones hold nothing that a constant depends on. */
neap_status neap_workspace_touch(neap_workspace *ws, const char *name, neap_error *error) {
  neap_found found = neap_workspace_find(ws, name);
  if (found.ws == NULL) return neap_workspace_fail_unknown(ws, "touch", name, error);
  neap_storage *storage = found.ws->cell[found.cell].tensor.storage;
  if (storage != NULL) neap_storage_touch(storage);
  return NEAP_OK;
}
