/* neap/chain.h: models that are run layer by layer, and whose memory lies open. Part of neap.h,
 * which includes it.
 */
#include "neap.h"
#ifndef NEAP_CHAIN_PART_H
#define NEAP_CHAIN_PART_H

/* A chain is a model that one steps through by hand, and whose memory lies open. Each layer is a
 * net with one input, one output and its parameters; the output of one is the input of the next.
 * Forward runs the layers one by one; in training each leaves on its cache what its backward will
 * read. Backward takes the gradient of the last output, pops the caches in reverse, and fills the
 * gradients of outputs, inputs and parameters. All of it is four lists, of entries with data and
 * diff.
 *
 *   neap_net *layer[2] = {0};
 *   neap_chain *chain = NULL;
 *   neap_entry out, w;
 *   neap_net_read("net fc1\ninput x f32 (8,2)\nparam fc1.w f32 (16,2) = Xavier\n"
 *                 "h = FC(x, fc1.w)\ny = Tanh(h)\noutputs y\n", &layer[0], &error);
 *   neap_net_read("net fc2\ninput x f32 (8,16)\nparam fc2.w f32 (1,16) = Xavier\n"
 *                 "y = FC(x, fc2.w)\n", &layer[1], &error);
 *   neap_chain_open(ws, 2, (const neap_net *const *)layer, 8, NULL, &chain, &error);
 *
 *   // a batch of 3: any up to 8
 *   neap_workspace_write(ws, "x", NEAP_DTYPE_F32, 2, (int64_t[]){3, 2}, x, &error);
 *   neap_chain_forward(chain, true, &error);
 *   neap_chain_entry(chain, NEAP_LIST_OUTPUTS, 1, &out, &error);   // out.data: y (3,1)
 *   neap_workspace_write(ws, out.diff_blob, NEAP_DTYPE_F32, 2, (int64_t[]){3, 1}, dy, &error);
 *   neap_chain_backward(chain, &error);
 *   neap_chain_param(chain, "fc1.w", &w, &error);                  // w.diff: gradient (16,2)
 *
 * Blobs. The first input keeps its name. The output of layer L is "L/output", its gradient
 * "L/output_grad"; what its cache holds is "L/NAME". Parameters and state keep their names, so that
 * layers can share them: gradients are summed. The gradient of parameter p is "p_grad". All these
 * are blobs of the workspace: an update is a net of `p = Sgd(p, p_grad, lr)` that is run there.
 *
 * Memory. Every layer is planned for the largest batch; smaller ones run in the same bytes, in
 * whatever order they come. An input is the same bytes as the output below it, counted once. What a
 * cache holds is not computed again. Three things are not cached but recomputed, with the same
 * random numbers: a MaxPool, whose note of which element won is in its kernel's own format; the
 * branch that an If took; and a While without `max`. */
typedef struct neap_chain neap_chain;

typedef enum neap_list {
  NEAP_LIST_PARAMS,  /* of all layers, each once, in order of declaration; then attached ones */
  NEAP_LIST_OUTPUTS, /* one a layer; none before the first forward */
  NEAP_LIST_INPUTS,
  /* what all caches hold, layer by layer, first pushed first; empty after backward, and in
   * evaluation */
  NEAP_LIST_CACHES
} neap_list;

/* Numbers that lie in memory, dense, the last dimension fastest. `data` NULL: there are none. */
typedef struct neap_array {
  neap_dtype dtype;
  int n_dim;
  int64_t dim[NEAP_MAX_DIM];
  int64_t bytes;
  const void *data;
} neap_array;

/* Views are borrowed: until the next forward, until the entry is dropped, until the chain is
 * freed. */
typedef struct neap_entry {
  /* of the parameter; of the layer; in a cache what the layer's own net calls the blob */
  const char *name;
  const char *layer; /* the net's name; "" for attached parameters */
  neap_array data;
  /* after a backward; of parameters that train, of floating-point inputs and outputs */
  neap_array diff;
  const char *blob;      /* of data in the workspace; NULL in caches and for attached parameters */
  const char *diff_blob; /* of diff; NULL where there can be none */
} neap_entry;

/* Copies the nets; fills parameters that the workspace lacks; keeps the workspace alive. Every
 * layer is declared at the batch of the first one's input, its first dimension. An error says which
 * layer, what it expects and what it got: more than one input or output, two layers of one name, an
 * input of another type than the output below. Training ops are written as such (`training = 1` in
 * Dropout and BatchNorm, whose statistics RunningAverage ops keep): evaluation derives its nets
 * from them. Options are those of a session; policy "pool" is refused, since it plans no
 * addresses. */
NEAP_API neap_status neap_chain_open(neap_workspace *workspace, int n, const neap_net *const *layer,
                                     int64_t max_batch, const neap_options *options,
                                     neap_chain **out, neap_error *error);
NEAP_API int neap_chain_n_layers(const neap_chain *chain);
/* The first thing that the database failed to do for the programs made so far, which are made when
 * a pass first needs them; "" when nothing. Borrowed from the chain. */
NEAP_API const char *neap_chain_warning(const neap_chain *chain);
/* Nets of the layers for batches of `batch` rows, where an attribute depends on the batch (a
 * RunningAverage's factor n / (n - 1), a Reshape's shape): the same blobs, inputs and outputs as
 * those given to open, which serve all other batches. Once a batch, before its first forward, and
 * not for the largest: ARGUMENT. The nets are copied. */
NEAP_API neap_status neap_chain_add_batch(neap_chain *chain, int64_t batch,
                                          const neap_net *const *layer, neap_error *error);
NEAP_API bool neap_chain_has_batch(const neap_chain *chain, int64_t batch); /* nets of its own */
/* Reads the first layer's input in the workspace, whose first dimension is the batch. Without
 * `train` Dropout does nothing, norms read their running statistics, state stays as it is, and
 * nothing is cached. A second forward takes the place of the first: its caches, and the views of
 * entries. A layer that fails (DATA, INTERRUPTED) ends the pass, which leaves no entries, and state
 * as it was, that of the layers below too. */
NEAP_API neap_status neap_chain_forward(neap_chain *chain, bool train, neap_error *error);
/* Reads the gradient of the last output, which the caller has written. RELEASED when the caches do
 * not hold what a training forward left: none has run, it has had its backward, or an entry was
 * dropped. When a layer fails the caches stay as they were. */
NEAP_API neap_status neap_chain_backward(neap_chain *chain, neap_error *error);
NEAP_API int neap_chain_n(const neap_chain *chain, neap_list list);
/* RELEASED for an entry that was dropped. */
NEAP_API neap_status neap_chain_entry(const neap_chain *chain, neap_list list, int i,
                                      neap_entry *out, neap_error *error);
/* The same with tensors, which hold references of their own: they stay when the chain has let go.
 * End it with neap_chain_item_fini. */
typedef struct neap_chain_item {
  const char *name, *layer, *blob, *diff_blob; /* as in neap_entry */
  neap_tensor data, diff;                      /* retained; diff {0} where there is none */
} neap_chain_item;
NEAP_API neap_status neap_chain_item_at(const neap_chain *chain, neap_list list, int i,
                                        neap_chain_item *out, neap_error *error);
NEAP_API void neap_chain_item_fini(neap_chain_item *item);
/* By name; NAME when there is none. */
NEAP_API neap_status neap_chain_param(const neap_chain *chain, const char *name, neap_entry *out,
                                      neap_error *error);
/* A parameter of the caller's own in the list; its numbers stay the caller's, and must outlive the
 * chain or be dropped before. NAME when the name is taken. */
NEAP_API neap_status neap_chain_attach_param(neap_chain *chain, const char *name, neap_dtype dtype,
                                             int n_dim, const int64_t *dim, void *data,
                                             neap_error *error);
/* Lets an entry go, in any order; the others keep their positions. The bytes return when the last
 * entry that shares them has gone: an output's with the input above it and what caches hold of it.
 * RELEASED the second time; layers' parameters can't be dropped. The next forward makes what it
 * needs. */
NEAP_API neap_status neap_chain_drop(neap_chain *chain, neap_list list, int i, neap_error *error);
/* Takes from the cache of layer i what was pushed last, for callers who compute a layer's backward
 * themselves; the view is valid until the next forward. NAME when that is not called `name` (NULL:
 * whatever it is), RELEASED when nothing is left; then nothing is taken. */
NEAP_API neap_status neap_chain_pop(neap_chain *chain, int layer, const char *name, neap_entry *out,
                                    neap_error *error);
/* Drops all outputs, inputs and caches. */
NEAP_API void neap_chain_clear(neap_chain *chain);
NEAP_API void neap_chain_free(neap_chain *chain);

/* ---- caches ---------------------------------------------------------------------------------- */

/* A stack of tensors: what a layer's forward leaves to its backward. A chain has one a layer; one's
 * own layers may have caches of their own. INVARIANT: what is popped is what was pushed last, or
 * the pop fails and takes nothing. */
typedef struct neap_cache neap_cache;
/* What a pop expects; zero and NULL: anything. */
typedef struct neap_cache_want {
  const char *label;
  neap_dtype dtype;
  const neap_shape *shape;
} neap_cache_want;
/* An empty one; `name` is for messages. End it with neap_cache_free. */
NEAP_API neap_status neap_cache_new(const char *name, neap_cache **out, neap_error *error);
NEAP_API void neap_cache_free(neap_cache *cache);
/* That of a chain's layer, the chain's own: never end it. NULL for a layer that it lacks. */
NEAP_API neap_cache *neap_chain_cache(neap_chain *chain, int layer);
NEAP_API const char *neap_cache_name(const neap_cache *cache);
NEAP_API int neap_cache_n(const neap_cache *cache);
/* Of item i, the one pushed first being 0; NULL where it was pushed without one. */
NEAP_API const char *neap_cache_label(const neap_cache *cache, int i);
/* Holds one more reference of the tensor; `label` may be NULL. */
NEAP_API neap_status neap_cache_push(neap_cache *cache, const neap_tensor *tensor,
                                     const char *label, neap_error *error);
/* *out gets the cache's reference. RELEASED when nothing is left, or what is on top was dropped;
 * NAME, DTYPE, SHAPE when it is not what is wanted. */
NEAP_API neap_status neap_cache_pop(neap_cache *cache, const neap_cache_want *want,
                                    neap_tensor *out, neap_error *error);
NEAP_API void neap_cache_clear(neap_cache *cache);

#endif
