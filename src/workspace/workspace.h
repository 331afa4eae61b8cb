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
/* Calls visit for own names, then forwarded and the parent's, each once. */
void neap_workspace_each(const neap_workspace *ws,
                         void (*visit)(void *context, const neap_blob_info *info), void *context);

/* neap_workspace_mark_new before several runs that are to happen as a whole (mark.c): notes the
 * parameters and state that the programs write, contents included. *out is NULL where they write
 * none, which undo and free take. */
neap_status neap_workspace_mark_runs(neap_workspace *ws, int n, neap_program *const *program,
                                     neap_workspace_mark **out, neap_error *error);

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

/* The forwarded names, in order of their making; NULL out of range. */
const char *neap_workspace_forwarded_at(const neap_workspace *ws, int index);
/* The counter alone: a step is begun again, or its other half. */
void neap_workspace_rewind_step(neap_workspace *ws, uint32_t step);
/* That draw, of a run without a backward pass, has been used. */
void neap_workspace_count_draw(neap_workspace *ws);
size_t neap_workspace_budget(const neap_workspace *ws); /* of arena and pool; 0: none */
size_t neap_workspace_total(const neap_workspace *ws);  /* of all that it holds; 0: none */
/* neap_workspace_init for who attaches a program next: the attach counts all that comes, and says
 * what would do. */
neap_status neap_workspace_make_declared(neap_workspace *ws, const neap_net *net,
                                         neap_error *error);
/* Figures of the workspace's pool; zeros when no program of policy `pool` has run. */
neap_pool_stats neap_workspace_pool(const neap_workspace *ws);
/* Above `bytes` the pool is cut down again by the next run that needs less; 0: never. A hard limit
 * is the plan's budget. */
void neap_workspace_set_pool_soft(neap_workspace *ws, size_t bytes);
size_t neap_workspace_pool_soft(const neap_workspace *ws);

/* ---- pictures (picture.c); rows as neap_workspace_blobs (neap.h) gives them ------------------ */

const char *neap_blob_kind_name(neap_blob_kind kind);
void neap_workspace_print(const neap_blob_row *row, int n, neap_buffer *out);
/* The plan of the program made or run last, and what else the workspace holds. ARGUMENT error when
 * there is no program. */
neap_status neap_workspace_draw(const neap_workspace *ws, neap_buffer *out, neap_error *error);

/* ---- scopes (scope.c): stacks of child workspaces -------------------------------------------- */

neap_status neap_scope_new(neap_scope **out, neap_error *error); /* one that is no blob */

/* Ctrl-C: set from a signal handler; read by all programs of the process. */
extern atomic_int neap_interrupted;

#endif
