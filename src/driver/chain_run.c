/* chain_run.c: a chain of layers run: forward, and backward over what the caches hold.
 *
 * INVARIANT: everything that can be refused is refused before the first layer runs: programs are
 * made, shapes and caches checked.
 * INVARIANT: both halves of a layer draw the random numbers of one step: the workspace's counter
 * goes up when the backward is done.
 */
#include "driver/driver_int.h"

#include <string.h>

/* ---- what the caller gives ------------------------------------------------------------------- */

/* The batch of the first layer's input, as it lies in the workspace. */
static neap_status read_batch(const neap_chain *chain, int64_t *batch, neap_error *error) {
  /* What the first layer declares, at the largest batch. */
  const neap_chain_layer *first = &chain->layer[0];
  neap_type want = chain->batch[0].step[0].in, got;
  if (!neap_workspace_type(chain->ws, first->input, &got)) {
    neap_hint(error, "write it into the workspace first");
    return neap_fail(error, NEAP_NAME, "chain: input \"%s\" is not in the workspace", first->input);
  }
  *batch = got.shape.n_dim > 0 ? got.shape.dim[0] : 0;

  /* Any number of rows up to the largest; the other dimensions and the dtype as declared. */
  bool fits = *batch >= 1 && *batch <= chain->max_batch;
  want.shape.dim[0] = fits ? *batch : chain->max_batch;
  if (fits && neap_type_equal(&want, &got)) return NEAP_OK;

  /* Said with the declared size where the rows alone are wrong. */
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  if (!fits) neap_hint(error, "max_batch is %lld", (long long)chain->max_batch);
  return neap_fail(error, want.dtype != got.dtype ? NEAP_DTYPE : NEAP_SHAPE,
                   "chain: input \"%s\" expects %s %s%s, got %s %s", first->input,
                   neap_dtype_name(want.dtype), neap_shape_text(&want.shape, a),
                   fits ? "" : " or fewer rows", neap_dtype_name(got.dtype),
                   neap_shape_text(&got.shape, b));
}

/* Whether the workspace has every blob of the program. */
static bool is_whole(const neap_chain *chain, neap_program *program) {
  for (int b = 0; b < neap_program_n_blobs(program); b++)
    if (!neap_workspace_has(chain->ws, neap_program_blob_at(program, b)->name)) return false;
  return true;
}

/* A program whose blobs were dropped, by this chain or another one of the workspace, is attached
 * anew: that makes them. */
static neap_status run(neap_chain *chain, neap_session *session, neap_error *error) {
  neap_program *program = neap_session_program(session);
  if (!is_whole(chain, program)) neap_workspace_detach(chain->ws, program);
  NEAP_TRY(neap_workspace_attach(chain->ws, program, error));
  return neap_session_run(session, error);
}

/* ---- forward --------------------------------------------------------------------------------- */

/* What the layer's own net calls a blob. */
static const char *label_of(const neap_chain_layer *layer, const char *blob) {
  /* Ends are renamed in the chain, all else has the layer's name in front. */
  size_t n = strlen(layer->name);
  if (blob == layer->input) return layer->own_input;
  if (blob == layer->output) return layer->own_output;
  return strncmp(blob, layer->name, n) == 0 && blob[n] == '/' ? blob + n + 1 : blob;
}

static neap_status push_saved(neap_chain *chain, int i, neap_error *error) {
  neap_chain_layer *layer = &chain->layer[i];
  const neap_chain_step *step = &chain->batch[chain->at].step[i];
  for (int k = 0; k < step->n_saved; k++) {
    /* The cache holds a reference of its own, so this view goes at once. */
    neap_tensor t;
    NEAP_TRY(neap_workspace_view(chain->ws, step->saved[k], &t, NULL, error));
    neap_status status = neap_cache_push(&layer->cache, &t, label_of(layer, step->saved[k]), error);
    neap_tensor_fini(&t);
    NEAP_TRY(status);
  }
  return NEAP_OK;
}

/* Views of what the layers wrote. */
static neap_status take_values(neap_chain *chain, bool train, neap_error *error) {
  /* References that stay when the workspace gives the names other tensors. */
  for (int i = 0; i < chain->n_layer; i++) {
    NEAP_TRY(
      neap_workspace_view(chain->ws, chain->layer[i].input, &chain->input[i].data, NULL, error));
    NEAP_TRY(
      neap_workspace_view(chain->ws, chain->layer[i].output, &chain->output[i].data, NULL, error));
    NEAP_ASSERT(i == 0 || chain->input[i].data.storage == chain->output[i - 1].data.storage,
                "the input of layer \"%s\" in the bytes of the output below it",
                chain->layer[i].name);
    if (train) NEAP_TRY(push_saved(chain, i, error));
  }
  return NEAP_OK;
}

/* What the layers write, as it is before any of them runs: a pass happens as a whole. */
static neap_status mark_forward(const neap_chain *chain, neap_chain_part part,
                                neap_workspace_mark **out, neap_error *error) {
  neap_program **program = neap_alloc((size_t)chain->n_layer * sizeof(neap_program *));
  if (program == NULL)
    return neap_fail_memory(error, (size_t)chain->n_layer * sizeof(neap_program *),
                            "a pass through the layers");
  for (int i = 0; i < chain->n_layer; i++)
    program[i] = neap_session_program(chain->batch[chain->at].step[i].session[part]);

  /* The mark has read the list and keeps none of it. */
  neap_status status = neap_workspace_mark_runs(chain->ws, chain->n_layer, program, out, error);
  neap_free(program);
  return status;
}

static neap_status run_layers(neap_chain *chain, neap_chain_part part, neap_error *error) {
  for (int i = 0; i < chain->n_layer; i++) {
    neap_error inner = {0};
    if (run(chain, chain->batch[chain->at].step[i].session[part], &inner) != NEAP_OK)
      return neap_chain_in_layer(chain, i, &inner, error);
  }
  return NEAP_OK;
}

static neap_status run_forward(neap_chain *chain, bool train, neap_error *error) {
  neap_chain_part part = train ? NEAP_CHAIN_FORWARD : NEAP_CHAIN_EVALUATE;
  neap_workspace_mark *before;
  NEAP_TRY(mark_forward(chain, part, &before, error));

  /* All layers draw by the step at which the pass began; others of the workspace do not. */
  neap_workspace_give_draw(chain->ws, train ? &chain->draw : NULL);
  neap_status status = run_layers(chain, part, error);
  neap_workspace_give_draw(chain->ws, NULL);
  if (status == NEAP_OK) status = take_values(chain, train, error);

  /* A pass that ended early has not happened. */
  if (status != NEAP_OK) neap_workspace_mark_undo(before, 0, NULL);
  neap_workspace_mark_free(before);
  return status;
}

neap_status neap_chain_forward(neap_chain *chain, bool train, neap_error *error) {
  neap_chain_part part = train ? NEAP_CHAIN_FORWARD : NEAP_CHAIN_EVALUATE;

  int64_t rows = 0;
  int at = 0;
  NEAP_TRY(read_batch(chain, &rows, error));
  NEAP_TRY(neap_chain_find_batch(chain, rows, &at, error));
  NEAP_TRY(neap_chain_prepare(chain, at, part, error));

  /* Nothing but the layers themselves can be refused from here on: the pass before is given up. */
  neap_chain_let_go(chain, false);
  chain->at = at;
  chain->draw = (neap_draw){neap_workspace_seed(chain->ws), neap_workspace_step(chain->ws)};
  const int64_t start_ns = neap_clock_ns();
  neap_status status = run_forward(chain, train, error);
  chain->pass_ns = neap_clock_ns() - start_ns;

  /* A step of the run is a look at a batch, or a forward pass with its backward pass. */
  if (status == NEAP_OK && !train) neap_run_step(chain->run, ++chain->n_pass, chain->pass_ns);
  if (status != NEAP_OK)
    neap_chain_let_go(chain, false);
  else
    chain->state = train ? NEAP_CHAIN_FORWARDED : NEAP_CHAIN_EVALUATED;
  return status;
}

/* ---- backward -------------------------------------------------------------------------------- */

static neap_status check_state(const neap_chain *chain, neap_error *error) {
  const char *why = NULL;
  switch (chain->state) {
    case NEAP_CHAIN_FORWARDED: return NEAP_OK;
    case NEAP_CHAIN_EMPTY: why = "no forward pass has run"; break;
    case NEAP_CHAIN_EVALUATED: why = "the last forward pass did not train"; break;
    case NEAP_CHAIN_DONE: why = "the last forward pass has had its backward pass"; break;
  }
  neap_hint(error, "a training forward pass comes before");
  return neap_fail(error, NEAP_RELEASED, "chain: backward expects full caches, but %s", why);
}

/* All caches hold what their layers' backward reads, and nothing else. */
static neap_status check_caches(const neap_chain *chain, neap_error *error) {
  for (int i = 0; i < chain->n_layer; i++) {
    const neap_chain_layer *layer = &chain->layer[i];
    const neap_chain_step *step = &chain->batch[chain->at].step[i];

    for (int k = step->n_saved - 1, depth = 0; k >= 0; k--, depth++) {
      neap_cache_want want = {.label = label_of(layer, step->saved[k])};
      NEAP_TRY(neap_cache_check(&layer->cache, depth, &want, error));
    }
    if (layer->cache.n != step->n_saved)
      return neap_fail(error, NEAP_RELEASED, "cache of %s: expects %d tensors, got %d",
                       layer->cache.name, step->n_saved, layer->cache.n);
  }
  return NEAP_OK;
}

/* The gradient of the last output has its shape. */
static neap_status check_seed(const neap_chain *chain, neap_error *error) {
  /* Whoever computes the loss has written it, under the last layer's name. */
  const neap_chain_layer *last = &chain->layer[chain->n_layer - 1];
  const neap_type *want = &chain->batch[chain->at].step[chain->n_layer - 1].out;
  neap_type got;
  if (!neap_workspace_type(chain->ws, last->d_output, &got)) {
    neap_hint(error, "write it into the workspace first");
    return neap_fail(error, NEAP_NAME,
                     "chain: \"%s\", the gradient of the last output, is not in the workspace",
                     last->d_output);
  }

  /* It is of the batch of the last forward, whatever the next one will be. */
  if (neap_type_equal(want, &got)) return NEAP_OK;
  char a[NEAP_SHAPE_TEXT], b[NEAP_SHAPE_TEXT];
  return neap_fail(error, want->dtype != got.dtype ? NEAP_DTYPE : NEAP_SHAPE,
                   "chain: \"%s\" expects %s %s, got %s %s", last->d_output,
                   neap_dtype_name(want->dtype), neap_shape_text(&want->shape, a),
                   neap_dtype_name(got.dtype), neap_shape_text(&got.shape, b));
}

static neap_status run_backward(neap_chain *chain, neap_error *error) {
  for (int i = chain->n_layer - 1; i >= 0; i--) {
    const neap_chain_step *step = &chain->batch[chain->at].step[i];
    neap_session *session = step->session[NEAP_CHAIN_BACKWARD];
    neap_error inner = {0};
    if (session == NULL) continue; /* integers without parameters: nothing to differentiate by */
    if (run(chain, session, &inner) != NEAP_OK) return neap_chain_in_layer(chain, i, &inner, error);
  }
  return NEAP_OK;
}

/* Pops can't fail: check_caches has looked. */
static neap_status pop_saved(neap_chain *chain, neap_error *error) {
  for (int i = chain->n_layer - 1; i >= 0; i--) {
    const neap_chain_step *step = &chain->batch[chain->at].step[i];
    for (int k = step->n_saved - 1; k >= 0; k--) {
      neap_cache_want want = {.label = label_of(&chain->layer[i], step->saved[k])};
      neap_tensor t;
      NEAP_TRY(neap_cache_pop(&chain->layer[i].cache, &want, &t, error));
      neap_tensor_fini(&t);
    }
  }
  return NEAP_OK;
}

static neap_status take_diffs(neap_chain *chain, neap_error *error) {
  for (int i = 0; i < chain->n_layer; i++) {
    const neap_chain_layer *layer = &chain->layer[i];
    if (!chain->output[i].dropped)
      NEAP_TRY(
        neap_workspace_view(chain->ws, layer->d_output, &chain->output[i].diff, NULL, error));
    if (!chain->input[i].dropped && layer->d_input != NULL)
      NEAP_TRY(neap_workspace_view(chain->ws, layer->d_input, &chain->input[i].diff, NULL, error));
  }
  return NEAP_OK;
}

neap_status neap_chain_backward(neap_chain *chain, neap_error *error) {
  /* All that may be refused, before anything runs. */
  NEAP_TRY(check_state(chain, error));
  NEAP_TRY(check_caches(chain, error));
  NEAP_TRY(check_seed(chain, error));

  /* The same random numbers as the forward drew, though the workspace may have gone on since. */
  neap_workspace_give_draw(chain->ws, &chain->draw);
  const int64_t start_ns = neap_clock_ns();
  neap_status status = run_backward(chain, error);
  chain->pass_ns += neap_clock_ns() - start_ns;
  if (status == NEAP_OK) neap_run_step(chain->run, ++chain->n_pass, chain->pass_ns);
  neap_workspace_give_draw(chain->ws, NULL);

  /* Each run has raised the counter: a training step is one step, whatever its programs. */
  if (status == NEAP_OK) neap_workspace_rewind_step(chain->ws, chain->draw.step + 1);
  if (status == NEAP_OK) status = pop_saved(chain, error);
  if (status == NEAP_OK) status = take_diffs(chain, error);
  if (status == NEAP_OK) chain->state = NEAP_CHAIN_DONE;
  return status;
}
