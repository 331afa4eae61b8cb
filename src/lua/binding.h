/* binding: what the files of src/lua share. One file per Lua class; each class is a kind of handle
 * (handle.c) and a table of methods that the Lua modules under lua/neap extend.
 *
 * INVARIANT: a C resource is put into its userdata before anything can raise: make the userdata
 * first ({0}, metatable set), fill it then. Temporary arrays come from neap_lua_room, so that an
 * error leaves nothing behind.
 * INVARIANT: tables of arguments are read raw: no metamethod runs while C walks one (but for nested
 * tables of numbers, whose lengths are looked at again: tensor_make.c). Finalisers may run whenever
 * Lua allocates: a table that is counted and then read, or that keeps what C borrows, is copied
 * first (neap_lua_copy), and the copy stays on the stack.
 * INVARIANT: the binding is written over neap.h alone, as a user's program could be.
 * INVARIANT: positions, axes and steps count from 1 on the Lua side of this room and from 0 on the
 * other.
 * Those that C can check are checked by NEAP_LUA_ASSERT.
 */
#ifndef NEAP_LUA_BINDING_H
#define NEAP_LUA_BINDING_H

#include "neap.h"
#include "neap/record.h"

#include <assert.h>
#include <lauxlib.h>
#include <lua.h>

#define NEAP_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define NEAP_MIN(a, b) ((a) < (b) ? (a) : (b))
#define NEAP_MAX(a, b) ((a) > (b) ? (a) : (b))

/* As the engine's NEAP_ASSERT, which is not in the contract: checked with NEAP_DEBUG=1 (`make
 * debug`), compiled in every build. The condition has no effect. */
#ifndef NEAP_DEBUG
#define NEAP_DEBUG 0
#endif
#define NEAP_LUA_ASSERT(condition)     \
  do {                                 \
    if (NEAP_DEBUG) assert(condition); \
  } while (0)

/* ---- errors (error.c) ------------------------------------------------------------------------ */

/* Raises: ARGUMENT as a string at the caller's line, all else as an error object {code, message,
 * op, ...}. */
_Noreturn void neap_lua_raise(lua_State *L, const neap_error *error);
_Noreturn void neap_lua_fail(lua_State *L, neap_status code, const char *format, ...)
  NEAP_PRINTF(3, 4);
/* For functions given a path: nil, message, code when the file is at fault (IO, DB, DATA); else
 * raises. */
int neap_lua_failure(lua_State *L, const neap_error *error);
/* As a Lua warning, what a store failed to do; "" says nothing. */
void neap_lua_warn(lua_State *L, const char *warning);
/* core.fail and core.error, for Neap's own Lua files. */
void neap_lua_open_error(lua_State *L);
/* Pushes the error object of a record. */
void neap_lua_push_error(lua_State *L, const neap_error *error);
/* Pushes and returns "lenet.lua:12", the innermost line that is not Neap's own Lua; "" when there
 * is none. */
const char *neap_lua_line(lua_State *L);
/* Whether a level of the stack, looked at with "S", is C or one of Neap's own Lua files. */
bool neap_lua_is_own(const lua_Debug *ar);

/* ---- single arguments (check.c) -------------------------------------------------------------- */

/* core.nearest, for "did you mean", and core.name_function, which gives names to functions. */
void neap_lua_open_check(lua_State *L);
/* As luaL_check.. and luaL_opt.., which say "bad argument" at the line of Neap's own Lua file:
 * these raise at the user's line, and name the function of the surface that the user has called
 * (core.name_function). */
lua_Integer neap_lua_check_integer(lua_State *L, int arg);
/* The integer as an int, which C counts by; raises `argument`, with what is expected of `what`, for
 * one that is none. */
int neap_lua_to_int(lua_State *L, lua_Integer i, const char *what);
lua_Integer neap_lua_opt_integer(lua_State *L, int arg, lua_Integer missing);
lua_Number neap_lua_check_number(lua_State *L, int arg);
lua_Number neap_lua_opt_number(lua_State *L, int arg, lua_Number missing);
const char *neap_lua_check_lstring(lua_State *L, int arg, size_t *n); /* n may be NULL */
const char *neap_lua_check_string(lua_State *L, int arg);
/* The text at `index` as C reads it: raises, `who` in front, for one with a zero byte in it. C
 * would take what stands before that, which may be another name. */
const char *neap_lua_text(lua_State *L, int index, const char *who);
const char *neap_lua_opt_string(lua_State *L, int arg, const char *missing);
void neap_lua_check_type(lua_State *L, int arg, int type);
/* The position of the text at `arg` (nil: of `missing`, where that isn't NULL) in the NULL-ended
 * list. */
int neap_lua_check_option(lua_State *L, int arg, const char *missing, const char *const *list);

/* After a failure: whether a full collection may have made room, so that the call is worth
 * repeating. Refused memory has; a workspace's limit where garbage was held in it; the budget of a
 * plan never, since a plan asks nothing of what is held now. */
bool neap_lua_make_room(lua_State *L, const neap_error *error);
/* `call` may use `&error` and must return a neap_status; it is made again where a collection may
 * have made room. */
#define NEAP_LUA_TRY(L, call)                            \
  do {                                                   \
    neap_error error = {0};                              \
    neap_status try_code_ = (call);                      \
    if (neap_lua_make_room(L, &error)) {                 \
      neap_error_clear(&error);                          \
      try_code_ = (call);                                \
    }                                                    \
    if (try_code_ != NEAP_OK) neap_lua_raise(L, &error); \
  } while (0)

/* ---- tables, lists, names (arguments.c) ------------------------------------------------------ */

/* zeroed; pushed, and lives as long as it is on the stack */
void *neap_lua_room(lua_State *L, size_t bytes);
/* Pushes a copy of the table at `index` and returns how many keys it was given: at least as many as
 * it has. What is read more than once is read from the copy, and borrowed from it. */
int neap_lua_copy(lua_State *L, int index);
/* Pushes field `key` of the table at `index` as it is there, and returns its type. */
int neap_lua_field(lua_State *L, int index, const char *key);
/* The length of the list at `index`, no metamethod asked; raises for more than 2^30 items. */
int neap_lua_length(lua_State *L, int index);
/* Field `field` of the options table at `index`, `missing` where there is none; raises for what is
 * no boolean. */
bool neap_lua_flag(lua_State *L, int index, const char *who, const char *field, bool missing);
/* Raises for a field of the options table at `index` (nil and none: there are none) that is not in
 * the NULL-ended list `known`, and for items of its array part. `who` begins the message. */
void neap_lua_only_fields(lua_State *L, int index, const char *who, const char *const *known);

/* 1-based position, negative from the end, to 0-based; raises a "0 or out of range" argument error
 * about `what`. */
int64_t neap_lua_position(lua_State *L, lua_Integer i, int64_t n, const char *what);
int neap_lua_axis(lua_State *L, int arg, int n_dim); /* argument `arg` as a dimension of n_dim */
/* Integers from the list at `index`, of a table or its field `field` (may be NULL), or else from
 * the arguments from there to the top; returns how many. Anything else in the table raises. */
int neap_lua_integers(lua_State *L, int index, const char *field, const char *what,
                      int64_t out[NEAP_MAX_DIM]);
/* The same as sizes, none below 0. */
void neap_lua_shape(lua_State *L, int index, neap_shape *shape, const char *what);
/* by name; nil or none gives `missing` */
neap_dtype neap_lua_dtype(lua_State *L, int index, neap_dtype missing);
void neap_lua_push_shape(lua_State *L, const neap_shape *shape);
/* Interned name from a string, or from the field `name` of a blob handle; raises for anything
 * else. */
const char *neap_lua_name(lua_State *L, int index, const char *what);
/* The same; NULL for nil and false. */
const char *neap_lua_opt_name(lua_State *L, int index, const char *what);
/* Names from a list, or from one name standing for a list of one; nil gives none. Entries are NULL
 * where the list holds false or nil and `absent` allows it. The array is left on the stack. */
const char **neap_lua_names(lua_State *L, int index, const char *what, bool absent, int *n);
/* {map = "r"|"c"} at `index`, or nothing: how a file is to be mapped. */
neap_io_map neap_lua_io_map(lua_State *L, int index);
/* Bytes: an integer, or "8MiB", "8MB", "512B". Percentages are the caller's business. */
size_t neap_lua_bytes(lua_State *L, int index, const char *what);
/* The same for a limit, which 0 bytes can't be. */
size_t neap_lua_limit(lua_State *L, int index, const char *what);

/* Fields of the table on top of the stack. */
void neap_lua_set_integer(lua_State *L, const char *key, int64_t value);
/* NULL or "": nothing is set */
void neap_lua_set_text(lua_State *L, const char *key, const char *value);
void neap_lua_set_bool(lua_State *L, const char *key, bool value);

/* ---- rows (rows.c) --------------------------------------------------------------------------- */

/* A slot for a cursor, NULL yet; pushed. What is put there is ended with it. */
neap_rows **neap_lua_new_cursor(lua_State *L);
/* A row as a table: a field for each column that it has a value of. */
void neap_lua_push_row(lua_State *L, neap_row_kind kind, const void *row);
/* The same of those columns alone whose places, of `mask`, are `shown`. */
void neap_lua_push_shown(lua_State *L, neap_row_kind kind, const void *row, unsigned mask,
                         unsigned shown);
/* All rows that are left as a list. */
void neap_lua_push_rows(lua_State *L, neap_rows *rows, neap_row_kind kind);
void neap_lua_open_rows(lua_State *L);

/* ---- handles and functions (handle.c) -------------------------------------------------------- */

#define NEAP_LUA_KINDS(X)                                      \
  X(TENSOR, "neap.tensor", "tensor")                           \
  X(NET, "neap.net", "net")                                    \
  X(WORKSPACE, "neap.workspace", "workspace")                  \
  X(PROGRAM, "neap.program", "program")                        \
  X(PLAN, "neap.plan", "plan")                                 \
  X(DB, "neap.db", "database")                                 \
  X(RUN, "neap.run", "run")                                    \
  X(SCOPE, "neap.scope", "scope")                              \
  X(RANGE, "neap.range", "range of batches")                   \
  X(CHAIN, "neap.chain", "chain")                              \
  X(CACHE, "neap.cache", "cache")                              \
  X(RECYCLE, "neap.recycle", "table of live ranges")           \
  X(READER, "neap.batch_reader", "reader of batches")          \
  X(MARK, "neap.workspace_mark", "mark of a workspace")        \
  X(LIVE, "neap.live", "list of workspaces")                   \
  X(DRY_RUN, "neap.dry_run", "dry run")                        \
  X(IO_LIST, "neap.io_list", "list of tensors")                \
  X(CELLS, "neap.cells", "table of cells")                     \
  X(ONNX, "neap.onnx_file", "ONNX file")                       \
  X(CAFFE_TEXT, "neap.caffe_text", "text of Caffe's")          \
  X(CAFFE_WEIGHTS, "neap.caffe_weights", "weights of Caffe's") \
  X(TFLITE, "neap.tflite_file", "TFLite file")                 \
  X(CURSOR, "neap.cursor", "cursor")                           \
  X(BLOCK, "neap.block", "block")                              \
  X(OP, "neap.script_op", "op of a script")                    \
  X(FUNCTION, "neap.function", "function")

typedef enum neap_lua_kind {
#define X(symbol, class, noun) NEAP_LUA_##symbol,
  NEAP_LUA_KINDS(X)
#undef X
    NEAP_LUA_N_KIND
} neap_lua_kind;

/* Frees what a handle, at index 1, holds; a second call finds nothing. */
typedef void neap_lua_free(lua_State *L, void *handle);
/* A new handle, zeroed, with one user value; pushed. */
void *neap_lua_new(lua_State *L, size_t bytes, neap_lua_kind kind, neap_lua_free *free_held);
/* The handle at `index`, closed or not; NULL for all else. */
void *neap_lua_test(lua_State *L, int index, neap_lua_kind kind);
void *neap_lua_any(lua_State *L, int index, neap_lua_kind kind); /* the same; raises for all else */
/* the same; raises RELEASED for a closed one too */
void *neap_lua_at(lua_State *L, int index, neap_lua_kind kind);
bool neap_lua_is_closed(const void *handle);
/* __gc, __close and close() of all kinds. */
int neap_lua_close(lua_State *L);
/* Pushes the table that the registry has under the address `key`, made with the first call: weak in
 * its keys ("k") or values ("v"), so that it keeps none of them alive. */
void neap_lua_push_weak(lua_State *L, const void *key, const char *mode);
/* A list of a file's tensors, empty yet; pushed (file.c). */
neap_io_list *neap_lua_new_io_list(lua_State *L);
/* Handles of nets, workspaces and scopes are found again by the address of what they hold. */
void neap_lua_open_handles(lua_State *L);
/* Pushes the open handle of this kind for the address; where there is none, one that `make` pushes
 * and that retains what lies there. */
void neap_lua_push_held(lua_State *L, neap_lua_kind kind, void *address,
                        void (*make)(lua_State *L, void *address));
/* The handle at `index` is found for the address from now on. */
void neap_lua_remember(lua_State *L, int index, const void *address);
/* The userdata at index 1, which lets go of the thing at `address`, is no longer its handle: the
 * address may be another's soon. */
void neap_lua_forget_handle(lua_State *L, const void *address);
/* A slot for a block that the library gives, NULL yet; pushed. What is put there is freed
 * (neap_free) with it: so it isn't lost when Lua raises. */
void **neap_lua_new_block(lua_State *L);
/* The text in a slot as one result; the block is freed. */
int neap_lua_push_text(lua_State *L, char **slot);

/* A function of the Lua surface. `most`: how many arguments it reads, the object of a method
 * included. A further one that is not nil raises, since nothing that is given is dropped;
 * NEAP_LUA_ANY: the function looks itself. With NEAP_LUA_ALONE no finaliser runs meanwhile: for
 * those that make Lua values of what a finaliser could change. A list ends with name NULL. */
typedef struct neap_lua_reg {
  const char *name;
  lua_CFunction call;
  int most;
} neap_lua_reg;
#define NEAP_LUA_ANY 0xffff
#define NEAP_LUA_ALONE 0x10000
/* Puts the functions of `list` into the table at the top of the stack. */
void neap_lua_functions(lua_State *L, const neap_lua_reg *list, bool methods);
/* Registers a class: metatable from `meta`, methods from `methods`; the method table is left in the
 * table at the top of the stack under `field`. Metamethod __index: as in `meta`, else the method
 * table; __gc: always. */
void neap_lua_class(lua_State *L, neap_lua_kind kind, const char *field, const neap_lua_reg *meta,
                    const neap_lua_reg *methods);
/* Looks `key` (at index 2) up in the method table of the userdata's class; pushes it, nil when
 * there is none. */
int neap_lua_method(lua_State *L);
/* lua_call of a function of the user's: it may do anything, so that the caller reads its handles
 * anew. */
void neap_lua_call_user(lua_State *L, int n_argument, int n_result);
/* lua_pcall of a function of the binding's own, without a message handler. */
int neap_lua_call_protected(lua_State *L, int n_argument, int n_result);
/* The state, or coroutine, whose call of Neap this thread is in; NULL: none. */
lua_State *neap_lua_at_work(void);
/* Up: nets, workspaces and programs that there are now raise when they are used, since one of them
 * is in the midst of something; gives what was before, which `before` brings back. */
uint64_t neap_lua_fence(bool up, uint64_t before);
/* No finaliser runs from here until the other is called with the result, or an error is raised. */
bool neap_lua_hold_finalisers(lua_State *L);
void neap_lua_let_finalisers(lua_State *L, bool held);
/* Before an error is raised: the function is no longer at work. */
void neap_lua_leave(lua_State *L);

/* ---- the collector (memory.c) ---------------------------------------------------------------- */

/* Lets Lua's collector know of the DATA bytes taken since the last call; call it after results are
 * anchored. */
void neap_lua_collect(lua_State *L);
void neap_lua_open_memory(lua_State *L);

/* ---- tensors (tensor.c, tensor_make.c, tensor_index.c, tensor_view.c) ------------------------ */

typedef struct neap_lua_tensor {
  neap_tensor t;
  neap_workspace *ws;  /* of a borrowed view: retained; NULL otherwise */
  uint64_t generation; /* of ws when the view was made */
  const char *name;    /* interned, or NULL */
} neap_lua_tensor;

/* An empty handle, to be filled. */
neap_lua_tensor *neap_lua_new_tensor(lua_State *L);
/* The handle at `index`, closed or not; raises for all else. */
neap_lua_tensor *neap_lua_tensor_handle(lua_State *L, int index);
/* The tensor at `index`; raises when it is none, or a view whose bytes have been taken since
 * (RELEASED). */
neap_tensor *neap_lua_tensor_at(lua_State *L, int index);
/* the same; raises when the bytes are read-only */
neap_tensor *neap_lua_writable_at(lua_State *L, int index);
/* Raises in the words of `who` when two elements of t are one in memory: an expanded view can't be
 * written as a whole. */
void neap_lua_check_whole(lua_State *L, const neap_tensor *t, const char *who);
bool neap_lua_is_tensor(lua_State *L, int index);
/* A new handle with the life of the one at `index`: for views of it. */
neap_lua_tensor *neap_lua_new_view(lua_State *L, int index);
/* Element `offset` (in elements from element 0) as a Lua number, integer or boolean; and back. */
void neap_lua_push_element(lua_State *L, const neap_tensor *t, int64_t offset);
void neap_lua_set_element(lua_State *L, const neap_tensor *t, int64_t offset, int index);
/* Fills `out`, a new handle's tensor, with the number, boolean or nested table at `index`. dtype
 * NONE: f32, bool for booleans. */
void neap_lua_tensor_from(lua_State *L, int index, neap_dtype dtype, neap_tensor *out);
int neap_lua_tensor_index(lua_State *L);     /* x[key] for keys that are no strings */
int neap_lua_tensor_new_index(lua_State *L); /* x[key] = value */
extern const neap_lua_reg neap_lua_tensor_makers[], neap_lua_tensor_views[];
void neap_lua_open_tensor(lua_State *L);

/* Walks over all elements of a tensor in row-major order, whatever the strides. */
typedef struct neap_lua_walk {
  int64_t at[NEAP_MAX_DIM];
  int64_t offset; /* of the current element */
  bool done;
} neap_lua_walk;
void neap_lua_walk_start(neap_lua_walk *walk, const neap_tensor *t);
void neap_lua_walk_next(neap_lua_walk *walk, const neap_tensor *t);

/* ---- ops (op.c) ------------------------------------------------------------------------------ */

/* Pushes an attribute's value as a user would write it: axes from 1, choices by name; nil for
 * subnets and names. */
void neap_lua_push_attr(lua_State *L, const neap_attr *attr, const neap_attr_value *value);
/* Attributes of `op` from the table at `index` (nil: none), as a list that ends with {0}; rooms for
 * it and its lists stay on the stack. Items of the array part are attributes in the record's order;
 * where the first of these is a list, the numbers that begin the array are its items. With `skip`
 * (a NULL-ended list, may be NULL) the table is an initialiser: those keys and the first item, the
 * op's name, are left alone. */
neap_set *neap_lua_attrs(lua_State *L, int index, const neap_op *op, const char *const *skip);
/* the record by name, or NAME error with a suggestion */
const neap_op *neap_lua_op(lua_State *L, int index);
void neap_lua_open_op(lua_State *L);
void neap_lua_open_script_op(lua_State *L); /* script_op.c */

/* ---- nets (net.c) ---------------------------------------------------------------------------- */

typedef struct neap_lua_net {
  neap_net *net; /* a reference of its own */
} neap_lua_net;

neap_lua_net *neap_lua_net_at(lua_State *L, int index);
neap_lua_net *neap_lua_new_net(lua_State *L); /* an empty handle, to be filled; pushed */
/* The handle of a net that a workspace stores, as of workspaces below: one a net. */
void neap_lua_push_net(lua_State *L, neap_net *net);
void neap_lua_open_net(lua_State *L);

/* ---- workspaces, programs, plans, the database ----------------------------------------------- */

neap_workspace *neap_lua_workspace_at(lua_State *L, int index);
/* The handle of a workspace or scope that C gave: each has one, so that == compares them and Lua's
 * tables find what they know of it. */
void neap_lua_push_workspace(lua_State *L, neap_workspace *ws);
void neap_lua_push_scope(lua_State *L, neap_scope *scope);
/* The memory bank { name =, bytes =, kind = } at the top, as lua/neap/memory/bank.lua makes it.
 * Its name is the table's. */
void neap_lua_take_bank(lua_State *L, neap_bank *bank);
/* Memory options from the table at `index` (nil: none) for the net at `net_index`; rooms stay on
 * the stack. */
neap_options neap_lua_options(lua_State *L, int index, int net_index);
/* The same; `in_range`: of a range of batches, or of a batch within one. */
neap_options neap_lua_options_for(lua_State *L, int index, int net_index, bool in_range);
/* A plan handle, empty, to be filled; pushed. */
neap_memory_plan **neap_lua_new_plan(lua_State *L);
/* The plan at `index`; raises as every method of a plan does. */
const neap_memory_plan *neap_lua_plan_at(lua_State *L, int index);
/* A plan handle of the program at `program_index`, which it keeps alive. */
void neap_lua_push_session_plan(lua_State *L, int program_index);
/* Of the program handle at `index`; NULL when it was closed or is none. */
neap_session *neap_lua_session_at(lua_State *L, int index);
/* The range of batches at `index`; NULL for nil and none. */
const neap_range *neap_lua_opt_range(lua_State *L, int index);
/* The store that programs are recorded in, opened on first use; NULL when there is none or it can't
 * be opened (warned once). */
neap_db *neap_lua_store(lua_State *L);
/* Tells the database (NULL: none) once what script it is whose runs it will have. */
void neap_lua_note_script(lua_State *L, neap_db *db);
/* The run at `index`. */
neap_run *neap_lua_run_at(lua_State *L, int index);
/* neap_db_end_runs of every database that is open; what can't be written is a warning. `why` NULL:
 * each ends as its last step came to. */
void neap_lua_end_runs(lua_State *L, const neap_error *why);
void neap_lua_open_run(lua_State *L);

void neap_lua_open_workspace(lua_State *L);
/* Raises the error of a run. After Ctrl-C the next run is free again, and Lua need not stop a
 * second time. */
_Noreturn void neap_lua_raise_run(lua_State *L, const neap_error *error);
void neap_lua_open_scope(lua_State *L);
void neap_lua_open_program(lua_State *L);
void neap_lua_open_options(lua_State *L);
void neap_lua_open_plan(lua_State *L);
void neap_lua_open_range(lua_State *L);
void neap_lua_open_chain(lua_State *L);
/* count.c: dry runs and counts by class; after plans and nets */
void neap_lua_open_count(lua_State *L);
void neap_lua_open_db(lua_State *L);
void neap_lua_open_file(lua_State *L);
void neap_lua_open_memonger(lua_State *L);
void neap_lua_open_onnx(lua_State *L);
void neap_lua_open_caffe(lua_State *L);
void neap_lua_open_tflite(lua_State *L);

/* ---- the module (module.c) ------------------------------------------------------------------- */

/* What `require "neap"` calls; the program calls it too. */
__attribute__((visibility("default"))) int luaopen_neap(lua_State *L);
int luaopen_neap_core(lua_State *L);
/* Chunk names of Neap's own Lua files begin with this. */
#define NEAP_LUA_CHUNK "=neap:"

#endif
