/* workspace: names to storage. Owns the resident segments and the arena, hands base pointers to
 * programs, and knows which transient bytes are still intact.
 *
 * A blob is a typed cell: tensor, string, scope (a stack of child workspaces), or nothing
 * (declared, not filled; or freed). Programs take tensors only. Lookup order: own names, forwarded
 * names, parent. INVARIANT: a segment (parameters, gradients, state) is dense and never moves;
 * `init` appends one.
 * INVARIANT: the arena is as large as the largest program attached; growing it moves it, which no
 * resident byte notices.
 * INVARIANT: the pool, which programs of policy `pool` take from, is one region, empty between
 * runs, and as large as the largest of them that has run since it was last trimmed. A workspace
 * belongs to one thread at a time.
 */
#ifndef NEAP_WORKSPACE_H
#define NEAP_WORKSPACE_H

#include "io/io.h"
#include "program/program.h"

typedef struct neap_workspace neap_workspace;
typedef struct neap_scope neap_scope;

typedef struct neap_workspace_options {
  uint64_t seed;
  /* `seed` is not given: a child's follows from its parent's; else the draws of the thread (base)
   * stand for it */
  bool unseeded;
  neap_workspace *parent; /* shared parent, retained: reads fall through; NULL for none */
  /* forwarded names only: name here -> name in parent; then nothing else falls through */
  int n_forward;
  bool forwards_only; /* nothing falls through although n_forward is 0 */
  const char *const *forward_name, *const *forward_target;
  size_t budget_bytes, total_bytes; /* 0: none */
} neap_workspace_options;

neap_status neap_workspace_new(const neap_workspace_options *options, neap_workspace **out,
                               neap_error *error);
neap_workspace *neap_workspace_retain(neap_workspace *workspace);
void neap_workspace_release(neap_workspace *workspace);

/* Runs visit for every workspace that is alive, under a lock: visit may retain one, and must not
 * make or end any. What a workspace holds belongs to the thread that uses it. */
void neap_workspace_for_each(void (*visit)(void *context, neap_workspace *workspace),
                             void *context);
/* False when its last reference has just gone: for visit. */
bool neap_workspace_try_retain(neap_workspace *workspace);

typedef enum neap_blob_kind {
  NEAP_BLOB_EMPTY,
  NEAP_BLOB_TENSOR,
  NEAP_BLOB_STRING,
  NEAP_BLOB_TRANSIENT,
  NEAP_BLOB_SCOPE
} neap_blob_kind;

typedef struct neap_blob_info {
  const char *name;
  neap_blob_kind kind;
  neap_role role;
  neap_region region;
  neap_type type;
  size_t bytes;
  bool borrowed;        /* forwarded or the parent's */
  bool shares;          /* storage counted under another name, at least in part */
  size_t counted_bytes; /* of `bytes`, those that no earlier blob of the visit counts */
  const char *bank;     /* the memory bank that its bytes lie in; NULL: none */
} neap_blob_info;

/* neap_workspace_feed of a tensor that nobody else writes or looks at: where it is not copied into
 * the blob's bytes, the blob takes it over, and those bytes are the workspace's own from then on.
 * No total is looked at. Once the blob is there and check_give says OK for the type, it can't
 * fail. */
neap_status neap_workspace_give(neap_workspace *ws, const char *name, const neap_tensor *tensor,
                                neap_error *error);
/* *in_place: a feed or give of this type is written over the blob's bytes and takes no others.
 * SHAPE or DTYPE error where the blob lies in a segment, with another type. */
neap_status neap_workspace_check_give(const neap_workspace *ws, const char *name,
                                      const neap_type *type, bool *in_place, neap_error *error);
/* Puts *tensor in the place of a tensor blob's bytes and gives those back in it: references change
 * hands, nothing is copied or allocated. The blob's own come back by a second exchange. ARGUMENT
 * error for a blob in a segment, whose bytes never move. */
neap_status neap_workspace_exchange(neap_workspace *ws, const char *name, neap_tensor *tensor,
                                    neap_error *error);
/* The type of the blob's own bytes; false when the name is unknown or has none. */
bool neap_workspace_type(const neap_workspace *ws, const char *name, neap_type *type);
/* Whether the tensors that the workspace sees under two names have bytes in common; a name that it
 * lacks has none. */
bool neap_workspace_meet(const neap_workspace *ws, const char *a, const char *b);
/* EMPTY when unknown. Transient values count as tensors while a program that has them ran last. */
neap_blob_kind neap_workspace_kind(const neap_workspace *ws, const char *name);
/* A string of any bytes. Like feed, it takes the place of what the blob held. */
neap_status neap_workspace_feed_string(neap_workspace *ws, const char *name, const char *text,
                                       size_t n, neap_error *error);
/* Borrowed until the blob changes. DTYPE when the blob holds something else. */
neap_status neap_workspace_fetch_string(const neap_workspace *ws, const char *name,
                                        const char **text, size_t *n, neap_error *error);
neap_status neap_workspace_create(neap_workspace *ws, const char *name, bool local,
                                  neap_error *error); /* no effect when present */
/* Each forwarded name gets an own blob with a copy of what it leads to; removing that blob shows
 * the parent's again. Tensors only: DTYPE for others, and then nothing is copied. */
neap_status neap_workspace_copy_forwarded(neap_workspace *ws, neap_error *error);
/* Calls visit for own names, then forwarded and the parent's, each once. */
void neap_workspace_each(const neap_workspace *ws,
                         void (*visit)(void *context, const neap_blob_info *info), void *context);

/* Before a call that may fail (mark.c): notes the blobs `fed`, contents included, and with `all`
 * what every own blob is. Undoing puts them back; blobs that were not there are removed, of `fed`
 * or, with `all`, any. */
typedef struct neap_workspace_mark neap_workspace_mark;
neap_status neap_workspace_mark_new(neap_workspace *ws, bool all, int n, const char *const *fed,
                                    neap_workspace_mark **out, neap_error *error);
void neap_workspace_mark_undo(neap_workspace_mark *mark, int n, const char *const *fed);
void neap_workspace_mark_free(neap_workspace_mark *mark);
/* The same before several runs that are to happen as a whole: notes the parameters and state that
 * the programs write, contents included. *out is NULL where they write none, which undo and free
 * take. */
neap_status neap_workspace_mark_runs(neap_workspace *ws, int n, neap_program *const *program,
                                     neap_workspace_mark **out, neap_error *error);

/* Makes the blobs that `net` declares and does not find (one segment per region) and fills them
 * from the net's init ops. Blobs that exist with the same type stay as they are; those that nobody
 * has written yet are filled. Random inits draw from the workspace's seed. */
neap_status neap_workspace_init(neap_workspace *ws, const neap_net *net, neap_error *error);
/* Ends moves that are under way (neap_workspace_assign, later). It can't fail. */
void neap_workspace_finish_moves(neap_workspace *ws);
/* The blobs that lie in banks, of the workspace and those above it: fills at most `room`, gives how
 * many there are. */
int neap_workspace_homes(const neap_workspace *ws, int room, neap_home *home);
/* Finds or makes the program's resident blobs, grows the arena, attaches base pointers. The
 * workspace does not own the program; detach before freeing it. */
neap_status neap_workspace_attach(neap_workspace *ws, neap_program *program, neap_error *error);
void neap_workspace_detach(neap_workspace *ws, neap_program *program);
/* Lets go of the bytes of inputs, outputs, kept blobs and constants that the program used; its next
 * run finds or makes them anew. */
void neap_workspace_rest(neap_workspace *ws, neap_program *program);
/* Whether a blob that the attached program works on has been removed or renamed: a run would be
 * refused. */
bool neap_workspace_lacks_blob(neap_workspace *ws, const neap_program *program);
/* Runs an attached program. What its random ops draw follows from the workspace's seed and a
 * counter that goes up when the run has finished: the step for a program with a backward pass, the
 * draw for any other one that draws. A workspace that nobody gave a seed takes a draw of the thread
 * in place of its own. */
neap_status neap_workspace_run(neap_workspace *ws, neap_program *program, neap_step_times *times,
                               neap_error *error);

neap_workspace *neap_workspace_parent(const neap_workspace *ws); /* borrowed; NULL for none */
/* The forwarded names, in order of their making; NULL out of range. */
const char *neap_workspace_forwarded_at(const neap_workspace *ws, int index);
uint64_t neap_workspace_seed(const neap_workspace *ws);
uint32_t neap_workspace_step(const neap_workspace *ws);
/* Told what to draw by: the runs from here on draw what those after the same call drew. */
void neap_workspace_set_step(neap_workspace *ws, uint32_t step);
void neap_workspace_set_seed(neap_workspace *ws, uint64_t seed);
void neap_workspace_rewind_step(neap_workspace *ws,
                                /* the counter alone: a step is begun again, or its other half */
                                uint32_t step);
/* What the next run of a program with a backward pass (`train`) or without one draws by. */
neap_draw neap_workspace_look_draw(const neap_workspace *ws, bool train);
/* That draw, of a run without a backward pass, has been used. */
void neap_workspace_count_draw(neap_workspace *ws);
/* What all runs draw by until it is taken back by NULL; they count nothing then. Borrowed. */
void neap_workspace_give_draw(neap_workspace *ws, const neap_draw *draw);
/* as NEAP_POISON=1: dead bytes become NaN */
void neap_workspace_set_poison(neap_workspace *ws, bool poison);
size_t neap_workspace_budget(const neap_workspace *ws);      /* of arena and pool; 0: none */
size_t neap_workspace_total(const neap_workspace *ws);       /* of all that it holds; 0: none */
size_t neap_workspace_arena_bytes(const neap_workspace *ws); /* those of its memory banks too */
/* Figures of the workspace's pool; zeros when no program of policy `pool` has run. */
neap_pool_stats neap_workspace_pool(const neap_workspace *ws);
/* Above `bytes` the pool is cut down again by the next run that needs less; 0: never. A hard limit
 * is the plan's budget. */
void neap_workspace_set_pool_soft(neap_workspace *ws, size_t bytes);
size_t neap_workspace_pool_soft(const neap_workspace *ws);
/* Gives the pool's region back; the next run takes it anew. Returns its bytes. */
size_t neap_workspace_trim_pool(neap_workspace *ws);
/* sum of what it owns, for reports; not the counted truth */
size_t neap_workspace_held_bytes(const neap_workspace *ws);

/* Checkpoint (checkpoint.c): all own resident parameters and state, seed and step, as safetensors;
 * written beside and renamed. Texts of the caller's go with it: `meta` of n_meta pairs, borrowed;
 * when loading, *meta (may be NULL) gets the file's text map, ended by the caller with
 * neap_io_list_fini.
 *
 * Loading copies into blobs that have bytes and makes those that are missing. With a map other than
 * NEAP_IO_COPY, blobs are the mapped bytes themselves: nothing is read before it is used, and
 * workspaces of several processes share the file's pages. Such a load comes before init, whose
 * segments can't be mapped, and init then takes the blobs as the net's parameters. A program that
 * would write a blob mapped with NEAP_IO_MAP_READ is refused before it runs; one mapped with
 * NEAP_IO_MAP_WRITE may be trained, and the file stays as it is. */
neap_status neap_workspace_save(neap_workspace *ws, const char *path, int n_meta,
                                const neap_io_pair *meta, neap_error *error);
neap_status neap_workspace_load(neap_workspace *ws, const char *path, neap_io_map map,
                                neap_io_list *meta, neap_error *error);

/* model.c. The net of a file that neap_workspace_export (neap.h) wrote, its parameters and state
 * taken over: *out is the caller's. DATA for a file without a net, or whose tensors are not those
 * that its net declares. Maps are those of neap_workspace_load. */
neap_status neap_workspace_load_model(neap_workspace *ws, const char *path, neap_io_map map,
                                      neap_net **out, neap_error *error);

/* ---- pictures (picture.c); rows as neap_workspace_blobs (neap.h) gives them ------------------ */

const char *neap_blob_kind_name(neap_blob_kind kind);
/* By region, the largest first, then by name: as the table has them. */
void neap_workspace_sort_blobs(neap_blob_row *row, int n);
void neap_workspace_print(const neap_blob_row *row, int n, neap_buffer *out);
/* The plan of the program made or run last, and what else the workspace holds. ARGUMENT error when
 * there is no program. */
neap_status neap_workspace_draw(const neap_workspace *ws, neap_buffer *out, neap_error *error);

/* Nets by name: the one table of them, for C and Lua alike. A net stays its holders' own: what is
 * added to it later, a lookup finds in it. INVARIANT: the names of a workspace's own nets
 * differ. */

/* Takes the caller's reference over, unless this fails: NAME when the name is taken and not to be
 * overwritten. */
neap_status neap_workspace_add_net(neap_workspace *ws, neap_net *net, bool overwrite,
                                   neap_error *error);
/* Its own, else its parent's, and so on; borrowed; NULL: there is none. */
neap_net *neap_workspace_net(const neap_workspace *ws, const char *name);
/* Its own ones, in order of their making; borrowed; NULL out of range. */
neap_net *neap_workspace_net_at(const neap_workspace *ws, int index);
/* own ones only; whether there was one */
bool neap_workspace_delete_net(neap_workspace *ws, const char *name);

/* ---- scopes (scope.c): stacks of child workspaces -------------------------------------------- */

/* Makes scope `name`, without frames, or empties the one that is there. Borrowed from the blob. */
neap_status neap_workspace_create_scope(neap_workspace *ws, const char *name, neap_scope **out,
                                        neap_error *error);
neap_status neap_workspace_scope(const neap_workspace *ws, const char *name, neap_scope **out,
                                 neap_error *error);

neap_status neap_scope_new(neap_scope **out, neap_error *error); /* one that is no blob */
neap_scope *neap_scope_retain(neap_scope *scope);
void neap_scope_release(neap_scope *scope);
/* Enters the next frame, a child of `parent` that sees inner[i] as the parent's outer[i], and
 * nothing else of it; made when there is none to reuse. Borrowed until the scope is trimmed. NAME
 * when an outer name is unknown, or when these are not the bindings of the first push; ARGUMENT
 * when the parent is another one. */
neap_status neap_scope_push(neap_scope *scope, neap_workspace *parent, int n,
                            const char *const *inner, const char *const *outer,
                            neap_workspace **out, neap_error *error);
/* The top frame with further bindings, of which none may contradict what it has; *out is NULL when
 * the scope is empty. */
neap_status neap_scope_reuse_last(neap_scope *scope, neap_workspace *parent, int n,
                                  const char *const *inner, const char *const *outer,
                                  neap_workspace **out, neap_error *error);
/* Leaves the top frame, which lives on: for the backward pass, last in, first out. Bindings are
 * added for names that the frame does not know yet. *out is NULL when the scope is empty. */
neap_status neap_scope_pop_gradient(neap_scope *scope, neap_workspace *parent, int n,
                                    const char *const *inner, const char *const *outer,
                                    neap_workspace **out, neap_error *error);
void neap_scope_clear(neap_scope *scope); /* no frame is in use; all keep their memory */
bool neap_scope_empty(const neap_scope *scope);
int neap_scope_n_frames(const neap_scope *scope); /* in use */
/* in use or kept for the next push */
int neap_scope_n_kept(const neap_scope *scope);
/* of those kept; borrowed; NULL out of range */
neap_workspace *neap_scope_frame_at(const neap_scope *scope, int index);
/* INTERNAL when more frames are in use than exist. */
neap_status neap_scope_check(const neap_scope *scope, neap_error *error);
/* NAME unless the bindings are those of the first push, or of the first gradient; fine while there
 * was none. */
neap_status neap_scope_check_bindings(const neap_scope *scope, bool gradient, int n,
                                      const char *const *inner, const char *const *outer,
                                      neap_error *error);
/* Ends the frames that are not in use: their memory returns, once no session refers to them. An
 * empty scope forgets its bindings too. */
void neap_scope_trim(neap_scope *scope);
size_t neap_scope_held_bytes(const neap_scope *scope);

/* Ctrl-C: set from a signal handler; read by all programs of the process. */
extern atomic_int neap_interrupted;

#endif
