/* neap.c: the public C API, neap.h, on top of driver. Most of its functions are the rooms' own; here are those that turn the
 * rooms' structs into numbers and texts.
 *
 * INVARIANT: nothing of a room's private types crosses this file: a program that uses neap.h need not be compiled again
 * when a room changes.
 */
#include "neap.h"

#include "driver/driver.h"

#include <stdio.h>
#include <string.h>

const char *neap_version(void) { return NEAP_VERSION; }

void neap_interrupt(bool stop) { neap_interrupted = stop; }

/* The buffer's text, handed over to the caller. */
static neap_status give_text(neap_buffer *buffer, char **out, neap_error *error) {
  if (buffer->text == NULL && !buffer->failed) neap_buffer_add(buffer, "%s", "");
  if (buffer->failed) {
    neap_buffer_fini(buffer);
    return neap_fail_memory(error, 256, "a text");
  }
  *out = buffer->text;
  return NEAP_OK;
}

/* ---- nets ------------------------------------------------------------------------------------------------------- */

neap_status neap_net_add_text(neap_net *net, neap_error *error, const char *format, ...) {
  char small[512];
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int n = vsnprintf(small, sizeof small, format, args);
  va_end(args);
  char *text = n < (int)sizeof small ? small : neap_alloc((size_t)n + 1);
  if (text != NULL && text != small) vsnprintf(text, (size_t)n + 1, format, again);
  va_end(again);
  if (n < 0) return neap_fail(error, NEAP_ARGUMENT, "add_text: the format can't be printed");
  if (text == NULL) return neap_fail_memory(error, (size_t)n + 1, "lines of a net");
  neap_status status = neap_net_read_lines(net, text, error);
  if (text != small) neap_free(text);
  return status;
}

neap_status neap_net_text(const neap_net *net, char **out, neap_error *error) {
  neap_buffer buffer = {0};
  neap_net_print(net, false, &buffer);
  return give_text(&buffer, out, error);
}

neap_status neap_net_expand(const neap_net *net, neap_net **out, neap_error *error) {
  neap_graph *graph;
  NEAP_TRY(neap_graph_prepare(net, NULL, &graph, error));
  neap_status status = neap_graph_to_net(graph, net, out, error);
  neap_graph_free(graph);
  return status;
}

neap_status neap_net_recycle(const neap_net *net, bool dag, const char *prefix, neap_net **out, neap_recycle_figures *figures,
                             neap_error *error) {
  neap_net *expanded = NULL;
  neap_recycle recycle;
  neap_recycle_result result;
  for (int i = 0; i < neap_net_n_ops(net) && expanded == NULL; i++)
    if ((neap_net_op_at(net, i)->op->effects & NEAP_EFFECT_PSEUDO) != 0) NEAP_TRY(neap_net_expand(net, &expanded, error));
  neap_status status = neap_recycle_open(&recycle, expanded != NULL ? expanded : net, NULL, dag, error);
  if (status == NEAP_OK) {
    status = neap_recycle_all(&recycle, prefix != NULL ? prefix : "", out, &result, error);
    neap_recycle_close(&recycle);
  }
  neap_net_free(expanded);
  if (status == NEAP_OK && figures != NULL)
    *figures = (neap_recycle_figures){(int64_t)result.baseline_bytes, (int64_t)result.planned_bytes,
                                      (int64_t)result.lower_bound_bytes, result.n_shared};
  return status;
}

/* ---- workspaces ------------------------------------------------------------------------------------------------- */

neap_status neap_workspace_open(uint64_t seed, neap_workspace **out, neap_error *error) {
  return neap_workspace_new(&(neap_workspace_options){.seed = seed}, out, error);
}

neap_status neap_workspace_write(neap_workspace *workspace, const char *name, neap_dtype dtype, int n_dim, const int64_t *dim,
                                 const void *data, neap_error *error) {
  if (n_dim < 0 || n_dim > NEAP_MAX_DIM)
    return neap_fail(error, NEAP_SHAPE, "write \"%s\": expected 0 to %d dimensions, got %d", name, NEAP_MAX_DIM, n_dim);
  if (dtype <= NEAP_DTYPE_NONE || dtype >= NEAP_N_DTYPE)
    return neap_fail(error, NEAP_DTYPE, "write \"%s\": %d is no dtype", name, (int)dtype);
  for (int i = 0; i < n_dim; i++)
    if (dim[i] < 0) return neap_fail(error, NEAP_SHAPE, "write \"%s\": dimension %d is %lld", name, i, (long long)dim[i]);
  neap_tensor tensor;
  neap_shape shape = neap_shape_of(n_dim, dim);
  NEAP_TRY(neap_tensor_new(&tensor, dtype, &shape, error));
  neap_type type = neap_tensor_type(&tensor);
  if (neap_type_bytes(&type) > 0) memcpy(neap_tensor_data(&tensor), data, neap_type_bytes(&type));
  neap_status status = neap_workspace_feed(workspace, name, &tensor, false, error);
  neap_tensor_fini(&tensor);
  return status;
}

neap_status neap_workspace_read(neap_workspace *workspace, const char *name, neap_dtype dtype, int64_t n_elems, void *data,
                                neap_error *error) {
  if (dtype <= NEAP_DTYPE_NONE || dtype >= NEAP_N_DTYPE)
    return neap_fail(error, NEAP_DTYPE, "read \"%s\": %d is no dtype", name, (int)dtype);
  neap_tensor tensor;
  NEAP_TRY(neap_workspace_fetch(workspace, name, &tensor, error));
  neap_status status = NEAP_OK;
  char text[NEAP_SHAPE_TEXT];
  if (neap_tensor_elems(&tensor) == n_elems)
    neap_cast(dtype, data, tensor.dtype, neap_tensor_data(&tensor), n_elems);
  else
    status = neap_fail(error, NEAP_SHAPE, "read \"%s\": %s has %lld elements, asked for %lld", name,
                       neap_shape_text(&tensor.shape, text), (long long)neap_tensor_elems(&tensor), (long long)n_elems);
  neap_tensor_fini(&tensor);
  return status;
}

neap_status neap_workspace_shape(neap_workspace *workspace, const char *name, neap_dtype *dtype, int *n_dim, int64_t *dim,
                                 neap_error *error) {
  neap_tensor tensor;
  NEAP_TRY(neap_workspace_view(workspace, name, &tensor, NULL, error));
  if (dtype != NULL) *dtype = tensor.dtype;
  if (n_dim != NULL) *n_dim = tensor.shape.n_dim;
  if (dim != NULL) memcpy(dim, tensor.shape.dim, sizeof tensor.shape.dim);
  neap_tensor_fini(&tensor);
  return NEAP_OK;
}

neap_status neap_workspace_save_file(neap_workspace *workspace, const char *path, neap_error *error) {
  return neap_workspace_save(workspace, path, 0, NULL, error);
}

neap_status neap_workspace_load_file(neap_workspace *workspace, const char *path, neap_error *error) {
  return neap_workspace_load(workspace, path, NEAP_IO_COPY, NULL, error);
}

neap_status neap_workspace_map_file(neap_workspace *workspace, const char *path, bool writable, neap_error *error) {
  return neap_workspace_load(workspace, path, writable ? NEAP_IO_MAP_WRITE : NEAP_IO_MAP_READ, NULL, error);
}

int64_t neap_mapped_bytes(void) { return neap_io_mapped_bytes(); }

/* ---- plans and sessions ------------------------------------------------------------------------------------------- */

/* The driver's options from the public ones, checked. */
static neap_status read_options(const neap_options *options, neap_compile_options *out, neap_error *error) {
  static const neap_options defaults;
  if (options == NULL) options = &defaults;
  *out = (neap_compile_options){.plan.policy = NEAP_POLICY_OFFSET, .engine = options->engine, .n_thread = options->n_thread};
  neap_engine engine;
  if (options->budget_bytes < 0 || options->total_bytes < 0 || options->soft_bytes < 0 || options->n_thread < 0)
    return neap_fail(error, NEAP_ARGUMENT, "options: budget_bytes, total_bytes, soft_bytes and n_thread can't be negative");
  if (options->no_fuse && options->fuse_pool)
    return neap_fail(error, NEAP_ARGUMENT, "options: fuse_pool asks for more fusion, no_fuse for none; set one of them");
  if (options->policy != NULL && !neap_policy_from_name(options->policy, &out->plan.policy))
    return neap_fail(error, NEAP_ARGUMENT, "options: policy expects offset, name, none or pool, got \"%s\"", options->policy);
  if (options->dynamic && options->policy != NULL && out->plan.policy != NEAP_POLICY_POOL)
    return neap_fail(error, NEAP_ARGUMENT, "options: dynamic takes bytes from a pool, policy \"%s\" plans them", options->policy);
  if (options->dynamic) out->plan.policy = NEAP_POLICY_POOL;
  out->dynamic = options->dynamic;
  out->soft_bytes = (size_t)options->soft_bytes;
  if (options->engine != NULL && !neap_engine_from_name(options->engine, &engine))
    return neap_fail(error, NEAP_ARGUMENT, "options: engine expects ref, blas or dnnl, got \"%s\"", options->engine);
  out->plan.budget_bytes = (size_t)options->budget_bytes;
  out->total_bytes = (size_t)options->total_bytes;
  out->graph.no_fuse = options->no_fuse;
  out->graph.fuse_pool = options->fuse_pool;
  out->plan.executor = options->dag ? NEAP_EXECUTOR_DAG : NEAP_EXECUTOR_SIMPLE;
  return NEAP_OK;
}

static neap_figures figures_of(const neap_graph *graph, const neap_plan *plan) {
  int64_t total = 0;
  for (int r = 0; r < NEAP_N_REGION; r++)
    if (r != NEAP_REGION_ARGUMENT) total += (int64_t)plan->region_bytes[r];
  return (neap_figures){.n_op = graph->n_node,
                        .arena_bytes = (int64_t)plan->arena_bytes,
                        .lower_bound_bytes = (int64_t)plan->lower_bound_bytes,
                        .baseline_bytes = (int64_t)plan->baseline_bytes,
                        .parameter_bytes = (int64_t)plan->region_bytes[NEAP_REGION_PARAMETER],
                        .gradient_bytes = (int64_t)plan->region_bytes[NEAP_REGION_GRADIENT],
                        .state_bytes = (int64_t)plan->region_bytes[NEAP_REGION_STATE],
                        .io_bytes = (int64_t)plan->region_bytes[NEAP_REGION_IO],
                        .constant_bytes = (int64_t)plan->region_bytes[NEAP_REGION_CONSTANT],
                        .frame_bytes = (int64_t)plan->region_bytes[NEAP_REGION_FRAME],
                        .total_bytes = total,
                        .proved = plan->proved};
}

neap_status neap_net_forecast(const neap_net *net, const neap_options *options, neap_figures *figures, char **explanation,
                              neap_error *error) {
  neap_compile_options compile;
  neap_forecast forecast;
  NEAP_TRY(read_options(options, &compile, error));
  NEAP_TRY(neap_driver_plan(net, &compile, &forecast, error));
  neap_status status = NEAP_OK;
  if (explanation != NULL) {
    neap_buffer buffer = {0};
    neap_plan_explain(forecast.plan, forecast.graph, NEAP_NO_VALUE, &buffer);
    status = give_text(&buffer, explanation, error);
  }
  if (status == NEAP_OK) {
    *figures = figures_of(forecast.graph, forecast.plan);
    figures->total_bytes = (int64_t)forecast.total_bytes;
  }
  neap_forecast_fini(&forecast);
  return status;
}

neap_status neap_session_open(neap_workspace *workspace, const neap_net *net, const neap_options *options, neap_session **out,
                              neap_error *error) {
  neap_compile_options compile;
  NEAP_TRY(read_options(options, &compile, error));
  return neap_driver_compile(workspace, net, &compile, out, error);
}

/* ---- ranges of batches -------------------------------------------------------------------------------------------- */

/* The types of the net's inputs at another batch, in `graph`; lists in `room`. ARGUMENT error for a net without inputs. */
static neap_status with_batch(const neap_net *net, int64_t batch, neap_graph_options *graph, neap_arena *room,
                              neap_error *error) {
  size_t n = (size_t)neap_net_n_blobs(net);
  const char **name = neap_arena_alloc(room, n * sizeof *name);
  neap_type *type = neap_arena_alloc(room, n * sizeof *type);
  if (name == NULL || type == NULL) return neap_fail_memory(error, n * sizeof *type, "a batch's inputs");
  if (batch < 1) return neap_fail(error, NEAP_ARGUMENT, "net \"%s\": a batch of %lld rows", neap_net_name(net), (long long)batch);
  int64_t declared = -1;
  for (int i = 0; i < (int)n; i++) {
    const neap_net_blob *blob = neap_net_blob_at(net, i);
    if (blob->role != NEAP_ROLE_INPUT || blob->type.shape.n_dim == 0) continue;
    if (declared < 0) declared = blob->type.shape.dim[0];
    if (blob->type.shape.dim[0] != declared) continue;
    name[graph->n_input] = blob->name;
    type[graph->n_input] = blob->type;
    type[graph->n_input++].shape.dim[0] = batch;
  }
  graph->input = name;
  graph->input_type = type;
  if (declared >= 0) return NEAP_OK;
  return neap_fail(error, NEAP_ARGUMENT, "net \"%s\": has no input with a batch", neap_net_name(net));
}

neap_status neap_range_open(const neap_net *net, int64_t max_batch, const neap_options *options, neap_range **out,
                            neap_error *error) {
  neap_compile_options compile;
  neap_arena room = {0};
  *out = NULL;
  NEAP_TRY(read_options(options, &compile, error));
  neap_status status = with_batch(net, max_batch, &compile.graph, &room, error);
  if (status == NEAP_OK) status = neap_range_new(net, &compile, out, error);
  neap_arena_fini(&room);
  return status;
}

neap_status neap_range_session(const neap_range *range, neap_workspace *workspace, const neap_net *net, int64_t batch,
                               const neap_options *options, neap_session **out, neap_error *error) {
  neap_compile_options compile;
  neap_arena room = {0};
  *out = NULL;
  NEAP_TRY(read_options(options, &compile, error));
  neap_status status = with_batch(net, batch, &compile.graph, &room, error);
  if (status == NEAP_OK) status = neap_range_compile(range, workspace, net, &compile, out, error);
  neap_arena_fini(&room);
  return status;
}

neap_figures neap_range_figures(const neap_range *range) {
  const neap_graph *graph;
  const neap_plan *plan = neap_range_most(range, &graph);
  return figures_of(graph, plan);
}

int64_t neap_session_trim(neap_session *session) { return (int64_t)neap_program_trim(neap_session_program(session)); }

neap_figures neap_session_figures(neap_session *session) {
  neap_program *program = neap_session_program(session);
  neap_figures figures = figures_of(neap_program_graph(program), neap_program_plan(program));
  neap_session_stats stats = neap_session_stats_read(session);
  figures.total_bytes = stats.planned_bytes;
  figures.n_step = stats.n_step;
  figures.last_ns = stats.last_ns;
  figures.median_ns = stats.median_ns;
  figures.held_bytes = stats.held_bytes;
  figures.n_alloc = stats.n_alloc_last;
  return figures;
}

/* ---- children, nets by name, steps --------------------------------------------------------------------------------- */

neap_status neap_workspace_open_child(neap_workspace *parent, int n, const char *const *name, const char *const *target,
                                      neap_workspace **out, neap_error *error) {
  neap_workspace_options options = {.seed = neap_workspace_seed(parent),
                                    .parent = parent,
                                    .n_forward = n,
                                    .forward_name = name,
                                    .forward_target = target != NULL ? target : name};
  return neap_workspace_new(&options, out, error);
}

neap_status neap_workspace_run_once(neap_workspace *workspace, const neap_net *net, const neap_options *options,
                                    neap_error *error) {
  neap_compile_options compile;
  NEAP_TRY(read_options(options, &compile, error));
  return neap_driver_run_once(workspace, net, &compile, error);
}

neap_status neap_workspace_run_steps(neap_workspace *workspace, const neap_step *root, const neap_options *options,
                                     neap_error *error) {
  neap_compile_options compile;
  NEAP_TRY(read_options(options, &compile, error));
  return neap_driver_run_steps(workspace, root, 0, NULL, &compile, NULL, error);
}

neap_pool_figures neap_session_pool(neap_session *session) {
  neap_program *program = neap_session_program(session);
  if (neap_program_plan(program)->policy != NEAP_POLICY_POOL) return (neap_pool_figures){0};
  neap_pool_stats pool = neap_workspace_pool(neap_session_workspace(session));
  neap_dynamic_stats dynamic = neap_session_dynamic_stats(session);
  return (neap_pool_figures){.reserved_bytes = (int64_t)pool.reserved_bytes,
                             .used_bytes = (int64_t)pool.used_bytes,
                             .high_bytes = (int64_t)pool.high_bytes,
                             .n_take = pool.n_take,
                             .n_program = dynamic.n_program,
                             .n_made = dynamic.n_made,
                             .n_restart = dynamic.n_restart};
}

/* The value a name stands for, or the op that took it in. */
static neap_status find_value(const neap_graph *graph, const char *name, neap_value_id *value, const char **into,
                              neap_error *error) {
  *into = NULL;
  *value = neap_graph_find(graph, name);
  for (int v = 0; *value == NEAP_NO_VALUE && v < graph->n_value; v++)
    if (strcmp(graph->value[v].name, name) == 0) *value = v; /* the library's own: a stash, a reordered value */
  for (int i = 0; *value == NEAP_NO_VALUE && i < graph->n_gone; i++)
    if (strcmp(graph->gone[i].name, name) == 0) *into = graph->gone[i].into;
  if (*value != NEAP_NO_VALUE || *into != NULL) return NEAP_OK;
  return neap_fail(error, NEAP_NAME, "explain: the plan of \"%s\" has no blob \"%s\"", graph->name, name);
}

neap_status neap_session_explain(neap_session *session, const char *blob, char **out, neap_error *error) {
  const neap_program *program = neap_session_program(session);
  const neap_graph *graph = neap_program_graph(program);
  neap_value_id value = NEAP_NO_VALUE;
  const char *into = NULL;
  if (blob != NULL) NEAP_TRY(find_value(graph, blob, &value, &into, error));
  neap_buffer buffer = {0};
  if (into != NULL)
    neap_buffer_add(&buffer, "%s needs no bytes: %s absorbs it", blob, into);
  else
    neap_plan_explain(neap_program_plan(program), graph, value, &buffer);
  return give_text(&buffer, out, error);
}
