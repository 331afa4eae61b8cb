/* neap/workspace.h: workspaces with options of their own, within each other, and what they hold;
 * checkpoints, marks, nets by name, scopes, step trees. Part of neap.h, which includes it.
 *
 *   neap_workspace *ws = NULL;
 *   const neap_workspace_options limits = {.seed = 1, .total_bytes = 64 << 20};
 *   if (neap_workspace_new(&limits, &ws, &error)) goto end;
 *   if (neap_workspace_init(ws, net, &error)) goto end;  // parameters are there, and filled
 *   if (neap_workspace_save(ws, "first.safetensors", 0, NULL, &error)) goto end;
 */
#include "neap.h"
#ifndef NEAP_WORKSPACE_PART_H
#define NEAP_WORKSPACE_PART_H

/* ---- making ---------------------------------------------------------------------------------- */

typedef struct neap_workspace_options {
  uint64_t seed;
  /* `seed` is not given: a child's follows from its parent's; else the draws of the thread
   * (neap_draw_seed) stand for it */
  bool unseeded;
  neap_workspace *parent; /* retained: reads fall through to it; NULL for none */
  /* name here -> name in the parent; then nothing else falls through */
  int n_forward;
  bool forwards_only; /* nothing falls through although n_forward is 0 */
  const char *const *forward_name, *const *forward_target;
  size_t budget_bytes; /* the most of arena and pool; 0: no limit */
  size_t total_bytes;  /* the most of all that it holds; 0: no limit */
} neap_workspace_options;
/* neap_workspace_open with options. End it with neap_workspace_release. */
NEAP_API neap_status neap_workspace_new(const neap_workspace_options *options, neap_workspace **out,
                                        neap_error *error);
/* All workspaces of the process that are alive, the newest first, each retained: release each one,
 * then end the list of *n with neap_free. What a workspace holds belongs to the thread that uses
 * it. */
NEAP_API neap_status neap_workspace_list(neap_workspace ***out, int *n, neap_error *error);
/* Borrowed; NULL for none. */
NEAP_API neap_workspace *neap_workspace_parent(const neap_workspace *workspace);
/* Another total from now on, 0 for none: the most that what comes may make it hold. What is held
 * stays, whatever it takes. @return the one before */
NEAP_API size_t neap_workspace_limit_total(neap_workspace *workspace, size_t bytes);
/* Makes the blobs that the net declares and the workspace lacks, and fills them by the net's init
 * ops, which draw from the workspace's seed. Blobs that are there with the same type stay as they
 * are; those that nobody has written yet are filled. */
NEAP_API neap_status neap_workspace_init(neap_workspace *workspace, const neap_net *net,
                                         neap_error *error);

/* ---- what it draws by ------------------------------------------------------------------------ */

/* Random ops draw from seed and step; the step goes up with each run of a net with a backward pass.
 * Told one of them, a workspace draws what it drew after the same call. */
NEAP_API uint64_t neap_workspace_seed(const neap_workspace *workspace);
NEAP_API void neap_workspace_set_seed(neap_workspace *workspace, uint64_t seed);
NEAP_API uint32_t neap_workspace_step(const neap_workspace *workspace);
NEAP_API void neap_workspace_set_step(neap_workspace *workspace, uint32_t step);
/* What the next run of a net with a backward pass (`train`), or without one, draws by. */
NEAP_API neap_draw neap_workspace_look_draw(const neap_workspace *workspace, bool train);
/* What all runs draw by until it is taken back by NULL; they count nothing then. Borrowed until
 * that. */
NEAP_API void neap_workspace_give_draw(neap_workspace *workspace, const neap_draw *draw);

/* ---- bytes ----------------------------------------------------------------------------------- */

/* What the workspace owns: parameters, blobs, arena, pool. */
NEAP_API size_t neap_workspace_held_bytes(const neap_workspace *workspace);
/* Of these, the arena's, with those of memory banks. */
NEAP_API size_t neap_workspace_arena_bytes(const neap_workspace *workspace);
/* Gives the pool of policy "pool" back, which the next run takes anew; returns its bytes. */
NEAP_API size_t neap_workspace_trim_pool(neap_workspace *workspace);
/* Ends moves that are under way (neap_workspace_assign, later). It can't fail. */
NEAP_API void neap_workspace_finish_moves(neap_workspace *workspace);
/* From now on bytes that nobody will read are overwritten with NaN, as NEAP_POISON=1 has it: a run
 * that reads them all the same shows it. */
NEAP_API void neap_workspace_set_poison(neap_workspace *workspace, bool poison);

/* ---- checkpoints ----------------------------------------------------------------------------- */

/* Parameters and state of its own, seed and step, as a .safetensors file; written beside it and
 * renamed. n_meta texts of the caller's go with it, borrowed. When loading, *meta (may be NULL)
 * gets the file's texts, ended by neap_io_list_fini.
 *
 * Loading copies into blobs that have bytes and makes those that are missing. With another map than
 * NEAP_IO_COPY the blobs are the file's own bytes: nothing is read before it is used, and several
 * processes share the pages. Such a load comes before a session or init makes parameters of these
 * names. A session that would write a blob mapped with NEAP_IO_MAP_READ is refused; one mapped with
 * NEAP_IO_MAP_WRITE may be trained, and the file stays as it is. IO and DATA errors leave the
 * workspace as it was. */
NEAP_API neap_status neap_workspace_save(neap_workspace *workspace, const char *path, int n_meta,
                                         const neap_io_pair *meta, neap_error *error);
NEAP_API neap_status neap_workspace_load(neap_workspace *workspace, const char *path,
                                         neap_io_map map, neap_io_list *meta, neap_error *error);

/* ---- marks ----------------------------------------------------------------------------------- */

/* Before a longer call that may fail: notes n blobs, contents included, and with `all` what every
 * own blob is. Undoing puts them back, and removes blobs that were not there: those n or, with
 * `all`, any. A mark that is kept is ended all the same, by neap_workspace_mark_free. */
typedef struct neap_workspace_mark neap_workspace_mark;
NEAP_API neap_status neap_workspace_mark_new(neap_workspace *workspace, bool all, int n,
                                             const char *const *fed, neap_workspace_mark **out,
                                             neap_error *error);
NEAP_API void neap_workspace_mark_undo(neap_workspace_mark *mark, int n, const char *const *fed);
NEAP_API void neap_workspace_mark_free(neap_workspace_mark *mark);

/* ---- child workspaces and blobs -------------------------------------------------------------- */

/* A child of `parent`, which it retains. With n 0 it sees everything of the parent and hides what
 * it makes itself; else it sees blob target[i] of the parent under the name name[i] (target NULL:
 * the same names), and nothing more. */
NEAP_API neap_status neap_workspace_open_child(neap_workspace *parent, int n,
                                               const char *const *name, const char *const *target,
                                               neap_workspace **out, neap_error *error);
/* Declares a blob, for a child to write or to be fed; with `local` one that hides the parent's. No
 * effect when it is there. */
NEAP_API neap_status neap_workspace_create(neap_workspace *workspace, const char *name, bool local,
                                           neap_error *error);
/* Whether the name means a blob here: an own one, a forwarded one or one of the parent's. */
NEAP_API bool neap_workspace_has(const neap_workspace *workspace, const char *name);
/* Removes an own blob, and the parent's of that name shows again; false when there is no own
 * one. */
NEAP_API bool neap_workspace_remove(neap_workspace *workspace, const char *name);
/* Own blobs only, and only to a name that means nothing yet: NAME errors. */
NEAP_API neap_status neap_workspace_rename(neap_workspace *workspace, const char *from,
                                           const char *to, neap_error *error);
/* From here on `name` means `target` of the parent, looked up whenever it is used. The same target
 * again is fine, another one is a NAME error; so is an own blob of that name, unless `skip`: then
 * it stays and nothing is forwarded. */
NEAP_API neap_status neap_workspace_forward(neap_workspace *workspace, const char *name,
                                            const char *target, bool skip, neap_error *error);
/* A string blob. Ops take tensors only. */
NEAP_API neap_status neap_workspace_feed_string(neap_workspace *workspace, const char *name,
                                                const char *text, size_t n_bytes,
                                                neap_error *error);
NEAP_API neap_status neap_workspace_fetch_string(const neap_workspace *workspace, const char *name,
                                                 const char **text, size_t *n_bytes,
                                                 neap_error *error);
/* What a name means here. A transient is a value of the program that ran last, in the arena. */
typedef enum neap_blob_kind {
  NEAP_BLOB_EMPTY, /* nothing, or a blob that nobody has filled */
  NEAP_BLOB_TENSOR,
  NEAP_BLOB_STRING,
  NEAP_BLOB_TRANSIENT,
  NEAP_BLOB_SCOPE
} neap_blob_kind;
NEAP_API neap_blob_kind neap_workspace_kind(const neap_workspace *workspace, const char *name);
/* How many blobs it sees, those of the arena, forwarded and inherited ones included. */
NEAP_API int neap_workspace_n_blobs(const neap_workspace *workspace);
/* Each forwarded name gets a blob of its own with a copy of what it leads to; when that is removed
 * the parent's shows again. Tensors only: DTYPE for others, and then nothing is copied. */
NEAP_API neap_status neap_workspace_copy_forwarded(neap_workspace *workspace, neap_error *error);

/* ---- nets in a workspace --------------------------------------------------------------------- */

/* Nets by name; those that Lua stores in a workspace are the same ones. The workspace takes the net
 * over, unless this fails: NAME when it has one of that name, unless `overwrite` lets go of that
 * one. */
NEAP_API neap_status neap_workspace_add_net(neap_workspace *workspace, neap_net *net,
                                            bool overwrite, neap_error *error);
/* Its own net of that name, else its parent's, and so on; borrowed; NULL when there is none. */
NEAP_API neap_net *neap_workspace_net(const neap_workspace *workspace, const char *name);
/* Its own nets, in order of their making: index 0, 1, .. until NULL; borrowed. */
NEAP_API neap_net *neap_workspace_net_at(const neap_workspace *workspace, int index);
/* Lets go of an own net; false when there is none of that name. Sessions opened from it go on. */
NEAP_API bool neap_workspace_delete_net(neap_workspace *workspace, const char *name);
/* Plans, runs once, lets go. `warning` (may be NULL) gets what the database failed to do, "" when
 * nothing. */
enum { NEAP_WARNING_TEXT = 256 };
NEAP_API neap_status neap_workspace_run_once(neap_workspace *workspace, const neap_net *net,
                                             const neap_options *options,
                                             char warning[NEAP_WARNING_TEXT], neap_error *error);

/* One op on blobs of the workspace, as a line of a net's text says: "y = Relu(x)", "y, m =
 * Dropout(x) { rate = 0.3 }". Inputs are blobs that are there; outputs are made or written, in the
 * end and all together, and may be inputs ("x = Relu(x)"). Nothing is planned and nothing
 * remembered. Ops that work in a net only (If, Free, ..) are refused; so is a line that is no op.
 * On failure all blobs are as before. */
NEAP_API neap_status neap_workspace_run_op(neap_workspace *workspace, const char *line,
                                           neap_error *error);
/* The same from names: NULL stands for an optional input that is absent, or an output that nobody
 * wants; `attrs` may be NULL. */
NEAP_API neap_status neap_workspace_call_op(neap_workspace *workspace, const char *type, int n_in,
                                            const char *const *in, const neap_set *attrs, int n_out,
                                            const char *const *out, neap_error *error);

/* ---- scopes ---------------------------------------------------------------------------------- */

/* A scope is a stack of frames: child workspaces that see bound names only and keep their locals
 * while others are pushed on top. A forward pass pushes one frame after another; the backward pops
 * them, last in, first out, and finds in each what the forward left there. Frames are reused by
 * later pushes, memory and all. A frame is borrowed until the scope is trimmed, and so is the scope
 * until its blob goes. */
typedef struct neap_scope neap_scope;
/* Makes scope blob `name`, or empties the one that is there. */
NEAP_API neap_status neap_workspace_create_scope(neap_workspace *workspace, const char *name,
                                                 neap_scope **out, neap_error *error);
/* The scope that a blob holds, borrowed; DTYPE where it holds something else, NAME where it is
 * unknown. */
NEAP_API neap_status neap_workspace_scope(const neap_workspace *workspace, const char *name,
                                          neap_scope **out, neap_error *error);
/* One more holder, for one that is to outlive its blob; and one less. */
NEAP_API neap_scope *neap_scope_retain(neap_scope *scope);
NEAP_API void neap_scope_release(neap_scope *scope);
/* Enters a frame that sees blob outer[i] of `parent` as inner[i], and nothing else of it. NAME when
 * an outer name is unknown, and when these are not the bindings of the first push; ARGUMENT when
 * the parent is another one. */
NEAP_API neap_status neap_scope_push(neap_scope *scope, neap_workspace *parent, int n,
                                     const char *const *inner, const char *const *outer,
                                     neap_workspace **out, neap_error *error);
/* The top frame, with further bindings. *out is NULL when the scope is empty; so below. */
NEAP_API neap_status neap_scope_reuse_last(neap_scope *scope, neap_workspace *parent, int n,
                                           const char *const *inner, const char *const *outer,
                                           neap_workspace **out, neap_error *error);
/* Leaves the top frame and gives it, with further bindings for names that it does not have. */
NEAP_API neap_status neap_scope_pop_gradient(neap_scope *scope, neap_workspace *parent, int n,
                                             const char *const *inner, const char *const *outer,
                                             neap_workspace **out, neap_error *error);
NEAP_API void neap_scope_clear(neap_scope *scope); /* leaves all frames, keeps their memory */
NEAP_API bool neap_scope_empty(const neap_scope *scope);
NEAP_API int neap_scope_n_frames(const neap_scope *scope); /* in use */
NEAP_API int neap_scope_n_kept(const neap_scope *scope);   /* in use, or kept for the next push */
/* Of those kept, the first pushed first; borrowed; NULL out of range. */
NEAP_API neap_workspace *neap_scope_frame_at(const neap_scope *scope, int index);
/* Gives back the memory of frames that are not in use: end their sessions first. */
NEAP_API void neap_scope_trim(neap_scope *scope);
NEAP_API size_t neap_scope_held_bytes(const neap_scope *scope);
/* INTERNAL when more frames are in use than there are. */
NEAP_API neap_status neap_scope_check(const neap_scope *scope, neap_error *error);
/* NAME unless the bindings are those of the first push, or with `gradient` of the first
 * neap_scope_pop_gradient; fine while there was none. */
NEAP_API neap_status neap_scope_check_bindings(const neap_scope *scope, bool gradient, int n,
                                               const char *const *inner, const char *const *outer,
                                               neap_error *error);

/* ---- step trees ------------------------------------------------------------------------------ */

/* One step of a tree: nets in order, or substeps; zero and NULL are the defaults. A concurrent step
 * runs its substeps side by side, each on a thread and in a workspace of its own; results land in
 * the step's workspace. Substeps that would write what another one reads or writes are refused. */
typedef struct neap_step {
  const char *name; /* for messages */
  int n_net;
  const char *const *net; /* names, of the workspace's nets or its parents' */
  int n_step;
  const struct neap_step *step;
  int64_t iterations; /* 0: once */
  /* instead: until this blob, one bool that exists, is true; looked at before each net or
   * substep */
  const char *stop_blob;
  bool concurrent;
  /* copies of this step, side by side; each needs create_workspace for what it writes */
  int n_instance;
  bool create_workspace; /* runs in a child workspace that ends with each execution */
  /* runs when report_every_ms have passed after an iteration, and once at the end */
  const char *report_net;
  int64_t report_every_ms;
  /* iterations begin so far apart; a concurrent substep without an end goes on until the others
   * end */
  int64_t run_every_ms;
  const neap_net *const
    /* NULL, or n_net nets: where one is not NULL it runs, whatever the workspace calls by that
     * name */
    *given;
  const neap_net *given_report; /* the same for report_net; NULL: by name */
} neap_step;
/* Runs the tree. What is wrong with it is said before anything runs, and leaves the workspace as it
 * was; later the first failure stops the rest, as neap_interrupt does. Then the run of the net that
 * failed has not been (see neap_session_run), the runs before it have: all is as if the tree had
 * ended there. */
NEAP_API neap_status neap_workspace_run_steps(neap_workspace *workspace, const neap_step *root,
                                              const neap_options *options,
                                              char warning[NEAP_WARNING_TEXT], neap_error *error);

#endif
