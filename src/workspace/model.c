/* model.c: a net and its parameters as one safetensors file: the net's text in the metadata,
 * parameters and state under the names of its blobs. Any reader of safetensors sees the tensors; a
 * checkpoint (checkpoint.c) is the same without a net.
 *
 * INVARIANT: an import that fails has changed nothing: net and tensors are checked against each
 * other before the workspace takes the first.
 */
#include "io/io.h"
#include "workspace/workspace_int.h"

#include <stdio.h>
#include <string.h>

/* What a net declares to be kept from run to run. */
static bool is_stored(const neap_net_blob *blob) {
  return blob->role == NEAP_ROLE_PARAMETER || blob->role == NEAP_ROLE_STATE;
}

/* Views of the net's parameters and state, in order of declaration; *n of them hold a reference, on
 * failure too. */
static neap_status gather(neap_workspace *ws, const neap_net *net, neap_io_item *item, int *n,
                          neap_buffer *state, neap_error *error) {
  for (int b = 0; b < neap_net_n_blobs(net); b++) {
    const neap_net_blob *blob = neap_net_blob_at(net, b);
    if (!is_stored(blob)) continue;
    NEAP_TRY(neap_workspace_view(ws, blob->name, &item[*n].tensor, NULL, error));
    item[(*n)++].name = (char *)(uintptr_t)blob->name; /* borrowed, and only read */
    if (blob->role == NEAP_ROLE_STATE) neap_buffer_add(state, "%s\n", blob->name);
  }
  return NEAP_OK;
}

/* What a script computes, no file holds: GRAPH for the first such op, in subnets too. */
static neap_status check_no_script(const neap_net *net, neap_error *error) {
  for (int i = 0; i < neap_net_n_ops(net); i++) {
    const neap_net_op *op = neap_net_op_at(net, i);

    /* Who reads the file elsewhere has not that script: an error now is better than one there. */
    if (op->op->scripted) {
      neap_fail(error, NEAP_GRAPH,
                "%s \"%s\": a script computes it (%s), so that no model file can hold it",
                op->op->name, op->name, neap_op_origin(op->op));
      if (error == NULL) return NEAP_GRAPH;
      snprintf(error->op, sizeof error->op, "%s", op->op->name);
      snprintf(error->blob, sizeof error->blob, "%s", op->name);
      snprintf(error->line, sizeof error->line, "%s", op->line);
      neap_hint(error,
                "m:save keeps the parameters; an op that is made of others (of = ..), or one "
                "of a plugin, goes into model files");
      return NEAP_GRAPH;
    }

    /* Bodies of loops and branches are nets, too. */
    for (int a = 0; a < neap_op_n_attrs(op->op); a++)
      if (op->op->attrs[a].type == NEAP_ATTR_NET && op->attrs[a].net != NULL)
        NEAP_TRY(check_no_script(op->attrs[a].net, error));
  }
  return NEAP_OK;
}

neap_status neap_workspace_export(neap_workspace *ws, const neap_net *net, const char *path,
                                  neap_error *error) {
  NEAP_TRY(check_no_script(net, error));
  size_t room = ((size_t)neap_net_n_blobs(net) + 1) * sizeof(neap_io_item);
  neap_io_item *item = neap_alloc_zeroed(room);
  neap_buffer text = {0}, state = {0};
  int n = 0;
  neap_net_print(net, false, &text);
  neap_buffer_add(&state, "%s", "");

  /* The tensors are views of the workspace's bytes: writing a model copies nothing. */
  neap_status status = item != NULL ? gather(ws, net, item, &n, &state, error)
                                    : neap_fail_memory(error, room, "an export");
  if (status == NEAP_OK && (text.failed || state.failed))
    status = neap_fail_memory(error, text.n, "an export");
  if (status == NEAP_OK) {
    const neap_io_pair meta[] = {{NEAP_META_NET, text.text},
                                 {NEAP_META_STATE, state.text},
                                 {NEAP_META_VERSION, (char[]){NEAP_VERSION}}};
    status = neap_io_save(path, n, item, NEAP_COUNT(meta), meta, error);
  }
  for (int i = 0; i < n; i++) neap_tensor_fini(&item[i].tensor);
  neap_free(item);
  neap_buffer_fini(&text);
  neap_buffer_fini(&state);
  return status;
}

/* The net that the file holds. DATA where it has none, or one that can't be read. */
static neap_status read_net(const char *path, const neap_io_list *list, neap_net **out,
                            neap_error *error) {
  const char *text = neap_io_list_meta(list, NEAP_META_NET);
  neap_error inner = {0};
  if (text == NULL)
    return neap_fail(error, NEAP_DATA,
                     "%s: has no net in its metadata; neap.load reads the tensors", path);
  if (neap_net_read(text, out, &inner) == NEAP_OK) return NEAP_OK;
  if (inner.code == NEAP_MEMORY)
    return neap_fail(error, NEAP_MEMORY, "%s: its net: %.600s", path, inner.message);
  return neap_fail(error, NEAP_DATA, "%s: its net: %.600s", path, inner.message);
}

/* Every parameter and state of the net is there, of its type. */
static neap_status check_tensors(const char *path, const neap_net *net, const neap_io_list *list,
                                 neap_error *error) {
  for (int b = 0; b < neap_net_n_blobs(net); b++) {
    const neap_net_blob *blob = neap_net_blob_at(net, b);
    if (!is_stored(blob)) continue;
    const neap_tensor *tensor = neap_io_list_find(list, blob->name);
    if (tensor == NULL)
      return neap_fail(error, NEAP_DATA, "%s: has no tensor \"%s\", which its net declares", path,
                       blob->name);

    /* The net says what it computes with, so the file's type must be that one. */
    neap_type got = neap_tensor_type(tensor);
    char want_text[NEAP_SHAPE_TEXT], got_text[NEAP_SHAPE_TEXT];
    if (!neap_type_equal(&blob->type, &got))
      return neap_fail(error, NEAP_DATA, "%s: tensor \"%s\" is %s %s, its net declares %s %s", path,
                       blob->name, neap_dtype_name(got.dtype),
                       neap_shape_text(&got.shape, got_text), neap_dtype_name(blob->type.dtype),
                       neap_shape_text(&blob->type.shape, want_text));
  }
  return NEAP_OK;
}

neap_status neap_workspace_import(neap_workspace *ws, const char *path, neap_io_map map,
                                  neap_net **out, neap_error *error) {
  neap_io_list list;
  neap_net *net = NULL;
  *out = NULL;
  NEAP_TRY(neap_io_load(path, map, &list, error));

  /* Net, tensors against the net, then the workspace: each step relies on the one before. */
  neap_status status = read_net(path, &list, &net, error);
  if (status == NEAP_OK) status = check_tensors(path, net, &list, error);
  if (status == NEAP_OK)
    status = neap_workspace_take_list(ws, path, &list, map != NEAP_IO_COPY, error);
  neap_io_list_fini(&list);
  if (status == NEAP_OK)
    *out = net;
  else
    neap_net_free(net);
  return status;
}
