/* workspace_int.h: cells, attachments and what the files of this room share. Private to workspace.
 *
 * INVARIANT: index holds exactly the names of `cell`. INVARIANT: `version` changes whenever a cell
 * is made, dropped, renamed or gets other bytes; an attachment whose version differs from the
 * chain's looks its blobs up again before it runs.
 * INVARIANT: a name has one value. Where a net writes or frees it and the cell's bytes are not what
 * it wrote, the cell is `outdated`, and nobody reads its bytes as the name's value until they are
 * written again (newest.c).
 * INVARIANT: an attachment's constants are used only while every storage they were computed from
 * has the version it had then.
 */
#ifndef NEAP_WORKSPACE_INT_H
#define NEAP_WORKSPACE_INT_H

#include "workspace/workspace.h"

#include <stdatomic.h>

typedef struct neap_cell {
  const char *name; /* interned */
  neap_role role;
  neap_region region;
  neap_tensor tensor; /* {0}: declared, no bytes yet */
  char *text;         /* a string of text_bytes bytes, owned; NULL: none */
  size_t text_bytes;
  neap_scope *scope; /* retained; at most one of tensor, text and scope is there */
  bool filled;       /* somebody has written the bytes */
  bool in_segment;   /* part of a segment: never moves */
  bool is_shared;    /* the user's storage, held by reference */
  uint64_t fed_run;  /* n_run when it was fed last */
  /* what a net has done to the name since, without writing these bytes; interned; NULL: they are
   * the newest */
  const char *outdated;
  const char *bank; /* the memory bank that its bytes lie in, interned; NULL: none */
  /* its place in a segment that others still use, while it lies in a bank; else {0} */
  neap_tensor left;
  /* so many bytes from the tensor's first are its own: other shapes may lie in them; 0: as the
   * tensor */
  size_t reserve_bytes;
} neap_cell;

/* A memory bank: its arena is as large as the part of the largest program. */
typedef struct neap_workspace_bank {
  const char *name; /* interned */
  size_t capacity;  /* 0: no limit */
  neap_bank_kind kind;
  neap_storage *arena; /* NULL: no program needs bytes of it */
} neap_workspace_bank;

/* Where a name leads: the workspace that owns the cell, and the cell's index there. ws NULL:
 * nowhere. */
typedef struct neap_found {
  neap_workspace *ws;
  int cell;
} neap_found;

/* A blob whose name a program writes or frees without writing its bytes. */
typedef struct neap_outdates {
  neap_found cell;
  /* says so: 'net "B" has written it since, in Relu "relu_1" at b.lua:3, and kept no bytes for it';
   * interned */
  const char *text;
} neap_outdates;

/* A program and the bytes it uses; holding references, so that removing a name can't pull bytes
 * from under a program. */
typedef struct neap_attachment {
  neap_program *program;
  uint64_t version;    /* of the chain of workspaces when the blobs were looked up */
  const char **name;   /* of the cell of each program blob */
  neap_tensor *tensor; /* its bytes */
  neap_found *cell;    /* the cell itself, valid with `version` */
  int *by_address;     /* the blobs, sorted (apart.c) */
  int n_outdates, cap_outdates;
  neap_outdates *outdates; /* valid with `version` */
  uint64_t last_run;       /* n_run of its last run; 0: none */
  uint64_t last_use;       /* n_use when it was made or begun to run last */
  neap_storage *constants; /* its constants; NULL where it has none */
  bool constants_made;     /* they have been computed, from contents that `content` tells */
  uint64_t own_content;    /* version of `constants` then: a view of one may have been written to */
  /* by program blob: version of its storage then, where it feeds a constant */
  uint64_t *content;
} neap_attachment;

struct neap_workspace {
  _Atomic int n_ref;
  neap_workspace *parent; /* retained */
  int n_forward;
  const char **forward_name, **forward_target;
  int cap_forward;
  bool forwards_only;
  bool is_frame;                         /* `parent` is not retained, and NULL once it has ended */
  neap_workspace *first_frame;           /* frames of which this is the parent */
  neap_workspace *next_frame;            /* the next frame of the same parent */
  neap_workspace *next_live, *last_live; /* the list of all workspaces */
  uint64_t seed;
  uint32_t step;    /* of training runs */
  uint32_t draw;    /* of the others that draw */
  int n_mark;       /* marks of all its cells that are alive */
  uint32_t n_child; /* children without a seed of their own that were made */
  /* nobody gave a seed or a step: neap_draw_look stands for seed and draw */
  bool draws_by_thread;
  const neap_draw *given; /* for all of them, for a while; borrowed, or NULL */
  size_t budget_bytes, total_bytes;
  bool poison;

  neap_cell *cell;
  int n_cell, cap_cell;
  neap_map index; /* name -> cell */
  uint64_t version;

  neap_storage *arena;
  size_t arena_bytes;
  neap_storage *undo;        /* what a run that fails is put back from; NULL: no program needs it */
  neap_workspace_bank *bank; /* memory banks that programs have named; main's arena is `arena` */
  int n_bank, cap_bank;
  struct neap_move *move; /* blobs on their way to a bank (assign.c) */
  neap_pool *pool;        /* NULL until a program of policy `pool` is attached */
  size_t pool_soft_bytes;
  neap_attachment *attachment;
  int n_attachment, cap_attachment;
  uint64_t n_run;        /* runs begun on the arena: the generation of transient views */
  uint64_t n_use;        /* programs attached and runs begun */
  neap_program *last;    /* the program whose transient bytes the arena holds; NULL: nobody's */
  const char *last_name; /* of the net that ran last, for messages */

  neap_net **net; /* one reference each */
  int n_net, cap_net;
};

/* packed.c: for neap_run.spare, whose owner is one of these. */
typedef struct neap_packing {
  neap_workspace *ws;
  const neap_attachment *attachment;
} neap_packing;
void neap_workspace_spare(void *packing, int blob);
/* Whether a workspace that is alive sees this one's names. */
bool neap_workspace_has_child(const neap_workspace *ws);

/* Lets go of what the cell holds; name, role and region stay. */
void neap_cell_clear(neap_cell *cell);
neap_blob_kind neap_cell_kind(const neap_cell *cell);
/* DTYPE: the blob holds no tensor. */
neap_status neap_workspace_fail_kind(const char *what, const char *name, neap_blob_kind kind,
                                     neap_error *error);

/* frame.c. A child that sees the given names only and does not retain its parent; `index` makes its
 * random numbers differ from its neighbours'. */
neap_status neap_workspace_new_frame(neap_workspace *parent, int index, int n,
                                     const char *const *name, const char *const *target,
                                     neap_workspace **out, neap_error *error);
/* Makes a frame as good as new: these forwarded names instead of the old ones, no own blob under
 * any of them, and what locals hold counts as not written; their bytes stay. */
neap_status neap_workspace_rebind(neap_workspace *frame, int n, const char *const *name,
                                  const char *const *target, neap_error *error);
/* What neap_workspace_forward would say. */
neap_status neap_workspace_check_forward(const neap_workspace *ws, const char *name,
                                         const char *target, neap_error *error);
/* Forwarded names of a workspace that is being made; each must mean something in the parent. */
neap_status neap_workspace_add_forwards(neap_workspace *ws, int n, const char *const *name,
                                        const char *const *target, neap_error *error);
/* The frames of an ending workspace lose their parent; a frame leaves its parent's list. */
void neap_workspace_orphan_frames(neap_workspace *ws);

/* Where NEAP_DEBUG is on: names, cells and nets of the workspace are as this file says. */
void neap_workspace_check(const neap_workspace *ws);
neap_found neap_workspace_find(const neap_workspace *ws, const char *name);
/* of an interned name */
neap_found neap_workspace_find_key(const neap_workspace *ws, const char *key);
/* A new own cell; -1 when memory is refused. The name must be free, and one that a net can hold. */
int neap_workspace_add_cell(neap_workspace *ws, const char *name);
/* The same for a name from outside: NAME error for one that no net can hold. *cell is its index. */
neap_status neap_workspace_new_cell(neap_workspace *ws, const char *name, int *cell,
                                    neap_error *error);
void neap_workspace_drop_cell(neap_workspace *ws, int cell);
/* Room for n more cells, so that adding them can't fail. */
bool neap_workspace_reserve(neap_workspace *ws, int n);
uint64_t neap_workspace_chain_version(const neap_workspace *ws);
neap_attachment *neap_workspace_attachment(neap_workspace *ws, const neap_program *program);
/* NAME error with the nearest name that exists. */
neap_status neap_workspace_fail_unknown(const neap_workspace *ws, const char *verb,
                                        const char *name, neap_error *error);
/* Two types in one sentence. */
neap_status neap_workspace_fail_type(const char *what, const char *name, const neap_type *expected,
                                     const neap_type *got, neap_error *error);

/* ---- newest.c: which value a name has -------------------------------------------------------- */

/* Looks up the cells that a run of the program outdates. MEMORY error when the list is refused. */
neap_status neap_newest_find(neap_workspace *ws, neap_attachment *a, neap_error *error);
/* apart.c. GRAPH error that names both blobs when one that the program writes has bytes in common
 * with another of its blobs. */
neap_status neap_attachment_check_apart(neap_attachment *a, neap_error *error);
/* After a finished run: what it wrote is the newest, and what it wrote elsewhere outdates its
 * cell. */
void neap_newest_mark(neap_attachment *a);
/* Before a run: a blob that it reads and that another net has written since gets that value, while
 * it is there; RELEASED error that names the net and the op when it is not. */
neap_status neap_newest_bring(neap_workspace *ws, neap_attachment *a, neap_error *error);
/* RELEASED: what has happened to the blob. */
neap_status neap_newest_fail(const char *verb, const char *name, const char *outdated,
                             neap_error *error);

/* ---- undo.c: a run that fails leaves its blobs as they were ---------------------------------- */

/* Bytes of the copies of what a run of the program may leave half written; 0 for most. */
size_t neap_undo_bytes(const neap_program *program);
/* Before a run, into ws->undo, which has room, and after a failed one. */
void neap_undo_save(const neap_workspace *ws, const neap_attachment *a);
void neap_undo_put_back(const neap_workspace *ws, const neap_attachment *a);

/* ---- resident.c: blobs of a program that have bytes of their own ----------------------------- */

/* The cell name of each program blob: its own, but for a later blob of the same name (an input that
 * the net overwrites by name): that one gets a cell that no user can name. Quadratic in the blobs,
 * once a program. */
neap_status neap_resident_name(neap_program *program, neap_attachment *a, neap_error *error);
/* Whether the blob must be made: unknown, without bytes (a parent's too: the name was created to be
 * written), or our own with bytes of another type that a program may replace. */
bool neap_resident_is_missing(const neap_workspace *ws, const neap_program_blob *blob,
                              neap_found found);
/* An own cell whose bytes have room for the blob, which this program writes before it reads it. */
bool neap_resident_may_retype(const neap_workspace *ws, const neap_program_blob *blob,
                              neap_found found);
/* A gradient that the program computes from nothing, and whose bytes were given back or its name
 * removed. */
bool neap_resident_is_given_back(const neap_workspace *ws, const neap_attachment *a, int b);
/* The bytes for the missing blobs, or for those of them that were given back alone: one segment for
 * the gradients, storage of its own for each other one. fresh[b] gets a view where one is made;
 * what it has after a failure the caller drops. */
neap_status neap_resident_make(neap_workspace *ws, neap_program *program, const neap_attachment *a,
                               bool given_back, neap_tensor *fresh, neap_error *error);
/* Bytes of its own for blob b, in `bank` (NULL: main), with room for its largest. */
neap_status neap_resident_make_one(const neap_workspace *ws, neap_program *program, int b,
                                   const char *bank, neap_tensor *out, neap_error *error);
/* Own blobs that are there already, fed for a small batch perhaps, get bytes with room for the
 * largest; their contents go with them. Segments have the room they were made with. */
neap_status neap_resident_make_room(neap_workspace *ws, neap_program *program,
                                    const neap_attachment *a, neap_error *error);
/* Gives the fresh views to cells, old or new. MEMORY error when a cell is refused; those added so
 * far are gone then. */
neap_status neap_resident_publish(neap_workspace *ws, neap_program *program,
                                  const neap_attachment *a, neap_tensor *fresh, neap_error *error);

/* ---- bank.c ---------------------------------------------------------------------------------- */

/* The workspace's banks for those of a program, with arenas that are large enough: made in `fresh`
 * (one a bank of the plan, NULL where it has enough), and put in place, which can't fail. ARGUMENT
 * for a bank that the workspace knows with another capacity or kind; BUDGET for one that would
 * exceed its capacity, MEMORY when bytes are refused. */
neap_status neap_workspace_make_banks(neap_workspace *ws, const neap_program *program,
                                      neap_storage *fresh[NEAP_MAX_BANKS], neap_error *error);
/* Whether the arena may have so many bytes: BUDGET where main has a capacity that they exceed,
 * whoever has given it. */
neap_status neap_workspace_check_main(const neap_workspace *ws, const neap_program *program,
                                      size_t arena, neap_error *error);
void neap_workspace_take_banks(neap_workspace *ws, const neap_program *program,
                               neap_storage *fresh[NEAP_MAX_BANKS]);
/* Bytes that the arenas of all banks but main take, or will when `program` (may be NULL) is
 * attached. */
size_t neap_workspace_bank_bytes(const neap_workspace *ws, const neap_program *program);
/* The arena of the plan's bank `b`; NULL: it needs no bytes. */
neap_storage *neap_workspace_bank_arena(const neap_workspace *ws, const neap_program *program,
                                        int b);

/* Bytes of a bank that blobs lie in. */
size_t neap_workspace_bank_blobs(const neap_workspace *ws, const char *bank);
/* Whether `more` bytes find room in a bank beside its blobs: BUDGET error of `who` where it has a
 * capacity (not 0) that they exceed. */
neap_status neap_workspace_check_bank(const neap_workspace *ws, const char *who, const char *bank,
                                      size_t capacity, size_t more, neap_error *error);
/* Bytes in a bank that the workspace knows, for a blob of this type with room for so many: BUDGET
 * error of `who` where the bank has too little left beside its programs and blobs, the one whose
 * bytes are replaced among them. */
neap_status neap_workspace_make_in_bank(const neap_workspace *ws, const char *who, const char *bank,
                                        const neap_type *type, size_t room, neap_tensor *out,
                                        neap_error *error);
/* The bank of this name and kind, made where the workspace has none. ARGUMENT for one that is known
 * otherwise; MEMORY when refused. */
neap_status neap_workspace_know_bank(neap_workspace *ws, const neap_bank *given, const char *who,
                                     neap_workspace_bank **out, neap_error *error);

/* ---- assign.c -------------------------------------------------------------------------------- */

/* Bytes that no cell shows: the places kept in segments for blobs that lie in banks, and the new
 * ones of blobs on their way there. */
size_t neap_workspace_left_bytes(const neap_workspace *ws);
/* Whether one of the names, interned, is on its way, in the workspace or above it. */
bool neap_workspace_moves(const neap_workspace *ws, int n, const char *const *name);

/* ---- segment.c ------------------------------------------------------------------------------- */

/* Whether a blob of the workspace lies in the storage. */
bool neap_workspace_holds(const neap_workspace *ws, const neap_storage *storage);
/* One segment of `region` for n cells: their tensors become views of it. Each begins on a multiple
 * of NEAP_ALIGN. */
neap_status neap_workspace_make_segment(int n, const neap_type *type, neap_tensor *view,
                                        neap_error *error);
/* The same with room for room[i] bytes where that is more. */
neap_status neap_workspace_make_room(int n, const neap_type *type, const size_t *room,
                                     neap_tensor *view, neap_error *error);
/* Whether the total has room for `more` bytes beside what is held: those that a blob has now are
 * given up only afterwards. BUDGET error, which begins with `who "name"`. */
neap_status neap_workspace_check_total(const neap_workspace *ws, const char *who, const char *name,
                                       size_t more, neap_error *error);
/* Whether the cell's own bytes have room for `type`, though it holds another one at present. */
bool neap_workspace_has_room(const neap_cell *cell, const neap_type *type);
/* Its bytes are seen as `type` from now on; their contents mean nothing. Needs has_room. */
void neap_workspace_retype(neap_workspace *owner, neap_cell *cell, const neap_type *type);
/* Programs of this workspace let go of a storage; they look their blobs up again before they
 * run. */
void neap_workspace_release_from_programs(neap_workspace *ws, const neap_storage *storage);
/* The same for a cell that is about to get other bytes, unless another name has the old ones: what
 * no name has is not counted, so that no program may keep it. */
void neap_workspace_leave_bytes(neap_workspace *ws, const neap_cell *cell);
/* A blob's own bytes with a copy of `tensor`: a segment of one, so that it holds what forecasts
 * count for it. */
neap_status neap_workspace_copy_in(const neap_tensor *tensor, neap_tensor *out, neap_error *error);

/* ---- files (checkpoint.c, model.c) ---- */

#define NEAP_META_NET "neap.net" /* a model's net, as text */
#define NEAP_META_STATE \
  "neap.state" /* names of the tensors that are state rather than parameters, one a line */
#define NEAP_META_VERSION "neap.version" /* of the library that wrote the file */

/* A file's tensors become blobs, or the bytes of those that are there; seed and step where the
 * metadata has them. `path` is for messages. A failure changes nothing. */
neap_status neap_workspace_take_list(neap_workspace *ws, const char *path, const neap_io_list *list,
                                     bool mapped, neap_error *error);

#endif
