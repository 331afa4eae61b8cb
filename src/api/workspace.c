/* workspace.c: numbers in and out of blobs, files, child workspaces, nets by name. */
#include "api/api.h"

#include <string.h>

neap_status neap_workspace_open(uint64_t seed, neap_workspace **out, neap_error *error) {
  return neap_workspace_new(&(neap_workspace_options){.seed = seed}, out, error);
}

neap_status neap_workspace_write(neap_workspace *workspace, const char *name, neap_dtype dtype,
                                 int n_dim, const int64_t *dim, const void *data,
                                 neap_error *error) {
  /* Looked at before anything is made: these numbers come from outside. */
  if (n_dim < 0 || n_dim > NEAP_MAX_DIM)
    return neap_fail(error, NEAP_SHAPE, "write \"%s\": expected 0 to %d dimensions, got %d", name,
                     NEAP_MAX_DIM, n_dim);
  if (dtype <= NEAP_DTYPE_NONE || dtype >= NEAP_N_DTYPE)
    return neap_fail(error, NEAP_DTYPE, "write \"%s\": %d is no dtype", name, (int)dtype);
  for (int i = 0; i < n_dim; i++)
    if (dim[i] < 0)
      return neap_fail(error, NEAP_SHAPE, "write \"%s\": dimension %d is %lld", name, i,
                       (long long)dim[i]);

  /* Feeding copies the tensor, or keeps its storage; this one lets go of it either way. */
  neap_tensor tensor;
  neap_shape shape = neap_shape_of(n_dim, dim);
  neap_type type = {.dtype = dtype, .shape = shape};
  NEAP_TRY(neap_type_check(&type, name, error));
  if (data == NULL && neap_type_bytes(&type) > 0)
    return neap_fail(error, NEAP_ARGUMENT, "write \"%s\": data is NULL, %zu bytes are expected",
                     name, neap_type_bytes(&type));
  NEAP_TRY(neap_tensor_new(&tensor, dtype, &shape, error));
  if (neap_type_bytes(&type) > 0) memcpy(neap_tensor_data(&tensor), data, neap_type_bytes(&type));
  neap_status status = neap_workspace_feed(workspace, name, &tensor, false, error);
  neap_tensor_fini(&tensor);
  return status;
}

neap_status neap_workspace_read(neap_workspace *workspace, const char *name, neap_dtype dtype,
                                int64_t n_elems, void *data, neap_error *error) {
  if (dtype <= NEAP_DTYPE_NONE || dtype >= NEAP_N_DTYPE)
    return neap_fail(error, NEAP_DTYPE, "read \"%s\": %d is no dtype", name, (int)dtype);
  neap_tensor tensor;
  NEAP_TRY(neap_workspace_fetch(workspace, name, &tensor, error));
  neap_status status = NEAP_OK;
  char text[NEAP_SHAPE_TEXT];

  /* As many elements as the caller has room for, cast to its dtype. */
  if (data == NULL && n_elems > 0)
    status = neap_fail(error, NEAP_ARGUMENT, "read \"%s\": data is NULL, room is expected", name);
  else if (neap_tensor_elems(&tensor) == n_elems)
    neap_cast(dtype, data, tensor.dtype, neap_tensor_data(&tensor), n_elems);
  else
    status = neap_fail(error, NEAP_SHAPE, "read \"%s\": %s has %lld elements, asked for %lld", name,
                       neap_shape_text(&tensor.shape, text), (long long)neap_tensor_elems(&tensor),
                       (long long)n_elems);
  neap_tensor_fini(&tensor);
  return status;
}

neap_status neap_workspace_shape(neap_workspace *workspace, const char *name, neap_dtype *dtype,
                                 int *n_dim, int64_t *dim, neap_error *error) {
  neap_tensor tensor;
  NEAP_TRY(neap_workspace_view(workspace, name, &tensor, NULL, error));
  if (dtype != NULL) *dtype = tensor.dtype;
  if (n_dim != NULL) *n_dim = tensor.shape.n_dim;
  if (dim != NULL) memcpy(dim, tensor.shape.dim, sizeof tensor.shape.dim);
  neap_tensor_fini(&tensor);
  return NEAP_OK;
}

int64_t neap_mapped_bytes(void) { return neap_io_mapped_bytes(); }

static void count_blob(void *context, const neap_blob_info *info) {
  (void)info;
  ++*(int *)context;
}

int neap_workspace_n_blobs(const neap_workspace *workspace) {
  int n = 0;
  neap_workspace_each(workspace, count_blob, &n);
  return n;
}

neap_status neap_workspace_open_child(neap_workspace *parent, int n, const char *const *name,
                                      const char *const *target, neap_workspace **out,
                                      neap_error *error) {
  neap_workspace_options options = {.unseeded = true,
                                    .parent = parent,
                                    .n_forward = n,
                                    .forward_name = name,
                                    .forward_target = target != NULL ? target : name};
  return neap_workspace_new(&options, out, error);
}

neap_status neap_workspace_run_once(neap_workspace *workspace, const neap_net *net,
                                    const neap_options *options, char warning[NEAP_WARNING_TEXT],
                                    neap_error *error) {
  neap_compile_options compile;
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_C, __func__, &compile, error));
  if (warning != NULL) warning[0] = '\0';
  return neap_driver_run_once(workspace, net, &compile, warning, error);
}

/* Declares the tensors of a workspace that a line mentions, so that the line can be read. */
typedef struct mentions {
  const char *line;
  neap_net *net;
  neap_status status;
  neap_error *error;
} mentions;

/* Whether `name` stands in the text with no letter of a name on either side. */
static bool is_mentioned(const char *text, const char *name) {
  static const char *const around = " \t\n,()={}";
  size_t n = strlen(name);
  for (const char *at = strstr(text, name); at != NULL; at = strstr(at + 1, name))
    /* the end is among them */
    if ((at == text || strchr(around, at[-1]) != NULL) && strchr(around, at[n]) != NULL)
      return true;
  return false;
}

static void declare_mentioned(void *context, const neap_blob_info *info) {
  mentions *m = context;
  bool is_tensor = info->kind == NEAP_BLOB_TENSOR || info->kind == NEAP_BLOB_TRANSIENT;
  if (m->status != NEAP_OK || !is_tensor || !is_mentioned(m->line, info->name)) return;
  m->status = neap_net_declare(m->net, info->name, NEAP_ROLE_INPUT, &info->type, false, NULL, NULL,
                               NULL, m->error);
}

/* The one op of a net that was read from a line. */
static neap_status run_line(neap_workspace *workspace, const neap_net *net, const char *line,
                            neap_error *error) {
  if (neap_net_n_ops(net) != 1)
    return neap_fail(error, NEAP_ARGUMENT,
                     "run_op: expects the line of one op, such as \"y = Relu(x)\", got \"%s\"",
                     line);
  const neap_net_op *op = neap_net_op_at(net, 0);

  /* The attributes that the line gives, as a call takes them. */
  neap_set *set = neap_net_given(op, false);
  if (set == NULL) return neap_fail_memory(error, 64, "the attributes of an op");
  neap_status status =
    neap_workspace_call_op(workspace, op->op->name, op->n_in, (const char *const *)op->in, set,
                           op->n_out, (const char *const *)op->out, error);
  neap_free(set);
  return status;
}

neap_status neap_workspace_run_op(neap_workspace *workspace, const char *line, neap_error *error) {
  mentions m = {.line = line, .error = error};
  /* The line is read as a net of one op, whose inputs are the workspace's blobs with their
   * types. */
  NEAP_TRY(neap_net_new("run_op", &m.net, error));
  neap_workspace_each(workspace, declare_mentioned, &m);
  if (m.status == NEAP_OK) m.status = neap_net_read_lines(m.net, line, error);
  if (m.status == NEAP_OK) m.status = run_line(workspace, m.net, line, error);
  neap_net_free(m.net);
  return m.status;
}

neap_status neap_workspace_run_steps(neap_workspace *workspace, const neap_step *root,
                                     const neap_options *options, char warning[NEAP_WARNING_TEXT],
                                     neap_error *error) {
  neap_compile_options compile;
  if (warning != NULL) warning[0] = '\0';
  NEAP_TRY(neap_options_compile(options, NEAP_FACE_C, __func__, &compile, error));
  return neap_driver_run_steps(workspace, root, &compile, warning, error);
}
